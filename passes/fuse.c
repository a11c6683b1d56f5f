// fuse: gives every computing node a kernel.
//
//   %p = add %prefix, %delta : bf16[T, D]        %p = add %prefix, %delta {kernel = 0} : bf16[T, D]
//   ...                                     ->   ...
//   return %y, %p                                return %y, %p
//
// All that is independent across the rows becomes one kernel, whatever the ops are: legality is the question
// whether an op names a row axis in `over` or `to`, and the op table answers it. Results that do not have
// the rows (a folded weight, say) and what they need form a kernel before it. No [N, T, D] value is ever
// stored: only results and values that pass between kernels are.
//
// Needs CANONICAL and PRIMITIVE, gives FUSED.
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/rows.h"

ir_graph *pass_fuse(const ir_graph *graph, base_diag *diag);

static bool check_opaque(const ir_graph *graph, base_diag *diag) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!(ir_op_get(node->op)->facts & IR_FACT_OPAQUE)) continue;
    base_error_status(diag, BASE_UNSUPPORTED, node->loc,
                      "call @%.*s cannot become part of a kernel", BASE_FMT(node->callee));
    base_hint(diag, "make the parts before and after the call graphs of their own");
    return false;
  }
  return true;
}

static void mark_ancestors(const ir_graph *graph, bool *marked) {
  for (uint32_t i = graph->nodes.count; i-- > 0;)
    if (marked[i])
      for (uint32_t j = 0; j < graph->nodes.data[i].operand_count; j++)
        marked[graph->nodes.data[i].operands[j].index] = true;
}

// A result must be computed by a node that stores it: constants get one.
static ir_graph *store_constant_results(const ir_graph *graph) {
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    pass_copy(&rewrite, (ir_value){i});
  for (uint32_t i = 0; i < graph->results.count; i++) {
    ir_value old = graph->results.data[i], value = pass_mapped(&rewrite, old);
    const ir_node *node = ir_node_of(graph, old);
    if (node->op == IR_CONSTANT || node->op == IR_PARAM) {
      ir_node copy = {.op = IR_CAST,
                      .type = node->type,
                      .operand_count = 1,
                      .operands = &value,
                      .kernel = IR_NO_KERNEL,
                      .loc = node->loc};
      value = ir_build_node(rewrite.graph, &copy);
      // Hosts bind the result by its name, so the name goes with it.
      ir_node *nodes = rewrite.graph->nodes.data;
      base_str fresh = nodes[value.index].name;
      nodes[value.index].name = node->name;
      if (node->op == IR_CONSTANT) nodes[pass_mapped(&rewrite, old).index].name = fresh;
    }
    ir_build_result(rewrite.graph, value);
  }
  return rewrite.graph;
}

ir_graph *pass_fuse(const ir_graph *graph, base_diag *diag) {
  if (!check_opaque(graph, diag)) return NULL;
  ir_graph *result = store_constant_results(graph);
  uint64_t rows = pass_row_axes(result, PASS_WHOLE_GRAPH);
  bool *first = base_new_array(result->arena, bool, result->nodes.count);
  bool any_first = false, all_first = true;
  for (uint32_t i = 0; i < result->results.count; i++) {
    ir_value value = result->results.data[i];
    bool lacks = (ir_type_axes(&ir_node_of(result, value)->type) & rows) != rows;
    first[value.index] = lacks;
    any_first |= lacks;
    all_first &= lacks;
  }
  mark_ancestors(result, first);
  int32_t last = any_first && !all_first ? 1 : 0;
  for (uint32_t i = 0; i < result->nodes.count; i++) {
    ir_node *node = &result->nodes.data[i];
    if (node->op != IR_PARAM && node->op != IR_CONSTANT) node->kernel = first[i] ? 0 : last;
  }
  return result;
}
