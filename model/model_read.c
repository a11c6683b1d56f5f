// model_read: descriptions of models from YAML. Each key is a row of a table; what is wrong is reported
// with its place, and reading goes on with the next key, so that one run shows all.
#include "model/model.h"

#include <math.h>
#include <string.h>

#include "base/yaml.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct model_reader {
  base_arena *arena;
  base_diag *diag;
  model_description *model;
  const base_yaml *blocks, *scale; // read last: they depend on others
} model_reader;

// ---- values -------------------------------------------------------------------------------------

// The index of the node's word among `words`; -1, with an error that lists them, when it is none.
static int read_word(const model_reader *r, const base_yaml *node, const char *what,
                     const char *const *words, uint32_t count) {
  const char *text;
  if (!base_yaml_string(node, &text, r->diag)) return -1;
  base_text list = {.arena = r->arena};
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(text, words[i]) == 0) return (int)i;
    base_text_printf(&list, "%s%s", i > 0 ? ", " : "", words[i]);
  }
  base_error(r->diag, node->loc, "unknown %s '%s': expected one of %s", what, text, list.data);
  const char *near = base_nearest(node->text, words, count);
  if (near != NULL) base_hint(r->diag, "did you mean '%s'?", near);
  return -1;
}

static void read_dtype(const model_reader *r, const base_yaml *node, ir_dtype *dtype) {
  static const char *const names[] = {"f32", "bf16", "f16"};
  static const ir_dtype dtypes[] = {IR_F32, IR_BF16, IR_F16};
  const int found = read_word(r, node, "dtype", names, COUNT(names));
  if (found >= 0) *dtype = dtypes[found];
}

static void read_count(const model_reader *r, const base_yaml *node, int64_t low, int64_t high,
                       uint32_t *count) {
  int64_t value;
  if (base_yaml_integer(node, low, high, &value, r->diag)) *count = (uint32_t)value;
}

// A mapping with exactly one of the keys; the index of that, -1: see diag.
static int read_choice(const model_reader *r, const base_yaml *node, const char *const *keys,
                       uint32_t count, const base_yaml **value) {
  if (!base_yaml_is_mapping(node, keys, count, r->diag)) return -1;
  if (node->count != 1) {
    base_error(r->diag, node->loc, "expected one of its keys, found %u", node->count);
    base_hint(r->diag, "keep the one that is meant");
    return -1;
  }
  *value = node->items[0].value;
  for (uint32_t i = 0; i < count; i++)
    if (base_str_equal(node->items[0].key, base_str_from(keys[i]))) return (int)i;
  return -1;
}

// ---- keys ---------------------------------------------------------------------------------------

static void take_schema(model_reader *r, const base_yaml *node) {
  int64_t schema;
  if (!base_yaml_integer(node, 0, INT32_MAX, &schema, r->diag) || schema == MODEL_SCHEMA) return;
  base_error_status(r->diag, BASE_UNSUPPORTED, node->loc, "a model of schema %lld, expected %d",
                    (long long)schema, MODEL_SCHEMA);
  base_hint(r->diag, "use the version of Fathom that it was written for, or bring it up to date");
}

static bool is_name(base_str text) {
  for (size_t i = 0; i < text.length; i++) {
    const char c = text.data[i];
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '.' || c == '-';
    if (!good) return false;
  }
  return text.length > 0;
}

static void take_name(model_reader *r, const base_yaml *node) {
  const char *name;
  if (!base_yaml_string(node, &name, r->diag)) return;
  r->model->name = base_str_from(name);
  if (!is_name(r->model->name))
    base_error(r->diag, node->loc, "expected a name of letters, digits, '_', '.' and '-'");
}

static void take_hidden(model_reader *r, const base_yaml *node) {
  base_yaml_integer(node, 1, INT32_MAX, &r->model->hidden, r->diag);
}

static void take_sublayers(model_reader *r, const base_yaml *node) {
  read_count(r, node, 1, MODEL_MAX_SUBLAYERS, &r->model->sublayers);
}

static void take_blocks(model_reader *r, const base_yaml *node) {
  r->blocks = node;
}

static void take_dtype(model_reader *r, const base_yaml *node) {
  read_dtype(r, node, &r->model->dtype);
}

static void take_query_dtype(model_reader *r, const base_yaml *node) {
  read_dtype(r, node, &r->model->query_dtype);
}

static void take_mix_dtype(model_reader *r, const base_yaml *node) {
  read_dtype(r, node, &r->model->mix_dtype);
}

static void take_gain(const model_reader *r, const base_yaml *node, model_gain *gain) {
  if (node == NULL) return;
  gain->used = !base_str_equal(node->text, BASE_STR("none"));
  if (gain->used) read_dtype(r, node, &gain->dtype);
}

static void take_gains(model_reader *r, const base_yaml *node) {
  static const char *const keys[] = {"key", "output"};
  if (!base_yaml_is_mapping(node, keys, COUNT(keys), r->diag)) return;
  take_gain(r, base_yaml_find(node, "key"), &r->model->key_gain);
  take_gain(r, base_yaml_find(node, "output"), &r->model->output_gain);
}

static void take_eps(model_reader *r, const base_yaml *node) {
  if (base_yaml_number(node, &r->model->eps, r->diag) && r->model->eps < 0)
    base_error(r->diag, node->loc, "expected eps >= 0, found %g", r->model->eps);
}

static void take_key_norm(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"rms", "none", "query_and_key"};
  const int found = read_word(r, node, "key norm", words, COUNT(words));
  if (found >= 0) r->model->key_norm = (model_key_norm)found;
}

static void take_scale(model_reader *r, const base_yaml *node) {
  r->scale = node;
}

static void take_normaliser(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"softmax", "sigmoid", "uniform", "static"};
  const int found = read_word(r, node, "normaliser", words, COUNT(words));
  if (found >= 0) r->model->normaliser = (model_normaliser)found;
}

static void take_bias(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"none", "count"}, *const keys[] = {"recency"};
  const base_yaml *value;
  if (node->kind == BASE_YAML_MAPPING) {
    if (read_choice(r, node, keys, COUNT(keys), &value) < 0) return;
    base_yaml_number(value, &r->model->recency, r->diag);
    r->model->bias = MODEL_BIAS_RECENCY;
    return;
  }
  const int found = read_word(r, node, "bias", words, COUNT(words));
  r->model->bias = found == 1 ? MODEL_BIAS_COUNT : MODEL_BIAS_NONE;
  if (found < 0) base_hint(r->diag, "a bias that falls with age is written {recency: 0.25}");
}

static void take_null_source(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"none", "zero", "learned"};
  const int found = read_word(r, node, "null source", words, COUNT(words));
  if (found >= 0) r->model->null_source = (model_null)found;
}

static void take_delta_form(model_reader *r, const base_yaml *node) {
  base_yaml_bool(node, &r->model->delta_form, r->diag);
}

static void take_gate(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"none", "newest", "channel"};
  const int found = read_word(r, node, "gate", words, COUNT(words));
  if (found >= 0) r->model->gate = (model_gate)found;
}

static void take_heads(model_reader *r, const base_yaml *node) {
  base_yaml_integer(node, 1, INT32_MAX, &r->model->heads, r->diag);
}

static void take_window(model_reader *r, const base_yaml *node) {
  read_count(r, node, 0, INT32_MAX, &r->model->window);
}

static void take_output_norm(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"rms", "none"};
  const int found = read_word(r, node, "output norm", words, COUNT(words));
  if (found >= 0) r->model->output_norm = found == 0;
}

static void take_addends(model_reader *r, const base_yaml *node) {
  const bool list = node->kind == BASE_YAML_LIST;
  const uint32_t count = list ? node->count : 1;
  uint32_t *addends = base_new_array(r->arena, uint32_t, count + 1);
  if (count == 0) {
    base_error(r->diag, node->loc, "an empty list");
    base_hint(r->diag, "write 1 or 2, or a list of them that sublayers go round, such as [1, 2]");
    return;
  }
  for (uint32_t i = 0; i < count; i++)
    read_count(r, list ? node->items[i].value : node, 1, MODEL_MAX_ADDENDS, &addends[i]);
  r->model->addends = addends;
  r->model->addend_count = count;
}

static void take_two_phase(model_reader *r, const base_yaml *node) {
  static const char *const words[] = {"auto", "off", "on"};
  const int found = read_word(r, node, "two_phase", words, COUNT(words));
  if (found >= 0) r->model->phases = (model_phases)found;
}

static const struct {
  const char *name;
  void (*take)(model_reader *r, const base_yaml *node);
  bool needed;
} keys[] = {
    {"schema", take_schema, true},
    {"name", take_name, false},
    {"hidden", take_hidden, true},
    {"sublayers", take_sublayers, true},
    {"blocks", take_blocks, false},
    {"dtype", take_dtype, false},
    {"query_dtype", take_query_dtype, false},
    {"gains", take_gains, false},
    {"eps", take_eps, false},
    {"key_norm", take_key_norm, false},
    {"scale", take_scale, false},
    {"normaliser", take_normaliser, false},
    {"bias", take_bias, false},
    {"null_source", take_null_source, false},
    {"delta_form", take_delta_form, false},
    {"gate", take_gate, false},
    {"heads", take_heads, false},
    {"window", take_window, false},
    {"output_norm", take_output_norm, false},
    {"mix_dtype", take_mix_dtype, false},
    {"addends", take_addends, false},
    {"two_phase", take_two_phase, false},
};

// ---- blocks -------------------------------------------------------------------------------------

static void block_every(model_reader *r, uint32_t size) {
  model_description *model = r->model;
  uint32_t *starts = base_new_array(r->arena, uint32_t, model->sublayers + 1);
  model->block_count = 0;
  for (uint32_t start = 0; start < model->sublayers; start += size)
    starts[model->block_count++] = start;
  model->starts = starts;
}

static void block_at(model_reader *r, const base_yaml *list) {
  uint32_t *starts = base_new_array(r->arena, uint32_t, list->count + 1);
  if (!base_yaml_is_list(list, r->diag)) return;
  for (uint32_t i = 0; i < list->count; i++) {
    const base_yaml *node = list->items[i].value;
    int64_t start, low = i == 0 ? 0 : (int64_t)starts[i - 1] + 1;
    if (!base_yaml_integer(node, 0, (int64_t)r->model->sublayers - 1, &start, r->diag)) return;
    if (start < low || (i == 0 && start > 0)) {
      base_error(r->diag, node->loc, "expected %s%lld, found %lld",
                 i == 0 ? "the first block to begin at sublayer " : "a sublayer from ",
                 (long long)low, (long long)start);
      base_hint(r->diag, "list the sublayers that begin a block, ascending from 0");
      return;
    }
    starts[i] = (uint32_t)start;
  }
  if (list->count == 0) {
    base_error(r->diag, list->loc, "an empty list");
    base_hint(r->diag, "list the sublayers that begin a block, ascending from 0");
    return;
  }
  r->model->starts = starts;
  r->model->block_count = list->count;
}

// Needs the number of sublayers.
static void read_blocks(model_reader *r) {
  static const char *const names[] = {"size", "count", "starts"}, *const words[] = {"full"};
  const base_yaml *node = r->blocks, *value;
  const uint32_t sublayers = r->model->sublayers;
  if (node == NULL) {
    block_every(r, 1);
    return;
  }
  if (node->kind == BASE_YAML_SCALAR) {
    if (read_word(r, node, "kind of blocks", words, COUNT(words)) == 0)
      block_every(r, 1);
    else
      base_hint(r->diag, "write {size: 24}, {count: 8}, {starts: [0, 24]} or full");
    return;
  }
  const int choice = read_choice(r, node, names, COUNT(names), &value);
  uint32_t number = 0;
  if (choice == 2) block_at(r, value);
  if (choice == 0) read_count(r, value, 1, MODEL_MAX_SUBLAYERS, &number);
  if (choice == 1) read_count(r, value, 1, sublayers, &number);
  if (number > 0) block_every(r, choice == 0 ? number : (sublayers - 1) / number + 1);
}

// ---- the whole ----------------------------------------------------------------------------------

static void read_scale(model_reader *r) {
  model_description *model = r->model;
  if (r->scale == NULL) return;
  if (base_str_equal(r->scale->text, BASE_STR("rsqrt_hidden")))
    model->scale = 1.0 / sqrt((double)model->hidden / (double)model->heads);
  else if (!base_yaml_number(r->scale, &model->scale, r->diag))
    base_hint(r->diag, "write a number, or rsqrt_hidden for 1 / sqrt(hidden / heads)");
}

static base_loc place_of(const base_yaml *root, const char *key) {
  const base_yaml *node = base_yaml_find(root, key);
  return node != NULL ? node->loc : root->loc;
}

// What no key can know alone.
static void check_whole(const model_reader *r, const base_yaml *root) {
  static const char *const of_logits[] = {"key_norm", "scale", "bias", "heads", "null_source"};
  const model_description *model = r->model;
  base_diag *diag = r->diag;
  const bool weighs = model->normaliser == MODEL_SOFTMAX || model->normaliser == MODEL_SIGMOID;
  for (size_t i = 0; i < COUNT(of_logits) && !weighs; i++) {
    if (base_yaml_find(root, of_logits[i]) == NULL) continue;
    base_error(diag, place_of(root, of_logits[i]), "'%s' says nothing to this normaliser",
               of_logits[i]);
    base_hint(diag, "remove it: uniform and static weights have no logits");
  }
  if (model->null_source != MODEL_NULL_NONE && model->normaliser == MODEL_SIGMOID) {
    base_error(diag, place_of(root, "null_source"), "a null source needs the softmax normaliser");
    base_hint(diag, "remove it: sigmoid weights can all be small");
  }
  if (model->hidden % model->heads != 0)
    base_error(diag, place_of(root, "heads"), "%lld heads do not divide hidden, which is %lld",
               (long long)model->heads, (long long)model->hidden);
}

const model_description *model_read(base_arena *arena, base_str text, base_str name,
                                    base_diag *diag) {
  static const uint32_t one[] = {1};
  const uint32_t errors = diag->error_count;
  const base_yaml *root = base_yaml_read(arena, text, 1, diag);
  const char *names[COUNT(keys)];
  for (size_t i = 0; i < COUNT(keys); i++)
    names[i] = keys[i].name;
  if (root == NULL) return NULL;
  // A name that nobody knows hides no other error.
  if (!base_yaml_is_mapping(root, names, COUNT(keys), diag) && root->kind != BASE_YAML_MAPPING)
    return NULL;
  model_description *model = base_new(arena, model_description);
  *model = (model_description){.name = base_str_copy(arena, name),
                               .heads = 1,
                               .dtype = IR_BF16,
                               .query_dtype = IR_F32,
                               .mix_dtype = IR_F32,
                               .key_gain = {true, IR_F32},
                               .output_gain = {true, IR_F32},
                               .eps = IR_DEFAULT_EPS,
                               .scale = 1.0,
                               .output_norm = true,
                               .addend_count = 1,
                               .addends = one};
  model_reader r = {.arena = arena, .diag = diag, .model = model};
  for (size_t i = 0; i < COUNT(keys); i++) {
    const base_yaml *node = base_yaml_find(root, keys[i].name);
    if (node != NULL) {
      keys[i].take(&r, node);
    } else if (keys[i].needed) {
      base_error(diag, root->loc, "expected '%s', found none", keys[i].name);
      base_hint(diag, "a model needs at least schema: %d, hidden and sublayers", MODEL_SCHEMA);
    }
  }
  if (diag->error_count == errors) {
    read_blocks(&r);
    read_scale(&r);
    check_whole(&r, root);
  }
  if (diag->error_count == errors && !is_name(model->name))
    base_error(diag, root->loc, "expected a 'name', as that of the file is no name for a graph");
  return diag->error_count == errors ? model : NULL;
}

uint32_t model_sites(const model_description *model) {
  return model->sublayers + 1;
}

uint32_t model_addends(const model_description *model, uint32_t sublayer) {
  return model->addends[sublayer % model->addend_count];
}

uint32_t model_sources(const model_description *model, uint32_t site) {
  uint32_t finished = 0;
  while (finished < model->block_count && model->starts[finished] < site)
    finished++;
  const uint32_t count = finished + 1;
  return model->window > 0 && model->window < count ? model->window : count;
}
