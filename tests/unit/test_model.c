// The cost model: what it counts of a lowered kernel, that its times follow what costs time, and that
// calibration measures.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autotune/model.h"
#include "codegen/cuda/cuda.h"
#include "passes/passes.h"
#include "support/graph_fixture.h"

// Sixteen queries against eight rows, as in phase 1.
static const char queries[] = "graph @phase1(%v: f32[N=8, T, D=2048], %q: f32[S=16, D]) {"
                              "  %z = dot %v, %q over D : f32[N, T, S]"
                              "  %a = softmax %z over N : f32[N, T, S]"
                              "  %h = weighted_sum %a, %v over N : f32[T, S, D]"
                              "  return %h"
                              "}";
enum { LANES = 16 };

static ir_graph *fused_of(const char *text, const char *pipeline) {
  ir_graph *fused = pass_run(parse_text(text), pipeline, &(pass_options){0}, &diag);
  assert_clean(fused != NULL);
  return fused;
}

static const kir_kernel *lower(const char *schedule_text) {
  kir_schedule schedule = kir_schedule_default(KIR_CPU);
  assert_clean(kir_schedule_parse(schedule_text, &schedule, &diag));
  const kir_kernel *kernel = pass_lower(fused_of(queries, pass_cpu_pipeline), 0, &schedule, &diag);
  assert_clean(kernel != NULL);
  return kernel;
}

// The first, or the last, sweep over whole rows.
static tune_sweep_counts counts_of(const kir_kernel *kernel, bool last) {
  tune_sweep_counts counts = {0};
  for (uint32_t i = kernel->sweeps.count; i-- > 0;) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != KIR_BODY || sweep->scalar) continue;
    counts = tune_count_sweep(&arena, kernel, sweep, LANES);
    if (last) break;
  }
  return counts;
}

// By hand: 8 sources, 16 queries, 2048 elements in vectors of 16.
static void test_counts(void **state) {
  (void)state;
  const kir_kernel *kernel = lower("source_tile=2,query_tile=4,unroll=2,overlap=0,prefetch=0");
  tune_sweep_counts dot = counts_of(kernel, false);
  enum { VECTORS = 2048 / LANES };
  double across = 8 * 16 * (2 * 4 + 2); // sums of 16 lanes, for each source and query
  assert_float_equal(dot.arithmetic, 8 * 16 * VECTORS + across, 0);
  // A row for each tile of 4 queries, a query for each tile of 2 sources.
  assert_float_equal(dot.loads, (32 + 64) * VECTORS, 0);
  assert_float_equal(dot.stores, 8 * 16, 0);
  assert_float_equal(dot.chain, 8 * 16 * VECTORS / (2 * 4 * 2.0), 0); // 16 sums at once
  assert_float_equal(dot.spills, 0, 0);
  assert_float_equal(dot.steps, 4.0 * 4 * VECTORS / 2, 0);
  tune_sweep_counts mix = counts_of(kernel, true);
  assert_float_equal(mix.arithmetic, 8 * 16 * VECTORS, 0);
  assert_float_equal(mix.stores, 16 * VECTORS, 0);
}

static void test_spills(void **state) {
  (void)state;
  tune_sweep_counts few = counts_of(lower("source_tile=2,query_tile=4,unroll=2"), true);
  tune_sweep_counts many = counts_of(lower("source_tile=8,query_tile=16,unroll=8"), true);
  assert_float_equal(few.spills, 0, 0);
  assert_true(many.spills > 0);
}

static double predict(const char *schedule_text, const tune_calibration *calibration,
                      int64_t rows) {
  tune_space space = {.count = 1};
  kir_schedule schedule = kir_schedule_default(KIR_CPU);
  double seconds;
  assert_clean(kir_schedule_parse(schedule_text, &schedule, &diag));
  space.schedules = &schedule;
  tune_subject subject = {.graph = fused_of(queries, pass_cpu_pipeline),
                          .machine = KIR_CPU,
                          .rows = rows,
                          .threads = 2,
                          .lanes = LANES};
  tune_predict_cpu(&arena, &subject, &space, calibration, &seconds);
  return seconds;
}

static void test_times(void **state) {
  (void)state;
  tune_calibration usual = tune_calibration_usual(), slow = usual;
  double base = predict("", &usual, 4096);
  assert_true(base > 0 && isfinite(base));
  assert_true(predict("stream=0", &usual, 4096) > base); // results are read before they are written
  double twice = predict("", &usual, 8192);
  assert_true(twice > 1.8 * base && twice < 2.5 * base);
  slow.memory_write_gb_s /= 4;
  slow.cache_write_gb_s /= 4;
  assert_true(predict("", &slow, 4096) > 1.5 * base);
  // Rows that all fall to one of two threads.
  assert_true(predict("rows=64", &usual, 64) > 1.5 * predict("rows=32", &usual, 64));
}

static void test_gpu(void **state) {
  (void)state;
  ir_graph *fused = fused_of(queries, pass_cuda_pipeline);
  cuda_arch arch;
  assert_true(cuda_arch_find("sm_90", &arch));
  tune_subject subject = {.graph = fused,
                          .machine = KIR_CUDA,
                          .rows = 4096,
                          .arch = &arch,
                          .gpu = cuda_gpu_find("sm_90"),
                          .initial = cuda_default_schedule(fused, 0, &arch)};
  kir_schedule schedules[3] = {subject.initial, subject.initial, subject.initial};
  schedules[1].source_tile = 1; // each row is read again for every source
  schedules[1].residency = 0;
  schedules[1].load = 0;
  schedules[2].team = 1024; // more threads than a block has
  schedules[2].teams = 2;
  tune_space space = {.count = 3, .schedules = schedules};
  double seconds[3];
  tune_predict_cuda(&arena, &subject, &space, seconds);
  assert_true(seconds[0] > 0 && isfinite(seconds[0]));
  assert_true(seconds[1] > seconds[0]);
  assert_true(isinf(seconds[2]));
  // 4096 rows of 8 * 8 KB, and as many times 16 * 8 KB, at 4.8 TB/s.
  assert_true(seconds[0] > 4096 * (64 + 128) * 1024.0 / 4.8e12);
}

static void test_calibration(void **state) {
  (void)state;
  rt_pool *pool;
  tune_calibration measured;
  assert_int_equal(rt_pool_create(2, &pool), BASE_OK);
  rt_executor executor = rt_pool_executor(pool);
  assert_int_equal(tune_calibrate(&executor, 0.2, &measured), BASE_OK);
  rt_pool_destroy(pool);
  for (uint32_t i = 0; i < TUNE_CALIBRATION_PARTS; i++) {
    const tune_calibration_part *part = &tune_calibration_parts[i];
    double value = *tune_calibration_value(&measured, part);
    if (!(value > 0 && isfinite(value))) fail_msg("%s is %g", part->name, value);
  }
}

// A file with every byte cut off or changed is what was written, or nothing.
static void test_calibration_file(void **state) {
  (void)state;
  char path[] = "calibration.XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  base_str text, why;
  tune_calibration written = tune_calibration_usual(), read;
  bool contended = false;
  written.launch_us = 1 / 3.0;
  assert_int_equal(tune_calibration_write(&arena, path, &written, true, &why), BASE_OK);
  assert_true(tune_calibration_read(&arena, path, &read, &contended));
  assert_memory_equal(&read, &written, sizeof read);
  assert_true(contended);
  assert_int_equal(base_file_read(&arena, path, &text, &why), BASE_OK);
  for (size_t i = 0; i < text.length; i++) {
    assert_int_equal(base_file_write(&arena, path, text.data, i, &why), BASE_OK);
    if (!tune_calibration_read(&arena, path, &read, &contended)) continue;
    for (uint32_t j = 0; j < TUNE_CALIBRATION_PARTS; j++)
      assert_true(*tune_calibration_value(&read, &tune_calibration_parts[j]) > 0);
  }
  base_str other = base_str_format(&arena, "version: %d\n", TUNE_CALIBRATION_VERSION + 1);
  assert_int_equal(base_file_write(&arena, path, other.data, other.length, &why), BASE_OK);
  assert_false(tune_calibration_read(&arena, path, &read, &contended));
  unlink(path);
  assert_false(tune_calibration_read(&arena, path, &read, &contended));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_counts, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_spills, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_times, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_gpu, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_calibration, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_calibration_file, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
