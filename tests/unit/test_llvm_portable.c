// Objects as code that lies anywhere: what is filled in, and what is refused by its name; and the table
// of CPUs against what LLVM's own compiler says of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <llvm-c/IRReader.h>

#include "codegen/llvm/cpu.h"

typedef struct fixture {
  base_arena arena;
  base_diag diag;
  cpu_machine machine;
  LLVMContextRef context;
} fixture;

static int setup(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  base_arena_init(&f->arena, NULL);
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
  cpu_machine_start();
  f->context = LLVMContextCreate();
  return cpu_machine_open(&f->arena, "x86-64", &f->machine, &f->diag) ? 0 : -1;
}

static int teardown(void **state) {
  fixture *f = *state;
  LLVMContextDispose(f->context);
  base_arena_reset(&f->arena);
  free(f);
  return 0;
}

// The code of a kernel "body" in the text.
static const rt_host_image *link_text(fixture *f, const char *text) {
  char *message = NULL;
  LLVMModuleRef module;
  base_str object;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "ir");
  if (LLVMParseIRInContext(f->context, buffer, &module, &message)) fail_msg("%s", message);
  assert_true(cpu_generate(&f->arena, module, &f->machine, LLVMObjectFile, &object, &f->diag));
  cpu_kernel kernel = {.body = "body"};
  cpu_plan plan = {.kernel_count = 1, .kernels = &kernel};
  const rt_host_image *image = cpu_portable(&f->arena, object, &plan, &f->machine, &f->diag);
  LLVMDisposeModule(module);
  return image;
}

static void expect_refused(fixture *f, const char *text, const char *words) {
  assert_null(link_text(f, text));
  assert_int_equal(f->diag.status, BASE_INTERNAL);
  base_str report = base_diag_render(&f->diag);
  if (strstr(report.data, words) == NULL) fail_msg("expected '%s' in: %s", words, report.data);
}

static int call(const rt_host_image *image, int argument) {
  base_arena arena;
  base_diag diag;
  rt_host_code code;
  rt_kernel kernel;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  assert_int_equal(rt_host_code_map(image, &kernel, &code, &diag), BASE_OK);
  assert_true(kernel.prepare == NULL);
  int (*function)(int);
  memcpy(&function, &kernel.body, sizeof function);
  int result = function(argument);
  rt_host_code_unmap(&code);
  rt_host_code_unmap(&code); // once more does nothing
  return result;
}

static void reaches_constants_and_functions(void **state) {
  fixture *f = *state;
  const rt_host_image *image =
      link_text(f, "@table = internal constant [4 x i32] [i32 3, i32 5, i32 7, i32 11], align 64\n"
                   "define i32 @other(i32 %i) noinline {\n"
                   "  %p = getelementptr [4 x i32], ptr @table, i32 0, i32 %i\n"
                   "  %v = load i32, ptr %p\n  ret i32 %v\n}\n"
                   "define i32 @body(i32 %i) {\n"
                   "  %v = call i32 @other(i32 %i)\n  %w = add i32 %v, 100\n  ret i32 %w\n}\n");
  assert_non_null(image);
  assert_int_equal(image->entry_count, 1);
  assert_int_equal(call(image, 0), 103);
  assert_int_equal(call(image, 3), 111);
}

static void refuses_calls_of_others(void **state) {
  expect_refused(*state,
                 "declare float @expf(float)\n"
                 "define float @body(float %x) {\n"
                 "  %v = call float @expf(float %x)\n  ret float %v\n}\n",
                 "it calls expf");
}

static void refuses_data_that_changes(void **state) {
  expect_refused(*state,
                 "@count = global i32 1\n"
                 "define i32 @body() {\n  %v = load i32, ptr @count\n  ret i32 %v\n}\n",
                 "data that changes");
}

// A table of addresses is written when it is loaded.
static void refuses_addresses(void **state) {
  expect_refused(*state,
                 "@a = internal constant i32 1\n@table = constant [1 x ptr] [ptr @a]\n"
                 "define ptr @body() {\n  %v = load ptr, ptr @table\n  ret ptr %v\n}\n",
                 "data that changes");
}

static void refuses_what_is_missing(void **state) {
  expect_refused(*state, "define i32 @other() {\n  ret i32 1\n}\n", "lacks the function body");
}

// ---- CPUs ---------------------------------------------------------------------------------------

static bool contains(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)) != NULL; at++)
    if ((at == list || strchr(",+", at[-1])) && (at[length] == ',' || at[length] == 0)) return true;
  return false;
}

// "+avx,+avx2,..." of a CPU; "" where there is no clang.
static void ask_clang(const char *cpu, char *features, size_t room) {
  char command[256], line[8192];
  features[0] = 0;
  snprintf(command, sizeof command,
           "echo 'void f(void){}' | clang-19 -march=%s -x c - -S -emit-llvm -o - 2>/dev/null", cpu);
  FILE *pipe = popen(command, "r");
  while (fgets(line, sizeof line, pipe) != NULL) {
    const char *start = strstr(line, "\"target-features\"=\"");
    if (start == NULL) continue;
    start += strlen("\"target-features\"=\"");
    snprintf(features, room, "%.*s", (int)strcspn(start, "\""), start);
  }
  pclose(pipe);
}

static void knows_what_cpus_have(void **state) {
  static const char *const cpus[] = {
#define CPU(name, width, needs) name,
#include "codegen/llvm/cpus.def"
#undef CPU
  };
  static const char *const all[] = {
#define LEAF(name, leaf, subleaf)
#define FEATURE(name, leaf, reg, bit, state) name,
#define INERT(name)
#include "runtime/cpu_features.def"
#undef LEAF
#undef FEATURE
#undef INERT
  };
  fixture *f = *state;
  const rt_cpu none = {0};
  for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
    char features[8192];
    cpu_machine machine;
    ask_clang(cpus[i], features, sizeof features);
    if (features[0] == 0) skip();
    assert_true(cpu_machine_open(&f->arena, cpus[i], &machine, &f->diag));
    for (size_t j = 0; j < sizeof all / sizeof *all; j++)
      if (contains(features, all[j]) != contains(machine.needs, all[j]))
        fail_msg("%s: %s", cpus[i], all[j]);
    for (char *name = strtok(features, ","); name != NULL; name = strtok(NULL, ","))
      if (rt_cpu_find(&none, base_str_from(name + 1)) == RT_CPU_UNKNOWN)
        fail_msg("%s: %s is not in runtime/cpu_features.def", cpus[i], name);
  }
}

// Whatever LLVM finds here, the processor says, too.
static void agrees_with_llvm_about_this_machine(void **state) {
  fixture *f = *state;
  const rt_cpu cpu = rt_cpu_read();
  cpu_machine host;
  assert_true(cpu_machine_open(&f->arena, "host", &host, &f->diag));
  for (const char *at = host.needs; *at; at += strspn(at, ",")) {
    base_str name = {at + 1, strcspn(at, ",") - 1};
    rt_cpu_feature found = rt_cpu_find(&cpu, name);
    bool wanted = *at == '+';
    at += name.length + 1;
    if (found == RT_CPU_INERT) continue;
    if (found != (wanted ? RT_CPU_PRESENT : RT_CPU_ABSENT))
      fail_msg("%.*s: LLVM says %d, the processor %d", BASE_FMT(name), wanted, found);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(reaches_constants_and_functions, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_calls_of_others, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_data_that_changes, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_addresses, setup, teardown),
      cmocka_unit_test_setup_teardown(refuses_what_is_missing, setup, teardown),
      cmocka_unit_test_setup_teardown(knows_what_cpus_have, setup, teardown),
      cmocka_unit_test_setup_teardown(agrees_with_llvm_about_this_machine, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
