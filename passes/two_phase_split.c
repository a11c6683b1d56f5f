// two-phase: the values of a grouped site in two parts, the bank's and that of the late sources, and
// their merges (see two_phase.c).
#include <string.h>

#include "passes/two_phase.h"

// ---- values of the new graph --------------------------------------------------------------------

static ir_value build_node(phaser *p, ir_op op, base_str name, uint32_t count,
                           const ir_value *operands, const ir_axis *over, const ir_axis *to,
                           ir_type type) {
  ir_node node = {.op = op,
                  .type = type,
                  .operand_count = count,
                  .operands = operands,
                  .kernel = IR_NO_KERNEL,
                  .name = name};
  if (over != NULL) node.over[node.over_count++] = *over;
  if (to != NULL) node.to[node.to_count++] = *to;
  return ir_build_node(p->rewrite.graph, &node);
}

static ir_type new_type(const phaser *p, ir_value value) {
  return ir_node_of(p->rewrite.graph, value)->type;
}

// `axis` in front of a type.
static ir_type with_axis(ir_axis axis, ir_type type) {
  for (uint32_t i = type.rank; i > 0; i--)
    type.axes[i] = type.axes[i - 1];
  type.axes[0] = axis;
  type.rank++;
  return type;
}

// A type with another axis in place of one, or without it (`by` NULL).
static ir_type exchange(ir_type type, ir_axis axis, const ir_axis *by) {
  uint32_t rank = 0;
  for (uint32_t i = 0; i < type.rank; i++) {
    if (type.axes[i].index != axis.index)
      type.axes[rank++] = type.axes[i];
    else if (by != NULL)
      type.axes[rank++] = *by;
  }
  type.rank = rank;
  return type;
}

static ir_value binary(phaser *p, ir_op op, ir_value a, ir_value b, ir_type type) {
  return build_node(p, op, (base_str){0}, 2, (ir_value[]){a, b}, NULL, NULL, type);
}

// An old value that is none of a group's: a parameter, a constant or something made of those may not be
// there yet.
static ir_value pull(phaser *p, uint32_t index) {
  if (p->mapped[index]) return pass_mapped(&p->rewrite, (ir_value){index});
  const ir_node *node = phase_node(p, index);
  for (uint32_t i = 0; i < node->operand_count; i++)
    pull(p, node->operands[i].index);
  p->mapped[index] = true;
  return pass_copy(&p->rewrite, (ir_value){index});
}

// One index of a value's first axis.
static ir_value select_at(phaser *p, ir_value value, ir_axis axis, int64_t at, base_str name) {
  ir_axis one = phase_axis(p, "I", 1);
  const ir_type type = new_type(p, value);
  ir_node slice = {.op = IR_SLICE,
                   .type = exchange(type, axis, &one),
                   .operand_count = 1,
                   .operands = &value,
                   .kernel = IR_NO_KERNEL,
                   .over_count = 1,
                   .over = {axis},
                   .to_count = 1,
                   .to = {one},
                   .start = at};
  const ir_value part = ir_build_node(p->rewrite.graph, &slice);
  return build_node(p, IR_SUM, name, 1, &part, &one, NULL, exchange(type, axis, NULL));
}

// ---- the bank's part, of all sites --------------------------------------------------------------

static base_str named(const phaser *p, uint32_t index, const char *suffix) {
  return base_str_format(p->old->arena, "%.*s.%s", BASE_FMT(phase_node(p, index)->name), suffix);
}

// Old nodes, one of each site of the group, that correspond: operand `i` of all of them.
static uint32_t *operands_of(const phaser *p, const phase_group *g, const uint32_t *nodes,
                             uint32_t i) {
  uint32_t *tuple = base_new_array(p->old->arena, uint32_t, g->count);
  for (uint32_t s = 0; s < g->count; s++)
    tuple[s] = phase_node(p, nodes[s])->operands[i].index;
  return tuple;
}

static bool all_equal(const phase_group *g, const uint32_t *nodes) {
  for (uint32_t s = 1; s < g->count; s++)
    if (nodes[s] != nodes[0]) return false;
  return true;
}

// The bank's share of a constant's list; a number stays one.
static ir_value early_constant(phaser *p, const phase_group *g, const phase_site *site,
                               uint32_t index) {
  ir_node node = *phase_node(p, index);
  if (ir_type_has(&node.type, site->n)) {
    node.type = exchange(node.type, site->n, g->bank > 1 ? &g->e : NULL);
    node.value_count = g->bank;
  }
  return ir_build_node(p->rewrite.graph, &node);
}

static bool same_numbers(const ir_node *a, const ir_node *b) {
  return a->value_count == b->value_count &&
         memcmp(a->values, b->values, a->value_count * sizeof *a->values) == 0;
}

// The bank's share of what one site has instead of a computed value.
static ir_value early_leaf(phaser *p, const phase_group *g, const phase_site *site,
                           uint32_t index) {
  const ir_node *node = phase_node(p, index);
  if (node->op == IR_CONSTANT) return early_constant(p, g, site, index);
  const ir_value value = pull(p, index);
  if (!ir_type_has(&node->type, site->n)) return value;
  return build_node(p, IR_SLICE, (base_str){0}, 1, &value, &site->n, &g->e,
                    exchange(node->type, site->n, &g->e));
}

// Parameters and numbers of the sites, put together along S; one value where all have the same.
static ir_value stack_leaves(phaser *p, const phase_group *g, const uint32_t *nodes) {
  bool same = true;
  for (uint32_t s = 1; s < g->count && same; s++) {
    const ir_node *a = phase_node(p, nodes[0]), *b = phase_node(p, nodes[s]);
    ir_node head = *a;
    same = nodes[s] == nodes[0] || (a->op == IR_CONSTANT && b->op == IR_CONSTANT);
    if (!same || nodes[s] == nodes[0]) continue;
    if (head.value_count > 1) head.value_count = g->bank;
    ir_node other = *b;
    if (other.value_count > 1) other.value_count = g->bank;
    same = same_numbers(&head, &other);
  }
  if (same) return early_leaf(p, g, g->sites[0], nodes[0]);
  ir_value *parts = base_new_array(p->old->arena, ir_value, g->count);
  for (uint32_t s = 0; s < g->count; s++)
    parts[s] = early_leaf(p, g, g->sites[s], nodes[s]);
  const ir_axis over = ir_build_axis(p->rewrite.graph, BASE_STR("B"), IR_DYNAMIC);
  return build_node(p, IR_CONCAT, named(p, nodes[0], "all"), g->count, parts, &over, &g->s,
                    with_axis(g->s, new_type(p, parts[0])));
}

static ir_value bank_of_group(phaser *p, const phase_group *g) {
  const ir_node *concat = phase_node(p, g->sites[0]->concat);
  ir_value *rows = base_new_array(p->old->arena, ir_value, g->bank);
  for (uint32_t i = 0; i < g->bank; i++)
    rows[i] = pass_mapped(&p->rewrite, concat->operands[i]);
  return build_node(p, IR_CONCAT, named(p, g->sites[0]->concat, "bank"), g->bank, rows,
                    &concat->over[0], &g->e, exchange(concat->type, g->sites[0]->n, &g->e));
}

// The type of the stacked value of an op: as the first site's, with E for N, and S in front where an
// operand has it.
static ir_type stacked_type(const phaser *p, const phase_group *g, const ir_node *node,
                            const ir_value *operands) {
  ir_type type = exchange(node->type, g->sites[0]->n, &g->e);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const ir_type of_operand = new_type(p, operands[i]);
    if (ir_type_has(&of_operand, g->s)) return with_axis(g->s, type);
  }
  return type;
}

static ir_value stack(phaser *p, phase_group *g, const uint32_t *nodes);

static ir_value stack_op(phaser *p, phase_group *g, const uint32_t *nodes) {
  ir_node node = *phase_node(p, nodes[0]);
  const ir_axis n = g->sites[0]->n;
  ir_value *operands = base_new_array(p->old->arena, ir_value, node.operand_count);
  for (uint32_t i = 0; i < node.operand_count; i++)
    operands[i] = stack(p, g, operands_of(p, g, nodes, i));
  node.type = stacked_type(p, g, &node, operands);
  for (uint32_t i = 0; i < node.over_count; i++)
    if (node.over[i].index == n.index) node.over[i] = g->e;
  node.operands = operands;
  node.operand_locs = NULL;
  node.name = named(p, nodes[0], "bank");
  return ir_build_node(p->rewrite.graph, &node);
}

// The bank's part of corresponding values of all sites, computed once.
static ir_value stack(phaser *p, phase_group *g, const uint32_t *nodes) {
  const ir_node *node = phase_node(p, nodes[0]);
  if (g->has[nodes[0]]) return g->stacked[nodes[0]];
  ir_value value;
  if (nodes[0] == g->sites[0]->concat)
    value = bank_of_group(p, g);
  else if (node->op == IR_PARAM || node->op == IR_CONSTANT)
    value = stack_leaves(p, g, nodes);
  else if (all_equal(g, nodes) && !ir_type_has(&node->type, g->sites[0]->n))
    value = pull(p, nodes[0]);
  else
    value = stack_op(p, g, nodes);
  g->has[nodes[0]] = true;
  g->stacked[nodes[0]] = value;
  return value;
}

// The stored dtype of what the bank gives an end: that of the sources where their rows are mixed or
// summed, so that it costs no more memory than they do.
static ir_dtype stored_dtype(const phaser *p, const phase_site *site, const ir_node *end) {
  for (uint32_t i = 0; i < end->operand_count; i++) {
    uint32_t index = end->operands[i].index;
    while (index != site->concat &&
           (ir_op_get(phase_node(p, index)->op)->facts & IR_FACT_VIEW) != 0 &&
           phase_node(p, index)->op != IR_CONCAT)
      index = phase_node(p, index)->operands[0].index;
    if (index == site->concat) return phase_node(p, index)->type.dtype;
  }
  return end->type.dtype;
}

static uint32_t *tuple_of_end(const phaser *p, const phase_group *g, uint32_t end) {
  uint32_t *tuple = base_new_array(p->old->arena, uint32_t, g->count);
  for (uint32_t s = 0; s < g->count; s++)
    tuple[s] = g->sites[s]->ends.data[end];
  return tuple;
}

// The operand of an end that is a softmax over N; -1: none is.
static int soft_operand(const phaser *p, const phase_site *site, const ir_node *end) {
  if (!phase_is_end(end, site->n)) return -1;
  for (uint32_t i = 0; i < end->operand_count; i++)
    if (phase_is_softmax(ir_node_of(p->old, end->operands[i]), site->n)) return (int)i;
  return -1;
}

// The log-sum-exp of the bank's logits, of which the softmaxes `nodes` are made.
static void stack_lse(phaser *p, phase_group *g, const uint32_t *nodes) {
  if (g->has_lse[nodes[0]]) return;
  const ir_value z = stack(p, g, operands_of(p, g, nodes, 0));
  g->has_lse[nodes[0]] = true;
  g->lse[nodes[0]] = build_node(p, IR_LOGSUMEXP, named(p, nodes[0], "lse"), 1, &z, &g->e, NULL,
                                exchange(new_type(p, z), g->e, NULL));
}

static bool is_made_of_softmax(const phaser *p, const phase_site *site, uint32_t index) {
  const ir_node *node = phase_node(p, index);
  if (!ir_type_has(&node->type, site->n) || index == site->concat) return false;
  if (phase_is_softmax(node, site->n)) return true;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (is_made_of_softmax(p, site, node->operands[i].index)) return true;
  return false;
}

// What a wide result needs of the bank: itself, or the softmaxes that it is made of.
static void stack_wide(phaser *p, phase_group *g, const uint32_t *nodes) {
  const phase_site *site = g->sites[0];
  const ir_node *node = phase_node(p, nodes[0]);
  if (!ir_type_has(&node->type, site->n)) return; // the site's own business
  if (phase_is_softmax(node, site->n)) stack_lse(p, g, nodes);
  if (phase_is_softmax(node, site->n) || !is_made_of_softmax(p, site, nodes[0])) {
    stack(p, g, nodes);
    return;
  }
  for (uint32_t i = 0; i < node->operand_count; i++)
    stack_wide(p, g, operands_of(p, g, nodes, i));
}

static void stack_end(phaser *p, phase_group *g, uint32_t end) {
  const phase_site *site = g->sites[0];
  const uint32_t *nodes = tuple_of_end(p, g, end);
  const ir_node *node = phase_node(p, nodes[0]);
  const int soft = soft_operand(p, site, node);
  if (!phase_is_end(node, site->n)) {
    stack_wide(p, g, nodes);
    return;
  }
  if (soft >= 0) stack_lse(p, g, operands_of(p, g, nodes, (uint32_t)soft));
  const ir_value value = stack_op(p, g, nodes);
  ir_node *made = &p->rewrite.graph->nodes.data[value.index];
  made->type.dtype = stored_dtype(p, site, node);
  if (made->op == IR_MEAN) made->op = IR_SUM; // parts have their own numbers of sources
  g->has[nodes[0]] = true;
  g->stacked[nodes[0]] = value;
}

void phase_stack_group(phaser *p, phase_group *g) {
  for (uint32_t i = 0; i < g->sites[0]->ends.count; i++)
    stack_end(p, g, i);
}

// ---- one site -----------------------------------------------------------------------------------

// A site of a group while its ends are written.
typedef struct merger {
  phaser *p;
  const phase_group *g;
  const phase_site *site;
  uint32_t at;    // number in the group
  uint32_t count; // of late sources
  ir_axis l;      // that counts them, where there are several
} merger;

static merger merger_of(phaser *p, uint32_t index) {
  const uint32_t site = p->site_of[index];
  const phase_group *g = &p->groups.data[p->group_of[site]];
  merger m = {.p = p, .g = g, .site = &p->sites.data[site], .at = site - g->first};
  m.count = phase_node(p, m.site->concat)->operand_count - g->bank;
  if (m.count > 1) m.l = phase_axis(p, "L", m.count);
  return m;
}

static const ir_axis *late_axis(const merger *m) {
  return m->count > 1 ? &m->l : NULL;
}

// The old node of the group's first site that corresponds to this end, or an operand of such.
static uint32_t first_of_end(const merger *m, uint32_t index) {
  for (uint32_t i = 0; i < m->site->ends.count; i++)
    if (m->site->ends.data[i] == index) return m->g->sites[0]->ends.data[i];
  return phase_none;
}

// This site's share of a value of all sites.
static ir_value own_share(const merger *m, ir_value stacked, base_str name) {
  const ir_type type = new_type(m->p, stacked);
  if (!ir_type_has(&type, m->g->s)) return stacked;
  return select_at(m->p, stacked, m->g->s, m->at, name);
}

// ---- the late sources' part ---------------------------------------------------------------------

static ir_value late_of(const merger *m, uint32_t index);

static ir_value late_concat(const merger *m) {
  const ir_node *concat = phase_node(m->p, m->site->concat);
  ir_value *rows = base_new_array(m->p->old->arena, ir_value, m->count);
  for (uint32_t i = 0; i < m->count; i++)
    rows[i] = pass_mapped(&m->p->rewrite, concat->operands[m->g->bank + i]);
  if (m->count == 1) return rows[0];
  return build_node(m->p, IR_CONCAT, named(m->p, m->site->concat, "late"), m->count, rows,
                    &concat->over[0], &m->l, exchange(concat->type, m->site->n, &m->l));
}

static ir_value late_leaf(const merger *m, uint32_t index) {
  const ir_node *node = phase_node(m->p, index);
  if (node->op == IR_CONSTANT) {
    ir_node part = *node;
    part.values = node->values + m->g->bank;
    part.value_count = m->count;
    part.type = exchange(node->type, m->site->n, late_axis(m));
    return ir_build_node(m->p->rewrite.graph, &part);
  }
  const ir_value value = pull(m->p, index);
  if (m->count == 1) return select_at(m->p, value, m->site->n, m->g->bank, (base_str){0});
  ir_node slice = {.op = IR_SLICE,
                   .type = exchange(node->type, m->site->n, &m->l),
                   .operand_count = 1,
                   .operands = &value,
                   .kernel = IR_NO_KERNEL,
                   .over_count = 1,
                   .over = {m->site->n},
                   .to_count = 1,
                   .to = {m->l},
                   .start = m->g->bank};
  return ir_build_node(m->p->rewrite.graph, &slice);
}

// The same op on the late part of what has the axis N.
static ir_value late_op(const merger *m, uint32_t index) {
  ir_node node = *phase_node(m->p, index);
  ir_value *operands = base_new_array(m->p->old->arena, ir_value, node.operand_count);
  for (uint32_t i = 0; i < node.operand_count; i++)
    operands[i] = late_of(m, node.operands[i].index);
  node.operands = operands;
  node.operand_locs = NULL;
  node.type = exchange(node.type, m->site->n, late_axis(m));
  for (uint32_t i = 0; i < node.over_count; i++)
    if (node.over[i].index == m->site->n.index) node.over[i] = m->l;
  node.name = named(m->p, index, "late");
  return ir_build_node(m->p->rewrite.graph, &node);
}

static ir_value late_of(const merger *m, uint32_t index) {
  phaser *p = m->p;
  const ir_node *node = phase_node(p, index);
  if (!ir_type_has(&node->type, m->site->n)) return pull(p, index);
  if (node->op == IR_PARAM || node->op == IR_CONSTANT) return late_leaf(m, index);
  if (!p->has_late[index])
    p->late[index] = index == m->site->concat ? late_concat(m) : late_op(m, index);
  p->has_late[index] = true;
  return p->late[index];
}

// ---- merging ------------------------------------------------------------------------------------

// Of a softmax of this site: the bank's log-sum-exp and the late sources'.
static void both_lse(const merger *m, uint32_t softmax, uint32_t first, ir_value *bank,
                     ir_value *late) {
  phaser *p = m->p;
  const ir_value z = late_of(m, phase_node(p, softmax)->operands[0].index);
  *bank = own_share(m, m->g->lse[first], named(p, softmax, "lse"));
  *late = z;
  if (m->count > 1)
    *late = build_node(p, IR_LOGSUMEXP, (base_str){0}, 1, &z, &m->l, NULL,
                       exchange(new_type(p, z), m->l, NULL));
}

// The weight of the late sources, or of the bank: sigmoid of the difference of their log-sum-exps.
static ir_value weight_of(const merger *m, uint32_t softmax, uint32_t first, bool late_ones) {
  ir_value bank, late;
  both_lse(m, softmax, first, &bank, &late);
  const ir_type type = new_type(m->p, bank);
  const ir_value margin =
      late_ones ? binary(m->p, IR_SUB, late, bank, type) : binary(m->p, IR_SUB, bank, late, type);
  return build_node(m->p, IR_SIGMOID, named(m->p, softmax, late_ones ? "p" : "q"), 1, &margin, NULL,
                    NULL, type);
}

// A mix with softmax weights: o + p (late - o), a convex combination.
static ir_value merge_mix(const merger *m, const ir_node *end, uint32_t soft, ir_value bank,
                          uint32_t first_softmax) {
  phaser *p = m->p;
  const uint32_t softmax = end->operands[soft].index, values = end->operands[1 - soft].index;
  const ir_type type = end->type;
  ir_value late = late_of(m, values);
  if (m->count > 1) {
    const ir_value weights = late_of(m, softmax);
    late = build_node(p, IR_WEIGHTED_SUM, (base_str){0}, 2, (ir_value[]){weights, late}, &m->l,
                      NULL, type);
  }
  const ir_value share = weight_of(m, softmax, first_softmax, true);
  const ir_value away = binary(p, IR_SUB, late, bank, type);
  return binary(p, IR_ADD, bank, binary(p, IR_MUL, share, away, type), type);
}

// What the late sources give a reduction that is no mix with softmax weights.
static ir_value late_end(const merger *m, const ir_node *end) {
  phaser *p = m->p;
  ir_value *operands = base_new_array(p->old->arena, ir_value, end->operand_count);
  for (uint32_t i = 0; i < end->operand_count; i++)
    operands[i] = late_of(m, end->operands[i].index);
  if (m->count > 1)
    return build_node(p, end->op == IR_MEAN ? IR_SUM : end->op, (base_str){0}, end->operand_count,
                      operands, &m->l, NULL, end->type);
  return end->operand_count == 2 ? binary(p, IR_MUL, operands[0], operands[1], end->type)
                                 : operands[0];
}

static ir_value log_add(const merger *m, ir_value a, ir_value b, ir_type type) {
  phaser *p = m->p;
  const ir_axis over = ir_build_axis(p->rewrite.graph, BASE_STR("J"), IR_DYNAMIC);
  const ir_axis pair = phase_axis(p, "P", 2);
  const ir_value both = build_node(p, IR_CONCAT, (base_str){0}, 2, (ir_value[]){a, b}, &over, &pair,
                                   with_axis(pair, type));
  return build_node(p, IR_LOGSUMEXP, (base_str){0}, 1, &both, &pair, NULL, type);
}

static ir_value merge_plain(const merger *m, const ir_node *end, ir_value bank) {
  phaser *p = m->p;
  const ir_value late = late_end(m, end);
  const ir_type type = end->type;
  switch (end->op) {
  case IR_LOGSUMEXP:
    return log_add(m, bank, late, type);
  case IR_REDUCE_MAX:
    return binary(p, IR_MAX, bank, late, type);
  case IR_MEAN: {
    const double share = 1.0 / (m->g->bank + m->count);
    const ir_value sum = binary(p, IR_ADD, bank, late, type);
    return binary(p, IR_MUL, sum, ir_build_constant(p->rewrite.graph, share), type);
  }
  default:
    return binary(p, IR_ADD, bank, late, type);
  }
}

// ---- results along N ----------------------------------------------------------------------------

typedef struct parts {
  ir_value bank, late;
} parts;

static parts parts_of(const merger *m, uint32_t index, uint32_t first);

static parts parts_of_op(const merger *m, uint32_t index, uint32_t first) {
  phaser *p = m->p;
  const ir_node *node = phase_node(p, index);
  parts made;
  ir_value *bank = base_new_array(p->old->arena, ir_value, node->operand_count);
  ir_value *late = base_new_array(p->old->arena, ir_value, node->operand_count);
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const parts part =
        parts_of(m, node->operands[i].index, phase_node(p, first)->operands[i].index);
    bank[i] = part.bank;
    late[i] = part.late;
  }
  ir_node copy = *node;
  copy.operand_locs = NULL;
  copy.name = (base_str){0};
  copy.operands = bank;
  copy.type = exchange(node->type, m->site->n, &m->g->e);
  made.bank = ir_build_node(p->rewrite.graph, &copy);
  copy.operands = late;
  copy.type = exchange(node->type, m->site->n, late_axis(m));
  made.late = ir_build_node(p->rewrite.graph, &copy);
  return made;
}

static parts parts_of_softmax(const merger *m, uint32_t index, uint32_t first) {
  phaser *p = m->p;
  const ir_type type = phase_node(p, index)->type;
  const ir_value p_late = weight_of(m, index, first, true),
                 p_bank = weight_of(m, index, first, false);
  const ir_value own = own_share(m, m->g->stacked[first], (base_str){0});
  parts made = {.late = p_late};
  made.bank = binary(p, IR_MUL, own, p_bank, exchange(type, m->site->n, &m->g->e));
  if (m->count > 1)
    made.late = binary(p, IR_MUL, late_of(m, index), p_late, exchange(type, m->site->n, &m->l));
  return made;
}

static parts parts_of(const merger *m, uint32_t index, uint32_t first) {
  phaser *p = m->p;
  if (!ir_type_has(&phase_node(p, index)->type, m->site->n)) {
    const ir_value value = pull(p, index);
    return (parts){value, value};
  }
  if (phase_is_softmax(phase_node(p, index), m->site->n)) return parts_of_softmax(m, index, first);
  if (is_made_of_softmax(p, m->site, index)) return parts_of_op(m, index, first);
  return (parts){own_share(m, m->g->stacked[first], (base_str){0}), late_of(m, index)};
}

// Both parts, one after the other along N.
static ir_value join_parts(const merger *m, uint32_t index, uint32_t first) {
  phaser *p = m->p;
  const parts made = parts_of(m, index, first);
  ir_value *pieces = base_new_array(p->old->arena, ir_value, m->count + 1);
  pieces[0] = made.bank;
  for (uint32_t i = 0; i < m->count; i++)
    pieces[i + 1] = m->count > 1 ? select_at(p, made.late, m->l, i, (base_str){0}) : made.late;
  return build_node(p, IR_CONCAT, (base_str){0}, m->count + 1, pieces, &m->g->e, &m->site->n,
                    phase_node(p, index)->type);
}

void phase_merge_end(phaser *p, uint32_t index) {
  const merger m = merger_of(p, index);
  const uint32_t first = first_of_end(&m, index);
  if (first == phase_none) return;
  const ir_node *end = phase_node(p, index);
  ir_value value;
  if (!phase_is_end(end, m.site->n)) {
    value = join_parts(&m, index, first);
  } else {
    const ir_value bank = own_share(&m, m.g->stacked[first], named(p, index, "bank"));
    const int soft = soft_operand(p, m.site, end);
    value = soft < 0 ? merge_plain(&m, end, bank)
                     : merge_mix(&m, end, (uint32_t)soft, bank,
                                 phase_node(p, first)->operands[soft].index);
  }
  pass_replace(&p->rewrite, (ir_value){index}, value);
  p->mapped[index] = true;
}
