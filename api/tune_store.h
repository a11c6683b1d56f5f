// api, internal: what a search of fathom_tune leaves behind: the lock of the device while it times, the
// journal, the record, the page.
#ifndef FATHOM_API_TUNE_STORE_H
#define FATHOM_API_TUNE_STORE_H

#include "api/tuned.h"
#include "autotune/report.h"
#include "autotune/search.h"

typedef struct api_store_request {
  const ir_graph *graph, *fused;
  const cg_target *target;
  int64_t rows;
  uint32_t threads;
  uint64_t seed;
  bool resume, dry, keep;
  const char *cache; // "warm" or "cold"
  // Asked now and then while another tuner has the device; false ends the waiting.
  bool (*wait)(void *user, const char *holder);
  void *user;
} api_store_request;

typedef struct api_store {
  api_call *call;
  api_store_request request;
  tune_database *database; // NULL: nothing is remembered
  tune_key key;
  const tune_record *known; // with `keep`: of a search that has ended; then nothing else is there
  base_lock lock;
  tune_journal *journal;
  uint32_t earlier_count;
  const tune_trial *earlier; // of the search that is resumed
  uint32_t seed_count;
  kir_schedule seed; // to begin with
  double start;
  BASE_VECTOR(tune_history_entry) history;
} api_store;

// NULL: see the call's diag. With `keep` look at `known` first.
api_store *api_store_open(api_call *call, const api_store_request *request);
// Is a record of the store's database one that comes with Fathom?
bool api_store_is_shipped(const api_store *store, const tune_record *record);
// How long the default schedule took in the search that is resumed; 0: there is none.
double api_store_initial_seconds(const api_store *store, const tune_space *space);
bool api_store_trial(api_store *store, const tune_trial *trial);

typedef struct api_store_outcome {
  const tune_space *space;
  const tune_search_result *found;
  const tune_finding *findings;
  const char *strategy;
  double budget_seconds;
  bool contended;
  double of_ceiling[2]; // of the default and of the best; 0: not measured
  double ceiling_gb_s;
} api_store_outcome;

// Writes the record, and the page where `report` names a folder. False: see the call's diag.
bool api_store_finish(api_store *store, const api_store_outcome *outcome, const char *report,
                      int *stored);
void api_store_close(api_store *store);

#endif
