// Logits of many queries by tensor cores (schedule logits=1) and by a library (logits=2): the pass
// that splits them off, and what the emulator computes, against the interpreter. Sizes with and
// without tails, lists of slices and strided banks, values that f16 could not hold.
#include "codegen/cuda/cuda.h"
#include "codegen/emulator/emulator.h"
#include "codegen/target.h"
#include "passes/passes.h"

#include "support/graph_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { MULTIPROCESSORS = 3 };

// ---- graphs -------------------------------------------------------------------------------------

// The logits of a block's queries, %s standing for the type of the bank.
static const char phase1[] =
    "graph @phase1(%%bank: %s[N, T, D], %%query: f32[S, D], %%gain: f32[D]) {"
    "%%k = rms_norm %%bank, %%gain over D : f32[N, T, D]"
    "%%z = dot %%k, %%query over D : f32[N, T, S]"
    "%%a = softmax %%z over N : f32[N, T, S]"
    "%%mix = weighted_sum %%a, %%bank over N : %s[T, S, D]"
    "%%lse = logsumexp %%z over N : f32[T, S]"
    "return %%mix, %%lse }";

static ir_graph *with_sizes(const char *text, const char *sizes) {
  ir_graph *graph = parse_text(text);
  for (char *copy = (char *)base_str_format(&arena, "%s", sizes).data, *word = strtok(copy, " ");
       word; word = strtok(NULL, " ")) {
    char *equals = strchr(word, '=');
    assert_clean(
        ir_bind_axis(graph, (base_str){word, (size_t)(equals - word)}, atoll(equals + 1), &diag));
  }
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  return graph;
}

static ir_graph *variant(const char *name, const char *sizes) {
  const char *folder = getenv("FATHOM_SOURCE_DIR");
  base_str text, why;
  base_str path = base_str_format(&arena, "%s/tests/variants/%s.fir", folder ? folder : ".", name);
  if (base_file_read(&arena, path.data, &text, &why)) fail_msg("%.*s", BASE_FMT(why));
  return with_sizes(base_str_copy(&arena, text).data, sizes);
}

static ir_graph *phase1_of(const char *dtype, const char *sizes) {
  return with_sizes(base_str_format(&arena, phase1, dtype, dtype).data, sizes);
}

static ir_graph *fused(const ir_graph *graph) {
  ir_graph *result = pass_run(graph, pass_cuda_pipeline, &(pass_options){0}, &diag);
  assert_clean(result && ir_verify(result, IR_STAGE_FUSED, &diag));
  return result;
}

// ---- the pass -----------------------------------------------------------------------------------

static ir_graph *split(const ir_graph *graph) {
  ir_graph *result = pass_run(graph, "split-logits", &(pass_options){.verify_each = true}, &diag);
  assert_clean(result && ir_verify(result, IR_STAGE_FUSED, &diag));
  return result;
}

static const struct {
  const char *name, *sizes;
  uint32_t before, after; // kernels
} splits[] = {
    {"phase1", "N=4 S=3 D=64", 1, 3}, // queries, logits, the rest
    {"phase1_stats", "N=4 S=3 D=64", 1, 3},
    {"phase1_sigmoid", "N=4 S=3 D=64", 1, 3},
    {"phase1_prefix", "N=4 S=3 D=64", 1, 4},  // the prefix too
    {"low_rank_query", "N=4 S=3 D=64", 1, 2}, // queries as they are
    {"phase1_gains", "N=4 S=3 D=64", 1, 3},
    {"phase1_heads", "N=4 S=3 D=64 H=4", 1, 1}, // the rows are products
    {"site", "N=4 D=64", 1, 1},                 // a query, but no axis of queries
    {"query_per_token", "N=4 D=64", 1, 1},
    {"norm_query_key", "N=4 D=64", 1, 1},
};

static void test_split(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(splits); i++) {
    const ir_graph *before = fused(variant(splits[i].name, splits[i].sizes));
    const ir_graph *after = split(before);
    if (pass_kernel_count(before) != splits[i].before ||
        pass_kernel_count(after) != splits[i].after)
      fail_msg("%s: %u kernels became %u", splits[i].name, pass_kernel_count(before),
               pass_kernel_count(after));
    assert_true(ir_equal(split(after), after)); // what is split stays
    if (splits[i].before == splits[i].after) assert_true(ir_equal(before, after));
  }
}

// ---- tensors ------------------------------------------------------------------------------------

static uint64_t random_state = 88172645463325252;

static double draw(void) { // -1 .. 1
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (double)(int32_t)(random_state >> 32) * 0x1p-31;
}

static double load(rt_dtype dtype, const char *p) {
  float x;
  uint16_t half;
  uint32_t bits;
  memcpy(&half, p, sizeof half);
  memcpy(&x, p, dtype == RT_F32 ? sizeof x : 0);
  if (dtype == RT_F32) return (double)x;
  if (dtype == RT_F16) {
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return half >> 15 ? -size : size;
  }
  bits = (uint32_t)half << 16;
  memcpy(&x, &bits, sizeof x);
  return (double)x;
}

// A value of the dtype.
static void store(rt_dtype dtype, char *p, double value) {
  float x = (float)value;
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  uint16_t half = (uint16_t)(bits >> 16);
  if (dtype == RT_F16) {
    uint32_t size = bits & 0x7fffffff;
    half = (uint16_t)(size >= 0x7f800000  ? 0x7c00 | (size > 0x7f800000) << 9
                      : size < 0x38800000 ? (uint32_t)(fabsf(x) * 0x1p24f)
                                          : (size - (112u << 23)) >> 13);
    half |= (uint16_t)(bits >> 31 << 15);
  }
  memcpy(p, dtype == RT_F32 ? (void *)&x : (void *)&half, rt_dtype_size(dtype));
}

// How the first parameter, the bank, lies in memory. PADDED: rows and banks are 16-byte aligned, but
// apart. TOKENS: tokens outermost. ODD: apart by what no wide access can take.
typedef enum layout { DENSE, SLICES, PADDED, TOKENS, ODD, LAYOUTS } layout;

static char *allocate(size_t bytes) {
  char *memory = base_alloc(&arena, bytes + 256);
  memset(memory, 0xff, bytes + 256);
  return memory + (128 - (uintptr_t)memory % 128);
}

static void set_strides(rt_tensor *t, layout how) {
  int64_t row = t->shape[t->rank - 1], step = row;
  if (how == PADDED) step = row + 8;
  if (how == ODD) step = row + 1;
  for (uint32_t i = t->rank; i-- > 0;) {
    t->strides[i] = i + 1 == t->rank ? 1 : step;
    if (i + 1 < t->rank) step *= t->shape[i];
    if (how == PADDED) step += 16;
  }
  if (how == TOKENS && t->rank == 3) {
    t->strides[0] = row;
    t->strides[1] = row * t->shape[0];
  }
}

static char *element(const rt_tensor *t, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t i = t->slices ? 1 : 0; i < t->rank; i++)
    at += index[i] * t->strides[i];
  return (t->slices ? t->slices[index[0]] : t->data) + at * (int64_t)rt_dtype_size(t->dtype);
}

// The elements in order, one index after the other; false at the end.
static bool next_index(const rt_tensor *t, int64_t *index) {
  for (uint32_t i = t->rank; i-- > 0;) {
    if (++index[i] < t->shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

static size_t element_count(const rt_tensor *t) {
  size_t count = 1;
  for (uint32_t i = 0; i < t->rank; i++)
    count *= (size_t)t->shape[i];
  return count;
}

static rt_tensor make_tensor(const ir_graph *graph, ir_value value, const int64_t *sizes,
                             layout how) {
  const ir_type *type = &ir_node_of(graph, value)->type;
  rt_tensor t = {.dtype = (rt_dtype)type->dtype, .rank = type->rank};
  int64_t extent = 1;
  for (uint32_t i = 0; i < t.rank; i++)
    t.shape[i] = sizes[type->axes[i].index];
  set_strides(&t, how);
  for (uint32_t i = 0; i < t.rank; i++)
    if (t.shape[i] * t.strides[i] > extent) extent = t.shape[i] * t.strides[i];
  size_t bytes = (size_t)extent * rt_dtype_size(t.dtype);
  if (how != SLICES) {
    t.data = allocate(bytes);
    return t;
  }
  char **slices = base_new_array(&arena, char *, (size_t)t.shape[0]);
  for (int64_t i = t.shape[0]; i-- > 0;) // not in the order of their addresses
    slices[i] = allocate(bytes / (size_t)t.shape[0]);
  t.slices = slices;
  return t;
}

// ---- programs -----------------------------------------------------------------------------------

static rt_device *device;

static int open_device(void **state) {
  (void)state;
  set_up(NULL);
  cuda_arch arch;
  if (!cuda_arch_find("sm_90", &arch)) return -1;
  emu_options options = {.cache_directory = getenv("FATHOM_CACHE"),
                         .facts = {.name = "emulated",
                                   .major = 9,
                                   .multiprocessors = MULTIPROCESSORS,
                                   .threads_per_block = 1024,
                                   .threads_per_multiprocessor = 2048,
                                   .blocks_per_multiprocessor = 32,
                                   .registers_per_multiprocessor = 65536,
                                   .shared_per_block = arch.shared_per_block,
                                   .shared_per_multiprocessor = arch.shared_bytes}};
  base_status status = emu_device_create(&options, &device, &diag);
  if (status != BASE_OK) print_error("%.*s\n", BASE_FMT(base_diag_render(&diag)));
  tear_down(NULL);
  return status == BASE_OK ? 0 : -1;
}

static int close_device(void **state) {
  (void)state;
  device->ops->destroy(device);
  return 0;
}

typedef struct program {
  const ir_graph *graph;
  cg_artefact *artefact;
  rt_loaded *loaded;
} program;

static cg_artefact *compile(const ir_graph *graph, const char *schedule) {
  cg_options options = {
      .arch = "sm_90", .emulate = true, .schedule = schedule, .cache_directory = ""};
  return cg_cuda_target()->compile(&arena, fused(graph), &options, &diag);
}

static program make_program(const ir_graph *graph, const char *schedule) {
  program p = {.graph = graph, .artefact = compile(graph, schedule)};
  assert_clean(p.artefact != NULL);
  assert_clean(rt_device_load(device, p.artefact->device, &p.loaded, &diag) == BASE_OK);
  return p;
}

static void drop_program(program *p) {
  rt_device_unload(p->loaded);
  p->artefact->release(p->artefact);
}

// One run: its tensors, the parameters' values, and the results' as they should be.
typedef struct run {
  const program *program;
  int64_t *sizes;
  rt_tensor *tensors;
  double **in, **expected;
  double largest_logit;
  rt_traffic *traffic; // NULL: not counted
} run;

// Of the bank and the queries.
typedef struct scales {
  double bank, query;
} scales;

static run make_run(const program *p, int64_t rows, layout how, scales scale) {
  const ir_graph *graph = p->graph;
  uint32_t inputs = graph->param_count, outputs = graph->results.count;
  run r = {.program = p,
           .sizes = base_new_array(&arena, int64_t, graph->axes.count),
           .tensors = base_new_array(&arena, rt_tensor, inputs + outputs),
           .in = base_new_array(&arena, double *, inputs),
           .expected = base_new_array(&arena, double *, outputs)};
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    int64_t size = graph->axes.data[i].size;
    r.sizes[i] = size == IR_DYNAMIC ? rows : size;
  }
  for (uint32_t i = 0; i < inputs + outputs; i++) {
    ir_value value = i < inputs ? (ir_value){i} : graph->results.data[i - inputs];
    rt_tensor *t = &r.tensors[i];
    *t = make_tensor(graph, value, r.sizes, i == 0 ? how : DENSE);
    double *values = base_new_array(&arena, double, element_count(t) + 1);
    *(i < inputs ? &r.in[i] : &r.expected[i - inputs]) = values;
    int64_t index[RT_MAX_RANK] = {0};
    for (size_t j = 0; i < inputs && j < element_count(t); j++, next_index(t, index)) {
      bool query = base_str_equal(ir_node_of(graph, value)->name, BASE_STR("query"));
      store(t->dtype, element(t, index), draw() * (i == 0 ? scale.bank : query ? scale.query : 1));
      values[j] = load(t->dtype, element(t, index));
    }
  }
  return r;
}

static base_status launch(const run *r) {
  const rt_program *program = r->program->artefact->program;
  int64_t *sizes = base_new_array(&arena, int64_t, program->axis_count);
  size_t bytes;
  assert_clean(rt_bind(program, r->tensors, sizes, &diag) == BASE_OK);
  assert_clean(rt_device_workspace(r->program->loaded, r->tensors, sizes, &bytes, &diag) ==
               BASE_OK);
  return rt_device_run(r->program->loaded, r->tensors, sizes, NULL, allocate(bytes), r->traffic,
                       &diag);
}

static void expect(run *r) {
  assert_clean(ir_interpret(r->program->graph, r->sizes, (const double *const *)r->in, r->expected,
                            &r->largest_logit, &diag) == BASE_OK);
}

// The bounds of docs/ir.md.
static void assert_results(const run *r, const char *what) {
  uint32_t inputs = r->program->graph->param_count;
  for (uint32_t i = 0; i < r->program->graph->results.count; i++) {
    const rt_tensor *t = &r->tensors[inputs + i];
    double error = 0, size = 0;
    int64_t index[RT_MAX_RANK] = {0};
    for (size_t j = 0; j < element_count(t); j++, next_index(t, index)) {
      double got = load(t->dtype, element(t, index)), wanted = r->expected[i][j];
      if (!isfinite(wanted) && (got == wanted || (isnan(wanted) && isnan(got)))) continue;
      error += (got - wanted) * (got - wanted);
      size += wanted * wanted;
    }
    double bound = t->dtype == RT_BF16 ? 4e-3 : t->dtype == RT_F16 ? 1e-3 : 2e-6;
    if (t->dtype == RT_F32 && r->largest_logit > 1) bound *= r->largest_logit;
    if (!(sqrt(error) <= bound * sqrt(size)))
      fail_msg("%s: result %u is off by %g, the bound is %g", what, i, sqrt(error / size), bound);
  }
}

static void check_run(const program *p, int64_t rows, layout how, scales scale, const char *what) {
  run r = make_run(p, rows, how, scale);
  expect(&r);
  assert_clean(launch(&r) == BASE_OK);
  assert_results(&r, base_str_format(&arena, "%s, T=%d, layout %d", what, (int)rows, how).data);
}

// ---- sizes, types, layouts ----------------------------------------------------------------------

static const struct {
  const char *dtype, *schedule, *sizes;
} cases[] = {
    {"bf16", "logits=1", "N=1 S=1 D=64"},    {"bf16", "logits=1", "N=2 S=3 D=960"},
    {"bf16", "logits=1", "N=3 S=8 D=1000"},  {"bf16", "logits=1", "N=4 S=16 D=2304"},
    {"bf16", "logits=1", "N=9 S=24 D=1000"}, {"bf16", "logits=1", "N=7 S=3 D=123"},
    {"bf16", "logits=1", "N=5 S=72 D=64"},   {"f16", "logits=1", "N=6 S=8 D=960"},
    {"f16", "logits=1", "N=8 S=16 D=64"},    {"f16", "logits=1", "N=3 S=24 D=2304"},
    {"f16", "logits=1", "N=2 S=1 D=1000"},   {"bf16", "logits=2", "N=2 S=3 D=64"},
    {"bf16", "logits=2", "N=9 S=24 D=960"},  {"bf16", "logits=2", "N=3 S=3 D=123"},
    {"f16", "logits=2", "N=5 S=3 D=2304"},   {"f16", "logits=2", "N=8 S=1 D=64"},
    {"f32", "logits=2", "N=1 S=8 D=64"},     {"f32", "logits=2", "N=6 S=24 D=1000"},
    {"f32", "logits=2", "N=7 S=16 D=123"},
};

// Logits of a size that weights of all sources show.
static scales usual(const ir_graph *graph) {
  ir_axis depth;
  ir_axis_find(graph, BASE_STR("D"), &depth);
  return (scales){1, 3 / sqrt((double)ir_axis_size(graph, depth))};
}

static void test_results(void **state) {
  (void)state;
  static const int64_t rows[] = {0, 1, 5, 33};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const char *what =
        base_str_format(&arena, "%s %s %s", cases[i].dtype, cases[i].schedule, cases[i].sizes).data;
    program p = make_program(phase1_of(cases[i].dtype, cases[i].sizes), cases[i].schedule);
    for (int how = 0; how < LAYOUTS; how++) {
      emu_device_set_seed(device, 1 + i + (uint64_t)how);
      check_run(&p, rows[(i + (size_t)how) % COUNT(rows)], (layout)how, usual(p.graph), what);
    }
    drop_program(&p);
  }
}

// Kernels before and behind the one that is split: a folded weight, and a result with more rows.
static void test_neighbours(void **state) {
  (void)state;
  static const char text[] =
      "graph @three(%bank: bf16[N=4, T, D=64], %query: f32[S=3, D], %gain: f32[D],"
      "             %more: bf16[U, T, D]) {"
      "  %folded = mul %gain, %gain            : f32[D]"
      "  %w = mul %query, %folded              : f32[S, D]"
      "  %z = dot %bank, %w over D             : f32[N, T, S]"
      "  %a = softmax %z over N                : f32[N, T, S]"
      "  %mix = weighted_sum %a, %bank over N  : bf16[T, S, D]"
      "  %top = reduce_max %z over N           : f32[T, S]"
      "  %y = mul %more, %top                  : bf16[U, T, S, D]"
      "  return %mix, %y, %folded }";
  for (int engine = 1; engine <= 2; engine++) {
    program p = make_program(with_sizes(text, ""), engine == 1 ? "logits=1" : "logits=2");
    check_run(&p, 6, SLICES, usual(p.graph), "three kernels");
    drop_program(&p);
  }
}

static void test_seeds(void **state) {
  (void)state;
  for (int engine = 1; engine <= 2; engine++) {
    const char *schedule = base_str_format(&arena, "logits=%d", engine).data;
    program p = make_program(phase1_of("bf16", "N=9 S=24 D=200"), schedule);
    for (uint64_t seed = 1; seed <= 10; seed++) {
      emu_device_set_seed(device, seed);
      check_run(&p, 29 + (int64_t)seed, seed % 2 ? SLICES : DENSE, usual(p.graph), schedule);
    }
    drop_program(&p);
  }
}

static void test_variants(void **state) {
  (void)state;
  static const struct {
    const char *name, *sizes;
  } names[] = {{"phase1_prefix", "N=5 S=6 D=192"},
               {"phase1_sigmoid", "N=5 S=6 D=192"},
               {"phase1_stats", "N=5 S=6 D=192"},
               {"phase1_gains", "N=5 S=6 D=192"},
               {"low_rank_query", "N=5 S=6 D=192"}};
  for (size_t i = 0; i < COUNT(names); i++)
    for (int engine = 1; engine <= 2; engine++) {
      const char *schedule = base_str_format(&arena, "logits=%d", engine).data;
      program p = make_program(variant(names[i].name, names[i].sizes), schedule);
      check_run(&p, 33, engine == 1 ? SLICES : DENSE, usual(p.graph), names[i].name);
      check_run(&p, 5, PADDED, usual(p.graph), names[i].name);
      drop_program(&p);
    }
}

// Sources from a list and a tensor, a window of them, two kinds of tokens, two axes of queries.
static void test_views(void **state) {
  (void)state;
  static const char text[] = "graph @views(%bank: f16[M=9, U=2, T, D=72], %last: f16[T, U, D],"
                             "             %query: f16[P=2, Q=3, D]) {"
                             "  %window = slice %bank over M to W {start = 2} : f16[W=6, U, T, D]"
                             "  %v = concat %window, %last over W to N        : f16[N, U, T, D]"
                             "  %z = dot %v, %query over D                    : f32[P, N, U, T, Q]"
                             "  %a = softmax %z over N                        : f32[P, N, U, T, Q]"
                             "  %y = weighted_sum %a, %v over N               : f16[U, T, P, Q, D]"
                             "  return %y }";
  for (int engine = 1; engine <= 2; engine++) {
    program p = make_program(with_sizes(text, ""), engine == 1 ? "logits=1" : "logits=2");
    for (int how = 0; how <= PADDED; how++)
      check_run(&p, 21, (layout)how, (scales){1, 0.4}, "views");
    drop_program(&p);
  }
}

// ---- values -------------------------------------------------------------------------------------

// f16 holds no 2^20, and near 2^-20 only 4 bits: queries are scaled, each by what it needs.
static void test_scaled_queries(void **state) {
  (void)state;
  for (int engine = 1; engine <= 2; engine++) {
    program p =
        make_program(phase1_of("f16", "N=4 S=3 D=64"), engine == 1 ? "logits=1" : "logits=2");
    check_run(&p, 9, DENSE, (scales){1, 0x1p20}, "large queries");
    check_run(&p, 9, DENSE, (scales){1, 0x1p-20}, "small queries");
    check_run(&p, 9, DENSE, (scales){60000, 0.3}, "large sources");
    check_run(&p, 9, DENSE, (scales){0x1p-10, 0.3}, "small sources");
    run r = make_run(&p, 9, DENSE, usual(p.graph));
    for (int i = 0; i < 64; i++) // a query of zeros
      store(RT_F32, r.tensors[1].data + 4 * (64 + i), r.in[1][64 + i] = 0);
    expect(&r);
    assert_clean(launch(&r) == BASE_OK);
    assert_results(&r, "zeros");
    drop_program(&p);
  }
}

// What is not finite stays with its token, and an infinite source has infinite logits: no part of a
// query makes NaN of them.
static void test_special_values(void **state) {
  (void)state;
  static const char text[] = "graph @raw(%bank: bf16[N=3, T, D=64], %query: f32[S=5, D]) {"
                             "  %z = dot %bank, %query over D         : f32[N, T, S]"
                             "  %a = softmax %z over N                : f32[N, T, S]"
                             "  %mix = weighted_sum %a, %bank over N  : bf16[T, S, D]"
                             "  %lse = logsumexp %z over N            : f32[T, S]"
                             "  return %mix, %lse, %z }";
  static const double values[] = {NAN, INFINITY, -INFINITY};
  for (int engine = 1; engine <= 2; engine++)
    for (size_t i = 0; i < COUNT(values); i++) {
      program p = make_program(with_sizes(text, ""), engine == 1 ? "logits=1" : "logits=2");
      run r = make_run(&p, 20, DENSE, usual(p.graph));
      int64_t index[RT_MAX_RANK] = {1, 17, 40};
      r.in[0][(1 * 20 + 17) * 64 + 40] = values[i];
      store(RT_BF16, element(&r.tensors[0], index), values[i]);
      expect(&r);
      assert_clean(launch(&r) == BASE_OK);
      assert_results(&r, "a value that is not finite");
      drop_program(&p);
    }
}

// ---- what is read -------------------------------------------------------------------------------

// The bank once by each of the two kernels.
static void test_traffic(void **state) {
  (void)state;
  for (int engine = 1; engine <= 2; engine++) {
    program p =
        make_program(phase1_of("bf16", "N=8 S=8 D=960"), engine == 1 ? "logits=1" : "logits=2");
    run r = make_run(&p, 32, SLICES, usual(p.graph));
    r.traffic = base_new_array(&arena, rt_traffic, p.artefact->program->slot_count);
    assert_clean(launch(&r) == BASE_OK);
    uint64_t bank = 8 * 32 * 960 * 2;
    assert_int_equal(r.traffic[0].read_once, 2 * bank);
    drop_program(&p);
  }
}

// ---- the library's products ---------------------------------------------------------------------

static rt_device_ops counting;
static const rt_device_ops *real;
static int created, ran;

static base_status count_create(rt_device *d, const rt_matmul_shape *shape, size_t limit,
                                rt_matmul **out, base_diag *to) {
  created++;
  return real->matmul_create(d, shape, limit, out, to);
}

static base_status count_run(rt_device *d, const rt_matmul *matmul, const void *a, const void *b,
                             float *out, void *workspace, void *stream, base_diag *to) {
  ran++;
  return real->matmul_run(d, matmul, a, b, out, workspace, stream, to);
}

static void count_products(void) {
  real = device->ops;
  counting = *real;
  counting.matmul_create = count_create;
  counting.matmul_run = count_run;
  device->ops = &counting;
  created = ran = 0;
}

// As few calls as the layout allows, and none is made twice.
static void test_products(void **state) {
  (void)state;
  static const struct {
    layout how;
    int products, runs;
  } wanted[] = {{DENSE, 1, 1}, {DENSE, 1, 2}, {PADDED, 2, 3}, {SLICES, 3, 8}, {SLICES, 3, 13}};
  program p = make_program(phase1_of("bf16", "N=5 S=3 D=64"), "logits=2");
  count_products();
  for (size_t i = 0; i < COUNT(wanted); i++) {
    check_run(&p, 7, wanted[i].how, usual(p.graph), "counted");
    if (created != wanted[i].products || ran != wanted[i].runs)
      fail_msg("run %zu: %d products made, %d run", i, created, ran);
  }
  device->ops = real;
  drop_program(&p);
}

static void assert_said(const char *part) {
  const char *said = base_diag_render(&diag).data;
  if (!said || !strstr(said, part)) fail_msg("expected '%s' in:\n%s", part, said ? said : "");
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
}

static void test_unplanned(void **state) {
  (void)state;
  program p = make_program(phase1_of("bf16", "N=2 S=3 D=64"), "logits=2");
  run r = make_run(&p, 7, DENSE, usual(p.graph));
  int64_t sizes[8];
  assert_clean(rt_bind(p.artefact->program, r.tensors, sizes, &diag) == BASE_OK);
  assert_int_equal(rt_device_run(p.loaded, r.tensors, sizes, NULL, allocate(1 << 20), NULL, &diag),
                   BASE_INVALID);
  assert_said("no workspace was asked for");
  drop_program(&p);
}

static void test_no_library(void **state) {
  (void)state;
  cg_artefact *artefact = compile(phase1_of("bf16", "N=2 S=3 D=64"), "logits=2");
  assert_clean(artefact != NULL);
  count_products();
  counting.matmul_create = NULL;
  rt_loaded *loaded;
  assert_int_equal(rt_device_load(device, artefact->device, &loaded, &diag), BASE_UNSUPPORTED);
  device->ops = real;
  assert_said("no library of matrix products");
  artefact->release(artefact);
}

// ---- refusals -----------------------------------------------------------------------------------

static void test_refusals(void **state) {
  (void)state;
  assert_null(compile(variant("site", "N=4 D=64"), "logits=1"));
  assert_said("@site has no logits for logits=1: that takes a dot over the hidden axis");
  assert_null(compile(variant("phase1_heads", "N=4 S=3 D=64 H=4"), "logits=2"));
  assert_said("@phase1_heads has no logits for logits=2");
  assert_null(compile(phase1_of("f32", "N=4 S=3 D=64"), "logits=1"));
  assert_said("bf16 or f16 rows");
  cg_options options = {.arch = "sm_75", .schedule = "logits=1", .cache_directory = ""};
  assert_null(cuda_plan_create(&arena, fused(phase1_of("f16", "N=4 S=3 D=64")), &options, &diag));
  assert_said("sm_75 cannot do logits=1 (tensor cores)");
}

// ---- NVRTC --------------------------------------------------------------------------------------

// The instructions of a cubin's kernels; "" without a disassembler.
static const char *disassemble(base_str cubin) {
  const char *build = getenv("FATHOM_SOURCE_DIR"), *folder = getenv("FATHOM_BINARY_DIR");
  base_str tool = base_str_format(&arena, "%s/build/tools/nvdisasm", build ? build : ".");
  base_str path = base_str_format(&arena, "%s/test_logits.cubin", folder ? folder : "."), why;
  FILE *exists = fopen(tool.data, "rb");
  if (!exists) return "";
  fclose(exists);
  if (base_file_write(&arena, path.data, cubin.data, cubin.length, &why)) return "";
  base_text text = {.arena = &arena};
  FILE *pipe = popen(base_str_format(&arena, "%s -c %s", tool.data, path.data).data, "r");
  char line[512];
  while (pipe && fgets(line, sizeof line, pipe))
    base_text_printf(&text, "%s", line);
  if (pipe) pclose(pipe);
  remove(path.data);
  return text.data ? text.data : "";
}

static void check_binary(const char *arch, const char *dtype, const char *sizes,
                         const cuda_nvrtc *nvrtc) {
  cg_options options = {.arch = arch, .schedule = "logits=1", .cache_directory = ""};
  cuda_plan *plan = cuda_plan_create(&arena, fused(phase1_of(dtype, sizes)), &options, &diag);
  assert_clean(plan != NULL);
  assert_int_equal(plan->kernel_count, 3);
  assert_non_null(plan->kernels[1].logits);
  cuda_unit unit = {"logits.cu", cuda_form_text(&arena, plan, 1, 0, true)};
  cuda_compile_options compile_options = {.arch = plan->arch.name, .cache_directory = ""};
  cuda_binary binary;
  assert_clean(cuda_compile(&arena, nvrtc, &compile_options, &unit, 1, &binary, &diag));
  assert_int_equal(binary.kernel_count, 2);
  for (uint32_t i = 0; i < binary.kernel_count; i++) {
    assert_int_equal(binary.kernels[i].spill_store_bytes, 0);
    assert_int_equal(binary.kernels[i].spill_load_bytes, 0);
    assert_int_equal(binary.kernels[i].stack_bytes, 0);
  }
  const char *code = disassemble(binary.cubin);
  if (!*code) {
    print_message("%s: no disassembler, instructions are not looked at\n", arch);
    return;
  }
  assert_non_null(strstr(code, "HMMA.16816.F32"));
  assert_non_null(strstr(code, "LDGSTS.E.BYPASS"));
  assert_non_null(strstr(code, "LDS.128"));
  assert_null(strstr(code, "LDL"));
  assert_null(strstr(code, "STL"));
  assert_null(strstr(code, "DADD"));
}

static void test_binaries(void **state) {
  (void)state;
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(&arena, &why);
  if (!nvrtc) {
    print_message("skipped: %.*s\n", BASE_FMT(why));
    skip();
  }
  check_binary("sm_80", "bf16", "N=8 S=24 D=7168", nvrtc);
  check_binary("sm_90a", "bf16", "N=8 S=24 D=7168", nvrtc);
  check_binary("sm_90a", "f16", "N=8 S=64 D=7168", nvrtc);
  check_binary("sm_120", "bf16", "N=8 S=16 D=1000", nvrtc);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(split),          TEST(results),  TEST(seeds),     TEST(variants),
      TEST(neighbours),     TEST(views),    TEST(products),  TEST(scaled_queries),
      TEST(special_values), TEST(traffic),  TEST(unplanned), TEST(no_library),
      TEST(refusals),       TEST(binaries),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
