// YAML as trees: reading and typed access. Writing is in yaml_write.c.
//
// libyaml's parser keeps memory of its own. It lies in an object that the arena releases, so an
// allocation that fails in between leaks nothing.
#include "base/yaml.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MOST_ERRORS = 20 }; // of one text; then reading it ends

typedef struct yaml_reader {
  yaml_parser_t parser;
  yaml_event_t event; // the one that is looked at
  base_arena *arena;
  base_diag *diag;
  base_str text;
  uint32_t first_errors; // that diag had before
  // A place in the text: libyaml counts characters, and more kinds of line ends than editors do.
  size_t character, byte, line_start;
  uint32_t first_line, line;
} yaml_reader;

static void close_reader(void *object) {
  yaml_reader *r = object;
  yaml_event_delete(&r->event);
  yaml_parser_delete(&r->parser); // leaves it zeroed: a second call does nothing
}

static _Noreturn void out_of_memory(base_arena *arena) {
  base_alloc_array(arena, SIZE_MAX, 2);
  abort(); // not reached: the line above escapes
}

// ---- places -------------------------------------------------------------------------------------

static void step_byte(yaml_reader *r) {
  if (r->text.data[r->byte++] != '\n') return;
  r->line++;
  r->line_start = r->byte;
}

static void rewind_place(yaml_reader *r) {
  r->character = r->byte = r->line_start = 0;
  r->line = r->first_line;
}

// Goes to the character of that index. Events come in the text's order, so it is one walk in all.
static void go_to(yaml_reader *r, size_t character) {
  if (character < r->character) rewind_place(r);
  for (; r->character < character && r->byte < r->text.length; r->character++) {
    step_byte(r);
    while (r->byte < r->text.length && ((unsigned char)r->text.data[r->byte] & 0xc0) == 0x80)
      step_byte(r);
  }
}

static base_loc place_here(const yaml_reader *r, uint32_t length) {
  return (base_loc){r->line, (uint32_t)(r->byte - r->line_start) + 1, length};
}

static base_loc place_of_event(yaml_reader *r) {
  go_to(r, r->event.start_mark.index);
  base_loc loc = place_here(r, 1);
  if (r->event.type != YAML_SCALAR_EVENT) return loc;
  const size_t start = r->byte;
  go_to(r, r->event.end_mark.index);
  if (r->line == loc.line && r->byte > start) loc.length = (uint32_t)(r->byte - start);
  return loc;
}

// ---- events -------------------------------------------------------------------------------------

static void report_syntax(yaml_reader *r) {
  const yaml_parser_t *parser = &r->parser;
  if (parser->error == YAML_MEMORY_ERROR) out_of_memory(r->arena);
  if (parser->error == YAML_READER_ERROR) { // its offset is in bytes
    rewind_place(r);
    while (r->byte < parser->problem_offset && r->byte < r->text.length)
      step_byte(r);
  } else {
    go_to(r, parser->problem_mark.index);
  }
  const base_loc loc = place_here(r, 1);
  r->character = SIZE_MAX; // a place by bytes: the next one is looked for from the start
  if (parser->context)
    base_error(r->diag, loc, "not YAML: %s %s", parser->problem, parser->context);
  else
    base_error(r->diag, loc, "not YAML: %s", parser->problem);
}

static bool next_event(yaml_reader *r) {
  yaml_event_delete(&r->event);
  if (r->diag->error_count - r->first_errors >= MOST_ERRORS) return false;
  if (yaml_parser_parse(&r->parser, &r->event)) return true;
  report_syntax(r);
  return false;
}

// ---- trees --------------------------------------------------------------------------------------

static int compare_keys(const void *left, const void *right) {
  const base_yaml_item *a = *(const base_yaml_item *const *)left;
  const base_yaml_item *b = *(const base_yaml_item *const *)right;
  const int order = strcmp(a->key.data, b->key.data);
  return order ? order : a < b ? -1 : a > b;
}

static void refuse_twins(yaml_reader *r, const base_yaml *mapping) {
  const base_yaml_item **sorted = base_new_array(r->arena, const base_yaml_item *, mapping->count);
  for (uint32_t i = 0; i < mapping->count; i++)
    sorted[i] = &mapping->items[i];
  if (mapping->count) qsort(sorted, mapping->count, sizeof *sorted, compare_keys);
  for (uint32_t i = 1; i < mapping->count; i++) {
    if (!base_str_equal(sorted[i - 1]->key, sorted[i]->key)) continue;
    base_error(r->diag, sorted[i]->key_loc, "'%s' is given twice", sorted[i]->key.data);
    base_hint(r->diag, "the other is in line %u; keep one of the two", sorted[i - 1]->key_loc.line);
    if (r->diag->error_count - r->first_errors >= MOST_ERRORS) return;
  }
}

static void refuse_properties(yaml_reader *r, base_loc loc, const yaml_char_t *anchor,
                              const yaml_char_t *tag) {
  if (anchor) {
    base_error(r->diag, loc, "anchors are not read here");
    base_hint(r->diag, "remove '&%s', and write the value wherever it is used", anchor);
  }
  if (tag) {
    base_error(r->diag, loc, "tags are not read here");
    base_hint(r->diag, "remove '%s'; what type a value has follows from its place", tag);
  }
}

static const base_yaml *read_scalar(yaml_reader *r, base_loc loc) {
  const base_str text = {(const char *)r->event.data.scalar.value, r->event.data.scalar.length};
  base_yaml *node = base_new(r->arena, base_yaml);
  *node = (base_yaml){.kind = BASE_YAML_SCALAR, .loc = loc};
  node->plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  node->text = base_str_copy(r->arena, text);
  refuse_properties(r, loc, r->event.data.scalar.anchor,
                    r->event.data.scalar.plain_implicit || r->event.data.scalar.quoted_implicit
                        ? NULL
                        : r->event.data.scalar.tag);
  if (text.length && memchr(text.data, '\0', text.length)) {
    base_error(r->diag, loc, "a string cannot hold a zero byte");
    base_hint(r->diag, "remove the \\0");
  }
  return node;
}

static bool read_key(yaml_reader *r, base_yaml_item *item) {
  item->key_loc = place_of_event(r);
  if (r->event.type != YAML_SCALAR_EVENT) {
    base_error(r->diag, item->key_loc, "a key must be a string");
    base_hint(r->diag, "write name: value");
    return false;
  }
  item->key = read_scalar(r, item->key_loc)->text;
  return next_event(r);
}

static const base_yaml *read_node(yaml_reader *r, uint32_t depth);

static const base_yaml *read_container(yaml_reader *r, base_loc loc, uint32_t depth) {
  base_yaml *node = base_new(r->arena, base_yaml);
  const bool is_list = r->event.type == YAML_SEQUENCE_START_EVENT;
  const yaml_event_type_t end = is_list ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT;
  if (is_list)
    refuse_properties(r, loc, r->event.data.sequence_start.anchor,
                      r->event.data.sequence_start.tag);
  else
    refuse_properties(r, loc, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag);
  if (depth >= BASE_YAML_DEPTH) {
    base_error(r->diag, loc, "more than %d lists and mappings within each other", BASE_YAML_DEPTH);
    base_hint(r->diag, "nothing that is read here is so deep");
    return NULL;
  }
  BASE_VECTOR(base_yaml_item) items = {0};
  if (!next_event(r)) return NULL;
  while (r->event.type != end) {
    base_yaml_item item = {0};
    if (!is_list && !read_key(r, &item)) return NULL;
    item.value = read_node(r, depth + 1);
    if (!item.value || !next_event(r)) return NULL;
    base_push(r->arena, &items, item);
  }
  *node = (base_yaml){.kind = is_list ? BASE_YAML_LIST : BASE_YAML_MAPPING, .loc = loc};
  node->count = items.count;
  node->items = items.data;
  if (!is_list) refuse_twins(r, node);
  return node;
}

// The node that begins with the event; afterwards the event is its last. NULL: reported.
static const base_yaml *read_node(yaml_reader *r, uint32_t depth) {
  const base_loc loc = place_of_event(r);
  if (r->event.type == YAML_SCALAR_EVENT) return read_scalar(r, loc);
  if (r->event.type != YAML_ALIAS_EVENT) return read_container(r, loc, depth);
  base_error(r->diag, loc, "aliases are not read here");
  base_hint(r->diag, "write the value in place of '*%s'", r->event.data.alias.anchor);
  base_yaml *nothing = base_new(r->arena, base_yaml);
  *nothing = (base_yaml){.loc = loc, .text = BASE_STR("")};
  return nothing;
}

static const base_yaml *read_document(yaml_reader *r) {
  if (!next_event(r) || !next_event(r)) return NULL; // the stream's start, then a document's
  if (r->event.type == YAML_STREAM_END_EVENT) {
    base_yaml *nothing = base_new(r->arena, base_yaml);
    *nothing = (base_yaml){.plain = true, .loc = {r->first_line, 1, 1}, .text = BASE_STR("")};
    return nothing;
  }
  if (!next_event(r)) return NULL;
  const base_yaml *root = read_node(r, 0);
  if (!root || !next_event(r) || !next_event(r)) return NULL; // the document's end, the stream's
  if (r->event.type == YAML_STREAM_END_EVENT) return root;
  base_error(r->diag, place_of_event(r), "a second document");
  base_hint(r->diag, "a file holds one document");
  return NULL;
}

const base_yaml *base_yaml_read(base_arena *arena, base_str text, uint32_t line, base_diag *diag) {
  yaml_reader *r = base_new(arena, yaml_reader);
  *r = (yaml_reader){.arena = arena, .diag = diag, .text = text, .first_line = line, .line = line};
  r->first_errors = diag->error_count;
  if (!yaml_parser_initialize(&r->parser)) out_of_memory(arena);
  base_defer(arena, close_reader, r);
  yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&r->parser, (const unsigned char *)text.data, text.length);
  const base_yaml *root = read_document(r);
  close_reader(r);
  return diag->error_count == r->first_errors ? root : NULL;
}

// ---- values -------------------------------------------------------------------------------------

const base_yaml *base_yaml_find(const base_yaml *mapping, const char *name) {
  if (mapping->kind != BASE_YAML_MAPPING) return NULL;
  for (uint32_t i = 0; i < mapping->count; i++)
    if (strcmp(mapping->items[i].key.data, name) == 0) return mapping->items[i].value;
  return NULL;
}

// What a node is, for messages.
static const char *describe(base_arena *arena, const base_yaml *node) {
  enum { MOST_SHOWN = 40 };
  if (node->kind == BASE_YAML_LIST) return "a list";
  if (node->kind == BASE_YAML_MAPPING) return "a mapping";
  if (node->plain && node->text.length == 0) return "nothing";
  const bool cut = node->text.length > MOST_SHOWN;
  return base_str_format(arena, "'%.*s%s'", cut ? MOST_SHOWN : (int)node->text.length,
                         node->text.data, cut ? "..." : "")
      .data;
}

static bool expected(const base_yaml *node, const char *what, base_diag *diag) {
  base_error(diag, node->loc, "expected %s, found %s", what, describe(diag->arena, node));
  return false;
}

static const char *list_names(base_arena *arena, const char *const *names, uint32_t count) {
  base_text list = {.arena = arena};
  for (uint32_t i = 0; i < count; i++)
    base_text_printf(&list, "%s%s", i ? ", " : "", names[i]);
  return list.data;
}

static bool is_among(base_str name, const char *const *names, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (base_str_equal(name, base_str_from(names[i]))) return true;
  return false;
}

bool base_yaml_is_mapping(const base_yaml *node, const char *const *names, uint32_t count,
                          base_diag *diag) {
  if (node->kind != BASE_YAML_MAPPING) return expected(node, "a mapping", diag);
  bool ok = true;
  for (uint32_t i = 0; i < node->count; i++) {
    const base_yaml_item *item = &node->items[i];
    if (is_among(item->key, names, count)) continue;
    ok = false;
    base_error(diag, item->key_loc, "unknown name '%s'", item->key.data);
    const char *nearest = base_nearest(item->key, names, count);
    if (nearest)
      base_hint(diag, "did you mean '%s'?", nearest);
    else
      base_hint(diag, "the names are %s", list_names(diag->arena, names, count));
  }
  return ok;
}

bool base_yaml_is_list(const base_yaml *node, base_diag *diag) {
  return node->kind == BASE_YAML_LIST || expected(node, "a list", diag);
}

bool base_yaml_string(const base_yaml *node, const char **value, base_diag *diag) {
  if (node->kind != BASE_YAML_SCALAR || (node->plain && node->text.length == 0))
    return expected(node, "a string", diag);
  *value = node->text.data;
  return true;
}

// A plain scalar of these characters only, so that strtod and its like see nothing else they know.
static bool is_made_of(const base_yaml *node, const char *characters) {
  return node->kind == BASE_YAML_SCALAR && node->plain && node->text.length > 0 &&
         strspn(node->text.data, characters) == node->text.length;
}

bool base_yaml_integer(const base_yaml *node, int64_t low, int64_t high, int64_t *value,
                       base_diag *diag) {
  char *end = NULL;
  long long number = 0;
  errno = 0;
  if (is_made_of(node, "-0123456789")) number = strtoll(node->text.data, &end, 10);
  if (!end || *end || errno) return expected(node, "an integer", diag);
  if (number < low || number > high) {
    base_error(diag, node->loc, "%lld is not from %lld to %lld", number, (long long)low,
               (long long)high);
    return false;
  }
  *value = number;
  return true;
}

bool base_yaml_natural(const base_yaml *node, uint64_t *value, base_diag *diag) {
  char *end = NULL;
  unsigned long long number = 0;
  errno = 0;
  if (is_made_of(node, "0123456789")) number = strtoull(node->text.data, &end, 10);
  if (!end || *end || errno) return expected(node, "an integer from 0 to 2^64 - 1", diag);
  *value = number;
  return true;
}

bool base_yaml_number(const base_yaml *node, double *value, base_diag *diag) {
  char *end = NULL;
  double number = 0;
  if (is_made_of(node, "-+.0123456789eE")) {
    // The host's locale may write 0,5; a file means the same everywhere.
    const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    number = strtod_l(node->text.data, &end, c_locale);
    freelocale(c_locale);
  }
  if (!end || *end || !isfinite(number)) return expected(node, "a number", diag);
  *value = number;
  return true;
}

bool base_yaml_bool(const base_yaml *node, bool *value, base_diag *diag) {
  const bool yes = is_made_of(node, "true") && strcmp(node->text.data, "true") == 0;
  const bool no = is_made_of(node, "false") && strcmp(node->text.data, "false") == 0;
  if (!yes && !no) return expected(node, "true or false", diag);
  *value = yes;
  return true;
}
