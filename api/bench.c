// bench: an executable beside what this machine can do with the same reads and writes, in one run.
//
// Where runs are to find the caches cold, every tensor is there several times, and each run takes the
// next set of them.
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/session.h"
#include "api/tuned.h"
#include "autotune/measure.h"

static const double default_seconds = 2.0;
static const uint64_t most_cold_bytes = UINT64_C(2) << 30; // of all sets together, on the host
static const uint64_t usual_caches = UINT64_C(64) << 20;   // where nobody knows

// Cheap finite values: an xorshift step (Marsaglia 2003) gives something in [-1, 1).
static double next_value(void *state) {
  uint64_t *bits = state;
  *bits ^= *bits << 13;
  *bits ^= *bits >> 7;
  *bits ^= *bits << 17;
  return (double)(int32_t)(*bits >> 32) * 0x1p-31;
}

typedef struct bench_tensor {
  const char *name; // for messages
  rt_tensor tensor;
  DLTensor dlpack; // the same, in the set of the next run
  char *memory;    // of all sets
  size_t bytes;    // from one set to the next
  bool is_input;
} bench_tensor;

typedef struct bench_frame {
  const fathom_graph *graph;
  const fathom_executable *executable;
  const fathom_bench_options *options;
  fathom_bench_result result;

  rt_executor executor;
  fathom_executor public_executor;
  uint32_t count, sets, step;
  uint32_t *set;       // of the next run, whichever executable's it is
  uint64_t cold_bytes; // that the host's caches hold; 0 where they may be warm
  bench_tensor *tensors;
  fathom_arg *args;
  void *workspace;
  size_t workspace_bytes;
  uint64_t read_bytes, written_bytes;
  uint64_t line_bytes;  // of the cache lines that they are in
  fathom_status status; // of the runs: the first that failed
} bench_frame;

// ---- tensors ------------------------------------------------------------------------------------

enum { LINE = 64 }; // bytes of a CPU's cache line

// Sets begin at multiples of it, in bytes. A CPU fetches two lines together.
static size_t unit_of(const bench_frame *frame) {
  return api_executable_device(frame->executable) != NULL ? 256 : API_ALIGNMENT;
}

// What a tensor is, without memory. `share` of an input's bytes must be read.
static fathom_status lay_out(bench_frame *frame, const ir_node *node, const int64_t *sizes,
                             bool is_input, double share) {
  size_t unit = unit_of(frame);
  bench_tensor *t = &frame->tensors[frame->count];
  size_t elements;
  *t = (bench_tensor){.name = node->name.data, .is_input = is_input};
  if (!api_tensor_layout(node, sizes, 0, &t->tensor, &elements))
    return api_fail(FATHOM_INVALID, "%%%s has more bytes than fit in memory", t->name);
  t->bytes = (elements * rt_dtype_size(t->tensor.dtype) + unit - 1) / unit * unit;
  uint64_t moved = (uint64_t)api_tensor_count(&t->tensor) * rt_dtype_size(t->tensor.dtype);
  if (is_input)
    moved = (uint64_t)(share * (double)moved);
  else if (node->op == IR_PARAM) // a returned parameter is a copy that no kernel has to make
    moved = 0;
  *(is_input ? &frame->read_bytes : &frame->written_bytes) += moved;
  frame->line_bytes += (moved + LINE - 1) / LINE * LINE;
  frame->args[frame->count++] = (fathom_arg){.name = t->name, .tensor = &t->dlpack};
  return FATHOM_OK;
}

// An input's values: one pattern again and again, where there are several sets or the device's memory
// may be larger than the host's.
static bool fill_memory(api_call *call, const bench_frame *frame, const bench_tensor *t, char *host,
                        size_t filled) {
  size_t element = rt_dtype_size(t->tensor.dtype), bytes = frame->sets * t->bytes;
  rt_tensor values = {.dtype = t->tensor.dtype,
                      .rank = 1,
                      .shape = {(int64_t)(filled / element)},
                      .strides = {1},
                      .data = host};
  uint64_t state = UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)(t - frame->tensors);
  api_tensor_fill(&values, next_value, &state);
  if (!api_device_copy(call, frame->executable, t->memory, host, filled)) return false;
  for (size_t done = filled; done < bytes; done += filled) {
    size_t part = bytes - done < filled ? bytes - done : filled;
    if (!api_device_copy(call, frame->executable, t->memory + done, t->memory, part)) return false;
  }
  return true;
}

static fathom_status give_memory(api_call *call, bench_frame *frame, bench_tensor *t) {
  enum { PATTERN = 1 << 20 }; // bytes, whole elements of every dtype
  bool apart = api_device_dlpack(frame->executable).device_type != kDLCPU;
  size_t bytes, filled;
  if (__builtin_mul_overflow(frame->sets, t->bytes, &bytes))
    return api_fail(FATHOM_INVALID, "%%%s has more bytes than fit in memory", t->name);
  filled = !apart ? t->bytes : bytes > PATTERN ? PATTERN : bytes;
  char *host = NULL; // zeroed, which touches every page of the results
  if (!apart || t->is_input) host = api_alloc_aligned(&call->arena, apart ? filled : bytes);
  t->memory = api_device_mirror(call, frame->executable, host, bytes);
  if (t->memory == NULL) return FATHOM_MEMORY; // and the reason is in the call's diag
  if (t->is_input && !fill_memory(call, frame, t, host, filled)) return FATHOM_INTERNAL;
  t->tensor.data = t->memory;
  t->dlpack = api_tensor_dlpack(&t->tensor);
  t->dlpack.device = api_device_dlpack(frame->executable);
  return FATHOM_OK;
}

// ---- before measuring ---------------------------------------------------------------------------

static fathom_status lay_out_all(api_call *call, bench_frame *frame, const ir_graph *graph) {
  int64_t rows = frame->options->dynamic_size != 0 ? frame->options->dynamic_size : API_USUAL_ROWS;
  const int64_t *sizes = api_axis_sizes(&call->arena, graph, rows);
  uint32_t results = graph->results.count;
  fathom_status status = FATHOM_OK;
  frame->args = base_new_array(&call->arena, fathom_arg, graph->param_count + results);
  frame->tensors = base_new_array(&call->arena, bench_tensor, graph->param_count + results);
  for (uint32_t i = 0; i < graph->param_count && status == FATHOM_OK; i++)
    status = lay_out(frame, ir_node_of(graph, (ir_value){i}), sizes, true,
                     ir_share_read(graph, (ir_value){i}));
  for (uint32_t i = 0; i < results && status == FATHOM_OK; i++)
    status = lay_out(frame, ir_node_of(graph, graph->results.data[i]), sizes, false, 1);
  if (status == FATHOM_OK && frame->read_bytes + frame->written_bytes == 0)
    return api_fail(FATHOM_INVALID, "graph @%s moves no bytes at these sizes: nothing to measure",
                    frame->executable->graph_name);
  return status;
}

// The context's pool is what runs, beside it the ceiling's streams.
static fathom_status share_pool(fathom_context *context, bench_frame *frame) {
  frame->public_executor = (fathom_executor){.size = sizeof frame->public_executor};
  if (frame->executable->kind == API_CUDA) return FATHOM_OK;
  fathom_status status = api_context_pool(context, &frame->executor);
  frame->public_executor.user = frame->executor.user;
  frame->public_executor.concurrency = frame->executor.concurrency;
  frame->public_executor.parallel_for = frame->executor.parallel_for;
  return status;
}

// What the host's caches hold. In a virtual machine that may be less than what the system says.
static fathom_status find_caches(uint64_t *bytes) {
  enum { MOST_MEGABYTES = 1 << 20 };
  const char *given = getenv("FATHOM_CPU_CACHE_MB");
  rt_processor processor = rt_processor_read();
  *bytes = processor.caches > 0 ? processor.caches : usual_caches;
  if (given == NULL || given[0] == 0) return FATHOM_OK;
  char *end;
  double megabytes = strtod(given, &end);
  if (*end != 0 || !(megabytes >= 1 && megabytes <= MOST_MEGABYTES))
    return api_fail(FATHOM_INVALID,
                    "FATHOM_CPU_CACHE_MB is '%s': expected a number of megabytes from 1 on", given);
  *bytes = (uint64_t)(megabytes * (1 << 20));
  return FATHOM_OK;
}

// As many sets of the tensors as the host's caches take, if there is memory for them.
static fathom_status choose_host_sets(bench_frame *frame) {
  uint64_t room = 0; // of a set
  fathom_status status = find_caches(&frame->cold_bytes);
  if (status != FATHOM_OK) return status;
  for (uint32_t i = 0; i < frame->count; i++)
    room += frame->tensors[i].bytes;
  frame->sets = tune_cold_sets_of(frame->cold_bytes, frame->line_bytes);
  frame->step = tune_cold_step(frame->sets);
  if (frame->sets == 1 || frame->sets <= most_cold_bytes / room) return FATHOM_OK;
  return api_fail(FATHOM_UNSUPPORTED,
                  "cold caches take %u sets of the tensors, %.1f GB, and there may be %.1f GB: the "
                  "caches of this machine hold %.1f MB\n"
                  "  hint: more rows than the caches hold come from memory anyway; and "
                  "$FATHOM_CPU_CACHE_MB says how much that is, where the system is wrong",
                  frame->sets, (double)frame->sets * (double)room * 1e-9,
                  (double)most_cold_bytes * 1e-9, (double)frame->cold_bytes * 1e-6);
}

static fathom_status choose_sets(bench_frame *frame) {
  rt_device *device = api_executable_device(frame->executable);
  frame->sets = frame->step = 1;
  if (frame->result.cache != FATHOM_CACHE_COLD) return FATHOM_OK;
  if (device == NULL) return choose_host_sets(frame);
  frame->sets = tune_cold_sets(device, frame->read_bytes + frame->written_bytes);
  return FATHOM_OK;
}

static fathom_status prepare(api_call *call, bench_frame *frame, const ir_graph *graph) {
  fathom_status status = lay_out_all(call, frame, graph);
  if (status == FATHOM_OK) status = choose_sets(frame);
  frame->set = base_new(&call->arena, uint32_t);
  for (uint32_t i = 0; i < frame->count && status == FATHOM_OK; i++)
    status = give_memory(call, frame, &frame->tensors[i]);
  if (status == FATHOM_OK)
    status = fathom_workspace_size(frame->executable, frame->args, frame->count,
                                   &frame->public_executor, &frame->workspace_bytes);
  if (status != FATHOM_OK) return status;
  void *host = NULL; // where that is what kernels see
  if (api_device_dlpack(frame->executable).device_type == kDLCPU)
    host = api_alloc_aligned(&call->arena, frame->workspace_bytes);
  frame->workspace = api_device_mirror(call, frame->executable, host, frame->workspace_bytes);
  return frame->workspace != NULL ? FATHOM_OK : FATHOM_MEMORY;
}

// ---- runs ---------------------------------------------------------------------------------------

static void run_once(void *user) {
  bench_frame *frame = user;
  for (uint32_t i = 0; i < frame->count && frame->sets > 1; i++)
    frame->tensors[i].dlpack.data =
        frame->tensors[i].memory + *frame->set * frame->tensors[i].bytes;
  *frame->set = (*frame->set + frame->step) % frame->sets;
  fathom_status status = fathom_run(frame->executable, frame->args, frame->count, frame->workspace,
                                    frame->workspace_bytes, &frame->public_executor);
  if (frame->status == FATHOM_OK) frame->status = status;
}

// On the host, all sets once: what was filled last is not warmer than the rest when timing begins.
// A run that is refused is refused at once.
static fathom_status go_round(bench_frame *frame) {
  uint32_t runs = api_executable_device(frame->executable) != NULL ? 1 : frame->sets;
  for (uint32_t i = 0; i < runs && frame->status == FATHOM_OK; i++)
    run_once(frame);
  return frame->status;
}

static base_status measure_work(api_call *call, bench_frame *frame, tune_work work, double seconds,
                                tune_comparison *measured) {
  rt_device *device = api_executable_device(frame->executable);
  if (device == NULL)
    return tune_measure_interleaved(work, &frame->executor, frame->read_bytes, frame->written_bytes,
                                    frame->cold_bytes, seconds, measured);
  return tune_measure_device(device, work, frame->sets, frame->read_bytes + frame->written_bytes,
                             seconds, measured, &call->diag);
}

// ---- timers -------------------------------------------------------------------------------------

struct api_timer {
  api_call *call;
  bench_frame frame; // its tensors are for all
  bool ran;
};

fathom_status api_timer_open(api_call *call, fathom_context *context, const ir_graph *graph,
                             const fathom_executable *executable, int64_t rows, fathom_cache cache,
                             api_timer **out) {
  fathom_bench_options *options = base_new(&call->arena, fathom_bench_options);
  *options = (fathom_bench_options){.size = sizeof *options, .dynamic_size = rows, .cache = cache};
  api_timer *timer = *out = base_new(&call->arena, api_timer);
  timer->call = call;
  timer->frame = (bench_frame){.executable = executable, .options = options};
  timer->frame.result.cache = cache;
  fathom_status status = share_pool(context, &timer->frame);
  return status == FATHOM_OK ? prepare(call, &timer->frame, graph) : status;
}

fathom_status api_timer_work(api_timer *timer, const fathom_executable *executable,
                             tune_work *out) {
  bench_frame *own = base_new(&timer->call->arena, bench_frame);
  *own = timer->frame;
  own->executable = executable;
  size_t needed;
  fathom_status status =
      fathom_workspace_size(executable, own->args, own->count, &own->public_executor, &needed);
  if (status != FATHOM_OK) return status;
  if (needed > timer->frame.workspace_bytes) { // the larger one is for all that come later
    void *memory = api_alloc_aligned(&timer->call->arena, needed);
    timer->frame.workspace = api_device_mirror(timer->call, executable, memory, needed);
    if (timer->frame.workspace == NULL) return FATHOM_MEMORY;
    timer->frame.workspace_bytes = needed;
    own->workspace = timer->frame.workspace;
  }
  own->workspace_bytes = needed;
  *out = (tune_work){run_once, own};
  if (timer->ran)
    run_once(own);
  else
    go_round(own);
  timer->ran = true;
  return own->status;
}

// How the runs went since the last call of this.
static fathom_status work_status(const tune_work *work) {
  bench_frame *frame = work->user;
  fathom_status status = frame->status;
  frame->status = FATHOM_OK;
  return status;
}

fathom_status api_timer_compare(api_timer *timer, const tune_work *works, uint32_t count,
                                double seconds, tune_timing *timings) {
  // The executable that the timer was opened with may be gone.
  const bench_frame *first = works[0].user;
  rt_device *device = api_executable_device(first->executable);
  base_status timed = device == NULL ? tune_time_in_turns(works, count, seconds, timings)
                                     : tune_time_on_device(device, works, count, timer->frame.sets,
                                                           seconds, timings, &timer->call->diag);
  fathom_status status = (fathom_status)timed;
  for (uint32_t i = 0; i < count; i++) {
    fathom_status run = work_status(&works[i]);
    if (status == FATHOM_OK) status = run;
  }
  return status;
}

fathom_status api_timer_measure(api_timer *timer, const tune_work *work, double seconds,
                                tune_comparison *measured) {
  base_status timed = measure_work(timer->call, work->user, *work, seconds, measured);
  fathom_status run = work_status(work);
  return timed != BASE_OK ? (fathom_status)timed : run;
}

// ---- measuring ----------------------------------------------------------------------------------

static base_status measure(api_call *call, bench_frame *frame, tune_comparison *measured) {
  double seconds = frame->options->seconds > 0 ? frame->options->seconds : default_seconds;
  return measure_work(call, frame, (tune_work){run_once, frame}, seconds, measured);
}

static fathom_status bench_body(api_call *call, void *opaque) {
  bench_frame *frame = opaque;
  ir_graph *graph = api_graph_open(call, frame->graph);
  if (!ir_verify(graph, IR_STAGE_BOUND, &call->diag)) return FATHOM_INVALID;
  fathom_status status = prepare(call, frame, graph);
  if (status != FATHOM_OK) return status;
  status = go_round(frame); // a run that is refused is not measured
  if (status != FATHOM_OK) return status;
  tune_comparison measured;
  base_status timing = measure(call, frame, &measured);
  if (frame->status != FATHOM_OK) return frame->status;
  if (timing != BASE_OK)
    return api_fail((fathom_status)timing, "measuring failed: %s", base_status_text(timing));
  bool on_device = api_executable_device(frame->executable) != NULL;
  int64_t size = frame->options->dynamic_size != 0 ? frame->options->dynamic_size : API_USUAL_ROWS;
  const cg_artefact *artefact = api_artefact_for(frame->executable, api_rows_of(graph, size));
  frame->result = (fathom_bench_result){
      .median_us = measured.kernel.median * 1e6,
      .minimum_us = measured.kernel.minimum * 1e6,
      .spread = measured.kernel.spread,
      .bytes = frame->read_bytes + frame->written_bytes,
      .gb_s = measured.gb_s,
      .ceiling_gb_s = measured.ceiling.gb_s,
      .of_ceiling = measured.gb_s / measured.ceiling.gb_s,
      .runs = measured.kernel.runs,
      .threads = on_device ? 0 : frame->executor.concurrency,
      .batch = on_device ? measured.batch : 0,
      .cache = frame->result.cache,
      .sets = frame->sets,
      .launch_us = measured.launch_seconds * 1e6,
      .schedule = artefact != NULL ? artefact->schedule : "",
      .schedule_source = artefact != NULL ? artefact->schedule_source : "default",
  };
  return FATHOM_OK;
}

fathom_status api_cache_choose(api_kind kind, fathom_cache wanted, fathom_cache *out) {
  *out = wanted;
  if (wanted == FATHOM_CACHE_DEFAULT)
    *out = kind == API_CUDA ? FATHOM_CACHE_COLD : FATHOM_CACHE_WARM;
  if (*out == FATHOM_CACHE_WARM || *out == FATHOM_CACHE_COLD) return FATHOM_OK;
  return api_fail(FATHOM_INVALID, "'cache' is %d, which is no fathom_cache", (int)*out);
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
  status = api_cache_choose(executable->kind, options.cache, &frame.result.cache);
  if (status != FATHOM_OK) return status;
  status = API_STRUCT_OUT(result, frame.result,
                          fathom_bench_result); // refused before two seconds of work
  if (status != FATHOM_OK) return status;
  status = share_pool(context, &frame);
  if (status != FATHOM_OK) return status;
  status = api_call_run(context, bench_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(result, frame.result, fathom_bench_result) : status;
}
