// suite: the kernels of a model, as the host sees them.
#include <string.h>

#include "api/tuned.h"
#include "autotune/suite.h"

typedef struct suite_item {
  fathom_suite_entry entry;
  fathom_module module; // of the one graph; without an arena of its own
  fathom_graph graph;
} suite_item;

struct fathom_suite {
  base_arena arena;
  uint32_t count;
  suite_item *items;
};

// ---- opening ------------------------------------------------------------------------------------

static const char *folder_of(base_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  if (slash == NULL) return ".";
  return base_str_format(arena, "%.*s", (int)(slash - path + (slash == path)), path).data;
}

static const char *describe_axes(base_arena *arena, const tune_suite_entry *entry) {
  const char *axes = api_axes_text(arena, entry->graph);
  if (entry->dtypes[0] == 0) return axes;
  return base_str_format(arena, "%s%s%s", axes, axes[0] ? ", " : "", entry->dtypes).data;
}

static void make_item(fathom_suite *suite, fathom_context *context, const tune_suite_entry *from,
                      suite_item *item) {
  base_arena *arena = &suite->arena;
  int64_t *rows = base_new_array(arena, int64_t, from->row_count);
  memcpy(rows, from->rows, from->row_count * sizeof *rows);
  item->module = (fathom_module){.context = context,
                                 .file = base_str_copy(arena, from->file),
                                 .source = base_str_copy(arena, from->text),
                                 .count = 1,
                                 .graphs = &item->graph};
  item->graph = (fathom_graph){.module = &item->module, .ir = api_graph_copy(arena, from->graph)};
  item->entry = (fathom_suite_entry){
      .size = sizeof item->entry,
      .name = base_str_copy(arena, base_str_from(from->name)).data,
      .graph = &item->graph,
      .axes = base_str_copy(arena, base_str_from(describe_axes(arena, from))).data,
      .row_count = from->row_count,
      .rows = rows,
  };
}

typedef struct suite_frame {
  const char *name;
  fathom_suite *suite;
} suite_frame;

static fathom_status open_body(api_call *call, void *opaque) {
  suite_frame *frame = opaque;
  base_str text, why;
  const char *path = api_shared_find(call, "suite", frame->name);
  if (path == NULL) return FATHOM_INVALID;
  if (base_file_read(&call->arena, path, &text, &why) != BASE_OK) {
    base_error_status(&call->diag, BASE_IO, (base_loc){0}, "%.*s", BASE_FMT(why));
    return FATHOM_IO;
  }
  base_diag_init(&call->diag, &call->arena, base_str_from(path), text);
  const tune_suite *read =
      tune_suite_read(&call->arena, text, folder_of(&call->arena, path), &call->diag);
  if (read == NULL) return FATHOM_INVALID;
  fathom_suite *suite = frame->suite = api_object_create(call, sizeof *suite);
  suite->count = read->count;
  suite->items = base_new_array(&suite->arena, suite_item, read->count);
  for (uint32_t i = 0; i < read->count; i++)
    make_item(suite, call->context, &read->entries[i], &suite->items[i]);
  return FATHOM_OK;
}

fathom_status fathom_suite_open(fathom_context *context, const char *suite, fathom_suite **out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(suite);
  API_REQUIRE(out);
  *out = NULL;
  suite_frame frame = {.name = suite};
  fathom_status status = api_call_run(context, open_body, &frame);
  if (status != FATHOM_OK) {
    api_object_destroy(frame.suite);
    return status;
  }
  api_object_keep(frame.suite);
  *out = frame.suite;
  return FATHOM_OK;
}

void fathom_suite_destroy(fathom_suite *suite) {
  api_object_destroy(suite);
}

// ---- entries ------------------------------------------------------------------------------------

uint32_t fathom_suite_count(const fathom_suite *suite) {
  return suite->count;
}

fathom_status fathom_suite_get(const fathom_suite *suite, uint32_t index,
                               fathom_suite_entry *entry) {
  api_error_clear();
  API_REQUIRE(suite);
  API_REQUIRE(entry);
  if (index >= suite->count)
    return api_fail(FATHOM_INVALID, "no entry %u: the suite has %u", index, suite->count);
  return API_STRUCT_OUT(entry, suite->items[index].entry, fathom_suite_entry);
}
