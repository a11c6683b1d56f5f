// tensors: arrays of .npy files to memory in the layout a type asks for, and back. Elements are
// converted on the way, with round to nearest even.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

// ---- elements -----------------------------------------------------------------------------------

static uint16_t bf16_from_f32(uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); // NaN stays NaN
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t f16_from_f32(uint32_t bits) {
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and more round to infinity
  if (magnitude < 0x38800000) {
    // Subnormal in f16: in [0.5, 1) the last place of an f32 is 2^-24, that of a subnormal f16, so
    // the addition rounds.
    float sum, value, half = 0.5f;
    uint32_t sum_bits, half_bits;
    memcpy(&value, &magnitude, sizeof value);
    sum = value + half;
    memcpy(&sum_bits, &sum, sizeof sum);
    memcpy(&half_bits, &half, sizeof half);
    return (uint16_t)(sign | (sum_bits - half_bits));
  }
  magnitude += 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | (magnitude - (112u << 23)) >> 13); // exponent bias 127 to 15
}

// ---- rows ---------------------------------------------------------------------------------------
// Steps are in bytes.

typedef void (*row_copy)(const char *from, int64_t from_step, char *to, int64_t to_step,
                         int64_t count);

#define ROW_COPY(NAME, FROM, TO, EXPRESSION)                                                       \
  static void NAME(const char *from, int64_t from_step, char *to, int64_t to_step,                 \
                   int64_t count) {                                                                \
    for (int64_t i = 0; i < count; i++, from += from_step, to += to_step) {                        \
      FROM x;                                                                                      \
      memcpy(&x, from, sizeof x);                                                                  \
      TO y = EXPRESSION;                                                                           \
      memcpy(to, &y, sizeof y);                                                                    \
    }                                                                                              \
  }

ROW_COPY(copy_word, uint32_t, uint32_t, x)
ROW_COPY(copy_half, uint16_t, uint16_t, x)
ROW_COPY(narrow_bf16, uint32_t, uint16_t, bf16_from_f32(x))
ROW_COPY(narrow_f16, uint32_t, uint16_t, f16_from_f32(x))
ROW_COPY(widen_bf16, uint16_t, uint32_t, (uint32_t)x << 16)

// What a parameter of each dtype accepts.
static const struct {
  fathom_dtype dtype;
  npy_type type;
  row_copy copy;
} loads[] = {
    {FATHOM_F32, NPY_F4, copy_word},  {FATHOM_BF16, NPY_F4, narrow_bf16},
    {FATHOM_BF16, NPY_U2, copy_half}, {FATHOM_BF16, NPY_V2, copy_half},
    {FATHOM_F16, NPY_F4, narrow_f16}, {FATHOM_F16, NPY_F2, copy_half},
};
enum { LOAD_COUNT = sizeof loads / sizeof *loads };

// How a result of each dtype is written.
typedef struct saving {
  npy_type type;
  row_copy copy;
} saving;
static const saving saves[] = {
    [FATHOM_F32] = {NPY_F4, copy_word},
    [FATHOM_BF16] = {NPY_F4, widen_bf16},
    [FATHOM_F16] = {NPY_F2, copy_half},
};
static const saving bits_of_bf16 = {NPY_U2, copy_half};

static int64_t dtype_bytes(fathom_dtype dtype) {
  return dtype == FATHOM_F32 ? 4 : 2;
}

// One side of a copy: memory and the strides of each axis, in bytes.
typedef struct side {
  char *data;
  int64_t strides[FATHOM_MAX_RANK];
} side;

static side side_of(void *data, const int64_t *strides, uint32_t rank, int64_t element) {
  side made = {.data = data};
  for (uint32_t i = 0; i < rank; i++)
    made.strides[i] = strides[i] * element;
  return made;
}

// Copies the axes from `axis` on; the last one is a row.
static void copy_axes(uint32_t axis, uint32_t rank, const int64_t *shape, const side *from,
                      const side *to, row_copy copy) {
  if (axis == rank) {
    copy(from->data, 0, to->data, 0, 1);
  } else if (axis + 1 == rank) {
    copy(from->data, from->strides[axis], to->data, to->strides[axis], shape[axis]);
  } else {
    side source = *from, target = *to;
    for (int64_t i = 0; i < shape[axis]; i++) {
      copy_axes(axis + 1, rank, shape, &source, &target, copy);
      source.data += from->strides[axis];
      target.data += to->strides[axis];
    }
  }
}

// ---- tensors ------------------------------------------------------------------------------------

static DLDataType dlpack_type(fathom_dtype dtype) {
  static const DLDataType table[] = {
      [FATHOM_F32] = {kDLFloat, 32, 1},
      [FATHOM_BF16] = {kDLBfloat, 16, 1},
      [FATHOM_F16] = {kDLFloat, 16, 1},
  };
  return table[dtype];
}

int cli_tensor_create(const fathom_tensor_info *info, cli_tensor *tensor) {
  int64_t extent = 1, bytes;
  bool empty = false;
  *tensor = (cli_tensor){.info = info};
  for (uint32_t i = info->rank; i-- > 0;) {
    uint32_t axis = info->layout[i];
    int64_t size = info->sizes[axis];
    tensor->strides[axis] = extent;
    empty |= size == 0;
    if (__builtin_mul_overflow(extent, size > 1 ? size : 1, &extent))
      return cli_fail("the sizes of '%s' (%s) multiply to more than 63 bits", info->name,
                      cli_type_text(info));
  }
  if (__builtin_mul_overflow(extent, dtype_bytes(info->dtype), &bytes))
    return cli_fail("'%s' (%s) needs more than 2^63 bytes", info->name, cli_type_text(info));
  tensor->view = (DLTensor){
      .data = cli_alloc(empty ? 0 : (size_t)bytes, 1),
      .device = {kDLCPU, 0},
      .ndim = (int)info->rank,
      .dtype = dlpack_type(info->dtype),
      .shape = (int64_t *)info->sizes, // the struct wants it mutable, nobody writes to it
      .strides = tensor->strides,
  };
  return CLI_SUCCESS;
}

static int refuse_dtype(const fathom_tensor_info *info, npy_type found, const char *path) {
  char *accepted = "";
  for (int i = 0; i < LOAD_COUNT; i++)
    if (loads[i].dtype == info->dtype)
      accepted =
          cli_format("%s%s'%s'", accepted, *accepted ? " or " : "", npy_type_descr(loads[i].type));
  return cli_fail("%s has dtype '%s'; parameter '%s' is %s and takes %s", path,
                  npy_type_descr(found), info->name, cli_dtype_name(info->dtype), accepted);
}

int cli_tensor_load(cli_tensor *tensor, const npy_array *array, const char *path) {
  const fathom_tensor_info *info = tensor->info;
  int i = 0;
  while (i < LOAD_COUNT && (loads[i].dtype != info->dtype || loads[i].type != array->type))
    i++;
  if (i == LOAD_COUNT) return refuse_dtype(info, array->type, path);
  side from = side_of(array->data, array->strides, info->rank, (int64_t)npy_type_size(array->type));
  side to = side_of(tensor->view.data, tensor->strides, info->rank, dtype_bytes(info->dtype));
  if (array->data) copy_axes(0, info->rank, info->sizes, &from, &to, loads[i].copy);
  return CLI_SUCCESS;
}

int cli_tensor_save(const cli_tensor *tensor, bool raw, cli_output *output) {
  const fathom_tensor_info *info = tensor->info;
  const saving *how = raw && info->dtype == FATHOM_BF16 ? &bits_of_bf16 : &saves[info->dtype];
  int64_t dense[FATHOM_MAX_RANK] = {0}, count = 1; // cli_tensor_create has checked the products
  for (uint32_t i = info->rank; i-- > 0; count *= info->sizes[i])
    dense[i] = count;
  size_t element = npy_type_size(how->type);
  char *packed = cli_alloc((size_t)count, element);
  side from = side_of(tensor->view.data, tensor->strides, info->rank, dtype_bytes(info->dtype));
  side to = side_of(packed, dense, info->rank, (int64_t)element);
  if (count > 0) copy_axes(0, info->rank, info->sizes, &from, &to, how->copy);
  FILE *stream;
  int status = cli_output_open(output, &stream);
  if (status != CLI_SUCCESS) return status;
  if (!npy_write_header(stream, how->type, info->rank, info->sizes) ||
      fwrite(packed, element, (size_t)count, stream) != (size_t)count)
    return cli_output_failed(output);
  return CLI_SUCCESS;
}
