// model_open: from the plan of a model's depth to compiled kernels and what the runtime follows.
#include <stdlib.h>
#include <string.h>

#include "api/depth.h"

static const base_loc nowhere;

// ---- the plan, as the runtime sees it -----------------------------------------------------------

static const char *keep_text(base_arena *arena, base_str text) {
  return base_str_copy(arena, text).data;
}

static uint32_t addend_number(const ir_node *call) {
  const base_str callee = call->callee;
  return callee.length > 2 && memcmp(callee.data + callee.length - 2, ".b", 2) == 0;
}

static api_output output_kind(base_str name) {
  static const struct {
    const char *prefix;
    api_output kind;
  } kinds[] = {{"weights_", API_OUTPUT_WEIGHTS},
               {"entropy_", API_OUTPUT_ENTROPY},
               {"mix_", API_OUTPUT_MIX},
               {"scale_", API_OUTPUT_SCALE}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const size_t length = strlen(kinds[i].prefix);
    if (name.length > length && memcmp(name.data, kinds[i].prefix, length) == 0)
      return kinds[i].kind;
  }
  return API_OUTPUT_INPUT;
}

// Where a run finds a part of what it reads.
static rt_depth_part input_part(const api_depth *depth, const pass_run *run, pass_part part) {
  const ir_node *node = ir_node_of(depth->graph, part.value);
  if (pass_reads_host(depth->outline, run, part.value))
    return (rt_depth_part){RT_PLACE_INPUT, pass_is_call(node) ? addend_number(node) : 0, 0};
  const int32_t buffer = depth->memory->buffer_of[part.value.index];
  if (buffer < 0) return (rt_depth_part){RT_PLACE_PARAM, part.value.index, 0};
  rt_depth_part made = {RT_PLACE_BUFFER, (uint32_t)buffer, 0};
  if (part.index >= 0)
    made.offset = pass_bytes_per_row(depth->graph, part.value) /
                  (uint64_t)ir_axis_size(depth->graph, node->type.axes[0]) * (uint64_t)part.index;
  return made;
}

static rt_depth_part output_part(const api_depth *depth, const pass_piece_result *result) {
  const ir_node *node = ir_node_of(depth->graph, result->value);
  if (result->to_host) return (rt_depth_part){RT_PLACE_OUTPUT, output_kind(node->name), 0};
  return (rt_depth_part){RT_PLACE_BUFFER, (uint32_t)depth->memory->buffer_of[result->value.index],
                         0};
}

static const rt_depth_slot *make_slots(base_arena *arena, const api_depth *depth,
                                       const pass_run *run) {
  const uint32_t count = run->arg_count + run->result_count;
  rt_depth_slot *slots = base_new_array(arena, rt_depth_slot, count);
  for (uint32_t i = 0; i < run->arg_count; i++) {
    const pass_piece_arg *arg = &run->args[i];
    rt_depth_part *parts = base_new_array(arena, rt_depth_part, arg->part_count);
    for (uint32_t j = 0; j < arg->part_count; j++)
      parts[j] = input_part(depth, run, arg->parts[j]);
    slots[i] = (rt_depth_slot){arg->sliced, arg->part_count, parts};
  }
  for (uint32_t i = 0; i < run->result_count; i++) {
    rt_depth_part *part = base_new(arena, rt_depth_part);
    *part = output_part(depth, &run->results[i]);
    slots[run->arg_count + i] = (rt_depth_slot){.part_count = 1, .parts = part};
  }
  return slots;
}

static void make_depth(const api_depth *depth, fathom_model *model) {
  base_arena *arena = &model->arena;
  const pass_outline *outline = depth->outline;
  rt_depth_run *runs = base_new_array(arena, rt_depth_run, outline->runs.count + 1);
  uint32_t *first = base_new_array(arena, uint32_t, outline->step_count + 1);
  uint64_t *bytes = base_new_array(arena, uint64_t, depth->memory->buffer_count + 1);
  memcpy(bytes, depth->memory->buffer_bytes, depth->memory->buffer_count * sizeof *bytes);
  for (uint32_t i = outline->runs.count; i-- > 0;) {
    const pass_run *run = &outline->runs.data[i];
    runs[i] = (rt_depth_run){.step = run->step,
                             .kernel = run->kernel,
                             .beside = run->beside,
                             .slot_count = run->arg_count + run->result_count,
                             .slots = make_slots(arena, depth, run)};
    first[run->step] = i;
  }
  first[outline->step_count] = outline->runs.count;
  model->depth = (rt_depth){.buffer_count = depth->memory->buffer_count,
                            .run_count = outline->runs.count,
                            .step_count = outline->step_count,
                            .kernel_count = outline->kernels.count,
                            .buffer_bytes = bytes,
                            .runs = runs,
                            .first_run = first};
}

// ---- what the host sees -------------------------------------------------------------------------

static api_tensor_type type_of(base_arena *arena, const ir_graph *graph, ir_value value) {
  const ir_node *node = ir_node_of(graph, value);
  api_tensor_type type = {.name = keep_text(arena, node->name),
                          .dtype = (rt_dtype)node->type.dtype,
                          .rank = node->type.rank};
  for (uint32_t i = 0; i < type.rank; i++) {
    const ir_axis_info *axis = &graph->axes.data[node->type.axes[i].index];
    type.axes[i] = keep_text(arena, axis->name);
    type.sizes[i] = axis->size == IR_DYNAMIC ? RT_DYNAMIC : axis->size;
  }
  return type;
}

static void describe_params(const api_depth *depth, fathom_model *model) {
  base_arena *arena = &model->arena;
  const uint32_t count = depth->graph->param_count;
  api_tensor_type *types = base_new_array(arena, api_tensor_type, count + 1);
  for (uint32_t i = 0; i < count; i++)
    types[i] = type_of(arena, depth->graph, (ir_value){i});
  model->param_types = types;
  model->param_count = count;
}

static void describe_outputs(const api_depth *depth, fathom_model *model) {
  const pass_outline *outline = depth->outline;
  api_tensor_type(*outputs)[API_OUTPUT_COUNT] =
      base_alloc_array(&model->arena, outline->step_count, sizeof *outputs);
  for (uint32_t i = 0; i < outline->step_count; i++)
    for (uint32_t j = 0; j < API_OUTPUT_COUNT; j++)
      outputs[i][j].rank = api_no_output;
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const pass_run *run = &outline->runs.data[i];
    for (uint32_t j = 0; j < run->result_count; j++) {
      const ir_value value = run->results[j].value;
      if (run->results[j].to_host)
        outputs[run->step][output_kind(ir_node_of(depth->graph, value)->name)] =
            type_of(&model->arena, depth->graph, value);
    }
  }
  model->outputs = (const api_tensor_type(*)[API_OUTPUT_COUNT])outputs;
}

// ---- what binding knows of a step ---------------------------------------------------------------

typedef struct host_builder {
  base_arena *arena;
  BASE_VECTOR(rt_axis) axes;
  BASE_VECTOR(rt_slot) slots;
} host_builder;

static uint32_t host_axis(host_builder *b, const char *name, int64_t size) {
  for (uint32_t i = 0; i < b->axes.count; i++)
    if (strcmp(b->axes.data[i].name, name) == 0) return i;
  base_push(b->arena, &b->axes, (rt_axis){name, size});
  return b->axes.count - 1;
}

static void host_slot(host_builder *b, const char *name, rt_role role,
                      const api_tensor_type *type) {
  rt_slot slot = {.name = name, .role = role, .dtype = type->dtype, .rank = type->rank};
  for (uint32_t i = 0; i < type->rank; i++)
    slot.axes[i] = host_axis(b, type->axes[i], type->sizes[i]);
  base_push(b->arena, &b->slots, slot);
}

// False: some step has more axes than there can be.
static bool describe_hosts(fathom_model *model) {
  static const char *const addends[] = {"addends[0]", "addends[1]"};
  const api_tensor_type workspace = {
      .dtype = RT_F32, .rank = 1, .axes = {"workspace"}, .sizes = {RT_DYNAMIC}};
  base_arena *arena = &model->arena;
  rt_program *programs = base_new_array(arena, rt_program, model->depth.step_count);
  for (uint32_t step = 0; step < model->depth.step_count; step++) {
    host_builder b = {.arena = arena};
    const uint32_t count = step > 0 ? model->addends[step - 1] : 1;
    for (uint32_t i = 0; i < count; i++)
      host_slot(&b, step > 0 ? addends[i] : "embedding", RT_INPUT, &model->row);
    for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++)
      if (model->outputs[step][i].rank != api_no_output)
        host_slot(&b, api_output_names[i], RT_OUTPUT, &model->outputs[step][i]);
    host_slot(&b, "workspace", RT_OUTPUT, &workspace);
    if (b.axes.count > API_HOST_AXES) return false;
    programs[step] = (rt_program){.axis_count = b.axes.count,
                                  .slot_count = b.slots.count,
                                  .axes = b.axes.data,
                                  .slots = b.slots.data};
  }
  model->host_programs = programs;
  return true;
}

void api_model_describe(const api_depth *depth, const fathom_model_options *options,
                        fathom_model *model) {
  const model_description *from = depth->model;
  uint32_t *addends = base_new_array(&model->arena, uint32_t, from->sublayers + 1);
  uint32_t *sources = base_new_array(&model->arena, uint32_t, from->sublayers + 1);
  for (uint32_t i = 0; i <= from->sublayers; i++) {
    addends[i] = i < from->sublayers ? model_addends(from, i) : 0;
    sources[i] = model_sources(from, i);
  }
  model->addends = addends;
  model->sources = sources;
  model->info = (fathom_model_info){.size = sizeof model->info,
                                    .name = keep_text(&model->arena, from->name),
                                    .hidden = from->hidden,
                                    .heads = from->heads,
                                    .sublayers = from->sublayers,
                                    .sites = model_sites(from),
                                    .dtype = (fathom_dtype)from->dtype,
                                    .outputs = options->outputs};
  describe_params(depth, model);
  describe_outputs(depth, model);
  make_depth(depth, model);
}

// ---- agreement ----------------------------------------------------------------------------------
// A plan from a bundle has to be one: whatever its bytes, nothing may reach beyond the memory that there is.

// Does a tensor of the slot's type, from axis `from` on, look like that?
static bool is_type(const rt_program *program, const rt_slot *slot, uint32_t from,
                    const api_tensor_type *type) {
  bool same = slot->dtype == type->dtype && slot->rank == type->rank + from;
  for (uint32_t i = from; i < slot->rank && same; i++)
    same = program->axes[slot->axes[i]].size == type->sizes[i - from];
  return same;
}

// Bytes of it for each row; 0: it does not have exactly one dynamic axis, or too many bytes.
static uint64_t bytes_per_row(const rt_program *program, const rt_slot *slot, uint32_t from) {
  uint64_t bytes = rt_dtype_size(slot->dtype);
  uint32_t dynamic = 0;
  for (uint32_t i = from; i < slot->rank; i++) {
    const int64_t size = program->axes[slot->axes[i]].size;
    if (size == RT_DYNAMIC)
      dynamic++;
    else if (__builtin_mul_overflow(bytes, (uint64_t)size, &bytes))
      return 0;
  }
  return dynamic == 1 ? bytes : 0;
}

static bool part_fits(const fathom_model *model, const rt_depth_run *run, const rt_program *program,
                      const rt_slot *slot, uint32_t from, const rt_depth_part *part) {
  const rt_depth *depth = &model->depth;
  const bool input = slot->role == RT_INPUT;
  uint64_t bytes;
  switch (part->kind) {
  case RT_PLACE_PARAM:
    return input && part->number > 0 && part->number < model->param_count &&
           is_type(program, slot, from, &model->param_types[part->number]);
  case RT_PLACE_INPUT:
    return input && from == 0 &&
           part->number < (run->step > 0 ? model->addends[run->step - 1] : 1) &&
           is_type(program, slot, 0, &model->row);
  case RT_PLACE_OUTPUT:
    return !input && from == 0 && part->number < API_OUTPUT_COUNT &&
           model->outputs[run->step][part->number].rank != api_no_output &&
           is_type(program, slot, 0, &model->outputs[run->step][part->number]);
  default:
    bytes = bytes_per_row(program, slot, from);
    return part->number < depth->buffer_count && bytes > 0 &&
           bytes <= depth->buffer_bytes[part->number] &&
           part->offset % rt_dtype_size(slot->dtype) == 0 &&
           part->offset <= depth->buffer_bytes[part->number] - bytes;
  }
}

static const char *check_run(fathom_model *model, const rt_depth_run *run) {
  if (run->kernel >= model->depth.kernel_count) return "a run has no kernel";
  const fathom_executable *kernel = model->kernels[run->kernel];
  uint32_t slices = 0;
  if (run->slot_count != kernel->bound_count) return "a kernel takes another number of tensors";
  for (uint32_t i = 0; i < run->slot_count; i++) {
    const rt_slot *slot = &kernel->program->slots[i];
    const rt_depth_slot *where = &run->slots[i];
    const uint32_t from = where->sliced;
    if (where->part_count == 0 || (!where->sliced && where->part_count != 1) ||
        (where->sliced && (slot->rank == 0 || slot->role != RT_INPUT ||
                           kernel->program->axes[slot->axes[0]].size != where->part_count)))
      return "a kernel takes another number of slices";
    for (uint32_t j = 0; j < where->part_count; j++)
      if (!part_fits(model, run, kernel->program, slot, from, &where->parts[j]))
        return "a tensor of a kernel is not where it could be";
    if (where->sliced) slices += where->part_count;
  }
  if (run->slot_count > model->max_slots) model->max_slots = run->slot_count;
  if (slices > model->max_slices) model->max_slices = slices;
  return NULL;
}

// There are as many numbers in a parameter for any number of tokens.
static bool params_have_sizes(const fathom_model *model) {
  for (uint32_t i = 1; i < model->param_count; i++) {
    const api_tensor_type *type = &model->param_types[i];
    if (type->rank > RT_MAX_RANK) return false; // api_no_output
    for (uint32_t j = 0; j < type->rank; j++)
      if (type->sizes[j] == RT_DYNAMIC) return false;
  }
  return true;
}

static bool kernels_have_runs(const fathom_model *model) {
  for (uint32_t kernel = 0; kernel < model->depth.kernel_count; kernel++) {
    uint32_t run = 0;
    while (run < model->depth.run_count && model->depth.runs[run].kernel != kernel)
      run++;
    if (run == model->depth.run_count) return false;
  }
  return true;
}

static const char *check_model(fathom_model *model) {
  const api_tensor_type *row = &model->row;
  if (row->rank != 2 || row->sizes[0] != RT_DYNAMIC || row->sizes[1] < 1)
    return "the embedding is no list of rows";
  if (!params_have_sizes(model)) return "a parameter has no size";
  if (!kernels_have_runs(model)) return "a kernel has no run";
  for (uint32_t i = 0; i < model->info.sites; i++) {
    const bool last = i == model->info.sublayers;
    if (model->addends[i] > MODEL_MAX_ADDENDS || (model->addends[i] == 0) != last)
      return "a sublayer gives an impossible number of tensors";
    if (model->outputs[i][API_OUTPUT_INPUT].rank == api_no_output) return "a site gives nothing";
  }
  for (uint32_t i = 0; i < model->depth.run_count; i++) {
    const char *fault = check_run(model, &model->depth.runs[i]);
    if (fault != NULL) return fault;
  }
  return NULL;
}

const char *api_model_complete(fathom_model *model) {
  model->row = model->param_types[0]; // the embedding comes first
  model->params = base_new_array(&model->arena, rt_tensor, model->param_count + 1);
  for (uint32_t i = 1; i < model->param_count; i++)
    model->params[i].rank = api_unbound;
  const char *fault = check_model(model);
  if (fault != NULL) return fault;
  if (!describe_hosts(model)) return "a site gives tensors of too many axes";
  model->info.size = sizeof model->info;
  model->info.target = api_targets[model->kernels[0]->kind].name;
  model->info.arch = model->kernels[0]->arch;
  model->info.param_count = model->param_count - 1;
  model->info.kernel_count = model->depth.kernel_count;
  model->info.run_count = model->depth.run_count;
  return NULL;
}

// ---- compiling ----------------------------------------------------------------------------------

typedef struct open_frame {
  const char *name;
  const fathom_model_options *options;
  fathom_model *model;
} open_frame;

static void release_kernels(void *opaque) {
  fathom_model *model = opaque;
  for (uint32_t i = 0; i < model->depth.kernel_count; i++)
    fathom_executable_destroy(model->kernels[i]);
}

void api_model_hold_kernels(fathom_model *model) {
  model->kernels = base_new_array(&model->arena, fathom_executable *, model->depth.kernel_count);
  base_defer(&model->arena, release_kernels, model);
}

static fathom_status compile_all(api_call *call, const api_depth *depth,
                                 const fathom_model_options *options, fathom_model *model) {
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = options->target;
  compile.cpu = options->cpu;
  api_model_hold_kernels(model);
  for (uint32_t i = 0; i < model->depth.kernel_count; i++) {
    const fathom_graph *graph = api_graph_handle(call, depth->outline->kernels.data[i]);
    // As any other graph, by a call of its own.
    const fathom_status status = fathom_compile(call->context, graph, &compile, &model->kernels[i]);
    if (status != FATHOM_OK) return status;
  }
  const char *fault = api_model_complete(model);
  return fault == NULL ? FATHOM_OK : api_fail(FATHOM_INTERNAL, "the plan of the model: %s", fault);
}

static fathom_status make_model(api_call *call, const open_frame *frame,
                                const fathom_model_options *options, fathom_model *model) {
  const api_depth *depth = api_depth_plan(call, frame->name, options);
  if (depth == NULL) return FATHOM_INVALID;
  api_model_describe(depth, options, model);
  return compile_all(call, depth, options, model);
}

static fathom_status open_body(api_call *call, void *opaque) {
  open_frame *frame = opaque;
  const double start = base_seconds();
  fathom_model_options options;
  base_str bytes, why;
  fathom_status status = API_STRUCT_IN(options, frame->options, fathom_model_options);
  if (status != FATHOM_OK) return status;
  fathom_model *model = frame->model = api_object_create(call, sizeof *model);
  model->context = call->context;
  if (!api_ends_in(frame->name, ".fathom")) {
    status = make_model(call, frame, &options, model);
  } else if ((status = (fathom_status)base_file_read(&call->arena, frame->name, &bytes, &why)) !=
             FATHOM_OK) {
    return api_fail(status, "%.*s", BASE_FMT(why));
  } else {
    status = api_model_load(call, bytes, &options, model) ? FATHOM_OK : FATHOM_INVALID;
  }
  model->info.compile_us = 1e6 * (base_seconds() - start);
  return status;
}

fathom_status fathom_model_open(fathom_context *context, const char *model,
                                const fathom_model_options *options, fathom_model **out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(model);
  API_REQUIRE(out);
  *out = NULL;
  open_frame frame = {.name = model, .options = options};
  const fathom_status status = api_call_run(context, open_body, &frame);
  if (status != FATHOM_OK) {
    fathom_model_destroy(frame.model);
    return status;
  }
  api_object_keep(frame.model);
  *out = frame.model;
  return FATHOM_OK;
}

void fathom_model_destroy(fathom_model *model) {
  api_object_destroy(model);
}

// ---- facts --------------------------------------------------------------------------------------

fathom_status fathom_model_get_info(const fathom_model *model, fathom_model_info *out) {
  api_error_clear();
  API_REQUIRE(model);
  API_REQUIRE(out);
  return API_STRUCT_OUT(out, model->info, fathom_model_info);
}

uint32_t fathom_model_addends(const fathom_model *model, uint32_t sublayer) {
  return sublayer < model->info.sublayers ? model->addends[sublayer] : 0;
}

uint32_t fathom_model_sources(const fathom_model *model, uint32_t site) {
  return site < model->info.sites ? model->sources[site] : 0;
}

fathom_status fathom_model_param(const fathom_model *model, uint32_t index,
                                 fathom_tensor_info *out) {
  api_error_clear();
  API_REQUIRE(model);
  API_REQUIRE(out);
  if (index >= model->info.param_count)
    return api_fail(FATHOM_INVALID, "no parameter %u: the model has %u", index,
                    model->info.param_count);
  const api_tensor_type *type = &model->param_types[index + 1];
  fathom_tensor_info info = {.size = sizeof info,
                             .name = type->name,
                             .dtype = (fathom_dtype)type->dtype,
                             .rank = type->rank};
  for (uint32_t i = 0; i < type->rank; i++) {
    info.axes[i] = type->axes[i];
    info.sizes[i] = type->sizes[i];
    info.layout[i] = i;
  }
  return API_STRUCT_OUT(out, info, fathom_tensor_info);
}

// ---- parameters ---------------------------------------------------------------------------------

// The parameters of all sites of that name, query_0, query_1, ...; none is no error.
static uint32_t find_group(const fathom_model *model, const char *name, uint32_t *members) {
  const size_t length = strlen(name);
  uint32_t count = 0;
  for (uint32_t i = 1; i < model->param_count; i++) {
    const char *own = model->param_types[i].name;
    if (strncmp(own, name, length) != 0 || own[length] != '_') continue;
    if (strspn(own + length + 1, "0123456789") == strlen(own + length + 1)) members[count++] = i;
  }
  return count;
}

static bool check_dense(api_call *call, const char *name, const rt_tensor *tensor) {
  int64_t stride = 1;
  for (uint32_t i = tensor->rank; i-- > 0;) {
    if (tensor->shape[i] > 1 && tensor->strides[i] != stride) {
      base_error(&call->diag, nowhere, "%s: expected a dense tensor, found stride %lld", name,
                 (long long)tensor->strides[i]);
      base_hint(&call->diag, "give a contiguous copy, and keep it as long as the model");
      return false;
    }
    stride *= tensor->shape[i];
  }
  return true;
}

// Runs find them without another look.
static bool check_memory(api_call *call, const char *name, const rt_tensor *tensor) {
  const size_t element = rt_dtype_size(tensor->dtype);
  if (tensor->data == NULL)
    base_error(&call->diag, nowhere, "%s: no memory (a null pointer)", name);
  else if ((uintptr_t)tensor->data % element != 0)
    base_error(&call->diag, nowhere, "%s: its address is not a multiple of its %zu-byte element",
               name, element);
  else
    return true;
  return false;
}

static bool take_param(api_call *call, const fathom_model *model, uint32_t index,
                       const DLTensor *given, rt_tensor *out) {
  const api_tensor_type *type = &model->param_types[index];
  int64_t rows = 0;
  return api_tensor_take(call, model, type->name, type, given, &rows, out) &&
         check_dense(call, type->name, out) && check_memory(call, type->name, out);
}

// A tensor with the sites as its first axis.
static bool take_stacked(api_call *call, const fathom_model *model, const fathom_arg *arg,
                         uint32_t count, const uint32_t *members, rt_tensor *params) {
  api_tensor_type type = model->param_types[members[0]];
  rt_tensor whole;
  int64_t rows = 0;
  for (uint32_t i = 1; i < count; i++)
    if (memcmp(model->param_types[members[i]].sizes, type.sizes, sizeof type.sizes) != 0) {
      base_error(&call->diag, nowhere, "%s: sites have different sizes, so they are no one tensor",
                 arg->name);
      base_hint(&call->diag, "bind %s_0, %s_1, ... or give slices", arg->name, arg->name);
      return false;
    }
  for (uint32_t i = type.rank; i > 0; i--) {
    type.axes[i] = type.axes[i - 1];
    type.sizes[i] = type.sizes[i - 1];
  }
  type.axes[0] = "site";
  type.sizes[0] = count;
  type.rank++;
  if (!api_tensor_take(call, model, arg->name, &type, arg->tensor, &rows, &whole) ||
      !check_dense(call, arg->name, &whole) || !check_memory(call, arg->name, &whole))
    return false;
  for (uint32_t i = 0; i < count; i++) {
    rt_tensor *one = &params[members[i]];
    *one = (rt_tensor){.dtype = whole.dtype, .rank = whole.rank - 1};
    one->data = whole.data + (int64_t)i * whole.strides[0] * (int64_t)rt_dtype_size(whole.dtype);
    memcpy(one->shape, whole.shape + 1, (RT_MAX_RANK - 1) * sizeof *one->shape);
    memcpy(one->strides, whole.strides + 1, (RT_MAX_RANK - 1) * sizeof *one->strides);
  }
  return true;
}

static bool take_slices(api_call *call, const fathom_model *model, const fathom_arg *arg,
                        uint32_t count, const uint32_t *members, rt_tensor *params) {
  if (arg->slice_count != count) {
    base_error(&call->diag, nowhere, "%s: expected %u slices, one for each site, found %u",
               arg->name, count, arg->slice_count);
    return false;
  }
  for (uint32_t i = 0; i < count; i++)
    if (!take_param(call, model, members[i], arg->slices[i], &params[members[i]])) return false;
  return true;
}

static void refuse_name(api_call *call, const fathom_model *model, const char *name) {
  const char **names = base_new_array(&call->arena, const char *, model->param_count + 1);
  for (uint32_t i = 1; i < model->param_count; i++)
    names[i - 1] = model->param_types[i].name;
  base_error(&call->diag, nowhere, "model %s has no parameter '%s'", model->info.name, name);
  const char *near = base_nearest(base_str_from(name), names, model->param_count - 1);
  if (near != NULL)
    base_hint(&call->diag, "did you mean '%s'?", near);
  else
    base_hint(&call->diag,
              "fathom_model_param lists them, such as '%s'; without its number it "
              "means those of all sites",
              model->param_count > 1 ? names[0] : "none");
}

static bool bind_one(api_call *call, const fathom_model *model, const fathom_arg *arg,
                     rt_tensor *params) {
  if (arg->name == NULL) {
    base_error(&call->diag, nowhere, "a parameter without a name");
    return false;
  }
  if (arg->tensor != NULL && arg->slices != NULL) {
    base_error(&call->diag, nowhere, "%s: both a tensor and slices are set", arg->name);
    return false;
  }
  for (uint32_t i = 1; i < model->param_count; i++)
    if (strcmp(model->param_types[i].name, arg->name) == 0)
      return take_param(call, model, i, arg->tensor, &params[i]);
  uint32_t *members = base_new_array(&call->arena, uint32_t, model->param_count + 1);
  const uint32_t count = find_group(model, arg->name, members);
  if (count == 0) {
    refuse_name(call, model, arg->name);
    return false;
  }
  return arg->slices != NULL ? take_slices(call, model, arg, count, members, params)
                             : take_stacked(call, model, arg, count, members, params);
}

typedef struct bind_frame {
  fathom_model *model;
  const fathom_arg *args;
  uint32_t count;
} bind_frame;

static fathom_status bind_body(api_call *call, void *opaque) {
  bind_frame *frame = opaque;
  fathom_model *model = frame->model;
  rt_tensor *params = base_new_array(&call->arena, rt_tensor, model->param_count + 1);
  if (model->under_way > 0)
    return api_fail(FATHOM_INVALID,
                    "%u sequences of the model are under way\n"
                    "  hint: end or reset them before parameters are bound",
                    model->under_way);
  memcpy(params, model->params, model->param_count * sizeof *params);
  bool good = true;
  for (uint32_t i = 0; i < frame->count; i++)
    good &= bind_one(call, model, &frame->args[i], params);
  if (!good) return FATHOM_INVALID;
  memcpy(model->params, params, model->param_count * sizeof *params);
  return FATHOM_OK;
}

fathom_status fathom_model_bind(fathom_model *model, const fathom_arg *args, uint32_t arg_count) {
  api_error_clear();
  API_REQUIRE(model);
  if (arg_count > 0) API_REQUIRE(args);
  bind_frame frame = {model, args, arg_count};
  return api_call_run(model->context, bind_body, &frame);
}
