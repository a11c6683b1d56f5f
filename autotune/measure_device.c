// Timing on a device. Kernel and copy take turns, so that clocks and neighbours move both alike.
//
// A sample is a batch of calls between two of the device's events, one call right behind the other.
// The device must have something to do until the host has launched all of them, or it is the host
// that gets timed: so fills of other memory come first. They leave the level 2 cache full of lines
// that are still to be written, which some calls ahead of the first event put in order.
#include "autotune/contest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  LEAST_SAMPLES = 3,
  CALLS_MOST = 256, // of a sample; a driver queues about a thousand launches
  FILLS_MOST = 64,  // before a sample
  CACHE_TIMES = 2,  // memory that is other memory, in caches
};
static const double sample_seconds = 300e-6; // of a batch, about: a thousand times an event's step
static const double warm_share = 0.25;       // of the time to measure
static const size_t least_filled = (size_t)32 << 20;

typedef struct turn {
  tune_work work;
  tune_samples samples;
  uint32_t ahead;        // calls before the first event
  double launch_seconds; // of the host, for a call; the fastest so far
} turn;

typedef struct rig {
  rt_device *device;
  base_diag *diag;
  rt_timer *timer;
  char *from, *to; // what copies move, `sets` times
  void *filled;
  size_t copy_bytes, filled_bytes;
  uint32_t sets, set;
  double fill_seconds;
  base_status status; // of the copies: the first that failed
  uint32_t count;
  turn *turns;
} rig;

uint32_t tune_cold_sets(const rt_device *device, uint64_t bytes) {
  uint32_t sets = tune_cold_sets_of(device->facts.level2_bytes, bytes);
  return sets < 2 * CALLS_MOST ? sets : 2 * CALLS_MOST;
}

// ---- one sample ---------------------------------------------------------------------------------

static void run_copy(void *user) {
  rig *r = user;
  size_t offset = r->set * r->copy_bytes;
  r->set = (r->set + 1) % r->sets;
  base_status status = r->device->ops->copy(r->device, NULL, r->to + offset, r->from + offset,
                                            r->copy_bytes, r->diag);
  if (r->status == BASE_OK) r->status = status;
}

static base_status fill(rig *r, uint32_t times) {
  base_status status = BASE_OK;
  for (uint32_t i = 0; i < times && status == BASE_OK; i++)
    status = r->device->ops->fill(r->device, NULL, r->filled, 0, r->filled_bytes, r->diag);
  return status;
}

// So many that they last until `calls` are launched; one where no number of them would.
static uint32_t fills_for(const rig *r, const turn *t, uint32_t calls) {
  double launching = 1.25 * t->launch_seconds * calls;
  double fills = r->fill_seconds > 0 ? launching / r->fill_seconds : 0;
  return fills < FILLS_MOST ? (uint32_t)fills + 1 : 1;
}

static void call_all(turn *t, uint32_t calls) {
  for (uint32_t i = 0; i < calls; i++)
    t->work.call(t->work.user);
}

// Seconds of one call.
static base_status take(rig *r, turn *t, double *seconds) {
  const rt_device_ops *ops = r->device->ops;
  uint32_t calls = t->samples.batch;
  double microseconds = 0;
  base_status status = fill(r, fills_for(r, t, t->ahead + calls));
  if (status != BASE_OK) return status;
  call_all(t, t->ahead);
  status = ops->timer_start(r->device, r->timer, NULL, r->diag);
  if (status != BASE_OK) return status;
  double start = base_seconds();
  call_all(t, calls);
  double launching = (base_seconds() - start) / calls;
  status = ops->timer_stop(r->device, r->timer, NULL, &microseconds, r->diag);
  if (launching < t->launch_seconds) t->launch_seconds = launching;
  *seconds = microseconds * 1e-6 / calls;
  return status == BASE_OK ? r->status : status;
}

// ---- turns --------------------------------------------------------------------------------------

// Batches grow until one is long enough; by then the work has been warmed up as well.
static base_status choose_batch(rig *r, turn *t) {
  double seconds;
  for (;;) {
    base_status status = take(r, t, &seconds);
    if (status != BASE_OK) return status;
    uint32_t calls = t->samples.batch;
    if (calls == CALLS_MOST || seconds * calls >= sample_seconds) return BASE_OK;
    double wanted = seconds > 0 ? sample_seconds / seconds + 1 : CALLS_MOST;
    if (wanted > 8.0 * calls) wanted = 8.0 * calls; // the first ones are slow
    calls = wanted < CALLS_MOST ? (uint32_t)wanted : CALLS_MOST;
    t->samples.batch = calls > t->samples.batch ? calls : t->samples.batch + 1;
    t->ahead = r->sets < t->samples.batch ? r->sets : t->samples.batch;
  }
}

static base_status each_once(rig *r, bool keep) {
  for (uint32_t i = 0; i < r->count; i++) {
    tune_samples *samples = &r->turns[i].samples;
    double time;
    base_status status = take(r, &r->turns[i], &time);
    if (status != BASE_OK) return status;
    if (keep) samples->seconds[samples->count++] = time;
  }
  return BASE_OK;
}

static base_status take_turns(rig *r, double seconds) {
  const tune_samples *last = &r->turns[r->count - 1].samples;
  double now = base_seconds(), warm = now + warm_share * seconds, end = now + seconds;
  base_status status = BASE_OK;
  for (uint32_t i = 0; i < r->count && status == BASE_OK; i++)
    status = choose_batch(r, &r->turns[i]);
  while (status == BASE_OK && base_seconds() < warm)
    status = each_once(r, false);
  while (status == BASE_OK && last->count < TUNE_MAX_SAMPLES &&
         (last->count < LEAST_SAMPLES || base_seconds() < end))
    status = each_once(r, true);
  return status;
}

// ---- the rig ------------------------------------------------------------------------------------

static base_status time_fills(rig *r) {
  enum { FILLS = 4 };
  const rt_device_ops *ops = r->device->ops;
  double microseconds = 0;
  base_status status = fill(r, 1);
  if (status == BASE_OK) status = ops->timer_start(r->device, r->timer, NULL, r->diag);
  if (status == BASE_OK) status = fill(r, FILLS);
  if (status == BASE_OK)
    status = ops->timer_stop(r->device, r->timer, NULL, &microseconds, r->diag);
  r->fill_seconds = microseconds * 1e-6 / FILLS;
  return status;
}

static base_status allocate(rig *r, size_t bytes, char **out) {
  void *memory = NULL;
  base_status status = r->device->ops->allocate(r->device, bytes, &memory, r->diag);
  *out = memory;
  return status;
}

static base_status open_rig(rig *r) {
  const rt_device_ops *ops = r->device->ops;
  for (uint32_t i = 0; i < r->count; i++) {
    tune_samples *samples = &r->turns[i].samples;
    *samples = (tune_samples){.batch = 1};
    samples->seconds = malloc(TUNE_MAX_SAMPLES * sizeof(double));
    if (samples->seconds != NULL) continue;
    base_error_status(r->diag, BASE_MEMORY, (base_loc){0}, "out of memory");
    return BASE_MEMORY;
  }
  char *filled = NULL;
  base_status status = ops->timer_create(r->device, &r->timer, r->diag);
  if (status == BASE_OK) status = allocate(r, r->filled_bytes, &filled);
  r->filled = filled;
  if (status == BASE_OK && r->copy_bytes > 0)
    status = allocate(r, r->sets * r->copy_bytes, &r->from);
  if (status == BASE_OK && r->copy_bytes > 0) status = allocate(r, r->sets * r->copy_bytes, &r->to);
  if (status == BASE_OK && r->copy_bytes > 0)
    status = ops->fill(r->device, NULL, r->from, 1, r->sets * r->copy_bytes, r->diag);
  return status == BASE_OK ? time_fills(r) : status;
}

static void close_rig(rig *r) {
  const rt_device_ops *ops = r->device->ops;
  ops->release(r->device, r->from);
  ops->release(r->device, r->to);
  ops->release(r->device, r->filled);
  ops->timer_destroy(r->device, r->timer);
  for (uint32_t i = 0; i < r->count; i++)
    tune_samples_close(&r->turns[i].samples);
}

static void conclude(rig *r, uint64_t bytes, tune_comparison *result) {
  turn *kernel = &r->turns[0], *copy = &r->turns[1];
  result->kernel = tune_samples_timing(&kernel->samples);
  result->batch = kernel->samples.batch;
  result->launch_seconds = kernel->launch_seconds;
  result->ceiling.timing = tune_samples_timing(&copy->samples);
  snprintf(result->ceiling.variant, sizeof result->ceiling.variant, "copy within the device");
  double copied = 2.0 * (double)r->copy_bytes;
  if (result->ceiling.timing.median > 0)
    result->ceiling.gb_s = copied / result->ceiling.timing.median * 1e-9;
  if (result->kernel.median > 0) result->gb_s = (double)bytes / result->kernel.median * 1e-9;
}

static size_t bytes_to_fill(const rt_device *device) {
  size_t cache = CACHE_TIMES * device->facts.level2_bytes;
  return cache > least_filled ? cache : least_filled;
}

base_status tune_measure_device(rt_device *device, tune_work kernel, uint32_t sets, uint64_t bytes,
                                double seconds, tune_comparison *result, base_diag *diag) {
  enum { UNIT = 256 };
  turn turns[2] = {{.ahead = 1, .launch_seconds = INFINITY},
                   {.ahead = 1, .launch_seconds = INFINITY}};
  rig r = {.device = device,
           .diag = diag,
           .copy_bytes = (size_t)((bytes + 1) / 2 + UNIT - 1) / UNIT * UNIT, // read and written
           .filled_bytes = bytes_to_fill(device),
           .sets = sets,
           .count = 2,
           .turns = turns};
  turns[0].work = kernel;
  turns[1].work = (tune_work){run_copy, &r};
  *result = (tune_comparison){0};
  base_status status = open_rig(&r);
  if (status == BASE_OK) status = take_turns(&r, seconds);
  if (status == BASE_OK) conclude(&r, bytes, result);
  close_rig(&r);
  return status;
}

base_status tune_time_on_device(rt_device *device, const tune_work *works, uint32_t count,
                                uint32_t sets, double seconds, tune_timing *timings,
                                base_diag *diag) {
  turn *turns = calloc(count, sizeof *turns);
  rig r = {.device = device,
           .diag = diag,
           .filled_bytes = bytes_to_fill(device),
           .sets = sets,
           .count = turns ? count : 0,
           .turns = turns};
  for (uint32_t i = 0; i < r.count; i++)
    turns[i] = (turn){.work = works[i], .ahead = 1, .launch_seconds = INFINITY};
  base_status status = turns ? open_rig(&r) : BASE_MEMORY;
  if (status == BASE_OK) status = take_turns(&r, seconds);
  for (uint32_t i = 0; i < count && status == BASE_OK; i++)
    timings[i] = tune_samples_timing(&turns[i].samples);
  close_rig(&r);
  free(turns);
  return status;
}
