// lower: from a fused graph to kernel IR. Five steps, a file each: axes (roles, factors, breaks),
// places (what is stored, where, and at which level it is ready), sweeps (loop nests), overlap (of
// one row's sweep with the next row's), pairs (of bf16 elements); for a GPU team (threads and
// residency) in place of the last two; lower.c joins them, and
// lower_domain.c answers what a value is computed over.
#ifndef FATHOM_PASSES_LOWER_H
#define FATHOM_PASSES_LOWER_H

#include "ir/kernel.h"

typedef struct pass_lowering {
  kir_kernel *kernel;
  const ir_graph *graph;
  base_arena *arena;
  base_diag *diag;
  uint64_t rows, hidden;
  bool *member; // nodes of this kernel
  // Of values copied to shared memory with queries innermost (schedule lanes=1): the query axes.
  uint64_t *packed;
  // In a chain: made of a running maximum, so it is another value in each tile.
  bool *of_maximum;
} pass_lowering;

void pass_lower_axes(pass_lowering *lowering);
bool pass_lower_places(pass_lowering *lowering); // false: see diag
void pass_lower_sweeps(pass_lowering *lowering);
void pass_lower_overlap(pass_lowering *lowering);
void pass_lower_pairs(pass_lowering *lowering);
// For a GPU, in place of the last two. False: the chain does not fit.
bool pass_lower_team(pass_lowering *lowering);
// Before places: makes the sources of `axis` come tile by tile. False: they cannot.
bool pass_lower_chain(pass_lowering *lowering, ir_axis axis);
bool pass_in_chain(const pass_lowering *lowering, ir_value value);

// What values are computed over (lower_domain.c).
bool pass_is_reduction(
    const ir_node *node); // a primitive reduction: sum, mean, dot, weighted_sum, reduce_max
// The axes a node's sweep runs over, refined, and those of them it reduces over. A mix (a reduction
// of row values over other than hidden axes) reduces inside the point, so its domain is its
// result's.
uint32_t pass_domain(const pass_lowering *lowering, ir_value value, ir_axis *axes,
                     uint64_t *accumulates);
// The axis a domain is spread over lanes along; -1 when it has none. Index into `axes`.
int32_t pass_lane(const pass_lowering *lowering, ir_value value, const ir_axis *axes,
                  uint32_t count);
bool pass_is_staged(const pass_lowering *lowering,
                    ir_value value); // reduces a row value over hidden axes

#endif
