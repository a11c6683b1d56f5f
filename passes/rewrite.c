// The walk every pass makes (see rewrite.h).
#include "passes/rewrite.h"

#include <string.h>

pass_rewrite pass_rewrite_begin(const ir_graph *old) {
  pass_rewrite rewrite = {.old = old, .graph = ir_graph_derive(old)};
  rewrite.map = base_new_array(old->arena, ir_value, old->nodes.count);
  return rewrite;
}

ir_value pass_mapped(const pass_rewrite *rewrite, ir_value old) {
  return rewrite->map[old.index];
}

void pass_set(pass_rewrite *rewrite, ir_value old, ir_value new_value) {
  rewrite->map[old.index] = new_value;
}

// A node that stands for an old one bears its name: people wrote it, and hosts bind results by it.
// Builders may have given the name to a node in between, which then takes this one's.
static void claim_name(ir_graph *graph, ir_value value, base_str name) {
  ir_node *node = &graph->nodes.data[value.index];
  for (uint32_t i = graph->param_count; i < graph->nodes.count; i++)
    if (i != value.index && base_str_equal(graph->nodes.data[i].name, name))
      graph->nodes.data[i].name = node->name;
  node->name = name;
}

ir_value pass_copy(pass_rewrite *rewrite, ir_value old) {
  ir_node node = *ir_node_of(rewrite->old, old);
  ir_value *operands = base_new_array(rewrite->graph->arena, ir_value, node.operand_count);
  for (uint32_t i = 0; i < node.operand_count; i++)
    operands[i] = pass_mapped(rewrite, node.operands[i]);
  node.operands = operands;
  ir_value value = node.op == IR_PARAM ? ir_build_param(rewrite->graph, node.name, node.type)
                                       : ir_build_node(rewrite->graph, &node);
  if (node.op == IR_PARAM)
    rewrite->graph->nodes.data[value.index] = node; // layout and place too
  else
    claim_name(rewrite->graph, value, node.name);
  pass_set(rewrite, old, value);
  return value;
}

static bool same_type(const ir_type *a, const ir_type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->axes[i].index != b->axes[i].index) return false;
  return true;
}

void pass_replace(pass_rewrite *rewrite, ir_value old, ir_value new_value) {
  const ir_node *wanted = ir_node_of(rewrite->old, old);
  if (!same_type(&wanted->type, &ir_node_of(rewrite->graph, new_value)->type)) {
    ir_node cast = {.op = IR_CAST,
                    .type = wanted->type,
                    .operand_count = 1,
                    .operands = &new_value,
                    .kernel = IR_NO_KERNEL,
                    .loc = wanted->loc};
    new_value = ir_build_node(rewrite->graph, &cast);
  }
  bool fresh = new_value.index + 1 == rewrite->graph->nodes.count;
  if (fresh && ir_node_of(rewrite->graph, new_value)->op != IR_PARAM)
    claim_name(rewrite->graph, new_value, wanted->name);
  pass_set(rewrite, old, new_value);
}

ir_graph *pass_rewrite_end(pass_rewrite *rewrite) {
  for (uint32_t i = 0; i < rewrite->old->results.count; i++)
    ir_build_result(rewrite->graph, pass_mapped(rewrite, rewrite->old->results.data[i]));
  return rewrite->graph;
}
