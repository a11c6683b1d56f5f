// What the numerics contract promises beyond error bounds, for every variant of tests/variants,
// through the public interface: rows are independent and give the same bits wherever and with
// whomever they are computed, NaN stays in its row, logits of any finite size are harmless, one
// source has weight 1, and offsets are 64-bit.
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "fathom.h"

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    fathom_status status_ = (call);                                                                \
    if (status_ != FATHOM_OK)                                                                      \
      fail_msg("%s: %s: %s", current, fathom_status_name(status_), fathom_error_text());           \
  } while (0)

static const char *current = ""; // the variant being looked at

// ---- tensors ------------------------------------------------------------------------------------

enum { MAX_TENSORS = 24, MAX_RANK = FATHOM_MAX_RANK };

typedef struct tensor {
  fathom_tensor_info info;
  DLTensor dl;
  int64_t shape[MAX_RANK], strides[MAX_RANK];
  int row; // position of axis T; -1: none
  bool output;
  void *memory; // to be freed; NULL when it is another's
} tensor;

static size_t element_size(const tensor *t) {
  return t->info.dtype == FATHOM_F32 ? 4 : t->info.dtype == FATHOM_F8E4M3 ? 1 : 2;
}

static size_t element_count(const tensor *t) {
  size_t count = 1;
  for (uint32_t i = 0; i < t->info.rank; i++)
    count *= (size_t)t->shape[i];
  return count;
}

static int axis_position(const tensor *t, const char *axis) {
  for (uint32_t i = 0; i < t->info.rank; i++)
    if (strcmp(t->info.axes[i], axis) == 0) return (int)i;
  return -1;
}

// The element whose number in the type's order is `index`.
static char *element(const tensor *t, size_t index) {
  int64_t offset = 0;
  for (uint32_t i = t->info.rank; i-- > 0; index /= (size_t)t->shape[i])
    offset += (int64_t)(index % (size_t)t->shape[i]) * t->strides[i];
  return (char *)t->dl.data + offset * (int64_t)element_size(t);
}

static size_t row_of(const tensor *t, size_t index) {
  for (uint32_t i = t->info.rank; i-- > 0; index /= (size_t)t->shape[i])
    if ((int)i == t->row) return index % (size_t)t->shape[i];
  return 0;
}

static float float_of_f8(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  float size = (code & 0x7f) == 0x7f ? NAN
               : exponent            ? ldexpf((float)(8 + fraction), exponent - 10)
                                     : ldexpf((float)fraction, -9);
  return code & 0x80 ? -size : size;
}

static float get(const tensor *t, size_t index) {
  if (t->info.dtype == FATHOM_F8E4M3) return float_of_f8(*(uint8_t *)element(t, index));
  uint32_t bits = 0;
  memcpy((char *)&bits + (4 - element_size(t)), element(t, index), element_size(t));
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static void put(const tensor *t, size_t index, float value) {
  uint32_t bits;
  assert_true(t->info.dtype != FATHOM_F8E4M3); // of results only, so far
  memcpy(&bits, &value, sizeof bits);
  if (t->info.dtype == FATHOM_BF16 && !isnan(value)) bits += 0x7fff + (bits >> 16 & 1);
  memcpy(element(t, index), (char *)&bits + (4 - element_size(t)), element_size(t));
}

static bool same_bits(const tensor *a, size_t i, const tensor *b, size_t j) {
  return memcmp(element(a, i), element(b, j), element_size(a)) == 0;
}

static uint64_t state;

static float draw(void) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (float)(int32_t)(state >> 32) * 0x1p-30f; // in [-2, 2)
}

// ---- problems: a compiled graph and tensors for it ----------------------------------------------

typedef struct problem {
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  uint32_t params, count;
  tensor tensors[MAX_TENSORS];
} problem;

static fathom_context *context;

// The sizes tests/matrix gives for D and N.
static void bind_axes(fathom_graph *graph, const char *text, int64_t d, int64_t n) {
  const struct {
    const char *axis;
    int64_t size;
  } bindings[] = {{"D", d}, {"N", n}, {"S", 10}, {"H", 2}, {"B", n - 1}};
  for (size_t i = 0; i < sizeof bindings / sizeof bindings[0]; i++)
    fathom_graph_bind(graph, bindings[i].axis,
                      bindings[i].size); // fails when it has none or a fixed one
  if (strstr(text, "slice %all"))
    fathom_graph_bind(graph, "M", strstr(text, "[W,") ? n + 1 : n + 2);
}

static void open_tensor(tensor *t, const fathom_tensor_info *info, int64_t rows, bool output) {
  *t = (tensor){.info = *info, .output = output};
  t->row = axis_position(t, "T");
  int64_t extent = 1;
  for (uint32_t i = info->rank; i-- > 0;) {
    uint32_t position = info->layout[i];
    int64_t size = info->sizes[position];
    if (size == FATHOM_DYNAMIC) size = strcmp(info->axes[position], "T") == 0 ? rows : 2;
    t->shape[position] = size;
    t->strides[position] = extent;
    extent *= size;
  }
  t->memory = calloc((size_t)extent + 1, element_size(t));
  assert_non_null(t->memory);
  uint8_t code = info->dtype == FATHOM_F8E4M3 ? kDLUInt
                 : info->dtype == FATHOM_BF16 ? kDLBfloat
                                              : kDLFloat;
  DLDataType type = {code, (uint8_t)(8 * element_size(t)), 1};
  t->dl =
      (DLTensor){.data = t->memory, .device = {kDLCPU, 0}, .ndim = (int)info->rank, .dtype = type};
  for (size_t i = 0; i < element_count(t) && !output; i++)
    put(t, i, draw());
}

static void open_tensors(problem *p, int64_t rows) {
  state = 1;
  p->params = fathom_graph_param_count(p->graph);
  p->count = p->params + fathom_graph_result_count(p->graph);
  assert_true(p->count <= MAX_TENSORS);
  for (uint32_t i = 0; i < p->count; i++) {
    fathom_tensor_info info = FATHOM_INIT(info);
    if (i < p->params)
      assert_ok(fathom_graph_param(p->graph, i, &info));
    else
      assert_ok(fathom_graph_result(p->graph, i - p->params, &info));
    // `shape` and `strides` are pointed to when the tensors lie still, in run_on.
    open_tensor(&p->tensors[i], &info, rows, i >= p->params);
  }
}

static void compile(problem *p, const char *target, const char *schedule) {
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = target;
  options.schedule = schedule;
  fathom_executable_destroy(p->executable);
  p->executable = NULL;
  assert_ok(fathom_compile(context, p->graph, &options, &p->executable));
}

static void open_problem(problem *p, const char *text, int64_t d, int64_t n, int64_t rows) {
  *p = (problem){.module = NULL};
  assert_ok(fathom_parse(context, text, strlen(text), current, &p->module));
  assert_ok(fathom_module_graph(p->module, NULL, &p->graph));
  bind_axes(p->graph, text, d, n);
  open_tensors(p, rows);
}

static void close_tensors(tensor *tensors, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    free(tensors[i].memory);
}

static void close_problem(problem *p) {
  close_tensors(p->tensors, p->count);
  fathom_executable_destroy(p->executable);
  fathom_module_destroy(p->module);
}

// The parameters of `p`, and results of its own.
static void share_inputs(const problem *p, tensor *tensors) {
  for (uint32_t i = 0; i < p->count; i++) {
    tensors[i] = p->tensors[i];
    tensors[i].memory = NULL;
    if (!tensors[i].output) continue;
    size_t bytes = element_count(&tensors[i]) * element_size(&tensors[i]);
    tensors[i].dl.data = tensors[i].memory = malloc(bytes + 1);
    memset(tensors[i].memory, 0xa5, bytes);
  }
}

// False after a failure. For any thread.
static bool try_run(const problem *p, tensor *tensors, const fathom_executor *executor) {
  fathom_arg args[MAX_TENSORS];
  size_t bytes;
  for (uint32_t i = 0; i < p->count; i++) {
    tensors[i].dl.shape = tensors[i].shape;
    tensors[i].dl.strides = tensors[i].strides;
    args[i] = (fathom_arg){.name = tensors[i].info.name, .tensor = &tensors[i].dl};
  }
  if (fathom_workspace_size(p->executable, args, p->count, executor, &bytes) != FATHOM_OK)
    return false;
  void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
  bool ok = fathom_run(p->executable, args, p->count, workspace, bytes, executor) == FATHOM_OK;
  free(workspace);
  return ok;
}

static void run_on(const problem *p, tensor *tensors) {
  if (!try_run(p, tensors, NULL)) fail_msg("%s: %s", current, fathom_error_text());
}

static void assert_same_results(const problem *p, const tensor *expected, const tensor *found,
                                const char *when) {
  for (uint32_t i = p->params; i < p->count; i++)
    for (size_t j = 0; j < element_count(&expected[i]); j++)
      if (!same_bits(&expected[i], j, &found[i], j))
        fail_msg("%s: %%%s[%zu] is %.9g, was %.9g: %s", current, expected[i].info.name, j,
                 (double)get(&found[i], j), (double)get(&expected[i], j), when);
}

// ---- variants -----------------------------------------------------------------------------------

static char *read_text(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail_msg("cannot open %s", path);
  char *text = calloc(1, 1 << 16);
  if (!text || !file) abort();
  assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
  fclose(file);
  return text;
}

static char *variant_text(const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/variants/%s", getenv("FATHOM_SOURCE_DIR"), name);
  return read_text(path);
}

static void for_each_variant(void (*visit)(const char *text)) {
  char folder[1024];
  snprintf(folder, sizeof folder, "%s/tests/variants", getenv("FATHOM_SOURCE_DIR"));
  DIR *directory = opendir(folder);
  assert_non_null(directory);
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (!strstr(entry->d_name, ".fir")) continue;
    current = entry->d_name;
    char *text = variant_text(entry->d_name);
    visit(text);
    free(text);
  }
  closedir(directory);
}

// ---- rows are independent -----------------------------------------------------------------------

static const char *const schedules[] = {"", "lanes=0,overlap=0,rows=1", "lanes=1,rows=3"};
enum { SCHEDULE_COUNT = sizeof schedules / sizeof schedules[0] };
enum { ROWS = 37 };

// Rows begin .. begin + rows - 1 of every tensor that has rows.
static void cut_rows(const problem *p, tensor *tensors, int64_t begin, int64_t rows) {
  for (uint32_t i = 0; i < p->count; i++) {
    tensor *t = &tensors[i];
    if (t->row < 0) continue;
    t->dl.data = (char *)t->dl.data + begin * t->strides[t->row] * (int64_t)element_size(t);
    t->shape[t->row] = rows;
  }
}

// A row's results depend neither on how many rows there are nor on where it stands among them.
static void check_rows_stand_alone(const problem *p, const tensor *together) {
  static const int64_t parts[][2] = {{0, 1}, {1, 1}, {36, 1}, {5, 4}, {7, 17}, {20, 17}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    tensor apart[MAX_TENSORS], expected[MAX_TENSORS];
    share_inputs(p, apart);
    memcpy(expected, together, sizeof expected);
    cut_rows(p, apart, parts[i][0], parts[i][1]);
    cut_rows(p, expected, parts[i][0], parts[i][1]);
    run_on(p, apart);
    assert_same_results(p, expected, apart, "some rows without the others");
    close_tensors(apart, p->count);
  }
}

enum { POISONED_ROW = 11 };

// The row's results are what the reference says, all others are bit for bit what they were.
static void compare_poisoned(const problem *p, const tensor *clean, const tensor *poisoned,
                             const tensor *reference, const char *victim) {
  for (uint32_t i = p->params; i < p->count; i++)
    for (size_t j = 0; j < element_count(&clean[i]); j++) {
      bool here = row_of(&clean[i], j) == POISONED_ROW;
      if (!here && !same_bits(&clean[i], j, &poisoned[i], j))
        fail_msg("%s: what is in %%%s reached row %zu of %%%s", current, victim,
                 row_of(&clean[i], j), clean[i].info.name);
      if (here && isnan(get(&poisoned[i], j)) != isnan(get(&reference[i], j)))
        fail_msg("%s: what is in %%%s gives %g in %%%s, the reference says %g", current, victim,
                 (double)get(&poisoned[i], j), clean[i].info.name, (double)get(&reference[i], j));
    }
}

// An element of the row in the middle of the tensor; the number of elements when there is none.
static size_t element_to_poison(const tensor *t) {
  size_t index = t->row < 0 ? element_count(t) : element_count(t) / 2;
  while (index < element_count(t) && row_of(t, index) != POISONED_ROW)
    index++;
  return index;
}

// A NaN or an infinity in one row stays there.
static void check_poison_stays(const problem *p, const problem *oracle, const tensor *clean) {
  static const float poisons[] = {NAN, INFINITY, -INFINITY};
  for (uint32_t i = 0; i < p->params; i++) {
    const tensor *victim = &p->tensors[i];
    size_t index = element_to_poison(victim);
    if (index == element_count(victim)) continue;
    float kept = get(victim, index);
    for (size_t j = 0; j < sizeof poisons / sizeof poisons[0]; j++) {
      tensor poisoned[MAX_TENSORS], reference[MAX_TENSORS];
      share_inputs(p, poisoned);
      share_inputs(p, reference);
      put(victim, index, poisons[j]);
      run_on(p, poisoned);
      run_on(oracle, reference);
      put(victim, index, kept);
      compare_poisoned(p, clean, poisoned, reference, victim->info.name);
      close_tensors(poisoned, p->count);
      close_tensors(reference, p->count);
    }
  }
}

static void check_independence(const char *text) {
  problem p, oracle;
  open_problem(&p, text, 102, 5, ROWS);
  oracle = p;
  oracle.executable = NULL;
  compile(&oracle, "interp", NULL);
  for (size_t s = 0; s < SCHEDULE_COUNT; s++) {
    compile(&p, "cpu", schedules[s]);
    run_on(&p, p.tensors);
    check_rows_stand_alone(&p, p.tensors);
    check_poison_stays(&p, &oracle, p.tensors);
  }
  fathom_executable_destroy(oracle.executable);
  close_problem(&p);
}

static void test_rows_are_independent(void **unused) {
  (void)unused;
  for_each_variant(check_independence);
}

// A NaN in a source makes everything its token mixes from it NaN.
static void test_nan_source_makes_nan_row(void **unused) {
  (void)unused;
  static const char *const names[] = {"norm_gain.fir", "norm_none.fir",  "weights_sigmoid.fir",
                                      "phase1.fir",    "sink_logit.fir", "delta_form.fir"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    current = names[i];
    char *text = variant_text(names[i]);
    problem p;
    open_problem(&p, text, 102, 5, ROWS);
    compile(&p, "cpu", NULL);
    const tensor *bank = &p.tensors[0];
    put(bank, element_count(bank) - 50, NAN); // the last source's last row
    run_on(&p, p.tensors);
    for (uint32_t j = p.params; j < p.count; j++)
      for (size_t k = 0; k < element_count(&p.tensors[j]); k++) {
        bool last = row_of(&p.tensors[j], k) == ROWS - 1;
        if (isnan(get(&p.tensors[j], k)) != last) fail_msg("%s: element %zu", current, k);
      }
    close_problem(&p);
    free(text);
  }
}

// ---- extremes -----------------------------------------------------------------------------------

// Logits up to 1e4: nothing overflows, weights add up to one, and the reference agrees.
static void test_large_logits(void **unused) {
  (void)unused;
  static const char *const names[] = {"norm_plain.fir", "phase1.fir", "bias_recency_param.fir",
                                      "bias_token.fir", "phase2.fir"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    current = names[i];
    char *text = variant_text(names[i]);
    problem p;
    open_problem(&p, text, 102, 5, ROWS);
    compile(&p, "cpu", NULL);
    for (uint32_t j = 0; j < p.params; j++) {
      const tensor *t = &p.tensors[j];
      float largest = strcmp(t->info.name, "query") == 0 ? 1e3f // |z| is about |q|, at most 1e4
                      : strcmp(t->info.name, "bias") == 0 || strcmp(t->info.name, "lse") == 0 ? 1e4f
                                                                                              : 0;
      for (size_t k = 0; k < element_count(t) && largest > 0; k++)
        put(t, k, draw() / 2 * largest);
    }
    tensor reference[MAX_TENSORS];
    share_inputs(&p, reference);
    run_on(&p, p.tensors);
    compile(&p, "interp", NULL);
    run_on(&p, reference);
    for (uint32_t j = p.params; j < p.count; j++) {
      double difference = 0, norm = 0;
      for (size_t k = 0; k < element_count(&p.tensors[j]); k++) {
        float found = get(&p.tensors[j], k), expected = get(&reference[j], k);
        if (!isfinite(found))
          fail_msg("%s: %%%s[%zu] is %g", current, p.tensors[j].info.name, k, (double)found);
        difference += pow((double)found - expected, 2);
        norm += pow(expected, 2);
      }
      if (sqrt(difference / norm) > 2e-6 * 1e4)
        fail_msg("%s: error %g", current, sqrt(difference / norm));
    }
    close_tensors(reference, p.count);
    close_problem(&p);
    free(text);
  }
}

static void test_one_source_has_weight_one(void **unused) {
  (void)unused;
  current = "norm_plain.fir";
  char *text = variant_text(current);
  static const int64_t widths[] = {1, 7, 123, 384, 2304};
  for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
    for (size_t s = 0; s < SCHEDULE_COUNT; s++) {
      problem p;
      open_problem(&p, text, widths[i], 1, ROWS);
      compile(&p, "cpu", schedules[s]);
      run_on(&p, p.tensors);
      const tensor *bank = &p.tensors[0], *h = &p.tensors[p.params], *a = &p.tensors[p.params + 1];
      for (size_t j = 0; j < element_count(a); j++)
        assert_true(get(a, j) == 1.0f);
      for (size_t j = 0; j < element_count(h); j++)
        assert_true(get(h, j) == get(bank, j)); // both have the order T, D
      close_problem(&p);
    }
  free(text);
}

// Infinite logits come out as in PyTorch: a masked source has weight 0; with none left, or with one
// of +inf, the weights are NaN, and the log-sum-exp is -inf or inf.
static void test_infinite_logits(void **unused) {
  (void)unused;
  current = "infinite logits";
  static const char text[] = "graph @z(%z: f32[T, N=3]) {\n"
                             "  %a = softmax %z over N : f32[T, N]\n"
                             "  %l = logsumexp %z over N : f32[T]\n"
                             "  return %a, %l\n"
                             "}\n";
  static const struct {
    float logits[3], weights[3], lse;
  } cases[] = {
      {{0, 0, 0}, {1.0f / 3, 1.0f / 3, 1.0f / 3}, 1.0986123f},
      {{-INFINITY, 2, -INFINITY}, {0, 1, 0}, 2},
      {{-INFINITY, -INFINITY, -INFINITY}, {NAN, NAN, NAN}, -INFINITY},
      {{INFINITY, 0, 1}, {NAN, NAN, NAN}, INFINITY},
      {{INFINITY, INFINITY, -INFINITY}, {NAN, NAN, NAN}, INFINITY},
      {{NAN, 0, INFINITY}, {NAN, NAN, NAN}, NAN},
      {{1e4f, -1e4f, 0}, {1, 0, 0}, 1e4f},
  };
  enum { CASES = sizeof cases / sizeof cases[0] };
  static const char *const targets[] = {"interp", "cpu"};
  for (size_t t = 0; t < 2; t++) {
    problem p;
    open_problem(&p, text, 1, 3, CASES);
    for (size_t i = 0; i < 3 * CASES; i++)
      put(&p.tensors[0], i, cases[i / 3].logits[i % 3]);
    compile(&p, targets[t], NULL);
    run_on(&p, p.tensors);
    for (size_t i = 0; i < 4 * CASES; i++) {
      bool weight = i < 3 * CASES;
      float wanted = weight ? cases[i / 3].weights[i % 3] : cases[i - 3 * CASES].lse;
      float found = get(&p.tensors[weight ? 1 : 2], weight ? i : i - 3 * CASES);
      bool same = isnan(wanted)   ? isnan(found)
                  : isinf(wanted) ? found == wanted
                                  : fabsf(found - wanted) <= 1e-6f * fmaxf(1, fabsf(wanted));
      if (!same)
        fail_msg("%s, number %zu: %g instead of %g", targets[t], i, (double)found, (double)wanted);
    }
    close_problem(&p);
  }
}

// ---- storage types ------------------------------------------------------------------------------

enum { ALL_BITS = 1 << 16, WIDE = 4 * ALL_BITS, LINE = 256 };

// Each number of the type, and around the middle between it and the next one: where rounding to
// nearest even decides.
static void fill_wide(const tensor *wide, const tensor *narrow_widened) {
  for (size_t i = 0; i < ALL_BITS; i++) {
    float here = get(narrow_widened, i), next = get(narrow_widened, (i + 1) % ALL_BITS);
    float middle = here + (next - here) / 2;
    float around[] = {here, middle, nextafterf(middle, INFINITY), nextafterf(middle, -INFINITY)};
    for (size_t j = 0; j < 4; j++)
      put(wide, 4 * i + j, around[j]);
  }
}

static void compile_for(problem *p, const char *target, const char *cpu) {
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = target;
  options.cpu = cpu;
  fathom_executable_destroy(p->executable);
  p->executable = NULL;
  assert_ok(fathom_compile(context, p->graph, &options, &p->executable));
}

static void assert_same_casts(const problem *p, const char *cpu) {
  tensor reference[MAX_TENSORS], found[MAX_TENSORS];
  problem run = *p;
  run.executable = NULL;
  share_inputs(p, reference);
  share_inputs(p, found);
  compile_for(&run, "interp", NULL);
  run_on(&run, reference);
  compile_for(&run, "cpu", cpu);
  run_on(&run, found);
  const tensor *a = &reference[1], *b = &found[1];
  for (size_t i = 0; i < element_count(a); i++) {
    if (same_bits(a, i, b, i)) continue;
    uint16_t bits[2] = {0, 0};
    memcpy(&bits[0], element(a, i), 2);
    memcpy(&bits[1], element(b, i), 2);
    bool nans =
        a->info.dtype == FATHOM_F16    ? (bits[0] & 0x7fff) > 0x7c00 && (bits[1] & 0x7fff) > 0x7c00
        : a->info.dtype == FATHOM_BF16 ? (bits[0] & 0x7fff) > 0x7f80 && (bits[1] & 0x7fff) > 0x7f80
                                       : isnan(get(a, i)) && isnan(get(b, i));
    if (!nans)
      fail_msg("%s on %s: element %zu is %04x, the reference says %04x", current, cpu, i, bits[1],
               bits[0]);
  }
  fathom_executable_destroy(run.executable);
  close_tensors(reference, p->count);
  close_tensors(found, p->count);
}

// Every bf16 and f16 number read, every place where rounding decides written, on CPUs with and
// without instructions for it.
static void test_storage_types_round_to_nearest_even(void **unused) {
  (void)unused;
  static const char *const dtypes[] = {"bf16", "f16"}, *const cpus[] = {"host", "x86-64-v3",
                                                                        "x86-64"};
  for (size_t i = 0; i < 2; i++) {
    char widen[256], narrow[256];
    snprintf(widen, sizeof widen,
             "graph @w(%%x: %s[T, D=%d]) { %%y = cast %%x : f32[T, D] return %%y }", dtypes[i],
             LINE);
    snprintf(narrow, sizeof narrow,
             "graph @n(%%x: f32[T, D=%d]) { %%y = cast %%x : %s[T, D] return %%y }", LINE,
             dtypes[i]);
    current = dtypes[i];
    problem p, q;
    open_problem(&p, widen, LINE, 1, ALL_BITS / LINE);
    open_problem(&q, narrow, LINE, 1, WIDE / LINE);
    for (size_t j = 0; j < ALL_BITS; j++)
      memcpy(element(&p.tensors[0], j), &(uint16_t){(uint16_t)j}, 2);
    compile(&p, "interp", NULL);
    run_on(&p, p.tensors);
    fill_wide(&q.tensors[0], &p.tensors[1]);
    for (size_t j = 0; j < sizeof cpus / sizeof cpus[0]; j++) {
      assert_same_casts(&p, cpus[j]);
      assert_same_casts(&q, cpus[j]);
    }
    close_problem(&p);
    close_problem(&q);
  }
}

// ---- 64-bit offsets -----------------------------------------------------------------------------

// Moves a tensor to the places it would have among 40,000 tokens of 7168 channels: strides go on,
// but only three tokens are there, so that little of the memory is touched.
static void spread(tensor *t, const int64_t *far_strides) {
  int64_t last = 0;
  for (uint32_t i = 0; i < t->info.rank; i++)
    last += (t->shape[i] - 1) * far_strides[i];
  size_t bytes = (size_t)(last + 1) * element_size(t);
  void *memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(memory != MAP_FAILED);
  tensor near = *t;
  for (uint32_t i = 0; i < t->info.rank; i++)
    t->strides[i] = far_strides[i];
  t->dl.data = memory;
  for (size_t i = 0; i < element_count(t) && !t->output; i++)
    memcpy(element(t, i), element(&near, i), element_size(t));
}

static void unspread(tensor *t) {
  int64_t last = 0;
  for (uint32_t i = 0; i < t->info.rank; i++)
    last += (t->shape[i] - 1) * t->strides[i];
  munmap(t->dl.data, (size_t)(last + 1) * element_size(t));
}

enum { HIDDEN = 7168, FAR_ROW = 19999 };
#define TOKENS INT64_C(40000)

static void replace(char *at, const char *word) {
  for (; *word; at++, word++)
    *at = *word;
}

// N = 9 sources of T = 40,000 tokens: the last one begins 2.58e9 elements and more than 5e9 bytes
// after the first.
static void check_far(const char *name, const char *dtype, const int64_t *bank_strides) {
  current = name;
  char *text = variant_text(name);
  for (char *at; strcmp(dtype, "bf16") != 0 && (at = strstr(text, "bf16"));)
    replace(at, " f32");
  problem p;
  open_problem(&p, text, HIDDEN, 9, 3);
  compile(&p, "cpu", NULL);
  tensor far[MAX_TENSORS];
  share_inputs(&p, far);
  run_on(&p, p.tensors);
  int64_t row_strides[] = {FAR_ROW * (int64_t)HIDDEN, 1};
  for (uint32_t i = 0; i < p.count; i++) {
    if (far[i].info.rank == 3) spread(&far[i], bank_strides);
    if (far[i].info.rank == 2 && far[i].row == 0) spread(&far[i], row_strides);
  }
  run_on(&p, far);
  assert_same_results(&p, p.tensors, far, "far apart in memory");
  for (uint32_t i = 0; i < p.count; i++)
    if (far[i].row >= 0 && far[i].info.rank >= 2) unspread(&far[i]);
  for (uint32_t i = 0; i < p.count; i++)
    free(far[i].memory);
  close_problem(&p);
  free(text);
}

static void test_far_offsets(void **unused) {
  (void)unused;
  static const int64_t block_major[] = {TOKENS * HIDDEN, FAR_ROW * (int64_t)HIDDEN, 1};
  static const int64_t token_major[] = {HIDDEN, INT64_C(9) * FAR_ROW * HIDDEN, 1};
  static const int64_t hidden_outer[] = {TOKENS, FAR_ROW, 9 * TOKENS};
  static const int64_t *const strides[] = {block_major, token_major, hidden_outer};
  for (size_t i = 0; i < 3; i++) {
    check_far("norm_gain.fir", "bf16", strides[i]);
    check_far("norm_gain.fir", "f32", strides[i]);
  }
  static const int64_t site[] = {TOKENS * HIDDEN, FAR_ROW * (int64_t)HIDDEN, 1};
  check_far("site.fir", "bf16", site);
}

// ---- a list of slices ---------------------------------------------------------------------------

static void check_slices(const char *text) {
  problem p;
  open_problem(&p, text, 102, 5, ROWS);
  tensor *bank = &p.tensors[0];
  bool sliced = bank->info.rank == 3 && bank->row > 0 && bank->info.layout[0] == 0;
  if (sliced) {
    compile(&p, "cpu", NULL);
    run_on(&p, p.tensors);
    tensor apart[MAX_TENSORS];
    share_inputs(&p, apart);
    DLTensor slices[16];
    const DLTensor *list[16];
    assert_true(bank->shape[0] <= 16);
    for (int64_t i = 0; i < bank->shape[0]; i++) {
      slices[i] = bank->dl;
      slices[i].ndim = 2;
      slices[i].shape = bank->shape + 1;
      slices[i].strides = bank->strides + 1;
      slices[i].data = (char *)bank->dl.data + i * bank->strides[0] * (int64_t)element_size(bank);
      list[i] = &slices[i];
    }
    fathom_arg args[MAX_TENSORS];
    for (uint32_t i = 0; i < p.count; i++) {
      apart[i].dl.shape = apart[i].shape;
      apart[i].dl.strides = apart[i].strides;
      args[i] = (fathom_arg){.name = apart[i].info.name, .tensor = &apart[i].dl};
    }
    args[0] = (fathom_arg){
        .name = bank->info.name, .slices = list, .slice_count = (uint32_t)bank->shape[0]};
    size_t bytes;
    assert_ok(fathom_workspace_size(p.executable, args, p.count, NULL, &bytes));
    void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_ok(fathom_run(p.executable, args, p.count, workspace, bytes, NULL));
    free(workspace);
    assert_same_results(&p, p.tensors, apart, "the bank as a list of slices");
    close_tensors(apart, p.count);
  }
  close_problem(&p);
}

static void test_slices_give_the_same_bits(void **unused) {
  (void)unused;
  for_each_variant(check_slices);
}

// ---- threads ------------------------------------------------------------------------------------

static void check_thread_counts(const char *text) {
  static const uint32_t counts[] = {1, 2, 3, 8};
  fathom_context *shared = context;
  problem p;
  open_problem(&p, text, 102, 5, 301);
  compile(&p, "cpu", NULL);
  run_on(&p, p.tensors);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    fathom_context_options options = FATHOM_INIT(options);
    options.threads = counts[i];
    options.cache_directory = "";
    assert_ok(fathom_context_create(&options, &context));
    problem q;
    tensor results[MAX_TENSORS];
    open_problem(&q, text, 102, 5, 1);
    compile(&q, "cpu", NULL);
    share_inputs(&p, results);
    run_on(&q, results);
    assert_same_results(&p, p.tensors, results, "another number of threads");
    close_tensors(results, p.count);
    close_problem(&q);
    fathom_context_destroy(context);
    context = shared;
  }
  close_problem(&p);
}

static void test_thread_counts_give_the_same_bits(void **unused) {
  (void)unused;
  static const char *const names[] = {"site.fir", "phase1.fir", "heads.fir", "batch.fir",
                                      "layout_hidden_outer.fir"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    current = names[i];
    char *text = variant_text(names[i]);
    check_thread_counts(text);
    free(text);
  }
}

enum { HOSTS = 8, ROUNDS = 6 };

typedef struct host {
  pthread_t thread;
  const problem *p;   // shared: its executable is run by all
  const char *text;   // of another graph, which each compiles for itself
  const problem *own; // the same graph, compiled by the main thread
  bool failed;
} host;

// Runs the shared executable and one compiled here, on results of its own, over and over.
static void *work(void *argument) {
  host *h = argument;
  for (int round = 0; round < ROUNDS && !h->failed; round++) {
    tensor shared[MAX_TENSORS], own[MAX_TENSORS];
    share_inputs(h->p, shared);
    share_inputs(h->own, own);
    problem q = *h->own;
    fathom_graph *graph;
    fathom_compile_options options = FATHOM_INIT(options);
    h->failed = fathom_parse(context, h->text, strlen(h->text), "host", &q.module) != FATHOM_OK ||
                fathom_module_graph(q.module, NULL, &graph) != FATHOM_OK;
    if (!h->failed) bind_axes(graph, h->text, 102, 5);
    q.executable = NULL;
    h->failed = h->failed || fathom_compile(context, graph, &options, &q.executable) != FATHOM_OK ||
                !try_run(h->p, shared, NULL) || !try_run(&q, own, NULL);
    for (uint32_t i = h->p->params; i < h->p->count && !h->failed; i++)
      for (size_t j = 0; j < element_count(&shared[i]) && !h->failed; j++)
        h->failed = !same_bits(&shared[i], j, &h->p->tensors[i], j);
    for (uint32_t i = q.params; i < q.count && !h->failed; i++)
      for (size_t j = 0; j < element_count(&own[i]) && !h->failed; j++)
        h->failed = !same_bits(&own[i], j, &h->own->tensors[i], j);
    fathom_executable_destroy(q.executable);
    fathom_module_destroy(q.module);
    close_tensors(shared, h->p->count);
    close_tensors(own, q.count);
  }
  return NULL;
}

static void test_eight_threads_run_and_compile(void **unused) {
  (void)unused;
  static const char *const names[] = {"phase1.fir", "heads.fir", "norm_none.fir", "phase2.fir"};
  current = "site.fir";
  char *site = variant_text(current), *texts[4];
  problem p, others[4];
  open_problem(&p, site, 102, 5, 301);
  compile(&p, "cpu", NULL);
  run_on(&p, p.tensors);
  for (int i = 0; i < 4; i++) {
    texts[i] = variant_text(names[i]);
    open_problem(&others[i], texts[i], 102, 5, 65);
    compile(&others[i], "cpu", NULL);
    run_on(&others[i], others[i].tensors);
  }
  host hosts[HOSTS];
  for (int i = 0; i < HOSTS; i++) {
    hosts[i] = (host){.p = &p, .text = texts[i % 4], .own = &others[i % 4]};
    assert_int_equal(pthread_create(&hosts[i].thread, NULL, work, &hosts[i]), 0);
  }
  bool failed = false;
  for (int i = 0; i < HOSTS; i++) {
    pthread_join(hosts[i].thread, NULL);
    failed |= hosts[i].failed;
  }
  assert_false(failed);
  for (int i = 0; i < 4; i++) {
    close_problem(&others[i]);
    free(texts[i]);
  }
  close_problem(&p);
  free(site);
}

// ---------------------------------------------------------------------------------------------------------

static int open_context(void **unused) {
  (void)unused;
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = "";
  return fathom_context_create(&options, &context) != FATHOM_OK;
}

static int close_context(void **unused) {
  (void)unused;
  fathom_context_destroy(context);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_are_independent),
      cmocka_unit_test(test_nan_source_makes_nan_row),
      cmocka_unit_test(test_large_logits),
      cmocka_unit_test(test_one_source_has_weight_one),
      cmocka_unit_test(test_infinite_logits),
      cmocka_unit_test(test_storage_types_round_to_nearest_even),
      cmocka_unit_test(test_far_offsets),
      cmocka_unit_test(test_slices_give_the_same_bits),
      cmocka_unit_test(test_thread_counts_give_the_same_bits),
      cmocka_unit_test(test_eight_threads_run_and_compile),
  };
  return cmocka_run_group_tests(tests, open_context, close_context);
}
