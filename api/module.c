// module: parsed files, their graphs, and what a graph says about its parameters and results.
#include <string.h>

#include "api/api.h"

// ---- parsing ------------------------------------------------------------------------------------

typedef struct parse_frame {
  base_str text, file;
  fathom_module *module;
} parse_frame;

static fathom_status parse_body(api_call *call, void *opaque) {
  parse_frame *frame = opaque;
  base_diag_init(&call->diag, &call->arena, frame->file, frame->text);
  ir_module *parsed = ir_parse(&call->arena, frame->text, &call->diag);
  if (parsed == NULL) return FATHOM_INVALID;
  for (uint32_t i = 0; i < parsed->graphs.count; i++)
    ir_verify(parsed->graphs.data[i], IR_STAGE_PARSED, &call->diag);
  if (call->diag.error_count > 0) return FATHOM_INVALID;

  fathom_module *module = frame->module = api_object_create(call, sizeof *module);
  module->context = call->context;
  module->file = base_str_copy(&module->arena, frame->file);
  module->source = base_str_copy(&module->arena, frame->text);
  module->count = parsed->graphs.count;
  module->graphs = base_new_array(&module->arena, fathom_graph, module->count);
  module->names = base_new_array(&module->arena, const char *, module->count);
  for (uint32_t i = 0; i < module->count; i++) {
    ir_graph *ir = api_graph_copy(&module->arena, parsed->graphs.data[i]);
    module->graphs[i] = (fathom_graph){.module = module, .ir = ir};
    module->names[i] = ir->name.data;
  }
  return FATHOM_OK;
}

fathom_status fathom_parse(fathom_context *context, const char *text, size_t length,
                           const char *file, fathom_module **out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(text);
  API_REQUIRE(out);
  *out = NULL;
  parse_frame frame = {.text = {text, length}, .file = base_str_from(file != NULL ? file : "")};
  fathom_status status = api_call_run(context, parse_body, &frame);
  if (status != FATHOM_OK) {
    api_object_destroy(frame.module);
    return status;
  }
  api_object_keep(frame.module);
  *out = frame.module;
  return FATHOM_OK;
}

void fathom_module_destroy(fathom_module *module) {
  api_object_destroy(module);
}

// ---- graphs -------------------------------------------------------------------------------------

uint32_t fathom_module_count(const fathom_module *module) {
  return module->count;
}

fathom_graph *fathom_module_graph_at(fathom_module *module, uint32_t index) {
  return index < module->count ? &module->graphs[index] : NULL;
}

static fathom_status list_graphs(const fathom_module *module) {
  for (uint32_t i = 0; i < module->count; i++)
    api_fail_more("%s@%s", i == 0 ? "" : ", ", module->names[i]);
  return FATHOM_INVALID;
}

fathom_status fathom_module_graph(fathom_module *module, const char *name, fathom_graph **out) {
  api_error_clear();
  API_REQUIRE(module);
  API_REQUIRE(out);
  *out = NULL;
  if (name == NULL && module->count == 1) {
    *out = &module->graphs[0];
    return FATHOM_OK;
  }
  if (name == NULL) {
    api_fail(FATHOM_INVALID, "the file holds %u graphs: name one of ", module->count);
    return list_graphs(module);
  }
  for (uint32_t i = 0; i < module->count; i++) {
    if (strcmp(module->names[i], name) != 0) continue;
    *out = &module->graphs[i];
    return FATHOM_OK;
  }
  api_fail(FATHOM_INVALID, "no graph @%s; the file holds ", name);
  list_graphs(module);
  const char *near = base_nearest(base_str_from(name), module->names, module->count);
  if (near != NULL) api_fail_more("\n  hint: did you mean @%s?", near);
  return FATHOM_INVALID;
}

const char *fathom_graph_name(const fathom_graph *graph) {
  return graph->ir->name.data;
}

// ---- binding axes -------------------------------------------------------------------------------

typedef struct bind_frame {
  fathom_graph *graph;
  base_str axis;
  int64_t size;
} bind_frame;

// Works on a copy of the sizes first, so that a refusal, or a lack of memory, changes nothing.
static fathom_status bind_body(api_call *call, void *opaque) {
  bind_frame *frame = opaque;
  ir_graph *trial = api_graph_open(call, frame->graph);
  if (!ir_bind_axis(trial, frame->axis, frame->size, &call->diag) ||
      !ir_verify(trial, IR_STAGE_PARSED, &call->diag))
    return FATHOM_INVALID;
  for (uint32_t i = 0; i < trial->axes.count; i++)
    frame->graph->ir->axes.data[i].size = trial->axes.data[i].size;
  return FATHOM_OK;
}

fathom_status fathom_graph_bind(fathom_graph *graph, const char *axis, int64_t size) {
  api_error_clear();
  API_REQUIRE(graph);
  API_REQUIRE(axis);
  if (size < 0)
    return api_fail(FATHOM_INVALID, "axis %s cannot have the size %lld: expected 0 or more", axis,
                    (long long)size);
  bind_frame frame = {graph, base_str_from(axis), size};
  return api_call_run(graph->module->context, bind_body, &frame);
}

// ---- parameters and results ---------------------------------------------------------------------

uint32_t fathom_graph_param_count(const fathom_graph *graph) {
  return graph->ir->param_count;
}

uint32_t fathom_graph_result_count(const fathom_graph *graph) {
  return graph->ir->results.count;
}

static fathom_status describe(const ir_graph *graph, ir_value value, fathom_tensor_info *out) {
  const ir_node *node = ir_node_of(graph, value);
  fathom_tensor_info info = {
      .name = node->name.data,
      .dtype = (fathom_dtype)node->type.dtype,
      .rank = node->type.rank,
  };
  for (uint32_t i = 0; i < node->type.rank; i++) {
    ir_axis axis = node->type.axes[i];
    info.axes[i] = graph->axes.data[axis.index].name.data;
    info.sizes[i] = ir_axis_size(graph, axis);
    info.layout[i] =
        node->has_layout ? (uint32_t)ir_type_position(&node->type, node->layout[i]) : i;
  }
  return API_STRUCT_OUT(out, info, fathom_tensor_info);
}

fathom_status fathom_graph_param(const fathom_graph *graph, uint32_t index,
                                 fathom_tensor_info *info) {
  api_error_clear();
  API_REQUIRE(graph);
  API_REQUIRE(info);
  if (index >= graph->ir->param_count)
    return api_fail(FATHOM_INVALID, "no parameter %u: graph @%s has %u", index,
                    fathom_graph_name(graph), graph->ir->param_count);
  return describe(graph->ir, (ir_value){index}, info);
}

fathom_status fathom_graph_result(const fathom_graph *graph, uint32_t index,
                                  fathom_tensor_info *info) {
  api_error_clear();
  API_REQUIRE(graph);
  API_REQUIRE(info);
  if (index >= graph->ir->results.count)
    return api_fail(FATHOM_INVALID, "no result %u: graph @%s has %u", index,
                    fathom_graph_name(graph), graph->ir->results.count);
  return describe(graph->ir, graph->ir->results.data[index], info);
}
