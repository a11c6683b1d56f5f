// The emulator with kernels written by hand: what it computes, and that each mistake that a GPU
// would answer with a wrong result, a hang or an error ends in a message that names it.
#include "codegen/emulator/emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/emulator/emulator_abi.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { SEEDS = 10, SHARED = 4096 };

// All kernels take this.
typedef struct arguments {
  const float *in;
  float *out;
  long long count;
  int variant;
} arguments;

// One text for most tests, so that it is compiled once: all of these, one after the other. Lines of
// faults are counted from its first.
static const char *const kernels[] = {
    "struct arguments { const float *in; float *out; long long count; int variant; };\n"
    "FM_DEVICE float get(const float *p, fm_site site = {__builtin_FILE(), __builtin_LINE()}) {\n"
    "  return fm_from_bits(fm_load_raw<4>(p, site).word[0]);\n"
    "}\n"
    "FM_DEVICE void put(float *p, float x) {\n"
    "  fm_raw<4> raw = {{fm_bits(x)}};\n"
    "  fm_store_raw(p, raw);\n"
    "}\n",
#define KERNEL(NAME, BODY)                                                                         \
  "extern \"C\" __global__ void __launch_bounds__(64, 1) " NAME                                    \
  "(const __grid_constant__ arguments a) {\n"                                                      \
  "  float *shared = (float *)fm_shared(); int t = fm_thread(); (void)shared; (void)t;\n" BODY     \
  "}\nFM_ENTRY(" NAME ", arguments)\n"
    // out = 2 in. Variant 1 lacks the check of the boundary.
    KERNEL("twice", "  long long i = fm_block() * 64 + t;\n"
                    "  if (i < a.count || a.variant == 1) put(a.out + i, 2 * get(a.in + i));\n"),
    // Each block adds its 64 values, thread 0 reads the partial sums. Variant 1 lacks the barrier.
    KERNEL("reduce", "  shared[t] = get(a.in + fm_block() * 64 + t);\n"
                     "  if (a.variant != 1) fm_barrier(0, 64);\n"
                     "  float sum = 0;\n"
                     "  if (t == 0) {\n"
                     "    for (int i = 0; i < 64; i++) sum += shared[i];\n"
                     "    put(a.out + fm_block(), sum);\n"
                     "  }\n"),
    // A butterfly, and a broadcast of lane 5; then votes.
    KERNEL("butterfly", "  float x = get(a.in + t);\n"
                        "  for (int m = 1; m < 32; m *= 2) x += fm_shuffle_xor(x, m);\n"
                        "  put(a.out + t, x);\n"
                        "  put(a.out + 64 + t, fm_shuffle(get(a.in + t), 5));\n"
                        "  put(a.out + 128 + t, fm_ballot(t % 3 == 0) & 0xffffff);\n"
                        "  put(a.out + 192 + t, fm_any(t == 40));\n"
                        "  fm_warp_barrier();\n"),
    // Lanes 0 .. 15 shuffle. Variants: the others return, are at another call, or ask for lane 32.
    KERNEL("half_warp", "  float x = 1;\n"
                        "  if (a.variant == 2) x = fm_shuffle(x, 32);\n"
                        "  if (t % 32 < 16) x = fm_shuffle_xor(x, 1);\n"
                        "  else if (a.variant == 1) fm_warp_barrier();\n"
                        "  put(a.out + t, x);\n"),
    KERNEL("two_barriers", "  if (t < 32) fm_barrier(0, 64);\n"
                           "  else if (a.variant == 0) fm_barrier(1, 64);\n"
                           "  else if (a.variant == 1) fm_barrier(0, 32);\n"
                           "  else fm_barrier(16, 32);\n"),
    // Variants: misaligned, in front, written where only read, of the wrong kind.
    KERNEL("astray", "  if (t != 5) return;\n"
                     "  if (a.variant == 0) fm_load_raw<8>(a.in + 1);\n"
                     "  if (a.variant == 1) get(a.in - 1);\n"
                     "  if (a.variant == 2) put((float *)a.in, 1);\n"
                     "  if (a.variant == 3) get(shared);\n"
                     "  if (a.variant == 4) fm_load_raw<16>(a.in + a.count - 2);\n"
                     "  if (a.variant == 5) shared[1024] = 1;\n"),
    // Four copies in two groups. Variants: 0 right, 1 the wait is missing, 2 one group too few,
    // 3 nothing is waited for.
    KERNEL("copy", "  fm_copy_async<4>(shared + t, a.in + t);\n"
                   "  fm_copy_commit();\n"
                   "  fm_copy_async<4>(shared + 64 + t, a.in + 64 + t);\n"
                   "  fm_copy_commit();\n"
                   "  if (a.variant == 0) fm_copy_wait<0>();\n"
                   "  if (a.variant == 2) fm_copy_wait<1>();\n"
                   "  put(a.out + t, shared[t] + shared[64 + t]);\n"
                   "  if (a.variant != 3) fm_copy_wait<0>();\n"),
    // A producer warp fills stages, two floats for each of 32 consumers, which add pairs up.
    // Variants: 1 the producer does not wait for a free stage, 2 consumers do not wait for a full
    // one, 3 consumers forget to say that it is free, 4 twice the bytes are expected, 5 one stage
    // more than there are mbarriers for, 6 no fence.
    KERNEL("ring",
           "  enum { STAGES = 3, FLOATS = 64 };\n"
           "  unsigned long long *full = (unsigned long long *)(shared + STAGES * FLOATS);\n"
           "  unsigned long long *empty = full + STAGES;\n"
           "  int stages = a.variant == 5 ? STAGES + 1 : STAGES;\n"
           "  if (t == 0) {\n"
           "    for (int s = 0; s < STAGES; s++) {\n"
           "      fm_ring_init(full + s, 1);\n"
           "      fm_ring_init(empty + s, 32);\n"
           "    }\n"
           "    if (a.variant != 6) fm_ring_fence();\n"
           "  }\n"
           "  fm_barrier(0, 64);\n"
           "  for (int i = 0; i < (int)a.count; i++) {\n"
           "    int s = i % stages, parity = i / stages % 2;\n"
           "    if (t == 32) {\n"
           "      if (a.variant != 1) fm_ring_wait(empty + s, parity ^ 1);\n"
           "      fm_ring_expect(full + s, a.variant == 4 ? 512 : 256);\n"
           "      fm_bulk_copy(shared + s * FLOATS, a.in + i * FLOATS, 256, full + s);\n"
           "    } else if (t < 32) {\n"
           "      if (a.variant != 2) fm_ring_wait(full + s, parity);\n"
           "      float *stage = shared + s * FLOATS;\n"
           "      put(a.out + i * 32 + t, stage[t] + stage[32 + t]);\n"
           "      if (a.variant != 3) fm_ring_arrive(empty + s);\n"
           "    }\n"
           "  }\n"),
    // One bulk copy, which variant 1 does not wait for before it reads, and variant 2 not at all.
    KERNEL("bulk", "  unsigned long long *ring = (unsigned long long *)(shared + 64);\n"
                   "  if (t == 0) {\n"
                   "    fm_ring_init(ring, 1);\n"
                   "    fm_ring_fence();\n"
                   "    fm_ring_expect(ring, 256);\n"
                   "    fm_bulk_copy(shared, a.in, 256, ring);\n"
                   "  }\n"
                   "  fm_barrier(0, 64);\n"
                   "  if (a.variant == 0) fm_ring_wait(ring, 0);\n"
                   "  put(a.out + t, shared[t]);\n"
                   "  if (a.variant != 2) fm_ring_wait(ring, 0);\n"),
    // The last one wins.
    KERNEL("order", "  put(a.out, t);\n"),
    // Each block gives the sum over its cluster. Variants: 1 without the last barrier, 2 without
    // the first, 3 a rank that is not there.
    KERNEL("cluster", "  int rank = fm_cluster_rank(), size = fm_cluster_size();\n"
                      "  if (t == 0) shared[0] = get(a.in + fm_block());\n"
                      "  if (t == 33) fm_cluster_store(shared + 1, (rank + 1) % size, rank);\n"
                      "  if (a.variant != 2) fm_cluster_barrier();\n"
                      "  if (t == 32) {\n"
                      "    float sum = 0;\n"
                      "    for (int r = 0; r < size + (a.variant == 3); r++)\n"
                      "      sum += fm_cluster_load(shared, r);\n"
                      "    put(a.out + fm_block(), sum);\n"
                      "    put(a.out + fm_blocks() + fm_block(), shared[1]);\n"
                      "  }\n"
                      "  if (a.variant != 1) fm_cluster_barrier();\n"),
    // One product of 16 x 16 by 16 x 8 for each warp; matrices as bf16 or f16 in rows, B turned.
    KERNEL("mma", "  const unsigned *m = (const unsigned *)a.in;\n"
                  "  int lane = t % 32, g = lane / 4, c = lane % 4;\n"
                  "  unsigned A[4], B[2];\n"
                  "  for (int i = 0; i < 4; i++)\n"
                  "    A[i] = fm_load_raw<4>(m + (g + i % 2 * 8) * 8 + c + i / 2 * 4).word[0];\n"
                  "  for (int i = 0; i < 2; i++)\n"
                  "    B[i] = fm_load_raw<4>(m + 128 + g * 8 + c + i * 4).word[0];\n"
                  "  float d[4] = {1, 2, 3, 4};\n"
                  "  if (a.variant) fm_mma_bf16(d, A, B); else fm_mma_f16(d, A, B);\n"
                  "  if (t >= 32) return;\n"
                  "  for (int i = 0; i < 4; i++)\n"
                  "    put(a.out + (g + i / 2 * 8) * 8 + c * 2 + i % 2, d[i]);\n"),
    // All threads read element 0 three times, and one of their own; halves are written twice.
    KERNEL("traffic", "  float sum = 0;\n"
                      "  for (int i = 0; i < 3; i++) sum += get(a.in);\n"
                      "  sum += get(a.in + 1 + fm_block() * 64 + t);\n"
                      "  put(a.out + fm_block() * 64 + t, sum);\n"
                      "  if (t < 32) put(a.out + fm_block() * 64 + t, sum);\n"),
    // Many switches.
    KERNEL("barriers", "  for (int i = 0; i < (int)a.count; i++) fm_barrier(0, a.variant);\n"),
    KERNEL("shuffles", "  for (int i = 0; i < (int)a.count; i++) fm_shuffle_xor(1, 1);\n"),
};

// ---- fixture ------------------------------------------------------------------------------------

typedef struct fixture {
  base_arena arena;
  base_diag diag;
  rt_device *device;
  rt_code *code;
  arguments a;
  rt_span spans[2];
  rt_traffic traffic[2];
  float *in, *out;
} fixture;

static const rt_device_facts facts = {.name = "test GPU",
                                      .major = 9,
                                      .multiprocessors = 132,
                                      .threads_per_block = 1024,
                                      .threads_per_multiprocessor = 2048,
                                      .blocks_per_multiprocessor = 32,
                                      .shared_per_block = 232448,
                                      .shared_per_multiprocessor = 233472,
                                      .shared_reserved = 1024};

static const char *rendered(fixture *f) {
  return f->diag.reports.count ? base_diag_render(&f->diag).data : "nothing was reported";
}

static void forget(fixture *f) {
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
}

static void load(fixture *f, const emu_options *options, base_str text) {
  if (emu_device_create(options, &f->device, &f->diag) != BASE_OK) fail_msg("%s", rendered(f));
  const rt_image image = {.text = text};
  if (f->device->ops->load(f->device, &image, &f->code, &f->diag) != BASE_OK)
    fail_msg("%s", rendered(f));
}

static base_str all_kernels(fixture *f) {
  base_text text = {.arena = &f->arena};
  for (size_t i = 0; i < COUNT(kernels); i++)
    base_text_printf(&text, "%s", kernels[i]);
  return base_text_str(&text);
}

static int set_up(void **state) {
  fixture *f = calloc(1, sizeof *f);
  base_arena_init(&f->arena, NULL);
  forget(f);
  load(f, &(emu_options){.seed = 1, .facts = facts, .cache_directory = getenv("FATHOM_CACHE")},
       all_kernels(f));
  *state = f;
  return 0;
}

static int tear_down(void **state) {
  fixture *f = *state;
  if (f->device) {
    f->device->ops->unload(f->device, f->code);
    f->device->ops->destroy(f->device);
  }
  free(f->in);
  free(f->out);
  base_arena_reset(&f->arena);
  free(f);
  return 0;
}

// Memory for the next launches: `in` counts from 0.5 in steps of 1, `out` is -1. Behind them are a
// few elements that belong to no span.
static void memory(fixture *f, size_t in_count, size_t out_count) {
  enum { BEHIND = 256 };
  free(f->in);
  free(f->out);
  f->in = aligned_alloc(128, (in_count + BEHIND) * 4 / 128 * 128 + 128);
  f->out = aligned_alloc(128, (out_count + BEHIND) * 4 / 128 * 128 + 128);
  for (size_t i = 0; i < in_count; i++)
    f->in[i] = 0.5f + (float)i;
  for (size_t i = 0; i < out_count; i++)
    f->out[i] = -1;
  f->a = (arguments){.in = f->in, .out = f->out, .count = (long long)in_count};
  f->spans[0] = (rt_span){"bank", (char *)f->in, in_count * 4, false};
  f->spans[1] = (rt_span){"y", (char *)f->out, out_count * 4, true};
}

typedef struct shape {
  int64_t blocks;
  uint32_t threads, cluster;
} shape;

static base_status launch(fixture *f, const char *name, shape s) {
  rt_function *function;
  if (f->device->ops->find(f->device, f->code, name, s.threads, SHARED, &function, NULL,
                           &f->diag) != BASE_OK)
    fail_msg("%s", rendered(f));
  const rt_device_launch l = {.function = function,
                              .blocks = s.blocks,
                              .threads = s.threads,
                              .cluster = s.cluster ? s.cluster : 1,
                              .shared_bytes = SHARED,
                              .parameters = &f->a,
                              .parameter_bytes = sizeof f->a,
                              .span_count = COUNT(f->spans),
                              .spans = f->spans,
                              .traffic = f->traffic};
  return f->device->ops->launch(f->device, NULL, &l, &f->diag);
}

static void run(fixture *f, const char *name, shape s) {
  if (launch(f, name, s) != BASE_OK) fail_msg("%s", rendered(f));
}

// The launch must fail, and the report must have all of these parts.
static void expect_fault(fixture *f, const char *name, shape s, const char *const *parts) {
  forget(f);
  const base_status status = launch(f, name, s);
  const char *text = rendered(f);
  if (status == BASE_OK) fail_msg("%s, variant %d: no fault", name, f->a.variant);
  for (; *parts; parts++)
    if (!strstr(text, *parts))
      fail_msg("%s, variant %d: expected '%s' in\n%s", name, f->a.variant, *parts, text);
  forget(f);
}
#define PARTS(...)                                                                                 \
  (const char *const[]) {                                                                          \
    __VA_ARGS__, NULL                                                                              \
  }

static void seed(fixture *f, uint64_t n) {
  emu_device_set_seed(f->device, n);
}

// Seeds of the ten with which the launch fails, or `wrong` says that what it computed is wrong.
static int caught(fixture *f, const char *name, shape s, bool (*wrong)(const fixture *)) {
  int count = 0;
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    if (launch(f, name, s) != BASE_OK || (wrong && wrong(f))) count++;
    forget(f);
  }
  return count;
}

// ---- what kernels compute -----------------------------------------------------------------------

static void test_boundary(void **state) {
  fixture *f = *state;
  memory(f, 1000, 1000);
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    run(f, "twice", (shape){16, 64, 0});
    for (int i = 0; i < 1000; i++)
      assert_true(f->out[i] == 2 * f->in[i]);
  }
  f->a.variant = 1;
  expect_fault(f, "twice", (shape){16, 64, 0},
               PARTS("kernel 'twice': thread ", " of block 15 reads 4 bytes at offset 40",
                     " of %bank, which ends at 4000 (line 12: "));
}

static bool reduce_is_wrong(const fixture *f) {
  float sum = 0;
  for (int i = 0; i < 64; i++)
    sum += f->in[i];
  return !(f->out[0] == sum);
}

static void test_barrier(void **state) {
  fixture *f = *state;
  memory(f, 64, 1);
  assert_int_equal(caught(f, "reduce", (shape){1, 64, 0}, reduce_is_wrong), 0);
  f->a.variant = 1;
  assert_true(caught(f, "reduce", (shape){1, 64, 0}, reduce_is_wrong) >= SEEDS / 2);
}

static void test_warps(void **state) {
  fixture *f = *state;
  memory(f, 64, 256);
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    run(f, "butterfly", (shape){1, 64, 0});
    for (int t = 0; t < 64; t++) {
      assert_true(f->out[t] == (t < 32 ? 512 : 512 + 32 * 32));
      assert_true(f->out[64 + t] == (t < 32 ? 5.5f : 37.5f));
      assert_true(f->out[128 + t] == (t < 32 ? 0x249249 : 0x492492));
      assert_true(f->out[192 + t] == (t >= 32));
    }
  }
}

enum { BLOCKS = 24, SIZE = 8 };

static bool cluster_is_wrong(const fixture *f) {
  for (int i = 0; i < BLOCKS; i++) {
    float sum = 0;
    for (int r = 0; r < SIZE; r++)
      sum += f->in[i / SIZE * SIZE + r];
    if (!(f->out[i] == sum && f->out[BLOCKS + i] == (float)((i + SIZE - 1) % SIZE))) return true;
  }
  return false;
}

static void test_cluster(void **state) {
  fixture *f = *state;
  const shape s = {BLOCKS, 64, SIZE};
  memory(f, BLOCKS, 2 * BLOCKS);
  assert_int_equal(caught(f, "cluster", s, cluster_is_wrong), 0);
  f->a.variant = 3;
  expect_fault(f, "cluster", s,
               PARTS("thread 32 of block ", "names block 8 of its cluster, which has 8"));
  f->a.variant = 1;
  assert_true(caught(f, "cluster", s, NULL) >= SEEDS / 2);
  f->a.variant = 2;
  assert_true(caught(f, "cluster", s, cluster_is_wrong) >= SEEDS / 2);
}

static void test_mma(void **state) {
  fixture *f = *state;
  memory(f, 192, 128);
  for (int bf16 = 0; bf16 < 2; bf16++) {
    float a[16][16], b[16][8];
    unsigned short *half = (unsigned short *)f->in;
    for (int i = 0; i < 256 + 128; i++) {
      // Few bits, so that both types hold them and sums are exact.
      const float x = (float)(i * 37 % 61 - 30) / 8;
      if (i < 256)
        a[i / 16][i % 16] = x;
      else
        b[i % 16][i / 16 - 16] = x;
      half[i] = bf16 ? (unsigned short)(fm_word_of(x) >> 16) : fm_narrow_half(x);
    }
    f->a.variant = bf16;
    run(f, "mma", (shape){1, 64, 0});
    for (int i = 0; i < 16; i++) {
      for (int j = 0; j < 8; j++) {
        float sum = (float)(1 + j % 2 + i / 8 * 2);
        for (int k = 0; k < 16; k++)
          sum += a[i][k] * b[k][j];
        assert_true(f->out[i * 8 + j] == sum);
      }
    }
  }
}

// ---- f16 ----------------------------------------------------------------------------------------

// Every f16, its neighbours' midpoints and what lies just beside them, against arithmetic in f64.
static void test_half(void **state) {
  (void)state;
  for (unsigned bits = 0; bits < 0x7c00; bits++) {
    const int exponent = (int)(bits >> 10);
    const double value = exponent ? ldexp(1024 + (bits & 1023), exponent - 25) : ldexp(bits, -24);
    const double step = ldexp(1, exponent ? exponent - 25 : -24);
    const float middle = (float)(value + step / 2);
    assert_true((double)fm_widen_half((unsigned short)bits) == value);
    assert_true((double)fm_widen_half((unsigned short)(bits | 0x8000)) == -value);
    assert_int_equal(fm_narrow_half((float)value), bits);
    assert_int_equal(fm_narrow_half((float)-value), bits | 0x8000);
    assert_int_equal(fm_narrow_half(middle), bits + bits % 2);
    assert_int_equal(fm_narrow_half(nextafterf(middle, 0)), bits);
    assert_int_equal(fm_narrow_half(nextafterf(middle, INFINITY)), bits + 1);
  }
  assert_int_equal(fm_narrow_half(INFINITY), 0x7c00);
  assert_int_equal(fm_narrow_half(-1e30f), 0xfc00);
  assert_true(isnan(fm_widen_half(fm_narrow_half(NAN))));
  assert_true(isinf(fm_widen_half(0xfc00)));
}

// ---- threads that do not meet -------------------------------------------------------------------

static void test_divergence(void **state) {
  fixture *f = *state;
  memory(f, 64, 64);
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    f->a.variant = 0;
    expect_fault(f, "half_warp", (shape){1, 64, 0},
                 PARTS("warp divergence: in warp ", " of block 0 ", " at fm_shuffle_xor (line ",
                       "returned"));
    f->a.variant = 1;
    expect_fault(f, "half_warp", (shape){1, 64, 0},
                 PARTS("warp divergence", "at fm_shuffle_xor (line ", "at fm_warp_barrier (line "));
    f->a.variant = 2;
    expect_fault(f, "half_warp", (shape){1, 64, 0}, PARTS("names lane 32"));
  }
}

static void test_deadlock(void **state) {
  fixture *f = *state;
  memory(f, 64, 64);
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    f->a.variant = 0;
    expect_fault(f, "two_barriers", (shape){2, 64, 0},
                 PARTS("deadlock: in block ", " threads 0..31 wait at barrier 0 (line ",
                       "threads 32..63 wait at barrier 1 (line "));
    f->a.variant = 1;
    // Either the counts differ while the first wait, or the second warp meets alone and is gone.
    expect_fault(f, "two_barriers", (shape){1, 64, 0}, PARTS("barrier 0"));
    f->a.variant = 2;
    expect_fault(f, "two_barriers", (shape){1, 64, 0}, PARTS("barrier 16"));
  }
}

// ---- memory -------------------------------------------------------------------------------------

static void test_astray(void **state) {
  fixture *f = *state;
  static const char *const expected[] = {
      "reads 8 bytes at address",
      "reads 4 bytes at offset -4 of %bank",
      "writes 4 bytes at offset 0 of %bank, which is only read",
      "reads byte 0 of shared memory through a helper for global memory",
      "reads 16 bytes at offset 256 of %bank, which ends at 260 (line ",
      "wrote to byte 4096 of its 4096 bytes of shared memory",
  };
  memory(f, 65, 64);
  f->spans[1] = (rt_span){"y", (char *)f->in + 512, 16, true}; // so that all around is known
  f->a.count = 66;
  for (f->a.variant = 0; f->a.variant < (int)COUNT(expected); f->a.variant++)
    expect_fault(f, "astray", (shape){1, 64, 0},
                 PARTS("kernel 'astray': thread ", " of block 0 ", expected[f->a.variant]));
}

static void test_reuse_after_fault(void **state) {
  fixture *f = *state;
  memory(f, 64, 64);
  for (int i = 0; i < 20; i++) {
    f->a.variant = 0;
    expect_fault(f, "half_warp", (shape){4, 64, 0}, PARTS("divergence"));
    run(f, "twice", (shape){1, 64, 0});
    assert_true(f->out[63] == 127);
  }
}

static void test_traffic(void **state) {
  fixture *f = *state;
  enum { COUNT_BLOCKS = 3 };
  memory(f, 1 + 64 * COUNT_BLOCKS, 64 * COUNT_BLOCKS);
  for (uint64_t n = 1; n <= SEEDS; n++) {
    seed(f, n);
    memset(f->traffic, 0, sizeof f->traffic);
    run(f, "traffic", (shape){COUNT_BLOCKS, 64, 0});
    // Element 0: three times for each of two warps of a block.
    assert_int_equal(f->traffic[0].read, COUNT_BLOCKS * (3 * 2 * 4 + 64 * 4));
    assert_int_equal(f->traffic[0].read_once, 4 + COUNT_BLOCKS * 64 * 4);
    assert_int_equal(f->traffic[0].written + f->traffic[0].written_once, 0);
    assert_int_equal(f->traffic[1].written, COUNT_BLOCKS * 96 * 4);
    assert_int_equal(f->traffic[1].written_once, COUNT_BLOCKS * 64 * 4);
    assert_int_equal(f->traffic[1].read + f->traffic[1].read_once, 0);
  }
}

// ---- copies -------------------------------------------------------------------------------------

static bool copy_is_wrong(const fixture *f) {
  for (int t = 0; t < 64; t++)
    if (!(f->out[t] == f->in[t] + f->in[64 + t])) return true;
  return false;
}

static void test_copies(void **state) {
  fixture *f = *state;
  const shape s = {1, 64, 0};
  memory(f, 128, 64);
  assert_int_equal(caught(f, "copy", s, copy_is_wrong), 0);
  for (f->a.variant = 1; f->a.variant <= 2; f->a.variant++) {
    assert_int_equal(caught(f, "copy", s, copy_is_wrong), SEEDS);
    assert_true(isnan(f->out[7])); // poison
  }
  expect_fault(f, "copy", s, PARTS("returns while 2 of its fm_copy_async are under way"));
}

static bool bulk_is_wrong(const fixture *f) {
  return memcmp(f->in, f->out, 256) != 0;
}

static void test_bulk(void **state) {
  fixture *f = *state;
  const shape s = {1, 64, 0};
  memory(f, 64, 64);
  assert_int_equal(caught(f, "bulk", s, bulk_is_wrong), 0);
  f->a.variant = 1;
  assert_int_equal(caught(f, "bulk", s, bulk_is_wrong), SEEDS);
  f->a.variant = 2;
  expect_fault(f, "bulk", s,
               PARTS("returns as the last of its block, but nobody waited for 256 bytes",
                     "the mbarrier at byte 256 of shared memory", "wait for the phase"));
}

enum { ROUNDS = 20 };

static bool ring_is_wrong(const fixture *f) {
  for (int i = 0; i < ROUNDS; i++)
    for (int t = 0; t < 32; t++)
      if (!(f->out[i * 32 + t] == f->in[i * 64 + t] + f->in[i * 64 + 32 + t])) return true;
  return false;
}

static void test_ring(void **state) {
  fixture *f = *state;
  const shape s = {1, 64, 0};
  memory(f, 64 * ROUNDS, 32 * ROUNDS);
  f->a.count = ROUNDS;
  assert_int_equal(caught(f, "ring", s, ring_is_wrong), 0);
  for (f->a.variant = 1; f->a.variant <= 6; f->a.variant++) {
    const int count = caught(f, "ring", s, ring_is_wrong);
    if (count < SEEDS / 2) fail_msg("variant %d: caught by %d seeds", f->a.variant, count);
  }
  f->a.variant = 3;
  expect_fault(f, "ring", s,
               PARTS("deadlock", "thread 32 waits for the mbarrier at byte 792 of shared memory, "
                                 "whose phase 0 lacks 32 of 32 arrivals (line "));
  f->a.variant = 4;
  expect_fault(f, "ring", s, PARTS("deadlock", "has 256 of 512 expected bytes"));
  f->a.variant = 6;
  expect_fault(f, "ring", s, PARTS("before the fence", "fm_ring_fence()"));
}

// ---- limits -------------------------------------------------------------------------------------

static void test_limits(void **state) {
  fixture *f = *state;
  memory(f, 64, 64);
  run(f, "twice", (shape){0, 64, 0}); // T = 0
  assert_true(f->out[0] == -1);
  expect_fault(f, "twice", (shape){1, 1056, 0},
               PARTS("1056 threads a block, but the limit is 1024"));
  expect_fault(f, "twice", (shape){1, 40, 0},
               PARTS("40 threads a block, expected a multiple of 32"));
  expect_fault(f, "twice", (shape){16, 64, 16}, PARTS("clusters of 16 blocks", "8"));
  expect_fault(f, "twice", (shape){7, 64, 2}, PARTS("7 blocks are no multiple of the cluster's 2"));
  expect_fault(f, "twice", (shape){INT64_C(1) << 31, 64, 0}, PARTS("2147483648 blocks"));
  rt_function *function;
  uint32_t blocks = 0;
  const rt_device_ops *ops = f->device->ops;
  assert_int_equal(
      ops->find(f->device, f->code, "twice", 448, 100000, &function, &blocks, &f->diag), BASE_OK);
  assert_int_equal(blocks, 2);
  assert_int_equal(ops->find(f->device, f->code, "twice", 448, 300000, &function, NULL, &f->diag),
                   BASE_INVALID);
  assert_non_null(strstr(rendered(f), "300000 bytes of shared memory"));
  forget(f);
  assert_int_equal(ops->find(f->device, f->code, "thrice", 32, 0, &function, NULL, &f->diag),
                   BASE_INVALID);
  assert_non_null(strstr(rendered(f), "no kernel 'thrice'"));
}

// Clusters of the largest blocks, each launch with more shared memory than all before it, so that no
// idle machine serves: together they would have more stacks than a process may map.
static void test_largest(void **state) {
  fixture *f = *state;
#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
  skip(); // it goes to the limit of mappings, beyond which these cannot work themselves
#endif
#endif
  memory(f, 64, 64);
  for (size_t shared = SHARED; shared <= 8 * SHARED; shared += SHARED) {
    rt_function *function;
    if (f->device->ops->find(f->device, f->code, "twice", 1024, shared, &function, NULL,
                             &f->diag) != BASE_OK)
      fail_msg("%s", rendered(f));
    const rt_device_launch l = {.function = function,
                                .blocks = 8,
                                .threads = 1024,
                                .cluster = 8,
                                .shared_bytes = shared,
                                .parameters = &f->a,
                                .parameter_bytes = sizeof f->a};
    f->out[63] = -1;
    if (f->device->ops->launch(f->device, NULL, &l, &f->diag) != BASE_OK)
      fail_msg("%zu bytes of shared memory: %s", shared, rendered(f));
    assert_true(f->out[63] == 2 * f->in[63]);
  }
}

// ---- devices, text, cache -----------------------------------------------------------------------

static void test_text_errors(void **state) {
  fixture *f = *state;
  const rt_image image = {.text = BASE_STR("int right;\nint wrong = nothing;\n")}, none = {0};
  rt_code *code;
  assert_int_equal(f->device->ops->load(f->device, &image, &code, &f->diag), BASE_INTERNAL);
  assert_null(code);
  assert_non_null(strstr(rendered(f), "kernel.cu:2:"));
  assert_int_equal(f->device->ops->load(f->device, &none, &code, &f->diag), BASE_INVALID);
  forget(f);
  rt_device *device;
  const emu_options options = {.compiler = "no-such-compiler++"};
  assert_int_equal(emu_device_create(&options, &device, &f->diag), BASE_UNSUPPORTED);
  assert_null(device);
  assert_non_null(strstr(rendered(f), "no-such-compiler++"));
}

static const char tiny[] = "struct none { int x; };\n"
                           "extern \"C\" __global__ void tiny(const __grid_constant__ none) {\n"
                           "  fm_barrier(0, 32);\n"
                           "}\n"
                           "FM_ENTRY(tiny, none)\n";

// Runs it; the number of objects in the cache, and the name of one.
// Loads and runs it.
static void run_tiny(fixture *f, const emu_options *options) {
  rt_device *device = NULL;
  rt_code *code = NULL;
  rt_function *function = NULL;
  const rt_image image = {.text = base_str_from(tiny)};
  if (emu_device_create(options, &device, &f->diag) != BASE_OK) fail_msg("%s", rendered(f));
  const rt_device_ops *ops = device->ops;
  if (ops->load(device, &image, &code, &f->diag) != BASE_OK) fail_msg("%s", rendered(f));
  if (ops->find(device, code, "tiny", 32, 0, &function, NULL, &f->diag) != BASE_OK)
    fail_msg("%s", rendered(f));
  const int x = 0;
  const rt_device_launch l = {
      .function = function, .blocks = 2, .threads = 32, .parameters = &x, .parameter_bytes = 4};
  if (ops->launch(device, NULL, &l, &f->diag) != BASE_OK) fail_msg("%s", rendered(f));
  ops->unload(device, code);
  ops->destroy(device);
}

// Files in a folder, and the path of one.
static int list(const char *folder, char *path, size_t room) {
  DIR *listing = opendir(folder);
  assert_non_null(listing);
  int count = 0;
  for (struct dirent *entry; (entry = readdir(listing));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, room, "%s/%s", folder, entry->d_name);
    count++;
  }
  closedir(listing);
  return count;
}

static void test_cache(void **state) {
  fixture *f = *state;
  char directory[] = "/tmp/fathom-test-emulator-XXXXXX", path[1024], folder[256];
  assert_non_null(mkdtemp(directory));
  snprintf(folder, sizeof folder, "%s/emulated", directory);
  const emu_options options = {.cache_directory = directory};
  struct stat first, again;
  for (int i = 0; i < 3; i++) {
    run_tiny(f, &options);
    assert_int_equal(list(folder, path, sizeof path), 1);
    assert_int_equal(stat(path, i == 0 ? &first : &again), 0);
    if (i == 1) {
      assert_int_equal(first.st_ino, again.st_ino); // not written again
      assert_int_equal(truncate(path, 1000), 0);    // damaged: compiled and stored again
    }
  }
  assert_int_equal(first.st_size, again.st_size);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
  assert_int_equal(rmdir(directory), 0);
}

static void test_keep(void **state) {
  fixture *f = *state;
  char directory[] = "/tmp/fathom-test-emulator-XXXXXX", path[1024];
  assert_non_null(mkdtemp(directory));
  setenv("FATHOM_EMU_KEEP", directory, 1);
  setenv("FATHOM_EMU_SEED", "7", 1);
  run_tiny(f, &(emu_options){0});
  rt_device *device;
  assert_int_equal(emu_device_create(&(emu_options){0}, &device, &f->diag), BASE_OK);
  assert_string_equal(emu_device_kept(device), directory);
  device->ops->destroy(device);
  setenv("FATHOM_EMU_SEED", "seven", 1);
  assert_int_equal(emu_device_create(&(emu_options){0}, &device, &f->diag), BASE_INVALID);
  assert_non_null(strstr(rendered(f), "FATHOM_EMU_SEED is 'seven', expected a number"));
  unsetenv("FATHOM_EMU_KEEP");
  unsetenv("FATHOM_EMU_SEED");
  int count = 0;
  for (; list(directory, path, sizeof path) > 0; count++)
    assert_int_equal(unlink(path), 0);
  assert_int_equal(count, 3); // text, text with preludes, object
  assert_int_equal(rmdir(directory), 0);
}

// AddressSanitizer ends the process at the first access out of place, so that is a child's.
static void test_sanitize(void **state) {
  fixture *f = *state;
  rt_device *device;
  emu_options options = {.sanitize = true, .facts = facts};
  if (emu_device_create(&options, &device, &f->diag) != BASE_OK) {
    assert_null(device);
    assert_int_equal(f->diag.status, BASE_UNSUPPORTED);
    assert_non_null(strstr(rendered(f), "AddressSanitizer is not in this process"));
    return;
  }
  device->ops->destroy(device);
  f->device->ops->unload(f->device, f->code);
  f->device->ops->destroy(f->device);
  load(f, &options, all_kernels(f));
  memory(f, 64, 64);
  run(f, "reduce", (shape){1, 64, 0});
  f->a.variant = 5;
  const pid_t child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    launch(f, "astray", (shape){1, 64, 0});
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(status != 0);
}

// The same seed gives the same run, others give others.
static void test_seeds(void **state) {
  fixture *f = *state;
  memory(f, 64, 1);
  float last[SEEDS];
  int same = 0;
  for (uint64_t n = 0; n < 2 * SEEDS; n++) {
    seed(f, 1 + n % SEEDS);
    run(f, "order", (shape){1, 64, 0});
    if (n >= SEEDS) assert_true(f->out[0] == last[n % SEEDS]);
    if (n > 0 && n < SEEDS) same += f->out[0] == last[n - 1];
    last[n % SEEDS] = f->out[0];
  }
  assert_true(same < SEEDS / 2);
}

// ---- several host threads -----------------------------------------------------------------------

static void *launch_often(void *argument) {
  fixture *f = argument;
  for (int i = 0; i < 50; i++)
    if (launch(f, "twice", (shape){16, 64, 0}) != BASE_OK) return f;
  return NULL;
}

static void test_host_threads(void **state) {
  enum { THREADS = 4 };
  fixture *all[THREADS], *f = *state;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    all[i] = calloc(1, sizeof(fixture));
    *all[i] = (fixture){.device = f->device, .code = f->code};
    base_arena_init(&all[i]->arena, NULL);
    forget(all[i]);
    memory(all[i], 1000, 1000);
    assert_int_equal(pthread_create(&threads[i], NULL, launch_often, all[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    if (failed) fail_msg("%s", rendered(failed));
    for (int k = 0; k < 1000; k++)
      assert_true(all[i]->out[k] == 2 * all[i]->in[k]);
    free(all[i]->in);
    free(all[i]->out);
    base_arena_reset(&all[i]->arena);
    free(all[i]);
  }
}

// ---- speed --------------------------------------------------------------------------------------

// Says what a switch costs; a bound that only a mistake in kind would break.
static void test_speed(void **state) {
  fixture *f = *state;
  const rt_device_ops *ops = f->device->ops;
  memory(f, 64, 64);
  f->a.count = 20;
  f->a.variant = 448;
  rt_timer *timer;
  double microseconds;
  assert_int_equal(ops->timer_create(f->device, &timer, &f->diag), BASE_OK);
  assert_int_equal(ops->timer_start(f->device, timer, NULL, &f->diag), BASE_OK);
  run(f, "barriers", (shape){1000, 448, 0});
  assert_int_equal(ops->timer_stop(f->device, timer, NULL, &microseconds, &f->diag), BASE_OK);
  print_message("           448 threads, 20 barriers, 1000 blocks: %.2f s, %.0f ns a switch\n",
                microseconds / 1e6, microseconds * 1e3 / (448.0 * 21 * 1000));
  f->a.count = 1000;
  ops->timer_start(f->device, timer, NULL, &f->diag);
  run(f, "shuffles", (shape){10, 448, 0});
  ops->timer_stop(f->device, timer, NULL, &microseconds, &f->diag);
  print_message("           a shuffle of a warp: %.0f ns\n", microseconds * 1e3 / (14.0 * 10000));
  ops->timer_destroy(f->device, timer);
  assert_true(microseconds < 60e6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_boundary, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_barrier, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_warps, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cluster, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_mma, set_up, tear_down),
      cmocka_unit_test(test_half),
      cmocka_unit_test_setup_teardown(test_divergence, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_deadlock, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_astray, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_reuse_after_fault, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_traffic, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_copies, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bulk, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_ring, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_largest, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_text_errors, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_cache, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_keep, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_sanitize, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_seeds, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_host_threads, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_speed, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
