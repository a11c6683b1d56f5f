// What the real NVRTC makes, where there is one, against the driver's double: its cubins load where
// they should, whole and never damaged, and its PTX loads where they do not. Nothing is run.
#include "codegen/cuda/nvrtc.h"
#include "double/cuda_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEP = 61 };

static const char text[] =
    "struct args { const float *x; float *y; long long n; };\n"
    "extern \"C\" __global__ void __launch_bounds__(64) scale(const __grid_constant__ args a) {\n"
    "  long long i = blockIdx.x * 64ll + threadIdx.x;\n"
    "  if (i < a.n) a.y[i] = 2 * a.x[i];\n"
    "}\n";

static bool compile(cuda_fixture *f, const char *arch, cuda_binary *out) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(&f->arena, &why);
  if (nvrtc == NULL) return false;
  const cuda_compile_options options = {.arch = arch, .workers = 1};
  const cuda_unit unit = {.name = "scale.cu", .text = base_str_from(text)};
  if (!cuda_compile(&f->arena, nvrtc, &options, &unit, 1, out, &f->diag))
    fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  return true;
}

static rt_code *load(cuda_fixture *f, base_str cubin, base_str ptx) {
  const rt_image image = {.cubin = cubin, .ptx = ptx};
  rt_code *code = NULL;
  f->device->ops->load(f->device, &image, &code, &f->diag);
  return code;
}

static void expect_kernel(cuda_fixture *f, rt_code *code, const char *form) {
  rt_function *function;
  if (code == NULL) fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  assert_string_equal(rt_cuda_code_form(code), form);
  assert_int_equal(f->device->ops->find(f->device, code, "scale", 64, 0, &function, NULL, &f->diag),
                   BASE_OK);
  f->device->ops->unload(f->device, code);
}

static void test_images(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_binary hopper, ampere;
  const base_str none = BASE_STR("");
  cuda_setup_device(&f);
  if (!compile(&f, "sm_90a", &hopper)) {
    cuda_teardown(&f);
    skip();
  }
  compile(&f, "sm_80", &ampere);
  expect_kernel(&f, load(&f, hopper.cubin, none), "cubin");
  expect_kernel(&f, load(&f, none, ampere.ptx), "ptx");
  expect_kernel(&f, load(&f, ampere.cubin, ampere.ptx), "ptx");

  const int calls = cuda_double()->calls("cuModuleLoadDataEx");
  for (size_t length = 4; length < hopper.cubin.length; length += STEP) {
    char *cut = malloc(length); // so that address sanitizer knows its end
    memcpy(cut, hopper.cubin.data, length);
    assert_null(load(&f, (base_str){cut, length}, none));
    assert_non_null(strstr(cuda_message(&f), "the machine code is damaged"));
    cuda_clear(&f);
    free(cut);
  }
  assert_int_equal(cuda_double()->calls("cuModuleLoadDataEx"), calls);

  cuda_double()->set_version(11080); // a driver from before this PTX
  assert_null(load(&f, none, hopper.ptx));
  assert_non_null(strstr(cuda_message(&f), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"));
  cuda_double()->set_version(13000);
  cuda_teardown(&f);
}

int main(void) {
  unsetenv("FATHOM_LIBNVRTC");
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_images)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
