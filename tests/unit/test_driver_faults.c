// Every error of the driver at every call: the device table says which call failed and with what,
// gives back all it has, and restores the caller's context and capture mode. Also when there is no
// memory left for saying it.
#include "double/cuda_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { PARAMETERS = 24, THREADS = 224 };

static const char *const entries[] = {
#define DRIVER(need, name, symbol, purpose, arguments) #name,
#include "runtime/cuda/driver.def"
#undef DRIVER
};

typedef struct error {
  CUresult number;
  const char *name;
  base_status status;
} error;

static const error errors[] = {
#define DRIVER_ERROR(number, name, status, fate, advice)                                           \
  {number, "CUDA_ERROR_" #name " (" #number ")", BASE_##status},
#include "runtime/cuda/driver_error.def"
#undef DRIVER_ERROR
    {12345, "an error (12345)", BASE_INTERNAL}, // newer than this driver and this table
};

// ---- a session ----------------------------------------------------------------------------------

// All that a host does with a device, up to the first failure. In a struct, so that it survives a
// jump out of the middle.
typedef struct session {
  base_diag *diag;
  rt_device *device;
  rt_code *code;
  rt_timer *timer;
  void *memory;
} session;

static base_status launch_all(session *s, rt_function *function) {
  const char parameters[PARAMETERS] = "";
  rt_device_launch launch = {.function = function,
                             .blocks = 8,
                             .threads = THREADS,
                             .cluster = 1,
                             .shared_bytes = 60000,
                             .parameters = parameters,
                             .parameter_bytes = PARAMETERS};
  const base_status status = s->device->ops->launch(s->device, NULL, &launch, s->diag);
  if (status != BASE_OK) return status;
  launch.cluster = 4;
  launch.programmatic = true;
  return s->device->ops->launch(s->device, NULL, &launch, s->diag);
}

static base_status run(session *s, const rt_image *image) {
  char bytes[64] = "";
  double microseconds;
  rt_function *function;
  rt_device_facts facts;
  base_status status = rt_cuda_facts(0, &facts, s->diag);
#define THEN(call)                                                                                 \
  if (status == BASE_OK) status = call
  THEN(rt_cuda_device_create(0, &s->device, s->diag));
  if (status != BASE_OK) return status;
  rt_device *d = s->device;
  const rt_device_ops *ops = d->ops;
  THEN(ops->allocate(d, sizeof bytes, &s->memory, s->diag));
  THEN(rt_cuda_check_pointer(d, "%x", s->memory, sizeof bytes, s->diag));
  THEN(ops->copy(d, NULL, s->memory, bytes, sizeof bytes, s->diag));
  THEN(ops->load(d, image, &s->code, s->diag));
  THEN(ops->find(d, s->code, "k", THREADS, 60000, &function, NULL, s->diag));
  THEN(ops->timer_create(d, &s->timer, s->diag));
  THEN(ops->timer_start(d, s->timer, NULL, s->diag));
  THEN(launch_all(s, function));
  THEN(ops->timer_stop(d, s->timer, NULL, &microseconds, s->diag));
  THEN(ops->fill(d, NULL, s->memory, 0, sizeof bytes, s->diag));
  THEN(ops->synchronize(d, NULL, s->diag));
#undef THEN
  return status;
}

static void finish(session *s) {
  if (s->device == NULL) return;
  const rt_device_ops *ops = s->device->ops;
  ops->timer_destroy(s->device, s->timer);
  ops->unload(s->device, s->code);
  ops->release(s->device, s->memory);
  ops->destroy(s->device);
}

// Nothing is left in the double, and the thread is as it was: in `context`, in the capture mode
// that threads begin with.
static void expect_as_before(CUcontext context) {
  const double_control *c = cuda_double();
  const double_counts counts = c->counts();
  CUcontext current;
  int mode = 0;
  c->inject(NULL, 0, CUDA_SUCCESS, false);
  assert_string_equal(c->violation(), "");
  assert_int_equal(counts.contexts + counts.modules + counts.memories + counts.events, 0);
  assert_int_equal(counts.depth, context != NULL);
  rt_cuda.cuCtxGetCurrent(&current);
  assert_ptr_equal(current, context);
  rt_cuda.cuThreadExchangeStreamCaptureMode(&mode);
  assert_int_equal(mode, 0);
}

// ---- every error at every call ------------------------------------------------------------------

// Calls whose failure changes nothing for the caller: the outcome stands, or nobody can be told.
static bool is_silent(const char *entry) {
  static const char *const silent[] = {"cuCtxPopCurrent", "cuDevicePrimaryCtxRelease",
                                       "cuModuleUnload",  "cuMemFree",
                                       "cuEventDestroy",  "cuFuncGetParamInfo"};
  for (size_t i = 0; i < COUNT(silent); i++)
    if (strcmp(silent[i], entry) == 0) return true;
  return false;
}

// Calls that also serve what cannot report: leaving, and giving back.
static bool may_be_silent(const char *entry) {
  return is_silent(entry) || strcmp(entry, "cuThreadExchangeStreamCaptureMode") == 0 ||
         strcmp(entry, "cuCtxGetCurrent") == 0 || strcmp(entry, "cuCtxPushCurrent") == 0;
}

typedef struct injection {
  const char *entry;
  int nth;
  const error *error;
  bool late;
} injection;

// An image that does not load can be compiled again, whatever the driver has against it.
static base_status expected_status(const injection *i) {
  const rt_cuda_failure failure = {.result = i->error->number};
  const bool of_image = strcmp(i->entry, "cuModuleLoadDataEx") == 0;
  return of_image && !rt_cuda_context_lost(&failure) && i->error->status != BASE_MEMORY
             ? BASE_UNSUPPORTED
             : i->error->status;
}

// Whether the error was reported.
static bool expect_failure(const injection *i, const rt_image *image, CUcontext context) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  session s = {.diag = &diag};
  cuda_double()->inject(i->entry, i->nth, i->error->number, i->late);
  const base_status status = run(&s, image);
  finish(&s);
  if (!cuda_double()->has_failed()) fail_msg("%s was not called %d times", i->entry, i->nth);
  const bool reported = status != BASE_OK;
  assert_int_equal(diag.reports.count, reported);
  if (reported) {
    const char *text = base_diag_render(&diag).data;
    assert_int_equal(status, expected_status(i));
    assert_int_equal(diag.status, status);
    if (!strstr(text, i->entry) || !strstr(text, " could not ") || !strstr(text, i->error->name) ||
        !strstr(text, "hint: "))
      fail_msg("%s and %s in: %s", i->entry, i->error->name, text);
  }
  base_arena_reset(&arena);
  expect_as_before(context);
  return reported;
}

// The releasing calls do their work whatever they return, as the driver's do.
static bool releases(const char *entry) {
  return is_silent(entry) && strcmp(entry, "cuFuncGetParamInfo") != 0;
}

static void inject_everywhere(CUcontext context) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  const rt_image image = {.ptx = fixture_ptx(&arena, "8.0", 80, "k", PARAMETERS)};
  int counts[COUNT(entries)]; // calls of each in a clean session
  base_diag diag;
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  for (size_t i = 0; i < COUNT(entries); i++)
    counts[i] = -cuda_double()->calls(entries[i]);
  session clean = {.diag = &diag};
  assert_int_equal(run(&clean, &image), BASE_OK);
  finish(&clean);
  for (size_t i = 0; i < COUNT(entries); i++)
    counts[i] += cuda_double()->calls(entries[i]);

  for (size_t i = 0; i < COUNT(entries); i++) {
    const char *entry = entries[i];
    const int calls = counts[i];
    int reported = 0, injected = 0;
    for (int nth = 1; nth <= calls; nth++)
      for (size_t e = 0; e < COUNT(errors); e++) {
        injection injection = {entry, nth, &errors[e], releases(entry)};
        reported += expect_failure(&injection, &image, context);
        injected++;
        if (strcmp(entry, "cuCtxPushCurrent") != 0 && strcmp(entry, "cuCtxPopCurrent") != 0)
          continue;
        injection.late = !injection.late; // push, and pop without having done it
        expect_failure(&injection, &image, context);
      }
    if (is_silent(entry)) assert_int_equal(reported, 0);
    if (!may_be_silent(entry)) assert_int_equal(reported, injected);
    if (may_be_silent(entry) && !is_silent(entry)) assert_true(reported > 0);
    // The rest is called when the driver is opened, and when something has failed.
    if (calls == 0 && strcmp(entry, "cuInit") != 0 && strcmp(entry, "cuDriverGetVersion") != 0 &&
        strcmp(entry, "cuDeviceGetCount") != 0 && strcmp(entry, "cuMemGetInfo") != 0 &&
        strncmp(entry, "cuGetError", 10) != 0)
      fail_msg("%s is never called", entry);
  }
  base_arena_reset(&arena);
}

static void test_thread_without_context(void **unused) {
  (void)unused;
  inject_everywhere(NULL);
}

static void test_thread_with_context(void **unused) {
  (void)unused;
  CUcontext foreign = cuda_double()->foreign_context(), popped;
  rt_cuda.cuCtxPushCurrent(foreign);
  inject_everywhere(foreign);
  rt_cuda.cuCtxPopCurrent(&popped);
}

// ---- errors about errors ------------------------------------------------------------------------

// The driver fails to name its error, or to say how much memory is free.
static void test_second_error(void **unused) {
  (void)unused;
  static const struct {
    const char *entry, *message;
  } cases[] = {
      {"cuGetErrorName", "CUDA_ERROR_OUT_OF_MEMORY (2), as the double was asked to say"},
      {"cuGetErrorString", "CUDA_ERROR_OUT_OF_MEMORY (2), which the driver does not describe"},
      {"cuMemGetInfo", "; 1099511627776 bytes were asked for"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    cuda_fixture f;
    cuda_setup_device(&f);
    void *memory;
    cuda_double()->inject(cases[i].entry, 1, CUDA_ERROR_UNKNOWN, false);
    assert_int_equal(f.device->ops->allocate(f.device, (size_t)1 << 40, &memory, &f.diag),
                     BASE_MEMORY);
    assert_true(cuda_double()->has_failed());
    assert_non_null(strstr(cuda_message(&f), cases[i].message));
    cuda_teardown(&f);
  }
}

// Of several failures the first is the one to report.
static void test_first_failure_counts(void **unused) {
  (void)unused;
  rt_cuda_failure failure = {0};
  assert_true(rt_cuda_noted(&failure, RT_CUDA_cuInit, CUDA_SUCCESS));
  assert_false(rt_cuda_noted(&failure, RT_CUDA_cuMemAlloc, CUDA_ERROR_OUT_OF_MEMORY));
  assert_false(rt_cuda_noted(&failure, RT_CUDA_cuMemFree, CUDA_ERROR_INVALID_VALUE));
  assert_true(rt_cuda_noted(&failure, RT_CUDA_cuInit, CUDA_SUCCESS));
  assert_int_equal(failure.result, CUDA_ERROR_OUT_OF_MEMORY);
  assert_int_equal(failure.entry, RT_CUDA_cuMemAlloc);
}

// Machine code that does not load is no failure where there is PTX, but where nothing would help.
static void test_falls_back(void **unused) {
  (void)unused;
  for (size_t e = 0; e < COUNT(errors); e++) {
    cuda_fixture f;
    cuda_setup_device(&f);
    const rt_image image = {.cubin = fixture_cubin(&f.arena, 90, "k"),
                            .ptx = fixture_ptx(&f.arena, "8.0", 90, "k", PARAMETERS)};
    const rt_cuda_failure failure = {.result = errors[e].number};
    const bool hopeless = rt_cuda_context_lost(&failure) || errors[e].status == BASE_MEMORY;
    rt_code *code;
    cuda_double()->inject("cuModuleLoadDataEx", 1, errors[e].number, false);
    const base_status status = f.device->ops->load(f.device, &image, &code, &f.diag);
    assert_int_equal(status, hopeless ? errors[e].status : BASE_OK);
    if (code) assert_string_equal(rt_cuda_code_form(code), "ptx");
    f.device->ops->unload(f.device, code);
    cuda_teardown(&f);
  }
}

// ---- no memory for the report -------------------------------------------------------------------

static void *refuse(void *user, size_t size) {
  (void)size;
  ++*(int *)user;
  return NULL;
}

// Whether the session jumped away. A function of its own, with nothing that a jump could lose.
static bool jumps(session *s, const rt_image *image) {
  jmp_buf escape;
  if (!BASE_TRY(s->diag->arena, escape)) return true;
  run(s, image);
  return false;
}

static void test_no_memory_for_the_report(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup(&f);
  const rt_image image = {.ptx = fixture_ptx(&f.arena, "8.0", 80, "k", PARAMETERS)};
  int jumped = 0;
  for (size_t i = 0; i < COUNT(entries); i++) {
    if (may_be_silent(entries[i])) continue;
    int refused = 0;
    const base_allocator allocator = {.user = &refused, .allocate = refuse};
    base_arena empty;
    base_arena_init(&empty, &allocator);
    base_diag_init(&f.diag, &empty, BASE_STR(""), BASE_STR(""));
    session s = {.diag = &f.diag};
    cuda_double()->inject(entries[i], 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    jumped += jumps(&s, &image);
    finish(&s);
    assert_int_equal(refused > 0, cuda_double()->has_failed());
    base_arena_reset(&empty);
    expect_as_before(NULL);
  }
  assert_true(jumped > 15);
  cuda_teardown(&f);
}

// Opened once: from here on it is remembered.
static int open_driver(void **unused) {
  (void)unused;
  base_arena arena;
  base_str path, why;
  cuda_double();
  base_arena_init(&arena, NULL);
  const base_status status = rt_cuda_open(&arena, &path, &why);
  base_arena_reset(&arena);
  return status != BASE_OK;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_thread_without_context),
      cmocka_unit_test(test_thread_with_context),
      cmocka_unit_test(test_second_error),
      cmocka_unit_test(test_first_failure_counts),
      cmocka_unit_test(test_falls_back),
      cmocka_unit_test(test_no_memory_for_the_report),
  };
  return cmocka_run_group_tests(tests, open_driver, NULL);
}
