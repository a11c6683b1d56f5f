// fathom opt: graph passes, IR to IR.
#include "cli.h"

static int optimize(const cli_session *session, const fathom_graph *graph,
                    const cli_options *options, FILE *stream) {
  fathom_optimize_options wanted = FATHOM_INIT(wanted);
  wanted.print_after_all = options->print_after_all;
  wanted.verify_each = options->verify_each;
  wanted.time_passes = options->time_passes;
  wanted.passes = options->passes;
  wanted.target = options->target;
  fathom_text text = {0}, log = {0};
  fathom_status result = fathom_optimize(session->context, graph, &wanted, &text, &log);
  if (log.length > 0) fwrite(log.data, 1, log.length, stderr);
  int status = CLI_SUCCESS;
  if (result != FATHOM_OK)
    status = cli_library_failed();
  else
    fwrite(text.data, 1, text.length, stream); // the commit finds out when it failed
  fathom_text_destroy(&text);
  fathom_text_destroy(&log);
  return status;
}

static int optimize_all(const cli_session *session, const cli_options *options) {
  cli_output *output;
  FILE *stream;
  int status = cli_output_plan(options->output, &output);
  if (status == CLI_SUCCESS) status = cli_output_open(output, &stream);
  if (status != CLI_SUCCESS) return status;
  uint32_t count = session->graph ? 1 : fathom_module_count(session->module);
  for (uint32_t i = 0; i < count && status == CLI_SUCCESS; i++) {
    if (i > 0) fputc('\n', stream);
    status = optimize(session,
                      session->graph ? session->graph : fathom_module_graph_at(session->module, i),
                      options, stream);
  }
  return status == CLI_SUCCESS ? cli_output_commit() : status;
}

static int run(const cli_options *options) {
  if (options->list) return cli_print_list(fathom_pass_list);
  cli_session session;
  int status = cli_session_open(options, CLI_ALL_GRAPHS, &session);
  if (status == CLI_SUCCESS) status = optimize_all(&session, options);
  cli_session_close(&session);
  return status;
}

const cli_command cli_opt = {
    .name = "opt",
    .bit = CLI_OPT,
    .operand = &cli_graph_file,
    .summary = "run graph passes and print the IR",
    .about =
        "Runs passes over the graphs of FILE and prints the IR that comes out; what it prints can\n"
        "be read back. Dumps and times of --print-after-all and --time-passes go to stderr.",
    .example = "  $ fathom opt k3_site.fir --passes=canonicalize,factor-norm --set D=7168\n"
               "  prints the graph with its norms factored out of the dot products; then\n"
               "  $ fathom opt k3_site.fir | fathom opt - --passes=\n"
               "  prints the result of the whole pipeline after reading it back once.\n",
    .run = run,
};
