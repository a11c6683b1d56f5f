// The device table's matrix products: cuBLASLt's double under the driver's, opened at the first one.
#include "double/cuda_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { M = 3, N = 2, K = 5, LIMIT = 1 << 16 };

static const rt_matmul_shape shape = {.dtype = RT_F32,
                                      .m = M,
                                      .n = N,
                                      .k = K,
                                      .batches = 1,
                                      .a = {.row_stride = K},
                                      .b = {.row_stride = K},
                                      .d = {.row_stride = N}};

// Before the first success, which is remembered.
static void test_no_library(void **state) {
  (void)state;
  cuda_fixture f;
  cuda_setup_device(&f);
  rt_matmul *matmul;
  setenv("FATHOM_LIBCUBLASLT", "/nowhere/libcublasLt.so", 1);
  assert_int_equal(f.device->ops->matmul_create(f.device, &shape, LIMIT, &matmul, &f.diag),
                   BASE_UNSUPPORTED);
  assert_null(matmul);
  assert_non_null(strstr(cuda_message(&f), "/nowhere/libcublasLt.so"));
  cuda_clear(&f);
  cuda_teardown(&f);
}

static float *device_floats(cuda_fixture *f, int64_t count) {
  void *memory;
  assert_int_equal(
      f->device->ops->allocate(f->device, (size_t)count * sizeof(float), &memory, &f->diag),
      BASE_OK);
  return memory;
}

static void copy(cuda_fixture *f, float *to, const float *from, int64_t count) {
  assert_int_equal(
      f->device->ops->copy(f->device, NULL, to, from, (size_t)count * sizeof(float), &f->diag),
      BASE_OK);
}

static void test_product(void **state) {
  (void)state;
  cuda_fixture f;
  cuda_setup_device(&f);
  const rt_device_ops *ops = f.device->ops;
  setenv("FATHOM_LIBCUBLASLT", double_path("libcublaslt-double.so"), 1);
  rt_matmul *matmul;
  assert_int_equal(ops->matmul_create(f.device, &shape, LIMIT, &matmul, &f.diag), BASE_OK);
  float a[M * K], b[N * K], d[M * N];
  for (int i = 0; i < M * K; i++)
    a[i] = (float)(i % 7 - 3);
  for (int i = 0; i < N * K; i++)
    b[i] = (float)(i % 5 - 2);
  float *on_device[] = {device_floats(&f, M * K), device_floats(&f, N * K),
                        device_floats(&f, M * N)};
  float *workspace = device_floats(&f, (int64_t)ops->matmul_workspace(matmul) / 4 + 4);
  copy(&f, on_device[0], a, M * K);
  copy(&f, on_device[1], b, N * K);
  assert_int_equal(ops->matmul_run(f.device, matmul, on_device[0], on_device[1], on_device[2],
                                   workspace, NULL, &f.diag),
                   BASE_OK);
  copy(&f, d, on_device[2], M * N);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int k = 0; k < K; k++)
        sum += a[i * K + k] * b[j * K + k];
      assert_true(d[i * N + j] == sum);
    }
  for (int i = 0; i < 3; i++)
    ops->release(f.device, on_device[i]);
  ops->release(f.device, workspace);
  ops->matmul_destroy(f.device, matmul);
  cuda_teardown(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_library),
                                     cmocka_unit_test(test_product)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
