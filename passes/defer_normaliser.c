// defer-normaliser: a mix is divided once, not each of its weights.
//
//   %a = div %e, %s            : f32[N, T]          %w = weighted_sum %e, %v over N : f32[T, D]
//   %h = weighted_sum %a, %v   : f32[T, D]    ->    %r = div 1, %s                  : f32[T]
//                                                   %h = mul %w, %r                 : f32[T, D]
//
// The mix then needs no sum over all sources before it begins, so a kernel can take the sources tile
// by tile: it keeps the running maximum, sum and mix, and reads each source once (lower_chain.c).
// A factor without the summed axis moves out the same way. The weights themselves stay where others
// use them. Weights that are rounded to bf16 or f16 are left alone: rounding points are semantics.
//
// Needs nothing, breaks nothing; terminates: each node is visited once.
#include "passes/passes.h"
#include "passes/rewrite.h"

ir_graph *pass_defer_normaliser(const ir_graph *graph, base_diag *diag);

static bool lacks(const ir_graph *graph, ir_value value, uint64_t axes) {
  return !(ir_type_axes(&ir_node_of(graph, value)->type) & axes);
}

// weights = kept * moved, or kept / moved, with all of the summed axes in `kept`. In terms of the
// old graph.
static bool split_weights(const ir_graph *graph, const ir_node *mix, ir_value *kept,
                          ir_value *moved) {
  uint64_t over = ir_axes_set(mix->over_count, mix->over);
  const ir_node *weights = ir_node_of(graph, mix->operands[0]);
  if (weights->type.dtype != IR_F32 || (weights->op != IR_DIV && weights->op != IR_MUL))
    return false;
  for (uint32_t i = 0; i < 2; i++) {
    bool divides = weights->op == IR_DIV;
    *kept = weights->operands[i];
    *moved = weights->operands[1 - i];
    uint64_t kept_axes = ir_type_axes(&ir_node_of(graph, *kept)->type);
    if (lacks(graph, *moved, over) && (kept_axes & over) == over) return true;
    if (divides) return false;
  }
  return false;
}

static ir_value reciprocal(ir_graph *graph, ir_value value) {
  return ir_build_binary(graph, IR_DIV, ir_build_constant(graph, 1), value, IR_F32);
}

ir_graph *pass_defer_normaliser(const ir_graph *graph, base_diag *diag) {
  (void)diag;
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    ir_value kept, moved;
    if (node->op != IR_WEIGHTED_SUM || node->over_count != 1 ||
        !split_weights(graph, node, &kept, &moved)) {
      pass_copy(&rewrite, (ir_value){i});
      continue;
    }
    bool divides = ir_node_of(graph, node->operands[0])->op == IR_DIV;
    ir_value operands[2] = {pass_mapped(&rewrite, kept), pass_mapped(&rewrite, node->operands[1])};
    ir_value sum =
        ir_build_over(rewrite.graph, IR_WEIGHTED_SUM, 2, operands, node->over[0], IR_F32);
    ir_value factor = pass_mapped(&rewrite, moved);
    if (divides) factor = reciprocal(rewrite.graph, factor);
    pass_replace(&rewrite, (ir_value){i},
                 ir_build_binary(rewrite.graph, IR_MUL, sum, factor, node->type.dtype));
  }
  return pass_rewrite_end(&rewrite);
}
