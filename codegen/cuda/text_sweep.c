// One sweep as loops of a team's threads.
//
// A row sweep: tiles of its outer loops, the team's turns over the lane axis, and inside a turn the
// tile's points, unrolled. Sums over the lanes begin as one partial sum a thread and point; where
// the root's own loops end, all that end there cross the team together. Their totals are spread over
// the lanes of each warp, so a lane stores the point that it holds.
#include <stdlib.h>

#include "codegen/cuda/text.h"

// ---- lanes --------------------------------------------------------------------------------------

enum { WARP = 32, MAX_TURNS_UNROLLED = 4 };

uint32_t text_open_lanes(text_printer *p, ir_axis lane, bool single, text_point *point) {
  const kir_team *team = &p->kernel->team;
  int64_t size = p->kernel->axes[lane.index].size, width = single ? 1 : team->vector;
  uint32_t threads = team->threads * p->split;
  int64_t step = threads * width, turns = kir_turns(p->kernel, lane, threads, single);
  p->vector = (uint32_t)width;
  uint32_t opened = 1;
  bool unroll = turns <= MAX_TURNS_UNROLLED || text_keeps_registers(p);
  if (turns > 1)
    text_open(p, text_format(p, "%sfor (int turn = 0; turn < %lld; turn++)", text_unroll(p, unroll),
                             (long long)turns));
  else
    text_open(p, "");
  const char *name = text_axis_name(p, lane);
  const char *own = p->split > 1 ? "part" : "thread";
  const char *first = turns > 1 ? text_format(p, "(turn * %u + %s)", threads, own) : own;
  text_declare(p, width > 1
                      ? text_format(p, "const int %s = %s * %lld;", name, first, (long long)width)
                      : text_format(p, "const int %s = %s;", name, first));
  text_index index = {name, 0, size, text_top(p), NULL};
  point->lane = lane;
  point->turn = turns > 1 ? "turn" : "0";
  if (turns * step > size) {
    text_open(p, text_format(p, "if (%s < %lld)", name, (long long)size));
    index.scope = text_top(p);
    opened++;
  }
  text_set_axis(p, point, lane, index, !single);
  text_compose(p, point);
  return opened;
}

// ---- tiles --------------------------------------------------------------------------------------

typedef struct tile {
  ir_axis axis;
  text_index base;
  int64_t count;
  const char *offset; // of the current point in the tile
} tile;

// Where the totals of a root's points are: those from `first` on of an fm_totals of `all` values.
typedef struct totals {
  const char *sums, *name; // the array that crosses the team, and what it becomes
  int64_t first, all;
} totals;

typedef struct nest {
  text_printer *p;
  const kir_sweep *sweep;
  const char **sums; // of each root, its accumulators
  totals *totals;    // of each root that crosses the team
  bool concats;      // something computed in place is put together by concat
  tile tiles[KIR_MAX_LOOPS];
  uint32_t tile_count;
} nest;

// The number of the current point among those of the first `count` tiles, as text.
static const char *point_number(const nest *n, uint32_t count) {
  base_text number = {.arena = n->p->arena};
  for (uint32_t i = 0; i < count; i++) {
    int64_t size = 1;
    for (uint32_t j = i + 1; j < count; j++)
      size *= n->tiles[j].count;
    if (size > 1)
      base_text_printf(&number, "%s%s * %lld", i ? " + " : "", n->tiles[i].offset, (long long)size);
    else
      base_text_printf(&number, "%s%s", i ? " + " : "", n->tiles[i].offset);
  }
  return number.length ? number.data : "0";
}

bool text_is_tiled(const text_printer *p, ir_axis axis) {
  return p->in_tile && axis.index == p->kernel->chain.axis.index;
}

uint32_t text_open_tile(text_printer *p, ir_axis axis, text_index base, int64_t count,
                        text_point *point) {
  uint32_t opened;
  char *end;
  long long first = strtoll(base.text, &end, 10);
  if (*end) first = 0;
  text_index index = text_loop(p, axis, first, first + count, 1, true, &opened);
  index.offset = text_sum(p, index.text, text_format(p, "%lld", -first));
  if (*end) {
    index.text = text_sum(p, base.text, index.text);
    index.low = base.low;
    index.high = base.high;
    if (base.scope > index.scope) index.scope = base.scope;
  }
  text_set_axis(p, point, axis, index, false);
  text_compose(p, point);
  return opened;
}

static uint32_t open_tile(text_printer *p, tile *t, text_point *point) {
  uint32_t opened = text_open_tile(p, t->axis, t->base, t->count, point);
  text_index *index = &point->index[t->axis.index];
  t->offset = index->offset;
  if (!text_is_tiled(p, t->axis)) index->offset = NULL; // only the chain's tile waits in registers
  return opened;
}

static uint32_t open_points(nest *n, uint32_t count, text_point *point) {
  uint32_t scopes = 0;
  for (uint32_t i = 0; i < count; i++)
    scopes += open_tile(n->p, &n->tiles[i], point);
  return scopes;
}

static int64_t points_of(const nest *n, uint32_t tiles) {
  int64_t points = 1;
  for (uint32_t i = 0; i < tiles; i++)
    points *= n->tiles[i].count;
  return points > 0 ? points : 1; // C++ has no arrays without elements
}

// The tiles of loops outside `depth`.
static uint32_t tiles_before(const nest *n, uint32_t depth) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->tile_count; i++)
    for (uint32_t j = 0; j < depth && j < n->sweep->loop_count; j++)
      count += n->sweep->loops[j].index == n->tiles[i].axis.index;
  return count;
}

// ---- accumulators -------------------------------------------------------------------------------

static bool crosses_team(const nest *n, const kir_root *root) {
  ir_axis lane = n->sweep->loops[n->sweep->lane];
  return (root->accumulates & ir_axis_bit(lane)) != 0;
}

static bool is_vector(const nest *n, const kir_root *root) {
  const ir_type *type = &ir_node_of(n->p->graph, root->value)->type;
  return n->p->vector > 1 && !crosses_team(n, root) &&
         ir_type_has(type, n->sweep->loops[n->sweep->lane]);
}

static bool is_largest(const nest *n, const kir_root *root) {
  return ir_node_of(n->p->graph, root->value)->op == IR_REDUCE_MAX;
}

static int64_t points_of_root(const nest *n, uint32_t index) {
  return points_of(n, tiles_before(n, n->sweep->roots.data[index].depth));
}

static bool ends_at(const nest *n, const kir_root *root, uint32_t depth) {
  return root->accumulates && root->depth == depth && crosses_team(n, root);
}

// The roots that cross the team together at `depth`, sums or largest values: the first one from root
// `from` on; -1: there is none.
static int32_t crossing(const nest *n, uint32_t depth, bool largest, int32_t from) {
  for (uint32_t i = (uint32_t)from; i < n->sweep->roots.count; i++) {
    const kir_root *root = &n->sweep->roots.data[i];
    if (ends_at(n, root, depth) && is_largest(n, root) == largest) return (int32_t)i;
  }
  return -1;
}

static const char *sum_name(nest *n, uint32_t index) {
  base_str name = ir_node_of(n->p->graph, n->sweep->roots.data[index].value)->name;
  return text_name(n->p, base_str_format(n->p->arena, "%.*s_sum", BASE_FMT(name)));
}

// Accumulators as they are before the first operand. `width`: of each, for vectors.
static void declare_sums(text_printer *p, const char *name, int64_t count, const char *width,
                         bool largest) {
  const char *neutral = text_neutral(IR_REDUCE_MAX);
  text_end_elements(p);
  if (!largest) {
    text_line(p, text_top(p), "float %s[%lld]%s = {};", name, (long long)count, width);
    return;
  }
  text_line(p, text_top(p), "float %s[%lld]%s;", name, (long long)count, width);
  if (*width)
    text_line(p, text_top(p),
              "for (int i = 0; i < %lld; i++) for (int e = 0; e < %u; e++) %s[i][e] = %s;",
              (long long)count, p->vector, name, neutral);
  else
    text_line(p, text_top(p), "for (int i = 0; i < %lld; i++) %s[i] = %s;", (long long)count, name,
              neutral);
}

static void open_root(nest *n, uint32_t index) {
  text_printer *p = n->p;
  const kir_root *root = &n->sweep->roots.data[index];
  n->sums[index] = sum_name(n, index);
  const char *width = is_vector(n, root) ? text_format(p, "[%u]", p->vector) : "";
  declare_sums(p, n->sums[index], points_of_root(n, index), width, is_largest(n, root));
}

// Sums that cross the team together are parts of one array.
static void open_crossing(nest *n, uint32_t depth, bool largest) {
  text_printer *p = n->p;
  int32_t first = crossing(n, depth, largest, 0);
  if (first < 0) return;
  if (crossing(n, depth, largest, first + 1) < 0) {
    open_root(n, (uint32_t)first);
    n->totals[first] = (totals){.sums = n->sums[first], .all = points_of_root(n, (uint32_t)first)};
    return;
  }
  const char *array = text_name(p, base_str_from(largest ? "maxima" : "sums"));
  base_text parts = {.arena = p->arena};
  int64_t all = 0;
  for (int32_t i = first; i >= 0; i = crossing(n, depth, largest, i + 1)) {
    n->sums[i] = sum_name(n, (uint32_t)i);
    n->totals[i] = (totals){.sums = array, .first = all};
    base_text_printf(&parts, i == first ? "float *const %s = %s" : ", *const %s = %s + %lld",
                     n->sums[i], array, (long long)all);
    all += points_of_root(n, (uint32_t)i);
  }
  for (int32_t i = first; i >= 0; i = crossing(n, depth, largest, i + 1))
    n->totals[i].all = all;
  declare_sums(p, array, all, "", largest);
  text_line(p, text_top(p), "%s;", parts.data);
}

static void open_roots(nest *n, uint32_t depth) {
  open_crossing(n, depth, false);
  open_crossing(n, depth, true);
  for (uint32_t i = 0; i < n->sweep->roots.count; i++) {
    const kir_root *root = &n->sweep->roots.data[i];
    if (root->accumulates && root->depth == depth && !crosses_team(n, root)) open_root(n, i);
  }
}

static void store_result(nest *n, ir_value value, const text_point *point, text_term term) {
  const kir_value *info = &n->p->kernel->values[value.index];
  if (info->place == KIR_SHARED || info->place == KIR_SCRATCH)
    text_store_place(n->p, value, point, term);
  if (info->store_arg >= 0) text_store_argument(n->p, value, point, term);
}

// The totals of sums that end here, which all go through one exchange. One of two areas of shared
// memory takes the warps' sums. The other one was last used before the barrier that this call begins
// with, so no barrier need follow, unless the call stands in a loop of its own.
static void cross_team(nest *n, uint32_t depth, bool largest) {
  text_printer *p = n->p;
  const kir_team *team = &p->kernel->team;
  int32_t first = crossing(n, depth, largest, 0);
  if (first < 0) return;
  const char *name = text_name(p, BASE_STR("totals")), *op = largest ? "fm_op_max" : "fm_op_sum";
  for (int32_t i = first; i >= 0; i = crossing(n, depth, largest, i + 1))
    n->totals[i].name = name;
  bool cluster = p->split > 1 && !team->stepped;
  int area = p->last_exchange < 0 ? 0 : 1 - p->last_exchange;
  const char *exchange =
      text_offset(p, "exchange", (size_t)area * team->exchange_bytes / sizeof(float));
  if (cluster)
    text_line(p, text_top(p), "auto %s = fm_cluster_totals<%s, %u, %u>(%s, %s, 0);", name, op,
              team->threads / WARP, team->split, n->totals[first].sums, exchange);
  else
    text_line(p, text_top(p), "auto %s = fm_team_totals<%s, %u>(%s, %s, %s);", name, op,
              team->threads / WARP, n->totals[first].sums, exchange, text_barrier(p));
  bool again =
      text_top(p) != p->row_scope || p->in_tile || team->stepped || p->phase == KIR_PREPARE;
  if (again && cluster)
    text_line(p, text_top(p), "fm_cluster_barrier();");
  else if (again && team->threads > WARP)
    text_team_barrier(p);
  if (p->first_exchange < 0) p->first_exchange = area;
  p->last_exchange = area;
  p->met_since = again;
}

// Opens a scope for the lane that holds a point of the root: i is the point's number, and *total the
// total. Returns how many scopes that took.
static uint32_t open_totals(nest *n, uint32_t index, const char **total) {
  text_printer *p = n->p;
  const totals *t = &n->totals[index];
  const char *group = "0";
  uint32_t scopes = 1;
  if (t->all > WARP) {
    text_open(
        p, text_format(p, "%sfor (int g = 0; g < %s.GROUPS; g++)", text_unroll(p, true), t->name));
    group = "g";
    scopes++;
  }
  text_open(p, text_format(p, "if (const int i = %s.number(%s, %lld, %lld); i >= 0)", t->name,
                           group, (long long)t->first, (long long)points_of_root(n, index)));
  *total = text_format(p, "%s.total[%s]", t->name, group);
  return scopes;
}

// Sets the outer loops to those of point `i` of the root.
static void set_point(nest *n, uint32_t tiles, const char *i, text_point *point) {
  text_printer *p = n->p;
  int64_t below = 1;
  for (uint32_t j = tiles; j-- > 0;) {
    const tile *t = &n->tiles[j];
    const char *offset = below == 1 ? i : text_format(p, "%s / %lld", i, (long long)below);
    if (j > 0) offset = text_format(p, "%s %% %lld", offset, (long long)t->count);
    text_index index = {
        text_sum(p, t->base.text, below == 1 && j == 0 ? offset : text_format(p, "(%s)", offset)),
        t->base.low, t->base.high, text_top(p), NULL};
    text_set_axis(p, point, t->axis, index, false);
    below *= t->count;
  }
  text_compose(p, point);
}

enum total_way { TO_PLACE, TO_ARGUMENT };

// Each point of the root by the lane that holds it, of each warp or of the first one that `guard`
// lets through (NULL: of each).
static void store_points(nest *n, uint32_t index, const text_point *outer, const char *guard,
                         enum total_way way) {
  text_printer *p = n->p;
  const kir_root *root = &n->sweep->roots.data[index];
  const char *total;
  text_point point = *outer;
  for (uint32_t i = 0; i < tiles_before(n, root->depth); i++)
    if (n->tiles[i].count == 0) return;
  if (guard) text_open(p, text_format(p, "if (%s < %d)", guard, WARP));
  uint32_t scopes = open_totals(n, index, &total) + (guard ? 1 : 0);
  set_point(n, tiles_before(n, root->depth), "i", &point);
  text_term term = {text_finish(p, root->value, total), false, false, text_top(p)};
  if (way == TO_PLACE)
    text_store_place(p, root->value, &point, term);
  else
    text_store_argument(p, root->value, &point, term);
  text_end_elements(p);
  text_close_all(p, scopes);
}

// A scalar has one copy for each thread, for each warp or for the team; memory gets one.
static void close_total(nest *n, uint32_t index, const text_point *outer) {
  text_printer *p = n->p;
  const kir_root *root = &n->sweep->roots.data[index];
  const kir_value *info = &p->kernel->values[root->value.index];
  if (text_in_every_thread(p, root->value)) {
    const totals *t = &n->totals[index];
    const char *total = text_format(p, "fm_total(%s, %lld)", t->name, (long long)t->first);
    text_store_place(p, root->value, outer,
                     (text_term){text_finish(p, root->value, total), false, false, text_top(p)});
  } else if (info->place == KIR_SHARED || info->place == KIR_SCRATCH) {
    bool each = info->residency == KIR_TEAM && p->kernel->team.warp_scalars;
    store_points(n, index, outer, each ? NULL : "thread", TO_PLACE);
  }
  if (info->store_arg >= 0)
    store_points(n, index, outer, p->split > 1 ? "part" : "thread", TO_ARGUMENT);
}

static void close_root(nest *n, uint32_t index, uint32_t depth, const text_point *outer) {
  text_printer *p = n->p;
  const kir_root *root = &n->sweep->roots.data[index];
  if (crosses_team(n, root)) {
    close_total(n, index, outer);
    return;
  }
  text_point point = *outer;
  uint32_t tiles = tiles_before(n, depth), scopes = open_points(n, tiles, &point);
  const char *sum = text_format(p, "%s[%s]%s", n->sums[index], point_number(n, tiles),
                                is_vector(n, root) ? "[e]" : "");
  const char *total = text_finish(p, root->value, sum);
  if (is_vector(n, root)) {
    const char *name = text_name(p, BASE_STR("total"));
    text_element(p, "const float %s = %s;", name, total);
    store_result(n, root->value, &point, (text_term){name, true, true, text_top(p)});
  } else {
    store_result(n, root->value, &point, (text_term){total, false, false, text_top(p)});
  }
  text_end_elements(p);
  text_close_all(p, scopes);
}

// ---- sweeps that end a launch -------------------------------------------------------------------

bool text_ends_launch(const text_printer *p, const kir_sweep *sweep) {
  if (!p->kernel->team.stepped || sweep->scalar || sweep->phase != KIR_BODY) return false;
  nest n = {.sweep = sweep};
  for (uint32_t i = 0; i < sweep->roots.count; i++)
    if (crosses_team(&n, &sweep->roots.data[i])) return true;
  return false;
}

// Each block's totals of the sums that end at `depth` to memory (TEXT_SUMS), or those of all blocks
// back (TEXT_JOIN).
static void pass_partials(nest *n, uint32_t depth) {
  text_printer *p = n->p;
  const kir_team *team = &p->kernel->team;
  size_t offset = n->sweep->partials;
  for (uint32_t i = 0; i < n->sweep->roots.count; i++) {
    const kir_root *root = &n->sweep->roots.data[i];
    if (!ends_at(n, root, depth)) continue;
    int64_t points = points_of_root(n, i);
    if (p->half == TEXT_SUMS) {
      const char *total;
      text_open(p, text_format(p, "if (thread < %d)", WARP));
      uint32_t scopes = open_totals(n, i, &total);
      text_line(p, text_top(p), "fm_store_kept((float *)(partials + %zu) + i, %s);", offset, total);
      text_close_all(p, scopes + 1);
    } else {
      const char *name = text_name(p, BASE_STR("totals"));
      n->totals[i] = (totals){.name = name, .all = points};
      text_line(
          p, text_top(p),
          "auto %s = fm_join_partials<%s, %u, %lld>((const float *)(row_partials + %zu), %zu);",
          name, is_largest(n, root) ? "fm_op_max" : "fm_op_sum", p->split, (long long)points,
          offset, team->memory_bytes + team->partial_bytes);
    }
    offset += kir_align((size_t)points * sizeof(float));
  }
}

// What follows the sums of a sweep whose loops outside the lanes are whole tiles.
static void join_sweep(nest *n) {
  text_printer *p = n->p;
  const kir_sweep *sweep = n->sweep;
  text_point point = p->rows;
  for (uint32_t depth = 0; depth <= (uint32_t)sweep->lane; depth++) {
    pass_partials(n, depth);
    for (uint32_t i = 0; i < sweep->roots.count; i++)
      if (ends_at(n, &sweep->roots.data[i], depth)) close_root(n, i, depth, &point);
    int64_t size = p->kernel->axes[sweep->loops[depth].index].size;
    text_index zero = {"0", 0, 1, 0, NULL};
    if ((int32_t)depth == sweep->lane) break;
    n->tiles[n->tile_count++] = (tile){.axis = sweep->loops[depth], .base = zero, .count = size};
  }
}

// ---- the nest -----------------------------------------------------------------------------------

static void step(nest *n, const text_point *point) {
  text_printer *p = n->p;
  for (uint32_t i = 0; i < n->sweep->roots.count; i++) {
    const kir_root *root = &n->sweep->roots.data[i];
    if (root->accumulates) {
      const char *number = point_number(n, tiles_before(n, root->depth));
      text_reduce(p, root->value, point,
                  text_format(p, "%s[%s]%s", n->sums[i], number, is_vector(n, root) ? "[e]" : ""),
                  is_vector(n, root) || crosses_team(n, root));
      continue;
    }
    bool alone = n->sweep->roots.count == 1 && text_store_rounds(p, root->value);
    p->rounded_by_store = alone ? root->value.index + 1 : 0;
    text_term term = text_definition(p, root->value, point);
    p->rounded_by_store = 0;
    if (!alone) text_remember(p, root->value, point, term);
    store_result(n, root->value, point, term);
  }
  text_end_elements(p);
}

// All points of the tiles from the `depth`th on. A tile that is a whole axis is cut where the
// operands of concats meet, so that each piece reads one of them.
static void step_tiles(nest *n, uint32_t depth, const text_point *point) {
  if (depth == n->tile_count) {
    step(n, point);
    return;
  }
  text_printer *p = n->p;
  tile whole = n->tiles[depth];
  const kir_axis *axis = &p->kernel->axes[whole.axis.index];
  int64_t low = 0;
  for (uint32_t i = 0; i <= axis->breaks.count; i++) {
    bool cut = whole.count == axis->size && n->concats && !text_is_tiled(p, whole.axis);
    int64_t high = cut && i < axis->breaks.count ? axis->breaks.data[i] : whole.count;
    text_point inner = *point;
    tile *piece = &n->tiles[depth];
    if (cut)
      piece->base = (text_index){text_format(p, "%lld", (long long)low), low, low + 1, 0, NULL};
    piece->count = high - low;
    uint32_t scopes = open_tile(p, piece, &inner);
    if (cut) piece->offset = inner.index[whole.axis.index].text;
    piece->count = whole.count;
    step_tiles(n, depth + 1, &inner);
    text_close_all(p, scopes);
    low = high;
    if (!cut) break;
  }
  n->tiles[depth] = whole;
}

static void walk(nest *n, uint32_t depth, const text_point *point);

// low .. high of a loop outside the lanes in tiles, then what is left over in one smaller tile.
static void walk_range(nest *n, uint32_t depth, const text_point *point, int64_t low,
                       int64_t high) {
  text_printer *p = n->p;
  ir_axis axis = n->sweep->loops[depth];
  int64_t size = kir_tile(p->kernel, n->sweep, depth), whole = low + (high - low) / size * size;
  int64_t parts[2][3] = {{low, whole, size}, {whole, high, high - whole}};
  for (int i = 0; i < 2; i++) {
    int64_t begin = parts[i][0], end = parts[i][1], count = parts[i][2];
    if (begin >= end) continue;
    uint32_t opened;
    bool unroll = text_indexes_registers(p, axis);
    text_index base = text_loop(p, axis, begin, end, count, unroll, &opened);
    base.high = opened ? high : begin + 1;
    text_point inner = *point;
    if (count > 1) {
      n->tiles[n->tile_count++] = (tile){.axis = axis, .base = base, .count = count};
    } else {
      text_set_axis(p, &inner, axis, base, false);
      text_compose(p, &inner);
    }
    walk(n, depth + 1, &inner);
    if (count > 1) n->tile_count--;
    text_close_all(p, opened);
  }
}

// The chain's sources: just those of its tile.
static void walk_chain(nest *n, uint32_t depth, const text_point *point) {
  text_printer *p = n->p;
  n->tiles[n->tile_count++] =
      (tile){.axis = n->sweep->loops[depth], .base = p->base, .count = p->count};
  walk(n, depth + 1, point);
  n->tile_count--;
}

static void walk(nest *n, uint32_t depth, const text_point *point) {
  text_printer *p = n->p;
  const kir_sweep *sweep = n->sweep;
  open_roots(n, depth);
  if (depth < sweep->loop_count && (int32_t)sweep->loops[depth].index == p->shared_out) {
    walk(n, depth + 1, point); // the blocks' loop has set it
    return;
  }
  if (depth == sweep->loop_count) {
    step_tiles(n, 0, point);
  } else if ((int32_t)depth == sweep->lane) {
    text_point inner = *point;
    uint32_t scopes = text_open_lanes(p, sweep->loops[depth], sweep->single, &inner);
    walk(n, depth + 1, &inner);
    text_close_all(p, scopes);
  } else if (text_is_tiled(p, sweep->loops[depth])) {
    walk_chain(n, depth, point);
  } else {
    const kir_axis *axis = &p->kernel->axes[sweep->loops[depth].index];
    bool whole = !n->concats || kir_tile(p->kernel, sweep, depth) == axis->size;
    int64_t low = 0;
    for (uint32_t i = 0; i <= axis->breaks.count && low < axis->size; i++) {
      int64_t high = !whole && i < axis->breaks.count ? axis->breaks.data[i] : axis->size;
      walk_range(n, depth, point, low, high);
      low = high;
    }
  }
  text_end_elements(p);
  cross_team(n, depth, false);
  cross_team(n, depth, true);
  if (p->half == TEXT_SUMS) pass_partials(n, depth);
  for (uint32_t i = 0; i < sweep->roots.count; i++) {
    const kir_root *root = &sweep->roots.data[i];
    bool later = p->half == TEXT_SUMS && crosses_team(n, root);
    if (root->accumulates && root->depth == depth && !later) close_root(n, i, depth, point);
  }
}

static void row_sweep(text_printer *p, const kir_sweep *sweep) {
  nest n = {.p = p, .sweep = sweep};
  n.sums = base_new_array(p->arena, const char *, sweep->roots.count);
  n.totals = base_new_array(p->arena, totals, sweep->roots.count);
  for (uint32_t i = 0; i < sweep->roots.count; i++)
    n.concats |= text_meets_concat(p, sweep->roots.data[i].value);
  p->vector = sweep->single ? 1 : p->kernel->team.vector;
  text_point point = p->rows;
  if (p->half == TEXT_JOIN)
    join_sweep(&n);
  else
    walk(&n, 0, &point);
  p->vector = 1;
}

void text_sweep(text_printer *p, const kir_sweep *sweep) {
  if (sweep->scalar || sweep->lane < 0)
    text_scalars(p, sweep);
  else
    row_sweep(p, sweep);
}
