// autotune, internal: what a database holds.
#ifndef FATHOM_AUTOTUNE_DATABASE_INTERNAL_H
#define FATHOM_AUTOTUNE_DATABASE_INTERNAL_H

#include "autotune/database.h"
#include "autotune/record_file.h"

struct tune_database {
  base_arena *arena;
  const char *folder, *path;
  tune_device device;
  bool read_only, winners_only;
  uint64_t read_bytes;
  double lock_seconds;
  tune_records records, shipped;
  // The file that `records` came from: while it is the same it need not be read again.
  bool has_file;
  base_hash contents;
  tune_file_state state;
  // Of one change; released with the arena when an allocation fails in between.
  base_arena scratch;
  base_lock lock;
};

bool tune_database_exists(const char *path);
// The text of a file, or of its beginning where only winners are wanted, in the scratch arena.
base_status tune_database_text(tune_database *database, const char *path, base_str *text,
                               base_str *why);
// Reads the text of a file; uses the scratch arena. What is wrong goes to diag: as warnings when something is left out; as
// errors, and not BASE_OK, when the file is of another schema or of another device than `device`
// (NULL: any).
base_status tune_database_read(tune_database *database, const char *path, base_str text,
                               const tune_device *device, tune_file *file, base_diag *diag);
// Reads the user's file if it is another than the one that was read or written last. Uses the
// scratch arena.
base_status tune_database_refresh(tune_database *database, base_diag *diag);
// Reports an error; returns its status.
base_status tune_database_fail(base_diag *diag, base_status status, base_str why);
// Refuses a change of a read-only database, and makes the folder.
base_status tune_database_prepare(tune_database *database, base_diag *diag);
// An empty scratch arena that escapes to where the database's arena does.
base_arena *tune_database_scratch(tune_database *database);

#endif
