// api, internal: what a search of fathom_tune leaves behind: the lock of the device while it times, the
// journal, the record, the page.
#ifndef FATHOM_API_TUNE_STORE_H
#define FATHOM_API_TUNE_STORE_H

#include "api/tuned.h"
#include "autotune/model.h"
#include "autotune/report.h"
#include "autotune/search.h"

typedef struct api_store_request {
  const ir_graph *graph; // bound, as records are kept for
  const tune_subject *subject;
  const api_request *compile;
  uint64_t seed;
  bool resume, dry, keep;
  bool by_model;     // nothing is timed: that takes no device, and leaves a record of the model
  const char *cache; // "warm" or "cold"
  // Asked now and then while another tuner has the device; false ends the waiting.
  bool (*wait)(void *user, const char *holder);
  // Told once when the disk does not take what is to be remembered. The search goes on without.
  void (*warn)(void *user, const char *why);
  void *user;
} api_store_request;

typedef struct api_store {
  api_call *call;
  api_store_request request;
  tune_database *database; // NULL: nothing is remembered
  const char *unstored;    // why not, where that was wanted; else NULL
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

// NULL: see the call's diag. With `keep` look at `known` first. A folder that cannot be written is no
// reason: then nothing is remembered.
api_store *api_store_open(api_call *call, const api_store_request *request);
// Is a record of the store's database one that comes with Fathom?
bool api_store_is_shipped(const api_store *store, const tune_record *record);
// The figures of this machine's CPU with so many threads, where a search has left some. False: *out is as it was.
bool api_calibration_find(api_call *call, uint32_t threads, tune_calibration *out);
// The machine's figures as they are kept beside its records; false: they are to be measured.
bool api_store_calibration(const api_store *store, tune_calibration *out);
// Keeps them. `contended`: other load was noticed meanwhile.
void api_store_calibrated(api_store *store, const tune_calibration *measured, bool contended);
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

// Writes the record, and the page where `report` names a folder. False: the page could not be written,
// see the call's diag.
bool api_store_finish(api_store *store, const api_store_outcome *outcome, const char *report,
                      int *stored);
void api_store_close(api_store *store);

#endif
