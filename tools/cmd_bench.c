// fathom bench: the speed of a kernel beside the machine's ceiling, measured in the same run.
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum { DEFAULT_SIZE = 1024 }; // fathom_bench_options says so; shown in the axes

typedef struct measurement {
  const fathom_graph *graph;
  int64_t dynamic_size;
  fathom_executable_info info;
  fathom_bench_result result;
} measurement;

// ---- axes ---------------------------------------------------------------------------------------

typedef void (*axis_visitor)(const char *name, int64_t size, bool first);

static bool seen_before(const fathom_tensor_info *infos, uint32_t tensor, uint32_t axis) {
  for (uint32_t i = 0; i <= tensor; i++)
    for (uint32_t j = 0; j < (i < tensor ? infos[i].rank : axis); j++)
      if (strcmp(infos[i].axes[j], infos[tensor].axes[axis]) == 0) return true;
  return false;
}

// Every axis of the graph's parameters and results once, in order of appearance.
static void visit_axes(const measurement *measured, axis_visitor visit) {
  uint32_t param_count, result_count;
  const fathom_tensor_info *params = cli_params(measured->graph, &param_count);
  const fathom_tensor_info *results = cli_results(measured->graph, &result_count);
  uint32_t count = param_count + result_count;
  fathom_tensor_info *all = cli_alloc(count, sizeof *all);
  for (uint32_t i = 0; i < count; i++)
    all[i] = i < param_count ? params[i] : results[i - param_count];
  bool first = true;
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t j = 0; j < all[i].rank; j++) {
      if (seen_before(all, i, j)) continue;
      int64_t size = all[i].sizes[j];
      visit(all[i].axes[j], size == FATHOM_DYNAMIC ? measured->dynamic_size : size, first);
      first = false;
    }
  }
}

// ---- output -------------------------------------------------------------------------------------

static void print_json_axis(const char *name, int64_t size, bool first) {
  printf("%s", first ? "" : ", ");
  cli_json_string(name);
  printf(": %" PRId64, size);
}

static void print_json(const measurement *measured) {
  const fathom_executable_info *info = &measured->info;
  const fathom_bench_result *result = &measured->result;
  printf("{\"graph\": ");
  cli_json_string(info->graph);
  cli_json_text("kernel", info->kernel ? info->kernel : "");
  cli_json_text("target", info->target);
  if (*info->device) {
    cli_json_text("device", info->device);
    cli_json_text("arch", info->arch);
  }
  printf(", \"axes\": {");
  visit_axes(measured, print_json_axis);
  printf("}");
  cli_json_text("schedule", result->schedule);
  cli_json_text("schedule_source", result->schedule_source);
  cli_json_number("median_us", result->median_us);
  cli_json_number("spread", result->spread);
  printf(", \"bytes\": %" PRIu64, result->bytes);
  cli_json_number("gb_s", result->gb_s);
  cli_json_number("ceiling_gb_s", result->ceiling_gb_s);
  cli_json_number("of_ceiling", result->of_ceiling);
  cli_json_number("minimum_us", result->minimum_us);
  cli_json_number("compile_us", info->compile_us);
  cli_json_text("cache", cli_cache_name(result->cache));
  printf(", \"sets\": %u", result->sets);
  cli_json_text("timing", result->batch ? "device events" : "host clock");
  if (result->batch) {
    cli_json_number("launch_us", result->launch_us);
    printf(", \"batch\": %u", result->batch);
  }
  printf(", \"from_cache\": %s, \"kernels\": %u, \"runs\": %u", info->from_cache ? "true" : "false",
         info->kernel_count, result->runs);
  if (result->threads) printf(", \"threads\": %u", result->threads);
  printf("}\n");
}

static void print_table_axis(const char *name, int64_t size, bool first) {
  printf("%s%s=%" PRId64, first ? "" : " ", name, size);
}

static void print_table(const measurement *measured) {
  const fathom_executable_info *info = &measured->info;
  const fathom_bench_result *result = &measured->result;
  printf("graph     @%s on %s", info->graph, info->target);
  if (*info->device) printf(" (%s, %s)", info->device, info->arch);
  printf(", %u kernel%s, ", info->kernel_count, info->kernel_count == 1 ? "" : "s");
  visit_axes(measured, print_table_axis);
  printf("\nschedule  %s (%s)\n", result->schedule, result->schedule_source);
  printf("compiled  in %.2f ms%s\n", info->compile_us / 1e3,
         info->from_cache ? ", from the cache" : "");
  printf("time      %.1f us, spread %.1f %%, best %.1f us (%u runs", result->median_us,
         100 * result->spread, result->minimum_us, result->runs);
  if (result->threads) printf(", %u thread%s", result->threads, result->threads == 1 ? "" : "s");
  if (result->batch) printf(" of %u", result->batch);
  if (result->batch || result->cache == FATHOM_CACHE_COLD)
    printf(", caches %s", cli_cache_name(result->cache));
  printf(")\n");
  if (result->batch) printf("launch    %.1f us of the host\n", result->launch_us);
  printf("traffic   %.3f MB, %.2f GB/s\n", (double)result->bytes / 1e6, result->gb_s);
  printf("ceiling   %.2f GB/s, of which the kernel reaches %.1f %%\n", result->ceiling_gb_s,
         100 * result->of_ceiling);
}

// ---- measuring ----------------------------------------------------------------------------------

static int measure(const cli_session *session, const cli_options *options, fathom_cache cache,
                   const fathom_executable *executable) {
  measurement measured = {
      .graph = session->graph,
      .dynamic_size = options->size ? options->size : DEFAULT_SIZE,
      .info = FATHOM_INIT(measured.info),
      .result = FATHOM_INIT(measured.result),
  };
  fathom_bench_options wanted = FATHOM_INIT(wanted);
  wanted.dynamic_size = measured.dynamic_size;
  wanted.seconds = options->seconds;
  wanted.cache = cache;
  if (isatty(STDERR_FILENO)) fputs("fathom: measuring ...\n", stderr);
  if (fathom_executable_get_info(executable, &measured.info) != FATHOM_OK ||
      fathom_bench(session->context, session->graph, executable, &wanted, &measured.result) !=
          FATHOM_OK)
    return cli_library_failed();
  (options->json ? print_json : print_table)(&measured);
  cli_measured known = {.time_us = measured.result.median_us,
                        .gb_s = measured.result.gb_s,
                        .of_ceiling = measured.result.of_ceiling};
  cli_explain(session, options, cli_rows(session->graph, NULL, measured.dynamic_size), &known);
  return CLI_SUCCESS;
}

static int run(const cli_options *options) {
  cli_session session;
  fathom_executable *executable = NULL;
  fathom_cache cache;
  int status = cli_cache_state(options, &cache);
  if (status != CLI_SUCCESS) return status;
  status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) {
    fathom_compile_options compile = cli_compile_options(options);
    if (fathom_compile(session.context, session.graph, &compile, &executable) != FATHOM_OK)
      status = cli_library_failed();
  }
  if (status == CLI_SUCCESS) status = measure(&session, options, cache, executable);
  fathom_executable_destroy(executable);
  cli_session_close(&session);
  return status;
}

const cli_command cli_bench = {
    .name = "bench",
    .bit = CLI_BENCH,
    .operand = &cli_graph_file,
    .summary = "measure a kernel beside the machine's ceiling",
    .about =
        "Compiles a graph and measures it: time of a run (median, and spread as the quartiles'\n"
        "distance over the median), the bytes that must move, and their rate beside the ceiling,\n"
        "which is the best copy-like stream with the same reads and writes, interleaved with it.\n"
        "On cuda the GPU keeps the time, without the host's share of a launch, and the ceiling is "
        "a\n"
        "copy from device to device of as many bytes.\n"
        "With --cache cold runs, and the ceiling's, take other memory each time and find nothing "
        "of it\n"
        "in the caches; with --cache warm they find there what fits. Environment:\n"
        "  FATHOM_CPU_CACHE_MB=K   what all of the CPU's caches hold, where the system is wrong",
    .example = "  $ fathom bench k3_site.fir --set D=7168 --size 1024 --threads 2 --json\n"
               "  prints one line: {\"graph\": \"k3_site\", ..., \"of_ceiling\": 0.83, ...}\n",
    .run = run,
};
