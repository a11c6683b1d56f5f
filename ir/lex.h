// lex: tokens of the IR text, for the parser alone.
#ifndef FATHOM_IR_LEX_H
#define FATHOM_IR_LEX_H

#include "base/base.h"

// A punctuation token's kind is its character.
enum {
  IR_TOKEN_END = 256,
  IR_TOKEN_VALUE,  // %name
  IR_TOKEN_GLOBAL, // @name
  IR_TOKEN_NAME,   // keyword, axis, dtype, attribute
  IR_TOKEN_NUMBER, // starts like a number; ir_number_parse says whether it is one
  IR_TOKEN_BAD,    // bytes that start no token
};

typedef struct ir_token {
  int kind;
  base_str text; // as written, with its % or @
  base_loc loc;
  bool first; // first token of its line
} ir_token;

typedef struct ir_lexer {
  base_str text;
  size_t position, line_start;
  uint32_t line;
} ir_lexer;

ir_lexer ir_lexer_start(base_str text);
// Skips space and comments. At the end of the text, and ever after, IR_TOKEN_END.
ir_token ir_lexer_next(ir_lexer *lexer);

// The f64 nearest to a decimal number; also inf, -inf and nan. False when `text` is none of these
// or is too large for an f64.
bool ir_number_parse(base_arena *arena, base_str text, double *number);
// Digits only. False when `text` is no such integer or exceeds `largest`.
bool ir_integer_parse(base_str text, int64_t largest, int64_t *integer);

#endif
