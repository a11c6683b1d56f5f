// Default schedules for a CPU: rules of thumb from a kernel's structure. What they rest on is measured in
// docs/performance.md; a schedule given on the command line or by the tuner replaces them.
#include "passes/passes.h"

enum { FEW_QUERIES = 8 };

// With lanes along the queries, how many queries does a sweep spread over them?
static int64_t packed_queries(const kir_kernel *kernel) {
  int64_t most = 0;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != KIR_BODY || sweep->scalar || sweep->lane < 0) continue;
    const kir_axis *lane = &kernel->axes[sweep->loops[sweep->lane].index];
    if (!lane->hidden && lane->size > most) most = lane->size;
  }
  return most;
}

kir_schedule pass_default_schedule(const ir_graph *graph, int32_t index) {
  kir_schedule schedule = kir_schedule_default(KIR_CPU);
  // Enough queries to fill vectors: then no sum needs a reduction across lanes, and a tile of
  // sources shares each load of the queries.
  kir_schedule queries = schedule;
  queries.lanes = KIR_LANES_QUERY;
  queries.source_tile = 8;
  queries.query_tile = 16;
  queries.unroll = 2;
  base_diag unused;
  base_diag_init(&unused, graph->arena, BASE_STR(""), BASE_STR(""));
  const kir_kernel *trial = pass_lower(graph, index, &queries, &unused);
  return packed_queries(trial) >= FEW_QUERIES ? queries : schedule;
}
