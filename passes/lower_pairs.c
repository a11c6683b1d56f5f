// Lowering, step 5: may bf16 rows be read as pairs?
//
// Element order within a row does not matter to sums and elementwise work, as long as every sweep
// keeps to the same order. So two neighbouring vectors can hold the even and the odd elements of
// their stretch: widening costs one operation a vector instead of two. Not when an op counts along
// the hidden axis (views of it, lists), or when a sweep walks it one element at a time.
#include "passes/lower.h"

static bool views_hidden(const pass_lowering *lowering, const ir_node *node) {
  uint64_t named =
      ir_axes_set(node->over_count, node->over) | ir_axes_set(node->to_count, node->to);
  return (ir_op_get(node->op)->facts & IR_FACT_VIEW) && (named & lowering->hidden);
}

static bool lists_hidden(const pass_lowering *lowering, const ir_node *node) {
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_node *operand = ir_node_of(lowering->graph, node->operands[i]);
    if (operand->op == IR_CONSTANT && (ir_type_axes(&operand->type) & lowering->hidden))
      return true;
  }
  return false;
}

// The order of the row's elements is nobody's business.
static bool order_is_free(const pass_lowering *lowering) {
  if (!lowering->hidden || (lowering->hidden & (lowering->hidden - 1))) return false;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (lowering->packed[i] != 0) return false;
    if (lowering->member[i] && (views_hidden(lowering, node) || lists_hidden(lowering, node)))
      return false;
  }
  for (uint32_t i = 0; i < lowering->kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &lowering->kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->loop_count; j++)
      if (((lowering->hidden >> sweep->loops[j].index) & 1) && (int32_t)j != sweep->lane)
        return false;
  }
  return true;
}

// Most of what a row reads is bf16.
static bool reads_bf16(const pass_lowering *lowering) {
  int64_t bf16 = 0, other = 0;
  for (uint32_t i = 0; i < lowering->kernel->args.count; i++) {
    const kir_arg *arg = &lowering->kernel->args.data[i];
    const ir_type *type = &ir_node_of(lowering->graph, arg->value)->type;
    if (arg->written || !(ir_type_axes(type) & lowering->hidden)) continue;
    int64_t slices = arg->sliced ? lowering->kernel->axes[type->axes[0].index].size : 1;
    *(type->dtype == IR_BF16 ? &bf16 : &other) += slices;
  }
  return bf16 > other;
}

void pass_lower_pairs(pass_lowering *lowering) {
  const kir_schedule *schedule = &lowering->kernel->schedule;
  lowering->kernel->paired = schedule->pair && schedule->unroll % 2 == 0 && schedule->vector != 1 &&
                             reads_bf16(lowering) && order_is_free(lowering);
}
