// Text: parsing, printing, and building graphs that print.
//
// What is wrong in a file, and where, is in tests/ir/invalid (test_verify.c reads it). Here: that
// text comes back from the printer as it was, hints and limits, and that no bytes and no lack of
// memory do any harm.
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static base_arena arena;
static base_diag diag;

static int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  base_arena_reset(&arena);
  return 0;
}

static ir_module *try_parse(base_str text) {
  base_diag_init(&diag, &arena, (base_str){0}, text);
  ir_module *module = ir_parse(&arena, text, &diag);
  assert_int_equal(module == NULL, diag.error_count > 0);
  return module;
}

static ir_module *parse(base_str text) {
  ir_module *module = try_parse(text);
  if (!module) fail_msg("%.*s", BASE_FMT(base_diag_render(&diag)));
  return module;
}

static ir_graph *parse_one(const char *text) {
  return parse(base_str_from(text))->graphs.data[0];
}

static base_str print(const ir_graph *graph) {
  base_text text = {.arena = &arena};
  ir_print(graph, &text);
  return base_text_str(&text);
}

static void assert_text(base_str text, const char *expected) {
  if (!base_str_equal(text, base_str_from(expected)))
    fail_msg("expected\n%s\nfound\n%.*s", expected, BASE_FMT(text));
}

static base_str test_file(const char *name) {
  const char *root = getenv("FATHOM_SOURCE_DIR");
  base_str text, why;
  const base_str path = base_str_format(&arena, "%s/tests/ir/%s", root ? root : ".", name);
  if (base_file_read(&arena, path.data, &text, &why) != BASE_OK) fail_msg("%.*s", BASE_FMT(why));
  return text;
}

// ---- round trip ---------------------------------------------------------------------------------

static void check_round_trip(const ir_graph *graph) {
  const base_str once = print(graph);
  const ir_module *again = parse(once);
  assert_int_equal(again->graphs.count, 1);
  assert_text(print(again->graphs.data[0]), once.data);
  if (!ir_equal(graph, again->graphs.data[0])) fail_msg("changed by printing:\n%s", once.data);
}

static void test_files_round_trip(void **state) {
  (void)state;
  const char *root = getenv("FATHOM_SOURCE_DIR");
  DIR *directory = opendir(base_str_format(&arena, "%s/tests/ir", root ? root : ".").data);
  assert_non_null(directory);
  int graphs = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const size_t length = strlen(entry->d_name);
    if (length < 4 || strcmp(entry->d_name + length - 4, ".fir") != 0) continue;
    const ir_module *module = parse(test_file(entry->d_name));
    for (uint32_t i = 0; i < module->graphs.count; i++, graphs++)
      check_round_trip(module->graphs.data[i]);
  }
  closedir(directory);
  assert_true(graphs >= 6);
}

// The printer writes as people do: the text of the design comes back to the letter.
static void test_k3_site_is_printed_as_written(void **state) {
  (void)state;
  const base_str text = test_file("k3_site.fir");
  const char *first = strstr(text.data, "graph");
  assert_text(print(parse(text)->graphs.data[0]), first);
}

static void test_members(void **state) {
  (void)state;
  const ir_graph *graph = parse(test_file("k3_site.fir"))->graphs.data[0];
  assert_text(graph->name, "k3_site");
  assert_int_equal(graph->param_count, 6);
  assert_int_equal(graph->nodes.count, 13);
  assert_int_equal(graph->results.count, 2);
  ir_value value;
  assert_true(ir_param_find(graph, BASE_STR("gain"), &value));
  assert_int_equal(value.index, 4);
  assert_false(ir_param_find(graph, BASE_STR("p"), &value)); // a value, but no parameter
  ir_axis axis;
  assert_true(ir_axis_find(graph, BASE_STR("B"), &axis));
  assert_int_equal(ir_axis_size(graph, axis), 8);
  assert_true(ir_axis_find(graph, BASE_STR("D"), &axis));
  assert_int_equal(ir_axis_size(graph, axis), IR_DYNAMIC);

  const ir_node *concat = &graph->nodes.data[7];
  assert_int_equal(concat->op, IR_CONCAT);
  assert_int_equal(concat->loc.line, 5);
  assert_int_equal(concat->loc.column, 8);
  assert_int_equal(concat->operand_locs[1].column, 22);
  assert_int_equal(concat->type_loc.column, 60);
  assert_int_equal(concat->type_loc.length, strlen("bf16[N=9, T, D]"));
  assert_int_equal(concat->over_count, 1);
  assert_int_equal(concat->kernel, IR_NO_KERNEL);
  assert_true(graph->nodes.data[8].eps == 1e-5);
}

static void test_numbers_come_back_to_the_bit(void **state) {
  (void)state;
  ir_graph *graph = ir_graph_create(&arena, BASE_STR("g"));
  uint64_t bits = 1;
  for (int i = 0; i < 2000; i++) {
    bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    double number;
    memcpy(&number, &bits, sizeof number);
    if (isnan(number)) continue;
    ir_build_result(graph, ir_build_constant(graph, number));
  }
  static const double special[] = {
      0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 1e22, 1e-7, 100000, 1e5 + 0.1};
  for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
    ir_build_result(graph, ir_build_constant(graph, special[i]));
  check_round_trip(graph);
}

static void test_locale_does_not_matter(void **state) {
  (void)state;
  static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ru_RU.UTF-8"};
  const char *chosen = NULL;
  for (size_t i = 0; i < 4 && !chosen; i++)
    chosen = setlocale(LC_NUMERIC, with_comma[i]);
  if (!chosen) skip(); // none is installed
  const ir_graph *graph = parse_one("graph @g() { %a = constant {value = 1.5} : f32[] return %a }");
  const double value = graph->nodes.data[0].values[0];
  const base_str text = print(graph);
  setlocale(LC_NUMERIC, "C");
  assert_true(value == 1.5);
  assert_non_null(strstr(text.data, "value = 1.5}"));
}

static void test_printed_pieces(void **state) {
  (void)state;
  const ir_graph *graph = parse(test_file("syntax.fir"))->graphs.data[1];
  base_text text = {.arena = &arena};
  ir_print_node(graph, (ir_value){0}, &text);
  base_text_printf(&text, " | ");
  ir_print_node(graph, (ir_value){4}, &text);
  base_text_printf(&text, " | ");
  ir_print_type(graph, &graph->nodes.data[5].type, &text);
  assert_text(base_text_str(&text), "%bank: bf16[B, T, D] layout(T, B, D) | "
                                    "%last = slice %all over N to L {start = 3} : bf16[L, T, D] | "
                                    "bf16[L, T, H, E]");
}

static void test_long_heads_are_wrapped(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  base_text_printf(&text, "graph @g(%%p0: f32[T]");
  for (int i = 1; i < 40; i++)
    base_text_printf(&text, ", %%parameter%d: f32[T]", i);
  base_text_printf(&text, ") { return %%p0 }");
  const base_str printed = print(parse(base_text_str(&text))->graphs.data[0]);
  for (const char *line = printed.data; *line; line += strcspn(line, "\n") + 1)
    assert_true(strcspn(line, "\n") <= 100);
  check_round_trip(parse(printed)->graphs.data[0]);
}

// ---- errors -------------------------------------------------------------------------------------

// `body` stands in a graph with parameters %value: f32[T, D] and %w: f32[D].
static void assert_report(const char *body, const char *expected) {
  const base_str text = base_str_format(
      &arena, "graph @g(%%value: f32[T, D], %%w: f32[D]) {\n%s\nreturn %%w }", body);
  if (try_parse(text)) fail_msg("no error in\n%s", text.data);
  assert_text(base_diag_render(&diag), expected);
}

static void test_hints(void **state) {
  (void)state;
  assert_report("%x = sofmax %value over D : f32[T, D]",
                "2:6: error: unknown op 'sofmax'\n"
                "  2 | %x = sofmax %value over D : f32[T, D]\n"
                "    |      ^~~~~~\n"
                "  hint: did you mean 'softmax'?\n");
  assert_report("%x = neg %valeu : f32[T, D]", "2:10: error: unknown value %valeu\n"
                                               "  2 | %x = neg %valeu : f32[T, D]\n"
                                               "    |          ^~~~~~\n"
                                               "  hint: did you mean '%value'?\n");
  assert_report("%x = neg %w : bf61[D]", "2:15: error: expected a dtype, found 'bf61'\n"
                                         "  2 | %x = neg %w : bf61[D]\n"
                                         "    |               ^~~~\n"
                                         "  hint: did you mean 'bf16'?\n");
  assert_report("%x = neg %w : f64[D]", "2:15: error: expected a dtype, found 'f64'\n"
                                        "  2 | %x = neg %w : f64[D]\n"
                                        "    |               ^~~\n"
                                        "  hint: the dtypes are f32, bf16, f16 and f8e4m3\n");
  assert_report("%x = rms_norm %w over D {esp = 1} : f32[D]",
                "2:26: error: 'rms_norm' has no attribute 'esp'\n"
                "  2 | %x = rms_norm %w over D {esp = 1} : f32[D]\n"
                "    |                          ^~~\n"
                "  hint: did you mean 'eps'?\n");
}

static void test_errors_are_capped(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  base_text_printf(&text, "graph @g(%%x: f32[T]) {\n");
  for (int i = 0; i < 1000; i++)
    base_text_printf(&text, "%%y%d = neg %%x over T : f32[T]\n", i);
  base_text_printf(&text, "return %%x }\n");
  assert_null(try_parse(base_text_str(&text)));
  assert_int_equal(diag.error_count, 101);
  const base_str report = base_diag_render(&diag);
  static const char last[] = "error: more than 100 errors; the rest is not reported\n";
  assert_string_equal(report.data + report.length - strlen(last), last);
}

static void test_limits(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  base_text_printf(&text, "graph @g(%%x: f32[");
  for (int i = 0; i < 520; i++) // in types of at most 8 axes
    base_text_printf(&text, i % 8 == 7 ? "A%d], %%x%d: f32[" : "A%d, ", i, i);
  base_text_printf(&text, "A]) { return %%x }");
  assert_null(try_parse(base_text_str(&text)));
  assert_int_equal(diag.error_count, 1);
  assert_non_null(strstr(base_diag_render(&diag).data, "at most 512 axes in a graph"));

  assert_null(try_parse(BASE_STR("graph @g(%x: f32[A, B, C, D, E, F, G, H, I, J]) { return %x }")));
  assert_int_equal(diag.error_count, 1);
  assert_non_null(strstr(base_diag_render(&diag).data, "at most 8 axes in a type"));
}

// ---- hostile input ------------------------------------------------------------------------------

static void test_binary_input(void **state) {
  (void)state;
  static const char binary[] = "graph @g()\0\1\2\3";
  assert_null(try_parse((base_str){binary, sizeof binary}));
  assert_non_null(strstr(base_diag_render(&diag).data, "found a binary file"));
  assert_null(try_parse((base_str){0}));
  assert_text(base_diag_render(&diag),
              "1:1: error: expected 'graph @name(...) {', found the end of the file\n");
  assert_non_null(try_parse(BASE_STR("\xef\xbb\xbfgraph @g(%x: f32) {return %x}")));
}

// Each truncation and each replaced or removed byte of a whole file: an answer, and a printable
// one.
static void test_damaged_text(void **state) {
  (void)state;
  static const char replacements[] = "%@(){}[],:=/ \n0-ez.\x80\xff";
  static const char *const files[] = {"k3_site.fir", "syntax.fir"};
  for (size_t f = 0; f < 2; f++) {
    base_arena_reset(&arena);
    const size_t length = test_file(files[f]).length;
    for (size_t i = 0; i < length; i++) {
      base_arena_reset(&arena);
      const base_str text = test_file(files[f]);
      char *bytes = malloc(length); // exact, for the sanitizers
      for (size_t r = 0; r < sizeof replacements; r++) {
        memcpy(bytes, text.data, length);
        if (r > 0) bytes[i] = replacements[r - 1];
        const ir_module *module = try_parse((base_str){bytes, r == 0 ? i : length});
        if (!module) assert_true(base_diag_render(&diag).length > 0);
        for (uint32_t g = 0; module && g < module->graphs.count; g++)
          check_round_trip(module->graphs.data[g]);
      }
      free(bytes);
    }
  }
}

static void test_enormous_tokens(void **state) {
  (void)state;
  enum { LENGTH = 1000000 };
  static const char *const formats[] = {
      "graph @%s(%%x: f32[T]) { return %%x }",
      "graph @g(%%%s: f32[T]) { return %%x }",
      "graph @g(%%x: f32[%s]) { return %%x, %%y }",
      "graph @g(%%x: %s[T]) { return %%x }",
      "graph @g(%%x: f32[T]) { %%y = %s %%x : f32[T] return %%y }",
      "graph @g(%%x: f32[T]) { %%y = constant {value = 1%s} : f32[T] return %%y }",
      "graph @g(%%x: f32[T=1%s]) { return %%x }",
      "// %s",
      "%s",
  };
  static const char fillers[] = {'a', '0', '[', '{', '(', ',', '%', '-', '\xff', '\t'};
  char *filler = malloc(LENGTH + 1);
  filler[LENGTH] = '\0';
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    for (size_t j = 0; j < sizeof fillers; j++) {
      memset(filler, fillers[j], LENGTH);
      base_text text = {.arena = &arena};
      const char *hole = strstr(formats[i], "%s");
      base_text_printf(&text, "%.*s", (int)(hole - formats[i]), formats[i]);
      base_text_append(&text, filler, LENGTH);
      base_text_append(&text, hole + 2, strlen(hole + 2));
      if (!try_parse(base_text_str(&text))) assert_true(base_diag_render(&diag).length < 100000);
      base_arena_reset(&arena);
    }
  }
  free(filler);
}

// ---- lack of memory -----------------------------------------------------------------------------

typedef struct limited {
  int allowed, alive;
} limited;

static void *limited_allocate(void *user, size_t size) {
  limited *limits = user;
  if (limits->allowed-- <= 0) return NULL;
  limits->alive++;
  return malloc(size);
}

static void limited_release(void *user, void *pointer) {
  ((limited *)user)->alive--;
  free(pointer);
}

// Parses, prints and renders in an arena that has only so many blocks. True when they were enough.
static bool fits(limited *limits, base_str text) {
  const base_allocator allocator = {limits, limited_allocate, limited_release};
  base_arena small;
  base_arena_init(&small, &allocator);
  jmp_buf escape;
  volatile bool done = false;
  if (BASE_TRY(&small, escape)) {
    base_diag small_diag;
    base_diag_init(&small_diag, &small, (base_str){0}, text);
    ir_module *module = ir_parse(&small, text, &small_diag);
    base_text out = {.arena = &small};
    for (uint32_t i = 0; module && i < module->graphs.count; i++)
      ir_print(module->graphs.data[i], &out);
    base_diag_render(&small_diag);
    done = true;
  }
  base_arena_reset(&small);
  assert_int_equal(limits->alive, 0);
  return done;
}

static void test_each_allocation_may_fail(void **state) {
  (void)state;
  const base_str texts[] = {test_file("syntax.fir"), BASE_STR("graph @g(%x: f33[T=z]) {")};
  for (size_t i = 0; i < 2; i++) {
    int allowed = 0;
    while (!fits(&(limited){.allowed = allowed}, texts[i]))
      allowed++;
    assert_true(allowed > 0);
  }
}

// ---- building -----------------------------------------------------------------------------------

static void test_built_graph(void **state) {
  (void)state;
  ir_graph *graph = ir_graph_create(&arena, BASE_STR("built"));
  ir_build_axis(graph, BASE_STR("N"), 4);
  const ir_axis n = ir_build_axis(graph, BASE_STR("N"), IR_DYNAMIC); // leaves the size alone
  const ir_value v = ir_build_param(
      graph, BASE_STR("v"), ir_build_type(graph, IR_BF16, 3, (const char *[]){"N", "T", "D"}));
  const ir_value q = ir_build_param(graph, BASE_STR("q"),
                                    ir_build_type(graph, IR_F32, 2, (const char *[]){"S", "D"}));
  ir_axis d;
  assert_true(ir_axis_find(graph, BASE_STR("D"), &d));
  const ir_value k = ir_build_over(graph, IR_RMS_NORM, 1, &v, d, IR_F32);
  const ir_value z = ir_build_over(graph, IR_DOT, 2, (ir_value[]){k, q}, d, IR_F32);
  const ir_value a = ir_build_over(graph, IR_SOFTMAX, 1, &z, n, IR_F32);
  const ir_value h = ir_build_over(graph, IR_WEIGHTED_SUM, 2, (ir_value[]){a, v}, n, IR_F32);
  const ir_value two = ir_build_constant(graph, 2);
  ir_node named = *ir_node_of(graph, ir_build_binary(graph, IR_MUL, two, h, IR_BF16));
  named.name = BASE_STR("v"); // taken
  ir_build_result(graph, ir_build_node(graph, &named));
  assert_text(print(graph),
              "graph @built(%v: bf16[N=4, T, D], %q: f32[S, D]) {\n"
              "  %2 = rms_norm %v over D {eps = 1e-5}                   : f32[N, T, D]\n"
              "  %3 = dot %2, %q over D                                 : f32[N, T, S]\n"
              "  %4 = softmax %3 over N                                 : f32[N, T, S]\n"
              "  %5 = weighted_sum %4, %v over N                        : f32[T, S, D]\n"
              "  %6 = constant {value = 2}                              : f32[]\n"
              "  %7 = mul %6, %5                                        : bf16[T, S, D]\n"
              "  %v.8 = mul %6, %5                                      : bf16[T, S, D]\n"
              "  return %v.8\n"
              "}\n");
  check_round_trip(graph);

  const ir_graph *derived = ir_graph_derive(graph);
  assert_text(derived->name, "built");
  assert_int_equal(derived->axes.count, graph->axes.count);
  assert_int_equal(ir_axis_size(derived, n), 4);
  assert_int_equal(derived->nodes.count, 0);
}

static void test_axis_sets(void **state) {
  (void)state;
  ir_graph *graph = ir_graph_create(&arena, BASE_STR("g"));
  const ir_type type = ir_build_type(graph, IR_F32, 3, (const char *[]){"A", "B", "C"});
  const ir_type tail = ir_build_type(graph, IR_F32, 2, (const char *[]){"C", "D"});
  assert_int_equal(ir_type_axes(&type), 7);
  assert_int_equal(ir_type_axes(&tail), 12);
  assert_int_equal(ir_type_position(&tail, (ir_axis){3}), 1);
  assert_int_equal(ir_type_position(&tail, (ir_axis){0}), -1);
  assert_false(ir_type_has(&type, (ir_axis){3}));
  assert_true(ir_axis_bit((ir_axis){63}) == UINT64_C(1) << 63);
  assert_true(ir_axis_bit((ir_axis){64}) == 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(files_round_trip),
      TEST(k3_site_is_printed_as_written),
      TEST(members),
      TEST(numbers_come_back_to_the_bit),
      TEST(locale_does_not_matter),
      TEST(printed_pieces),
      TEST(long_heads_are_wrapped),
      TEST(hints),
      TEST(errors_are_capped),
      TEST(limits),
      TEST(binary_input),
      TEST(damaged_text),
      TEST(enormous_tokens),
      TEST(each_allocation_may_fail),
      TEST(built_graph),
      TEST(axis_sets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
