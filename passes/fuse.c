// fuse: gives every computing node a kernel.
//
//   %p = add %prefix, %delta : bf16[T, D]        %p = add %prefix, %delta {kernel = 0} : bf16[T, D]
//   ...                                     ->   ...
//   return %y, %p                                return %y, %p
//
// All that is independent across the rows becomes one kernel, whatever the ops are: legality is the
// question whether an op names a row axis in `over` or `to`, and the op table answers it. Results
// that have fewer of the rows (a folded weight has none) form kernels before it, one for each set
// of rows; what several kernels need is computed by the one that has just its rows. No [N, T, D]
// value is ever stored: only results and values that pass between kernels are.
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

// ---- kernels ------------------------------------------------------------------------------------

typedef struct grouping {
  const ir_graph *graph;
  uint64_t rows;
  uint64_t *key;        // for each node, the rows of its kernel
  bool *used, *settled; // some user has a say; it is the node's own rows that count
} grouping;

static bool is_computed(const ir_node *node) {
  return node->op != IR_PARAM && node->op != IR_CONSTANT;
}

static void use(grouping *g, uint32_t operand, uint64_t key) {
  if (g->used[operand] && g->key[operand] != key) g->settled[operand] = true;
  g->used[operand] = true;
  g->key[operand] = key;
}

// From users to operands: a value goes to the kernel of its users when they agree. A result, and a
// value of several kernels, is stored, so its kernel must have the rows of its type and no others.
static grouping group_by_rows(const ir_graph *graph, uint64_t rows) {
  uint32_t count = graph->nodes.count;
  grouping g = {.graph = graph,
                .rows = rows,
                .key = base_new_array(graph->arena, uint64_t, count),
                .used = base_new_array(graph->arena, bool, count),
                .settled = base_new_array(graph->arena, bool, count)};
  for (uint32_t i = 0; i < graph->results.count; i++)
    g.settled[graph->results.data[i].index] = true;
  for (uint32_t i = count; i-- > 0;) {
    const ir_node *node = &graph->nodes.data[i];
    if (g.settled[i] || !g.used[i]) g.key[i] = ir_type_axes(&node->type) & rows;
    for (uint32_t j = 0; j < node->operand_count; j++)
      use(&g, node->operands[j].index, g.key[i]);
  }
  return g;
}

// Operands have the rows of their users or fewer, so kernels with fewer rows run first.
static bool runs_before(uint64_t a, uint64_t b) {
  int rows_a = __builtin_popcountll(a), rows_b = __builtin_popcountll(b);
  return rows_a != rows_b ? rows_a < rows_b : a < b;
}

// The number of kernels that run before the one of node `index`.
static int32_t kernel_number(const grouping *g, uint32_t index) {
  int32_t number = 0;
  for (uint32_t i = 0; i < g->graph->nodes.count; i++) {
    bool first = is_computed(&g->graph->nodes.data[i]) && runs_before(g->key[i], g->key[index]);
    for (uint32_t j = 0; j < i && first; j++)
      first = !is_computed(&g->graph->nodes.data[j]) || g->key[j] != g->key[i];
    number += first;
  }
  return number;
}

ir_graph *pass_fuse(const ir_graph *graph, base_diag *diag) {
  if (!check_opaque(graph, diag)) return NULL;
  ir_graph *result = store_constant_results(graph);
  grouping g = group_by_rows(result, pass_row_axes(result, PASS_WHOLE_GRAPH));
  for (uint32_t i = 0; i < result->nodes.count; i++) {
    ir_node *node = &result->nodes.data[i];
    if (is_computed(node)) node->kernel = kernel_number(&g, i);
  }
  return result;
}
