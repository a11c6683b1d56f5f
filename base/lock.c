// lock: one holder at a time, by a lock on a file.
//
// The lock belongs to the open file (F_OFD_SETLK), not to the process as that of F_SETLK does: two
// threads exclude each other too, and closing some other descriptor of the file gives nothing up.
//
// The file goes when the lock is released, so that folders stay clean. Who waited for it then locks
// a file that has no name any more; so a lock counts only once the path is seen to lead to it.
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_TEXT = 256 }; // bytes of the file that are read and written
static const double first_pause = 1e-3, longest_pause = 30e-3;

static void pause_for(double seconds) {
  const struct timespec time = {.tv_nsec = (long)(1e9 * seconds)};
  nanosleep(&time, NULL);
}

// ---- the holder's name --------------------------------------------------------------------------

// It is for messages only: that it cannot be written (the disk is full) does not matter.
static void write_holder(int fd, const char *purpose) {
  char text[MOST_TEXT];
  const int length = snprintf(text, sizeof text, "process %ld, %s\n", (long)getpid(), purpose);
  if (length <= 0 || ftruncate(fd, 0) != 0) return;
  const size_t size = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
  const ssize_t put = pwrite(fd, text, size, 0);
  (void)put;
}

// The file's first line, made fit for a message; "another process" when there is none.
static void read_holder(const char *path, char text[MOST_TEXT]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd >= 0 ? pread(fd, text, MOST_TEXT - 1, 0) : 0;
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = '\0';
  text[strcspn(text, "\n")] = '\0';
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?';
  if (!text[0]) snprintf(text, MOST_TEXT, "another process");
}

// ---- taking -------------------------------------------------------------------------------------

// The file in a folder that all may write to can be another user's, which O_CREAT is refused for.
static int open_file(const char *path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  return fd >= 0 || errno != ENOENT ? fd : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static bool leads_to(const char *path, int fd) {
  struct stat named, locked;
  return stat(path, &named) == 0 && fstat(fd, &locked) == 0 && named.st_dev == locked.st_dev &&
         named.st_ino == locked.st_ino;
}

// Tries once. The descriptor; or -1, with *verb and *error, *error being EAGAIN when it is held.
static int try_lock(const char *path, const char **verb, int *error) {
  *verb = "open";
  const int fd = open_file(path);
  if (fd < 0) {
    *error = errno;
    return -1;
  }
  *verb = "lock";
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  *error = 0;
  if (fcntl(fd, F_OFD_SETLK, &whole) != 0)
    *error = errno == EACCES || errno == EINTR ? EAGAIN : errno;
  else if (!leads_to(path, fd))
    *error = EAGAIN; // its holder has just removed it
  if (!*error) return fd;
  close(fd);
  return -1;
}

base_status base_lock_take(base_arena *arena, const char *path, const char *purpose, double seconds,
                           base_lock *lock, base_str *why) {
  const char *copy = base_str_copy(arena, base_str_from(path)).data; // while nothing is locked
  const double deadline = base_seconds() + seconds;
  double pause = first_pause;
  *lock = (base_lock){0};
  for (;;) {
    const char *verb;
    int error;
    const int fd = try_lock(path, &verb, &error);
    if (fd >= 0) {
      write_holder(fd, purpose);
      *lock = (base_lock){.path = copy, .fd = fd, .process = getpid()};
      return BASE_OK;
    }
    if (error != EAGAIN) {
      *why = base_str_format(arena, "cannot %s '%s': %s", verb, path, strerror(error));
      return BASE_IO;
    }
    const double left = deadline - base_seconds();
    if (!(left > 0)) break;
    pause_for(left < pause ? left : pause);
    if (pause < longest_pause) pause *= 2;
  }
  char holder[MOST_TEXT];
  read_holder(path, holder);
  lock->busy = true;
  *why = base_str_format(arena, "'%s' is held by %s; waited %.3g s", path, holder, seconds);
  return BASE_IO;
}

void base_lock_release(base_lock *lock) {
  if (!lock->path) return;
  if (lock->process == getpid()) {
    if (leads_to(lock->path, lock->fd)) unlink(lock->path); // while it is held: nobody else's
    struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    fcntl(lock->fd, F_OFD_SETLK, &whole); // closing does not: children may have it open too
  }
  close(lock->fd);
  *lock = (base_lock){0};
}
