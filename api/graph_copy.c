// graph_copy: deep copies of graphs. A compilation works on a copy in an arena of its own, so that
// it neither changes the user's graph nor leaves garbage beside it, and an executable outlives the
// module it came from.
#include <string.h>

#include "api/api.h"

static const void *copy_array(base_arena *arena, const void *data, size_t count, size_t size) {
  if (data == NULL) return NULL;
  void *copy = base_alloc_array(arena, count, size);
  if (count > 0) memcpy(copy, data, count * size);
  return copy;
}

static ir_node copy_node(base_arena *arena, const ir_node *node) {
  ir_node copy = *node;
  copy.operands = copy_array(arena, node->operands, node->operand_count, sizeof *node->operands);
  copy.values = copy_array(arena, node->values, node->value_count, sizeof *node->values);
  copy.operand_locs =
      copy_array(arena, node->operand_locs, node->operand_count, sizeof *node->operand_locs);
  copy.callee = base_str_copy(arena, node->callee);
  copy.name = base_str_copy(arena, node->name);
  return copy;
}

ir_graph *api_graph_copy(base_arena *arena, const ir_graph *graph) {
  ir_graph *copy = ir_graph_create(arena, base_str_copy(arena, graph->name));
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    ir_axis_info axis = graph->axes.data[i];
    axis.name = base_str_copy(arena, axis.name);
    base_push(arena, &copy->axes, axis);
  }
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    base_push(arena, &copy->nodes, copy_node(arena, &graph->nodes.data[i]));
  for (uint32_t i = 0; i < graph->results.count; i++)
    base_push(arena, &copy->results, graph->results.data[i]);
  copy->param_count = graph->param_count;
  copy->loc = graph->loc;
  copy->return_loc = graph->return_loc;
  copy->result_locs =
      copy_array(arena, graph->result_locs, graph->results.count, sizeof *graph->result_locs);
  return copy;
}

ir_graph *api_graph_open(api_call *call, const fathom_graph *graph) {
  base_diag_init(&call->diag, &call->arena, graph->module->file, graph->module->source);
  return api_graph_copy(&call->arena, graph->ir);
}

const fathom_graph *api_graph_handle(api_call *call, const ir_graph *graph) {
  fathom_module *module = base_new(&call->arena, fathom_module);
  fathom_graph *handle = base_new(&call->arena, fathom_graph);
  *module = (fathom_module){.context = call->context, .count = 1, .graphs = handle};
  *handle = (fathom_graph){.module = module, .ir = api_graph_copy(&call->arena, graph)};
  return handle;
}
