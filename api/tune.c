// tune: the search for the fastest schedule, from a graph to what is found.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/tune_store.h"
#include "autotune/contention.h"
#include "autotune/measure_worker.h"
#include "passes/passes.h"

enum { CHECK_ROWS = 37, MEMORY_MB = 8192 };
static const double default_seconds = 60, default_trial_seconds = 20, ceiling_seconds = 1;
static const double contended_share = 0.1; // of the processors, used by others

typedef struct tune_frame {
  api_store *store;
  const fathom_graph *graph;
  const fathom_compile_options *compile;
  fathom_tune_options options;
  fathom_tune_result result;
  api_call *call;
  uint32_t threads;
} tune_frame;

// ---- the worker's program -----------------------------------------------------------------------

static bool is_program(const char *path) {
  return access(path, X_OK) == 0;
}

// fathom beside this library: ../bin of an installation or a build, or its own folder.
static const char *find_worker(api_call *call, const fathom_tune_options *options) {
  if (options->worker != NULL) return options->worker;
  Dl_info library;
  static const char here; // any address in the library
  if (dladdr(&here, &library) != 0 && library.dli_fname != NULL) {
    const char *slash = strrchr(library.dli_fname, '/');
    int length = slash != NULL ? (int)(slash - library.dli_fname) : 1;
    const char *folder = slash != NULL ? library.dli_fname : ".";
    static const char *const places[] = {"/../bin/fathom", "/fathom"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
      const char *path = base_str_format(&call->arena, "%.*s%s", length, folder, places[i]).data;
      if (is_program(path)) return path;
    }
  }
  base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                    "the fathom program, in which candidates run, is not beside the library");
  base_hint(&call->diag, "install it, or name it in fathom_tune_options.worker");
  return NULL;
}

// ---- the job ------------------------------------------------------------------------------------

static base_str make_job(api_call *call, const tune_frame *frame, const ir_graph *graph,
                         const char *target) {
  const fathom_tune_options *options = &frame->options;
  base_text text = {.arena = &call->arena}, job = {.arena = &call->arena};
  ir_print(graph, &text);
  int64_t rows = options->dynamic_size;
  base_text_printf(&job, "target %s\ngraph %.*s\n", target, BASE_FMT(graph->name));
  base_text_printf(&job, "rows %lld\ncheck-rows %lld\nthreads %u\n", (long long)rows,
                   (long long)(rows < CHECK_ROWS ? rows : CHECK_ROWS), frame->threads);
  base_text_printf(&job, "cold %d\n", options->cache == FATHOM_CACHE_COLD);
  if (call->context->cache_directory[0])
    base_text_printf(&job, "cache-directory %s\n", call->context->cache_directory);
  base_text_printf(&job, "text %zu\n", text.length);
  base_text_append(&job, text.data, text.length);
  return base_text_str(&job);
}

// ---- progress -----------------------------------------------------------------------------------

static const char *text_of(base_arena *arena, const kir_schedule *schedule) {
  return schedule ? kir_schedule_text(arena, schedule) : "";
}

static void report_progress(void *user, const tune_progress *known) {
  tune_frame *frame = user;
  if (frame->options.progress == NULL) return;
  base_arena *arena = &frame->call->arena;
  const tune_finding *last = known->last_finding;
  fathom_tune_progress progress = {
      .size = sizeof progress,
      .tried = known->tried,
      .failed = known->failed,
      .planned = known->planned,
      .elapsed = known->elapsed,
      .budget = known->budget_seconds,
      .default_us = known->initial_seconds * 1e6,
      .best_us = known->best_seconds * 1e6,
      .best = text_of(arena, known->best),
      .last = text_of(arena, known->last),
      .outcome = last ? tune_outcome_name(last->outcome) : "",
      .why = last && last->why ? last->why : "",
      .confirming = known->confirming,
  };
  frame->options.progress(frame->options.user, &progress);
}

static bool ask_stop(void *user) {
  const tune_frame *frame = user;
  return frame->options.stop != NULL && frame->options.stop(frame->options.user) != 0;
}

// Another tuner has the device. False: stop waiting.
static bool report_waiting(void *user, const char *holder) {
  tune_frame *frame = user;
  fathom_tune_progress progress = {.size = sizeof progress,
                                   .budget = frame->options.seconds,
                                   .best = "",
                                   .last = "",
                                   .outcome = "",
                                   .why = holder,
                                   .waiting = 1};
  if (frame->options.progress) frame->options.progress(frame->options.user, &progress);
  return !ask_stop(frame);
}

// ---- tuning -------------------------------------------------------------------------------------

static void copy_schedule(api_call *call, const kir_schedule *schedule,
                          char to[FATHOM_SCHEDULE_ROOM]) {
  const char *text = kir_schedule_text(&call->arena, schedule);
  size_t length = strlen(text);
  memcpy(to, text, length < FATHOM_SCHEDULE_ROOM ? length + 1 : 0);
}

static const tune_space *make_space(api_call *call, tune_frame *frame, const ir_graph *fused,
                                    const cg_identity *identity) {
  tune_subject subject = {
      .graph = fused,
      .machine = KIR_CPU,
      .rows = api_rows_of(fused, frame->options.dynamic_size),
      .threads = frame->threads,
      .lanes = identity->lanes,
      .initial = pass_default_schedule(fused, 0),
  };
  return tune_space_create(&call->arena, &subject, &call->diag);
}

static const char *const ends[] = {[TUNE_END_DONE] = "done",
                                   [TUNE_END_SECONDS] = "seconds",
                                   [TUNE_END_TRIALS] = "trials",
                                   [TUNE_END_STOPPED] = "stopped"};

static void take_result(tune_frame *frame, const tune_space *space,
                        const tune_search_result *found) {
  fathom_tune_result *result = &frame->result;
  copy_schedule(frame->call, &space->schedules[found->best], result->schedule);
  copy_schedule(frame->call, &space->schedules[0], result->default_schedule);
  result->median_us = found->best_finding.seconds * 1e6;
  result->default_us = found->initial_finding.seconds * 1e6;
  result->spread = found->best_finding.spread;
  result->tie_band = found->tie_band;
  result->raw_schedules = space->raw;
  result->schedules = space->count;
  result->measurements = found->measurements;
  result->failures = found->failures;
  result->end = ends[found->end];
  result->seconds = found->elapsed;
}

static bool record_trial(void *user, const tune_trial *trial) {
  tune_frame *frame = user;
  return api_store_trial(frame->store, trial);
}

static bool search(tune_frame *frame, const tune_space *space,
                   const tune_bench_options *bench_options, const tune_strategy *strategy) {
  api_call *call = frame->call;
  api_store *store = frame->store;
  tune_bench *bench = base_new(&call->arena, tune_bench);
  tune_bench_open(bench, &call->arena, space, bench_options);
  base_defer(&call->arena, (void (*)(void *))tune_bench_close, bench);
  bench->initial_seconds = api_store_initial_seconds(store, space);
  tune_measurer measurer = tune_bench_measurer(bench);
  tune_search_options options = {.strategy = strategy,
                                 .seed = frame->options.seed,
                                 .seconds = frame->options.seconds,
                                 .trials = frame->options.trials,
                                 .earlier_count = store->earlier_count,
                                 .earlier = store->earlier,
                                 .seed_count = store->seed_count,
                                 .seeds = &store->seed,
                                 .stop = ask_stop,
                                 .progress = report_progress,
                                 .record = record_trial,
                                 .user = frame};
  tune_search_result found;
  const tune_finding *findings;
  tune_load before = tune_load_read();
  bool good =
      tune_search_run(&call->arena, space, &measurer, &options, &found, &findings, &call->diag);
  double shares[2] = {0, 0}, gb_s = 0;
  bool hurry = good && found.end == TUNE_END_STOPPED;
  if (good && !hurry)
    good = tune_bench_ceiling(bench, found.best, ceiling_seconds, &shares[1], &gb_s, &call->diag);
  if (good && !hurry && frame->options.report)
    good = tune_bench_ceiling(bench, 0, ceiling_seconds, &shares[0], &gb_s, &call->diag);
  tune_bench_close(bench);
  if (!good) return false;
  tune_load after = tune_load_read();
  take_result(frame, space, &found);
  frame->result.of_ceiling = shares[1];
  frame->result.gb_s = shares[1] * gb_s;
  frame->result.contended = tune_load_of_others(&before, &after) > contended_share;
  frame->result.resumed = store->earlier_count;
  api_store_outcome outcome = {.space = space,
                               .found = &found,
                               .findings = findings,
                               .strategy = strategy->name,
                               .budget_seconds = frame->options.seconds,
                               .contended = frame->result.contended != 0,
                               .of_ceiling = {shares[0], shares[1]},
                               .ceiling_gb_s = gb_s};
  return api_store_finish(store, &outcome, frame->options.report, &frame->result.stored);
}

static bool fuses_to_one(api_call *call, const ir_graph *fused) {
  uint32_t count = pass_kernel_count(fused);
  if (count == 1) return true;
  base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                    "graph @%.*s fuses to %u kernels, and only graphs of one kernel can be tuned",
                    BASE_FMT(fused->name), count);
  return false;
}

static const tune_strategy *choose_strategy(api_call *call, const char *name) {
  const tune_strategy *strategy = tune_strategy_find(base_str_from(name ? name : "halving"));
  if (strategy) return strategy;
  base_text list = {.arena = &call->arena};
  for (uint32_t i = 0; tune_strategy_at(i); i++)
    base_text_printf(&list, "%s%s", i ? ", " : "", tune_strategy_at(i)->name);
  base_error(&call->diag, (base_loc){0}, "unknown strategy '%s'", name);
  base_hint(&call->diag, "the strategies are %s", list.data);
  return NULL;
}

static fathom_status tune_body(api_call *call, void *opaque) {
  tune_frame *frame = opaque;
  frame->call = call;
  api_request request;
  if (!api_request_read(call, frame->compile, &request)) return FATHOM_INVALID;
  if (request.kind != API_CPU) {
    base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                      "the %s target cannot be tuned here", api_targets[request.kind].name);
    base_hint(&call->diag, "tune for the cpu target");
    return FATHOM_UNSUPPORTED;
  }
  if (request.cg.schedule[0]) {
    base_error(&call->diag, (base_loc){0}, "a schedule is given, so there is nothing to tune");
    return FATHOM_INVALID;
  }
  frame->threads = rt_pool_threads(call->context->threads);
  // One after the other: opening the graph gives the call's diagnostics its text.
  ir_graph *fused = api_lower(call, frame->graph, &request);
  const tune_strategy *strategy = fused ? choose_strategy(call, frame->options.strategy) : NULL;
  const char *worker = strategy ? find_worker(call, &frame->options) : NULL;
  const cg_target *target = worker ? api_codegen(call, request.kind) : NULL;
  cg_identity identity;
  if (!target || !fuses_to_one(call, fused) || !target->identify(&call->arena, &identity))
    return FATHOM_UNSUPPORTED;
  const tune_space *space = make_space(call, frame, fused, &identity);
  if (!space) return FATHOM_UNSUPPORTED;
  ir_graph *bound = api_graph_open(call, frame->graph);
  api_store_request wanted = {.graph = bound,
                              .fused = fused,
                              .target = target,
                              .rows = api_rows_of(bound, frame->options.dynamic_size),
                              .threads = frame->threads,
                              .seed = frame->options.seed,
                              .resume = frame->options.resume != 0,
                              .dry = frame->options.dry != 0,
                              .cache = frame->options.cache == FATHOM_CACHE_COLD ? "cold" : "warm",
                              .wait = report_waiting,
                              .user = frame};
  frame->store = api_store_open(call, &wanted);
  if (frame->store == NULL) return FATHOM_IO;
  const char *const arguments[] = {worker, "tune-worker", NULL};
  tune_bench_options bench = {
      .arguments = arguments,
      .job = make_job(call, frame, bound, "cpu"),
      .trial_seconds = frame->options.trial_seconds,
      .most_bytes = frame->options.memory_mb << 20,
  };
  bool good = search(frame, space, &bench, strategy);
  api_store_close(frame->store);
  return good ? FATHOM_OK : FATHOM_INTERNAL;
}

fathom_status fathom_tune(fathom_context *context, const fathom_graph *graph,
                          const fathom_compile_options *compile, const fathom_tune_options *given,
                          fathom_tune_result *result) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(result);
  tune_frame frame = {.graph = graph, .compile = compile};
  fathom_status status = API_STRUCT_IN(frame.options, given, fathom_tune_options);
  if (status == FATHOM_OK) status = API_STRUCT_OUT(result, frame.result, fathom_tune_result);
  if (status != FATHOM_OK) return status;
  fathom_tune_options *options = &frame.options;
  if (options->dynamic_size < 0 || !(options->seconds >= 0) || !(options->trial_seconds >= 0))
    return api_fail(FATHOM_INVALID,
                    "'dynamic_size', 'seconds' and 'trial_seconds' must be 0 or more");
  if (options->dynamic_size == 0) options->dynamic_size = API_USUAL_ROWS;
  if (options->seconds == 0) options->seconds = default_seconds;
  if (options->memory_mb == 0) options->memory_mb = MEMORY_MB;
  status = api_cache_choose(API_CPU, options->cache, &options->cache);
  if (status != FATHOM_OK) return status;
  frame.result.cache = options->cache;
  if (options->trial_seconds == 0) options->trial_seconds = default_trial_seconds;
  status = api_call_run(context, tune_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(result, frame.result, fathom_tune_result) : status;
}
