// What a call of a model's site costs the host: T = 1 through a model whose rows are so short that the kernels
// take next to nothing, so that what is left is checking, binding and launching.
//
//   bench/site_calls [MODEL.yaml [REPEATS]]
//
// Without a model it writes one of 8 channels to a temporary file. Sublayers are identities.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fathom.h"

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void check(fathom_status status) {
  if (status == FATHOM_OK) return;
  fprintf(stderr, "%s\n", fathom_error_text());
  exit(1);
}

static const char small_model[] = "schema: 1\nname: small\nhidden: 8\nsublayers: 32\n"
                                  "blocks: {size: 8}\ndtype: f32\n";

static const char *write_model(void) {
  static char path[] = "/tmp/fathom-site-calls-XXXXXX.yaml";
  const int file = mkstemps(path, 5);
  if (file < 0 || write(file, small_model, sizeof small_model - 1) < 0) exit(1);
  close(file);
  return path;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// One thread calls the kernel itself: waking others would be measured.
static void run_here(void *user, size_t count, void (*work)(void *argument, size_t index),
                     void *argument) {
  (void)user;
  for (size_t i = 0; i < count; i++)
    work(argument, i);
}

static void bind_all(fathom_model *model, const fathom_model_info *info) {
  for (uint32_t i = 0; i < info->param_count; i++) {
    fathom_tensor_info param = FATHOM_INIT(param);
    check(fathom_model_param(model, i, &param));
    int64_t count = 1;
    for (uint32_t j = 0; j < param.rank; j++)
      count *= param.sizes[j];
    // All bits zero is 0 in every dtype; gains of 0 do no harm here.
    DLTensor tensor = {.data = calloc((size_t)count, 4),
                       .device = {kDLCPU, 0},
                       .ndim = (int)param.rank,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = param.sizes};
    if (param.dtype == FATHOM_BF16) tensor.dtype = (DLDataType){kDLBfloat, 16, 1};
    if (param.dtype == FATHOM_F16) tensor.dtype = (DLDataType){kDLFloat, 16, 1};
    const fathom_arg arg = {.name = param.name, .tensor = &tensor};
    check(fathom_model_bind(model, &arg, 1));
  }
}

int main(int argc, char **argv) {
  fathom_context *context;
  fathom_model *model;
  fathom_sequence *sequence;
  const char *path = argc > 1 ? argv[1] : write_model();
  const int repeats = argc > 2 ? atoi(argv[2]) : 2000;
  check(fathom_context_create(NULL, &context));
  check(fathom_model_open(context, path, NULL, &model));
  if (argc < 2) unlink(path);
  fathom_model_info info = FATHOM_INIT(info);
  check(fathom_model_get_info(model, &info));
  bind_all(model, &info);
  check(fathom_sequence_create(model, &sequence));
  fathom_executor executor = FATHOM_INIT(executor);
  executor.concurrency = 1;
  executor.parallel_for = run_here;
  size_t bytes;
  check(fathom_sequence_workspace(sequence, 1, &executor, &bytes));
  void *workspace = aligned_alloc(128, (bytes + 127) / 128 * 128);
  int64_t shape[] = {1, info.hidden};
  float *x = calloc((size_t)info.hidden, sizeof *x), *f = calloc((size_t)info.hidden, sizeof *f);
  DLTensor row = {
      .data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  if (info.dtype == FATHOM_BF16) row.dtype = (DLDataType){kDLBfloat, 16, 1};
  if (info.dtype == FATHOM_F16) row.dtype = (DLDataType){kDLFloat, 16, 1};
  DLTensor given = row;
  given.data = f;
  const DLTensor *addends[] = {&given, &given};
  fathom_site_outputs outputs = FATHOM_INIT(outputs);
  outputs.input = &row;
  double *times = calloc((size_t)repeats, sizeof *times);
  for (int i = 0; i < repeats; i++) {
    const double start = now_us();
    check(fathom_sequence_begin(sequence, &given, &outputs, workspace, bytes, &executor));
    for (uint32_t s = 1; s < info.sublayers; s++)
      check(
          fathom_sequence_site(sequence, s, addends, fathom_model_addends(model, s - 1), &outputs));
    check(fathom_sequence_end(sequence, addends, fathom_model_addends(model, info.sublayers - 1),
                              &outputs));
    times[i] = (now_us() - start) / info.sites;
  }
  qsort(times, (size_t)repeats, sizeof *times, ascending);
  printf("%s: %u sites, %lld channels, one token: %.2f us a call (median of %d depths, quartiles "
         "%.2f and %.2f)\n",
         info.name, info.sites, (long long)info.hidden, times[repeats / 2], repeats,
         times[repeats / 4], times[3 * repeats / 4]);
  free(times);
  free(workspace);
  free(x);
  free(f);
  fathom_sequence_destroy(sequence);
  fathom_model_destroy(model);
  fathom_context_destroy(context);
  return 0;
}
