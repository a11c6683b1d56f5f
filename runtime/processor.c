// What cpuinfo knows of the processor.
#include <cpuinfo.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/runtime.h"

static size_t size_of(const struct cpuinfo_cache *cache) {
  return cache ? cache->size : 0;
}

static size_t sum_of(const struct cpuinfo_cache *caches, uint32_t count) {
  size_t bytes = 0;
  for (uint32_t i = 0; caches && i < count; i++)
    bytes += caches[i].size;
  return bytes;
}

// One cache of each level: what a C library may know of them.
static size_t ask_system(void) {
  size_t bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  const long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE), level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const long cores = sysconf(_SC_NPROCESSORS_CONF);
  if (level2 > 0 && cores > 0) bytes += (size_t)level2 * (size_t)cores;
  if (level3 > 0) bytes += (size_t)level3;
#endif
  return bytes;
}

rt_processor rt_processor_read(void) {
  rt_processor processor = {.caches = ask_system()};
  if (!cpuinfo_initialize()) return processor; // once in a process; safe to call again
  if (cpuinfo_get_packages_count() > 0)
    snprintf(processor.name, sizeof processor.name, "%s", cpuinfo_get_package(0)->name);
  processor.cores = cpuinfo_get_cores_count();
  if (cpuinfo_get_processors_count() > 0) {
    const struct cpuinfo_processor *first = cpuinfo_get_processor(0);
    processor.level1_data = size_of(first->cache.l1d);
    processor.level2 = size_of(first->cache.l2);
    processor.level3 = size_of(first->cache.l3);
  }
  const size_t known = sum_of(cpuinfo_get_l2_caches(), cpuinfo_get_l2_caches_count()) +
                       sum_of(cpuinfo_get_l3_caches(), cpuinfo_get_l3_caches_count()) +
                       sum_of(cpuinfo_get_l4_caches(), cpuinfo_get_l4_caches_count());
  if (known > processor.caches) processor.caches = known;
  return processor;
}
