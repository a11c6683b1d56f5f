// Lowering, step 1: the role of each axis, what it is split into, and where concats cut it.
#include <stdlib.h>

#include "passes/lower.h"

// ---- factors ------------------------------------------------------------------------------------

static void set_factors(kir_axis *whole, uint32_t count, const ir_axis *factors) {
  if (whole->factor_count) return; // split twice: see is_refined
  whole->factor_count = count;
  for (uint32_t i = 0; i < count; i++)
    whole->factors[i] = factors[i];
}

// Adds the axes of a type, split ones as their factors; false when the set has one of them already.
static bool add_refined(const kir_kernel *kernel, uint64_t axes, uint64_t *set) {
  for (uint32_t i = 0; i < kernel->graph->axes.count; i++) {
    const kir_axis *axis = &kernel->axes[i];
    if (!(axes & ir_axis_bit((ir_axis){i}))) continue;
    uint64_t bits = axis->factor_count ? 0 : ir_axis_bit((ir_axis){i});
    for (uint32_t j = 0; j < axis->factor_count; j++)
      bits |= ir_axis_bit(axis->factors[j]);
    if (*set & bits) return false;
    *set |= bits;
  }
  if (__builtin_popcountll(*set) > KIR_MAX_LOOPS) return false;
  return true;
}

static bool has_factors(const kir_axis *whole, uint32_t count, const ir_axis *factors) {
  bool same = whole->factor_count == count;
  for (uint32_t i = 0; same && i < count; i++)
    same = whole->factors[i].index == factors[i].index;
  return same;
}

// Does a view map split axes through their factors only? Any other view sets the index of the whole
// axis, from which nobody gets those of the factors.
static bool is_refined(const pass_lowering *lowering, const ir_node *node) {
  const kir_axis *axes = lowering->kernel->axes;
  if (!(ir_op_get(node->op)->facts & IR_FACT_VIEW)) return true;
  const kir_axis *over = &axes[node->over[0].index], *to = &axes[node->to[0].index];
  if (node->op == IR_SPLIT_AXIS) return has_factors(over, node->to_count, node->to);
  if (node->op == IR_MERGE_AXES) return has_factors(to, node->over_count, node->over);
  return !over->factor_count && !to->factor_count;
}

// Factors work as long as no value has an axis and, in another role, one of its factors. Otherwise,
// for factors that are split themselves and for wholes that other views touch, nothing is refined:
// views are then index arithmetic everywhere.
static bool factors_clash(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++)
    for (uint32_t j = 0; j < kernel->axes[i].factor_count; j++) {
      const kir_axis *factor = &kernel->axes[kernel->axes[i].factors[j].index];
      if (factor->factor_count || factor->row || kernel->axes[i].row) return true;
    }
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    uint64_t joint = 0, refined = 0;
    for (uint32_t j = 0; j < node->operand_count; j++)
      joint |= ir_type_axes(&ir_node_of(lowering->graph, node->operands[j])->type);
    if (!is_refined(lowering, node) || !add_refined(kernel, joint, &refined)) return true;
    refined = 0;
    if (!add_refined(kernel, ir_type_axes(&node->type), &refined)) return true;
  }
  return false;
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

// ---- breaks -------------------------------------------------------------------------------------

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

// ---- roles --------------------------------------------------------------------------------------

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

static void find_heads(pass_lowering *lowering) {
  kir_axis *axes = lowering->kernel->axes;
  for (uint32_t i = 0; i < lowering->graph->axes.count; i++)
    for (uint32_t j = 0; j < axes[i].factor_count && axes[i].hidden; j++) {
      kir_axis *factor = &axes[axes[i].factors[j].index];
      factor->head = !factor->hidden;
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
  find_heads(lowering);
}
