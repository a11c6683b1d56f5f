// tuned: records of tuning, found for a graph.
//
// A context reads a device's file when it first needs it, and again when the file has changed. What is
// wrong with it is a matter for `fathom cache validate`: compiling goes on without.
#include "api/tuned.h"

#include "codegen/artefact_cache.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct api_records {
  base_arena arena;
  const tune_database *database; // NULL: there is none that can be read
  cg_identity identity;
  struct stat file; // when it was read
};

// ---- opening ------------------------------------------------------------------------------------

// share/fathom/tuned beside the library's folder, of an installation or a build.
static const char *shipped_folder(base_arena *arena) {
  static const char here;
  Dl_info library;
  if (dladdr(&here, &library) == 0 || library.dli_fname == NULL) return NULL;
  const char *slash = strrchr(library.dli_fname, '/');
  int length = slash != NULL ? (int)(slash - library.dli_fname) : 0;
  const char *folder =
      base_str_format(arena, "%.*s/../share/fathom/tuned", length, library.dli_fname).data;
  return access(folder, R_OK | X_OK) == 0 ? folder : NULL;
}

static bool find_options(base_arena *arena, const fathom_context *context, const cg_target *target,
                         tune_database_options *out, cg_identity *identity) {
  if (context->cache_directory[0] == 0 || !target->identify(arena, identity)) return false;
  rt_processor processor = rt_processor_read();
  *out = (tune_database_options){
      .folder = base_str_format(arena, "%s/tuned", context->cache_directory).data,
      .shipped = shipped_folder(arena),
      .device = {.kind = "cpu",
                 .name = base_str_copy(arena, base_str_from(processor.name)).data,
                 .features = identity->machine,
                 .units = processor.cores},
  };
  return true;
}

bool api_tuned_options(api_call *call, const cg_target *target, tune_database_options *out,
                       cg_identity *identity) {
  return find_options(&call->arena, call->context, target, out, identity);
}

tune_key api_tuned_key(api_call *call, const ir_graph *graph, const char *compiler,
                       uint32_t threads) {
  return (tune_key){
      .graph = graph != NULL ? base_hash_hex(&call->arena, ir_hash(graph)).data : "",
      .target = "cpu",
      .rows = 1,
      .threads = threads,
      .layout = "dense",
      .alignment = RT_ALIGNMENT,
      .cache = "", // whoever runs a kernel does not say what it will find there
      .generator = cg_generator_id(),
      .compiler = compiler,
      .driver = "",
      .timing = API_TIMING_VERSION,
  };
}

// ---- the context's copy -------------------------------------------------------------------------

static void forget(void *opaque) {
  fathom_context *context = opaque;
  if (context->records == NULL) return;
  base_arena_reset(&context->records->arena);
  free(context->records);
  context->records = NULL;
}

void api_records_close(fathom_context *context) {
  forget(context);
}

static bool has_changed(const struct stat *before, const char *path) {
  struct stat now;
  if (stat(path, &now) != 0) memset(&now, 0, sizeof now);
  return now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != before->st_mtim.tv_nsec || now.st_size != before->st_size ||
         now.st_ino != before->st_ino;
}

static void read_records(struct api_records *records, const fathom_context *context,
                         const cg_target *target) {
  tune_database_options options;
  base_diag unused;
  base_diag_init(&unused, &records->arena, BASE_STR(""), BASE_STR(""));
  if (!find_options(&records->arena, context, target, &options, &records->identity)) return;
  options.winners_only = true;
  records->database = tune_database_open(&records->arena, &options, &unused);
  if (records->database == NULL || stat(tune_database_path(records->database), &records->file) != 0)
    memset(&records->file, 0, sizeof records->file);
}

// Nothing but the jump lives in this frame.
static bool read_guarded(struct api_records *records, const fathom_context *context,
                         const cg_target *target) {
  jmp_buf escape;
  bool good = BASE_TRY(&records->arena, escape);
  if (good) read_records(records, context, target);
  records->arena.escape = NULL;
  return good;
}

// Under the context's lock. NULL: out of memory.
static struct api_records *have_records(fathom_context *context, const cg_target *target) {
  struct api_records *records = context->records;
  if (records != NULL && records->database != NULL &&
      !has_changed(&records->file, tune_database_path(records->database)))
    return records;
  forget(context);
  records = context->records = calloc(1, sizeof *records);
  if (records == NULL) return NULL;
  base_arena_init(&records->arena, &context->allocator);
  if (read_guarded(records, context, target)) return records;
  forget(context);
  return NULL;
}

// ---- finding ------------------------------------------------------------------------------------

static bool is_usable(const tune_record *record, const tune_key *key) {
  tune_key_distance distance = tune_key_compared(&record->key, key);
  return !distance.useless && distance.seed == 0 && strcmp(record->source, "measured") == 0;
}

// Ascending; of several for the same rows the user's, and of those the newest, whatever it found in
// the caches.
static uint32_t insert(api_tuned *found, uint32_t count, const tune_record *record, bool shipped) {
  uint32_t at = 0;
  api_tuned own = {.rows = record->key.rows, .shipped = shipped};
  size_t bytes = strlen(record->best.schedule) + 1;
  if (bytes > sizeof own.schedule) return count;
  memcpy(own.schedule, record->best.schedule, bytes);
  snprintf(own.date, sizeof own.date, "%s", record->date);
  while (at < count && found[at].rows < own.rows)
    at++;
  if (at < count && found[at].rows == own.rows) {
    if (shipped == found[at].shipped && strcmp(own.date, found[at].date) > 0) found[at] = own;
    return count;
  }
  memmove(&found[at + 1], &found[at], (count - at) * sizeof *found);
  found[at] = own;
  return count + 1;
}

// Only code for this machine's CPU, without a schedule of its own.
static bool takes_tuned(const api_request *request) {
  return request->kind == API_CPU && request->cg.schedule[0] == 0 &&
         strcmp(request->cg.cpu, "host") == 0;
}

// The records are read under the context's lock, where nothing may run out of memory: so what is found
// goes to memory that was there before.
uint32_t api_tuned_find(api_call *call, const ir_graph *graph, const cg_target *target,
                        const api_request *request, const api_tuned **out) {
  fathom_context *context = call->context;
  char compiler[64] = "";
  uint32_t count = 0;
  *out = NULL;
  if (!takes_tuned(request) || context->cache_directory[0] == 0) return 0;
  pthread_mutex_lock(context->lock);
  const struct api_records *records = have_records(context, target);
  uint32_t all = records && records->database ? tune_database_count(records->database) : 0;
  if (all > 0) snprintf(compiler, sizeof compiler, "%s", records->identity.compiler);
  pthread_mutex_unlock(context->lock);
  if (all == 0) return 0;
  api_tuned *found = base_new_array(&call->arena, api_tuned, all);
  tune_key key = api_tuned_key(call, graph, compiler, rt_pool_threads(context->threads));
  pthread_mutex_lock(context->lock);
  if (context->records == records) // nobody has read them anew meanwhile
    for (uint32_t i = 0; i < all; i++) {
      const tune_record *record = tune_database_at(records->database, i);
      if (is_usable(record, &key))
        count = insert(found, count, record, tune_database_is_shipped(records->database, i));
    }
  pthread_mutex_unlock(context->lock);
  *out = found;
  return count;
}

const char *api_axes_text(base_arena *arena, const ir_graph *graph) {
  base_text text = {.arena = arena};
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    int64_t size = ir_axis_size(graph, (ir_axis){i});
    if (size >= 0)
      base_text_printf(&text, "%s%.*s=%lld", text.length ? " " : "",
                       BASE_FMT(graph->axes.data[i].name), (long long)size);
  }
  return text.length ? text.data : "";
}

int64_t api_rows_of(const ir_graph *graph, int64_t size) {
  int64_t rows = 1;
  for (uint32_t i = 0; i < graph->axes.count; i++)
    if (ir_axis_size(graph, (ir_axis){i}) < 0 && __builtin_mul_overflow(rows, size, &rows))
      return INT64_MAX;
  return rows;
}

// Which of two numbers of rows is nearer to a third, by ratio: without logarithms, and without a
// product that overflows.
bool api_second_is_nearer(int64_t first, int64_t second, int64_t rows) {
  return (double)rows * (double)rows > (double)first * (double)second;
}

const api_tuned *api_tuned_nearest(const api_tuned *tuned, uint32_t count, int64_t rows) {
  const api_tuned *best = tuned;
  for (uint32_t i = 1; i < count; i++)
    if (api_second_is_nearer(best->rows, tuned[i].rows, rows)) best = &tuned[i];
  return best;
}

void api_tuned_apply(api_call *call, const ir_graph *graph, const cg_target *target, int64_t rows,
                     api_request *request) {
  const api_tuned *tuned;
  uint32_t count = api_tuned_find(call, graph, target, request, &tuned);
  if (count == 0) return;
  request->cg.schedule = api_tuned_nearest(tuned, count, rows)->schedule;
  request->cg.schedule_source = "tuned";
}
