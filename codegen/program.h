// program: what all targets share on the way from a graph to a program.
#ifndef FATHOM_CODEGEN_PROGRAM_H
#define FATHOM_CODEGEN_PROGRAM_H

#include "ir/kernel.h"
#include "runtime/runtime.h"

// Refuses a graph with an op that `target` has no code for; `file` is where that would be added.
bool cg_has_all_ops(const ir_graph *graph, bool (*has)(ir_op op), const char *target,
                    const char *file, base_diag *diag);

// The launcher's view. Axes, slots and how each kernel sees them, in `arena`; kernels have no code yet.
rt_program *cg_program_create(base_arena *arena, const ir_graph *graph,
                              const kir_kernel *const *kernels, uint32_t kernel_count);

#endif
