// fathom info: what this installation has and lacks.
#include "cli.h"

static int run(const cli_options *options) {
  fathom_context *context = NULL;
  fathom_text text = {0};
  int status = cli_context_create(options, &context);
  if (status == CLI_SUCCESS && fathom_info(context, &text) != FATHOM_OK)
    status = cli_library_failed();
  if (status == CLI_SUCCESS) fwrite(text.data, 1, text.length, stdout);
  fathom_text_destroy(&text);
  fathom_context_destroy(context);
  return status;
}

const cli_command cli_info = {
    .name = "info",
    .bit = CLI_INFO,
    .summary = "show version, targets, libraries, and what is missing",
    .about =
        "Prints the version, the targets, this machine's CPU, the libraries that were found and\n"
        "those that are missing, and the folder of the object cache: lines of `key: value`.",
    .example = "  $ fathom info | grep cache\n"
               "  prints where compiled kernels are kept.\n",
    .run = run,
};
