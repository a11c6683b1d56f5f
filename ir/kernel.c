// Kernel IR: refining axes, tiles and costs.
#include "ir/kernel.h"

static bool listed(const ir_axis *axes, uint32_t count, ir_axis axis) {
  for (uint32_t i = 0; i < count; i++)
    if (axes[i].index == axis.index) return true;
  return false;
}

uint32_t kir_refine(const kir_kernel *kernel, const ir_type *type, ir_axis *axes, uint32_t count) {
  for (uint32_t i = 0; i < type->rank; i++) {
    const kir_axis *axis = &kernel->axes[type->axes[i].index];
    uint32_t factors = axis->factor_count ? axis->factor_count : 1;
    for (uint32_t j = 0; j < factors && !axis->row; j++) {
      ir_axis next = axis->factor_count ? axis->factors[j] : type->axes[i];
      if (!listed(axes, count, next) && count < KIR_MAX_LOOPS) axes[count++] = next;
    }
  }
  return count;
}

// ---- tiles --------------------------------------------------------------------------------------

enum {
  MAX_POINTS = 48
}; // values kept at once for each root: beyond that registers spill for nothing

static bool is_accumulated(const kir_sweep *sweep, uint32_t i) {
  for (uint32_t j = 0; j < sweep->roots.count; j++)
    if (sweep->roots.data[j].accumulates & ir_axis_bit(sweep->loops[i])) return true;
  return false;
}

// On a GPU turns of the lane axis are no tile; sums of a tile of sources and queries go across the
// team together.
static int64_t wanted_team_tile(const kir_kernel *kernel, const kir_sweep *sweep, uint32_t i) {
  const kir_axis *axis = &kernel->axes[sweep->loops[i].index];
  if ((int32_t)i == sweep->lane || sweep->scalar || axis->hidden || axis->head) return 1;
  if (kernel->team.stepped && sweep->loop_count && is_accumulated(sweep, (uint32_t)sweep->lane))
    return axis->size; // all at once: the launch ends after it
  return axis->source ? kernel->schedule.source_tile : kernel->schedule.query_tile;
}

static int64_t wanted_tile(const kir_kernel *kernel, const kir_sweep *sweep, uint32_t i) {
  const kir_axis *axis = &kernel->axes[sweep->loops[i].index];
  const kir_schedule *schedule = &kernel->schedule;
  if (schedule->machine == KIR_CUDA) return wanted_team_tile(kernel, sweep, i);
  if (sweep->together && (int32_t)i != sweep->lane) return axis->size;
  // What runs once for a launch is kept short. (Pairs need two vectors.)
  if (sweep->phase == KIR_PREPARE && (int32_t)i != sweep->lane)
    return schedule->query_tile < 4 ? schedule->query_tile : 4;
  if (sweep->together || sweep->phase == KIR_PREPARE)
    return schedule->unroll < 2 ? schedule->unroll : 2;
  if ((int32_t)i == sweep->lane) return sweep->scalar ? 1 : schedule->unroll;
  if (is_accumulated(sweep, i))
    return axis->hidden ? schedule->unroll : sweep->scalar ? schedule->mix_unroll : 1;
  if (axis->hidden || axis->head) return 1; // nothing is shared between their indices
  return axis->source ? schedule->source_tile : schedule->query_tile;
}

static bool is_chained(const kir_kernel *kernel, const kir_sweep *sweep, uint32_t i) {
  return sweep->chained && sweep->loops[i].index == kernel->chain.axis.index;
}

// The tile of a chain is the same for all its sweeps, so the other loops get what it leaves.
int64_t kir_tile(const kir_kernel *kernel, const kir_sweep *sweep, uint32_t i) {
  int64_t points = 1, tile = 1;
  if (is_chained(kernel, sweep, i)) return kernel->chain.tile;
  for (uint32_t j = 0; j < sweep->loop_count; j++)
    if (is_chained(kernel, sweep, j)) points = kernel->chain.tile;
  for (uint32_t j = sweep->loop_count; j-- > i;) {
    int64_t size = kernel->axes[sweep->loops[j].index].size;
    if (is_chained(kernel, sweep, j)) continue;
    tile = wanted_tile(kernel, sweep, j);
    if ((int32_t)j != sweep->lane && tile > size) tile = size;
    if (tile < 1) tile = 1;
    if (points * tile > MAX_POINTS) tile = MAX_POINTS / points > 0 ? MAX_POINTS / points : 1;
    points *= tile;
  }
  return tile;
}

int64_t kir_turns(const kir_kernel *kernel, ir_axis lane, uint32_t threads, bool single) {
  int64_t size = kernel->axes[lane.index].size;
  int64_t step = (int64_t)threads * (single ? 1 : kernel->team.vector);
  return size > step ? (size + step - 1) / step : 1;
}

// ---- arguments ----------------------------------------------------------------------------------

uint32_t kir_pointer_count(const kir_kernel *kernel, uint32_t arg) {
  const kir_arg *info = &kernel->args.data[arg];
  if (!info->sliced) return 1;
  return (uint32_t)kernel->axes[ir_node_of(kernel->graph, info->value)->type.axes[0].index].size;
}

uint32_t kir_first_pointer(const kir_kernel *kernel, uint32_t arg) {
  uint32_t first = 0;
  for (uint32_t i = 0; i < arg; i++)
    first += kir_pointer_count(kernel, i);
  return first;
}

uint32_t kir_first_stride(const kir_kernel *kernel, uint32_t arg) {
  uint32_t first = 0;
  for (uint32_t i = 0; i < arg; i++)
    first += ir_node_of(kernel->graph, kernel->args.data[i].value)->type.rank;
  return first;
}

// ---- cost ---------------------------------------------------------------------------------------

double kir_elements_per_row(const kir_kernel *kernel, const ir_type *type) {
  double count = 1;
  for (uint32_t i = 0; i < type->rank; i++) {
    const kir_axis *axis = &kernel->axes[type->axes[i].index];
    if (!axis->row) count *= (double)axis->size;
  }
  return count;
}

bool kir_has_row(const kir_kernel *kernel, const ir_type *type) {
  for (uint32_t i = 0; i < type->rank; i++)
    if (kernel->axes[type->axes[i].index].row) return true;
  return false;
}

// Read, written or computed for each row, not once for all: a kernel without row axes has one row.
static bool is_of_row(const kir_kernel *kernel, const ir_type *type) {
  return kernel->row_count == 0 || kir_has_row(kernel, type);
}

// A reduction works on each element of its operands' joint axes, any other op on each of its
// result's.
static double work_elements(const kir_kernel *kernel, const ir_node *node) {
  if (ir_op_get(node->op)->shape != IR_SHAPE_REDUCE)
    return kir_elements_per_row(kernel, &node->type);
  double count = kir_elements_per_row(kernel, &node->type);
  for (uint32_t i = 0; i < node->over_count; i++)
    count *= (double)kernel->axes[node->over[i].index].size;
  return count * (node->operand_count == 2 ? 2 : 1);
}

kir_cost kir_cost_per_row(const kir_kernel *kernel) {
  kir_cost cost = {0};
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
    if (!is_of_row(kernel, type)) continue; // read once for all rows
    double bytes = kir_elements_per_row(kernel, type) * (double)ir_dtype_size(type->dtype);
    if (arg->written)
      cost.bytes_written += bytes;
    else
      cost.bytes_read += bytes * ir_share_read(kernel->graph, arg->value);
  }
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++) {
    const ir_node *node = &kernel->graph->nodes.data[i];
    const ir_op_info *info = ir_op_get(node->op);
    if (node->kernel != kernel->index || !is_of_row(kernel, &node->type)) continue;
    if (!(info->facts & IR_FACT_VIEW) && node->op != IR_CAST)
      cost.flops += work_elements(kernel, node);
  }
  return cost;
}

bool kir_reads_rows_again(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
    if (!arg->written && arg->reads > 1 && kir_has_row(kernel, type)) return true;
  }
  return false;
}

uint32_t kir_fused_ops(const kir_kernel *kernel) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++)
    count += kernel->graph->nodes.data[i].kernel == kernel->index;
  return count;
}

const kir_sweep *kir_sweep_of(const kir_kernel *kernel, uint32_t value) {
  for (uint32_t i = 0; i < kernel->sweeps.count; i++)
    for (uint32_t j = 0; j < kernel->sweeps.data[i].roots.count; j++)
      if (kernel->sweeps.data[i].roots.data[j].value.index == value) return &kernel->sweeps.data[i];
  return NULL;
}

size_t kir_align(size_t bytes) {
  return (bytes + 127) & ~(size_t)127;
}
