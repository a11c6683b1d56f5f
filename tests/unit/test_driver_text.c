// The whole CUDA path without a GPU: text through the NVRTC double to a cubin, the cubin through
// the driver's double into the emulator, results back through the device table.
#include "codegen/cuda/nvrtc.h"
#include "double/cuda_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 1000, THREADS = 64 };

// What stands before the marker is not C++ for the emulator's compiler, and must not reach it.
static const char text[] = "this is the prelude for devices\n"
                           "// ---- end of the device prelude\n"
                           "struct scale_args { const float *x; float *y; long long n; };\n"
                           "extern \"C\" __global__ void __launch_bounds__(64) scale(\n"
                           "    const __grid_constant__ scale_args a) {\n"
                           "  long long i = fm_block() * 64 + fm_thread();\n"
                           "  if (i >= a.n) return;\n"
                           "  fm_raw<4> v = fm_load_raw<4>(a.x + i);\n"
                           "  v.word[0] = fm_bits(2 * fm_from_bits(v.word[0]));\n"
                           "  fm_store_raw<4>(a.y + i, v);\n"
                           "}\n"
                           "FM_ENTRY(scale, scale_args)\n";

typedef struct scale_args {
  const float *x;
  float *y;
  long long n;
} scale_args;

static void use_nvrtc_double(void) {
  setenv("FATHOM_LIBNVRTC", double_path("libnvrtc-double.so"), 1);
}

static cuda_binary compile(cuda_fixture *f, const char *arch, const char *source) {
  base_str why = BASE_STR("");
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(&f->arena, &why);
  if (nvrtc == NULL) fail_msg("%.*s", BASE_FMT(why));
  const cuda_compile_options options = {.arch = arch, .workers = 1};
  const cuda_unit unit = {.name = "scale.cu", .text = base_str_from(source)};
  cuda_binary binary = {.log = BASE_STR("")};
  if (!cuda_compile(&f->arena, nvrtc, &options, &unit, 1, &binary, &f->diag))
    fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  return binary;
}

static base_status launch_scale(cuda_fixture *f, rt_function *function, const scale_args *args,
                                size_t bytes) {
  const rt_device_launch launch = {.function = function,
                                   .blocks = (args->n + THREADS - 1) / THREADS,
                                   .threads = THREADS,
                                   .cluster = 1,
                                   .parameters = args,
                                   .parameter_bytes = bytes};
  return f->device->ops->launch(f->device, NULL, &launch, &f->diag);
}

static void run_scale(cuda_fixture *f, const rt_image *image, const char *form) {
  const rt_device_ops *ops = f->device->ops;
  float x[COUNT], y[COUNT];
  void *device_x, *device_y;
  rt_code *code;
  rt_function *function;
  for (int i = 0; i < COUNT; i++)
    x[i] = (float)i;
  if (ops->load(f->device, image, &code, &f->diag) != BASE_OK)
    fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  assert_string_equal(rt_cuda_code_form(code), form);
  assert_int_equal(ops->find(f->device, code, "scale", THREADS, 0, &function, NULL, &f->diag),
                   BASE_OK);
  assert_int_equal(ops->allocate(f->device, sizeof x, &device_x, &f->diag), BASE_OK);
  assert_int_equal(ops->allocate(f->device, sizeof y, &device_y, &f->diag), BASE_OK);
  assert_int_equal(ops->copy(f->device, NULL, device_x, x, sizeof x, &f->diag), BASE_OK);
  scale_args args = {device_x, device_y, COUNT};
  if (launch_scale(f, function, &args, sizeof args) != BASE_OK)
    fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  assert_int_equal(ops->copy(f->device, NULL, y, device_y, sizeof y, &f->diag), BASE_OK);
  for (int i = 0; i < COUNT; i++)
    assert_true(y[i] == 2 * x[i]);

  // The double knows what the kernel takes, and where the memory ends.
  assert_int_equal(launch_scale(f, function, &args, sizeof args - 8), BASE_INVALID);
  cuda_clear(f);
  args.n++;
  assert_int_equal(launch_scale(f, function, &args, sizeof args), BASE_INTERNAL);
  assert_non_null(strstr(cuda_message(f), "CUDA_ERROR_LAUNCH_FAILED"));
  cuda_clear(f);
  ops->release(f->device, device_x);
  ops->release(f->device, device_y);
  ops->unload(f->device, code);
}

static void test_text_to_results(void **unused) {
  (void)unused;
  cuda_fixture f;
  use_nvrtc_double();
  cuda_setup_device(&f);
  const cuda_binary binary = compile(&f, "sm_90a", text);
  assert_int_equal(binary.kernel_count, 1);
  assert_true(base_str_equal(binary.kernels[0].name, BASE_STR("scale")));
  assert_int_equal(binary.kernels[0].max_threads, 64);
  const rt_image image = {.cubin = binary.cubin, .ptx = binary.ptx};
  run_scale(&f, &image, "cubin");
  const rt_image second = {.cubin = compile(&f, "sm_80", text).cubin, .ptx = binary.ptx};
  run_scale(&f, &second, "ptx"); // machine code of another architecture
  cuda_teardown(&f);
}

// What the emulator finds in a kernel, or its compiler in the text, is the driver's error.
static void test_faults(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const rt_image image = {.ptx = BASE_STR(DOUBLE_TEXT_MAGIC "this is not C++")};
  rt_code *code;
  assert_int_equal(f.device->ops->load(f.device, &image, &code, &f.diag), BASE_UNSUPPORTED);
  assert_non_null(strstr(cuda_message(&f), "CUDA_ERROR_INVALID_IMAGE"));
  assert_non_null(strstr(cuda_message(&f), "the C++ compiler refuses"));
  cuda_teardown(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text_to_results),
      cmocka_unit_test(test_faults),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
