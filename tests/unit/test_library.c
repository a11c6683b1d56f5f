// base_library_open against files made for the test: links to small libraries of libc that nothing
// else opens, in folders of all the kinds a specification can name.
#include "base/base.h"

#include <dlfcn.h>
#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char library[] = "libBrokenLocale.so.1", companion[] = "libanl.so.1";
static const char *const sonames[] = {"libfathom-test.so.2", "libfathom-test.so.1", NULL};
static const char *const places[] = {"$FATHOM_TEST_ROOT/lib", "",
                                     "$FATHOM_TEST_PATH/../py*/pkg/*/lib", NULL};

static const base_library_spec spec = {
    .name = "the test library",
    .variable = "FATHOM_LIBTEST",
    .sonames = sonames,
    .places = places,
    .companions = "libfathom-friend.so.*",
    .advice = "install it",
};

typedef struct fixture {
  base_arena arena;
  char folder[64], library[4096], companion[4096];
} fixture;

static void find_system_library(const char *soname, char *path) {
  struct link_map *map;
  void *handle = dlopen(soname, RTLD_NOW);
  if (handle == NULL) fail_msg("%s", dlerror());
  assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
  snprintf(path, 4096, "%s", map->l_name);
  dlclose(handle);
}

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  base_arena_init(&f->arena, NULL);
  strcpy(f->folder, "/tmp/fathom-library-XXXXXX");
  if (mkdtemp(f->folder) == NULL) return -1;
  find_system_library(library, f->library);
  find_system_library(companion, f->companion);
  unsetenv("FATHOM_LIBTEST");
  unsetenv("FATHOM_TEST_ROOT");
  unsetenv("FATHOM_TEST_PATH");
  *state = f;
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  const char *command = base_str_format(&f->arena, "rm -r %s", f->folder).data;
  const int result = system(command);
  base_arena_reset(&f->arena);
  free(f);
  return result;
}

static const char *path_in(fixture *f, const char *name) {
  return base_str_format(&f->arena, "%s/%s", f->folder, name).data;
}

// A link below the test's folder, with the folders it needs.
static const char *add_link(fixture *f, const char *name, const char *target) {
  const char *path = path_in(f, name);
  base_str why, folder = {path, (size_t)(strrchr(path, '/') - path)};
  assert_int_equal(base_directory_create(&f->arena, base_str_copy(&f->arena, folder).data, &why),
                   BASE_OK);
  assert_int_equal(symlink(target, path), 0);
  return path;
}

static void expect_found(fixture *f, const char *path) {
  void *handle;
  base_str found, why = BASE_STR("");
  if (!base_library_open(&f->arena, &spec, &handle, &found, &why)) fail_msg("%s", why.data);
  assert_string_equal(found.data, path);
  assert_int_equal(dlclose(handle), 0);
}

static const char *expect_none(fixture *f) {
  void *handle;
  base_str found, why;
  assert_false(base_library_open(&f->arena, &spec, &handle, &found, &why));
  assert_null(handle);
  return why.data;
}

static void expect_words(const char *text, const char *word) {
  if (strstr(text, word) == NULL) fail_msg("no '%s' in:\n%s", word, text);
}

static void test_nowhere(void **state) {
  const char *why = expect_none(*state);
  expect_words(why, "the test library is not to be found (libfathom-test.so.2, "
                    "libfathom-test.so.1):\n");
  expect_words(why, "\n    $FATHOM_TEST_ROOT/lib: FATHOM_TEST_ROOT is not set\n");
  expect_words(why, "\n    the system's libraries: not among them\n");
  expect_words(why, "\n  hint: install it, or let FATHOM_LIBTEST name the file");
}

static void test_folder_of_a_variable(void **state) {
  fixture *f = *state;
  const char *path = add_link(f, "root/lib/libfathom-test.so.1", f->library);
  setenv("FATHOM_TEST_ROOT", path_in(f, "root"), 1);
  expect_found(f, path);
  // A better version in the same folder.
  expect_found(f, add_link(f, "root/lib/libfathom-test.so.2", f->library));
}

// A variable that lists folders, as PATH does; most of them do not exist.
static void test_list_and_pattern(void **state) {
  fixture *f = *state;
  add_link(f, "bin/program", "/bin/true");
  add_link(f, "py3.11/pkg/thing/lib/libfathom-test.so.1", f->library);
  const char *list = base_str_format(&f->arena, "/nowhere::%s/bin", f->folder).data;
  setenv("FATHOM_TEST_PATH", list, 1);
  expect_found(f, path_in(f, "bin/../py3.11/pkg/thing/lib/libfathom-test.so.1"));
  setenv("FATHOM_TEST_PATH", "/nowhere", 1);
  expect_words(expect_none(f), "\n    $FATHOM_TEST_PATH/../py*/pkg/*/lib: not there\n");
}

static void test_given_file_is_the_only_one(void **state) {
  fixture *f = *state;
  add_link(f, "root/lib/libfathom-test.so.1", f->library);
  setenv("FATHOM_TEST_ROOT", path_in(f, "root"), 1);
  const char *path = add_link(f, "given.so", f->library);
  setenv("FATHOM_LIBTEST", path, 1);
  expect_found(f, path);
  setenv("FATHOM_LIBTEST", path_in(f, "missing.so"), 1);
  const char *why = expect_none(f);
  expect_words(why, "the test library could not be opened, where $FATHOM_LIBTEST says it is:\n");
  expect_words(why, "missing.so");
  expect_words(why, "\n  hint: correct FATHOM_LIBTEST, or unset it");
}

// What is there but is no library is passed over, and named when nothing else is found.
static void test_damaged_file(void **state) {
  fixture *f = *state;
  const char *path = add_link(f, "root/lib/libfathom-test.so.2", "/etc/passwd");
  setenv("FATHOM_TEST_ROOT", path_in(f, "root"), 1);
  expect_words(expect_none(f), path);
  expect_found(f, add_link(f, "root/lib/libfathom-test.so.1", f->library));
}

static void test_copy_in_the_process(void **state) {
  fixture *f = *state;
  static const char *const loaded[] = {"libBrokenLocale.so.1", NULL};
  base_library_spec other = spec;
  other.sonames = loaded;
  static const char *const none[] = {NULL};
  other.places = none;
  void *handle, *mine = dlopen(library, RTLD_NOW);
  base_str found, why;
  assert_non_null(mine);
  assert_true(base_library_open(&f->arena, &other, &handle, &found, &why));
  assert_ptr_equal(handle, mine);
  dlclose(handle);
  dlclose(mine);
  assert_false(base_library_open(&f->arena, &other, &handle, &found, &why));
}

static void test_companions(void **state) {
  fixture *f = *state;
  assert_null(dlopen(companion, RTLD_NOW | RTLD_NOLOAD));
  add_link(f, "root/lib/libfathom-test.so.1", f->library);
  add_link(f, "root/lib/libfathom-friend.so.13.0", f->companion);
  setenv("FATHOM_TEST_ROOT", path_in(f, "root"), 1);
  expect_found(f, path_in(f, "root/lib/libfathom-test.so.1"));
  void *handle = dlopen(companion, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(handle);
  dlclose(handle);
}

static void test_entry_points(void **state) {
  (void)state;
  struct {
    void *first, *second;
  } table = {NULL, NULL};
  const base_entry_point good[] = {{"malloc", 0}, {"free", sizeof(void *)}};
  const base_entry_point bad[] = {{"malloc", 0}, {"fathom_no_such_symbol", sizeof(void *)}};
  void *handle = dlopen(NULL, RTLD_NOW);
  assert_non_null(handle);
  assert_null(base_library_resolve(handle, good, 2, &table));
  assert_non_null(table.first);
  assert_non_null(table.second);
  assert_string_equal(base_library_resolve(handle, bad, 2, &table), "fathom_no_such_symbol");
  dlclose(handle);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_nowhere),          TEST(test_folder_of_a_variable),
      TEST(test_list_and_pattern), TEST(test_given_file_is_the_only_one),
      TEST(test_damaged_file),     TEST(test_copy_in_the_process),
      TEST(test_companions),       TEST(test_entry_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
