// Measuring on a device, against one whose time is made up: the medians are its own, calls go round
// all sets of memory, and nothing is left whichever call fails.
#include "autotune/measure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CACHE = 1 << 20 };
static const double kernel_us = 2.5, bytes_of_us = 1e6; // 1 TB/s

// ---- the device ---------------------------------------------------------------------------------

typedef struct made_up {
  rt_device base;
  double now, start; // microseconds of its own clock
  int memories, timers, calls, fail_at;
  uint32_t kernels, copies, fills;
  const char *lowest, *highest; // that copies read
} made_up;

struct rt_timer {
  int unused;
};

static base_status count(made_up *d, base_diag *diag) {
  if (++d->calls != d->fail_at) return BASE_OK;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "call %d fails", d->calls);
  return BASE_UNSUPPORTED;
}

static base_status allocate(rt_device *device, size_t bytes, void **out, base_diag *diag) {
  made_up *d = (made_up *)device;
  base_status status = count(d, diag);
  *out = status == BASE_OK ? malloc(bytes) : NULL;
  d->memories += *out != NULL;
  return status;
}

static void release(rt_device *device, void *memory) {
  ((made_up *)device)->memories -= memory != NULL;
  free(memory);
}

static base_status copy(rt_device *device, void *stream, void *to, const void *from, size_t bytes,
                        base_diag *diag) {
  made_up *d = (made_up *)device;
  assert_null(stream);
  memcpy(to, from, bytes); // both must be there
  d->now += 2.0 * (double)bytes / bytes_of_us;
  d->copies++;
  if (d->lowest == NULL || (const char *)from < d->lowest) d->lowest = from;
  if (d->highest == NULL || (const char *)from > d->highest) d->highest = from;
  return count(d, diag);
}

static base_status fill(rt_device *device, void *stream, void *to, int byte, size_t bytes,
                        base_diag *diag) {
  made_up *d = (made_up *)device;
  assert_null(stream);
  if (d->fills == 0) memset(to, byte, bytes);
  d->now += (double)bytes / bytes_of_us;
  d->fills++;
  return count(d, diag);
}

static base_status timer_create(rt_device *device, rt_timer **out, base_diag *diag) {
  made_up *d = (made_up *)device;
  base_status status = count(d, diag);
  *out = status == BASE_OK ? malloc(sizeof **out) : NULL;
  d->timers += *out != NULL;
  return status;
}

static base_status timer_start(rt_device *device, rt_timer *timer, void *stream, base_diag *diag) {
  made_up *d = (made_up *)device;
  assert_true(timer != NULL && stream == NULL);
  d->start = d->now;
  return count(d, diag);
}

static base_status timer_stop(rt_device *device, rt_timer *timer, void *stream,
                              double *microseconds, base_diag *diag) {
  made_up *d = (made_up *)device;
  assert_true(timer != NULL && stream == NULL);
  *microseconds = d->now - d->start;
  return count(d, diag);
}

static void timer_destroy(rt_device *device, rt_timer *timer) {
  ((made_up *)device)->timers -= timer != NULL;
  free(timer);
}

static const rt_device_ops ops = {.allocate = allocate,
                                  .release = release,
                                  .copy = copy,
                                  .fill = fill,
                                  .timer_create = timer_create,
                                  .timer_start = timer_start,
                                  .timer_stop = timer_stop,
                                  .timer_destroy = timer_destroy};

static made_up make(void) {
  return (made_up){.base = {.ops = &ops, .facts = {.level2_bytes = CACHE}}};
}

static void run_kernel(void *user) {
  made_up *d = user;
  d->now += kernel_us;
  d->kernels++;
}

static base_status measure(made_up *d, uint32_t sets, uint64_t bytes, tune_comparison *result) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  base_status status =
      tune_measure_device(&d->base, (tune_work){run_kernel, d}, sets, bytes, 0.01, result, &diag);
  assert_int_equal(diag.reports.count > 0, status != BASE_OK);
  base_arena_reset(&arena);
  assert_int_equal(d->memories, 0);
  assert_int_equal(d->timers, 0);
  return status;
}

// ---- tests --------------------------------------------------------------------------------------

static void as_many_sets_as_two_caches(void **state) {
  (void)state;
  made_up d = make();
  assert_int_equal(tune_cold_sets(&d.base, 100000), 21);
  assert_int_equal(tune_cold_sets(&d.base, CACHE), 2);
  assert_int_equal(tune_cold_sets(&d.base, 2 * CACHE), 1);
  assert_int_equal(tune_cold_sets(&d.base, (uint64_t)1 << 40), 1);
  assert_int_equal(tune_cold_sets(&d.base, 0), 1);
  assert_int_equal(tune_cold_sets(&d.base, 1), 512); // no more than are launched in a row
  d.base.facts.level2_bytes = 0;
  assert_int_equal(tune_cold_sets(&d.base, 1000), 1);
}

static void the_device_keeps_the_time(void **state) {
  (void)state;
  made_up d = make();
  tune_comparison result;
  const uint64_t bytes = 100 * 1024;
  assert_int_equal(measure(&d, 1, bytes, &result), BASE_OK);
  assert_float_equal(result.kernel.median, kernel_us * 1e-6, 1e-12);
  assert_float_equal(result.gb_s, (double)bytes / kernel_us * 1e-3, 1e-6);
  assert_float_equal(result.ceiling.gb_s, bytes_of_us * 1e-3, 1e-6);
  assert_in_range(result.batch, 300 / kernel_us, 300 / kernel_us + 2);
  assert_true(result.launch_seconds > 0 && result.launch_seconds < 1e-3);
  assert_true(result.kernel.runs >= 3 && result.ceiling.timing.runs == result.kernel.runs);
  assert_true(d.kernels > result.batch * result.kernel.runs); // some go ahead
  assert_true(d.fills > result.kernel.runs);
  assert_ptr_equal(d.lowest, d.highest); // one set
}

static void copies_go_round_all_sets(void **state) {
  (void)state;
  made_up d = make();
  tune_comparison result;
  assert_int_equal(measure(&d, 21, 100 * 1024, &result), BASE_OK);
  assert_int_equal(d.highest - d.lowest, 20 * 50 * 1024);
}

static void nothing_is_left(void **state) {
  (void)state;
  base_status status = BASE_INTERNAL;
  for (int fail_at = 1; status != BASE_OK; fail_at += 1 + fail_at / 16) {
    made_up d = make();
    tune_comparison result;
    d.fail_at = fail_at;
    status = measure(&d, 2, CACHE, &result);
    assert_int_equal(status, d.calls < fail_at ? BASE_OK : BASE_UNSUPPORTED);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_many_sets_as_two_caches),
      cmocka_unit_test(the_device_keeps_the_time),
      cmocka_unit_test(copies_go_round_all_sets),

      cmocka_unit_test(nothing_is_left),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
