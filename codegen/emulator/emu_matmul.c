// emu_matmul: the matrix products of a device's library, as plain loops over the host's memory. Sums
// are in f64 and rounded once; a library's differ from them by its own rounding.
#include <stdlib.h>
#include <string.h>

#include "codegen/emulator/emu.h"

// Asked for so that callers must bring it. Written by each run, to show who else uses it.
enum { WORKSPACE = 1024 };

struct rt_matmul {
  rt_matmul_shape shape;
};

base_status emu_matmul_create(rt_device *device, const rt_matmul_shape *shape,
                              size_t workspace_limit, rt_matmul **out, base_diag *diag) {
  (void)device, (void)workspace_limit;
  *out = calloc(1, sizeof **out);
  if (*out == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0},
                      "the emulator is out of memory for a product");
    return BASE_MEMORY;
  }
  (*out)->shape = *shape;
  return BASE_OK;
}

size_t emu_matmul_workspace(const rt_matmul *matmul) {
  (void)matmul;
  return WORKSPACE;
}

void emu_matmul_destroy(rt_device *device, rt_matmul *matmul) {
  (void)device;
  free(matmul);
}

static void widen(rt_dtype dtype, const char *row, int64_t count, float *out) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t bits;
    if (dtype == RT_F32) {
      memcpy(&out[i], row + 4 * i, sizeof out[i]);
      continue;
    }
    memcpy(&bits, row + 2 * i, sizeof bits);
    out[i] = dtype == RT_BF16 ? fm_float_of((unsigned)bits << 16) : fm_widen_half(bits);
  }
}

// One row of A times all rows of B, which are wide already.
static void multiply_row(const rt_matmul_shape *shape, const float *a, const float *b, float *d) {
  for (int64_t j = 0; j < shape->n; j++) {
    double sum = 0;
    for (int64_t k = 0; k < shape->k; k++)
      sum += (double)a[k] * (double)b[j * shape->k + k];
    d[j] = (float)sum;
  }
}

base_status emu_matmul_run(rt_device *device, const rt_matmul *matmul, const void *a, const void *b,
                           float *d, void *workspace, void *stream, base_diag *diag) {
  (void)device, (void)stream;
  const rt_matmul_shape *s = &matmul->shape;
  const int64_t element = (int64_t)rt_dtype_size(s->dtype);
  float *wide = malloc((size_t)((s->n + 1) * s->k) * sizeof *wide);
  if (wide == NULL) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0},
                      "the emulator is out of memory for a product");
    return BASE_MEMORY;
  }
  memset(workspace, 0xff, WORKSPACE);
  for (int64_t z = 0; z < s->batches; z++) {
    for (int64_t j = 0; j < s->n; j++)
      widen(s->dtype, (const char *)b + (z * s->b.batch_stride + j * s->b.row_stride) * element,
            s->k, wide + (j + 1) * s->k);
    for (int64_t i = 0; i < s->m; i++) {
      widen(s->dtype, (const char *)a + (z * s->a.batch_stride + i * s->a.row_stride) * element,
            s->k, wide);
      multiply_row(s, wide, wide + s->k, d + z * s->d.batch_stride + i * s->d.row_stride);
    }
  }
  free(wide);
  return BASE_OK;
}
