// model_expand: from a description to the graph of the whole depth. The pseudocode of docs/models.md, line
// by line: a loop over sites that keeps the bank of finished blocks and the running sum.
#include "model/model.h"

#include <math.h>

typedef struct model_source {
  ir_value value;
  uint32_t count; // of sublayers summed in it; the embedding counts 1
} model_source;

// The parameters of a site, those that it has.
typedef struct model_params {
  ir_value query, key_gain, output_gain, gate, null, weights;
} model_params;

typedef struct expander {
  const model_description *model;
  ir_graph *graph;
  base_arena *arena;
  uint32_t outputs;
  ir_axis t, d, h, c; // tokens, channels; heads and channels of one
  model_params *params;
  BASE_VECTOR(model_source) bank;
  BASE_VECTOR(ir_value) results; // besides the network's output
} expander;

// One site while it is written.
typedef struct site {
  uint32_t index, count; // of sources
  ir_axis n;
  const model_source *sources; // oldest first
  ir_value v;                  // all of them: [N, T, D]
  ir_value z, a, lse, keep;    // softmax only: lse and keep where they are needed
} site;

// What a sublayer is given: its input, and the scale of one in fp8.
typedef struct site_input {
  ir_value value, scale;
} site_input;

// ---- building -----------------------------------------------------------------------------------

static base_str name_of(const expander *x, const char *what, uint32_t site) {
  return base_str_format(x->arena, "%s_%u", what, site);
}

static ir_type type_of(ir_dtype dtype, uint32_t rank, const ir_axis *axes) {
  ir_type type = {.dtype = dtype, .rank = rank};
  for (uint32_t i = 0; i < rank; i++)
    type.axes[i] = axes[i];
  return type;
}

// f32[N, T] or f32[N, T, H] of a site, or without N.
static ir_type scalar_type(const expander *x, const ir_axis *n) {
  ir_type type = {.dtype = IR_F32};
  if (n != NULL) type.axes[type.rank++] = *n;
  type.axes[type.rank++] = x->t;
  if (x->model->heads > 1) type.axes[type.rank++] = x->h;
  return type;
}

static ir_type row_type(const expander *x, ir_dtype dtype) {
  return type_of(dtype, 2, (ir_axis[]){x->t, x->d});
}

// Adds a node; `over` and `to` may be NULL.
static ir_value build(const expander *x, ir_op op, base_str name, uint32_t count,
                      const ir_value *operands, const ir_axis *over, const ir_axis *to,
                      ir_type type) {
  ir_node node = {.op = op,
                  .type = type,
                  .operand_count = count,
                  .operands = operands,
                  .kernel = IR_NO_KERNEL,
                  .eps = x->model->eps,
                  .name = name};
  if (over != NULL) node.over[node.over_count++] = *over;
  if (to != NULL) node.to[node.to_count++] = *to;
  return ir_build_node(x->graph, &node);
}

static ir_value unary(const expander *x, ir_op op, base_str name, ir_value a, ir_type type) {
  return build(x, op, name, 1, &a, NULL, NULL, type);
}

static ir_value binary(const expander *x, ir_op op, base_str name, ir_value a, ir_value b,
                       ir_type type) {
  return build(x, op, name, 2, (ir_value[]){a, b}, NULL, NULL, type);
}

static ir_value reduce(const expander *x, ir_op op, base_str name, uint32_t count,
                       const ir_value *operands, ir_axis over, ir_type type) {
  return build(x, op, name, count, operands, &over, NULL, type);
}

// A row seen as heads and their channels, where there are several.
static ir_value split_heads(const expander *x, base_str name, ir_value value) {
  if (x->model->heads == 1) return value;
  const ir_type *whole = &ir_node_of(x->graph, value)->type;
  ir_node node = {.op = IR_SPLIT_AXIS,
                  .type = *whole,
                  .operand_count = 1,
                  .operands = &value,
                  .kernel = IR_NO_KERNEL,
                  .over_count = 1,
                  .over = {x->d},
                  .to_count = 2,
                  .to = {x->h, x->c},
                  .name = name};
  node.type.axes[node.type.rank - 1] = x->h; // D is the last axis everywhere here
  node.type.axes[node.type.rank++] = x->c;
  return ir_build_node(x->graph, &node);
}

static ir_value merge_heads(const expander *x, base_str name, ir_value value) {
  if (x->model->heads == 1) return value;
  const ir_node node = {.op = IR_MERGE_AXES,
                        .type = row_type(x, IR_F32),
                        .operand_count = 1,
                        .operands = &value,
                        .kernel = IR_NO_KERNEL,
                        .over_count = 2,
                        .over = {x->h, x->c},
                        .to_count = 1,
                        .to = {x->d},
                        .name = name};
  return ir_build_node(x->graph, &node);
}

// A number for each source: a scalar where there is one source.
static ir_value source_constant(const expander *x, base_str name, const site *s,
                                const double *values) {
  ir_node node = {.op = IR_CONSTANT,
                  .type.dtype = IR_F32,
                  .kernel = IR_NO_KERNEL,
                  .value_count = s->count,
                  .values = values,
                  .name = name};
  if (s->count > 1) node.type.axes[node.type.rank++] = s->n;
  return ir_build_node(x->graph, &node);
}

// ---- parameters ---------------------------------------------------------------------------------

static bool has_logits(const model_description *model) {
  return model->normaliser == MODEL_SOFTMAX || model->normaliser == MODEL_SIGMOID;
}

static ir_axis source_axis(const expander *x, uint32_t count) {
  return ir_build_axis(x->graph, base_str_format(x->arena, "N%u", count), count);
}

static ir_value add_param(const expander *x, const char *what, uint32_t site, ir_type type) {
  return ir_build_param(x->graph, name_of(x, what, site), type);
}

static void add_params(expander *x, uint32_t site) {
  const model_description *model = x->model;
  model_params *params = &x->params[site];
  const ir_type queries = type_of(model->query_dtype, 1, &x->d);
  if (has_logits(model)) params->query = add_param(x, "query", site, queries);
  if (has_logits(model) && model->key_norm != MODEL_KEY_NONE && model->key_gain.used)
    params->key_gain = add_param(x, "key_gain", site, type_of(model->key_gain.dtype, 1, &x->d));
  if (model->null_source == MODEL_NULL_LEARNED)
    params->null = add_param(x, "null", site, type_of(IR_F32, model->heads > 1, &x->h));
  if (model->normaliser == MODEL_STATIC) {
    const ir_axis n = source_axis(x, model_sources(model, site));
    params->weights = add_param(x, "weights", site, type_of(IR_F32, 1, &n));
  }
  if (model->gate != MODEL_GATE_NONE) params->gate = add_param(x, "gate", site, queries);
  if (model->output_norm && model->output_gain.used)
    params->output_gain =
        add_param(x, "output_gain", site, type_of(model->output_gain.dtype, 1, &x->d));
}

// ---- a site -------------------------------------------------------------------------------------

static ir_value add_bias(const expander *x, const site *s, ir_value z) {
  const model_description *model = x->model;
  double *values = base_new_array(x->arena, double, s->count);
  for (uint32_t i = 0; i < s->count; i++)
    values[i] = model->bias == MODEL_BIAS_RECENCY ? -model->recency * (s->count - 1 - i)
                                                  : log(s->sources[i].count);
  const ir_value bias = source_constant(x, name_of(x, "bias", s->index), s, values);
  return binary(x, IR_ADD, name_of(x, "zb", s->index), z, bias, scalar_type(x, &s->n));
}

// The logits of all sources.
static ir_value score(const expander *x, const site *s) {
  const model_description *model = x->model;
  const model_params *params = &x->params[s->index];
  const ir_axis key_axes[] = {s->n, x->t, x->d};
  ir_value key = s->v, query = params->query;
  const bool normed = model->key_norm != MODEL_KEY_NONE;
  if (normed)
    key = reduce(x, IR_RMS_NORM, name_of(x, "k", s->index), model->key_gain.used ? 2 : 1,
                 (ir_value[]){s->v, params->key_gain}, x->d, type_of(IR_F32, 3, key_axes));
  if (model->key_norm == MODEL_KEY_AND_QUERY)
    query = reduce(x, IR_RMS_NORM, name_of(x, "q", s->index), 1, &query, x->d,
                   type_of(IR_F32, 1, &x->d));
  key = split_heads(x, name_of(x, "kh", s->index), key);
  query = split_heads(x, name_of(x, "qh", s->index), query);
  const ir_axis over = model->heads > 1 ? x->c : x->d;
  ir_value z = reduce(x, IR_DOT, name_of(x, "z", s->index), 2, (ir_value[]){key, query}, over,
                      scalar_type(x, &s->n));
  if (model->scale != 1.0)
    z = binary(x, IR_MUL, name_of(x, "zs", s->index), z, ir_build_constant(x->graph, model->scale),
               scalar_type(x, &s->n));
  return model->bias != MODEL_BIAS_NONE ? add_bias(x, s, z) : z;
}

// The null source's logit: a parameter, or 0.
static ir_value null_logit(const expander *x, const site *s) {
  return x->model->null_source == MODEL_NULL_LEARNED ? x->params[s->index].null
                                                     : ir_build_constant(x->graph, 0.0);
}

// Weights of sources with logits. A null source takes its share of the softmax: the others keep
// exp(lse) / (exp(lse) + exp(null)) = sigmoid(lse - null) of theirs.
static void weigh(const expander *x, site *s) {
  const model_description *model = x->model;
  const ir_type one = scalar_type(x, NULL), each = scalar_type(x, &s->n);
  const bool soft = model->normaliser == MODEL_SOFTMAX;
  s->z = score(x, s);
  if (!soft) {
    s->a = unary(x, IR_SIGMOID, name_of(x, "a", s->index), s->z, each);
    return;
  }
  s->a = reduce(x, IR_SOFTMAX, name_of(x, "a", s->index), 1, &s->z, s->n, each);
  const bool null = model->null_source != MODEL_NULL_NONE;
  if (null || (x->outputs & MODEL_ENTROPY))
    s->lse = reduce(x, IR_LOGSUMEXP, name_of(x, "lse", s->index), 1, &s->z, s->n, one);
  if (!null) return;
  ir_value margin = s->lse;
  if (model->null_source == MODEL_NULL_LEARNED)
    margin = binary(x, IR_SUB, name_of(x, "margin", s->index), s->lse, null_logit(x, s), one);
  s->keep = unary(x, IR_SIGMOID, name_of(x, "keep", s->index), margin, one);
}

// Sum of weights times sources, [T, D] in f32.
static ir_value mix(const expander *x, const site *s) {
  const model_description *model = x->model;
  const ir_axis split[] = {x->t, x->h, x->c};
  const ir_type whole = row_type(x, IR_F32);
  const ir_type type = model->heads > 1 ? type_of(IR_F32, 3, split) : whole;
  const base_str name = name_of(x, "h", s->index);
  if (model->normaliser == MODEL_UNIFORM) return reduce(x, IR_MEAN, name, 1, &s->v, s->n, whole);
  if (model->normaliser == MODEL_STATIC)
    return reduce(x, IR_WEIGHTED_SUM, name, 2, (ir_value[]){x->params[s->index].weights, s->v},
                  s->n, whole);
  const ir_value v = split_heads(x, name_of(x, "vh", s->index), s->v);
  ir_value h = reduce(x, IR_WEIGHTED_SUM, name, 2, (ir_value[]){s->a, v}, s->n, type);
  if (model->null_source != MODEL_NULL_NONE)
    h = binary(x, IR_MUL, name_of(x, "hk", s->index), h, s->keep, type);
  return merge_heads(x, name_of(x, "hm", s->index), h);
}

static ir_value gate(const expander *x, const site *s, ir_value h) {
  const ir_value newest = s->sources[s->count - 1].value, weights = x->params[s->index].gate;
  ir_value open = weights;
  ir_type type = ir_node_of(x->graph, weights)->type;
  type.dtype = IR_F32;
  if (x->model->gate == MODEL_GATE_NEWEST) {
    const ir_value norm =
        reduce(x, IR_RMS_NORM, name_of(x, "gn", s->index), 1, &newest, x->d, row_type(x, IR_F32));
    type = type_of(IR_F32, 1, &x->t);
    open =
        reduce(x, IR_DOT, name_of(x, "gz", s->index), 2, (ir_value[]){norm, weights}, x->d, type);
  }
  open = unary(x, IR_SIGMOID, name_of(x, "open", s->index), open, type);
  return binary(x, IR_MUL, name_of(x, "hg", s->index), h, open, row_type(x, IR_F32));
}

// -sum a log a, where log a_i = z_i - lse: lse - sum a z. With a null source, of logit n, the weights are
// keep * a, and their log-sum-exp takes in n.
static void add_entropy(expander *x, const site *s) {
  const ir_type one = scalar_type(x, NULL);
  const base_str name = name_of(x, "entropy", s->index);
  const bool null = x->model->null_source != MODEL_NULL_NONE;
  const ir_value mean = reduce(x, IR_WEIGHTED_SUM, name_of(x, "az", s->index), 2,
                               (ir_value[]){s->a, s->z}, s->n, one);
  ir_value all = s->lse;
  if (null) {
    const ir_axis j = ir_build_axis(x->graph, BASE_STR("J"), IR_DYNAMIC);
    const ir_axis pair = ir_build_axis(x->graph, BASE_STR("P"), 2);
    ir_type both = {.dtype = IR_F32, .rank = one.rank + 1, .axes = {pair}};
    for (uint32_t i = 0; i < one.rank; i++)
      both.axes[i + 1] = one.axes[i];
    all = build(x, IR_CONCAT, (base_str){0}, 2, (ir_value[]){s->lse, null_logit(x, s)}, &j, &pair,
                both);
    all = reduce(x, IR_LOGSUMEXP, (base_str){0}, 1, &all, pair, one);
  }
  const ir_value entropy = binary(x, IR_SUB, null ? (base_str){0} : name, all, mean, one);
  base_push(x->arena, &x->results, null ? binary(x, IR_MUL, name, entropy, s->keep, one) : entropy);
}

static void add_weights(expander *x, const site *s) {
  const base_str name = name_of(x, "weights", s->index);
  const ir_type type = scalar_type(x, &s->n);
  const ir_value weights = x->model->null_source != MODEL_NULL_NONE
                               ? binary(x, IR_MUL, name, s->a, s->keep, type)
                               : unary(x, IR_CAST, name, s->a, type);
  base_push(x->arena, &x->results, weights);
}

static bool is_fp8(const expander *x, uint32_t site) {
  return (x->outputs & MODEL_FP8) != 0 && site < x->model->sublayers;
}

// The rounded input over the scale of its token, so that the largest channel becomes the largest number.
static site_input quantise(const expander *x, uint32_t index, ir_value rounded) {
  const double least = 1e-10, largest = 448; // of f8e4m3
  const ir_type row = row_type(x, x->model->dtype), token = type_of(IR_F32, 1, &x->t);
  const ir_value negative = unary(x, IR_NEG, (base_str){0}, rounded, row);
  const ir_value size = binary(x, IR_MAX, (base_str){0}, rounded, negative, row);
  ir_value most = reduce(x, IR_REDUCE_MAX, name_of(x, "amax", index), 1, &size, x->d, token);
  most = binary(x, IR_MAX, (base_str){0}, most, ir_build_constant(x->graph, least), token);
  site_input input;
  input.scale = binary(x, IR_DIV, name_of(x, "scale", index), most,
                       ir_build_constant(x->graph, largest), token);
  input.value =
      binary(x, IR_DIV, name_of(x, "x", index), rounded, input.scale, row_type(x, IR_F8E4M3));
  return input;
}

// All that follows the sources: the input of sublayer `index`.
static site_input write_site(expander *x, uint32_t index, uint32_t count,
                             const model_source *sources) {
  const model_description *model = x->model;
  const ir_type row = row_type(x, IR_F32);
  site s = {.index = index, .count = count, .n = source_axis(x, count), .sources = sources};
  ir_value *values = base_new_array(x->arena, ir_value, count);
  for (uint32_t i = 0; i < count; i++)
    values[i] = sources[i].value;
  const ir_axis b = ir_build_axis(x->graph, BASE_STR("B"), IR_DYNAMIC);
  s.v = build(x, IR_CONCAT, name_of(x, "v", index), count, values, &b, &s.n,
              type_of(model->dtype, 3, (ir_axis[]){s.n, x->t, x->d}));
  if (has_logits(model)) weigh(x, &s);
  ir_value h = mix(x, &s);
  if (model->delta_form) h = binary(x, IR_ADD, name_of(x, "hd", index), h, values[count - 1], row);
  if (model->gate != MODEL_GATE_NONE) h = gate(x, &s, h);
  if (model->mix_dtype != IR_F32)
    h = unary(x, IR_CAST, name_of(x, "hr", index), h, row_type(x, model->mix_dtype));
  if (x->outputs & MODEL_WEIGHTS) add_weights(x, &s);
  if (x->outputs & MODEL_ENTROPY) add_entropy(x, &s);
  if (x->outputs & MODEL_MIX)
    base_push(x->arena, &x->results,
              unary(x, IR_CAST, name_of(x, "mix", index), h, row_type(x, model->dtype)));
  const bool fp8 = is_fp8(x, index);
  const base_str name = name_of(x, fp8 ? "xr" : "x", index);
  const ir_type type = row_type(x, model->dtype);
  const ir_value input = model->output_norm
                             ? reduce(x, IR_RMS_NORM, name, model->output_gain.used ? 2 : 1,
                                      (ir_value[]){h, x->params[index].output_gain}, x->d, type)
                             : unary(x, IR_CAST, name, h, type);
  return fp8 ? quantise(x, index, input) : (site_input){.value = input};
}

// ---- the depth ----------------------------------------------------------------------------------

// What sublayer `index` makes of its input, added to the running sum if there is one.
static ir_value call_sublayer(const expander *x, uint32_t index, site_input input,
                              const ir_value *sum) {
  const ir_type type = row_type(x, x->model->dtype);
  const ir_value operands[] = {input.value, input.scale};
  ir_node node = {.op = IR_CALL,
                  .type = type,
                  .operand_count = is_fp8(x, index) ? 2 : 1,
                  .operands = operands,
                  .kernel = IR_NO_KERNEL,
                  .callee = name_of(x, "sublayer", index),
                  .name = name_of(x, "f", index)};
  const ir_value first = ir_build_node(x->graph, &node);
  const base_str name = name_of(x, "p", index + 1);
  if (model_addends(x->model, index) == 1)
    return sum == NULL ? first : binary(x, IR_ADD, name, *sum, first, type);
  node.callee = base_str_format(x->arena, "sublayer_%u.b", index);
  node.name = name_of(x, "g", index);
  const ir_value second = ir_build_node(x->graph, &node);
  if (sum == NULL) return binary(x, IR_ADD, name, first, second, type);
  const ir_value both =
      binary(x, IR_ADD, name_of(x, "fg", index), first, second, row_type(x, IR_F32));
  return binary(x, IR_ADD, name, *sum, both, type);
}

static void expand_depth(expander *x) {
  const model_description *model = x->model;
  const uint32_t sites = model_sites(model);
  model_source newest = {.value = {0}, .count = 1}; // the embedding
  site_input input = {{0}, {0}};
  uint32_t block = 0; // the next one
  bool summing = false;
  for (uint32_t s = 0; s < sites; s++) {
    if (s > 0) {
      newest.value = call_sublayer(x, s - 1, input, summing ? &newest.value : NULL);
      newest.count = summing ? newest.count + 1 : 1;
      summing = true;
    }
    base_push(x->arena, &x->bank, newest); // for this site
    const uint32_t count = model_sources(model, s);
    input = write_site(x, s, count, x->bank.data + (x->bank.count - count));
    const bool boundary = block < model->block_count && model->starts[block] == s;
    if (boundary) {
      block++;
      summing = false;
    } else {
      x->bank.count--; // it goes on summing
    }
  }
  ir_build_result(x->graph, input.value);
  for (uint32_t i = 0; i < x->results.count; i++)
    ir_build_result(x->graph, x->results.data[i]);
}

static bool check_outputs(const model_description *model, uint32_t outputs, base_diag *diag) {
  const base_loc nowhere = {0};
  if ((outputs & MODEL_WEIGHTS) && !has_logits(model)) {
    base_error(diag, nowhere,
               "the weights of this model are no result: they are the same for all tokens");
    return false;
  }
  if ((outputs & MODEL_ENTROPY) && model->normaliser != MODEL_SOFTMAX) {
    base_error(diag, nowhere, "entropy needs the softmax normaliser");
    return false;
  }
  return true;
}

// A graph has an axis for each number of sources.
static bool check_sources(const model_description *model, base_diag *diag) {
  enum { OTHER_AXES = 7, MOST = IR_MAX_AXES - OTHER_AXES }; // T, D, H, C, B, J, P
  const uint32_t count = model_sources(model, model->sublayers);
  if (count <= MOST) return true;
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "sites of up to %u sources, expected at most %d", count, MOST);
  base_hint(diag, "choose larger blocks, or a window");
  return false;
}

// A graph's name has no '-'.
static base_str graph_name(base_arena *arena, base_str name) {
  const base_str copy = base_str_copy(arena, name);
  for (size_t i = 0; i < copy.length; i++)
    if (copy.data[i] == '-') ((char *)copy.data)[i] = '_';
  return copy;
}

ir_graph *model_expand(base_arena *arena, const model_description *model, uint32_t outputs,
                       base_diag *diag) {
  if (!check_outputs(model, outputs, diag) || !check_sources(model, diag)) return NULL;
  expander x = {.model = model, .arena = arena, .outputs = outputs};
  x.graph = ir_graph_create(arena, graph_name(arena, model->name));
  x.t = ir_build_axis(x.graph, BASE_STR("T"), IR_DYNAMIC);
  x.d = ir_build_axis(x.graph, BASE_STR("D"), model->hidden);
  if (model->heads > 1) {
    x.h = ir_build_axis(x.graph, BASE_STR("H"), model->heads);
    x.c = ir_build_axis(x.graph, BASE_STR("C"), model->hidden / model->heads);
  }
  ir_build_param(x.graph, BASE_STR("embedding"), row_type(&x, model->dtype));
  x.params = base_new_array(arena, model_params, model_sites(model));
  for (uint32_t s = 0; s < model_sites(model); s++)
    add_params(&x, s);
  expand_depth(&x);
  return x.graph;
}
