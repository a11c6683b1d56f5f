// Kernels of the driver's double: text that the emulator compiles and runs.
#ifndef FATHOM_TESTS_DOUBLE_RUN_H
#define FATHOM_TESTS_DOUBLE_RUN_H

#include "runtime/device.h"

typedef struct run_code run_code;

typedef struct run_shape {
  const char *kernel;
  int64_t blocks;
  uint32_t threads, cluster;
  size_t shared_bytes;
  const rt_span *spans; // all memory that it may touch
  uint32_t span_count;
} run_shape;

// NULL: `log`, which has room for `room` bytes, says why.
run_code *run_load(const char *text, int arch, char *log, size_t room);
void run_unload(run_code *code); // NULL is fine
bool run_has_kernel(run_code *code, const char *name, size_t *parameter_bytes);
// False when the emulator found a fault, which it has explained on stderr.
bool run_launch(run_code *code, const run_shape *shape, const void *parameters);

#endif
