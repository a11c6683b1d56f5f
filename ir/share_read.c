// How much of a value its users read: a window over sources needs only those sources.
#include "ir/ir.h"

static bool uses(const ir_node *node, ir_value value) {
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (node->operands[i].index == value.index) return true;
  return false;
}

typedef struct stretch {
  int64_t start, end; // empty: none
} stretch;

// The first indices at or after `from` that a slice of the value reads.
static stretch next_stretch(const ir_graph *graph, ir_value value, int64_t from) {
  stretch next = {INT64_MAX, INT64_MAX};
  for (uint32_t i = value.index + 1; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!uses(node, value)) continue;
    int64_t low = node->start > from ? node->start : from;
    int64_t high = node->start + ir_axis_size(graph, node->to[0]);
    if (high > low && low < next.start) next = (stretch){low, high};
  }
  return next;
}

double ir_share_read(const ir_graph *graph, ir_value value) {
  const ir_node *slice = NULL;
  bool read = ir_is_result(graph, value);
  for (uint32_t i = value.index + 1; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (!uses(node, value)) continue;
    bool alike = node->op == IR_SLICE && (!slice || slice->over[0].index == node->over[0].index);
    if (!alike) return 1;
    slice = node;
    read = true;
  }
  if (!slice) return read;
  int64_t size = ir_axis_size(graph, slice->over[0]), covered = 0;
  for (stretch next = next_stretch(graph, value, 0); next.end > next.start;
       next = next_stretch(graph, value, next.end))
    covered += next.end - next.start;
  return size > 0 ? (double)covered / (double)size : 0;
}
