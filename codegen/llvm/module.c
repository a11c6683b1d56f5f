// From a fused graph to an optimised LLVM module and to assembly or object code.
#include <string.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "codegen/llvm/cpu.h"
#include "codegen/llvm/emit.h"
#include "codegen/program.h"
#include "passes/passes.h"

// Code is emitted vectorised and unrolled already; these clean up addresses, hoist what a loop does
// not change and turn accumulators into registers. One round of instcombine is enough; LLVM would
// end the process where a second found more to do.
#define COMBINE "instcombine<no-verify-fixpoint>"
static const char cleanup_passes[] =
    "function(sroa,early-cse<memssa>," COMBINE
    ",loop-mssa(licm),early-cse<memssa>,simplifycfg," COMBINE ",dce)";

static void release_module(void *object) {
  LLVMDisposeModule(object);
}
static void release_context(void *object) {
  LLVMContextDispose(object);
}
static void release_buffer(void *object) {
  LLVMDisposeMemoryBuffer(object);
}

void cpu_name_symbols(base_arena *arena, cpu_plan *plan) {
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    cpu_kernel *kernel = &plan->kernels[i];
    bool prepares = false;
    for (uint32_t j = 0; j < kernel->kernel->sweeps.count; j++)
      prepares |= kernel->kernel->sweeps.data[j].phase == KIR_PREPARE;
    kernel->body = base_str_format(arena, "fathom_kernel_%u", i).data;
    kernel->prepare = prepares ? base_str_format(arena, "fathom_kernel_%u_prepare", i).data : NULL;
  }
}

// Wider vectors than the CPU's are split by LLVM; beyond a few registers each that only spills.
static bool machine_can(const cpu_machine *machine, const kir_schedule *schedule, base_diag *diag) {
  if (schedule->vector <= 4 * (int64_t)machine->width) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "vector=%lld is too wide for %s",
                    (long long)schedule->vector, machine->cpu);
  base_hint(diag, "its vectors have %u f32 lanes: use at most vector=%u, or 0 for what it has",
            machine->width, 4 * machine->width);
  return false;
}

cpu_plan *cpu_plan_create(base_arena *arena, const ir_graph *graph, const cg_options *options,
                          const cpu_machine *machine, base_diag *diag) {
  cpu_plan *plan = base_new(arena, cpu_plan);
  bool given = options->schedule && *options->schedule;
  if (!cg_has_all_ops(graph, emit_has, "cpu", "codegen/llvm/emit_math.c", diag)) return NULL;
  plan->graph = graph;
  plan->schedule_source = !given                     ? "default"
                          : options->schedule_source ? options->schedule_source
                                                     : "given";
  plan->kernel_count = pass_kernel_count(graph);
  plan->kernels = base_new_array(arena, cpu_kernel, plan->kernel_count);
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    kir_schedule schedule = pass_default_schedule(graph, (int32_t)i);
    if (given && (!kir_schedule_parse(options->schedule, &schedule, diag) ||
                  !machine_can(machine, &schedule, diag)))
      return NULL;
    plan->kernels[i].kernel = pass_lower(graph, (int32_t)i, &schedule, diag);
    if (!plan->kernels[i].kernel) return NULL;
  }
  cpu_name_symbols(arena, plan);
  return plan;
}

static uint32_t vector_width(const kir_kernel *kernel, const cpu_machine *machine) {
  return kernel->schedule.vector ? (uint32_t)kernel->schedule.vector : machine->width;
}

static void release_message(void *object) {
  LLVMDisposeMessage(object);
}
static void release_error_message(void *object) {
  LLVMDisposeErrorMessage(object);
}

static bool verify_module(LLVMModuleRef module, base_arena *arena, base_diag *diag) {
  char *message = NULL;
  bool broken = LLVMVerifyModule(module, LLVMReturnStatusAction, &message);
  base_defer(arena, release_message, message);
  if (broken)
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "the generated LLVM IR is broken: %s",
                      message);
  return !broken;
}

static bool optimise(LLVMModuleRef module, const cpu_machine *machine, base_arena *arena,
                     base_diag *diag) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(module, cleanup_passes, machine->target, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return true;
  char *message = LLVMGetErrorMessage(error);
  base_defer(arena, release_error_message, message);
  base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "LLVM's passes failed: %s", message);
  return false;
}

LLVMModuleRef cpu_build_module(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                               base_diag *diag) {
  LLVMContextRef context = LLVMContextCreate();
  base_defer(arena, release_context, context);
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("fathom", context);
  base_defer(arena, release_module, module);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine->target);
  LLVMSetModuleDataLayout(module, layout);
  LLVMDisposeTargetData(layout);
  LLVMSetTarget(module, machine->triple);
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    const cpu_kernel *kernel = &plan->kernels[i];
    emit_target target = {.width = vector_width(kernel->kernel, machine),
                          .x86 = machine->x86,
                          .halves = machine->halves};
    emit_kernel(arena, module, kernel->kernel, kernel->body, kernel->prepare, &target);
  }
  if (!verify_module(module, arena, diag) || !optimise(module, machine, arena, diag)) return NULL;
  return module;
}

bool cpu_generate(base_arena *arena, LLVMModuleRef module, const cpu_machine *machine,
                  LLVMCodeGenFileType kind, base_str *out, base_diag *diag) {
  char *message = NULL;
  LLVMMemoryBufferRef buffer;
  if (LLVMTargetMachineEmitToMemoryBuffer(machine->target, module, kind, &message, &buffer)) {
    base_defer(arena, release_message, message);
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "LLVM could not generate code: %s",
                      message);
    return false;
  }
  base_defer(arena, release_buffer, buffer);
  *out = (base_str){LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer)};
  return true;
}
