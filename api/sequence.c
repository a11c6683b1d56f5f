// sequence: tokens on their way through the depth of a model. A state machine over the plan's steps: a call
// checks what the host gives, builds the tensors of the step's runs and launches them.
//
// A call that is refused has changed nothing. Two threads in one sequence are refused, not serialised: the
// order of sites is the host's to keep.
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "api/depth.h"

static const base_loc nowhere;

const char *const api_output_names[API_OUTPUT_COUNT] = {
    "outputs.input", "outputs.weights", "outputs.entropy", "outputs.mix", "outputs.scale"};

struct fathom_sequence {
  base_arena arena;
  fathom_model *model;
  atomic_flag busy;
  uint32_t next; // step; 0: nothing is under way
  int64_t rows;
  api_executor executor;
  char *workspace;
  size_t kernel_area; // offset in the workspace: what kernels need for themselves
  size_t *offsets;    // of the buffers
  rt_tensor *tensors; // of one run
  char **slices;
  int64_t *sizes;            // of a program's axes
  rt_traffic *traffic;       // NULL, or room for each slot of a run (cuda-emu)
  api_traffic_report report; // of it
  void *report_user;
  // The needs of kernels for so many rows and workers, as asked last.
  int64_t known_rows;
  uint32_t known_workers;
  size_t known_bytes;
};

// ---- tensors of the host ------------------------------------------------------------------------

static bool check_place(api_call *call, const fathom_model *model, const char *what,
                        DLDevice device) {
  const DLDevice wanted = api_device_dlpack(model->kernels[0]);
  if (wanted.device_type == kDLCPU ? api_is_host(device) : api_is_on_device(device, wanted))
    return true;
  base_error(&call->diag, nowhere,
             "%s: expected memory of the %s, found DLPack device type %d, number %d", what,
             wanted.device_type == kDLCPU ? "host (kDLCPU)" : "model's GPU (kDLCUDA)",
             (int)device.device_type, device.device_id);
  base_hint(&call->diag, "copy the tensor there");
  return false;
}

static bool check_dtype(api_call *call, const char *what, rt_dtype wanted, DLDataType found) {
  if (api_dlpack_fits(wanted, found)) return true;
  base_error(&call->diag, nowhere,
             "%s: expected dtype %s (%s), found DLPack code %u with %u bits, %u lanes", what,
             ir_dtype_name((ir_dtype)wanted), api_dlpack_dtype_name(wanted), found.code, found.bits,
             found.lanes);
  return false;
}

// Takes shape and strides; false where a size is not the type's.
static bool take_shape(api_call *call, const char *what, const api_tensor_type *type,
                       const DLTensor *given, int64_t *rows, rt_tensor *out) {
  int64_t dense = 1;
  for (uint32_t i = type->rank; i-- > 0;) {
    const int64_t size = given->shape[i];
    int64_t wanted = type->sizes[i];
    if (wanted == RT_DYNAMIC && *rows < 0 && size >= 0) *rows = size;
    if (wanted == RT_DYNAMIC) wanted = *rows;
    if (size != wanted) {
      base_error(&call->diag, nowhere, "%s: expected %lld along %s, found %lld", what,
                 (long long)wanted, type->axes[i], (long long)size);
      return false;
    }
    out->shape[i] = size;
    out->strides[i] = given->strides != NULL ? given->strides[i] : dense;
    if (__builtin_mul_overflow(dense, size > 0 ? size : 1, &dense)) dense = INT64_MAX;
  }
  return true;
}

// Kernels find neighbouring channels side by side.
static bool check_unit_stride(api_call *call, const char *what, const api_tensor_type *type,
                              const rt_tensor *tensor) {
  const uint32_t last = type->rank - 1;
  for (uint32_t i = 0; i < type->rank; i++)
    if (tensor->shape[i] == 0) return true; // strides of nothing may be anything
  if (type->rank == 0 || type->sizes[last] == RT_DYNAMIC || tensor->shape[last] <= 1 ||
      tensor->strides[last] == 1)
    return true;
  base_error(&call->diag, nowhere, "%s: expected stride 1 along %s, found %lld", what,
             type->axes[last], (long long)tensor->strides[last]);
  base_hint(&call->diag, "give a contiguous copy; other axes may have any strides");
  return false;
}

bool api_tensor_take(api_call *call, const fathom_model *model, const char *what,
                     const api_tensor_type *type, const DLTensor *given, int64_t *rows,
                     rt_tensor *out) {
  if (given == NULL) {
    base_error(&call->diag, nowhere, "%s: the tensor is NULL", what);
    return false;
  }
  if (!check_place(call, model, what, given->device) ||
      !check_dtype(call, what, type->dtype, given->dtype))
    return false;
  if (given->ndim < 0 || (uint32_t)given->ndim != type->rank) {
    base_error(&call->diag, nowhere, "%s: expected %u axes, found %d", what, type->rank,
               given->ndim);
    return false;
  }
  if (type->rank > 0 && given->shape == NULL) {
    base_error(&call->diag, nowhere, "%s: the tensor's shape is NULL", what);
    return false;
  }
  *out = (rt_tensor){.dtype = type->dtype, .rank = type->rank};
  if (given->data != NULL) out->data = (char *)given->data + given->byte_offset;
  return take_shape(call, what, type, given, rows, out) && check_unit_stride(call, what, type, out);
}

static bool take_outputs(api_call *call, const fathom_sequence *sequence, uint32_t step,
                         const fathom_site_outputs *given, int64_t rows, rt_tensor *outputs) {
  fathom_site_outputs wanted;
  if (API_STRUCT_IN(wanted, given, fathom_site_outputs) != FATHOM_OK) return false;
  const DLTensor *tensors[] = {wanted.input, wanted.weights, wanted.entropy, wanted.mix,
                               wanted.scale};
  bool good = true;
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++) {
    const api_tensor_type *type = &sequence->model->outputs[step][i];
    if (type->rank == api_no_output) {
      if (tensors[i] == NULL) continue;
      base_error(&call->diag, nowhere, "%s: the model gives none", api_output_names[i]);
      base_hint(&call->diag, "ask for it in fathom_model_options.outputs");
      good = false;
    } else {
      good &= api_tensor_take(call, sequence->model, api_output_names[i], type, tensors[i], &rows,
                              &outputs[i]);
    }
  }
  return good;
}

// ---- workspace ----------------------------------------------------------------------------------

static const rt_depth_run *run_of_kernel(const rt_depth *depth, uint32_t kernel) {
  const rt_depth_run *run = depth->runs;
  while (run->kernel != kernel)
    run++;
  return run;
}

// Rows of the host as they will be at any step, for asking how much kernels need.
static void shape_host_rows(const fathom_sequence *sequence, int64_t rows, rt_tensor *row) {
  const api_tensor_type *type = &sequence->model->row;
  *row = (rt_tensor){.dtype = type->dtype, .rank = type->rank};
  int64_t stride = 1;
  for (uint32_t i = type->rank; i-- > 0;) {
    row->shape[i] = type->sizes[i] == RT_DYNAMIC ? rows : type->sizes[i];
    row->strides[i] = stride;
    stride *= row->shape[i];
  }
}

static void fill_sizes(const rt_program *program, int64_t rows, int64_t *sizes) {
  for (uint32_t i = 0; i < program->axis_count; i++)
    sizes[i] = program->axes[i].size == RT_DYNAMIC ? rows : program->axes[i].size;
}

// Room for itself that a kernel needs. False: see the call's diag.
static bool kernel_needs(api_call *call, const fathom_sequence *sequence, uint32_t kernel,
                         int64_t rows, uint32_t workers, size_t *bytes) {
  const fathom_model *model = sequence->model;
  const fathom_executable *executable = model->kernels[kernel];
  rt_tensor inputs[MODEL_MAX_ADDENDS], outputs[API_OUTPUT_COUNT];
  for (uint32_t i = 0; i < MODEL_MAX_ADDENDS; i++)
    shape_host_rows(sequence, rows, &inputs[i]);
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++)
    shape_host_rows(sequence, rows, &outputs[i]);
  const rt_depth_memory memory = {.params = model->params,
                                  .inputs = inputs,
                                  .outputs = outputs,
                                  .offsets = sequence->offsets,
                                  .rows = rows};
  const rt_depth_run *run = run_of_kernel(&model->depth, kernel);
  rt_depth_tensors(run, executable->program, &memory, sequence->tensors, sequence->slices);
  fill_sizes(executable->program, rows, sequence->sizes);
  *bytes = 0;
  if (executable->kind == API_INTERP) return true;
  if (executable->loaded != NULL)
    return rt_device_workspace(api_loaded_for(executable, sequence->sizes), sequence->tensors,
                               sequence->sizes, bytes, &call->diag) == BASE_OK;
  return rt_workspace_size(api_program_for(executable, sequence->sizes), sequence->tensors,
                           sequence->sizes, workers, bytes, &call->diag) == BASE_OK;
}

static bool find_needs(api_call *call, fathom_sequence *sequence, int64_t rows, uint32_t workers) {
  size_t largest = 0;
  if (sequence->known_rows == rows && sequence->known_workers == workers) return true;
  for (uint32_t i = 0; i < sequence->model->depth.kernel_count; i++) {
    size_t bytes;
    if (!kernel_needs(call, sequence, i, rows, workers, &bytes)) return false;
    if (bytes > largest) largest = bytes;
  }
  sequence->known_rows = rows;
  sequence->known_workers = workers;
  sequence->known_bytes = largest;
  return true;
}

// Lays out the workspace. False: see the call's diag.
static bool lay_out(api_call *call, fathom_sequence *sequence, int64_t rows, uint32_t workers,
                    size_t *buffers, size_t *all) {
  if (rt_depth_layout(&sequence->model->depth, rows, sequence->offsets, buffers) &&
      find_needs(call, sequence, rows, workers) &&
      !__builtin_add_overflow(*buffers, sequence->known_bytes, all) && *all <= PTRDIFF_MAX)
    return true;
  if (call->diag.error_count > 0) return false;
  base_error(&call->diag, nowhere, "the workspace for %lld rows does not fit in 63 bits",
             (long long)rows);
  base_hint(&call->diag, "take the tokens in chunks: the results are the same");
  return false;
}

// ---- calls, one at a time -----------------------------------------------------------------------

static fathom_status enter(fathom_sequence *sequence) {
  if (!atomic_flag_test_and_set(&sequence->busy)) return FATHOM_OK;
  return api_fail(FATHOM_INVALID, "the sequence is in a call of another thread\n"
                                  "  hint: give each thread a sequence of its own");
}

static void leave(fathom_sequence *sequence) {
  atomic_flag_clear(&sequence->busy);
}

static fathom_status run_alone(fathom_sequence *sequence, api_body body, void *frame) {
  fathom_status status = enter(sequence);
  if (status != FATHOM_OK) return status;
  status = api_call_run(sequence->model->context, body, frame);
  leave(sequence);
  return status;
}

typedef struct workspace_frame {
  fathom_sequence *sequence;
  int64_t rows;
  uint32_t workers;
  size_t bytes;
} workspace_frame;

static fathom_status workspace_body(api_call *call, void *opaque) {
  workspace_frame *frame = opaque;
  size_t buffers;
  if (frame->rows < 0)
    return api_fail(FATHOM_INVALID, "%lld rows: expected 0 or more", (long long)frame->rows);
  if (frame->sequence->next > 0)
    return api_fail(FATHOM_INVALID, "the sequence is under way\n  hint: ask before it begins");
  return lay_out(call, frame->sequence, frame->rows, frame->workers, &buffers, &frame->bytes)
             ? FATHOM_OK
             : FATHOM_INVALID;
}

fathom_status fathom_sequence_workspace(const fathom_sequence *sequence, int64_t rows,
                                        const fathom_executor *executor, size_t *bytes) {
  api_error_clear();
  API_REQUIRE(sequence);
  API_REQUIRE(bytes);
  *bytes = 0;
  // What is changed is room to work in, which the flag guards.
  workspace_frame frame = {.sequence = (fathom_sequence *)sequence, .rows = rows};
  api_executor read;
  fathom_status status = api_executor_read(sequence->model->context,
                                           sequence->model->kernels[0]->kind, executor, &read);
  if (status != FATHOM_OK) return status;
  frame.workers = read.host.concurrency;
  status = run_alone(frame.sequence, workspace_body, &frame);
  if (status == FATHOM_OK) *bytes = frame.bytes;
  return status;
}

// ---- steps --------------------------------------------------------------------------------------

typedef struct step_frame {
  fathom_sequence *sequence;
  uint32_t step;
  const DLTensor *const *given; // the embedding, or addends
  uint32_t given_count;
  const fathom_site_outputs *outputs;
  void *workspace; // the first step's
  size_t workspace_bytes;
  const fathom_executor *executor;
} step_frame;

static bool launch(api_call *call, fathom_sequence *sequence, const rt_depth_run *run,
                   const rt_depth_memory *memory) {
  const fathom_executable *executable = sequence->model->kernels[run->kernel];
  char *area = sequence->workspace != NULL ? sequence->workspace + sequence->kernel_area : NULL;
  rt_depth_tensors(run, executable->program, memory, sequence->tensors, sequence->slices);
  fill_sizes(executable->program, memory->rows, sequence->sizes);
  if (executable->kind == API_INTERP)
    return api_interpret(call, executable, sequence->tensors, sequence->sizes) == FATHOM_OK;
  if (executable->loaded == NULL) {
    rt_launch(api_program_for(executable, sequence->sizes), sequence->tensors, sequence->sizes,
              &sequence->executor.host, area);
    return true;
  }
  if (sequence->traffic != NULL)
    memset(sequence->traffic, 0, sequence->model->max_slots * sizeof *sequence->traffic);
  const bool good =
      rt_device_run(api_loaded_for(executable, sequence->sizes), sequence->tensors, sequence->sizes,
                    sequence->executor.stream, area, sequence->traffic, &call->diag) == BASE_OK;
  if (good && sequence->traffic != NULL)
    sequence->report(sequence->report_user, (uint32_t)(run - sequence->model->depth.runs),
                     executable->program, sequence->traffic);
  return good;
}

// Nothing that the host gives may overlap what is written, the workspace among it. What lies within that was
// checked when it was planned.
static bool check_apart(api_call *call, const fathom_sequence *sequence, uint32_t step,
                        const rt_tensor *inputs, uint32_t input_count, const rt_tensor *outputs) {
  enum { MOST = MODEL_MAX_ADDENDS + API_OUTPUT_COUNT + 1 };
  const size_t all = sequence->kernel_area + sequence->known_bytes;
  rt_tensor tensors[MOST];
  int64_t sizes[API_HOST_AXES];
  uint32_t count = 0;
  for (uint32_t i = 0; i < input_count; i++)
    tensors[count++] = inputs[i];
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++)
    if (outputs[i].rank != api_no_output) tensors[count++] = outputs[i];
  tensors[count] = (rt_tensor){.dtype = RT_F32, .rank = 1, .data = sequence->workspace};
  tensors[count].shape[0] = (int64_t)(all / sizeof(float));
  tensors[count].strides[0] = 1;
  return rt_bind(&sequence->model->host_programs[step], tensors, sizes, &call->diag) == BASE_OK;
}

static bool take_addends(api_call *call, const step_frame *frame, rt_tensor *inputs,
                         int64_t *rows) {
  static const char *const names[] = {"addends[0]", "addends[1]"};
  const fathom_model *model = frame->sequence->model;
  const uint32_t wanted = frame->step > 0 ? model->addends[frame->step - 1] : 1;
  if (frame->given_count != wanted) {
    base_error(&call->diag, nowhere, "site %u: sublayer %u gives %u tensors, found %u", frame->step,
               frame->step - 1, wanted, frame->given_count);
    base_hint(&call->diag, "'addends' in the model's description says how many");
    return false;
  }
  bool good = true;
  for (uint32_t i = 0; i < wanted; i++)
    good &= api_tensor_take(call, model, frame->step == 0 ? "embedding" : names[i], &model->row,
                            frame->given[i], rows, &inputs[i]);
  return good;
}

static bool check_workspace(api_call *call, const step_frame *frame, size_t needed) {
  if (frame->workspace == NULL && needed > 0)
    base_error(&call->diag, nowhere, "the workspace is NULL, expected %zu bytes", needed);
  else if (frame->workspace_bytes < needed)
    base_error(&call->diag, nowhere, "the workspace has %zu bytes, expected %zu",
               frame->workspace_bytes, needed);
  else if ((uintptr_t)frame->workspace % RT_DEPTH_ALIGNMENT != 0)
    base_error(&call->diag, nowhere, "the workspace is not aligned to %d bytes",
               RT_DEPTH_ALIGNMENT);
  else
    return true;
  base_hint(&call->diag, "ask fathom_sequence_workspace, with the same rows and executor");
  return false;
}

static bool check_bound(api_call *call, const fathom_model *model) {
  uint32_t missing = 0, first = 0;
  for (uint32_t i = model->param_count; i-- > 1;)
    if (model->params[i].rank == api_unbound) {
      first = i;
      missing++;
    }
  if (missing == 0) return true;
  base_error(&call->diag, nowhere, "%u parameters are not bound, the first is '%s'", missing,
             model->param_types[first].name);
  base_hint(&call->diag, "bind them with fathom_model_bind");
  return false;
}

// The first step also decides rows, workspace and executor. On failure nothing of it is kept.
static bool begin(api_call *call, const step_frame *frame, int64_t rows) {
  fathom_sequence *sequence = frame->sequence;
  size_t needed;
  if (!check_bound(call, sequence->model)) return false;
  if (api_executor_read(sequence->model->context, sequence->model->kernels[0]->kind,
                        frame->executor, &sequence->executor) != FATHOM_OK)
    return false;
  if (!lay_out(call, sequence, rows, sequence->executor.host.concurrency, &sequence->kernel_area,
               &needed) ||
      !check_workspace(call, frame, needed))
    return false;
  sequence->workspace = frame->workspace;
  sequence->rows = rows;
  return true;
}

static fathom_status step_body(api_call *call, void *opaque) {
  step_frame *frame = opaque;
  fathom_sequence *sequence = frame->sequence;
  const rt_depth *depth = &sequence->model->depth;
  rt_tensor inputs[MODEL_MAX_ADDENDS], outputs[API_OUTPUT_COUNT];
  int64_t rows = frame->step > 0 ? sequence->rows : -1;
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++)
    outputs[i].rank = api_no_output;
  if (!take_addends(call, frame, inputs, &rows) ||
      !take_outputs(call, sequence, frame->step, frame->outputs, rows, outputs) ||
      (frame->step == 0 && !begin(call, frame, rows)))
    return FATHOM_INVALID;
  if (!check_apart(call, sequence, frame->step, inputs, frame->given_count, outputs))
    return FATHOM_INVALID;
  const rt_depth_memory memory = {.params = sequence->model->params,
                                  .inputs = inputs,
                                  .outputs = outputs,
                                  .workspace = sequence->workspace,
                                  .offsets = sequence->offsets,
                                  .rows = rows};
  for (uint32_t i = depth->first_run[frame->step]; i < depth->first_run[frame->step + 1]; i++)
    if (!launch(call, sequence, &depth->runs[i], &memory)) return FATHOM_INVALID;
  sequence->next = frame->step + 1;
  return FATHOM_OK;
}

static fathom_status out_of_order(const fathom_sequence *sequence, uint32_t step) {
  const uint32_t last = sequence->model->info.sublayers, next = sequence->next;
  if (next == 0)
    return api_fail(FATHOM_INVALID,
                    "site %u: the sequence has not begun\n"
                    "  hint: call fathom_sequence_begin, with the embedding",
                    step);
  if (step == 0)
    return api_fail(FATHOM_INVALID,
                    "begin: the sequence is under way, site %u of %u is next\n"
                    "  hint: go on to fathom_sequence_end, or give up with fathom_sequence_reset",
                    next, last);
  if (step == last)
    return api_fail(FATHOM_INVALID,
                    "end: site %u is next, and sites up to %u come before the end\n"
                    "  hint: call fathom_sequence_site for each of them",
                    next, last - 1);
  return api_fail(FATHOM_INVALID,
                  "site %u: expected site %u, which is next\n"
                  "  hint: sites come in order, each once",
                  step, next);
}

static fathom_status take_step(step_frame *frame) {
  fathom_sequence *sequence = frame->sequence;
  fathom_model *model = sequence->model;
  fathom_status status = enter(sequence);
  if (status != FATHOM_OK) return status;
  if (frame->step != sequence->next) {
    status = out_of_order(sequence, frame->step);
  } else {
    if (frame->step == 0) model->under_way++;
    status = api_call_run(model->context, step_body, frame);
    const bool over = sequence->next == model->depth.step_count;
    if (over || sequence->next == 0) {
      model->under_way--;
      sequence->next = 0;
    }
  }
  leave(sequence);
  return status;
}

fathom_status fathom_sequence_begin(fathom_sequence *sequence, const DLTensor *embedding,
                                    const fathom_site_outputs *outputs, void *workspace,
                                    size_t workspace_bytes, const fathom_executor *executor) {
  api_error_clear();
  API_REQUIRE(sequence);
  API_REQUIRE(outputs);
  step_frame frame = {.sequence = sequence,
                      .given = &embedding,
                      .given_count = 1,
                      .outputs = outputs,
                      .workspace = workspace,
                      .workspace_bytes = workspace_bytes,
                      .executor = executor};
  return take_step(&frame);
}

fathom_status fathom_sequence_site(fathom_sequence *sequence, uint32_t site,
                                   const DLTensor *const *addends, uint32_t addend_count,
                                   const fathom_site_outputs *outputs) {
  api_error_clear();
  API_REQUIRE(sequence);
  API_REQUIRE(outputs);
  if (addend_count > 0) API_REQUIRE(addends);
  if (site == 0 || site >= sequence->model->info.sublayers)
    return api_fail(FATHOM_INVALID, "site %u: sites between begin and end are 1 to %u", site,
                    sequence->model->info.sublayers - 1);
  step_frame frame = {.sequence = sequence,
                      .step = site,
                      .given = addends,
                      .given_count = addend_count,
                      .outputs = outputs};
  return take_step(&frame);
}

fathom_status fathom_sequence_end(fathom_sequence *sequence, const DLTensor *const *addends,
                                  uint32_t addend_count, const fathom_site_outputs *outputs) {
  api_error_clear();
  API_REQUIRE(sequence);
  API_REQUIRE(outputs);
  if (addend_count > 0) API_REQUIRE(addends);
  step_frame frame = {.sequence = sequence,
                      .step = sequence->model->info.sublayers,
                      .given = addends,
                      .given_count = addend_count,
                      .outputs = outputs};
  return take_step(&frame);
}

fathom_status fathom_sequence_reset(fathom_sequence *sequence) {
  api_error_clear();
  API_REQUIRE(sequence);
  fathom_status status = enter(sequence);
  if (status != FATHOM_OK) return status;
  if (sequence->next > 0) sequence->model->under_way--;
  sequence->next = 0;
  leave(sequence);
  return FATHOM_OK;
}

// ---- making one ---------------------------------------------------------------------------------

typedef struct create_frame {
  fathom_model *model;
  fathom_sequence *sequence;
} create_frame;

static fathom_status create_body(api_call *call, void *opaque) {
  create_frame *frame = opaque;
  const fathom_model *model = frame->model;
  uint32_t axes = 0;
  for (uint32_t i = 0; i < model->depth.kernel_count; i++)
    if (model->kernels[i]->program->axis_count > axes)
      axes = model->kernels[i]->program->axis_count;
  fathom_sequence *sequence = frame->sequence = api_object_create(call, sizeof *sequence);
  base_arena *arena = &sequence->arena;
  sequence->model = frame->model;
  sequence->known_rows = -1;
  atomic_flag_clear(&sequence->busy);
  sequence->offsets = base_new_array(arena, size_t, model->depth.buffer_count + 1);
  sequence->tensors = base_new_array(arena, rt_tensor, model->max_slots + 1);
  sequence->slices = base_new_array(arena, char *, model->max_slices + 1);
  sequence->sizes = base_new_array(arena, int64_t, axes + 1);
  return FATHOM_OK;
}

fathom_status fathom_sequence_create(fathom_model *model, fathom_sequence **out) {
  api_error_clear();
  API_REQUIRE(model);
  API_REQUIRE(out);
  *out = NULL;
  create_frame frame = {.model = model};
  const fathom_status status = api_call_run(model->context, create_body, &frame);
  if (status != FATHOM_OK) {
    api_object_destroy(frame.sequence);
    return status;
  }
  api_object_keep(frame.sequence);
  *out = frame.sequence;
  return FATHOM_OK;
}

void fathom_sequence_destroy(fathom_sequence *sequence) {
  if (sequence != NULL && sequence->next > 0) sequence->model->under_way--;
  api_object_destroy(sequence);
}

void api_sequence_count(fathom_sequence *sequence, api_traffic_report report, void *user) {
  const uint32_t slots = sequence->model->max_slots + 1;
  // Not freed before the sequence is: it is asked for once.
  sequence->traffic = report != NULL ? base_new_array(&sequence->arena, rt_traffic, slots) : NULL;
  sequence->report = report;
  sequence->report_user = user;
}
