// autotune: a worker process and the talk with it. What may crash, hang or eat memory runs there; this
// side only loses a process.
//
// The talk is lines of text over the worker's standard input and output, one answer for each request
// (docs/tuning.md); the worker's standard error is not read and goes nowhere.
#ifndef FATHOM_AUTOTUNE_WORKER_H
#define FATHOM_AUTOTUNE_WORKER_H

#include <sys/types.h>

#include "base/base.h"

typedef struct tune_worker {
  pid_t process;       // 0: none
  uint64_t most_bytes; // of memory that it may hold; 0: any
  int to, from;        // pipes
  char *buffer;        // of what has come and not been read yet
  size_t length, capacity;
} tune_worker;

// How waiting for an answer ended.
typedef enum tune_answer {
  TUNE_ANSWERED,
  TUNE_DIED,     // the process is gone; why says how
  TUNE_TOO_LATE, // it was killed
  TUNE_TOO_LARGE // it held more memory than it may, and was killed
} tune_answer;

// Starts `arguments` (NULL-terminated; the first is the program's path). False: see *why.
bool tune_worker_start(tune_worker *worker, const char *const *arguments, base_arena *arena,
                       base_str *why);
// Kills it, if it is there, and frees all.
void tune_worker_stop(tune_worker *worker);
// Sends bytes and waits for one line, without its end, in `arena`. After anything but TUNE_ANSWERED
// the worker is stopped. `why`: what became of the process, one line.
tune_answer tune_worker_ask(tune_worker *worker, const char *request, size_t length, double seconds,
                            base_arena *arena, base_str *line, base_str *why);
// The next line of an answer that has several.
tune_answer tune_worker_read(tune_worker *worker, double seconds, base_arena *arena, base_str *line,
                             base_str *why);

#endif
