// records_text: tuning records as text for people and as JSON for programs.
//
// What is in a file may have been written by anybody: control characters never reach a terminal, and
// what is no UTF-8 never a program.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/records.h"
#include "base/yaml.h"

// ---- what is said of a record -------------------------------------------------------------------

bool api_record_is_of(const tune_record *record, const char *graph) {
  return graph == NULL || strcmp(record->graph_name, graph) == 0;
}

static const char *part_text(base_arena *arena, const tune_key *key, const tune_key_part *part) {
  if (part->is_text) return tune_key_text_of(key, part);
  return base_str_format(arena, "%lld", (long long)tune_key_number_of(key, part)).data;
}

static bool differs(base_arena *arena, const tune_key *own, const tune_key *key, bool exact,
                    const tune_key_part *part) {
  return (part->rule == TUNE_SEED || (exact && part->rule == TUNE_EXACT)) &&
         strcmp(part_text(arena, own, part), part_text(arena, key, part)) != 0;
}

const char *api_record_difference(base_arena *arena, const tune_key *own, const tune_key *key,
                                  bool exact, bool full) {
  base_text text = {.arena = arena};
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (!differs(arena, own, key, exact, part)) continue;
    base_text_printf(&text, "%s%s%s", text.length > 0 ? ", " : "", full ? "" : "other ",
                     part->name);
    if (full)
      base_text_printf(&text, " '%s' (here '%s')", part_text(arena, key, part),
                       part_text(arena, own, part));
  }
  return text.length > 0 ? text.data : "";
}

// From runs that found the caches otherwise: of two such records the newer one is taken.
static const char *newer_than(const api_record_file *file, const tune_record *record) {
  uint32_t count = file->database != NULL ? tune_database_count(file->database) : 0;
  for (uint32_t i = 0; i < count; i++) {
    const tune_record *other = tune_database_at(file->database, i);
    tune_key_distance distance = tune_key_compared(&other->key, &record->key);
    if (distance.useless || distance.near > 0 || distance.seed > 0 || distance.either == 0)
      continue;
    if (strcmp(other->source, "measured") == 0 && strcmp(other->date, record->date) > 0)
      return other->key.cache;
  }
  return "";
}

const char *api_record_flaw(base_arena *arena, const api_record_file *file,
                            const tune_record *record, bool full) {
  bool gpu = strncmp(record->key.target, "cuda", 4) == 0;
  if (!file->compiles) return gpu ? "no compiler for it here" : "no cpu target here";
  if (!file->here) return "other device";
  tune_key own = file->own;
  bool by_model = strcmp(record->source, "model") == 0;
  if (by_model) own.driver = record->key.driver; // a model needs none
  const char *difference = api_record_difference(arena, &own, &record->key, false, full);
  if (difference[0] != 0) return difference;
  if (by_model && !gpu) return "not measured";
  if (!file->found) return "file of another name";
  const char *caches = newer_than(file, record);
  return caches[0] != 0 ? base_str_format(arena, "a newer one, with %s caches", caches).data : "";
}

// 0: not known.
static double speed_up_of(const tune_record *record) {
  bool known = record->initial.median_us > 0 && record->best.median_us > 0;
  return known ? record->initial.median_us / record->best.median_us : 0;
}

static const char *time_text(base_arena *arena, double microseconds) {
  if (microseconds <= 0) return "-";
  if (microseconds >= 1e4) return base_str_format(arena, "%.1f ms", microseconds / 1e3).data;
  return base_str_format(arena, microseconds >= 100 ? "%.0f us" : "%.2f us", microseconds).data;
}

static const char *speed_up_text(base_arena *arena, const tune_record *record) {
  double speed_up = speed_up_of(record);
  return speed_up > 0 ? base_str_format(arena, "%.2fx", speed_up).data : "-";
}

static const char *ceiling_text(base_arena *arena, const tune_record *record) {
  if (record->of_ceiling <= 0) return "-";
  return base_str_format(arena, "%.1f %%", 100 * record->of_ceiling).data;
}

static uint32_t records_of(const api_record_file *file) {
  return file->database != NULL ? tune_database_count(file->database) : 0;
}

static const char *plural(uint32_t count) {
  return count == 1 ? "" : "s";
}

// ---- text that is safe to show ------------------------------------------------------------------

static bool is_control(const unsigned char *at) {
  return at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

void api_append_shown(base_text *out, const char *text) {
  for (; *text; text++) {
    bool control = is_control((const unsigned char *)text);
    base_text_append(out, control ? "?" : text, 1);
    if (control && (unsigned char)*text == 0xc2) text++;
  }
}

// ---- tables -------------------------------------------------------------------------------------

enum { COLUMNS = 10 };

// A line of cells; NULL ends one that is shorter.
typedef struct table_row {
  const char *cells[COLUMNS];
} table_row;

// Columns of a terminal, near enough: characters.
static int width_of(const char *cell) {
  int width = 0;
  for (; *cell; cell++)
    width += ((unsigned char)*cell & 0xc0) != 0x80;
  return width;
}

static void append_row(base_text *out, const table_row *row, const int *widths,
                       const char *numbers) {
  for (int c = 0; c < COLUMNS && row->cells[c]; c++) {
    int space = widths[c] - width_of(row->cells[c]);
    bool last = c + 1 == COLUMNS || !row->cells[c + 1];
    base_text_printf(out, "  %*s", numbers[c] == 'r' ? space : 0, "");
    api_append_shown(out, row->cells[c]);
    if (!last && numbers[c] != 'r') base_text_printf(out, "%*s", space, "");
  }
  base_text_append(out, "\n", 1);
}

// `sides`: l or r for each column, where its cells stand.
static void append_table(base_text *out, const table_row *rows, uint32_t count, const char *sides) {
  int widths[COLUMNS] = {0};
  for (uint32_t i = 0; i < count; i++)
    for (int c = 0; c < COLUMNS && rows[i].cells[c]; c++) {
      int width = width_of(rows[i].cells[c]);
      if (width > widths[c]) widths[c] = width;
    }
  for (uint32_t i = 0; i < count; i++)
    append_row(out, &rows[i], widths, sides);
}

static const char *graph_text(base_arena *arena, const tune_record *record) {
  return base_str_format(arena, "@%s", record->graph_name).data;
}

static const char *count_text(base_arena *arena, int64_t count) {
  return base_str_format(arena, "%lld", (long long)count).data;
}

// ---- list ---------------------------------------------------------------------------------------

static void append_device(base_text *out, const api_record_file *file) {
  const tune_device *device = tune_database_device(file->database);
  base_text_append(out, "  ", 2);
  api_append_shown(out, device->name);
  base_text_printf(out, ", %lld %s, ", (long long)device->units,
                   strcmp(device->kind, "cpu") == 0 ? "cores" : "units");
  api_append_shown(out, device->features);
  if (!file->compiles) return;
  bool gpu = strcmp(device->kind, "cuda") == 0;
  base_text_printf(out, "; %s%s",
                   !file->here ? "another device"
                   : gpu       ? "taken for "
                               : "this machine",
                   file->here && gpu ? file->own.target : "");
}

static void append_file(base_text *out, const api_record_file *file) {
  api_append_shown(out, file->path);
  base_text_printf(out, "%s\n", file->shipped ? ", comes with Fathom" : "");
  if (file->database == NULL) {
    base_text_printf(out, "  nothing of it can be used: ");
    api_append_shown(out, file->problem);
  } else {
    append_device(out, file);
    base_text_printf(out, "; %u record%s", records_of(file), plural(records_of(file)));
  }
  base_text_append(out, "\n", 1);
}

static const char *axes_text(base_arena *arena, const tune_record *record) {
  return base_str_format(arena, "%s%srows %lld", record->axes, record->axes[0] ? ", " : "",
                         (long long)record->key.rows)
      .data;
}

static table_row list_row(base_arena *arena, const api_record_file *file,
                          const tune_record *record) {
  const char *flaw = api_record_flaw(arena, file, record, false);
  return (table_row){{
      graph_text(arena, record),
      axes_text(arena, record),
      record->key.target,
      count_text(arena, record->key.threads),
      time_text(arena, record->best.median_us),
      speed_up_text(arena, record),
      ceiling_text(arena, record),
      record->key.cache,
      base_str_format(arena, "%.10s", record->date).data,
      flaw[0] ? base_str_format(arena, "no: %s", flaw).data : "yes",
  }};
}

static void append_records(base_text *out, const api_record_file *file, const char *graph) {
  static const table_row head = {{"graph", "axes", "target", "threads", "best", "speed-up",
                                  "ceiling", "caches", "date", "usable"}};
  uint32_t count = records_of(file), shown = 1;
  table_row *rows = base_new_array(out->arena, table_row, count + 1);
  rows[0] = head;
  for (uint32_t i = 0; i < count; i++) {
    const tune_record *record = tune_database_at(file->database, i);
    if (api_record_is_of(record, graph)) rows[shown++] = list_row(out->arena, file, record);
  }
  if (shown > 1) append_table(out, rows, shown, "lllrrrrlll");
}

static void append_emptiness(base_text *out, const api_record_set *set) {
  if (set->folder[0] == 0)
    base_text_printf(out, "the cache is off: no tuning records are kept or used\n");
  else {
    base_text_printf(out, "there are no tuning records in ");
    api_append_shown(out, set->folder);
    base_text_append(out, "\n", 1);
  }
}

void api_records_list(const api_record_set *set, const char *graph, base_text *out) {
  if (set->count == 0) append_emptiness(out, set);
  for (uint32_t i = 0; i < set->count; i++) {
    if (i > 0) base_text_append(out, "\n", 1);
    append_file(out, &set->files[i]);
    append_records(out, &set->files[i], graph);
  }
}

void api_records_gone(const api_record_gone *gone, uint32_t count, base_text *out) {
  base_arena *arena = out->arena;
  table_row *rows = base_new_array(arena, table_row, count);
  for (uint32_t i = 0; i < count; i++) {
    const tune_record *record = &gone[i].record;
    rows[i] = (table_row){{
        graph_text(arena, record),
        axes_text(arena, record),
        record->key.target,
        count_text(arena, record->key.threads),
        time_text(arena, record->best.median_us),
        base_str_format(arena, "%.10s", record->date).data,
        gone[i].why,
    }};
  }
  append_table(out, rows, count, "lllrrllll");
}

// ---- show ---------------------------------------------------------------------------------------

static void append_line(base_text *out, const char *name, const char *value) {
  base_text_printf(out, "  %-10s ", name);
  api_append_shown(out, value);
  base_text_append(out, "\n", 1);
}

static void append_trial(base_text *out, const char *name, const tune_trial *trial) {
  base_text_printf(out, "  %-10s ", name);
  if (tune_outcome_has_time(trial->outcome))
    base_text_printf(out, "%s, spread %.1f %%%s", time_text(out->arena, trial->median_us),
                     100 * trial->spread, trial->outcome == TUNE_PREDICTED ? ", predicted" : "");
  else
    base_text_printf(out, "%s", tune_outcome_name(trial->outcome));
  if (trial->why[0] != 0) base_text_printf(out, ": ");
  api_append_shown(out, trial->why);
  base_text_printf(out, "\n  %-10s ", "");
  api_append_shown(out, trial->schedule);
  base_text_append(out, "\n", 1);
}

enum { OUTCOMES = TUNE_PREDICTED + 1 };

static void count_outcomes(const tune_record *record, uint32_t counts[OUTCOMES]) {
  memset(counts, 0, OUTCOMES * sizeof *counts);
  for (uint32_t i = 0; i < record->trial_count; i++)
    counts[record->trials[i].outcome]++;
}

// "12 schedules: 9 timed, 3 refused".
static const char *tried_text(base_arena *arena, const tune_record *record) {
  uint32_t counts[OUTCOMES];
  const char *before = ": ";
  base_text text = {.arena = arena};
  count_outcomes(record, counts);
  base_text_printf(&text, "%u schedule%s", record->trial_count, plural(record->trial_count));
  for (int i = 0; i < OUTCOMES; i++) {
    if (counts[i] == 0) continue;
    base_text_printf(&text, "%s%u %s", before, counts[i], tune_outcome_name((tune_outcome)i));
    before = ", ";
  }
  return text.data;
}

static void append_key(base_text *out, const tune_key *key) {
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    const char *value = part_text(out->arena, key, part);
    append_line(out, part->name, value[0] != 0 ? value : "-");
  }
}

static void append_result(base_text *out, const tune_record *record) {
  append_trial(out, "best", &record->best);
  append_trial(out, "default", &record->initial);
  append_line(out, "speed-up", speed_up_text(out->arena, record));
  append_line(out, "ceiling", ceiling_text(out->arena, record));
  append_line(out, "tried", tried_text(out->arena, record));
  append_line(out, "source",
              base_str_format(out->arena, "%s, %s caches, seed %llu", record->source,
                              record->key.cache, (unsigned long long)record->seed)
                  .data);
  append_line(out, "date", record->date);
  if (record->contended) append_line(out, "caution", "other programs were at work meanwhile");
}

static void show_record(base_text *out, const api_record_file *file, const tune_record *record) {
  const char *flaw = api_record_flaw(out->arena, file, record, true);
  base_text_append(out, "@", 1);
  api_append_shown(out, record->graph_name);
  base_text_append(out, "\n", 1);
  append_line(out, "file", file->path);
  append_line(out, "device", tune_database_device(file->database)->name);
  append_line(out, "axes", record->axes);
  append_key(out, &record->key);
  append_result(out, record);
  append_line(out, "usable",
              flaw[0] != 0 ? base_str_format(out->arena, "no: %s", flaw).data : "yes");
}

void api_records_show(const api_record_set *set, const char *graph, base_text *out) {
  for (uint32_t f = 0; f < set->count; f++) {
    const api_record_file *file = &set->files[f];
    for (uint32_t i = 0; i < records_of(file); i++) {
      const tune_record *record = tune_database_at(file->database, i);
      if (!api_record_is_of(record, graph)) continue;
      if (out->length > 0) base_text_append(out, "\n", 1);
      show_record(out, file, record);
    }
  }
  if (out->length == 0) append_emptiness(out, set);
}

// ---- JSON ---------------------------------------------------------------------------------------

static void json_string(base_text *out, const char *text) {
  base_str mended = base_yaml_mend(out->arena, base_str_from(text));
  base_text_append(out, "\"", 1);
  for (size_t i = 0; i < mended.length; i++) {
    unsigned char c = (unsigned char)mended.data[i];
    if (c < 0x20 || c == 0x7f)
      base_text_printf(out, "\\u%04x", c);
    else
      base_text_printf(out, "%s%c", c == '"' || c == '\\' ? "\\" : "", c);
  }
  base_text_append(out, "\"", 1);
}

// A name, with the comma before it unless it is an object's first.
static void json_name(base_text *out, const char *name) {
  char before = out->length > 0 ? out->data[out->length - 1] : '{';
  if (before != '{' && before != '[') base_text_append(out, ", ", 2);
  json_string(out, name);
  base_text_append(out, ": ", 2);
}

static void json_text(base_text *out, const char *name, const char *value) {
  json_name(out, name);
  json_string(out, value);
}

static void json_integer(base_text *out, const char *name, int64_t value) {
  json_name(out, name);
  base_text_printf(out, "%lld", (long long)value);
}

static void json_bool(base_text *out, const char *name, bool value) {
  json_name(out, name);
  base_text_printf(out, "%s", value ? "true" : "false");
}

// 0, infinity and such stand for what is not known.
static void json_known(base_text *out, const char *name, double value) {
  json_name(out, name);
  if (value > 0 && isfinite(value))
    base_text_printf(out, "%.9g", value);
  else
    base_text_printf(out, "null");
}

static void json_open(base_text *out, const char *name, const char *bracket) {
  json_name(out, name);
  base_text_append(out, bracket, 1);
}

static void json_item(base_text *out) {
  if (out->data[out->length - 1] != '[') base_text_append(out, ", ", 2);
}

static void json_trial(base_text *out, const char *name, const tune_trial *trial) {
  json_open(out, name, "{");
  json_text(out, "schedule", trial->schedule);
  json_text(out, "outcome", tune_outcome_name(trial->outcome));
  json_integer(out, "level", trial->level);
  json_known(out, "median_us", trial->median_us);
  json_name(out, "spread");
  base_text_printf(out, "%.6g", isfinite(trial->spread) ? trial->spread : 0);
  json_text(out, "why", trial->why);
  base_text_append(out, "}", 1);
}

static void json_key(base_text *out, const tune_key *key) {
  json_open(out, "key", "{");
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (part->is_text)
      json_text(out, part->name, tune_key_text_of(key, part));
    else
      json_integer(out, part->name, tune_key_number_of(key, part));
  }
  base_text_append(out, "}", 1);
}

static void json_differs(base_text *out, const tune_key *own, const tune_key *key) {
  json_open(out, "differs", "[");
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    if (!differs(out->arena, own, key, false, &tune_key_parts[i])) continue;
    json_item(out);
    json_string(out, tune_key_parts[i].name);
  }
  base_text_append(out, "]", 1);
}

static void json_details(base_text *out, const tune_record *record) {
  uint32_t counts[OUTCOMES];
  json_key(out, &record->key);
  json_trial(out, "best", &record->best);
  json_trial(out, "default", &record->initial);
  json_text(out, "source", record->source);
  json_name(out, "seed");
  base_text_printf(out, "%llu", (unsigned long long)record->seed);
  json_bool(out, "contended", record->contended);
  count_outcomes(record, counts);
  json_open(out, "outcomes", "{");
  for (int i = 0; i < OUTCOMES; i++)
    json_integer(out, tune_outcome_name((tune_outcome)i), counts[i]);
  base_text_append(out, "}", 1);
}

static void json_record(base_text *out, const api_record_file *file, const tune_record *record,
                        bool full) {
  const char *flaw = api_record_flaw(out->arena, file, record, true);
  json_item(out);
  base_text_append(out, "{", 1);
  json_text(out, "graph", record->graph_name);
  json_text(out, "axes", record->axes);
  json_integer(out, "rows", record->key.rows);
  json_text(out, "target", record->key.target);
  json_integer(out, "threads", record->key.threads);
  json_known(out, "median_us", record->best.median_us);
  json_known(out, "speed_up", speed_up_of(record));
  json_known(out, "of_ceiling", record->of_ceiling);
  json_text(out, "cache", record->key.cache);
  json_text(out, "date", record->date);
  json_bool(out, "usable", flaw[0] == 0);
  json_text(out, "why_not", flaw);
  if (file->compiles) json_differs(out, &file->own, &record->key);
  if (full) json_details(out, record);
  base_text_append(out, "}", 1);
}

static void json_device(base_text *out, const tune_device *device) {
  json_open(out, "device", "{");
  json_text(out, "kind", device->kind);
  json_text(out, "name", device->name);
  json_text(out, "features", device->features);
  json_integer(out, "units", device->units);
  base_text_append(out, "}", 1);
}

static void json_file(base_text *out, const api_record_file *file, const char *graph, bool full) {
  json_item(out);
  base_text_append(out, "{", 1);
  json_text(out, "path", file->path);
  json_bool(out, "shipped", file->shipped);
  json_text(out, "problem", file->problem);
  if (file->database != NULL) json_device(out, tune_database_device(file->database));
  json_bool(out, "this_machine", file->here);
  json_open(out, "records", "[");
  for (uint32_t i = 0; i < records_of(file); i++) {
    const tune_record *record = tune_database_at(file->database, i);
    if (api_record_is_of(record, graph)) json_record(out, file, record, full);
  }
  base_text_append(out, "]}", 2);
}

void api_records_json(const api_record_set *set, const char *graph, bool full, base_text *out) {
  base_text_append(out, "{", 1);
  json_text(out, "folder", set->folder);
  json_open(out, "files", "[");
  for (uint32_t i = 0; i < set->count; i++)
    json_file(out, &set->files[i], graph, full);
  base_text_append(out, "]}\n", 3);
}
