// The real cuBLASLt, where there is one: every entry point resolves, and, where there is a GPU too,
// a product comes out as plain loops have it. Without the library the test counts as skipped, and
// what was looked for is printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/driver.h"

enum { SKIPPED = 77, M = 37, N = 16, K = 64, BATCHES = 3 };

static base_arena arena;
static base_diag diag;

static int complain(void) {
  base_str said = base_diag_render(&diag);
  printf("%.*s", BASE_FMT(said));
  return EXIT_FAILURE;
}

// bf16 of small integers.
static uint16_t value_at(int seed) {
  float value = (float)(seed % 17 - 8);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static float widen(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t a[BATCHES][M][K], b[N][K];
static float d[M][BATCHES][N]; // the logits of each token side by side

static int count_wrong(void) {
  int wrong = 0;
  for (int z = 0; z < BATCHES; z++)
    for (int i = 0; i < M; i++)
      for (int j = 0; j < N; j++) {
        float sum = 0;
        for (int x = 0; x < K; x++)
          sum += widen(a[z][i][x]) * widen(b[j][x]);
        wrong += d[i][z][j] != sum;
      }
  return wrong;
}

// Device memory of the product: A, B, D, workspace.
static base_status multiply(rt_device *device, const rt_matmul *product) {
  const size_t sizes[] = {sizeof a, sizeof b, sizeof d, rt_matmul_workspace_bytes(product)};
  void *memory[4] = {NULL};
  base_status status = BASE_OK;
  for (int i = 0; i < 4 && status == BASE_OK; i++)
    status = device->ops->allocate(device, sizes[i] ? sizes[i] : 16, &memory[i], &diag);
  if (status == BASE_OK) status = device->ops->copy(device, NULL, memory[0], a, sizeof a, &diag);
  if (status == BASE_OK) status = device->ops->copy(device, NULL, memory[1], b, sizeof b, &diag);
  if (status == BASE_OK)
    status = rt_matmul_run(product, memory[0], memory[1], memory[2], memory[3], NULL, &diag);
  if (status == BASE_OK) status = device->ops->copy(device, NULL, d, memory[2], sizeof d, &diag);
  for (int i = 0; i < 4; i++)
    if (memory[i]) device->ops->release(device, memory[i]);
  return status;
}

static int run(rt_device *device) {
  for (int i = 0; i < BATCHES * M * K; i++)
    (&a[0][0][0])[i] = value_at(i * 5 + i / K);
  for (int i = 0; i < N * K; i++)
    (&b[0][0])[i] = value_at(i * 3 + i / K);
  const rt_matmul_shape shape = {
      RT_BF16, M, N, K, BATCHES, {K, M * K, 256}, {K, 0, 256}, {BATCHES * N, N, 256}};
  rt_cublaslt *handle;
  rt_matmul *product = NULL;
  base_status status = rt_cublaslt_create(device, &handle, &diag);
  if (status == BASE_OK) status = rt_matmul_create(handle, &shape, 1 << 25, &product, &diag);
  if (status == BASE_OK) status = multiply(device, product);
  rt_matmul_destroy(product);
  rt_cublaslt_destroy(handle);
  if (status != BASE_OK) return complain();
  const int wrong = count_wrong();
  printf("%s: %d of %d elements are wrong\n", device->facts.name, wrong, BATCHES * M * N);
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int check(void) {
  base_str path, why;
  if (rt_cublaslt_open(&arena, &path, &why) != BASE_OK) {
    printf("skipped: %.*s\n", BASE_FMT(why));
    return SKIPPED;
  }
  printf("%.*s: version %u, every entry point is there\n", BASE_FMT(path), rt_cublaslt_version());
  if (rt_cuda_open(&arena, &path, &why) != BASE_OK || rt_cuda_count() == 0) {
    printf("no GPU: nothing was multiplied\n");
    return EXIT_SUCCESS;
  }
  rt_device *device;
  if (rt_cuda_device_create(0, &device, &diag) != BASE_OK) return complain();
  const int result = run(device);
  device->ops->destroy(device);
  return result;
}

int main(void) {
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  const int result = check();
  base_arena_reset(&arena);
  return result;
}
