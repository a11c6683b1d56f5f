// Counted loops with loop-carried values, tested at the bottom: their trip count is known to be
// positive.
#include "codegen/llvm/emit.h"

emit_loop emit_loop_begin(emitter *e, LLVMValueRef low, uint32_t carried,
                          const LLVMValueRef *initial) {
  emit_loop loop = {.before = LLVMGetInsertBlock(e->builder), .carried_count = carried};
  loop.body = LLVMAppendBasicBlockInContext(e->context, e->function, "loop");
  loop.memo_count = e->memo.count;
  LLVMBuildBr(e->builder, loop.body);
  LLVMPositionBuilderAtEnd(e->builder, loop.body);
  loop.index = LLVMBuildPhi(e->builder, e->i64, "i");
  LLVMAddIncoming(loop.index, &low, &loop.before, 1);
  loop.carried = base_new_array(e->arena, LLVMValueRef, carried ? carried : 1);
  for (uint32_t i = 0; i < carried; i++) {
    LLVMValueRef first = initial[i];
    loop.carried[i] = LLVMBuildPhi(e->builder, LLVMTypeOf(first), "carried");
    LLVMAddIncoming(loop.carried[i], &first, &loop.before, 1);
  }
  return loop;
}

void emit_loop_end(emitter *e, emit_loop *loop, LLVMValueRef high, int64_t step,
                   const LLVMValueRef *next) {
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->builder);
  LLVMValueRef following = LLVMBuildAdd(e->builder, loop->index, emit_i64(e, step), "next");
  LLVMValueRef again = LLVMBuildICmp(e->builder, LLVMIntSLT, following, high, "again");
  LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->context, e->function, "after");
  LLVMBuildCondBr(e->builder, again, loop->body, after);
  LLVMAddIncoming(loop->index, &following, &latch, 1);
  for (uint32_t i = 0; i < loop->carried_count; i++) {
    LLVMValueRef value = next[i];
    LLVMAddIncoming(loop->carried[i], &value, &latch, 1);
  }
  LLVMPositionBuilderAtEnd(e->builder, after);
  e->memo.count = loop->memo_count; // what the body computed does not dominate what follows
}
