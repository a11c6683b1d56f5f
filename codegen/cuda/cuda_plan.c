// From a fused graph to kernels lowered for a GPU, their texts, and the launcher's view of them.
#include "codegen/cuda/cuda.h"

#include <string.h>

#include "codegen/cuda/text.h"
#include "codegen/program.h"
#include "passes/passes.h"

// The preludes, carried in the library (CMakeLists.txt, fathom_embed).
extern const char cuda_prelude_device[], cuda_prelude_common[], cuda_prelude_rows[],
    cuda_prelude_logits[];

// ---- lowering -----------------------------------------------------------------------------------

// A C name from the graph's, and the number of the kernel where there are several.
static const char *function_name(base_arena *arena, const ir_graph *graph, uint32_t kernel,
                                 const char *suffix) {
  const char *name = text_function_name(arena, graph->name);
  if (kernel == 0) return base_str_format(arena, "%s%s", name, suffix).data;
  return base_str_format(arena, "%s_%u%s", name, kernel, suffix).data;
}

static bool fits_shared(const cuda_plan *plan, const kir_kernel *kernel, base_diag *diag) {
  size_t bytes = text_shared_bytes(kernel);
  if (bytes <= plan->arch.shared_per_block) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "kernel @%.*s needs %zu bytes of shared memory for a block, but a block of %s "
                    "has at most %zu",
                    BASE_FMT(kernel->name), bytes, plan->arch.name, plan->arch.shared_per_block);
  base_hint(diag, "use a schedule with fewer teams or stages, or residency=0 or 1");
  return false;
}

enum { MOST_PARAMETERS = 32764 }; // bytes, since CUDA 12.1

static bool fits_parameters(const kir_kernel *kernel, base_diag *diag) {
  uint32_t count = kernel->args.count;
  size_t fields =
      kir_first_pointer(kernel, count) + kir_first_stride(kernel, count) + kernel->row_count + 1;
  if (fields * sizeof(int64_t) <= MOST_PARAMETERS) return true;
  base_error_status(
      diag, BASE_UNSUPPORTED, (base_loc){0},
      "kernel @%.*s takes %zu pointers, strides and sizes of %u tensors, but a launch "
      "has room for %zu",
      BASE_FMT(kernel->name), fields, count, MOST_PARAMETERS / sizeof(int64_t));
  base_hint(diag, "put parameters together in one, with an axis that counts them");
  return false;
}

static bool knows_features(const cuda_plan *plan, const kir_schedule *schedule, base_diag *diag) {
  const struct {
    bool wanted, has;
    const char *what, *instead;
  } needs[] = {
      {schedule->load == 1, plan->arch.copy_async, "load=1 (cp.async)", "load=0"},
      {schedule->load == 2, plan->arch.bulk_copy, "load=2 (bulk copies)", "load=0 or load=1"},
      {schedule->split > 1 && schedule->cluster, plan->arch.cluster, "split with cluster=1",
       "cluster=0"},
      {schedule->logits == 1, plan->arch.tensor_bf16, "logits=1 (tensor cores)", "logits=0"},
  };
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    if (!needs[i].wanted || needs[i].has) continue;
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "%s cannot do %s", plan->arch.name,
                      needs[i].what);
    base_hint(diag, "use %s, or a later architecture", needs[i].instead);
    return false;
  }
  return true;
}

// Lowers a kernel. Where a block has not the shared memory for all that lowering puts there, row
// values go to the workspace instead.
static const kir_kernel *lower_to_fit(const cuda_plan *plan, uint32_t index,
                                      const kir_schedule *schedule, base_diag *diag) {
  const kir_kernel *kernel = pass_lower(plan->graph, (int32_t)index, schedule, diag);
  if (!kernel) return NULL;
  const kir_team *team = &kernel->team;
  size_t bytes = text_shared_bytes(kernel), most = plan->arch.shared_per_block;
  size_t others = bytes - team->row_bytes * team->count;
  if (bytes <= most || others >= most) return kernel;
  // Each row value is a multiple of 128 bytes long there.
  size_t each = (most - others) / team->count & ~(size_t)127;
  kir_schedule less = *schedule;
  less.row_limit = each ? (int64_t)(each * team->count) : 1;
  return pass_lower(plan->graph, (int32_t)index, &less, diag);
}

static const kir_kernel *lower_form(const cuda_plan *plan, uint32_t index,
                                    const kir_schedule *schedule, base_diag *diag) {
  const kir_kernel *kernel = lower_to_fit(plan, index, schedule, diag);
  if (kernel && text_step_count(kernel) > RT_MAX_STEPS) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "kernel @%.*s needs more launches than %d to be split without clusters",
                      BASE_FMT(kernel->name), RT_MAX_STEPS + 1);
    base_hint(diag, "use cluster=1 (sm_90 and later) or split=1");
    return NULL;
  }
  return kernel && fits_shared(plan, kernel, diag) ? kernel : NULL;
}

// One element at a time, for any strides: many turns, so nothing that would have to unroll them.
static void make_general(kir_schedule *schedule) {
  schedule->access = 2;
  schedule->working = 200;
  schedule->query_tile = 1;
}

// What was asked for over the default. Whoever asks for no copies to shared memory has not asked for
// the rows to wait there, and the default's team is one for its own way to share a row.
static bool override_schedule(const char *text, kir_schedule *schedule, base_diag *diag) {
  const kir_schedule before = *schedule, usual = kir_schedule_default(KIR_CUDA);
  kir_schedule plain = before;
  plain.team = usual.team;
  plain.working = before.working > usual.working ? before.working : usual.working;
  if (plain.residency == 2) plain.residency = 1;
  kir_schedule start = plain;
  if (!kir_schedule_parse(text, &plain, diag)) return false;
  if (plain.load) start.residency = before.residency;
  if (plain.split == before.split && plain.teams == before.teams && plain.access == before.access) {
    start.team = before.team;
    start.working = before.working;
  }
  *schedule = start;
  return kir_schedule_parse(text, schedule, diag);
}

static bool plan_kernel(base_arena *arena, cuda_plan *plan, uint32_t index,
                        const cg_options *options, base_diag *diag) {
  cuda_kernel *kernel = &plan->kernels[index];
  kir_schedule schedule = cuda_default_schedule(plan->graph, (int32_t)index, &plan->arch);
  if (options->schedule && *options->schedule &&
      !override_schedule(options->schedule, &schedule, diag))
    return false;
  if (!knows_features(plan, &schedule, diag)) return false;
  const kir_kernel *wide = lower_to_fit(plan, index, &schedule, diag);
  if (!wide || !fits_parameters(wide, diag)) return false;
  if (schedule.logits) kernel->logits = cuda_logits_create(arena, wide, &plan->arch);
  if (!kernel->logits && !fits_shared(plan, wide, diag)) return false;
  if (wide->team.vector > 1 || kernel->logits) {
    kernel->names[0] = function_name(arena, plan->graph, index, "");
    kernel->forms[kernel->form_count++] = wide;
    make_general(&schedule);
    wide = lower_form(plan, index, &schedule, diag);
    if (!wide) return false;
  }
  kernel->names[kernel->form_count] =
      function_name(arena, plan->graph, index, kernel->form_count ? "_any" : "");
  kernel->forms[kernel->form_count++] = wide;
  return true;
}

// Which engine makes the logits: that changes the kernels there are, so it is looked up first.
static bool find_engine(const cg_options *options, int64_t *engine, base_diag *diag) {
  kir_schedule schedule = kir_schedule_default(KIR_CUDA);
  bool good = !options->schedule || !*options->schedule ||
              kir_schedule_parse(options->schedule, &schedule, diag);
  *engine = schedule.logits;
  return good;
}

static bool has_logits(const cuda_plan *plan, int64_t engine, base_diag *diag) {
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    if (cuda_logits_is(plan->kernels[i].forms[0])) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "@%.*s has no logits for logits=%lld: that takes a dot over the hidden axis of "
                    "%s rows of memory (or views of them) with queries that do not depend on the "
                    "token",
                    BASE_FMT(plan->graph->name), (long long)engine,
                    engine == 1 ? "bf16 or f16" : "bf16, f16 or f32");
  base_hint(diag, "use logits=0%s", engine == 1 ? "; logits=2 also takes f32" : "");
  return false;
}

cuda_plan *cuda_plan_create(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag) {
  cuda_plan *plan = base_new(arena, cuda_plan);
  int64_t engine;
  if (!cg_has_all_ops(graph, text_has, "cuda", "codegen/cuda/text_math.c", diag) ||
      !find_engine(options, &engine, diag))
    return NULL;
  if (engine) graph = pass_run(graph, "split-logits", &(pass_options){0}, diag);
  if (!graph) return NULL;
  plan->graph = graph;
  const char *source = options->schedule_source ? options->schedule_source : "given";
  plan->schedule_source = options->schedule && *options->schedule ? source : "default";
  if (!cuda_arch_find(options->arch, &plan->arch)) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "unknown GPU architecture '%s'",
                      options->arch);
    base_hint(diag, "expected one of %.*s", BASE_FMT(cuda_arch_list(arena)));
    return NULL;
  }
  plan->kernel_count = pass_kernel_count(graph);
  plan->kernels = base_new_array(arena, cuda_kernel, plan->kernel_count);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    if (!plan_kernel(arena, plan, i, options, diag)) return NULL;
  return engine && !has_logits(plan, engine, diag) ? NULL : plan;
}

// ---- texts --------------------------------------------------------------------------------------

static void print_preludes(base_text *out, bool whole, bool logits) {
  if (whole) base_text_printf(out, "%s// ---- end of the device prelude\n", cuda_prelude_device);
  base_text_printf(out, "%s\n%s\n", cuda_prelude_common, cuda_prelude_rows);
  if (logits) base_text_printf(out, "%s\n", cuda_prelude_logits);
}

const cuda_logits *cuda_form_logits(const cuda_kernel *kernel, uint32_t form) {
  return form == 0 ? kernel->logits : NULL;
}

static void print_form(base_arena *arena, const cuda_plan *plan, uint32_t kernel, uint32_t form,
                       base_text *out) {
  const cuda_kernel *info = &plan->kernels[kernel];
  const kir_kernel *lowered = info->forms[form];
  base_text schedule = {.arena = arena};
  kir_schedule_print(&lowered->schedule, &schedule);
  bool any = form + 1 == info->form_count;
  base_text_printf(out, "// ---- kernel @%.*s%s\n// schedule %s\n\n", BASE_FMT(lowered->name),
                   any ? ", for any strides" : "", schedule.data);
  if (cuda_form_logits(info, form))
    cuda_logits_text(arena, info->logits, info->names[form], out);
  else
    text_kernel(arena, lowered, info->names[form], out);
}

base_str cuda_form_text(base_arena *arena, const cuda_plan *plan, uint32_t kernel, uint32_t form,
                        bool whole) {
  base_text out = {.arena = arena};
  print_preludes(&out, whole, cuda_form_logits(&plan->kernels[kernel], form));
  print_form(arena, plan, kernel, form, &out);
  return base_text_str(&out);
}

base_str cuda_file_text(base_arena *arena, const cuda_plan *plan) {
  base_text out = {.arena = arena};
  base_text_printf(&out,
                   "// Graph @%.*s for %s. Made by Fathom; compiles as it is with NVRTC and with\n"
                   "//   nvcc -std=c++17 -arch=%s -cubin\n\n",
                   BASE_FMT(plan->graph->name), plan->arch.name, plan->arch.name);
  bool logits = false;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    logits |= plan->kernels[i].logits != NULL;
  print_preludes(&out, true, logits);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count; j++) {
      base_text_printf(&out, "\n");
      print_form(arena, plan, i, j, &out);
    }
  return base_text_str(&out);
}

// ---- the launcher's view ------------------------------------------------------------------------

rt_form cuda_form_create(base_arena *arena, const cuda_kernel *kernel, uint32_t index) {
  if (cuda_form_logits(kernel, index))
    return cuda_logits_form(arena, kernel->logits, kernel->names[index]);
  const kir_kernel *lowered = kernel->forms[index];
  const kir_team *team = &lowered->team;
  rt_form form = {.function = base_str_copy(arena, base_str_from(kernel->names[index])).data,
                  .threads = team->threads * team->count,
                  .rows_per_block = team->count,
                  .cluster = team->stepped ? 1 : team->split,
                  .row_blocks = team->stepped ? team->split : 0,
                  .persistent = lowered->schedule.persistent != 0,
                  .programmatic = lowered->schedule.programmatic != 0,
                  .shared_bytes = text_shared_bytes(lowered),
                  .prepared_bytes = team->prepared_bytes,
                  .block_bytes = team->memory_bytes * team->count + team->partial_bytes};
  if (team->stepped) {
    form.step_count = text_step_count(lowered);
    const char **steps = base_new_array(arena, const char *, form.step_count + 1);
    for (uint32_t i = 0; i < form.step_count; i++)
      steps[i] = base_str_format(arena, "%s_step%u", form.function, i + 2).data;
    form.steps = steps;
  }
  if (team->prepared_by_launch)
    form.prepare = base_str_format(arena, "%s_prepare", form.function).data;
  int32_t shared = text_prepare_axis(lowered);
  if (form.prepare && shared >= 0) form.prepare_blocks = (uint32_t)lowered->axes[shared].size;
  // The widest access: of rows of f32, two of them may make one turn of a thread.
  if (team->vector > 1) form.alignment = 16;
  if (lowered->schedule.load != 2) form.vector = team->vector; // bulk copies need all 16
  return form;
}

rt_device_program *cuda_program_create(base_arena *arena, const cuda_plan *plan) {
  rt_device_program *program = base_new(arena, rt_device_program);
  const kir_kernel **kernels = base_new_array(arena, const kir_kernel *, plan->kernel_count);
  rt_device_kernel *made = base_new_array(arena, rt_device_kernel, plan->kernel_count);
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    kernels[i] = plan->kernels[i].forms[0];
    made[i].form_count = plan->kernels[i].form_count;
    for (uint32_t j = 0; j < made[i].form_count; j++)
      made[i].forms[j] = cuda_form_create(arena, &plan->kernels[i], j);
  }
  program->program = cg_program_create(arena, plan->graph, kernels, plan->kernel_count);
  program->kernels = made;
  return program;
}
