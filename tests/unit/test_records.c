// The public calls about records of tuning, where the program does not reach: arguments that are
// wrong, structs of other sizes, and memory that runs out at any allocation.
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
#include "support/memory.h"

static char records_file[512], folder[64];

static int set_up(void **state) {
  (void)state;
  const char *source = getenv("FATHOM_SOURCE_DIR");
  snprintf(records_file, sizeof records_file, "%s/tests/lit/cli/inputs/records.yaml",
           source ? source : ".");
  strcpy(folder, "/tmp/fathom-test-records-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

// ---- memory -------------------------------------------------------------------------------------

static fathom_context *open_context(memory *m) {
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = folder;
  memory_use(m, &options);
  fathom_context *context = NULL;
  if (fathom_context_create(&options, &context) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  return context;
}

// ---- calls --------------------------------------------------------------------------------------

typedef fathom_status call(fathom_context *context, fathom_text *out);

static fathom_status look(fathom_context *context, fathom_text *out, bool full, int json) {
  fathom_records_options options = FATHOM_INIT(options);
  options.file = records_file;
  options.json = json;
  return (full ? fathom_records_show : fathom_records_list)(context, &options, out, NULL);
}

static fathom_status list(fathom_context *context, fathom_text *out) {
  return look(context, out, false, 0);
}

static fathom_status show(fathom_context *context, fathom_text *out) {
  return look(context, out, true, 0);
}

static fathom_status show_json(fathom_context *context, fathom_text *out) {
  return look(context, out, true, 1);
}

static fathom_status validate(fathom_context *context, fathom_text *out) {
  fathom_records_validation found = FATHOM_INIT(found);
  fathom_status status = fathom_records_validate(context, records_file, &found, out);
  if (status == FATHOM_OK) assert_int_equal(found.records, 2);
  if (status == FATHOM_OK) assert_int_equal(found.problems, 0);
  return status;
}

static void append_choice(void *user, const fathom_choice *choice) {
  *(uint32_t *)user += strcmp(choice->source, "default") == 0 && choice->schedule[0] != 0;
}

static fathom_status explain(fathom_context *context, fathom_text *out) {
  static const char text[] = "graph @mix(%bank: f32[N=2, T, D=64], %weights: f32[N]) {\n"
                             "  %h = weighted_sum %weights, %bank over N : f32[T, D]\n"
                             "  return %h\n"
                             "}\n";
  fathom_compile_options options = FATHOM_INIT(options);
  fathom_module *module = NULL;
  fathom_graph *graph;
  uint32_t kernels = 0;
  (void)out;
  options.target = "cuda:sm_80"; // for which nothing has to be installed
  fathom_status status = fathom_parse(context, text, strlen(text), NULL, &module);
  if (status == FATHOM_OK) status = fathom_module_graph(module, NULL, &graph);
  if (status == FATHOM_OK)
    status = fathom_explain(context, graph, &options, 7, append_choice, &kernels);
  if (status == FATHOM_OK) assert_int_equal(kernels, 1);
  if (status == FATHOM_OK)
    assert_int_equal(fathom_explain(context, graph, &options, -1, append_choice, &kernels),
                     FATHOM_INVALID);
  if (status == FATHOM_OK)
    assert_int_equal(fathom_explain(context, graph, &options, 0, NULL, &kernels), FATHOM_INVALID);
  fathom_module_destroy(module);
  return status;
}

static void test_every_allocation_may_fail(void **state) {
  (void)state;
  static call *const calls[] = {list, show, show_json, validate, explain};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    fathom_status status = FATHOM_MEMORY;
    long failures = 0;
    for (long n = 0; status != FATHOM_OK; n++) {
      memory m = {.left = -1};
      fathom_context *context = open_context(&m);
      const long before = m.held;
      fathom_text out = {0};
      m.left = n;
      status = calls[i](context, &out);
      if (status != FATHOM_OK) {
        assert_int_equal(status, FATHOM_MEMORY);
        assert_null(out.data);
        failures++;
      }
      // Nothing of the call is left, but what a context keeps of the records that it has read.
      if (calls[i] != explain) assert_int_equal(m.held, before);
      fathom_text_destroy(&out);
      fathom_context_destroy(context);
      assert_int_equal(m.held, 0);
    }
    assert_true(failures > 0);
  }
}

// ---- arguments ----------------------------------------------------------------------------------

static void assert_refused(fathom_status status, const char *why) {
  assert_int_equal(status, FATHOM_INVALID);
  if (!strstr(fathom_error_text(), why)) fail_msg("expected '%s': %s", why, fathom_error_text());
}

static void test_arguments(void **state) {
  (void)state;
  fathom_context *context = open_context(NULL);
  fathom_text out, warnings = {.length = 7};
  fathom_records_options options = FATHOM_INIT(options);
  assert_refused(fathom_records_list(NULL, &options, &out, NULL), "'context' is NULL");
  assert_refused(fathom_records_list(context, &options, NULL, NULL), "'out' is NULL");
  assert_refused(fathom_records_show(context, &options, NULL, NULL), "'out' is NULL");
  options.size = 8;
  assert_refused(fathom_records_list(context, &options, &out, &warnings), "options.size is 8");
  assert_null(out.data);
  assert_int_equal(warnings.length, 0);
  fathom_records_merged merged = {.size = 8};
  assert_refused(fathom_records_merge(context, records_file, &merged, NULL), "merged.size is 8");
  assert_refused(fathom_records_merge(context, NULL, &merged, NULL), "'file' is NULL");
  fathom_records_validation found = {.size = 0};
  assert_refused(fathom_records_validate(context, NULL, &found, &out), "validation.size is 0");
  assert_refused(fathom_records_export(context, NULL, NULL), "'out' is NULL");
  fathom_context_destroy(context);
}

static void test_what_is_to_go_has_to_be_said(void **state) {
  (void)state;
  static const char *const wrong[] = {"",
                                      "2026",
                                      "2026-11-3",
                                      "2026-00-10",
                                      "2026-13-01",
                                      "2026-01-00",
                                      "2026-01-32",
                                      "2026/01/01",
                                      "2026-01-01T24:00:00Z",
                                      "yesterday!",
                                      "2026-01-01T00:00:00"};
  fathom_context *context = open_context(NULL);
  fathom_text out = {0};
  uint32_t pruned = 9;
  fathom_records_prune_options options = FATHOM_INIT(options);
  assert_refused(fathom_records_prune(context, NULL, &pruned, &out, NULL), "'options' is NULL");
  assert_refused(fathom_records_prune(context, &options, &pruned, &out, NULL), "nothing is named");
  assert_int_equal(pruned, 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    options.before = wrong[i];
    assert_refused(fathom_records_prune(context, &options, &pruned, &out, NULL), "is no date");
  }
  fathom_context_destroy(context);
}

static void test_structs_of_a_later_version(void **state) {
  (void)state;
  fathom_context *context = open_context(NULL);
  struct {
    fathom_records_validation known;
    uint64_t more;
  } later = {{.size = sizeof later}, 77};
  fathom_text out = {0};
  assert_int_equal(fathom_records_validate(context, records_file, &later.known, &out), FATHOM_OK);
  assert_int_equal(later.known.files, 1);
  assert_int_equal(later.known.records, 2);
  assert_int_equal(later.more, 0);
  fathom_text_destroy(&out);
  fathom_context_destroy(context);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(every_allocation_may_fail),
      TEST(arguments),
      TEST(what_is_to_go_has_to_be_said),
      TEST(structs_of_a_later_version),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
