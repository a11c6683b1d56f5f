// The interpreter is the oracle of every other test, so it is checked against numbers worked out by
// hand and against identities of the mathematics, never against another implementation.
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARRAYS = 8, MAX_NUMBERS = 4096 };

// One graph, its arrays, and what came of it.
typedef struct bench {
  base_arena arena;
  base_diag diag;
  ir_graph *graph;
  int64_t sizes[IR_MAX_AXES];
  double in[MAX_ARRAYS][MAX_NUMBERS], out[MAX_ARRAYS][MAX_NUMBERS];
  double largest_logit;
} bench;

static bench b;

static void load(const char *text) {
  base_arena_reset(&b.arena);
  memset(&b, 0, sizeof b);
  base_arena_init(&b.arena, NULL);
  base_str source = base_str_from(text);
  base_diag_init(&b.diag, &b.arena, BASE_STR("test"), source);
  ir_module *module = ir_parse(&b.arena, source, &b.diag);
  if (module) b.graph = module->graphs.data[0];
  if (!module || !ir_verify(b.graph, IR_STAGE_BOUND, &b.diag))
    fail_msg("%.*s", BASE_FMT(base_diag_render(&b.diag)));
}

static base_status try_interpret(int64_t rows) {
  const double *inputs[MAX_ARRAYS];
  double *outputs[MAX_ARRAYS];
  for (int i = 0; i < MAX_ARRAYS; i++) {
    inputs[i] = b.in[i];
    outputs[i] = b.out[i];
  }
  for (uint32_t i = 0; i < b.graph->axes.count; i++) {
    int64_t size = ir_axis_size(b.graph, (ir_axis){i});
    b.sizes[i] = size == IR_DYNAMIC ? rows : size;
  }
  return ir_interpret(b.graph, b.sizes, inputs, outputs, &b.largest_logit, &b.diag);
}

static void interpret(int64_t rows) {
  assert_int_equal(try_interpret(rows), BASE_OK);
}

// Numbers in [-1, 1), the same in every run.
static void randomise(double *data, int count, uint32_t seed) {
  for (int i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (double)(int32_t)seed / 2147483648.0;
  }
}

#define set(array, ...)                                                                            \
  memcpy((array), (const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}))
#define assert_array(array, ...)                                                                   \
  check_array((array), (const double[]){__VA_ARGS__},                                              \
              sizeof((const double[]){__VA_ARGS__}) / sizeof(double), __LINE__)

static void check_array(const double *found, const double *expected, size_t count, int line) {
  for (size_t i = 0; i < count; i++) {
    bool same = isnan(expected[i]) ? isnan(found[i]) : found[i] == expected[i];
    if (!same && !(fabs(found[i] - expected[i]) <= 1e-14 * fabs(expected[i])))
      fail_msg("line %d, element %zu: expected %.17g, found %.17g", line, i, expected[i], found[i]);
  }
}

// ---- elementwise --------------------------------------------------------------------------------

static void test_broadcast_by_name(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=3], %r: f32[T], %c: f32[D]) {\n"
       "  %x = mul %a, %r : f32[D, T]\n" // transposed on the way
       "  %y = add %x, %c : f32[T, D]\n"
       "  %o = mul %r, %c : f32[D, T]\n" // an outer product
       "  return %y, %x, %o\n}\n");
  set(b.in[0], 1, 2, 3, 4, 5, 6);
  set(b.in[1], 10, 100);
  set(b.in[2], 0.5, 0.25, 0.125);
  interpret(2);
  assert_array(b.out[0], 10.5, 20.25, 30.125, 400.5, 500.25, 600.125);
  assert_array(b.out[1], 10, 400, 20, 500, 30, 600);
  assert_array(b.out[2], 5, 50, 2.5, 25, 1.25, 12.5);
}

static void test_elementwise_ops(void **state) {
  (void)state;
  load("graph @g(%a: f32[D=4], %b: f32[D]) {\n"
       "  %s = sub %a, %b : f32[D]\n  %q = div %a, %b : f32[D]\n  %m = max %a, %b : f32[D]\n"
       "  %n = neg %a : f32[D]\n  %e = exp %a : f32[D]\n  %l = log %b : f32[D]\n"
       "  %r = rsqrt %b : f32[D]\n  %g = sigmoid %a : f32[D]\n"
       "  return %s, %q, %m, %n, %e, %l, %r, %g\n}\n");
  set(b.in[0], 0, 1, -2, NAN);
  set(b.in[1], 4, 2, 0.25, 1);
  interpret(1);
  assert_array(b.out[0], -4, -1, -2.25, NAN);
  assert_array(b.out[1], 0, 0.5, -8, NAN);
  assert_array(b.out[2], 4, 2, 0.25, NAN);
  assert_array(b.out[3], -0.0, -1, 2, NAN);
  assert_array(b.out[4], 1, 2.718281828459045, 0.1353352832366127, NAN);
  assert_array(b.out[5], 1.3862943611198906, 0.6931471805599453, -1.3862943611198906, 0);
  assert_array(b.out[6], 0.5, 0.7071067811865475, 2, 1);
  assert_array(b.out[7], 0.5, 0.7310585786300049, 0.11920292202211755, NAN);
  assert_true(b.largest_logit == 2);
}

static void test_max_is_nan_when_either_is(void **state) {
  (void)state;
  load("graph @g(%a: f32[D=3], %b: f32[D]) {\n  %m = max %a, %b : f32[D]\n  return %m\n}\n");
  set(b.in[0], NAN, 1, 1);
  set(b.in[1], 1, NAN, INFINITY);
  interpret(1);
  assert_array(b.out[0], NAN, NAN, INFINITY);
}

static void test_constants(void **state) {
  (void)state;
  load("graph @g(%a: f32[N=3]) {\n"
       "  %one = constant {value = 2.5} : f32\n  %list = constant {value = [1, 2, 4]} : f32[N]\n"
       "  %low = constant {value = 0.1} : bf16[N]\n"
       "  %x = mul %a, %list : f32[N]\n  %y = add %x, %one : f32[N]\n  return %y, %low\n}\n");
  set(b.in[0], 1, 10, 100);
  interpret(1);
  assert_array(b.out[0], 3.5, 22.5, 402.5);
  assert_array(b.out[1], 0.10009765625, 0.10009765625, 0.10009765625);
}

// ---- rounding -----------------------------------------------------------------------------------

// Nearest-even to bf16 by the integer trick on f32 bits. Inputs here have exact f32 sums.
static double to_bf16(double x) {
  float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static void test_bf16_sum_is_bit_exact(void **state) {
  (void)state;
  load("graph @g(%a: bf16[D=1000], %b: bf16[D]) {\n  %p = add %a, %b : bf16[D]\n  return %p\n}\n");
  randomise(b.in[0], 1000, 1);
  randomise(b.in[1], 1000, 2);
  for (int i = 0; i < 1000; i++) {
    b.in[0][i] = to_bf16(b.in[0][i] * 4);
    b.in[1][i] = to_bf16(b.in[1][i]);
  }
  set(b.in[0], 256, 257.5 - 1.5, 258, -258, INFINITY); // halfway cases go to the even neighbour
  set(b.in[1], 1, 3, 1, -1, 1);
  interpret(1);
  assert_array(b.out[0], 256, 260, 260, -260, INFINITY); // units of 2 from 256 on
  for (int i = 5; i < 1000; i++)
    assert_true(b.out[0][i] == to_bf16(b.in[0][i] + b.in[1][i]));
}

static void test_rounding_happens_where_a_type_says(void **state) {
  (void)state;
  load("graph @g(%a: f32[D=1], %b: f32[D]) {\n"
       "  %p = add %a, %b : bf16[D]\n  %q = sub %p, %a : f32[D]\n"
       "  %r = add %a, %b : f32[D]\n  %s = sub %r, %a : f32[D]\n  return %q, %s\n}\n");
  set(b.in[0], 256);
  set(b.in[1], 0.75);
  interpret(1);
  assert_array(b.out[0], 0);    // 256.75 was rounded to 256
  assert_array(b.out[1], 0.75); // not here
}

// ---- reductions ---------------------------------------------------------------------------------

static void test_reductions(void **state) {
  (void)state;
  load("graph @g(%a: f32[A=2, B=3], %w: f32[B, A]) {\n"
       "  %s = sum %a over B : f32[A]\n  %m = mean %a over A : f32[B]\n"
       "  %x = reduce_max %a over A, B : f32\n  %d = dot %a, %w over A, B : f32\n"
       "  %n = mean %a over B, A : f32\n  %u = weighted_sum %w, %a over A : f32[B]\n"
       "  return %s, %m, %x, %d, %n, %u\n}\n");
  set(b.in[0], 1, 2, 3, 4, 5, 6);
  set(b.in[1], 1, 10, 2, 20, 3, 30);
  interpret(1);
  assert_array(b.out[0], 6, 15);
  assert_array(b.out[1], 2.5, 3.5, 4.5);
  assert_array(b.out[2], 6);
  assert_array(b.out[3], 1 + 4 + 9 + 40 + 100 + 180);
  assert_array(b.out[4], 3.5);
  assert_array(b.out[5], 41, 104, 189);
}

static void test_empty_sum_is_zero(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=0]) {\n  %s = sum %a over D : f32[T]\n  return %s\n}\n");
  b.out[0][0] = b.out[0][1] = 7;
  interpret(2);
  assert_array(b.out[0], 0, 0);
}

static void test_reduce_max_propagates_nan(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=3]) {\n  %m = reduce_max %a over D : f32[T]\n  return %m\n}\n");
  set(b.in[0], -5, -4, -6, 1, NAN, 9, -INFINITY, -INFINITY, -INFINITY);
  interpret(3);
  assert_array(b.out[0], -4, NAN, -INFINITY);
}

static void test_rms_norm(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=2], %w: f32[D]) {\n"
       "  %n = rms_norm %a over D {eps = 0} : f32[T, D]\n"
       "  %k = rms_norm %a, %w over D {eps = 0.5} : f32[T, D]\n  return %n, %k\n}\n");
  set(b.in[0], 1, 7, 3, -4);
  set(b.in[1], 10, 1);
  interpret(2);
  assert_array(b.out[0], 0.2, 1.4, 3 / sqrt(12.5), -4 / sqrt(12.5)); // mean squares 25 and 12.5
  assert_array(b.out[1], 10 / sqrt(25.5), 7 / sqrt(25.5), 30 / sqrt(13), -4 / sqrt(13));
}

// ---- softmax ------------------------------------------------------------------------------------

static const char softmax_text[] = "graph @g(%z: f32[N=3, T]) {\n"
                                   "  %a = softmax %z over N : f32[N, T]\n"
                                   "  %l = logsumexp %z over N : f32[T]\n  return %a, %l\n}\n";

static void test_softmax_weights(void **state) {
  (void)state;
  load(softmax_text);
  set(b.in[0], 0, 5, log(2), 5, log(3), 5); // columns: (0, ln 2, ln 3) and (5, 5, 5)
  interpret(2);
  assert_array(b.out[0], 1.0 / 6, 1.0 / 3, 1.0 / 3, 1.0 / 3, 0.5, 1.0 / 3);
  assert_array(b.out[1], log(6), 5 + log(3));
  assert_true(b.largest_logit == 5);
}

static void test_softmax_of_extreme_logits(void **state) {
  (void)state;
  load(softmax_text);
  // Columns: all 1e4; all -1e4; one far above; +inf; all -inf; NaN.
  const double columns[6][3] = {{1e4, 1e4, 1e4},
                                {-1e4, -1e4, -1e4},
                                {1e4, -1e4, 0},
                                {INFINITY, 0, 1},
                                {-INFINITY, -INFINITY, -INFINITY},
                                {0, NAN, 0}};
  for (int t = 0; t < 6; t++)
    for (int n = 0; n < 3; n++)
      b.in[0][n * 6 + t] = columns[t][n];
  interpret(6);
  const double third = 1.0 / 3;
  assert_array(b.out[0], third, third, 1, NAN, NAN, NAN, third, third, 0, NAN, NAN, NAN, third,
               third, 0, NAN, NAN, NAN);
  assert_array(b.out[1], 1e4 + log(3), -1e4 + log(3), 1e4, INFINITY, -INFINITY, NAN);
  assert_true(b.largest_logit == 1e4); // infinities do not count
}

static void test_one_source_has_weight_one(void **state) {
  (void)state;
  load("graph @g(%z: f32[N=1, T]) {\n  %a = softmax %z over N : f32[N, T]\n"
       "  %l = logsumexp %z over N : f32[T]\n  return %a, %l\n}\n");
  set(b.in[0], 0, 1e4, -1e4, 0.1);
  interpret(4);
  for (int i = 0; i < 4; i++) {
    assert_true(b.out[0][i] == 1.0);
    assert_true(b.out[1][i] == b.in[0][i]);
  }
}

// ---- views --------------------------------------------------------------------------------------

static void test_views(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=6]) {\n"
       "  %s = slice %a over D to K=2 {start = 3} : f32[T, K]\n"
       "  %e = slice %a over D to R {start = 4} : f32[R, T]\n"
       "  %h = split_axis %a over D to H=2, E=3 : f32[T, H, E]\n"
       "  %m = merge_axes %h over E, H to M : f32[T, M]\n"
       "  %r = rename %a over D to X : f32[X, T]\n"
       "  %b = merge_axes %h over H, E to D2 : bf16[D2, T]\n"
       "  return %s, %e, %h, %m, %r, %b\n}\n");
  for (int i = 0; i < 12; i++)
    b.in[0][i] = i;
  interpret(2);
  assert_array(b.out[0], 3, 4, 9, 10);
  assert_array(b.out[1], 4, 10, 5, 11);
  assert_array(b.out[2], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
  assert_array(b.out[3], 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11); // E outermost
  assert_array(b.out[4], 0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11);
  assert_array(b.out[5], 0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11);
}

static void test_concat_broadcasts(void **state) {
  (void)state;
  load("graph @g(%bank: f32[B=2, T, D=2], %null: f32[D], %bias: f32[T]) {\n"
       "  %v = concat %null, %bank, %bias, %bank over B to N : f32[T, N, D]\n  return %v\n}\n");
  assert_int_equal(ir_axis_size(b.graph, b.graph->nodes.data[3].to[0]), 6);
  set(b.in[0], 1, 2, 3, 4, 5, 6, 7, 8);
  set(b.in[1], 0.5, 0.25);
  set(b.in[2], 100, 200);
  interpret(2);
  assert_array(b.out[0], 0.5, 0.25, 1, 2, 5, 6, 100, 100, 1, 2, 5, 6, //
               0.5, 0.25, 3, 4, 7, 8, 200, 200, 3, 4, 7, 8);
}

static void test_concat_stacks_single_slices(void **state) {
  (void)state;
  load("graph @g(%a: f32[T], %b: f32[T], %c: f32) {\n"
       "  %v = concat %a, %b, %c over N to N : f32[N, T]\n  return %v\n}\n");
  set(b.in[0], 1, 2);
  set(b.in[1], 3, 4);
  set(b.in[2], 5);
  interpret(2);
  assert_array(b.out[0], 1, 2, 3, 4, 5, 5);
}

// ---- whole sites --------------------------------------------------------------------------------

static const char site_text[] =
    "graph @site(%bank: f32[B=3, T, D=8], %partial: f32[T, D], %query: f32[D], %gain: f32[D]) {\n"
    "  %v = concat %bank, %partial over B to N                : f32[N=4, T, D]\n"
    "  %k = rms_norm %v, %gain over D {eps = 1e-5}            : f32[N, T, D]\n"
    "  %z = dot %k, %query over D                             : f32[N, T]\n"
    "  %a = softmax %z over N                                 : f32[N, T]\n"
    "  %h = weighted_sum %a, %v over N                        : f32[T, D]\n"
    "  return %h\n}\n";

static const char phases_text[] =
    "graph @phases(%bank: f32[B=3, T, D=8], %partial: f32[T, D], %query: f32[D], %gain: f32[D]) {\n"
    "  %k1 = rms_norm %bank, %gain over D {eps = 1e-5}        : f32[B, T, D]\n"
    "  %z1 = dot %k1, %query over D                           : f32[B, T]\n"
    "  %a1 = softmax %z1 over B                               : f32[B, T]\n"
    "  %o1 = weighted_sum %a1, %bank over B                   : f32[T, D]\n"
    "  %lse = logsumexp %z1 over B                            : f32[T]\n"
    "  %k2 = rms_norm %partial, %gain over D {eps = 1e-5}     : f32[T, D]\n"
    "  %z2 = dot %k2, %query over D                           : f32[T]\n"
    "  %r = sub %z2, %lse                                     : f32[T]\n"
    "  %p = sigmoid %r                                        : f32[T]\n"
    "  %d = sub %partial, %o1                                 : f32[T, D]\n"
    "  %pd = mul %p, %d                                       : f32[T, D]\n"
    "  %h = add %o1, %pd                                      : f32[T, D]\n"
    "  return %h\n}\n";

enum { SITE_T = 5, SITE_D = 8, SITE_B = 3 };

static void fill_site(void) {
  randomise(b.in[0], SITE_B * SITE_T * SITE_D, 11);
  randomise(b.in[1], SITE_T * SITE_D, 12);
  randomise(b.in[2], SITE_D, 13);
  randomise(b.in[3], SITE_D, 14);
}

static void test_two_phases_equal_one_softmax(void **state) {
  (void)state;
  double whole[SITE_T * SITE_D];
  load(site_text);
  fill_site();
  interpret(SITE_T);
  memcpy(whole, b.out[0], sizeof whole);
  load(phases_text);
  fill_site();
  interpret(SITE_T);
  for (int i = 0; i < SITE_T * SITE_D; i++)
    assert_true(fabs(b.out[0][i] - whole[i]) <= 1e-14);
}

static void test_nan_stays_in_its_token(void **state) {
  (void)state;
  double clean[SITE_T * SITE_D];
  load(site_text);
  fill_site();
  interpret(SITE_T);
  memcpy(clean, b.out[0], sizeof clean);
  b.in[0][(1 * SITE_T + 3) * SITE_D + 2] = NAN; // source 1, token 3
  interpret(SITE_T);
  for (int t = 0; t < SITE_T; t++)
    for (int d = 0; d < SITE_D; d++) {
      double found = b.out[0][t * SITE_D + d];
      assert_true(t == 3 ? isnan(found) : found == clean[t * SITE_D + d]);
    }
}

static void test_zero_query_gives_the_mean(void **state) {
  (void)state;
  load(site_text);
  fill_site();
  memset(b.in[2], 0, SITE_D * sizeof(double));
  interpret(SITE_T);
  for (int i = 0; i < SITE_T * SITE_D; i++) {
    double sum = b.in[1][i];
    for (int n = 0; n < SITE_B; n++)
      sum += b.in[0][n * SITE_T * SITE_D + i];
    assert_true(fabs(b.out[0][i] - sum / 4) <= 1e-15);
  }
}

static void test_no_rows(void **state) {
  (void)state;
  load(site_text);
  b.out[0][0] = 42;
  interpret(0);
  assert_true(b.out[0][0] == 42); // nothing written
  assert_true(b.largest_logit == 0);
}

static void test_returned_parameter_is_copied(void **state) {
  (void)state;
  load("graph @g(%a: f32[D=3], %unused: f32[T]) {\n  %n = neg %a : f32[D]\n  return %a, %n\n}\n");
  set(b.in[0], 1, 2, 3);
  interpret(2);
  assert_array(b.out[0], 1, 2, 3);
  assert_array(b.out[1], -1, -2, -3);
}

// ---- refusals -----------------------------------------------------------------------------------

static void test_call_is_unsupported(void **state) {
  (void)state;
  load("graph @g(%a: f32[T]) {\n  %x = call @host %a : f32[T]\n  return %x\n}\n");
  assert_int_equal(try_interpret(1), BASE_UNSUPPORTED);
  assert_non_null(strstr(base_diag_render(&b.diag).data, "host function @host"));
}

static void test_wrong_sizes_are_refused(void **state) {
  (void)state;
  load("graph @g(%a: f32[T, D=3]) {\n  %x = neg %a : f32[T, D]\n  return %x\n}\n");
  assert_int_equal(try_interpret(-2), BASE_INVALID);
  assert_non_null(strstr(base_diag_render(&b.diag).data, "for axis T, found -2"));
}

static void test_no_memory_is_a_status(void **state) {
  (void)state;
  load("graph @g(%a: f32[A=1073741824], %b: f32[B=1073741824]) {\n"
       "  %m = mul %a, %b : bf16[A, B]\n  %s = sum %m over A, B : f32\n  return %s\n}\n");
  assert_int_equal(try_interpret(1), BASE_MEMORY);
  assert_int_equal(b.diag.status, BASE_MEMORY);
  assert_non_null(strstr(base_diag_render(&b.diag).data, "%m: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_broadcast_by_name),
      cmocka_unit_test(test_elementwise_ops),
      cmocka_unit_test(test_max_is_nan_when_either_is),
      cmocka_unit_test(test_constants),
      cmocka_unit_test(test_bf16_sum_is_bit_exact),
      cmocka_unit_test(test_rounding_happens_where_a_type_says),
      cmocka_unit_test(test_reductions),
      cmocka_unit_test(test_empty_sum_is_zero),
      cmocka_unit_test(test_reduce_max_propagates_nan),
      cmocka_unit_test(test_rms_norm),
      cmocka_unit_test(test_softmax_weights),
      cmocka_unit_test(test_softmax_of_extreme_logits),
      cmocka_unit_test(test_one_source_has_weight_one),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_concat_broadcasts),
      cmocka_unit_test(test_concat_stacks_single_slices),
      cmocka_unit_test(test_two_phases_equal_one_softmax),
      cmocka_unit_test(test_nan_stays_in_its_token),
      cmocka_unit_test(test_zero_query_gives_the_mean),
      cmocka_unit_test(test_no_rows),
      cmocka_unit_test(test_returned_parameter_is_copied),
      cmocka_unit_test(test_call_is_unsupported),
      cmocka_unit_test(test_wrong_sizes_are_refused),
      cmocka_unit_test(test_no_memory_is_a_status),
  };
  base_arena_init(&b.arena, NULL);
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  base_arena_reset(&b.arena);
  return failures;
}
