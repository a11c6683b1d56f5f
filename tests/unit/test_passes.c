// Passes: what a graph computes stays what it is, bit by bit for canonicalize, and the manager's
// promises.
//
// The text each pass makes is in tests/lit/passes; here graphs are evaluated before and after.
// Variants are the files of tests/variants, with bf16 and f16 read as f32: then nothing rounds, and
// the reference compares in f64.
#include "passes/passes.h"

#include "support/graph_fixture.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ir_graph *parse(const char *text) {
  return verified(text, IR_STAGE_PARSED);
}

static ir_graph *run_passes(const ir_graph *graph, const char *pipeline) {
  pass_options options = {.verify_each = true};
  ir_graph *result = pass_run(graph, pipeline, &options, &diag);
  assert_clean(result != NULL);
  return result;
}

// ---- random numbers -----------------------------------------------------------------------------

static uint64_t seed;

static uint32_t draw(uint32_t below) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(seed >> 33) % below;
}

static const double specials[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1.0, -1.0, 1e-30, 3e38};
enum { SPECIAL_COUNT = sizeof specials / sizeof specials[0] };

// ---- evaluation ---------------------------------------------------------------------------------

typedef struct values {
  double *data[8];
  size_t count[8];
} values;

enum { DYNAMIC_SIZE = 2 };

static size_t elements(const ir_graph *graph, ir_value value, const int64_t *sizes) {
  const ir_type *type = &ir_node_of(graph, value)->type;
  size_t count = 1;
  for (uint32_t i = 0; i < type->rank; i++)
    count *= (size_t)sizes[type->axes[i].index];
  return count;
}

// The results for inputs that depend on the parameters' order and `inputs_seed` only. With
// `special`, one input in three is a zero, an infinity, a NaN or the like.
static values evaluate(const ir_graph *graph, uint64_t inputs_seed, bool special) {
  int64_t *sizes = base_new_array(&arena, int64_t, graph->axes.count);
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    int64_t size = graph->axes.data[i].size;
    sizes[i] = size == IR_DYNAMIC ? DYNAMIC_SIZE : size;
  }
  const double *inputs[32];
  seed = inputs_seed;
  for (uint32_t i = 0; i < graph->param_count; i++) {
    size_t count = elements(graph, (ir_value){i}, sizes);
    double *input = base_new_array(&arena, double, count + 1);
    for (size_t j = 0; j < count; j++) {
      double plain = (double)draw(2001) / 500.0 - 2.0;
      input[j] = ir_dtype_round(graph->nodes.data[i].type.dtype,
                                special && draw(3) == 0 ? specials[draw(SPECIAL_COUNT)] : plain);
    }
    inputs[i] = input;
  }
  values result = {{0}, {0}};
  for (uint32_t i = 0; i < graph->results.count; i++) {
    result.count[i] = elements(graph, graph->results.data[i], sizes);
    result.data[i] = base_new_array(&arena, double, result.count[i] + 1);
  }
  assert_clean(ir_interpret(graph, sizes, inputs, result.data, NULL, &diag) == BASE_OK);
  return result;
}

static bool same_bits(double a, double b) {
  if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
  return a == b && !signbit(a) == !signbit(b);
}

static void assert_same_bits(const ir_graph *before, const ir_graph *after, const char *what) {
  for (uint64_t inputs = 1; inputs <= 4; inputs++) {
    values a = evaluate(before, inputs, inputs > 1), b = evaluate(after, inputs, inputs > 1);
    for (uint32_t i = 0; i < before->results.count; i++)
      for (size_t j = 0; j < a.count[i]; j++)
        if (!same_bits(a.data[i][j], b.data[i][j]))
          fail_msg("%s: %.17g became %.17g", what, a.data[i][j], b.data[i][j]);
  }
}

// ---- canonicalize, rule by rule -----------------------------------------------------------------

// %x stands for the operand. What a rule removes is named %q.
static const struct {
  const char *rule, *statements;
} patterns[] = {
    {"mul_one", "%one = constant {value = 1} : f32[]  %q = mul %x, %one : f32[A, B]"},
    {"mul_one", "%one = constant {value = 1} : f32[]  %q = mul %one, %x : f32[A, B]"},
    {"mul_one", "%one = constant {value = 1} : bf16[]  %q = mul %one, %x : f32[A, B]"},
    {"div_one", "%one = constant {value = 1} : f16[]  %q = div %x, %one : f32[A, B]"},
    {"sub_zero", "%zero = constant {value = 0} : f32[]  %q = sub %x, %zero : f32[A, B]"},
    {"cast_same", "%q = cast %x : f32[A, B]"},
    {"neg_neg", "%p = neg %x : f32[A, B]  %q = neg %p : f32[A, B]"},
};
enum { PATTERN_COUNT = sizeof patterns / sizeof patterns[0] };

// Close to a pattern, but the value or the type would change: %q stays.
static const char *const near_misses[] = {
    "%c = constant {value = 1.0000001} : f32[]  %q = mul %x, %c : f32[A, B]",
    "%c = constant {value = 1} : f32[]  %q = mul %x, %c : bf16[A, B]",
    "%c = constant {value = 1} : f32[]  %q = mul %x, %c : f32[B, A]",
    "%c = constant {value = [1, 1, 1]} : f32[A]  %q = mul %x, %c : f32[A, B]",
    "%c = constant {value = 1} : f32[]  %q = div %c, %x : f32[A, B]",
    "%c = constant {value = -0} : f32[]  %q = sub %x, %c : f32[A, B]",
    "%c = constant {value = 0} : f32[]  %q = sub %c, %x : f32[A, B]",
    "%c = constant {value = 0} : f32[]  %q = add %x, %c : f32[A, B]",
    "%q = cast %x : bf16[A, B]",
    "%q = cast %x : f32[B, A]",
    "%p = neg %x : bf16[A, B]  %q = neg %p : f32[A, B]",
    "%p = neg %x : f32[B, A]  %q = neg %p : f32[B, A]",
    "%p = neg %x : f32[A, B]  %q = exp %p : f32[A, B]",
};
enum { NEAR_MISS_COUNT = sizeof near_misses / sizeof near_misses[0] };

// Statements over values of type f32[A, B]; %a and %b are earlier ones.
static const char *const steps[] = {
    "%s = neg %a : f32[A, B]",       "%s = exp %a : f32[A, B]",     "%s = sigmoid %a : f32[A, B]",
    "%s = add %a, %b : f32[A, B]",   "%s = sub %a, %b : f32[A, B]", "%s = mul %b, %a : f32[A, B]",
    "%s = div %a, %b : f32[A, B]",   "%s = max %a, %b : f32[A, B]", "%s = cast %a : f32[A, B]",
    "%s = mul %a, %row : f32[A, B]",
};
enum { STEP_COUNT = sizeof steps / sizeof steps[0] };

// Appends `statement` with the names %s, %a, %b and %x replaced by those of values.
static void append_statement(base_text *text, const char *statement, uint32_t result, uint32_t a,
                             uint32_t b) {
  for (const char *at = statement; *at; at++) {
    bool alone = at[0] == '%' && at[1] && !(at[2] >= 'a' && at[2] <= 'z');
    if (alone && at[1] == 's')
      base_text_printf(text, "%%v%u", result);
    else if (alone && (at[1] == 'a' || at[1] == 'x'))
      base_text_printf(text, "%%v%u", a);
    else if (alone && at[1] == 'b')
      base_text_printf(text, "%%v%u", b);
    else {
      base_text_append(text, at, 1);
      continue;
    }
    at++;
  }
  base_text_append(text, "\n", 1);
}

// A chain of random steps with the pattern in the middle of it, and steps that use %q after.
static ir_graph *random_graph(const char *pattern) {
  base_text text = {.arena = &arena};
  base_text_printf(&text, "graph @g(%%v0: f32[A=3, B=2], %%v1: f32[A, B], %%row: f32[B]) {\n");
  uint32_t before = draw(4), after = 1 + draw(4), count = 2;
  for (uint32_t i = 0; i < before; i++, count++)
    append_statement(&text, steps[draw(STEP_COUNT)], count, draw(count), draw(count));
  append_statement(&text, pattern, 0, draw(count), 0);
  base_text_printf(&text, "%%v%u = max %%q, %%v%u : f32[A, B]\n", count, draw(count));
  count++;
  for (uint32_t i = 0; i < after; i++, count++)
    append_statement(&text, steps[draw(STEP_COUNT)], count, draw(count), draw(count));
  base_text_printf(&text, "return %%v%u, %%v%u }", count - 1, 2 + before);
  return parse(text.data);
}

static bool has_node(const ir_graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (base_str_equal(graph->nodes.data[i].name, base_str_from(name))) return true;
  return false;
}

enum { RANDOM_GRAPHS = 60 };

static void test_rules_keep_values(void **state) {
  (void)state;
  for (uint32_t i = 0; i < PATTERN_COUNT; i++)
    for (uint32_t j = 0; j < RANDOM_GRAPHS; j++) {
      seed = 1000 * i + j;
      ir_graph *graph = random_graph(patterns[i].statements);
      ir_graph *result = run_passes(graph, "canonicalize");
      assert_same_bits(graph, result, patterns[i].rule);
      if (has_node(result, "q"))
        fail_msg("%s does not remove %s", patterns[i].rule, patterns[i].statements);
    }
}

static void test_near_misses_stay(void **state) {
  (void)state;
  for (uint32_t i = 0; i < NEAR_MISS_COUNT; i++)
    for (uint32_t j = 0; j < RANDOM_GRAPHS; j++) {
      seed = 1000 * i + j;
      ir_graph *graph = random_graph(near_misses[i]);
      ir_graph *result = run_passes(graph, "canonicalize");
      assert_same_bits(graph, result, near_misses[i]);
    }
  // Alone, so that no equal node stands for %q.
  for (uint32_t i = 0; i < NEAR_MISS_COUNT; i++) {
    base_text text = {.arena = &arena};
    base_text_printf(&text, "graph @g(%%v0: f32[A=3, B=2]) {\n");
    append_statement(&text, near_misses[i], 0, 0, 0);
    base_text_printf(&text, "%%y = exp %%q : f32[A, B] return %%y }");
    if (!has_node(run_passes(parse(text.data), "canonicalize"), "q"))
      fail_msg("canonicalize removes %s", near_misses[i]);
  }
}

static void test_every_rule_has_a_pattern(void **state) {
  (void)state;
  static const char *const rules[] = {
#define RULE(function, text) #function,
#include "passes/rules.def"
#undef RULE
  };
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    bool found = false;
    for (uint32_t j = 0; j < PATTERN_COUNT; j++)
      found |= strcmp(patterns[j].rule, rules[i]) == 0;
    if (!found) fail_msg("rule %s has no pattern here", rules[i]);
  }
}

static void test_folding_rounds_as_typed(void **state) {
  (void)state;
  ir_graph *graph = parse("graph @g(%x: f32[A=3]) {"
                          "%a = constant {value = 1.001} : f32[]"
                          "%b = constant {value = 3} : f32[]"
                          "%c = mul %a, %b : bf16[]"
                          "%d = sub %c, %b : f16[]"
                          "%e = exp %d : f32[]"
                          "%y = mul %x, %e : f32[A]"
                          "return %y }");
  ir_graph *result = run_passes(graph, "canonicalize");
  assert_same_bits(graph, result, "folding");
  assert_int_equal(result->nodes.count, 3); // x, the constant, y
}

// ---- all passes, all variants -------------------------------------------------------------------

typedef struct binding {
  const char *axis;
  int64_t size;
} binding;

// M sources of which N are used: see tests/matrix.
static const binding bindings[] = {{"D", 66}, {"N", 3}, {"S", 2}, {"H", 2}, {"B", 2}};

static void bind(ir_graph *graph, const char *text) {
  for (size_t i = 0; i < sizeof bindings / sizeof bindings[0]; i++) {
    ir_axis axis;
    if (!ir_axis_find(graph, base_str_from(bindings[i].axis), &axis)) continue;
    if (ir_axis_size(graph, axis) == IR_DYNAMIC)
      assert_clean(ir_bind_axis(graph, base_str_from(bindings[i].axis), bindings[i].size, &diag));
  }
  ir_axis window;
  if (strstr(text, "slice %all") && ir_axis_find(graph, BASE_STR("M"), &window))
    assert_clean(ir_bind_axis(graph, BASE_STR("M"), strstr(text, "[W,") ? 4 : 5, &diag));
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
}

static void replace(char *at, const char *word) {
  for (; *word; at++, word++)
    *at = *word;
}

static char *without_rounding(base_str source) {
  char *text = (char *)base_str_copy(&arena, source).data;
  for (char *at; (at = strstr(text, "bf16"));)
    replace(at, " f32");
  for (char *at; (at = strstr(text, "f16"));)
    replace(at, "f32");
  return text;
}

static void for_each_variant(void (*visit)(const char *name, ir_graph *graph)) {
  base_str folder = base_str_format(&arena, "%s/tests/variants", getenv("FATHOM_SOURCE_DIR"));
  DIR *directory = opendir(folder.data);
  assert_non_null(directory);
  uint32_t count = 0;
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (!strstr(entry->d_name, ".fir")) continue;
    base_str path = base_str_format(&arena, "%s/%s", folder.data, entry->d_name), source, why;
    assert_int_equal(base_file_read(&arena, path.data, &source, &why), BASE_OK);
    char *text = without_rounding(source);
    ir_graph *graph = parse(text);
    bind(graph, text);
    visit(entry->d_name, graph);
    count++;
  }
  closedir(directory);
  assert_true(count > 40);
}

static double distance(const values *a, const values *b, uint32_t result) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a->count[result]; i++) {
    difference += pow(a->data[result][i] - b->data[result][i], 2);
    norm += pow(a->data[result][i], 2);
  }
  return difference == 0 ? 0 : sqrt(difference / norm);
}

static void check_passes_keep_values(const char *name, ir_graph *graph) {
  const char *const pipelines[] = {
      "canonicalize",
      "factor-norm",
      "online-softmax",
      "factor-norm,canonicalize",
      "online-softmax,factor-norm",
      "defer-normaliser",
      "online-softmax,defer-normaliser",
      pass_cpu_pipeline,
      pass_cuda_pipeline,
  };
  values before = evaluate(graph, 7, false);
  for (size_t i = 0; i < sizeof pipelines / sizeof pipelines[0]; i++) {
    values after = evaluate(run_passes(graph, pipelines[i]), 7, false);
    for (uint32_t j = 0; j < graph->results.count; j++) {
      assert_int_equal(before.count[j], after.count[j]);
      double error = distance(&before, &after, j);
      if (!(error < 1e-12))
        fail_msg("%s after %s: result %u is off by %g", name, pipelines[i], j, error);
    }
  }
}

static void test_passes_keep_values(void **state) {
  (void)state;
  for_each_variant(check_passes_keep_values);
}

static const char *const target_pipelines[] = {pass_cpu_pipeline, pass_cuda_pipeline};

static void check_one_kernel(const char *name, ir_graph *graph) {
  for (int i = 0; i < 2; i++) {
    ir_graph *fused = run_passes(graph, target_pipelines[i]);
    assert_clean(ir_verify(fused, IR_STAGE_FUSED, &diag));
    if (pass_kernel_count(fused) != 1) fail_msg("%s: %u kernels", name, pass_kernel_count(fused));
  }
}

static void test_one_kernel_each(void **state) {
  (void)state;
  for_each_variant(check_one_kernel);
}

static void check_names(const char *name, const ir_graph *graph, const ir_graph *fused) {
  assert_int_equal(fused->results.count, graph->results.count);
  assert_int_equal(fused->param_count, graph->param_count);
  for (uint32_t i = 0; i < graph->results.count; i++) {
    const ir_node *before = ir_node_of(graph, graph->results.data[i]);
    const ir_node *after = ir_node_of(fused, fused->results.data[i]);
    if (!base_str_equal(before->name, after->name))
      fail_msg("%s: result %.*s is now %.*s", name, BASE_FMT(before->name), BASE_FMT(after->name));
    assert_int_equal(before->type.dtype, after->type.dtype);
  }
}

static void check_results_keep_names(const char *name, ir_graph *graph) {
  for (int i = 0; i < 2; i++)
    check_names(name, graph, run_passes(graph, target_pipelines[i]));
}

static void test_results_keep_names(void **state) {
  (void)state;
  for_each_variant(check_results_keep_names);
}

// ---- numbers the passes must get right ----------------------------------------------------------

static void test_softmax_of_extreme_logits(void **state) {
  (void)state;
  const char *text = "graph @g(%z: f32[N=3, T=1]) {"
                     "%a = softmax %z over N : f32[N, T]"
                     "%l = logsumexp %z over N : f32[T]"
                     "return %a, %l }";
  static const double logits[][3] = {
      {1e4, -1e4, 9999.5}, {-INFINITY, -1e4, 0}, {-3e38, -3e38, -3e38}, {1e30, 1e30, -1e30}};
  ir_graph *graph = parse(text), *expanded = run_passes(graph, "online-softmax,canonicalize");
  int64_t *sizes = base_new_array(&arena, int64_t, graph->axes.count);
  for (uint32_t i = 0; i < graph->axes.count; i++)
    sizes[i] = graph->axes.data[i].size;
  for (size_t i = 0; i < sizeof logits / sizeof logits[0]; i++) {
    double a[2][3], lse[2];
    const double *input = logits[i];
    double *outputs[2][2] = {{a[0], &lse[0]}, {a[1], &lse[1]}};
    assert_int_equal(ir_interpret(graph, sizes, &input, outputs[0], NULL, &diag), BASE_OK);
    assert_int_equal(ir_interpret(expanded, sizes, &input, outputs[1], NULL, &diag), BASE_OK);
    for (int j = 0; j < 3; j++) {
      assert_true(isfinite(a[1][j]));
      assert_true(fabs(a[0][j] - a[1][j]) <= 1e-15);
    }
    assert_true(fabs(lse[0] - lse[1]) <= 1e-15 * fabs(lse[0]));
  }
}

// How a mix reads with its weights moved out: as written, and not at all where they round.
static void test_normalisers_are_deferred(void **state) {
  (void)state;
  static const struct {
    const char *weights, *mix;
    bool moves;
  } cases[] = {
      {"%a = div %e, %s : f32[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", true},
      {"%a = mul %e, %s : f32[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", true},
      {"%a = mul %s, %e : f32[T, N]", "%h = weighted_sum %a, %v over N : f32[D, T]", true},
      {"%a = div %e, %g : f32[N, T, D]", "%h = weighted_sum %a, %v over N : f32[T, D]", true},
      {"%a = div %e, %s : f32[N, T]", "%h = weighted_sum %a, %v over N : bf16[T, D]", true},
      {"%a = div %e, %s : bf16[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", false},
      {"%a = mul %e, %s : f16[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", false},
      {"%a = div %s, %e : f32[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", false},
      {"%a = mul %e, %e : f32[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", false},
      {"%a = div %k, %s : f32[N, M, T]", "%h = weighted_sum %a, %m over N, M : f32[T, D]", false},
      {"%a = add %e, %s : f32[N, T]", "%h = weighted_sum %a, %v over N : f32[T, D]", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ir_graph *graph =
        parse(base_str_format(&arena,
                              "graph @g(%%e: f32[N=5, T=3], %%s: f32[T], %%g: f32[D=4],"
                              "%%v: f32[N, T, D], %%k: f32[N, M=2, T], %%m: f32[N, M, T, D])"
                              "{ %s %s return %%h }",
                              cases[i].weights, cases[i].mix)
                  .data);
    ir_graph *result = run_passes(graph, "defer-normaliser,canonicalize");
    if (has_node(result, "a") == cases[i].moves)
      fail_msg("%s %s", cases[i].weights, cases[i].moves ? "stays" : "moves");
    for (uint32_t j = 0; j < result->nodes.count; j++) // the sum itself does not round
      if (result->nodes.data[j].op == IR_WEIGHTED_SUM)
        assert_int_equal(result->nodes.data[j].type.dtype, IR_F32);
    values before = evaluate(graph, 3, false), after = evaluate(result, 3, false);
    double error = distance(&before, &after, 0);
    const bool rounds = strstr(cases[i].mix, "bf16") != NULL; // one result may fall the other way
    if (!(error < (rounds ? 4e-3 : 1e-12))) fail_msg("%s: off by %g", cases[i].weights, error);
    assert_true(ir_equal(run_passes(result, "defer-normaliser,canonicalize"), result));
  }
}

// ---- the manager --------------------------------------------------------------------------------

static void test_table(void **state) {
  (void)state;
  uint32_t count = 0;
  for (const pass_info *pass; (pass = pass_at(count)); count++)
    assert_ptr_equal(pass_find(base_str_from(pass->name)), pass);
  assert_true(count >= 4);
  assert_null(pass_find(BASE_STR("fus")));
}

static void test_empty_pipelines(void **state) {
  (void)state;
  ir_graph *graph = parse("graph @g(%x: f32[A=3]) { %y = neg %x : f32[A] return %y }");
  assert_ptr_equal(run_passes(graph, ""), graph);
  assert_ptr_equal(run_passes(graph, " , "), graph);
  assert_true(ir_equal(run_passes(graph, " canonicalize , canonicalize "), graph));
}

static void test_facts_are_checked(void **state) {
  (void)state;
  const char *text = "graph @g(%x: f32[T, A=3]) { %y = softmax %x over A : f32[T, A] return %y }";
  static const struct {
    const char *pipeline, *message;
  } wrong[] = {
      {"fuse", "needs a canonical graph"},
      {"canonicalize,fuse", "needs a graph without composite ops"},
      {"canonicalize,online-softmax,fuse", "needs a canonical graph"},
      {"canonicalize,nonsense", "unknown pass 'nonsense'"},
  };
  pass_options options = {0};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    ir_graph *graph = parse(text);
    assert_null(pass_run(graph, wrong[i].pipeline, &options, &diag));
    base_str report = base_diag_render(&diag);
    if (!strstr(report.data, wrong[i].message))
      fail_msg("%s: expected '%s', found\n%s", wrong[i].pipeline, wrong[i].message, report.data);
  }
  assert_int_equal(pass_kernel_count(run_passes(parse(text), "online-softmax,canonicalize,fuse")),
                   1);
}

static void test_log(void **state) {
  (void)state;
  ir_graph *graph = parse("graph @g(%x: f32[A=3]) { %y = neg %x : f32[A] return %y }");
  base_text log = {.arena = &arena};
  pass_options options = {.print_after_all = true, .time_passes = true, .log = &log};
  assert_non_null(pass_run(graph, "canonicalize,fuse", &options, &diag));
  assert_non_null(strstr(log.data, "// after canonicalize\ngraph @g("));
  assert_non_null(strstr(log.data, "// after fuse\ngraph @g("));
  assert_non_null(strstr(log.data, " us\n"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_rules_keep_values, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_near_misses_stay, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_every_rule_has_a_pattern, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_folding_rounds_as_typed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_passes_keep_values, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_one_kernel_each, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_results_keep_names, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_softmax_of_extreme_logits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_normalisers_are_deferred, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_table, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_empty_pipelines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_facts_are_checked, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_log, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
