// Cubins of the doubles: sound ELF files for a GPU, with kernels that have names and figures but no
// instructions, and, on demand, the text that the driver's double runs in their stead.
#ifndef FATHOM_TESTS_CUBIN_WRITER_H
#define FATHOM_TESTS_CUBIN_WRITER_H

#include "base/base.h"

#define DOUBLE_TEXT_SECTION ".fathom.text"

typedef struct cubin_kernel {
  base_str name;
  uint32_t registers, max_threads; // max_threads 0: no bounds
} cubin_kernel;

// For sm_`arch`. `text` may be empty.
base_str cubin_write(base_arena *arena, int arch, const cubin_kernel *kernels, uint32_t count,
                     base_str text);

#endif
