// Sequences through the public API: every fault of the host is told and changes nothing, and what is right
// gives the same bits however tokens lie, are cut and are mixed with others.
#include <pthread.h>
#include <stdatomic.h>

#include "support/host_depth.h"

// Four sites share two finished blocks, and in two phases lists of four parameters.
static const char plain_yaml[] = "schema: 1\n"
                                 "hidden: 32\n"
                                 "sublayers: 5\n"
                                 "blocks: {starts: [0, 1]}\n"
                                 "dtype: f32\n"
                                 "addends: [1, 2]\n";
static const char heads_yaml[] = "schema: 1\n"
                                 "hidden: 32\n"
                                 "sublayers: 5\n"
                                 "blocks: {starts: [0, 3]}\n"
                                 "dtype: f32\n"
                                 "heads: 4\n"
                                 "null_source: learned\n"
                                 "gate: newest\n";
enum {
  EXTRAS = FATHOM_OUTPUT_WEIGHTS | FATHOM_OUTPUT_ENTROPY | FATHOM_OUTPUT_MIX,
  ROWS = 7,
  SITES = 6,
  LAST = 5
};

typedef struct counter {
  _Atomic long calls;
} counter;

static void *count_allocation(void *user, size_t bytes) {
  ((counter *)user)->calls++;
  return malloc(bytes);
}

static void release(void *user, void *pointer) {
  (void)user;
  free(pointer);
}

typedef struct fixture {
  counter counter;
  fathom_context *context;
  host_model plain, heads;
  host_tokens tokens;
  host_results expected; // of `plain`
  fathom_sequence *sequence;
} fixture;

static int set_up_group(void **state) {
  fixture *f = calloc(1, sizeof *f);
  fathom_context_options options = FATHOM_INIT(options);
  options.allocator_user = &f->counter;
  options.allocate = count_allocation;
  options.release = release;
  options.threads = 2;
  *state = f;
  assert_int_equal(fathom_context_create(&options, &f->context), FATHOM_OK);
  host_open(f->context, plain_yaml, FATHOM_PHASES_TWO, EXTRAS, &f->plain);
  host_open(f->context, heads_yaml, FATHOM_PHASES_AUTO, EXTRAS | FATHOM_OUTPUT_FP8, &f->heads);
  host_make_tokens(&f->tokens, ROWS, 5);
  assert_int_equal(f->plain.info.sites, SITES);
  fathom_sequence *sequence;
  assert_int_equal(fathom_sequence_create(f->plain.model, &sequence), FATHOM_OK);
  host_run(&f->plain, sequence, &f->tokens, HOST_DENSE, NULL, &f->expected);
  fathom_sequence_destroy(sequence);
  return 0;
}

static int tear_down_group(void **state) {
  fixture *f = *state;
  host_close(&f->plain);
  host_close(&f->heads);
  fathom_context_destroy(f->context);
  free(f);
  return 0;
}

static int set_up(void **state) {
  fixture *f = *state;
  return fathom_sequence_create(f->plain.model, &f->sequence) == FATHOM_OK ? 0 : -1;
}

static int tear_down(void **state) {
  fathom_sequence_destroy(((fixture *)*state)->sequence);
  return 0;
}

// ---- faults of a call ---------------------------------------------------------------------------

static DLTensor *given_of(host_call *call) {
  return &call->tensors[0];
}

static DLTensor *input_of(host_call *call) {
  return &call->tensors[2];
}

static DLTensor *weights_of(host_call *call) {
  return &call->tensors[3];
}

static DLTensor *entropy_of(host_call *call) {
  return &call->tensors[4];
}

#define SPOIL(name, statement)                                                                     \
  static void name(host_call *call) {                                                              \
    statement;                                                                                     \
  }
SPOIL(given_dtype, given_of(call)->dtype.bits = 16)
SPOIL(given_code, given_of(call)->dtype.code = kDLInt)
SPOIL(given_lanes, given_of(call)->dtype.lanes = 2)
SPOIL(input_dtype, input_of(call)->dtype.bits = 16)
SPOIL(given_device, given_of(call)->device.device_type = kDLCUDA)
SPOIL(input_device, input_of(call)->device.device_type = kDLCUDA)
SPOIL(given_rank, given_of(call)->ndim = 1)
SPOIL(given_rank_3, given_of(call)->ndim = 3)
SPOIL(given_rank_negative, given_of(call)->ndim = -1)
SPOIL(entropy_rank, entropy_of(call)->ndim = 0)
SPOIL(given_width, call->shapes[0][1] = HOST_D - 1)
SPOIL(input_width, call->shapes[2][1] = HOST_D + 1)
SPOIL(input_rows, call->shapes[2][0]++)
SPOIL(weights_sources, call->shapes[3][0]++)
SPOIL(weights_rows, call->shapes[3][1]--)
SPOIL(rows_negative, call->shapes[2][0] = -1)
SPOIL(given_stride, call->strides[0][1] = 2)
SPOIL(input_stride, call->strides[2][1] = -1)
SPOIL(input_same_rows, call->strides[2][0] = 0)
SPOIL(input_close_rows, call->strides[2][0] = HOST_D - 1)
SPOIL(given_far_rows, call->strides[0][0] = INT64_MAX / 8)
SPOIL(input_null, call->outputs.input = NULL)
SPOIL(weights_null, call->outputs.weights = NULL)
SPOIL(mix_null, call->outputs.mix = NULL)
SPOIL(scale_unasked, call->outputs.scale = entropy_of(call))
SPOIL(given_tensor_null, call->given[0] = NULL)
SPOIL(given_data_null, given_of(call)->data = NULL)
SPOIL(input_data_null, input_of(call)->data = NULL)
SPOIL(given_shape_null, given_of(call)->shape = NULL)
SPOIL(given_misaligned, given_of(call)->byte_offset = 2)
SPOIL(weights_misaligned, weights_of(call)->byte_offset = 1)
SPOIL(outputs_size, call->outputs.size = sizeof(size_t))
SPOIL(input_over_given, input_of(call)->data = (char *)given_of(call)->data + 4)
SPOIL(entropy_over_input, entropy_of(call)->data = input_of(call)->data)
SPOIL(mix_over_input, call->outputs.mix = call->outputs.input)
SPOIL(input_over_workspace, input_of(call)->data = call->workspace + 64)
SPOIL(given_over_workspace, given_of(call)->data = call->workspace + call->workspace_bytes - 4)
SPOIL(given_count_0, call->given_count = 0)
SPOIL(given_count_3, call->given_count = 3)
SPOIL(given_rows, call->shapes[0][0]++)
SPOIL(workspace_null, call->workspace = NULL)
SPOIL(workspace_small, call->workspace_bytes--)
SPOIL(workspace_odd, call->workspace += 64)

static void work_alone(void *user, size_t count, void (*work)(void *argument, size_t index),
                       void *argument) {
  (void)user;
  for (size_t i = 0; i < count; i++)
    work(argument, i);
}

static const fathom_executor no_workers = {sizeof no_workers, NULL, 0, work_alone, NULL, 0};
static const fathom_executor no_function = {sizeof no_function, NULL, 1, NULL, NULL, 0};
static const fathom_executor no_size = {0, NULL, 1, work_alone, NULL, 0};
SPOIL(executor_workers, call->executor = &no_workers)
SPOIL(executor_function, call->executor = &no_function)
SPOIL(executor_size, call->executor = &no_size)

enum { BEGIN = 1, LATER = 2, ALWAYS = BEGIN | LATER };

static const struct fault {
  int when;
  void (*spoil)(host_call *call);
  const char *says;
} faults[] = {
    {ALWAYS, given_dtype, "expected dtype f32"},
    {ALWAYS, given_code, "expected dtype f32"},
    {ALWAYS, given_lanes, "2 lanes"},
    {ALWAYS, input_dtype, "outputs.input: expected dtype f32"},
    {ALWAYS, given_device, "expected memory of the host"},
    {ALWAYS, input_device, "outputs.input: expected memory of the host"},
    {ALWAYS, given_rank, "expected 2 axes, found 1"},
    {ALWAYS, given_rank_3, "expected 2 axes, found 3"},
    {ALWAYS, given_rank_negative, "expected 2 axes, found -1"},
    {ALWAYS, entropy_rank, "outputs.entropy: expected 1 axes, found 0"},
    {ALWAYS, given_width, "expected 32 along D, found 31"},
    {ALWAYS, input_width, "outputs.input: expected 32 along D, found 33"},
    {ALWAYS, input_rows, "outputs.input: expected 7 along T, found 8"},
    {ALWAYS, weights_sources, "outputs.weights: expected"},
    {ALWAYS, weights_rows, "outputs.weights: expected 7 along T, found 6"},
    {ALWAYS, rows_negative, "outputs.input: expected 7 along T, found -1"},
    {ALWAYS, given_stride, "expected stride 1 along D, found 2"},
    {ALWAYS, input_stride, "outputs.input: expected stride 1 along D, found -1"},
    {ALWAYS, input_same_rows, "must not share memory"},
    {ALWAYS, input_close_rows, "must not share memory"},
    {ALWAYS, given_far_rows, "63-bit"},
    {ALWAYS, input_null, "outputs.input: the tensor is NULL"},
    {ALWAYS, weights_null, "outputs.weights: the tensor is NULL"},
    {ALWAYS, mix_null, "outputs.mix: the tensor is NULL"},
    {ALWAYS, scale_unasked, "outputs.scale: the model gives none"},
    {ALWAYS, given_tensor_null, "the tensor is NULL"},
    {ALWAYS, given_data_null, "no memory"},
    {ALWAYS, input_data_null, "no memory"},
    {ALWAYS, given_shape_null, "shape is NULL"},
    {ALWAYS, given_misaligned, "not a multiple"},
    {ALWAYS, weights_misaligned, "not a multiple"},
    {ALWAYS, outputs_size, "fathom_site_outputs.size"},
    {ALWAYS, input_over_given, "overlap"},
    {ALWAYS, entropy_over_input, "overlap"},
    {ALWAYS, mix_over_input, "overlap"},
    {ALWAYS, input_over_workspace, "overlap"},
    {ALWAYS, given_over_workspace, "overlap"},
    {LATER, given_count_0, "found 0"},
    {LATER, given_count_3, "found 3"},
    {LATER, given_rows, "expected 7 along T, found 8"},
    {BEGIN, workspace_null, "the workspace is NULL"},
    {BEGIN, workspace_small, "the workspace has"},
    {BEGIN, workspace_odd, "not aligned to 128"},
    {BEGIN, executor_workers, "concurrency"},
    {BEGIN, executor_function, "parallel_for"},
    {BEGIN, executor_size, "fathom_executor.size"},
};

static void assert_untouched(const host_call *call, const char *what) {
  for (uint32_t i = 2; i < HOST_TENSORS; i++)
    for (uint32_t j = 0; j < HOST_AREA; j++)
      if (call->areas[i][j] != HOST_UNTOUCHED) fail_msg("%s: something was written", what);
}

// At every site every fault, then the right call.
static void tells_every_fault(void **state) {
  fixture *f = *state;
  static host_call call;
  host_results results = {0};
  host_call_begin(&call, &f->plain, f->sequence, ROWS, NULL);
  for (uint32_t s = 0; s < SITES; s++) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
      const struct fault *fault = &faults[i];
      if (!(fault->when & (s == 0 ? BEGIN : LATER))) continue;
      host_prepare(&call, &f->tokens, s, HOST_DENSE);
      char *workspace = call.workspace;
      const size_t bytes = call.workspace_bytes;
      fault->spoil(&call);
      const fathom_status status = host_make(&call);
      if (status != FATHOM_INVALID)
        fail_msg("site %u: status %d where '%s' was expected", s, status, fault->says);
      host_assert_says(fault->says);
      assert_untouched(&call, fault->says);
      call.workspace = workspace;
      call.workspace_bytes = bytes;
      call.executor = NULL;
    }
    host_prepare(&call, &f->tokens, s, HOST_DENSE);
    if (host_make(&call) != FATHOM_OK) fail_msg("site %u: %s", s, fathom_error_text());
    host_take(&call, &results);
  }
  host_call_end(&call);
  host_assert_equal(&results, &f->expected);
}

// ---- order --------------------------------------------------------------------------------------

// The call for site `wanted` while another one is next.
static void refuse_site(fixture *f, host_call *call, uint32_t wanted, const char *says) {
  host_prepare(call, &f->tokens, wanted, HOST_DENSE);
  assert_int_equal(host_make(call), FATHOM_INVALID);
  host_assert_says(says);
  assert_untouched(call, says);
}

static void keeps_the_order(void **state) {
  fixture *f = *state;
  static host_call call;
  host_results results = {0};
  host_call_begin(&call, &f->plain, f->sequence, ROWS, NULL);
  for (uint32_t next = 0; next < SITES; next++) {
    for (uint32_t wanted = 0; wanted < SITES; wanted++)
      if (wanted != next)
        refuse_site(f, &call, wanted,
                    next == 0        ? "has not begun"
                    : wanted == 0    ? "begin: the sequence is under way"
                    : wanted == LAST ? "come before the end"
                                     : "which is next");
    host_prepare(&call, &f->tokens, next, HOST_DENSE);
    for (uint32_t i = 0; i < 2; i++) { // no sites at all
      call.site = 0;
      const uint32_t none = i == 0 ? 0 : LAST + (next & 1) * 1000;
      assert_int_equal(fathom_sequence_site(f->sequence, none, call.given, 1, &call.outputs),
                       FATHOM_INVALID);
      host_assert_says("sites between begin and end are 1 to 4");
    }
    call.site = next;
    if (next > 0) {
      size_t bytes;
      assert_int_equal(fathom_sequence_workspace(f->sequence, 3, NULL, &bytes), FATHOM_INVALID);
      host_assert_says("under way");
    }
    if (host_make(&call) != FATHOM_OK) fail_msg("site %u: %s", next, fathom_error_text());
    host_take(&call, &results);
  }
  host_call_end(&call);
  host_assert_equal(&results, &f->expected);
}

// Tokens given up at any site leave nothing behind.
static void resets(void **state) {
  fixture *f = *state;
  static host_call call;
  host_results results;
  for (uint32_t until = 0; until < SITES; until++) {
    host_call_begin(&call, &f->plain, f->sequence, ROWS, NULL);
    for (uint32_t s = 0; s < until; s++) {
      host_prepare(&call, &f->tokens, s, HOST_DENSE);
      assert_int_equal(host_make(&call), FATHOM_OK);
    }
    host_call_end(&call);
    assert_int_equal(fathom_sequence_reset(f->sequence), FATHOM_OK);
    host_run(&f->plain, f->sequence, &f->tokens, HOST_DENSE, NULL, &results);
    host_assert_equal(&results, &f->expected);
  }
  assert_int_equal(fathom_sequence_reset(f->sequence), FATHOM_OK);
  assert_int_equal(fathom_sequence_reset(NULL), FATHOM_INVALID);
}

// ---- parameters ---------------------------------------------------------------------------------

typedef struct param_arg {
  float data[SITES * HOST_D * 2];
  int64_t shape[3], strides[3];
  DLTensor tensor;
  const DLTensor *slices[SITES + 1];
  fathom_arg arg;
} param_arg;

// query_0, as it should be.
static void make_arg(param_arg *p) {
  memset(p, 0, sizeof *p);
  p->shape[0] = HOST_D;
  p->strides[0] = 1;
  p->tensor = (DLTensor){.data = p->data,
                         .device = {kDLCPU, 0},
                         .ndim = 1,
                         .dtype = {kDLFloat, 32, 1},
                         .shape = p->shape,
                         .strides = p->strides};
  for (uint32_t i = 0; i <= SITES; i++)
    p->slices[i] = &p->tensor;
  p->arg = (fathom_arg){.name = "query_0", .tensor = &p->tensor};
}

static void refuse_arg(fathom_model *model, param_arg *p, const char *says) {
  assert_int_equal(fathom_model_bind(model, &p->arg, 1), FATHOM_INVALID);
  host_assert_says(says);
  make_arg(p);
}

static void tells_faults_of_parameters(void **state) {
  fixture *f = *state;
  fathom_model *model = f->plain.model;
  param_arg p;
  make_arg(&p);
  p.arg.name = "qery_0";
  refuse_arg(model, &p, "did you mean 'query_0'?");
  p.arg.name = "embedding";
  refuse_arg(model, &p, "has no parameter 'embedding'");
  p.arg.name = NULL;
  refuse_arg(model, &p, "without a name");
  p.arg.tensor = NULL;
  refuse_arg(model, &p, "query_0: the tensor is NULL");
  p.tensor.data = NULL;
  refuse_arg(model, &p, "query_0: ");
  p.tensor.shape = NULL;
  refuse_arg(model, &p, "shape is NULL");
  p.tensor.byte_offset = 1;
  refuse_arg(model, &p, "not a multiple");
  p.tensor.dtype.bits = 64;
  refuse_arg(model, &p, "expected dtype f32");
  p.tensor.device.device_type = kDLCUDA;
  refuse_arg(model, &p, "expected memory of the host");
  p.tensor.ndim = 2;
  refuse_arg(model, &p, "expected 1 axes, found 2");
  p.shape[0] = 31;
  refuse_arg(model, &p, "expected 32 along D, found 31");
  p.strides[0] = 2;
  refuse_arg(model, &p, "stride");
  p.arg.slices = p.slices;
  refuse_arg(model, &p, "both a tensor and slices");
  p.arg = (fathom_arg){.name = "query", .slices = p.slices, .slice_count = SITES + 1};
  refuse_arg(model, &p, "expected 6 slices, one for each site, found 7");
  p.arg = (fathom_arg){.name = "query", .slices = p.slices, .slice_count = SITES};
  p.slices[3] = NULL;
  refuse_arg(model, &p, "the tensor is NULL");
  p.arg.name = "query"; // of all sites
  refuse_arg(model, &p, "expected 2 axes, found 1");
  p.arg.name = "query";
  p.tensor.ndim = 2;
  p.shape[0] = SITES;
  p.shape[1] = HOST_D;
  p.strides[0] = 2L * HOST_D;
  p.strides[1] = 1;
  refuse_arg(model, &p, "expected a dense tensor");
  assert_int_equal(fathom_model_bind(NULL, &p.arg, 1), FATHOM_INVALID);
  assert_int_equal(fathom_model_bind(model, NULL, 1), FATHOM_INVALID);
  fathom_tensor_info info = FATHOM_INIT(info);
  assert_int_equal(fathom_model_param(model, f->plain.info.param_count, &info), FATHOM_INVALID);
  host_assert_says("no parameter");
  // Nothing of a refused call is bound.
  param_arg good;
  make_arg(&good);
  make_arg(&p);
  p.arg.name = "nothing";
  const fathom_arg both[] = {good.arg, p.arg};
  assert_int_equal(fathom_model_bind(model, both, 2), FATHOM_INVALID);
  host_results results;
  host_run(&f->plain, f->sequence, &f->tokens, HOST_DENSE, NULL, &results);
  host_assert_equal(&results, &f->expected);
}

// The parameters of all sites of that name: a copy as one tensor, and themselves as slices.
typedef struct stacked {
  float data[SITES][HOST_D];
  int64_t shape[2];
  DLTensor whole, slices[SITES];
  const DLTensor *list[SITES];
} stacked;

static void stack(const host_model *h, const char *name, stacked *s) {
  s->shape[0] = SITES;
  s->shape[1] = HOST_D;
  s->whole = (DLTensor){.data = s->data,
                        .device = {kDLCPU, 0},
                        .ndim = 2,
                        .dtype = {kDLFloat, 32, 1},
                        .shape = s->shape};
  for (uint32_t i = 0; i < h->info.param_count; i++) {
    fathom_tensor_info info = FATHOM_INIT(info);
    assert_int_equal(fathom_model_param(h->model, i, &info), FATHOM_OK);
    const size_t length = strlen(name);
    if (strncmp(info.name, name, length) != 0 || info.name[length] != '_') continue;
    const int site = atoi(info.name + length + 1);
    memcpy(s->data[site], h->params[i], sizeof s->data[site]);
    s->slices[site] = s->whole;
    s->slices[site].data = h->params[i];
    s->slices[site].ndim = 1;
    s->slices[site].shape = &s->shape[1];
    s->list[site] = &s->slices[site];
  }
}

static void binds_while_nothing_is_under_way(void **state) {
  fixture *f = *state;
  static host_call call;
  host_results results;
  param_arg p;
  fathom_sequence *other;
  assert_int_equal(fathom_sequence_create(f->plain.model, &other), FATHOM_OK);
  host_call_begin(&call, &f->plain, other, ROWS, NULL);
  host_prepare(&call, &f->tokens, 0, HOST_DENSE);
  assert_int_equal(host_make(&call), FATHOM_OK);
  make_arg(&p);
  refuse_arg(f->plain.model, &p, "1 sequences of the model are under way");
  host_prepare(&call, &f->tokens, 1, HOST_DENSE);
  assert_int_equal(host_make(&call), FATHOM_OK);
  fathom_sequence_destroy(other); // gives up its tokens
  host_call_end(&call);
  // By name, all sites at once, and as slices.
  static stacked queries, gains;
  stack(&f->plain, "query", &queries);
  stack(&f->plain, "key_gain", &gains);
  const fathom_arg at_once[] = {{.name = "query", .tensor = &queries.whole},
                                {.name = "key_gain", .tensor = &gains.whole}};
  const fathom_arg apart[] = {{.name = "query", .slices = queries.list, .slice_count = SITES},
                              {.name = "key_gain", .slices = gains.list, .slice_count = SITES}};
  assert_int_equal(fathom_model_bind(f->plain.model, at_once, 2), FATHOM_OK);
  host_run(&f->plain, f->sequence, &f->tokens, HOST_DENSE, NULL, &results);
  host_assert_equal(&results, &f->expected);
  queries.data[2][3] += 1; // they stay the host's
  host_run(&f->plain, f->sequence, &f->tokens, HOST_DENSE, NULL, &results);
  assert_memory_not_equal(&results, &f->expected, sizeof results);
  assert_int_equal(fathom_model_bind(f->plain.model, apart, 2), FATHOM_OK);
  host_run(&f->plain, f->sequence, &f->tokens, HOST_DENSE, NULL, &results);
  host_assert_equal(&results, &f->expected);
}

static void needs_all_parameters(void **state) {
  fixture *f = *state;
  static host_call call;
  char path[64];
  fathom_model *model;
  fathom_model_options options = FATHOM_INIT(options);
  options.outputs = EXTRAS;
  options.phases = FATHOM_PHASES_TWO;
  host_write(plain_yaml, strlen(plain_yaml), ".yaml", path, sizeof path - 2);
  assert_int_equal(fathom_model_open(f->context, path, &options, &model), FATHOM_OK);
  unlink(path);
  host_model unbound = {.model = model, .info = f->plain.info};
  fathom_sequence *sequence;
  assert_int_equal(fathom_sequence_create(model, &sequence), FATHOM_OK);
  host_call_begin(&call, &unbound, sequence, ROWS, NULL);
  host_prepare(&call, &f->tokens, 0, HOST_DENSE);
  assert_int_equal(host_make(&call), FATHOM_INVALID);
  host_assert_says("parameters are not bound, the first is '");
  const size_t before = call.workspace_bytes;
  host_call_end(&call);
  // What was asked before they were bound holds.
  host_bind(&unbound);
  host_results results;
  size_t bytes;
  assert_int_equal(fathom_sequence_workspace(sequence, ROWS, NULL, &bytes), FATHOM_OK);
  assert_true(bytes <= before);
  host_run(&unbound, sequence, &f->tokens, HOST_DENSE, NULL, &results);
  host_assert_equal(&results, &f->expected);
  fathom_sequence_destroy(sequence);
  host_close(&unbound);
}

// ---- memory and tokens --------------------------------------------------------------------------

static void takes_any_strides(void **state) {
  fixture *f = *state;
  host_model *models[] = {&f->plain, &f->heads};
  for (uint32_t m = 0; m < 2; m++) {
    fathom_sequence *sequence;
    host_results expected, results;
    assert_int_equal(fathom_sequence_create(models[m]->model, &sequence), FATHOM_OK);
    host_run(models[m], sequence, &f->tokens, HOST_DENSE, NULL, &expected);
    for (int layout = HOST_DENSE; layout < HOST_LAYOUTS; layout++) {
      host_run(models[m], sequence, &f->tokens, (host_layout)layout, NULL, &results);
      host_assert_equal(&results, &expected);
    }
    fathom_sequence_destroy(sequence);
  }
}

// Rows first .. first + rows - 1.
static void cut(const host_tokens *from, int64_t first, int64_t rows, host_tokens *to) {
  to->rows = rows;
  for (uint32_t s = 0; s < HOST_SITES; s++)
    for (uint32_t i = 0; i < 2; i++)
      memcpy(to->given[s][i], from->given[s][i] + first * HOST_D,
             (size_t)rows * HOST_D * sizeof(float));
}

// T changes with every begin, and may be 0; inputs of single tokens are those of all.
static void takes_any_number_of_tokens(void **state) {
  fixture *f = *state;
  static const int64_t sizes[] = {0, 1, ROWS, 3, 0, 2, 6, 1};
  host_tokens part;
  host_results results;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int64_t first = 0; first + sizes[i] <= ROWS; first += 2) {
      cut(&f->tokens, first, sizes[i], &part);
      host_run(&f->plain, f->sequence, &part, HOST_DENSE, NULL, &results);
      const size_t row = HOST_D * sizeof(float);
      for (uint32_t s = 0; s < SITES; s++)
        assert_memory_equal(results.out[s][0], f->expected.out[s][0] + (size_t)first * row,
                            (size_t)sizes[i] * row);
    }
  size_t bytes;
  assert_int_equal(fathom_sequence_workspace(f->sequence, -1, NULL, &bytes), FATHOM_INVALID);
  host_assert_says("-1 rows");
  assert_int_equal(fathom_sequence_workspace(f->sequence, INT64_MAX / 64, NULL, &bytes),
                   FATHOM_INVALID);
  host_assert_says("chunks");
}

static void allocates_nothing(void **state) {
  fixture *f = *state;
  static host_call call;
  for (uint32_t round = 0; round < 2; round++) {
    host_call_begin(&call, &f->plain, f->sequence, ROWS, NULL);
    for (uint32_t s = 0; s < SITES; s++) {
      host_prepare(&call, &f->tokens, s, HOST_PADDED);
      const long before = f->counter.calls;
      assert_int_equal(host_make(&call), FATHOM_OK);
      assert_int_equal(f->counter.calls, before);
    }
    host_call_end(&call);
  }
}

// ---- structs with a size ------------------------------------------------------------------------

static void structs_may_grow(void **state) {
  fixture *f = *state;
  static host_call call;
  struct {
    fathom_site_outputs outputs;
    void *later;
  } longer = {.later = f};
  host_call_begin(&call, &f->plain, f->sequence, ROWS, NULL);
  host_prepare(&call, &f->tokens, 0, HOST_DENSE);
  longer.outputs = call.outputs;
  longer.outputs.size = sizeof longer;
  assert_int_equal(fathom_sequence_begin(f->sequence, call.given[0], &longer.outputs,
                                         call.workspace, call.workspace_bytes, NULL),
                   FATHOM_OK);
  host_call_end(&call);
  struct {
    fathom_model_info info;
    void *later;
  } info = {.info.size = sizeof info, .later = f};
  assert_int_equal(fathom_model_get_info(f->plain.model, &info.info), FATHOM_OK);
  assert_null(info.later);
  assert_int_equal(info.info.sublayers, LAST);
  info.info.size = sizeof(size_t);
  assert_int_equal(fathom_model_get_info(f->plain.model, &info.info), FATHOM_INVALID);
  host_assert_says("fathom_model_info.size");
  fathom_model_options options = {.size = sizeof(size_t)};
  fathom_model *model;
  fathom_text text;
  assert_int_equal(fathom_model_open(f->context, "gpt-small", &options, &model), FATHOM_INVALID);
  host_assert_says("fathom_model_options.size");
  assert_null(model);
  assert_int_equal(fathom_model_plan(f->context, "gpt-small", &options, &text), FATHOM_INVALID);
  assert_int_equal(fathom_model_expand(f->context, "gpt-small", &options, &text), FATHOM_INVALID);
  options = (fathom_model_options)FATHOM_INIT(options);
  options.phases = (fathom_phases)4;
  assert_int_equal(fathom_model_open(f->context, "gpt-small", &options, &model), FATHOM_INVALID);
  host_assert_says("unknown phases 4");
  options.phases = FATHOM_PHASES_ONE;
  options.target = "gpu";
  assert_int_equal(fathom_model_open(f->context, "gpt-small", &options, &model), FATHOM_INVALID);
  host_assert_says("unknown target 'gpu'");
}

// ---- threads ------------------------------------------------------------------------------------

typedef struct meeting {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool inside, tried;
  fathom_sequence *sequence;
  host_call *call; // of the other thread
  fathom_status status[5];
  char texts[5][200];
} meeting;

// Waits inside the call until the other thread has tried its own.
static void work_after_the_other(void *user, size_t count,
                                 void (*work)(void *argument, size_t index), void *argument) {
  meeting *m = user;
  pthread_mutex_lock(&m->mutex);
  m->inside = true;
  pthread_cond_broadcast(&m->changed);
  while (!m->tried)
    pthread_cond_wait(&m->changed, &m->mutex);
  pthread_mutex_unlock(&m->mutex);
  work_alone(NULL, count, work, argument);
}

static void note(meeting *m, uint32_t i, fathom_status status) {
  m->status[i] = status;
  snprintf(m->texts[i], sizeof m->texts[i], "%s", fathom_error_text());
}

static void *try_meanwhile(void *opaque) {
  meeting *m = opaque;
  size_t bytes;
  pthread_mutex_lock(&m->mutex);
  while (!m->inside)
    pthread_cond_wait(&m->changed, &m->mutex);
  note(m, 0, host_make(m->call));
  note(m, 1, fathom_sequence_reset(m->sequence));
  note(m, 2, fathom_sequence_workspace(m->sequence, 1, NULL, &bytes));
  m->call->site = 0;
  note(m, 3, host_make(m->call));
  m->call->site = LAST;
  note(m, 4, host_make(m->call));
  m->tried = true;
  pthread_cond_broadcast(&m->changed);
  pthread_mutex_unlock(&m->mutex);
  return NULL;
}

static void refuses_a_second_thread(void **state) {
  fixture *f = *state;
  static host_call call, other;
  static meeting m;
  host_results results = {0};
  pthread_t thread;
  m = (meeting){.mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER,
                .sequence = f->sequence,
                .call = &other};
  const fathom_executor executor = {
      .size = sizeof executor, .user = &m, .concurrency = 2, .parallel_for = work_after_the_other};
  host_call_begin(&other, &f->plain, f->sequence, ROWS, NULL);
  host_call_begin(&call, &f->plain, f->sequence, ROWS, &executor);
  host_prepare(&other, &f->tokens, 1, HOST_DENSE);
  assert_int_equal(pthread_create(&thread, NULL, try_meanwhile, &m), 0);
  for (uint32_t s = 0; s < SITES; s++) {
    host_prepare(&call, &f->tokens, s, HOST_DENSE);
    if (host_make(&call) != FATHOM_OK) fail_msg("%s", fathom_error_text());
    host_take(&call, &results);
  }
  assert_true(m.inside);
  pthread_join(thread, NULL);
  for (uint32_t i = 0; i < 5; i++) {
    assert_int_equal(m.status[i], FATHOM_INVALID);
    if (strstr(m.texts[i], "in a call of another thread") == NULL) fail_msg("%s", m.texts[i]);
  }
  assert_untouched(&other, "the second thread");
  host_call_end(&call);
  host_call_end(&other);
  host_assert_equal(&results, &f->expected);
}

enum { THREADS = 4, ROUNDS = 8 };

typedef struct worker {
  const host_model *host;
  host_tokens tokens;
  host_results expected;
  bool same;
} worker;

static void *run_rounds(void *opaque) {
  worker *w = opaque;
  fathom_sequence *sequence;
  host_results *results = malloc(sizeof *results);
  if (fathom_sequence_create(w->host->model, &sequence) != FATHOM_OK) return NULL;
  w->same = true;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    host_run(w->host, sequence, &w->tokens, (host_layout)(i % HOST_LAYOUTS), NULL, results);
    w->same &= memcmp(results, &w->expected, sizeof *results) == 0;
  }
  fathom_sequence_destroy(sequence);
  free(results);
  return NULL;
}

static void runs_in_several_threads(void **state) {
  fixture *f = *state;
  static worker workers[THREADS];
  pthread_t threads[THREADS];
  for (uint32_t i = 0; i < THREADS; i++) {
    workers[i].host = &f->plain;
    host_make_tokens(&workers[i].tokens, 1 + 2 * i, 100 + i);
    host_run(&f->plain, f->sequence, &workers[i].tokens, HOST_DENSE, NULL, &workers[i].expected);
  }
  for (uint32_t i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run_rounds, &workers[i]), 0);
  for (uint32_t i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    assert_true(workers[i].same);
  }
}

// Two sequences of one thread, a site of each in turn.
static void runs_several_at_once(void **state) {
  fixture *f = *state;
  static host_call calls[2];
  static host_tokens tokens[2];
  static host_results expected[2], results[2];
  fathom_sequence *sequences[2];
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(fathom_sequence_create(f->plain.model, &sequences[i]), FATHOM_OK);
    host_make_tokens(&tokens[i], 4 + i, 50 + i);
    host_run(&f->plain, sequences[i], &tokens[i], HOST_DENSE, NULL, &expected[i]);
    host_call_begin(&calls[i], &f->plain, sequences[i], tokens[i].rows, NULL);
  }
  for (uint32_t s = 0; s < SITES; s++)
    for (uint32_t i = 0; i < 2; i++) {
      host_prepare(&calls[i], &tokens[i], s, HOST_DENSE);
      assert_int_equal(host_make(&calls[i]), FATHOM_OK);
      host_take(&calls[i], &results[i]);
    }
  for (uint32_t i = 0; i < 2; i++) {
    host_assert_equal(&results[i], &expected[i]);
    host_call_end(&calls[i]);
    fathom_sequence_destroy(sequences[i]);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(tells_every_fault),
      TEST(keeps_the_order),
      TEST(resets),
      TEST(tells_faults_of_parameters),
      TEST(binds_while_nothing_is_under_way),
      TEST(needs_all_parameters),
      TEST(takes_any_strides),
      TEST(takes_any_number_of_tokens),
      TEST(allocates_nothing),
      TEST(structs_may_grow),
      TEST(refuses_a_second_thread),
      TEST(runs_in_several_threads),
      TEST(runs_several_at_once),
  };
  return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
