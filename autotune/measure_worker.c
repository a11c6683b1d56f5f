// Measuring candidates in a worker process.
//
// Each is timed in turns with the default schedule, and its time is told as if the default took what
// it took first: then candidates that were timed minutes apart, at other clocks and beside other
// neighbours, can be compared.
#include "autotune/measure_worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  INITIAL = 0,   // the number under which the worker keeps the default schedule
  CANDIDATE = 1, // and the one that is measured
};
static const double start_seconds = 30;     // for the worker to say that it is ready
static const double shortest_timing = 0.03; // at level 0
static const double calls_timed = 6;        // at level 0, of both together, at least
static const double quiet_spread = 0.25;    // of times that nothing disturbed

void tune_bench_open(tune_bench *bench, base_arena *arena, const tune_space *space,
                     const tune_bench_options *options) {
  *bench = (tune_bench){.arena = arena,
                        .space = space,
                        .options = *options,
                        .worker = {.most_bytes = options->most_bytes}};
}

void tune_bench_close(tune_bench *bench) {
  tune_worker_stop(&bench->worker);
}

// ---- talking ------------------------------------------------------------------------------------

// How an exchange went: `answer` is the line when it was answered, else the outcome says what became
// of the worker.
typedef struct exchange {
  bool answered;
  tune_outcome outcome;
  base_str text; // the answer, or why there is none
} exchange;

static exchange finish(tune_answer answer, base_str line, base_str why) {
  if (answer == TUNE_ANSWERED) return (exchange){.answered = true, .text = line};
  static const tune_outcome ends[] = {
      [TUNE_DIED] = TUNE_CRASHED, [TUNE_TOO_LATE] = TUNE_TIMEOUT, [TUNE_TOO_LARGE] = TUNE_MEMORY};
  return (exchange){.outcome = ends[answer], .text = why};
}

static exchange ask(tune_bench *bench, base_str request, double seconds) {
  base_str line = {0}, why = {0};
  return finish(tune_worker_ask(&bench->worker, request.data, request.length, seconds, bench->arena,
                                &line, &why),
                line, why);
}

static exchange next_line(tune_bench *bench, double seconds) {
  base_str line = {0}, why = {0};
  return finish(tune_worker_read(&bench->worker, seconds, bench->arena, &line, &why), line, why);
}

static const struct {
  const char *word;
  tune_outcome outcome;
} outcomes[] = {{"refused", TUNE_REFUSED}, {"wrong", TUNE_WRONG}, {"memory", TUNE_MEMORY}};

// A model's answer: "predicted SECONDS".
static bool read_predicted(const char *answer, tune_finding *finding) {
  if (sscanf(answer, "predicted %lf", &finding->seconds) != 1 || !(finding->seconds > 0))
    return false;
  finding->outcome = TUNE_PREDICTED;
  finding->why = NULL;
  return true;
}

// Has a schedule compiled and checked under a number: "try", or for a model's word "check". True: it
// can be timed, or the model told its time.
static bool ask_about(tune_bench *bench, const char *word, uint32_t number, uint32_t schedule,
                      tune_finding *finding) {
  const char *text = kir_schedule_text(bench->arena, &bench->space->schedules[schedule]);
  *finding = (tune_finding){.outcome = TUNE_CRASHED};
  base_str request = base_str_format(bench->arena, "%s %u %s\n", word, number, text);
  exchange answer = ask(bench, request, bench->options.trial_seconds);
  finding->outcome = answer.outcome;
  finding->why = answer.text.data;
  if (!answer.answered) return false;
  if (strcmp(answer.text.data, "ok") == 0) {
    finding->outcome = TUNE_TIMED;
    finding->why = NULL;
    return true;
  }
  if (read_predicted(answer.text.data, finding)) return true;
  finding->outcome = TUNE_REFUSED;
  for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
    size_t length = strlen(outcomes[i].word);
    if (strncmp(answer.text.data, outcomes[i].word, length) != 0) continue;
    finding->outcome = outcomes[i].outcome;
    finding->why = answer.text.data + length + (answer.text.data[length] == ' ');
  }
  return false;
}

static bool try_schedule(tune_bench *bench, uint32_t number, uint32_t schedule,
                         tune_finding *finding) {
  return ask_about(bench, "try", number, schedule, finding);
}

// Times what is under the numbers, in turns.
static bool time_numbers(tune_bench *bench, const uint32_t *numbers, uint32_t count, double seconds,
                         tune_finding *findings) {
  base_text request = {.arena = bench->arena};
  base_text_printf(&request, "time %.6f", seconds);
  for (uint32_t i = 0; i < count; i++)
    base_text_printf(&request, " %u", numbers[i]);
  base_text_printf(&request, "\n");
  double limit = bench->options.trial_seconds + 4 * seconds;
  for (uint32_t i = 0; i < count; i++) {
    exchange answer = i == 0 ? ask(bench, base_text_str(&request), limit) : next_line(bench, limit);
    double median = 0, minimum = 0, spread = 0;
    unsigned runs = 0;
    bool timed =
        answer.answered &&
        sscanf(answer.text.data, "timed %lf %lf %lf %u", &median, &minimum, &spread, &runs) == 4 &&
        median > 0;
    findings[i] = (tune_finding){.outcome = TUNE_TIMED,
                                 .seconds = median,
                                 .spread = spread,
                                 .runs = runs,
                                 .minimum = minimum};
    if (timed) continue;
    findings[count - 1] = (tune_finding){.outcome = answer.answered ? TUNE_CRASHED : answer.outcome,
                                         .why = answer.text.data};
    return false;
  }
  return true;
}

// ---- the worker ---------------------------------------------------------------------------------

// A worker that holds the default schedule. False: see diag; the tuner cannot go on without.
static bool have_worker(tune_bench *bench, base_diag *diag) {
  if (bench->worker.process > 0) return true;
  base_str why = {0};
  bench->restarts++;
  if (!tune_worker_start(&bench->worker, bench->options.arguments, bench->arena, &why)) {
    base_error_status(diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    base_hint(diag, "the tuner measures in another process, which runs the fathom program");
    return false;
  }
  exchange answer = ask(bench, bench->options.job, start_seconds);
  tune_finding finding = {.why = answer.text.data};
  if (answer.answered && strcmp(answer.text.data, "ready") == 0 &&
      try_schedule(bench, INITIAL, 0, &finding))
    return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "the default schedule cannot be measured: %s", finding.why ? finding.why : "");
  tune_worker_stop(&bench->worker);
  return false;
}

// ---- the measurer -------------------------------------------------------------------------------

static double seconds_at(const tune_bench *bench, uint32_t level) {
  double least = fmax(shortest_timing, calls_timed * bench->initial_seconds);
  return ldexp(least, (int)level);
}

static bool time_initial(tune_bench *bench, uint32_t level, tune_finding *finding) {
  uint32_t number = INITIAL;
  if (!time_numbers(bench, &number, 1, seconds_at(bench, level), finding)) return false;
  if (bench->initial_seconds == 0) bench->initial_seconds = finding->seconds;
  finding->seconds = bench->initial_seconds;
  return true;
}

// After a failure the default must run as before. Where it does not, the candidate has broken the worker,
// or a GPU is gone: another worker finds out which.
static void doubt_worker(tune_bench *bench) {
  tune_finding finding;
  uint32_t number = INITIAL;
  if (bench->worker.process > 0 && !time_numbers(bench, &number, 1, shortest_timing, &finding))
    tune_worker_stop(&bench->worker);
}

// Beside other programs that keep taking the processors away, medians say who was lucky. The fastest
// calls are those that nobody disturbed.
static bool is_disturbed(const tune_finding *findings, uint32_t count) {
  bool disturbed = false;
  for (uint32_t i = 0; i < count; i++)
    disturbed |= findings[i].spread > quiet_spread && findings[i].minimum > 0;
  return disturbed;
}

static double usual_seconds(const tune_finding *finding, bool disturbed) {
  return disturbed ? finding->minimum : finding->seconds;
}

static bool measure(void *user, const tune_request *request, tune_finding *finding,
                    base_diag *diag) {
  tune_bench *bench = user;
  const uint32_t pair[2] = {INITIAL, CANDIDATE};
  tune_finding both[2];
  if (!have_worker(bench, diag)) return false;
  if (bench->initial_seconds == 0 || request->schedule == 0) {
    bool timed = time_initial(bench, request->level, finding);
    if (request->schedule == 0) return true;
    if (!timed) {
      base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                        "the default schedule cannot be timed: %s", finding->why);
      return false;
    }
  }
  if (!try_schedule(bench, CANDIDATE, request->schedule, finding)) {
    // What the compiler refuses has run nothing.
    if (finding->outcome != TUNE_REFUSED || bench->options.on_device) doubt_worker(bench);
    return true;
  }
  bool timed = time_numbers(bench, pair, 2, seconds_at(bench, request->level), both);
  *finding = both[1];
  if (!timed) {
    doubt_worker(bench);
    return true;
  }
  bool disturbed = is_disturbed(both, 2);
  finding->seconds = bench->initial_seconds * usual_seconds(&both[1], disturbed) /
                     usual_seconds(&both[0], disturbed);
  return true;
}

enum { MOST_FINALISTS = 8, PROCESSES = 3 };

// Those that pass, in one worker: a candidate that ends it takes the others along, which are tried again in
// the next one.
static bool try_together(tune_bench *bench, const uint32_t *schedules, uint32_t count, bool *failed,
                         tune_finding *findings, uint32_t *numbers, uint32_t *good,
                         base_diag *diag) {
  for (bool whole = false; !whole;) {
    if (!have_worker(bench, diag)) return false;
    whole = true;
    *good = 0;
    for (uint32_t i = 0; i < count && whole; i++) {
      if (failed[i]) continue;
      failed[i] = !try_schedule(bench, i, schedules[i], &findings[i]);
      whole = bench->worker.process > 0;
      if (!failed[i]) numbers[(*good)++] = i;
    }
  }
  return true;
}

static int by_seconds(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Where a process's memory lies decides which of two schedules is faster by more than they differ: so the
// finalists meet in several processes, and what counts of each is its worst share of the first one's time,
// the default's.
static bool confirm(void *user, const uint32_t *schedules, uint32_t count, double seconds,
                    tune_finding *findings, base_diag *diag) {
  tune_bench *bench = user;
  uint32_t numbers[MOST_FINALISTS] = {0}, good = 0;
  tune_finding timed[MOST_FINALISTS] = {{.tried = false}};
  bool failed[MOST_FINALISTS] = {false};
  double worst[MOST_FINALISTS] = {0}, first[PROCESSES];
  if (count > MOST_FINALISTS) count = MOST_FINALISTS;
  for (uint32_t process = 0; process < PROCESSES; process++) {
    tune_worker_stop(&bench->worker);
    if (!try_together(bench, schedules, count, failed, findings, numbers, &good, diag))
      return false;
    if (good == 0 || !time_numbers(bench, numbers, good, seconds / PROCESSES, timed)) {
      base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                        "the finalists cannot be timed together: %s",
                        good && timed[good - 1].why ? timed[good - 1].why : "the worker died");
      return false;
    }
    bool disturbed = is_disturbed(timed, good);
    first[process] = usual_seconds(&timed[0], disturbed);
    for (uint32_t i = 0; i < good; i++) {
      uint32_t number = numbers[i];
      worst[number] = fmax(worst[number], usual_seconds(&timed[i], disturbed) / first[process]);
      findings[number] = timed[i];
    }
  }
  qsort(first, PROCESSES, sizeof *first, by_seconds);
  for (uint32_t i = 0; i < good; i++)
    findings[numbers[i]].seconds = first[PROCESSES / 2] * worst[numbers[i]];
  return true;
}

// ---- a model's word ----------------------------------------------------------------------------

static bool predict(void *user, const tune_request *request, tune_finding *finding,
                    base_diag *diag) {
  tune_bench *bench = user;
  if (!have_worker(bench, diag)) return false;
  try_schedule(bench, CANDIDATE, request->schedule, finding);
  return true;
}

// Nothing is timed: the finalists run on the emulator, and those that fail there are out.
static bool check_all(void *user, const uint32_t *schedules, uint32_t count, double seconds,
                      tune_finding *findings, base_diag *diag) {
  (void)seconds;
  tune_bench *bench = user;
  for (uint32_t i = 0; i < count; i++) {
    tune_finding checked;
    if (!have_worker(bench, diag)) return false;
    if (!try_schedule(bench, CANDIDATE, schedules[i], &findings[i])) continue;
    if (!have_worker(bench, diag)) return false;
    if (!ask_about(bench, "check", CANDIDATE, schedules[i], &checked)) findings[i] = checked;
  }
  return true;
}

tune_measurer tune_bench_measurer(tune_bench *bench) {
  if (bench->options.predicts) return (tune_measurer){bench, predict, check_all};
  return (tune_measurer){bench, measure, confirm};
}

bool tune_bench_ceiling(tune_bench *bench, uint32_t schedule, double seconds, double *share,
                        double *gb_s, base_diag *diag) {
  tune_finding finding;
  *share = *gb_s = 0;
  if (!have_worker(bench, diag)) return false;
  if (!try_schedule(bench, CANDIDATE, schedule, &finding)) return true;
  exchange answer =
      ask(bench, base_str_format(bench->arena, "ceiling %.6f %d\n", seconds, CANDIDATE),
          bench->options.trial_seconds + 4 * seconds);
  if (answer.answered) sscanf(answer.text.data, "ceiling %lf %lf", gb_s, share);
  return true;
}
