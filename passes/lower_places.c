// Lowering, step 2: phase, level and place of every value.
//
// A value is stored only when that saves work or is needed: sums over the hidden axis (their sweep
// must end before they can be used), scalars that several users or a sweep read, values without
// rows that rows use, and row values that are dear to compute and wanted by more than one sweep.
// All else is computed where it is used.
#include <string.h>

#include "passes/lower.h"

// ---- packing ------------------------------------------------------------------------------------

static uint64_t axes_of(const pass_lowering *lowering, ir_value value) {
  return ir_type_axes(&ir_node_of(lowering->graph, value)->type);
}

// With lanes along queries, the operand that has them is stored with queries innermost.
static void find_packed(pass_lowering *lowering) {
  if (lowering->kernel->schedule.lanes != KIR_LANES_QUERY || !lowering->rows) return;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i] || node->operand_count != 2 ||
        !pass_is_staged(lowering, (ir_value){i}))
      continue;
    for (uint32_t j = 0; j < 2; j++) {
      uint64_t own = axes_of(lowering, node->operands[j]),
               other = axes_of(lowering, node->operands[1 - j]);
      uint64_t queries = own & ~other & ~lowering->hidden & ir_type_axes(&node->type);
      const ir_node *operand = ir_node_of(lowering->graph, node->operands[j]);
      if (queries && !(own & lowering->rows) && operand->op != IR_CONSTANT)
        lowering->packed[node->operands[j].index] |= queries;
    }
  }
}

// ---- levels -------------------------------------------------------------------------------------

static void find_levels(pass_lowering *lowering) {
  kir_value *values = lowering->kernel->values;
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    kir_value *value = &values[i];
    value->row = (ir_type_axes(&node->type) & lowering->hidden) != 0;
    value->phase =
        lowering->rows && !(ir_type_axes(&node->type) & lowering->rows) ? KIR_PREPARE : KIR_BODY;
    if (!lowering->member[i]) continue;
    for (uint32_t j = 0; j < node->operand_count; j++) {
      const kir_value *operand = &values[node->operands[j].index];
      if (!lowering->member[node->operands[j].index] || operand->phase != value->phase) continue;
      uint32_t ready = operand->level + pass_is_staged(lowering, node->operands[j]);
      if (ready > value->level) value->level = ready;
    }
  }
}

// ---- uses ---------------------------------------------------------------------------------------

// Where a value is evaluated when it is not stored: the sweep of its user, or of its user's user.
typedef struct usage {
  uint32_t count;       // users
  uint64_t site;        // the one sweep that evaluates it; 0 for none
  bool many_sites;      // more than one does
  bool by_row, by_body; // a row sweep needs it; the body needs it
  uint64_t around;      // axes of the loops it is evaluated in, refined: sweeps' and mixes'
} usage;

static uint64_t site_of(const pass_lowering *lowering, uint32_t index) {
  ir_axis axes[KIR_MAX_LOOPS];
  uint64_t accumulates, set = 0;
  uint32_t count = pass_domain(lowering, (ir_value){index}, axes, &accumulates);
  for (uint32_t i = 0; i < count; i++)
    set |= ir_axis_bit(axes[i]);
  const kir_value *value = &lowering->kernel->values[index];
  uint64_t key[3] = {value->phase + 2u * value->level, set,
                     (uint64_t)(pass_lane(lowering, (ir_value){index}, axes, count) + 1)};
  return base_hash_bytes(key, sizeof key).low | 1;
}

static void add_site(usage *use, uint64_t site) {
  if (use->site && site && use->site != site) use->many_sites = true;
  if (site) use->site = site;
}

static bool is_root(const kir_value *value) {
  return value->place == KIR_SHARED || value->place == KIR_SCRATCH || value->store_arg >= 0;
}

static uint64_t refined_set(const pass_lowering *lowering, uint32_t count, const ir_axis *axes) {
  ir_type type = {.rank = count};
  memcpy(type.axes, axes, count * sizeof *axes);
  ir_axis refined[KIR_MAX_LOOPS];
  return ir_axes_set(kir_refine(lowering->kernel, &type, refined, 0), refined);
}

// The loops a user evaluates its operands in: those of its sweep, when it has one, and those over what a mix
// sums at one point.
static uint64_t loops_of(const pass_lowering *lowering, uint32_t index) {
  const ir_node *node = &lowering->graph->nodes.data[index];
  const kir_value *value = &lowering->kernel->values[index];
  uint64_t accumulates, loops = 0;
  ir_axis axes[KIR_MAX_LOOPS];
  if (is_root(value))
    loops = ir_axes_set(pass_domain(lowering, (ir_value){index}, axes, &accumulates), axes);
  if (pass_is_reduction(node)) loops |= refined_set(lowering, node->over_count, node->over);
  return loops;
}

static void add_use(const pass_lowering *lowering, usage *uses, uint32_t user, uint32_t operand) {
  const kir_value *value = &lowering->kernel->values[user];
  usage *use = &uses[operand];
  use->count++;
  use->around |= loops_of(lowering, user);
  bool row_user = value->row || pass_is_staged(lowering, (ir_value){user});
  if (is_root(value)) {
    add_site(use, site_of(lowering, user));
    use->by_row |= row_user;
    use->by_body |= value->phase == KIR_BODY;
  }
  if (value->place == KIR_INLINE) {
    add_site(use, uses[user].site);
    use->many_sites |= uses[user].many_sites;
    use->around |= uses[user].around;
    use->by_row |= row_user || uses[user].by_row;
    use->by_body |= value->phase == KIR_BODY || uses[user].by_body;
  }
}

// ---- places -------------------------------------------------------------------------------------

static bool is_transcendental(ir_op op) {
  return op == IR_EXP || op == IR_LOG || op == IR_SIGMOID || op == IR_RSQRT || op == IR_DIV;
}

// Dear: a mix, a transcendental or a rounding somewhere between the value and what is stored or
// loaded.
static bool *find_dear(const pass_lowering *lowering) {
  bool *dear = base_new_array(lowering->arena, bool, lowering->graph->nodes.count);
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    bool rounds = !(ir_op_get(node->op)->facts & IR_FACT_VIEW) && node->type.dtype != IR_F32;
    dear[i] = pass_is_reduction(node) || is_transcendental(node->op) || rounds;
    for (uint32_t j = 0; j < node->operand_count; j++) {
      uint32_t operand = node->operands[j].index;
      dear[i] |= lowering->kernel->values[operand].row && dear[operand];
    }
  }
  return dear;
}

// Values computed in place are walked recursively, so chains of them are cut: a value this many
// steps from what is stored is stored itself.
enum { MAX_STEPS = 64 };

static bool *find_cuts(const pass_lowering *lowering) {
  uint32_t count = lowering->graph->nodes.count;
  bool *cut = base_new_array(lowering->arena, bool, count);
  uint32_t *steps = base_new_array(lowering->arena, uint32_t, count);
  for (uint32_t i = 0; i < count; i++) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    if (!lowering->member[i]) continue;
    for (uint32_t j = 0; j < node->operand_count; j++)
      if (steps[node->operands[j].index] >= steps[i]) steps[i] = steps[node->operands[j].index] + 1;
    cut[i] = steps[i] >= MAX_STEPS;
    if (cut[i]) steps[i] = 0;
  }
  return cut;
}

static bool is_stored(const pass_lowering *lowering, uint32_t index, const usage *use, bool dear) {
  const ir_node *node = &lowering->graph->nodes.data[index];
  const kir_value *value = &lowering->kernel->values[index];
  if (lowering->packed[index] != 0) return true;
  if (!lowering->member[index]) return false;
  bool view = ir_op_get(node->op)->facts & IR_FACT_VIEW;
  if (pass_is_staged(lowering, (ir_value){index})) return true;
  if (pass_is_reduction(node) && pass_in_chain(lowering, (ir_value){index})) return true;
  if (!value->row) return pass_is_reduction(node) || (!view && (use->count > 1 || use->by_row));
  // In loops over other axes than its own a mix would be summed again for each of their indices.
  uint64_t own = refined_set(lowering, node->type.rank, node->type.axes);
  if (pass_is_reduction(node) && (use->around & ~own)) return true;
  if (value->phase == KIR_PREPARE) return !view && use->by_body;
  return !view && use->many_sites && dear;
}

static void choose_places(pass_lowering *lowering) {
  const bool *dear = find_dear(lowering), *cut = find_cuts(lowering);
  usage *uses = base_new_array(lowering->arena, usage, lowering->graph->nodes.count);
  for (uint32_t i = lowering->graph->nodes.count; i-- > 0;) {
    const ir_node *node = &lowering->graph->nodes.data[i];
    kir_value *value = &lowering->kernel->values[i];
    if (value->store_arg >= 0) add_site(&uses[i], site_of(lowering, i));
    bool stored = cut[i] || is_stored(lowering, i, &uses[i], dear[i]);
    if (stored && !lowering->of_maximum[i])
      value->place = value->phase == KIR_PREPARE ? KIR_SHARED : KIR_SCRATCH;
    else if (lowering->member[i] || node->op == IR_CONSTANT)
      value->place = KIR_INLINE;
    if (!lowering->member[i]) continue;
    for (uint32_t j = 0; j < node->operand_count; j++)
      add_use(lowering, uses, i, node->operands[j].index);
  }
}

// ---- storage ------------------------------------------------------------------------------------

static bool wants_queries_innermost(const pass_lowering *lowering, uint32_t index, ir_axis axis) {
  return (lowering->packed[index] & ir_axis_bit(axis)) != 0;
}

static void order_axes(pass_lowering *lowering, uint32_t index) {
  kir_value *value = &lowering->kernel->values[index];
  ir_axis axes[KIR_MAX_LOOPS];
  uint32_t count = kir_refine(lowering->kernel, &lowering->graph->nodes.data[index].type, axes, 0);
  int32_t last = pass_lane(lowering, (ir_value){index}, axes, count);
  for (int32_t i = 0; i < (int32_t)count; i++)
    if (wants_queries_innermost(lowering, index, axes[i])) last = i;
  for (int32_t i = 0; i < (int32_t)count; i++)
    if (i != last) value->order[value->rank++] = axes[i];
  if (last >= 0) value->order[value->rank++] = axes[last];
}

static bool allocate(pass_lowering *lowering, uint32_t index) {
  kir_kernel *kernel = lowering->kernel;
  kir_value *value = &kernel->values[index];
  size_t *end = value->place == KIR_SHARED ? &kernel->shared_bytes : &kernel->scratch_bytes;
  size_t bytes = sizeof(float);
  bool overflow = false;
  for (uint32_t i = 0; i < value->rank; i++) {
    size_t size = (size_t)kernel->axes[value->order[i].index].size;
    overflow |= __builtin_mul_overflow(bytes, size, &bytes);
  }
  overflow |= bytes > SIZE_MAX / 4 || *end > SIZE_MAX / 4;
  value->offset = *end;
  *end += (bytes + 63) & ~(size_t)63;
  if (overflow)
    base_error_status(lowering->diag, BASE_UNSUPPORTED, lowering->graph->nodes.data[index].loc,
                      "%%%.*s is too large to be kept by a kernel",
                      BASE_FMT(lowering->graph->nodes.data[index].name));
  return !overflow;
}

bool pass_lower_places(pass_lowering *lowering) {
  find_packed(lowering);
  find_levels(lowering);
  choose_places(lowering);
  for (uint32_t i = 0; i < lowering->graph->nodes.count; i++) {
    kir_place place = lowering->kernel->values[i].place;
    if (place != KIR_SHARED && place != KIR_SCRATCH) continue;
    order_axes(lowering, i);
    if (!allocate(lowering, i)) return false;
  }
  return true;
}
