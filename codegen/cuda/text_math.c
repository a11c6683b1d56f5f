// Arithmetic on f32 as C expressions. Expressions are printed with parentheses around each
// operation but the outermost, which stands alone after an equals sign.
#include <math.h>
#include <string.h>

#include "codegen/cuda/text.h"

const char *text_type(ir_dtype dtype) {
  static const char *const types[] = {
      [IR_F32] = "float", [IR_BF16] = "fm_bf16", [IR_F16] = "fm_f16", [IR_F8E4M3] = "fm_f8"};
  return types[dtype];
}

const char *text_float(text_printer *p, double value) {
  float x = (float)value;
  if (isnan(x)) return "fm_from_bits(0x7fc00000)";
  if (isinf(x)) return x > 0 ? "fm_from_bits(0x7f800000)" : "fm_from_bits(0xff800000)";
  const char *digits = text_format(p, "%.9g", (double)x);
  const char *point = strpbrk(digits, ".e") ? "" : ".0";
  return text_format(p, x < 0 || signbit(x) ? "(%s%sf)" : "%s%sf", digits, point);
}

// Map ops as text, %1$s and %2$s standing for the operands.
static const char *const forms[IR_OP_COUNT] = {
    [IR_ADD] = "(%1$s + %2$s)",
    [IR_SUB] = "(%1$s - %2$s)",
    [IR_MUL] = "(%1$s * %2$s)",
    [IR_DIV] = "fm_divide(%1$s, %2$s)",
    [IR_MAX] = "fm_max(%1$s, %2$s)",
    [IR_NEG] = "(-%1$s)",
    [IR_EXP] = "fm_exp(%1$s)",
    [IR_LOG] = "fm_log(%1$s)",
    [IR_RSQRT] = "fm_rsqrt(%1$s)",
    [IR_SIGMOID] = "fm_sigmoid(%1$s)",
    [IR_CAST] = "%1$s",
};

bool text_has(ir_op op) {
  return forms[op] != NULL || ir_op_get(op)->shape != IR_SHAPE_MAP;
}

static void append_form(base_text *out, const char *form, const char *a, const char *b) {
  for (const char *c = form; *c; c++) {
    if (strncmp(c, "%1$s", 4) == 0 || strncmp(c, "%2$s", 4) == 0) {
      base_text_printf(out, "%s", c[1] == '1' ? a : b);
      c += 3;
    } else {
      base_text_append(out, c, 1);
    }
  }
}

const char *text_map(text_printer *p, ir_op op, const char *a, const char *b) {
  base_text out = {.arena = p->arena};
  append_form(&out, forms[op], a, b ? b : "");
  return out.data;
}

const char *text_round(text_printer *p, ir_dtype dtype, const char *value) {
  return dtype == IR_F32 ? value : text_format(p, "fm_round<%s>(%s)", text_type(dtype), value);
}
