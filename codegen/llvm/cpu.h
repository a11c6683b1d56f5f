// cpu: the parts of the cpu target behind its table: machines, modules, the JIT and the object
// cache.
#ifndef FATHOM_CODEGEN_CPU_H
#define FATHOM_CODEGEN_CPU_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "codegen/artefact_cache.h"
#include "codegen/target.h"
#include "ir/kernel.h"

// ---- machine (machine.c) ------------------------------------------------------------------------

typedef struct cpu_machine {
  LLVMTargetMachineRef target;
  const char *triple, *cpu, *features;
  const char
      *needs;     // features that code may use: "avx2,fma", or as LLVM writes them, "+avx2,-sse4a"
  uint32_t width; // f32 lanes of the widest vector worth using
  bool x86;
  bool halves;    // has instructions between f16 and f32
  bool runs_here; // code for it can be executed by this process
} cpu_machine;

// A machine for "host" or an LLVM CPU name; released with the arena. False: see diag.
void cpu_machine_start(void); // once, before the others
bool cpu_machine_open(base_arena *arena, const char *cpu, cpu_machine *machine, base_diag *diag);
void cpu_machine_describe(base_text *out);
bool cpu_machine_identify(base_arena *arena, cg_identity *out); // of the host

// ---- modules (module.c) -------------------------------------------------------------------------

typedef struct cpu_kernel {
  const kir_kernel *kernel;
  const char *body, *prepare; // symbols; prepare may be NULL
} cpu_kernel;

typedef struct cpu_plan {
  const ir_graph *graph;
  uint32_t kernel_count;
  cpu_kernel *kernels;
  const char *schedule_source;
} cpu_plan;

// Lowers every kernel of the graph under the schedule asked for. NULL: see diag.
cpu_plan *cpu_plan_create(base_arena *arena, const ir_graph *graph, const cg_options *options,
                          const cpu_machine *machine, base_diag *diag);
// The optimised module; released with the arena.
LLVMModuleRef cpu_build_module(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                               base_diag *diag);
// Symbol names, which do not need the module.
void cpu_name_symbols(base_arena *arena, cpu_plan *plan);
bool cpu_generate(base_arena *arena, LLVMModuleRef module, const cpu_machine *machine,
                  LLVMCodeGenFileType kind, base_str *out, base_diag *diag);

// ---- object cache (object_cache.c) --------------------------------------------------------------

// Where the artefact cache keeps the object. Everything it depends on goes into the key.
cg_cache_entry cpu_cache_entry(base_arena *arena, const char *directory, const cpu_plan *plan,
                               const cpu_machine *machine);

// ---- jit (jit.c) --------------------------------------------------------------------------------

typedef struct cpu_code cpu_code;
// Links an object into this process. NULL and *why when it does not link.
cpu_code *cpu_code_load(base_str object, base_arena *arena, base_str *why);
void *cpu_code_symbol(cpu_code *code, const char *name); // NULL when missing
void cpu_code_release(cpu_code *code);

// ---- portable code (portable.c) ----------------------------------------------------------------

// The object as code that any process on such a machine can run, in `arena`. NULL: see diag.
rt_host_image *cpu_portable(base_arena *arena, base_str object, const cpu_plan *plan,
                            const cpu_machine *machine, base_diag *diag);

// ---- report (report.c) --------------------------------------------------------------------------

base_str cpu_report(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                    base_str assembly);

#endif
