// Descriptions of models: every key with good and bad values, the place of each error, and the graphs that
// they stand for.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "support/graph_fixture.h"

#define NEEDED "schema: 1\nhidden: 32\nsublayers: 6\n"

static const model_description *read_text(const char *text) {
  base_diag_init(&diag, &arena, BASE_STR("m.yaml"), base_str_from(text));
  return model_read(&arena, base_str_from(text), BASE_STR("file"), &diag);
}

// With lines after those that are needed; must be right.
static const model_description *described(const char *lines) {
  const model_description *model = read_text(base_str_format(&arena, NEEDED "%s", lines).data);
  assert_clean(model != NULL);
  return model;
}

// ---- good values --------------------------------------------------------------------------------

static void fills_in_defaults(void **state) {
  (void)state;
  const model_description *m = described("");
  assert_true(base_str_equal(m->name, BASE_STR("file")));
  assert_true(m->hidden == 32 && m->heads == 1 && m->sublayers == 6);
  assert_true(m->dtype == IR_BF16 && m->query_dtype == IR_F32 && m->mix_dtype == IR_F32);
  assert_true(m->key_gain.used && m->key_gain.dtype == IR_F32);
  assert_true(m->output_gain.used && m->output_gain.dtype == IR_F32);
  assert_true(m->eps == 1e-5 && m->scale == 1);
  assert_int_equal(m->key_norm, MODEL_KEY_RMS);
  assert_int_equal(m->normaliser, MODEL_SOFTMAX);
  assert_int_equal(m->bias, MODEL_BIAS_NONE);
  assert_int_equal(m->null_source, MODEL_NULL_NONE);
  assert_int_equal(m->gate, MODEL_GATE_NONE);
  assert_int_equal(m->phases, MODEL_PHASES_AUTO);
  assert_true(!m->delta_form && m->output_norm && m->window == 0);
  assert_int_equal(m->block_count, 6); // full
  assert_int_equal(model_addends(m, 5), 1);
  assert_int_equal(model_sites(m), 7);
}

static void reads_every_key(void **state) {
  (void)state;
  const model_description *m = described("name: my-net_2.b\n"
                                         "blocks: {size: 4}\n"
                                         "dtype: f16\n"
                                         "query_dtype: bf16\n"
                                         "mix_dtype: bf16\n"
                                         "gains: {key: none, output: f16}\n"
                                         "eps: 0\n"
                                         "scale: rsqrt_hidden\n"
                                         "key_norm: query_and_key\n"
                                         "bias: {recency: -0.25}\n"
                                         "null_source: learned\n"
                                         "delta_form: true\n"
                                         "gate: channel\n"
                                         "heads: 2\n"
                                         "window: 3\n"
                                         "output_norm: none\n"
                                         "addends: [1, 2, 2]\n"
                                         "two_phase: on\n");
  assert_true(base_str_equal(m->name, BASE_STR("my-net_2.b")));
  assert_true(m->dtype == IR_F16 && m->query_dtype == IR_BF16 && m->mix_dtype == IR_BF16);
  assert_false(m->key_gain.used);
  assert_true(m->output_gain.used && m->output_gain.dtype == IR_F16);
  assert_true(m->eps == 0 && m->scale == 0.25); // 1 / sqrt(32 / 2)
  assert_int_equal(m->key_norm, MODEL_KEY_AND_QUERY);
  assert_int_equal(m->bias, MODEL_BIAS_RECENCY);
  assert_true(m->recency == -0.25 && m->delta_form && !m->output_norm);
  assert_int_equal(m->null_source, MODEL_NULL_LEARNED);
  assert_int_equal(m->gate, MODEL_GATE_CHANNEL);
  assert_true(m->heads == 2 && m->window == 3);
  assert_int_equal(m->phases, MODEL_PHASES_TWO);
  static const uint32_t addends[] = {1, 2, 2, 1, 2, 2};
  for (uint32_t i = 0; i < 6; i++)
    assert_int_equal(model_addends(m, i), addends[i]);
}

static void reads_words(void **state) {
  (void)state;
  assert_int_equal(described("key_norm: none\n")->key_norm, MODEL_KEY_NONE);
  assert_int_equal(described("normaliser: sigmoid\n")->normaliser, MODEL_SIGMOID);
  assert_int_equal(described("normaliser: uniform\n")->normaliser, MODEL_UNIFORM);
  assert_int_equal(described("normaliser: static\n")->normaliser, MODEL_STATIC);
  assert_int_equal(described("bias: count\n")->bias, MODEL_BIAS_COUNT);
  assert_int_equal(described("bias: none\n")->bias, MODEL_BIAS_NONE);
  assert_int_equal(described("null_source: zero\n")->null_source, MODEL_NULL_ZERO);
  assert_int_equal(described("gate: newest\n")->gate, MODEL_GATE_NEWEST);
  assert_int_equal(described("two_phase: off\n")->phases, MODEL_PHASES_ONE);
  assert_int_equal(described("two_phase: auto\n")->phases, MODEL_PHASES_AUTO);
  assert_true(described("scale: 0.5\n")->scale == 0.5);
  assert_true(described("scale: -2\n")->scale == -2);
  assert_false(described("gains: {output: none}\n")->output_gain.used);
  assert_true(described("gains: {output: none}\n")->key_gain.used);
  assert_int_equal(described("gains: {key: bf16}\n")->key_gain.dtype, IR_BF16);
  assert_int_equal(model_addends(described("addends: 2\n"), 3), 2);
}

// Starts of the blocks, as text.
static void check_blocks(const char *line, const char *expected) {
  const model_description *m = described(line);
  base_text text = {.arena = &arena};
  for (uint32_t i = 0; i < m->block_count; i++)
    base_text_printf(&text, "%s%u", i > 0 ? " " : "", m->starts[i]);
  assert_string_equal(text.data, expected);
}

static void reads_blocks(void **state) {
  (void)state;
  check_blocks("blocks: full\n", "0 1 2 3 4 5");
  check_blocks("blocks: {size: 1}\n", "0 1 2 3 4 5");
  check_blocks("blocks: {size: 3}\n", "0 3");
  check_blocks("blocks: {size: 4}\n", "0 4"); // the last one is shorter
  check_blocks("blocks: {size: 6}\n", "0");
  check_blocks("blocks: {size: 4096}\n", "0");
  check_blocks("blocks: {count: 1}\n", "0");
  check_blocks("blocks: {count: 2}\n", "0 3");
  check_blocks("blocks: {count: 4}\n", "0 2 4"); // ceil(6 / 4) sublayers each
  check_blocks("blocks: {count: 6}\n", "0 1 2 3 4 5");
  check_blocks("blocks: {starts: [0]}\n", "0");
  check_blocks("blocks: {starts: [0, 1, 5]}\n", "0 1 5");
}

static void counts_sources(void **state) {
  (void)state;
  static const uint32_t full[] = {1, 2, 3, 4, 5, 6, 7}, ragged[] = {1, 2, 3, 3, 3, 3, 4},
                        window[] = {1, 2, 2, 2, 2, 2, 2};
  const model_description *a = described(""), *b = described("blocks: {starts: [0, 1, 5]}\n"),
                          *c = described("window: 2\n");
  for (uint32_t s = 0; s < 7; s++) {
    assert_int_equal(model_sources(a, s), full[s]);
    assert_int_equal(model_sources(b, s), ragged[s]);
    assert_int_equal(model_sources(c, s), window[s]);
  }
}

// ---- errors -------------------------------------------------------------------------------------

// One line after those that are needed, and what is said of it with the place.
static const struct mistake {
  const char *line;
  uint32_t column; // of line 4; 0: of another line
  const char *says, *hint;
} mistakes[] = {
    {"dtype: f64", 8, "unknown dtype 'f64': expected one of f32, bf16, f16", NULL},
    {"dtype: b16", 8, "unknown dtype 'b16'", "did you mean 'bf16'?"},
    {"dtype: f8e4m3", 8, "unknown dtype", NULL},
    {"dtype: [f32]", 8, "expected a string, found a list", NULL},
    {"query_dtype: x", 14, "unknown dtype 'x'", NULL},
    {"mix_dtype:", 0, "expected a string", NULL},
    {"gains: f32", 8, "expected a mapping", NULL},
    {"gains: {keys: f32}", 9, "keys", "did you mean 'key'?"},
    {"gains: {output: f8}", 17, "unknown dtype 'f8'", NULL},
    {"gains: {key: {}}", 14, "expected a string, found a mapping", NULL},
    {"eps: -1e-5", 6, "expected eps >= 0, found -1e-05", NULL},
    {"eps: small", 6, "expected a number", NULL},
    {"eps: .inf", 6, "expected a number", NULL},
    {"eps: nan", 6, "expected a number", NULL},
    {"scale: rsqrt", 8, "expected a number", "rsqrt_hidden"},
    {"scale: [1]", 8, "expected a number", "rsqrt_hidden"},
    {"key_norm: rmss", 11, "unknown key norm 'rmss': expected one of rms, none, query_and_key",
     "did you mean 'rms'?"},
    {"normaliser: soft", 13, "unknown normaliser 'soft'", NULL},
    {"bias: recency", 7, "unknown bias 'recency'", "{recency: 0.25}"},
    {"bias: {recent: 1}", 8, "recent", NULL},
    {"bias: {recency: x}", 17, "expected a number", NULL},
    {"bias: {}", 7, "expected", NULL},
    {"null_source: one", 14, "unknown null source 'one'", NULL},
    {"delta_form: on", 13, "expected true or false, found", NULL},
    {"gate: oldest", 7, "unknown gate 'oldest'", NULL},
    {"heads: 0", 8, "is not from", NULL},
    {"heads: 5", 8, "5 heads do not divide hidden, which is 32", NULL},
    {"heads: 1.5", 8, "expected an integer", NULL},
    {"window: -1", 9, "is not from", NULL},
    {"output_norm: query_and_key", 14, "unknown output norm", NULL},
    {"addends: 0", 10, "is not from", NULL},
    {"addends: 3", 10, "is not from", NULL},
    {"addends: []", 10, "an empty list", "[1, 2]"},
    {"addends: [1, 3]", 14, "is not from", NULL},
    {"addends: [[1]]", 11, "expected an integer, found a list", NULL},
    {"two_phase: yes", 12, "unknown two_phase 'yes': expected one of auto, off, on", NULL},
    {"name: a b", 7, "expected a name of letters", NULL},
    {"name: ''", 7, "expected a name of letters", NULL},
    {"name: {}", 7, "expected a string", NULL},
    {"blocks: fully", 9, "unknown kind of blocks 'fully'", "{size: 24}"},
    {"blocks: 3", 9, "unknown kind of blocks '3'", "{size: 24}"},
    {"blocks: [0, 3]", 9, "expected a mapping", NULL},
    {"blocks: {}", 9, "expected", NULL},
    {"blocks: {size: 2, count: 3}", 9, "expected one of its keys, found 2", NULL},
    {"blocks: {sizes: 2}", 10, "sizes", NULL},
    {"blocks: {size: 0}", 16, "is not from", NULL},
    {"blocks: {size: 4097}", 16, "is not from", NULL},
    {"blocks: {count: 0}", 17, "is not from", NULL},
    {"blocks: {count: 7}", 17, "is not from", NULL},
    {"blocks: {starts: 0}", 18, "expected a list", NULL},
    {"blocks: {starts: []}", 18, "an empty list", "ascending from 0"},
    {"blocks: {starts: [1]}", 19, "expected the first block to begin at sublayer 0, found 1",
     "ascending from 0"},
    {"blocks: {starts: [0, 2, 2]}", 25, "expected a sublayer from 3, found 2", "ascending from 0"},
    {"blocks: {starts: [0, 4, 2]}", 25, "expected a sublayer from 5, found 2", "ascending from 0"},
    {"blocks: {starts: [0, 6]}", 22, "is not from", NULL},
    {"blocks: {starts: [0, x]}", 22, "expected an integer", NULL},
    {"blokcs: full", 1, "blokcs", "did you mean 'blocks'?"},
    {"hidden: 64", 1, "hidden", NULL}, // twice
    {"dtype: &a f32", 8, "", NULL},
    {"dtype: !!str f32", 8, "", NULL},
    {"dtype: 'f32", 0, "", NULL},
    {"- 1", 0, "", NULL},
};

static bool contains(base_str text, const char *words) {
  return strstr(base_str_copy(&arena, text).data, words) != NULL;
}

static void tells_where_it_is_wrong(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
    const struct mistake *m = &mistakes[i];
    const model_description *model =
        read_text(base_str_format(&arena, NEEDED "%s\n", m->line).data);
    if (model != NULL) fail_msg("'%s' is read", m->line);
    assert_int_equal(diag.status, BASE_INVALID);
    const base_report *report = &diag.reports.data[0];
    if (!contains(report->message, m->says))
      fail_msg("'%s': expected '%s' in: %.*s", m->line, m->says, BASE_FMT(report->message));
    if (m->hint != NULL && !contains(report->hint, m->hint))
      fail_msg("'%s': expected '%s' in the hint: %.*s", m->line, m->hint, BASE_FMT(report->hint));
    assert_true(report->loc.line > 0);
    if (m->column > 0 && (report->loc.line != 4 || report->loc.column != m->column))
      fail_msg("'%s': error at %u:%u, expected 4:%u", m->line, report->loc.line, report->loc.column,
               m->column);
    if (m->column > 0) assert_int_equal(diag.error_count, 1);
  }
}

static void needs_three_keys(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
    uint32_t count;
  } texts[] = {{"hidden: 8\nsublayers: 1\n", "expected 'schema', found none", 1},
               {"schema: 1\nsublayers: 1\n", "expected 'hidden', found none", 1},
               {"schema: 1\nhidden: 8\n", "expected 'sublayers', found none", 1},
               {"heads: 1\n", "expected 'schema', found none", 3},
               {"schema: 1\nhidden: 0\nsublayers: 1\n", "is not from", 1},
               {"schema: 1\nhidden: 8\nsublayers: 0\n", "is not from", 1},
               {"schema: 1\nhidden: 8\nsublayers: 4097\n", "is not from", 1},
               {"", "expected a mapping", 1},
               {"[]\n", "expected a mapping", 1}};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    assert_null(read_text(texts[i].text));
    assert_int_equal(diag.status, BASE_INVALID);
    assert_int_equal(diag.error_count, texts[i].count);
    if (!contains(diag.reports.data[0].message, texts[i].says))
      fail_msg("%.*s", BASE_FMT(base_diag_render(&diag)));
  }
}

static void tells_all_errors_at_once(void **state) {
  (void)state;
  assert_null(read_text("schema: 1\n"
                        "hidden: many\n"
                        "sublayers: 6\n"
                        "eps: -1\n"
                        "dtype: f64\n"
                        "gains: {key: f64, output: f63}\n"
                        "hedas: 2\n"));
  assert_int_equal(diag.error_count, 6);
  const base_str text = base_diag_render(&diag);
  assert_true(contains(text, "m.yaml:2:9: error: "));
  assert_true(contains(text, "m.yaml:4:6: error: "));
  assert_true(contains(text, "m.yaml:5:8: error: "));
  assert_true(contains(text, "m.yaml:6:14: error: "));
  assert_true(contains(text, "m.yaml:6:27: error: "));
  assert_true(contains(text, "m.yaml:7:1: error: "));
  // What only the whole can tell.
  assert_null(read_text(NEEDED "normaliser: uniform\n"
                               "scale: 2\n"
                               "bias: count\n"
                               "null_source: zero\n"
                               "heads: 3\n"));
  assert_int_equal(diag.error_count, 5);
  assert_true(contains(base_diag_render(&diag), "m.yaml:5:8: error: 'scale' says nothing"));
  assert_null(read_text(NEEDED "normaliser: sigmoid\nnull_source: zero\n"));
  assert_true(contains(base_diag_render(&diag), "m.yaml:5:14: error: a null source needs"));
}

static void refuses_another_schema(void **state) {
  (void)state;
  assert_null(read_text("schema: 2\nhidden: 8\nsublayers: 1\n"));
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
  assert_true(
      contains(base_diag_render(&diag), "m.yaml:1:9: error: a model of schema 2, expected 1"));
  assert_null(read_text("schema: 0\nhidden: 8\nsublayers: 1\n"));
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
  assert_null(read_text("schema: one\nhidden: 8\nsublayers: 1\n"));
  assert_int_equal(diag.status, BASE_INVALID);
}

static void needs_a_name_for_the_graph(void **state) {
  (void)state;
  const base_str text = BASE_STR(NEEDED);
  base_diag_init(&diag, &arena, BASE_STR("m.yaml"), text);
  assert_null(model_read(&arena, text, BASE_STR("my net"), &diag));
  assert_true(contains(base_diag_render(&diag), "expected a 'name'"));
  base_diag_init(&diag, &arena, BASE_STR("m.yaml"), text);
  assert_null(model_read(&arena, text, BASE_STR(""), &diag));
}

// Any text: read, or refused with errors that can be shown.
static void read_anything(base_str text) {
  base_diag_init(&diag, &arena, BASE_STR("m.yaml"), text);
  const model_description *model = model_read(&arena, text, BASE_STR("m"), &diag);
  base_diag_render(&diag);
  assert_true((model == NULL) == (diag.error_count > 0));
  if (model == NULL || model->sublayers > 40) return;
  ir_graph *graph = model_expand(&arena, model, 0, &diag);
  assert_non_null(graph);
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
}

static void survives_any_text(void **state) {
  static const char text[] = NEEDED "blocks: {starts: [0, 2, 5]}\n"
                                    "dtype: f32\n"
                                    "gains: {key: f32, output: bf16}\n"
                                    "bias: {recency: 0.5}\n"
                                    "null_source: learned\n"
                                    "heads: 2\n"
                                    "addends: [1, 2]\n"
                                    "two_phase: on\n";
  (void)state;
  uint64_t random = 5;
  for (size_t length = 0; length < sizeof text; length++) {
    char *copy = malloc(length + 1); // of just that size
    memcpy(copy, text, length);
    read_anything((base_str){copy, length});
    free(copy);
  }
  for (uint32_t i = 0; i < 1500; i++) {
    char copy[sizeof text];
    memcpy(copy, text, sizeof text);
    for (uint64_t n = 1 + base_random(&random) % 3; n-- > 0;)
      copy[base_random(&random) % (sizeof text - 1)] =
          i % 2 ? (char)base_random(&random) : text[base_random(&random) % (sizeof text - 1)];
    read_anything((base_str){copy, sizeof text - 1});
    base_arena_reset(&arena);
  }
}

// ---- graphs -------------------------------------------------------------------------------------

static uint32_t count_ops(const ir_graph *graph, ir_op op) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    count += graph->nodes.data[i].op == op;
  return count;
}

static const ir_node *find_node(const ir_graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (base_str_equal(graph->nodes.data[i].name, base_str_from(name)))
      return &graph->nodes.data[i];
  return NULL;
}

static ir_graph *expanded(const model_description *model, uint32_t outputs) {
  ir_graph *graph = model_expand(&arena, model, outputs, &diag);
  assert_clean(graph != NULL);
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  return graph;
}

// Is the graph what docs/models.md says? One concat a site with its sources, a call for each addend.
static void check_graph(const model_description *model, uint32_t outputs) {
  const ir_graph *graph = expanded(model, outputs);
  base_text text = {.arena = &arena};
  ir_print(graph, &text);
  assert_true(ir_equal(graph, verified(text.data, IR_STAGE_BOUND)));
  uint32_t calls = 0;
  for (uint32_t i = 0; i < model->sublayers; i++) {
    const ir_node *call = find_node(graph, base_str_format(&arena, "f_%u", i).data);
    assert_true(call != NULL && call->op == IR_CALL);
    assert_true(base_str_equal(call->callee, base_str_format(&arena, "sublayer_%u", i)));
    assert_true(base_str_equal(ir_node_of(graph, call->operands[0])->name,
                               base_str_format(&arena, "x_%u", i)));
    calls += model_addends(model, i);
  }
  assert_int_equal(count_ops(graph, IR_CALL), calls);
  for (uint32_t s = 0; s < model_sites(model); s++) {
    const ir_node *v = find_node(graph, base_str_format(&arena, "v_%u", s).data);
    assert_true(v != NULL && v->op == IR_CONCAT);
    assert_int_equal(v->operand_count, model_sources(model, s));
  }
  const uint32_t extras = ((outputs & MODEL_WEIGHTS) != 0) + ((outputs & MODEL_ENTROPY) != 0) +
                          ((outputs & MODEL_MIX) != 0);
  assert_int_equal(graph->results.count, 1 + extras * model_sites(model));
  const ir_node *first = ir_node_of(graph, graph->results.data[0]);
  assert_true(base_str_equal(first->name, base_str_format(&arena, "x_%u", model->sublayers)));
  assert_int_equal(first->type.dtype, model->dtype);
}

static void expands_to_what_is_described(void **state) {
  static const char *const lines[] = {"",
                                      "blocks: {size: 4}\naddends: 2\n",
                                      "blocks: {starts: [0, 1, 5]}\naddends: [2, 1]\n",
                                      "heads: 4\nscale: rsqrt_hidden\n",
                                      "null_source: zero\nheads: 2\n",
                                      "null_source: learned\nbias: {recency: 0.5}\n",
                                      "key_norm: none\ngains: {output: none}\n",
                                      "key_norm: query_and_key\nbias: count\ndelta_form: true\n",
                                      "output_norm: none\nmix_dtype: bf16\ngate: newest\n",
                                      "gate: channel\nwindow: 2\n",
                                      "window: 1\n"};
  (void)state;
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    for (uint32_t outputs = 0; outputs < 16; outputs++)
      check_graph(described(lines[i]), outputs);
  check_graph(described("normaliser: sigmoid\nheads: 2\n"), MODEL_WEIGHTS | MODEL_MIX);
  check_graph(described("normaliser: uniform\n"), MODEL_MIX | MODEL_FP8);
  check_graph(described("normaliser: static\ngate: newest\n"), MODEL_MIX);
  check_graph(read_text("schema: 1\nhidden: 1\nsublayers: 1\n"), 7);
}

static void has_the_parameters_that_it_needs(void **state) {
  (void)state;
  const ir_graph *graph = expanded(described("null_source: learned\ngate: newest\nheads: 2\n"), 0);
  ir_value value;
  static const char *const names[] = {"embedding", "query_6",       "key_gain_0",
                                      "gate_3",    "output_gain_6", "null_5"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    assert_true(ir_param_find(graph, base_str_from(names[i]), &value));
  assert_int_equal(graph->param_count, 1 + 5 * 7);
  assert_int_equal(value.index < graph->param_count, 1);
  assert_int_equal(expanded(described("normaliser: uniform\noutput_norm: none\n"), 0)->param_count,
                   1);
  graph = expanded(described("normaliser: static\nblocks: {size: 3}\n"), 0);
  assert_true(ir_param_find(graph, BASE_STR("weights_4"), &value));
  assert_int_equal(ir_axis_size(graph, ir_node_of(graph, value)->type.axes[0]), 3);
  assert_int_equal(graph->param_count, 1 + 2 * 7); // weights, output gains
  graph = expanded(described("gains: {key: none, output: none}\n"), 0);
  assert_int_equal(graph->param_count, 1 + 7); // queries
}

// Blocks are summed as the pseudocode says: p is rounded at every sublayer, and begins anew.
static void sums_blocks(void **state) {
  (void)state;
  const ir_graph *graph = expanded(described("blocks: {size: 2}\n"), 0);
  static const char *const sources[][4] = {{"embedding"},
                                           {"embedding", "f_0"},
                                           {"embedding", "p_2"},
                                           {"embedding", "p_2", "f_2"},
                                           {"embedding", "p_2", "p_4"},
                                           {"embedding", "p_2", "p_4", "f_4"},
                                           {"embedding", "p_2", "p_4", "p_6"}};
  for (uint32_t s = 0; s < 7; s++) {
    const ir_node *v = find_node(graph, base_str_format(&arena, "v_%u", s).data);
    for (uint32_t i = 0; i < v->operand_count; i++) {
      const base_str name = ir_node_of(graph, v->operands[i])->name;
      if (!base_str_equal(name, base_str_from(sources[s][i])))
        fail_msg("source %u of site %u is %%%.*s", i, s, BASE_FMT(name));
    }
  }
  assert_int_equal(find_node(graph, "p_2")->type.dtype, IR_BF16);
}

static void weighs_by_age_or_count(void **state) {
  (void)state;
  static const double ages[] = {-1.5, -1, -0.5, 0}, counts[] = {1, 2, 2, 1}; // of site 5
  const ir_graph *by_age = expanded(described("blocks: {size: 2}\nbias: {recency: 0.5}\n"), 0);
  const ir_graph *by_count = expanded(described("blocks: {size: 2}\nbias: count\n"), 0);
  const ir_node *age = find_node(by_age, "bias_5"), *count = find_node(by_count, "bias_5");
  assert_true(age->value_count == 4 && count->value_count == 4);
  for (uint32_t i = 0; i < 4; i++) {
    assert_true(age->values[i] == ages[i]);
    assert_true(count->values[i] == log(counts[i]));
  }
}

static void refuses_outputs_that_there_are_not(void **state) {
  static const struct {
    const char *lines;
    uint32_t outputs;
  } cases[] = {{"normaliser: uniform\n", MODEL_WEIGHTS},
               {"normaliser: static\n", MODEL_WEIGHTS},
               {"normaliser: sigmoid\n", MODEL_ENTROPY},
               {"normaliser: uniform\n", MODEL_ENTROPY | MODEL_MIX}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const model_description *model = described(cases[i].lines);
    assert_null(model_expand(&arena, model, cases[i].outputs, &diag));
    assert_int_equal(diag.error_count, 1);
    assert_int_equal(diag.status, BASE_INVALID);
  }
}

// More sources than a graph has room for: an error that says so.
static void refuses_too_many_sources(void **state) {
  (void)state;
  const model_description *model = read_text("schema: 1\nhidden: 8\nsublayers: 600\n");
  assert_clean(model != NULL);
  assert_null(model_expand(&arena, model, 0, &diag));
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
  assert_true(contains(base_diag_render(&diag), "sites of up to 601 sources"));
  model = read_text("schema: 1\nhidden: 8\nsublayers: 520\nwindow: 9\n");
  expanded(model, 0);
  model = read_text("schema: 1\nhidden: 8\nsublayers: 520\nblocks: {size: 2}\nheads: 2\n");
  expanded(model, MODEL_WEIGHTS);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(fills_in_defaults),
      TEST(reads_every_key),
      TEST(reads_words),
      TEST(reads_blocks),
      TEST(counts_sources),
      TEST(tells_where_it_is_wrong),
      TEST(needs_three_keys),
      TEST(tells_all_errors_at_once),
      TEST(refuses_another_schema),
      TEST(needs_a_name_for_the_graph),
      TEST(survives_any_text),
      TEST(expands_to_what_is_described),
      TEST(has_the_parameters_that_it_needs),
      TEST(sums_blocks),
      TEST(weighs_by_age_or_count),
      TEST(refuses_outputs_that_there_are_not),
      TEST(refuses_too_many_sources),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
