// Default schedules for a GPU: candidates in the order of preference, of which the first one counts
// that the architecture can run and that reads every source once. What they rest on is counted, not
// yet measured (docs/performance.md); a schedule given on the command line or by the tuner replaces
// them.
#include "codegen/cuda/cuda.h"

#include "codegen/cuda/text.h"
#include "passes/passes.h"

// A row's sources wait in registers. Where shared memory has room for the next row's, those are
// under way meanwhile.
static const char *const without_queries[] = {
    "source_tile=16,load=1",
    "source_tile=16",
};

// Queries need registers of their own, so the sources wait in shared memory; where that is too
// small, in registers, for few queries at a time, or in those of two blocks.
static const char *const with_queries[] = {
    "source_tile=8,query_tile=2,load=1,residency=2,working=72",
    "source_tile=8,query_tile=1",
    "source_tile=8,query_tile=1,split=2",
    "source_tile=8,query_tile=1,residency=0",
};

// Does a sweep over rows have a loop over queries?
static bool has_queries(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->loop_count && !sweep->scalar; j++) {
      const kir_axis *axis = &kernel->axes[sweep->loops[j].index];
      if (!axis->source && !axis->hidden && !axis->head && axis->size > 1) return true;
    }
  }
  return false;
}

static bool try_schedule(const ir_graph *graph, int32_t index, const cuda_arch *arch,
                         const char *text, kir_schedule *schedule, bool *once, bool *queries) {
  base_diag unused;
  base_diag_init(&unused, graph->arena, BASE_STR(""), BASE_STR(""));
  *schedule = kir_schedule_default(KIR_CUDA);
  kir_schedule_parse(text, schedule, &unused);
  // Blackwell's compiler pairs f32 operations: what is worked on takes more registers.
  if (arch->capability >= 100) schedule->working += 32;
  if ((schedule->load == 1 && !arch->copy_async) || (schedule->split > 1 && !arch->cluster))
    return false;
  const kir_kernel *kernel = pass_lower(graph, index, schedule, &unused);
  if (!kernel) return false;
  *queries = has_queries(kernel);
  *once = !kir_reads_rows_again(kernel);
  return text_shared_bytes(kernel) <= arch->shared_per_block;
}

kir_schedule cuda_default_schedule(const ir_graph *graph, int32_t index, const cuda_arch *arch) {
  kir_schedule schedule, fallback = kir_schedule_default(KIR_CUDA);
  bool once, queries, found = false;
  try_schedule(graph, index, arch, "", &schedule, &once, &queries);
  const char *const *texts = queries ? with_queries : without_queries;
  size_t count = queries ? sizeof with_queries / sizeof *with_queries
                         : sizeof without_queries / sizeof *without_queries;
  for (size_t i = 0; i < count; i++) {
    bool unused;
    if (!try_schedule(graph, index, arch, texts[i], &schedule, &once, &unused)) continue;
    if (once) return schedule;
    if (!found) fallback = schedule;
    found = true;
  }
  return fallback;
}
