// A host that runs a model: mix sites before each of its sublayers, prefill in chunks and decode token by
// token, and the same from a bundle.
//
//   host [MODEL]     the name of a model that comes with Fathom, a .yaml or a .fathom file (default: gpt-small)
//
// The sublayers here are stand-ins, each a rotation of its input's channels; an attention and an MLP go in their
// place.
#include <fathom.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(fathom_status status) {
  if (status == FATHOM_OK) return;
  fprintf(stderr, "%s: %s\n", fathom_status_name(status), fathom_error_text());
  exit(1);
}

static void *allocate(size_t bytes) {
  void *memory = aligned_alloc(128, (bytes + 127) / 128 * 128 + 128);
  if (memory == NULL) exit(1);
  return memory;
}

// ---- tensors ------------------------------------------------------------------------------------

// [rows, hidden] of the model's dtype, which is of two bytes or of four.
typedef struct rows_of {
  DLTensor tensor;
  int64_t shape[2];
} rows_of;

static DLDataType dlpack_of(fathom_dtype dtype) {
  if (dtype == FATHOM_BF16) return (DLDataType){kDLBfloat, 16, 1};
  return (DLDataType){kDLFloat, dtype == FATHOM_F16 ? 16 : 32, 1};
}

static void make_rows(rows_of *r, const fathom_model_info *info, int64_t rows, void *data) {
  r->shape[0] = rows;
  r->shape[1] = info->hidden;
  r->tensor = (DLTensor){.data = data,
                         .device = {kDLCPU, 0},
                         .ndim = 2,
                         .dtype = dlpack_of(info->dtype),
                         .shape = r->shape};
}

static size_t row_bytes(const fathom_model_info *info) {
  return (size_t)info->hidden * (info->dtype == FATHOM_F32 ? 4 : 2);
}

// ---- parameters ---------------------------------------------------------------------------------

static uint32_t random_bits(void) {
  static uint32_t state = 1;
  return state = state * 1664525u + 1013904223u;
}

static float random_number(void) {
  return (float)(random_bits() >> 8) / (float)(1 << 23) - 1.0f;
}

// A number in a dtype's bits: bf16 is the upper half of an f32. (An f16 host would convert.)
static void put(void *data, fathom_dtype dtype, size_t index, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == FATHOM_BF16)
    ((uint16_t *)data)[index] = (uint16_t)(bits >> 16);
  else
    ((float *)data)[index] = value;
}

// Random queries, gains of one; a host has those of a checkpoint.
static void bind_parameters(fathom_model *model, const fathom_model_info *info) {
  for (uint32_t i = 0; i < info->param_count; i++) {
    fathom_tensor_info param = FATHOM_INIT(param);
    must(fathom_model_param(model, i, &param));
    size_t count = 1;
    for (uint32_t j = 0; j < param.rank; j++)
      count *= (size_t)param.sizes[j];
    void *data = allocate(count * 4); // the host's for as long as the model is used
    const int gain = strstr(param.name, "gain") != NULL;
    for (size_t j = 0; j < count; j++)
      put(data, param.dtype, j, gain ? 1.0f : 0.1f * random_number());
    const DLTensor tensor = {.data = data,
                             .device = {kDLCPU, 0},
                             .ndim = (int)param.rank,
                             .dtype = dlpack_of(param.dtype),
                             .shape = param.sizes};
    const fathom_arg arg = {.name = param.name, .tensor = &tensor};
    must(fathom_model_bind(model, &arg, 1));
  }
}

// ---- the network --------------------------------------------------------------------------------

static void run_sublayer(uint32_t sublayer, const fathom_model_info *info, int64_t rows,
                         const char *x, char *f) {
  const size_t row = row_bytes(info), element = row / (size_t)info->hidden;
  const size_t turn = (sublayer % (size_t)info->hidden) * element;
  for (int64_t t = 0; t < rows; t++, x += row, f += row) {
    memcpy(f, x + turn, row - turn);
    memcpy(f + row - turn, x, turn);
  }
}

// `rows` tokens through the whole depth: embeddings to outputs.
static void run_depth(fathom_model *model, fathom_sequence *sequence, int64_t rows, void *embedding,
                      void *output) {
  fathom_model_info info = FATHOM_INIT(info);
  must(fathom_model_get_info(model, &info));
  size_t bytes;
  must(fathom_sequence_workspace(sequence, rows, NULL, &bytes));
  void *workspace = allocate(bytes), *x = allocate((size_t)rows * row_bytes(&info));
  void *f = allocate((size_t)rows * row_bytes(&info));
  rows_of given, input, added, last;
  make_rows(&given, &info, rows, embedding);
  make_rows(&input, &info, rows, x);
  make_rows(&added, &info, rows, f);
  make_rows(&last, &info, rows, output);
  const DLTensor *addends[] = {&added.tensor, &added.tensor}; // the second, where there are two
  fathom_site_outputs outputs = FATHOM_INIT(outputs);
  outputs.input = &input.tensor;
  must(fathom_sequence_begin(sequence, &given.tensor, &outputs, workspace, bytes, NULL));
  for (uint32_t site = 1; site <= info.sublayers; site++) {
    const uint32_t count = fathom_model_addends(model, site - 1);
    run_sublayer(site - 1, &info, rows, x, f);
    if (site < info.sublayers) {
      must(fathom_sequence_site(sequence, site, addends, count, &outputs));
    } else {
      outputs.input = &last.tensor;
      must(fathom_sequence_end(sequence, addends, count, &outputs));
    }
  }
  free(f);
  free(x);
  free(workspace);
}

int main(int argc, char **argv) {
  enum { TOKENS = 13, CHUNK = 5 };
  fathom_context *context;
  fathom_model *model;
  fathom_sequence *sequence;
  must(fathom_context_create(NULL, &context));
  must(fathom_model_open(context, argc > 1 ? argv[1] : "gpt-small", NULL, &model));
  fathom_model_info info = FATHOM_INIT(info);
  must(fathom_model_get_info(model, &info));
  printf("%s: %u sublayers, hidden size %lld, %u kernels for %s, ready after %.0f ms\n", info.name,
         info.sublayers, (long long)info.hidden, info.kernel_count, info.target,
         info.compile_us * 1e-3);
  bind_parameters(model, &info);
  must(fathom_sequence_create(model, &sequence));

  const size_t row = row_bytes(&info);
  char *embedding = allocate(TOKENS * row), *whole = allocate(TOKENS * row);
  char *pieces = allocate(TOKENS * row);
  for (size_t i = 0; i < TOKENS * (size_t)info.hidden; i++)
    put(embedding, info.dtype, i, random_number());

  run_depth(model, sequence, TOKENS, embedding, whole); // prefill in one go
  for (int64_t t = 0; t < TOKENS;) {                    // in chunks, then token by token
    const int64_t rows = t < 2 * CHUNK ? CHUNK : 1;
    run_depth(model, sequence, rows, embedding + (size_t)t * row, pieces + (size_t)t * row);
    t += rows;
  }
  const int same = memcmp(whole, pieces, TOKENS * row) == 0;
  printf("%d tokens at once, and in chunks of %d and then one by one: %s\n", TOKENS, CHUNK,
         same ? "the same bits" : "different");
  fathom_sequence_destroy(sequence);
  fathom_model_destroy(model);
  fathom_context_destroy(context);
  return same ? 0 : 1;
}
