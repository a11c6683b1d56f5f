// context: what all calls share (allocator, cache folder, thread pool, devices), and how a public
// call runs.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

// The public enums repeat internal ones, so that fathom.h stands alone; here the two are held
// together.
#define STATUS(name, value, text)                                                                  \
  static_assert((int)FATHOM_##name == (int)BASE_##name, "fathom.h and base/status.def differ");
#include "base/status.def"
#undef STATUS
static_assert((int)FATHOM_F32 == (int)IR_F32 && (int)IR_F32 == (int)RT_F32, "dtypes differ");
static_assert((int)FATHOM_BF16 == (int)IR_BF16 && (int)IR_BF16 == (int)RT_BF16, "dtypes differ");
static_assert((int)FATHOM_F16 == (int)IR_F16 && (int)IR_F16 == (int)RT_F16, "dtypes differ");
static_assert((int)FATHOM_F8E4M3 == (int)IR_F8E4M3 && (int)IR_F8E4M3 == (int)RT_F8E4M3,
              "dtypes differ");
static_assert((int)FATHOM_MAX_RANK == (int)IR_MAX_RANK, "ranks differ");
static_assert((int)FATHOM_MAX_RANK == (int)RT_MAX_RANK, "ranks differ");
static_assert((int)FATHOM_DYNAMIC == (int)IR_DYNAMIC, "the mark of a dynamic size differs");
static_assert((int)FATHOM_DYNAMIC == (int)RT_DYNAMIC, "the mark of a dynamic size differs");

// The first members that structs have grown by: see API_FIRST.
#define GROWN(type, member)                                                                        \
  static_assert(offsetof(type, member) >= api_first_##type, "in the padding of the first version")
GROWN(fathom_optimize_options, target);
GROWN(fathom_compile_options, sanitize);
GROWN(fathom_executable_info, arch);
GROWN(fathom_executor, stream);
GROWN(fathom_check_options, traffic);
GROWN(fathom_bench_options, cache);
GROWN(fathom_bench_result, batch);
GROWN(fathom_tune_options, keep);
GROWN(fathom_tune_result, source);

#define TEXT_OF(number) #number
#define VERSION(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *fathom_version(void) {
  return VERSION(FATHOM_VERSION_MAJOR, FATHOM_VERSION_MINOR, FATHOM_VERSION_PATCH);
}

// ---- calls --------------------------------------------------------------------------------------

static fathom_status attempt(api_call *call, api_body body, void *frame) {
  base_diag_init(&call->diag, &call->arena, BASE_STR(""), BASE_STR(""));
  fathom_status status = body(call, frame);
  return call->diag.error_count > 0 ? api_fail_diag(&call->diag) : status;
}

// Nothing but the jump lives in this frame: what changes in between belongs to the caller.
static fathom_status attempt_guarded(api_call *call, api_body body, void *frame) {
  jmp_buf escape;
  if (BASE_TRY(&call->arena, escape)) return attempt(call, body, frame);
  return api_fail(FATHOM_MEMORY, "out of memory");
}

fathom_status api_call_run(fathom_context *context, api_body body, void *frame) {
  api_call call = {.context = context};
  base_arena_init(&call.arena, &context->allocator);
  fathom_status status = attempt_guarded(&call, body, frame);
  base_arena_reset(&call.arena);
  return status;
}

// ---- structs with a size ------------------------------------------------------------------------

static fathom_status check_size(size_t size, size_t least, const char *type) {
  if (size >= least) return FATHOM_OK;
  return api_fail(FATHOM_INVALID,
                  "%s.size is %zu, expected at least %zu\n"
                  "  hint: set it to sizeof, as FATHOM_INIT does",
                  type, size, least);
}

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

fathom_status api_struct_in(void *local, size_t local_size, size_t first_size, const void *given,
                            const char *type) {
  memset(local, 0, local_size);
  if (given != NULL) {
    size_t size;
    memcpy(&size, given, sizeof size);
    fathom_status status = check_size(size, first_size, type);
    if (status != FATHOM_OK) return status;
    memcpy(local, given, smaller(size, local_size));
  }
  memcpy(local, &local_size, sizeof local_size);
  return FATHOM_OK;
}

fathom_status api_struct_out(void *given, const void *local, size_t local_size, size_t first_size,
                             const char *type) {
  size_t size;
  memcpy(&size, given, sizeof size);
  fathom_status status = check_size(size, first_size, type);
  if (status != FATHOM_OK) return status;
  memset(given, 0, size);
  memcpy(given, local, smaller(size, local_size));
  memcpy(given, &size, sizeof size);
  return FATHOM_OK;
}

// ---- objects ------------------------------------------------------------------------------------

void *api_object_create(api_call *call, size_t size) {
  base_arena arena;
  base_arena_init(&arena, &call->context->allocator);
  arena.escape = call->arena.escape;
  base_arena *object = base_alloc(&arena, size);
  *object = arena;
  return object;
}

void api_object_keep(void *object) {
  ((base_arena *)object)->escape = NULL;
}

void api_object_destroy(void *object) {
  if (object == NULL) return;
  base_arena arena = *(base_arena *)object; // the original goes with its own memory
  base_arena_reset(&arena);
}

fathom_status api_text_out(fathom_text *out, base_str text) {
  out->data = malloc(text.length + 1);
  if (out->data == NULL) return api_fail(FATHOM_MEMORY, "out of memory");
  if (text.length > 0) memcpy(out->data, text.data, text.length);
  out->data[text.length] = 0;
  out->length = text.length;
  return FATHOM_OK;
}

void fathom_text_destroy(fathom_text *text) {
  if (text == NULL) return;
  free(text->data);
  *text = (fathom_text){0};
}

// ---- context ------------------------------------------------------------------------------------

static const char *environment(const char *name) {
  const char *value = getenv(name);
  return value != NULL && value[0] != 0 ? value : NULL;
}

// The folder, "" for none. The order is the one fathom.h documents; without a home there is no
// cache.
static base_str find_cache(base_arena *arena, const char *given, bool *named) {
  const char *own = given != NULL ? given : getenv("FATHOM_CACHE");
  *named = own != NULL && own[0] != 0;
  if (own != NULL) return base_str_copy(arena, base_str_from(own));
  const char *xdg = environment("XDG_CACHE_HOME");
  if (xdg != NULL) return base_str_format(arena, "%s/fathom", xdg);
  const char *home = environment("HOME");
  if (home != NULL) return base_str_format(arena, "%s/.cache/fathom", home);
  return BASE_STR("");
}

static void destroy_lock(void *lock) {
  pthread_mutex_destroy(lock);
}

static void destroy_pool(void *context) {
  rt_pool_destroy(((fathom_context *)context)->pool);
}

static void close_records(void *context) {
  api_records_close(context);
}

static void close_devices(void *context) {
  api_devices_close(context);
}

typedef struct create_frame {
  const fathom_context_options *options;
  fathom_context *context;
} create_frame;

static fathom_status create_body(api_call *call, void *opaque) {
  create_frame *frame = opaque;
  fathom_context *context = frame->context = api_object_create(call, sizeof *context);
  context->allocator = call->context->allocator;
  context->threads = frame->options->threads;
  context->cache_directory =
      find_cache(&context->arena, frame->options->cache_directory, &context->cache_named).data;
  pthread_mutex_t *lock = base_new(&context->arena, pthread_mutex_t);
  if (pthread_mutex_init(lock, NULL) != 0)
    return api_fail(FATHOM_MEMORY, "the context's lock could not be made");
  base_defer(&context->arena, destroy_lock, lock);
  base_defer(&context->arena, destroy_pool, context);
  base_defer(&context->arena, close_records, context);
  base_defer(&context->arena, close_devices, context);
  context->lock = lock;
  return FATHOM_OK;
}

fathom_status fathom_context_create(const fathom_context_options *given, fathom_context **out) {
  api_error_clear();
  API_REQUIRE(out);
  *out = NULL;
  fathom_context_options options;
  fathom_status status = API_STRUCT_IN(options, given, fathom_context_options);
  if (status != FATHOM_OK) return status;
  if ((options.allocate == NULL) != (options.release == NULL))
    return api_fail(FATHOM_INVALID,
                    "an allocator needs both 'allocate' and 'release', only one is set");
  // A context that exists only to make the real one: all that a call asks of it is the allocator.
  fathom_context seed = {
      .allocator = {options.allocator_user, options.allocate, options.release},
  };
  create_frame frame = {.options = &options};
  status = api_call_run(&seed, create_body, &frame);
  if (status != FATHOM_OK) {
    api_object_destroy(frame.context);
    return status;
  }
  api_object_keep(frame.context);
  *out = frame.context;
  return FATHOM_OK;
}

void fathom_context_destroy(fathom_context *context) {
  api_object_destroy(context);
}

fathom_status api_context_pool(fathom_context *context, rt_executor *out) {
  base_status status = BASE_OK;
  pthread_mutex_lock(context->lock);
  if (context->pool == NULL) status = rt_pool_create(context->threads, &context->pool);
  rt_pool *pool = context->pool;
  pthread_mutex_unlock(context->lock);
  if (status != BASE_OK)
    return api_fail((fathom_status)status, "the thread pool could not be made: %s",
                    base_status_text(status));
  *out = rt_pool_executor(pool);
  return FATHOM_OK;
}
