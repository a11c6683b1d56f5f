// emit: what compilation makes on its way, as text or bytes.
#include <string.h>

#include "api/tuned.h"
#include "runtime/cuda/driver.h"

static const base_loc nowhere;

// ---- kinds --------------------------------------------------------------------------------------

#define BIT(kind) (1u << (kind))
enum {
  COMPILED = BIT(API_CPU) | BIT(API_CUDA) | BIT(API_EMULATOR),
  EVERY = COMPILED | BIT(API_INTERP),
};

static const struct {
  const char *name;
  uint32_t targets; // that make it
} kinds[] = {
    {"graph", EVERY},
    {"kernel", COMPILED},
    {"report", COMPILED},
    {"llvm", BIT(API_CPU)},
    {"asm", BIT(API_CPU)},
    {"obj", BIT(API_CPU)},
    {"cuda", BIT(API_CUDA) | BIT(API_EMULATOR)}, // the same text for both
    {"ptx", BIT(API_CUDA)},
    {"cubin", BIT(API_CUDA)},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

static bool refuse_unknown(base_diag *diag, const char *what) {
  const char *names[KIND_COUNT];
  base_text list = {.arena = diag->arena};
  for (uint32_t i = 0; i < KIND_COUNT; i++) {
    names[i] = kinds[i].name;
    base_text_printf(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
  }
  base_error(diag, nowhere, "cannot emit '%s': expected one of %s", what, list.data);
  const char *near = base_nearest(base_str_from(what), names, KIND_COUNT);
  if (near != NULL) base_hint(diag, "did you mean %s?", near);
  return false;
}

// Says what the target makes instead, and which target makes what was asked for.
static bool refuse_target(base_diag *diag, uint32_t kind, api_kind target) {
  base_text made = {.arena = diag->arena}, makers = {.arena = diag->arena};
  for (uint32_t i = 0; i < KIND_COUNT; i++)
    if ((kinds[i].targets & BIT(target)) != 0)
      base_text_printf(&made, "%s%s", made.length == 0 ? "" : ", ", kinds[i].name);
  for (uint32_t i = 0; i < API_KINDS; i++)
    if ((kinds[kind].targets & BIT(i)) != 0)
      base_text_printf(&makers, "%s%s", makers.length == 0 ? "" : " or ", api_targets[i].name);
  base_error_status(diag, BASE_UNSUPPORTED, nowhere, "the %s target makes no %s: it makes %s",
                    api_targets[target].name, kinds[kind].name, made.data);
  base_hint(diag, "use the target %s", makers.data);
  return false;
}

static bool check_kind(base_diag *diag, const char *what, api_kind target) {
  uint32_t kind = 0;
  while (kind < KIND_COUNT && strcmp(kinds[kind].name, what) != 0)
    kind++;
  if (kind == KIND_COUNT) return refuse_unknown(diag, what);
  return (kinds[kind].targets & BIT(target)) != 0 || refuse_target(diag, kind, target);
}

// ---- architectures ------------------------------------------------------------------------------

bool api_arch_choose(api_call *call, api_request *request, const char **why) {
  rt_device_facts *facts = base_new(&call->arena, rt_device_facts);
  base_diag unused;
  uint32_t ordinal;
  *why = "";
  if (!api_targets[request->kind].gpu) return true;
  base_diag_init(&unused, &call->arena, BASE_STR(""), BASE_STR(""));
  if (!api_device_ordinal(call, &ordinal)) return false;
  if (request->kind == API_CUDA && rt_cuda_facts(ordinal, facts, &unused) == BASE_OK)
    request->facts = facts; // what compiling for it would look up, too
  if (request->arch[0] != 0) return true;
  if (request->facts != NULL) {
    api_arch_of(facts, request->arch);
    *why =
        base_str_format(&call->arena, "architecture: %s, that of %s\n", request->arch, facts->name)
            .data;
    return true;
  }
  memcpy(request->arch, API_DEFAULT_ARCH, sizeof API_DEFAULT_ARCH);
  *why = base_str_format(&call->arena,
                         "architecture: %s, the default without a GPU; name another one as in "
                         "%s:sm_80\n",
                         request->arch, api_targets[request->kind].name)
             .data;
  return true;
}

// ---- fathom_emit --------------------------------------------------------------------------------

typedef struct emit_frame {
  const fathom_graph *graph;
  const fathom_compile_options *options;
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
  api_request request;
  const char *arch_line;
  if (!api_request_read(call, frame->options, &request) ||
      !check_kind(&call->diag, frame->what, request.kind) ||
      !api_arch_choose(call, &request, &arch_line))
    return FATHOM_INVALID;
  const ir_graph *graph = api_lower(call, frame->graph, &request);
  if (graph == NULL) return FATHOM_INVALID;
  if (strcmp(frame->what, "graph") == 0) return emit_graph(call, graph, frame->out);
  const cg_target *target = api_codegen(call, request.kind);
  base_str made;
  if (target != NULL) api_tuned_apply(call, frame->graph->ir, API_USUAL_ROWS, &request);
  if (target == NULL ||
      !target->emit(&call->arena, graph, &request.cg, frame->what, &made, &call->diag))
    return FATHOM_UNSUPPORTED;
  if (strcmp(frame->what, "report") == 0)
    made = base_str_format(&call->arena, "%.*s%s", BASE_FMT(made), arch_line);
  return api_text_out(frame->out, made);
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
  emit_frame frame = {graph, options, what, out};
  return api_call_run(context, emit_body, &frame);
}
