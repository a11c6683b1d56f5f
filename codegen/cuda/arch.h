// arch: what there is to know about an NVIDIA architecture before anything is compiled for it: its
// limits, and which instructions it has. The table is arch.def. Base only.
#ifndef FATHOM_CODEGEN_CUDA_ARCH_H
#define FATHOM_CODEGEN_CUDA_ARCH_H

#include "base/base.h"

typedef struct cuda_arch {
  const char *suffixes;    // that it may have: "", "a", "af"
  const char *generation;  // "Hopper"
  size_t shared_bytes;     // of a multiprocessor
  size_t shared_per_block; // bytes a block may opt in to
  size_t shared_reserved;  // bytes the system takes of each block's share
  uint32_t capability;     // 90
  uint32_t threads_per_block;
  uint32_t threads, blocks, registers, barriers; // of a multiprocessor; barriers 0: not counted
  char name[16]; // as compilers take it, with the suffix if one was asked for: "sm_90a"
  // Features, see arch.def.
#define ARCH(...)
#define FEATURE(name, since, text) bool name;
#include "codegen/cuda/arch.def"
#undef FEATURE
#undef ARCH
} cuda_arch;

// "sm_90a", "90a", "9.0a"; false for what is not in the table or has a suffix that is not.
bool cuda_arch_find(const char *text, cuda_arch *out);
// "sm_75, sm_80, ..., sm_90, sm_90a, ...", for messages.
base_str cuda_arch_list(base_arena *arena);

#endif
