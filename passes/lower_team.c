// Lowering for a GPU, step 4: the team, and where values and source rows wait between two uses.
//
// Thread i of a team handles elements (turn * threads + i) * vector ... of the lane axis in every
// sweep over that axis. So a row value that is written and read at the same element needs no
// shared memory and no barrier: the thread that made it is the one that wants it. Such a value
// lives in registers while there are enough of them; what is read at other elements, or does not
// fit, lives in the team's shared memory, and what does not fit there either in the workspace.
//
// Source rows that two sweeps read (the sums for the logits, then the mix) are read from memory
// once: they wait in registers, in the form in which they came.
#include <math.h>

#include "passes/lower.h"

enum {
  REGISTERS = 65536,     // of a multiprocessor, since sm_80
  MOST_REGISTERS = 255,  // of a thread
  MOST_UNROLLED = 24,    // indices of the outer axes of a value in registers
  MOST_TURNS = 16,       // loops over registers are unrolled whole
  MOST_TILE = 16,        // sources of a chain's tile
  TEAM_BYTES = 72 << 10, // shared memory for row values: of most GPUs, less sums and scalars
  PREPARED_BYTES = 32 << 10,
  WARP_SCALAR_BYTES = 16 << 10, // for the copies of all warps
};

// ---- the team -----------------------------------------------------------------------------------

static bool is_row_sweep(const kir_sweep *sweep) {
  return !sweep->scalar && sweep->lane >= 0;
}

static int64_t lane_size(const kir_kernel *kernel, const kir_sweep *sweep) {
  return kernel->axes[sweep->loops[sweep->lane].index].size;
}

// The narrowest element of the rows: 16 bytes of it are the most elements an access has. An access of
// f8e4m3 has no more than one of bf16: such rows are mostly results, beside wider ones that are read.
static int64_t narrowest(const pass_lowering *lowering) {
  int64_t size = sizeof(float);
  for (uint32_t i = 0; i < lowering->kernel->args.count; i++) {
    const ir_type *type = &ir_node_of(lowering->graph, lowering->kernel->args.data[i].value)->type;
    int64_t element = (int64_t)ir_dtype_size(type->dtype);
    if ((ir_type_axes(type) & lowering->hidden) && (ir_type_axes(type) & lowering->rows) &&
        element < size)
      size = element;
  }
  return size < 2 ? 2 : size;
}

static void cut_to_divide(int64_t *vector, int64_t size) {
  while (*vector > 1 && size % *vector)
    *vector /= 2;
}

// Elements of one access: every lane axis is a whole number of them, and slices start at one.
static uint32_t choose_vector(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  int64_t vector = kernel->schedule.access / narrowest(lowering);
  if (vector < 1) vector = 1;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (is_row_sweep(sweep) && !sweep->single) cut_to_divide(&vector, lane_size(kernel, sweep));
  }
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (lowering->member[i] && node->op == IR_SLICE &&
        (ir_axes_set(node->over_count, node->over) & lowering->hidden))
      cut_to_divide(&vector, node->start);
  }
  return (uint32_t)vector;
}

// The longest row of the kernel in accesses.
static int64_t row_accesses(const kir_kernel *kernel, uint32_t vector) {
  int64_t most = 1;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (!is_row_sweep(sweep)) continue;
    int64_t accesses = lane_size(kernel, sweep) / (sweep->single ? 1 : vector);
    if (accesses > most) most = accesses;
  }
  return most;
}

enum {
  WARP = 32,
  LARGEST_TEAM = 512,
  LARGEST_ACCESS = 16,
  LARGEST_CLUSTER = 8, // that all GPUs with clusters run
  MOST_ELEMENTS = 1 << 28,
};

// Of the teams that leave the fewest lanes idle the largest: D = 7168 in accesses of 8 elements
// gives 448 threads, not 512. For lengths that nothing divides one warp would win, by taking many
// turns: at most twice as many are taken as there must be.
static uint32_t choose_threads(int64_t accesses, int64_t most) {
  int64_t best = most, least = INT64_MAX, must = (accesses + most - 1) / most;
  for (int64_t threads = WARP; threads <= most; threads += WARP) {
    int64_t turns = (accesses + threads - 1) / threads, idle = turns * threads - accesses;
    if (idle <= least && turns <= 2 * must) {
      best = threads;
      least = idle;
    }
    if (turns == 1) break;
  }
  return (uint32_t)best;
}

static void choose_team(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  const kir_schedule *schedule = &kernel->schedule;
  kernel->team.vector = choose_vector(lowering);
  kernel->team.count = (uint32_t)schedule->teams;
  int64_t most = 1024 / schedule->teams / WARP * WARP;
  if (most > LARGEST_TEAM) most = LARGEST_TEAM;
  if (most < WARP) most = WARP;
  kernel->team.split = (uint32_t)schedule->split;
  kernel->team.stepped = schedule->split > 1 && !schedule->cluster;
  int64_t accesses = row_accesses(kernel, kernel->team.vector);
  accesses = (accesses + schedule->split - 1) / schedule->split;
  kernel->team.threads = schedule->team ? (uint32_t)schedule->team : choose_threads(accesses, most);
  // With one element an access every sweep has the form that takes any strides.
  for (uint32_t i = 0; i < kernel->sweeps.count; i++)
    if (kernel->team.vector == 1) kernel->sweeps.data[i].single = true;
}

// ---- who reads what -----------------------------------------------------------------------------

// Over all sweeps: how a value is read.
typedef struct reading {
  uint32_t sweeps;               // that read it
  double times[KIR_PHASE_COUNT]; // that a row, or what prepares, reads each element, all in all
  int32_t last;                  // sweep that reads it
  bool elsewhere; // at another element than the thread's own, or by another mapping of threads
  bool by_prepare;
} reading;

typedef struct survey {
  const pass_lowering *lowering;
  reading *readings;      // of each node
  int32_t *dealt_along;   // the axis along which threads share it; -1: none
  const kir_sweep *sweep; // being looked at
  uint32_t *last_sweep;   // 1 + the sweep that was counted last, for each node
  uint32_t number;
  BASE_VECTOR(struct survey_visit {
    uint32_t value;
    int32_t lane;
  })
  visits;
} survey;

static bool names_axis(const ir_node *node, int32_t lane) {
  for (uint32_t i = 0; i < node->over_count; i++)
    if ((int32_t)node->over[i].index == lane) return true;
  for (uint32_t i = 0; i < node->to_count; i++)
    if ((int32_t)node->to[i].index == lane) return true;
  return false;
}

// A sweep reads a value again for each tile of its outer loops that the value does not have. It has
// those that views between it and the sweep made of its own axes: `made`.
static double times_read(const pass_lowering *lowering, const kir_sweep *sweep, const ir_type *type,
                         uint64_t made) {
  ir_axis axes[KIR_MAX_LOOPS];
  uint64_t own = made | ir_axes_set(kir_refine(lowering->kernel, type, axes, 0), axes);
  double times = 1;
  for (uint32_t i = 0; i < sweep->loop_count; i++) {
    if ((int32_t)i == sweep->lane || (own & ir_axis_bit(sweep->loops[i]))) continue;
    int64_t size = lowering->kernel->axes[sweep->loops[i].index].size;
    int64_t tile = kir_tile(lowering->kernel, sweep, i);
    int64_t tiles = (size + tile - 1) / tile;
    times *= (double)tiles;
  }
  return times;
}

// `lane` is the axis along which the thread's own elements lie, -1 once a view has moved them.
static void look(survey *s, ir_value value, int32_t lane, uint64_t made, bool top) {
  const pass_lowering *lowering = s->lowering;
  const ir_node *node = ir_node_of(lowering->graph, value);
  const kir_value *info = &lowering->kernel->values[value.index];
  for (uint32_t i = 0; i < s->visits.count; i++)
    if (s->visits.data[i].value == value.index && s->visits.data[i].lane == lane) return;
  base_push(lowering->arena, &s->visits, (struct survey_visit){value.index, lane});
  if (!top && info->place != KIR_INLINE) {
    reading *reading = &s->readings[value.index];
    bool own = lane >= 0 && s->dealt_along[value.index] == lane;
    reading->sweeps += s->last_sweep[value.index] != s->number;
    reading->last = (int32_t)s->number - 1;
    if (s->last_sweep[value.index] != s->number)
      reading->times[s->sweep->phase] += times_read(lowering, s->sweep, &node->type, made);
    s->last_sweep[value.index] = s->number;
    reading->elsewhere |= info->row && (!own || s->sweep->scalar);
    reading->by_prepare |= s->sweep->phase == KIR_PREPARE;
    return;
  }
  if (info->load_arg >= 0) return;
  bool view = ir_op_get(node->op)->facts & IR_FACT_VIEW;
  if (view) made |= ir_axes_set(node->to_count, node->to);
  for (uint32_t i = 0; i < node->operand_count; i++)
    look(s, node->operands[i], view && names_axis(node, lane) ? -1 : lane, made, false);
}

// What a sweep stores its threads share along its lanes, what is read from memory along the axis
// that lies dense.
static int32_t *find_dealt(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  int32_t *along = base_new_array(lowering->arena, int32_t, lowering->graph->nodes.count);
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++)
    along[i] = -1;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(lowering->graph, arg->value)->type;
    if (arg->unit_position >= 0)
      along[arg->value.index] = (int32_t)type->axes[arg->unit_position].index;
  }
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      along[sweep->roots.data[j].value.index] =
          is_row_sweep(sweep) ? (int32_t)sweep->loops[sweep->lane].index : -1;
  }
  return along;
}

// Values that a root of the same sweep makes are read by that sweep too, but not by another one.
static reading *find_readings(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  uint32_t nodes = lowering->graph->nodes.count;
  survey s = {.lowering = lowering,
              .readings = base_new_array(lowering->arena, reading, nodes),
              .dealt_along = find_dealt(lowering),
              .last_sweep = base_new_array(lowering->arena, uint32_t, nodes)};
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    s.sweep = &kernel->sweeps.data[i];
    s.number = i + 1;
    int32_t lane = is_row_sweep(s.sweep) ? (int32_t)s.sweep->loops[s.sweep->lane].index : -1;
    for (uint32_t j = 0; j < s.sweep->roots.count; j++) {
      s.visits.count = 0;
      look(&s, s.sweep->roots.data[j].value, lane, 0, true);
    }
  }
  return s.readings;
}

// Do all sweeps over this axis take it in accesses of several elements?
static bool taken_in_accesses(const kir_kernel *kernel, ir_axis lane) {
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (is_row_sweep(sweep) && sweep->loops[sweep->lane].index == lane.index && sweep->single)
      return false;
  }
  return true;
}

// Do all sweeps over this axis give an element to the same thread?
static bool mapped_alike(const kir_kernel *kernel, ir_axis lane) {
  int single = -1;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (!is_row_sweep(sweep) || sweep->loops[sweep->lane].index != lane.index) continue;
    if (single >= 0 && single != (int)sweep->single) return false;
    single = sweep->single;
  }
  return true;
}

// ---- residency ----------------------------------------------------------------------------------

static int64_t outer_points(const kir_kernel *kernel, const ir_type *type, ir_axis lane) {
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(kernel, type, axes, 0);
  int64_t points = 1;
  for (uint32_t i = 0; i < count; i++)
    if (axes[i].index != lane.index) points *= kernel->axes[axes[i].index].size;
  return points;
}

// 32-bit registers of one thread.
static int64_t registers_of(const kir_kernel *kernel, const ir_type *type, ir_axis lane,
                            bool single) {
  int64_t step = single ? 1 : kernel->team.vector;
  int64_t turns = kir_turns(kernel, lane, kernel->team.threads * kernel->team.split, single);
  int64_t words = (step * (int64_t)ir_dtype_size(type->dtype) + 3) / 4;
  int64_t points = outer_points(kernel, type, lane);
  return turns > MOST_TURNS || points > MOST_UNROLLED ? INT64_MAX / 2 : turns * points * words;
}

// Registers are dealt to blocks in units of four warps.
static int64_t spare_registers(const kir_kernel *kernel) {
  int64_t threads = ((int64_t)kernel->team.threads * kernel->team.count + 127) / 128 * 128;
  int64_t blocks = kernel->schedule.blocks > 0 ? kernel->schedule.blocks : 1;
  int64_t each = REGISTERS / (threads * blocks) / 8 * 8;
  if (each > MOST_REGISTERS) each = MOST_REGISTERS;
  return each - kernel->schedule.working;
}

// Also what has no elements has an address.
static size_t place_bytes(const kir_kernel *kernel, const kir_value *value) {
  size_t bytes = sizeof(float);
  for (uint32_t i = 0; i < value->rank; i++)
    bytes *= (size_t)kernel->axes[value->order[i].index].size;
  return bytes ? bytes : sizeof(float);
}

static size_t reserve(size_t *end, size_t bytes) {
  size_t at = *end;
  *end += kir_align(bytes);
  return at;
}

static size_t row_limit(const kir_kernel *kernel) {
  return kernel->schedule.row_limit ? (size_t)kernel->schedule.row_limit : TEAM_BYTES;
}

static bool is_prepared(const kir_value *value) {
  return value->place == KIR_SHARED;
}

// Does a thread read only those elements of a row value that it wrote?
static bool is_own(const pass_lowering *lowering, uint32_t index, const reading *reading) {
  const kir_kernel *kernel = lowering->kernel;
  const kir_sweep *sweep = kir_sweep_of(kernel, index);
  if (!sweep || !is_row_sweep(sweep) || reading->elsewhere) return false;
  ir_axis lane = sweep->loops[sweep->lane];
  return ir_type_has(&lowering->graph->nodes.data[index].type, lane) && mapped_alike(kernel, lane);
}

static void place_row_value(pass_lowering *lowering, uint32_t index, const reading *reading,
                            int64_t *spare) {
  kir_kernel *kernel = lowering->kernel;
  kir_value *value = &kernel->values[index];
  const kir_sweep *sweep = kir_sweep_of(kernel, index);
  size_t bytes = place_bytes(kernel, value);
  bool fits = (kernel->team.row_bytes + bytes) * kernel->team.count <= row_limit(kernel) &&
              !kernel->team.stepped;
  // What is the same for all rows and read once in each is not worth registers.
  bool rare = is_prepared(value) && fits;
  if (is_own(lowering, index, reading) && !rare && !kernel->team.stepped) {
    const ir_type *type = &lowering->graph->nodes.data[index].type;
    int64_t needed = registers_of(kernel, type, sweep->loops[sweep->lane], sweep->single);
    if (needed > 0 && needed <= *spare) {
      value->residency = KIR_REGISTERS;
      *spare -= needed;
      return;
    }
  }
  value->residency = fits ? KIR_TEAM : KIR_MEMORY;
  value->offset = reserve(fits ? &kernel->team.row_bytes : &kernel->team.memory_bytes, bytes);
}

// A scalar of which a row has only one every thread works out for itself, unless it runs from tile to
// tile of a chain.
static bool every_thread_has(const pass_lowering *lowering, uint32_t index) {
  const kir_kernel *kernel = lowering->kernel;
  const kir_value *value = &kernel->values[index];
  const kir_sweep *sweep = kir_sweep_of(kernel, index);
  return value->place == KIR_SCRATCH && value->rank == 0 && sweep && !sweep->chained &&
         !kernel->team.stepped;
}

static void place_scalar(pass_lowering *lowering, uint32_t index) {
  kir_team *team = &lowering->kernel->team;
  kir_value *value = &lowering->kernel->values[index];
  if (every_thread_has(lowering, index)) {
    value->residency = KIR_REGISTERS;
    return;
  }
  size_t bytes = (place_bytes(lowering->kernel, value) + 15) & ~(size_t)15;
  bool fits = (team->scalar_bytes + bytes) * team->count <= WARP_SCALAR_BYTES && !team->stepped;
  value->residency = fits ? KIR_TEAM : KIR_MEMORY;
  value->offset = fits ? team->scalar_bytes : reserve(&team->memory_bytes, bytes);
  if (fits) team->scalar_bytes += bytes;
}

// What no row changes is cheap for each team to compute when it is one row long; with many queries
// a launch of its own does it once.
static void place_prepared(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  size_t all = 0;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++)
    if (is_prepared(&kernel->values[i])) all += kir_align(place_bytes(kernel, &kernel->values[i]));
  kernel->team.prepared_by_launch =
      all * kernel->team.count > PREPARED_BYTES || (all && kernel->team.stepped);
  for (uint32_t i = 0; i < lowering->graph->nodes.count && kernel->team.prepared_by_launch; i++) {
    kir_value *value = &kernel->values[i];
    if (!is_prepared(value)) continue;
    value->residency = KIR_MEMORY;
    value->offset = reserve(&kernel->team.prepared_bytes, place_bytes(kernel, value));
  }
}

// Which of the chain's sources an argument is: its own axis is the chain's, or a concat puts it
// there.
static void find_source(const pass_lowering *lowering, kir_arg *arg) {
  const kir_chain *chain = &lowering->kernel->chain;
  const ir_graph *graph = lowering->graph;
  arg->source = chain->axis;
  arg->tiled = chain->used && ir_type_has(&ir_node_of(graph, arg->value)->type, chain->axis);
  for (uint32_t i = 0; i < graph->nodes.count && chain->used && !arg->tiled; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!lowering->member[i] || node->op != IR_CONCAT || node->to[0].index != chain->axis.index)
      continue;
    int64_t start = 0;
    for (uint32_t j = 0; j < node->operand_count && !arg->tiled; j++) {
      bool many = ir_type_has(&ir_node_of(graph, node->operands[j])->type, node->over[0]);
      arg->tiled = many && node->operands[j].index == arg->value.index;
      arg->source = node->over[0];
      arg->source_start = start;
      start += many ? lowering->kernel->axes[node->over[0].index].size : 1;
    }
  }
}

// An input with rows that each thread reads at its own elements.
static bool has_own_rows(const pass_lowering *lowering, const kir_arg *arg,
                         const reading *reading) {
  const ir_type *type = &ir_node_of(lowering->graph, arg->value)->type;
  if (arg->written || arg->unit_position < 0 || !(ir_type_axes(type) & lowering->rows) ||
      reading->elsewhere || !reading->sweeps)
    return false;
  ir_axis lane = type->axes[arg->unit_position];
  return !lowering->kernel->axes[lane.index].factor_count &&
         taken_in_accesses(lowering->kernel, lane);
}

// Used by more than one sweep.
static bool wants_to_stay(const pass_lowering *lowering, const kir_arg *arg,
                          const reading *reading) {
  return has_own_rows(lowering, arg, reading) && reading->sweeps > 1;
}

// cp.async brings 4, 8 or 16 bytes, a bulk copy any multiple of 16.
static bool can_copy(const kir_kernel *kernel, ir_axis lane, size_t element) {
  size_t access = element * kernel->team.vector;
  if (access < 4 || access > LARGEST_ACCESS) return false;
  return kernel->schedule.load == 1 || (size_t)kernel->axes[lane.index].size * element % 16 == 0;
}

// Rows that a thread reads at its own elements only can come to shared memory ahead of their use.
static void stage_sources(pass_lowering *lowering, const reading *readings) {
  kir_kernel *kernel = lowering->kernel;
  const kir_team *team = &kernel->team;
  if (!kernel->schedule.load || team->vector == 1 || team->stepped) return;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(lowering->graph, arg->value)->type;
    size_t element = ir_dtype_size(type->dtype);
    if (!has_own_rows(lowering, arg, &readings[arg->value.index])) continue;
    ir_axis lane = type->axes[arg->unit_position];
    if (!can_copy(kernel, lane, element)) continue;
    int64_t turns = kir_turns(kernel, lane, team->threads * team->split, false);
    if (kernel->axes[lane.index].size * outer_points(kernel, type, lane) == 0) continue;
    arg->staged = true;
    arg->residency = KIR_TEAM;
    arg->stage_row = (size_t)turns * team->threads * team->vector * element;
    arg->stage_offset = kernel->team.stage_bytes;
    kernel->team.stage_bytes +=
        kir_align(arg->stage_row * (size_t)outer_points(kernel, type, lane));
  }
}

static int64_t registers_of_source(const kir_kernel *kernel, const kir_arg *arg) {
  const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
  ir_axis lane = type->axes[arg->unit_position];
  if (!arg->tiled) return registers_of(kernel, type, lane, false);
  ir_type one = {.dtype = type->dtype, .rank = 1, .axes = {lane}};
  return registers_of(kernel, &one, lane, false);
}

static void hold_sources(pass_lowering *lowering, const reading *readings, int64_t *spare) {
  kir_kernel *kernel = lowering->kernel;
  if (kernel->schedule.residency != 1 || kernel->team.vector == 1 || kernel->team.stepped) return;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    kir_arg *arg = &kernel->args.data[i];
    find_source(lowering, arg);
    if (!wants_to_stay(lowering, arg, &readings[arg->value.index])) continue;
    int64_t needed = registers_of_source(kernel, arg);
    if (arg->tiled) needed *= kernel->chain.tile;
    if (needed > *spare || needed == 0) continue; // C++ has no arrays of nothing
    arg->residency = KIR_REGISTERS;
    *spare -= needed;
  }
}

// The mixes of a chain must be in registers; what they leave is for its tile.
static bool fit_chain(pass_lowering *lowering, const reading *readings, int64_t *spare) {
  kir_kernel *kernel = lowering->kernel;
  int64_t most = 0;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const kir_value *value = &kernel->values[i];
    if (value->place == KIR_SCRATCH && value->row && pass_in_chain(lowering, (ir_value){i}))
      place_row_value(lowering, i, &readings[i], spare);
    bool many = value->row && ir_type_has(&lowering->graph->nodes.data[i].type, kernel->chain.axis);
    if (many && value->place == KIR_SCRATCH) return false; // a tile's index is no register's
    bool own = value->residency == KIR_REGISTERS || !value->row || value->place != KIR_SCRATCH;
    if (pass_in_chain(lowering, (ir_value){i}) && !own) return false;
  }
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    kir_arg *arg = &kernel->args.data[i];
    find_source(lowering, arg);
    if (!arg->tiled || !wants_to_stay(lowering, arg, &readings[arg->value.index])) continue;
    int64_t needed = registers_of_source(kernel, arg);
    if (needed > most) most = needed;
  }
  if (!most || kernel->schedule.residency != 1) return false;
  int64_t tile = *spare / most, size = kernel->axes[kernel->chain.axis.index].size;
  if (tile > kernel->schedule.source_tile) tile = kernel->schedule.source_tile;
  if (tile > MOST_TILE) tile = MOST_TILE;
  if (tile > size) tile = size;
  kernel->chain.tile = tile;
  return tile > 0;
}

// The factors of a running maximum, and what it was before, lie beside the scalars.
static bool place_running(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < kernel->chain.maxima.count; i++) {
    kir_running *running = &kernel->chain.maxima.data[i];
    const kir_value *value = &kernel->values[running->maximum.index];
    size_t bytes = (place_bytes(kernel, value) + 15) & ~(size_t)15;
    if (value->residency != KIR_TEAM) return false;
    running->factor = kernel->team.scalar_bytes;
    running->last = running->factor + bytes;
    kernel->team.scalar_bytes += 2 * bytes;
  }
  return true;
}

// Sums of a sweep cross the warps of the team through `exchange`, all that end together at once.
static size_t exchange_bytes(const kir_kernel *kernel) {
  size_t most = 0, warps = kernel->team.threads / WARP;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    size_t sums = 0;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      int64_t points = 1;
      for (uint32_t k = 0; k < sweep->roots.data[j].depth; k++)
        points *= kir_tile(kernel, sweep, k);
      if (sweep->roots.data[j].accumulates) sums += (size_t)points;
    }
    if (!sweep->scalar && sums > most) most = sums;
  }
  // In a cluster each block's totals stand beside them for the others to read.
  size_t totals = kernel->team.split > 1 ? most : 0;
  return kir_align((most * warps + totals) * sizeof(float));
}

static bool refuse_split(const pass_lowering *lowering, const char *why, const char *instead) {
  base_error_status(lowering->diag, BASE_UNSUPPORTED, (base_loc){0}, "kernel @%.*s: %s",
                    BASE_FMT(lowering->kernel->name), why);
  base_hint(lowering->diag, "use %s", instead);
  return false;
}

// Blocks that share a row keep their own elements of it only.
static bool can_split(const pass_lowering *lowering, const reading *readings) {
  const kir_kernel *kernel = lowering->kernel;
  if (kernel->team.split == 1) return true;
  if (kernel->team.count > 1)
    return refuse_split(lowering, "a row cannot be split over blocks that have several teams",
                        "split=1 or teams=1");
  if (!kernel->team.stepped && kernel->team.split > LARGEST_CLUSTER)
    return refuse_split(lowering, "a cluster has at most 8 blocks", "split=8 or less");
  if (!kernel->team.stepped && kernel->schedule.load == 2)
    return refuse_split(lowering, "a bulk copy brings a whole row, not the part of a block",
                        "load=0 or load=1, or split=1");
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const kir_value *value = &kernel->values[i];
    bool kept = value->place == KIR_SCRATCH || value->place == KIR_SHARED;
    if (!kept || !value->row || !readings[i].elsewhere) continue;
    base_error_status(lowering->diag, BASE_UNSUPPORTED, lowering->graph->nodes.data[i].loc,
                      "kernel @%.*s reads %%%.*s at other elements than it was computed at, so its "
                      "rows cannot be split over blocks",
                      BASE_FMT(kernel->name), BASE_FMT(lowering->graph->nodes.data[i].name));
    base_hint(lowering->diag, "use split=1");
    return false;
  }
  return true;
}

// A stepped kernel's sweeps that sum over the lanes: all their points at once, each block's sums in
// the workspace.
static bool place_partials(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < kernel->sweeps.count && kernel->team.stepped; i++) {
    kir_sweep *sweep = &kernel->sweeps.data[i];
    if (!is_row_sweep(sweep) || sweep->phase != KIR_BODY) continue;
    sweep->partials = kernel->team.partial_bytes;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      const kir_root *root = &sweep->roots.data[j];
      if (!(root->accumulates & ir_axis_bit(sweep->loops[sweep->lane]))) continue;
      int64_t points = 1;
      for (uint32_t k = 0; k < root->depth; k++) {
        points *= kir_tile(kernel, sweep, k);
        if (kir_tile(kernel, sweep, k) >= kernel->axes[sweep->loops[k].index].size) continue;
        base_error_status(lowering->diag, BASE_UNSUPPORTED, (base_loc){0},
                          "kernel @%.*s sums too many sources and queries of a row up together to "
                          "be split over launches",
                          BASE_FMT(kernel->name));
        base_hint(lowering->diag, "use cluster=1 (sm_90 and later) or split=1");
        return false;
      }
      kernel->team.partial_bytes += kir_align((size_t)points * sizeof(float));
    }
  }
  return true;
}

// Threads count in 32 bits what has no rows: indices, bytes along a row, elements of a place.
static bool can_count(const pass_lowering *lowering) {
  const kir_kernel *kernel = lowering->kernel;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    const kir_value *value = &kernel->values[i];
    if (!lowering->member[i] && value->load_arg < 0) continue;
    bool stored = value->place == KIR_SCRATCH || value->place == KIR_SHARED;
    double elements = 1;
    for (uint32_t j = 0; j < node->type.rank; j++) {
      const kir_axis *axis = &kernel->axes[node->type.axes[j].index];
      if (!axis->row && axis->size > MOST_ELEMENTS) elements = INFINITY;
      if (!axis->row && stored) elements *= (double)axis->size;
    }
    if (elements <= MOST_ELEMENTS) continue;
    base_error_status(lowering->diag, BASE_UNSUPPORTED, node->loc,
                      "kernel @%.*s: %%%.*s is too large for a GPU's kernel, which counts up to %d "
                      "elements of a row",
                      BASE_FMT(kernel->name), BASE_FMT(node->name), MOST_ELEMENTS);
    base_hint(lowering->diag, "use smaller axes, or the cpu target");
    return false;
  }
  return true;
}

bool pass_lower_team(pass_lowering *lowering) {
  kir_kernel *kernel = lowering->kernel;
  if (!can_count(lowering)) return false;
  choose_team(lowering);
  const reading *readings = find_readings(lowering);
  if (!can_split(lowering, readings)) return false;
  const int64_t all = spare_registers(kernel);
  int64_t spare = all;
  place_prepared(lowering);
  stage_sources(lowering, readings);
  if (kernel->chain.used && !fit_chain(lowering, readings, &spare)) return false;
  readings = find_readings(lowering);       // with the chain's tile
  hold_sources(lowering, readings, &spare); // first: they save the most
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const kir_value *value = &kernel->values[i];
    bool kept =
        value->place == KIR_SCRATCH || (is_prepared(value) && !kernel->team.prepared_by_launch);
    if (!kept || value->residency != KIR_MEMORY) continue;
    if (value->row)
      place_row_value(lowering, i, &readings[i], &spare);
    else
      place_scalar(lowering, i);
  }
  kernel->team.held = (uint32_t)(all - spare);
  if (!place_running(lowering) || !place_partials(lowering)) return false;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    kir_arg *arg = &kernel->args.data[i];
    arg->last_sweep = readings[arg->value.index].sweeps ? readings[arg->value.index].last : -1;
    const double *times = readings[arg->value.index].times;
    arg->reads = arg->residency == KIR_MEMORY ? times[KIR_BODY] : 1;
    arg->prepare_reads = times[KIR_PREPARE];
  }
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    kernel->values[i].reads = readings[i].times[KIR_BODY];
    kernel->values[i].read_across = !is_own(lowering, i, &readings[i]);
  }
  size_t warps = kernel->team.threads / WARP;
  kernel->team.warp_scalars =
      kernel->team.scalar_bytes > 0 &&
      kernel->team.scalar_bytes * warps * kernel->team.count <= WARP_SCALAR_BYTES;
  kernel->team.exchange_bytes = exchange_bytes(kernel);
  return true;
}
