// Timing on a device. Its own timers leave the host's launch out; kernel and copy take turns, so that
// clocks and neighbours move both alike.
#include "autotune/contest.h"

#include <stdio.h>
#include <stdlib.h>

enum { LEAST_SAMPLES = 3, CACHE_TIMES = 2 };
static const double warm_share = 0.25; // of the time

typedef struct rig {
  rt_device *device;
  base_diag *diag;
  rt_timer *timer;
  void *from, *to, *cache; // memory of the device
  size_t half, cache_bytes;
  tune_work kernel;
  tune_samples samples[2]; // of the kernel, of the copy
} rig;

static base_status run_copy(rig *r) {
  return r->device->ops->copy(r->device, NULL, r->to, r->from, r->half, r->diag);
}

// Seconds of one run.
static base_status time_once(rig *r, bool copy, double *seconds) {
  const rt_device_ops *ops = r->device->ops;
  double microseconds = 0;
  base_status status = BASE_OK;
  if (r->cache_bytes > 0) status = ops->fill(r->device, NULL, r->cache, 0, r->cache_bytes, r->diag);
  if (status == BASE_OK) status = ops->timer_start(r->device, r->timer, NULL, r->diag);
  if (status == BASE_OK && copy) status = run_copy(r);
  if (status == BASE_OK && !copy) r->kernel.call(r->kernel.user);
  if (status == BASE_OK)
    status = ops->timer_stop(r->device, r->timer, NULL, &microseconds, r->diag);
  *seconds = microseconds * 1e-6;
  return status;
}

static base_status take_turns(rig *r, double seconds) {
  double now = tune_now(), warm = now + warm_share * seconds, end = now + seconds, time;
  base_status status = BASE_OK;
  do
    for (int i = 0; i < 2 && status == BASE_OK; i++)
      status = time_once(r, i == 1, &time);
  while (status == BASE_OK && tune_now() < warm);
  while (status == BASE_OK && r->samples[1].count < TUNE_MAX_SAMPLES &&
         (r->samples[1].count < LEAST_SAMPLES || tune_now() < end))
    for (int i = 0; i < 2 && status == BASE_OK; i++) {
      status = time_once(r, i == 1, &time);
      r->samples[i].seconds[r->samples[i].count++] = time;
    }
  return status;
}

static base_status open_rig(rig *r) {
  const rt_device_ops *ops = r->device->ops;
  for (int i = 0; i < 2; i++) {
    r->samples[i] = (tune_samples){.batch = 1};
    r->samples[i].seconds = malloc(TUNE_MAX_SAMPLES * sizeof(double));
    if (r->samples[i].seconds != NULL) continue;
    base_error_status(r->diag, BASE_MEMORY, (base_loc){0}, "out of memory");
    return BASE_MEMORY;
  }
  base_status status = ops->timer_create(r->device, &r->timer, r->diag);
  if (status == BASE_OK) status = ops->allocate(r->device, r->half, &r->from, r->diag);
  if (status == BASE_OK) status = ops->allocate(r->device, r->half, &r->to, r->diag);
  if (status == BASE_OK) status = ops->fill(r->device, NULL, r->from, 1, r->half, r->diag);
  if (status == BASE_OK && r->cache_bytes > 0)
    status = ops->allocate(r->device, r->cache_bytes, &r->cache, r->diag);
  return status;
}

static void close_rig(rig *r) {
  const rt_device_ops *ops = r->device->ops;
  ops->release(r->device, r->from);
  ops->release(r->device, r->to);
  ops->release(r->device, r->cache);
  ops->timer_destroy(r->device, r->timer);
  for (int i = 0; i < 2; i++)
    tune_samples_close(&r->samples[i]);
}

base_status tune_measure_device(rt_device *device, tune_work kernel, uint64_t bytes, double seconds,
                                tune_comparison *result, base_diag *diag) {
  rig r = {.device = device,
           .diag = diag,
           .half = (size_t)(bytes + 1) / 2, // a copy reads it and writes it
           .cache_bytes = CACHE_TIMES * device->facts.level2_bytes,
           .kernel = kernel};
  *result = (tune_comparison){0};
  base_status status = open_rig(&r);
  if (status == BASE_OK) status = take_turns(&r, seconds);
  if (status == BASE_OK) {
    result->kernel = tune_samples_timing(&r.samples[0]);
    result->ceiling.timing = tune_samples_timing(&r.samples[1]);
    snprintf(result->ceiling.variant, sizeof result->ceiling.variant, "copy within the device");
    if (result->ceiling.timing.median > 0)
      result->ceiling.gb_s = 2.0 * (double)r.half / result->ceiling.timing.median * 1e-9;
    if (result->kernel.median > 0) result->gb_s = (double)bytes / result->kernel.median * 1e-9;
  }
  close_rig(&r);
  return status;
}
