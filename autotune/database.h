// autotune: the database of tuning records. One YAML file for each device in a folder, readable and
// diffable; a journal beside it while a search runs.
//
// Rules
// - Readers see the old file or the new one, never a part: writers take the file's lock (base_lock,
//   waits for a while, then says who holds it), read what is there now, merge, write a file of a
//   unique name and rename it.
// - What cannot be read never makes a wrong kernel: a damaged file, a record with a part missing or
//   with a schedule that no kernel can have is left out, with a warning that names it. A file of
//   which something was left out is kept as FILE.damaged-N before it is overwritten.
// - Nothing here prints; warnings go to the diagnostics, each with file, line and column in its
//   message, since they are about another text than the diagnostics may be.
// - A database belongs to one thread at a time. Processes and threads with databases of their own
//   share the files.
//
// Sections: opening, looking up, changing, whole files, journals.
#ifndef FATHOM_AUTOTUNE_DATABASE_H
#define FATHOM_AUTOTUNE_DATABASE_H

#include "autotune/record.h"

// Of the files. Those of schema 1, where trials are within their records and `cache` is outside the key,
// are read too, and at the next change written as what is now. Another number is refused with what to
// do.
enum { TUNE_SCHEMA = 2, TUNE_OLDEST_SCHEMA = 1 };

// ---- opening ------------------------------------------------------------------------------------

typedef struct tune_database tune_database;

typedef struct tune_database_options {
  const char *folder;  // of the user's own files; created when something is written
  const char *shipped; // folder of records that come with Fathom; NULL: none. The user's win
  tune_device device;
  bool read_only; // nothing is written, no lock is taken
  // For looking up: no more is read of a file than its keys and winners, which is little of it, and
  // what is wrong with the rest is not noticed. Records have no trials. Read-only.
  bool winners_only;
  double lock_seconds; // how long to wait for a lock; 0: 10
} tune_database_options;

// Reads the device's file, if there is one. Lives in `arena`; records that it gives are valid as long
// as that. NULL: see diag (a folder that is none, a schema from the future, a file about another
// device). Warnings about what was left out are reports of BASE_WARNING. What is wrong with the
// shipped file is a warning too.
tune_database *tune_database_open(base_arena *arena, const tune_database_options *options,
                                  base_diag *diag);
// Any file, whatever device it is about: read-only. NULL: see diag.
tune_database *tune_database_open_file(base_arena *arena, const char *path, base_diag *diag);
// The path of the device's file: FOLDER/KIND-NAME-XXXXXXXX.yaml, made of the device's parts.
const char *tune_database_path(const tune_database *database);
const char *tune_database_path_of(base_arena *arena, const char *folder, const tune_device *device);
const tune_device *tune_database_device(const tune_database *database);
// Bytes of files that were read when it was opened, and since.
uint64_t tune_database_read_bytes(const tune_database *database);

// ---- looking up ---------------------------------------------------------------------------------

typedef enum tune_match {
  TUNE_NO_MATCH,
  TUNE_EXACT_MATCH,   // measured for this very key, but for EITHER parts
  TUNE_NEAREST_MATCH, // for another number of rows
  TUNE_SEED_MATCH,    // by another generator, compiler, ...: only to begin a search with
} tune_match;

// The best record for a key. Those that can be used as they are come before those that need `seeds`
// (a SEED part of their key differs); among them measured ones before those of the model, then the
// one with the nearest rows, with the same EITHER parts (a key that leaves them empty gets any), the
// user's before a shipped one, and the newest. NULL: there is none.
// `match` may be NULL.
const tune_record *tune_database_find(const tune_database *database, const tune_key *key,
                                      bool seeds, tune_match *match);
// The user's records, then the shipped ones; each sorted by tune_record_compare.
uint32_t tune_database_count(const tune_database *database);
const tune_record *tune_database_at(const tune_database *database, uint32_t index);
bool tune_database_is_shipped(const tune_database *database, uint32_t index);

// ---- changing -----------------------------------------------------------------------------------

// All of these write the user's file under its lock, after reading what other processes put there
// meanwhile, which then is in this database too. On failure (BASE_IO: the lock, the disk, rights)
// the file is as it was.

// Stores a record in place of the one of the same thing (tune_record_compare), whose trials of
// schedules that the new one did not try are kept. Other processes' records stay. BASE_INVALID: see
// tune_record_problem.
base_status tune_database_put(tune_database *database, const tune_record *record, base_diag *diag);

typedef struct tune_merge_counts {
  uint32_t added, replaced, kept; // records; kept: the database's own was newer, or as new
} tune_merge_counts;

// Takes in the records of another file about the same device: of two about the same thing the newer
// one, with the trials of both. What cannot be read is left out with a warning; BASE_INVALID when that is
// all of it.
base_status tune_database_merge(tune_database *database, const char *path,
                                tune_merge_counts *counts, base_diag *diag);

// What is to go: records that differ in one of the parts that are given.
typedef struct tune_prune_rule {
  const char *generator, *compiler, *driver; // NULL: any is good
  int64_t timing;                            // 0: any is good
  const char *before;                        // records with an older date go; NULL: none
  // Called for each record that goes, which is valid during the call; NULL: nobody asks. With the
  // lock held: it may not use the database.
  void (*gone)(void *user, const tune_record *record);
  void *user;
} tune_prune_rule;

// *pruned: how many went; with `dry` how many would go, and nothing is written.
base_status tune_database_prune(tune_database *database, const tune_prune_rule *rule, bool dry,
                                uint32_t *pruned, base_diag *diag);

// ---- whole files --------------------------------------------------------------------------------

// The user's records as the text of a file.
void tune_database_export(const tune_database *database, base_text *out);
// Reports everything in a file that would be left out as an error with its place; sets diag's file
// and source to it. True: there is nothing.
bool tune_database_validate(base_arena *arena, const char *path, base_diag *diag);
// The paths of a folder's files of records, sorted; none when there is no folder.
const char *const *tune_database_list(base_arena *arena, const char *folder, uint32_t *count);

// ---- journals -----------------------------------------------------------------------------------

// Trials as they end, one line each, appended and flushed; a line that was cut off is ignored. There
// is one journal for each key, beside the database's file, and one search at a time may have it.
typedef struct tune_journal tune_journal;

// Begins an empty journal, or with `resume` goes on with what an interrupted search left: its trials
// are then at *trials. NULL: see diag (BASE_UNSUPPORTED: another search of this key runs; BASE_INVALID:
// the journal is of another seed; BASE_IO: the disk).
tune_journal *tune_journal_open(tune_database *database, const tune_key *key, uint64_t seed,
                                bool resume, uint32_t *count, const tune_trial **trials,
                                base_diag *diag);
// Is there one, of whatever seed: did a search of this key not end, or does it still run?
bool tune_journal_is_left(const tune_database *database, const tune_key *key);
base_status tune_journal_append(tune_journal *journal, const tune_trial *trial, base_diag *diag);
// Closes it; `done`: its trials are in the database, so the file goes. The arena closes it too.
void tune_journal_close(tune_journal *journal, bool done);

#endif
