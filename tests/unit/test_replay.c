// Searches and the cost model on recorded times of real kernels: nothing runs.
#include <inttypes.h>

#include "autotune/search.h"
#include "passes/passes.h"
#include "support/graph_fixture.h"
#include "support/recorded.h"

static const char *const kernels[] = {"k3_site_1024", "k3_site_64", "k3_site_1", "phase1_1024"};
enum { KERNELS = sizeof kernels / sizeof *kernels };

// ---- searches -----------------------------------------------------------------------------------

static bool measure(void *user, const tune_request *request, tune_finding *finding,
                    base_diag *unused) {
  const recorded *r = user;
  (void)unused;
  *finding = (tune_finding){.outcome = TUNE_TIMED, .seconds = r->seconds[request->schedule]};
  return true;
}

static bool confirm(void *user, const uint32_t *schedules, uint32_t count, double seconds,
                    tune_finding *findings, base_diag *unused) {
  const recorded *r = user;
  (void)seconds;
  (void)unused;
  for (uint32_t i = 0; i < count; i++)
    findings[i] = (tune_finding){.outcome = TUNE_TIMED, .seconds = r->seconds[schedules[i]]};
  return true;
}

static tune_search_result search(recorded *r, const char *strategy, uint64_t seed,
                                 const double *predicted) {
  tune_measurer measurer = {r, measure, confirm};
  tune_search_options options = {.strategy = tune_strategy_find(base_str_from(strategy)),
                                 .seed = seed,
                                 .predicted = predicted};
  tune_search_result result;
  const tune_finding *findings;
  assert_clean(tune_search_run(&arena, r->space, &measurer, &options, &result, &findings, &diag));
  return result;
}

static void expect_good(const recorded *r, const char *name, uint64_t seed,
                        const tune_search_result *found) {
  double ratio = r->seconds[found->best] / recorded_best(r);
  if (ratio > 1.03 || found->measurements > r->space->count / 4)
    fail_msg("%s, seed %" PRIu64 ": %.3f of the best after %u measurements of %u schedules", name,
             seed, ratio, found->measurements, r->space->count);
}

// Within 3 % of the best of an exhaustive search with at most a quarter of its measurements.
static void test_halving(void **state) {
  (void)state;
  for (uint32_t i = 0; i < KERNELS; i++) {
    recorded *r = read_recorded(kernels[i]);
    for (uint64_t seed = 0; seed < 20; seed++) {
      tune_search_result found = search(r, "halving", seed, NULL);
      expect_good(r, kernels[i], seed, &found);
    }
    tune_search_result all = search(r, "exhaustive", 0, NULL);
    assert_true(r->seconds[all.best] <= (1 + all.tie_band) * recorded_best(r));
    assert_true(all.measurements > r->space->count);
  }
}

// ---- the cost model -----------------------------------------------------------------------------

static const double *predict(const recorded *r) {
  base_str text, why;
  const char *path = base_str_format(&arena, "%s/%s", getenv("FATHOM_SOURCE_DIR"), r->graph).data;
  if (base_file_read(&arena, path, &text, &why) != BASE_OK) fail_msg("%s: %s", path, why.data);
  ir_graph *graph = parse_text(text.data);
  char *rest, *axes = (char *)base_str_copy(&arena, base_str_from(r->axes)).data;
  for (char *word = strtok_r(axes, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    base_str name = {word, (size_t)(value - word)};
    assert_clean(ir_bind_axis(graph, name, atoll(value + 1), &diag));
  }
  ir_graph *fused = pass_run(graph, pass_cpu_pipeline, &(pass_options){0}, &diag);
  assert_clean(fused != NULL);
  tune_subject subject = {.graph = fused,
                          .machine = KIR_CPU,
                          .rows = r->rows,
                          .threads = r->threads,
                          .lanes = 16,
                          .initial = r->space->initial};
  double *seconds = base_new_array(&arena, double, r->space->count);
  tune_predict_cpu(&arena, &subject, r->space, &r->calibration, seconds);
  return seconds;
}

static void test_model(void **state) {
  (void)state;
  static const double least[KERNELS] = {0.7, 0, 0, 0.7};
  for (uint32_t i = 0; i < KERNELS; i++) {
    recorded *r = read_recorded(kernels[i]);
    const double *seconds = predict(r);
    double rank = tune_rank_correlation(&arena, seconds, r->seconds, r->space->count);
    print_message("%s: rank correlation %.3f over %u schedules\n", kernels[i], rank,
                  r->space->count);
    assert_true(r->space->count >= 200);
    assert_true(rank >= least[i]);
    for (uint64_t seed = 0; seed < 5; seed++) {
      tune_search_result found = search(r, "halving", seed, seconds);
      expect_good(r, kernels[i], seed, &found);
    }
  }
}

static void test_correlation(void **state) {
  (void)state;
  const double up[] = {1, 2, 3, 4, 5}, down[] = {9, 7, 5, 3, 1}, same[] = {4, 4, 4, 4, 4};
  const double cubes[] = {1, 8, 27, 64, 125}, mixed[] = {2, 1, 4, 3, 5}, ties[] = {1, 2, 2, 4, 5};
  assert_float_equal(tune_rank_correlation(&arena, up, cubes, 5), 1, 1e-12);
  assert_float_equal(tune_rank_correlation(&arena, up, down, 5), -1, 1e-12);
  assert_float_equal(tune_rank_correlation(&arena, up, mixed, 5), 0.8, 1e-12);
  assert_float_equal(tune_rank_correlation(&arena, up, ties, 5), 0.974679, 1e-6);
  assert_float_equal(tune_rank_correlation(&arena, up, same, 5), 0, 0);
  assert_float_equal(tune_rank_correlation(&arena, up, down, 1), 0, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_halving, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_model, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_correlation, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
