// device_run: a bound run on a device. Tensors of the device go to the launcher as they are. Those of
// the host are staged: copied to memory made for this run, and the results copied back.
#include "api/device_run.h"

#include <string.h>

#include "runtime/cuda/driver.h"

static const base_loc nowhere;

bool api_device_stages(const fathom_executable *executable, const api_args *args) {
  return args->memory == API_MEMORY_HOST && api_device_dlpack(executable).device_type != kDLCPU;
}

// ---- pointers -----------------------------------------------------------------------------------

static bool check_pointers(api_call *call, const fathom_executable *executable,
                           const api_args *args, const api_device_run *run) {
  rt_device *device = api_executable_device(executable);
  if (api_device_dlpack(executable).device_type == kDLCPU) return true; // the emulator knows itself
  for (uint32_t i = 0; i < executable->bound_count; i++)
    for (int64_t j = 0; j < api_tensor_pieces(&args->tensors[i]); j++) {
      size_t bytes;
      const char *low = api_tensor_piece(&args->tensors[i], j, &bytes);
      const char *name = base_str_format(&call->arena, "%%%s", executable->names[i]).data;
      if (rt_cuda_check_pointer(device, name, low, bytes, &call->diag) != BASE_OK) return false;
    }
  return rt_cuda_check_pointer(device, "the workspace", run->workspace, run->workspace_bytes,
                               &call->diag) == BASE_OK;
}

// ---- slices -------------------------------------------------------------------------------------

// Does every kernel have a pointer for each slice of the slot?
static bool takes_slices(const rt_program *program, uint32_t slot) {
  for (uint32_t i = 0; i < program->kernel_count; i++)
    for (uint32_t j = 0; j < program->kernels[i].arg_count; j++) {
      const rt_kernel_arg *arg = &program->kernels[i].args[j];
      if (arg->slot == slot && arg->pointer_count <= 1) return false;
    }
  return true;
}

// One tensor in place of slices at even distances, each in elements as rt_bind has made sure of.
static bool unite(rt_tensor *tensor) {
  intptr_t first = (intptr_t)tensor->slices[0], step = 0;
  if (tensor->shape[0] > 1) step = (intptr_t)tensor->slices[1] - first;
  for (int64_t i = 2; i < tensor->shape[0]; i++)
    if ((intptr_t)tensor->slices[i] - (intptr_t)tensor->slices[i - 1] != step) return false;
  tensor->data = tensor->slices[0];
  tensor->slices = NULL;
  tensor->strides[0] = step / (intptr_t)rt_dtype_size(tensor->dtype);
  return true;
}

// Kernels have pointers for the slices of what they read row by row, such as a bank. Anything else
// has to be one tensor.
static bool unite_all(api_call *call, const fathom_executable *executable, rt_tensor *tensors) {
  for (uint32_t i = 0; i < executable->bound_count; i++) {
    rt_tensor *tensor = &tensors[i];
    if (tensor->slices == NULL || api_tensor_pieces(tensor) == 0 ||
        takes_slices(executable->program, i) || unite(tensor))
      continue;
    base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere,
                      "%%%s: its slices lie at uneven distances, which kernels of the %s target "
                      "cannot follow",
                      executable->names[i], api_targets[executable->kind].name);
    base_hint(&call->diag, "give it as one tensor");
    return false;
  }
  return true;
}

// ---- staging ------------------------------------------------------------------------------------

// The room of a piece: the next one begins where kernels may use their widest accesses.
static size_t padded(size_t bytes) {
  enum { ALIGNMENT = 256 };
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// One block of memory with a copy of every piece of every tensor, then the workspace.
typedef struct stage {
  api_call *call;
  const fathom_executable *executable;
  const rt_tensor *tensors; // of the host
  rt_tensor *staged;        // of the device
  rt_device *device;
  void *stream;
  char *memory;
  size_t used, workspace; // bytes laid out so far; where the workspace begins
} stage;

static void release_stage(void *opaque) {
  stage *s = opaque;
  s->device->ops->release(s->device, s->memory);
}

// False: more than fits in memory. No piece has more bytes than 63 bits count.
static bool lay_out(stage *s, size_t bytes) {
  if (!__builtin_add_overflow(s->used, padded(bytes), &s->used)) return true;
  base_error(&s->call->diag, nowhere, "the tensors have more bytes than fit in memory");
  return false;
}

// `tensor` with its pieces in `memory`, one behind the other from *offset on, as lay_out puts them.
static rt_tensor move_to(base_arena *arena, const rt_tensor *tensor, char *memory, size_t *offset) {
  rt_tensor moved = *tensor;
  int64_t pieces = api_tensor_pieces(tensor);
  char **slices = NULL;
  if (tensor->slices != NULL) moved.slices = slices = base_new_array(arena, char *, (size_t)pieces);
  for (int64_t i = 0; i < pieces; i++) {
    size_t bytes;
    const char *low = api_tensor_piece(tensor, i, &bytes);
    const char *data = slices != NULL ? tensor->slices[i] : tensor->data;
    char *place = memory + *offset + (data - low);
    if (slices != NULL)
      slices[i] = place;
    else
      moved.data = place;
    *offset += padded(bytes);
  }
  return moved;
}

static bool make_stage(stage *s, size_t workspace_bytes) {
  base_arena *arena = &s->call->arena;
  uint32_t count = s->executable->bound_count;
  size_t offset = 0, bytes;
  for (uint32_t i = 0; i < count; i++)
    for (int64_t j = 0; j < api_tensor_pieces(&s->tensors[i]); j++) {
      api_tensor_piece(&s->tensors[i], j, &bytes);
      if (!lay_out(s, bytes)) return false;
    }
  s->workspace = s->used;
  if (!lay_out(s, workspace_bytes > 0 ? workspace_bytes : 1)) return false;
  base_defer(arena, release_stage, s);
  void *memory;
  if (s->device->ops->allocate(s->device, s->used, &memory, &s->call->diag) != BASE_OK)
    return false;
  s->memory = memory;
  s->staged = base_new_array(arena, rt_tensor, count);
  offset = 0;
  for (uint32_t i = 0; i < count; i++)
    s->staged[i] = move_to(arena, &s->tensors[i], s->memory, &offset);
  return true;
}

static bool copy(stage *s, void *to, const void *from, size_t bytes) {
  return s->device->ops->copy(s->device, s->stream, to, from, bytes, &s->call->diag) == BASE_OK;
}

static bool copy_in(stage *s, uint32_t slot) {
  for (int64_t i = 0; i < api_tensor_pieces(&s->tensors[slot]); i++) {
    size_t bytes;
    const char *host = api_tensor_piece(&s->tensors[slot], i, &bytes);
    if (!copy(s, api_tensor_piece(&s->staged[slot], i, &bytes), host, bytes)) return false;
  }
  return true;
}

// By way of host memory: what lies between the elements of a result is not the result's.
static bool copy_out(stage *s, uint32_t slot) {
  const rt_tensor *result = &s->tensors[slot];
  base_arena *arena = &s->call->arena;
  size_t total = 0, bytes, offset = 0;
  for (int64_t i = 0; i < api_tensor_pieces(result); i++) {
    api_tensor_piece(result, i, &bytes);
    total += padded(bytes);
  }
  rt_tensor landed = move_to(arena, result, base_alloc(arena, total), &offset);
  for (int64_t i = 0; i < api_tensor_pieces(result); i++) {
    const char *from = api_tensor_piece(&s->staged[slot], i, &bytes);
    if (!copy(s, api_tensor_piece(&landed, i, &bytes), from, bytes)) return false;
  }
  api_tensor_copy(result, &landed);
  return true;
}

static bool run_staged(stage *s, const int64_t *sizes) {
  const rt_program *program = s->executable->program;
  rt_loaded *loaded = api_loaded_for(s->executable, sizes);
  size_t bytes;
  if (rt_device_workspace(loaded, s->tensors, sizes, &bytes, &s->call->diag) != BASE_OK ||
      !make_stage(s, bytes))
    return false;
  uint32_t count = s->executable->bound_count;
  rt_tensor *united = base_new_array(&s->call->arena, rt_tensor, count);
  memcpy(united, s->staged, count * sizeof *united);
  bool good = unite_all(s->call, s->executable, united); // they lie at even distances
  for (uint32_t i = 0; i < count && good; i++)
    if (program->slots[i].role == RT_INPUT) good = copy_in(s, i);
  good = good && rt_device_run(loaded, united, sizes, s->stream, s->memory + s->workspace, NULL,
                               &s->call->diag) == BASE_OK;
  good = good && s->device->ops->synchronize(s->device, s->stream, &s->call->diag) == BASE_OK;
  for (uint32_t i = 0; i < count && good; i++)
    if (program->slots[i].role == RT_OUTPUT) good = copy_out(s, i);
  return good;
}

// ---- running ------------------------------------------------------------------------------------

fathom_status api_device_execute(api_call *call, const fathom_executable *executable,
                                 const api_args *args, const api_device_run *run) {
  if (api_device_stages(executable, args)) {
    stage *s = base_new(&call->arena, stage); // outlives this call: the arena releases its memory
    s->call = call;
    s->executable = executable;
    s->tensors = args->tensors;
    s->device = api_executable_device(executable);
    s->stream = run->stream;
    return run_staged(s, args->sizes) ? FATHOM_OK : FATHOM_UNSUPPORTED;
  }
  if (!unite_all(call, executable, args->tensors)) return FATHOM_UNSUPPORTED;
  if (run->check_pointers && !check_pointers(call, executable, args, run)) return FATHOM_INVALID;
  return (fathom_status)rt_device_run(api_loaded_for(executable, args->sizes), args->tensors,
                                      args->sizes, run->stream, run->workspace, run->traffic,
                                      &call->diag);
}
