// The functions of a kernel: what each thread is, the loop over rows, the sweeps in order.
#include <string.h>

#include "codegen/cuda/text.h"

enum { WARP = 32 };

// ---- shared memory ------------------------------------------------------------------------------
//   scalars of each warp (or team) | exchange of each team | rows of each team | stages of each team
//
// In front of a team's stages stand the barriers that count their bulk copies.

static size_t scalars_bytes(const kir_team *team) {
  size_t copies = team->warp_scalars ? team->threads / WARP : 1;
  return kir_align(team->scalar_bytes * copies * team->count);
}

enum { RING_BYTES = 128 };

static size_t stages_bytes(const kir_kernel *kernel) {
  if (!kernel->team.stage_bytes) return 0;
  size_t bytes = kernel->team.stage_bytes * (size_t)kernel->schedule.stages;
  return bytes + (kernel->schedule.load == 2 ? RING_BYTES : 0);
}

size_t text_shared_bytes(const kir_kernel *kernel) {
  const kir_team *team = &kernel->team;
  size_t each = 2 * team->exchange_bytes + team->row_bytes + stages_bytes(kernel);
  return scalars_bytes(team) + each * team->count;
}

uint32_t text_group(const text_printer *p) {
  return p->kernel->team.warp_scalars ? WARP : p->kernel->team.threads;
}

const char *text_barrier(text_printer *p) {
  return p->kernel->team.count > 1 ? "team" : "0";
}

// A block has 16 barriers, and up to 32 teams when each is one warp.
void text_team_barrier(text_printer *p) {
  if (p->kernel->team.threads == WARP)
    text_line(p, text_top(p), "fm_warp_barrier();");
  else
    text_line(p, text_top(p), "fm_barrier(%s, %u);", text_barrier(p), p->kernel->team.threads);
}

// Where a team's part of an area begins that holds one part for each team.
static const char *team_area(text_printer *p, const char *base, size_t start, size_t each) {
  const char *area = text_offset(p, base, start);
  return p->kernel->team.count > 1 ? text_format(p, "%s + team * %zu", area, each) : area;
}

static void print_workspace(text_printer *p) {
  const kir_team *team = &p->kernel->team;
  const char *base = text_offset(p, "a.workspace", team->prepared_bytes);
  size_t bytes = team->memory_bytes + team->partial_bytes;
  if (team->stepped && !p->launch) {
    text_line(p, 0, "char *const workspace = %s + fm_block() * %zu;", base, bytes);
    text_line(p, 0, "char *const partials = %s;", text_offset(p, "workspace", team->memory_bytes));
    text_line(p, 0, "const char *const row_partials = partials - fm_block() %% %u * %zu;", p->split,
              bytes);
  } else if (team->memory_bytes && team->count > 1) {
    text_line(p, 0, "char *const workspace = %s + (fm_block() * %u + team) * %zu;", base,
              team->count, team->memory_bytes);
  } else if (team->memory_bytes) {
    text_line(p, 0, "char *const workspace = %s + fm_block() * %zu;", base, team->memory_bytes);
  }
}

static void print_threads(text_printer *p) {
  const kir_team *team = &p->kernel->team;
  size_t scalars = scalars_bytes(team), exchange = 2 * team->exchange_bytes;
  if (team->count > 1) {
    text_line(p, 0, "const int team = fm_thread() / %u, thread = fm_thread() %% %u;", team->threads,
              team->threads);
  } else {
    text_line(p, 0, "const int thread = fm_thread();");
  }
  if (p->split > 1) {
    const char *rank =
        team->stepped ? text_format(p, "(int)(fm_block() %% %u)", p->split) : "fm_cluster_rank()";
    text_line(p, 0, "const int part = %s * %u + thread; // of the %u that share a row", rank,
              team->threads, team->threads * p->split);
  }
  text_line(p, 0, "const int lane = %s;", team->warp_scalars ? "thread % 32" : "thread");
  text_line(p, 0, "char *const shared = (char *)fm_shared();");
  if (team->scalar_bytes && team->warp_scalars)
    text_line(p, 0,
              "char *const scalars = shared + fm_thread() / 32 * %zu; // a copy for each warp",
              team->scalar_bytes);
  else if (team->scalar_bytes)
    text_line(p, 0, "char *const scalars = %s;", team_area(p, "shared", 0, team->scalar_bytes));
  if (exchange)
    text_line(p, 0, "float *const exchange = (float *)(%s);",
              team_area(p, "shared", scalars, exchange));
  size_t end = scalars + exchange * team->count;
  if (team->row_bytes)
    text_line(p, 0, "char *const row_values = %s;", team_area(p, "shared", end, team->row_bytes));
  end += team->row_bytes * team->count;
  if (team->stage_bytes)
    text_line(p, 0, "char *const stages = %s;",
              team_area(p, "shared", end, stages_bytes(p->kernel)));
  print_workspace(p);
}

// ---- sweeps -------------------------------------------------------------------------------------

static void describe_sweep(text_printer *p, const kir_sweep *sweep, uint32_t number) {
  base_text loops = {.arena = p->arena};
  for (uint32_t i = 0; i < sweep->loop_count; i++)
    base_text_printf(&loops, "%s%.*s=%lld", i ? ", " : " over ",
                     BASE_FMT(p->graph->axes.data[sweep->loops[i].index].name),
                     (long long)p->kernel->axes[sweep->loops[i].index].size);
  text_comment(p, "%s %u%s", sweep->scalar ? "scalars" : "sweep", number,
               loops.length ? loops.data : "");
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    base_text node = {.arena = p->arena};
    ir_print_node(p->graph, sweep->roots.data[i].value, &node);
    text_comment(p, "  %s", node.data);
  }
}

typedef struct stored {
  bool scalars, shared; // a scalar in shared memory; anything that the team must wait for
} stored;

static stored stores_of(const text_printer *p, const kir_sweep *sweep) {
  stored result = {0};
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    const kir_value *value = &p->kernel->values[sweep->roots.data[i].value.index];
    if (value->place != KIR_SCRATCH && value->place != KIR_SHARED) continue;
    if (value->residency == KIR_REGISTERS || (value->row && !value->read_across)) continue;
    bool own = !value->row && value->residency == KIR_TEAM && p->kernel->team.warp_scalars;
    result.scalars |= own;
    result.shared |= !own;
  }
  return result;
}

static void print_sweep(text_printer *p, uint32_t number) {
  const kir_sweep *sweep = &p->kernel->sweeps.data[number];
  p->sweep = number;
  text_blank(p);
  describe_sweep(p, sweep, number + 1);
  text_sweep(p, sweep);
  stored stores = stores_of(p, sweep);
  if (stores.shared)
    text_team_barrier(p);
  else if (stores.scalars)
    text_line(p, text_top(p), "fm_warp_barrier();");
}

// Before the next row's sums, scalars and rows go where this one's are. Returns whether the team
// met.
static bool end_row(text_printer *p) {
  bool sums = p->first_exchange >= 0 && p->first_exchange == p->last_exchange && !p->met_since;
  bool shared = false, scalars = false, last = false;
  for (uint32_t i = 0; i < p->kernel->sweeps.count; i++) {
    if (p->kernel->sweeps.data[i].phase != KIR_BODY) continue;
    stored stores = stores_of(p, &p->kernel->sweeps.data[i]);
    shared |= stores.shared;
    scalars |= stores.scalars;
    last = stores.scalars; // a barrier stands behind it already
  }
  if (sums && p->split > 1)
    text_line(p, text_top(p), "fm_cluster_barrier();");
  else if (sums || shared)
    text_team_barrier(p);
  else if (scalars && !last)
    text_line(p, text_top(p), "fm_warp_barrier();");
  return sums || shared;
}

static void group_barrier(text_printer *p) {
  if (p->kernel->team.warp_scalars)
    text_line(p, text_top(p), "fm_warp_barrier();");
  else
    text_team_barrier(p);
}

// The chain's sweeps for the tile that begins at `base`.
static void print_tile(text_printer *p, text_index base, int64_t count) {
  bool looped = base.scope == text_top(p);
  if (!looped) text_open(p, "");
  p->in_tile = true;
  p->row_scope = text_top(p);
  p->base = base;
  p->count = count;
  text_hold_sources(p);
  for (uint32_t i = 0; i < p->kernel->sweeps.count; i++)
    if (p->kernel->sweeps.data[i].chained) print_sweep(p, i);
  group_barrier(p); // the next tile changes what this one reads
  if (!looped) text_close(p);
  p->in_tile = false;
  p->row_scope = p->offset_scope;
}

static bool chain_meets_concat(const text_printer *p) {
  for (uint32_t i = 0; i < p->kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &p->kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->roots.count && sweep->chained; j++)
      if (text_meets_concat(p, sweep->roots.data[j].value)) return true;
  }
  return false;
}

// Pieces between the operands of concats, each in whole tiles and what is left over.
static void print_chain(text_printer *p) {
  const kir_chain *chain = &p->kernel->chain;
  const kir_axis *axis = &p->kernel->axes[chain->axis.index];
  bool cut = chain_meets_concat(p);
  text_blank(p);
  text_comment(p, "%.*s in tiles of up to %lld: maximum, sum and mix run from tile to tile",
               BASE_FMT(p->graph->axes.data[chain->axis.index].name), (long long)chain->tile);
  text_begin_chain(p);
  group_barrier(p);
  int64_t low = 0;
  for (uint32_t i = 0; i <= axis->breaks.count; i++) {
    int64_t high = cut && i < axis->breaks.count ? axis->breaks.data[i] : axis->size;
    int64_t whole = low + (high - low) / chain->tile * chain->tile;
    if (whole > low) {
      uint32_t opened;
      text_index base = text_loop(p, chain->axis, low, whole, chain->tile, false, &opened);
      base.low = low;
      base.high = high;
      print_tile(p, base, chain->tile);
      text_close_all(p, opened);
    }
    if (high > whole)
      print_tile(p, (text_index){text_format(p, "%lld", (long long)whole), low, high, 0, NULL},
                 high - whole);
    low = high;
  }
}

static void print_sweeps(text_printer *p, kir_phase phase, uint32_t first, uint32_t last) {
  p->phase = phase;
  bool chained = false;
  for (uint32_t i = first; i < last; i++) {
    const kir_sweep *sweep = &p->kernel->sweeps.data[i];
    if (sweep->phase != phase) continue;
    if (sweep->chained && !chained)
      print_chain(p);
    else if (!sweep->chained)
      print_sweep(p, i);
    chained |= sweep->chained;
  }
}

static bool has_phase(const kir_kernel *kernel, kir_phase phase) {
  for (uint32_t i = 0; i < kernel->sweeps.count; i++)
    if (kernel->sweeps.data[i].phase == phase) return true;
  return false;
}

// ---- rows ---------------------------------------------------------------------------------------

// The rows of all axes are counted as one, the innermost fastest: from `row` to the index of each.
static void set_rows(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  uint32_t scope = p->row_scope = p->offset_scope = text_top(p);
  p->row_offsets.count = 0;
  for (uint32_t i = kernel->row_count; i-- > 0;) {
    ir_axis axis = kernel->rows[i];
    text_index index = {p->index_names[axis.index], 0, INT64_MAX, scope, NULL};
    if (kernel->row_count > 1) {
      base_text below = {.arena = p->arena};
      for (uint32_t j = i + 1; j < kernel->row_count; j++)
        base_text_printf(&below, " / a.%s", p->size_names[kernel->rows[j].index]);
      const char *rest = below.length ? below.data : "";
      if (i > 0)
        text_line(p, scope, "const long long %s = row%s %% a.%s;", index.text, rest,
                  p->size_names[axis.index]);
      else
        text_line(p, scope, "const long long %s = row%s;", index.text, rest);
    }
    text_set_axis(p, &p->rows, axis, index, false);
  }
}

static const char *row_total(text_printer *p) {
  base_text total = {.arena = p->arena};
  for (uint32_t i = 0; i < p->kernel->row_count; i++)
    base_text_printf(&total, "%sa.%s", i ? " * " : "", p->size_names[p->kernel->rows[i].index]);
  return total.length ? total.data : "1";
}

static void print_walk(text_printer *p) {
  const kir_team *team = &p->kernel->team;
  const char *first = "fm_block()", *step = "fm_blocks()";
  if (p->split > 1) {
    first = text_format(p, "fm_block() / %u", p->split);
    step = text_format(p, "fm_blocks() / %u", p->split);
  } else if (team->count > 1) {
    first = text_format(p, "fm_block() * %u + team", team->count);
    step = text_format(p, "fm_blocks() * %u", team->count);
  }
  text_line(p, 0, "const long long first = %s, step = %s, rows = %s;", first, step, row_total(p));
}

// ---- stages -------------------------------------------------------------------------------------

static void declare_stage(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  const char *first = text_offset(p, "stages", kernel->schedule.load == 2 ? RING_BYTES : 0);
  text_line(p, text_top(p), "char *const stage = %s + slot * %zu;", first,
            kernel->team.stage_bytes);
}

// Rows are copied to shared memory `stages` rows ahead of their use. With asynchronous copies a
// thread copies, waits for and reads its own elements, so no barrier is needed; bulk copies are one
// thread's, and an mbarrier counts their bytes.
static void print_copies(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  long long stages = (long long)kernel->schedule.stages;
  bool bulk = kernel->schedule.load == 2;
  if (bulk) {
    text_line(p, 0, "unsigned long long *const ring = (unsigned long long *)stages;");
    text_open(p, "if (thread == 0)");
    text_line(p, text_top(p), "for (int i = 0; i < %lld; i++) fm_ring_init(ring + i, 1);", stages);
    text_line(p, text_top(p), "fm_ring_fence();");
    text_close(p);
    text_team_barrier(p);
  }
  text_open(p, text_format(p, "const auto copy_row = [&](long long row, int slot)"));
  p->scopes.data[text_top(p)]->tail = ";";
  declare_stage(p);
  if (bulk) text_line(p, text_top(p), "unsigned long long *const full = ring + slot;");
  text_open(p, bulk ? "if (thread == 0 && row < rows)" : "if (row < rows)");
  set_rows(p);
  text_copy_sources(p);
  text_close(p);
  if (!bulk) text_line(p, text_top(p), "fm_copy_commit();");
  text_close(p);
  text_line(p, 0, "for (int i = 0; i < %lld; i++) copy_row(first + i * step, i);", stages);
  text_line(p, 0, "int slot = 0;%s", bulk ? " // the stage of the row\n  int round = 0;" : "");
}

static void begin_staged_row(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  bool bulk = kernel->schedule.load == 2;
  declare_stage(p);
  if (bulk)
    text_line(p, text_top(p), "fm_ring_wait(ring + slot, round & 1);");
  else
    text_line(p, text_top(p), "fm_copy_wait<%lld>();", (long long)kernel->schedule.stages - 1);
}

// The stage is free: the row that comes to it next may.
// `met`: the team has just met.
static void release_stage(text_printer *p, bool met) {
  const kir_kernel *kernel = p->kernel;
  if (kernel->schedule.load == 2 && !met)
    text_team_barrier(p); // all have read what one copies over
  text_line(p, text_top(p), "copy_row(row + %lld * step, slot);",
            (long long)kernel->schedule.stages);
  if (kernel->schedule.stages == 1)
    text_line(p, text_top(p), kernel->schedule.load == 2 ? "round++;" : "");
  else
    text_line(p, text_top(p), "if (++slot == %lld) slot = 0%s;", (long long)kernel->schedule.stages,
              kernel->schedule.load == 2 ? ", round++" : "");
}

// ---- functions ----------------------------------------------------------------------------------

static void begin_function(text_printer *p) {
  p->scopes.count = 0;
  p->row_offsets.count = 0;
  p->rows = (text_point){0};
  p->first_exchange = p->last_exchange = -1;
  p->row_scope = p->offset_scope = 0;
  p->vector = 1;
  memset(p->value_names, 0, p->graph->nodes.count * sizeof *p->value_names);
  text_open(p, "");
  p->scopes.data[0]->indent = 1;
  print_threads(p);
  text_declare_places(p);
}

static void end_function(text_printer *p, const char *name, const char *suffix, base_text *out) {
  const kir_team *team = &p->kernel->team;
  text_end_elements(p);
  base_text_printf(out, "extern \"C\" __global__ void __launch_bounds__(%u, %lld)\n",
                   team->threads * team->count,
                   (long long)(p->kernel->schedule.blocks ? p->kernel->schedule.blocks : 1));
  base_text_printf(out, "%s%s(const __grid_constant__ %s_args a) {\n", name, suffix, name);
  base_text_append(out, p->scopes.data[0]->lines.data, p->scopes.data[0]->lines.length);
  base_text_printf(out, "}\nFM_ENTRY(%s%s, %s_args)\n", name, suffix, name);
}

// ---- launches -----------------------------------------------------------------------------------

// How many sweeps there are up to the last one that reads the stage; a chain is one.
static uint32_t stage_readers(const text_printer *p) {
  uint32_t count = (uint32_t)(text_last_of_stage(p) + 1);
  while (count > 0 && count < p->kernel->sweeps.count &&
         p->kernel->sweeps.data[count - 1].chained && p->kernel->sweeps.data[count].chained)
    count++;
  return count;
}

static void begin_body(text_printer *p) {
  const kir_kernel *kernel = p->kernel;
  p->launch = false;
  p->split = kernel->team.split;
  begin_function(p);
  if (kernel->schedule.programmatic) {
    text_line(p, 0, "fm_launch_dependents();");
    text_line(p, 0, "fm_wait_prior_grid();");
  }
}

static void print_body(text_printer *p, const char *name, base_text *out) {
  const kir_kernel *kernel = p->kernel;
  begin_body(p);
  if (has_phase(kernel, KIR_PREPARE) && !kernel->team.prepared_by_launch)
    print_sweeps(p, KIR_PREPARE, 0, kernel->sweeps.count);
  text_blank(p);
  print_walk(p);
  p->phase = KIR_BODY;
  bool staged = kernel->team.stage_bytes > 0;
  if (staged) print_copies(p);
  text_open(p, "for (long long row = first; row < rows; row += step)");
  set_rows(p);
  p->first_exchange = -1; // of a row
  if (staged) begin_staged_row(p);
  text_declare_row_registers(p);
  text_hold_sources(p);
  uint32_t reading = staged ? stage_readers(p) : 0;
  print_sweeps(p, KIR_BODY, 0, reading);
  if (staged && reading < kernel->sweeps.count) release_stage(p, false);
  print_sweeps(p, KIR_BODY, reading, kernel->sweeps.count);
  bool met = end_row(p);
  if (staged && reading == kernel->sweeps.count) release_stage(p, met);
  text_close(p);
  // Another block may still read the last sums of this one.
  if (p->split > 1) text_line(p, 0, "fm_cluster_barrier();");
  end_function(p, name, "", out);
}

static void print_half(text_printer *p, uint32_t sweep, enum text_half half) {
  p->half = half;
  if (half == TEXT_JOIN) text_comment(p, "the sums of sweep %u", sweep + 1);
  print_sweeps(p, KIR_BODY, sweep, sweep + 1);
  p->half = TEXT_WHOLE;
}

// From the sums of the sweep `from` (UINT32_MAX: from the beginning) to those of the next one that
// has any, or to the end. Returns that sweep.
static uint32_t print_step(text_printer *p, const char *name, uint32_t number, uint32_t from,
                           base_text *out) {
  uint32_t count = p->kernel->sweeps.count, to = from == UINT32_MAX ? 0 : from + 1;
  uint32_t first = to;
  while (to < count && !text_ends_launch(p, &p->kernel->sweeps.data[to]))
    to++;
  begin_body(p);
  text_blank(p);
  print_walk(p);
  text_open(p, "for (long long row = first; row < rows; row += step)");
  set_rows(p);
  p->phase = KIR_BODY;
  if (from != UINT32_MAX) print_half(p, from, TEXT_JOIN);
  print_sweeps(p, KIR_BODY, first, to);
  if (to < count) print_half(p, to, TEXT_SUMS);
  text_close(p);
  end_function(p, name, number > 1 ? text_format(p, "_step%u", number) : "", out);
  return to;
}

uint32_t text_step_count(const kir_kernel *kernel) {
  const text_printer p = {.kernel = kernel, .graph = kernel->graph};
  uint32_t count = 0;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++)
    count += text_ends_launch(&p, &kernel->sweeps.data[i]);
  return count;
}

static void print_steps(text_printer *p, const char *name, base_text *out) {
  uint32_t from = UINT32_MAX;
  for (uint32_t number = 1; number == 1 || from < p->kernel->sweeps.count; number++)
    from = print_step(p, name, number, from, out);
}

// Axes at whose other indices something without rows is read: by a view, unless it maps an axis that
// is iterated through its factors anyway, or by a sum.
static uint64_t axes_read_across(const kir_kernel *kernel) {
  uint64_t axes = 0;
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++) {
    const ir_node *node = &kernel->graph->nodes.data[i];
    if (node->kernel != kernel->index || kernel->values[i].phase != KIR_PREPARE) continue;
    if (node->op == IR_SPLIT_AXIS && kernel->axes[node->over[0].index].factor_count) continue;
    if (node->op == IR_MERGE_AXES && kernel->axes[node->to[0].index].factor_count) continue;
    axes |= ir_axes_set(node->over_count, node->over) | ir_axes_set(node->to_count, node->to);
  }
  return axes;
}

// An axis that every value without rows has and that all are worked out index by index along, so
// that blocks need not meet.
int32_t text_prepare_axis(const kir_kernel *kernel) {
  uint64_t common = ~axes_read_across(kernel);
  bool any = false;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != KIR_PREPARE) continue;
    any = true;
    uint64_t own = ir_axes_set(sweep->loop_count, sweep->loops);
    for (uint32_t j = 0; j < sweep->roots.count; j++)
      own &= ~sweep->roots.data[j].accumulates;
    if (sweep->lane >= 0 && !sweep->scalar) own &= ~ir_axis_bit(sweep->loops[sweep->lane]);
    common &= own;
  }
  return !any || common == 0 ? -1 : __builtin_ctzll(common);
}

static void print_prepare(text_printer *p, const char *name, base_text *out) {
  p->launch = true;
  p->split = 1;
  begin_function(p);
  if (p->kernel->schedule.programmatic) text_line(p, 0, "fm_wait_prior_grid();");
  int32_t axis = text_prepare_axis(p->kernel);
  if (axis >= 0) {
    text_open(p, "");
    const char *index = text_axis_name(p, (ir_axis){(uint32_t)axis});
    long long size = (long long)p->kernel->axes[axis].size;
    p->scopes.data[text_top(p)]->head =
        text_format(p, "for (int %s = (int)fm_block(); %s < %lld; %s += (int)fm_blocks())", index,
                    index, size, index);
    text_set_axis(p, &p->rows, (ir_axis){(uint32_t)axis},
                  (text_index){index, 0, size, text_top(p), NULL}, false);
    text_compose(p, &p->rows);
    p->shared_out = axis;
  }
  print_sweeps(p, KIR_PREPARE, 0, p->kernel->sweeps.count);
  if (axis >= 0) {
    text_team_barrier(p); // the next index's scalars go where this one's are
    text_close(p);
  }
  p->shared_out = -1;
  end_function(p, name, "_prepare", out);
}

void text_kernel(base_arena *arena, const kir_kernel *kernel, const char *name, base_text *out) {
  text_printer *p = base_new(arena, text_printer);
  p->arena = arena;
  p->kernel = kernel;
  p->graph = kir_plain_graph(kernel->graph, arena);
  p->shared_out = -1;
  text_name_memory(p);
  base_text_printf(out, "struct %s_args {\n", name);
  text_print_arguments(p, out);
  base_text_printf(out, "};\n\n");
  if (kernel->team.prepared_by_launch) {
    print_prepare(p, name, out);
    base_text_printf(out, "\n");
  }
  if (kernel->team.stepped)
    print_steps(p, name, out);
  else
    print_body(p, name, out);
}
