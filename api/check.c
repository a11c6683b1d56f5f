// check: a compiled graph against the reference interpreter, on random inputs placed in memory as
// awkwardly as the options ask. The reference runs on chunks of rows, because its f64 copies of a
// real bank take gigabytes.
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/session.h"
#include "codegen/emulator/emulator.h"

enum {
  RED_ZONE = 64,  // bytes before and after each output, a multiple of the alignment
  PATTERN = 0xff, // a NaN in every dtype: what was never written cannot pass for a result
  DEFAULT_SEEDS = 3,
  DEFAULT_ROWS = 67, // no multiple of a tile
  ROW_PADDING = 5,   // elements, with `strided`: odd, so that rows drift through all alignments
};
static const size_t chunk_bytes = (size_t)256 << 20; // of reference values at a time

// ---- random numbers -----------------------------------------------------------------------------

static double next_uniform(api_generator *g) {
  return ((double)(base_random(&g->state) >> 11) + 0.5) * 0x1p-53;
}

// A standard normal (Box and Muller 1958).
double api_next_normal(void *state) {
  api_generator *g = state;
  g->has_spare = !g->has_spare;
  if (!g->has_spare) return g->spare;
  double radius = sqrt(-2.0 * log(next_uniform(g)));
  double angle = 6.283185307179586 * next_uniform(g);
  g->spare = radius * sin(angle);
  return radius * cos(angle);
}

// ---- bounds -------------------------------------------------------------------------------------
// How far a right result may be from the reference (docs/ir.md, "Numerics").
//
// A value is *exact* when correct f32 arithmetic gives the reference's very bits: parameters and
// constants, what only moves or selects them, and what arithmetic makes of exact values of narrow
// types where f32 has digits enough for rounding twice to be rounding once. Any other value may
// differ in the last digits; where the text rounds it to a narrow type it may then fall to either
// side, and all that is computed from it inherits that type's bound.

static const double dtype_bounds[] = {
    [IR_F32] = 2e-6, [IR_BF16] = 4e-3, [IR_F16] = 1e-3, [IR_F8E4M3] = 4e-2};
static_assert(sizeof dtype_bounds / sizeof dtype_bounds[0] == IR_DTYPE_COUNT, "one for each dtype");

static bool is_low(ir_dtype dtype) {
  return dtype != IR_F32;
}

// The reference keeps the numbers of an f32 constant in f64.
static bool fits_f32(const ir_node *constant) {
  for (uint32_t i = 0; i < constant->value_count; i++)
    if ((double)(float)constant->values[i] != constant->values[i]) return false;
  return true;
}

// Is an op on exact operands exact? f32 holds every product of two narrow numbers, and has more than
// twice the digits of each type, which is what sums and quotients take that are rounded to the very
// type of their operands. f8e4m3 numbers are among the bf16 and the f16 ones; its quotients are none of
// these: below 2^-6 it has so few digits that a quotient can lie halfway, and division on a GPU may be
// off by the last place.
static bool is_exact(const ir_graph *graph, const ir_node *node, const bool *exact) {
  ir_dtype result = node->type.dtype;
  bool operands = true, low = is_low(result), alike = low;
  for (uint32_t i = 0; i < node->operand_count; i++) {
    ir_dtype dtype = ir_node_of(graph, node->operands[i])->type.dtype;
    operands = operands && exact[node->operands[i].index];
    low = low && is_low(dtype);
    alike = alike && (dtype == result || dtype == IR_F8E4M3);
  }
  if (!operands) return false;
  switch (node->op) {
  case IR_CONSTANT:
    return is_low(result) || fits_f32(node);
  case IR_PARAM:
  case IR_MAX:
  case IR_NEG:
  case IR_CAST:
    return true;
  case IR_MUL:
    return low;
  case IR_ADD:
  case IR_SUB:
    return alike;
  case IR_DIV:
    return alike && result != IR_F8E4M3;
  default:
    return (ir_op_get(node->op)->facts & IR_FACT_VIEW) != 0;
  }
}

// For each node, the bound of what is computed from it, apart from its own dtype; -1 for exact
// ones.
static double *find_bounds(base_arena *arena, const ir_graph *graph) {
  double *bounds = base_new_array(arena, double, graph->nodes.count);
  bool *exact = base_new_array(arena, bool, graph->nodes.count);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    exact[i] = is_exact(graph, node, exact);
    for (uint32_t j = 0; j < node->operand_count; j++)
      bounds[i] = fmax(bounds[i], bounds[node->operands[j].index]);
    if (exact[i])
      bounds[i] = -1.0;
    else if (is_low(node->type.dtype))
      bounds[i] = fmax(bounds[i], dtype_bounds[node->type.dtype]);
  }
  return bounds;
}

static double bound_of(const ir_node *node, double inherited, double largest_logit) {
  if (inherited < 0.0) return 0.0;
  double own = dtype_bounds[node->type.dtype];
  if (node->type.dtype == IR_F32) own *= fmax(1.0, largest_logit);
  return fmax(own, inherited);
}

// ---- memory -------------------------------------------------------------------------------------

typedef struct place {
  const ir_node *node;
  rt_tensor tensor;
  char *memory; // outputs: with a red zone at both ends
  char *device; // the same as kernels see it: `memory` itself, or a copy of it
  size_t bytes;
} place;

typedef struct api_checker {
  api_call *call;
  const fathom_executable *executable;
  const fathom_check_options *options;
  const ir_graph *graph;
  int64_t *sizes;
  uint32_t param_count, count; // parameters, then results
  place *places;
  DLTensor *dlpack;
  fathom_arg *args;
  void *workspace;
  size_t workspace_bytes;
  const double *bounds; // one for each node
  int chunk_axis;       // -1: all rows at once
  int64_t chunk_rows;
  uint32_t failures;
  // Of a checker that stays: each result by the reference, and room for one that was found.
  double **expected, *found;
  size_t found_room;
  double largest_logit;
  size_t workspace_room;
} checker;

static bool make_place(checker *c, ir_value value, place *out) {
  size_t elements, offset = RED_ZONE, bytes;
  out->node = ir_node_of(c->graph, value);
  int64_t padding = c->options->strided ? ROW_PADDING : 0;
  if (!api_tensor_layout(out->node, c->sizes, padding, &out->tensor, &elements)) return false;
  size_t element = rt_dtype_size(out->tensor.dtype);
  if (__builtin_mul_overflow(elements, element, &bytes) ||
      __builtin_add_overflow(offset, c->options->misalign * element, &offset) ||
      __builtin_add_overflow(bytes, offset + RED_ZONE, &out->bytes))
    return false;
  out->memory = api_alloc_aligned(&c->call->arena, out->bytes);
  out->tensor.data = out->memory + offset;
  return true;
}

// The argument as fathom_run takes it. False: see the call's diag.
static bool make_arg(checker *c, uint32_t index) {
  place *p = &c->places[index];
  DLTensor *tensor = &c->dlpack[index];
  p->device = api_device_mirror(c->call, c->executable, p->memory, p->bytes);
  if (p->device == NULL) return false;
  *tensor = api_tensor_dlpack(&p->tensor);
  tensor->device = api_device_dlpack(c->executable);
  tensor->data = p->device + (p->tensor.data - p->memory);
  c->args[index] = (fathom_arg){.name = p->node->name.data, .tensor = tensor};
  return true;
}

static fathom_status make_workspace(checker *c) {
  fathom_status status =
      fathom_workspace_size(c->executable, c->args, c->count, NULL, &c->workspace_bytes);
  if (status != FATHOM_OK) return status;
  void *memory = api_alloc_aligned(&c->call->arena, c->workspace_bytes);
  c->workspace = api_device_mirror(c->call, c->executable, memory, c->workspace_bytes);
  return c->workspace != NULL ? FATHOM_OK : FATHOM_MEMORY;
}

static fathom_status place_all(checker *c) {
  const ir_graph *graph = c->graph;
  base_arena *arena = &c->call->arena;
  c->param_count = graph->param_count;
  c->count = graph->param_count + graph->results.count;
  c->places = base_new_array(arena, place, c->count);
  c->dlpack = base_new_array(arena, DLTensor, c->count);
  c->args = base_new_array(arena, fathom_arg, c->count);
  for (uint32_t i = 0; i < c->count; i++) {
    ir_value value = i < c->param_count ? (ir_value){i} : graph->results.data[i - c->param_count];
    place *p = &c->places[i];
    if (!make_place(c, value, p))
      return api_fail(FATHOM_INVALID, "%%%.*s has more bytes than fit in memory",
                      BASE_FMT(ir_node_of(graph, value)->name));
    if (!make_arg(c, i)) return FATHOM_MEMORY;
  }
  return make_workspace(c);
}

static void fill_all(checker *c, uint32_t seed) {
  for (uint32_t i = 0; i < c->count; i++) {
    // Distant starting points: the streams of two parameters, or of two seeds, do not meet.
    api_generator g = {.state = ((uint64_t)seed << 40) + ((uint64_t)i << 24)};
    g.state = base_random(&g.state);
    if (i < c->param_count)
      api_tensor_fill(&c->places[i].tensor, api_next_normal, &g);
    else
      memset(c->places[i].memory, PATTERN, c->places[i].bytes);
  }
}

// True when nothing but the elements of an output was written. Uses the elements up.
static bool surroundings_intact(const place *p) {
  api_tensor_clear(&p->tensor, PATTERN);
  for (size_t i = 0; i < p->bytes; i++)
    if ((unsigned char)p->memory[i] != PATTERN) return false;
  return true;
}

// ---- chunks -------------------------------------------------------------------------------------

static size_t node_count(const checker *c, const ir_node *node) {
  size_t count = 1;
  for (uint32_t i = 0; i < node->type.rank; i++)
    if (__builtin_mul_overflow(count, (size_t)c->sizes[node->type.axes[i].index], &count))
      return SIZE_MAX;
  return count;
}

// The independent axes of which the reference can run a part: those without a constant's list of
// numbers, which has a number for each index.
static uint64_t divisible_axes(const ir_graph *graph) {
  uint64_t axes = ir_independent_axes(graph);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (node->value_count > 1) axes &= ~ir_type_axes(&node->type);
  }
  return axes;
}

// Cuts the longest divisible axis so that all values of the reference together stay within
// chunk_bytes.
static void choose_chunks(checker *c) {
  uint64_t divisible = divisible_axes(c->graph);
  c->chunk_axis = -1;
  for (uint32_t i = 0; i < c->graph->axes.count; i++) {
    if ((divisible & ir_axis_bit((ir_axis){i})) == 0 || c->sizes[i] < 1) continue;
    if (c->chunk_axis < 0 || c->sizes[i] > c->sizes[c->chunk_axis]) c->chunk_axis = (int)i;
  }
  if (c->chunk_axis < 0) return;
  double total = 0.0, rows = (double)c->sizes[c->chunk_axis];
  for (uint32_t i = 0; i < c->graph->nodes.count; i++)
    total += (double)node_count(c, &c->graph->nodes.data[i]) * sizeof(double);
  double fit = floor((double)chunk_bytes * rows / fmax(total, 1.0));
  c->chunk_rows = (int64_t)fmin(fmax(fit, 1.0), rows);
}

// The chunk's part of a tensor; the whole when it lacks the axis.
static rt_tensor chunk_of(const checker *c, const place *p, int64_t begin, int64_t rows) {
  int position =
      c->chunk_axis < 0 ? -1 : ir_type_position(&p->node->type, (ir_axis){(uint32_t)c->chunk_axis});
  return position < 0 ? p->tensor : api_tensor_part(&p->tensor, (uint32_t)position, begin, rows);
}

// ---- comparing ----------------------------------------------------------------------------------

typedef struct tally {
  double difference, norm; // sums of squares
  bool other_kind;         // a NaN or an infinity that the other side does not have
  double unseen;           // differences of elements that are not larger do not count
} tally;

// The reference holds f32 results in f64; what a right kernel can return of them is their f32
// rounding.
static bool same_kind(double found, double expected, ir_dtype dtype) {
  if (dtype == IR_F32) expected = (double)(float)expected;
  if (isnan(expected)) return isnan(found);
  return found == expected || (isfinite(found) && isfinite(expected));
}

static void compare(tally *t, ir_dtype dtype, size_t count, const double *found,
                    const double *expected) {
  for (size_t i = 0; i < count; i++) {
    if (!same_kind(found[i], expected[i], dtype)) t->other_kind = true;
    if (!isfinite(found[i]) || !isfinite(expected[i])) continue;
    double difference = fabs(found[i] - expected[i]);
    if (difference > t->unseen) t->difference += difference * difference;
    t->norm += expected[i] * expected[i];
  }
}

static double error_of(const tally *t) {
  if (t->other_kind) return INFINITY;
  if (t->difference == 0.0) return 0.0;
  return sqrt(t->difference / t->norm); // infinite when the reference is all zero
}

static double *alloc_values(base_arena *arena, const rt_tensor *tensor) {
  return base_new_array(arena, double, api_tensor_count(tensor));
}

typedef struct chunk_frame {
  checker *checker;
  int64_t begin, rows;
  tally *tallies; // one a result
  double *largest_logit;
} chunk_frame;

// Runs the reference on a chunk and compares. In a call of its own, so that its memory goes with
// it.
static fathom_status chunk_body(api_call *call, void *opaque) {
  const chunk_frame *frame = opaque;
  const checker *c = frame->checker;
  uint32_t result_count = c->count - c->param_count;
  double **values = base_new_array(&call->arena, double *, c->count);
  int64_t *sizes = base_new_array(&call->arena, int64_t, c->graph->axes.count);
  memcpy(sizes, c->sizes, c->graph->axes.count * sizeof *sizes);
  if (c->chunk_axis >= 0) sizes[c->chunk_axis] = frame->rows;
  for (uint32_t i = 0; i < c->count; i++) {
    rt_tensor part = chunk_of(c, &c->places[i], frame->begin, frame->rows);
    values[i] = alloc_values(&call->arena, &part);
    if (i < c->param_count) api_tensor_read(&part, values[i]);
  }
  double largest_logit = 0.0;
  base_status status = ir_interpret(c->graph, sizes, (const double *const *)values,
                                    values + c->param_count, &largest_logit, &call->diag);
  if (status != BASE_OK) return (fathom_status)status;
  *frame->largest_logit = fmax(*frame->largest_logit, largest_logit);
  for (uint32_t i = 0; i < result_count; i++) {
    const place *p = &c->places[c->param_count + i];
    rt_tensor part = chunk_of(c, p, frame->begin, frame->rows);
    double *found = alloc_values(&call->arena, &part);
    api_tensor_read(&part, found);
    compare(&frame->tallies[i], p->node->type.dtype, api_tensor_count(&part), found,
            values[c->param_count + i]);
  }
  return FATHOM_OK;
}

static fathom_status compare_chunks(checker *c, tally *tallies, double *largest_logit) {
  int64_t rows = c->chunk_axis < 0 ? 1 : c->sizes[c->chunk_axis];
  int64_t step = c->chunk_axis < 0 ? 1 : c->chunk_rows;
  for (int64_t begin = 0; begin < rows; begin += step) {
    chunk_frame frame = {c, begin, rows - begin < step ? rows - begin : step, tallies,
                         largest_logit};
    fathom_status status = api_call_run(c->call->context, chunk_body, &frame);
    if (status != FATHOM_OK) return status;
  }
  return FATHOM_OK;
}

// ---- running ------------------------------------------------------------------------------------

static bool move_all(checker *c, bool to_device) {
  for (uint32_t i = to_device ? 0 : c->param_count; i < c->count; i++) {
    const place *p = &c->places[i];
    if (!api_device_copy(c->call, c->executable, to_device ? p->device : p->memory,
                         to_device ? p->memory : p->device, p->bytes))
      return false;
  }
  return true;
}

// In the emulator the seed also decides the order of threads.
static fathom_status run_once(checker *c, uint32_t seed, rt_traffic *traffic) {
  bool emulated = c->executable->kind == API_EMULATOR && getenv("FATHOM_EMU_SEED") == NULL;
  if (emulated) emu_device_set_seed(api_executable_device(c->executable), seed);
  if (!move_all(c, true)) return FATHOM_INTERNAL;
  fathom_status status =
      api_run(c->executable, c->args, c->count, c->workspace, c->workspace_bytes, NULL, traffic);
  if (status == FATHOM_INTERNAL && emulated)
    api_fail_more(
        "\n  hint: this is seed %u; FATHOM_EMU_SEED=%u makes `fathom run` run its threads "
        "in the same order",
        seed, seed);
  if (status != FATHOM_OK) return status;
  return move_all(c, false) ? FATHOM_OK : FATHOM_INTERNAL;
}

// ---- traffic ------------------------------------------------------------------------------------

// What must move: see fathom_bench_result.bytes.
static void add_minimum(const checker *c, uint32_t slot, fathom_traffic *traffic) {
  if (slot >= c->count) return; // a temporary
  const place *p = &c->places[slot];
  uint64_t bytes = (uint64_t)api_tensor_count(&p->tensor) * rt_dtype_size(p->tensor.dtype);
  if (slot < c->param_count)
    traffic->read_minimum = (uint64_t)(ir_share_read(c->graph, (ir_value){slot}) * (double)bytes);
  else if (p->node->op != IR_PARAM)
    traffic->written_minimum = bytes;
}

static void report_traffic(const checker *c, const rt_traffic *moved) {
  for (uint32_t i = 0; i < c->executable->program->slot_count; i++) {
    fathom_traffic traffic = {
        .size = sizeof traffic,
        .name = c->executable->program->slots[i].name,
        .read = moved[i].read,
        .written = moved[i].written,
        .read_distinct = moved[i].read_once,
        .written_distinct = moved[i].written_once,
    };
    add_minimum(c, i, &traffic);
    c->options->traffic(c->options->user, &traffic);
  }
}

// ---- one seed -----------------------------------------------------------------------------------

static fathom_status run_counted(checker *c, uint32_t seed) {
  bool counted = seed == 0 && c->options->traffic != NULL && c->executable->kind == API_EMULATOR;
  rt_traffic *traffic = NULL;
  if (counted)
    traffic = base_new_array(&c->call->arena, rt_traffic, c->executable->program->slot_count);
  fathom_status status = run_once(c, seed, traffic);
  if (status == FATHOM_OK && counted) report_traffic(c, traffic);
  return status;
}

static fathom_status check_seed(checker *c, uint32_t seed) {
  const fathom_check_options *options = c->options;
  uint32_t result_count = c->count - c->param_count;
  tally *tallies = base_new_array(&c->call->arena, tally, result_count);
  double largest_logit = 0.0;
  for (uint32_t i = 0; i < result_count; i++) {
    bool exact = c->bounds[c->graph->results.data[i].index] < 0.0;
    tallies[i].unseen = exact ? 0.0 : (double)FLT_MIN; // what f32 arithmetic may make 0
  }
  fill_all(c, seed);
  fathom_status status = run_counted(c, seed);
  if (status == FATHOM_OK) status = compare_chunks(c, tallies, &largest_logit);
  if (status != FATHOM_OK) return status;
  for (uint32_t i = 0; i < result_count; i++) {
    const place *p = &c->places[c->param_count + i];
    fathom_check_result result = {
        .size = sizeof result,
        .name = p->node->name.data,
        .seed = seed,
        .error = surroundings_intact(p) ? error_of(&tallies[i]) : INFINITY,
        .bound = bound_of(p->node, c->bounds[c->graph->results.data[i].index], largest_logit),
    };
    result.passed = result.error <= result.bound;
    if (!result.passed) c->failures++;
    if (options->report != NULL) options->report(options->user, &result);
  }
  return FATHOM_OK;
}

// ---- checkers that stay -------------------------------------------------------------------------

// In a call of its own, so that what the reference needs goes with it.
static fathom_status reference_body(api_call *call, void *opaque) {
  checker *c = opaque;
  double **values = base_new_array(&call->arena, double *, c->count);
  for (uint32_t i = 0; i < c->count; i++) {
    const rt_tensor *tensor = &c->places[i].tensor;
    if (i >= c->param_count) {
      values[i] = c->expected[i - c->param_count];
      continue;
    }
    values[i] = alloc_values(&call->arena, tensor);
    api_tensor_read(tensor, values[i]);
  }
  return (fathom_status)ir_interpret(c->graph, c->sizes, (const double *const *)values,
                                     values + c->param_count, &c->largest_logit, &call->diag);
}

fathom_status api_checker_open(api_call *call, const ir_graph *graph,
                               const fathom_executable *executable, int64_t rows, uint32_t seed,
                               api_checker **out) {
  static const fathom_check_options options = {.size = sizeof options};
  checker *c = *out = base_new(&call->arena, checker);
  *c = (checker){.call = call,
                 .executable = executable,
                 .options = &options,
                 .graph = graph,
                 .sizes = api_axis_sizes(&call->arena, graph, rows),
                 .bounds = find_bounds(&call->arena, graph)};
  fathom_status status = place_all(c);
  if (status != FATHOM_OK) return status;
  c->workspace_room = c->workspace_bytes;
  fill_all(c, seed);
  c->expected = base_new_array(&call->arena, double *, c->count - c->param_count);
  for (uint32_t i = c->param_count; i < c->count; i++)
    c->expected[i - c->param_count] = alloc_values(&call->arena, &c->places[i].tensor);
  for (uint32_t i = c->param_count; i < c->count; i++)
    if (c->found == NULL || api_tensor_count(&c->places[i].tensor) > c->found_room) {
      c->found_room = api_tensor_count(&c->places[i].tensor);
      c->found = alloc_values(&call->arena, &c->places[i].tensor);
    }
  return api_call_run(call->context, reference_body, c);
}

static fathom_status fit_workspace(checker *c) {
  size_t needed;
  fathom_status status = fathom_workspace_size(c->executable, c->args, c->count, NULL, &needed);
  if (status != FATHOM_OK || needed <= c->workspace_room) {
    c->workspace_bytes = needed;
    return status;
  }
  c->workspace_room = needed;
  return make_workspace(c);
}

fathom_status api_checker_run(api_checker *c, const fathom_executable *executable,
                              const char **wrong) {
  base_arena *arena = &c->call->arena;
  *wrong = NULL;
  c->executable = executable;
  fathom_status status = fit_workspace(c);
  for (uint32_t i = c->param_count; i < c->count; i++)
    memset(c->places[i].memory, PATTERN, c->places[i].bytes);
  if (status == FATHOM_OK) status = run_once(c, 0, NULL);
  for (uint32_t i = c->param_count; i < c->count && status == FATHOM_OK && !*wrong; i++) {
    const place *p = &c->places[i];
    tally t = {.unseen = 0};
    double bound = bound_of(p->node, c->bounds[c->graph->results.data[i - c->param_count].index],
                            c->largest_logit);
    if (bound > 0.0) t.unseen = (double)FLT_MIN;
    api_tensor_read(&p->tensor, c->found);
    compare(&t, p->node->type.dtype, api_tensor_count(&p->tensor), c->found,
            c->expected[i - c->param_count]);
    double error = error_of(&t);
    if (!(error <= bound))
      *wrong = base_str_format(arena, "%%%s has an error of %.2e, its bound is %.2e",
                               p->node->name.data, error, bound)
                   .data;
    else if (!surroundings_intact(p))
      *wrong = base_str_format(arena, "memory around %%%s was written", p->node->name.data).data;
  }
  return status;
}

// ---- fathom_check -------------------------------------------------------------------------------

typedef struct check_frame {
  const fathom_graph *graph;
  const fathom_executable *executable;
  const fathom_check_options *options;
  uint32_t *failures;
} check_frame;

static fathom_status check_body(api_call *call, void *opaque) {
  check_frame *frame = opaque;
  const fathom_check_options *options = frame->options;
  ir_graph *graph = api_graph_open(call, frame->graph);
  if (!ir_verify(graph, IR_STAGE_BOUND, &call->diag)) return FATHOM_INVALID;
  int64_t rows = options->empty               ? 0
                 : options->dynamic_size != 0 ? options->dynamic_size
                                              : DEFAULT_ROWS;
  checker c = {
      .call = call,
      .executable = frame->executable,
      .options = options,
      .graph = graph,
      .sizes = api_axis_sizes(&call->arena, graph, rows),
      .bounds = find_bounds(&call->arena, graph),
  };
  fathom_status status = place_all(&c);
  choose_chunks(&c);
  uint32_t seeds = options->seeds != 0 ? options->seeds : DEFAULT_SEEDS;
  for (uint32_t seed = 0; seed < seeds && status == FATHOM_OK; seed++)
    status = check_seed(&c, seed);
  *frame->failures = c.failures;
  return status;
}

fathom_status fathom_check(fathom_context *context, const fathom_graph *graph,
                           const fathom_compile_options *compile, const fathom_check_options *given,
                           uint32_t *failures) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(failures);
  *failures = 0;
  fathom_check_options options;
  fathom_status status = API_STRUCT_IN(options, given, fathom_check_options);
  if (status != FATHOM_OK) return status;
  if (options.dynamic_size < 0)
    return api_fail(FATHOM_INVALID, "the size of unbound row axes is %lld, expected 0 or more",
                    (long long)options.dynamic_size);
  fathom_executable *executable;
  status = fathom_compile(context, graph, compile, &executable);
  if (status != FATHOM_OK) return status;
  check_frame frame = {graph, executable, &options, failures};
  status = api_call_run(context, check_body, &frame);
  fathom_executable_destroy(executable);
  return status;
}
