// emu_process: other programs, and files for them.
//
// Programs run without a shell; what they print is kept up to a limit. Allocations that fail jump
// away, so they come before there is anything to undo, or what must be undone is handed to the
// arena first.
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/emulator/emu.h"

extern char **environ;

char *emu_find_program(const char *name) {
  if (strchr(name, '/')) return access(name, X_OK) == 0 ? strdup(name) : NULL;
  const char *folder = getenv("PATH");
  while (folder && *folder) {
    const size_t length = strcspn(folder, ":");
    char path[EMU_PATH];
    const int size = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, name);
    struct stat info;
    if (length > 0 && size > 0 && (size_t)size < sizeof path && access(path, X_OK) == 0 &&
        stat(path, &info) == 0 && S_ISREG(info.st_mode))
      return strdup(path);
    folder += length;
    if (*folder == ':') folder++;
  }
  return NULL;
}

// The environment without what is meant for this process only.
static char **environment_of_children(base_arena *arena) {
  size_t count = 0, kept = 0;
  while (environ[count])
    count++;
  char **copy = base_new_array(arena, char *, count + 1);
  for (size_t i = 0; i < count; i++)
    if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0) copy[kept++] = environ[i];
  return copy;
}

// Reads to the end, keeps what fits.
static void read_output(int fd, char *output, size_t capacity) {
  size_t length = 0;
  for (;;) {
    char rest[4096];
    const size_t room = capacity - 1 - length;
    const ssize_t got = read(fd, room ? output + length : rest, room ? room : sizeof rest);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (room) length += (size_t)got;
  }
  output[length] = 0;
}

// Starts it with stdout and stderr at `out`. The error number, or 0.
static int start(const char *const *arguments, char **environment, int out, pid_t *child) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error) return error;
  error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, 1);
  if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, 2);
  if (!error)
    error = posix_spawn(child, arguments[0], &actions, NULL, (char *const *)arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

bool emu_run_program(base_arena *arena, const char *const *arguments, char *output,
                     size_t capacity) {
  char **environment = environment_of_children(arena);
  int ends[2];
  pid_t child = 0;
  int error = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;
  if (!error) {
    error = start(arguments, environment, ends[1], &child);
    close(ends[1]);
    if (!error) read_output(ends[0], output, capacity);
    close(ends[0]);
  }
  if (error) {
    snprintf(output, capacity, "%s: %s", arguments[0], strerror(error));
    return false;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // A host that ignores SIGCHLD gets no status; then what the program left behind must tell.
    if (errno == ECHILD) return true;
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void remove_scratch(void *object) {
  emu_scratch *s = object;
  if (s->folder[0] == 0) return;
  unlink(s->source);
  unlink(s->object);
  rmdir(s->folder);
}

bool emu_scratch_create(base_arena *arena, emu_scratch **out, emu_reason *reason) {
  emu_scratch *s = base_new(arena, emu_scratch);
  base_defer(arena, remove_scratch, s);
  const char *base = getenv("TMPDIR");
  if (base == NULL || base[0] == 0) base = "/tmp";
  const int length = snprintf(s->folder, sizeof s->folder, "%s/fathom-emu-XXXXXX", base);
  if (length < 0 || (size_t)length >= sizeof s->folder || mkdtemp(s->folder) == NULL) {
    s->folder[0] = 0;
    reason->status = BASE_IO;
    snprintf(reason->text, sizeof reason->text, "cannot make a folder in '%.1000s': %s", base,
             strerror(errno));
    return false;
  }
  snprintf(s->source, sizeof s->source, "%s/kernel.cpp", s->folder);
  snprintf(s->object, sizeof s->object, "%s/kernel.so", s->folder);
  *out = s;
  return true;
}
