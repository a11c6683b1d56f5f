// fathom check: a target's results on random inputs against the reference interpreter.
#include <inttypes.h>
#include <string.h>

#include "cli.h"

typedef struct tally {
  const fathom_graph *graph;
  int name_width;
  uint32_t checked, passed;
  uint64_t bytes, distinct, minimum; // that moved, at least once, that must
} tally;

static const char *dtype_of(const fathom_graph *graph, const char *name) {
  fathom_tensor_info info = FATHOM_INIT(info);
  for (uint32_t i = 0; fathom_graph_result(graph, i, &info) == FATHOM_OK; i++)
    if (strcmp(info.name, name) == 0) return cli_dtype_name(info.dtype);
  return "";
}

static void print_line(void *user, const fathom_check_result *result) {
  tally *sum = user;
  sum->checked++;
  sum->passed += result->passed != 0;
  printf("%-*s  %-4s  seed %-3u  error %.2e  bound %.2e  %s\n", sum->name_width, result->name,
         dtype_of(sum->graph, result->name), result->seed, result->error, result->bound,
         result->passed ? "ok" : "FAIL");
  fflush(stdout); // a check can take a while
}

// ": read 4096 (1.000 of the minimum), distinct 4096". False when there is nothing to tell.
static bool print_way(const char *before, const char *way, uint64_t bytes, uint64_t distinct,
                      uint64_t minimum) {
  if (bytes == 0 && minimum == 0) return false;
  printf("%s %s %" PRIu64, before, way, bytes);
  if (minimum > 0) printf(" (%.3f of the minimum)", (double)bytes / (double)minimum);
  printf(", distinct %" PRIu64, distinct);
  return true;
}

static void print_traffic(void *user, const fathom_traffic *traffic) {
  tally *sum = user;
  sum->bytes += traffic->read + traffic->written;
  sum->distinct += traffic->read_distinct + traffic->written_distinct;
  sum->minimum += traffic->read_minimum + traffic->written_minimum;
  printf("traffic %%%s", traffic->name);
  bool read = print_way(":", "read", traffic->read, traffic->read_distinct, traffic->read_minimum);
  bool written = print_way(read ? ";" : ":", "written", traffic->written, traffic->written_distinct,
                           traffic->written_minimum);
  printf(read || written ? "\n" : ": none\n");
}

static void print_total(const tally *sum) {
  if (sum->minimum == 0) return;
  double minimum = (double)sum->minimum;
  printf("traffic: %.3f of the minimum, %" PRIu64 " bytes; distinct %.3f\n",
         (double)sum->bytes / minimum, sum->minimum, (double)sum->distinct / minimum);
}

static int widest_name(const fathom_graph *graph) {
  uint32_t count;
  const fathom_tensor_info *results = cli_results(graph, &count);
  size_t widest = 0;
  for (uint32_t i = 0; i < count; i++)
    if (strlen(results[i].name) > widest) widest = strlen(results[i].name);
  return (int)widest;
}

static int check(const cli_session *session, const cli_options *options) {
  tally sum = {.graph = session->graph, .name_width = widest_name(session->graph)};
  fathom_compile_options compile = cli_compile_options(options);
  fathom_check_options wanted = FATHOM_INIT(wanted);
  wanted.seeds = (uint32_t)options->seeds;
  wanted.empty = options->size == CLI_EMPTY;
  wanted.dynamic_size = wanted.empty ? 0 : options->size;
  wanted.misalign = (uint32_t)options->misalign;
  wanted.strided = options->strided;
  wanted.report = print_line;
  wanted.traffic = print_traffic;
  wanted.user = &sum;
  uint32_t failures = 0;
  if (fathom_check(session->context, session->graph, &compile, &wanted, &failures) != FATHOM_OK)
    return cli_library_failed();
  print_total(&sum);
  printf("check: %u of %u within bounds\n", sum.passed, sum.checked);
  if (failures == 0) return CLI_SUCCESS;
  return cli_fail("%u of %u results of @%s on target %s are beyond their bounds", failures,
                  sum.checked, fathom_graph_name(session->graph),
                  options->target ? options->target : "cpu");
}

// ---- models -------------------------------------------------------------------------------------

typedef struct model_tally {
  uint32_t checked, passed;
  double worst, bound; // as a share of its bound
  char where[64];      // the worst one
  uint64_t bytes, planned;
} model_tally;

// A line for each of hundreds of sites would hide the one that matters.
static void take_result(void *user, const fathom_check_result *result) {
  model_tally *sum = user;
  sum->checked++;
  sum->passed += result->passed != 0;
  if (!result->passed)
    printf("%-12s  seed %-3u  error %.2e  bound %.2e  FAIL\n", result->name, result->seed,
           result->error, result->bound);
  if (result->error / result->bound < sum->worst) return;
  sum->worst = result->error / result->bound;
  sum->bound = result->bound;
  snprintf(sum->where, sizeof sum->where, "%s", result->name);
}

static void take_traffic(void *user, const fathom_traffic *traffic) {
  model_tally *sum = user;
  sum->bytes += traffic->read + traffic->written;
  sum->planned += traffic->read_minimum + traffic->written_minimum;
}

static int check_model(fathom_context *context, const cli_options *options) {
  fathom_model_options wanted;
  fathom_check_options check = FATHOM_INIT(check);
  model_tally sum = {0};
  uint32_t failures = 0;
  check.seeds = (uint32_t)options->seeds;
  check.empty = options->size == CLI_EMPTY;
  check.dynamic_size = check.empty ? 0 : options->size;
  check.report = take_result;
  check.traffic = take_traffic;
  check.user = &sum;
  const int status = cli_model_options(options, &wanted);
  if (status != CLI_SUCCESS) return status;
  wanted.target = options->target;
  if (fathom_model_check(context, options->file, &wanted, &check, &failures) != FATHOM_OK)
    return cli_library_failed();
  if (sum.planned > 0)
    printf("traffic: %" PRIu64 " bytes moved, %" PRIu64 " planned: %.4f times\n", sum.bytes,
           sum.planned, (double)sum.bytes / (double)sum.planned);
  printf("worst: %s, error %.2e, bound %.2e\n", sum.where, sum.worst * sum.bound, sum.bound);
  printf("check: %u of %u within bounds\n", sum.passed, sum.checked);
  if (failures == 0) return CLI_SUCCESS;
  return cli_fail("%u of %u results of %s on target %s are beyond their bounds", failures,
                  sum.checked, options->file, options->target ? options->target : "cpu");
}

static int run_model(const cli_options *options) {
  if (options->set.count > 0 || options->graph != NULL || options->schedule != NULL ||
      options->misalign != 0 || options->strided)
    return cli_misuse(options->command,
                      "a model takes no --set, --graph, --schedule, --misalign or --strided");
  return cli_with_context(options, check_model);
}

static int run(const cli_options *options) {
  if (cli_is_model(options->file)) return run_model(options);
  cli_session session;
  int status = cli_refuse_model_options(options);
  if (status != CLI_SUCCESS) return status;
  status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) status = check(&session, options);
  cli_session_close(&session);
  return status;
}

const cli_command cli_check = {
    .name = "check",
    .bit = CLI_CHECK,
    .operand = &cli_graph_file,
    .summary = "compare a target with the reference on random inputs",
    .about =
        "Compiles a graph, runs it on random inputs and compares every result with the reference\n"
        "interpreter: error = ||out - ref|| / ||ref||. Prints a line for each result and seed.\n"
        "Succeeds when every error is within the bound its dtype sets.\n"
        "\n"
        "cuda-emu runs CUDA kernels without a GPU, thread by thread, and fails with the place and\n"
        "the reason when they do what a GPU does not allow. It prints the bytes each argument\n"
        "moved, for the first seed. Each seed is another order of the threads too. Environment:\n"
        "  FATHOM_EMU_SEED=K       this order of threads for every seed, and for `fathom run`\n"
        "  FATHOM_EMU_KEEP=FOLDER  keep the kernels' text there, compiled for a debugger\n"
        "  FATHOM_CXX=PROGRAM      the C++ compiler that makes them\n"
        "  FATHOM_CUDA_DEVICE=K    the GPU that the target cuda runs on (default: 0)",
    .example =
        "  $ fathom check k3_site.fir --set D=896 --seeds 5 --size 63 --misalign 1 --strided\n"
        "  checks 63 tokens, five times, with rows that are padded and not aligned;\n"
        "  $ fathom check kimi-linear-48b --phases two\n"
        "  checks every site of a model.\n",
    .run = run,
};
