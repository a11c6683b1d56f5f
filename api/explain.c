// explain: how the schedule of each kernel is chosen, and why records of tuning for the same graph are
// not taken.
//
// Compiling drops a record that does not fit without a word; here all files of records are looked
// through, so this is nothing for the way of a compilation.
#include <string.h>

#include "api/records.h"

enum { MOST_REFUSED = 8 }; // records that are told of; the rest is a number

typedef struct explain_frame {
  const fathom_graph *graph;
  const fathom_compile_options *options;
  int64_t rows;
  fathom_explain_report *report;
  void *user;
  api_call *call;
  api_request request;
  const char *target_name, *axes;
} explain_frame;

// ---- what is refused ----------------------------------------------------------------------------

typedef struct refusals {
  base_text text;
  uint32_t count;
} refusals;

// "rows 64, warm caches, of 2026-11-30: compiler 'LLVM 18' (here 'LLVM 19')".
static void add_refusal(refusals *r, const tune_record *record, const char *why) {
  if (r->count++ >= MOST_REFUSED) return;
  base_text_printf(&r->text, "%srows %lld, %s caches, of %.10s: ", r->text.length ? "; " : "",
                   (long long)record->key.rows, record->key.cache, record->date);
  api_append_shown(&r->text, why);
}

// Why nothing that was tuned is for these options; "" when something may be.
static const char *no_record_fits(const explain_frame *frame) {
  const api_request *request = &frame->request;
  if (request->cg.schedule[0] != 0) return "a schedule is given";
  return !api_targets[request->kind].gpu && strcmp(request->cg.cpu, "host") != 0
             ? "code for another CPU is wanted"
             : "";
}

// "" when it is taken, for its number of rows.
static const char *why_not(const explain_frame *frame, const api_place *place, const tune_key *own,
                           const api_record_file *file, const tune_record *record) {
  base_arena *arena = &frame->call->arena;
  const char *why = no_record_fits(frame);
  if (why[0] != 0) return why;
  if (strcmp(record->key.target, own->target) != 0)
    return base_str_format(arena, "target '%s'", record->key.target).data;
  const tune_device *device = tune_database_device(file->database);
  if (!tune_device_equal(device, &place->options.device))
    return base_str_format(arena, "other device '%s'", device->name).data;
  why = api_record_difference(arena, own, &record->key, true, true);
  return why[0] != 0 ? why : api_record_flaw(arena, file, record, true);
}

// A shipped record stands behind the user's for the same rows.
static bool is_behind(const api_tuned *tuned, uint32_t count, const api_record_file *file,
                      const tune_record *record) {
  for (uint32_t i = 0; i < count && file->shipped; i++)
    if (tuned[i].rows == record->key.rows) return !tuned[i].shipped;
  return false;
}

static const char *list_refusals(explain_frame *frame, const ir_graph *graph,
                                 const api_tuned *tuned, uint32_t count) {
  api_call *call = frame->call;
  api_record_set set = {0};
  api_place place;
  refusals r = {.text = {.arena = &call->arena}};
  base_diag before = call->diag; // what is wrong with the files is no reason to fail
  bool readable =
      api_tuned_place(call, &frame->request, &place) && api_records_read(call, &set, NULL);
  call->diag = before;
  if (!readable) return "";
  bool gpu = api_targets[frame->request.kind].gpu;
  tune_key own =
      api_tuned_key(call, graph, &place, gpu ? 0 : rt_pool_threads(call->context->threads));
  for (uint32_t f = 0; f < set.count; f++) {
    const api_record_file *file = &set.files[f];
    uint32_t records = file->database != NULL ? tune_database_count(file->database) : 0;
    for (uint32_t i = 0; i < records; i++) {
      const tune_record *record = tune_database_at(file->database, i);
      if (strcmp(record->key.graph, own.graph) != 0) continue;
      const char *why = why_not(frame, &place, &own, file, record);
      if (why[0] == 0 && is_behind(tuned, count, file, record)) why = "a record of your own";
      if (why[0] != 0) add_refusal(&r, record, why);
    }
  }
  if (r.count > MOST_REFUSED) base_text_printf(&r.text, "; %u more", r.count - MOST_REFUSED);
  return r.text.length > 0 ? r.text.data : "";
}

// ---- what is chosen -----------------------------------------------------------------------------

// A line for each kernel: its name and its complete schedule.
static void report_lines(const explain_frame *frame, const char *lines, fathom_choice *choice) {
  base_arena *arena = &frame->call->arena;
  for (const char *line = lines, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    const char *space = memchr(line, ' ', (size_t)(end - line));
    choice->kernel = base_str_copy(arena, (base_str){line, (size_t)(space - line)}).data;
    choice->schedule = base_str_copy(arena, (base_str){space + 1, (size_t)(end - space) - 1}).data;
    frame->report(frame->user, choice);
  }
}

// `tuned`: what the schedule is from; NULL: from nothing that was tuned.
static bool report_code(const explain_frame *frame, const cg_target *target, const ir_graph *fused,
                        const api_tuned *tuned, const char *refused) {
  api_call *call = frame->call;
  cg_options options = frame->request.cg;
  fathom_choice choice = {.size = sizeof choice,
                          .graph = base_str_copy(&call->arena, frame->graph->ir->name).data,
                          .target = frame->target_name,
                          .axes = frame->axes,
                          .rows = frame->rows,
                          .source = options.schedule[0] != 0 ? "given" : "default",
                          .refused = refused};
  if (tuned != NULL) {
    options.schedule = tuned->schedule;
    choice.tuned_rows = tuned->rows;
    if (frame->rows == 0) choice.rows = tuned->rows;
    choice.source = tuned->by_model ? "model" : choice.rows == tuned->rows ? "tuned" : "nearest";
  }
  base_str lines;
  if (!target->emit(&call->arena, fused, &options, "schedules", &lines, &call->diag)) return false;
  if (lines.length > 0) report_lines(frame, base_str_copy(&call->arena, lines).data, &choice);
  return true;
}

static bool report_all(explain_frame *frame, const ir_graph *bound, const ir_graph *fused) {
  api_call *call = frame->call;
  const cg_target *target = api_codegen(call, frame->request.kind);
  if (target == NULL) return false;
  const api_tuned *tuned;
  uint32_t count = api_tuned_find(call, bound, &frame->request, &tuned);
  const char *refused = list_refusals(frame, bound, tuned, count);
  if (count == 0) return report_code(frame, target, fused, NULL, refused);
  if (frame->rows > 0)
    return report_code(frame, target, fused, api_tuned_nearest(tuned, count, frame->rows), refused);
  for (uint32_t i = 0; i < count; i++)
    if (!report_code(frame, target, fused, &tuned[i], refused)) return false;
  return true;
}

// ---- fathom_explain -----------------------------------------------------------------------------

// Nothing is compiled for interp.
static void report_graph(const explain_frame *frame) {
  fathom_choice choice = {
      .size = sizeof choice,
      .graph = base_str_copy(&frame->call->arena, frame->graph->ir->name).data,
      .kernel = "",
      .target = frame->target_name,
      .axes = frame->axes,
      .rows = frame->rows,
      .schedule = "",
      .source = "default",
      .refused = "",
  };
  frame->report(frame->user, &choice);
}

static fathom_status explain_body(api_call *call, void *opaque) {
  explain_frame *frame = opaque;
  const char *unused;
  frame->call = call;
  if (!api_request_read(call, frame->options, &frame->request) ||
      !api_arch_choose(call, &frame->request, &unused))
    return FATHOM_INVALID;
  const api_target *target = &api_targets[frame->request.kind];
  frame->target_name = target->name;
  if (target->gpu)
    frame->target_name =
        base_str_format(&call->arena, "%s:%s", target->name, frame->request.arch).data;
  const ir_graph *fused = api_lower(call, frame->graph, &frame->request);
  if (fused == NULL) return FATHOM_INVALID;
  frame->axes = api_axes_text(&call->arena, frame->graph->ir);
  if (!target->compiles)
    report_graph(frame);
  else if (!report_all(frame, frame->graph->ir, fused))
    return FATHOM_UNSUPPORTED;
  return FATHOM_OK;
}

fathom_status fathom_explain(fathom_context *context, const fathom_graph *graph,
                             const fathom_compile_options *options, int64_t rows,
                             fathom_explain_report *report, void *user) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(report);
  if (rows < 0) return api_fail(FATHOM_INVALID, "'rows' must be 0 or more");
  explain_frame frame = {
      .graph = graph, .options = options, .rows = rows, .report = report, .user = user};
  return api_call_run(context, explain_body, &frame);
}
