// runtime: matrix products that a library of a device's vendor computes. Described here, for the
// device table; made by runtime/cuda over cuBLASLt, and by the emulator with plain loops.
#ifndef FATHOM_RUNTIME_MATMUL_H
#define FATHOM_RUNTIME_MATMUL_H

#include "runtime/runtime.h"

// A matrix with contiguous rows, or equally spaced ones of a batch.
typedef struct rt_matrix {
  int64_t row_stride;   // elements from one row to the next; at least the length of a row
  int64_t batch_stride; // elements from one matrix to the next; 0: all are the same one
  uint32_t alignment;   // bytes, a power of two, that its address is promised to be a multiple of;
                        // 16 or more for the fast algorithms. 0: an element's size
} rt_matrix;

// D[M, N] = A[M, K] x B[N, K]^T, `batches` times. A and B have one type, D is f32. Sums are in f32;
// f32 inputs are not rounded to TF32.
typedef struct rt_matmul_shape {
  rt_dtype dtype; // of A and B
  int64_t m, n, k;
  int64_t batches; // 1 for a single product. When it, m or n is 0 there is nothing to do
  rt_matrix a, b, d;
} rt_matmul_shape;

typedef struct rt_matmul rt_matmul; // a product with its algorithm chosen

#endif
