// explaining: what $FATHOM_VERBOSE asks for, a line of CSV (RFC 4180, but with line feeds alone) for each
// kernel: how its schedule was chosen, what it took, and what was tuned and not taken.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

bool cli_verbose(void) {
  const char *value = getenv("FATHOM_VERBOSE");
  return value && *value && strcmp(value, "0") != 0;
}

// ---- rows ---------------------------------------------------------------------------------------

static bool is_listed(const char *const *names, uint32_t count, const char *name) {
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0) return true;
  return false;
}

int64_t cli_rows(const fathom_graph *graph, const fathom_tensor_info *params,
                 int64_t dynamic_size) {
  uint32_t counts[2], listed = 0;
  const fathom_tensor_info *infos[2] = {cli_params(graph, &counts[0]),
                                        cli_results(graph, &counts[1])};
  const char **names = cli_alloc((size_t)(counts[0] + counts[1]) * FATHOM_MAX_RANK, sizeof *names);
  int64_t rows = 1;
  for (int side = 0; side < 2; side++)
    for (uint32_t i = 0; i < counts[side]; i++)
      for (uint32_t j = 0; j < infos[side][i].rank; j++) {
        const char *name = infos[side][i].axes[j];
        if (infos[side][i].sizes[j] != FATHOM_DYNAMIC || is_listed(names, listed, name)) continue;
        names[listed++] = name;
        int64_t size = params && side == 0 ? params[i].sizes[j] : dynamic_size;
        if (__builtin_mul_overflow(rows, size, &rows)) return INT64_MAX;
      }
  return rows;
}

// ---- CSV ----------------------------------------------------------------------------------------

typedef struct explanation {
  const char *command;
  const cli_measured *measured; // NULL once it was told
} explanation;

static void put_text(const char *text) {
  bool quoted = strpbrk(text, ",\"\r\n") != NULL;
  if (quoted) fputc('"', stderr);
  for (; *text; text++) {
    if (*text == '"') fputc('"', stderr);
    fputc(*text, stderr);
  }
  if (quoted) fputc('"', stderr);
}

static void put_column(const char *text) {
  fputc(',', stderr);
  put_text(text);
}

// Nothing for 0: it is not known, or there is none.
static void put_count(int64_t count) {
  put_column(count > 0 ? cli_format("%" PRId64, count) : "");
}

static void put_number(double number, const char *format) {
  fputc(',', stderr);
  if (number > 0) fprintf(stderr, format, number);
}

static void put_names(void) {
  static bool done;
  if (!done)
    fputs(
        "command,target,graph,kernel,axes,rows,schedule,source,tuned_rows,time_us,gb_s,of_ceiling,"
        "refused\n",
        stderr);
  done = true;
}

static void put_choice(void *user, const fathom_choice *choice) {
  explanation *e = user;
  cli_measured nothing = {0};
  const cli_measured *measured = e->measured ? e->measured : &nothing;
  e->measured = NULL;
  put_names();
  put_text(e->command);
  put_column(choice->target);
  put_column(choice->graph);
  put_column(choice->kernel);
  put_column(choice->axes);
  put_count(choice->rows);
  put_column(measured->schedule ? measured->schedule : choice->schedule);
  put_column(measured->source ? measured->source : choice->source);
  put_count(measured->source ? choice->rows : choice->tuned_rows);
  put_number(measured->time_us, "%.3f");
  put_number(measured->gb_s, "%.3f");
  put_number(measured->of_ceiling, "%.4f");
  put_column(choice->refused);
  fputc('\n', stderr);
}

void cli_explain(const cli_session *session, const cli_options *options, int64_t rows,
                 const cli_measured *measured) {
  if (!cli_verbose()) return;
  explanation e = {options->command->name, measured};
  fathom_compile_options wanted = cli_compile_options(options);
  if (fathom_explain(session->context, session->graph, &wanted, rows, put_choice, &e) != FATHOM_OK)
    cli_library_failed(); // what was asked for was done all the same
}
