// Arithmetic on f32 and vectors of f32: map ops, exp and log without a math library, and how the
// narrower types are stored.
//
// No fast-math flags: infinities and NaN matter. Products and sums may fuse (llvm.fmuladd), which
// only makes them more exact.
#include <math.h>
#include <string.h>

#include "codegen/llvm/emit.h"

LLVMTypeRef emit_type(emitter *e, uint32_t width) {
  return width == 1 ? e->f32 : LLVMVectorType(e->f32, width);
}

static LLVMTypeRef widened(LLVMTypeRef scalar, uint32_t width) {
  return width == 1 ? scalar : LLVMVectorType(scalar, width);
}

uint32_t emit_width(LLVMValueRef value) {
  LLVMTypeRef type = LLVMTypeOf(value);
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 1;
}

LLVMValueRef emit_i64(emitter *e, int64_t value) {
  return LLVMConstInt(e->i64, (unsigned long long)value, true);
}

static LLVMValueRef splat_constant(LLVMValueRef scalar, uint32_t width) {
  LLVMValueRef lanes[64];
  if (width == 1) return scalar;
  for (uint32_t i = 0; i < width; i++)
    lanes[i] = scalar;
  return LLVMConstVector(lanes, width);
}

LLVMValueRef emit_constant(emitter *e, double value, uint32_t width) {
  return splat_constant(LLVMConstReal(e->f32, (double)(float)value), width);
}

static LLVMValueRef int_constant(emitter *e, uint32_t value, uint32_t width) {
  return splat_constant(LLVMConstInt(e->i32, value, false), width);
}

LLVMValueRef emit_splat(emitter *e, LLVMValueRef value, uint32_t width) {
  if (width == 1 || emit_width(value) == width) return value;
  if (LLVMIsConstant(value) && LLVMIsAConstantFP(value)) return splat_constant(value, width);
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(value), width);
  LLVMValueRef one = LLVMBuildInsertElement(e->builder, LLVMGetPoison(type), value,
                                            LLVMConstInt(e->i32, 0, false), "");
  LLVMValueRef mask = LLVMConstNull(LLVMVectorType(e->i32, width));
  return LLVMBuildShuffleVector(e->builder, one, LLVMGetPoison(type), mask, "splat");
}

LLVMValueRef emit_intrinsic(emitter *e, const char *name, LLVMTypeRef overload,
                            LLVMValueRef *arguments, uint32_t count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMTypeRef overloads[1] = {overload};
  size_t overload_count = overload ? 1 : 0;
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(e->module, id, overloads, overload_count);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, overloads, overload_count);
  return LLVMBuildCall2(e->builder, type, function, arguments, count, "");
}

static LLVMValueRef unary_intrinsic(emitter *e, const char *name, LLVMValueRef a) {
  return emit_intrinsic(e, name, LLVMTypeOf(a), &a, 1);
}

LLVMValueRef emit_fma(emitter *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  uint32_t width = emit_width(c);
  if (emit_width(a) > width) width = emit_width(a);
  if (emit_width(b) > width) width = emit_width(b);
  LLVMValueRef arguments[3] = {emit_splat(e, a, width), emit_splat(e, b, width),
                               emit_splat(e, c, width)};
  return emit_intrinsic(e, "llvm.fmuladd", LLVMTypeOf(arguments[0]), arguments, 3);
}

// ---- exp and log --------------------------------------------------------------------------------

static LLVMValueRef polynomial(emitter *e, LLVMValueRef x, const double *coefficients, int count) {
  uint32_t width = emit_width(x);
  LLVMValueRef sum = emit_constant(e, coefficients[0], width);
  for (int i = 1; i < count; i++)
    sum = emit_fma(e, sum, x, emit_constant(e, coefficients[i], width));
  return sum;
}

static LLVMValueRef as_int(emitter *e, LLVMValueRef a) {
  return LLVMBuildBitCast(e->builder, a, widened(e->i32, emit_width(a)), "");
}

static LLVMValueRef as_float(emitter *e, LLVMValueRef a) {
  return LLVMBuildBitCast(e->builder, a, emit_type(e, emit_width(a)), "");
}

// 2 to the power n for integers -126 <= n <= 127, from the exponent field.
static LLVMValueRef power_of_two(emitter *e, LLVMValueRef n) {
  uint32_t width = emit_width(n);
  LLVMValueRef biased = LLVMBuildAdd(e->builder, n, int_constant(e, 127, width), "");
  return as_float(e, LLVMBuildShl(e->builder, biased, int_constant(e, 23, width), ""));
}

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split in two parts so that r
// is exact enough; 2^n is applied in two halves so that subnormal results and overflow come out
// right. The Taylor polynomial of degree 7 leaves a relative error below 1e-8 on |r| <= 0.347. NaN
// passes through: compares with NaN are false, so the clamps keep it.
static LLVMValueRef build_exp(emitter *e, LLVMValueRef x) {
  static const double taylor[] = {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24,
                                  1.0 / 6,    0.5,       1.0,       1.0};
  uint32_t width = emit_width(x);
  LLVMBuilderRef b = e->builder;
  LLVMValueRef low = emit_constant(e, -150.0, width), high = emit_constant(e, 100.0, width);
  x = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOLT, x, low, ""), low, x, "");
  x = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOGT, x, high, ""), high, x, "");
  // Adding 1.5 * 2^23 rounds to an integer, which then sits in the low mantissa bits.
  LLVMValueRef magic = emit_constant(e, 12582912.0, width);
  LLVMValueRef shifted = LLVMBuildFAdd(
      b, LLVMBuildFMul(b, x, emit_constant(e, 1.4426950408889634, width), ""), magic, "");
  LLVMValueRef n = LLVMBuildFSub(b, shifted, magic, "");
  LLVMValueRef integer = LLVMBuildSub(b, as_int(e, shifted), as_int(e, magic), "");
  LLVMValueRef r = emit_fma(e, n, emit_constant(e, -0.693359375, width), x);
  r = emit_fma(e, n, emit_constant(e, 2.12194440054690583e-4, width), r);
  LLVMValueRef p = polynomial(e, r, taylor, 8);
  LLVMValueRef half = LLVMBuildAShr(b, integer, int_constant(e, 1, width), "");
  LLVMValueRef rest = LLVMBuildSub(b, integer, half, "");
  p = LLVMBuildFMul(b, p, power_of_two(e, half), "");
  return LLVMBuildFMul(b, p, power_of_two(e, rest), "exp");
}

// log(x) = n ln 2 + log(m), m in [sqrt(1/2), sqrt(2)), log(m) = 2 atanh(s) with s = (m - 1) / (m +
// 1), |s| <= 0.1716: the odd series to s^11 leaves less than 1e-10. Subnormals are scaled by 2^23
// first.
static LLVMValueRef build_log(emitter *e, LLVMValueRef x) {
  static const double series[] = {2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0};
  uint32_t width = emit_width(x);
  LLVMBuilderRef b = e->builder;
  LLVMValueRef zero = emit_constant(e, 0, width), infinity = emit_constant(e, INFINITY, width);
  LLVMValueRef tiny = LLVMBuildFCmp(b, LLVMRealOLT, x, emit_constant(e, 1.17549435e-38, width), "");
  LLVMValueRef scaled =
      LLVMBuildSelect(b, tiny, LLVMBuildFMul(b, x, emit_constant(e, 8388608.0, width), ""), x, "");
  LLVMValueRef bits = as_int(e, scaled);
  // Shifts the range of the mantissa from [1, 2) to [sqrt(1/2), sqrt(2)): 0x3f3504f3 is sqrt(1/2).
  LLVMValueRef moved = LLVMBuildSub(b, bits, int_constant(e, 0x3f3504f3, width), "");
  LLVMValueRef n = LLVMBuildAShr(b, moved, int_constant(e, 23, width), "");
  LLVMValueRef mantissa =
      as_float(e, LLVMBuildSub(b, bits, LLVMBuildShl(b, n, int_constant(e, 23, width), ""), ""));
  LLVMValueRef power = LLVMBuildSIToFP(b, n, emit_type(e, width), "");
  power = LLVMBuildFSub(b, power, LLVMBuildSelect(b, tiny, emit_constant(e, 23.0, width), zero, ""),
                        "");
  LLVMValueRef one = emit_constant(e, 1, width);
  LLVMValueRef s = LLVMBuildFDiv(b, LLVMBuildFSub(b, mantissa, one, ""),
                                 LLVMBuildFAdd(b, mantissa, one, ""), "");
  LLVMValueRef square = LLVMBuildFMul(b, s, s, "");
  LLVMValueRef log = LLVMBuildFMul(b, s, polynomial(e, square, series, 6), "");
  log = emit_fma(e, power, emit_constant(e, 0.6931471805599453, width), log);
  log = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOEQ, x, infinity, ""), infinity, log, "");
  log = LLVMBuildSelect(b, LLVMBuildFCmp(b, LLVMRealOEQ, x, zero, ""),
                        emit_constant(e, -INFINITY, width), log, "");
  LLVMValueRef valid = LLVMBuildFCmp(b, LLVMRealOGE, x, zero, ""); // false for NaN
  return LLVMBuildSelect(b, valid, log, emit_constant(e, NAN, width), "log");
}

LLVMValueRef emit_flush_subnormal(emitter *e, LLVMValueRef value) {
  uint32_t width = emit_width(value);
  LLVMValueRef size = unary_intrinsic(e, "llvm.fabs", value);
  LLVMValueRef tiny =
      LLVMBuildFCmp(e->builder, LLVMRealOLT, size, emit_constant(e, 1.17549435e-38, width), "");
  return LLVMBuildSelect(e->builder, tiny, emit_constant(e, 0, width), value, "");
}

// ---- map ops ------------------------------------------------------------------------------------

static LLVMValueRef build_reciprocal(emitter *e, LLVMValueRef x) {
  return LLVMBuildFDiv(e->builder, emit_constant(e, 1, emit_width(x)), x, "");
}

static LLVMValueRef build_sigmoid(emitter *e, LLVMValueRef x) {
  LLVMValueRef power = build_exp(e, LLVMBuildFNeg(e->builder, x, ""));
  return build_reciprocal(e,
                          LLVMBuildFAdd(e->builder, power, emit_constant(e, 1, emit_width(x)), ""));
}

bool emit_has(ir_op op) {
  static const bool map_ops[IR_OP_COUNT] = {
      [IR_ADD] = true,   [IR_SUB] = true,     [IR_MUL] = true, [IR_DIV] = true,
      [IR_MAX] = true,   [IR_NEG] = true,     [IR_EXP] = true, [IR_LOG] = true,
      [IR_RSQRT] = true, [IR_SIGMOID] = true, [IR_CAST] = true};
  return map_ops[op] || ir_op_get(op)->shape != IR_SHAPE_MAP;
}

LLVMValueRef emit_map(emitter *e, ir_op op, LLVMValueRef a, LLVMValueRef b) {
  LLVMBuilderRef build = e->builder;
  if (b) {
    uint32_t width = emit_width(a) > emit_width(b) ? emit_width(a) : emit_width(b);
    a = emit_splat(e, a, width);
    b = emit_splat(e, b, width);
  }
  switch (op) {
  case IR_ADD:
    return LLVMBuildFAdd(build, a, b, "");
  case IR_SUB:
    return LLVMBuildFSub(build, a, b, "");
  case IR_MUL:
    return LLVMBuildFMul(build, a, b, "");
  case IR_DIV:
    return LLVMBuildFDiv(build, a, b, "");
  case IR_MAX: {
    LLVMValueRef both[2] = {a, b};
    return emit_intrinsic(e, "llvm.maximum", LLVMTypeOf(a), both, 2);
  }
  case IR_NEG:
    return LLVMBuildFNeg(build, a, "");
  case IR_EXP:
    return build_exp(e, a);
  case IR_LOG:
    return build_log(e, a);
  case IR_RSQRT:
    return build_reciprocal(e, unary_intrinsic(e, "llvm.sqrt", a));
  case IR_SIGMOID:
    return build_sigmoid(e, a);
  case IR_CAST:
    return a;
  default:
    return NULL; // emit_has says no, and the plan refuses the graph
  }
}

// ---- storage ------------------------------------------------------------------------------------

LLVMTypeRef emit_stored_type(emitter *e, ir_dtype dtype, uint32_t width) {
  LLVMTypeRef scalar = dtype == IR_F32                ? e->f32
                       : dtype == IR_F8E4M3           ? e->i8
                       : dtype == IR_F16 && e->halves ? e->f16
                                                      : e->i16;
  return widened(scalar, width);
}

// Between f16 and f32 in integers, for CPUs without the instructions: LLVM would call library
// functions there.
static LLVMValueRef widen_half(emitter *e, LLVMValueRef stored) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(stored);
  LLVMValueRef bits = LLVMBuildZExt(b, stored, widened(e->i32, width), "");
  LLVMValueRef sign = LLVMBuildShl(b, LLVMBuildAnd(b, bits, int_constant(e, 0x8000, width), ""),
                                   int_constant(e, 16, width), "");
  LLVMValueRef magnitude = LLVMBuildAnd(b, bits, int_constant(e, 0x7fff, width), "");
  LLVMValueRef moved = LLVMBuildShl(b, magnitude, int_constant(e, 13, width), "");
  // The biases of the exponents differ by 112; the product is right for subnormal halves too.
  LLVMValueRef finite =
      as_int(e, LLVMBuildFMul(b, as_float(e, moved), emit_constant(e, 0x1p112, width), ""));
  LLVMValueRef special = LLVMBuildOr(b, moved, int_constant(e, 0x7f800000, width), "");
  LLVMValueRef is_finite =
      LLVMBuildICmp(b, LLVMIntULT, magnitude, int_constant(e, 0x7c00, width), "");
  LLVMValueRef value = LLVMBuildSelect(b, is_finite, finite, special, "");
  return as_float(e, LLVMBuildOr(b, value, sign, ""));
}

static LLVMValueRef narrow_half(emitter *e, LLVMValueRef value) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(value);
  LLVMValueRef bits = as_int(e, value), thirteen = int_constant(e, 13, width);
  LLVMValueRef magnitude = LLVMBuildAnd(b, bits, int_constant(e, 0x7fffffff, width), "");
  LLVMValueRef sign = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, int_constant(e, 16, width), ""),
                                   int_constant(e, 0x8000, width), "");
  // Nearest even: half a unit less one, and one more when the last bit kept is odd.
  LLVMValueRef odd =
      LLVMBuildAnd(b, LLVMBuildLShr(b, magnitude, thirteen, ""), int_constant(e, 1, width), "");
  LLVMValueRef bias = LLVMBuildAdd(b, odd, int_constant(e, 0xfffu - (112u << 23), width), "");
  LLVMValueRef normal = LLVMBuildLShr(b, LLVMBuildAdd(b, magnitude, bias, ""), thirteen, "");
  // Adding 1/2, whose last bit is worth a subnormal half's, rounds below 2^-14.
  LLVMValueRef half = emit_constant(e, 0.5, width);
  LLVMValueRef small = LLVMBuildSub(
      b, as_int(e, LLVMBuildFAdd(b, as_float(e, magnitude), half, "")), as_int(e, half), "");
  LLVMValueRef is_small =
      LLVMBuildICmp(b, LLVMIntULT, magnitude, int_constant(e, 0x38800000, width), "");
  LLVMValueRef is_large =
      LLVMBuildICmp(b, LLVMIntUGE, magnitude, int_constant(e, 0x47800000, width), "");
  LLVMValueRef is_nan =
      LLVMBuildICmp(b, LLVMIntUGT, magnitude, int_constant(e, 0x7f800000, width), "");
  LLVMValueRef special = LLVMBuildSelect(b, is_nan, int_constant(e, 0x7e00, width),
                                         int_constant(e, 0x7c00, width), "");
  LLVMValueRef result = LLVMBuildSelect(b, is_small, small, normal, "");
  result = LLVMBuildOr(b, LLVMBuildSelect(b, is_large, special, result, ""), sign, "");
  return LLVMBuildTrunc(b, result, emit_stored_type(e, IR_F16, width), "");
}

// f8e4m3: a sign, four bits of exponent (bias 7), three of fraction. No infinities; NaN is the code
// with all bits set. CPUs have no instructions for it.

static LLVMValueRef below(emitter *e, LLVMValueRef bits, uint32_t limit) {
  return LLVMBuildICmp(e->builder, LLVMIntULT, bits, int_constant(e, limit, emit_width(bits)), "");
}

static LLVMValueRef masked(emitter *e, LLVMValueRef bits, uint32_t mask) {
  return LLVMBuildAnd(e->builder, bits, int_constant(e, mask, emit_width(bits)), "");
}

// The codes 0 to 7 are multiples of 2^-9, the last place of an f32 from 2^14 up. By way of that
// number nothing is ever subnormal in f32, which CPUs are slow at.
static LLVMValueRef widen_f8(emitter *e, LLVMValueRef stored) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(stored);
  LLVMValueRef code = LLVMBuildZExt(b, stored, widened(e->i32, width), "");
  LLVMValueRef sign = LLVMBuildShl(b, masked(e, code, 0x80), int_constant(e, 24, width), "");
  LLVMValueRef magnitude = masked(e, code, 0x7f), base = emit_constant(e, 0x1p14, width);
  LLVMValueRef normal = LLVMBuildAdd(b, LLVMBuildShl(b, magnitude, int_constant(e, 20, width), ""),
                                     int_constant(e, 120u << 23, width), "");
  LLVMValueRef above = as_float(e, LLVMBuildOr(b, magnitude, as_int(e, base), ""));
  LLVMValueRef small = as_int(e, LLVMBuildFSub(b, above, base, ""));
  LLVMValueRef value = LLVMBuildSelect(b, below(e, magnitude, 8), small, normal, "");
  value =
      LLVMBuildSelect(b, below(e, magnitude, 0x7f), value, int_constant(e, 0x7fc00000, width), "");
  return as_float(e, LLVMBuildOr(b, value, sign, ""));
}

// Adding 1.5 * 2^23 units of the last place kept, and taking it away again, rounds to nearest even.
// Up to 2^-6 all share one unit; from 448 up, infinity too, all are 448.
static LLVMValueRef round_f8(emitter *e, LLVMValueRef value) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(value);
  LLVMValueRef bits = as_int(e, value), sign = masked(e, bits, 0x80000000u);
  LLVMValueRef magnitude = masked(e, bits, 0x7fffffff), most = int_constant(e, 0x43e00000, width);
  magnitude = LLVMBuildSelect(b, below(e, magnitude, 0x43e00000), magnitude, most, "");
  LLVMValueRef exponent = masked(e, magnitude, 0x7f800000),
               least = int_constant(e, 0x3c800000, width);
  exponent = LLVMBuildSelect(b, below(e, exponent, 0x3c800000), least, exponent, "");
  LLVMValueRef shift =
      as_float(e, LLVMBuildAdd(b, exponent, int_constant(e, (20u << 23) + 0x400000, width), ""));
  LLVMValueRef rounded =
      LLVMBuildFSub(b, LLVMBuildFAdd(b, as_float(e, magnitude), shift, ""), shift, "");
  LLVMValueRef result = as_float(e, LLVMBuildOr(b, as_int(e, rounded), sign, ""));
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, value, value, "");
  return LLVMBuildSelect(b, nan, value, result, "");
}

// The code of a number that has one, or NaN.
static LLVMValueRef narrow_f8(emitter *e, LLVMValueRef value) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(value);
  LLVMValueRef bits = as_int(e, value), base = emit_constant(e, 0x1p14, width);
  LLVMValueRef magnitude = masked(e, bits, 0x7fffffff);
  LLVMValueRef sign = masked(e, LLVMBuildLShr(b, bits, int_constant(e, 24, width), ""), 0x80);
  LLVMValueRef normal =
      LLVMBuildLShr(b, LLVMBuildSub(b, magnitude, int_constant(e, 120u << 23, width), ""),
                    int_constant(e, 20, width), "");
  LLVMValueRef above = as_int(e, LLVMBuildFAdd(b, as_float(e, magnitude), base, ""));
  LLVMValueRef small = LLVMBuildSub(b, above, as_int(e, base), "");
  LLVMValueRef code = LLVMBuildSelect(b, below(e, magnitude, 0x3c800000), small, normal, "");
  code =
      LLVMBuildSelect(b, below(e, magnitude, 0x7f800000), code, int_constant(e, 0x7f, width), "");
  return LLVMBuildTrunc(b, LLVMBuildOr(b, code, sign, ""), emit_stored_type(e, IR_F8E4M3, width),
                        "");
}

LLVMValueRef emit_widen(emitter *e, ir_dtype dtype, LLVMValueRef stored) {
  uint32_t width = emit_width(stored);
  if (dtype == IR_F32) return stored;
  if (dtype == IR_F8E4M3) return widen_f8(e, stored);
  if (dtype == IR_F16)
    return e->halves ? LLVMBuildFPExt(e->builder, stored, emit_type(e, width), "")
                     : widen_half(e, stored);
  LLVMValueRef wide = LLVMBuildZExt(e->builder, stored, widened(e->i32, width), "");
  return as_float(e, LLVMBuildShl(e->builder, wide, int_constant(e, 16, width), ""));
}

// Round to nearest even on the upper 16 bits; a NaN keeps its sign and becomes quiet. In integers
// because LLVM's fptrunc to bfloat calls a library function where the CPU has no instruction for
// it.
static LLVMValueRef rounded_bits(emitter *e, LLVMValueRef value) {
  LLVMBuilderRef b = e->builder;
  uint32_t width = emit_width(value);
  LLVMValueRef bits = as_int(e, value);
  LLVMValueRef odd = LLVMBuildAnd(b, LLVMBuildLShr(b, bits, int_constant(e, 16, width), ""),
                                  int_constant(e, 1, width), "");
  LLVMValueRef bias = LLVMBuildAdd(b, odd, int_constant(e, 0x7fff, width), "");
  LLVMValueRef rounded = LLVMBuildAdd(b, bits, bias, "");
  LLVMValueRef nan = LLVMBuildFCmp(b, LLVMRealUNO, value, value, "");
  LLVMValueRef quiet = LLVMBuildOr(b, bits, int_constant(e, 0x00400000, width), "");
  return LLVMBuildSelect(b, nan, quiet, rounded, "");
}

LLVMValueRef emit_round(emitter *e, ir_dtype dtype, LLVMValueRef value) {
  uint32_t width = emit_width(value);
  if (dtype == IR_F32) return value;
  if (dtype == IR_F8E4M3) return round_f8(e, value);
  if (dtype == IR_F16) return emit_widen(e, dtype, emit_narrow(e, dtype, value));
  return as_float(
      e, LLVMBuildAnd(e->builder, rounded_bits(e, value), int_constant(e, 0xffff0000u, width), ""));
}

LLVMValueRef emit_narrow(emitter *e, ir_dtype dtype, LLVMValueRef value) {
  uint32_t width = emit_width(value);
  if (dtype == IR_F32) return value;
  LLVMTypeRef stored = emit_stored_type(e, dtype, width);
  if (dtype == IR_F8E4M3) return narrow_f8(e, value);
  if (dtype == IR_F16)
    return e->halves ? LLVMBuildFPTrunc(e->builder, value, stored, "") : narrow_half(e, value);
  LLVMValueRef upper = LLVMBuildLShr(e->builder, as_int(e, value), int_constant(e, 16, width), "");
  return LLVMBuildTrunc(e->builder, upper, stored, "");
}

// ---- pairs --------------------------------------------------------------------------------------

LLVMValueRef emit_half_of_pairs(emitter *e, LLVMValueRef pairs, bool odd) {
  uint32_t width = emit_width(pairs);
  LLVMValueRef bits = odd ? LLVMBuildAnd(e->builder, pairs, int_constant(e, 0xffff0000u, width), "")
                          : LLVMBuildShl(e->builder, pairs, int_constant(e, 16, width), "");
  return as_float(e, bits);
}

LLVMValueRef emit_join_pairs(emitter *e, LLVMValueRef even, LLVMValueRef odd) {
  uint32_t width = emit_width(even);
  LLVMValueRef low = LLVMBuildLShr(e->builder, as_int(e, even), int_constant(e, 16, width), "");
  return LLVMBuildOr(e->builder, low, as_int(e, odd), "");
}

// Lane i of the result is lane first + i * step of a and b in a row, or of a and b in turn.
static LLVMValueRef shuffle(emitter *e, LLVMValueRef a, LLVMValueRef b, uint32_t first,
                            uint32_t step, bool in_turn) {
  uint32_t width = emit_width(a);
  LLVMValueRef lanes[64];
  for (uint32_t i = 0; i < width; i++) {
    uint32_t from = in_turn ? (first + i) / 2 + (i % 2) * width : first + i * step;
    lanes[i] = LLVMConstInt(e->i32, from, false);
  }
  return LLVMBuildShuffleVector(e->builder, a, b, LLVMConstVector(lanes, width), "");
}

LLVMValueRef emit_deinterleave(emitter *e, LLVMValueRef low, LLVMValueRef high, bool odd) {
  return shuffle(e, low, high, odd, 2, false);
}

LLVMValueRef emit_interleave(emitter *e, LLVMValueRef even, LLVMValueRef odd, bool high) {
  return shuffle(e, even, odd, high ? emit_width(even) : 0, 0, true);
}
