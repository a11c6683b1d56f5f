// Matrix products by cuBLASLt.
//
// cuBLASLt's matrices are column-major: element (i, j) at i + j * leading. A row-major matrix read
// that way is its transpose, its row stride the leading dimension. So D = A B^T is asked for as
//
//   D^T [N x M, leading d]  =  transposed(B^T [K x N, leading b])  x  A^T [K x M, leading a]
//
// Its first operand is B, transposed, its second A, as it is. Nothing is copied.
//
// The library's types are written out here, so that Fathom builds without the toolkit and against
// none of its versions.
#include "runtime/cuda/cublaslt.h"

#include <assert.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cuda/driver_api.h"

// ---- the library's types ------------------------------------------------------------------------

enum {
  CUBLAS_COMPUTE_32F = 68,

  CUDA_R_32F = 0,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,

  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLAS_OP_T = 1,

  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          // int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, // int64_t

  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   // uint64_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, // uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

typedef struct cublaslt_algorithm {
  uint64_t data[8];
} cublaslt_algorithm;

typedef struct cublaslt_candidate {
  cublaslt_algorithm algorithm;
  size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
} cublaslt_candidate;

static_assert(sizeof(cublaslt_candidate) == 96 &&
                  offsetof(cublaslt_candidate, workspace_bytes) == 64 &&
                  offsetof(cublaslt_candidate, status) == 72,
              "as in the library");

// ---- the library --------------------------------------------------------------------------------

typedef struct api {
#define CUBLASLT(name, purpose, arguments) int(*name) arguments;
#include "runtime/cuda/cublaslt.def"
#undef CUBLASLT
} api;

typedef enum entry {
#define CUBLASLT(name, purpose, arguments) ENTRY_##name,
#include "runtime/cuda/cublaslt.def"
#undef CUBLASLT
  ENTRIES
} entry;

static const base_entry_point symbols[ENTRIES] = {
#define CUBLASLT(name, purpose, arguments) {"cublasLt" #name, offsetof(api, name)},
#include "runtime/cuda/cublaslt.def"
#undef CUBLASLT
};
static_assert(sizeof(api) == ENTRIES * sizeof(void *), "only entry points");

static const char *const purposes[ENTRIES] = {
#define CUBLASLT(name, purpose, arguments) purpose,
#include "runtime/cuda/cublaslt.def"
#undef CUBLASLT
};

static const char *const sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                      "libcublasLt.so", NULL};
static const base_library_spec spec = {
    .name = "cuBLASLt",
    .variable = "FATHOM_LIBCUBLASLT",
    .sonames = sonames,
    .places = base_cuda_places,
    .advice = "install cuBLAS 11, 12 or 13 (PyPI: nvidia-cublas), choose another engine"};

// Written once, under the lock, and then only read. The library stays open for the life of the
// process, as the driver under it does.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static api lt;
static char library_path[4096];
static uint32_t version;

static bool already_open(base_str *path) {
  pthread_mutex_lock(&lock);
  const bool open = is_open;
  pthread_mutex_unlock(&lock);
  if (open) *path = base_str_from(library_path);
  return open;
}

static uint32_t read_version(const api *table) {
  enum { MAJOR, MINOR, PATCH, PARTS };
  int parts[PARTS] = {0};
  for (int i = 0; i < PARTS; i++)
    if (table->GetProperty(i, &parts[i]) != 0) return 0;
  return (uint32_t)(10000 * parts[MAJOR] + 100 * parts[MINOR] + parts[PATCH]);
}

base_status rt_cublaslt_open(base_arena *arena, base_str *path, base_str *why) {
  if (already_open(path)) return BASE_OK;
  void *library;
  base_str found;
  if (!base_library_open(arena, &spec, &library, &found, why)) return BASE_UNSUPPORTED;
  api table;
  const char *missing = base_library_resolve(library, symbols, ENTRIES, &table);
  if (missing) {
    // The path is the library's own memory: the sentence is made first.
    *why = base_str_format(arena,
                           "cuBLASLt, found as %.*s, has no %s\n"
                           "  hint: %s, or let %s name another file",
                           BASE_FMT(found), missing, spec.advice, spec.variable);
    dlclose(library);
    return BASE_UNSUPPORTED;
  }
  pthread_mutex_lock(&lock);
  if (is_open) {
    dlclose(library); // another thread was faster
  } else {
    lt = table;
    version = read_version(&table);
    snprintf(library_path, sizeof library_path, "%.*s", BASE_FMT(found));
    is_open = true;
  }
  pthread_mutex_unlock(&lock);
  *path = base_str_from(library_path);
  return BASE_OK;
}

uint32_t rt_cublaslt_version(void) {
  base_str path;
  return already_open(&path) ? version : 0;
}

// ---- failures -----------------------------------------------------------------------------------

// The first call that failed, of the driver or of cuBLASLt. Reported last, when contexts are
// restored and what was acquired is released, because a report may run out of memory and jump.
typedef struct failure {
  rt_cuda_failure driver;
  int status; // 0: none
  entry entry;
} failure;

static const struct {
  const char *name, *advice;
  int number;
  base_status status;
} errors[] = {
#define CUBLASLT_STATUS(number, name, status, advice)                                              \
  {"CUBLAS_STATUS_" #name, advice, number, BASE_##status},
#include "runtime/cuda/cublaslt.def"
#undef CUBLASLT_STATUS
    {"a status that is not listed", "look it up in cuBLAS's documentation", 0, BASE_INTERNAL},
};

static bool noted(failure *f, entry entry, int status) {
  if (status != 0 && f->status == 0) f->status = status, f->entry = entry;
  return status == 0;
}
// LT(&failure, MatmulDescDestroy, product): calls, and is true on success.
#define LT(failure, name, ...) noted((failure), ENTRY_##name, lt.name(__VA_ARGS__))

static base_status report(base_diag *diag, const failure *f) {
  if (f->driver.result != CUDA_SUCCESS) return rt_cuda_report(diag, &f->driver, NULL);
  size_t i = 0;
  while (errors[i].number != 0 && errors[i].number != f->status)
    i++;
  base_error_status(diag, errors[i].status, (base_loc){0}, "%s could not %s: %s (%d)",
                    symbols[f->entry].symbol, purposes[f->entry], errors[i].name, f->status);
  base_hint(diag, "%s", errors[i].advice);
  return errors[i].status;
}

static base_status refuse(base_diag *diag, base_status status, base_str message, const char *hint) {
  base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(message));
  base_hint(diag, "%s", hint);
  return status;
}

// ---- handles ------------------------------------------------------------------------------------

struct rt_cublaslt {
  rt_cuda_device *device; // may be NULL
  void *handle;
};

// Relaxed also for running: the driver may load the algorithm's code then, which a capture of
// another stream would not survive.
static bool enter(const rt_cublaslt *self, rt_cuda_scope *scope, failure *f) {
  *scope = (rt_cuda_scope){0};
  return self->device == NULL || rt_cuda_enter_relaxed(self->device, scope, &f->driver);
}

static void leave(const rt_cublaslt *self, rt_cuda_scope *scope) {
  if (self->device) rt_cuda_leave(scope);
}

base_status rt_cublaslt_create(rt_device *device, rt_cublaslt **out, base_diag *diag) {
  *out = NULL;
  base_str path, why;
  const base_status status = rt_cublaslt_open(diag->arena, &path, &why);
  if (status != BASE_OK) {
    base_error_status(diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
    return status;
  }
  rt_cublaslt *self = calloc(1, sizeof *self);
  if (self == NULL)
    return refuse(diag, BASE_MEMORY, BASE_STR("there is no memory for a cuBLASLt handle"),
                  "free host memory and try again");
  self->device = (rt_cuda_device *)device;
  failure f = {.status = 0};
  rt_cuda_scope scope;
  bool created = false;
  if (enter(self, &scope, &f)) {
    created = LT(&f, Create, &self->handle);
    leave(self, &scope);
  }
  if (!created) {
    free(self);
    return report(diag, &f);
  }
  *out = self;
  return BASE_OK;
}

void rt_cublaslt_destroy(rt_cublaslt *self) {
  if (self == NULL) return;
  failure ignored = {.status = 0};
  rt_cuda_scope scope;
  const bool entered = enter(self, &scope, &ignored);
  lt.Destroy(self->handle);
  if (entered) leave(self, &scope);
  free(self);
}

// ---- checks -------------------------------------------------------------------------------------

static const struct {
  const char *name;
  int type;
} types[] = {[RT_F32] = {"f32", CUDA_R_32F},
             [RT_BF16] = {"bf16", CUDA_R_16BF},
             [RT_F16] = {"f16", CUDA_R_16F}};

// The operands by name, for messages and checks.
enum { A, B, D, OPERANDS };
static const char operand_names[OPERANDS] = {'A', 'B', 'D'};

typedef struct operand {
  const rt_matrix *matrix;
  int64_t columns;
  size_t element;
} operand;

static operand operand_of(const rt_matmul_shape *shape, int i) {
  const size_t element = rt_dtype_size(shape->dtype);
  if (i == A) return (operand){&shape->a, shape->k, element};
  if (i == B) return (operand){&shape->b, shape->k, element};
  return (operand){&shape->d, shape->n, sizeof(float)};
}

static uint32_t alignment_of(const operand *o) {
  return o->matrix->alignment ? o->matrix->alignment : (uint32_t)o->element;
}

static base_status check_operand(const rt_matmul_shape *shape, int i, base_diag *diag) {
  const operand o = operand_of(shape, i);
  const char name = operand_names[i];
  const uint32_t alignment = alignment_of(&o);
  if (o.matrix->row_stride < o.columns)
    return refuse(diag, BASE_INVALID,
                  base_str_format(diag->arena,
                                  "rows of %c have %" PRId64 " elements, but are %" PRId64 " apart",
                                  name, o.columns, o.matrix->row_stride),
                  "rows may not overlap: copy the matrix first");
  if (alignment % o.element != 0 || (alignment & (alignment - 1)) != 0)
    return refuse(diag, BASE_INVALID,
                  base_str_format(diag->arena, "%c cannot be aligned to %u bytes", name, alignment),
                  "give a power of two that is at least an element");
  if (o.matrix->batch_stride < 0 || (i == D && shape->batches > 1 && o.matrix->batch_stride == 0))
    return refuse(diag, BASE_INVALID,
                  base_str_format(diag->arena, "matrices %c of a batch are %" PRId64 " apart", name,
                                  o.matrix->batch_stride),
                  "give the elements from one matrix to the next");
  return BASE_OK;
}

static bool is_empty(const rt_matmul_shape *shape) {
  return shape->m == 0 || shape->n == 0 || shape->batches == 0;
}

static base_status check_shape(const rt_matmul_shape *shape, base_diag *diag) {
  const int64_t sizes[] = {shape->m, shape->n, shape->k, shape->batches};
  bool fits = shape->k > 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    fits = fits && sizes[i] >= 0 && sizes[i] <= INT32_MAX;
  if (!fits)
    return refuse(diag, BASE_INVALID,
                  base_str_format(diag->arena,
                                  "cuBLASLt multiplies no matrices of M=%" PRId64 ", N=%" PRId64
                                  ", K=%" PRId64 ", %" PRId64 " times",
                                  shape->m, shape->n, shape->k, shape->batches),
                  "sizes go to 2147483647, and K is at least 1: multiply fewer rows at once");
  for (int i = 0; i < OPERANDS; i++) {
    const base_status status = check_operand(shape, i, diag);
    if (status != BASE_OK) return status;
  }
  return BASE_OK;
}

// ---- products -----------------------------------------------------------------------------------

struct rt_matmul {
  rt_cublaslt *owner;
  rt_matmul_shape shape;
  void *product;
  void *layouts[OPERANDS];
  cublaslt_algorithm algorithm;
  size_t workspace_bytes;
};

static bool describe_product(rt_matmul *self, failure *f) {
  const int transposed = CUBLAS_OP_T; // the first operand; the second is as it is by default
  return LT(f, MatmulDescCreate, &self->product, CUBLAS_COMPUTE_32F, CUDA_R_32F) &&
         LT(f, MatmulDescSetAttribute, self->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
            sizeof transposed);
}

// `columns` are contiguous elements here: the rows of cuBLASLt.
static bool describe_matrix(rt_matmul *self, int i, int64_t rows, failure *f) {
  const operand o = operand_of(&self->shape, i);
  const int type = i == D ? CUDA_R_32F : types[self->shape.dtype].type;
  void **layout = &self->layouts[i];
  if (!LT(f, MatrixLayoutCreate, layout, type, (uint64_t)o.columns, (uint64_t)rows,
          o.matrix->row_stride))
    return false;
  if (self->shape.batches == 1) return true;
  const int32_t count = (int32_t)self->shape.batches;
  const int64_t stride = o.matrix->batch_stride;
  return LT(f, MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
            sizeof count) &&
         LT(f, MatrixLayoutSetAttribute, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            &stride, sizeof stride);
}

static bool describe(rt_matmul *self, failure *f) {
  const rt_matmul_shape *shape = &self->shape;
  return describe_product(self, f) && describe_matrix(self, A, shape->m, f) &&
         describe_matrix(self, B, shape->n, f) && describe_matrix(self, D, shape->m, f);
}

static bool prefer(void *preference, int attribute, const void *value, size_t bytes, failure *f) {
  return LT(f, MatmulPreferenceSetAttribute, preference, attribute, value, bytes);
}

static bool set_preference(const rt_matmul *self, void *preference, size_t limit, failure *f) {
  const uint64_t workspace = limit;
  uint32_t alignments[OPERANDS];
  for (int i = 0; i < OPERANDS; i++) {
    const operand o = operand_of(&self->shape, i);
    alignments[i] = alignment_of(&o);
  }
  static const struct {
    int attribute, operand; // the library's first operand is B: see the head of this file
  } wishes[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, B},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, A},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, D},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, D}};
  if (!prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace,
              f))
    return false;
  for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
    if (!prefer(preference, wishes[i].attribute, &alignments[wishes[i].operand], sizeof *alignments,
                f))
      return false;
  return true;
}

// The first algorithm, fastest first, that works here. *found: whether there was one.
static bool choose(rt_matmul *self, size_t limit, bool *found, failure *f) {
  enum { WANTED = 8 };
  cublaslt_candidate candidates[WANTED];
  int count = 0;
  void *preference = NULL;
  *found = false;
  if (!LT(f, MatmulPreferenceCreate, &preference)) return false;
  const bool asked = set_preference(self, preference, limit, f) &&
                     LT(f, MatmulAlgoGetHeuristic, self->owner->handle, self->product,
                        self->layouts[B], self->layouts[A], self->layouts[D], self->layouts[D],
                        preference, WANTED, candidates, &count);
  lt.MatmulPreferenceDestroy(preference);
  for (int i = 0; asked && i < count && !*found; i++) {
    *found = candidates[i].status == 0;
    self->algorithm = candidates[i].algorithm;
    self->workspace_bytes = candidates[i].workspace_bytes;
  }
  return asked;
}

static base_status refuse_shape(const rt_matmul_shape *shape, size_t limit, base_diag *diag) {
  return refuse(
      diag, BASE_UNSUPPORTED,
      base_str_format(diag->arena,
                      "cuBLASLt has no algorithm for %s matrices of M=%" PRId64 ", N=%" PRId64
                      ", K=%" PRId64 " within %zu bytes of workspace",
                      types[shape->dtype].name, shape->m, shape->n, shape->k, limit),
      "allow more workspace, align matrices and rows to 16 bytes, or choose another engine");
}

base_status rt_matmul_create(rt_cublaslt *handle, const rt_matmul_shape *shape,
                             size_t workspace_limit, rt_matmul **out, base_diag *diag) {
  *out = NULL;
  const base_status status = check_shape(shape, diag);
  if (status != BASE_OK) return status;
  rt_matmul *self = calloc(1, sizeof *self);
  if (self == NULL)
    return refuse(diag, BASE_MEMORY, BASE_STR("there is no memory for a cuBLASLt product"),
                  "free host memory and try again");
  self->owner = handle;
  self->shape = *shape;
  failure f = {.status = 0};
  rt_cuda_scope scope;
  bool done = true, found = true;
  if (!is_empty(shape)) {
    done = enter(handle, &scope, &f);
    if (done) {
      done = describe(self, &f) && choose(self, workspace_limit, &found, &f);
      leave(handle, &scope);
    }
  }
  if (done && found) {
    *out = self;
    return BASE_OK;
  }
  rt_matmul_destroy(self);
  return done ? refuse_shape(shape, workspace_limit, diag) : report(diag, &f);
}

void rt_matmul_destroy(rt_matmul *self) {
  if (self == NULL) return;
  for (int i = 0; i < OPERANDS; i++)
    if (self->layouts[i]) lt.MatrixLayoutDestroy(self->layouts[i]);
  if (self->product) lt.MatmulDescDestroy(self->product);
  free(self);
}

size_t rt_matmul_workspace_bytes(const rt_matmul *self) {
  return self->workspace_bytes;
}

static base_status check_pointers(const rt_matmul *self, const void *const pointers[OPERANDS],
                                  const void *workspace, base_diag *diag) {
  enum { WORKSPACE_ALIGNMENT = 16 };
  for (int i = 0; i < OPERANDS; i++) {
    const operand o = operand_of(&self->shape, i);
    const uint32_t alignment = alignment_of(&o);
    if (pointers[i] == NULL || (uintptr_t)pointers[i] % alignment != 0)
      return refuse(diag, BASE_INVALID,
                    base_str_format(diag->arena,
                                    "matrix %c of the product is at %p, expected a multiple of %u",
                                    operand_names[i], pointers[i], alignment),
                    "align it, or compile for less alignment");
  }
  if (self->workspace_bytes == 0) return BASE_OK;
  if (workspace && (uintptr_t)workspace % WORKSPACE_ALIGNMENT == 0) return BASE_OK;
  return refuse(diag, BASE_INVALID,
                base_str_format(diag->arena,
                                "the workspace of the product is at %p, expected %zu bytes of "
                                "device memory at a multiple of %d",
                                workspace, self->workspace_bytes, WORKSPACE_ALIGNMENT),
                "ask for the size and alignment first");
}

base_status rt_matmul_run(const rt_matmul *self, const void *a, const void *b, float *d,
                          void *workspace, void *stream, base_diag *diag) {
  if (is_empty(&self->shape)) return BASE_OK;
  const base_status status = check_pointers(
      self, (const void *const[OPERANDS]){[A] = a, [B] = b, [D] = d}, workspace, diag);
  if (status != BASE_OK) return status;
  static const float one = 1, zero = 0; // D = 1 * product + 0 * D, and D is not read
  failure f = {.status = 0};
  rt_cuda_scope scope;
  if (!enter(self->owner, &scope, &f)) return report(diag, &f);
  const bool done = LT(&f, Matmul, self->owner->handle, self->product, &one, b, self->layouts[B], a,
                       self->layouts[A], &zero, d, self->layouts[D], d, self->layouts[D],
                       &self->algorithm, workspace, self->workspace_bytes, stream);
  leave(self->owner, &scope);
  return done ? BASE_OK : report(diag, &f);
}
