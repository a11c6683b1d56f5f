// Values at points: views map points, map ops combine, mixes loop over their sources.
#include <math.h>
#include <string.h>

#include "codegen/llvm/emit.h"

// ---- memo ---------------------------------------------------------------------------------------

static uint64_t type_axes(const emitter *e, ir_value value) {
  return ir_type_axes(&ir_node_of(e->graph, value)->type);
}

static emit_memo memo_key(const emitter *e, ir_value value, const emit_point *point) {
  const ir_type *type = &ir_node_of(e->graph, value)->type;
  emit_memo key = {.value = value, .lanes = point->lanes & ir_type_axes(type)};
  key.width = key.lanes ? point->width : 1;
  key.row = e->kernel->values[value.index].phase == KIR_BODY ? e->row : NULL;
  for (uint32_t i = 0; i < type->rank; i++)
    if (!e->kernel->axes[type->axes[i].index].row) key.index[i] = point->index[type->axes[i].index];
  return key;
}

static bool same_key(const emit_memo *a, const emit_memo *b) {
  return a->value.index == b->value.index && a->width == b->width && a->lanes == b->lanes &&
         a->row == b->row && memcmp(a->index, b->index, sizeof a->index) == 0;
}

void emit_remember(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result) {
  emit_memo entry = memo_key(e, value, point);
  entry.result = result;
  base_push(e->arena, &e->memo, entry);
}

static LLVMValueRef recall(const emitter *e, const emit_memo *key) {
  for (uint32_t i = e->memo.count; i-- > 0;)
    if (same_key(&e->memo.data[i], key)) return e->memo.data[i].result;
  return NULL;
}

void emit_values(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                 LLVMValueRef *out) {
  // Points that are not known yet, each once.
  emit_point *fresh = base_new_array(e->arena, emit_point, count ? count : 1);
  emit_memo *keys = base_new_array(e->arena, emit_memo, count ? count : 1);
  LLVMValueRef *results = base_new_array(e->arena, LLVMValueRef, count ? count : 1);
  uint32_t *from = base_new_array(e->arena, uint32_t, count ? count : 1);
  uint32_t missing = 0;
  for (uint32_t i = 0; i < count; i++) {
    emit_memo key = memo_key(e, value, &points[i]);
    out[i] = recall(e, &key);
    if (out[i]) continue;
    uint32_t j = 0;
    while (j < missing && !same_key(&keys[j], &key))
      j++;
    from[i] = j;
    if (j < missing) continue;
    keys[missing] = key;
    fresh[missing++] = points[i];
  }
  if (!missing) return;
  kir_place place = e->kernel->values[value.index].place;
  if (place == KIR_INLINE) {
    emit_definition(e, value, fresh, missing, results);
  } else {
    for (uint32_t i = 0; i < missing; i++)
      results[i] = place == KIR_ARGUMENT ? emit_load_argument(e, value, &fresh[i])
                                         : emit_load_place(e, value, &fresh[i]);
  }
  for (uint32_t i = 0; i < missing; i++)
    emit_remember(e, value, &fresh[i], results[i]);
  for (uint32_t i = 0; i < count; i++)
    if (!out[i]) out[i] = results[from[i]];
}

// ---- points through views -----------------------------------------------------------------------

// Setting a factor makes what was put together from it stale.
static void forget_wholes(const kir_kernel *kernel, emit_point *point, ir_axis factor) {
  for (uint32_t i = 0; i < kernel->graph->axes.count; i++)
    for (uint32_t j = 0; j < kernel->axes[i].factor_count; j++)
      if (kernel->axes[i].factors[j].index == factor.index)
        point->composed &= ~ir_axis_bit((ir_axis){i});
}

void emit_set_axis(emitter *e, emit_point *point, ir_axis axis, LLVMValueRef index, int64_t low,
                   int64_t high, bool lane) {
  uint64_t bit = ir_axis_bit(axis);
  if (point->composed) forget_wholes(e->kernel, point, axis);
  point->index[axis.index] = index;
  point->low[axis.index] = low;
  point->high[axis.index] = high;
  point->lanes = lane ? point->lanes | bit : point->lanes & ~bit;
  point->composed &= ~bit;
}

void emit_compose(emitter *e, emit_point *point) {
  for (uint32_t i = 0; i < e->graph->axes.count; i++) {
    const kir_axis *whole = &e->kernel->axes[i];
    bool ready = whole->factor_count > 0 && !(point->composed & ir_axis_bit((ir_axis){i}));
    for (uint32_t j = 0; j < whole->factor_count; j++)
      ready &= point->index[whole->factors[j].index] != NULL;
    if (!ready) continue;
    LLVMValueRef index = emit_i64(e, 0);
    for (uint32_t j = 0; j < whole->factor_count; j++) {
      LLVMValueRef size = emit_i64(e, e->kernel->axes[whole->factors[j].index].size);
      index = LLVMBuildAdd(e->builder, LLVMBuildMul(e->builder, index, size, ""),
                           point->index[whole->factors[j].index], "");
    }
    ir_axis last = whole->factors[whole->factor_count - 1];
    emit_set_axis(e, point, (ir_axis){i}, index, 0, whole->size,
                  (point->lanes & ir_axis_bit(last)) != 0);
    point->composed |= ir_axis_bit((ir_axis){i});
  }
}

static bool runs_along_lanes(const emit_point *point, ir_axis axis) {
  return (point->lanes & ir_axis_bit(axis)) != 0;
}

static LLVMValueRef add(emitter *e, LLVMValueRef index, int64_t by) {
  return by == 0 ? index : LLVMBuildAdd(e->builder, index, emit_i64(e, by), "");
}

static emit_point shift_axis(emitter *e, const emit_point *point, ir_axis to, ir_axis over,
                             int64_t by) {
  emit_point moved = *point;
  emit_set_axis(e, &moved, over, add(e, point->index[to.index], by), point->low[to.index] + by,
                point->high[to.index] + by, runs_along_lanes(point, to));
  return moved;
}

static emit_point split_point(emitter *e, const ir_node *node, const emit_point *point) {
  ir_axis whole = node->over[0];
  if (point->composed & ir_axis_bit(whole))
    return *point; // already put together from these factors
  LLVMValueRef index = emit_i64(e, 0);
  for (uint32_t i = 0; i < node->to_count; i++) {
    int64_t size = e->kernel->axes[node->to[i].index].size;
    index = LLVMBuildAdd(e->builder, LLVMBuildMul(e->builder, index, emit_i64(e, size), ""),
                         point->index[node->to[i].index], "");
  }
  emit_point moved = *point;
  ir_axis last = node->to[node->to_count - 1];
  emit_set_axis(e, &moved, whole, index, 0, e->kernel->axes[whole.index].size,
                runs_along_lanes(point, last));
  return moved;
}

static emit_point merge_point(emitter *e, const ir_node *node, const emit_point *point) {
  ir_axis whole = node->to[0];
  if (point->composed & ir_axis_bit(whole)) return *point;
  emit_point moved = *point;
  LLVMValueRef rest = point->index[whole.index];
  for (uint32_t i = node->over_count; i-- > 0;) {
    int64_t size = e->kernel->axes[node->over[i].index].size;
    LLVMValueRef divisor = emit_i64(e, size > 0 ? size : 1);
    emit_set_axis(e, &moved, node->over[i], LLVMBuildURem(e->builder, rest, divisor, ""), 0, size,
                  false);
    rest = LLVMBuildUDiv(e->builder, rest, divisor, "");
  }
  return moved;
}

static void emit_mapped(emitter *e, const ir_node *node, const emit_point *points, uint32_t count,
                        LLVMValueRef *out) {
  emit_point *moved = base_new_array(e->arena, emit_point, count);
  for (uint32_t i = 0; i < count; i++) {
    if (node->op == IR_SLICE)
      moved[i] = shift_axis(e, &points[i], node->to[0], node->over[0], node->start);
    else if (node->op == IR_RENAME)
      moved[i] = shift_axis(e, &points[i], node->to[0], node->over[0], 0);
    else if (node->op == IR_SPLIT_AXIS)
      moved[i] = split_point(e, node, &points[i]);
    else
      moved[i] = merge_point(e, node, &points[i]);
  }
  emit_values(e, node->operands[0], moved, count, out);
}

// ---- concat -------------------------------------------------------------------------------------

static int64_t part_size(emitter *e, const ir_node *node, uint32_t operand) {
  const ir_type *type = &ir_node_of(e->graph, node->operands[operand])->type;
  return ir_type_has(type, node->over[0]) ? e->kernel->axes[node->over[0].index].size : 1;
}

// An index that may lie in any part: all are read, at an index clamped into the part, and one is
// chosen.
static LLVMValueRef choose_part(emitter *e, const ir_node *node, const emit_point *point) {
  LLVMValueRef index = point->index[node->to[0].index], chosen = NULL;
  int64_t offset = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    int64_t size = part_size(e, node, i);
    if (size == 0) continue;
    LLVMValueRef local = add(e, index, -offset);
    LLVMValueRef last = emit_i64(e, size - 1), zero = emit_i64(e, 0);
    LLVMValueRef below = LLVMBuildICmp(e->builder, LLVMIntSLT, local, zero, "");
    LLVMValueRef above = LLVMBuildICmp(e->builder, LLVMIntSGT, local, last, "");
    LLVMValueRef clamped = LLVMBuildSelect(e->builder, above, last,
                                           LLVMBuildSelect(e->builder, below, zero, local, ""), "");
    emit_point moved = *point;
    emit_set_axis(e, &moved, node->over[0], clamped, 0, size, false);
    LLVMValueRef part;
    emit_values(e, node->operands[i], &moved, 1, &part);
    if (chosen) {
      uint32_t width =
          emit_width(part) > emit_width(chosen) ? emit_width(part) : emit_width(chosen);
      chosen = LLVMBuildSelect(e->builder, below, emit_splat(e, chosen, width),
                               emit_splat(e, part, width), "");
    } else {
      chosen = part;
    }
    offset += size;
  }
  return chosen;
}

static void emit_concat(emitter *e, const ir_node *node, const emit_point *points, uint32_t count,
                        LLVMValueRef *out) {
  ir_axis to = node->to[0];
  emit_point *moved = base_new_array(e->arena, emit_point, count);
  uint32_t *origin = base_new_array(e->arena, uint32_t, count);
  LLVMValueRef *parts = base_new_array(e->arena, LLVMValueRef, count);
  memset(out, 0, count * sizeof *out);
  int64_t offset = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    int64_t size = part_size(e, node, i);
    uint32_t here = 0;
    for (uint32_t j = 0; j < count; j++) {
      if (points[j].low[to.index] < offset || points[j].high[to.index] > offset + size) continue;
      origin[here] = j;
      moved[here++] = shift_axis(e, &points[j], to, node->over[0], -offset);
    }
    if (here) emit_values(e, node->operands[i], moved, here, parts);
    for (uint32_t j = 0; j < here; j++)
      out[origin[j]] = parts[j];
    offset += size;
  }
  for (uint32_t j = 0; j < count; j++)
    if (!out[j]) out[j] = choose_part(e, node, &points[j]);
}

// ---- constants ----------------------------------------------------------------------------------

static LLVMValueRef list_constant(emitter *e, ir_value value, const emit_point *point) {
  const ir_node *node = ir_node_of(e->graph, value);
  char name[32];
  base_str text = base_str_format(e->arena, "list.%u", value.index);
  memcpy(name, text.data, text.length + 1);
  LLVMValueRef global = LLVMGetNamedGlobal(e->module, name);
  LLVMTypeRef type = LLVMArrayType2(e->f32, node->value_count);
  if (!global) {
    LLVMValueRef *items = base_new_array(e->arena, LLVMValueRef, node->value_count);
    for (uint32_t i = 0; i < node->value_count; i++)
      items[i] = emit_constant(e, ir_dtype_round(node->type.dtype, node->values[i]), 1);
    global = LLVMAddGlobal(e->module, type, name);
    LLVMSetInitializer(global, LLVMConstArray2(e->f32, items, node->value_count));
    LLVMSetGlobalConstant(global, true);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
  }
  ir_axis axis = node->type.axes[0];
  LLVMValueRef index = point->index[axis.index];
  LLVMValueRef address = LLVMBuildGEP2(e->builder, e->f32, global, &index, 1, "");
  bool lanes = runs_along_lanes(point, axis);
  LLVMValueRef load =
      LLVMBuildLoad2(e->builder, emit_type(e, lanes ? point->width : 1), address, "");
  LLVMSetAlignment(load, sizeof(float));
  return load;
}

static void emit_constants(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                           LLVMValueRef *out) {
  const ir_node *node = ir_node_of(e->graph, value);
  for (uint32_t i = 0; i < count; i++)
    out[i] = node->value_count == 1
                 ? emit_constant(e, ir_dtype_round(node->type.dtype, node->values[0]), 1)
                 : list_constant(e, value, &points[i]);
}

// ---- map ops ------------------------------------------------------------------------------------

static void emit_maps(emitter *e, const ir_node *node, const emit_point *points, uint32_t count,
                      LLVMValueRef *out) {
  LLVMValueRef *a = base_new_array(e->arena, LLVMValueRef, count);
  LLVMValueRef *b = base_new_array(e->arena, LLVMValueRef, count);
  emit_values(e, node->operands[0], points, count, a);
  if (node->operand_count == 2) emit_values(e, node->operands[1], points, count, b);
  for (uint32_t i = 0; i < count; i++)
    out[i] = emit_round(e, node->type.dtype, emit_map(e, node->op, a[i], b[i]));
}

// ---- reductions ---------------------------------------------------------------------------------

LLVMValueRef emit_neutral(emitter *e, ir_op op, uint32_t width) {
  return emit_constant(e, op == IR_REDUCE_MAX ? -INFINITY : 0.0, width);
}

LLVMValueRef emit_combine(emitter *e, ir_op op, LLVMValueRef a, LLVMValueRef b) {
  return emit_map(e, op == IR_REDUCE_MAX ? IR_MAX : IR_ADD, a, b);
}

LLVMValueRef emit_across_lanes(emitter *e, ir_op op, LLVMValueRef vector) {
  LLVMTypeRef type = LLVMTypeOf(vector);
  if (emit_width(vector) == 1) return vector;
  if (op == IR_REDUCE_MAX)
    return emit_intrinsic(e, "llvm.vector.reduce.fmaximum", type, &vector, 1);
  LLVMValueRef arguments[2] = {emit_constant(e, -0.0, 1), vector};
  LLVMValueRef sum = emit_intrinsic(e, "llvm.vector.reduce.fadd", type, arguments, 2);
  LLVMSetFastMathFlags(sum, LLVMFastMathAllowReassoc); // a tree, not a chain
  return sum;
}

LLVMValueRef emit_finish(emitter *e, ir_value value, LLVMValueRef total) {
  const ir_node *node = ir_node_of(e->graph, value);
  if (node->op == IR_MEAN) {
    double count = 1;
    for (uint32_t i = 0; i < node->over_count; i++)
      count *= (double)e->kernel->axes[node->over[i].index].size;
    total = LLVMBuildFMul(e->builder, total, emit_constant(e, 1.0 / count, emit_width(total)), "");
  }
  return emit_round(e, node->type.dtype, total);
}

typedef struct reduction {
  const ir_node *node;
  ir_axis axes[KIR_MAX_LOOPS]; // still to be looped over
  uint32_t axis_count;
  const uint32_t *slot;
  LLVMValueRef *accumulators;
  uint32_t slots;
} reduction;

// A sum of products computed in place is as good as a dot: multiply and add fuse.
static const ir_node *factors_of(const emitter *e, const ir_node *node) {
  if (node->operand_count == 2) return node;
  const ir_node *product = ir_node_of(e->graph, node->operands[0]);
  bool in_place = e->kernel->values[node->operands[0].index].place == KIR_INLINE;
  bool fuses = node->op != IR_REDUCE_MAX && product->op == IR_MUL && product->type.dtype == IR_F32;
  return in_place && fuses ? product : node;
}

static void accumulate(emitter *e, const reduction *r, const emit_point *points, uint32_t count) {
  const ir_node *node = factors_of(e, r->node);
  LLVMValueRef *a = base_new_array(e->arena, LLVMValueRef, count);
  LLVMValueRef *b = base_new_array(e->arena, LLVMValueRef, count);
  emit_values(e, node->operands[0], points, count, a);
  if (node->operand_count == 2) emit_values(e, node->operands[1], points, count, b);
  for (uint32_t i = 0; i < count; i++) {
    LLVMValueRef *total = &r->accumulators[r->slot[i]];
    if (node->operand_count == 2)
      *total = emit_fma(e, a[i], b[i], *total);
    else
      *total = emit_combine(e, r->node->op, *total, a[i]);
  }
}

// `budget`: into how many copies of the innermost step the axes from `depth` on may still be
// unrolled.
static void reduce_axis(emitter *e, const reduction *r, uint32_t depth, int64_t budget,
                        const emit_point *points, uint32_t count);

static void reduce_at(emitter *e, const reduction *r, uint32_t depth, int64_t budget,
                      const emit_point *points, uint32_t count, LLVMValueRef index, int64_t low,
                      int64_t high) {
  emit_point *inner = base_new_array(e->arena, emit_point, count);
  for (uint32_t i = 0; i < count; i++) {
    inner[i] = points[i];
    emit_set_axis(e, &inner[i], r->axes[depth], index, low, high, false);
    emit_compose(e, &inner[i]);
  }
  reduce_axis(e, r, depth + 1, budget, inner, count);
}

// One piece of the axis, between breaks: short ones are unrolled, long ones loop with the
// accumulators carried.
static void reduce_piece(emitter *e, const reduction *r, uint32_t depth, int64_t budget,
                         const emit_point *points, uint32_t count, int64_t low, int64_t high) {
  if (high - low <= budget) {
    for (int64_t i = low; i < high; i++)
      reduce_at(e, r, depth, budget / (high - low), points, count, emit_i64(e, i), i, i + 1);
    return;
  }
  int64_t step = budget < 4 ? budget : 4; // inside a loop four in flight are enough
  int64_t whole = low + (high - low) / step * step;
  emit_loop loop = emit_loop_begin(e, emit_i64(e, low), r->slots, r->accumulators);
  memcpy(r->accumulators, loop.carried, r->slots * sizeof *loop.carried);
  for (int64_t i = 0; i < step; i++)
    reduce_at(e, r, depth, budget / step, points, count, add(e, loop.index, i), low, high);
  emit_loop_end(e, &loop, emit_i64(e, whole), step, r->accumulators);
  for (int64_t i = whole; i < high; i++)
    reduce_at(e, r, depth, budget / step, points, count, emit_i64(e, i), i, i + 1);
}

static void reduce_axis(emitter *e, const reduction *r, uint32_t depth, int64_t budget,
                        const emit_point *points, uint32_t count) {
  if (depth == r->axis_count) {
    int64_t outer = e->mix_budget;
    e->mix_budget = budget;
    accumulate(e, r, points, count);
    e->mix_budget = outer;
    return;
  }
  const kir_axis *axis = &e->kernel->axes[r->axes[depth].index];
  int64_t low = 0;
  for (uint32_t i = 0; i <= axis->breaks.count; i++) {
    int64_t high = i < axis->breaks.count ? axis->breaks.data[i] : axis->size;
    if (high > low) reduce_piece(e, r, depth, budget, points, count, low, high);
    low = high;
  }
}

// The refined axes the reduction runs over and the point does not set yet.
static void open_axes(emitter *e, reduction *r, uint64_t set) {
  ir_type over = {.rank = r->node->over_count};
  memcpy(over.axes, r->node->over, r->node->over_count * sizeof(ir_axis));
  ir_axis all[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(e->kernel, &over, all, 0);
  for (uint32_t i = 0; i < count; i++)
    if (!(set & ir_axis_bit(all[i]))) r->axes[r->axis_count++] = all[i];
}

static uint32_t widest(const emitter *e, const reduction *r, const emit_point *points,
                       uint32_t count) {
  uint64_t axes = 0;
  for (uint32_t i = 0; i < r->node->operand_count; i++)
    axes |= type_axes(e, r->node->operands[i]);
  uint32_t width = 1;
  for (uint32_t i = 0; i < count; i++)
    if ((points[i].lanes & axes) && points[i].width > width) width = points[i].width;
  return width;
}

void emit_reduce(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                 const uint32_t *slot, LLVMValueRef *accumulators, uint32_t slots) {
  reduction r = {.node = ir_node_of(e->graph, value),
                 .slot = slot,
                 .accumulators = accumulators,
                 .slots = slots};
  uint64_t set = 0;
  for (uint32_t i = 0; i < e->graph->axes.count; i++)
    if (count && points[0].index[i]) set |= ir_axis_bit((ir_axis){i});
  open_axes(e, &r, set);
  reduce_axis(e, &r, 0, e->mix_budget, points, count);
}

static void emit_mixes(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                       LLVMValueRef *out) {
  reduction r = {.node = ir_node_of(e->graph, value), .accumulators = out, .slots = count};
  open_axes(e, &r, 0);
  uint32_t *slot = base_new_array(e->arena, uint32_t, count);
  emit_point *clean = base_new_array(e->arena, emit_point, count);
  for (uint32_t i = 0; i < count; i++) {
    slot[i] = i;
    clean[i] = points[i];
    for (uint32_t j = 0; j < r.axis_count;
         j++) // the axis may be in use outside under the same name
      emit_set_axis(e, &clean[i], r.axes[j], NULL, 0, 0, false);
    out[i] = emit_neutral(e, r.node->op, widest(e, &r, &clean[i], 1));
  }
  r.slot = slot;
  reduce_axis(e, &r, 0, e->mix_budget, clean, count);
  for (uint32_t i = 0; i < count; i++)
    out[i] = emit_finish(e, value, out[i]);
}

// A view whose type differs from what it views rounds.
static bool narrows(const emitter *e, const ir_node *node) {
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (ir_node_of(e->graph, node->operands[i])->type.dtype != node->type.dtype) return true;
  return false;
}

void emit_definition(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                     LLVMValueRef *out) {
  const ir_node *node = ir_node_of(e->graph, value);
  if (e->kernel->values[value.index].load_arg >= 0) { // an argument that is copied to a place
    for (uint32_t i = 0; i < count; i++)
      out[i] = emit_load_argument(e, value, &points[i]);
    return;
  }
  switch (ir_op_get(node->op)->shape) {
  case IR_SHAPE_MAP:
    emit_maps(e, node, points, count, out);
    return;
  case IR_SHAPE_CONCAT:
    emit_concat(e, node, points, count, out);
    break;
  case IR_SHAPE_REDUCE:
    emit_mixes(e, value, points, count, out);
    return;
  case IR_SHAPE_GIVEN:
    emit_constants(e, value, points, count, out);
    return;
  default:
    emit_mapped(e, node, points, count, out);
    break;
  }
  if (!narrows(e, node)) return;
  for (uint32_t i = 0; i < count; i++)
    out[i] = emit_round(e, node->type.dtype, out[i]);
}
