// driver_device: devices, their facts, and whose context is current.
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/driver_api.h"

#include <stdlib.h>

// ---- contexts -----------------------------------------------------------------------------------

// Push and pop may answer with the error of an earlier launch, whether they did their work or not.
// Where ours is still current though it should not be, it is taken off again.
static void repair(CUcontext context) {
  CUcontext current = NULL;
  if (rt_cuda.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
    rt_cuda.cuCtxPopCurrent(&current);
}

bool rt_cuda_enter(const rt_cuda_device *device, rt_cuda_scope *scope, rt_cuda_failure *failure) {
  CUcontext current = NULL;
  *scope = (rt_cuda_scope){.context = device->context};
  if (!RT_CUDA(failure, cuCtxGetCurrent, &current)) return false;
  if (current == device->context) return true;
  scope->pushed = RT_CUDA(failure, cuCtxPushCurrent, device->context);
  if (!scope->pushed) repair(device->context);
  return scope->pushed;
}

bool rt_cuda_enter_relaxed(const rt_cuda_device *device, rt_cuda_scope *scope,
                           rt_cuda_failure *failure) {
  if (!rt_cuda_enter(device, scope, failure)) return false;
  scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  scope->relaxed = RT_CUDA(failure, cuThreadExchangeStreamCaptureMode, &scope->mode);
  if (!scope->relaxed) rt_cuda_leave(scope);
  return scope->relaxed;
}

bool rt_cuda_enter_to_release(const rt_cuda_device *device, rt_cuda_scope *scope) {
  rt_cuda_failure first = {0}, second = {0};
  return rt_cuda_enter_relaxed(device, scope, &first) ||
         rt_cuda_enter_relaxed(device, scope, &second);
}

void rt_cuda_leave(rt_cuda_scope *scope) {
  for (int attempt = 0; attempt < 2 && scope->relaxed; attempt++)
    scope->relaxed = rt_cuda.cuThreadExchangeStreamCaptureMode(&scope->mode) != CUDA_SUCCESS;
  CUcontext popped;
  if (scope->pushed && rt_cuda.cuCtxPopCurrent(&popped) != CUDA_SUCCESS) repair(scope->context);
}

// ---- facts --------------------------------------------------------------------------------------

// False: see *failure.
static bool read_number(CUdevice device, int attribute, uint32_t *out, rt_cuda_failure *failure) {
  int value = 0;
  if (!RT_CUDA(failure, cuDeviceGetAttribute, &value, attribute, device)) return false;
  *out = (uint32_t)value;
  return true;
}

static bool read_bytes(CUdevice device, int attribute, size_t *out, rt_cuda_failure *failure) {
  uint32_t value = 0;
  if (!read_number(device, attribute, &value, failure)) return false;
  *out = value;
  return true;
}

static bool read_facts(CUdevice device, rt_device_facts *out, rt_cuda_failure *failure) {
  const struct {
    int attribute;
    uint32_t *value;
  } numbers[] = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->major},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->minor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->multiprocessors},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->threads_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &out->threads_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, &out->blocks_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, &out->registers_per_multiprocessor},
  };
  const struct {
    int attribute;
    size_t *value;
  } bytes[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &out->shared_per_block},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &out->shared_per_multiprocessor},
      {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, &out->shared_reserved},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &out->level2_bytes},
  };
  *out = (rt_device_facts){0};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!read_number(device, numbers[i].attribute, numbers[i].value, failure)) return false;
  for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
    if (!read_bytes(device, bytes[i].attribute, bytes[i].value, failure)) return false;
  return RT_CUDA(failure, cuDeviceGetName, out->name, sizeof out->name, device) &&
         RT_CUDA(failure, cuDeviceTotalMem, &out->memory_bytes, device);
}

// Opens the driver and finds the device; reports why not.
static base_status find_device(uint32_t ordinal, CUdevice *out, base_diag *diag) {
  base_str path, why;
  const base_status status = rt_cuda_open(diag->arena, &path, &why);
  if (status != BASE_OK) {
    base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
    return status;
  }
  const uint32_t count = rt_cuda_count();
  if (ordinal >= count) {
    base_error(diag, (base_loc){0}, "there is no CUDA device %u: the driver shows %u", ordinal,
               count);
    base_hint(diag, "devices are numbered from 0; CUDA_VISIBLE_DEVICES may hide some");
    return BASE_INVALID;
  }
  rt_cuda_failure failure = {0};
  if (RT_CUDA(&failure, cuDeviceGet, out, (int)ordinal)) return BASE_OK;
  return rt_cuda_report(diag, &failure, NULL);
}

base_status rt_cuda_facts(uint32_t ordinal, rt_device_facts *out, base_diag *diag) {
  CUdevice device;
  const base_status status = find_device(ordinal, &device, diag);
  if (status != BASE_OK) return status;
  rt_cuda_failure failure = {0};
  return read_facts(device, out, &failure) ? BASE_OK : rt_cuda_report(diag, &failure, NULL);
}

// ---- devices ------------------------------------------------------------------------------------

static void destroy(rt_device *device) {
  rt_cuda_device *self = (rt_cuda_device *)device;
  rt_cublaslt_destroy(self->cublaslt);
  rt_cuda.cuDevicePrimaryCtxRelease(self->handle);
  pthread_mutex_destroy(&self->lock);
  free(self);
}

static const rt_device_ops ops = {
    .target = "cuda",
    .destroy = destroy,
    .load = rt_cuda_load,
    .unload = rt_cuda_unload,
    .find = rt_cuda_find,
    .launch = rt_cuda_launch,
    .allocate = rt_cuda_allocate,
    .release = rt_cuda_release,
    .copy = rt_cuda_copy,
    .fill = rt_cuda_fill,
    .synchronize = rt_cuda_synchronize,
    .timer_create = rt_cuda_timer_create,
    .timer_start = rt_cuda_timer_start,
    .timer_stop = rt_cuda_timer_stop,
    .timer_destroy = rt_cuda_timer_destroy,
    .matmul_create = rt_cuda_matmul_create,
    .matmul_workspace = rt_cuda_matmul_workspace,
    .matmul_run = rt_cuda_matmul_run,
    .matmul_destroy = rt_cuda_matmul_destroy,
};

base_status rt_cuda_device_create(uint32_t ordinal, rt_device **out, base_diag *diag) {
  *out = NULL;
  CUdevice handle;
  base_status status = find_device(ordinal, &handle, diag);
  if (status != BASE_OK) return status;
  rt_cuda_device *self = calloc(1, sizeof *self);
  if (self == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory for a device");
    return BASE_MEMORY;
  }
  rt_cuda_failure failure = {0};
  *self = (rt_cuda_device){.base.ops = &ops, .handle = handle, .ordinal = ordinal};
  if (!read_facts(handle, &self->base.facts, &failure) ||
      !RT_CUDA(&failure, cuDevicePrimaryCtxRetain, &self->context, handle)) {
    free(self);
    return rt_cuda_report(diag, &failure, NULL);
  }
  pthread_mutex_init(&self->lock, NULL);
  *out = &self->base;
  return BASE_OK;
}
