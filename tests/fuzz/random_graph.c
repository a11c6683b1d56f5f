// The generator behind random_graph.h: parameters, then a number of steps. A step picks operands
// among the values so far and appends one op, or an idiom of a few; a step that does not fit does
// nothing.
#include "random_graph.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
  MOST_PARAMS = 6,
  MOST_STEPS = 24,
  MOST_NODES = 96,
  MOST_RESULTS = 4,
  ASSUMED_ROWS = 17,     // of a dynamic axis, for the limits below
  MOST_ELEMENTS = 40000, // of a value
  MOST_WORK = 160000,    // of a reduction
};
static const double input_range = 6.0;                   // standard normals stay within
static const double most_value = 1e5;                    // further out nothing is built
static const double f16_range = 2000.0;                  // values beyond are not made f16
static const double f8_range = 200.0, f8_least = 0x1p-6; // nor others f8e4m3

typedef struct range {
  double low, high;
} range;

typedef struct maker {
  base_arena *arena;
  random_bytes *bytes;
  ir_graph *graph;
  uint64_t dynamic;
  int64_t sizes[IR_SET_AXES];
  range ranges[MOST_NODES];
  bool used[MOST_NODES];
} maker;

// ---- decisions ----------------------------------------------------------------------------------

uint32_t random_pick(random_bytes *bytes, uint32_t count) {
  if (count < 2 || bytes->at >= bytes->size) return 0;
  return bytes->data[bytes->at++] % count;
}

bool random_rarely(random_bytes *bytes, uint32_t odds) {
  return random_pick(bytes, odds) == odds - 1;
}

int64_t random_size(random_bytes *bytes) {
  static const int64_t sizes[] = {8, 1, 2, 3, 5, 7, 9, 16, 17, 33, 64, 65};
  return sizes[random_pick(bytes, sizeof sizes / sizeof *sizes)];
}

static uint32_t pick(maker *m, uint32_t count) {
  return random_pick(m->bytes, count);
}

// Recent values half of the time, so that graphs grow deep.
static ir_value pick_value(maker *m) {
  uint32_t count = m->graph->nodes.count;
  if (count > 4 && pick(m, 2) == 0) return (ir_value){count - 1 - pick(m, 4)};
  return (ir_value){pick(m, count)};
}

static const ir_node *node_of(const maker *m, ir_value value) {
  return ir_node_of(m->graph, value);
}

static range range_of(const maker *m, ir_value value) {
  return m->ranges[value.index];
}

// ---- axes ---------------------------------------------------------------------------------------

static ir_axis add_axis(maker *m, const char *name, int64_t size, bool dynamic) {
  ir_axis axis = ir_build_axis(m->graph, base_str_from(name), dynamic ? IR_DYNAMIC : size);
  m->sizes[axis.index] = size;
  if (dynamic) m->dynamic |= ir_axis_bit(axis);
  return axis;
}

static double elements(const maker *m, uint64_t axes) {
  double count = 1;
  for (uint32_t i = 0; i < m->graph->axes.count; i++)
    if (axes & ir_axis_bit((ir_axis){i})) count *= (double)m->sizes[i];
  return count;
}

static uint64_t axes_of(const maker *m, ir_value value) {
  return ir_type_axes(&node_of(m, value)->type);
}

static uint32_t count_of(uint64_t set) {
  return (uint32_t)__builtin_popcountll(set);
}

// One axis of a set that is not empty.
static ir_axis pick_axis(maker *m, uint64_t set) {
  uint32_t skip = pick(m, count_of(set));
  for (uint32_t i = 0;; i++)
    if ((set & ir_axis_bit((ir_axis){i})) && skip-- == 0) return (ir_axis){i};
}

// The axes of a value that ops may name.
static uint64_t nameable(const maker *m, ir_value value) {
  return axes_of(m, value) & ~m->dynamic;
}

// An axis of that size outside `taken`: at times one that the graph has already, so that values
// meet again. A new one whose size follows from the rest need not say it.
static bool target_axis(maker *m, uint64_t taken, int64_t size, bool follows, ir_axis *out) {
  uint64_t alike = 0;
  for (uint32_t i = 0; i < m->graph->axes.count; i++)
    if (m->sizes[i] == size) alike |= ir_axis_bit((ir_axis){i});
  alike &= ~taken & ~m->dynamic;
  if (alike && pick(m, 2) == 0) {
    *out = pick_axis(m, alike);
    return true;
  }
  if (m->graph->axes.count >= IR_SET_AXES) return false;
  base_str name = base_str_format(m->arena, "A%u", m->graph->axes.count);
  *out = add_axis(m, name.data, size, false);
  if (follows && pick(m, 2) == 0) m->graph->axes.data[out->index].size = IR_DYNAMIC;
  return true;
}

// ---- nodes --------------------------------------------------------------------------------------

static ir_dtype pick_dtype(maker *m, range r) {
  static const ir_dtype dtypes[] = {IR_F32,  IR_F32,  IR_F32, IR_F32,
                                    IR_BF16, IR_BF16, IR_F16, IR_F8E4M3};
  ir_dtype dtype = dtypes[pick(m, sizeof dtypes / sizeof dtypes[0])];
  double most = fmax(fabs(r.low), fabs(r.high));
  // Near 0 an f8e4m3 may become 0, by which others may divide.
  bool clear = r.low >= f8_least || r.high <= -f8_least || (r.low < 0 && r.high > 0);
  if (dtype == IR_F16 && most > f16_range) return IR_F32;
  if (dtype == IR_F8E4M3 && (most > f8_range || !clear)) return IR_F32;
  return dtype;
}

static void shuffle(maker *m, uint32_t count, ir_axis *axes) {
  for (uint32_t i = count; i > 1; i--) {
    uint32_t j = pick(m, i);
    ir_axis last = axes[i - 1];
    axes[i - 1] = axes[j];
    axes[j] = last;
  }
}

// The result axes by the rule all ops share: the operands' without `dropped`, and those of `to`.
static bool set_axes(maker *m, ir_node *node, uint64_t dropped) {
  ir_type *type = &node->type;
  uint64_t have = 0;
  for (uint32_t i = 0; i <= node->operand_count; i++) {
    bool own = i == node->operand_count;
    const ir_type *from = own ? NULL : &node_of(m, node->operands[i])->type;
    const ir_axis *axes = own ? node->to : from->axes;
    uint32_t count = own ? node->to_count : from->rank;
    for (uint32_t j = 0; j < count; j++) {
      uint64_t bit = ir_axis_bit(axes[j]);
      if ((own ? have : have | dropped) & bit) continue;
      if (type->rank == IR_MAX_RANK) return false;
      have |= bit;
      type->axes[type->rank++] = axes[j];
    }
  }
  if (pick(m, 4) == 1) shuffle(m, type->rank, type->axes);
  return elements(m, have) <= MOST_ELEMENTS;
}

// Minus infinity is a value (a mask); everything else stays where f32 is good.
static bool is_tame(range r) {
  if (!(r.low <= r.high) || r.high > most_value) return false;
  return r.low >= -most_value || r.low == -INFINITY;
}

// Appends a node whose operands and clauses are set.
static bool append(maker *m, ir_node node, range r, ir_value *out) {
  if (m->graph->nodes.count >= MOST_NODES || !is_tame(r)) return false;
  bool keeps = false;
  switch (ir_op_get(node.op)->shape) {
  case IR_SHAPE_MAP:
  case IR_SHAPE_NORM:
  case IR_SHAPE_SAME:
  case IR_SHAPE_GIVEN:
    keeps = true;
    break;
  default:
    break;
  }
  uint64_t dropped = 0;
  for (uint32_t i = 0; !keeps && i < node.over_count; i++)
    dropped |= ir_axis_bit(node.over[i]);
  if (node.op != IR_CONSTANT && !set_axes(m, &node, dropped)) return false;
  node.type.dtype = pick_dtype(m, r);
  node.kernel = IR_NO_KERNEL;
  if (ir_op_get(node.op)->attributes & IR_ATTR_EPS && node.eps == 0.0) node.eps = IR_DEFAULT_EPS;
  ir_value value = ir_build_node(m->graph, &node);
  for (uint32_t i = 0; i < node.operand_count; i++)
    m->used[node.operands[i].index] = true;
  double slack = 0.01 * fmax(fabs(r.high), r.low == -INFINITY ? 0.0 : fabs(r.low)); // roundings
  m->ranges[value.index] = (range){r.low >= 0.0 ? r.low * 0.99 : r.low - slack, r.high + slack};
  if (out) *out = value;
  return true;
}

static bool unary(maker *m, ir_op op, ir_value a, range r, ir_value *out) {
  return append(m, (ir_node){.op = op, .operand_count = 1, .operands = &a}, r, out);
}

static bool constant(maker *m, double number, ir_value *out) {
  ir_node node = {.op = IR_CONSTANT, .value_count = 1, .values = &number};
  return append(m, node, (range){number, number}, out);
}

// ---- ranges -------------------------------------------------------------------------------------

static double largest(range r) {
  return fmax(fabs(r.low), fabs(r.high));
}

static range product_range(range a, range b, bool square) {
  double ends[4] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  range r = {ends[0], ends[0]};
  for (int i = 1; i < 4; i++) {
    if (!isfinite(ends[i])) return (range){0, INFINITY};
    r.low = fmin(r.low, ends[i]);
    r.high = fmax(r.high, ends[i]);
  }
  if (square) r.low = a.low <= 0 && a.high >= 0 ? 0 : fmin(ends[0], ends[3]);
  return r;
}

static range binary_range(const maker *m, ir_op op, ir_value a, ir_value b) {
  range x = range_of(m, a), y = range_of(m, b);
  switch (op) {
  case IR_ADD:
    return (range){x.low + y.low, x.high + y.high};
  case IR_SUB:
    return (range){x.low - y.high, x.high - y.low};
  case IR_MAX:
    return (range){fmax(x.low, y.low), fmax(x.high, y.high)};
  case IR_DIV:
    return product_range(x, (range){1 / y.high, 1 / y.low}, false);
  default:
    return product_range(x, y, a.index == b.index);
  }
}

static bool binary(maker *m, ir_op op, ir_value a, ir_value b, ir_value *out) {
  ir_node node = {.op = op, .operand_count = 2, .operands = (ir_value[]){a, b}};
  return append(m, node, binary_range(m, op, a, b), out);
}

// 1 + v * v: never near 0.
static bool one_plus_square(maker *m, ir_value v, ir_value *out) {
  ir_value square, one;
  return binary(m, IR_MUL, v, v, &square) && constant(m, 1.0, &one) &&
         binary(m, IR_ADD, one, square, out);
}

static bool is_far_from_zero(range r, double distance) {
  return r.low >= distance || r.high <= -distance;
}

// ---- steps: map ops -----------------------------------------------------------------------------

static bool step_binary(maker *m) {
  static const ir_op ops[] = {IR_ADD, IR_MUL, IR_SUB, IR_MAX};
  ir_op op = ops[pick(m, 4)];
  ir_value a = pick_value(m), b = pick_value(m);
  return binary(m, op, a, b, NULL);
}

static bool step_div(maker *m) {
  ir_value a = pick_value(m), b = pick_value(m);
  if (!is_far_from_zero(range_of(m, b), 0.25) && !one_plus_square(m, b, &b)) return false;
  return binary(m, IR_DIV, a, b, NULL);
}

static bool step_unary(maker *m) {
  ir_value a = pick_value(m);
  range r = range_of(m, a);
  switch (pick(m, 3)) {
  case 0:
    return unary(m, IR_NEG, a, (range){-r.high, -r.low}, NULL);
  case 1:
    return unary(m, IR_CAST, a, r, NULL);
  default:
    return unary(m, IR_SIGMOID, a, (range){1 / (1 + exp(-r.low)), 1 / (1 + exp(-r.high))}, NULL);
  }
}

static bool step_exp(maker *m) {
  ir_value a = pick_value(m), square;
  if (range_of(m, a).high > 8.0) {
    if (!binary(m, IR_MUL, a, a, &square)) return false;
    range r = range_of(m, square);
    if (!unary(m, IR_NEG, square, (range){-r.high, 0}, &a)) return false;
  }
  range r = range_of(m, a);
  return unary(m, IR_EXP, a, (range){exp(r.low), exp(r.high)}, NULL);
}

static bool step_log(maker *m) {
  ir_value a = pick_value(m);
  if (range_of(m, a).low < 0.05 && !one_plus_square(m, a, &a)) return false;
  range r = range_of(m, a);
  return unary(m, IR_LOG, a, (range){log(r.low), log(r.high)}, NULL);
}

static bool step_rsqrt(maker *m) {
  ir_value a = pick_value(m);
  if (range_of(m, a).low < 0.05 && !one_plus_square(m, a, &a)) return false;
  range r = range_of(m, a);
  return unary(m, IR_RSQRT, a, (range){1 / sqrt(r.high), 1 / sqrt(r.low)}, NULL);
}

// ---- steps: constants ---------------------------------------------------------------------------

static bool step_constant(maker *m) {
  static const double numbers[] = {0.5, 1.0, 0.0, -1.0, 0.1, 3.0, -0.0};
  double number = numbers[pick(m, 7)];
  ir_node node = {.op = IR_CONSTANT, .value_count = 1, .values = &number};
  while (node.type.rank < 3 && pick(m, 3) == 1) { // one number for all indices of some axes
    ir_axis axis = {pick(m, m->graph->axes.count)};
    if (!ir_type_has(&node.type, axis)) node.type.axes[node.type.rank++] = axis;
  }
  if (elements(m, ir_type_axes(&node.type)) > MOST_ELEMENTS) return false;
  return append(m, node, (range){number, number}, NULL);
}

// A number for each index of an axis; at times a mask, which has minus infinity for some.
static bool step_list(maker *m) {
  uint64_t fixed = 0;
  for (uint32_t i = 0; i < m->graph->axes.count; i++)
    if (m->sizes[i] > 0) fixed |= ir_axis_bit((ir_axis){i});
  fixed &= ~m->dynamic;
  if (!fixed) return false;
  ir_axis axis = pick_axis(m, fixed);
  uint32_t count = (uint32_t)m->sizes[axis.index], masked = pick(m, 8) == 1 ? 2 + pick(m, 3) : 0;
  double *numbers = base_new_array(m->arena, double, count);
  range r = {INFINITY, -INFINITY};
  for (uint32_t i = 0; i < count; i++) {
    numbers[i] = 0.25 * (double)(int)pick(m, 17) - 2.0 + 0.01 * (double)(i % 7);
    if (masked) numbers[i] = i % masked == 1 ? -INFINITY : 0.0;
    r.low = fmin(r.low, numbers[i]);
    r.high = fmax(r.high, numbers[i]);
  }
  ir_node node = {.op = IR_CONSTANT, .value_count = count, .values = numbers};
  node.type.axes[node.type.rank++] = axis;
  return append(m, node, r, NULL);
}

// ---- steps: norms and softmax -------------------------------------------------------------------

static bool rms_norm(maker *m, ir_value a, ir_axis over, const ir_value *gain, ir_value *out) {
  static const double eps[] = {1e-5, 1e-6, 0.25};
  ir_value operands[2] = {a, gain ? *gain : a};
  ir_node node = {.op = IR_RMS_NORM, .operand_count = gain ? 2 : 1, .operands = operands};
  node.over[node.over_count++] = over;
  node.eps = eps[pick(m, 3)];
  double most = sqrt((double)m->sizes[over.index]) * (gain ? largest(range_of(m, *gain)) : 1.0);
  return m->sizes[over.index] > 0 && isfinite(range_of(m, a).low) &&
         append(m, node, (range){-most, most}, out);
}

static bool over_one(maker *m, ir_op op, ir_value a, ir_axis over, ir_value *out) {
  ir_node node = {.op = op, .operand_count = 1, .operands = &a};
  node.over[node.over_count++] = over;
  range r = range_of(m, a), one = {0, 1};
  double extent = (double)m->sizes[over.index];
  if (extent == 0 || elements(m, axes_of(m, a)) > MOST_WORK) return false;
  if (op == IR_LOGSUMEXP) r.high += log(extent);
  return append(m, node, op == IR_SOFTMAX ? one : r, out);
}

static bool step_norm(maker *m) {
  ir_value a = pick_value(m), gain = pick_value(m);
  if (!nameable(m, a)) return false;
  return rms_norm(m, a, pick_axis(m, nameable(m, a)), pick(m, 2) ? &gain : NULL, NULL);
}

static bool step_softmax(maker *m) {
  static const ir_op ops[] = {IR_SOFTMAX, IR_LOGSUMEXP};
  ir_op op = ops[pick(m, 2)];
  ir_value a = pick_value(m);
  return nameable(m, a) && over_one(m, op, a, pick_axis(m, nameable(m, a)), NULL);
}

// Softmax as the text of a user may spell it: exp(z - max z), its sum, their quotient.
static bool step_spelled_softmax(maker *m) {
  ir_value z = pick_value(m), most, shifted, powers, total;
  if (!nameable(m, z) || !isfinite(range_of(m, z).low)) return false;
  ir_axis over = pick_axis(m, nameable(m, z));
  if (!over_one(m, IR_REDUCE_MAX, z, over, &most) || !binary(m, IR_SUB, z, most, &shifted))
    return false;
  m->ranges[shifted.index].high = 0.1; // better than the difference of the ranges; for roundings
  range r = range_of(m, shifted);
  if (!unary(m, IR_EXP, shifted, (range){exp(r.low), exp(r.high)}, &powers)) return false;
  ir_node sum = {.op = IR_SUM, .operand_count = 1, .operands = &powers};
  sum.over[sum.over_count++] = over;
  if (!append(m, sum, (range){0.9, 1.2 * (double)m->sizes[over.index]}, &total)) return false;
  return pick(m, 2) == 0 || binary(m, IR_DIV, powers, total, NULL);
}

// ---- steps: reductions --------------------------------------------------------------------------

static void pick_over(maker *m, ir_node *node, uint64_t set) {
  do {
    ir_axis axis = pick_axis(m, set);
    node->over[node->over_count++] = axis;
    set &= ~ir_axis_bit(axis);
  } while (set && pick(m, 4) == 1);
}

static double extent_of(const maker *m, const ir_node *node) {
  double extent = 1;
  for (uint32_t i = 0; i < node->over_count; i++)
    extent *= (double)m->sizes[node->over[i].index];
  return extent;
}

static bool step_reduce(maker *m) {
  static const ir_op ops[] = {IR_SUM, IR_MEAN, IR_REDUCE_MAX};
  ir_value a = pick_value(m);
  ir_node node = {.op = ops[pick(m, 3)], .operand_count = 1, .operands = &a};
  if (!nameable(m, a)) return false;
  pick_over(m, &node, nameable(m, a));
  double extent = extent_of(m, &node);
  range r = range_of(m, a);
  if (node.op == IR_SUM) r = (range){r.low * extent, r.high * extent};
  if (extent == 0 && node.op == IR_SUM) r = (range){0, 0};
  return (extent > 0 || node.op == IR_SUM) && append(m, node, r, NULL);
}

static bool contract(maker *m, ir_op op, ir_value a, ir_value b, uint64_t over, ir_value *out) {
  ir_node node = {.op = op, .operand_count = 2, .operands = (ir_value[]){a, b}};
  if (!over || elements(m, axes_of(m, a) | axes_of(m, b)) > MOST_WORK) return false;
  if (count_of(over) == 1)
    node.over[node.over_count++] = pick_axis(m, over);
  else
    pick_over(m, &node, over);
  range r = product_range(range_of(m, a), range_of(m, b), a.index == b.index);
  double extent = extent_of(m, &node);
  return append(m, node, (range){r.low * extent, r.high * extent}, out);
}

static bool step_contract(maker *m) {
  static const ir_op ops[] = {IR_DOT, IR_WEIGHTED_SUM};
  ir_op op = ops[pick(m, 2)];
  ir_value a = pick_value(m), b = pick_value(m);
  return contract(m, op, a, b, nameable(m, a) & nameable(m, b), NULL);
}

// The graph Fathom is for: norm, logits, softmax over the sources, mix. Returns as far as it fits.
static bool step_site(maker *m) {
  ir_value v = pick_value(m), q = pick_value(m), gain = pick_value(m), k = v, z, a;
  uint64_t shared = nameable(m, v) & nameable(m, q);
  if (!shared) return false;
  ir_axis hidden = pick_axis(m, shared);
  uint64_t sources = nameable(m, v) & ~ir_axis_bit(hidden);
  if (!sources) return false;
  ir_axis source = pick_axis(m, sources);
  if (pick(m, 4) != 1 && !rms_norm(m, v, hidden, pick(m, 2) ? &gain : NULL, &k)) return false;
  if (!contract(m, IR_DOT, k, q, ir_axis_bit(hidden), &z)) return false;
  if (!(nameable(m, z) & ir_axis_bit(source))) return false;
  if (pick(m, 3) == 1) over_one(m, IR_LOGSUMEXP, z, source, NULL);
  if (!over_one(m, IR_SOFTMAX, z, source, &a)) return false;
  return contract(m, IR_WEIGHTED_SUM, a, v, ir_axis_bit(source), NULL);
}

// ---- steps: views -------------------------------------------------------------------------------

static bool view(maker *m, ir_node *node, ir_value a) {
  node->operand_count = 1;
  node->operands = &a;
  return append(m, *node, range_of(m, a), NULL);
}

static bool step_slice(maker *m) {
  ir_value a = pick_value(m);
  if (!nameable(m, a)) return false;
  ir_axis over = pick_axis(m, nameable(m, a));
  int64_t size = m->sizes[over.index];
  if (size == 0) return false;
  int64_t start = pick(m, (uint32_t)size);
  int64_t length = 1 + (int64_t)pick(m, (uint32_t)(size - start));
  ir_node node = {.op = IR_SLICE, .over = {over}, .over_count = 1, .to_count = 1, .start = start};
  bool to_end = length == size - start;
  return target_axis(m, axes_of(m, a), length, to_end, &node.to[0]) && view(m, &node, a);
}

static bool step_rename(maker *m) {
  ir_value a = pick_value(m);
  if (!nameable(m, a)) return false;
  ir_node node = {.op = IR_RENAME, .over_count = 1, .to_count = 1};
  node.over[0] = pick_axis(m, nameable(m, a));
  return target_axis(m, axes_of(m, a), m->sizes[node.over[0].index], true, &node.to[0]) &&
         view(m, &node, a);
}

static int64_t pick_divisor(maker *m, int64_t number) {
  int64_t divisors[16];
  uint32_t count = 0;
  for (int64_t i = 1; i <= number && count < 16; i++)
    if (number % i == 0) divisors[count++] = i;
  return divisors[pick(m, count)];
}

static bool step_split(maker *m) {
  ir_value a = pick_value(m);
  if (!nameable(m, a)) return false;
  ir_axis over = pick_axis(m, nameable(m, a));
  int64_t rest = m->sizes[over.index];
  if (rest == 0) return false;
  uint32_t count = 2 + (pick(m, 4) == 1);
  ir_node node = {.op = IR_SPLIT_AXIS, .over = {over}, .over_count = 1};
  uint64_t taken = axes_of(m, a);
  while (node.to_count < count) {
    bool last = node.to_count + 1 == count;
    int64_t size = last ? rest : pick_divisor(m, rest);
    ir_axis *to = &node.to[node.to_count];
    if (!target_axis(m, taken, size, last, to)) return false;
    taken |= ir_axis_bit(*to);
    node.to_count++;
    rest /= size;
  }
  return view(m, &node, a);
}

static bool step_merge(maker *m) {
  ir_value a = pick_value(m);
  uint64_t set = nameable(m, a);
  if (count_of(set) < 2) return false;
  ir_node node = {.op = IR_MERGE_AXES, .to_count = 1};
  uint32_t count = count_of(set) > 2 && pick(m, 4) == 1 ? 3 : 2;
  double size = 1;
  while (node.over_count < count) {
    ir_axis axis = pick_axis(m, set);
    set &= ~ir_axis_bit(axis);
    node.over[node.over_count++] = axis;
    size *= (double)m->sizes[axis.index];
  }
  return size <= MOST_ELEMENTS && target_axis(m, axes_of(m, a), (int64_t)size, true, &node.to[0]) &&
         view(m, &node, a);
}

// Operands may be slices without the axis, and need not have the same other axes.
static bool step_concat(maker *m) {
  ir_value first = pick_value(m), operands[5];
  uint64_t own = nameable(m, first), all = 0;
  if (!own) return false;
  ir_node node = {.op = IR_CONCAT, .operands = operands, .over_count = 1, .to_count = 1};
  node.over[0] = pick_axis(m, own);
  if (random_rarely(m->bytes, 8) && // an axis of which all operands are slices
      !target_axis(m, UINT64_MAX, random_size(m->bytes), false, &node.over[0]))
    return false;
  range r = range_of(m, first);
  int64_t size = 0;
  uint32_t count = 1 + pick(m, 5);
  while (node.operand_count < count) {
    ir_value value = node.operand_count == 0 ? first : pick_value(m);
    bool whole = axes_of(m, value) & ir_axis_bit(node.over[0]);
    operands[node.operand_count++] = value;
    size += whole ? m->sizes[node.over[0].index] : 1;
    all |= axes_of(m, value);
    r.low = fmin(r.low, range_of(m, value).low);
    r.high = fmax(r.high, range_of(m, value).high);
  }
  if (pick(m, 4) == 1) { // the first part need not be the one that has the axis
    ir_value last = operands[count - 1];
    operands[count - 1] = operands[0];
    operands[0] = last;
  }
  if (elements(m, all & ~ir_axis_bit(node.over[0])) * (double)size > MOST_ELEMENTS) return false;
  return target_axis(m, all, size, true, &node.to[0]) && append(m, node, r, NULL);
}

// ---- parameters ---------------------------------------------------------------------------------

enum { ROW = 1, BATCH = 2, SOURCE = 4, QUERY = 8, HIDDEN = 16, EXTRA = 32, AXIS_KINDS = 6 };

static void add_param(maker *m, const ir_axis *kinds, uint32_t set, uint64_t present) {
  ir_node node = {.op = IR_PARAM, .kernel = IR_NO_KERNEL};
  static const uint32_t order[AXIS_KINDS] = {1, 2, 0, 3, 5, 4}; // batch, sources, rows, ..., hidden
  for (uint32_t i = 0; i < AXIS_KINDS; i++) {
    uint32_t kind = order[i];
    if ((set >> kind & 1) && (present >> kind & 1)) node.type.axes[node.type.rank++] = kinds[kind];
  }
  if (elements(m, ir_type_axes(&node.type)) > MOST_ELEMENTS) node.type.rank = 1;
  if (pick(m, 4) == 1) shuffle(m, node.type.rank, node.type.axes);
  node.type.dtype = pick_dtype(m, (range){-input_range, input_range});
  base_str name = base_str_format(m->arena, "p%u", m->graph->nodes.count);
  ir_value value = ir_build_param(m->graph, name, node.type);
  ir_node *made = &m->graph->nodes.data[value.index];
  if (node.type.rank > 1 && pick(m, 4) == 1) {
    made->has_layout = true;
    memcpy(made->layout, node.type.axes, sizeof made->layout);
    shuffle(m, node.type.rank, made->layout);
  }
  m->ranges[value.index] = (range){-input_range, input_range};
}

static void add_params(maker *m) {
  static const uint8_t shapes[] = {
      SOURCE | ROW | HIDDEN,
      ROW | HIDDEN,
      HIDDEN,
      QUERY | HIDDEN,
      SOURCE | ROW,
      0,
      ROW,
      SOURCE | HIDDEN,
      QUERY | ROW | HIDDEN,
      BATCH | ROW | HIDDEN,
      BATCH | SOURCE | ROW | HIDDEN,
      SOURCE,
      QUERY,
      BATCH | ROW | SOURCE | QUERY,
      EXTRA | HIDDEN,
      63,
  };
  bool dynamic = pick(m, 4) != 1, batch = pick(m, 3) == 1, batch_dynamic = pick(m, 2) == 1;
  int64_t rows = dynamic ? ASSUMED_ROWS : random_size(m->bytes);
  int64_t batches = batch_dynamic ? ASSUMED_ROWS : 1 + (int64_t)pick(m, 3);
  ir_axis kinds[AXIS_KINDS];
  kinds[0] = add_axis(m, "T", rows, dynamic);
  kinds[1] = add_axis(m, "B", batches, batch && batch_dynamic);
  kinds[2] = add_axis(m, "N", random_size(m->bytes), false);
  kinds[3] = add_axis(m, "S", random_size(m->bytes), false);
  kinds[4] = add_axis(m, "D", random_size(m->bytes), false);
  kinds[5] = add_axis(m, "P", random_rarely(m->bytes, 24) ? 0 : 1 + (int64_t)pick(m, 3), false);
  uint32_t count = 2 + pick(m, MOST_PARAMS - 1), present = batch ? 63 : 63 & ~(uint32_t)BATCH;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t set = i == 0 ? shapes[pick(m, 2)] : shapes[pick(m, sizeof shapes)];
    if (random_rarely(m->bytes, 12)) set = pick(m, 64);
    add_param(m, kinds, set, present);
  }
}

// ---- results ------------------------------------------------------------------------------------

static bool is_result(const ir_graph *graph, ir_value value) {
  for (uint32_t i = 0; i < graph->results.count; i++)
    if (graph->results.data[i].index == value.index) return true;
  return false;
}

// What nothing else uses, from the last on, and at times any other value.
static void add_results(maker *m) {
  uint32_t wanted = 1 + pick(m, MOST_RESULTS), count = m->graph->nodes.count;
  for (uint32_t i = count; i-- > 0 && m->graph->results.count < wanted;) {
    bool sink = i >= m->graph->param_count && !m->used[i];
    if (sink) ir_build_result(m->graph, (ir_value){i});
  }
  ir_value other = pick_value(m);
  bool add = m->graph->results.count == 0 || random_rarely(m->bytes, 4);
  if (add && !is_result(m->graph, other)) ir_build_result(m->graph, other);
}

// ---- entry points -------------------------------------------------------------------------------

// A step that gave up may leave an axis behind whose size follows from nothing.
static void settle_axes(maker *m) {
  uint64_t mentioned = m->dynamic;
  for (uint32_t i = 0; i < m->graph->nodes.count; i++)
    mentioned |= ir_type_axes(&m->graph->nodes.data[i].type);
  for (uint32_t i = 0; i < m->graph->axes.count; i++)
    if (!(mentioned & ir_axis_bit((ir_axis){i}))) m->graph->axes.data[i].size = m->sizes[i];
}

static bool (*const steps[])(maker *m) = {
    step_site,     step_binary, step_contract,
    step_reduce,   step_norm,   step_softmax,
    step_concat,   step_slice,  step_split,
    step_merge,    step_exp,    step_unary,
    step_constant, step_list,   step_div,
    step_log,      step_rsqrt,  step_rename,
    step_binary,   step_site,   step_spelled_softmax,
};

ir_graph *random_graph_make(base_arena *arena, random_bytes *bytes) {
  maker m = {.arena = arena, .bytes = bytes};
  m.graph = ir_graph_create(arena, BASE_STR("fuzz"));
  add_params(&m);
  uint32_t count = 1 + pick(&m, MOST_STEPS);
  for (uint32_t i = 0; i < count; i++)
    if (!steps[pick(&m, sizeof steps / sizeof *steps)](&m)) settle_axes(&m);
  add_results(&m);
  return m.graph;
}

bool random_graph_break(ir_graph *graph) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_type *type = &graph->nodes.data[i].type;
    for (uint32_t j = 0; j < type->rank; j++) {
      if (ir_axis_size(graph, type->axes[j]) != IR_DYNAMIC) continue;
      ir_value value = {i};
      ir_build_result(graph, ir_build_over(graph, IR_SUM, 1, &value, type->axes[j], IR_F32));
      return true;
    }
  }
  return false;
}
