// model: networks with attention over depth, as the host sees them.
#include <assert.h>

#include "api/depth.h"

static_assert((int)MODEL_WEIGHTS == (int)FATHOM_OUTPUT_WEIGHTS &&
                  (int)MODEL_ENTROPY == (int)FATHOM_OUTPUT_ENTROPY &&
                  (int)MODEL_MIX == (int)FATHOM_OUTPUT_MIX &&
                  (int)MODEL_FP8 == (int)FATHOM_OUTPUT_FP8,
              "outputs are handed on as they are");

// ---- expanding ----------------------------------------------------------------------------------

typedef struct expand_frame {
  const char *model;
  const fathom_model_options *options;
  fathom_text *out;
} expand_frame;

static fathom_status expand_body(api_call *call, void *opaque) {
  expand_frame *frame = opaque;
  fathom_model_options options;
  fathom_status status = API_STRUCT_IN(options, frame->options, fathom_model_options);
  if (status != FATHOM_OK) return status;
  const model_description *model = api_model_read(call, frame->model);
  if (model == NULL) return FATHOM_INVALID;
  ir_graph *graph = model_expand(&call->arena, model, options.outputs, &call->diag);
  if (graph == NULL || !ir_verify(graph, IR_STAGE_BOUND, &call->diag)) return FATHOM_INVALID;
  base_text text = {.arena = &call->arena};
  ir_print(graph, &text);
  return api_text_out(frame->out, base_text_str(&text));
}

fathom_status fathom_model_expand(fathom_context *context, const char *model,
                                  const fathom_model_options *options, fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(model);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  expand_frame frame = {model, options, out};
  return api_call_run(context, expand_body, &frame);
}

// ---- planning -----------------------------------------------------------------------------------

typedef struct plan_frame {
  const char *model;
  const fathom_model_options *options;
  fathom_text *out;
} plan_frame;

static fathom_status plan_body(api_call *call, void *opaque) {
  plan_frame *frame = opaque;
  fathom_model_options options;
  fathom_status status = API_STRUCT_IN(options, frame->options, fathom_model_options);
  if (status != FATHOM_OK) return status;
  api_depth *depth = api_depth_plan(call, frame->model, &options);
  if (depth == NULL) return FATHOM_INVALID;
  api_depth_time(call, depth);
  base_text text = {.arena = &call->arena};
  api_depth_print(depth, &text);
  return api_text_out(frame->out, base_text_str(&text));
}

fathom_status fathom_model_plan(fathom_context *context, const char *model,
                                const fathom_model_options *options, fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(model);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  plan_frame frame = {model, options, out};
  return api_call_run(context, plan_body, &frame);
}
