// The space of schedules: what is left out, and that nothing is in it twice.
#include <stdlib.h>
#include <string.h>

#include "autotune/space.h"
#include "codegen/cuda/cuda.h"
#include "passes/passes.h"
#include "support/graph_fixture.h"

static const char site[] = "graph @site(%bank: bf16[B=8, T, D], %prefix: bf16[T, D], %q: f32[D]) {"
                           "  %v = concat %bank, %prefix over B to N : bf16[N=9, T, D]"
                           "  %k = rms_norm %v over D {eps = 1e-5} : f32[N, T, D]"
                           "  %z = dot %k, %q over D : f32[N, T]"
                           "  %a = softmax %z over N : f32[N, T]"
                           "  %h = weighted_sum %a, %v over N : bf16[T, D]"
                           "  return %h"
                           "}";
static const char queries[] = "graph @phase1(%v: f32[N=3, T, D], %q: f32[S=6, D]) {"
                              "  %z = dot %v, %q over D : f32[N, T, S]"
                              "  %a = softmax %z over N : f32[N, T, S]"
                              "  %h = weighted_sum %a, %v over N : f32[T, S, D]"
                              "  return %h"
                              "}";

static tune_space *space_of(const char *text, int64_t rows, uint32_t lanes) {
  ir_graph *graph = parse_text(text);
  assert_clean(ir_bind_axis(graph, BASE_STR("D"), 256, &diag));
  ir_graph *fused = pass_run(graph, pass_cpu_pipeline, &(pass_options){0}, &diag);
  assert_clean(fused != NULL);
  tune_subject subject = {.graph = fused,
                          .machine = KIR_CPU,
                          .rows = rows,
                          .threads = 2,
                          .lanes = lanes,
                          .initial = pass_default_schedule(fused, 0)};
  return tune_space_create(&arena, &subject);
}

static tune_space *gpu_space_of(const char *text) {
  ir_graph *graph = parse_text(text);
  assert_clean(ir_bind_axis(graph, BASE_STR("D"), 7168, &diag));
  ir_graph *fused = pass_run(graph, pass_cuda_pipeline, &(pass_options){0}, &diag);
  assert_clean(fused != NULL);
  cuda_arch *arch = base_new(&arena, cuda_arch);
  assert_true(cuda_arch_find("sm_90", arch));
  tune_subject subject = {.graph = fused,
                          .machine = KIR_CUDA,
                          .rows = 1024,
                          .arch = arch,
                          .gpu = cuda_gpu_find("sm_90"),
                          .initial = cuda_default_schedule(fused, 0, arch)};
  return tune_space_create(&arena, &subject);
}

static const tune_dimension *dimension(const tune_space *space, const char *name) {
  for (uint32_t i = 0; i < space->dimension_count; i++)
    if (strcmp(space->dimensions[i].knob->name, name) == 0) return &space->dimensions[i];
  return NULL;
}

static void expect_values(const tune_space *space, const char *name, uint32_t count,
                          const int64_t *values) {
  const tune_dimension *found = dimension(space, name);
  if (!found) fail_msg("%s is not tried", name);
  assert_int_equal(found->count, count);
  for (uint32_t i = 0; i < count; i++)
    assert_int_equal(found->values[i], values[i]);
}
#define EXPECT_VALUES(space, name, ...)                                                            \
  expect_values(space, name, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                   \
                (int64_t[]){__VA_ARGS__})

static void test_what_matters(void **state) {
  (void)state;
  const tune_space *space = space_of(site, 1024, 16);
  EXPECT_VALUES(space, "source_tile", 1, 2, 4, 8, 9); // no tile beyond the nine sources
  EXPECT_VALUES(space, "vector", 0, 8);               // 16 lanes are what 0 means
  EXPECT_VALUES(space, "rows", 4, 32, 128);
  EXPECT_VALUES(space, "pair", 0, 1);
  assert_null(dimension(space, "lanes")); // it has no queries
  assert_null(dimension(space, "query_tile"));
  assert_null(dimension(space, "team")); // of another machine
  assert_null(dimension(space_of(site, 1024, 8), "vector"));
  const tune_space *many = space_of(queries, 1024, 16);
  EXPECT_VALUES(many, "lanes", 0, 1);
  EXPECT_VALUES(many, "query_tile", 1, 4, 6);
  EXPECT_VALUES(many, "source_tile", 1, 2, 3);
  assert_null(dimension(many, "pair")); // f32
}

static void test_tasks(void **state) {
  (void)state;
  EXPECT_VALUES(space_of(site, 64, 16), "rows", 4, 32); // two threads share 64 rows
  assert_null(dimension(space_of(site, 8, 16), "rows"));
  assert_int_equal(space_of(site, 8, 16)->initial.rows, 4);
  assert_int_equal(space_of(site, 1, 16)->initial.rows, 1);
}

static void test_distinct(void **state) {
  (void)state;
  const tune_space *space = space_of(site, 1024, 16);
  assert_true(space->count > 100);
  assert_memory_equal(&space->schedules[0], &space->initial, sizeof space->initial);
  for (uint32_t i = 0; i < space->count; i++) {
    assert_int_equal(tune_space_find(space, &space->schedules[i]), i);
    if (!space->schedules[i].overlap)
      assert_int_equal(space->schedules[i].distance, space->initial.distance);
  }
  kir_schedule other = space->initial;
  other.unroll = 5;
  assert_int_equal(tune_space_find(space, &other), -1);
}

static void test_neighbours(void **state) {
  (void)state;
  const tune_space *space = space_of(site, 1024, 16);
  for (uint32_t i = 0; i < space->count; i += 37) {
    uint32_t near[2 * TUNE_MAX_KNOBS];
    uint32_t count = tune_space_neighbours(space, i, 2 * TUNE_MAX_KNOBS, near);
    assert_true(count > 0);
    for (uint32_t j = 0; j < count; j++) {
      uint32_t differ = 0;
      for (uint32_t k = 0; k < space->dimension_count; k++) {
        kir_schedule a = space->schedules[i], b = space->schedules[near[j]];
        differ += *kir_knob_of(&a, space->dimensions[k].knob) !=
                  *kir_knob_of(&b, space->dimensions[k].knob);
      }
      assert_int_equal(differ, 1);
    }
  }
  assert_int_equal(tune_space_neighbours(space, 0, 1, (uint32_t[1]){0}), 1);
}

static uint32_t knobs_changed(const tune_space *space, const kir_schedule *schedule) {
  uint32_t changed = 0;
  kir_schedule copy = *schedule, initial = space->initial;
  for (uint32_t i = 0; i < space->dimension_count; i++)
    changed += *kir_knob_of(&copy, space->dimensions[i].knob) !=
               *kir_knob_of(&initial, space->dimensions[i].knob);
  return changed;
}

// A GPU has too many knobs for all combinations: what is near the default is listed.
static void test_large(void **state) {
  (void)state;
  const tune_space *space = gpu_space_of(site);
  assert_true(space->raw > 1e6);
  assert_true(space->radius >= 2 && space->radius < space->dimension_count);
  assert_true(space->count > 1000 && space->count <= TUNE_LARGEST_PART + 1);
  uint32_t farthest = 0;
  for (uint32_t i = 0; i < space->count; i++) {
    const kir_schedule *schedule = &space->schedules[i];
    uint32_t changed = knobs_changed(space, schedule);
    if (changed > farthest) farthest = changed;
    assert_int_equal(tune_space_find(space, schedule), i);
    if (schedule->load == 0) assert_int_equal(schedule->stages, space->initial.stages);
    if (schedule->split == 1) assert_int_equal(schedule->cluster, space->initial.cluster);
  }
  assert_int_equal(farthest, space->radius);
  // Each single change is in it.
  for (uint32_t i = 0; i < space->dimension_count; i++)
    for (uint32_t j = 0; j < space->dimensions[i].count; j++) {
      kir_schedule near = space->initial;
      const kir_knob *knob = space->dimensions[i].knob;
      *kir_knob_of(&near, knob) = space->dimensions[i].values[j];
      bool alone = strcmp(knob->name, "stages") != 0 && strcmp(knob->name, "cluster") != 0;
      base_diag unused;
      base_diag_init(&unused, &arena, BASE_STR(""), BASE_STR(""));
      if (alone && kir_schedule_check(&near, &unused) && tune_space_find(space, &near) < 0)
        fail_msg("not in the space: %s", kir_schedule_text(&arena, &near));
    }
}

static void test_keep(void **state) {
  (void)state;
  tune_space *space = space_of(site, 1024, 16);
  uint32_t count = space->count, left = 0;
  bool *kept = base_new_array(&arena, bool, count);
  kir_schedule *before = base_new_array(&arena, kir_schedule, count);
  memcpy(before, space->schedules, count * sizeof *before);
  for (uint32_t i = 0; i < count; i++)
    kept[i] = i % 3 == 1;
  tune_space_keep(space, kept);
  for (uint32_t i = 0; i < count; i++) {
    bool stays = i == 0 || kept[i];
    assert_int_equal(tune_space_find(space, &before[i]), stays ? (int64_t)left : -1);
    left += stays;
  }
  assert_int_equal(space->count, left);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_what_matters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_tasks, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_distinct, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_neighbours, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_large, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_keep, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
