// Compiled graphs as bytes: the same results bit by bit in a process without LLVM, and clear errors
// for whatever is wrong with them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "runtime/archive.h"
#include "support/memory.h"

enum { N = 3, T = 5, D = 70 };

static const char text[] = "graph @site(%v: bf16[N=3, T, D=70], %query: f32[D], %gain: f32[D]) {\n"
                           "  %k = rms_norm %v, %gain over D {eps = 1e-5}   : f32[N, T, D]\n"
                           "  %z = dot %k, %query over D                    : f32[N, T]\n"
                           "  %a = softmax %z over N                        : f32[N, T]\n"
                           "  %h = weighted_sum %a, %v over N               : bf16[T, D]\n"
                           "  return %h, %a\n"
                           "}\n";

typedef struct fixture {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_text bundle;            // for the cpu
  fathom_executable *executable; // of a test's own
} fixture;

static void make_bundle(fixture *f, const char *cpu, fathom_text *out) {
  static const char *const targets[] = {"cpu"};
  fathom_compile_options options = FATHOM_INIT(options);
  options.cpu = cpu;
  fathom_status status = fathom_executable_save(f->context, f->graph, targets, 1, &options, out);
  if (status != FATHOM_OK) fail_msg("%s", fathom_error_text());
}

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  assert_int_equal(fathom_context_create(NULL, &f->context), FATHOM_OK);
  assert_int_equal(fathom_parse(f->context, text, sizeof text - 1, "site.fir", &f->module),
                   FATHOM_OK);
  assert_int_equal(fathom_module_graph(f->module, NULL, &f->graph), FATHOM_OK);
  base_arena arena;
  base_str why;
  base_arena_init(&arena, NULL);
  bool there = cg_cpu_target(&arena, &why) != NULL;
  base_arena_reset(&arena);
  if (there) make_bundle(f, NULL, &f->bundle);
  return 0;
}

static int teardown(void **state) {
  fixture *f = *state;
  fathom_text_destroy(&f->bundle);
  fathom_module_destroy(f->module);
  fathom_context_destroy(f->context);
  free(f);
  return 0;
}

#define NEEDS_CPU(f)                                                                               \
  if ((f)->bundle.length == 0) skip()

static void assert_says(const char *words) {
  if (strstr(fathom_error_text(), words) == NULL)
    fail_msg("expected '%s' in: %s", words, fathom_error_text());
}

static fathom_status load(fixture *f, const void *bytes, size_t length, const char *target,
                          fathom_executable **out) {
  // A copy of just that size, so that reading beyond it is found.
  char *copy = malloc(length + (length == 0));
  if (length > 0) memcpy(copy, bytes, length);
  fathom_status status = fathom_executable_load(f->context, copy, length, target, out);
  free(copy);
  return status;
}

// ---- running ------------------------------------------------------------------------------------

typedef struct results {
  uint16_t h[T * D];
  float a[N * T];
} results;

static void run(const fathom_executable *executable, results *out) {
  static uint16_t v[N * T * D];
  static float query[D], gain[D];
  uint64_t random = 7;
  for (size_t i = 0; i < N * T * D; i++)
    v[i] = (uint16_t)(0x3f00 + (base_random(&random) & 0x80ff));
  for (size_t i = 0; i < D; i++) {
    query[i] = (float)(int)(base_random(&random) % 17) - 8.0f;
    gain[i] = 1.0f + (float)(i % 5) / 8;
  }
  int64_t shapes[5][3] = {{N, T, D}, {D}, {D}, {T, D}, {N, T}};
  int32_t ranks[5] = {3, 1, 1, 2, 2};
  bool half[5] = {true, false, false, true, false};
  void *data[5] = {v, query, gain, out->h, out->a};
  static const char *const names[5] = {"v", "query", "gain", "h", "a"};
  DLTensor tensors[5];
  fathom_arg args[5];
  for (int i = 0; i < 5; i++) {
    tensors[i] = (DLTensor){.data = data[i],
                            .device = {kDLCPU, 0},
                            .ndim = ranks[i],
                            .dtype = half[i] ? (DLDataType){kDLBfloat, 16, 1}
                                             : (DLDataType){kDLFloat, 32, 1},
                            .shape = shapes[i]};
    args[i] = (fathom_arg){.name = names[i], .tensor = &tensors[i]};
  }
  size_t bytes;
  assert_int_equal(fathom_workspace_size(executable, args, 5, NULL, &bytes), FATHOM_OK);
  void *workspace = aligned_alloc(128, (bytes + 127) / 128 * 128 + 128);
  memset(out, 0x5a, sizeof *out);
  if (fathom_run(executable, args, 5, workspace, bytes, NULL) != FATHOM_OK)
    fail_msg("%s", fathom_error_text());
  free(workspace);
}

static void loaded_runs_as_compiled(void **state) {
  static const char *const cpus[] = {"host", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  fixture *f = *state;
  NEEDS_CPU(f);
  for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
    fathom_compile_options options = FATHOM_INIT(options);
    options.cpu = cpus[i];
    fathom_executable *compiled, *loaded;
    if (fathom_compile(f->context, f->graph, &options, &compiled) != FATHOM_OK) continue;
    fathom_text bundle;
    make_bundle(f, cpus[i], &bundle);
    if (load(f, bundle.data, bundle.length, "cpu", &loaded) != FATHOM_OK)
      fail_msg("%s", fathom_error_text());
    results a, b;
    run(compiled, &a);
    run(loaded, &b);
    assert_memory_equal(&a, &b, sizeof a);
    fathom_executable_destroy(compiled);
    fathom_executable_destroy(loaded);
    fathom_text_destroy(&bundle);
  }
}

static void tells_what_it_is(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_executable *compiled, *loaded;
  assert_int_equal(fathom_compile(f->context, f->graph, NULL, &compiled), FATHOM_OK);
  assert_int_equal(load(f, f->bundle.data, f->bundle.length, NULL, &loaded), FATHOM_OK);
  fathom_executable_info a = FATHOM_INIT(a), b = FATHOM_INIT(b);
  assert_int_equal(fathom_executable_get_info(compiled, &a), FATHOM_OK);
  assert_int_equal(fathom_executable_get_info(loaded, &b), FATHOM_OK);
  assert_string_equal(a.graph, b.graph);
  assert_string_equal(a.target, b.target);
  assert_string_equal(a.schedule, b.schedule);
  assert_string_equal(a.schedule_source, b.schedule_source);
  assert_string_equal(a.kernel, b.kernel);
  assert_int_equal(a.kernel_count, b.kernel_count);
  assert_int_equal(fathom_executable_param_count(loaded), 3);
  assert_int_equal(fathom_executable_result_count(loaded), 2);
  fathom_tensor_info info = FATHOM_INIT(info);
  assert_int_equal(fathom_executable_result(loaded, 1, &info), FATHOM_OK);
  assert_string_equal(info.name, "a");
  assert_int_equal(info.sizes[0], N);
  assert_int_equal(info.sizes[1], FATHOM_DYNAMIC);
  assert_int_equal(fathom_executable_param(loaded, 3, &info), FATHOM_INVALID);
  assert_says("no parameter 3");
  fathom_executable_destroy(compiled);
  fathom_executable_destroy(loaded);
}

// ---- without LLVM -------------------------------------------------------------------------------

static bool is_mapped(const char *name) {
  char line[4096];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps) != NULL)
    found |= strstr(line, name) != NULL;
  fclose(maps);
  return found;
}

static double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

// What a fresh process does with a bundle: argv is PROGRAM load BUNDLE RESULTS.
static int load_in_fresh_process(const char *bundle, const char *results_path) {
  base_arena arena;
  base_str bytes, why;
  fixture f = {0};
  results found;
  base_arena_init(&arena, NULL);
  if (base_file_read(&arena, bundle, &bytes, &why) != BASE_OK) return 2;
  double start = now_ms();
  fathom_executable *executable;
  if (fathom_context_create(NULL, &f.context) != FATHOM_OK ||
      fathom_executable_load(f.context, bytes.data, bytes.length, NULL, &executable) != FATHOM_OK) {
    fprintf(stderr, "%s\n", fathom_error_text());
    return 3;
  }
  double loaded = now_ms();
  run(executable, &found);
  double ran = now_ms();
  printf("loaded in %.3f ms, first run in %.3f ms\n", loaded - start, ran - loaded);
  if (is_mapped("libfathom-cpu") || is_mapped("LLVM")) return 4;
  fathom_executable_destroy(executable);
  fathom_context_destroy(f.context);
  bool written = base_file_write(&arena, results_path, &found, sizeof found, &why) == BASE_OK;
  base_arena_reset(&arena);
  return written ? 0 : 5;
}

static void loads_without_llvm(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  base_arena arena;
  base_str why, found;
  char bundle[] = "/tmp/fathom-bundle-XXXXXX", output[] = "/tmp/fathom-results-XXXXXX";
  close(mkstemp(bundle));
  close(mkstemp(output));
  base_arena_init(&arena, NULL);
  assert_int_equal(base_file_write(&arena, bundle, f->bundle.data, f->bundle.length, &why),
                   BASE_OK);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    setenv("FATHOM_EXPECT_CACHED", "1", 1);
    setenv("FATHOM_CACHE", "", 1);
    execl("/proc/self/exe", "test_bundle_api", "load", bundle, output, (char *)NULL);
    _exit(127);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  fathom_executable *compiled;
  results expected;
  assert_int_equal(fathom_compile(f->context, f->graph, NULL, &compiled), FATHOM_OK);
  run(compiled, &expected);
  fathom_executable_destroy(compiled);
  assert_int_equal(base_file_read(&arena, output, &found, &why), BASE_OK);
  assert_int_equal(found.length, sizeof expected);
  assert_memory_equal(found.data, &expected, sizeof expected);
  unlink(bundle);
  unlink(output);
  base_arena_reset(&arena);
}

// ---- numbers of rows ----------------------------------------------------------------------------

// One schedule for few rows and for more, and another one for many.
static fathom_status make_variants(api_call *call, void *opaque) {
  static const struct {
    int64_t rows;
    const char *schedule;
  } wanted[] = {{1, "rows=4"}, {16, NULL}, {256, "rows=32"}};
  fixture *f = opaque;
  fathom_executable *executable;
  api_request request;
  assert_true(api_request_read(call, NULL, &request));
  request.cg.portable = true;
  const cg_target *target = api_codegen(call, API_CPU);
  const ir_graph *lowered = api_lower(call, f->graph, &request);
  assert_non_null(lowered);
  api_executable_begin(call, API_CPU, BASE_STR("site"), &executable);
  executable->variants = base_new_array(&executable->arena, api_variant, 3);
  for (uint32_t i = 0; i < 3; i++) {
    api_variant *variant = &executable->variants[i];
    if (wanted[i].schedule == NULL) {
      *variant = variant[-1];
    } else {
      request.cg.schedule = wanted[i].schedule;
      request.cg.schedule_source = "tuned";
      variant->artefact = target->compile(&call->arena, lowered, &request.cg, &call->diag);
      assert_non_null(variant->artefact);
    }
    variant->rows = wanted[i].rows;
    executable->variant_count++;
  }
  api_executable_complete(executable);
  base_text text = {.arena = &call->arena};
  api_bundle_begin(&text);
  assert_true(api_bundle_add(call, &text, "first", executable));
  assert_true(api_bundle_add(call, &text, "second", executable));
  rt_bundle_end(&text);
  fathom_executable_destroy(executable);
  fathom_text_destroy(&f->bundle);
  return api_text_out(&f->bundle, base_text_str(&text));
}

static fathom_status load_second(api_call *call, void *opaque) {
  fixture *f = opaque;
  rt_bundle bundle;
  base_str bytes = {f->bundle.data, f->bundle.length};
  assert_true(rt_bundle_open(&call->arena, bytes, &bundle, &call->diag));
  base_str maker = rt_bundle_maker(&bundle);
  assert_memory_equal(maker.data, "Fathom ", 7);
  fathom_executable *executable;
  if (!api_bundle_load(call, &bundle, "second", API_CPU, "", &executable)) return FATHOM_INVALID;
  api_object_keep(executable);
  f->executable = executable;
  return FATHOM_OK;
}

static fathom_status load_third(api_call *call, void *opaque) {
  fixture *f = opaque;
  rt_bundle bundle;
  fathom_executable *executable;
  base_str bytes = {f->bundle.data, f->bundle.length};
  assert_true(rt_bundle_open(&call->arena, bytes, &bundle, &call->diag));
  assert_false(api_bundle_load(call, &bundle, "third", API_CPU, "", &executable));
  return FATHOM_OK; // the report decides
}

static void keeps_code_for_each_number_of_rows(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  assert_int_equal(api_call_run(f->context, make_variants, f), FATHOM_OK);
  if (api_call_run(f->context, load_second, f) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  const fathom_executable *e = f->executable;
  assert_int_equal(e->variant_count, 3);
  assert_int_equal(e->variants[1].rows, 16);
  assert_ptr_equal(e->variants[0].artefact, e->variants[1].artefact);
  assert_ptr_not_equal(e->variants[1].artefact, e->variants[2].artefact);
  assert_non_null(strstr(api_artefact_for(e, 20)->schedule, "rows=4"));
  assert_non_null(strstr(api_artefact_for(e, 1000)->schedule, "rows=32"));
  assert_string_equal(e->artefact->schedule_source, "tuned");
  results found;
  run(e, &found);
  fathom_executable *none;
  assert_int_equal(load(f, f->bundle.data, f->bundle.length, NULL, &none), FATHOM_INVALID);
  assert_says("several graphs, 'first' and 'second'");
  assert_int_equal(api_call_run(f->context, load_third, f), FATHOM_UNSUPPORTED);
  assert_says("no code of 'third' for the cpu: it has none");
  fathom_executable_destroy(f->executable);
}

// ---- memory -------------------------------------------------------------------------------------

static void any_allocation_may_fail(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  memory m = {.left = -1};
  fathom_context_options options = FATHOM_INIT(options);
  memory_use(&m, &options);
  fathom_context *context;
  assert_int_equal(fathom_context_create(&options, &context), FATHOM_OK);
  const long before = m.held;
  fathom_status status = FATHOM_MEMORY;
  long failures = 0;
  for (long n = 0; status != FATHOM_OK; n++) {
    fathom_executable *executable;
    m.left = n;
    status = fathom_executable_load(context, f->bundle.data, f->bundle.length, NULL, &executable);
    if (status != FATHOM_OK) assert_int_equal(status, FATHOM_MEMORY);
    failures += status != FATHOM_OK;
    fathom_executable_destroy(executable);
    assert_int_equal(m.held, before);
  }
  assert_true(failures > 3);
  m.left = -1;
  fathom_context_destroy(context);
  assert_int_equal(m.held, 0);
}

// ---- damage -------------------------------------------------------------------------------------

static void refuses_every_truncation(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_executable *executable;
  for (size_t length = 0; length < f->bundle.length; length++) {
    assert_int_equal(load(f, f->bundle.data, length, NULL, &executable), FATHOM_INVALID);
    assert_null(executable);
  }
  assert_says("cut off");
}

static void refuses_every_flipped_bit(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_executable *executable;
  for (size_t i = 0; i < f->bundle.length; i++) {
    const char old = f->bundle.data[i];
    f->bundle.data[i] = (char)(old ^ (1 << i % 8));
    fathom_status status = load(f, f->bundle.data, f->bundle.length, NULL, &executable);
    f->bundle.data[i] = old;
    // The version: a newer one is not damage.
    assert_true(status == FATHOM_INVALID || (i / 4 == 2 && status == FATHOM_UNSUPPORTED));
    assert_null(executable);
  }
}

static void refuses_a_newer_version(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_executable *executable;
  f->bundle.data[8]++;
  assert_int_equal(load(f, f->bundle.data, f->bundle.length, NULL, &executable),
                   FATHOM_UNSUPPORTED);
  assert_says("format version 2, this Fathom reads up to 1");
  f->bundle.data[8]--;
}

// A sound digest over contents that are not: readers must not rely on it.
static void survives_any_contents(void **state) {
  enum { TRIALS = 4000 };
  fixture *f = *state;
  NEEDS_CPU(f);
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  rt_bundle bundle;
  base_str sound = {f->bundle.data, f->bundle.length};
  assert_true(rt_bundle_open(&arena, sound, &bundle, &diag));
  uint64_t random = 11;
  uint32_t refused = 0;
  for (int i = 0; i < TRIALS; i++) {
    base_text out = {.arena = base_arena_within(&arena)};
    rt_section code = bundle.sections[1];
    base_str contents = base_str_copy(out.arena, code.contents);
    // Of the first kilobyte, where the program is described.
    for (int j = 0; j < 1 + i % 3; j++) {
      size_t at = base_random(&random) % (contents.length < 1200 ? contents.length : 1200);
      ((char *)contents.data)[at] = (char)base_random(&random);
    }
    if (i % 5 == 0) contents.length = base_random(&random) % contents.length;
    rt_bundle_begin(&out, "a test");
    rt_bundle_add(&out, code.kind, code.name, contents);
    rt_bundle_end(&out);
    fathom_executable *executable;
    refused += load(f, out.data, out.length, NULL, &executable) != FATHOM_OK;
    fathom_executable_destroy(executable);
    base_arena_reset(out.arena);
  }
  assert_true(refused > TRIALS / 2);
  base_arena_reset(&arena);
}

// ---- wrong machines -----------------------------------------------------------------------------

// The bundle with another list of features, as if it had been made for another CPU.
static void with_features(fixture *f, const char *features, fathom_text *out) {
  base_arena arena;
  base_diag diag;
  rt_bundle bundle;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  assert_true(rt_bundle_open(&arena, (base_str){f->bundle.data, f->bundle.length}, &bundle, &diag));
  rt_archive in = {.arena = &arena, .in = bundle.sections[1].contents};
  base_text contents = {.arena = &arena}, made = {.arena = &arena};
  rt_archive to = {.out = &contents};
  const char *head[5];
  for (int i = 0; i < 5; i++) {
    rt_archive_text(&in, &head[i]);
    if (i == 3) head[i] = features;
    rt_archive_text(&to, &head[i]);
  }
  base_text_append(&contents, in.in.data + in.at, in.in.length - in.at);
  rt_bundle_begin(&made, "a test");
  rt_bundle_add(&made, bundle.sections[1].kind, bundle.sections[1].name, base_text_str(&contents));
  rt_bundle_end(&made);
  *out = (fathom_text){malloc(made.length), made.length};
  memcpy(out->data, made.data, made.length);
  base_arena_reset(&arena);
}

static void refuses_another_cpu(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_executable *executable;
  fathom_text other;
  // No processor has both.
  with_features(f, "avx2,tbm,avx10.1-512", &other);
  assert_int_equal(load(f, other.data, other.length, NULL, &executable), FATHOM_UNSUPPORTED);
  assert_says("this processor lacks: tbm, avx10.1-512");
  assert_says("compiled for the CPU");
  assert_says("--mcpu");
  fathom_text_destroy(&other);
  with_features(f, "avx2,warp-drive", &other);
  assert_int_equal(load(f, other.data, other.length, NULL, &executable), FATHOM_UNSUPPORTED);
  assert_says("warp-drive");
  fathom_text_destroy(&other);
}

static void makes_code_for_other_cpus(void **state) {
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_text amd;
  fathom_executable *executable;
  make_bundle(f, "bdver4", &amd);
  if (load(f, amd.data, amd.length, NULL, &executable) != FATHOM_OK) {
    assert_says("compiled for the CPU bdver4");
    assert_says("xop");
  }
  fathom_executable_destroy(executable);
  fathom_text_destroy(&amd);
}

static void refuses_other_targets(void **state) {
  static const char *const interp[] = {"interp"}, *const wrong[] = {"gpu"};
  fixture *f = *state;
  NEEDS_CPU(f);
  fathom_text out;
  fathom_executable *executable;
  assert_int_equal(fathom_executable_save(f->context, f->graph, interp, 1, NULL, &out),
                   FATHOM_UNSUPPORTED);
  assert_says("bundles hold no code for interp");
  assert_int_equal(fathom_executable_save(f->context, f->graph, wrong, 1, NULL, &out),
                   FATHOM_INVALID);
  assert_int_equal(fathom_executable_save(f->context, f->graph, wrong, 0, NULL, &out),
                   FATHOM_INVALID);
  assert_int_equal(load(f, f->bundle.data, f->bundle.length, "interp", &executable),
                   FATHOM_UNSUPPORTED);
  assert_int_equal(load(f, "graph", 5, NULL, &executable), FATHOM_INVALID);
  assert_says("no bundle");
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "load") == 0) return load_in_fresh_process(argv[2], argv[3]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(loaded_runs_as_compiled, setup, teardown),
      cmocka_unit_test_setup_teardown(tells_what_it_is, setup, teardown),
      cmocka_unit_test_setup_teardown(loads_without_llvm, setup, teardown),
      cmocka_unit_test_setup_teardown(keeps_code_for_each_number_of_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(any_allocation_may_fail, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_every_truncation, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_every_flipped_bit, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_a_newer_version, setup, teardown),
      cmocka_unit_test_setup_teardown(survives_any_contents, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_another_cpu, setup, teardown),
      cmocka_unit_test_setup_teardown(makes_code_for_other_cpus, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_other_targets, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
