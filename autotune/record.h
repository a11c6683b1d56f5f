// autotune: what is remembered of tuning. A record says, for one kernel on one device, which schedule
// was found best, and how every schedule that was tried did.
//
// Sections: devices, keys, trials, records.
#ifndef FATHOM_AUTOTUNE_RECORD_H
#define FATHOM_AUTOTUNE_RECORD_H

#include "base/base.h"

// ---- devices ------------------------------------------------------------------------------------

// One file of the database is about one device. All members identify it: a CPU model with other
// features, or a GPU with another number of multiprocessors, is another device. Strings are never
// NULL.
typedef struct tune_device {
  const char *kind;     // "cpu" or "cuda"
  const char *name;     // as the system says it: "Intel(R) Xeon(R) Platinum 8481C"
  const char *features; // of a CPU those that decide about code, "avx2 avx512f ..."; of a GPU "9.0"
  int64_t units;        // cores that the process may use, or multiprocessors
} tune_device;

bool tune_device_equal(const tune_device *a, const tune_device *b);

// ---- keys ---------------------------------------------------------------------------------------

// What a timing holds for; the parts are in key.def, with what happens when one differs.
typedef struct tune_key {
#define KEY_TEXT(name, rule, summary) const char *name;
#define KEY_NUMBER(name, rule, summary) int64_t name;
#include "autotune/key.def"
#undef KEY_TEXT
#undef KEY_NUMBER
} tune_key;

typedef enum tune_rule {
  TUNE_EXACT,
  TUNE_NEAREST,
  TUNE_EITHER,
  TUNE_SEED
} tune_rule; // see key.def

typedef struct tune_key_part {
  const char *name, *summary;
  tune_rule rule;
  bool is_text;
  size_t offset; // in tune_key, of a const char * or an int64_t
} tune_key_part;

enum {
#define KEY_TEXT(name, rule, summary) TUNE_KEY_##name,
#define KEY_NUMBER(name, rule, summary) TUNE_KEY_##name,
#include "autotune/key.def"
#undef KEY_TEXT
#undef KEY_NUMBER
  TUNE_KEY_PARTS
};
extern const tune_key_part tune_key_parts[TUNE_KEY_PARTS];

const char **tune_key_text(tune_key *key, const tune_key_part *part); // of a text part
int64_t *tune_key_number(tune_key *key, const tune_key_part *part);   // of a number part
const char *tune_key_text_of(const tune_key *key, const tune_key_part *part);
int64_t tune_key_number_of(const tune_key *key, const tune_key_part *part);

// Orders keys part by part, as key.def lists them: below 0, 0 or above 0.
int tune_key_compare(const tune_key *a, const tune_key *b);
base_hash tune_key_hash(const tune_key *key);
// For messages, on one line: "graph=... target=cpu rows=1024 ...".
void tune_key_print(const tune_key *key, base_text *out);

// How a record's key differs from the one that is asked for.
typedef struct tune_key_distance {
  bool useless; // an EXACT part differs
  double ratio; // of the NEAREST parts, larger by smaller, multiplied: 1 when all are equal
  uint32_t near, either, seed; // parts of that rule that differ
} tune_key_distance;

tune_key_distance tune_key_compared(const tune_key *key, const tune_key *asked);

// ---- trials -------------------------------------------------------------------------------------

// How trying a schedule ended.
typedef enum tune_outcome {
  TUNE_TIMED,    // right, and timed
  TUNE_REFUSED,  // the compiler refuses it, and says why
  TUNE_WRONG,    // results beyond their bounds, or memory outside the outputs written
  TUNE_CRASHED,  // the worker process died
  TUNE_TIMEOUT,  // took longer than it may: killed
  TUNE_MEMORY,   // took more memory than it may
  TUNE_PREDICTED // not run: the cost model's time
} tune_outcome;

typedef struct tune_trial {
  const char *schedule; // complete, as kir_schedule_print writes it
  tune_outcome outcome;
  uint32_t level;   // fidelity: level 0 is timed shortest, each further one about twice as long
  double median_us; // TUNE_TIMED and TUNE_PREDICTED; else 0
  double spread;    // (third quartile - first quartile) / median
  const char *why;  // of a failure, one line; else ""
} tune_trial;

const char *tune_outcome_name(tune_outcome outcome); // "timed", ...
static inline bool tune_outcome_has_time(tune_outcome outcome) {
  return outcome == TUNE_TIMED || outcome == TUNE_PREDICTED;
}
bool tune_outcome_parse(base_str name, tune_outcome *outcome);
// A list of the names, for messages.
void tune_outcome_list(base_text *out);

// ---- records ------------------------------------------------------------------------------------

typedef struct tune_record {
  tune_key key;
  const char *graph_name; // for people: not part of the key
  const char *axes;       // for people: "B=8 D=7168 N=9"
  const char *source;     // "measured" or "model": the latter is never used as if it were measured
  const char *date;       // UTC, "2026-11-30T20:00:00Z"
  uint64_t seed;          // of the search
  tune_trial best, initial; // the winner, and the default schedule beside it in the same run
  double of_ceiling;        // of the winner; 0: not measured
  bool contended;           // other load was noticed while it was timed
  uint32_t trial_count;
  const tune_trial
      *trials; // one for each schedule tried: that of the highest level; none where the
               // database was opened for winners only
} tune_record;

// Why nothing can be done with a record, one line, in `arena`; or NULL: strings that are NULL, a
// schedule that the key's target cannot have, a winner that was not timed, a time that is none, ...
const char *tune_record_problem(base_arena *arena, const tune_record *record);
// The same but for the trials' own parts, when each of them was looked at already.
const char *tune_record_facts_problem(base_arena *arena, const tune_record *record);
// The same for one trial of a kernel for that target.
const char *tune_trial_problem(base_arena *arena, const tune_trial *trial, const char *target);

// Copies own everything they point to. Schedules come out complete, trials sorted by schedule and
// each schedule once (of two trials the first).
tune_trial tune_trial_copy(base_arena *arena, const tune_trial *trial, const char *target);
tune_record tune_record_copy(base_arena *arena, const tune_record *record);
// The record with these trials, which are copied, in place of its own. A record from a file shares the
// rest.
tune_record tune_record_with_trials(base_arena *arena, const tune_record *record,
                                    const tune_trial *trials, uint32_t count);
// `newer` with the trials of `older` of which it has no schedule. Both are copies as above; shares
// what they own.
tune_record tune_record_unite(base_arena *arena, const tune_record *newer,
                              const tune_record *older);

// Two records are of one thing when they have the same key and are both measured, or both of the
// model: a file holds one of them. Orders by key, then measured before model.
int tune_record_compare(const tune_record *a, const tune_record *b);

#endif
