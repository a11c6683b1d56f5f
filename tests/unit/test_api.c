// The public interface: objects, binding by name, everything that is refused, and that threads may
// share what fathom.h says they may. Running is tested on the interp target, which needs no LLVM,
// and once more on the cpu where libfathom-cpu is there, and on cuda-emu where there is a C++
// compiler: all must do, and refuse, the same. (The cuda target: test_driver_api.c.)
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

#include <cmocka.h>

#include "fathom.h"

// Mixes N rows by fixed weights and adds one more input: small enough to check by hand.
static const char mix_text[] =
    "graph @mix(%bank: f32[N=2, T, D=3], %weights: f32[N], %x: f32[T, D]) {\n"
    "  %h = weighted_sum %weights, %bank over N : f32[T, D]\n"
    "  %y = add %h, %x : f32[T, D]\n"
    "  return %y, %h\n"
    "}\n";

static const char site_text[] =
    "graph @site(%bank: bf16[B=3, T, D], %prefix: bf16[T, D], %delta: bf16[T, D],\n"
    "            %query: f32[D], %gain: f32[D]) {\n"
    "  %p = add %prefix, %delta : bf16[T, D]\n"
    "  %v = concat %bank, %p over B to N : bf16[N, T, D]\n"
    "  %k = rms_norm %v, %gain over D : f32[N, T, D]\n"
    "  %z = dot %k, %query over D : f32[N, T]\n"
    "  %a = softmax %z over N : f32[N, T]\n"
    "  %h = weighted_sum %a, %v over N : bf16[T, D]\n"
    "  return %h, %p\n"
    "}\n";

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    fathom_status status_ = (call);                                                                \
    if (status_ != FATHOM_OK)                                                                      \
      fail_msg("%s: %s", fathom_status_name(status_), fathom_error_text());                        \
  } while (0)

#define assert_says(text) assert_non_null_text(strstr(fathom_error_text(), text), text)

static void assert_non_null_text(const char *found, const char *text) {
  if (found == NULL) fail_msg("expected \"%s\" in: %s", text, fathom_error_text());
}

// ---- fixtures -----------------------------------------------------------------------------------

typedef struct fixture {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
} fixture;

static const fathom_compile_options interp = {.size = sizeof interp, .target = "interp"};
static const fathom_compile_options cpu = {.size = sizeof cpu, .target = "cpu"};
static const fathom_compile_options emulator = {.size = sizeof emulator, .target = "cuda-emu"};
static const fathom_compile_options *target = &interp; // of the tests that run

// Is it among the targets that can run here?
static bool is_there(const char *name) {
  fathom_context *context;
  fathom_text info;
  if (fathom_context_create(NULL, &context) != FATHOM_OK) return false;
  bool there = fathom_info(context, &info) == FATHOM_OK;
  if (there) {
    const char *targets = strstr(info.data, "targets: ");
    const char *found = strstr(targets, name);
    there = found != NULL && found < strchr(targets, '\n');
  }
  fathom_text_destroy(&info);
  fathom_context_destroy(context);
  return there;
}

static fixture open_text(const char *text) {
  fixture f = {0};
  assert_ok(fathom_context_create(NULL, &f.context));
  assert_ok(fathom_parse(f.context, text, strlen(text), "test.fir", &f.module));
  assert_ok(fathom_module_graph(f.module, NULL, &f.graph));
  return f;
}

static fixture compile_text(const char *text) {
  fixture f = open_text(text);
  assert_ok(fathom_compile(f.context, f.graph, target, &f.executable));
  return f;
}

static void close_fixture(fixture *f) {
  fathom_executable_destroy(f->executable);
  fathom_module_destroy(f->module);
  fathom_context_destroy(f->context);
}

static DLTensor tensor_of(void *data, int rank, int64_t *shape, int64_t *strides) {
  return (DLTensor){
      .data = data,
      .device = {kDLCPU, 0},
      .ndim = rank,
      .dtype = {kDLFloat, 32, 1},
      .shape = shape,
      .strides = strides,
  };
}

// The tensors of @mix for two rows, all dense.
typedef struct mix {
  float bank[12], weights[2], x[6], y[6], h[6];
  int64_t bank_shape[3], weights_shape[1], row_shape[2];
  DLTensor tensors[5];
  fathom_arg args[5];
} mix;

enum { BANK, WEIGHTS, X, Y, H, MIX_COUNT };

static void make_mix(mix *m) {
  static const char *const names[] = {"bank", "weights", "x", "y", "h"};
  *m = (mix){
      .weights = {0.5f, 2.0f}, .bank_shape = {2, 2, 3}, .weights_shape = {2}, .row_shape = {2, 3}};
  for (int i = 0; i < 12; i++)
    m->bank[i] = (float)i;
  for (int i = 0; i < 6; i++)
    m->x[i] = 100.0f;
  m->tensors[BANK] = tensor_of(m->bank, 3, m->bank_shape, NULL);
  m->tensors[WEIGHTS] = tensor_of(m->weights, 1, m->weights_shape, NULL);
  m->tensors[X] = tensor_of(m->x, 2, m->row_shape, NULL);
  m->tensors[Y] = tensor_of(m->y, 2, m->row_shape, NULL);
  m->tensors[H] = tensor_of(m->h, 2, m->row_shape, NULL);
  for (int i = 0; i < MIX_COUNT; i++)
    m->args[i] = (fathom_arg){.name = names[i], .tensor = &m->tensors[i]};
}

// h[t][d] = 0.5 * (3t + d) + 2 * (6 + 3t + d)
static float expected_h(int element) {
  return 2.5f * (float)element + 12.0f;
}

static void assert_mixed(const mix *m) {
  for (int i = 0; i < 6; i++) {
    assert_true(m->h[i] == expected_h(i));
    assert_true(m->y[i] == expected_h(i) + 100.0f);
  }
}

static fathom_status run_with(const fixture *f, const fathom_arg *args, uint32_t count,
                              const fathom_executor *executor) {
  size_t bytes;
  fathom_status status = fathom_workspace_size(f->executable, args, count, executor, &bytes);
  if (status != FATHOM_OK) return status;
  void *workspace = aligned_alloc(128, (bytes + 255) / 128 * 128);
  status = fathom_run(f->executable, args, count, workspace, bytes, executor);
  free(workspace);
  return status;
}

static fathom_status run_mix(const fixture *f, const mix *m) {
  return run_with(f, m->args, MIX_COUNT, NULL);
}

// ---- objects ------------------------------------------------------------------------------------

static void test_versions_and_names(void **state) {
  (void)state;
  assert_string_equal(fathom_version(), "0.1.0");
  assert_string_equal(fathom_status_name(FATHOM_UNSUPPORTED), "FATHOM_UNSUPPORTED");
  fathom_context_destroy(NULL);
  fathom_module_destroy(NULL);
  fathom_executable_destroy(NULL);
  fathom_text_destroy(NULL);
}

static void *allocate_nothing(void *user, size_t bytes) {
  (void)user;
  (void)bytes;
  return NULL;
}

static void test_options_have_sizes(void **state) {
  (void)state;
  fathom_context *context = NULL;
  fathom_context_options options = {0};
  assert_int_equal(fathom_context_create(&options, &context), FATHOM_INVALID);
  assert_says("fathom_context_options.size is 0");
  assert_null(context);
  options = (fathom_context_options){.size = sizeof options, .allocate = allocate_nothing};
  assert_int_equal(fathom_context_create(&options, &context), FATHOM_INVALID);
  assert_says("both 'allocate' and 'release'");

  // A later version of the struct is longer: what we do not know is ignored.
  struct {
    fathom_context_options options;
    void *later;
  } longer = {.options = {.size = sizeof longer, .cache_directory = ""}, .later = &longer};
  assert_ok(fathom_context_create(&longer.options, &context));
  assert_string_equal(fathom_error_text(), "");
  fathom_context_destroy(context);

  fixture f = compile_text(mix_text);
  fathom_executable_info info = {0};
  assert_int_equal(fathom_executable_get_info(f.executable, &info), FATHOM_INVALID);
  info.size = sizeof info;
  assert_ok(fathom_executable_get_info(f.executable, &info));
  assert_int_equal(info.size, sizeof info);
  assert_string_equal(info.graph, "mix");
  assert_string_equal(info.target, "interp");
  assert_string_equal(info.device, "");
  assert_true(info.compile_us > 0);
  close_fixture(&f);
}

// Structs have grown. A caller that was built with the first header says the size of then; what came
// later is neither read nor written.
static void test_structs_of_the_first_version(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  fathom_executable_info info;
  memset(&info, 0xaa, sizeof info);
  info.size = offsetof(fathom_executable_info, arch);
  const char *untouched = info.arch;
  assert_ok(fathom_executable_get_info(f.executable, &info));
  assert_string_equal(info.kernel, "");
  assert_ptr_equal(info.arch, untouched);
  info.size--;
  assert_int_equal(fathom_executable_get_info(f.executable, &info), FATHOM_INVALID);
  assert_says("fathom_executable_info.size is 63, expected at least 64");

  fathom_compile_options options;
  memset(&options, 0xaa, sizeof options);
  options.size = offsetof(fathom_compile_options, reserved) + sizeof options.reserved;
  options.target = "interp";
  options.cpu = options.schedule = NULL;
  options.verify_each = 0;
  fathom_executable *executable;
  assert_ok(fathom_compile(f.context, f.graph, &options, &executable));
  fathom_executable_destroy(executable);
  options.size = sizeof options;
  options.sanitize = 1;
  assert_int_equal(fathom_compile(f.context, f.graph, &options, &executable), FATHOM_INVALID);
  assert_says("kernels of the interp target cannot be sanitized");
  close_fixture(&f);
}

static void test_null_arguments_are_refused(void **state) {
  (void)state;
  fixture f = open_text(mix_text);
  fathom_module *module;
  assert_int_equal(fathom_context_create(NULL, NULL), FATHOM_INVALID);
  assert_int_equal(fathom_parse(NULL, "", 0, NULL, &module), FATHOM_INVALID);
  assert_int_equal(fathom_parse(f.context, NULL, 0, NULL, &module), FATHOM_INVALID);
  assert_says("fathom_parse: argument 'text' is NULL");
  assert_int_equal(fathom_compile(f.context, NULL, NULL, &f.executable), FATHOM_INVALID);
  assert_int_equal(fathom_run(NULL, NULL, 0, NULL, 0, NULL), FATHOM_INVALID);
  assert_int_equal(fathom_graph_bind(f.graph, NULL, 1), FATHOM_INVALID);
  close_fixture(&f);
}

static void test_parse_reports_everything(void **state) {
  (void)state;
  static const char text[] = "graph @bad(%x: f32[T, D=4]) {\n"
                             "  %a = exq %x : f32[T, D]\n"
                             "  %b = add %x, %nothing : f32[T, D]\n"
                             "  return %b\n"
                             "}\n";
  fixture f = {0};
  assert_ok(fathom_context_create(NULL, &f.context));
  assert_int_equal(fathom_parse(f.context, text, strlen(text), "bad.fir", &f.module),
                   FATHOM_INVALID);
  assert_says("bad.fir:2:");
  assert_says("bad.fir:3:");
  assert_null(f.module);
  assert_int_equal(fathom_parse(f.context, "", 0, NULL, &f.module), FATHOM_INVALID);
  assert_int_equal(fathom_parse(f.context, "\0\xff\x01", 3, NULL, &f.module), FATHOM_INVALID);
  close_fixture(&f);
}

// A message longer than the thread's buffer ends in a line that says so.
static void test_long_errors_are_cut(void **state) {
  (void)state;
  enum { LINES = 2000 };
  fixture f = {0};
  char *text = malloc(LINES * 32 + 64), *end = text;
  end += sprintf(end, "graph @bad(%%x: f32[T]) {\n");
  for (int i = 0; i < LINES; i++)
    end += sprintf(end, "  %%v%d = nonsense %%x\n", i);
  sprintf(end, "  return %%x\n}\n");
  assert_ok(fathom_context_create(NULL, &f.context));
  assert_int_equal(fathom_parse(f.context, text, strlen(text), "bad.fir", &f.module),
                   FATHOM_INVALID);
  assert_true(strlen(fathom_error_text()) < 16384);
  assert_says("more follows");
  free(text);
  close_fixture(&f);
}

static void test_modules_hold_graphs(void **state) {
  (void)state;
  static const char text[] = "graph @first(%x: f32[T]) { return %x }\n"
                             "graph @second(%x: f32[T]) { return %x }\n";
  fixture f = {0};
  assert_ok(fathom_context_create(NULL, &f.context));
  assert_ok(fathom_parse(f.context, text, strlen(text), NULL, &f.module));
  assert_int_equal(fathom_module_count(f.module), 2);
  assert_int_equal(fathom_module_graph(f.module, NULL, &f.graph), FATHOM_INVALID);
  assert_says("holds 2 graphs: name one of @first, @second");
  assert_int_equal(fathom_module_graph(f.module, "secnd", &f.graph), FATHOM_INVALID);
  assert_says("did you mean @second?");
  assert_ok(fathom_module_graph(f.module, "second", &f.graph));
  assert_string_equal(fathom_graph_name(f.graph), "second");
  assert_ptr_equal(fathom_module_graph_at(f.module, 1), f.graph);
  assert_null(fathom_module_graph_at(f.module, 2));
  close_fixture(&f);
}

static void test_tensor_infos(void **state) {
  (void)state;
  fixture f = open_text("graph @g(%bank: bf16[B=8, T, D] layout(T, B, D)) {\n"
                        "  %h = sum %bank over B : f32[T, D]\n  return %h\n}\n");
  fathom_tensor_info info = FATHOM_INIT(info);
  assert_ok(fathom_graph_param(f.graph, 0, &info));
  assert_string_equal(info.name, "bank");
  assert_int_equal(info.dtype, FATHOM_BF16);
  assert_int_equal(info.rank, 3);
  assert_string_equal(info.axes[1], "T");
  assert_int_equal(info.sizes[0], 8);
  assert_int_equal(info.sizes[2], FATHOM_DYNAMIC);
  assert_int_equal(info.layout[0], 1); // T is outermost in memory
  assert_int_equal(info.layout[1], 0);
  assert_int_equal(info.layout[2], 2);
  assert_ok(fathom_graph_bind(f.graph, "D", 7168));
  assert_ok(fathom_graph_result(f.graph, 0, &info));
  assert_string_equal(info.name, "h");
  assert_int_equal(info.sizes[1], 7168);
  assert_int_equal(fathom_graph_param(f.graph, 1, &info), FATHOM_INVALID);
  assert_int_equal(fathom_graph_result(f.graph, 1, &info), FATHOM_INVALID);
  info.size = 8;
  assert_int_equal(fathom_graph_param(f.graph, 0, &info), FATHOM_INVALID);
  close_fixture(&f);
}

static void test_bind_refuses_and_changes_nothing(void **state) {
  (void)state;
  fixture f = open_text(site_text);
  fathom_tensor_info info = FATHOM_INIT(info);
  assert_int_equal(fathom_graph_bind(f.graph, "X", 4), FATHOM_INVALID);
  assert_int_equal(fathom_graph_bind(f.graph, "D", -4), FATHOM_INVALID);
  assert_int_equal(fathom_graph_bind(f.graph, "B", 5), FATHOM_INVALID); // it is 3 already
  assert_int_equal(fathom_graph_bind(f.graph, "N", 9), FATHOM_INVALID); // it follows from B
  assert_int_equal(fathom_graph_bind(f.graph, "D", INT64_MAX), FATHOM_INVALID);
  assert_ok(fathom_graph_param(f.graph, 0, &info));
  assert_int_equal(info.sizes[2], FATHOM_DYNAMIC);
  assert_int_equal(fathom_compile(f.context, f.graph, &interp, &f.executable), FATHOM_INVALID);
  assert_says("D"); // only rows may stay dynamic
  assert_null(f.executable);
  assert_ok(fathom_graph_bind(f.graph, "D", 16));
  assert_ok(fathom_compile(f.context, f.graph, &interp, &f.executable));
  close_fixture(&f);
}

static void test_executables_outlive_modules(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  fathom_module_destroy(f.module);
  f.module = NULL;
  make_mix(&m);
  assert_ok(run_mix(&f, &m));
  assert_mixed(&m);
  close_fixture(&f);
}

// ---- passes and emitting ------------------------------------------------------------------------

static void test_optimize_prints_and_parses_back(void **state) {
  (void)state;
  fixture f = open_text(mix_text);
  fathom_optimize_options options = FATHOM_INIT(options);
  fathom_text once = {0}, twice = {0}, log = {0};
  options.passes = "";
  assert_ok(fathom_optimize(f.context, f.graph, &options, &once, &log));
  assert_int_equal(log.length, 0);
  assert_int_equal(strlen(once.data), once.length);
  fathom_module *again;
  fathom_graph *graph;
  assert_ok(fathom_parse(f.context, once.data, once.length, NULL, &again));
  assert_ok(fathom_module_graph(again, "mix", &graph));
  assert_ok(fathom_optimize(f.context, graph, &options, &twice, NULL));
  assert_string_equal(once.data, twice.data);
  fathom_text_destroy(&log);
  fathom_text_destroy(&once);
  fathom_text_destroy(&twice);
  assert_null(once.data);
  fathom_module_destroy(again);

  options.passes = "no-such-pass";
  assert_int_equal(fathom_optimize(f.context, f.graph, &options, &once, &log), FATHOM_INVALID);
  assert_says("no-such-pass");
  assert_null(once.data);
  fathom_text_destroy(&log);
  close_fixture(&f);
}

static void test_pass_list(void **state) {
  (void)state;
  fathom_text list;
  assert_ok(fathom_pass_list(&list));
  assert_non_null(strstr(list.data, "canonicalize"));
  assert_non_null(strstr(list.data, "gives=canonical"));
  fathom_text_destroy(&list);
}

static void test_emit_and_targets(void **state) {
  (void)state;
  bool there = is_there("cpu");
  fixture f = open_text(mix_text);
  fathom_text text;
  assert_ok(fathom_emit(f.context, f.graph, &interp, "graph", &text));
  assert_non_null(strstr(text.data, "graph @mix"));
  fathom_text_destroy(&text);
  assert_int_equal(fathom_emit(f.context, f.graph, &interp, "asm", &text), FATHOM_UNSUPPORTED);
  assert_says("the interp target makes no asm: it makes graph");
  assert_int_equal(fathom_emit(f.context, f.graph, &interp, "kernl", &text), FATHOM_INVALID);
  assert_says("did you mean kernel?");
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = "gpu";
  assert_int_equal(fathom_compile(f.context, f.graph, &options, &f.executable), FATHOM_INVALID);
  assert_says("unknown target 'gpu': expected one of cpu, interp, cuda[:ARCH], cuda-emu[:ARCH]");
  options = interp;
  options.schedule = "token_tile=4";
  assert_int_equal(fathom_compile(f.context, f.graph, &options, &f.executable), FATHOM_INVALID);
  options = (fathom_compile_options){.size = sizeof options, .cpu = "znver4"};
  assert_int_equal(fathom_compile(f.context, f.graph, &options, &f.executable), FATHOM_UNSUPPORTED);
  assert_says(there ? "cannot run on this machine" : "libfathom-cpu.so");
  close_fixture(&f);
}

static void expect_emitted(const fixture *f, const char *target, const char *what,
                           const char *expected) {
  fathom_compile_options options = FATHOM_INIT(options);
  fathom_text text;
  options.target = target;
  assert_ok(fathom_emit(f->context, f->graph, &options, what, &text));
  if (strstr(text.data, expected) == NULL) fail_msg("no '%s' in: %s", expected, text.data);
  fathom_text_destroy(&text);
}

static void expect_refused(const fixture *f, fathom_compile_options options, const char *what,
                           const char *expected) {
  fathom_text text;
  options.size = sizeof options;
  assert_int_not_equal(fathom_emit(f->context, f->graph, &options, what, &text), FATHOM_OK);
  assert_says(expected);
  assert_null(text.data);
}

// Text for a GPU needs neither a GPU nor its libraries.
static void test_gpu_targets(void **state) {
  (void)state;
  fixture f = open_text(mix_text);
  expect_emitted(&f, "cuda:sm_80", "cuda", "for sm_80");
  expect_emitted(&f, "cuda:90a", "cuda", "for sm_90a");
  expect_emitted(&f, "cuda-emu:9.0", "cuda", "for sm_90");
  expect_emitted(&f, "cuda-emu", "report", "architecture: sm_90, the default without a GPU");
  expect_emitted(&f, "cuda:sm_120", "graph", "kernel = 0");
  expect_emitted(&f, "cuda:sm_120", "kernel", "kernel @mix");

  typedef fathom_compile_options given;
  expect_refused(&f, (given){.target = "cuba"}, "cuda", "did you mean cuda?");
  expect_refused(&f, (given){.target = "cuda:sm_91"}, "cuda", "unknown GPU architecture 'sm_91'");
  expect_refused(&f, (given){.target = "cuda:"}, "cuda", "expected one of sm_75");
  expect_refused(&f, (given){.target = "cpu:sm_90"}, "asm", "the cpu target has no architectures");
  expect_refused(&f, (given){.target = "cuda", .cpu = "znver4"}, "cuda", "compiles for no CPU");
  expect_refused(&f, (given){.target = "cuda", .sanitize = 1}, "cuda", "use the target cuda-emu");
  expect_refused(&f, (given){.target = "cuda"}, "llvm", "use the target cpu");
  expect_refused(&f, (given){.target = "cuda-emu"}, "ptx", "use the target cuda");
  expect_refused(&f, (given){.target = "cpu"}, "cubin", "use the target cuda");
  expect_refused(&f, (given){.target = "cuda"}, "cudda", "did you mean cuda?");

  fathom_optimize_options passes = FATHOM_INIT(passes);
  fathom_text text;
  passes.target = "cuda:sm_90";
  assert_ok(fathom_optimize(f.context, f.graph, &passes, &text, NULL));
  assert_non_null(strstr(text.data, "kernel = 0"));
  fathom_text_destroy(&text);
  passes.target = "gpu";
  assert_int_equal(fathom_optimize(f.context, f.graph, &passes, &text, NULL), FATHOM_INVALID);
  close_fixture(&f);
}

static void test_info(void **state) {
  (void)state;
  fathom_context *context;
  fathom_context_options options = FATHOM_INIT(options);
  fathom_text text;
  options.cache_directory = "/some/folder";
  assert_ok(fathom_context_create(&options, &context));
  assert_ok(fathom_info(context, &text));
  assert_non_null(strstr(text.data, "version: 0.1.0\n"));
  assert_non_null(strstr(text.data, "targets: "));
  assert_non_null(strstr(text.data, "cache: /some/folder\n"));
  fathom_text_destroy(&text);
  fathom_context_destroy(context);
}

// ---- running ------------------------------------------------------------------------------------

static void test_run_dense(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  assert_ok(run_mix(&f, &m));
  assert_mixed(&m);
  close_fixture(&f);
}

static void test_run_takes_any_order_and_stride(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  // The bank token-major, x one broadcast number, y transposed with gaps, h from the end backwards.
  float bank[12], x = 100.0f, y[12], h[6];
  for (int n = 0; n < 2; n++)
    for (int t = 0; t < 2; t++)
      for (int d = 0; d < 3; d++)
        bank[t * 6 + n * 3 + d] = m.bank[n * 6 + t * 3 + d];
  int64_t bank_strides[] = {3, 6, 1}, x_strides[] = {0, 0}, y_strides[] = {2, 4},
          h_strides[] = {-3, -1};
  m.tensors[BANK].data = bank;
  m.tensors[BANK].strides = bank_strides;
  m.tensors[X].data = &x;
  m.tensors[X].strides = x_strides;
  m.tensors[Y].data = y;
  m.tensors[Y].strides = y_strides;
  m.tensors[H].data = h;
  m.tensors[H].byte_offset = 5 * sizeof(float);
  m.tensors[H].strides = h_strides;
  fathom_arg swapped = m.args[BANK];
  m.args[BANK] = m.args[Y];
  m.args[Y] = swapped;
  assert_ok(run_mix(&f, &m));
  for (int t = 0; t < 2; t++)
    for (int d = 0; d < 3; d++) {
      assert_true(y[t * 2 + d * 4] == expected_h(t * 3 + d) + 100.0f);
      assert_true(h[5 - (t * 3 + d)] == expected_h(t * 3 + d));
    }
  close_fixture(&f);
}

static void test_run_takes_slices(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  DLTensor first = tensor_of(m.bank, 2, m.row_shape, NULL);
  DLTensor second = tensor_of(m.bank + 6, 2, m.row_shape, NULL);
  const DLTensor *slices[] = {&first, &second};
  m.args[BANK] = (fathom_arg){.name = "bank", .slices = slices, .slice_count = 2};
  // A list of scalars too: each index of the only axis somewhere else.
  float scattered[] = {2.0f, 7.0f, 0.5f};
  DLTensor low = tensor_of(&scattered[2], 0, NULL, NULL),
           high = tensor_of(&scattered[0], 0, NULL, NULL);
  const DLTensor *weights[] = {&low, &high};
  m.args[WEIGHTS] = (fathom_arg){.name = "weights", .slices = weights, .slice_count = 2};
  assert_ok(run_mix(&f, &m));
  assert_mixed(&m);

  m.args[BANK].slice_count = 1;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  int64_t other[] = {6, 1};
  second.strides = other;
  m.args[BANK].slice_count = 2;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%bank: slice 1");
  slices[1] = NULL;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%bank: slice 1: the tensor is NULL");
  m.args[BANK].tensor = &m.tensors[BANK];
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("both a tensor and slices");
  close_fixture(&f);
}

static void test_run_with_no_rows(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  m.bank_shape[1] = m.row_shape[0] = 0;
  for (int i = 0; i < MIX_COUNT; i++)
    if (i != WEIGHTS) m.tensors[i].data = NULL;
  m.h[0] = 42.0f;
  assert_ok(run_mix(&f, &m));
  assert_true(m.h[0] == 42.0f);
  close_fixture(&f);
}

static void test_run_refuses_names(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  m.args[WEIGHTS].name = "wieghts";
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("no parameter or result %wieghts");
  assert_says("did you mean %weights?");
  assert_says("input %weights is missing");
  m.args[WEIGHTS].name = "x";
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%x is given twice");
  m.args[WEIGHTS].name = NULL;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("argument 1 has no name");
  assert_int_equal(fathom_run(f.executable, m.args, 1, NULL, 0, NULL), FATHOM_INVALID);
  assert_says("output %y is missing");
  assert_says("graph @mix wants inputs %bank, %weights, %x; outputs %y, %h");
  close_fixture(&f);
}

static void test_run_refuses_tensors(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  m.tensors[X].device.device_type = kDLCUDA;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%x: expected host memory");
  make_mix(&m);
  m.tensors[X].dtype = (DLDataType){kDLBfloat, 16, 1};
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%x: expected dtype f32 (kDLFloat with 32 bits), found DLPack code 4 with 16 bits");
  m.tensors[X].dtype = (DLDataType){kDLFloat, 64, 1};
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("found DLPack code 2 with 64 bits");
  make_mix(&m);
  m.tensors[X].ndim = 1;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%x: expected 2 axes, found 1");
  make_mix(&m);
  m.tensors[X].ndim = 12;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  make_mix(&m);
  m.tensors[X].data = NULL;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("%x");
  make_mix(&m);
  int64_t short_rows[] = {1, 3}, negative[] = {2, -3};
  m.tensors[X].shape = short_rows;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("axis T");
  m.tensors[X].shape = negative;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  make_mix(&m);
  m.tensors[Y].data = m.x;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  assert_says("overlap");
  make_mix(&m);
  m.tensors[X].data = (char *)m.x + 1;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  make_mix(&m);
  int64_t huge[] = {INT64_MAX / 2, INT64_MAX / 2};
  m.tensors[X].strides = huge;
  assert_int_equal(run_mix(&f, &m), FATHOM_INVALID);
  close_fixture(&f);
}

// More slots than fit on the stack: the binding lives in the workspace, which then has a size.
static void test_run_binds_many(void **state) {
  (void)state;
  enum { SOURCES = 100 };
  char text[8192], *end = text, names[SOURCES][8];
  end += sprintf(end, "graph @many(");
  for (int i = 0; i < SOURCES; i++)
    end += sprintf(end, "%s%%v%d: f32[T]", i ? ", " : "", i);
  end += sprintf(end, ") {\n  %%v = concat ");
  for (int i = 0; i < SOURCES; i++)
    end += sprintf(end, "%s%%v%d", i ? ", " : "", i);
  sprintf(end, " over X to N : f32[N, T]\n  %%h = sum %%v over N : f32[T]\n  return %%h\n}\n");
  fixture f = compile_text(text);

  float values[SOURCES], h;
  int64_t shape[] = {1};
  DLTensor tensors[SOURCES + 1];
  fathom_arg args[SOURCES + 1];
  for (int i = 0; i < SOURCES; i++) {
    values[i] = (float)i;
    sprintf(names[i], "v%d", i);
    tensors[i] = tensor_of(&values[i], 1, shape, NULL);
    args[i] = (fathom_arg){.name = names[i], .tensor = &tensors[i]};
  }
  tensors[SOURCES] = tensor_of(&h, 1, shape, NULL);
  args[SOURCES] = (fathom_arg){.name = "h", .tensor = &tensors[SOURCES]};
  size_t bytes;
  assert_ok(fathom_workspace_size(f.executable, args, SOURCES + 1, NULL, &bytes));
  assert_true(bytes > 0);
  assert_int_equal(fathom_run(f.executable, args, SOURCES + 1, NULL, 0, NULL), FATHOM_INVALID);
  assert_says("the workspace is NULL");
  char *workspace = aligned_alloc(64, bytes);
  assert_int_equal(fathom_run(f.executable, args, SOURCES + 1, workspace, bytes - 1, NULL),
                   FATHOM_INVALID);
  assert_says("expected");
  assert_int_equal(fathom_run(f.executable, args, SOURCES + 1, workspace + 4, bytes, NULL),
                   FATHOM_INVALID);
  assert_says("not aligned to 64 bytes");
  assert_ok(fathom_run(f.executable, args, SOURCES + 1, workspace, bytes, NULL));
  assert_true(h == 4950.0f);
  free(workspace);
  close_fixture(&f);
}

// A parameter that is returned as it is has an input and an output of one name.
static void test_run_returns_a_parameter(void **state) {
  (void)state;
  fixture f = compile_text("graph @same(%x: f32[T]) { return %x }");
  float in[] = {1.0f, 2.0f}, out[2];
  int64_t shape[] = {2};
  DLTensor source = tensor_of(in, 1, shape, NULL), target = tensor_of(out, 1, shape, NULL);
  fathom_arg args[] = {{.name = "x", .tensor = &source}, {.name = "x", .tensor = &target}};
  assert_ok(run_with(&f, args, 2, NULL));
  assert_true(out[1] == 2.0f);
  close_fixture(&f);
}

// bf16 and f16 go through memory bit for bit, infinities, subnormals and rounding included.
static void test_run_low_precision(void **state) {
  (void)state;
  fixture f = compile_text("graph @cast(%b: bf16[T], %f: f32[T], %h: f16[T]) {\n"
                           "  %b2 = cast %f : bf16[T]\n  %h2 = cast %f : f16[T]\n"
                           "  %b3 = neg %b : bf16[T]\n  %h3 = neg %h : f16[T]\n"
                           "  return %b2, %h2, %b3, %h3\n}\n");
  float single[] = {1.00390625f, 1.01171875f, 65520.0f, 5.9604644775390625e-8f, 3.0e38f, NAN};
  uint16_t b[] = {0x3f80, 0x7f80, 0x0001, 0xff80, 0xc2c8, 0x7f81},
           h[] = {0x3c00, 0x7c00, 0x0001, 0xfbff, 0x0400, 0x7c01};
  uint16_t b2[6], h2[6], b3[6], h3[6];
  // Ties to even, and past the largest half is infinity.
  const uint16_t want_b2[] = {0x3f80, 0x3f82, 0x4780, 0x3380, 0x7f62};
  const uint16_t want_h2[] = {0x3c04, 0x3c0c, 0x7c00, 0x0001, 0x7c00};
  void *data[] = {b, single, h, b2, h2, b3, h3};
  const char *names[] = {"b", "f", "h", "b2", "h2", "b3", "h3"};
  const DLDataType bf16 = {kDLBfloat, 16, 1}, f16 = {kDLFloat, 16, 1}, f32 = {kDLFloat, 32, 1};
  const DLDataType types[] = {bf16, f32, f16, bf16, f16, bf16, f16};
  int64_t shape[] = {6};
  DLTensor tensors[7];
  fathom_arg args[7];
  for (int i = 0; i < 7; i++) {
    tensors[i] = tensor_of(data[i], 1, shape, NULL);
    tensors[i].dtype = types[i];
    args[i] = (fathom_arg){.name = names[i], .tensor = &tensors[i]};
  }
  assert_ok(run_with(&f, args, 7, NULL));
  for (int i = 0; i < 5; i++) {
    assert_int_equal(b2[i], want_b2[i]);
    assert_int_equal(h2[i], want_h2[i]);
    assert_int_equal(b3[i], b[i] ^ 0x8000);
    assert_int_equal(h3[i], h[i] ^ 0x8000);
  }
  // A NaN stays one, of either sign.
  assert_true((b2[5] & 0x7fff) > 0x7f80 && (b3[5] & 0x7fff) > 0x7f80);
  assert_true((h2[5] & 0x7fff) > 0x7c00 && (h3[5] & 0x7fff) > 0x7c00);
  close_fixture(&f);
}

static void test_executors_are_checked(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  mix m;
  make_mix(&m);
  fathom_executor executor = {0};
  assert_int_equal(fathom_run(f.executable, m.args, MIX_COUNT, NULL, 0, &executor), FATHOM_INVALID);
  assert_says("fathom_executor.size");
  executor.size = sizeof executor;
  assert_int_equal(fathom_run(f.executable, m.args, MIX_COUNT, NULL, 0, &executor), FATHOM_INVALID);
  assert_says("'parallel_for'");
  executor.concurrency = 1;
  assert_int_equal(fathom_run(f.executable, m.args, MIX_COUNT, NULL, 0, &executor), FATHOM_INVALID);
  close_fixture(&f);
}

// Last index first, on the calling thread.
static void run_backwards(void *user, size_t count, void (*call)(void *argument, size_t index),
                          void *argument) {
  while (count-- > 0)
    call(argument, count);
  ++*(int *)user;
}

static void test_executors_may_be_the_hosts(void **state) {
  (void)state;
  fixture f = open_text(mix_text);
  fathom_compile_options options = *target;
  if (target != &interp) options.schedule = "rows=1"; // a task a row, so that there are several
  assert_ok(fathom_compile(f.context, f.graph, &options, &f.executable));
  mix m;
  int calls = 0;
  fathom_executor executor = FATHOM_INIT(executor);
  executor.user = &calls;
  executor.concurrency = 2;
  executor.parallel_for = run_backwards;
  make_mix(&m);
  assert_ok(run_with(&f, m.args, MIX_COUNT, &executor));
  assert_mixed(&m);
  assert_true(calls > 0 || target == &interp);
  close_fixture(&f);
}

static void test_dlpack_versioned(void **state) {
  (void)state;
  fathom_dlpack_versioned managed = {.version = {1, 1}, .flags = 1};
  const DLTensor *tensor;
  assert_ok(fathom_from_dlpack_versioned(&managed, 0, &tensor));
  assert_ptr_equal(tensor, &managed.dl_tensor);
  assert_int_equal(fathom_from_dlpack_versioned(&managed, 1, &tensor), FATHOM_INVALID);
  assert_says("read-only");
  assert_null(tensor);
  managed.version.major = 2;
  assert_int_equal(fathom_from_dlpack_versioned(&managed, 0, &tensor), FATHOM_UNSUPPORTED);
}

// ---- checking -----------------------------------------------------------------------------------

typedef struct seen {
  int count;
  double worst;
} seen;

static void note(void *user, const fathom_check_result *result) {
  seen *s = user;
  s->count++;
  s->worst = fmax(s->worst, result->error);
  assert_true(result->passed);
  if (strcmp(result->name, "p") == 0) assert_true(result->bound == 0.0); // bit exact
  if (strcmp(result->name, "h") == 0) assert_true(result->bound == 4e-3);
}

static void test_check_on_interp(void **state) {
  (void)state;
  fixture f = open_text(site_text);
  seen s = {0};
  fathom_check_options options = FATHOM_INIT(options);
  options.report = note;
  options.user = &s;
  options.misalign = 3;
  options.strided = 1;
  options.dynamic_size = 9;
  uint32_t failures = 7;
  assert_ok(fathom_graph_bind(f.graph, "D", 24));
  assert_ok(fathom_check(f.context, f.graph, &interp, &options, &failures));
  assert_int_equal(failures, 0);
  assert_int_equal(s.count, 3 * 2);
  assert_true(s.worst == 0.0);
  options.dynamic_size = -1;
  assert_int_equal(fathom_check(f.context, f.graph, &interp, &options, &failures), FATHOM_INVALID);
  close_fixture(&f);
}

typedef struct moved {
  int count;
  uint64_t read, read_minimum, written, written_minimum;
} moved;

static void count_traffic(void *user, const fathom_traffic *traffic) {
  moved *sum = user;
  sum->count++;
  sum->read += traffic->read;
  sum->written += traffic->written;
  sum->read_minimum += traffic->read_minimum;
  sum->written_minimum += traffic->written_minimum;
  assert_true(traffic->read_distinct <= traffic->read);
  if (strcmp(traffic->name, "bank") == 0) assert_int_equal(traffic->read, 3 * 9 * 24 * 2);
}

// Each source is read once, each result written once, and the vectors once by each of the three
// blocks that the emulated GPU runs.
static void test_check_on_the_emulator(void **state) {
  (void)state;
  fixture f = open_text(site_text);
  moved sum = {0};
  fathom_check_options options = FATHOM_INIT(options);
  options.dynamic_size = 9;
  options.traffic = count_traffic;
  options.user = &sum;
  uint32_t failures = 7;
  assert_ok(fathom_graph_bind(f.graph, "D", 24));
  assert_ok(fathom_check(f.context, f.graph, &emulator, &options, &failures));
  assert_int_equal(failures, 0);
  assert_int_equal(sum.count, 7);
  assert_int_equal(sum.read_minimum, (3 + 2) * 9 * 24 * 2 + 2 * 24 * 4);
  assert_int_equal(sum.read, (3 + 2) * 9 * 24 * 2 + 3 * 2 * 24 * 4);
  assert_int_equal(sum.written, 2 * 9 * 24 * 2);
  assert_int_equal(sum.written_minimum, sum.written);

  fathom_bench_result result = FATHOM_INIT(result);
  assert_ok(fathom_compile(f.context, f.graph, &emulator, &f.executable));
  assert_int_equal(fathom_bench(f.context, f.graph, f.executable, NULL, &result),
                   FATHOM_UNSUPPORTED);
  assert_says("the times of the emulator say nothing about a GPU");
  close_fixture(&f);
}

// Kernels for a GPU have no pointer for each number of a vector: its slices must be one tensor in
// effect.
static void test_slices_on_the_emulator(void **state) {
  (void)state;
  fixture f = compile_text("graph @dots(%w: f32[N=3], %x: f32[T, N]) {\n"
                           "  %y = dot %w, %x over N : f32[T]\n  return %y\n}\n");
  float numbers[] = {3.0f, 0.0f, 2.0f, 7.0f, 1.0f, 5.0f}, x[] = {1.0f, 10.0f, 100.0f}, y = 0.0f;
  int64_t x_shape[] = {1, 3}, y_shape[] = {1};
  DLTensor w[3], x_tensor = tensor_of(x, 2, x_shape, NULL),
                 y_tensor = tensor_of(&y, 1, y_shape, NULL);
  const DLTensor *slices[] = {&w[0], &w[1], &w[2]};
  for (int i = 0; i < 3; i++)
    w[i] = tensor_of(&numbers[4 - 2 * i], 0, NULL, NULL);
  const fathom_arg args[] = {{.name = "w", .slices = slices, .slice_count = 3},
                             {.name = "x", .tensor = &x_tensor},
                             {.name = "y", .tensor = &y_tensor}};
  assert_ok(run_with(&f, args, 3, NULL));
  assert_true(y == 321.0f);
  w[2].data = &numbers[5];
  assert_int_equal(run_with(&f, args, 3, NULL), FATHOM_UNSUPPORTED);
  assert_says("%w: its slices lie at uneven distances, which kernels of the cuda-emu target");
  assert_says("give it as one tensor");
  close_fixture(&f);
}

// ---- threads ------------------------------------------------------------------------------------

enum { THREADS = 8, ROUNDS = 20 };

typedef struct worker {
  pthread_t thread;
  const fixture *shared;
  const char *failure; // cmocka's asserts belong to the main thread
  char text[512];
} worker;

static const char *compile_another(const fixture *f) {
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  if (fathom_parse(f->context, site_text, strlen(site_text), NULL, &module) != FATHOM_OK)
    return "parse";
  if (fathom_module_graph(module, NULL, &graph) != FATHOM_OK) return "graph";
  if (fathom_graph_bind(graph, "D", 32) != FATHOM_OK) return "bind";
  if (fathom_compile(f->context, graph, target, &executable) != FATHOM_OK) return "compile";
  fathom_module_destroy(module);
  fathom_executable_destroy(executable);
  return NULL;
}

static void *work(void *opaque) {
  worker *w = opaque;
  mix m;
  make_mix(&m);
  for (int round = 0; round < ROUNDS && w->failure == NULL; round++) {
    memset(m.h, 0, sizeof m.h);
    if (run_mix(w->shared, &m) != FATHOM_OK) w->failure = "run";
    for (int i = 0; i < 6; i++)
      if (m.h[i] != expected_h(i)) w->failure = "wrong bits";
    // Error texts are each thread's own.
    if (fathom_graph_bind(w->shared->graph, "T", -1 - round) != FATHOM_INVALID) w->failure = "bind";
    snprintf(w->text, sizeof w->text, "size %d", -1 - round);
    if (strstr(fathom_error_text(), w->text) == NULL) w->failure = "error text";
    if (w->failure == NULL) w->failure = compile_another(w->shared);
  }
  return NULL;
}

static void test_threads_share_context_and_executable(void **state) {
  (void)state;
  fixture f = compile_text(mix_text);
  worker workers[THREADS] = {0};
  for (int i = 0; i < THREADS; i++) {
    workers[i].shared = &f;
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++)
    pthread_join(workers[i].thread, NULL);
  for (int i = 0; i < THREADS; i++)
    if (workers[i].failure != NULL) fail_msg("thread %d: %s", i, workers[i].failure);
  close_fixture(&f);
}

// Skipped where there is no libfathom-cpu; what it says then must help.
static void test_cpu_target(void **state) {
  (void)state;
  fixture f = open_text(mix_text);
  fathom_status status = fathom_compile(f.context, f.graph, &cpu, &f.executable);
  if (status == FATHOM_UNSUPPORTED) {
    assert_says("libfathom-cpu.so");
    assert_says("LLVM 19");
  } else {
    assert_ok(status);
  }
  close_fixture(&f);
  if (status == FATHOM_UNSUPPORTED) skip();
}

int main(void) {
  const struct CMUnitTest objects[] = {
      cmocka_unit_test(test_versions_and_names),
      cmocka_unit_test(test_options_have_sizes),
      cmocka_unit_test(test_structs_of_the_first_version),
      cmocka_unit_test(test_null_arguments_are_refused),
      cmocka_unit_test(test_parse_reports_everything),
      cmocka_unit_test(test_long_errors_are_cut),
      cmocka_unit_test(test_modules_hold_graphs),
      cmocka_unit_test(test_tensor_infos),
      cmocka_unit_test(test_bind_refuses_and_changes_nothing),
      cmocka_unit_test(test_optimize_prints_and_parses_back),
      cmocka_unit_test(test_pass_list),
      cmocka_unit_test(test_emit_and_targets),
      cmocka_unit_test(test_gpu_targets),
      cmocka_unit_test(test_info),
      cmocka_unit_test(test_dlpack_versioned),
      cmocka_unit_test(test_check_on_interp),
      cmocka_unit_test(test_cpu_target),
  };
  const struct CMUnitTest runs[] = {
      cmocka_unit_test(test_executables_outlive_modules),
      cmocka_unit_test(test_run_dense),
      cmocka_unit_test(test_run_takes_any_order_and_stride),
      cmocka_unit_test(test_run_takes_slices),
      cmocka_unit_test(test_run_with_no_rows),
      cmocka_unit_test(test_run_refuses_names),
      cmocka_unit_test(test_run_refuses_tensors),
      cmocka_unit_test(test_run_returns_a_parameter),
      cmocka_unit_test(test_run_low_precision),
      cmocka_unit_test(test_threads_share_context_and_executable),
  };
  // Targets whose runs are the host's work, done by an executor.
  const struct CMUnitTest host_runs[] = {
      cmocka_unit_test(test_run_binds_many),
      cmocka_unit_test(test_executors_are_checked),
      cmocka_unit_test(test_executors_may_be_the_hosts),
  };
  const struct CMUnitTest emulated[] = {
      cmocka_unit_test(test_check_on_the_emulator),
      cmocka_unit_test(test_slices_on_the_emulator),
  };
  int failed = cmocka_run_group_tests_name("objects", objects, NULL, NULL);
  failed += cmocka_run_group_tests_name("runs on interp", runs, NULL, NULL);
  failed += cmocka_run_group_tests_name("more runs on interp", host_runs, NULL, NULL);
  target = &cpu;
  if (is_there("cpu")) {
    failed += cmocka_run_group_tests_name("runs on cpu", runs, NULL, NULL);
    failed += cmocka_run_group_tests_name("more runs on cpu", host_runs, NULL, NULL);
  }
  target = &emulator;
  if (is_there("cuda-emu")) {
    failed += cmocka_run_group_tests_name("runs on cuda-emu", runs, NULL, NULL);
    failed += cmocka_run_group_tests_name("emulator", emulated, NULL, NULL);
  }
  return failed;
}
