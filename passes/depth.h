// depth: graphs of a whole network's depth, with calls of the host's sublayers in between.
//
// Sections: steps, two phases, pieces, memory.
#ifndef FATHOM_PASSES_DEPTH_H
#define FATHOM_PASSES_DEPTH_H

#include "ir/ir.h"

// ---- steps --------------------------------------------------------------------------------------

// When each value can be computed: the host makes its calls one after the other, in the graph's order,
// and step k is what comes after k of them. A call itself belongs to the step that its operands are
// from, and its result to the next one. Calls without anything new between them are made together, as
// those of two addends are. In the graph's arena.
uint32_t *pass_host_steps(const ir_graph *graph);

// Values that depend on neither tokens nor the host's calls, but on parameters alone: for each node.
bool *pass_fixed_values(const ir_graph *graph);
bool pass_is_call(const ir_node *node);

// ---- two phases (two_phase.c) -------------------------------------------------------------------

typedef enum pass_phase_choice {
  PASS_PHASES_LEAST, // what moves the fewest rows
  PASS_PHASES_ALL,   // wherever sites have finished sources in common
} pass_phase_choice;

// Sites that would share the mixes of a bank: those of the steps first .. last.
typedef struct pass_phase_group {
  uint32_t first, last;
} pass_phase_group;

// The pass "two-phase" with a choice. `accept` (NULL: all) has the last word on each group.
ir_graph *pass_two_phase_as(const ir_graph *graph, pass_phase_choice choice,
                            bool (*accept)(void *user, pass_phase_group group), void *user,
                            base_diag *diag);

// ---- pieces (outline.c) -------------------------------------------------------------------------

// A value of the depth's graph, or one index of its outermost axis.
typedef struct pass_part {
  ir_value value;
  int64_t index; // -1: all of it
} pass_part;

// What a run gives a parameter of its kernel's graph.
typedef struct pass_piece_arg {
  bool sliced; // a part for each index of the parameter's first axis; else one part
  uint32_t part_count;
  const pass_part *parts;
} pass_piece_arg;

// What becomes of a result of its kernel's graph.
typedef struct pass_piece_result {
  ir_value value; // that it is
  bool to_host; // an input of a call, or a result of the depth: the host's memory. Else it is kept
                // for later runs; of a call's result, a copy
} pass_piece_result;

// All that is computed between two calls of the host, by one kernel.
typedef struct pass_run {
  uint32_t step, kernel;
  bool beside;                      // neither the step's calls nor its results wait for it
  uint32_t arg_count, result_count; // of the kernel's graph, in its order
  const pass_piece_arg *args;
  const pass_piece_result *results;
} pass_run;

typedef struct pass_outline {
  const ir_graph *graph; // of the depth
  const uint32_t *steps; // pass_host_steps of it
  const bool *fixed;     // pass_fixed_values
  uint32_t step_count;
  BASE_VECTOR(ir_graph *) kernels; // fit for compiling, no two of the same structure
  BASE_VECTOR(pass_run) runs;      // in the order in which they may run one after the other
} pass_outline;

// Cuts the graph of a depth at its calls. At each step there are at most two runs: what the step's calls
// wait for, and the rest, which may run beside them. A parameter with tokens, and what a call gives,
// is the host's memory, and there during the first run of its step only: that run keeps a copy where later
// ones need it. What depends on parameters alone is part of every kernel that needs it.
const pass_outline *pass_outline_depth(const ir_graph *graph, base_diag *diag);

// Does the run find the value, a parameter with tokens or what a call gives, in the host's memory?
bool pass_reads_host(const pass_outline *outline, const pass_run *run, ir_value value);

// ---- memory (plan_memory.c) ---------------------------------------------------------------------

// Where the values lie that are kept between runs. Sizes are for one index of the dynamic axis, T: a buffer
// takes that much times T.
typedef struct pass_memory {
  uint32_t buffer_count;
  const uint64_t *buffer_bytes;
  const int32_t *buffer_of; // of each node of the depth's graph; -1: it is not kept
} pass_memory;

// Bytes of a value for one index of T. 0, with an error: it has no T, or another dynamic axis.
uint64_t pass_bytes_per_row(const ir_graph *graph, ir_value value);
// The first run after `run` that reads one of its results; the number of runs when none does. What a run
// beside the host's calls touches has to be left alone until then.
uint32_t pass_run_waited_for(const pass_outline *outline, uint32_t run);
// Shares buffers among values that do not live at the same time.
const pass_memory *pass_plan_memory(const pass_outline *outline, base_diag *diag);
// Goes through the runs and follows who wrote each buffer last: false, with an error, when a run would
// read another value than it wants, or write over one that is still read. Knows nothing of how the plan
// was made.
bool pass_check_memory(const pass_outline *outline, const pass_memory *memory, base_diag *diag);

#endif
