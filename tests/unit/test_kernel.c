// Kernel IR: schedules as text, what lowering decides for the sites users write, and the rules
// every kernel obeys: for each variant of tests/variants under several schedules.
#include "passes/passes.h"

#include "support/graph_fixture.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

// ---- schedules ----------------------------------------------------------------------------------

enum { CPU = 1, CUDA = 2, BOTH = 3 };

static const struct {
  uint32_t machines;
  const char *name;
  int64_t low, high, initial;
} knobs[] = {
#define KNOB(machines, name, low, high, initial, matters, tried, summary)                          \
  {machines, #name, low, high, initial},
#include "ir/schedule.def"
#undef KNOB
};

// A machine that has the knob.
static kir_machine machine_of(size_t knob) {
  return knobs[knob].machines & CPU ? KIR_CPU : KIR_CUDA;
}
enum { KNOB_COUNT = sizeof knobs / sizeof knobs[0] };

static const char *printed(const kir_schedule *schedule) {
  base_text text = {.arena = &arena};
  kir_schedule_print(schedule, &text);
  return text.data;
}

static void test_every_knob_round_trips(void **state) {
  (void)state;
  for (size_t i = 0; i < KNOB_COUNT; i++) {
    int64_t numbers[] = {knobs[i].low, knobs[i].high, knobs[i].initial};
    for (size_t j = 0; j < 3; j++) {
      kir_schedule schedule = kir_schedule_default(machine_of(i)), again = schedule;
      if (strcmp(knobs[i].name, "residency") == 0) schedule.load = again.load = 1;
      base_str text = base_str_format(&arena, "%s=%lld", knobs[i].name, (long long)numbers[j]);
      assert_clean(kir_schedule_parse(text.data, &schedule, &diag));
      assert_non_null(strstr(printed(&schedule), text.data));
      assert_clean(kir_schedule_parse(printed(&schedule), &again, &diag));
      assert_memory_equal(&schedule, &again, sizeof schedule);
    }
  }
}

static void test_knobs_out_of_range(void **state) {
  (void)state;
  for (size_t i = 0; i < KNOB_COUNT; i++)
    for (int j = 0; j < 2; j++) {
      kir_schedule schedule = kir_schedule_default(machine_of(i)), before = schedule;
      int64_t number = j ? knobs[i].high + 1 : knobs[i].low - 1;
      base_str text = base_str_format(&arena, "%s=%lld", knobs[i].name, (long long)number);
      base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
      assert_false(kir_schedule_parse(text.data, &schedule, &diag));
      assert_memory_equal(&schedule, &before, sizeof schedule);
      base_str range = base_str_format(&arena, "%s is an integer from %lld to %lld", knobs[i].name,
                                       (long long)knobs[i].low, (long long)knobs[i].high);
      assert_non_null(strstr(base_diag_render(&diag).data, range.data));
    }
}

static void test_bad_schedules(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
    uint32_t errors;
  } wrong[] = {
      {"unrol=4", "did you mean 'unroll'?", 1},
      {"tiles=4", "the knobs are lanes, vector, unroll", 1},
      {"unroll", "'unroll' is not key=value", 1},
      {"unroll=", "unroll cannot be ''", 1},
      {"unroll=4x", "unroll cannot be '4x'", 1},
      {"unroll=1e1", "unroll cannot be '1e1'", 1},
      {"unroll=99999999999999999999", "unroll cannot be '99999999999999999999'", 1},
      {"vector=3", "a power of two", 1},
      {"unroll=4,rows=0,nothing", "rows cannot be '0'", 2},
      {"unroll=2,unroll=4", "unroll is given twice", 1},
      {"unroll=+4", "unroll cannot be '+4'", 1},
      {"unroll= 4", "unroll cannot be ' 4'", 1},
      {"unroll=2,,rows=7", "'' is not key=value", 1},
      {"unroll=2,", "'' is not key=value", 1},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    kir_schedule schedule = kir_schedule_default(KIR_CPU), before = schedule;
    base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
    assert_false(kir_schedule_parse(wrong[i].text, &schedule, &diag));
    assert_memory_equal(&schedule, &before, sizeof schedule);
    assert_int_equal(diag.error_count, wrong[i].errors);
    const char *report = base_diag_render(&diag).data;
    if (!strstr(report, wrong[i].message))
      fail_msg("%s: expected '%s', found\n%s", wrong[i].text, wrong[i].message, report);
  }
}

static void test_schedules_add_up(void **state) {
  (void)state;
  kir_schedule schedule = kir_schedule_default(KIR_CPU);
  assert_clean(kir_schedule_parse("", &schedule, &diag));
  assert_clean(kir_schedule_parse("unroll=2,rows=7", &schedule, &diag));
  assert_clean(kir_schedule_parse("vector=8,unroll=3", &schedule, &diag));
  assert_int_equal(schedule.unroll, 3);
  assert_int_equal(schedule.rows, 7);
  assert_int_equal(schedule.vector, 8);
}

static void test_knobs_are_described(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  kir_schedule_describe(&text);
  for (size_t i = 0; i < KNOB_COUNT; i++)
    assert_non_null(strstr(text.data, knobs[i].name));
}

// ---- lowering a text ----------------------------------------------------------------------------

static const ir_graph *fused(const char *text) {
  base_diag_init(&diag, &arena, BASE_STR("test.fir"), base_str_from(text));
  ir_module *module = ir_parse(&arena, base_str_from(text), &diag);
  assert_clean(module != NULL);
  ir_graph *graph = module->graphs.data[0];
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  pass_options options = {0};
  ir_graph *result = pass_run(graph, pass_cpu_pipeline, &options, &diag);
  assert_clean(result != NULL);
  return result;
}

static const kir_kernel *lowered(const ir_graph *graph, int32_t index, const char *schedule) {
  kir_schedule chosen = pass_default_schedule(graph, index);
  assert_clean(kir_schedule_parse(schedule, &chosen, &diag));
  const kir_kernel *kernel = pass_lower(graph, index, &chosen, &diag);
  assert_clean(kernel != NULL);
  return kernel;
}

static uint32_t index_of(const kir_kernel *kernel, const char *name) {
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++)
    if (base_str_equal(kernel->graph->nodes.data[i].name, base_str_from(name))) return i;
  fail_msg("no value %%%s", name);
  return 0;
}

static const kir_value *value_of(const kir_kernel *kernel, const char *name) {
  return &kernel->values[index_of(kernel, name)];
}

static const kir_arg *arg_of(const kir_kernel *kernel, const char *name) {
  uint32_t index = index_of(kernel, name);
  for (uint32_t i = 0; i < kernel->args.count; i++)
    if (kernel->args.data[i].value.index == index) return &kernel->args.data[i];
  fail_msg("%%%s is no argument", name);
  return NULL;
}

static const char *axis_name(const kir_kernel *kernel, ir_axis axis) {
  return base_str_copy(&arena, kernel->graph->axes.data[axis.index].name).data;
}

static const kir_axis *axis_of(const kir_kernel *kernel, const char *name) {
  ir_axis axis;
  assert_true(ir_axis_find(kernel->graph, base_str_from(name), &axis));
  return &kernel->axes[axis.index];
}

// "N, D lanes": the loops of the sweep that computes a value.
static const char *loops_of(const kir_kernel *kernel, const char *name) {
  uint32_t index = index_of(kernel, name);
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      if (sweep->roots.data[j].value.index != index) continue;
      base_text text = {.arena = &arena};
      base_text_printf(&text, "%s", "");
      for (uint32_t k = 0; k < sweep->loop_count; k++)
        base_text_printf(&text, "%s%s%s", k ? ", " : "", axis_name(kernel, sweep->loops[k]),
                         (int32_t)k == sweep->lane ? " lanes" : "");
      return text.data;
    }
  }
  fail_msg("no sweep computes %%%s", name);
  return NULL;
}

static const char site[] =
    "graph @site(%bank: bf16[B=8, T, D=7168], %p: bf16[T, D], %query: f32[D], %gain: f32[D]) {"
    "%v = concat %bank, %p over B to N                      : bf16[N=9, T, D]"
    "%s = mul %v, %v                                        : f32[N, T, D]"
    "%mean = mean %s over D                                 : f32[N, T]"
    "%r = rsqrt %mean                                       : f32[N, T]"
    "%w = mul %query, %gain                                 : f32[D]"
    "%d = dot %v, %w over D                                 : f32[N, T]"
    "%z = mul %d, %r                                        : f32[N, T]"
    "%a = sigmoid %z                                        : f32[N, T]"
    "%h = weighted_sum %a, %v over N                        : f32[T, D]"
    "%hh = mul %h, %h                                       : f32[T, D]"
    "%m = mean %hh over D                                   : f32[T]"
    "%y = mul %h, %m                                        : bf16[T, D]"
    "return %y }";

static void test_roles_of_axes(void **state) {
  (void)state;
  const kir_kernel *kernel = lowered(fused(site), 0, "");
  assert_int_equal(kernel->row_count, 1);
  assert_string_equal(axis_name(kernel, kernel->rows[0]), "T");
  assert_true(axis_of(kernel, "T")->row && !axis_of(kernel, "T")->hidden);
  assert_true(axis_of(kernel, "D")->hidden && !axis_of(kernel, "D")->source);
  assert_true(axis_of(kernel, "N")->source && !axis_of(kernel, "N")->hidden);
  assert_int_equal(axis_of(kernel, "N")->breaks.count, 1);
  assert_int_equal(axis_of(kernel, "N")->breaks.data[0], 8);
}

static void test_arguments(void **state) {
  (void)state;
  const kir_kernel *kernel = lowered(fused(site), 0, "");
  assert_int_equal(kernel->args.count, 5);
  assert_true(arg_of(kernel, "bank")->sliced);
  assert_int_equal(arg_of(kernel, "bank")->unit_position, 2);
  assert_false(arg_of(kernel, "p")->sliced);
  assert_int_equal(arg_of(kernel, "p")->unit_position, 1);
  assert_true(arg_of(kernel, "y")->written && !arg_of(kernel, "query")->written);
  assert_false(arg_of(kernel, "y")->temporary);
}

static void test_places_and_levels(void **state) {
  (void)state;
  const kir_kernel *kernel = lowered(fused(site), 0, "");
  // Without rows: once a launch.
  assert_int_equal(value_of(kernel, "w")->phase, KIR_PREPARE);
  assert_int_equal(value_of(kernel, "w")->place, KIR_SHARED);
  // Both sums leave the first sweep, the logits and weights follow from them, the mix is kept for
  // its norm.
  assert_int_equal(value_of(kernel, "mean")->place, KIR_SCRATCH);
  assert_int_equal(value_of(kernel, "mean")->level, 0);
  assert_int_equal(value_of(kernel, "a")->level, 1);
  assert_int_equal(value_of(kernel, "h")->level, 1);
  assert_int_equal(value_of(kernel, "h")->place, KIR_SCRATCH);
  assert_int_equal(value_of(kernel, "y")->level, 2);
  assert_true(value_of(kernel, "y")->store_arg >= 0);
  // The concat and the squares exist only where they are used.
  assert_int_equal(value_of(kernel, "v")->place, KIR_INLINE);
  assert_int_equal(value_of(kernel, "s")->place, KIR_INLINE);
  assert_string_equal(loops_of(kernel, "mean"), "N, D lanes");
  assert_string_equal(loops_of(kernel, "d"), "N, D lanes");
  assert_string_equal(loops_of(kernel, "h"), "D lanes");
}

static void test_cost(void **state) {
  (void)state;
  const kir_kernel *kernel = lowered(fused(site), 0, "");
  kir_cost cost = kir_cost_per_row(kernel);
  assert_true(cost.bytes_read == 9 * 7168 * 2);
  assert_true(cost.bytes_written == 7168 * 2);
  // Squares, two sums (the dot multiplies too), the mix, and a little.
  assert_true(cost.flops > 9 * 7168 * 5 && cost.flops < 9 * 7168 * 8);
}

static void test_queries_on_lanes(void **state) {
  (void)state;
  const ir_graph *graph = fused("graph @p(%bank: f32[N=5, T, D=96], %query: f32[S=24, D]) {"
                                "%z = dot %bank, %query over D : f32[N, T, S]  return %z }");
  const kir_kernel *hidden = lowered(graph, 0, "lanes=0"), *queries = lowered(graph, 0, "lanes=1");
  assert_string_equal(loops_of(hidden, "z") + strlen(loops_of(hidden, "z")) - 7, "D lanes");
  assert_non_null(strstr(loops_of(queries, "z"), "S lanes"));
  const kir_value *packed = value_of(queries, "query");
  assert_int_equal(packed->place, KIR_SHARED);
  assert_string_equal(axis_name(queries, packed->order[packed->rank - 1]), "S");
  // Enough queries to fill vectors: then lanes along them are the default.
  assert_int_equal(pass_default_schedule(graph, 0).lanes, KIR_LANES_QUERY);
}

static void test_heads_are_loops_over_factors(void **state) {
  (void)state;
  const kir_kernel *kernel = lowered(fused("graph @h(%v: f32[N=3, T, D=96], %q: f32[H=4, C]) {"
                                           "%s = split_axis %v over D to H, C : f32[N, T, H, C=24]"
                                           "%z = dot %s, %q over C            : f32[N, T, H]"
                                           "%a = softmax %z over N            : f32[N, T, H]"
                                           "return %a }"),
                                     0, "");
  assert_int_equal(axis_of(kernel, "D")->factor_count, 2);
  assert_string_equal(loops_of(kernel, "z"), "N, H, C lanes");
  assert_int_equal(value_of(kernel, "s")->place, KIR_INLINE);
}

static void test_two_kernels(void **state) {
  (void)state;
  const ir_graph *graph = fused("graph @two(%bank: f32[N=3, T, D=96], %q: f32[D], %g: f32[D]) {"
                                "%w = add %q, %g          : f32[D]"
                                "%z = dot %bank, %w over D : f32[N, T]"
                                "return %z, %w }");
  assert_int_equal(pass_kernel_count(graph), 2);
  const kir_kernel *first = lowered(graph, 0, ""), *second = lowered(graph, 1, "");
  assert_int_equal(first->row_count, 0);
  assert_true(arg_of(first, "w")->written);
  assert_false(arg_of(second, "w")->written);
  assert_false(arg_of(second, "w")->temporary); // it is a result
}

// ---- rules every kernel obeys -------------------------------------------------------------------

static const char *current; // the variant being looked at

static void assert_rule(bool ok, const kir_kernel *kernel, const char *rule) {
  if (ok) return;
  base_text text = {.arena = &arena};
  kir_print(kernel, &text);
  fail_msg("%s: %s\n%s", current, rule, text.data);
}

static bool is_stored(const kir_value *value) {
  return value->place == KIR_SHARED || value->place == KIR_SCRATCH || value->store_arg >= 0;
}

// What is computed in place reads only what earlier sweeps, or earlier roots of this one, have
// left.
static bool reads_are_ready(const kir_kernel *kernel, ir_value value, bool top, const bool *ready) {
  const kir_value *info = &kernel->values[value.index];
  if (info->place == KIR_ARGUMENT && !top) return true;
  bool kept = info->place == KIR_SHARED || info->place == KIR_SCRATCH;
  if (kept && !top) return ready[value.index];
  const ir_node *node = ir_node_of(kernel->graph, value);
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (!reads_are_ready(kernel, node->operands[i], false, ready)) return false;
  return true;
}

static void check_sweeps(const kir_kernel *kernel) {
  bool *ready = base_new_array(&arena, bool, kernel->graph->nodes.count);
  bool *computed = base_new_array(&arena, bool, kernel->graph->nodes.count);
  uint32_t level[KIR_PHASE_COUNT] = {0, 0};
  kir_phase phase = KIR_PREPARE;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    assert_rule(sweep->phase >= phase, kernel, "the body comes after prepare");
    phase = sweep->phase;
    assert_rule(sweep->level >= level[phase], kernel, "levels ascend");
    level[phase] = sweep->level;
    int64_t points = 1;
    uint64_t loops = 0;
    for (uint32_t j = 0; j < sweep->loop_count; j++) {
      assert_rule(!kernel->axes[sweep->loops[j].index].row, kernel, "no loop is over rows");
      assert_rule(!(loops & ir_axis_bit(sweep->loops[j])), kernel, "each axis is one loop");
      loops |= ir_axis_bit(sweep->loops[j]);
      points *= kir_tile(kernel, sweep, j);
    }
    assert_rule(points >= 1 && points <= 48, kernel, "a tile fits the registers");
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      const kir_root *root = &sweep->roots.data[j];
      assert_rule(is_stored(&kernel->values[root->value.index]), kernel, "a root is stored");
      assert_rule(!computed[root->value.index], kernel, "a root is computed once");
      assert_rule(!(root->accumulates & ~loops), kernel, "a root accumulates over loops");
      assert_rule(reads_are_ready(kernel, root->value, true, ready), kernel,
                  "a root reads what is there");
      computed[root->value.index] = true;
      if (!root->accumulates) ready[root->value.index] = true;
    }
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      ready[sweep->roots.data[j].value.index] = true;
  }
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++)
    assert_rule(!is_stored(&kernel->values[i]) || computed[i], kernel,
                "every stored value has a sweep");
}

static size_t bytes_of(const kir_kernel *kernel, const kir_value *value) {
  size_t bytes = sizeof(float);
  for (uint32_t i = 0; i < value->rank; i++)
    bytes *= (size_t)kernel->axes[value->order[i].index].size;
  return bytes;
}

static void check_memory(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++) {
    const kir_value *value = &kernel->values[i];
    if (value->place != KIR_SHARED && value->place != KIR_SCRATCH) continue;
    bool source = false, hidden = false;
    for (uint32_t j = 0; j < value->rank; j++) {
      source |= kernel->axes[value->order[j].index].source;
      hidden |= kernel->axes[value->order[j].index].hidden;
    }
    assert_rule(!(source && hidden), kernel, "nothing of sources times hidden is kept");
    size_t end = value->place == KIR_SHARED ? kernel->shared_bytes : kernel->scratch_bytes;
    assert_rule(value->offset % 64 == 0 && value->offset + bytes_of(kernel, value) <= end, kernel,
                "a place lies in its memory");
    for (uint32_t j = 0; j < i; j++) {
      const kir_value *other = &kernel->values[j];
      if (other->place != value->place) continue;
      bool apart = other->offset + bytes_of(kernel, other) <= value->offset ||
                   value->offset + bytes_of(kernel, value) <= other->offset;
      assert_rule(apart, kernel, "places do not overlap");
    }
  }
}

static void check_args(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
    for (uint32_t j = 0; j < i; j++)
      assert_rule(kernel->args.data[j].value.index != arg->value.index, kernel,
                  "each value is one argument");
    assert_rule(!arg->temporary, kernel, "one kernel has no temporaries");
    assert_rule(arg->unit_position < (int32_t)type->rank, kernel, "the contiguous axis exists");
    assert_rule(arg->unit_position < 0 || kernel->axes[type->axes[arg->unit_position].index].hidden,
                kernel, "the contiguous axis is hidden");
  }
}

// ---- variants -----------------------------------------------------------------------------------

static const ir_graph *variant(base_str source) {
  static const struct {
    const char *axis;
    int64_t size;
  } bindings[] = {{"D", 96}, {"N", 5}, {"S", 10}, {"H", 4}, {"B", 4}};
  const char *text = base_str_copy(&arena, source).data;
  base_diag_init(&diag, &arena, base_str_from(current), source);
  ir_module *module = ir_parse(&arena, base_str_from(text), &diag);
  assert_clean(module != NULL);
  ir_graph *graph = module->graphs.data[0];
  assert_clean(ir_verify(graph, IR_STAGE_PARSED, &diag));
  for (size_t i = 0; i < sizeof bindings / sizeof bindings[0]; i++) {
    ir_axis axis;
    base_str name = base_str_from(bindings[i].axis);
    if (ir_axis_find(graph, name, &axis) && ir_axis_size(graph, axis) == IR_DYNAMIC)
      assert_clean(ir_bind_axis(graph, name, bindings[i].size, &diag));
  }
  if (strstr(text, "slice %all"))
    assert_clean(ir_bind_axis(graph, BASE_STR("M"), strstr(text, "[W,") ? 6 : 7, &diag));
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  pass_options options = {0};
  ir_graph *result = pass_run(graph, pass_cpu_pipeline, &options, &diag);
  assert_clean(result != NULL);
  return result;
}

static void test_rules_hold_for_variants(void **state) {
  (void)state;
  static const char *const schedules[] = {
      "", "lanes=1", "lanes=0,unroll=1,source_tile=16,query_tile=32,overlap=0,pair=0",
      "lanes=1,vector=4,unroll=16,source_tile=16,query_tile=32,mix_unroll=1"};
  base_str folder = base_str_format(&arena, "%s/tests/variants", getenv("FATHOM_SOURCE_DIR"));
  DIR *directory = opendir(folder.data);
  assert_non_null(directory);
  uint32_t count = 0;
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (!strstr(entry->d_name, ".fir")) continue;
    base_str path = base_str_format(&arena, "%s/%s", folder.data, entry->d_name), source, why;
    assert_int_equal(base_file_read(&arena, path.data, &source, &why), BASE_OK);
    current = entry->d_name;
    const ir_graph *graph = variant(source);
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
      const kir_kernel *kernel = lowered(graph, 0, schedules[i]);
      check_sweeps(kernel);
      check_memory(kernel);
      check_args(kernel);
    }
    count++;
  }
  closedir(directory);
  assert_true(count > 40);
}

static void test_printing(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  kir_print(lowered(fused(site), 0, "unroll=2,overlap=0"), &text);
  static const char *const parts[] = {
      "kernel @site, rows (T) {\n",
      "unroll=2",
      "read  %bank : bf16[B, T, D], contiguous along D, sliced\n",
      "write %y : bf16[T, D], contiguous along D\n",
      "once, level 0, sweep(D=7168 lanes x2) {\n",
      "%d = dot %v, %w over D : f32[N, T] -> scratch[N]\n",
      "-> memory\n",
  };
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (!strstr(text.data, parts[i])) fail_msg("expected '%s' in\n%s", parts[i], text.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_every_knob_round_trips, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_knobs_out_of_range, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bad_schedules, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_schedules_add_up, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_knobs_are_described, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_roles_of_axes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_arguments, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_places_and_levels, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cost, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_queries_on_lanes, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_heads_are_loops_over_factors, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_two_kernels, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_rules_hold_for_variants, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_printing, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
