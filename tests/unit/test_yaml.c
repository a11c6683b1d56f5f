// YAML: what is written comes back, values have the types they look like, places are those of the
// text, and no text however bad does more than report errors.
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

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

static const base_yaml *read_text(base_str text) {
  base_diag_init(&diag, &arena, BASE_STR("a.yaml"), text);
  return base_yaml_read(&arena, text, 1, &diag);
}

static const base_yaml *read_ok(const char *text) {
  const base_yaml *root = read_text(base_str_from(text));
  if (!root) fail_msg("%s", base_diag_render(&diag).data);
  assert_int_equal(diag.reports.count, 0);
  return root;
}

// Reading fails, and the first message, with its place, begins like this.
static void expect_error(const char *text, const char *message) {
  assert_null(read_text(base_str_from(text)));
  assert_true(diag.error_count > 0);
  const char *rendered = base_diag_render(&diag).data;
  if (strncmp(rendered, message, strlen(message)) != 0)
    fail_msg("expected '%s', found '%s'", message, rendered);
}

// ---- reading ------------------------------------------------------------------------------------

static void test_trees(void **state) {
  (void)state;
  const base_yaml *root =
      read_ok("name: a site\nsizes: [1, 2]\n# comment\nparts:\n- {x: 'y: z'}\n- "
              "\"two\\nlines\"\nlast:\n");
  assert_int_equal(root->kind, BASE_YAML_MAPPING);
  assert_int_equal(root->count, 4);
  assert_string_equal(root->items[0].key.data, "name");
  const base_yaml *name = base_yaml_find(root, "name");
  assert_string_equal(name->text.data, "a site");
  assert_true(name->plain);
  assert_int_equal(name->loc.line, 1);
  assert_int_equal(name->loc.column, 7);
  assert_int_equal(name->loc.length, 6);
  const base_yaml *sizes = base_yaml_find(root, "sizes");
  assert_int_equal(sizes->kind, BASE_YAML_LIST);
  assert_int_equal(sizes->count, 2);
  assert_string_equal(sizes->items[1].value->text.data, "2");
  const base_yaml *parts = base_yaml_find(root, "parts");
  const base_yaml *x = base_yaml_find(parts->items[0].value, "x");
  assert_string_equal(x->text.data, "y: z");
  assert_false(x->plain);
  assert_int_equal(x->loc.line, 5);
  assert_string_equal(parts->items[1].value->text.data, "two\nlines");
  assert_string_equal(base_yaml_find(root, "last")->text.data, "");
  assert_null(base_yaml_find(root, "nothing"));
  assert_null(base_yaml_find(parts, "x")); // a list has no names
  assert_int_equal(read_ok("")->kind, BASE_YAML_SCALAR);
  assert_int_equal(read_ok("# nothing\n")->text.length, 0);
  assert_string_equal(read_ok("\xef\xbb\xbf"
                              "a\n")
                          ->text.data,
                      "a"); // with a byte order mark
}

// libyaml counts characters and takes more for line ends than the excerpts of reports do.
static void test_places_are_in_bytes(void **state) {
  (void)state;
  const base_yaml *root = read_ok(
      "\xc3\xa4\xc3\xb6: \xe2\x82\xac\nb: \"\xc2\x85\xe2\x80\xa8\"\r\nc: {\xf0\x9f\x98\x80: d}\n");
  assert_int_equal(root->items[0].value->loc.column, 7);
  assert_int_equal(root->items[0].value->loc.length, 3);
  assert_int_equal(root->items[1].key_loc.line, 2);
  assert_int_equal(root->items[2].key_loc.line, 3);
  const base_yaml *c = root->items[2].value;
  assert_int_equal(c->items[0].value->loc.line, 3);
  assert_int_equal(c->items[0].value->loc.column, 11);
  base_diag_init(&diag, &arena, BASE_STR("a.yaml"), BASE_STR(""));
  assert_int_equal(
      base_yaml_read(&arena, BASE_STR("a:\n  b\n"), 40, &diag)->items[0].value->loc.line, 41);
}

static void test_what_is_refused(void **state) {
  (void)state;
  expect_error("a: [1, 2\nb: 3\n", "a.yaml:2:2: error: not YAML: did not find expected ',' or ']'");
  expect_error("a: 1\n b: 2\n", "a.yaml:2:3: error: not YAML: mapping values are not allowed");
  expect_error("a: \xff\n", "a.yaml:1:4: error: not YAML: invalid leading UTF-8 octet");
  expect_error("a: 1\nb: \x01\n", "a.yaml:2:4: error: not YAML: control characters");
  expect_error("\tx: 1\n", "a.yaml:1:1: error: not YAML: found character that cannot start");
  expect_error("a: 1\nb: 2\na: 3\n", "a.yaml:3:1: error: 'a' is given twice");
  expect_error("a: &x 1\n", "a.yaml:1:4: error: anchors are not read here");
  expect_error("a: *x\n", "a.yaml:1:4: error: aliases are not read here");
  expect_error("a: !!str 1\n", "a.yaml:1:4: error: tags are not read here");
  expect_error("a: !mine {}\n", "a.yaml:1:4: error: tags are not read here");
  expect_error("? [a]\n: 1\n", "a.yaml:1:3: error: a key must be a string");
  expect_error("a\n---\nb\n", "a.yaml:2:1: error: a second document");
  expect_error("a: \"x\\0y\"\n", "a.yaml:1:4: error: a string cannot hold a zero byte");
  expect_error("%YAML 2.0\n---\na\n", "a.yaml:1:1: error: not YAML: found incompatible YAML");
  assert_null(read_text((base_str){"a: \0b", 5}));
  assert_null(read_text((base_str){"\xff\xfe"
                                   "a\0:\0",
                                   6})); // UTF-16
}

// A kilobyte of aliases may stand for a terabyte of nodes.
static void test_a_bomb_of_aliases_is_small(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  base_text_printf(&text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
  for (int i = 1; i < 100; i++) {
    base_text_printf(&text, "a%d: &a%d [", i, i);
    for (int j = 0; j < 10; j++)
      base_text_printf(&text, "%s*a%d", j ? ", " : "", i - 1);
    base_text_printf(&text, "]\n");
  }
  assert_null(read_text(base_text_str(&text)));
  assert_in_range(diag.error_count, 1, 30);
}

static const char *nested(uint32_t depth, const char *open, const char *close) {
  base_text text = {.arena = &arena};
  for (uint32_t i = 0; i < depth; i++)
    base_text_printf(&text, "%s", open);
  base_text_printf(&text, "x");
  for (uint32_t i = 0; i < depth; i++)
    base_text_printf(&text, "%s", close);
  return text.data;
}

static void test_depth_is_limited(void **state) {
  (void)state;
  read_ok(nested(BASE_YAML_DEPTH, "[", "]"));
  read_ok(nested(BASE_YAML_DEPTH, "- ", ""));
  expect_error(nested(BASE_YAML_DEPTH + 1, "[", "]"), "a.yaml:1:33: error: more than 32");
  expect_error(nested(BASE_YAML_DEPTH + 1, "- ", ""), "a.yaml:1:65: error: more than 32");
  expect_error(nested(100000, "[", "]"), "a.yaml:1:33: error: more than 32");
  expect_error(nested(100000, "{a: ", "}"), "a.yaml:1:129: error: more than 32");
  expect_error(nested(20000, "- ", ""), "a.yaml:1:65: error: more than 32");
  expect_error(nested(20000, "? ", ""), "a.yaml:1:3: error: a key must be a string");
}

// Every byte of a text in turn is cut off or becomes another: reading ends, in a tree or in errors.
static void test_damaged_texts(void **state) {
  (void)state;
  static const char text[] =
      "a: 'it''s'\nb: {c: [1, \"\\u20ac\"], d: e}\n? f\n: |\n  g\n\n  h\ni:\n- j\n"
      "- k: >-\n    l\n...\n";
  static const char others[] = "\n\t '\"{}[],:#&*!|>%@`-?\\\x80\xff";
  uint32_t good = 0;
  char changed[sizeof text];
  read_ok(text);
  for (size_t at = 0; at < sizeof text - 1; at++) {
    good += read_text((base_str){text, at}) != NULL;
    for (size_t other = 0; other < sizeof others; other++) {
      memcpy(changed, text, sizeof text);
      changed[at] = others[other];
      const base_yaml *root = read_text((base_str){changed, sizeof text - 1});
      assert_true((root != NULL) == (diag.error_count == 0));
      if (!root) assert_true(base_diag_render(&diag).length > 0);
      good += root != NULL;
    }
    base_arena_reset(&arena);
  }
  assert_true(good > 100);
}

// ---- values -------------------------------------------------------------------------------------

static void expect_value_error(bool ok, const char *message) {
  assert_false(ok);
  assert_int_equal(diag.error_count, 1);
  const char *rendered = base_diag_render(&diag).data;
  if (!strstr(rendered, message)) fail_msg("expected '%s', found '%s'", message, rendered);
}

static void test_values(void **state) {
  (void)state;
  int64_t integer;
  uint64_t natural;
  double number;
  bool truth;
  const char *string;
  assert_true(base_yaml_integer(read_ok("-9223372036854775808"), INT64_MIN, 0, &integer, &diag));
  assert_true(integer == INT64_MIN);
  assert_true(base_yaml_natural(read_ok("18446744073709551615"), &natural, &diag));
  assert_true(natural == UINT64_MAX);
  assert_true(base_yaml_number(read_ok("-1.5e-3"), &number, &diag) && number == -1.5e-3);
  assert_true(base_yaml_bool(read_ok("true"), &truth, &diag) && truth);
  assert_true(base_yaml_bool(read_ok("false"), &truth, &diag) && !truth);
  assert_true(base_yaml_string(read_ok("1.10"), &string, &diag));
  assert_string_equal(string, "1.10");
  assert_true(base_yaml_string(read_ok("''"), &string, &diag));
  assert_string_equal(string, "");

  expect_value_error(base_yaml_integer(read_ok("5"), 6, 8, &integer, &diag),
                     "5 is not from 6 to 8");
  static const char *const no_integers[] = {
      "9223372036854775808", "1.0", "'1'", "0x10", "--1", "-", "1-2", "", "[1]"};
  for (size_t i = 0; i < COUNT(no_integers); i++)
    expect_value_error(
        base_yaml_integer(read_ok(no_integers[i]), INT64_MIN, INT64_MAX, &integer, &diag),
        "expected an integer, found ");
  static const char *const no_naturals[] = {"18446744073709551616", "-1", "+1", "''"};
  for (size_t i = 0; i < COUNT(no_naturals); i++)
    expect_value_error(base_yaml_natural(read_ok(no_naturals[i]), &natural, &diag),
                       "expected an integer from 0");
  static const char *const no_numbers[] = {"nan", "inf", ".inf", "0x1p3", "1e999",
                                           "'1'", "1,5", "{}",   "1e",    ""};
  for (size_t i = 0; i < COUNT(no_numbers); i++)
    expect_value_error(base_yaml_number(read_ok(no_numbers[i]), &number, &diag),
                       "expected a number, found ");
  static const char *const no_truths[] = {"yes", "'true'", "True", "1", "rue"};
  for (size_t i = 0; i < COUNT(no_truths); i++)
    expect_value_error(base_yaml_bool(read_ok(no_truths[i]), &truth, &diag),
                       "expected true or false, found ");
  expect_value_error(base_yaml_string(read_ok(""), &string, &diag), "found nothing");
  expect_value_error(base_yaml_string(read_ok("[]"), &string, &diag), "found a list");
  expect_value_error(base_yaml_is_list(read_ok("a: 1"), &diag), "expected a list, found a mapping");
  static const char *const names[] = {"sites", "rows"};
  assert_true(base_yaml_is_mapping(read_ok("rows: 1"), names, 2, &diag));
  expect_value_error(base_yaml_is_mapping(read_ok("- 1"), names, 2, &diag), "expected a mapping");
  expect_value_error(base_yaml_is_mapping(read_ok("rows: 1\nsite: 2"), names, 2, &diag),
                     "a.yaml:2:1: error: unknown name 'site'\n");
  assert_non_null(strstr(base_diag_render(&diag).data, "did you mean 'sites'?"));
}

// ---- writing ------------------------------------------------------------------------------------

static const char *write_string(const char *string, base_yaml_style style) {
  base_text out = {.arena = &arena};
  base_yaml_writer *writer = base_yaml_begin(&arena, &out);
  base_yaml_put_mapping(writer, style);
  base_yaml_put_string(writer, "key");
  base_yaml_put_string(writer, string);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, false);
  return out.data;
}

static void expect_round_trip(const char *string, const char *expected) {
  for (int style = BASE_YAML_BLOCK; style <= BASE_YAML_FLOW; style++) {
    const char *text = write_string(string, style);
    const char *newline = strchr(text, '\n');
    assert_true(newline && newline[1] == '\0'); // it is one line
    const base_yaml *value = base_yaml_find(read_ok(text), "key");
    if (strcmp(value->text.data, expected) != 0)
      fail_msg("'%s' became '%s' by way of %s", string, value->text.data, text);
  }
}

static void test_strings_come_back(void **state) {
  (void)state;
  static const char *const strings[] = {"",
                                        " ",
                                        "a",
                                        "a b ",
                                        " a",
                                        "a: b",
                                        "a #b",
                                        "- a",
                                        "? a",
                                        "1",
                                        "1.10",
                                        "0x10",
                                        "1e3",
                                        "true",
                                        "No",
                                        "null",
                                        "~",
                                        ".nan",
                                        "{a}",
                                        "[a",
                                        "it's",
                                        "\"",
                                        "\\",
                                        "\\n",
                                        "a\nb",
                                        "\n",
                                        "a\r\nb",
                                        "\t",
                                        "\x01",
                                        "\x7f",
                                        "&a",
                                        "*a",
                                        "!a",
                                        "|",
                                        ">",
                                        "%a",
                                        "@a",
                                        "`a",
                                        "a=1,b=2",
                                        "---",
                                        "...",
                                        "# a",
                                        "a:",
                                        ":a",
                                        "\xc3\xa4",
                                        "\xc2\x85",
                                        "\xe2\x80\xa8",
                                        "\xef\xbb\xbf",
                                        "\xf0\x9f\x98\x80",
                                        "y",
                                        "12:30:45",
                                        "2026-11-30",
                                        "LLVM 19.1.7",
                                        "cuda:sm_90a",
                                        "Intel(R) Xeon(R) Platinum 8481C",
                                        "=",
                                        "<<",
                                        "\x1b[2J"};
  for (size_t i = 0; i < COUNT(strings); i++)
    expect_round_trip(strings[i], strings[i]);
  char longer[5000];
  memset(longer, 'x', sizeof longer);
  for (size_t i = 7; i < sizeof longer; i += 11)
    longer[i] = ' ';
  longer[sizeof longer - 1] = '\0';
  expect_round_trip(longer, longer);
  expect_round_trip("a\xff"
                    "b",
                    "a\xef\xbf\xbd"
                    "b");
  expect_round_trip("\xc3", "\xef\xbf\xbd");
  expect_round_trip("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // a surrogate
  expect_round_trip("\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd");                 // too long a form
  expect_round_trip("\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

static uint64_t next_random(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  return *seed ^= *seed << 17;
}

static void test_random_bytes_come_back(void **state) {
  (void)state;
  uint64_t seed = 88172645463325252u;
  for (int i = 0; i < 3000; i++) {
    char string[24] = {0};
    const size_t length = next_random(&seed) % sizeof string;
    const bool ascii = i % 2;
    for (size_t j = 0; j + 1 < length; j++)
      string[j] = (char)(ascii ? 1 + next_random(&seed) % 127 : 1 + next_random(&seed) % 255);
    const char *mended = base_str_copy(&arena, base_yaml_mend(&arena, base_str_from(string))).data;
    if (ascii) assert_string_equal(mended, string);
    expect_round_trip(string, mended);
    base_arena_reset(&arena);
  }
}

// Of a string that looks like something else every reader must see that it is one.
static void test_strings_are_quoted_where_need_be(void **state) {
  (void)state;
  static const char *const quoted[] = {"12",   "1e5", "true",       "Off", "n",
                                       "null", "",    "2026-11-30", "0123"};
  for (size_t i = 0; i < COUNT(quoted); i++)
    assert_non_null(strchr(write_string(quoted[i], BASE_YAML_BLOCK), '\''));
  assert_string_equal(write_string("source_tile=4", BASE_YAML_BLOCK), "key: source_tile=4\n");
  assert_string_equal(write_string("a,b", BASE_YAML_FLOW), "{key: 'a,b'}\n");
}

static double number_back(double value) {
  base_text out = {.arena = &arena};
  base_yaml_writer *writer = base_yaml_begin(&arena, &out);
  base_yaml_put_number(writer, value);
  base_yaml_finish(writer, false);
  double back = 0;
  assert_true(base_yaml_number(read_ok(out.data), &back, &diag));
  return back;
}

static void expect_numbers_back(void) {
  static const double numbers[] = {0,      1,       -1,      0.1,    12.5, 1.0 / 3,
                                   1e-300, DBL_MAX, DBL_MIN, 5e-324, 1e22, 123456789.125};
  for (size_t i = 0; i < COUNT(numbers); i++)
    assert_true(number_back(numbers[i]) == numbers[i]);
  uint64_t seed = 1234567;
  for (int i = 0; i < 300; i++) {
    const double number =
        ldexp((double)(int64_t)next_random(&seed), (int)(next_random(&seed) % 200) - 100);
    assert_true(number_back(number) == number);
  }
}

static void test_numbers_come_back(void **state) {
  (void)state;
  expect_numbers_back();
  static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE"}; // with a comma
  for (size_t i = 0; i < COUNT(locales); i++)
    if (setlocale(LC_ALL, locales[i])) expect_numbers_back();
  setlocale(LC_ALL, "C");
}

static void test_documents(void **state) {
  (void)state;
  base_text out = {.arena = &arena};
  base_yaml_writer *writer = base_yaml_begin(&arena, &out);
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  base_yaml_put_string(writer, "list");
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  base_yaml_put_mapping(writer, BASE_YAML_FLOW);
  base_yaml_put_string(writer, "a");
  base_yaml_put_integer(writer, INT64_MIN);
  base_yaml_put_string(writer, "b");
  base_yaml_put_list(writer, BASE_YAML_BLOCK); // in a flow: on its line
  base_yaml_put_natural(writer, UINT64_MAX);
  base_yaml_put_bool(writer, true);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_put_string(writer, "none");
  base_yaml_put_list(writer, BASE_YAML_BLOCK);
  base_yaml_put_end(writer);
  base_yaml_put_end(writer);
  base_yaml_finish(writer, true);
  assert_string_equal(out.data,
                      "list:\n- {a: -9223372036854775808, b: [18446744073709551615, true]}\n"
                      "none: []\n...\n");
}

// ---- out of memory ------------------------------------------------------------------------------

static long allowed, live;

static void *allocate(void *user, size_t size) {
  (void)user;
  if (allowed-- <= 0) return NULL;
  live++;
  return malloc(size);
}

static void release(void *user, void *pointer) {
  (void)user;
  live--;
  free(pointer);
}

// libyaml's own memory must go too: the leak sanitizer looks for it.
static void test_every_allocation_may_fail(void **state) {
  (void)state;
  const base_allocator allocator = {NULL, allocate, release};
  base_text text = {.arena = &arena}; // more than a block of the arena
  for (int i = 0; i < 100; i++)
    base_text_printf(&text, "a%d: [1, {b: c}]\n", i);
  const base_str source = base_text_str(&text);
  volatile bool done = false;
  volatile long failures = 0;
  for (volatile long limit = 0; !done; limit++) {
    base_arena own;
    base_diag errors;
    base_arena_init(&own, &allocator);
    allowed = limit;
    jmp_buf escape;
    if (BASE_TRY(&own, escape)) {
      base_diag_init(&errors, &own, BASE_STR(""), BASE_STR(""));
      const base_yaml *root = base_yaml_read(&own, source, 1, &errors);
      base_text out = {.arena = &own};
      base_yaml_writer *writer = base_yaml_begin(&own, &out);
      base_yaml_put_string(writer, root->items[0].value->items[0].value->text.data);
      base_yaml_finish(writer, true);
      done = true;
    } else {
      failures++;
    }
    base_arena_reset(&own);
    assert_int_equal(live, 0);
  }
  assert_true(failures > 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(trees),
      TEST(places_are_in_bytes),
      TEST(what_is_refused),
      TEST(a_bomb_of_aliases_is_small),
      TEST(depth_is_limited),
      TEST(damaged_texts),
      TEST(values),
      TEST(strings_come_back),
      TEST(random_bytes_come_back),
      TEST(strings_are_quoted_where_need_be),
      TEST(numbers_come_back),
      TEST(documents),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
