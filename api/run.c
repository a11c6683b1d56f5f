// run: workspace sizes and execution on all targets. Both bind and check alike (args.c), so that
// they refuse the same things in the same words.
#include <stdint.h>

#include "api/device_run.h"

static const base_loc nowhere;

// ---- DLPack 1.0 ---------------------------------------------------------------------------------

fathom_status fathom_from_dlpack_versioned(const fathom_dlpack_versioned *managed, int for_writing,
                                           const DLTensor **out) {
  enum { READ_ONLY = 1, KNOWN_MAJOR = 1 };
  api_error_clear();
  API_REQUIRE(managed);
  API_REQUIRE(out);
  *out = NULL;
  if (managed->version.major != KNOWN_MAJOR)
    return api_fail(FATHOM_UNSUPPORTED, "a DLPack %u.%u tensor: expected version 1.x",
                    managed->version.major, managed->version.minor);
  if (for_writing && (managed->flags & READ_ONLY) != 0)
    return api_fail(FATHOM_INVALID, "the tensor is read-only and cannot be an output\n"
                                    "  hint: give a writable tensor, such as a copy");
  *out = &managed->dl_tensor;
  return FATHOM_OK;
}

// ---- a run --------------------------------------------------------------------------------------

typedef struct run_frame {
  const fathom_executable *executable;
  const fathom_arg *given;
  uint32_t count;
  rt_executor executor;
  api_device_run on_device; // cuda, cuda-emu
  void *workspace;
  size_t workspace_bytes;
  size_t needed; // of the workspace
  api_args args;
} run_frame;

fathom_status api_executor_read(fathom_context *context, api_kind kind,
                                const fathom_executor *given, api_executor *out) {
  *out = (api_executor){.host = {.concurrency = 1}};
  if (given == NULL) // only the cpu has a use for a pool
    return kind == API_CPU ? api_context_pool(context, &out->host) : FATHOM_OK;
  fathom_executor executor;
  fathom_status status = API_STRUCT_IN(executor, given, fathom_executor);
  if (status != FATHOM_OK) return status;
  out->stream = executor.stream;
  out->check_pointers = executor.check_pointers != 0;
  if (api_targets[kind].gpu) return FATHOM_OK;
  if (executor.parallel_for == NULL || executor.concurrency == 0)
    return api_fail(FATHOM_INVALID,
                    "an executor needs 'parallel_for' and a 'concurrency' of 1 or more");
  out->host = (rt_executor){executor.user, executor.concurrency, executor.parallel_for};
  return FATHOM_OK;
}

static fathom_status read_executor(run_frame *frame, const fathom_executor *given) {
  const fathom_executable *executable = frame->executable;
  api_executor executor;
  const fathom_status status =
      api_executor_read(executable->context, executable->kind, given, &executor);
  frame->executor = executor.host;
  frame->on_device =
      (api_device_run){.stream = executor.stream, .check_pointers = executor.check_pointers};
  return status;
}

// Bytes of the workspace that binding takes: none of a device's, which the host cannot write.
static size_t own_bytes(const run_frame *frame) {
  if (frame->executable->loaded != NULL) return 0;
  return api_args_bytes(frame->executable, frame->given, frame->count);
}

static bool find_needed(api_call *call, run_frame *frame) {
  const fathom_executable *executable = frame->executable;
  const api_args *args = &frame->args;
  if (executable->loaded == NULL)
    return rt_workspace_size(api_program_for(executable, args->sizes), args->tensors, args->sizes,
                             frame->executor.concurrency, &frame->needed, &call->diag) == BASE_OK;
  return rt_device_workspace(api_loaded_for(executable, args->sizes), args->tensors, args->sizes,
                             &frame->needed, &call->diag) == BASE_OK;
}

// Binds the arguments at the start of the workspace, or where that is too small beside it: then the
// size it should have had can still be told.
static bool bind(api_call *call, run_frame *frame) {
  size_t room_bytes = api_args_bytes(frame->executable, frame->given, frame->count);
  size_t own = own_bytes(frame);
  void *room = frame->workspace;
  if (own < room_bytes || own > frame->workspace_bytes || (uintptr_t)room % RT_ALIGNMENT != 0)
    room = room_bytes > 0 ? base_alloc(&call->arena, room_bytes) : NULL;
  if (!api_args_bind(call, frame->executable, frame->given, frame->count, room, &frame->args) ||
      !find_needed(call, frame))
    return false;
  if (api_device_stages(frame->executable, &frame->args)) frame->needed = 0;
  if (!__builtin_add_overflow(frame->needed, own, &frame->needed)) return true;
  base_error(&call->diag, nowhere, "the workspace would need more bytes than fit in memory");
  return false;
}

static fathom_status workspace_body(api_call *call, void *opaque) {
  return bind(call, opaque) ? FATHOM_OK : FATHOM_INVALID;
}

fathom_status fathom_workspace_size(const fathom_executable *executable, const fathom_arg *args,
                                    uint32_t arg_count, const fathom_executor *executor,
                                    size_t *bytes) {
  api_error_clear();
  API_REQUIRE(executable);
  API_REQUIRE(bytes);
  if (arg_count > 0) API_REQUIRE(args);
  *bytes = 0;
  run_frame frame;
  frame.executable = executable;
  frame.given = args;
  frame.count = arg_count;
  frame.workspace = NULL;
  frame.workspace_bytes = 0;
  fathom_status status = read_executor(&frame, executor);
  if (status != FATHOM_OK) return status;
  status = api_call_run(executable->context, workspace_body, &frame);
  if (status == FATHOM_OK) *bytes = frame.needed;
  return status;
}

// ---- interp -------------------------------------------------------------------------------------

static double **alloc_values(api_call *call, const rt_tensor *tensors, uint32_t count) {
  double **values = base_new_array(&call->arena, double *, count);
  for (uint32_t i = 0; i < count; i++)
    values[i] = base_new_array(&call->arena, double, api_tensor_count(&tensors[i]));
  return values;
}

fathom_status api_interpret(api_call *call, const fathom_executable *executable,
                            const rt_tensor *tensors, const int64_t *sizes) {
  const ir_graph *graph = executable->graph;
  const rt_tensor *outputs = tensors + graph->param_count;
  double **in = alloc_values(call, tensors, graph->param_count);
  double **out = alloc_values(call, outputs, graph->results.count);
  for (uint32_t i = 0; i < graph->param_count; i++)
    api_tensor_read(&tensors[i], in[i]);
  base_status status =
      ir_interpret(graph, sizes, (const double *const *)in, out, NULL, &call->diag);
  if (status != BASE_OK) return (fathom_status)status;
  for (uint32_t i = 0; i < graph->results.count; i++)
    api_tensor_write(&outputs[i], out[i]);
  return FATHOM_OK;
}

// ---- fathom_run ---------------------------------------------------------------------------------

size_t api_workspace_alignment(const fathom_executable *executable) {
  enum { DEVICE_ALIGNMENT = 128 }; // runtime/device_program.h
  return executable->loaded != NULL ? DEVICE_ALIGNMENT : RT_ALIGNMENT;
}

static bool check_workspace(api_call *call, const run_frame *frame) {
  size_t alignment = api_workspace_alignment(frame->executable);
  if (frame->needed == 0) return true;
  if (frame->workspace == NULL) {
    base_error(&call->diag, nowhere, "the workspace is NULL, expected %zu bytes", frame->needed);
  } else if (frame->workspace_bytes < frame->needed) {
    base_error(&call->diag, nowhere, "the workspace has %zu bytes, expected %zu",
               frame->workspace_bytes, frame->needed);
  } else if ((uintptr_t)frame->workspace % alignment != 0) {
    base_error(&call->diag, nowhere, "the workspace is not aligned to %zu bytes", alignment);
    return false;
  } else {
    return true;
  }
  base_hint(&call->diag, "ask fathom_workspace_size, with the same tensors and executor");
  return false;
}

static fathom_status run_body(api_call *call, void *opaque) {
  run_frame *frame = opaque;
  const fathom_executable *executable = frame->executable;
  if (!bind(call, frame) || !check_workspace(call, frame)) return FATHOM_INVALID;
  if (executable->kind == API_INTERP)
    return api_interpret(call, executable, frame->args.tensors, frame->args.sizes);
  if (executable->loaded != NULL) {
    frame->on_device.workspace = frame->workspace;
    frame->on_device.workspace_bytes = frame->needed;
    return api_device_execute(call, executable, &frame->args, &frame->on_device);
  }
  void *rest = frame->workspace != NULL ? (char *)frame->workspace + own_bytes(frame) : NULL;
  rt_launch(api_program_for(executable, frame->args.sizes), frame->args.tensors, frame->args.sizes,
            &frame->executor, rest);
  return FATHOM_OK;
}

fathom_status api_run(const fathom_executable *executable, const fathom_arg *args,
                      uint32_t arg_count, void *workspace, size_t workspace_bytes,
                      const fathom_executor *executor, rt_traffic *traffic) {
  run_frame frame; // not zeroed as a whole: it is 14 KB, and most calls use little of it
  frame.executable = executable;
  frame.given = args;
  frame.count = arg_count;
  frame.workspace = workspace;
  frame.workspace_bytes = workspace != NULL ? workspace_bytes : 0;
  fathom_status status = read_executor(&frame, executor);
  if (status != FATHOM_OK) return status;
  frame.on_device.traffic = traffic;
  return api_call_run(executable->context, run_body, &frame);
}

fathom_status fathom_run(const fathom_executable *executable, const fathom_arg *args,
                         uint32_t arg_count, void *workspace, size_t workspace_bytes,
                         const fathom_executor *executor) {
  api_error_clear();
  API_REQUIRE(executable);
  if (arg_count > 0) API_REQUIRE(args);
  return api_run(executable, args, arg_count, workspace, workspace_bytes, executor, NULL);
}
