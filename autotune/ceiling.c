// The ceiling: which copy-like loop moves a mix of reads and writes fastest here?
//
// No single loop is best everywhere: wide vectors lower some clocks, non-temporal stores save a
// read of each written line but lose when the data fits a cache, and how rows alternate decides
// what the hardware prefetcher sees. So all combinations compete, in rounds that drop the slower
// half. They run on the kernel's own executor, with tasks taken from a counter as the launcher does
// it, over memory that is filled by one thread as a host's is.
#include "autotune/contest.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  ROW_BYTES = 16384,       // about one token's row of a source
  TASK_BYTES = 512 * 1024, // of all streams
  SKEW = 4096 + 256, // between streams, so that equal places do not fall into the same cache set
};

// ---- mixes --------------------------------------------------------------------------------------

tune_mix tune_mix_of(uint64_t read_bytes, uint64_t written_bytes) {
  double total = (double)read_bytes + (double)written_bytes;
  double share = total > 0 ? (double)written_bytes / total : 0;
  tune_mix best = {1, 0, 0};
  double error = share;
  for (uint32_t streams = 1; streams <= TUNE_MAX_STREAMS && error > 0.01; streams++) {
    for (uint32_t writes = 0; writes <= streams; writes++) {
      double off = fabs((double)writes / streams - share);
      if (off >= error) continue;
      error = off;
      best = (tune_mix){streams - writes, writes, 0};
    }
  }
  double lines = ceil(total / (best.reads + best.writes) / STREAM_LINE);
  best.stream_bytes = (size_t)(lines < 1 ? 1 : lines) * STREAM_LINE;
  return best;
}

// ---- running a candidate ------------------------------------------------------------------------

typedef struct pass {
  const tune_candidate *candidate;
  atomic_size_t next_row;
  atomic_uint_least64_t sink; // keeps the reads alive
} pass;

// Many sets of short streams would be more skew than streams.
static size_t stream_room(const tune_contest *contest) {
  size_t bytes = contest->rows * contest->row_bytes;
  return bytes + (contest->sets > 1 && bytes < 4 * SKEW ? STREAM_LINE : SKEW);
}

stream_rows tune_candidate_rows(const tune_candidate *candidate, size_t row, size_t count) {
  const tune_contest *contest = candidate->contest;
  uint32_t reads = contest->mix.reads, writes = contest->mix.writes;
  size_t row_bytes = contest->row_bytes, room = stream_room(contest);
  stream_rows rows = {.reads = reads, .writes = writes, .row_bytes = row_bytes, .count = count};
  rows.read_step = candidate->interleaved ? reads * row_bytes : row_bytes;
  rows.write_step = candidate->interleaved ? writes * row_bytes : row_bytes;
  size_t between = candidate->interleaved ? row_bytes : room;
  char *start = contest->first + contest->set * (contest->read_room + contest->write_room);
  char *written = start + contest->read_room;
  for (uint32_t r = 0; r < reads; r++) {
    rows.read[r] = start + r * between + row * rows.read_step;
  }
  for (uint32_t w = 0; w < writes; w++) {
    rows.write[w] = written + w * between + row * rows.write_step;
  }
  return rows;
}

static void run_worker(void *argument, size_t index) {
  (void)index;
  pass *pass = argument;
  const tune_candidate *candidate = pass->candidate;
  const tune_contest *contest = candidate->contest;
  uint64_t sum = 0;
  for (;;) {
    size_t row =
        atomic_fetch_add_explicit(&pass->next_row, contest->rows_per_task, memory_order_relaxed);
    if (row >= contest->rows) break;
    size_t left = contest->rows - row;
    size_t count = left < contest->rows_per_task ? left : contest->rows_per_task;
    stream_rows rows = tune_candidate_rows(candidate, row, count);
    sum ^= candidate->width->run(&rows, candidate->kind);
  }
  atomic_fetch_xor(&pass->sink,
                   sum); // also a full fence, behind which non-temporal stores are done
}

static void run_candidate(void *user) {
  const tune_candidate *candidate = user;
  tune_contest *contest = candidate->contest;
  pass pass = {.candidate = candidate};
  size_t tasks = (contest->rows - 1) / contest->rows_per_task + 1;
  size_t workers = contest->executor->concurrency < tasks ? contest->executor->concurrency : tasks;
  if (workers <= 1) {
    run_worker(&pass, 0);
  } else {
    contest->executor->parallel_for(contest->executor->user, workers, run_worker, &pass);
  }
  contest->set = (contest->set + contest->step) % contest->sets;
}

tune_work tune_candidate_work(tune_candidate *candidate) {
  return (tune_work){run_candidate, candidate};
}

tune_ceiling tune_candidate_ceiling(const tune_candidate *candidate, tune_timing timing) {
  tune_ceiling ceiling = {.timing = timing};
  if (timing.median > 0) ceiling.gb_s = (double)candidate->contest->bytes / timing.median * 1e-9;
  snprintf(ceiling.variant, sizeof ceiling.variant, "%s%s%s%s%s", candidate->width->name,
           candidate->kind.past_cache ? " non-temporal" : "",
           candidate->kind.by_row ? " by-row" : " by-line",
           candidate->interleaved ? " interleaved" : "",
           candidate->kind.prefetch ? " prefetch" : "");
  return ceiling;
}

// ---- the contest --------------------------------------------------------------------------------

static void add_candidates(tune_contest *contest, const stream_width *width) {
  for (unsigned bits = 0; bits < 16; bits++) {
    stream_kind kind = {.past_cache = bits & 1, .by_row = bits & 2, .prefetch = bits & 4};
    if (kind.past_cache && (!width->stores_past_cache || contest->mix.writes == 0)) continue;
    contest->candidates[contest->count++] = (tune_candidate){.width = width,
                                                             .kind = kind,
                                                             .interleaved = bits & 8,
                                                             .best = INFINITY,
                                                             .contest = contest};
  }
}

// The two widest this CPU has: a narrower one never won, and every candidate costs time.
static void add_widths(tune_contest *contest) {
  const stream_width *width, *widest = NULL, *second = NULL;
  for (uint32_t i = 0; (width = stream_width_at(i)) != NULL; i++) {
    if (!width->available()) continue;
    second = widest;
    widest = width;
  }
  add_candidates(contest, widest);
  if (second) add_candidates(contest, second);
}

base_status tune_contest_open(tune_contest *contest, const rt_executor *executor, tune_mix mix,
                              uint64_t cold_bytes) {
  *contest = (tune_contest){.executor = executor, .mix = mix};
  uint32_t streams = mix.reads + mix.writes;
  contest->rows = mix.stream_bytes / ROW_BYTES + 1;
  contest->row_bytes =
      (mix.stream_bytes / contest->rows + STREAM_LINE - 1) / STREAM_LINE * STREAM_LINE;
  contest->rows_per_task = TASK_BYTES / (contest->row_bytes * streams) + 1;
  contest->bytes = (uint64_t)contest->rows * contest->row_bytes * streams;
  contest->sets = tune_cold_sets_of(cold_bytes, contest->bytes);
  contest->step = tune_cold_step(contest->sets);
  size_t bytes;
  if (__builtin_mul_overflow(stream_room(contest), streams, &bytes) ||
      __builtin_mul_overflow(bytes, contest->sets, &bytes))
    return BASE_MEMORY;
  contest->read_room = stream_room(contest) * mix.reads;
  contest->write_room = stream_room(contest) * mix.writes;
  contest->memory = malloc(bytes + RT_ALIGNMENT);
  if (!contest->memory) return BASE_MEMORY;
  contest->first = contest->memory + (RT_ALIGNMENT - (uintptr_t)contest->memory % RT_ALIGNMENT);
  memset(contest->first, 1, bytes);
  add_widths(contest);
  return BASE_OK;
}

void tune_contest_close(tune_contest *contest) {
  free(contest->memory);
  contest->memory = NULL;
}

static int by_time(const void *a, const void *b) {
  double x = ((const tune_candidate *)a)->best, y = ((const tune_candidate *)b)->best;
  return (x > y) - (x < y);
}

static void run_each(tune_contest *contest) {
  for (uint32_t i = 0; i < contest->count; i++) {
    double start = base_seconds();
    run_candidate(&contest->candidates[i]);
    double time = base_seconds() - start;
    if (time < contest->candidates[i].best) contest->candidates[i].best = time;
  }
}

void tune_contest_narrow(tune_contest *contest, uint32_t keep, double seconds) {
  uint32_t rounds = 0;
  for (uint32_t n = contest->count; n > keep; n = n / 2 > keep ? n / 2 : keep) {
    rounds++;
  }
  while (contest->count > keep) {
    double end = base_seconds() + seconds / rounds;
    run_each(contest);
    while (base_seconds() < end) {
      run_each(contest);
    }
    qsort(contest->candidates, contest->count, sizeof *contest->candidates, by_time);
    contest->count = contest->count / 2 > keep ? contest->count / 2 : keep;
  }
}
