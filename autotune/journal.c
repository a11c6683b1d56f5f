// Journals: trials of one search as they end.
//
// A journal is a YAML list, an item a line: first what search it is of, then its trials. Each line
// is read by itself, so one that was cut off costs nothing but itself; it is removed before anything
// is appended. Lines go to the kernel with one write each: they survive the process, though perhaps
// not the machine, for which a search would have to wait for the disk after each trial.
#include "autotune/database_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct tune_journal {
  tune_database *database;
  const char *path, *target;
  int fd; // -1: closed
  off_t length;
  base_lock lock;
};

static void close_file(void *object) {
  tune_journal *journal = object;
  if (journal->fd >= 0) close(journal->fd);
  journal->fd = -1;
  base_lock_release(&journal->lock);
}

// FOLDER/KIND-NAME-XXXXXXXX-KEY.journal, KEY being 16 digits of the key's hash.
static const char *path_of(const tune_database *database, const tune_key *key) {
  const size_t stem = strlen(database->path) - strlen(".yaml");
  const base_str hash = base_hash_hex(database->arena, tune_key_hash(key));
  return base_str_format(database->arena, "%.*s-%.16s.journal", (int)stem, database->path,
                         hash.data)
      .data;
}

// ---- lines --------------------------------------------------------------------------------------

static base_str header_line(base_arena *arena, const tune_key *key, uint64_t seed) {
  base_text line = {.arena = arena};
  base_yaml_writer *writer = base_yaml_begin(arena, &line);
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  base_yaml_put_mapping(writer, BASE_YAML_FLOW);
  base_yaml_put_string(writer, "journal");
  base_yaml_put_integer(writer, TUNE_SCHEMA);
  base_yaml_put_string(writer, "seed");
  base_yaml_put_natural(writer, seed);
  base_yaml_put_string(writer, "key");
  tune_key_write(writer, key);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, false);
  return base_text_str(&line);
}

static base_str trial_line(base_arena *arena, const tune_trial *trial) {
  base_text line = {.arena = arena};
  base_yaml_writer *writer = base_yaml_begin(arena, &line);
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  tune_trial_write(writer, trial);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, false);
  return base_text_str(&line);
}

// The one item of a line; NULL with the reason in diag.
static const base_yaml *read_line(base_arena *arena, base_str line, uint32_t number,
                                  base_diag *diag) {
  const base_yaml *list = base_yaml_read(arena, line, number, diag);
  if (!list || !base_yaml_is_list(list, diag)) return NULL;
  if (list->count == 1) return list->items[0].value;
  base_error(diag, list->loc, "expected one item");
  return NULL;
}

// ---- resuming -----------------------------------------------------------------------------------

typedef BASE_VECTOR(tune_trial) trials;

typedef struct journal_reader {
  base_arena *arena, *scratch;
  base_str path, text;
  const tune_key *key;
  uint64_t seed;
  base_diag *diag;
  size_t used;  // bytes of whole lines
  bool same;    // the header is as asked for
  bool of_seed; // so is its seed
  uint64_t its_seed;
  trials trials;
} journal_reader;

static void read_header(journal_reader *r, base_str line, base_diag *found) {
  static const char *const names[] = {"journal", "seed", "key"};
  const base_yaml *node = read_line(r->scratch, line, 1, found);
  if (!node || !base_yaml_is_mapping(node, names, 3, found)) return;
  const base_yaml *schema = base_yaml_find(node, "journal"), *key = base_yaml_find(node, "key");
  const base_yaml *seed = base_yaml_find(node, "seed");
  tune_key read;
  int64_t number;
  if (!schema || !key || !seed) return;
  r->same = base_yaml_integer(schema, TUNE_SCHEMA, TUNE_SCHEMA, &number, found) &&
            tune_key_read(key, &read, found) && tune_key_compare(&read, r->key) == 0 &&
            base_yaml_natural(seed, &r->its_seed, found);
  r->of_seed = r->same && r->its_seed == r->seed;
}

static void warn(journal_reader *r, uint32_t line, const base_diag *found) {
  if (found->error_count == 0) return;
  base_warning(r->diag, (base_loc){0}, "%.*s:%u: left out: %.*s", BASE_FMT(r->path), line,
               BASE_FMT(found->reports.data[0].message));
}

static void take_trial(journal_reader *r, base_str line, uint32_t number) {
  base_diag found;
  base_diag_init(&found, r->scratch, r->path, r->text);
  const base_yaml *node = read_line(r->scratch, line, number, &found);
  tune_trial trial;
  if (node && tune_trial_read(node, r->key->target, &trial, &found))
    base_push(r->arena, &r->trials, tune_trial_copy(r->arena, &trial, r->key->target));
  warn(r, number, &found);
}

static void read_journal(journal_reader *r) {
  for (uint32_t number = 1;; number++) {
    const char *start = r->text.data + r->used;
    const char *newline = memchr(start, '\n', r->text.length - r->used);
    if (!newline) return;
    const base_str line = {start, (size_t)(newline - start) + 1};
    if (number == 1) {
      base_diag found;
      base_diag_init(&found, r->scratch, r->path, r->text);
      read_header(r, line, &found);
      warn(r, number, &found);
      if (!r->of_seed) return;
    } else {
      take_trial(r, line, number);
    }
    r->used += line.length;
  }
}

// What an interrupted search left. *length: of what stays in the file.
static base_status resume_from(tune_journal *journal, journal_reader *r, base_diag *diag) {
  base_str why;
  if (!tune_database_exists(journal->path)) return BASE_OK;
  const base_status status = base_file_read(r->scratch, journal->path, &r->text, &why);
  if (status != BASE_OK) return tune_database_fail(diag, status, why);
  read_journal(r);
  if (r->same && !r->of_seed) {
    base_error(diag, (base_loc){0}, "%s: the search that was interrupted had seed %" PRIu64,
               journal->path, r->its_seed);
    base_hint(diag, "resume it with that seed, or begin anew");
    return BASE_INVALID;
  }
  journal->length = (off_t)r->used;
  return BASE_OK;
}

// ---- opening ------------------------------------------------------------------------------------

static base_status fail_file(tune_journal *journal, const char *verb, base_diag *diag) {
  const int error = errno;
  return tune_database_fail(
      diag, BASE_IO,
      base_str_format(diag->arena, "cannot %s '%s': %s", verb, journal->path, strerror(error)));
}

// Appends a line, or leaves the file as it was.
static base_status append_line(tune_journal *journal, base_str line, base_diag *diag) {
  ssize_t put;
  do {
    put = pwrite(journal->fd, line.data, line.length, journal->length);
  } while (put < 0 && errno == EINTR);
  if (put >= 0 && (size_t)put == line.length) {
    journal->length += put;
    return BASE_OK;
  }
  if (put >= 0) errno = ENOSPC; // a part went in
  const base_status status = fail_file(journal, "write", diag);
  if (ftruncate(journal->fd, journal->length) != 0) fail_file(journal, "truncate", diag);
  return status;
}

static base_status open_file(tune_journal *journal, base_str header, base_diag *diag) {
  journal->fd = open(journal->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (journal->fd < 0) return fail_file(journal, "create", diag);
  if (ftruncate(journal->fd, journal->length) != 0) return fail_file(journal, "truncate", diag);
  return journal->length ? BASE_OK : append_line(journal, header, diag);
}

static base_status take_lock(tune_journal *journal, base_diag *diag) {
  tune_database *database = journal->database;
  const char *path = base_str_format(database->arena, "%s.lock", journal->path).data;
  base_str why;
  if (base_lock_take(database->arena, path, "searching for this kernel's schedule",
                     database->lock_seconds, &journal->lock, &why) == BASE_OK)
    return BASE_OK;
  const base_status status = journal->lock.busy ? BASE_UNSUPPORTED : BASE_IO;
  tune_database_fail(diag, status, why);
  if (journal->lock.busy) base_hint(diag, "only one search of a kernel can run at a time");
  return status;
}

static base_status begin(tune_journal *journal, journal_reader *r, bool resume, base_diag *diag) {
  base_status status = take_lock(journal, diag);
  if (status == BASE_OK && resume) status = resume_from(journal, r, diag);
  if (status != BASE_OK) return status;
  return open_file(journal, header_line(r->scratch, r->key, r->seed), diag);
}

tune_journal *tune_journal_open(tune_database *database, const tune_key *key, uint64_t seed,
                                bool resume, uint32_t *count, const tune_trial **trials,
                                base_diag *diag) {
  *count = 0;
  *trials = NULL;
  if (tune_database_prepare(database, diag) != BASE_OK) return NULL;
  base_arena *arena = database->arena;
  tune_journal *journal = base_new(arena, tune_journal);
  *journal = (tune_journal){.database = database, .fd = -1};
  journal->path = path_of(database, key);
  journal->target = base_str_copy(arena, base_str_from(key->target)).data;
  base_defer(arena, close_file, journal);
  journal_reader r = {.arena = arena, .scratch = &database->scratch, .key = key, .seed = seed};
  r.diag = diag;
  r.path = base_str_from(journal->path);
  const base_status status = begin(journal, &r, resume, diag);
  base_arena_reset(&database->scratch);
  if (status != BASE_OK) {
    close_file(journal);
    return NULL;
  }
  *count = r.trials.count;
  *trials = r.trials.data;
  return journal;
}

bool tune_journal_is_left(const tune_database *database, const tune_key *key) {
  return tune_database_exists(path_of(database, key));
}

base_status tune_journal_append(tune_journal *journal, const tune_trial *trial, base_diag *diag) {
  base_arena *scratch = tune_database_scratch(journal->database);
  const char *problem = tune_trial_problem(scratch, trial, journal->target);
  if (problem) {
    base_error(diag, (base_loc){0}, "a trial that cannot be stored: %s", problem);
    return BASE_INVALID;
  }
  const base_status status = append_line(journal, trial_line(scratch, trial), diag);
  base_arena_reset(scratch);
  return status;
}

void tune_journal_close(tune_journal *journal, bool done) {
  if (!journal || journal->fd < 0) return;
  if (done) unlink(journal->path);
  close_file(journal);
}
