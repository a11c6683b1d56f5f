// api, internal: the files of tuning records that a call looks into, and how people and programs see
// them.
#ifndef FATHOM_API_RECORDS_H
#define FATHOM_API_RECORDS_H

#include "api/tuned.h"

typedef struct api_record_file {
  const char *path;
  const tune_database *database; // NULL: nothing of it can be read
  const char *problem;           // why; else ""
  bool shipped;
  bool compiles; // there is a compiler here for what it is about: then
  tune_key own;  // has what this build's keys for it have in common
  bool here;     // about this machine, or a GPU that stands for its architecture
  bool found;    // compilations look into a file of this name; for one that the caller names, as if
} api_record_file;

// Everything lives in the call's arena.
typedef struct api_record_set {
  const char *folder; // "" when the cache is off, or the caller names a file
  uint32_t count;
  api_record_file *files;
} api_record_set;

// The files that a call looks into: the folder's and the shipped ones, or the one that is named. Reports
// of what is left out go to the call's diag. False: see there.
bool api_records_read(api_call *call, api_record_set *set, const char *file);

// ---- texts (records_text.c) ---------------------------------------------------------------------

// Why no compilation here takes a record, in the call's arena; "" when one does. `full` with both
// values of a part that differs.
const char *api_record_flaw(base_arena *arena, const api_record_file *file,
                            const tune_record *record, bool full);
// How the SEED parts of a key differ from this build's, "" when they are equal; with `exact` the EXACT
// ones too.
const char *api_record_difference(base_arena *arena, const tune_key *own, const tune_key *key,
                                  bool exact, bool full);
// Text from a file, with '?' for what could make a terminal do something.
void api_append_shown(base_text *out, const char *text);

// `graph` as in fathom_records_options, without @.
bool api_record_is_of(const tune_record *record, const char *graph);

void api_records_list(const api_record_set *set, const char *graph, base_text *out);
void api_records_show(const api_record_set *set, const char *graph, base_text *out);
// `full`: as show does.
void api_records_json(const api_record_set *set, const char *graph, bool full, base_text *out);

// Records that go, a line each with `why`.
typedef struct api_record_gone {
  tune_record record;
  const char *why;
} api_record_gone;

void api_records_gone(const api_record_gone *gone, uint32_t count, base_text *out);

#endif
