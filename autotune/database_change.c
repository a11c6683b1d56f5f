// The database: changes. Each takes the lock, reads what is there now, edits and writes it all.
#include "autotune/database_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DAMAGED = 1000 }; // damaged files that are kept of one

base_status tune_database_fail(base_diag *diag, base_status status, base_str why) {
  base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
  return status;
}

base_status tune_database_prepare(tune_database *database, base_diag *diag) {
  base_arena *scratch = tune_database_scratch(database);
  base_str why;
  if (database->read_only) {
    base_error(diag, (base_loc){0}, "%s: the database is open for reading only", database->path);
    return BASE_INVALID;
  }
  if (base_directory_create(scratch, database->folder, &why) != BASE_OK)
    return tune_database_fail(diag, BASE_IO, why);
  return BASE_OK;
}

static base_status take_lock(tune_database *database, base_diag *diag) {
  base_arena *scratch = &database->scratch;
  base_str why;
  const char *path = base_str_format(scratch, "%s.lock", database->path).data;
  // The path outlives the scratch arena: it is released with the database at the latest.
  if (base_lock_take(database->arena, path, "writing tuning records", database->lock_seconds,
                     &database->lock, &why) == BASE_OK)
    return BASE_OK;
  return tune_database_fail(diag, BASE_IO, why);
}

// ---- leftovers ----------------------------------------------------------------------------------

// Temporary files of writers that were killed. Who holds the lock is the only writer there is.
static void sweep(tune_database *database) {
  const char *name = strrchr(database->path, '/') + 1;
  const char *prefix = base_str_format(&database->scratch, "%s.tmp-", name).data;
  const size_t room = strlen(database->folder) + 300;
  char *path = base_alloc(&database->scratch, room);
  DIR *folder = opendir(database->folder); // no allocation in an arena while it is open
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0) continue;
    snprintf(path, room, "%s/%s", database->folder, entry->d_name);
    unlink(path);
  }
  closedir(folder);
}

// A file of which something was left out gets a second name before its own goes to another.
static base_status keep_damaged(tune_database *database, base_diag *diag) {
  if (!database->has_file || database->state == TUNE_FILE_WHOLE) return BASE_OK;
  base_arena *scratch = &database->scratch;
  base_str text, why;
  const char *path = NULL;
  for (int i = 1; i <= MOST_DAMAGED; i++) {
    path = base_str_format(scratch, "%s.damaged-%d", database->path, i).data;
    if (access(path, F_OK) != 0) break;
  }
  base_status status = base_file_read(scratch, database->path, &text, &why);
  if (status == BASE_OK) status = base_file_write(scratch, path, text.data, text.length, &why);
  if (status != BASE_OK) return tune_database_fail(diag, status, why);
  base_warning(diag, (base_loc){0}, "%s: the damaged file is kept as %s", database->path, path);
  return BASE_OK;
}

// ---- changes ------------------------------------------------------------------------------------

// Changes `records`, which are a copy of the database's. What it allocates for them lives in the
// database's arena. False: nothing needs to be written.
typedef bool edit(void *user, tune_database *database, tune_records *records);

static base_status write_records(tune_database *database, const tune_records *records,
                                 base_diag *diag) {
  base_arena *scratch = &database->scratch;
  base_text text = {.arena = scratch};
  base_str why;
  tune_file_print(scratch, &database->device, records, &text);
  base_status status = keep_damaged(database, diag);
  if (status != BASE_OK) return status;
  status = base_file_write(scratch, database->path, text.data, text.length, &why);
  if (status != BASE_OK) return tune_database_fail(diag, status, why);
  database->has_file = true;
  database->state = TUNE_FILE_WHOLE;
  database->contents = base_hash_bytes(text.data, text.length);
  database->records = *records;
  return BASE_OK;
}

static base_status change_locked(tune_database *database, edit *change, void *user,
                                 base_diag *diag) {
  base_status status = tune_database_refresh(database, diag);
  if (status != BASE_OK) return status;
  sweep(database);
  const tune_records *now = &database->records;
  tune_records records = {0};
  records.capacity = records.count = now->count;
  records.data = base_new_array(database->arena, tune_record, now->count);
  if (now->count) memcpy(records.data, now->data, now->count * sizeof *now->data);
  return change(user, database, &records) ? write_records(database, &records, diag) : BASE_OK;
}

static base_status change_file(tune_database *database, edit *change, void *user, base_diag *diag) {
  base_lock_release(&database->lock); // of a change that an allocation ended
  base_status status = tune_database_prepare(database, diag);
  if (status == BASE_OK) status = take_lock(database, diag);
  if (status == BASE_OK) status = change_locked(database, change, user, diag);
  base_lock_release(&database->lock);
  base_arena_reset(&database->scratch);
  return status;
}

static bool put_one(void *user, tune_database *database, tune_records *records) {
  tune_record old, *record = user;
  if (tune_records_put(database->arena, records, record, &old)) {
    const tune_record united = tune_record_unite(database->arena, record, &old);
    tune_records_put(database->arena, records, &united, &old);
  }
  return true;
}

base_status tune_database_put(tune_database *database, const tune_record *record, base_diag *diag) {
  const char *problem = tune_record_problem(diag->arena, record);
  if (problem) {
    base_error(diag, (base_loc){0}, "a record that cannot be stored: %s", problem);
    return BASE_INVALID;
  }
  tune_record copy = tune_record_copy(database->arena, record);
  return change_file(database, put_one, &copy, diag);
}

// ---- merging ------------------------------------------------------------------------------------

typedef struct merge {
  const tune_records *others;
  tune_merge_counts counts;
} merge;

static bool merge_all(void *user, tune_database *database, tune_records *records) {
  merge *m = user;
  base_arena *arena = database->arena;
  for (uint32_t i = 0; i < m->others->count; i++) {
    const tune_record *other = &m->others->data[i];
    tune_record own;
    if (!tune_records_put(arena, records, other, &own)) {
      m->counts.added++;
      continue;
    }
    const bool newer = strcmp(other->date, own.date) > 0;
    const tune_record united =
        newer ? tune_record_unite(arena, other, &own) : tune_record_unite(arena, &own, other);
    tune_records_put(arena, records, &united, &own);
    m->counts.replaced += newer;
    m->counts.kept += !newer;
  }
  return m->others->count > 0;
}

base_status tune_database_merge(tune_database *database, const char *path,
                                tune_merge_counts *counts, base_diag *diag) {
  *counts = (tune_merge_counts){0};
  base_str text, why;
  tune_file file;
  const base_status status = base_file_read(tune_database_scratch(database), path, &text, &why);
  if (status != BASE_OK) return tune_database_fail(diag, status, why);
  const base_status read = tune_database_read(database, path, text, &database->device, &file, diag);
  if (read != BASE_OK) return read;
  if (!file.has_device) {
    base_error(diag, (base_loc){0}, "%s: nothing can be read of it", path);
    return BASE_INVALID;
  }
  merge m = {.others = &file.records};
  const base_status merged = change_file(database, merge_all, &m, diag);
  if (merged == BASE_OK) *counts = m.counts;
  return merged;
}

// ---- pruning ------------------------------------------------------------------------------------

typedef struct pruning {
  const tune_prune_rule *rule;
  uint32_t pruned;
} pruning;

static bool differs(const char *wanted, const char *found) {
  return wanted && strcmp(wanted, found) != 0;
}

// Does the record go? Then it is told to who asks.
static bool goes(const tune_prune_rule *rule, const tune_record *record) {
  const tune_key *key = &record->key;
  const bool wanted =
      !differs(rule->generator, key->generator) && !differs(rule->compiler, key->compiler) &&
      !differs(rule->driver, key->driver) && (!rule->timing || rule->timing == key->timing) &&
      !(rule->before && strcmp(record->date, rule->before) < 0);
  if (!wanted && rule->gone) rule->gone(rule->user, record);
  return !wanted;
}

static bool prune_all(void *user, tune_database *database, tune_records *records) {
  (void)database;
  pruning *p = user;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < records->count; i++)
    if (!goes(p->rule, &records->data[i])) records->data[kept++] = records->data[i];
  p->pruned = records->count - kept;
  records->count = kept;
  return p->pruned > 0;
}

base_status tune_database_prune(tune_database *database, const tune_prune_rule *rule, bool dry,
                                uint32_t *pruned, base_diag *diag) {
  *pruned = 0;
  if (dry) {
    for (uint32_t i = 0; i < database->records.count; i++)
      *pruned += goes(rule, &database->records.data[i]);
    return BASE_OK;
  }
  pruning p = {.rule = rule};
  const base_status status = change_file(database, prune_all, &p, diag);
  if (status == BASE_OK) *pruned = p.pruned;
  return status;
}
