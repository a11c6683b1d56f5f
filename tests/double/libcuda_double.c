// libcuda_double: the driver API over memory of the host. See double.h.
//
// Every entry point begins with BEGIN, which takes the lock, counts the call, checks the rules that
// all calls share and injects errors, and ends with END, which gives the lock back. Handles are
// addresses of entries in lists, looked up and never followed: one that was destroyed is found out.
#include "double/double.h"
#include "double/image.h"
#include "double/run.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define DRIVER(need, name, symbol, purpose, arguments) EXPORT CUresult symbol arguments;
#include "runtime/cuda/driver.def"
#undef DRIVER

enum {
  DEVICES_MOST = 8,
  DEPTH_MOST = 16,
  SHARED_AT_ONCE = 49152,
  THREADS_MOST = 1024,
  POISON = 0xa5, // new memory
};
static const size_t poisoned_most = (size_t)1 << 24;

// ---- state --------------------------------------------------------------------------------------

struct CUctx_st {
  int ordinal;
  int retained; // times
};

struct CUmod_st {
  struct CUmod_st *next;
  image_kind kind;
  char *image;
  struct CUfunc_st *functions;
  run_code *code; // in the emulator
};

struct CUfunc_st {
  struct CUfunc_st *next;
  CUmodule module;
  size_t parameter_bytes;
  int shared_most;
  char name[128];
};

struct CUevent_st {
  struct CUevent_st *next;
  double recorded; // milliseconds; 0: never
};

typedef struct memory {
  struct memory *next;
  CUdeviceptr start;
  size_t bytes;
  int ordinal;
} memory;

typedef struct arch_facts {
  int arch, multiprocessors, threads_per_multiprocessor, blocks_per_multiprocessor;
  int shared_per_block, shared_per_multiprocessor, level2_mib;
  const char *name;
} arch_facts;

// By compute capability; figures of NVIDIA's programming guide.
static const arch_facts archs[] = {
    {80, 108, 2048, 32, 166912, 167936, 40, "Double A100"},
    {86, 84, 1536, 16, 101376, 102400, 6, "Double A10"},
    {89, 128, 1536, 24, 101376, 102400, 72, "Double RTX 4090"},
    {90, 132, 2048, 32, 232448, 233472, 50, "Double H100"},
    {100, 148, 2048, 32, 232448, 233472, 126, "Double B200"},
    {120, 170, 1536, 32, 101376, 102400, 96, "Double RTX 5090"},
    {75, 40, 1024, 16, 65536, 65536, 4, "Double T4"},
    {103, 152, 2048, 32, 232448, 233472, 126, "Double GB300"},
};
static const size_t memory_bytes = (size_t)80 << 30;

static struct {
  pthread_mutex_t lock;
  bool started;
  const arch_facts *arch;
  int devices, version;
  struct CUctx_st primary[DEVICES_MOST], foreign;
  CUmodule modules;
  CUevent events;
  memory *memories;
  size_t memory_used;
  long managed[16];

  CUstream captured;
  bool capture_broken;
  CUresult lost; // answer of every call that needs a context

  // Errors on demand.
  int fail_entry, fail_in; // -1: none
  CUresult fail_result;
  bool fail_late, has_failed;
  CUresult late; // what the call that runs returns

  // What a test looks at.
  int calls[RT_CUDA_ENTRY_COUNT];
  int launches, violations;
  char violation[256];
  double_launch last;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .arch = &archs[3],
           .devices = 1,
           .version = 13000,
           .foreign = {.ordinal = 0, .retained = 1},
           .fail_entry = -1};

static _Thread_local struct {
  CUcontext stack[DEPTH_MOST];
  int depth, capture_mode;
} thread;

static const char *const names[] = {
#define DRIVER(need, name, symbol, purpose, arguments) #name,
#include "runtime/cuda/driver.def"
#undef DRIVER
};

// ---- rules that all calls share -----------------------------------------------------------------

static CUcontext current(void) {
  return thread.depth ? thread.stack[thread.depth - 1] : NULL;
}

// A rule was broken. The result, for the caller to pass on.
static CUresult broken(rt_cuda_entry entry, const char *rule, CUresult result) {
  if (state.violations++ == 0)
    snprintf(state.violation, sizeof state.violation, "%s: %s", names[entry], rule);
  return result;
}

static CUresult break_capture(void) {
  state.capture_broken = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

typedef enum rules {
  ANY_TIME = 0,
  STARTED = 1,  // after cuInit
  CONTEXT = 2,  // with a context
  UNSAFE = 4,   // breaks a capture, unless the thread has relaxed
  RELEASES = 8, // does its work even where it returns the error of an earlier launch
} rules;

static CUresult check_rules(rt_cuda_entry entry, unsigned rules) {
  if (rules && !state.started) return broken(entry, "before cuInit", CUDA_ERROR_NOT_INITIALIZED);
  if (rules & CONTEXT && current() == NULL)
    return broken(entry, "without a context", CUDA_ERROR_INVALID_CONTEXT);
  if (rules & UNSAFE && state.captured && thread.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return break_capture();
  if (rules & CONTEXT && state.lost) {
    if (!(rules & RELEASES)) return state.lost;
    state.late = state.lost;
  }
  return CUDA_SUCCESS;
}

// The error to inject now; one that is to come late is kept for the end.
static CUresult inject(rt_cuda_entry entry) {
  if (state.fail_entry != (int)entry || --state.fail_in != 0) return CUDA_SUCCESS;
  state.fail_entry = -1;
  state.has_failed = true;
  if (!state.fail_late) return state.fail_result;
  state.late = state.fail_result;
  return CUDA_SUCCESS;
}

// Success: the lock is held until end().
static CUresult begin(rt_cuda_entry entry, unsigned rules) {
  pthread_mutex_lock(&state.lock);
  state.calls[entry]++;
  state.late = CUDA_SUCCESS;
  CUresult result = check_rules(entry, rules);
  if (result == CUDA_SUCCESS) result = inject(entry);
  if (result != CUDA_SUCCESS) pthread_mutex_unlock(&state.lock);
  return result;
}

static CUresult end(CUresult result) {
  if (result == CUDA_SUCCESS) result = state.late;
  pthread_mutex_unlock(&state.lock);
  return result;
}

#define BEGIN(name, rules)                                                                         \
  const rt_cuda_entry entry = RT_CUDA_##name;                                                      \
  const CUresult refused = begin(entry, (rules));                                                  \
  if (refused != CUDA_SUCCESS) return refused
#define END(result) return end(result)
#define BROKEN(rule, result) return end(broken(entry, (rule), (result)))

// ---- the driver and its devices -----------------------------------------------------------------

static const arch_facts *find_arch(int arch) {
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
    if (archs[i].arch == arch) return &archs[i];
  return NULL;
}

static int number_from(const char *variable, int otherwise) {
  const char *value = getenv(variable);
  return value && value[0] ? (int)strtol(value, NULL, 10) : otherwise;
}

// A device that disappears: while the file $DOUBLE_GONE names exists there is none, and the launch number
// $DOUBLE_LOSE_AFTER makes it, for this process and for all others.
static bool is_gone(void) {
  const char *path = getenv("DOUBLE_GONE");
  return path && access(path, F_OK) == 0;
}

static void disappear(void) {
  const char *path = getenv("DOUBLE_GONE");
  const int after = number_from("DOUBLE_LOSE_AFTER", 0);
  if (!path || after == 0 || state.launches < after) return;
  FILE *file = fopen(path, "w");
  if (file) fclose(file);
  state.lost = CUDA_ERROR_LAUNCH_FAILED;
}

CUresult cuInit(unsigned flags) {
  BEGIN(cuInit, ANY_TIME);
  if (flags) END(CUDA_ERROR_INVALID_VALUE);
  if (is_gone()) END(CUDA_ERROR_NO_DEVICE);
  if (!state.started) {
    const arch_facts *arch = find_arch(number_from("DOUBLE_ARCH", state.arch->arch));
    const int devices = number_from("DOUBLE_DEVICES", state.devices);
    if (arch == NULL || devices < 1 || devices > DEVICES_MOST) END(CUDA_ERROR_INVALID_VALUE);
    state.arch = arch;
    state.devices = devices;
    state.version = number_from("DOUBLE_VERSION", state.version);
    for (int i = 0; i < DEVICES_MOST; i++)
      state.primary[i].ordinal = i;
    state.started = true;
  }
  END(CUDA_SUCCESS);
}

CUresult cuDriverGetVersion(int *version) {
  BEGIN(cuDriverGetVersion, ANY_TIME);
  *version = state.version;
  END(CUDA_SUCCESS);
}

// Names of the errors that have advice: the real driver knows more, and the same of these.
static const char *error_name(CUresult error) {
  switch (error) {
#define DRIVER_ERROR(number, name, status, fate, advice)                                           \
  case number:                                                                                     \
    return "CUDA_ERROR_" #name;
#include "runtime/cuda/driver_error.def"
#undef DRIVER_ERROR
  default:
    return NULL;
  }
}

CUresult cuGetErrorName(CUresult error, const char **out) {
  BEGIN(cuGetErrorName, ANY_TIME);
  *out = error_name(error);
  END(*out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuGetErrorString(CUresult error, const char **out) {
  BEGIN(cuGetErrorString, ANY_TIME);
  *out = error_name(error) ? "as the double was asked to say" : NULL;
  END(*out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuDeviceGetCount(int *count) {
  BEGIN(cuDeviceGetCount, STARTED);
  *count = state.devices;
  END(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
  BEGIN(cuDeviceGet, STARTED);
  if (ordinal < 0 || ordinal >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  *out = ordinal;
  END(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int capacity, CUdevice device) {
  BEGIN(cuDeviceGetName, STARTED);
  if (device >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  snprintf(name, (size_t)capacity, "%s", state.arch->name);
  END(CUDA_SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  BEGIN(cuDeviceTotalMem, STARTED);
  if (device >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  *bytes = memory_bytes;
  END(CUDA_SUCCESS);
}

static int device_attribute(int attribute) {
  const arch_facts *arch = state.arch;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    return arch->arch / 10;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    return arch->arch % 10;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    return arch->multiprocessors;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    return THREADS_MOST;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
    return arch->threads_per_multiprocessor;
  case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
    return arch->blocks_per_multiprocessor;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
    return 65536;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
    return arch->shared_per_block;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
    return arch->shared_per_multiprocessor;
  case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
    return 1024;
  case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
    return arch->level2_mib << 20;
  default:
    return -1;
  }
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  BEGIN(cuDeviceGetAttribute, STARTED);
  if (device >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  *value = device_attribute(attribute);
  END(*value >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

// ---- contexts -----------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRetain, STARTED | UNSAFE);
  if (device >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  *out = &state.primary[device];
  (*out)->retained++;
  END(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRelease, STARTED | RELEASES);
  if (device >= state.devices) END(CUDA_ERROR_INVALID_DEVICE);
  if (state.primary[device].retained == 0)
    BROKEN("more often than retained", CUDA_ERROR_INVALID_CONTEXT);
  state.primary[device].retained--;
  END(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *out) {
  BEGIN(cuCtxGetCurrent, STARTED);
  *out = current();
  END(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  BEGIN(cuCtxPushCurrent, STARTED | RELEASES);
  if (context->retained == 0) BROKEN("a context that is not retained", CUDA_ERROR_INVALID_CONTEXT);
  if (thread.depth == DEPTH_MOST) BROKEN("a stack that only grows", CUDA_ERROR_INVALID_CONTEXT);
  thread.stack[thread.depth++] = context;
  END(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out) {
  BEGIN(cuCtxPopCurrent, STARTED | RELEASES);
  if (thread.depth == 0) BROKEN("an empty stack", CUDA_ERROR_INVALID_CONTEXT);
  *out = thread.stack[--thread.depth];
  END(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  BEGIN(cuThreadExchangeStreamCaptureMode, STARTED);
  const int before = thread.capture_mode;
  thread.capture_mode = *mode;
  *mode = before;
  END(CUDA_SUCCESS);
}

// ---- modules ------------------------------------------------------------------------------------

// Where the caller wants the log.
static void find_log(unsigned count, const int *options, void **values, char **log, size_t *room) {
  *room = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) *log = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) *room = (size_t)(uintptr_t)values[i];
  }
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count, int *options,
                            void **values) {
  BEGIN(cuModuleLoadDataEx, CONTEXT | UNSAFE);
  char *log = NULL;
  size_t room;
  find_log(count, options, values, &log, &room);
  image_kind kind;
  const CUresult judgement = image_judge(image, state.arch->arch, state.version, &kind, log, room);
  if (judgement != CUDA_SUCCESS) END(judgement);
  CUmodule module = calloc(1, sizeof *module);
  const size_t length = image_length(image, kind);
  module->kind = kind;
  module->image = malloc(length);
  memcpy(module->image, image, length);
  const char *text = image_text(module->image, kind);
  if (text) module->code = run_load(text, state.arch->arch, log, room);
  if (text && module->code == NULL) {
    free(module->image);
    free(module);
    END(CUDA_ERROR_INVALID_IMAGE);
  }
  module->next = state.modules;
  state.modules = *out = module;
  END(CUDA_SUCCESS);
}

// The link that leads to a module; to NULL when it is not loaded.
static CUmodule *find_module(CUmodule module) {
  CUmodule *link = &state.modules;
  while (*link && *link != module)
    link = &(*link)->next;
  return link;
}

CUresult cuModuleUnload(CUmodule module) {
  BEGIN(cuModuleUnload, CONTEXT | UNSAFE | RELEASES);
  CUmodule *link = find_module(module);
  if (*link == NULL) BROKEN("a module that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  *link = module->next;
  while (module->functions) {
    CUfunction next = module->functions->next;
    free(module->functions);
    module->functions = next;
  }
  run_unload(module->code);
  free(module->image);
  free(module);
  END(CUDA_SUCCESS);
}

static bool has_kernel(CUmodule module, const char *name, size_t *parameter_bytes) {
  if (module->code) return run_has_kernel(module->code, name, parameter_bytes);
  return image_has_kernel(module->image, module->kind, name, parameter_bytes);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
  BEGIN(cuModuleGetFunction, CONTEXT | UNSAFE);
  size_t parameter_bytes = 0;
  if (*find_module(module) == NULL)
    BROKEN("a module that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  for (CUfunction f = module->functions; f; f = f->next)
    if (strcmp(f->name, name) == 0) {
      *out = f; // one handle a kernel, as the driver has it
      END(CUDA_SUCCESS);
    }
  if (!has_kernel(module, name, &parameter_bytes)) END(CUDA_ERROR_NOT_FOUND);
  CUfunction function = calloc(1, sizeof *function);
  function->module = module;
  function->parameter_bytes = parameter_bytes;
  function->shared_most = SHARED_AT_ONCE;
  snprintf(function->name, sizeof function->name, "%s", name);
  function->next = module->functions;
  module->functions = *out = function;
  END(CUDA_SUCCESS);
}

static bool is_function(CUfunction function) {
  for (CUmodule m = state.modules; m; m = m->next)
    for (CUfunction f = m->functions; f; f = f->next)
      if (f == function) return true;
  return false;
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  BEGIN(cuFuncGetAttribute, CONTEXT);
  if (!is_function(function)) BROKEN("a kernel that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK) END(CUDA_ERROR_INVALID_VALUE);
  *value = THREADS_MOST;
  END(CUDA_SUCCESS);
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  BEGIN(cuFuncSetAttribute, CONTEXT);
  if (!is_function(function)) BROKEN("a kernel that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      value > state.arch->shared_per_block)
    END(CUDA_ERROR_INVALID_VALUE);
  function->shared_most = value;
  END(CUDA_SUCCESS);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes) {
  BEGIN(cuFuncGetParamInfo, CONTEXT);
  if (!is_function(function)) BROKEN("a kernel that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  if (index > 0 || function->parameter_bytes == 0) END(CUDA_ERROR_INVALID_VALUE);
  *offset = 0;
  *bytes = function->parameter_bytes;
  END(CUDA_SUCCESS);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared_bytes) {
  BEGIN(cuOccupancyMaxActiveBlocksPerMultiprocessor, CONTEXT);
  if (!is_function(function)) BROKEN("a kernel that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  if (threads < 1 || threads > THREADS_MOST) END(CUDA_ERROR_INVALID_VALUE);
  const int by_threads = state.arch->threads_per_multiprocessor / threads;
  const int by_shared = state.arch->shared_per_multiprocessor / ((int)shared_bytes + 1024);
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  END(CUDA_SUCCESS);
}

// ---- launching ----------------------------------------------------------------------------------

static bool read_attributes(const CUlaunchConfig *config, double_launch *out) {
  out->extended = true;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    const CUlaunchAttribute *attribute = &config->attrs[i];
    if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
        attribute->value.clusterDim.y == 1 && attribute->value.clusterDim.z == 1)
      out->cluster = attribute->value.clusterDim.x;
    else if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      out->programmatic = attribute->value.programmaticStreamSerializationAllowed == 1;
    else
      return false;
  }
  return true;
}

// In the emulator, which stops the kernel where it leaves the memory that is allocated.
static bool run(CUfunction function, const double_launch *record, const void *parameters) {
  uint32_t count = 0;
  for (const memory *m = state.memories; m; m = m->next)
    count++;
  rt_span *spans = calloc(count + 1, sizeof *spans);
  count = 0;
  for (const memory *m = state.memories; m; m = m->next)
    spans[count++] = (rt_span){"memory", (char *)(uintptr_t)m->start, m->bytes, true};
  spans[count++] = (rt_span){"managed", (char *)state.managed, sizeof state.managed, true};
  const run_shape shape = {.kernel = function->name,
                           .blocks = record->grid,
                           .threads = record->block,
                           .cluster = record->cluster ? record->cluster : 1,
                           .shared_bytes = record->shared_bytes,
                           .spans = spans,
                           .span_count = count};
  const bool done = run_launch(function->module->code, &shape, parameters);
  free(spans);
  return done;
}

static CUresult launch(rt_cuda_entry entry, CUfunction function, const CUlaunchConfig *config,
                       double_launch *record, void **parameters) {
  if (!is_function(function))
    return broken(entry, "a kernel that is not loaded", CUDA_ERROR_INVALID_HANDLE);
  if (current() != &state.primary[current()->ordinal])
    return broken(entry, "not in the primary context", CUDA_ERROR_INVALID_CONTEXT);
  if (config->gridDimX < 1 || config->gridDimX > INT_MAX || config->gridDimY != 1 ||
      config->gridDimZ != 1 || config->blockDimX < 1 || config->blockDimX > THREADS_MOST ||
      config->blockDimY != 1 || config->blockDimZ != 1 ||
      config->sharedMemBytes > (unsigned)function->shared_most || parameters == NULL)
    return broken(entry, "limits that the caller knows", CUDA_ERROR_INVALID_VALUE);
  if ((record->cluster || record->programmatic) && state.arch->arch < 90)
    return broken(entry, "clusters before sm_90", CUDA_ERROR_INVALID_CLUSTER_SIZE);
  if (record->cluster > 8 || (record->cluster && config->gridDimX % record->cluster))
    return broken(entry, "clusters that do not divide the grid", CUDA_ERROR_INVALID_CLUSTER_SIZE);
  if (state.captured && config->hStream == NULL) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;

  record->grid = config->gridDimX;
  record->block = config->blockDimX;
  record->shared_bytes = config->sharedMemBytes;
  record->stream = config->hStream;
  record->context = current();
  snprintf(record->kernel, sizeof record->kernel, "%s", function->name);
  const size_t known = function->parameter_bytes;
  memcpy(record->parameters, parameters[0],
         known < sizeof record->parameters ? known : sizeof record->parameters);
  state.last = *record;
  state.launches++;
  disappear();
  if (state.lost) return state.lost;
  if (function->module->code == NULL) return CUDA_SUCCESS; // code of a real GPU
  return run(function, record, parameters[0]) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **parameters, void **extra) {
  BEGIN(cuLaunchKernel, CONTEXT);
  const CUlaunchConfig config = {grid_x,  grid_y,       grid_z, block_x, block_y,
                                 block_z, shared_bytes, stream, NULL,    0};
  double_launch record = {.extended = false};
  if (extra) END(CUDA_ERROR_INVALID_VALUE);
  END(launch(entry, function, &config, &record, parameters));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  BEGIN(cuLaunchKernelEx, CONTEXT);
  double_launch record = {.extended = true};
  if (extra || !read_attributes(config, &record)) END(CUDA_ERROR_INVALID_VALUE);
  END(launch(entry, function, config, &record, parameters));
}

// ---- memory -------------------------------------------------------------------------------------

static memory **find_memory(CUdeviceptr address) {
  memory **link = &state.memories;
  while (*link && address - (*link)->start >= (*link)->bytes)
    link = &(*link)->next;
  return link;
}

// Whether the bytes end within the allocation they begin in, or are the host's.
static bool is_within(CUdeviceptr address, size_t bytes) {
  const memory *m = *find_memory(address);
  return m == NULL || bytes <= m->bytes - (size_t)(address - m->start);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
  BEGIN(cuMemAlloc, CONTEXT | UNSAFE);
  if (bytes == 0) END(CUDA_ERROR_INVALID_VALUE);
  if (bytes > memory_bytes - state.memory_used) END(CUDA_ERROR_OUT_OF_MEMORY);
  void *start = aligned_alloc(256, (bytes + 255) / 256 * 256);
  memory *m = malloc(sizeof *m);
  if (start == NULL || m == NULL) {
    free(start);
    free(m);
    END(CUDA_ERROR_OUT_OF_MEMORY);
  }
  memset(start, POISON, bytes < poisoned_most ? bytes : poisoned_most);
  *m = (memory){.next = state.memories,
                .start = (CUdeviceptr)(uintptr_t)start,
                .bytes = bytes,
                .ordinal = current()->ordinal};
  state.memories = m;
  state.memory_used += bytes;
  *out = m->start;
  END(CUDA_SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  BEGIN(cuMemFree, CONTEXT | UNSAFE | RELEASES);
  memory **link = find_memory(address), *m = *link;
  if (m == NULL || m->start != address)
    BROKEN("memory that is not allocated", CUDA_ERROR_INVALID_VALUE);
  *link = m->next;
  state.memory_used -= m->bytes;
  free((void *)(uintptr_t)m->start);
  free(m);
  END(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  BEGIN(cuMemGetInfo, CONTEXT);
  *free_bytes = memory_bytes - state.memory_used;
  *total = memory_bytes;
  END(CUDA_SUCCESS);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyAsync, CONTEXT);
  if (state.captured && stream == NULL) END(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (!is_within(to, bytes) || !is_within(from, bytes))
    BROKEN("beyond the end of an allocation", CUDA_ERROR_INVALID_VALUE);
  memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
  END(CUDA_SUCCESS);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  BEGIN(cuMemsetD8Async, CONTEXT);
  if (state.captured && stream == NULL) END(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (*find_memory(to) == NULL || !is_within(to, bytes))
    BROKEN("memory that is not allocated", CUDA_ERROR_INVALID_VALUE);
  memset((void *)(uintptr_t)to, byte, bytes);
  END(CUDA_SUCCESS);
}

static bool is_managed(CUdeviceptr address) {
  return address - (CUdeviceptr)(uintptr_t)state.managed < sizeof state.managed;
}

static bool point_at(int attribute, const memory *m, bool managed, void *out) {
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned *)out = m || managed ? CU_MEMORYTYPE_DEVICE : 0;
    return true;
  case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    *(bool *)out = managed;
    return true;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *(int *)out = m ? m->ordinal : -2;
    return true;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(CUdeviceptr *)out = m ? m->start : managed ? (CUdeviceptr)(uintptr_t)state.managed : 0;
    return true;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)out = m ? m->bytes : managed ? sizeof state.managed : 0;
    return true;
  default:
    return false;
  }
}

CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                CUdeviceptr pointer) {
  BEGIN(cuPointerGetAttributes, CONTEXT);
  for (unsigned i = 0; i < count; i++)
    if (!point_at(attributes[i], *find_memory(pointer), is_managed(pointer), values[i]))
      END(CUDA_ERROR_INVALID_VALUE);
  END(CUDA_SUCCESS);
}

// ---- streams and events -------------------------------------------------------------------------

CUresult cuStreamSynchronize(CUstream stream) {
  BEGIN(cuStreamSynchronize, CONTEXT | UNSAFE);
  if (state.captured && stream == state.captured) END(break_capture());
  END(CUDA_SUCCESS);
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  BEGIN(cuStreamIsCapturing, CONTEXT);
  if (state.captured && stream == NULL) END(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  *status = state.captured && stream == state.captured;
  END(CUDA_SUCCESS);
}

static CUevent *find_event(CUevent event) {
  CUevent *link = &state.events;
  while (*link && *link != event)
    link = &(*link)->next;
  return link;
}

CUresult cuEventCreate(CUevent *out, unsigned flags) {
  BEGIN(cuEventCreate, CONTEXT);
  if (flags) END(CUDA_ERROR_INVALID_VALUE);
  CUevent event = calloc(1, sizeof *event);
  event->next = state.events;
  state.events = *out = event;
  END(CUDA_SUCCESS);
}

CUresult cuEventDestroy_v2(CUevent event) {
  BEGIN(cuEventDestroy, CONTEXT | RELEASES);
  CUevent *link = find_event(event);
  if (*link == NULL) BROKEN("an event that was not created", CUDA_ERROR_INVALID_HANDLE);
  *link = event->next;
  free(event);
  END(CUDA_SUCCESS);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN(cuEventRecord, CONTEXT);
  if (*find_event(event) == NULL)
    BROKEN("an event that was not created", CUDA_ERROR_INVALID_HANDLE);
  if (state.captured && stream == NULL) END(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->recorded = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
  END(CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent event) {
  BEGIN(cuEventSynchronize, CONTEXT | UNSAFE);
  if (*find_event(event) == NULL)
    BROKEN("an event that was not created", CUDA_ERROR_INVALID_HANDLE);
  END(CUDA_SUCCESS);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent stop) {
  BEGIN(cuEventElapsedTime, CONTEXT);
  if (*find_event(start) == NULL || *find_event(stop) == NULL)
    BROKEN("an event that was not created", CUDA_ERROR_INVALID_HANDLE);
  if (start->recorded <= 0 || stop->recorded <= 0) END(CUDA_ERROR_INVALID_HANDLE);
  *milliseconds = (float)(stop->recorded - start->recorded);
  END(CUDA_SUCCESS);
}

// ---- what tests see -----------------------------------------------------------------------------

static int find_entry(const char *name) {
  for (int i = 0; i < RT_CUDA_ENTRY_COUNT; i++)
    if (strcmp(names[i], name) == 0) return i;
  abort(); // the test is wrong
}

static double_counts get_counts(void) {
  pthread_mutex_lock(&state.lock);
  double_counts counts = {
      .depth = thread.depth, .launches = state.launches, .violations = state.violations};
  for (int i = 0; i < DEVICES_MOST; i++)
    counts.contexts += state.primary[i].retained;
  for (CUmodule m = state.modules; m; m = m->next)
    counts.modules++;
  for (memory *m = state.memories; m; m = m->next)
    counts.memories++;
  for (CUevent e = state.events; e; e = e->next)
    counts.events++;
  pthread_mutex_unlock(&state.lock);
  return counts;
}

static const char *get_violation(void) {
  return state.violation;
}

static int get_calls(const char *entry) {
  return state.calls[find_entry(entry)];
}

static double_launch get_last_launch(void) {
  return state.last;
}

static void set_injection(const char *entry, int nth, CUresult result, bool late) {
  pthread_mutex_lock(&state.lock);
  state.fail_entry = entry ? find_entry(entry) : -1;
  state.fail_in = nth;
  state.fail_result = result;
  state.fail_late = late;
  state.has_failed = false;
  pthread_mutex_unlock(&state.lock);
}

static bool get_has_failed(void) {
  return state.has_failed;
}

static void lose(CUresult result) {
  state.lost = result;
}

static void capture(CUstream stream) {
  state.captured = stream;
  if (stream) state.capture_broken = false;
}

static bool get_capture_broken(void) {
  return state.capture_broken;
}

static CUcontext get_foreign(void) {
  return &state.foreign;
}

static void set_arch(int arch) {
  const arch_facts *facts = find_arch(arch);
  if (facts) state.arch = facts;
}

static void set_version(int version) {
  state.version = version;
}

static CUdeviceptr get_managed(void) {
  return (CUdeviceptr)(uintptr_t)state.managed;
}

EXPORT extern const double_control double_cuda;
const double_control double_cuda = {.counts = get_counts,
                                    .violation = get_violation,
                                    .calls = get_calls,
                                    .last_launch = get_last_launch,
                                    .inject = set_injection,
                                    .has_failed = get_has_failed,
                                    .lose = lose,
                                    .capture = capture,
                                    .capture_is_broken = get_capture_broken,
                                    .foreign_context = get_foreign,
                                    .set_arch = set_arch,
                                    .set_version = set_version,
                                    .managed = get_managed};
