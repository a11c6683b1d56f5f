// tools: the fathom program. It sees fathom.h and the C library, nothing else of the tree, so it is
// also the proof that the public header is enough.
//
// Sections: commands, options, messages, memory, sessions, bundles, explaining, result files, JSON, tensors.
//
// One process runs one command. So what is allocated here lives until exit, running out of memory
// ends the process, and every function that fails has already said why on stderr and returns the
// exit code.
#ifndef FATHOM_CLI_H
#define FATHOM_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "fathom.h"
#include "npy.h"

// ---- commands -----------------------------------------------------------------------------------

// Exit codes (DESIGN: the command line is a contract).
enum { CLI_SUCCESS = 0, CLI_FAILURE = 1, CLI_USAGE = 2 };

struct cli_options;

// The word of a command line that is no option.
typedef struct cli_operand {
  const char *name; // "FILE"
  bool required;
  const char *what; // for messages: "a FILE of graph IR; - is standard input"
} cli_operand;

extern const cli_operand cli_graph_file, cli_model;

typedef struct cli_command {
  const char *name;           // as it is typed: "opt"; of a subcommand both words, "cache list"
  uint32_t bit;               // CLI_*: which options of the option table it takes
  const cli_operand *operand; // NULL: it takes none
  const char *summary;        // one line, for the list of commands
  const char *about;          // what --help teaches
  const char *example;
  int (*run)(const struct cli_options *options); // NULL: one of its subcommands has to be named
  const struct cli_command *const *subcommands;  // ended by NULL; or NULL
} cli_command;

enum {
  CLI_OPT = 1,
  CLI_COMPILE = 2,
  CLI_RUN = 4,
  CLI_CHECK = 8,
  CLI_BENCH = 16,
  CLI_TUNE = 32,
  CLI_INFO = 64,
  CLI_CACHE = 128,
  CLI_CACHE_LIST = 256,
  CLI_CACHE_SHOW = 512,
  CLI_CACHE_MERGE = 1024,
  CLI_CACHE_PRUNE = 2048,
  CLI_CACHE_EXPORT = 4096,
  CLI_CACHE_VALIDATE = 8192,
  CLI_EXPAND = 16384,
  CLI_PLAN = 32768,
};

extern const cli_command cli_opt, cli_compile, cli_run, cli_check, cli_bench, cli_tune, cli_cache,
    cli_expand, cli_plan, cli_info;

// ---- options ------------------------------------------------------------------------------------

// NAME=VALUE; `number` is VALUE's where the option wants an integer.
typedef struct cli_pair {
  const char *name, *value;
  int64_t number;
} cli_pair;

typedef struct cli_pairs {
  cli_pair *data;
  uint32_t count;
} cli_pairs;

typedef struct cli_texts {
  const char **data;
  uint32_t count;
} cli_texts;

enum { CLI_EMPTY = -1 }; // a --size of 0

// All options of all commands. Zero means "not given" throughout, which is also how fathom.h spells
// defaults.
typedef struct cli_options {
  const cli_command *command;
  const char *file; // the command's operand: FILE, of which "-" is standard input; or GRAPH
  const char *graph, *target, *cpu, *schedule, *output, *emit, *passes, *cache, *strategy, *report,
      *records, *before, *suite, *outputs, *phases;
  cli_texts targets; // of compile, which takes several; `target` is the last of them
  cli_pairs set, in, out;
  int64_t threads, seeds, size, misalign, trials, seed;
  double seconds, budget;
  bool help, list, print_after_all, verify_each, time_passes, raw, strided, json, sanitize, resume,
      dry, stale, offline, again;
} cli_options;

// Parses what follows the command's name. CLI_SUCCESS, or CLI_USAGE after a message.
int cli_parse(const cli_command *command, int argc, char **argv, cli_options *options);
// The option lines of a command's --help.
void cli_print_options(const cli_command *command);
// The name closest to `word` in `names` (ended by NULL); NULL when none is close.
const char *cli_nearest(const char *word, const char *const *names);

// ---- messages -----------------------------------------------------------------------------------

// "fathom: error: ...", on stderr. Returns CLI_FAILURE.
int cli_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same, and where to find help. `command` may be NULL. Returns CLI_USAGE.
int cli_misuse(const cli_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// What the library's last failing call said. Returns CLI_FAILURE.
int cli_library_failed(void);
// Prints what one of the library's list functions gives.
int cli_print_list(fathom_status (*list)(fathom_text *out));

// ---- memory -------------------------------------------------------------------------------------

// `count` * `size` zeroed bytes, aligned to 128. Ends the process when there is no such memory.
void *cli_alloc(size_t count, size_t size);
char *cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- sessions -----------------------------------------------------------------------------------

// A context and the parsed FILE.
typedef struct cli_session {
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph; // the one --graph names; NULL when every graph is meant
} cli_session;

enum cli_scope { CLI_ONE_GRAPH, CLI_ALL_GRAPHS };

// Reads and parses options->file and binds the axes of --set. With CLI_ALL_GRAPHS and no --graph
// every graph of the file is bound. Close the session in either case.
int cli_session_open(const cli_options *options, enum cli_scope scope, cli_session *session);
void cli_session_close(cli_session *session);
int cli_context_create(const cli_options *options, fathom_context **context);
// What `work` returns, with a context for as long as it runs.
int cli_with_context(const cli_options *options,
                     int (*work)(fathom_context *context, const cli_options *options));
fathom_compile_options cli_compile_options(const cli_options *options);
// Does FILE mean a model? Then it ends in .yaml, or is the name of one that comes with Fathom, with neither
// folder nor ending.
bool cli_is_model(const char *file);
// Of a graph: --phases and --outputs are wrong usage.
int cli_refuse_model_options(const cli_options *options);
// What --outputs, --phases and --mcpu say of a model.
int cli_model_options(const cli_options *options, fathom_model_options *out);
// What --cache says.
int cli_cache_state(const cli_options *options, fathom_cache *out);
const char *cli_cache_name(fathom_cache cache);

// Parameters (or results) of a graph, or of what was compiled, all at once.
fathom_tensor_info *cli_params(const fathom_graph *graph, uint32_t *count);
fathom_tensor_info *cli_results(const fathom_graph *graph, uint32_t *count);
fathom_tensor_info *cli_executable_params(const fathom_executable *executable, uint32_t *count);
fathom_tensor_info *cli_executable_results(const fathom_executable *executable, uint32_t *count);
const char *cli_dtype_name(fathom_dtype dtype);
// A type as the IR writes it: bf16[B=8, T, D=7168] layout(T, B, D).
char *cli_type_text(const fathom_tensor_info *info);

// ---- bundles ------------------------------------------------------------------------------------

// Is FILE compiled code (X.fathom) rather than graph IR?
bool cli_is_bundle(const char *path);
// Opens a session without a graph, and what options->file holds for the target.
int cli_bundle_open(const cli_options *options, cli_session *session,
                    fathom_executable **executable);

// ---- explaining ---------------------------------------------------------------------------------

// Does $FATHOM_VERBOSE ask for it? Not when it is empty or 0.
bool cli_verbose(void);

// What a run of the kernels of a graph took; zeros are not known.
typedef struct cli_measured {
  const char *schedule, *source; // NULL: as the library explains it
  double time_us, gb_s, of_ceiling;
} cli_measured;

// With $FATHOM_VERBOSE: a line of CSV on stderr for each kernel of the session's graph, before the first
// one in the process a line of names. `rows`: of a run; 0: of any number. `measured` may be NULL; it is
// told on the first kernel's line.
void cli_explain(const cli_session *session, const cli_options *options, int64_t rows,
                 const cli_measured *measured);

// Rows of runs: the sizes of the dynamic axes, multiplied. They are what `params`, the graph's with all
// sizes, have there; without (NULL) all are `dynamic_size`.
int64_t cli_rows(const fathom_graph *graph, const fathom_tensor_info *params, int64_t dynamic_size);

// ---- result files -------------------------------------------------------------------------------

// A result goes to a unique temporary beside its path; cli_output_commit renames all of them once
// all are complete. When the process fails or is interrupted before that, they are removed, and
// what stood at the paths is untouched. Devices and pipes are written directly.
typedef struct cli_output cli_output;

// Says at once when `path` (NULL and "-": stdout) could not be written or was planned before.
int cli_output_plan(const char *path, cli_output **out);
bool cli_output_is_terminal(const cli_output *output);
int cli_output_open(cli_output *output, FILE **stream);
// What a failed write to the stream means. Returns CLI_FAILURE.
int cli_output_failed(const cli_output *output);
// Opens `output` and writes `text`.
int cli_output_text(cli_output *output, const fathom_text *text);
int cli_output_commit(void);
// Both, for a text that is the command's only result; it is destroyed.
int cli_output_result(cli_output *output, fathom_text *text);

// ---- JSON ---------------------------------------------------------------------------------------

// On stdout; the last two are a member of an object, with a comma before it.
void cli_json_string(const char *text);
void cli_json_text(const char *key, const char *text);
void cli_json_number(const char *key, double number); // null unless it is finite

// ---- tensors ------------------------------------------------------------------------------------

// Memory of one parameter or result, with its axes placed in the order of the type's layout.
typedef struct cli_tensor {
  const fathom_tensor_info *info; // with every size known
  int64_t strides[FATHOM_MAX_RANK];
  DLTensor view; // the same, as the library wants it
} cli_tensor;

int cli_tensor_create(const fathom_tensor_info *info, cli_tensor *tensor);
// Copies an array into the tensor, rounding <f4 to the tensor's dtype. Fails when the dtypes do not
// fit; shapes must agree. `path` is for the message.
int cli_tensor_load(cli_tensor *tensor, const npy_array *array, const char *path);
// Writes the tensor in axis order; bf16 and f8e4m3 as <f4, or as their bits with `raw`.
int cli_tensor_save(const cli_tensor *tensor, bool raw, cli_output *output);

#endif
