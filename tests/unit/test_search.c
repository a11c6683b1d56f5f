// Searching, without running anything: times come from a table. So a search can be repeated, cut off
// and compared with the whole table.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/search.h"
#include "support/graph_fixture.h"

// ---- a made-up kernel ---------------------------------------------------------------------------

// Knobs of the cpu target whose best values depend on each other; numbers 0 to 3 give other kernels.
enum { FLAT = 4 }; // a kernel that nothing makes faster; less unrolling costs next to nothing

static double made_up_time(const kir_schedule *schedule, uint32_t kernel) {
  static const double unroll_best[] = {4, 8, 2, 4}, tile_best[] = {2, 1, 8, 4};
  if (kernel == FLAT) return schedule->unroll == 2 ? 101 : 100;
  double time = 100;
  time *= 1 + 0.2 * fabs(log2((double)schedule->unroll / unroll_best[kernel]));
  time *= 1 + 0.15 * fabs(log2((double)schedule->source_tile / tile_best[kernel]));
  if (schedule->unroll * schedule->source_tile > 16) time *= 1.5; // registers
  if (schedule->stream != (kernel & 1)) time *= 1.1;
  if (schedule->prefetch && !schedule->overlap) time *= 0.97;
  time *= 1 + 0.03 * fabs(log2((double)schedule->rows / 32));
  time *= schedule->pair ? 1 : 1.04;
  // What no rule explains, up to 2 %.
  uint64_t bits;
  base_hash hash = base_hash_bytes(schedule, sizeof *schedule);
  memcpy(&bits, &hash, sizeof bits);
  return time * (1 + 0.02 * (double)(bits >> 40) * 0x1p-24);
}

static tune_space *make_space(void) {
  static const struct {
    const char *name;
    uint32_t count;
    int64_t values[5];
  } knobs[] = {{"unroll", 3, {2, 4, 8}},  {"source_tile", 5, {1, 2, 4, 8, 9}},
               {"prefetch", 2, {0, 1}},   {"overlap", 2, {0, 1}},
               {"stream", 2, {0, 1}},     {"pair", 2, {0, 1}},
               {"rows", 3, {4, 32, 128}}, {"mix_unroll", 2, {4, 9}}};
  tune_space *space = base_new(&arena, tune_space);
  uint32_t count = 1;
  space->initial = kir_schedule_default(KIR_CPU);
  space->initial.mix_unroll = 9;
  for (uint32_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
    tune_dimension *d = &space->dimensions[space->dimension_count++];
    for (uint32_t j = 0; !d->knob; j++) {
      const kir_knob *knob = kir_knob_at(KIR_CPU, j);
      if (strcmp(knob->name, knobs[i].name) == 0) d->knob = knob;
    }
    d->count = knobs[i].count;
    memcpy(d->values, knobs[i].values, sizeof knobs[i].values);
    count *= d->count;
  }
  space->table_size = 2 * count + 3;
  space->table = base_new_array(&arena, uint32_t, space->table_size);
  kir_schedule *schedules = base_new_array(&arena, kir_schedule, count + 2);
  space->schedules = schedules;
  for (uint32_t number = 0; number <= count; number++) {
    kir_schedule schedule = space->initial; // the default first, and once more when its turn comes
    uint32_t rest = number - 1;
    for (uint32_t i = 0; number > 0 && i < space->dimension_count; i++) {
      *kir_knob_of(&schedule, space->dimensions[i].knob) =
          space->dimensions[i].values[rest % space->dimensions[i].count];
      rest /= space->dimensions[i].count;
    }
    schedules[space->count] = schedule;
    tune_space_add(space);
  }
  return space;
}

// ---- the recorded times -------------------------------------------------------------------------

typedef struct replay {
  const tune_space *space;
  uint32_t kernel;
  double clock;               // seconds
  uint32_t measured, cut_off; // stops after so many; 0: never
  uint32_t trials;
  tune_trial kept[8192];
  uint32_t fails_from; // schedules from this number on crash; 0: none
} replay;

static double noise(uint32_t schedule, uint32_t level) {
  uint64_t z = ((uint64_t)schedule << 32 | level) * UINT64_C(0x9e3779b97f4a7c15);
  return 1 + 0.02 / (level + 1) * (double)((z ^ z >> 29) >> 40 & 0xffff) / 0xffff;
}

static bool measure(void *user, const tune_request *request, tune_finding *finding,
                    base_diag *unused) {
  replay *r = user;
  (void)unused;
  r->measured++;
  r->clock += 0.05 * (1 << request->level);
  if (r->fails_from && request->schedule >= r->fails_from) {
    *finding = (tune_finding){.outcome = TUNE_CRASHED, .why = "planted"};
    return true;
  }
  *finding = (tune_finding){
      .outcome = TUNE_TIMED,
      .seconds = 1e-6 * made_up_time(&r->space->schedules[request->schedule], r->kernel) *
                 noise(request->schedule, request->level),
      .spread = 0.01};
  return true;
}

static bool confirm(void *user, const uint32_t *schedules, uint32_t count, double seconds,
                    tune_finding *findings, base_diag *unused) {
  replay *r = user;
  (void)unused;
  r->clock += seconds;
  for (uint32_t i = 0; i < count; i++)
    findings[i] = (tune_finding){
        .outcome = TUNE_TIMED,
        .seconds = 1e-6 * made_up_time(&r->space->schedules[schedules[i]], r->kernel),
        .spread = 0.002};
  return true;
}

static double now(void *user) {
  return ((replay *)user)->clock;
}

static bool stop(void *user) {
  replay *r = user;
  return r->cut_off && r->measured >= r->cut_off;
}

static bool record(void *user, const tune_trial *trial) {
  replay *r = user;
  assert_true(r->trials < sizeof r->kept / sizeof *r->kept);
  r->kept[r->trials] = *trial;
  r->kept[r->trials++].schedule = base_str_copy(&arena, base_str_from(trial->schedule)).data;
  return true;
}

static tune_search_result search(replay *r, const char *strategy, tune_search_options options) {
  tune_measurer measurer = {r, measure, confirm};
  tune_search_result result;
  const tune_finding *findings;
  options.strategy = tune_strategy_find(base_str_from(strategy));
  options.now = now;
  options.stop = stop;
  options.record = record;
  options.user = r;
  assert_clean(tune_search_run(&arena, r->space, &measurer, &options, &result, &findings, &diag));
  return result;
}

static double best_of_all(const tune_space *space, uint32_t kernel) {
  double best = INFINITY;
  for (uint32_t i = 0; i < space->count; i++)
    best = fmin(best, 1e-6 * made_up_time(&space->schedules[i], kernel));
  return best;
}

static replay *new_replay(const tune_space *space, uint32_t kernel) {
  replay *r = base_new(&arena, replay);
  r->space = space;
  r->kernel = kernel;
  return r;
}

// ---- tests --------------------------------------------------------------------------------------

// Within 3 % of the best of all schedules, with at most a quarter of the measurements.
static void test_quality(void **state) {
  (void)state;
  const tune_space *space = make_space();
  assert_true(space->count > 1000);
  for (uint32_t kernel = 0; kernel < 4; kernel++) {
    double best = best_of_all(space, kernel);
    for (uint64_t seed = 0; seed < 5; seed++) {
      replay *r = new_replay(space, kernel);
      tune_search_result found = search(r, "halving", (tune_search_options){.seed = seed});
      double time = 1e-6 * made_up_time(&space->schedules[found.best], kernel);
      if (time > 1.03 * best || found.measurements > space->count / 4)
        fail_msg("kernel %u, seed %llu: %.4f of the best after %u measurements of %u schedules",
                 kernel, (unsigned long long)seed, time / best, found.measurements, space->count);
      assert_int_equal(found.end, TUNE_END_DONE);
    }
  }
}

static void test_exhaustive(void **state) {
  (void)state;
  const tune_space *space = make_space();
  replay *r = new_replay(space, 0);
  tune_search_result found = search(r, "exhaustive", (tune_search_options){0});
  // The default first, at level 0; at last the best 16 once more.
  assert_int_equal(found.measurements, space->count + 1 + 16);
  double time = 1e-6 * made_up_time(&space->schedules[found.best], 0);
  assert_true(time <= (1 + found.tie_band) * best_of_all(space, 0));
}

static void test_repeatable(void **state) {
  (void)state;
  const tune_space *space = make_space();
  replay *a = new_replay(space, 1), *b = new_replay(space, 1), *c = new_replay(space, 1);
  tune_search_result x = search(a, "halving", (tune_search_options){.seed = 7});
  tune_search_result y = search(b, "halving", (tune_search_options){.seed = 7});
  search(c, "halving", (tune_search_options){.seed = 8});
  assert_int_equal(x.best, y.best);
  assert_int_equal(a->trials, b->trials);
  bool differs = false;
  for (uint32_t i = 0; i < a->trials; i++) {
    assert_string_equal(a->kept[i].schedule, b->kept[i].schedule);
    differs |= i >= c->trials || strcmp(a->kept[i].schedule, c->kept[i].schedule) != 0;
  }
  assert_true(differs);
}

// Interrupted anywhere, a search that goes on repeats nothing and ends as if nothing had happened.
static void test_resume(void **state) {
  (void)state;
  const tune_space *space = make_space();
  replay *whole = new_replay(space, 2);
  tune_search_result expected = search(whole, "halving", (tune_search_options){.seed = 3});
  for (uint32_t cut = 1; cut < whole->measured; cut += 17) {
    replay *first = new_replay(space, 2), *rest = new_replay(space, 2);
    first->cut_off = cut;
    tune_search_result ended = search(first, "halving", (tune_search_options){.seed = 3});
    assert_int_equal(ended.end, TUNE_END_STOPPED);
    assert_int_equal(first->measured, cut);
    tune_search_result found = search(
        rest, "halving",
        (tune_search_options){.seed = 3, .earlier_count = first->trials, .earlier = first->kept});
    assert_int_equal(found.best, expected.best);
    assert_int_equal(first->measured + rest->measured, whole->measured);
  }
}

static void test_budgets(void **state) {
  (void)state;
  const tune_space *space = make_space();
  replay *r = new_replay(space, 0);
  tune_search_result found = search(r, "halving", (tune_search_options){.trials = 20});
  assert_int_equal(found.end, TUNE_END_TRIALS);
  assert_int_equal(found.measurements, 20);
  r = new_replay(space, 0);
  found = search(r, "exhaustive", (tune_search_options){.seconds = 10});
  assert_int_equal(found.end, TUNE_END_SECONDS);
  assert_true(found.elapsed > 9 && found.elapsed <= 10.5);
}

// Nothing is taken that is not faster than the default beyond the tie band.
static void test_default_stays(void **state) {
  (void)state;
  const tune_space *space = make_space();
  for (uint32_t kernel = 0; kernel <= FLAT; kernel++)
    for (uint32_t trials = 2; trials < 60; trials += 7) {
      replay *r = new_replay(space, kernel);
      tune_search_result found = search(r, "random", (tune_search_options){.trials = trials});
      double best = found.best_finding.seconds, initial = found.initial_finding.seconds;
      assert_true(found.best == 0 || best < initial);
      assert_true(kernel != FLAT || found.best == 0);
    }
}

static void test_failures(void **state) {
  (void)state;
  const tune_space *space = make_space();
  replay *r = new_replay(space, 0);
  r->fails_from = 40;
  tune_search_result found = search(r, "random", (tune_search_options){0});
  assert_true(found.best < 40);
  assert_int_equal(found.failures, space->count - 40);
  uint32_t crashed = 0;
  for (uint32_t i = 0; i < r->trials; i++)
    crashed += r->kept[i].outcome == TUNE_CRASHED && strcmp(r->kept[i].why, "planted") == 0;
  assert_int_equal(crashed, space->count - 40);
}

// The model puts the best ones first; a model that is wrong hides nothing.
static void test_predictions(void **state) {
  (void)state;
  const tune_space *space = make_space();
  double *right = base_new_array(&arena, double, space->count);
  double *wrong = base_new_array(&arena, double, space->count);
  for (uint32_t i = 0; i < space->count; i++) {
    right[i] = made_up_time(&space->schedules[i], 3);
    wrong[i] = -right[i];
  }
  double best = best_of_all(space, 3);
  replay *r = new_replay(space, 3);
  tune_search_result found =
      search(r, "halving", (tune_search_options){.predicted = right, .trials = 130});
  assert_true(1e-6 * made_up_time(&space->schedules[found.best], 3) <= 1.03 * best);
  r = new_replay(space, 3);
  found = search(r, "halving", (tune_search_options){.predicted = wrong});
  assert_true(1e-6 * made_up_time(&space->schedules[found.best], 3) <= 1.03 * best);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_quality, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_exhaustive, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_repeatable, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_resume, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_budgets, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_default_stays, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_predictions, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
