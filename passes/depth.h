// depth: graphs of a whole network's depth, with calls of the host's sublayers in between.
//
// Sections: steps, two phases.
#ifndef FATHOM_PASSES_DEPTH_H
#define FATHOM_PASSES_DEPTH_H

#include "ir/ir.h"

// ---- steps --------------------------------------------------------------------------------------

// When each value can be computed: the host makes its calls one after the other, in the graph's order,
// and step k is what comes after k of them. A call itself belongs to the step that its operands are
// from, and its result to the next one. Calls without anything new between them are made together, as
// those of two addends are. In the graph's arena.
uint32_t *pass_host_steps(const ir_graph *graph);

// ---- two phases (two_phase.c) -------------------------------------------------------------------

typedef enum pass_phase_choice {
  PASS_PHASES_LEAST, // what moves the fewest rows
  PASS_PHASES_ALL,   // wherever sites have finished sources in common
} pass_phase_choice;

// The pass "two-phase" with a choice.
ir_graph *pass_two_phase_as(const ir_graph *graph, pass_phase_choice choice, base_diag *diag);

#endif
