// ops: what the op table and the dtypes mean in numbers.
#include "ir/ir.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

// ---- dtypes -------------------------------------------------------------------------------------

// A binary floating-point format: bits after the leading one, and the exponents of the smallest and
// largest normal numbers. One without infinities stops at `most`; in the others it is 0.
typedef struct dtype_info {
  const char *name;
  size_t size;
  int fraction, smallest, largest;
  double most;
} dtype_info;

static const dtype_info dtypes[] = {
    [IR_F32] = {"f32", 4, 23, -126, 127, 0},
    [IR_BF16] = {"bf16", 2, 7, -126, 127, 0},
    [IR_F16] = {"f16", 2, 10, -14, 15, 0},
    [IR_F8E4M3] = {"f8e4m3", 1, 3, -6, 8, 448}, // 480 would be the next one: its code is a NaN
};
static_assert(sizeof dtypes / sizeof dtypes[0] == IR_DTYPE_COUNT, "one row for each dtype");

const char *ir_dtype_name(ir_dtype dtype) {
  return dtypes[dtype].name;
}

size_t ir_dtype_size(ir_dtype dtype) {
  return dtypes[dtype].size;
}

static double power_of_two(int exponent) { // of a normal f64
  const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
  double power;
  memcpy(&power, &bits, sizeof power);
  return power;
}

// Rounding is straight from f64: by way of f32 some values would be rounded twice. Adding 1.5 *
// 2^52 units of the last place kept pushes all lower bits out of the sum, and the FPU rounds them
// to nearest even.
static double round_to(const dtype_info *format, double x) {
  static_assert(FLT_EVAL_METHOD == 0, "needs f64 sums that are rounded to f64");
  if (isnan(x)) return x;
  const double beyond = format->most != 0 ? format->most : INFINITY;
  const double limit = format->most != 0 ? format->most : 2 * power_of_two(format->largest);
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 52 & 0x7ff) - 1023;
  if (exponent > format->largest) return copysign(beyond, x);
  if (exponent < format->smallest) exponent = format->smallest; // subnormals share one unit
  const double shift = 1.5 * power_of_two(exponent - format->fraction + 52);
  const double rounded = fabs(x) + shift - shift;
  return copysign(rounded >= limit ? beyond : rounded, x);
}

double ir_dtype_round(ir_dtype dtype, double x) {
  return dtype == IR_F32 ? x : round_to(&dtypes[dtype], x);
}

// ---- ops ----------------------------------------------------------------------------------------

static const ir_op_info op_table[] = {
#define OP(NAME, keyword, min, max, SHAPE, over, to, ATTRIBUTES, FACTS, evaluate, summary)         \
  {keyword, min, max, IR_SHAPE_##SHAPE, over, to, ATTRIBUTES, FACTS, summary},
#include "ir/ops.def"
#undef OP
};
static_assert(sizeof op_table / sizeof op_table[0] == IR_OP_COUNT, "one row for each op");

const ir_op_info *ir_op_get(ir_op op) {
  return &op_table[op];
}

bool ir_op_find(base_str keyword, ir_op *op) {
  for (uint32_t i = 0; i < IR_OP_COUNT; i++) {
    if (!base_str_equal(keyword, base_str_from(op_table[i].keyword))) continue;
    *op = (ir_op)i;
    return true;
  }
  return false;
}

double ir_op_evaluate(ir_op op, double a, double b) {
  switch (op) {
#define OP(NAME, keyword, min, max, SHAPE, over, to, ATTRIBUTES, FACTS, evaluate, summary)         \
  case IR_##NAME:                                                                                  \
    return (evaluate);
#include "ir/ops.def"
#undef OP
  case IR_OP_COUNT:
    break;
  }
  return 0;
}
