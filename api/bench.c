// bench: an executable beside what this machine can do with the same reads and writes, in one run.
#include <string.h>

#include "api/api.h"
#include "autotune/measure.h"

enum { DEFAULT_ROWS = 1024 };
static const double default_seconds = 2.0;

// Cheap finite values: an xorshift step (Marsaglia 2003) gives something in [-1, 1).
static double next_value(void *state) {
  uint64_t *bits = state;
  *bits ^= *bits << 13;
  *bits ^= *bits >> 7;
  *bits ^= *bits << 17;
  return (double)(int32_t)(*bits >> 32) * 0x1p-31;
}

typedef struct bench_frame {
  const fathom_graph *graph;
  const fathom_executable *executable;
  const fathom_bench_options *options;
  fathom_bench_result result;

  rt_executor executor;
  fathom_executor public_executor;
  uint32_t count;
  fathom_arg *args;
  void *workspace;
  size_t workspace_bytes;
  uint64_t read_bytes, written_bytes;
  fathom_status status; // of the runs: the first that failed
} bench_frame;

// Dense memory that kernels see, with values when it is an input. That of a device gets the same ones
// again and again: it may be larger than the host's. NULL: see the call's diag.
static char *make_memory(api_call *call, const bench_frame *frame, rt_dtype dtype, size_t elements,
                         bool is_input) {
  enum { PATTERN = 1 << 24 }; // elements
  bool apart = api_device_dlpack(frame->executable).device_type != kDLCPU;
  size_t element = rt_dtype_size(dtype), part = elements;
  if (apart && part > PATTERN) part = PATTERN;
  rt_tensor host = {.dtype = dtype, .rank = 1, .shape = {(int64_t)part}, .strides = {1}};
  if (!apart || is_input) host.data = api_alloc_aligned(&call->arena, part * element);
  char *seen = api_device_mirror(call, frame->executable, host.data, elements * element);
  if (seen == NULL || !is_input) return seen;
  uint64_t state = UINT64_C(0x2545f4914f6cdd1d) + frame->count;
  api_tensor_fill(&host, next_value, &state);
  for (size_t i = 0; i < elements && apart; i += part) {
    size_t count = elements - i < part ? elements - i : part;
    if (!api_device_copy(call, frame->executable, seen + i * element, host.data, count * element))
      return NULL;
  }
  return seen;
}

// A tensor in the layout of the graph. `share` of an input's bytes must be read.
static fathom_status add_tensor(api_call *call, bench_frame *frame, const ir_node *node,
                                const int64_t *sizes, bool is_input, double share) {
  rt_tensor *tensor = base_new(&call->arena, rt_tensor);
  DLTensor *dlpack = base_new(&call->arena, DLTensor);
  size_t elements;
  if (!api_tensor_layout(node, sizes, 0, tensor, &elements))
    return api_fail(FATHOM_INVALID, "%%%.*s has more bytes than fit in memory",
                    BASE_FMT(node->name));
  tensor->data = make_memory(call, frame, tensor->dtype, elements, is_input);
  if (tensor->data == NULL) return FATHOM_MEMORY;
  uint64_t bytes = (uint64_t)api_tensor_count(tensor) * rt_dtype_size(tensor->dtype);
  if (is_input)
    frame->read_bytes += (uint64_t)(share * (double)bytes);
  else if (node->op != IR_PARAM) // a returned parameter is a copy that no kernel has to make
    frame->written_bytes += bytes;
  *dlpack = api_tensor_dlpack(tensor);
  dlpack->device = api_device_dlpack(frame->executable);
  frame->args[frame->count++] = (fathom_arg){.name = node->name.data, .tensor = dlpack};
  return FATHOM_OK;
}

static fathom_status prepare(api_call *call, bench_frame *frame, const ir_graph *graph) {
  int64_t rows = frame->options->dynamic_size != 0 ? frame->options->dynamic_size : DEFAULT_ROWS;
  const int64_t *sizes = api_axis_sizes(&call->arena, graph, rows);
  uint32_t results = graph->results.count;
  fathom_status status = FATHOM_OK;
  frame->args = base_new_array(&call->arena, fathom_arg, graph->param_count + results);
  for (uint32_t i = 0; i < graph->param_count && status == FATHOM_OK; i++)
    status = add_tensor(call, frame, ir_node_of(graph, (ir_value){i}), sizes, true,
                        ir_share_read(graph, (ir_value){i}));
  for (uint32_t i = 0; i < results && status == FATHOM_OK; i++)
    status = add_tensor(call, frame, ir_node_of(graph, graph->results.data[i]), sizes, false, 1);
  if (status != FATHOM_OK) return status;
  status = fathom_workspace_size(frame->executable, frame->args, frame->count,
                                 &frame->public_executor, &frame->workspace_bytes);
  if (status != FATHOM_OK) return status;
  frame->workspace =
      make_memory(call, frame, RT_F32, frame->workspace_bytes / sizeof(float) + 1, false);
  return frame->workspace != NULL ? FATHOM_OK : FATHOM_MEMORY;
}

static void run_once(void *user) {
  bench_frame *frame = user;
  fathom_status status = fathom_run(frame->executable, frame->args, frame->count, frame->workspace,
                                    frame->workspace_bytes, &frame->public_executor);
  if (frame->status == FATHOM_OK) frame->status = status;
}

static fathom_status bench_body(api_call *call, void *opaque) {
  bench_frame *frame = opaque;
  ir_graph *graph = api_graph_open(call, frame->graph);
  if (!ir_verify(graph, IR_STAGE_BOUND, &call->diag)) return FATHOM_INVALID;
  fathom_status status = prepare(call, frame, graph);
  if (status != FATHOM_OK) return status;
  run_once(frame); // a run that is refused is not measured
  if (frame->status != FATHOM_OK) return frame->status;
  if (frame->read_bytes + frame->written_bytes == 0)
    return api_fail(FATHOM_INVALID, "graph @%s moves no bytes at these sizes: nothing to measure",
                    frame->executable->graph_name);
  double seconds = frame->options->seconds > 0 ? frame->options->seconds : default_seconds;
  rt_device *device = api_executable_device(frame->executable);
  tune_work work = {run_once, frame};
  tune_comparison measured;
  base_status timing =
      device != NULL ? tune_measure_device(device, work, frame->read_bytes + frame->written_bytes,
                                           seconds, &measured, &call->diag)
                     : tune_measure_interleaved(work, &frame->executor, frame->read_bytes,
                                                frame->written_bytes, seconds, &measured);
  if (frame->status != FATHOM_OK) return frame->status;
  if (timing != BASE_OK)
    return api_fail((fathom_status)timing, "measuring failed: %s", base_status_text(timing));
  frame->result = (fathom_bench_result){
      .median_us = measured.kernel.median * 1e6,
      .minimum_us = measured.kernel.minimum * 1e6,
      .spread = measured.kernel.spread,
      .bytes = frame->read_bytes + frame->written_bytes,
      .gb_s = measured.gb_s,
      .ceiling_gb_s = measured.ceiling.gb_s,
      .of_ceiling = measured.gb_s / measured.ceiling.gb_s,
      .runs = measured.kernel.runs,
      .threads = device != NULL ? 0 : frame->executor.concurrency,
  };
  return FATHOM_OK;
}

fathom_status fathom_bench(fathom_context *context, const fathom_graph *graph,
                           const fathom_executable *executable, const fathom_bench_options *given,
                           fathom_bench_result *result) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(executable);
  API_REQUIRE(result);
  fathom_bench_options options;
  fathom_status status = API_STRUCT_IN(options, given, fathom_bench_options);
  if (status != FATHOM_OK) return status;
  if (executable->kind == API_EMULATOR)
    return api_fail(FATHOM_UNSUPPORTED,
                    "the times of the emulator say nothing about a GPU\n"
                    "  hint: bench on the target cuda; `fathom check` counts the bytes moved");
  if (options.dynamic_size < 0 || !(options.seconds >= 0))
    return api_fail(FATHOM_INVALID, "'dynamic_size' and 'seconds' must be 0 or more");
  bench_frame frame = {.graph = graph, .executable = executable, .options = &options};
  status = API_STRUCT_OUT(result, frame.result,
                          fathom_bench_result); // refused before two seconds of work
  if (status != FATHOM_OK) return status;
  frame.public_executor = (fathom_executor){.size = sizeof frame.public_executor};
  if (executable->kind != API_CUDA) {
    status = api_context_pool(context, &frame.executor);
    if (status != FATHOM_OK) return status;
    frame.public_executor.user = frame.executor.user;
    frame.public_executor.concurrency = frame.executor.concurrency;
    frame.public_executor.parallel_for = frame.executor.parallel_for;
  }
  status = api_call_run(context, bench_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(result, frame.result, fathom_bench_result) : status;
}
