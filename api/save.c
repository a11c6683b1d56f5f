// save: the public pair that keeps one compiled graph as bytes (bundle.c).
#include "api/api.h"

static const base_loc nowhere;

// ---- saving -------------------------------------------------------------------------------------

typedef struct save_frame {
  const fathom_graph *graph;
  const char *const *targets;
  uint32_t count;
  const fathom_compile_options *options;
  fathom_text *out;
} save_frame;

// The options as this target takes them: one for the cpu and three GPUs may name a CPU.
bool api_save_request(api_call *call, const fathom_compile_options *options, const char *target,
                      api_request *out) {
  fathom_compile_options own;
  api_kind kind;
  char arch[API_ARCH_ROOM];
  if (API_STRUCT_IN(own, options, fathom_compile_options) != FATHOM_OK ||
      !api_target_parse(&call->diag, target, &kind, arch))
    return false;
  own.target = target;
  if (kind != API_CPU) own.cpu = NULL;
  if (kind == API_CPU || kind == API_CUDA) return api_request_read(call, &own, out);
  base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere, "bundles hold no code for %s",
                    api_targets[kind].name);
  base_hint(&call->diag, "name cpu, or cuda with an architecture such as cuda:sm_90a");
  return false;
}

static fathom_status save_body(api_call *call, void *opaque) {
  save_frame *frame = opaque;
  base_text text = {.arena = &call->arena};
  api_bundle_begin(&text);
  for (uint32_t i = 0; i < frame->count; i++) {
    api_request request;
    if (!api_save_request(call, frame->options, frame->targets[i], &request)) return FATHOM_INVALID;
    const fathom_executable *portable = api_compile_portable(call, frame->graph, &request);
    if (portable == NULL || !api_bundle_add(call, &text, portable->graph_name, portable))
      return FATHOM_UNSUPPORTED;
  }
  rt_bundle_end(&text);
  return api_text_out(frame->out, base_text_str(&text));
}

fathom_status fathom_executable_save(fathom_context *context, const fathom_graph *graph,
                                     const char *const *targets, uint32_t count,
                                     const fathom_compile_options *options, fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(targets);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  for (uint32_t i = 0; i < count; i++)
    API_REQUIRE(targets[i]);
  if (count == 0) return api_fail(FATHOM_INVALID, "a bundle needs one target or more");
  save_frame frame = {graph, targets, count, options, out};
  return api_call_run(context, save_body, &frame);
}

// ---- loading ------------------------------------------------------------------------------------

typedef struct load_frame {
  base_str bytes;
  const char *target;
  fathom_executable *executable;
} load_frame;

static fathom_status load_body(api_call *call, void *opaque) {
  load_frame *frame = opaque;
  rt_bundle bundle;
  api_kind kind;
  char arch[API_ARCH_ROOM];
  return api_target_parse(&call->diag, frame->target, &kind, arch) &&
                 rt_bundle_open(&call->arena, frame->bytes, &bundle, &call->diag) &&
                 api_bundle_load(call, &bundle, NULL, kind, arch, &frame->executable)
             ? FATHOM_OK
             : FATHOM_INVALID;
}

fathom_status fathom_executable_load(fathom_context *context, const void *bytes, size_t length,
                                     const char *target, fathom_executable **out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(out);
  *out = NULL;
  if (length > 0) API_REQUIRE(bytes);
  load_frame frame = {.bytes = {bytes, length}, .target = target != NULL ? target : "cpu"};
  fathom_status status = api_call_run(context, load_body, &frame);
  if (status != FATHOM_OK) {
    fathom_executable_destroy(frame.executable);
    return status;
  }
  api_object_keep(frame.executable);
  *out = frame.executable;
  return FATHOM_OK;
}
