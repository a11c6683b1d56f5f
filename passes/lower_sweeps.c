// Lowering, step 3: the loop nests. Roots (values that are stored) of one phase and level whose
// domains agree share a sweep.
#include "passes/lower.h"

// ---- can the lane axis be carried through the views? --------------------------------------------

// Axes whose index runs along the lanes at this point, and axes whose index is put together from
// their factors' indices (codegen follows the same rules when it evaluates).
typedef struct carry {
  uint64_t lanes, composed;
  uint64_t scattered; // put together, with the lanes along another factor than the last: no vector
} carry;

static uint64_t move_bit(uint64_t set, ir_axis from, ir_axis to) {
  uint64_t bit = set & ir_axis_bit(from) ? ir_axis_bit(to) : 0;
  return (set & ~ir_axis_bit(to)) | bit;
}

// A walk over what a root computes in place, with what it has seen: shared operands are looked at
// once.
typedef struct walk {
  const pass_lowering *lowering;
  BASE_VECTOR(struct visit {
    uint32_t value;
    carry at;
  })
  visits;
} walk;

static bool seen_before(walk *w, ir_value value, carry at) {
  for (uint32_t i = 0; i < w->visits.count; i++) {
    const struct visit *visit = &w->visits.data[i];
    if (visit->value == value.index && visit->at.lanes == at.lanes &&
        visit->at.composed == at.composed && visit->at.scattered == at.scattered)
      return true;
  }
  base_push(w->lowering->arena, &w->visits, (struct visit){value.index, at});
  return false;
}

static bool vectorizes(walk *w, ir_value value, carry at, bool top);

static bool view_vectorizes(walk *w, const ir_node *node, carry at) {
  ir_axis to = node->to[0], over = node->over[0];
  switch (node->op) {
  case IR_CONCAT:
    if (at.lanes & ir_axis_bit(to)) return false;
    at.composed &= ~ir_axis_bit(over);
    break;
  case IR_SLICE:
  case IR_RENAME:
    at.lanes = move_bit(at.lanes, to, over);
    at.composed &= ~ir_axis_bit(over);
    break;
  case IR_SPLIT_AXIS:
    for (uint32_t i = 0; i + 1 < node->to_count; i++)
      if (at.lanes & ir_axis_bit(node->to[i])) return false;
    at.lanes = move_bit(at.lanes, node->to[node->to_count - 1], over);
    break;
  case IR_MERGE_AXES:
    if ((at.lanes & ir_axis_bit(to)) && !(at.composed & ir_axis_bit(to))) return false;
    break;
  default:
    break;
  }
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (!vectorizes(w, node->operands[i], at, false)) return false;
  return true;
}

// Lists of slices have no stride between their first axis' indices.
static bool runs_over_slices(const kir_kernel *kernel, ir_value value, const ir_node *node,
                             carry at) {
  int32_t arg = kernel->values[value.index].load_arg;
  return arg >= 0 && kernel->args.data[arg].sliced && (at.lanes & ir_axis_bit(node->type.axes[0]));
}

static bool vectorizes(walk *w, ir_value value, carry at, bool top) {
  const pass_lowering *lowering = w->lowering;
  if (seen_before(w, value, at)) return true; // or on the way: then the first visit decides
  const ir_node *node = ir_node_of(lowering->graph, value);
  uint64_t mine = ir_type_axes(&node->type) & at.lanes;
  if (ir_type_axes(&node->type) & at.scattered) return false;
  if (!top && mine == 0 && !pass_is_reduction(node)) return true;
  if (mine & (mine - 1)) return false;                                             // a diagonal
  bool kept = !top && lowering->kernel->values[value.index].place != KIR_ARGUMENT; // packed, say
  if (!kept && runs_over_slices(lowering->kernel, value, node, at)) return false;
  bool loaded = !lowering->member[value.index] && node->op != IR_CONSTANT;
  if (loaded || (!top && lowering->kernel->values[value.index].place != KIR_INLINE)) return true;
  if (ir_op_get(node->op)->facts & IR_FACT_VIEW) return view_vectorizes(w, node, at);
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (!vectorizes(w, node->operands[i], at, false)) return false;
  return true;
}

// ---- one root -----------------------------------------------------------------------------------

typedef struct shape {
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count;
  uint64_t set, accumulates;
  int32_t lane; // index into axes
  bool single;
} shape;

static shape shape_of(const pass_lowering *lowering, uint32_t index) {
  shape result = {.count = 0};
  ir_value value = {index};
  result.count = pass_domain(lowering, value, result.axes, &result.accumulates);
  for (uint32_t i = 0; i < result.count; i++)
    result.set |= ir_axis_bit(result.axes[i]);
  result.lane = pass_lane(lowering, value, result.axes, result.count);
  if (result.lane < 0) return result;
  ir_axis lane = result.axes[result.lane];
  carry at = {.lanes = ir_axis_bit(lane)};
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++) {
    const kir_axis *whole = &lowering->kernel->axes[i];
    if (!whole->factor_count) continue;
    at.composed |= ir_axis_bit((ir_axis){i});
    for (uint32_t j = 0; j < whole->factor_count; j++)
      if (whole->factors[j].index == lane.index)
        *(j + 1 == whole->factor_count ? &at.lanes : &at.scattered) |= ir_axis_bit((ir_axis){i});
  }
  walk w = {.lowering = lowering};
  if (vectorizes(&w, value, at, true)) return result;
  // Lanes of a CPU are vectors; threads of a GPU can still take one element each.
  if (lowering->kernel->schedule.machine == KIR_CUDA)
    result.single = true;
  else
    result.lane = -1;
  return result;
}

// ---- building -----------------------------------------------------------------------------------

typedef struct builder {
  pass_lowering *lowering;
  uint32_t *sweep_of; // for each stored value, 1 + the index of its sweep
  uint32_t *after;    // for each value, 1 + the first sweep it may join; 0 for any
} builder;

// Does the node need its operands at its own point only? A view or a mix reads them at others.
static bool is_pointwise(const pass_lowering *lowering, ir_value value) {
  const ir_node *node = ir_node_of(lowering->graph, value);
  const kir_kernel *kernel = lowering->kernel;
  if (node->op == IR_SPLIT_AXIS) return kernel->axes[node->over[0].index].factor_count > 0;
  if (node->op == IR_MERGE_AXES) return kernel->axes[node->to[0].index].factor_count > 0;
  if (ir_op_get(node->op)->facts & IR_FACT_VIEW) return false;
  if (!pass_is_reduction(node)) return true;
  ir_type over = {.rank = node->over_count};
  for (uint32_t i = 0; i < node->over_count; i++)
    over.axes[i] = node->over[i];
  ir_axis axes[KIR_MAX_LOOPS], reduced[KIR_MAX_LOOPS];
  uint64_t accumulates;
  pass_domain(lowering, value, axes, &accumulates);
  uint32_t count = kir_refine(kernel, &over, reduced, 0);
  for (uint32_t i = 0; i < count; i++)
    if (!(accumulates & ir_axis_bit(reduced[i]))) return false;
  return true;
}

// Reads of stored values, seen through the values computed in place. What is read at other points
// than the reader's must be complete: its sweep has to be over.
static uint32_t last_read(const builder *build, ir_value reader) {
  const ir_node *node = ir_node_of(build->lowering->graph, reader);
  uint32_t last = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    uint32_t operand = node->operands[i].index;
    const kir_value *value = &build->lowering->kernel->values[operand];
    uint32_t sweep = value->place == KIR_INLINE ? build->after[operand] : build->sweep_of[operand];
    if (sweep > last) last = sweep;
  }
  return last && !is_pointwise(build->lowering, reader) ? last + 1 : last;
}

static bool is_chain(const kir_sweep *sweep, uint64_t accumulates) {
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    uint64_t other = sweep->roots.data[i].accumulates, both = other & accumulates;
    if (both != other && both != accumulates) return false;
  }
  return true;
}

static bool joins(const kir_sweep *sweep, const kir_value *value, bool chained,
                  const shape *wanted) {
  if (sweep->scalar || sweep->chained != chained || !wanted->count ||
      sweep->phase != value->phase || sweep->level != value->level ||
      sweep->loop_count != wanted->count || !is_chain(sweep, wanted->accumulates))
    return false;
  uint64_t set = 0;
  for (uint32_t i = 0; i < sweep->loop_count; i++)
    set |= ir_axis_bit(sweep->loops[i]);
  if (set != wanted->set || (sweep->lane < 0) != (wanted->lane < 0) ||
      sweep->single != wanted->single)
    return false;
  return wanted->lane < 0 || sweep->loops[sweep->lane].index == wanted->axes[wanted->lane].index;
}

static void add_root(builder *build, uint32_t index, bool scalar) {
  kir_kernel *kernel = build->lowering->kernel;
  const kir_value *value = &kernel->values[index];
  shape wanted = shape_of(build->lowering, index);
  bool chained = pass_in_chain(build->lowering, (ir_value){index});
  uint32_t earliest = last_read(build, (ir_value){index});
  uint32_t chosen = kernel->sweeps.count;
  for (uint32_t i = earliest ? earliest - 1 : 0; i < kernel->sweeps.count && !scalar; i++)
    if (joins(&kernel->sweeps.data[i], value, chained, &wanted)) {
      chosen = i;
      break;
    }
  if (chosen == kernel->sweeps.count) {
    kir_sweep sweep = {.phase = value->phase,
                       .scalar = scalar,
                       .level = value->level,
                       .loop_count = wanted.count,
                       .lane = wanted.lane,
                       .single = wanted.single,
                       .chained = chained};
    for (uint32_t i = 0; i < wanted.count; i++)
      sweep.loops[i] = wanted.axes[i];
    base_push(build->lowering->arena, &kernel->sweeps, sweep);
  }
  kir_root root = {.value = {index}, .accumulates = wanted.accumulates};
  base_push(build->lowering->arena, &kernel->sweeps.data[chosen].roots, root);
  build->sweep_of[index] = chosen + 1;
}

// ---- loop order ---------------------------------------------------------------------------------

static uint32_t accumulating_roots(const kir_sweep *sweep, ir_axis axis) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < sweep->roots.count; i++)
    count += (sweep->roots.data[i].accumulates & ir_axis_bit(axis)) != 0;
  return count;
}

// Loops over which more roots accumulate go inside; among equals the lane loop is innermost.
static void order_loops(kir_sweep *sweep) {
  ir_axis ordered[KIR_MAX_LOOPS];
  uint32_t count = 0;
  int32_t lane = -1;
  for (uint32_t wanted = 0; wanted <= sweep->roots.count; wanted++) {
    bool lane_here = false;
    for (uint32_t i = 0; i < sweep->loop_count; i++) {
      if (accumulating_roots(sweep, sweep->loops[i]) != wanted) continue;
      if ((int32_t)i == sweep->lane)
        lane_here = true;
      else
        ordered[count++] = sweep->loops[i];
    }
    if (lane_here) {
      lane = (int32_t)count;
      ordered[count++] = sweep->loops[sweep->lane];
    }
  }
  sweep->lane = lane;
  for (uint32_t i = 0; i < count; i++)
    sweep->loops[i] = ordered[i];
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    kir_root *root = &sweep->roots.data[i];
    while (root->depth < count && !(root->accumulates & ir_axis_bit(ordered[root->depth])))
      root->depth++;
  }
}

static void add_roots(builder *build, kir_phase phase, uint32_t level, bool scalar) {
  const pass_lowering *lowering = build->lowering;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const kir_value *value = &lowering->kernel->values[i];
    if (value->phase != phase || value->level != level) continue;
    bool is_scalar = !value->row && !pass_is_staged(lowering, (ir_value){i});
    bool stored =
        value->place == KIR_SHARED || value->place == KIR_SCRATCH || value->store_arg >= 0;
    build->after[i] = last_read(build, (ir_value){i});
    if (stored && is_scalar == scalar) add_root(build, i, scalar);
  }
}

// ---- chains -------------------------------------------------------------------------------------

// Is a value that a marked sweep stores read on the way to this one?
static bool needs_marked(const builder *build, ir_value value, bool top, const bool *marked,
                         bool *seen) {
  const kir_value *info = &build->lowering->kernel->values[value.index];
  uint32_t sweep = build->sweep_of[value.index];
  if (seen[value.index]) return false;
  seen[value.index] = true;
  if (!top && info->place != KIR_INLINE) return sweep && marked[sweep - 1];
  const ir_node *node = ir_node_of(build->lowering->graph, value);
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (needs_marked(build, node->operands[i], false, marked, seen)) return true;
  return false;
}

// The sweeps of a chain stand together: first what they need, then they, then what needs them.
static void gather_chain(builder *build) {
  kir_kernel *kernel = build->lowering->kernel;
  uint32_t count = kernel->sweeps.count, next = 0;
  bool *marked = base_new_array(build->lowering->arena, bool, count + 1);
  kir_sweep *ordered = base_new_array(build->lowering->arena, kir_sweep, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    marked[i] = sweep->chained;
    for (uint32_t j = 0; j < sweep->roots.count && !marked[i]; j++) {
      bool *seen =
          base_new_array(build->lowering->arena, bool, build->lowering->graph->nodes.count);
      marked[i] = needs_marked(build, sweep->roots.data[j].value, true, marked, seen);
    }
  }
  for (int part = 0; part < 3; part++)
    for (uint32_t i = 0; i < count; i++) {
      int own = kernel->sweeps.data[i].chained ? 1 : marked[i] ? 2 : 0;
      if (own == part) ordered[next++] = kernel->sweeps.data[i];
    }
  for (uint32_t i = 0; i < count; i++)
    kernel->sweeps.data[i] = ordered[i];
}

void pass_lower_sweeps(pass_lowering *lowering) {
  uint32_t nodes = lowering->graph->nodes.count, levels = 0;
  builder build = {.lowering = lowering,
                   .sweep_of = base_new_array(lowering->arena, uint32_t, nodes),
                   .after = base_new_array(lowering->arena, uint32_t, nodes)};
  for (uint32_t i = 0; i < nodes; i++)
    if (lowering->kernel->values[i].level > levels) levels = lowering->kernel->values[i].level;
  for (int phase = KIR_PREPARE; phase < KIR_PHASE_COUNT; phase++)
    for (uint32_t level = 0; level <= levels; level++) {
      add_roots(&build, (kir_phase)phase, level, true);
      add_roots(&build, (kir_phase)phase, level, false);
    }
  for (uint32_t i = 0; i < lowering->kernel->sweeps.count; i++)
    order_loops(&lowering->kernel->sweeps.data[i]);
  if (lowering->kernel->chain.used) gather_chain(&build);
}
