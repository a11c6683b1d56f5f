// The bound is found by Monte Carlo arithmetic (Parker 1997): the reference runs again on a copy of
// the graph in which every value is multiplied by 1 + noise, noise as large as the roundings a
// kernel may make there. How far results then move is how far a right kernel may be from the
// reference, cancellation included.
#include "judge.h"

#include <math.h>
#include <string.h>

#include "api/api.h"
#include "round_trip.h"

enum { TRIALS = 6, SEEDS = 2, ROW_PADDING = 5 };
static const double margin = 4.0;       // times the largest move seen
static const double f32_noise = 2.4e-7; // four roundings: what one op may lose
static const double low_noise[] = {
    [IR_F32] = 0, [IR_BF16] = 3.9e-3, [IR_F16] = 4.9e-4, [IR_F8E4M3] = 6.2e-2};
static const double absolute_floor = 6e-8; // half of the smallest f16

// ---- random numbers -----------------------------------------------------------------------------

// xorshift64* (Vigna 2014) and twelve uniforms for a normal: any will do.
static double next_normal(void *state) {
  uint64_t *x = state;
  double sum = -6.0;
  for (int i = 0; i < 12; i++) {
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    sum += (double)(*x * UINT64_C(2685821657736338717) >> 11) * 0x1p-53;
  }
  return sum;
}

// ---- the noisy graph ----------------------------------------------------------------------------

typedef struct noisy {
  ir_graph *graph; // parameters: the old ones, then the factor of each old node
  const ir_graph *old;
  double *amplitude; // for each old node
} noisy;

static ir_value multiply(noisy *n, ir_value value, uint32_t old, ir_dtype dtype) {
  ir_node node = {.op = IR_MUL, .operand_count = 2, .kernel = IR_NO_KERNEL};
  node.type = n->old->nodes.data[old].type;
  node.type.dtype = dtype;
  node.operands = (ir_value[]){value, {n->old->param_count + old}};
  return ir_build_node(n->graph, &node);
}

static ir_value copy_node(noisy *n, const ir_value *map, uint32_t index) {
  ir_node node = n->old->nodes.data[index];
  ir_value *operands = base_new_array(n->graph->arena, ir_value, node.operand_count + 1);
  for (uint32_t i = 0; i < node.operand_count; i++)
    operands[i] = map[node.operands[i].index];
  node.operands = operands;
  node.type.dtype = IR_F32; // rounded after the noise
  return ir_build_node(n->graph, &node);
}

static noisy make_noisy(base_arena *arena, const ir_graph *old) {
  noisy n = {.graph = ir_graph_derive(old), .old = old};
  n.graph->arena = arena;
  n.amplitude = base_new_array(arena, double, old->nodes.count);
  ir_value *map = base_new_array(arena, ir_value, old->nodes.count);
  for (uint32_t i = 0; i < old->param_count; i++)
    ir_build_param(n.graph, BASE_STR(""), old->nodes.data[i].type);
  for (uint32_t i = 0; i < old->nodes.count; i++) {
    ir_type type = old->nodes.data[i].type;
    type.dtype = IR_F32;
    ir_build_param(n.graph, BASE_STR(""), type);
    n.amplitude[i] = fmax(f32_noise, low_noise[old->nodes.data[i].type.dtype]);
    if (i < old->param_count || old->nodes.data[i].op == IR_CONSTANT) n.amplitude[i] = f32_noise;
  }
  for (uint32_t i = 0; i < old->nodes.count; i++) {
    bool param = i < old->param_count;
    ir_value value = param ? (ir_value){i} : copy_node(&n, map, i);
    map[i] = multiply(&n, value, i, param ? IR_F32 : old->nodes.data[i].type.dtype);
  }
  for (uint32_t i = 0; i < old->results.count; i++)
    ir_build_result(n.graph, map[old->results.data[i].index]);
  return n;
}

// ---- one set of inputs --------------------------------------------------------------------------

typedef struct run {
  base_arena *arena;
  const judge_request *request;
  const ir_graph *graph;
  int64_t *sizes;
  uint32_t count; // parameters, then results
  rt_tensor *tensors;
  DLTensor *dlpack;
  fathom_arg *args;
  double **values; // of parameters, then of the reference's results
} run;

static ir_value bound_value(const run *r, uint32_t i) {
  uint32_t params = r->graph->param_count;
  return i < params ? (ir_value){i} : r->graph->results.data[i - params];
}

static void place_tensors(run *r, uint64_t *state) {
  const fathom_check_options *check = r->request->check;
  for (uint32_t i = 0; i < r->count; i++) {
    const ir_node *node = ir_node_of(r->graph, bound_value(r, i));
    rt_tensor *tensor = &r->tensors[i];
    size_t elements, element = ir_dtype_size(node->type.dtype);
    FUZZ_REQUIRE(
        api_tensor_layout(node, r->sizes, check->strided ? ROW_PADDING : 0, tensor, &elements),
        "a tensor is too large");
    size_t bytes = (elements + check->misalign) * element;
    char *memory = api_alloc_aligned(r->arena, bytes);
    memset(memory, 0xff, bytes);
    tensor->data = memory + check->misalign * element;
    r->dlpack[i] = api_tensor_dlpack(tensor);
    r->args[i] = (fathom_arg){.name = node->name.data, .tensor = &r->dlpack[i]};
    r->values[i] = base_new_array(r->arena, double, api_tensor_count(tensor) + 1);
    if (i >= r->graph->param_count) continue;
    api_tensor_fill(tensor, next_normal, state);
    api_tensor_read(tensor, r->values[i]);
  }
}

static void interpret(const run *r, const ir_graph *graph, const double *const *inputs,
                      double *const *outputs, double *largest_logit) {
  base_diag diag = fuzz_diag(r->arena, (base_str){0});
  base_status status = ir_interpret(graph, r->sizes, inputs, outputs, largest_logit, &diag);
  FUZZ_REQUIRE(status == BASE_OK, "the reference fails:\n%.*s", BASE_FMT(base_diag_render(&diag)));
}

// ---- distances ----------------------------------------------------------------------------------

static bool is_number(double x, ir_dtype dtype) {
  return isfinite(dtype == IR_F32 ? (double)(float)x : x);
}

// ||a - b||, over what is finite in both; infinite when one has a NaN or infinity where the other
// has not.
static double distance(const double *a, const double *b, size_t count, ir_dtype dtype) {
  double sum = 0.0;
  for (size_t i = 0; i < count; i++) {
    bool finite = is_number(a[i], dtype) && is_number(b[i], dtype);
    bool same = a[i] == b[i] || (isnan(a[i]) && isnan(b[i]));
    if (finite)
      sum += (a[i] - b[i]) * (a[i] - b[i]);
    else if (!same)
      return INFINITY;
  }
  return sqrt(sum);
}

static double norm(const double *a, size_t count, ir_dtype dtype) {
  double sum = 0.0;
  for (size_t i = 0; i < count; i++)
    if (is_number(a[i], dtype)) sum += a[i] * a[i];
  return sqrt(sum);
}

// How far each result moves under noise, at most, over all trials.
static double *find_moves(run *r, uint64_t *state) {
  noisy n = make_noisy(r->arena, r->graph);
  uint32_t params = r->graph->param_count, results = r->graph->results.count;
  double *moves = base_new_array(r->arena, double, results);
  double **inputs = base_new_array(r->arena, double *, n.graph->param_count);
  double **outputs = base_new_array(r->arena, double *, results);
  memcpy(inputs, r->values, params * sizeof *inputs);
  for (uint32_t i = 0; i < r->graph->nodes.count; i++) {
    rt_tensor tensor;
    size_t elements;
    if (!api_tensor_layout(&r->graph->nodes.data[i], r->sizes, 0, &tensor, &elements)) continue;
    inputs[params + i] = base_new_array(r->arena, double, elements);
  }
  for (uint32_t i = 0; i < results; i++)
    outputs[i] = base_new_array(r->arena, double, api_tensor_count(&r->tensors[params + i]) + 1);
  for (int trial = 0; trial < TRIALS; trial++) {
    for (uint32_t i = 0; i < r->graph->nodes.count; i++) {
      rt_tensor tensor;
      size_t elements;
      api_tensor_layout(&r->graph->nodes.data[i], r->sizes, 0, &tensor, &elements);
      for (size_t j = 0; j < elements; j++)
        inputs[params + i][j] = 1.0 + n.amplitude[i] * next_normal(state);
    }
    interpret(r, n.graph, (const double *const *)inputs, outputs, NULL);
    for (uint32_t i = 0; i < results; i++) {
      const rt_tensor *tensor = &r->tensors[params + i];
      moves[i] = fmax(moves[i], distance(outputs[i], r->values[params + i],
                                         api_tensor_count(tensor), (ir_dtype)tensor->dtype));
    }
  }
  return moves;
}

// ---- the verdict --------------------------------------------------------------------------------

static void execute(run *r, const fathom_executable *executable) {
  size_t bytes;
  fathom_status status = fathom_workspace_size(executable, r->args, r->count, NULL, &bytes);
  FUZZ_REQUIRE(status == FATHOM_OK, "%s", fathom_error_text());
  void *workspace = api_alloc_aligned(r->arena, bytes);
  status = fathom_run(executable, r->args, r->count, workspace, bytes, NULL);
  FUZZ_REQUIRE(status == FATHOM_OK, "%s", fathom_error_text());
}

static base_str compare(run *r, uint64_t *state, double largest_logit) {
  static const double relative[] = {
      [IR_F32] = 2e-6, [IR_BF16] = 4e-3, [IR_F16] = 1e-3, [IR_F8E4M3] = 4e-2};
  uint32_t params = r->graph->param_count;
  double *moves = NULL;
  for (uint32_t i = 0; i < r->graph->results.count; i++) {
    const rt_tensor *tensor = &r->tensors[params + i];
    const double *expected = r->values[params + i];
    ir_dtype dtype = (ir_dtype)tensor->dtype;
    size_t count = api_tensor_count(tensor);
    double *found = base_new_array(r->arena, double, count + 1);
    api_tensor_read(tensor, found);
    double error = distance(found, expected, count, dtype);
    double size = norm(expected, count, dtype), bound = relative[dtype] * size;
    if (dtype == IR_F32) bound *= fmax(1.0, largest_logit);
    if (error <= bound) continue;
    if (!moves) moves = find_moves(r, state);
    bound = fmax(bound, margin * moves[i] + absolute_floor);
    if (error <= bound) continue;
    return base_str_format(r->arena, "%%%s: distance %g of %g, bound %g", r->args[params + i].name,
                           error, size, bound);
  }
  return (base_str){0};
}

base_str judge_results(base_arena *arena, fathom_context *context, const judge_request *request) {
  run r = {.arena = arena, .request = request, .graph = request->ir};
  r.sizes = api_axis_sizes(arena, r.graph, request->check->dynamic_size);
  r.count = r.graph->param_count + r.graph->results.count;
  r.tensors = base_new_array(arena, rt_tensor, r.count);
  r.dlpack = base_new_array(arena, DLTensor, r.count);
  r.args = base_new_array(arena, fathom_arg, r.count);
  r.values = base_new_array(arena, double *, r.count);
  fathom_executable *executable;
  fathom_status status = fathom_compile(context, request->graph, request->compile, &executable);
  FUZZ_REQUIRE(status == FATHOM_OK, "compiles once, but not again: %s", fathom_error_text());
  base_str verdict = {0};
  uint64_t state = UINT64_C(0x2545f4914f6cdd1d);
  for (uint32_t seed = 0; seed < SEEDS && verdict.length == 0; seed++) {
    double largest_logit = 0.0;
    place_tensors(&r, &state);
    execute(&r, executable);
    interpret(&r, r.graph, (const double *const *)r.values, r.values + r.graph->param_count,
              &largest_logit);
    verdict = compare(&r, &state, largest_logit);
  }
  fathom_executable_destroy(executable);
  return verdict;
}
