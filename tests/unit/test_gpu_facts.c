// The table of GPUs, occupancy and roofline against figures worked out by hand.
#include "codegen/cuda/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void assert_near(double value, double expected, double relative) {
  if (fabs(value - expected) > relative * fabs(expected))
    fail_msg("%.9g is not within %g of %.9g", value, relative, expected);
}

// ---- known GPUs ---------------------------------------------------------------------------------

static void test_find(void **state) {
  (void)state;
  static const struct {
    const char *asked, *found; // NULL: not in the table
  } cases[] = {
      {"H200", "H200"},
      {"h200", "H200"},
      {"NVIDIA H200", "H200"},
      {"NVIDIA H100 80GB HBM3", "H100 SXM"},
      {"NVIDIA H100 PCIe", "H100 PCIe"},
      {"NVIDIA A100-SXM4-40GB", "A100 40GB"},
      {"NVIDIA A100-PCIE-40GB", "A100 40GB"},
      {"NVIDIA A100-SXM4-80GB", "A100 80GB"},
      {"NVIDIA GeForce RTX 4090", "RTX 4090"},
      {"sm_80", "A100 80GB"},
      {"sm_90", "H200"},
      {"sm_90a", "H200"},
      {"sm_100a", "B200"},
      {"sm_103f", "GB300"},
      {"sm_120", "RTX 5090"},
      // Others, however much alike.
      {"NVIDIA GH200 480GB", NULL},
      {"NVIDIA GeForce RTX 4090 D", NULL},
      {"NVIDIA GeForce RTX 3090 Ti", NULL},
      {"A100-SXM4-40", NULL},
      {"sm_9", NULL},
      {"sm_900", NULL},
      {"sm_90ab", NULL},
      {"sm_75", NULL},
      {"NVIDIA ", NULL},
      {"|", NULL},
      {"", NULL},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    const cuda_gpu *gpu = cuda_gpu_find(cases[i].asked);
    if (!cases[i].found) {
      if (gpu) fail_msg("'%s' found %s", cases[i].asked, gpu->name);
    } else {
      if (!gpu) fail_msg("'%s' found nothing", cases[i].asked);
      assert_string_equal(gpu->name, cases[i].found);
    }
  }
}

// A slip of the pen in a row would break one of these: FP32 follows from lanes and clock, every row
// is found by its own name and has an architecture whose occupancy is known.
static void test_table(void **state) {
  (void)state;
  const char *const *names;
  size_t count = cuda_gpu_names(&names);
  assert_true(count >= 8);
  for (size_t i = 0; i < count; i++) {
    const cuda_gpu *gpu = cuda_gpu_find(names[i]);
    assert_non_null(gpu);
    assert_string_equal(gpu->name, names[i]);
    double lanes = strcmp(gpu->arch, "sm_80") == 0 ? 64 : 128;
    assert_near(gpu->fp32_tflops, gpu->multiprocessors * lanes * 2 * gpu->boost_mhz / 1e6, 0.01);
    assert_true(gpu->bf16_tflops > gpu->fp32_tflops);
    assert_true(gpu->memory_gb_s > 500 && gpu->memory_gb_s <= 8000);
    assert_true(gpu->level2_mb >= 6 && gpu->level2_mb <= 126);
    cuda_arch arch;
    assert_true(cuda_arch_find(gpu->arch, &arch));
  }
  static const char *const required[] = {"A100 80GB", "H100 SXM", "H200",    "B200",
                                         "GB300",     "RTX 4090", "RTX 5090"};
  for (size_t i = 0; i < COUNT(required); i++)
    assert_non_null(cuda_gpu_find(required[i]));
}

// ---- occupancy ----------------------------------------------------------------------------------

// threads, registers, barriers, cluster, shared bytes -> blocks, limit. 64 K registers and, on
// sm_80 and sm_90, 64 warps everywhere.
static const struct occupancy_case {
  const char *arch;
  cuda_footprint footprint;
  uint32_t blocks;
  cuda_limit limit;
} occupancy_cases[] = {
    // 14 warps: 64 / 14 = 4.57
    {"sm_90a", {448, 32, 1, 0, 0}, 4, CUDA_LIMIT_THREADS},
    // 128 * 32 = 4096 of 16384 a partition: 4 warps, 16 in all; 16 / 14
    {"sm_90a", {448, 128, 1, 0, 0}, 1, CUDA_LIMIT_REGISTERS},
    // 129 * 32 = 4128 -> 4352: 3 warps a partition, 12 in all, less than a block
    {"sm_90a", {448, 129, 1, 0, 0}, 0, CUDA_LIMIT_REGISTERS},
    // 7 warps of 72 * 32 = 2304: 7 a partition, 28 in all; 28 / 7
    {"sm_90a", {224, 72, 1, 0, 0}, 4, CUDA_LIMIT_REGISTERS},
    // 73 * 32 = 2336 -> 2560: 6 a partition, 24 / 7
    {"sm_90a", {224, 73, 1, 0, 0}, 3, CUDA_LIMIT_REGISTERS},
    // 25 warps of 2560 would fit, were the registers in one piece
    {"sm_90a", {32, 73, 1, 0, 0}, 24, CUDA_LIMIT_REGISTERS},
    // 36 * 32 = 1152 -> 1280, not more finely: 12 a partition, 48 / 2
    {"sm_90a", {64, 36, 1, 0, 0}, 24, CUDA_LIMIT_REGISTERS},
    // one thread still takes a warp; 32 blocks at most
    {"sm_90a", {1, 16, 1, 0, 0}, 32, CUDA_LIMIT_BLOCKS},
    {"sm_86", {32, 16, 1, 0, 0}, 16, CUDA_LIMIT_BLOCKS},
    {"sm_89", {32, 16, 1, 0, 0}, 24, CUDA_LIMIT_BLOCKS},
    // 227 KB is the most for a block; with 1 KB reserved it fills the 228
    {"sm_90a", {128, 32, 1, 0, 227 * 1024}, 1, CUDA_LIMIT_SHARED},
    {"sm_90a", {128, 32, 1, 0, 227 * 1024 + 1}, 0, CUDA_LIMIT_SHARED},
    // 113 KB + 1 KB twice is 228 KB exactly; a byte more takes 128
    {"sm_90a", {128, 32, 1, 0, 113 * 1024}, 2, CUDA_LIMIT_SHARED},
    {"sm_90a", {128, 32, 1, 0, 113 * 1024 + 1}, 1, CUDA_LIMIT_SHARED},
    // 45666 + 1024 -> 46720: 4 of them; 5 would fit to the byte
    {"sm_90a", {128, 32, 1, 0, 45666}, 4, CUDA_LIMIT_SHARED},
    {"sm_80", {128, 32, 1, 0, 163 * 1024}, 1, CUDA_LIMIT_SHARED},
    {"sm_80", {128, 32, 1, 0, 164 * 1024}, 0, CUDA_LIMIT_SHARED},
    {"sm_120", {128, 32, 1, 0, 49 * 1024}, 2, CUDA_LIMIT_SHARED},
    {"sm_120", {128, 32, 1, 0, 99 * 1024 + 1}, 0, CUDA_LIMIT_SHARED},
    // 48 warps on sm_86: 1536 / 1024
    {"sm_86", {1024, 32, 1, 0, 0}, 1, CUDA_LIMIT_THREADS},
    {"sm_90a", {1025, 32, 1, 0, 0}, 0, CUDA_LIMIT_THREADS},
    {"sm_90a", {0, 32, 1, 0, 0}, 0, CUDA_LIMIT_THREADS},
    // 64 barriers on sm_90, 24 on sm_120; not counted before
    {"sm_90a", {64, 32, 16, 0, 0}, 4, CUDA_LIMIT_BARRIERS},
    {"sm_120", {64, 32, 13, 0, 0}, 1, CUDA_LIMIT_BARRIERS},
    {"sm_80", {64, 32, 16, 0, 0}, 32, CUDA_LIMIT_THREADS},
    {"sm_90a", {256, 255, 1, 8, 0}, 1, CUDA_LIMIT_REGISTERS},
    {"sm_90a", {256, 32, 1, 9, 0}, 0, CUDA_LIMIT_CLUSTER},
    {"sm_80", {256, 32, 1, 2, 0}, 0, CUDA_LIMIT_CLUSTER},
    {"sm_80", {256, 256, 1, 1, 0}, 0, CUDA_LIMIT_REGISTERS},
    // Nothing is reserved on sm_75: a block without shared memory takes none.
    {"sm_75", {1024, 32, 1, 0, 0}, 1, CUDA_LIMIT_THREADS},
    {"sm_75", {32, 32, 1, 0, 64 * 1024}, 1, CUDA_LIMIT_SHARED},
};

static void test_occupancy(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(occupancy_cases); i++) {
    const struct occupancy_case *c = &occupancy_cases[i];
    cuda_arch arch;
    assert_true(cuda_arch_find(c->arch, &arch));
    const cuda_occupancy o = cuda_occupancy_of(&arch, &c->footprint);
    if (o.blocks != c->blocks || o.limit != c->limit)
      fail_msg("case %zu: %u blocks for %s, expected %u for %s", i, o.blocks,
               cuda_limit_name(o.limit), c->blocks, cuda_limit_name(c->limit));
    uint32_t warps = (c->footprint.threads + 31) / 32;
    assert_int_equal(o.warps, c->blocks * warps);
    assert_near(o.share * o.warps_limit, o.warps, 1e-12);
  }
}

// ---- roofline -----------------------------------------------------------------------------------

// Nine sources read and one output written for each token, D=7168, bf16.
static cuda_work k3_site(int64_t rows, int64_t blocks) {
  return (cuda_work){.rows = rows,
                     .dram_bytes = 10 * 7168 * 2,
                     .flops = 7168 * 9 * 6,
                     .barriers = 2,
                     .blocks = blocks};
}

static void test_roofline_memory(void **state) {
  (void)state;
  cuda_work work = k3_site(8192, 132);
  cuda_roofline r = cuda_roofline_of(cuda_gpu_find("H200"), 1, &work);
  assert_int_equal(r.binding, CUDA_BOUND_DRAM);
  assert_near(r.floor, 244.67, 1e-3); // 1.1744 GB at 4.8 TB/s: the example of docs/roofline.md
  assert_near(r.microseconds[CUDA_BOUND_L2], 70.21, 1e-3);
  assert_near(r.microseconds[CUDA_BOUND_FP32], 47.33, 1e-3);
  assert_near(r.microseconds[CUDA_BOUND_LATENCY], 2 + 63 * 0.64, 1e-9);
  assert_true(r.microseconds[CUDA_BOUND_TENSOR] == 0);
  assert_true(r.memory_share == 1);

  // Every source read twice, the second time from L2: no slower, the memory is the bound.
  work.l2_bytes = 9 * 7168 * 2;
  cuda_roofline twice = cuda_roofline_of(cuda_gpu_find("H200"), 1, &work);
  assert_true(twice.floor == r.floor);
  assert_near(twice.microseconds[CUDA_BOUND_L2], 70.21 * 1.9, 1e-3);
}

// One token: one multiprocessor, whose port and the trips count; eight share it better.
static void test_roofline_decode(void **state) {
  (void)state;
  cuda_work work = k3_site(1, 1);
  work.once_bytes = 7168 * 4;
  cuda_roofline alone = cuda_roofline_of(cuda_gpu_find("H200"), 1, &work);
  assert_int_equal(alone.binding, CUDA_BOUND_LATENCY);
  assert_near(alone.floor, 2.64, 1e-9);
  assert_near(alone.microseconds[CUDA_BOUND_L2], 172032 / (64 * 1980.), 1e-9);
  assert_true(alone.memory_share < 0.02);

  work.blocks = work.blocks_per_row = 8;
  cuda_roofline shared = cuda_roofline_of(cuda_gpu_find("H200"), 1, &work);
  assert_near(alone.microseconds[CUDA_BOUND_L2] / shared.microseconds[CUDA_BOUND_L2], 8, 1e-9);
  assert_near(alone.microseconds[CUDA_BOUND_FP32] / shared.microseconds[CUDA_BOUND_FP32], 8, 1e-9);

  // 64 tokens on clusters of 8: 16 at a time, 4 rounds; two rows at once halve them.
  work.rows = 64, work.blocks = 512;
  assert_near(cuda_roofline_of(cuda_gpu_find("H200"), 1, &work).microseconds[CUDA_BOUND_LATENCY],
              2 + 4 * 0.64, 1e-9);
  work.rows_at_once = 2;
  assert_near(cuda_roofline_of(cuda_gpu_find("H200"), 1, &work).microseconds[CUDA_BOUND_LATENCY],
              2 + 2 * 0.64, 1e-9);
}

static void test_roofline_compute(void **state) {
  (void)state;
  cuda_work work = k3_site(8192, 1 << 20);
  work.flops = 1e6;
  cuda_roofline r = cuda_roofline_of(cuda_gpu_find("RTX 5090"), 2, &work);
  assert_int_equal(r.binding, CUDA_BOUND_DRAM); // 655 us against 78
  work.flops = 1e7;
  r = cuda_roofline_of(cuda_gpu_find("RTX 5090"), 2, &work);
  assert_int_equal(r.binding, CUDA_BOUND_FP32);
  assert_near(r.floor, 8192 * 1e7 / 104.8e6, 1e-9);
  work.tensor_flops = 1e8;
  r = cuda_roofline_of(cuda_gpu_find("RTX 5090"), 2, &work);
  assert_int_equal(r.binding, CUDA_BOUND_TENSOR);
  assert_near(r.floor, 8192 * 1e8 / 209.5e6, 1e-9);
  work.l2_bytes = 1e9;
  r = cuda_roofline_of(cuda_gpu_find("RTX 5090"), 2, &work);
  assert_int_equal(r.binding, CUDA_BOUND_L2);

  work.rows = 0;
  r = cuda_roofline_of(cuda_gpu_find("RTX 5090"), 2, &work);
  assert_true(r.floor == 0 && r.memory_share == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_occupancy),
      cmocka_unit_test(test_roofline_memory),
      cmocka_unit_test(test_roofline_decode),
      cmocka_unit_test(test_roofline_compute),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
