// driver_memory: memory, copies, waiting and time on a device.
//
// What waits is refused on a stream that is being captured: the driver would refuse it as well, and
// break the capture.
#include "runtime/cuda/driver_api.h"

#include <stdio.h>
#include <stdlib.h>

struct rt_timer {
  CUevent start, stop;
};

static CUdeviceptr address(const void *pointer) {
  return (CUdeviceptr)(uintptr_t)pointer;
}

// ---- where memory is ----------------------------------------------------------------------------

typedef struct whereabouts {
  unsigned type, managed; // type 0: the driver does not know the address
  int ordinal;
  CUdeviceptr start;
  size_t bytes;
} whereabouts;

static bool locate(const rt_cuda_device *device, const void *pointer, whereabouts *out,
                   rt_cuda_failure *failure) {
  int attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                      CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  void *values[] = {&out->type, &out->managed, &out->ordinal, &out->start, &out->bytes};
  enum { COUNT = sizeof attributes / sizeof *attributes };
  static_assert(COUNT == sizeof values / sizeof *values, "one place an attribute");
  rt_cuda_scope scope;
  if (!rt_cuda_enter(device, &scope, failure)) return false;
  const bool known =
      RT_CUDA(failure, cuPointerGetAttributes, COUNT, attributes, values, address(pointer));
  rt_cuda_leave(&scope);
  return known;
}

// Managed memory may be the host's as well.
static bool is_on_device(const whereabouts *where) {
  return where->type == CU_MEMORYTYPE_DEVICE && !where->managed;
}

// ---- allocating ---------------------------------------------------------------------------------

base_status rt_cuda_allocate(rt_device *device, size_t bytes, void **out, base_diag *diag) {
  const rt_cuda_device *self = (rt_cuda_device *)device;
  *out = NULL;
  if (bytes == 0) return BASE_OK;
  CUdeviceptr memory = 0;
  size_t free_bytes = 0, total = 0;
  rt_cuda_failure failure = {0};
  rt_cuda_scope scope;
  if (rt_cuda_enter_relaxed(self, &scope, &failure)) {
    if (!RT_CUDA(&failure, cuMemAlloc, &memory, bytes) &&
        failure.result == CUDA_ERROR_OUT_OF_MEMORY)
      rt_cuda.cuMemGetInfo(&free_bytes, &total);
    rt_cuda_leave(&scope);
  }
  if (failure.result == CUDA_SUCCESS) {
    *out = (void *)(uintptr_t)memory;
    return BASE_OK;
  }
  char detail[160];
  int length = snprintf(detail, sizeof detail, "; %zu bytes were asked for", bytes);
  if (total)
    snprintf(detail + length, sizeof detail - (size_t)length, ", %zu of %zu are free", free_bytes,
             total);
  return rt_cuda_report(diag, &failure, detail);
}

void rt_cuda_release(rt_device *device, void *memory) {
  rt_cuda_scope scope;
  if (memory == NULL || !rt_cuda_enter_to_release((rt_cuda_device *)device, &scope)) return;
  rt_cuda.cuMemFree(address(memory));
  rt_cuda_leave(&scope);
}

// ---- moving and waiting -------------------------------------------------------------------------

// What a call on a stream does while the device's context is current.
typedef bool action(void *argument, CUstream stream, rt_cuda_failure *failure);

// Runs an action. One that waits is refused on a captured stream: `what` names it, NULL for one
// that does not wait.
static base_status act(rt_device *device, void *stream, const char *what, action *action,
                       void *argument, base_diag *diag) {
  int capture = CU_STREAM_CAPTURE_STATUS_NONE;
  rt_cuda_failure failure = {0};
  rt_cuda_scope scope;
  if (rt_cuda_enter_relaxed((rt_cuda_device *)device, &scope, &failure)) {
    if (what == NULL || (RT_CUDA(&failure, cuStreamIsCapturing, stream, &capture) &&
                         capture == CU_STREAM_CAPTURE_STATUS_NONE))
      action(argument, stream, &failure);
    rt_cuda_leave(&scope);
  }
  if (failure.result != CUDA_SUCCESS) return rt_cuda_report(diag, &failure, NULL);
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return BASE_OK;
  base_error(diag, (base_loc){0}, "cannot %s a stream that is being captured", what);
  base_hint(diag,
            "only launches, fills and copies within the device can be captured: do this before "
            "the capture begins");
  return BASE_INVALID;
}

typedef struct transfer {
  void *to;
  const void *from;
  int byte;
  size_t bytes;
} transfer;

static bool copy(void *argument, CUstream stream, rt_cuda_failure *failure) {
  const transfer *t = argument;
  return RT_CUDA(failure, cuMemcpyAsync, address(t->to), address(t->from), t->bytes, stream);
}

static bool copy_and_wait(void *argument, CUstream stream, rt_cuda_failure *failure) {
  return copy(argument, stream, failure) && RT_CUDA(failure, cuStreamSynchronize, stream);
}

static bool fill(void *argument, CUstream stream, rt_cuda_failure *failure) {
  const transfer *t = argument;
  return RT_CUDA(failure, cuMemsetD8Async, address(t->to), (unsigned char)t->byte, t->bytes,
                 stream);
}

static bool wait(void *argument, CUstream stream, rt_cuda_failure *failure) {
  (void)argument;
  return RT_CUDA(failure, cuStreamSynchronize, stream);
}

base_status rt_cuda_copy(rt_device *device, void *stream, void *to, const void *from, size_t bytes,
                         base_diag *diag) {
  const rt_cuda_device *self = (rt_cuda_device *)device;
  transfer t = {.to = to, .from = from, .bytes = bytes};
  whereabouts source = {0}, target = {0};
  rt_cuda_failure failure = {0};
  if (bytes == 0) return BASE_OK;
  if (!locate(self, from, &source, &failure) || !locate(self, to, &target, &failure))
    return rt_cuda_report(diag, &failure, NULL);
  // Within the device nobody has to wait: what comes next on the stream does.
  if (is_on_device(&source) && is_on_device(&target))
    return act(device, stream, NULL, copy, &t, diag);
  return act(device, stream, "copy on", copy_and_wait, &t, diag);
}

base_status rt_cuda_fill(rt_device *device, void *stream, void *to, int byte, size_t bytes,
                         base_diag *diag) {
  transfer t = {.to = to, .byte = byte, .bytes = bytes};
  return bytes ? act(device, stream, NULL, fill, &t, diag) : BASE_OK;
}

base_status rt_cuda_synchronize(rt_device *device, void *stream, base_diag *diag) {
  return act(device, stream, "wait for", wait, NULL, diag);
}

// ---- time ---------------------------------------------------------------------------------------

static void destroy_events(rt_timer *timer) {
  if (timer->start) rt_cuda.cuEventDestroy(timer->start);
  if (timer->stop) rt_cuda.cuEventDestroy(timer->stop);
}

base_status rt_cuda_timer_create(rt_device *device, rt_timer **out, base_diag *diag) {
  *out = NULL;
  rt_timer *timer = calloc(1, sizeof *timer);
  if (timer == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory for a timer");
    return BASE_MEMORY;
  }
  rt_cuda_failure failure = {0};
  rt_cuda_scope scope;
  if (rt_cuda_enter_relaxed((rt_cuda_device *)device, &scope, &failure)) {
    if (!RT_CUDA(&failure, cuEventCreate, &timer->start, 0) ||
        !RT_CUDA(&failure, cuEventCreate, &timer->stop, 0))
      destroy_events(timer);
    rt_cuda_leave(&scope);
  }
  if (failure.result != CUDA_SUCCESS) {
    free(timer);
    return rt_cuda_report(diag, &failure, NULL);
  }
  *out = timer;
  return BASE_OK;
}

static bool record_start(void *argument, CUstream stream, rt_cuda_failure *failure) {
  const rt_timer *timer = argument;
  return RT_CUDA(failure, cuEventRecord, timer->start, stream);
}

base_status rt_cuda_timer_start(rt_device *device, rt_timer *timer, void *stream, base_diag *diag) {
  return act(device, stream, "time", record_start, timer, diag);
}

typedef struct reading {
  const rt_timer *timer;
  float milliseconds;
} reading;

static bool read_timer(void *argument, CUstream stream, rt_cuda_failure *failure) {
  reading *r = argument;
  return RT_CUDA(failure, cuEventRecord, r->timer->stop, stream) &&
         RT_CUDA(failure, cuEventSynchronize, r->timer->stop) &&
         RT_CUDA(failure, cuEventElapsedTime, &r->milliseconds, r->timer->start, r->timer->stop);
}

base_status rt_cuda_timer_stop(rt_device *device, rt_timer *timer, void *stream,
                               double *microseconds, base_diag *diag) {
  reading r = {.timer = timer};
  const base_status status = act(device, stream, "time", read_timer, &r, diag);
  *microseconds = 1e3 * (double)r.milliseconds;
  return status;
}

void rt_cuda_timer_destroy(rt_device *device, rt_timer *timer) {
  rt_cuda_scope scope;
  if (timer == NULL) return;
  if (rt_cuda_enter_to_release((rt_cuda_device *)device, &scope)) {
    destroy_events(timer);
    rt_cuda_leave(&scope);
  }
  free(timer);
}

// ---- memory of the caller -----------------------------------------------------------------------

base_status rt_cuda_check_pointer(rt_device *device, const char *name, const void *pointer,
                                  size_t bytes, base_diag *diag) {
  const rt_cuda_device *self = (rt_cuda_device *)device;
  whereabouts w = {0};
  rt_cuda_failure failure = {0};
  const base_loc nowhere = {0};
  if (bytes == 0) return BASE_OK;
  if (pointer == NULL) {
    base_error(diag, nowhere, "%s has no memory: its pointer is NULL", name);
    return BASE_INVALID;
  }
  if (!locate(self, pointer, &w, &failure)) return rt_cuda_report(diag, &failure, NULL);
  if (w.type != CU_MEMORYTYPE_DEVICE && !w.managed) {
    base_error(diag, nowhere,
               "%s is memory of the host (%p), where memory of CUDA device %u is needed", name,
               pointer, self->ordinal);
    base_hint(diag, "copy it to the device first");
    return BASE_INVALID;
  }
  if (w.ordinal != (int)self->ordinal && !w.managed) {
    base_error(diag, nowhere, "%s is memory of CUDA device %d, but runs on device %u", name,
               w.ordinal, self->ordinal);
    base_hint(diag, "copy it to device %u, or run on device %d", self->ordinal, w.ordinal);
    return BASE_INVALID;
  }
  const CUdeviceptr offset = address(pointer) - w.start;
  if (w.bytes && (offset > w.bytes || bytes > w.bytes - offset)) {
    base_error(diag, nowhere, "%s reaches %zu bytes from %p, but its memory ends after %zu", name,
               bytes, pointer, offset > w.bytes ? 0 : (size_t)(w.bytes - offset));
    base_hint(diag, "check its shape and strides");
    return BASE_INVALID;
  }
  return BASE_OK;
}
