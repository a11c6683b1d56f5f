// fathom run: a graph on arrays from .npy files. The order of the work is the order in which
// mistakes are found: names first, then whether the results can be written, the schedule, the
// arrays, and only then the run.
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli.h"

// One parameter or result and the file it is bound to.
typedef struct binding {
  fathom_tensor_info *info;
  const char *path;   // NULL: a result nobody asked for
  cli_output *output; // results with a path
  cli_tensor tensor;
} binding;

typedef struct job {
  const cli_options *options;
  cli_session *session;
  fathom_executable *executable; // of a bundle from the start
  const char *graph;             // its name
  binding *params, *results;
  uint32_t param_count, result_count;
} job;

// ---- names --------------------------------------------------------------------------------------

static char *list_of(const binding *bindings, uint32_t count) {
  char *text = "";
  for (uint32_t i = 0; i < count; i++)
    text = cli_format("%s%s%s: %s", text, i ? ", " : "", bindings[i].info->name,
                      cli_type_text(bindings[i].info));
  return text;
}

static binding *find(binding *bindings, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(bindings[i].info->name, name) == 0) return &bindings[i];
  return NULL;
}

// Attaches the files of --in or --out to the bindings they name.
static int attach(const job *job, const cli_pairs *files, binding *bindings, uint32_t count,
                  const char *kind) {
  for (uint32_t i = 0; i < files->count; i++) {
    binding *bound = find(bindings, count, files->data[i].name);
    if (!bound)
      return cli_fail("graph @%s has no %s '%s'; it has %s", job->graph, kind, files->data[i].name,
                      list_of(bindings, count));
    bound->path = files->data[i].value;
  }
  return CLI_SUCCESS;
}

static int check_inputs(const job *job) {
  char *missing = "";
  for (uint32_t i = 0; i < job->param_count; i++)
    if (!job->params[i].path)
      missing = cli_format("%s --in %s=FILE.npy", missing, job->params[i].info->name);
  if (*missing == '\0') return CLI_SUCCESS;
  return cli_fail("graph @%s also needs%s; it takes %s", job->graph, missing,
                  list_of(job->params, job->param_count));
}

static binding *bind_infos(fathom_tensor_info *infos, uint32_t count) {
  binding *bindings = cli_alloc(count, sizeof *bindings);
  for (uint32_t i = 0; i < count; i++)
    bindings[i].info = &infos[i];
  return bindings;
}

static int bind_names(job *job) {
  const fathom_graph *graph = job->session->graph;
  const fathom_executable *ready = job->executable;
  fathom_tensor_info *params = ready ? cli_executable_params(ready, &job->param_count)
                                     : cli_params(graph, &job->param_count);
  fathom_tensor_info *results = ready ? cli_executable_results(ready, &job->result_count)
                                      : cli_results(graph, &job->result_count);
  job->params = bind_infos(params, job->param_count);
  job->results = bind_infos(results, job->result_count);
  int status = attach(job, &job->options->in, job->params, job->param_count, "parameter");
  if (status == CLI_SUCCESS)
    status = attach(job, &job->options->out, job->results, job->result_count, "result");
  return status == CLI_SUCCESS ? check_inputs(job) : status;
}

static int plan_outputs(job *job) {
  for (uint32_t i = 0; i < job->result_count; i++) {
    if (!job->results[i].path) continue;
    int status = cli_output_plan(job->results[i].path, &job->results[i].output);
    if (status != CLI_SUCCESS) return status;
    if (cli_output_is_terminal(job->results[i].output))
      return cli_misuse(job->options->command, ".npy is binary; name a file for --out, or pipe it");
  }
  return CLI_SUCCESS;
}

// ---- arrays -------------------------------------------------------------------------------------

static char *shape_text(const npy_array *array) {
  char *text = "";
  for (uint32_t i = 0; i < array->rank; i++)
    text = cli_format("%s%s%" PRId64, text, i ? ", " : "", array->shape[i]);
  return cli_format("(%s%s)", text, array->rank == 1 ? "," : "");
}

// Gives a dynamic axis its size in every type that has it.
static void fix_axis(job *job, const char *axis, int64_t size) {
  for (uint32_t i = 0; i < job->param_count + job->result_count; i++) {
    fathom_tensor_info *info =
        i < job->param_count ? job->params[i].info : job->results[i - job->param_count].info;
    for (uint32_t j = 0; j < info->rank; j++)
      if (strcmp(info->axes[j], axis) == 0) info->sizes[j] = size;
  }
}

static int match_shape(job *job, const binding *param, const npy_array *array) {
  fathom_tensor_info *info = param->info;
  if (array->rank != info->rank)
    return cli_fail("%s has shape %s, %u axes; parameter '%s' is %s", param->path,
                    shape_text(array), array->rank, info->name, cli_type_text(info));
  for (uint32_t i = 0; i < info->rank; i++) {
    if (info->sizes[i] == FATHOM_DYNAMIC) fix_axis(job, info->axes[i], array->shape[i]);
    if (array->shape[i] != info->sizes[i])
      return cli_fail("%s has shape %s; parameter '%s' is %s, and axis %s is %" PRId64, param->path,
                      shape_text(array), info->name, cli_type_text(info), info->axes[i],
                      info->sizes[i]);
  }
  return CLI_SUCCESS;
}

static int read_array(const char *path, npy_array *array) {
  FILE *file = fopen(path, "rb");
  if (!file) return cli_fail("%s cannot be opened: %s", path, strerror(errno));
  npy_error error;
  bool good = npy_read(file, array, &error);
  fclose(file);
  return good ? CLI_SUCCESS : cli_fail("%s: %s", path, error.text);
}

static int load_param(job *job, binding *param) {
  npy_array array;
  int status = read_array(param->path, &array);
  if (status != CLI_SUCCESS) return status;
  status = match_shape(job, param, &array);
  if (status == CLI_SUCCESS) status = cli_tensor_create(param->info, &param->tensor);
  if (status == CLI_SUCCESS) status = cli_tensor_load(&param->tensor, &array, param->path);
  npy_free(&array);
  return status;
}

static int create_result(binding *result) {
  const fathom_tensor_info *info = result->info;
  for (uint32_t i = 0; i < info->rank; i++)
    if (info->sizes[i] == FATHOM_DYNAMIC)
      return cli_fail("no input has axis %s of result '%s'; fix its size with --set %s=INT",
                      info->axes[i], info->name, info->axes[i]);
  return cli_tensor_create(info, &result->tensor);
}

static int prepare_tensors(job *job) {
  int status = CLI_SUCCESS;
  for (uint32_t i = 0; i < job->param_count && status == CLI_SUCCESS; i++)
    status = load_param(job, &job->params[i]);
  for (uint32_t i = 0; i < job->result_count && status == CLI_SUCCESS; i++)
    status = create_result(&job->results[i]);
  return status;
}

// ---- running ------------------------------------------------------------------------------------

static int compile(job *job) {
  if (job->executable) return CLI_SUCCESS;
  fathom_compile_options wanted = cli_compile_options(job->options);
  if (fathom_compile(job->session->context, job->session->graph, &wanted, &job->executable) ==
      FATHOM_OK)
    return CLI_SUCCESS;
  return cli_library_failed();
}

static int execute(job *job) {
  uint32_t count = job->param_count + job->result_count;
  fathom_arg *args = cli_alloc(count, sizeof *args);
  for (uint32_t i = 0; i < count; i++) {
    const binding *bound =
        i < job->param_count ? &job->params[i] : &job->results[i - job->param_count];
    args[i] = (fathom_arg){.name = bound->info->name, .tensor = &bound->tensor.view};
  }
  size_t bytes;
  if (fathom_workspace_size(job->executable, args, count, NULL, &bytes) != FATHOM_OK)
    return cli_library_failed();
  void *workspace = cli_alloc(bytes, 1);
  if (fathom_run(job->executable, args, count, workspace, bytes, NULL) != FATHOM_OK)
    return cli_library_failed();
  return CLI_SUCCESS;
}

static int save_results(const job *job) {
  for (uint32_t i = 0; i < job->result_count; i++) {
    const binding *result = &job->results[i];
    if (!result->output) continue;
    int status = cli_tensor_save(&result->tensor, job->options->raw, result->output);
    if (status != CLI_SUCCESS) return status;
  }
  return cli_output_commit();
}

static int open_file(job *job) {
  if (!cli_is_bundle(job->options->file)) {
    int status = cli_session_open(job->options, CLI_ONE_GRAPH, job->session);
    if (status == CLI_SUCCESS) job->graph = fathom_graph_name(job->session->graph);
    return status;
  }
  fathom_executable_info info = FATHOM_INIT(info);
  int status = cli_bundle_open(job->options, job->session, &job->executable);
  if (status != CLI_SUCCESS) return status;
  if (fathom_executable_get_info(job->executable, &info) != FATHOM_OK) return cli_library_failed();
  job->graph = info.graph;
  return CLI_SUCCESS;
}

static int run(const cli_options *options) {
  static int (*const steps[])(job *job) = {open_file, bind_names,      plan_outputs,
                                           compile,   prepare_tensors, execute};
  cli_session session;
  job job = {.options = options, .session = &session};
  int status = CLI_SUCCESS;
  for (size_t i = 0; i < sizeof steps / sizeof *steps && status == CLI_SUCCESS; i++)
    status = steps[i](&job);
  if (status == CLI_SUCCESS) status = save_results(&job);
  if (status == CLI_SUCCESS && cli_verbose() && session.graph) {
    const fathom_tensor_info *params = job.param_count > 0 ? job.params[0].info : NULL;
    cli_explain(&session, options, cli_rows(session.graph, params, 0), NULL);
  }
  fathom_executable_destroy(job.executable);
  cli_session_close(&session);
  return status;
}

const cli_command cli_run = {
    .name = "run",
    .bit = CLI_RUN,
    .operand = &cli_graph_file,
    .summary = "run a graph on .npy arrays",
    .about =
        "Compiles a graph, runs it on arrays from .npy files and writes its results as .npy "
        "files,\n"
        "all of them or, when anything fails, none. FILE.fathom, a bundle from `fathom compile`, "
        "is\n"
        "compiled already, and loaded. Names go without %. Arrays are in the axis order of the\n"
        "type, whatever its layout; dynamic axes get their sizes from them.\n"
        "f32 takes dtype '<f4'; f16 takes '<f2' and '<f4'; bf16 takes '<f4' and, as bits, '<u2' "
        "or\n"
        "'|V2'; f8e4m3 takes '<f4' and, as bits, '|u1'. Where '<f4' is narrowed it is rounded to\n"
        "nearest even. f16 results are written as '<f2', all others as '<f4'.",
    .example = "  $ fathom run minilm_site.fir --in bank=bank.npy --in query=query.npy --in "
               "gain=gain.npy \\\n"
               "      --out a=weights.npy --out h=mix.npy\n"
               "  mixes the sources in bank.npy; weights.npy tells how much each one counted.\n",
    .run = run,
};
