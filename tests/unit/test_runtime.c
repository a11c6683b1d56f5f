// The launcher with hand-written kernels in the role of compiled code: binding, tasks, strides,
// packing, workspace, threads. Every layout of a tensor must give the same bits as the dense one.
#include "runtime/plan.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { N = 3, D = 7, RED_ZONE = 256, CANARY = 0xc5 };

// ---- kernels ------------------------------------------------------------------------------------

static atomic_int body_calls, prepare_calls;

static float *at(void *base, int64_t offset) {
  return (float *)rt_shift(base, offset);
}

// out[b, t, d] = sum over n of bank[n, b, t, d] * weight[b, t] * 2 * scale[d]
static void mix_prepare(void *const *pointers, const int64_t *strides, void *shared,
                        void *scratch) {
  (void)strides;
  atomic_fetch_add(&prepare_calls, 1);
  memset(scratch, 1, 96);
  for (int d = 0; d < D; d++) {
    ((float *)shared)[d] = 2 * ((float *)pointers[N + 1])[d];
  }
}

static void mix_body(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                     void *shared, void *scratch) {
  atomic_fetch_add(&body_calls, 1);
  assert_int_equal((uintptr_t)shared % RT_ALIGNMENT, 0);
  assert_int_equal((uintptr_t)scratch % RT_ALIGNMENT, 0);
  memset(scratch, (int)begin, 96);
  for (int64_t t = begin; t < end; t++) {
    float weight = *at(pointers[N], t * strides[5]);
    for (int d = 0; d < D; d++) {
      float sum = 0;
      for (int n = 0; n < N; n++) {
        sum += at(pointers[n], t * strides[2])[d];
      }
      at(pointers[N + 2], t * strides[8])[d] = sum * weight * ((float *)shared)[d];
    }
  }
}

enum { BANK, WEIGHT, SCALE, OUT, TENSORS };

static const rt_axis mix_axes[] = {{"N", N}, {"B", RT_DYNAMIC}, {"T", RT_DYNAMIC}, {"D", D}};
static const rt_slot mix_slots[] = {{"bank", RT_INPUT, RT_F32, 4, {0, 1, 2, 3}},
                                    {"weight", RT_INPUT, RT_F32, 2, {1, 2}},
                                    {"scale", RT_INPUT, RT_F32, 1, {3}},
                                    {"out", RT_OUTPUT, RT_F32, 3, {1, 2, 3}}};
static const rt_kernel_arg mix_args[] = {{BANK, 0, N, 0, 3, false},
                                         {WEIGHT, N, 1, 4, -1, false},
                                         {SCALE, N + 1, 1, 6, 0, false},
                                         {OUT, N + 2, 1, 7, 2, true}};
static const rt_kernel mix_kernel = {.name = "mix",
                                     .body = mix_body,
                                     .prepare = mix_prepare,
                                     .arg_count = 4,
                                     .args = mix_args,
                                     .pointer_count = N + 3,
                                     .stride_count = 10,
                                     .row_count = 2,
                                     .rows = {1, 2},
                                     .rows_per_task = 4,
                                     .shared_bytes = D * sizeof(float),
                                     .scratch_bytes = 96};
static const rt_program mix_program = {4, 4, 1, mix_axes, mix_slots, &mix_kernel};

// ---- tensors in any layout ----------------------------------------------------------------------

// `order` lists the axes outermost first, one letter for each position ("0123"); capital positions
// are walked backwards ("A" is 0 reversed), and the positions of `broadcast` have stride 0.
typedef struct layout {
  const char *order;
  int64_t pad;
  const char *broadcast;
  bool sliced;
} layout;

typedef struct tensor {
  rt_tensor rt;
  char *storage;
  size_t bytes;
  char *slices[64];
} tensor;

static char *element(const rt_tensor *tensor, const int64_t *index) {
  char *data = tensor->slices ? tensor->slices[index[0]] : tensor->data;
  for (uint32_t i = tensor->slices ? 1 : 0; i < tensor->rank; i++) {
    data += index[i] * tensor->strides[i] * (int64_t)rt_dtype_size(tensor->dtype);
  }
  return data;
}

static bool next_index(const rt_tensor *tensor, int64_t *index) {
  for (uint32_t i = tensor->rank; i-- > 0;) {
    if (++index[i] < tensor->shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

static void make_tensor(tensor *out, const rt_slot *slot, const int64_t *sizes, layout layout) {
  *out = (tensor){.rt = {.dtype = slot->dtype, .rank = slot->rank}};
  int64_t stride = 1, first = 0;
  for (size_t k = strlen(layout.order); k-- > 0;) {
    char letter = layout.order[k];
    bool backwards = letter >= 'A';
    int i = backwards ? letter - 'A' : letter - '0';
    int64_t size = sizes[slot->axes[i]];
    out->rt.shape[i] = size;
    if (layout.broadcast && strchr(layout.broadcast, letter)) continue;
    out->rt.strides[i] = backwards ? -stride : stride;
    if (backwards) first += (size - 1) * stride;
    stride *= size + layout.pad;
  }
  int64_t size = (int64_t)rt_dtype_size(slot->dtype);
  out->bytes = (size_t)((stride + 1) * size);
  out->storage = malloc(out->bytes);
  memset(out->storage, CANARY, out->bytes);
  out->rt.data = out->storage + first * size;
  if (!layout.sliced) return;
  for (int64_t i = 0; i < out->rt.shape[0]; i++) { // in an order that no stride describes
    int64_t swapped = (i ^ 1) < out->rt.shape[0] ? i ^ 1 : i;
    out->slices[i] = out->rt.data + swapped * out->rt.strides[0] * size;
  }
  out->rt.slices = out->slices;
}

// The same logical values whatever the layout; positions in `broadcast` do not count.
static float value_at(const rt_tensor *tensor, const int64_t *index, uint32_t salt) {
  uint32_t hash = salt * 2654435761u + 12345;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    bool counts = tensor->strides[i] != 0;
    hash = (hash ^ (uint32_t)(counts ? index[i] + 1 : 1)) * 16777619u;
  }
  return (float)(hash >> 8) / 8388608.0f - 1.0f;
}

static void fill(const rt_tensor *tensor, uint32_t salt) {
  int64_t index[RT_MAX_RANK] = {0};
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 0) return;
  }
  do {
    float value = value_at(tensor, index, salt);
    memcpy(element(tensor, index), &value, rt_dtype_size(tensor->dtype));
  } while (next_index(tensor, index));
}

// ---- one run ------------------------------------------------------------------------------------

typedef struct site {
  tensor tensors[TENSORS];
  rt_tensor bound[TENSORS];
  int64_t sizes[4];
} site;

static const layout dense[TENSORS] = {
    {.order = "0123"}, {.order = "01"}, {.order = "0"}, {.order = "012"}};

static void make_site(site *site, int64_t b, int64_t t, const layout *layouts) {
  int64_t sizes[4] = {N, b, t, D};
  for (int i = 0; i < TENSORS; i++) {
    make_tensor(&site->tensors[i], &mix_slots[i], sizes, layouts[i]);
    if (i != OUT) fill(&site->tensors[i].rt, (uint32_t)i);
    site->bound[i] = site->tensors[i].rt;
  }
}

static void free_site(site *site) {
  for (int i = 0; i < TENSORS; i++) {
    free(site->tensors[i].storage);
  }
}

static base_status bind_quietly(const rt_program *program, const rt_tensor *tensors, int64_t *sizes,
                                char *text, size_t room) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  base_status status = rt_bind(program, tensors, sizes, &diag);
  base_str all = base_diag_render(&diag);
  if (text) snprintf(text, room, "%.*s", BASE_FMT(all));
  base_arena_reset(&arena);
  return status;
}

static size_t workspace_bytes(const rt_program *program, const rt_tensor *tensors,
                              const int64_t *sizes, uint32_t concurrency) {
  base_arena arena;
  base_diag diag;
  size_t bytes;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  assert_int_equal(rt_workspace_size(program, tensors, sizes, concurrency, &bytes, &diag), BASE_OK);
  base_arena_reset(&arena);
  return bytes;
}

// Binds and launches in a workspace of exactly the size asked for, between red zones. Returns the
// size.
static size_t run(const rt_program *program, const rt_tensor *tensors,
                  const rt_executor *executor) {
  int64_t sizes[8];
  char text[2000];
  if (bind_quietly(program, tensors, sizes, text, sizeof text) != BASE_OK) fail_msg("%s", text);
  size_t bytes = workspace_bytes(program, tensors, sizes, executor->concurrency);
  size_t room = (bytes + 2 * RED_ZONE + 63) / 64 * 64;
  unsigned char *memory = aligned_alloc(RT_ALIGNMENT, room);
  memset(memory, CANARY, room);
  rt_launch(program, tensors, sizes, executor, memory + RED_ZONE);
  for (size_t i = 0; i < RED_ZONE; i++) {
    assert_int_equal(memory[i], CANARY);
    assert_int_equal(memory[RED_ZONE + bytes + i], CANARY);
  }
  free(memory);
  return bytes;
}

static void run_in_turn(void *user, size_t count, void (*work)(void *argument, size_t index),
                        void *argument) {
  (void)user;
  for (size_t i = count; i-- > 0;) { // backwards: order must not matter
    work(argument, i);
  }
}

static const rt_executor one = {.concurrency = 1};
static const rt_executor in_turn = {.concurrency = 3, .parallel_for = run_in_turn};

static void expect_mix(const site *site) {
  const rt_tensor *out = &site->bound[OUT];
  int64_t i[RT_MAX_RANK] = {0};
  do { // i = b, t, d
    float weight, scale, sum = 0, found;
    memcpy(&weight, element(&site->bound[WEIGHT], i), 4);
    memcpy(&scale, element(&site->bound[SCALE], &i[2]), 4);
    for (int n = 0; n < N; n++) {
      int64_t index[] = {n, i[0], i[1], i[2]};
      float x;
      memcpy(&x, element(&site->bound[BANK], index), 4);
      sum += x;
    }
    float expected = sum * weight * (2 * scale);
    memcpy(&found, element(out, i), 4);
    assert_memory_equal(&found, &expected, 4);
  } while (next_index(out, i));
}

// Bytes of an output's storage that no element owns keep the canary.
static void expect_gaps_untouched(const tensor *out) {
  unsigned char *owned = calloc(out->bytes, 1);
  int64_t index[RT_MAX_RANK] = {0};
  do {
    memset(owned + (element(&out->rt, index) - out->storage), 1, rt_dtype_size(out->rt.dtype));
  } while (next_index(&out->rt, index));
  for (size_t i = 0; i < out->bytes; i++) {
    if (!owned[i]) assert_int_equal((unsigned char)out->storage[i], CANARY);
  }
  free(owned);
}

// ---- tests: layouts -----------------------------------------------------------------------------

static void every_layout_gives_the_same_result(void **state) {
  (void)state;
  static const layout cases[][TENSORS] = {
      {{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, // dense
      {{"1203", 0, 0, 0}, {"10", 0, 0, 0}, {"0", 0, 0, 0}, {"102", 0, 0, 0}}, // token-major bank
      {{"0123", 5, 0, 0}, {"01", 3, 0, 0}, {"0", 0, 0, 0}, {"012", 2, 0, 0}}, // padded rows
      {{"ABC3", 0, 0, 0}, {"AB", 0, 0, 0}, {"0", 0, 0, 0}, {"AB2", 1, 0, 0}}, // negative strides
      {{"ABCD", 0, 0, 0},
       {"AB", 1, 0, 0},
       {"A", 0, 0, 0},
       {"ABC", 1, 0, 0}}, // down to the unit axis
      {{"0123", 0, "1", 0}, {"01", 0, "01", 0}, {"0", 0, "0", 0}, {"012", 0, 0, 0}}, // broadcast
      {{"0123", 0, "0123", 0}, {"01", 0, "0", 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}},
      {{"0132", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, // packed input
      {{"3210", 3, 0, 0}, {"10", 2, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}},
      {{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"210", 0, 0, 0}}, // packed result
      {{"2310", 1, 0, 0}, {"01", 0, 0, 0}, {"A", 0, 0, 0}, {"2A1", 1, 0, 0}}, // both
      {{"0123", 0, 0, 1}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, // slices
      {{"0213", 2, 0, 1}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}},
      {{"0312", 2, 0, 1}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"021", 0, 0, 0}}, // packed slices
      {{"0123", 0, 0, 0},
       {"01", 0, 0, 1},
       {"0", 0, 0, 0},
       {"012", 0, 0, 1}}, // slices of an outer row axis
      {{"0123", 0, 0, 0}, {"10", 0, 0, 1}, {"0", 0, 0, 1}, {"120", 1, 0, 1}},
  };
  static const int64_t rows[][2] = {{1, 1}, {1, 4}, {1, 9}, {2, 3}, {5, 1}, {6, 11}};
  for (size_t c = 0; c < COUNT(cases); c++) {
    for (size_t r = 0; r < COUNT(rows); r++) {
      site site;
      make_site(&site, rows[r][0], rows[r][1], cases[c]);
      run(&mix_program, site.bound, &in_turn);
      expect_mix(&site);
      expect_gaps_untouched(&site.tensors[OUT]);
      free_site(&site);
    }
  }
}

// y = x for 16-bit elements, where the code takes one array and steps through N (or the rows) by 1.
static void copy_16(void *const *pointers, int64_t begin, int64_t end, const int64_t *row_strides,
                    const int64_t *n_strides) {
  for (int64_t t = begin; t < end; t++) {
    for (int n = 0; n < N; n++) {
      memcpy(rt_shift(pointers[1], t * row_strides[1] + n * n_strides[1]),
             rt_shift(pointers[0], t * row_strides[0] + n * n_strides[0]), 2);
    }
  }
}

static void copy_rows_first(void *const *pointers, const int64_t *strides, int64_t begin,
                            int64_t end, void *shared, void *scratch) {
  (void)shared, (void)scratch;
  copy_16(pointers, begin, end, (int64_t[]){strides[0], strides[2]}, (int64_t[]){2, 2});
}

static void copy_rows_last(void *const *pointers, const int64_t *strides, int64_t begin,
                           int64_t end, void *shared, void *scratch) {
  (void)shared, (void)scratch;
  copy_16(pointers, begin, end, (int64_t[]){2, 2}, (int64_t[]){strides[0], strides[2]});
}

static void lists_work_where_the_code_wants_one_array(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"T", RT_DYNAMIC}, {"N", N}};
  static const rt_slot slots[][2] = {
      {{"x", RT_INPUT, RT_BF16, 2, {0, 1}}, {"y", RT_OUTPUT, RT_BF16, 2, {0, 1}}},
      {{"x", RT_INPUT, RT_BF16, 2, {1, 0}}, {"y", RT_OUTPUT, RT_BF16, 2, {1, 0}}}};
  static const rt_kernel_arg args[] = {{0, 0, 1, 0, 1, false}, {1, 1, 1, 2, 1, true}};
  static const layout layouts[] = {{"01", 0, 0, true},
                                   {"10", 1, 0, true},
                                   {"BA", 1, 0, true},
                                   {"01", 2, 0, false},
                                   {"BA", 0, 0, false}};
  int64_t sizes[] = {5, N};
  for (size_t c = 0; c < 2 * 3 * COUNT(layouts) * COUNT(layouts); c++) {
    bool last = c % 2;
    rt_kernel kernel = {.body = last ? copy_rows_last : copy_rows_first,
                        .arg_count = 2,
                        .args = args,
                        .pointer_count = 2,
                        .stride_count = 4,
                        .row_count = 1,
                        .rows_per_task = 1 + (int64_t)c / 2 % 3};
    rt_program program = {2, 2, 1, axes, slots[last], &kernel};
    tensor x, y;
    make_tensor(&x, &slots[last][0], sizes, layouts[c / 6 % COUNT(layouts)]);
    make_tensor(&y, &slots[last][1], sizes, layouts[c / 6 / COUNT(layouts)]);
    fill(&x.rt, 9);
    run(&program, (rt_tensor[]){x.rt, y.rt}, &in_turn);
    int64_t index[RT_MAX_RANK] = {0};
    do {
      assert_memory_equal(element(&y.rt, index), element(&x.rt, index), 2);
    } while (next_index(&x.rt, index));
    expect_gaps_untouched(&y);
    free(x.storage);
    free(y.storage);
  }
}

static void offsets_pass_two_to_the_31_elements(void **state) {
  (void)state;
  size_t room = (size_t)13 << 30; // address space only
  char *memory =
      mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) skip();
  site site;
  make_site(&site, 1, 2, dense);
  rt_tensor *bank = &site.bound[BANK];
  bank->data = memory;
  bank->strides[0] = D;
  bank->strides[2] = (int64_t)3 << 30;
  fill(bank, 5);
  run(&mix_program, site.bound, &one);
  expect_mix(&site);
  munmap(memory, room);
  free_site(&site);
}

// ---- tests: tasks -------------------------------------------------------------------------------

static void no_rows_no_calls(void **state) {
  (void)state;
  static const int64_t rows[][2] = {{0, 5}, {5, 0}, {0, 0}};
  for (size_t r = 0; r < COUNT(rows); r++) {
    site site;
    make_site(&site, rows[r][0], rows[r][1], dense);
    for (int i = 0; i < TENSORS; i++) {
      if (i != SCALE) site.bound[i].data = NULL; // nothing to point at
    }
    body_calls = prepare_calls = 0;
    assert_int_equal(run(&mix_program, site.bound, &one), 0);
    assert_int_equal(body_calls, 0);
    assert_int_equal(prepare_calls, 0);
    free_site(&site);
  }
}

// Short batches that lie behind each other fill whole tasks; others cannot.
static void neighbouring_row_axes_are_one(void **state) {
  (void)state;
  static const struct {
    layout layouts[TENSORS];
    int64_t b, t;
    int calls; // 4 rows a task
  } cases[] = {
      {{{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 32, 3, 24},
      {{{"1203", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 32, 3, 24},
      {{{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 32, 1, 8},
      {{{"ABC3", 0, 0, 0}, {"AB", 0, 0, 0}, {"0", 0, 0, 0}, {"AB2", 0, 0, 0}}, 8, 2, 4},
      {{{"0123", 0, "012", 0}, {"01", 0, "01", 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 8, 2, 4},
      {{{"0123", 0, 0, 0}, {"10", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 32, 3, 32},
      {{{"0123", 0, 0, 0}, {"01", 0, "0", 0}, {"0", 0, 0, 0}, {"012", 0, 0, 0}}, 32, 3, 32},
      {{{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 1, 0, 0}}, 32, 3, 32},
      {{{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 1, 0, 0}}, 1, 9, 3},
      {{{"0123", 0, 0, 0}, {"01", 0, 0, 0}, {"0", 0, 0, 0}, {"012", 0, 0, 1}}, 32, 3, 32},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    site site;
    make_site(&site, cases[c].b, cases[c].t, cases[c].layouts);
    body_calls = prepare_calls = 0;
    run(&mix_program, site.bound, &in_turn);
    assert_int_equal(body_calls, cases[c].calls);
    assert_int_equal(prepare_calls, 1);
    expect_mix(&site);
    free_site(&site);
  }
}

// y[a, b, c, e, t] = -x[c, a, e, t]
static void negate_body(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                        void *shared, void *scratch) {
  (void)shared, (void)scratch;
  for (int64_t t = begin; t < end; t++) {
    *at(pointers[1], t * strides[8]) = -*at(pointers[0], t * strides[3]);
  }
}

static void many_row_axes(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"A", 2}, {"B", 3}, {"C", 4}, {"E", 1}, {"T", RT_DYNAMIC}};
  static const rt_slot slots[] = {{"x", RT_INPUT, RT_F32, 4, {2, 0, 3, 4}},
                                  {"y", RT_OUTPUT, RT_F32, 5, {0, 1, 2, 3, 4}}};
  static const rt_kernel_arg args[] = {{0, 0, 1, 0, -1, false}, {1, 1, 1, 4, -1, true}};
  static const rt_kernel kernel = {.body = negate_body,
                                   .arg_count = 2,
                                   .args = args,
                                   .pointer_count = 2,
                                   .stride_count = 9,
                                   .row_count = 5,
                                   .rows = {0, 1, 2, 3, 4},
                                   .rows_per_task = 2};
  static const rt_program program = {5, 2, 1, axes, slots, &kernel};
  static const layout inputs[] = {{.order = "0123"}, {"3A2B", 1, 0, 0}, {"0123", 0, 0, true}};
  static const layout outputs[] = {{.order = "01234"}, {"4D2B0", 1, 0, 0}, {"01234", 0, 0, true}};
  for (size_t c = 0; c < 27; c++) {
    int64_t sizes[] = {2, 3, 4, 1, 1 + 2 * (int64_t)(c / 9)};
    tensor x, y;
    make_tensor(&x, &slots[0], sizes, inputs[c % 3]);
    make_tensor(&y, &slots[1], sizes, outputs[c / 3 % 3]);
    fill(&x.rt, 1);
    run(&program, (rt_tensor[]){x.rt, y.rt}, &in_turn);
    int64_t i[RT_MAX_RANK] = {0};
    do {
      float found, expected;
      memcpy(&found, element(&y.rt, i), 4);
      memcpy(&expected, element(&x.rt, (int64_t[]){i[2], i[0], i[3], i[4]}), 4);
      assert_true(found == -expected);
    } while (next_index(&y.rt, i));
    free(x.storage);
    free(y.storage);
  }
}

// y[b, t] = x[b]: the code does not step through x, so neighbouring rows cannot be one axis.
static void spread_body(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                        void *shared, void *scratch) {
  (void)shared, (void)scratch;
  for (int64_t t = begin; t < end; t++) {
    *at(pointers[1], t * strides[2]) = *at(pointers[0], 0);
  }
}

static void an_argument_without_the_innermost_rows(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"B", RT_DYNAMIC}, {"T", RT_DYNAMIC}};
  static const rt_slot slots[] = {{"x", RT_INPUT, RT_F32, 1, {0}},
                                  {"y", RT_OUTPUT, RT_F32, 2, {0, 1}}};
  static const rt_kernel_arg args[] = {{0, 0, 1, 0, -1, false}, {1, 1, 1, 1, -1, true}};
  static const rt_kernel kernel = {.body = spread_body,
                                   .arg_count = 2,
                                   .args = args,
                                   .pointer_count = 2,
                                   .stride_count = 3,
                                   .row_count = 2,
                                   .rows = {0, 1},
                                   .rows_per_task = 4};
  static const rt_program program = {2, 2, 1, axes, slots, &kernel};
  for (int64_t t = 1; t < 7; t++) {
    int64_t sizes[] = {5, t}, i[RT_MAX_RANK] = {0};
    tensor x, y;
    make_tensor(&x, &slots[0], sizes, (layout){.order = "0"});
    make_tensor(&y, &slots[1], sizes, (layout){.order = "01"});
    fill(&x.rt, 1);
    run(&program, (rt_tensor[]){x.rt, y.rt}, &in_turn);
    do {
      assert_memory_equal(element(&y.rt, i), element(&x.rt, i), 4);
    } while (next_index(&y.rt, i));
    free(x.storage);
    free(y.storage);
  }
}

// tmp = -x, then y = -tmp: the second kernel sees what all workers of the first wrote.
static void first_negate(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                         void *shared, void *scratch) {
  (void)shared, (void)scratch;
  assert_true(pointers[0] != pointers[1]);
  for (int64_t t = begin; t < end; t++) {
    for (int d = 0; d < D; d++) {
      at(pointers[1], t * strides[2])[d] = -at(pointers[0], t * strides[0])[d];
    }
  }
}

static void temporaries_live_in_the_workspace(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"T", RT_DYNAMIC}, {"D", D}};
  static const rt_slot slots[] = {{"x", RT_INPUT, RT_F32, 2, {0, 1}},
                                  {"y", RT_OUTPUT, RT_F32, 2, {0, 1}},
                                  {"unused", RT_TEMPORARY, RT_BF16, 2, {0, 1}},
                                  {"tmp", RT_TEMPORARY, RT_F32, 2, {0, 1}}};
  static const rt_kernel_arg first[] = {{0, 0, 1, 0, 1, false}, {3, 1, 1, 2, 1, true}};
  static const rt_kernel_arg second[] = {{3, 0, 1, 0, 1, false}, {1, 1, 1, 2, 1, true}};
  rt_kernel kernels[2] = {{.body = first_negate,
                           .arg_count = 2,
                           .args = first,
                           .pointer_count = 2,
                           .stride_count = 4,
                           .row_count = 1,
                           .rows_per_task = 2}};
  kernels[1] = kernels[0];
  kernels[1].args = second;
  kernels[1].rows_per_task = 3;
  rt_program program = {2, 4, 2, axes, slots, kernels};
  for (int64_t t = 0; t < 40; t += 13) {
    int64_t sizes[] = {t, D};
    tensor x, y;
    make_tensor(&x, &slots[0], sizes, (layout){.order = "10"});
    make_tensor(&y, &slots[1], sizes, (layout){.order = "01"});
    fill(&x.rt, 3);
    size_t bytes = run(&program, (rt_tensor[]){x.rt, y.rt}, &in_turn);
    assert_true(bytes >= (size_t)t * D * 6);
    int64_t index[RT_MAX_RANK] = {0};
    do {
      if (t > 0) assert_memory_equal(element(&y.rt, index), element(&x.rt, index), 4);
    } while (t > 0 && next_index(&x.rt, index));
    free(x.storage);
    free(y.storage);
  }
}

static void a_kernel_without_rows_runs_once(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"T", 3}, {"D", D}};
  static const rt_slot slots[] = {{"x", RT_INPUT, RT_F32, 2, {0, 1}},
                                  {"y", RT_OUTPUT, RT_F32, 2, {0, 1}}};
  static const rt_kernel_arg args[] = {{0, 0, 1, 0, 1, false}, {1, 1, 1, 2, 1, true}};
  static const rt_kernel kernel = {.body = first_negate,
                                   .arg_count = 2,
                                   .args = args,
                                   .pointer_count = 2,
                                   .stride_count = 4,
                                   .rows_per_task = 1};
  static const rt_program program = {2, 2, 1, axes, slots, &kernel};
  int64_t sizes[] = {3, D};
  tensor x, y;
  make_tensor(&x, &slots[0], sizes, (layout){.order = "10"});
  make_tensor(&y, &slots[1], sizes, (layout){.order = "10"});
  fill(&x.rt, 3);
  run(&program, (rt_tensor[]){x.rt, y.rt}, &in_turn);
  for (int64_t d = 0; d < D; d++) { // the body loops over rows 0 .. 1 only
    float a, b;
    memcpy(&a, element(&x.rt, (int64_t[]){0, d}), 4);
    memcpy(&b, element(&y.rt, (int64_t[]){0, d}), 4);
    assert_true(a == -b);
  }
  free(x.storage);
  free(y.storage);
}

// The answer of the size query is what the launch uses: not a byte more, and less than a line is
// spare.
static void the_workspace_is_used_to_the_end(void **state) {
  (void)state;
  site site;
  make_site(&site, 2, 5,
            (layout[]){{"0132", 0, 0, 0}, {.order = "10"}, {"A", 0, 0, 0}, {"021", 0, 0, 0}});
  for (uint32_t concurrency = 1; concurrency < 9; concurrency++) {
    rt_executor executor = {.concurrency = concurrency, .parallel_for = run_in_turn};
    assert_int_equal(bind_quietly(&mix_program, site.bound, site.sizes, NULL, 0), BASE_OK);
    size_t bytes = workspace_bytes(&mix_program, site.bound, site.sizes, concurrency);
    unsigned char *memory = aligned_alloc(RT_ALIGNMENT, bytes + RT_ALIGNMENT);
    memset(memory, CANARY, bytes + RT_ALIGNMENT);
    rt_launch(&mix_program, site.bound, site.sizes, &executor, memory);
    size_t end = bytes + RT_ALIGNMENT;
    while (memory[end - 1] == CANARY) {
      end--;
    }
    assert_in_range(end, 1, bytes);
    // Backwards in turn, the last worker takes every task.
    assert_true(bytes - end < RT_ALIGNMENT);
    free(memory);
  }
  free_site(&site);
}

// ---- tests: threads -----------------------------------------------------------------------------

static void any_number_of_threads_gives_the_same_bits(void **state) {
  (void)state;
  for (uint32_t threads = 1; threads <= 8; threads++) {
    rt_pool *pool;
    assert_int_equal(rt_pool_create(threads, &pool), BASE_OK);
    rt_executor executor = rt_pool_executor(pool);
    assert_int_equal(executor.concurrency, threads);
    site site;
    make_site(&site, 3, 101,
              (layout[]){{"0132", 0, 0, 0}, {.order = "01"}, {.order = "0"}, {"201", 0, 0, 0}});
    body_calls = 0;
    run(&mix_program, site.bound, &executor);
    assert_int_equal(body_calls, 3 * 26); // each task once
    expect_mix(&site);
    free_site(&site);
    rt_pool_destroy(pool);
  }
}

static void *launch_often(void *argument) {
  const rt_executor *executor = argument;
  for (int i = 0; i < 20; i++) {
    site site;
    make_site(&site, 2, 40 + i, dense);
    run(&mix_program, site.bound, executor);
    expect_mix(&site);
    free_site(&site);
  }
  return NULL;
}

static void eight_host_threads_share_a_pool(void **state) {
  (void)state;
  rt_pool *pool;
  pthread_t hosts[8];
  assert_int_equal(rt_pool_create(3, &pool), BASE_OK);
  rt_executor executor = rt_pool_executor(pool);
  for (size_t i = 0; i < COUNT(hosts); i++) {
    assert_int_equal(pthread_create(&hosts[i], NULL, launch_often, &executor), 0);
  }
  for (size_t i = 0; i < COUNT(hosts); i++) {
    pthread_join(hosts[i], NULL);
  }
  rt_pool_destroy(pool);
}

static void the_default_pool_fits_the_process(void **state) {
  (void)state;
  rt_pool *pool;
  cpu_set_t before, narrow;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  assert_int_equal(rt_pool_create(0, &pool), BASE_OK);
  assert_in_range(rt_pool_executor(pool).concurrency, 1, CPU_COUNT(&before));
  rt_pool_destroy(pool);
  int core = 0;
  while (!CPU_ISSET(core, &before)) {
    core++;
  }
  CPU_ZERO(&narrow);
  CPU_SET(core, &narrow);
  assert_int_equal(sched_setaffinity(0, sizeof narrow, &narrow), 0);
  assert_int_equal(rt_pool_create(0, &pool), BASE_OK);
  assert_int_equal(rt_pool_executor(pool).concurrency, 1);
  rt_pool_destroy(pool);
  sched_setaffinity(0, sizeof before, &before);
  assert_int_equal(rt_pool_create(1u << 30, &pool), BASE_UNSUPPORTED);
  assert_null(pool);
  rt_pool_destroy(NULL);
}

// ---- tests: binding -----------------------------------------------------------------------------

static void expect_refusal(const site *site, const char *expected) {
  int64_t sizes[4];
  char text[2000];
  assert_int_equal(bind_quietly(&mix_program, site->bound, sizes, text, sizeof text), BASE_INVALID);
  if (!strstr(text, expected)) fail_msg("expected: %s\nfound: %s", expected, text);
}

static void wrong_tensors_are_named(void **state) {
  (void)state;
  static const struct {
    int tensor, position; // position -1: dtype, -2: rank, -3: data, -4: its low bit
    int64_t value;
    const char *expected;
  } cases[] = {
      {BANK, -1, RT_BF16, "%bank: dtype bf16, the graph says f32"},
      {BANK, -2, 3, "%bank: 3 axes, the graph says 4"},
      {BANK, 0, N + 1, "%bank: axis N has size 4, the graph says 3"},
      {SCALE, 0, D - 1, "%scale: axis D has size 6, the graph says 7"},
      {WEIGHT, 1, 6, "%weight: axis T has size 6, but %bank says 5"},
      {OUT, 0, 9, "%out: axis B has size 9, but %bank says 2"},
      {OUT, 2, -4, "%out: axis D has the negative size -4"},
      {WEIGHT, -3, 0, "%weight: no memory"},
      {WEIGHT, -4, 0, "%weight: its address is not a multiple of its 4-byte element"},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    site site;
    make_site(&site, 2, 5, dense);
    rt_tensor *tensor = &site.bound[cases[c].tensor];
    if (cases[c].position == -1) tensor->dtype = (rt_dtype)cases[c].value;
    if (cases[c].position == -2) tensor->rank = (uint32_t)cases[c].value;
    if (cases[c].position == -3) tensor->data = NULL;
    if (cases[c].position == -4) tensor->data++;
    if (cases[c].position >= 0) tensor->shape[cases[c].position] = cases[c].value;
    expect_refusal(&site, cases[c].expected);
    free_site(&site);
  }
}

static void all_faults_are_reported_at_once(void **state) {
  (void)state;
  site site;
  make_site(&site, 2, 5, dense);
  site.bound[BANK].shape[3] = 8;
  site.bound[SCALE].dtype = RT_F16;
  expect_refusal(&site, "%bank: axis D has size 8");
  expect_refusal(&site, "%scale: dtype f16");
  free_site(&site);
}

static void slices_are_checked_one_by_one(void **state) {
  (void)state;
  layout sliced[TENSORS] = {
      {"0123", 0, 0, true}, {.order = "01"}, {.order = "0"}, {"012", 0, 0, true}};
  site site;
  make_site(&site, 4, 5, sliced);
  site.tensors[BANK].slices[2] = NULL;
  expect_refusal(&site, "%bank: slice 2 has no memory");
  site.tensors[BANK].slices[2] = site.tensors[BANK].slices[1]; // inputs may share memory
  site.tensors[OUT].slices[3] = site.tensors[OUT].slices[0] + 8;
  expect_refusal(&site, "%out: its slices 0 and 3 overlap in memory");
  site.tensors[OUT].slices[3] = site.tensors[BANK].slices[1];
  expect_refusal(&site, "%bank and %out overlap in memory, and %out is written");
  free_site(&site);
}

static void outputs_may_not_overlap(void **state) {
  (void)state;
  static const struct {
    int64_t offset,
        row; // of the output's, in elements, in a buffer whose first 10 rows of D are the weights'
    const char *expected; // NULL: allowed
  } cases[] = {
      {0, D, "%weight and %out overlap in memory"},
      {9, D, "overlap"},
      {10, D, NULL},
      {-10 * D, D, NULL},
      {-10 * D + 1, D, "overlap"},
      {5, D + 3, "overlap"}, // rows run through the weights
      {10, 0, "the stride 0 of axis"},
      {10, D - 1, "the stride 6 of axis T"},
  };
  for (size_t c = 0; c < COUNT(cases); c++) {
    site site;
    make_site(&site, 2, 5, dense);
    float *buffer = calloc(1000, sizeof *buffer);
    site.bound[WEIGHT].data = (char *)(buffer + 500);
    rt_tensor *out = &site.bound[OUT];
    out->data = (char *)(buffer + 500 + cases[c].offset);
    out->strides[1] = cases[c].row;
    out->strides[0] = 5 * cases[c].row;
    if (cases[c].expected) {
      expect_refusal(&site, cases[c].expected);
    } else {
      run(&mix_program, site.bound, &one);
      expect_mix(&site);
    }
    free(buffer);
    free_site(&site);
  }
}

// Bank, weight and result as columns of one token-major buffer.
static void columns_of_one_buffer_are_apart(void **state) {
  (void)state;
  enum { ROW = N * D + 1 + D, ROWS = 10 };
  float *buffer = calloc(ROWS * ROW + ROW, sizeof *buffer);
  for (int backwards = 0; backwards < 2; backwards++) {
    for (int64_t shift = 0; shift < 2; shift++) {
      site site;
      make_site(&site, 2, 5, dense);
      int64_t row = backwards ? -ROW : ROW;
      float *first = backwards ? buffer + (ROWS - 1) * ROW : buffer;
      const int64_t columns[TENSORS] = {[BANK] = 0, [WEIGHT] = N * D, [OUT] = N * D + 1 - shift};
      for (int i = 0; i < TENSORS; i++) {
        if (i == SCALE) continue;
        int64_t *strides = site.bound[i].strides + (i == BANK ? 1 : 0);
        site.bound[i].data = (char *)(first + columns[i]);
        strides[0] = 5 * row;
        strides[1] = row;
      }
      site.bound[BANK].strides[0] = D;
      if (shift) {
        expect_refusal(&site, "%weight and %out overlap");
      } else {
        fill(&site.bound[BANK], BANK);
        fill(&site.bound[WEIGHT], WEIGHT);
        run(&mix_program, site.bound, &one);
        expect_mix(&site);
      }
      free_site(&site);
    }
  }
  free(buffer);
}

static uint32_t random_below(uint32_t *seed, uint32_t limit) {
  *seed = *seed * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)(*seed >> 8) * limit >> 24);
}

static rt_region random_region(uint32_t *seed) {
  rt_region region = {.base = 4096 + (intptr_t)random_below(seed, 60), .element = 2, .rank = 3};
  for (int i = 0; i < 3; i++) {
    region.size[i] = random_below(seed, 5);
    region.stride[i] = (int64_t)random_below(seed, 41) - 20;
    if (random_below(seed, 2)) region.stride[i] = 12 * (region.stride[i] / 6);
  }
  return region;
}

// How often each byte of 0 .. 8191 belongs to an element.
static void count_bytes(const rt_region *region, unsigned char *counts) {
  memset(counts, 0, 8192);
  for (int64_t i = 0; i < region->size[0]; i++) {
    for (int64_t j = 0; j < region->size[1]; j++) {
      for (int64_t k = 0; k < region->size[2]; k++) {
        int64_t place =
            region->base + i * region->stride[0] + j * region->stride[1] + k * region->stride[2];
        counts[place]++;
        counts[place + 1]++;
      }
    }
  }
}

// Against counting: never a wrong "apart", and "touching" is right most of the time.
static void overlap_answers_are_safe(void **state) {
  (void)state;
  static unsigned char a_counts[8192], b_counts[8192];
  uint32_t seed = 1;
  int apart = 0, proven = 0;
  for (int trial = 0; trial < 4000; trial++) {
    rt_region a = random_region(&seed), b = random_region(&seed);
    int64_t low, high;
    bool share = false, repeat = false;
    count_bytes(&a, a_counts);
    count_bytes(&b, b_counts);
    assert_true(rt_region_extent(&a, &low, &high));
    for (int64_t i = 0; i < 8192; i++) {
      share |= a_counts[i] && b_counts[i];
      repeat |= a_counts[i] > 1;
      if (a_counts[i]) assert_true(i >= a.base + low && i < a.base + high);
    }
    if (share) assert_true(rt_regions_touch(&a, &b));
    if (repeat) assert_true(rt_region_self_overlap(&a) >= 0);
    apart += !share;
    proven += !rt_regions_touch(&a, &b);
  }
  assert_true(proven > apart / 2);
}

// ---- tests: sizes that overflow -----------------------------------------------------------------

static void offsets_beyond_63_bits_are_refused(void **state) {
  (void)state;
  static const struct {
    int tensor, position;
    int64_t stride;
  } cases[] = {{BANK, 2, INT64_MAX},
               {BANK, 2, INT64_MAX / 4},
               {BANK, 1, INT64_MIN},
               {OUT, 1, INT64_MAX / 16},
               {WEIGHT, 0, -(INT64_MAX / 8)}};
  for (size_t c = 0; c < COUNT(cases); c++) {
    site site;
    make_site(&site, 2, 5, dense);
    site.bound[cases[c].tensor].strides[cases[c].position] = cases[c].stride;
    expect_refusal(&site, "beyond 63-bit byte offsets");
    free_site(&site);
  }
}

static void a_workspace_beyond_63_bits_is_refused(void **state) {
  (void)state;
  static const rt_axis axes[] = {{"T", RT_DYNAMIC}, {"U", RT_DYNAMIC}};
  static const rt_slot slots[] = {{"x", RT_INPUT, RT_F32, 2, {0, 1}},
                                  {"tmp", RT_TEMPORARY, RT_F32, 2, {0, 1}}};
  static const rt_kernel_arg args[] = {{0, 0, 1, 0, -1, false}};
  rt_kernel kernel = {.body = first_negate,
                      .arg_count = 1,
                      .args = args,
                      .pointer_count = 1,
                      .stride_count = 2,
                      .row_count = 2,
                      .rows = {0, 1},
                      .rows_per_task = 1};
  float x = 0;
  rt_tensor tensor = {.rank = 2, .data = (char *)&x, .shape = {(int64_t)1 << 31, (int64_t)1 << 31}};
  int64_t sizes[2];
  for (int only_rows = 0; only_rows < 2; only_rows++) {
    rt_program program = {2, only_rows ? 1 : 2, 1, axes, slots, &kernel};
    if (only_rows) tensor.shape[0] = (int64_t)1 << 33; // tasks cannot be counted
    assert_int_equal(bind_quietly(&program, &tensor, sizes, NULL, 0), BASE_OK);
    base_arena arena;
    base_diag diag;
    size_t bytes;
    base_arena_init(&arena, NULL);
    base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
    assert_int_equal(rt_workspace_size(&program, &tensor, sizes, 1, &bytes, &diag), BASE_INVALID);
    assert_non_null(strstr(base_diag_render(&diag).data, "does not fit in 63 bits"));
    base_arena_reset(&arena);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_layout_gives_the_same_result),
      cmocka_unit_test(lists_work_where_the_code_wants_one_array),
      cmocka_unit_test(offsets_pass_two_to_the_31_elements),
      cmocka_unit_test(no_rows_no_calls),
      cmocka_unit_test(neighbouring_row_axes_are_one),
      cmocka_unit_test(many_row_axes),
      cmocka_unit_test(an_argument_without_the_innermost_rows),
      cmocka_unit_test(temporaries_live_in_the_workspace),
      cmocka_unit_test(a_kernel_without_rows_runs_once),
      cmocka_unit_test(the_workspace_is_used_to_the_end),
      cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
      cmocka_unit_test(eight_host_threads_share_a_pool),
      cmocka_unit_test(the_default_pool_fits_the_process),
      cmocka_unit_test(wrong_tensors_are_named),
      cmocka_unit_test(all_faults_are_reported_at_once),
      cmocka_unit_test(slices_are_checked_one_by_one),
      cmocka_unit_test(outputs_may_not_overlap),
      cmocka_unit_test(columns_of_one_buffer_are_apart),
      cmocka_unit_test(overlap_answers_are_safe),
      cmocka_unit_test(offsets_beyond_63_bits_are_refused),
      cmocka_unit_test(a_workspace_beyond_63_bits_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
