// Every variant, for several CPUs: what a bundle gives equals what compiling gives, bit by bit.
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "fathom.h"

enum { ROWS = 5, MOST_TENSORS = 32 };

// What axes that a file leaves open are here; those that are not named stay dynamic.
static const struct {
  const char *axis;
  int64_t size;
} sizes[] = {{"D", 72}, {"N", 3}, {"S", 5}, {"B", 2}, {"H", 4}, {"R", 24}, {"M", 9}};

typedef struct tensors {
  uint32_t count, params;
  fathom_tensor_info infos[MOST_TENSORS];
  DLTensor views[MOST_TENSORS];
  fathom_arg args[MOST_TENSORS];
  size_t bytes[MOST_TENSORS];
} tensors;

static void lay_out(tensors *t, uint32_t i) {
  fathom_tensor_info *info = &t->infos[i];
  size_t elements = 1;
  for (uint32_t j = 0; j < info->rank; j++) {
    if (info->sizes[j] == FATHOM_DYNAMIC) info->sizes[j] = ROWS;
    elements *= (size_t)info->sizes[j];
  }
  static const DLDataType dtypes[] = {[FATHOM_F32] = {kDLFloat, 32, 1},
                                      [FATHOM_BF16] = {kDLBfloat, 16, 1},
                                      [FATHOM_F16] = {kDLFloat, 16, 1},
                                      [FATHOM_F8E4M3] = {kDLUInt, 8, 1}};
  const DLDataType dtype = dtypes[info->dtype];
  t->bytes[i] = elements * dtype.bits / 8;
  t->views[i] = (DLTensor){.data = aligned_alloc(64, (t->bytes[i] + 64) / 64 * 64),
                           .device = {kDLCPU, 0},
                           .ndim = (int32_t)info->rank,
                           .dtype = dtype,
                           .shape = info->sizes};
  t->args[i] = (fathom_arg){.name = info->name, .tensor = &t->views[i]};
}

// Numbers of either sign around 1, which is 3f80 in bf16 and in the upper half of f32; 3c00 in f16.
static void fill(tensors *t, uint32_t i) {
  uint64_t random = 100 + i;
  uint16_t *halves = t->views[i].data;
  for (size_t j = 0; j < t->bytes[i] / 2; j++) {
    uint16_t bits = (uint16_t)base_random(&random);
    uint16_t one = t->infos[i].dtype == FATHOM_F16 ? 0x3800 : 0x3f00;
    bool mantissa = t->infos[i].dtype == FATHOM_F32 && j % 2 == 0;
    halves[j] = mantissa ? bits : (uint16_t)(one + (bits & 0x80ff));
  }
}

static void make_tensors(tensors *t, const fathom_executable *executable) {
  memset(t, 0, sizeof *t);
  t->params = fathom_executable_param_count(executable);
  t->count = t->params + fathom_executable_result_count(executable);
  assert_in_range(t->count, 1, MOST_TENSORS);
  for (uint32_t i = 0; i < t->count; i++) {
    t->infos[i].size = sizeof t->infos[i];
    fathom_status status = i < t->params
                               ? fathom_executable_param(executable, i, &t->infos[i])
                               : fathom_executable_result(executable, i - t->params, &t->infos[i]);
    assert_int_equal(status, FATHOM_OK);
    lay_out(t, i);
    if (i < t->params)
      fill(t, i);
    else
      memset(t->views[i].data, 0x5a, t->bytes[i]);
  }
}

static void run(tensors *t, const fathom_executable *executable) {
  size_t bytes;
  make_tensors(t, executable);
  if (fathom_workspace_size(executable, t->args, t->count, NULL, &bytes) != FATHOM_OK)
    fail_msg("%s", fathom_error_text());
  void *workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (fathom_run(executable, t->args, t->count, workspace, bytes, NULL) != FATHOM_OK)
    fail_msg("%s", fathom_error_text());
  free(workspace);
}

static void free_tensors(tensors *t) {
  for (uint32_t i = 0; i < t->count; i++)
    free(t->views[i].data);
}

// False: it does not compile.
static bool compare(fathom_context *context, const fathom_graph *graph, const char *cpu) {
  static const char *const targets[] = {"cpu"};
  fathom_compile_options options = FATHOM_INIT(options);
  fathom_executable *compiled, *loaded;
  fathom_text bundle;
  tensors a, b;
  options.cpu = cpu;
  if (fathom_compile(context, graph, &options, &compiled) != FATHOM_OK) return false;
  if (fathom_executable_save(context, graph, targets, 1, &options, &bundle) != FATHOM_OK ||
      fathom_executable_load(context, bundle.data, bundle.length, NULL, &loaded) != FATHOM_OK)
    fail_msg("%s, %s: %s", fathom_graph_name(graph), cpu, fathom_error_text());
  run(&a, compiled);
  run(&b, loaded);
  for (uint32_t i = 0; i < a.count; i++)
    if (memcmp(a.views[i].data, b.views[i].data, a.bytes[i]) != 0)
      fail_msg("%s, %s: '%s' differs", fathom_graph_name(graph), cpu, a.infos[i].name);
  free_tensors(&a);
  free_tensors(&b);
  fathom_executable_destroy(compiled);
  fathom_executable_destroy(loaded);
  fathom_text_destroy(&bundle);
  return true;
}

// Does it compile for this CPU?
static bool compare_file(fathom_context *context, const char *path, uint32_t number) {
  static const char *const cpus[] = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  base_arena arena;
  base_str text, why;
  fathom_module *module;
  fathom_graph *graph;
  base_arena_init(&arena, NULL);
  assert_int_equal(base_file_read(&arena, path, &text, &why), BASE_OK);
  assert_int_equal(fathom_parse(context, text.data, text.length, path, &module), FATHOM_OK);
  assert_int_equal(fathom_module_graph(module, NULL, &graph), FATHOM_OK);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    fathom_graph_bind(graph, sizes[i].axis, sizes[i].size); // where it has it, and leaves it open
  bool compared = compare(context, graph, "host");
  compare(context, graph, cpus[number % 4]); // this machine may have less
  fathom_module_destroy(module);
  base_arena_reset(&arena);
  return compared;
}

static void loaded_equals_compiled(void **state) {
  (void)state;
  glob_t found;
  char pattern[4096];
  fathom_context *context;
  fathom_context_options options = FATHOM_INIT(options);
  options.threads = 1;
  assert_int_equal(fathom_context_create(&options, &context), FATHOM_OK);
  snprintf(pattern, sizeof pattern, "%s/tests/variants/*.fir", getenv("FATHOM_SOURCE_DIR"));
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  size_t compared = 0;
  for (size_t i = 0; i < found.gl_pathc; i++)
    compared += compare_file(context, found.gl_pathv[i], (uint32_t)i);
  if (compared > 0) assert_int_equal(compared, found.gl_pathc); // 0: no libfathom-cpu
  globfree(&found);
  fathom_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(loaded_equals_compiled)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
