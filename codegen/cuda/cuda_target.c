// The cuda target: its table, and the way from a fused graph to images that a device loads. For the
// emulator the image is the text itself, which it compiles with the host's compiler.
#include <string.h>

#include "codegen/artefact.h"
#include "codegen/cuda/cuda.h"

// ---- NVRTC --------------------------------------------------------------------------------------

static uint32_t form_total(const cuda_plan *plan) {
  uint32_t total = 0;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    total += plan->kernels[i].form_count;
  return total;
}

static const cuda_nvrtc *open_nvrtc(base_arena *arena, base_diag *diag) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(arena, &why);
  if (!nvrtc) base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "%.*s", BASE_FMT(why));
  return nvrtc;
}

// One binary for each form of each kernel, in order. NULL: see diag.
static cuda_binary *compile_forms(base_arena *arena, const cuda_plan *plan,
                                  const cg_options *options, base_diag *diag) {
  const cuda_nvrtc *nvrtc = open_nvrtc(arena, diag);
  if (!nvrtc) return NULL;
  uint32_t count = form_total(plan), next = 0;
  cuda_unit *units = base_new_array(arena, cuda_unit, count + 1);
  cuda_binary *binaries = base_new_array(arena, cuda_binary, count + 1);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count; j++)
      units[next++] = (cuda_unit){
          base_str_format(arena, "%s.cu", plan->kernels[i].names[j]).data,
          cuda_form_text(arena, plan, i, j, true),
      };
  cuda_compile_options compile = {.arch = plan->arch.name,
                                  .cache_directory = options->cache_directory,
                                  .expect_cached = options->expect_cached};
  return cuda_compile(arena, nvrtc, &compile, units, count, binaries, diag) ? binaries : NULL;
}

// ---- compiling ----------------------------------------------------------------------------------

static void take_binary(base_arena *arena, const cuda_binary *binary, rt_image *image) {
  image->cubin = base_str_copy(arena, binary->cubin);
  image->ptx = base_str_copy(arena, binary->ptx);
}

static bool fill_images(base_arena *arena, const cuda_plan *plan, const cg_options *options,
                        cg_owned *artefact, base_diag *diag) {
  rt_device_kernel *kernels = (rt_device_kernel *)artefact->base.device->kernels;
  const cuda_binary *binaries = options->emulate ? NULL : compile_forms(arena, plan, options, diag);
  if (!options->emulate && !binaries) return false;
  uint32_t next = 0;
  artefact->base.from_cache = !options->emulate;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < kernels[i].form_count; j++) {
      rt_image *image = &kernels[i].image[j];
      if (options->emulate) {
        image->text = base_str_copy(&artefact->arena, cuda_form_text(arena, plan, i, j, false));
        continue;
      }
      artefact->base.from_cache &= binaries[next].from_cache;
      take_binary(&artefact->arena, &binaries[next++], image);
    }
  return true;
}

static cg_artefact *compile(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag) {
  cuda_plan *plan = cuda_plan_create(arena, graph, options, diag);
  if (!plan) return NULL;
  const kir_kernel *first = plan->kernel_count ? plan->kernels[0].forms[0] : NULL;
  cg_owned *artefact = cg_artefact_begin(arena, first, plan->schedule_source, diag);
  if (!artefact) return NULL;
  artefact->base.device = cuda_program_create(&artefact->arena, plan);
  artefact->base.program = artefact->base.device->program;
  return fill_images(arena, plan, options, artefact, diag) ? cg_artefact_finish(artefact) : NULL;
}

// ---- emitting -----------------------------------------------------------------------------------

// The whole file as one unit.
static bool emit_binary(base_arena *arena, const cuda_plan *plan, const cg_options *options,
                        bool ptx, base_str *out, base_diag *diag) {
  const cuda_nvrtc *nvrtc = open_nvrtc(arena, diag);
  if (!nvrtc) return false;
  cuda_unit unit = {base_str_format(arena, "%.*s.cu", BASE_FMT(plan->graph->name)).data,
                    cuda_file_text(arena, plan)};
  cuda_compile_options compile = {.arch = plan->arch.name,
                                  .cache_directory = options->cache_directory,
                                  .expect_cached = options->expect_cached};
  cuda_binary binary;
  if (!cuda_compile(arena, nvrtc, &compile, &unit, 1, &binary, diag)) return false;
  *out = ptx ? binary.ptx : binary.cubin;
  return true;
}

// Without NVRTC the report lacks what only the compiler knows, and says so.
static base_str report(base_arena *arena, const cuda_plan *plan, const cg_options *options) {
  base_diag failed;
  base_diag_init(&failed, arena, BASE_STR(""), BASE_STR(""));
  const cuda_binary *binaries = compile_forms(arena, plan, options, &failed);
  const base_report *first = failed.reports.data;
  return cuda_report(arena, plan, binaries,
                     failed.reports.count ? base_str_copy(arena, first->message).data : NULL);
}

static bool emit(base_arena *arena, const ir_graph *graph, const cg_options *options,
                 const char *what, base_str *out, base_diag *diag) {
  static const char *const kinds[] = {"kernel", "cuda", "ptx", "cubin", "report", "schedules"};
  bool known = false;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    known |= strcmp(what, kinds[i]) == 0;
  if (!known) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "the cuda target does not emit '%s'",
                      what);
    base_hint(diag, "it emits graph, kernel, cuda, ptx, cubin and report");
    return false;
  }
  cuda_plan *plan = cuda_plan_create(arena, graph, options, diag);
  if (!plan) return false;
  bool schedules = strcmp(what, "schedules") == 0;
  if (schedules || strcmp(what, "kernel") == 0) {
    base_text text = {.arena = arena};
    for (uint32_t i = 0; i < plan->kernel_count; i++)
      (schedules ? kir_print_choice : kir_print)(plan->kernels[i].forms[0], &text);
    *out = base_text_str(&text);
  } else if (strcmp(what, "cuda") == 0) {
    *out = cuda_file_text(arena, plan);
  } else if (strcmp(what, "report") == 0) {
    *out = report(arena, plan, options);
  } else {
    return emit_binary(arena, plan, options, strcmp(what, "ptx") == 0, out, diag);
  }
  return true;
}

static void describe(base_text *out) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(out->arena, &why);
  if (nvrtc)
    base_text_printf(out, "nvrtc: %u.%u, %s, for %.*s\n", nvrtc->major, nvrtc->minor, nvrtc->path,
                     BASE_FMT(cuda_nvrtc_archs(out->arena, nvrtc)));
}

static bool identify(base_arena *arena, cg_identity *out) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(arena, &why);
  if (!nvrtc) return false;
  *out = (cg_identity){.machine = "",
                       .compiler =
                           base_str_format(arena, "NVRTC %u.%u", nvrtc->major, nvrtc->minor).data};
  return true;
}

static const cg_target cuda_target = {.name = "cuda",
                                      .abi = CG_ABI,
                                      .compile = compile,
                                      .emit = emit,
                                      .describe = describe,
                                      .identify = identify};

const cg_target *cg_cuda_target(void) {
  return &cuda_target;
}
