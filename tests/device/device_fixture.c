// device_fixture: see device_fixture.h.
#include "device/device_fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rt_device *gpu;
base_arena gpu_arena;
base_diag gpu_diag;

// ---- the device ---------------------------------------------------------------------------------

bool gpu_open(void) {
  base_arena_init(&gpu_arena, NULL);
  base_diag_init(&gpu_diag, &gpu_arena, BASE_STR(""), BASE_STR(""));
  if (rt_cuda_device_create(0, &gpu, &gpu_diag) == BASE_OK) {
    printf("on %s\n", gpu->facts.name);
    return true;
  }
  printf("%.*s\n", BASE_FMT(base_diag_render(&gpu_diag)));
  return false;
}

void gpu_close(void) {
  gpu->ops->destroy(gpu);
}

int gpu_set_up(void **state) {
  (void)state;
  base_arena_init(&gpu_arena, NULL);
  base_diag_init(&gpu_diag, &gpu_arena, BASE_STR(""), BASE_STR(""));
  return 0;
}

int gpu_tear_down(void **state) {
  (void)state;
  int failed = gpu->ops->synchronize(gpu, NULL, &gpu_diag) != BASE_OK;
  base_arena_reset(&gpu_arena);
  return failed;
}

bool gpu_is_double(void) {
  return strncmp(gpu->facts.name, "Double ", 7) == 0;
}

void gpu_assert(bool good) {
  if (!good) fail_msg("%.*s", BASE_FMT(base_diag_render(&gpu_diag)));
}

static void release_memory(void *memory) {
  gpu->ops->release(gpu, memory);
}

void *gpu_allocate(size_t bytes) {
  void *memory;
  gpu_assert(gpu->ops->allocate(gpu, bytes ? bytes : 1, &memory, &gpu_diag) == BASE_OK);
  base_defer(&gpu_arena, release_memory, memory);
  return memory;
}

void gpu_copy(void *to, const void *from, size_t bytes) {
  gpu_assert(gpu->ops->copy(gpu, NULL, to, from, bytes, &gpu_diag) == BASE_OK);
}

void gpu_wait(void *stream) {
  gpu_assert(gpu->ops->synchronize(gpu, stream, &gpu_diag) == BASE_OK);
}

// ---- the driver's streams and graphs ------------------------------------------------------------

typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

struct gpu_graph {
  CUgraph graph;
  CUgraphExec executable;
};

// An entry point that Fathom does not use goes to *out, a pointer to a function; NULL with the double.
static void find_entry(const char *symbol, void *out) {
  base_str path, why;
  gpu_assert(rt_cuda_open(&gpu_arena, &path, &why) == BASE_OK);
  void *library = dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
  assert_non_null(library);
  void *found = dlsym(library, symbol);
  if (found == NULL && !gpu_is_double()) fail_msg("%s has no %s", path.data, symbol);
  memcpy(out, &found, sizeof found);
  dlclose(library); // the driver runtime has it open as well
}

#define ENTRY(name, symbol, ...)                                                                   \
  CUresult (*name)(__VA_ARGS__);                                                                   \
  find_entry((symbol), &(name))

static void enter(rt_cuda_scope *scope) {
  rt_cuda_failure failure = {0};
  assert_true(rt_cuda_enter((rt_cuda_device *)gpu, scope, &failure));
}

CUstream gpu_stream_create(void) {
  static uintptr_t next = 0x1000;
  enum { NON_BLOCKING = 1 };
  ENTRY(create, "cuStreamCreate", CUstream *, unsigned);
  CUstream stream = (CUstream)(next += 0x1000);
  rt_cuda_scope scope;
  enter(&scope);
  if (create != NULL) assert_int_equal(create(&stream, NON_BLOCKING), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
  return stream;
}

void gpu_stream_destroy(CUstream stream) {
  ENTRY(destroy, "cuStreamDestroy_v2", CUstream);
  rt_cuda_scope scope;
  enter(&scope);
  if (destroy != NULL) assert_int_equal(destroy(stream), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
}

bool gpu_capture_begin(CUstream stream) {
  enum { GLOBAL = 0 }; // the strictest mode
  ENTRY(begin, "cuStreamBeginCapture_v2", CUstream, int);
  if (begin == NULL) return false;
  rt_cuda_scope scope;
  enter(&scope);
  assert_int_equal(begin(stream, GLOBAL), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
  return true;
}

gpu_graph *gpu_capture_end(CUstream stream) {
  ENTRY(finish, "cuStreamEndCapture", CUstream, CUgraph *);
  ENTRY(instantiate, "cuGraphInstantiateWithFlags", CUgraphExec *, CUgraph, unsigned long long);
  gpu_graph *graph = base_new(&gpu_arena, gpu_graph);
  rt_cuda_scope scope;
  enter(&scope);
  assert_int_equal(finish(stream, &graph->graph), CUDA_SUCCESS);
  assert_int_equal(instantiate(&graph->executable, graph->graph, 0), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
  return graph;
}

void gpu_graph_launch(gpu_graph *graph, CUstream stream) {
  ENTRY(launch, "cuGraphLaunch", CUgraphExec, CUstream);
  rt_cuda_scope scope;
  enter(&scope);
  assert_int_equal(launch(graph->executable, stream), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
}

void gpu_graph_destroy(gpu_graph *graph) {
  ENTRY(destroy_executable, "cuGraphExecDestroy", CUgraphExec);
  ENTRY(destroy, "cuGraphDestroy", CUgraph);
  rt_cuda_scope scope;
  enter(&scope);
  assert_int_equal(destroy_executable(graph->executable), CUDA_SUCCESS);
  assert_int_equal(destroy(graph->graph), CUDA_SUCCESS);
  rt_cuda_leave(&scope);
}

// ---- a compiled graph ---------------------------------------------------------------------------

static void bind_sizes(gpu_case *c, const char *sizes) {
  char *text = strdup(sizes), *rest = text;
  for (char *axis; (axis = strsep(&rest, ",")) != NULL && *axis;) {
    char *size = strchr(axis, '=');
    *size = 0;
    assert_fathom(fathom_graph_bind(c->graph, axis, strtoll(size + 1, NULL, 10)));
  }
  free(text);
}

static DLDataType dtype_of(fathom_dtype dtype) {
  if (dtype == FATHOM_F32) return (DLDataType){kDLFloat, 32, 1};
  return (DLDataType){dtype == FATHOM_BF16 ? kDLBfloat : kDLFloat, 16, 1};
}

// Numbers between -1 and 1, by an xorshift step (Marsaglia 2003) from the name.
static void fill_values(void *out, size_t bytes, fathom_dtype dtype, const char *name) {
  uint64_t bits = 0x9e3779b97f4a7c15u;
  for (; *name; name++)
    bits = (bits ^ (unsigned char)*name) * 0x100000001b3u;
  for (size_t i = 0; i < bytes / (dtype == FATHOM_F32 ? 4 : 2); i++) {
    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    float value = (float)(int32_t)(bits >> 32) * 0x1p-31f;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    if (dtype == FATHOM_F32)
      ((float *)out)[i] = value;
    else // bf16 is its upper half
      ((uint16_t *)out)[i] = (uint16_t)(word >> 16);
  }
}

static void add_tensor(gpu_case *c, const fathom_tensor_info *info, bool is_input, int64_t rows) {
  uint32_t i = c->count++;
  assert_in_range(c->count, 1, GPU_MOST_TENSORS);
  DLDataType dtype = dtype_of(info->dtype);
  size_t bytes = dtype.bits / 8;
  for (uint32_t j = 0; j < info->rank; j++) {
    c->shapes[i][j] = info->sizes[j] == FATHOM_DYNAMIC ? rows : info->sizes[j];
    bytes *= (size_t)c->shapes[i][j];
  }
  c->bytes[i] = bytes;
  c->tensors[i] = (DLTensor){.data = gpu_allocate(bytes),
                             .device = {kDLCUDA, 0},
                             .ndim = (int32_t)info->rank,
                             .dtype = dtype,
                             .shape = c->shapes[i]};
  c->args[i] = (fathom_arg){.name = info->name, .tensor = &c->tensors[i]};
  if (!is_input) return;
  void *values = malloc(bytes + 1);
  fill_values(values, bytes, info->dtype, info->name);
  gpu_copy(c->tensors[i].data, values, bytes);
  free(values);
  c->inputs++;
}

void gpu_case_open(gpu_case *c, const char *text, const char *sizes, const char *schedule,
                   int64_t rows) {
  *c = (gpu_case){.count = 0};
  assert_fathom(fathom_context_create(NULL, &c->context));
  assert_fathom(fathom_parse(c->context, text, strlen(text), NULL, &c->module));
  assert_fathom(fathom_module_graph(c->module, NULL, &c->graph));
  bind_sizes(c, sizes);
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = "cuda";
  options.schedule = schedule;
  assert_fathom(fathom_compile(c->context, c->graph, &options, &c->executable));
  fathom_tensor_info info = FATHOM_INIT(info);
  for (uint32_t i = 0; fathom_graph_param(c->graph, i, &info) == FATHOM_OK; i++)
    add_tensor(c, &info, true, rows);
  for (uint32_t i = 0; fathom_graph_result(c->graph, i, &info) == FATHOM_OK; i++)
    add_tensor(c, &info, false, rows);
  gpu_case_clear(c);
  gpu_case_resize(c);
}

void gpu_case_resize(gpu_case *c) {
  assert_fathom(fathom_workspace_size(c->executable, c->args, c->count, NULL, &c->workspace_bytes));
  c->workspace = gpu_allocate(c->workspace_bytes);
}

void gpu_case_close(gpu_case *c) {
  fathom_executable_destroy(c->executable);
  fathom_module_destroy(c->module);
  fathom_context_destroy(c->context);
}

fathom_status gpu_case_run(gpu_case *c, CUstream stream) {
  fathom_executor executor = FATHOM_INIT(executor);
  executor.stream = stream;
  return fathom_run(c->executable, c->args, c->count, c->workspace, c->workspace_bytes, &executor);
}

void gpu_case_clear(gpu_case *c) {
  for (uint32_t i = c->inputs; i < c->count; i++)
    gpu_assert(gpu->ops->fill(gpu, NULL, c->tensors[i].data, 0xff, c->bytes[i], &gpu_diag) ==
               BASE_OK);
  gpu_wait(NULL);
}

uint32_t gpu_case_find(const gpu_case *c, const char *name) {
  for (uint32_t i = 0; i < c->count; i++)
    if (strcmp(c->args[i].name, name) == 0) return i;
  fail_msg("no tensor is called %s", name);
  return 0;
}

void *gpu_case_read(const gpu_case *c, const char *name) {
  uint32_t i = gpu_case_find(c, name);
  void *out = base_alloc(&gpu_arena, c->bytes[i]);
  gpu_copy(out, c->tensors[i].data, c->bytes[i]);
  return out;
}

void gpu_case_assert_same(const gpu_case *a, const gpu_case *b) {
  assert_int_equal(a->count, b->count);
  for (uint32_t i = a->inputs; i < a->count; i++) {
    assert_int_equal(a->bytes[i], b->bytes[i]);
    const char *name = a->args[i].name;
    assert_memory_equal(gpu_case_read(a, name), gpu_case_read(b, name), a->bytes[i]);
  }
}
