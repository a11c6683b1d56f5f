// lex: tokens of the IR text. Newlines mean nothing to the grammar, but tokens know that they start
// a line, so that the parser can put "the end of the line" into words.
#include "ir/lex.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool in_name(char c) {
  return starts_name(c) || is_digit(c) || c == '.';
}

static bool is_punctuation(char c) {
  return c != '\0' && strchr("()[]{},:=", c) != NULL;
}

ir_lexer ir_lexer_start(base_str text) {
  static const char byte_order_mark[] = "\xef\xbb\xbf";
  if (text.length == 0) text = BASE_STR(""); // its data may be NULL, which has no offsets
  const bool marked = text.length >= 3 && memcmp(text.data, byte_order_mark, 3) == 0;
  return (ir_lexer){.text = text, .position = marked ? 3 : 0, .line = 1};
}

// The byte `ahead` places on; 0 past the end.
static char peek(const ir_lexer *lexer, size_t ahead) {
  const size_t left = lexer->text.length - lexer->position;
  return ahead < left ? lexer->text.data[lexer->position + ahead] : '\0';
}

static bool at_end(const ir_lexer *lexer) {
  return lexer->position == lexer->text.length;
}

// True when a newline was passed.
static bool skip_space(ir_lexer *lexer) {
  bool newline = false;
  while (!at_end(lexer)) {
    const char c = peek(lexer, 0);
    if (c == '\n') {
      newline = true;
      lexer->line++;
      lexer->line_start = ++lexer->position;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      lexer->position++;
    } else if (c == '/' && peek(lexer, 1) == '/') {
      while (!at_end(lexer) && peek(lexer, 0) != '\n')
        lexer->position++;
    } else {
      break;
    }
  }
  return newline;
}

static bool starts_number(char c, char next) {
  return is_digit(c) || (c == '.' && is_digit(next)) ||
         ((c == '-' || c == '+') && (next == '.' || is_digit(next) || starts_name(next)));
}

static bool in_number(char c, char previous) {
  return in_name(c) || ((c == '-' || c == '+') && (previous == 'e' || previous == 'E'));
}

static int scan(ir_lexer *lexer) {
  const char c = peek(lexer, 0), next = peek(lexer, 1);
  lexer->position++;
  if (is_punctuation(c)) return c;
  if (starts_number(c, next)) {
    while (in_number(peek(lexer, 0), lexer->text.data[lexer->position - 1]))
      lexer->position++;
    return IR_TOKEN_NUMBER;
  }
  const bool sigil = c == '%' || c == '@';
  if (starts_name(c) || (sigil && in_name(next))) {
    while (in_name(peek(lexer, 0)))
      lexer->position++;
    return c == '%' ? IR_TOKEN_VALUE : c == '@' ? IR_TOKEN_GLOBAL : IR_TOKEN_NAME;
  }
  // One token, and so one error, for a run of foreign bytes.
  while (!sigil && !at_end(lexer) && (unsigned char)peek(lexer, 0) >= 0x80)
    lexer->position++;
  return IR_TOKEN_BAD;
}

ir_token ir_lexer_next(ir_lexer *lexer) {
  const bool first = skip_space(lexer) || lexer->position == 0;
  const size_t start = lexer->position;
  const int kind = at_end(lexer) ? IR_TOKEN_END : scan(lexer);
  const size_t length = lexer->position - start;
  return (ir_token){
      .kind = kind,
      .text = {lexer->text.data + start, length},
      .loc = {lexer->line, (uint32_t)(start - lexer->line_start) + 1, (uint32_t)length},
      .first = first,
  };
}

// ---- numbers ------------------------------------------------------------------------------------

static bool is_special(base_str text, double *number) {
  static const struct {
    const char *text;
    double value;
  } specials[] = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}};
  for (size_t i = 0; i < sizeof specials / sizeof specials[0]; i++) {
    if (!base_str_equal(text, base_str_from(specials[i].text))) continue;
    *number = specials[i].value;
    return true;
  }
  return false;
}

bool ir_number_parse(base_arena *arena, base_str text, double *number) {
  if (is_special(text, number)) return true;
  for (size_t i = 0; i < text.length; i++) // strtod takes more than our grammar: 0x1p3, infinity
    if (!is_digit(text.data[i]) && !strchr("+-.eE", text.data[i])) return false;
  const char *terminated = base_str_copy(arena, text).data;
  // The host's locale may write 0,5; a file means the same everywhere.
  const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  char *end;
  *number = strtod_l(terminated, &end, c_locale);
  freelocale(c_locale);
  return text.length > 0 && end == terminated + text.length && isfinite(*number);
}

bool ir_integer_parse(base_str text, int64_t largest, int64_t *integer) {
  int64_t value = 0;
  for (size_t i = 0; i < text.length; i++) {
    if (!is_digit(text.data[i])) return false;
    const int digit = text.data[i] - '0';
    if (value > (largest - digit) / 10) return false;
    value = 10 * value + digit;
  }
  *integer = value;
  return text.length > 0;
}
