// split-logits: the logits of many queries get a kernel of their own, before the rest.
//
//   %w = mul %gain, %query {kernel = 0}        %w = mul %gain, %query {kernel = 0}
//   %z = dot %v, %w over D {kernel = 0}   ->   %z = dot %v, %w over D {kernel = 1}
//   %a = ... %z {kernel = 0}                   %a = ... %z {kernel = 2}
//   %o = weighted_sum %a, %v {kernel = 0}      %o = weighted_sum %a, %v {kernel = 2}
//
// %z is then a plain product of matrices, which tensor cores or a library can compute; the price is
// that the sources %v are read once more. A dot is taken when one operand is rows of memory, seen
// through views at most, and the other has queries and none of the rows. Queries that are computed,
// or do not have the hidden axis innermost, get a kernel as well. So does a source that is a result
// made element by element, such as the running prefix: then it is memory. What both sides need
// (views, mostly) is there twice; kernels behind move up.
//
// Needs FUSED and leaves it so; a graph without such a dot keeps its kernels. In no pipeline: the
// cuda target runs it when the schedule asks for it.
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/rows.h"

ir_graph *pass_split_logits(const ir_graph *graph, base_diag *diag);

// Of a kernel of the old graph.
typedef struct old_kernel {
  uint64_t rows, hidden;
  int32_t next; // number of the next kernel that is made of it; the last one is the rest
} old_kernel;

typedef struct splitting {
  pass_rewrite rewrite;
  const ir_graph *old;
  old_kernel *kernels;
  // Of each node:
  int32_t *rows_of;  // a dot that is split off: which operand has the rows; else -1
  bool *elementwise; // computed in its kernel from memory, element by element
  bool *views;       // of memory, or of elementwise results; through views at most
  bool *early;       // such a result, which gets a kernel of its own
  bool *needed;      // by the rest of its kernel, or by another one
  bool *cloned;      // for a kernel that is split off
} splitting;

static bool is_stored(const ir_node *node) {
  return node->op == IR_PARAM || node->op == IR_CONSTANT;
}

// Is the value there when what is made of the kernel begins?
static bool is_memory(const splitting *s, ir_value value, int32_t kernel) {
  const ir_node *node = ir_node_of(s->old, value);
  return node->op == IR_PARAM || s->early[value.index] ||
         (node->op != IR_CONSTANT && node->kernel != kernel);
}

static bool is_split(const splitting *s, uint32_t index) {
  return s->rows_of[index] >= 0 || s->early[index];
}

static uint64_t axes_of(const splitting *s, ir_value value) {
  return ir_type_axes(&ir_node_of(s->old, value)->type);
}

// ---- which dots ---------------------------------------------------------------------------------

static bool is_elementwise(const splitting *s, const ir_node *node) {
  const ir_op_info *info = ir_op_get(node->op);
  if (info->shape != IR_SHAPE_MAP && !(info->facts & IR_FACT_VIEW)) return false;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    ir_value operand = node->operands[i];
    if (!is_stored(ir_node_of(s->old, operand)) && !is_memory(s, operand, node->kernel) &&
        !s->elementwise[operand.index])
      return false;
  }
  return true;
}

static bool may_be_early(const splitting *s, ir_value value) {
  return s->elementwise[value.index] && ir_is_result(s->old, value) &&
         (axes_of(s, value) & s->kernels[ir_node_of(s->old, value)->kernel].rows);
}

static bool is_source(const splitting *s, ir_value value, int32_t kernel) {
  return is_memory(s, value, kernel) || s->views[value.index] || may_be_early(s, value);
}

static bool is_view(const splitting *s, const ir_node *node) {
  if (!(ir_op_get(node->op)->facts & IR_FACT_VIEW)) return false;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (!is_source(s, node->operands[i], node->kernel) ||
        ir_node_of(s->old, node->operands[i])->type.dtype != node->type.dtype)
      return false;
  return true;
}

static bool is_dynamic(const splitting *s, ir_value value) {
  const ir_type *type = &ir_node_of(s->old, value)->type;
  for (uint32_t i = 0; i < type->rank; i++)
    if (ir_axis_size(s->old, type->axes[i]) == IR_DYNAMIC) return true;
  return false;
}

// Rows of memory times queries, which share the summed axis alone?
static bool fits(const splitting *s, const ir_node *dot, ir_value rows, ir_value queries) {
  const old_kernel *kernel = &s->kernels[dot->kernel];
  uint64_t over = ir_axis_bit(dot->over[0]);
  uint64_t row_axes = axes_of(s, rows), query_axes = axes_of(s, queries);
  return is_source(s, rows, dot->kernel) && (over & kernel->hidden) && (row_axes & kernel->rows) &&
         (row_axes & query_axes) == over && query_axes != over && !(query_axes & kernel->rows) &&
         !is_dynamic(s, queries) && ir_node_of(s->old, queries)->op != IR_CONSTANT;
}

// The results that a split dot has among its sources, through views.
static void find_early(splitting *s, ir_value rows, int32_t kernel) {
  bool *seen = base_new_array(s->old->arena, bool, rows.index + 1);
  seen[rows.index] = true;
  for (uint32_t i = rows.index + 1; i-- > 0;) {
    const ir_node *node = &s->old->nodes.data[i];
    if (!seen[i] || is_memory(s, (ir_value){i}, kernel)) continue;
    s->early[i] = !s->views[i];
    for (uint32_t j = 0; j < node->operand_count && s->views[i]; j++)
      seen[node->operands[j].index] = true;
  }
}

static void find_dots(splitting *s) {
  for (uint32_t i = 0; i < s->old->nodes.count; i++) {
    const ir_node *node = &s->old->nodes.data[i];
    s->elementwise[i] = !is_stored(node) && is_elementwise(s, node);
    s->views[i] = is_view(s, node);
    s->rows_of[i] = -1;
    if (node->op != IR_DOT || node->over_count != 1 || node->type.dtype != IR_F32) continue;
    if (fits(s, node, node->operands[0], node->operands[1])) s->rows_of[i] = 0;
    if (fits(s, node, node->operands[1], node->operands[0])) s->rows_of[i] = 1;
    if (s->rows_of[i] >= 0) find_early(s, node->operands[s->rows_of[i]], node->kernel);
  }
}

static ir_value queries_of(const splitting *s, uint32_t dot) {
  return s->old->nodes.data[dot].operands[1 - s->rows_of[dot]];
}

// Queries in the order of the result, innermost the axis that is summed.
static ir_type query_type(const splitting *s, uint32_t index) {
  const ir_node *dot = &s->old->nodes.data[index];
  const ir_type *old = &ir_node_of(s->old, queries_of(s, index))->type;
  ir_type type = {.dtype = old->dtype};
  for (uint32_t i = 0; i < dot->type.rank; i++)
    if (ir_type_has(old, dot->type.axes[i])) type.axes[type.rank++] = dot->type.axes[i];
  type.axes[type.rank++] = dot->over[0];
  return type;
}

static bool prepares_queries(const splitting *s, uint32_t index) {
  const ir_node *dot = &s->old->nodes.data[index];
  ir_value queries = queries_of(s, index);
  const ir_type *type = &ir_node_of(s->old, queries)->type;
  return !is_memory(s, queries, dot->kernel) ||
         type->axes[type->rank - 1].index != dot->over[0].index;
}

// ---- who needs what -----------------------------------------------------------------------------

static void find_needed(splitting *s) {
  for (uint32_t i = 0; i < s->old->results.count; i++)
    s->needed[s->old->results.data[i].index] = true;
  for (uint32_t i = s->old->nodes.count; i-- > 0;) {
    const ir_node *node = &s->old->nodes.data[i];
    bool split = is_split(s, i);
    for (uint32_t j = 0; j < node->operand_count; j++) {
      uint32_t operand = node->operands[j].index;
      bool stored =
          is_stored(&s->old->nodes.data[operand]) || is_memory(s, node->operands[j], node->kernel);
      if (split || s->cloned[i]) *(stored ? &s->needed[operand] : &s->cloned[operand]) = true;
      if (!split && s->needed[i]) s->needed[operand] = true;
    }
  }
}

// From how many kernels each old one becomes, the number of its first.
static void number_kernels(splitting *s, uint32_t kernels) {
  int32_t *made = base_new_array(s->old->arena, int32_t, kernels);
  bool *rest = base_new_array(s->old->arena, bool, kernels);
  for (uint32_t i = 0; i < s->old->nodes.count; i++) {
    const ir_node *node = &s->old->nodes.data[i];
    if (s->rows_of[i] >= 0)
      made[node->kernel] += prepares_queries(s, i) ? 2 : 1;
    else if (s->early[i])
      made[node->kernel]++;
    else if (s->needed[i] && !is_stored(node))
      rest[node->kernel] = true;
  }
  int32_t next = 0;
  for (uint32_t i = 0; i < kernels; i++) {
    s->kernels[i].next = next;
    next += made[i] + rest[i];
  }
}

// ---- the new graph ------------------------------------------------------------------------------

// Copies what is computed for `value` in its kernel into kernel `number`. `type`: the order of the
// axes that it gets there, NULL for its own.
static ir_value clone(splitting *s, ir_value value, int32_t number, const ir_type *type) {
  ir_graph *graph = s->rewrite.graph;
  int32_t kernel = ir_node_of(s->old, value)->kernel;
  bool *wanted = base_new_array(graph->arena, bool, value.index + 1);
  ir_value *copies = base_new_array(graph->arena, ir_value, value.index + 1);
  wanted[value.index] = true;
  for (uint32_t i = value.index + 1; i-- > 0;) {
    const ir_node *node = &s->old->nodes.data[i];
    if (i != value.index && is_memory(s, (ir_value){i}, kernel)) wanted[i] = false;
    wanted[i] = wanted[i] && node->op != IR_CONSTANT;
    for (uint32_t j = 0; j < node->operand_count && wanted[i]; j++)
      wanted[node->operands[j].index] = true;
  }
  for (uint32_t i = 0; i <= value.index; i++) {
    ir_node node = s->old->nodes.data[i];
    copies[i] = pass_mapped(&s->rewrite, (ir_value){i});
    if (!wanted[i]) continue;
    ir_value *operands = base_new_array(graph->arena, ir_value, node.operand_count);
    for (uint32_t j = 0; j < node.operand_count; j++)
      operands[j] = copies[node.operands[j].index];
    node.operands = operands;
    node.kernel = number;
    if (i == value.index && type) node.type = *type;
    copies[i] = ir_build_node(graph, &node);
  }
  return copies[value.index];
}

static ir_value prepare_queries(splitting *s, uint32_t index, int32_t number) {
  const ir_node *dot = &s->old->nodes.data[index];
  ir_value queries = queries_of(s, index), from = pass_mapped(&s->rewrite, queries);
  ir_type type = query_type(s, index);
  if (!is_memory(s, queries, dot->kernel)) return clone(s, queries, number, &type);
  ir_node cast = {.op = IR_CAST,
                  .type = type,
                  .operand_count = 1,
                  .operands = &from,
                  .kernel = number,
                  .loc = dot->loc};
  return ir_build_node(s->rewrite.graph, &cast);
}

static void split_dot(splitting *s, uint32_t index) {
  ir_node dot = s->old->nodes.data[index];
  int32_t *next = &s->kernels[dot.kernel].next;
  int32_t side = s->rows_of[index];
  ir_value operands[2], rows = dot.operands[side];
  operands[1 - side] = prepares_queries(s, index) ? prepare_queries(s, index, (*next)++)
                                                  : pass_mapped(&s->rewrite, queries_of(s, index));
  operands[side] =
      is_memory(s, rows, dot.kernel) ? pass_mapped(&s->rewrite, rows) : clone(s, rows, *next, NULL);
  dot.operands = operands;
  dot.kernel = (*next)++;
  pass_replace(&s->rewrite, (ir_value){index}, ir_build_node(s->rewrite.graph, &dot));
}

static void split_early(splitting *s, uint32_t index) {
  int32_t number = s->kernels[s->old->nodes.data[index].kernel].next++;
  pass_replace(&s->rewrite, (ir_value){index}, clone(s, (ir_value){index}, number, NULL));
}

// The rest of each kernel comes after what was split off: nodes get their numbers when all are made.
static void copy_nodes(splitting *s) {
  for (uint32_t i = 0; i < s->old->nodes.count; i++)
    if (s->early[i])
      split_early(s, i);
    else if (s->rows_of[i] >= 0)
      split_dot(s, i);
    else if (s->needed[i] || is_stored(&s->old->nodes.data[i]))
      pass_copy(&s->rewrite, (ir_value){i});
  for (uint32_t i = 0; i < s->old->nodes.count; i++) {
    const ir_node *node = &s->old->nodes.data[i];
    if (!is_split(s, i) && s->needed[i] && !is_stored(node)) {
      ir_value copy = pass_mapped(&s->rewrite, (ir_value){i});
      s->rewrite.graph->nodes.data[copy.index].kernel = s->kernels[node->kernel].next;
    }
  }
}

ir_graph *pass_split_logits(const ir_graph *graph, base_diag *diag) {
  (void)diag;
  uint32_t count = graph->nodes.count, kernels = pass_kernel_count(graph);
  splitting s = {.rewrite = pass_rewrite_begin(graph),
                 .old = graph,
                 .kernels = base_new_array(graph->arena, old_kernel, kernels),
                 .rows_of = base_new_array(graph->arena, int32_t, count),
                 .elementwise = base_new_array(graph->arena, bool, count),
                 .early = base_new_array(graph->arena, bool, count),
                 .views = base_new_array(graph->arena, bool, count),
                 .needed = base_new_array(graph->arena, bool, count),
                 .cloned = base_new_array(graph->arena, bool, count)};
  for (uint32_t i = 0; i < kernels; i++) {
    s.kernels[i].rows = pass_row_axes(graph, (int32_t)i);
    s.kernels[i].hidden = pass_hidden_axes(graph, (int32_t)i);
  }
  find_dots(&s);
  find_needed(&s);
  number_kernels(&s, kernels);
  copy_nodes(&s);
  return pass_rewrite_end(&s.rewrite);
}
