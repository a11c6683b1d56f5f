// Choosing rows and the hidden axis from structure alone (see rows.h).
#include "passes/rows.h"

#include <math.h>

static bool in_kernel(const ir_node *node, int32_t kernel) {
  if (node->op == IR_PARAM || node->op == IR_CONSTANT) return false;
  return kernel == PASS_WHOLE_GRAPH || node->kernel == kernel;
}

// Nodes a kernel reads from memory: parameters and values of other kernels.
static void mark_inputs(const ir_graph *graph, int32_t kernel, bool *input) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!in_kernel(node, kernel)) continue;
    for (uint32_t j = 0; j < node->operand_count; j++) {
      const ir_node *from = ir_node_of(graph, node->operands[j]);
      if (from->op != IR_CONSTANT && !in_kernel(from, kernel))
        input[node->operands[j].index] = true;
    }
  }
}

static bool is_kernel_result(const ir_graph *graph, uint32_t index, int32_t kernel) {
  if (ir_is_result(graph, (ir_value){index})) return true;
  for (uint32_t i = index + 1; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    for (uint32_t j = 0; j < node->operand_count; j++)
      if (node->operands[j].index == index && !in_kernel(node, kernel)) return true;
  }
  return false;
}

// ---- hidden -------------------------------------------------------------------------------------

// Elements without dynamic axes.
static double fixed_elements(const ir_graph *graph, const ir_type *type) {
  double count = 1;
  for (uint32_t i = 0; i < type->rank; i++) {
    int64_t size = ir_axis_size(graph, type->axes[i]);
    if (size != IR_DYNAMIC) count *= (double)size;
  }
  return count;
}

static const ir_axis *last_fixed_axis(const ir_graph *graph, uint32_t rank, const ir_axis *axes) {
  for (uint32_t i = rank; i-- > 0;)
    if (ir_axis_size(graph, axes[i]) != IR_DYNAMIC) return &axes[i];
  return NULL;
}

// The last axis of the type, or of the memory layout where that is another and longer one.
static uint64_t longest_last_axis(const ir_graph *graph, const ir_node *node) {
  const ir_axis *last = last_fixed_axis(graph, node->type.rank, node->type.axes);
  const ir_axis *inner =
      node->has_layout ? last_fixed_axis(graph, node->type.rank, node->layout) : last;
  if (!last) return 0;
  return ir_axis_bit(ir_axis_size(graph, *inner) > ir_axis_size(graph, *last) ? *inner : *last);
}

// What views make of the hidden axis: a view of a row is a row, whichever of its axes it merges.
// Where there is a choice only the innermost axis joins: it alone is long and contiguous.
static void close_over_views(const ir_graph *graph, int32_t kernel, uint64_t *set) {
  for (uint64_t before = 0; before != *set;) {
    before = *set;
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
      const ir_node *node = &graph->nodes.data[i];
      if (!in_kernel(node, kernel) || !(ir_op_get(node->op)->facts & IR_FACT_VIEW)) continue;
      bool over = *set & ir_axes_set(node->over_count, node->over);
      bool to = *set & ir_axes_set(node->to_count, node->to);
      if (over && !to) *set |= ir_axis_bit(node->to[node->to_count - 1]);
      if (to && !over) *set |= ir_axis_bit(node->over[node->over_count - 1]);
    }
  }
}

uint64_t pass_hidden_axes(const ir_graph *graph, int32_t kernel) {
  bool *input = base_new_array(graph->arena, bool, graph->nodes.count);
  mark_inputs(graph, kernel, input);
  double largest = -1;
  uint64_t hidden = 0;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_type *type = &graph->nodes.data[i].type;
    double elements = fixed_elements(graph, type);
    if (!input[i] || type->rank == 0 || elements <= largest) continue;
    uint64_t last = longest_last_axis(graph, &graph->nodes.data[i]);
    if (!last) continue;
    largest = elements;
    hidden = last;
  }
  close_over_views(graph, kernel, &hidden);
  return hidden;
}

// ---- rows ---------------------------------------------------------------------------------------

static uint64_t kernel_independent_axes(const ir_graph *graph, int32_t kernel, uint64_t hidden) {
  uint64_t used = 0, named = 0, results = ~(uint64_t)0;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!in_kernel(node, kernel)) continue;
    used |= ir_type_axes(&node->type);
    named |= ir_axes_set(node->over_count, node->over) | ir_axes_set(node->to_count, node->to);
    // A list in the text is indexed by the kernel itself, which knows the innermost row only.
    for (uint32_t j = 0; j < node->operand_count; j++)
      if (ir_node_of(graph, node->operands[j])->value_count > 1)
        named |= ir_type_axes(&ir_node_of(graph, node->operands[j])->type);
    // In the whole graph a result without the rows gets a kernel of its own, so it does not veto.
    if (kernel != PASS_WHOLE_GRAPH && is_kernel_result(graph, i, kernel))
      results &= ir_type_axes(&node->type);
  }
  return used & ~named & ~hidden & results;
}

// How much is read again for each index of the axis: the elements of the inputs that lack it.
static double reread_elements(const ir_graph *graph, const bool *input, uint64_t axis) {
  double elements = 0;
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (input[i] && !(ir_type_axes(&graph->nodes.data[i].type) & axis))
      elements += fixed_elements(graph, &graph->nodes.data[i].type);
  return elements;
}

// True when every input that lacks `axis` also lacks `best`: cutting along both costs nothing more.
static bool cut_alike(const ir_graph *graph, const bool *input, uint64_t axis, uint64_t best) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    uint64_t axes = ir_type_axes(&graph->nodes.data[i].type);
    if (input[i] && !(axes & axis) && (axes & best)) return false;
  }
  return true;
}

uint64_t pass_row_axes(const ir_graph *graph, int32_t kernel) {
  bool *input = base_new_array(graph->arena, bool, graph->nodes.count);
  mark_inputs(graph, kernel, input);
  uint64_t candidates = kernel_independent_axes(graph, kernel, pass_hidden_axes(graph, kernel));
  uint64_t rows = 0, best = 0;
  double least = INFINITY;
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    uint64_t axis = ir_axis_bit((ir_axis){i});
    if (!(candidates & axis)) continue;
    bool dynamic = graph->axes.data[i].size == IR_DYNAMIC;
    if (dynamic) rows |= axis;
    double cost = dynamic ? -1 : reread_elements(graph, input, axis);
    if (cost < least) {
      least = cost;
      best = axis;
    }
  }
  rows |= best;
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    uint64_t axis = ir_axis_bit((ir_axis){i});
    if ((candidates & axis) && cut_alike(graph, input, axis, best)) rows |= axis;
  }
  return rows;
}
