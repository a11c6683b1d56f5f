// How long NVRTC takes for generated kernels, and how well two workers share a batch. Prints a
// table; docs/performance.md quotes it. Not a test: a machine at work spoils the figures, so they
// are given in processor time as well, which it spoils less.
//
//   nvrtc_time ARCH FILE.fir[,AXIS=SIZE]...
//
// Times are for every form of each kernel with its default schedule, from text to cubin, without the
// cache: the forms with wide accesses, and those for any strides, which come last and are named
// X_any. The batch is 24 kernels: those of the list in turn, each with another first line.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/cuda/cuda.h"
#include "passes/passes.h"

enum { REPEATS = 5, BATCH = 24, MOST = 64 };

typedef struct entry {
  cuda_unit unit;
  bool any;
  double wall, processor; // ms, medians
} entry;

static int fail(base_diag *diag) {
  fprintf(stderr, "%.*s\n", BASE_FMT(base_diag_render(diag)));
  return 1;
}

static double now_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, compare);
  return values[count / 2];
}

// ---- kernels ------------------------------------------------------------------------------------

static ir_graph *read_graph(base_arena *arena, char *argument, base_diag *diag) {
  char *sizes = strchr(argument, ',');
  if (sizes) *sizes++ = '\0';
  base_str text, why;
  if (base_file_read(arena, argument, &text, &why) != BASE_OK) {
    base_error(diag, (base_loc){0}, "%.*s", BASE_FMT(why));
    return NULL;
  }
  base_diag_init(diag, arena, base_str_from(argument), text);
  ir_module *module = ir_parse(arena, text, diag);
  if (!module) return NULL;
  ir_graph *graph = module->graphs.data[0];
  for (char *word = sizes ? strtok(sizes, ",") : NULL; word; word = strtok(NULL, ",")) {
    char *equals = strchr(word, '=');
    base_str axis = {word, equals ? (size_t)(equals - word) : strlen(word)};
    if (!ir_bind_axis(graph, axis, equals ? atoll(equals + 1) : 0, diag)) return NULL;
  }
  if (!ir_verify(graph, IR_STAGE_BOUND, diag)) return NULL;
  return pass_run(graph, pass_cuda_pipeline, &(pass_options){0}, diag);
}

static bool add_kernels(base_arena *arena, const char *arch, const ir_graph *graph, entry *entries,
                        uint32_t *count, base_diag *diag) {
  cuda_plan *plan = cuda_plan_create(arena, graph, &(cg_options){.arch = arch}, diag);
  if (!plan) return false;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count && *count < MOST; j++)
      entries[(*count)++] = (entry){
          .unit = {plan->kernels[i].names[j], cuda_form_text(arena, plan, i, j, true)},
          .any = j > 0,
      };
  return true;
}

// ---- measuring ----------------------------------------------------------------------------------

static bool measure(const cuda_nvrtc *nvrtc, const char *arch, entry *e, base_diag *diag) {
  double wall[REPEATS], processor[REPEATS];
  for (int i = 0; i < REPEATS; i++) {
    base_arena arena;
    base_arena_init(&arena, NULL);
    cuda_binary binary;
    wall[i] = -now_ms(CLOCK_MONOTONIC);
    processor[i] = -now_ms(CLOCK_PROCESS_CPUTIME_ID);
    bool good = cuda_compile_unit(&arena, nvrtc, arch, &e->unit, &binary, diag);
    processor[i] += now_ms(CLOCK_PROCESS_CPUTIME_ID);
    wall[i] += now_ms(CLOCK_MONOTONIC);
    base_arena_reset(&arena);
    if (!good) return false;
  }
  e->wall = median(wall, REPEATS);
  e->processor = median(processor, REPEATS);
  return true;
}

static void print_entry(const entry *e) {
  uint32_t lines = 0;
  for (size_t i = 0; i < e->unit.text.length; i++)
    lines += e->unit.text.data[i] == '\n';
  printf("%-24s %8.0f %8.0f  %u\n", e->unit.name, e->wall, e->processor, lines);
}

static void print_median(const char *what, const entry *entries, uint32_t count, bool wide,
                         bool any) {
  double walls[MOST], processors[MOST];
  uint32_t used = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!(entries[i].any ? any : wide)) continue;
    walls[used] = entries[i].wall;
    processors[used++] = entries[i].processor;
  }
  if (used) printf("%-24s %8.0f %8.0f\n", what, median(walls, used), median(processors, used));
}

static double batch_ms(const cuda_nvrtc *nvrtc, const char *arch, uint32_t workers,
                       const cuda_unit *units, base_diag *diag) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  cuda_binary binaries[BATCH];
  const cuda_compile_options options = {.arch = arch, .workers = workers};
  double ms = -now_ms(CLOCK_MONOTONIC);
  bool good = cuda_compile(&arena, nvrtc, &options, units, BATCH, binaries, diag);
  ms += now_ms(CLOCK_MONOTONIC);
  base_arena_reset(&arena);
  return good ? ms : -1;
}

static bool measure_batch(base_arena *arena, const cuda_nvrtc *nvrtc, const char *arch,
                          const entry *entries, uint32_t count, base_diag *diag) {
  cuda_unit units[BATCH];
  for (uint32_t i = 0; i < BATCH; i++) {
    const cuda_unit *unit = &entries[i % count].unit;
    units[i] = (cuda_unit){unit->name, base_str_format(arena, "// %u\n%s", i, unit->text.data)};
  }
  double one[3], two[3], ratio[3];
  for (int i = 0; i < 3; i++) { // in turns, so that other work on the machine meets both
    one[i] = batch_ms(nvrtc, arch, 1, units, diag);
    two[i] = batch_ms(nvrtc, arch, 2, units, diag);
    if (one[i] < 0 || two[i] < 0) return false;
    ratio[i] = one[i] / two[i];
  }
  printf("%d kernels: %.0f ms on one worker, %.0f ms on two, ratio %.2f\n", BATCH, median(one, 3),
         median(two, 3), median(ratio, 3));
  return true;
}

int main(int argc, char **argv) {
  static base_arena arena;
  static base_diag diag;
  static entry entries[MOST];
  uint32_t count = 0;
  base_str why;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(&arena, &why);
  if (argc < 3 || !nvrtc) {
    fprintf(stderr, "%s\n", argc < 3 ? "usage: nvrtc_time ARCH FILE.fir[,AXIS=SIZE]..." : why.data);
    return 2;
  }
  for (int i = 2; i < argc; i++) {
    ir_graph *graph = read_graph(&arena, argv[i], &diag);
    if (!graph || !add_kernels(&arena, argv[1], graph, entries, &count, &diag)) return fail(&diag);
  }
  printf("%-24s %8s %8s  lines\n", "kernel", "wall ms", "cpu ms");
  for (uint32_t i = 0; i < count; i++) {
    if (!measure(nvrtc, argv[1], &entries[i], &diag)) return fail(&diag);
    print_entry(&entries[i]);
  }
  print_median("median, wide accesses", entries, count, true, false);
  print_median("median, any strides", entries, count, false, true);
  print_median("median", entries, count, true, true);
  if (!measure_batch(&arena, nvrtc, argv[1], entries, count, &diag)) return fail(&diag);
  base_arena_reset(&arena);
  return 0;
}
