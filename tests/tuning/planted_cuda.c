// The cuda target of the test's worker: in one candidate (planted.h) it takes out the barrier in front of
// sums that other warps wrote. Such a kernel is faster, and right more often than not.
#include <stdlib.h>
#include <string.h>

#include "codegen/target.h"
#include "tuning/planted.h"

const cg_target *__real_cg_cuda_target(void);
const cg_target *__wrap_cg_cuda_target(void);

static const char barrier[] = "    fm_barrier(barrier, 32 * WARPS);\n#pragma";

// The text without it, for as long as the process lives.
static base_str without_barrier(base_str text) {
  const char *at = memmem(text.data, text.length, barrier, strlen(barrier));
  if (!at) abort();
  size_t before = (size_t)(at - text.data), cut = strlen(barrier) - strlen("#pragma");
  char *shorter = malloc(text.length - cut + 1);
  if (!shorter) abort();
  memcpy(shorter, text.data, before);
  memcpy(shorter + before, at + cut, text.length - before - cut);
  shorter[text.length - cut] = 0;
  return (base_str){shorter, text.length - cut};
}

static cg_artefact *compile(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag) {
  cg_artefact *artefact = __real_cg_cuda_target()->compile(arena, graph, options, diag);
  const char *knob = strstr(options->schedule, "working=");
  if (!artefact || !knob || atoi(knob + strlen("working=")) != PLANTED_RACE) return artefact;
  rt_device_kernel *kernel = (rt_device_kernel *)artefact->device->kernels;
  for (uint32_t i = 0; i < kernel->form_count; i++)
    kernel->image[i].text = without_barrier(kernel->image[i].text);
  return artefact;
}

const cg_target *__wrap_cg_cuda_target(void) {
  static cg_target target;
  target = *__real_cg_cuda_target();
  target.compile = compile;
  return &target;
}
