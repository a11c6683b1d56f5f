// api, internal: several executables of one graph on the same tensors, for the tuner's worker: checked
// against one reference, and timed in turns.
#ifndef FATHOM_API_SESSION_H
#define FATHOM_API_SESSION_H

#include "api/api.h"
#include "autotune/measure.h"

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
// How the runs went since the last call of this.
fathom_status api_timer_status(const tune_work *work);
uint64_t api_timer_read_bytes(const api_timer *timer);
uint64_t api_timer_written_bytes(const api_timer *timer);
uint64_t api_timer_cold_bytes(const api_timer *timer); // as tune_measure_interleaved takes it
const rt_executor *api_timer_executor(const api_timer *timer);

#endif
