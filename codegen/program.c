// What all targets share: axes, slots and how each kernel sees them; the ops a target has.
#include <string.h>

#include "codegen/program.h"

static const char *name_of(base_arena *arena, base_str name) {
  return base_str_copy(arena, name).data;
}

static rt_slot make_slot(base_arena *arena, const ir_graph *graph, ir_value value, rt_role role) {
  const ir_node *node = ir_node_of(graph, value);
  rt_slot slot = {.name = name_of(arena, node->name),
                  .role = role,
                  .dtype = (rt_dtype)node->type.dtype,
                  .rank = node->type.rank};
  for (uint32_t i = 0; i < slot.rank; i++)
    slot.axes[i] = node->type.axes[i].index;
  return slot;
}

static bool is_carried(const rt_slot *slots, uint32_t count, uint32_t axis) {
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < slots[i].rank; j++)
      if (slots[i].axes[j] == axis) return true;
  return false;
}

static void make_slots(base_arena *arena, const ir_graph *graph, const kir_kernel *const *kernels,
                       uint32_t kernel_count, rt_program *program, uint32_t *slot_of) {
  rt_slot *slots = base_new_array(arena, rt_slot, graph->nodes.count + graph->results.count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < graph->param_count; i++) {
    slot_of[i] = count;
    slots[count++] = make_slot(arena, graph, (ir_value){i}, RT_INPUT);
  }
  for (uint32_t i = 0; i < graph->results.count; i++) {
    slot_of[graph->results.data[i].index] = count;
    slots[count++] = make_slot(arena, graph, graph->results.data[i], RT_OUTPUT);
  }
  for (uint32_t i = 0; i < kernel_count; i++)
    for (uint32_t j = 0; j < kernels[i]->args.count; j++) {
      const kir_arg *arg = &kernels[i]->args.data[j];
      if (!arg->temporary || !arg->written) continue;
      slot_of[arg->value.index] = count;
      slots[count++] = make_slot(arena, graph, arg->value, RT_TEMPORARY);
    }
  program->slots = slots;
  program->slot_count = count;
  // No tensor tells the size of an axis that only values inside have, so it must not be asked for.
  rt_axis *axes = (rt_axis *)program->axes;
  for (uint32_t i = 0; i < program->axis_count; i++)
    if (axes[i].size == RT_DYNAMIC && !is_carried(slots, count, i)) axes[i].size = 0;
}

static rt_kernel make_kernel(base_arena *arena, const kir_kernel *kernel, const uint32_t *slot_of) {
  rt_kernel made = {.name = name_of(arena, kernel->name),
                    .arg_count = kernel->args.count,
                    .row_count = kernel->row_count,
                    .rows_per_task = kernel->schedule.rows,
                    .shared_bytes = kernel->shared_bytes,
                    .scratch_bytes = kernel->scratch_bytes};
  rt_kernel_arg *args = base_new_array(arena, rt_kernel_arg, kernel->args.count);
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    args[i] = (rt_kernel_arg){.slot = slot_of[arg->value.index],
                              .first_pointer = kir_first_pointer(kernel, i),
                              .pointer_count = kir_pointer_count(kernel, i),
                              .first_stride = kir_first_stride(kernel, i),
                              .unit_position = arg->unit_position,
                              .written = arg->written};
    made.pointer_count += args[i].pointer_count;
    made.stride_count += ir_node_of(kernel->graph, arg->value)->type.rank;
  }
  made.args = args;
  for (uint32_t i = 0; i < kernel->row_count; i++)
    made.rows[i] = kernel->rows[i].index;
  return made;
}

rt_program *cg_program_create(base_arena *arena, const ir_graph *graph,
                              const kir_kernel *const *kernels, uint32_t kernel_count) {
  rt_program *program = base_new(arena, rt_program);
  rt_axis *axes = base_new_array(arena, rt_axis, graph->axes.count);
  for (uint32_t i = 0; i < graph->axes.count; i++)
    axes[i] = (rt_axis){.name = name_of(arena, graph->axes.data[i].name),
                        .size = graph->axes.data[i].size};
  program->axes = axes;
  program->axis_count = graph->axes.count;
  uint32_t *slot_of = base_new_array(arena, uint32_t, graph->nodes.count);
  make_slots(arena, graph, kernels, kernel_count, program, slot_of);
  rt_kernel *made = base_new_array(arena, rt_kernel, kernel_count);
  for (uint32_t i = 0; i < kernel_count; i++)
    made[i] = make_kernel(arena, kernels[i], slot_of);
  program->kernels = made;
  program->kernel_count = kernel_count;
  return program;
}

bool cg_has_all_ops(const ir_graph *graph, bool (*has)(ir_op op), const char *target,
                    const char *file, base_diag *diag) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (has(node->op)) continue;
    base_error_status(diag, BASE_UNSUPPORTED, node->loc, "the %s target has no code for %s", target,
                      ir_op_get(node->op)->keyword);
    base_hint(diag, "use --target interp, or add it to %s", file);
    return false;
  }
  return true;
}
