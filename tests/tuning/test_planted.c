// Planted candidates: each of them is rejected for the right reason, and the tuner goes on.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/measure_worker.h"
#include "codegen/cuda/cuda.h"
#include "passes/passes.h"
#include "support/graph_fixture.h"
#include "tuning/planted.h"

static const char text[] = "graph @site(%v: f32[N=4, T, D=256], %q: f32[D]) {"
                           "  %z = dot %v, %q over D : f32[N, T]"
                           "  %a = softmax %z over N : f32[N, T]"
                           "  %h = weighted_sum %a, %v over N : f32[T, D]"
                           "  return %h"
                           "}";

static tune_space *space;
static tune_bench bench;

// A space made by hand: the default, and it with each planted value of `distance`.
static void make_space(void) {
  static kir_schedule schedules[2 + PLANTED_LAST - PLANTED_WRONG + 1];
  ir_graph *graph = parse_text(text);
  ir_graph *fused = pass_run(graph, pass_cpu_pipeline, &(pass_options){0}, &diag);
  assert_clean(fused != NULL);
  space = base_new(&arena, tune_space);
  schedules[0] = schedules[1] = pass_default_schedule(fused, 0);
  schedules[1].unroll = 2;
  for (int kind = PLANTED_WRONG; kind <= PLANTED_LAST; kind++) {
    schedules[2 + kind - PLANTED_WRONG] = schedules[0];
    schedules[2 + kind - PLANTED_WRONG].distance = kind;
  }
  space->schedules = schedules;
  space->count = sizeof schedules / sizeof *schedules;
}

static int setup(void **state) {
  set_up(state);
  make_space();
  static const char *arguments[] = {NULL, NULL};
  arguments[0] = getenv("FATHOM_TEST_WORKER");
  tune_bench_options options = {
      .arguments = arguments,
      .job = base_str_format(
          &arena, "target cpu\ngraph site\nrows 64\ncheck-rows 37\nthreads 2\ntext %zu\n%s",
          strlen(text), text),
      .trial_seconds = 5,
      .most_bytes = (uint64_t)1 << 30,
  };
  tune_bench_open(&bench, &arena, space, &options);
  return 0;
}

static int teardown(void **state) {
  tune_bench_close(&bench);
  return tear_down(state);
}

static tune_finding measure(uint32_t schedule) {
  tune_measurer measurer = tune_bench_measurer(&bench);
  tune_request request = {schedule, 0};
  tune_finding finding = {0};
  assert_clean(measurer.measure(measurer.user, &request, &finding, &diag));
  return finding;
}

static void expect_good(uint32_t schedule) {
  tune_finding finding = measure(schedule);
  if (finding.outcome != TUNE_TIMED) fail_msg("not timed: %s", finding.why);
  assert_true(finding.seconds > 0);
}

static void test_planted(void **state) {
  (void)state;
  static const struct {
    int kind;
    tune_outcome outcome;
    const char *why;
  } cases[] = {
      {PLANTED_WRONG, TUNE_WRONG, "%h has an error of 1.00e-02"},
      {PLANTED_BESIDE, TUNE_WRONG, "memory around %h was written"},
      {PLANTED_HANG, TUNE_TIMEOUT, "no answer within 5.0 s"},
      {PLANTED_ABORT, TUNE_CRASHED, "signal 6"},
      {PLANTED_EATER, TUNE_MEMORY, "more than 1024 MB"},
      {PLANTED_SLEEPER, TUNE_TIMEOUT, "no answer within 5.0 s"},
  };
  expect_good(0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tune_finding finding = measure((uint32_t)(2 + cases[i].kind - PLANTED_WRONG));
    if (finding.outcome != cases[i].outcome || !strstr(finding.why, cases[i].why))
      fail_msg("planted %d: %s: %s", cases[i].kind, tune_outcome_name(finding.outcome),
               finding.why ? finding.why : "");
    expect_good(1); // the tuner goes on
  }
}

// One that is wrong, and one that ends the worker: the others are timed all the same.
static void test_finalists(void **state) {
  (void)state;
  tune_measurer measurer = tune_bench_measurer(&bench);
  const uint32_t abort_one = 2 + PLANTED_ABORT - PLANTED_WRONG;
  const uint32_t finalists[] = {0, 2, abort_one, 1};
  tune_finding findings[4] = {{.tried = false}};
  assert_clean(measurer.confirm(measurer.user, finalists, 4, 0.2, findings, &diag));
  assert_int_equal(findings[0].outcome, TUNE_TIMED);
  assert_int_equal(findings[1].outcome, TUNE_WRONG);
  assert_int_equal(findings[2].outcome, TUNE_CRASHED);
  assert_int_equal(findings[3].outcome, TUNE_TIMED);
  assert_true(findings[0].seconds > 0 && findings[3].seconds > 0);
}

// Offline, where nothing is timed, a kernel that is fast but racy must not win: the finalists run on the
// emulator.
static void test_race(void **state) {
  (void)state;
  kir_schedule schedules[3];
  ir_graph *fused = pass_run(parse_text(text), pass_cuda_pipeline, &(pass_options){0}, &diag);
  cuda_arch arch;
  assert_clean(fused != NULL);
  assert_true(cuda_arch_find("sm_90", &arch));
  schedules[0] = cuda_default_schedule(fused, 0, &arch);
  schedules[0].team = 64; // two warps, which wait for each other's sums
  schedules[1] = schedules[2] = schedules[0];
  schedules[1].working = PLANTED_RACE;
  schedules[2].team = 33; // no team of a GPU
  tune_space offline_space = {.schedules = schedules, .count = 3};
  tune_bench_options options = bench.options;
  options.job = base_str_format(&arena,
                                "target cuda:sm_90\ngraph site\nrows 64\ncheck-rows 5\nthreads 0\n"
                                "offline 1\ntext %zu\n%s",
                                strlen(text), text);
  options.predicts = true;
  options.trial_seconds = 60;
  tune_bench offline;
  tune_bench_open(&offline, &arena, &offline_space, &options);
  tune_measurer measurer = tune_bench_measurer(&offline);
  // What is refused leaves nothing behind: the same schedule is as good after it as before.
  tune_finding before = {.tried = false}, refused = before, after = before;
  assert_clean(measurer.measure(measurer.user, &(tune_request){0, 0}, &before, &diag));
  assert_clean(measurer.measure(measurer.user, &(tune_request){2, 0}, &refused, &diag));
  assert_clean(measurer.measure(measurer.user, &(tune_request){0, 0}, &after, &diag));
  assert_int_equal(before.outcome, TUNE_PREDICTED);
  assert_int_equal(refused.outcome, TUNE_REFUSED);
  assert_non_null(strstr(refused.why, "33"));
  if (after.outcome != TUNE_PREDICTED) fail_msg("after a refusal: %s", after.why);
  assert_true(after.seconds == before.seconds && after.spread == 0);
  const uint32_t finalists[] = {0, 1};
  tune_finding findings[2] = {{.tried = false}};
  assert_clean(measurer.confirm(measurer.user, finalists, 2, 0, findings, &diag));
  tune_bench_close(&offline);
  if (findings[0].outcome != TUNE_PREDICTED) fail_msg("default: %s", findings[0].why);
  print_message("the racy one: %s\n", findings[1].why ? findings[1].why : "");
  assert_int_equal(findings[1].outcome, TUNE_WRONG);
}

static void test_no_worker(void **state) {
  (void)state;
  static const char *const nowhere[] = {"/nowhere/fathom", NULL};
  tune_bench lost = bench;
  tune_bench_options options = bench.options;
  options.arguments = nowhere;
  tune_bench_open(&lost, &arena, space, &options);
  tune_measurer measurer = tune_bench_measurer(&lost);
  tune_request request = {1, 0};
  tune_finding finding;
  assert_false(measurer.measure(measurer.user, &request, &finding, &diag));
  assert_non_null(strstr(base_diag_render(&diag).data, "/nowhere/fathom cannot be started"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_planted, setup, teardown),
      cmocka_unit_test_setup_teardown(test_finalists, setup, teardown),
      cmocka_unit_test_setup_teardown(test_race, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_worker, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
