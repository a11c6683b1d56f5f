// runtime/cuda: matrix products by NVIDIA's cuBLASLt, opened at run time.
//
// Sections: the library, handles, products.
//
// For logits of many queries: z[t, s] = sum over d of v[t, d] q[s, d]. All that may allocate or
// wait happens when a product is made; running it does neither and may be captured.
#ifndef FATHOM_RUNTIME_CUDA_CUBLASLT_H
#define FATHOM_RUNTIME_CUDA_CUBLASLT_H

#include "base/base.h"
#include "runtime/device.h"

// ---- the library --------------------------------------------------------------------------------

// Opens cuBLASLt 11, 12 or 13; later calls are cheap. Thread safe. Only success is remembered, so
// that a repair helps. *path: the file it came from. On failure *why says what was looked for, what
// went wrong and what to do. $FATHOM_LIBCUBLASLT names another file.
base_status rt_cublaslt_open(base_arena *arena, base_str *path, base_str *why);
// Its version as 10000 * major + 100 * minor + patch: 130002 is 13.0.2. 0 when not open.
uint32_t rt_cublaslt_version(void);

// ---- handles ------------------------------------------------------------------------------------

// cuBLASLt on one device. May be used by several threads at once.
typedef struct rt_cublaslt rt_cublaslt;

// Opens the library when that has not been done. `device` is one of rt_cuda_device_create, and must
// outlive the handle; NULL: the device whose context is current at each call.
base_status rt_cublaslt_create(rt_device *device, rt_cublaslt **out, base_diag *diag);
void rt_cublaslt_destroy(rt_cublaslt *handle); // NULL is fine

// ---- products -----------------------------------------------------------------------------------
// See runtime/matmul.h.

// Describes the product and asks cuBLASLt's heuristics, once, for its fastest algorithm with up to
// `workspace_limit` bytes of workspace. The handle must outlive it.
base_status rt_matmul_create(rt_cublaslt *handle, const rt_matmul_shape *shape,
                             size_t workspace_limit, rt_matmul **out, base_diag *diag);
void rt_matmul_destroy(rt_matmul *matmul);                 // NULL is fine
size_t rt_matmul_workspace_bytes(const rt_matmul *matmul); // of device memory, 16-byte aligned
// Enqueues the product. Several threads may run one product, each with a workspace of its own.
base_status rt_matmul_run(const rt_matmul *matmul, const void *a, const void *b, float *d,
                          void *workspace, void *stream, base_diag *diag);

#endif
