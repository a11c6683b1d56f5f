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
  e->row = emit_i64(e, 0);
  emit_begin_memory(e);
  return function;
}

// Prefetching belongs to the last sweep that reads rows: earlier ones have just brought them in.
static int32_t prefetching_sweep(const kir_kernel *kernel) {
  int32_t last = -1;
  if (!kernel->schedule.prefetch || !kernel->row_count) return last;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->scalar || sweep->phase != KIR_BODY) continue;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      const ir_node *node = ir_node_of(kernel->graph, sweep->roots.data[j].value);
      if (node->op == IR_WEIGHTED_SUM || last < 0) last = (int32_t)i;
    }
  }
  return last;
}

static void emit_phase(emitter *e, kir_phase phase) {
  int32_t prefetching = prefetching_sweep(e->kernel);
  for (uint32_t i = 0; i < e->kernel->sweeps.count; i++) {
    if (e->kernel->sweeps.data[i].phase != phase) continue;
    e->prefetching = (int32_t)i == prefetching;
    emit_sweep(e, &e->kernel->sweeps.data[i]);
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
  emit_loop loop = emit_loop_begin(e, begin, 0, NULL);
  e->row = loop.index;
  emit_phase(e, KIR_BODY);
  emit_loop_end(e, &loop, end, 1, NULL);
  emit_store_fence(e);
  LLVMBuildBr(e->builder, done);
  LLVMPositionBuilderAtEnd(e->builder, done);
  finish_function(e);
}

void emit_kernel(base_arena *arena, LLVMModuleRef module, const kir_kernel *kernel,
                 const char *body, const char *prepare, uint32_t width, bool x86) {
  emitter *e = base_new(arena, emitter);
  e->arena = arena;
  e->kernel = kernel;
  e->graph = kernel->graph;
  e->module = module;
  e->context = LLVMGetModuleContext(module);
  e->width = width;
  e->x86 = x86;
  set_types(e);
  e->builder = LLVMCreateBuilderInContext(e->context);
  if (prepare) {
    add_function(e, prepare, KIR_PREPARE);
    emit_phase(e, KIR_PREPARE);
    emit_store_fence(e);
    finish_function(e);
  }
  emit_body(e, body);
  LLVMDisposeBuilder(e->builder);
}
