// Phase 1 by Fathom against the C loop of phase1_loop.c, interleaved in one run on the same
// threads.
//
//   phase1 [--sources N] [--queries S] [--hidden D] [--tokens T] [--threads K]
//          [--schedule k=v,..] [--rounds R]
#include <fathom.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "phase1_loop.h"

static const char text[] =
    "graph @phase1(%bank: f32[N, T, D], %query: f32[S, D], %gain: f32[D]) {\n"
    "  %k = rms_norm %bank, %gain over D {eps = 1e-5} : f32[N, T, D]\n"
    "  %z = dot %k, %query over D : f32[S, N, T]\n"
    "  %a = softmax %z over N : f32[S, N, T]\n"
    "  %out = weighted_sum %a, %bank over N : f32[S, T, D]\n"
    "  %lse = logsumexp %z over N : f32[S, T]\n"
    "  return %out, %lse\n"
    "}\n";

typedef struct settings {
  long sources, queries, hidden, tokens, threads, rounds;
  const char *schedule;
} settings;

static double microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

// ---- the C loop on threads ----------------------------------------------------------------------

typedef struct slice {
  const phase1_problem *problem;
  size_t begin, end;
} slice;

static void *run_slice(void *argument) {
  slice *part = argument;
  phase1_loop(part->problem, part->begin, part->end);
  return NULL;
}

static void run_loop(const phase1_problem *problem, size_t threads) {
  pthread_t ids[64];
  slice parts[64];
  for (size_t i = 0; i < threads; i++) {
    parts[i] = (slice){problem, problem->T * i / threads, problem->T * (i + 1) / threads};
    if (i > 0) pthread_create(&ids[i], NULL, run_slice, &parts[i]);
  }
  run_slice(&parts[0]);
  for (size_t i = 1; i < threads; i++)
    pthread_join(ids[i], NULL);
}

// ---- set-up -------------------------------------------------------------------------------------

static float *random_floats(size_t count) {
  float *data = aligned_alloc(64, (count * sizeof(float) + 63) & ~(size_t)63);
  unsigned long long state = 88172645463325252ull;
  for (size_t i = 0; data && i < count; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    data[i] = (float)((double)(state >> 11) / 9007199254740992.0 * 2 - 1);
  }
  return data;
}

static DLTensor tensor(float *data, int64_t *shape, int rank) {
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = rank,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape};
}

static void check(fathom_status status, const char *what) {
  if (status == FATHOM_OK) return;
  fprintf(stderr, "bench_phase1: %s: %s\n", what, fathom_error_text());
  exit(1);
}

static fathom_executable *compile(fathom_context *context, fathom_module **module,
                                  const settings *s) {
  fathom_graph *graph;
  check(fathom_parse(context, text, sizeof text - 1, "phase1", module), "parse");
  check(fathom_module_graph(*module, NULL, &graph), "graph");
  check(fathom_graph_bind(graph, "N", s->sources), "bind N");
  check(fathom_graph_bind(graph, "S", s->queries), "bind S");
  check(fathom_graph_bind(graph, "D", s->hidden), "bind D");
  fathom_compile_options options = FATHOM_INIT(options);
  options.schedule = s->schedule;
  fathom_executable *executable;
  check(fathom_compile(context, graph, &options, &executable), "compile");
  return executable;
}

static double largest_difference(const float *a, const float *b, size_t count) {
  double largest = 0;
  for (size_t i = 0; i < count; i++)
    largest = fmax(largest, fabs((double)a[i] - b[i]));
  return largest;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, long count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

static int parse(int argc, char **argv, settings *s) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--sources") == 0)
      s->sources = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--queries") == 0)
      s->queries = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--hidden") == 0)
      s->hidden = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--tokens") == 0)
      s->tokens = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--threads") == 0)
      s->threads = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--rounds") == 0)
      s->rounds = atol(argv[i + 1]);
    else if (strcmp(argv[i], "--schedule") == 0)
      s->schedule = argv[i + 1];
    else
      return 0;
  }
  return argc % 2 == 1 && s->sources > 0 && s->sources <= 64 && s->threads > 0 &&
         s->threads <= 64 && s->rounds > 0 && s->rounds < 1000;
}

int main(int argc, char **argv) {
  settings s = {
      .sources = 8, .queries = 16, .hidden = 2048, .tokens = 2048, .threads = 2, .rounds = 9};
  if (!parse(argc, argv, &s)) return fprintf(stderr, "usage: see the head of bench/phase1.c\n"), 2;
  size_t N = (size_t)s.sources, S = (size_t)s.queries, D = (size_t)s.hidden, T = (size_t)s.tokens;
  float *bank = random_floats(N * T * D), *query = random_floats(S * D), *gain = random_floats(D);
  float *out = random_floats(S * T * D), *lse = random_floats(S * T);
  float *peer_out = random_floats(S * T * D), *peer_lse = random_floats(S * T);
  phase1_problem problem = {N, T, D, S, bank, query, gain, peer_out, peer_lse};
  fathom_context_options options = FATHOM_INIT(options);
  options.threads = (uint32_t)s.threads;
  fathom_context *context;
  fathom_module *module;
  check(fathom_context_create(&options, &context), "context");
  fathom_executable *executable = compile(context, &module, &s);
  int64_t shapes[5][3] = {{s.sources, s.tokens, s.hidden},
                          {s.queries, s.hidden},
                          {s.hidden},
                          {s.queries, s.tokens, s.hidden},
                          {s.queries, s.tokens}};
  DLTensor tensors[5] = {tensor(bank, shapes[0], 3), tensor(query, shapes[1], 2),
                         tensor(gain, shapes[2], 1), tensor(out, shapes[3], 3),
                         tensor(lse, shapes[4], 2)};
  const char *names[5] = {"bank", "query", "gain", "out", "lse"};
  fathom_arg args[5];
  for (int i = 0; i < 5; i++)
    args[i] = (fathom_arg){.name = names[i], .tensor = &tensors[i]};
  size_t bytes;
  check(fathom_workspace_size(executable, args, 5, NULL, &bytes), "workspace");
  void *workspace = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
  double ours[1000], theirs[1000];
  for (long i = -1; i < s.rounds; i++) { // the first round warms up
    double start = microseconds();
    check(fathom_run(executable, args, 5, workspace, bytes, NULL), "run");
    double middle = microseconds();
    run_loop(&problem, (size_t)s.threads);
    double end = microseconds();
    if (i >= 0) ours[i] = middle - start, theirs[i] = end - middle;
  }
  double fathom_us = median(ours, s.rounds), loop_us = median(theirs, s.rounds);
  double moved = (double)(N * T * D + S * T * D + S * T) * sizeof(float);
  printf("N=%zu S=%zu D=%zu T=%zu threads=%ld rounds=%ld\n", N, S, D, T, s.threads, s.rounds);
  printf("fathom: %.0f us, %.1f GB/s   C loop: %.0f us, %.1f GB/s   ratio %.2f\n", fathom_us,
         moved / fathom_us * 1e-3, loop_us, moved / loop_us * 1e-3, loop_us / fathom_us);
  printf("largest difference: %.2e (out), %.2e (lse)\n",
         largest_difference(out, peer_out, S * T * D), largest_difference(lse, peer_lse, S * T));
  fathom_executable_destroy(executable);
  fathom_module_destroy(module);
  fathom_context_destroy(context);
  return 0;
}
