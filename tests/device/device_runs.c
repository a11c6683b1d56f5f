// On a real GPU, what nothing else can show: that launches order themselves, on streams, in captured
// graphs and with programmatic dependent launch; that rows do not meet; that addresses past 2^31
// elements are right; that a damaged cubin is no end; that the device is whole after a refusal.
//
// bench/device.sh runs this where there is a GPU. Elsewhere it runs against the driver's double, with
// fewer rows. Exit status 77: no GPU.
#include "device/device_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/target.h"
#include "passes/passes.h"

static const char site[] =
    "graph @site(%bank: bf16[B, T, D], %prefix: bf16[T, D], %query: f32[D], %gain: f32[D]) {\n"
    "  %v = concat %bank, %prefix over B to N : bf16[N, T, D]\n"
    "  %k = rms_norm %v, %gain over D {eps = 1e-5} : f32[N, T, D]\n"
    "  %z = dot %k, %query over D : f32[N, T]\n"
    "  %a = softmax %z over N : f32[N, T]\n"
    "  %h = weighted_sum %a, %v over N : bf16[T, D]\n"
    "  return %h, %a\n"
    "}\n";

// Each application gives other numbers.
static const char step[] = "graph @step(%x: f32[T, D], %gain: f32[D], %bias: f32[D]) {\n"
                           "  %n = rms_norm %x, %gain over D {eps = 1e-5} : f32[T, D]\n"
                           "  %y = add %n, %bias : f32[T, D]\n"
                           "  return %y\n"
                           "}\n";

static int64_t rows(int64_t wanted) {
  return gpu_is_double() ? 9 : wanted;
}

// ---- streams and captures -----------------------------------------------------------------------

static void test_streams(void **state) {
  (void)state;
  gpu_case expected, c;
  gpu_case_open(&expected, site, "D=896,B=4", "", rows(3000));
  gpu_case_open(&c, site, "D=896,B=4", "", rows(3000));
  assert_fathom(gpu_case_run(&expected, NULL));
  gpu_wait(NULL);
  CUstream streams[] = {gpu_stream_create(), gpu_stream_create()};
  for (int i = 0; i < 8; i++) {
    CUstream stream = streams[i % 2];
    gpu_case_clear(&c);
    assert_fathom(gpu_case_run(&c, stream));
    gpu_wait(stream);
    gpu_case_assert_same(&c, &expected);
  }
  for (int i = 0; i < 2; i++)
    gpu_stream_destroy(streams[i]);
  gpu_case_close(&c);
  gpu_case_close(&expected);
}

// A launch is captured like any other, and what would break the capture is refused before it does.
static void test_capture(void **state) {
  (void)state;
  gpu_case expected, c;
  gpu_case_open(&expected, site, "D=896,B=4", "", rows(300));
  gpu_case_open(&c, site, "D=896,B=4", "", rows(300));
  assert_fathom(gpu_case_run(&expected, NULL));
  gpu_wait(NULL);
  CUstream stream = gpu_stream_create();
  assert_fathom(gpu_case_run(&c, stream)); // once before, as hosts do
  gpu_wait(stream);
  gpu_case_clear(&c);
  if (!gpu_capture_begin(stream)) {
    gpu_stream_destroy(stream);
    gpu_case_close(&c);
    gpu_case_close(&expected);
    skip();
  }
  for (int i = 0; i < 3; i++)
    assert_fathom(gpu_case_run(&c, stream));
  assert_int_equal(gpu->ops->synchronize(gpu, stream, &gpu_diag), BASE_INVALID);
  base_diag_init(&gpu_diag, &gpu_arena, BASE_STR(""), BASE_STR(""));
  gpu_graph *graph = gpu_capture_end(stream);
  for (int i = 0; i < 3; i++) {
    gpu_case_clear(&c);
    gpu_graph_launch(graph, stream);
    gpu_wait(stream);
    gpu_case_assert_same(&c, &expected);
  }
  gpu_graph_destroy(graph);
  gpu_stream_destroy(stream);
  gpu_case_close(&c);
  gpu_case_close(&expected);
}

// ---- launches one after the other ---------------------------------------------------------------

// Each launch reads what the one before it wrote.
static void run_chain(gpu_case *c, int launches) {
  uint32_t x = gpu_case_find(c, "x"), y = gpu_case_find(c, "y");
  for (int i = 0; i < launches; i++) {
    assert_fathom(gpu_case_run(c, NULL));
    void *written = c->tensors[y].data;
    c->tensors[y].data = c->tensors[x].data;
    c->tensors[x].data = written;
  }
  void *last = c->tensors[x].data;
  c->tensors[x].data = c->tensors[y].data;
  c->tensors[y].data = last;
  gpu_wait(NULL);
}

// With permission to start early: the same bits as without.
static void test_launches_depend(void **state) {
  (void)state;
  static const char *const others[] = {"programmatic=1", "programmatic=1,persistent=0",
                                       "programmatic=1,teams=2"};
  int launches = gpu_is_double() ? 3 : 200;
  static const int64_t counts[] = {1, 64, 2000};
  for (size_t t = 0; t < sizeof counts / sizeof *counts; t++) {
    gpu_case expected, c;
    gpu_case_open(&expected, step, "D=1024", "programmatic=0", rows(counts[t]));
    run_chain(&expected, launches);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
      gpu_case_open(&c, step, "D=1024", others[i], rows(counts[t]));
      run_chain(&c, launches);
      gpu_case_assert_same(&c, &expected);
      gpu_case_close(&c);
    }
    gpu_case_close(&expected);
  }
}

static void test_runs_repeat(void **state) {
  (void)state;
  static const char *const schedules[] = {"", "split=2", "split=2,cluster=0", "load=1,residency=2"};
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
    gpu_case a, b;
    gpu_case_open(&a, site, "D=2304,B=9", schedules[i], rows(500));
    gpu_case_open(&b, site, "D=2304,B=9", schedules[i], rows(500));
    assert_fathom(gpu_case_run(&a, NULL));
    for (int j = 0; j < 5; j++) {
      gpu_case_clear(&b);
      assert_fathom(gpu_case_run(&b, NULL));
      gpu_case_assert_same(&b, &a);
    }
    gpu_case_close(&a);
    gpu_case_close(&b);
  }
}

// ---- rows ---------------------------------------------------------------------------------------

static void test_no_rows(void **state) {
  (void)state;
  gpu_case c;
  gpu_case_open(&c, site, "D=896,B=4", "", 2);
  for (uint32_t i = 0; i < c.count; i++)
    for (int32_t j = 0; j < c.tensors[i].ndim; j++)
      if (c.shapes[i][j] == 2) c.shapes[i][j] = 0;
  assert_fathom(gpu_case_run(&c, NULL));
  gpu_wait(NULL);
  const unsigned char *h = gpu_case_read(&c, "h");
  for (size_t i = 0; i < c.bytes[gpu_case_find(&c, "h")]; i++)
    assert_int_equal(h[i], 0xff);
  gpu_case_close(&c);
}

// A NaN in one row is in that row's results, and in no other's.
static void test_rows_do_not_meet(void **state) {
  (void)state;
  enum { D = 896, BAD = 5 };
  const uint16_t nan = 0x7fc0;
  int64_t count = rows(700);
  gpu_case expected, c;
  gpu_case_open(&expected, site, "D=896,B=4", "teams=2,team=224", count);
  gpu_case_open(&c, site, "D=896,B=4", "teams=2,team=224", count);
  char *bank = c.tensors[gpu_case_find(&c, "bank")].data;
  gpu_copy(bank + (size_t)(2 * count + BAD) * D * 2, &nan, sizeof nan);
  assert_fathom(gpu_case_run(&expected, NULL));
  assert_fathom(gpu_case_run(&c, NULL));
  const uint16_t *h = gpu_case_read(&c, "h"), *wanted = gpu_case_read(&expected, "h");
  for (int64_t t = 0; t < count; t++)
    for (int d = 0; d < D; d++)
      if (t == BAD)
        assert_true((h[t * D + d] & 0x7f80) == 0x7f80 && (h[t * D + d] & 0x7f) != 0);
      else
        assert_int_equal(h[t * D + d], wanted[t * D + d]);
  gpu_case_close(&c);
  gpu_case_close(&expected);
}

// The last row of a bank of more than 2^31 elements, against that row alone.
static void test_far_rows(void **state) {
  (void)state;
  enum { D = 7168, B = 8, ROW = D * 2 };
  const int64_t count = 40000;
  if (gpu_is_double() || gpu->facts.memory_bytes < (size_t)16 << 30) skip();
  gpu_case one, all;
  gpu_case_open(&one, site, "D=7168,B=8", "", 1);
  gpu_case_open(&all, site, "D=7168,B=8", "", 1);
  for (uint32_t i = 0; i < all.count; i++) { // the same with more rows
    size_t bytes = all.bytes[i];
    for (int32_t j = 0; j < all.tensors[i].ndim; j++)
      if (all.shapes[i][j] == 1) all.shapes[i][j] = count, bytes *= (size_t)count;
    if (bytes == all.bytes[i]) continue;
    all.tensors[i].data = gpu_allocate(bytes);
    all.bytes[i] = bytes;
    gpu_assert(gpu->ops->fill(gpu, NULL, all.tensors[i].data, 0, bytes, &gpu_diag) == BASE_OK);
  }
  uint32_t bank = gpu_case_find(&all, "bank"), prefix = gpu_case_find(&all, "prefix");
  for (int64_t b = 0; b < B; b++)
    gpu_copy((char *)all.tensors[bank].data + ((size_t)((b + 1) * count) - 1) * ROW,
             (char *)one.tensors[bank].data + (size_t)b * ROW, ROW);
  gpu_copy((char *)all.tensors[prefix].data + (size_t)(count - 1) * ROW, one.tensors[prefix].data,
           ROW);
  gpu_case_resize(&all);
  assert_fathom(gpu_case_run(&one, NULL));
  assert_fathom(gpu_case_run(&all, NULL));
  char last[ROW];
  const char *h = all.tensors[gpu_case_find(&all, "h")].data;
  gpu_copy(last, h + (size_t)(count - 1) * ROW, ROW);
  assert_memory_equal(last, gpu_case_read(&one, "h"), ROW);
  gpu_case_close(&one);
  gpu_case_close(&all);
}

// ---- placement ----------------------------------------------------------------------------------

static void test_any_placement(void **state) {
  (void)state;
  gpu_case c;
  gpu_case_open(&c, site, "D=896,B=4", "", rows(67));
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = "cuda";
  for (uint32_t misalign = 0; misalign < 4; misalign++)
    for (int strided = 0; strided < 2; strided++) {
      fathom_check_options options = FATHOM_INIT(options);
      options.seeds = 1;
      options.dynamic_size = rows(67);
      options.misalign = misalign;
      options.strided = strided;
      uint32_t failures;
      assert_fathom(fathom_check(c.context, c.graph, &compile, &options, &failures));
      assert_int_equal(failures, 0);
    }
  gpu_case_close(&c);
}

static void assert_refused(gpu_case *c, const char *text) {
  fathom_executor executor = FATHOM_INIT(executor);
  executor.check_pointers = 1;
  assert_int_equal(
      fathom_run(c->executable, c->args, c->count, c->workspace, c->workspace_bytes, &executor),
      FATHOM_INVALID);
  if (strstr(fathom_error_text(), text) == NULL)
    fail_msg("expected \"%s\" in: %s", text, fathom_error_text());
}

static void test_wrong_pointers(void **state) {
  (void)state;
  static char here[1 << 16];
  gpu_case expected, c;
  gpu_case_open(&expected, site, "D=896,B=4", "", 3);
  gpu_case_open(&c, site, "D=896,B=4", "", 3);
  uint32_t prefix = gpu_case_find(&c, "prefix");
  char *right = c.tensors[prefix].data;
  c.tensors[prefix].data = right + 1;
  assert_refused(&c, "%prefix: its address is not a multiple of its 2-byte element");
  c.tensors[prefix].data = here;
  assert_refused(&c, "%prefix is memory of the host");
  c.tensors[prefix].data = NULL;
  assert_refused(&c, "%prefix");
  c.tensors[prefix].data = right;
  assert_fathom(gpu_case_run(&c, NULL)); // nothing is broken
  assert_fathom(gpu_case_run(&expected, NULL));
  gpu_case_assert_same(&c, &expected);
  gpu_case_close(&c);
  gpu_case_close(&expected);
}

static void test_out_of_memory(void **state) {
  (void)state;
  void *memory;
  assert_int_equal(gpu->ops->allocate(gpu, 2 * gpu->facts.memory_bytes, &memory, &gpu_diag),
                   BASE_MEMORY);
  assert_null(memory);
  base_str text = base_diag_render(&gpu_diag);
  assert_non_null(strstr(text.data, "bytes were asked for"));
  base_diag_init(&gpu_diag, &gpu_arena, BASE_STR(""), BASE_STR(""));
  gpu_case c;
  gpu_case_open(&c, site, "D=896,B=4", "", 3);
  assert_fathom(gpu_case_run(&c, NULL));
  gpu_wait(NULL);
  gpu_case_close(&c);
}

// ---- code and time ------------------------------------------------------------------------------

static const char mean[] = "graph @mean(%x: f32[N=3, T, D=64]) {\n"
                           "  %h = mean %x over N : f32[T, D]\n"
                           "  return %h\n}\n";

static cg_artefact *compile(const char *arch) {
  ir_module *module = ir_parse(&gpu_arena, base_str_from(mean), &gpu_diag);
  gpu_assert(module != NULL);
  pass_options options = {0};
  ir_graph *fused = pass_run(module->graphs.data[0], pass_cuda_pipeline, &options, &gpu_diag);
  gpu_assert(fused != NULL);
  cg_options target = {.arch = arch, .schedule = "", .cache_directory = ""};
  cg_artefact *made = cg_cuda_target()->compile(&gpu_arena, fused, &target, &gpu_diag);
  gpu_assert(made != NULL);
  return made;
}

static void expect_form(const rt_image *image, const char *form) {
  rt_code *code = NULL;
  gpu_assert(gpu->ops->load(gpu, image, &code, &gpu_diag) == BASE_OK);
  assert_string_equal(rt_cuda_code_form(code), form);
  gpu->ops->unload(gpu, code);
}

// What the driver does not take as machine code it compiles from PTX; without that it says so.
static void test_other_cubins(void **state) {
  (void)state;
  char own[16];
  const char *other = gpu->facts.major == 8 ? "sm_75" : "sm_80";
  snprintf(own, sizeof own, "sm_%u%u", gpu->facts.major, gpu->facts.minor);
  cg_artefact *made = compile(own), *foreign = compile(other);
  rt_image image = made->device->kernels[0].image[0];
  expect_form(&image, "cubin");
  base_str whole = image.cubin;
  image.cubin = foreign->device->kernels[0].image[0].cubin;
  expect_form(&image, "ptx");
  image.cubin = (base_str){whole.data, whole.length / 2};
  expect_form(&image, "ptx");
  image.ptx = BASE_STR("");
  rt_code *code = NULL;
  assert_int_equal(gpu->ops->load(gpu, &image, &code, &gpu_diag), BASE_UNSUPPORTED);
  assert_null(code);
  made->release(made);
  foreign->release(foreign);
}

static void test_timers(void **state) {
  (void)state;
  enum { BYTES = 64 << 20 };
  void *memory = gpu_allocate(BYTES);
  rt_timer *timer;
  gpu_assert(gpu->ops->timer_create(gpu, &timer, &gpu_diag) == BASE_OK);
  double times[2];
  for (int i = 0; i < 2; i++) {
    int fills = i == 0 ? 1 : 20;
    gpu_assert(gpu->ops->fill(gpu, NULL, memory, 1, BYTES, &gpu_diag) == BASE_OK);
    gpu_assert(gpu->ops->timer_start(gpu, timer, NULL, &gpu_diag) == BASE_OK);
    for (int j = 0; j < fills; j++)
      gpu_assert(gpu->ops->fill(gpu, NULL, memory, j, BYTES, &gpu_diag) == BASE_OK);
    gpu_assert(gpu->ops->timer_stop(gpu, timer, NULL, &times[i], &gpu_diag) == BASE_OK);
  }
  gpu->ops->timer_destroy(gpu, timer);
  assert_true(times[0] > 0 && times[1] > 0);
  // The double's events are the host's clock, which says little on a busy machine.
  if (!gpu_is_double()) assert_true(times[1] > 5 * times[0] && times[1] < 100 * times[0]);
}

int main(void) {
  if (!gpu_open()) return 77;
#define ON_GPU(test) cmocka_unit_test_setup_teardown(test, gpu_set_up, gpu_tear_down)
  const struct CMUnitTest tests[] = {
      ON_GPU(test_streams),       ON_GPU(test_capture),       ON_GPU(test_launches_depend),
      ON_GPU(test_runs_repeat),   ON_GPU(test_no_rows),       ON_GPU(test_rows_do_not_meet),
      ON_GPU(test_far_rows),      ON_GPU(test_any_placement), ON_GPU(test_wrong_pointers),
      ON_GPU(test_out_of_memory), ON_GPU(test_other_cubins),  ON_GPU(test_timers),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  gpu_close();
  return failed;
}
