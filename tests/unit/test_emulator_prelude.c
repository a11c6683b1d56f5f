// prelude_common.cuh in the emulator: reductions over warps, teams and clusters, conversions and
// packed accesses against plain loops, under ten seeds. The same text runs on a GPU.
#include "codegen/emulator/emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "codegen/emulator/emulator_abi.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

extern const char cuda_prelude_common[];

enum { SEEDS = 10, SHARED = 64 << 10 };

typedef struct arguments {
  const float *in;
  float *out;
  const unsigned short *half;
  unsigned short *narrow;
} arguments;

static const char *const kernels[] = {
    "struct arguments {\n"
    "  const float *in; float *out; const fm_f16 *half; unsigned short *narrow;\n"
    "};\n",
    // Value k of a thread is in[k threads + thread]. Totals and largest values of each team, and of
    // all blocks of a cluster, twice in a row through the same areas.
    "template <int K, int WARPS, int BLOCKS>\n"
    "FM_DEVICE void reduce(const arguments &a) {\n"
    "  float *exchange = (float *)fm_shared(), sum[K], most[K];\n"
    "  int team = fm_thread() / (32 * WARPS), teams = BLOCKS ? 1 : 2;\n"
    "  int threads = 32 * WARPS * teams;\n"
    "  exchange += K * WARPS * team;\n"
    "  long long block = fm_block();\n"
    "  for (int k = 0; k < K; k++)\n"
    "    sum[k] = most[k] = fm_load(a.in + (block * K + k) * threads + fm_thread());\n"
    "  fm_totals<K> sums, largest;\n"
    "  if constexpr (BLOCKS > 0) {\n"
    "    sums = fm_cluster_totals<fm_op_sum, WARPS, BLOCKS>(sum, exchange, 0);\n"
    "    fm_cluster_barrier();\n"
    "    largest = fm_cluster_totals<fm_op_max, WARPS, BLOCKS>(most, exchange, 0);\n"
    "  } else {\n"
    "    sums = fm_team_totals<fm_op_sum, WARPS>(sum, exchange, 1 + team);\n"
    "    fm_barrier(1 + team, 32 * WARPS);\n"
    "    largest = fm_team_totals<fm_op_max, WARPS>(most, exchange, 1 + team);\n"
    "  }\n"
    "  float *out = a.out + block * 2 * K * threads + fm_thread();\n"
    "  for (int k = 0; k < K; k++) fm_store(out + k * threads, fm_total(sums, k));\n"
    "  for (int k = 0; k < K; k++) fm_store(out + (K + k) * threads, fm_total(largest, k));\n"
    "  if constexpr (BLOCKS > 0) fm_cluster_barrier();\n"
    "}\n"
    "#define REDUCE(NAME, K, WARPS, BLOCKS) \\\n"
    "  extern \"C\" __global__ void NAME(const __grid_constant__ arguments a) { \\\n"
    "    reduce<K, WARPS, BLOCKS>(a); \\\n"
    "  } \\\n"
    "  FM_ENTRY(NAME, arguments)\n"
    "REDUCE(team_1_1, 1, 1, 0)\n"
    "REDUCE(team_2_7, 2, 7, 0)\n"
    "REDUCE(team_9_14, 9, 14, 0)\n"
    "REDUCE(team_32_2, 32, 2, 0)\n"
    "REDUCE(team_33_3, 33, 3, 0)\n"
    "REDUCE(cluster_1_1, 1, 1, 2)\n"
    "REDUCE(cluster_9_7, 9, 7, 4)\n"
    "REDUCE(cluster_34_2, 34, 2, 8)\n",
    // f32 to both narrow types and back, in accesses of 16 bytes.
    "extern \"C\" __global__ void convert(const __grid_constant__ arguments a) {\n"
    "  int i = 8 * fm_thread();\n"
    "  float x[8], y[4];\n"
    "  for (int h = 0; h < 2; h++) {\n"
    "    fm_unpack<float>(y, fm_load_raw<16>(a.in + i + 4 * h));\n"
    "    for (int j = 0; j < 4; j++) x[4 * h + j] = y[j];\n"
    "  }\n"
    "  fm_store_raw(a.narrow + i, fm_pack<fm_bf16>(x));\n"
    "  fm_store_raw(a.narrow + 256 + i, fm_pack<fm_f16>(x));\n"
    "  fm_unpack<fm_f16>(x, fm_load_raw<16>(a.half + i));\n"
    "  float *shared = (float *)fm_shared();\n"
    "  fm_shared_store(shared + i, x);\n"
    "  fm_warp_barrier();\n"
    "  fm_shared_load(x, shared + (i ^ 8));\n"
    "  for (int j = 0; j < 8; j++) fm_store(a.out + (i ^ 8) + j, x[j]);\n"
    "}\n"
    "FM_ENTRY(convert, arguments)\n"
    // Half of a vector of shared memory.
    "extern \"C\" __global__ void crooked(const __grid_constant__ arguments a) {\n"
    "  float x[4];\n"
    "  fm_shared_load(x, (float *)fm_shared() + 2);\n"
    "  fm_store(a.out, x[0]);\n"
    "}\n"
    "FM_ENTRY(crooked, arguments)\n",
};

// ---- fixture ------------------------------------------------------------------------------------

typedef struct fixture {
  base_arena arena;
  base_diag diag;
  rt_device *device;
  rt_code *code;
} fixture;

static const char *rendered(fixture *f) {
  return f->diag.reports.count ? base_diag_render(&f->diag).data : "nothing was reported";
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  base_arena_init(&f->arena, NULL);
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
  base_text text = {.arena = &f->arena};
  base_text_printf(&text, "#line 1 \"prelude_common.cuh\"\n%s\n#line 1 \"kernel.cu\"\n",
                   cuda_prelude_common);
  for (size_t i = 0; i < COUNT(kernels); i++)
    base_text_append(&text, kernels[i], strlen(kernels[i]));
  const emu_options options = {.seed = 1, .cache_directory = getenv("FATHOM_CACHE")};
  const rt_image image = {.text = base_text_str(&text)};
  if (emu_device_create(&options, &f->device, &f->diag) != BASE_OK ||
      f->device->ops->load(f->device, &image, &f->code, &f->diag) != BASE_OK)
    fail_msg("%s", rendered(f));
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  f->device->ops->unload(f->device, f->code);
  f->device->ops->destroy(f->device);
  base_arena_reset(&f->arena);
  free(f);
  return 0;
}

static base_status launch(fixture *f, const char *name, const arguments *a, uint32_t blocks,
                          uint32_t threads, uint32_t cluster) {
  rt_function *function;
  if (f->device->ops->find(f->device, f->code, name, threads, SHARED, &function, NULL, &f->diag) !=
      BASE_OK)
    fail_msg("%s", rendered(f));
  const rt_device_launch l = {.function = function,
                              .blocks = blocks,
                              .threads = threads,
                              .cluster = cluster,
                              .shared_bytes = SHARED,
                              .parameters = a,
                              .parameter_bytes = sizeof *a};
  return f->device->ops->launch(f->device, NULL, &l, &f->diag);
}

// ---- reductions ---------------------------------------------------------------------------------

typedef struct reduction {
  const char *name;
  uint32_t k, warps, blocks; // blocks of a cluster; 0: two teams of one block
} reduction;

// Small whole numbers, so that sums are exact in any order.
static float value(size_t i) {
  return (float)(i * 7919 % 201) - 100;
}

// Over `count` threads from `first`, in each of `blocks` blocks.
static void expect_totals(const reduction *r, const float *in, const float *out, uint32_t block,
                          uint32_t first, uint32_t count, uint32_t blocks) {
  const uint32_t threads = r->blocks ? 32 * r->warps : 64 * r->warps;
  for (uint32_t k = 0; k < r->k; k++) {
    float sum = 0, most = -INFINITY;
    for (uint32_t b = 0; b < blocks; b++) {
      const float *row = in + ((block / blocks * blocks + b) * r->k + k) * threads;
      for (uint32_t t = first; t < first + count; t++) {
        sum += row[t];
        most = isnan(row[t]) || row[t] > most ? row[t] : most;
      }
    }
    for (uint32_t t = first; t < first + count; t++) {
      const float *at = out + (size_t)block * 2 * r->k * threads + t;
      const float got[2] = {at[k * threads], at[(r->k + k) * threads]};
      if (!(got[0] == sum || (isnan(sum) && isnan(got[0]))))
        fail_msg("%s: value %u, thread %u: sum %g, expected %g", r->name, k, t, got[0], sum);
      if (!(got[1] == most || (isnan(sum) && isnan(got[1]))))
        fail_msg("%s: value %u, thread %u: max %g, expected %g", r->name, k, t, got[1], most);
    }
  }
}

static void check_reduction(fixture *f, const reduction *r) {
  const uint32_t blocks = r->blocks ? 2 * r->blocks : 2;
  const uint32_t threads = r->blocks ? 32 * r->warps : 64 * r->warps;
  const size_t count = (size_t)blocks * r->k * threads;
  float *in = calloc(count, sizeof *in), *out = calloc(2 * count, sizeof *out);
  for (size_t i = 0; i < count; i++)
    in[i] = value(i);
  in[count / 3] = NAN; // reaches the totals of one value of one team only
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    emu_device_set_seed(f->device, seed);
    const arguments a = {.in = in, .out = out};
    if (launch(f, r->name, &a, blocks, threads, r->blocks ? r->blocks : 1) != BASE_OK)
      fail_msg("%s", rendered(f));
    for (uint32_t block = 0; block < blocks; block++) {
      if (r->blocks) {
        expect_totals(r, in, out, block, 0, threads, r->blocks);
      } else {
        expect_totals(r, in, out, block, 0, threads / 2, 1);
        expect_totals(r, in, out, block, threads / 2, threads / 2, 1);
      }
    }
  }
  free(in);
  free(out);
}

static void test_reductions(void **state) {
  static const reduction reductions[] = {
      {"team_1_1", 1, 1, 0},    {"team_2_7", 2, 7, 0},      {"team_9_14", 9, 14, 0},
      {"team_32_2", 32, 2, 0},  {"team_33_3", 33, 3, 0},    {"cluster_1_1", 1, 1, 2},
      {"cluster_9_7", 9, 7, 4}, {"cluster_34_2", 34, 2, 8},
  };
  for (size_t i = 0; i < COUNT(reductions); i++)
    check_reduction(*state, &reductions[i]);
}

// ---- conversions --------------------------------------------------------------------------------

static void test_conversions(void **state) {
  fixture *f = *state;
  enum { VALUES = 256 };
  _Alignas(16) float in[VALUES], out[VALUES];
  _Alignas(16) unsigned short half[VALUES], narrow[2 * VALUES];
  for (int i = 0; i < VALUES; i++) {
    // All signs and exponents, some NaN; every other one halfway between two bf16.
    const unsigned bits = (unsigned)i * 0x01010101u;
    in[i] = fm_float_of(i % 2 ? bits : (bits & 0xffff0000u) | 0x8000u);
    half[i] = (unsigned short)(i * 257);
  }
  const arguments a = {.in = in, .out = out, .half = half, .narrow = narrow};
  if (launch(f, "convert", &a, 1, 32, 1) != BASE_OK) fail_msg("%s", rendered(f));
  for (int i = 0; i < VALUES; i++) {
    const unsigned bits = fm_word_of(in[i]);
    const unsigned bf16 =
        isnan(in[i]) ? (bits | 0x400000) >> 16 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    assert_int_equal(narrow[i], bf16);
    assert_int_equal(narrow[VALUES + i], fm_narrow_half(in[i]));
    assert_int_equal(fm_word_of(out[i]), fm_word_of(fm_widen_half(half[i])));
  }
}

// The line in the kernels' part of the text that holds `words`.
static unsigned line_of(fixture *f, const char *words) {
  base_text text = {.arena = &f->arena};
  for (size_t i = 0; i < COUNT(kernels); i++)
    base_text_append(&text, kernels[i], strlen(kernels[i]));
  unsigned line = 1;
  for (const char *at = text.data, *end = strstr(at, words); at < end; at++)
    line += *at == '\n';
  return line;
}

// A fault inside a helper names the line of the kernel that called it, and the helper.
static void test_place(void **state) {
  fixture *f = *state;
  float out;
  const arguments a = {.out = &out};
  assert_int_equal(launch(f, "crooked", &a, 1, 32, 1), BASE_INTERNAL);
  const char *text = rendered(f);
  assert_non_null(strstr(text, "accesses 16 bytes at address "));
  unsigned line = 0;
  const char *place = strstr(text, "(line ");
  assert_non_null(place);
  assert_int_equal(sscanf(place, "(line %u, in ", &line), 1);
  assert_non_null(strstr(place, " at line "));
  assert_non_null(strstr(text, " of prelude_common.cuh)"));
  assert_int_equal(line, line_of(f, "fm_shared_load(x, (float *)fm_shared() + 2)"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_reductions, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_conversions, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_place, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
