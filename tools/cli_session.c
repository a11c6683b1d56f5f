// sessions: what every command does first: read FILE, parse it, pick the graph, bind its axes. Also
// the program's memory and how it spells types.
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

// ---- memory -------------------------------------------------------------------------------------

// Chains every allocation, so that it counts as reachable to a leak checker until the process ends.
typedef union block {
  union block *next;
  char alignment[128];
} block;
static block *blocks;

void *cli_alloc(size_t count, size_t size) {
  size_t bytes, total;
  bool fits = !__builtin_mul_overflow(count, size, &bytes) &&
              !__builtin_add_overflow(bytes, 2 * sizeof(block) - 1, &total);
  block *made = fits ? aligned_alloc(sizeof(block), total / sizeof(block) * sizeof(block)) : NULL;
  if (!made) exit(cli_fail("out of memory: %zu times %zu bytes are needed", count, size));
  made->next = blocks;
  blocks = made;
  return memset(made + 1, 0, bytes);
}

char *cli_format(const char *format, ...) {
  char *text;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  if (length < 0) exit(cli_fail("out of memory"));
  char *copy = memcpy(cli_alloc((size_t)length + 1, 1), text, (size_t)length);
  free(text);
  return copy;
}

// ---- types --------------------------------------------------------------------------------------

typedef fathom_status (*info_getter)(const fathom_graph *graph, uint32_t index,
                                     fathom_tensor_info *info);

static fathom_tensor_info *get_infos(const fathom_graph *graph, uint32_t count, info_getter get) {
  fathom_tensor_info *infos = cli_alloc(count, sizeof *infos);
  for (uint32_t i = 0; i < count; i++) {
    infos[i].size = sizeof *infos;
    if (get(graph, i, &infos[i]) != FATHOM_OK) exit(cli_library_failed());
  }
  return infos;
}

fathom_tensor_info *cli_params(const fathom_graph *graph, uint32_t *count) {
  *count = fathom_graph_param_count(graph);
  return get_infos(graph, *count, fathom_graph_param);
}

fathom_tensor_info *cli_results(const fathom_graph *graph, uint32_t *count) {
  *count = fathom_graph_result_count(graph);
  return get_infos(graph, *count, fathom_graph_result);
}

// The same of an executable; `get` knows which.
static fathom_tensor_info *get_compiled(const fathom_executable *executable, uint32_t count,
                                        fathom_status (*get)(const fathom_executable *executable,
                                                             uint32_t index,
                                                             fathom_tensor_info *info)) {
  fathom_tensor_info *infos = cli_alloc(count, sizeof *infos);
  for (uint32_t i = 0; i < count; i++) {
    infos[i].size = sizeof *infos;
    if (get(executable, i, &infos[i]) != FATHOM_OK) exit(cli_library_failed());
  }
  return infos;
}

fathom_tensor_info *cli_executable_params(const fathom_executable *executable, uint32_t *count) {
  *count = fathom_executable_param_count(executable);
  return get_compiled(executable, *count, fathom_executable_param);
}

fathom_tensor_info *cli_executable_results(const fathom_executable *executable, uint32_t *count) {
  *count = fathom_executable_result_count(executable);
  return get_compiled(executable, *count, fathom_executable_result);
}

const char *cli_dtype_name(fathom_dtype dtype) {
  static const char *const names[] = {[FATHOM_F32] = "f32",
                                      [FATHOM_BF16] = "bf16",
                                      [FATHOM_F16] = "f16",
                                      [FATHOM_F8E4M3] = "f8e4m3"};
  return names[dtype];
}

static bool has_layout(const fathom_tensor_info *info) {
  for (uint32_t i = 0; i < info->rank; i++)
    if (info->layout[i] != i) return true;
  return false;
}

char *cli_type_text(const fathom_tensor_info *info) {
  char *text = cli_format("%s[", cli_dtype_name(info->dtype));
  for (uint32_t i = 0; i < info->rank; i++) {
    text = cli_format("%s%s%s", text, i ? ", " : "", info->axes[i]);
    if (info->sizes[i] != FATHOM_DYNAMIC) text = cli_format("%s=%" PRId64, text, info->sizes[i]);
  }
  text = cli_format("%s]", text);
  if (!has_layout(info)) return text;
  for (uint32_t i = 0; i < info->rank; i++)
    text = cli_format("%s%s%s", text, i ? ", " : " layout(", info->axes[info->layout[i]]);
  return cli_format("%s)", text);
}

// ---- reading FILE -------------------------------------------------------------------------------

// IR text is small; a limit keeps a device or a data file given by mistake from filling the memory.
enum { MAX_TEXT = 64 << 20, MAX_BUNDLE = 1 << 30, FIRST_READ = 64 << 10 };

static int read_stream(FILE *file, const char *name, size_t limit, const char *expected,
                       fathom_text *text) {
  size_t capacity = FIRST_READ;
  for (text->length = 0;; capacity *= 2) {
    char *larger = realloc(text->data, capacity);
    if (!larger) return cli_fail("%s: no memory for %zu bytes of text", name, capacity);
    text->data = larger;
    text->length += fread(text->data + text->length, 1, capacity - text->length, file);
    if (ferror(file)) return cli_fail("%s cannot be read: %s", name, strerror(errno));
    if (text->length < capacity) return CLI_SUCCESS;
    if (text->length >= limit)
      return cli_fail("%s is longer than %zu MiB; %s was expected", name, limit >> 20, expected);
  }
}

static int parse_stream(fathom_context *context, FILE *file, const char *name,
                        fathom_module **module) {
  fathom_text text = {0};
  int status = read_stream(file, name, MAX_TEXT, "a file of graph IR", &text);
  if (status == CLI_SUCCESS &&
      fathom_parse(context, text.data, text.length, name, module) != FATHOM_OK)
    status = cli_library_failed();
  free(text.data);
  return status;
}

static int parse_file(fathom_context *context, const char *path, fathom_module **module) {
  if (strcmp(path, "-") == 0) return parse_stream(context, stdin, "<stdin>", module);
  FILE *file = fopen(path, "rb");
  if (!file) return cli_fail("%s cannot be opened: %s", path, strerror(errno));
  int status = parse_stream(context, file, path, module);
  fclose(file);
  return status;
}

// ---- binding ------------------------------------------------------------------------------------

static bool mentions_axis(const fathom_graph *graph, const char *axis) {
  uint32_t counts[2];
  const fathom_tensor_info *infos[2] = {cli_params(graph, &counts[0]),
                                        cli_results(graph, &counts[1])};
  for (int side = 0; side < 2; side++)
    for (uint32_t i = 0; i < counts[side]; i++)
      for (uint32_t j = 0; j < infos[side][i].rank; j++)
        if (strcmp(infos[side][i].axes[j], axis) == 0) return true;
  return false;
}

static bool mentioned_anywhere(fathom_module *module, const char *axis) {
  for (uint32_t i = 0; i < fathom_module_count(module); i++)
    if (mentions_axis(fathom_module_graph_at(module, i), axis)) return true;
  return false;
}

// Binds one --set in every graph that has the axis. Where none has it, the library says so.
static int bind_everywhere(fathom_module *module, const cli_pair *pair) {
  bool known = mentioned_anywhere(module, pair->name);
  for (uint32_t i = 0; i < fathom_module_count(module); i++) {
    fathom_graph *graph = fathom_module_graph_at(module, i);
    if (known && !mentions_axis(graph, pair->name)) continue;
    if (fathom_graph_bind(graph, pair->name, pair->number) != FATHOM_OK)
      return cli_library_failed();
  }
  return CLI_SUCCESS;
}

static int bind_axes(cli_session *session, const cli_pairs *set) {
  for (uint32_t i = 0; i < set->count; i++) {
    const cli_pair *pair = &set->data[i];
    int status = CLI_SUCCESS;
    if (!session->graph)
      status = bind_everywhere(session->module, pair);
    else if (fathom_graph_bind(session->graph, pair->name, pair->number) != FATHOM_OK)
      status = cli_library_failed();
    if (status != CLI_SUCCESS) return status;
  }
  return CLI_SUCCESS;
}

// ---- sessions -----------------------------------------------------------------------------------

int cli_context_create(const cli_options *options, fathom_context **context) {
  fathom_context_options wanted = FATHOM_INIT(wanted);
  wanted.threads = (uint32_t)options->threads;
  return fathom_context_create(&wanted, context) == FATHOM_OK ? CLI_SUCCESS : cli_library_failed();
}

int cli_with_context(const cli_options *options,
                     int (*work)(fathom_context *context, const cli_options *options)) {
  fathom_context *context = NULL;
  int status = cli_context_create(options, &context);
  if (status == CLI_SUCCESS) status = work(context, options);
  fathom_context_destroy(context);
  return status;
}

// What stands behind the colon of a target is the library's to judge.
static bool is_gpu(const char *target) {
  size_t length = target ? strcspn(target, ":") : 0;
  return (length == 4 && strncmp(target, "cuda", length) == 0) ||
         (length == 8 && strncmp(target, "cuda-emu", length) == 0);
}

// Options that the target has no use for are wrong usage.
static int check_target(const cli_options *options) {
  if (options->threads == 0 || !is_gpu(options->target)) return CLI_SUCCESS;
  return cli_misuse(options->command, "--threads is for the CPU; the target %s has its own",
                    options->target);
}

int cli_session_open(const cli_options *options, enum cli_scope scope, cli_session *session) {
  *session = (cli_session){0};
  int status = check_target(options);
  if (status == CLI_SUCCESS) status = cli_context_create(options, &session->context);
  if (status == CLI_SUCCESS) status = parse_file(session->context, options->file, &session->module);
  if (status != CLI_SUCCESS) return status;
  if ((scope == CLI_ONE_GRAPH || options->graph) &&
      fathom_module_graph(session->module, options->graph, &session->graph) != FATHOM_OK)
    return cli_library_failed();
  return bind_axes(session, &options->set);
}

void cli_session_close(cli_session *session) {
  fathom_module_destroy(session->module);
  fathom_context_destroy(session->context);
}

// ---- bundles ------------------------------------------------------------------------------------

bool cli_is_bundle(const char *path) {
  static const char ending[] = ".fathom";
  size_t length = path != NULL ? strlen(path) : 0;
  return length >= sizeof ending - 1 && strcmp(path + length - (sizeof ending - 1), ending) == 0;
}

// What was decided when it was compiled.
static int check_fixed(const cli_options *options) {
  const char *given = options->graph       ? "--graph"
                      : options->set.count ? "--set"
                      : options->schedule  ? "--schedule"
                      : options->cpu       ? "--mcpu"
                      : options->sanitize  ? "--sanitize"
                                           : NULL;
  if (given == NULL) return check_target(options);
  return cli_misuse(options->command, "%s is for graphs, and %s is compiled already", given,
                    options->file);
}

static int load_bundle(const cli_options *options, FILE *file, fathom_context *context,
                       fathom_executable **executable) {
  fathom_text bytes = {0};
  int status = read_stream(file, options->file, MAX_BUNDLE, "a bundle", &bytes);
  if (status == CLI_SUCCESS && fathom_executable_load(context, bytes.data, bytes.length,
                                                      options->target, executable) != FATHOM_OK)
    status = cli_library_failed();
  free(bytes.data);
  return status;
}

int cli_bundle_open(const cli_options *options, cli_session *session,
                    fathom_executable **executable) {
  *session = (cli_session){0};
  int status = check_fixed(options);
  if (status == CLI_SUCCESS) status = cli_context_create(options, &session->context);
  if (status != CLI_SUCCESS) return status;
  FILE *file = fopen(options->file, "rb");
  if (!file) return cli_fail("%s cannot be opened: %s", options->file, strerror(errno));
  status = load_bundle(options, file, session->context, executable);
  fclose(file);
  return status;
}

// ---- values of options --------------------------------------------------------------------------

static const char *const cache_names[] = {
    [FATHOM_CACHE_WARM] = "warm",
    [FATHOM_CACHE_COLD] = "cold",
};

const char *cli_cache_name(fathom_cache cache) {
  return cache_names[cache];
}

int cli_cache_state(const cli_options *options, fathom_cache *out) {
  *out = FATHOM_CACHE_DEFAULT;
  if (options->cache == NULL) return CLI_SUCCESS;
  for (fathom_cache cache = FATHOM_CACHE_WARM; cache <= FATHOM_CACHE_COLD; cache++)
    if (strcmp(options->cache, cache_names[cache]) == 0) *out = cache;
  if (*out != FATHOM_CACHE_DEFAULT) return CLI_SUCCESS;
  return cli_misuse(options->command, "--cache is '%s', expected warm or cold", options->cache);
}

fathom_compile_options cli_compile_options(const cli_options *options) {
  fathom_compile_options wanted = FATHOM_INIT(wanted);
  wanted.target = options->target;
  wanted.cpu = options->cpu;
  wanted.schedule = options->schedule;
  wanted.verify_each = options->verify_each;
  wanted.sanitize = options->sanitize;
  return wanted;
}

// ---- models -------------------------------------------------------------------------------------

bool cli_is_model(const char *file) {
  const size_t length = strlen(file);
  if (length > 5 && strcmp(file + length - 5, ".yaml") == 0) return true;
  return strchr(file, '/') == NULL && strchr(file, '.') == NULL && strcmp(file, "-") != 0;
}

int cli_refuse_model_options(const cli_options *options) {
  if (options->phases == NULL && options->outputs == NULL) return CLI_SUCCESS;
  return cli_misuse(options->command, "--phases and --outputs are for models, and %s is a graph",
                    options->file);
}

static int read_outputs(const cli_options *options, uint32_t *outputs) {
  static const struct {
    const char *name;
    uint32_t bit;
  } known[] = {
      {"weights", FATHOM_OUTPUT_WEIGHTS},
      {"entropy", FATHOM_OUTPUT_ENTROPY},
      {"mix", FATHOM_OUTPUT_MIX},
      {"fp8", FATHOM_OUTPUT_FP8},
  };
  *outputs = 0;
  for (const char *rest = options->outputs; rest != NULL && *rest != 0;) {
    const size_t length = strcspn(rest, ",");
    uint32_t bit = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
      if (strlen(known[i].name) == length && strncmp(known[i].name, rest, length) == 0)
        bit = known[i].bit;
    if (bit == 0)
      return cli_misuse(options->command,
                        "unknown output '%.*s': expected weights, entropy, mix or fp8", (int)length,
                        rest);
    *outputs |= bit;
    rest += length + (rest[length] == ',');
  }
  return CLI_SUCCESS;
}

static int read_phases(const cli_options *options, fathom_phases *phases) {
  static const char *const names[] = {"auto", "one", "two"}; // from FATHOM_PHASES_AUTO on
  *phases = FATHOM_PHASES_DESCRIBED;
  if (options->phases == NULL) return CLI_SUCCESS;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(options->phases, names[i]) == 0) *phases = (fathom_phases)(FATHOM_PHASES_AUTO + i);
  if (*phases != FATHOM_PHASES_DESCRIBED) return CLI_SUCCESS;
  return cli_misuse(options->command, "unknown phases '%s': expected one, two or auto",
                    options->phases);
}

int cli_model_options(const cli_options *options, fathom_model_options *out) {
  *out = (fathom_model_options)FATHOM_INIT(*out);
  out->cpu = options->cpu;
  const int status = read_outputs(options, &out->outputs);
  return status == CLI_SUCCESS ? read_phases(options, &out->phases) : status;
}
