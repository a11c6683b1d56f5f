// The database: opening and looking up. Changes are in database_change.c, the text of its files in
// record_file.c.
#include "autotune/database_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- names of files -----------------------------------------------------------------------------

enum { MOST_NAME = 60 }; // letters of a device's name that are in its file's name
static const double default_lock_seconds = 10;
static const char suffix[] = ".yaml";

static bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
}

// Letters and digits, with a '-' for each run of anything else.
static void append_word(base_text *out, const char *text) {
  const size_t start = out->length;
  for (; *text && out->length - start < MOST_NAME; text++) {
    if (is_word_letter(*text))
      base_text_append(out, text, 1);
    else if (out->length > start && out->data[out->length - 1] != '-')
      base_text_append(out, "-", 1);
  }
  if (out->length > start && out->data[out->length - 1] == '-') out->data[--out->length] = '\0';
}

const char *tune_database_path_of(base_arena *arena, const char *folder,
                                  const tune_device *device) {
  const char *const texts[] = {device->kind, device->name, device->features};
  base_hash hash = base_hash_bytes(&device->units, sizeof device->units);
  for (size_t i = 0; i < 3; i++)
    hash = base_hash_combine(hash, base_hash_bytes(texts[i], strlen(texts[i])));
  base_text path = {.arena = arena};
  base_text_printf(&path, "%s/", folder);
  append_word(&path, device->kind);
  base_text_append(&path, "-", 1);
  append_word(&path, device->name);
  base_text_printf(&path, "-%.8s%s", base_hash_hex(arena, hash).data, suffix);
  return path.data;
}

static int compare_paths(const void *left, const void *right) {
  return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), tail = strlen(end);
  return length > tail && strcmp(name + length - tail, end) == 0;
}

static void close_folder(void *object) {
  DIR **folder = object;
  if (*folder) closedir(*folder);
  *folder = NULL;
}

const char *const *tune_database_list(base_arena *arena, const char *folder, uint32_t *count) {
  BASE_VECTOR(const char *) paths = {0};
  DIR **open = base_new(arena, DIR *);
  base_defer(arena, close_folder, open);
  *open = opendir(folder);
  for (struct dirent *entry; *open && (entry = readdir(*open));)
    if (entry->d_name[0] != '.' && ends_with(entry->d_name, suffix))
      base_push(arena, &paths, base_str_format(arena, "%s/%s", folder, entry->d_name).data);
  close_folder(open);
  if (paths.count) qsort(paths.data, paths.count, sizeof *paths.data, compare_paths);
  *count = paths.count;
  return paths.data;
}

// ---- reading ------------------------------------------------------------------------------------

enum { MOST_WARNINGS = 8 }; // of one file

bool tune_database_exists(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 || errno != ENOENT;
}

// Hands on what was found in a file to diagnostics that may be about another text. `refused`: as
// errors.
static void hand_on(const base_diag *found, bool refused, base_diag *diag) {
  uint32_t shown = 0;
  for (; shown < found->reports.count && shown < MOST_WARNINGS; shown++) {
    const base_report *report = &found->reports.data[shown];
    const base_str place = report->loc.line ? base_str_format(diag->arena, ":%u:%u",
                                                              report->loc.line, report->loc.column)
                                            : BASE_STR("");
    if (refused)
      base_error_status(diag, found->status, (base_loc){0}, "%.*s%.*s: %.*s", BASE_FMT(found->file),
                        BASE_FMT(place), BASE_FMT(report->message));
    else
      base_warning(diag, (base_loc){0}, "%.*s%.*s: %.*s", BASE_FMT(found->file), BASE_FMT(place),
                   BASE_FMT(report->message));
    if (report->hint.length) base_hint(diag, "%.*s", BASE_FMT(report->hint));
  }
  if (shown < found->reports.count)
    base_warning(diag, (base_loc){0}, "%.*s: %u more of this kind", BASE_FMT(found->file),
                 found->reports.count - shown);
}

static base_status refuse_device(const char *path, const tune_device *device, base_diag *diag) {
  base_error(diag, (base_loc){0}, "%s: the file is about another device: %s '%s', %lld units, '%s'",
             path, device->kind, device->name, (long long)device->units, device->features);
  base_hint(diag, "files are found by the device's name; move this one away");
  return BASE_INVALID;
}

base_status tune_database_read(tune_database *database, const char *path, base_str text,
                               const tune_device *device, tune_file *file, base_diag *diag) {
  base_diag found;
  base_diag_init(&found, &database->scratch, base_str_from(path), text);
  *file = tune_file_read(database->arena, &database->scratch, text, database->winners_only, &found);
  const bool refused = file->state == TUNE_FILE_REFUSED;
  hand_on(&found, refused, diag);
  if (refused) return found.status;
  if (device && file->has_device && !tune_device_equal(device, &file->device))
    return refuse_device(path, &file->device, diag);
  return BASE_OK;
}

base_status tune_database_text(tune_database *database, const char *path, base_str *text,
                               base_str *why) {
  base_arena *scratch = &database->scratch;
  const base_status status = database->winners_only
                                 ? base_file_read_until(scratch, path, tune_file_winners, text, why)
                                 : base_file_read(scratch, path, text, why);
  if (status == BASE_OK) database->read_bytes += text->length;
  return status;
}

base_status tune_database_refresh(tune_database *database, base_diag *diag) {
  base_str text, why;
  if (!tune_database_exists(database->path)) {
    database->has_file = false;
    database->state = TUNE_FILE_WHOLE;
    database->records = (tune_records){0};
    return BASE_OK;
  }
  const base_status status = tune_database_text(database, database->path, &text, &why);
  if (status != BASE_OK) {
    base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
    return status;
  }
  const base_hash contents = base_hash_bytes(text.data, text.length);
  if (database->has_file && base_hash_equal(contents, database->contents)) return BASE_OK;
  tune_file file;
  const base_status read =
      tune_database_read(database, database->path, text, &database->device, &file, diag);
  if (read != BASE_OK) return read;
  database->has_file = true;
  database->contents = contents;
  database->state = file.state;
  database->records = file.records;
  return BASE_OK;
}

// ---- opening ------------------------------------------------------------------------------------

static void release_database(void *object) {
  tune_database *database = object;
  base_lock_release(&database->lock);
  base_arena_reset(&database->scratch);
}

static tune_database *new_database(base_arena *arena) {
  tune_database *database = base_new(arena, tune_database);
  database->arena = arena;
  base_arena_init(&database->scratch, &arena->allocator);
  base_defer(arena, release_database, database);
  return database;
}

base_arena *tune_database_scratch(tune_database *database) {
  base_arena_reset(&database->scratch);
  database->scratch.escape = database->arena->escape;
  return &database->scratch;
}

// The shipped records are a help: without them all works.
static void read_shipped(tune_database *database, const char *folder, base_diag *diag) {
  const char *path = tune_database_path_of(database->arena, folder, &database->device);
  if (!tune_database_exists(path)) return;
  base_diag problems;
  base_diag_init(&problems, &database->scratch, BASE_STR(""), BASE_STR(""));
  base_str text, why;
  tune_file file;
  if (tune_database_text(database, path, &text, &why) != BASE_OK)
    base_error(&problems, (base_loc){0}, "%.*s", BASE_FMT(why));
  else if (tune_database_read(database, path, text, &database->device, &file, &problems) == BASE_OK)
    database->shipped = file.records;
  for (uint32_t i = 0; i < problems.reports.count; i++) {
    base_warning(diag, (base_loc){0}, "%.*s", BASE_FMT(problems.reports.data[i].message));
    if (problems.reports.data[i].hint.length)
      base_hint(diag, "%.*s", BASE_FMT(problems.reports.data[i].hint));
  }
}

static bool is_no_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

tune_database *tune_database_open(base_arena *arena, const tune_database_options *options,
                                  base_diag *diag) {
  if (is_no_folder(options->folder)) {
    base_error_status(diag, BASE_IO, (base_loc){0}, "'%s' is not a folder", options->folder);
    base_hint(diag, "the database of tuning records is a folder of files, one for each device");
    return NULL;
  }
  tune_database *database = new_database(arena);
  database->device = tune_device_copy(arena, &options->device);
  database->folder = base_str_copy(arena, base_str_from(options->folder)).data;
  database->path = tune_database_path_of(arena, database->folder, &database->device);
  database->read_only = options->read_only || options->winners_only;
  database->winners_only = options->winners_only;
  database->lock_seconds = options->lock_seconds > 0 ? options->lock_seconds : default_lock_seconds;
  tune_database_scratch(database);
  if (tune_database_refresh(database, diag) != BASE_OK) return NULL;
  if (options->shipped) read_shipped(database, options->shipped, diag);
  base_arena_reset(&database->scratch);
  return database;
}

tune_database *tune_database_open_file(base_arena *arena, const char *path, base_diag *diag) {
  tune_database *database = new_database(arena);
  base_str text, why;
  tune_file file;
  tune_database_scratch(database);
  const base_status status = tune_database_text(database, path, &text, &why);
  if (status != BASE_OK) {
    base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
    return NULL;
  }
  if (tune_database_read(database, path, text, NULL, &file, diag) != BASE_OK) return NULL;
  database->path = base_str_copy(arena, base_str_from(path)).data;
  database->folder = "";
  database->read_only = true;
  database->device = file.device;
  database->records = file.records;
  base_arena_reset(&database->scratch);
  return database;
}

const char *tune_database_path(const tune_database *database) {
  return database->path;
}

const tune_device *tune_database_device(const tune_database *database) {
  return &database->device;
}

uint64_t tune_database_read_bytes(const tune_database *database) {
  return database->read_bytes;
}

// ---- looking up ---------------------------------------------------------------------------------

typedef struct candidate {
  const tune_record *record;
  tune_key_distance distance;
  bool shipped;
} candidate;

static bool is_model(const candidate *c) {
  return strcmp(c->record->source, "model") == 0;
}

// Is `a` to be preferred? Both are usable in some way; see tune_database_find.
static bool is_better(const candidate *a, const candidate *b) {
  if ((a->distance.seed > 0) != (b->distance.seed > 0)) return a->distance.seed == 0;
  if (is_model(a) != is_model(b)) return is_model(b);
  if (a->distance.ratio != b->distance.ratio) return a->distance.ratio < b->distance.ratio;
  if (a->distance.seed != b->distance.seed) return a->distance.seed < b->distance.seed;
  if (a->distance.either != b->distance.either) return a->distance.either < b->distance.either;
  if (a->shipped != b->shipped) return b->shipped;
  return strcmp(a->record->date, b->record->date) > 0;
}

const tune_record *tune_database_find(const tune_database *database, const tune_key *key,
                                      bool seeds, tune_match *match) {
  candidate best = {0};
  const uint32_t count = tune_database_count(database);
  for (uint32_t i = 0; i < count; i++) {
    const tune_record *record = tune_database_at(database, i);
    const candidate c = {record, tune_key_compared(&record->key, key),
                         tune_database_is_shipped(database, i)};
    if (c.distance.useless || (c.distance.seed && !seeds)) continue;
    if (!best.record || is_better(&c, &best)) best = c;
  }
  if (!match) return best.record;
  if (!best.record)
    *match = TUNE_NO_MATCH;
  else if (best.distance.seed)
    *match = TUNE_SEED_MATCH;
  else
    *match = best.distance.near == 0 ? TUNE_EXACT_MATCH : TUNE_NEAREST_MATCH;
  return best.record;
}

uint32_t tune_database_count(const tune_database *database) {
  return database->records.count + database->shipped.count;
}

const tune_record *tune_database_at(const tune_database *database, uint32_t index) {
  const uint32_t own = database->records.count;
  return index < own ? &database->records.data[index] : &database->shipped.data[index - own];
}

bool tune_database_is_shipped(const tune_database *database, uint32_t index) {
  return index >= database->records.count;
}

// ---- whole files --------------------------------------------------------------------------------

void tune_database_export(const tune_database *database, base_text *out) {
  tune_file_print(out->arena, &database->device, &database->records, out);
}

bool tune_database_validate(base_arena *arena, const char *path, base_diag *diag) {
  const uint32_t before = diag->error_count;
  base_str text, why;
  if (base_file_read(arena, path, &text, &why) != BASE_OK) {
    base_error_status(diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    return false;
  }
  diag->file = base_str_copy(arena, base_str_from(path));
  diag->source = text;
  tune_file_read(arena, arena, text, false, diag);
  return diag->error_count == before;
}
