// The cost model of a CPU, second half: from counts to seconds. Constants were fitted to recorded times
// (docs/cost-model.md).
#include <math.h>

#include "autotune/model.h"
#include "passes/passes.h"

enum {
  LATENCY = 4,            // cycles of a multiply-add
  LEVEL2_BYTES = 1 << 20, // of one core's second level cache, what one may count on
};

// Shares of the shorter of two times, memory's and the core's, that pass beside the longer one; and what
// taking up a task costs.
static const double hidden_overlapped = 0.85, hidden_usually = 0.6, task_seconds = 0.3e-6;

// Sums over the sweeps, one after the other; sweeps that share a loop are one.
typedef struct row_counts {
  double bytes_read, bytes_written;  // of memory
  double prepare_cycles, row_cycles; // of the core, as if all were in its caches
  double ahead_cycles;               // those of row_cycles that run a row ahead
  bool overlapped;                   // the reading of memory runs beside arithmetic
} row_counts;

// ---- cycles -------------------------------------------------------------------------------------

// The core completes two arithmetic operations and two loads a cycle, or one store.
static double cycles_of(const tune_sweep_counts *c, double level2_bytes_a_cycle, bool scalar) {
  double arithmetic = c->arithmetic / 2, memory = (c->loads + c->prefetches + c->spills / 2) / 2;
  double stores = c->stores + c->spills / 2;
  double cycles = fmax(fmax(arithmetic, memory), fmax(stores, c->chain * LATENCY));
  cycles = fmax(cycles, c->level2_bytes / level2_bytes_a_cycle);
  // A scalar section is a row of operations that wait for each other.
  return cycles + 2 * c->steps + (scalar ? 40 + c->arithmetic : 20);
}

static void add_counts(tune_sweep_counts *sum, const tune_sweep_counts *c) {
  sum->arithmetic += c->arithmetic;
  sum->loads += c->loads;
  sum->stores += c->stores;
  sum->prefetches += c->prefetches;
  sum->spills += c->spills;
  sum->chain = fmax(sum->chain, c->chain);
  sum->steps = fmax(sum->steps, c->steps);
  sum->level2_bytes += c->level2_bytes;
}

typedef struct machine {
  double hertz;          // of a core that completes two vector operations a cycle
  double level2_a_cycle; // bytes
} machine;

static row_counts count_kernel(base_arena *arena, const kir_kernel *kernel, uint32_t lanes,
                               const machine *m) {
  row_counts all = {.overlapped = kernel->overlap >= 0};
  tune_sweep_counts together = {0}, ahead = {0};
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    tune_sweep_counts c = tune_count_sweep(arena, kernel, sweep, lanes);
    double cycles = cycles_of(&c, m->level2_a_cycle, sweep->scalar);
    if (sweep->phase == KIR_PREPARE) {
      all.prepare_cycles += cycles;
    } else if (kernel->overlap >= 0 && (sweep->ahead || (int32_t)i == kernel->overlap)) {
      add_counts(&together, &c);
      if (sweep->ahead) add_counts(&ahead, &c);
    } else {
      all.row_cycles += cycles;
    }
  }
  if (kernel->overlap >= 0) {
    all.row_cycles += cycles_of(&together, m->level2_a_cycle, false);
    all.ahead_cycles = cycles_of(&ahead, m->level2_a_cycle, false);
  }
  kir_cost cost = kir_cost_per_row(kernel);
  all.bytes_read = cost.bytes_read;
  all.bytes_written = cost.bytes_written;
  return all;
}

// ---- seconds ------------------------------------------------------------------------------------

// Bytes a second of one thread, for what lies in the second level cache, in the last one, or beyond.
typedef struct traffic {
  double read, write;
} traffic;

// Between the sizes at which calibration measured, the logarithms are interpolated.
static double between(double cache, double memory, double share) {
  return cache * pow(memory / cache, share);
}

static traffic traffic_of(const tune_calibration *known, double bytes, double threads) {
  double inside = TUNE_CACHE_BYTES, outside = TUNE_MEMORY_BYTES;
  if (bytes <= threads * LEVEL2_BYTES)
    return (traffic){known->level2_gb_s * 1e9, known->level2_gb_s * 1e9};
  double share = fmin(fmax(log(bytes / inside) / log(outside / inside), 0), 1);
  return (traffic){between(known->cache_read_gb_s, known->memory_read_gb_s, share) * 1e9,
                   between(known->cache_write_gb_s, known->memory_write_gb_s, share) * 1e9};
}

static double seconds_of(const kir_kernel *kernel, const tune_subject *subject,
                         const tune_calibration *known) {
  const kir_schedule *schedule = &kernel->schedule;
  machine m = {.hertz = known->vector_gops * 1e9 / 2};
  m.level2_a_cycle = known->level2_gb_s * 1e9 / m.hertz;
  row_counts c = count_kernel(kernel->graph->arena, kernel, subject->lanes, &m);
  double threads = subject->threads ? subject->threads : 1;
  double task = (double)schedule->rows, tasks = ceil((double)subject->rows / task);
  double rounds = ceil(tasks / threads), rows = fmin(rounds * task, (double)subject->rows);
  double core = c.row_cycles / m.hertz;
  traffic t = traffic_of(known, (double)subject->rows * (c.bytes_read + c.bytes_written), threads);
  // What is written the usual way is read before.
  double written = c.bytes_written / t.write + (schedule->stream ? 0 : c.bytes_written / t.read);
  double memory = c.bytes_read / t.read + written;
  double hidden = c.overlapped ? hidden_overlapped : hidden_usually;
  double row = fmax(core, memory) + (1 - hidden) * fmin(core, memory);
  return known->launch_us * 1e-6 + c.prepare_cycles / m.hertz + rows * row +
         rounds * (c.ahead_cycles / m.hertz + task_seconds);
}

void tune_predict_cpu(base_arena *arena, const tune_subject *subject, const tune_space *space,
                      const tune_calibration *calibration, double *seconds) {
  base_arena *scratch = base_arena_within(arena);
  for (uint32_t i = 0; i < space->count; i++) {
    ir_graph graph = *subject->graph; // lowering takes its memory from the graph's arena
    graph.arena = scratch;
    base_diag unused;
    base_diag_init(&unused, scratch, BASE_STR(""), BASE_STR(""));
    const kir_kernel *kernel = pass_lower(&graph, subject->kernel, &space->schedules[i], &unused);
    seconds[i] = kernel ? seconds_of(kernel, subject, calibration) : INFINITY;
    base_arena_reset(scratch);
  }
}
