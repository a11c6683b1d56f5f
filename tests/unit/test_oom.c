// Out of memory at every single allocation: parsing, binding, optimising and compiling must each
// end in FATHOM_MEMORY, give everything back and leave objects as they were.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fathom.h"

static const char text[] =
    "graph @site(%bank: bf16[B=3, T, D], %prefix: bf16[T, D], %query: f32[D], %gain: f32[D]) {\n"
    "  %v = concat %bank, %prefix over B to N : bf16[N, T, D]\n"
    "  %k = rms_norm %v, %gain over D {eps = 1e-6} : f32[N, T, D]\n"
    "  %z = dot %k, %query over D : f32[N, T]\n"
    "  %a = softmax %z over N : f32[N, T]\n"
    "  %h = weighted_sum %a, %v over N : bf16[T, D]\n"
    "  return %h\n"
    "}\n";

// Allocations beyond `allowed` fail; `live` is what was not given back.
typedef struct budget {
  long allowed, made, live;
} budget;

static void *allocate(void *user, size_t bytes) {
  budget *b = user;
  if (b->made >= b->allowed) return NULL;
  b->made++;
  b->live++;
  return malloc(bytes);
}

static void release(void *user, void *pointer) {
  ((budget *)user)->live--;
  free(pointer);
}

typedef struct objects {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  fathom_text texts[2];
} objects;

// The text of an out-of-memory is there although there was no memory for it.
static fathom_status expect_text(fathom_status status) {
  if (status == FATHOM_MEMORY) assert_string_equal(fathom_error_text(), "error: out of memory");
  return status;
}

static fathom_status bind_size(objects *o) {
  fathom_tensor_info info = FATHOM_INIT(info);
  fathom_status status = expect_text(fathom_graph_bind(o->graph, "D", 8));
  assert_int_equal(fathom_graph_param(o->graph, 0, &info), FATHOM_OK);
  assert_int_equal(info.sizes[2], status == FATHOM_OK ? 8 : FATHOM_DYNAMIC);
  return status;
}

static fathom_status everything(objects *o, const fathom_context_options *context_options,
                                const char *target) {
  fathom_compile_options compile = {.size = sizeof compile, .target = target};
  fathom_optimize_options optimize = {.size = sizeof optimize, .print_after_all = 1};
  fathom_check_options check = {.size = sizeof check, .seeds = 1, .dynamic_size = 2};
  uint32_t failures;
  fathom_status status = expect_text(fathom_context_create(context_options, &o->context));
  if (status != FATHOM_OK) return status;
  status = expect_text(fathom_parse(o->context, text, sizeof text - 1, "site.fir", &o->module));
  if (status != FATHOM_OK) return status;
  o->graph = fathom_module_graph_at(o->module, 0);
  status = bind_size(o);
  if (status != FATHOM_OK) return status;
  status =
      expect_text(fathom_optimize(o->context, o->graph, &optimize, &o->texts[0], &o->texts[1]));
  if (status != FATHOM_OK) return status;
  status = expect_text(fathom_compile(o->context, o->graph, &compile, &o->executable));
  if (status != FATHOM_OK) return status;
  return expect_text(fathom_check(o->context, o->graph, &compile, &check, &failures));
}

static void destroy(objects *o) {
  fathom_text_destroy(&o->texts[0]);
  fathom_text_destroy(&o->texts[1]);
  fathom_executable_destroy(o->executable);
  fathom_module_destroy(o->module);
  fathom_context_destroy(o->context);
}

static void every_allocation_can_fail(const char *target) {
  enum { ENOUGH = 100000 };
  fathom_status status = FATHOM_MEMORY;
  long allowed = 0;
  for (; status != FATHOM_OK && allowed < ENOUGH; allowed++) {
    budget b = {.allowed = allowed};
    fathom_context_options options = {
        .size = sizeof options,
        .allocator_user = &b,
        .allocate = allocate,
        .release = release,
        .cache_directory = "",
        .threads = 1,
    };
    objects o = {0};
    status = everything(&o, &options, target);
    if (status != FATHOM_OK && status != FATHOM_MEMORY)
      fail_msg("with %ld allocations: %s: %s", allowed, fathom_status_name(status),
               fathom_error_text());
    destroy(&o);
    if (b.live != 0) fail_msg("with %ld allocations: %ld were not given back", allowed, b.live);
  }
  assert_int_equal(status, FATHOM_OK);
  assert_true(allowed > 10); // the allocator was really used
}

static void test_every_allocation_can_fail(void **state) {
  (void)state;
  every_allocation_can_fail("interp");
}

// LLVM's own memory is its own; ours may run out at any moment between its calls, and nothing of it
// may leak (the asan build looks).
static void test_every_allocation_of_the_cpu_target_can_fail(void **state) {
  (void)state;
  fathom_context_options options = FATHOM_INIT(options);
  objects o = {0};
  fathom_status status = everything(&o, &options, "cpu");
  destroy(&o);
  if (status == FATHOM_UNSUPPORTED) skip(); // built without it
  every_allocation_can_fail("cpu");
}

// An error report needs memory too; when there is none, that is what is told.
static void test_errors_without_memory(void **state) {
  (void)state;
  static const char bad[] = "graph @bad(%x: f32[T]) {\n  %y = nonsense %x\n  return %z\n}\n";
  fathom_status status = FATHOM_MEMORY;
  for (long allowed = 0; status == FATHOM_MEMORY; allowed++) {
    budget b = {.allowed = INT32_MAX};
    fathom_context_options options = {
        .size = sizeof options, .allocator_user = &b, .allocate = allocate, .release = release};
    objects o = {0};
    assert_int_equal(fathom_context_create(&options, &o.context), FATHOM_OK);
    b.allowed = b.made + allowed;
    status = fathom_parse(o.context, bad, sizeof bad - 1, NULL, &o.module);
    assert_true(status == FATHOM_MEMORY || status == FATHOM_INVALID);
    destroy(&o);
    assert_int_equal(b.live, 0);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_allocation_can_fail),
      cmocka_unit_test(test_every_allocation_of_the_cpu_target_can_fail),
      cmocka_unit_test(test_errors_without_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
