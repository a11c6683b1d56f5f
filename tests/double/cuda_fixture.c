// cuda_fixture: see cuda_fixture.h.
#include "double/cuda_fixture.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "double/cubin_writer.h"

// ---- the double ---------------------------------------------------------------------------------

const char *double_path(const char *name) {
  static char path[4096 + 64];
  const ssize_t length = readlink("/proc/self/exe", path, 4096);
  assert_true(length > 0 && length < 4096);
  path[length] = 0;
  char *file = strrchr(path, '/') + 1;
  snprintf(file, sizeof path - (size_t)(file - path), "%s", name);
  return path;
}

const double_control *cuda_double(void) {
  static const double_control *control;
  if (control) return control;
  void *library = dlopen(double_path("libcuda-double.so"), RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail_msg("%s", dlerror());
  control = dlsym(library, DOUBLE_CUDA_SYMBOL);
  assert_non_null(control);
  setenv("FATHOM_LIBCUDA", double_path("libcuda-double.so"), 1);
  return control;
}

// ---- a device -----------------------------------------------------------------------------------

void cuda_setup(cuda_fixture *f) {
  *f = (cuda_fixture){.device = NULL};
  base_arena_init(&f->arena, NULL);
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
}

void cuda_setup_device(cuda_fixture *f) {
  cuda_double();
  cuda_setup(f);
  if (rt_cuda_device_create(0, &f->device, &f->diag) != BASE_OK)
    fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
}

void cuda_teardown(cuda_fixture *f) {
  if (f->device) f->device->ops->destroy(f->device);
  base_arena_reset(&f->arena);
  const double_counts counts = cuda_double()->counts();
  assert_string_equal(cuda_double()->violation(), "");
  assert_int_equal(counts.violations, 0);
  assert_int_equal(counts.contexts, 0);
  assert_int_equal(counts.modules, 0);
  assert_int_equal(counts.memories, 0);
  assert_int_equal(counts.events, 0);
  assert_int_equal(counts.depth, 0);
}

void cuda_clear(cuda_fixture *f) {
  base_diag_init(&f->diag, &f->arena, BASE_STR(""), BASE_STR(""));
}

static const base_report *only_report(cuda_fixture *f) {
  assert_int_equal(f->diag.reports.count, 1);
  return &f->diag.reports.data[0];
}

const char *cuda_message(cuda_fixture *f) {
  return base_str_copy(&f->arena, only_report(f)->message).data;
}

const char *cuda_hint(cuda_fixture *f) {
  return base_str_copy(&f->arena, only_report(f)->hint).data;
}

// ---- images -------------------------------------------------------------------------------------

base_str fixture_cubin(base_arena *arena, int arch, const char *kernel) {
  const cubin_kernel k = {.name = base_str_from(kernel), .registers = 32, .max_threads = 224};
  return cubin_write(arena, arch, &k, 1, BASE_STR(""));
}

base_str fixture_ptx(base_arena *arena, const char *version, int target, const char *kernel,
                     size_t parameter_bytes) {
  return base_str_format(
      arena,
      "//\n.version %s\n.target sm_%d\n.address_size 64\n"
      ".visible .entry %s(\n\t.param .align 8 .b8 %s_param_0[%zu]\n)\n{\n\tret;\n}\n",
      version, target, kernel, kernel, parameter_bytes);
}
