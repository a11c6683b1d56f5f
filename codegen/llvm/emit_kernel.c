// The two functions of a kernel: prepare, and the body with its loop over rows.
#include <string.h>

#include "codegen/llvm/emit.h"

static void set_types(emitter *e) {
  e->i1 = LLVMInt1TypeInContext(e->context);
  e->i8 = LLVMInt8TypeInContext(e->context);
  e->i16 = LLVMInt16TypeInContext(e->context);
  e->i32 = LLVMInt32TypeInContext(e->context);
  e->i64 = LLVMInt64TypeInContext(e->context);
  e->f16 = LLVMHalfTypeInContext(e->context);
  e->f32 = LLVMFloatTypeInContext(e->context);
  e->ptr = LLVMPointerTypeInContext(e->context, 0);
}

static LLVMValueRef add_function(emitter *e, const char *name, kir_phase phase) {
  LLVMTypeRef body[6] = {e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->ptr};
  LLVMTypeRef prepare[4] = {e->ptr, e->ptr, e->ptr, e->ptr};
  bool is_body = phase == KIR_BODY;
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), is_body ? body : prepare,
                                      is_body ? 6 : 4, false);
  LLVMValueRef function = LLVMAddFunction(e->module, name, type);
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  LLVMAddAttributeAtIndex(function, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                          LLVMCreateEnumAttribute(e->context, nounwind, 0));
  uint32_t count = is_body ? 6 : 4;
  e->function = function;
  e->pointers = LLVMGetParam(function, 0);
  e->strides = LLVMGetParam(function, 1);
  e->shared = LLVMGetParam(function, count - 2);
  e->scratch = LLVMGetParam(function, count - 1);
  e->entry = LLVMAppendBasicBlockInContext(e->context, function, "entry");
  LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(e->context, function, "start");
  LLVMPositionBuilderAtEnd(e->builder, start);
  e->memo.count = 0;
  e->idle_argument = -1;
  e->row = emit_i64(e, 0);
  e->prefetch_parts = base_new_array(e->arena, uint32_t, e->kernel->args.count + 1);
  e->prefetch_part = base_new_array(e->arena, uint32_t, e->kernel->args.count + 1);
  e->streamable = base_new_array(e->arena, LLVMValueRef, e->kernel->args.count + 1);
  emit_begin_memory(e);
  return function;
}

// Marks the arguments that a value reads when it is computed in place.
static void mark_reads(const kir_kernel *kernel, ir_value value, bool top, bool *seen,
                       bool *reads) {
  const kir_value *info = &kernel->values[value.index];
  if (seen[value.index]) return;
  seen[value.index] = true;
  if (info->place == KIR_ARGUMENT) reads[info->load_arg] = true;
  if (!top && info->place != KIR_INLINE) return;
  const ir_node *node = ir_node_of(kernel->graph, value);
  for (uint32_t i = 0; i < node->operand_count; i++)
    mark_reads(kernel, node->operands[i], false, seen, reads);
}

// ---- overlap ------------------------------------------------------------------------------------

// In one loop: the overlap sweep for row `row` (NULL: not at all) and those that run ahead for row
// `next`.
static void emit_together(emitter *e, LLVMValueRef row, LLVMValueRef next) {
  const kir_kernel *kernel = e->kernel;
  const kir_sweep **sweeps = base_new_array(e->arena, const kir_sweep *, kernel->sweeps.count);
  LLVMValueRef *rows = base_new_array(e->arena, LLVMValueRef, kernel->sweeps.count);
  uint32_t count = 0;
  if (row) {
    sweeps[count] = &kernel->sweeps.data[kernel->overlap];
    rows[count++] = row;
  }
  for (uint32_t i = 0; i < kernel->sweeps.count && next; i++) {
    if (!kernel->sweeps.data[i].ahead) continue;
    sweeps[count] = &kernel->sweeps.data[i];
    rows[count++] = next;
  }
  emit_sweeps_together(e, sweeps, rows, count);
}

// After the last row of the call nothing runs ahead. The loops have the same form whoever takes
// part, so a row's sums are added in the same order wherever it stands.
static void emit_overlap(emitter *e) {
  LLVMBasicBlockRef both = LLVMAppendBasicBlockInContext(e->context, e->function, "overlap");
  LLVMBasicBlockRef alone = LLVMAppendBasicBlockInContext(e->context, e->function, "last.row");
  LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->context, e->function, "after");
  LLVMValueRef next = LLVMBuildAdd(e->builder, e->row, emit_i64(e, 1), "next.row");
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, next, e->end, "");
  uint32_t known = e->memo.count;
  LLVMBuildCondBr(e->builder, more, both, alone);
  LLVMPositionBuilderAtEnd(e->builder, both);
  emit_together(e, e->row, next);
  LLVMBuildBr(e->builder, after);
  e->memo.count = known; // what one branch computed the other does not have
  LLVMPositionBuilderAtEnd(e->builder, alone);
  emit_together(e, e->row, NULL);
  LLVMBuildBr(e->builder, after);
  e->memo.count = known;
  LLVMPositionBuilderAtEnd(e->builder, after);
}

// ---- phases -------------------------------------------------------------------------------------

// Which sweeps read the rows of which argument, and so share its prefetching. With rows overlapped
// the loads themselves run ahead, and nothing is left to share.
static bool *find_readers(emitter *e, kir_phase phase) {
  const kir_kernel *kernel = e->kernel;
  uint32_t args = kernel->args.count, sweeps = kernel->sweeps.count;
  bool *reads = base_new_array(e->arena, bool, (size_t)args *(sweeps + 1));
  for (uint32_t i = 0; i < sweeps && kernel->overlap < 0; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != phase || sweep->scalar || sweep->lane < 0) continue;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      bool *seen = base_new_array(e->arena, bool, kernel->graph->nodes.count);
      mark_reads(kernel, sweep->roots.data[j].value, true, seen, &reads[(size_t)i * args]);
    }
  }
  return reads;
}

// The argument with the most rows to read.
static int32_t busiest_argument(const kir_kernel *kernel) {
  int32_t busiest = -1;
  uint32_t most = 0;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    if (arg->written || arg->unit_position < 0 || kir_pointer_count(kernel, i) <= most) continue;
    busiest = (int32_t)i;
    most = kir_pointer_count(kernel, i);
  }
  return busiest;
}

// Behind an overlapped sweep the others find all they need in the cache; meanwhile memory brings a
// part of the row after the next.
static void emit_alone(emitter *e, const kir_sweep *sweep, uint32_t index) {
  bool idle = e->kernel->overlap >= 0 && (int32_t)index > e->kernel->overlap && !sweep->scalar;
  e->idle_argument = idle && e->kernel->schedule.prefetch ? busiest_argument(e->kernel) : -1;
  emit_sweep(e, sweep);
  e->idle_argument = -1;
}

static void emit_phase(emitter *e, kir_phase phase) {
  const kir_kernel *kernel = e->kernel;
  uint32_t args = kernel->args.count, sweeps = kernel->sweeps.count;
  const bool *reads = find_readers(e, phase);
  for (size_t i = 0; i < (size_t)args * sweeps; i++)
    e->prefetch_parts[i % args] += reads[i];
  for (uint32_t i = 0; i < sweeps; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != phase || sweep->ahead) continue;
    if (phase == KIR_BODY && (int32_t)i == kernel->overlap)
      emit_overlap(e);
    else
      emit_alone(e, sweep, i);
    for (uint32_t j = 0; j < args; j++)
      e->prefetch_part[j] += reads[(size_t)i * args + j];
  }
}

// Non-temporal stores are weakly ordered: they must be seen before the task counts as done.
static void emit_store_fence(emitter *e) {
  if (!e->kernel->schedule.stream) return;
  if (e->x86)
    emit_intrinsic(e, "llvm.x86.sse.sfence", NULL, NULL, 0);
  else
    LLVMBuildFence(e->builder, LLVMAtomicOrderingSequentiallyConsistent, false, "");
}

static void finish_function(emitter *e) {
  LLVMBuildRetVoid(e->builder);
  LLVMBasicBlockRef start = LLVMGetNextBasicBlock(e->entry);
  LLVMPositionBuilderAtEnd(e->builder, e->entry);
  LLVMBuildBr(e->builder, start);
}

static void emit_body(emitter *e, const char *name) {
  LLVMValueRef function = add_function(e, name, KIR_BODY);
  LLVMValueRef begin = LLVMGetParam(function, 2), end = LLVMGetParam(function, 3);
  LLVMBasicBlockRef rows = LLVMAppendBasicBlockInContext(e->context, function, "rows");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->context, function, "done");
  LLVMValueRef any = LLVMBuildICmp(e->builder, LLVMIntSLT, begin, end, "");
  LLVMBuildCondBr(e->builder, any, rows, done);
  LLVMPositionBuilderAtEnd(e->builder, rows);
  e->end = end;
  e->row = begin;
  if (e->kernel->overlap >= 0) emit_together(e, NULL, begin);
  emit_loop loop = emit_loop_begin(e, begin, 0, NULL);
  e->row = loop.index;
  emit_phase(e, KIR_BODY);
  emit_loop_end(e, &loop, end, 1, NULL);
  emit_store_fence(e);
  LLVMBuildBr(e->builder, done);
  LLVMPositionBuilderAtEnd(e->builder, done);
  finish_function(e);
}

static void release_builder(void *object) {
  LLVMDisposeBuilder(object);
}

void emit_kernel(base_arena *arena, LLVMModuleRef module, const kir_kernel *kernel,
                 const char *body, const char *prepare, const emit_target *target) {
  emitter *e = base_new(arena, emitter);
  e->arena = arena;
  e->kernel = kernel;
  e->graph = kernel->graph;
  e->module = module;
  e->context = LLVMGetModuleContext(module);
  e->width = target->width;
  e->mix_budget = kernel->schedule.mix_unroll;
  e->x86 = target->x86;
  e->halves = target->halves;
  set_types(e);
  e->builder = LLVMCreateBuilderInContext(e->context);
  base_defer(arena, release_builder, e->builder);
  if (prepare) {
    add_function(e, prepare, KIR_PREPARE);
    emit_phase(e, KIR_PREPARE);
    emit_store_fence(e);
    finish_function(e);
  }
  emit_body(e, body);
}
