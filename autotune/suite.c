// suite: reading suites. What is wrong is reported with its place in the suite, and reading goes on with
// the next part, so that one run shows all.
#include "autotune/suite.h"

#include <string.h>

#include "base/yaml.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct suite_rows {
  uint32_t count;
  const int64_t *sizes;
} suite_rows;

// What one list of `set` or `dtypes` says: an axis and its sizes, or a dtype and those that stand in
// for it.
typedef struct suite_choice {
  int64_t number; // a size, or an ir_dtype
  base_loc loc;
} suite_choice;

typedef struct suite_factor {
  base_str axis; // no characters: it is about a dtype
  ir_dtype dtype;
  base_loc loc;
  uint32_t count;
  const suite_choice *choices;
} suite_factor;

typedef struct suite_kernel {
  const char *name;
  base_loc name_loc, text_loc, graph_loc;
  const char *graph;     // NULL: the only one
  base_str file, source; // for messages about the graph
  base_str text;         // its graphs, at the same places as in `source`
  suite_rows rows;
  BASE_VECTOR(suite_factor) factors;
} suite_kernel;

typedef struct suite_reader {
  base_arena *arena;
  base_diag *diag;
  base_str text;
  const char *folder;
  suite_rows rows;  // of kernels without rows of their own
  bool rows_failed; // they cannot be read
  BASE_VECTOR(tune_suite_entry) entries;
  BASE_VECTOR(base_loc) names; // of the entries' kernels
} suite_reader;

// ---- lists --------------------------------------------------------------------------------------

// A node's values: its own, or those of the list that it is. NULL: see diag.
static const base_yaml **values_of(suite_reader *r, const base_yaml *node, uint32_t *count) {
  const bool is_list = node->kind == BASE_YAML_LIST;
  *count = is_list ? node->count : 1;
  if (*count == 0) {
    base_error(r->diag, node->loc, "an empty list");
    base_hint(r->diag, "name at least one value, or remove it");
    return NULL;
  }
  const base_yaml **values = base_new_array(r->arena, const base_yaml *, *count);
  for (uint32_t i = 0; i < *count; i++)
    values[i] = is_list ? node->items[i].value : node;
  return values;
}

static bool read_size(const base_yaml *node, int64_t *size, base_diag *diag) {
  if (!base_yaml_integer(node, INT64_MIN, INT64_MAX, size, diag)) return false;
  if (*size > 0) return true;
  base_error(diag, node->loc, "expected a size of 1 or more, found %lld", (long long)*size);
  return false;
}

static bool find_dtype(base_str name, ir_dtype *dtype) {
  for (int i = 0; i < IR_DTYPE_COUNT; i++) {
    if (!base_str_equal(name, base_str_from(ir_dtype_name((ir_dtype)i)))) continue;
    *dtype = (ir_dtype)i;
    return true;
  }
  return false;
}

static bool read_dtype(base_str name, base_loc loc, ir_dtype *dtype, base_diag *diag) {
  if (find_dtype(name, dtype)) return true;
  base_text list = {.arena = diag->arena};
  for (int i = 0; i < IR_DTYPE_COUNT; i++)
    base_text_printf(&list, "%s%s", i ? ", " : "", ir_dtype_name((ir_dtype)i));
  base_error(diag, loc, "unknown dtype '%.*s'", BASE_FMT(name));
  base_hint(diag, "the dtypes are %s", list.data);
  return false;
}

static bool read_number(const base_yaml *node, bool is_dtype, int64_t *number, base_diag *diag) {
  const char *name;
  ir_dtype dtype;
  if (!is_dtype) return read_size(node, number, diag);
  if (!base_yaml_string(node, &name, diag) ||
      !read_dtype(base_str_from(name), node->loc, &dtype, diag))
    return false;
  *number = dtype;
  return true;
}

// A value or a list of values, each once. NULL: see diag.
static const suite_choice *read_choices(suite_reader *r, const base_yaml *node, bool is_dtype,
                                        uint32_t *count) {
  const base_yaml **values = values_of(r, node, count);
  suite_choice *choices = base_new_array(r->arena, suite_choice, *count);
  bool ok = values != NULL;
  for (uint32_t i = 0; values != NULL && i < *count; i++) {
    choices[i].loc = values[i]->loc;
    if (!read_number(values[i], is_dtype, &choices[i].number, r->diag)) {
      ok = false;
      continue;
    }
    for (uint32_t j = 0; j < i && ok; j++) {
      if (choices[j].number != choices[i].number) continue;
      base_error(r->diag, choices[i].loc, "'%s' is listed twice", values[i]->text.data);
      ok = false;
    }
  }
  return ok ? choices : NULL;
}

static bool read_rows(suite_reader *r, const base_yaml *node, suite_rows *rows) {
  uint32_t count;
  const suite_choice *choices = read_choices(r, node, false, &count);
  if (choices == NULL) return false;
  int64_t *sizes = base_new_array(r->arena, int64_t, count);
  for (uint32_t i = 0; i < count; i++)
    sizes[i] = choices[i].number;
  *rows = (suite_rows){count, sizes};
  return true;
}

// ---- the text of a graph ------------------------------------------------------------------------

// Cuts the first line off `rest`, without its end.
static base_str next_line(base_str *rest) {
  const char *newline = memchr(rest->data, '\n', rest->length);
  base_str line = {rest->data, newline ? (size_t)(newline - rest->data) : rest->length};
  const size_t used = line.length + (newline != NULL);
  rest->data += used;
  rest->length -= used;
  if (line.length > 0 && line.data[line.length - 1] == '\r') line.length--;
  return line;
}

// Is `line` what a block has of a line of the suite: the same without blanks before it?
static bool is_indented(base_str whole, base_str line) {
  if (whole.length < line.length) return false;
  const size_t indent = whole.length - line.length;
  for (size_t i = 0; i < indent; i++)
    if (whole.data[i] != ' ') return false;
  return memcmp(whole.data + indent, line.data, line.length) == 0;
}

// The lines of a block alone, where they are in the suite: so all places in the graph are places of the
// suite. False: the text is no block of lines.
static bool keep_lines(suite_reader *r, const base_yaml *node, base_str *kept) {
  base_text out = {.arena = r->arena};
  base_str rest = r->text, block = node->text;
  for (uint32_t line = 0; line < node->loc.line; line++) {
    next_line(&rest);
    base_text_append(&out, "\n", 1);
  }
  while (block.length > 0) {
    const base_str whole = next_line(&rest), part = next_line(&block);
    if (!is_indented(whole, part)) return false;
    base_text_append(&out, whole.data, whole.length);
    base_text_append(&out, "\n", 1);
  }
  *kept = base_text_str(&out);
  return true;
}

static bool take_text(suite_reader *r, const base_yaml *node, suite_kernel *kernel) {
  const char *text;
  if (!base_yaml_string(node, &text, r->diag)) return false;
  kernel->file = r->diag->file;
  kernel->source = r->text;
  if (!node->plain && keep_lines(r, node, &kernel->text)) return true;
  base_error(r->diag, node->loc, "expected a block of graph IR");
  base_hint(r->diag, "write `text: |`, and the graph in the lines below it; or name a file");
  return false;
}

static bool take_file(suite_reader *r, const base_yaml *node, suite_kernel *kernel) {
  const char *name;
  base_str why;
  if (!base_yaml_string(node, &name, r->diag)) return false;
  kernel->file =
      name[0] == '/' ? base_str_from(name) : base_str_format(r->arena, "%s/%s", r->folder, name);
  const base_status status = base_file_read(r->arena, kernel->file.data, &kernel->text, &why);
  kernel->source = kernel->text;
  if (status == BASE_OK) return true;
  base_error_status(r->diag, status, node->loc, "%.*s", BASE_FMT(why));
  return false;
}

static bool take_graphs(suite_reader *r, const base_yaml *node, suite_kernel *kernel) {
  const base_yaml *text = base_yaml_find(node, "text"), *file = base_yaml_find(node, "file");
  if (text == NULL && file == NULL) {
    base_error(r->diag, node->loc, "a kernel without a graph");
    base_hint(r->diag, "give it a `text`, or the name of a `file`");
    return false;
  }
  kernel->text_loc = (text != NULL ? text : file)->loc;
  if (text != NULL && file != NULL) {
    base_error(r->diag, file->loc, "a kernel has either a 'text' or a 'file'");
    return false;
  }
  return text != NULL ? take_text(r, text, kernel) : take_file(r, file, kernel);
}

// ---- graphs -------------------------------------------------------------------------------------

// Hands on what was found wrong with a graph, at `loc`: a place in the suite.
static void hand_on(suite_reader *r, const suite_kernel *kernel, base_loc loc,
                    const base_diag *found) {
  for (uint32_t i = 0; i < found->reports.count; i++) {
    const base_report *report = &found->reports.data[i];
    if (report->loc.line > 0)
      base_error(r->diag, loc, "%.*s:%u:%u: %.*s", BASE_FMT(kernel->file), report->loc.line,
                 report->loc.column, BASE_FMT(report->message));
    else
      base_error(r->diag, loc, "%.*s", BASE_FMT(report->message));
    if (report->hint.length > 0) base_hint(r->diag, "%.*s", BASE_FMT(report->hint));
  }
}

// The same for what is wrong with its text, in the place itself where that is in the suite.
static void hand_on_text(suite_reader *r, const suite_kernel *kernel, const base_diag *found) {
  if (kernel->source.data != r->text.data) {
    hand_on(r, kernel, kernel->text_loc, found);
    return;
  }
  for (uint32_t i = 0; i < found->reports.count; i++) {
    const base_report *report = &found->reports.data[i];
    const base_loc loc = report->loc.line > 0 ? report->loc : kernel->text_loc;
    base_error(r->diag, loc, "%.*s", BASE_FMT(report->message));
    if (report->hint.length > 0) base_hint(r->diag, "%.*s", BASE_FMT(report->hint));
  }
}

static ir_graph *choose_graph(suite_reader *r, const suite_kernel *kernel,
                              const ir_module *module) {
  base_text list = {.arena = r->arena};
  for (uint32_t i = 0; i < module->graphs.count; i++) {
    ir_graph *graph = module->graphs.data[i];
    if (kernel->graph == NULL ? module->graphs.count == 1
                              : base_str_equal(graph->name, base_str_from(kernel->graph)))
      return graph;
    base_text_printf(&list, "%s@%.*s", i ? ", " : "", BASE_FMT(graph->name));
  }
  if (kernel->graph != NULL)
    base_error(r->diag, kernel->graph_loc, "there is no graph @%s", kernel->graph);
  else
    base_error(r->diag, kernel->text_loc, "there are %u graphs", module->graphs.count);
  base_hint(r->diag, "name one with 'graph': %s", list.data);
  return NULL;
}

// The kernel's graph, new for each entry. NULL: see diag.
static ir_graph *make_graph(suite_reader *r, const suite_kernel *kernel) {
  base_diag found;
  base_diag_init(&found, r->arena, kernel->file, kernel->source);
  const ir_module *module = ir_parse(r->arena, kernel->text, &found);
  ir_graph *graph = module != NULL ? choose_graph(r, kernel, module) : NULL;
  if (graph != NULL) ir_verify(graph, IR_STAGE_PARSED, &found);
  if (found.error_count == 0) return graph;
  hand_on_text(r, kernel, &found);
  return NULL;
}

static bool has_dtype(const ir_graph *graph, ir_dtype dtype) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.data[i].type.dtype == dtype) return true;
  return false;
}

static bool has_dynamic_axis(const ir_graph *graph) {
  for (uint32_t i = 0; i < graph->axes.count; i++)
    if (ir_axis_size(graph, (ir_axis){i}) < 0) return true;
  return false;
}

// All at once: of {bf16: f16, f16: f32} no value gets both.
static void exchange_dtypes(ir_graph *graph, const ir_dtype *by) {
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    graph->nodes.data[i].type.dtype = by[graph->nodes.data[i].type.dtype];
}

// ---- entries ------------------------------------------------------------------------------------

static bool is_axis(const suite_factor *factor) {
  return factor->axis.length > 0;
}

// Applies one choice of each factor. False: see diag.
static bool vary(suite_reader *r, const suite_kernel *kernel, const uint32_t *chosen,
                 ir_graph *graph) {
  ir_dtype by[IR_DTYPE_COUNT];
  for (int i = 0; i < IR_DTYPE_COUNT; i++)
    by[i] = (ir_dtype)i;
  for (uint32_t i = 0; i < kernel->factors.count; i++) {
    const suite_factor *factor = &kernel->factors.data[i];
    const suite_choice *choice = &factor->choices[chosen[i]];
    base_diag found;
    base_diag_init(&found, r->arena, BASE_STR(""), BASE_STR(""));
    if (!is_axis(factor)) {
      by[factor->dtype] = (ir_dtype)choice->number;
      if (has_dtype(graph, factor->dtype)) continue;
      base_error(r->diag, factor->loc, "no value of graph @%.*s is of dtype %s",
                 BASE_FMT(graph->name), ir_dtype_name(factor->dtype));
      return false;
    }
    // Verifying derives the sizes that follow from this one, or says that it fits no op.
    if (ir_bind_axis(graph, factor->axis, choice->number, &found) &&
        ir_verify(graph, IR_STAGE_PARSED, &found))
      continue;
    hand_on(r, kernel, choice->loc, &found);
    return false;
  }
  exchange_dtypes(graph, by);
  base_diag found;
  base_diag_init(&found, r->arena, kernel->file, kernel->source);
  if (ir_verify(graph, IR_STAGE_PARSED, &found)) return true;
  hand_on_text(r, kernel, &found);
  return false;
}

static const char *name_entry(suite_reader *r, const suite_kernel *kernel, const uint32_t *chosen) {
  base_text name = {.arena = r->arena};
  base_text_printf(&name, "%s", kernel->name);
  for (uint32_t i = 0; i < kernel->factors.count; i++) {
    const suite_factor *factor = &kernel->factors.data[i];
    const int64_t number = factor->choices[chosen[i]].number;
    if (factor->count == 1) continue;
    if (is_axis(factor))
      base_text_printf(&name, "-%.*s%lld", BASE_FMT(factor->axis), (long long)number);
    else
      base_text_printf(&name, "-%s", ir_dtype_name((ir_dtype)number));
  }
  return name.data;
}

static const char *describe_dtypes(suite_reader *r, const suite_kernel *kernel,
                                   const uint32_t *chosen) {
  base_text text = {.arena = r->arena};
  for (uint32_t i = 0; i < kernel->factors.count; i++) {
    const suite_factor *factor = &kernel->factors.data[i];
    const ir_dtype by = (ir_dtype)factor->choices[chosen[i]].number;
    if (is_axis(factor) || by == factor->dtype) continue;
    base_text_printf(&text, "%s%s as %s", text.length ? ", " : "", ir_dtype_name(factor->dtype),
                     ir_dtype_name(by));
  }
  return text.length ? text.data : "";
}

static bool is_taken(suite_reader *r, const suite_kernel *kernel, const char *name) {
  for (uint32_t i = 0; i < r->entries.count; i++) {
    if (strcmp(r->entries.data[i].name, name) != 0) continue;
    base_error(r->diag, kernel->name_loc, "a second entry would be called '%s'", name);
    base_hint(r->diag, "the other is that of line %u: give one of the two another name",
              r->names.data[i].line);
    return true;
  }
  return false;
}

static bool add_entry(suite_reader *r, const suite_kernel *kernel, const uint32_t *chosen) {
  const char *name = name_entry(r, kernel, chosen);
  if (is_taken(r, kernel, name)) return false;
  ir_graph *graph = make_graph(r, kernel);
  if (graph == NULL || !vary(r, kernel, chosen, graph)) return false;
  if (!has_dynamic_axis(graph)) {
    base_error(r->diag, kernel->name_loc, "every axis of graph @%.*s has a size",
               BASE_FMT(graph->name));
    base_hint(r->diag, "leave the one that 'rows' is about without");
    return false;
  }
  tune_suite_entry entry = {
      .name = name,
      .dtypes = describe_dtypes(r, kernel, chosen),
      .graph = graph,
      .file = kernel->file,
      .text = kernel->source,
      .row_count = kernel->rows.count,
      .rows = kernel->rows.sizes,
  };
  base_push(r->arena, &r->entries, entry);
  base_push(r->arena, &r->names, kernel->name_loc);
  return true;
}

// Goes to the next combination, the last factor first; false: that was the last.
static bool next_choice(const suite_kernel *kernel, uint32_t *chosen) {
  for (uint32_t i = kernel->factors.count; i-- > 0;) {
    if (++chosen[i] < kernel->factors.data[i].count) return true;
    chosen[i] = 0;
  }
  return false;
}

static void add_entries(suite_reader *r, const suite_kernel *kernel) {
  uint32_t *chosen = base_new_array(r->arena, uint32_t, kernel->factors.count + 1);
  do {
    if (r->entries.count == TUNE_SUITE_ENTRIES) {
      base_error(r->diag, kernel->name_loc, "more than %d entries", TUNE_SUITE_ENTRIES);
      base_hint(r->diag, "an entry is a combination of the values in 'set' and 'dtypes'");
      return;
    }
  } while (add_entry(r, kernel, chosen) && next_choice(kernel, chosen));
}

// ---- kernels ------------------------------------------------------------------------------------

static bool is_name(const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  const size_t length = strlen(name);
  if (length == 0 || length > 64 || strchr(letters, name[0]) == NULL) return false;
  for (size_t i = 0; i < length; i++)
    if (strchr(letters, name[i]) == NULL && strchr("_.-", name[i]) == NULL) return false;
  return true;
}

static bool read_name(suite_reader *r, const base_yaml *node, suite_kernel *kernel) {
  const base_yaml *name = base_yaml_find(node, "name");
  if (name == NULL) {
    base_error(r->diag, node->loc, "a kernel without a 'name'");
    return false;
  }
  kernel->name_loc = name->loc;
  if (!base_yaml_string(name, &kernel->name, r->diag)) return false;
  if (is_name(kernel->name)) return true;
  base_error(r->diag, name->loc, "'%s' is no name for a kernel", kernel->name);
  base_hint(r->diag, "it is also that of a folder: at most 64 letters, digits, '_', '.' and '-', a "
                     "letter or digit first");
  return false;
}

// The lists of `set` or of `dtypes`.
static bool read_factors(suite_reader *r, const base_yaml *node, bool is_dtype,
                         suite_kernel *kernel) {
  if (node == NULL) return true;
  if (node->kind != BASE_YAML_MAPPING) {
    base_error(r->diag, node->loc, "expected a mapping, such as %s",
               is_dtype ? "{bf16: f16}" : "{D: 7168}");
    return false;
  }
  bool ok = true;
  for (uint32_t i = 0; i < node->count; i++) {
    const base_yaml_item *item = &node->items[i];
    suite_factor factor = {.axis = is_dtype ? BASE_STR("") : item->key, .loc = item->key_loc};
    if (item->key.length == 0) {
      base_error(r->diag, item->key_loc, "a name without letters");
      ok = false;
      continue;
    }
    if (is_dtype) ok &= read_dtype(item->key, item->key_loc, &factor.dtype, r->diag);
    factor.choices = read_choices(r, item->value, is_dtype, &factor.count);
    ok &= factor.choices != NULL;
    base_push(r->arena, &kernel->factors, factor);
  }
  return ok;
}

static bool read_kernel_rows(suite_reader *r, const base_yaml *node, suite_kernel *kernel) {
  const base_yaml *rows = base_yaml_find(node, "rows");
  if (rows != NULL) return read_rows(r, rows, &kernel->rows);
  kernel->rows = r->rows;
  if (kernel->rows.count > 0 || r->rows_failed) return kernel->rows.count > 0;
  base_error(r->diag, node->loc, "neither the kernel nor the suite has 'rows'");
  base_hint(r->diag, "name the numbers of rows to tune for, as rows: [1, 64, 1024]");
  return false;
}

static void read_kernel(suite_reader *r, const base_yaml *node) {
  static const char *const names[] = {"name", "text", "file", "graph", "set", "dtypes", "rows"};
  suite_kernel kernel = {0};
  bool ok = base_yaml_is_mapping(node, names, COUNT(names), r->diag);
  if (node->kind != BASE_YAML_MAPPING) return;
  const base_yaml *graph = base_yaml_find(node, "graph");
  ok &= read_name(r, node, &kernel);
  const bool has_graphs = take_graphs(r, node, &kernel);
  if (graph != NULL) {
    kernel.graph_loc = graph->loc;
    ok &= base_yaml_string(graph, &kernel.graph, r->diag);
    if (kernel.graph != NULL && kernel.graph[0] == '@') kernel.graph++;
  }
  ok &= read_factors(r, base_yaml_find(node, "set"), false, &kernel);
  ok &= read_factors(r, base_yaml_find(node, "dtypes"), true, &kernel);
  ok &= read_kernel_rows(r, node, &kernel);
  if (ok && has_graphs)
    add_entries(r, &kernel);
  else if (has_graphs)
    make_graph(r, &kernel); // for what is wrong with it too
}

// ---- suites -------------------------------------------------------------------------------------

// False: nothing else of the suite can be read.
static bool check_schema(suite_reader *r, const base_yaml *root) {
  const base_yaml *schema = base_yaml_find(root, "schema");
  int64_t number;
  if (schema == NULL) {
    base_error(r->diag, root->loc, "'schema' is missing");
    base_hint(r->diag, "begin the suite with the line `schema: %d`", TUNE_SUITE_SCHEMA);
    return false;
  }
  if (!base_yaml_integer(schema, INT64_MIN, INT64_MAX, &number, r->diag)) return false;
  if (number == TUNE_SUITE_SCHEMA) return true;
  base_error_status(r->diag, BASE_UNSUPPORTED, schema->loc,
                    "the suite is of schema %lld, this Fathom knows schema %d", (long long)number,
                    TUNE_SUITE_SCHEMA);
  return false;
}

static void read_root(suite_reader *r, const base_yaml *root) {
  static const char *const names[] = {"schema", "rows", "kernels"};
  if (root->kind == BASE_YAML_MAPPING && !check_schema(r, root)) return;
  if (!base_yaml_is_mapping(root, names, COUNT(names), r->diag) && root->kind != BASE_YAML_MAPPING)
    return;
  const base_yaml *rows = base_yaml_find(root, "rows"), *kernels = base_yaml_find(root, "kernels");
  if (rows != NULL) r->rows_failed = !read_rows(r, rows, &r->rows);
  if (kernels == NULL) {
    base_error(r->diag, root->loc, "'kernels' is missing");
    base_hint(r->diag, "list the kernels of the suite below it");
  } else if (base_yaml_is_list(kernels, r->diag)) {
    if (kernels->count == 0) base_error(r->diag, kernels->loc, "a suite without kernels");
    for (uint32_t i = 0; i < kernels->count; i++)
      read_kernel(r, kernels->items[i].value);
  }
}

const tune_suite *tune_suite_read(base_arena *arena, base_str text, const char *folder,
                                  base_diag *diag) {
  const uint32_t errors = diag->error_count;
  suite_reader r = {.arena = arena, .diag = diag, .text = text, .folder = folder};
  const base_yaml *root = base_yaml_read(arena, text, 1, diag);
  if (root != NULL) read_root(&r, root);
  if (diag->error_count > errors) return NULL;
  tune_suite *suite = base_new(arena, tune_suite);
  *suite = (tune_suite){r.entries.count, r.entries.data};
  return suite;
}
