// driver_module: images to kernels that are ready to launch.
//
// All that the driver may do lazily (loading a function, raising its share of shared memory) is
// done here, so that a launch does nothing but launch.
#include "runtime/cuda/driver_api.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  LOG_CAPACITY = 2048,
  PADDING = 64,           // zeros behind an image: PTX is terminated, and a short one is no trap
  SHARED_AT_ONCE = 49152, // bytes a block gets without asking
};

struct rt_code {
  CUmodule module;
  const char *form;
  rt_function *functions; // newest first; guarded by the device's lock
};

// ---- damaged machine code -----------------------------------------------------------------------

static bool within(base_str image, uint64_t offset, uint64_t bytes) {
  return offset <= image.length && bytes <= image.length - offset;
}

// The driver is not told how long an image is: one that was cut off, it would read beyond its end.
// So: whether the parts of an ELF file lie within it. Anything else is the driver's to judge.
static bool is_whole(base_str image) {
  Elf64_Ehdr header;
  if (image.length < SELFMAG || memcmp(image.data, ELFMAG, SELFMAG) != 0) return true;
  if (image.length < sizeof header) return false;
  memcpy(&header, image.data, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
      !within(image, header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr)) ||
      !within(image, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr)))
    return false;
  for (uint32_t i = 0; i < header.e_shnum; i++) {
    Elf64_Shdr section;
    memcpy(&section, image.data + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && !within(image, section.sh_offset, section.sh_size))
      return false;
  }
  return true;
}

// ---- loading ------------------------------------------------------------------------------------

// One form of an image on its way into the driver.
typedef struct attempt {
  const char *form, *what; // "cubin", "machine code"
  base_str image;
  const char *obstacle; // what kept it from the driver, or NULL
  rt_cuda_failure failure;
  char log[LOG_CAPACITY];
} attempt;

static bool load_image(const rt_cuda_device *device, attempt *a, CUmodule *module) {
  if (!is_whole(a->image)) {
    a->obstacle = "is damaged: parts of it lie beyond its end";
    return false;
  }
  char *copy = calloc(1, a->image.length + PADDING);
  if (copy == NULL) {
    a->obstacle = "does not fit into the host's memory";
    a->failure = (rt_cuda_failure){CUDA_ERROR_OUT_OF_MEMORY, RT_CUDA_cuModuleLoadDataEx};
    return false;
  }
  memcpy(copy, a->image.data, a->image.length);
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {a->log, (void *)(uintptr_t)(LOG_CAPACITY - 1)};
  rt_cuda_scope scope;
  bool loaded = false;
  if (rt_cuda_enter_relaxed(device, &scope, &a->failure)) {
    loaded = RT_CUDA(&a->failure, cuModuleLoadDataEx, module, copy, 2, options, values);
    rt_cuda_leave(&scope);
  }
  free(copy);
  return loaded;
}

// "9.0" of ".version 9.0"; empty when there is none.
static base_str ptx_version(base_str ptx) {
  const char *directive = memmem(ptx.data, ptx.length, ".version", 8);
  if (directive == NULL) return (base_str){"", 0};
  const char *end = ptx.data + ptx.length, *start = directive + 8;
  while (start < end && *start == ' ')
    start++;
  size_t length = 0;
  while (start + length < end && length < 8 && strchr("0123456789.", start[length]))
    length++;
  return (base_str){start, length};
}

static void describe(base_text *out, const attempt *a) {
  if (a->obstacle) {
    base_text_printf(out, "the %s %s", a->what, a->obstacle);
    return;
  }
  const base_str text = rt_cuda_failure_text(out->arena, &a->failure);
  base_text_printf(out, "with the %s, %.*s", a->what, BASE_FMT(text));
  if (a->failure.result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    const base_str needed = ptx_version(a->image);
    const uint32_t version = rt_cuda_version();
    base_text_printf(out, " (it is PTX %.*s, the driver is of CUDA %u.%u)", BASE_FMT(needed),
                     version / 1000, version % 1000 / 10);
  }
  size_t length = strlen(a->log);
  while (length > 0 && a->log[length - 1] == '\n')
    length--;
  if (length) base_text_printf(out, ": %.*s", (int)length, a->log);
}

// Another form does not help against these.
static bool is_hopeless(const rt_cuda_failure *failure) {
  return rt_cuda_context_lost(failure) || rt_cuda_failure_status(failure) == BASE_MEMORY;
}

// One report about all forms that were tried. Whatever the driver has against an image itself, the
// caller can mend by compiling again: UNSUPPORTED.
static base_status report_load(const rt_cuda_device *device, const attempt *attempts,
                               uint32_t count, base_diag *diag) {
  const rt_device_facts *facts = &device->base.facts;
  base_text text = {.arena = diag->arena};
  base_text_printf(&text, "the kernels do not load on %s (sm_%u%u)", facts->name, facts->major,
                   facts->minor);
  for (uint32_t i = 0; i < count; i++) {
    base_text_printf(&text, "; ");
    describe(&text, &attempts[i]);
  }
  const rt_cuda_failure *last = &attempts[count - 1].failure;
  const bool of_image = last->result == CUDA_SUCCESS || last->entry == RT_CUDA_cuModuleLoadDataEx;
  const base_status status =
      of_image && !is_hopeless(last) ? BASE_UNSUPPORTED : rt_cuda_failure_status(last);
  base_str hint =
      base_str_format(diag->arena, "compile them again for sm_%u%u", facts->major, facts->minor);
  if (last->result != CUDA_SUCCESS) hint = rt_cuda_failure_hint(diag->arena, last);
  base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(base_text_str(&text)));
  base_hint(diag, "%.*s", BASE_FMT(hint));
  return status;
}

base_status rt_cuda_load(rt_device *device, const rt_image *image, rt_code **out, base_diag *diag) {
  const rt_cuda_device *self = (rt_cuda_device *)device;
  attempt attempts[] = {{.form = "cubin", .what = "machine code", .image = image->cubin},
                        {.form = "ptx", .what = "PTX", .image = image->ptx}};
  uint32_t tried = 0;
  *out = NULL;
  rt_code *code = calloc(1, sizeof *code);
  if (code == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory for loaded code");
    return BASE_MEMORY;
  }
  for (uint32_t i = 0; i < sizeof attempts / sizeof *attempts; i++) {
    if (attempts[i].image.length == 0) continue;
    if (tried > 0 && is_hopeless(&attempts[tried - 1].failure)) break;
    attempts[tried] = attempts[i];
    attempt *a = &attempts[tried++];
    if (!load_image(self, a, &code->module)) continue;
    code->form = a->form;
    *out = code;
    return BASE_OK;
  }
  free(code);
  if (tried > 0) return report_load(self, attempts, tried, diag);
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "the kernels have neither machine code nor PTX");
  base_hint(diag, "compile them for sm_%u%u", self->base.facts.major, self->base.facts.minor);
  return BASE_UNSUPPORTED;
}

const char *rt_cuda_code_form(const rt_code *code) {
  return code->form;
}

void rt_cuda_unload(rt_device *device, rt_code *code) {
  rt_cuda_scope scope;
  if (code == NULL) return;
  if (rt_cuda_enter_to_release((rt_cuda_device *)device, &scope)) {
    rt_cuda.cuModuleUnload(code->module);
    rt_cuda_leave(&scope);
  }
  while (code->functions) {
    rt_function *next = code->functions->next;
    free(code->functions);
    code->functions = next;
  }
  free(code);
}

// ---- kernels ------------------------------------------------------------------------------------

// The driver knows one limit for each kernel, however often it was found: the largest counts.
static bool raise_shared(const rt_code *code, const rt_function *function,
                         rt_cuda_failure *failure) {
  size_t bytes = function->shared_bytes;
  for (const rt_function *f = code->functions; f; f = f->next)
    if (f->handle == function->handle && f->shared_bytes > bytes) bytes = f->shared_bytes;
  return bytes <= SHARED_AT_ONCE ||
         RT_CUDA(failure, cuFuncSetAttribute, function->handle,
                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
}

// With the context current and the lock held.
static bool prepare(const rt_code *code, rt_function *function, uint32_t threads, int *blocks,
                    rt_cuda_failure *failure) {
  int most = 0;
  if (!RT_CUDA(failure, cuModuleGetFunction, &function->handle, code->module, function->name) ||
      !RT_CUDA(failure, cuFuncGetAttribute, &most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
               function->handle))
    return false;
  function->threads = (uint32_t)most;
  size_t offset = 0, bytes = 0;
  if (rt_cuda.cuFuncGetParamInfo &&
      rt_cuda.cuFuncGetParamInfo(function->handle, 0, &offset, &bytes) == CUDA_SUCCESS)
    function->parameter_bytes = bytes;
  return raise_shared(code, function, failure) &&
         (threads > function->threads ||
          RT_CUDA(failure, cuOccupancyMaxActiveBlocksPerMultiprocessor, blocks, function->handle,
                  (int)threads, function->shared_bytes));
}

// `most`: threads a block of it may have.
static base_status refuse(base_diag *diag, const char *name, uint32_t most, uint32_t threads,
                          size_t shared_bytes) {
  if (threads > most)
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "kernel '%s' runs with at most %u threads a block here, not %u", name, most,
                      threads);
  else
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "not one block of kernel '%s', with %u threads and %zu bytes of shared "
                      "memory, fits on a multiprocessor",
                      name, threads, shared_bytes);
  base_hint(diag, "choose a schedule with fewer threads, or less shared memory");
  return BASE_UNSUPPORTED;
}

// `function` has its name and its share of shared memory, and becomes the code's on success.
static bool find(rt_cuda_device *device, rt_code *code, uint32_t threads, rt_function *function,
                 int *blocks, rt_cuda_failure *failure) {
  bool found = false;
  rt_cuda_scope scope;
  if (!rt_cuda_enter_relaxed(device, &scope, failure)) return false;
  pthread_mutex_lock(&device->lock);
  if (prepare(code, function, threads, blocks, failure) && *blocks > 0) {
    function->next = code->functions;
    code->functions = function;
    found = true;
  }
  pthread_mutex_unlock(&device->lock);
  rt_cuda_leave(&scope);
  return found;
}

base_status rt_cuda_find(rt_device *device, rt_code *code, const char *name, uint32_t threads,
                         size_t shared_bytes, rt_function **out,
                         uint32_t *blocks_per_multiprocessor, base_diag *diag) {
  const rt_device_facts *facts = &device->facts;
  *out = NULL;
  if (shared_bytes > facts->shared_per_block) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "kernel '%s' needs %zu bytes of shared memory a block, %s has %zu", name,
                      shared_bytes, facts->name, facts->shared_per_block);
    base_hint(diag, "choose a schedule with fewer stages, or smaller tiles");
    return BASE_UNSUPPORTED;
  }
  const size_t name_bytes = strlen(name) + 1;
  rt_function *function = calloc(1, sizeof *function + name_bytes);
  if (function == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory for kernel '%s'", name);
    return BASE_MEMORY;
  }
  memcpy(function->name, name, name_bytes);
  function->shared_bytes = shared_bytes;

  int blocks = 0;
  rt_cuda_failure failure = {0};
  if (find((rt_cuda_device *)device, code, threads, function, &blocks, &failure)) {
    if (blocks_per_multiprocessor) *blocks_per_multiprocessor = (uint32_t)blocks;
    *out = function;
    return BASE_OK;
  }
  const uint32_t most = function->threads;
  free(function); // before a report, which may jump
  if (failure.result == CUDA_SUCCESS) return refuse(diag, name, most, threads, shared_bytes);
  char detail[256];
  snprintf(detail, sizeof detail, "; the kernel is '%s'", name);
  return rt_cuda_report(diag, &failure, detail);
}
