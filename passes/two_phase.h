// two-phase, internal: what finding the groups of sites (two_phase.c) and splitting their values
// (two_phase_split.c) share.
#ifndef FATHOM_PASSES_TWO_PHASE_H
#define FATHOM_PASSES_TWO_PHASE_H

#include "passes/depth.h"
#include "passes/rewrite.h"

static const uint32_t phase_none = UINT32_MAX;

// Nodes of the old graph by index.
typedef BASE_VECTOR(uint32_t) phase_nodes;

typedef struct phase_site {
  uint32_t concat;
  ir_axis n;
  uint32_t common;  // leading sources that the site before has as well
  bool splits;      // all that is made of its sources can be split
  phase_nodes wide; // values with the axis N that come from the concat, itself first
  phase_nodes ends; // where N is reduced, and wide results
} phase_site;

// Sites first .. first + count - 1, which share their first `bank` sources.
typedef struct phase_group {
  uint32_t first, count, bank;
  ir_axis s, e; // sites, sources of the bank
  const phase_site **sites;
  // Of old nodes of the first site, for all: the bank's part. `lse` is of a softmax: of its logits.
  ir_value *stacked, *lse;
  bool *has, *has_lse;
} phase_group;

typedef struct phaser {
  const ir_graph *old;
  pass_rewrite rewrite;
  uint32_t *steps;
  bool *fixed; // old nodes that depend on parameters alone
  BASE_VECTOR(phase_site) sites;
  BASE_VECTOR(phase_group) groups;
  bool *mapped;       // old nodes that have a value in the new graph
  uint32_t *site_of;  // of a wide node or an end of a grouped site: its number; else phase_none
  uint32_t *group_of; // of a site; phase_none: alone
  bool *wide;         // of a site that is looked at
  uint32_t *claimed;  // of a wide node: 1 + the site; two sites cannot have one
  ir_value *late;     // of wide nodes: the late sources' part
  bool *has_late;
} phaser;

static inline const ir_node *phase_node(const phaser *p, uint32_t index) {
  return &p->old->nodes.data[index];
}

// Is it a softmax over N alone?
bool phase_is_softmax(const ir_node *node, ir_axis n);
// Does it reduce N and nothing else?
bool phase_is_end(const ir_node *node, ir_axis n);
// An axis of the new graph with that size, its name made of both.
ir_axis phase_axis(const phaser *p, const char *letter, int64_t size);

// Computes the bank's part for all sites of a group.
void phase_stack_group(phaser *p, phase_group *group);
// What stands for an end of a grouped site in the new graph.
void phase_merge_end(phaser *p, uint32_t index);

#endif
