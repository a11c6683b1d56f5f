// autotune: measuring candidates in a worker process (api/tune_worker.c is its other end).
#ifndef FATHOM_AUTOTUNE_MEASURE_WORKER_H
#define FATHOM_AUTOTUNE_MEASURE_WORKER_H

#include "autotune/search.h"
#include "autotune/worker.h"

typedef struct tune_bench_options {
  const char *const *arguments; // of the worker, its program first, NULL at the end
  base_str job;                 // the lines of its job, up to and with the graph's text
  double trial_seconds;         // how long a candidate may take to compile and to be checked
  uint64_t most_bytes;          // of memory that the worker may hold
  bool on_device;               // candidates run on a GPU
  bool
      predicts; // nothing is timed: the worker answers with a model's times, and checks the finalists
} tune_bench_options;

// A bench measures the schedules of a space: it starts the worker when one is needed, and another one
// when that has died.
typedef struct tune_bench {
  base_arena *arena; // for what is remembered
  const tune_space *space;
  tune_bench_options options;
  tune_worker worker;
  double initial_seconds; // of the default schedule, when it was first timed
  uint32_t restarts;
} tune_bench;

void tune_bench_open(tune_bench *bench, base_arena *arena, const tune_space *space,
                     const tune_bench_options *options);
tune_measurer tune_bench_measurer(tune_bench *bench);
// The schedule beside the machine's copy ceiling: its share of it, and the ceiling. False: see diag.
bool tune_bench_ceiling(tune_bench *bench, uint32_t schedule, double seconds, double *share,
                        double *gb_s, base_diag *diag);
void tune_bench_close(tune_bench *bench);

#endif
