// Loads and stores: arguments (the caller's memory, any dtype and stride) and places (our own dense
// f32 arrays).
//
// All offsets are 64-bit byte offsets. Pointers and strides of arguments do not change during a
// call, so their loads are marked invariant and leave the loops.
#include <string.h>

#include "codegen/llvm/emit.h"

static LLVMValueRef offset_pointer(emitter *e, LLVMValueRef base, LLVMValueRef bytes) {
  return LLVMBuildGEP2(e->builder, e->i8, base, &bytes, 1, "");
}

static LLVMValueRef load_invariant(emitter *e, LLVMTypeRef type, LLVMValueRef table,
                                   LLVMValueRef index) {
  LLVMValueRef address = LLVMBuildGEP2(e->builder, type, table, &index, 1, "");
  LLVMValueRef load = LLVMBuildLoad2(e->builder, type, address, "");
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "invariant.load", 14);
  LLVMValueRef empty = LLVMMDNodeInContext(e->context, NULL, 0);
  LLVMSetMetadata(load, kind, empty);
  return load;
}

static LLVMValueRef stride(emitter *e, uint32_t arg, uint32_t position) {
  uint32_t index = kir_first_stride(e->kernel, arg) + position;
  return load_invariant(e, e->i64, e->strides, emit_i64(e, index));
}

static LLVMValueRef base_pointer(emitter *e, uint32_t arg, LLVMValueRef slice) {
  LLVMValueRef index = emit_i64(e, kir_first_pointer(e->kernel, arg));
  if (slice) index = LLVMBuildAdd(e->builder, index, slice, "");
  return load_invariant(e, e->ptr, e->pointers, index);
}

static bool is_last_row(const kir_kernel *kernel, ir_axis axis) {
  return kernel->row_count && kernel->rows[kernel->row_count - 1].index == axis.index;
}

// Address of the element of the point (of its first lane). Outer row axes are in the pointers
// already.
static LLVMValueRef argument_address(emitter *e, uint32_t arg, const emit_point *point) {
  const kir_arg *info = &e->kernel->args.data[arg];
  const ir_type *type = &ir_node_of(e->graph, info->value)->type;
  LLVMValueRef slice = info->sliced ? point->index[type->axes[0].index] : NULL;
  LLVMValueRef address = base_pointer(e, arg, slice);
  for (uint32_t i = info->sliced; i < type->rank; i++) {
    ir_axis axis = type->axes[i];
    LLVMValueRef index = point->index[axis.index];
    if (e->kernel->axes[axis.index].row) {
      if (!is_last_row(e->kernel, axis)) continue;
      index = e->row;
    }
    LLVMValueRef unit = (int32_t)i == info->unit_position
                            ? emit_i64(e, (int64_t)ir_dtype_size(type->dtype))
                            : stride(e, arg, i);
    address = offset_pointer(e, address, LLVMBuildMul(e->builder, index, unit, ""));
  }
  return address;
}

// The position of the axis that runs along the lanes; -1 when none does.
static int32_t lane_position(const emit_point *point, const ir_type *type) {
  for (uint32_t i = 0; i < type->rank; i++)
    if (point->lanes & ir_axis_bit(type->axes[i])) return (int32_t)i;
  return -1;
}

// ---- loads --------------------------------------------------------------------------------------

static LLVMValueRef load_stored(emitter *e, ir_dtype dtype, uint32_t width, LLVMValueRef address) {
  LLVMTypeRef type = emit_stored_type(e, dtype, width);
  LLVMValueRef load = LLVMBuildLoad2(e->builder, type, address, "");
  LLVMSetAlignment(load, (unsigned)ir_dtype_size(dtype));
  return emit_widen(e, dtype, load);
}

// Lanes that are not neighbours in memory: one load each.
static LLVMValueRef gather(emitter *e, ir_dtype dtype, uint32_t width, LLVMValueRef address,
                           LLVMValueRef step) {
  if (width == 1) return load_stored(e, dtype, 1, address);
  LLVMValueRef vector = LLVMGetPoison(emit_type(e, width));
  for (uint32_t i = 0; i < width; i++) {
    LLVMValueRef offset = LLVMBuildMul(e->builder, step, emit_i64(e, i), "");
    LLVMValueRef lane = load_stored(e, dtype, 1, offset_pointer(e, address, offset));
    vector = LLVMBuildInsertElement(e->builder, vector, lane, LLVMConstInt(e->i32, i, false), "");
  }
  return vector;
}

static bool has_last_row(const kir_kernel *kernel, const ir_type *type, uint32_t *position) {
  for (uint32_t i = 0; i < type->rank; i++)
    if (is_last_row(kernel, type->axes[i])) {
      *position = i;
      return true;
    }
  return false;
}

static void prefetch_at(emitter *e, LLVMValueRef address, LLVMValueRef bytes, uint32_t locality) {
  LLVMValueRef arguments[4] = {offset_pointer(e, address, bytes), LLVMConstInt(e->i32, 0, false),
                               LLVMConstInt(e->i32, locality, false),
                               LLVMConstInt(e->i32, 1, false)};
  emit_intrinsic(e, "llvm.prefetch", e->ptr, arguments, 4);
}

// How far ahead of this load its argument is prefetched, and is it this sweep's turn for cache line
// `line` of the step? NULL: it is not prefetched here.
//
// Without overlap, while a row is worked on its successors are asked for: each sweep that reads the
// argument takes every n-th line, into the second level cache, where the next row's first sweep
// will find it. With overlap the load itself runs a row ahead, and only needs help to run ahead of
// itself: the hardware stops at page ends.
static LLVMValueRef prefetch_offset(emitter *e, uint32_t arg, uint32_t line) {
  const ir_type *type = &ir_node_of(e->graph, e->kernel->args.data[arg].value)->type;
  const kir_schedule *schedule = &e->kernel->schedule;
  uint32_t row;
  if (!has_last_row(e->kernel, type, &row)) return NULL;
  if (e->running_ahead) return schedule->distance ? emit_i64(e, schedule->distance * 64) : NULL;
  if (!schedule->prefetch || !e->prefetch_parts[arg]) return NULL;
  if (line % e->prefetch_parts[arg] != e->prefetch_part[arg]) return NULL;
  return LLVMBuildMul(e->builder, stride(e, arg, row), emit_i64(e, schedule->prefetch), "");
}

// One prefetch for each cache line that the vector at `address` begins. Prefetching past the end is
// harmless.
static void prefetch(emitter *e, uint32_t arg, const emit_point *point, LLVMValueRef address) {
  const ir_type *type = &ir_node_of(e->graph, e->kernel->args.data[arg].value)->type;
  uint32_t element = (uint32_t)ir_dtype_size(type->dtype), per_line = 64 / element;
  uint32_t first = point->block * e->width;
  for (uint32_t i = (per_line - first % per_line) % per_line; i < point->width; i += per_line) {
    LLVMValueRef ahead = prefetch_offset(e, arg, (first + i) / per_line);
    if (!ahead) continue;
    LLVMValueRef bytes = LLVMBuildAdd(e->builder, ahead, emit_i64(e, (int64_t)i * element), "");
    prefetch_at(e, address, bytes, e->running_ahead ? 3 : 2);
  }
}

void emit_prefetch_idle(emitter *e, const emit_point *point) {
  uint32_t arg = (uint32_t)e->idle_argument;
  const ir_type *type = &ir_node_of(e->graph, e->kernel->args.data[arg].value)->type;
  uint32_t row, element = (uint32_t)ir_dtype_size(type->dtype), per_line = 64 / element;
  if (!has_last_row(e->kernel, type, &row) || lane_position(point, type) < 0) return;
  emit_point first = *point;
  for (uint32_t i = 0; i < type->rank; i++)
    if (!first.index[type->axes[i].index]) first.index[type->axes[i].index] = emit_i64(e, 0);
  LLVMValueRef address = argument_address(e, arg, &first);
  LLVMValueRef ahead = LLVMBuildMul(e->builder, stride(e, arg, row), emit_i64(e, 2), "");
  uint32_t start = point->block * e->width;
  for (uint32_t i = (per_line - start % per_line) % per_line; i < point->width; i += per_line)
    prefetch_at(e, address, LLVMBuildAdd(e->builder, ahead, emit_i64(e, (int64_t)i * element), ""),
                2);
}

// The even (or odd) elements of the stretch of two vectors that starts at the address.
static LLVMValueRef load_half(emitter *e, ir_dtype dtype, const emit_point *point,
                              LLVMValueRef address) {
  uint32_t width = point->width;
  if (dtype == IR_BF16) {
    LLVMValueRef pairs = LLVMBuildLoad2(e->builder, LLVMVectorType(e->i32, width), address, "");
    LLVMSetAlignment(pairs, 2);
    return emit_half_of_pairs(e, pairs, point->odd);
  }
  LLVMValueRef after =
      offset_pointer(e, address, emit_i64(e, (int64_t)(width * ir_dtype_size(dtype))));
  LLVMValueRef low = load_stored(e, dtype, width, address);
  LLVMValueRef high = load_stored(e, dtype, width, after);
  return emit_deinterleave(e, low, high, point->odd);
}

static emit_point start_of_pair(const ir_type *type, int32_t lane, const emit_point *point) {
  emit_point start = *point;
  start.index[type->axes[lane].index] = point->pair;
  return start;
}

LLVMValueRef emit_load_argument(emitter *e, ir_value value, const emit_point *point) {
  uint32_t arg = (uint32_t)e->kernel->values[value.index].load_arg;
  const ir_type *type = &ir_node_of(e->graph, value)->type;
  LLVMValueRef address = argument_address(e, arg, point);
  int32_t lane = lane_position(point, type);
  if (lane < 0) return load_stored(e, type->dtype, 1, address);
  if (lane != e->kernel->args.data[arg].unit_position)
    return gather(e, type->dtype, point->width, address, stride(e, arg, (uint32_t)lane));
  prefetch(e, arg, point, address);
  if (!point->pair) return load_stored(e, type->dtype, point->width, address);
  emit_point start = start_of_pair(type, lane, point);
  return load_half(e, type->dtype, point, argument_address(e, arg, &start));
}

// ---- places -------------------------------------------------------------------------------------

static LLVMValueRef place_address(emitter *e, ir_value value, const emit_point *point) {
  const kir_value *info = &e->kernel->values[value.index];
  LLVMValueRef base = info->place == KIR_SHARED ? e->shared : e->scratch;
  LLVMValueRef address = offset_pointer(e, base, emit_i64(e, (int64_t)info->offset));
  int64_t step = sizeof(float);
  for (uint32_t i = info->rank; i-- > 0;) {
    LLVMValueRef index = point->index[info->order[i].index];
    address = offset_pointer(e, address, LLVMBuildMul(e->builder, index, emit_i64(e, step), ""));
    step *= e->kernel->axes[info->order[i].index].size;
  }
  return address;
}

// Bytes between neighbouring lanes; 0 when the value does not depend on the lanes.
static int64_t place_lane_step(emitter *e, ir_value value, const emit_point *point) {
  const kir_value *info = &e->kernel->values[value.index];
  int64_t step = sizeof(float);
  for (uint32_t i = info->rank; i-- > 0;) {
    if (point->lanes & ir_axis_bit(info->order[i])) return step;
    step *= e->kernel->axes[info->order[i].index].size;
  }
  return 0;
}

LLVMValueRef emit_load_place(emitter *e, ir_value value, const emit_point *point) {
  LLVMValueRef address = place_address(e, value, point);
  int64_t step = place_lane_step(e, value, point);
  if (step == 0) return load_stored(e, IR_F32, 1, address);
  if (step != sizeof(float)) return gather(e, IR_F32, point->width, address, emit_i64(e, step));
  return load_stored(e, IR_F32, point->width, address);
}

static void store_bits(emitter *e, LLVMValueRef bits, LLVMValueRef address, uint32_t element) {
  LLVMSetAlignment(LLVMBuildStore(e->builder, bits, address), element);
}

static void scatter(emitter *e, LLVMValueRef bits, uint32_t width, LLVMValueRef address,
                    LLVMValueRef step, uint32_t element) {
  if (width == 1) {
    store_bits(e, bits, address, element);
    return;
  }
  for (uint32_t i = 0; i < width; i++) {
    LLVMValueRef lane =
        LLVMBuildExtractElement(e->builder, bits, LLVMConstInt(e->i32, i, false), "");
    LLVMValueRef offset = LLVMBuildMul(e->builder, step, emit_i64(e, i), "");
    store_bits(e, lane, offset_pointer(e, address, offset), element);
  }
}

void emit_store_place(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result) {
  // A scalar that multiplies a row must not be subnormal (softmax weights of far-off logits are):
  // each product would take the CPU's slow path, which made a site five times as slow. Rows keep
  // their subnormals.
  if (!e->kernel->values[value.index].row) result = emit_flush_subnormal(e, result);
  LLVMValueRef address = place_address(e, value, point);
  int64_t step = place_lane_step(e, value, point);
  if (step == 0) {
    store_bits(e, result, address, sizeof(float));
    return;
  }
  result = emit_splat(e, result, point->width);
  if (step == sizeof(float))
    store_bits(e, result, address, sizeof(float));
  else
    scatter(e, result, point->width, address, emit_i64(e, step), sizeof(float));
}

// ---- results ------------------------------------------------------------------------------------

// The two halves of a pair go to memory together: the even one waits for the odd one.
static void store_pair(emitter *e, ir_dtype dtype, emit_store even, LLVMValueRef odd) {
  uint32_t width = emit_width(odd), element = (uint32_t)ir_dtype_size(dtype);
  LLVMValueRef address = even.address, first = even.bits;
  even.half = false;
  even.vector = width == e->width;
  if (dtype == IR_BF16) {
    even.bits = emit_join_pairs(e, first, odd);
    even.bytes = 4 * width;
    base_push(e->arena, &e->stores, even);
    return;
  }
  even.bytes = element * width;
  even.bits = emit_narrow(e, dtype, emit_interleave(e, first, odd, false));
  base_push(e->arena, &e->stores, even);
  even.address = offset_pointer(e, address, emit_i64(e, element * width));
  even.bits = emit_narrow(e, dtype, emit_interleave(e, first, odd, true));
  base_push(e->arena, &e->stores, even);
}

static void store_half(emitter *e, ir_dtype dtype, const emit_point *point, emit_store store) {
  if (!point->odd) {
    store.half = true;
    base_push(e->arena, &e->stores, store);
    return;
  }
  uint32_t last = e->stores.count - 1;
  while (!e->stores.data[last].half || e->stores.data[last].arg != store.arg)
    last--;
  emit_store even = e->stores.data[last];
  e->stores.data[last] = e->stores.data[--e->stores.count];
  store_pair(e, dtype, even, store.bits);
}

void emit_store_argument(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result) {
  uint32_t arg = (uint32_t)e->kernel->values[value.index].store_arg;
  const ir_type *type = &ir_node_of(e->graph, value)->type;
  uint32_t element = (uint32_t)ir_dtype_size(type->dtype);
  LLVMValueRef address = argument_address(e, arg, point);
  int32_t lane = lane_position(point, type);
  if (lane >= 0) result = emit_splat(e, result, point->width);
  if (lane >= 0 && point->pair) {
    emit_store store = {.arg = (int32_t)arg, .address = address, .bits = result};
    store_half(e, type->dtype, point, store);
    return;
  }
  LLVMValueRef bits = emit_narrow(e, type->dtype, result);
  if (lane >= 0 && lane != e->kernel->args.data[arg].unit_position) {
    scatter(e, bits, point->width, address, stride(e, arg, (uint32_t)lane), element);
    return;
  }
  emit_store store = {.arg = (int32_t)arg,
                      .address = address,
                      .bits = bits,
                      .bytes = element * (lane >= 0 ? point->width : 1)};
  store.vector = lane >= 0 && point->width == e->width;
  base_push(e->arena, &e->stores, store);
}

static void store_all(emitter *e, int32_t arg, bool past_cache) {
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "nontemporal", 11);
  LLVMValueRef one = LLVMConstInt(e->i32, 1, false);
  LLVMValueRef node = LLVMMDNodeInContext(e->context, &one, 1);
  for (uint32_t i = 0; i < e->stores.count; i++) {
    const emit_store *store = &e->stores.data[i];
    if (store->arg != arg) continue;
    const ir_type *type = &ir_node_of(e->graph, e->kernel->args.data[arg].value)->type;
    LLVMValueRef made = LLVMBuildStore(e->builder, store->bits, store->address);
    uint32_t line = store->bytes < 64 ? store->bytes : 64;
    LLVMSetAlignment(made, past_cache ? line : (unsigned)ir_dtype_size(type->dtype));
    if (past_cache) LLVMSetMetadata(made, kind, node);
  }
}

static bool all_vectors(const emitter *e, int32_t arg) {
  for (uint32_t i = 0; i < e->stores.count; i++)
    if (e->stores.data[i].arg == arg && !e->stores.data[i].vector) return false;
  return true;
}

// The stores of a step, argument by argument: one test for all of them whether they may go past the
// cache.
void emit_flush_stores(emitter *e) {
  for (int32_t arg = 0; arg < (int32_t)e->kernel->args.count; arg++) {
    bool any = false;
    for (uint32_t i = 0; i < e->stores.count; i++)
      any |= e->stores.data[i].arg == arg;
    if (!any) continue;
    if (!e->streamable[arg] || !all_vectors(e, arg)) {
      store_all(e, arg, false);
      continue;
    }
    LLVMBasicBlockRef past = LLVMAppendBasicBlockInContext(e->context, e->function, "stream");
    LLVMBasicBlockRef cached = LLVMAppendBasicBlockInContext(e->context, e->function, "cached");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->context, e->function, "stored");
    LLVMBuildCondBr(e->builder, e->streamable[arg], past, cached);
    LLVMPositionBuilderAtEnd(e->builder, past);
    store_all(e, arg, true);
    LLVMBuildBr(e->builder, after);
    LLVMPositionBuilderAtEnd(e->builder, cached);
    store_all(e, arg, false);
    LLVMBuildBr(e->builder, after);
    LLVMPositionBuilderAtEnd(e->builder, after);
  }
  e->stores.count = 0;
}

// Non-temporal stores need aligned vectors: every row of the result must start on a cache line, and
// so must every part of a row that has vectors of its own (the lane loop starts again in each
// head).
static bool parts_start_aligned(const kir_kernel *kernel, const kir_arg *arg) {
  if (arg->unit_position < 0) return true;
  const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
  const kir_axis *whole = &kernel->axes[type->axes[arg->unit_position].index];
  if (!whole->factor_count) return true;
  int64_t part = kernel->axes[whole->factors[whole->factor_count - 1].index].size;
  return part * (int64_t)ir_dtype_size(type->dtype) % 64 == 0;
}

void emit_begin_memory(emitter *e) {
  for (uint32_t i = 0; i < e->kernel->args.count; i++) {
    const kir_arg *arg = &e->kernel->args.data[i];
    e->streamable[i] = NULL;
    if (!arg->written || arg->temporary || arg->sliced || !e->kernel->schedule.stream ||
        !parts_start_aligned(e->kernel, arg))
      continue;
    const ir_type *type = &ir_node_of(e->graph, arg->value)->type;
    LLVMValueRef bits = LLVMBuildPtrToInt(e->builder, base_pointer(e, i, NULL), e->i64, "");
    for (uint32_t j = 0; j < type->rank; j++)
      if ((int32_t)j != arg->unit_position)
        bits = LLVMBuildOr(e->builder, bits, stride(e, i, j), "");
    LLVMValueRef rest = LLVMBuildAnd(e->builder, bits, emit_i64(e, 63), "");
    e->streamable[i] = LLVMBuildICmp(e->builder, LLVMIntEQ, rest, emit_i64(e, 0), "streamable");
  }
}
