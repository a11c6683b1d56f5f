// The library's own threads: pthreadpool behind an rt_executor.
//
// pthreadpool lets one parallel call run at a time and makes others wait, so several host threads
// may launch on one pool. A launch from inside a pool's own task would wait for itself: hosts must
// not do that.
#include "runtime/runtime.h"

#include <pthreadpool.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_THREADS = 4096 }; // pthreadpool does not survive a thread that cannot be created

struct rt_pool {
  pthreadpool_t threads;
};

// Cores in the affinity mask, which containers and taskset narrow.
static uint32_t allowed_cores(void) {
#ifdef __linux__
  for (size_t limit = CPU_SETSIZE; limit <= (size_t)1 << 20;
       limit *= 2) { // the mask may be wider than cpu_set_t
    cpu_set_t *mask = CPU_ALLOC(limit);
    if (!mask) break;
    int failed = sched_getaffinity(0, CPU_ALLOC_SIZE(limit), mask);
    int count = failed ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE(limit), mask);
    CPU_FREE(mask);
    if (count > 0) return (uint32_t)count;
  }
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (uint32_t)online : 1;
}

// Cores' worth of time the control group grants (version 2); more threads than that would be
// throttled together. No limit, or nothing to read: UINT32_MAX.
static uint32_t granted_cores(void) {
  FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (!file) return UINT32_MAX;
  long long quota, period;
  int found = fscanf(file, "%lld %lld", &quota, &period); // "max 100000" when there is no limit
  fclose(file);
  if (found != 2 || quota <= 0 || period <= 0) return UINT32_MAX;
  long long cores = (quota + period - 1) / period;
  return cores < UINT32_MAX ? (uint32_t)cores : UINT32_MAX;
}

uint32_t rt_pool_threads(uint32_t threads) {
  if (threads > 0) return threads;
  uint32_t allowed = allowed_cores(), granted = granted_cores();
  return allowed < granted ? allowed : granted;
}

base_status rt_pool_create(uint32_t threads, rt_pool **out) {
  *out = NULL;
  threads = rt_pool_threads(threads);
  if (threads > MAX_THREADS) return BASE_UNSUPPORTED;
  rt_pool *pool = malloc(sizeof *pool);
  if (!pool) return BASE_MEMORY;
  pool->threads = pthreadpool_create(threads);
  if (!pool->threads) {
    free(pool);
    return BASE_MEMORY;
  }
  *out = pool;
  return BASE_OK;
}

void rt_pool_destroy(rt_pool *pool) {
  if (!pool) return;
  pthreadpool_destroy(pool->threads);
  free(pool);
}

// One parallel call. pthreadpool orders memory with fences of its own, inside a library that race
// detectors cannot see into; the two counters say the same in the language's terms.
typedef struct parallel_call {
  void (*work)(void *argument, size_t index);
  void *argument;
  atomic_size_t started, finished;
} parallel_call;

static void run_one(void *context, size_t index) {
  parallel_call *call = context;
  atomic_load_explicit(&call->started, memory_order_acquire);
  call->work(call->argument, index);
  atomic_fetch_add_explicit(&call->finished, 1, memory_order_release);
}

static void parallel_for(void *user, size_t count, void (*work)(void *argument, size_t index),
                         void *argument) {
  rt_pool *pool = user;
  parallel_call call = {.work = work, .argument = argument};
  atomic_store_explicit(&call.started, 1, memory_order_release);
  pthreadpool_parallelize_1d(pool->threads, run_one, &call, count, 0);
  atomic_load_explicit(&call.finished, memory_order_acquire);
}

rt_executor rt_pool_executor(rt_pool *pool) {
  return (rt_executor){.user = pool,
                       .concurrency = (uint32_t)pthreadpool_get_threads_count(pool->threads),
                       .parallel_for = parallel_for};
}
