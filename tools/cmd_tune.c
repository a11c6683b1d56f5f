// fathom tune: the fastest schedule for this machine.
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

// ---- interrupts ---------------------------------------------------------------------------------

static volatile sig_atomic_t interrupted;

// The first one ends the search with the best so far; a second one ends the program.
static void on_interrupt(int signal_number) {
  interrupted = 1;
  signal(signal_number, SIG_DFL);
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

static const char *time_text(double microseconds) {
  return microseconds >= 1e4   ? cli_format("%.1f ms", microseconds / 1e3)
         : microseconds >= 100 ? cli_format("%.0f us", microseconds)
                               : cli_format("%.2f us", microseconds);
}

// Of the budget, or of what is planned where that ends first.
static double share_done(const fathom_tune_progress *p) {
  double time = p->budget > 0 ? p->elapsed / p->budget : 0;
  return fmin(fmax(time, p->confirming ? 0.95 : 0), 1);
}

static void show_bar(const fathom_tune_progress *p) {
  double share = share_done(p);
  char bar[BAR + 1];
  for (int i = 0; i < BAR; i++)
    bar[i] = i < (int)(share * BAR) ? '#' : '.';
  bar[BAR] = 0;
  fprintf(stderr, "\r\033[K[%s] %3.0f s left  ", bar, fmax(p->budget - p->elapsed, 0));
  if (p->best_us > 0)
    fprintf(stderr, "best %s, %.2f times the default  ", time_text(p->best_us),
            p->default_us / p->best_us);
  fprintf(stderr, "%s%u tried, %u failed", p->confirming ? "comparing the finalists; " : "",
          p->tried, p->failed);
  fflush(stderr);
}

static void show_line(const fathom_tune_progress *p) {
  fprintf(stderr, "fathom: %4.0f s, %u tried, %u failed", p->elapsed, p->tried, p->failed);
  if (p->best_us > 0)
    fprintf(stderr, ", best %s, %.2f times the default", time_text(p->best_us),
            p->default_us / p->best_us);
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

static void print_result(const fathom_tune_result *r) {
  printf("schedule  %s\n", r->schedule);
  printf("time      %s, %.2f times as fast as the default (%s)\n", time_text(r->median_us),
         r->default_us / r->median_us, time_text(r->default_us));
  if (r->of_ceiling > 0) printf("ceiling   %.1f %% of it\n", 100 * r->of_ceiling);
  if (r->cache == FATHOM_CACHE_COLD) printf("caches    cold: each run took other memory\n");
  printf("space     %u schedules that differ for this kernel, of %.3g combinations\n", r->schedules,
         r->raw_schedules);
  printf("search    %u measurements in %.1f s, %u schedules failed; ended because %s\n",
         r->measurements, r->seconds, r->failures, end_text(r->end));
  if (r->resumed) printf("resumed   %u measurements of the interrupted search\n", r->resumed);
  if (r->contended) printf("caution   other programs were at work meanwhile: times may be off\n");
  if (r->stored) printf("stored    compile, run and bench take this schedule from now on\n");
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

static int tune(const cli_session *session, const cli_options *options) {
  display d = {.terminal = isatty(STDERR_FILENO)};
  fathom_tune_options wanted = FATHOM_INIT(wanted);
  fathom_tune_result result = FATHOM_INIT(result);
  wanted.dynamic_size = options->size;
  wanted.seconds = options->budget;
  wanted.trials = (uint32_t)options->trials;
  wanted.seed = (uint64_t)options->seed;
  wanted.strategy = options->strategy;
  int misused = cli_cache_state(options, &wanted.cache);
  if (misused != CLI_SUCCESS) return misused;
  wanted.resume = options->resume;
  wanted.dry = options->dry;
  wanted.report = options->report;
  wanted.progress = on_progress;
  wanted.stop = asked_to_stop;
  wanted.user = &d;
  fathom_compile_options compile = cli_compile_options(options);
  struct sigaction action = {.sa_handler = on_interrupt}, before;
  sigaction(SIGINT, &action, &before);
  fathom_status status = fathom_tune(session->context, session->graph, &compile, &wanted, &result);
  sigaction(SIGINT, &before, NULL);
  if (d.terminal) fputs("\r\033[K", stderr);
  if (status != FATHOM_OK) return cli_library_failed();
  print_result(&result);
  explain(session, options, &result);
  return CLI_SUCCESS;
}

static int run(const cli_options *options) {
  cli_session session;
  int status = cli_session_open(options, CLI_ONE_GRAPH, &session);
  if (status == CLI_SUCCESS) status = tune(&session, options);
  cli_session_close(&session);
  return status;
}

const cli_command cli_tune = {
    .name = "tune",
    .bit = CLI_TUNE,
    .operand = &cli_graph_file,
    .summary = "find the fastest schedule on this machine",
    .about = "Tries schedules of a graph: each is compiled, checked against the reference and "
             "timed beside\n"
             "the default schedule in another process, so that one that fails costs nothing else. "
             "The best\n"
             "ones are timed once more side by side. Ctrl-C ends the search with the best so far.",
    .example = "  $ fathom tune k3_site.fir --set D=7168 --size 1024 --budget 60s\n",
    .run = run,
};
