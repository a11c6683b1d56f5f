// Lowering, step 4: overlapping two rows.
//
//   for each row t:                              sweep A (row 0)
//     sweep A (row t)    reads the sources       for each row t:
//     scalars                              ->      scalars (row t)
//     sweep B (row t)    reads them again          one loop: B (row t), A (row t + 1)
//     rest                                         rest (row t)
//
// B finds its sources in the cache; A waits for memory. In one loop the waiting hides behind B's arithmetic, and the
// hardware's stream prefetchers do the rest. What A leaves for row t + 1 must not be wanted by row t any
// more; a row value that B reads and A writes at the same place in the same step is fine, because B comes first.
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
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      accumulators += sweep->roots.data[j].accumulates ? points : 0;
    first++;
  }
  return first > 0 && accumulators <= MAX_ACCUMULATORS;
}

// Is a place that A fills read when `value` is computed in place? In B (`beside`) a row value may be, at
// the very point where A writes it.
static bool reads_ahead(const pass_lowering *lowering, ir_value value, bool top, bool moved,
                        bool beside, ir_axis lane, const bool *filled) {
  const kir_value *info = &lowering->kernel->values[value.index];
  if (!top && info->place != KIR_INLINE) {
    if (!filled[value.index]) return false;
    bool same_point = info->rank == 1 && info->order[0].index == lane.index && !moved;
    return !(beside && same_point);
  }
  const ir_node *node = ir_node_of(lowering->graph, value);
  moved |= (ir_op_get(node->op)->facts & IR_FACT_VIEW) && node->op != IR_CONCAT;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (reads_ahead(lowering, node->operands[i], false, moved, beside, lane, filled)) return true;
  return false;
}

static bool row_is_done_with(const pass_lowering *lowering, int32_t second, ir_axis lane) {
  const kir_kernel *kernel = lowering->kernel;
  bool *filled = base_new_array(lowering->arena, bool, lowering->graph->nodes.count);
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      if (is_body_row(sweep) && sweep->level == 0) filled[sweep->roots.data[j].value.index] = true;
  }
  for (uint32_t i = (uint32_t)second; i < kernel->sweeps.count; i++)
    for (uint32_t j = 0; j < kernel->sweeps.data[i].roots.count; j++)
      if (reads_ahead(lowering, kernel->sweeps.data[i].roots.data[j].value, true, false,
                      (int32_t)i == second, lane, filled))
        return false;
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
    if (is_body_row(sweep) && sweep->level == 0) sweep->ahead = sweep->together = true;
  }
}
