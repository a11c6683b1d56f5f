// cuda_logits: phase-1 logits as a product of matrices, for tensor cores (schedule logits=1) or
// cuBLASLt (logits=2).
//
// pass_split_logits gives the logits a kernel of their own; here it is found out what the product
// is: which rows of memory each source has, and which axes count what. Rows of the product are
// pairs of a source and a token, token fastest:
//
//   z[source, token, query] = sum over k of v[source, token, k] w[query, k]
#ifndef FATHOM_CODEGEN_CUDA_LOGITS_H
#define FATHOM_CODEGEN_CUDA_LOGITS_H

#include "codegen/cuda/arch.h"
#include "ir/kernel.h"
#include "runtime/device_program.h"

typedef struct cuda_axes {
  uint32_t count;
  ir_axis axis[IR_MAX_RANK]; // outermost first
} cuda_axes;

typedef struct cuda_logits {
  const kir_kernel *kernel;
  rt_form_kind kind;
  uint32_t query_arg, result_arg;
  ir_dtype dtype;            // of the sources
  cuda_axes source_axes;     // views name them, or each index has a pointer
  cuda_axes tokens, queries; // the others of the rows; of the queries
  uint32_t source_count, query_count;
  uint32_t depth; // elements of a row
  const rt_source *sources;
  uint32_t parts; // numbers that a query is split in: 1 to 3
  bool scaled;    // by a power of two
  // Tensor cores (prelude_logits.cuh): a block has `warps` warps of 16 * row_tiles rows and
  // 8 * query_tiles queries; there are `groups` of so many queries.
  uint32_t warps, row_tiles, query_tiles, groups, stages;
} cuda_logits;

// Is the kernel such a product, of types that the engine its schedule names multiplies?
bool cuda_logits_is(const kir_kernel *kernel);
// NULL when it is not, or its rows do not lie in memory as this needs them: contiguous, in pieces of
// 8 elements.
const cuda_logits *cuda_logits_create(base_arena *arena, const kir_kernel *kernel,
                                      const cuda_arch *arch);
// In the workspace's prepared part: what the sums of each query must be multiplied with, when they
// are scaled; and where it ends.
size_t cuda_logits_unscale_offset(const cuda_logits *logits);
size_t cuda_logits_prepared_bytes(const cuda_logits *logits);
// For the report: a line on how it works, and bytes that are read beyond what kir_cost_per_row counts.
void cuda_logits_describe(const cuda_logits *logits, base_text *out);
double cuda_logits_reread_per_row(const cuda_logits *logits);
// How the launcher runs it, and its text: functions `name` and `name`_prepare.
rt_form cuda_logits_form(base_arena *arena, const cuda_logits *logits, const char *name);
void cuda_logits_text(base_arena *arena, const cuda_logits *logits, const char *name,
                      base_text *out);

#endif
