// Lowering one kernel of a fused graph (see lower.h).
#include "passes/lower.h"

#include "passes/passes.h"
#include "passes/rows.h"

// ---- arguments ----------------------------------------------------------------------------------

static bool used_outside(const pass_lowering *lowering, uint32_t index) {
  for (uint32_t i = index + 1; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    for (uint32_t j = 0; j < node->operand_count; j++)
      if (node->operands[j].index == index && !lowering->member[i]) return true;
  }
  return false;
}

// A parameter whose first axis counts sources may come as one tensor for each of them: then the
// code looks its rows up in a list of pointers. Longer lists are copied together by the launcher.
enum { MAX_SLICES = 256 };

static int32_t add_arg(pass_lowering *lowering, uint32_t index, bool written) {
  kir_kernel *kernel = lowering->kernel;
  const ir_node *node = &lowering->graph->nodes.data[index];
  kir_arg arg = {.value = {index}, .written = written, .unit_position = -1};
  arg.temporary = node->op != IR_PARAM && !ir_is_result(lowering->graph, (ir_value){index});
  // The hidden axis must have stride 1; of several the last.
  for (uint32_t i = 0; i < node->type.rank; i++)
    if (kernel->axes[node->type.axes[i].index].hidden) arg.unit_position = (int32_t)i;
  const kir_axis *first = node->type.rank ? &kernel->axes[node->type.axes[0].index] : NULL;
  // The launcher of a CPU walks the outer rows itself.
  bool walked =
      first && first->row && (kernel->schedule.machine != KIR_CUDA || first->size == IR_DYNAMIC);
  // C++ has no arrays of no pointers.
  bool none = first && first->size == 0 && kernel->schedule.machine == KIR_CUDA;
  arg.sliced = node->op == IR_PARAM && node->type.rank >= 2 && !walked && !first->hidden && !none &&
               first->size <= MAX_SLICES;
  base_push(lowering->arena, &kernel->args, arg);
  return (int32_t)kernel->args.count - 1;
}

static void collect_args(pass_lowering *lowering) {
  const ir_graph *graph = lowering->graph;
  bool *read = base_new_array(lowering->arena, bool, graph->nodes.count);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (lowering->member[i])
      for (uint32_t j = 0; j < graph->nodes.data[i].operand_count; j++)
        read[graph->nodes.data[i].operands[j].index] = true;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    kir_value *value = &lowering->kernel->values[i];
    value->load_arg = value->store_arg = -1;
    if (!read[i] || lowering->member[i] || graph->nodes.data[i].op == IR_CONSTANT) continue;
    value->place = KIR_ARGUMENT;
    value->load_arg = add_arg(lowering, i, false);
  }
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (lowering->member[i] && (ir_is_result(graph, (ir_value){i}) || used_outside(lowering, i)))
      lowering->kernel->values[i].store_arg = add_arg(lowering, i, true);
}

// ---- rows ---------------------------------------------------------------------------------------

// In the order of the first value that has all of them: its outermost row is the outermost here.
static void order_rows(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    if (!lowering->member[i]) continue;
    const ir_type *type = &lowering->graph->nodes.data[i].type;
    if ((ir_type_axes(type) & lowering->rows) != lowering->rows) continue;
    for (uint32_t j = 0; j < type->rank; j++)
      if (lowering->rows & ir_axis_bit(type->axes[j]))
        kernel->rows[kernel->row_count++] = type->axes[j];
    return;
  }
}

// NULL: see diag, or, with a chain, that is not possible.
static kir_kernel *lower(const ir_graph *graph, int32_t index, const kir_schedule *schedule,
                         const ir_axis *chain, base_diag *diag) {
  kir_kernel *kernel = base_new(graph->arena, kir_kernel);
  kernel->graph = graph;
  kernel->index = index;
  kernel->name = index == 0
                     ? graph->name
                     : base_str_format(graph->arena, "%.*s.%d", BASE_FMT(graph->name), index);
  kernel->schedule = *schedule;
  kernel->overlap = -1;
  kernel->values = base_new_array(graph->arena, kir_value, graph->nodes.count);
  pass_lowering lowering = {.kernel = kernel, .graph = graph, .arena = graph->arena, .diag = diag};
  lowering.member = base_new_array(graph->arena, bool, graph->nodes.count);
  lowering.packed = base_new_array(graph->arena, uint64_t, graph->nodes.count);
  lowering.of_maximum = base_new_array(graph->arena, bool, graph->nodes.count);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    lowering.member[i] = graph->nodes.data[i].kernel == index;
    kernel->values[i].running = -1;
  }
  lowering.rows = pass_row_axes(graph, index);
  lowering.hidden = pass_hidden_axes(graph, index);
  order_rows(&lowering);
  pass_lower_axes(&lowering);
  collect_args(&lowering);
  if (chain && !pass_lower_chain(&lowering, *chain)) return NULL;
  if (!pass_lower_places(&lowering)) return NULL;
  pass_lower_sweeps(&lowering);
  if (schedule->machine == KIR_CUDA) return pass_lower_team(&lowering) ? kernel : NULL;
  pass_lower_overlap(&lowering);
  pass_lower_pairs(&lowering);
  return kernel;
}

// A GPU takes sources tile by tile where that spares it reading them twice.
kir_kernel *pass_lower(const ir_graph *graph, int32_t index, const kir_schedule *schedule,
                       base_diag *diag) {
  kir_kernel *kernel = lower(graph, index, schedule, NULL, diag);
  if (!kernel || schedule->machine != KIR_CUDA || !schedule->online || kernel->team.vector == 1 ||
      kernel->team.stepped || !kir_reads_rows_again(kernel))
    return kernel;
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    const kir_axis *axis = &kernel->axes[i];
    if (!axis->source || axis->row || axis->hidden) continue;
    kir_kernel *chained = lower(graph, index, schedule, &(ir_axis){i}, diag);
    if (chained) return chained;
  }
  return kernel;
}

uint32_t pass_kernel_count(const ir_graph *graph) {
  int32_t last = -1;
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.data[i].kernel > last) last = graph->nodes.data[i].kernel;
  return (uint32_t)(last + 1);
}
