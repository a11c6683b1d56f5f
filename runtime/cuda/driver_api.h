// Inside runtime/cuda: libcuda as its parts call it.
//
// Sections: the driver's types, entry points, failures, devices and contexts.
//
// The types are written out here, under the names of NVIDIA's documentation, so that Fathom builds
// without the toolkit and against none of its versions: a driver keeps its layouts for good.
#ifndef FATHOM_RUNTIME_CUDA_DRIVER_API_H
#define FATHOM_RUNTIME_CUDA_DRIVER_API_H

#include <assert.h>
#include <pthread.h>
#include <stddef.h>

#include "runtime/cuda/driver.h"

// ---- the driver's types -------------------------------------------------------------------------

typedef int CUresult; // an enum there; 0 is success
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
  CUDA_SUCCESS = 0,
#define DRIVER_ERROR(number, name, status, fate, advice) CUDA_ERROR_##name = (number),
#include "runtime/cuda/driver_error.def"
#undef DRIVER_ERROR

  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
  CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR = 106,
  CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK = 111,

  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,

  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  CU_MEMORYTYPE_DEVICE = 2,

  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_STREAM_CAPTURE_STATUS_NONE = 0,

  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

typedef struct CUlaunchAttribute {
  int id;
  char pad[4];
  union {
    char pad[64];
    struct {
      unsigned x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

static_assert(sizeof(CUlaunchAttribute) == 72 && offsetof(CUlaunchAttribute, value) == 8,
              "as in the driver");
static_assert(sizeof(CUlaunchConfig) == 56 && offsetof(CUlaunchConfig, blockDimX) == 12 &&
                  offsetof(CUlaunchConfig, sharedMemBytes) == 24 &&
                  offsetof(CUlaunchConfig, hStream) == 32 &&
                  offsetof(CUlaunchConfig, attrs) == 40 && offsetof(CUlaunchConfig, numAttrs) == 48,
              "as in the driver");
static_assert(sizeof(CUdeviceptr) == sizeof(void *), "one address space");

// ---- entry points -------------------------------------------------------------------------------

typedef struct rt_cuda_api {
#define DRIVER(need, name, symbol, purpose, arguments) CUresult(*name) arguments;
#include "runtime/cuda/driver.def"
#undef DRIVER
} rt_cuda_api;

typedef enum rt_cuda_entry {
#define DRIVER(need, name, symbol, purpose, arguments) RT_CUDA_##name,
#include "runtime/cuda/driver.def"
#undef DRIVER
  RT_CUDA_ENTRY_COUNT
} rt_cuda_entry;

// Written once, by rt_cuda_open, before the first device is made.
extern rt_cuda_api rt_cuda;

// ---- failures -----------------------------------------------------------------------------------

// The first call that failed, on the way to a report. Reports are made last, when contexts are
// restored and what was acquired is released, because making one may run out of memory and jump.
typedef struct rt_cuda_failure {
  CUresult result; // 0: nothing has failed
  rt_cuda_entry entry;
} rt_cuda_failure;

// RT_CUDA(&failure, cuMemFree, memory): calls, and is true on success.
#define RT_CUDA(failure, name, ...)                                                                \
  rt_cuda_noted((failure), RT_CUDA_##name, rt_cuda.name(__VA_ARGS__))
bool rt_cuda_noted(rt_cuda_failure *failure, rt_cuda_entry entry, CUresult result);

// "cuMemAlloc could not allocate device memory: CUDA_ERROR_OUT_OF_MEMORY (2), out of memory".
base_str rt_cuda_failure_text(base_arena *arena, const rt_cuda_failure *failure);
base_status rt_cuda_failure_status(const rt_cuda_failure *failure);
// What to do; says so when the context is lost.
base_str rt_cuda_failure_hint(base_arena *arena, const rt_cuda_failure *failure);
bool rt_cuda_context_lost(const rt_cuda_failure *failure);
// Reports text and hint. `detail`, which may be NULL, follows the text: "; 5 of 80 bytes are free".
base_status rt_cuda_report(base_diag *diag, const rt_cuda_failure *failure, const char *detail);

// ---- devices and contexts -----------------------------------------------------------------------

typedef struct rt_cuda_device {
  rt_device base;
  CUdevice handle;
  uint32_t ordinal;
  CUcontext context;            // primary; retained as long as the object lives
  pthread_mutex_t lock;         // for the lists of functions of all code, and the next line
  struct rt_cublaslt *cublaslt; // NULL until a product is made
} rt_cuda_device;

// The device's context is current between enter and leave; the caller's is again afterwards.
// Nothing in between may jump away.
typedef struct rt_cuda_scope {
  CUcontext context;
  bool pushed;
  bool relaxed; // the thread's capture mode was `mode`
  int mode;
} rt_cuda_scope;

// False: see *failure, and do not leave.
bool rt_cuda_enter(const rt_cuda_device *device, rt_cuda_scope *scope, rt_cuda_failure *failure);
// For calls that would break captures of other streams and threads, such as allocating and waiting:
// both may go on, since nothing here depends on what is captured.
bool rt_cuda_enter_relaxed(const rt_cuda_device *device, rt_cuda_scope *scope,
                           rt_cuda_failure *failure);
// For what gives something back, and cannot report: what push answers about an earlier launch must
// not keep it from that, so it is tried again.
bool rt_cuda_enter_to_release(const rt_cuda_device *device, rt_cuda_scope *scope);
// Cannot fail: what the driver reports here is about earlier launches, and the next call says it.
void rt_cuda_leave(rt_cuda_scope *scope);

// The rows of the device table, by file.
base_status rt_cuda_load(rt_device *device, const rt_image *image, rt_code **out, base_diag *diag);
void rt_cuda_unload(rt_device *device, rt_code *code);
base_status rt_cuda_find(rt_device *device, rt_code *code, const char *name, uint32_t threads,
                         size_t shared_bytes, rt_function **out,
                         uint32_t *blocks_per_multiprocessor, base_diag *diag);
base_status rt_cuda_launch(rt_device *device, void *stream, const rt_device_launch *launch,
                           base_diag *diag);
base_status rt_cuda_allocate(rt_device *device, size_t bytes, void **out, base_diag *diag);
void rt_cuda_release(rt_device *device, void *memory);
base_status rt_cuda_copy(rt_device *device, void *stream, void *to, const void *from, size_t bytes,
                         base_diag *diag);
base_status rt_cuda_fill(rt_device *device, void *stream, void *to, int byte, size_t bytes,
                         base_diag *diag);
base_status rt_cuda_synchronize(rt_device *device, void *stream, base_diag *diag);
base_status rt_cuda_timer_create(rt_device *device, rt_timer **out, base_diag *diag);
base_status rt_cuda_timer_start(rt_device *device, rt_timer *timer, void *stream, base_diag *diag);
base_status rt_cuda_timer_stop(rt_device *device, rt_timer *timer, void *stream,
                               double *microseconds, base_diag *diag);
void rt_cuda_timer_destroy(rt_device *device, rt_timer *timer);
base_status rt_cuda_matmul_create(rt_device *device, const rt_matmul_shape *shape,
                                  size_t workspace_limit, rt_matmul **out, base_diag *diag);
size_t rt_cuda_matmul_workspace(const rt_matmul *matmul);
base_status rt_cuda_matmul_run(rt_device *device, const rt_matmul *matmul, const void *a,
                               const void *b, float *d, void *workspace, void *stream,
                               base_diag *diag);
void rt_cuda_matmul_destroy(rt_device *device, rt_matmul *matmul);

struct rt_function {
  struct rt_function *next; // in its code
  CUfunction handle;
  uint32_t threads;       // most a block may have
  size_t shared_bytes;    // dynamic; prepared for
  size_t parameter_bytes; // 0: not known
  char name[];
};

#endif
