// Values at points: views map points, map ops combine, mixes loop over their sources.
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda/text.h"

// ---- memo ---------------------------------------------------------------------------------------

static const ir_type *type_of(const text_printer *p, ir_value value) {
  return &ir_node_of(p->graph, value)->type;
}

static bool is_row_axis(const text_printer *p, ir_axis axis) {
  return p->kernel->axes[axis.index].row;
}

static uint32_t max_scope(uint32_t a, uint32_t b) {
  return a > b ? a : b;
}

static text_memo memo_key(const text_printer *p, ir_value value, const text_point *point) {
  const ir_type *type = type_of(p, value);
  text_memo key = {.value = value, .lanes = point->lanes & ir_type_axes(type)};
  for (uint32_t i = 0; i < type->rank; i++)
    if (!is_row_axis(p, type->axes[i])) key.index[i] = point->index[type->axes[i].index].text;
  return key;
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_key(const text_memo *a, const text_memo *b) {
  bool same = a->value.index == b->value.index && a->lanes == b->lanes;
  for (uint32_t i = 0; same && i < IR_MAX_RANK; i++)
    same = same_text(a->index[i], b->index[i]);
  return same;
}

// Known for as long as term and point mean something: a part of a concat may be a term of an outer
// scope, at an index that stands for another part later on.
void text_remember(text_printer *p, ir_value value, const text_point *point, text_term term) {
  const ir_type *type = type_of(p, value);
  text_memo entry = memo_key(p, value, point);
  entry.term = term;
  uint32_t scope = term.scope;
  for (uint32_t i = 0; i < type->rank; i++)
    scope = max_scope(scope, point->index[type->axes[i].index].scope);
  if (scope > text_top(p)) scope = text_top(p);
  base_push(p->arena, &p->scopes.data[scope]->memo, entry);
}

// What the element loop of the innermost scope knows is of no use elsewhere.
static const text_term *recall(const text_printer *p, const text_memo *key) {
  for (uint32_t i = p->scopes.count; i-- > 0;) {
    const text_scope *scope = p->scopes.data[i];
    for (uint32_t j = scope->memo.count; j-- > 0;) {
      const text_memo *memo = &scope->memo.data[j];
      if (same_key(memo, key) && !(memo->term.local && p->suspended)) return &memo->term;
    }
  }
  return NULL;
}

// ---- where code goes ----------------------------------------------------------------------------

// The innermost scope that the value's index needs.
static uint32_t scope_of(const text_printer *p, ir_value value, const text_point *point) {
  const ir_type *type = type_of(p, value);
  bool in_row = p->kernel->values[value.index].phase == KIR_BODY && p->phase == KIR_BODY;
  bool constant = ir_node_of(p->graph, value)->op == IR_CONSTANT;
  uint32_t scope = in_row && !constant ? p->row_scope : 0;
  for (uint32_t i = 0; i < type->rank; i++)
    scope = max_scope(scope, point->index[type->axes[i].index].scope);
  return scope;
}

// Sets inner scopes aside, so that `scope` is the innermost one, and takes them back.
typedef struct text_aside {
  text_scope **inner;
  uint32_t count;
  bool suspended;
} text_aside;

static text_aside set_aside(text_printer *p, uint32_t scope) {
  text_aside aside = {.count = p->scopes.count - scope - 1, .suspended = p->suspended};
  aside.inner = base_new_array(p->arena, text_scope *, aside.count ? aside.count : 1);
  for (uint32_t i = 0; i < aside.count; i++)
    aside.inner[i] = p->scopes.data[scope + 1 + i];
  p->scopes.count = scope + 1;
  p->suspended |= aside.count > 0;
  return aside;
}

static void take_back(text_printer *p, const text_aside *aside) {
  for (uint32_t i = 0; i < aside->count; i++)
    base_push(p->arena, &p->scopes, aside->inner[i]);
  p->suspended = aside->suspended;
}

static const char *value_name(text_printer *p, ir_value value) {
  const ir_node *node = ir_node_of(p->graph, value);
  return text_name(p, node->name);
}

static bool runs_along_lanes(const text_printer *p, ir_value value, const text_point *point) {
  return p->vector > 1 && (point->lanes & ir_type_axes(type_of(p, value))) != 0;
}

text_term text_value(text_printer *p, ir_value value, const text_point *point) {
  text_memo key = memo_key(p, value, point);
  const text_term *known = recall(p, &key);
  if (known) return *known;
  uint32_t scope = scope_of(p, value, point);
  if (scope > text_top(p)) scope = text_top(p);
  text_aside aside = set_aside(p, scope);
  kir_place place = p->kernel->values[value.index].place;
  text_term term = place == KIR_INLINE     ? text_definition(p, value, point)
                   : place == KIR_ARGUMENT ? text_load_argument(p, value, point)
                                           : text_load_place(p, value, point);
  take_back(p, &aside);
  text_remember(p, value, point, term);
  return term;
}

// An element of a term: what an expression in the element loop, or one of a single element, reads.
static const char *at(text_printer *p, text_term term) {
  return term.vector && !term.local ? text_format(p, "%s[e]", term.text) : term.text;
}

// A name for an expression, in the innermost scope. Of vectors a name in the element loop where
// that will do, else an array.
static text_term bind(text_printer *p, ir_value value, bool vector, const char *expression) {
  const char *name = value_name(p, value);
  uint32_t scope = text_top(p);
  if (!vector) {
    text_line(p, scope, "const float %s = %s;", name, expression);
    return (text_term){name, false, false, scope};
  }
  if (!p->suspended) {
    text_element(p, "const float %s = %s;", name, expression);
    return (text_term){name, true, true, scope};
  }
  text_line(p, scope, "float %s[%u];", name, p->vector);
  text_line(p, scope, "for (int e = 0; e < %u; e++) %s[e] = %s;", p->vector, name, expression);
  return (text_term){name, true, false, scope};
}

// ---- points through views -----------------------------------------------------------------------

static void forget_wholes(const kir_kernel *kernel, text_point *point, ir_axis factor) {
  for (uint32_t i = 0; i < kernel->graph->axes.count; i++)
    for (uint32_t j = 0; j < kernel->axes[i].factor_count; j++)
      if (kernel->axes[i].factors[j].index == factor.index)
        point->composed &= ~ir_axis_bit((ir_axis){i});
}

void text_set_axis(text_printer *p, text_point *point, ir_axis axis, text_index index, bool lane) {
  uint64_t bit = ir_axis_bit(axis);
  if (point->composed) forget_wholes(p->kernel, point, axis);
  point->index[axis.index] = index;
  point->lanes = lane ? point->lanes | bit : point->lanes & ~bit;
  point->composed &= ~bit;
}

// Index arithmetic keeps numbers as numbers.
static const char *times(text_printer *p, const char *index, int64_t size) {
  char *end;
  long long number = strtoll(index, &end, 10);
  if (!*end) return text_format(p, "%lld", number * (long long)size);
  return size == 1 ? index : text_format(p, "%s * %lld", index, (long long)size);
}

const char *text_sum(text_printer *p, const char *a, const char *b) {
  if (strcmp(a, "0") == 0) return b;
  if (strcmp(b, "0") == 0) return a;
  char *end_a, *end_b;
  long long x = strtoll(a, &end_a, 10), y = strtoll(b, &end_b, 10);
  if (!*end_a && !*end_b) return text_format(p, "%lld", x + y);
  if (!*end_b && y < 0) return text_format(p, "(%s - %lld)", a, -y);
  return text_format(p, "(%s + %s)", a, b);
}

static text_index combine(text_printer *p, const text_point *point, uint32_t count,
                          const ir_axis *factors) {
  text_index whole = {.text = "0"};
  int64_t size = 1;
  for (uint32_t i = 0; i < count; i++) {
    const text_index *part = &point->index[factors[i].index];
    int64_t part_size = p->kernel->axes[factors[i].index].size;
    whole.text = text_sum(p, times(p, whole.text, part_size), part->text);
    whole.scope = max_scope(whole.scope, part->scope);
    size *= part_size;
  }
  whole.high = size;
  return whole;
}

void text_compose(text_printer *p, text_point *point) {
  for (uint32_t i = 0; i < p->graph->axes.count; i++) {
    const kir_axis *whole = &p->kernel->axes[i];
    bool ready = whole->factor_count > 0 && !(point->composed & ir_axis_bit((ir_axis){i}));
    for (uint32_t j = 0; j < whole->factor_count; j++)
      ready &= point->index[whole->factors[j].index].text != NULL;
    if (!ready) continue;
    ir_axis last = whole->factors[whole->factor_count - 1];
    text_set_axis(p, point, (ir_axis){i}, combine(p, point, whole->factor_count, whole->factors),
                  (point->lanes & ir_axis_bit(last)) != 0);
    point->composed |= ir_axis_bit((ir_axis){i});
  }
}

static text_point shift_axis(text_printer *p, const text_point *point, ir_axis to, ir_axis over,
                             int64_t by) {
  text_point moved = *point;
  text_index index = point->index[to.index];
  index.text = text_sum(p, index.text, text_format(p, "%lld", (long long)by));
  index.low += by;
  index.high += by;
  index.offset = NULL; // another index than the tile's
  text_set_axis(p, &moved, over, index, (point->lanes & ir_axis_bit(to)) != 0);
  return moved;
}

static text_point split_point(text_printer *p, const ir_node *node, const text_point *point) {
  ir_axis whole = node->over[0];
  if (point->composed & ir_axis_bit(whole)) return *point;
  text_point moved = *point;
  ir_axis last = node->to[node->to_count - 1];
  text_set_axis(p, &moved, whole, combine(p, point, node->to_count, node->to),
                (point->lanes & ir_axis_bit(last)) != 0);
  return moved;
}

static text_point merge_point(text_printer *p, const ir_node *node, const text_point *point) {
  ir_axis whole = node->to[0];
  if (point->composed & ir_axis_bit(whole)) return *point;
  text_point moved = *point;
  text_index index = point->index[whole.index];
  int64_t below = 1;
  for (uint32_t i = node->over_count; i-- > 0;) {
    int64_t size = p->kernel->axes[node->over[i].index].size;
    const char *text =
        below == 1 ? index.text : text_format(p, "%s / %lld", index.text, (long long)below);
    if (i > 0) text = text_format(p, "%s %% %lld", text, (long long)(size > 0 ? size : 1));
    text_index part = {text_format(p, "(%s)", text), 0, size, index.scope, NULL};
    text_set_axis(p, &moved, node->over[i], part, false);
    below *= size > 0 ? size : 1;
  }
  return moved;
}

static text_term mapped(text_printer *p, const ir_node *node, const text_point *point) {
  text_point moved = node->op == IR_SLICE
                         ? shift_axis(p, point, node->to[0], node->over[0], node->start)
                     : node->op == IR_RENAME ? shift_axis(p, point, node->to[0], node->over[0], 0)
                     : node->op == IR_SPLIT_AXIS ? split_point(p, node, point)
                                                 : merge_point(p, node, point);
  return text_value(p, node->operands[0], &moved);
}

// ---- concat -------------------------------------------------------------------------------------

static int64_t part_size(const text_printer *p, const ir_node *node, uint32_t operand) {
  const ir_type *type = type_of(p, node->operands[operand]);
  return ir_type_has(type, node->over[0]) ? p->kernel->axes[node->over[0].index].size : 1;
}

// An index that may lie in any part: all are read, at an index clamped into the part, and one is
// chosen.
static text_term clamped_part(text_printer *p, const ir_node *node, uint32_t operand,
                              int64_t offset, const text_point *point) {
  text_index index = point->index[node->to[0].index];
  long long size = (long long)part_size(p, node, operand);
  const char *local = text_sum(p, index.text, text_format(p, "%lld", -(long long)offset));
  text_point moved = *point;
  text_set_axis(p, &moved, node->over[0],
                (text_index){text_format(p, "fm_clamp(%s, 0, %lld)", local, size - 1), 0, size,
                             index.scope, NULL},
                false);
  return text_value(p, node->operands[operand], &moved);
}

static text_term choose_part(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  const char *index = point->index[node->to[0].index].text, *chosen = NULL;
  bool vector = false;
  // Twice: what the first parts are may be names in an element loop that the later ones end.
  for (int again = 0; again < 2; again++) {
    int64_t offset = 0;
    chosen = NULL;
    for (uint32_t i = 0; i < node->operand_count; i++) {
      if (part_size(p, node, i) == 0) continue;
      text_term part = clamped_part(p, node, i, offset, point);
      vector |= part.vector;
      chosen = chosen ? text_format(p, "(%s < %lld ? %s : %s)", index, (long long)offset, chosen,
                                    at(p, part))
                      : at(p, part);
      offset += part_size(p, node, i);
    }
  }
  return bind(p, value, vector, chosen);
}

static text_term concat(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  const text_index *index = &point->index[node->to[0].index];
  int64_t offset = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    int64_t size = part_size(p, node, i);
    if (index->low >= offset && index->high <= offset + size) {
      text_point moved = shift_axis(p, point, node->to[0], node->over[0], -offset);
      moved.index[node->over[0].index].offset = index->offset;
      return text_value(p, node->operands[i], &moved);
    }
    offset += size;
  }
  return choose_part(p, value, point);
}

// To the value's type, unless whatever becomes of it rounds.
static const char *rounded(text_printer *p, ir_value value, const char *text) {
  bool later = p->rounded_by_store && p->rounded_by_store == value.index + 1;
  return text_round(p, later ? IR_F32 : type_of(p, value)->dtype, text);
}

// ---- constants and map ops ----------------------------------------------------------------------

static text_term constant(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  if (node->value_count == 1)
    return (text_term){text_float(p, ir_dtype_round(node->type.dtype, node->values[0])), false,
                       false, 0};
  if (!p->value_names[value.index]) {
    const char *name = p->value_names[value.index] = value_name(p, value);
    base_text list = {.arena = p->arena};
    for (uint32_t i = 0; i < node->value_count; i++)
      base_text_printf(&list, "%s%s", i ? ", " : "",
                       text_float(p, ir_dtype_round(node->type.dtype, node->values[i])));
    text_line(p, 0, "const float %s[] = {%s};", name, list.data);
  }
  const text_index *index = &point->index[node->type.axes[0].index];
  bool vector = runs_along_lanes(p, value, point);
  const char *at_index =
      text_format(p, vector ? "%s[%s + e]" : "%s[%s]", p->value_names[value.index], index->text);
  return bind(p, value, vector, at_index);
}

static text_term map(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  text_term a = text_value(p, node->operands[0], point), b = {0};
  if (node->operand_count == 2) b = text_value(p, node->operands[1], point);
  // The first operand may have been a name in an element loop that the second one ended.
  if (a.local) a = text_value(p, node->operands[0], point);
  const char *result = text_map(p, node->op, at(p, a), node->operand_count == 2 ? at(p, b) : NULL);
  return bind(p, value, a.vector || b.vector, rounded(p, value, result));
}

// ---- reductions ---------------------------------------------------------------------------------

const char *text_neutral(ir_op op) {
  return op == IR_REDUCE_MAX ? "fm_from_bits(0xff800000)" : "0.0f";
}

const char *text_finish(text_printer *p, ir_value value, const char *total) {
  const ir_node *node = ir_node_of(p->graph, value);
  if (node->op == IR_MEAN) {
    double count = 1;
    for (uint32_t i = 0; i < node->over_count; i++)
      count *= (double)p->kernel->axes[node->over[i].index].size;
    total = text_format(p, "%s * %s", total, text_float(p, 1.0 / count));
  }
  return rounded(p, value, total);
}

// A sum of products computed in place is as good as a dot: multiply and add fuse.
static const ir_node *factors_of(const text_printer *p, const ir_node *node) {
  if (node->operand_count == 2) return node;
  const ir_node *product = ir_node_of(p->graph, node->operands[0]);
  bool in_place = p->kernel->values[node->operands[0].index].place == KIR_INLINE;
  bool fuses = node->op != IR_REDUCE_MAX && product->op == IR_MUL && product->type.dtype == IR_F32;
  return in_place && fuses ? product : node;
}

// A reduction on its way through its axes. `each`: it takes in every element of the access, even
// where they are all the same.
typedef struct reduction {
  const ir_node *node;
  const char *total;
  bool each, cut;
} reduction;

// One step: the operands at a point that sets all axes.
static void accumulate(text_printer *p, const reduction *r, const text_point *point) {
  const ir_node *reduction = r->node;
  const char *total = r->total;
  const ir_node *node = factors_of(p, reduction);
  text_term a = text_value(p, node->operands[0], point), b = {0};
  if (node->operand_count == 2) b = text_value(p, node->operands[1], point);
  if (a.local) a = text_value(p, node->operands[0], point);
  const char *sum =
      node->operand_count == 2 ? text_format(p, "fm_fma(%s, %s, %s)", at(p, a), at(p, b), total)
      : reduction->op == IR_REDUCE_MAX ? text_format(p, "fm_max(%s, %s)", total, at(p, a))
                                       : text_format(p, "%s + %s", total, at(p, a));
  if (r->each)
    text_element(p, "%s = %s;", total, sum);
  else
    text_after(p, "%s = %s;", total, sum);
}

enum { MAX_UNROLL = 32 };

static bool must_unroll(const text_printer *p, ir_axis axis, int64_t count) {
  return count <= MAX_UNROLL || text_indexes_registers(p, axis);
}

static bool meets_concat(const text_printer *p, ir_value value, bool top, bool *seen) {
  const ir_node *node = ir_node_of(p->graph, value);
  if (seen[value.index] || (!top && p->kernel->values[value.index].place != KIR_INLINE))
    return false;
  seen[value.index] = true;
  bool meets = node->op == IR_CONCAT;
  for (uint32_t i = 0; i < node->operand_count && !meets; i++)
    meets = meets_concat(p, node->operands[i], false, seen);
  return meets;
}

bool text_meets_concat(const text_printer *p, ir_value value) {
  bool *seen = base_new_array(p->arena, bool, p->graph->nodes.count);
  return meets_concat(p, value, true, seen);
}

static bool operands_meet_concat(const text_printer *p, const ir_node *node) {
  bool *seen = base_new_array(p->arena, bool, p->graph->nodes.count), meets = false;
  for (uint32_t i = 0; i < node->operand_count; i++)
    meets |= meets_concat(p, node->operands[i], false, seen);
  return meets;
}

static void reduce_axis(text_printer *p, const reduction *r, const ir_axis *axes, uint32_t count,
                        const text_point *point) {
  if (count == 0) {
    accumulate(p, r, point);
    return;
  }
  if (text_is_tiled(p, axes[0])) {
    text_point inner = *point;
    uint32_t scopes = text_open_tile(p, axes[0], p->base, p->count, &inner);
    reduce_axis(p, r, axes + 1, count - 1, &inner);
    text_end_elements(p);
    text_close_all(p, scopes);
    return;
  }
  const kir_axis *axis = &p->kernel->axes[axes[0].index];
  int64_t low = 0;
  for (uint32_t i = 0; i <= axis->breaks.count; i++) {
    int64_t high = r->cut && i < axis->breaks.count ? axis->breaks.data[i] : axis->size;
    if (high > low) {
      uint32_t opened;
      text_index index =
          text_loop(p, axes[0], low, high, 1, must_unroll(p, axes[0], high - low), &opened);
      text_point inner = *point;
      text_set_axis(p, &inner, axes[0], index, false);
      text_compose(p, &inner);
      reduce_axis(p, r, axes + 1, count - 1, &inner);
      text_close_all(p, opened);
      if (!opened) text_end_elements(p);
    }
    low = high;
  }
}

// The refined axes the reduction runs over and the point does not set.
static uint32_t open_axes(const text_printer *p, const ir_node *node, const text_point *point,
                          ir_axis *axes) {
  ir_type over = {.rank = node->over_count};
  memcpy(over.axes, node->over, node->over_count * sizeof(ir_axis));
  ir_axis all[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(p->kernel, &over, all, 0), open = 0;
  for (uint32_t i = 0; i < count; i++)
    if (!point || !point->index[all[i].index].text) axes[open++] = all[i];
  return open;
}

void text_reduce(text_printer *p, ir_value value, const text_point *point, const char *accumulator,
                 bool each) {
  const ir_node *node = ir_node_of(p->graph, value);
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = open_axes(p, node, point, axes);
  reduction r = {node, accumulator, each && p->vector > 1, operands_meet_concat(p, node)};
  reduce_axis(p, &r, axes, count, point);
}

// Of a sum that runs from tile to tile: what it has come to, for the maximum as it is now.
static const char *so_far(text_printer *p, ir_value value, const text_point *point) {
  const kir_value *info = &p->kernel->values[value.index];
  const char *before = at(p, text_load_place(p, value, point));
  if (info->running < 0) return before;
  const kir_running *running = &p->kernel->chain.maxima.data[info->running];
  return text_format(p, "%s * %s", before, text_load_factor(p, running, point).text);
}

static text_term mix(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = open_axes(p, node, NULL, axes);
  text_point clean = *point;
  for (uint32_t i = 0; i < count; i++) // the axis may be in use outside under the same name
    text_set_axis(p, &clean, axes[i], (text_index){0}, false);
  bool vector = runs_along_lanes(p, value, point);
  const char *sum = text_name(p, base_str_format(p->arena, "%.*s_sum", BASE_FMT(node->name)));
  uint32_t scope = text_top(p);
  text_end_elements(p);
  const char *first = text_neutral(node->op);
  for (uint32_t i = 0; i < count; i++)
    if (text_is_tiled(p, axes[i])) first = so_far(p, value, point);
  if (vector) {
    text_line(p, scope, "float %s[%u];", sum, p->vector);
    text_line(p, scope, "for (int e = 0; e < %u; e++) %s[e] = %s;", p->vector, sum, first);
  } else {
    text_line(p, scope, "float %s = %s;", sum, first);
  }
  const char *total = vector ? text_format(p, "%s[e]", sum) : sum;
  reduction r = {node, total, vector, operands_meet_concat(p, node)};
  reduce_axis(p, &r, axes, count, &clean);
  text_end_elements(p);
  const char *finished = text_finish(p, value, total);
  if (strcmp(finished, total) == 0) return (text_term){sum, vector, false, scope};
  return bind(p, value, vector, finished);
}

// A view whose type differs from what it views rounds.
static bool narrows(const text_printer *p, const ir_node *node) {
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (type_of(p, node->operands[i])->dtype != node->type.dtype) return true;
  return false;
}

text_term text_definition(text_printer *p, ir_value value, const text_point *point) {
  const ir_node *node = ir_node_of(p->graph, value);
  text_term term;
  switch (ir_op_get(node->op)->shape) {
  case IR_SHAPE_MAP:
    return map(p, value, point);
  case IR_SHAPE_REDUCE:
    return mix(p, value, point);
  case IR_SHAPE_GIVEN:
    return constant(p, value, point);
  case IR_SHAPE_CONCAT:
    term = concat(p, value, point);
    break;
  default:
    term = mapped(p, node, point);
    break;
  }
  if (!narrows(p, node)) return term;
  return bind(p, value, term.vector, rounded(p, value, at(p, term)));
}
