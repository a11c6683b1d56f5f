// passes: graph to graph rewrites. One pass a file, one exported function; pipeline.c alone dumps,
// verifies and times; passes.def says what each pass needs and gives, and the manager checks it.
#ifndef FATHOM_PASSES_H
#define FATHOM_PASSES_H

#include "base/base.h"
#include "ir/ir.h"
#include "ir/kernel.h"

// Facts about a graph that passes need and give.
enum {
  PASS_FACT_NONE = 0,
  PASS_FACT_CANONICAL = 1, // folded, no duplicates, no dead nodes
  PASS_FACT_PRIMITIVE = 2, // no composite op left
  PASS_FACT_FUSED = 4,     // every computing node has a kernel
  PASS_FACT_NARROW = 8,    // at most IR_SET_AXES axes: what becomes kernels
};

typedef ir_graph *(*pass_function)(const ir_graph *graph, base_diag *diag); // NULL: see diag

typedef struct pass_info {
  const char *name;
  uint32_t needs, gives, breaks;
  pass_function run;
  const char *summary;
} pass_info;

const pass_info *pass_find(base_str name);
const pass_info *pass_at(uint32_t index); // NULL past the end

typedef struct pass_options {
  bool print_after_all, verify_each, time_passes;
  const char
      *reproducer; // file for the graph and the pipeline when a pass fails or breaks the graph
  base_text *log;  // where dumps and times go; NULL: nowhere
} pass_options;

// The pipelines that end in a graph ready for a target, as comma-separated lists.
extern const char pass_cpu_pipeline[], pass_cuda_pipeline[];

// Runs a comma-separated list of passes. NULL: see diag.
ir_graph *pass_run(const ir_graph *graph, const char *pipeline, const pass_options *options,
                   base_diag *diag);

// ---- to kernel IR -------------------------------------------------------------------------------

uint32_t pass_kernel_count(const ir_graph *graph);
// The schedule a kernel gets on a CPU when nobody asks for another: chosen from its structure.
kir_schedule pass_default_schedule(const ir_graph *graph, int32_t index);
// One kernel of a fused graph under a schedule.
kir_kernel *pass_lower(const ir_graph *graph, int32_t index, const kir_schedule *schedule,
                       base_diag *diag);

#endif
