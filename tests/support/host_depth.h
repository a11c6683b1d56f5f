// A host of small models: random parameters, tokens and outputs of sublayers, and the calls of a sequence
// with them, which a test may spoil before it makes them. Dtype f32 throughout (fp8 inputs besides).
// Include it instead of cmocka.h.
#ifndef FATHOM_TESTS_HOST_DEPTH_H
#define FATHOM_TESTS_HOST_DEPTH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "fathom.h"

enum {
  HOST_D = 32,
  HOST_SITES = 8, // at most, and so on
  HOST_ROWS = 9,
  HOST_SOURCES = 6,
  HOST_HEADS = 4,
  HOST_OUTPUTS = 5,                       // input, weights, entropy, mix, scale
  HOST_TENSORS = 2 + HOST_OUTPUTS,        // addends before them
  HOST_AREA = 2 * HOST_ROWS * HOST_D * 4, // bytes of a tensor, however it lies
  HOST_GUARD = 256,
  HOST_UNTOUCHED = 0x5c,
};

// ---- models -------------------------------------------------------------------------------------

typedef struct host_model {
  fathom_model *model;
  fathom_model_info info;
  float **params; // by number; at uneven distances
} host_model;

static inline float host_random(uint64_t *state) {
  return (float)((double)(base_random(state) >> 40) / (1 << 23) - 1);
}

static inline size_t host_elements(const fathom_tensor_info *info) {
  size_t count = 1;
  for (uint32_t i = 0; i < info->rank; i++)
    count *= (size_t)info->sizes[i];
  return count;
}

// Numbers between two parameters: lists of them are no single tensor by chance.
static inline size_t host_gap(uint32_t param) {
  return param * param % 7;
}

// Random parameters, the same for every model of that description.
static inline void host_bind(host_model *h) {
  uint64_t random = 11;
  h->info = (fathom_model_info)FATHOM_INIT(h->info);
  assert_int_equal(fathom_model_get_info(h->model, &h->info), FATHOM_OK);
  h->params = calloc(h->info.param_count + 1, sizeof *h->params);
  for (uint32_t i = 0; i < h->info.param_count; i++) {
    fathom_tensor_info info = FATHOM_INIT(info);
    assert_int_equal(fathom_model_param(h->model, i, &info), FATHOM_OK);
    h->params[i] =
        (float *)malloc((host_gap(i) + host_elements(&info) + 1) * sizeof(float)) + host_gap(i);
    for (size_t j = 0; j < host_elements(&info); j++)
      h->params[i][j] = host_random(&random);
    const DLTensor tensor = {.data = h->params[i],
                             .device = {kDLCPU, 0},
                             .ndim = (int32_t)info.rank,
                             .dtype = {kDLFloat, 32, 1},
                             .shape = info.sizes};
    const fathom_arg arg = {.name = info.name, .tensor = &tensor};
    if (fathom_model_bind(h->model, &arg, 1) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  }
}

// The name of a file with the text.
static inline void host_write(const char *text, size_t length, const char *ending, char *path,
                              size_t room) {
  snprintf(path, room, "host.XXXXXX%s", ending);
  const int fd = mkstemps(path, (int)strlen(ending));
  assert_true(fd >= 0 && write(fd, text, length) == (ssize_t)length);
  close(fd);
  memmove(path + 2, path, strlen(path) + 1); // a path has a '/'
  memcpy(path, "./", 2);
}

static inline void host_open(fathom_context *context, const char *yaml, fathom_phases phases,
                             uint32_t outputs, host_model *h) {
  char path[64];
  fathom_model_options options = FATHOM_INIT(options);
  options.phases = phases;
  options.outputs = outputs;
  host_write(yaml, strlen(yaml), ".yaml", path, sizeof path - 2);
  const fathom_status status = fathom_model_open(context, path, &options, &h->model);
  unlink(path);
  if (status != FATHOM_OK) fail_msg("%s", fathom_error_text());
  host_bind(h);
}

static inline void host_close(host_model *h) {
  for (uint32_t i = 0; i < h->info.param_count; i++)
    free(h->params[i] - host_gap(i));
  free(h->params);
  fathom_model_destroy(h->model);
}

// ---- tokens -------------------------------------------------------------------------------------

typedef struct host_tokens {
  int64_t rows;
  float given[HOST_SITES][2][HOST_ROWS * HOST_D]; // of site 0 the embedding
} host_tokens;

typedef struct host_results {
  char out[HOST_SITES][HOST_OUTPUTS][HOST_ROWS * HOST_D * 4]; // dense
} host_results;

static inline void host_make_tokens(host_tokens *tokens, int64_t rows, uint64_t seed) {
  tokens->rows = rows;
  for (uint32_t s = 0; s < HOST_SITES; s++)
    for (uint32_t i = 0; i < 2; i++)
      for (uint32_t j = 0; j < HOST_ROWS * HOST_D; j++)
        tokens->given[s][i][j] = host_random(&seed);
}

// ---- calls --------------------------------------------------------------------------------------

typedef enum host_layout {
  HOST_DENSE,
  HOST_PADDED,     // gaps between rows, and between numbers of tensors without D
  HOST_TRANSPOSED, // the other way round where there is no D
  HOST_BACKWARDS,  // the last token first
  HOST_LAYOUTS
} host_layout;

typedef struct host_call {
  const host_model *host;
  fathom_sequence *sequence;
  uint32_t site, given_count;
  DLTensor tensors[HOST_TENSORS]; // addends, outputs
  bool there[HOST_TENSORS];
  int64_t shapes[HOST_TENSORS][3], strides[HOST_TENSORS][3];
  const DLTensor *given[3];
  fathom_site_outputs outputs;
  char *workspace; // with a guard behind it
  size_t workspace_bytes;
  const fathom_executor *executor;
  char areas[HOST_TENSORS][HOST_AREA];
} host_call;

static inline size_t host_element(const DLTensor *tensor) {
  return tensor->dtype.bits / 8u;
}

static inline void host_lay(host_call *call, uint32_t index, uint32_t rank, const int64_t *shape,
                            DLDataType dtype, host_layout layout) {
  int64_t *strides = call->strides[index], stride = 1;
  const bool split = call->host->info.heads > 1, channels = rank == 2 && shape[1] == HOST_D;
  const uint32_t heads = split && !channels && rank > 1;
  const bool apart = layout == HOST_PADDED && !channels && !heads; // no two numbers side by side
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t axis = rank - 1 - i;
    if (layout == HOST_TRANSPOSED && !channels && i >= heads) axis = i - heads; // but heads
    call->shapes[index][axis] = shape[axis];
    if (i == 0 && apart) stride = 2;
    strides[axis] = stride;
    stride *= shape[axis] > 0 ? shape[axis] : 1;
    if (layout != HOST_DENSE) stride += 3;
  }
  char *data = call->areas[index];
  const uint32_t tokens = rank - 1 - heads - channels;
  if (layout == HOST_BACKWARDS && shape[tokens] > 0) {
    data += strides[tokens] * (shape[tokens] - 1) * (dtype.bits / 8);
    strides[tokens] = -strides[tokens];
  }
  call->there[index] = true;
  call->tensors[index] = (DLTensor){.data = data,
                                    .device = {kDLCPU, 0},
                                    .ndim = (int32_t)rank,
                                    .dtype = dtype,
                                    .shape = call->shapes[index],
                                    .strides = strides};
}

// Copies between a tensor and a dense array, or fills the tensor (dense NULL).
static inline void host_copy(const DLTensor *tensor, char *dense, bool out) {
  const size_t element = host_element(tensor);
  int64_t size[3] = {1, 1, 1}, stride[3] = {0};
  size_t at = 0;
  for (int32_t i = 0; i < tensor->ndim; i++) {
    size[i] = tensor->shape[i];
    stride[i] = tensor->strides[i];
  }
  for (int64_t i = 0; i < size[0]; i++)
    for (int64_t j = 0; j < size[1]; j++)
      for (int64_t k = 0; k < size[2]; k++, at += element) {
        char *place = (char *)tensor->data +
                      (i * stride[0] + j * stride[1] + k * stride[2]) * (int64_t)element;
        if (dense == NULL)
          memset(place, HOST_UNTOUCHED, element);
        else if (out)
          memcpy(dense + at, place, element);
        else
          memcpy(place, dense + at, element);
      }
}

// The right call for a site.
static inline void host_prepare(host_call *call, const host_tokens *tokens, uint32_t site,
                                host_layout layout) {
  static const DLDataType f32 = {kDLFloat, 32, 1}, f8 = {10, 8, 1};
  const host_model *h = call->host;
  const int64_t rows = tokens->rows, heads = h->info.heads;
  const int64_t row[] = {rows, HOST_D}, token[] = {rows, heads};
  const int64_t weights[] = {fathom_model_sources(h->model, site), rows, heads};
  const uint32_t split = heads > 1, asked = h->info.outputs;
  const bool fp8 = (asked & FATHOM_OUTPUT_FP8) && site < h->info.sublayers;
  call->site = site;
  call->given_count = site == 0 ? 1 : fathom_model_addends(h->model, site - 1);
  memset(call->areas, HOST_UNTOUCHED, sizeof call->areas);
  memset(call->there, 0, sizeof call->there);
  for (uint32_t i = 0; i < call->given_count; i++) {
    host_lay(call, i, 2, row, f32, layout);
    host_copy(&call->tensors[i], (char *)tokens->given[site][i], false);
    call->given[i] = &call->tensors[i];
  }
  DLTensor *out = call->tensors + 2;
  call->outputs = (fathom_site_outputs)FATHOM_INIT(call->outputs);
  host_lay(call, 2, 2, row, fp8 ? f8 : f32, layout);
  call->outputs.input = &out[0];
  if (asked & FATHOM_OUTPUT_WEIGHTS) host_lay(call, 3, 2 + split, weights, f32, layout);
  if (asked & FATHOM_OUTPUT_ENTROPY) host_lay(call, 4, 1 + split, token, f32, layout);
  if (asked & FATHOM_OUTPUT_MIX) host_lay(call, 5, 2, row, f32, layout);
  if (fp8) host_lay(call, 6, 1, token, f32, layout);
  if (call->there[3]) call->outputs.weights = &out[1];
  if (call->there[4]) call->outputs.entropy = &out[2];
  if (call->there[5]) call->outputs.mix = &out[3];
  if (call->there[6]) call->outputs.scale = &out[4];
}

static inline fathom_status host_make(const host_call *call) {
  if (call->site == 0)
    return fathom_sequence_begin(call->sequence, call->given[0], &call->outputs, call->workspace,
                                 call->workspace_bytes, call->executor);
  if (call->site == call->host->info.sublayers)
    return fathom_sequence_end(call->sequence, call->given, call->given_count, &call->outputs);
  return fathom_sequence_site(call->sequence, call->site, call->given, call->given_count,
                              &call->outputs);
}

// Takes the results of a call that was right, and looks whether anything else was written.
static inline void host_take(host_call *call, host_results *results) {
  for (uint32_t i = 0; i < HOST_OUTPUTS; i++) {
    if (!call->there[2 + i]) continue;
    host_copy(&call->tensors[2 + i], results->out[call->site][i], true);
    host_copy(&call->tensors[2 + i], NULL, false);
    for (uint32_t j = 0; j < HOST_AREA; j++)
      if (call->areas[2 + i][j] != HOST_UNTOUCHED)
        fail_msg("site %u, output %u: byte %u beside it was written", call->site, i, j);
  }
  for (uint32_t i = 0; i < HOST_GUARD; i++)
    if (call->workspace[call->workspace_bytes + i] != HOST_UNTOUCHED)
      fail_msg("site %u wrote byte %u behind the workspace", call->site, i);
}

static inline void host_call_begin(host_call *call, const host_model *h, fathom_sequence *sequence,
                                   int64_t rows, const fathom_executor *executor) {
  memset(call, 0, sizeof *call);
  call->host = h;
  call->sequence = sequence;
  call->executor = executor;
  if (fathom_sequence_workspace(sequence, rows, executor, &call->workspace_bytes) != FATHOM_OK)
    fail_msg("%s", fathom_error_text());
  const size_t room = (call->workspace_bytes + HOST_GUARD + 127) / 128 * 128;
  call->workspace = aligned_alloc(128, room);
  memset(call->workspace, HOST_UNTOUCHED, room);
}

static inline void host_call_end(host_call *call) {
  free(call->workspace);
}

// All sites of the tokens, as they should be called.
static inline void host_run(const host_model *h, fathom_sequence *sequence,
                            const host_tokens *tokens, host_layout layout,
                            const fathom_executor *executor, host_results *results) {
  host_call *call = malloc(sizeof *call);
  host_call_begin(call, h, sequence, tokens->rows, executor);
  memset(results, 0, sizeof *results);
  for (uint32_t s = 0; s < h->info.sites; s++) {
    host_prepare(call, tokens, s, layout);
    if (host_make(call) != FATHOM_OK) fail_msg("site %u: %s", s, fathom_error_text());
    host_take(call, results);
  }
  host_call_end(call);
  free(call);
}

static inline void host_assert_equal(const host_results *a, const host_results *b) {
  for (uint32_t s = 0; s < HOST_SITES; s++)
    for (uint32_t i = 0; i < HOST_OUTPUTS; i++)
      if (memcmp(a->out[s][i], b->out[s][i], sizeof a->out[s][i]) != 0)
        fail_msg("site %u, output %u: other bits", s, i);
}

static inline void host_assert_says(const char *words) {
  if (strstr(fathom_error_text(), words) == NULL)
    fail_msg("expected '%s' in: %s", words, fathom_error_text());
}

#endif
