// emu_device: the device table. Memory is the host's, streams are nothing, time is the host's.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen/emulator/emu.h"

static const base_loc nowhere = {0};

static base_status report(base_diag *diag, const emu_reason *reason) {
  base_error_status(diag, reason->status, nowhere, "%s", reason->text);
  if (reason->hint) base_hint(diag, "%s", reason->hint);
  return reason->status;
}

static base_status out_of_memory(base_diag *diag, const char *what) {
  base_error_status(diag, BASE_MEMORY, nowhere, "the emulator is out of memory for %s", what);
  return BASE_MEMORY;
}

// ---- code ---------------------------------------------------------------------------------------

static void unload(rt_device *device, rt_code *code) {
  (void)device;
  if (code == NULL) return;
  while (code->functions) {
    rt_function *next = code->functions->next;
    free(code->functions);
    code->functions = next;
  }
  if (code->handle) dlclose(code->handle);
  pthread_mutex_destroy(&code->lock);
  free(code->text);
  free(code->text_name);
  free(code->object);
  free(code);
}

static base_status load(rt_device *device, const rt_image *image, rt_code **out, base_diag *diag) {
  *out = NULL;
  if (image->text.length == 0) {
    base_error_status(diag, BASE_INVALID, nowhere,
                      "the emulator takes kernels as text, but this image has none");
    return BASE_INVALID;
  }
  rt_code *code = calloc(1, sizeof *code);
  if (code == NULL) return out_of_memory(diag, "a kernel");
  pthread_mutex_init(&code->lock, NULL);
  emu_reason reason;
  if (!emu_compile((emu_device *)device, image->text, code, &reason)) {
    unload(device, code);
    return report(diag, &reason);
  }
  *out = code;
  return BASE_OK;
}

static rt_function *known_function(rt_code *code, const char *name) {
  rt_function *function = code->functions;
  while (function && strcmp(function->name, name) != 0)
    function = function->next;
  return function;
}

static void *symbol(const rt_code *code, const char *name, const char *suffix) {
  char text[512];
  const int length = snprintf(text, sizeof text, "%s_%s", name, suffix);
  return length > 0 && (size_t)length < sizeof text ? dlsym(code->handle, text) : NULL;
}

// BASE_INVALID: there is no such kernel. Under the code's lock.
static base_status add_function(rt_code *code, const char *name, rt_function **out) {
  void *entry = symbol(code, name, "entry"), *bytes = symbol(code, name, "argument_bytes");
  if (entry == NULL || bytes == NULL) return BASE_INVALID;
  const size_t room = strlen(name) + 1;
  rt_function *function = calloc(1, sizeof *function + room);
  if (function == NULL) return BASE_MEMORY;
  unsigned (*argument_bytes)(void);
  *(void **)&argument_bytes = bytes; // POSIX's way to get a function from dlsym
  *(void **)&function->entry = entry;
  function->argument_bytes = argument_bytes();
  function->code = code;
  memcpy(function->name, name, room);
  function->next = code->functions;
  code->functions = function;
  *out = function;
  return BASE_OK;
}

static uint32_t least(uint32_t a, uint64_t b) {
  return a < b ? a : (uint32_t)b;
}

// Registers are not known here, so this is an upper bound.
static uint32_t resident_blocks(const rt_device_facts *f, uint32_t threads, size_t shared_bytes) {
  uint32_t blocks = f->blocks_per_multiprocessor ? f->blocks_per_multiprocessor : 32;
  if (f->threads_per_multiprocessor && threads)
    blocks = least(blocks, f->threads_per_multiprocessor / threads);
  const size_t shared = shared_bytes + f->shared_reserved;
  if (f->shared_per_multiprocessor && shared)
    blocks = least(blocks, f->shared_per_multiprocessor / shared);
  return blocks;
}

static base_status find(rt_device *device, rt_code *code, const char *name, uint32_t threads,
                        size_t shared_bytes, rt_function **out, uint32_t *blocks_per_multiprocessor,
                        base_diag *diag) {
  *out = NULL;
  const size_t limit = device->facts.shared_per_block;
  if (limit && shared_bytes > limit) {
    base_error_status(
        diag, BASE_INVALID, nowhere,
        "kernel '%s' wants %zu bytes of shared memory a block, but the limit of %s is %zu", name,
        shared_bytes, device->facts.name, limit);
    base_hint(diag, "choose a schedule with fewer stages or smaller tiles");
    return BASE_INVALID;
  }
  pthread_mutex_lock(&code->lock);
  rt_function *function = known_function(code, name);
  const base_status status = function ? BASE_OK : add_function(code, name, &function);
  pthread_mutex_unlock(&code->lock);
  if (status == BASE_MEMORY) return out_of_memory(diag, "a kernel");
  if (status != BASE_OK) {
    base_error_status(diag, BASE_INVALID, nowhere,
                      "the text has no kernel '%s' with FM_ENTRY(%s, ...)", name, name);
    return BASE_INVALID;
  }
  *out = function;
  if (blocks_per_multiprocessor)
    *blocks_per_multiprocessor = resident_blocks(&device->facts, threads, shared_bytes);
  return BASE_OK;
}

// ---- memory -------------------------------------------------------------------------------------

// A GPU's new memory holds anything; here it is NaN in every type, so that it shows.
static base_status allocate(rt_device *device, size_t bytes, void **out, base_diag *diag) {
  (void)device;
  *out = NULL;
  if (posix_memalign(out, 256, bytes ? bytes : 1) != 0) {
    *out = NULL;
    base_error_status(diag, BASE_MEMORY, nowhere, "cannot allocate %zu bytes for the emulator",
                      bytes);
    return BASE_MEMORY;
  }
  memset(*out, 0xff, bytes);
  return BASE_OK;
}

static void release(rt_device *device, void *memory) {
  (void)device;
  free(memory);
}

static base_status copy(rt_device *device, void *stream, void *to, const void *from, size_t bytes,
                        base_diag *diag) {
  (void)device, (void)stream, (void)diag;
  if (bytes) memmove(to, from, bytes);
  return BASE_OK;
}

static base_status fill(rt_device *device, void *stream, void *to, int byte, size_t bytes,
                        base_diag *diag) {
  (void)device, (void)stream, (void)diag;
  if (bytes) memset(to, byte, bytes);
  return BASE_OK;
}

static base_status synchronize(rt_device *device, void *stream, base_diag *diag) {
  (void)device, (void)stream, (void)diag;
  return BASE_OK;
}

// ---- time ---------------------------------------------------------------------------------------

struct rt_timer {
  double start; // base_seconds
};

static base_status create_timer(rt_device *device, rt_timer **out, base_diag *diag) {
  (void)device;
  *out = calloc(1, sizeof **out);
  return *out ? BASE_OK : out_of_memory(diag, "a timer");
}

static base_status start_timer(rt_device *device, rt_timer *timer, void *stream, base_diag *diag) {
  (void)device, (void)stream, (void)diag;
  timer->start = base_seconds();
  return BASE_OK;
}

static base_status stop_timer(rt_device *device, rt_timer *timer, void *stream,
                              double *microseconds, base_diag *diag) {
  (void)device, (void)stream, (void)diag;
  *microseconds = 1e6 * (base_seconds() - timer->start);
  return BASE_OK;
}

static void destroy_timer(rt_device *device, rt_timer *timer) {
  (void)device;
  free(timer);
}

// ---- the device ---------------------------------------------------------------------------------

static void destroy(rt_device *base) {
  if (base == NULL) return;
  emu_device *device = (emu_device *)base;
  emu_machines_destroy(device->idle);
  pthread_mutex_destroy(&device->lock);
  free(device->compiler);
  free(device->cache_directory);
  free(device->kept);
  free(device);
}

static const rt_device_ops ops = {
    .target = "cuda-emu",
    .host_memory = true,
    .checks_memory = true,
    .destroy = destroy,
    .load = load,
    .unload = unload,
    .find = find,
    .launch = emu_launch,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .fill = fill,
    .synchronize = synchronize,
    .timer_create = create_timer,
    .timer_start = start_timer,
    .timer_stop = stop_timer,
    .timer_destroy = destroy_timer,
    .matmul_create = emu_matmul_create,
    .matmul_workspace = emu_matmul_workspace,
    .matmul_run = emu_matmul_run,
    .matmul_destroy = emu_matmul_destroy,
};

const fm_calls emu_calls = {
    .self = emu_self,
    .warp = emu_warp_call,
    .access = emu_access,
    .shared_access = emu_shared_access,
    .copy_async = emu_copy_async,
    .copy_commit = emu_copy_commit,
    .copy_wait = emu_copy_wait,
    .ring_init = emu_ring_init,
    .ring_fence = emu_ring_fence,
    .ring_arrive = emu_ring_arrive,
    .ring_wait = emu_ring_wait,
    .bulk_copy = emu_bulk_copy,
    .cluster_address = emu_cluster_address,
};

static const char *given(const char *variable) {
  const char *value = getenv(variable);
  return value && value[0] ? value : NULL;
}

static bool __attribute__((format(printf, 4, 5))) fail(emu_reason *reason, base_status status,
                                                       const char *hint, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason->text, sizeof reason->text, format, arguments);
  va_end(arguments);
  reason->status = status;
  reason->hint = hint;
  return false;
}

// $FATHOM_EMU_SEED, or 1.
static bool seed_from_environment(uint64_t *seed, emu_reason *reason) {
  const char *text = given("FATHOM_EMU_SEED");
  *seed = 1;
  if (text == NULL) return true;
  char *end;
  errno = 0;
  *seed = strtoull(text, &end, 10);
  return (errno == 0 && *end == 0 && text[0] >= '0' && text[0] <= '9') ||
         fail(reason, BASE_INVALID, NULL, "FATHOM_EMU_SEED is '%.100s', expected a number", text);
}

// Where kept files go: $FATHOM_EMU_KEEP, or a new folder.
static bool make_kept(emu_device *device, emu_reason *reason) {
  const char *folder = given("FATHOM_EMU_KEEP");
  if (folder) {
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
      return fail(reason, BASE_IO, NULL, "FATHOM_EMU_KEEP: cannot create folder '%.1000s': %s",
                  folder, strerror(errno));
    device->kept = realpath(folder, NULL);
    return device->kept || fail(reason, BASE_IO, NULL, "FATHOM_EMU_KEEP: no folder '%.1000s': %s",
                                folder, strerror(errno));
  }
  const char *base = given("TMPDIR") ? given("TMPDIR") : "/tmp";
  if (asprintf(&device->kept, "%s/fathom-emu-kept-XXXXXX", base) < 0) {
    device->kept = NULL;
    return fail(reason, BASE_MEMORY, NULL, "the emulator is out of memory for a path");
  }
  return mkdtemp(device->kept) ||
         fail(reason, BASE_IO, NULL, "cannot make a folder in '%.1000s' to keep kernels in: %s",
              base, strerror(errno));
}

static bool set_up(emu_device *device, const emu_options *options, emu_reason *reason) {
  uint64_t seed = options->seed;
  if (seed == 0 && !seed_from_environment(&seed, reason)) return false;
  atomic_store(&device->seed, seed);
  if (options->sanitize && !emu_address_sanitizer())
    return fail(reason, BASE_UNSUPPORTED,
                "start the program with LD_PRELOAD=$(g++ -print-file-name=libasan.so)",
                "kernels cannot be sanitized: AddressSanitizer is not in this process");
  device->compiler = emu_find_compiler(options->compiler, reason);
  if (device->compiler == NULL) return false;
  if (options->cache_directory && options->cache_directory[0]) {
    device->cache_directory = strdup(options->cache_directory);
    if (device->cache_directory == NULL)
      return fail(reason, BASE_MEMORY, NULL, "the emulator is out of memory for a path");
  }
  return !device->keep || make_kept(device, reason);
}

base_status emu_device_create(const emu_options *options, rt_device **out, base_diag *diag) {
  *out = NULL;
  emu_device *device = calloc(1, sizeof *device);
  if (device == NULL) return out_of_memory(diag, "a device");
  pthread_mutex_init(&device->lock, NULL);
  device->base = (rt_device){.ops = &ops, .facts = options->facts};
  if (device->base.facts.name[0] == 0)
    snprintf(device->base.facts.name, sizeof device->base.facts.name, "emulated GPU");
  device->sanitize = options->sanitize;
  device->keep = options->keep || given("FATHOM_EMU_KEEP");
  emu_reason reason;
  if (!set_up(device, options, &reason)) {
    destroy(&device->base);
    return report(diag, &reason);
  }
  *out = &device->base;
  return BASE_OK;
}

void emu_device_set_seed(rt_device *device, uint64_t seed) {
  atomic_store(&((emu_device *)device)->seed, seed);
}

const char *emu_device_kept(const rt_device *device) {
  return ((const emu_device *)device)->kept;
}
