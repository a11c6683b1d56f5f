// fathom expand: a model's whole depth as graph IR.
#include "cli.h"

static int expand(fathom_context *context, const cli_options *options) {
  fathom_model_options wanted;
  fathom_text text = {0};
  cli_output *output;
  int status = cli_model_options(options, &wanted);
  if (status == CLI_SUCCESS) status = cli_output_plan(options->output, &output);
  if (status != CLI_SUCCESS) return status;
  if (fathom_model_expand(context, options->file, &wanted, &text) != FATHOM_OK)
    return cli_library_failed();
  return cli_output_result(output, &text);
}

static int run(const cli_options *options) {
  return cli_with_context(options, expand);
}

const cli_command cli_expand = {
    .name = "expand",
    .bit = CLI_EXPAND,
    .operand = &cli_model,
    .summary = "print a model's whole depth as graph IR",
    .about =
        "Prints the graph of all mix sites of MODEL, from the embedding to the network's output, "
        "with\n"
        "a call for each sublayer: the host's attentions and MLPs. MODEL is one that comes with\n"
        "Fathom (kimi-k3, kimi-linear-48b, gpt-small, full-attnres) or a YAML file, which says in "
        "a\n"
        "few lines how the sites mix (docs/models.md).",
    .example = "  $ fathom expand kimi-k3 -o kimi-k3.fir\n"
               "  writes the 187 sites of Kimi K3; then\n"
               "  $ fathom opt kimi-k3.fir --passes=two-phase\n"
               "  shows them with the finished blocks mixed once for each block.\n",
    .run = run,
};
