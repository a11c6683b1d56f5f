// Calibration: micro-benchmarks that turn the cost model's counts into seconds on this CPU.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/calibration.h"
#include "autotune/contest.h"

enum {
  LEVEL2_BYTES = 512 * 1024, // in the second level cache, and far beyond the first
  REPEATS = 16,              // of a loop over what is in a cache
  OPERATIONS = 1 << 17,      // multiply-adds of one thread
};

static const stream_width *widest_width(void) {
  const stream_width *width, *widest = NULL;
  for (uint32_t i = 0; (width = stream_width_at(i)) != NULL; i++)
    if (width->available()) widest = width;
  return widest;
}

// ---- one loop on all threads --------------------------------------------------------------------

typedef struct loops {
  const rt_executor *executor;
  const stream_width *width;
  char *memory; // LEVEL2_BYTES a thread
  atomic_uint_least64_t sink;
} loops;

static void run_on_all(loops *l, void (*task)(void *argument, size_t index)) {
  if (l->executor->concurrency > 1)
    l->executor->parallel_for(l->executor->user, l->executor->concurrency, task, l);
  else
    task(l, 0);
}

static void do_nothing(void *argument, size_t index) {
  (void)argument;
  (void)index;
}

static void multiply_and_add(void *argument, size_t index) {
  loops *l = argument;
  atomic_fetch_xor(&l->sink, l->width->compute(OPERATIONS) + index);
}

static void read_cache(void *argument, size_t index) {
  loops *l = argument;
  stream_rows rows = {.reads = 1,
                      .row_bytes = LEVEL2_BYTES,
                      .count = REPEATS, // a step of 0: the same row again
                      .read = {l->memory + index * LEVEL2_BYTES}};
  atomic_fetch_xor(&l->sink, l->width->run(&rows, (stream_kind){.by_row = true}));
}

static void call_nothing(void *user) {
  run_on_all(user, do_nothing);
}

static void call_compute(void *user) {
  run_on_all(user, multiply_and_add);
}

static void call_read(void *user) {
  run_on_all(user, read_cache);
}

// ---- measuring ----------------------------------------------------------------------------------

static base_status time_call(loops *l, void (*call)(void *user), double seconds, double *median) {
  tune_timing timing;
  base_status status = tune_time((tune_work){call, l}, seconds, &timing);
  if (status == BASE_OK) *median = timing.median;
  return status;
}

static base_status measure_loops(loops *l, double seconds, tune_calibration *out) {
  double launch = 0, compute = 0, read = 0;
  base_status status = time_call(l, call_nothing, seconds, &launch);
  if (status == BASE_OK) status = time_call(l, call_compute, seconds, &compute);
  if (status == BASE_OK) status = time_call(l, call_read, seconds, &read);
  if (status != BASE_OK || compute <= 0 || read <= 0) return status;
  out->launch_us = launch * 1e6;
  out->vector_gops = OPERATIONS / compute * 1e-9;
  out->level2_gb_s = (double)LEVEL2_BYTES * REPEATS / read * 1e-9;
  return BASE_OK;
}

// Row by row on the widest vectors: near enough to the best of all stream loops, and quick.
static tune_candidate *plain_candidate(tune_contest *contest, const stream_width *width) {
  bool writes = contest->mix.writes > 0;
  for (uint32_t i = 0; i < contest->count; i++) {
    tune_candidate *candidate = &contest->candidates[i];
    const stream_kind *kind = &candidate->kind;
    bool past = writes && width->stores_past_cache;
    if (candidate->width == width && kind->by_row && kind->past_cache == past && !kind->prefetch &&
        !candidate->interleaved)
      return candidate;
  }
  return &contest->candidates[0];
}

static base_status measure_stream(const loops *l, bool writes, size_t bytes, double seconds,
                                  double *gb_s) {
  tune_contest contest;
  base_status status =
      tune_contest_open(&contest, l->executor, (tune_mix){!writes, writes, bytes}, 0);
  if (status != BASE_OK) return status;
  tune_candidate *candidate = plain_candidate(&contest, l->width);
  tune_timing timing;
  status = tune_time(tune_candidate_work(candidate), seconds, &timing);
  if (status == BASE_OK && timing.median > 0)
    *gb_s = (double)contest.bytes / timing.median * 1e-9 / l->executor->concurrency;
  tune_contest_close(&contest);
  return status;
}

base_status tune_calibrate(const rt_executor *executor, double seconds, tune_calibration *out) {
  loops l = {.executor = executor, .width = widest_width()};
  size_t bytes = executor->concurrency * (size_t)LEVEL2_BYTES;
  *out = tune_calibration_usual();
  l.memory = aligned_alloc(RT_ALIGNMENT, bytes);
  if (!l.memory) return BASE_MEMORY;
  memset(l.memory, 1, bytes);
  base_status status = measure_loops(&l, seconds / 10, out);
  free(l.memory);
  const struct {
    bool writes;
    size_t bytes;
    double *gb_s;
  } streams[] = {
      {false, TUNE_CACHE_BYTES, &out->cache_read_gb_s},
      {true, TUNE_CACHE_BYTES, &out->cache_write_gb_s},
      {false, TUNE_MEMORY_BYTES, &out->memory_read_gb_s},
      {true, TUNE_MEMORY_BYTES, &out->memory_write_gb_s},
  };
  for (size_t i = 0; i < sizeof streams / sizeof *streams && status == BASE_OK; i++)
    status = measure_stream(&l, streams[i].writes, streams[i].bytes, seconds / 6, streams[i].gb_s);
  return status;
}
