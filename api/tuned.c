// tuned: records of tuning, found for a graph.
//
// A context reads a device's file when it first needs it, and again when the file has changed. What is
// wrong with it is a matter for `fathom cache validate`: compiling goes on without.
#include "api/tuned.h"

#include "codegen/artefact_cache.h"
#include "codegen/cuda/gpu.h"
#include "runtime/cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Of one device.
struct api_records {
  struct api_records *next;
  base_arena arena;
  api_place place;
  const tune_database *database; // NULL: there is none that can be read
  struct stat file;              // when it was read
};

// ---- opening ------------------------------------------------------------------------------------

static bool is_gpu(const api_request *request) {
  return request != NULL && api_targets[request->kind].gpu;
}

static const char *copy_text(base_arena *arena, const char *text) {
  return base_str_copy(arena, base_str_from(text)).data;
}

static bool find_cpu(base_arena *arena, api_place *out) {
  base_str why;
  cg_identity identity;
  const cg_target *target = cg_cpu_target(arena, &why);
  if (target == NULL || !target->identify(arena, &identity)) return false;
  rt_processor processor = rt_processor_read();
  out->options.device = (tune_device){.kind = "cpu",
                                      .name = copy_text(arena, processor.name),
                                      .features = identity.machine,
                                      .units = processor.cores};
  out->target = "cpu";
  out->compiler = identity.compiler;
  out->driver = "";
  return true;
}

// A GPU that is not here has the name that its driver would give it.
static bool find_gpu(base_arena *arena, const api_request *request, api_place *out) {
  cuda_arch arch;
  cg_identity identity;
  const char *name = request->arch[0] != 0 ? request->arch : API_DEFAULT_ARCH;
  const rt_device_facts *facts = request->kind == API_CUDA ? request->facts : NULL;
  if (!cuda_arch_find(name, &arch) || !cg_cuda_target()->identify(arena, &identity)) return false;
  out->target = base_str_format(arena, "cuda:%s", name).data;
  out->compiler = identity.compiler;
  out->driver = "";
  out->options.device.kind = "cuda";
  if (facts != NULL) {
    out->options.device.name = copy_text(arena, facts->name);
    out->options.device.features = base_str_format(arena, "%u.%u", facts->major, facts->minor).data;
    out->options.device.units = facts->multiprocessors;
    uint32_t driver = rt_cuda_version();
    out->driver = base_str_format(arena, "%u.%u", driver / 1000, driver % 1000 / 10).data;
    return true;
  }
  const cuda_gpu *gpu = cuda_gpu_find(name);
  if (gpu == NULL) return false;
  out->options.device.name = cuda_gpu_device_name(arena, gpu);
  out->options.device.features =
      base_str_format(arena, "%u.%u", arch.capability / 10, arch.capability % 10).data;
  out->options.device.units = gpu->multiprocessors;
  return true;
}

static bool find_place(base_arena *arena, const fathom_context *context, const api_request *request,
                       api_place *out) {
  *out = (api_place){0};
  if (context->cache_directory[0] == 0) return false;
  out->options.folder = base_str_format(arena, "%s/tuned", context->cache_directory).data;
  out->options.shipped = api_share_folder(arena, "tuned");
  return is_gpu(request) ? find_gpu(arena, request, out) : find_cpu(arena, out);
}

bool api_tuned_place(api_call *call, const api_request *request, api_place *out) {
  return find_place(&call->arena, call->context, request, out);
}

bool api_tuned_place_cpu(api_call *call, api_place *out) {
  return find_place(&call->arena, call->context, NULL, out);
}

tune_key api_tuned_key(api_call *call, const ir_graph *graph, const api_place *place,
                       uint32_t threads) {
  // Hashing takes memory of the graph's arena, which may be another thread's.
  ir_graph own = graph != NULL ? *graph : (ir_graph){0};
  own.arena = &call->arena;
  return (tune_key){
      .graph = graph != NULL ? base_hash_hex(&call->arena, ir_hash(&own)).data : "",
      .target = place->target,
      .rows = 1,
      .threads = threads,
      .layout = "dense",
      .alignment = RT_ALIGNMENT,
      .cache = "", // whoever runs a kernel does not say what it will find there
      .generator = cg_generator_id(),
      .compiler = place->compiler,
      .driver = place->driver,
      .timing = API_TIMING_VERSION,
  };
}

// ---- the context's copy -------------------------------------------------------------------------

static void forget(struct api_records **link) {
  struct api_records *records = *link;
  *link = records->next;
  base_arena_reset(&records->arena);
  free(records);
}

void api_records_close(fathom_context *context) {
  while (context->records != NULL)
    forget(&context->records);
}

static bool has_changed(const struct stat *before, const char *path) {
  struct stat now;
  if (stat(path, &now) != 0) memset(&now, 0, sizeof now);
  return now.st_mtim.tv_sec != before->st_mtim.tv_sec ||
         now.st_mtim.tv_nsec != before->st_mtim.tv_nsec || now.st_size != before->st_size ||
         now.st_ino != before->st_ino;
}

static void read_records(struct api_records *records) {
  base_diag unused;
  base_diag_init(&unused, &records->arena, BASE_STR(""), BASE_STR(""));
  records->place.options.winners_only = true;
  // Looked at first: when it changes while it is read, it is read once more the next time.
  const char *path = tune_database_path_of(&records->arena, records->place.options.folder,
                                           &records->place.options.device);
  if (stat(path, &records->file) != 0) memset(&records->file, 0, sizeof records->file);
  records->database = tune_database_open(&records->arena, &records->place.options, &unused);
}

// Nothing but the jump lives in this frame. A place's strings go with the records.
static bool read_guarded(struct api_records *records, const fathom_context *context,
                         const api_request *request) {
  jmp_buf escape;
  bool good = BASE_TRY(&records->arena, escape);
  if (good && find_place(&records->arena, context, request, &records->place)) read_records(records);
  records->arena.escape = NULL;
  return good;
}

static bool is_of(const struct api_records *records, const api_place *place) {
  return tune_device_equal(&records->place.options.device, &place->options.device) &&
         strcmp(records->place.target, place->target) == 0;
}

// Under the context's lock. NULL: out of memory.
static const struct api_records *have_records(fathom_context *context, const api_request *request,
                                              const api_place *place) {
  struct api_records **link = &context->records;
  while (*link != NULL && !is_of(*link, place))
    link = &(*link)->next;
  if (*link != NULL && (*link)->database != NULL &&
      !has_changed(&(*link)->file, tune_database_path((*link)->database)))
    return *link;
  if (*link != NULL) forget(link);
  struct api_records *records = calloc(1, sizeof *records);
  if (records == NULL) return NULL;
  base_arena_init(&records->arena, &context->allocator);
  if (read_guarded(records, context, request) && records->place.target != NULL) {
    records->next = context->records;
    return context->records = records;
  }
  forget(&records);
  return NULL;
}

// ---- finding ------------------------------------------------------------------------------------

// The model's word counts where nothing can be measured: for a GPU.
static bool is_usable(const tune_record *record, const tune_key *key) {
  bool by_model = strcmp(record->source, "model") == 0;
  tune_key asked = *key;
  if (by_model) asked.driver = record->key.driver; // a model needs none
  tune_key_distance distance = tune_key_compared(&record->key, &asked);
  return !distance.useless && distance.seed == 0 &&
         (!by_model || strncmp(key->target, "cuda", 4) == 0);
}

// Of two for the same rows: measured before the model's word, the user's before shipped ones, then the
// newest, whatever it found in the caches.
static bool is_better(const api_tuned *a, const api_tuned *b) {
  if (a->by_model != b->by_model) return b->by_model;
  if (a->shipped != b->shipped) return b->shipped;
  return strcmp(a->date, b->date) > 0;
}

// Ascending by rows.
static uint32_t insert(api_tuned *found, uint32_t count, const tune_record *record, bool shipped) {
  uint32_t at = 0;
  api_tuned own = {.rows = record->key.rows,
                   .by_model = strcmp(record->source, "model") == 0,
                   .seconds = 1e-6 * record->best.median_us,
                   .shipped = shipped};
  size_t bytes = strlen(record->best.schedule) + 1;
  if (bytes > sizeof own.schedule) return count;
  memcpy(own.schedule, record->best.schedule, bytes);
  snprintf(own.date, sizeof own.date, "%s", record->date);
  while (at < count && found[at].rows < own.rows)
    at++;
  if (at < count && found[at].rows == own.rows) {
    if (is_better(&own, &found[at])) found[at] = own;
    return count;
  }
  memmove(&found[at + 1], &found[at], (count - at) * sizeof *found);
  found[at] = own;
  return count + 1;
}

// Of a CPU only code for this machine's own.
static bool takes_tuned(const api_request *request) {
  if (!api_targets[request->kind].compiles || request->cg.schedule[0] != 0) return false;
  return is_gpu(request) || strcmp(request->cg.cpu, "host") == 0;
}

// The records are read under the context's lock, where nothing may run out of memory: so what is found
// goes to memory that was there before.
uint32_t api_tuned_find(api_call *call, const ir_graph *graph, const api_request *request,
                        const api_tuned **out) {
  fathom_context *context = call->context;
  uint32_t count = 0;
  api_place place;
  *out = NULL;
  if (!takes_tuned(request) || !api_tuned_place(call, request, &place)) return 0;
  pthread_mutex_lock(context->lock);
  const struct api_records *records = have_records(context, request, &place);
  uint32_t all = records && records->database ? tune_database_count(records->database) : 0;
  pthread_mutex_unlock(context->lock);
  if (all == 0) return 0;
  api_tuned *found = base_new_array(&call->arena, api_tuned, all);
  uint32_t threads = is_gpu(request) ? 0 : rt_pool_threads(context->threads);
  tune_key key = api_tuned_key(call, graph, &place, threads);
  pthread_mutex_lock(context->lock);
  // Where others have come meanwhile, those that there is room for.
  records = have_records(context, request, &place);
  if (records && records->database)
    for (uint32_t i = 0; i < tune_database_count(records->database) && count < all; i++) {
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
    if (ir_axis_size(graph, (ir_axis){i}) < 0 && ir_axis_is_used(graph, (ir_axis){i}) &&
        __builtin_mul_overflow(rows, size, &rows))
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

void api_tuned_apply(api_call *call, const ir_graph *graph, int64_t rows, api_request *request) {
  const api_tuned *tuned;
  uint32_t count = api_tuned_find(call, graph, request, &tuned);
  if (count == 0) return;
  const api_tuned *best = api_tuned_nearest(tuned, count, rows);
  request->cg.schedule = best->schedule;
  request->cg.schedule_source = best->by_model ? "model" : "tuned";
}
