// fathom tune: the fastest schedule for this machine.
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tune.h"

// ---- interrupts ---------------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;

// The first one ends the search with the best so far; a second one ends the program.
static void on_interrupt(int signal_number) {
  interrupted = 1;
  signal(signal_number, SIG_DFL);
}

static struct sigaction action_before;

void tune_catch_interrupts(void) {
  struct sigaction action = {.sa_handler = on_interrupt};
  sigaction(SIGINT, &action, &action_before);
}

void tune_release_interrupts(void) {
  sigaction(SIGINT, &action_before, NULL);
}

bool tune_is_interrupted(void) {
  return interrupted != 0;
}

static int asked_to_stop(void *user) {
  (void)user;
  return interrupted;
}

// ---- progress -----------------------------------------------------------------------------------

typedef struct display {
  bool terminal;
  bool waited; // for another tuner, and said so
  double last; // seconds at which something was shown
} display;

enum { BAR = 20 };

const char *tune_time_text(double microseconds) {
  return microseconds >= 1e4   ? cli_format("%.1f ms", microseconds / 1e3)
         : microseconds >= 100 ? cli_format("%.0f us", microseconds)
                               : cli_format("%.2f us", microseconds);
}

// Of the budget, or of what is planned where that ends first.
static double share_done(const fathom_tune_progress *p) {
  double time = p->budget > 0 ? p->elapsed / p->budget : 0;
  return fmin(fmax(time, p->confirming ? 0.95 : 0), 1);
}

// "best 9.48 us, 1.02 times the default, 81 % of the ceiling"
static void show_best(const fathom_tune_progress *p) {
  if (p->best_us <= 0) return;
  fprintf(stderr, "best %s, %.2f times the default", tune_time_text(p->best_us),
          p->default_us / p->best_us);
  if (p->of_ceiling > 0) fprintf(stderr, ", %.0f %% of the ceiling", 100 * p->of_ceiling);
}

// Of what is planned at the moment; a later step may plan more.
static void show_counts(const fathom_tune_progress *p) {
  fprintf(stderr, "%u tried, %u failed, %u left", p->tried, p->failed,
          p->planned > p->tried ? p->planned - p->tried : 0);
}

static void show_bar(const fathom_tune_progress *p) {
  double share = share_done(p);
  char bar[BAR + 1];
  for (int i = 0; i < BAR; i++)
    bar[i] = i < (int)(share * BAR) ? '#' : '.';
  bar[BAR] = 0;
  fprintf(stderr, "\r\033[K[%s] %3.0f s left  ", bar, fmax(p->budget - p->elapsed, 0));
  show_best(p);
  fputs(p->confirming ? "; comparing the finalists" : "; ", stderr);
  if (!p->confirming) show_counts(p);
  fflush(stderr);
}

static void show_line(const fathom_tune_progress *p) {
  fprintf(stderr, "fathom: %4.0f s, ", p->elapsed);
  show_counts(p);
  fputs(p->best_us > 0 ? "; " : "", stderr);
  show_best(p);
  fputs(p->confirming ? "; comparing the finalists\n" : "\n", stderr);
}

static void show_waiting(display *d, const fathom_tune_progress *p) {
  if (!d->waited) fprintf(stderr, "fathom: waiting: %s\n", p->why);
  d->waited = true;
}

static void on_progress(void *user, const fathom_tune_progress *p) {
  display *d = user;
  if (p->waiting) {
    show_waiting(d, p);
    return;
  }
  if (p->warning) {
    fprintf(stderr, "%sfathom: warning: nothing will be remembered: %s\n",
            d->terminal ? "\r\033[K" : "", p->why);
    return;
  }
  double often = d->terminal ? 0.1 : 5;
  if (p->elapsed - d->last < often && !p->confirming) return;
  d->last = p->elapsed;
  (d->terminal ? show_bar : show_line)(p);
}

// ---- the result ---------------------------------------------------------------------------------

static const char *end_text(const char *end) {
  return strcmp(end, "seconds") == 0   ? "the time was up"
         : strcmp(end, "trials") == 0  ? "that many measurements were allowed"
         : strcmp(end, "stopped") == 0 ? "it was interrupted"
                                       : "there was nothing better to try";
}

static void print_result(const fathom_tune_result *r, bool offline) {
  printf("schedule  %s\n", r->schedule);
  printf("time      %s%s, %.2f times as fast as the default (%s)\n", offline ? "by the model " : "",
         tune_time_text(r->median_us), r->default_us / r->median_us, tune_time_text(r->default_us));
  if (r->of_ceiling > 0) printf("ceiling   %.1f %% of it\n", 100 * r->of_ceiling);
  if (r->cache == FATHOM_CACHE_COLD && !offline)
    printf("caches    cold: each run took other memory\n");
  printf("space     %u schedules that differ for this kernel, of %.3g combinations\n", r->schedules,
         r->raw_schedules);
  printf("search    %u measurements in %.1f s, %u schedules failed; ended because %s\n",
         r->measurements, r->seconds, r->failures, end_text(r->end));
  if (r->resumed) printf("resumed   %u measurements of the interrupted search\n", r->resumed);
  if (r->contended) printf("caution   other programs were at work meanwhile: times may be off\n");
  if (r->model_rank != 0)
    printf("model     ranks what was timed with a correlation of %.2f (1: as the clock does)\n",
           r->model_rank);
  if (r->stored && offline)
    printf("stored    as the model's word: compile takes it until a GPU has measured another\n");
  else if (r->stored)
    printf("stored    compile, run and bench take this schedule from now on\n");
}

void tune_print_json(const fathom_tune_result *r) {
  cli_json_text("schedule", r->schedule);
  cli_json_text("default_schedule", r->default_schedule);
  cli_json_text("source", r->source);
  cli_json_number("median_us", r->median_us);
  cli_json_number("default_us", r->default_us);
  cli_json_number("spread", r->spread);
  cli_json_number("of_ceiling", r->of_ceiling > 0 ? r->of_ceiling : NAN);
  printf(", \"schedules\": %u, \"measurements\": %u, \"failures\": %u, \"resumed\": %u",
         r->schedules, r->measurements, r->failures, r->resumed);
  cli_json_number("seconds", r->seconds);
  cli_json_number("model_rank", r->model_rank != 0 ? r->model_rank : NAN);
  cli_json_text("end", r->end);
  printf(", \"contended\": %s, \"stored\": %s", r->contended ? "true" : "false",
         r->stored ? "true" : "false");
}

static void print_json(const fathom_graph *graph, const fathom_tune_result *r) {
  printf("{\"graph\": ");
  cli_json_string(fathom_graph_name(graph));
  tune_print_json(r);
  printf("}\n");
}

// ---- the command --------------------------------------------------------------------------------

enum { DEFAULT_SIZE = 1024 }; // fathom_tune_options says so

// What was found is told also where it is not remembered.
static void explain(const cli_session *session, const cli_options *options,
                    const fathom_tune_result *r) {
  cli_measured measured = {r->schedule, "tuned", r->median_us, r->gb_s, r->of_ceiling};
  cli_explain(session, options,
              cli_rows(session->graph, NULL, options->size ? options->size : DEFAULT_SIZE),
              &measured);
}

fathom_status tune_search(const tune_job *job, const cli_options *options,
                          fathom_tune_result *result) {
  display d = {.terminal = isatty(STDERR_FILENO)};
  fathom_tune_options wanted = FATHOM_INIT(wanted);
  wanted.dynamic_size = job->size;
  wanted.seconds = options->budget;
  wanted.trials = (uint32_t)options->trials;
  wanted.seed = (uint64_t)options->seed;
  wanted.strategy = options->strategy;
  wanted.cache = job->cache;
  wanted.resume = job->resume;
  wanted.keep = job->keep;
  wanted.dry = options->dry;
  wanted.offline = options->offline;
  wanted.report = job->report;
  wanted.progress = on_progress;
  wanted.stop = asked_to_stop;
  wanted.user = &d;
  fathom_compile_options compile = cli_compile_options(options);
  fathom_status status = fathom_tune(job->context, job->graph, &compile, &wanted, result);
  if (d.terminal) fputs("\r\033[K", stderr);
  return status;
}

static int tune(const cli_session *session, const cli_options *options) {
  tune_job job = {.context = session->context,
                  .graph = session->graph,
                  .size = options->size,
                  .report = options->report,
                  .resume = options->resume};
  int misused = cli_cache_state(options, &job.cache);
  if (misused != CLI_SUCCESS) return misused;
  fathom_tune_result result = FATHOM_INIT(result);
  tune_catch_interrupts();
  fathom_status status = tune_search(&job, options, &result);
  tune_release_interrupts();
  if (status != FATHOM_OK) return cli_library_failed();
  if (options->json)
    print_json(session->graph, &result);
  else
    print_result(&result, options->offline);
  explain(session, options, &result);
  return CLI_SUCCESS;
}

static int run(const cli_options *options) {
  if (options->suite) return tune_suite(options);
  if (!options->file)
    return cli_misuse(&cli_tune, "tune needs %s; or a --suite", cli_graph_file.what);
  if (options->again) return cli_misuse(&cli_tune, "--again is for a --suite");
  cli_session session;
  int status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) status = tune(&session, options);
  cli_session_close(&session);
  return status;
}

static const cli_operand file_or_suite = {"FILE", false, ""};

const cli_command cli_tune = {
    .name = "tune",
    .bit = CLI_TUNE,
    .operand = &file_or_suite,
    .summary = "find the fastest schedule on this machine",
    .about =
        "Tries schedules of a graph: each is compiled, checked against the reference and timed "
        "beside\n"
        "the default schedule in another process, so that one that fails costs nothing else. The "
        "best\n"
        "ones are timed once more side by side. Ctrl-C ends the search with the best so far.\n"
        "\n"
        "With --suite instead of a FILE it does so for each kernel of a model and each number of "
        "rows,\n"
        "with --budget and --trials for each of these searches. What is known from an earlier one "
        "is\n"
        "kept, and an interrupted one goes on, so the same command line ends what Ctrl-C "
        "interrupted.\n"
        "At the end stands a table of all; the status is 1 if a search failed.",
    .example = "  $ fathom tune k3_site.fir --set D=7168 --size 1024 --budget 60s\n"
               "  $ fathom tune --suite kimi-k3 --budget 30s\n",
    .run = run,
};
