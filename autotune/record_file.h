// autotune, internal: the text of a file of the database, and of one trial in a journal.
#ifndef FATHOM_AUTOTUNE_RECORD_FILE_H
#define FATHOM_AUTOTUNE_RECORD_FILE_H

#include "autotune/record.h"
#include "base/yaml.h"

typedef BASE_VECTOR(tune_record) tune_records; // sorted by tune_record_compare, no two equal

typedef enum tune_file_state {
  TUNE_FILE_WHOLE,
  TUNE_FILE_DAMAGED, // something was left out of it, perhaps everything
  TUNE_FILE_REFUSED  // its schema is another: nothing is known about it
} tune_file_state;

typedef struct tune_file {
  tune_file_state state;
  bool has_device; // else `device` is of empty strings
  tune_device device;
  tune_records records;
} tune_file;

// Reads what can be read of a file's text, into `arena`; what is needed meanwhile is in `scratch`,
// which may be the same. `diag` (whose file and source are the text's) gets an error for everything
// that is left out, which is not the end of it. With `winners_only` nothing is read behind the
// document with the keys and the winners, and records have no trials.
tune_file tune_file_read(base_arena *arena, base_arena *scratch, base_str text, bool winners_only,
                         base_diag *diag);
// Bytes of that document, with the line that ends it; 0: the text has not all of it.
size_t tune_file_winners(base_str text);
// The text; the same for the same records.
void tune_file_print(base_arena *arena, const tune_device *device, const tune_records *records,
                     base_text *out);

// A record takes its place among others. True: it was put in for *old, an equal one.
bool tune_records_put(base_arena *arena, tune_records *records, const tune_record *record,
                      tune_record *old);

// Mappings; the reader's errors go to diag.
void tune_key_write(base_yaml_writer *writer, const tune_key *key);
bool tune_key_read(const base_yaml *node, tune_key *key, base_diag *diag);
void tune_trial_write(base_yaml_writer *writer, const tune_trial *trial); // on one line
bool tune_trial_read(const base_yaml *node, const char *target, tune_trial *trial, base_diag *diag);

// As a file can hold it: readers then find what was written.
tune_device tune_device_copy(base_arena *arena, const tune_device *device);

#endif
