// Locks: one holder at a time among threads and processes, a wait that ends and says who holds it,
// and nothing left behind by a holder that is killed.
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static base_arena arena;
static char folder[64], path[96];

static int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  strcpy(folder, "/tmp/fathom-test-lock-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/lock", folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(path);
  base_arena_reset(&arena);
  return rmdir(folder);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void take(base_lock *lock, double seconds) {
  base_str why = {0};
  if (base_lock_take(&arena, path, "testing", seconds, lock, &why) != BASE_OK)
    fail_msg("%.*s", BASE_FMT(why));
}

static base_str expect_held(double seconds) {
  base_lock lock;
  base_str why = {0};
  assert_int_equal(base_lock_take(&arena, path, "more tests", seconds, &lock, &why), BASE_IO);
  assert_null(lock.path);
  return why;
}

static void test_a_lock_is_free_again_when_released(void **state) {
  (void)state;
  base_lock lock;
  for (int i = 0; i < 3; i++) {
    take(&lock, 0);
    assert_int_equal(access(path, F_OK), 0);
    base_lock_release(&lock);
    assert_int_equal(access(path, F_OK), -1);
    base_lock_release(&lock); // does nothing
  }
}

static void test_waiting_ends_and_names_the_holder(void **state) {
  (void)state;
  base_lock lock;
  take(&lock, 0);
  const double start = now();
  const base_str why = expect_held(0.2);
  const double waited = now() - start;
  assert_true(waited >= 0.2 && waited < 5);
  const char *holder = base_str_format(&arena, "process %ld, testing;", (long)getpid()).data;
  if (!strstr(why.data, holder) || !strstr(why.data, path) || !strstr(why.data, "waited 0.2 s"))
    fail_msg("%s", why.data);
  base_lock_release(&lock);
  take(&lock, 0);
  base_lock_release(&lock);
}

static void test_a_failure_says_why(void **state) {
  (void)state;
  base_lock lock;
  base_str why;
  const char *nowhere = base_str_format(&arena, "%s/no/lock", folder).data;
  assert_int_equal(base_lock_take(&arena, nowhere, "x", 10, &lock, &why), BASE_IO);
  assert_non_null(strstr(why.data, "No such file"));
  assert_int_equal(base_lock_take(&arena, folder, "x", 10, &lock, &why), BASE_IO);
  assert_non_null(strstr(why.data, "Is a directory"));
}

// Whatever the file says is shown in a message on a terminal.
static void test_what_the_file_says_is_made_safe(void **state) {
  (void)state;
  base_lock lock;
  take(&lock, 0);
  const int fd = open(path, O_WRONLY | O_TRUNC);
  assert_int_equal(write(fd, "\033[2J\001me", 7), 7);
  assert_non_null(strstr(expect_held(0).data, "held by ?[2J?me;"));
  assert_int_equal(ftruncate(fd, 0), 0);
  assert_non_null(strstr(expect_held(0).data, "held by another process;"));
  close(fd); // a descriptor of the same file: closing it must not give up the lock
  expect_held(0);
  base_lock_release(&lock);
}

// A waiter must not come in by a file that the holder has removed.
static void test_a_removed_file_is_no_way_in(void **state) {
  (void)state;
  base_lock first, second;
  take(&first, 0);
  assert_int_equal(unlink(path), 0); // somebody cleans up
  take(&second, 0);
  base_lock_release(&first); // must leave the second's file alone
  expect_held(0);
  base_lock_release(&second);
}

// ---- threads ------------------------------------------------------------------------------------

enum { TURNS = 40, SPINS = 200, THREADS = 4 };
static atomic_int counter; // read, then written: the lock is to make one step of the two

// Asks without a pause, so that the moment between opening the file and locking it is met often.
static void *count_up(void *argument) {
  base_arena own;
  base_arena_init(&own, NULL);
  for (int i = 0; i < SPINS; i++) {
    base_lock lock;
    base_str why;
    while (base_lock_take(&own, path, "counting", 0, &lock, &why) != BASE_OK)
      base_arena_reset(&own);
    const int before = atomic_load(&counter);
    sched_yield();
    atomic_store(&counter, before + 1);
    base_lock_release(&lock);
    base_arena_reset(&own);
  }
  return argument;
}

static void test_threads_exclude_each_other(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  counter = 0;
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  assert_int_equal(counter, SPINS * THREADS);
}

// ---- processes ----------------------------------------------------------------------------------

static int read_number(const char *file) {
  int number = 0;
  FILE *stream = fopen(file, "r");
  if (stream && fscanf(stream, "%d", &number) != 1) number = -1;
  if (stream) fclose(stream);
  return number;
}

static void write_number(const char *file, int number) {
  FILE *stream = fopen(file, "w");
  fprintf(stream, "%d\n", number);
  fclose(stream);
}

static void test_processes_exclude_each_other(void **state) {
  (void)state;
  const char *file = base_str_format(&arena, "%s/number", folder).data;
  pid_t children[THREADS];
  for (int i = 0; i < THREADS; i++) {
    children[i] = fork();
    if (children[i]) continue;
    for (int turn = 0; turn < TURNS; turn++) {
      base_lock lock;
      base_str why;
      if (base_lock_take(&arena, path, "counting", 60, &lock, &why) != BASE_OK) _exit(1);
      write_number(file, read_number(file) + 1);
      base_lock_release(&lock);
    }
    _exit(0);
  }
  for (int i = 0; i < THREADS; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
  assert_int_equal(read_number(file), TURNS * THREADS);
  unlink(file);
}

static void test_a_killed_holder_gives_it_up(void **state) {
  (void)state;
  int ready[2];
  char byte;
  assert_int_equal(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    base_lock lock;
    base_str why;
    if (base_lock_take(&arena, path, "waiting to be killed", 0, &lock, &why) != BASE_OK) _exit(1);
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(1);
  }
  assert_int_equal(read(ready[0], &byte, 1), 1);
  const char *holder = base_str_format(&arena, "process %ld, waiting", (long)child).data;
  assert_non_null(strstr(expect_held(0.01).data, holder));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  assert_int_equal(access(path, F_OK), 0); // its file is still there, and in nobody's way
  base_lock lock;
  take(&lock, 0);
  base_lock_release(&lock);
  close(ready[0]);
  close(ready[1]);
}

// A worker that inherits a lock does not give it up, and does not keep it either.
static void test_children_share_but_do_not_release(void **state) {
  (void)state;
  int stay[2];
  base_lock lock;
  take(&lock, 0);
  assert_int_equal(pipe(stay), 0);
  const pid_t gone = fork();
  if (gone == 0) {
    base_lock_release(&lock);
    _exit(0);
  }
  waitpid(gone, NULL, 0);
  expect_held(0);
  const pid_t staying = fork();
  if (staying == 0) {
    char byte;
    close(stay[1]);
    _exit(read(stay[0], &byte, 1) != 0);
  }
  base_lock_release(&lock);
  base_lock again;
  take(&again, 0);
  base_lock_release(&again);
  close(stay[0]);
  close(stay[1]);
  waitpid(staying, NULL, 0);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(a_lock_is_free_again_when_released),
      TEST(waiting_ends_and_names_the_holder),
      TEST(a_failure_says_why),
      TEST(what_the_file_says_is_made_safe),
      TEST(a_removed_file_is_no_way_in),
      TEST(threads_exclude_each_other),
      TEST(processes_exclude_each_other),
      TEST(a_killed_holder_gives_it_up),
      TEST(children_share_but_do_not_release),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
