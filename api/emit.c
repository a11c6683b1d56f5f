// emit: what compilation makes on its way, as text or bytes.
#include <string.h>

#include "api/api.h"

static const base_loc nowhere;

static const char *const kinds[] = {"graph", "kernel", "llvm", "asm", "obj", "report"};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

typedef struct emit_frame {
  const fathom_graph *graph;
  const api_request *request;
  const char *what;
  fathom_text *out;
} emit_frame;

static fathom_status emit_graph(api_call *call, const ir_graph *graph, fathom_text *out) {
  base_text text = {.arena = &call->arena};
  ir_print(graph, &text);
  return api_text_out(out, base_text_str(&text));
}

static fathom_status emit_body(api_call *call, void *opaque) {
  emit_frame *frame = opaque;
  const ir_graph *graph = api_lower(call, frame->graph, frame->request);
  if (graph == NULL) return FATHOM_INVALID;
  if (strcmp(frame->what, "graph") == 0) return emit_graph(call, graph, frame->out);
  base_str why, made;
  const cg_target *target = cg_cpu_target(&call->arena, &why);
  if (target == NULL) {
    base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere, "%.*s", BASE_FMT(why));
    return FATHOM_UNSUPPORTED;
  }
  if (!target->emit(&call->arena, graph, &frame->request->cg, frame->what, &made, &call->diag))
    return FATHOM_UNSUPPORTED;
  return api_text_out(frame->out, made);
}

static fathom_status refuse_kind(const char *what) {
  api_fail(FATHOM_INVALID, "cannot emit '%s': expected one of ", what);
  for (uint32_t i = 0; i < KIND_COUNT; i++)
    api_fail_more("%s%s", i == 0 ? "" : ", ", kinds[i]);
  const char *near = base_nearest(base_str_from(what), kinds, KIND_COUNT);
  if (near != NULL) api_fail_more("\n  hint: did you mean %s?", near);
  return FATHOM_INVALID;
}

fathom_status fathom_emit(fathom_context *context, const fathom_graph *graph,
                          const fathom_compile_options *options, const char *what,
                          fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(what);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  api_request request;
  fathom_status status = api_request_read(context, options, &request);
  if (status != FATHOM_OK) return status;
  uint32_t kind = 0;
  while (kind < KIND_COUNT && strcmp(kinds[kind], what) != 0)
    kind++;
  if (kind == KIND_COUNT) return refuse_kind(what);
  if (request.interp && strcmp(what, "graph") != 0)
    return api_fail(FATHOM_UNSUPPORTED,
                    "the interp target makes no code: it has no '%s'\n"
                    "  hint: emit graph, or use the target cpu",
                    what);
  emit_frame frame = {graph, &request, what, out};
  return api_call_run(context, emit_body, &frame);
}
