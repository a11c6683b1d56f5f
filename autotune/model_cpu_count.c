// The cost model of a CPU, first half: what a sweep of the lowered kernel does.
//
// The code generator's rules are followed, not its code: a loop nest is tiled, what does not depend on
// an inner loop leaves it, what the points of a tile share is computed once for them.
#include <math.h>
#include <string.h>

#include "autotune/model.h"

enum {
  MOST_LOOPS = 2 * KIR_MAX_LOOPS,
  WIDE_REGISTERS = 32, // of vectors, on the CPUs that have 16 f32 lanes
  OTHER_REGISTERS = 16,
  HELPERS = 4,          // registers for what is on its way
  LEVEL1_BYTES = 32768, // what one may count on
  LINE = 64,
  SPILL =
      4, // operations for a step of a sum without a register: it is loaded, stored and waited for
};

// ---- walking a sweep ----------------------------------------------------------------------------

typedef struct loop {
  double size, tile; // in indices; of the lane loop in vectors
  bool lane;
} loop;

typedef struct walk {
  const kir_kernel *kernel;
  const kir_sweep *sweep;
  uint32_t lanes;
  loop loops[MOST_LOOPS];
  uint32_t loop_count;
  int32_t place[IR_SET_AXES]; // of an axis among the loops; -1: none
  double share;               // of the indices that count: a concat's operand has some only
  bool *seen;
  double registers;    // for sums
  double touched;      // bytes that the sweep reads, each once
  double vector_bytes; // of memory and of places, read by vectors
  tune_sweep_counts counts;
} walk;

static double steps_of(const loop *loop) {
  return ceil(loop->size / loop->tile);
}

typedef struct extent {
  double times;  // how often it is computed, in vectors where it has lanes
  double unique; // elements
  bool vector;
} extent;

// How often a value of that type is computed. Loops inside the innermost one it depends on do not
// count; in outer ones that it does not depend on, the points of a tile share it.
static extent extent_of(const walk *w, const ir_type *type) {
  ir_axis axes[KIR_MAX_LOOPS];
  bool used[MOST_LOOPS] = {false};
  uint32_t count = kir_refine(w->kernel, type, axes, 0);
  int32_t deepest = -1;
  extent found = {.times = w->share, .unique = w->share};
  for (uint32_t i = 0; i < count; i++) {
    int32_t place = w->place[axes[i].index];
    if (place < 0) continue;
    used[place] = true;
    if (place > deepest) deepest = place;
  }
  for (int32_t i = 0; i <= deepest; i++) {
    const loop *l = &w->loops[i];
    found.times *= used[i] ? l->size : steps_of(l);
    if (used[i]) found.unique *= l->lane ? l->size * w->lanes : l->size;
    found.vector |= used[i] && l->lane;
  }
  return found;
}

static void add_loop(walk *w, ir_axis axis, double size, double tile, bool lane) {
  if (w->loop_count == MOST_LOOPS) return;
  w->place[axis.index] = (int32_t)w->loop_count;
  w->loops[w->loop_count++] = (loop){size, tile < 1 ? 1 : tile > size ? fmax(size, 1) : tile, lane};
}

static void begin_walk(walk *w, base_arena *arena, const kir_kernel *kernel, const kir_sweep *sweep,
                       uint32_t lanes) {
  *w = (walk){.kernel = kernel, .sweep = sweep, .share = 1};
  w->registers = (lanes >= 16 ? WIDE_REGISTERS : OTHER_REGISTERS) - HELPERS;
  w->lanes = kernel->schedule.vector ? (uint32_t)kernel->schedule.vector : lanes;
  w->seen = base_new_array(arena, bool, kernel->graph->nodes.count);
  for (uint32_t i = 0; i < IR_SET_AXES; i++)
    w->place[i] = -1;
  for (uint32_t i = 0; i < sweep->loop_count; i++) {
    double size = (double)kernel->axes[sweep->loops[i].index].size;
    bool lane = (int32_t)i == sweep->lane;
    add_loop(w, sweep->loops[i], lane ? ceil(size / w->lanes) : size,
             (double)kir_tile(kernel, sweep, i), lane);
  }
}

// ---- values -------------------------------------------------------------------------------------

// Operations that an op costs for a vector; a division takes the place of several.
static double cost_of(ir_op op) {
  switch (op) {
  case IR_DIV:
    return 10;
  case IR_RSQRT:
    return 20;
  case IR_EXP:
    return 14;
  case IR_LOG:
    return 20;
  case IR_SIGMOID:
    return 26;
  case IR_CAST:
    return 0;
  default:
    return 1;
  }
}

enum { ROUND_BF16 = 5, ROUND_F16 = 2, ROUND_F8E4M3 = 11, WIDEN_F8E4M3 = 10, NARROW_F8E4M3 = 9 };

static double rounding_of(ir_dtype dtype) {
  return dtype == IR_BF16     ? ROUND_BF16
         : dtype == IR_F16    ? ROUND_F16
         : dtype == IR_F8E4M3 ? ROUND_F8E4M3
                              : 0;
}

static void visit(walk *w, ir_value value, bool top);

static void read_memory(walk *w, ir_value value, const extent *e) {
  const ir_type *type = &ir_node_of(w->kernel->graph, value)->type;
  const kir_arg *arg = &w->kernel->args.data[w->kernel->values[value.index].load_arg];
  double element = (double)ir_dtype_size(type->dtype);
  bool hidden_lane = false;
  if (e->vector) {
    ir_axis lane = w->sweep->loops[w->sweep->lane];
    hidden_lane = w->kernel->axes[lane.index].hidden;
  }
  w->touched += e->unique * element;
  if (!e->vector) {
    w->counts.loads += e->times;
    return;
  }
  if (!hidden_lane || arg->unit_position < 0) { // a gather: one load and one insertion for a lane
    w->counts.loads += e->times * w->lanes;
    w->counts.arithmetic += e->times * w->lanes;
    return;
  }
  bool paired = w->kernel->paired && type->dtype == IR_BF16;
  w->counts.loads += e->times * (paired ? 0.5 : 1);
  w->counts.arithmetic += e->times * (type->dtype == IR_F32             ? 0
                                      : type->dtype == IR_F8E4M3        ? WIDEN_F8E4M3
                                      : paired || type->dtype == IR_F16 ? 1
                                                                        : 2);
  w->vector_bytes += e->times * w->lanes * element;
  if (kir_has_row(w->kernel, type) && w->sweep->phase == KIR_BODY) {
    bool ahead = w->sweep->ahead && w->kernel->schedule.distance;
    bool early = w->kernel->overlap < 0 && w->kernel->schedule.prefetch;
    if (ahead || early) w->counts.prefetches += e->times * w->lanes * element / LINE;
  }
}

static void read_place(walk *w, ir_value value, const extent *e) {
  const kir_value *info = &w->kernel->values[value.index];
  bool dense =
      info->rank > 0 && e->vector && w->place[info->order[info->rank - 1].index] == w->sweep->lane;
  w->touched += e->unique * sizeof(float);
  double each = e->vector && !dense ? w->lanes : 1;
  w->counts.loads += e->times * each;
  if (each > 1) w->counts.arithmetic += e->times * each;
  if (e->vector) w->vector_bytes += e->times * w->lanes * sizeof(float);
}

// Refined axes that are summed over and are no loop yet become the innermost loops.
static uint32_t open_sum(walk *w, const ir_node *node) {
  uint32_t before = w->loop_count;
  ir_type over = {.rank = node->over_count};
  memcpy(over.axes, node->over, node->over_count * sizeof(ir_axis));
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(w->kernel, &over, axes, 0);
  for (uint32_t i = 0; i < count; i++)
    if (w->place[axes[i].index] < 0)
      add_loop(w, axes[i], (double)w->kernel->axes[axes[i].index].size,
               (double)w->kernel->schedule.mix_unroll, false);
  return before;
}

static void close_sum(walk *w, uint32_t before) {
  for (uint32_t i = 0; i < IR_SET_AXES; i++)
    if (w->place[i] >= (int32_t)before) w->place[i] = -1;
  w->loop_count = before;
}

static double sum_times(const walk *w, const ir_node *node) {
  extent found = extent_of(w, &node->type);
  ir_type joint = {0};
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_type *type = &ir_node_of(w->kernel->graph, node->operands[i])->type;
    for (uint32_t j = 0; j < type->rank; j++)
      if (!ir_type_has(&joint, type->axes[j]) && joint.rank < IR_MAX_RANK)
        joint.axes[joint.rank++] = type->axes[j];
  }
  extent all = extent_of(w, &joint);
  return all.times > found.times ? all.times : found.times;
}

// A sum of products computed in place is one multiply-add for each.
static const ir_node *factors_of(const walk *w, const ir_node *node) {
  if (node->operand_count == 2) return node;
  const ir_node *product = ir_node_of(w->kernel->graph, node->operands[0]);
  bool in_place = w->kernel->values[node->operands[0].index].place == KIR_INLINE;
  bool fuses = node->op != IR_REDUCE_MAX && product->op == IR_MUL;
  return in_place && fuses ? product : node;
}

static void visit_sum(walk *w, const ir_node *node) {
  uint32_t before = open_sum(w, node);
  const ir_node *factors = factors_of(w, node);
  w->counts.arithmetic += sum_times(w, factors);
  for (uint32_t i = 0; i < factors->operand_count; i++)
    visit(w, factors->operands[i], false);
  close_sum(w, before);
}

// The operand sees the view's axis under its own name, and a part of its indices.
static void visit_through(walk *w, const ir_node *node, uint32_t operand) {
  int32_t before = w->place[node->over[0].index];
  double share = w->share;
  bool renames = node->op == IR_SLICE || node->op == IR_RENAME || node->op == IR_CONCAT;
  if (renames) w->place[node->over[0].index] = w->place[node->to[0].index];
  if (node->op == IR_CONCAT) {
    const ir_type *type = &ir_node_of(w->kernel->graph, node->operands[operand])->type;
    double whole = (double)w->kernel->axes[node->to[0].index].size;
    bool has = ir_type_has(type, node->over[0]);
    double part = has ? (double)w->kernel->axes[node->over[0].index].size : 1;
    if (!has || w->place[node->to[0].index] < 0)
      w->share *= 1; // one slice: computed once, since it has not the axis
    else if (whole > 0)
      w->share *= part / whole;
  }
  visit(w, node->operands[operand], false);
  w->share = share;
  w->place[node->over[0].index] = before;
}

static void visit_definition(walk *w, ir_value value) {
  const ir_node *node = ir_node_of(w->kernel->graph, value);
  const ir_op_info *op = ir_op_get(node->op);
  if (op->shape == IR_SHAPE_REDUCE) {
    visit_sum(w, node);
    return;
  }
  if (op->facts & IR_FACT_VIEW) {
    for (uint32_t i = 0; i < node->operand_count; i++)
      visit_through(w, node, i);
    return;
  }
  extent e = extent_of(w, &node->type);
  w->counts.arithmetic += e.times * (cost_of(node->op) + rounding_of(node->type.dtype));
  for (uint32_t i = 0; i < node->operand_count; i++)
    visit(w, node->operands[i], false);
}

static void visit(walk *w, ir_value value, bool top) {
  const kir_value *info = &w->kernel->values[value.index];
  if (w->seen[value.index]) return;
  w->seen[value.index] = true;
  const ir_node *node = ir_node_of(w->kernel->graph, value);
  if (node->op == IR_CONSTANT && node->value_count == 1) return;
  bool loads = info->load_arg >= 0 && (info->place == KIR_ARGUMENT || top);
  extent e = extent_of(w, &node->type);
  if (loads)
    read_memory(w, value, &e);
  else if (!top && (info->place == KIR_SHARED || info->place == KIR_SCRATCH))
    read_place(w, value, &e);
  else
    visit_definition(w, value);
}

// ---- roots --------------------------------------------------------------------------------------

static void store_root(walk *w, const kir_root *root, double times, bool vector) {
  const kir_value *info = &w->kernel->values[root->value.index];
  const ir_type *type = &ir_node_of(w->kernel->graph, root->value)->type;
  if (info->place == KIR_SHARED || info->place == KIR_SCRATCH) w->counts.stores += times;
  if (info->store_arg < 0) return;
  w->counts.stores += times;
  if (vector && type->dtype != IR_F32)
    w->counts.arithmetic += times * (type->dtype == IR_F8E4M3 ? NARROW_F8E4M3 : 2);
}

// Vectors that wait for their sums in a step of the innermost loop.
static double accumulators_of(const walk *w, const kir_root *root) {
  bool lanes = w->sweep->lane >= 0 &&
               (root->accumulates & ir_axis_bit(w->sweep->loops[w->sweep->lane])) != 0;
  double points = 1;
  for (uint32_t i = 0; i < w->sweep->loop_count; i++) {
    bool own = !(root->accumulates & ir_axis_bit(w->sweep->loops[i]));
    if (own || (w->loops[i].lane && lanes && !w->sweep->together)) points *= w->loops[i].tile;
  }
  return points;
}

// A mix computed in place goes source by source, with a sum for each point of the tile.
static void spill_mix(walk *w, const ir_node *node) {
  double points = 1, steps = 1;
  for (uint32_t i = 0; i < w->sweep->loop_count; i++) {
    points *= w->loops[i].tile;
    steps *= steps_of(&w->loops[i]);
  }
  for (uint32_t i = 0; i < node->over_count; i++)
    steps *= (double)w->kernel->axes[node->over[i].index].size;
  if (points > w->registers) w->counts.spills += SPILL * (points - w->registers) * steps;
}

static double count_root(walk *w, const kir_root *root) {
  const ir_node *node = ir_node_of(w->kernel->graph, root->value);
  if (!root->accumulates) {
    extent e = extent_of(w, &node->type);
    visit(w, root->value, true);
    store_root(w, root, e.times, e.vector);
    if (ir_op_get(node->op)->shape == IR_SHAPE_REDUCE) spill_mix(w, node);
    return 0;
  }
  double held = accumulators_of(w, root);
  visit_sum(w, node);
  w->seen[root->value.index] = true;
  double sums = sum_times(w, factors_of(w, node)), own = 1;
  for (uint32_t i = 0; i < w->sweep->loop_count; i++)
    if (!(root->accumulates & ir_axis_bit(w->sweep->loops[i]))) own *= w->loops[i].size;
  if (sums / held > w->counts.chain) w->counts.chain = sums / held;
  bool across = w->sweep->lane >= 0 &&
                (root->accumulates & ir_axis_bit(w->sweep->loops[w->sweep->lane])) != 0;
  if (across) w->counts.arithmetic += own * (2 * log2(w->lanes) + 2);
  store_root(w, root, own, false);
  return held;
}

tune_sweep_counts tune_count_sweep(base_arena *arena, const kir_kernel *kernel,
                                   const kir_sweep *sweep, uint32_t lanes) {
  walk w;
  begin_walk(&w, arena, kernel, sweep, lanes);
  double held = 0, steps = 1;
  for (uint32_t i = 0; i < sweep->roots.count; i++)
    held += count_root(&w, &sweep->roots.data[i]);
  for (uint32_t i = 0; i < w.loop_count; i++)
    steps *= steps_of(&w.loops[i]);
  if (held > w.registers) w.counts.spills += SPILL * (held - w.registers) * steps;
  w.counts.steps = steps;
  w.counts.level2_bytes = w.touched > LEVEL1_BYTES ? w.vector_bytes : 0;
  return w.counts;
}
