// autotune: searching a space of schedules. A strategy says what to try next, from what is known so
// far; the search asks it, has its requests measured, and ends with the finalists side by side. How a
// schedule is measured is not its business: a worker process does it, or a table of recorded times.
//
// Sections: measuring, strategies, searching.
#ifndef FATHOM_AUTOTUNE_SEARCH_H
#define FATHOM_AUTOTUNE_SEARCH_H

#include "autotune/record.h"
#include "autotune/space.h"

// ---- measuring ----------------------------------------------------------------------------------

// What is to be timed, and how long: level 0 shortest, each further one about twice as long.
typedef struct tune_request {
  uint32_t schedule; // its number in the space
  uint32_t level;
} tune_request;

// What is known of a schedule.
typedef struct tune_finding {
  bool tried;
  tune_outcome outcome;
  uint32_t level;  // the highest it was timed at
  uint32_t runs;   // samples; 0: not known
  double seconds;  // TUNE_TIMED: of one call; comparable with all others of the search
  double spread;   // of single samples
  double minimum;  // seconds of the fastest call, as it was measured; 0: not known
  const char *why; // of a failure
} tune_finding;

// Measures requests. Times are comparable although the machine's speed changes: each is taken in turns
// with the default schedule, and says how long the schedule takes while the default takes its usual
// time.
typedef struct tune_measurer {
  void *user;
  // False: nothing can be measured any more; see diag.
  bool (*measure)(void *user, const tune_request *request, tune_finding *finding, base_diag *diag);
  // All schedules in turns with each other, for about `seconds`. Same results.
  bool (*confirm)(void *user, const uint32_t *schedules, uint32_t count, double seconds,
                  tune_finding *findings, base_diag *diag);
} tune_measurer;

// ---- strategies ---------------------------------------------------------------------------------

typedef struct tune_search tune_search;

typedef struct tune_strategy {
  const char *name, *summary;
  size_t state_bytes; // of its own memory, zeroed at the start
  bool tries_all;     // in the end every schedule is tried
  // The next requests, at most `room` (at least one); 0: it has no more.
  uint32_t (*ask)(void *state, tune_search *search, tune_request *requests, uint32_t room);
} tune_strategy;

// "halving", "random", "exhaustive"; NULL: there is none of that name.
const tune_strategy *tune_strategy_find(base_str name);
const tune_strategy *tune_strategy_at(uint32_t index); // NULL past the end

// ---- searching ----------------------------------------------------------------------------------

typedef struct tune_progress {
  uint32_t tried, failed; // schedules
  uint32_t
      planned; // schedules that are to be tried, as far as is known; the budget may end it before
  double elapsed; // seconds
  double budget_seconds;
  double initial_seconds, best_seconds; // 0: not known yet
  const kir_schedule *best, *last;      // NULL: none yet
  const tune_finding *last_finding;
  bool confirming; // the finalists are timed side by side
} tune_progress;

typedef struct tune_search_options {
  const tune_strategy *strategy;
  uint64_t seed;           // the same seed makes the same requests, given the same times
  double seconds;          // budget; 0: none
  uint32_t trials;         // budget of measurements; 0: none
  const double *predicted; // of each schedule, by the cost model, in any unit; NULL: none
  // Trials that were made before, by an interrupted search.
  uint32_t earlier_count;
  const tune_trial *earlier;
  // Schedules to begin with, such as a record's for another compiler.
  uint32_t seed_count;
  const kir_schedule *seeds;
  double (*now)(void *user); // seconds; NULL: base_seconds
  bool (*stop)(void *user);  // true: ends early, with the best so far; may be NULL
  void (*progress)(void *user, const tune_progress *progress); // may be NULL
  // Each trial as it ends, for the journal; false ends the search. May be NULL.
  bool (*record)(void *user, const tune_trial *trial);
  void *user;
} tune_search_options;

typedef enum tune_end {
  TUNE_END_DONE,
  TUNE_END_SECONDS,
  TUNE_END_TRIALS,
  TUNE_END_STOPPED
} tune_end;

typedef struct tune_search_result {
  uint32_t best;                              // number of the schedule
  tune_finding best_finding, initial_finding; // side by side
  double tie_band;                            // share within which times count as equal
  uint32_t measurements, failures;
  tune_end end;
  double elapsed;
} tune_search_result;

enum { TUNE_LEVELS = 8, TUNE_HIGHEST = TUNE_LEVELS };

struct tune_search {
  base_arena *arena;
  const tune_space *space;
  const tune_search_options *options;
  tune_finding *findings; // of each schedule
  // Of each schedule its seconds at each level; 0: not timed at it. Strategies decide by the times of
  // one level, so that a search that goes on after an interruption decides as it would have done.
  double (*times)[TUNE_LEVELS];
  uint64_t random;
};

// Does the schedule need no (further) timing at the level?
bool tune_search_knows(const tune_search *search, uint32_t schedule, uint32_t level);

uint32_t tune_search_random(tune_search *search, uint32_t below);
// The `count` fastest of those timed at `level`, fastest first; fewer when there are fewer.
// TUNE_HIGHEST: of all that were timed, by the highest level of each.
uint32_t tune_search_fastest(const tune_search *search, uint32_t level, uint32_t count,
                             uint32_t *out);

// Searches the space. `arena` holds what is found. False: see diag (the default schedule cannot be
// measured, the measurer gave up).
bool tune_search_run(base_arena *arena, const tune_space *space, const tune_measurer *measurer,
                     const tune_search_options *options, tune_search_result *result,
                     const tune_finding **findings, base_diag *diag);

#endif
