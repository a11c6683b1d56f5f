// The device table over libcuda, against the driver's double: what it gives back, what it refuses
// and in which words, whose context is current, what it may do while a stream is captured.
#include "double/cuda_fixture.h"

#include <elf.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define assert_in(text, part)                                                                      \
  do {                                                                                             \
    if (strstr((text), (part)) == NULL) fail_msg("\"%s\" is not in \"%s\"", (part), (text));       \
  } while (0)

enum { PARAMETERS = 24, THREADS = 224 };

static CUstream const some_stream = (CUstream)0x1000;

// ---- opening ------------------------------------------------------------------------------------

// Before the first success, which is remembered.
static void test_not_there(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup(&f);
  base_str path, why;
  rt_device *device;

  setenv("FATHOM_LIBCUDA", "/nowhere/libcuda.so", 1);
  assert_int_equal(rt_cuda_open(&f.arena, &path, &why), BASE_UNSUPPORTED);
  assert_in(why.data, "/nowhere/libcuda.so");
  assert_in(why.data, "FATHOM_LIBCUDA");
  assert_int_equal(rt_cuda_count(), 0);
  assert_int_equal(rt_cuda_version(), 0);
  assert_int_equal(rt_cuda_device_create(0, &device, &f.diag), BASE_UNSUPPORTED);
  assert_null(device);
  assert_in(cuda_message(&f), "/nowhere/libcuda.so");

  setenv("FATHOM_LIBCUDA", "libm.so.6", 1); // a library, but not the driver
  assert_int_equal(rt_cuda_open(&f.arena, &path, &why), BASE_UNSUPPORTED);
  assert_in(why.data, "libm.so.6 has no entry point cuInit");
  assert_in(why.data, "hint: ");
  cuda_double();
  cuda_teardown(&f);
}

static void test_does_not_start(void **unused) {
  (void)unused;
  static const char *const entries[] = {"cuInit", "cuDeviceGetCount", "cuDriverGetVersion"};
  static const struct {
    CUresult number;
    const char *name;
    base_status status;
  } errors[] = {
#define DRIVER_ERROR(number, name, status, fate, advice)                                           \
  {number, "CUDA_ERROR_" #name, BASE_##status},
#include "runtime/cuda/driver_error.def"
#undef DRIVER_ERROR
  };
  const double_control *c = cuda_double();
  for (size_t i = 0; i < COUNT(entries); i++)
    for (size_t e = 0; e < COUNT(errors); e++) {
      cuda_fixture f;
      cuda_setup(&f);
      base_str path, why;
      c->inject(entries[i], 1, errors[e].number, false);
      assert_int_equal(rt_cuda_open(&f.arena, &path, &why), errors[e].status);
      assert_true(c->has_failed());
      assert_in(why.data, "libcuda-double.so: ");
      assert_in(why.data, entries[i]);
      assert_in(why.data, errors[e].name);
      assert_in(why.data, "\n  hint: ");
      assert_int_equal(rt_cuda_count(), 0);
      cuda_teardown(&f);
    }
}

static void test_starts(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup(&f);
  base_str path, why;
  assert_int_equal(rt_cuda_open(&f.arena, &path, &why), BASE_OK);
  assert_in(path.data, "libcuda-double.so");
  assert_int_equal(rt_cuda_count(), 2);
  assert_int_equal(rt_cuda_version(), 13000);
  // Remembered: the variable is not looked at again.
  setenv("FATHOM_LIBCUDA", "/nowhere/libcuda.so", 1);
  assert_int_equal(rt_cuda_open(&f.arena, &path, &why), BASE_OK);
  setenv("FATHOM_LIBCUDA", double_path("libcuda-double.so"), 1);
  cuda_teardown(&f);
}

static void test_facts(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup(&f);
  rt_device_facts facts;
  assert_int_equal(rt_cuda_facts(1, &facts, &f.diag), BASE_OK);
  assert_string_equal(facts.name, "Double H100");
  assert_int_equal(facts.major, 9);
  assert_int_equal(facts.minor, 0);
  assert_int_equal(facts.multiprocessors, 132);
  assert_int_equal(facts.threads_per_block, 1024);
  assert_int_equal(facts.threads_per_multiprocessor, 2048);
  assert_int_equal(facts.blocks_per_multiprocessor, 32);
  assert_int_equal(facts.registers_per_multiprocessor, 65536);
  assert_int_equal(facts.shared_per_block, 232448);
  assert_int_equal(facts.shared_per_multiprocessor, 233472);
  assert_int_equal(facts.shared_reserved, 1024);
  assert_int_equal(facts.level2_bytes, 50 << 20);
  assert_true(facts.memory_bytes == (size_t)80 << 30);

  assert_int_equal(rt_cuda_facts(2, &facts, &f.diag), BASE_INVALID);
  assert_in(cuda_message(&f), "there is no CUDA device 2: the driver shows 2");
  cuda_teardown(&f);
}

// ---- memory and time ----------------------------------------------------------------------------

static void test_memory(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const rt_device_ops *ops = f.device->ops;
  char from[1000], to[1000];
  void *memory, *nothing;
  for (size_t i = 0; i < sizeof from; i++)
    from[i] = (char)(i * 7);
  assert_int_equal(ops->allocate(f.device, sizeof from, &memory, &f.diag), BASE_OK);
  assert_int_equal(ops->copy(f.device, some_stream, memory, from, sizeof from, &f.diag), BASE_OK);
  assert_int_equal(ops->fill(f.device, some_stream, (char *)memory + 10, 3, 20, &f.diag), BASE_OK);
  assert_int_equal(ops->copy(f.device, some_stream, to, memory, sizeof to, &f.diag), BASE_OK);
  memset(from + 10, 3, 20);
  assert_memory_equal(from, to, sizeof to);
  assert_int_equal(ops->synchronize(f.device, NULL, &f.diag), BASE_OK);

  // Only a copy that the host takes part in waits.
  const int waits = cuda_double()->calls("cuStreamSynchronize");
  assert_int_equal(ops->copy(f.device, some_stream, (char *)memory + 500, memory, 500, &f.diag),
                   BASE_OK);
  assert_int_equal(cuda_double()->calls("cuStreamSynchronize"), waits);
  assert_int_equal(ops->copy(f.device, some_stream, to, memory, sizeof to, &f.diag), BASE_OK);
  assert_int_equal(cuda_double()->calls("cuStreamSynchronize"), waits + 1);
  assert_memory_equal(to + 500, to, 500);
  void *managed = (void *)(uintptr_t)cuda_double()->managed();
  assert_int_equal(ops->copy(f.device, some_stream, managed, memory, 8, &f.diag), BASE_OK);
  assert_int_equal(cuda_double()->calls("cuStreamSynchronize"), waits + 2);

  assert_int_equal(ops->allocate(f.device, 0, &nothing, &f.diag), BASE_OK);
  assert_null(nothing);
  assert_int_equal(ops->copy(f.device, NULL, NULL, NULL, 0, &f.diag), BASE_OK);
  assert_int_equal(ops->fill(f.device, NULL, NULL, 0, 0, &f.diag), BASE_OK);
  ops->release(f.device, nothing);
  ops->release(f.device, memory);
  cuda_teardown(&f);
}

static void test_out_of_memory(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  void *memory;
  assert_int_equal(f.device->ops->allocate(f.device, (size_t)1 << 40, &memory, &f.diag),
                   BASE_MEMORY);
  assert_null(memory);
  assert_string_equal(
      cuda_message(&f),
      "cuMemAlloc could not allocate device memory: CUDA_ERROR_OUT_OF_MEMORY (2), as "
      "the double was asked to say; 1099511627776 bytes were asked for, 85899345920 "
      "of 85899345920 are free");
  assert_in(cuda_hint(&f), "free memory on the device");
  cuda_teardown(&f);
}

static void test_timer(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const rt_device_ops *ops = f.device->ops;
  rt_timer *timer;
  double microseconds = -1;
  assert_int_equal(ops->timer_create(f.device, &timer, &f.diag), BASE_OK);
  assert_int_equal(ops->timer_start(f.device, timer, some_stream, &f.diag), BASE_OK);
  assert_int_equal(ops->timer_stop(f.device, timer, some_stream, &microseconds, &f.diag), BASE_OK);
  assert_true(microseconds >= 0 && microseconds < 60e6);
  ops->timer_destroy(f.device, timer);
  ops->timer_destroy(f.device, NULL);
  cuda_teardown(&f);
}

static void expect_pointer(cuda_fixture *f, const void *pointer, size_t bytes, const char *part) {
  const base_status status = rt_cuda_check_pointer(f->device, "%x", pointer, bytes, &f->diag);
  assert_int_equal(status, part ? BASE_INVALID : BASE_OK);
  if (part) assert_in(cuda_message(f), part);
  cuda_clear(f);
}

static void test_pointers(void **unused) {
  (void)unused;
  cuda_fixture f;
  rt_device *other;
  cuda_setup_device(&f);
  char *here, *there, on_host[16];
  assert_int_equal(rt_cuda_device_create(1, &other, &f.diag), BASE_OK);
  assert_int_equal(f.device->ops->allocate(f.device, 100, (void **)&here, &f.diag), BASE_OK);
  assert_int_equal(other->ops->allocate(other, 100, (void **)&there, &f.diag), BASE_OK);
  const char *managed = (const char *)(uintptr_t)cuda_double()->managed();

  expect_pointer(&f, here, 100, NULL);
  expect_pointer(&f, here + 60, 40, NULL);
  expect_pointer(&f, managed, 100, NULL);
  expect_pointer(&f, NULL, 0, NULL);
  expect_pointer(&f, NULL, 1, "%x has no memory: its pointer is NULL");
  expect_pointer(&f, here, 101, "%x reaches 101 bytes from ");
  expect_pointer(&f, here + 60, 41, ", but its memory ends after 40");
  expect_pointer(&f, on_host, 16, "%x is memory of the host (0x");
  expect_pointer(&f, there, 100, "%x is memory of CUDA device 1, but runs on device 0");

  f.device->ops->release(f.device, here);
  other->ops->release(other, there);
  other->ops->destroy(other);
  cuda_teardown(&f);
}

// ---- code ---------------------------------------------------------------------------------------

static rt_code *load(cuda_fixture *f, base_str cubin, base_str ptx) {
  const rt_image image = {.cubin = cubin, .ptx = ptx};
  rt_code *code = NULL;
  if (f->device->ops->load(f->device, &image, &code, &f->diag) != BASE_OK) assert_null(code);
  return code;
}

static rt_function *find(cuda_fixture *f, rt_code *code, size_t shared_bytes) {
  rt_function *function = NULL;
  const base_status status =
      f->device->ops->find(f->device, code, "k", THREADS, shared_bytes, &function, NULL, &f->diag);
  if (status != BASE_OK) fail_msg("%.*s", BASE_FMT(base_diag_render(&f->diag)));
  return function;
}

static const base_str none;

static void test_forms(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const base_str ptx = fixture_ptx(&f.arena, "8.0", 80, "k", PARAMETERS);
  const struct {
    base_str cubin, ptx;
    const char *form;
  } cases[] = {
      {fixture_cubin(&f.arena, 90, "k"), none, "cubin"},
      {fixture_cubin(&f.arena, 90, "k"), ptx, "cubin"},
      {none, ptx, "ptx"},
      {fixture_cubin(&f.arena, 80, "k"), ptx, "ptx"}, // of another architecture
      {BASE_STR("\177ELF, once"), ptx, "ptx"},        // damaged
      {BASE_STR("no image at all"), ptx, "ptx"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    rt_code *code = load(&f, cases[i].cubin, cases[i].ptx);
    assert_non_null(code);
    assert_string_equal(rt_cuda_code_form(code), cases[i].form);
    find(&f, code, 0);
    f.device->ops->unload(f.device, code);
  }
  assert_int_equal(f.diag.reports.count, 0);
  f.device->ops->unload(f.device, NULL);
  cuda_teardown(&f);
}

static void expect_refused_image(cuda_fixture *f, base_str cubin, base_str ptx, const char *message,
                                 const char *hint) {
  assert_null(load(f, cubin, ptx));
  assert_int_equal(f->diag.status, BASE_UNSUPPORTED);
  assert_in(cuda_message(f), message);
  assert_in(cuda_hint(f), hint);
  cuda_clear(f);
}

static void test_refused_images(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const base_str other = fixture_cubin(&f.arena, 80, "k");
  expect_refused_image(&f, none, none, "neither machine code nor PTX", "compile them for sm_90");
  expect_refused_image(
      &f, other, none,
      "the kernels do not load on Double H100 (sm_90); with the machine code, "
      "cuModuleLoadDataEx could not load the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU "
      "(209)",
      "compile the kernels for this device");
  expect_refused_image(&f, BASE_STR("garbage"), none, "CUDA_ERROR_INVALID_IMAGE (200)",
                       "compile the kernels again");
  expect_refused_image(
      &f, other, fixture_ptx(&f.arena, "9.2", 90, "k", PARAMETERS),
      "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222), as the double was asked to say (it "
      "is PTX 9.2, the driver is of CUDA 13.0): ptxas fatal : Unsupported .version "
      "9.2",
      "update the NVIDIA driver");
  expect_refused_image(&f, none, BASE_STR(".version none"), "CUDA_ERROR_INVALID_PTX",
                       "compile the kernels again");
  cuda_teardown(&f);
}

// The driver is never given a cubin that it would read beyond its end.
static void test_truncated_cubin(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const base_str whole = fixture_cubin(&f.arena, 90, "k");
  for (size_t length = 4; length < whole.length; length++) {
    const int calls = cuda_double()->calls("cuModuleLoadDataEx");
    char *cut = malloc(length); // so that address sanitizer knows its end
    memcpy(cut, whole.data, length);
    expect_refused_image(&f, (base_str){cut, length}, none,
                         "the machine code is damaged: parts of it lie beyond its end",
                         "compile them again for sm_90");
    assert_int_equal(cuda_double()->calls("cuModuleLoadDataEx"), calls);
    free(cut);
  }
  cuda_teardown(&f);
}

// The whole length, but a table or a section that says it lies elsewhere.
static void test_damaged_cubin(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const base_str whole = fixture_cubin(&f.arena, 90, "k");
  Elf64_Ehdr header;
  memcpy(&header, whole.data, sizeof header);
  const size_t first = (size_t)header.e_shoff + sizeof(Elf64_Shdr);
  const size_t fields[] = {offsetof(Elf64_Ehdr, e_shoff), first + offsetof(Elf64_Shdr, sh_offset),
                           first + offsetof(Elf64_Shdr, sh_size)};
  const uint64_t far[] = {whole.length, UINT64_MAX, UINT64_MAX - 8};
  for (size_t i = 0; i < COUNT(fields); i++)
    for (size_t k = 0; k < COUNT(far); k++) {
      char *damaged = (char *)base_str_copy(&f.arena, whole).data;
      memcpy(damaged + fields[i], &far[k], sizeof far[k]);
      expect_refused_image(&f, (base_str){damaged, whole.length}, none,
                           "the machine code is damaged", "compile them again for sm_90");
    }
  cuda_teardown(&f);
}

static void test_find(void **unused) {
  (void)unused;
  cuda_fixture f;
  cuda_setup_device(&f);
  const rt_device_ops *ops = f.device->ops;
  rt_code *code = load(&f, none, fixture_ptx(&f.arena, "8.0", 90, "k", PARAMETERS));
  rt_function *function;
  uint32_t blocks = 0;
  assert_int_equal(ops->find(f.device, code, "k", 448, 0, &function, &blocks, &f.diag), BASE_OK);
  assert_int_equal(blocks, 4);
  assert_int_equal(ops->find(f.device, code, "k", 448, 100000, &function, &blocks, &f.diag),
                   BASE_OK);
  assert_int_equal(blocks, 2);

  assert_int_equal(ops->find(f.device, code, "other", 32, 0, &function, &blocks, &f.diag),
                   BASE_UNSUPPORTED);
  assert_null(function);
  assert_in(cuda_message(&f), "CUDA_ERROR_NOT_FOUND");
  assert_in(cuda_message(&f), "the kernel is 'other'");
  cuda_clear(&f);
  assert_int_equal(ops->find(f.device, code, "k", 2048, 0, &function, &blocks, &f.diag),
                   BASE_UNSUPPORTED);
  assert_in(cuda_message(&f), "at most 1024 threads a block here, not 2048");
  cuda_clear(&f);
  assert_int_equal(ops->find(f.device, code, "k", 32, 232449, &function, &blocks, &f.diag),
                   BASE_UNSUPPORTED);
  assert_string_equal(cuda_message(&f), "kernel 'k' needs 232449 bytes of shared memory a block, "
                                        "Double H100 has 232448");
  ops->unload(f.device, code);
  cuda_teardown(&f);
}

// ---- launching ----------------------------------------------------------------------------------

typedef struct launching {
  cuda_fixture f;
  rt_code *code;
  char parameters[PARAMETERS];
  rt_device_launch launch;
} launching;

static void setup_launch(launching *l) {
  cuda_setup_device(&l->f);
  l->code = load(&l->f, none, fixture_ptx(&l->f.arena, "8.0", 80, "k", PARAMETERS));
  memcpy(l->parameters, "these are parameters...", PARAMETERS);
  l->launch = (rt_device_launch){.function = find(&l->f, l->code, 100000),
                                 .blocks = 12,
                                 .threads = THREADS,
                                 .cluster = 1,
                                 .shared_bytes = 100000,
                                 .parameters = l->parameters,
                                 .parameter_bytes = PARAMETERS};
}

static void teardown_launch(launching *l) {
  l->f.device->ops->unload(l->f.device, l->code);
  cuda_teardown(&l->f);
}

static base_status launch(launching *l) {
  return l->f.device->ops->launch(l->f.device, some_stream, &l->launch, &l->f.diag);
}

static void test_launch(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  for (int i = 0; i < 4; i++) {
    l.launch.cluster = i & 1 ? 4 : 1;
    l.launch.programmatic = i & 2;
    assert_int_equal(launch(&l), BASE_OK);
    const double_launch last = cuda_double()->last_launch();
    assert_string_equal(last.kernel, "k");
    assert_int_equal(last.grid, 12);
    assert_int_equal(last.block, THREADS);
    assert_int_equal(last.shared_bytes, 100000);
    assert_int_equal(last.cluster, i & 1 ? 4 : 0);
    assert_int_equal(last.programmatic, (i & 2) != 0);
    assert_int_equal(last.extended, i != 0);
    assert_ptr_equal(last.stream, some_stream);
    assert_memory_equal(last.parameters, l.parameters, PARAMETERS);
  }
  teardown_launch(&l);
}

// A launch makes these calls and no others.
static void test_launch_does_nothing_else(void **unused) {
  (void)unused;
  static const char *const entries[] = {
#define DRIVER(need, name, symbol, purpose, arguments) #name,
#include "runtime/cuda/driver.def"
#undef DRIVER
  };
  static const char *const expected[] = {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuLaunchKernel",
                                         "cuCtxPopCurrent"};
  launching l;
  setup_launch(&l);
  int before[COUNT(entries)];
  for (int empty = 0; empty < 2; empty++) {
    l.launch.blocks = empty ? 0 : 12;
    for (size_t i = 0; i < COUNT(entries); i++)
      before[i] = cuda_double()->calls(entries[i]);
    assert_int_equal(launch(&l), BASE_OK);
    for (size_t i = 0; i < COUNT(entries); i++) {
      int allowed = 0;
      for (size_t k = 0; k < COUNT(expected) && !empty; k++)
        allowed += strcmp(entries[i], expected[k]) == 0;
      assert_int_equal(cuda_double()->calls(entries[i]) - before[i], allowed);
    }
  }
  teardown_launch(&l);
}

static void expect_refused_launch(launching *l, base_status status, const char *message) {
  const int launches = cuda_double()->counts().launches;
  assert_int_equal(launch(l), status);
  assert_in(cuda_message(&l->f), message);
  assert_true(strlen(cuda_hint(&l->f)) > 0);
  assert_int_equal(cuda_double()->counts().launches, launches);
  cuda_clear(&l->f);
}

static void test_refused_launches(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  const rt_device_launch good = l.launch;
  l.launch.blocks = INT64_C(1) << 31;
  expect_refused_launch(&l, BASE_INVALID,
                        "would run 2147483648 blocks, a grid has at most 2147483647");
  l.launch.blocks = -1;
  expect_refused_launch(&l, BASE_INVALID, "would run -1 blocks");
  l.launch = good;
  l.launch.threads = 1025;
  expect_refused_launch(&l, BASE_INVALID, "runs with 1 to 1024 threads a block, not 1025");
  l.launch.threads = 0;
  expect_refused_launch(&l, BASE_INVALID, "threads a block, not 0");
  l.launch = good;
  l.launch.shared_bytes = 100001;
  expect_refused_launch(&l, BASE_INVALID,
                        "prepared for 100000 bytes of shared memory a block, not 100001");
  l.launch = good;
  l.launch.parameter_bytes = 16;
  expect_refused_launch(&l, BASE_INVALID, "takes 24 bytes of parameters, not 16");
  l.launch = good;
  l.launch.cluster = 5;
  expect_refused_launch(&l, BASE_INVALID, "cannot run 12 blocks in clusters of 5");
  l.launch.cluster = 12;
  expect_refused_launch(&l, BASE_INVALID, "cannot run 12 blocks in clusters of 12");
  teardown_launch(&l);
}

static void test_older_architecture(void **unused) {
  (void)unused;
  launching l;
  cuda_double()->set_arch(80);
  setup_launch(&l);
  l.launch.programmatic = true; // a permission: means nothing here
  assert_int_equal(launch(&l), BASE_OK);
  assert_false(cuda_double()->last_launch().extended);
  l.launch.cluster = 2;
  expect_refused_launch(&l, BASE_UNSUPPORTED,
                        "needs clusters of blocks, which Double A100 (sm_80) does not have");
  teardown_launch(&l);
  cuda_double()->set_arch(90);
}

static void test_older_driver(void **unused) {
  (void)unused;
  launching l;
  const rt_cuda_api newer = rt_cuda;
  rt_cuda.cuLaunchKernelEx = NULL;
  rt_cuda.cuFuncGetParamInfo = NULL;
  setup_launch(&l);
  l.launch.programmatic = true;
  l.launch.parameter_bytes = 16; // nobody knows better
  assert_int_equal(launch(&l), BASE_OK);
  l.launch.cluster = 2;
  expect_refused_launch(&l, BASE_UNSUPPORTED, "which this driver cannot launch");
  teardown_launch(&l);
  rt_cuda = newer;
}

// Finding a kernel again with less shared memory takes nothing from who found it with more.
static void test_shared_memory_only_grows(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  rt_function *less = find(&l.f, l.code, 60000);
  assert_int_equal(launch(&l), BASE_OK);
  l.launch.function = less;
  expect_refused_launch(&l, BASE_INVALID, "prepared for 60000 bytes");
  teardown_launch(&l);
}

// ---- contexts, captures, lost contexts ----------------------------------------------------------

static void test_caller_has_a_context(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  const CUcontext foreign = cuda_double()->foreign_context();
  CUcontext current;
  rt_cuda.cuCtxPushCurrent(foreign);
  assert_int_equal(launch(&l), BASE_OK);
  assert_ptr_not_equal(cuda_double()->last_launch().context, foreign);
  rt_cuda.cuCtxGetCurrent(&current);
  assert_ptr_equal(current, foreign);
  assert_int_equal(cuda_double()->counts().depth, 1);

  // The primary context itself, as frameworks have it: nothing to do.
  const int pushes = cuda_double()->calls("cuCtxPushCurrent") + 1;
  rt_cuda.cuCtxPushCurrent(((rt_cuda_device *)l.f.device)->context);
  assert_int_equal(launch(&l), BASE_OK);
  assert_int_equal(cuda_double()->calls("cuCtxPushCurrent"), pushes);
  rt_cuda.cuCtxPopCurrent(&current);
  rt_cuda.cuCtxPopCurrent(&current);
  assert_ptr_equal(current, foreign);
  teardown_launch(&l);
}

static void expect_not_captured(cuda_fixture *f, base_status status, const char *message) {
  assert_int_equal(status, BASE_INVALID);
  assert_in(cuda_message(f), message);
  assert_false(cuda_double()->capture_is_broken());
  cuda_clear(f);
}

static void test_capture(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  cuda_fixture *f = &l.f;
  const rt_device_ops *ops = f->device->ops;
  void *memory, *more;
  char byte = 1;
  double microseconds;
  rt_timer *timer;
  assert_int_equal(ops->allocate(f->device, 64, &memory, &f->diag), BASE_OK);
  assert_int_equal(ops->timer_create(f->device, &timer, &f->diag), BASE_OK);

  cuda_double()->capture(some_stream);
  assert_int_equal(launch(&l), BASE_OK);
  assert_int_equal(ops->fill(f->device, some_stream, memory, 0, 64, &f->diag), BASE_OK);
  assert_int_equal(ops->copy(f->device, some_stream, memory, (char *)memory + 32, 32, &f->diag),
                   BASE_OK);
  expect_not_captured(f, ops->copy(f->device, some_stream, memory, &byte, 1, &f->diag),
                      "cannot copy on a stream that is being captured");
  expect_not_captured(f, ops->synchronize(f->device, some_stream, &f->diag),
                      "cannot wait for a stream that is being captured");
  expect_not_captured(f, ops->timer_start(f->device, timer, some_stream, &f->diag),
                      "cannot time a stream that is being captured");
  expect_not_captured(f, ops->timer_stop(f->device, timer, some_stream, &microseconds, &f->diag),
                      "cannot time a stream that is being captured");
  expect_not_captured(f, ops->synchronize(f->device, NULL, &f->diag),
                      "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT");

  // What has nothing to do with the captured stream goes on.
  CUstream other = (CUstream)0x2000;
  assert_int_equal(ops->copy(f->device, other, memory, &byte, 1, &f->diag), BASE_OK);
  assert_int_equal(ops->allocate(f->device, 64, &more, &f->diag), BASE_OK);
  rt_code *code = load(f, fixture_cubin(&f->arena, 90, "k"), none);
  assert_non_null(code);
  find(f, code, 60000);
  ops->unload(f->device, code);
  ops->release(f->device, more);
  assert_false(cuda_double()->capture_is_broken());
  assert_int_equal(f->diag.reports.count, 0);
  cuda_double()->capture(NULL);

  ops->timer_destroy(f->device, timer);
  ops->release(f->device, memory);
  teardown_launch(&l);
}

static void test_lost_context(void **unused) {
  (void)unused;
  static const CUresult errors[] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS,
                                    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ECC_UNCORRECTABLE};
  static const char *const advice[] = {"compute-sanitizer", "stride", "compute-sanitizer",
                                       "reset the GPU"};
  for (size_t i = 0; i < COUNT(errors); i++) {
    launching l;
    setup_launch(&l);
    void *memory;
    assert_int_equal(l.f.device->ops->allocate(l.f.device, 64, &memory, &l.f.diag), BASE_OK);
    cuda_double()->lose(errors[i]);
    assert_true(launch(&l) != BASE_OK);
    assert_in(cuda_message(&l.f), "the kernel is 'k'");
    assert_in(cuda_hint(&l.f), advice[i]);
    assert_in(cuda_hint(&l.f), "this process can use the device no more: restart it");
    cuda_clear(&l.f);
    const base_str cubin = fixture_cubin(&l.f.arena, 90, "k");
    assert_null(load(&l.f, cubin, fixture_ptx(&l.f.arena, "8.0", 90, "k", PARAMETERS)));
    assert_null(strstr(cuda_message(&l.f), "PTX")); // hopeless: not tried
    assert_in(cuda_hint(&l.f), "restart it");
    l.f.device->ops->release(l.f.device, memory);
    teardown_launch(&l);
    cuda_double()->lose(CUDA_SUCCESS);
  }
}

// ---- threads ------------------------------------------------------------------------------------

enum { WORKERS = 4, ROUNDS = 50 };

typedef struct worker {
  launching *shared;
  bool ok;
} worker;

// Threads that never had a context, on one device and one code.
static void *work(void *argument) {
  worker *w = argument;
  rt_device *device = w->shared->f.device;
  const rt_device_ops *ops = device->ops;
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  bool ok = true;
  for (int i = 0; i < ROUNDS && ok; i++) {
    rt_device_launch launch = w->shared->launch;
    void *memory = NULL;
    int out = 0;
    ok = ops->allocate(device, sizeof i, &memory, &diag) == BASE_OK &&
         ops->copy(device, NULL, memory, &i, sizeof i, &diag) == BASE_OK &&
         ops->find(device, w->shared->code, "k", THREADS, 100000, &launch.function, NULL, &diag) ==
             BASE_OK &&
         ops->launch(device, NULL, &launch, &diag) == BASE_OK &&
         ops->copy(device, NULL, &out, memory, sizeof i, &diag) == BASE_OK && out == i;
    ops->release(device, memory);
  }
  w->ok = ok && cuda_double()->counts().depth == 0;
  base_arena_reset(&arena);
  return NULL;
}

static void test_threads(void **unused) {
  (void)unused;
  launching l;
  setup_launch(&l);
  pthread_t threads[WORKERS];
  worker workers[WORKERS];
  const int launches = cuda_double()->counts().launches;
  for (int i = 0; i < WORKERS; i++) {
    workers[i] = (worker){.shared = &l};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(threads[i], NULL);
    assert_true(workers[i].ok);
  }
  assert_int_equal(cuda_double()->counts().launches, launches + WORKERS * ROUNDS);
  teardown_launch(&l);
}

int main(void) {
  setenv("DOUBLE_DEVICES", "2", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_there), // the first three in this order
      cmocka_unit_test(test_does_not_start),
      cmocka_unit_test(test_starts),
      cmocka_unit_test(test_facts),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_timer),
      cmocka_unit_test(test_pointers),
      cmocka_unit_test(test_forms),
      cmocka_unit_test(test_refused_images),
      cmocka_unit_test(test_truncated_cubin),
      cmocka_unit_test(test_damaged_cubin),
      cmocka_unit_test(test_find),
      cmocka_unit_test(test_launch),
      cmocka_unit_test(test_launch_does_nothing_else),
      cmocka_unit_test(test_refused_launches),
      cmocka_unit_test(test_older_architecture),
      cmocka_unit_test(test_older_driver),
      cmocka_unit_test(test_shared_memory_only_grows),
      cmocka_unit_test(test_caller_has_a_context),
      cmocka_unit_test(test_capture),
      cmocka_unit_test(test_lost_context),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
