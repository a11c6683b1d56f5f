// How long compiling takes: cold (no object cached) and from the object cache, in one process, the
// first call (which opens LLVM) apart from later ones.
//
//   compile_time FILE.fir [AXIS=SIZE]...
#include <fathom.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEATS = 15 };

static int fail(const char *what) {
  fprintf(stderr, "compile_time: %s: %s\n", what, fathom_error_text());
  return 1;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Compile times in microseconds; 0 on failure. The first is returned, the median of the others goes
// to *median.
static double measure(const char *text, int argc, char **argv, const char *cache, double *median) {
  double first = 0, later[REPEATS];
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = cache;
  fathom_context *context;
  if (fathom_context_create(&options, &context) != FATHOM_OK) return fail("context"), 0;
  fathom_module *module;
  fathom_graph *graph;
  if (fathom_parse(context, text, strlen(text), argv[1], &module) != FATHOM_OK ||
      fathom_module_graph(module, NULL, &graph) != FATHOM_OK)
    return fail("parse"), 0;
  for (int i = 2; i < argc; i++) {
    char *equals = strchr(argv[i], '=');
    if (!equals) return 0;
    *equals = '\0';
    fathom_status status = fathom_graph_bind(graph, argv[i], atoll(equals + 1));
    *equals = '=';
    if (status != FATHOM_OK) return fail("bind"), 0;
  }
  for (int i = 0; i <= REPEATS; i++) {
    fathom_executable *executable;
    if (fathom_compile(context, graph, NULL, &executable) != FATHOM_OK) return fail("compile"), 0;
    fathom_executable_info info = FATHOM_INIT(info);
    fathom_executable_get_info(executable, &info);
    if (i == 0)
      first = info.compile_us;
    else
      later[i - 1] = info.compile_us;
    fathom_executable_destroy(executable);
  }
  qsort(later, REPEATS, sizeof later[0], compare);
  *median = later[REPEATS / 2];
  fathom_module_destroy(module);
  fathom_context_destroy(context);
  return first;
}

int main(int argc, char **argv) {
  if (argc < 2) return fprintf(stderr, "usage: compile_time FILE.fir [AXIS=SIZE]...\n"), 2;
  FILE *file = fopen(argv[1], "rb");
  if (!file) return perror(argv[1]), 1;
  static char text[1 << 20];
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  char folder[] = "/tmp/fathom-compile-XXXXXX";
  if (!mkdtemp(folder)) return perror("mkdtemp"), 1;
  double cold, cached, first = measure(text, argc, argv, "", &cold);
  double second = first > 0 ? measure(text, argc, argv, folder, &cached) : 0;
  if (second <= 0) return 1;
  printf("first compile of the process (opens LLVM): %.1f ms\n", first * 1e-3);
  printf("cold: %.1f ms (median of %d)\n", cold * 1e-3, REPEATS);
  printf("from the object cache: %.2f ms (median of %d)\n", cached * 1e-3, REPEATS);
  char command[64];
  snprintf(command, sizeof command, "rm -r %s", folder);
  return system(command) != 0;
}
