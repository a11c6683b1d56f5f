// axes: the sizes of named axes, and which axes are independent rows.
//
// An axis has one size in a graph, so every op that maps axes to axes is an equation between sizes:
// concat Y = k * X + m, split and merge a product, rename X = Y, a constant's list its own length.
// Each equation is one function below that either derives the one size it lacks or finds that it
// cannot hold. The solver runs all of them to a fixpoint in silence and then once more to report:
// so a contradiction is told once, with everything known that can be known.
//
// A slice is no equation but a bound. Only where nothing else gives its result a size does it reach
// to the end; hence it is asked last, one slice at a time.
#include "ir/ir.h"

#include <inttypes.h>

typedef struct solver {
  ir_graph *graph;
  base_diag *diag;
  bool reporting; // the last round: nothing changes, contradictions become errors
  bool changed;
} solver;

static int64_t size_of(const solver *s, ir_axis axis) {
  return s->graph->axes.data[axis.index].size;
}

static base_str name_of(const solver *s, ir_axis axis) {
  return s->graph->axes.data[axis.index].name;
}

static void derive(solver *s, ir_axis axis, int64_t size) {
  s->graph->axes.data[axis.index].size = size;
  s->changed = true;
}

// `axis` must have `size`, which follows from the sizes named in `reason`.
static void expect(solver *s, const ir_node *node, ir_axis axis, int64_t size, base_str reason) {
  int64_t found = size_of(s, axis);
  if (found == IR_DYNAMIC) {
    derive(s, axis, size);
  } else if (found != size && s->reporting) {
    base_str name = name_of(s, axis);
    base_error(s->diag, node->loc, "%%%.*s: expected %.*s=%" PRId64 " (%.*s), found %.*s=%" PRId64,
               BASE_FMT(node->name), BASE_FMT(name), size, BASE_FMT(reason), BASE_FMT(name), found);
    base_hint(s->diag,
              "correct one of the sizes, or leave %.*s without one: it follows from the rest",
              BASE_FMT(name));
  }
}

// ---- the equations ------------------------------------------------------------------------------

static void solve_concat(solver *s, const ir_node *node) {
  ir_axis over = node->over[0], to = node->to[0];
  int64_t with = 0, without = 0;
  for (uint32_t i = 0; i < node->operand_count; i++)
    *(ir_type_has(&ir_node_of(s->graph, node->operands[i])->type, over) ? &with : &without) += 1;
  int64_t x = with ? size_of(s, over) : 0, y = size_of(s, to), total;
  if (x == IR_DYNAMIC && y != IR_DYNAMIC) {
    int64_t rest = y - without;
    if (rest >= 0 && rest % with == 0) {
      derive(s, over, rest / with);
    } else if (s->reporting) {
      base_error(s->diag, node->loc,
                 "%%%.*s: expected %.*s to be %" PRId64 " times %.*s plus %" PRId64
                 " single slices, found %.*s=%" PRId64,
                 BASE_FMT(node->name), BASE_FMT(name_of(s, to)), with, BASE_FMT(name_of(s, over)),
                 without, BASE_FMT(name_of(s, to)), y);
      base_hint(s->diag, "no size of %.*s makes the operands add up to %.*s=%" PRId64,
                BASE_FMT(name_of(s, over)), BASE_FMT(name_of(s, to)), y);
    }
  } else if (x != IR_DYNAMIC) {
    if (!__builtin_mul_overflow(with, x, &total) &&
        !__builtin_add_overflow(total, without, &total)) {
      base_str reason = {0};
      if (s->reporting)
        reason =
            base_str_format(s->diag->arena, "the operands add up to %" PRId64 " slices", total);
      expect(s, node, to, total, reason);
    } else if (s->reporting) {
      base_error(s->diag, node->loc,
                 "%%%.*s: expected the operands to add up to less than 2^63 slices of %.*s, found "
                 "%.*s=%" PRId64 " %" PRId64 " times",
                 BASE_FMT(node->name), BASE_FMT(name_of(s, to)), BASE_FMT(name_of(s, over)), x,
                 with);
    }
  }
}

// The product of the known sizes; false when it overflows. *unknown is the last axis without a
// size.
static bool known_product(const solver *s, uint32_t count, const ir_axis *axes, int64_t *product,
                          uint32_t *unknown_count, ir_axis *unknown) {
  bool empty = false, fits = true;
  *product = 1;
  *unknown_count = 0;
  for (uint32_t i = 0; i < count; i++) {
    int64_t size = size_of(s, axes[i]);
    if (size == IR_DYNAMIC) {
      *unknown = axes[i];
      *unknown_count += 1;
    } else {
      empty = empty || size == 0;
      fits = fits && !__builtin_mul_overflow(*product, size, product);
    }
  }
  if (empty) *product = 0; // whatever overflowed before
  return fits || empty;
}

// split_axis and merge_axes: the size of `one` is the product of the sizes of `many`.
static void solve_product(solver *s, const ir_node *node, ir_axis one, uint32_t count,
                          const ir_axis *many) {
  int64_t product, whole = size_of(s, one);
  uint32_t unknown_count;
  ir_axis unknown = one;
  if (!known_product(s, count, many, &product, &unknown_count, &unknown)) {
    if (s->reporting)
      base_error(
          s->diag, node->loc,
          "%%%.*s: expected sizes whose product is less than 2^63, found more in the parts of %.*s",
          BASE_FMT(node->name), BASE_FMT(name_of(s, one)));
    return;
  }
  if (unknown_count == 0 || product == 0) {
    expect(s, node, one, product, BASE_STR("the product of its parts"));
  } else if (unknown_count == 1 && whole != IR_DYNAMIC && product > 0 && whole % product == 0) {
    derive(s, unknown, whole / product);
  } else if (s->reporting && unknown_count == 1 && whole != IR_DYNAMIC) {
    base_error(s->diag, node->loc,
               "%%%.*s: expected %.*s to be a multiple of %" PRId64
               " (the parts with a known size), found %.*s=%" PRId64,
               BASE_FMT(node->name), BASE_FMT(name_of(s, one)), product, BASE_FMT(name_of(s, one)),
               whole);
    base_hint(s->diag, "no size of %.*s makes the parts multiply to %" PRId64,
              BASE_FMT(name_of(s, unknown)), whole);
  }
}

static void solve_rename(solver *s, const ir_node *node) {
  int64_t size = size_of(s, node->over[0]);
  if (size != IR_DYNAMIC) {
    expect(s, node, node->to[0], size, BASE_STR("a rename keeps the size"));
  } else if (size_of(s, node->to[0]) != IR_DYNAMIC) {
    derive(s, node->over[0], size_of(s, node->to[0]));
  }
}

static void solve_constant(solver *s, const ir_node *node) {
  if (node->value_count > 1 && node->type.rank == 1)
    expect(s, node, node->type.axes[0], node->value_count, BASE_STR("the length of the list"));
}

static void check_slice(solver *s, const ir_node *node) {
  int64_t size = size_of(s, node->over[0]), taken = size_of(s, node->to[0]);
  if (!s->reporting || size == IR_DYNAMIC) return;
  base_str over = name_of(s, node->over[0]), to = name_of(s, node->to[0]);
  if (node->start > size) {
    base_error(s->diag, node->loc,
               "%%%.*s: expected start <= %.*s=%" PRId64 ", found start = %" PRId64,
               BASE_FMT(node->name), BASE_FMT(over), size, node->start);
    base_hint(s->diag, "indices of %.*s count from 0", BASE_FMT(over));
  } else if (taken > size - node->start) {
    base_error(s->diag, node->loc,
               "%%%.*s: expected at most %" PRId64 " indices of %.*s=%" PRId64
               " from start = %" PRId64 " on, found %.*s=%" PRId64,
               BASE_FMT(node->name), size - node->start, BASE_FMT(over), size, node->start,
               BASE_FMT(to), taken);
    base_hint(s->diag, "make %.*s or start smaller", BASE_FMT(to));
  }
}

static void solve_slice_to_end(solver *s, const ir_node *node) {
  int64_t size = size_of(s, node->over[0]);
  if (size_of(s, node->to[0]) == IR_DYNAMIC && size != IR_DYNAMIC && node->start <= size)
    derive(s, node->to[0], size - node->start);
}

static void solve_node(solver *s, const ir_node *node) {
  switch (ir_op_get(node->op)->shape) {
  case IR_SHAPE_CONCAT:
    solve_concat(s, node);
    break;
  case IR_SHAPE_SPLIT:
    solve_product(s, node, node->over[0], node->to_count, node->to);
    break;
  case IR_SHAPE_MERGE:
    solve_product(s, node, node->to[0], node->over_count, node->over);
    break;
  case IR_SHAPE_RENAME:
    solve_rename(s, node);
    break;
  case IR_SHAPE_SLICE:
    check_slice(s, node);
    break;
  case IR_SHAPE_GIVEN:
    solve_constant(s, node);
    break;
  default:
    break;
  }
}

// ---- sizes of values ----------------------------------------------------------------------------

// Offsets are 64-bit everywhere: a value whose bytes do not fit has no address for its last
// element.
static void check_bytes(solver *s, const ir_node *node) {
  int64_t bytes;
  uint32_t unknown_count;
  ir_axis unknown;
  if (known_product(s, node->type.rank, node->type.axes, &bytes, &unknown_count, &unknown) &&
      !__builtin_mul_overflow(bytes, (int64_t)ir_dtype_size(node->type.dtype), &bytes))
    return;
  base_text type = {.arena = s->diag->arena};
  ir_print_type(s->graph, &node->type, &type);
  base_error(s->diag, node->type_loc, "%%%.*s: expected less than 2^63 bytes, found more in %.*s",
             BASE_FMT(node->name), BASE_FMT(base_text_str(&type)));
  base_hint(s->diag, "make an axis smaller");
}

// ---- entry points -------------------------------------------------------------------------------

static void solve_all(solver *s) {
  const ir_graph *graph = s->graph;
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    solve_node(s, &graph->nodes.data[i]);
}

bool ir_solve_axes(ir_graph *graph, base_diag *diag) {
  uint32_t errors = diag->error_count;
  solver s = {.graph = graph, .diag = diag};
  do { // each round but the last fixes an axis: there are at most as many rounds as axes
    s.changed = false;
    solve_all(&s);
    for (uint32_t i = 0; i < graph->nodes.count && !s.changed; i++)
      if (ir_op_get(graph->nodes.data[i].op)->shape == IR_SHAPE_SLICE)
        solve_slice_to_end(&s, &graph->nodes.data[i]);
  } while (s.changed);
  s.reporting = true;
  solve_all(&s);
  for (uint32_t i = 0; i < graph->nodes.count; i++)
    check_bytes(&s, &graph->nodes.data[i]);
  return diag->error_count == errors;
}

bool ir_bind_axis(ir_graph *graph, base_str name, int64_t size, base_diag *diag) {
  base_loc nowhere = {0};
  ir_axis axis;
  if (!ir_axis_find(graph, name, &axis)) {
    const char *names[IR_MAX_AXES];
    uint32_t count = graph->axes.count < IR_MAX_AXES ? graph->axes.count : IR_MAX_AXES;
    base_text list = {.arena = diag->arena};
    for (uint32_t i = 0; i < count; i++) {
      base_str known = base_str_copy(diag->arena, graph->axes.data[i].name);
      names[i] = known.data;
      base_text_printf(&list, "%s%s", i ? ", " : "", known.data);
    }
    base_error(diag, nowhere, "expected an axis of graph @%.*s, found '%.*s'",
               BASE_FMT(graph->name), BASE_FMT(name));
    const char *nearest = base_nearest(name, names, count);
    if (nearest)
      base_hint(diag, "did you mean %s?", nearest);
    else
      base_hint(diag, "its axes are: %.*s", BASE_FMT(base_text_str(&list)));
    return false;
  }
  ir_axis_info *info = &graph->axes.data[axis.index];
  if (size < 0) {
    base_error(diag, nowhere, "expected a size >= 0 for axis %.*s, found %" PRId64, BASE_FMT(name),
               size);
    return false;
  }
  if (info->size != IR_DYNAMIC && info->size != size) {
    base_error(diag, info->loc,
               "axis %.*s already has size %" PRId64 ", found %" PRId64 " to bind it to",
               BASE_FMT(name), info->size, size);
    base_hint(diag, "remove the size from the text to choose it when compiling");
    return false;
  }
  info->size = size;
  return true;
}

uint64_t ir_independent_axes(const ir_graph *graph) {
  uint32_t count = graph->axes.count;
  uint64_t axes = count < 64 ? ((uint64_t)1 << count) - 1 : UINT64_MAX;
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    for (uint32_t j = 0; j < node->over_count; j++)
      axes &= ~ir_axis_bit(node->over[j]);
    for (uint32_t j = 0; j < node->to_count; j++)
      axes &= ~ir_axis_bit(node->to[j]);
  }
  return axes;
}
