// fathom tune --suite: the kernels of a model, one search after the other, and how far all of them are.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tune.h"

enum { DEFAULT_BUDGET = 60 }; // seconds; fathom_tune_options says so

// ---- rows of the table --------------------------------------------------------------------------

typedef enum row_state {
  NOT_REACHED,
  TUNED,
  RANKED, // by the cost model alone
  KNOWN,
  INTERRUPTED,
  FAILED,
  STATES
} row_state;

static const char *const state_names[STATES] = {"not reached", "tuned",       "ranked",
                                                "known",       "interrupted", "failed"};

// One search: an entry with one of its numbers of rows.
typedef struct suite_row {
  fathom_suite_entry entry;
  int64_t rows;
  row_state state;
  fathom_tune_result result; // but for NOT_REACHED and FAILED
  const char *why;           // of FAILED, one line; else ""
} suite_row;

typedef struct suite_rows {
  suite_row *data;
  uint32_t count;
} suite_rows;

static suite_rows list_rows(const fathom_suite *suite) {
  suite_rows rows = {0};
  uint32_t count = fathom_suite_count(suite);
  fathom_suite_entry *entries = cli_alloc(count, sizeof *entries);
  for (uint32_t i = 0; i < count; i++) {
    entries[i].size = sizeof *entries;
    if (fathom_suite_get(suite, i, &entries[i]) != FATHOM_OK) exit(cli_library_failed());
    rows.count += entries[i].row_count;
  }
  rows.data = cli_alloc(rows.count, sizeof *rows.data);
  suite_row *next = rows.data;
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < entries[i].row_count; j++)
      *next++ = (suite_row){.entry = entries[i], .rows = entries[i].rows[j], .why = ""};
  return rows;
}

static uint32_t count_of(const suite_rows *rows, row_state state) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < rows->count; i++)
    count += rows->data[i].state == state;
  return count;
}

static bool has_result(const suite_row *row) {
  return row->state != NOT_REACHED && row->state != FAILED;
}

// ---- the table ----------------------------------------------------------------------------------

enum { COLUMNS = 8 };
static const char sides[COLUMNS + 1] = "llrrrrll"; // where the cells of a column stand
static const char *const heads[COLUMNS] = {"kernel",   "axes",    "rows", "time",
                                           "speed-up", "ceiling", "from", "state"};

static const char *from_text(const fathom_tune_result *r) {
  bool is_default = strcmp(r->schedule, r->default_schedule) == 0;
  return cli_format("%s%s", r->source, is_default ? ", the default" : "");
}

static void fill_cells(const suite_row *row, const char *cells[COLUMNS]) {
  const fathom_tune_result *r = &row->result;
  bool found = has_result(row);
  cells[0] = row->entry.name;
  cells[1] = row->entry.axes;
  cells[2] = cli_format("%" PRId64, row->rows);
  cells[3] = found ? tune_time_text(r->median_us) : "-";
  cells[4] = found ? cli_format("%.2fx", r->default_us / r->median_us) : "-";
  cells[5] = found && r->of_ceiling > 0 ? cli_format("%.1f %%", 100 * r->of_ceiling) : "-";
  cells[6] = found ? from_text(r) : "-";
  cells[7] = cli_format("%s%s%s%s", state_names[row->state], row->why[0] ? ": " : "", row->why,
                        found && r->contended ? ", contended" : "");
}

static void print_cells(const char *const *cells, const int *widths) {
  for (int c = 0; c < COLUMNS; c++) {
    if (sides[c] == 'r')
      printf("%*s", widths[c], cells[c]);
    else
      printf("%-*s", c + 1 < COLUMNS ? widths[c] : 0, cells[c]);
    fputs(c + 1 < COLUMNS ? "  " : "\n", stdout);
  }
}

static void print_counts(const suite_rows *rows) {
  const char *before = ": ";
  printf("%u search%s", rows->count, rows->count == 1 ? "" : "es");
  for (row_state state = NOT_REACHED; state < STATES; state++) {
    uint32_t count = count_of(rows, state);
    if (count == 0) continue;
    printf("%s%u %s", before, count, state_names[state]);
    before = ", ";
  }
  putchar('\n');
}

static void print_table(const suite_rows *rows) {
  const char *(*cells)[COLUMNS] = cli_alloc(rows->count, sizeof *cells);
  int widths[COLUMNS];
  for (int c = 0; c < COLUMNS; c++)
    widths[c] = (int)strlen(heads[c]);
  for (uint32_t i = 0; i < rows->count; i++) {
    fill_cells(&rows->data[i], cells[i]);
    for (int c = 0; c < COLUMNS; c++)
      if ((int)strlen(cells[i][c]) > widths[c]) widths[c] = (int)strlen(cells[i][c]);
  }
  print_cells(heads, widths);
  for (uint32_t i = 0; i < rows->count; i++)
    print_cells(cells[i], widths);
  print_counts(rows);
}

static void print_json(const char *suite, const suite_rows *rows) {
  printf("{\"suite\": ");
  cli_json_string(suite);
  printf(", \"searches\": [");
  for (uint32_t i = 0; i < rows->count; i++) {
    const suite_row *row = &rows->data[i];
    printf("%s{\"kernel\": ", i ? ", " : "");
    cli_json_string(row->entry.name);
    cli_json_text("axes", row->entry.axes);
    printf(", \"rows\": %" PRId64, row->rows);
    cli_json_text("state", state_names[row->state]);
    if (row->state == FAILED) cli_json_text("why", row->why);
    if (has_result(row)) tune_print_json(&row->result);
    putchar('}');
  }
  printf("]}\n");
}

// ---- searching ----------------------------------------------------------------------------------

static const char *duration_text(double seconds) {
  return seconds < 120    ? cli_format("%.0f s", seconds)
         : seconds < 7200 ? cli_format("%.0f min", seconds / 60)
                          : cli_format("%.1f h", seconds / 3600);
}

static void announce(const cli_options *options, const suite_rows *rows, uint32_t kernels) {
  double budget = options->budget > 0 ? options->budget : DEFAULT_BUDGET;
  fprintf(stderr,
          "fathom: suite %s: %u kernel%s, %u search%s of about %s at most, %s if all are needed\n",
          options->suite, kernels, kernels == 1 ? "" : "s", rows->count,
          rows->count == 1 ? "" : "es", duration_text(budget), duration_text(budget * rows->count));
}

// The first error of the library's last failing call, without its place: that is on stderr.
static const char *failure_text(void) {
  static const char mark[] = "error: ";
  const char *text = fathom_error_text(), *start = strstr(text, mark);
  if (start && start < text + strcspn(text, "\n")) text = start + sizeof mark - 1;
  return cli_format("%.*s", (int)strcspn(text, "\n"), text);
}

static void search_row(fathom_context *context, const cli_options *options, suite_row *row) {
  tune_job job = {
      .context = context,
      .graph = row->entry.graph,
      .size = row->rows,
      .resume = !options->again || options->resume,
      .keep = !options->again,
  };
  cli_cache_state(options, &job.cache); // known to be good
  if (options->report)
    job.report = cli_format("%s/%s-%" PRId64, options->report, row->entry.name, row->rows);
  row->result = (fathom_tune_result)FATHOM_INIT(row->result);
  if (tune_search(&job, options, &row->result) == FATHOM_OK) {
    row->state = strcmp(row->result.end, "known") == 0     ? KNOWN
                 : strcmp(row->result.end, "stopped") == 0 ? INTERRUPTED
                 : options->offline                        ? RANKED
                                                           : TUNED;
  } else if (!tune_is_interrupted()) { // while it waited for another tuner, say
    row->state = FAILED;
    row->why = failure_text();
    cli_library_failed();
  }
}

static int search_rows(fathom_context *context, const fathom_suite *suite,
                       const cli_options *options) {
  suite_rows rows = list_rows(suite);
  announce(options, &rows, fathom_suite_count(suite));
  tune_catch_interrupts();
  for (uint32_t i = 0; i < rows.count && !tune_is_interrupted(); i++) {
    suite_row *row = &rows.data[i];
    fprintf(stderr, "fathom: [%u/%u] %s, rows %" PRId64 "\n", i + 1, rows.count, row->entry.name,
            row->rows);
    search_row(context, options, row);
  }
  tune_release_interrupts();
  if (options->json)
    print_json(options->suite, &rows);
  else
    print_table(&rows);
  return count_of(&rows, FAILED) ? CLI_FAILURE : CLI_SUCCESS;
}

// ---- the command --------------------------------------------------------------------------------

// What a suite says itself.
static int check_options(const cli_options *options) {
  const char *name = options->file        ? "FILE"
                     : options->graph     ? "--graph"
                     : options->set.count ? "--set"
                     : options->size      ? "--size"
                                          : NULL;
  if (!name) return CLI_SUCCESS;
  return cli_misuse(options->command, "--suite takes no %s: it says itself what is tuned", name);
}

int tune_suite(const cli_options *options) {
  fathom_context *context = NULL;
  fathom_suite *suite = NULL;
  fathom_cache cache; // one that is no state of a cache is told of once
  int status = check_options(options);
  if (status == CLI_SUCCESS) status = cli_cache_state(options, &cache);
  if (status == CLI_SUCCESS) status = cli_context_create(options, &context);
  if (status == CLI_SUCCESS && fathom_suite_open(context, options->suite, &suite) != FATHOM_OK)
    status = cli_library_failed();
  if (status == CLI_SUCCESS) status = search_rows(context, suite, options);
  fathom_suite_destroy(suite);
  fathom_context_destroy(context);
  return status;
}
