// The text of a logits kernel (cuda_logits.h): where rows, queries and results are, and the kernels
// around what prelude_logits.cuh does.
#include <string.h>

#include "codegen/cuda/cuda_logits.h"
#include "codegen/cuda/text.h"

typedef struct logits_text {
  const cuda_logits *logits;
  const ir_graph *graph;
  base_arena *arena;
  text_printer *p; // for names
  const char *name;
  base_text *out;
} logits_text;

static const ir_type *type_of(const logits_text *t, uint32_t arg) {
  return &ir_node_of(t->graph, t->logits->kernel->args.data[arg].value)->type;
}

// "a.v_T": bytes from one index of that position to the next.
static const char *stride_name(const logits_text *t, uint32_t arg, uint32_t position) {
  uint32_t number = kir_first_stride(t->logits->kernel, arg) + position;
  return base_str_format(t->arena, "a.%s", t->p->stride_names[number]).data;
}

// ---- indices ------------------------------------------------------------------------------------

static const char *size_text(const logits_text *t, ir_axis axis) {
  int64_t size = ir_axis_size(t->graph, axis);
  if (size != IR_DYNAMIC) return base_str_format(t->arena, "%lld", (long long)size).data;
  return base_str_format(t->arena, "a.%s", t->p->size_names[axis.index]).data;
}

static const char *sizes_text(const logits_text *t, const cuda_axes *axes) {
  base_text product = {.arena = t->arena};
  for (uint32_t i = 0; i < axes->count; i++)
    base_text_printf(&product, "%s%s", i ? " * " : "", size_text(t, axes->axis[i]));
  return product.length ? product.data : "1";
}

// The index of `axis` among `axes`, which `joined` counts together, the last one fastest.
static const char *index_text(const logits_text *t, const cuda_axes *axes, ir_axis axis,
                              const char *joined) {
  base_text text = {.arena = t->arena};
  uint32_t at = 0;
  while (axes->axis[at].index != axis.index)
    at++;
  base_text_printf(&text, "%s", joined);
  for (uint32_t i = at + 1; i < axes->count; i++)
    base_text_printf(&text, " / %s", size_text(t, axes->axis[i]));
  if (at > 0) base_text_printf(&text, " %% %s", size_text(t, axes->axis[at]));
  return text.data;
}

static bool holds(const cuda_axes *axes, ir_axis axis) {
  for (uint32_t i = 0; i < axes->count; i++)
    if (axes->axis[i].index == axis.index) return true;
  return false;
}

static const kir_arg *arg_of(const logits_text *t, uint32_t arg) {
  return &t->logits->kernel->args.data[arg];
}

// " + index * stride" for each position that one of `axes` counts, and that has no pointers.
static void add_terms(const logits_text *t, uint32_t arg, const cuda_axes *axes, const char *joined,
                      base_text *sum) {
  const ir_type *type = type_of(t, arg);
  for (uint32_t i = arg_of(t, arg)->sliced ? 1 : 0; i < type->rank; i++)
    if (holds(axes, type->axes[i]))
      base_text_printf(sum, "%s%s * %s", sum->length ? " + " : "",
                       index_text(t, axes, type->axes[i], joined), stride_name(t, arg, i));
}

// ---- rows ---------------------------------------------------------------------------------------

// Sources from `first` on that lie one step apart, all in one argument.
static uint32_t count_run(const logits_text *t, uint32_t first, int64_t *step) {
  const rt_source *sources = t->logits->sources;
  uint32_t rank = type_of(t, sources[first].arg)->rank, count = 1;
  memset(step, 0, IR_MAX_RANK * sizeof *step);
  for (; first + count < t->logits->source_count; count++) {
    const rt_source *a = &sources[first + count - 1], *b = a + 1;
    if (a->arg != b->arg) break;
    bool alike = true;
    for (uint32_t i = 0; i < rank; i++)
      alike &= count == 1 || b->index[i] - a->index[i] == step[i];
    if (!alike) break;
    for (uint32_t i = 0; i < rank; i++)
      step[i] = b->index[i] - a->index[i];
  }
  return count;
}

// index + (source - first) * step
static const char *stepped(const logits_text *t, int64_t index, int64_t step, uint32_t first) {
  long long base = (long long)(index - (int64_t)first * step);
  if (step == 0) return base_str_format(t->arena, "%lld", (long long)index).data;
  const char *scaled =
      step == 1 ? "source" : base_str_format(t->arena, "source * %lld", (long long)step).data;
  if (base == 0) return scaled;
  return base_str_format(t->arena, "(%s %c %lld)", scaled, base < 0 ? '-' : '+',
                         base < 0 ? -base : base)
      .data;
}

static void print_run(const logits_text *t, uint32_t first, uint32_t count, const int64_t *step) {
  const rt_source *source = &t->logits->sources[first];
  const ir_type *type = type_of(t, source->arg);
  const kir_arg *arg = arg_of(t, source->arg);
  base_text sum = {.arena = t->arena};
  for (uint32_t i = arg->sliced ? 1 : 0; i < type->rank; i++) {
    const char *index = stepped(t, source->index[i], step[i], first);
    if (strcmp(index, "0") == 0) continue;
    if ((int32_t)i == arg->unit_position)
      base_text_printf(&sum, "%s%s * %zu", sum.length ? " + " : "", index,
                       ir_dtype_size(type->dtype));
    else
      base_text_printf(&sum, "%s%s * %s", sum.length ? " + " : "", index,
                       stride_name(t, source->arg, i));
  }
  add_terms(t, source->arg, &t->logits->tokens, "token", &sum);
  base_text_printf(t->out, "  ");
  if (first + count < t->logits->source_count)
    base_text_printf(t->out, "if (source < %u) ", first + count);
  base_text_printf(t->out, "return fm_at(a.%s", t->p->arg_names[source->arg]);
  if (arg->sliced) base_text_printf(t->out, "[%s]", stepped(t, source->index[0], step[0], first));
  base_text_printf(t->out, ", %s);\n", sum.length ? sum.data : "0");
}

static void print_rows(const logits_text *t) {
  const char *type = text_type(t->logits->dtype);
  base_text_printf(t->out,
                   "// Where the row of a source and a token begins.\n"
                   "FM_DEVICE const %s *%s_row(const %s_args &a, int source, long long token) {\n",
                   type, t->name, t->name);
  for (uint32_t first = 0, count; first < t->logits->source_count; first += count) {
    int64_t step[IR_MAX_RANK];
    count = count_run(t, first, step);
    print_run(t, first, count, step);
  }
  base_text_printf(t->out, "}\n\n");
}

// ---- queries and results ------------------------------------------------------------------------

static void print_queries(const logits_text *t) {
  const cuda_logits *l = t->logits;
  const ir_type *type = type_of(t, l->query_arg);
  const char *slice = "";
  if (arg_of(t, l->query_arg)->sliced)
    slice =
        base_str_format(t->arena, "[%s]", index_text(t, &l->queries, type->axes[0], "query")).data;
  base_text sum = {.arena = t->arena};
  add_terms(t, l->query_arg, &l->queries, "query", &sum);
  base_text_printf(t->out,
                   "// Where a query begins.\n"
                   "FM_DEVICE const %s *%s_query(const %s_args &a, int query) {\n"
                   "  return fm_at(a.%s%s, %s);\n}\n\n",
                   text_type(type->dtype), t->name, t->name, t->p->arg_names[l->query_arg], slice,
                   sum.length ? sum.data : "0");
}

static void print_results(const logits_text *t) {
  const cuda_logits *l = t->logits;
  base_text pair = {.arena = t->arena}, query = {.arena = t->arena};
  add_terms(t, l->result_arg, &l->source_axes, "source", &pair);
  add_terms(t, l->result_arg, &l->tokens, "token", &pair);
  add_terms(t, l->result_arg, &l->queries, "query", &query);
  base_text_printf(t->out,
                   "// Where the logits of a source and a token are, and how far on that of a "
                   "query.\n"
                   "FM_DEVICE float *%s_logits(const %s_args &a, int source, long long token) {\n"
                   "  return fm_at(a.%s, %s);\n}\n"
                   "FM_DEVICE long long %s_logit(const %s_args &a, int query) {\n"
                   "  return %s;\n}\n\n",
                   t->name, t->name, t->p->arg_names[l->result_arg], pair.length ? pair.data : "0",
                   t->name, t->name, query.data);
}

// ---- kernels ------------------------------------------------------------------------------------

static void begin_kernel(const logits_text *t, const char *suffix, uint32_t threads,
                         long long blocks) {
  base_text_printf(t->out,
                   "extern \"C\" __global__ void __launch_bounds__(%u, %lld)\n"
                   "%s%s(const __grid_constant__ %s_args a) {\n",
                   threads, blocks, t->name, suffix, t->name);
  if (t->logits->kernel->schedule.programmatic)
    base_text_printf(t->out, "  fm_wait_prior_grid();\n");
}

static void end_kernel(const logits_text *t, const char *suffix) {
  if (t->logits->kernel->schedule.programmatic)
    base_text_printf(t->out, "  fm_launch_dependents();\n");
  base_text_printf(t->out, "}\nFM_ENTRY(%s%s, %s_args)\n", t->name, suffix, t->name);
}

static void print_prepare(const logits_text *t, const rt_form *form) {
  const cuda_logits *l = t->logits;
  const char *type = text_type(l->dtype);
  const char *from_type = text_type(type_of(t, l->query_arg)->dtype);
  bool rows = l->kind == RT_FORM_MATMUL, padded = form->prepare_blocks > l->query_count;
  uint32_t depth = rows ? l->depth : (l->depth + 63) / 64 * 64;
  base_text_printf(t->out, "// Splits the queries, a block each%s.\n",
                   padded ? "; those behind the last are zeros" : "");
  begin_kernel(t, "_prepare", form->threads, 1);
  base_text_printf(t->out, "  for (int query = fm_block(); query < %u; query += fm_blocks()) {\n",
                   form->prepare_blocks);
  base_text_printf(t->out, "    const %s *const from = ", from_type);
  if (padded) base_text_printf(t->out, "query >= %u ? nullptr : ", l->query_count);
  base_text_printf(t->out, "%s_query(a, query);\n", t->name);
  if (rows)
    base_text_printf(t->out, "    const fm_query_rows<%s, %u> to", type, l->query_count);
  else
    base_text_printf(t->out, "    const fm_query_fragments<%s, %u, %u> to", type, l->query_tiles,
                     l->parts);
  base_text_printf(t->out, " = {(%s *)a.workspace, query, %u};\n", type, depth);
  if (l->scaled)
    base_text_printf(t->out, "    float *const unscale = (float *)(a.workspace + %zu) + query;\n",
                     cuda_logits_unscale_offset(l));
  base_text_printf(t->out, "    fm_split_query<%s, %u, %u>(from, %u, %u, to, %s);\n  }\n", type,
                   l->parts, form->threads, l->depth, depth, l->scaled ? "unscale" : "nullptr");
  end_kernel(t, "_prepare");
  base_text_printf(t->out, "\n");
}

static const char *unscaled(const logits_text *t, const char *logit) {
  if (!t->logits->scaled) return logit;
  return base_str_format(t->arena, "%s * fm_load_coherent(unscale + query)", logit).data;
}

static void print_unscale(const logits_text *t) {
  if (t->logits->scaled)
    base_text_printf(t->out, "  const float *const unscale = (const float *)(a.workspace + %zu);\n",
                     cuda_logits_unscale_offset(t->logits));
}

static void print_pairs(const logits_text *t) {
  base_text_printf(t->out, "  const long long tokens = %s, pairs = %u * tokens;\n",
                   sizes_text(t, &t->logits->tokens), t->logits->source_count);
}

// A tile's rows are set, summed up and stored.
static void print_tile_body(const logits_text *t) {
  const cuda_logits *l = t->logits;
  size_t group_bytes = (size_t)((l->depth + 63) / 64) * l->query_tiles * l->parts * 1024;
  base_text_printf(t->out,
                   "    tile t;\n"
                   "#pragma unroll\n"
                   "    for (int i = 0; i < tile::COPIED; i++) {\n"
                   "      const long long pair = first + tile::copied_row(i);\n"
                   "      t.row[i] = pair < pairs ? %s_row(a, pair / tokens, pair %% tokens) "
                   ": nullptr;\n"
                   "    }\n",
                   t->name);
  const char *queries =
      l->groups > 1 ? base_str_format(t->arena, "a.workspace + %zull * group", group_bytes).data
                    : "a.workspace";
  base_text_printf(
      t->out,
      "    t.run((char *)fm_shared(), %s, first + tile::first_row() < pairs);\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < tile::OWNED; i++) {\n"
      "      const long long pair = first + tile::owned_row(i);\n"
      "      if (pair >= pairs) continue;\n"
      "      float *const z = %s_logits(a, pair / tokens, pair %% tokens);\n"
      "#pragma unroll\n"
      "      for (int j = 0; j < tile::OWNED_QUERIES; j++) {\n"
      "        const int query = %stile::owned_query(j);\n"
      "        if (query < %u) fm_store_kept(fm_at(z, %s_logit(a, query)), %s);\n"
      "      }\n"
      "    }\n",
      queries, t->name,
      l->groups > 1 ? base_str_format(t->arena, "%u * group + ", l->query_tiles * 8).data : "",
      l->query_count, t->name, unscaled(t, "t.sum(i, j)"));
}

static void print_tiles(const logits_text *t, const rt_form *form) {
  const cuda_logits *l = t->logits;
  int64_t asked = l->kernel->schedule.blocks;
  const char *groups = l->groups > 1 ? base_str_format(t->arena, " * %u", l->groups).data : "";
  base_text_printf(t->out,
                   "// A block takes %u pairs of a source and a token at a time, and %u queries: "
                   "%u warps with\n// %u of the pairs each.\n",
                   form->rows_per_block, l->query_tiles * 8, l->warps, 16 * l->row_tiles);
  begin_kernel(t, "", form->threads, asked ? (long long)asked : l->warps > 4 ? 1 : 2);
  base_text_printf(t->out, "  using tile = fm_logit_tile<%s, %u, %u, %u, %u, %u, %u>;\n",
                   text_type(l->dtype), l->depth, l->warps, l->row_tiles, l->query_tiles, l->parts,
                   l->stages);
  print_unscale(t);
  print_pairs(t);
  base_text_printf(t->out,
                   "  const long long tiles = (pairs + tile::ROWS - 1) / tile::ROWS;\n"
                   "  for (long long item = fm_block(); item < tiles%s; item += fm_blocks()) {\n",
                   groups);
  if (l->groups > 1)
    base_text_printf(t->out,
                     "    const long long first = item / %u * tile::ROWS;\n"
                     "    const int group = item %% %u; // of queries\n",
                     l->groups, l->groups);
  else
    base_text_printf(t->out, "    const long long first = item * tile::ROWS;\n");
  print_tile_body(t);
  base_text_printf(t->out, "  }\n");
  end_kernel(t, "");
}

// Adds up the library's products with the parts of a query, and puts logits in their places.
static void print_join(const logits_text *t, const rt_form *form) {
  const cuda_logits *l = t->logits;
  size_t products = (cuda_logits_prepared_bytes(l) + 127) & ~(size_t)127;
  uint32_t columns = (l->parts * l->query_count + 3) / 4 * 4;
  base_text_printf(t->out, "// From the products, rows of %u, to logits.\n", columns);
  begin_kernel(t, "", form->threads, 1);
  base_text_printf(t->out, "  const float *const products = (const float *)(a.workspace + %zu);\n",
                   products);
  print_unscale(t);
  print_pairs(t);
  base_text_printf(t->out,
                   "  for (long long i = fm_block() * %u + fm_thread(); i < pairs * %u; "
                   "i += fm_blocks() * %u) {\n"
                   "    const long long pair = i / %u;\n"
                   "    const int query = i %% %u;\n"
                   "    const float *const product = products + pair * %u + query;\n"
                   "    float logit = fm_load_coherent(product);\n",
                   form->threads, l->query_count, form->threads, l->query_count, l->query_count,
                   columns);
  for (uint32_t i = 1; i < l->parts; i++)
    base_text_printf(t->out, "    %s fm_load_coherent(product + %u);\n",
                     i == 1 ? "float others =" : "others +=", i * l->query_count);
  if (l->parts > 1)
    base_text_printf(t->out,
                     "    if (fm_is_finite(logit)) logit += others; // else they are anything\n");
  base_text_printf(t->out,
                   "    float *const z = %s_logits(a, pair / tokens, pair %% tokens);\n"
                   "    fm_store_kept(fm_at(z, %s_logit(a, query)), %s);\n  }\n",
                   t->name, t->name, unscaled(t, "logit"));
  end_kernel(t, "");
}

void cuda_logits_text(base_arena *arena, const cuda_logits *l, const char *name, base_text *out) {
  text_printer *p = base_new(arena, text_printer);
  p->arena = arena;
  p->kernel = l->kernel;
  p->graph = kir_plain_graph(l->kernel->graph, arena);
  text_name_memory(p);
  logits_text t = {l, p->graph, arena, p, name, out};
  rt_form form = cuda_logits_form(arena, l, name);
  base_text_printf(out, "struct %s_args {\n", name);
  text_print_arguments(p, out);
  base_text_printf(out, "};\n\n");
  if (l->kind == RT_FORM_KERNEL) print_rows(&t);
  print_queries(&t);
  print_results(&t);
  print_prepare(&t, &form);
  if (l->kind == RT_FORM_MATMUL)
    print_join(&t, &form);
  else
    print_tiles(&t, &form);
}
