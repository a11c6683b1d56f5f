// One scalar section as loops: logits, weights and what goes with them.
//
// Its points are dealt to the lanes of a warp, each warp working for itself, or, where there are many
// scalars, to the threads of the team. A scalar of which a row has only one is worked out by every
// thread, which keeps it.
#include "codegen/cuda/text.h"

// Every warp works out scalars for itself, so one of them writes to memory; and of a scalar that
// every thread has, one thread.
static void store_scalar(text_printer *p, const kir_root *root, const text_point *point,
                         text_term term) {
  const kir_value *info = &p->kernel->values[root->value.index];
  if (info->place == KIR_SHARED || info->place == KIR_SCRATCH)
    text_store_place(p, root->value, point, term);
  if (info->store_arg < 0) return;
  const char *own = p->split > 1 ? "part" : "thread";
  bool every = text_in_every_thread(p, root->value);
  bool guard = every || p->kernel->team.warp_scalars || p->split > 1;
  if (guard) text_open(p, text_format(p, "if (%s < %u)", own, every ? 1 : text_group(p)));
  text_store_argument(p, root->value, point, term);
  if (guard) text_close(p);
}

// The longest loop that the root does not sum over is dealt to the lanes; -1: there is none.
static int32_t dealt_loop(const text_printer *p, const kir_sweep *sweep) {
  const kir_kernel *kernel = p->kernel;
  int32_t longest = -1;
  for (uint32_t i = 0; i < sweep->loop_count; i++) {
    if ((int32_t)sweep->loops[i].index == p->shared_out) continue;
    if (sweep->roots.data[0].accumulates & ir_axis_bit(sweep->loops[i])) continue;
    int64_t size = kernel->axes[sweep->loops[i].index].size;
    if (longest < 0 || size > kernel->axes[sweep->loops[longest].index].size) longest = (int32_t)i;
  }
  return longest;
}

// The tile's sources, one for each lane.
static uint32_t open_dealt_tile(text_printer *p, ir_axis axis, text_point *point) {
  text_open(p, text_format(p, "if (lane < %lld)", (long long)p->count));
  text_index index = {text_sum(p, p->base.text, "lane"), p->base.low, p->base.high, text_top(p),
                      "lane"};
  text_set_axis(p, point, axis, index, false);
  text_compose(p, point);
  return 1;
}

// A running maximum takes in its tile. exp(old - new) multiplies what was summed before, where old
// and new are what the exponentials subtract.
static void scalar_root(text_printer *p, const kir_root *root, const text_point *point) {
  text_term term = text_definition(p, root->value, point);
  for (uint32_t i = 0; i < p->kernel->chain.maxima.count && p->in_tile; i++) {
    const kir_running *running = &p->kernel->chain.maxima.data[i];
    if (running->maximum.index != root->value.index) continue;
    uint32_t row_scope = p->row_scope;
    p->row_scope = text_top(p); // nothing of this holds outside
    term.scope = text_top(p);
    text_remember(p, root->value, point, term);
    const char *now = text_value(p, running->base, point).text;
    text_update_running(p, running, point, now);
    p->row_scope = row_scope;
  }
  store_scalar(p, root, point, term);
}

static void scalar_nest(text_printer *p, const kir_sweep *sweep, uint32_t depth, int32_t dealt,
                        const text_point *point) {
  const kir_root *root = &sweep->roots.data[0];
  while (depth < sweep->loop_count && ((root->accumulates & ir_axis_bit(sweep->loops[depth])) ||
                                       (int32_t)sweep->loops[depth].index == p->shared_out))
    depth++;
  if (depth == sweep->loop_count) {
    scalar_root(p, root, point);
    return;
  }
  ir_axis axis = sweep->loops[depth];
  if (text_is_tiled(p, axis)) {
    text_point inner = *point;
    uint32_t scopes = (int32_t)depth == dealt ? open_dealt_tile(p, axis, &inner)
                                              : text_open_tile(p, axis, p->base, p->count, &inner);
    scalar_nest(p, sweep, depth + 1, dealt, &inner);
    text_end_elements(p);
    text_close_all(p, scopes);
    return;
  }
  const kir_axis *info = &p->kernel->axes[axis.index];
  bool cut = text_meets_concat(p, root->value);
  int64_t low = 0;
  for (uint32_t i = 0; i <= info->breaks.count; i++) {
    int64_t high = cut && i < info->breaks.count ? info->breaks.data[i] : info->size;
    if (high > low) {
      uint32_t opened;
      text_index index = (int32_t)depth == dealt ? text_dealt(p, axis, low, high, &opened)
                                                 : text_loop(p, axis, low, high, 1, false, &opened);
      text_point inner = *point;
      text_set_axis(p, &inner, axis, index, false);
      text_compose(p, &inner);
      scalar_nest(p, sweep, depth + 1, dealt, &inner);
      text_end_elements(p);
      text_close_all(p, opened);
    }
    low = high;
  }
}

void text_scalars(text_printer *p, const kir_sweep *sweep) {
  int32_t dealt = dealt_loop(p, sweep);
  text_point point = p->rows;
  p->vector = 1;
  bool one = dealt < 0 && !text_in_every_thread(p, sweep->roots.data[0].value);
  if (one) text_open(p, "if (lane == 0)");
  scalar_nest(p, sweep, 0, dealt, &point);
  if (one) text_close(p);
  text_end_elements(p);
}
