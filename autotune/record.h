// autotune: what is remembered of tuning. A record says, for one kernel on one device, which schedule
// was found best, and how every schedule that was tried did.
//
// Sections: devices, keys, trials, records.
#ifndef FATHOM_AUTOTUNE_RECORD_H
#define FATHOM_AUTOTUNE_RECORD_H

#include "base/base.h"

// ---- devices ------------------------------------------------------------------------------------

// One file of the database is about one device. All members identify it: a CPU model with other
// features, or a GPU with another number of multiprocessors, is another device. Strings are never
// NULL.
typedef struct tune_device {
  const char *kind;     // "cpu" or "cuda"
  const char *name;     // as the system says it: "Intel(R) Xeon(R) Platinum 8481C"
  const char *features; // of a CPU those that decide about code, "avx2 avx512f ..."; of a GPU "9.0"
  int64_t units;        // cores that the process may use, or multiprocessors
} tune_device;

// ---- keys ---------------------------------------------------------------------------------------

// What a timing holds for; the parts are in key.def, with what happens when one differs.
typedef struct tune_key {
#define KEY_TEXT(name, rule, summary) const char *name;
#define KEY_NUMBER(name, rule, summary) int64_t name;
#include "autotune/key.def"
#undef KEY_TEXT
#undef KEY_NUMBER
} tune_key;

// ---- trials -------------------------------------------------------------------------------------

// How trying a schedule ended.
typedef enum tune_outcome {
  TUNE_TIMED,    // right, and timed
  TUNE_REFUSED,  // the compiler refuses it, and says why
  TUNE_WRONG,    // results beyond their bounds, or memory outside the outputs written
  TUNE_CRASHED,  // the worker process died
  TUNE_TIMEOUT,  // took longer than it may: killed
  TUNE_MEMORY,   // took more memory than it may
  TUNE_PREDICTED // not run: the cost model's time
} tune_outcome;

typedef struct tune_trial {
  const char *schedule; // complete, as kir_schedule_print writes it
  tune_outcome outcome;
  uint32_t level;   // fidelity: level 0 is timed shortest, each further one about twice as long
  double median_us; // TUNE_TIMED and TUNE_PREDICTED; else 0
  double spread;    // (third quartile - first quartile) / median
  const char *why;  // of a failure, one line; else ""
} tune_trial;

const char *tune_outcome_name(tune_outcome outcome); // "timed", ...
bool tune_outcome_parse(base_str name, tune_outcome *outcome);

// ---- records ------------------------------------------------------------------------------------

typedef struct tune_record {
  tune_key key;
  const char *graph_name; // for people: not part of the key
  const char *axes;       // for people: "B=8 D=7168 N=9"
  const char *source;     // "measured" or "model": the latter is never used as if it were measured
  const char *cache;      // "warm" or "cold": what timed runs found in the caches
  const char *date;       // UTC, "2026-11-30T20:00:00Z"
  uint64_t seed;          // of the search
  bool contended;         // other load was noticed while it was timed
  tune_trial best, initial; // the winner, and the default schedule beside it in the same run
  double of_ceiling;        // of the winner; 0: not measured
  uint32_t trial_count;
  const tune_trial *trials; // one for each schedule tried: that of the highest level
} tune_record;

#endif
