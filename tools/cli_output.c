// result files: written whole or not at all. Each goes to a unique temporary in its own folder
// first (a rename cannot cross file systems) and all are renamed in one place, after the last of
// them is complete.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

struct cli_output {
  cli_output *next;
  const char *name; // as the user wrote it, for messages
  char *path;       // absolute, links resolved; NULL: standard output
  char *temporary;  // written to and renamed; NULL: `path` itself is a device or a pipe
  volatile sig_atomic_t created; // the temporary may exist
  FILE *stream;
  mode_t mode;
};

// Every planned output. A process has one set of results, and its exit and signal handlers must
// find them.
static cli_output *planned;

// ---- cleaning up --------------------------------------------------------------------------------

// Async-signal-safe: only unlink is called.
static void remove_temporaries(void) {
  for (cli_output *output = planned; output; output = output->next)
    if (output->created) unlink(output->temporary);
}

static void on_signal(int number) {
  remove_temporaries();
  signal(number, SIG_DFL);
  raise(number);
}

static void install_cleanup(void) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
  atexit(remove_temporaries);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (signal(numbers[i], on_signal) == SIG_IGN) signal(numbers[i], SIG_IGN); // as under nohup
}

// ---- planning -----------------------------------------------------------------------------------

static int cannot_write(const char *name, const char *why) {
  return cli_fail("%s cannot be written: %s", name, why);
}

// What stands before the last slash of a path.
static const char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return ".";
  return slash == path ? "/" : cli_format("%.*s", (int)(slash - path), path);
}

// The absolute path behind `path`, links resolved; NULL: errno says why.
static char *resolve(const char *path) {
  char *resolved = realpath(path, NULL);
  char *copy = resolved ? cli_format("%s", resolved) : NULL;
  free(resolved);
  return copy;
}

static int plan_temporary(cli_output *output) {
  const char *folder = folder_of(output->path);
  if (access(folder, W_OK | X_OK) != 0) return cannot_write(output->name, strerror(errno));
  output->temporary = cli_format("%s/.fathom-XXXXXX", folder);
  return CLI_SUCCESS;
}

static int plan_existing(cli_output *output, const struct stat *status) {
  if (S_ISDIR(status->st_mode))
    return cannot_write(output->name, "it is a folder; name a file in it");
  output->path = resolve(output->name);
  if (!output->path || access(output->path, W_OK) != 0)
    return cannot_write(output->name, strerror(errno));
  output->mode = status->st_mode & 0777;
  return S_ISREG(status->st_mode) ? plan_temporary(output) : CLI_SUCCESS;
}

static int plan_new(cli_output *output) {
  const char *slash = strrchr(output->name, '/');
  const char *folder = resolve(folder_of(output->name));
  if (!folder)
    return cli_fail("%s cannot be written: there is no folder %s; create it first", output->name,
                    folder_of(output->name));
  if (*output->name == '\0' || (slash && slash[1] == '\0'))
    return cannot_write(output->name, "name a file");
  output->path = cli_format("%s/%s", folder, slash ? slash + 1 : output->name);
  mode_t mask = umask(0);
  umask(mask);
  output->mode = 0666 & ~mask;
  return plan_temporary(output);
}

static int plan_file(cli_output *output) {
  struct stat status;
  if (stat(output->name, &status) == 0) return plan_existing(output, &status);
  if (errno != ENOENT) return cannot_write(output->name, strerror(errno));
  return plan_new(output);
}

int cli_output_plan(const char *path, cli_output **out) {
  cli_output *output = cli_alloc(1, sizeof *output);
  bool to_stdout = !path || strcmp(path, "-") == 0;
  output->name = to_stdout ? "standard output" : path;
  int status = to_stdout ? CLI_SUCCESS : plan_file(output);
  if (status != CLI_SUCCESS) return status;
  for (const cli_output *other = planned; other; other = other->next)
    if (to_stdout ? !other->path : other->path && strcmp(output->path, other->path) == 0)
      return cli_fail("two results would go to %s; give each its own file", output->name);
  if (!planned) install_cleanup();
  output->next = planned;
  planned = output;
  *out = output;
  return CLI_SUCCESS;
}

bool cli_output_is_terminal(const cli_output *output) {
  return !output->path && isatty(STDOUT_FILENO);
}

// ---- writing ------------------------------------------------------------------------------------

static FILE *open_temporary(cli_output *output) {
  output->created = 1; // before it is true: unlinking nothing is harmless, missing a file is not
  int file = mkstemp(output->temporary);
  if (file < 0 || fchmod(file, output->mode) != 0) return NULL;
  return fdopen(file, "wb");
}

int cli_output_open(cli_output *output, FILE **stream) {
  if (!output->path)
    output->stream = stdout;
  else
    output->stream = output->temporary ? open_temporary(output) : fopen(output->path, "wb");
  *stream = output->stream;
  return *stream ? CLI_SUCCESS : cannot_write(output->name, strerror(errno));
}

int cli_output_failed(const cli_output *output) {
  return cannot_write(output->name, strerror(errno));
}

int cli_output_text(cli_output *output, const fathom_text *text) {
  FILE *stream;
  int status = cli_output_open(output, &stream);
  if (status == CLI_SUCCESS && fwrite(text->data, 1, text->length, stream) != text->length)
    status = cli_output_failed(output);
  return status;
}

// Everything on its way to the disk; a file is also closed.
static int complete(cli_output *output) {
  if (fflush(output->stream) != 0) return cli_output_failed(output);
  if (output->temporary && fsync(fileno(output->stream)) != 0) return cli_output_failed(output);
  if (output->path && fclose(output->stream) != 0) return cli_output_failed(output);
  return CLI_SUCCESS;
}

int cli_output_commit(void) {
  for (cli_output *output = planned; output; output = output->next)
    if (complete(output) != CLI_SUCCESS) return CLI_FAILURE;
  for (cli_output *output = planned; output; output = output->next) {
    if (!output->temporary) continue;
    if (rename(output->temporary, output->path) != 0) return cli_output_failed(output);
    output->created = 0;
  }
  return CLI_SUCCESS;
}

int cli_output_result(cli_output *output, fathom_text *text) {
  const int status = cli_output_text(output, text);
  fathom_text_destroy(text);
  return status == CLI_SUCCESS ? cli_output_commit() : status;
}
