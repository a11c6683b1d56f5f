// fathom: the command-line program. The command table, its help, and the messages all commands
// share.
#include <stdarg.h>
#include <string.h>

#include "cli.h"

static const cli_command *const commands[] = {
    &cli_opt,    &cli_compile, &cli_run,   &cli_check, &cli_bench, &cli_tune,
    &cli_expand, &cli_plan,    &cli_cache, &cli_info,  NULL,
};

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
  for (const cli_command *const *command = commands; *command; command++)
    fprintf(stream, "  %-8s %s\n", (*command)->name, (*command)->summary);
  fputs("\n"
        "'fathom COMMAND --help' explains a command; 'fathom --version' prints the version.\n"
        "exit status: 0 success, 1 the work failed, 2 wrong usage\n"
        "\n"
        "environment:\n"
        "  FATHOM_CACHE=FOLDER     compiled code and tuning records (default: ~/.cache/fathom)\n"
        "  FATHOM_EXPECT_CACHED=1  compiling is an error: all code has to be in that folder\n"
        "  FATHOM_VERBOSE=1        a line of CSV on stderr for each kernel at each compile, run, "
        "bench\n"
        "                          and tune: where its schedule is from, and why not from "
        "elsewhere\n",
        stream);
}

// What a user types for a command, after its parent's name.
static const char *word_of(const cli_command *command) {
  const char *space = strrchr(command->name, ' ');
  return space ? space + 1 : command->name;
}

static const char *usage_of_operand(const cli_command *command) {
  const cli_operand *operand = command->operand;
  if (command->subcommands) return " COMMAND";
  if (!operand) return "";
  return cli_format(operand->required ? " %s" : " [%s]", operand->name);
}

static void print_subcommands(const cli_command *command) {
  printf("\ncommands:\n");
  for (const cli_command *const *sub = command->subcommands; *sub; sub++) {
    const char *usage = cli_format("%s%s", word_of(*sub), usage_of_operand(*sub));
    printf("  %-16s %s\n%s", usage, (*sub)->summary, (*sub)->example);
  }
  printf("\n'fathom %s COMMAND --help' explains one.\n", command->name);
}

static void print_help(const cli_command *command) {
  printf("usage: fathom %s%s [options]\n\n%s\n", command->name, usage_of_operand(command),
         command->about);
  if (command->subcommands) print_subcommands(command);
  printf("\noptions:\n");
  cli_print_options(command);
  if (command->example) printf("\nexample:\n%s", command->example);
}

// ---- dispatch -----------------------------------------------------------------------------------

static const cli_command *find_command(const cli_command *const *among, const char *word) {
  for (; *among; among++)
    if (strcmp(word, word_of(*among)) == 0) return *among;
  return NULL;
}

static const char *list_commands(const cli_command *const *among) {
  char *list = "";
  for (size_t i = 0; among[i]; i++)
    list = cli_format("%s%s%s", list, i ? ", " : "", word_of(among[i]));
  return list;
}

// `parent` NULL: of the program.
static int unknown_command(const cli_command *parent, const char *word) {
  const cli_command *const *among = parent ? parent->subcommands : commands;
  size_t count = 0;
  while (among[count])
    count++;
  const char **names = cli_alloc(count + 1, sizeof *names);
  for (size_t i = 0; i < count; i++)
    names[i] = word_of(among[i]);
  const char *nearest = cli_nearest(word, names);
  return cli_misuse(parent, "unknown command '%s%s%s'%s%s%s; the commands are %s",
                    parent ? parent->name : "", parent ? " " : "", word,
                    nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
                    list_commands(among));
}

static int run_help(int argc, char **argv) {
  const cli_command *command = NULL;
  const cli_command *const *among = commands;
  for (; argc > 0 && among; argc--, argv++) {
    const cli_command *found = find_command(among, *argv);
    if (!found) return unknown_command(command, *argv);
    command = found;
    among = found->subcommands;
  }
  if (command)
    print_help(command);
  else
    print_usage(stdout);
  return CLI_SUCCESS;
}

static int run_command(const cli_command *command, int argc, char **argv) {
  if (command->subcommands && argc > 0 && argv[0][0] != '-') {
    const cli_command *sub = find_command(command->subcommands, argv[0]);
    return sub ? run_command(sub, argc - 1, argv + 1) : unknown_command(command, argv[0]);
  }
  cli_options options = {.command = command};
  int status = cli_parse(command, argc, argv, &options);
  if (status != CLI_SUCCESS) return status;
  if (options.help) {
    print_help(command);
    return CLI_SUCCESS;
  }
  if (!command->run)
    return cli_misuse(command, "%s needs a command: one of %s", command->name,
                      list_commands(command->subcommands));
  return command->run(&options);
}

static int dispatch(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return CLI_USAGE;
  }
  const char *word = argv[1];
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return run_help(0, NULL);
  if (strcmp(word, "help") == 0) return run_help(argc - 2, argv + 2);
  if (strcmp(word, "--version") == 0) {
    printf("fathom %s\n", fathom_version());
    return CLI_SUCCESS;
  }
  // What the tuner starts for its candidates: nobody else calls it.
  if (strcmp(word, "tune-worker") == 0)
    return fathom_tune_worker(0, 1) == FATHOM_OK ? CLI_SUCCESS : CLI_FAILURE;
  const cli_command *command = find_command(commands, word);
  return command ? run_command(command, argc - 2, argv + 2) : unknown_command(NULL, word);
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
