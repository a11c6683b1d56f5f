// autotune: suites, the kernels of a model that are tuned in one go.
//
// A suite is a YAML file (docs/tuning.md, "Suites"):
//
//   schema: 1
//   rows: [1, 64, 1024]         # sizes of the dynamic axes to tune for, unless a kernel has its own
//   kernels:
//   - name: mix
//     file: site.fir            # beside the suite; or `text: |` and the graph below it
//     graph: site               # which of its graphs, where there are several
//     set: {D: [2304, 7168]}    # sizes of axes
//     dtypes: {bf16: f16}       # what is written bf16 is f16
//
// Of lists in `set` and `dtypes` every combination becomes an entry of its own.
#ifndef FATHOM_AUTOTUNE_SUITE_H
#define FATHOM_AUTOTUNE_SUITE_H

#include "ir/ir.h"

enum {
  TUNE_SUITE_SCHEMA = 1,    // of the files; another number is refused
  TUNE_SUITE_ENTRIES = 1024 // most of one suite
};

// Everything lives in the arena of the reader; strings are terminated.
typedef struct tune_suite_entry {
  const char *name; // the kernel's and what varies, "mix-D2304": letters, digits, '_', '.', '-'. No
                    // two entries have the same
  const char *dtypes;    // those that were exchanged, "bf16 as f16, f32 as bf16"; else ""
  const ir_graph *graph; // fit for IR_STAGE_PARSED, its axes bound; at least one is dynamic
  base_str file, text;   // that the places in the graph are about
  uint32_t row_count;    // at least 1
  const int64_t *rows;   // sizes of the dynamic axes, each above 0, in the order of the text
} tune_suite_entry;

typedef struct tune_suite {
  uint32_t count; // at least 1
  const tune_suite_entry *entries;
} tune_suite;

// Reads the text of a suite, which is diag's source, and the files that it names, relative to `folder`.
// NULL: all that is wrong is in diag; BASE_UNSUPPORTED for another schema.
const tune_suite *tune_suite_read(base_arena *arena, base_str text, const char *folder,
                                  base_diag *diag);

#endif
