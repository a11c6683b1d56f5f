// driver_open: finds libcuda, fills the table of entry points and starts the driver.
//
// The library stays open for the life of the process: the driver does not survive being closed.
#include "runtime/cuda/driver_api.h"

#include <dlfcn.h>
#include <stdio.h>

rt_cuda_api rt_cuda;
static_assert(sizeof(rt_cuda_api) == RT_CUDA_ENTRY_COUNT * sizeof(void *), "only entry points");

#define ENTRY_POINT(name, symbol) {#symbol, offsetof(rt_cuda_api, name)},
#define NEEDED(name, symbol) ENTRY_POINT(name, symbol)
#define OPTIONAL(name, symbol)
static const base_entry_point needed[] = {
#define DRIVER(need, name, symbol, purpose, arguments) need(name, symbol)
#include "runtime/cuda/driver.def"
};
#undef NEEDED
#undef OPTIONAL
#define NEEDED(name, symbol)
#define OPTIONAL(name, symbol) ENTRY_POINT(name, symbol)
static const base_entry_point optional[] = {
#include "runtime/cuda/driver.def"
#undef DRIVER
};

static const base_library_spec spec = {
    .name = "NVIDIA's driver",
    .variable = "FATHOM_LIBCUDA",
    .sonames = (const char *const[]){"libcuda.so.1", "libcuda.so", NULL},
    .places = (const char *const[]){"", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", NULL},
    .advice = "install NVIDIA's driver, and give a container its GPUs",
};

// Guarded by `lock`, under which nothing may jump away. What was reached is kept, so that a later
// call goes on from there.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { CLOSED, LOADED, STARTED } stage;
static const char *library_path; // the loader's
static uint32_t device_count, version;

// ---- the library --------------------------------------------------------------------------------

// Takes over a library that was found, unless another thread was faster. A symbol that it lacks, or
// NULL.
static const char *adopt(void *library, const char *path) {
  const char *missing = NULL;
  pthread_mutex_lock(&lock);
  const bool first = stage == CLOSED;
  if (first) {
    missing = base_library_resolve(library, needed, sizeof needed / sizeof *needed, &rt_cuda);
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
      (void)base_library_resolve(library, &optional[i], 1, &rt_cuda);
    if (missing == NULL) {
      library_path = path;
      stage = LOADED;
    }
  }
  pthread_mutex_unlock(&lock);
  if (!first) dlclose(library);
  return missing;
}

static base_status load(base_arena *arena, base_str *why) {
  void *library;
  base_str path;
  if (!base_library_open(arena, &spec, &library, &path, why)) return BASE_UNSUPPORTED;
  const char *missing = adopt(library, path.data);
  if (missing == NULL) return BASE_OK;
  char name[1024]; // the loader's copy goes with the library
  snprintf(name, sizeof name, "%.*s", BASE_FMT(path));
  dlclose(library);
  *why = base_str_format(arena,
                         "%s has no entry point %s\n"
                         "  hint: it is not NVIDIA's driver, or older than CUDA 11: update the "
                         "driver, or let %s name its libcuda.so.1",
                         name, missing, spec.variable);
  return BASE_UNSUPPORTED;
}

// ---- the driver ---------------------------------------------------------------------------------

static bool start(rt_cuda_failure *failure) {
  int devices = 0, number = 0;
  if (!RT_CUDA(failure, cuInit, 0) || !RT_CUDA(failure, cuDeviceGetCount, &devices) ||
      !RT_CUDA(failure, cuDriverGetVersion, &number))
    return false;
  device_count = (uint32_t)devices;
  version = (uint32_t)number;
  return true;
}

base_status rt_cuda_open(base_arena *arena, base_str *path, base_str *why) {
  pthread_mutex_lock(&lock);
  const bool loaded = stage != CLOSED;
  pthread_mutex_unlock(&lock);
  if (!loaded) {
    const base_status status = load(arena, why);
    if (status != BASE_OK) return status;
  }

  rt_cuda_failure failure = {0};
  pthread_mutex_lock(&lock);
  if (stage == LOADED && start(&failure)) stage = STARTED;
  *path = base_str_from(library_path);
  pthread_mutex_unlock(&lock);
  if (failure.result == CUDA_SUCCESS) return BASE_OK;
  const base_str text = rt_cuda_failure_text(arena, &failure);
  const base_str hint = rt_cuda_failure_hint(arena, &failure);
  *why = base_str_format(arena, "%.*s: %.*s\n  hint: %.*s", BASE_FMT(*path), BASE_FMT(text),
                         BASE_FMT(hint));
  return rt_cuda_failure_status(&failure);
}

static uint32_t when_started(const uint32_t *value) {
  pthread_mutex_lock(&lock);
  const uint32_t result = stage == STARTED ? *value : 0;
  pthread_mutex_unlock(&lock);
  return result;
}

uint32_t rt_cuda_count(void) {
  return when_started(&device_count);
}

uint32_t rt_cuda_version(void) {
  return when_started(&version);
}
