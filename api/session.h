// api, internal: several executables of one graph on the same tensors, for the tuner's worker: checked
// against one reference, and timed in turns.
#ifndef FATHOM_API_SESSION_H
#define FATHOM_API_SESSION_H

#include "api/api.h"
#include "autotune/measure.h"

// ---- random numbers (check.c) -------------------------------------------------------------------

typedef struct api_generator {
  uint64_t state;
  double spare; // Box-Muller makes two at a time
  bool has_spare;
} api_generator;
double api_next_normal(void *generator); // a standard normal

typedef struct api_scaled {
  api_generator *generator;
  double offset, factor;
} api_scaled;

// ---- checking (check.c) -------------------------------------------------------------------------

typedef struct api_checker api_checker;

// Random inputs with `rows` rows and the reference's results for them. Lives in the call's arena.
// `executable`: any one of the graph, for where tensors lie. Not FATHOM_OK: see the call's diag or the
// error text.
fathom_status api_checker_open(api_call *call, const ir_graph *graph,
                               const fathom_executable *executable, int64_t rows, uint32_t seed,
                               api_checker **out);
// Runs an executable on them. *wrong is NULL when every result is within its bound and nothing around
// the results was written; else it says what is not, in the call's arena.
fathom_status api_checker_run(api_checker *checker, const fathom_executable *executable,
                              const char **wrong);

// ---- timing (bench.c) ---------------------------------------------------------------------------

typedef struct api_timer api_timer; // tensors of full size

fathom_status api_timer_open(api_call *call, fathom_context *context, const ir_graph *graph,
                             const fathom_executable *executable, int64_t rows, fathom_cache cache,
                             api_timer **out);
// A run of an executable on the timer's tensors, as work to be timed. Not FATHOM_OK: it cannot run.
fathom_status api_timer_work(api_timer *timer, const fathom_executable *executable, tune_work *out);
// Several of them (at least one) in turns for about `seconds`, on the device where there is one. Not FATHOM_OK: see the
// call's diag.
fathom_status api_timer_compare(api_timer *timer, const tune_work *works, uint32_t count,
                                double seconds, tune_timing *timings);
// One beside the machine's ceiling.
fathom_status api_timer_measure(api_timer *timer, const tune_work *work, double seconds,
                                tune_comparison *measured);
#endif
