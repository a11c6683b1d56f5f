// autotune: measuring. How fast a call is, and how fast this machine could move the same bytes.
//
// Sections: timing, the ceiling, side by side, on a device.
//
// A number alone says little on a shared machine: clocks, neighbours and page placement move it by
// tens of percent from run to run. So a kernel is measured in turns with copy-like streams of the
// same reads, writes, threads and total size, and the share of that ceiling is what gets compared.
#ifndef FATHOM_AUTOTUNE_MEASURE_H
#define FATHOM_AUTOTUNE_MEASURE_H

#include "base/base.h"
#include "runtime/device.h"
#include "runtime/runtime.h"

// ---- timing -------------------------------------------------------------------------------------

// What is measured: one call does the whole work once.
typedef struct tune_work {
  void (*call)(void *user);
  void *user;
} tune_work;

// Seconds for one call.
typedef struct tune_timing {
  double median, minimum;
  double spread; // (third quartile - first quartile) / median
  uint32_t runs; // timed samples; a sample of very short work is a batch of calls
} tune_timing;

// Calls `work` until its time no longer falls, then times it for about `seconds` (three samples at
// least). BASE_MEMORY when there is no room for the samples.
base_status tune_time(tune_work work, double seconds, tune_timing *timing);

// Several pieces of work in turns, sample by sample, for about `seconds` in all.
base_status tune_time_in_turns(const tune_work *works, uint32_t count, double seconds,
                               tune_timing *timings);

// ---- the ceiling --------------------------------------------------------------------------------

enum { TUNE_MAX_STREAMS = 16 };

// Traffic as equal streams: `reads` are read, `writes` are written, `stream_bytes` each.
typedef struct tune_mix {
  uint32_t reads, writes; // together 1 .. TUNE_MAX_STREAMS
  size_t stream_bytes;    // a multiple of 256
} tune_mix;

// The fewest streams whose share of writes is right to 0.01, with the same total (up to 256 bytes a
// stream more).
tune_mix tune_mix_of(uint64_t read_bytes, uint64_t written_bytes);

typedef struct tune_ceiling {
  double gb_s; // 1e9 bytes a second, all streams together, by the median
  tune_timing timing;
  char variant[64]; // which one won, e.g. "avx512 non-temporal by-line prefetch"
} tune_ceiling;

// The best of all stream kernels this machine can run, on all of the executor's workers.
base_status tune_ceiling_measure(const rt_executor *executor, tune_mix mix, double seconds,
                                 tune_ceiling *ceiling);

// ---- side by side -------------------------------------------------------------------------------

typedef struct tune_comparison {
  tune_timing kernel;
  tune_ceiling ceiling;
  double gb_s; // of the kernel: (read_bytes + written_bytes) / median
  // On a device: calls of the kernel in a sample, and what one takes the host, at best.
  uint32_t batch;
  double launch_seconds;
} tune_comparison;

// Picks the best stream kernels for the mix, then measures kernel, ceiling, kernel, ceiling, ...
// for about `seconds` in all. `kernel` must run on the same executor and move that many bytes in a
// call; nothing else should use the executor meanwhile. With `cold_bytes`, which is what all caches
// hold, the streams go round as many sets of memory as it takes to find nothing in them, and the
// kernel is to do the same; with 0 both find there what fits.
base_status tune_measure_interleaved(tune_work kernel, const rt_executor *executor,
                                     uint64_t read_bytes, uint64_t written_bytes,
                                     uint64_t cold_bytes, double seconds, tune_comparison *result);

// How many sets of memory, of `bytes` each, calls should go round so that one that comes back to a
// set finds nothing of it in caches of `cache_bytes`; 1 where one call fills them with other data.
uint32_t tune_cold_sets_of(uint64_t cache_bytes, uint64_t bytes);
// From the set of one call to that of the next, modulo `sets`: all are used in turn, and none right
// behind its neighbour in memory, for which the processor's prefetchers would already have asked.
uint32_t tune_cold_step(uint32_t sets);

// ---- on a device --------------------------------------------------------------------------------

// The same for a device's level 2 cache, and no more sets than are launched in a row.
uint32_t tune_cold_sets(const rt_device *device, uint64_t bytes);

// The same on a device, by its timers, which leave the host out: `kernel` launches on the default
// stream what moves `bytes`. The ceiling is a copy within the device that moves as many, half of
// them written. Samples are batches of launches, each right behind the one before. With `sets` from
// tune_cold_sets the calls of both go round so many sets of memory (`kernel` sees to its own) and
// find the level 2 cache cold; with 1 they find there what fits.
base_status tune_measure_device(rt_device *device, tune_work kernel, uint32_t sets, uint64_t bytes,
                                double seconds, tune_comparison *result, base_diag *diag);

// Several kernels in turns, batch by batch, in the same way; no copies. At least one.
base_status tune_time_on_device(rt_device *device, const tune_work *works, uint32_t count,
                                uint32_t sets, double seconds, tune_timing *timings,
                                base_diag *diag);

#endif
