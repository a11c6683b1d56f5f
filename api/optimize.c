// optimize: graph passes on request, text to text, and the list of passes.
#include "api/api.h"
#include "passes/passes.h"

typedef struct optimize_frame {
  const fathom_graph *graph;
  const fathom_optimize_options *options;
  fathom_text *out, *log;
} optimize_frame;

static const ir_graph *run_passes(api_call *call, const optimize_frame *frame, base_text *log) {
  const fathom_optimize_options *options = frame->options;
  const char *target = options->target != NULL ? options->target : "cpu", *pipeline = "";
  char arch[API_ARCH_ROOM];
  api_kind kind;
  if (!api_target_parse(&call->diag, target, &kind, arch)) return NULL;
  ir_graph *graph = api_graph_open(call, frame->graph);
  if (!ir_verify(graph, IR_STAGE_PARSED, &call->diag)) return NULL;
  if (options->passes != NULL)
    pipeline = options->passes;
  else if (api_targets[kind].compiles)
    pipeline = api_targets[kind].pipeline;
  const char *reproducer = options->reproducer != NULL ? options->reproducer : "fathom-repro.fir";
  pass_options passes = {
      .print_after_all = options->print_after_all != 0,
      .verify_each = options->verify_each != 0,
      .time_passes = options->time_passes != 0,
      .reproducer = options->verify_each != 0 ? reproducer : NULL,
      .log = log,
  };
  return pass_run(graph, pipeline, &passes, &call->diag);
}

// The log goes out even when a pass fails: what led there is in it.
static fathom_status optimize_body(api_call *call, void *opaque) {
  optimize_frame *frame = opaque;
  base_text log = {.arena = &call->arena}, text = {.arena = &call->arena};
  const ir_graph *graph = run_passes(call, frame, &log);
  fathom_status status = FATHOM_OK;
  if (frame->log != NULL) status = api_text_out(frame->log, base_text_str(&log));
  if (graph == NULL || status != FATHOM_OK) return status != FATHOM_OK ? status : FATHOM_INVALID;
  ir_print(graph, &text);
  return api_text_out(frame->out, base_text_str(&text));
}

fathom_status fathom_optimize(fathom_context *context, const fathom_graph *graph,
                              const fathom_optimize_options *given, fathom_text *out,
                              fathom_text *log) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  if (log != NULL) *log = (fathom_text){0};
  fathom_optimize_options options;
  fathom_status status = API_STRUCT_IN(options, given, fathom_optimize_options);
  if (status != FATHOM_OK) return status;
  optimize_frame frame = {graph, &options, out, log};
  return api_call_run(context, optimize_body, &frame);
}

// ---- the list -----------------------------------------------------------------------------------

static void append_facts(base_text *text, const char *label, uint32_t facts) {
  static const struct {
    uint32_t fact;
    const char *name;
  } names[] = {
      {PASS_FACT_CANONICAL, "canonical"},
      {PASS_FACT_PRIMITIVE, "primitive"},
      {PASS_FACT_FUSED, "fused"},
      {PASS_FACT_NARROW, "narrow"},
  };
  const char *separator = "";
  base_text_printf(text, "  %s=", label);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if ((facts & names[i].fact) == 0) continue;
    base_text_printf(text, "%s%s", separator, names[i].name);
    separator = ",";
  }
  if (facts == 0) base_text_printf(text, "-");
}

static fathom_status pass_list_body(api_call *call, void *opaque) {
  base_text text = {.arena = &call->arena};
  for (uint32_t i = 0; pass_at(i) != NULL; i++) {
    const pass_info *pass = pass_at(i);
    base_text_printf(&text, "%-16s", pass->name);
    append_facts(&text, "needs", pass->needs);
    append_facts(&text, "gives", pass->gives);
    base_text_printf(&text, "  %s\n", pass->summary);
  }
  return api_text_out(opaque, base_text_str(&text));
}

static fathom_status schedule_list_body(api_call *call, void *opaque) {
  base_text text = {.arena = &call->arena};
  kir_schedule_describe(&text);
  return api_text_out(opaque, base_text_str(&text));
}

static fathom_status list(api_body body, fathom_text *out) {
  *out = (fathom_text){0};
  fathom_context plain = {.allocator = {0}};
  return api_call_run(&plain, body, out);
}

fathom_status fathom_pass_list(fathom_text *out) {
  api_error_clear();
  API_REQUIRE(out);
  return list(pass_list_body, out);
}

fathom_status fathom_schedule_list(fathom_text *out) {
  api_error_clear();
  API_REQUIRE(out);
  return list(schedule_list_body, out);
}
