// What cpuinfo knows of the processor.
#include <cpuinfo.h>
#include <stdio.h>

#include "runtime/runtime.h"

static size_t size_of(const struct cpuinfo_cache *cache) {
  return cache ? cache->size : 0;
}

rt_processor rt_processor_read(void) {
  rt_processor processor = {.cores = 0};
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
  return processor;
}
