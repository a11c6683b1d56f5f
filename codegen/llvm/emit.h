// emit: kernel IR to LLVM IR. Internal to the cpu target.
//
// A sweep is emitted as loops around a list of *points* (a tile of them, unrolled); a value is then
// asked for at all points at once and pulls its operands at the points they map to. What was
// computed at a point is remembered while its code dominates, so operands shared by points or roots
// are loaded once.
#ifndef FATHOM_CODEGEN_EMIT_H
#define FATHOM_CODEGEN_EMIT_H

#include <llvm-c/Core.h>

#include "ir/kernel.h"

typedef struct emit_point {
  LLVMValueRef index[IR_SET_AXES];             // i64; of a lane axis the first lane's
  int64_t low[IR_SET_AXES], high[IR_SET_AXES]; // low <= index < high is known
  uint64_t lanes;                              // axes whose index runs along the lanes
  uint64_t composed; // axes whose index was put together from their factors, which are set too
  uint32_t width;    // lanes of the vectors at this point
  uint32_t block;    // which vector of the step it is
  LLVMValueRef pair; // of a paired vector: index of the first element of its stretch; else NULL
  bool odd;          // the odd elements of the stretch, else the even ones
} emit_point;

typedef struct emit_memo {
  ir_value value;
  uint32_t width;
  uint64_t lanes;
  LLVMValueRef row;
  LLVMValueRef index[IR_MAX_RANK];
  LLVMValueRef result;
} emit_memo;

typedef struct emit_store {
  int32_t arg;
  LLVMValueRef address, bits;
  uint32_t bytes; // of one vector
  bool vector;
  bool half; // the even elements of a pair: the odd ones are still to come
} emit_store;

typedef struct emitter {
  base_arena *arena;
  const kir_kernel *kernel;
  const ir_graph *graph;
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMTypeRef i1, i8, i16, i32, i64, f16, f32, ptr;
  uint32_t width; // f32 lanes of a full vector
  bool x86;
  bool halves; // the CPU converts f16
  // Into how many copies mixes may still be unrolled: nested ones share the schedule's mix_unroll.
  int64_t mix_budget;
  // The function being emitted.
  LLVMValueRef function, pointers, strides, shared, scratch, row, end;
  LLVMBasicBlockRef entry;  // where allocas go
  LLVMValueRef *streamable; // for each argument: i1, may be stored past the cache
  // Of each argument: how many sweeps read its rows, and which of them this is. Each prefetches its
  // share of the cache lines of the rows ahead, so that the memory is busy all the time.
  uint32_t *prefetch_parts, *prefetch_part;
  bool running_ahead; // the sweep works on the next row
  // Whose rows after the next a sweep that reads no memory prefetches; -1: none.
  int32_t idle_argument;
  BASE_VECTOR(emit_memo) memo;
  BASE_VECTOR(emit_store) stores; // of the current step, until emit_flush_stores
} emitter;

// ---- kernels (emit_kernel.c) --------------------------------------------------------------------

// What the code is for.
typedef struct emit_target {
  uint32_t width; // f32 lanes of a full vector
  bool x86;
  bool halves; // the CPU converts f16
} emit_target;

// Adds to the module the functions rt_body and rt_prepare describe, under these names; no second
// one when `prepare` is NULL.
void emit_kernel(base_arena *arena, LLVMModuleRef module, const kir_kernel *kernel,
                 const char *body, const char *prepare, const emit_target *target);

// ---- sweeps (emit_sweep.c) ----------------------------------------------------------------------

void emit_sweep(emitter *e, const kir_sweep *sweep);
// Sweeps over the same lane axis in one loop, each for its own row; their other loops are unrolled.
// Within a step they run in the order given.
void emit_sweeps_together(emitter *e, const kir_sweep *const *sweeps, const LLVMValueRef *rows,
                          uint32_t count);

// ---- values (emit_value.c) ----------------------------------------------------------------------

// The value at each point, as f32 or a vector of f32; what does not depend on the lanes is scalar.
void emit_values(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                 LLVMValueRef *out);
// By its definition even where the value has a place: for the sweep that fills the place.
void emit_definition(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                     LLVMValueRef *out);
// accumulators[slot[i]] takes in the operands of reduction `value` at point i, summed (or
// maximised) over the axes it reduces that the points do not set.
void emit_reduce(emitter *e, ir_value value, const emit_point *points, uint32_t count,
                 const uint32_t *slot, LLVMValueRef *accumulators, uint32_t slots);
LLVMValueRef emit_neutral(emitter *e, ir_op op, uint32_t width);
LLVMValueRef emit_combine(emitter *e, ir_op op, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_across_lanes(emitter *e, ir_op op, LLVMValueRef vector);
// Scale of a mean, rounding of the result type.
LLVMValueRef emit_finish(emitter *e, ir_value value, LLVMValueRef total);
// Sets the index of an axis at a point; low <= index < high is known.
void emit_set_axis(emitter *e, emit_point *point, ir_axis axis, LLVMValueRef index, int64_t low,
                   int64_t high, bool lane);
// An axis that is the product of factors the point has now gets its index too.
void emit_compose(emitter *e, emit_point *point);
void emit_remember(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result);

// ---- memory (emit_memory.c) ---------------------------------------------------------------------

LLVMValueRef emit_load_argument(emitter *e, ir_value value, const emit_point *point);
LLVMValueRef emit_load_place(emitter *e, ir_value value, const emit_point *point);
void emit_store_place(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result);
void emit_store_argument(emitter *e, ir_value value, const emit_point *point, LLVMValueRef result);
void emit_flush_stores(emitter *e);
// In a sweep that leaves memory idle: one slice of e->idle_argument, two rows ahead, at the point's
// elements.
void emit_prefetch_idle(emitter *e, const emit_point *point);
void emit_begin_memory(emitter *e); // once a function, after its arguments are known

// ---- arithmetic (emit_math.c) -------------------------------------------------------------------

LLVMTypeRef emit_type(emitter *e, uint32_t width); // f32 or <width x f32>
uint32_t emit_width(LLVMValueRef value);           // 1 for a scalar
LLVMValueRef emit_splat(emitter *e, LLVMValueRef value, uint32_t width);
LLVMValueRef emit_constant(emitter *e, double value, uint32_t width);
bool emit_has(ir_op op); // false for a map op without code here
LLVMValueRef emit_map(emitter *e, ir_op op, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef emit_flush_subnormal(emitter *e, LLVMValueRef value); // to 0; NaN stays
LLVMValueRef emit_fma(emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef emit_round(emitter *e, ir_dtype dtype, LLVMValueRef value); // stays f32
LLVMValueRef emit_narrow(emitter *e, ir_dtype dtype,
                         LLVMValueRef value); // rounded f32 to bits as stored
LLVMValueRef emit_widen(emitter *e, ir_dtype dtype, LLVMValueRef stored); // to f32
// A vector of f32 of even (odd) elements: from pairs of bf16 in 32-bit lanes, or from two vectors
// in a row; and back.
LLVMValueRef emit_half_of_pairs(emitter *e, LLVMValueRef pairs, bool odd);
LLVMValueRef emit_join_pairs(emitter *e, LLVMValueRef even,
                             LLVMValueRef odd); // both rounded to bf16
LLVMValueRef emit_deinterleave(emitter *e, LLVMValueRef low, LLVMValueRef high, bool odd);
LLVMValueRef emit_interleave(emitter *e, LLVMValueRef even, LLVMValueRef odd, bool high);
LLVMTypeRef emit_stored_type(emitter *e, ir_dtype dtype, uint32_t width);
LLVMValueRef emit_intrinsic(emitter *e, const char *name, LLVMTypeRef overload,
                            LLVMValueRef *arguments, uint32_t count);
LLVMValueRef emit_i64(emitter *e, int64_t value);

// ---- loops (emit_loop.c) ------------------------------------------------------------------------

typedef struct emit_loop {
  LLVMBasicBlockRef before, body;
  LLVMValueRef index; // i64 phi
  uint32_t memo_count;
  LLVMValueRef *carried; // phis of loop-carried values
  uint32_t carried_count;
} emit_loop;

// A loop index = low, low + step, ... < high that runs at least once. `initial` has `carried`
// values.
emit_loop emit_loop_begin(emitter *e, LLVMValueRef low, uint32_t carried,
                          const LLVMValueRef *initial);
// `next` are the carried values at the end of the body; out come their values after the loop.
void emit_loop_end(emitter *e, emit_loop *loop, LLVMValueRef high, int64_t step,
                   const LLVMValueRef *next);

#endif
