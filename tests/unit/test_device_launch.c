// The launcher of devices, before a device that only writes down what it is asked for: forms,
// parameters, grids, workspaces. What kernels compute is tested with the emulator.
#include "runtime/device_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- a device that keeps notes ------------------------------------------------------------------

struct rt_code {
  const rt_image *image;
};
struct rt_function {
  char name[32];
  uint32_t threads;
  size_t shared_bytes;
};

enum { MOST_LAUNCHES = 16, MOST_FIELDS = 64, MOST_SPANS = 16 };

typedef struct note {
  rt_device_launch launch;
  const char *name; // of the function
  void *stream;
  int64_t fields[MOST_FIELDS];
  rt_span spans[MOST_SPANS];
} note;

typedef struct notebook {
  rt_device device;                   // first
  int loads, unloads, calls, fail_at; // the call that fails; 0: none
  rt_function functions[16];
  int function_count, launch_count;
  note launches[MOST_LAUNCHES];
} notebook;

static base_arena arena;
static base_diag diag;
static notebook book;

static base_status call(base_diag *out) {
  if (++book.calls != book.fail_at) return BASE_OK;
  base_error_status(out, BASE_INTERNAL, (base_loc){0}, "call %d fails", book.calls);
  return BASE_INTERNAL;
}

static base_status load(rt_device *device, const rt_image *image, rt_code **out,
                        base_diag *errors) {
  (void)device;
  base_status status = call(errors);
  if (status != BASE_OK) return status;
  book.loads++;
  *out = malloc(sizeof **out);
  (*out)->image = image;
  return BASE_OK;
}

static void unload(rt_device *device, rt_code *code) {
  (void)device;
  book.unloads++;
  free(code);
}

static base_status find(rt_device *device, rt_code *code, const char *name, uint32_t threads,
                        size_t shared_bytes, rt_function **out, uint32_t *blocks,
                        base_diag *errors) {
  (void)device, (void)code;
  base_status status = call(errors);
  if (status != BASE_OK) return status;
  rt_function *function = &book.functions[book.function_count++];
  *function = (rt_function){.threads = threads, .shared_bytes = shared_bytes};
  strncpy(function->name, name, sizeof function->name - 1);
  *out = function;
  if (blocks) *blocks = 3;
  return BASE_OK;
}

static base_status launch(rt_device *device, void *stream, const rt_device_launch *launch,
                          base_diag *errors) {
  (void)device;
  base_status status = call(errors);
  if (status != BASE_OK) return status;
  note *n = &book.launches[book.launch_count++];
  *n = (note){.launch = *launch, .name = launch->function->name, .stream = stream};
  memcpy(n->fields, launch->parameters, launch->parameter_bytes);
  for (uint32_t i = 0; i < launch->span_count; i++) {
    n->spans[i] = launch->spans[i];
    if (launch->traffic) launch->traffic[i] = (rt_traffic){1, 10, 100, 1000};
  }
  return BASE_OK;
}

static const rt_device_ops plain = {
    .target = "notes", .load = load, .unload = unload, .find = find, .launch = launch};
static const rt_device_ops checking = {.target = "notes",
                                       .checks_memory = true,
                                       .load = load,
                                       .unload = unload,
                                       .find = find,
                                       .launch = launch};

static void open_book(const rt_device_ops *ops) {
  book = (notebook){.device = {.ops = ops, .facts = {.multiprocessors = 10}}};
}

static int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  open_book(&plain);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  base_arena_reset(&arena);
  return 0;
}

static void assert_said(const char *words) {
  const char *text = base_diag_render(&diag).data;
  if (!strstr(text, words)) fail_msg("expected '%s', found\n%s", words, text);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
}

// ---- a program ----------------------------------------------------------------------------------
//   first:  bank, weight -> mixed         second:  mixed -> out

enum { N = 3, D = 64 };
enum { AXIS_N, AXIS_B, AXIS_T, AXIS_D, AXES };
enum { BANK, WEIGHT, OUT, MIXED };

static const rt_axis axes[] = {{"N", N}, {"B", RT_DYNAMIC}, {"T", RT_DYNAMIC}, {"D", D}};
static const rt_slot slots[] = {{"bank", RT_INPUT, RT_BF16, 4, {AXIS_N, AXIS_B, AXIS_T, AXIS_D}},
                                {"weight", RT_INPUT, RT_F32, 2, {AXIS_B, AXIS_T}},
                                {"out", RT_OUTPUT, RT_F32, 3, {AXIS_B, AXIS_T, AXIS_D}},
                                {"mixed", RT_TEMPORARY, RT_F32, 3, {AXIS_B, AXIS_T, AXIS_D}}};
static const rt_kernel_arg first_args[] = {
    {BANK, 0, N, 0, 3, false}, {WEIGHT, N, 1, 4, -1, false}, {MIXED, N + 1, 1, 6, 2, true}};
static const rt_kernel_arg second_args[] = {{MIXED, 0, 1, 0, 2, false}, {OUT, 1, 1, 3, 2, true}};
static const rt_kernel kernels[] = {{.name = "first",
                                     .arg_count = 3,
                                     .args = first_args,
                                     .pointer_count = N + 2,
                                     .stride_count = 9,
                                     .row_count = 2,
                                     .rows = {AXIS_B, AXIS_T}},
                                    {.name = "second",
                                     .arg_count = 2,
                                     .args = second_args,
                                     .pointer_count = 2,
                                     .stride_count = 6,
                                     .row_count = 2,
                                     .rows = {AXIS_B, AXIS_T}}};
static const rt_program both = {AXES, 4, 2, axes, slots, kernels};
// Takes the bank as a tensor, in one form.
static const rt_kernel_arg single_args[] = {{BANK, 0, 1, 0, 3, false}, {OUT, 1, 1, 4, 2, true}};
static const rt_kernel single_kernel = {.name = "single",
                                        .arg_count = 2,
                                        .args = single_args,
                                        .pointer_count = 2,
                                        .stride_count = 7,
                                        .row_count = 2,
                                        .rows = {AXIS_B, AXIS_T}};
static const rt_program single = {AXES, 3, 1, axes, slots, &single_kernel};

static rt_form wide_form(void) {
  return (rt_form){.function = "wide",
                   .alignment = 16,
                   .vector = 8,
                   .threads = 96,
                   .rows_per_block = 1,
                   .cluster = 1,
                   .shared_bytes = 640};
}

static rt_form any_form(void) {
  rt_form form = wide_form();
  form.function = "any";
  form.alignment = form.vector = 0;
  return form;
}

// ---- tensors: addresses that nobody reads -------------------------------------------------------

typedef struct setting {
  int64_t sizes[AXES];
  rt_tensor tensors[3];
  char *slices[N];
} setting;

static char *address(uintptr_t number) {
  return (char *)number; // NOLINT: a place, not memory
}

static void make_dense(rt_tensor *tensor, const rt_slot *slot, const int64_t *sizes, char *data) {
  *tensor = (rt_tensor){.dtype = slot->dtype, .rank = slot->rank, .data = data};
  int64_t stride = 1;
  for (uint32_t i = slot->rank; i-- > 0;) {
    tensor->shape[i] = sizes[slot->axes[i]];
    tensor->strides[i] = stride;
    if (__builtin_mul_overflow(stride, tensor->shape[i], &stride)) stride = 0;
  }
}

static setting make_setting(int64_t b, int64_t t) {
  setting s = {.sizes = {N, b, t, D}};
  for (int i = 0; i < 3; i++)
    make_dense(&s.tensors[i], &slots[i], s.sizes, address(0x10000000u * (unsigned)(i + 1)));
  return s;
}

static void as_slices(setting *s) {
  for (int i = 0; i < N; i++)
    s->slices[i] = address(0x50000000u + 0x1000u * (unsigned)(N - i));
  s->tensors[BANK].slices = s->slices;
  s->tensors[BANK].data = NULL;
}

typedef struct loaded {
  rt_device_kernel kernels[2];
  rt_device_program program;
  rt_loaded *loaded;
} loaded;

static loaded *load_forms(const rt_program *program, uint32_t form_count, const rt_form *forms) {
  loaded *l = base_new(&arena, loaded);
  for (uint32_t i = 0; i < program->kernel_count; i++) {
    l->kernels[i].form_count = form_count;
    memcpy(l->kernels[i].forms, forms, form_count * sizeof *forms);
  }
  l->program = (rt_device_program){program, l->kernels};
  if (rt_device_load(&book.device, &l->program, &l->loaded, &diag) != BASE_OK)
    fail_msg("%s", base_diag_render(&diag).data);
  return l;
}

static void run(const loaded *l, const setting *s) {
  if (rt_device_run(l->loaded, s->tensors, s->sizes, address(0x77), address(0x90000000), NULL,
                    &diag) != BASE_OK)
    fail_msg("%s", base_diag_render(&diag).data);
}

// ---- parameters ---------------------------------------------------------------------------------

static void assert_fields(const note *n, size_t count, const int64_t *expected) {
  assert_int_equal(n->launch.parameter_bytes, count * sizeof *expected);
  for (size_t i = 0; i < count; i++)
    if (n->fields[i] != expected[i])
      fail_msg("%s: field %zu is %#llx, not %#llx", n->name, i, (long long)n->fields[i],
               (long long)expected[i]);
}

static void test_parameters(void **state) {
  (void)state;
  setting s = make_setting(2, 5);
  s.tensors[WEIGHT].strides[0] = -7;
  const rt_form form = wide_form();
  loaded *l = load_forms(&both, 1, &form);
  run(l, &s);
  assert_int_equal(book.launch_count, 2);
  const int64_t slice = 2 * 5 * D * 2, mixed = 0x90000000, after = mixed + 2 * 5 * D * 4;
  const int64_t first[] = {0x10000000,
                           0x10000000 + slice,
                           0x10000000 + 2 * slice,
                           0x20000000,
                           mixed, // pointers
                           0,
                           5 * D * 2,
                           D * 2,
                           2,
                           -28,
                           4,
                           5 * D * 4,
                           D * 4,
                           4, // strides
                           2,
                           5,
                           after};
  const int64_t second[] = {mixed, 0x30000000, 5 * D * 4, D * 4, 4,    5 * D * 4,
                            D * 4, 4,          2,         5,     after};
  assert_fields(&book.launches[0], COUNT(first), first);
  assert_fields(&book.launches[1], COUNT(second), second);
  for (int i = 0; i < 2; i++) {
    const note *n = &book.launches[i];
    assert_ptr_equal(n->stream, address(0x77));
    assert_int_equal(n->launch.threads, 96);
    assert_int_equal(n->launch.shared_bytes, 640);
    assert_int_equal(n->launch.cluster, 1);
    assert_false(n->launch.programmatic);
    assert_int_equal(n->launch.span_count, 0);
  }
  rt_device_unload(l->loaded);
}

static void test_parameters_of_slices(void **state) {
  (void)state;
  setting s = make_setting(1, 5);
  as_slices(&s);
  const rt_form form = wide_form();
  loaded *l = load_forms(&both, 1, &form);
  run(l, &s);
  // An axis of one index has no stride; the list says where each index of the first axis is.
  const int64_t fields[] = {0x50003000,
                            0x50002000,
                            0x50001000,
                            0x20000000,
                            0x90000000,
                            0,
                            0,
                            D * 2,
                            2,
                            0,
                            4,
                            0,
                            D * 4,
                            4,
                            1,
                            5,
                            0x90000000 + 5 * D * 4};
  assert_fields(&book.launches[0], COUNT(fields), fields);
  rt_device_unload(l->loaded);
}

static void test_slices_where_a_tensor_is_wanted(void **state) {
  (void)state;
  setting s = make_setting(2, 5);
  as_slices(&s);
  const rt_form form = any_form();
  loaded *l = load_forms(&single, 1, &form);
  assert_int_equal(rt_device_run(l->loaded, s.tensors, s.sizes, NULL, NULL, NULL, &diag),
                   BASE_INVALID);
  assert_said("%bank: kernels on a device take it as one tensor, not as a list");
  assert_int_equal(book.launch_count, 0);
  s.tensors[BANK].shape[0] = 1; // one slice is one tensor
  run(l, &s);
  assert_int_equal(book.launches[0].fields[0], 0x50003000);
  s.tensors[BANK].shape[0] = 0; // and none is nothing
  run(l, &s);
  assert_int_equal(book.launches[1].fields[0], 0);
  rt_device_unload(l->loaded);
}

// ---- forms --------------------------------------------------------------------------------------

typedef struct form_case {
  const char *what;
  uint32_t vector;
  uintptr_t shift; // of the bank's address, in bytes
  int64_t stride, unit, batches, slice_shift, weight;
  bool wide;
} form_case;

static const form_case form_cases[] = {
    {.what = "dense", .wide = true},
    {.what = "an odd address", .shift = 2, .wide = false},
    {.what = "half an access", .shift = 8, .wide = false},
    {.what = "any multiple of 16 bytes", .shift = 48, .wide = true},
    {.what = "half an access is all of a narrow one", .vector = 4, .shift = 8, .wide = true},
    {.what = "less than a narrow access", .vector = 4, .shift = 4, .wide = false},
    {.what = "the widest access, whatever it is", .vector = UINT32_MAX, .shift = 8, .wide = false},
    {.what = "padded rows", .stride = D + 8, .wide = true},
    {.what = "rows out of step", .stride = D + 4, .wide = false},
    {.what = "rows backwards", .stride = -D, .wide = true},
    {.what = "the same row again", .stride = 0, .wide = true},
    {.what = "one batch has no stride", .stride = -1, .batches = 1, .wide = true},
    {.what = "elements apart", .unit = 2, .wide = false},
    {.what = "elements backwards", .unit = -1, .wide = false},
    {.what = "what has no unit axis may lie anywhere", .weight = 3, .wide = true},
    {.what = "slices", .slice_shift = 32, .wide = true},
    {.what = "one slice at an odd address", .slice_shift = 2, .wide = false},
};

static void test_forms(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(form_cases); i++) {
    const form_case *c = &form_cases[i];
    open_book(&plain);
    rt_form forms[] = {wide_form(), any_form()};
    if (c->vector) forms[0].vector = c->vector == UINT32_MAX ? 0 : c->vector;
    setting s = make_setting(c->batches ? c->batches : 2, 5);
    rt_tensor *bank = &s.tensors[BANK];
    if (c->slice_shift) as_slices(&s), s.slices[1] += c->slice_shift;
    if (!bank->slices) bank->data += c->shift;
    // A stride of -1 with one batch is that of the batches, else it is that of the rows.
    if (c->batches == 1)
      bank->strides[1] = c->stride;
    else if (c->stride || strstr(c->what, "again"))
      bank->strides[2] = c->stride;
    if (c->unit) bank->strides[3] = c->unit;
    if (c->weight) s.tensors[WEIGHT].data += c->weight, s.tensors[WEIGHT].strides[1] = c->weight;
    loaded *l = load_forms(&both, 2, forms);
    run(l, &s);
    if (strcmp(book.launches[0].name, c->wide ? "wide" : "any") != 0)
      fail_msg("%s: took %s", c->what, book.launches[0].name);
    assert_string_equal(book.launches[1].name, "wide"); // the temporary is dense
    rt_device_unload(l->loaded);
  }
}

// Slices have no elements side by side along the axis that they count.
static void test_unit_axis_of_slices(void **state) {
  (void)state;
  static const rt_kernel_arg args[] = {{WEIGHT, 0, 2, 0, 0, false}, {OUT, 2, 1, 2, 2, true}};
  rt_kernel kernel = single_kernel;
  kernel.args = args;
  kernel.pointer_count = 3;
  kernel.stride_count = 5;
  const rt_program program = {AXES, 3, 1, axes, slots, &kernel};
  rt_form forms[] = {wide_form(), any_form()};
  setting s = make_setting(2, 1);
  char *list[] = {address(0x1000), address(0x2000)};
  s.tensors[WEIGHT].slices = list;
  loaded *l = load_forms(&program, 2, forms);
  run(l, &s);
  assert_string_equal(book.launches[0].name, "any");
  rt_device_unload(l->loaded);
}

// ---- grids --------------------------------------------------------------------------------------
// Ten multiprocessors, each with room for three blocks.

typedef struct grid_case {
  const char *what;
  int64_t b, t;
  uint32_t teams, cluster;
  bool persistent;
  size_t block_bytes;
  int64_t items, blocks;
} grid_case;

static const grid_case grid_cases[] = {
    {"a block a row", 2, 50, 1, 1, false, 0, 0, 100},
    {"one row", 1, 1, 1, 1, false, 0, 0, 1},
    {"teams share a block", 3, 11, 4, 1, false, 0, 0, 9},
    {"persistent", 2, 50, 1, 1, true, 0, 0, 30},
    {"persistent, fewer rows than blocks", 1, 7, 1, 1, true, 0, 0, 7},
    {"persistent teams", 2, 50, 8, 1, true, 0, 0, 13},
    {"clusters", 2, 3, 1, 4, false, 0, 0, 24},
    {"persistent clusters", 2, 50, 1, 4, true, 0, 0, 28},
    {"clusters larger than the GPU", 2, 50, 1, 64, true, 0, 0, 64},
    {"a workspace for each block", 2, 50, 1, 1, false, 100, 0, 30},
    {"tiles in place of rows", 2, 50, 1, 1, false, 0, 3, 300},
    {"2^31 - 1 rows", 1, INT32_MAX, 1, 1, false, 0, 0, INT32_MAX},
    {"2^31 rows", 2, 1 << 30, 1, 1, false, 0, 0, 30},
    {"2^31 rows in teams of two", 2, 1 << 30, 2, 1, false, 0, 0, 1 << 30},
    {"2^30 rows in clusters of two", 1, 1 << 30, 1, 2, false, 0, 0, 30},
    {"2^40 rows", 1 << 20, 1 << 20, 1, 1, false, 0, 0, 30},
    {"more rows than 63 bits count", INT64_C(1) << 40, INT64_C(1) << 40, 1, 1, false, 0, 0, 30},
    {"more tiles than that", INT64_C(1) << 31, INT64_C(1) << 31, 1, 1, false, 0, 4, 30},
};

static void test_grids(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(grid_cases); i++) {
    const grid_case *c = &grid_cases[i];
    open_book(&plain);
    rt_form form = any_form();
    form.rows_per_block = c->teams;
    form.cluster = c->cluster;
    form.persistent = c->persistent;
    form.block_bytes = c->block_bytes;
    form.items = c->items;
    form.programmatic = i % 2;
    loaded *l = load_forms(&single, 1, &form);
    const setting s = make_setting(c->b, c->t);
    run(l, &s);
    assert_int_equal(book.launch_count, 1);
    const rt_device_launch *launched = &book.launches[0].launch;
    if (launched->blocks != c->blocks)
      fail_msg("%s: %lld blocks", c->what, (long long)launched->blocks);
    assert_int_equal(launched->cluster, c->cluster);
    assert_int_equal(launched->programmatic, i % 2);
    rt_device_unload(l->loaded);
  }
}

static void test_no_rows(void **state) {
  (void)state;
  rt_form form = any_form();
  form.prepare = "prepare";
  form.prepared_bytes = form.block_bytes = 1 << 20;
  loaded *l = load_forms(&both, 1, &form);
  const int64_t none[][2] = {{0, 5}, {2, 0}, {0, 0}, {0, INT64_MAX}};
  for (size_t i = 0; i < COUNT(none); i++) {
    const setting s = make_setting(none[i][0], none[i][1]);
    size_t bytes;
    run(l, &s);
    assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_OK);
    assert_int_equal(bytes, 0);
  }
  assert_int_equal(book.launch_count, 0);
  rt_device_unload(l->loaded);
}

static void test_steps(void **state) {
  (void)state;
  static const char *const steps[] = {"step2", "step3"};
  rt_form form = any_form();
  form.steps = steps;
  form.step_count = 2;
  form.row_blocks = 4;
  form.block_bytes = 200;
  form.persistent = form.programmatic = true;
  loaded *l = load_forms(&single, 1, &form);
  setting s = make_setting(3, 5);
  size_t bytes;
  assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_OK);
  assert_int_equal(bytes, 3 * 5 * 4 * 256);
  run(l, &s);
  static const char *const names[] = {"any", "step2", "step3"};
  assert_int_equal(book.launch_count, 3);
  for (int i = 0; i < 3; i++) {
    const note *n = &book.launches[i];
    assert_string_equal(n->name, names[i]);
    assert_int_equal(n->launch.blocks, 60); // all of them, persistent or not
    assert_int_equal(n->launch.cluster, 1);
    assert_true(n->launch.programmatic);
    assert_memory_equal(n->fields, book.launches[0].fields, n->launch.parameter_bytes);
  }
  // 2^57 + 1 blocks of 128 bytes would be 128 bytes.
  s = make_setting((INT64_C(1) << 55) + 1, 1);
  l->kernels[0].forms[0].block_bytes = 1;
  assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_INVALID);
  assert_said("does not fit in 63 bits");
  rt_device_unload(l->loaded);
}

static void test_prepare(void **state) {
  (void)state;
  rt_form form = any_form();
  form.prepare = "prepare";
  form.prepared_bytes = 1000;
  form.cluster = 2;
  form.programmatic = true;
  loaded *l = load_forms(&single, 1, &form);
  const setting s = make_setting(3, 5);
  for (uint32_t blocks = 0; blocks < 13; blocks += 12) {
    book.launch_count = 0;
    l->kernels[0].forms[0].prepare_blocks = blocks;
    run(l, &s);
    assert_int_equal(book.launch_count, 2);
    const note *prepare = &book.launches[0], *body = &book.launches[1];
    assert_string_equal(prepare->name, "prepare");
    assert_string_equal(body->name, "any");
    assert_int_equal(prepare->launch.blocks, blocks ? blocks : 1);
    assert_int_equal(prepare->launch.cluster, 1);
    assert_int_equal(prepare->launch.threads, 96);
    assert_int_equal(prepare->launch.shared_bytes, 640);
    assert_true(prepare->launch.programmatic);
    assert_int_equal(body->launch.blocks, 30);
    assert_memory_equal(prepare->fields, body->fields, body->launch.parameter_bytes);
  }
  size_t bytes;
  assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_OK);
  assert_int_equal(bytes, 1024);
  rt_device_unload(l->loaded);
}

// ---- workspaces ---------------------------------------------------------------------------------

// Temporaries, then the most that any form of any kernel takes.
static void test_workspace(void **state) {
  (void)state;
  rt_form forms[] = {wide_form(), any_form()};
  forms[0].block_bytes = 130;    // 256 for each of at most 30 blocks
  forms[1].prepared_bytes = 300; // 384
  loaded *l = load_forms(&both, 2, forms);
  const struct {
    int64_t b, t;
    size_t blocks;
  } cases[] = {{1, 1, 384}, {1, 2, 512}, {2, 8, 16 * 256}, {10, 100, 30 * 256}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const setting s = make_setting(cases[i].b, cases[i].t);
    size_t bytes, temporary = (size_t)(cases[i].b * cases[i].t) * D * 4;
    assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_OK);
    assert_int_equal(bytes, temporary + cases[i].blocks);
    run(l, &s);
    const note *second = &book.launches[book.launch_count - 1];
    assert_int_equal(second->fields[10], 0x90000000 + temporary);
    book.launch_count = 0;
  }
  rt_device_unload(l->loaded);
}

// Each block of a cluster has a workspace, and as many clusters run at once as the GPU holds.
static void test_workspace_of_clusters(void **state) {
  (void)state;
  rt_form form = any_form();
  form.block_bytes = 130;
  form.cluster = 2;
  loaded *l = load_forms(&single, 1, &form);
  for (int64_t rows = 3; rows <= 100; rows += 97) {
    const setting s = make_setting(1, rows);
    size_t bytes, blocks = rows == 3 ? 6 : 30;
    assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_OK);
    assert_int_equal(bytes, blocks * 256);
    book.launch_count = 0;
    run(l, &s);
    assert_int_equal(book.launches[0].launch.blocks, blocks);
  }
  rt_device_unload(l->loaded);
}

static void test_workspace_overflows(void **state) {
  (void)state;
  rt_form form = any_form();
  loaded *l = load_forms(&both, 1, &form);
  const int64_t sizes[][2] = {{INT64_C(1) << 31, INT64_C(1) << 31},  // bytes of the temporary
                              {INT64_C(1) << 40, INT64_C(1) << 40},  // its elements
                              {INT64_C(1) << 29, INT64_C(1) << 26}}; // one byte too many
  for (size_t i = 0; i < COUNT(sizes); i++) {
    const setting s = make_setting(sizes[i][0], sizes[i][1]);
    size_t bytes = 1;
    assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag),
                     BASE_INVALID);
    assert_int_equal(bytes, 0);
    assert_said("the workspace for these sizes does not fit in 63 bits");
  }
  l->kernels[0].forms[0].prepared_bytes = PTRDIFF_MAX - 100;
  const setting s = make_setting(1, 1);
  size_t bytes;
  assert_int_equal(rt_device_workspace(l->loaded, s.tensors, s.sizes, &bytes, &diag), BASE_INVALID);
  rt_device_unload(l->loaded);
}

// ---- devices that check -------------------------------------------------------------------------

static void assert_span(const rt_span *span, const char *name, uintptr_t data, size_t bytes,
                        bool written) {
  assert_string_equal(span->name, name);
  assert_int_equal((uintptr_t)span->data, data);
  assert_int_equal(span->bytes, bytes);
  assert_int_equal(span->written, written);
}

static void test_spans(void **state) {
  (void)state;
  open_book(&checking);
  rt_form form = any_form();
  form.block_bytes = 100;
  loaded *l = load_forms(&both, 1, &form);
  setting s = make_setting(2, 5);
  as_slices(&s);
  s.tensors[OUT].strides[1] = -(D + 1); // rows backwards, with a gap
  s.tensors[OUT].strides[0] = 1000;
  rt_traffic traffic[4] = {{0}};
  assert_int_equal(
      rt_device_run(l->loaded, s.tensors, s.sizes, NULL, address(0x90000000), traffic, &diag),
      BASE_OK);
  const note *first = &book.launches[0], *second = &book.launches[1];
  const size_t mixed = 2 * 5 * D * 4;
  assert_int_equal(first->launch.span_count, N + 3);
  for (int i = 0; i < N; i++)
    assert_span(&first->spans[i], "bank", 0x50003000u - 0x1000u * (unsigned)i, 2 * 5 * D * 2,
                false);
  assert_span(&first->spans[N], "weight", 0x20000000, 2 * 5 * 4, false);
  assert_span(&first->spans[N + 1], "mixed", 0x90000000, mixed, true);
  assert_span(&first->spans[N + 2], "the workspace", 0x90000000 + mixed, 10 * 128, true);
  assert_int_equal(second->launch.span_count, 3);
  assert_span(&second->spans[0], "mixed", 0x90000000, mixed, false);
  assert_span(&second->spans[1], "out", 0x30000000 - 4 * (D + 1) * 4, 4 * (4 * (D + 1) + 1000 + D),
              true);
  // One for each span of a slot; the workspace is nobody's.
  const uint64_t spans[] = {[BANK] = N, [WEIGHT] = 1, [OUT] = 1, [MIXED] = 2};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(traffic[i].read, spans[i]);
    assert_int_equal(traffic[i].written, 10 * spans[i]);
    assert_int_equal(traffic[i].read_once, 100 * spans[i]);
    assert_int_equal(traffic[i].written_once, 1000 * spans[i]);
  }
  rt_device_unload(l->loaded);
}

// ---- failures -----------------------------------------------------------------------------------

// Each call of the device fails in turn: the status comes back, nothing is launched after it, and
// what was loaded is unloaded.
static void test_failures(void **state) {
  (void)state;
  static const char *const steps[] = {"step2"};
  rt_form forms[] = {wide_form(), any_form()};
  forms[0].prepare = "prepare";
  forms[1].steps = steps;
  forms[1].step_count = 1;
  forms[1].row_blocks = 1;
  setting s = make_setting(2, 5);
  s.tensors[BANK].data += 2; // the first kernel takes its second form, the second one its first
  rt_device_kernel code[] = {{.form_count = 2, .forms = {forms[0], forms[1]}},
                             {.form_count = 2, .forms = {forms[0], forms[1]}}};
  const rt_device_program program = {&both, code};
  enum { LOADING = 2 * 2 * 3, LAUNCHES = 4 };
  for (int fail_at = 1; fail_at <= LOADING + LAUNCHES + 1; fail_at++) {
    for (int checks = 0; checks < 2; checks++) {
      open_book(checks ? &checking : &plain);
      book.fail_at = fail_at;
      base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
      rt_loaded *l = (rt_loaded *)&book;
      base_status status = rt_device_load(&book.device, &program, &l, &diag);
      assert_int_equal(status, fail_at <= LOADING ? BASE_INTERNAL : BASE_OK);
      if (status != BASE_OK) {
        assert_null(l);
      } else {
        assert_ptr_equal(rt_loaded_device(l), &book.device);
        status = rt_device_run(l, s.tensors, s.sizes, NULL, address(0x90000000), NULL, &diag);
        assert_int_equal(status, fail_at <= LOADING + LAUNCHES ? BASE_INTERNAL : BASE_OK);
        assert_int_equal(book.launch_count,
                         fail_at <= LOADING + LAUNCHES ? fail_at - LOADING - 1 : LAUNCHES);
        rt_device_unload(l);
      }
      assert_int_equal(book.loads, book.unloads);
      assert_int_equal(diag.error_count, status != BASE_OK);
    }
  }
  rt_device_unload(NULL);
}

static void test_too_many_parameters(void **state) {
  (void)state;
  enum { ROOM = 32764 / 8 };
  const rt_form form = any_form();
  rt_device_kernel code = {.form_count = 1, .forms = {form}};
  rt_kernel kernel = {.name = "wide", .row_count = 1, .rows = {AXIS_T}};
  const rt_program program = {AXES, 3, 1, axes, slots, &kernel};
  const rt_device_program device_program = {&program, &code};
  rt_loaded *l;
  kernel.pointer_count = 2000; // one row axis and the workspace: two more fields
  kernel.stride_count = ROOM - 2 - 2000;
  assert_int_equal(rt_device_load(&book.device, &device_program, &l, &diag), BASE_OK);
  rt_device_unload(l);
  kernel.stride_count++;
  assert_int_equal(rt_device_load(&book.device, &device_program, &l, &diag), BASE_UNSUPPORTED);
  assert_null(l);
  assert_said(
      "kernel @wide takes 4096 pointers, strides and sizes, but a launch has room for 4095");
  assert_int_equal(book.loads, 1);
}

// What find was asked for is what launches take.
static void test_functions(void **state) {
  (void)state;
  rt_form form = any_form();
  form.prepare = "prepare";
  loaded *l = load_forms(&single, 1, &form);
  assert_int_equal(book.function_count, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(book.functions[i].threads, 96);
    assert_int_equal(book.functions[i].shared_bytes, 640);
  }
  rt_device_unload(l->loaded);
  assert_int_equal(book.unloads, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_parameters),
      TEST(test_parameters_of_slices),
      TEST(test_slices_where_a_tensor_is_wanted),
      TEST(test_forms),
      TEST(test_unit_axis_of_slices),
      TEST(test_grids),
      TEST(test_no_rows),
      TEST(test_steps),
      TEST(test_prepare),
      TEST(test_workspace),
      TEST(test_workspace_of_clusters),
      TEST(test_workspace_overflows),
      TEST(test_spans),
      TEST(test_failures),
      TEST(test_too_many_parameters),
      TEST(test_functions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
