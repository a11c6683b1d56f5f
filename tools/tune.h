// tools: what the two ways of `fathom tune` share: one search (cmd_tune.c) and a suite (tune_suite.c).
#ifndef FATHOM_TUNE_H
#define FATHOM_TUNE_H

#include "cli.h"

typedef struct tune_job {
  fathom_context *context;
  const fathom_graph *graph;
  int64_t size;       // of the dynamic axes; 0: as fathom_tune has it
  const char *report; // folder of the page; NULL: none
  bool resume, keep;  // as in fathom_tune_options
  fathom_cache cache; // the same
} tune_job;

// Searches, with progress on stderr. `result->size` must be set.
fathom_status tune_search(const tune_job *job, const cli_options *options,
                          fathom_tune_result *result);

// Between these two Ctrl-C ends the search that runs with the best so far, and all later ones at once; a
// second one ends the program.
void tune_catch_interrupts(void);
void tune_release_interrupts(void);
bool tune_is_interrupted(void);

const char *tune_time_text(double microseconds);
// The members of an object, each with a comma before it.
void tune_print_json(const fathom_tune_result *result);

int tune_suite(const cli_options *options);

#endif
