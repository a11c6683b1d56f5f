// Lowering: what each value is computed over. The steps share these answers.
#include "passes/lower.h"

bool pass_is_reduction(const ir_node *node) {
  return ir_op_get(node->op)->shape == IR_SHAPE_REDUCE;
}

static uint32_t operand_domain(const pass_lowering *lowering, const ir_node *node, ir_axis *axes) {
  // The operand with the most axes gives the loop order, the others add theirs.
  uint32_t widest = 0, count = 0;
  for (uint32_t i = 1; i < node->operand_count; i++)
    if (ir_node_of(lowering->graph, node->operands[i])->type.rank >
        ir_node_of(lowering->graph, node->operands[widest])->type.rank)
      widest = i;
  const ir_node *first = ir_node_of(lowering->graph, node->operands[widest]);
  count = kir_refine(lowering->kernel, &first->type, axes, 0);
  for (uint32_t i = 0; i < node->operand_count; i++)
    count = kir_refine(lowering->kernel, &ir_node_of(lowering->graph, node->operands[i])->type,
                       axes, count);
  return count;
}

static bool is_row_type(const pass_lowering *lowering, const ir_type *type) {
  return (ir_type_axes(type) & lowering->hidden) != 0;
}

// What another kernel reduced is memory to this one.
static bool reduces_here(const pass_lowering *lowering, ir_value value) {
  return lowering->member[value.index] && pass_is_reduction(ir_node_of(lowering->graph, value));
}

// True for a reduction whose operands are row values.
static bool reduces_rows(const pass_lowering *lowering, ir_value value) {
  const ir_node *node = ir_node_of(lowering->graph, value);
  if (!reduces_here(lowering, value)) return false;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (is_row_type(lowering, &ir_node_of(lowering->graph, node->operands[i])->type)) return true;
  return false;
}

bool pass_is_staged(const pass_lowering *lowering, ir_value value) {
  const ir_node *node = ir_node_of(lowering->graph, value);
  return reduces_rows(lowering, value) &&
         (ir_axes_set(node->over_count, node->over) & lowering->hidden);
}

uint32_t pass_domain(const pass_lowering *lowering, ir_value value, ir_axis *axes,
                     uint64_t *accumulates) {
  const ir_node *node = ir_node_of(lowering->graph, value);
  *accumulates = 0;
  bool staged = pass_is_staged(lowering, value);
  bool scalar = reduces_here(lowering, value) && !reduces_rows(lowering, value);
  if (!staged && !scalar) return kir_refine(lowering->kernel, &node->type, axes, 0);
  ir_axis result[KIR_MAX_LOOPS];
  uint32_t result_count = kir_refine(lowering->kernel, &node->type, result, 0);
  uint32_t count = operand_domain(lowering, node, axes), kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool in_result = false;
    for (uint32_t j = 0; j < result_count; j++)
      in_result |= result[j].index == axes[i].index;
    // Of a staged reduction only hidden axes (and factors of them) are loops; sources are summed in
    // the point.
    const ir_axis axis = axes[i];
    bool mixed = !in_result && staged && lowering->kernel->axes[axis.index].source &&
                 !lowering->kernel->axes[axis.index].hidden;
    if (mixed) continue;
    if (!in_result) *accumulates |= ir_axis_bit(axis);
    axes[kept++] = axis;
  }
  return kept;
}

int32_t pass_lane(const pass_lowering *lowering, ir_value value, const ir_axis *axes,
                  uint32_t count) {
  const kir_axis *info = lowering->kernel->axes;
  if (pass_is_staged(lowering, value) && lowering->kernel->schedule.lanes == KIR_LANES_QUERY) {
    // Queries: the result's axis that only the packed operand has.
    const ir_node *node = ir_node_of(lowering->graph, value);
    for (int32_t i = (int32_t)count - 1; i >= 0; i--)
      for (uint32_t j = 0; j < node->operand_count; j++)
        if (lowering->packed[node->operands[j].index] & ir_axis_bit(axes[i]) &
            ir_type_axes(&node->type))
          return i;
  }
  for (int32_t i = (int32_t)count - 1; i >= 0; i--)
    if (info[axes[i].index].hidden) return i;
  int32_t longest = -1;
  for (uint32_t i = 0; i < count; i++)
    if (longest < 0 || info[axes[i].index].size >= info[axes[longest].index].size)
      longest = (int32_t)i;
  return longest;
}
