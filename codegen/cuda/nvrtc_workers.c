// nvrtc_workers: many units on a few threads. Units go to whichever worker is free, and each worker
// has its own memory and each unit its own diagnostics, so what comes out does not depend on who
// compiled what. The caller's thread is one of the workers; where no thread can be started, it is
// the only one.
#include "codegen/cuda/nvrtc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MOST_WORKERS = 64, DEFAULT_WORKERS = 8 };

typedef enum outcome { NOT_REACHED, FAILED, DONE } outcome;

typedef struct batch {
  const cuda_nvrtc *nvrtc;
  const cuda_compile_options *options;
  const cuda_unit *units;
  uint32_t count;
  atomic_uint next;
  // For each unit, written by the worker that has it.
  cuda_binary *binaries;
  base_diag *diags;
  outcome *outcomes;
} batch;

typedef struct worker {
  batch *batch;
  base_arena arena; // results stay in it until the caller's arena is reset
  pthread_t thread;
} worker;

static bool obtain(base_arena *arena, const batch *b, uint32_t i) {
  const cg_cache_entry entry = cuda_cache_entry(arena, b->nvrtc, b->options, &b->units[i]);
  if (cuda_cache_load(arena, &entry, &b->binaries[i])) return true;
  if (b->options->expect_cached) {
    cg_cache_missing(arena, &entry, &b->diags[i]);
    return false;
  }
  if (!cuda_compile_unit(arena, b->nvrtc, b->options->arch, &b->units[i], &b->binaries[i],
                         &b->diags[i]))
    return false;
  cuda_cache_store(arena, &entry, &b->binaries[i]);
  return true;
}

static void work_through(base_arena *arena, batch *b) {
  for (uint32_t i; (i = atomic_fetch_add(&b->next, 1)) < b->count;) {
    base_diag_init(&b->diags[i], arena, BASE_STR(""), BASE_STR(""));
    b->outcomes[i] = obtain(arena, b, i) ? DONE : FAILED;
  }
}

static void *work(void *object) {
  worker *w = object;
  jmp_buf escape;
  if (BASE_TRY(&w->arena, escape)) work_through(&w->arena, w->batch);
  // Out of memory: its unit, and those that nobody takes any more, stay NOT_REACHED.
  w->arena.escape = NULL;
  return NULL;
}

static void reset_arena(void *object) {
  base_arena_reset(object);
}

static uint32_t choose_workers(uint32_t wanted, uint32_t units) {
  if (wanted == 0) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    wanted = processors < 1                 ? 1
             : processors > DEFAULT_WORKERS ? DEFAULT_WORKERS
                                            : (uint32_t)processors;
  }
  if (wanted > MOST_WORKERS) wanted = MOST_WORKERS;
  return wanted < units ? wanted : units;
}

static void run(worker *workers, uint32_t count) {
  uint32_t started = 1;
  while (started < count &&
         pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0)
    started++;
  work(&workers[0]);
  for (uint32_t i = 1; i < started; i++)
    pthread_join(workers[i].thread, NULL);
}

// The errors of one unit, or that there was no memory for it.
static bool merge(const batch *b, uint32_t i, base_diag *diag) {
  if (b->outcomes[i] == DONE) return true;
  if (b->outcomes[i] == NOT_REACHED) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory while %s was compiled",
                      b->units[i].name);
    return false;
  }
  const base_diag *from = &b->diags[i];
  for (uint32_t r = 0; r < from->reports.count; r++) {
    const base_report *report = &from->reports.data[r];
    base_error_status(diag, from->status, report->loc, "%.*s", BASE_FMT(report->message));
    if (report->hint.length) base_hint(diag, "%.*s", BASE_FMT(report->hint));
  }
  return false;
}

bool cuda_compile(base_arena *arena, const cuda_nvrtc *nvrtc, const cuda_compile_options *options,
                  const cuda_unit *units, uint32_t count, cuda_binary *out, base_diag *diag) {
  if (!cuda_check_arch(nvrtc, options->arch, diag)) return false;
  batch b = {.nvrtc = nvrtc,
             .options = options,
             .units = units,
             .count = count,
             .binaries = out,
             .diags = base_new_array(arena, base_diag, count),
             .outcomes = base_new_array(arena, outcome, count)};
  const uint32_t worker_count = choose_workers(options->workers, count);
  worker *workers = base_new_array(arena, worker, worker_count + 1);
  for (uint32_t i = 0; i < worker_count; i++) {
    workers[i].batch = &b;
    base_arena_init(&workers[i].arena, &arena->allocator);
    base_defer(arena, reset_arena, &workers[i].arena);
  }
  if (worker_count) run(workers, worker_count);
  bool all = true;
  for (uint32_t i = 0; i < count; i++)
    all &= merge(&b, i, diag);
  return all;
}
