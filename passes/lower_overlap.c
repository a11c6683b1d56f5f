// Lowering, step 4: overlapping two rows.
//
//   for each row t:                              sweep A (row 0)
//     sweep A (row t)    reads the sources       for each row t:
//     scalars                              ->      scalars (row t)
//     sweep B (row t)    reads them again          one loop: B (row t), A (row t + 1)
//     rest                                         rest (row t)
//
// B finds its sources in the cache; A waits for memory. In one loop the waiting hides behind B's
// arithmetic, and the hardware's stream prefetchers do the rest. What A leaves for row t + 1 must
// not be wanted by row t any more; a row value that B reads and A writes at the same place in the
// same step is fine, because B comes first.
#include "passes/lower.h"

enum {
  MAX_POINTS = 16,       // sources whose rows A reads side by side
  MAX_ACCUMULATORS = 20, // of 32 registers
};

static bool is_body_row(const kir_sweep *sweep) {
  return sweep->phase == KIR_BODY && !sweep->scalar;
}

static int64_t outer_points(const kir_kernel *kernel, const kir_sweep *sweep) {
  int64_t points = 1;
  for (uint32_t i = 0; i < sweep->loop_count; i++)
    if ((int32_t)i != sweep->lane) points *= kernel->axes[sweep->loops[i].index].size;
  return points;
}

static bool lane_is(const kir_sweep *sweep, ir_axis lane) {
  return sweep->lane >= 0 && (uint32_t)sweep->lane + 1 == sweep->loop_count &&
         sweep->loops[sweep->lane].index == lane.index;
}

// B: the first sweep of level 1 that is one loop over the hidden axis.
static int32_t find_second(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (is_body_row(sweep) && sweep->level == 1)
      return sweep->loop_count == 1 && sweep->lane == 0 ? (int32_t)i : -1;
  }
  return -1;
}

// A: every body sweep of level 0, when each can run beside B.
static bool first_sweeps_fit(const kir_kernel *kernel, ir_axis lane) {
  int64_t accumulators = 0, first = 0;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != KIR_BODY || sweep->level > 0) continue;
    int64_t points = outer_points(kernel, sweep);
    if (sweep->scalar || !lane_is(sweep, lane) || points > MAX_POINTS || points == 0) return false;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      const kir_root *root = &sweep->roots.data[j];
      if (!root->accumulates) continue;
      // The loops outside the lane loop are unrolled, so none of them can be summed over.
      if (root->depth + 1 != sweep->loop_count) return false;
      accumulators += points;
    }
    first++;
  }
  return first > 0 && accumulators <= MAX_ACCUMULATORS;
}

// A walk over what a root computes in place, looking for places that A fills.
typedef struct walk {
  const pass_lowering *lowering;
  const bool *filled;
  bool *seen[2]; // values looked at, straight and through a view
  ir_axis lane;
  enum { WALK_A, WALK_B, WALK_REST } sweep; // whose root it is
} walk;

// In B a row value may be read at the very point where A writes it. Of A itself a later sweep may
// read what an earlier one has written in the same step: all points of the outer loops, but no
// other lanes.
static bool reads_ahead(walk *w, ir_value value, bool top, bool moved) {
  const kir_value *info = &w->lowering->kernel->values[value.index];
  if (!top && info->place != KIR_INLINE) {
    if (!w->filled[value.index]) return false;
    bool same_point = info->rank == 1 && info->order[0].index == w->lane.index && !moved;
    return w->sweep == WALK_A ? moved : w->sweep == WALK_REST || !same_point;
  }
  if (w->seen[moved][value.index]) return false;
  w->seen[moved][value.index] = true;
  const ir_node *node = ir_node_of(w->lowering->graph, value);
  moved |= (ir_op_get(node->op)->facts & IR_FACT_VIEW) && node->op != IR_CONCAT;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (reads_ahead(w, node->operands[i], false, moved)) return true;
  return false;
}

static bool root_reads_ahead(walk *w, const kir_root *root) {
  for (int i = 0; i < 2; i++)
    w->seen[i] = base_new_array(w->lowering->arena, bool, w->lowering->graph->nodes.count);
  return reads_ahead(w, root->value, true, false);
}

static bool is_first(const kir_sweep *sweep) {
  return is_body_row(sweep) && sweep->level == 0;
}

static bool row_is_done_with(const pass_lowering *lowering, int32_t second, ir_axis lane) {
  const kir_kernel *kernel = lowering->kernel;
  bool *filled = base_new_array(lowering->arena, bool, lowering->graph->nodes.count);
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      if (is_first(sweep)) filled[sweep->roots.data[j].value.index] = true;
  }
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (!is_first(sweep) && (int32_t)i < second) continue;
    walk w = {.lowering = lowering, .filled = filled, .lane = lane};
    w.sweep = is_first(sweep) ? WALK_A : (int32_t)i == second ? WALK_B : WALK_REST;
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      if (root_reads_ahead(&w, &sweep->roots.data[j])) return false;
  }
  return true;
}

void pass_lower_overlap(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  kernel->overlap = -1;
  int32_t second = kernel->schedule.overlap && kernel->row_count ? find_second(kernel) : -1;
  if (second < 0) return;
  ir_axis lane = kernel->sweeps.data[second].loops[0];
  if (!first_sweeps_fit(kernel, lane) || !row_is_done_with(lowering, second, lane)) return;
  kernel->overlap = second;
  kernel->sweeps.data[second].together = true;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    kir_sweep *sweep = &kernel->sweeps.data[i];
    if (is_first(sweep)) sweep->ahead = sweep->together = true;
  }
}
