// model: networks with attention over depth, as the host sees them.
#include "model/model.h"

#include <assert.h>
#include <string.h>

#include "api/api.h"

static_assert((int)MODEL_WEIGHTS == (int)FATHOM_OUTPUT_WEIGHTS &&
                  (int)MODEL_ENTROPY == (int)FATHOM_OUTPUT_ENTROPY &&
                  (int)MODEL_MIX == (int)FATHOM_OUTPUT_MIX,
              "outputs are handed on as they are");

// ---- descriptions -------------------------------------------------------------------------------

// The name of a file without folder and ending.
static base_str stem_of(base_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  return base_str_copy(arena, (base_str){name, dot != NULL ? (size_t)(dot - name) : strlen(name)});
}

// From here on the call's diagnostics show the description's text. NULL: see the call's diag.
static const model_description *read_description(api_call *call, const char *name) {
  base_str text, why;
  const char *path = api_shared_find(call, "model", name);
  if (path == NULL) return NULL;
  if (base_file_read(&call->arena, path, &text, &why) != BASE_OK) {
    base_error_status(&call->diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    return NULL;
  }
  base_diag_init(&call->diag, &call->arena, base_str_from(path), text);
  return model_read(&call->arena, text, stem_of(&call->arena, path), &call->diag);
}

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
  const model_description *model = read_description(call, frame->model);
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
