// runtime: programs for a device (runtime/device.h). The same program as for the host (axes, slots,
// kernels and how they see their arguments), and beside each kernel the forms of its device code.
//
// Sections: forms, programs, loaded programs, launching.
//
// A kernel's code takes one struct by value, which the launcher fills in as a flat array of 64-bit
// fields: all pointers of its arguments, the strides of all positions of all arguments in bytes,
// the sizes of its row axes, outermost first, and the workspace. So nothing is uploaded before a
// launch, and a list of slices costs no more than one tensor.
#ifndef FATHOM_RUNTIME_DEVICE_PROGRAM_H
#define FATHOM_RUNTIME_DEVICE_PROGRAM_H

#include "runtime/device.h"
#include "runtime/runtime.h"

// ---- forms --------------------------------------------------------------------------------------

// Where in an argument the rows of one source begin: the index at each position of its type, which
// is 0 where tokens are counted.
typedef struct rt_source {
  uint32_t arg; // of the kernel
  int64_t index[RT_MAX_RANK];
} rt_source;

// P[source, token, n] = sum over k of V[source, token, k] B[n, k], by the device's matmul. V is in
// the arguments, B in the workspace's prepared part, and P, dense f32 but for rows padded to 16
// bytes, in the workspace behind that.
typedef struct rt_product {
  rt_dtype dtype; // of V and B
  int64_t n, k;
  uint32_t token_count;
  uint32_t tokens[RT_MAX_RANK]; // axes of the program, outermost first
  uint32_t source_count;
  const rt_source *sources;
} rt_product;

typedef enum rt_form_kind {
  RT_FORM_KERNEL,
  RT_FORM_MATMUL, // `prepare`, then the product, then `function`, which takes its result
} rt_form_kind;

// One way a kernel was compiled.
typedef struct rt_form {
  rt_form_kind kind;
  const char *function;
  // Launched after it, one after the other, each with as many blocks: what the blocks of a row, which
  // are no cluster, do once all of them have come this far.
  const char *const *steps;
  uint32_t step_count, row_blocks; // blocks of a row in such launches; 0: not of this kind
  const char *prepare;             // launched before it; NULL when there is nothing to prepare
  uint32_t prepare_blocks;         // 0: one
  int64_t items; // what blocks share, for each index of the dynamic row axes; 0: the rows
  // Addresses and strides of arguments with a unit axis must be multiples of this many bytes, or of
  // `vector` elements where that is less, and the axis dense; 0: any will do.
  uint32_t alignment, vector;                // vector 0: as many as there may be
  uint32_t threads, rows_per_block, cluster; // rows, or items
  bool persistent;                           // as many blocks as run at once, each for many rows
  bool programmatic;
  size_t shared_bytes;
  size_t prepared_bytes;     // of the workspace, filled by `prepare`
  size_t block_bytes;        // of the workspace, for each block
  const rt_product *product; // kind RT_FORM_MATMUL
} rt_form;

enum { RT_MAX_FORMS = 2, RT_MAX_STEPS = 8 };

typedef struct rt_device_kernel {
  rt_image image[RT_MAX_FORMS];
  rt_form forms[RT_MAX_FORMS]; // the fastest first; the last one takes any tensors
  uint32_t form_count;
} rt_device_kernel;

typedef struct rt_device_program {
  const rt_program *program; // its kernels have no code for the host
  const rt_device_kernel *kernels;
} rt_device_program;

// ---- loaded programs ----------------------------------------------------------------------------

typedef struct rt_loaded rt_loaded;

// Loads the code of every kernel. The program must outlive it.
base_status rt_device_load(rt_device *device, const rt_device_program *program, rt_loaded **out,
                           base_diag *diag);
void rt_device_unload(rt_loaded *loaded); // NULL is allowed
rt_device *rt_loaded_device(const rt_loaded *loaded);

// ---- launching ----------------------------------------------------------------------------------

// Workspace (memory of the device, 128-byte aligned) for bound tensors. Makes the matrix products
// that their sizes and strides need, which are then kept: a launch only looks them up.
base_status rt_device_workspace(const rt_loaded *loaded, const rt_tensor *tensors,
                                const int64_t *sizes, size_t *bytes, base_diag *diag);
// Launches all kernels on the stream. Tensors are memory of the device, bound by rt_bind. Allocates
// nothing and waits for nothing, but for devices that check. `traffic` is NULL, or has an entry for
// each slot, which what was moved is added to (devices that check only).
base_status rt_device_run(const rt_loaded *loaded, const rt_tensor *tensors, const int64_t *sizes,
                          void *stream, void *workspace, rt_traffic *traffic, base_diag *diag);

#endif
