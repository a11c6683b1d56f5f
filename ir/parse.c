// parse: text to graphs, by recursive descent with one token of look-ahead.
//
// An error must not hide the others nor breed false ones. So after a syntax error the parser goes
// on at the next statement; a name whose definition went wrong counts as defined and nothing is
// said about its uses; and an unknown name is reported only when its graph ends, because only then
// is it known whether the definition comes later.
#include "ir/ir.h"
#include "ir/lex.h"

#include <math.h>
#include <string.h>

enum { MOST_ERRORS = 100, LONGEST_QUOTE = 60 };

// Stands for a value whose definition went wrong. What uses it is left out of the graph without a
// word, so that the rest can still be checked.
static const ir_value lost = {UINT32_MAX};

// ---- names --------------------------------------------------------------------------------------

typedef struct definition {
  base_str name; // terminated
  base_loc loc;
  ir_value value; // `lost` after an error in the definition
} definition;

// Definitions in order, and an open-addressing index by name.
typedef struct name_table {
  BASE_VECTOR(definition) definitions;
  uint32_t *slots; // 1 + position in definitions; 0: free
  uint32_t slot_count;
} name_table;

static uint32_t *slot_of(const name_table *table, base_str name) {
  uint32_t slot = (uint32_t)base_hash_bytes(name.data, name.length).low & (table->slot_count - 1);
  while (table->slots[slot] != 0 &&
         !base_str_equal(table->definitions.data[table->slots[slot] - 1].name, name))
    slot = (slot + 1) & (table->slot_count - 1);
  return &table->slots[slot];
}

static const definition *name_find(const name_table *table, base_str name) {
  if (table->slot_count == 0) return NULL;
  const uint32_t position = *slot_of(table, name);
  return position ? &table->definitions.data[position - 1] : NULL;
}

static void name_define(base_arena *arena, name_table *table, definition added) {
  if (2 * table->definitions.count >= table->slot_count) {
    table->slot_count = table->slot_count ? 2 * table->slot_count : 16;
    table->slots = base_new_array(arena, uint32_t, table->slot_count);
    for (uint32_t i = 0; i < table->definitions.count; i++)
      *slot_of(table, table->definitions.data[i].name) = i + 1;
  }
  uint32_t *slot = slot_of(table, added.name);
  base_push(arena, &table->definitions, added);
  *slot = table->definitions.count;
}

// ---- parser -------------------------------------------------------------------------------------

typedef struct use {
  base_str name;
  base_loc loc;
} use;

typedef struct parser {
  base_arena *arena;
  base_diag *diag;
  ir_lexer lexer;
  ir_token token, ahead;
  base_loc last_end; // just behind the token before
  uint32_t depth;    // of braces
  uint32_t errors;
  bool full;         // an error was dropped: more than anyone reads
  bool cut;          // the file ended too early, and that was reported
  name_table graphs; // names of the file's graphs

  // Of the graph being parsed.
  ir_graph *graph;
  name_table values;
  BASE_VECTOR(use) unknown;
  bool axes_lost;  // there were more than IR_MAX_AXES
  bool names_lost; // after a syntax error `values` may lack a name
  bool returned;
} parser;

static base_str quote(base_str text) {
  return (base_str){text.data, text.length < LONGEST_QUOTE ? text.length : LONGEST_QUOTE};
}

static void __attribute__((format(printf, 3, 4))) error(parser *p, base_loc loc, const char *format,
                                                        ...) {
  if (p->errors == MOST_ERRORS) {
    p->full = true;
    p->lexer.position = p->lexer.text.length;
    p->token.kind = p->ahead.kind = IR_TOKEN_END;
    return;
  }
  va_list arguments;
  va_start(arguments, format);
  const base_str message = base_str_vformat(p->arena, format, arguments);
  va_end(arguments);
  base_error(p->diag, loc, "%.*s", BASE_FMT(message));
  p->errors++;
}

static void __attribute__((format(printf, 2, 3))) hint(parser *p, const char *format, ...) {
  if (p->full) return; // the error it belongs to was dropped
  va_list arguments;
  va_start(arguments, format);
  const base_str text = base_str_vformat(p->arena, format, arguments);
  va_end(arguments);
  base_hint(p->diag, "%.*s", BASE_FMT(text));
}

static void report_bad_token(parser *p, const ir_token *bad) {
  const unsigned char byte = (unsigned char)bad->text.data[0];
  if (byte == '%' || byte == '@')
    error(p, bad->loc, "expected a name right after '%c'", byte);
  else if (byte > ' ' && byte < 0x7f)
    error(p, bad->loc, "'%c' has no meaning here", byte);
  else
    error(p, bad->loc, "byte 0x%02x has no meaning here", byte);
}

static void advance(parser *p) {
  if (p->token.kind == '{') p->depth++;
  if (p->token.kind == '}' && p->depth > 0) p->depth--;
  p->last_end = p->token.loc;
  p->last_end.column += p->token.loc.length;
  p->last_end.length = 1;
  p->token = p->ahead;
  while ((p->ahead = ir_lexer_next(&p->lexer)).kind == IR_TOKEN_BAD)
    report_bad_token(p, &p->ahead);
}

static bool accept(parser *p, int kind) {
  if (p->token.kind != kind) return false;
  advance(p);
  return true;
}

static bool is_word(const ir_token *token, const char *word) {
  return token->kind == IR_TOKEN_NAME && base_str_equal(token->text, base_str_from(word));
}

static bool at_word(const parser *p, const char *word) {
  return is_word(&p->token, word);
}

// Where a statement or a graph may start.
static void expected_here(parser *p, const char *what) {
  if (p->token.kind != IR_TOKEN_END) {
    error(p, p->token.loc, "expected %s, found '%.*s'", what, BASE_FMT(quote(p->token.text)));
  } else if (!p->cut) { // all that is still open misses something now: once is enough
    p->cut = true;
    error(p, p->last_end.line ? p->last_end : p->token.loc,
          "expected %s, found the end of the file", what);
  }
}

// Inside of something: what stands in the next line most likely belongs to the next thing.
static void expected(parser *p, const char *what) {
  if (p->token.kind != IR_TOKEN_END && p->token.first && p->last_end.line)
    error(p, p->last_end, "expected %s, found the end of the line", what);
  else
    expected_here(p, what);
}

static bool expect(parser *p, int kind, const char *what) {
  if (accept(p, kind)) return true;
  expected(p, what);
  return false;
}

static bool starts_graph(const parser *p) {
  return at_word(p, "graph") && p->ahead.kind == IR_TOKEN_GLOBAL;
}

static bool at_operand(const parser *p) {
  return p->token.kind == IR_TOKEN_VALUE && p->ahead.kind != '=';
}

static bool is_stray_word(const ir_token *token) {
  return token->kind == IR_TOKEN_NAME && !is_word(token, "over") && !is_word(token, "to");
}

static bool starts_statement(const parser *p) {
  if (p->token.kind != IR_TOKEN_VALUE) return at_word(p, "return");
  // An operand is never followed by a word such as an op: the '=' was forgotten.
  return p->ahead.kind == '=' || (p->token.first && is_stray_word(&p->ahead));
}

// To the next statement, or to what ends the graph.
static void skip_statement(parser *p) {
  while (p->token.kind != IR_TOKEN_END && !starts_statement(p) && !starts_graph(p) &&
         !(p->token.kind == '}' && p->depth <= 1))
    advance(p);
}

static base_str bare(base_str text) { // without % or @, terminated
  return (base_str){text.data + 1, text.length - 1};
}

static bool is_new(parser *p, const name_table *table, const ir_token *token) {
  const definition *before = name_find(table, bare(token->text));
  if (!before) return true;
  error(p, token->loc, "%.*s is already defined in line %u", BASE_FMT(quote(token->text)),
        before->loc.line);
  hint(p, "give one of the two another name");
  return false;
}

static void define(parser *p, name_table *table, const ir_token *token, ir_value value) {
  const base_str name = base_str_copy(p->arena, bare(token->text));
  if (!name_find(table, name)) name_define(p->arena, table, (definition){name, token->loc, value});
}

// "did you mean" when one of the names is near, else the alternative as it is.
static void hint_nearest(parser *p, base_str word, const char *sigil, const char *const *names,
                         size_t count, const char *otherwise) {
  const char *nearest = base_nearest(word, names, count);
  if (nearest)
    hint(p, "did you mean '%s%s'?", sigil, nearest);
  else if (otherwise)
    hint(p, "%s", otherwise);
}

// ---- types --------------------------------------------------------------------------------------

static ir_axis mention_axis(parser *p, const ir_token *name) {
  ir_axis axis = {0};
  if (ir_axis_find(p->graph, name->text, &axis)) return axis;
  if (p->graph->axes.count < IR_MAX_AXES) {
    axis = ir_build_axis(p->graph, name->text, IR_DYNAMIC);
    p->graph->axes.data[axis.index].loc = name->loc;
  } else if (!p->axes_lost) {
    p->axes_lost = true;
    error(p, name->loc, "expected at most %d axes in a graph, found one more: '%.*s'", IR_MAX_AXES,
          BASE_FMT(quote(name->text)));
  }
  return axis;
}

// NAME or NAME=INT. False only when the syntax is lost.
static bool parse_axis(parser *p, ir_axis *axis) {
  const ir_token name = p->token;
  if (!expect(p, IR_TOKEN_NAME, "an axis name")) return false;
  *axis = mention_axis(p, &name);
  if (!accept(p, '=')) return true;

  const ir_token number = p->token;
  if (!expect(p, IR_TOKEN_NUMBER, "the size of the axis")) return false;
  if (p->axes_lost) return true; // may be another axis' size
  ir_axis_info *info = &p->graph->axes.data[axis->index];
  int64_t size;
  if (!ir_integer_parse(number.text, INT64_MAX, &size)) {
    error(p, number.loc, "expected an axis size, an integer from 0 to 2^63 - 1, found '%.*s'",
          BASE_FMT(quote(number.text)));
  } else if (info->size == IR_DYNAMIC) {
    info->size = size;
    info->loc = name.loc;
  } else if (info->size != size) {
    error(p, number.loc, "axis '%.*s' has size %lld since line %u, found %lld",
          BASE_FMT(quote(name.text)), (long long)info->size, info->loc.line, (long long)size);
    hint(p, "an axis has one size in a graph; name the second axis differently");
  }
  return true;
}

static bool parse_dtype(parser *p, ir_dtype *dtype) {
  const ir_token token = p->token;
  if (!expect(p, IR_TOKEN_NAME, "a type such as f32[T, D]")) return false;
  const char *names[IR_DTYPE_COUNT];
  *dtype = IR_F32;
  for (int i = 0; i < IR_DTYPE_COUNT; i++) {
    names[i] = ir_dtype_name((ir_dtype)i);
    if (!base_str_equal(token.text, base_str_from(names[i]))) continue;
    *dtype = (ir_dtype)i;
    return true;
  }
  error(p, token.loc, "expected a dtype, found '%.*s'", BASE_FMT(quote(token.text)));
  hint_nearest(p, token.text, "", names, IR_DTYPE_COUNT,
               "the dtypes are f32, bf16, f16 and f8e4m3");
  return true;
}

// dtype[AXES]; a bare dtype has no axes.
static bool parse_type(parser *p, ir_type *type, base_loc *loc) {
  *loc = p->token.loc;
  *type = (ir_type){0};
  if (!parse_dtype(p, &type->dtype)) return false;
  if (accept(p, '[') && !accept(p, ']')) {
    bool surplus = false;
    do {
      ir_axis axis;
      const base_loc axis_loc = p->token.loc;
      if (!parse_axis(p, &axis)) return false;
      if (type->rank < IR_MAX_RANK) {
        type->axes[type->rank++] = axis;
      } else if (!surplus) {
        surplus = true;
        error(p, axis_loc, "expected at most %d axes in a type, found one more", IR_MAX_RANK);
      }
    } while (accept(p, ','));
    if (!expect(p, ']', "',' or ']'")) return false;
  }
  if (p->last_end.line == loc->line) loc->length = p->last_end.column - loc->column;
  return true;
}

// ---- parameters ---------------------------------------------------------------------------------

// layout(...) names each axis of the type once, outermost in memory first.
static bool parse_layout(parser *p, ir_node *node) {
  const base_loc loc = p->token.loc;
  advance(p);
  if (!expect(p, '(', "'(' after 'layout'")) return false;
  uint32_t count = 0;
  bool permutation = true;
  do {
    ir_axis axis;
    if (!parse_axis(p, &axis)) return false;
    for (uint32_t i = 0; i < count; i++)
      permutation = permutation && node->layout[i].index != axis.index;
    permutation = permutation && count < node->type.rank && ir_type_has(&node->type, axis);
    if (permutation) node->layout[count++] = axis;
  } while (accept(p, ','));
  if (!expect(p, ')', "',' or ')'")) return false;
  if (!permutation || count != node->type.rank) {
    base_text type = {.arena = p->arena};
    ir_print_type(p->graph, &node->type, &type);
    error(p, loc, "expected a layout that names each axis of %.*s once",
          BASE_FMT(quote(base_text_str(&type))));
  }
  node->has_layout = true;
  return true;
}

static bool parse_param(parser *p) {
  const ir_token name = p->token;
  const uint32_t errors = p->errors;
  if (!expect(p, IR_TOKEN_VALUE, "a parameter such as %x: f32[T, D]")) {
    p->names_lost = true;
    return false;
  }
  is_new(p, &p->values, &name);
  ir_node node = {.op = IR_PARAM, .kernel = IR_NO_KERNEL, .loc = name.loc};
  const bool whole = expect(p, ':', "':' and the type") &&
                     parse_type(p, &node.type, &node.type_loc) &&
                     (!at_word(p, "layout") || parse_layout(p, &node));
  const bool sound = p->errors == errors;
  define(p, &p->values, &name, sound ? (ir_value){p->graph->nodes.count} : lost);
  if (!sound) return whole;
  node.name = base_str_copy(p->arena, bare(name.text));
  base_push(p->arena, &p->graph->nodes, node);
  p->graph->param_count++;
  return whole;
}

// To the next parameter, or to what ends the head.
static void skip_param(parser *p) {
  while (p->token.kind != IR_TOKEN_END && p->token.kind != '{' && !starts_statement(p) &&
         !starts_graph(p) && !(p->token.kind == IR_TOKEN_VALUE && p->ahead.kind == ':') &&
         !(p->token.kind == ')' && p->ahead.kind == '{'))
    advance(p);
}

static bool parse_params(parser *p) {
  if (!expect(p, '(', "'(' and the parameters")) return false;
  if (accept(p, ')')) return true;
  for (;;) {
    if (!parse_param(p)) {
      skip_param(p);
      if (p->token.kind != IR_TOKEN_VALUE) break;
    } else if (!accept(p, ',')) {
      if (p->token.kind != IR_TOKEN_VALUE) break;
      expected(p, "',' between parameters");
    }
  }
  return expect(p, ')', "',' or ')' after the parameter");
}

// ---- operands and clauses -----------------------------------------------------------------------

typedef BASE_VECTOR(ir_value) value_list;
typedef BASE_VECTOR(base_loc) loc_list;

static void parse_operand(parser *p, value_list *values, loc_list *locs) {
  const base_str name = bare(p->token.text);
  const definition *found = name_find(&p->values, name);
  if (!found) base_push(p->arena, &p->unknown, (use){name, p->token.loc});
  base_push(p->arena, values, found ? found->value : lost);
  base_push(p->arena, locs, p->token.loc);
  advance(p);
}

// %a, %b, ...; at least one.
static bool parse_values(parser *p, const char *what, value_list *values, loc_list *locs) {
  for (;;) {
    if (!at_operand(p)) {
      expected(p, what);
      if (p->token.kind == IR_TOKEN_NAME) hint(p, "a value is written with '%%' before its name");
      return false;
    }
    parse_operand(p, values, locs);
    if (accept(p, ',')) continue;
    if (!at_operand(p) || p->token.first) return true;
    error(p, p->token.loc, "expected ',' between values, found '%.*s'",
          BASE_FMT(quote(p->token.text)));
  }
}

static void check_operand_count(parser *p, const ir_node *node) {
  const ir_op_info *info = ir_op_get(node->op);
  const uint32_t min = info->min_operands, max = info->max_operands;
  if (node->operand_count >= min && node->operand_count <= max) return;
  const base_str range = min == max ? base_str_format(p->arena, "%u", min)
                         : max == IR_MAX_OPERANDS && node->operand_count < min
                             ? base_str_format(p->arena, "at least %u", min)
                             : base_str_format(p->arena, "%u to %u", min, max);
  error(p, node->operand_count > max ? node->operand_locs[max] : node->loc,
        "'%s' takes %.*s operand%s, found %u", info->keyword, BASE_FMT(range),
        min == 1 && (max == 1 || node->operand_count < min) ? "" : "s", node->operand_count);
}

// `over X, Y` or `to X, Y`. A clause that is needed and missing is an error, and so is one that the
// op does not take (most == 0).
static bool parse_clause(parser *p, const char *keyword, const ir_node *node, uint32_t most,
                         uint32_t *count, ir_axis *axes) {
  const char *op = ir_op_get(node->op)->keyword;
  if (!at_word(p, keyword)) {
    if (most > 0) error(p, node->loc, "'%s' needs '%s' and the axis", op, keyword);
    return true;
  }
  if (most == 0) error(p, p->token.loc, "'%s' takes no '%s' clause", op, keyword);
  advance(p);
  uint32_t named = 0;
  do {
    ir_axis axis;
    const base_loc loc = p->token.loc;
    if (!parse_axis(p, &axis)) return false;
    if (*count < most)
      axes[(*count)++] = axis;
    else if (most > 0 && named == most)
      error(p, loc, "'%s' takes at most %u %s after '%s'", op, most, most == 1 ? "axis" : "axes",
            keyword);
    named++;
  } while (accept(p, ','));
  return true;
}

// After operands or a clause a stray word is most likely a misspelt keyword.
static bool check_word(parser *p) {
  static const char *const words[] = {"over", "to"};
  if (p->token.first || !is_stray_word(&p->token)) return true;
  expected(p, "'over', 'to', '{' or ':'");
  hint_nearest(p, p->token.text, "", words, 2, NULL);
  return false;
}

// ---- attributes ---------------------------------------------------------------------------------

static bool parse_number(parser *p, double *number) {
  const ir_token token = p->token;
  *number = 0;
  const bool word = token.kind == IR_TOKEN_NAME && ir_number_parse(p->arena, token.text, number);
  if (!word && token.kind != IR_TOKEN_NUMBER) {
    expected(p, "a number");
    return false;
  }
  if (!ir_number_parse(p->arena, token.text, number)) {
    error(p, token.loc, "expected a number, found '%.*s'", BASE_FMT(quote(token.text)));
    hint(p, "numbers are decimal f64 values, or inf, -inf, nan");
  }
  advance(p);
  return true;
}

static bool parse_integer(parser *p, int64_t largest, int64_t *integer) {
  const ir_token token = p->token;
  if (!expect(p, IR_TOKEN_NUMBER, "an integer")) return false;
  *integer = 0;
  if (!ir_integer_parse(token.text, largest, integer))
    error(p, token.loc, "expected an integer from 0 to %lld, found '%.*s'", (long long)largest,
          BASE_FMT(quote(token.text)));
  return true;
}

static bool parse_eps(parser *p, ir_node *node) {
  const ir_token token = p->token;
  if (!parse_number(p, &node->eps)) return false;
  if (!(node->eps >= 0 && isfinite(node->eps)))
    error(p, token.loc, "expected eps >= 0 and finite, found '%.*s'", BASE_FMT(quote(token.text)));
  return true;
}

// A number, or [NUMBER, ...].
static bool parse_constant(parser *p, ir_node *node) {
  BASE_VECTOR(double) values = {0};
  double number;
  if (!accept(p, '[')) {
    if (!parse_number(p, &number)) return false;
    base_push(p->arena, &values, number);
  } else if (!accept(p, ']')) {
    do {
      if (!parse_number(p, &number)) return false;
      base_push(p->arena, &values, number);
    } while (accept(p, ','));
    if (!expect(p, ']', "',' or ']'")) return false;
  }
  node->values = values.data;
  node->value_count = values.count;
  return true;
}

static bool parse_start(parser *p, ir_node *node) {
  return parse_integer(p, INT64_MAX, &node->start);
}

static bool parse_kernel(parser *p, ir_node *node) {
  int64_t kernel;
  if (!parse_integer(p, INT32_MAX, &kernel)) return false;
  node->kernel = (int32_t)kernel;
  return true;
}

typedef struct attribute {
  const char *name;
  uint32_t flag; // IR_ATTR_*; 0: every op takes it
  bool (*parse)(parser *p, ir_node *node);
} attribute;

static const attribute attributes[] = {
    {"eps", IR_ATTR_EPS, parse_eps},
    {"value", IR_ATTR_VALUE, parse_constant},
    {"start", IR_ATTR_START, parse_start},
    {"kernel", 0, parse_kernel},
};
enum { ATTRIBUTE_COUNT = sizeof attributes / sizeof attributes[0] };

static bool takes(ir_op op, const attribute *attribute) {
  return attribute->flag == 0 || (ir_op_get(op)->attributes & attribute->flag) != 0;
}

// Position in the table; ATTRIBUTE_COUNT after an error.
static int find_attribute(parser *p, ir_op op, const ir_token *name) {
  const char *names[ATTRIBUTE_COUNT];
  int count = 0;
  for (int i = 0; i < ATTRIBUTE_COUNT; i++) {
    if (!takes(op, &attributes[i])) continue;
    if (base_str_equal(name->text, base_str_from(attributes[i].name))) return i;
    names[count++] = attributes[i].name;
  }
  error(p, name->loc, "'%s' has no attribute '%.*s'", ir_op_get(op)->keyword,
        BASE_FMT(quote(name->text)));
  base_text list = {.arena = p->arena};
  for (int i = 0; i < count; i++)
    base_text_printf(&list, "%s%s", i == 0 ? "it takes only " : " and ", names[i]);
  hint_nearest(p, name->text, "", names, (size_t)count, list.data);
  return ATTRIBUTE_COUNT;
}

// { name = value, ... }
static bool parse_attributes(parser *p, ir_node *node) {
  bool seen[ATTRIBUTE_COUNT + 1] = {false};
  if (accept(p, '{')) {
    do {
      const ir_token name = p->token;
      if (!expect(p, IR_TOKEN_NAME, "an attribute")) return false;
      const int which = find_attribute(p, node->op, &name);
      ir_node ignored = {0};
      const bool known = which < ATTRIBUTE_COUNT;
      if (known && seen[which]) error(p, name.loc, "'%s' is given twice", attributes[which].name);
      seen[which] = true;
      if (!expect(p, '=', "'=' and a value")) return false;
      // The values of unknown attributes are read like constants: numbers or lists.
      if (!(known ? attributes[which].parse(p, node) : parse_constant(p, &ignored))) return false;
    } while (accept(p, ','));
    if (!expect(p, '}', "',' or '}'")) return false;
  }
  for (int i = 0; i < ATTRIBUTE_COUNT; i++) {
    if (attributes[i].flag != IR_ATTR_VALUE || !takes(node->op, &attributes[i]) || seen[i])
      continue;
    error(p, node->loc, "'%s' needs a value", ir_op_get(node->op)->keyword);
    hint(p, "write {value = 0.5}, or {value = [1, 2, 3]} along an axis of size 3");
  }
  return true;
}

// ---- statements ---------------------------------------------------------------------------------

static bool parse_op(parser *p, ir_op *op) {
  const ir_token token = p->token;
  if (!expect(p, IR_TOKEN_NAME, "an op")) return false;
  if (ir_op_find(token.text, op) && *op != IR_PARAM) return true;

  const char *names[IR_OP_COUNT];
  base_text list = {.arena = p->arena};
  uint32_t count = 0;
  for (uint32_t i = 0; i < IR_OP_COUNT; i++) {
    if (i == IR_PARAM) continue;
    names[count] = ir_op_get((ir_op)i)->keyword;
    base_text_printf(&list, "%s%s", count == 0 ? "the ops are " : ", ", names[count]);
    count++;
  }
  if (*op == IR_PARAM && base_str_equal(token.text, BASE_STR("param"))) {
    error(p, token.loc, "parameters are declared in the graph's head");
    return false;
  }
  error(p, token.loc, "unknown op '%.*s'", BASE_FMT(quote(token.text)));
  hint_nearest(p, token.text, "", names, count, list.data);
  return false;
}

static void parse_callee(parser *p, ir_node *node) {
  const bool wanted = (ir_op_get(node->op)->attributes & IR_ATTR_CALLEE) != 0;
  if (p->token.kind != IR_TOKEN_GLOBAL) {
    if (!wanted) return;
    error(p, node->loc, "'%s' needs the function's name", ir_op_get(node->op)->keyword);
    hint(p, "write call @name and then the operands");
    return;
  }
  if (!wanted)
    error(p, p->token.loc, "'%s' calls no function, found '%.*s'", ir_op_get(node->op)->keyword,
          BASE_FMT(quote(p->token.text)));
  node->callee = base_str_copy(p->arena, bare(p->token.text));
  advance(p);
}

// All that follows `%name =`. False when the syntax is lost.
static bool parse_computation(parser *p, ir_node *node) {
  node->loc = p->token.loc;
  if (!parse_op(p, &node->op)) return false;
  const ir_op_info *info = ir_op_get(node->op);
  if (info->attributes & IR_ATTR_EPS) node->eps = IR_DEFAULT_EPS;
  parse_callee(p, node);

  value_list operands = {0};
  loc_list locs = {0};
  if ((at_operand(p) || (is_stray_word(&p->token) && !p->token.first)) &&
      !parse_values(p, "an operand such as %x", &operands, &locs))
    return false;
  node->operands = operands.data;
  node->operand_count = operands.count;
  node->operand_locs = locs.data;
  check_operand_count(p, node);

  return check_word(p) &&
         parse_clause(p, "over", node, info->max_over, &node->over_count, node->over) &&
         check_word(p) && parse_clause(p, "to", node, info->max_to, &node->to_count, node->to) &&
         check_word(p) && parse_attributes(p, node) &&
         expect(p, ':', "':' and the result's type") && parse_type(p, &node->type, &node->type_loc);
}

static void check_not_returned(parser *p) {
  if (!p->returned) return;
  error(p, p->token.loc, "expected '}' after 'return', found '%.*s'",
        BASE_FMT(quote(p->token.text)));
  hint(p, "'return' is the last statement of a graph, and the only one of its kind");
}

static void parse_statement(parser *p) {
  check_not_returned(p);
  const ir_token name = p->token;
  const uint32_t errors = p->errors;
  is_new(p, &p->values, &name);
  advance(p);
  ir_node node = {.kernel = IR_NO_KERNEL};
  if (!expect(p, '=', "'=' and an op") || !parse_computation(p, &node)) skip_statement(p);
  bool sound = p->errors == errors;
  for (uint32_t i = 0; i < node.operand_count && sound; i++)
    sound = node.operands[i].index != lost.index;
  define(p, &p->values, &name, sound ? (ir_value){p->graph->nodes.count} : lost);
  if (!sound) return;
  node.name = base_str_copy(p->arena, bare(name.text));
  base_push(p->arena, &p->graph->nodes, node);
}

static void parse_return(parser *p) {
  check_not_returned(p);
  p->returned = true;
  p->graph->return_loc = p->token.loc;
  advance(p);
  value_list results = {0};
  loc_list locs = {0};
  if (!parse_values(p, "a value such as %y after 'return'", &results, &locs)) skip_statement(p);
  for (uint32_t i = 0; i < results.count; i++)
    if (results.data[i].index != lost.index) ir_build_result(p->graph, results.data[i]);
  p->graph->result_locs = locs.data;
}

// ---- graphs -------------------------------------------------------------------------------------

static void report_unknown(parser *p) {
  if (p->unknown.count == 0) return;
  const uint32_t count = p->values.definitions.count;
  const char **names = base_new_array(p->arena, const char *, count);
  for (uint32_t i = 0; i < count; i++)
    names[i] = p->values.definitions.data[i].name.data;
  for (uint32_t i = 0; i < p->unknown.count; i++) {
    const use *unknown = &p->unknown.data[i];
    const definition *later = name_find(&p->values, unknown->name);
    const base_str name = quote(unknown->name);
    if (later) {
      error(p, unknown->loc, "%%%.*s is used before its definition in line %u", BASE_FMT(name),
            later->loc.line);
    } else if (!p->names_lost) {
      error(p, unknown->loc, "unknown value %%%.*s", BASE_FMT(name));
      hint_nearest(p, unknown->name, "%", names, count, NULL);
    }
  }
}

static void parse_body(parser *p) {
  for (;;) {
    p->depth = 1;
    if (p->token.kind == IR_TOKEN_END || starts_graph(p)) {
      expected_here(p, "a statement or '}'");
      return;
    }
    if (p->token.kind == '}') break;
    if (at_word(p, "return")) {
      parse_return(p);
    } else if (p->token.kind == IR_TOKEN_VALUE) {
      parse_statement(p);
    } else {
      expected_here(p, "a statement such as %y = neg %x : f32[T, D], or '}'");
      p->names_lost = true; // it may have been a definition
      skip_statement(p);
    }
  }
  if (!p->returned) {
    error(p, p->token.loc, "graph @%.*s returns nothing", BASE_FMT(quote(p->graph->name)));
    hint(p, "end it with 'return %%value'");
  }
  advance(p);
}

// `graph @name(parameters) {`. False when there is no body to go on with.
static bool parse_head(parser *p) {
  ir_token name = p->token;
  if (!accept(p, IR_TOKEN_GLOBAL)) {
    expected(p, "the graph's name, as in graph @name(...)");
    p->names_lost = true;
  } else {
    is_new(p, &p->graphs, &name);
    define(p, &p->graphs, &name, (ir_value){0});
    p->graph->name = base_str_copy(p->arena, bare(name.text));
    p->graph->loc = name.loc;
  }
  if (!p->names_lost && parse_params(p) && expect(p, '{', "'{'")) return true;
  p->names_lost = true;
  while (p->token.kind != '{' && p->token.kind != IR_TOKEN_END && !starts_statement(p) &&
         !starts_graph(p))
    advance(p);
  return accept(p, '{') || starts_statement(p); // a missing '{' was one error: no need of more
}

static void parse_graph(parser *p, ir_module *module) {
  advance(p); // graph
  p->graph = ir_graph_create(p->arena, BASE_STR(""));
  p->values = (name_table){0};
  p->unknown.count = 0;
  p->axes_lost = p->names_lost = p->returned = false;
  if (parse_head(p)) parse_body(p);
  report_unknown(p);
  base_push(p->arena, &module->graphs, p->graph);
}

static bool check_text(base_str text, base_diag *diag) {
  if (text.length >= UINT32_MAX) {
    base_error(diag, (base_loc){0}, "expected less than 4 GiB of text");
    return false;
  }
  if (text.length > 0 && memchr(text.data, '\0', text.length)) {
    base_error(diag, (base_loc){0}, "expected IR text, found a binary file");
    base_hint(diag, "a file of graphs holds text that starts with 'graph @name('");
    return false;
  }
  return true;
}

ir_module *ir_parse(base_arena *arena, base_str text, base_diag *diag) {
  if (!check_text(text, diag)) return NULL;
  ir_module *module = base_new(arena, ir_module);
  parser p = {.arena = arena, .diag = diag, .lexer = ir_lexer_start(text)};
  advance(&p); // fills `ahead`
  advance(&p); // and `token`
  p.last_end = (base_loc){0};
  do {
    if (at_word(&p, "graph")) {
      parse_graph(&p, module);
      continue;
    }
    expected_here(&p, "'graph @name(...) {'");
    while (p.token.kind != IR_TOKEN_END && !starts_graph(&p))
      advance(&p);
  } while (p.token.kind != IR_TOKEN_END);
  if (p.full)
    base_error(diag, (base_loc){0}, "more than %d errors; the rest is not reported", MOST_ERRORS);
  if (p.errors == 0) return module;
  for (uint32_t i = 0; i < module->graphs.count && !p.full; i++)
    ir_verify_part(module->graphs.data[i], diag);
  return NULL;
}
