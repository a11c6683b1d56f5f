// The checker must be able to fail: its parts are tested against results that are wrong on purpose.
// It is included rather than linked, because no public call hands it a wrong result.
#include "api/check.c" // NOLINT(bugprone-suspicious-include)

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const fathom_compile_options interp = {.size = sizeof interp, .target = "interp"};

typedef struct fixture {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
} fixture;

static fixture open_text(const char *text) {
  fixture f = {0};
  assert_int_equal(fathom_context_create(NULL, &f.context), FATHOM_OK);
  if (fathom_parse(f.context, text, strlen(text), "test.fir", &f.module) != FATHOM_OK)
    fail_msg("%s", fathom_error_text());
  f.graph = fathom_module_graph_at(f.module, 0);
  assert_int_equal(fathom_compile(f.context, f.graph, &interp, &f.executable), FATHOM_OK);
  return f;
}

static void close_fixture(fixture *f) {
  fathom_executable_destroy(f->executable);
  fathom_module_destroy(f->module);
  fathom_context_destroy(f->context);
}

// ---- bounds -------------------------------------------------------------------------------------

static double result_bound(const char *text, double largest_logit) {
  fixture f = open_text(text);
  base_arena arena;
  base_arena_init(&arena, NULL);
  double *bounds = find_bounds(&arena, f.graph->ir);
  ir_value result = f.graph->ir->results.data[0];
  double bound = bound_of(ir_node_of(f.graph->ir, result), bounds[result.index], largest_logit);
  base_arena_reset(&arena);
  close_fixture(&f);
  return bound;
}

static void test_bounds(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double bound;
  } rows[] = {
      // exact: moved, selected, or one rounding of two low-precision values
      {"graph @g(%x: bf16[T], %y: bf16[T]) { %r = add %x, %y : bf16[T] return %r }", 0.0},
      {"graph @g(%x: f32[T]) { %r = cast %x : f16[T] return %r }", 0.0},
      {"graph @g(%x: f32[T]) { %c = constant {value = 0.5} : f32[]\n"
       "  %r = max %x, %c : f32[T] return %r }",
       0.0},
      // not exact: f32 sums, constants that f32 rounds
      {"graph @g(%x: f32[T], %y: f32[T]) { %r = add %x, %y : f32[T] return %r }", 2e-6 * 30},
      {"graph @g(%x: f32[T]) { %c = constant {value = 0.1} : f32[]\n"
       "  %r = max %x, %c : f32[T] return %r }",
       2e-6 * 30},
      {"graph @g(%x: f32[T], %y: f32[T]) { %r = add %x, %y : bf16[T] return %r }", 4e-3},
      {"graph @g(%x: f32[T], %y: bf16[T]) { %r = add %x, %y : bf16[T] return %r }", 4e-3},
      {"graph @g(%x: f16[T, D=4]) { %r = sum %x over D : f16[T] return %r }", 1e-3},
      // an inexact value rounded on the way
      {"graph @g(%x: f32[T]) { %e = exp %x : bf16[T] %r = cast %e : f32[T] return %r }", 4e-3},
      {"graph @g(%x: f32[T]) { %e = exp %x : f16[T] %r = neg %e : f32[T] return %r }", 1e-3},
      {"graph @g(%x: f32[T]) { %e = exp %x : f8e4m3[T] %r = neg %e : f32[T] return %r }", 4e-2},
      // products of narrow numbers are f32 numbers; sums and quotients take one type
      {"graph @g(%x: f16[T], %y: bf16[T]) { %r = mul %x, %y : f8e4m3[T] return %r }", 0.0},
      {"graph @g(%x: f8e4m3[T], %y: f16[T]) { %r = add %x, %y : f16[T] return %r }", 0.0},
      {"graph @g(%x: f8e4m3[T], %y: bf16[T]) { %r = div %x, %y : bf16[T] return %r }", 0.0},
      {"graph @g(%x: bf16[T], %y: bf16[T]) { %r = add %x, %y : f8e4m3[T] return %r }", 4e-2},
      {"graph @g(%x: f16[T], %y: f16[T]) { %r = sub %x, %y : bf16[T] return %r }", 4e-3},
      {"graph @g(%x: f8e4m3[T], %y: f8e4m3[T]) { %r = div %x, %y : f8e4m3[T] return %r }", 4e-2},
      // an exact one does not widen what follows
      {"graph @g(%x: bf16[T]) { %s = add %x, %x : bf16[T] %r = exp %s : f32[T] return %r }",
       2e-6 * 30},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    double found = result_bound(rows[i].text, 30.0);
    if (found != rows[i].bound) fail_msg("%s: bound %g", rows[i].text, found);
  }
  assert_true(result_bound(rows[3].text, 0.5) == 2e-6);
}

// ---- comparing ----------------------------------------------------------------------------------

static double compared(double found, double expected) {
  tally t = {0};
  double one = 1.0; // some other element that is right
  compare(&t, IR_F32, 1, &one, &one);
  compare(&t, IR_F32, 1, &found, &expected);
  return error_of(&t);
}

static void test_errors(void **state) {
  (void)state;
  assert_true(compared(3.0, 3.0) == 0.0);
  assert_true(fabs(compared(3.0, 2.0) - 1.0 / sqrt(5.0)) < 1e-15);
  assert_true(compared((double)NAN, (double)NAN) == 0.0);
  assert_true(compared(INFINITY, INFINITY) == 0.0);
  assert_true(compared(INFINITY, 1e300) == 0.0); // beyond f32
  assert_true(isinf(compared((double)NAN, 1.0)));
  assert_true(isinf(compared(1.0, (double)NAN)));
  assert_true(isinf(compared(INFINITY, 1.0)));
  assert_true(isinf(compared(INFINITY, -INFINITY)));
  assert_true(isinf(compared(INFINITY, (double)NAN)));
  tally tiny = {.unseen = 1e-38};
  double found[] = {0.0, 0.0}, expected[] = {1e-38, 2e-38};
  compare(&tiny, IR_F32, 1, found, expected);
  assert_true(error_of(&tiny) == 0.0);
  compare(&tiny, IR_F32, 2, found, expected);
  assert_true(error_of(&tiny) > 0.5);
  tally t = {.difference = 1e-30};
  assert_true(isinf(error_of(&t))); // nothing but zeros was right
}

// ---- whole checks -------------------------------------------------------------------------------

enum { ROWS = 7, UNHARMED = -1 };

typedef struct chunk_case {
  const fixture *fixture;
  int64_t chunk_rows;
  int harmed_row; // of the output
  double error;
} chunk_case;

// The middle of check_seed, with chunks of a chosen length and a result that went wrong in one row.
static fathom_status chunk_case_body(api_call *call, void *opaque) {
  chunk_case *frame = opaque;
  fathom_check_options options = {.size = sizeof options, .misalign = 1, .strided = 1};
  ir_graph *graph = api_graph_open(call, frame->fixture->graph);
  checker c = {
      .call = call,
      .executable = frame->fixture->executable,
      .options = &options,
      .graph = graph,
      .sizes = api_axis_sizes(&call->arena, graph, ROWS),
  };
  tally t = {0};
  double largest_logit = 0.0;
  assert_int_equal(place_all(&c), FATHOM_OK);
  choose_chunks(&c);
  assert_int_equal(c.chunk_axis, 0);
  assert_int_equal(c.chunk_rows, ROWS); // so few fit at once
  c.chunk_rows = frame->chunk_rows;
  fill_all(&c, 0);
  assert_int_equal(run_once(&c, 0, NULL), FATHOM_OK);
  if (frame->harmed_row != UNHARMED) {
    rt_tensor row = api_tensor_part(&c.places[c.param_count].tensor, 0, frame->harmed_row, 1);
    api_tensor_clear(&row, 0);
  }
  assert_int_equal(compare_chunks(&c, &t, &largest_logit), FATHOM_OK);
  frame->error = error_of(&t);
  return FATHOM_OK;
}

static void test_chunks(void **state) {
  (void)state;
  fixture f = open_text("graph @g(%x: f32[T, D=5], %w: f32[D]) {\n"
                        "  %r = mul %x, %w : f32[T, D]\n  return %r\n}\n");
  for (int64_t chunk = 1; chunk <= ROWS; chunk++) {
    for (int row = UNHARMED; row < ROWS; row++) {
      chunk_case frame = {&f, chunk, row, -1.0};
      assert_int_equal(api_call_run(f.context, chunk_case_body, &frame), FATHOM_OK);
      assert_true(row == UNHARMED ? frame.error < 1e-7 : frame.error > 1e-2);
    }
  }
  close_fixture(&f);
}

static fathom_status list_body(api_call *call, void *opaque) {
  const fixture *f = opaque;
  checker c = {.call = call, .graph = f->graph->ir};
  const int64_t rows[] = {1, (int64_t)1 << 30};
  for (int i = 0; i < 2; i++) {
    c.sizes = api_axis_sizes(&call->arena, c.graph, rows[i]);
    choose_chunks(&c);
    assert_int_equal(c.chunk_axis, 1); // the list has a number for each U, so only T can be cut
  }
  assert_int_equal(c.chunk_rows, chunk_bytes / sizeof(double) / (2 + 2 + 2));
  return FATHOM_OK;
}

static void test_chunks_keep_lists_whole(void **state) {
  (void)state;
  fixture f = open_text("graph @g(%x: f32[U=2, T]) {\n  %c = constant {value = [1, 2]} : f32[U]\n"
                        "  %m = mul %x, %c : f32[U, T]\n  %r = neg %m : f32[U, T]\n"
                        "  return %r\n}\n");
  assert_int_equal(api_call_run(f.context, list_body, &f), FATHOM_OK);
  close_fixture(&f);
}

typedef struct verdict_frame {
  const fixture *reference;
  const fathom_executable *executable;
  uint32_t failures;
} verdict_frame;

static fathom_status verdict_body(api_call *call, void *opaque) {
  verdict_frame *frame = opaque;
  fathom_check_options options = {.size = sizeof options};
  check_frame check = {frame->reference->graph, frame->executable, &options, &frame->failures};
  return check_body(call, &check);
}

static void test_wrong_executables_fail(void **state) {
  (void)state;
  fixture right = open_text("graph @g(%x: f32[T, D=5], %w: f32[D]) {\n"
                            "  %r = mul %x, %w : f32[T, D]\n  return %r\n}\n");
  fixture wrong = open_text("graph @g(%x: f32[T, D=5], %w: f32[D]) {\n"
                            "  %r = div %x, %w : f32[T, D]\n  return %r\n}\n");
  verdict_frame frame = {&right, right.executable, 9};
  assert_int_equal(api_call_run(right.context, verdict_body, &frame), FATHOM_OK);
  assert_int_equal(frame.failures, 0);
  frame.executable = wrong.executable;
  assert_int_equal(api_call_run(right.context, verdict_body, &frame), FATHOM_OK);
  assert_int_equal(frame.failures, DEFAULT_SEEDS);
  close_fixture(&right);
  close_fixture(&wrong);
}

static fathom_status surroundings_body(api_call *call, void *opaque) {
  fixture *f = opaque;
  fathom_check_options options = {.size = sizeof options, .misalign = 3, .strided = 1};
  ir_graph *graph = api_graph_open(call, f->graph);
  checker c = {
      .call = call,
      .executable = f->executable,
      .options = &options,
      .graph = graph,
      .sizes = api_axis_sizes(&call->arena, graph, 4),
  };
  assert_int_equal(place_all(&c), FATHOM_OK);
  place *p = &c.places[1];
  assert_int_equal((uintptr_t)p->tensor.data % RT_ALIGNMENT, 3 * sizeof(float));
  char *data = p->tensor.data;
  // The element before, the padding after a row, and the first byte past the last row.
  const ptrdiff_t outside[] = {-1, 5 * sizeof(float),
                               (ptrdiff_t)(p->bytes - (size_t)(data - p->memory)) - 1};
  fill_all(&c, 0);
  data[0] = 0; // elements may change
  assert_true(surroundings_intact(p));
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
    fill_all(&c, 0);
    data[outside[i]] = 0;
    assert_false(surroundings_intact(p));
  }
  return FATHOM_OK;
}

static void test_surroundings(void **state) {
  (void)state;
  fixture f = open_text("graph @g(%x: f32[T, D=5]) { %r = neg %x : f32[T, D] return %r }");
  assert_int_equal(api_call_run(f.context, surroundings_body, &f), FATHOM_OK);
  close_fixture(&f);
}

static void test_inputs_are_normal(void **state) {
  (void)state;
  enum { COUNT = 100000 };
  api_generator g = {.state = 1};
  double sum = 0.0, squares = 0.0, fourth = 0.0;
  for (int i = 0; i < COUNT; i++) {
    double x = api_next_normal(&g);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  assert_true(fabs(sum / COUNT - 0.0) < 0.02);
  assert_true(fabs(squares / COUNT - 1.0) < 0.02);
  assert_true(fabs(fourth / COUNT - 3.0) < 0.15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_errors),
      cmocka_unit_test(test_chunks),
      cmocka_unit_test(test_chunks_keep_lists_whole),
      cmocka_unit_test(test_wrong_executables_fail),
      cmocka_unit_test(test_surroundings),
      cmocka_unit_test(test_inputs_are_normal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
