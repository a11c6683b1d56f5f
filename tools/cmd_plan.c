// fathom plan: what of a model runs when, as a table.
#include "cli.h"

static int plan(fathom_context *context, const cli_options *options) {
  fathom_model_options wanted;
  fathom_text text = {0};
  cli_output *output;
  int status = cli_model_options(options, &wanted);
  if (status == CLI_SUCCESS) status = cli_output_plan(options->output, &output);
  if (status != CLI_SUCCESS) return status;
  wanted.target = options->target;
  wanted.rows = options->size;
  if (fathom_model_plan(context, options->file, &wanted, &text) != FATHOM_OK)
    return cli_library_failed();
  return cli_output_result(output, &text);
}

static int run(const cli_options *options) {
  return cli_with_context(options, plan);
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
