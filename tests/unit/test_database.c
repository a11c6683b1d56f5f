// The database of tuning records: every field comes back, the closest record is found, writers lose
// nothing of each other, and whatever happens to a file, to a disk or to a process, what is read is
// what was written or is left out with a warning.
#include "autotune/record_file.h"

#include "autotune/database.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static base_arena arena;
static base_diag diag;
static char folder[64], shipped[96];

static const tune_device xeon = {"cpu", "Intel(R) Xeon(R) 8481C", "avx2 avx512f", 8};

static int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  strcpy(folder, "/tmp/fathom-test-database-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(shipped, sizeof shipped, "%s/shipped", folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  base_arena_reset(&arena);
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

// ---- helpers ------------------------------------------------------------------------------------

static const char *rendered(void) {
  return base_diag_render(&diag).data ? base_diag_render(&diag).data : "";
}

static bool in_child; // where a failed test must not go on with the next one

static void give_up(const char *message) {
  if (!in_child) fail_msg("%s", message);
  fprintf(stderr, "in a child: %s\n", message);
  _exit(99);
}

static void clear_reports(void) {
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
}

static tune_database_options options_of(const char *where) {
  return (tune_database_options){.folder = where, .device = xeon};
}

static tune_database *open_with(const tune_database_options *options) {
  tune_database *database = tune_database_open(&arena, options, &diag);
  if (!database) give_up(rendered());
  return database;
}

// Without a word.
static tune_database *open_here(void) {
  const tune_database_options options = options_of(folder);
  tune_database *database = open_with(&options);
  if (diag.reports.count) give_up(rendered());
  return database;
}

static void expect_report(const char *message) {
  if (!strstr(rendered(), message)) fail_msg("expected '%s', found '%s'", message, rendered());
}

static const tune_trial timed = {"source_tile=4,query_tile=16", TUNE_TIMED, 3, 12.0625, 0.0125, ""};
static const tune_trial plain = {"", TUNE_TIMED, 3, 20.5, 1.0 / 3, ""};
static const tune_trial others[] = {
    {"unroll=2", TUNE_REFUSED, 0, 0, 0, "too many registers: 300 of 255"},
    {"unroll=3", TUNE_WRONG, 1, 0, 0, "h[3, 5] is 1.5, not '2.5'\nand \"more\""},
    {"unroll=5", TUNE_CRASHED, 2, 0, 0, "signal 11"},
    {"unroll=6", TUNE_TIMEOUT, 0, 0, 0, "12"},
    {"unroll=7", TUNE_MEMORY, 0, 0, 0, "true"},
    {"unroll=8", TUNE_PREDICTED, 0, 5e-324, 0, ""},
};

static tune_record record_of(int64_t rows, const tune_trial *trials, uint32_t count) {
  return (tune_record){
      .key = {"0123456789abcdef0123456789abcdef", "cpu", rows, 8, "dense", 64, "warm", "1e5",
              "LLVM 19.1.7", "", 1},
      .graph_name = "site",
      .axes = "B=8 D=7168 N=9",
      .source = "measured",
      .date = "2026-11-30T20:00:00Z",
      .seed = UINT64_MAX,
      .contended = true,
      .best = timed,
      .initial = plain,
      .of_ceiling = 0.1,
      .trial_count = count,
      .trials = trials,
  };
}

static void put(tune_database *database, const tune_record *record) {
  if (tune_database_put(database, record, &diag) != BASE_OK) give_up(rendered());
}

static void put_rows(tune_database *database, int64_t rows) {
  const tune_record record = record_of(rows, others, 2);
  put(database, &record);
}

static bool same_trial(const tune_trial *a, const tune_trial *b) {
  return strcmp(a->schedule, b->schedule) == 0 && a->outcome == b->outcome &&
         a->level == b->level && a->median_us == b->median_us && a->spread == b->spread &&
         strcmp(a->why, b->why) == 0;
}

static bool same_record(const tune_record *a, const tune_record *b) {
  bool same = tune_record_compare(a, b) == 0 && strcmp(a->graph_name, b->graph_name) == 0 &&
              strcmp(a->axes, b->axes) == 0 && strcmp(a->date, b->date) == 0 &&
              a->seed == b->seed && a->contended == b->contended &&
              same_trial(&a->best, &b->best) && same_trial(&a->initial, &b->initial) &&
              a->of_ceiling == b->of_ceiling && a->trial_count == b->trial_count;
  for (uint32_t i = 0; same && i < a->trial_count; i++)
    same = same_trial(&a->trials[i], &b->trials[i]);
  return same;
}

static base_str contents_of(const char *path) {
  base_str contents, why;
  if (base_file_read(&arena, path, &contents, &why) != BASE_OK) give_up(why.data);
  return contents;
}

static void write_file(const char *path, base_str text) {
  base_str why;
  if (base_file_write(&arena, path, text.data, text.length, &why) != BASE_OK)
    fail_msg("%s", why.data);
}

static int count_entries(const char *path, const char *part) {
  DIR *directory = opendir(path);
  int count = 0;
  for (struct dirent *entry; directory && (entry = readdir(directory));)
    count += strstr(entry->d_name, part) != NULL;
  if (directory) closedir(directory);
  return count;
}

// ---- keys ---------------------------------------------------------------------------------------

static void test_keys_follow_their_table(void **state) {
  (void)state;
  const tune_key key = record_of(1024, NULL, 0).key;
  for (uint32_t i = 0; i < TUNE_KEY_PARTS; i++) {
    const tune_key_part *part = &tune_key_parts[i];
    tune_key other = key;
    if (part->is_text)
      *tune_key_text(&other, part) = "~";
    else
      *tune_key_number(&other, part) *= 4;
    assert_true(tune_key_compare(&key, &other) < 0 && tune_key_compare(&other, &key) > 0);
    assert_false(base_hash_equal(tune_key_hash(&key), tune_key_hash(&other)));
    const tune_key_distance distance = tune_key_compared(&other, &key);
    assert_int_equal(distance.useless, part->rule == TUNE_EXACT);
    assert_int_equal(distance.seed, part->rule == TUNE_SEED);
    assert_int_equal(distance.near, part->rule == TUNE_NEAREST);
    assert_int_equal(distance.either, part->rule == TUNE_EITHER);
    assert_true(distance.ratio == (part->rule == TUNE_NEAREST ? 4 : 1));
  }
  assert_int_equal(tune_key_compare(&key, &key), 0);
  base_text text = {.arena = &arena};
  tune_key_print(&key, &text);
  assert_string_equal(text.data, "graph=0123456789abcdef0123456789abcdef target=cpu rows=1024 "
                                 "threads=8 layout=dense alignment=64 cache=warm generator=1e5 "
                                 "compiler=LLVM 19.1.7 driver= timing=1");
  assert_int_equal(tune_key_parts[TUNE_KEY_rows].rule, TUNE_NEAREST);
}

static void test_outcomes_have_names(void **state) {
  (void)state;
  tune_outcome outcome;
  for (int i = 0; i <= TUNE_PREDICTED; i++) {
    assert_true(tune_outcome_parse(base_str_from(tune_outcome_name((tune_outcome)i)), &outcome));
    assert_int_equal(outcome, i);
  }
  assert_false(tune_outcome_parse(BASE_STR("time"), &outcome));
  assert_string_equal(tune_outcome_name((tune_outcome)99), "unknown");
}

// ---- one process --------------------------------------------------------------------------------

static void test_every_field_comes_back(void **state) {
  (void)state;
  tune_record record = record_of(1024, others, COUNT(others));
  tune_record odd = record_of(1, NULL, 0);
  odd.key.target = "cuda:sm_90a";
  odd.key.graph = "12345678901234567890123456789012"; // looks like a number
  odd.key.driver = "580.65.06";
  odd.key.compiler = "NVRTC 13.0";
  odd.graph_name = "null";
  odd.axes = "";
  odd.source = "model";
  odd.key.cache = "cold";
  odd.seed = 0;
  odd.contended = false;
  odd.best = (tune_trial){"team=64,teams=2", TUNE_PREDICTED, 0, 1e-3, 0, ""};
  odd.initial = (tune_trial){"", TUNE_TIMEOUT, 4294967295u, 0, 0, "an \xc3\xa4 and a \x01"};
  odd.of_ceiling = 0;
  put(open_here(), &record);
  put(open_here(), &odd);
  const tune_database *database = open_here();
  assert_int_equal(tune_database_count(database), 2);
  const tune_record expected = tune_record_copy(&arena, &record);
  const tune_record expected_odd = tune_record_copy(&arena, &odd);
  assert_true(same_record(tune_database_at(database, 0), &expected));
  assert_true(same_record(tune_database_at(database, 1), &expected_odd));
  // Schedules are complete.
  assert_non_null(strstr(expected.best.schedule, "source_tile=4,query_tile=16,mix_unroll=16"));
  assert_non_null(strstr(expected.initial.schedule, "lanes=0,"));
  assert_int_equal(expected.trial_count, COUNT(others));
  // The same records make the same text, and only the file is left.
  base_text text = {.arena = &arena};
  tune_database_export(database, &text);
  assert_true(base_str_equal(base_text_str(&text), contents_of(tune_database_path(database))));
  assert_int_equal(count_entries(folder, "cpu"), 1);
  // A timing is a line.
  const char *line = strstr(text.data, "\n  - {schedule: ");
  assert_non_null(line);
  assert_non_null(memchr(line + 1, '}', strcspn(line + 1, "\n")));
}

static void test_files_are_named_after_devices(void **state) {
  (void)state;
  const char *path = tune_database_path(open_here());
  const char *start = base_str_format(&arena, "%s/cpu-Intel-R-Xeon-R-8481C-", folder).data;
  assert_int_equal(strncmp(path, start, strlen(start)), 0);
  assert_int_equal(strlen(path), strlen(start) + 8 + 5);
  assert_string_equal(path, tune_database_path(open_here()));
  tune_device variants[] = {xeon, xeon, xeon, xeon};
  variants[0].kind = "cuda";
  variants[1].name = "Intel(R) Xeon(R) 8481C ";
  variants[2].features = "avx2";
  variants[3].units = 9;
  for (size_t i = 0; i < COUNT(variants); i++) {
    tune_database_options options = options_of(folder);
    options.device = variants[i];
    assert_string_not_equal(path, tune_database_path(open_with(&options)));
  }
  // Nothing in a name leads out of the folder.
  tune_database_options options = options_of(folder);
  options.device.name = "../../\n\xff//NVIDIA H200";
  tune_database *database = open_with(&options);
  const char *name = tune_database_path(database) + strlen(folder) + 1;
  assert_int_equal(strncmp(name, "cpu-", 4), 0);
  assert_null(strchr(name, '/'));
  put_rows(database, 1);
  open_with(&options); // and what the name has that is no text does not make it another device
  assert_int_equal(diag.reports.count, 0);
}

static void test_a_record_replaces_its_like(void **state) {
  (void)state;
  tune_database *database = open_here();
  put_rows(database, 8);
  put_rows(database, 16);
  tune_trial again[] = {others[1], {"unroll=9", TUNE_TIMED, 1, 7, 0, ""}};
  again[0].outcome = TUNE_TIMED;
  again[0].median_us = 3;
  again[0].why = "";
  tune_record record = record_of(8, again, 2);
  record.seed = 5;
  put(database, &record);
  const tune_record *found = tune_database_find(database, &record.key, false, NULL);
  assert_int_equal(tune_database_count(database), 2);
  assert_int_equal(found->seed, 5);
  assert_int_equal(found->trial_count, 3); // unroll=2 was not tried again
  uint32_t seen = 0;
  for (uint32_t i = 0; i < 3; i++) {
    const tune_trial *trial = &found->trials[i];
    seen += strstr(trial->schedule, "unroll=2,") && trial->outcome == TUNE_REFUSED;
    seen += strstr(trial->schedule, "unroll=3,") && trial->median_us == 3;
    seen += strstr(trial->schedule, "unroll=9,") && trial->median_us == 7;
  }
  assert_int_equal(seen, 3);
  const tune_database *reread = open_here();
  assert_true(same_record(tune_database_find(reread, &record.key, false, NULL), found));
  // What the model says stands beside what was measured.
  record.source = "model";
  put(database, &record);
  assert_int_equal(tune_database_count(open_here()), 3);
}

// Times with warm caches and with cold ones are no times of one thing.
static void test_warm_and_cold_stand_side_by_side(void **state) {
  (void)state;
  tune_trial warm_trial = {"unroll=2", TUNE_TIMED, 1, 5, 0, ""};
  tune_trial cold_trial = {"unroll=3", TUNE_TIMED, 1, 50, 0, ""};
  tune_record warm = record_of(8, &warm_trial, 1), cold = record_of(8, &cold_trial, 1);
  warm.graph_name = "warm";
  cold.graph_name = cold.key.cache = "cold";
  cold.date = "2026-12-01T20:00:00Z";
  tune_database *database = open_here();
  put(database, &warm);
  put(database, &cold);
  put(database, &warm); // with the trials of the one of its kind
  assert_int_equal(tune_database_count(open_here()), 2);
  for (uint32_t i = 0; i < 2; i++) {
    const tune_record *record = tune_database_at(open_here(), i);
    const bool is_cold = strcmp(record->key.cache, "cold") == 0;
    assert_string_equal(record->graph_name, is_cold ? "cold" : "warm");
    assert_int_equal(record->trial_count, 1);
    assert_true(record->trials[0].median_us == (is_cold ? 50 : 5));
  }
  // A search begins with its like; who does not care gets the newest; nearer rows count for more.
  tune_match match;
  tune_key key = warm.key;
  assert_string_equal(tune_database_find(database, &key, true, &match)->graph_name, "warm");
  assert_int_equal(match, TUNE_EXACT_MATCH);
  key.cache = "";
  assert_string_equal(tune_database_find(database, &key, false, &match)->graph_name, "cold");
  assert_int_equal(match, TUNE_EXACT_MATCH);
  warm.date = "2026-12-02T20:00:00Z";
  put(database, &warm);
  assert_string_equal(tune_database_find(database, &key, false, &match)->graph_name, "warm");
  cold.key.rows = key.rows = 16;
  put(database, &cold);
  assert_string_equal(tune_database_find(database, &key, false, &match)->graph_name, "cold");
  key.cache = "warm";
  assert_string_equal(tune_database_find(database, &key, false, &match)->graph_name, "cold");
  assert_int_equal(match, TUNE_EXACT_MATCH);
  // So do their journals.
  uint32_t count;
  const tune_trial *trials;
  tune_journal *journal = tune_journal_open(database, &warm.key, 1, false, &count, &trials, &diag);
  assert_int_equal(tune_journal_append(journal, &warm_trial, &diag), BASE_OK);
  tune_journal_close(journal, false);
  key = warm.key;
  key.cache = "cold";
  journal = tune_journal_open(database, &key, 1, true, &count, &trials, &diag);
  assert_int_equal(count, 0);
  tune_journal_close(journal, true);
  journal = tune_journal_open(database, &warm.key, 1, true, &count, &trials, &diag);
  assert_int_equal(count, 1);
  tune_journal_close(journal, true);
}

static void test_what_cannot_be_stored(void **state) {
  (void)state;
  tune_database *database = open_here();
  put_rows(database, 1);
  const base_str before = contents_of(tune_database_path(database));
  tune_trial bad = {"unroll=99", TUNE_TIMED, 0, 1, 0, ""};
  tune_record records[14];
  for (size_t i = 0; i < COUNT(records); i++)
    records[i] = record_of(2, others, 2);
  records[0].best = bad;
  records[1].trials = &bad;
  records[1].trial_count = 1;
  records[2].key.target = "tpu";
  records[3].best.outcome = TUNE_CRASHED;
  records[4].best.median_us = 0;
  records[5].best.median_us = -1.0;
  records[6].source = "guess";
  records[7].date = "yesterday";
  records[8].key.driver = NULL;
  records[9].key.rows = -1;
  records[10].key.compiler = "\xff";
  records[11].best.outcome = TUNE_PREDICTED; // though it is said to be measured
  records[12].key.cache = "lukewarm";
  records[13].key.cache = "";
  for (size_t i = 0; i < COUNT(records); i++) {
    clear_reports();
    assert_int_equal(tune_database_put(database, &records[i], &diag), BASE_INVALID);
    expect_report("error: a record that cannot be stored: ");
  }
  assert_true(base_str_equal(before, contents_of(tune_database_path(database))));
}

static void test_a_file_that_was_removed_stays_removed(void **state) {
  (void)state;
  tune_database *database = open_here();
  put_rows(database, 1);
  assert_int_equal(unlink(tune_database_path(database)), 0);
  put_rows(database, 2);
  assert_int_equal(tune_database_count(database), 1);
  assert_int_equal(tune_database_count(open_here()), 1);
}

// ---- looking up ---------------------------------------------------------------------------------

static const tune_record *find(const tune_database *database, int64_t rows, const char *generator,
                               bool seeds, tune_match expected) {
  tune_key key = record_of(rows, NULL, 0).key;
  if (generator) key.generator = generator;
  tune_match match;
  const tune_record *record = tune_database_find(database, &key, seeds, &match);
  assert_int_equal(match, expected);
  assert_int_equal(record != NULL, match != TUNE_NO_MATCH);
  return record;
}

static void test_the_nearest_rows_are_found(void **state) {
  (void)state;
  tune_database *database = open_here();
  find(database, 1, NULL, true, TUNE_NO_MATCH);
  put_rows(database, 10);
  put_rows(database, 1000);
  assert_int_equal(find(database, 10, NULL, false, TUNE_EXACT_MATCH)->key.rows, 10);
  assert_int_equal(find(database, 99, NULL, false, TUNE_NEAREST_MATCH)->key.rows, 10);
  assert_int_equal(find(database, 101, NULL, false, TUNE_NEAREST_MATCH)->key.rows, 1000);
  assert_int_equal(find(database, 400, NULL, false, TUNE_NEAREST_MATCH)->key.rows, 1000);
  assert_int_equal(find(database, 0, NULL, false, TUNE_NEAREST_MATCH)->key.rows, 10);
  assert_int_equal(find(database, INT64_MAX, NULL, false, TUNE_NEAREST_MATCH)->key.rows, 1000);
  static const uint32_t exact[] = {TUNE_KEY_graph, TUNE_KEY_layout};
  for (size_t i = 0; i < COUNT(exact); i++) {
    tune_key key = record_of(10, NULL, 0).key;
    *tune_key_text(&key, &tune_key_parts[exact[i]]) = "another";
    assert_null(tune_database_find(database, &key, true, NULL));
  }
  tune_key key = record_of(10, NULL, 0).key;
  key.threads = 4;
  assert_null(tune_database_find(database, &key, true, NULL));
}

static void put_variant(tune_database *database, int64_t rows, const char *source,
                        const char *generator, const char *date, const char *name) {
  tune_record record = record_of(rows, others, 1);
  record.source = source;
  if (generator) record.key.generator = generator;
  record.date = date;
  record.graph_name = name;
  put(database, &record);
}

static const char *name_found(const tune_database *database, int64_t rows, bool seeds,
                              tune_match expected) {
  return find(database, rows, NULL, seeds, expected)->graph_name;
}

static void test_which_of_several_is_found(void **state) {
  (void)state;
  const char *date = "2026-01-01T00:00:00Z", *later = "2026-02-01T00:00:00Z";
  tune_database *database = open_here();
  put_variant(database, 100, "measured", "old", date, "old");
  find(database, 100, NULL, false, TUNE_NO_MATCH);
  assert_string_equal(name_found(database, 100, true, TUNE_SEED_MATCH), "old");
  put_variant(database, 100, "measured", "older", later, "later");
  assert_string_equal(name_found(database, 100, true, TUNE_SEED_MATCH), "later");
  put_variant(database, 90, "measured", "oldest", later, "far");
  assert_string_equal(name_found(database, 100, true, TUNE_SEED_MATCH), "later");
  put_variant(database, 5, "model", NULL, date, "model far");
  assert_string_equal(name_found(database, 100, true, TUNE_NEAREST_MATCH), "model far");
  put_variant(database, 100, "model", NULL, date, "model");
  assert_string_equal(name_found(database, 100, true, TUNE_EXACT_MATCH), "model");
  put_variant(database, 200, "measured", NULL, date, "measured");
  assert_string_equal(name_found(database, 100, false, TUNE_NEAREST_MATCH), "measured");
  put_variant(database, 100, "measured", NULL, date, "exact");
  assert_string_equal(name_found(database, 100, true, TUNE_EXACT_MATCH), "exact");
  assert_string_equal(name_found(open_here(), 100, true, TUNE_EXACT_MATCH), "exact");
}

static void test_shipped_records_stand_behind(void **state) {
  (void)state;
  tune_database_options options = options_of(shipped);
  tune_database *maker = open_with(&options); // makes the folder
  put_variant(maker, 10, "measured", NULL, "2026-09-01T00:00:00Z", "shipped 10");
  put_variant(maker, 1000, "measured", NULL, "2026-09-01T00:00:00Z", "shipped 1000");
  const base_str text = contents_of(tune_database_path(maker));
  options = options_of(folder);
  options.shipped = shipped;
  tune_database *database = open_with(&options);
  assert_int_equal(tune_database_count(database), 2);
  assert_string_equal(name_found(database, 10, false, TUNE_EXACT_MATCH), "shipped 10");
  put_variant(database, 10, "measured", NULL, "2026-01-01T00:00:00Z", "own");
  assert_int_equal(tune_database_count(database), 3);
  assert_false(tune_database_is_shipped(database, 0));
  assert_true(tune_database_is_shipped(database, 1) && tune_database_is_shipped(database, 2));
  assert_string_equal(name_found(database, 10, false, TUNE_EXACT_MATCH), "own"); // though older
  assert_string_equal(name_found(database, 1000, false, TUNE_EXACT_MATCH), "shipped 1000");
  assert_true(base_str_equal(text, contents_of(tune_database_path(maker))));
  assert_int_equal(tune_database_count(open_here()), 1); // none of them became the user's
  assert_int_equal(diag.reports.count, 0);
  // Bad ones are a warning.
  write_file(tune_database_path(maker), BASE_STR("schema: 99\n"));
  database = open_with(&options);
  assert_int_equal(tune_database_count(database), 1);
  assert_int_equal(diag.error_count, 0);
  expect_report("schema 99");
}

// ---- files that are not as they should be -------------------------------------------------------

static const char *replaced(const char *text, const char *old, const char *new) {
  const char *at = strstr(text, old);
  assert_non_null(at);
  return base_str_format(&arena, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old)).data;
}

// Of a file with rows 1, 2 and 3 `old` becomes `new`: this is said, and so many records are left.
static void expect_left_out(const char *old, const char *new, uint32_t left, const char *message) {
  tune_database *database = open_here();
  for (int64_t rows = 1; rows <= 3; rows++)
    put_rows(database, rows);
  const char *path = tune_database_path(database);
  const char *text = replaced(contents_of(path).data, old, new);
  write_file(path, base_str_from(text));
  const tune_database_options options = options_of(folder);
  database = open_with(&options);
  assert_int_equal(tune_database_count(database), left);
  assert_int_equal(diag.error_count, 0);
  expect_report(message);
  expect_report(path);
  // What is overwritten is kept.
  put_rows(database, 9);
  expect_report("the damaged file is kept as ");
  const char *kept = base_str_format(&arena, "%s.damaged-1", path).data;
  assert_string_equal(contents_of(kept).data, text);
  clear_reports();
  assert_int_equal(tune_database_count(open_here()), left + 1);
  base_diag errors;
  base_diag_init(&errors, &arena, BASE_STR(""), BASE_STR(""));
  assert_false(tune_database_validate(&arena, kept, &errors));
  assert_true(tune_database_validate(&arena, path, &errors));
  unlink(path);
  unlink(kept);
}

static void test_records_that_are_left_out(void **state) {
  (void)state;
  expect_left_out("source_tile=4", "source_tile=99", 2,
                  "record 'site' (line 10) is left out: schedule knob source_tile cannot be '99'");
  expect_left_out("unroll=2", "unrolls=2", 3,
                  "a timing of record 'site' (line 76) is left out: unknown schedule knob");
  expect_left_out("best:", "bets:", 2,
                  ":29:3: all of record 'site' (line 10) is left out: unknown");
  expect_left_out("  seed: 18446744073709551615\n", "", 2, "'seed' is missing");
  expect_left_out("seed: 18446744073709551615", "seed: 18446744073709551616", 2,
                  "expected an integer from 0 to 2^64 - 1, found '18446744073709551616'");
  expect_left_out("rows: 2", "rows: two", 2, "expected an integer, found 'two'");
  expect_left_out("rows: 2", "rows: 1", 2, "is there twice");
  expect_left_out("target: cpu", "target: gpu", 2, "'gpu' is no target");
  expect_left_out("outcome: timed", "outcome: crashed", 2, "best was not timed");
  expect_left_out("outcome: timed", "outcome: time", 2, "not an outcome of a trial");
  expect_left_out("median_us: 12.0625", "median_us: .inf", 2, "expected a number, found '.inf'");
  expect_left_out("contended: true", "contended: maybe", 2, "expected true or false");
  expect_left_out("\n...\n", "\n", 2, "the file's end is missing");
  expect_left_out("name: site", "name: 'site", 2, "not YAML: ");
  expect_left_out("{schedule", "{&a schedule", 2, "anchors are not read here");
  expect_left_out("schema: 2", "schema: one", 0, "expected an integer, found 'one'");
  expect_left_out("device:", "devices:", 0, "'device' is missing");
  expect_left_out("records:", "record:", 0, "'records' is missing");
  // What is wrong with trials costs no winner.
  expect_left_out("trials:", "trails:", 3,
                  "every timing of record 'site' (line 76) is left out: unknown name 'trails'");
  expect_left_out("timings:", "timing:", 3, "unknown name 'timing'");
  expect_left_out("timings:\n- key:\n    graph: '0", "timings:\n- key:\n    graph: '1", 3,
                  "every timing of record 'site' (line 76) is left out: there is no such record");
  expect_left_out("timings:\n- key:", "timings:\n- {\n- key:", 3, "not YAML");
  expect_left_out("timings:\n", "timings:\n...\n", 3, "not YAML");
  expect_left_out("\n---\n", "\n--\n", 3, "not YAML");
  expect_left_out("unroll=2", "unroll=3", 3, "a schedule is there twice");
}

// Behind the winners.
static const char *timings_of(const char *text) {
  return strstr(text, "\n---\ntimings:");
}

// As the first version wrote it.
static const char schema_1[] =
    "schema: 1\n"
    "device:\n"
    "  kind: cpu\n"
    "  name: Intel(R) Xeon(R) 8481C\n"
    "  features: avx2 avx512f\n"
    "  units: 8\n"
    "records:\n"
    "- key:\n"
    "    graph: 0123456789abcdef0123456789abcdef\n"
    "    target: cpu\n"
    "    rows: 8\n"
    "    threads: 8\n"
    "    layout: dense\n"
    "    alignment: 64\n"
    "    generator: '1e5'\n"
    "    compiler: LLVM 19.1.7\n"
    "    driver: ''\n"
    "    timing: 1\n"
    "  name: site\n"
    "  axes: B=8 D=7168 N=9\n"
    "  source: measured\n"
    "  cache: cold\n"
    "  date: '2026-11-30T20:00:00Z'\n"
    "  seed: 18446744073709551615\n"
    "  contended: true\n"
    "  of_ceiling: 0.1\n"
    "  best: {schedule: 'source_tile=4,query_tile=16', outcome: timed, level: 3, median_us: "
    "12.0625, "
    "spread: 0.0125}\n"
    "  initial: {schedule: '', outcome: timed, level: 3, median_us: 20.5, spread: "
    "0.3333333333333333}\n"
    "  timings:\n"
    "  - {schedule: unroll=2, outcome: refused, level: 0, why: 'too many registers: 300 of 255'}\n"
    "  - {schedule: unroll=3, outcome: timed, level: 1, median_us: 30}\n"
    "...\n";

static void test_a_file_of_the_first_schema(void **state) {
  (void)state;
  const tune_trial trials[] = {others[0], {"unroll=3", TUNE_TIMED, 1, 30, 0, ""}};
  tune_record record = record_of(8, trials, COUNT(trials));
  record.key.cache = "cold";
  const tune_record expected = tune_record_copy(&arena, &record);
  const char *path = tune_database_path(open_here());
  write_file(path, BASE_STR(schema_1));
  tune_database *database = open_here(); // without a word
  assert_int_equal(tune_database_count(database), 1);
  assert_true(same_record(tune_database_at(database, 0), &expected));
  put_rows(database, 16); // and from now on it is of this schema
  assert_non_null(strstr(contents_of(path).data, "\nschema: 2\n"));
  assert_non_null(timings_of(contents_of(path).data));
  database = open_here();
  assert_int_equal(tune_database_count(database), 2);
  assert_true(same_record(tune_database_at(database, 0), &expected));
  write_file(path, base_str_from(replaced(schema_1, "  cache: cold\n", "")));
  const tune_database_options options = options_of(folder);
  assert_int_equal(tune_database_count(open_with(&options)), 0);
  expect_report("'cache' is missing");
  clear_reports();
  write_file(path, base_str_from(replaced(schema_1, "schema: 1", "schema: 2")));
  assert_int_equal(tune_database_count(open_with(&options)), 0);
  expect_report("unknown name 'cache'");
  expect_report("unknown name 'timings'");
  clear_reports();
  write_file(path, base_str_from(replaced(schema_1, "\n...\n", "\n...\n---\ntimings: []\n...\n")));
  assert_int_equal(tune_database_count(open_with(&options)), 1);
  expect_report("a second document, which schema 1 does not have");
}

static void test_files_that_are_refused(void **state) {
  (void)state;
  tune_database *database = open_here();
  put_rows(database, 1);
  const char *path = tune_database_path(database);
  const base_str text = contents_of(path);
  static const char *const changes[][3] = {
      {"schema: 2", "schema: 3", "a newer Fathom wrote it"},
      {"schema: 2", "schema: 0", "move the file away and tune again"},
      {"units: 8", "units: 16",
       "the file is about another device: cpu 'Intel(R) Xeon(R) 8481C', 16"},
      {"avx512f", "avx512", "the file is about another device"},
  };
  const tune_record record = record_of(2, NULL, 0);
  for (size_t i = 0; i < COUNT(changes); i++) {
    const char *changed = replaced(text.data, changes[i][0], changes[i][1]);
    write_file(path, base_str_from(changed));
    const tune_database_options options = options_of(folder);
    assert_null(tune_database_open(&arena, &options, &diag));
    assert_true(diag.error_count > 0);
    expect_report(changes[i][2]);
    assert_int_not_equal(tune_database_put(database, &record, &diag), BASE_OK);
    assert_string_equal(contents_of(path).data, changed); // whoever wrote it needs it
    assert_int_equal(count_entries(folder, "cpu"), 1);    // no lock stays, nothing else either
    clear_reports();
  }
  tune_database_options options = options_of(path); // a folder that is none
  assert_null(tune_database_open(&arena, &options, &diag));
  expect_report("is not a folder");
}

// The records that damaged files are compared with.
static tune_record originals[4];

static base_str make_original(const char **path) {
  tune_database *database = open_here();
  for (int64_t rows = 1; rows <= 4; rows++)
    put_rows(database, rows);
  for (uint32_t i = 0; i < 4; i++)
    originals[i] = tune_record_copy(&arena, tune_database_at(database, i));
  *path = tune_database_path(database);
  return contents_of(*path);
}

// But for its trials.
static bool same_winner(const tune_record *a, const tune_record *b) {
  tune_record left = *a, right = *b;
  left.trial_count = right.trial_count = 0;
  return same_record(&left, &right);
}

// How many records are one of the originals, without looking at trials or with all of them.
static uint32_t count_originals(const tune_database *database, bool with_trials) {
  uint32_t same = 0;
  for (uint32_t i = 0; i < tune_database_count(database); i++) {
    const tune_record *record = tune_database_at(database, i);
    assert_null(tune_record_problem(diag.arena, record));
    for (uint32_t j = 0; j < 4; j++)
      same += (with_trials ? same_record : same_winner)(record, &originals[j]);
  }
  return same;
}

static uint32_t count_trials(const tune_database *database) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < tune_database_count(database); i++)
    count += tune_database_at(database, i)->trial_count;
  return count;
}

static void write_raw(const char *path, const char *data, size_t length) {
  FILE *stream = fopen(path, "wb");
  assert_int_equal(fwrite(data, 1, length, stream), length);
  fclose(stream);
}

static void test_a_file_cut_at_every_byte(void **state) {
  (void)state;
  const char *path;
  const base_str text = make_original(&path);
  const size_t winners = (size_t)(timings_of(text.data) - text.data); // but for their last line end
  tune_database_options options = options_of(folder);
  uint32_t most = 0, most_trials = 0;
  for (size_t length = 0; length < text.length; length++) {
    base_arena own;
    base_arena_init(&own, NULL);
    base_diag_init(&diag, &own, BASE_STR(""), BASE_STR(""));
    write_raw(path, text.data, length);
    options.winners_only = false;
    tune_database *database = tune_database_open(&own, &options, &diag);
    const bool is_whole = length >= text.length - 1; // all but the last line end
    assert_non_null(database);
    assert_int_equal(diag.error_count, 0);
    assert_int_equal(diag.reports.count == 0, is_whole);
    const uint32_t count = tune_database_count(database), trials = count_trials(database);
    assert_int_equal(count_originals(database, false), count); // nothing that was not written
    assert_int_equal(count == 4, length >= winners);
    assert_true(count_originals(database, true) >= trials / 2); // two each, or none
    assert_true(count >= most && trials >= most_trials);        // what is whole is used
    most = count;
    most_trials = trials;
    // Who only looks something up finds the same, and is told nothing of the rest.
    base_diag_init(&diag, &own, BASE_STR(""), BASE_STR(""));
    options.winners_only = true;
    database = tune_database_open(&own, &options, &diag);
    assert_non_null(database);
    assert_int_equal(diag.reports.count == 0, length >= winners);
    assert_int_equal(tune_database_count(database), count);
    assert_int_equal(count_originals(database, false), count);
    assert_int_equal(count_trials(database), 0);
    base_arena_reset(&own);
  }
  clear_reports();
  assert_int_equal(most, 4);
  assert_int_equal(most_trials, 8);
}

static void test_a_file_with_any_byte_changed(void **state) {
  (void)state;
  const char *path;
  const base_str text = make_original(&path);
  char *changed = base_alloc(&arena, text.length);
  const size_t header = (size_t)(strstr(text.data, "\nrecords:") - text.data) + 10;
  const size_t winners = (size_t)(timings_of(text.data) - text.data);
  static const char bytes[] = {'\n', ' ', '\'', '"',    '{', '}', ':',
                               '-',  '#', '\0', '\xff', '|', '9'};
  uint64_t seed = 99;
  uint32_t refused = 0;
  tune_database_options options = options_of(folder);
  for (size_t at = 0; at < 2 * text.length; at++) {
    base_arena own;
    base_arena_init(&own, NULL);
    base_diag_init(&diag, &own, BASE_STR(""), BASE_STR(""));
    memcpy(changed, text.data, text.length);
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const size_t place = at / 2;
    changed[place] = at % 2 ? (char)(text.data[place] ^ (1 << (seed >> 40) % 8))
                            : bytes[(seed >> 40) % sizeof bytes];
    write_raw(path, changed, text.length);
    options.winners_only = false;
    tune_database *database = tune_database_open(&own, &options, &diag);
    uint32_t same = 0, count = 0;
    if (database) {
      count = tune_database_count(database);
      same = count_originals(database, false);
      // A record, its neighbour where the line between them is hit, and the last where the end is.
      if (place >= header && same < 2) fail_msg("byte %zu: %u of 4 records are left", place, same);
      if (place > winners + 4 && same < 4) fail_msg("byte %zu: %u of 4 winners", place, same);
      // With the line end between the two marks goes the place where timings begin.
      if (place >= header && place != winners && count_originals(database, true) < 2)
        fail_msg("byte %zu: too many trials are lost", place);
      if (same < 4 && count == same) assert_true(diag.reports.count > 0);
      // A trial may have become a comment.
      if (count_trials(database) < 8 && changed[place] != '#') assert_true(diag.reports.count > 0);
    } else {
      assert_true(diag.error_count > 0);
      assert_true(place < header); // another schema, another device
      refused++;
    }
    // Who only looks something up finds the same winners.
    base_diag_init(&diag, &own, BASE_STR(""), BASE_STR(""));
    options.winners_only = true;
    tune_database *lookup = tune_database_open(&own, &options, &diag);
    assert_int_equal(lookup != NULL, database != NULL);
    if (lookup) {
      assert_int_equal(tune_database_count(lookup), count);
      assert_int_equal(count_originals(lookup, false), same);
      if (same < 4 && count == same) assert_true(diag.reports.count > 0);
    }
    base_arena_reset(&own);
  }
  clear_reports();
  assert_true(refused > 0);
}

// A search leaves hundreds of trials, which a compilation has no use for.
static void test_looking_up_reads_little(void **state) {
  (void)state;
  enum { RECORDS = 40, TRIALS = 250 };
  tune_trial trials[TRIALS];
  for (uint32_t i = 0; i < TRIALS; i++)
    trials[i] = (tune_trial){
        .schedule = base_str_format(&arena, "unroll=%u,rows=%u", 1 + i % 8, 1 + i / 8).data,
        .median_us = 1 + i,
        .why = ""};
  // Written by one change: of another file.
  tune_database_options options = options_of(shipped);
  tune_database *other = open_with(&options), *database = open_here();
  const tune_record record = record_of(1, trials, TRIALS);
  put(other, &record);
  base_text text = {.arena = &arena};
  tune_records many = {0};
  for (int64_t rows = 1; rows <= RECORDS; rows++) {
    tune_record copy = *tune_database_at(other, 0);
    copy.key.rows = rows;
    base_push(&arena, &many, copy);
  }
  tune_file_print(&arena, &xeon, &many, &text);
  write_file(tune_database_path(database), base_text_str(&text));
  options = options_of(folder);
  options.winners_only = true;
  tune_database *lookup = open_with(&options);
  assert_int_equal(diag.reports.count, 0);
  assert_int_equal(tune_database_count(lookup), RECORDS);
  tune_match match;
  const tune_record *found = tune_database_find(lookup, &many.data[7].key, false, &match);
  assert_int_equal(match, TUNE_EXACT_MATCH);
  assert_true(same_winner(found, &many.data[7]));
  assert_true(tune_database_read_bytes(lookup) < text.length / 20);
  assert_int_equal(tune_database_put(lookup, &record, &diag), BASE_INVALID); // trials would be lost
  expect_report("open for reading only");
  clear_reports();
  database = open_here();
  assert_int_equal(tune_database_read_bytes(database), text.length);
  assert_int_equal(count_trials(database), RECORDS * TRIALS);
  // The winners of a shipped file, too.
  unlink(tune_database_path(database));
  options.shipped = shipped;
  lookup = open_with(&options);
  assert_int_equal(tune_database_count(lookup), 1);
  assert_int_equal(count_trials(lookup), 0);
}

static void test_every_damaged_file_is_kept(void **state) {
  (void)state;
  tune_database *database = open_here();
  const char *path = tune_database_path(database);
  for (int i = 1; i <= 3; i++) {
    const base_str text = base_str_format(&arena, "damage %d", i);
    write_file(path, text);
    put_rows(database, i);
    const char *kept = base_str_format(&arena, "%s.damaged-%d", path, i).data;
    assert_true(base_str_equal(contents_of(kept), text));
    clear_reports();
    assert_int_equal(tune_database_count(open_here()), 1);
  }
}

static void test_long_lists_of_warnings_are_cut(void **state) {
  (void)state;
  tune_database *database = open_here();
  for (int64_t rows = 1; rows <= 20; rows++)
    put_rows(database, rows);
  const char *path = tune_database_path(database);
  char *text = (char *)base_str_copy(&arena, contents_of(path)).data;
  for (char *at = text; (at = strstr(at, "layout"));)
    *at = 'L';
  write_file(path, base_str_from(text));
  const tune_database_options options = options_of(folder);
  assert_int_equal(tune_database_count(open_with(&options)), 0);
  assert_int_equal(diag.reports.count, 9);
  expect_report("72 more of this kind");
  clear_reports();
  assert_false(tune_database_validate(&arena, path, &diag));
  // All of them: an unknown name, and one that is missing, in each record and in its timings.
  assert_int_equal(diag.error_count, 80);
  expect_report(
      ".yaml:15:5: error: all of record 'site' (line 10) is left out: unknown name 'Layout'");
  clear_reports();
  assert_false(tune_database_validate(&arena, folder, &diag));
  expect_report("Is a directory");
}

// ---- disks --------------------------------------------------------------------------------------

static void test_a_read_only_database(void **state) {
  (void)state;
  put_rows(open_here(), 1);
  tune_database_options options = options_of(folder);
  options.read_only = true;
  tune_database *database = open_with(&options);
  const tune_record record = record_of(2, NULL, 0);
  uint32_t count;
  const tune_trial *trials;
  assert_int_equal(tune_database_put(database, &record, &diag), BASE_INVALID);
  expect_report("open for reading only");
  assert_null(tune_journal_open(database, &record.key, 1, false, &count, &trials, &diag));
  assert_int_equal(tune_database_count(database), 1);
  assert_int_equal(count_entries(folder, "cpu"), 1);
}

// In a child that is not root: `folder` may be read, not written.
static int write_without_rights(void) {
  if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 2;
  const tune_record record = record_of(2, NULL, 0);
  tune_database *database = open_here();
  if (tune_database_count(database) != 1) return 3;
  if (tune_database_put(database, &record, &diag) != BASE_IO) return 4;
  return strstr(rendered(), "Permission denied") && strstr(rendered(), ".lock") ? 0 : 5;
}

static pid_t start_child(int (*work)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  if (child != 0) return child;
  in_child = true;
  _exit(work());
}

static int exit_code_of(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void test_a_folder_without_rights(void **state) {
  (void)state;
  put_rows(open_here(), 1);
  assert_int_equal(chmod(folder, 0555), 0);
  const int code = exit_code_of(start_child(write_without_rights));
  assert_int_equal(chmod(folder, 0700), 0);
  assert_int_equal(code, 0);
}

static void test_a_file_size_limit(void **state) {
  (void)state;
  tune_database *database = open_here();
  put_rows(database, 1);
  const base_str before = contents_of(tune_database_path(database));
  struct rlimit saved, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
  limit = (struct rlimit){.rlim_cur = before.length + 100, .rlim_max = saved.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  const tune_record record = record_of(2, others, 2);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const base_status status = tune_database_put(database, &record, &diag);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
  assert_int_equal(status, BASE_IO);
  expect_report("File too large");
  assert_true(base_str_equal(before, contents_of(tune_database_path(database))));
  assert_int_equal(tune_database_count(database), 1);
  assert_int_equal(count_entries(folder, "cpu"), 1); // no temporary, no lock
  clear_reports();
  put_rows(database, 2);
  assert_int_equal(tune_database_count(open_here()), 2);
}

enum { NO_RIGHT_TO_MOUNT = 77 };

// In a child: a file system of its own in place of the folder.
static bool mount_small_disk(void) {
  return unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0 &&
         mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("none", folder, "tmpfs", 0, "size=64k") == 0;
}

static int fill_a_disk(void) {
  if (!mount_small_disk()) return NO_RIGHT_TO_MOUNT;
  tune_database *database = open_here();
  base_status status = BASE_OK;
  int64_t rows = 0;
  base_str before = BASE_STR("");
  while (status == BASE_OK && rows < 1000) {
    const tune_record record = record_of(++rows, others, 2);
    if (rows > 1) before = contents_of(tune_database_path(database));
    status = tune_database_put(database, &record, &diag);
  }
  if (status != BASE_IO || rows < 5) return 2;
  if (!strstr(rendered(), "No space left on device")) return 3;
  if (!base_str_equal(before, contents_of(tune_database_path(database)))) return 4;
  if (count_entries(folder, "cpu") != 1) return 5;
  clear_reports();
  return tune_database_count(open_here()) == (uint32_t)rows - 1 ? 0 : 6;
}

static int read_only_disk(void) {
  if (!mount_small_disk()) return NO_RIGHT_TO_MOUNT;
  tune_database *database = open_here();
  put_rows(database, 1);
  if (mount("none", folder, NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0) return 2;
  const tune_record record = record_of(2, NULL, 0);
  if (tune_database_put(database, &record, &diag) != BASE_IO) return 3;
  if (!strstr(rendered(), "Read-only file system")) return 4;
  clear_reports();
  return tune_database_count(open_here()) == 1 ? 0 : 5;
}

static void expect_child(int (*work)(void)) {
  const int code = exit_code_of(start_child(work));
  if (code == NO_RIGHT_TO_MOUNT) skip();
  assert_int_equal(code, 0);
}

static void test_a_full_disk(void **state) {
  (void)state;
  expect_child(fill_a_disk);
}

static void test_a_read_only_disk(void **state) {
  (void)state;
  expect_child(read_only_disk);
}

// ---- several processes --------------------------------------------------------------------------

static void test_two_databases_see_each_other(void **state) {
  (void)state;
  tune_database *a = open_here(), *b = open_here();
  put_rows(a, 1);
  put_rows(b, 2);
  assert_int_equal(tune_database_count(b), 2);
  assert_int_equal(tune_database_count(a), 1); // it has not looked since
  put_rows(a, 3);
  assert_int_equal(tune_database_count(a), 3);
  const tune_record *before = tune_database_at(a, 0);
  const tune_record kept = tune_record_copy(&arena, before);
  put_rows(b, 4);
  put_rows(a, 5);
  assert_true(same_record(before, &kept)); // records stay valid
}

enum { WRITERS = 8, PUTS = 6 };
static int writer_number;

static int write_and_read(void) {
  for (int i = 0; i < PUTS; i++) {
    base_arena_reset(&arena);
    clear_reports();
    tune_database *database = open_here(); // without a warning
    const uint32_t before = tune_database_count(database);
    tune_database_options options = options_of(folder);
    options.lock_seconds = 120;
    database = open_with(&options);
    put_rows(database, 1 + writer_number * PUTS + i);
    if (tune_database_count(database) < before + 1) return 2;
    for (uint32_t j = 0; j < tune_database_count(database); j++)
      if (tune_record_problem(&arena, tune_database_at(database, j))) return 3;
  }
  return 0;
}

static void test_writers_lose_nothing(void **state) {
  (void)state;
  pid_t children[WRITERS];
  for (writer_number = 0; writer_number < WRITERS; writer_number++)
    children[writer_number] = start_child(write_and_read);
  for (int i = 0; i < WRITERS; i++)
    assert_int_equal(exit_code_of(children[i]), 0);
  const tune_database *database = open_here();
  assert_int_equal(tune_database_count(database), WRITERS * PUTS);
  for (uint32_t i = 0; i < WRITERS * PUTS; i++)
    assert_int_equal(tune_database_at(database, i)->key.rows, i + 1);
  assert_int_equal(count_entries(folder, "cpu"), 1);
}

static int write_for_ever(void) {
  for (int64_t rows = 1; rows > 0; rows = rows % 30 + 1) {
    base_arena_reset(&arena);
    clear_reports();
    put_rows(open_here(), rows);
  }
  return 1;
}

static void test_a_writer_is_killed(void **state) {
  (void)state;
  uint64_t seed = 4711;
  for (int i = 0; i < 20; i++) {
    const pid_t child = start_child(write_for_ever);
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    usleep(2000 + (useconds_t)(seed >> 40) % 30000);
    kill(child, SIGKILL);
    assert_int_equal(exit_code_of(child), -SIGKILL);
    const tune_database *database = open_here(); // without a warning
    for (uint32_t j = 0; j < tune_database_count(database); j++)
      assert_null(tune_record_problem(&arena, tune_database_at(database, j)));
  }
  // What it left behind is in nobody's way, and goes with the next change.
  write_file(base_str_format(&arena, "%s.tmp-1-1", tune_database_path(open_here())).data,
             BASE_STR("half a fi"));
  put_rows(open_here(), 1000);
  assert_int_equal(count_entries(folder, "cpu"), 1);
}

static void test_a_lock_that_others_keep(void **state) {
  (void)state;
  tune_database_options options = options_of(folder);
  options.lock_seconds = 0.05;
  tune_database *database = open_with(&options);
  const tune_record record = record_of(1, NULL, 0);
  base_lock lock;
  base_str why;
  const char *path = base_str_format(&arena, "%s.lock", tune_database_path(database)).data;
  assert_int_equal(base_lock_take(&arena, path, "having a rest", 0, &lock, &why), BASE_OK);
  assert_int_equal(tune_database_put(database, &record, &diag), BASE_IO);
  expect_report(
      base_str_format(&arena, "held by process %ld, having a rest; waited 0.05 s", (long)getpid())
          .data);
  clear_reports();
  open_here(); // reading needs no lock
  base_lock_release(&lock);
  put(database, &record);
}

// ---- whole files --------------------------------------------------------------------------------

static void test_merging(void **state) {
  (void)state;
  const char *date = "2026-05-01T00:00:00Z", *earlier = "2026-04-01T00:00:00Z";
  const char *later = "2026-06-01T00:00:00Z";
  tune_database_options options = options_of(shipped);
  tune_database *other = open_with(&options), *database = open_here();
  put_variant(database, 1, "measured", NULL, date, "own 1");
  put_variant(database, 2, "measured", NULL, date, "own 2");
  put_variant(database, 3, "measured", NULL, date, "own 3");
  put_variant(other, 2, "measured", NULL, later, "other 2");
  put_variant(other, 3, "measured", NULL, earlier, "other 3");
  put_variant(other, 4, "measured", NULL, earlier, "other 4");
  tune_record more = record_of(3, others + 2, 2);
  more.date = earlier;
  put(other, &more); // its trials are two more
  tune_merge_counts counts;
  const char *path = tune_database_path(other);
  assert_int_equal(tune_database_merge(database, path, &counts, &diag), BASE_OK);
  assert_int_equal(counts.added, 1);
  assert_int_equal(counts.replaced, 1);
  assert_int_equal(counts.kept, 1);
  const tune_database *after = open_here();
  assert_int_equal(tune_database_count(after), 4);
  static const char *const names[] = {"own 1", "other 2", "own 3", "other 4"};
  static const uint32_t trials[] = {1, 1, 3, 1};
  for (uint32_t i = 0; i < 4; i++) {
    assert_string_equal(tune_database_at(after, i)->graph_name, names[i]);
    assert_int_equal(tune_database_at(after, i)->trial_count, trials[i]);
  }
  // Again: nothing changes.
  const base_str text = contents_of(tune_database_path(database));
  assert_int_equal(tune_database_merge(database, path, &counts, &diag), BASE_OK);
  assert_int_equal(counts.kept, 3);
  assert_true(base_str_equal(text, contents_of(tune_database_path(database))));
  // What is not about this device is none of its business.
  options = options_of(folder);
  options.device.units = 4;
  tune_database *smaller = open_with(&options);
  assert_int_equal(tune_database_merge(smaller, path, &counts, &diag), BASE_INVALID);
  expect_report("the file is about another device");
  clear_reports();
  assert_int_equal(tune_database_merge(database, "/nowhere", &counts, &diag), BASE_IO);
  expect_report("'/nowhere'");
  clear_reports();
  write_file(path, BASE_STR("nothing"));
  assert_int_equal(tune_database_merge(database, path, &counts, &diag), BASE_INVALID);
  expect_report("nothing can be read of it");
}

static uint32_t prune(tune_database *database, tune_prune_rule rule) {
  uint32_t dry, pruned;
  assert_int_equal(tune_database_prune(database, &rule, true, &dry, &diag), BASE_OK);
  assert_int_equal(tune_database_prune(database, &rule, false, &pruned, &diag), BASE_OK);
  assert_int_equal(dry, pruned);
  return pruned;
}

static void test_pruning(void **state) {
  (void)state;
  tune_database *database = open_here();
  tune_record record = record_of(1, NULL, 0);
  put(database, &record);
  record.key.compiler = "LLVM 18";
  put(database, &record);
  record.key.driver = "550";
  put(database, &record);
  record.key.timing = 2;
  put(database, &record);
  record.key.generator = "g2";
  record.date = "2025-11-30T20:00:00Z";
  put(database, &record);
  uint32_t would;
  const tune_prune_rule all = {.before = "2027"};
  assert_int_equal(tune_database_prune(database, &all, true, &would, &diag), BASE_OK);
  assert_int_equal(would, 5);
  assert_int_equal(prune(database, (tune_prune_rule){0}), 0);
  assert_int_equal(tune_database_count(open_here()), 5);
  assert_int_equal(prune(database, (tune_prune_rule){.before = "2026-01-01T00:00:00Z"}), 1);
  assert_int_equal(prune(database, (tune_prune_rule){.generator = "1e5"}), 0);
  assert_int_equal(prune(database, (tune_prune_rule){.timing = 1}), 1);
  assert_int_equal(prune(database, (tune_prune_rule){.driver = ""}), 1);
  assert_int_equal(prune(database, (tune_prune_rule){.compiler = "LLVM 19.1.7"}), 1);
  assert_int_equal(prune(database, (tune_prune_rule){.generator = "another"}), 1);
  assert_int_equal(tune_database_count(open_here()), 0);
  put_rows(database, 1);
  assert_int_equal(tune_database_count(open_here()), 1);
}

static void test_any_file_can_be_shown(void **state) {
  (void)state;
  uint32_t count;
  assert_int_equal((tune_database_list(&arena, shipped, &count), count), 0);
  put_rows(open_here(), 1);
  tune_database_options options = options_of(folder);
  options.device = (tune_device){"cuda", "NVIDIA H200", "9.0", 132};
  put_rows(open_with(&options), 2);
  const char *const *paths = tune_database_list(&arena, folder, &count);
  assert_int_equal(count, 2);
  assert_non_null(strstr(paths[0], "/cpu-Intel-"));
  assert_non_null(strstr(paths[1], "/cuda-NVIDIA-H200-"));
  tune_database *database = tune_database_open_file(&arena, paths[1], &diag);
  assert_non_null(database);
  assert_string_equal(tune_database_path(database), paths[1]);
  const tune_device *device = tune_database_device(database);
  assert_string_equal(device->name, "NVIDIA H200");
  assert_int_equal(device->units, 132);
  assert_int_equal(tune_database_at(database, 0)->key.rows, 2);
  const tune_record record = record_of(3, NULL, 0);
  assert_int_equal(tune_database_put(database, &record, &diag), BASE_INVALID);
  clear_reports();
  assert_null(tune_database_open_file(&arena, shipped, &diag));
  expect_report("No such file");
}

// ---- journals -----------------------------------------------------------------------------------

static tune_journal *open_journal(tune_database *database, bool resume, uint32_t *count,
                                  const tune_trial **trials) {
  const tune_key key = record_of(7, NULL, 0).key;
  tune_journal *journal = tune_journal_open(database, &key, 42, resume, count, trials, &diag);
  if (!journal) fail_msg("%s", rendered());
  return journal;
}

static void append(tune_journal *journal, const tune_trial *trial) {
  if (tune_journal_append(journal, trial, &diag) != BASE_OK) fail_msg("%s", rendered());
}

static const char *journal_path(void) {
  DIR *directory = opendir(folder);
  const char *path = NULL;
  for (struct dirent *entry; (entry = readdir(directory));) {
    const char *dot = strrchr(entry->d_name, '.');
    if (dot && strcmp(dot, ".journal") == 0)
      path = base_str_format(&arena, "%s/%s", folder, entry->d_name).data;
  }
  closedir(directory);
  return path;
}

static bool same_as_stored(const tune_trial *trial, const tune_trial *given) {
  const tune_trial copy = tune_trial_copy(&arena, given, "cpu");
  return same_trial(trial, &copy);
}

static void test_a_journal_is_resumed(void **state) {
  (void)state;
  uint32_t count;
  const tune_trial *trials;
  tune_database *database = open_here();
  tune_journal *journal = open_journal(database, true, &count, &trials); // there is none
  assert_int_equal(count, 0);
  for (size_t i = 0; i < COUNT(others); i++)
    append(journal, &others[i]);
  tune_trial bad = others[0];
  bad.schedule = "unroll=99";
  assert_int_equal(tune_journal_append(journal, &bad, &diag), BASE_INVALID);
  tune_journal_close(journal, false);
  clear_reports();

  journal = open_journal(database, true, &count, &trials);
  assert_int_equal(count, COUNT(others));
  for (uint32_t i = 0; i < count; i++)
    assert_true(same_as_stored(&trials[i], &others[i]));
  append(journal, &timed);
  tune_journal_close(journal, false);

  const tune_key key = record_of(7, NULL, 0).key;
  assert_null(tune_journal_open(database, &key, 43, true, &count, &trials, &diag));
  expect_report("had seed 42");
  clear_reports();
  tune_key another = key;
  another.rows = 8;
  journal = tune_journal_open(database, &another, 43, true, &count, &trials, &diag);
  assert_int_equal(count, 0);
  tune_journal_close(journal, true);

  journal = open_journal(database, true, &count, &trials);
  assert_int_equal(count, COUNT(others) + 1);
  assert_true(same_as_stored(&trials[count - 1], &timed));
  tune_journal_close(journal, false);
  journal = open_journal(database, false, &count, &trials); // anew
  assert_int_equal(count, 0);
  tune_journal_close(journal, false);
  journal = open_journal(database, true, &count, &trials);
  assert_int_equal(count, 0);
  tune_journal_close(journal, true);
  assert_null(journal_path());
  assert_int_equal(count_entries(folder, "cpu"), 0); // no lock either
}

static void test_a_journal_cut_at_every_byte(void **state) {
  (void)state;
  uint32_t count;
  const tune_trial *trials;
  tune_journal *journal = open_journal(open_here(), false, &count, &trials);
  for (size_t i = 0; i < 3; i++)
    append(journal, &others[i]);
  tune_journal_close(journal, false);
  const char *path = journal_path();
  const base_str text = contents_of(path);
  uint32_t lines = 0;
  for (size_t length = 0; length <= text.length; length++) {
    write_raw(path, text.data, length);
    lines += length > 0 && text.data[length - 1] == '\n';
    tune_database *database = open_here();
    journal = open_journal(database, true, &count, &trials);
    assert_int_equal(diag.reports.count, 0);
    assert_int_equal(count, lines > 0 ? lines - 1 : 0);
    append(journal, &others[4]); // it goes on behind what is whole
    tune_journal_close(journal, false);
    journal = open_journal(database, true, &count, &trials);
    assert_int_equal(diag.reports.count, 0);
    assert_int_equal(count, lines > 0 ? lines : 1);
    for (uint32_t i = 0; i + 1 < count; i++)
      assert_true(same_as_stored(&trials[i], &others[i]));
    assert_true(same_as_stored(&trials[count - 1], &others[4]));
    tune_journal_close(journal, false);
  }
  assert_int_equal(lines, 4);
}

static void test_a_damaged_journal(void **state) {
  (void)state;
  uint32_t count;
  const tune_trial *trials;
  tune_journal *journal = open_journal(open_here(), false, &count, &trials);
  for (size_t i = 0; i < 3; i++)
    append(journal, &others[i]);
  tune_journal_close(journal, false);
  const char *path = journal_path();
  const base_str text = contents_of(path);
  write_file(path, base_str_from(replaced(text.data, "outcome: wrong", "outcome: [}")));
  journal = open_journal(open_here(), true, &count, &trials);
  assert_int_equal(count, 2);
  expect_report(".journal:3: left out: not YAML");
  tune_journal_close(journal, false);
  clear_reports();
  write_file(path, base_str_from(replaced(text.data, "seed: 42", "seed: {")));
  journal = open_journal(open_here(), true, &count, &trials);
  assert_int_equal(count, 0); // nobody knows what they are trials of
  expect_report(".journal:1: left out: not YAML");
  tune_journal_close(journal, true);
}

static void test_one_search_has_a_journal(void **state) {
  (void)state;
  uint32_t count;
  const tune_trial *trials;
  tune_database_options options = options_of(folder);
  options.lock_seconds = 0.02;
  tune_database *database = open_with(&options);
  tune_journal *journal = open_journal(database, false, &count, &trials);
  const tune_key key = record_of(7, NULL, 0).key;
  assert_null(tune_journal_open(database, &key, 42, true, &count, &trials, &diag));
  expect_report("searching for this kernel's schedule; waited 0.02 s");
  put_rows(database, 7); // which is no change of the database
  tune_journal_close(journal, true);
}

static int append_for_ever(void) {
  uint32_t count;
  const tune_trial *trials;
  const tune_key key = record_of(7, NULL, 0).key;
  tune_database *database = open_here();
  tune_journal *journal = tune_journal_open(database, &key, 42, true, &count, &trials, &diag);
  while (journal && tune_journal_append(journal, &others[1], &diag) == BASE_OK)
    ;
  return 1;
}

static void test_a_search_is_killed(void **state) {
  (void)state;
  uint32_t count = 0, before = 0;
  const tune_trial *trials;
  for (int i = 0; i < 10; i++) {
    const pid_t child = start_child(append_for_ever);
    usleep(5000 + 1777 * (useconds_t)i);
    kill(child, SIGKILL);
    assert_int_equal(exit_code_of(child), -SIGKILL);
    tune_journal *journal = open_journal(open_here(), true, &count, &trials);
    assert_int_equal(diag.reports.count, 0);
    assert_true(count >= before);
    for (uint32_t j = 0; j < count; j++)
      assert_true(same_trial(&trials[j], &trials[0]));
    before = count;
    tune_journal_close(journal, false);
    if (count > 20000) break;
  }
  assert_true(count > 0);
}

static void test_a_journal_on_a_full_disk(void **state) {
  (void)state;
  uint32_t count;
  const tune_trial *trials;
  tune_database *database = open_here();
  tune_journal *journal = open_journal(database, false, &count, &trials);
  append(journal, &others[0]);
  struct rlimit saved, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
  const base_str before = contents_of(journal_path());
  limit = (struct rlimit){.rlim_cur = before.length + 20, .rlim_max = saved.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const base_status status = tune_journal_append(journal, &others[1], &diag);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
  assert_int_equal(status, BASE_IO);
  expect_report("cannot write '");
  assert_true(base_str_equal(before, contents_of(journal_path())));
  clear_reports();
  append(journal, &others[2]); // not in the middle of what did not fit
  tune_journal_close(journal, false);
  journal = open_journal(database, true, &count, &trials);
  assert_int_equal(count, 2);
  assert_true(same_as_stored(&trials[1], &others[2]));
  tune_journal_close(journal, true);
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

static void use_everything(base_arena *own, const tune_record *record) {
  base_diag errors;
  uint32_t count;
  const tune_trial *trials;
  const tune_database_options options = options_of(folder);
  base_diag_init(&errors, own, BASE_STR(""), BASE_STR(""));
  tune_database *database = tune_database_open(own, &options, &errors);
  assert_int_equal(tune_database_put(database, record, &errors), BASE_OK);
  tune_journal *journal =
      tune_journal_open(database, &record->key, 1, true, &count, &trials, &errors);
  assert_int_equal(tune_journal_append(journal, &others[0], &errors), BASE_OK);
  tune_journal_close(journal, false);
  assert_int_equal(errors.reports.count, 0);
}

// No descriptor, lock or temporary file stays, and the file is always whole.
static void test_every_allocation_may_fail(void **state) {
  (void)state;
  const base_allocator allocator = {NULL, allocate, release};
  const tune_record record = record_of(1, others, COUNT(others));
  for (int64_t rows = 2; rows < 6; rows++)
    put_rows(open_here(), rows);
  volatile bool done = false;
  volatile long failures = 0;
  for (volatile long limit = 0; !done; limit++) {
    base_arena own;
    base_arena_init(&own, &allocator);
    allowed = limit;
    jmp_buf escape;
    if (BASE_TRY(&own, escape)) {
      use_everything(&own, &record);
      done = true;
    } else {
      failures++;
    }
    base_arena_reset(&own);
    assert_int_equal(live, 0);
    assert_int_equal(count_entries(folder, ".lock"), 0);
  }
  assert_true(failures > 3);
  assert_int_equal(tune_database_count(open_here()), 5);
  const int fd = open("/dev/null", O_RDONLY);
  assert_true(fd < 10); // no descriptor stays
  close(fd);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(keys_follow_their_table),
      TEST(outcomes_have_names),
      TEST(every_field_comes_back),
      TEST(files_are_named_after_devices),
      TEST(a_record_replaces_its_like),
      TEST(warm_and_cold_stand_side_by_side),
      TEST(what_cannot_be_stored),
      TEST(a_file_that_was_removed_stays_removed),
      TEST(the_nearest_rows_are_found),
      TEST(which_of_several_is_found),
      TEST(shipped_records_stand_behind),
      TEST(records_that_are_left_out),
      TEST(a_file_of_the_first_schema),
      TEST(files_that_are_refused),
      TEST(a_file_cut_at_every_byte),
      TEST(a_file_with_any_byte_changed),
      TEST(looking_up_reads_little),
      TEST(every_damaged_file_is_kept),
      TEST(long_lists_of_warnings_are_cut),
      TEST(a_read_only_database),
      TEST(a_folder_without_rights),
      TEST(a_file_size_limit),
      TEST(a_full_disk),
      TEST(a_read_only_disk),
      TEST(two_databases_see_each_other),
      TEST(writers_lose_nothing),
      TEST(a_writer_is_killed),
      TEST(a_lock_that_others_keep),
      TEST(merging),
      TEST(pruning),
      TEST(any_file_can_be_shown),
      TEST(a_journal_is_resumed),
      TEST(a_journal_cut_at_every_byte),
      TEST(a_damaged_journal),
      TEST(one_search_has_a_journal),
      TEST(a_search_is_killed),
      TEST(a_journal_on_a_full_disk),
      TEST(every_allocation_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
