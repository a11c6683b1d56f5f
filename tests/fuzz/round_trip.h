// round_trip: what the fuzzers share. A broken rule prints why and aborts, which is how a fuzzer
// reports.
#ifndef FATHOM_TESTS_ROUND_TRIP_H
#define FATHOM_TESTS_ROUND_TRIP_H

#include <stdio.h>
#include <stdlib.h>

#include "ir/ir.h"

#define FUZZ_REQUIRE(condition, ...)                                                               \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fprintf(stderr, "\n");                                                                       \
      abort();                                                                                     \
    }                                                                                              \
  } while (0)

base_diag fuzz_diag(base_arena *arena, base_str source);
// The reports as people see them: a failure must say something.
base_str fuzz_render(base_diag *diag, bool failed);
// The text of the graph, which must parse back to the same graph, print the same again and hash the
// same.
base_str fuzz_round_trip(base_arena *arena, const ir_graph *graph);

#endif
