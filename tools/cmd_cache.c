// fathom cache: what tuning has found, to look at, share and clean up.
#include <string.h>

#include "cli.h"

// ---- texts --------------------------------------------------------------------------------------

// Warnings are the program's own on stderr; their hints and such stand below them as they are.
static void print_warnings(const fathom_text *warnings) {
  const char *line = warnings->data ? warnings->data : "";
  while (*line) {
    size_t length = strcspn(line, "\n");
    bool first = strncmp(line, "warning: ", 9) == 0;
    fprintf(stderr, "%s%.*s\n", first ? "fathom: " : "", (int)length, line);
    line += length + (line[length] == '\n');
  }
}

// Prints what a call has said, to `stream`, and frees it.
static int finish(fathom_status status, fathom_text *text, fathom_text *warnings, FILE *stream) {
  int result = status == FATHOM_OK ? CLI_SUCCESS : cli_library_failed();
  print_warnings(warnings);
  if (result == CLI_SUCCESS && text->length) fwrite(text->data, 1, text->length, stream);
  fathom_text_destroy(text);
  fathom_text_destroy(warnings);
  return result;
}

// ---- list, show ---------------------------------------------------------------------------------

static fathom_records_options records_options(const cli_options *options) {
  fathom_records_options wanted = FATHOM_INIT(wanted);
  wanted.file = options->records;
  wanted.graph = options->file;
  wanted.json = options->json;
  return wanted;
}

static int list(fathom_context *context, const cli_options *options) {
  fathom_text text = {0}, warnings = {0};
  fathom_records_options wanted = records_options(options);
  fathom_status status = fathom_records_list(context, &wanted, &text, &warnings);
  return finish(status, &text, &warnings, stdout);
}

static int show(fathom_context *context, const cli_options *options) {
  fathom_text text = {0}, warnings = {0};
  fathom_records_options wanted = records_options(options);
  fathom_status status = fathom_records_show(context, &wanted, &text, &warnings);
  return finish(status, &text, &warnings, stdout);
}

// ---- merge, prune -------------------------------------------------------------------------------

static int merge(fathom_context *context, const cli_options *options) {
  fathom_text text = {0}, warnings = {0};
  fathom_records_merged merged = FATHOM_INIT(merged);
  fathom_status status = fathom_records_merge(context, options->file, &merged, &warnings);
  int result = finish(status, &text, &warnings, stdout);
  if (result == CLI_SUCCESS)
    printf("%u added, %u replaced by newer ones, %u kept\n", merged.added, merged.replaced,
           merged.kept);
  return result;
}

static int prune(fathom_context *context, const cli_options *options) {
  fathom_text text = {0}, warnings = {0};
  uint32_t pruned = 0;
  fathom_records_prune_options wanted = FATHOM_INIT(wanted);
  wanted.stale = options->stale;
  wanted.before = options->before;
  wanted.dry = options->dry;
  fathom_status status = fathom_records_prune(context, &wanted, &pruned, &text, &warnings);
  int result = finish(status, &text, &warnings, stdout);
  if (result == CLI_SUCCESS)
    printf("%u record%s %s\n", pruned, pruned == 1 ? "" : "s",
           options->dry ? "would be removed" : "removed");
  return result;
}

static int run_prune(const cli_options *options) {
  if (!options->stale && !options->before)
    return cli_misuse(options->command, "%s needs --before DATE, --stale or both: what is to go",
                      options->command->name);
  return cli_with_context(options, prune);
}

// ---- export, validate ---------------------------------------------------------------------------

static int export_records(fathom_context *context, const cli_options *options) {
  fathom_text text = {0}, warnings = {0};
  cli_output *output;
  int result = cli_output_plan(options->output, &output);
  if (result != CLI_SUCCESS) return result;
  if (fathom_records_export(context, &text, &warnings) != FATHOM_OK) result = cli_library_failed();
  print_warnings(&warnings);
  if (result == CLI_SUCCESS) result = cli_output_text(output, &text);
  if (result == CLI_SUCCESS) result = cli_output_commit();
  fathom_text_destroy(&text);
  fathom_text_destroy(&warnings);
  return result;
}

static const char *counted(uint32_t count, const char *noun) {
  return cli_format("%u %s%s", count, noun, count == 1 ? "" : "s");
}

static int validate(fathom_context *context, const cli_options *options) {
  fathom_text problems = {0}, warnings = {0};
  fathom_records_validation found = FATHOM_INIT(found);
  fathom_status status = fathom_records_validate(context, options->file, &found, &problems);
  int result = finish(status, &problems, &warnings, stderr);
  if (result != CLI_SUCCESS) return result;
  if (found.problems)
    return cli_fail("%s in %s; %s can be used", counted(found.problems, "problem"),
                    counted(found.files, "file"), counted(found.records, "record"));
  printf("%s with %s: no problem\n", counted(found.files, "file"),
         counted(found.records, "record"));
  return CLI_SUCCESS;
}

// ---- the commands -------------------------------------------------------------------------------

static int run_list(const cli_options *options) {
  return cli_with_context(options, list);
}

static int run_show(const cli_options *options) {
  return cli_with_context(options, show);
}

static int run_merge(const cli_options *options) {
  return cli_with_context(options, merge);
}

static int run_export(const cli_options *options) {
  return cli_with_context(options, export_records);
}

static int run_validate(const cli_options *options) {
  return cli_with_context(options, validate);
}

static const cli_command cache_list = {
    .name = "cache list",
    .bit = CLI_CACHE_LIST,
    .summary = "the files of records, and a line for each record",
    .about =
        "Lists the files of tuning records in the cache folder and those that come with Fathom,\n"
        "and of each record: graph, axes, target, threads, the best time, how many times as fast\n"
        "as the default schedule that is, its share of the machine's ceiling, the date, and\n"
        "whether compilations by this build take it; if not, which part of its key differs.",
    .example = "  $ fathom cache list\n",
    .run = run_list,
};

static const cli_operand graph = {"GRAPH", false, "a GRAPH"};
static const cli_command cache_show = {
    .name = "cache show",
    .bit = CLI_CACHE_SHOW,
    .operand = &graph,
    .summary = "all that is known of records, or of those of one graph",
    .about = "Shows every part of the records' keys, the best and the default schedule with their\n"
             "times, and how the trials ended. GRAPH is a graph's name, with or without @.",
    .example = "  $ fathom cache show site\n",
    .run = run_show,
};

static const cli_operand other_file = {"FILE", true, "a FILE of tuning records"};
static const cli_command cache_merge = {
    .name = "cache merge",
    .bit = CLI_CACHE_MERGE,
    .operand = &other_file,
    .summary = "take in the records of another file about this device",
    .about = "Takes in the records of FILE, which has to be about a device like this machine's.\n"
             "Of two records of the same thing the newer one stays, with the trials of both.",
    .example = "  $ fathom cache merge records.yaml\n",
    .run = run_merge,
};

static const cli_command cache_prune = {
    .name = "cache prune",
    .bit = CLI_CACHE_PRUNE,
    .summary = "remove old records, and those that this build does not use",
    .about = "Removes records of this machine's file that are older than --before, and with\n"
             "--stale those that another build made; says which. Other machines' files stay.",
    .example = "  $ fathom cache prune --stale --dry\n",
    .run = run_prune,
};

static const cli_command cache_export = {
    .name = "cache export",
    .bit = CLI_CACHE_EXPORT,
    .summary = "print this machine's records, to share them",
    .about = "Prints this machine's records as the text of a file: `fathom cache merge` takes it "
             "in on\n"
             "a machine like this.",
    .example = "  $ fathom cache export -o records.yaml\n",
    .run = run_export,
};

static const cli_operand any_file = {"FILE", false, "a FILE of tuning records"};
static const cli_command cache_validate = {
    .name = "cache validate",
    .bit = CLI_CACHE_VALIDATE,
    .operand = &any_file,
    .summary = "look for everything that would be left out of a file",
    .about =
        "Looks for what cannot be read in FILE, or in all files of the cache folder, and shows\n"
        "where it is. Exit status 1 when there is anything.",
    .example = "  $ fathom cache validate records.yaml\n",
    .run = run_validate,
};

static const cli_command *const subcommands[] = {
    &cache_list, &cache_show, &cache_merge, &cache_prune, &cache_export, &cache_validate, NULL,
};

const cli_command cli_cache = {
    .name = "cache",
    .bit = CLI_CACHE,
    .summary = "look at the records of tuning, share them, clean them up",
    .about =
        "What `fathom tune` found is kept in the cache folder ($FATHOM_CACHE; `fathom info` shows\n"
        "where), in a readable file for each device, and taken by compilations.",
    .subcommands = subcommands,
};
