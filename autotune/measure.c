// Timing: warm to a steady state, take samples until the time is used up, report order statistics.
// Means and single runs mislead on a machine that does other things as well.
#include "autotune/contest.h"

#include <stdlib.h>

static const double shortest_sample = 100e-6; // thousands of times what reading the clock costs
static const double warm_share = 0.25;        // of the time to measure, at most

// ---- samples ------------------------------------------------------------------------------------

static double timed(tune_work work, uint32_t calls) {
  double start = base_seconds();
  for (uint32_t i = 0; i < calls; i++) {
    work.call(work.user);
  }
  return (base_seconds() - start) / calls;
}

// The fastest call before five in a row brought nothing: caches, page tables, clocks and sleeping
// threads have settled.
static double warm_up(tune_work work, double seconds) {
  double end = base_seconds() + seconds, best = timed(work, 1);
  for (int in_vain = 0; in_vain < 5 && base_seconds() < end; in_vain++) {
    double time = timed(work, 1);
    if (time < 0.98 * best) in_vain = -1;
    if (time < best) best = time;
  }
  return best;
}

base_status tune_samples_open(tune_samples *samples, tune_work work, double seconds) {
  *samples = (tune_samples){.work = work, .batch = 1};
  samples->seconds = malloc(TUNE_MAX_SAMPLES * sizeof *samples->seconds);
  if (!samples->seconds) return BASE_MEMORY;
  double call = warm_up(work, warm_share * seconds);
  double sample = seconds / TUNE_MAX_SAMPLES;
  if (sample < shortest_sample) sample = shortest_sample;
  if (call < sample) samples->batch = call > 1e-9 ? (uint32_t)(sample / call) + 1 : 1000;
  return BASE_OK;
}

void tune_samples_close(tune_samples *samples) {
  free(samples->seconds);
  samples->seconds = NULL;
}

// What ran before has left its own in the caches: a kernel that writes through them looked slow beside one
// that writes past them. So the first of several calls does not count.
void tune_samples_take(tune_samples *samples) {
  if (samples->count == TUNE_MAX_SAMPLES) return;
  if (samples->batch > 1) timed(samples->work, 1);
  samples->seconds[samples->count++] = timed(samples->work, samples->batch);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The value below which `share` of the sorted samples lie, between neighbours where it falls
// between.
static double quantile(const tune_samples *samples, double share) {
  double place = share * (samples->count - 1);
  uint32_t below = (uint32_t)place, above = below + 1 < samples->count ? below + 1 : below;
  double rest = place - below;
  return (1 - rest) * samples->seconds[below] + rest * samples->seconds[above];
}

tune_timing tune_samples_timing(tune_samples *samples) {
  if (samples->count == 0) return (tune_timing){0};
  qsort(samples->seconds, samples->count, sizeof *samples->seconds, by_size);
  double median = quantile(samples, 0.5),
         middle = quantile(samples, 0.75) - quantile(samples, 0.25);
  return (tune_timing){.median = median,
                       .minimum = samples->seconds[0],
                       .spread = median > 0 ? middle / median : 0,
                       .runs = samples->count};
}

base_status tune_time(tune_work work, double seconds, tune_timing *timing) {
  double start = base_seconds();
  tune_samples samples;
  base_status status = tune_samples_open(&samples, work, seconds);
  if (status == BASE_OK) {
    while (samples.count < 3 ||
           (base_seconds() - start < seconds && samples.count < TUNE_MAX_SAMPLES)) {
      tune_samples_take(&samples);
    }
    *timing = tune_samples_timing(&samples);
  }
  tune_samples_close(&samples);
  return status;
}

base_status tune_time_in_turns(const tune_work *works, uint32_t count, double seconds,
                               tune_timing *timings) {
  double end = base_seconds() + seconds;
  tune_samples *samples = calloc(count, sizeof *samples);
  base_status status = samples ? BASE_OK : BASE_MEMORY;
  for (uint32_t i = 0; i < count && status == BASE_OK; i++)
    status = tune_samples_open(&samples[i], works[i], seconds / count);
  if (status == BASE_OK) {
    for (uint32_t turn = 0; turn < 3 || base_seconds() < end; turn++) {
      if (samples[0].count == TUNE_MAX_SAMPLES) break;
      // Backwards every other time, so that nobody always follows the same one.
      for (uint32_t i = 0; i < count; i++)
        tune_samples_take(&samples[turn % 2 ? count - 1 - i : i]);
    }
    for (uint32_t i = 0; i < count; i++)
      timings[i] = tune_samples_timing(&samples[i]);
  }
  for (uint32_t i = 0; i < count && samples; i++)
    tune_samples_close(&samples[i]);
  free(samples);
  return status;
}

// ---- side by side -------------------------------------------------------------------------------

enum {
  FINALISTS = 3,   // of at least eight candidates
  CACHE_TIMES = 2, // memory that is other memory, in caches
};
static const double contest_share = 0.35; // of the time, to find them

// Takes turns until the time is used up: kernel, a finalist, kernel, the next finalist, ...
static void take_turns(tune_samples *kernel, tune_samples *finalists, double end) {
  for (uint32_t turn = 0; turn < 3 * FINALISTS || base_seconds() < end; turn++) {
    if (kernel->count == TUNE_MAX_SAMPLES) return;
    tune_samples_take(kernel);
    tune_samples_take(&finalists[turn % FINALISTS]);
  }
}

static tune_ceiling best_finalist(const tune_contest *contest, tune_samples *finalists) {
  tune_ceiling best = {0};
  for (int i = 0; i < FINALISTS; i++) {
    tune_timing timing = tune_samples_timing(&finalists[i]);
    tune_ceiling ceiling = tune_candidate_ceiling(&contest->candidates[i], timing);
    if (ceiling.gb_s > best.gb_s) best = ceiling;
  }
  return best;
}

// `kernel` NULL: the ceiling alone.
static base_status compare(const tune_work *kernel, const rt_executor *executor, tune_mix mix,
                           uint64_t cold_bytes, double seconds, tune_comparison *result) {
  double end = base_seconds() + seconds;
  tune_contest contest;
  tune_samples samples[1 + FINALISTS] = {0}; // the kernel's first
  *result = (tune_comparison){0};
  base_status status = tune_contest_open(&contest, executor, mix, cold_bytes);
  if (status != BASE_OK) return status;
  tune_contest_narrow(&contest, FINALISTS, contest_share * seconds);
  double left = end - base_seconds();
  if (left < 0) left = 0;
  for (int i = 0; i < FINALISTS && status == BASE_OK; i++) {
    tune_work work = tune_candidate_work(&contest.candidates[i]);
    status = tune_samples_open(&samples[1 + i], work, left / 8);
  }
  tune_work first = kernel ? *kernel : tune_candidate_work(&contest.candidates[0]);
  if (status == BASE_OK) status = tune_samples_open(&samples[0], first, left);
  if (status == BASE_OK) {
    take_turns(&samples[0], &samples[1], end);
    result->kernel = tune_samples_timing(&samples[0]);
    result->ceiling = best_finalist(&contest, &samples[1]);
  }
  for (int i = 0; i <= FINALISTS; i++) {
    tune_samples_close(&samples[i]);
  }
  tune_contest_close(&contest);
  return status;
}

base_status tune_ceiling_measure(const rt_executor *executor, tune_mix mix, double seconds,
                                 tune_ceiling *ceiling) {
  tune_comparison result;
  base_status status = compare(NULL, executor, mix, 0, seconds, &result);
  *ceiling = result.ceiling;
  return status;
}

base_status tune_measure_interleaved(tune_work kernel, const rt_executor *executor,
                                     uint64_t read_bytes, uint64_t written_bytes,
                                     uint64_t cold_bytes, double seconds, tune_comparison *result) {
  tune_mix mix = tune_mix_of(read_bytes, written_bytes);
  base_status status = compare(&kernel, executor, mix, cold_bytes, seconds, result);
  double bytes = (double)read_bytes + (double)written_bytes;
  if (status == BASE_OK && result->kernel.median > 0)
    result->gb_s = bytes / result->kernel.median * 1e-9;
  return status;
}

uint32_t tune_cold_sets_of(uint64_t cache_bytes, uint64_t bytes) {
  if (bytes == 0 || bytes / CACHE_TIMES >= cache_bytes) return 1;
  uint64_t sets = (CACHE_TIMES * cache_bytes + bytes - 1) / bytes;
  return sets < UINT32_MAX ? (uint32_t)sets : UINT32_MAX;
}

static uint32_t common_divisor(uint32_t a, uint32_t b) {
  while (b != 0) {
    uint32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

uint32_t tune_cold_step(uint32_t sets) {
  uint32_t step = sets / 8 * 5 + 1; // far from both neighbours, also after a few steps
  while (common_divisor(step, sets) != 1)
    step++;
  return step;
}
