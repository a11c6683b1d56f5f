// What a history says: its candidates, how they ended, how fast they were.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/report_parts.h"

// ---- outcomes -----------------------------------------------------------------------------------

const char *report_outcome(uint32_t outcome) {
  static const char *const names[] = {
      [TUNE_TIMED] = "timed",
      [TUNE_REFUSED] = "refused",
      [TUNE_WRONG] = "wrong",
      [TUNE_CRASHED] = "crashed",
      [TUNE_TIMEOUT] = "timed out",
      [TUNE_MEMORY] = "out of memory",
      [TUNE_PREDICTED] = "only predicted",
      [REPORT_NO_TIME] = "without a usable time",
  };
  static_assert(sizeof names / sizeof *names == REPORT_OUTCOMES, "a name for each outcome");
  return names[outcome];
}

uint32_t report_outcome_of(const tune_trial *trial) {
  const uint32_t outcome = trial->outcome;
  if (outcome > TUNE_PREDICTED) return REPORT_NO_TIME;
  return outcome == TUNE_TIMED && report_us_of(trial) == 0 ? REPORT_NO_TIME : outcome;
}

// ---- performance --------------------------------------------------------------------------------

double report_gb_s(const tune_history *history, double us) {
  return us > 0 ? report_known((double)history->bytes / us / 1e3) : 0;
}

double report_gflop_s(const tune_history *history, double us) {
  return us > 0 ? report_known(report_known(history->flops) / us / 1e3) : 0;
}

double report_of_ceiling(const tune_history *history, double us) {
  const double ceiling = report_known(history->ceiling_gb_s);
  return ceiling > 0 ? report_known(report_gb_s(history, us) / ceiling) : 0;
}

// ---- candidates ---------------------------------------------------------------------------------

static int compare_numbers(double a, double b) {
  return (a > b) - (a < b);
}

// By schedule; of one schedule the trial that counts comes last.
static int by_schedule(const void *left, const void *right) {
  const report_candidate *a = left, *b = right;
  const tune_trial *x = &a->entry->trial, *y = &b->entry->trial;
  const base_str p = report_str(x->schedule), q = report_str(y->schedule);
  const int order = strcmp(p.data, q.data);
  if (order) return order;
  const bool x_ran = x->outcome != TUNE_PREDICTED, y_ran = y->outcome != TUNE_PREDICTED;
  if (x_ran != y_ran) return x_ran - y_ran;
  if (x->level != y->level) return x->level < y->level ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

static int by_time(const void *left, const void *right) {
  const report_candidate *a = left, *b = right;
  const bool a_timed = a->us > 0, b_timed = b->us > 0;
  if (a_timed != b_timed) return b_timed - a_timed;
  const int order = compare_numbers(a->us, b->us);
  return order ? order : a->order < b->order ? -1 : a->order > b->order;
}

static bool same_schedule(const report_candidate *a, const report_candidate *b) {
  return strcmp(report_str(a->entry->trial.schedule).data,
                report_str(b->entry->trial.schedule).data) == 0;
}

static void collect_candidates(base_arena *arena, report_digest *digest) {
  const tune_history *history = digest->history;
  report_candidate *all = base_new_array(arena, report_candidate, history->count);
  for (uint32_t i = 0; i < history->count; i++) {
    const tune_trial *trial = &history->entries[i].trial;
    const double us = trial->outcome == TUNE_TIMED ? report_us_of(trial) : 0;
    all[i] = (report_candidate){.entry = &history->entries[i], .order = i, .us = us};
    digest->trials += trial->outcome != TUNE_PREDICTED;
  }
  if (history->count > 1) qsort(all, history->count, sizeof *all, by_schedule);
  for (uint32_t i = 0; i < history->count; i++) {
    if (i + 1 < history->count && same_schedule(&all[i], &all[i + 1])) continue;
    digest->outcomes[report_outcome_of(&all[i].entry->trial)]++;
    digest->timed += all[i].us > 0;
    all[digest->count++] = all[i];
  }
  if (digest->count > 1) qsort(all, digest->count, sizeof *all, by_time);
  digest->candidates = all;
}

// A clock that says nonsense, or goes back, counts as one that stands still.
static void collect_seconds(base_arena *arena, report_digest *digest) {
  const tune_history *history = digest->history;
  double now = 0;
  digest->seconds = base_new_array(arena, double, history->count);
  for (uint32_t i = 0; i < history->count; i++) {
    const double seconds = history->entries[i].seconds;
    if (isfinite(seconds) && seconds > now && seconds < 1e9) now = seconds;
    digest->seconds[i] = now;
  }
}

report_digest report_digest_of(base_arena *arena, const tune_history *history) {
  report_digest digest = {.history = history};
  collect_candidates(arena, &digest);
  collect_seconds(arena, &digest);
  const bool found = report_str(history->best.schedule).length > 0;
  digest.predicted = found && history->best.outcome == TUNE_PREDICTED;
  digest.best_us = found ? report_us_of(&history->best) : 0;
  if (report_str(history->initial.schedule).length > 0)
    digest.initial_us = report_us_of(&history->initial);
  return digest;
}
