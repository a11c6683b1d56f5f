// Checks or measures many graphs under many schedules in one go: one JSON object a line for each case.
//
//   strategies check|bench|list SHAPES STRATEGIES [OPTION VALUE]...
//
//   --target TARGET  (cuda)      --seconds S  of one measurement (0.2)   --cache warm|cold  (cold)
//   --jobs K         at once (1) --limit S    of one case (30)           --budget S         of all (no limit)
//
// A line of SHAPES is `NAME FILE.fir SIZES AXIS=INT,...`: sizes of the dynamic axes, separated by commas,
// and what is bound, or `-`. A line of STRATEGIES is `NAME SCHEDULE`, with `-` for the default one. `#`
// begins a comment.
//
// Kernels that nobody has run before may hang or break the device's context. So cases run in processes
// of their own, which go on to the next case when all is well and are replaced when it is not. The first
// process never touches the device.
//
// "status" is ok; refused, when a strategy does not apply; failed, with the reason in "error"; or skipped,
// when the time was up. Exit status: 0, 1 when one failed, 3 when none failed but some were skipped.
#include <errno.h>
#include <fathom.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROWS = 256, MOST_SIZES = 16, MOST_CASES = 1 << 16, MOST_JOBS = 64, CHECK_SEEDS = 2 };

typedef struct shape {
  const char *name, *file, *axes;
  int64_t sizes[MOST_SIZES];
  uint32_t size_count;
} shape;

typedef struct strategy {
  const char *name, *schedule;
} strategy;

typedef struct one_case {
  const shape *shape;
  const strategy *strategy;
  int64_t size;
} one_case;

typedef struct settings {
  const char *step, *target;
  double seconds, limit, budget;
  fathom_cache cache;
  uint32_t jobs;
} settings;

// What all processes see.
typedef struct desk {
  atomic_uint next, failed, skipped; // case; how many
  struct {
    atomic_uint busy; // case + 1; 0: between two
    _Atomic double since;
  } jobs[MOST_JOBS];
} desk;

static desk *shared;
static shape shapes[MOST_ROWS];
static strategy strategies[MOST_ROWS];
static one_case cases[MOST_CASES];
static uint32_t shape_count, strategy_count, case_count;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

_Noreturn static void stop(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("strategies: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  exit(2);
}

// ---- reading lists ------------------------------------------------------------------------------

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) stop("%s: %s", path, strerror(errno));
  size_t length = 0, room = 1 << 16;
  char *text = malloc(room);
  for (size_t read; (read = fread(text + length, 1, room - length - 1, file)) > 0;) {
    length += read;
    if (length + 1 < room) continue;
    char *larger = realloc(text, room *= 2);
    if (larger == NULL) stop("out of memory");
    text = larger;
  }
  fclose(file);
  text[length] = 0;
  return text;
}

// The next line's words; 0 at the end. Lines without any are passed over.
static int next_words(char **text, char *words[], int most) {
  while (*text != NULL && **text != 0) {
    char *line = strsep(text, "\n"), *rest = line;
    int count = 0;
    line[strcspn(line, "#")] = 0;
    for (char *word; (word = strtok_r(rest, " \t\r", &rest)) != NULL;) {
      if (count == most) stop("too many words in a line, beginning with '%s'", words[0]);
      words[count++] = word;
    }
    if (count > 0) return count;
  }
  return 0;
}

static void read_sizes(shape *s, char *text) {
  for (char *word; (word = strsep(&text, ",")) != NULL;) {
    char *end;
    if (s->size_count == MOST_SIZES) stop("%s has more than %d sizes", s->name, MOST_SIZES);
    s->sizes[s->size_count++] = strtoll(word, &end, 10);
    if (end == word || *end != 0) stop("%s: '%s' is no size", s->name, word);
  }
}

static void read_lists(const char *shape_path, const char *strategy_path) {
  char *text = read_file(shape_path), *words[4];
  for (int count; (count = next_words(&text, words, 4)) > 0;) {
    if (count != 4) stop("%s: expected NAME FILE SIZES AXES, found %s ...", shape_path, words[0]);
    if (shape_count == MOST_ROWS) stop("%s: more than %d shapes", shape_path, MOST_ROWS);
    shape *s = &shapes[shape_count++];
    *s = (shape){.name = words[0], .file = words[1], .axes = words[3]};
    read_sizes(s, words[2]);
  }
  text = read_file(strategy_path);
  for (int count; (count = next_words(&text, words, 2)) > 0;) {
    if (count != 2) stop("%s: expected NAME SCHEDULE, found %s", strategy_path, words[0]);
    if (strategy_count == MOST_ROWS) stop("%s: more than %d strategies", strategy_path, MOST_ROWS);
    strategies[strategy_count++] = (strategy){words[0], strcmp(words[1], "-") == 0 ? "" : words[1]};
  }
}

// The default of everything first: what is left when the time is up matters least.
static void make_cases(int64_t least_size) {
  for (uint32_t i = 0; i < strategy_count; i++)
    for (uint32_t j = 0; j < shape_count; j++)
      for (uint32_t k = 0; k < shapes[j].size_count; k++) {
        if (shapes[j].sizes[k] < least_size) continue;
        if (case_count == MOST_CASES) stop("more than %d cases", MOST_CASES);
        cases[case_count++] = (one_case){&shapes[j], &strategies[i], shapes[j].sizes[k]};
      }
}

// ---- lines --------------------------------------------------------------------------------------

// A line goes out in one piece, so that those of several processes do not mix.
typedef struct line {
  char text[4096 - 8];
  size_t length;
} line;

__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof l->text - l->length;
  int length = vsnprintf(l->text + l->length, room, format, arguments);
  va_end(arguments);
  l->length += (size_t)length < room ? (size_t)length : room - 1;
}

// At most 1000 characters of it, so that a line has room for its end.
static void add_text(line *l, const char *key, const char *text) {
  add(l, ", \"%s\": \"", key);
  for (int i = 0; text[i] != 0 && i < 1000; i++) {
    unsigned char c = (unsigned char)text[i];
    add(l, c == '"' || c == '\\' ? "\\%c" : c < 0x20 ? "\\u%04x" : "%c", c);
  }
  add(l, "\"");
}

static void add_number(line *l, const char *key, double number) {
  add(l, isfinite(number) ? ", \"%s\": %.6g" : ", \"%s\": null", key, number);
}

// Counts the case as well.
static void begin(line *l, const settings *set, const one_case *c, const char *status) {
  if (strcmp(status, "failed") == 0) atomic_fetch_add(&shared->failed, 1);
  if (strcmp(status, "skipped") == 0) atomic_fetch_add(&shared->skipped, 1);
  l->length = 0;
  add(l, "{\"step\": \"%s\"", set->step);
  add_text(l, "shape", c->shape->name);
  add(l, ", \"size\": %lld", (long long)c->size);
  add_text(l, "strategy", c->strategy->name);
  add_text(l, "status", status);
}

static void end(line *l) {
  add(l, "}\n");
  fflush(stdout);
  for (size_t done = 0; done < l->length;) {
    ssize_t written = write(STDOUT_FILENO, l->text + done, l->length - done);
    if (written < 0) stop("cannot write: %s", strerror(errno));
    done += (size_t)written;
  }
}

static void say_why(const settings *set, const one_case *c, const char *status, const char *why) {
  line l;
  begin(&l, set, c, status);
  add_text(&l, "error", why);
  add_text(&l, "file", c->shape->file);
  add_text(&l, "axes", c->shape->axes);
  add_text(&l, "schedule", c->strategy->schedule);
  end(&l);
}

// ---- one case -----------------------------------------------------------------------------------

// What a process keeps from one case to the next.
typedef struct session {
  const settings *set;
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;
  const one_case *last;
} session;

static void close_case(session *s) {
  fathom_executable_destroy(s->executable);
  fathom_module_destroy(s->module);
  s->executable = NULL;
  s->module = NULL;
  s->graph = NULL;
  s->last = NULL;
}

static fathom_status bind_axes(fathom_graph *graph, const char *axes) {
  fathom_status status = FATHOM_OK;
  if (strcmp(axes, "-") == 0) return status;
  char *copy = strdup(axes), *rest = copy;
  for (char *axis; status == FATHOM_OK && (axis = strsep(&rest, ",")) != NULL;) {
    char *size = strchr(axis, '=');
    if (size == NULL) stop("'%s' is not AXIS=INT", axis);
    *size = 0;
    status = fathom_graph_bind(graph, axis, strtoll(size + 1, NULL, 10));
  }
  free(copy);
  return status;
}

static fathom_compile_options compile_options(const session *s, const one_case *c) {
  fathom_compile_options options = FATHOM_INIT(options);
  options.target = s->set->target;
  options.schedule = c->strategy->schedule;
  return options;
}

static fathom_status open_case(session *s, const one_case *c, bool compile) {
  if (s->last != NULL && s->last->shape == c->shape && s->last->strategy == c->strategy)
    return FATHOM_OK;
  close_case(s);
  fathom_compile_options options = compile_options(s, c);
  char *text = read_file(c->shape->file);
  fathom_status status = fathom_parse(s->context, text, strlen(text), c->shape->file, &s->module);
  free(text);
  if (status == FATHOM_OK) status = fathom_module_graph(s->module, NULL, &s->graph);
  if (status == FATHOM_OK) status = bind_axes(s->graph, c->shape->axes);
  if (status == FATHOM_OK && compile)
    status = fathom_compile(s->context, s->graph, &options, &s->executable);
  if (status == FATHOM_OK) s->last = c;
  return status;
}

static void note_share(void *user, const fathom_check_result *result) {
  double *worst = user, share = result->error > 0 ? result->error / result->bound : 0;
  if (!(share <= *worst)) *worst = share;
}

static fathom_status check(session *s, const one_case *c) {
  fathom_status status = open_case(s, c, false);
  if (status != FATHOM_OK) return status;
  double worst = 0;
  uint32_t failures = 0;
  fathom_compile_options compile = compile_options(s, c);
  fathom_check_options options = FATHOM_INIT(options);
  options.seeds = CHECK_SEEDS;
  options.dynamic_size = c->size;
  options.empty = c->size == 0;
  options.report = note_share;
  options.user = &worst;
  status = fathom_check(s->context, s->graph, &compile, &options, &failures);
  if (status != FATHOM_OK) return status;
  line l;
  begin(&l, s->set, c, failures > 0 ? "failed" : "ok");
  add_number(&l, "error_of_bound", worst);
  if (failures > 0) {
    add_text(&l, "error", "results are beyond their bounds");
    add_text(&l, "file", c->shape->file);
    add_text(&l, "axes", c->shape->axes);
    add_text(&l, "schedule", c->strategy->schedule);
  }
  end(&l);
  return FATHOM_OK;
}

static fathom_status bench(session *s, const one_case *c) {
  fathom_executable_info info = FATHOM_INIT(info);
  fathom_bench_options options = FATHOM_INIT(options);
  fathom_bench_result result = FATHOM_INIT(result);
  fathom_status status = open_case(s, c, true);
  options.dynamic_size = c->size;
  options.seconds = s->set->seconds;
  options.cache = s->set->cache;
  if (status == FATHOM_OK) status = fathom_executable_get_info(s->executable, &info);
  if (status == FATHOM_OK)
    status = fathom_bench(s->context, s->graph, s->executable, &options, &result);
  if (status != FATHOM_OK) return status;
  line l;
  begin(&l, s->set, c, "ok");
  add_text(&l, "graph", info.graph);
  add_text(&l, "axes", c->shape->axes);
  add_text(&l, "target", info.target);
  add_text(&l, "device", info.device);
  add_text(&l, "arch", info.arch);
  add_text(&l, "schedule", info.schedule);
  add_text(&l, "schedule_source", info.schedule_source);
  add_number(&l, "median_us", result.median_us);
  add_number(&l, "minimum_us", result.minimum_us);
  add_number(&l, "spread", result.spread);
  add_number(&l, "bytes", (double)result.bytes);
  add_number(&l, "gb_s", result.gb_s);
  add_number(&l, "ceiling_gb_s", result.ceiling_gb_s);
  add_number(&l, "of_ceiling", result.of_ceiling);
  add_text(&l, "cache", result.cache == FATHOM_CACHE_WARM ? "warm" : "cold");
  add_text(&l, "timing", result.batch > 0 ? "device events" : "host clock");
  add_number(&l, "launch_us", result.launch_us);
  add(&l, ", \"runs\": %u, \"batch\": %u, \"kernels\": %u", result.runs, result.batch,
      info.kernel_count);
  end(&l);
  return FATHOM_OK;
}

// Whether it is the schedule that does not suit the graph or the architecture, and not the machine that
// lacks something: such a kernel cannot even be laid out.
static bool is_refused(const session *s, const one_case *c, fathom_status status) {
  if (*c->strategy->schedule == 0 || s->graph == NULL) return false;
  if (status != FATHOM_UNSUPPORTED && status != FATHOM_INVALID) return false;
  fathom_text text;
  fathom_compile_options options = compile_options(s, c);
  bool good = fathom_emit(s->context, s->graph, &options, "kernel", &text) == FATHOM_OK;
  if (good) fathom_text_destroy(&text);
  return !good;
}

// False: the process should be replaced.
static bool run_case(session *s, const one_case *c) {
  bool checks = strcmp(s->set->step, "check") == 0;
  fathom_status status = checks ? check(s, c) : bench(s, c);
  if (status == FATHOM_OK) return true;
  char why[1024];
  snprintf(why, sizeof why, "%s", fathom_error_text());
  bool refused = is_refused(s, c, status);
  say_why(s->set, c, refused ? "refused" : "failed", why);
  close_case(s);
  return refused || status == FATHOM_MEMORY;
}

// ---- processes ----------------------------------------------------------------------------------

_Noreturn static void work(const settings *set, uint32_t job) {
  session s = {.set = set};
  if (fathom_context_create(NULL, &s.context) != FATHOM_OK) stop("%s", fathom_error_text());
  for (bool good = true; good;) {
    uint32_t i = atomic_fetch_add(&shared->next, 1);
    if (i >= case_count) break;
    atomic_store(&shared->jobs[job].since, now());
    atomic_store(&shared->jobs[job].busy, i + 1);
    good = run_case(&s, &cases[i]);
    atomic_store(&shared->jobs[job].busy, 0);
  }
  close_case(&s);
  fathom_context_destroy(s.context);
  exit(0);
}

static pid_t hire(const settings *set, uint32_t job) {
  atomic_store(&shared->jobs[job].busy, 0);
  pid_t process = fork();
  if (process < 0) stop("cannot start a process: %s", strerror(errno));
  if (process == 0) work(set, job);
  return process;
}

// Says what became of the case that a process has left half done. One that fails between cases would
// do so again.
static void conclude(const settings *set, uint32_t job, int ended, bool late) {
  char why[80];
  uint32_t busy = atomic_load(&shared->jobs[job].busy);
  if (late)
    snprintf(why, sizeof why, "took more than %g s and was stopped", set->limit);
  else if (WIFSIGNALED(ended))
    snprintf(why, sizeof why, "the process died of signal %d", WTERMSIG(ended));
  else
    snprintf(why, sizeof why, "the process ended with status %d", WEXITSTATUS(ended));
  if (busy > 0)
    say_why(set, &cases[busy - 1], "failed", why);
  else if (ended != 0)
    stop("%s", why);
}

static void supervise(const settings *set) {
  pid_t processes[MOST_JOBS];
  double start = now();
  uint32_t left = set->jobs;
  for (uint32_t i = 0; i < set->jobs; i++)
    processes[i] = hire(set, i);
  while (left > 0) {
    usleep(10000);
    bool over = now() - start > set->budget;
    if (over) { // nobody takes another case
      uint32_t next = atomic_exchange(&shared->next, MOST_CASES);
      for (; next < case_count; next++)
        say_why(set, &cases[next], "skipped", "the time was up");
    }
    for (uint32_t i = 0; i < set->jobs; i++) {
      int ended;
      if (processes[i] == 0) continue;
      bool late = atomic_load(&shared->jobs[i].busy) > 0 &&
                  now() - atomic_load(&shared->jobs[i].since) > set->limit;
      if (late) kill(processes[i], SIGKILL);
      if (waitpid(processes[i], &ended, late ? 0 : WNOHANG) != processes[i]) continue;
      conclude(set, i, ended, late);
      bool more = atomic_load(&shared->next) < case_count;
      processes[i] = more ? hire(set, i) : 0;
      left -= !more;
    }
  }
}

// ---- the program --------------------------------------------------------------------------------

static void read_options(settings *set, int argc, char **argv) {
  for (int i = 0; i < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (i + 1 == argc) stop("%s has no value", name);
    if (strcmp(name, "--target") == 0)
      set->target = value;
    else if (strcmp(name, "--seconds") == 0)
      set->seconds = atof(value);
    else if (strcmp(name, "--limit") == 0)
      set->limit = atof(value);
    else if (strcmp(name, "--budget") == 0)
      set->budget = atof(value);
    else if (strcmp(name, "--jobs") == 0)
      set->jobs = (uint32_t)atoi(value);
    else if (strcmp(name, "--cache") == 0)
      set->cache = strcmp(value, "warm") == 0 ? FATHOM_CACHE_WARM : FATHOM_CACHE_COLD;
    else
      stop("'%s' is no option", name);
  }
  if (set->jobs < 1 || set->jobs > MOST_JOBS) stop("--jobs is from 1 to %d", MOST_JOBS);
}

static int list(void) {
  for (uint32_t i = 0; i < case_count; i++)
    printf("%s size=%lld %s: %s %s %s\n", cases[i].shape->name, (long long)cases[i].size,
           cases[i].strategy->name, cases[i].shape->file, cases[i].shape->axes,
           cases[i].strategy->schedule);
  return 0;
}

int main(int argc, char **argv) {
  settings set = {.target = "cuda", .seconds = 0.2, .limit = 30, .budget = INFINITY, .jobs = 1};
  if (argc < 4) stop("usage: strategies check|bench|list SHAPES STRATEGIES [OPTION VALUE]...");
  set.step = argv[1];
  read_options(&set, argc - 4, argv + 4);
  read_lists(argv[2], argv[3]);
  make_cases(strcmp(set.step, "bench") == 0); // no rows take no time
  if (strcmp(set.step, "list") == 0) return list();
  if (strcmp(set.step, "check") != 0 && strcmp(set.step, "bench") != 0)
    stop("'%s' is none of check, bench and list", set.step);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) stop("out of memory");
  supervise(&set);
  return atomic_load(&shared->failed) > 0 ? 1 : atomic_load(&shared->skipped) > 0 ? 3 : 0;
}
