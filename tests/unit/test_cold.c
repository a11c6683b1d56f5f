// Cold caches on the host: as many sets of memory as the caches take, all of them used in turn, or a
// refusal that says what is missing. No test asks for a time.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fathom.h"

// Every tensor but the weights has 256 bytes a row, or a multiple.
static const char text[] =
    "graph @mix(%bank: f32[N=2, T, D=64], %weights: f32[N], %x: f32[T, D]) {\n"
    "  %h = weighted_sum %weights, %bank over N : f32[T, D]\n"
    "  %y = add %h, %x : f32[T, D]\n"
    "  return %y, %h\n"
    "}\n";
enum { TENSORS = 5, ROW_BYTES = 256, LINE = 64 };
enum { MOVED = (2 + 1 + 1 + 1) * ROW_BYTES + 2 * 4, OF_LINES = (2 + 1 + 1 + 1) * ROW_BYTES + LINE };

// ---- memory -------------------------------------------------------------------------------------

// Blocks of an arena hold something else besides, unless they are larger than this.
enum { LARGE = 2 << 20, UNUSED = 200 };

typedef struct memory {
  size_t large; // blocks, of those that were given back
  size_t empty; // stretches of so many zero bytes in them that a row of results was not written
} memory;

static void *take(void *user, size_t bytes) {
  (void)user;
  size_t *block = malloc(sizeof(max_align_t) + bytes);
  if (block) *block = bytes;
  return block ? (char *)block + sizeof(max_align_t) : NULL;
}

static size_t count_empty(const char *data, size_t bytes) {
  size_t zeros = 0, stretches = 0;
  for (size_t i = 0; i < bytes; i++) {
    zeros = data[i] == 0 ? zeros + 1 : 0;
    stretches += zeros == UNUSED;
  }
  return stretches;
}

static void give(void *user, void *pointer) {
  memory *m = user;
  if (!pointer) return;
  size_t *block = (size_t *)((char *)pointer - sizeof(max_align_t));
  if (*block > LARGE) {
    m->large++;
    m->empty += count_empty(pointer, *block);
  }
  free(block);
}

// ---- benches ------------------------------------------------------------------------------------

typedef struct setup {
  memory memory;
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
} setup;

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    if ((call) != FATHOM_OK) fail_msg("%s", fathom_error_text());                                  \
  } while (0)

static void open_setup(setup *s) {
  fathom_context_options options = FATHOM_INIT(options);
  *s = (setup){0};
  options.cache_directory = "";
  options.threads = 2;
  options.allocate = take;
  options.release = give;
  options.allocator_user = &s->memory;
  assert_ok(fathom_context_create(&options, &s->context));
  assert_ok(fathom_parse(s->context, text, strlen(text), "mix.fir", &s->module));
  assert_ok(fathom_module_graph(s->module, NULL, &s->graph));
  fathom_compile_options compile = FATHOM_INIT(compile);
  fathom_status status = fathom_compile(s->context, s->graph, &compile, &s->executable);
  compile.target = "interp";
  if (status == FATHOM_UNSUPPORTED) // without LLVM
    status = fathom_compile(s->context, s->graph, &compile, &s->executable);
  assert_ok(status);
}

static void close_setup(setup *s) {
  fathom_executable_destroy(s->executable);
  fathom_module_destroy(s->module);
  fathom_context_destroy(s->context);
}

static fathom_status bench(setup *s, fathom_cache cache, int64_t rows, const char *megabytes,
                           fathom_bench_result *result) {
  fathom_bench_options options = FATHOM_INIT(options);
  options.cache = cache;
  options.dynamic_size = rows;
  options.seconds = 0.01;
  *result = (fathom_bench_result)FATHOM_INIT(*result);
  assert_int_equal(setenv("FATHOM_CPU_CACHE_MB", megabytes, 1), 0);
  fathom_status status = fathom_bench(s->context, s->graph, s->executable, &options, result);
  unsetenv("FATHOM_CPU_CACHE_MB");
  return status;
}

static void every_set_is_used(void **state) {
  (void)state;
  setup s;
  fathom_bench_result result;
  open_setup(&s);
  assert_ok(bench(&s, FATHOM_CACHE_COLD, 1, "16", &result));
  const uint64_t caches = 16 << 20;
  assert_int_equal(result.cache, FATHOM_CACHE_COLD);
  assert_int_equal(result.bytes, MOVED);
  assert_int_equal(result.sets, (2 * caches + OF_LINES - 1) / OF_LINES);
  assert_true(result.median_us > 0 && result.ceiling_gb_s > 0);
  // Inputs hold numbers, and the results of every set were written.
  assert_int_equal(s.memory.large, TENSORS);
  assert_int_equal(s.memory.empty, 0);
  close_setup(&s);
}

static void warm_caches_take_one_set(void **state) {
  (void)state;
  setup s;
  fathom_bench_result result;
  open_setup(&s);
  for (fathom_cache cache = FATHOM_CACHE_DEFAULT; cache <= FATHOM_CACHE_WARM; cache++) {
    assert_ok(bench(&s, cache, 1, "16", &result));
    assert_int_equal(result.cache, FATHOM_CACHE_WARM);
    assert_int_equal(result.sets, 1);
  }
  assert_int_equal(s.memory.large, 0);
  // Where one run alone goes through the caches, the next one finds nothing either.
  assert_ok(bench(&s, FATHOM_CACHE_COLD, (2 << 20) / (5 * ROW_BYTES) + 1, "1", &result));
  assert_int_equal(result.cache, FATHOM_CACHE_COLD);
  assert_int_equal(result.sets, 1);
  close_setup(&s);
}

static void what_takes_too_much_memory_is_refused(void **state) {
  (void)state;
  setup s;
  fathom_bench_result result;
  open_setup(&s);
  assert_int_equal(bench(&s, FATHOM_CACHE_COLD, 1, "4000", &result), FATHOM_UNSUPPORTED);
  if (!strstr(fathom_error_text(), " GB, and there may be 2.1 GB: the caches of this machine hold "
                                   "4194.3 MB"))
    fail_msg("%s", fathom_error_text());
  assert_int_equal(bench(&s, (fathom_cache)3, 1, "", &result), FATHOM_INVALID);
  static const char *const wrong[] = {"0", "much", "-1", "1 MB", "1e30", "nan"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_equal(bench(&s, FATHOM_CACHE_COLD, 1, wrong[i], &result), FATHOM_INVALID);
    assert_non_null(strstr(fathom_error_text(), "FATHOM_CPU_CACHE_MB is '"));
  }
  close_setup(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_set_is_used),
      cmocka_unit_test(warm_caches_take_one_set),
      cmocka_unit_test(what_takes_too_much_memory_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
