// What passes do to the graph of a whole depth: two phases and pieces compute what was written, in an order
// that waits for the host, in memory that nobody else uses. All of it is run in f64, where f32 graphs round
// nothing.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "passes/depth.h"
#include "passes/rewrite.h"
#include "support/graph_fixture.h"

enum { TOKENS = 3 };

// ---- graphs -------------------------------------------------------------------------------------

static ir_graph *graph_of(const char *lines, uint32_t sublayers, uint32_t outputs) {
  const base_str text = base_str_format(
      &arena, "schema: 1\nname: m\nhidden: 8\nsublayers: %u\ndtype: f32\n%s", sublayers, lines);
  base_diag_init(&diag, &arena, BASE_STR("m.yaml"), text);
  const model_description *model = model_read(&arena, text, BASE_STR("m"), &diag);
  assert_clean(model != NULL);
  ir_graph *graph = model_expand(&arena, model, outputs, &diag);
  assert_clean(graph != NULL && ir_verify(graph, IR_STAGE_BOUND, &diag));
  return graph;
}

static ir_graph *phased(const ir_graph *graph, pass_phase_choice choice) {
  ir_graph *result = pass_two_phase_as(graph, choice, NULL, NULL, &diag);
  assert_clean(result != NULL && ir_verify(result, IR_STAGE_BOUND, &diag));
  return result;
}

static ir_value value_of(const ir_graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (base_str_equal(graph->nodes.data[i].name, base_str_from(name))) return (ir_value){i};
  fail_msg("the graph has no %%%s", name);
  return (ir_value){0};
}

// What the host's sublayers are here: their input, times a number of their own.
static double factor_of(const ir_node *call) {
  const base_hash hash = base_hash_bytes(call->callee.data, call->callee.length);
  return 0.5 + (double)(hash.low % 1000) / 1000;
}

// The graph with these in place of the calls, so that it can be interpreted.
static ir_graph *without_calls(const ir_graph *graph) {
  pass_rewrite rewrite = pass_rewrite_begin(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!pass_is_call(node)) {
      pass_copy(&rewrite, (ir_value){i});
      continue;
    }
    const ir_value operands[] = {pass_mapped(&rewrite, node->operands[0]),
                                 ir_build_constant(rewrite.graph, factor_of(node))};
    const ir_node product = {.op = IR_MUL,
                             .type = node->type,
                             .operand_count = 2,
                             .operands = operands,
                             .kernel = IR_NO_KERNEL,
                             .name = node->name};
    pass_set(&rewrite, (ir_value){i}, ir_build_node(rewrite.graph, &product));
  }
  ir_graph *result = pass_rewrite_end(&rewrite);
  assert_clean(ir_verify(result, IR_STAGE_BOUND, &diag));
  return result;
}

// ---- evaluation ---------------------------------------------------------------------------------

static int64_t *sizes_of(const ir_graph *graph) {
  int64_t *sizes = base_new_array(&arena, int64_t, graph->axes.count + 1);
  for (uint32_t i = 0; i < graph->axes.count; i++)
    sizes[i] = graph->axes.data[i].size == IR_DYNAMIC ? TOKENS : graph->axes.data[i].size;
  return sizes;
}

static size_t elements_of(const ir_graph *graph, ir_value value) {
  const ir_type *type = &ir_node_of(graph, value)->type;
  size_t count = 1;
  for (uint32_t i = 0; i < type->rank; i++) {
    const int64_t size = ir_axis_size(graph, type->axes[i]);
    count *= size == IR_DYNAMIC ? TOKENS : (size_t)size;
  }
  return count;
}

static double *fresh(const ir_graph *graph, ir_value value) {
  return base_new_array(&arena, double, elements_of(graph, value) + 1);
}

// Random parameters; those of one name are the same in all graphs.
static double **params_of(const ir_graph *graph) {
  double **params = base_new_array(&arena, double *, graph->param_count + 1);
  for (uint32_t i = 0; i < graph->param_count; i++) {
    const base_str name = graph->nodes.data[i].name;
    uint64_t random = base_hash_bytes(name.data, name.length).low;
    params[i] = fresh(graph, (ir_value){i});
    for (size_t j = 0; j < elements_of(graph, (ir_value){i}); j++)
      params[i][j] = (double)(base_random(&random) >> 12) / (double)(1ULL << 51) - 1;
  }
  return params;
}

static double **interpret(const ir_graph *graph, double *const *inputs) {
  double **outputs = base_new_array(&arena, double *, graph->results.count + 1);
  for (uint32_t i = 0; i < graph->results.count; i++)
    outputs[i] = fresh(graph, graph->results.data[i]);
  assert_clean(ir_interpret(graph, sizes_of(graph), (const double *const *)inputs, outputs, NULL,
                            &diag) == BASE_OK);
  return outputs;
}

// Results of the whole depth.
static double **evaluate(const ir_graph *graph) {
  const ir_graph *closed = without_calls(graph);
  return interpret(closed, params_of(closed));
}

static bool close_to(double a, double b) {
  return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

// The name of the first result that differs; NULL: none does.
static const char *compare(const ir_graph *graph, double *const *found, double *const *expected) {
  for (uint32_t i = 0; i < graph->results.count; i++)
    for (size_t j = 0; j < elements_of(graph, graph->results.data[i]); j++)
      if (!close_to(found[i][j], expected[i][j]))
        return base_str_copy(&arena, ir_node_of(graph, graph->results.data[i])->name).data;
  return NULL;
}

// ---- steps --------------------------------------------------------------------------------------

static const char steps_text[] =
    "graph @steps(%e: f32[T, D=8], %w: f32[D], %g: f32[D]) {\n"
    "  %x0 = mul %e, %w : f32[T, D]\n"
    "  %f0 = call @a %x0 : f32[T, D]\n"
    "  %g0 = call @b %x0 : f32[T, D]\n" // together with @a
    "  %wg = mul %w, %g : f32[D]\n"
    "  %late = mul %e, %wg : f32[T, D]\n"
    "  %x1 = add %f0, %g0 : f32[T, D]\n"
    "  %f1 = call @c %x1 : f32[T, D]\n"
    "  %f2 = call @d %late : f32[T, D]\n" // after @c, though it could be made at once
    "  %x3 = add %f1, %f2 : f32[T, D]\n"
    "  return %x3\n"
    "}\n";

static void knows_when_values_are_there(void **state) {
  (void)state;
  const ir_graph *graph = verified(steps_text, IR_STAGE_BOUND);
  static const struct {
    const char *name;
    uint32_t step;
    bool fixed;
  } expected[] = {{"e", 0, false},  {"w", 0, true},   {"x0", 0, false},   {"f0", 0, false},
                  {"g0", 0, false}, {"wg", 0, true},  {"late", 0, false}, {"x1", 1, false},
                  {"f1", 1, false}, {"f2", 1, false}, {"x3", 2, false}};
  const uint32_t *steps = pass_host_steps(graph);
  const bool *fixed = pass_fixed_values(graph);
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
    const uint32_t index = value_of(graph, expected[i].name).index;
    if (steps[index] != expected[i].step || fixed[index] != expected[i].fixed)
      fail_msg("%%%s: step %u, fixed %d", expected[i].name, steps[index], fixed[index]);
  }
}

// Calls come in the same order at the same steps.
static void assert_same_calls(const ir_graph *old, const ir_graph *new) {
  const uint32_t *before = pass_host_steps(old), *after = pass_host_steps(new);
  uint32_t j = 0;
  for (uint32_t i = 0; i < old->nodes.count; i++) {
    if (!pass_is_call(&old->nodes.data[i])) continue;
    while (j < new->nodes.count && !pass_is_call(&new->nodes.data[j]))
      j++;
    assert_true(j < new->nodes.count);
    assert_true(base_str_equal(old->nodes.data[i].callee, new->nodes.data[j].callee));
    assert_int_equal(before[i], after[j]);
    j++;
  }
  for (; j < new->nodes.count; j++)
    assert_false(pass_is_call(&new->nodes.data[j]));
}

// ---- two phases ---------------------------------------------------------------------------------

static const struct network {
  const char *lines;
  uint32_t sublayers, outputs;
  bool alone; // no sites share anything that can be moved
} networks[] = {
    {"blocks: {size: 4}\n", 10, MODEL_WEIGHTS | MODEL_ENTROPY | MODEL_MIX, false},
    {"blocks: {size: 3}\nkey_norm: none\nscale: 0.5\n", 9, 0, false},
    {"blocks: {starts: [0, 1, 5]}\nkey_norm: query_and_key\naddends: [1, 2]\n", 8, MODEL_WEIGHTS,
     false},
    {"", 7, MODEL_WEIGHTS | MODEL_ENTROPY, false}, // full: several late sources
    {"heads: 4\nscale: rsqrt_hidden\nblocks: {size: 3}\n", 8, MODEL_WEIGHTS | MODEL_ENTROPY, false},
    {"heads: 2\nnull_source: learned\n", 6, MODEL_WEIGHTS | MODEL_ENTROPY | MODEL_MIX, false},
    {"null_source: zero\nblocks: {size: 4}\nbias: count\n", 9, MODEL_WEIGHTS | MODEL_ENTROPY,
     false},
    {"bias: {recency: 0.5}\nblocks: {size: 2}\n", 7, MODEL_ENTROPY, false},
    {"bias: {recency: 0.5}\nwindow: 3\n", 7, MODEL_MIX, false},
    {"normaliser: sigmoid\nblocks: {size: 4}\n", 9, MODEL_WEIGHTS | MODEL_MIX, false},
    {"normaliser: sigmoid\nheads: 2\nbias: count\n", 6, MODEL_WEIGHTS, false},
    {"normaliser: uniform\nblocks: {size: 4}\n", 9, MODEL_MIX, false},
    {"normaliser: static\nblocks: {size: 4}\n", 9, MODEL_MIX, false},
    {"normaliser: static\n", 6, 0, false},
    {"delta_form: true\ngate: newest\nblocks: {size: 4}\n", 9, MODEL_MIX, false},
    {"gate: channel\noutput_norm: none\ngains: {key: none}\nblocks: {size: 3}\n", 7, MODEL_MIX,
     false},
    {"blocks: {size: 4096}\n", 6, MODEL_WEIGHTS, false},
    {"window: 1\n", 6, 0, true},
    {"", 1, MODEL_WEIGHTS, true},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static void computes_the_same_in_two_phases(void **state) {
  (void)state;
  for (uint32_t i = 0; i < NETWORKS; i++) {
    const struct network *n = &networks[i];
    const ir_graph *one = graph_of(n->lines, n->sublayers, n->outputs);
    double **expected = evaluate(one);
    for (int choice = PASS_PHASES_LEAST; choice <= PASS_PHASES_ALL; choice++) {
      const ir_graph *two = phased(one, (pass_phase_choice)choice);
      assert_same_calls(one, two);
      assert_int_equal(two->results.count, one->results.count);
      for (uint32_t j = 0; j < one->results.count; j++)
        assert_true(base_str_equal(ir_node_of(one, one->results.data[j])->name,
                                   ir_node_of(two, two->results.data[j])->name));
      if (choice == PASS_PHASES_ALL && ir_equal(one, two) != n->alone)
        fail_msg("'%s': %s", n->lines, n->alone ? "moved" : "left as it was");
      const char *wrong = compare(one, evaluate(two), expected);
      if (wrong != NULL) fail_msg("'%s', choice %d: %%%s differs", n->lines, choice, wrong);
    }
  }
}

// Two sites over one bank, written by hand; %s are the weights of both, and parts of the second site.
static const char sites_text[] =
    "graph @sites(%%e: f32[T, D=8], %%q_1: f32[D], %%q_2: f32[D], %%q_3: f32[D], %%g: f32[D]) {\n"
    "  %%f_0 = call @s0 %%e : f32[T, D]\n"
    "  %%x_1 = mul %%f_0, %%g : f32[T, D]\n"
    "  %%f_1 = call @s1 %%x_1 : f32[T, D]\n"
    "  %%v_1 = concat %%e, %%f_0, %%f_1 over B to N : f32[N=3, T, D]\n"
    "  %%k_1 = rms_norm %%v_1 over D {eps = 1e-5} : f32[N, T, D]\n"
    "  %%z_1 = dot %%k_1, %%q_1 over D : f32[N, T]\n"
    "  %%a_1 = %s %%z_1%s : f32[N, T]\n"
    "  %%h_1 = weighted_sum %%a_1, %%v_1 over N : f32[T, D]\n"
    "  %%f_2 = call @s2 %%h_1 : f32[T, D]\n"
    "  %%v_2 = concat %s over B to M : f32[M=3, T, D]\n"
    "  %%k_2 = rms_norm %%v_2 over D {eps = %s} : f32[M, T, D]\n"
    "  %%z_2 = dot %%k_2, %s over D : f32[M, T]\n"
    "  %%a_2 = %s %%z_2%s : f32[M, T]\n"
    "  %%h_2 = weighted_sum %%a_2, %%v_2 over M : f32[T, D]\n"
    "  return %%h_2, %%x_1\n"
    "}\n";

typedef struct site_pair {
  const char *sources, *eps, *query, *first, *second; // second: weights
  bool moves;
} site_pair;

static const ir_graph *two_sites(const site_pair *p) {
  const char *over_n = strcmp(p->first, "softmax") == 0 ? " over N" : "";
  const char *over_m = strcmp(p->second, "softmax") == 0 ? " over M" : "";
  return verified(base_str_format(&arena, sites_text, p->first, over_n, p->sources, p->eps,
                                  p->query, p->second, over_m)
                      .data,
                  IR_STAGE_BOUND);
}

static void moves_only_what_it_may(void **state) {
  static const site_pair cases[] = {
      {"%e, %f_0, %f_2", "1e-5", "%q_2", "softmax", "softmax", true},
      {"%e, %f_0, %f_2", "1e-5", "%q_2", "sigmoid", "sigmoid", true},
      // One source in common; none, as the first ones differ.
      {"%e, %f_1, %f_2", "1e-5", "%q_2", "softmax", "softmax", true},
      {"%f_0, %e, %f_2", "1e-5", "%q_2", "softmax", "softmax", false},
      // The sites differ in an attribute, an op, what the query is made of.
      {"%e, %f_0, %f_2", "1e-6", "%q_2", "softmax", "softmax", false},
      {"%e, %f_0, %f_2", "1e-5", "%q_2", "softmax", "sigmoid", false},
      {"%e, %f_0, %f_2", "1e-5", "%q_2", "neg", "sigmoid", false},
      {"%e, %f_0, %f_2", "1e-5", "%f_1", "softmax", "softmax", false}, // of tokens
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const ir_graph *one = two_sites(&cases[i]);
    const ir_graph *two = phased(one, PASS_PHASES_ALL);
    if (ir_equal(one, two) == cases[i].moves)
      fail_msg("case %zu: %s", i, cases[i].moves ? "left as it was" : "moved");
    assert_same_calls(one, two);
    assert_null(compare(one, evaluate(two), evaluate(one)));
  }
}

// Does the node, or what it is made of, contain the value?
static bool made_of(const ir_graph *graph, uint32_t index, ir_value value) {
  const ir_node *node = &graph->nodes.data[index];
  if (index == value.index) return true;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (made_of(graph, node->operands[i].index, value)) return true;
  return false;
}

// What is there only with the first site's step is no part of its bank: that is mixed a step before.
static void leaves_late_sources_at_their_sites(void **state) {
  (void)state;
  const site_pair pair = {"%e, %f_0, %f_1", "1e-5", "%q_2", "softmax", "softmax", true};
  const ir_graph *two = phased(two_sites(&pair), PASS_PHASES_ALL);
  const ir_value late = value_of(two, "f_1");
  bool stacked = false;
  for (uint32_t i = 0; i < two->nodes.count; i++) {
    const ir_node *node = &two->nodes.data[i];
    if (node->op != IR_SOFTMAX || node->type.rank != 3) continue; // [S, E, T]
    stacked = true;
    assert_false(made_of(two, i, late));
  }
  assert_true(stacked);
}

// ---- pieces -------------------------------------------------------------------------------------

static const pass_outline *outlined(const ir_graph *graph) {
  const pass_outline *outline = pass_outline_depth(graph, &diag);
  assert_clean(outline != NULL);
  return outline;
}

// Where every part comes from, and where every value that somebody waits for goes.
static void check_outline(const pass_outline *outline) {
  const ir_graph *graph = outline->graph;
  bool *kept = base_new_array(&arena, bool, graph->nodes.count + 1);
  uint32_t *given = base_new_array(&arena, uint32_t, graph->nodes.count + 1);
  uint32_t step = 0;
  for (uint32_t r = 0; r < outline->runs.count; r++) {
    const pass_run *run = &outline->runs.data[r];
    const ir_graph *kernel = outline->kernels.data[run->kernel];
    const bool first = r == 0 || run->step != step;
    assert_true(run->step == step || run->step == step + 1);
    assert_true(first ? !run->beside : run->beside); // at most two, the waited for one first
    step = run->step;
    assert_int_equal(run->arg_count, kernel->param_count);
    assert_int_equal(run->result_count, kernel->results.count);
    for (uint32_t i = 0; i < run->arg_count; i++) {
      const pass_piece_arg *arg = &run->args[i];
      size_t elements = 0;
      for (uint32_t j = 0; j < arg->part_count; j++) {
        const pass_part part = arg->parts[j];
        const ir_node *node = ir_node_of(graph, part.value);
        const size_t all = elements_of(graph, part.value);
        const bool fixed = node->op == IR_PARAM && outline->fixed[part.value.index];
        if (!fixed && !pass_reads_host(outline, run, part.value) && !kept[part.value.index])
          fail_msg("run %u reads %%%.*s before it is there", r, BASE_FMT(node->name));
        elements += part.index < 0 ? all : all / (size_t)ir_axis_size(graph, node->type.axes[0]);
        assert_true(part.index < 0 || part.index < ir_axis_size(graph, node->type.axes[0]));
      }
      assert_true(arg->sliced || arg->part_count == 1);
      assert_int_equal(elements, elements_of(kernel, (ir_value){i}));
    }
    for (uint32_t i = 0; i < run->result_count; i++) {
      const pass_piece_result *result = &run->results[i];
      assert_int_equal(elements_of(graph, result->value),
                       elements_of(kernel, kernel->results.data[i]));
      assert_true(!result->to_host || !run->beside);
      if (!result->to_host)
        kept[result->value.index] = true;
      else if (given[result->value.index]++ == 0)
        assert_int_equal(run->step, outline->steps[result->value.index]);
    }
  }
  assert_int_equal(step + 1, outline->step_count);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    const bool result = ir_is_result(graph, (ir_value){i});
    if (result && node->op != IR_PARAM) assert_int_equal(given[i], 1);
    for (uint32_t j = 0; j < node->operand_count && pass_is_call(node); j++)
      assert_int_equal(given[node->operands[j].index], 1);
  }
}

static void check_kernels(const pass_outline *outline) {
  for (uint32_t i = 0; i < outline->kernels.count; i++) {
    ir_graph *kernel = outline->kernels.data[i];
    assert_clean(ir_verify(kernel, IR_STAGE_BOUND, &diag));
    assert_true(kernel->axes.count <= IR_SET_AXES);
    for (uint32_t j = 0; j < kernel->nodes.count; j++)
      assert_false(pass_is_call(&kernel->nodes.data[j]));
    for (uint32_t j = 0; j < i; j++)
      assert_false(base_hash_equal(ir_hash(kernel), ir_hash(outline->kernels.data[j])));
    bool used = false;
    for (uint32_t j = 0; j < outline->runs.count; j++)
      used |= outline->runs.data[j].kernel == i;
    assert_true(used);
  }
}

static const ir_graph *shipped(const char *name) {
  base_str text, why;
  const base_str path =
      base_str_format(&arena, "%s/model/models/%s.yaml", getenv("FATHOM_SOURCE_DIR"), name);
  assert_int_equal(base_file_read(&arena, path.data, &text, &why), BASE_OK);
  base_diag_init(&diag, &arena, path, text);
  const model_description *model = model_read(&arena, text, base_str_from(name), &diag);
  assert_clean(model != NULL);
  ir_graph *graph = model_expand(&arena, model, 0, &diag);
  assert_clean(graph != NULL && ir_verify(graph, IR_STAGE_BOUND, &diag));
  return graph;
}

static void shares_kernels(void **state) {
  (void)state;
  const ir_graph *k3 = shipped("kimi-k3");
  const pass_outline *one = outlined(k3), *two = outlined(phased(k3, PASS_PHASES_LEAST));
  check_outline(one);
  check_outline(two);
  check_kernels(one);
  check_kernels(two);
  assert_int_equal(one->runs.count, 187); // one a site
  assert_int_equal(one->kernels.count, 18);
  assert_int_equal(two->runs.count, 193);
  assert_int_equal(two->kernels.count, 14);
  assert_non_null(pass_plan_memory(one, &diag));
  assert_non_null(pass_plan_memory(two, &diag));
}

// ---- running pieces -----------------------------------------------------------------------------

typedef struct machine {
  const pass_outline *outline;
  const pass_memory *memory;
  double **values; // the host's: parameters, what calls are given and give
  double **buffers;
} machine;

// Calls of the step before: they have their operands now.
static void make_calls(machine *m, uint32_t step) {
  const ir_graph *graph = m->outline->graph;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!pass_is_call(node) || m->outline->steps[i] + 1 != step) continue;
    m->values[i] = fresh(graph, (ir_value){i});
    for (size_t j = 0; j < elements_of(graph, (ir_value){i}); j++)
      m->values[i][j] = m->values[node->operands[0].index][j] * factor_of(node);
  }
}

static void copy_part(const machine *m, const pass_run *run, pass_part part, double **to) {
  const ir_graph *graph = m->outline->graph;
  const uint32_t index = part.value.index;
  const int32_t buffer = m->memory->buffer_of[index];
  size_t count = elements_of(graph, part.value);
  const double *from = pass_reads_host(m->outline, run, part.value) || buffer < 0
                           ? m->values[index]
                           : m->buffers[buffer];
  assert_non_null(from);
  if (part.index >= 0) {
    count /= (size_t)ir_axis_size(graph, ir_node_of(graph, part.value)->type.axes[0]);
    from += (size_t)part.index * count;
  }
  memcpy(*to, from, count * sizeof *from);
  *to += count;
}

static void launch(machine *m, const pass_run *run) {
  const ir_graph *graph = m->outline->graph, *kernel = m->outline->kernels.data[run->kernel];
  double **inputs = base_new_array(&arena, double *, run->arg_count + 1);
  for (uint32_t i = 0; i < run->arg_count; i++) {
    double *to = inputs[i] = fresh(kernel, (ir_value){i});
    for (uint32_t j = 0; j < run->args[i].part_count; j++)
      copy_part(m, run, run->args[i].parts[j], &to);
  }
  double **outputs = interpret(kernel, inputs);
  for (uint32_t i = 0; i < run->result_count; i++) {
    const uint32_t value = run->results[i].value.index;
    if (run->results[i].to_host)
      m->values[value] = outputs[i];
    else
      memcpy(m->buffers[m->memory->buffer_of[value]], outputs[i],
             elements_of(graph, run->results[i].value) * sizeof(double));
  }
}

// Results of the depth, piece by piece in the planned memory. `late`: runs beside the host's calls end as
// late as they may.
static double **run_pieces(const pass_outline *outline, const pass_memory *memory, bool late) {
  const ir_graph *graph = outline->graph;
  machine m = {.outline = outline, .memory = memory};
  double **params = params_of(graph);
  m.values = base_new_array(&arena, double *, graph->nodes.count + 1);
  m.buffers = base_new_array(&arena, double *, memory->buffer_count + 1);
  memcpy(m.values, params, graph->param_count * sizeof *params);
  for (uint32_t i = 0; i < memory->buffer_count; i++)
    m.buffers[i] =
        base_new_array(&arena, double, (size_t)memory->buffer_bytes[i] / 4 * TOKENS + TOKENS);
  uint32_t step = 0;
  for (uint32_t r = 0; r < outline->runs.count; r++) {
    const pass_run *run = &outline->runs.data[r];
    if (run->step != step) make_calls(&m, step = run->step);
    for (uint32_t i = 0; i < r && late; i++)
      if (outline->runs.data[i].beside && pass_run_waited_for(outline, i) == r)
        launch(&m, &outline->runs.data[i]);
    if (!late || !run->beside) launch(&m, run);
  }
  double **results = base_new_array(&arena, double *, graph->results.count + 1);
  for (uint32_t i = 0; i < graph->results.count; i++) {
    results[i] = m.values[graph->results.data[i].index];
    assert_non_null(results[i]);
  }
  return results;
}

static const char *first_wrong(const pass_outline *outline, const pass_memory *memory,
                               double *const *expected) {
  const char *wrong = compare(outline->graph, run_pieces(outline, memory, false), expected);
  if (wrong != NULL) return wrong;
  return compare(outline->graph, run_pieces(outline, memory, true), expected);
}

static const pass_memory *planned(const pass_outline *outline) {
  const pass_memory *memory = pass_plan_memory(outline, &diag);
  assert_clean(memory != NULL);
  return memory;
}

static void computes_the_same_in_pieces(void **state) {
  (void)state;
  for (uint32_t i = 0; i < NETWORKS; i++) {
    const struct network *n = &networks[i];
    const ir_graph *one = graph_of(n->lines, n->sublayers, n->outputs);
    double **expected = evaluate(one);
    for (int phases = 0; phases < 3; phases++) {
      const ir_graph *graph =
          phases == 0 ? one : phased(one, phases == 1 ? PASS_PHASES_LEAST : PASS_PHASES_ALL);
      const pass_outline *outline = outlined(graph);
      check_outline(outline);
      check_kernels(outline);
      const char *wrong = first_wrong(outline, planned(outline), expected);
      if (wrong != NULL) fail_msg("'%s', phases %d: %%%s differs", n->lines, phases, wrong);
    }
  }
}

// ---- memory -------------------------------------------------------------------------------------

// A plan to break.
static pass_memory *copy_memory(const pass_outline *outline, const pass_memory *memory) {
  const uint32_t nodes = outline->graph->nodes.count;
  pass_memory *copy = base_new(&arena, pass_memory);
  int32_t *buffer_of = base_new_array(&arena, int32_t, nodes + 1);
  uint64_t *bytes = base_new_array(&arena, uint64_t, memory->buffer_count + 1);
  memcpy(buffer_of, memory->buffer_of, nodes * sizeof *buffer_of);
  memcpy(bytes, memory->buffer_bytes, memory->buffer_count * sizeof *bytes);
  *copy = (pass_memory){memory->buffer_count, bytes, buffer_of};
  return copy;
}

static int32_t *buffer_of(const pass_memory *memory, uint32_t value) {
  return (int32_t *)&memory->buffer_of[value];
}

static bool check_quietly(const pass_outline *outline, const pass_memory *memory) {
  base_diag quiet;
  base_diag_init(&quiet, &arena, BASE_STR(""), BASE_STR(""));
  const bool good = pass_check_memory(outline, memory, &quiet);
  assert_int_equal(quiet.error_count, !good);
  if (!good) assert_int_equal(quiet.status, BASE_INTERNAL);
  return good;
}

static void refuse_memory(const pass_outline *outline, const pass_memory *memory,
                          const char *what) {
  if (check_quietly(outline, memory)) fail_msg("a plan is accepted that %s", what);
}

// The runs that write and last read a kept value.
static bool find_life(const pass_outline *outline, uint32_t value, uint32_t *first,
                      uint32_t *last) {
  bool kept = false;
  for (uint32_t r = 0; r < outline->runs.count; r++) {
    const pass_run *run = &outline->runs.data[r];
    for (uint32_t i = 0; i < run->arg_count && kept; i++)
      for (uint32_t j = 0; j < run->args[i].part_count; j++)
        if (run->args[i].parts[j].value.index == value) *last = r;
    for (uint32_t i = 0; i < run->result_count; i++)
      if (!run->results[i].to_host && run->results[i].value.index == value) {
        kept = true;
        *first = *last = r;
      }
  }
  return kept;
}

static void refuses_plans_that_share_what_lives(void **state) {
  (void)state;
  const pass_outline *outline =
      outlined(phased(graph_of("blocks: {size: 3}\n", 9, 0), PASS_PHASES_ALL));
  const pass_memory *memory = planned(outline);
  const uint32_t nodes = outline->graph->nodes.count;
  uint32_t pairs = 0;
  for (uint32_t a = 0; a < nodes; a++) {
    uint32_t a_first, a_last, b_first, b_last;
    if (!find_life(outline, a, &a_first, &a_last)) continue;
    pass_memory *broken = copy_memory(outline, memory);
    *buffer_of(broken, a) = -1;
    refuse_memory(outline, broken, "has no buffer for a value");
    *buffer_of(broken, a) = (int32_t)memory->buffer_count;
    refuse_memory(outline, broken, "has a value in no buffer");
    ((uint64_t *)broken->buffer_bytes)[memory->buffer_of[a]] =
        pass_bytes_per_row(outline->graph, (ir_value){a}) - 1;
    *buffer_of(broken, a) = memory->buffer_of[a];
    refuse_memory(outline, broken, "has a buffer that is too small");
    for (uint32_t b = 0; b < nodes; b++) {
      if (a == b || !find_life(outline, b, &b_first, &b_last)) continue;
      if (b_first < a_first || b_first > a_last || a_last == a_first) continue;
      broken = copy_memory(outline, memory);
      for (uint32_t i = 0; i < memory->buffer_count; i++)
        ((uint64_t *)broken->buffer_bytes)[i] = 1 << 20;
      *buffer_of(broken, b) = memory->buffer_of[a];
      refuse_memory(outline, broken, "writes over a value that is read later");
      pairs++;
    }
  }
  assert_true(pairs > 20);
}

static const char patient_text[] = "graph @patient(%e: f32[T, D=8]) {\n"
                                   "  %x0 = mul %e, %e : f32[T, D]\n"
                                   "  %late = add %x0, %e : f32[T, D]\n" // beside @a, for the end
                                   "  %f0 = call @a %x0 : f32[T, D]\n"
                                   "  %x1 = mul %f0, %f0 : f32[T, D]\n"
                                   "  %f1 = call @b %x1 : f32[T, D]\n"
                                   "  %x2 = mul %f1, %x1 : f32[T, D]\n"
                                   "  %f2 = call @c %x2 : f32[T, D]\n"
                                   "  %y = add %f2, %late : f32[T, D]\n"
                                   "  %r = add %y, %x1 : f32[T, D]\n"
                                   "  return %r\n"
                                   "}\n";

// A run beside the host's calls still reads, and writes, while the next ones run.
static void refuses_plans_that_do_not_wait(void **state) {
  (void)state;
  const pass_outline *outline = outlined(verified(patient_text, IR_STAGE_BOUND));
  const pass_memory *memory = planned(outline);
  uint32_t tried = 0;
  assert_null(first_wrong(outline, memory, evaluate(outline->graph)));
  for (uint32_t r = 0; r < outline->runs.count; r++) {
    const pass_run *run = &outline->runs.data[r];
    const uint32_t until = pass_run_waited_for(outline, r);
    if (!run->beside) continue;
    assert_true(until > r);
    for (uint32_t i = 0; i < run->arg_count; i++)
      for (uint32_t j = 0; j < run->args[i].part_count; j++) {
        const uint32_t read = run->args[i].parts[j].value.index;
        if (memory->buffer_of[read] < 0) continue;
        // What runs meanwhile writes there.
        for (uint32_t k = r + 1; k < until; k++)
          for (uint32_t l = 0; l < outline->runs.data[k].result_count; l++) {
            const pass_piece_result *result = &outline->runs.data[k].results[l];
            if (result->to_host) continue;
            pass_memory *broken = copy_memory(outline, memory);
            for (uint32_t b = 0; b < memory->buffer_count; b++)
              ((uint64_t *)broken->buffer_bytes)[b] = 1 << 20;
            *buffer_of(broken, result->value.index) = memory->buffer_of[read];
            refuse_memory(outline, broken, "writes what a run beside it still reads");
            tried++;
          }
      }
  }
  assert_true(tried > 0);
}

// Whatever the check accepts computes what it should.
static void accepts_sound_plans_only(void **state) {
  enum { TRIALS = 150 };
  (void)state;
  uint64_t random = 23;
  uint32_t accepted = 0, refused = 0;
  const ir_graph *graph =
      phased(graph_of("blocks: {size: 2}\naddends: [1, 2]\n", 7, 0), PASS_PHASES_ALL);
  double **expected = evaluate(graph);
  const pass_outline *outline = outlined(graph);
  const pass_memory *memory = planned(outline);
  uint32_t *kept = base_new_array(&arena, uint32_t, graph->nodes.count + 1), count = 0;
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (memory->buffer_of[i] >= 0) kept[count++] = i;
  for (uint32_t trial = 0; trial < TRIALS; trial++) {
    pass_memory *other = copy_memory(outline, memory);
    for (uint32_t i = 0; i < memory->buffer_count; i++)
      ((uint64_t *)other->buffer_bytes)[i] = 1 << 12;
    const uint32_t a = kept[base_random(&random) % count], b = kept[base_random(&random) % count];
    if (trial % 2) *buffer_of(other, b) = memory->buffer_of[a];
    *buffer_of(other, a) =
        trial % 2 ? (int32_t)(base_random(&random) % memory->buffer_count) : memory->buffer_of[b];
    if (!check_quietly(outline, other)) {
      refused++;
      continue;
    }
    accepted++;
    const char *wrong = first_wrong(outline, other, expected);
    if (wrong != NULL) fail_msg("trial %u is accepted, but %%%s differs", trial, wrong);
  }
  assert_true(accepted > TRIALS / 50 && refused > TRIALS / 4);
}

static const char two_axes_text[] = "graph @two(%e: f32[T, D=8], %k: f32[U, D]) {\n"
                                    "  %z = dot %e, %k over D : f32[T, U]\n"
                                    "  %s = mul %e, %e : f32[T, D]\n"
                                    "  %f = call @f %s : f32[T, D]\n"
                                    "  %y = dot %f, %k over D : f32[T, U]\n"
                                    "  %r = add %y, %z : f32[T, U]\n"
                                    "  return %r\n"
                                    "}\n";

static void refuses_two_dynamic_axes(void **state) {
  (void)state;
  const pass_outline *outline = outlined(verified(two_axes_text, IR_STAGE_BOUND));
  assert_null(pass_plan_memory(outline, &diag));
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
}

// ---- random networks ----------------------------------------------------------------------------

static const char *pick(uint64_t *random, const char *const *of, size_t count) {
  return of[base_random(random) % count];
}

static base_str random_lines(uint64_t *random, uint32_t sublayers) {
  static const char *const keys[] = {"", "key_norm: none\n", "key_norm: query_and_key\n"};
  static const char *const biases[] = {"", "bias: count\n", "bias: {recency: 0.3}\n"};
  static const char *const nulls[] = {"", "null_source: zero\n", "null_source: learned\n"};
  static const char *const heads[] = {"", "heads: 2\n"};
  static const char *const windows[] = {"", "", "window: 2\n", "window: 4\n"};
  static const char *const addends[] = {"", "addends: 2\n", "addends: [1, 2]\n"};
  static const char *const rest[] = {"", "gate: newest\n", "gate: channel\n", "delta_form: true\n"};
  base_text text = {.arena = &arena};
  base_text_printf(&text, "blocks: {starts: [0");
  for (uint32_t i = 1; i < sublayers; i++)
    if (base_random(random) % 3 == 0) base_text_printf(&text, ", %u", i);
  base_text_printf(&text, "]}\n");
#define PICK(of) pick(random, of, sizeof(of) / sizeof *(of))
  base_text_printf(&text, "%s%s%s%s%s%s%s", PICK(keys), PICK(biases), PICK(nulls), PICK(heads),
                   PICK(windows), PICK(addends), PICK(rest));
  return base_text_str(&text);
}

static void keeps_the_order_of_random_networks(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed <= 40; seed++) {
    uint64_t random = seed;
    const uint32_t sublayers = 1 + (uint32_t)(base_random(&random) % 10);
    const uint32_t outputs = (uint32_t)(base_random(&random) % 8);
    const base_str lines = random_lines(&random, sublayers);
    const ir_graph *one = graph_of(lines.data, sublayers, outputs);
    double **expected = evaluate(one);
    for (int choice = PASS_PHASES_LEAST; choice <= PASS_PHASES_ALL; choice++) {
      const ir_graph *two = phased(one, (pass_phase_choice)choice);
      assert_same_calls(one, two);
      const pass_outline *outline = outlined(two);
      check_outline(outline);
      check_kernels(outline);
      const char *wrong = first_wrong(outline, planned(outline), expected);
      if (wrong != NULL)
        fail_msg("seed %u, choice %d: %%%s differs of %s", (unsigned)seed, choice, wrong,
                 lines.data);
    }
    base_arena_reset(&arena);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(knows_when_values_are_there),
      TEST(computes_the_same_in_two_phases),
      TEST(moves_only_what_it_may),
      TEST(leaves_late_sources_at_their_sites),
      TEST(shares_kernels),
      TEST(computes_the_same_in_pieces),
      TEST(refuses_plans_that_share_what_lives),
      TEST(refuses_plans_that_do_not_wait),
      TEST(accepts_sound_plans_only),
      TEST(refuses_two_dynamic_axes),
      TEST(keeps_the_order_of_random_networks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
