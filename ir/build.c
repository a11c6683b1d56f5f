// build: graphs from C. Nothing is checked here (ir_verify does); what could not be stored, such as
// a ninth axis of a result, is left out, and the verifier then finds the type wrong.
#include "ir/ir.h"

#include <assert.h>
#include <string.h>

ir_graph *ir_graph_create(base_arena *arena, base_str name) {
  ir_graph *graph = base_new(arena, ir_graph);
  graph->arena = arena;
  graph->name = base_str_copy(arena, name);
  return graph;
}

ir_axis ir_build_axis(ir_graph *graph, base_str name, int64_t size) {
  ir_axis axis;
  if (!ir_axis_find(graph, name, &axis)) {
    axis.index = graph->axes.count;
    base_push(graph->arena, &graph->axes,
              (ir_axis_info){.name = base_str_copy(graph->arena, name), .size = IR_DYNAMIC});
  }
  if (size != IR_DYNAMIC) graph->axes.data[axis.index].size = size;
  return axis;
}

ir_type ir_build_type(ir_graph *graph, ir_dtype dtype, uint32_t rank, const char *const *axes) {
  ir_type type = {.dtype = dtype};
  for (uint32_t i = 0; i < rank && i < IR_MAX_RANK; i++)
    type.axes[type.rank++] = ir_build_axis(graph, base_str_from(axes[i]), IR_DYNAMIC);
  return type;
}

// ---- nodes --------------------------------------------------------------------------------------

static bool name_taken(const ir_graph *graph, base_str name) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (base_str_equal(graph->nodes.data[i].name, name)) return true;
  return false;
}

// `wanted` itself when it is free, else a name made from it and the number of the node.
static base_str free_name(const ir_graph *graph, base_str wanted) {
  if (wanted.length > 0 && !name_taken(graph, wanted)) return base_str_copy(graph->arena, wanted);
  const char *dot = wanted.length > 0 ? "." : "";
  for (uint32_t number = graph->nodes.count;; number++) {
    const base_str name = base_str_format(graph->arena, "%.*s%s%u", BASE_FMT(wanted), dot, number);
    if (!name_taken(graph, name)) return name;
  }
}

ir_value ir_build_param(ir_graph *graph, base_str name, ir_type type) {
  assert(graph->param_count == graph->nodes.count && "parameters come before other nodes");
  const ir_node node = {.op = IR_PARAM, .type = type, .name = name, .kernel = IR_NO_KERNEL};
  const ir_value value = ir_build_node(graph, &node);
  graph->param_count++;
  return value;
}

ir_value ir_build_node(ir_graph *graph, const ir_node *node) {
  base_arena *arena = graph->arena;
  ir_node copy = *node;
  if (node->operand_count > 0) {
    ir_value *operands = base_new_array(arena, ir_value, node->operand_count);
    memcpy(operands, node->operands, node->operand_count * sizeof *operands);
    copy.operands = operands;
  }
  if (node->value_count > 0) {
    double *values = base_new_array(arena, double, node->value_count);
    memcpy(values, node->values, node->value_count * sizeof *values);
    copy.values = values;
  }
  copy.name = free_name(graph, node->name);
  base_push(arena, &graph->nodes, copy);
  return (ir_value){graph->nodes.count - 1};
}

ir_value ir_build_constant(ir_graph *graph, double value) {
  const ir_node node = {
      .op = IR_CONSTANT, .kernel = IR_NO_KERNEL, .value_count = 1, .values = &value};
  return ir_build_node(graph, &node);
}

// ---- results by shape rule ----------------------------------------------------------------------

// Adds the axes of `more` that `type` lacks, in their order, all but `without` (may be NULL).
static void add_axes(ir_type *type, const ir_type *more, const ir_axis *without) {
  for (uint32_t i = 0; i < more->rank; i++) {
    const ir_axis axis = more->axes[i];
    if (without && axis.index == without->index) continue;
    if (!ir_type_has(type, axis) && type->rank < IR_MAX_RANK) type->axes[type->rank++] = axis;
  }
}

static ir_value build(ir_graph *graph, ir_op op, uint32_t operand_count, const ir_value *operands,
                      const ir_axis *over, ir_dtype dtype) {
  const ir_op_info *info = ir_op_get(op);
  ir_node node = {.op = op,
                  .type.dtype = dtype,
                  .operand_count = operand_count,
                  .operands = operands,
                  .kernel = IR_NO_KERNEL};
  if (info->attributes & IR_ATTR_EPS) node.eps = IR_DEFAULT_EPS;
  if (over) node.over[node.over_count++] = *over;
  const ir_axis *removed = info->shape == IR_SHAPE_REDUCE ? over : NULL;
  for (uint32_t i = 0; i < operand_count; i++)
    add_axes(&node.type, &ir_node_of(graph, operands[i])->type, removed);
  return ir_build_node(graph, &node);
}

ir_value ir_build_unary(ir_graph *graph, ir_op op, ir_value a, ir_dtype dtype) {
  return build(graph, op, 1, &a, NULL, dtype);
}

ir_value ir_build_binary(ir_graph *graph, ir_op op, ir_value a, ir_value b, ir_dtype dtype) {
  return build(graph, op, 2, (ir_value[]){a, b}, NULL, dtype);
}

ir_value ir_build_over(ir_graph *graph, ir_op op, uint32_t operand_count, const ir_value *operands,
                       ir_axis over, ir_dtype dtype) {
  return build(graph, op, operand_count, operands, &over, dtype);
}

void ir_build_result(ir_graph *graph, ir_value value) {
  base_push(graph->arena, &graph->results, value);
}
