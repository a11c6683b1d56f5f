// fathom compile: what the compiler makes of a graph, as text or as an object file.
#include <string.h>

#include "cli.h"

static const char bundle[] = "bundle";

// Checked here so that a slip of the pen is wrong usage; whether the target has it is the library's
// answer.
static const char *const artefacts[] = {"report", "graph", "kernel", "llvm", "asm", "obj",
                                        "cuda",   "ptx",   "cubin",  bundle, NULL};

static int check_emit(const cli_options *options, const char *what) {
  for (const char *const *name = artefacts; *name; name++)
    if (strcmp(what, *name) == 0) return CLI_SUCCESS;
  const char *nearest = cli_nearest(what, artefacts);
  return cli_misuse(options->command, "nothing to emit is called '%s'; %s%s%s", what,
                    nearest ? "did you mean '"
                            : "report, graph, kernel, llvm, asm, obj, cuda, ptx, cubin and bundle "
                              "are",
                    nearest ? nearest : "", nearest ? "'?" : "");
}

static const char *const usual[] = {"cpu"};

static fathom_status make(const cli_session *session, const cli_options *options, const char *what,
                          fathom_text *text) {
  fathom_compile_options wanted = cli_compile_options(options);
  if (what != bundle) return fathom_emit(session->context, session->graph, &wanted, what, text);
  const bool named = options->targets.count > 0;
  return fathom_executable_save(session->context, session->graph,
                                named ? options->targets.data : usual,
                                named ? options->targets.count : 1, &wanted, text);
}

static int emit(const cli_session *session, const cli_options *options, const char *what) {
  cli_output *output;
  int status = cli_output_plan(options->output, &output);
  if (status != CLI_SUCCESS) return status;
  bool binary = strcmp(what, "obj") == 0 || strcmp(what, "cubin") == 0 || what == bundle;
  if (binary && cli_output_is_terminal(output))
    return cli_misuse(options->command, "%s is binary; name a file with -o, or pipe it", what);
  fathom_text text = {0};
  if (make(session, options, what, &text) != FATHOM_OK) return cli_library_failed();
  status = cli_output_text(output, &text);
  fathom_text_destroy(&text);
  cli_explain(session, options, 0, NULL);
  return status == CLI_SUCCESS ? cli_output_commit() : status;
}

// A model's bundle: there is nothing else that a whole model becomes.
static int save_model(fathom_context *context, const cli_options *options) {
  fathom_model_options wanted;
  fathom_text text = {0};
  cli_output *output;
  const bool named = options->targets.count > 0;
  int status = cli_model_options(options, &wanted);
  if (status == CLI_SUCCESS) status = cli_output_plan(options->output, &output);
  if (status != CLI_SUCCESS) return status;
  if (cli_output_is_terminal(output))
    return cli_misuse(options->command, "a bundle is binary; name a file with -o, or pipe it");
  if (fathom_model_save(context, options->file, named ? options->targets.data : usual,
                        named ? options->targets.count : 1, &wanted, &text) != FATHOM_OK)
    return cli_library_failed();
  return cli_output_result(output, &text);
}

static int run_model(const cli_options *options, const char *what) {
  if (what != bundle)
    return cli_misuse(options->command,
                      "a model becomes a bundle: -o FILE.fathom; its graph is what `fathom expand` "
                      "prints");
  if (options->set.count > 0 || options->graph != NULL || options->schedule != NULL)
    return cli_misuse(options->command, "a model takes no --set, --graph or --schedule");
  return cli_with_context(options, save_model);
}

static int run(const cli_options *options) {
  if (options->list) return cli_print_list(fathom_schedule_list);
  const char *what = options->emit                    ? options->emit
                     : cli_is_bundle(options->output) ? bundle
                                                      : "report";
  if (strcmp(what, bundle) == 0) what = bundle;
  int status = check_emit(options, what);
  if (status == CLI_SUCCESS && what != bundle && options->targets.count > 1)
    status = cli_misuse(options->command, "several targets are for a bundle: -o FILE.fathom");
  if (status != CLI_SUCCESS) return status;
  if (cli_is_model(options->file)) return run_model(options, what);
  cli_session session;
  status = cli_refuse_model_options(options);
  if (status != CLI_SUCCESS) return status;
  status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) status = emit(&session, options, what);
  cli_session_close(&session);
  return status;
}

const cli_command cli_compile = {
    .name = "compile",
    .bit = CLI_COMPILE,
    .operand = &cli_graph_file,
    .summary = "compile a graph and print what was made",
    .about =
        "Compiles a graph and prints one of the compiler's products, by default a report that\n"
        "gives each kernel's schedule, bytes and flops per token and registers.",
    .example =
        "  $ fathom compile k3_site.fir --set D=7168\n"
        "  reports on the kernel for this machine;\n"
        "  $ fathom compile k3_site.fir --set D=7168 --mcpu=znver4 --emit obj -o site.o\n"
        "  writes object code for another one;\n"
        "  $ fathom compile k3_site.fir --set D=7168 --target cuda:sm_90 --emit cuda -o k.cu\n"
        "  writes CUDA C, for which neither a GPU nor NVRTC is needed;\n"
        "  $ fathom compile k3_site.fir --set D=7168 --target cpu --target cuda:sm_90a -o "
        "k3.fathom\n"
        "  writes code for both, which runs where neither LLVM nor NVRTC is;\n"
        "  $ fathom compile kimi-k3 --target cpu --target cuda:sm_90a -o kimi-k3.fathom\n"
        "  the same of all kernels of a model, and its plan.\n",
    .run = run,
};
