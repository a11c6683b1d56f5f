// libnvrtc_double: NVRTC without a compiler. See double.h.
//
// Its cubins are sound, name the kernels of the text and their bounds, and hold the text itself
// from the end of the prelude for devices on, for the emulator. It does not look at C++: a line
// that begins with #error is all that it refuses.
//
// DOUBLE_NVRTC_FAIL=nvrtcCompileProgram:7 makes that entry point return that error.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "double/cubin_writer.h"
#include "double/double.h"

#define EXPORT __attribute__((visibility("default")))

#define ENTRY(result, name, arguments) EXPORT result name arguments;
#include "codegen/cuda/nvrtc.def"
#undef ENTRY

enum {
  NVRTC_SUCCESS = 0,
  NVRTC_INVALID_INPUT = 3,
  NVRTC_INVALID_PROGRAM = 4,
  NVRTC_INVALID_OPTION = 5,
  NVRTC_COMPILATION = 6,
  REGISTERS = 64, // as good a number as any
};

typedef struct program {
  base_arena arena;
  const char *text, *name;
  base_text log;
  base_str cubin, ptx;
} program;

static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

static int injected(const char *entry) {
  const char *given = getenv("DOUBLE_NVRTC_FAIL");
  const size_t length = strlen(entry);
  if (given == NULL || strncmp(given, entry, length) != 0 || given[length] != ':') return 0;
  return (int)strtol(given + length + 1, NULL, 10);
}

#define BEGIN(name)                                                                                \
  const int refused = injected(#name);                                                             \
  if (refused) return refused

// ---- about itself -------------------------------------------------------------------------------

int nvrtcVersion(int *major, int *minor) {
  BEGIN(nvrtcVersion);
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}

int nvrtcGetNumSupportedArchs(int *count) {
  BEGIN(nvrtcGetNumSupportedArchs);
  *count = sizeof archs / sizeof *archs;
  return NVRTC_SUCCESS;
}

int nvrtcGetSupportedArchs(int *out) {
  BEGIN(nvrtcGetSupportedArchs);
  memcpy(out, archs, sizeof archs);
  return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(int result) {
  return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "an error of the double";
}

// ---- programs -----------------------------------------------------------------------------------

int nvrtcCreateProgram(void **out, const char *text, const char *name, int header_count,
                       const char *const *headers, const char *const *header_names) {
  BEGIN(nvrtcCreateProgram);
  if (text == NULL || header_count != 0 || headers || header_names) return NVRTC_INVALID_INPUT;
  program *p = calloc(1, sizeof *p);
  base_arena_init(&p->arena, NULL);
  p->text = base_str_copy(&p->arena, base_str_from(text)).data;
  p->name = base_str_copy(&p->arena, base_str_from(name ? name : "default_program")).data;
  p->log.arena = &p->arena;
  *out = p;
  return NVRTC_SUCCESS;
}

int nvrtcDestroyProgram(void **out) {
  if (out == NULL || *out == NULL) return NVRTC_INVALID_PROGRAM;
  program *p = *out;
  base_arena_reset(&p->arena);
  free(p);
  *out = NULL;
  return NVRTC_SUCCESS;
}

// ---- compiling ----------------------------------------------------------------------------------

// 90 of -arch=sm_90a; 0 when there is none that is supported.
static int find_arch(int count, const char *const *options) {
  for (int i = 0; i < count; i++) {
    int arch;
    if (sscanf(options[i], "-arch=sm_%d", &arch) != 1 &&
        sscanf(options[i], "--gpu-architecture=sm_%d", &arch) != 1)
      continue;
    for (size_t k = 0; k < sizeof archs / sizeof *archs; k++)
      if (archs[k] == arch) return arch;
  }
  return 0;
}

static bool refuse_errors(program *p) {
  int number = 1;
  bool refused = false;
  for (const char *line = p->text; line; number++) {
    const size_t length = strcspn(line, "\n");
    if (strncmp(line, "#error", 6) == 0) {
      base_text_printf(&p->log, "%s(%d): error: %.*s\n", p->name, number, (int)length, line);
      refused = true;
    }
    line = line[length] ? line + length + 1 : NULL;
  }
  return refused;
}

// The bounds of a kernel: of the last __launch_bounds__ before its name.
static uint32_t find_bounds(const char *text, base_str name) {
  uint32_t bounds = 0;
  for (const char *at = text; (at = strstr(at, "__global__"));) {
    const char *open = strchr(at, '('), *bound = strstr(at, "__launch_bounds__(");
    unsigned threads = 0;
    if (open && bound && open == bound + 17) {
      threads = (unsigned)strtoul(open + 1, NULL, 10);
      open = strchr(strchr(open, ')'), '(');
    }
    if (open == NULL) break;
    if ((size_t)(open - text) > name.length &&
        memcmp(open - name.length, name.data, name.length) == 0)
      bounds = threads;
    at = open;
  }
  return bounds;
}

static void make_images(program *p, int arch) {
  const char *end = strstr(p->text, DOUBLE_PRELUDE_END);
  const char *text = end ? end : p->text;
  BASE_VECTOR(cubin_kernel) kernels = {0};
  for (const char *at = text; (at = strstr(at, "\nFM_ENTRY(")); at++) {
    const char *name = at + strlen("\nFM_ENTRY(");
    const base_str kernel = {name, strcspn(name, ", )")};
    base_push(&p->arena, &kernels, (cubin_kernel){kernel, REGISTERS, find_bounds(text, kernel)});
    base_text_printf(&p->log,
                     "ptxas info    : Compiling entry function '%.*s' for 'sm_%d'\n"
                     "ptxas info    : Function properties for %.*s\n"
                     "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill "
                     "loads\n"
                     "ptxas info    : Used %d registers\n",
                     BASE_FMT(kernel), arch, BASE_FMT(kernel), REGISTERS);
  }
  p->cubin = cubin_write(&p->arena, arch, kernels.data, kernels.count, base_str_from(text));
  p->ptx = base_str_format(&p->arena, DOUBLE_TEXT_MAGIC "%s", text);
}

int nvrtcCompileProgram(void *handle, int count, const char *const *options) {
  program *p = handle;
  BEGIN(nvrtcCompileProgram);
  const int arch = find_arch(count, options);
  if (arch == 0) {
    base_text_printf(&p->log, "nvrtc: error: invalid value for --gpu-architecture (-arch)\n");
    return NVRTC_INVALID_OPTION;
  }
  if (refuse_errors(p)) return NVRTC_COMPILATION;
  make_images(p, arch);
  return NVRTC_SUCCESS;
}

// ---- results ------------------------------------------------------------------------------------

static base_str log_of(const program *p) {
  return p->log.data ? base_text_str(&p->log) : BASE_STR("");
}

int nvrtcGetProgramLogSize(void *handle, size_t *size) {
  BEGIN(nvrtcGetProgramLogSize);
  *size = log_of(handle).length + 1;
  return NVRTC_SUCCESS;
}

int nvrtcGetProgramLog(void *handle, char *log) {
  BEGIN(nvrtcGetProgramLog);
  const base_str text = log_of(handle);
  memcpy(log, text.data, text.length);
  log[text.length] = 0;
  return NVRTC_SUCCESS;
}

int nvrtcGetCUBINSize(void *handle, size_t *size) {
  BEGIN(nvrtcGetCUBINSize);
  *size = ((program *)handle)->cubin.length;
  return NVRTC_SUCCESS;
}

int nvrtcGetCUBIN(void *handle, char *cubin) {
  BEGIN(nvrtcGetCUBIN);
  const program *p = handle;
  memcpy(cubin, p->cubin.data, p->cubin.length);
  return NVRTC_SUCCESS;
}

int nvrtcGetPTXSize(void *handle, size_t *size) {
  BEGIN(nvrtcGetPTXSize);
  *size = ((program *)handle)->ptx.length + 1;
  return NVRTC_SUCCESS;
}

int nvrtcGetPTX(void *handle, char *ptx) {
  BEGIN(nvrtcGetPTX);
  const program *p = handle;
  memcpy(ptx, p->ptx.data, p->ptx.length);
  ptx[p->ptx.length] = 0;
  return NVRTC_SUCCESS;
}
