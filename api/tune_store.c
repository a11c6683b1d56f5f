// tune_store: what a search leaves behind.
#include "api/tune_store.h"

#include <string.h>
#include <time.h>

#include "autotune/contest.h"
#include "passes/passes.h"

// ---- opening ------------------------------------------------------------------------------------

// One tuner times at once on a device: two would time each other.
static bool take_device(api_store *store) {
  api_call *call = store->call;
  const char *path =
      base_str_format(&call->arena, "%s.timing", tune_database_path(store->database)).data;
  const char *purpose =
      base_str_format(&call->arena, "tuning @%.*s", BASE_FMT(store->request.graph->name)).data;
  base_str why = {0};
  while (base_lock_take(&call->arena, path, purpose, 0.25, &store->lock, &why) != BASE_OK) {
    if (store->request.wait(store->request.user, why.data)) continue;
    base_error_status(&call->diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    return false;
  }
  return true;
}

static bool open_database(api_store *store) {
  api_call *call = store->call;
  tune_database_options options;
  cg_identity identity;
  base_str why;
  if (store->request.dry || !api_tuned_options(call, store->request.target, &options, &identity))
    return true;
  if (base_directory_create(&call->arena, options.folder, &why) != BASE_OK) {
    base_error_status(&call->diag, BASE_IO, (base_loc){0},
                      "the folder of tuning records %s cannot be used: %.*s", options.folder,
                      BASE_FMT(why));
    base_hint(&call->diag,
              "name another cache folder in $FATHOM_CACHE, or remember nothing (--dry)");
    return false;
  }
  store->database = tune_database_open(&call->arena, &options, &call->diag);
  if (!store->database) return false;
  store->key = api_tuned_key(call, store->request.graph, identity.compiler, store->request.threads);
  store->key.rows = store->request.rows;
  store->key.cache = store->request.cache;
  return true;
}

static bool open_journal(api_store *store) {
  store->journal =
      tune_journal_open(store->database, &store->key, store->request.seed, store->request.resume,
                        &store->earlier_count, &store->earlier, &store->call->diag);
  return store->journal != NULL;
}

// What was found for other rows, or by another compiler, is a good place to begin.
static void find_seed(api_store *store) {
  tune_match match;
  const tune_record *record = tune_database_find(store->database, &store->key, true, &match);
  base_diag unused;
  base_diag_init(&unused, &store->call->arena, BASE_STR(""), BASE_STR(""));
  store->seed = kir_schedule_default(KIR_CPU);
  store->seed_count =
      record && kir_schedule_parse(record->best.schedule, &store->seed, &unused) ? 1 : 0;
}

api_store *api_store_open(api_call *call, const api_store_request *request) {
  api_store *store = base_new(&call->arena, api_store);
  store->call = call;
  store->request = *request;
  if (!open_database(store)) return NULL;
  if (store->database) {
    base_defer(&call->arena, (void (*)(void *))base_lock_release, &store->lock);
    if (!take_device(store) || !open_journal(store)) return NULL;
    find_seed(store);
  }
  store->start = tune_now();
  return store;
}

void api_store_close(api_store *store) {
  base_lock_release(&store->lock);
}

// ---- trials -------------------------------------------------------------------------------------

double api_store_initial_seconds(const api_store *store, const tune_space *space) {
  const char *initial = kir_schedule_text(&store->call->arena, &space->schedules[0]);
  for (uint32_t i = 0; i < store->earlier_count; i++)
    if (store->earlier[i].outcome == TUNE_TIMED && strcmp(store->earlier[i].schedule, initial) == 0)
      return store->earlier[i].median_us * 1e-6;
  return 0;
}

bool api_store_trial(api_store *store, const tune_trial *trial) {
  tune_history_entry entry = {*trial, tune_now() - store->start, 0};
  base_push(&store->call->arena, &store->history, entry);
  return !store->journal ||
         tune_journal_append(store->journal, trial, &store->call->diag) == BASE_OK;
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
      .source = "measured",
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

static const tune_knob *knobs_of(base_arena *arena, uint32_t *count) {
  const kir_knob *knob;
  *count = 0;
  while (kir_knob_at(KIR_CPU, *count))
    ++*count;
  tune_knob *knobs = base_new_array(arena, tune_knob, *count);
  for (uint32_t i = 0; (knob = kir_knob_at(KIR_CPU, i)) != NULL; i++)
    knobs[i] = (tune_knob){knob->name, knob->summary};
  return knobs;
}

static bool write_page(const api_store *store, const api_store_outcome *outcome,
                       const tune_record *record, const char *folder) {
  api_call *call = store->call;
  rt_processor processor = rt_processor_read();
  base_diag unused;
  base_diag_init(&unused, &call->arena, BASE_STR(""), BASE_STR(""));
  const kir_kernel *kernel = pass_lower(store->request.fused, 0, &outcome->space->initial, &unused);
  kir_cost cost = kernel ? kir_cost_per_row(kernel) : (kir_cost){0};
  double rows = (double)store->request.rows;
  tune_history history = {
      .device = {"cpu", processor.name, "", processor.cores},
      .graph_name = record->graph_name,
      .axes = record->axes,
      .target = "cpu",
      .rows = store->request.rows,
      .threads = store->request.threads,
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
  history.knobs = knobs_of(&call->arena, &history.knob_count);
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
    if (tune_database_put(store->database, &record, &store->call->diag) != BASE_OK) return false;
    tune_journal_close(store->journal, outcome->found->end != TUNE_END_STOPPED);
    *stored = 1;
  }
  return report == NULL || write_page(store, outcome, &record, report);
}
