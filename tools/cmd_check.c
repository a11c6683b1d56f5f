// fathom check: a target's results on random inputs against the reference interpreter.
#include <string.h>

#include "cli.h"

typedef struct tally {
  const fathom_graph *graph;
  int name_width;
  uint32_t checked, passed;
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
  wanted.user = &sum;
  uint32_t failures = 0;
  if (fathom_check(session->context, session->graph, &compile, &wanted, &failures) != FATHOM_OK)
    return cli_library_failed();
  printf("check: %u of %u within bounds\n", sum.passed, sum.checked);
  if (failures == 0) return CLI_SUCCESS;
  return cli_fail("%u of %u results of @%s on target %s are beyond their bounds", failures,
                  sum.checked, fathom_graph_name(session->graph),
                  options->target ? options->target : "cpu");
}

static int run(const cli_options *options) {
  cli_session session;
  int status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) status = check(&session, options);
  cli_session_close(&session);
  return status;
}

const cli_command cli_check = {
    .name = "check",
    .bit = CLI_CHECK,
    .needs_file = true,
    .summary = "compare a target with the reference on random inputs",
    .about =
        "Compiles a graph, runs it on random inputs and compares every result with the reference\n"
        "interpreter: error = ||out - ref|| / ||ref||. Prints a line for each result and seed.\n"
        "Succeeds when every error is within the bound its dtype sets.",
    .example =
        "  $ fathom check k3_site.fir --set D=896 --seeds 5 --size 63 --misalign 1 --strided\n"
        "  checks 63 tokens, five times, with rows that are padded and not aligned.\n",
    .run = run,
};
