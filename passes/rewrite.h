// rewrite: the walk every pass makes. Old nodes are visited in order; each is mapped to a value of
// the new graph, either by copying it with mapped operands or by building something else for it.
#ifndef FATHOM_PASSES_REWRITE_H
#define FATHOM_PASSES_REWRITE_H

#include "ir/ir.h"

typedef struct pass_rewrite {
  const ir_graph *old;
  ir_graph *graph; // the new one
  ir_value *map;   // for each old node, its value in the new graph
} pass_rewrite;

pass_rewrite pass_rewrite_begin(const ir_graph *old);
ir_value pass_mapped(const pass_rewrite *rewrite, ir_value old);
// Copies an old node with mapped operands and sets its mapping.
ir_value pass_copy(pass_rewrite *rewrite, ir_value old);
void pass_set(pass_rewrite *rewrite, ir_value old, ir_value new_value);
// Maps the results and returns the new graph.
ir_graph *pass_rewrite_end(pass_rewrite *rewrite);

// `new_value` stands for old node `old`: it gets its type's dtype and axis order (through a cast
// when they differ) and, when it has none yet, its name.
void pass_replace(pass_rewrite *rewrite, ir_value old, ir_value new_value);

#endif
