// One sweep: its loops, tiles and accumulators.
//
// The nest is built from the outside in. A list of points (the tile so far) grows at each loop;
// where the loops of a root end and those it accumulates over begin, its accumulators are set up,
// one for each point of the tile, and for a lane loop one for each vector of a step, so that their
// additions do not wait for each other.
#include <string.h>

#include "codegen/llvm/emit.h"

typedef struct root_state {
  const kir_root *root;
  ir_op op;
  uint32_t points;     // of the tile where the root's own loops end
  uint32_t ways;       // accumulators for each of them
  LLVMValueRef *slots; // allocas: points * ways for full vectors,
  LLVMValueRef *tails; // and one for each point for the last, narrower vector
  uint32_t width, tail_width;
} root_state;

typedef struct nest {
  emitter *e;
  const kir_sweep *sweep;
  root_state *roots;
  uint32_t ways; // accumulators for each point of a lane loop; 0: one for each vector of a step
} nest;

static void emit_nest(nest *n, uint32_t depth, const emit_point *points, uint32_t count);

// ---- accumulators -------------------------------------------------------------------------------

static LLVMValueRef add_alloca(emitter *e, LLVMTypeRef type) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->builder);
  LLVMValueRef first = LLVMGetFirstInstruction(e->entry);
  if (first)
    LLVMPositionBuilderBefore(e->builder, first);
  else
    LLVMPositionBuilderAtEnd(e->builder, e->entry);
  LLVMValueRef slot = LLVMBuildAlloca(e->builder, type, "accumulator");
  LLVMPositionBuilderAtEnd(e->builder, here);
  return slot;
}

static LLVMValueRef new_accumulator(emitter *e, ir_op op, uint32_t width) {
  LLVMValueRef slot = add_alloca(e, emit_type(e, width));
  LLVMBuildStore(e->builder, emit_neutral(e, op, width), slot);
  return slot;
}

static bool accumulates_lanes(const nest *n, const kir_root *root) {
  if (n->sweep->lane < 0) return false;
  return (root->accumulates & ir_axis_bit(n->sweep->loops[n->sweep->lane])) != 0;
}

static ir_axis lane_axis(const nest *n) {
  return n->sweep->loops[n->sweep->lane];
}

static void open_root(nest *n, root_state *state, const emit_point *points, uint32_t count) {
  emitter *e = n->e;
  bool lanes = accumulates_lanes(n, state->root);
  int64_t size = n->sweep->lane >= 0 ? e->kernel->axes[lane_axis(n).index].size : 0;
  state->points = count;
  uint32_t vectors = lanes ? (uint32_t)kir_tile(e->kernel, n->sweep, (uint32_t)n->sweep->lane) : 1;
  state->ways = lanes && n->ways ? n->ways : vectors;
  state->tail_width = lanes ? (uint32_t)(size % e->width) : 0;
  bool full = !lanes || size >= e->width;
  state->slots = base_new_array(e->arena, LLVMValueRef, count * state->ways);
  state->tails = base_new_array(e->arena, LLVMValueRef, count);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t axes = ir_type_axes(&ir_node_of(e->graph, state->root->value)->type);
    uint32_t own = points[i].lanes & axes ? points[i].width : 1;
    for (uint32_t j = 0; j < state->ways && full; j++)
      state->slots[i * state->ways + j] = new_accumulator(e, state->op, lanes ? e->width : own);
    if (state->tail_width) state->tails[i] = new_accumulator(e, state->op, state->tail_width);
  }
}

static LLVMValueRef load_slot(emitter *e, LLVMValueRef slot) {
  return LLVMBuildLoad2(e->builder, LLVMGetAllocatedType(slot), slot, "");
}

static LLVMValueRef total_of(nest *n, const root_state *state, uint32_t point) {
  emitter *e = n->e;
  LLVMValueRef total = NULL;
  for (uint32_t j = 0; j < state->ways; j++) {
    LLVMValueRef slot = state->slots[point * state->ways + j];
    if (!slot) continue;
    LLVMValueRef part = load_slot(e, slot);
    total = total ? emit_combine(e, state->op, total, part) : part;
  }
  if (!accumulates_lanes(n, state->root)) return total;
  if (total) total = emit_across_lanes(e, state->op, total);
  if (!state->tail_width) return total ? total : emit_neutral(e, state->op, 1);
  LLVMValueRef tail = emit_across_lanes(e, state->op, load_slot(e, state->tails[point]));
  return total ? emit_combine(e, state->op, total, tail) : tail;
}

static void store_result(nest *n, ir_value value, const emit_point *point, LLVMValueRef result) {
  const kir_value *info = &n->e->kernel->values[value.index];
  if (info->place == KIR_SHARED || info->place == KIR_SCRATCH)
    emit_store_place(n->e, value, point, result);
  if (info->store_arg >= 0) emit_store_argument(n->e, value, point, result);
}

static void close_root(nest *n, const root_state *state, const emit_point *points) {
  for (uint32_t i = 0; i < state->points; i++) {
    LLVMValueRef total = emit_finish(n->e, state->root->value, total_of(n, state, i));
    store_result(n, state->root->value, &points[i], total);
  }
  emit_flush_stores(n->e);
}

// ---- the innermost step -------------------------------------------------------------------------

static void accumulate_root(nest *n, root_state *state, const emit_point *points, uint32_t count) {
  emitter *e = n->e;
  uint32_t *slot = base_new_array(e->arena, uint32_t, count);
  LLVMValueRef *values = base_new_array(e->arena, LLVMValueRef, count);
  LLVMValueRef *homes = base_new_array(e->arena, LLVMValueRef, count);
  uint32_t used = 0;
  bool lanes = accumulates_lanes(n, state->root);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t point = i / (count / state->points);
    bool tail = lanes && points[i].width != e->width;
    LLVMValueRef home =
        tail ? state->tails[point]
             : state->slots[point * state->ways + (lanes ? points[i].block % state->ways : 0)];
    uint32_t j = 0;
    while (j < used && homes[j] != home)
      j++;
    if (j == used) {
      homes[used] = home;
      values[used++] = load_slot(e, home);
    }
    slot[i] = j;
  }
  emit_reduce(e, state->root->value, points, count, slot, values, used);
  for (uint32_t j = 0; j < used; j++)
    LLVMBuildStore(e->builder, values[j], homes[j]);
}

static void emit_step(nest *n, const emit_point *points, uint32_t count) {
  emitter *e = n->e;
  LLVMValueRef *results = base_new_array(e->arena, LLVMValueRef, count);
  for (uint32_t i = 0; i < n->sweep->roots.count; i++) {
    root_state *state = &n->roots[i];
    if (state->root->accumulates) {
      accumulate_root(n, state, points, count);
      continue;
    }
    emit_definition(e, state->root->value, points, count, results);
    for (uint32_t j = 0; j < count; j++) {
      emit_remember(e, state->root->value, &points[j], results[j]);
      store_result(n, state->root->value, &points[j], results[j]);
    }
  }
  for (uint32_t i = 0; i < count && e->idle_argument >= 0; i++)
    emit_prefetch_idle(e, &points[i]);
  emit_flush_stores(e);
}

// ---- loops --------------------------------------------------------------------------------------

// Vector `block` of the `blocks` of a step that starts at element `start` of the lane axis.
static void set_lane(nest *n, emit_point *point, ir_axis axis, LLVMValueRef start, uint32_t block,
                     uint32_t blocks, uint32_t width) {
  emitter *e = n->e;
  LLVMValueRef here = start;
  if (block) here = LLVMBuildAdd(e->builder, start, emit_i64(e, (int64_t)block * e->width), "");
  point->width = width;
  point->block = block;
  bool fixed = LLVMIsConstant(here);
  int64_t first = fixed ? LLVMConstIntGetSExtValue(here) : 0;
  emit_set_axis(e, point, axis, here, first, e->kernel->axes[axis.index].size, width > 1);
  bool paired = e->kernel->paired && e->kernel->axes[axis.index].hidden && (block | 1) < blocks;
  point->odd = paired && block % 2;
  point->pair = paired ? here : NULL;
  if (point->odd) point->pair = LLVMBuildSub(e->builder, here, emit_i64(e, e->width), "");
}

// `tile` indices of the loop from `index` on (of a lane loop: `tile` vectors of `width` lanes).
static void emit_tile(nest *n, uint32_t depth, const emit_point *points, uint32_t count,
                      LLVMValueRef index, int64_t low, int64_t high, uint32_t tile,
                      uint32_t width) {
  emitter *e = n->e;
  bool lane = (int32_t)depth == n->sweep->lane;
  ir_axis axis = n->sweep->loops[depth];
  emit_point *grown = base_new_array(e->arena, emit_point, count * tile);
  bool fixed = LLVMIsConstant(index);
  int64_t first = fixed ? LLVMConstIntGetSExtValue(index) : 0;
  for (uint32_t j = 0; j < tile; j++) {
    LLVMValueRef here = j && !lane ? LLVMBuildAdd(e->builder, index, emit_i64(e, j), "") : index;
    for (uint32_t i = 0; i < count; i++) {
      emit_point *point = &grown[i * tile + j];
      *point = points[i];
      if (lane)
        set_lane(n, point, axis, index, j, tile, width);
      else
        emit_set_axis(e, point, axis, here, fixed ? first + j : low, fixed ? first + j + 1 : high,
                      false);
      emit_compose(e, point);
    }
  }
  emit_nest(n, depth + 1, grown, count * tile);
}

// low .. high in steps of `tile` indices of `stride` each, then what is left over in one smaller
// step.
static void emit_range(nest *n, uint32_t depth, const emit_point *points, uint32_t count,
                       int64_t low, int64_t high, uint32_t tile, uint32_t stride) {
  emitter *e = n->e;
  int64_t step = (int64_t)tile * stride, whole = low + (high - low) / step * step;
  if (whole - low > step) {
    emit_loop loop = emit_loop_begin(e, emit_i64(e, low), 0, NULL);
    emit_tile(n, depth, points, count, loop.index, low, high, tile, stride);
    emit_loop_end(e, &loop, emit_i64(e, whole), step, NULL);
  } else if (whole > low) {
    emit_tile(n, depth, points, count, emit_i64(e, low), low, high, tile, stride);
  }
  uint32_t rest = (uint32_t)((high - whole) / stride);
  if (rest) emit_tile(n, depth, points, count, emit_i64(e, whole), low, high, rest, stride);
}

static void emit_lane_axis(nest *n, uint32_t depth, const emit_point *points, uint32_t count) {
  emitter *e = n->e;
  int64_t size = e->kernel->axes[n->sweep->loops[depth].index].size;
  int64_t whole = size / e->width * e->width;
  if (whole)
    emit_range(n, depth, points, count, 0, whole, (uint32_t)kir_tile(e->kernel, n->sweep, depth),
               e->width);
  if (size > whole)
    emit_tile(n, depth, points, count, emit_i64(e, whole), whole, size, 1,
              (uint32_t)(size - whole));
}

static void emit_outer_axis(nest *n, uint32_t depth, const emit_point *points, uint32_t count) {
  const kir_axis *axis = &n->e->kernel->axes[n->sweep->loops[depth].index];
  uint32_t tile = (uint32_t)kir_tile(n->e->kernel, n->sweep, depth);
  int64_t low = 0;
  for (uint32_t i = 0; i <= axis->breaks.count; i++) {
    int64_t high = i < axis->breaks.count ? axis->breaks.data[i] : axis->size;
    if (high > low) emit_range(n, depth, points, count, low, high, tile, 1);
    low = high;
  }
}

static void emit_nest(nest *n, uint32_t depth, const emit_point *points, uint32_t count) {
  for (uint32_t i = 0; i < n->sweep->roots.count; i++)
    if (n->roots[i].root->accumulates && n->roots[i].root->depth == depth)
      open_root(n, &n->roots[i], points, count);
  if (depth == n->sweep->loop_count)
    emit_step(n, points, count);
  else if ((int32_t)depth == n->sweep->lane)
    emit_lane_axis(n, depth, points, count);
  else
    emit_outer_axis(n, depth, points, count);
  for (uint32_t i = 0; i < n->sweep->roots.count; i++)
    if (n->roots[i].root->accumulates && n->roots[i].root->depth == depth)
      close_root(n, &n->roots[i], points);
}

static void begin_nest(nest *n, emitter *e, const kir_sweep *sweep) {
  *n = (nest){.e = e, .sweep = sweep};
  n->roots = base_new_array(e->arena, root_state, sweep->roots.count);
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    const kir_root *root = &sweep->roots.data[i];
    n->roots[i] = (root_state){.root = root, .op = ir_node_of(e->graph, root->value)->op};
  }
}

void emit_sweep(emitter *e, const kir_sweep *sweep) {
  nest n;
  begin_nest(&n, e, sweep);
  emit_point origin = {.width = 1};
  emit_nest(&n, 0, &origin, 1);
}

// ---- several sweeps in one lane loop ------------------------------------------------------------

typedef struct member {
  nest n;
  LLVMValueRef row;
  emit_point *points; // all indices of the loops outside the lane loop
  uint32_t count;
} member;

static void expand_outer(member *m) {
  emitter *e = m->n.e;
  m->points = base_new(e->arena, emit_point);
  m->points->width = 1;
  m->count = 1;
  for (uint32_t i = 0; i + 1 < m->n.sweep->loop_count; i++) {
    ir_axis axis = m->n.sweep->loops[i];
    uint32_t size = (uint32_t)e->kernel->axes[axis.index].size;
    emit_point *grown = base_new_array(e->arena, emit_point, m->count * size);
    for (uint32_t j = 0; j < m->count * size; j++) {
      grown[j] = m->points[j / size];
      emit_set_axis(e, &grown[j], axis, emit_i64(e, j % size), j % size, j % size + 1, false);
      emit_compose(e, &grown[j]);
    }
    m->points = grown;
    m->count *= size;
  }
}

static void step_together(emitter *e, member *members, uint32_t member_count, LLVMValueRef index,
                          uint32_t vectors, uint32_t width) {
  for (uint32_t i = 0; i < member_count; i++) {
    member *m = &members[i];
    ir_axis lane = lane_axis(&m->n);
    emit_point *grown = base_new_array(e->arena, emit_point, m->count * vectors);
    for (uint32_t j = 0; j < m->count * vectors; j++) {
      grown[j] = m->points[j / vectors];
      set_lane(&m->n, &grown[j], lane, index, j % vectors, vectors, width);
      emit_compose(e, &grown[j]);
    }
    e->row = m->row;
    e->running_ahead = m->n.sweep->ahead;
    emit_step(&m->n, grown, m->count * vectors);
    e->running_ahead = false;
  }
}

void emit_sweeps_together(emitter *e, const kir_sweep *const *sweeps, const LLVMValueRef *rows,
                          uint32_t count) {
  member *members = base_new_array(e->arena, member, count);
  LLVMValueRef row = e->row;
  for (uint32_t i = 0; i < count; i++) {
    member *m = &members[i];
    begin_nest(&m->n, e, sweeps[i]);
    m->n.ways = 1;
    e->row = m->row = rows[i];
    expand_outer(m);
    for (uint32_t j = 0; j < sweeps[i]->roots.count; j++)
      if (m->n.roots[j].root->accumulates) open_root(&m->n, &m->n.roots[j], m->points, m->count);
  }
  int64_t size = e->kernel->axes[lane_axis(&members[0].n).index].size;
  int64_t unroll = kir_tile(e->kernel, sweeps[0], (uint32_t)sweeps[0]->lane);
  int64_t step = unroll * e->width, whole = size / step * step;
  if (whole) {
    emit_loop loop = emit_loop_begin(e, emit_i64(e, 0), 0, NULL);
    step_together(e, members, count, loop.index, (uint32_t)unroll, e->width);
    emit_loop_end(e, &loop, emit_i64(e, whole), step, NULL);
  }
  for (; whole + e->width <= size; whole += e->width)
    step_together(e, members, count, emit_i64(e, whole), 1, e->width);
  if (whole < size)
    step_together(e, members, count, emit_i64(e, whole), 1, (uint32_t)(size - whole));
  for (uint32_t i = 0; i < count; i++) {
    e->row = members[i].row;
    for (uint32_t j = 0; j < sweeps[i]->roots.count; j++)
      if (members[i].n.roots[j].root->accumulates)
        close_root(&members[i].n, &members[i].n.roots[j], members[i].points);
  }
  e->row = row;
}
