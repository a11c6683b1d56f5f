// f8e4m3 against its definition: the table of its 256 codes and "the nearest one, of two the even one"
// by looking through that table. Rounding in f64 (the reference), and what each target stores and reads,
// bit by bit; and the two ways in which DLPack may call the type.
#include <assert.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fathom.h"
#include "ir/ir.h"

enum { NOT_A_NUMBER = 0x7f, MOST = 0x7e, SIGN = 0x80 };
enum { FLOAT8_E4M3FN = 10 }; // of DLPack 1.1

// ---- the definition -----------------------------------------------------------------------------

static double value_of(uint8_t code) {
  const int sign = code & SIGN ? -1 : 1, exponent = code >> 3 & 15, fraction = code & 7;
  if ((code & NOT_A_NUMBER) == NOT_A_NUMBER) return NAN;
  return exponent ? sign * ldexp(1 + fraction / 8.0, exponent - 7)
                  : sign * ldexp(fraction / 8.0, -6);
}

static uint8_t code_of(double x) {
  const uint8_t sign = signbit(x) ? SIGN : 0;
  const double size = fabs(x);
  if (isnan(x)) return NOT_A_NUMBER;
  uint8_t code = 0;
  while (code < MOST) {
    const double middle = (value_of(code) + value_of(code + 1)) / 2;
    if (size < middle || (size == middle && code % 2 == 0)) break;
    code++;
  }
  return sign | code;
}

static bool same_code(uint8_t a, uint8_t b) {
  const bool nans = (a & NOT_A_NUMBER) == NOT_A_NUMBER && (b & NOT_A_NUMBER) == NOT_A_NUMBER;
  return a == b || nans;
}

static void test_table(void **state) {
  (void)state;
  assert_true(value_of(0x01) == 0x1p-9 && value_of(0x08) == 0x1p-6 && value_of(0x38) == 1);
  assert_true(value_of(MOST) == 448 && value_of(0xfe) == -448);
  assert_string_equal(ir_dtype_name(IR_F8E4M3), "f8e4m3");
  assert_int_equal(ir_dtype_size(IR_F8E4M3), 1);
}

// ---- the reference ------------------------------------------------------------------------------

static void expect_rounded(double x) {
  for (int sign = 1; sign >= -1; sign -= 2) {
    const double found = ir_dtype_round(IR_F8E4M3, sign * x), wanted = value_of(code_of(sign * x));
    if (found != wanted || !signbit(found) != !signbit(wanted))
      fail_msg("%a: found %a, expected %a", sign * x, found, wanted);
  }
}

static void test_round(void **state) {
  (void)state;
  for (uint8_t code = 0; code < MOST; code++) {
    const double below = value_of(code), middle = (below + value_of(code + 1)) / 2;
    expect_rounded(below);
    expect_rounded(middle);
    expect_rounded(nextafter(middle, 0));
    expect_rounded(nextafter(middle, INFINITY));
  }
  static const double large[] = {448, 464, 480, 511, 512, 1e38, 1e308, INFINITY};
  for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
    assert_true(ir_dtype_round(IR_F8E4M3, large[i]) == 448);
  assert_true(isnan(ir_dtype_round(IR_F8E4M3, NAN)));
}

// ---- the targets --------------------------------------------------------------------------------

// Rows of 256 numbers: of f32 every sign and exponent with all of the seven bits below and some of the
// rest, and what lies around the middle between two codes; all codes, over and over.
enum {
  WIDTH = 256,
  PATTERNS = 3,
  SWEEP = PATTERNS << 16,
  MIDDLES = 2 * 3 * 128,
  TOTAL = SWEEP + MIDDLES
};
enum { ROWS = TOTAL / WIDTH, TENSORS = 5 };
static_assert(TOTAL % WIDTH == 0, "whole rows");

static const char text[] = "graph @casts(%f: f32[T, D=256], %b: f8e4m3[T, D]) {\n"
                           "  %q = cast %f : f8e4m3[T, D]\n"
                           "  %w = cast %b : f32[T, D]\n"
                           "  %n = neg %b  : f8e4m3[T, D]\n"
                           "  return %q, %w, %n\n"
                           "}\n";

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static void fill(float *floats, uint8_t *codes) {
  static const uint32_t rest[PATTERNS] = {0, 0x0001, 0xffff};
  for (uint32_t i = 0; i < SWEEP; i++)
    floats[i] = float_of(i / PATTERNS << 16 | rest[i % PATTERNS]);
  for (int i = 0; i < MIDDLES; i++) {
    const uint8_t code = (uint8_t)(i / 6 < MOST ? i / 6 : MOST - 1);
    const float middle = (float)((value_of(code) + value_of(code + 1)) / 2);
    const float around[] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY)};
    floats[SWEEP + i] = i % 2 ? -around[i / 2 % 3] : around[i / 2 % 3];
  }
  for (int i = 0; i < TOTAL; i++)
    codes[i] = (uint8_t)i;
}

static void assert_ok(fathom_status status) {
  if (status != FATHOM_OK) fail_msg("%s", fathom_error_text());
}

typedef struct program {
  fathom_context *context;
  fathom_module *module;
  fathom_executable *executable;
} program;

static bool make_program(program *p, const fathom_compile_options *options) {
  assert_ok(fathom_context_create(NULL, &p->context));
  assert_ok(fathom_parse(p->context, text, strlen(text), "casts.fir", &p->module));
  const fathom_status status =
      fathom_compile(p->context, fathom_module_graph_at(p->module, 0), options, &p->executable);
  if (status == FATHOM_UNSUPPORTED) return false; // a target that this build or machine lacks
  assert_ok(status);
  return true;
}

static void drop_program(program *p) {
  fathom_executable_destroy(p->executable);
  fathom_module_destroy(p->module);
  fathom_context_destroy(p->context);
}

static fathom_status run(const program *p, const fathom_arg *args) {
  size_t bytes;
  fathom_status status = fathom_workspace_size(p->executable, args, TENSORS, NULL, &bytes);
  if (status != FATHOM_OK) return status;
  void *workspace = aligned_alloc(128, bytes / 128 * 128 + 128);
  status = fathom_run(p->executable, args, TENSORS, workspace, bytes, NULL);
  free(workspace);
  return status;
}

// How the elements lie in memory: steps along T and along D.
typedef struct layout {
  int64_t row, column;
} layout;

typedef struct arrays {
  float *floats, *widened;
  uint8_t *codes, *narrowed, *negated;
  int64_t shape[2], strides[2];
  DLTensor tensors[TENSORS];
  fathom_arg args[TENSORS];
} arrays;

static void *allocate(size_t bytes) {
  return aligned_alloc(128, bytes / 128 * 128 + 128);
}

static void make_arrays(arrays *a, layout l, DLDataType f8) {
  static const char *const names[] = {"f", "b", "q", "w", "n"};
  const size_t count = (size_t)(ROWS * l.row > WIDTH * l.column ? ROWS * l.row : WIDTH * l.column);
  const DLDataType f32 = {kDLFloat, 32, 1}, types[] = {f32, f8, f8, f32, f8};
  *a = (arrays){.floats = allocate(count * 4),
                .widened = allocate(count * 4),
                .codes = allocate(count),
                .narrowed = allocate(count),
                .negated = allocate(count),
                .shape = {ROWS, WIDTH},
                .strides = {l.row, l.column}};
  void *data[] = {a->floats, a->codes, a->narrowed, a->widened, a->negated};
  for (int i = 0; i < TENSORS; i++) {
    a->tensors[i] = (DLTensor){.data = data[i],
                               .device = {kDLCPU, 0},
                               .ndim = 2,
                               .dtype = types[i],
                               .shape = a->shape,
                               .strides = a->strides};
    a->args[i] = (fathom_arg){.name = names[i], .tensor = &a->tensors[i]};
  }
}

static void drop_arrays(arrays *a) {
  free(a->floats);
  free(a->widened);
  free(a->codes);
  free(a->narrowed);
  free(a->negated);
}

static void check_element(const char *target, const arrays *a, size_t at) {
  const uint8_t wanted = code_of((double)a->floats[at]), code = a->codes[at];
  if (!same_code(a->narrowed[at], wanted))
    fail_msg("%s: %a is %02x, expected %02x", target, (double)a->floats[at], a->narrowed[at],
             wanted);
  const float value = (float)value_of(code), found = a->widened[at];
  if (isnan(value) ? !isnan(found) : value != found || !signbit(value) != !signbit(found))
    fail_msg("%s: %02x is %a, expected %a", target, code, (double)found, (double)value);
  if (!same_code(a->negated[at], code ^ SIGN))
    fail_msg("%s: minus %02x is %02x", target, code, a->negated[at]);
}

static void check_target(const char *target, const char *cpu, layout l) {
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = target;
  options.cpu = cpu;
  program p = {0};
  float *floats = malloc(TOTAL * sizeof *floats);
  uint8_t *codes = malloc(TOTAL);
  fill(floats, codes);
  if (make_program(&p, &options)) {
    arrays a;
    make_arrays(&a, l, (DLDataType){FLOAT8_E4M3FN, 8, 1});
    for (int64_t i = 0; i < TOTAL; i++) {
      a.floats[i / WIDTH * l.row + i % WIDTH * l.column] = floats[i];
      a.codes[i / WIDTH * l.row + i % WIDTH * l.column] = codes[i];
    }
    assert_ok(run(&p, a.args));
    for (int64_t i = 0; i < TOTAL; i++)
      check_element(target, &a, (size_t)(i / WIDTH * l.row + i % WIDTH * l.column));
    drop_arrays(&a);
  }
  drop_program(&p);
  free(floats);
  free(codes);
}

// Dense rows; rows that begin at any byte, which GPUs read one element at a time; and columns, which
// CPUs copy to tiles first.
static void test_targets(void **state) {
  (void)state;
  static const char *const cpus[] = {NULL, "x86-64-v3", "x86-64"};
  static const layout layouts[] = {{WIDTH, 1}, {WIDTH + 3, 1}, {1, ROWS}};
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
    check_target("interp", NULL, layouts[i]);
    for (size_t j = 0; j < sizeof cpus / sizeof cpus[0]; j++)
      check_target("cpu", cpus[j], layouts[i]);
    check_target("cuda-emu", NULL, layouts[i]);
  }
}

static void test_dlpack(void **state) {
  (void)state;
  static const DLDataType good[] = {{FLOAT8_E4M3FN, 8, 1}, {kDLUInt, 8, 1}};
  static const DLDataType bad[] = {
      {FLOAT8_E4M3FN, 8, 2}, {kDLUInt, 16, 1}, {kDLInt, 8, 1}, {kDLFloat, 8, 1}, {0, 0, 0}};
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = "interp";
  program p = {0};
  assert_true(make_program(&p, &options));
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    arrays a;
    make_arrays(&a, (layout){WIDTH, 1}, good[i]);
    memset(a.codes, 0x38, TOTAL);
    memset(a.floats, 0, TOTAL * sizeof *a.floats);
    assert_ok(run(&p, a.args));
    assert_true(a.widened[TOTAL - 1] == 1 && a.negated[0] == 0xb8);
    drop_arrays(&a);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    arrays a;
    make_arrays(&a, (layout){WIDTH, 1}, bad[i]);
    assert_int_equal(run(&p, a.args), FATHOM_INVALID);
    assert_non_null(
        strstr(fathom_error_text(), "expected dtype f8e4m3 (kDLFloat8_e4m3fn, which is 10"));
    drop_arrays(&a);
  }
  drop_program(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_round),
      cmocka_unit_test(test_targets),
      cmocka_unit_test(test_dlpack),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
