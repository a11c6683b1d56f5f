// Suites: what a text says becomes entries, whatever is wrong is reported with its place, and those that
// come with Fathom are about kernels that there are.
#include "autotune/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "support/memory.h"

static base_arena arena;
static base_diag diag;
static char folder[64];

static int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  strcpy(folder, "/tmp/fathom-test-suite-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  char command[96];
  base_arena_reset(&arena);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static const tune_suite *read_text(const char *text) {
  const base_str copy = base_str_copy(&arena, base_str_from(text));
  base_diag_init(&diag, &arena, BASE_STR("s.yaml"), copy);
  return tune_suite_read(&arena, copy, folder, &diag);
}

static const tune_suite *read_ok(const char *text) {
  const tune_suite *suite = read_text(text);
  if (!suite) fail_msg("%s", base_diag_render(&diag).data);
  assert_int_equal(diag.reports.count, 0);
  return suite;
}

// Reading fails, and what is shown has all of these in this order.
static void expect_errors(const char *text, const char *const *parts) {
  assert_null(read_text(text));
  assert_true(diag.error_count > 0);
  const char *shown = base_diag_render(&diag).data;
  for (const char *at = shown; *parts; parts++) {
    at = strstr(at, *parts);
    if (!at) fail_msg("expected '%s', found '%s'", *parts, shown);
  }
}

// The only error is this, with its place.
static void expect_error(const char *text, const char *message) {
  expect_errors(text, (const char *const[]){message, NULL});
  if (diag.error_count != 1) fail_msg("%s", base_diag_render(&diag).data);
  const char *shown = base_diag_render(&diag).data;
  if (strncmp(shown, message, strlen(message)) != 0)
    fail_msg("expected '%s', found '%s'", message, shown);
}

static void write_file(const char *name, const char *text) {
  base_str why;
  const char *path = base_str_format(&arena, "%s/%s", folder, name).data;
  assert_int_equal(base_file_write(&arena, path, text, strlen(text), &why), BASE_OK);
}

// ---- what is read -------------------------------------------------------------------------------

#define GRAPH                                                                                      \
  "graph @mix(%bank: bf16[N=3, T, D], %query: f32[D]) {\n"                                         \
  "      %z = dot %bank, %query over D : f32[N, T]\n"                                              \
  "      %a = softmax %z over N : f32[N, T]\n"                                                     \
  "      %h = weighted_sum %a, %bank over N : bf16[T, D]\n"                                        \
  "      return %h\n"                                                                              \
  "    }\n"
#define HEAD "schema: 1\nrows: [1, 64]\nkernels:\n"
#define KERNEL "- name: mix\n  text: |\n    " GRAPH

static int64_t size_of(const ir_graph *graph, const char *name) {
  ir_axis axis;
  assert_true(ir_axis_find(graph, base_str_from(name), &axis));
  return ir_axis_size(graph, axis);
}

static ir_dtype dtype_of(const ir_graph *graph, const char *param) {
  ir_value value;
  assert_true(ir_param_find(graph, base_str_from(param), &value));
  return ir_node_of(graph, value)->type.dtype;
}

static void test_one_kernel(void **state) {
  (void)state;
  const tune_suite *suite = read_ok(HEAD KERNEL "  set: {D: 8}\n");
  assert_int_equal(suite->count, 1);
  const tune_suite_entry *entry = &suite->entries[0];
  assert_string_equal(entry->name, "mix");
  assert_string_equal(entry->dtypes, "");
  assert_int_equal(entry->row_count, 2);
  assert_int_equal(entry->rows[0], 1);
  assert_int_equal(entry->rows[1], 64);
  assert_int_equal(size_of(entry->graph, "D"), 8);
  assert_int_equal(size_of(entry->graph, "N"), 3);
  assert_int_equal(size_of(entry->graph, "T"), IR_DYNAMIC);
  // Places in the graph are places of the suite.
  assert_string_equal(entry->file.data, "s.yaml");
  assert_true(entry->text.data == diag.source.data);
  assert_int_equal(entry->graph->return_loc.line, 10);
  assert_int_equal(entry->graph->return_loc.column, 7);
}

static void test_every_combination(void **state) {
  (void)state;
  const tune_suite *suite = read_ok(HEAD KERNEL "  set: {D: [8, 16]}\n"
                                                "  dtypes: {bf16: [bf16, f16], f32: f16}\n"
                                                "  rows: 5\n");
  static const char *const names[] = {"mix-D8-bf16", "mix-D8-f16", "mix-D16-bf16", "mix-D16-f16"};
  static const char *const dtypes[] = {"f32 as f16", "bf16 as f16, f32 as f16"};
  assert_int_equal(suite->count, 4);
  for (uint32_t i = 0; i < 4; i++) {
    const tune_suite_entry *entry = &suite->entries[i];
    assert_string_equal(entry->name, names[i]);
    assert_string_equal(entry->dtypes, dtypes[i % 2]);
    assert_int_equal(size_of(entry->graph, "D"), i < 2 ? 8 : 16);
    assert_int_equal(dtype_of(entry->graph, "bank"), i % 2 ? IR_F16 : IR_BF16);
    assert_int_equal(dtype_of(entry->graph, "query"), IR_F16);
    assert_int_equal(entry->row_count, 1);
    assert_int_equal(entry->rows[0], 5);
  }
}

// Dtypes change places, and are not changed twice.
static void test_dtypes_are_exchanged_at_once(void **state) {
  (void)state;
  const tune_suite *suite = read_ok(HEAD KERNEL "  dtypes: {bf16: f32, f32: bf16}\n");
  assert_int_equal(dtype_of(suite->entries[0].graph, "bank"), IR_F32);
  assert_int_equal(dtype_of(suite->entries[0].graph, "query"), IR_BF16);
}

static void test_files(void **state) {
  (void)state;
  write_file("two.fir",
             "graph @other(%x: f32[T, D=4]) {\n  %y = neg %x : f32[T, D]\n  return %y\n}\n"
             "graph @mix(%x: f32[T, E]) {\n  %y = neg %x : f32[T, E]\n  return %y\n}\n");
  const tune_suite *suite = read_ok(
      "schema: 1\nkernels:\n- {name: a, file: two.fir, graph: mix, set: {E: 3}, rows: [7]}\n"
      "- {name: b, file: two.fir, graph: '@other', rows: 7}\n");
  assert_int_equal(suite->count, 2);
  assert_int_equal(size_of(suite->entries[0].graph, "E"), 3);
  assert_int_equal(suite->entries[1].graph->loc.line, 1);
  char absolute[256];
  snprintf(absolute, sizeof absolute, HEAD "- {name: a, file: '%s/two.fir', graph: mix}\n", folder);
  assert_string_equal(read_ok(absolute)->entries[0].file.data,
                      base_str_format(&arena, "%s/two.fir", folder).data);
  const char *missing = HEAD "- {name: a, file: three.fir}\n";
  expect_errors(missing, (const char *const[]){"s.yaml:4:19: error: ", "three.fir", NULL});
  assert_int_equal(diag.status, BASE_IO);
  expect_error(HEAD "- {name: a, file: two.fir}\n", "s.yaml:4:19: error: there are 2 graphs\n");
  expect_error(HEAD "- {name: a, file: two.fir, graph: mxi}\n",
               "s.yaml:4:35: error: there is no graph @mxi\n");
  write_file("bad.fir", "graph @a(%x: f32[T]) {\n  %y = nge %x : f32[T]\n  return %y\n}\n");
  expect_errors(HEAD "- {name: a, file: bad.fir}\n",
                (const char *const[]){"s.yaml:4:19: error: ", "/bad.fir:2:8: ", "neg", NULL});
}

// A text as others write it: with carriage returns, empty lines, another indentation, a comment behind.
static void test_blocks(void **state) {
  (void)state;
  const tune_suite *suite = read_ok(
      "schema: 1\r\nkernels:\r\n- rows: 1\r\n  name: a\r\n  text: |-\r\n"
      "      // first\r\n\r\n      graph @a(%x: f32[T]) {\r\n        %y = neg %x : f32[T]\r\n"
      "        return %y\r\n      }\r\n\r\n  # last\r\n");
  assert_int_equal(suite->entries[0].graph->loc.line, 8);
  assert_int_equal(suite->entries[0].graph->return_loc.line, 10);
  assert_int_equal(suite->entries[0].graph->return_loc.column, 9);
}

// ---- what is refused ----------------------------------------------------------------------------

static void test_suites_that_are_wrong(void **state) {
  (void)state;
  expect_error("", "s.yaml:1:1: error: expected a mapping, found nothing\n");
  expect_error("[1]\n", "s.yaml:1:1: error: expected a mapping, found a list\n");
  expect_error("rows: [1]\n", "s.yaml:1:1: error: 'schema' is missing\n");
  expect_error("schema: one\n", "s.yaml:1:9: error: expected an integer, found 'one'\n");
  expect_error("schema: 2\nwhat: [is, new]\n", "s.yaml:1:9: error: the suite is of schema 2");
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
  expect_error("schema: 1\n", "s.yaml:1:1: error: 'kernels' is missing\n");
  expect_error("schema: 1\nkernels: {}\n",
               "s.yaml:2:10: error: expected a list, found a mapping\n");
  expect_error("schema: 1\nkernels: []\n", "s.yaml:2:10: error: a suite without kernels\n");
  expect_error("schema: 1\nkernels: [1\n", "s.yaml:3:1: error: not YAML");
  expect_errors("schema: 1\nmodel: k3\nkernels:\n" KERNEL "  rows: 1\n",
                (const char *const[]){"s.yaml:2:1: error: unknown name 'model'\n  2 | model: k3\n"
                                      "    | ^~~~~\n  hint: the names are schema, rows, kernels",
                                      NULL});
  expect_error("schema: 1\nrosw: 1\nkernels:\n" KERNEL "  rows: 1\n",
               "s.yaml:2:1: error: unknown name 'rosw'\n  2 | rosw: 1\n    | ^~~~\n"
               "  hint: did you mean 'rows'?");
}

static void test_kernels_that_are_wrong(void **state) {
  (void)state;
  expect_error(HEAD "- mix\n", "s.yaml:4:3: error: expected a mapping, found 'mix'\n");
  expect_errors(HEAD KERNEL "  sizes: 3\n",
                (const char *const[]){"s.yaml:12:3: error: unknown name 'sizes'",
                                      "name, text, file, graph, set, dtypes, rows", NULL});
  expect_error(HEAD "- text: |\n    " GRAPH, "s.yaml:4:3: error: a kernel without a 'name'\n");
  expect_error(HEAD "- name: a/b\n  text: |\n    " GRAPH,
               "s.yaml:4:9: error: 'a/b' is no name for a kernel\n");
  expect_error(HEAD "- name: ..\n  text: |\n    " GRAPH, "s.yaml:4:9: error: '..' is no name");
  expect_error(HEAD "- name: [a]\n  text: |\n    " GRAPH,
               "s.yaml:4:9: error: expected a string, found a list\n");
  expect_error(HEAD "- name: mix\n", "s.yaml:4:3: error: a kernel without a graph\n");
  expect_error(HEAD KERNEL "  file: x.fir\n",
               "s.yaml:12:9: error: a kernel has either a 'text' or a 'file'\n");
  expect_error(HEAD "- name: mix\n  text: graph @a() {}\n",
               "s.yaml:5:9: error: expected a block of graph IR\n");
  expect_error(HEAD "- name: mix\n  text: >\n    graph @a(%x: f32[T]) {\n    return %x\n    }\n",
               "s.yaml:5:9: error: expected a block of graph IR\n");
  expect_errors(HEAD "- name: mix\n  text: |\n", (const char *const[]){"s.yaml:", "error: ", NULL});
  expect_error(HEAD KERNEL KERNEL,
               "s.yaml:12:9: error: a second entry would be called 'mix'\n 12 | - name: mix\n"
               "    |         ^~~\n  hint: the other is that of line 4");
  // The product of one kernel may take another one's name.
  expect_errors(
      HEAD KERNEL "  set: {D: [1, 2]}\n"
                  "- name: mix-D2\n  text: |\n    " GRAPH,
      (const char *const[]){"s.yaml:13:9: error: a second entry would be called 'mix-D2'", NULL});
  expect_error("schema: 1\nkernels:\n" KERNEL,
               "s.yaml:3:3: error: neither the kernel nor the suite has 'rows'\n");
  expect_error(HEAD KERNEL "  set: {T: 3, D: 4}\n",
               "s.yaml:4:9: error: every axis of graph @mix has a size\n");
}

static void test_values_that_are_wrong(void **state) {
  (void)state;
  expect_error("schema: 1\nrows: []\nkernels:\n" KERNEL, "s.yaml:2:7: error: an empty list\n");
  expect_error("schema: 1\nrows: [4, 0]\nkernels:\n" KERNEL,
               "s.yaml:2:11: error: expected a size of 1 or more, found 0\n");
  expect_error("schema: 1\nrows: [4, 4]\nkernels:\n" KERNEL,
               "s.yaml:2:11: error: '4' is listed twice\n");
  expect_error("schema: 1\nrows: {a: 1}\nkernels:\n" KERNEL,
               "s.yaml:2:7: error: expected an integer, found a mapping\n");
  expect_error("schema: 1\nrows: [99999999999999999999]\nkernels:\n" KERNEL,
               "s.yaml:2:8: error: expected an integer");
  expect_error(HEAD KERNEL "  set: {D: -8}\n",
               "s.yaml:12:12: error: expected a size of 1 or more, found -8\n");
  expect_error(HEAD KERNEL "  set: {D: []}\n", "s.yaml:12:12: error: an empty list\n");
  expect_error(HEAD KERNEL "  set: [D]\n", "s.yaml:12:8: error: expected a mapping, such as {D: ");
  expect_error(HEAD KERNEL "  set: {D: [8, x]}\n",
               "s.yaml:12:16: error: expected an integer, found 'x'\n");
  expect_error(HEAD KERNEL "  set: {E: 8}\n",
               "s.yaml:12:12: error: expected an axis of graph @mix, found 'E'\n");
  expect_error(HEAD KERNEL "  set: {N: 4}\n",
               "s.yaml:12:12: error: s.yaml:6:28: axis N already has size 3");
  expect_error(HEAD KERNEL "  set: {D: 8, D: 9}\n", "s.yaml:12:15: error: 'D' is given twice\n");
  expect_errors(HEAD KERNEL "  dtypes: {bf16: f64}\n",
                (const char *const[]){"s.yaml:12:18: error: unknown dtype 'f64'\n",
                                      "hint: the dtypes are f32, bf16, f16, f8e4m3\n", NULL});
  expect_error(HEAD KERNEL "  dtypes: {half: f32}\n",
               "s.yaml:12:12: error: unknown dtype 'half'\n");
  expect_error(HEAD KERNEL "  dtypes: {f16: f32}\n",
               "s.yaml:12:12: error: no value of graph @mix is of dtype f16\n");
  expect_error(HEAD KERNEL "  dtypes: bf16\n",
               "s.yaml:12:11: error: expected a mapping, such as {bf16: f16}\n");
  expect_error(HEAD KERNEL "  set: {D: &a 8}\n", "s.yaml:12:12: error: anchors are not read here");
}

// A graph that is wrong is shown where it stands; all errors are there, from all kernels.
static void test_all_errors_in_one_run(void **state) {
  (void)state;
  expect_errors(
      HEAD "- name: mix\n  text: |\n"
           "    graph @a(%x: f32[T, D]) {\n"
           "      %y = nge %x : f32[T, D]\n"
           "      return %z\n"
           "    }\n"
           "- name: b\n"
           "- name: c\n  file: none.fir\n  rows: 0\n",
      (const char *const[]){"s.yaml:7:12: error: ", "  7 |       %y = nge %x",
                            "s.yaml:8:14: error: ", "s.yaml:10:3: error: a kernel without",
                            "s.yaml:12:9: error: ", "s.yaml:13:9: error: expected a size", NULL});
}

static void test_too_many_entries(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  base_text_printf(&text, "%s", HEAD KERNEL "  set: {D: [");
  for (int i = 1; i <= TUNE_SUITE_ENTRIES; i++)
    base_text_printf(&text, "%s%d", i > 1 ? ", " : "", i);
  const char *full = base_str_format(&arena, "%s]}\n", text.data).data;
  assert_int_equal(read_ok(full)->count, TUNE_SUITE_ENTRIES);
  expect_error(base_str_format(&arena, "%s, %d]}\n", text.data, TUNE_SUITE_ENTRIES + 1).data,
               "s.yaml:4:9: error: more than 1024 entries\n");
}

// No text, however bad, does more than report errors.
static void test_damaged_texts(void **state) {
  (void)state;
  static const char whole[] =
      HEAD KERNEL "  set: {D: [8, 16]}\n  dtypes: {bf16: [bf16, f16]}\n  rows: [3]\n";
  static const char bytes[] = "\n: {}[]|>-,#'\"%0\x80";
  uint64_t random = 1;
  for (int i = 0; i < 3000; i++) {
    base_arena_reset(&arena);
    char text[sizeof whole];
    memcpy(text, whole, sizeof whole);
    const int changes = 1 + (int)(base_random(&random) % 3);
    for (int c = 0; c < changes; c++)
      text[base_random(&random) % (sizeof whole - 1)] =
          bytes[base_random(&random) % (sizeof bytes - 1)];
    if (i % 4 == 0) text[base_random(&random) % sizeof whole] = 0;
    const tune_suite *suite = read_text(text);
    if (!suite) assert_true(diag.error_count > 0 && base_diag_render(&diag).length > 0);
    for (uint32_t e = 0; suite && e < suite->count; e++)
      assert_true(suite->entries[e].row_count > 0 && suite->entries[e].graph);
  }
}

// ---- the public face ----------------------------------------------------------------------------

static fathom_context *open_context(memory *m) {
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = "";
  memory_use(m, &options);
  fathom_context *context = NULL;
  if (fathom_context_create(&options, &context) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  return context;
}

static fathom_suite_entry get(const fathom_suite *suite, uint32_t index) {
  fathom_suite_entry entry = FATHOM_INIT(entry);
  if (fathom_suite_get(suite, index, &entry) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  return entry;
}

static void test_handles(void **state) {
  (void)state;
  write_file("s.yaml", HEAD KERNEL "  set: {D: 8}\n  dtypes: {bf16: f16}\n");
  const char *path = base_str_format(&arena, "%s/s.yaml", folder).data;
  fathom_context *context = open_context(NULL);
  fathom_suite *suite;
  assert_int_equal(fathom_suite_open(context, path, &suite), FATHOM_OK);
  assert_int_equal(fathom_suite_count(suite), 1);
  fathom_suite_entry entry = get(suite, 0);
  assert_string_equal(entry.name, "mix");
  assert_string_equal(entry.axes, "N=3 D=8, bf16 as f16");
  assert_int_equal(entry.row_count, 2);
  assert_int_equal(entry.rows[1], 64);
  assert_string_equal(fathom_graph_name(entry.graph), "mix");
  // The handle is as good as that of a module, and its messages show the suite.
  fathom_text text;
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = "interp";
  fathom_executable *executable;
  assert_int_equal(fathom_compile(context, entry.graph, &compile, &executable), FATHOM_OK);
  fathom_executable_destroy(executable);
  fathom_optimize_options optimize = FATHOM_INIT(optimize);
  optimize.passes = "";
  assert_int_equal(fathom_optimize(context, entry.graph, &optimize, &text, NULL), FATHOM_OK);
  assert_non_null(strstr(text.data, "f16[N=3, T, D=8]"));
  fathom_text_destroy(&text);
  assert_int_equal(fathom_graph_bind(entry.graph, "D", 9), FATHOM_INVALID);
  assert_non_null(strstr(fathom_error_text(), "s.yaml:6:"));
  fathom_suite_entry past = FATHOM_INIT(past);
  assert_int_equal(fathom_suite_get(suite, 1, &past), FATHOM_INVALID);
  past.size = 3;
  assert_int_equal(fathom_suite_get(suite, 0, &past), FATHOM_INVALID);
  assert_int_equal(fathom_suite_get(NULL, 0, &past), FATHOM_INVALID);
  fathom_suite_destroy(suite);
  fathom_suite_destroy(NULL);
  assert_int_equal(fathom_suite_open(context, NULL, &suite), FATHOM_INVALID);
  assert_int_equal(fathom_suite_open(context, "kimi-k4", &suite), FATHOM_INVALID);
  assert_null(suite);
  assert_non_null(strstr(fathom_error_text(), "the suites are kimi-k3, kimi-linear;"));
  assert_int_equal(fathom_suite_open(context, "../suites/kimi-k3", &suite), FATHOM_IO);
  fathom_context_destroy(context);
}

static void test_every_allocation_may_fail(void **state) {
  (void)state;
  write_file("s.yaml", HEAD KERNEL "  set: {D: [8, 16]}\n");
  const char *path = base_str_format(&arena, "%s/s.yaml", folder).data;
  fathom_status status = FATHOM_MEMORY;
  long failures = 0;
  for (long n = 0; status != FATHOM_OK; n++) {
    memory m = {.left = -1};
    fathom_context *context = open_context(&m);
    const long before = m.held;
    fathom_suite *suite;
    m.left = n;
    status = fathom_suite_open(context, path, &suite);
    m.left = -1;
    if (status != FATHOM_OK) {
      assert_int_equal(status, FATHOM_MEMORY);
      assert_null(suite);
      failures++;
    }
    fathom_suite_destroy(suite);
    assert_int_equal(m.held, before);
    fathom_context_destroy(context);
    assert_int_equal(m.held, 0);
  }
  assert_true(failures > 1);
}

// ---- those that come with Fathom ----------------------------------------------------------------

static void compile_entries(fathom_context *context, const fathom_suite *suite) {
  for (uint32_t i = 0; i < fathom_suite_count(suite); i++) {
    fathom_suite_entry entry = get(suite, i);
    fathom_executable_info info = FATHOM_INIT(info);
    fathom_executable *executable;
    fathom_status status = fathom_compile(context, entry.graph, NULL, &executable);
    if (status == FATHOM_UNSUPPORTED) skip(); // a build without the cpu target
    if (status != FATHOM_OK) fail_msg("%s: %s", entry.name, fathom_error_text());
    assert_int_equal(fathom_executable_get_info(executable, &info), FATHOM_OK);
    assert_int_equal(info.kernel_count, 1);
    fathom_executable_destroy(executable);
  }
}

static void test_shipped_suites_compile(void **state) {
  (void)state;
  static const struct {
    const char *name;
    uint32_t entries, searches;
    const char *first;
  } suites[] = {{"kimi-k3", 17, 77, "B=8 D=7168 N=9"}, {"kimi-linear", 19, 95, "B=9 D=2304 N=10"}};
  fathom_context *context = open_context(NULL);
  for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
    fathom_suite *suite;
    if (fathom_suite_open(context, suites[i].name, &suite) != FATHOM_OK)
      fail_msg("%s", fathom_error_text());
    uint32_t searches = 0;
    for (uint32_t e = 0; e < fathom_suite_count(suite); e++)
      searches += get(suite, e).row_count;
    assert_int_equal(fathom_suite_count(suite), suites[i].entries);
    assert_int_equal(searches, suites[i].searches);
    assert_string_equal(get(suite, 0).axes, suites[i].first);
    compile_entries(context, suite);
    fathom_suite_destroy(suite);
  }
  fathom_context_destroy(context);
}

// What is tuned is taken for the graphs of the examples: they are the same but for names.
static void test_shipped_suites_are_the_examples(void **state) {
  (void)state;
  static const char *const pairs[][2] = {
      {"k3_site.fir", "mix-B8"}, {"phase1.fir", "phase1-N8"}, {"phase2.fir", "phase2"}};
  const char *source = getenv("FATHOM_SOURCE_DIR");
  fathom_context *context = open_context(NULL);
  fathom_suite *suite;
  uint32_t found = 0;
  assert_int_equal(fathom_suite_open(context, "kimi-k3", &suite), FATHOM_OK);
  for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
    base_str text, why;
    const char *path =
        base_str_format(&arena, "%s/examples/%s", source ? source : ".", pairs[p][0]).data;
    assert_int_equal(base_file_read(&arena, path, &text, &why), BASE_OK);
    fathom_module *module;
    assert_int_equal(fathom_parse(context, text.data, text.length, NULL, &module), FATHOM_OK);
    fathom_graph *graph = fathom_module_graph_at(module, 0);
    assert_int_equal(fathom_graph_bind(graph, "D", 7168), FATHOM_OK);
    for (uint32_t i = 0; i < fathom_suite_count(suite); i++) {
      fathom_suite_entry entry = get(suite, i);
      if (strcmp(entry.name, pairs[p][1]) != 0) continue;
      assert_true(base_hash_equal(ir_hash(entry.graph->ir), ir_hash(graph->ir)));
      found++;
    }
    fathom_module_destroy(module);
  }
  assert_int_equal(found, 3);
  fathom_suite_destroy(suite);
  fathom_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_one_kernel),
      cmocka_unit_test(test_every_combination),
      cmocka_unit_test(test_dtypes_are_exchanged_at_once),
      cmocka_unit_test(test_files),
      cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_suites_that_are_wrong),
      cmocka_unit_test(test_kernels_that_are_wrong),
      cmocka_unit_test(test_values_that_are_wrong),
      cmocka_unit_test(test_all_errors_in_one_run),
      cmocka_unit_test(test_too_many_entries),
      cmocka_unit_test(test_damaged_texts),
      cmocka_unit_test(test_handles),
      cmocka_unit_test(test_every_allocation_may_fail),
      cmocka_unit_test(test_shipped_suites_compile),
      cmocka_unit_test(test_shipped_suites_are_the_examples),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
