// A test double of cuBLASLt: multiplies in host memory, in plain C, after NVIDIA's documentation of
// column-major matrices, leading dimensions, transposition and batches. Strict where the library
// may crash: unknown objects, sizes of attributes, promised alignment, workspace.
//
// It declares everything itself, so that it cannot share a mistake with what it tests.
#include "cublaslt_double.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { TYPE_F32 = 0, TYPE_F16 = 2, TYPE_BF16 = 14, COMPUTE_F32 = 68 };

EXPORT cublaslt_double cublaslt_double_state = {.fail_at = -1};
#define state cublaslt_double_state

// Counts a call; not 0: what it must return.
static int enter(const char *function) {
  if (state.calls++ != state.fail_at) return SUCCESS;
  state.failed = function;
  return state.fail_with;
}
#define ENTER()                                                                                    \
  do {                                                                                             \
    int injected = enter(__func__);                                                                \
    if (injected) return injected;                                                                 \
  } while (0)

// ---- objects ------------------------------------------------------------------------------------

enum kind { HANDLE = 0x4841, PRODUCT, LAYOUT, PREFERENCE };

typedef struct object {
  enum kind kind;
  int type, transpose_a, transpose_b;
  uint64_t rows, columns;
  int64_t leading, batch_stride;
  int32_t batches;
  uint64_t workspace;
  uint32_t alignments[4];
} object;

static long *count_of(enum kind kind) {
  return kind == HANDLE    ? &state.handles
         : kind == PRODUCT ? &state.products
         : kind == LAYOUT  ? &state.layouts
                           : &state.preferences;
}

static bool is(const void *pointer, enum kind kind) {
  return pointer && ((const object *)pointer)->kind == kind;
}

static int create(void **out, object values) {
  object *made = malloc(sizeof *made);
  if (!made) abort();
  *made = values;
  ++*count_of(values.kind);
  *out = made;
  return SUCCESS;
}

static int destroy(const char *function, void *pointer, enum kind kind) {
  int injected = enter(function);
  if (!is(pointer, kind)) return INVALID_VALUE;
  --*count_of(kind);
  memset(pointer, 0xdd, sizeof(object));
  free(pointer);
  return injected;
}

// Writes an attribute of exactly that size.
static int set(void *to, size_t size, const void *value, size_t bytes) {
  if (!value || bytes != size) return INVALID_VALUE;
  memcpy(to, value, size);
  return SUCCESS;
}

EXPORT int cublasLtGetProperty(int property, int *value) {
  ENTER();
  if (property < 0 || property > 2 || !value) return INVALID_VALUE;
  *value = (int[]){13, 1, 2}[property];
  return SUCCESS;
}

EXPORT int cublasLtCreate(void **handle) {
  ENTER();
  return create(handle, (object){.kind = HANDLE});
}

EXPORT int cublasLtDestroy(void *handle) {
  return destroy(__func__, handle, HANDLE);
}

EXPORT int cublasLtMatmulDescCreate(void **out, int compute, int scale) {
  ENTER();
  if (compute != COMPUTE_F32 || scale != TYPE_F32) return NOT_SUPPORTED;
  return create(out, (object){.kind = PRODUCT});
}

EXPORT int cublasLtMatmulDescDestroy(void *product) {
  return destroy(__func__, product, PRODUCT);
}

EXPORT int cublasLtMatmulDescSetAttribute(void *product, int attribute, const void *value,
                                          size_t bytes) {
  ENTER();
  object *self = product;
  if (!is(self, PRODUCT)) return INVALID_VALUE;
  if (attribute == 3) return set(&self->transpose_a, 4, value, bytes);
  if (attribute == 4) return set(&self->transpose_b, 4, value, bytes);
  return INVALID_VALUE;
}

EXPORT int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns,
                                      int64_t leading) {
  ENTER();
  if (type != TYPE_F32 && type != TYPE_F16 && type != TYPE_BF16) return NOT_SUPPORTED;
  if (rows == 0 || columns == 0 || leading < (int64_t)rows) return INVALID_VALUE;
  return create(out, (object){.kind = LAYOUT,
                              .type = type,
                              .rows = rows,
                              .columns = columns,
                              .leading = leading,
                              .batches = 1});
}

EXPORT int cublasLtMatrixLayoutDestroy(void *layout) {
  return destroy(__func__, layout, LAYOUT);
}

EXPORT int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value,
                                            size_t bytes) {
  ENTER();
  object *self = layout;
  if (!is(self, LAYOUT)) return INVALID_VALUE;
  if (attribute == 5) return set(&self->batches, 4, value, bytes);
  if (attribute == 6) return set(&self->batch_stride, 8, value, bytes);
  return INVALID_VALUE;
}

EXPORT int cublasLtMatmulPreferenceCreate(void **out) {
  ENTER();
  return create(out, (object){.kind = PREFERENCE, .alignments = {256, 256, 256, 256}});
}

EXPORT int cublasLtMatmulPreferenceDestroy(void *preference) {
  return destroy(__func__, preference, PREFERENCE);
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value,
                                                size_t bytes) {
  ENTER();
  object *self = preference;
  if (!is(self, PREFERENCE)) return INVALID_VALUE;
  if (attribute == 1) return set(&self->workspace, 8, value, bytes);
  if (attribute >= 5 && attribute <= 8)
    return set(&self->alignments[attribute - 5], 4, value, bytes);
  return INVALID_VALUE;
}

// ---- algorithms ---------------------------------------------------------------------------------

typedef struct algorithm {
  uint64_t magic, workspace, alignments[4], unused[2];
} algorithm;

typedef struct candidate {
  algorithm algorithm;
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} candidate;

enum { MAGIC = 0x600d };

static bool fits(const object *product, const object *a, const object *b, const object *c,
                 const object *d) {
  if (!is(product, PRODUCT) || !is(a, LAYOUT) || !is(b, LAYOUT) || !is(c, LAYOUT) || !is(d, LAYOUT))
    return false;
  uint64_t m = product->transpose_a ? a->columns : a->rows;
  uint64_t k = product->transpose_a ? a->rows : a->columns;
  uint64_t n = product->transpose_b ? b->rows : b->columns;
  uint64_t k_of_b = product->transpose_b ? b->columns : b->rows;
  return k == k_of_b && d->rows == m && d->columns == n && c->rows == m && c->columns == n &&
         a->type == b->type && d->type == TYPE_F32 && c->type == d->type &&
         a->batches == d->batches && b->batches == d->batches && c->batches == d->batches;
}

// First one that is not to be used, then a fast one, then one that always works.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c,
                                          void *d, void *preference, int wanted, candidate *out,
                                          int *count) {
  ENTER();
  const object *wish = preference;
  *count = 0;
  if (!is(handle, HANDLE) || !is(wish, PREFERENCE) || wanted < 3) return INVALID_VALUE;
  if (!fits(product, a, b, c, d)) return INVALID_VALUE;
  if (state.no_algorithm) return SUCCESS;
  algorithm plain = {.magic = MAGIC};
  for (int i = 0; i < 4; i++)
    plain.alignments[i] = wish->alignments[i];
  out[(*count)++] = (candidate){.status = NOT_SUPPORTED};
  if (wish->workspace >= CUBLASLT_DOUBLE_WORKSPACE && wish->alignments[0] >= 16 &&
      wish->alignments[1] >= 16) {
    algorithm fast = plain;
    fast.workspace = CUBLASLT_DOUBLE_WORKSPACE;
    out[(*count)++] = (candidate){.algorithm = fast, .workspace = CUBLASLT_DOUBLE_WORKSPACE};
  }
  out[(*count)++] = (candidate){.algorithm = plain};
  return SUCCESS;
}

// ---- the product --------------------------------------------------------------------------------

static float half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 0    ? ldexpf((float)fraction, -24)
                : exponent == 31 ? (fraction ? NAN : INFINITY)
                                 : ldexpf((float)(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -value : value;
}

static float element(const object *layout, const void *base, int64_t batch, uint64_t row,
                     uint64_t column) {
  int64_t index = batch * layout->batch_stride + (int64_t)column * layout->leading + (int64_t)row;
  if (layout->type == TYPE_F32) return ((const float *)base)[index];
  uint16_t bits = ((const uint16_t *)base)[index];
  if (layout->type == TYPE_F16) return half_value(bits);
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static bool aligned(const algorithm *algo, const void *const pointers[4]) {
  for (int i = 0; i < 4; i++)
    if (!pointers[i] || (uintptr_t)pointers[i] % algo->alignments[i] != 0) return false;
  return true;
}

static float dot(const object *product, const object *a_layout, const void *a,
                 const object *b_layout, const void *b, int64_t batch, uint64_t i, uint64_t j) {
  uint64_t k = product->transpose_a ? a_layout->rows : a_layout->columns;
  float sum = 0;
  for (uint64_t x = 0; x < k; x++) {
    float left = product->transpose_a ? element(a_layout, a, batch, x, i)
                                      : element(a_layout, a, batch, i, x);
    float right = product->transpose_b ? element(b_layout, b, batch, j, x)
                                       : element(b_layout, b, batch, x, j);
    sum += left * right;
  }
  return sum;
}

EXPORT int cublasLtMatmul(void *handle, void *product, const void *alpha, const void *a,
                          void *a_layout, const void *b, void *b_layout, const void *beta,
                          const void *c, void *c_layout, void *d, void *d_layout,
                          const void *algo_pointer, void *workspace, size_t workspace_bytes,
                          void *stream) {
  ENTER();
  const algorithm *algo = algo_pointer;
  const object *to = d_layout;
  if (!is(handle, HANDLE) || !fits(product, a_layout, b_layout, c_layout, d_layout) || !algo ||
      algo->magic != MAGIC || workspace_bytes < algo->workspace ||
      !aligned(algo, (const void *const[]){a, b, c, d}))
    return INVALID_VALUE;
  if (algo->workspace && (!workspace || (uintptr_t)workspace % 16 != 0)) return INVALID_VALUE;
  if (algo->workspace) memset(workspace, 0xee, algo->workspace);
  state.workspace_bytes = workspace_bytes;
  state.stream = stream;
  float scale = *(const float *)alpha, old = *(const float *)beta;
  for (int32_t batch = 0; batch < to->batches; batch++)
    for (uint64_t j = 0; j < to->columns; j++)
      for (uint64_t i = 0; i < to->rows; i++) {
        int64_t index = batch * to->batch_stride + (int64_t)j * to->leading + (int64_t)i;
        float value = scale * dot(product, a_layout, a, b_layout, b, batch, i, j);
        if (old != 0) value += old * element(c_layout, c, batch, i, j);
        ((float *)d)[index] = value;
      }
  return SUCCESS;
}
