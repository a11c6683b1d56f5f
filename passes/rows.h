// rows: which axes of a kernel are its independent rows, and which is the long one rows are made
// of.
#ifndef FATHOM_PASSES_ROWS_H
#define FATHOM_PASSES_ROWS_H

#include "ir/ir.h"

enum { PASS_WHOLE_GRAPH = -2 };

// Both look at the nodes of one kernel, or at all of them. Hidden: the last axis of the largest
// input that has a fixed size, and every axis a view makes of it.
uint64_t pass_hidden_axes(const ir_graph *graph, int32_t kernel);
// Rows: the independent axes along which the inputs are cut best. Dynamic axes always are rows.
uint64_t pass_row_axes(const ir_graph *graph, int32_t kernel);

#endif
