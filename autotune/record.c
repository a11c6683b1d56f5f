// Keys by their table, and what makes a record one that can be used.
#include "autotune/record.h"
#include "base/yaml.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/kernel.h"

// ---- keys ---------------------------------------------------------------------------------------

#define EXACT TUNE_EXACT
#define NEAREST TUNE_NEAREST
#define EITHER TUNE_EITHER
#define SEED TUNE_SEED
const tune_key_part tune_key_parts[TUNE_KEY_PARTS] = {
#define KEY_TEXT(name, rule, summary) {#name, summary, rule, true, offsetof(tune_key, name)},
#define KEY_NUMBER(name, rule, summary) {#name, summary, rule, false, offsetof(tune_key, name)},
#include "autotune/key.def"
#undef KEY_TEXT
#undef KEY_NUMBER
};
#undef EXACT
#undef NEAREST
#undef EITHER
#undef SEED

const char **tune_key_text(tune_key *key, const tune_key_part *part) {
  return (const char **)((char *)key + part->offset);
}

int64_t *tune_key_number(tune_key *key, const tune_key_part *part) {
  return (int64_t *)((char *)key + part->offset);
}

const char *tune_key_text_of(const tune_key *key, const tune_key_part *part) {
  return *tune_key_text((tune_key *)key, part);
}

int64_t tune_key_number_of(const tune_key *key, const tune_key_part *part) {
  return *tune_key_number((tune_key *)key, part);
}

static int compare_part(const tune_key *a, const tune_key *b, const tune_key_part *part) {
  if (part->is_text) return strcmp(tune_key_text_of(a, part), tune_key_text_of(b, part));
  const int64_t left = tune_key_number_of(a, part), right = tune_key_number_of(b, part);
  return left < right ? -1 : left > right;
}

int tune_key_compare(const tune_key *a, const tune_key *b) {
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const int order = compare_part(a, b, &tune_key_parts[i]);
    if (order) return order;
  }
  return 0;
}

base_hash tune_key_hash(const tune_key *key) {
  base_hash hash = {0};
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    const int64_t number = part->is_text ? 0 : tune_key_number_of(key, part);
    const char *text = part->is_text ? tune_key_text_of(key, part) : "";
    const base_hash own = part->is_text ? base_hash_bytes(text, strlen(text))
                                        : base_hash_bytes(&number, sizeof number);
    hash = base_hash_combine(hash, own);
  }
  return hash;
}

void tune_key_print(const tune_key *key, base_text *out) {
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    base_text_printf(out, "%s%s=", i ? " " : "", part->name);
    if (part->is_text)
      base_text_printf(out, "%s", tune_key_text_of(key, part));
    else
      base_text_printf(out, "%" PRId64, tune_key_number_of(key, part));
  }
}

// A part of 0 counts as 1: it is near to 1.
static double ratio_of(const tune_key *a, const tune_key *b, const tune_key_part *part) {
  if (part->is_text) return compare_part(a, b, part) ? INFINITY : 1;
  double left = (double)tune_key_number_of(a, part), right = (double)tune_key_number_of(b, part);
  left = left < 1 ? 1 : left;
  right = right < 1 ? 1 : right;
  return left > right ? left / right : right / left;
}

tune_key_distance tune_key_compared(const tune_key *key, const tune_key *asked) {
  tune_key_distance distance = {.ratio = 1};
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (compare_part(key, asked, part) == 0) continue;
    switch (part->rule) {
    case TUNE_EXACT:
      distance.useless = true;
      return distance;
    case TUNE_NEAREST:
      distance.ratio *= ratio_of(key, asked, part);
      distance.near++;
      break;
    case TUNE_EITHER:
      distance.either++;
      break;
    case TUNE_SEED:
      distance.seed++;
      break;
    }
  }
  return distance;
}

// ---- trials -------------------------------------------------------------------------------------

static const char *const outcome_names[] = {
    [TUNE_TIMED] = "timed",        [TUNE_REFUSED] = "refused", [TUNE_WRONG] = "wrong",
    [TUNE_CRASHED] = "crashed",    [TUNE_TIMEOUT] = "timeout", [TUNE_MEMORY] = "memory",
    [TUNE_PREDICTED] = "predicted"};
enum { OUTCOMES = sizeof outcome_names / sizeof *outcome_names };

const char *tune_outcome_name(tune_outcome outcome) {
  return (uint32_t)outcome < OUTCOMES ? outcome_names[outcome] : "unknown";
}

bool tune_outcome_parse(base_str name, tune_outcome *outcome) {
  for (uint32_t i = 0; i < OUTCOMES; i++) {
    if (!base_str_equal(name, base_str_from(outcome_names[i]))) continue;
    *outcome = (tune_outcome)i;
    return true;
  }
  return false;
}

void tune_outcome_list(base_text *out) {
  for (uint32_t i = 0; i < OUTCOMES; i++)
    base_text_printf(out, "%s%s", i ? ", " : "", outcome_names[i]);
}

static bool machine_of(const char *target, kir_machine *machine) {
  *machine = strncmp(target, "cuda", 4) == 0 ? KIR_CUDA : KIR_CPU;
  return *machine == KIR_CUDA || strcmp(target, "cpu") == 0;
}

// The schedule with all its knobs; NULL with *why when there is none such.
static const char *complete_schedule(base_arena *arena, const char *text, const char *target,
                                     const char **why) {
  base_diag diag;
  base_diag_init(&diag, arena, BASE_STR(""), BASE_STR(""));
  kir_machine machine;
  if (!machine_of(target, &machine)) {
    *why = base_str_format(arena, "'%s' is no target that schedules are for", target).data;
    return NULL;
  }
  kir_schedule schedule = kir_schedule_default(machine);
  if (!kir_schedule_parse(text, &schedule, &diag)) {
    *why = diag.reports.data[0].message.data;
    return NULL;
  }
  base_text complete = {.arena = arena};
  kir_schedule_print(&schedule, &complete);
  return base_text_str(&complete).data;
}

static bool is_amount(double value) {
  return isfinite(value) && value >= 0;
}

const char *tune_trial_problem(base_arena *arena, const tune_trial *trial, const char *target) {
  const char *why = NULL;
  if (!trial->schedule || !trial->why) return "a part is missing";
  if ((uint32_t)trial->outcome >= OUTCOMES) return "its outcome is none";
  const bool has_time = tune_outcome_has_time(trial->outcome);
  if (!is_amount(trial->median_us) || !is_amount(trial->spread) ||
      (has_time && trial->median_us == 0))
    return "its time is none";
  if (!complete_schedule(arena, trial->schedule, target, &why)) return why;
  return NULL;
}

// As a file can hold it: readers then find what was stored.
static const char *copy_text(base_arena *arena, const char *text) {
  return base_str_copy(arena, base_yaml_mend(arena, base_str_from(text))).data;
}

tune_trial tune_trial_copy(base_arena *arena, const tune_trial *trial, const char *target) {
  tune_trial copy = *trial;
  const char *why;
  copy.schedule = complete_schedule(arena, trial->schedule, target, &why);
  if (!copy.schedule) copy.schedule = base_str_copy(arena, base_str_from(trial->schedule)).data;
  copy.why = copy_text(arena, trial->why);
  return copy;
}

static int compare_trials(const void *left, const void *right) {
  const tune_trial *const *a = left, *const *b = right;
  const int order = strcmp((*a)->schedule, (*b)->schedule);
  return order ? order : *a < *b ? -1 : *a > *b;
}

// Sorts by schedule and drops all but the first trial of each.
static void sort_trials(base_arena *arena, tune_record *record, const tune_trial *trials,
                        uint32_t count) {
  const tune_trial **order = base_new_array(arena, const tune_trial *, count);
  tune_trial *sorted = base_new_array(arena, tune_trial, count);
  for (uint32_t i = 0; i < count; i++)
    order[i] = &trials[i];
  if (count) qsort(order, count, sizeof *order, compare_trials);
  record->trial_count = 0;
  for (uint32_t i = 0; i < count; i++)
    if (i == 0 || strcmp(order[i - 1]->schedule, order[i]->schedule) != 0)
      sorted[record->trial_count++] = *order[i];
  record->trials = sorted;
}

// ---- records ------------------------------------------------------------------------------------

// "2026-11-30T20:00:00Z": compared as text, so nothing else will do.
static bool is_date(const char *text) {
  static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
  if (strlen(text) != sizeof form - 1) return false;
  for (size_t i = 0; form[i]; i++)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return false;
  return true;
}

static bool is_one_of(const char *text, const char *a, const char *b) {
  return strcmp(text, a) == 0 || strcmp(text, b) == 0;
}

static bool is_utf8(base_arena *arena, const char *text) {
  return base_yaml_mend(arena, base_str_from(text)).data == text;
}

static const char *key_problem(base_arena *arena, const tune_key *key) {
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (part->is_text && !tune_key_text_of(key, part))
      return base_str_format(arena, "its key has no %s", part->name).data;
    if (part->is_text && !is_utf8(arena, tune_key_text_of(key, part)))
      return base_str_format(arena, "%s of its key is not UTF-8", part->name).data;
    if (!part->is_text && tune_key_number_of(key, part) < 0)
      return base_str_format(arena, "%s of its key is negative", part->name).data;
  }
  return NULL;
}

static const char *trials_problem(base_arena *arena, const tune_record *record) {
  const char *target = record->key.target;
  const struct {
    const char *name;
    const tune_trial *trial;
  } both[] = {{"best", &record->best}, {"initial", &record->initial}};
  for (uint32_t i = 0; i < 2; i++) {
    const char *problem = tune_trial_problem(arena, both[i].trial, target);
    if (problem) return base_str_format(arena, "%s: %s", both[i].name, problem).data;
  }
  for (uint32_t i = 0; i < record->trial_count; i++) {
    const char *problem = tune_trial_problem(arena, &record->trials[i], target);
    if (problem) return base_str_format(arena, "timing %u: %s", i + 1, problem).data;
  }
  return NULL;
}

static const char *best_problem(const tune_record *record) {
  if (record->best.outcome == TUNE_TIMED) return NULL;
  if (strcmp(record->source, "measured") == 0) return "best was not timed";
  return record->best.outcome == TUNE_PREDICTED ? NULL : "best was neither timed nor predicted";
}

const char *tune_record_facts_problem(base_arena *arena, const tune_record *record) {
  const char *problem = key_problem(arena, &record->key);
  if (problem) return problem;
  if (!record->graph_name || !record->axes || !record->source || !record->date)
    return "a part is missing";
  if (!is_one_of(record->source, "measured", "model")) return "source is 'measured' or 'model'";
  if (!is_one_of(record->key.cache, "warm", "cold")) return "cache is 'warm' or 'cold'";
  if (!is_date(record->date)) return "its date is not of the form 2026-11-30T20:00:00Z";
  if (!is_amount(record->of_ceiling)) return "of_ceiling is no share";
  return best_problem(record);
}

const char *tune_record_problem(base_arena *arena, const tune_record *record) {
  const char *problem = tune_record_facts_problem(arena, record);
  return problem ? problem : trials_problem(arena, record);
}

tune_record tune_record_with_trials(base_arena *arena, const tune_record *record,
                                    const tune_trial *trials, uint32_t count) {
  tune_record with = *record;
  tune_trial *copies = base_new_array(arena, tune_trial, count);
  for (uint32_t i = 0; i < count; i++)
    copies[i] = tune_trial_copy(arena, &trials[i], record->key.target);
  sort_trials(arena, &with, copies, count);
  return with;
}

tune_record tune_record_copy(base_arena *arena, const tune_record *record) {
  tune_record copy = *record;
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (part->is_text)
      *tune_key_text(&copy.key, part) = copy_text(arena, tune_key_text_of(&record->key, part));
  }
  copy.graph_name = copy_text(arena, record->graph_name);
  copy.axes = copy_text(arena, record->axes);
  copy.source = copy_text(arena, record->source);
  copy.date = copy_text(arena, record->date);
  copy.best = tune_trial_copy(arena, &record->best, copy.key.target);
  copy.initial = tune_trial_copy(arena, &record->initial, copy.key.target);
  return tune_record_with_trials(arena, &copy, record->trials, record->trial_count);
}

tune_record tune_record_unite(base_arena *arena, const tune_record *newer,
                              const tune_record *older) {
  tune_record united = *newer;
  const uint32_t count = newer->trial_count + older->trial_count;
  if (count < newer->trial_count) base_alloc_array(arena, SIZE_MAX, 2); // escapes
  tune_trial *trials = base_new_array(arena, tune_trial, count);
  for (uint32_t i = 0; i < newer->trial_count; i++)
    trials[i] = newer->trials[i];
  for (uint32_t i = 0; i < older->trial_count; i++)
    trials[newer->trial_count + i] = older->trials[i];
  sort_trials(arena, &united, trials, count);
  return united;
}

int tune_record_compare(const tune_record *a, const tune_record *b) {
  const int order = tune_key_compare(&a->key, &b->key);
  return order ? order : strcmp(a->source, b->source); // "measured" < "model"
}
