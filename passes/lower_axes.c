// Lowering, step 1: the role of each axis, what it is split into, and where concats cut it.
#include <stdlib.h>

#include "passes/lower.h"

// ---- factors ------------------------------------------------------------------------------------------

static void set_factors(kir_axis *whole, uint32_t count, const ir_axis *factors) {
  if (whole->factor_count) return; // split twice: the second way is index arithmetic
  whole->factor_count = count;
  for (uint32_t i = 0; i < count; i++)
    whole->factors[i] = factors[i];
}

static uint32_t expanded_rank(const kir_kernel *kernel, const ir_type *type, uint64_t seen,
                              uint64_t *all, bool *clash) {
  uint32_t rank = 0;
  uint64_t here = 0;
  for (uint32_t i = 0; i < type->rank; i++) {
    const kir_axis *axis = &kernel->axes[type->axes[i].index];
    uint32_t count = axis->factor_count ? axis->factor_count : 1;
    for (uint32_t j = 0; j < count; j++, rank++) {
      uint64_t bit = ir_axis_bit(axis->factor_count ? axis->factors[j] : type->axes[i]);
      *clash |= (here & bit) != 0;
      here |= bit;
    }
  }
  (void)seen;
  *all |= here;
  return rank;
}

// Factors work as long as no value has an axis and, in another role, one of its factors. Otherwise, and for
// factors that are split themselves, nothing is refined: views are then index arithmetic everywhere.
static bool factors_clash(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++)
    for (uint32_t j = 0; j < kernel->axes[i].factor_count; j++) {
      const kir_axis *factor = &kernel->axes[kernel->axes[i].factors[j].index];
      if (factor->factor_count || factor->row || kernel->axes[i].row) return true;
    }
  bool clash = false;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    ir_type joint = node->type;
    joint.rank = 0;
    uint64_t set = 0;
    for (uint32_t j = 0; j < node->operand_count; j++) {
      const ir_type *type = &ir_node_of(lowering->graph, node->operands[j])->type;
      for (uint32_t k = 0; k < type->rank && joint.rank < IR_MAX_RANK; k++)
        if (!(set & ir_axis_bit(type->axes[k]))) {
          set |= ir_axis_bit(type->axes[k]);
          joint.axes[joint.rank++] = type->axes[k];
        }
      uint64_t all = 0;
      expanded_rank(kernel, type, 0, &all, &clash);
    }
    uint64_t all = 0;
    expanded_rank(kernel, &joint, 0, &all, &clash);
    expanded_rank(kernel, &node->type, 0, &all, &clash);
  }
  return clash;
}

static void find_factors(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    if (node->op == IR_SPLIT_AXIS)
      set_factors(&kernel->axes[node->over[0].index], node->to_count, node->to);
    if (node->op == IR_MERGE_AXES)
      set_factors(&kernel->axes[node->to[0].index], node->over_count, node->over);
  }
  if (factors_clash(lowering))
    for (uint32_t i = 0; i < lowering->graph->axes.count; i++)
      kernel->axes[i].factor_count = 0;
}

// ---- breaks -------------------------------------------------------------------------------------------

static bool add_break(pass_lowering *lowering, ir_axis axis, int64_t position) {
  kir_axis *info = &lowering->kernel->axes[axis.index];
  if (position <= 0 || position >= info->size) return false;
  for (uint32_t i = 0; i < info->breaks.count; i++)
    if (info->breaks.data[i] == position) return false;
  base_push(lowering->arena, &info->breaks, position);
  return true;
}

static bool shift_breaks(pass_lowering *lowering, ir_axis from, ir_axis to, int64_t by) {
  bool changed = false;
  for (uint32_t i = 0; i < lowering->kernel->axes[from.index].breaks.count; i++)
    changed |= add_break(lowering, to, lowering->kernel->axes[from.index].breaks.data[i] + by);
  return changed;
}

static bool concat_breaks(pass_lowering *lowering, const ir_node *node) {
  bool changed = false;
  int64_t offset = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_type *type = &ir_node_of(lowering->graph, node->operands[i])->type;
    bool has = ir_type_has(type, node->over[0]);
    changed |= add_break(lowering, node->to[0], offset);
    if (has) changed |= shift_breaks(lowering, node->over[0], node->to[0], offset);
    offset += has ? ir_axis_size(lowering->graph, node->over[0]) : 1;
  }
  return changed;
}

static int compare_breaks(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static void find_breaks(pass_lowering *lowering) {
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
      const ir_node *node = &lowering->graph->nodes.data[i];
      if (!lowering->member[i]) continue;
      if (node->op == IR_CONCAT) changed |= concat_breaks(lowering, node);
      if (node->op == IR_SLICE)
        changed |= shift_breaks(lowering, node->over[0], node->to[0], -node->start);
      if (node->op == IR_RENAME) changed |= shift_breaks(lowering, node->over[0], node->to[0], 0);
    }
  }
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++) {
    kir_axis *axis = &lowering->kernel->axes[i];
    if (axis->breaks.count)
      qsort(axis->breaks.data, axis->breaks.count, sizeof(int64_t), compare_breaks);
  }
}

// ---- roles --------------------------------------------------------------------------------------------

static void find_sources(pass_lowering *lowering) {
  kir_axis *axes = lowering->kernel->axes;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    for (uint32_t j = 0; pass_is_reduction(node) && j < node->over_count; j++)
      axes[node->over[j].index].source |= !axes[node->over[j].index].hidden;
    if (node->op == IR_CONCAT) axes[node->to[0].index].source |= !axes[node->to[0].index].hidden;
  }
}

void pass_lower_axes(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++) {
    kernel->axes[i].size = lowering->graph->axes.data[i].size;
    kernel->axes[i].row = (lowering->rows >> i) & 1;
    kernel->axes[i].hidden = (lowering->hidden >> i) & 1;
  }
  find_factors(lowering);
  find_breaks(lowering);
  find_sources(lowering);
}
