// graph: look-ups in types and graphs.
#include "ir/ir.h"

// ---- types --------------------------------------------------------------------------------------

int ir_type_position(const ir_type *type, ir_axis axis) {
  for (uint32_t i = 0; i < type->rank; i++)
    if (type->axes[i].index == axis.index) return (int)i;
  return -1;
}

bool ir_type_has(const ir_type *type, ir_axis axis) {
  return ir_type_position(type, axis) >= 0;
}

uint64_t ir_axis_bit(ir_axis axis) {
  return axis.index < IR_SET_AXES ? UINT64_C(1) << axis.index : 0;
}

uint64_t ir_axes_set(uint32_t count, const ir_axis *axes) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < count; i++)
    set |= ir_axis_bit(axes[i]);
  return set;
}

uint64_t ir_type_axes(const ir_type *type) {
  return ir_axes_set(type->rank, type->axes);
}

// ---- graphs -------------------------------------------------------------------------------------

const ir_node *ir_node_of(const ir_graph *graph, ir_value value) {
  return &graph->nodes.data[value.index];
}

bool ir_param_find(const ir_graph *graph, base_str name, ir_value *value) {
  for (uint32_t i = 0; i < graph->param_count; i++) {
    if (!base_str_equal(graph->nodes.data[i].name, name)) continue;
    *value = (ir_value){i};
    return true;
  }
  return false;
}

bool ir_axis_find(const ir_graph *graph, base_str name, ir_axis *axis) {
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    if (!base_str_equal(graph->axes.data[i].name, name)) continue;
    *axis = (ir_axis){i};
    return true;
  }
  return false;
}

int64_t ir_axis_size(const ir_graph *graph, ir_axis axis) {
  return graph->axes.data[axis.index].size;
}

bool ir_axis_is_used(const ir_graph *graph, ir_axis axis) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (ir_type_has(&graph->nodes.data[i].type, axis)) return true;
  return false;
}

ir_graph *ir_graph_derive(const ir_graph *graph) {
  ir_graph *derived = ir_graph_create(graph->arena, graph->name);
  for (uint32_t i = 0; i < graph->axes.count; i++)
    base_push(derived->arena, &derived->axes, graph->axes.data[i]);
  derived->loc = graph->loc;
  derived->return_loc = graph->return_loc;
  return derived;
}

bool ir_is_result(const ir_graph *graph, ir_value value) {
  for (uint32_t i = 0; i < graph->results.count; i++)
    if (graph->results.data[i].index == value.index) return true;
  return false;
}
