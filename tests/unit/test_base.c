// The base layer: arenas and what happens when memory ends, text, diagnostics as people see them,
// files.
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static base_arena arena;

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

static void assert_text(base_str text, const char *expected) {
  if (!base_str_equal(text, base_str_from(expected)))
    fail_msg("expected\n%s\nfound\n%.*s", expected, BASE_FMT(text));
}

// ---- arena --------------------------------------------------------------------------------------

static void test_arena_gives_zeroed_aligned_memory(void **state) {
  (void)state;
  unsigned char *objects[300];
  for (size_t i = 0; i < 300; i++) {
    objects[i] = base_alloc(&arena, i);
    assert_int_equal((uintptr_t)objects[i] % _Alignof(max_align_t), 0);
    for (size_t j = 0; j < i; j++)
      assert_int_equal(objects[i][j], 0);
    memset(objects[i], (int)i, i);
  }
  for (size_t i = 0; i < 300; i++) // nothing overlaps
    for (size_t j = 0; j < i; j++)
      assert_int_equal(objects[i][j], i & 0xff);
  memset(base_alloc(&arena, 5 << 20), 1, 5 << 20);
  base_arena_reset(&arena);
  assert_non_null(base_alloc(&arena, 1));
}

static char order[8];

static void record(void *object) {
  strcat(order, object);
}

static void test_deferred_calls_run_newest_first(void **state) {
  (void)state;
  order[0] = '\0';
  base_defer(&arena, record, "a");
  base_defer(&arena, record, "b");
  base_defer(&arena, record, "c");
  base_arena_reset(&arena);
  assert_string_equal(order, "cba");
  base_arena_reset(&arena);
  assert_string_equal(order, "cba");
}

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

static void test_failed_allocations_escape(void **state) {
  (void)state;
  limited limits = {.allowed = 1};
  const base_allocator allocator = {&limits, limited_allocate, limited_release};
  base_arena small;
  base_arena_init(&small, &allocator);
  jmp_buf escape;
  volatile int reached = 0;
  if (BASE_TRY(&small, escape)) {
    base_alloc(&small, 16);
    reached = 1;
    base_alloc(&small, 1 << 24);
    reached = 2;
  }
  assert_int_equal(reached, 1);
  base_arena_reset(&small);
  assert_int_equal(limits.alive, 0);

  if (BASE_TRY(&small, escape)) { // the arena cannot note the object, so it must release it now
    order[0] = '\0';
    base_defer(&small, record, "x");
    reached = 3;
  }
  assert_int_equal(reached, 1);
  assert_string_equal(order, "x");

  if (BASE_TRY(&small, escape)) {
    base_alloc_array(&small, SIZE_MAX / 2, 3);
    reached = 4;
  }
  assert_int_equal(reached, 1);
  base_arena_reset(&small);
}

static void test_vectors_grow_and_never_dangle(void **state) {
  (void)state;
  BASE_VECTOR(uint32_t) numbers = {0};
  base_push(&arena, &numbers, 7);
  const uint32_t *first = numbers.data;
  for (uint32_t i = 1; i < 1000; i++)
    base_push(&arena, &numbers, i);
  assert_int_equal(numbers.count, 1000);
  assert_int_equal(*first, 7);
  assert_int_equal(numbers.data[0], 7);
  assert_int_equal(numbers.data[999], 999);
}

// ---- text ---------------------------------------------------------------------------------------

static void test_text(void **state) {
  (void)state;
  base_text text = {.arena = &arena};
  assert_text(base_text_str(&text), "");
  for (int i = 0; i < 100; i++)
    base_text_printf(&text, "%d,", i % 10);
  assert_int_equal(text.length, 200);
  assert_int_equal(strlen(text.data), 200);
  const base_str wide = base_str_format(&arena, "%0500d", 7);
  assert_int_equal(wide.length, 500);
  base_text_printf(&text, "%s", wide.data); // more than any fixed buffer
  assert_int_equal(text.length, 700);
  assert_int_equal(text.data[699], '7');
  assert_text(base_str_copy(&arena, (base_str){"abcdef", 3}), "abc");
  assert_true(base_str_equal((base_str){0}, BASE_STR("")));
  assert_false(base_str_equal(BASE_STR("ab"), BASE_STR("abc")));
}

static const char *nearest(const char *word) {
  static const char *const names[] = {"add", "sub", "mul", "rms_norm", "softmax", "f32", "k"};
  return base_nearest(base_str_from(word), names, sizeof names / sizeof names[0]);
}

static void test_nearest(void **state) {
  (void)state;
  assert_string_equal(nearest("rms_nrom"), "rms_norm"); // a swap
  assert_string_equal(nearest("rmsnorm"), "rms_norm");
  assert_string_equal(nearest("sotfmaxx"), "softmax"); // two edits
  assert_string_equal(nearest("ad"), "add");
  assert_null(nearest("softplus"));
  assert_null(nearest("q")); // one edit, but no letter in common
  assert_null(nearest(""));
  char longest[1000];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_null(nearest(longest));
}

// ---- diagnostics --------------------------------------------------------------------------------

static base_str render_one(base_str source, uint32_t line, uint32_t column, uint32_t length) {
  base_diag diag;
  base_diag_init(&diag, &arena, (base_str){0}, source);
  base_error(&diag, (base_loc){line, column, length}, "m");
  return base_diag_render(&diag);
}

static void test_reports_are_sorted_and_shown_with_their_line(void **state) {
  (void)state;
  base_diag diag;
  base_diag_init(&diag, &arena, BASE_STR("a.fir"), BASE_STR("first\r\nsecond line\n\nfourth"));
  assert_int_equal(diag.status, BASE_OK);
  base_error_status(&diag, BASE_UNSUPPORTED, (base_loc){0}, "no %s", "place");
  base_error(&diag, (base_loc){4, 1, 6}, "last");
  base_error(&diag, (base_loc){2, 8, 4}, "second");
  base_hint(&diag, "look %d", 2);
  base_error(&diag, (base_loc){2, 1, 1}, "first");
  base_error(&diag, (base_loc){1, 6, 1}, "at the end");
  base_error(&diag, (base_loc){5, 1, 1}, "behind the end");
  assert_int_equal(diag.error_count, 6);
  assert_int_equal(diag.status, BASE_UNSUPPORTED);
  assert_text(base_diag_render(&diag), "a.fir:1:6: error: at the end\n"
                                       "  1 | first\n"
                                       "    |      ^\n"
                                       "a.fir:2:1: error: first\n"
                                       "  2 | second line\n"
                                       "    | ^\n"
                                       "a.fir:2:8: error: second\n"
                                       "  2 | second line\n"
                                       "    |        ^~~~\n"
                                       "  hint: look 2\n"
                                       "a.fir:4:1: error: last\n"
                                       "  4 | fourth\n"
                                       "    | ^~~~~~\n"
                                       "a.fir:5:1: error: behind the end\n"
                                       "a.fir: error: no place\n");
}

static void test_caret_stays_in_place(void **state) {
  (void)state;
  assert_text(render_one(BASE_STR("\t\tab\tcd"), 1, 6, 2), "1:6: error: m\n"
                                                           "  1 |   ab cd\n"
                                                           "    |      ^~\n");
  // An e with acute accent is two bytes and one column; the second report marks it whole.
  assert_text(render_one(BASE_STR("// \xc3\xa9 x"), 1, 7, 1), "1:7: error: m\n"
                                                              "  1 | // \xc3\xa9 x\n"
                                                              "    |      ^\n");
  assert_text(render_one(BASE_STR("a\x01\x1b[31m\xff\xc3"), 1, 8, 1),
              "1:8: error: m\n"
              "  1 | a\\x01\\x1b[31m\\xff\\xc3\n"
              "    |              ^~~~\n");
  assert_text(render_one(BASE_STR("short"), 1, 4000000000u, 4000000000u), "1:4000000000: error: m\n"
                                                                          "  1 | short\n"
                                                                          "    |      ^\n");
  assert_text(render_one((base_str){0}, 1, 1, 1), "1:1: error: m\n");
}

static void test_long_lines_are_cut_around_the_caret(void **state) {
  (void)state;
  char line[5001];
  for (int i = 0; i < 5000; i++)
    line[i] = (char)('a' + i % 26);
  line[5000] = '\0';
  for (uint32_t column = 1; column <= 5000; column += 7) {
    const base_str text = render_one(base_str_from(line), 1, column, 3);
    assert_true(text.length < 350);
    const char *drawn = strstr(text.data, "  1 | "), *marks = strstr(text.data, "\n    | ") + 1;
    const char *caret = strchr(marks, '^');
    assert_int_equal(drawn[caret - marks], line[column - 1]);
  }
}

// ---- hash ---------------------------------------------------------------------------------------

static void test_hash(void **state) {
  (void)state;
  // The published value of XXH3_128bits for no input at all: keys on disk must not change by
  // accident.
  assert_text(base_hash_hex(&arena, base_hash_bytes(NULL, 0)), "99aa06d3014798d86001c324468d497f");
  const base_hash a = base_hash_bytes("a", 1), b = base_hash_bytes("b", 1);
  assert_false(base_hash_equal(a, b));
  assert_false(base_hash_equal(base_hash_combine(a, b), base_hash_combine(b, a)));
  assert_true(base_hash_equal(base_hash_combine(a, b), base_hash_combine(a, b)));
}

// ---- files --------------------------------------------------------------------------------------

static char folder[64];

static int set_up_folder(void **state) {
  strcpy(folder, "/tmp/fathom-test-base-XXXXXX");
  return mkdtemp(folder) ? set_up(state) : -1;
}

static int tear_down_folder(void **state) {
  const base_str command = base_str_format(&arena, "rm -rf '%s'", folder);
  return system(command.data) == 0 ? tear_down(state) : -1;
}

static const char *path_of(const char *name) {
  return base_str_format(&arena, "%s/%s", folder, name).data;
}

static int count_entries(const char *path) {
  DIR *directory = opendir(path);
  int count = -2; // . and ..
  while (readdir(directory))
    count++;
  closedir(directory);
  return count;
}

static void assert_unreadable(const char *path, const char *reason) {
  base_str contents, why;
  assert_int_equal(base_file_read(&arena, path, &contents, &why), BASE_IO);
  if (!strstr(why.data, reason) || !strstr(why.data, path))
    fail_msg("expected '%s' and '%s' in '%s'", path, reason, why.data);
}

static void test_files_come_back_as_written(void **state) {
  (void)state;
  base_str contents, why;
  char data[10000];
  for (size_t i = 0; i < sizeof data; i++)
    data[i] = (char)(i * 7);
  const char *path = path_of("data");
  assert_int_equal(base_file_write(&arena, path, data, sizeof data, &why), BASE_OK);
  assert_int_equal(base_file_read(&arena, path, &contents, &why), BASE_OK);
  assert_int_equal(contents.length, sizeof data);
  assert_memory_equal(contents.data, data, sizeof data);
  assert_int_equal(base_file_write(&arena, path, "", 0, &why), BASE_OK); // replaces
  assert_int_equal(base_file_read(&arena, path, &contents, &why), BASE_OK);
  assert_int_equal(contents.length, 0);
  assert_int_equal(count_entries(folder), 1);
}

static size_t asked; // how often `behind_mark` was

static size_t behind_mark(base_str text) {
  asked++;
  const char *mark = memchr(text.data, '!', text.length);
  return mark ? (size_t)(mark - text.data) + 1 : 0;
}

static void test_files_are_read_until_enough_is_known(void **state) {
  (void)state;
  enum { BYTES = 3000000 };
  static const size_t marks[] = {0, 65535, 65536, 262144, 1000000, BYTES - 1};
  base_str contents, why;
  char *data = base_alloc(&arena, BYTES);
  memset(data, '.', BYTES);
  const char *path = path_of("long");
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    data[marks[i]] = '!';
    asked = 0;
    assert_int_equal(base_file_write(&arena, path, data, BYTES, &why), BASE_OK);
    assert_int_equal(base_file_read_until(&arena, path, behind_mark, &contents, &why), BASE_OK);
    assert_int_equal(contents.length, marks[i] + 1);
    assert_memory_equal(contents.data, data, contents.length);
    assert_true(asked <= 4 && (asked == 1) == (marks[i] < 65536)); // of parts that grow
    data[marks[i]] = '.';
  }
  assert_int_equal(base_file_write(&arena, path, data, BYTES, &why), BASE_OK);
  assert_int_equal(base_file_read_until(&arena, path, behind_mark, &contents, &why), BASE_OK);
  assert_int_equal(contents.length, BYTES); // there is none
  assert_int_equal(base_file_write(&arena, path, "", 0, &why), BASE_OK);
  assert_int_equal(base_file_read_until(&arena, path, behind_mark, &contents, &why), BASE_OK);
  assert_int_equal(contents.length, 0);
  assert_int_equal(base_file_read_until(&arena, folder, behind_mark, &contents, &why), BASE_IO);
}

// A reader of a file that others replace all the time gets one of their files, each time.
static void test_replaced_files_are_read(void **state) {
  (void)state;
  base_str why, contents;
  const char *path = path_of("file"), *shorter = path_of("shorter"), *longer = path_of("longer");
  const char *next = path_of("next");
  assert_int_equal(base_file_write(&arena, shorter, "short", 5, &why), BASE_OK);
  assert_int_equal(base_file_write(&arena, longer, "long, long", 10, &why), BASE_OK);
  assert_int_equal(link(shorter, path), 0);
  const pid_t child = fork();
  if (child == 0)
    for (uint32_t i = 0;; i++)
      if (link(i % 2 ? shorter : longer, next) != 0 || rename(next, path) != 0) _exit(1);
  uint32_t reads = 0;
  for (base_status status = BASE_OK; status == BASE_OK && reads < 20000; reads++) {
    status = base_file_read(&arena, path, &contents, &why);
    if (status == BASE_OK) assert_true(contents.length == 5 || contents.length == 10);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  if (reads < 20000) fail_msg("read %u: %s", reads, why.data);
}

static void test_read_says_why_not(void **state) {
  (void)state;
  assert_unreadable(path_of("missing"), "No such file");
  assert_unreadable(folder, "Is a directory");
  assert_unreadable("/dev/null", "not a regular file");
  base_str why;
  const char *path = path_of("huge");
  assert_int_equal(base_file_write(&arena, path, "x", 1, &why), BASE_OK);
  assert_int_equal(truncate(path, (off_t)1 << 40), 0); // sparse
  assert_unreadable(path, "limit of 1 GiB");
  assert_int_equal(truncate(path, 1), 0);
  assert_int_equal(chmod(path, 0), 0);
  if (geteuid() != 0) assert_unreadable(path, "Permission denied");
}

static void test_failed_writes_leave_nothing(void **state) {
  (void)state;
  base_str why, contents;
  assert_int_equal(base_file_write(&arena, path_of("no/such"), "x", 1, &why), BASE_IO);
  assert_non_null(strstr(why.data, "No such file"));
  assert_int_equal(base_file_write(&arena, folder, "x", 1, &why), BASE_IO);
  assert_non_null(strstr(why.data, "Is a directory"));
  assert_int_equal(count_entries(folder), 0);
  // The disk fills up half-way (a file size limit stands in for it): the old file stays.
  assert_int_equal(base_file_write(&arena, path_of("file"), "old", 3, &why), BASE_OK);
  struct rlimit saved, limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
  limit = (struct rlimit){.rlim_cur = 5000, .rlim_max = saved.rlim_max};
  signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const char *data = base_alloc(&arena, 10000);
  const base_status status = base_file_write(&arena, path_of("file"), data, 10000, &why);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
  assert_int_equal(status, BASE_IO);
  assert_non_null(strstr(why.data, "File too large"));
  assert_int_equal(base_file_read(&arena, path_of("file"), &contents, &why), BASE_OK);
  assert_text(contents, "old");
  assert_int_equal(count_entries(folder), 1);
}

// What is no regular file, /dev/stdout say, takes the bytes and stays what it is. (A pipe of our
// own: were this broken, root would replace a device of the machine.)
static void test_pipes_are_written_to(void **state) {
  (void)state;
  base_str why;
  struct stat info;
  char data[4] = {0};
  const char *path = path_of("pipe");
  assert_int_equal(mkfifo(path, 0600), 0);
  const int reader = open(path, O_RDWR | O_NONBLOCK);
  assert_int_equal(base_file_write(&arena, path, "abc", 3, &why), BASE_OK);
  assert_int_equal(read(reader, data, sizeof data), 3);
  close(reader);
  assert_string_equal(data, "abc");
  assert_int_equal(stat(path, &info), 0);
  assert_true(S_ISFIFO(info.st_mode));
}

static void test_directories(void **state) {
  (void)state;
  base_str why;
  const char *deep = path_of("a/b//c/");
  assert_int_equal(base_directory_create(&arena, deep, &why), BASE_OK);
  assert_int_equal(base_directory_create(&arena, deep, &why), BASE_OK);
  struct stat info;
  assert_int_equal(stat(path_of("a/b/c"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  assert_int_equal(base_file_write(&arena, path_of("a/file"), "x", 1, &why), BASE_OK);
  assert_int_equal(base_directory_create(&arena, path_of("a/file/b"), &why), BASE_IO);
  assert_non_null(strstr(why.data, "Not a directory"));
}

static void test_status(void **state) {
  (void)state;
  assert_string_equal(base_status_text(BASE_OK), "success");
  assert_string_equal(base_status_text(BASE_INTERNAL), "internal error");
  assert_string_equal(base_status_text((base_status)99), "unknown status");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
#define FILE_TEST(name)                                                                            \
  cmocka_unit_test_setup_teardown(test_##name, set_up_folder, tear_down_folder)
  const struct CMUnitTest tests[] = {
      TEST(arena_gives_zeroed_aligned_memory),
      TEST(deferred_calls_run_newest_first),
      TEST(failed_allocations_escape),
      TEST(vectors_grow_and_never_dangle),
      TEST(text),
      TEST(nearest),
      TEST(reports_are_sorted_and_shown_with_their_line),
      TEST(caret_stays_in_place),
      TEST(long_lines_are_cut_around_the_caret),
      TEST(hash),
      FILE_TEST(files_come_back_as_written),
      FILE_TEST(files_are_read_until_enough_is_known),
      FILE_TEST(replaced_files_are_read),
      FILE_TEST(read_says_why_not),
      FILE_TEST(failed_writes_leave_nothing),
      FILE_TEST(pipes_are_written_to),
      FILE_TEST(directories),
      TEST(status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
