// Recorded times of every schedule of a kernel (tests/data/timings, made by bench/record_timings), as a
// space of schedules and a table: searches and the cost model are tried on them with nothing run.
// Include after graph_fixture.h.
#ifndef FATHOM_TESTS_RECORDED_H
#define FATHOM_TESTS_RECORDED_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/model.h"

typedef struct recorded {
  const char *graph; // path of the graph's text
  const char *axes;  // "D=7168 ..."
  int64_t rows;
  uint32_t threads;
  tune_calibration calibration; // of the machine that the times are from
  tune_space *space;            // the default first
  double *seconds;              // of each schedule
} recorded;

static inline const kir_knob *recorded_knob(const char *name) {
  const kir_knob *knob;
  for (uint32_t i = 0; (knob = kir_knob_at(KIR_CPU, i)) != NULL; i++)
    if (strcmp(knob->name, name) == 0) return knob;
  fail_msg("no knob is called %s", name);
  return NULL;
}

// "name=value" words.
static inline void recorded_settings(recorded *r, char *text, bool calibration) {
  char *rest;
  for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
    char *value = strchr(word, '=');
    assert_non_null(value);
    *value++ = 0;
    if (!calibration) {
      *kir_knob_of(&r->space->initial, recorded_knob(word)) = atoll(value);
      continue;
    }
    for (uint32_t i = 0; i < TUNE_CALIBRATION_PARTS; i++)
      if (strcmp(tune_calibration_parts[i].name, word) == 0)
        *tune_calibration_value(&r->calibration, &tune_calibration_parts[i]) = atof(value);
  }
}

static inline void recorded_value(tune_dimension *dimension, int64_t value) {
  uint32_t at = dimension->count;
  for (uint32_t i = 0; i < dimension->count; i++)
    if (dimension->values[i] == value) return;
  assert_true(at < TUNE_MAX_VALUES);
  for (; at > 0 && dimension->values[at - 1] > value; at--)
    dimension->values[at] = dimension->values[at - 1];
  dimension->values[at] = value;
  dimension->count++;
}

static inline void recorded_row(recorded *r, char *line, kir_schedule *schedules) {
  tune_space *space = r->space;
  kir_schedule schedule = space->initial;
  char *rest, *word = strtok_r(line, ",\n", &rest);
  for (uint32_t i = 0; i < space->dimension_count; i++, word = strtok_r(NULL, ",\n", &rest)) {
    tune_dimension *dimension = &space->dimensions[i];
    assert_non_null(word);
    *kir_knob_of(&schedule, dimension->knob) = atoll(word);
    recorded_value(dimension, atoll(word));
  }
  assert_non_null(word);
  if (space->count == 0) space->initial = schedule;
  schedules[space->count] = schedule;
  r->seconds[space->count] = atof(word) * 1e-6;
  uint32_t before = space->count;
  tune_space_add(space);
  assert_int_equal(space->count, before + 1); // no schedule comes twice
}

static inline recorded *read_recorded(const char *name) {
  enum { MOST = 1 << 14 };
  static char line[1024];
  recorded *r = base_new(&arena, recorded);
  r->space = base_new(&arena, tune_space);
  r->space->initial = kir_schedule_default(KIR_CPU);
  r->space->table_size = 2 * MOST;
  r->space->table = base_new_array(&arena, uint32_t, 2 * MOST);
  kir_schedule *schedules = base_new_array(&arena, kir_schedule, MOST);
  r->space->schedules = schedules;
  r->seconds = base_new_array(&arena, double, MOST);
  r->calibration = tune_calibration_usual();
  FILE *file = fopen(
      base_str_format(&arena, "%s/timings/%s.csv", getenv("FATHOM_TEST_DATA"), name).data, "r");
  if (!file) fail_msg("no times are recorded of %s", name);
  while (file && fgets(line, sizeof line, file)) {
    char graph[256], axes[256] = "";
    if (sscanf(line, "# graph %255s rows %" SCNd64 " threads %u axes %255[^\n]", graph, &r->rows,
               &r->threads, axes) >= 3) {
      r->graph = base_str_copy(&arena, base_str_from(graph)).data;
      r->axes = base_str_copy(&arena, base_str_from(axes)).data;
    } else if (strncmp(line, "# calibration", 13) == 0) {
      recorded_settings(r, line + 13, true);
    } else if (strncmp(line, "# others", 8) == 0) {
      recorded_settings(r, line + 8, false);
    } else if (line[0] >= 'a' && line[0] <= 'z') {
      char *rest;
      for (char *word = strtok_r(line, ",\n", &rest); word && strcmp(word, "us") != 0;
           word = strtok_r(NULL, ",\n", &rest))
        r->space->dimensions[r->space->dimension_count++].knob = recorded_knob(word);
    } else if (line[0] != '#') {
      recorded_row(r, line, schedules);
    }
  }
  if (file) fclose(file);
  assert_true(r->space->count > 1 && r->graph != NULL && r->threads > 0);
  r->space->radius = r->space->dimension_count;
  return r;
}

static inline double recorded_best(const recorded *r) {
  double best = INFINITY;
  for (uint32_t i = 0; i < r->space->count; i++)
    best = fmin(best, r->seconds[i]);
  return best;
}

#endif
