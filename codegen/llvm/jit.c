// Objects into this process, through ORC's LLJIT. One LLJIT for each executable: releasing it
// unloads the code.
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Error.h>
#include <llvm-c/LLJIT.h>
#include <llvm-c/Orc.h>

#include "codegen/llvm/cpu.h"

struct cpu_code {
  LLVMOrcLLJITRef jit;
};

// ORC would print what goes wrong while it links; whoever asks for the symbol learns that it is
// missing.
static void drop_report(void *unused, LLVMErrorRef error) {
  (void)unused;
  LLVMConsumeError(error);
}

static void release_message(void *object) {
  LLVMDisposeErrorMessage(object);
}

static cpu_code *give_up(cpu_code *code, LLVMErrorRef error, base_arena *arena, base_str *why) {
  cpu_code_release(code); // first: keeping the message may run out of memory
  char *message = LLVMGetErrorMessage(error);
  base_defer(arena, release_message, message);
  *why = base_str_from(message);
  return NULL;
}

cpu_code *cpu_code_load(base_str object, base_arena *arena, base_str *why) {
  cpu_code *code = calloc(1, sizeof *code);
  if (!code) {
    *why = BASE_STR("out of memory");
    return NULL;
  }
  LLVMErrorRef error = LLVMOrcCreateLLJIT(&code->jit, NULL);
  if (error) {
    code->jit = NULL;
    return give_up(code, error, arena, why);
  }
  LLVMOrcExecutionSessionSetErrorReporter(LLVMOrcLLJITGetExecutionSession(code->jit), drop_report,
                                          NULL);
  LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(code->jit);
  LLVMOrcDefinitionGeneratorRef process;
  error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
      &process, LLVMOrcLLJITGetGlobalPrefix(code->jit), NULL, NULL);
  if (error) return give_up(code, error, arena, why);
  LLVMOrcJITDylibAddGenerator(library, process);
  LLVMMemoryBufferRef buffer =
      LLVMCreateMemoryBufferWithMemoryRangeCopy(object.data, object.length, "fathom");
  error = LLVMOrcLLJITAddObjectFile(code->jit, library, buffer); // takes the buffer
  if (error) return give_up(code, error, arena, why);
  return code;
}

void *cpu_code_symbol(cpu_code *code, const char *name) {
  LLVMOrcExecutorAddress address = 0;
  LLVMErrorRef error = LLVMOrcLLJITLookup(code->jit, &address, name);
  if (error) {
    LLVMConsumeError(error);
    return NULL;
  }
  return (void *)(uintptr_t)address;
}

void cpu_code_release(cpu_code *code) {
  if (!code) return;
  if (code->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(code->jit));
  free(code);
}
