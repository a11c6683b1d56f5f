// args: DLPack tensors bound by name. What DLPack can say and a kernel cannot take (devices,
// dtypes, ranks) is refused here, in DLPack's words; what follows from the graph (sizes, overlap)
// is rt_bind's to check.
#include "api/args.h"

#include <stdlib.h>
#include <string.h>

static const base_loc nowhere;

// ---- room ---------------------------------------------------------------------------------------

static size_t slice_total(const fathom_arg *given, uint32_t count) {
  size_t total = 0;
  for (uint32_t i = 0; i < count; i++)
    if (given[i].slices != NULL) total += given[i].slice_count;
  return total;
}

static size_t aligned(size_t bytes) {
  return (bytes + RT_ALIGNMENT - 1) / RT_ALIGNMENT * RT_ALIGNMENT;
}

static size_t tensor_bytes(const fathom_executable *executable) {
  uint32_t slots = executable->bound_count;
  return slots > API_STACK_SLOTS ? aligned(slots * sizeof(rt_tensor)) : 0;
}

size_t api_args_bytes(const fathom_executable *executable, const fathom_arg *given,
                      uint32_t count) {
  size_t slices = slice_total(given, count);
  return tensor_bytes(executable) +
         (slices > API_STACK_SLICES ? aligned(slices * sizeof(char *)) : 0);
}

static void place(const fathom_executable *executable, const fathom_arg *given, uint32_t count,
                  void *room, api_args *args) {
  size_t tensors = tensor_bytes(executable);
  args->tensors = tensors > 0 ? room : args->stack_tensors;
  args->slices = slice_total(given, count) > API_STACK_SLICES ? (void *)((char *)room + tensors)
                                                              : args->stack_slices;
}

// ---- one tensor ---------------------------------------------------------------------------------

// What is being bound, for messages: an argument, or one slice of it.
typedef struct source {
  base_diag *diag;
  const fathom_executable *executable;
  api_args *args;
  const rt_slot *slot;
  int64_t slice; // -1: the whole argument
} source;

static base_str label(const source *s) {
  if (s->slice < 0) return base_str_format(s->diag->arena, "%%%s", s->slot->name);
  return base_str_format(s->diag->arena, "%%%s: slice %lld", s->slot->name, (long long)s->slice);
}

bool api_is_host(DLDevice device) {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost ||
         device.device_type == kDLROCMHost;
}

bool api_is_on_device(DLDevice device, DLDevice wanted) {
  return device.device_type == kDLCUDAManaged ||
         (device.device_type == wanted.device_type && device.device_id == wanted.device_id);
}

// Host memory for the host's targets; for a GPU memory of the device or, for all tensors alike, of
// the host.
static void check_place(const source *s, DLDevice device) {
  DLDevice wanted = api_device_dlpack(s->executable);
  api_memory memory = api_is_host(device) ? API_MEMORY_HOST : API_MEMORY_DEVICE;
  if (wanted.device_type == kDLCPU && !api_is_host(device)) {
    base_error(s->diag, nowhere, "%.*s: expected host memory, found DLPack device type %d",
               BASE_FMT(label(s)), (int)device.device_type);
    base_hint(s->diag, "copy the tensor to the host (kDLCPU) first");
  } else if (wanted.device_type != kDLCPU && !api_is_host(device) &&
             !api_is_on_device(device, wanted)) {
    base_error(s->diag, nowhere,
               "%.*s: expected memory of CUDA device %d (kDLCUDA), found DLPack device type %d, "
               "number %d",
               BASE_FMT(label(s)), wanted.device_id, (int)device.device_type, device.device_id);
    base_hint(s->diag,
              "copy the tensor there; FATHOM_CUDA_DEVICE chooses the device when compiling");
  } else if (s->args->memory == API_MEMORY_UNKNOWN) {
    s->args->memory = memory;
    s->args->first = s->slot->name;
  } else if (s->args->memory != memory) {
    base_error(s->diag, nowhere, "%.*s: memory of the %s, but %%%s is memory of the %s",
               BASE_FMT(label(s)), memory == API_MEMORY_HOST ? "host" : "device", s->args->first,
               memory == API_MEMORY_HOST ? "device" : "host");
    base_hint(s->diag, "give all tensors on the device, or all on the host");
  }
}

// Checks what DLPack says of the tensor against `rank` axes of the slot.
static bool check_tensor(const source *s, const DLTensor *tensor, uint32_t rank) {
  base_diag *diag = s->diag;
  uint32_t errors = diag->error_count;
  if (tensor == NULL) {
    base_error(diag, nowhere, "%.*s: the tensor is NULL", BASE_FMT(label(s)));
    return false;
  }
  check_place(s, tensor->device);
  if (!api_dlpack_fits(s->slot->dtype, tensor->dtype)) {
    base_error(diag, nowhere,
               "%.*s: expected dtype %s (%s), found DLPack code %u with %u bits, %u lanes",
               BASE_FMT(label(s)), ir_dtype_name((ir_dtype)s->slot->dtype),
               api_dlpack_dtype_name(s->slot->dtype), tensor->dtype.code, tensor->dtype.bits,
               tensor->dtype.lanes);
  }
  if (tensor->ndim < 0 || (uint32_t)tensor->ndim != rank) {
    base_error(diag, nowhere, "%.*s: expected %u axes, found %d", BASE_FMT(label(s)), rank,
               tensor->ndim);
    base_hint(diag, "axes come in the order of the type, whatever the layout");
  } else if (rank > 0 && tensor->shape == NULL) {
    base_error(diag, nowhere, "%.*s: the tensor's shape is NULL", BASE_FMT(label(s)));
  }
  return diag->error_count == errors;
}

// Copies shape and strides to the positions from `first` on.
static void take_shape(rt_tensor *out, const DLTensor *tensor, uint32_t first) {
  int64_t dense = 1;
  for (uint32_t i = (uint32_t)tensor->ndim; i-- > 0;) {
    int64_t size = tensor->shape[i];
    out->shape[first + i] = size;
    out->strides[first + i] = tensor->strides != NULL ? tensor->strides[i] : dense;
    // Sizes whose product overflows have bytes beyond 63 bits, which rt_bind refuses.
    if (__builtin_mul_overflow(dense, size > 0 ? size : 1, &dense)) dense = INT64_MAX;
  }
}

static char *data_of(const DLTensor *tensor) {
  return tensor->data != NULL ? (char *)tensor->data + tensor->byte_offset : NULL;
}

// Strides of axes that have one index, or none, mean nothing.
static bool same_shape(const rt_tensor *a, const rt_tensor *b) {
  for (uint32_t i = 1; i < a->rank; i++) {
    if (a->shape[i] != b->shape[i]) return false;
    if (a->shape[i] > 1 && a->strides[i] != b->strides[i]) return false;
  }
  return true;
}

static bool bind_slices(source s, const fathom_arg *arg, rt_tensor *out) {
  if (s.slot->rank == 0) {
    base_error(s.diag, nowhere, "%%%s: a list of slices, but it has no axes", s.slot->name);
    return false;
  }
  char **slices = s.args->slices;
  s.args->slices += arg->slice_count;
  *out = (rt_tensor){.dtype = s.slot->dtype, .rank = s.slot->rank, .slices = slices};
  for (uint32_t i = 0; i < arg->slice_count; i++) {
    const DLTensor *tensor = arg->slices[i];
    s.slice = i;
    if (!check_tensor(&s, tensor, s.slot->rank - 1)) return false;
    rt_tensor one = {.rank = s.slot->rank};
    take_shape(&one, tensor, 1);
    if (i == 0) memcpy(out->shape, one.shape, sizeof one.shape);
    if (i == 0) memcpy(out->strides, one.strides, sizeof one.strides);
    if (!same_shape(out, &one)) {
      base_error(s.diag, nowhere, "%.*s: expected the shape and strides of slice 0, found others",
                 BASE_FMT(label(&s)));
      return false;
    }
    slices[i] = data_of(tensor);
  }
  out->shape[0] = arg->slice_count;
  return true;
}

static bool bind_one(source s, const fathom_arg *arg, rt_tensor *out) {
  const rt_slot *slot = s.slot;
  if (arg->slices != NULL && arg->tensor != NULL) {
    base_error(s.diag, nowhere, "%%%s: both a tensor and slices are set, expected one of them",
               slot->name);
    return false;
  }
  if (arg->slices != NULL) return bind_slices(s, arg, out);
  if (!check_tensor(&s, arg->tensor, slot->rank)) return false;
  *out = (rt_tensor){.dtype = slot->dtype, .rank = slot->rank, .data = data_of(arg->tensor)};
  take_shape(out, arg->tensor, 0);
  return true;
}

// ---- names --------------------------------------------------------------------------------------

static const uint32_t unbound = UINT32_MAX; // the rank of a slot that has no tensor yet

// The first free slot of that name; bound_count when there is none. A parameter that is also
// returned has two slots of one name: its input takes the first argument of that name, its output
// the second.
static uint32_t find_slot(const fathom_executable *executable, const api_args *args,
                          const char *name) {
  for (uint32_t i = 0; i < executable->bound_count; i++)
    if (args->tensors[i].rank == unbound && strcmp(executable->names[i], name) == 0) return i;
  return executable->bound_count;
}

static void list_slots(api_call *call, const fathom_executable *executable) {
  base_text list = {.arena = &call->arena};
  rt_role role = RT_TEMPORARY;
  for (uint32_t i = 0; i < executable->bound_count; i++) {
    const rt_slot *slot = &executable->program->slots[i];
    if (slot->role != role)
      base_text_printf(&list, "%s%s", i > 0 ? "; " : "",
                       slot->role == RT_INPUT ? "inputs " : "outputs ");
    base_text_printf(&list, "%s%%%s", slot->role != role ? "" : ", ", slot->name);
    role = slot->role;
  }
  base_hint(&call->diag, "graph @%s wants %.*s", executable->graph_name,
            BASE_FMT(base_text_str(&list)));
}

static void refuse_name(api_call *call, const fathom_executable *executable, const char *name) {
  for (uint32_t i = 0; i < executable->bound_count; i++) {
    if (strcmp(executable->names[i], name) != 0) continue;
    base_error(&call->diag, nowhere, "%%%s is given twice", name);
    base_hint(&call->diag, "bind every parameter and every result once");
    return;
  }
  base_error(&call->diag, nowhere, "graph @%s has no parameter or result %%%s",
             executable->graph_name, name);
  const char *near = base_nearest(base_str_from(name), executable->names, executable->bound_count);
  if (near != NULL)
    base_hint(&call->diag, "did you mean %%%s?", near);
  else
    list_slots(call, executable);
}

static void report_missing(api_call *call, const fathom_executable *executable,
                           const api_args *args) {
  uint32_t errors = call->diag.error_count;
  for (uint32_t i = 0; i < executable->bound_count; i++)
    if (args->tensors[i].rank == unbound)
      base_error(&call->diag, nowhere, "%s %%%s is missing",
                 executable->program->slots[i].role == RT_INPUT ? "input" : "output",
                 executable->names[i]);
  if (call->diag.error_count != errors) list_slots(call, executable);
}

bool api_args_bind(api_call *call, const fathom_executable *executable, const fathom_arg *given,
                   uint32_t count, void *room, api_args *args) {
  const rt_program *program = executable->program;
  place(executable, given, count, room, args);
  args->memory = API_MEMORY_UNKNOWN;
  for (uint32_t i = 0; i < executable->bound_count; i++)
    args->tensors[i].rank = unbound;
  for (uint32_t i = 0; i < count; i++) {
    if (given[i].name == NULL) {
      base_error(&call->diag, nowhere, "argument %u has no name", i);
      continue;
    }
    uint32_t slot = find_slot(executable, args, given[i].name);
    if (slot == executable->bound_count) {
      refuse_name(call, executable, given[i].name);
      continue;
    }
    args->tensors[slot].rank = program->slots[slot].rank; // taken, even if it is refused
    bind_one((source){&call->diag, executable, args, &program->slots[slot], -1}, &given[i],
             &args->tensors[slot]);
  }
  report_missing(call, executable, args);
  if (call->diag.error_count > 0) return false;
  return rt_bind(program, args->tensors, args->sizes, &call->diag) == BASE_OK;
}
