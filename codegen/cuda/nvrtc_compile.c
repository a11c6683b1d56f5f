// nvrtc_compile: one unit through NVRTC, and what its log says.
//
// The log holds the front end's errors (NAME(LINE): error: ...), those of the assembler, and, since
// the assembler is asked to be verbose, what each kernel takes:
//
//   ptxas info    : Compiling entry function 'k3_site' for 'sm_90a'
//   ptxas info    : Function properties for k3_site
//   ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 128 registers, used 2 barriers
//
// Spills are in no other place, nor barriers before CUDA 13; the rest is read from the cubin.
#include "codegen/cuda/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda/arch.h"

enum { // of nvrtcResult
  NVRTC_OUT_OF_MEMORY = 1,
  NVRTC_INVALID_OPTION = 5,
  NVRTC_COMPILATION = 6,
  NVRTC_BUILTINS = 7,
};

enum { MOST_ERRORS = 8 }; // of a unit that are shown

const char *const cuda_nvrtc_options[CUDA_NVRTC_OPTIONS] = {"--std=c++17", "--ptxas-options=-v"};

// ---- lines of a log -----------------------------------------------------------------------------

// Takes the first line off *rest; false when nothing is left.
static bool next_line(base_str *rest, base_str *line) {
  if (rest->length == 0) return false;
  const char *end = memchr(rest->data, '\n', rest->length);
  const size_t length = end ? (size_t)(end - rest->data) : rest->length;
  *line = (base_str){rest->data, length};
  const size_t taken = length + (end ? 1 : 0);
  *rest = (base_str){rest->data + taken, rest->length - taken};
  return true;
}

// What follows `word` in the line; false when it is not there.
static bool after(base_str line, const char *word, base_str *rest) {
  const char *at = memmem(line.data, line.length, word, strlen(word));
  if (at == NULL) return false;
  at += strlen(word);
  *rest = (base_str){at, line.length - (size_t)(at - line.data)};
  return true;
}

// The number that stands before `word`, or 0.
static uint32_t number_before(base_str line, const char *word) {
  const char *at = memmem(line.data, line.length, word, strlen(word));
  uint64_t value = 0;
  for (uint64_t scale = 1; at && at > line.data && at[-1] >= '0' && at[-1] <= '9'; at--) {
    value += scale * (uint64_t)(at[-1] - '0');
    if ((scale *= 10) > UINT32_MAX) break;
  }
  return (uint32_t)value;
}

// ---- resources ----------------------------------------------------------------------------------

static cuda_kernel_resources *find_kernel(cuda_binary *binary, base_str name) {
  for (uint32_t i = 0; i < binary->kernel_count; i++)
    if (base_str_equal(binary->kernels[i].name, name)) return &binary->kernels[i];
  return NULL;
}

static void read_log(cuda_binary *binary) {
  base_str log = binary->log, line, rest;
  cuda_kernel_resources *kernel = NULL;
  while (next_line(&log, &line)) {
    if (after(line, "Compiling entry function '", &rest)) {
      const char *quote = memchr(rest.data, '\'', rest.length);
      const size_t length = quote ? (size_t)(quote - rest.data) : 0;
      kernel = find_kernel(binary, (base_str){rest.data, length});
    } else if (kernel) { // also of the functions it calls
      kernel->spill_store_bytes += number_before(line, " bytes spill stores");
      kernel->spill_load_bytes += number_before(line, " bytes spill loads");
      if (kernel->barriers == 0) kernel->barriers = number_before(line, " barriers");
    }
  }
}

bool cuda_read_resources(base_arena *arena, cuda_binary *binary, base_str *why) {
  cuda_cubin cubin;
  if (!cuda_cubin_read(arena, binary->cubin, &cubin, why)) return false;
  binary->kernels = cubin.kernels;
  binary->kernel_count = cubin.kernel_count;
  read_log(binary);
  return true;
}

// ---- errors -------------------------------------------------------------------------------------

bool cuda_check_arch(const cuda_nvrtc *nvrtc, const char *arch, base_diag *diag) {
  cuda_arch found;
  if (!cuda_arch_find(arch, &found)) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "there is no GPU architecture '%s'",
                      arch);
    base_hint(diag, "these are known: %.*s", BASE_FMT(cuda_arch_list(diag->arena)));
    return false;
  }
  const int wanted = (int)found.capability;
  int nearest = 0;
  for (uint32_t i = 0; i < nvrtc->arch_count; i++) {
    const int listed = nvrtc->archs[i];
    if (listed == wanted) return true;
    if (nearest == 0 || abs(listed - wanted) < abs(nearest - wanted)) nearest = listed;
  }
  if (nvrtc->arch_count == 0) return true; // it does not say: compiling will tell
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "NVRTC %u.%u does not compile for the architecture %s", nvrtc->major,
                    nvrtc->minor, found.name);
  base_hint(diag, "it compiles for %.*s; the nearest is sm_%d",
            BASE_FMT(cuda_nvrtc_archs(diag->arena, nvrtc)), nearest);
  return false;
}

// The place that "NAME(LINE): error: ..." names, with the column of the caret two lines below.
static base_loc place_of(const cuda_unit *unit, base_str line, base_str rest) {
  const size_t name = strlen(unit->name);
  if (line.length < name + 2 || memcmp(line.data, unit->name, name) != 0 || line.data[name] != '(')
    return (base_loc){0};
  base_loc loc = {.line = number_before(line, "): "), .column = 1, .length = 1};
  base_str caret;
  const char *mark;
  if (next_line(&rest, &caret) && next_line(&rest, &caret) &&
      (mark = memchr(caret.data, '^', caret.length)) && mark - caret.data >= 2)
    loc.column = (uint32_t)(mark - caret.data) - 1; // the log indents by two
  return loc;
}

// The errors in a log, each with the line of the unit that it is about.
static base_str quote_errors(base_arena *arena, const cuda_unit *unit, base_str log) {
  base_diag quoted;
  base_diag_init(&quoted, arena, base_str_from(unit->name), unit->text);
  base_str rest = log, line, message;
  while (next_line(&rest, &line)) {
    const base_loc loc = place_of(unit, line, rest);
    if (loc.line) {
      if (!after(line, "error: ", &message)) continue;
    } else if (memmem(line.data, line.length, "ptxas", 5) == line.data &&
               (after(line, "error", &message) || after(line, "fatal", &message))) {
      message = line;
    } else {
      continue;
    }
    if (quoted.error_count < MOST_ERRORS) base_error(&quoted, loc, "%.*s", BASE_FMT(message));
  }
  base_str text = quoted.error_count ? base_diag_render(&quoted) : log;
  while (text.length && text.data[text.length - 1] == '\n')
    text.length--;
  return text;
}

static void report(const cuda_nvrtc *nvrtc, const cuda_unit *unit, const char *arch, int result,
                   base_str log, base_diag *diag) {
  const base_loc none = {0};
  const base_str quoted = quote_errors(diag->arena, unit, log);
  switch (result) {
  case NVRTC_COMPILATION:
    base_error_status(diag, BASE_INTERNAL, none, "NVRTC %u.%u does not compile %s for %s:\n%.*s",
                      nvrtc->major, nvrtc->minor, unit->name, arch, BASE_FMT(quoted));
    base_hint(diag, "the text is Fathom's own (--emit cuda shows it): please report this");
    break;
  case NVRTC_BUILTINS:
    base_error_status(diag, BASE_UNSUPPORTED, none,
                      "NVRTC %u.%u (%s) lacks its file of built-in functions: %.*s", nvrtc->major,
                      nvrtc->minor, nvrtc->path, BASE_FMT(quoted));
    base_hint(diag, "put libnvrtc-builtins.so.%u.%u beside it: the package of NVRTC has both",
              nvrtc->major, nvrtc->minor);
    break;
  case NVRTC_OUT_OF_MEMORY:
    base_error_status(diag, BASE_MEMORY, none, "NVRTC ran out of memory on %s", unit->name);
    break;
  case NVRTC_INVALID_OPTION:
    base_error_status(diag, BASE_UNSUPPORTED, none, "NVRTC %u.%u cannot compile for %s: %.*s",
                      nvrtc->major, nvrtc->minor, arch, BASE_FMT(quoted));
    break;
  default:
    base_error_status(diag, BASE_INTERNAL, none, "NVRTC %u.%u failed on %s: %s: %.*s", nvrtc->major,
                      nvrtc->minor, unit->name, nvrtc->api.nvrtcGetErrorString(result),
                      BASE_FMT(quoted));
  }
}

// ---- compiling ----------------------------------------------------------------------------------

typedef struct program {
  const cuda_nvrtc_api *api;
  void *handle; // NULL: none
} program;

static void destroy_program(void *object) {
  program *p = object;
  if (p->handle) p->api->nvrtcDestroyProgram(&p->handle);
  p->handle = NULL;
}

// One of the program's texts. Empty where there is none.
static base_str fetch(base_arena *arena, const program *p, int (*measure)(void *, size_t *),
                      int (*get)(void *, char *)) {
  size_t size = 0;
  if (measure(p->handle, &size) != 0 || size == 0) return BASE_STR("");
  char *data = base_alloc(arena, size + 1);
  return get(p->handle, data) == 0 ? (base_str){data, size} : BASE_STR("");
}

// The same without the terminating 0 that NVRTC counts.
static base_str fetch_text(base_arena *arena, const program *p, int (*measure)(void *, size_t *),
                           int (*get)(void *, char *)) {
  base_str text = fetch(arena, p, measure, get);
  if (text.length && text.data[text.length - 1] == 0) text.length--;
  return text;
}

static int run(base_arena *arena, program *p, const char *arch, const cuda_unit *unit,
               cuda_binary *out) {
  const cuda_nvrtc_api *api = p->api;
  const char *options[CUDA_NVRTC_OPTIONS + 1];
  memcpy(options, cuda_nvrtc_options, sizeof cuda_nvrtc_options);
  options[CUDA_NVRTC_OPTIONS] = base_str_format(arena, "-arch=%s", arch).data;
  int result = api->nvrtcCreateProgram(&p->handle, unit->text.data, unit->name, 0, NULL, NULL);
  if (result != 0) return result;
  result = api->nvrtcCompileProgram(p->handle, CUDA_NVRTC_OPTIONS + 1, options);
  out->log = fetch_text(arena, p, api->nvrtcGetProgramLogSize, api->nvrtcGetProgramLog);
  if (result != 0) return result;
  out->cubin = fetch(arena, p, api->nvrtcGetCUBINSize, api->nvrtcGetCUBIN);
  out->ptx = fetch_text(arena, p, api->nvrtcGetPTXSize, api->nvrtcGetPTX);
  return 0;
}

bool cuda_compile_unit(base_arena *arena, const cuda_nvrtc *nvrtc, const char *arch,
                       const cuda_unit *unit, cuda_binary *out, base_diag *diag) {
  program *p = base_new(arena, program);
  p->api = &nvrtc->api;
  base_defer(arena, destroy_program, p);
  *out = (cuda_binary){.from_cache = false};
  const int result = run(arena, p, arch, unit, out);
  destroy_program(p);
  base_str why;
  if (result != 0) {
    report(nvrtc, unit, arch, result, out->log, diag);
  } else if (!cuda_read_resources(arena, out, &why)) {
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "NVRTC's output for %s: %.*s", unit->name,
                      BASE_FMT(why));
  } else {
    return true;
  }
  return false;
}
