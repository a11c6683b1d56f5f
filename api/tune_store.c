// tune_store: what a search leaves behind.
#include "api/tune_store.h"

#include <string.h>
#include <time.h>

#include "autotune/contest.h"
#include "passes/passes.h"

// ---- opening ------------------------------------------------------------------------------------

// The disk does not take it: the search is worth its time all the same.
static void go_without(api_store *store, const char *why) {
  if (store->unstored) return;
  store->unstored = base_str_copy(&store->call->arena, base_str_from(why)).data;
  store->database = NULL;
  store->journal = NULL;
  store->request.warn(store->request.user, store->unstored);
}

// Takes back what was reported since, if it is about the disk.
static bool forgive(api_store *store, const base_diag *before) {
  base_diag *diag = &store->call->diag;
  if (diag->status != BASE_IO || before->error_count > 0) return false;
  const char *why = "";
  for (uint32_t i = before->reports.count; i < diag->reports.count; i++)
    if (diag->reports.data[i].severity == BASE_ERROR) why = diag->reports.data[i].message.data;
  *diag = *before;
  go_without(store, why);
  return true;
}

// One tuner times at once on a device: two would time each other.
static bool take_device(api_store *store) {
  api_call *call = store->call;
  const char *path =
      base_str_format(&call->arena, "%s.timing", tune_database_path(store->database)).data;
  const char *purpose =
      base_str_format(&call->arena, "tuning @%.*s", BASE_FMT(store->request.graph->name)).data;
  base_str why = {0};
  while (base_lock_take(&call->arena, path, purpose, 0.25, &store->lock, &why) != BASE_OK) {
    if (!store->lock.busy) {
      go_without(store, why.data);
      return true;
    }
    if (store->request.wait(store->request.user, why.data)) continue;
    base_error_status(&call->diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    return false;
  }
  return true;
}

static bool open_database(api_store *store) {
  api_call *call = store->call;
  api_place place;
  base_str why;
  if (store->request.dry || !api_tuned_place(call, store->request.compile, &place)) return true;
  const char *folder = place.options.folder;
  if (base_directory_create(&call->arena, folder, &why) != BASE_OK) {
    go_without(store,
               base_str_format(&call->arena, "the folder of tuning records %s cannot be used: %.*s",
                               folder, BASE_FMT(why))
                   .data);
    return true;
  }
  const base_diag before = call->diag;
  store->database = tune_database_open(&call->arena, &place.options, &call->diag);
  if (!store->database) return forgive(store, &before);
  store->key = api_tuned_key(call, store->request.graph, &place, store->request.subject->threads);
  store->key.rows = store->request.subject->rows;
  store->key.cache = store->request.cache;
  return true;
}

static bool open_journal(api_store *store) {
  const base_diag before = store->call->diag;
  store->journal =
      tune_journal_open(store->database, &store->key, store->request.seed, store->request.resume,
                        &store->earlier_count, &store->earlier, &store->call->diag);
  return store->journal != NULL || forgive(store, &before);
}

// What was found for other rows, or by another compiler, is a good place to begin.
static void find_seed(api_store *store) {
  tune_match match;
  const tune_record *record = tune_database_find(store->database, &store->key, true, &match);
  base_diag unused;
  base_diag_init(&unused, &store->call->arena, BASE_STR(""), BASE_STR(""));
  store->seed = kir_schedule_default(store->request.subject->machine);
  store->seed_count =
      record && kir_schedule_parse(record->best.schedule, &store->seed, &unused) ? 1 : 0;
}

// A search that was interrupted has left a record too, and a journal with it.
static const tune_record *find_known(const api_store *store) {
  tune_match match;
  const tune_record *record = tune_database_find(store->database, &store->key, false, &match);
  const char *source = store->request.by_model ? "model" : "measured";
  bool is_known = match == TUNE_EXACT_MATCH && strcmp(record->source, source) == 0 &&
                  strcmp(record->key.cache, store->request.cache) == 0;
  return is_known && !tune_journal_is_left(store->database, &store->key) ? record : NULL;
}

// False: see the call's diag.
static bool begin_search(api_store *store) {
  base_defer(&store->call->arena, (void (*)(void *))base_lock_release, &store->lock);
  if (!store->request.by_model && !take_device(store)) return false;
  // A tuner that had the device until now may have been at the same thing.
  if (store->database && store->request.keep) {
    if (!open_database(store)) return false;
    if (!store->database) return true;
    store->known = find_known(store);
    if (store->known) return true;
  }
  if (store->database && !open_journal(store)) return false;
  if (store->database) find_seed(store);
  return true;
}

api_store *api_store_open(api_call *call, const api_store_request *request) {
  api_store *store = base_new(&call->arena, api_store);
  store->call = call;
  store->request = *request;
  if (!open_database(store)) return NULL;
  if (store->database && request->keep) store->known = find_known(store);
  if (store->database && !store->known && !begin_search(store)) return NULL;
  store->start = base_seconds();
  return store;
}

bool api_store_is_shipped(const api_store *store, const tune_record *record) {
  for (uint32_t i = 0; i < tune_database_count(store->database); i++)
    if (tune_database_at(store->database, i) == record)
      return tune_database_is_shipped(store->database, i);
  return false;
}

void api_store_close(api_store *store) {
  base_lock_release(&store->lock);
}

// ---- calibration --------------------------------------------------------------------------------

// For so many threads: what one of them gets depends on how many there are.
static const char *calibration_path(base_arena *arena, const char *records, uint32_t threads) {
  return base_str_format(arena, "%s.calibration-%u", records, threads).data;
}

static const char *own_calibration_path(const api_store *store) {
  return calibration_path(&store->call->arena, tune_database_path(store->database),
                          store->request.subject->threads);
}

bool api_calibration_find(api_call *call, uint32_t threads, tune_calibration *out) {
  api_place place;
  bool contended;
  if (!api_tuned_place_cpu(call, &place)) return false;
  const char *records =
      tune_database_path_of(&call->arena, place.options.folder, &place.options.device);
  const char *path = calibration_path(&call->arena, records, threads);
  return tune_calibration_read(&call->arena, path, out, &contended);
}

// Figures of a machine that was busy serve until it is quiet; a search that goes on takes those that it
// began with.
bool api_store_calibration(const api_store *store, tune_calibration *out) {
  bool contended;
  return store->database &&
         tune_calibration_read(&store->call->arena, own_calibration_path(store), out, &contended) &&
         (!contended || store->request.resume);
}

void api_store_calibrated(api_store *store, const tune_calibration *measured, bool contended) {
  base_str why;
  if (store->database && tune_calibration_write(&store->call->arena, own_calibration_path(store),
                                                measured, contended, &why) != BASE_OK)
    go_without(store, why.data);
}

// ---- trials -------------------------------------------------------------------------------------

double api_store_initial_seconds(const api_store *store, const tune_space *space) {
  const char *initial = kir_schedule_text(&store->call->arena, &space->schedules[0]);
  for (uint32_t i = 0; i < store->earlier_count; i++)
    if (tune_outcome_has_time(store->earlier[i].outcome) &&
        strcmp(store->earlier[i].schedule, initial) == 0)
      return store->earlier[i].median_us * 1e-6;
  return 0;
}

bool api_store_trial(api_store *store, const tune_trial *trial) {
  tune_history_entry entry = {*trial, base_seconds() - store->start, 0};
  base_push(&store->call->arena, &store->history, entry);
  const base_diag before = store->call->diag;
  return !store->journal ||
         tune_journal_append(store->journal, trial, &store->call->diag) == BASE_OK ||
         forgive(store, &before);
}

static tune_trial trial_of(base_arena *arena, const tune_space *space, uint32_t schedule,
                           const tune_finding *finding) {
  return (tune_trial){.schedule = kir_schedule_text(arena, &space->schedules[schedule]),
                      .outcome = finding->outcome,
                      .level = finding->level,
                      .median_us = finding->seconds * 1e6,
                      .spread = finding->spread,
                      .why = finding->why ? finding->why : ""};
}

// ---- the record ---------------------------------------------------------------------------------

static const char *date_now(base_arena *arena) {
  char text[32];
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return base_str_copy(arena, base_str_from(text)).data;
}

static tune_record make_record(const api_store *store, const api_store_outcome *outcome) {
  base_arena *arena = &store->call->arena;
  const tune_space *space = outcome->space;
  tune_trial *trials = base_new_array(arena, tune_trial, space->count);
  uint32_t count = 0;
  for (uint32_t i = 0; i < space->count; i++)
    if (outcome->findings[i].tried)
      trials[count++] = trial_of(arena, space, i, &outcome->findings[i]);
  return (tune_record){
      .key = store->key,
      .graph_name = base_str_copy(arena, store->request.graph->name).data,
      .axes = api_axes_text(arena, store->request.graph),
      .source = store->request.by_model ? "model" : "measured",
      .date = date_now(arena),
      .seed = store->request.seed,
      .contended = outcome->contended,
      .best = trial_of(arena, space, outcome->found->best, &outcome->found->best_finding),
      .initial = trial_of(arena, space, 0, &outcome->found->initial_finding),
      .of_ceiling = outcome->of_ceiling[1],
      .trial_count = count,
      .trials = trials,
  };
}

// ---- the page -----------------------------------------------------------------------------------

static const tune_knob *knobs_of(base_arena *arena, kir_machine machine, uint32_t *count) {
  const kir_knob *knob;
  *count = 0;
  while (kir_knob_at(machine, *count))
    ++*count;
  tune_knob *knobs = base_new_array(arena, tune_knob, *count);
  for (uint32_t i = 0; (knob = kir_knob_at(machine, i)) != NULL; i++)
    knobs[i] = (tune_knob){knob->name, knob->summary};
  return knobs;
}

static tune_device page_device(api_call *call, const tune_subject *subject) {
  rt_processor processor = rt_processor_read();
  if (!subject->gpu)
    return (tune_device){"cpu", base_str_copy(&call->arena, base_str_from(processor.name)).data, "",
                         processor.cores};
  return (tune_device){"cuda", cuda_gpu_device_name(&call->arena, subject->gpu),
                       subject->arch->name, subject->gpu->multiprocessors};
}

static bool write_page(const api_store *store, const api_store_outcome *outcome,
                       const tune_record *record, const char *folder) {
  api_call *call = store->call;
  const tune_subject *subject = store->request.subject;
  base_diag unused;
  base_diag_init(&unused, &call->arena, BASE_STR(""), BASE_STR(""));
  const kir_kernel *kernel =
      pass_lower(subject->graph, subject->kernel, &outcome->space->initial, &unused);
  kir_cost cost = kernel ? kir_cost_per_row(kernel) : (kir_cost){0};
  double rows = (double)subject->rows;
  tune_history history = {
      .device = page_device(call, subject),
      .graph_name = record->graph_name,
      .axes = record->axes,
      .target = api_targets[store->request.compile->kind].name,
      .rows = subject->rows,
      .threads = subject->threads,
      .cache = store->request.cache,
      .date = record->date,
      .contended = record->contended,
      .bytes = (uint64_t)((cost.bytes_read + cost.bytes_written) * rows),
      .flops = cost.flops * rows,
      .ceiling_gb_s = outcome->ceiling_gb_s,
      .raw_space = (uint64_t)outcome->space->raw,
      .legal_space = outcome->space->count,
      .strategy = outcome->strategy,
      .seed = record->seed,
      .budget_seconds = outcome->budget_seconds,
      .count = store->history.count,
      .entries = store->history.data,
      .initial = record->initial,
      .best = record->best,
      .initial_of_ceiling = outcome->of_ceiling[0],
      .best_of_ceiling = outcome->of_ceiling[1],
  };
  history.knobs = knobs_of(&call->arena, subject->machine, &history.knob_count);
  base_text page = {.arena = &call->arena};
  tune_report_page(&history, 1, &page);
  base_str why;
  const char *path = base_str_format(&call->arena, "%s/tuning.html", folder).data;
  if (base_directory_create(&call->arena, folder, &why) == BASE_OK &&
      base_file_write(&call->arena, path, page.data, page.length, &why) == BASE_OK)
    return true;
  base_error_status(&call->diag, BASE_IO, (base_loc){0}, "%s cannot be written: %.*s", path,
                    BASE_FMT(why));
  return false;
}

bool api_store_finish(api_store *store, const api_store_outcome *outcome, const char *report,
                      int *stored) {
  tune_record record = make_record(store, outcome);
  *stored = 0;
  if (store->database) {
    const base_diag before = store->call->diag;
    tune_journal *journal = store->journal;
    *stored = tune_database_put(store->database, &record, &store->call->diag) == BASE_OK;
    if (!*stored && !forgive(store, &before)) return false;
    // What could not be stored is still in the journal.
    tune_journal_close(journal, *stored && outcome->found->end != TUNE_END_STOPPED);
  }
  return report == NULL || write_page(store, outcome, &record, report);
}
