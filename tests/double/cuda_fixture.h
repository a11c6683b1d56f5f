// What tests of the driver runtime share: the driver's double, images for it, and a device with an
// arena and a diag.
#ifndef FATHOM_TESTS_CUDA_FIXTURE_H
#define FATHOM_TESTS_CUDA_FIXTURE_H

#include "double/double.h"

typedef struct cuda_fixture {
  base_arena arena;
  base_diag diag;
  rt_device *device;
} cuda_fixture;

// A double's path: they lie beside the test program.
const char *double_path(const char *name);
// The driver's double, which FATHOM_LIBCUDA names from now on.
const double_control *cuda_double(void);

void cuda_setup(cuda_fixture *f); // without a device
void cuda_setup_device(cuda_fixture *f);
void cuda_teardown(cuda_fixture *f); // and checks that nothing is left in the double
// Forgets the reports.
void cuda_clear(cuda_fixture *f);
// Message and hint of the only report.
const char *cuda_message(cuda_fixture *f);
const char *cuda_hint(cuda_fixture *f);

// A cubin for sm_`arch` with one kernel of no code.
base_str fixture_cubin(base_arena *arena, int arch, const char *kernel);
// PTX of that version for sm_`target`, with one kernel that takes a struct of so many bytes.
base_str fixture_ptx(base_arena *arena, const char *version, int target, const char *kernel,
                     size_t parameter_bytes);

#endif
