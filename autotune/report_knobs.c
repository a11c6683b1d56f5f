// The knobs of a history, read from its schedules: which values were tried, and what they gave.
#include <stdlib.h>
#include <string.h>

#include "autotune/report_parts.h"

// ---- schedules as text --------------------------------------------------------------------------

bool report_next_setting(base_str *schedule, report_setting *setting) {
  while (schedule->length > 0) {
    const char *comma = memchr(schedule->data, ',', schedule->length);
    const size_t length = comma ? (size_t)(comma - schedule->data) : schedule->length;
    const base_str item = {schedule->data, length};
    schedule->data += length + (comma != NULL);
    schedule->length -= length + (comma != NULL);
    if (length == 0) continue;
    const char *equals = memchr(item.data, '=', length);
    const size_t name = equals ? (size_t)(equals - item.data) : length;
    setting->name = (base_str){item.data, name};
    setting->value = equals ? (base_str){equals + 1, length - name - 1} : BASE_STR("");
    return true;
  }
  return false;
}

bool report_setting_of(const char *schedule, base_str name, base_str *value) {
  base_str rest = report_str(schedule);
  for (report_setting setting; report_next_setting(&rest, &setting);) {
    if (!base_str_equal(setting.name, name)) continue;
    *value = setting.value;
    return true;
  }
  return false;
}

base_str report_difference(base_arena *arena, const char *initial, const char *schedule) {
  base_text text = {.arena = arena};
  base_str rest = report_str(schedule), value;
  for (report_setting setting; report_next_setting(&rest, &setting);) {
    if (report_setting_of(initial, setting.name, &value) && base_str_equal(value, setting.value))
      continue;
    if (text.length) base_text_append(&text, ", ", 2);
    base_text_append(&text, setting.name.data, setting.name.length);
    base_text_append(&text, "=", 1);
    base_text_append(&text, setting.value.data, setting.value.length);
  }
  return text.length ? base_text_str(&text) : BASE_STR("as the default");
}

base_str report_summary_of(const tune_history *history, base_str knob) {
  for (uint32_t i = 0; i < history->knob_count; i++) {
    if (base_str_equal(report_str(history->knobs[i].name), knob))
      return report_str(history->knobs[i].summary);
  }
  return BASE_STR("");
}

// ---- values -------------------------------------------------------------------------------------

// A time that was reached with one value of one knob.
typedef struct sample {
  base_str value;
  double us;
} sample;

static bool is_number(base_str text, long long *number) {
  const bool negative = text.length > 0 && text.data[0] == '-';
  if (text.length == negative || text.length > 18) return false;
  *number = 0;
  for (size_t i = negative; i < text.length; i++) {
    if (text.data[i] < '0' || text.data[i] > '9') return false;
    *number = *number * 10 + (text.data[i] - '0');
  }
  if (negative) *number = -*number;
  return true;
}

static int compare_text(base_str a, base_str b) {
  const size_t shorter = a.length < b.length ? a.length : b.length;
  const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
  return order ? order : (a.length > b.length) - (a.length < b.length);
}

// Numbers by size, then other text; "7" and "07" are two values.
static int compare_values(base_str a, base_str b) {
  long long x = 0, y = 0;
  const bool a_number = is_number(a, &x), b_number = is_number(b, &y);
  if (a_number != b_number) return b_number - a_number;
  if (a_number && x != y) return x < y ? -1 : 1;
  return compare_text(a, b);
}

static int by_value(const void *left, const void *right) {
  const sample *a = left, *b = right;
  const int order = compare_values(a->value, b->value);
  return order ? order : (a->us > b->us) - (a->us < b->us);
}

static double median_of(const sample *sorted, uint32_t count) {
  return (sorted[(count - 1) / 2].us + sorted[count / 2].us) / 2;
}

// Groups a knob's samples by value, and says how much the choice matters.
static void summarize_knob(base_arena *arena, report_knob *knob, sample *samples, uint32_t count) {
  if (count > 1) qsort(samples, count, sizeof *samples, by_value);
  knob->values = base_new_array(arena, report_value, count);
  knob->effect = 1;
  double best = 0, worst = 0;
  for (uint32_t first = 0, next; first < count; first = next) {
    for (next = first; next < count; next++) {
      if (!base_str_equal(samples[first].value, samples[next].value)) break;
    }
    const double best_us = samples[first].us;
    knob->values[knob->value_count++] =
        (report_value){.value = samples[first].value,
                       .count = next - first,
                       .best_us = best_us,
                       .median_us = median_of(samples + first, next - first)};
    if (best == 0 || best_us < best) best = best_us;
    if (best_us > worst) worst = best_us;
  }
  if (best > 0) knob->effect = worst / best;
}

// ---- knobs --------------------------------------------------------------------------------------

typedef BASE_VECTOR(report_knob) knob_vector;

static void add_knobs(base_arena *arena, const tune_history *history, knob_vector *knobs,
                      const char *schedule) {
  base_str rest = report_str(schedule);
  uint32_t guess = 0; // schedules name their knobs in the same order
  for (report_setting setting; report_next_setting(&rest, &setting); guess++) {
    if (guess < knobs->count && base_str_equal(knobs->data[guess].name, setting.name)) continue;
    uint32_t i = 0;
    while (i < knobs->count && !base_str_equal(knobs->data[i].name, setting.name))
      i++;
    if (i < knobs->count) continue;
    const base_str summary = report_summary_of(history, setting.name);
    base_push(arena, knobs, (report_knob){.name = setting.name, .summary = summary});
  }
}

static int by_effect(const void *left, const void *right) {
  const report_knob *a = left, *b = right;
  if (a->effect != b->effect) return a->effect > b->effect ? -1 : 1;
  return compare_text(a->name, b->name);
}

report_knobs report_knobs_of(base_arena *arena, const report_digest *digest) {
  const tune_history *history = digest->history;
  knob_vector knobs = {0};
  add_knobs(arena, history, &knobs, history->initial.schedule);
  add_knobs(arena, history, &knobs, history->best.schedule);
  for (uint32_t i = 0; i < digest->timed; i++)
    add_knobs(arena, history, &knobs, digest->candidates[i].entry->trial.schedule);
  sample *samples = base_new_array(arena, sample, digest->timed);
  for (uint32_t k = 0; k < knobs.count; k++) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < digest->timed; i++) {
      const report_candidate *candidate = &digest->candidates[i];
      const char *schedule = candidate->entry->trial.schedule;
      if (report_setting_of(schedule, knobs.data[k].name, &samples[count].value))
        samples[count++].us = candidate->us;
    }
    summarize_knob(arena, &knobs.data[k], samples, count);
  }
  if (knobs.count > 1) qsort(knobs.data, knobs.count, sizeof *knobs.data, by_effect);
  return (report_knobs){.count = knobs.count, .knobs = knobs.data};
}
