// The cpu target: its table, and the way from a fused graph to a loaded program.
#include <string.h>

#include "codegen/artefact.h"
#include "codegen/llvm/cpu.h"
#include "codegen/program.h"

static void release_code(void *object) {
  cpu_code **code = object;
  cpu_code_release(*code);
}

static bool compile_object(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                           base_str *object, base_diag *diag) {
  LLVMModuleRef module = cpu_build_module(arena, plan, machine, diag);
  return module && cpu_generate(arena, module, machine, LLVMObjectFile, object, diag);
}

// Fills in the code of each kernel; false when a symbol is missing.
static bool link_kernels(cpu_code *code, const cpu_plan *plan, rt_program *program) {
  rt_kernel *kernels = (rt_kernel *)program->kernels;
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    void *body = cpu_code_symbol(code, plan->kernels[i].body);
    void *prepare =
        plan->kernels[i].prepare ? cpu_code_symbol(code, plan->kernels[i].prepare) : NULL;
    if (!body || (plan->kernels[i].prepare && !prepare)) return false;
    memcpy(&kernels[i].body, &body, sizeof body); // ISO C has no cast from void * to a function
    memcpy(&kernels[i].prepare, &prepare, sizeof prepare);
  }
  return true;
}

static cpu_code *load_and_link(base_arena *arena, base_str object, const cpu_plan *plan,
                               rt_program *program, base_str *why) {
  cpu_code *code = cpu_code_load(object, arena, why);
  if (!code || link_kernels(code, plan, program)) return code;
  *why = BASE_STR("a kernel is missing from the object");
  cpu_code_release(code);
  return NULL;
}

// From the cache when it has a sound object that links, else compiled (and put there).
static bool obtain_code(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                        const cg_options *options, cg_owned *artefact, base_diag *diag) {
  rt_program *program = (rt_program *)artefact->base.program;
  base_str object, why;
  cpu_code **code = base_new(&artefact->arena, cpu_code *);
  base_defer(&artefact->arena, release_code, code);
  const cg_cache_entry entry = cpu_cache_entry(arena, options->cache_directory, plan, machine);
  if (cg_cache_load(arena, &entry, &object)) {
    *code = load_and_link(arena, object, plan, program, &why);
    artefact->base.from_cache = *code != NULL;
    if (*code) return true;
  }
  if (options->expect_cached) {
    cg_cache_missing(arena, &entry, diag);
    return false;
  }
  if (!compile_object(arena, plan, machine, &object, diag)) return false;
  *code = load_and_link(arena, object, plan, program, &why);
  if (!*code) {
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "the compiled object does not link: %.*s",
                      BASE_FMT(why));
    return false;
  }
  cg_cache_store(arena, &entry, object);
  return true;
}

// The object as bytes: nothing is loaded.
static bool obtain_portable(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                            const cg_options *options, cg_owned *artefact, base_diag *diag) {
  base_str object;
  const cg_cache_entry entry = cpu_cache_entry(arena, options->cache_directory, plan, machine);
  artefact->base.from_cache = cg_cache_load(arena, &entry, &object);
  if (!artefact->base.from_cache) {
    if (options->expect_cached) cg_cache_missing(arena, &entry, diag);
    if (options->expect_cached || !compile_object(arena, plan, machine, &object, diag))
      return false;
    cg_cache_store(arena, &entry, object);
  }
  artefact->base.host = cpu_portable(&artefact->arena, object, plan, machine, diag);
  return artefact->base.host != NULL;
}

static bool can_run(const cpu_machine *machine, base_diag *diag) {
  if (machine->runs_here) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "code for %s cannot run on this machine",
                    machine->cpu);
  base_hint(diag, "emit it with --emit obj, or leave --mcpu out");
  return false;
}

static cg_artefact *compile(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag) {
  cpu_machine machine;
  if (!cpu_machine_open(arena, options->cpu, &machine, diag) ||
      (!options->portable && !can_run(&machine, diag)))
    return NULL;
  cpu_plan *plan = cpu_plan_create(arena, graph, options, &machine, diag);
  if (!plan) return NULL;
  const kir_kernel **kernels = base_new_array(arena, const kir_kernel *, plan->kernel_count + 1);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    kernels[i] = plan->kernels[i].kernel;
  cg_owned *artefact = cg_artefact_begin(arena, kernels[0], plan->schedule_source, diag);
  if (!artefact) return NULL;
  artefact->base.program = cg_program_create(&artefact->arena, graph, kernels, plan->kernel_count);
  bool made = (options->portable ? obtain_portable : obtain_code)(arena, plan, &machine, options,
                                                                  artefact, diag);
  return made ? cg_artefact_finish(artefact) : NULL;
}

static void release_text(void *object) {
  LLVMDisposeMessage(object);
}

static bool emit_text(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                      const char *what, base_str *out, base_diag *diag) {
  LLVMModuleRef module = cpu_build_module(arena, plan, machine, diag);
  if (!module) return false;
  if (strcmp(what, "llvm") == 0) {
    char *text = LLVMPrintModuleToString(module);
    base_defer(arena, release_text, text);
    *out = base_str_from(text);
    return true;
  }
  bool object = strcmp(what, "obj") == 0;
  if (!cpu_generate(arena, module, machine, object ? LLVMObjectFile : LLVMAssemblyFile, out, diag))
    return false;
  if (strcmp(what, "report") == 0) *out = cpu_report(arena, plan, machine, *out);
  return true;
}

static bool emit(base_arena *arena, const ir_graph *graph, const cg_options *options,
                 const char *what, base_str *out, base_diag *diag) {
  static const char *const kinds[] = {"kernel", "llvm", "asm", "obj", "report", "schedules"};
  bool known = false;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
    known |= strcmp(what, kinds[i]) == 0;
  if (!known) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "the cpu target does not emit '%s'",
                      what);
    base_hint(diag, "it emits graph, kernel, llvm, asm, obj and report");
    return false;
  }
  cpu_machine machine;
  if (!cpu_machine_open(arena, options->cpu, &machine, diag)) return false;
  cpu_plan *plan = cpu_plan_create(arena, graph, options, &machine, diag);
  if (!plan) return false;
  bool schedules = strcmp(what, "schedules") == 0;
  if (schedules || strcmp(what, "kernel") == 0) {
    base_text text = {.arena = arena};
    for (uint32_t i = 0; i < plan->kernel_count; i++)
      (schedules ? kir_print_choice : kir_print)(plan->kernels[i].kernel, &text);
    *out = base_text_str(&text);
    return true;
  }
  return emit_text(arena, plan, &machine, what, out, diag);
}

static const cg_target cpu_target = {.name = "cpu",
                                     .abi = CG_ABI,
                                     .compile = compile,
                                     .emit = emit,
                                     .describe = cpu_machine_describe,
                                     .identify = cpu_machine_identify};

// The loader calls this once in a process, before anything else: LLVM's registries are set up here.
__attribute__((visibility("default"))) const cg_target *fathom_cpu_target(void) {
  cpu_machine_start();
  return &cpu_target;
}
