// depth: the plan of a model's whole depth, from its description on: what the public calls of model.c print
// and run.
#ifndef FATHOM_API_DEPTH_H
#define FATHOM_API_DEPTH_H

#include "api/api.h"
#include "model/model.h"
#include "passes/depth.h"

typedef struct api_depth {
  const model_description *model;
  const ir_graph *graph; // of the whole depth, in the phases that were chosen
  const pass_outline *outline;
  const pass_memory *memory;
} api_depth;

// Reads the description that `name` means; from here on the call's diagnostics show its text. NULL: see
// the call's diag.
const model_description *api_model_read(api_call *call, const char *name);
// Everything lives in the call's arena. NULL: see the call's diag.
const api_depth *api_depth_plan(api_call *call, const char *name,
                                const fathom_model_options *options);

// What a run moves for each token, in bytes: parameters, which all tokens share, left out.
typedef struct api_moved {
  uint64_t read, written;
} api_moved;
api_moved api_run_moves(const api_depth *depth, uint32_t run);

// The plan as a table. `rows`: tokens that the workspace is told for.
void api_depth_print(const api_depth *depth, int64_t rows, base_text *out);

#endif
