// The text of a file of the database.
//
// A file is two YAML documents. Each ends with a line of three dots:
//
//   schema: 2
//   device: {...}
//   records:
//   - key: {...}
//     ...
//     best: {schedule: ..., outcome: timed, ...}
//     initial: {...}
//   ...
//   ---
//   timings:
//   - key: {...}
//     name: ...
//     source: measured
//     trials:
//     - {schedule: ..., outcome: timed, ...}
//   ...
//
// Keys and winners come first: who only looks something up, which every compilation does, reads no
// further, and the trials are nearly all of a file. An entry of the second document is of the record
// with its key and source.
//
// Without the dots the end is missing, and with it perhaps a part of the last record, which would
// look like a whole one: it is left out. A document that is no YAML is cut where lines begin with
// "- ", and its items are read one by one: a damaged byte costs the record it is in, and one in the
// second document trials only.
//
// In files of schema 1 each record has its trials as `timings`, and `cache` outside its key; they are
// one document.
#include "autotune/record_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/database.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct file_reader {
  base_arena *arena, *scratch;
  base_diag *diag;
  tune_file file;
  int64_t schema;
  bool winners_only;
} file_reader;

// ---- parts of a mapping -------------------------------------------------------------------------

// The value of a name that must be there.
static const base_yaml *need(const base_yaml *mapping, const char *name, base_diag *diag) {
  const base_yaml *value = base_yaml_find(mapping, name);
  if (!value) base_error(diag, mapping->loc, "'%s' is missing", name);
  return value;
}

static bool need_string(const base_yaml *mapping, const char *name, const char **value,
                        base_diag *diag) {
  const base_yaml *node = need(mapping, name, diag);
  return node && base_yaml_string(node, value, diag);
}

static bool need_count(const base_yaml *mapping, const char *name, int64_t *value,
                       base_diag *diag) {
  const base_yaml *node = need(mapping, name, diag);
  return node && base_yaml_integer(node, 0, INT64_MAX, value, diag);
}

static void put_text(base_yaml_writer *writer, const char *name, const char *value) {
  base_yaml_put_string(writer, name);
  base_yaml_put_string(writer, value);
}

static void put_integer(base_yaml_writer *writer, const char *name, int64_t value) {
  base_yaml_put_string(writer, name);
  base_yaml_put_integer(writer, value);
}

static void put_number(base_yaml_writer *writer, const char *name, double value) {
  base_yaml_put_string(writer, name);
  base_yaml_put_number(writer, value);
}

// ---- devices ------------------------------------------------------------------------------------

bool tune_device_equal(const tune_device *a, const tune_device *b) {
  return strcmp(a->kind, b->kind) == 0 && strcmp(a->name, b->name) == 0 &&
         strcmp(a->features, b->features) == 0 && a->units == b->units;
}

static const char *copy_text(base_arena *arena, const char *text) {
  return base_str_copy(arena, base_yaml_mend(arena, base_str_from(text))).data;
}

tune_device tune_device_copy(base_arena *arena, const tune_device *device) {
  return (tune_device){copy_text(arena, device->kind), copy_text(arena, device->name),
                       copy_text(arena, device->features), device->units};
}

static void write_device(base_yaml_writer *writer, const tune_device *device) {
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  put_text(writer, "kind", device->kind);
  put_text(writer, "name", device->name);
  put_text(writer, "features", device->features);
  put_integer(writer, "units", device->units);
  base_yaml_put_end(writer);
}

static bool read_device(base_arena *arena, const base_yaml *node, tune_device *device,
                        base_diag *diag) {
  static const char *const names[] = {"kind", "name", "features", "units"};
  if (!base_yaml_is_mapping(node, names, COUNT(names), diag)) return false;
  tune_device read = {0};
  bool ok = need_string(node, "kind", &read.kind, diag);
  ok &= need_string(node, "name", &read.name, diag);
  ok &= need_string(node, "features", &read.features, diag);
  ok &= need_count(node, "units", &read.units, diag);
  if (ok) *device = tune_device_copy(arena, &read);
  return ok;
}

// ---- keys ---------------------------------------------------------------------------------------

void tune_key_write(base_yaml_writer *writer, const tune_key *key) {
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (part->is_text)
      put_text(writer, part->name, tune_key_text_of(key, part));
    else
      put_integer(writer, part->name, tune_key_number_of(key, part));
  }
  base_yaml_put_end(writer);
}

// The parts but `without`.
static bool read_parts(const base_yaml *node, uint32_t without, tune_key *key, base_diag *diag) {
  const char *names[TUNE_KEY_PARTS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++)
    if (i != without) names[count++] = tune_key_parts[i].name;
  bool ok = base_yaml_is_mapping(node, names, count, diag);
  for (uint32_t i = 0; i < TUNE_KEY_PARTS && node->kind == BASE_YAML_MAPPING; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    if (i == without) continue;
    ok &= part->is_text ? need_string(node, part->name, tune_key_text(key, part), diag)
                        : need_count(node, part->name, tune_key_number(key, part), diag);
  }
  return ok;
}

bool tune_key_read(const base_yaml *node, tune_key *key, base_diag *diag) {
  return read_parts(node, TUNE_KEY_PARTS, key, diag);
}

// ---- trials -------------------------------------------------------------------------------------

void tune_trial_write(base_yaml_writer *writer, const tune_trial *trial) {
  base_yaml_put_mapping(writer, BASE_YAML_FLOW);
  put_text(writer, "schedule", trial->schedule);
  put_text(writer, "outcome", tune_outcome_name(trial->outcome));
  put_integer(writer, "level", trial->level);
  if (trial->median_us != 0) put_number(writer, "median_us", trial->median_us);
  if (trial->spread != 0) put_number(writer, "spread", trial->spread);
  if (trial->why[0]) put_text(writer, "why", trial->why);
  base_yaml_put_end(writer);
}

static bool read_outcome(const base_yaml *node, tune_outcome *outcome, base_diag *diag) {
  if (node->kind == BASE_YAML_SCALAR && tune_outcome_parse(node->text, outcome)) return true;
  base_text names = {.arena = diag->arena};
  tune_outcome_list(&names);
  base_error(diag, node->loc, "not an outcome of a trial");
  base_hint(diag, "the outcomes are %s", names.data);
  return false;
}

static bool read_optional_number(const base_yaml *mapping, const char *name, double *value,
                                 base_diag *diag) {
  const base_yaml *node = base_yaml_find(mapping, name);
  *value = 0;
  return !node || base_yaml_number(node, value, diag);
}

bool tune_trial_read(const base_yaml *node, const char *target, tune_trial *trial,
                     base_diag *diag) {
  static const char *const names[] = {"schedule", "outcome", "level", "median_us", "spread", "why"};
  if (!base_yaml_is_mapping(node, names, COUNT(names), diag)) return false;
  tune_trial read = {.why = ""};
  int64_t level = 0;
  bool ok = need_string(node, "schedule", &read.schedule, diag);
  const base_yaml *outcome = need(node, "outcome", diag), *why = base_yaml_find(node, "why");
  const base_yaml *depth = need(node, "level", diag);
  ok &= outcome && read_outcome(outcome, &read.outcome, diag);
  ok &= depth && base_yaml_integer(depth, 0, UINT32_MAX, &level, diag);
  ok &= read_optional_number(node, "median_us", &read.median_us, diag);
  ok &= read_optional_number(node, "spread", &read.spread, diag);
  ok &= !why || base_yaml_string(why, &read.why, diag);
  read.level = (uint32_t)level;
  const char *problem = ok ? tune_trial_problem(diag->arena, &read, target) : NULL;
  if (problem) base_error(diag, node->loc, "%s", problem);
  if (!ok || problem) return false;
  *trial = read;
  return true;
}

// ---- records ------------------------------------------------------------------------------------

static void write_record(base_yaml_writer *writer, const tune_record *record) {
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  base_yaml_put_string(writer, "key");
  tune_key_write(writer, &record->key);
  put_text(writer, "name", record->graph_name);
  put_text(writer, "axes", record->axes);
  put_text(writer, "source", record->source);
  put_text(writer, "date", record->date);
  base_yaml_put_string(writer, "seed");
  base_yaml_put_natural(writer, record->seed);
  base_yaml_put_string(writer, "contended");
  base_yaml_put_bool(writer, record->contended);
  put_number(writer, "of_ceiling", record->of_ceiling);
  base_yaml_put_string(writer, "best");
  tune_trial_write(writer, &record->best);
  base_yaml_put_string(writer, "initial");
  tune_trial_write(writer, &record->initial);
  base_yaml_put_end(writer);
}

static void write_timings(base_yaml_writer *writer, const tune_record *record) {
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  base_yaml_put_string(writer, "key");
  tune_key_write(writer, &record->key);
  put_text(writer, "name", record->graph_name);
  put_text(writer, "source", record->source);
  base_yaml_put_string(writer, "trials");
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  for (uint32_t i = 0; i < record->trial_count; i++)
    tune_trial_write(writer, &record->trials[i]);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
}

// Adds those that can be read to the record; the others are errors in diag, which do not count against
// it.
static bool read_trials(file_reader *r, const base_yaml *node, tune_record *record,
                        base_diag *diag) {
  if (!base_yaml_is_list(node, diag)) return false;
  tune_trial *trials = base_new_array(r->scratch, tune_trial, node->count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < node->count; i++)
    count += tune_trial_read(node->items[i].value, record->key.target, &trials[count], diag);
  *record = tune_record_with_trials(r->arena, record, trials, count);
  if (record->trial_count < count) base_error(diag, node->loc, "a schedule is there twice");
  return true;
}

static bool read_facts(const base_yaml *node, tune_record *record, base_diag *diag) {
  bool ok = need_string(node, "name", &record->graph_name, diag);
  ok &= need_string(node, "axes", &record->axes, diag);
  ok &= need_string(node, "source", &record->source, diag);
  ok &= need_string(node, "date", &record->date, diag);
  const base_yaml *seed = need(node, "seed", diag), *contended = need(node, "contended", diag);
  const base_yaml *share = need(node, "of_ceiling", diag);
  ok &= seed && base_yaml_natural(seed, &record->seed, diag);
  ok &= contended && base_yaml_bool(contended, &record->contended, diag);
  ok &= share && base_yaml_number(share, &record->of_ceiling, diag);
  return ok;
}

// A copy. False: why not is in diag.
static bool read_record(file_reader *r, const base_yaml *node, tune_record *record,
                        base_diag *diag) {
  static const char *const names[] = {"key",  "name",    "axes",      "source",
                                      "date", "seed",    "contended", "of_ceiling",
                                      "best", "initial", "timings",   "cache"};
  const bool old = r->schema == TUNE_OLDEST_SCHEMA; // it has the last two names
  if (!base_yaml_is_mapping(node, names, old ? COUNT(names) : COUNT(names) - 2, diag)) return false;
  tune_record read = {0};
  const base_yaml *key = need(node, "key", diag);
  bool ok = key && read_parts(key, old ? TUNE_KEY_cache : TUNE_KEY_PARTS, &read.key, diag);
  const bool has_target = ok;
  if (old) ok &= need_string(node, "cache", &read.key.cache, diag);
  ok &= read_facts(node, &read, diag);
  const base_yaml *best = need(node, "best", diag), *initial = need(node, "initial", diag);
  const base_yaml *timings = old ? need(node, "timings", diag) : NULL;
  if (!has_target) return false; // which trials are read for
  ok &= best && tune_trial_read(best, read.key.target, &read.best, diag);
  ok &= initial && tune_trial_read(initial, read.key.target, &read.initial, diag);
  const char *problem = ok ? tune_record_facts_problem(r->scratch, &read) : NULL;
  if (problem) base_error(diag, node->loc, "%s", problem);
  if (!ok || problem) return false;
  *record = tune_record_copy(r->arena, &read);
  return !timings || r->winners_only || read_trials(r, timings, record, diag);
}

// The place of the first that is not below it. True: that is an equal one.
static bool find_record(const tune_records *records, const tune_record *record, uint32_t *place) {
  uint32_t low = 0, high = records->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (tune_record_compare(&records->data[middle], record) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  *place = low;
  return low < records->count && tune_record_compare(&records->data[low], record) == 0;
}

bool tune_records_put(base_arena *arena, tune_records *records, const tune_record *record,
                      tune_record *old) {
  uint32_t low;
  if (find_record(records, record, &low)) {
    *old = records->data[low];
    records->data[low] = *record;
    return true;
  }
  base_push(arena, records, *record);
  memmove(&records->data[low + 1], &records->data[low],
          (records->count - 1 - low) * sizeof *records->data);
  records->data[low] = *record;
  return false;
}

// ---- files --------------------------------------------------------------------------------------

// Who a record is, for the message that it was left out: its name if it has one.
static const char *name_of(const base_yaml *node) {
  const base_yaml *name = base_yaml_find(node, "name");
  return name && name->kind == BASE_YAML_SCALAR && name->text.length ? name->text.data : "?";
}

// Hands on what was found wrong with an item, each time with its record's name. `what` of it is left
// out.
static void report_item(file_reader *r, const base_yaml *node, const base_diag *found,
                        const char *what) {
  if (found->error_count) r->file.state = TUNE_FILE_DAMAGED;
  for (uint32_t i = 0; i < found->reports.count; i++) {
    const base_report *report = &found->reports.data[i];
    base_error(r->diag, report->loc, "%s of record '%s' (line %u) is left out: %.*s", what,
               name_of(node), node->loc.line, BASE_FMT(report->message));
    if (report->hint.length) base_hint(r->diag, "%.*s", BASE_FMT(report->hint));
  }
}

static void take_record(file_reader *r, const base_yaml *node) {
  base_diag found;
  base_diag_init(&found, r->scratch, r->diag->file, r->diag->source);
  tune_record record, old;
  const bool used = read_record(r, node, &record, &found);
  report_item(r, node, &found, used ? "a timing" : "all");
  if (!used || !tune_records_put(r->arena, &r->file.records, &record, &old)) return;
  r->file.state = TUNE_FILE_DAMAGED;
  base_error(r->diag, node->loc, "record '%s' is there twice: the newer one is used",
             record.graph_name);
  tune_record discarded;
  if (strcmp(old.date, record.date) > 0)
    tune_records_put(r->arena, &r->file.records, &old, &discarded);
}

// The trials of a record that was read. False: why not is in diag.
static bool read_timings(file_reader *r, const base_yaml *node, base_diag *diag) {
  static const char *const names[] = {"key", "name", "source", "trials"};
  if (!base_yaml_is_mapping(node, names, COUNT(names), diag)) return false;
  tune_record wanted = {0};
  const char *unused;
  uint32_t place;
  const base_yaml *key = need(node, "key", diag), *trials = need(node, "trials", diag);
  bool ok = key && tune_key_read(key, &wanted.key, diag);
  ok &= need_string(node, "source", &wanted.source, diag);
  ok &= need_string(node, "name", &unused, diag);
  if (!ok || !trials) return false;
  if (!find_record(&r->file.records, &wanted, &place)) {
    base_error(diag, node->loc, "there is no such record");
    return false;
  }
  tune_record *record = &r->file.records.data[place];
  if (record->trial_count == 0) return read_trials(r, trials, record, diag);
  base_error(diag, node->loc, "it has some already");
  return false;
}

static void take_timings(file_reader *r, const base_yaml *node) {
  base_diag found;
  base_diag_init(&found, r->scratch, r->diag->file, r->diag->source);
  const bool used = read_timings(r, node, &found);
  report_item(r, node, &found, used ? "a timing" : "every timing");
}

// The schema and the device. False: no record can be used, and why is reported.
static bool take_header(file_reader *r, const base_yaml *root) {
  static const char *const names[] = {"schema", "device", "records"};
  r->file.state = TUNE_FILE_DAMAGED;
  bool ok = base_yaml_is_mapping(root, names, COUNT(names), r->diag);
  if (root->kind != BASE_YAML_MAPPING) return false;
  if (!need_count(root, "schema", &r->schema, r->diag)) return false;
  if (r->schema < TUNE_OLDEST_SCHEMA || r->schema > TUNE_SCHEMA) {
    r->file.state = TUNE_FILE_REFUSED;
    base_error_status(r->diag, BASE_UNSUPPORTED, base_yaml_find(root, "schema")->loc,
                      "the file is of schema %lld, this Fathom knows schemas %d to %d",
                      (long long)r->schema, TUNE_OLDEST_SCHEMA, TUNE_SCHEMA);
    base_hint(r->diag,
              r->schema > TUNE_SCHEMA
                  ? "a newer Fathom wrote it: use that, or move the file away and tune again"
                  : "move the file away and tune again");
    return false;
  }
  const base_yaml *device = need(root, "device", r->diag);
  r->file.has_device = device && read_device(r->arena, device, &r->file.device, r->diag);
  if (ok && r->file.has_device) r->file.state = TUNE_FILE_WHOLE;
  return r->file.has_device;
}

static bool has_end(base_str text) {
  while (text.length && strchr(" \n\r\t", text.data[text.length - 1]))
    text.length--;
  return text.length >= 4 && memcmp(text.data + text.length - 4, "\n...", 4) == 0;
}

// A document, which is a list in a mapping: of records or of timings.
typedef struct document {
  base_str text;
  uint32_t line; // its first one's number
  bool ended;
  const char *list, *last; // last: what is left out when it is not ended
  void (*take)(file_reader *r, const base_yaml *item);
} document;

static void report_missing_end(file_reader *r, const document *d) {
  r->file.state = TUNE_FILE_DAMAGED;
  base_error(r->diag, (base_loc){0}, "the file's end is missing: %s left out", d->last);
  base_hint(r->diag, "a whole file ends with a line of three dots");
}

static void take_list(file_reader *r, const base_yaml *root, const document *d) {
  const base_yaml *list = need(root, d->list, r->diag);
  if (!list || !base_yaml_is_list(list, r->diag)) {
    r->file.state = TUNE_FILE_DAMAGED;
    return;
  }
  if (!d->ended) report_missing_end(r, d);
  const uint32_t count = list->count - (!d->ended && list->count ? 1 : 0);
  for (uint32_t i = 0; i < count; i++)
    d->take(r, list->items[i].value);
}

// ---- damaged files ------------------------------------------------------------------------------

static bool begins_with(base_str text, const char *start) {
  return text.length >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

// Cuts off `rest` the lines before the next one that begins an item; of the header no more than
// it, whatever comes before the first item.
static base_str next_piece(base_str *rest, const char *list, uint32_t *lines) {
  base_str piece = {rest->data, 0};
  *lines = 0;
  while (piece.length < rest->length) {
    const base_str left = {rest->data + piece.length, rest->length - piece.length};
    if (piece.length && begins_with(left, "- ")) break;
    const char *newline = memchr(left.data, '\n', left.length);
    piece.length += newline ? (size_t)(newline - left.data) + 1 : left.length;
    ++*lines;
    if (begins_with(left, list) && left.length > strlen(list) && left.data[strlen(list)] == ':')
      break;
  }
  rest->data += piece.length;
  rest->length -= piece.length;
  return piece;
}

// Item by item. `header`: whether what comes before them is to be looked at.
static void take_pieces(file_reader *r, const document *d, bool header) {
  base_str text = d->text;
  uint32_t line = d->line, lines;
  base_str piece = next_piece(&text, d->list, &lines);
  const base_yaml *root = header ? base_yaml_read(r->scratch, piece, line, r->diag) : NULL;
  r->file.state = TUNE_FILE_DAMAGED;
  if (header && (!root || !take_header(r, root))) return;
  r->file.state = TUNE_FILE_DAMAGED;
  if (!d->ended) report_missing_end(r, d);
  for (;;) {
    line += lines;
    piece = next_piece(&text, d->list, &lines);
    if (piece.length == 0 || (text.length == 0 && !d->ended)) return;
    const base_yaml *list = base_yaml_read(r->scratch, piece, line, r->diag);
    if (list && list->kind == BASE_YAML_LIST)
      for (uint32_t i = 0; i < list->count; i++)
        d->take(r, list->items[i].value);
  }
}

// ---- documents ----------------------------------------------------------------------------------

// The document's tree; NULL: it is no YAML, and *why is the first error.
static const base_yaml *read_tree(file_reader *r, const document *d, base_report *why) {
  base_diag found;
  base_diag_init(&found, r->scratch, r->diag->file, r->diag->source);
  const base_yaml *root = base_yaml_read(r->scratch, d->text, d->line, &found);
  if (!root) *why = found.reports.data[0];
  return root;
}

// What is wrong with a document may be between its pieces.
static void report_if_silent(file_reader *r, uint32_t errors_before, const base_report *why) {
  if (r->diag->error_count == errors_before)
    base_error(r->diag, why->loc, "%.*s", BASE_FMT(why->message));
}

static void read_records(file_reader *r, const document *d) {
  const uint32_t before = r->diag->error_count;
  base_report why;
  const base_yaml *root = read_tree(r, d, &why);
  if (root && take_header(r, root)) take_list(r, root, d);
  if (root) return;
  take_pieces(r, d, true);
  report_if_silent(r, before, &why);
}

static void read_all_timings(file_reader *r, const document *d) {
  static const char *const names[] = {"timings"};
  const uint32_t before = r->diag->error_count;
  base_report why;
  const base_yaml *root = read_tree(r, d, &why);
  if (root && base_yaml_is_mapping(root, names, COUNT(names), r->diag)) {
    take_list(r, root, d);
    return;
  }
  take_pieces(r, d, false);
  if (!root) report_if_silent(r, before, &why);
}

static bool is_mark(base_str line, const char *mark) {
  return begins_with(line, mark) && line.length > 3 && strchr(" \t\r\n", line.data[3]);
}

// YAML has no such lines but for marks, in whatever text.
size_t tune_file_winners(base_str text) {
  bool begun = false; // there was something but comments and marks
  for (size_t at = 0; at < text.length;) {
    const base_str rest = {text.data + at, text.length - at};
    const char *newline = memchr(rest.data, '\n', rest.length);
    if (!newline) return 0; // the line may go on
    const size_t length = (size_t)(newline - rest.data) + 1;
    if (begun && is_mark(rest, "---")) return at;
    if (begun && is_mark(rest, "...")) return at + length;
    begun |= !strchr("#%\r\n", rest.data[0]) && !is_mark(rest, "---");
    at += length;
  }
  return 0;
}

static uint32_t count_lines(base_str text) {
  uint32_t lines = 0;
  for (size_t i = 0; i < text.length; i++)
    lines += text.data[i] == '\n';
  return lines;
}

static bool is_blank(base_str text) {
  for (size_t i = 0; i < text.length; i++)
    if (!strchr(" \r\n", text.data[i])) return false;
  return true;
}

// What comes behind the winners.
static void read_rest(file_reader *r, base_str rest, uint32_t line) {
  const document timings = {rest,        line, has_end(rest), "timings", "its last timings are",
                            take_timings};
  const bool blank = is_blank(rest);
  if (r->schema == TUNE_OLDEST_SCHEMA) {
    if (blank) return;
    r->file.state = TUNE_FILE_DAMAGED;
    base_error(r->diag, (base_loc){line, 1, 1}, "a second document, which schema 1 does not have");
  } else if (blank) {
    report_missing_end(r, &timings);
  } else {
    read_all_timings(r, &timings);
  }
}

tune_file tune_file_read(base_arena *arena, base_arena *scratch, base_str text, bool winners_only,
                         base_diag *diag) {
  file_reader r = {.arena = arena,
                   .scratch = scratch,
                   .diag = diag,
                   .file.device = {"", "", "", 0},
                   .winners_only = winners_only};
  const size_t end = tune_file_winners(text);
  const base_str first = {text.data, end ? end : text.length};
  const document records = {first, 1, has_end(first), "records", "its last record is", take_record};
  read_records(&r, &records);
  const bool readable = r.file.state != TUNE_FILE_REFUSED && r.file.has_device;
  if (!winners_only && readable && (end || records.ended))
    read_rest(&r, (base_str){text.data + first.length, text.length - first.length},
              1 + count_lines(first));
  return r.file;
}

void tune_file_print(base_arena *arena, const tune_device *device, const tune_records *records,
                     base_text *out) {
  base_text_printf(out, "# Records of Fathom's autotuner for one device. After a change by hand,\n"
                        "# `fathom cache validate` says whether it can be read.\n");
  base_yaml_writer *writer = base_yaml_begin(arena, out);
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  put_integer(writer, "schema", TUNE_SCHEMA);
  base_yaml_put_string(writer, "device");
  write_device(writer, device);
  base_yaml_put_string(writer, "records");
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  for (uint32_t i = 0; i < records->count; i++)
    write_record(writer, &records->data[i]);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, true);
  base_text_printf(out, "---\n");
  writer = base_yaml_begin(arena, out);
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  base_yaml_put_string(writer, "timings");
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  for (uint32_t i = 0; i < records->count; i++)
    write_timings(writer, &records->data[i]);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, true);
}
