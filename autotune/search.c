// The search: asks the strategy, has its requests measured, and lets the finalists run side by side.
#include "autotune/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/contest.h"

enum { FINALISTS = 4 };
static const double smallest_tie = 0.02; // share within which two times count as equal
static const double largest_tie = 0.1;   // however noisy they are
static const double confirm_share = 0.1; // of the budget of seconds, for the finalists
static const double confirm_most = 5.0, confirm_least = 0.2; // seconds

// ---- help for strategies ------------------------------------------------------------------------

uint32_t tune_search_random(tune_search *search, uint32_t below) {
  return (uint32_t)((base_random(&search->random) >> 32) * below >> 32);
}

// 0: not timed at that level, or failed since.
static double time_at(const tune_search *search, uint32_t schedule, uint32_t level) {
  const tune_finding *finding = &search->findings[schedule];
  if (!finding->tried || !tune_outcome_has_time(finding->outcome)) return 0;
  return level == TUNE_HIGHEST ? finding->seconds : search->times[schedule][level];
}

uint32_t tune_search_fastest(const tune_search *search, uint32_t level, uint32_t count,
                             uint32_t *out) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < search->space->count; i++) {
    double time = time_at(search, i, level);
    if (time <= 0) continue;
    uint32_t at = found < count ? found++ : count;
    while (at > 0 && time_at(search, out[at - 1], level) > time) {
      if (at < count) out[at] = out[at - 1];
      at--;
    }
    if (at < count) out[at] = i;
  }
  return found;
}

bool tune_search_knows(const tune_search *search, uint32_t schedule, uint32_t level) {
  const tune_finding *finding = &search->findings[schedule];
  return finding->tried &&
         (!tune_outcome_has_time(finding->outcome) || search->times[schedule][level] > 0);
}

// ---- one measurement ----------------------------------------------------------------------------

typedef struct run {
  tune_search search;
  const tune_measurer *measurer;
  tune_search_result *result;
  double start;
  uint32_t tried, failed, planned;
  tune_finding (*earlier)[TUNE_LEVELS]; // of each schedule; NULL: nothing
  base_diag *diag;
} run;

static double now(const run *r) {
  const tune_search_options *options = r->search.options;
  return options->now ? options->now(options->user) : base_seconds();
}

static void tell(run *r, const tune_request *last, bool confirming) {
  const tune_search_options *options = r->search.options;
  if (!options->progress) return;
  tune_progress progress = {
      .tried = r->tried,
      .failed = r->failed,
      .planned = r->planned,
      .elapsed = now(r) - r->start,
      .budget_seconds = options->seconds,
      .initial_seconds = r->search.findings[0].seconds,
      .confirming = confirming,
  };
  uint32_t best;
  if (tune_search_fastest(&r->search, TUNE_HIGHEST, 1, &best)) {
    progress.best = &r->search.space->schedules[best];
    progress.best_seconds = r->search.findings[best].seconds;
  }
  if (last) {
    progress.last = &r->search.space->schedules[last->schedule];
    progress.last_finding = &r->search.findings[last->schedule];
  }
  options->progress(options->user, &progress);
}

static void keep(run *r, const tune_request *request, tune_finding finding) {
  tune_finding *known = &r->search.findings[request->schedule];
  r->tried += !known->tried;
  bool good = tune_outcome_has_time(finding.outcome);
  r->failed += !good && !(known->tried && !tune_outcome_has_time(known->outcome));
  finding.tried = true;
  finding.level = request->level;
  if (good) r->search.times[request->schedule][request->level] = finding.seconds;
  bool higher = !known->tried || !good || finding.level >= known->level;
  if (higher) *known = finding;
}

static bool journal(run *r, const tune_request *request) {
  const tune_search_options *options = r->search.options;
  const tune_finding *finding = &r->search.findings[request->schedule];
  if (!options->record) return true;
  tune_trial trial = {.schedule = kir_schedule_text(r->search.arena,
                                                    &r->search.space->schedules[request->schedule]),
                      .outcome = finding->outcome,
                      .level = finding->level,
                      .median_us = finding->seconds * 1e6,
                      .spread = finding->spread,
                      .why = finding->why ? finding->why : ""};
  return options->record(options->user, &trial);
}

static bool measure(run *r, const tune_request *request) {
  tune_finding finding = {0};
  // An interrupted search that goes on asks again for what it asked, and decides as it did.
  if (r->earlier && r->earlier[request->schedule][request->level].tried) {
    keep(r, request, r->earlier[request->schedule][request->level]);
    return true;
  }
  if (!r->measurer->measure(r->measurer->user, request, &finding, r->diag)) return false;
  r->result->measurements++;
  keep(r, request, finding);
  tell(r, request, false);
  return journal(r, request);
}

// ---- before and after ---------------------------------------------------------------------------

// What an interrupted search found, by schedule and level; schedules of another space are left out.
static void take_earlier(run *r) {
  const tune_search_options *options = r->search.options;
  if (options->earlier_count == 0) return;
  r->earlier = base_alloc_array(r->search.arena, r->search.space->count, sizeof *r->earlier);
  for (uint32_t i = 0; i < options->earlier_count; i++) {
    const tune_trial *trial = &options->earlier[i];
    base_diag unused;
    base_diag_init(&unused, r->search.arena, BASE_STR(""), BASE_STR(""));
    kir_schedule schedule = kir_schedule_default(r->search.space->initial.machine);
    if (!kir_schedule_parse(trial->schedule, &schedule, &unused)) continue;
    int64_t number = tune_space_find(r->search.space, &schedule);
    if (number < 0 || trial->level >= TUNE_LEVELS) continue;
    r->earlier[number][trial->level] = (tune_finding){.tried = true,
                                                      .outcome = trial->outcome,
                                                      .seconds = trial->median_us * 1e-6,
                                                      .spread = trial->spread,
                                                      .why = trial->why};
  }
}

static bool is_over(run *r, tune_end *end) {
  const tune_search_options *options = r->search.options;
  if (options->stop && options->stop(options->user)) {
    *end = TUNE_END_STOPPED;
    return true;
  }
  double share = options->seconds * confirm_share;
  double left = options->seconds - (share < confirm_most ? share : confirm_most);
  if (options->seconds > 0 && now(r) - r->start >= left) {
    *end = TUNE_END_SECONDS;
    return true;
  }
  if (options->trials && r->result->measurements >= options->trials) {
    *end = TUNE_END_TRIALS;
    return true;
  }
  return false;
}

static bool search_all(run *r, void *state) {
  enum { ROOM = 64 };
  const tune_strategy *strategy = r->search.options->strategy;
  tune_request requests[ROOM];
  r->result->end = TUNE_END_DONE;
  while (!is_over(r, &r->result->end)) {
    uint32_t count = strategy->ask(state, &r->search, requests, ROOM);
    if (count == 0) break;
    r->planned = r->tried;
    for (uint32_t i = 0; i < count; i++)
      r->planned += !r->search.findings[requests[i].schedule].tried;
    if (strategy->tries_all) r->planned = r->search.space->count;
    for (uint32_t i = 0; i < count && !is_over(r, &r->result->end); i++)
      if (!measure(r, &requests[i])) return false;
  }
  return true;
}

// ---- the winner ---------------------------------------------------------------------------------

// Of schedules that are equally fast, the one with less unrolled code and smaller tiles.
static double size_of(const tune_space *space, uint32_t schedule) {
  kir_schedule copy = space->schedules[schedule];
  double size = 1;
  for (uint32_t i = 0; i < space->dimension_count; i++) {
    const kir_knob *knob = space->dimensions[i].knob;
    bool tile = knob->matters == KIR_SOURCES || knob->matters == KIR_QUERIES;
    if (tile || strcmp(knob->name, "unroll") == 0) size *= (double)*kir_knob_of(&copy, knob);
  }
  return size;
}

static bool is_simpler(const tune_space *space, uint32_t a, uint32_t b) {
  double x = size_of(space, a), y = size_of(space, b);
  return x != y ? x < y : a < b;
}

// By how much medians of so many samples differ by chance: the quartiles' distance of a sample over the
// root of their number is about the median's own deviation.
static double median_noise(const tune_finding *finding) {
  return 2 * finding->spread / sqrt(finding->runs > 1 ? finding->runs : 1);
}

// The default schedule and the fastest ones, side by side.
static bool confirm(run *r) {
  uint32_t finalists[FINALISTS + 1] = {0};
  uint32_t found = tune_search_fastest(&r->search, TUNE_HIGHEST, FINALISTS, finalists + 1),
           count = 1;
  for (uint32_t i = 1; i <= found; i++)
    if (finalists[i] != 0) finalists[count++] = finalists[i];
  double seconds = r->search.options->seconds * confirm_share;
  if (seconds > confirm_most || r->search.options->seconds == 0) seconds = confirm_most;
  if (seconds < confirm_least || r->result->end == TUNE_END_STOPPED) seconds = confirm_least;
  tune_finding findings[FINALISTS + 1] = {{.tried = false}};
  tell(r, NULL, true);
  if (!r->measurer->confirm(r->measurer->user, finalists, count, seconds, findings, r->diag))
    return false;
  uint32_t best = 0;
  double band = smallest_tie;
  for (uint32_t i = 0; i < count; i++) {
    if (!tune_outcome_has_time(findings[i].outcome)) continue;
    if (!tune_outcome_has_time(findings[best].outcome) ||
        findings[i].seconds < findings[best].seconds)
      best = i;
  }
  if (!tune_outcome_has_time(findings[best].outcome)) {
    base_error_status(r->diag, BASE_UNSUPPORTED, (base_loc){0},
                      "none of the finalists is of use: %s",
                      findings[best].why ? findings[best].why : "");
    return false;
  }
  band = fmax(band, fmin(median_noise(&findings[best]), largest_tie));
  double most = findings[best].seconds * (1 + band);
  // The default stays where nothing is faster beyond doubt.
  bool keeps = tune_outcome_has_time(findings[0].outcome) && findings[0].seconds <= most;
  uint32_t winner = keeps ? 0 : best;
  for (uint32_t i = 0; i < count && !keeps; i++)
    if (tune_outcome_has_time(findings[i].outcome) && findings[i].seconds <= most &&
        is_simpler(r->search.space, finalists[i], finalists[winner]))
      winner = i;
  r->result->best = finalists[winner];
  r->result->best_finding = findings[winner];
  r->result->initial_finding = findings[0];
  r->result->tie_band = band;
  return true;
}

bool tune_search_run(base_arena *arena, const tune_space *space, const tune_measurer *measurer,
                     const tune_search_options *options, tune_search_result *result,
                     const tune_finding **findings, base_diag *diag) {
  run r = {.search = {.arena = arena, .space = space, .options = options, .random = options->seed},
           .measurer = measurer,
           .result = result,
           .diag = diag};
  *result = (tune_search_result){0};
  r.search.findings = base_new_array(arena, tune_finding, space->count);
  r.search.times = base_alloc_array(arena, space->count, sizeof *r.search.times);
  *findings = r.search.findings;
  r.start = now(&r);
  take_earlier(&r);
  tune_request initial = {0, 0};
  if (!measure(&r, &initial)) return false;
  if (!tune_outcome_has_time(r.search.findings[0].outcome)) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "the default schedule is of no use: %s: %s",
                      tune_outcome_name(r.search.findings[0].outcome),
                      r.search.findings[0].why ? r.search.findings[0].why : "");
    return false;
  }
  void *state = base_alloc(arena, options->strategy->state_bytes);
  memset(state, 0, options->strategy->state_bytes);
  bool good = search_all(&r, state) && confirm(&r);
  result->failures = r.failed;
  result->elapsed = now(&r) - r.start;
  return good;
}
