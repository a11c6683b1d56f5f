// factor-norm: expands rms_norm and moves what does not depend on the reduced axis out of dot.
//
//   %k = rms_norm %v, %g over D : f32[N, T, D]        %s = mean (%v * %v) over D     : f32[N, T]
//   %z = dot %k, %q over D      : f32[N, T]      ->   %r = rsqrt (%s + eps)          : f32[N, T]
//                                                     %w = mul %q, %g                : f32[D]
//                                                     %d = dot %v, %w over D         : f32[N, T]
//                                                     %z = mul %d, %r                : f32[N, T]
//
// Both sums need only v, so one read of v yields both; and g * q has no token axis, so it is
// computed once. Works on the factors of any product under a dot: a query norm, a scale, a
// per-token gain move out the same way, also through a cast that only orders axes. A product whose
// type rounds (bf16, f16) is one factor: rounding points are semantics.
//
// Needs nothing; leaves no rms_norm. Terminates: each node of the old graph is visited once.
#include "passes/passes.h"
#include "passes/rewrite.h"

ir_graph *pass_factor_norm(const ir_graph *graph, base_diag *diag);

// Of no elements there is no mean, and nothing to scale.
static ir_value expand_empty_norm(ir_graph *graph, const ir_node *node, const ir_value *operands) {
  if (node->operand_count == 2)
    return ir_build_binary(graph, IR_MUL, operands[0], operands[1], node->type.dtype);
  return ir_build_unary(graph, IR_CAST, operands[0], node->type.dtype);
}

static ir_value expand_rms_norm(ir_graph *graph, const ir_node *node, const ir_value *operands) {
  if (ir_axis_size(graph, node->over[0]) == 0) return expand_empty_norm(graph, node, operands);
  ir_value x = operands[0];
  ir_value square = ir_build_binary(graph, IR_MUL, x, x, IR_F32);
  ir_value mean = ir_build_over(graph, IR_MEAN, 1, &square, node->over[0], IR_F32);
  ir_value eps = ir_build_constant(graph, node->eps);
  ir_value shifted = ir_build_binary(graph, IR_ADD, mean, eps, IR_F32);
  ir_value scale = ir_build_unary(graph, IR_RSQRT, shifted, IR_F32);
  bool gain = node->operand_count == 2;
  ir_value normed = ir_build_binary(graph, IR_MUL, x, scale, gain ? IR_F32 : node->type.dtype);
  return gain ? ir_build_binary(graph, IR_MUL, normed, operands[1], node->type.dtype) : normed;
}

// ---- dot ----------------------------------------------------------------------------------------

typedef BASE_VECTOR(ir_value) factor_list;

// A product of products of the same values has exponentially many factors; past this many, or this
// deep, the rest stays whole.
enum { MANY_FACTORS = 16, DEEP = 64 };

// A cast from f32 to f32 computes nothing.
static bool only_orders_axes(const ir_graph *graph, const ir_node *node) {
  return node->op == IR_CAST && node->type.dtype == IR_F32 &&
         ir_node_of(graph, node->operands[0])->type.dtype == IR_F32;
}

// The factors of a product, down to values that round or are no product.
static void collect_factors(ir_graph *graph, ir_value value, uint32_t depth, factor_list *factors) {
  const ir_node *node = ir_node_of(graph, value);
  bool opens = depth < DEEP && factors->count < MANY_FACTORS;
  if (node->op == IR_MUL && node->type.dtype == IR_F32 && opens) {
    collect_factors(graph, node->operands[0], depth + 1, factors);
    collect_factors(graph, ir_node_of(graph, value)->operands[1], depth + 1, factors);
  } else if (only_orders_axes(graph, node) && opens) {
    collect_factors(graph, node->operands[0], depth + 1, factors);
  } else {
    base_push(graph->arena, factors, value);
  }
}

static uint64_t axes_of(const ir_graph *graph, ir_value value) {
  return ir_type_axes(&ir_node_of(graph, value)->type);
}

static ir_value product(ir_graph *graph, const factor_list *factors) {
  ir_value result = factors->data[0];
  for (uint32_t i = 1; i < factors->count; i++)
    result = ir_build_binary(graph, IR_MUL, result, factors->data[i], IR_F32);
  return result;
}

// Takes the factor with the most axes out of the list: the operand that stays bare.
static ir_value take_widest(const ir_graph *graph, factor_list *factors) {
  uint32_t widest = 0;
  for (uint32_t i = 1; i < factors->count; i++)
    if (ir_node_of(graph, factors->data[i])->type.rank >
        ir_node_of(graph, factors->data[widest])->type.rank)
      widest = i;
  ir_value value = factors->data[widest];
  for (uint32_t i = widest + 1; i < factors->count; i++)
    factors->data[i - 1] = factors->data[i];
  factors->count--;
  return value;
}

static ir_value reduce(ir_graph *graph, ir_op op, const ir_node *like, uint32_t count,
                       const ir_value *operands) {
  ir_value value = ir_build_over(graph, op, count, operands, like->over[0], IR_F32);
  if (like->over_count == 1) return value;
  // ir_build_over takes one axis; the others are added to the node it made.
  ir_node *node = &graph->nodes.data[value.index];
  uint64_t gone = ir_axes_set(like->over_count, like->over);
  uint32_t rank = 0;
  for (uint32_t i = 0; i < node->type.rank; i++)
    if (!(ir_axis_bit(node->type.axes[i]) & gone)) node->type.axes[rank++] = node->type.axes[i];
  node->type.rank = rank;
  node->over_count = like->over_count;
  for (uint32_t i = 0; i < like->over_count; i++)
    node->over[i] = like->over[i];
  return value;
}

static ir_value sum_of_rows(ir_graph *graph, const ir_node *node, factor_list *rows) {
  ir_value widest = take_widest(graph, rows);
  if (rows->count == 0) return reduce(graph, IR_SUM, node, 1, &widest);
  ir_value operands[2] = {widest, product(graph, rows)};
  uint64_t over = ir_axes_set(node->over_count, node->over);
  if ((axes_of(graph, operands[0]) & over) == over && (axes_of(graph, operands[1]) & over) == over)
    return reduce(graph, IR_DOT, node, 2, operands);
  ir_value whole = ir_build_binary(graph, IR_MUL, operands[0], operands[1], IR_F32);
  return reduce(graph, IR_SUM, node, 1, &whole);
}

// False when there is nothing to move.
static bool factor_dot(ir_graph *graph, const ir_node *node, const ir_value *operands,
                       ir_value *result) {
  factor_list all = {0}, rows = {0}, scalars = {0};
  collect_factors(graph, operands[0], 0, &all);
  collect_factors(graph, operands[1], 0, &all);
  if (all.count == 2) return false;
  uint64_t over = ir_axes_set(node->over_count, node->over);
  for (uint32_t i = 0; i < all.count; i++)
    base_push(graph->arena, axes_of(graph, all.data[i]) & over ? &rows : &scalars, all.data[i]);
  ir_value value = sum_of_rows(graph, node, &rows);
  for (uint32_t i = 0; i < scalars.count; i++) {
    bool last = i + 1 == scalars.count;
    value =
        ir_build_binary(graph, IR_MUL, value, scalars.data[i], last ? node->type.dtype : IR_F32);
  }
  *result = value;
  return true;
}

ir_graph *pass_factor_norm(const ir_graph *graph, base_diag *diag) {
  (void)diag;
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    ir_value operands[2], value;
    for (uint32_t j = 0; j < node->operand_count && j < 2; j++)
      operands[j] = pass_mapped(&rewrite, node->operands[j]);
    if (node->op == IR_RMS_NORM)
      pass_replace(&rewrite, (ir_value){i}, expand_rms_norm(rewrite.graph, node, operands));
    else if (node->op == IR_DOT && factor_dot(rewrite.graph, node, operands, &value))
      pass_replace(&rewrite, (ir_value){i}, value);
    else
      pass_copy(&rewrite, (ir_value){i});
  }
  return pass_rewrite_end(&rewrite);
}
