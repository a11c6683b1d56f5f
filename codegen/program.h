// program: the launcher's view of a compiled graph, which all targets share.
#ifndef FATHOM_CODEGEN_PROGRAM_H
#define FATHOM_CODEGEN_PROGRAM_H

#include "ir/kernel.h"
#include "runtime/runtime.h"

// Axes, slots and how each kernel sees them, in `arena`; kernels have no code yet.
rt_program *cg_program_create(base_arena *arena, const ir_graph *graph,
                              const kir_kernel *const *kernels, uint32_t kernel_count);

#endif
