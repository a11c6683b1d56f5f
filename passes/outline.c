// outline: cuts the graph of a depth at its calls; what lies between two of them becomes a graph of its own.
//
//   %f_1 = call @sublayer_1 %x_1                   step 2:
//   %p_2 = add %p_1, %f_1                          graph @depth_3(%p: bf16[T, D], %f: bf16[T, D],
//   %v_2 = concat %b_0, %b_1, %p_2 over B to N3                   %v: bf16[B2, T, D], %query: f32[D]) {
//   ... %query_2 ...                         ->      %p_2 = add %p, %f
//   %x_2 = weighted_sum %a_2, %v_2 over N3           %v_2 = concat %v, %p_2 over B2 to N3
//   %f_2 = call @sublayer_2 %x_2                     ...
//                                                    return %x_2, %p_2
//
// Values that a concat puts together and that are there before are one parameter, a list of slices: so
// rows may lie anywhere, and sites that differ in nothing but that share a kernel. Kernels are the same
// when their graphs have the same structural hash.
//
// Nothing is reordered: a run reads values of earlier steps, of its own and of the run before it.
#include <string.h>

#include "passes/depth.h"

static const uint32_t nobody = UINT32_MAX;

typedef struct outliner {
  const ir_graph *graph;
  pass_outline *outline;
  const uint32_t *steps;
  const bool *fixed;
  bool *view;          // one index of a value's outermost axis, and the slice on the way to it
  uint32_t *run_of;    // of computed nodes; nobody: none yet
  uint32_t *first_run; // of steps
  bool *kept;          // somebody needs it in a later run
  bool *shown;         // an operand of a call, or a result of the depth
  base_hash *hashes;   // of the kernels
} outliner;

static const ir_node *node_at(const outliner *o, uint32_t index) {
  return &o->graph->nodes.data[index];
}

// ---- views --------------------------------------------------------------------------------------

static bool takes_one(const outliner *o, const ir_node *node) {
  if (node->op != IR_SLICE || ir_axis_size(o->graph, node->to[0]) != 1) return false;
  const ir_type *type = &ir_node_of(o->graph, node->operands[0])->type;
  return ir_type_position(type, node->over[0]) == 0;
}

// The sum over the one index that a slice takes: the value at it.
static bool drops_one(const outliner *o, const ir_node *node) {
  if (node->op != IR_SUM || node->over_count != 1) return false;
  const ir_node *slice = ir_node_of(o->graph, node->operands[0]);
  return takes_one(o, slice) && slice->to[0].index == node->over[0].index &&
         slice->type.dtype == node->type.dtype;
}

// Computes nothing and waits for nobody: it is done where it is used.
static bool *find_views(const outliner *o) {
  bool *view = base_new_array(o->graph->arena, bool, o->graph->nodes.count + 1);
  for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
    const ir_node *node = node_at(o, i);
    if (o->fixed[i] || !drops_one(o, node) || ir_is_result(o->graph, (ir_value){i})) continue;
    view[i] = view[node->operands[0].index] = true;
  }
  return view;
}

static bool is_computed(const outliner *o, uint32_t index) {
  const ir_node *node = node_at(o, index);
  return node->op != IR_PARAM && !pass_is_call(node) && !o->fixed[index] && !o->view[index];
}

// The value behind a view, and the index of it that the view is.
static pass_part part_of(const outliner *o, uint32_t index) {
  if (!o->view[index]) return (pass_part){{index}, -1};
  const ir_node *slice = ir_node_of(o->graph, node_at(o, index)->operands[0]);
  return (pass_part){slice->operands[0], slice->start};
}

// ---- runs ---------------------------------------------------------------------------------------

// The step from which on the value is there.
static uint32_t ready_at(const outliner *o, uint32_t index) {
  return o->steps[index] + pass_is_call(node_at(o, index));
}

static void take_into(outliner *o, uint32_t run, uint32_t step, uint32_t index) {
  if (ready_at(o, index) != step || o->fixed[index]) return;
  if (is_computed(o, index)) {
    if (o->run_of[index] != nobody) return;
    o->run_of[index] = run;
  } else if (!o->view[index]) {
    return;
  }
  for (uint32_t i = 0; i < node_at(o, index)->operand_count; i++)
    take_into(o, run, step, node_at(o, index)->operands[i].index);
}

static uint32_t begin_run(outliner *o, uint32_t step, bool beside) {
  base_push(o->graph->arena, &o->outline->runs, (pass_run){.step = step, .beside = beside});
  return o->outline->runs.count - 1;
}

// All that the step's calls and results are made of.
static void form_first_run(outliner *o, uint32_t step) {
  const uint32_t run = o->first_run[step] = begin_run(o, step, false);
  for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
    const ir_node *node = node_at(o, i);
    if (!pass_is_call(node) || o->steps[i] != step) continue;
    for (uint32_t j = 0; j < node->operand_count; j++)
      take_into(o, run, step, node->operands[j].index);
  }
  for (uint32_t i = 0; i < o->graph->results.count; i++)
    take_into(o, run, step, o->graph->results.data[i].index);
}

static void form_rest(outliner *o, uint32_t step) {
  uint32_t run = nobody;
  for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
    if (!is_computed(o, i) || o->steps[i] != step || o->run_of[i] != nobody) continue;
    if (run == nobody) run = begin_run(o, step, true);
    o->run_of[i] = run;
  }
}

static void form_runs(outliner *o) {
  uint32_t last = 0;
  for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
    o->run_of[i] = nobody;
    if (ready_at(o, i) > last) last = ready_at(o, i);
  }
  o->outline->step_count = last + 1;
  o->first_run = base_new_array(o->graph->arena, uint32_t, last + 1);
  for (uint32_t step = 0; step <= last; step++) {
    form_first_run(o, step);
    form_rest(o, step);
  }
}

// The run in which the host's memory of a value is there: the first of the step.
static uint32_t host_run(const outliner *o, uint32_t index) {
  return o->first_run[ready_at(o, index)];
}

static bool is_host_value(const outliner *o, uint32_t index) {
  const ir_node *node = node_at(o, index);
  return pass_is_call(node) || (node->op == IR_PARAM && !o->fixed[index]);
}

static void note_use(outliner *o, uint32_t run, uint32_t operand) {
  if (o->fixed[operand]) return;
  const uint32_t value = part_of(o, operand).value.index;
  if (o->view[value]) { // the slice on the way to a view
    note_use(o, run, node_at(o, value)->operands[0].index);
    return;
  }
  const uint32_t from = is_host_value(o, value) ? host_run(o, value) : o->run_of[value];
  if (from != run) o->kept[value] = true;
}

static void find_kept(outliner *o) {
  for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
    if (!is_computed(o, i)) continue;
    for (uint32_t j = 0; j < node_at(o, i)->operand_count; j++)
      note_use(o, o->run_of[i], node_at(o, i)->operands[j].index);
  }
}

static void find_shown(outliner *o) {
  for (uint32_t i = 0; i < o->graph->nodes.count; i++)
    for (uint32_t j = 0; j < node_at(o, i)->operand_count && pass_is_call(node_at(o, i)); j++)
      o->shown[node_at(o, i)->operands[j].index] = true;
  for (uint32_t i = 0; i < o->graph->results.count; i++)
    o->shown[o->graph->results.data[i].index] = true;
}

// ---- one kernel's graph -------------------------------------------------------------------------

// A parameter to be: a part, or the leading operands of a concat.
typedef struct piece_input {
  pass_part part;
  uint32_t concat, count; // count 0: a part
} piece_input;

typedef struct piece {
  outliner *o;
  uint32_t run;
  ir_graph *graph;
  bool *inside;  // nodes of the depth that are computed here
  ir_value *map; // to their values here
  bool *mapped;
  BASE_VECTOR(piece_input) inputs;
  BASE_VECTOR(ir_value) params; // of the inputs
  BASE_VECTOR(pass_piece_result) results;
} piece;

// Is it there before this run?
static bool is_outside(const piece *p, uint32_t index) {
  const outliner *o = p->o;
  if (o->view[index]) return o->run_of[part_of(o, index).value.index] != p->run;
  if (o->fixed[index]) return node_at(o, index)->op == IR_PARAM;
  return !is_computed(o, index) || o->run_of[index] != p->run;
}

// The host's memory has strides of its own, so it is not part of a list.
static bool is_from_host(const piece *p, uint32_t index) {
  return pass_reads_host(p->o->outline, &p->o->outline->runs.data[p->run], (ir_value){index});
}

static uint32_t leading_outside(const piece *p, const ir_node *concat) {
  uint32_t count = 0;
  while (count < concat->operand_count) {
    const uint32_t operand = concat->operands[count].index;
    if (!is_outside(p, operand) || is_from_host(p, operand) ||
        ir_type_has(&node_at(p->o, operand)->type, concat->over[0]))
      break;
    count++;
  }
  return count > 1 ? count : 0;
}

static uint32_t find_input(const piece *p, pass_part part) {
  for (uint32_t i = 0; i < p->inputs.count; i++) {
    const piece_input *input = &p->inputs.data[i];
    if (input->count == 0 && input->part.value.index == part.value.index &&
        input->part.index == part.index)
      return i;
  }
  return nobody;
}

static void collect(piece *p, uint32_t index);

static void collect_operand(piece *p, uint32_t index) {
  if (!is_outside(p, index)) {
    collect(p, index);
    return;
  }
  const pass_part part = part_of(p->o, index);
  if (find_input(p, part) == nobody)
    base_push(p->o->graph->arena, &p->inputs, (piece_input){.part = part});
}

// Marks what is computed here for the node, itself among it, and the inputs that it takes.
static void collect(piece *p, uint32_t index) {
  if (p->inside[index]) return;
  p->inside[index] = true;
  const ir_node *node = node_at(p->o, index);
  const uint32_t leading = node->op == IR_CONCAT ? leading_outside(p, node) : 0;
  if (leading > 0)
    base_push(p->o->graph->arena, &p->inputs, (piece_input){.concat = index, .count = leading});
  for (uint32_t i = leading; i < node->operand_count; i++)
    collect_operand(p, node->operands[i].index);
}

// ---- its text -----------------------------------------------------------------------------------

// "query_12.late" without the number of the site: kernels of many sites have one name for it.
static base_str plain_name(base_arena *arena, base_str name) {
  const base_str copy = base_str_copy(arena, name);
  char *text = (char *)copy.data;
  size_t kept = 0;
  for (size_t i = 0; i < copy.length;) {
    const bool number =
        text[i] == '_' && i + 1 < copy.length && text[i + 1] >= '0' && text[i + 1] <= '9';
    if (!number) {
      text[kept++] = text[i++];
      continue;
    }
    for (i++; i < copy.length && text[i] >= '0' && text[i] <= '9';)
      i++;
  }
  return (base_str){copy.data, kept};
}

static ir_axis map_axis(piece *p, ir_axis axis) {
  const ir_axis_info *info = &p->o->graph->axes.data[axis.index];
  return ir_build_axis(p->graph, info->name, info->size);
}

static ir_type map_type(piece *p, const ir_type *type, uint32_t from) {
  ir_type mapped = {.dtype = type->dtype};
  for (uint32_t i = from; i < type->rank; i++)
    mapped.axes[mapped.rank++] = map_axis(p, type->axes[i]);
  return mapped;
}

// The axis of a list of slices: the concat's own where the list is all of it.
static ir_axis list_axis(piece *p, const piece_input *input) {
  const ir_node *concat = node_at(p->o, input->concat);
  if (input->count == concat->operand_count) return map_axis(p, concat->to[0]);
  base_str name = base_str_format(p->graph->arena, "B%u", input->count);
  ir_axis axis;
  while (ir_axis_find(p->graph, name, &axis) && ir_axis_size(p->graph, axis) != input->count)
    name = base_str_format(p->graph->arena, "%.*s_", BASE_FMT(name));
  return ir_build_axis(p->graph, name, input->count);
}

static ir_value add_input(piece *p, const piece_input *input) {
  base_arena *arena = p->graph->arena;
  if (input->count == 0) {
    const ir_node *node = ir_node_of(p->o->graph, input->part.value);
    const ir_type type = map_type(p, &node->type, input->part.index >= 0);
    return ir_build_param(p->graph, plain_name(arena, node->name), type);
  }
  const ir_node *concat = node_at(p->o, input->concat);
  const ir_type slice = map_type(p, &ir_node_of(p->o->graph, concat->operands[0])->type, 0);
  ir_type type = {.dtype = slice.dtype, .rank = 1, .axes = {list_axis(p, input)}};
  for (uint32_t i = 0; i < slice.rank; i++)
    type.axes[type.rank++] = slice.axes[i];
  return ir_build_param(p->graph, plain_name(arena, concat->name), type);
}

static ir_value map_operand(const piece *p, uint32_t index) {
  if (!is_outside(p, index)) return p->map[index];
  return p->params.data[find_input(p, part_of(p->o, index))];
}

static void copy_axes(piece *p, uint32_t count, const ir_axis *from, ir_axis *to) {
  for (uint32_t i = 0; i < count; i++)
    to[i] = map_axis(p, from[i]);
}

static void copy_node(piece *p, uint32_t index) {
  ir_node node = *node_at(p->o, index);
  ir_value *operands = base_new_array(p->graph->arena, ir_value, node.operand_count);
  uint32_t leading = 0, count = 0;
  copy_axes(p, node.over_count, node.over, node.over);
  copy_axes(p, node.to_count, node.to, node.to);
  for (uint32_t i = 0; i < p->inputs.count; i++) {
    const piece_input *input = &p->inputs.data[i];
    if (input->count == 0 || input->concat != index) continue;
    leading = input->count;
    operands[count++] = p->params.data[i];
    node.over[0] = list_axis(p, input);
  }
  if (leading > 0 && leading == node.operand_count) { // the list is all of it
    p->map[index] = operands[0];
    return;
  }
  for (uint32_t i = leading; i < node.operand_count; i++)
    operands[count++] = map_operand(p, node.operands[i].index);
  node.type = map_type(p, &node_at(p->o, index)->type, 0);
  node.operands = operands;
  node.operand_count = count;
  node.operand_locs = NULL;
  node.loc = node.type_loc = (base_loc){0};
  node.name = plain_name(p->graph->arena, node.name);
  p->map[index] = ir_build_node(p->graph, &node);
}

// ---- results ------------------------------------------------------------------------------------

// A result that no other one is: each is memory of its own, computed here.
static void add_result(piece *p, uint32_t index, bool to_host) {
  ir_value value = is_outside(p, index) ? map_operand(p, index) : p->map[index];
  bool taken = ir_is_result(p->graph, value) || value.index < p->graph->param_count;
  if (taken) {
    const ir_node copy = {.op = IR_CAST,
                          .type = ir_node_of(p->graph, value)->type,
                          .operand_count = 1,
                          .operands = &value,
                          .kernel = IR_NO_KERNEL,
                          .name = base_str_format(p->graph->arena, "%.*s.copy",
                                                  BASE_FMT(ir_node_of(p->graph, value)->name))};
    value = ir_build_node(p->graph, &copy);
  }
  ir_build_result(p->graph, value);
  base_push(p->o->graph->arena, &p->results, (pass_piece_result){{index}, to_host});
}

// In an order that is the same for runs that compute the same: the host's first.
static void add_results(piece *p, bool only_collect) {
  const outliner *o = p->o;
  for (uint32_t pass = 0; pass < 2; pass++)
    for (uint32_t i = 0; i < o->graph->nodes.count; i++) {
      if (pass == 0 ? !o->shown[i] : !o->kept[i]) continue;
      const bool own = is_computed(o, i) && o->run_of[i] == p->run;
      const bool host = pass == 1 && is_host_value(o, i) && host_run(o, i) == p->run;
      if (!own && !host) continue;
      if (only_collect)
        collect_operand(p, i);
      else
        add_result(p, i, pass == 0);
    }
}

// ---- the kernel and its run ---------------------------------------------------------------------

static const pass_piece_arg *args_of(const piece *p) {
  base_arena *arena = p->o->graph->arena;
  pass_piece_arg *args = base_new_array(arena, pass_piece_arg, p->inputs.count + 1);
  for (uint32_t i = 0; i < p->inputs.count; i++) {
    const piece_input *input = &p->inputs.data[i];
    const uint32_t count = input->count > 0 ? input->count : 1;
    pass_part *parts = base_new_array(arena, pass_part, count);
    parts[0] = input->part;
    for (uint32_t j = 0; j < input->count; j++)
      parts[j] = part_of(p->o, node_at(p->o, input->concat)->operands[j].index);
    args[i] = (pass_piece_arg){.sliced = input->count > 0, .part_count = count, .parts = parts};
  }
  return args;
}

// The number of the kernel with that graph, which is added when it is new.
static uint32_t number_kernel(outliner *o, ir_graph *graph) {
  pass_outline *outline = o->outline;
  const base_hash hash = ir_hash(graph);
  for (uint32_t i = 0; i < outline->kernels.count; i++)
    if (base_hash_equal(o->hashes[i], hash)) return i;
  o->hashes[outline->kernels.count] = hash;
  graph->name =
      base_str_format(graph->arena, "%.*s_%u", BASE_FMT(o->graph->name), outline->kernels.count);
  base_push(o->graph->arena, &outline->kernels, graph);
  return outline->kernels.count - 1;
}

static bool write_run(outliner *o, uint32_t index, base_diag *diag) {
  base_arena *arena = o->graph->arena;
  const uint32_t count = o->graph->nodes.count;
  piece p = {.o = o,
             .run = index,
             .graph = ir_graph_create(arena, o->graph->name),
             .inside = base_new_array(arena, bool, count + 1),
             .map = base_new_array(arena, ir_value, count + 1)};
  add_results(&p, true);
  for (uint32_t i = 0; i < p.inputs.count; i++)
    base_push(arena, &p.params, add_input(&p, &p.inputs.data[i]));
  for (uint32_t i = 0; i < count; i++)
    if (p.inside[i]) copy_node(&p, i);
  add_results(&p, false);
  if (!ir_verify(p.graph, IR_STAGE_BOUND, diag)) return false;
  pass_run *run = &o->outline->runs.data[index];
  run->kernel = number_kernel(o, p.graph);
  run->arg_count = p.inputs.count;
  run->args = args_of(&p);
  run->result_count = p.results.count;
  run->results = p.results.data;
  return true;
}

const pass_outline *pass_outline_depth(const ir_graph *graph, base_diag *diag) {
  base_arena *arena = graph->arena;
  outliner o = {.graph = graph,
                .outline = base_new(arena, pass_outline),
                .steps = pass_host_steps(graph),
                .fixed = pass_fixed_values(graph),
                .run_of = base_new_array(arena, uint32_t, graph->nodes.count + 1),
                .kept = base_new_array(arena, bool, graph->nodes.count + 1),
                .shown = base_new_array(arena, bool, graph->nodes.count + 1)};
  o.outline->graph = graph;
  o.outline->steps = o.steps;
  o.outline->fixed = o.fixed;
  o.view = find_views(&o);
  form_runs(&o);
  find_kept(&o);
  find_shown(&o);
  o.hashes = base_new_array(arena, base_hash, o.outline->runs.count + 1);
  for (uint32_t i = 0; i < o.outline->runs.count; i++)
    if (!write_run(&o, i, diag)) return NULL;
  return o.outline;
}

bool pass_reads_host(const pass_outline *outline, const pass_run *run, ir_value value) {
  const ir_node *node = ir_node_of(outline->graph, value);
  const bool call = pass_is_call(node);
  return (call || (node->op == IR_PARAM && !outline->fixed[value.index])) && !run->beside &&
         run->step == outline->steps[value.index] + call;
}
