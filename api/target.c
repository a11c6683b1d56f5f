// target: what may stand behind --target and in fathom_compile_options. The only place that takes
// such a text apart.
#include <assert.h>
#include <string.h>

#include "api/api.h"
#include "codegen/cuda/arch.h"
#include "passes/passes.h"

static_assert(sizeof((cuda_arch){0}.name) == API_ARCH_ROOM, "an architecture's name does not fit");

static const base_loc nowhere;

const api_target api_targets[API_KINDS] = {
    [API_CPU] = {.name = "cpu", .compiles = true, .pipeline = pass_cpu_pipeline},
    [API_INTERP] = {.name = "interp"},
    [API_CUDA] = {.name = "cuda", .compiles = true, .gpu = true, .pipeline = pass_cuda_pipeline},
    [API_EMULATOR] = {.name = "cuda-emu",
                      .compiles = true,
                      .gpu = true,
                      .pipeline = pass_cuda_pipeline},
};

static bool refuse(base_diag *diag, base_str name) {
  const char *names[API_KINDS];
  base_text list = {.arena = diag->arena};
  for (uint32_t i = 0; i < API_KINDS; i++) {
    names[i] = api_targets[i].name;
    base_text_printf(&list, "%s%s%s", i == 0 ? "" : ", ", names[i],
                     api_targets[i].gpu ? "[:ARCH]" : "");
  }
  base_error(diag, nowhere, "unknown target '%.*s': expected one of %s", BASE_FMT(name), list.data);
  const char *near = base_nearest(name, names, API_KINDS);
  if (near != NULL) base_hint(diag, "did you mean %s?", near);
  return false;
}

bool api_target_parse(base_diag *diag, const char *text, api_kind *kind, char arch[API_ARCH_ROOM]) {
  base_str name = {text, strcspn(text, ":")};
  const char *suffix = text[name.length] != 0 ? text + name.length + 1 : NULL;
  uint32_t found = 0;
  while (found < API_KINDS && !base_str_equal(name, base_str_from(api_targets[found].name)))
    found++;
  arch[0] = 0;
  if (found == API_KINDS) return refuse(diag, name);
  *kind = (api_kind)found;
  if (suffix == NULL) return true;
  if (!api_targets[found].gpu) {
    base_error(diag, nowhere, "the %s target has no architectures, found '%s'",
               api_targets[found].name, text);
    base_hint(diag, "%s",
              found == API_CPU ? "name a CPU with --mcpu (cpu in the compile options)"
                               : "write interp alone");
    return false;
  }
  cuda_arch known;
  if (!cuda_arch_find(suffix, &known)) {
    base_error(diag, nowhere, "target '%s': unknown GPU architecture '%s'", text, suffix);
    base_hint(diag, "expected one of %.*s", BASE_FMT(cuda_arch_list(diag->arena)));
    return false;
  }
  memcpy(arch, known.name, sizeof known.name);
  return true;
}
