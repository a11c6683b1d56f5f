// model_check: a model on a target against the reference, site by site. What sublayers give is random: the
// same for both, so that an error of one site does not reach the next. The reference evaluates every
// site in one phase, op by op in f64.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/depth.h"
#include "api/session.h"

enum { DEFAULT_ROWS = 5, DEFAULT_SEEDS = 1 };

// A tensor of the host, and what kernels of the model see of it.
typedef struct place {
  rt_tensor tensor; // dense
  size_t bytes;
  char *seen;
  DLTensor dlpack; // of what is seen
  const char *name;
} place;

// One of the two models.
typedef struct side {
  fathom_model *model;
  fathom_sequence *sequence;
  place *params;
  place embedding, addends[MODEL_MAX_ADDENDS], outputs[API_OUTPUT_COUNT];
  void *workspace;
  size_t workspace_bytes;
} side;

typedef struct model_checker {
  api_call *call;
  int64_t rows;
  side target, reference;
  const fathom_check_options *options;
  uint32_t seed, failures;
  const api_depth *depth; // for the bytes that were planned
} model_checker;

// ---- tensors ------------------------------------------------------------------------------------

static bool make_place(model_checker *c, const side *s, const api_tensor_type *type, place *out) {
  int64_t count = 1;
  *out = (place){.name = type->name, .tensor = {.dtype = type->dtype, .rank = type->rank}};
  for (uint32_t i = type->rank; i-- > 0;) {
    out->tensor.shape[i] = type->sizes[i] == RT_DYNAMIC ? c->rows : type->sizes[i];
    out->tensor.strides[i] = count;
    count *= out->tensor.shape[i];
  }
  out->bytes = (size_t)count * rt_dtype_size(type->dtype);
  out->tensor.data = api_alloc_aligned(&c->call->arena, out->bytes > 0 ? out->bytes : 1);
  out->seen = api_device_mirror(c->call, s->model->kernels[0], out->tensor.data, out->bytes);
  return out->seen != NULL;
}

// The struct that calls take, once the place is where it stays.
static const DLTensor *show(const side *s, place *p) {
  p->dlpack = api_tensor_dlpack(&p->tensor);
  p->dlpack.data = p->seen;
  p->dlpack.device = api_device_dlpack(s->model->kernels[0]);
  return &p->dlpack;
}

static bool send(model_checker *c, const side *s, place *p) {
  return api_device_copy(c->call, s->model->kernels[0], p->seen, p->tensor.data, p->bytes);
}

static bool fetch(model_checker *c, const side *s, place *p) {
  return api_device_copy(c->call, s->model->kernels[0], p->tensor.data, p->seen, p->bytes);
}

static double scaled_normal(void *state) {
  const api_scaled *scaled = state;
  return scaled->offset + scaled->factor * api_next_normal(scaled->generator);
}

// Queries whose logits are about 1, gains about 1, weights that add up to about 1.
static void fill_param(api_generator *generator, int64_t hidden, place *p) {
  const double root = 1.0 / sqrt((double)hidden);
  api_scaled scaled = {generator, 0.0, 1.0};
  if (strncmp(p->name, "query_", 6) == 0 || strncmp(p->name, "gate_", 5) == 0)
    scaled.factor = root;
  else if (strstr(p->name, "gain_") != NULL)
    scaled = (api_scaled){generator, 1.0, 0.1};
  else if (strncmp(p->name, "weights_", 8) == 0)
    scaled.offset = scaled.factor = 1.0 / (double)p->tensor.shape[0];
  api_tensor_fill(&p->tensor, scaled_normal, &scaled);
}

// ---- two sides ----------------------------------------------------------------------------------

static bool prepare(model_checker *c, side *s) {
  fathom_model *model = s->model;
  fathom_status status = fathom_sequence_create(model, &s->sequence);
  if (status == FATHOM_OK)
    status = fathom_sequence_workspace(s->sequence, c->rows, NULL, &s->workspace_bytes);
  if (status != FATHOM_OK) return false;
  void *host = api_alloc_aligned(&c->call->arena, s->workspace_bytes + 1);
  s->workspace = api_device_mirror(c->call, model->kernels[0], host, s->workspace_bytes);
  s->params = base_new_array(&c->call->arena, place, model->param_count);
  for (uint32_t i = 1; i < model->param_count; i++)
    if (!make_place(c, s, &model->param_types[i], &s->params[i])) return false;
  for (uint32_t i = 0; i < MODEL_MAX_ADDENDS; i++)
    if (!make_place(c, s, &model->row, &s->addends[i])) return false;
  return make_place(c, s, &model->row, &s->embedding) && s->workspace != NULL;
}

// The same values on both sides.
static bool share(model_checker *c, place *target, place *reference) {
  memcpy(reference->tensor.data, target->tensor.data, target->bytes);
  return send(c, &c->target, target) && send(c, &c->reference, reference);
}

static bool bind_params(model_checker *c, api_generator *generator) {
  const uint32_t count = c->target.model->param_count;
  side *sides[] = {&c->target, &c->reference};
  for (uint32_t i = 1; i < count; i++) {
    fill_param(generator, c->target.model->info.hidden, &c->target.params[i]);
    if (!share(c, &c->target.params[i], &c->reference.params[i])) return false;
  }
  for (uint32_t j = 0; j < 2; j++)
    for (uint32_t i = 1; i < count; i++) {
      const fathom_arg arg = {.name = sides[j]->params[i].name,
                              .tensor = show(sides[j], &sides[j]->params[i])};
      if (fathom_model_bind(sides[j]->model, &arg, 1) != FATHOM_OK) return false;
    }
  return true;
}

static bool take_step(model_checker *c, side *s, uint32_t step) {
  const DLTensor *shown[API_OUTPUT_COUNT] = {NULL}, *addends[MODEL_MAX_ADDENDS];
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++) {
    const api_tensor_type *type = &s->model->outputs[step][i];
    if (type->rank == api_no_output) continue;
    if (!make_place(c, s, type, &s->outputs[i])) return false;
    memset(s->outputs[i].tensor.data, 0xff, s->outputs[i].bytes);
    if (!send(c, s, &s->outputs[i])) return false;
    shown[i] = show(s, &s->outputs[i]);
  }
  const fathom_site_outputs outputs = {.size = sizeof outputs,
                                       .input = shown[API_OUTPUT_INPUT],
                                       .weights = shown[API_OUTPUT_WEIGHTS],
                                       .entropy = shown[API_OUTPUT_ENTROPY],
                                       .mix = shown[API_OUTPUT_MIX],
                                       .scale = shown[API_OUTPUT_SCALE]};
  for (uint32_t i = 0; i < MODEL_MAX_ADDENDS; i++)
    addends[i] = show(s, &s->addends[i]);
  if (step == 0)
    return fathom_sequence_begin(s->sequence, show(s, &s->embedding), &outputs, s->workspace,
                                 s->workspace_bytes, NULL) == FATHOM_OK;
  const uint32_t count = s->model->addends[step - 1];
  return (step < s->model->info.sublayers
              ? fathom_sequence_site(s->sequence, step, addends, count, &outputs)
              : fathom_sequence_end(s->sequence, addends, count, &outputs)) == FATHOM_OK;
}

// ---- comparing ----------------------------------------------------------------------------------

// ||got - expected|| / ||expected||; infinite where one is no number and the other is.
static double error_of(api_call *call, const rt_tensor *got, const rt_tensor *expected) {
  const size_t count = api_tensor_count(got);
  double *a = base_new_array(&call->arena, double, count + 1), difference = 0, norm = 0;
  double *b = base_new_array(&call->arena, double, count + 1);
  api_tensor_read(got, a);
  api_tensor_read(expected, b);
  for (size_t i = 0; i < count; i++) {
    if (!isfinite(a[i]) || !isfinite(b[i])) return INFINITY;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : sqrt(difference / norm);
}

// Those of docs/ir.md with logits of up to 5. Two phases round the bank's mix once more; where weights do
// not add up to one its part may be larger than the whole.
static double bound_of(const model_checker *c, uint32_t output, rt_dtype dtype) {
  static const double bounds[] = {
      [RT_F32] = 1e-5, [RT_BF16] = 4e-3, [RT_F16] = 1e-3, [RT_F8E4M3] = 5e-2};
  const bool sums = c->depth->model->normaliser != MODEL_SOFTMAX;
  if (output == API_OUTPUT_SCALE) dtype = c->target.model->row.dtype; // it is a rounded channel's
  return bounds[dtype] * (sums ? 2 : 1);
}

static bool compare(model_checker *c, uint32_t step) {
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++) {
    const api_tensor_type *type = &c->target.model->outputs[step][i];
    place *got = &c->target.outputs[i], *expected = &c->reference.outputs[i];
    if (type->rank == api_no_output) continue;
    if (!fetch(c, &c->target, got) || !fetch(c, &c->reference, expected)) return false;
    fathom_check_result result = {.size = sizeof result,
                                  .name = type->name,
                                  .seed = c->seed,
                                  .error = error_of(c->call, &got->tensor, &expected->tensor),
                                  .bound = bound_of(c, i, type->dtype)};
    result.passed = result.error <= result.bound;
    c->failures += !result.passed;
    if (c->options->report != NULL) c->options->report(c->options->user, &result);
  }
  return true;
}

static bool fill_step(model_checker *c, api_generator *generator, uint32_t step) {
  const uint32_t count = step == 0 ? 1 : c->target.model->addends[step - 1];
  for (uint32_t i = 0; i < count; i++) {
    place *target = step == 0 ? &c->target.embedding : &c->target.addends[i];
    place *reference = step == 0 ? &c->reference.embedding : &c->reference.addends[i];
    api_tensor_fill(&target->tensor, api_next_normal, generator);
    if (!share(c, target, reference)) return false;
  }
  return true;
}

static bool run_seed(model_checker *c) {
  api_generator generator = {.state = (uint64_t)c->seed << 40};
  if (!bind_params(c, &generator)) return false;
  for (uint32_t step = 0; step < c->target.model->info.sites; step++)
    if (!fill_step(c, &generator, step) || !take_step(c, &c->target, step) ||
        !take_step(c, &c->reference, step) || !compare(c, step))
      return false;
  return true;
}

// ---- traffic ------------------------------------------------------------------------------------

static bool has_rows(const rt_program *program, const rt_slot *slot) {
  for (uint32_t i = 0; i < slot->rank; i++)
    if (program->axes[slot->axes[i]].size == RT_DYNAMIC) return true;
  return false;
}

// Of what has tokens: parameters are read by all of them, or by none again.
static void hand_on(void *user, uint32_t run, const rt_program *program,
                    const rt_traffic *traffic) {
  model_checker *c = user;
  const api_moved planned = api_run_moves(c->depth, run);
  const pass_run *of = &c->depth->outline->runs.data[run];
  const uint64_t rows = (uint64_t)c->rows;
  char name[48];
  snprintf(name, sizeof name, "site %u%s", of->step, of->beside ? " beside" : "");
  fathom_traffic told = {.size = sizeof told,
                         .name = name,
                         .read_minimum = planned.read * rows,
                         .written_minimum = planned.written * rows};
  for (uint32_t i = 0; i < program->slot_count; i++) {
    if (!has_rows(program, &program->slots[i])) continue;
    told.read += traffic[i].read;
    told.written += traffic[i].written;
    told.read_distinct += traffic[i].read_once;
    told.written_distinct += traffic[i].written_once;
  }
  c->options->traffic(c->options->user, &told);
}

// ---- the whole ----------------------------------------------------------------------------------

typedef struct check_frame {
  const char *name;
  const fathom_model_options *given;
  const fathom_check_options *options;
  model_checker checker;
} check_frame;

static fathom_status check_body(api_call *call, void *opaque) {
  check_frame *frame = opaque;
  model_checker *c = &frame->checker;
  fathom_model_options options;
  fathom_check_options check;
  if (API_STRUCT_IN(options, frame->given, fathom_model_options) != FATHOM_OK ||
      API_STRUCT_IN(check, frame->options, fathom_check_options) != FATHOM_OK)
    return FATHOM_INVALID;
  c->call = call;
  c->options = &check;
  c->rows = check.empty ? 0 : check.dynamic_size > 0 ? check.dynamic_size : DEFAULT_ROWS;
  c->depth = api_depth_plan(call, frame->name, &options);
  if (c->depth == NULL) return FATHOM_INVALID;
  fathom_status status = fathom_model_open(call->context, frame->name, &options, &c->target.model);
  options.target = "interp";
  options.cpu = NULL;
  options.phases = FATHOM_PHASES_ONE;
  if (status == FATHOM_OK)
    status = fathom_model_open(call->context, frame->name, &options, &c->reference.model);
  if (status != FATHOM_OK) return status;
  if (!prepare(c, &c->target) || !prepare(c, &c->reference)) return FATHOM_INTERNAL;
  const bool counts = c->target.model->kernels[0]->kind == API_EMULATOR && check.traffic != NULL;
  if (counts) api_sequence_count(c->target.sequence, hand_on, c);
  const uint32_t seeds = check.seeds > 0 ? check.seeds : DEFAULT_SEEDS;
  for (c->seed = 0; c->seed < seeds; c->seed++) {
    if (!run_seed(c)) return FATHOM_INTERNAL; // the text says what
    if (c->seed == 0 && counts) api_sequence_count(c->target.sequence, NULL, NULL);
  }
  return FATHOM_OK;
}

fathom_status fathom_model_check(fathom_context *context, const char *model,
                                 const fathom_model_options *options,
                                 const fathom_check_options *check, uint32_t *failures) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(model);
  API_REQUIRE(failures);
  *failures = 0;
  check_frame frame = {.name = model, .given = options, .options = check};
  const fathom_status status = api_call_run(context, check_body, &frame);
  // Destroying clears no text of an error: what failed is still told.
  fathom_sequence_destroy(frame.checker.target.sequence);
  fathom_sequence_destroy(frame.checker.reference.sequence);
  fathom_model_destroy(frame.checker.target.model);
  fathom_model_destroy(frame.checker.reference.model);
  *failures = frame.checker.failures;
  return status;
}
