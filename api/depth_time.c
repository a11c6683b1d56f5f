// depth_time: how long the runs of a model's plan take, so that one and two phases can be weighed against
// each other: what the tuner measured for a kernel where it did, else what the cost model says of the
// schedule that the kernel would get.
#include <math.h>

#include "api/depth.h"
#include "api/tune_store.h"
#include "api/tune_subject.h"
#include "api/tuned.h"

// What is the same for all kernels.
typedef struct timing {
  api_call *call;
  const api_request *request;
  int64_t rows;
  uint32_t threads;
  tune_calibration calibration; // of a CPU
} timing;

static double predict(const timing *t, const fathom_graph *graph, const char *schedule) {
  base_arena *arena = &t->call->arena;
  const base_diag before = t->call->diag;
  tune_subject subject;
  double seconds = NAN;
  kir_schedule chosen;
  if (api_tune_subject(t->call, graph, t->request, t->rows, t->threads, &subject)) {
    chosen = subject.initial;
    if (schedule == NULL || kir_schedule_parse(schedule, &chosen, &t->call->diag)) {
      const tune_space space = {.initial = chosen, .count = 1, .schedules = &chosen};
      if (subject.machine == KIR_CPU)
        tune_predict_cpu(arena, &subject, &space, &t->calibration, &seconds);
      else
        tune_predict_cuda(arena, &subject, &space, &seconds);
    }
  }
  t->call->diag = before; // what cannot be told is no error
  return isfinite(seconds) ? seconds : NAN;
}

static double time_kernel(const timing *t, const ir_graph *kernel) {
  const fathom_graph *graph = api_graph_handle(t->call, kernel);
  const api_tuned *tuned;
  const uint32_t count = api_tuned_find(t->call, graph->ir, t->request, &tuned);
  const api_tuned *best = count > 0 ? api_tuned_nearest(tuned, count, t->rows) : NULL;
  // Measured for about as many tokens: the time of each is much the same.
  if (best != NULL && !best->by_model && best->seconds > 0 && best->rows <= 2 * t->rows &&
      t->rows <= 2 * best->rows)
    return best->seconds * (double)t->rows / (double)best->rows;
  return predict(t, graph, best != NULL ? best->schedule : NULL);
}

const double *api_depth_times(api_call *call, const api_request *request, int64_t rows,
                              const pass_outline *outline) {
  if (!api_targets[request->kind].compiles) return NULL;
  timing t = {.call = call,
              .request = request,
              .rows = rows,
              .threads = rt_pool_threads(call->context->threads),
              .calibration = tune_calibration_usual()};
  if (request->kind == API_CPU) api_calibration_find(call, t.threads, &t.calibration);
  double *seconds = base_new_array(&call->arena, double, outline->kernels.count + 1);
  for (uint32_t i = 0; i < outline->kernels.count; i++) {
    seconds[i] = time_kernel(&t, outline->kernels.data[i]);
    if (isnan(seconds[i])) return NULL;
  }
  return seconds;
}
