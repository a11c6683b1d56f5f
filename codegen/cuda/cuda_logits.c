// What the product of a logits kernel is (see cuda_logits.h), and how tensor cores are set to it.
#include "codegen/cuda/cuda_logits.h"

#include "codegen/cuda/text.h"

enum {
  MOST_SOURCES = 4096,
  PIECE = 8,   // elements that are read at once
  STEP = 64,   // elements of a stage
  BLOCK = 128, // rows of a block
  MOST_TILES = 8,
  MOST_STAGES = 4,
  JOIN_THREADS = 256,
};

// ---- where rows are -----------------------------------------------------------------------------

typedef struct tracing {
  base_arena *arena;
  const kir_kernel *kernel;
  const ir_graph *graph;
  cuda_logits *out;
  int64_t index[IR_SET_AXES];
  ir_axis inner; // the axis that carries the elements of a row
} tracing;

static const ir_type *type_of(const tracing *t, ir_value value) {
  return &ir_node_of(t->graph, value)->type;
}

static int64_t size_of(const tracing *t, ir_axis axis) {
  return ir_axis_size(t->graph, axis);
}

// Which operand of a concat has index *i; that of the operand's own axis in its place.
static ir_value find_operand(const tracing *t, const ir_node *node, int64_t *i) {
  uint32_t j = 0;
  for (; j + 1 < node->operand_count; j++) {
    bool has = ir_type_has(type_of(t, node->operands[j]), node->over[0]);
    int64_t size = has ? size_of(t, node->over[0]) : 1;
    if (*i < size) break;
    *i -= size;
  }
  return node->operands[j];
}

// One index from those of several axes, outermost first, and back.
static int64_t join_index(const tracing *t, uint32_t count, const ir_axis *axes) {
  int64_t joined = 0;
  for (uint32_t i = 0; i < count; i++)
    joined = joined * size_of(t, axes[i]) + t->index[axes[i].index];
  return joined;
}

static void split_index(tracing *t, int64_t joined, uint32_t count, const ir_axis *axes) {
  for (uint32_t i = count; i-- > 0;) {
    t->index[axes[i].index] = joined % size_of(t, axes[i]);
    joined /= size_of(t, axes[i]);
  }
}

// Rows must stay rows: a view may cut them or be of their innermost factor, but not join any.
static bool carry_inner(tracing *t, const ir_node *node) {
  for (uint32_t i = 0; i < node->to_count; i++) {
    if (node->to[i].index != t->inner.index) continue;
    bool kept = node->op == IR_SLICE || node->op == IR_RENAME ||
                (node->op == IR_SPLIT_AXIS && i + 1 == node->to_count);
    t->inner = node->over[0];
    return kept;
  }
  return true;
}

// From the indices of `value` to an argument and those of its axes. False: rows are not contiguous.
static bool trace(tracing *t, ir_value value, rt_source *out) {
  while (t->kernel->values[value.index].load_arg < 0) {
    const ir_node *node = ir_node_of(t->graph, value);
    if (!carry_inner(t, node)) return false;
    value = node->operands[0];
    int64_t i = join_index(t, node->to_count, node->to);
    if (node->op == IR_CONCAT) value = find_operand(t, node, &i);
    split_index(t, i + node->start, node->over_count, node->over);
  }
  const ir_type *type = type_of(t, value);
  const kir_arg *arg = &t->kernel->args.data[t->kernel->values[value.index].load_arg];
  *out = (rt_source){.arg = (uint32_t)t->kernel->values[value.index].load_arg};
  for (uint32_t i = 0; i < type->rank; i++)
    out->index[i] = t->index[type->axes[i].index];
  int unit = arg->unit_position;
  return unit >= 0 && type->axes[unit].index == t->inner.index && out->index[unit] % PIECE == 0;
}

// ---- axes ---------------------------------------------------------------------------------------

static void add_axis(cuda_axes *axes, ir_axis axis) {
  axes->axis[axes->count++] = axis;
}

static int64_t count_indices(const tracing *t, const cuda_axes *axes) {
  int64_t count = 1;
  for (uint32_t i = 0; i < axes->count; i++)
    if (__builtin_mul_overflow(count, size_of(t, axes->axis[i]), &count)) return INT64_MAX;
  return count;
}

// Axes that views name, and those that have a pointer for each index: their sources are told apart
// one by one.
static uint64_t find_source_axes(const tracing *t) {
  uint64_t set = 0;
  for (uint32_t i = 0; i < t->graph->nodes.count; i++) {
    const ir_node *node = &t->graph->nodes.data[i];
    if (node->kernel == t->kernel->index && node->op != IR_DOT)
      set |= ir_axes_set(node->over_count, node->over) | ir_axes_set(node->to_count, node->to);
  }
  for (uint32_t i = 0; i < t->kernel->args.count; i++)
    if (t->kernel->args.data[i].sliced)
      set |= ir_axis_bit(type_of(t, t->kernel->args.data[i].value)->axes[0]);
  return set;
}

// The kernel is this dot and views of its first operand, or its second; which one in *rows.
static const ir_node *find_dot(const kir_kernel *kernel, uint32_t *rows) {
  const ir_node *dot = NULL;
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++) {
    const ir_node *node = &kernel->graph->nodes.data[i];
    if (node->kernel != kernel->index || (ir_op_get(node->op)->facts & IR_FACT_VIEW)) continue;
    if (dot || node->op != IR_DOT || node->over_count != 1 || node->type.dtype != IR_F32)
      return NULL;
    dot = node;
  }
  for (uint32_t i = 0; dot && i < 2; i++) {
    const ir_type *type = &ir_node_of(kernel->graph, dot->operands[1 - i])->type;
    bool last = type->axes[type->rank - 1].index == dot->over[0].index;
    bool in_memory = kernel->values[dot->operands[1 - i].index].load_arg >= 0;
    uint64_t shared =
        ir_type_axes(type) & ir_type_axes(&ir_node_of(kernel->graph, dot->operands[i])->type);
    *rows = i;
    if (in_memory && last && type->rank > 1 && shared == ir_axis_bit(dot->over[0])) return dot;
  }
  return NULL;
}

static bool find_axes(const tracing *t, const ir_node *dot, uint32_t rows) {
  cuda_logits *out = t->out;
  const ir_type *row_type = type_of(t, dot->operands[rows]);
  const ir_type *query_type = type_of(t, dot->operands[1 - rows]);
  uint64_t sources = find_source_axes(t);
  for (uint32_t i = 0; i < row_type->rank; i++) {
    ir_axis axis = row_type->axes[i];
    if (axis.index == dot->over[0].index) continue;
    add_axis(sources & ir_axis_bit(axis) ? &out->source_axes : &out->tokens, axis);
  }
  for (uint32_t i = 0; i + 1 < query_type->rank; i++)
    add_axis(&out->queries, query_type->axes[i]);
  int64_t source_count = count_indices(t, &out->source_axes);
  int64_t query_count = count_indices(t, &out->queries), depth = size_of(t, dot->over[0]);
  out->source_count = (uint32_t)source_count;
  out->query_count = (uint32_t)query_count;
  out->depth = (uint32_t)depth;
  return source_count > 0 && source_count <= MOST_SOURCES && query_count > 0 &&
         query_count <= INT16_MAX && depth > 0 && depth <= INT32_MAX / 4 && depth % PIECE == 0;
}

static bool trace_sources(tracing *t, ir_value rows, ir_axis over) {
  rt_source *sources = base_new_array(t->arena, rt_source, t->out->source_count);
  for (uint32_t i = 0; i < t->out->source_count; i++) {
    for (uint32_t j = 0; j < IR_SET_AXES; j++)
      t->index[j] = 0;
    split_index(t, i, t->out->source_axes.count, t->out->source_axes.axis);
    t->inner = over;
    if (!trace(t, rows, &sources[i])) return false;
  }
  t->out->sources = sources;
  return true;
}

// ---- tensor cores -------------------------------------------------------------------------------

static uint32_t ceil_div(uint32_t a, uint32_t b) {
  return (a + b - 1) / b;
}

static size_t stage_bytes(const cuda_logits *l) {
  return BLOCK * STEP * 2 + (size_t)l->query_tiles * l->parts * 1024;
}

// Queries in as few equal groups as sums fit in registers; with few of them a warp takes twice the
// rows, so that it reads each query half as often.
static void set_tiles(cuda_logits *l, const cuda_arch *arch) {
  uint32_t tiles = ceil_div(l->query_count, 8);
  l->groups = ceil_div(tiles, MOST_TILES);
  l->query_tiles = ceil_div(tiles, l->groups);
  l->row_tiles = l->query_tiles <= MOST_TILES / 2 ? 2 : 1;
  l->warps = BLOCK / 16 / l->row_tiles;
  l->stages = MOST_STAGES;
  while (l->stages > 2 && l->stages * stage_bytes(l) > arch->shared_per_block)
    l->stages--;
}

bool cuda_logits_is(const kir_kernel *kernel) {
  uint32_t rows;
  const ir_node *dot = find_dot(kernel, &rows);
  if (!dot) return false;
  ir_dtype dtype = ir_node_of(kernel->graph, dot->operands[rows])->type.dtype;
  return dtype == IR_BF16 || dtype == IR_F16 || (dtype == IR_F32 && kernel->schedule.logits == 2);
}

const cuda_logits *cuda_logits_create(base_arena *arena, const kir_kernel *kernel,
                                      const cuda_arch *arch) {
  uint32_t rows;
  if (!cuda_logits_is(kernel)) return NULL;
  const ir_node *dot = find_dot(kernel, &rows);
  cuda_logits *out = base_new(arena, cuda_logits);
  tracing t = {.arena = arena, .kernel = kernel, .graph = kernel->graph, .out = out};
  ir_value queries = dot->operands[1 - rows];
  ir_dtype query_dtype = type_of(&t, queries)->dtype;
  out->kernel = kernel;
  out->kind = kernel->schedule.logits == 2 ? RT_FORM_MATMUL : RT_FORM_KERNEL;
  out->dtype = type_of(&t, dot->operands[rows])->dtype;
  out->query_arg = (uint32_t)kernel->values[queries.index].load_arg;
  out->result_arg = (uint32_t)kernel->values[dot - kernel->graph->nodes.data].store_arg;
  bool whole = out->dtype == IR_F32 || out->dtype == query_dtype;
  out->parts = whole ? 1 : out->dtype == IR_BF16 ? 3 : 2; // bits: 3 * 8, 2 * 11
  out->scaled = out->dtype == IR_F16 && !whole;
  if (!find_axes(&t, dot, rows) || !trace_sources(&t, dot->operands[rows], dot->over[0]))
    return NULL;
  set_tiles(out, arch);
  return out;
}

// ---- forms --------------------------------------------------------------------------------------

size_t cuda_logits_unscale_offset(const cuda_logits *l) {
  size_t rows = l->kind == RT_FORM_MATMUL ? l->query_count : l->groups * l->query_tiles * 8;
  size_t depth = l->kind == RT_FORM_MATMUL ? l->depth : ceil_div(l->depth, STEP) * STEP;
  return kir_align(rows * depth * l->parts * ir_dtype_size(l->dtype));
}

size_t cuda_logits_prepared_bytes(const cuda_logits *l) {
  size_t queries = l->scaled ? l->groups * l->query_tiles * 8 : 0;
  return cuda_logits_unscale_offset(l) + kir_align(queries * sizeof(float));
}

static const rt_product *make_product(base_arena *arena, const cuda_logits *l) {
  rt_product *product = base_new(arena, rt_product);
  rt_source *sources = base_new_array(arena, rt_source, l->source_count);
  for (uint32_t i = 0; i < l->source_count; i++)
    sources[i] = l->sources[i];
  *product = (rt_product){.dtype = (rt_dtype)l->dtype,
                          .n = (int64_t)l->parts * l->query_count,
                          .k = l->depth,
                          .token_count = l->tokens.count,
                          .source_count = l->source_count,
                          .sources = sources};
  for (uint32_t i = 0; i < l->tokens.count; i++)
    product->tokens[i] = l->tokens.axis[i].index;
  return product;
}

// Pairs of a source and a token for each index of the dynamic axes.
static int64_t fixed_pairs(const cuda_logits *l) {
  int64_t pairs = l->source_count;
  for (uint32_t i = 0; i < l->tokens.count; i++) {
    int64_t size = ir_axis_size(l->kernel->graph, l->tokens.axis[i]);
    if (size != IR_DYNAMIC) pairs *= size;
  }
  return pairs;
}

rt_form cuda_logits_form(base_arena *arena, const cuda_logits *l, const char *name) {
  rt_form form = {.kind = l->kind,
                  .function = base_str_copy(arena, base_str_from(name)).data,
                  .prepare = base_str_format(arena, "%s_prepare", name).data,
                  .alignment = PIECE * 2,
                  .cluster = 1,
                  .persistent = l->kernel->schedule.persistent != 0,
                  .programmatic = l->kernel->schedule.programmatic != 0,
                  .prepared_bytes = cuda_logits_prepared_bytes(l)};
  if (l->kind == RT_FORM_MATMUL) {
    form.product = make_product(arena, l);
    form.prepare_blocks = l->query_count;
    form.threads = form.rows_per_block = JOIN_THREADS;
    form.items = fixed_pairs(l) * l->query_count;
    form.shared_bytes = JOIN_THREADS / 32 * sizeof(float); // for the largest of a query
  } else {
    form.prepare_blocks = l->groups * l->query_tiles * 8;
    form.threads = 32 * l->warps;
    form.rows_per_block = BLOCK;
    form.items = fixed_pairs(l) * l->groups;
    form.shared_bytes = l->stages * stage_bytes(l);
  }
  return form;
}

// ---- report -------------------------------------------------------------------------------------

void cuda_logits_describe(const cuda_logits *l, base_text *out) {
  if (l->kind == RT_FORM_MATMUL)
    base_text_printf(out, "\n  logits: by cuBLASLt, %u %s columns, added up by a kernel after it\n",
                     l->parts * l->query_count, ir_dtype_name(l->dtype));
  else
    base_text_printf(out,
                     "\n  logits: by tensor cores, %u pairs of a source and a token and %u queries "
                     "a block, %u parts, %u stages\n",
                     BLOCK, l->query_tiles * 8, l->parts, l->stages);
}

// Blocks read all queries again, and rows once for each group of queries; a library's products are
// written and read.
double cuda_logits_reread_per_row(const cuda_logits *l) {
  double pairs = (double)fixed_pairs(l);
  for (uint32_t i = 0; i < l->kernel->row_count; i++) {
    int64_t size = ir_axis_size(l->kernel->graph, l->kernel->rows[i]);
    if (size != IR_DYNAMIC) pairs /= (double)size;
  }
  if (l->kind == RT_FORM_MATMUL) return pairs * 2 * sizeof(float) * l->parts * l->query_count;
  double row = (double)l->depth * (double)ir_dtype_size(l->dtype);
  double queries = (double)l->groups * l->query_tiles * 8 * l->parts * row;
  return pairs * ((l->groups - 1) * row + queries / BLOCK);
}
