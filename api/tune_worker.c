// The tuner's worker: compiles, checks and times schedules of one graph, as it is told over a pair of
// pipes. All that can go wrong with a candidate goes wrong here, in a process of its own.
//
// Requests, one a line, and their answers (docs/tuning.md):
//   job KEY VALUE ...             what it is about, before all else; "text LENGTH" is followed by the
//                                 graph's text and ends the job          -> ready | error WHY
//   try NUMBER SCHEDULE           compile and check under that number    -> ok | refused WHY | wrong WHY
//                                                                           | memory WHY
//                                 offline: compile, and the model's word -> predicted SECONDS | refused WHY
//   check NUMBER SCHEDULE         offline: run on the emulator, and check -> as try, on a machine with it
//   time SECONDS NUMBER ...       in turns             -> for each: timed MEDIAN MINIMUM SPREAD RUNS
//   ceiling SECONDS NUMBER        beside the machine's copy ceiling      -> ceiling GB/S SHARE SECONDS
//   drop NUMBER                   forget it                              -> ok
// The end of the input ends the worker.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "api/session.h"
#include "api/tune_subject.h"

enum { CANDIDATES = 16, WHY_ROOM = 400 };

typedef struct candidate {
  bool used;
  fathom_executable *executable;
  tune_work work;
} candidate;

typedef struct job {
  char target[32], graph[128];
  int64_t rows, check_rows, threads, seed;
  bool offline; // for a GPU that is not here
  fathom_cache cache;
  char cache_directory[1024];
  uint32_t bind_count;
  struct {
    char axis[64];
    int64_t size;
  } binds[32];
} job;

typedef struct worker {
  FILE *in, *out;
  job job;
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  api_call *call; // of the session
  api_checker *checker;
  api_timer *timer;
  candidate candidates[CANDIDATES];
} worker;

// ---- answers ------------------------------------------------------------------------------------

static void answer(worker *w, const char *word, const char *text) {
  char line[WHY_ROOM];
  size_t length = 0;
  for (; *text && length + 1 < sizeof line; text++) // one line, whatever it was
    line[length++] = *text == '\n' || *text == '\r' ? ' ' : *text;
  line[length] = 0;
  fprintf(w->out, "%s%s%s\n", word, length ? " " : "", line);
  fflush(w->out);
}

static void answer_error(worker *w, const char *word) {
  const char *text = fathom_error_text();
  if (strncmp(text, "error: ", 7) == 0) text += 7;
  answer(w, word, text);
}

// What is known of a failure: of a device in the session's diag, whose reports of this request are taken
// back, of a run in the error text.
static void answer_failure(worker *w, const char *word, const base_diag *before,
                           fathom_status status) {
  base_diag *diag = &w->call->diag;
  const char *text = diag->reports.count > before->reports.count
                         ? diag->reports.data[before->reports.count].message.data
                         : fathom_error_text();
  answer(w, word, text[0] ? text : base_status_text((base_status)status));
  *diag = *before;
}

// ---- the job ------------------------------------------------------------------------------------

static bool read_job(worker *w, char **text, size_t *length) {
  char key[64], value[1200];
  while (fscanf(w->in, " %63s", key) == 1) {
    if (strcmp(key, "text") == 0) {
      if (fscanf(w->in, "%zu", length) != 1 || *length > (size_t)1 << 30 || fgetc(w->in) != '\n')
        return false;
      *text = malloc(*length + 1);
      return *text != NULL && fread(*text, 1, *length, w->in) == *length;
    }
    if (fscanf(w->in, " %1199[^\n]", value) != 1) return false;
    job *j = &w->job;
    long long number = atoll(value);
    if (strcmp(key, "target") == 0)
      snprintf(j->target, sizeof j->target, "%.31s", value);
    else if (strcmp(key, "graph") == 0)
      snprintf(j->graph, sizeof j->graph, "%.127s", value);
    else if (strcmp(key, "cache-directory") == 0)
      snprintf(j->cache_directory, sizeof j->cache_directory, "%.1023s", value);
    else if (strcmp(key, "rows") == 0)
      j->rows = number;
    else if (strcmp(key, "check-rows") == 0)
      j->check_rows = number;
    else if (strcmp(key, "threads") == 0)
      j->threads = number;
    else if (strcmp(key, "seed") == 0)
      j->seed = number;
    else if (strcmp(key, "offline") == 0)
      j->offline = number != 0;
    else if (strcmp(key, "cold") == 0)
      j->cache = number ? FATHOM_CACHE_COLD : FATHOM_CACHE_WARM;
    else if (strcmp(key, "bind") == 0 && j->bind_count < 32 &&
             sscanf(value, "%63s %" SCNd64, j->binds[j->bind_count].axis,
                    &j->binds[j->bind_count].size) == 2)
      j->bind_count++;
    else
      return false;
  }
  return false;
}

// A candidate that crashes is nothing special: no core file of each.
static void leave_no_core(void) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

static fathom_status open_graph(worker *w, const char *text, size_t length) {
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = w->job.cache_directory;
  options.threads = (uint32_t)w->job.threads;
  fathom_status status = fathom_context_create(&options, &w->context);
  if (status == FATHOM_OK) status = fathom_parse(w->context, text, length, "job", &w->module);
  if (status == FATHOM_OK)
    status = fathom_module_graph(w->module, w->job.graph[0] ? w->job.graph : NULL, &w->graph);
  for (uint32_t i = 0; i < w->job.bind_count && status == FATHOM_OK; i++)
    status = fathom_graph_bind(w->graph, w->job.binds[i].axis, w->job.binds[i].size);
  return status;
}

// ---- candidates ---------------------------------------------------------------------------------

static void drop(worker *w, uint32_t number) {
  fathom_executable_destroy(w->candidates[number].executable);
  w->candidates[number] = (candidate){.used = false};
}

// `timed`: tensors of full size too.
static fathom_status open_session(worker *w, const fathom_executable *executable, bool timed) {
  ir_graph *graph = api_graph_open(w->call, w->graph);
  if (!ir_verify(graph, IR_STAGE_BOUND, &w->call->diag)) return FATHOM_INVALID;
  fathom_status status = api_checker_open(w->call, graph, executable, w->job.check_rows,
                                          (uint32_t)w->job.seed, &w->checker);
  return status != FATHOM_OK || !timed ? status
                                       : api_timer_open(w->call, w->context, graph, executable,
                                                        w->job.rows, w->job.cache, &w->timer);
}

static const char *failure_word(fathom_status status) {
  return status == FATHOM_MEMORY ? "memory" : status == FATHOM_INTERNAL ? "wrong" : "refused";
}

// Compiles under that number, checks, and makes ready to be timed where that is wanted.
static void try_candidate(worker *w, uint32_t number, const char *target, const char *schedule,
                          bool timed) {
  candidate *c = &w->candidates[number];
  if (c->used) drop(w, number);
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = target;
  options.schedule = schedule;
  fathom_status status = fathom_compile(w->context, w->graph, &options, &c->executable);
  c->used = true;
  const char *wrong = NULL;
  if (status == FATHOM_OK && w->checker == NULL) status = open_session(w, c->executable, timed);
  if (status == FATHOM_OK) status = api_checker_run(w->checker, c->executable, &wrong);
  if (status == FATHOM_OK && !wrong && timed)
    status = api_timer_work(w->timer, c->executable, &c->work);
  if (status == FATHOM_OK && !wrong) {
    answer(w, "ok", "");
    return;
  }
  if (wrong)
    answer(w, "wrong", wrong);
  else
    answer_error(w, failure_word(status));
  drop(w, number);
}

// ---- offline ------------------------------------------------------------------------------------

static void predict_candidate(worker *w, const char *text) {
  api_call *call = w->call;
  api_request request;
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = w->job.target;
  tune_subject subject;
  double seconds = -1;
  kir_schedule schedule = kir_schedule_default(KIR_CUDA);
  const base_diag before = call->diag;
  if (api_request_read(call, &options, &request) &&
      kir_schedule_parse(text, &schedule, &call->diag) &&
      api_tune_subject(call, w->graph, &request, w->job.rows, 0, &subject))
    seconds = tune_predict_compiled(&call->arena, &subject, &schedule, w->job.cache_directory,
                                    &call->diag);
  if (seconds > 0) {
    fprintf(w->out, "predicted %.9g\n", seconds);
    fflush(w->out);
    return;
  }
  answer_failure(w, "refused", &before, FATHOM_UNSUPPORTED);
}

static void check_candidate(worker *w, const char *schedule) {
  char target[64];
  const char *arch = strchr(w->job.target, ':');
  snprintf(target, sizeof target, "%s%s", api_targets[API_EMULATOR].name, arch ? arch : "");
  try_candidate(w, 0, target, schedule, false);
  if (w->candidates[0].used) drop(w, 0);
}

// ---- requests -----------------------------------------------------------------------------------

static bool number_of(worker *w, const char *text, uint32_t *number) {
  char *end;
  unsigned long value = strtoul(text, &end, 10);
  *number = (uint32_t)value;
  if (end != text && value < CANDIDATES) return true;
  answer(w, "error", "no such number");
  return false;
}

static void time_candidates(worker *w, char *arguments) {
  tune_work works[CANDIDATES];
  tune_timing timings[CANDIDATES];
  uint32_t count = 0, number;
  char *rest, *word = strtok_r(arguments, " ", &rest);
  double seconds = word ? strtod(word, NULL) : 0;
  while ((word = strtok_r(NULL, " ", &rest)) && count < CANDIDATES) {
    if (!number_of(w, word, &number)) return;
    if (!w->candidates[number].used) {
      answer(w, "error", "nothing under that number");
      return;
    }
    works[count++] = w->candidates[number].work;
  }
  const base_diag before = w->call->diag;
  fathom_status status = api_timer_compare(w->timer, works, count, seconds, timings);
  if (status != FATHOM_OK) {
    answer_failure(w, "error", &before, status);
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    fprintf(w->out, "timed %.9g %.9g %.6g %u\n", timings[i].median, timings[i].minimum,
            timings[i].spread, timings[i].runs);
  fflush(w->out);
}

static void measure_ceiling(worker *w, const char *arguments) {
  char *rest;
  double seconds = strtod(arguments, &rest);
  uint32_t number;
  if (!number_of(w, rest, &number)) return;
  tune_comparison measured;
  const base_diag before = w->call->diag;
  fathom_status status =
      api_timer_measure(w->timer, &w->candidates[number].work, seconds, &measured);
  if (status != FATHOM_OK) {
    answer_failure(w, "error", &before, status);
    return;
  }
  fprintf(w->out, "ceiling %.9g %.9g %.9g\n", measured.ceiling.gb_s,
          measured.gb_s / measured.ceiling.gb_s, measured.kernel.median);
  fflush(w->out);
}

static void obey(worker *w, char *line) {
  uint32_t number;
  char *space = strchr(line, ' '), *arguments = space ? space + 1 : line + strlen(line);
  if (space) *space = 0;
  char *schedule = strchr(arguments, ' ');
  schedule = schedule ? schedule + 1 : arguments + strlen(arguments);
  if (strcmp(line, "try") == 0) {
    if (!number_of(w, arguments, &number)) return;
    if (w->job.offline)
      predict_candidate(w, schedule);
    else
      try_candidate(w, number, w->job.target, schedule, true);
  } else if (strcmp(line, "check") == 0) {
    check_candidate(w, schedule);
  } else if (strcmp(line, "time") == 0) {
    time_candidates(w, arguments);
  } else if (strcmp(line, "ceiling") == 0) {
    measure_ceiling(w, arguments);
  } else if (strcmp(line, "drop") == 0) {
    if (!number_of(w, arguments, &number)) return;
    drop(w, number);
    answer(w, "ok", "");
  } else {
    answer(w, "error", "unknown request");
  }
}

// ---- the worker ---------------------------------------------------------------------------------

static fathom_status session_body(api_call *call, void *opaque) {
  worker *w = opaque;
  w->call = call;
  answer(w, "ready", "");
  char *line = NULL;
  size_t room = 0;
  ssize_t length;
  while ((length = getline(&line, &room, w->in)) >= 0) {
    while (length > 0 && line[length - 1] == '\n')
      line[--length] = 0;
    if (length > 0) obey(w, line);
  }
  free(line);
  for (uint32_t i = 0; i < CANDIDATES; i++)
    if (w->candidates[i].used) drop(w, i);
  return FATHOM_OK;
}

fathom_status fathom_tune_worker(int in, int out) {
  api_error_clear();
  // A tuner that is killed while this waits for a candidate would leave a busy process behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  worker w = {.in = fdopen(in, "r"), .out = fdopen(out, "w")};
  if (w.in == NULL || w.out == NULL) return api_fail(FATHOM_IO, "the worker has no pipes");
  char *text = NULL;
  size_t length = 0;
  fathom_status status = FATHOM_INVALID;
  if (read_job(&w, &text, &length)) {
    leave_no_core();
    status = open_graph(&w, text, length);
    if (status == FATHOM_OK) status = api_call_run(w.context, session_body, &w);
    if (status != FATHOM_OK) answer_error(&w, status == FATHOM_MEMORY ? "memory" : "error");
  } else {
    status = api_fail(FATHOM_INVALID, "the job cannot be read");
    answer_error(&w, "error");
  }
  free(text);
  fathom_module_destroy(w.module);
  fathom_context_destroy(w.context);
  fclose(w.in);
  fclose(w.out);
  return status;
}
