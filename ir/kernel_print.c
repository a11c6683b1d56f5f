// Kernel IR as people read it: arguments, then the sweeps in order with what each computes and
// where that goes.
#include <string.h>

#include "ir/kernel.h"

typedef struct printer {
  const kir_kernel *kernel;
  const ir_graph *graph; // the kernel's, without the kernel attributes
  base_text *out;
} printer;

static void print_axis(const printer *p, ir_axis axis) {
  base_text_printf(p->out, "%.*s", BASE_FMT(p->graph->axes.data[axis.index].name));
}

static void print_axes(const printer *p, const ir_axis *axes, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (i) base_text_printf(p->out, ", ");
    print_axis(p, axes[i]);
  }
}

static void print_args(const printer *p) {
  for (uint32_t i = 0; i < p->kernel->args.count; i++) {
    const kir_arg *arg = &p->kernel->args.data[i];
    const ir_node *node = ir_node_of(p->graph, arg->value);
    base_text_printf(p->out, "  %s %%%.*s : ", arg->written ? "write" : "read ",
                     BASE_FMT(node->name));
    ir_print_type(p->graph, &node->type, p->out);
    if (arg->temporary) base_text_printf(p->out, ", temporary");
    if (arg->unit_position >= 0) {
      base_text_printf(p->out, ", contiguous along ");
      print_axis(p, node->type.axes[arg->unit_position]);
    }
    base_text_printf(p->out, "%s%s\n", arg->sliced ? ", sliced" : "",
                     arg->residency == KIR_REGISTERS ? ", kept in registers"
                     : arg->residency == KIR_TEAM    ? ", kept in shared memory"
                                                     : "");
  }
}

static void print_sweep_head(const printer *p, const kir_sweep *sweep) {
  const char *when = sweep->phase == KIR_PREPARE ? "once" : sweep->ahead ? "next row" : "each row";
  base_text_printf(p->out, "\n  %s, level %u, %s(", when, sweep->level,
                   sweep->scalar ? "scalars" : "sweep");
  for (uint32_t i = 0; i < sweep->loop_count; i++) {
    if (i) base_text_printf(p->out, ", ");
    print_axis(p, sweep->loops[i]);
    base_text_printf(p->out, "=%lld %s%lld", (long long)p->kernel->axes[sweep->loops[i].index].size,
                     (int32_t)i == sweep->lane ? "lanes x" : "by ",
                     (long long)kir_tile(p->kernel, sweep, i));
  }
  base_text_printf(p->out, ") {\n");
}

static bool is_root(const kir_sweep *sweep, ir_value value) {
  for (uint32_t i = 0; i < sweep->roots.count; i++)
    if (sweep->roots.data[i].value.index == value.index) return true;
  return false;
}

// What a place is called: on a GPU by the kind of memory.
static const char *place_name(const kir_kernel *kernel, const kir_value *value) {
  static const char *const memory[] = {
      [KIR_MEMORY] = "workspace", [KIR_REGISTERS] = "registers", [KIR_TEAM] = "shared"};
  if (kernel->schedule.machine == KIR_CUDA) return memory[value->residency];
  return value->place == KIR_SHARED ? "shared" : "scratch";
}

static void print_destination(const printer *p, ir_value value) {
  const kir_value *info = &p->kernel->values[value.index];
  if (info->place == KIR_SHARED || info->place == KIR_SCRATCH) {
    base_text_printf(p->out, " -> %s[", place_name(p->kernel, info));
    print_axes(p, info->order, info->rank);
    base_text_printf(p->out, "]");
  }
  if (info->store_arg >= 0) base_text_printf(p->out, " -> memory");
}

// The values computed in place come before the root that needs them.
static void print_tree(const printer *p, const kir_sweep *sweep, ir_value value, bool *printed) {
  const kir_value *info = &p->kernel->values[value.index];
  const ir_node *node = ir_node_of(p->graph, value);
  bool root = is_root(sweep, value);
  if (printed[value.index] || (!root && info->place != KIR_INLINE)) return;
  printed[value.index] = true;
  for (uint32_t i = 0; i < node->operand_count; i++)
    print_tree(p, sweep, node->operands[i], printed);
  base_text_printf(p->out, "    ");
  if (info->load_arg >= 0)
    base_text_printf(p->out, "%%%.*s, reordered", BASE_FMT(node->name));
  else
    ir_print_node(p->graph, value, p->out);
  if (root) print_destination(p, value);
  base_text_printf(p->out, "\n");
}

const ir_graph *kir_plain_graph(const ir_graph *graph, base_arena *arena) {
  ir_graph *plain = base_new(arena, ir_graph);
  *plain = *graph;
  plain->nodes.data = base_new_array(arena, ir_node, graph->nodes.count);
  memcpy(plain->nodes.data, graph->nodes.data, graph->nodes.count * sizeof(ir_node));
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    plain->nodes.data[i].kernel = IR_NO_KERNEL;
  return plain;
}

static void print_team(const printer *p) {
  const kir_team *team = &p->kernel->team;
  base_text_printf(p->out, "  team of %u threads, %u elements an access, %u in a block",
                   team->threads, team->vector, team->count);
  if (team->split > 1) base_text_printf(p->out, "; %u blocks share a row", team->split);
  base_text_printf(p->out, "; %s scalars%s\n", team->warp_scalars ? "each warp its" : "the team's",
                   team->prepared_by_launch ? "; prepared by a launch" : "");
}

void kir_print(const kir_kernel *kernel, base_text *out) {
  printer p = {.kernel = kernel, .graph = kir_plain_graph(kernel->graph, out->arena), .out = out};
  base_text_printf(out, "kernel @%.*s, rows (", BASE_FMT(kernel->name));
  print_axes(&p, kernel->rows, kernel->row_count);
  base_text_printf(out, ") {\n  schedule ");
  kir_schedule_print(&kernel->schedule, out);
  base_text_printf(out, "\n");
  print_args(&p);
  if (kernel->schedule.machine == KIR_CUDA)
    print_team(&p);
  else
    base_text_printf(out, "  shared %zu bytes, scratch %zu bytes%s%s\n", kernel->shared_bytes,
                     kernel->scratch_bytes, kernel->overlap >= 0 ? ", rows overlap" : "",
                     kernel->paired ? ", bf16 pairs" : "");
  bool *printed = base_new_array(out->arena, bool, kernel->graph->nodes.count);
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    memset(printed, 0, kernel->graph->nodes.count);
    print_sweep_head(&p, sweep);
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      print_tree(&p, sweep, sweep->roots.data[j].value, printed);
    base_text_printf(out, "  }\n");
  }
  base_text_printf(out, "}\n");
}

void kir_print_choice(const kir_kernel *kernel, base_text *out) {
  base_text_printf(out, "%.*s ", BASE_FMT(kernel->name));
  kir_schedule_print(&kernel->schedule, out);
  base_text_append(out, "\n", 1);
}
