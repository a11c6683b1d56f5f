// verify: is a graph well formed, well typed and ready for a stage of the pipeline?
//
// Three rounds, each of which may rely on the one before: *form* (indices, counts and clauses as
// the op table allows: a graph from the C builder may hold anything), *sizes* (axes.c) and *types*
// (which axes a result has). Only a broken form stops the rest. Rules are read from the op table
// and from one row a shape rule; no op has code of its own here. Every message names the value, for
// built nodes have no place.
#include "ir/ir.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

typedef struct verifier {
  ir_graph *graph;
  base_diag *diag;
} verifier;

// ---- sets of axes -------------------------------------------------------------------------------

// A graph of a whole depth has more axes than the masks of ir.h hold.
typedef struct axis_set {
  uint64_t words[IR_MAX_AXES / 64];
} axis_set;
static_assert(IR_MAX_AXES % 64 == 0, "whole words");

// Axes past the limit are reported with the form; they are in no set.
static bool set_has(const axis_set *set, ir_axis axis) {
  return axis.index < IR_MAX_AXES && (set->words[axis.index / 64] >> axis.index % 64 & 1) != 0;
}

static void set_add(axis_set *set, uint32_t count, const ir_axis *axes) {
  for (uint32_t i = 0; i < count; i++)
    if (axes[i].index < IR_MAX_AXES)
      set->words[axes[i].index / 64] |= UINT64_C(1) << axes[i].index % 64;
}

static axis_set set_of(uint32_t count, const ir_axis *axes) {
  axis_set set = {{0}};
  set_add(&set, count, axes);
  return set;
}

static axis_set set_of_type(const ir_type *type) {
  return set_of(type->rank, type->axes);
}

static axis_set set_minus(axis_set a, const axis_set *b) {
  for (uint32_t i = 0; i < IR_MAX_AXES / 64; i++)
    a.words[i] &= ~b->words[i];
  return a;
}

static axis_set set_common(axis_set a, const axis_set *b) {
  for (uint32_t i = 0; i < IR_MAX_AXES / 64; i++)
    a.words[i] &= b->words[i];
  return a;
}

static bool set_is_empty(const axis_set *set) {
  for (uint32_t i = 0; i < IR_MAX_AXES / 64; i++)
    if (set->words[i] != 0) return false;
  return true;
}

// ---- places and words ---------------------------------------------------------------------------

static base_loc operand_loc(const ir_node *node, uint32_t index) {
  return node->operand_locs ? node->operand_locs[index] : node->loc;
}

static base_loc result_loc(const ir_graph *graph, uint32_t index) {
  return graph->result_locs ? graph->result_locs[index] : graph->return_loc;
}

static base_str type_text(const verifier *v, const ir_type *type) {
  base_text text = {.arena = v->diag->arena};
  ir_print_type(v->graph, type, &text);
  return base_text_str(&text);
}

static base_str axis_name(const verifier *v, ir_axis axis) {
  return v->graph->axes.data[axis.index].name;
}

// "T, D", in order of first mention.
static base_str set_text(const verifier *v, const axis_set *set) {
  base_text text = {.arena = v->diag->arena};
  base_text_append(&text, "", 0);
  for (uint32_t i = 0; i < v->graph->axes.count; i++)
    if (set_has(set, (ir_axis){i}))
      base_text_printf(&text, "%s%.*s", text.length ? ", " : "",
                       BASE_FMT(v->graph->axes.data[i].name));
  return base_text_str(&text);
}

static const char *keyword_of(const ir_node *node) {
  return ir_op_get(node->op)->keyword;
}

// ---- form ---------------------------------------------------------------------------------------

static void check_axis_table(const verifier *v) {
  const ir_graph *graph = v->graph;
  if (graph->axes.count > IR_MAX_AXES)
    base_error(v->diag, graph->loc, "expected at most %d axes in a graph, found %" PRIu32,
               IR_MAX_AXES, graph->axes.count);
  for (uint32_t i = 0; i < graph->axes.count; i++)
    if (graph->axes.data[i].size < IR_DYNAMIC)
      base_error(v->diag, graph->axes.data[i].loc,
                 "expected a size >= 0 for axis %.*s, found %" PRId64,
                 BASE_FMT(graph->axes.data[i].name), graph->axes.data[i].size);
}

// True when all axes exist and none occurs twice.
static bool check_axes(const verifier *v, const ir_node *node, base_loc loc, const char *where,
                       uint32_t count, const ir_axis *axes) {
  axis_set seen = {{0}};
  bool good = true;
  for (uint32_t i = 0; i < count; i++) {
    if (axes[i].index >= v->graph->axes.count || axes[i].index >= IR_MAX_AXES) {
      base_error(v->diag, loc, "%%%.*s: expected an axis of the graph in %s, found index %" PRIu32,
                 BASE_FMT(node->name), where, axes[i].index);
      good = false;
    } else if (set_has(&seen, axes[i])) {
      base_error(v->diag, loc, "%%%.*s: expected each axis once in %s, found %.*s twice",
                 BASE_FMT(node->name), where, BASE_FMT(axis_name(v, axes[i])));
      base_hint(v->diag, "two axes of the same size still need two names");
      good = false;
    } else {
      set_add(&seen, 1, &axes[i]);
    }
  }
  return good;
}

static void check_type_form(const verifier *v, const ir_node *node) {
  const ir_type *type = &node->type;
  if ((uint32_t)type->dtype >= IR_DTYPE_COUNT)
    base_error(v->diag, node->type_loc, "%%%.*s: expected a dtype of the IR, found number %d",
               BASE_FMT(node->name), (int)type->dtype);
  if (type->rank > IR_MAX_RANK) {
    base_error(v->diag, node->type_loc, "%%%.*s: expected at most %d axes, found %" PRIu32,
               BASE_FMT(node->name), IR_MAX_RANK, type->rank);
    return;
  }
  bool good = check_axes(v, node, node->type_loc, "the type", type->rank, type->axes);
  if (!node->has_layout) return;
  if (node->op != IR_PARAM) {
    base_error(v->diag, node->type_loc,
               "%%%.*s: expected a layout only on a parameter, found one on %s",
               BASE_FMT(node->name), keyword_of(node));
  } else if (good && check_axes(v, node, node->type_loc, "the layout", type->rank, node->layout)) {
    const axis_set axes = set_of_type(type);
    for (uint32_t i = 0; i < type->rank; i++)
      if (!ir_type_has(type, node->layout[i])) {
        base_error(v->diag, node->type_loc,
                   "%%%.*s: expected a layout of the axes %.*s, found %.*s", BASE_FMT(node->name),
                   BASE_FMT(set_text(v, &axes)), BASE_FMT(axis_name(v, node->layout[i])));
        base_hint(v->diag, "a layout names every axis of the type once, outermost in memory first");
      }
  }
}

static void check_clause(const verifier *v, const ir_node *node, const char *clause, uint32_t count,
                         uint32_t most, const ir_axis *axes) {
  uint32_t least = most > 0 ? 1 : 0;
  if (count < least || count > most)
    base_error(v->diag, node->loc,
               "%%%.*s: expected %" PRIu32 " to %" PRIu32 " axes after '%s' of %s, found %" PRIu32,
               BASE_FMT(node->name), least, most, clause, keyword_of(node), count);
  else
    check_axes(v, node, node->loc, clause, count, axes);
}

static void check_operands_form(const verifier *v, const ir_node *node, uint32_t index) {
  const ir_op_info *info = ir_op_get(node->op);
  if (node->operand_count < info->min_operands || node->operand_count > info->max_operands)
    base_error(v->diag, node->loc,
               "%%%.*s: expected %" PRIu32 " to %" PRIu32 " operands of %s, found %" PRIu32,
               BASE_FMT(node->name), info->min_operands, info->max_operands, info->keyword,
               node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (node->operands[i].index >= index) {
      base_error(v->diag, operand_loc(node, i),
                 "%%%.*s: expected operand %" PRIu32 " to be defined earlier, found value %" PRIu32
                 " in node %" PRIu32,
                 BASE_FMT(node->name), i, node->operands[i].index, index);
      base_hint(v->diag, "nodes stand in topological order");
    }
}

static void check_attributes(const verifier *v, const ir_node *node) {
  uint32_t attributes = ir_op_get(node->op)->attributes;
  if ((attributes & IR_ATTR_EPS) && !(node->eps >= 0.0 && isfinite(node->eps))) {
    base_error(v->diag, node->loc, "%%%.*s: expected a finite eps >= 0, found %g",
               BASE_FMT(node->name), node->eps);
    base_hint(v->diag, "usual values are 1e-5 and 1e-6");
  }
  if ((attributes & IR_ATTR_START) && node->start < 0)
    base_error(v->diag, node->loc, "%%%.*s: expected start >= 0, found %" PRId64,
               BASE_FMT(node->name), node->start);
  if ((attributes & IR_ATTR_CALLEE) && node->callee.length == 0)
    base_error(v->diag, node->loc, "%%%.*s: expected the name of a host function, found none",
               BASE_FMT(node->name));
  if (!(attributes & IR_ATTR_VALUE)) return;
  if (node->value_count == 0 || !node->values) {
    base_error(v->diag, node->loc, "%%%.*s: expected value = NUMBER or a list, found none",
               BASE_FMT(node->name));
  } else if (node->value_count > 1 && node->type.rank != 1) {
    base_error(v->diag, node->type_loc,
               "%%%.*s: expected exactly one axis for a list of %" PRIu32
               " numbers, found %" PRIu32,
               BASE_FMT(node->name), node->value_count, node->type.rank);
    base_hint(v->diag, "give the list an axis of its own; other ops broadcast it");
  }
}

static void check_node_form(const verifier *v, uint32_t index) {
  const ir_graph *graph = v->graph;
  const ir_node *node = &graph->nodes.data[index];
  if ((uint32_t)node->op >= IR_OP_COUNT) {
    base_error(v->diag, node->loc, "%%%.*s: expected an op of the op table, found number %d",
               BASE_FMT(node->name), (int)node->op);
    return;
  }
  if ((node->op == IR_PARAM) != (index < graph->param_count))
    base_error(v->diag, node->loc,
               "%%%.*s: expected the parameters before all other nodes, found %s",
               BASE_FMT(node->name), keyword_of(node));
  const ir_op_info *info = ir_op_get(node->op);
  check_type_form(v, node);
  check_operands_form(v, node, index);
  check_clause(v, node, "over", node->over_count, info->max_over, node->over);
  check_clause(v, node, "to", node->to_count, info->max_to, node->to);
  check_attributes(v, node);
}

// Tensors are bound to parameters and results by name.
static void check_interface(const verifier *v) {
  const ir_graph *graph = v->graph;
  if (graph->results.count == 0) {
    base_error(v->diag, graph->return_loc, "expected graph @%.*s to return a value, found none",
               BASE_FMT(graph->name));
    base_hint(v->diag, "end it with: return %%x");
  }
  for (uint32_t i = 0; i < graph->results.count; i++) {
    uint32_t index = graph->results.data[i].index;
    if (index >= graph->nodes.count) {
      base_error(v->diag, result_loc(graph, i),
                 "expected a defined value to return, found value %" PRIu32, index);
      continue;
    }
    for (uint32_t j = 0; j < i; j++)
      if (graph->results.data[j].index == index) {
        base_error(v->diag, result_loc(graph, i),
                   "expected each value to be returned once, found %%%.*s twice",
                   BASE_FMT(graph->nodes.data[index].name));
        base_hint(v->diag, "return a copy: a cast of %%%.*s to its own type",
                  BASE_FMT(graph->nodes.data[index].name));
        break;
      }
  }
  for (uint32_t i = 0; i < graph->param_count && i < graph->nodes.count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (base_str_equal(graph->nodes.data[i].name, graph->nodes.data[j].name))
        base_error(v->diag, graph->nodes.data[i].loc,
                   "expected one parameter of each name, found two of %%%.*s",
                   BASE_FMT(graph->nodes.data[i].name));
}

// ---- types --------------------------------------------------------------------------------------

enum { CARRY_NONE, CARRY_FIRST, CARRY_ALL };

// What a shape rule asks. The result has the union of the operands' axes, without `over` where it
// is dropped, and with `to` (which is empty where the clause is not allowed).
static const struct {
  uint8_t carries_over;  // which operands must have the axes of `over`
  bool drops_over, free; // free: the result is as declared
} shape_rules[] = {
    [IR_SHAPE_GIVEN] = {CARRY_NONE, false, true},  [IR_SHAPE_MAP] = {CARRY_NONE, false, false},
    [IR_SHAPE_NORM] = {CARRY_FIRST, false, false}, [IR_SHAPE_SAME] = {CARRY_FIRST, false, false},
    [IR_SHAPE_REDUCE] = {CARRY_ALL, true, false},  [IR_SHAPE_CONCAT] = {CARRY_NONE, true, false},
    [IR_SHAPE_SLICE] = {CARRY_FIRST, true, false}, [IR_SHAPE_SPLIT] = {CARRY_FIRST, true, false},
    [IR_SHAPE_MERGE] = {CARRY_FIRST, true, false}, [IR_SHAPE_RENAME] = {CARRY_FIRST, true, false},
};
static_assert(sizeof shape_rules / sizeof *shape_rules == IR_SHAPE_RENAME + 1,
              "a row for each ir_shape");

// True when every operand has what the rule asks of it.
static bool check_operand_axes(const verifier *v, const ir_node *node, const axis_set *over,
                               const axis_set *to) {
  uint32_t carriers[] = {[CARRY_NONE] = 0, [CARRY_FIRST] = 1, [CARRY_ALL] = node->operand_count};
  uint32_t must_carry = carriers[shape_rules[ir_op_get(node->op)->shape].carries_over];
  bool good = true;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_node *operand = ir_node_of(v->graph, node->operands[i]);
    const axis_set axes = set_of_type(&operand->type), missing = set_minus(*over, &axes);
    const axis_set taken = set_common(axes, to);
    if (i < must_carry && !set_is_empty(&missing)) {
      base_error(v->diag, operand_loc(node, i),
                 "%%%.*s: expected operand %%%.*s of %s to have %.*s, found %.*s",
                 BASE_FMT(node->name), BASE_FMT(operand->name), keyword_of(node),
                 BASE_FMT(set_text(v, &missing)), BASE_FMT(type_text(v, &operand->type)));
      base_hint(v->diag, "%s works over %.*s; name axes the operand has, or give it that axis",
                keyword_of(node), BASE_FMT(set_text(v, over)));
      good = false;
    }
    if (!set_is_empty(&taken)) {
      base_error(
          v->diag, operand_loc(node, i),
          "%%%.*s: expected a new axis after 'to' of %s, found %.*s, which %%%.*s already has",
          BASE_FMT(node->name), keyword_of(node), BASE_FMT(set_text(v, &taken)),
          BASE_FMT(operand->name));
      base_hint(v->diag, "choose another name after 'to'");
      good = false;
    }
  }
  return good;
}

static void check_result_axes(const verifier *v, const ir_node *node, const axis_set *expected) {
  const axis_set found = set_of_type(&node->type);
  const axis_set lacking = set_minus(*expected, &found), surplus = set_minus(found, expected);
  if (set_is_empty(&lacking) && set_is_empty(&surplus)) return;
  base_error(v->diag, node->type_loc, "%%%.*s: expected %s to give axes [%.*s], found %.*s",
             BASE_FMT(node->name), keyword_of(node), BASE_FMT(set_text(v, expected)),
             BASE_FMT(type_text(v, &node->type)));
  base_str missing = set_text(v, &lacking), extra = set_text(v, &surplus);
  base_hint(v->diag, "%s%.*s%s%s%.*s", missing.length ? "add " : "", BASE_FMT(missing),
            missing.length && extra.length ? " and " : "", extra.length ? "remove " : "",
            BASE_FMT(extra));
}

// Ops without an answer over no element: softmax, logsumexp, mean and reduce_max.
static void check_not_empty(const verifier *v, const ir_node *node) {
  const ir_op_info *info = ir_op_get(node->op);
  bool reduces = info->shape == IR_SHAPE_SAME || info->shape == IR_SHAPE_REDUCE;
  if (!reduces || (info->facts & IR_FACT_SUM)) return; // an empty sum is 0
  for (uint32_t i = 0; i < node->over_count; i++) {
    if (ir_axis_size(v->graph, node->over[i]) != 0) continue;
    base_error(v->diag, node->loc,
               "%%%.*s: expected at least one index of %.*s for %s, found %.*s=0",
               BASE_FMT(node->name), BASE_FMT(axis_name(v, node->over[i])), info->keyword,
               BASE_FMT(axis_name(v, node->over[i])));
    base_hint(v->diag, "%s of nothing has no value; only sum, dot and weighted_sum may be empty",
              info->keyword);
  }
}

static void check_node_type(const verifier *v, const ir_node *node) {
  ir_shape shape = ir_op_get(node->op)->shape;
  if (shape_rules[shape].free) return;
  const axis_set over = set_of(node->over_count, node->over), to = set_of(node->to_count, node->to);
  if (!check_operand_axes(v, node, &over, &to))
    return; // its result would be wrong for the same reason
  axis_set axes = {{0}};
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_type *type = &ir_node_of(v->graph, node->operands[i])->type;
    set_add(&axes, type->rank, type->axes);
  }
  if (shape_rules[shape].drops_over) axes = set_minus(axes, &over);
  set_add(&axes, node->to_count, node->to);
  check_result_axes(v, node, &axes);
  check_not_empty(v, node);
}

// ---- stages -------------------------------------------------------------------------------------

// The first node that names the axis in a clause; NULL: none does.
static const ir_node *user_of_axis(const ir_graph *graph, ir_axis axis) {
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    const axis_set over = set_of(node->over_count, node->over);
    const axis_set to = set_of(node->to_count, node->to);
    if (set_has(&over, axis) || set_has(&to, axis)) return node;
  }
  return NULL;
}

// Only rows may stay dynamic. An axis that no value has (left over from a pass) needs no size.
static void check_bound(const verifier *v) {
  const ir_graph *graph = v->graph;
  axis_set used = {{0}};
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    set_add(&used, graph->nodes.data[i].type.rank, graph->nodes.data[i].type.axes);
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    const ir_axis_info *axis = &graph->axes.data[i];
    if (axis->size != IR_DYNAMIC || !set_has(&used, (ir_axis){i})) continue;
    const ir_node *user = user_of_axis(graph, (ir_axis){i});
    if (user == NULL) continue;
    base_error(v->diag, axis->loc,
               "expected a size for axis %.*s, which %s works on in %%%.*s, found none",
               BASE_FMT(axis->name), keyword_of(user), BASE_FMT(user->name));
    base_hint(v->diag, "bind it with --set %.*s=INT, or write %.*s=INT where it is first mentioned",
              BASE_FMT(axis->name), BASE_FMT(axis->name));
  }
}

static void check_primitive(const verifier *v, const ir_node *node) {
  if (!(ir_op_get(node->op)->facts & IR_FACT_COMPOSITE)) return;
  base_error(v->diag, node->loc, "%%%.*s: expected no composite op at this stage, found %s",
             BASE_FMT(node->name), keyword_of(node));
  base_hint(v->diag, "run the pass that expands it first");
}

// Kernels run in the order of their numbers, so a value must come from the same kernel or an
// earlier one.
static void check_fused(const verifier *v, const ir_node *node) {
  bool stored = node->op == IR_PARAM || node->op == IR_CONSTANT;
  if (stored ? node->kernel != IR_NO_KERNEL : node->kernel < 0) {
    base_error(v->diag, node->loc, "%%%.*s: expected %s for %s, found %" PRId32,
               BASE_FMT(node->name), stored ? "no kernel (-1)" : "a kernel >= 0", keyword_of(node),
               node->kernel);
    return;
  }
  for (uint32_t i = 0; i < node->operand_count && !stored; i++) {
    const ir_node *operand = ir_node_of(v->graph, node->operands[i]);
    if (operand->kernel > node->kernel)
      base_error(v->diag, operand_loc(node, i),
                 "%%%.*s: expected operand %%%.*s from kernel %" PRId32
                 " or before, found kernel %" PRId32,
                 BASE_FMT(node->name), BASE_FMT(operand->name), node->kernel, operand->kernel);
  }
}

static void check_forms(const verifier *v) {
  check_axis_table(v);
  for (uint32_t i = 0; i < v->graph->nodes.count; i++)
    check_node_form(v, i);
}

bool ir_verify_part(ir_graph *graph, base_diag *diag) {
  uint32_t errors = diag->error_count;
  verifier v = {.graph = graph, .diag = diag};
  check_forms(&v);
  if (diag->error_count != errors) return false;
  ir_solve_axes(graph, diag);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    check_node_type(&v, &graph->nodes.data[i]);
  return diag->error_count == errors;
}

bool ir_verify(ir_graph *graph, ir_stage stage, base_diag *diag) {
  uint32_t errors = diag->error_count;
  verifier v = {.graph = graph, .diag = diag};
  check_forms(&v);
  check_interface(&v);
  if (diag->error_count != errors) return false;

  bool solved = ir_solve_axes(graph, diag);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    check_node_type(&v, node);
    if (stage >= IR_STAGE_PRIMITIVE) check_primitive(&v, node);
    if (stage >= IR_STAGE_FUSED) check_fused(&v, node);
  }
  // An equation that cannot hold leaves axes without a size: no news.
  if (stage >= IR_STAGE_BOUND && solved) check_bound(&v);
  return diag->error_count == errors;
}
