// structural_hash: when two graphs compute the same thing (ir_hash), and when they are the same
// (ir_equal).
//
// The hash names what it can by order of use, never by name: a value by its place among the live
// nodes, an axis by its first mention. The size of an axis joins the hash at that first mention. An
// attribute counts only where the op table gives the op that attribute, so leftovers in other
// members do no harm.
#include "ir/ir.h"

#include <string.h>

// ---- hash ---------------------------------------------------------------------------------------

typedef struct hasher {
  const ir_graph *graph;
  base_hash hash;
  uint32_t axis_number[IR_MAX_AXES]; // 0: not seen yet
  uint32_t axis_count;
  uint32_t *value_number; // for each node; 0: dead
} hasher;

static void mix(hasher *h, uint64_t word) {
  h->hash = base_hash_combine(h->hash, (base_hash){.low = word});
}

static void mix_bytes(hasher *h, const void *data, size_t length) {
  mix(h, length);
  h->hash = base_hash_combine(h->hash, base_hash_bytes(data, length));
}

static void mix_axes(hasher *h, uint32_t count, const ir_axis *axes) {
  mix(h, count);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t *number = &h->axis_number[axes[i].index];
    bool first = *number == 0;
    if (first) *number = ++h->axis_count;
    mix(h, *number);
    if (first) mix(h, (uint64_t)ir_axis_size(h->graph, axes[i]));
  }
}

static void mix_node(hasher *h, const ir_node *node) {
  uint32_t attributes = ir_op_get(node->op)->attributes;
  mix(h, (uint64_t)node->op);
  mix(h, (uint64_t)node->type.dtype);
  mix_axes(h, node->type.rank, node->type.axes);
  mix(h, node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++)
    mix(h, h->value_number[node->operands[i].index]);
  mix_axes(h, node->over_count, node->over);
  mix_axes(h, node->to_count, node->to);
  if (attributes & IR_ATTR_EPS) mix_bytes(h, &node->eps, sizeof node->eps);
  if (attributes & IR_ATTR_VALUE)
    mix_bytes(h, node->values, node->value_count * sizeof *node->values);
  if (attributes & IR_ATTR_START) mix(h, (uint64_t)node->start);
  if (attributes & IR_ATTR_CALLEE) mix_bytes(h, node->callee.data, node->callee.length);
  mix(h, (uint64_t)node->kernel);
  if (node->op == IR_PARAM) // a layout that says what the type says is no difference
    mix_axes(h, node->type.rank, node->has_layout ? node->layout : node->type.axes);
}

// Marks what the results need. Parameters are the graph's interface: they count even when unused.
static void mark_live(hasher *h) {
  const ir_graph *graph = h->graph;
  for (uint32_t i = 0; i < graph->results.count; i++)
    h->value_number[graph->results.data[i].index] = 1;
  for (uint32_t i = graph->nodes.count; i-- > 0;) {
    const ir_node *node = &graph->nodes.data[i];
    if (node->op == IR_PARAM) h->value_number[i] = 1;
    if (h->value_number[i] == 0) continue;
    for (uint32_t j = 0; j < node->operand_count; j++)
      h->value_number[node->operands[j].index] = 1;
  }
}

base_hash ir_hash(const ir_graph *graph) {
  hasher h = {.graph = graph};
  h.value_number = base_new_array(graph->arena, uint32_t, (size_t)graph->nodes.count + 1);
  mark_live(&h);
  uint32_t live = 0;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    if (h.value_number[i] == 0) continue;
    h.value_number[i] = ++live; // before use: operands come earlier
    mix_node(&h, &graph->nodes.data[i]);
  }
  mix(&h, graph->results.count);
  for (uint32_t i = 0; i < graph->results.count; i++)
    mix(&h, h.value_number[graph->results.data[i].index]);
  return h.hash;
}

// ---- equality -----------------------------------------------------------------------------------

// Axes are the same when name and size are: their indices may differ between graphs.
static bool equal_axes(const ir_graph *a, const ir_axis *x, const ir_graph *b, const ir_axis *y,
                       uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const ir_axis_info *p = &a->axes.data[x[i].index], *q = &b->axes.data[y[i].index];
    if (!base_str_equal(p->name, q->name) || p->size != q->size) return false;
  }
  return true;
}

// Bitwise, so that a NaN equals itself and -0 is not 0.
static bool equal_doubles(const double *x, const double *y, uint32_t count) {
  return count == 0 || memcmp(x, y, count * sizeof *x) == 0;
}

static bool equal_attributes(const ir_node *x, const ir_node *y) {
  uint32_t attributes = ir_op_get(x->op)->attributes;
  if ((attributes & IR_ATTR_EPS) && !equal_doubles(&x->eps, &y->eps, 1)) return false;
  if ((attributes & IR_ATTR_VALUE) &&
      (x->value_count != y->value_count || !equal_doubles(x->values, y->values, x->value_count)))
    return false;
  if ((attributes & IR_ATTR_START) && x->start != y->start) return false;
  return !(attributes & IR_ATTR_CALLEE) || base_str_equal(x->callee, y->callee);
}

static bool equal_values(const ir_value *x, const ir_value *y, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (x[i].index != y[i].index) return false;
  return true;
}

static bool equal_nodes(const ir_graph *a, const ir_node *x, const ir_graph *b, const ir_node *y) {
  return x->op == y->op && base_str_equal(x->name, y->name) && x->kernel == y->kernel &&
         x->type.dtype == y->type.dtype && x->type.rank == y->type.rank &&
         equal_axes(a, x->type.axes, b, y->type.axes, x->type.rank) &&
         x->operand_count == y->operand_count &&
         equal_values(x->operands, y->operands, x->operand_count) &&
         x->over_count == y->over_count && equal_axes(a, x->over, b, y->over, x->over_count) &&
         x->to_count == y->to_count && equal_axes(a, x->to, b, y->to, x->to_count) &&
         equal_attributes(x, y) && x->has_layout == y->has_layout &&
         (!x->has_layout || equal_axes(a, x->layout, b, y->layout, x->type.rank));
}

bool ir_equal(const ir_graph *a, const ir_graph *b) {
  if (!base_str_equal(a->name, b->name) || a->param_count != b->param_count ||
      a->nodes.count != b->nodes.count || a->results.count != b->results.count)
    return false;
  for (uint32_t i = 0; i < a->nodes.count; i++)
    if (!equal_nodes(a, &a->nodes.data[i], b, &b->nodes.data[i])) return false;
  return equal_values(a->results.data, b->results.data, a->results.count);
}
