// fathom: the command-line program. The command table, its help, and the messages all commands
// share.
#include <stdarg.h>
#include <string.h>

#include "cli.h"

static const cli_command *const commands[] = {
    &cli_opt, &cli_compile, &cli_run, &cli_check, &cli_bench, &cli_tune, &cli_info,
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

// ---- messages -----------------------------------------------------------------------------------

static void print_message(const char *format, va_list arguments) {
  fputs("fathom: error: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

int cli_fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_message(format, arguments);
  va_end(arguments);
  return CLI_FAILURE;
}

int cli_misuse(const cli_command *command, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_message(format, arguments);
  va_end(arguments);
  fprintf(stderr, "try 'fathom %s%s--help'\n", command ? command->name : "", command ? " " : "");
  return CLI_USAGE;
}

// Diagnostics about a file begin with its name, "site.fir:3:14: error: ..."; all others get the
// program's.
static bool names_file(const char *text) {
  const char *severity = strstr(text, ": error: ");
  return strncmp(text, "error: ", 7) != 0 && severity && severity < text + strcspn(text, "\n");
}

int cli_library_failed(void) {
  const char *text = fathom_error_text();
  size_t length = strlen(text);
  fprintf(stderr, "%s%s%s", names_file(text) ? "" : "fathom: ", text,
          length > 0 && text[length - 1] == '\n' ? "" : "\n");
  return CLI_FAILURE;
}

int cli_print_list(fathom_status (*list)(fathom_text *out)) {
  fathom_text text = {0};
  if (list(&text) != FATHOM_OK) return cli_library_failed();
  fwrite(text.data, 1, text.length, stdout);
  fathom_text_destroy(&text);
  return CLI_SUCCESS;
}

// ---- help ---------------------------------------------------------------------------------------

static void print_usage(FILE *stream) {
  fputs(
      "usage: fathom COMMAND FILE [options]\n"
      "\n"
      "Compiles attention over the depth of a network: a file of graph IR becomes fused kernels.\n"
      "FILE holds the graphs; - reads them from standard input.\n"
      "\n"
      "commands:\n",
      stream);
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    fprintf(stream, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
  fputs("\n"
        "'fathom COMMAND --help' explains a command; 'fathom --version' prints the version.\n"
        "exit status: 0 success, 1 the work failed, 2 wrong usage\n",
        stream);
}

static void print_help(const cli_command *command) {
  printf("usage: fathom %s%s [options]\n\n%s\n\noptions:\n", command->name,
         command->needs_file ? " FILE" : "", command->about);
  cli_print_options(command);
  printf("\nexample:\n%s", command->example);
}

// ---- dispatch -----------------------------------------------------------------------------------

static const cli_command *find_command(const char *name) {
  for (size_t i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(name, commands[i]->name) == 0) return commands[i];
  return NULL;
}

static int unknown_command(const char *name) {
  const char *names[COMMAND_COUNT + 1] = {NULL};
  char *list = "";
  for (size_t i = 0; i < COMMAND_COUNT; i++) {
    names[i] = commands[i]->name;
    list = cli_format("%s%s%s", list, i ? ", " : "", names[i]);
  }
  const char *nearest = cli_nearest(name, names);
  return cli_misuse(NULL, "unknown command '%s'%s%s%s; the commands are %s", name,
                    nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                    list);
}

static int run_help(const char *name) {
  if (!name) {
    print_usage(stdout);
    return CLI_SUCCESS;
  }
  const cli_command *command = find_command(name);
  if (!command) return unknown_command(name);
  print_help(command);
  return CLI_SUCCESS;
}

static int run_command(const cli_command *command, int argc, char **argv) {
  cli_options options = {.command = command};
  int status = cli_parse(command, argc, argv, &options);
  if (status == CLI_SUCCESS && options.help)
    print_help(command);
  else if (status == CLI_SUCCESS)
    status = command->run(&options);
  return status;
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return CLI_USAGE;
  }
  const char *word = argv[1];
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return run_help(NULL);
  if (strcmp(word, "help") == 0) return run_help(argc > 2 ? argv[2] : NULL);
  if (strcmp(word, "--version") == 0) {
    printf("fathom %s\n", fathom_version());
    return CLI_SUCCESS;
  }
  // What the tuner starts for its candidates: nobody else calls it.
  if (strcmp(word, "tune-worker") == 0)
    return fathom_tune_worker(0, 1) == FATHOM_OK ? CLI_SUCCESS : CLI_FAILURE;
  const cli_command *command = find_command(word);
  return command ? run_command(command, argc - 2, argv + 2) : unknown_command(word);
}

int main(int argc, char **argv) {
  int status = dispatch(argc, argv);
  // Results are lost when a full disk or a closed pipe swallows them; say so rather than exit with
  // 0.
  if (fflush(stdout) != 0 || ferror(stdout)) {
    if (status == CLI_SUCCESS) status = cli_fail("standard output could not be written");
  }
  return status;
}
