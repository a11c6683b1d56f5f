// Bundles for GPUs: made where there is none, and on each GPU the code that it can run, of several.
#include "double/cuda_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"

static const char mix_text[] =
    "graph @mix(%bank: f32[N=2, T, D=3], %weights: f32[N], %x: f32[T, D]) {\n"
    "  %h = weighted_sum %weights, %bank over N : f32[T, D]\n"
    "  %y = add %h, %x : f32[T, D]\n"
    "  return %y, %h\n"
    "}\n";

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    fathom_status status_ = (call);                                                                \
    if (status_ != FATHOM_OK)                                                                      \
      fail_msg("%s: %s", fathom_status_name(status_), fathom_error_text());                        \
  } while (0)

static void assert_says(const char *text) {
  if (strstr(fathom_error_text(), text) == NULL)
    fail_msg("expected \"%s\" in: %s", text, fathom_error_text());
}

static fathom_context *open_context(void) {
  fathom_context_options options = FATHOM_INIT(options);
  fathom_context *context;
  options.cache_directory = "";
  assert_ok(fathom_context_create(&options, &context));
  return context;
}

static fathom_text make_bundle(const char *const *targets, uint32_t count) {
  fathom_context *context = open_context();
  fathom_module *module;
  fathom_graph *graph;
  fathom_text bundle;
  setenv("FATHOM_LIBNVRTC", double_path("libnvrtc-double.so"), 1);
  assert_ok(fathom_parse(context, mix_text, strlen(mix_text), "mix.fir", &module));
  assert_ok(fathom_module_graph(module, NULL, &graph));
  assert_ok(fathom_executable_save(context, graph, targets, count, NULL, &bundle));
  fathom_module_destroy(module);
  fathom_context_destroy(context);
  return bundle;
}

static void run(const fathom_executable *executable) {
  static float bank[12], weights[2] = {0.5f, 2.0f}, x[6], y[6], h[6];
  int64_t shapes[5][3] = {{2, 2, 3}, {2}, {2, 3}, {2, 3}, {2, 3}};
  static const int32_t ranks[] = {3, 1, 2, 2, 2};
  static const char *const names[] = {"bank", "weights", "x", "y", "h"};
  void *data[] = {bank, weights, x, y, h};
  DLTensor tensors[5];
  fathom_arg args[5];
  for (int i = 0; i < 12; i++)
    bank[i] = (float)i;
  for (int i = 0; i < 5; i++) {
    tensors[i] = (DLTensor){.data = data[i],
                            .device = {kDLCPU, 0},
                            .ndim = ranks[i],
                            .dtype = {kDLFloat, 32, 1},
                            .shape = shapes[i]};
    args[i] = (fathom_arg){.name = names[i], .tensor = &tensors[i]};
  }
  for (int i = 0; i < 6; i++)
    x[i] = 100.0f;
  assert_ok(fathom_run(executable, args, 5, NULL, 0, NULL));
  for (int i = 0; i < 6; i++) {
    assert_true(h[i] == 2.5f * (float)i + 12.0f);
    assert_true(y[i] == h[i] + 100.0f);
  }
}

// What a GPU takes of a bundle: the architecture, or NULL where it refuses and says `words`.
static void expect(const fathom_text *bundle, int arch, const char *target, const char *taken,
                   const char *words) {
  const double_control *driver = cuda_double();
  fathom_executable *executable;
  driver->set_arch(arch);
  fathom_context *context = open_context();
  fathom_status status =
      fathom_executable_load(context, bundle->data, bundle->length, target, &executable);
  if (taken == NULL) {
    assert_int_equal(status, FATHOM_UNSUPPORTED);
    assert_says(words);
  } else {
    assert_ok(status);
    fathom_executable_info info = FATHOM_INIT(info);
    assert_ok(fathom_executable_get_info(executable, &info));
    assert_string_equal(info.arch, taken);
    assert_string_equal(info.target, "cuda");
    if (words == NULL) run(executable);
  }
  fathom_executable_destroy(executable);
  fathom_context_destroy(context);
  assert_int_equal(driver->counts().modules, 0);
  assert_int_equal(driver->counts().violations, 0);
}

// First: the driver, once it is opened, stays.
static void is_made_without_a_gpu(void **state) {
  static const char *const targets[] = {"cuda:sm_90a"};
  (void)state;
  setenv("FATHOM_LIBCUDA", "/nonexistent", 1);
  fathom_text bundle = make_bundle(targets, 1), again;
  fathom_context *context = open_context();
  fathom_executable *executable;
  assert_int_not_equal(
      fathom_executable_load(context, bundle.data, bundle.length, "cuda", &executable), FATHOM_OK);
  assert_says("FATHOM_LIBCUDA");
  fathom_context_destroy(context);
  cuda_double()->set_arch(80); // another GPU makes no difference
  again = make_bundle(targets, 1);
  assert_int_equal(bundle.length, again.length);
  assert_memory_equal(bundle.data, again.data, bundle.length);
  fathom_text_destroy(&bundle);
  fathom_text_destroy(&again);
}

static void each_gpu_takes_what_it_can_run(void **state) {
  static const char *const targets[] = {"cuda:sm_80", "cuda:sm_90a", "cuda:sm_100"};
  (void)state;
  fathom_text bundle = make_bundle(targets, 3);
  expect(&bundle, 80, "cuda", "sm_80", NULL);
  expect(&bundle, 86, "cuda", "sm_80", NULL);  // the same major number: machine code
  expect(&bundle, 90, "cuda", "sm_90a", NULL); // its own before PTX for an older one
  expect(&bundle, 90, "cuda:sm_80", "sm_80", "as PTX, which the double does not run");
  expect(&bundle, 103, "cuda", "sm_100", NULL);
  expect(&bundle, 120, "cuda", "sm_100", "as PTX, which the double does not run");
  expect(&bundle, 75, "cuda", NULL, "cuda:sm_80, cuda:sm_90a, cuda:sm_100");
  expect(&bundle, 75, "cuda", NULL, "(sm_75)");
  expect(&bundle, 75, "cuda:sm_90a", NULL, "as sm_90a");
  fathom_text_destroy(&bundle);
}

static void code_for_one_architecture_is_for_no_other(void **state) {
  static const char *const targets[] = {"cuda:sm_90a", "cuda:sm_100f"};
  (void)state;
  fathom_text bundle = make_bundle(targets, 2);
  expect(&bundle, 90, "cuda", "sm_90a", NULL);
  expect(&bundle, 103, "cuda", "sm_100f", NULL);
  expect(&bundle, 120, "cuda", NULL, "cuda:sm_90a, cuda:sm_100f");
  expect(&bundle, 89, "cuda", NULL, "it has cuda:sm_90a");
  fathom_text_destroy(&bundle);
}

static void refuses_every_flipped_byte(void **state) {
  static const char *const targets[] = {"cuda:sm_90a"};
  (void)state;
  fathom_text bundle = make_bundle(targets, 1);
  cuda_double()->set_arch(90);
  fathom_context *context = open_context();
  fathom_executable *executable;
  size_t step = bundle.length / 1500 + 1;
  for (size_t i = 0; i < bundle.length; i += i < 600 ? 1 : step) {
    bundle.data[i] ^= 0x10;
    assert_int_not_equal(
        fathom_executable_load(context, bundle.data, bundle.length, "cuda", &executable),
        FATHOM_OK);
    assert_int_not_equal(fathom_executable_load(context, bundle.data, i, "cuda", &executable),
                         FATHOM_OK);
    bundle.data[i] ^= 0x10;
  }
  assert_ok(fathom_executable_load(context, bundle.data, bundle.length, "cuda", &executable));
  fathom_executable_destroy(executable);
  fathom_context_destroy(context);
  fathom_text_destroy(&bundle);
}

// What the digest does not catch: a bundle that somebody made.
static void survives_any_contents(void **state) {
  enum { TRIALS = 600 };
  static const char *const targets[] = {"cuda:sm_90a"};
  (void)state;
  fathom_text made = make_bundle(targets, 1);
  cuda_double()->set_arch(90);
  fathom_context *context = open_context();
  base_arena arena;
  base_diag diag;
  rt_bundle bundle;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  assert_true(rt_bundle_open(&arena, (base_str){made.data, made.length}, &bundle, &diag));
  uint64_t random = 5;
  for (int i = 0; i < TRIALS; i++) {
    base_text out = {.arena = base_arena_within(&arena)};
    rt_section code = bundle.sections[1];
    base_str contents = base_str_copy(out.arena, code.contents);
    for (int j = 0; j < 1 + i % 3; j++) {
      // Half of them in the program and the cubin's start, the others at the end, with the form.
      size_t at = base_random(&random) % 1200 % contents.length;
      if (j % 2 != 0) at = contents.length - 1 - base_random(&random) % 300 % contents.length;
      ((char *)contents.data)[at] = (char)base_random(&random);
    }
    rt_bundle_begin(&out, "a test");
    rt_bundle_add(&out, code.kind, code.name, contents);
    rt_bundle_end(&out);
    fathom_executable *executable;
    fathom_executable_load(context, out.data, out.length, "cuda", &executable);
    fathom_executable_destroy(executable);
    base_arena_reset(out.arena);
  }
  base_arena_reset(&arena);
  fathom_context_destroy(context);
  fathom_text_destroy(&made);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(is_made_without_a_gpu),
      cmocka_unit_test(each_gpu_takes_what_it_can_run),
      cmocka_unit_test(code_for_one_architecture_is_for_no_other),
      cmocka_unit_test(refuses_every_flipped_byte),
      cmocka_unit_test(survives_any_contents),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
