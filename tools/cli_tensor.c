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

// f8e4m3 ends at 448, and so do larger numbers. Below 2^-6 its last place is 2^-9, which is that of an
// f32 from 2^14 up, so the addition rounds.
static uint8_t f8_from_f32(uint32_t bits) {
  uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint8_t)(sign | 0x7f);
  if (magnitude >= 0x43e00000) return (uint8_t)(sign | 0x7e);
  if (magnitude < 0x3c800000) {
    const float base = 0x1p14f;
    float sum, value;
    uint32_t sum_bits, base_bits;
    memcpy(&value, &magnitude, sizeof value);
    sum = value + base;
    memcpy(&sum_bits, &sum, sizeof sum);
    memcpy(&base_bits, &base, sizeof base);
    return (uint8_t)(sign | (sum_bits - base_bits));
  }
  magnitude += 0x7ffff + (magnitude >> 20 & 1);
  return (uint8_t)(sign | (magnitude - (120u << 23)) >> 20); // exponent bias 127 to 7
}

static uint32_t f32_from_f8(uint8_t code) {
  uint32_t sign = (uint32_t)(code & 0x80) << 24, magnitude = code & 0x7f, bits;
  if (magnitude == 0x7f) return sign | 0x7fc00000;
  if (magnitude >= 8) return sign | ((magnitude << 20) + (120u << 23));
  float value = (float)magnitude * 0x1p-9f;
  memcpy(&bits, &value, sizeof bits);
  return sign | bits;
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
ROW_COPY(copy_byte, uint8_t, uint8_t, x)
ROW_COPY(narrow_f8, uint32_t, uint8_t, f8_from_f32(x))
ROW_COPY(widen_f8, uint8_t, uint32_t, f32_from_f8(x))

// What a parameter of each dtype accepts.
static const struct {
  fathom_dtype dtype;
  npy_type type;
  row_copy copy;
} loads[] = {
    {FATHOM_F32, NPY_F4, copy_word},    {FATHOM_BF16, NPY_F4, narrow_bf16},
    {FATHOM_BF16, NPY_U2, copy_half},   {FATHOM_BF16, NPY_V2, copy_half},
    {FATHOM_F16, NPY_F4, narrow_f16},   {FATHOM_F16, NPY_F2, copy_half},
    {FATHOM_F8E4M3, NPY_F4, narrow_f8}, {FATHOM_F8E4M3, NPY_U1, copy_byte},
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
    [FATHOM_F8E4M3] = {NPY_F4, widen_f8},
};
// The same with --raw.
static const saving raw_saves[] = {
    [FATHOM_F32] = {NPY_F4, copy_word},
    [FATHOM_BF16] = {NPY_U2, copy_half},
    [FATHOM_F16] = {NPY_F2, copy_half},
    [FATHOM_F8E4M3] = {NPY_U1, copy_byte},
};

static int64_t dtype_bytes(fathom_dtype dtype) {
  return (int64_t)npy_type_size(raw_saves[dtype].type);
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
      [FATHOM_F8E4M3] = {10, 8, 1}, // DLPack 1.1's kDLFloat8_e4m3fn
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
  const saving *how = raw ? &raw_saves[info->dtype] : &saves[info->dtype];
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
