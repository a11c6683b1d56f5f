// What tests on a real GPU share: the device, a graph compiled for it with memory for its tensors, and
// streams and captured graphs, which belong to the host and which Fathom itself never makes.
//
// Against the driver's double (tests/double) the same tests run without a GPU.
#ifndef FATHOM_TESTS_DEVICE_FIXTURE_H
#define FATHOM_TESTS_DEVICE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fathom.h>

#include "runtime/cuda/driver_api.h"

// ---- the device ---------------------------------------------------------------------------------

extern rt_device *gpu;
extern base_arena gpu_arena; // of one test, like the next
extern base_diag gpu_diag;

bool gpu_open(void); // false: there is none; says why
void gpu_close(void);
int gpu_set_up(void **state);    // of each test
int gpu_tear_down(void **state); // the device must still be sound
bool gpu_is_double(void);

// Fails the test with the reports.
void gpu_assert(bool good);
#define assert_fathom(call)                                                                        \
  do {                                                                                             \
    fathom_status status_ = (call);                                                                \
    if (status_ != FATHOM_OK)                                                                      \
      fail_msg("%s: %s", fathom_status_name(status_), fathom_error_text());                        \
  } while (0)

void *gpu_allocate(size_t bytes); // until the test ends
void gpu_copy(void *to, const void *from, size_t bytes);
void gpu_wait(void *stream);

// ---- the driver's streams and graphs ------------------------------------------------------------

// With the double any address is a stream, and nothing can be captured: then false.
CUstream gpu_stream_create(void);
void gpu_stream_destroy(CUstream stream);

typedef struct gpu_graph gpu_graph;
bool gpu_capture_begin(CUstream stream);
gpu_graph *gpu_capture_end(CUstream stream);
void gpu_graph_launch(gpu_graph *graph, CUstream stream);
void gpu_graph_destroy(gpu_graph *graph);

// ---- a compiled graph ---------------------------------------------------------------------------

enum { GPU_MOST_TENSORS = 12 };

typedef struct gpu_case {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  uint32_t inputs, count; // inputs first, then results
  fathom_arg args[GPU_MOST_TENSORS];
  DLTensor tensors[GPU_MOST_TENSORS];
  int64_t shapes[GPU_MOST_TENSORS][FATHOM_MAX_RANK];
  size_t bytes[GPU_MOST_TENSORS];
  void *workspace;
  size_t workspace_bytes;
} gpu_case;

// `sizes` is "D=256,B=2"; the dynamic axes get `rows`. Inputs have values that depend on nothing but
// their name; results are bytes of 0xff, which no kernel gives.
void gpu_case_open(gpu_case *c, const char *text, const char *sizes, const char *schedule,
                   int64_t rows);
void gpu_case_resize(gpu_case *c); // after its shapes have changed
void gpu_case_close(gpu_case *c);
fathom_status gpu_case_run(gpu_case *c, CUstream stream);
void gpu_case_clear(gpu_case *c);
uint32_t gpu_case_find(const gpu_case *c, const char *name);
// A copy on the host, in the test's arena.
void *gpu_case_read(const gpu_case *c, const char *name);
// Waits, then compares all results bit by bit.
void gpu_case_assert_same(const gpu_case *a, const gpu_case *b);

#endif
