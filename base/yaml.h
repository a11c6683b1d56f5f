// base: YAML as trees, over libyaml.
//
// Read are mappings, lists and scalars of one document, which is all that descriptions and records need.
// Anchors and aliases are refused (a short text of aliases can stand for any amount of data), and so
// are tags, keys that are no scalars, and one key twice in a mapping. Scalars are kept as text; what
// type they have is for the reader of the tree to say, so `on` and `1.10` can be names.
//
// Sections: reading, values, writing.
#ifndef FATHOM_BASE_YAML_H
#define FATHOM_BASE_YAML_H

#include "base/base.h"

// ---- reading ------------------------------------------------------------------------------------

enum { BASE_YAML_DEPTH = 32 }; // most containers around a node

typedef enum base_yaml_kind { BASE_YAML_SCALAR, BASE_YAML_LIST, BASE_YAML_MAPPING } base_yaml_kind;

typedef struct base_yaml base_yaml;

typedef struct base_yaml_item {
  base_str key; // of a mapping's; terminated
  base_loc key_loc;
  const base_yaml *value; // never NULL
} base_yaml_item;

struct base_yaml {
  base_yaml_kind kind;
  bool plain; // a scalar without quotes: it may be a number, a switch, or nothing at all
  base_loc loc;
  base_str text; // a scalar's; terminated, without zero bytes inside
  uint32_t count;
  const base_yaml_item *items; // in the order of the text
};

// The text's document as a tree in `arena`; that of an empty text is a plain scalar of no
// characters. NULL: the errors are in diag. `line` is the number of the text's first line: 1, unless
// it is a part of something.
const base_yaml *base_yaml_read(base_arena *arena, base_str text, uint32_t line, base_diag *diag);

// ---- values -------------------------------------------------------------------------------------

// A mapping's value; NULL when it has none of that name, or is no mapping.
const base_yaml *base_yaml_find(const base_yaml *mapping, const char *name);

// The following are false, with an error at the node that says what was expected and what was found,
// when the node does not have the type.

// A mapping with no other names than these, at least one.
bool base_yaml_is_mapping(const base_yaml *node, const char *const *names, uint32_t count,
                          base_diag *diag);
bool base_yaml_is_list(const base_yaml *node, base_diag *diag);
// Any scalar but nothing at all: what looks like a number is fine.
bool base_yaml_string(const base_yaml *node, const char **value, base_diag *diag);
bool base_yaml_integer(const base_yaml *node, int64_t low, int64_t high, int64_t *value,
                       base_diag *diag);
bool base_yaml_natural(const base_yaml *node, uint64_t *value, base_diag *diag);
bool base_yaml_number(const base_yaml *node, double *value, base_diag *diag); // finite
bool base_yaml_bool(const base_yaml *node, bool *value, base_diag *diag);     // true or false

// ---- writing ------------------------------------------------------------------------------------

// Values are put one after the other: mappings as key, value, key, value. Strings that another
// reader could take for something else are quoted; bytes that are no UTF-8 become U+FFFD.
typedef struct base_yaml_writer base_yaml_writer;

typedef enum base_yaml_style {
  BASE_YAML_BLOCK, // an item a line
  BASE_YAML_FLOW   // all on one line, and everything inside too
} base_yaml_style;

// Appends to `out`, which must not be used in between.
base_yaml_writer *base_yaml_begin(base_arena *arena, base_text *out);
void base_yaml_put_mapping(base_yaml_writer *writer, base_yaml_style style);
void base_yaml_put_list(base_yaml_writer *writer, base_yaml_style style);
void base_yaml_put_end(base_yaml_writer *writer); // of the innermost mapping or list
void base_yaml_put_string(base_yaml_writer *writer, const char *text);
// What put_string writes of `text`: in `arena` if anything had to be replaced.
base_str base_yaml_mend(base_arena *arena, base_str text);
void base_yaml_put_integer(base_yaml_writer *writer, int64_t value);
void base_yaml_put_natural(base_yaml_writer *writer, uint64_t value);
void base_yaml_put_number(base_yaml_writer *writer, double value); // the same bits come back
void base_yaml_put_bool(base_yaml_writer *writer, bool value);
// Ends the document; `marked`: with a line of three dots, by which a reader can tell that none of it
// is missing.
void base_yaml_finish(base_yaml_writer *writer, bool marked);

#endif
