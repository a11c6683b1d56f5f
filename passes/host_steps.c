// Steps of the host, and what does not wait for them (see depth.h).
#include "passes/depth.h"

bool pass_is_call(const ir_node *node) {
  return (ir_op_get(node->op)->facts & IR_FACT_OPAQUE) != 0;
}

uint32_t *pass_host_steps(const ir_graph *graph) {
  uint32_t *steps = base_new_array(graph->arena, uint32_t, graph->nodes.count + 1);
  uint32_t last = 0; // of the calls so far
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    for (uint32_t j = 0; j < node->operand_count; j++) {
      const uint32_t operand = node->operands[j].index;
      const uint32_t ready = steps[operand] + pass_is_call(&graph->nodes.data[operand]);
      if (ready > steps[i]) steps[i] = ready;
    }
    if (!pass_is_call(node)) continue;
    if (steps[i] < last) steps[i] = last;
    last = steps[i];
  }
  return steps;
}

static bool has_dynamic_axis(const ir_graph *graph, const ir_type *type) {
  for (uint32_t i = 0; i < type->rank; i++)
    if (ir_axis_size(graph, type->axes[i]) == IR_DYNAMIC) return true;
  return false;
}

bool *pass_fixed_values(const ir_graph *graph) {
  bool *fixed = base_new_array(graph->arena, bool, graph->nodes.count + 1);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    fixed[i] = !pass_is_call(node) && !has_dynamic_axis(graph, &node->type);
    for (uint32_t j = 0; j < node->operand_count; j++)
      fixed[i] &= fixed[node->operands[j].index];
  }
  return fixed;
}
