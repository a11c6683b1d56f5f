// fathom plan: what of a model runs when, as a table.
#include "cli.h"

static int plan(const cli_options *options, fathom_context *context) {
  fathom_model_options wanted = FATHOM_INIT(wanted);
  fathom_text text = {0};
  cli_output *output;
  int status = cli_outputs(options, &wanted.outputs);
  if (status == CLI_SUCCESS) status = cli_phases(options, &wanted.phases);
  if (status == CLI_SUCCESS) status = cli_output_plan(options->output, &output);
  if (status != CLI_SUCCESS) return status;
  wanted.target = options->target;
  wanted.cpu = options->cpu;
  wanted.rows = options->size;
  if (fathom_model_plan(context, options->file, &wanted, &text) != FATHOM_OK)
    return cli_library_failed();
  status = cli_output_text(output, &text);
  fathom_text_destroy(&text);
  return status == CLI_SUCCESS ? cli_output_commit() : status;
}

static int run(const cli_options *options) {
  fathom_context *context = NULL;
  int status = cli_context_create(options, &context);
  if (status == CLI_SUCCESS) status = plan(options, context);
  fathom_context_destroy(context);
  return status;
}

const cli_command cli_plan = {
    .name = "plan",
    .bit = CLI_PLAN,
    .operand = &cli_model,
    .summary = "print what of a model runs when, and what it moves",
    .about =
        "Prints a table of all that is computed between the sublayers of MODEL: at which site, by\n"
        "which kernel, how many rows it reads and writes for each token, and what it leaves for "
        "later\n"
        "sites; then totals, beside published ones, and the workspace.",
    .example = "  $ fathom plan kimi-k3 --size 4096\n"
               "  prints the plan of Kimi K3, and its workspace for 4096 tokens.\n",
    .run = run,
};
