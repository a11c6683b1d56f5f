// Products by cuBLASLt against plain loops, through the test double of the library: layouts, types,
// batches, refusals, and every call failing once. Small integers, so that every sum is exact.
#include "runtime/cuda/cublaslt.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "double_blas/cublaslt_double.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { LIMIT = 1 << 16, CANARY = 12345 };

static cublaslt_double *library; // its counters
static base_arena arena;
static base_diag diag;
static rt_cublaslt *handle;

static void assert_said(const char *part) {
  const char *said = base_diag_render(&diag).data;
  if (!said || !strstr(said, part)) fail_msg("expected '%s' in:\n%s", part, said ? said : "");
}

static void assert_nothing_left(long handles) {
  assert_int_equal(library->handles, handles);
  assert_int_equal(library->products, 0);
  assert_int_equal(library->layouts, 0);
  assert_int_equal(library->preferences, 0);
}

// ---- set up -------------------------------------------------------------------------------------

static int open_double(void **state) {
  (void)state;
  char path[4096];
  const char *build = getenv("FATHOM_BINARY_DIR");
  snprintf(path, sizeof path, "%s/tests/libcublaslt-double.so", build ? build : ".");
  if (setenv("FATHOM_LIBCUBLASLT", path, 1) != 0) return -1;
  void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!object) {
    print_error("%s\n", dlerror());
    return -1;
  }
  library = dlsym(object, CUBLASLT_DOUBLE_SYMBOL);
  return library ? 0 : -1;
}

static int setup(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  return rt_cublaslt_create(NULL, &handle, &diag) == BASE_OK ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  rt_cublaslt_destroy(handle);
  base_arena_reset(&arena);
  assert_nothing_left(0);
  return 0;
}

// ---- operands -----------------------------------------------------------------------------------

static void store(rt_dtype dtype, void *base, int64_t index, int value) {
  if (dtype == RT_F32) {
    ((float *)base)[index] = (float)value;
    return;
  }
  // Integers up to 255 are exact in both: the top bits of f32, or the exponent moved.
  float wide = (float)value;
  uint32_t bits;
  memcpy(&bits, &wide, sizeof bits);
  uint16_t half = (uint16_t)(bits >> 16);
  if (dtype == RT_F16)
    half = value ? (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 13) - (112 << 10)) & 0x7fff)) : 0;
  ((uint16_t *)base)[index] = half;
}

static int value_at(int operand, int64_t batch, int64_t row, int64_t column) {
  return (int)((operand * 7 + batch * 5 + row * 3 + column * 11) % 17) - 8;
}

static int64_t matrices(const rt_matrix *matrix, int64_t batches) {
  return matrix->batch_stride ? batches : 1;
}

// All matrices of an operand, with values only where there are elements; 64-byte aligned, or
// `offset` bytes past that.
static char *make_operand(const rt_matmul_shape *s, int operand, size_t offset, char **memory) {
  const rt_matrix *matrix = operand == 0 ? &s->a : &s->b;
  const int64_t rows = operand == 0 ? s->m : s->n;
  const int64_t count = (matrices(matrix, s->batches) - 1) * matrix->batch_stride +
                        (rows - 1) * matrix->row_stride + s->k;
  const size_t bytes = (size_t)count * rt_dtype_size(s->dtype) + offset;
  *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  assert_non_null(*memory);
  char *base = *memory + offset;
  memset(*memory, 0x7f, bytes); // NaN, or nearly: what is between rows must not be read
  for (int64_t z = 0; z < matrices(matrix, s->batches); z++)
    for (int64_t i = 0; i < rows; i++)
      for (int64_t x = 0; x < s->k; x++)
        store(s->dtype, base, z * matrix->batch_stride + i * matrix->row_stride + x,
              value_at(operand, z, i, x));
  return base;
}

static float expected_at(const rt_matmul_shape *s, int64_t batch, int64_t i, int64_t j) {
  int sum = 0;
  for (int64_t x = 0; x < s->k; x++)
    sum += value_at(0, s->a.batch_stride ? batch : 0, i, x) *
           value_at(1, s->b.batch_stride ? batch : 0, j, x);
  return (float)sum;
}

static void assert_result(const rt_matmul_shape *s, const float *d, int64_t count) {
  static char written[1 << 16];
  assert_true((size_t)count <= sizeof written);
  memset(written, 0, sizeof written);
  for (int64_t z = 0; z < s->batches; z++)
    for (int64_t i = 0; i < s->m; i++)
      for (int64_t j = 0; j < s->n; j++) {
        const int64_t index = z * s->d.batch_stride + i * s->d.row_stride + j;
        written[index] = 1;
        if (d[index] != expected_at(s, z, i, j))
          fail_msg("[%ld, %ld, %ld] is %g, expected %g", (long)z, (long)i, (long)j, d[index],
                   expected_at(s, z, i, j));
      }
  for (int64_t index = 0; index < count; index++)
    if (!written[index] && d[index] != CANARY) fail_msg("element %ld was written", (long)index);
}

// Makes, runs and checks one product.
static void check_product(const rt_matmul_shape *s, size_t limit, size_t expected_workspace) {
  char *memory[2];
  const char *a = make_operand(s, 0, 0, &memory[0]), *b = make_operand(s, 1, 0, &memory[1]);
  const int64_t count =
      (s->batches - 1) * s->d.batch_stride + (s->m - 1) * s->d.row_stride + s->n + 8;
  float *d = aligned_alloc(64, ((size_t)count * sizeof *d + 63) / 64 * 64);
  void *workspace = aligned_alloc(64, CUBLASLT_DOUBLE_WORKSPACE);
  assert_true(d && workspace);
  for (int64_t i = 0; i < count; i++)
    d[i] = CANARY;
  rt_matmul *product;
  if (rt_matmul_create(handle, s, limit, &product, &diag) != BASE_OK)
    fail_msg("%s", base_diag_render(&diag).data);
  assert_int_equal(rt_matmul_workspace_bytes(product), expected_workspace);

  const long calls = library->calls;
  int stream;
  assert_int_equal(rt_matmul_run(product, a, b, d, workspace, &stream, &diag), BASE_OK);
  assert_int_equal(library->calls, calls + 1); // nothing but the product itself
  assert_ptr_equal(library->stream, &stream);
  assert_result(s, d, count);

  rt_matmul_destroy(product);
  assert_nothing_left(1);
  free(d), free(workspace), free(memory[0]), free(memory[1]);
}

// ---- results ------------------------------------------------------------------------------------

static void test_results(void **state) {
  (void)state;
  const rt_matmul_shape shapes[] = {
      {RT_F32, 5, 3, 7, 1, {7, 0, 0}, {7, 0, 0}, {3, 0, 0}},
      {RT_F32, 1, 1, 1, 1, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}},
      {RT_F32, 4, 6, 8, 1, {11, 0, 0}, {9, 0, 0}, {10, 0, 0}},
      // Nine sources against the same sixteen queries, logits as [T, N, S].
      {RT_F32, 13, 16, 24, 9, {24, 13 * 24, 0}, {24, 0, 0}, {9 * 16, 16, 0}},
      {RT_F32, 3, 4, 5, 3, {5, 0, 0}, {6, 24, 0}, {4, 20, 0}},
  };
  for (size_t i = 0; i < COUNT(shapes); i++)
    for (rt_dtype dtype = RT_F32; dtype <= RT_F16; dtype++) {
      rt_matmul_shape shape = shapes[i];
      shape.dtype = dtype;
      check_product(&shape, LIMIT, 0);
      // The fast algorithm: promised alignment, and workspace to the byte.
      shape.a.alignment = shape.b.alignment = 16;
      check_product(&shape, LIMIT, CUBLASLT_DOUBLE_WORKSPACE);
      check_product(&shape, CUBLASLT_DOUBLE_WORKSPACE, CUBLASLT_DOUBLE_WORKSPACE);
      check_product(&shape, CUBLASLT_DOUBLE_WORKSPACE - 1, 0);
    }
}

static void test_empty(void **state) {
  (void)state;
  const rt_matmul_shape whole = {RT_BF16, 4, 3, 8, 2, {8, 32, 0}, {8, 0, 0}, {3, 12, 0}};
  for (int i = 0; i < 3; i++) {
    rt_matmul_shape shape = whole;
    *(int64_t *[]){&shape.m, &shape.n, &shape.batches}[i] = 0;
    const long calls = library->calls;
    rt_matmul *product;
    assert_int_equal(rt_matmul_create(handle, &shape, LIMIT, &product, &diag), BASE_OK);
    assert_int_equal(rt_matmul_workspace_bytes(product), 0);
    assert_int_equal(rt_matmul_run(product, NULL, NULL, NULL, NULL, NULL, &diag), BASE_OK);
    rt_matmul_destroy(product);
    assert_int_equal(library->calls, calls);
  }
}

static void test_version(void **state) {
  (void)state;
  assert_int_equal(rt_cublaslt_version(), 130102);
  base_str path, why;
  assert_int_equal(rt_cublaslt_open(&arena, &path, &why), BASE_OK);
  assert_non_null(strstr(path.data, "libcublaslt-double.so"));
}

// ---- refusals -----------------------------------------------------------------------------------

static const rt_matmul_shape plain = {RT_BF16, 4, 3, 8, 2, {8, 32, 0}, {8, 0, 0}, {3, 12, 0}};

static void test_shapes_refused(void **state) {
  (void)state;
  const struct {
    int64_t m, n, k, batches;
    rt_matrix a, b, d;
    const char *said;
  } cases[] = {
      {-1, 3, 8, 1, {8, 0, 0}, {8, 0, 0}, {3, 0, 0}, "M=-1, N=3, K=8"},
      {4, 3, 0, 1, {8, 0, 0}, {8, 0, 0}, {3, 0, 0}, "K is at least 1"},
      {INT64_C(1) << 31, 3, 8, 1, {8, 0, 0}, {8, 0, 0}, {3, 0, 0}, "sizes go to 2147483647"},
      {4, 3, 8, 1, {7, 0, 0}, {8, 0, 0}, {3, 0, 0}, "rows of A have 8 elements, but are 7 apart"},
      {4, 3, 8, 1, {8, 0, 0}, {0, 0, 0}, {3, 0, 0}, "rows of B have 8 elements, but are 0 apart"},
      {4, 3, 8, 1, {8, 0, 0}, {8, 0, 0}, {2, 0, 0}, "rows of D have 3 elements, but are 2 apart"},
      {4, 3, 8, 1, {8, 0, 1}, {8, 0, 0}, {3, 0, 0}, "A cannot be aligned to 1 bytes"},
      {4, 3, 8, 1, {8, 0, 0}, {8, 0, 12}, {3, 0, 0}, "B cannot be aligned to 12 bytes"},
      {4, 3, 8, 2, {8, -8, 0}, {8, 0, 0}, {3, 12, 0}, "matrices A of a batch are -8 apart"},
      {4, 3, 8, 2, {8, 32, 0}, {8, 0, 0}, {3, 0, 0}, "matrices D of a batch are 0 apart"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
    const rt_matmul_shape shape = {RT_BF16,          cases[i].m, cases[i].n, cases[i].k,
                                   cases[i].batches, cases[i].a, cases[i].b, cases[i].d};
    rt_matmul *product;
    assert_int_equal(rt_matmul_create(handle, &shape, LIMIT, &product, &diag), BASE_INVALID);
    assert_null(product);
    assert_said(cases[i].said);
    assert_said("hint: ");
  }
  assert_nothing_left(1);
}

static void test_no_algorithm(void **state) {
  (void)state;
  library->no_algorithm = 1;
  rt_matmul *product;
  assert_int_equal(rt_matmul_create(handle, &plain, LIMIT, &product, &diag), BASE_UNSUPPORTED);
  library->no_algorithm = 0;
  assert_null(product);
  assert_said("cuBLASLt has no algorithm for bf16 matrices of M=4, N=3, K=8 within 65536 bytes");
  assert_said("hint: allow more workspace");
  assert_nothing_left(1);
}

static void test_pointers_refused(void **state) {
  (void)state;
  rt_matmul_shape shape = plain;
  shape.a.alignment = shape.b.alignment = 16;
  rt_matmul *product;
  assert_int_equal(rt_matmul_create(handle, &shape, LIMIT, &product, &diag), BASE_OK);
  static _Alignas(64) char a[1024], b[1024], d[1024], workspace[CUBLASLT_DOUBLE_WORKSPACE + 64];
  const struct {
    const char *a, *b;
    char *d, *workspace;
    const char *said;
  } cases[] = {
      {a + 8, b, d, workspace, "matrix A of the product is at"},
      {a, b + 2, d, workspace, "expected a multiple of 16"},
      {a, b, d + 2, workspace, "expected a multiple of 4"},
      {NULL, b, d, workspace, "matrix A of the product is at"},
      {a, b, NULL, workspace, "matrix D of the product is at"},
      {a, b, d, NULL, "expected 4096 bytes of device memory at a multiple of 16"},
      {a, b, d, workspace + 8, "expected 4096 bytes of device memory at a multiple of 16"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
    const long calls = library->calls;
    assert_int_equal(rt_matmul_run(product, cases[i].a, cases[i].b, (float *)(void *)cases[i].d,
                                   cases[i].workspace, NULL, &diag),
                     BASE_INVALID);
    assert_int_equal(library->calls, calls);
    assert_said(cases[i].said);
    assert_said("hint: ");
  }
  rt_matmul_destroy(product);
}

// ---- every call fails once ----------------------------------------------------------------------

// One use from beginning to end, with a handle of its own.
static base_status use(void) {
  static _Alignas(64) char a[1024], b[1024], workspace[CUBLASLT_DOUBLE_WORKSPACE];
  static float d[256];
  rt_matmul_shape shape = plain;
  shape.a.alignment = shape.b.alignment = 16;
  rt_cublaslt *own;
  base_status status = rt_cublaslt_create(NULL, &own, &diag);
  if (status != BASE_OK) return status;
  rt_matmul *product;
  status = rt_matmul_create(own, &shape, LIMIT, &product, &diag);
  if (status == BASE_OK) status = rt_matmul_run(product, a, b, d, workspace, NULL, &diag);
  rt_matmul_destroy(product);
  rt_cublaslt_destroy(own);
  return status;
}

static void test_failures(void **state) {
  (void)state;
  static const struct {
    int number;
    const char *name;
    base_status status;
  } errors[] = {
      {1, "CUBLAS_STATUS_NOT_INITIALIZED (1)", BASE_UNSUPPORTED},
      {3, "CUBLAS_STATUS_ALLOC_FAILED (3)", BASE_MEMORY},
      {13, "CUBLAS_STATUS_EXECUTION_FAILED (13)", BASE_INTERNAL},
      {15, "CUBLAS_STATUS_NOT_SUPPORTED (15)", BASE_UNSUPPORTED},
      {99, "a status that is not listed (99)", BASE_INTERNAL},
  };
  const long before = library->calls;
  assert_int_equal(use(), BASE_OK);
  const long calls = library->calls - before;
  assert_true(calls > 20);
  for (size_t e = 0; e < COUNT(errors); e++)
    for (long i = 0; i < calls; i++) {
      base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
      library->calls = 0, library->fail_at = i, library->fail_with = errors[e].number;
      const base_status status = use();
      library->fail_at = -1;
      assert_nothing_left(1);
      if (strstr(library->failed, "Destroy")) { // what is being let go is of no concern any more
        assert_int_equal(status, BASE_OK);
        continue;
      }
      assert_int_equal(status, errors[e].status);
      assert_int_equal(diag.error_count, 1);
      assert_said(library->failed);
      assert_said(errors[e].name);
      assert_said("hint: ");
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_results, setup, teardown),
      cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
      cmocka_unit_test_setup_teardown(test_version, setup, teardown),
      cmocka_unit_test_setup_teardown(test_shapes_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_no_algorithm, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pointers_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
  };
  return cmocka_run_group_tests(tests, open_double, NULL);
}
