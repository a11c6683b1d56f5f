// Worker processes.
#include "autotune/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "autotune/contest.h"

extern char **environ;

// ---- life ---------------------------------------------------------------------------------------

static void close_if_open(int *file) {
  if (*file >= 0) close(*file);
  *file = -1;
}

static int spawn(tune_worker *worker, const char *const *arguments, int in, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  error = posix_spawnattr_init(&attributes);
  if (!error) {
    // A group of its own: an interrupt typed at a terminal is for the tuner, which ends the worker.
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    error = posix_spawn(&worker->process, arguments[0], &actions, &attributes,
                        (char *const *)arguments, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

bool tune_worker_start(tune_worker *worker, const char *const *arguments, base_arena *arena,
                       base_str *why) {
  int request[2] = {-1, -1}, answer[2] = {-1, -1};
  *worker = (tune_worker){.most_bytes = worker->most_bytes, .to = -1, .from = -1};
  int error = 0;
  if (pipe2(request, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0)
    error = errno;
  else
    error = spawn(worker, arguments, request[0], answer[1]);
  close_if_open(&request[0]);
  close_if_open(&answer[1]);
  if (!error) {
    worker->to = request[1];
    worker->from = answer[0];
    return true;
  }
  close_if_open(&request[1]);
  close_if_open(&answer[0]);
  worker->process = 0;
  *why = base_str_format(arena, "%s cannot be started: %s", arguments[0], strerror(error));
  return false;
}

// How the process ended, one line.
static base_str reap(tune_worker *worker, base_arena *arena) {
  int status = 0;
  while (waitpid(worker->process, &status, 0) < 0 && errno == EINTR)
    ;
  worker->process = 0;
  if (WIFSIGNALED(status))
    return base_str_format(arena, "the worker was ended by signal %d (%s)", WTERMSIG(status),
                           strsignal(WTERMSIG(status)));
  return base_str_format(arena, "the worker ended with status %d", WEXITSTATUS(status));
}

static void release(tune_worker *worker) {
  close_if_open(&worker->to);
  close_if_open(&worker->from);
  free(worker->buffer);
  worker->buffer = NULL;
  worker->length = worker->capacity = 0;
}

void tune_worker_stop(tune_worker *worker) {
  if (worker->process > 0) {
    base_arena arena;
    base_arena_init(&arena, NULL);
    kill(worker->process, SIGKILL);
    reap(worker, &arena);
    base_arena_reset(&arena);
    release(worker);
  }
}

static tune_answer died(tune_worker *worker, base_arena *arena, base_str *why) {
  kill(worker->process, SIGKILL); // it may have closed its pipe only
  *why = reap(worker, arena);
  release(worker);
  return TUNE_DIED;
}

static tune_answer too_late(tune_worker *worker, double seconds, base_arena *arena, base_str *why) {
  *why = base_str_format(arena, "no answer within %.1f s", seconds);
  tune_worker_stop(worker);
  return TUNE_TOO_LATE;
}

// Resident memory; 0: not known.
static uint64_t bytes_held(const tune_worker *worker) {
  char path[64], text[128];
  unsigned long long pages = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)worker->process);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = 0;
  if (sscanf(text, "%*u %llu", &pages) != 1) return 0;
  return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static tune_answer too_large(tune_worker *worker, base_arena *arena, base_str *why) {
  *why = base_str_format(arena, "the worker held more than %llu MB",
                         (unsigned long long)(worker->most_bytes >> 20));
  tune_worker_stop(worker);
  return TUNE_TOO_LARGE;
}

// ---- talk ---------------------------------------------------------------------------------------

// Milliseconds until `end`, at least 0.
static int left_ms(double end) {
  double left = (end - base_seconds()) * 1e3;
  return left <= 0 ? 0 : left > 1e6 ? 1000000 : (int)left + 1;
}

// Takes what has come; false at the end of the stream.
static bool receive(tune_worker *worker) {
  if (worker->length == worker->capacity) {
    size_t capacity = worker->capacity ? 2 * worker->capacity : 4096;
    char *larger = realloc(worker->buffer, capacity);
    if (!larger) return false;
    worker->buffer = larger;
    worker->capacity = capacity;
  }
  ssize_t got =
      read(worker->from, worker->buffer + worker->length, worker->capacity - worker->length);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  worker->length += (size_t)got;
  return got > 0;
}

static bool take_line(tune_worker *worker, base_arena *arena, base_str *line) {
  char *end = worker->length ? memchr(worker->buffer, '\n', worker->length) : NULL;
  if (!end) return false;
  size_t length = (size_t)(end - worker->buffer);
  *line = base_str_copy(arena, (base_str){worker->buffer, length});
  worker->length -= length + 1;
  memmove(worker->buffer, end + 1, worker->length);
  return true;
}

tune_answer tune_worker_read(tune_worker *worker, double seconds, base_arena *arena, base_str *line,
                             base_str *why) {
  enum { LOOK_MS = 20 }; // how often its memory is looked at
  double end = base_seconds() + seconds;
  while (!take_line(worker, arena, line)) {
    struct pollfd file = {.fd = worker->from, .events = POLLIN};
    int left = left_ms(end), ready = poll(&file, 1, left < LOOK_MS ? left : LOOK_MS);
    if (ready > 0 && !receive(worker)) return died(worker, arena, why);
    if (ready > 0) continue;
    if (left == 0) return too_late(worker, seconds, arena, why);
    if (worker->most_bytes && bytes_held(worker) > worker->most_bytes)
      return too_large(worker, arena, why);
  }
  return TUNE_ANSWERED;
}

// Writes without the signal that a closed pipe would raise in the host's process.
static bool send_all(tune_worker *worker, const char *bytes, size_t length, double end) {
  sigset_t pipe_only, before, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  sigpending(&pending);
  bool was_pending = sigismember(&pending, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  bool good = true;
  while (good && length > 0) {
    struct pollfd file = {.fd = worker->to, .events = POLLOUT};
    good = poll(&file, 1, left_ms(end)) > 0;
    ssize_t put = good ? write(worker->to, bytes, length < 4096 ? length : 4096) : -1;
    good = put > 0 || (put < 0 && errno == EINTR);
    if (put > 0) {
      bytes += put;
      length -= (size_t)put;
    }
  }
  struct timespec none = {0};
  if (!good && !was_pending)
    while (sigtimedwait(&pipe_only, NULL, &none) < 0 && errno == EINTR)
      ;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return good;
}

tune_answer tune_worker_ask(tune_worker *worker, const char *request, size_t length, double seconds,
                            base_arena *arena, base_str *line, base_str *why) {
  double end = base_seconds() + seconds;
  if (!send_all(worker, request, length, end)) return died(worker, arena, why);
  return tune_worker_read(worker, seconds, arena, line, why);
}
