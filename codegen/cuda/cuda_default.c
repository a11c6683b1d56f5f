// Default schedules for a GPU: candidates in the order of preference, of which the first one counts
// that the architecture can run and that reads every source once. What they rest on is counted, not
// yet measured (docs/performance.md); a schedule given on the command line or by the tuner replaces
// them.
#include "codegen/cuda/cuda.h"

#include "codegen/cuda/text.h"
#include "passes/passes.h"

typedef struct candidate {
  const char *text;
  bool
      alone; // a block that has its multiprocessor to itself, with a thread for each access of a row
} candidate;

// A row's sources wait in registers. Where shared memory has room for the next row's, those are
// under way meanwhile. Registers that hold sources leave no room for a second block, so the only one
// has as many threads as a row has accesses: twice the warps, and half the text to compile.
static const candidate without_queries[] = {
    {"source_tile=16,load=1,working=48", true},
    {"source_tile=16,load=1", false},
    {"source_tile=16,working=48", true},
    {"source_tile=16", false},
};

// Queries need registers of their own, so the sources wait in shared memory; where that is too
// small, in registers, for few queries at a time, or in those of two blocks.
static const candidate with_queries[] = {
    {"source_tile=8,query_tile=2,load=1,residency=2,working=72", false},
    {"source_tile=8,query_tile=1", false},
    {"source_tile=8,query_tile=1,split=2", false},
    {"source_tile=8,query_tile=1,residency=0", false},
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

static bool holds_sources(const kir_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->args.count; i++)
    if (kernel->args.data[i].residency == KIR_REGISTERS) return true;
  return false;
}

// Threads of a team that takes a row in one turn; 0: more than a block has, or than it has now.
static int64_t one_turn(const kir_kernel *kernel, const cuda_arch *arch) {
  int64_t most = 1;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->scalar || sweep->lane < 0) continue;
    int64_t turns =
        kir_turns(kernel, sweep->loops[sweep->lane], kernel->team.threads, sweep->single);
    if (turns > most) most = turns;
  }
  int64_t threads = kernel->team.threads * most;
  return most > 1 && threads <= arch->threads_per_block ? threads : 0;
}

// As many threads as a row has accesses.
static const kir_kernel *lower_alone(const ir_graph *graph, int32_t index, const cuda_arch *arch,
                                     kir_schedule *schedule, base_diag *diag) {
  const kir_kernel *kernel = pass_lower(graph, index, schedule, diag);
  if (kernel) schedule->team = one_turn(kernel, arch);
  if (!kernel || !schedule->team) return NULL;
  kernel = pass_lower(graph, index, schedule, diag);
  return kernel && holds_sources(kernel) && !kernel->chain.used ? kernel : NULL;
}

static bool try_schedule(const ir_graph *graph, int32_t index, const cuda_arch *arch,
                         const candidate *tried, kir_schedule *schedule, bool *once,
                         bool *queries) {
  base_diag unused;
  base_diag_init(&unused, graph->arena, BASE_STR(""), BASE_STR(""));
  *schedule = kir_schedule_default(KIR_CUDA);
  kir_schedule_parse(tried->text, schedule, &unused);
  // Blackwell's compiler pairs f32 operations: what is worked on takes more registers.
  if (arch->capability >= 100) schedule->working += tried->alone ? 8 : 32;
  if ((schedule->load == 1 && !arch->copy_async) || (schedule->split > 1 && !arch->cluster))
    return false;
  const kir_kernel *kernel = tried->alone ? lower_alone(graph, index, arch, schedule, &unused)
                                          : pass_lower(graph, index, schedule, &unused);
  if (!kernel) return false;
  *queries = has_queries(kernel);
  *once = !kir_reads_rows_again(kernel);
  return text_shared_bytes(kernel) <= arch->shared_per_block;
}

kir_schedule cuda_default_schedule(const ir_graph *graph, int32_t index, const cuda_arch *arch) {
  kir_schedule schedule, fallback = kir_schedule_default(KIR_CUDA);
  bool once, queries, found = false;
  try_schedule(graph, index, arch, &(candidate){"", false}, &schedule, &once, &queries);
  const candidate *candidates = queries ? with_queries : without_queries;
  size_t count = queries ? sizeof with_queries / sizeof *with_queries
                         : sizeof without_queries / sizeof *without_queries;
  for (size_t i = 0; i < count; i++) {
    bool unused;
    if (!try_schedule(graph, index, arch, &candidates[i], &schedule, &once, &unused)) continue;
    if (once) return schedule;
    if (!found) fallback = schedule;
    found = true;
  }
  return fallback;
}
