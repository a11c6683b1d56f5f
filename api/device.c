// device: the devices of a context, and memory on them.
//
// A device is made outside the context's lock, because that may take a second and may jump away when
// memory runs out. So two threads may make the same one at once; the later one is dropped again.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "codegen/cuda/gpu.h"
#include "codegen/emulator/emulator.h"
#include "runtime/cuda/driver.h"

static const base_loc nowhere;

typedef struct api_device {
  struct api_device *next;
  api_device_key key;
  rt_device *device;
} api_device;

// ---- making devices -----------------------------------------------------------------------------

bool api_device_ordinal(api_call *call, uint32_t *ordinal) {
  const char *text = getenv("FATHOM_CUDA_DEVICE");
  *ordinal = 0;
  if (text == NULL || text[0] == 0) return true;
  size_t digits = strspn(text, "0123456789");
  if (text[digits] == 0 && digits <= 4) {
    *ordinal = (uint32_t)strtoul(text, NULL, 10);
    return true;
  }
  base_error(&call->diag, nowhere, "FATHOM_CUDA_DEVICE is '%s', expected the number of a GPU",
             text);
  base_hint(&call->diag, "`fathom info` lists them");
  return false;
}

// The architecture's limits, and a GPU so small that the blocks of a persistent grid, of which as
// many are launched as it runs at once, work on several rows each even when a test has few.
static rt_device_facts emulated_facts(const char *name) {
  enum { MULTIPROCESSORS = 3, BLOCKS = 1 };
  cuda_arch arch;
  rt_device_facts facts = {0};
  if (!cuda_arch_find(name, &arch)) return facts; // not a name that api_target_parse gives
  const cuda_gpu *gpu = cuda_gpu_find(arch.name);
  facts = (rt_device_facts){
      .major = arch.capability / 10,
      .minor = arch.capability % 10,
      .multiprocessors = MULTIPROCESSORS,
      .threads_per_block = arch.threads_per_block,
      .threads_per_multiprocessor = arch.threads,
      .blocks_per_multiprocessor = BLOCKS,
      .registers_per_multiprocessor = arch.registers,
      .shared_per_block = arch.shared_per_block,
      .shared_per_multiprocessor = arch.shared_bytes,
      .shared_reserved = arch.shared_reserved,
      .level2_bytes = gpu != NULL ? (size_t)(gpu->level2_mb * 0x1p20) : 0,
  };
  snprintf(facts.name, sizeof facts.name, "emulated %s", gpu != NULL ? gpu->name : arch.name);
  return facts;
}

static base_status make_device(api_call *call, const api_device_key *key, rt_device **out) {
  if (key->kind == API_CUDA) return rt_cuda_device_create(key->ordinal, out, &call->diag);
  emu_options options = {
      .sanitize = key->sanitize,
      .cache_directory = call->context->cache_directory,
      .facts = emulated_facts(key->arch),
  };
  return emu_device_create(&options, out, &call->diag);
}

void api_arch_of(const rt_device_facts *facts, char arch[API_ARCH_ROOM]) {
  snprintf(arch, API_ARCH_ROOM, "sm_%u%u", facts->major, facts->minor);
}

// ---- a context's devices ------------------------------------------------------------------------

static bool same_key(const api_device_key *a, const api_device_key *b) {
  return a->kind == b->kind && a->ordinal == b->ordinal && a->sanitize == b->sanitize &&
         strcmp(a->arch, b->arch) == 0;
}

// Under the context's lock.
static rt_device *find_device(const fathom_context *context, const api_device_key *key) {
  for (const api_device *d = context->devices; d != NULL; d = d->next)
    if (same_key(&d->key, key)) return d->device;
  return NULL;
}

static rt_device *known_device(fathom_context *context, const api_device_key *key) {
  pthread_mutex_lock(context->lock);
  rt_device *device = find_device(context, key);
  pthread_mutex_unlock(context->lock);
  return device;
}

// Takes the device over; returns the one to use. NULL: out of memory.
static rt_device *keep_device(fathom_context *context, const api_device_key *key, rt_device *made) {
  api_device *entry = malloc(sizeof *entry);
  pthread_mutex_lock(context->lock);
  rt_device *device = find_device(context, key);
  if (device == NULL && entry != NULL) {
    *entry = (api_device){context->devices, *key, made};
    context->devices = entry;
    entry = NULL;
    device = made;
  }
  pthread_mutex_unlock(context->lock);
  free(entry);
  if (device != made) made->ops->destroy(made);
  return device;
}

rt_device *api_device_open(api_call *call, const api_device_key *key) {
  rt_device *device = known_device(call->context, key), *made;
  if (device != NULL) return device;
  if (make_device(call, key, &made) != BASE_OK) return NULL;
  device = keep_device(call->context, key, made);
  if (device == NULL) base_error_status(&call->diag, BASE_MEMORY, nowhere, "out of memory");
  return device;
}

void api_devices_close(fathom_context *context) {
  while (context->devices != NULL) {
    api_device *entry = context->devices;
    context->devices = entry->next;
    entry->device->ops->destroy(entry->device);
    free(entry);
  }
}

// ---- memory -------------------------------------------------------------------------------------

// Memory of a device for as long as an arena lasts.
typedef struct holding {
  rt_device *device;
  void *memory;
} holding;

static void release_holding(void *opaque) {
  holding *held = opaque;
  held->device->ops->release(held->device, held->memory);
}

void *api_device_mirror(api_call *call, const fathom_executable *executable, void *host,
                        size_t bytes) {
  rt_device *device = api_executable_device(executable);
  if (device == NULL || device->ops->host_memory) return host;
  holding *held = base_new(&call->arena, holding);
  held->device = device;
  base_defer(&call->arena, release_holding, held);
  // A tensor without bytes still has an address.
  device->ops->allocate(device, bytes > 0 ? bytes : 1, &held->memory, &call->diag);
  return held->memory;
}

bool api_device_copy(api_call *call, const fathom_executable *executable, void *to,
                     const void *from, size_t bytes) {
  rt_device *device = api_executable_device(executable);
  if (to == from || bytes == 0) return true;
  if (device == NULL) {
    memcpy(to, from, bytes);
    return true;
  }
  return device->ops->copy(device, NULL, to, from, bytes, &call->diag) == BASE_OK;
}

DLDevice api_device_dlpack(const fathom_executable *executable) {
  rt_device *device = api_executable_device(executable);
  if (device == NULL || device->ops->host_memory) return (DLDevice){kDLCPU, 0};
  return (DLDevice){kDLCUDA, (int32_t)executable->ordinal};
}
