// The op table and the dtypes. Rounding is checked for every bf16 and every f16 there is, at the
// value, at the midpoint to its neighbour, and one f64 step to either side of the midpoint.
#include "ir/ir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

// A finite 16-bit value by its definition; `bits` without the sign.
static double decode(uint32_t bits, int fraction_bits, int smallest_exponent) {
  const uint32_t fraction = bits & ((1u << fraction_bits) - 1), exponent = bits >> fraction_bits;
  const uint32_t leading = exponent > 0 ? 1u << fraction_bits : 0;
  const int scale = smallest_exponent + (exponent > 0 ? (int)exponent - 1 : 0) - fraction_bits;
  return ldexp(fraction + leading, scale);
}

static void check_rounds(ir_dtype dtype, double x, double expected) {
  for (int sign = 1; sign >= -1; sign -= 2) {
    const double found = ir_dtype_round(dtype, sign * x), wanted = sign * expected;
    if (found != wanted || !signbit(found) != !signbit(wanted))
      fail_msg("%s of %a: expected %a, found %a", ir_dtype_name(dtype), sign * x, wanted, found);
  }
}

static void check_format(ir_dtype dtype, int fraction_bits, int smallest_exponent) {
  const uint32_t infinity = 0x7fffu >> fraction_bits << fraction_bits;
  for (uint32_t bits = 0; bits < infinity; bits++) {
    const double below = decode(bits, fraction_bits, smallest_exponent);
    const double above =
        decode(bits + 1, fraction_bits, smallest_exponent); // infinity's is 2^(max+1)
    const double middle = below + (above - below) / 2;
    const double rounded_up = bits + 1 == infinity ? INFINITY : above;
    check_rounds(dtype, below, below);
    check_rounds(dtype, nextafter(middle, 0), below);
    check_rounds(dtype, middle, bits % 2 == 0 ? below : rounded_up);
    check_rounds(dtype, nextafter(middle, INFINITY), rounded_up);
  }
  check_rounds(dtype, INFINITY, INFINITY);
  check_rounds(dtype, 1e308, INFINITY);
  check_rounds(dtype, 5e-324, 0);
  assert_true(isnan(ir_dtype_round(dtype, NAN)));
}

static void test_rounding(void **state) {
  (void)state;
  check_format(IR_BF16, 7, -126);
  check_format(IR_F16, 10, -14);
  check_rounds(IR_F32, 0.1, 0.1); // the interpreter computes f32 in f64
}

static void test_dtypes(void **state) {
  (void)state;
  assert_string_equal(ir_dtype_name(IR_BF16), "bf16");
  assert_int_equal(ir_dtype_size(IR_F32), 4);
  assert_int_equal(ir_dtype_size(IR_F16), 2);
}

static void test_table(void **state) {
  (void)state;
  for (uint32_t i = 0; i < IR_OP_COUNT; i++) {
    const ir_op_info *info = ir_op_get((ir_op)i);
    ir_op found;
    assert_true(ir_op_find(base_str_from(info->keyword), &found));
    assert_int_equal(found, i); // so keywords are unique
    assert_true(info->min_operands <= info->max_operands);
    assert_true(info->max_over <= IR_MAX_RANK && info->max_to <= IR_MAX_RANK);
  }
  ir_op op = IR_ADD;
  assert_false(ir_op_find(BASE_STR("ad"), &op));
  assert_false(ir_op_find(BASE_STR(""), &op));
}

static void test_evaluate(void **state) {
  (void)state;
  assert_true(ir_op_evaluate(IR_SUB, 5, 3) == 2);
  assert_true(ir_op_evaluate(IR_DIV, 1, 0) == INFINITY);
  assert_true(ir_op_evaluate(IR_RSQRT, 4, 0) == 0.5);
  assert_true(ir_op_evaluate(IR_SIGMOID, -1e4, 0) == 0);
  assert_true(ir_op_evaluate(IR_SIGMOID, 1e4, 0) == 1);
  assert_true(ir_op_evaluate(IR_MAX, 2, 3) == 3);
  assert_true(isnan(ir_op_evaluate(IR_MAX, NAN, 3)));
  assert_true(isnan(ir_op_evaluate(IR_MAX, 3, NAN)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_dtypes),
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_evaluate),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
