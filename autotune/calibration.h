// autotune: what the cost model knows of a machine. Measured once by micro-benchmarks, and kept beside the
// device's records.
//
// Sections: figures, measuring, the file.
#ifndef FATHOM_AUTOTUNE_CALIBRATION_H
#define FATHOM_AUTOTUNE_CALIBRATION_H

#include "base/base.h"
#include "runtime/runtime.h"

// ---- figures ------------------------------------------------------------------------------------

// See calibration.def.
typedef struct tune_calibration {
#define CALIBRATION(name, usual, unit, summary) double name;
#include "autotune/calibration.def"
#undef CALIBRATION
} tune_calibration;

typedef struct tune_calibration_part {
  const char *name, *unit, *summary;
  size_t offset; // in tune_calibration, of a double
  double usual;
} tune_calibration_part;

enum {
#define CALIBRATION(name, usual, unit, summary) TUNE_CALIBRATION_##name,
#include "autotune/calibration.def"
#undef CALIBRATION
  TUNE_CALIBRATION_PARTS
};
extern const tune_calibration_part tune_calibration_parts[TUNE_CALIBRATION_PARTS];

double *tune_calibration_value(tune_calibration *calibration, const tune_calibration_part *part);
tune_calibration tune_calibration_usual(void); // where nothing was measured

// ---- measuring ----------------------------------------------------------------------------------

// Sizes of the streams for which the last level cache and memory are measured.
enum { TUNE_CACHE_BYTES = 16 << 20, TUNE_MEMORY_BYTES = 128 << 20 };

// This machine's CPU on the executor's threads, in about `seconds`. BASE_MEMORY: no room for the streams.
base_status tune_calibrate(const rt_executor *executor, double seconds, tune_calibration *out);

// ---- the file -----------------------------------------------------------------------------------

enum { TUNE_CALIBRATION_VERSION = 1 }; // another one is measured again

// False: there is none, or none that is whole and of this version. *contended: the machine was busy with
// something else when it was measured.
bool tune_calibration_read(base_arena *arena, const char *path, tune_calibration *out,
                           bool *contended);
// Whole or not at all.
base_status tune_calibration_write(base_arena *arena, const char *path,
                                   const tune_calibration *calibration, bool contended,
                                   base_str *why);

#endif
