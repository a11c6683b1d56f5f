// Scopes, lines and names.
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "codegen/cuda/text.h"

// ---- names --------------------------------------------------------------------------------------

// What a graph may call an axis or a value and C++ may not.
static const char reserved[] =
    " a first step slot stages stage ring full round copy_row row_values part alignas and asm "
    "auto bool break case catch char class const continue default delete do double else enum "
    "exchange explicit extern false float for friend goto if inline int lane long mutable new "
    "not operator or private public register return row rows scalars shared short signed "
    "sizeof static struct switch team template this thread throw true try typedef union "
    "unsigned using virtual void volatile warp while workspace xor main e turn linux unix "
    "half blockIdx threadIdx gridDim blockDim typename typeid nullptr namespace export "
    "constexpr decltype noexcept compl bitand bitor and_eq or_eq not_eq xor_eq wchar_t "
    "char16_t char32_t requires concept protected block blocks partials alignof const_cast g i "
    "row_partials dynamic_cast reinterpret_cast static_assert static_cast thread_local ";

// What every CUDA file has: types, and functions, those with an f at the end too. No kernel can be
// called so.
static const char library[] =
    " dim3 size_t ptrdiff_t clock_t warpSize va_list std cudaError_t abs acos acosh asin asinh "
    "assert atan atan2 atanh cbrt ceil clock clock64 copysign cos cosh cospi erf erfc erfcinv "
    "erfcx erfinv exp exp10 exp2 expm1 fabs fdim fdivide floor fma fmax fmin fmod free frexp "
    "hypot ilogb isfinite isinf isnan j0 j1 jn labs ldexp lgamma llabs llrint llround log "
    "log10 log1p log2 logb lrint lround malloc max memcpy memset min modf nan nearbyint "
    "nextafter norm norm3d norm4d normcdf normcdfinv pow printf rcbrt remainder remquo rhypot "
    "rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn signbit sin sincos sincospi sinh "
    "sinpi sqrt tan tanh tgamma trap trunc y0 y1 yn ";

// Is it one of the words of the list, which stand between spaces?
static bool is_in(const char *list, const char *name, size_t length) {
  for (const char *at = list; (at = strchr(at, ' ')) && at[1]; at++)
    if (strncmp(at + 1, name, length) == 0 && at[1 + length] == ' ') return true;
  return false;
}

static bool is_reserved(const char *name) {
  return is_in(reserved, name, strlen(name));
}

static bool is_index(const text_printer *p, const char *name) {
  for (uint32_t i = 0; i < p->indices.count; i++)
    if (strcmp(p->indices.data[i], name) == 0) return true;
  return false;
}

static bool is_taken(const text_printer *p, const char *name) {
  if (is_reserved(name)) return true;
  for (uint32_t i = 0; i < p->names.count; i++)
    if (strcmp(p->names.data[i], name) == 0) return true;
  return false;
}

// Letters, digits and single underscores, a letter first: what begins with an underscore or holds
// two belongs to the compiler, what begins with fm_ to the prelude.
static char *clean(base_arena *arena, base_str wanted) {
  char *name = base_new_array(arena, char, wanted.length + 16);
  size_t length = 0;
  if (wanted.length == 0 || !isalpha((unsigned char)wanted.data[0]) ||
      (wanted.length > 2 && strncasecmp(wanted.data, "fm_", 3) == 0))
    name[length++] = 'v';
  for (size_t i = 0; i < wanted.length; i++) {
    char c = isalnum((unsigned char)wanted.data[i]) ? wanted.data[i] : '_';
    if (c != '_' || length == 0 || name[length - 1] != '_') name[length++] = c;
  }
  return name;
}

const char *text_name(text_printer *p, base_str wanted) {
  char *name = clean(p->arena, wanted);
  size_t length = strlen(name);
  for (uint32_t i = 2; is_taken(p, name) || is_index(p, name); i++)
    snprintf(name + length, 16, "_%u", i);
  base_push(p->arena, &p->names, name);
  return name;
}

const char *text_function_name(base_arena *arena, base_str wanted) {
  const char *name = clean(arena, wanted);
  size_t length = strlen(name);
  bool taken = is_reserved(name) || is_in(library, name, length) ||
               (name[length - 1] == 'f' && is_in(library, name, length - 1));
  return taken ? base_str_format(arena, "%s_kernel", name).data : name;
}

const char *text_format(text_printer *p, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  base_str text = base_str_vformat(p->arena, format, arguments);
  va_end(arguments);
  return text.data;
}

const char *text_offset(text_printer *p, const char *base, size_t bytes) {
  return bytes ? text_format(p, "%s + %zu", base, bytes) : base;
}

// ---- lines --------------------------------------------------------------------------------------

uint32_t text_top(const text_printer *p) {
  return p->scopes.count - 1;
}

static text_scope *innermost(text_printer *p) {
  return p->scopes.data[text_top(p)];
}

enum { COLUMNS = 100, CONTINUED = 4 };

// Of the commas before the margin the last one in the fewest parentheses; the length of the line
// when there is none.
static size_t break_point(base_str line, size_t room) {
  size_t best = line.length;
  int depth = 0, least = INT_MAX;
  for (size_t i = 0; i < line.length && i < room; i++) {
    depth += (line.data[i] == '(' || line.data[i] == '{' || line.data[i] == '<') -
             (line.data[i] == ')' || line.data[i] == '}' || line.data[i] == '>');
    if (line.data[i] != ',' || i + 1 >= line.length || line.data[i + 1] != ' ' || depth > least)
      continue;
    least = depth;
    best = i + 1;
  }
  return best;
}

static void add_line(base_text *out, uint32_t indent, base_str line) {
  size_t column = 2 * (size_t)indent, margin = column;
  while (margin + line.length > COLUMNS && margin < COLUMNS) {
    size_t length = break_point(line, COLUMNS - margin);
    if (length == line.length) break;
    base_text_printf(out, "%*s%.*s\n", (int)margin, "", (int)length, line.data);
    line = (base_str){line.data + length + 1, line.length - length - 1};
    margin = column + CONTINUED;
  }
  base_text_printf(out, "%*s%.*s\n", (int)margin, "", BASE_FMT(line));
}

__attribute__((format(printf, 3, 0))) static void
format_line(base_text *out, uint32_t indent, const char *format, va_list arguments) {
  add_line(out, indent, base_str_vformat(out->arena, format, arguments));
}

void text_line(text_printer *p, uint32_t scope, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  format_line(&p->scopes.data[scope]->lines, p->scopes.data[scope]->indent, format, arguments);
  va_end(arguments);
}

void text_element(text_printer *p, const char *format, ...) {
  text_scope *scope = innermost(p);
  va_list arguments;
  va_start(arguments, format);
  format_line(&scope->elements, scope->indent + (p->vector > 1), format, arguments);
  va_end(arguments);
}

void text_after(text_printer *p, const char *format, ...) {
  text_scope *scope = innermost(p);
  va_list arguments;
  va_start(arguments, format);
  format_line(&scope->after, scope->indent, format, arguments);
  va_end(arguments);
}

void text_comment(text_printer *p, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  base_str text = base_str_vformat(p->arena, format, arguments);
  va_end(arguments);
  text_line(p, text_top(p), "// %.*s", BASE_FMT(text));
}

void text_blank(text_printer *p) {
  text_end_elements(p);
  base_text_append(&innermost(p)->lines, "\n", 1);
}

// ---- scopes -------------------------------------------------------------------------------------

static void append(base_text *out, base_text *part) {
  if (part->length) base_text_append(out, part->data, part->length);
  part->length = 0;
}

void text_end_elements(text_printer *p) {
  text_scope *scope = innermost(p);
  bool loop = scope->elements.length > 0 && p->vector > 1;
  if (loop) text_line(p, text_top(p), "for (int e = 0; e < %u; e++) {", p->vector);
  append(&scope->lines, &scope->elements);
  if (loop) text_line(p, text_top(p), "}");
  append(&scope->lines, &scope->after);
  uint32_t kept = 0;
  for (uint32_t i = 0; i < scope->memo.count; i++)
    if (!scope->memo.data[i].term.local) scope->memo.data[kept++] = scope->memo.data[i];
  scope->memo.count = kept;
}

void text_open(text_printer *p, const char *head) {
  text_scope *scope = base_new(p->arena, text_scope);
  scope->head = head;
  if (p->scopes.count) {
    text_end_elements(p);
    scope->indent = innermost(p)->indent + 1;
  }
  scope->lines.arena = scope->elements.arena = scope->after.arena = p->arena;
  base_push(p->arena, &p->scopes, scope);
}

void text_declare(text_printer *p, const char *declaration) {
  innermost(p)->declaration = declaration;
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

static bool mentions(const base_text *lines, const char *word) {
  size_t length = strlen(word);
  const char *end = lines->data + lines->length;
  for (const char *at = lines->data; lines->length; at++) {
    at = memmem(at, (size_t)(end - at), word, length);
    if (!at) return false;
    if ((at == lines->data || !is_word(at[-1])) && !is_word(at[length])) return true;
  }
  return false;
}

// The scope outside may have got lines while this one was open: they come first.
void text_close(text_printer *p) {
  text_end_elements(p);
  text_scope *scope = innermost(p);
  p->scopes.count--;
  text_line(p, text_top(p), "%s%s{", scope->head, *scope->head ? " " : "");
  if (scope->declaration && mentions(&scope->lines, scope->variable))
    base_text_printf(&innermost(p)->lines, "%*s%s\n", 2 * (int)scope->indent, "",
                     scope->declaration);
  append(&innermost(p)->lines, &scope->lines);
  text_line(p, text_top(p), "}%s", scope->tail ? scope->tail : "");
}

void text_close_all(text_printer *p, uint32_t count) {
  while (count-- > 0)
    text_close(p);
}

static bool is_open(const text_printer *p, const char *name) {
  for (uint32_t i = 0; i < p->scopes.count; i++)
    if (p->scopes.data[i]->variable && strcmp(p->scopes.data[i]->variable, name) == 0) return true;
  return false;
}

static char *lower_name(text_printer *p, ir_axis axis) {
  char *name = clean(p->arena, p->graph->axes.data[axis.index].name);
  for (char *c = name; *c; c++)
    *c = (char)tolower((unsigned char)*c);
  return name;
}

const char *text_row_name(text_printer *p, ir_axis axis) {
  return text_name(p, base_str_from(lower_name(p, axis)));
}

// Its name in lower case; loops inside each other have different ones.
const char *text_axis_name(text_printer *p, ir_axis axis) {
  char *name = lower_name(p, axis);
  size_t length = strlen(name);
  for (uint32_t i = 2; is_taken(p, name) || is_open(p, name); i++)
    snprintf(name + length, 16, "_%u", i);
  if (!is_index(p, name)) base_push(p->arena, &p->indices, name);
  innermost(p)->variable = name;
  return name;
}

const char *text_unroll(text_printer *p, bool whole) {
  return text_format(p, "#pragma unroll%s\n%*s", whole ? "" : " 1", 2 * (int)innermost(p)->indent,
                     "");
}

// A scope whose head, with the index's name, is printed by `head`.
static text_index open_loop(text_printer *p, ir_axis axis, int64_t low, int64_t high,
                            const char *before) {
  text_open(p, "");
  const char *name = text_axis_name(p, axis);
  innermost(p)->head = before;
  return (text_index){name, low, high, text_top(p), NULL};
}

text_index text_loop(text_printer *p, ir_axis axis, int64_t low, int64_t high, int64_t step,
                     bool unroll, uint32_t *opened) {
  *opened = high - low > step || high <= low;
  if (!*opened) return (text_index){text_format(p, "%lld", (long long)low), low, low + 1, 0, NULL};
  const char *pragma = text_unroll(p, unroll);
  text_index index = open_loop(p, axis, low, high, "");
  innermost(p)->head =
      text_format(p, "%sfor (int %s = %lld; %s < %lld; %s)", pragma, index.text, (long long)low,
                  index.text, (long long)high,
                  step == 1 ? text_format(p, "%s++", index.text)
                            : text_format(p, "%s += %lld", index.text, (long long)step));
  return index;
}

text_index text_dealt(text_printer *p, ir_axis axis, int64_t low, int64_t high, uint32_t *opened) {
  uint32_t group = text_group(p);
  text_index index = open_loop(p, axis, low, high, "");
  *opened = 1;
  if (high - low > group)
    innermost(p)->head = text_format(p, "for (int %s = %s; %s < %lld; %s += %u)", index.text,
                                     text_sum(p, text_format(p, "%lld", (long long)low), "lane"),
                                     index.text, (long long)high, index.text, group);
  else
    innermost(p)->head = text_format(p, "if (const int %s = %s; %s < %lld)", index.text,
                                     text_sum(p, text_format(p, "%lld", (long long)low), "lane"),
                                     index.text, (long long)high);
  return index;
}
