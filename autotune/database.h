// autotune: the database of tuning records. One YAML file for each device in a folder, readable and
// diffable; a journal beside it while a search runs.
//
// Rules
// - Readers see the old file or the new one, never a part: writers take the file's lock (fcntl, waits
//   for a while, then says who holds it), read what is there now, merge, write a file of a unique
//   name and rename it.
// - What cannot be read never makes a wrong kernel: a damaged file, a record with a part missing or
//   with a schedule that no kernel can have is left out, with a warning that names it. A damaged file
//   is kept under another name before it would be overwritten.
// - Nothing here prints; warnings go to the diagnostics.
//
// Sections: opening, looking up, changing, journals.
#ifndef FATHOM_AUTOTUNE_DATABASE_H
#define FATHOM_AUTOTUNE_DATABASE_H

#include "autotune/record.h"

enum { TUNE_SCHEMA = 1 }; // of the files; another number is refused with what to do

// ---- opening ------------------------------------------------------------------------------------

typedef struct tune_database tune_database;

typedef struct tune_database_options {
  const char *folder;  // of the user's own files; created when something is written
  const char *shipped; // folder of records that come with Fathom; NULL: none. The user's win
  tune_device device;
  bool read_only;      // nothing is written, no lock is taken
  double lock_seconds; // how long to wait for a lock; 0: 10
} tune_database_options;

// Reads the device's file, if there is one. Lives in `arena`. NULL: see diag (a folder that is none,
// a schema from the future). Warnings about what was left out are reports of BASE_WARNING.
tune_database *tune_database_open(base_arena *arena, const tune_database_options *options,
                                  base_diag *diag);
// The path of the device's file: FOLDER/KIND-NAME-XXXXXXXX.yaml, made of the device's parts.
const char *tune_database_path(const tune_database *database);

// ---- looking up ---------------------------------------------------------------------------------

typedef enum tune_match {
  TUNE_NO_MATCH,
  TUNE_EXACT_MATCH,   // measured for this very key
  TUNE_NEAREST_MATCH, // for another number of rows
  TUNE_SEED_MATCH,    // by another generator, compiler, ...: only to begin a search with
} tune_match;

// The best record for a key, the user's before the shipped ones, measured ones before those of the
// model. With `seeds` also those of which a SEED part differs. NULL: there is none.
const tune_record *tune_database_find(const tune_database *database, const tune_key *key,
                                      bool seeds, tune_match *match);
uint32_t tune_database_count(const tune_database *database); // the user's and the shipped ones
const tune_record *tune_database_at(const tune_database *database, uint32_t index);

// ---- changing -----------------------------------------------------------------------------------

// Stores a record in place of the one with the same key (all parts), whose trials of schedules that
// the new one did not try are kept. Other processes' records stay.
base_status tune_database_put(tune_database *database, const tune_record *record, base_diag *diag);

// ---- journals -----------------------------------------------------------------------------------

// Trials as they end, one line each, appended and flushed; a line that was cut off is ignored. There
// is one journal for each key.
typedef struct tune_journal tune_journal;

// Begins an empty journal, or with `resume` goes on with what an interrupted search left: its trials
// are then at *trials. NULL: see diag.
tune_journal *tune_journal_open(tune_database *database, const tune_key *key, uint64_t seed,
                                bool resume, uint32_t *count, const tune_trial **trials,
                                base_diag *diag);
base_status tune_journal_append(tune_journal *journal, const tune_trial *trial, base_diag *diag);
// Closes it; `done`: its trials are in the database, so the file goes.
void tune_journal_close(tune_journal *journal, bool done);

#endif
