// emu_context: stacks that take turns on one host thread.
//
// A switch saves what a called function must preserve and changes the stack pointer: seven pushes
// and pops where swapcontext would save signal masks with a system call. Other processors than
// x86-64 take ucontext.
//
// AddressSanitizer keeps bounds of the stack it is on and must be told of each switch. Its
// functions are weak: they are there when its runtime is in the process.
#include "codegen/emulator/emu.h"

extern void __sanitizer_start_switch_fiber(void **fake_stack, const void *stack, size_t bytes)
    __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *fake_stack, const void **from_stack,
                                            size_t *from_bytes) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));

bool emu_address_sanitizer(void) {
  return __asan_unpoison_memory_region && __sanitizer_start_switch_fiber;
}

#if defined __x86_64__ && !defined EMU_UCONTEXT

void emu_swap(void **save, void *load);
void emu_begin(void);

// A new stack has, from its top down: a return address of 0, where debuggers end a backtrace;
// emu_begin as the place to return to; rbp, rbx (entry), r12 (argument), r13, r14, r15.
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden emu_swap\n"
        ".globl emu_swap\n"
        ".type emu_swap, @function\n"
        "emu_swap:\n"
        "  .cfi_startproc\n"
        "  endbr64\n"
        "  pushq %rbp\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %rbp, 0\n"
        "  pushq %rbx\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %rbx, 0\n"
        "  pushq %r12\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %r12, 0\n"
        "  pushq %r13\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %r13, 0\n"
        "  pushq %r14\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %r14, 0\n"
        "  pushq %r15\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  .cfi_rel_offset %r15, 0\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  popq %r14\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  popq %r13\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  popq %r12\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  popq %rbx\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  popq %rbp\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size emu_swap, . - emu_swap\n"
        ".p2align 4\n"
        ".hidden emu_begin\n"
        ".globl emu_begin\n"
        ".type emu_begin, @function\n"
        "emu_begin:\n"
        "  .cfi_startproc\n"
        "  .cfi_undefined %rip\n"
        "  endbr64\n"
        "  movq %r12, %rdi\n"
        "  callq *%rbx\n"
        "  ud2\n"
        "  .cfi_endproc\n"
        ".size emu_begin, . - emu_begin\n");

void emu_context_make(emu_context *context, void (*entry)(void *argument), void *argument) {
  // Calls are made with the stack pointer at a multiple of 16, as emu_begin finds it.
  uintptr_t *top =
      (uintptr_t *)(((uintptr_t)context->stack + context->stack_bytes) & ~(uintptr_t)15);
  *--top = 0;
  *--top = 0;
  *--top = (uintptr_t)emu_begin;
  *--top = 0; // rbp
  *--top = (uintptr_t)entry;
  *--top = (uintptr_t)argument;
  top -= 3; // r13, r14, r15
  context->saved = top;
}

static void swap(emu_context *from, emu_context *to) {
  emu_swap(&from->saved, to->saved);
}

#else

// makecontext passes integers only: a pointer goes as two.
static void begin(unsigned entry_low, unsigned entry_high, unsigned low, unsigned high) {
  void (*entry)(void *) = (void (*)(void *))((uintptr_t)entry_low | (uintptr_t)entry_high << 32);
  entry((void *)((uintptr_t)low | (uintptr_t)high << 32));
}

void emu_context_make(emu_context *context, void (*entry)(void *argument), void *argument) {
  getcontext(&context->saved);
  context->saved.uc_stack.ss_sp = context->stack;
  context->saved.uc_stack.ss_size = context->stack_bytes;
  context->saved.uc_link = NULL;
  const uint64_t code = (uintptr_t)entry, data = (uintptr_t)argument;
  makecontext(&context->saved, (void (*)(void))begin, 4, (unsigned)code, (unsigned)(code >> 32),
              (unsigned)data, (unsigned)(data >> 32));
}

static void swap(emu_context *from, emu_context *to) {
  swapcontext(&from->saved, &to->saved);
}

#endif

void emu_context_switch(emu_context *from, emu_context *to, bool last) {
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
  swap(from, to);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
}

void emu_context_begin(emu_context *host) {
  if (!__sanitizer_finish_switch_fiber) return;
  const void *stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
  if (host->stack) return;
  host->stack = (void *)(uintptr_t)stack;
  host->stack_bytes = bytes;
}

void emu_context_drop(emu_context *context) {
  if (__asan_unpoison_memory_region)
    __asan_unpoison_memory_region(context->stack, context->stack_bytes);
}
