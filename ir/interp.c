// interp: the reference interpreter. Every op by its definition, in f64, one op at a time.
//
// It is the oracle of all tests, so it is made to be believed rather than to be fast: two loops do
// all the arithmetic (elementwise, and sum of products), over *views*. A view is a buffer whose
// axes have names and strides; a walk visits the union of its views' axes, and an axis that a view
// lacks has stride 0. That one rule is broadcasting, and on the output side it is reduction. The
// shape ops (concat, slice, split, merge, rename) only relabel the axes of a view and copy.
//
// Memory. Buffers are as large as users' tensors, so they come from malloc and go after their last
// use. No arena is touched before all of them are freed: interpreting one graph on many threads is
// safe, and running out of memory in a report leaks nothing.
#include "ir/ir.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
  MAX_WALK = 2 * IR_MAX_RANK, // two operands of a reduction may share no axis
  MAX_INPUTS = 2,
};

typedef struct machine {
  const ir_graph *graph;
  const int64_t *sizes;
  double **values; // for each node, dense in its type's axis order; NULL before and after its life
  uint32_t *last_use;  // the last node that reads it
  bool *borrowed;      // the caller's memory: parameters and results
  size_t failed_bytes; // what could not be had
} machine;

// ---- views --------------------------------------------------------------------------------------

typedef struct view {
  double *data;
  uint32_t rank;
  ir_axis axes[MAX_WALK];
  int64_t strides[MAX_WALK]; // in elements
} view;

// Stands for an operand that is not there, where a factor is optional.
static double unit_value = 1.0;
static const view unit_view = {.data = &unit_value};

static int64_t size_of(const machine *m, ir_axis axis) {
  return m->sizes[axis.index];
}

static view view_of(const machine *m, const ir_type *type, double *data) {
  view v = {.data = data, .rank = type->rank};
  int64_t stride = 1;
  for (uint32_t i = type->rank; i-- > 0;) {
    v.axes[i] = type->axes[i];
    v.strides[i] = stride;
    stride *= size_of(m, type->axes[i]);
  }
  return v;
}

static view view_of_value(const machine *m, ir_value value) {
  return view_of(m, &ir_node_of(m->graph, value)->type, m->values[value.index]);
}

static view view_of_operand(const machine *m, const ir_node *node, uint32_t index) {
  return index < node->operand_count ? view_of_value(m, node->operands[index]) : unit_view;
}

static int view_position(const view *v, ir_axis axis) {
  for (uint32_t i = 0; i < v->rank; i++)
    if (v->axes[i].index == axis.index) return (int)i;
  return -1;
}

static int64_t view_stride(const view *v, ir_axis axis) {
  int position = view_position(v, axis);
  return position < 0 ? 0 : v->strides[position];
}

// `axis` seen as `parts`, outermost first. With one part this renames.
static void view_split(const machine *m, view *v, ir_axis axis, uint32_t count,
                       const ir_axis *parts) {
  int position = view_position(v, axis);
  int64_t stride = v->strides[position];
  view result = {.data = v->data};
  for (uint32_t i = 0; i < v->rank; i++) {
    if ((int)i == position) continue;
    result.axes[result.rank] = v->axes[i];
    result.strides[result.rank++] = v->strides[i];
  }
  result.rank += count;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t place = result.rank - 1 - i;
    result.axes[place] = parts[count - 1 - i];
    result.strides[place] = stride;
    stride *= size_of(m, parts[count - 1 - i]);
  }
  *v = result;
}

// ---- walks --------------------------------------------------------------------------------------

typedef struct row { // one innermost loop
  int64_t count;
  double *out;
  int64_t out_stride;
  const double *in[MAX_INPUTS];
  int64_t in_strides[MAX_INPUTS];
} row;

typedef void (*row_function)(ir_op op, const row *r);

static void map_row(ir_op op, const row *r) {
  for (int64_t i = 0; i < r->count; i++)
    r->out[i * r->out_stride] =
        ir_op_evaluate(op, r->in[0][i * r->in_strides[0]], r->in[1][i * r->in_strides[1]]);
}

static void add_product_row(ir_op op, const row *r) {
  (void)op;
  for (int64_t i = 0; i < r->count; i++)
    r->out[i * r->out_stride] += r->in[0][i * r->in_strides[0]] * r->in[1][i * r->in_strides[1]];
}

typedef struct loop {
  int64_t size, index;
  int64_t strides[MAX_INPUTS + 1]; // output, then inputs
} loop;

static bool is_among(ir_axis axis, uint32_t count, const ir_axis *axes) {
  for (uint32_t i = 0; i < count; i++)
    if (axes[i].index == axis.index) return true;
  return false;
}

// The loops over all axes of the views, outermost first: the axes of the view with most of them
// keep its order, so that its memory is read in order; those it lacks go outside. Axes of size 1
// need no loop.
static uint32_t plan_loops(const machine *m, const view *const *views, loop *loops) {
  uint32_t widest = 0, count = 0;
  ir_axis axes[(MAX_INPUTS + 1) * MAX_WALK];
  for (uint32_t i = 1; i <= MAX_INPUTS; i++)
    if (views[i]->rank > views[widest]->rank) widest = i;
  for (uint32_t i = 0; i <= MAX_INPUTS; i++)
    for (uint32_t j = 0; j < views[i]->rank; j++) {
      const ir_axis axis = views[i]->axes[j];
      if (is_among(axis, views[widest]->rank, views[widest]->axes) || is_among(axis, count, axes))
        continue;
      axes[count++] = axis;
    }
  for (uint32_t i = 0; i < views[widest]->rank; i++)
    axes[count++] = views[widest]->axes[i];

  uint32_t depth = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (size_of(m, axes[i]) == 1) continue;
    loops[depth].size = size_of(m, axes[i]);
    loops[depth].index = 0;
    for (uint32_t k = 0; k <= MAX_INPUTS; k++)
      loops[depth].strides[k] = view_stride(views[k], axes[i]);
    depth++;
  }
  return depth;
}

static void move_row(row *r, const loop *l, int64_t steps) {
  r->out += steps * l->strides[0];
  for (uint32_t k = 0; k < MAX_INPUTS; k++)
    r->in[k] += steps * l->strides[k + 1];
}

static void walk(const machine *m, row_function function, ir_op op, const view *out, const view *a,
                 const view *b) {
  loop loops[(MAX_INPUTS + 1) * MAX_WALK];
  uint32_t depth = plan_loops(m, (const view *const[]){out, a, b}, loops);
  row r = {.count = 1, .out = out->data, .in = {a->data, b->data}};
  for (uint32_t i = 0; i < depth; i++)
    if (loops[i].size == 0) return;
  if (depth > 0) {
    const loop *inner = &loops[--depth];
    r.count = inner->size;
    r.out_stride = inner->strides[0];
    for (uint32_t k = 0; k < MAX_INPUTS; k++)
      r.in_strides[k] = inner->strides[k + 1];
  }
  for (;;) {
    function(op, &r);
    uint32_t level = depth;
    for (; level > 0; level--) {
      loop *l = &loops[level - 1];
      move_row(&r, l, 1);
      if (++l->index < l->size) break;
      move_row(&r, l, -l->size);
      l->index = 0;
    }
    if (level == 0) return;
  }
}

// out = op(a, b), element by element.
static void map(const machine *m, ir_op op, const view *out, const view *a, const view *b) {
  walk(m, map_row, op, out, a, b);
}

static void copy(const machine *m, const view *out, const view *a) {
  map(m, IR_CAST, out, a, a);
}

// ---- buffers ------------------------------------------------------------------------------------

static int64_t count_of(const machine *m, const ir_type *type) {
  int64_t count = 1;
  for (uint32_t i = 0; i < type->rank; i++)
    count *= size_of(m, type->axes[i]);
  return count;
}

// NULL, and the size kept for the report, when there is no room.
static double *allocate(machine *m, const ir_type *type) {
  size_t bytes = sizeof(double);
  bool empty = false, fits = true;
  for (uint32_t i = 0; i < type->rank; i++) {
    size_t size = (size_t)size_of(m, type->axes[i]);
    empty = empty || size == 0;
    fits = fits && !__builtin_mul_overflow(bytes, size, &bytes) && bytes <= PTRDIFF_MAX;
  }
  if (empty) bytes = sizeof(double); // nothing is stored, but NULL means no memory
  double *data = fits || empty ? malloc(bytes) : NULL;
  if (!data) m->failed_bytes = fits ? bytes : PTRDIFF_MAX;
  return data;
}

static void fill(const machine *m, const ir_type *type, double *data, double value) {
  int64_t count = count_of(m, type);
  for (int64_t i = 0; i < count; i++)
    data[i] = value;
}

// The type of a reduction's scratch: one number for all indices of `axis`.
static ir_type type_without(const ir_type *type, ir_axis axis) {
  ir_type result = {.dtype = type->dtype};
  for (uint32_t i = 0; i < type->rank; i++)
    if (type->axes[i].index != axis.index) result.axes[result.rank++] = type->axes[i];
  return result;
}

// ---- reductions ---------------------------------------------------------------------------------

// The axes of `a` and `b` that `type` lacks are summed over.
static void sum_products(const machine *m, const ir_type *type, double *out, const view *a,
                         const view *b) {
  view to = view_of(m, type, out);
  fill(m, type, out, 0.0);
  walk(m, add_product_row, IR_MUL, &to, a, b);
}

static void reduce_max(const machine *m, const ir_type *type, double *out, const view *a) {
  view to = view_of(m, type, out);
  fill(m, type, out, -INFINITY);
  walk(m, map_row, IR_MAX, &to, &to, a);
}

// log(sum(exp(a))) as m + log(sum(exp(a - m))), m the largest. Where m is infinite a - m could be
// inf - inf; there 0 takes its place, and the sum itself is 0 or inf.
static bool logsumexp(machine *m, const ir_node *node, double *out) {
  const ir_type *type = &ir_node_of(m->graph, node->operands[0])->type;
  double *shift = allocate(m, &node->type);
  double *terms = shift ? allocate(m, type) : NULL;
  if (terms) {
    view from = view_of_operand(m, node, 0), to = view_of(m, &node->type, out);
    view shifts = view_of(m, &node->type, shift), exps = view_of(m, type, terms);
    reduce_max(m, &node->type, shift, &from);
    int64_t count = count_of(m, &node->type);
    for (int64_t i = 0; i < count; i++)
      if (isinf(shift[i])) shift[i] = 0.0;
    map(m, IR_SUB, &exps, &from, &shifts);
    map(m, IR_EXP, &exps, &exps, &exps);
    sum_products(m, &node->type, out, &exps, &unit_view);
    map(m, IR_LOG, &to, &to, &to);
    map(m, IR_ADD, &to, &to, &shifts);
  }
  free(terms);
  free(shift);
  return terms != NULL;
}

static void divide_by_extent(const machine *m, const ir_node *node, double *out) {
  double extent = 1.0;
  for (uint32_t i = 0; i < node->over_count; i++)
    extent *= (double)size_of(m, node->over[i]);
  int64_t count = count_of(m, &node->type);
  for (int64_t i = 0; i < count; i++)
    out[i] /= extent;
}

static bool run_reduce(machine *m, const ir_node *node, double *out) {
  view a = view_of_operand(m, node, 0), b = view_of_operand(m, node, 1);
  switch (node->op) {
  case IR_LOGSUMEXP:
    return logsumexp(m, node, out);
  case IR_REDUCE_MAX:
    reduce_max(m, &node->type, out, &a);
    return true;
  case IR_MEAN:
    sum_products(m, &node->type, out, &a, &b);
    divide_by_extent(m, node, out);
    return true;
  default:
    sum_products(m, &node->type, out, &a, &b);
    return true;
  }
}

// exp(a - max a) / sum of the same.
static bool run_softmax(machine *m, const ir_node *node, double *out) {
  ir_type type = type_without(&node->type, node->over[0]);
  double *scratch = allocate(m, &type);
  if (!scratch) return false;
  view from = view_of_operand(m, node, 0), to = view_of(m, &node->type, out);
  view scalars = view_of(m, &type, scratch);
  reduce_max(m, &type, scratch, &from);
  map(m, IR_SUB, &to, &from, &scalars);
  map(m, IR_EXP, &to, &to, &to);
  sum_products(m, &type, scratch, &to, &unit_view);
  map(m, IR_DIV, &to, &to, &scalars);
  free(scratch);
  return true;
}

// a / sqrt(mean(a^2) + eps), times the gain.
static bool run_norm(machine *m, const ir_node *node, double *out) {
  ir_type type = type_without(&ir_node_of(m->graph, node->operands[0])->type, node->over[0]);
  double *scratch = allocate(m, &type);
  if (!scratch) return false;
  view from = view_of_operand(m, node, 0), gain = view_of_operand(m, node, 1);
  view to = view_of(m, &node->type, out), scalars = view_of(m, &type, scratch);
  sum_products(m, &type, scratch, &from, &from);
  double extent = (double)size_of(m, node->over[0]);
  int64_t count = count_of(m, &type);
  for (int64_t i = 0; i < count; i++)
    scratch[i] = sqrt(scratch[i] / extent + node->eps);
  map(m, IR_DIV, &to, &from, &scalars);
  map(m, IR_MUL, &to, &to, &gain);
  free(scratch);
  return true;
}

// ---- the other shape rules ----------------------------------------------------------------------

static void run_constant(const machine *m, const ir_node *node, double *out) {
  int64_t count = count_of(m, &node->type);
  for (int64_t i = 0; i < count; i++)
    out[i] = node->values[node->value_count == 1 ? 0 : i];
}

static void run_map(const machine *m, const ir_node *node, double *out) {
  view a = view_of_operand(m, node, 0), b = view_of_operand(m, node, 1);
  view to = view_of(m, &node->type, out);
  map(m, node->op, &to, &a, &b);
}

// Each operand is copied into the part of the result it fills.
static void run_concat(const machine *m, const ir_node *node, double *out) {
  int64_t done = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    view from = view_of_operand(m, node, i), part = view_of(m, &node->type, out);
    int position = view_position(&part, node->to[0]);
    bool single = view_position(&from, node->over[0]) < 0;
    part.data += done * part.strides[position];
    if (single) { // one slice: the axis is fixed, no walk along it
      part.rank -= 1;
      part.axes[position] = part.axes[part.rank];
      part.strides[position] = part.strides[part.rank];
    } else {
      part.axes[position] = node->over[0];
    }
    copy(m, &part, &from);
    done += single ? 1 : size_of(m, node->over[0]);
  }
}

static void run_slice(const machine *m, const ir_node *node, double *out) {
  view from = view_of_operand(m, node, 0), to = view_of(m, &node->type, out);
  from.data += node->start * view_stride(&from, node->over[0]);
  view_split(m, &from, node->over[0], 1, node->to);
  copy(m, &to, &from);
}

static void run_split(const machine *m, const ir_node *node, double *out) {
  view from = view_of_operand(m, node, 0), to = view_of(m, &node->type, out);
  view_split(m, &from, node->over[0], node->to_count, node->to);
  copy(m, &to, &from);
}

static void run_merge(const machine *m, const ir_node *node, double *out) {
  view from = view_of_operand(m, node, 0), to = view_of(m, &node->type, out);
  view_split(m, &to, node->to[0], node->over_count, node->over);
  copy(m, &to, &from);
}

// ---- one node -----------------------------------------------------------------------------------

static bool run_node(machine *m, const ir_node *node, double *out) {
  switch (ir_op_get(node->op)->shape) {
  case IR_SHAPE_GIVEN:
    run_constant(m, node, out);
    return true;
  case IR_SHAPE_MAP:
    run_map(m, node, out);
    return true;
  case IR_SHAPE_NORM:
    return run_norm(m, node, out);
  case IR_SHAPE_SAME:
    return run_softmax(m, node, out);
  case IR_SHAPE_REDUCE:
    return run_reduce(m, node, out);
  case IR_SHAPE_CONCAT:
    run_concat(m, node, out);
    return true;
  case IR_SHAPE_SLICE:
    run_slice(m, node, out);
    return true;
  case IR_SHAPE_SPLIT:
  case IR_SHAPE_RENAME:
    run_split(m, node, out);
    return true;
  case IR_SHAPE_MERGE:
    run_merge(m, node, out);
    return true;
  }
  return true;
}

static void round_result(const machine *m, const ir_type *type, double *out) {
  if (type->dtype == IR_F32) return;
  int64_t count = count_of(m, type);
  for (int64_t i = 0; i < count; i++)
    out[i] = ir_dtype_round(type->dtype, out[i]);
}

// The largest finite |z| among the logits an op reads.
static double scan_logits(const machine *m, const ir_node *node) {
  bool takes_logits = node->op == IR_SOFTMAX || node->op == IR_LOGSUMEXP ||
                      node->op == IR_SIGMOID || node->op == IR_EXP;
  if (!takes_logits) return 0.0;
  const double *logits = m->values[node->operands[0].index];
  int64_t count = count_of(m, &ir_node_of(m->graph, node->operands[0])->type);
  double largest = 0.0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(logits[i])) largest = fmax(largest, fabs(logits[i]));
  return largest;
}

static void release(machine *m, uint32_t index) {
  if (!m->borrowed[index]) free(m->values[index]);
  m->values[index] = NULL;
}

static void release_dead(machine *m, uint32_t index) {
  const ir_node *node = &m->graph->nodes.data[index];
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (m->last_use[node->operands[i].index] == index) release(m, node->operands[i].index);
  if (m->last_use[index] == index) release(m, index);
}

// ---- the whole graph ----------------------------------------------------------------------------

// Parameters and results live in the caller's memory, all other values in ours.
static void bind_memory(machine *m, const double *const *inputs, double *const *outputs) {
  const ir_graph *graph = m->graph;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    m->last_use[i] = i;
    for (uint32_t j = 0; j < graph->nodes.data[i].operand_count; j++)
      m->last_use[graph->nodes.data[i].operands[j].index] = i;
  }
  for (uint32_t i = 0; i < graph->results.count; i++) {
    uint32_t index = graph->results.data[i].index;
    m->values[index] = outputs[i];
    m->borrowed[index] = true;
    m->last_use[index] = UINT32_MAX;
  }
  for (uint32_t i = 0; i < graph->param_count; i++) {
    m->values[i] = (double *)inputs[i]; // only read: no node writes a parameter
    m->borrowed[i] = true;
    m->last_use[i] = UINT32_MAX;
  }
}

// False when memory ran out at node *at.
static bool run_nodes(machine *m, double *largest_logit, uint32_t *at) {
  const ir_graph *graph = m->graph;
  for (uint32_t i = graph->param_count; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    *at = i;
    if (!m->values[i]) m->values[i] = allocate(m, &node->type);
    if (!m->values[i] || !run_node(m, node, m->values[i])) return false;
    round_result(m, &node->type, m->values[i]);
    *largest_logit = fmax(*largest_logit, scan_logits(m, node));
    release_dead(m, i);
  }
  return true;
}

// A parameter that is returned as it is has to be copied to its output.
static void copy_returned_params(const machine *m, double *const *outputs) {
  const ir_graph *graph = m->graph;
  for (uint32_t i = 0; i < graph->results.count; i++) {
    const ir_node *node = ir_node_of(graph, graph->results.data[i]);
    if (node->op != IR_PARAM) continue;
    view from = view_of_value(m, graph->results.data[i]), to = view_of(m, &node->type, outputs[i]);
    copy(m, &to, &from);
  }
}

static bool check_request(const ir_graph *graph, const int64_t *sizes, base_diag *diag) {
  uint32_t errors = diag->error_count;
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    const ir_axis_info *axis = &graph->axes.data[i];
    if (sizes[i] < 0 || (axis->size != IR_DYNAMIC && axis->size != sizes[i]))
      base_error(diag, axis->loc, "expected %s for axis %.*s, found %" PRId64,
                 axis->size == IR_DYNAMIC ? "a size >= 0" : "the size in the text",
                 BASE_FMT(axis->name), sizes[i]);
  }
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (node->op != IR_CALL) continue;
    base_error_status(diag, BASE_UNSUPPORTED, node->loc,
                      "%%%.*s: the interpreter cannot run the host function @%.*s",
                      BASE_FMT(node->name), BASE_FMT(node->callee));
    base_hint(diag, "pass what the call returns as a parameter instead");
  }
  return diag->error_count == errors;
}

base_status ir_interpret(const ir_graph *graph, const int64_t *sizes, const double *const *inputs,
                         double *const *outputs, double *largest_logit, base_diag *diag) {
  if (!check_request(graph, sizes, diag)) return diag->status;
  size_t count = (size_t)graph->nodes.count + 1; // never 0
  machine m = {
      .graph = graph,
      .sizes = sizes,
      .values = calloc(count, sizeof *m.values),
      .last_use = calloc(count, sizeof *m.last_use),
      .borrowed = calloc(count, sizeof *m.borrowed),
      .failed_bytes = count * sizeof *m.values,
  };
  double largest = 0.0;
  uint32_t at = 0;
  bool done = false;
  if (m.values && m.last_use && m.borrowed) {
    bind_memory(&m, inputs, outputs);
    done = run_nodes(&m, &largest, &at);
    if (done) copy_returned_params(&m, outputs);
    for (uint32_t i = 0; i < graph->nodes.count; i++)
      release(&m, i);
  }
  free(m.values);
  free(m.last_use);
  free(m.borrowed);
  if (!done) {
    const ir_node *node = &graph->nodes.data[at];
    base_error_status(diag, BASE_MEMORY, node->loc,
                      "%%%.*s: expected %zu bytes of memory for its numbers, found less",
                      BASE_FMT(node->name), m.failed_bytes);
    base_hint(diag, "interpret fewer rows at a time");
    return BASE_MEMORY;
  }
  if (largest_logit) *largest_logit = largest;
  return BASE_OK;
}
