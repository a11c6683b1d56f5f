// judge: is a result that fathom_check refuses wrong, or only ill-conditioned?
#ifndef FATHOM_TESTS_JUDGE_H
#define FATHOM_TESTS_JUDGE_H

#include "fathom.h"
#include "ir/ir.h"

typedef struct judge_request {
  const fathom_graph *graph;
  const ir_graph *ir; // the same graph, verified
  const fathom_compile_options *compile;
  const fathom_check_options *check;
} judge_request;

// Runs the graph on inputs of its own and compares every result with the reference, with the bound
// that the graph's own condition gives. Empty when all are right; else what is wrong with which
// result.
base_str judge_results(base_arena *arena, fathom_context *context, const judge_request *request);

#endif
