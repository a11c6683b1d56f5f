// api, internal: what fathom_tune tunes, for the search and for the worker at its other end.
#ifndef FATHOM_API_TUNE_SUBJECT_H
#define FATHOM_API_TUNE_SUBJECT_H

#include "api/api.h"
#include "autotune/model.h"
#include "autotune/record.h"

// The fused graph, in the call's arena, its machine and default schedule. `dynamic_size` of its row
// axes; `threads` of a CPU. A GPU is the one that stands for the target's architecture. False: see the
// call's diag.
bool api_tune_subject(api_call *call, const fathom_graph *graph, const api_request *request,
                      int64_t dynamic_size, uint32_t threads, tune_subject *out);

#endif
