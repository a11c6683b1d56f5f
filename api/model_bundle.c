// model_bundle: a model's plan and kernels to one file, and back, on a machine that may have neither LLVM nor
// NVRTC (docs/bundles.md). The plan is a section of its own beside the code of each kernel for each target.
#include <string.h>

#include "api/depth.h"
#include "runtime/archive.h"
#include "runtime/bundle.h"

#define SECTION_DEPTH RT_SECTION('d', 'e', 'p', 't')

static const base_loc nowhere;

// ---- the plan, both ways ------------------------------------------------------------------------

static void archive_name(rt_archive *a, const char **text) {
  rt_archive_text(a, text);
  rt_archive_require(a, *text != NULL, "a name is missing");
  if (*text == NULL) *text = "";
}

static void archive_type(rt_archive *a, api_tensor_type *type) {
  uint32_t dtype = type->dtype;
  rt_archive_u32(a, &type->rank);
  if (type->rank == api_no_output) return;
  archive_name(a, &type->name);
  rt_archive_below(a, &dtype, RT_DTYPE_COUNT, "a tensor has an unknown dtype");
  type->dtype = (rt_dtype)dtype;
  rt_archive_require(a, type->rank <= RT_MAX_RANK, "a tensor has too many axes");
  for (uint32_t i = 0; i < type->rank && a->fault == NULL; i++) {
    archive_name(a, &type->axes[i]);
    rt_archive_i64(a, &type->sizes[i]);
    rt_archive_require(a, type->sizes[i] >= RT_DYNAMIC, "an axis has a negative size");
  }
}

static void archive_info(rt_archive *a, fathom_model *model) {
  fathom_model_info *info = &model->info;
  uint32_t dtype = info->dtype;
  archive_name(a, &info->name);
  rt_archive_i64(a, &info->hidden);
  rt_archive_i64(a, &info->heads);
  rt_archive_u32(a, &info->sublayers);
  rt_archive_below(a, &dtype, RT_DTYPE_COUNT, "it has an unknown dtype");
  rt_archive_u32(a, &info->outputs);
  rt_archive_require(a, info->sublayers >= 1 && info->sublayers <= MODEL_MAX_SUBLAYERS,
                     "it has no sublayers");
  info->dtype = (fathom_dtype)dtype;
  info->sites = info->sublayers + 1;
}

static void archive_counts(rt_archive *a, fathom_model *model, const uint32_t **counts) {
  uint32_t count = model->info.sites;
  uint32_t *items = rt_archive_array(a, *counts, &count, sizeof **counts);
  rt_archive_require(a, count == model->info.sites, "it has another number of sites");
  for (uint32_t i = 0; i < count && a->fault == NULL; i++)
    rt_archive_u32(a, &items[i]);
  *counts = items;
}

static void archive_types(rt_archive *a, fathom_model *model) {
  api_tensor_type *types =
      rt_archive_array(a, model->param_types, &model->param_count, sizeof *types);
  for (uint32_t i = 0; i < model->param_count && a->fault == NULL; i++)
    archive_type(a, &types[i]);
  rt_archive_require(a, model->param_count > 0, "it has no embedding");
  model->param_types = types;
  uint32_t steps = model->info.sites;
  api_tensor_type(*outputs)[API_OUTPUT_COUNT] =
      rt_archive_array(a, model->outputs, &steps, sizeof *outputs);
  rt_archive_require(a, steps == model->info.sites, "it has another number of sites");
  for (uint32_t i = 0; i < steps && a->fault == NULL; i++)
    for (uint32_t j = 0; j < API_OUTPUT_COUNT; j++)
      archive_type(a, &outputs[i][j]);
  model->outputs = (const api_tensor_type(*)[API_OUTPUT_COUNT])outputs;
}

static void archive_slot(rt_archive *a, rt_depth_slot *slot) {
  rt_archive_bool(a, &slot->sliced);
  rt_depth_part *parts = rt_archive_array(a, slot->parts, &slot->part_count, sizeof *parts);
  rt_archive_require(a, slot->part_count > 0, "a kernel is given nothing");
  for (uint32_t i = 0; i < slot->part_count && a->fault == NULL; i++) {
    uint32_t kind = parts[i].kind;
    rt_archive_below(a, &kind, RT_PLACE_OUTPUT + 1, "a tensor lies nowhere");
    rt_archive_u32(a, &parts[i].number);
    rt_archive_u64(a, &parts[i].offset);
    parts[i].kind = (rt_place_kind)kind;
  }
  slot->parts = parts;
}

static void archive_runs(rt_archive *a, rt_depth *depth) {
  rt_depth_run *runs = rt_archive_array(a, depth->runs, &depth->run_count, sizeof *runs);
  for (uint32_t i = 0; i < depth->run_count && a->fault == NULL; i++) {
    rt_archive_u32(a, &runs[i].step);
    rt_archive_u32(a, &runs[i].kernel);
    rt_archive_bool(a, &runs[i].beside);
    rt_depth_slot *slots = rt_archive_array(a, runs[i].slots, &runs[i].slot_count, sizeof *slots);
    for (uint32_t j = 0; j < runs[i].slot_count && a->fault == NULL; j++)
      archive_slot(a, &slots[j]);
    runs[i].slots = slots;
  }
  depth->runs = runs;
}

static void archive_model(rt_archive *a, fathom_model *model) {
  rt_depth *depth = &model->depth;
  archive_info(a, model);
  archive_counts(a, model, &model->addends);
  archive_counts(a, model, &model->sources);
  archive_types(a, model);
  rt_archive_u32(a, &depth->kernel_count);
  uint64_t *bytes = rt_archive_array(a, depth->buffer_bytes, &depth->buffer_count, sizeof *bytes);
  for (uint32_t i = 0; i < depth->buffer_count && a->fault == NULL; i++)
    rt_archive_u64(a, &bytes[i]);
  depth->buffer_bytes = bytes;
  archive_runs(a, depth);
}

// ---- writing ------------------------------------------------------------------------------------

static base_str kernel_name(base_arena *arena, uint32_t kernel) {
  return base_str_format(arena, "kernel %u", kernel);
}

static bool add_plan(api_call *call, const api_depth *depth, const fathom_model_options *options,
                     base_text *out) {
  base_text text = {.arena = &call->arena};
  rt_archive a = {.out = &text};
  fathom_model model = {.context = call->context};
  base_arena_init(&model.arena, &call->context->allocator);
  model.arena.escape = call->arena.escape;
  api_model_describe(depth, options, &model);
  archive_model(&a, &model);
  base_arena_reset(&model.arena);
  if (a.fault == NULL) {
    rt_bundle_add(out, SECTION_DEPTH, depth->model->name, base_text_str(&text));
    return true;
  }
  base_error_status(&call->diag, BASE_INTERNAL, nowhere, "the plan cannot be put into a bundle: %s",
                    a.fault);
  base_hint(&call->diag, "please report this, with the model");
  return false;
}

typedef struct save_frame {
  const char *model;
  const char *const *targets;
  uint32_t count;
  const fathom_model_options *options;
  fathom_text *out;
} save_frame;

static bool add_kernels(api_call *call, const api_depth *depth, const char *target, const char *cpu,
                        base_text *out) {
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = target;
  compile.cpu = cpu;
  for (uint32_t i = 0; i < depth->outline->kernels.count; i++) {
    api_request request;
    const fathom_graph *graph = api_graph_handle(call, depth->outline->kernels.data[i]);
    if (!api_save_request(call, &compile, target, &request)) return false;
    const fathom_executable *portable = api_compile_portable(call, graph, &request);
    if (portable == NULL || !api_bundle_add(call, out, kernel_name(&call->arena, i).data, portable))
      return false;
  }
  return true;
}

static fathom_status save_body(api_call *call, void *opaque) {
  save_frame *frame = opaque;
  fathom_model_options options;
  fathom_status status = API_STRUCT_IN(options, frame->options, fathom_model_options);
  if (status != FATHOM_OK) return status;
  const api_depth *depth = api_depth_plan(call, frame->model, &options);
  if (depth == NULL) return FATHOM_INVALID;
  base_text text = {.arena = &call->arena};
  api_bundle_begin(&text);
  if (!add_plan(call, depth, &options, &text)) return FATHOM_INTERNAL;
  for (uint32_t i = 0; i < frame->count; i++)
    if (!add_kernels(call, depth, frame->targets[i], options.cpu, &text)) return FATHOM_UNSUPPORTED;
  rt_bundle_end(&text);
  return api_text_out(frame->out, base_text_str(&text));
}

fathom_status fathom_model_save(fathom_context *context, const char *model,
                                const char *const *targets, uint32_t count,
                                const fathom_model_options *options, fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(model);
  API_REQUIRE(targets);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  for (uint32_t i = 0; i < count; i++)
    API_REQUIRE(targets[i]);
  if (count == 0) return api_fail(FATHOM_INVALID, "a bundle needs one target or more");
  save_frame frame = {model, targets, count, options, out};
  return api_call_run(context, save_body, &frame);
}

// ---- reading ------------------------------------------------------------------------------------

// Where each step's runs begin. False: they do not ascend, or a step has none.
static bool index_steps(fathom_model *model) {
  rt_depth *depth = &model->depth;
  const uint32_t steps = model->info.sites;
  uint32_t *first = base_new_array(&model->arena, uint32_t, steps + 1);
  uint32_t next = 0; // step
  for (uint32_t i = 0; i < depth->run_count; i++) {
    const uint32_t step = depth->runs[i].step;
    if (step == next && next < steps)
      first[next++] = i;
    else if (next == 0 || step != next - 1)
      return false;
  }
  first[steps] = depth->run_count;
  depth->first_run = first;
  depth->step_count = steps;
  return next == steps;
}

static const rt_section *find_plan(const rt_bundle *bundle) {
  for (uint32_t i = 0; i < bundle->section_count; i++)
    if (bundle->sections[i].kind == SECTION_DEPTH) return &bundle->sections[i];
  return NULL;
}

static bool read_plan(api_call *call, const rt_bundle *bundle, fathom_model *model) {
  const rt_section *section = find_plan(bundle);
  if (section == NULL) {
    base_error(&call->diag, nowhere, "the bundle holds no model");
    base_hint(&call->diag, "load a graph's bundle with fathom_executable_load, or run it with "
                           "`fathom run`");
    return false;
  }
  rt_archive a = {.arena = &model->arena, .in = section->contents};
  archive_model(&a, model);
  rt_archive_require(&a, a.at == section->contents.length, "something follows its end");
  if (a.fault == NULL && !index_steps(model)) a.fault = "its steps are out of order";
  if (a.fault == NULL) return true;
  rt_bundle_refuse(bundle, a.fault, &call->diag);
  return false;
}

static bool read_kernels(api_call *call, const rt_bundle *bundle, api_kind kind, const char *arch,
                         fathom_model *model) {
  const uint32_t count = model->depth.kernel_count;
  if (count == 0 || count > bundle->section_count) {
    rt_bundle_refuse(bundle, "kernels are missing", &call->diag);
    return false;
  }
  api_model_hold_kernels(model);
  for (uint32_t i = 0; i < count; i++) {
    const char *name = kernel_name(&call->arena, i).data;
    if (!api_bundle_load(call, bundle, name, kind, arch, &model->kernels[i])) return false;
    api_object_keep(model->kernels[i]);
  }
  return true;
}

bool api_model_load(api_call *call, base_str bytes, const fathom_model_options *options,
                    fathom_model *model) {
  rt_bundle bundle;
  api_kind kind;
  char arch[API_ARCH_ROOM];
  if (!api_target_parse(&call->diag, options->target != NULL ? options->target : "cpu", &kind,
                        arch) ||
      !rt_bundle_open(&call->arena, bytes, &bundle, &call->diag) ||
      !read_plan(call, &bundle, model) || !read_kernels(call, &bundle, kind, arch, model))
    return false;
  if (options->phases != FATHOM_PHASES_DESCRIBED ||
      (options->outputs != 0 && options->outputs != model->info.outputs)) {
    base_error(&call->diag, nowhere, "a bundle has its phases and outputs from when it was made");
    base_hint(&call->diag, "leave them out, or make another one");
    return false;
  }
  const char *fault = api_model_complete(model);
  if (fault == NULL) return true;
  rt_bundle_refuse(&bundle, fault, &call->diag);
  return false;
}
