// What prelude_common.cuh computes, in the emulator: reductions of every shape that matters, over
// warps, teams and clusters, and rounding. test_nvrtc compiles the same kernels for GPUs.
#include "codegen/emulator/emulator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEEDS = 40, THREADS = 64, SHARED = 16384 };
enum { BANK = 64 * 64, GAIN = 2048, OUT = 16384 };

extern const char cuda_prelude_common[];

// As in prelude_smoke.cu.
typedef struct arguments {
  const uint16_t *bank[8];
  const uint16_t *half;
  const float *gain;
  uint16_t *y;
  float *out;
  char *workspace;
  long long T;
} arguments;

static const char rounding[] =
    "extern \"C\" __global__ void rounding(const __grid_constant__ smoke_args a) {\n"
    "  long long i = fm_block() * 64 + fm_thread();\n"
    "  fm_store(a.out + i, fm_round<fm_bf16>(fm_load(a.gain + i)));\n"
    "}\n"
    "FM_ENTRY(rounding, smoke_args)\n";

typedef struct fixture {
  base_arena arena;
  base_diag diag;
  rt_device *device;
  rt_code *code;
  arguments a;
  float *gain, *out;
  uint16_t *bank;
} fixture;

static float widen(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}

static uint32_t bits_of(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  return word;
}

static void check(fixture *f, base_status status) {
  if (status != BASE_OK) fail_msg("%s", base_diag_render(&f->diag).data);
}

static void *array(size_t bytes) {
  return aligned_alloc(128, bytes);
}

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  base_arena_init(&f->arena, NULL);
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
  base_str kernels, why;
  const char *path =
      base_str_format(&f->arena, "%s/prelude_smoke.cu", getenv("FATHOM_TEST_DATA")).data;
  if (base_file_read(&f->arena, path, &kernels, &why) != BASE_OK) fail_msg("%s", why.data);
  const rt_image image = {
      .text = base_str_format(&f->arena, "%s%s%s", cuda_prelude_common, kernels.data, rounding)};
  check(f, emu_device_create(&(emu_options){.cache_directory = getenv("FATHOM_CACHE")}, &f->device,
                             &f->diag));
  check(f, f->device->ops->load(f->device, &image, &f->code, &f->diag));
  f->bank = array(BANK * 2);
  f->gain = array(GAIN * 4);
  f->out = array(OUT * 4);
  for (int i = 0; i < BANK; i++) // whole numbers, so that sums are exact
    f->bank[i] = (uint16_t)(bits_of((float)(i * 37 % 41 - 20)) >> 16);
  for (int i = 0; i < GAIN; i++)
    f->gain[i] = (float)(i * 53 % 61 - 30);
  f->a = (arguments){.bank = {f->bank}, .gain = f->gain, .out = f->out};
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  f->device->ops->unload(f->device, f->code);
  f->device->ops->destroy(f->device);
  free(f->bank);
  free(f->gain);
  free(f->out);
  base_arena_reset(&f->arena);
  free(f);
  return 0;
}

static void launch(fixture *f, const char *name, int64_t blocks, uint32_t cluster) {
  const rt_span spans[] = {{"bank", (char *)f->bank, BANK * 2, false},
                           {"gain", (char *)f->gain, GAIN * 4, false},
                           {"out", (char *)f->out, OUT * 4, true}};
  rt_device_launch l = {.blocks = blocks,
                        .threads = THREADS,
                        .cluster = cluster,
                        .shared_bytes = SHARED,
                        .parameters = &f->a,
                        .parameter_bytes = sizeof f->a,
                        .span_count = 3,
                        .spans = spans};
  check(f, f->device->ops->find(f->device, f->code, name, THREADS, SHARED, &l.function, NULL,
                                &f->diag));
  check(f, f->device->ops->launch(f->device, NULL, &l, &f->diag));
}

static void expect_same(float value, float expected, const char *what, int k, int t) {
  if (isnan(expected) ? !isnan(value) : value != expected)
    fail_msg("%s %d, thread %d: %g instead of %g", what, k, t, (double)value, (double)expected);
}

// Adds up, and finds the largest of, value k of threads first .. first + count - 1.
static void reduce(const float *values, int count, float *sum, float *most) {
  *sum = 0;
  *most = -INFINITY;
  for (int t = 0; t < count; t++) {
    *sum += values[t];
    *most = isnan(values[t]) || isnan(*most) ? NAN : fmaxf(*most, values[t]);
  }
}

static void test_teams(void **state) {
  fixture *f = *state;
  static const int shapes[][2] = {{1, 1}, {1, 2},  {2, 2},  {3, 1},
                                  {9, 2}, {18, 1}, {32, 2}, {33, 2}};
  f->bank[64 * 2 + 40] = 0x7fc0; // NaN: value 2 of thread 40
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    emu_device_set_seed(f->device, seed);
    launch(f, "smoke_reduce", 1, 1);
    const float *out = f->out;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      const int K = shapes[s][0], team = 32 * shapes[s][1];
      for (int k = 0; k < K; k++)
        for (int t = 0; t < THREADS; t++) {
          float values[THREADS], sum, most;
          for (int i = 0; i < THREADS; i++)
            values[i] = widen(f->bank[64 * k + i]);
          reduce(values + t / team * team, team, &sum, &most);
          expect_same(out[64 * k + t], sum, "sum", k, t);
          expect_same(out[64 * (K + k) + t], most, "maximum", k, t);
        }
      out += 128 * K;
    }
  }
}

static void test_clusters(void **state) {
  fixture *f = *state;
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    emu_device_set_seed(f->device, seed);
    launch(f, "smoke_cluster", 2, 2);
    for (int k = 0; k < 9; k++) {
      float both[2 * THREADS], sum, most;
      memcpy(both, f->gain + 64 * k, THREADS * 4);
      memcpy(both + THREADS, f->gain + 1024 + 64 * k, THREADS * 4);
      reduce(both, 2 * THREADS, &sum, &most);
      for (int t = 0; t < 2 * THREADS; t++) {
        const float *out = f->out + 1024 * (t / THREADS) + t % THREADS;
        expect_same(out[64 * k], sum, "sum", k, t);
        if (k < 3) expect_same(out[64 * (9 + k)], most, "maximum", k, t);
      }
    }
  }
}

// The nearer of the two neighbours, by exact distances.
static float nearest(float x) {
  if (isnan(x)) return NAN;
  const uint16_t below = (uint16_t)(bits_of(x) >> 16), above = (uint16_t)(below + 1);
  if (isinf(x)) return x;
  // What lies above the largest finite number counts as the power of two that would come next.
  const double up = isinf(widen(above)) ? copysign(ldexp(1, 128), x) : (double)widen(above);
  const double to_below = fabs(x - (double)widen(below)), to_above = fabs(up - x);
  return to_below < to_above || (to_below == to_above && below % 2 == 0) ? widen(below)
                                                                         : widen(above);
}

static void test_rounding(void **state) {
  fixture *f = *state;
  static const uint32_t patterns[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  static const uint32_t tops[] = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f80, 0x3f81, 0x42ff, 0x7f7e,
                                  0x7f7f, 0x7f80, 0x7fbf, 0x7fc0, 0x7fff, 0x8000, 0xbf80, 0xff7f};
  int count = 0;
  for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
    for (size_t j = 0; j < sizeof patterns / sizeof *patterns; j++) {
      const uint32_t word = tops[i] << 16 | patterns[j];
      memcpy(&f->gain[count++], &word, 4);
    }
  for (uint32_t random = 1; count < GAIN; random = random * 1664525 + 1013904223)
    memcpy(&f->gain[count++], &random, 4);
  launch(f, "rounding", GAIN / THREADS, 1);
  for (int i = 0; i < GAIN; i++) {
    const float expected = nearest(f->gain[i]);
    if (isnan(expected) ? !isnan(f->out[i]) : bits_of(f->out[i]) != bits_of(expected))
      fail_msg("%08x became %08x, not %08x", bits_of(f->gain[i]), bits_of(f->out[i]),
               bits_of(expected));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_teams, setup, teardown),
      cmocka_unit_test_setup_teardown(test_clusters, setup, teardown),
      cmocka_unit_test_setup_teardown(test_rounding, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
