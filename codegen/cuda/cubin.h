// cubin: what compiled kernels take, read from the machine code itself. Base only.
#ifndef FATHOM_CODEGEN_CUDA_CUBIN_H
#define FATHOM_CODEGEN_CUDA_CUBIN_H

#include "base/base.h"

typedef struct cuda_kernel_resources {
  base_str name;
  uint32_t registers;   // of a thread
  uint32_t stack_bytes; // local memory of a thread: its stack, with what is spilled
  // Bytes of instructions that spill registers, as the assembler counts them in its log; a cubin
  // does not have them.
  uint32_t spill_store_bytes, spill_load_bytes;
  uint32_t barriers;          // named barriers in use, with barrier 0
  uint32_t max_threads;       // of a block, as the kernel's bounds say; 0: no bounds
  size_t static_shared_bytes; // of a block, without what the system reserves
  size_t constant_bytes;      // of bank 0: parameters and what precedes them
} cuda_kernel_resources;

typedef struct cuda_cubin {
  uint32_t capability; // of the architecture: 90 for sm_90 and sm_90a
  uint32_t kernel_count;
  cuda_kernel_resources *kernels; // in the order of the file's symbols
} cuda_cubin;

// Any bytes may be given: what is no cubin, or a damaged one, is refused with the reason in *why,
// or read as far as it makes sense, never beyond its end. Names point into `file`.
bool cuda_cubin_read(base_arena *arena, base_str file, cuda_cubin *out, base_str *why);

#endif
