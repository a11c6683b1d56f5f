// two-phase: sites that share finished blocks read them once, together.
//
//   %v_3 = concat %b_0, %b_1, %p_3 over B to N      %bank = concat %b_0, %b_1 over B to E
//   %z_3 = dot (norm %v_3), %query_3 over D         %z    = dot (norm %bank), %queries over D : [S, E, T]
//   %a_3 = softmax %z_3 over N                      %o    = weighted_sum (softmax %z), %bank  : [S, T, D]
//   %h_3 = weighted_sum %a_3, %v_3 over N      ->   %lse  = logsumexp %z over E               : [S, T]
//   %x_3 = rms_norm %h_3, ...                       ... then at site 3, of %p_3 alone:
//   %f_3 = call @sublayer_3 %x_3                    %p    = sigmoid (z - lse_3)
//   %v_4 = concat %b_0, %b_1, %p_4 over B to N      %h_3  = o_3 + p (p_3 - o_3)
//
// Nothing is matched by name or place: a site is a concat of single sources whose axis N is reduced
// further on. What is computed along N (keys, logits, biases) is split into the bank's part and that
// of the late sources; where N is reduced the two parts are merged: a softmax through the log-sum-exps
// of both, sums by adding. The bank's parts of the sites of a group are the same ops on other
// parameters, so they become one, with an axis S that the parameters are put together along. Sites
// whose ops differ stay as they are.
//
// Which sites make a group: a bank of m sources and S sites with l late ones each read
// m + S + sum(l + 1) rows instead of sum(m + l), the mixes of the bank (rounded to the sources' dtype)
// among them. Dynamic programming over the sites, in order, finds the groups that read least. A bank
// has only sources that are there a step before its first site, so that the host can compute its mixes
// beside a sublayer.
//
// At the end steps are worked out anew: every call has to be at the step where it was, and no value of
// a site later than it was. So nothing has moved past its inputs.
//
// The mix of the bank is rounded where no rounding was written: results differ from those of one
// phase by about one rounding of the sources' dtype.
#include "passes/two_phase.h"

#include <string.h>

enum { LONGEST_GROUP = 64 };

ir_graph *pass_two_phase(const ir_graph *graph, base_diag *diag);

static bool reduces(const ir_node *node, ir_axis axis) {
  if (ir_op_get(node->op)->shape != IR_SHAPE_REDUCE) return false;
  for (uint32_t i = 0; i < node->over_count; i++)
    if (node->over[i].index == axis.index) return true;
  return false;
}

static bool names(const ir_node *node, ir_axis axis) {
  for (uint32_t i = 0; i < node->over_count; i++)
    if (node->over[i].index == axis.index) return true;
  for (uint32_t i = 0; i < node->to_count; i++)
    if (node->to[i].index == axis.index) return true;
  return false;
}

// ---- sites --------------------------------------------------------------------------------------

// From which step on the value is there.
static uint32_t ready_at(const phaser *p, uint32_t index) {
  return p->steps[index] + pass_is_call(phase_node(p, index));
}

// Single sources put together, at least one of them from before.
static bool is_site(const phaser *p, uint32_t index) {
  const ir_node *node = phase_node(p, index);
  bool any_before = false;
  if (node->op != IR_CONCAT) return false;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    const uint32_t source = node->operands[i].index;
    if (ir_type_has(&phase_node(p, source)->type, node->over[0])) return false;
    any_before |= !p->fixed[source] && ready_at(p, source) < p->steps[index];
  }
  return any_before && node->operand_count > 1;
}

bool phase_is_softmax(const ir_node *node, ir_axis n) {
  return node->op == IR_SOFTMAX && node->over_count == 1 && node->over[0].index == n.index;
}

// Can the value be split along N: is each index of it made of the same index of its operands?
static bool can_split(const ir_node *node, ir_axis n) {
  if (phase_is_softmax(node, n)) return true;
  const ir_op_info *info = ir_op_get(node->op);
  return !names(node, n) && !(info->facts & IR_FACT_OPAQUE) && info->shape != IR_SHAPE_GIVEN &&
         info->shape != IR_SHAPE_CONCAT;
}

// Operands with the axis that do not come from the sources: numbers, or parameters with one for each.
static bool is_leaf(const ir_node *node, ir_axis n) {
  return (node->op == IR_CONSTANT || node->op == IR_PARAM) && ir_type_has(&node->type, n);
}

bool phase_is_end(const ir_node *node, ir_axis n) {
  return reduces(node, n) && node->over_count == 1;
}

// Is the value a softmax over N, or made of one?
static bool *after_softmax(const phaser *p, const phase_site *site) {
  bool *after = base_new_array(p->old->arena, bool, p->old->nodes.count);
  for (uint32_t i = 0; i < site->wide.count; i++) {
    const uint32_t index = site->wide.data[i];
    const ir_node *node = phase_node(p, index);
    after[index] = phase_is_softmax(node, site->n);
    for (uint32_t j = 0; j < node->operand_count; j++)
      after[index] |= after[node->operands[j].index];
  }
  return after;
}

// Weights of a softmax can be merged with a mix that they enter directly, and given as results; what is
// made of them goes to results only, and no second softmax is made of them.
static bool weights_are_plain(const phaser *p, const phase_site *site) {
  const bool *after = after_softmax(p, site);
  for (uint32_t i = 0; i < site->wide.count; i++) {
    const ir_node *node = phase_node(p, site->wide.data[i]);
    if (phase_is_softmax(node, site->n) && after[node->operands[0].index]) return false;
  }
  for (uint32_t i = 0; i < site->ends.count; i++) {
    const ir_node *node = phase_node(p, site->ends.data[i]);
    uint32_t soft = 0, made = 0;
    for (uint32_t j = 0; j < node->operand_count && phase_is_end(node, site->n); j++) {
      soft += phase_is_softmax(ir_node_of(p->old, node->operands[j]), site->n);
      made += after[node->operands[j].index];
    }
    if (made > soft || soft > 1 || (soft == 1 && node->operand_count != 2)) return false;
  }
  return true;
}

// Follows the values along N from the concat on.
static void explore(phaser *p, phase_site *site) {
  base_arena *arena = p->old->arena;
  memset(p->wide, 0, p->old->nodes.count * sizeof *p->wide);
  p->wide[site->concat] = true;
  base_push(arena, &site->wide, site->concat);
  site->splits = true;
  for (uint32_t i = site->concat + 1; i < p->old->nodes.count; i++) {
    const ir_node *node = phase_node(p, i);
    bool from_sources = false;
    for (uint32_t j = 0; j < node->operand_count; j++)
      from_sources |= p->wide[node->operands[j].index];
    if (!from_sources) continue;
    if (!ir_type_has(&node->type, site->n)) {
      site->splits &= phase_is_end(node, site->n);
      base_push(arena, &site->ends, i);
    } else {
      p->wide[i] = true;
      base_push(arena, &site->wide, i);
      // Two sites with one axis may share values: then neither can be taken apart.
      if (p->claimed[i] != 0) p->sites.data[p->claimed[i] - 1].splits = site->splits = false;
      p->claimed[i] = p->sites.count + 1;
      site->splits &= can_split(node, site->n);
      if (ir_is_result(p->old, (ir_value){i})) base_push(arena, &site->ends, i);
    }
    for (uint32_t j = 0; j < node->operand_count; j++) {
      const uint32_t operand = node->operands[j].index;
      if (p->wide[operand] || !ir_type_has(&phase_node(p, operand)->type, site->n)) continue;
      site->splits &= is_leaf(phase_node(p, operand), site->n);
    }
  }
  site->splits = site->splits && weights_are_plain(p, site);
}

static uint32_t common_sources(const ir_node *a, const ir_node *b) {
  uint32_t count = 0;
  while (count < a->operand_count && count < b->operand_count &&
         a->operands[count].index == b->operands[count].index)
    count++;
  return count;
}

static void find_sites(phaser *p) {
  for (uint32_t i = 0; i < p->old->nodes.count; i++) {
    if (!is_site(p, i)) continue;
    phase_site site = {.concat = i, .n = phase_node(p, i)->to[0]};
    if (p->sites.count > 0)
      site.common =
          common_sources(phase_node(p, p->sites.data[p->sites.count - 1].concat), phase_node(p, i));
    explore(p, &site);
    base_push(p->old->arena, &p->sites, site);
  }
}

// ---- isomorphism --------------------------------------------------------------------------------

static bool same_axis(const phase_site *a, ir_axis in_a, const phase_site *b, ir_axis in_b) {
  if (in_a.index == a->n.index || in_b.index == b->n.index)
    return in_a.index == a->n.index && in_b.index == b->n.index;
  return in_a.index == in_b.index;
}

static bool same_axes(const phase_site *a, uint32_t count, const ir_axis *in_a, const phase_site *b,
                      uint32_t count_b, const ir_axis *in_b) {
  bool same = count == count_b;
  for (uint32_t i = 0; i < count && same; i++)
    same = same_axis(a, in_a[i], b, in_b[i]);
  return same;
}

static bool same_op(const phase_site *a, const ir_node *x, const phase_site *b, const ir_node *y) {
  return x->op == y->op && x->type.dtype == y->type.dtype && x->operand_count == y->operand_count &&
         same_axes(a, x->type.rank, x->type.axes, b, y->type.rank, y->type.axes) &&
         same_axes(a, x->over_count, x->over, b, y->over_count, y->over) &&
         same_axes(a, x->to_count, x->to, b, y->to_count, y->to) && x->eps == y->eps &&
         x->start == y->start;
}

// Do the values compute the same of the bank, but for parameters and numbers?
static bool alike(const phaser *p, const phase_site *a, uint32_t in_a, const phase_site *b,
                  uint32_t in_b) {
  const ir_node *x = phase_node(p, in_a), *y = phase_node(p, in_b);
  if (in_a == in_b) return true;
  if (in_a == a->concat || in_b == b->concat) return in_a == a->concat && in_b == b->concat;
  if (!same_op(a, x, b, y)) return false;
  if (x->op == IR_PARAM) return !x->has_layout && !y->has_layout && x->type.rank < IR_MAX_RANK;
  if (x->op == IR_CONSTANT) return (x->value_count == 1) == (y->value_count == 1);
  for (uint32_t i = 0; i < x->operand_count; i++)
    if (!alike(p, a, x->operands[i].index, b, y->operands[i].index)) return false;
  return x->type.rank < IR_MAX_RANK && !(ir_op_get(x->op)->facts & IR_FACT_OPAQUE);
}

// Is every operand along N, or a thing of parameters alone? Then the bank's part is there with the bank.
static bool is_ready_early(const phaser *p, const phase_site *site, uint32_t index) {
  const ir_node *node = phase_node(p, index);
  if (index == site->concat) return true;
  if (!ir_type_has(&node->type, site->n) && !p->fixed[index]) return false;
  for (uint32_t i = 0; i < node->operand_count; i++)
    if (!is_ready_early(p, site, node->operands[i].index)) return false;
  return true;
}

static bool site_matches(const phaser *p, const phase_site *a, const phase_site *b) {
  if (a->ends.count != b->ends.count) return false;
  for (uint32_t i = 0; i < a->ends.count; i++)
    if (!alike(p, a, a->ends.data[i], b, b->ends.data[i])) return false;
  return true;
}

// ---- groups -------------------------------------------------------------------------------------

// Leading sources of the group's first site that are there a step before it, at most `shared`.
static uint32_t bank_of(const phaser *p, uint32_t first, uint32_t shared) {
  const uint32_t concat = p->sites.data[first].concat;
  const ir_node *node = phase_node(p, concat);
  uint32_t bank = 0;
  while (bank < shared && bank < node->operand_count) {
    const uint32_t source = node->operands[bank].index;
    if (ready_at(p, source) >= p->steps[concat]) break;
    bank++;
  }
  return bank;
}

static double rows_alone(const phaser *p, uint32_t site, pass_phase_choice choice) {
  enum { RATHER_NOT = 1 << 20 };
  const double rows = phase_node(p, p->sites.data[site].concat)->operand_count;
  return choice == PASS_PHASES_ALL ? rows + RATHER_NOT : rows;
}

// Rows that sites first .. last move in two phases; negative: they cannot.
static double rows_together(const phaser *p, uint32_t first, uint32_t last, uint32_t shared,
                            uint32_t *bank) {
  *bank = bank_of(p, first, shared);
  if (*bank == 0) return -1;
  double rows = *bank + (last - first + 1);
  for (uint32_t i = first; i <= last; i++)
    rows += phase_node(p, p->sites.data[i].concat)->operand_count - *bank + 1;
  return rows;
}

typedef struct plan_entry {
  double rows;          // of all sites up to this one
  uint32_t first, bank; // of the group that ends here; bank 0: the site alone
} plan_entry;

// Can site `first` join the group of the sites after it? Isomorphism is transitive.
static bool joins(const phaser *p, uint32_t first) {
  const phase_site *a = &p->sites.data[first], *b = a + 1;
  const bool *after = after_softmax(p, a);
  for (uint32_t i = 0; i < a->wide.count; i++) {
    const uint32_t index = a->wide.data[i];
    const bool own = after[index] && !phase_is_softmax(phase_node(p, index), a->n);
    if (!own && !is_ready_early(p, a, index)) return false;
  }
  return a->splits && b->splits && b->common > 0 && site_matches(p, a, b);
}

static plan_entry plan_up_to(const phaser *p, const plan_entry *plan, uint32_t last,
                             pass_phase_choice choice, const bool *joined) {
  plan_entry best = {rows_alone(p, last, choice), last, 0};
  if (last > 0) best.rows += plan[last - 1].rows;
  uint32_t shared = phase_none;
  for (uint32_t first = last; first > 0 && last - first < LONGEST_GROUP - 1;) {
    const uint32_t common = p->sites.data[first].common;
    first--;
    if (!joined[first]) break;
    if (common < shared) shared = common;
    uint32_t bank;
    double rows = rows_together(p, first, last, shared, &bank);
    if (rows < 0) continue;
    if (first > 0) rows += plan[first - 1].rows;
    if (rows < best.rows) best = (plan_entry){rows, first, bank};
  }
  return best;
}

ir_axis phase_axis(const phaser *p, const char *letter, int64_t size) {
  ir_graph *graph = p->rewrite.graph;
  base_str name = base_str_format(graph->arena, "%s%lld", letter, (long long)size);
  ir_axis axis;
  while (ir_axis_find(graph, name, &axis) && ir_axis_size(graph, axis) != size)
    name = base_str_format(graph->arena, "%.*s_", BASE_FMT(name));
  return ir_build_axis(graph, name, size);
}

static void add_group(phaser *p, uint32_t first, uint32_t last, uint32_t bank) {
  base_arena *arena = p->old->arena;
  phase_group group = {.first = first, .count = last - first + 1, .bank = bank};
  group.s = phase_axis(p, "S", group.count);
  group.e = phase_axis(p, "E", bank);
  group.sites = base_new_array(arena, const phase_site *, group.count);
  group.stacked = base_new_array(arena, ir_value, p->old->nodes.count);
  group.has = base_new_array(arena, bool, p->old->nodes.count);
  group.lse = base_new_array(arena, ir_value, p->old->nodes.count);
  group.has_lse = base_new_array(arena, bool, p->old->nodes.count);
  for (uint32_t i = 0; i < group.count; i++) {
    const phase_site *site = group.sites[i] = &p->sites.data[first + i];
    p->group_of[first + i] = p->groups.count;
    for (uint32_t j = 0; j < site->wide.count; j++)
      p->site_of[site->wide.data[j]] = first + i;
    for (uint32_t j = 0; j < site->ends.count; j++)
      p->site_of[site->ends.data[j]] = first + i;
  }
  base_push(arena, &p->groups, group);
}

// The step of a site: that of its sources.
static uint32_t step_of(const phaser *p, uint32_t site) {
  return p->steps[p->sites.data[site].concat];
}

static void form_groups(phaser *p, pass_phase_choice choice,
                        bool (*accept)(void *user, pass_phase_group group), void *user) {
  base_arena *arena = p->old->arena;
  const uint32_t count = p->sites.count;
  plan_entry *plan = base_new_array(arena, plan_entry, count + 1);
  bool *joined = base_new_array(arena, bool, count + 1);
  p->group_of = base_new_array(arena, uint32_t, count + 1);
  for (uint32_t i = 0; i < count; i++) {
    p->group_of[i] = phase_none;
    joined[i] = i + 1 < count && joins(p, i);
  }
  for (uint32_t i = 0; i < count; i++)
    plan[i] = plan_up_to(p, plan, i, choice, joined);
  for (uint32_t i = count; i-- > 0;) {
    if (plan[i].bank == 0) continue;
    const pass_phase_group group = {step_of(p, plan[i].first), step_of(p, i)};
    if (accept == NULL || accept(user, group)) add_group(p, plan[i].first, i, plan[i].bank);
    i = plan[i].first;
  }
}

// ---- the new graph ------------------------------------------------------------------------------

// Has the walk come to the first end of the group that the site belongs to?
static bool begins_group(const phase_group *group, uint32_t index) {
  return group->sites[0]->ends.data[0] == index;
}

static void rebuild(phaser *p) {
  for (uint32_t i = 0; i < p->old->nodes.count; i++) {
    if (p->mapped[i]) continue;
    const uint32_t site = p->site_of[i];
    if (site != phase_none) {
      phase_group *group = &p->groups.data[p->group_of[site]];
      if (begins_group(group, i)) phase_stack_group(p, group);
      phase_merge_end(p, i); // nothing, where it is none
      continue;
    }
    pass_copy(&p->rewrite, (ir_value){i});
    p->mapped[i] = true;
  }
}

// ---- proof --------------------------------------------------------------------------------------

// Everything that stands for an old value is there when that was, and calls are where they were.
static bool check_steps(const phaser *p, const ir_graph *graph, base_diag *diag) {
  const uint32_t *steps = pass_host_steps(graph);
  for (uint32_t i = 0; i < p->old->nodes.count; i++) {
    if (!p->mapped[i]) continue;
    const uint32_t now = steps[pass_mapped(&p->rewrite, (ir_value){i}).index];
    if (pass_is_call(phase_node(p, i)) ? now == p->steps[i] : now <= p->steps[i]) continue;
    base_error_status(diag, BASE_INTERNAL, phase_node(p, i)->loc,
                      "two-phase moved %%%.*s from step %u to step %u",
                      BASE_FMT(phase_node(p, i)->name), p->steps[i], now);
    base_hint(diag, "please report this, with the file");
    return false;
  }
  return true;
}

ir_graph *pass_two_phase_as(const ir_graph *graph, pass_phase_choice choice,
                            bool (*accept)(void *user, pass_phase_group group), void *user,
                            base_diag *diag) {
  base_arena *arena = graph->arena;
  const uint32_t count = graph->nodes.count;
  phaser p = {.old = graph,
              .rewrite = pass_rewrite_begin(graph),
              .steps = pass_host_steps(graph),
              .fixed = pass_fixed_values(graph),
              .mapped = base_new_array(arena, bool, count + 1),
              .site_of = base_new_array(arena, uint32_t, count + 1),
              .wide = base_new_array(arena, bool, count + 1),
              .claimed = base_new_array(arena, uint32_t, count + 1),
              .late = base_new_array(arena, ir_value, count + 1),
              .has_late = base_new_array(arena, bool, count + 1)};
  for (uint32_t i = 0; i < count; i++)
    p.site_of[i] = phase_none;
  find_sites(&p);
  form_groups(&p, choice, accept, user);
  rebuild(&p);
  ir_graph *result = pass_rewrite_end(&p.rewrite);
  if (result->axes.count > IR_MAX_AXES) {
    base_error_status(diag, BASE_UNSUPPORTED, graph->loc,
                      "two phases need %u axes, expected at most %d", result->axes.count,
                      IR_MAX_AXES);
    base_hint(diag, "compute the sites in one phase, or choose larger blocks");
    return NULL;
  }
  return check_steps(&p, result, diag) ? result : NULL;
}

ir_graph *pass_two_phase(const ir_graph *graph, base_diag *diag) {
  return pass_two_phase_as(graph, PASS_PHASES_LEAST, NULL, NULL, diag);
}
