// Lowering for a GPU, before places: may the sources be taken tile by tile?
//
//   for all sources: sums                        for each tile of sources:
//   logits, maximum m, exponentials e, sum s       sums, logits
//   mix of all sources with e              ->      m grows; s and the mix so far times exp(old - new)
//   the rest                                       e, s and the mix take in the tile
//                                                the rest
//
// Wanted when sources are read by two sweeps and do not all fit in registers. Possible when what
// follows the maximum is homogeneous: a sum over the sources may depend on the maximum only through
// exponentials exp(z - m), once. (defer-normaliser has moved the division by s out of the mix.)
// What does not depend on the maximum, sigmoid weights say, needs no factor.
#include <math.h>

#include "passes/lower.h"

// How a value depends on the running maxima.
typedef enum dependence {
  FREE,       // not at all
  ONCE,       // proportional to exp(-m)
  ITSELF,     // the maximum, or what is made of it without sources
  DIFFERENCE, // something free less that
  WRONG,
} dependence;

typedef struct chain {
  pass_lowering *lowering;
  kir_chain *out;
  dependence *dependence; // of each node,
  int32_t *of;            // and on which maximum
  bool *after;            // needs a sum over the sources that is complete
} chain;

static bool has_axis(const chain *c, uint32_t index) {
  return ir_type_has(&c->lowering->graph->nodes.data[index].type, c->out->axis);
}

static bool sums_sources(const chain *c, const ir_node *node) {
  return c->lowering->member[node - c->lowering->graph->nodes.data] && pass_is_reduction(node) &&
         (ir_axes_set(node->over_count, node->over) & ir_axis_bit(c->out->axis));
}

// Are the sources an operand's, but no longer the node's? A concat with other logits, say, or a slice
// or another name: then each element of it may want any source.
static bool leaves_sources(const chain *c, const ir_node *node) {
  if (has_axis(c, (uint32_t)(node - c->lowering->graph->nodes.data))) return false;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (has_axis(c, node->operands[i].index)) return !sums_sources(c, node);
  return false;
}

// a - b, a free and b made of a maximum.
static bool is_difference(const chain *c, const ir_node *node) {
  if (node->op != IR_SUB || node->type.dtype != IR_F32) return false;
  uint32_t a = node->operands[0].index, b = node->operands[1].index;
  return c->dependence[a] == FREE && c->dependence[b] == ITSELF && !has_axis(c, b);
}

static bool set_base(chain *c, int32_t of, ir_value base) {
  kir_running *running = &c->out->maxima.data[of];
  bool same = running->base.index == UINT32_MAX || running->base.index == base.index;
  running->base = base;
  return same;
}

static void depend(chain *c, uint32_t index) {
  const ir_node *node = &c->lowering->graph->nodes.data[index];
  int32_t of = -1;
  uint32_t once = 0, itself = 0, differences = 0;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    uint32_t operand = node->operands[i].index;
    c->after[index] |= c->after[operand];
    if (c->dependence[operand] == FREE) continue;
    if (c->dependence[operand] == WRONG || (of >= 0 && c->of[operand] != of)) {
      c->dependence[index] = WRONG;
      return;
    }
    of = c->of[operand];
    *(c->dependence[operand] == ONCE     ? &once
      : c->dependence[operand] == ITSELF ? &itself
                                         : &differences) += 1;
  }
  c->of[index] = of;
  bool sums = sums_sources(c, node);
  if (leaves_sources(c, node)) {
    c->after[index] = true;
    c->dependence[index] = once + itself + differences == 0 ? FREE : WRONG;
  } else if (once + itself + differences == 0) {
    c->dependence[index] = FREE;
  } else if (is_difference(c, node)) {
    c->dependence[index] = set_base(c, of, node->operands[1]) ? DIFFERENCE : WRONG;
  } else if (node->op == IR_EXP && differences) {
    c->dependence[index] = node->type.dtype == IR_F32 ? ONCE : WRONG;
  } else if (differences) {
    c->dependence[index] = WRONG;
  } else if (itself && !once && !has_axis(c, index)) {
    c->dependence[index] = ITSELF;
    c->after[index] |= pass_is_reduction(node); // stored once, after all tiles
  } else if (once == 1 && !itself &&
             (node->op == IR_MUL || (sums && node->op != IR_REDUCE_MAX && node->op != IR_MEAN) ||
              (ir_op_get(node->op)->facts & IR_FACT_VIEW && node->operand_count == 1))) {
    c->dependence[index] = ONCE;
  } else {
    c->dependence[index] = WRONG;
  }
  if (!sums) return;
  // From here on it stands for the complete sum, unless it is a maximum, which runs.
  bool row = ir_type_axes(&node->type) & c->lowering->hidden;
  if (node->op == IR_REDUCE_MAX && c->dependence[index] == FREE && !c->after[index] && !row &&
      node->over_count == 1) {
    c->of[index] = (int32_t)c->out->maxima.count;
    kir_running running = {.maximum = {index}, .base = {UINT32_MAX}};
    base_push(c->lowering->arena, &c->out->maxima, running);
    c->dependence[index] = ITSELF;
  } else {
    bool fine = c->dependence[index] == FREE || c->dependence[index] == ONCE;
    bool plain = node->op != IR_MEAN && node->op != IR_REDUCE_MAX && node->type.dtype == IR_F32 &&
                 !pass_is_staged(c->lowering, (ir_value){index});
    c->lowering->kernel->values[index].running = c->dependence[index] == ONCE ? c->of[index] : -1;
    c->dependence[index] = fine && plain && !c->after[index] ? FREE : WRONG;
    c->after[index] = true;
  }
}

// What has sources and depends on a maximum holds only inside its tile: no result, and nothing that
// waits for a complete sum, may want it.
static bool stays_inside(const chain *c, uint32_t index) {
  const ir_graph *graph = c->lowering->graph;
  if (c->dependence[index] == WRONG) return false;
  if (!has_axis(c, index)) return true;
  if (c->after[index]) return false; // would need all sources again
  if (c->dependence[index] == FREE) return true;
  if (c->lowering->kernel->values[index].store_arg >= 0) return false;
  for (uint32_t i = index + 1; i < graph->nodes.count; i++)
    for (uint32_t j = 0; j < graph->nodes.data[i].operand_count; j++)
      if (graph->nodes.data[i].operands[j].index == index &&
          !sums_sources(c, &graph->nodes.data[i]) && c->after[i])
        return false;
  return true;
}

// A value made of the maximum and constants, where the maximum is -inf; NaN: of something else too.
static double when_nothing(const chain *c, uint32_t index, uint32_t maximum) {
  const ir_node *node = &c->lowering->graph->nodes.data[index];
  double operands[2] = {0};
  if (index == maximum) return -INFINITY;
  if (node->op == IR_CONSTANT && node->value_count == 1) return node->values[0];
  if (ir_op_get(node->op)->shape != IR_SHAPE_MAP) return NAN;
  for (uint32_t i = 0; i < node->operand_count; i++)
    operands[i] = when_nothing(c, node->operands[i].index, maximum);
  return ir_op_evaluate(node->op, operands[0], operands[1]);
}

// What the exponentials subtract must be finite even where no source of the first tiles counts, all
// their logits being -inf: exp(-inf - -inf) would spoil what comes later.
static bool has_finite_base(const chain *c, const kir_running *running) {
  return isfinite((float)when_nothing(c, running->base.index, running->maximum.index));
}

bool pass_lower_chain(pass_lowering *lowering, ir_axis axis) {
  uint32_t count = lowering->graph->nodes.count;
  chain c = {.lowering = lowering,
             .out = &lowering->kernel->chain,
             .dependence = base_new_array(lowering->arena, dependence, count),
             .of = base_new_array(lowering->arena, int32_t, count),
             .after = base_new_array(lowering->arena, bool, count)};
  *c.out = (kir_chain){.used = true, .axis = axis, .tile = 1};
  bool possible = true;
  for (uint32_t i = 0; i < count; i++) {
    c.of[i] = -1;
    if (lowering->member[i]) depend(&c, i);
  }
  for (uint32_t i = 0; i < count; i++) {
    possible &= !lowering->member[i] || stays_inside(&c, i);
    lowering->of_maximum[i] = lowering->member[i] && c.dependence[i] == ITSELF && !c.after[i] &&
                              !pass_is_reduction(&lowering->graph->nodes.data[i]);
  }
  for (uint32_t i = 0; i < c.out->maxima.count; i++) {
    kir_running *running = &c.out->maxima.data[i];
    if (running->base.index == UINT32_MAX)
      running->base = running->maximum; // no exponential is relative to it
    else
      possible &= has_finite_base(&c, running);
  }
  c.out->used = possible;
  return possible;
}

bool pass_in_chain(const pass_lowering *lowering, ir_value value) {
  const kir_chain *chain = &lowering->kernel->chain;
  const ir_node *node = ir_node_of(lowering->graph, value);
  if (!chain->used || !lowering->member[value.index]) return false;
  return ir_type_has(&node->type, chain->axis) ||
         (pass_is_reduction(node) &&
          (ir_axes_set(node->over_count, node->over) & ir_axis_bit(chain->axis)));
}
