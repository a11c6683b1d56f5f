// The cuda target from end to end through fathom.h, against the doubles of the driver and of NVRTC:
// whose memory a run takes, what it refuses, and that nothing is left whichever call of the driver
// fails.
#include "double/cuda_fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"

static const char mix_text[] =
    "graph @mix(%bank: f32[N=2, T, D=3], %weights: f32[N], %x: f32[T, D]) {\n"
    "  %h = weighted_sum %weights, %bank over N : f32[T, D]\n"
    "  %y = add %h, %x : f32[T, D]\n"
    "  return %y, %h\n"
    "}\n";

#define assert_ok(call)                                                                            \
  do {                                                                                             \
    fathom_status status_ = (call);                                                                \
    if (status_ != FATHOM_OK)                                                                      \
      fail_msg("%s: %s", fathom_status_name(status_), fathom_error_text());                        \
  } while (0)

static void assert_says(const char *text) {
  if (strstr(fathom_error_text(), text) == NULL)
    fail_msg("expected \"%s\" in: %s", text, fathom_error_text());
}

// ---- fixtures -----------------------------------------------------------------------------------

enum { BANK, WEIGHTS, X, Y, H, COUNT };
static const char *const names[COUNT] = {"bank", "weights", "x", "y", "h"};
static const size_t floats[COUNT] = {12, 2, 6, 6, 6};

// An executable for the GPU, tensors of the host and a copy of them on the device.
typedef struct setup {
  cuda_fixture cuda; // a device of its own: for memory
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  float host[COUNT][12];
  float *device[COUNT];
  int64_t bank_shape[3], weights_shape[1], row_shape[2];
  DLTensor tensors[COUNT];
  fathom_arg args[COUNT];
} setup;

static fathom_status compile_for(setup *s, const char *target) {
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = target;
  return fathom_compile(s->context, s->graph, &options, &s->executable);
}

static void open_context(setup *s) {
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = "";
  assert_ok(fathom_context_create(&options, &s->context));
  assert_ok(fathom_parse(s->context, mix_text, strlen(mix_text), "mix.fir", &s->module));
  assert_ok(fathom_module_graph(s->module, NULL, &s->graph));
}

static void host_tensors(setup *s) {
  for (int i = 0; i < COUNT; i++) {
    int64_t *shape = i == BANK ? s->bank_shape : i == WEIGHTS ? s->weights_shape : s->row_shape;
    s->tensors[i] = (DLTensor){.data = s->host[i],
                               .device = {kDLCPU, 0},
                               .ndim = i == BANK      ? 3
                                       : i == WEIGHTS ? 1
                                                      : 2,
                               .dtype = {kDLFloat, 32, 1},
                               .shape = shape};
    s->args[i] = (fathom_arg){.name = names[i], .tensor = &s->tensors[i]};
  }
}

static void device_tensors(setup *s) {
  host_tensors(s);
  for (int i = 0; i < COUNT; i++) {
    s->tensors[i].data = s->device[i];
    s->tensors[i].device = (DLDevice){kDLCUDA, 0};
  }
}

static void copy_floats(setup *s, int i, bool to_device) {
  rt_device *device = s->cuda.device;
  assert_int_equal(device->ops->copy(device, NULL, to_device ? s->device[i] : s->host[i],
                                     to_device ? s->host[i] : s->device[i],
                                     floats[i] * sizeof(float), &s->cuda.diag),
                   BASE_OK);
}

static void open_setup(setup *s) {
  *s = (setup){.bank_shape = {2, 2, 3}, .weights_shape = {2}, .row_shape = {2, 3}};
  setenv("FATHOM_LIBNVRTC", double_path("libnvrtc-double.so"), 1);
  cuda_setup_device(&s->cuda);
  open_context(s);
  assert_ok(compile_for(s, "cuda"));
  for (int i = 0; i < 12; i++)
    s->host[BANK][i] = (float)i;
  for (int i = 0; i < 6; i++)
    s->host[X][i] = 100.0f;
  s->host[WEIGHTS][0] = 0.5f;
  s->host[WEIGHTS][1] = 2.0f;
  for (int i = 0; i < COUNT; i++) {
    void *memory;
    assert_int_equal(
        s->cuda.device->ops->allocate(s->cuda.device, 12 * sizeof(float), &memory, &s->cuda.diag),
        BASE_OK);
    s->device[i] = memory;
    copy_floats(s, i, true);
  }
}

static void close_setup(setup *s) {
  for (int i = 0; i < COUNT; i++)
    s->cuda.device->ops->release(s->cuda.device, s->device[i]);
  fathom_executable_destroy(s->executable);
  fathom_module_destroy(s->module);
  fathom_context_destroy(s->context);
  cuda_teardown(&s->cuda); // nothing is left in the driver, and no rule of it was broken
}

static fathom_status run(setup *s, const fathom_executor *executor) {
  return fathom_run(s->executable, s->args, COUNT, NULL, 0, executor);
}

static void assert_mixed(const float *y, const float *h) {
  for (int i = 0; i < 6; i++) {
    assert_true(h[i] == 2.5f * (float)i + 12.0f);
    assert_true(y[i] == h[i] + 100.0f);
  }
}

// ---- tensors of the device ----------------------------------------------------------------------

// Launches on the stream it is given and does nothing else: no memory, no waiting, and it may be
// captured.
static void test_runs_on_device_memory(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  device_tensors(&s);
  size_t bytes = 1;
  assert_ok(fathom_workspace_size(s.executable, s.args, COUNT, NULL, &bytes));
  assert_int_equal(bytes, 0);
  const CUstream stream = (CUstream)(uintptr_t)0x5000;
  fathom_executor executor = FATHOM_INIT(executor);
  executor.stream = stream;
  const double_control *gpu = cuda_double();
  const int memories = gpu->calls("cuMemAlloc"), waits = gpu->calls("cuStreamSynchronize");
  gpu->capture(stream);
  assert_ok(run(&s, &executor));
  assert_false(gpu->capture_is_broken());
  gpu->capture(NULL);
  assert_ok(run(&s, &executor));
  assert_ptr_equal(gpu->last_launch().stream, stream);
  assert_ok(run(&s, NULL));
  assert_ptr_equal(gpu->last_launch().stream, NULL);
  assert_int_equal(gpu->calls("cuMemAlloc"), memories);
  assert_int_equal(gpu->calls("cuStreamSynchronize"), waits);
  copy_floats(&s, Y, false);
  copy_floats(&s, H, false);
  assert_mixed(s.host[Y], s.host[H]);
  close_setup(&s);
}

static void test_refuses_other_memory(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  device_tensors(&s);
  s.tensors[X].device = (DLDevice){kDLCPU, 0};
  assert_int_equal(run(&s, NULL), FATHOM_INVALID);
  assert_says("%x: memory of the host, but %bank is memory of the device");
  assert_says("give all tensors on the device, or all on the host");
  device_tensors(&s);
  s.tensors[BANK].device.device_id = 3;
  assert_int_equal(run(&s, NULL), FATHOM_INVALID);
  assert_says("%bank: expected memory of CUDA device 0 (kDLCUDA), found DLPack device type 2, "
              "number 3");
  device_tensors(&s);
  s.tensors[BANK].device.device_type = kDLROCM;
  assert_int_equal(run(&s, NULL), FATHOM_INVALID);
  device_tensors(&s);
  s.tensors[X].data = (char *)s.device[X] + 2;
  assert_int_equal(run(&s, NULL), FATHOM_INVALID);
  assert_says("%x: its address is not a multiple of its 4-byte element");
  device_tensors(&s);
  s.tensors[X].data = NULL;
  assert_int_equal(run(&s, NULL), FATHOM_INVALID);
  assert_says("%x: no memory");
  close_setup(&s);
}

// Where the driver is asked first, an address of the host does not reach a kernel.
static void test_checks_pointers(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  device_tensors(&s);
  fathom_executor executor = FATHOM_INIT(executor);
  executor.check_pointers = 1;
  assert_ok(run(&s, &executor));
  float here[12];
  s.tensors[X].data = here;
  const int launches = cuda_double()->counts().launches;
  assert_int_equal(run(&s, &executor), FATHOM_INVALID);
  assert_says("%x");
  s.tensors[X].data = s.device[X] + 9; // goes past the end
  assert_int_equal(run(&s, &executor), FATHOM_INVALID);
  assert_int_equal(cuda_double()->counts().launches, launches);
  close_setup(&s);
}

// A temporary between two kernels lies in the workspace.
static void test_refuses_workspaces(void **state) {
  (void)state;
  static const char text[] = "graph @two(%p: f32[S=8, D=1], %x: f32[T, D]) {\n"
                             "  %q = softmax %p over S : f32[S, D]\n"
                             "  %z = dot %q, %x over D : f32[S, T]\n"
                             "  %r = rsqrt %q : f32[S, D]\n"
                             "  return %z, %r\n}\n";
  setup s;
  open_setup(&s);
  fathom_module_destroy(s.module);
  fathom_executable_destroy(s.executable);
  assert_ok(fathom_parse(s.context, text, strlen(text), NULL, &s.module));
  assert_ok(fathom_module_graph(s.module, NULL, &s.graph));
  assert_ok(compile_for(&s, "cuda"));
  int64_t column[] = {8, 1}, x_shape[] = {1, 1}; // one row
  DLTensor p = (DLTensor){.data = s.device[BANK],
                          .device = {kDLCUDA, 0},
                          .ndim = 2,
                          .dtype = {kDLFloat, 32, 1},
                          .shape = column};
  DLTensor x = p, z = p, r = p;
  x.shape = x_shape, x.data = s.device[X];
  z.data = s.device[Y];
  r.data = s.device[WEIGHTS];
  const fathom_arg args[] = {{.name = "p", .tensor = &p},
                             {.name = "x", .tensor = &x},
                             {.name = "z", .tensor = &z},
                             {.name = "r", .tensor = &r}};
  size_t bytes;
  assert_ok(fathom_workspace_size(s.executable, args, 4, NULL, &bytes));
  assert_true(bytes > 0);
  assert_int_equal(fathom_run(s.executable, args, 4, NULL, 0, NULL), FATHOM_INVALID);
  assert_says("the workspace is NULL");
  char *memory = (char *)s.device[H];
  assert_int_equal(fathom_run(s.executable, args, 4, memory, bytes - 1, NULL), FATHOM_INVALID);
  assert_says("ask fathom_workspace_size");
  assert_int_equal(fathom_run(s.executable, args, 4, memory + 4, bytes, NULL), FATHOM_INVALID);
  assert_says("the workspace is not aligned to 128 bytes");
  fathom_executor executor = FATHOM_INIT(executor);
  executor.check_pointers = 1;
  void *here = aligned_alloc(128, (bytes + 127) / 128 * 128);
  assert_int_equal(fathom_run(s.executable, args, 4, here, bytes, &executor), FATHOM_INVALID);
  assert_says("the workspace");
  free(here);
  close_setup(&s);
}

// ---- tensors of the host ------------------------------------------------------------------------

static void test_stages_host_memory(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  host_tensors(&s);
  const int memories = cuda_double()->counts().memories;
  size_t bytes = 1;
  assert_ok(fathom_workspace_size(s.executable, s.args, COUNT, NULL, &bytes));
  assert_int_equal(bytes, 0);
  assert_ok(run(&s, NULL));
  assert_mixed(s.host[Y], s.host[H]);
  assert_int_equal(cuda_double()->counts().memories, memories);
  close_setup(&s);
}

// y and h share one piece of memory, element by element, h backwards; the bank is two slices, x one
// number for all.
static void test_stages_any_stride(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  host_tensors(&s);
  float both[16], x = 100.0f;
  for (int i = 0; i < 16; i++)
    both[i] = -7.0f;
  int64_t forward[] = {6, 2}, back[] = {-6, -2}, none[] = {0, 0};
  s.tensors[Y].data = both + 2;
  s.tensors[Y].strides = forward;
  s.tensors[H].data = both + 13;
  s.tensors[H].strides = back;
  s.tensors[X].data = &x;
  s.tensors[X].strides = none;
  DLTensor low = s.tensors[Y], high;
  low.data = s.host[BANK], low.strides = NULL;
  high = low;
  high.data = s.host[BANK] + 6;
  const DLTensor *slices[] = {&low, &high};
  s.args[BANK] = (fathom_arg){.name = "bank", .slices = slices, .slice_count = 2};
  assert_ok(run(&s, NULL));
  float y[6], h[6];
  for (int i = 0; i < 6; i++) {
    y[i] = both[2 + 2 * i];
    h[i] = both[13 - 2 * i];
  }
  assert_mixed(y, h);
  assert_true(both[0] == -7.0f && both[1] == -7.0f && both[14] == -7.0f && both[15] == -7.0f);
  close_setup(&s);
}

static void test_stages_no_rows(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  host_tensors(&s);
  s.row_shape[0] = s.bank_shape[1] = 0;
  s.host[Y][0] = 5.0f;
  s.tensors[X].data = s.tensors[H].data = NULL;
  assert_ok(run(&s, NULL));
  assert_true(s.host[Y][0] == 5.0f);
  close_setup(&s);
}

// ---- devices ------------------------------------------------------------------------------------

static void test_tells_the_device(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  fathom_executable_info info = FATHOM_INIT(info);
  assert_ok(fathom_executable_get_info(s.executable, &info));
  assert_string_equal(info.target, "cuda");
  assert_string_equal(info.device, "Double H100");
  assert_string_equal(info.arch, "sm_90");
  fathom_text text;
  assert_ok(fathom_info(s.context, &text));
  assert_non_null(strstr(text.data, ", cuda"));
  assert_non_null(strstr(text.data, "gpu 0: Double H100, sm_90, 132 multiprocessors"));
  fathom_text_destroy(&text);
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = "cuda";
  assert_ok(fathom_emit(s.context, s.graph, &options, "report", &text));
  assert_non_null(strstr(text.data, "architecture: sm_90, that of Double H100\n"));
  fathom_text_destroy(&text);
  close_setup(&s);
}

static void expect_no_device(setup *s, const char *number, const char *message) {
  fathom_executable *kept = s->executable;
  s->executable = NULL;
  setenv("FATHOM_CUDA_DEVICE", number, 1);
  assert_int_equal(compile_for(s, "cuda"), FATHOM_INVALID);
  assert_says(message);
  assert_null(s->executable);
  s->executable = kept;
  unsetenv("FATHOM_CUDA_DEVICE");
}

static void test_chooses_the_device(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  expect_no_device(&s, "7", "there is no CUDA device 7: the driver shows 1");
  expect_no_device(&s, "one", "FATHOM_CUDA_DEVICE is 'one', expected the number of a GPU");
  expect_no_device(&s, "-1", "FATHOM_CUDA_DEVICE is '-1'");
  close_setup(&s);
}

// Machine code for another architecture is passed over for the PTX, unless that is for a later one.
static void test_other_architectures(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  fathom_executable_destroy(s.executable);
  assert_ok(compile_for(&s, "cuda:sm_80"));
  host_tensors(&s);
  assert_ok(run(&s, NULL));
  assert_mixed(s.host[Y], s.host[H]);
  fathom_executable_info info = FATHOM_INIT(info);
  assert_ok(fathom_executable_get_info(s.executable, &info));
  assert_string_equal(info.arch, "sm_80");
  close_setup(&s);
}

enum { THREADS = 4, ROUNDS = 20 };

typedef struct opener {
  pthread_t thread;
  pthread_barrier_t *start;
  fathom_context *context;
  rt_device *device;
} opener;

static void *open_in_thread(void *opaque) {
  opener *o = opaque;
  api_call call = {.context = o->context};
  const api_device_key key = {.kind = API_CUDA};
  base_arena_init(&call.arena, NULL);
  base_diag_init(&call.diag, &call.arena, BASE_STR(""), BASE_STR(""));
  pthread_barrier_wait(o->start);
  o->device = api_device_open(&call, &key);
  base_arena_reset(&call.arena);
  return NULL;
}

// Whichever thread opens the device, one is kept, and all get that.
static void test_threads_share_the_device(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  const int contexts = cuda_double()->counts().contexts;
  for (int round = 0; round < ROUNDS; round++) {
    fathom_context *context;
    pthread_barrier_t start;
    opener openers[THREADS];
    assert_ok(fathom_context_create(NULL, &context));
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
      openers[i] = (opener){.start = &start, .context = context};
      assert_int_equal(pthread_create(&openers[i].thread, NULL, open_in_thread, &openers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
      pthread_join(openers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
      assert_ptr_equal(openers[i].device, openers[0].device);
    assert_non_null(openers[0].device);
    assert_int_equal(cuda_double()->counts().contexts, contexts + 1);
    pthread_barrier_destroy(&start);
    fathom_context_destroy(context);
    assert_int_equal(cuda_double()->counts().contexts, contexts);
  }
  close_setup(&s);
}

// ---- checking and measuring ---------------------------------------------------------------------

static void test_check(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = "cuda";
  fathom_check_options options = FATHOM_INIT(options);
  options.dynamic_size = 9;
  uint32_t failures = 7;
  for (uint32_t misalign = 0; misalign < 2; misalign++) {
    options.misalign = misalign;
    options.strided = misalign != 0;
    assert_ok(fathom_check(s.context, s.graph, &compile, &options, &failures));
    assert_int_equal(failures, 0);
  }
  close_setup(&s);
}

static void test_bench(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  fathom_bench_options options = FATHOM_INIT(options);
  options.dynamic_size = 10;
  options.seconds = 0.01;
  const fathom_cache caches[] = {FATHOM_CACHE_DEFAULT, FATHOM_CACHE_WARM, FATHOM_CACHE_COLD};
  for (int i = 0; i < 3; i++) {
    fathom_bench_result result = FATHOM_INIT(result);
    options.cache = caches[i];
    assert_ok(fathom_bench(s.context, s.graph, s.executable, &options, &result));
    assert_int_equal(result.bytes, 4 * (2 * 10 * 3 + 2 + 3 * 10 * 3));
    assert_true(result.median_us > 0 && result.ceiling_gb_s > 0 && result.runs >= 3);
    assert_true(result.launch_us > 0 && result.batch >= 1);
    assert_int_equal(result.threads, 0);
    assert_int_equal(result.cache, i == 1 ? FATHOM_CACHE_WARM : FATHOM_CACHE_COLD);
  }
  fathom_bench_result result = FATHOM_INIT(result);
  options.cache = (fathom_cache)7;
  assert_int_equal(fathom_bench(s.context, s.graph, s.executable, &options, &result),
                   FATHOM_INVALID);
  close_setup(&s);
}

// ---- failures -----------------------------------------------------------------------------------

// Compiles, runs on host tensors, checks, and gives everything back.
static fathom_status whole_life(void) {
  setup s = {.bank_shape = {2, 2, 3}, .weights_shape = {2}, .row_shape = {2, 3}};
  open_context(&s);
  host_tensors(&s);
  fathom_status status = compile_for(&s, "cuda");
  if (status == FATHOM_OK) status = run(&s, NULL);
  fathom_executable_destroy(s.executable);
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = "cuda";
  fathom_check_options options = FATHOM_INIT(options);
  options.seeds = 1;
  options.dynamic_size = 2;
  uint32_t failures;
  if (status == FATHOM_OK) status = fathom_check(s.context, s.graph, &compile, &options, &failures);
  char text[512];
  snprintf(text, sizeof text, "%s", fathom_error_text());
  fathom_module_destroy(s.module);
  fathom_context_destroy(s.context);
  if (status != FATHOM_OK && strstr(text, "error: ") == NULL) fail_msg("no reason: %s", text);
  return status;
}

// When such a call fails, no one can help what is left.
static bool gives_back(const char *entry) {
  return strstr(entry, "Destroy") || strstr(entry, "Free") || strstr(entry, "Release") ||
         strstr(entry, "Unload");
}

static void test_every_call_may_fail(void **state) {
  (void)state;
  static const char *const entries[] = {
#define DRIVER(need, name, symbol, purpose, arguments) #name,
#include "runtime/cuda/driver.def"
#undef DRIVER
  };
  setenv("FATHOM_LIBNVRTC", double_path("libnvrtc-double.so"), 1);
  cuda_fixture f;
  cuda_setup_device(&f); // so that the driver is open, and stays so
  assert_int_equal(whole_life(), FATHOM_OK);
  const double_counts before = cuda_double()->counts();
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    bool failed = !gives_back(entries[i]);
    for (int nth = 1; failed; nth += 1 + nth / 2) { // calls that come often are much alike
      cuda_double()->inject(entries[i], nth, CUDA_ERROR_OUT_OF_MEMORY, false);
      const fathom_status status = whole_life();
      failed = cuda_double()->has_failed();
      cuda_double()->inject(NULL, 0, CUDA_SUCCESS, false);
      const double_counts after = cuda_double()->counts();
      if (after.contexts != before.contexts || after.modules != before.modules ||
          after.memories != before.memories || after.events != before.events ||
          after.depth != before.depth)
        fail_msg("call %d of %s fails, and something is left", nth, entries[i]);
      if (!failed) assert_int_equal(status, FATHOM_OK);
    }
  }
  assert_string_equal(cuda_double()->violation(), "");
  f.device->ops->destroy(f.device);
  base_arena_reset(&f.arena);
}

// What the cache has is sound, but no driver takes it: then it is compiled again.
static void spoil_cache(const char *directory) {
  struct { // as in codegen/artefact_cache.c
    char magic[8];
    base_hash digest;
    uint64_t length;
  } header;
  char *command = NULL;
  assert_true(asprintf(&command, "ls %s/cubins/*", directory) > 0);
  FILE *list = popen(command, "r");
  char path[4096];
  int spoiled = 0;
  while (fgets(path, sizeof path, list)) {
    path[strcspn(path, "\n")] = 0;
    FILE *file = fopen(path, "r+b");
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    char *contents = malloc(header.length);
    assert_int_equal(fread(contents, 1, header.length, file), header.length);
    char *at = contents;
    while ((at = memmem(at, header.length - (size_t)(at - contents), "FM_ENTRY", 8)))
      memcpy(at, "FM_BREAK", 8);
    header.digest = base_hash_bytes(contents, header.length);
    rewind(file);
    fwrite(&header, sizeof header, 1, file);
    fwrite(contents, 1, header.length, file);
    fclose(file);
    free(contents);
    spoiled++;
  }
  pclose(list);
  free(command);
  assert_true(spoiled > 0);
}

static void test_spoiled_cache(void **state) {
  (void)state;
  char directory[] = "/tmp/fathom-cache-XXXXXX";
  assert_non_null(mkdtemp(directory));
  setup s;
  open_setup(&s);
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = directory;
  fathom_context *context;
  assert_ok(fathom_context_create(&options, &context));
  for (int i = 0; i < 3; i++) { // fills the cache, uses it, finds it spoiled
    if (i == 2) spoil_cache(directory);
    fathom_compile_options compile = FATHOM_INIT(compile);
    compile.target = "cuda";
    fathom_executable *executable;
    assert_ok(fathom_compile(context, s.graph, &compile, &executable));
    fathom_executable_info info = FATHOM_INIT(info);
    assert_ok(fathom_executable_get_info(executable, &info));
    assert_int_equal(info.from_cache, i == 1);
    host_tensors(&s);
    assert_ok(fathom_run(executable, s.args, COUNT, NULL, 0, NULL));
    assert_mixed(s.host[Y], s.host[H]);
    fathom_executable_destroy(executable);
  }
  fathom_context_destroy(context);
  close_setup(&s);
}

static void test_out_of_memory(void **state) {
  (void)state;
  setup s;
  open_setup(&s);
  host_tensors(&s);
  cuda_double()->inject("cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, false);
  assert_int_equal(run(&s, NULL), FATHOM_MEMORY);
  assert_says("bytes were asked for");
  assert_ok(run(&s, NULL));
  close_setup(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_runs_on_device_memory),
      cmocka_unit_test(test_refuses_other_memory),
      cmocka_unit_test(test_checks_pointers),
      cmocka_unit_test(test_refuses_workspaces),
      cmocka_unit_test(test_stages_host_memory),
      cmocka_unit_test(test_stages_any_stride),
      cmocka_unit_test(test_stages_no_rows),
      cmocka_unit_test(test_tells_the_device),
      cmocka_unit_test(test_chooses_the_device),
      cmocka_unit_test(test_other_architectures),
      cmocka_unit_test(test_threads_share_the_device),
      cmocka_unit_test(test_check),
      cmocka_unit_test(test_bench),
      cmocka_unit_test(test_spoiled_cache),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_every_call_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
