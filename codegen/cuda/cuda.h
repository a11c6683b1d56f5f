// cuda: the parts of the cuda target behind its table: plans, texts, the report.
#ifndef FATHOM_CODEGEN_CUDA_H
#define FATHOM_CODEGEN_CUDA_H

#include "codegen/cuda/arch.h"
#include "codegen/cuda/cuda_logits.h"
#include "codegen/cuda/gpu.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/target.h"
#include "ir/kernel.h"

// ---- plans (cuda_plan.c) ------------------------------------------------------------------------

// A kernel of the graph, lowered once for each form that it is compiled in: with wide accesses,
// where its rows allow that, and for any strides.
typedef struct cuda_kernel {
  const kir_kernel *forms[RT_MAX_FORMS]; // the fastest first
  const char *names[RT_MAX_FORMS];       // of the functions
  uint32_t form_count;
  const cuda_logits *logits; // what the first form is instead of the kernel's sweeps, or NULL
} cuda_kernel;

typedef struct cuda_plan {
  const ir_graph *graph; // with kernels of their own for logits, where the schedule says so
  cuda_arch arch;
  uint32_t kernel_count;
  cuda_kernel *kernels;
  const char *schedule_source;
} cuda_plan;

// The schedule of a kernel when nobody asks for another (cuda_default.c).
kir_schedule cuda_default_schedule(const ir_graph *graph, int32_t index, const cuda_arch *arch);

// Lowers every kernel of the graph under the schedule asked for, and refuses what the architecture
// cannot run. NULL: see diag.
cuda_plan *cuda_plan_create(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag);

// The text of one form. Whole: with the preludes for a GPU, as NVRTC and nvcc take it; else only
// what the emulator's prelude goes before.
base_str cuda_form_text(base_arena *arena, const cuda_plan *plan, uint32_t kernel, uint32_t form,
                        bool whole);
// All kernels in all forms, in one file.
base_str cuda_file_text(base_arena *arena, const cuda_plan *plan);

// What a form is instead of the kernel's sweeps; NULL: it is these.
const cuda_logits *cuda_form_logits(const cuda_kernel *kernel, uint32_t form);
// How the launcher runs a form.
rt_form cuda_form_create(base_arena *arena, const cuda_kernel *kernel, uint32_t form);
// The launcher's view, in `arena`; the images are still to be filled in.
rt_device_program *cuda_program_create(base_arena *arena, const cuda_plan *plan);

// ---- work (cuda_work.c) -------------------------------------------------------------------------

// How an argument's bytes are read beyond what must move: each token's reads after the first of what
// is its own, its reads of what all tokens share, and reads before the first token.
typedef enum cuda_use { CUDA_USE_AGAIN, CUDA_USE_SHARED, CUDA_USE_BEFORE, CUDA_USES } cuda_use;
double cuda_bytes_used(const kir_kernel *kernel, const kir_arg *arg, cuda_use use); // for a row
// Bytes of the workspace that a row reads or writes: row values, and what is prepared for all rows.
double cuda_workspace_bytes(const kir_kernel *kernel, bool read);
// What a launch for so many rows does, where a multiprocessor holds so many blocks (at least one).
cuda_work cuda_work_of(const kir_kernel *kernel, int64_t rows, const cuda_gpu *gpu,
                       uint32_t blocks_per_multiprocessor);

// NULL: the binary has no kernel of that name.
const cuda_kernel_resources *cuda_find_resources(const cuda_binary *binary, const char *name);
cuda_footprint cuda_footprint_of(const rt_form *form, const cuda_kernel_resources *resources);

// ---- report (cuda_report.c) ---------------------------------------------------------------------

// `binaries` has one entry for each form of each kernel, in order; NULL: `why` says why not.
base_str cuda_report(base_arena *arena, const cuda_plan *plan, const cuda_binary *binaries,
                     const char *why);

#endif
