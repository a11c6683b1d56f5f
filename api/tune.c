// tune: the search for the fastest schedule, from a graph to what is found.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/tune_store.h"
#include "api/tune_subject.h"
#include "autotune/contention.h"
#include "autotune/contest.h"
#include "autotune/measure_worker.h"
#include "runtime/cuda/driver.h"

enum {
  CHECK_ROWS = 37,
  EMULATED_ROWS = 5, // the emulator is slow
  MEMORY_MB = 8192,
};
static const double default_seconds = 60, default_trial_seconds = 20, ceiling_seconds = 1,
                    first_ceiling_seconds = 0.4, calibration_seconds = 0.6,
                    least_seconds = 0.1;   // of a search, whatever came before it took
static const double contended_share = 0.1; // of the processors, used by others

typedef struct tune_frame {
  const fathom_graph *graph;
  const fathom_compile_options *compile;
  fathom_tune_options options;
  fathom_tune_result result;
  api_call *call;
  api_request request;
  rt_device_facts facts; // of the GPU at hand
  tune_subject subject;
  api_store *store;
  double begun;         // seconds, base_seconds
  double initial_share; // of the machine's ceiling, of the default schedule; 0: not known
} tune_frame;

// ---- the worker's program -----------------------------------------------------------------------

static bool is_program(const char *path) {
  return access(path, X_OK) == 0;
}

// fathom beside this library: ../bin of an installation or a build, or its own folder.
static const char *find_worker(api_call *call, const fathom_tune_options *options) {
  static const char *const places[] = {"../bin/fathom", "fathom"};
  if (options->worker != NULL) return options->worker;
  const char *folder = api_library_folder(&call->arena);
  for (size_t i = 0; folder != NULL && i < sizeof places / sizeof *places; i++) {
    const char *path = base_str_format(&call->arena, "%s/%s", folder, places[i]).data;
    if (is_program(path)) return path;
  }
  base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                    "the fathom program, in which candidates run, is not beside the library");
  base_hint(&call->diag, "install it, or name it in fathom_tune_options.worker");
  return NULL;
}

// ---- the job ------------------------------------------------------------------------------------

static bool is_cold(const tune_frame *frame) {
  return frame->result.cache == FATHOM_CACHE_COLD;
}

static base_str make_job(api_call *call, const tune_frame *frame, const ir_graph *graph,
                         const char *target) {
  const fathom_tune_options *options = &frame->options;
  base_text text = {.arena = &call->arena}, job = {.arena = &call->arena};
  ir_print(graph, &text);
  int64_t rows = options->dynamic_size, most = options->offline ? EMULATED_ROWS : CHECK_ROWS;
  base_text_printf(&job, "target %s\ngraph %.*s\n", target, BASE_FMT(graph->name));
  base_text_printf(&job, "rows %lld\ncheck-rows %lld\nthreads %u\n", (long long)rows,
                   (long long)(rows < most ? rows : most), frame->subject.threads);
  if (options->offline) base_text_printf(&job, "offline 1\n");
  base_text_printf(&job, "cold %d\n", is_cold(frame));
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
      .elapsed = base_seconds() - frame->begun,
      .budget = frame->options.seconds,
      .default_us = known->initial_seconds * 1e6,
      .best_us = known->best_seconds * 1e6,
      .best = text_of(arena, known->best),
      .last = text_of(arena, known->last),
      .outcome = last ? tune_outcome_name(last->outcome) : "",
      .why = last && last->why ? last->why : "",
      .confirming = known->confirming,
      .of_ceiling = known->best_seconds > 0
                        ? frame->initial_share * known->initial_seconds / known->best_seconds
                        : 0,
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

// The disk does not take what is to be remembered.
static void report_warning(void *user, const char *why) {
  tune_frame *frame = user;
  fathom_tune_progress progress = {.size = sizeof progress,
                                   .budget = frame->options.seconds,
                                   .best = "",
                                   .last = "",
                                   .outcome = "",
                                   .why = why,
                                   .warning = 1};
  if (frame->options.progress) frame->options.progress(frame->options.user, &progress);
}

// ---- tuning -------------------------------------------------------------------------------------

static void copy_text(const char *text, char to[FATHOM_SCHEDULE_ROOM]) {
  size_t length = strlen(text);
  memcpy(to, text, length < FATHOM_SCHEDULE_ROOM ? length + 1 : 0);
}

static void copy_schedule(api_call *call, const kir_schedule *schedule,
                          char to[FATHOM_SCHEDULE_ROOM]) {
  copy_text(kir_schedule_text(&call->arena, schedule), to);
}

static bool calibrate(tune_frame *frame, tune_calibration *out) {
  rt_executor executor;
  if (api_store_calibration(frame->store, out)) return true;
  if (api_context_pool(frame->call->context, &executor) != FATHOM_OK) return false;
  tune_load before = tune_load_read();
  base_status status = tune_calibrate(&executor, calibration_seconds, out);
  tune_load after = tune_load_read();
  if (status != BASE_OK) {
    base_error_status(&frame->call->diag, status, (base_loc){0}, "calibrating failed: %s",
                      base_status_text(status));
    return false;
  }
  api_store_calibrated(frame->store, out, tune_load_of_others(&before, &after) > contended_share);
  return true;
}

// The schedules that the kernel and the machine can have, and what the cost model says of each.
static tune_space *make_space(tune_frame *frame, double **predicted) {
  base_arena *arena = &frame->call->arena;
  tune_space *space = tune_space_create(arena, &frame->subject);
  tune_calibration calibration;
  double *seconds = *predicted = base_new_array(arena, double, space->count);
  bool *kept = base_new_array(arena, bool, space->count);
  if (frame->subject.machine == KIR_CPU) {
    if (!calibrate(frame, &calibration)) return NULL;
    tune_predict_cpu(arena, &frame->subject, space, &calibration, seconds);
  } else {
    tune_predict_cuda(arena, &frame->subject, space, seconds);
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < space->count; i++) {
    kept[i] = i == 0 || isfinite(seconds[i]);
    if (kept[i]) seconds[count++] = seconds[i];
  }
  tune_space_keep(space, kept);
  return space;
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
  result->seconds = base_seconds() - frame->begun;
  result->source = "search";
}

// What a search that ended before has found.
static void take_known(tune_frame *frame) {
  fathom_tune_result *result = &frame->result;
  const tune_space *space = tune_space_create(&frame->call->arena, &frame->subject);
  const tune_record *known = frame->store->known;
  copy_text(known->best.schedule, result->schedule);
  copy_text(known->initial.schedule, result->default_schedule);
  result->median_us = known->best.median_us;
  result->default_us = known->initial.median_us;
  result->spread = known->best.spread;
  result->of_ceiling = known->of_ceiling;
  result->raw_schedules = space->raw;
  result->schedules = space->count;
  result->end = "known";
  result->stored = 1;
  result->contended = known->contended;
  result->source = api_store_is_shipped(frame->store, known) ? "shipped" : "records";
}

static bool record_trial(void *user, const tune_trial *trial) {
  tune_frame *frame = user;
  return api_store_trial(frame->store, trial);
}

// How alike the model and the clock order what was timed.
static double rank_model(base_arena *arena, const tune_space *space, const tune_finding *findings,
                         const double *predicted) {
  double *timed = base_new_array(arena, double, space->count);
  double *said = base_new_array(arena, double, space->count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < space->count; i++) {
    if (!findings[i].tried || findings[i].outcome != TUNE_TIMED) continue;
    timed[count] = findings[i].seconds;
    said[count++] = predicted[i];
  }
  return tune_rank_correlation(arena, timed, said, count);
}

// What share of the machine's ceiling the default reaches, which tells those of the others while the
// search runs; and in the end the winner.
static bool measure_initial(tune_frame *frame, tune_bench *bench, api_store_outcome *outcome) {
  return frame->options.offline ||
         tune_bench_ceiling(bench, 0, first_ceiling_seconds, &outcome->of_ceiling[0],
                            &outcome->ceiling_gb_s, &frame->call->diag);
}

static bool measure_best(tune_frame *frame, tune_bench *bench, const tune_search_result *found,
                         api_store_outcome *outcome) {
  return frame->options.offline || found->end == TUNE_END_STOPPED ||
         tune_bench_ceiling(bench, found->best, ceiling_seconds, &outcome->of_ceiling[1],
                            &outcome->ceiling_gb_s, &frame->call->diag);
}

static bool search(tune_frame *frame, const tune_bench_options *bench_options,
                   const tune_strategy *strategy) {
  api_call *call = frame->call;
  api_store *store = frame->store;
  double *predicted;
  tune_space *space = make_space(frame, &predicted);
  if (!space) return false;
  tune_bench *bench = base_new(&call->arena, tune_bench);
  tune_bench_open(bench, &call->arena, space, bench_options);
  base_defer(&call->arena, (void (*)(void *))tune_bench_close, bench);
  bench->initial_seconds = api_store_initial_seconds(store, space);
  tune_measurer measurer = tune_bench_measurer(bench);
  tune_search_options options = {.strategy = strategy,
                                 .seed = frame->options.seed,
                                 .seconds = frame->options.seconds,
                                 .trials = frame->options.trials,
                                 .predicted = predicted,
                                 .earlier_count = store->earlier_count,
                                 .earlier = store->earlier,
                                 .seed_count = store->seed_count,
                                 .seeds = &store->seed,
                                 .stop = ask_stop,
                                 .progress = report_progress,
                                 .record = record_trial,
                                 .user = frame};
  tune_search_result found;
  api_store_outcome outcome = {.space = space,
                               .found = &found,
                               .strategy = strategy->name,
                               .budget_seconds = frame->options.seconds};
  tune_load before = tune_load_read();
  bool good = measure_initial(frame, bench, &outcome);
  frame->initial_share = outcome.of_ceiling[0];
  options.seconds = fmax(options.seconds - (base_seconds() - frame->begun), least_seconds);
  good = good &&
         tune_search_run(&call->arena, space, &measurer, &options, &found, &outcome.findings,
                         &call->diag) &&
         measure_best(frame, bench, &found, &outcome);
  tune_bench_close(bench);
  if (!good) return false;
  tune_load after = tune_load_read();
  outcome.contended =
      !frame->options.offline && tune_load_of_others(&before, &after) > contended_share;
  take_result(frame, space, &found);
  frame->result.of_ceiling = outcome.of_ceiling[1];
  frame->result.gb_s = outcome.of_ceiling[1] * outcome.ceiling_gb_s;
  frame->result.contended = outcome.contended;
  frame->result.resumed = store->earlier_count;
  if (!frame->options.offline)
    frame->result.model_rank = rank_model(&call->arena, space, outcome.findings, predicted);
  return api_store_finish(store, &outcome, frame->options.report, &frame->result.stored);
}

static const tune_strategy *choose_strategy(api_call *call, const fathom_tune_options *options) {
  const char *usual = options->offline ? "ranked" : "halving";
  const char *name = options->strategy ? options->strategy : usual;
  const tune_strategy *strategy = tune_strategy_find(base_str_from(name));
  if (strategy) return strategy;
  base_text list = {.arena = &call->arena};
  for (uint32_t i = 0; tune_strategy_at(i); i++)
    base_text_printf(&list, "%s%s", i ? ", " : "", tune_strategy_at(i)->name);
  base_error(&call->diag, (base_loc){0}, "unknown strategy '%s'", name);
  base_hint(&call->diag, "the strategies are %s", list.data);
  return NULL;
}

// Can schedules for that target be tried here?
static bool can_tune(api_call *call, const tune_frame *frame) {
  api_kind kind = frame->request.kind;
  const char *name = api_targets[kind].name, *hint = "tune for the cpu target";
  if (frame->request.cg.schedule[0]) {
    base_error(&call->diag, (base_loc){0}, "a schedule is given, so there is nothing to tune");
    return false;
  }
  bool offline = frame->options.offline != 0;
  if ((kind == API_CPU && !offline) || kind == API_CUDA) return true;
  if (kind == API_EMULATOR)
    hint = "its times say nothing; tune for cuda, --offline where no GPU is";
  if (kind == API_CPU) hint = "its schedules can be timed: leave --offline out";
  base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                    "the %s target cannot be tuned %s", name,
                    frame->options.offline ? "offline" : "here");
  base_hint(&call->diag, "%s", hint);
  return false;
}

// The GPU that schedules are timed on.
static bool find_gpu(api_call *call, tune_frame *frame) {
  uint32_t ordinal;
  if (frame->request.kind != API_CUDA || frame->options.offline) return true;
  if (!api_device_ordinal(call, &ordinal)) return false;
  if (rt_cuda_facts(ordinal, &frame->facts, &call->diag) != BASE_OK) {
    base_hint(&call->diag, "without a GPU the cost model can rank schedules: --offline");
    return false;
  }
  if (frame->request.arch[0] == 0) api_arch_of(&frame->facts, frame->request.arch);
  frame->request.facts = &frame->facts;
  return true;
}

static fathom_status tune_body(api_call *call, void *opaque) {
  tune_frame *frame = opaque;
  frame->call = call;
  frame->begun = base_seconds();
  const fathom_tune_options *options = &frame->options;
  if (!api_request_read(call, frame->compile, &frame->request) ||
      api_cache_choose(frame->request.kind, options->cache, &frame->result.cache) != FATHOM_OK)
    return FATHOM_INVALID;
  if (!can_tune(call, frame) || !find_gpu(call, frame)) return FATHOM_UNSUPPORTED;
  uint32_t threads = frame->request.kind == API_CPU ? rt_pool_threads(call->context->threads) : 0;
  // One after the other: opening the graph gives the call's diagnostics its text.
  if (!api_tune_subject(call, frame->graph, &frame->request, options->dynamic_size, threads,
                        &frame->subject))
    return FATHOM_UNSUPPORTED;
  frame->subject.timed = options->offline == 0;
  const tune_strategy *strategy = choose_strategy(call, options);
  const char *worker = strategy ? find_worker(call, options) : NULL;
  if (!worker) return FATHOM_UNSUPPORTED;
  ir_graph *bound = api_graph_open(call, frame->graph);
  api_store_request wanted = {.graph = bound,
                              .subject = &frame->subject,
                              .compile = &frame->request,
                              .seed = options->seed,
                              .resume = options->resume != 0,
                              .dry = options->dry != 0,
                              .by_model = options->offline != 0,
                              .cache = is_cold(frame) ? "cold" : "warm",
                              .keep = options->keep != 0,
                              .wait = report_waiting,
                              .warn = report_warning,
                              .user = frame};
  frame->store = api_store_open(call, &wanted);
  if (frame->store == NULL) return FATHOM_IO;
  frame->begun = base_seconds(); // waiting for the device is not searching
  if (frame->store->known != NULL) {
    take_known(frame);
    api_store_close(frame->store);
    return FATHOM_OK;
  }
  const char *const arguments[] = {worker, "tune-worker", NULL};
  const char *target =
      frame->request.kind == API_CPU
          ? "cpu"
          : base_str_format(&call->arena, "cuda:%s", frame->subject.arch->name).data;
  tune_bench_options bench = {
      .arguments = arguments,
      .job = make_job(call, frame, bound, target),
      .trial_seconds = options->trial_seconds,
      .most_bytes = options->memory_mb << 20,
      .on_device = frame->subject.machine == KIR_CUDA && !options->offline,
      .predicts = options->offline != 0,
  };
  bool good = search(frame, &bench, strategy);
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
  if (options->trial_seconds == 0) options->trial_seconds = default_trial_seconds;
  status = api_call_run(context, tune_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(result, frame.result, fathom_tune_result) : status;
}
