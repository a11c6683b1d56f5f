// canonicalize: folds, simplifies, merges equal nodes and drops dead ones.
//
//   %one = constant {value = 1} : f32[]          %a = exp %x : f32[N, T]
//   %y = mul %x, %one : f32[N, T]         ->     return %a
//   %a = exp %y : f32[N, T]
//   %b = exp %x : f32[N, T]   (also: every use of %b becomes %a)
//
// Needs nothing, gives CANONICAL. Terminates: every rule of rules.def replaces a node by one of its
// operands or by a constant, so the number of computing nodes falls with each application.
#include <math.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/rewrite.h"

ir_graph *pass_canonicalize(const ir_graph *graph, base_diag *diag);

static const ir_node *operand(const ir_graph *graph, const ir_node *node, uint32_t i) {
  return ir_node_of(graph, node->operands[i]);
}

static bool is_scalar_constant(const ir_node *node) {
  return node->op == IR_CONSTANT && node->value_count == 1;
}

// Zeros differ by their sign: -0 - -0 is 0.
static bool is_constant(const ir_node *node, double value) {
  return is_scalar_constant(node) && node->values[0] == value &&
         !signbit(node->values[0]) == !signbit(value);
}

// True when operand i can stand for the node: same axes and a dtype that rounds
// nothing away.
static bool stands_for(const ir_graph *graph, const ir_node *node, uint32_t i) {
  const ir_type *type = &operand(graph, node, i)->type;
  return type->rank == node->type.rank &&
         memcmp(type->axes, node->type.axes, type->rank * sizeof type->axes[0]) == 0 &&
         type->dtype == node->type.dtype;
}

// ---- rules: each returns true and sets *with to the value that replaces the node ----------------

typedef bool (*rule)(const ir_graph *graph, const ir_node *node, ir_value *with);

static bool identity_right(const ir_graph *graph, const ir_node *node, double value,
                           ir_value *with) {
  if (!is_constant(operand(graph, node, 1), value) || !stands_for(graph, node, 0)) return false;
  *with = node->operands[0];
  return true;
}

static bool identity_left(const ir_graph *graph, const ir_node *node, double value,
                          ir_value *with) {
  if (!is_constant(operand(graph, node, 0), value) || !stands_for(graph, node, 1)) return false;
  *with = node->operands[1];
  return true;
}

static bool mul_one(const ir_graph *graph, const ir_node *node, ir_value *with) {
  return node->op == IR_MUL &&
         (identity_right(graph, node, 1, with) || identity_left(graph, node, 1, with));
}

static bool div_one(const ir_graph *graph, const ir_node *node, ir_value *with) {
  return node->op == IR_DIV && identity_right(graph, node, 1, with);
}

static bool sub_zero(const ir_graph *graph, const ir_node *node, ir_value *with) {
  return node->op == IR_SUB && identity_right(graph, node, 0, with);
}

static bool cast_same(const ir_graph *graph, const ir_node *node, ir_value *with) {
  if (node->op != IR_CAST || !stands_for(graph, node, 0)) return false;
  *with = node->operands[0];
  return true;
}

static bool neg_neg(const ir_graph *graph, const ir_node *node, ir_value *with) {
  if (node->op != IR_NEG || operand(graph, node, 0)->op != IR_NEG) return false;
  const ir_node *inner = operand(graph, node, 0);
  if (!stands_for(graph, node, 0) || !stands_for(graph, inner, 0)) return false;
  *with = inner->operands[0];
  return true;
}

static const struct {
  const char *name;
  rule apply;
} rules[] = {
#define RULE(function, text) {text, function},
#include "passes/rules.def"
#undef RULE
};

static bool simplify(const ir_graph *graph, const ir_node *node, ir_value *with) {
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
    if (rules[i].apply(graph, node, with)) return true;
  return false;
}

// ---- folding ------------------------------------------------------------------------------------

// Map ops whose operands are all axis-free constants become a constant.
static bool fold(pass_rewrite *rewrite, const ir_node *node, ir_value *with) {
  if (ir_op_get(node->op)->shape != IR_SHAPE_MAP || node->type.rank != 0) return false;
  double values[2] = {0, 0};
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_node *from = operand(rewrite->graph, node, i);
    if (!is_scalar_constant(from)) return false;
    values[i] = ir_dtype_round(from->type.dtype, from->values[0]);
  }
  double *result = base_new(rewrite->graph->arena, double);
  *result = ir_dtype_round(node->type.dtype, ir_op_evaluate(node->op, values[0], values[1]));
  ir_node constant = {.op = IR_CONSTANT,
                      .type = node->type,
                      .kernel = IR_NO_KERNEL,
                      .value_count = 1,
                      .values = result,
                      .name = node->name,
                      .loc = node->loc};
  *with = ir_build_node(rewrite->graph, &constant);
  return true;
}

// ---- equal nodes --------------------------------------------------------------------------------

static bool same_axes(uint32_t count, const ir_axis *a, const ir_axis *b) {
  for (uint32_t i = 0; i < count; i++)
    if (a[i].index != b[i].index) return false;
  return true;
}

static bool same_operands(const ir_node *a, const ir_node *b) {
  bool straight = true, swapped = a->operand_count == 2;
  for (uint32_t i = 0; i < a->operand_count; i++) {
    straight &= a->operands[i].index == b->operands[i].index;
    if (swapped) swapped = a->operands[i].index == b->operands[1 - i].index;
  }
  return straight || (swapped && (ir_op_get(a->op)->facts & IR_FACT_COMMUTATIVE));
}

static bool same_node(const ir_node *a, const ir_node *b) {
  if (a->op != b->op || a->operand_count != b->operand_count || a->type.dtype != b->type.dtype ||
      a->type.rank != b->type.rank || a->over_count != b->over_count ||
      a->to_count != b->to_count || a->kernel != b->kernel || a->eps != b->eps ||
      a->start != b->start || a->value_count != b->value_count ||
      (ir_op_get(a->op)->facts & IR_FACT_OPAQUE))
    return false;
  return same_axes(a->type.rank, a->type.axes, b->type.axes) &&
         same_axes(a->over_count, a->over, b->over) && same_axes(a->to_count, a->to, b->to) &&
         same_operands(a, b) &&
         (a->value_count == 0 ||
          memcmp(a->values, b->values, a->value_count * sizeof(double)) == 0);
}

// Linear search is enough: graphs have tens of nodes.
static bool find_equal(const ir_graph *graph, ir_value value, ir_value *with) {
  const ir_node *node = ir_node_of(graph, value);
  if (node->op == IR_PARAM) return false;
  for (uint32_t i = 0; i < value.index; i++)
    if (same_node(&graph->nodes.data[i], node)) {
      *with = (ir_value){i};
      return true;
    }
  return false;
}

// ---- the pass -----------------------------------------------------------------------------------

static ir_graph *drop_dead(const ir_graph *graph) {
  bool *live = base_new_array(graph->arena, bool, graph->nodes.count);
  for (uint32_t i = 0; i < graph->results.count; i++)
    live[graph->results.data[i].index] = true;
  for (uint32_t i = graph->nodes.count; i-- > 0;)
    if (live[i])
      for (uint32_t j = 0; j < graph->nodes.data[i].operand_count; j++)
        live[graph->nodes.data[i].operands[j].index] = true;
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (live[i] || graph->nodes.data[i].op == IR_PARAM) pass_copy(&rewrite, (ir_value){i});
  return pass_rewrite_end(&rewrite);
}

ir_graph *pass_canonicalize(const ir_graph *graph, base_diag *diag) {
  (void)diag;
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    ir_value old = {i}, value = pass_copy(&rewrite, old), with;
    // Results keep a node of their own name: hosts bind tensors to it.
    if (ir_is_result(graph, old)) continue;
    const ir_node *node = ir_node_of(rewrite.graph, value);
    if (simplify(rewrite.graph, node, &with) || fold(&rewrite, node, &with)) value = with;
    if (find_equal(rewrite.graph, value, &with)) value = with;
    pass_set(&rewrite, old, value);
  }
  return drop_dead(pass_rewrite_end(&rewrite));
}
