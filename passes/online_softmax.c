// online-softmax: expands softmax and logsumexp into the statistics that a running softmax keeps.
//
//   %a = softmax %z over N   : f32[N, T]         %m = reduce_max %z over N, clamped : f32[T]
//   %l = logsumexp %z over N : f32[T]       ->   %e = exp (%z - %m)                 : f32[N, T]
//                                                %s = sum %e over N                 : f32[T]
//                                                %a = div %e, (%s + (%s - %s))      : f32[N, T]
//                                                %l = add (log %s), %m              : f32[T]
//
// With m the largest logit no exponential overflows, whatever the logits. Infinite logits come out
// as in PyTorch because m is clamped to the finite f32: when every source is masked (-inf) the sum
// is 0, its logarithm -inf and the weights 0/0; with a logit of +inf the sum is inf, so its
// logarithm is, and s - s makes every weight NaN (it adds 0 to any finite sum). softmax and
// logsumexp of the same logits share m, e and s once canonicalize has merged them.
//
// Needs nothing; leaves no softmax and no logsumexp.
#include <float.h>

#include "passes/passes.h"
#include "passes/rewrite.h"

ir_graph *pass_online_softmax(const ir_graph *graph, base_diag *diag);

typedef struct softmax_statistics {
  ir_value maximum, exponentials, sum;
} softmax_statistics;

static softmax_statistics build_statistics(ir_graph *graph, ir_value logits, ir_axis over) {
  ir_value largest = ir_build_over(graph, IR_REDUCE_MAX, 1, &logits, over, IR_F32);
  ir_value lowest = ir_build_constant(graph, -(double)FLT_MAX);
  ir_value above = ir_build_binary(graph, IR_MAX, largest, lowest, IR_F32);
  // min(m, highest) = -max(-m, lowest)
  ir_value negative = ir_build_unary(graph, IR_NEG, above, IR_F32);
  ir_value within = ir_build_binary(graph, IR_MAX, negative, lowest, IR_F32);
  ir_value maximum = ir_build_unary(graph, IR_NEG, within, IR_F32);
  ir_value shifted = ir_build_binary(graph, IR_SUB, logits, maximum, IR_F32);
  ir_value exponentials = ir_build_unary(graph, IR_EXP, shifted, IR_F32);
  ir_value sum = ir_build_over(graph, IR_SUM, 1, &exponentials, over, IR_F32);
  return (softmax_statistics){maximum, exponentials, sum};
}

ir_graph *pass_online_softmax(const ir_graph *graph, base_diag *diag) {
  (void)diag;
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (node->op != IR_SOFTMAX && node->op != IR_LOGSUMEXP) {
      pass_copy(&rewrite, (ir_value){i});
      continue;
    }
    ir_value logits = pass_mapped(&rewrite, node->operands[0]);
    softmax_statistics stats = build_statistics(rewrite.graph, logits, node->over[0]);
    ir_dtype dtype = node->type.dtype;
    ir_value value;
    if (node->op == IR_SOFTMAX) {
      ir_value nothing = ir_build_binary(rewrite.graph, IR_SUB, stats.sum, stats.sum, IR_F32);
      ir_value sum = ir_build_binary(rewrite.graph, IR_ADD, stats.sum, nothing, IR_F32);
      value = ir_build_binary(rewrite.graph, IR_DIV, stats.exponentials, sum, dtype);
    } else {
      ir_value log = ir_build_unary(rewrite.graph, IR_LOG, stats.sum, IR_F32);
      value = ir_build_binary(rewrite.graph, IR_ADD, log, stats.maximum, dtype);
    }
    pass_replace(&rewrite, (ir_value){i}, value);
  }
  return pass_rewrite_end(&rewrite);
}
