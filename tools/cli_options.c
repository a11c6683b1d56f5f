// options: the option table and the parser all commands share. A row says which commands take the
// option, where its value goes and what --help tells about it, so that parser and help cannot
// disagree.
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

typedef enum option_kind {
  FLAG,    // bool
  TEXT,    // const char *
  TARGETS, // the same, and repeatable: all of them go to `targets`
  DATE,    // the same: 2026-11-30, or with a time of the day, T20:00:00Z
  COUNT,   // int64_t >= minimum
  EXTENT,  // the same, and a 0 that is given becomes CLI_EMPTY
  SECONDS, // double > 0, with or without an s; or minutes with an m
  NAMES,   // cli_pairs of NAME=TEXT, repeatable
  SIZES,   // cli_pairs of NAME=INT >= 0, repeatable
} option_kind;

typedef struct option {
  const char *name;  // "--graph", or "-o"
  const char *value; // its placeholder in help; NULL for a flag
  uint32_t commands;
  option_kind kind;
  size_t offset; // into cli_options
  int64_t minimum, maximum;
  const char *help; // lines after the first are separated by '\n'
} option;

const cli_operand cli_graph_file = {"FILE", true, "a FILE of graph IR; - is standard input"};
const cli_operand cli_model = {
    "MODEL", true,
    "a MODEL: one that comes with Fathom, such as kimi-k3, or the path of a .yaml file"};

enum {
  EVERY = -1, // command
  CODE = CLI_COMPILE | CLI_RUN | CLI_CHECK | CLI_BENCH,
  FILES = CLI_OPT | CODE | CLI_TUNE,
};
#define AT(member) offsetof(cli_options, member)

static const option table[] = {
    {"--graph", "NAME", FILES & ~CLI_OPT, TEXT, AT(graph), 0, 0,
     "the graph to use; needed where FILE holds several"},
    {"--graph", "NAME", CLI_OPT, TEXT, AT(graph), 0, 0, "only this graph (default: all of FILE)"},
    {"--set", "AXIS=INT", FILES, SIZES, AT(set), 0, 0,
     "fix the size of a symbolic axis; repeatable"},
    {"--target", "TARGET", CLI_COMPILE, TARGETS, AT(target), 0, 0,
     "what to compile for (default: cpu): cpu; interp, the slow\n"
     "reference; cuda[:ARCH], an NVIDIA GPU; cuda-emu[:ARCH], its\n"
     "code on the CPU. ARCH as in cuda:sm_90a (default: that of the\n"
     "GPU, else sm_90). Repeatable for a bundle"},
    {"--target", "TARGET", (CODE & ~CLI_COMPILE) | CLI_PLAN, TEXT, AT(target), 0, 0,
     "where kernels run (default: cpu): cpu; interp, the slow\n"
     "reference; cuda[:ARCH], an NVIDIA GPU; cuda-emu[:ARCH], its\n"
     "code on the CPU, checked as it runs. ARCH as in cuda:sm_90a\n"
     "(default: that of the GPU, else sm_90)"},
    {"--target", "TARGET", CLI_OPT, TEXT, AT(target), 0, 0,
     "whose pipeline runs without --passes, as for compile;\ninterp has an empty one (default: "
     "cpu)"},
    {"--mcpu", "NAME", CODE | CLI_PLAN, TEXT, AT(cpu), 0, 0,
     "the CPU to compile for, as LLVM names it (default: host);\nthe cpu target only"},
    {"--schedule", "K=V,...", CODE, TEXT, AT(schedule), 0, 0,
     "settings over the default schedule; `compile --emit report`\nshows the complete one"},
    {"--emit", "WHAT", CLI_COMPILE, TEXT, AT(emit), 0, 0,
     "report (default): schedule and costs of each kernel;\n"
     "graph: the IR after the passes; kernel: the kernel IR;\n"
     "llvm, asm, obj: code for the cpu target;\n"
     "cuda, ptx, cubin: code for a GPU target;\n"
     "bundle (default where -o ends in .fathom): code for all\n"
     "targets in one file, for `fathom run`"},
    {"--passes", "A,B,...", CLI_OPT, TEXT, AT(passes), 0, 0,
     "the passes to run, in order; '' only verifies\n(default: the target's pipeline)"},
    {"--print-after-all", NULL, CLI_OPT, FLAG, AT(print_after_all), 0, 0,
     "show the graph after each pass on stderr"},
    {"--verify-each", NULL, CLI_OPT | CLI_COMPILE | CLI_CHECK, FLAG, AT(verify_each), 0, 0,
     "verify the graph after each pass; a pass that breaks it\n"
     "leaves a reproducer, fathom-repro.fir"},
    {"--time-passes", NULL, CLI_OPT, FLAG, AT(time_passes), 0, 0,
     "show each pass's time on stderr"},
    {"--list", NULL, CLI_OPT | CLI_COMPILE, FLAG, AT(list), 0, 0,
     "print the passes (opt) or the schedule's knobs (compile) and stop; needs no FILE"},
    {"--in", "NAME=FILE.npy", CLI_RUN, NAMES, AT(in), 0, 0,
     "the array of a parameter; needed once for each"},
    {"--out", "NAME=FILE.npy", CLI_RUN, NAMES, AT(out), 0, 0,
     "where a result goes (default: it is dropped)"},
    {"--raw", NULL, CLI_RUN, FLAG, AT(raw), 0, 0,
     "write bf16 and f8e4m3 results as bits, '<u2' and '|u1' (default: as '<f4')"},
    {"--seeds", "K", CLI_CHECK, COUNT, AT(seeds), 1, UINT32_MAX,
     "sets of random inputs (default: 3)"},
    {"--suite", "SUITE", CLI_TUNE, TEXT, AT(suite), 0, 0,
     "tune the kernels of a suite, and no FILE: kimi-k3,\n"
     "kimi-linear, or the path of one (docs/tuning.md)"},
    {"--again", NULL, CLI_TUNE, FLAG, AT(again), 0, 0,
     "of a suite: search also where the result is known"},
    {"--size", "N", CLI_CHECK, EXTENT, AT(size), 0, INT64_MAX,
     "the size of every dynamic axis (default: 67)"},
    {"--size", "N", CLI_BENCH | CLI_TUNE, COUNT, AT(size), 1, INT64_MAX,
     "the size of every dynamic axis (default: 1024)"},
    {"--target", "TARGET", CLI_TUNE, TEXT, AT(target), 0, 0,
     "what to tune for: cpu (default), or cuda[:ARCH]"},
    {"--budget", "TIME", CLI_TUNE, SECONDS, AT(budget), 0, 0,
     "how long to search, as 90s or 2m (default: 60s); of a suite\nfor each kernel and number of "
     "rows"},
    {"--trials", "K", CLI_TUNE, COUNT, AT(trials), 1, UINT32_MAX,
     "at most so many measurements (default: no limit); of a suite\nfor each kernel and number of "
     "rows"},
    {"--seed", "N", CLI_TUNE, COUNT, AT(seed), 0, INT64_MAX,
     "another one tries other schedules (default: 0)"},
    {"--resume", NULL, CLI_TUNE, FLAG, AT(resume), 0, 0,
     "go on with an interrupted search of the same seed; a suite\ndoes so without being asked, but "
     "for --again"},
    {"--dry", NULL, CLI_TUNE, FLAG, AT(dry), 0, 0, "remember nothing"},
    {"--report", "DIR", CLI_TUNE, TEXT, AT(report), 0, 0,
     "write a page about the search, DIR/tuning.html; of a suite\nDIR/KERNEL-ROWS/tuning.html for "
     "each"},
    {"--strategy", "NAME", CLI_TUNE, TEXT, AT(strategy), 0, 0,
     "halving (default): many schedules shortly, the best ones\nlonger; ranked: as the cost model "
     "says; random; exhaustive"},
    {"--offline", NULL, CLI_TUNE, FLAG, AT(offline), 0, 0,
     "for a GPU that is not here, as in --target cuda:sm_90: the\ncost model ranks, nothing is "
     "timed"},
    {"--misalign", "K", CLI_CHECK, COUNT, AT(misalign), 0, UINT32_MAX,
     "start every tensor K elements past a 64-byte boundary\n(default: 0)"},
    {"--strided", NULL, CLI_CHECK, FLAG, AT(strided), 0, 0,
     "put padding between rows and outer axes"},
    {"--seconds", "S", CLI_BENCH, SECONDS, AT(seconds), 0, 0,
     "about how long to measure (default: 2)"},
    {"--cache", "STATE", CLI_BENCH, TEXT, AT(cache), 0, 0,
     "what runs find in the caches: cold (default on cuda) or warm\n(default on the others)"},
    {"--cache", "STATE", CLI_TUNE, TEXT, AT(cache), 0, 0,
     "what timed runs find in the caches: warm (default), what the\nrun before left there; cold "
     "(default on cuda), nothing"},
    {"--threads", "K", (CODE & ~CLI_COMPILE) | CLI_TUNE | CLI_PLAN, COUNT, AT(threads), 1, 65536,
     "threads to use (default: one for each core);\nthe cpu target only"},
    {"--sanitize", NULL, CLI_RUN | CLI_CHECK, FLAG, AT(sanitize), 0, 0,
     "cuda-emu: kernels with AddressSanitizer, whose runtime the\nprogram must have: "
     "LD_PRELOAD=$(g++ -print-file-name=libasan.so)"},
    {"--json", NULL, CLI_BENCH | CLI_TUNE | CLI_CACHE_LIST | CLI_CACHE_SHOW, FLAG, AT(json), 0, 0,
     "print one JSON object on a line"},
    {"--file", "FILE", CLI_CACHE_LIST | CLI_CACHE_SHOW, TEXT, AT(records), 0, 0,
     "look into this file of records only (default: all those in\nthe cache folder, and those that "
     "come with Fathom)"},
    {"--before", "DATE", CLI_CACHE_PRUNE, DATE, AT(before), 0, 0,
     "records older than 2026-11-30, or 2026-11-30T20:00:00Z (UTC)"},
    {"--stale", NULL, CLI_CACHE_PRUNE, FLAG, AT(stale), 0, 0,
     "records that another generator, compiler, driver or way of\ntiming made than this build's"},
    {"--dry", NULL, CLI_CACHE_PRUNE, FLAG, AT(dry), 0, 0, "say what would go, and remove nothing"},
    {"--outputs", "A,B,...", CLI_EXPAND | CLI_PLAN | CLI_COMPILE | CLI_CHECK, TEXT, AT(outputs), 0,
     0,
     "results of each site: weights of its sources, their entropy,\nmix (before the norm), fp8 "
     "(inputs of sublayers in f8e4m3)"},
    {"--phases", "HOW", CLI_PLAN | CLI_COMPILE | CLI_CHECK, TEXT, AT(phases), 0, 0,
     "one: each site for itself; two: finished blocks once for all\nsites that share them; auto: "
     "what moves less (default: as\nMODEL says)"},
    {"--size", "N", CLI_PLAN, COUNT, AT(size), 1, INT64_MAX,
     "tokens at a time, for times, workspace and what auto chooses\n(default: 1024)"},
    {"-o", "FILE", CLI_OPT | CLI_COMPILE | CLI_EXPAND | CLI_PLAN | CLI_CACHE_EXPORT, TEXT,
     AT(output), 0, 0, "where the result goes; - is standard output (default: -)"},
    {"--help", NULL, (uint32_t)EVERY, FLAG, AT(help), 0, 0, "show this text"},
};
enum { OPTION_COUNT = sizeof table / sizeof *table };

// ---- help ---------------------------------------------------------------------------------------

void cli_print_options(const cli_command *command) {
  for (const option *row = table; row < table + OPTION_COUNT; row++) {
    if (!(row->commands & command->bit)) continue;
    int width = printf("  %s %s", row->name, row->value ? row->value : "");
    const char *line = row->help;
    for (const char *end; (end = strchr(line, '\n')); line = end + 1, width = 0)
      printf("%*s%.*s\n", 24 - width, "", (int)(end - line), line);
    printf("%*s%s\n", 24 - width, "", line);
  }
}

// ---- nearest name -------------------------------------------------------------------------------

static size_t smallest(size_t a, size_t b, size_t c) {
  size_t least = a < b ? a : b;
  return least < c ? least : c;
}

// Levenshtein distance, a row at a time; long words are simply far from everything.
static size_t edit_distance(const char *a, const char *b) {
  enum { LONGEST = 31 };
  size_t row[LONGEST + 1], length = strlen(b);
  if (strlen(a) > LONGEST || length > LONGEST) return LONGEST;
  for (size_t j = 0; j <= length; j++)
    row[j] = j;
  for (size_t i = 1; a[i - 1]; i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= length; j++) {
      size_t above = row[j];
      row[j] = smallest(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
      diagonal = above;
    }
  }
  return row[length];
}

const char *cli_nearest(const char *word, const char *const *names) {
  const char *nearest = NULL;
  // Half of the word changed, or more than two edits, makes another word.
  size_t length = strlen(word), best = length < 6 ? (length + 1) / 2 : 3;
  for (; *names; names++) {
    size_t distance = edit_distance(word, *names);
    if (distance >= best) continue;
    best = distance;
    nearest = *names;
  }
  return nearest;
}

// ---- values -------------------------------------------------------------------------------------

static bool parse_integer(const char *text, int64_t minimum, int64_t maximum, int64_t *number) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || strchr(" \t\n\r\v\f+", *text)) return false;
  *number = value;
  return value >= minimum && value <= maximum;
}

static int set_count(const cli_command *command, const option *row, const char *value,
                     int64_t *out) {
  if (parse_integer(value, row->minimum, row->maximum, out)) return CLI_SUCCESS;
  if (row->maximum == INT64_MAX)
    return cli_misuse(command, "%s needs an integer of at least %lld, not '%s'", row->name,
                      (long long)row->minimum, value);
  return cli_misuse(command, "%s needs an integer from %lld to %lld, not '%s'", row->name,
                    (long long)row->minimum, (long long)row->maximum, value);
}

static int set_extent(const cli_command *command, const option *row, const char *value,
                      int64_t *out) {
  int status = set_count(command, row, value, out);
  if (status == CLI_SUCCESS && *out == 0) *out = CLI_EMPTY;
  return status;
}

static int set_seconds(const cli_command *command, const option *row, const char *value,
                       double *out) {
  char *end;
  *out = strtod(value, &end);
  bool number = end != value && isfinite(*out) && *out > 0;
  if (number && strcmp(end, "m") == 0) *out *= 60;
  if (number && (*end == '\0' || strcmp(end, "s") == 0 || strcmp(end, "m") == 0))
    return CLI_SUCCESS;
  return cli_misuse(command, "%s needs a number of seconds above 0, not '%s'", row->name, value);
}

// The calendar is the library's business.
static bool is_date(const char *text) {
  static const char form[] = "dddd-dd-ddTdd:dd:ddZ";
  size_t length = strlen(text);
  if (length != 10 && length != sizeof form - 1) return false;
  for (size_t i = 0; i < length; i++)
    if (form[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return false;
  return true;
}

static int add_pair(const cli_command *command, const option *row, char *value, cli_pairs *pairs) {
  char *equals = strchr(value, '=');
  if (!equals || equals == value || equals[1] == '\0')
    return cli_misuse(command, "%s needs %s, not '%s'", row->name, row->value, value);
  *equals = '\0';
  cli_pair pair = {.name = value + (*value == '%'), .value = equals + 1};
  if (row->kind == SIZES && !parse_integer(pair.value, 0, INT64_MAX, &pair.number))
    return cli_misuse(command, "%s %s needs an integer of at least 0, not '%s'", row->name,
                      pair.name, pair.value);
  for (uint32_t i = 0; i < pairs->count; i++)
    if (strcmp(pairs->data[i].name, pair.name) == 0)
      return cli_misuse(command, "%s %s is given twice", row->name, pair.name);
  pairs->data[pairs->count++] = pair;
  return CLI_SUCCESS;
}

static int set_value(const cli_command *command, const option *row, char *value,
                     cli_options *options) {
  void *member = (char *)options + row->offset;
  switch (row->kind) {
  case FLAG:
    *(bool *)member = true;
    return CLI_SUCCESS;
  case TEXT:
    *(const char **)member = value;
    return CLI_SUCCESS;
  case TARGETS:
    *(const char **)member = value;
    options->targets.data[options->targets.count++] = value;
    return CLI_SUCCESS;
  case DATE:
    *(const char **)member = value;
    return is_date(value) ? CLI_SUCCESS
                          : cli_misuse(command, "%s needs a date such as 2026-11-30, not '%s'",
                                       row->name, value);
  case COUNT:
    return set_count(command, row, value, member);
  case EXTENT:
    return set_extent(command, row, value, member);
  case SECONDS:
    return set_seconds(command, row, value, member);
  case NAMES:
  case SIZES:
    return add_pair(command, row, value, member);
  }
  return CLI_SUCCESS;
}

// ---- the command line ---------------------------------------------------------------------------

// The row of an argument "--name", "--name=value" or "-ovalue"; *value is what is attached, or
// NULL.
static const option *find_option(const cli_command *command, char *argument, char **value) {
  bool is_long = argument[1] == '-';
  size_t length = is_long ? strcspn(argument, "=") : 2;
  *value = argument[length] ? argument + length + is_long : NULL;
  for (const option *row = table; row < table + OPTION_COUNT; row++)
    if (row->commands & command->bit && strlen(row->name) == length &&
        memcmp(row->name, argument, length) == 0)
      return row;
  return NULL;
}

static int unknown_option(const cli_command *command, char *argument) {
  const char *names[OPTION_COUNT + 1] = {NULL};
  size_t count = 0;
  for (const option *row = table; row < table + OPTION_COUNT; row++)
    if (row->commands & command->bit) names[count++] = row->name;
  if (argument[1] == '-') argument[strcspn(argument, "=")] = '\0';
  const char *nearest = cli_nearest(argument, names);
  return cli_misuse(command, "%s has no option '%s'%s%s%s", command->name, argument,
                    nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

static int parse_option(const cli_command *command, char **argv, int argc, int *index,
                        cli_options *options) {
  char *value, *argument = argv[*index];
  if (strcmp(argument, "-h") == 0) {
    options->help = true;
    return CLI_SUCCESS;
  }
  const option *row = find_option(command, argument, &value);
  if (!row) return unknown_option(command, argument);
  if (row->kind == FLAG && value) return cli_misuse(command, "%s takes no value", row->name);
  if (row->kind != FLAG && !value) {
    if (*index + 1 == argc || strncmp(argv[*index + 1], "--", 2) == 0)
      return cli_misuse(command, "%s needs a value: %s %s", row->name, row->name, row->value);
    value = argv[++*index];
  }
  return set_value(command, row, value, options);
}

int cli_parse(const cli_command *command, int argc, char **argv, cli_options *options) {
  for (cli_pairs **pairs = (cli_pairs *[]){&options->set, &options->in, &options->out, NULL};
       *pairs; pairs++)
    (*pairs)->data = cli_alloc((size_t)argc, sizeof(cli_pair));
  options->targets.data = cli_alloc((size_t)argc, sizeof *options->targets.data);
  bool only_files = false;
  for (int i = 0; i < argc; i++) {
    if (!only_files && strcmp(argv[i], "--") == 0) {
      only_files = true;
    } else if (!only_files && argv[i][0] == '-' && argv[i][1] != '\0') {
      int status = parse_option(command, argv, argc, &i, options);
      if (status != CLI_SUCCESS) return status;
    } else if (!command->operand) {
      return cli_misuse(command, "%s takes no FILE, found '%s'", command->name, argv[i]);
    } else if (options->file) {
      return cli_misuse(command, "%s takes one %s, found '%s' and '%s'", command->name,
                        command->operand->name, options->file, argv[i]);
    } else {
      options->file = argv[i];
    }
  }
  bool required = command->operand && command->operand->required;
  if (required && !options->file && !options->help && !options->list)
    return cli_misuse(command, "%s needs %s", command->name, command->operand->what);
  return CLI_SUCCESS;
}
