// The page about a tuning run: well-formed, escaped, inside its plots and below its size whatever the
// history; and right about numbers, axes and knobs.
//
// With FATHOM_TEST_REPORT set to a folder, pages to look at are written there.
#include "autotune/report_parts.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- a checker of pages -------------------------------------------------------------------------

enum { MAX_DEPTH = 32, MAX_IDS = 4096, MAX_ATTRIBUTES = 16 };

typedef struct attribute {
  base_str name, value;
} attribute;

typedef struct checker {
  const char *at;
  base_str stack[MAX_DEPTH];
  uint32_t depth, id_count, link_count, svgs, dots, points;
  base_str ids[MAX_IDS], links[MAX_IDS];
  double width, height; // of the <svg> around; 0: none
  bool moved;           // within a <g> with a transform
} checker;

static base_str word_at(const char *at) {
  size_t length = 0;
  while (isalnum((unsigned char)at[length]) || (at[length] && strchr("-_:", at[length])))
    length++;
  return (base_str){at, length};
}

static bool is_word(base_str word, const char *text) {
  return base_str_equal(word, base_str_from(text));
}

// Text and values have no bare < or &, and no entity but these.
static void check_entity(const char *at) {
  static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
  for (size_t i = 0; i < COUNT(known); i++) {
    if (strncmp(at, known[i], strlen(known[i])) == 0) return;
  }
  fail_msg("not escaped: %.40s", at);
}

static const base_str *find_attribute(const attribute *attributes, uint32_t count,
                                      const char *name) {
  for (uint32_t i = 0; i < count; i++) {
    if (is_word(attributes[i].name, name)) return &attributes[i].value;
  }
  return NULL;
}

static void check_inside(const checker *check, double x, double y) {
  if (!(x >= 0 && x <= check->width && y >= 0 && y <= check->height))
    fail_msg("%g %g is outside %g x %g: %.60s", x, y, check->width, check->height, check->at);
}

// The commands that the page uses: M, L, H, V and Z; h0 makes a dot.
static void check_path(const checker *check, base_str path) {
  const char *at = path.data, *end = path.data + path.length;
  double x = 0, y = 0;
  assert_true(at < end && *at == 'M');
  while (at < end) {
    const char command = *at++;
    char *after = (char *)at;
    if (command == 'M' || command == 'L') {
      x = strtod(at, &after);
      y = strtod(after, &after);
    } else if (command == 'H') {
      x = strtod(at, &after);
    } else if (command == 'V') {
      y = strtod(at, &after);
    } else if (command == 'h') {
      assert_true(strtod(at, &after) == 0);
    } else {
      assert_int_equal(command, 'Z');
    }
    check_inside(check, x, y);
    at = after;
    while (at < end && *at == ' ')
      at++;
  }
}

static double number_of(const base_str *value) {
  char *end;
  const double number = strtod(value->data, &end);
  assert_true(end == value->data + value->length);
  return number;
}

static void check_places(checker *check, base_str tag, const attribute *attributes,
                         uint32_t count) {
  static const char *const pairs[][2] = {{"x1", "y1"}, {"x2", "y2"}, {"cx", "cy"}, {"x", "y"}};
  for (size_t i = 0; i < COUNT(pairs); i++) {
    const base_str *x = find_attribute(attributes, count, pairs[i][0]);
    const base_str *y = find_attribute(attributes, count, pairs[i][1]);
    if (!x || check->moved) continue;
    assert_non_null(y);
    const base_str *radius = find_attribute(attributes, count, "r");
    const double r = radius ? number_of(radius) : 0;
    check_inside(check, number_of(x) - r, number_of(y) - r);
    check_inside(check, number_of(x) + r, number_of(y) + r);
  }
  const base_str *path = find_attribute(attributes, count, "d");
  if (path) check_path(check, *path);
  check->dots += is_word(tag, "circle");
  const base_str *class = find_attribute(attributes, count, "class");
  if (class && is_word(*class, "points"))
    for (size_t i = 0; i < path->length; i++)
      check->points += path->data[i] == 'M';
  const base_str *transform = find_attribute(attributes, count, "transform");
  if (!transform) return;
  double x, y;
  assert_int_equal(sscanf(transform->data, "translate(%lf %lf)", &x, &y), 2);
  check_inside(check, x, y);
  check->moved = true;
}

// How wide a text is, roughly; the page's fonts are not known here. It must lie inside as well.
static void check_text_extent(const checker *check, const attribute *attributes, uint32_t count,
                              const char *text) {
  size_t length = 0;
  for (const char *at = text; *at != '<';
       at++) { // an entity, or the bytes of one character, is one
    if (*at == '&') at += strcspn(at, ";");
    length += ((unsigned char)*at & 0xc0) != 0x80;
  }
  const base_str *x = find_attribute(attributes, count, "x");
  const base_str *anchor = find_attribute(attributes, count, "text-anchor");
  if (!x || check->moved) return;
  const double width = 6.3 * (double)length, place = number_of(x);
  const double share = is_word(*anchor, "end") ? 1 : is_word(*anchor, "middle") ? 0.5 : 0;
  const double left = place - width * share;
  if (left < 0 || left + width > check->width) fail_msg("text leaves its plot: %.60s", text);
}

static void check_start(checker *check, base_str tag, const attribute *attributes, uint32_t count) {
  const base_str *id = find_attribute(attributes, count, "id");
  if (id) {
    for (uint32_t i = 0; i < check->id_count; i++)
      assert_false(base_str_equal(check->ids[i], *id));
    assert_true(check->id_count < MAX_IDS);
    check->ids[check->id_count++] = *id;
  }
  const base_str *link = find_attribute(attributes, count, "href");
  if (link) {
    assert_true(link->data[0] == '#' && check->link_count < MAX_IDS);
    check->links[check->link_count++] = (base_str){link->data + 1, link->length - 1};
  }
  assert_false(is_word(tag, "script"));
  assert_null(find_attribute(attributes, count, "src"));
  for (uint32_t i = 0; i < count; i++)
    assert_false(strncmp(attributes[i].name.data, "on", 2) == 0);
  if (is_word(tag, "svg")) {
    const base_str *box = find_attribute(attributes, count, "viewBox");
    assert_non_null(box);
    assert_int_equal(sscanf(box->data, "0 0 %lf %lf", &check->width, &check->height), 2);
    check->svgs++;
  }
  if (check->width > 0) check_places(check, tag, attributes, count);
  if (check->width > 0 && is_word(tag, "text"))
    check_text_extent(check, attributes, count, check->at + 1);
}

// At a '<' that starts an element.
static void check_element(checker *check) {
  attribute attributes[MAX_ATTRIBUTES];
  uint32_t count = 0;
  const base_str tag = word_at(check->at + 1);
  assert_true(tag.length > 0);
  check->at += 1 + tag.length;
  while (*check->at == ' ') {
    const base_str name = word_at(++check->at);
    assert_true(name.length > 0 && count < MAX_ATTRIBUTES);
    for (uint32_t i = 0; i < count; i++)
      assert_false(base_str_equal(attributes[i].name, name));
    check->at += name.length;
    assert_memory_equal(check->at, "=\"", 2);
    const char *value = check->at += 2;
    for (; *check->at != '"'; check->at++) {
      assert_true(*check->at != '\0' && *check->at != '<');
      if (*check->at == '&') check_entity(check->at);
    }
    attributes[count++] = (attribute){name, {value, (size_t)(check->at - value)}};
    check->at++;
  }
  const bool closed = *check->at == '/';
  check->at += closed;
  assert_int_equal(*check->at, '>');
  check_start(check, tag, attributes, count);
  check->at++;
  if (closed) return;
  assert_true(check->depth < MAX_DEPTH);
  check->stack[check->depth++] = tag;
}

static void check_end(checker *check) {
  const base_str tag = word_at(check->at + 2);
  assert_true(check->depth > 0);
  if (!base_str_equal(check->stack[--check->depth], tag))
    fail_msg("closes another element: %.40s", check->at);
  check->at += 2 + tag.length;
  assert_int_equal(*check->at++, '>');
  if (is_word(tag, "svg")) check->width = check->height = 0;
  if (is_word(tag, "g")) check->moved = false;
}

// Everything that holds for every page.
static checker *check_page(base_arena *arena, base_str page) {
  static const char doctype[] = "<!DOCTYPE html>\n<html ";
  assert_int_equal(strlen(page.data), page.length); // no 0 byte within
  assert_memory_equal(page.data, doctype, sizeof doctype - 1);
  checker *check = base_new(arena, checker);
  check->at = page.data + strlen("<!DOCTYPE html>\n");
  while (*check->at) {
    if (check->at[0] == '<' && check->at[1] == '/')
      check_end(check);
    else if (*check->at == '<')
      check_element(check);
    else if (*check->at == '&')
      check_entity(check->at++);
    else
      assert_true((unsigned char)*check->at++ >= 0x20 || check->at[-1] == '\n');
  }
  assert_int_equal(check->depth, 0);
  for (uint32_t i = 0; i < check->link_count; i++) {
    uint32_t found = 0;
    for (uint32_t j = 0; j < check->id_count; j++)
      found += base_str_equal(check->links[i], check->ids[j]);
    assert_int_equal(found, 1);
  }
  for (const char *at = page.data; (at = strstr(at, "://")) != NULL; at++)
    assert_true(strncmp(at, "://www.w3.org/1999/xhtml\"", 25) == 0 ||
                strncmp(at, "://www.w3.org/2000/svg\"", 23) == 0);
  assert_null(strstr(page.data, "url("));
  assert_null(strstr(page.data, "@import"));
  static const char *const nonsense[] = {">nan", ">inf", " nan", " inf ", "\"nan", "\"inf", "-nan"};
  for (size_t i = 0; i < COUNT(nonsense); i++)
    assert_null(strstr(page.data, nonsense[i]));
  return check;
}

// ---- made-up histories --------------------------------------------------------------------------

static const tune_knob cpu_knobs[] = {
    {"unroll", "vectors of the lane axis handled by one loop step"},
    {"source_tile", "sources handled together by a sweep that reduces over the hidden axis"},
    {"query_tile", "queries (and other outer indices) handled together"},
    {"prefetch", "rows ahead whose inputs are prefetched while a row is mixed; 0 for none"},
    {"overlap", "1: the next row's first sweep shares a loop with this row's mix, where it can"},
    {"stream", "1: results go to memory past the cache (non-temporal stores)"},
    {"rows", "rows of one task"},
};

static uint32_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

static const char *schedule_of(base_arena *arena, uint32_t unroll, uint32_t tile, uint32_t prefetch,
                               uint32_t stream, uint32_t rows) {
  return base_str_format(arena,
                         "unroll=%u,source_tile=%u,query_tile=8,prefetch=%u,overlap=1,stream=%u,"
                         "rows=%u",
                         unroll, tile, prefetch, stream, rows)
      .data;
}

// Somewhat like a search: random schedules, each third of them timed longer than the one before. `unroll` and `stream` matter most.
static tune_history make_history(base_arena *arena, uint32_t count, uint64_t seed) {
  static const uint32_t unrolls[] = {1, 2, 4, 8, 16}, rows[] = {8, 16, 32, 64, 128, 256};
  static const double unroll_cost[] = {1.5, 1.2, 1.05, 1, 1.15};
  static const char *const whys[] = {
      [TUNE_REFUSED] = "source_tile=16 needs 40 vectors, the CPU has 32",
      [TUNE_WRONG] = "%h: error 0.12, bound 0.004 <at row 17>",
      [TUNE_CRASHED] = "worker died by signal 11 (segmentation fault)",
      [TUNE_TIMEOUT] = "no result after 10 s",
      [TUNE_MEMORY] = "more than 4,096 MB",
  };
  tune_history_entry *entries = base_new_array(arena, tune_history_entry, count);
  uint64_t state = seed;
  const double base_us = 780;
  tune_history history = {
      .device = {"cpu", "Example CPU @ 2.70GHz", "avx2 fma avx512f avx512bf16", 8},
      .graph_name = "k3_site",
      .axes = "B=8 D=7168 N=9",
      .target = "cpu",
      .rows = 512,
      .threads = 8,
      .cache = "cold",
      .date = "2026-11-30T20:00:00Z",
      .bytes = 88080384,
      .flops = 1.76e8,
      .ceiling_gb_s = 124,
      .peak_gflop_s = 410,
      .raw_space = 8294400,
      .legal_space = 214032,
      .strategy = "successive halving with local search",
      .seed = seed,
      .budget_seconds = 60,
      .knob_count = COUNT(cpu_knobs),
      .knobs = cpu_knobs,
      .count = count,
      .entries = entries,
  };
  tune_trial best = {0};
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t u = i == 0 ? 2 : next_random(&state) % 5, tile = 1u << next_random(&state) % 4;
    const uint32_t prefetch = i == 0 ? 1 : next_random(&state) % 4;
    const uint32_t stream = i == 0 ? 1 : next_random(&state) % 8 != 0;
    const uint32_t r = i == 0 ? 2 : next_random(&state) % 6, dice = next_random(&state) % 100;
    const double noise = 1 + (next_random(&state) % 1000) * 8e-5;
    tune_trial trial = {
        .schedule = schedule_of(arena, unrolls[u], i == 0 ? 1 : tile, prefetch, stream, rows[r]),
        .level = i * 3 / (count ? count : 1),
        .spread = 0.004 + (next_random(&state) % 100) * 2e-4,
        .why = ""};
    trial.outcome = i == 0 || dice >= 12 ? TUNE_TIMED
                    : dice < 6           ? TUNE_REFUSED
                    : dice < 8           ? TUNE_WRONG
                    : dice < 9           ? TUNE_CRASHED
                    : dice < 11          ? TUNE_TIMEOUT
                                         : TUNE_MEMORY;
    const double us = base_us * unroll_cost[u] * (stream ? 1 : 1.45) * (1 + 0.02 * (r > 3)) *
                      (prefetch == 1 ? 1 : 1.06) * (1 + 0.015 * tile) * noise;
    if (trial.outcome == TUNE_TIMED)
      trial.median_us = us;
    else
      trial.why = whys[trial.outcome];
    const double predicted = us * (0.9 + (next_random(&state) % 100) * 3e-3);
    entries[i] = (tune_history_entry){trial, 0.4 + 58.0 * i / count, predicted};
    if (i == 0) history.initial = trial;
    if (trial.outcome == TUNE_TIMED && (best.median_us == 0 || us < best.median_us)) best = trial;
  }
  history.best = best;
  if (best.median_us > 0) {
    history.best_of_ceiling = 88080384 / best.median_us / 1e3 / 124;
    history.initial_of_ceiling = 88080384 / history.initial.median_us / 1e3 / 124;
  }
  return history;
}

static base_str page_of(base_arena *arena, const tune_history *histories, uint32_t count) {
  base_text text = {.arena = arena};
  tune_report_page(histories, count, &text);
  return base_text_str(&text);
}

static void write_example(base_arena *arena, const char *name, base_str page) {
  const char *folder = getenv("FATHOM_TEST_REPORT");
  if (!folder) return;
  base_str why;
  assert_int_equal(base_directory_create(arena, folder, &why), BASE_OK);
  const char *path = base_str_format(arena, "%s/%s.html", folder, name).data;
  assert_int_equal(base_file_write(arena, path, page.data, page.length, &why), BASE_OK);
}

static uint32_t count_of(base_str page, const char *text) {
  uint32_t count = 0;
  for (const char *at = page.data; (at = strstr(at, text)) != NULL; at += strlen(text))
    count++;
  return count;
}

#define assert_has(page, text)                                                                     \
  do {                                                                                             \
    if (!strstr((page).data, (text))) fail_msg("the page lacks: %s", (text));                      \
  } while (0)

static int open_arena(void **state) {
  base_arena *arena = malloc(sizeof *arena);
  base_arena_init(arena, NULL);
  *state = arena;
  return 0;
}

static int close_arena(void **state) {
  base_arena_reset(*state);
  free(*state);
  return 0;
}

// ---- text and numbers ---------------------------------------------------------------------------

static base_str escaped(base_arena *arena, const char *text, uint32_t most) {
  base_text out = {.arena = arena};
  report_escape_some(&out, base_str_from(text), most);
  return base_text_str(&out); // "" when nothing was written
}

#define BAD "\xef\xbf\xbd"

static void text_of_others_is_escaped(void **state) {
  static const char *const cases[][2] = {
      {"<script>alert('x')&\"</script>",
       "&lt;script&gt;alert(&#39;x&#39;)&amp;&quot;&lt;/script&gt;"},
      {"a\tb\nc\rd", "a b c d"},
      {"a\x01\x1b[31m\x7f", "a" BAD BAD "[31m" BAD},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
      {"\xc3", BAD},                         // cut off
      {"\x80\xff", BAD BAD},                 // no first byte
      {"\xc0\xbc", BAD BAD},                 // an overlong <
      {"\xed\xa0\x80", BAD BAD BAD},         // a surrogate
      {"\xf4\x90\x80\x80", BAD BAD BAD BAD}, // beyond the last
      {"\xef\xbf\xbe", BAD BAD BAD},         // not allowed in XML
      {"\xe2\x82<", BAD BAD "&lt;"},         // a < ends what came before
      {"", ""},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_string_equal(escaped(*state, cases[i][0], UINT32_MAX).data, cases[i][1]);
  assert_string_equal(escaped(*state, "\xc3\xa9<<<", 2).data, "\xc3\xa9&lt;...");
  assert_string_equal(escaped(*state, "abc", 3).data, "abc");
}

typedef void (*put_number)(base_text *out, double value);

static void check_number(base_arena *arena, put_number put, double value, const char *expected) {
  base_text out = {.arena = arena};
  put(&out, value);
  assert_string_equal(out.data, expected);
}

static void put_two(base_text *out, double value) {
  report_fixed(out, value, 2);
}

static void put_bytes(base_text *out, double value) {
  report_amount(out, value, "B");
}

#define DASH "\xe2\x80\x93"

static void numbers_are_written_by_their_size(void **state) {
  static const struct {
    put_number put;
    double value;
    const char *expected;
  } cases[] = {
      {report_number, 0, "0"},
      {report_number, 812.4, "812"},
      {report_number, 1088, "1,088"},
      {report_number, 1234567, "1,234,567"},
      {report_number, 81.25, "81.3"},
      {report_number, 9.999, "10.0"},
      {report_number, 99.96, "100"},
      {report_number, 0.86, "0.860"},
      {report_number, 0.00123, "0.00123"},
      {report_number, -2.5, "-2.50"},
      {report_number, 1.234e20, "1.23e20"},
      {report_number, 9.999e20, "1.00e21"},
      {report_number, 1e-9, "1.00e-9"},
      {report_number, (double)NAN, DASH},
      {report_number, (double)INFINITY, DASH},
      {put_two, 1.346, "1.35"},
      {put_two, -0.001, "0.00"},
      {put_two, 1e13, "1.00e13"},
      {put_two, (double)NAN, DASH},
      {report_time, 812, "812 us"},
      {report_time, 1088.4, "1,088 us"},
      {report_time, 0.25, "250 ns"},
      {report_time, 12345, "12.3 ms"},
      {report_time, 9999.6, "10.0 ms"},
      {report_time, 2.5e6, "2.50 s"},
      {report_duration, 0, "0 s"},
      {report_duration, 1.5, "1.50 s"},
      {report_duration, 59.7, "60 s"},
      {report_duration, 200, "3 min 20 s"},
      {report_duration, 180, "3 min"},
      {report_duration, 7199.9, "2 h"},
      {report_duration, 9000, "2 h 30 min"},
      {report_duration, -1, DASH},
      {put_bytes, 512, "512 B"},
      {put_bytes, 88080384, "88.1 MB"},
      {put_bytes, 999600, "1.00 MB"},
  };
  for (size_t i = 0; i < COUNT(cases); i++)
    check_number(*state, cases[i].put, cases[i].value, cases[i].expected);
  base_text out = {.arena = *state};
  report_count(&out, UINT64_MAX);
  assert_string_equal(out.data, "18,446,744,073,709,551,615");
}

static void only_real_times_count(void **state) {
  (void)state;
  static const double nonsense[] = {0,     -1,    (double)NAN, (double)INFINITY, -(double)INFINITY,
                                    1e300, 1e-300};
  for (size_t i = 0; i < COUNT(nonsense); i++) {
    const tune_trial trial = {.outcome = TUNE_TIMED, .median_us = nonsense[i]};
    assert_true(report_us_of(&trial) == 0);
    assert_int_equal(report_outcome_of(&trial), REPORT_NO_TIME);
  }
  assert_true(report_us_of(&(tune_trial){.outcome = TUNE_TIMED, .median_us = 2}) == 2);
  assert_true(report_us_of(&(tune_trial){.outcome = TUNE_CRASHED, .median_us = 2}) == 0);
}

// ---- axes ---------------------------------------------------------------------------------------

static const char *ticks_of(base_arena *arena, const report_axis *axis) {
  base_text out = {.arena = arena};
  for (uint32_t i = 0; i < axis->tick_count; i++) {
    if (i) report_put(&out, " ");
    report_tick(&out, axis, i);
  }
  return out.data;
}

static void ticks_are_round(void **state) {
  static const struct {
    double low, high;
    bool log;
    const char *expected;
  } cases[] = {
      {0, 60, false, "0 10 20 30 40 50 60"},
      {0, 1.03, false, "0.0 0.2 0.4 0.6 0.8 1.0"},
      {780, 1290, false, "800 900 1,000 1,100 1,200"},
      {0.0012, 0.0019, false, "0.0012 0.0013 0.0014 0.0015 0.0016 0.0017 0.0018 0.0019"},
      {0, 3e-9, false, "0 5e-10 10e-10 15e-10 20e-10 25e-10 30e-10"},
      {700, 9000, true, "1,000 2,000 5,000"},
      {0.04, 3, true, "0.05 0.1 0.2 0.5 1 2"},
      {0.5, 2e7, true, "1 10 100 1,000 10,000 100,000 1e6 1e7"},
      {1e-6, 1e12, true, "1e-6 0.001 1 1,000 1e6 1e9 1e12"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    const report_axis axis = report_axis_exact(cases[i].low, cases[i].high, 0, 600, cases[i].log);
    assert_string_equal(ticks_of(*state, &axis), cases[i].expected);
  }
}

static void axes_map_and_clamp(void **state) {
  (void)state;
  report_axis axis = report_axis_exact(0, 10, 100, 200, false);
  assert_true(report_place(&axis, 5) == 150 && report_place(&axis, -1) == 100);
  assert_true(report_place(&axis, 1e300) == 200 && report_place(&axis, (double)NAN) == 100);
  axis = report_axis_exact(1, 100, 200, 100, true); // upwards
  assert_true(fabs(report_place(&axis, 10) - 150) < 1e-9 && report_place(&axis, 0) == 200);
  assert_false(report_axis_of(10, 79, 0, 1, true).log);
  assert_true(report_axis_of(10, 80, 0, 1, true).log);
  axis = report_axis_of(42, 42, 0, 100, true); // one value
  assert_true(axis.low < 42 && axis.high > 42 && fabs(report_place(&axis, 42) - 50) < 1);
}

// ---- knobs --------------------------------------------------------------------------------------

static void schedules_are_read_generically(void **state) {
  base_str rest = BASE_STR("a=1,,flag,b=x=y,c="), value;
  static const char *const expected[][2] = {{"a", "1"}, {"flag", ""}, {"b", "x=y"}, {"c", ""}};
  report_setting setting;
  for (size_t i = 0; i < COUNT(expected); i++) {
    assert_true(report_next_setting(&rest, &setting));
    assert_true(is_word(setting.name, expected[i][0]) && is_word(setting.value, expected[i][1]));
  }
  assert_false(report_next_setting(&rest, &setting));
  assert_true(report_setting_of("ab=1,b=2", BASE_STR("b"), &value) && is_word(value, "2"));
  assert_false(report_setting_of("ab=1", BASE_STR("a"), &value));
  assert_string_equal(report_difference(*state, "a=1,b=2,c=3", "a=1,b=4,d=5").data, "b=4, d=5");
  assert_string_equal(report_difference(*state, "a=1", "a=1").data, "as the default");
}

// `unroll` decides all, `rows` nothing, `tile` never varies.
static void the_knob_that_decides_comes_first(void **state) {
  static const char *const rows[] = {"8", "16", "128"}, *const unrolls[] = {"1", "2", "10"};
  static const double times[] = {300, 200, 100};
  tune_history_entry entries[10] = {{{0}, 0, 0}};
  for (uint32_t i = 0; i < 9; i++) {
    entries[i].trial = (tune_trial){
        .schedule =
            base_str_format(*state, "rows=%s,tile=4,unroll=%s", rows[i % 3], unrolls[i / 3]).data,
        .median_us = times[i / 3] + (i % 3 == 2)};
    entries[i].seconds = i;
  }
  // A failure of a value that nothing else has does not make it one.
  entries[9].trial = (tune_trial){.schedule = "rows=8,tile=9,unroll=1", .outcome = TUNE_CRASHED};
  tune_history history = {
      .count = 10, .entries = entries, .initial = entries[0].trial, .best = entries[6].trial};
  const report_digest digest = report_digest_of(*state, &history);
  const report_knobs knobs = report_knobs_of(*state, &digest);
  assert_int_equal(knobs.count, 3);
  const report_knob *unroll = &knobs.knobs[0], *row = &knobs.knobs[1], *tile = &knobs.knobs[2];
  assert_true(is_word(unroll->name, "unroll") && unroll->effect == 3);
  assert_true(is_word(row->name, "rows") && row->effect == 1.01);
  assert_true(is_word(tile->name, "tile") && tile->effect == 1 && tile->value_count == 1);
  assert_int_equal(unroll->value_count, 3);
  for (uint32_t i = 0; i < 3; i++) { // 10 after 2: numbers, not text
    assert_true(is_word(unroll->values[i].value, unrolls[i]) && unroll->values[i].count == 3);
    assert_true(unroll->values[i].best_us == times[i] && unroll->values[i].median_us == times[i]);
    assert_true(is_word(row->values[i].value, rows[i]));
  }
  assert_true(row->values[2].best_us == 101 && row->values[2].median_us == 201);
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_has(page, "<h4><code>unroll</code> <span>effect 3.00</span></h4>");
  assert_has(page, "Never varied: <code>tile=4</code>.");
  assert_true(strstr(page.data, "<h4><code>unroll") < strstr(page.data, "<h4><code>rows"));
  assert_has(page, "<strong>100 us</strong>, 3.00 times as fast as the default (300 us).");
}

static void of_many_values_those_tried_most_are_shown(void **state) {
  tune_history_entry entries[24] = {{{0}, 0, 0}};
  for (uint32_t i = 0; i < COUNT(entries); i++) {
    const uint32_t value = i < 20 ? i : 19;
    entries[i].trial.schedule = base_str_format(*state, "a=%u,b=%u", value, i < 20 ? 0 : i).data;
    entries[i].trial.median_us = 100 + i;
  }
  const tune_history history = {.count = COUNT(entries), .entries = entries};
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_has(page, "(the 16 of 20 values that were tried most)");
  assert_has(page, "y=\"18.5\">0</text>"); // the first row
  assert_has(page, ">14</text>");
  assert_null(strstr(page.data, ">15</text>"));
  assert_has(page, ">19</text>");
}

// ---- digests ------------------------------------------------------------------------------------

static void the_highest_level_counts(void **state) {
  const tune_history_entry entries[] = {
      {{.schedule = "a=1", .median_us = 50, .level = 0}, 1, 0},
      {{.schedule = "a=2", .median_us = 70, .level = 1}, 2, 0},
      {{.schedule = "a=1", .median_us = 90, .level = 2}, 1.5, 0}, // the clock goes back
      {{.schedule = "a=2", .median_us = 60, .level = 1}, (double)NAN, 0},
      {{.schedule = "a=3", .median_us = 10, .level = 0}, 4, 0},
      {{.schedule = "a=3", .outcome = TUNE_WRONG, .level = 1}, 5, 0},
      {{.schedule = "a=4", .median_us = 80, .outcome = TUNE_PREDICTED}, 6, 0},
      {{.schedule = "a=1", .median_us = 20, .level = 9, .outcome = TUNE_PREDICTED}, 7, 0},
      {{.schedule = "a=1", .median_us = 30, .level = 1}, 8, 0},
  };
  const tune_history history = {.count = COUNT(entries), .entries = entries};
  const report_digest digest = report_digest_of(*state, &history);
  assert_int_equal(digest.count, 4);
  assert_int_equal(digest.trials, 7);
  assert_int_equal(digest.timed, 2);
  assert_true(digest.candidates[0].us == 60 && digest.candidates[1].us == 90);
  assert_int_equal(digest.outcomes[TUNE_TIMED], 2);
  assert_int_equal(digest.outcomes[TUNE_WRONG], 1);
  assert_int_equal(digest.outcomes[TUNE_PREDICTED], 1);
  static const double seconds[] = {1, 2, 2, 2, 4, 5, 6, 7, 8};
  for (size_t i = 0; i < COUNT(seconds); i++)
    assert_true(digest.seconds[i] == seconds[i]);
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_has(page,
             "4 candidates, 7 trials. Of the candidates: 2 timed, 1 wrong, 1 only predicted.");
}

// ---- pages --------------------------------------------------------------------------------------

static void a_page_of_one_search(void **state) {
  const tune_history history = make_history(*state, 400, 42);
  const base_str page = page_of(*state, &history, 1);
  const checker *check = check_page(*state, page);
  assert_int_equal(count_of(page, "<section>"), 1);
  assert_null(strstr(page.data, "id=\"summary\""));
  const report_digest digest = report_digest_of(*state, &history);
  uint32_t timed = 0;
  for (uint32_t i = 0; i < history.count; i++)
    timed += history.entries[i].trial.outcome == TUNE_TIMED;
  assert_int_equal(check->points, digest.timed); // of the roofline
  // Of the history and of the shares; one for each knob's value; one of a key.
  assert_int_equal(check->dots, timed + digest.timed + 5 + 4 + 4 + 2 + 6 + 1);
  assert_has(page, "of the ceiling.</p>");
  assert_has(page, "Example CPU @ 2.70GHz, 8 cores");
  assert_has(page, "88.1 MB, 176 Mflop");
  assert_has(page, "8,294,400 combinations, 214,032 may run");
  assert_has(page, "successive halving with local search, seed 42");
  assert_has(page, "60 s, took 58 s");
  assert_has(page, ">memory 124 GB/s</text>");
  assert_has(page, ">arithmetic 410 GFLOP/s</text>");
  assert_has(page, "%h: error 0.12, bound 0.004 &lt;at row 17&gt;");
  assert_has(page, "The 20 fastest of ");
  assert_null(strstr(page.data, "To keep this page small"));
  write_example(*state, "example", page);
}

// Places worked out by hand.
static void plots_are_drawn_to_scale(void **state) {
  const tune_history_entry entries[] = {
      {{.schedule = "a=1", .median_us = 200, .level = 0}, 1, 0},
      {{.schedule = "a=2", .median_us = 100, .level = 1}, 2, 0},
      {{.schedule = "a=3", .outcome = TUNE_CRASHED, .why = "x"}, 3, 0},
      {{.schedule = "a=3", .outcome = TUNE_CRASHED, .why = "x"}, 3.001, 0}, // the same tick
      {{.schedule = "a=4", .median_us = 150, .level = 0}, 4, 0},
  };
  tune_history history = {.bytes = 1000000,
                          .flops = 2e6,
                          .ceiling_gb_s = 20,
                          .count = COUNT(entries),
                          .entries = entries,
                          .initial = entries[0].trial,
                          .best = entries[1].trial};
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  // Seconds 0 .. 4.08 over 100 .. 704; 88 us .. 200 us and 6 % of air over 266 .. 32.
  assert_has(page,
             "<circle cx=\"248\" cy=\"44.5\" r=\"2.2\"><title>200 us: as the default</title>");
  assert_has(page, "<circle cx=\"396.1\" cy=\"231.1\" r=\"2.8\"><title>100 us: a=2</title>");
  assert_has(page, "<circle cx=\"692.2\" cy=\"137.8\" r=\"2.2\"><title>150 us: a=4</title>");
  assert_has(page, "<path class=\"sofar\" d=\"M248 44.5 H396.1 V231.1 H692.2\"/>");
  assert_has(page, "<line class=\"default\" x1=\"100\" y1=\"44.5\" x2=\"704\" y2=\"44.5\"/>");
  assert_has(page, "<path class=\"best\" d=\"M396.1 224.6 L");
  assert_has(page, "<path class=\"fail\" d=\"M544 280 V292\"/>");
  // 1 MB in 100 us are 10 GB/s, half of the ceiling; at 2 flops a byte 20 GFLOP/s.
  assert_has(page, ">best 20.0 GFLOP/s</text>");
  assert_has(page, ">default 10.0 GFLOP/s</text>");
  assert_has(page, ">best 0.50</text>");
  assert_has(page, "10.0 GB/s, ceiling 20.0 GB/s");
  // 0 .. 1.03 over 16 .. 404.
  assert_has(page, "<line class=\"roof\" x1=\"392.7\"");
  assert_has(page, "<line class=\"winner\" x1=\"204.3\"");
  assert_has(page, "<line class=\"default\" x1=\"110.2\"");
  assert_int_equal(count_of(page, "class=\"roof\""), 2); // memory and the ceiling, no peak
  // 0.125 .. 32 flops a byte over 68 .. 416, 1.67 .. 240 GFLOP/s over 292 .. 32: leaves by the top.
  assert_has(page, "<line class=\"roof\" x1=\"68\" y1=\"270.8\" x2=\"354.4\" y2=\"32\"/>");
  // Alone on the roof of 20 GFLOP/s, 3.33 .. 120: it also enters by the bottom.
  history.entries++;
  history.count = 1;
  history.ceiling_gb_s = 10;
  history.initial = history.best;
  const base_str one = page_of(*state, &history, 1);
  assert_has(one, "<line class=\"roof\" x1=\"129.6\" y1=\"292\" x2=\"354.4\" y2=\"32\"/>");
  // Bends at 1 flop a byte, which is more to the left.
  history.peak_gflop_s = 10;
  const base_str two = page_of(*state, &history, 1);
  check_page(*state, two);
  assert_int_equal(count_of(two, "class=\"roof\""), 3);
  assert_has(two, "<line class=\"roof\" x1=\"122.7\" y1=\"292\" x2=\"222.7\" y2=\"183.1\"/>");
  assert_has(two, ">arithmetic 10.0 GFLOP/s</text>");
}

static void a_page_of_several_searches(void **state) {
  tune_history histories[3];
  for (uint32_t i = 0; i < COUNT(histories); i++) {
    histories[i] = make_history(*state, 120, 7 + i);
    histories[i].rows = 64 << 3 * i;
  }
  histories[1].contended = true;
  histories[2].best_of_ceiling = histories[2].initial_of_ceiling = histories[2].ceiling_gb_s = 0;
  const base_str page = page_of(*state, histories, COUNT(histories));
  check_page(*state, page);
  assert_int_equal(count_of(page, "<section>"), 3);
  assert_int_equal(count_of(page, "Other load was noticed"), 1);
  assert_int_equal(count_of(page, "class=\"meter\""), 2);
  assert_int_equal(count_of(page, "share of the memory ceiling"), 2);
  assert_int_equal(count_of(page, "GB/s: bytes of a call by its time"), 1);
  assert_has(page, "Geometric mean over 3 searches: ");
  assert_has(page, "<a href=\"#k3-winner\">best schedule</a>");
  write_example(*state, "several", page);
}

static void a_page_of_nothing(void **state) {
  const base_str none = page_of(*state, NULL, 0);
  check_page(*state, none);
  assert_has(none, "Nothing was tuned.");
  const tune_history empty = {0};
  const base_str page = page_of(*state, &empty, 1);
  const checker *check = check_page(*state, page);
  assert_int_equal(check->svgs, 0 + count_of(page, "class=\"key\""));
  assert_has(page, "No schedule was found");
  assert_has(page, "0 candidates, 0 trials.");
  assert_has(page, "Nothing was run.");
  assert_has(page, "There is no best schedule.");
  write_example(*state, "empty", page);
}

static void a_page_of_one_trial(void **state) {
  tune_history history = make_history(*state, 1, 3);
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_has(page, "; nothing faster than the default was found");
  assert_has(page, "1 candidate, 1 trial. Of the candidates: 1 timed.");
  assert_has(page, "No knob has two values with a time.");
  write_example(*state, "one", page);
}

static void a_page_of_failures_only(void **state) {
  tune_history history = make_history(*state, 60, 5);
  tune_history_entry *entries = (tune_history_entry *)history.entries;
  for (uint32_t i = 0; i < history.count; i++) {
    tune_trial *trial = &entries[i].trial;
    trial->outcome = (tune_outcome)(TUNE_REFUSED + i % 5);
    trial->median_us = 1; // must not be read
    trial->why = i % 2 ? "some reason" : NULL;
  }
  history.best = history.initial = (tune_trial){0};
  const base_str page = page_of(*state, &history, 1);
  const checker *check = check_page(*state, page);
  assert_int_equal(check->dots, 0);
  assert_int_equal(count_of(page, "class=\"fail\""), 5);
  assert_int_equal(count_of(page, "<details"), 5);
  assert_int_equal(count_of(page, "no reason given"), 5);
  assert_has(page, ">nothing was timed</text>");
  assert_has(page, "No candidate was timed.");
  write_example(*state, "failures", page);
}

static void thousands_of_trials_stay_small(void **state) {
  enum { TRIALS = 5000 };
  tune_history history = make_history(*state, TRIALS, 11);
  tune_history_entry *entries = (tune_history_entry *)history.entries;
  for (uint32_t i = 0; i < TRIALS; i++) { // the worst case: no two alike, all with much to say
    tune_trial *trial = &entries[i].trial;
    trial->schedule = base_str_format(*state, "%s,salt=%u", trial->schedule, i).data;
    if (trial->outcome == TUNE_TIMED) continue;
    trial->why = base_str_format(*state, "%u: %0400u", i, i).data;
  }
  history.initial.schedule = entries[0].trial.schedule;
  const base_str page = page_of(*state, &history, 1);
  const checker *check = check_page(*state, page);
  print_message("%u trials: %zu bytes, %u circles, %u points\n", (unsigned)TRIALS, page.length,
                check->dots, check->points);
  assert_true(page.length < 500 * 1000);
  assert_in_range(check->points, 6000, 12000);
  assert_int_equal(count_of(page, "To keep this page small"), 3);
  assert_has(page, " rarer reasons are left out");
  assert_has(page, "(the 16 of 4");
  write_example(*state, "large", page);
  tune_history many[10];
  for (uint32_t i = 0; i < COUNT(many); i++)
    many[i] = history;
  const base_str all = page_of(*state, many, COUNT(many));
  check_page(*state, all);
  print_message("%zu times that: %zu bytes\n", COUNT(many), all.length);
  assert_true(all.length < 2 * 1000 * 1000);
}

static void hostile_names_are_shown_not_obeyed(void **state) {
  static const char evil[] = "\"'><script>alert(1)</script><!-- & \xff\xfe\x01 https:/x]]>";
  tune_history history = make_history(*state, 50, 9);
  tune_history_entry *entries = (tune_history_entry *)history.entries;
  const tune_knob knob = {"<b>\xc3", evil};
  history.graph_name = history.axes = history.target = history.strategy = evil;
  history.cache = history.date = evil;
  history.device = (tune_device){evil, evil, evil, INT64_MAX};
  history.knobs = &knob;
  history.knob_count = 1;
  for (uint32_t i = 0; i < history.count; i++) {
    entries[i].trial.why = evil;
    entries[i].trial.schedule =
        base_str_format(*state, "<b>\xc3=<\xe2\x82%u\x82\">,&=%s", i % 3, evil).data;
    if (i % 2) entries[i].trial.schedule = base_str_format(*state, "<b>\xc3=%0300u,&=1", i).data;
  }
  history.best = entries[1].trial;
  history.initial = entries[0].trial;
  const tune_history both[] = {history, history};
  const base_str page = page_of(*state, both, 2);
  check_page(*state, page);
  assert_null(strstr(page.data, "<script"));
  assert_null(strstr(page.data, "<b>"));
  assert_null(strstr(page.data, "<!--"));
  assert_has(page, "&lt;script&gt;alert(1)&lt;/script&gt;&lt;!-- &amp; " BAD BAD BAD);
  write_example(*state, "hostile", page);
}

static void nonsense_numbers_do_not_show(void **state) {
  static const double values[] = {
      (double)NAN, (double)INFINITY, -(double)INFINITY, 0, -3, 1e300, 1e-300, 5e-324, 1e12, 1e-6,
      812};
  for (size_t a = 0; a < COUNT(values); a++) {
    for (size_t b = 0; b < COUNT(values); b++) {
      tune_history history = make_history(*state, 24, 13);
      tune_history_entry *entries = (tune_history_entry *)history.entries;
      for (uint32_t i = 0; i < history.count; i++) {
        if (i % 3) continue;
        entries[i].trial.median_us = values[(a + i) % COUNT(values)];
        entries[i].trial.spread = values[b];
        entries[i].trial.level = UINT32_MAX;
        entries[i].seconds = values[(b + i) % COUNT(values)];
        entries[i].predicted_us = values[a];
      }
      entries[1].trial.outcome = (tune_outcome)99;
      history.bytes = b % 2 ? UINT64_MAX : 1;
      history.flops = values[a];
      history.ceiling_gb_s = values[b];
      history.peak_gflop_s = values[(a + b) % COUNT(values)];
      history.budget_seconds = history.best_of_ceiling = values[a];
      history.initial_of_ceiling = history.initial.median_us = values[b];
      history.best.median_us = values[a];
      history.rows = INT64_MIN;
      check_page(*state, page_of(*state, (tune_history[]){history, history}, 2));
    }
  }
}

// Rates too small to draw.
static void no_plot_without_a_scale(void **state) {
  const tune_history_entry entry = {{.schedule = "a=1", .median_us = 1e12}, 1, 0};
  tune_history history = {.count = 1, .entries = &entry, .bytes = 1, .flops = 1e-6};
  history.best = history.initial = entry.trial;
  history.peak_gflop_s = 1;
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_null(strstr(page.data, "class=\"roofline\""));
  assert_null(strstr(page.data, "class=\"shares\""));
}

static void a_predicted_winner_is_not_called_measured(void **state) {
  tune_history history = make_history(*state, 40, 17);
  tune_history_entry *entries = (tune_history_entry *)history.entries;
  for (uint32_t i = 0; i < history.count; i++)
    entries[i].trial.outcome = TUNE_PREDICTED;
  history.best.outcome = history.initial.outcome = TUNE_PREDICTED;
  const base_str page = page_of(*state, &history, 1);
  check_page(*state, page);
  assert_has(page, "by the cost model; nothing was run");
  assert_null(strstr(page.data, " of the ceiling."));
  assert_has(page, "Nothing was run.");
}

static void dots_are_thinned_evenly(void **state) {
  const report_plot plot = {.width = 100, .height = 50};
  report_dot dots[1000], few[3] = {{1, 1, 1, 0}, {1, 1, 1, 1}, {1, 1, 1, 2}};
  assert_int_equal(report_thin(*state, &plot, few, 3, 3), 3); // nothing to do, even where they hide
  for (uint32_t i = 0; i < COUNT(dots); i++)
    dots[i] = (report_dot){i % 100 == 99 ? 100 : i % 100, i / 20, 2, i}; // x 0 .. 100, y 0 .. 49
  const uint32_t left = report_thin(*state, &plot, dots, COUNT(dots), 200);
  assert_in_range(left, 100, 200);
  uint32_t quadrants[4] = {0};
  for (uint32_t i = 0; i < left; i++) {
    assert_true(i == 0 || dots[i - 1].entry < dots[i].entry);
    quadrants[(dots[i].x >= 50) + 2 * (dots[i].y >= 25)]++;
  }
  for (int i = 0; i < 4; i++)
    assert_in_range(quadrants[i], left / 6, left / 2);
}

static void the_same_bytes_in_every_locale(void **state) {
  const tune_history history = make_history(*state, 200, 23);
  const base_str first = page_of(*state, &history, 1), again = page_of(*state, &history, 1);
  assert_true(base_str_equal(first, again));
  static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
  const char *chosen = NULL;
  for (size_t i = 0; i < COUNT(commas) && !chosen; i++)
    chosen = setlocale(LC_ALL, commas[i]);
  if (!chosen) skip(); // no such locale here
  const base_str other = page_of(*state, &history, 1);
  setlocale(LC_ALL, "C");
  assert_true(base_str_equal(first, other));
}

// ---- out of memory ------------------------------------------------------------------------------

typedef struct failing {
  uint32_t left; // allocations that succeed
  bool failed;
} failing;

static void *allocate_some(void *user, size_t size) {
  failing *some = user;
  if (some->left == 0) {
    some->failed = true;
    return NULL;
  }
  some->left--;
  return malloc(size);
}

static void release_any(void *user, void *pointer) {
  (void)user;
  free(pointer);
}

static void out_of_memory_escapes(void **state) {
  const tune_history history = make_history(*state, 100, 29);
  for (volatile uint32_t n = 0;; n++) {
    failing some = {.left = n};
    const base_allocator allocator = {&some, allocate_some, release_any};
    base_arena arena;
    base_arena_init(&arena, &allocator);
    jmp_buf escape;
    volatile bool done = false;
    if (BASE_TRY(&arena, escape)) {
      page_of(&arena, &history, 1);
      done = true;
    }
    assert_true(done != some.failed);
    base_arena_reset(&arena);
    if (done) break;
  }
}

#define REPORT_TEST(function) cmocka_unit_test_setup_teardown(function, open_arena, close_arena)

int main(void) {
  const struct CMUnitTest tests[] = {
      REPORT_TEST(text_of_others_is_escaped),
      REPORT_TEST(numbers_are_written_by_their_size),
      REPORT_TEST(only_real_times_count),
      REPORT_TEST(ticks_are_round),
      REPORT_TEST(axes_map_and_clamp),
      REPORT_TEST(schedules_are_read_generically),
      REPORT_TEST(the_knob_that_decides_comes_first),
      REPORT_TEST(of_many_values_those_tried_most_are_shown),
      REPORT_TEST(the_highest_level_counts),
      REPORT_TEST(a_page_of_one_search),
      REPORT_TEST(plots_are_drawn_to_scale),
      REPORT_TEST(a_page_of_several_searches),
      REPORT_TEST(a_page_of_nothing),
      REPORT_TEST(a_page_of_one_trial),
      REPORT_TEST(a_page_of_failures_only),
      REPORT_TEST(thousands_of_trials_stay_small),
      REPORT_TEST(hostile_names_are_shown_not_obeyed),
      REPORT_TEST(nonsense_numbers_do_not_show),
      REPORT_TEST(no_plot_without_a_scale),
      REPORT_TEST(a_predicted_winner_is_not_called_measured),
      REPORT_TEST(dots_are_thinned_evenly),
      REPORT_TEST(the_same_bytes_in_every_locale),
      REPORT_TEST(out_of_memory_escapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
