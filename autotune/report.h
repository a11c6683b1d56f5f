// autotune: the page about a tuning run. One file of XHTML with its styles and plots inline, that
// any browser shows without a network and without scripts.
//
// The data is plain, and nothing of it is trusted: names and reasons may hold any bytes, and a time
// that is no time (NaN, infinite, 0, negative, more than 100 days) is left out and counted. NULL
// strings count as "". The same input gives the same bytes, whatever the locale.
//
// Sections: histories, the page.
#ifndef FATHOM_AUTOTUNE_REPORT_H
#define FATHOM_AUTOTUNE_REPORT_H

#include "autotune/record.h"

// ---- histories ----------------------------------------------------------------------------------

// One trial as it ended. A schedule has several when it was timed again, at a higher level.
typedef struct tune_history_entry {
  tune_trial trial;
  double seconds;      // since the search began
  double predicted_us; // by the cost model; 0: none
} tune_history_entry;

// A knob of the space, for people: what it does.
typedef struct tune_knob {
  const char *name, *summary;
} tune_knob;

// A search: one kernel with one number of rows on one device. It owns nothing.
typedef struct tune_history {
  tune_device device;
  const char *graph_name, *axes; // "k3_site", "D=7168 N=9"
  const char *target;            // "cpu", "cuda:sm_90a"
  int64_t rows;                  // 0: none to speak of
  uint32_t threads;              // of the cpu target; else 0
  const char *cache;             // "warm" or "cold": what timed calls found in the caches
  const char *date;              // UTC, "2026-11-30T20:00:00Z"
  bool contended;                // other load was noticed while it was timed

  uint64_t bytes;      // that one call moves at least; 0: unknown
  double flops;        // of one call; 0: unknown
  double ceiling_gb_s; // measured beside: 1e9 bytes a second that a copy moves; 0: unknown
  double peak_gflop_s; // of the arithmetic; 0: unknown

  uint64_t raw_space, legal_space; // schedules: all combinations, those that may run; 0: unknown
  const char *strategy;            // "successive halving"
  uint64_t seed;
  double budget_seconds; // 0: no limit
  uint32_t knob_count;
  const tune_knob
      *knobs; // of the space; others that occur in schedules are shown without a summary

  uint32_t count;
  const tune_history_entry *entries; // in order of time
  tune_trial initial, best;          // the default and the winner; an empty schedule: there is none
  double initial_of_ceiling, best_of_ceiling; // measured in turns with the ceiling; 0: unknown
} tune_history;

// ---- the page -----------------------------------------------------------------------------------

// Appends the whole page: for each history a section with what was found, when, against which
// roofs, by which knobs; with several, a table of all of them comes first. Of thousands of trials
// not all dots are drawn and not all reasons listed, which the page says: it stays below 2 MB for
// any ten histories. Takes memory of the text's arena, also for its own use.
void tune_report_page(const tune_history *histories, uint32_t count, base_text *out);

#endif
