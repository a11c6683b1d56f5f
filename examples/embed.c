// Embedding Fathom in a host that keeps its bank as separate activations and has threads of its
// own: compile once, then run the same executable for any number of tokens, from several threads at
// once.
//
//   embed k3_site.fir
//
// What to look at: `slices` binds the bank without copying it together; the executor lends Fathom
// the host's threads; each request has its own outputs and workspace, and nothing is locked.
#include <fathom.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN = 896, BLOCKS = 8, TOKENS = 100, WORKERS = 2, REQUESTS = 3 };

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, fathom_error_text());
  return 1;
}

// ---- tensors of the host ------------------------------------------------------------------------

typedef struct tensor { // memory and the DLPack view of it
  DLTensor view;
  int64_t shape[2], strides[2];
} tensor;

// bf16[tokens, HIDDEN]; rows are `stride` elements apart, as in a slice of a larger activation.
static void make_rows(tensor *t, int64_t tokens, int64_t stride) {
  *t = (tensor){.shape = {tokens, HIDDEN}, .strides = {stride, 1}};
  t->view = (DLTensor){.device = {kDLCPU, 0},
                       .dtype = {kDLBfloat, 16, 1},
                       .ndim = 2,
                       .shape = t->shape,
                       .strides = t->strides};
  t->view.data = calloc((size_t)(tokens * stride), sizeof(uint16_t));
}

static void make_vector(tensor *t, uint8_t code, uint8_t bits) {
  *t = (tensor){.shape = {HIDDEN}};
  t->view =
      (DLTensor){.device = {kDLCPU, 0}, .dtype = {code, bits, 1}, .ndim = 1, .shape = t->shape};
  t->view.data = calloc(HIDDEN, bits / 8);
}

static void fill_bf16(tensor *t, unsigned seed) {
  int64_t rows = t->view.ndim == 2 ? t->shape[0] : 1;
  int64_t stride = t->view.ndim == 2 ? t->strides[0] : HIDDEN;
  for (int64_t i = 0; i < rows * HIDDEN; i++) {
    float value = (float)((seed + (unsigned)i) * 2654435761u >> 16) / 65536.0f - 0.5f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)t->view.data)[i / HIDDEN * stride + i % HIDDEN] = (uint16_t)(bits >> 16);
  }
}

// ---- threads of the host ------------------------------------------------------------------------

typedef struct share { // of the calls: first, first + step, ...
  void (*work)(void *argument, size_t index);
  void *argument;
  size_t first, step, count;
} share;

static void *run_share(void *opaque) {
  share *s = opaque;
  for (size_t i = s->first; i < s->count; i += s->step)
    s->work(s->argument, i);
  return NULL;
}

// Runs all calls and waits for them. A real host hands them to its pool; this one starts threads.
static void parallel_for(void *user, size_t count, void (*work)(void *argument, size_t index),
                         void *argument) {
  (void)user;
  pthread_t threads[WORKERS];
  share shares[WORKERS];
  for (size_t i = 0; i < WORKERS; i++)
    shares[i] = (share){work, argument, i, WORKERS, count};
  for (size_t i = 1; i < WORKERS; i++)
    if (pthread_create(&threads[i], NULL, run_share, &shares[i]) != 0) abort();
  run_share(&shares[0]);
  for (size_t i = 1; i < WORKERS; i++)
    pthread_join(threads[i], NULL);
}

// ---- a request ----------------------------------------------------------------------------------

typedef struct host {
  fathom_executable *executable;
  tensor bank[BLOCKS], prefix, delta, query, gain, out_gain;
} host;

typedef struct request {
  const host *host;
  int64_t tokens;
  tensor mixed, sum; // its own outputs
  int status;
} request;

static const DLTensor *first_rows(const tensor *all, int64_t tokens, tensor *part) {
  *part = *all;
  part->shape[0] = tokens;
  part->view.shape = part->shape;
  part->view.strides = part->strides;
  return &part->view;
}

static int run_request(request *r) {
  const host *h = r->host;
  tensor parts[BLOCKS + 2];
  const DLTensor *slices[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    slices[i] = first_rows(&h->bank[i], r->tokens, &parts[i]);
  fathom_arg args[] = {
      {.name = "bank", .slices = slices, .slice_count = BLOCKS},
      {.name = "prefix", .tensor = first_rows(&h->prefix, r->tokens, &parts[BLOCKS])},
      {.name = "delta", .tensor = first_rows(&h->delta, r->tokens, &parts[BLOCKS + 1])},
      {.name = "query", .tensor = &h->query.view},
      {.name = "gain", .tensor = &h->gain.view},
      {.name = "out_gain", .tensor = &h->out_gain.view},
      {.name = "y", .tensor = &r->mixed.view},
      {.name = "p", .tensor = &r->sum.view},
  };
  enum { COUNT = sizeof args / sizeof args[0] };
  fathom_executor executor = FATHOM_INIT(executor);
  executor.concurrency = WORKERS;
  executor.parallel_for = parallel_for;
  size_t bytes;
  if (fathom_workspace_size(h->executable, args, COUNT, &executor, &bytes))
    return fail("workspace");
  void *workspace = aligned_alloc(64, (bytes + 63) / 64 * 64);
  int status = 0;
  if (fathom_run(h->executable, args, COUNT, workspace, bytes, &executor)) status = fail("run");
  free(workspace);
  return status;
}

static void *serve(void *opaque) {
  request *r = opaque;
  r->status = run_request(r);
  return NULL;
}

// ---- the program --------------------------------------------------------------------------------

static int compile(fathom_context *context, const char *path, fathom_executable **executable) {
  static char text[1 << 16];
  FILE *file = fopen(path, "rb");
  if (file == NULL) return perror(path), 1;
  size_t length = fread(text, 1, sizeof text, file);
  fclose(file);
  fathom_module *module;
  fathom_graph *graph;
  if (fathom_parse(context, text, length, path, &module)) return fail("parse");
  int status = 0;
  if (fathom_module_graph(module, NULL, &graph) || fathom_graph_bind(graph, "D", HIDDEN) ||
      fathom_compile(context, graph, NULL, executable))
    status = fail("compile");
  fathom_module_destroy(module); // the executable needs neither module nor graph
  return status;
}

static void make_host(host *h) {
  for (int i = 0; i < BLOCKS; i++) {
    make_rows(&h->bank[i], TOKENS, HIDDEN);
    fill_bf16(&h->bank[i], 1000u * (unsigned)i);
  }
  make_rows(&h->prefix, TOKENS, HIDDEN + 64); // rows of a wider buffer
  make_rows(&h->delta, TOKENS, HIDDEN);
  fill_bf16(&h->prefix, 7);
  fill_bf16(&h->delta, 77);
  make_vector(&h->query, kDLFloat, 32); // zero, as at the start of training: uniform weights
  make_vector(&h->gain, kDLFloat, 32);
  make_vector(&h->out_gain, kDLBfloat, 16);
  fill_bf16(&h->out_gain, 3);
}

static void free_host(host *h) {
  for (int i = 0; i < BLOCKS; i++)
    free(h->bank[i].view.data);
  tensor *rest[] = {&h->prefix, &h->delta, &h->query, &h->gain, &h->out_gain};
  for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
    free(rest[i]->view.data);
}

// Rows are independent: what a short request computes are the first rows of the long one.
static int compare(const request *longest, const request *other) {
  size_t bytes = (size_t)other->tokens * HIDDEN * sizeof(uint16_t);
  return memcmp(longest->mixed.view.data, other->mixed.view.data, bytes) != 0 ||
         memcmp(longest->sum.view.data, other->sum.view.data, bytes) != 0;
}

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: embed k3_site.fir\n"), 2;
  fathom_context *context;
  if (fathom_context_create(NULL, &context)) return fail("context");
  host h = {0};
  if (compile(context, argv[1], &h.executable)) return 1;
  make_host(&h);

  request requests[REQUESTS] = {{.tokens = TOKENS}, {.tokens = 33}, {.tokens = 1}};
  pthread_t threads[REQUESTS];
  int status = 0;
  for (int i = 0; i < REQUESTS; i++) {
    requests[i].host = &h;
    make_rows(&requests[i].mixed, requests[i].tokens, HIDDEN);
    make_rows(&requests[i].sum, requests[i].tokens, HIDDEN);
    if (pthread_create(&threads[i], NULL, serve, &requests[i]) != 0) abort();
  }
  for (int i = 0; i < REQUESTS; i++) {
    pthread_join(threads[i], NULL);
    int wrong = requests[i].status || compare(&requests[0], &requests[i]);
    printf("%lld tokens: %s\n", (long long)requests[i].tokens, wrong ? "wrong" : "done");
    status |= wrong;
  }
  for (int i = 0; i < REQUESTS; i++) {
    free(requests[i].mixed.view.data);
    free(requests[i].sum.view.data);
  }
  free_host(&h);
  fathom_executable_destroy(h.executable);
  fathom_context_destroy(context);
  return status;
}
