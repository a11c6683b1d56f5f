// file: whole files in, whole files out.
//
// Memory is asked for only while no file is open, so a failed allocation, which does not return,
// leaks no descriptor and leaves no temporary.
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ATTEMPTS = 100, FIRST_PART = 64 << 10 };
static const int64_t largest_file = INT64_C(1) << 30;

static base_status io_error(base_arena *arena, base_str *why, const char *verb, const char *path,
                            int error) {
  *why = base_str_format(arena, "cannot %s '%s': %s", verb, path, strerror(error));
  return BASE_IO;
}

// ---- reading ------------------------------------------------------------------------------------

// Reads until the end of the file or `capacity` bytes. The error number, or 0.
static int read_all(int fd, char *data, size_t capacity, size_t *length) {
  *length = 0;
  while (*length < capacity) {
    const ssize_t got = read(fd, data + *length, capacity - *length);
    if (got == 0) break;
    if (got > 0)
      *length += (size_t)got;
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

// What one attempt to read a regular file came to.
typedef enum attempt { READ_DONE, READ_CHANGED, READ_FAILED } attempt;

// `most`: bytes from the start.
static attempt try_read(base_arena *arena, const char *path, size_t most, base_str *contents,
                        base_str *why) {
  struct stat info;
  if (stat(path, &info) != 0) return io_error(arena, why, "open", path, errno), READ_FAILED;
  if (S_ISDIR(info.st_mode)) return io_error(arena, why, "read", path, EISDIR), READ_FAILED;
  if (!S_ISREG(info.st_mode)) {
    *why = base_str_format(arena, "cannot read '%s': not a regular file", path);
    return READ_FAILED;
  }
  if (info.st_size > largest_file) {
    *why = base_str_format(arena, "cannot read '%s': %lld bytes, more than the limit of 1 GiB",
                           path, (long long)info.st_size);
    return READ_FAILED;
  }
  const bool whole = (size_t)info.st_size <= most;
  const size_t size = whole ? (size_t)info.st_size : most;
  char *data = base_alloc(arena, size + 1); // one more shows a file that grew, and terminates

  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return io_error(arena, why, "open", path, errno), READ_FAILED;
  size_t length;
  const int error = read_all(fd, data, size + whole, &length);
  close(fd);
  if (error) return io_error(arena, why, "read", path, error), READ_FAILED;
  if (length != size) {
    *why = base_str_format(arena, "cannot read '%s': it changed meanwhile, try again", path);
    return READ_CHANGED;
  }
  *contents = (base_str){data, length};
  return READ_DONE;
}

static base_status read_start(base_arena *arena, const char *path, size_t most, base_str *contents,
                              base_str *why) {
  // A file that others replace all the time (base_file_write) is another one between stat and open
  // now and then.
  attempt result = READ_CHANGED;
  for (int i = 0; i < MOST_ATTEMPTS && result == READ_CHANGED; i++)
    result = try_read(arena, path, most, contents, why);
  return result == READ_DONE ? BASE_OK : BASE_IO;
}

base_status base_file_read(base_arena *arena, const char *path, base_str *contents, base_str *why) {
  return read_start(arena, path, SIZE_MAX, contents, why);
}

// From the start each time: the file may be another one by then.
base_status base_file_read_until(base_arena *arena, const char *path, size_t (*end)(base_str text),
                                 base_str *contents, base_str *why) {
  for (size_t most = FIRST_PART;; most *= 4) {
    const base_status status = read_start(arena, path, most, contents, why);
    if (status != BASE_OK) return status;
    const size_t wanted = end(*contents);
    if (wanted > 0) contents->length = wanted;
    if (wanted > 0 || contents->length < most) return BASE_OK;
  }
}

// ---- writing ------------------------------------------------------------------------------------

static int write_all(int fd, const char *data, size_t length) {
  while (length > 0) {
    const ssize_t put = write(fd, data, length);
    if (put >= 0) {
      data += put;
      length -= (size_t)put;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Creates a file beside `path` whose name nobody else uses; `name` has room for path and 64 bytes
// more. O_EXCL rather than mkstemp: the file gets the mode every other new file gets.
static int create_beside(const char *path, char *name, size_t room) {
  for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, room, "%s.tmp-%ld-%lld%09ld", path, (long)getpid(), (long long)now.tv_sec,
             now.tv_nsec);
    const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// A device or a pipe (/dev/stdout, /dev/null) is written to, never replaced.
static base_status write_special(base_arena *arena, const char *path, const void *data,
                                 size_t length, base_str *why) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return io_error(arena, why, "open", path, errno);
  int error = write_all(fd, data, length);
  if (close(fd) != 0 && !error) error = errno;
  return error ? io_error(arena, why, "write", path, error) : BASE_OK;
}

base_status base_file_write(base_arena *arena, const char *path, const void *data, size_t length,
                            base_str *why) {
  struct stat info;
  if (stat(path, &info) == 0) {
    if (S_ISDIR(info.st_mode)) return io_error(arena, why, "write", path, EISDIR);
    if (!S_ISREG(info.st_mode)) return write_special(arena, path, data, length, why);
  }
  const size_t room = strlen(path) + 64;
  char *temporary = base_alloc(arena, room);

  const int fd = create_beside(path, temporary, room);
  if (fd < 0) return io_error(arena, why, "create", temporary, errno);
  int error = write_all(fd, data, length);
  if (!error && fsync(fd) != 0) error = errno;
  if (close(fd) != 0 && !error) error = errno;
  if (!error && rename(temporary, path) != 0) error = errno;
  if (!error) return BASE_OK;
  unlink(temporary);
  return io_error(arena, why, "write", path, error);
}

// ---- directories --------------------------------------------------------------------------------

static int make_directory(const char *path) {
  struct stat info;
  if (mkdir(path, 0700) == 0) return 0;
  const int error = errno; // some file systems say EROFS or EACCES for a directory that exists
  if (stat(path, &info) != 0) return error;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

base_status base_directory_create(base_arena *arena, const char *path, base_str *why) {
  char *prefix = (char *)base_str_copy(arena, base_str_from(path)).data;
  for (char *slash = prefix; *slash; slash++) {
    if (*slash != '/' || slash == prefix) continue;
    *slash = '\0';
    const int error = make_directory(prefix);
    if (error) return io_error(arena, why, "create directory", prefix, error);
    *slash = '/';
  }
  const int error = make_directory(prefix);
  return error ? io_error(arena, why, "create directory", prefix, error) : BASE_OK;
}
