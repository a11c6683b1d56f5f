// strided: tensors element by element. The reference target, the checker and the benchmark read,
// fill and place memory of any dtype, layout and stride through the few functions here; compiled
// kernels never do.
#include <math.h>
#include <string.h>

#include "api/api.h"

// ---- elements -----------------------------------------------------------------------------------

static float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of_half(uint16_t half) {
  uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) return float_of_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // The exponents' biases differ by 112; a multiplication moves subnormals along as well.
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << 13) * 0x1p112f));
}

// `value` is one that a half can hold.
static uint16_t half_of_double(double value) {
  uint16_t sign = signbit(value) ? 0x8000 : 0;
  int exponent;
  if (isnan(value)) return 0x7e00;
  if (isinf(value)) return sign | 0x7c00;
  double fraction = frexp(fabs(value), &exponent); // in [0.5, 1), or 0
  if (fraction == 0 || exponent < -13) return sign | (uint16_t)(fabs(value) * 0x1p24);
  return sign | (uint16_t)(((exponent + 14) << 10) + (int)(fraction * 2048.0) - 1024);
}

static double double_of_f8(uint8_t code) {
  int exponent = code >> 3 & 15, fraction = code & 7;
  double magnitude = exponent == 15 && fraction == 7 ? NAN
                     : exponent == 0                 ? ldexp(fraction, -9)
                                                     : ldexp(8 + fraction, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

// `value` is one that an f8e4m3 can hold.
static uint8_t f8_of_double(double value) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  int exponent;
  if (isnan(value)) return 0x7f;
  double fraction = frexp(fabs(value), &exponent); // in [0.5, 1), or 0
  if (fraction == 0 || exponent < -5) return sign | (uint8_t)(fabs(value) * 0x1p9);
  return sign | (uint8_t)(((exponent + 6) << 3) + (int)(fraction * 16.0) - 8);
}

static double load(rt_dtype dtype, const char *at) {
  uint16_t bits;
  float value;
  if (dtype == RT_F32) {
    memcpy(&value, at, sizeof value);
    return value;
  }
  if (dtype == RT_F8E4M3) return double_of_f8((uint8_t)*at);
  memcpy(&bits, at, sizeof bits);
  return dtype == RT_BF16 ? float_of_bits((uint32_t)bits << 16) : float_of_half(bits);
}

static void store(rt_dtype dtype, char *at, double value) {
  if (dtype == RT_F32) {
    float single = (float)value;
    memcpy(at, &single, sizeof single);
    return;
  }
  double rounded = ir_dtype_round((ir_dtype)dtype, value);
  if (dtype == RT_F8E4M3) {
    *at = (char)f8_of_double(rounded);
    return;
  }
  uint16_t bits = dtype == RT_F16  ? half_of_double(rounded)
                  : isnan(rounded) ? 0x7fc0
                                   : (uint16_t)(bits_of_float((float)rounded) >> 16);
  memcpy(at, &bits, sizeof bits);
}

// ---- rows ---------------------------------------------------------------------------------------

// Walks a tensor in its type's order, one row (a run along the last axis) after another.
typedef struct rows {
  const rt_tensor *tensor;
  uint32_t outer; // axes stepped over; the one after them, when there is one, lies along the row
  int64_t length, step; // of the row, step in bytes
  int64_t index[RT_MAX_RANK];
  bool done;
} rows;

static rows rows_of(const rt_tensor *tensor) {
  rows r = {.tensor = tensor, .outer = tensor->rank, .length = 1};
  // The only axis of a list of scalars is no run in memory.
  if (tensor->rank > (tensor->slices != NULL ? 1u : 0u)) {
    r.outer = tensor->rank - 1;
    r.length = tensor->shape[r.outer];
    r.step = tensor->strides[r.outer] * (int64_t)rt_dtype_size(tensor->dtype);
  }
  r.done = api_tensor_count(tensor) == 0;
  return r;
}

// The row's first element; NULL after the last row.
static char *next_row(rows *r) {
  const rt_tensor *tensor = r->tensor;
  if (r->done) return NULL;
  char *base = tensor->slices != NULL ? tensor->slices[r->index[0]] : tensor->data;
  int64_t offset = 0;
  for (uint32_t i = tensor->slices != NULL ? 1 : 0; i < r->outer; i++)
    offset += r->index[i] * tensor->strides[i];
  uint32_t position = r->outer;
  while (position > 0 && ++r->index[position - 1] == tensor->shape[position - 1])
    r->index[--position] = 0;
  r->done = position == 0;
  return base + offset * (int64_t)rt_dtype_size(tensor->dtype);
}

void api_tensor_read(const rt_tensor *tensor, double *values) {
  rows r = rows_of(tensor);
  for (const char *row; (row = next_row(&r)) != NULL; values += r.length)
    for (int64_t i = 0; i < r.length; i++)
      values[i] = load(tensor->dtype, row + i * r.step);
}

void api_tensor_write(const rt_tensor *tensor, const double *values) {
  rows r = rows_of(tensor);
  for (char *row; (row = next_row(&r)) != NULL; values += r.length)
    for (int64_t i = 0; i < r.length; i++)
      store(tensor->dtype, row + i * r.step, values[i]);
}

void api_tensor_fill(const rt_tensor *tensor, double (*next)(void *state), void *state) {
  rows r = rows_of(tensor);
  for (char *row; (row = next_row(&r)) != NULL;)
    for (int64_t i = 0; i < r.length; i++)
      store(tensor->dtype, row + i * r.step, next(state));
}

void api_tensor_clear(const rt_tensor *tensor, int byte) {
  rows r = rows_of(tensor);
  for (char *row; (row = next_row(&r)) != NULL;)
    for (int64_t i = 0; i < r.length; i++)
      memset(row + i * r.step, byte, rt_dtype_size(tensor->dtype));
}

void api_tensor_copy(const rt_tensor *to, const rt_tensor *from) {
  rows r = rows_of(to), s = rows_of(from);
  size_t element = rt_dtype_size(to->dtype);
  for (char *row; (row = next_row(&r)) != NULL;) {
    const char *source = next_row(&s);
    for (int64_t i = 0; i < r.length; i++)
      memcpy(row + i * r.step, source + i * s.step, element);
  }
}

// ---- pieces of memory ---------------------------------------------------------------------------

int64_t api_tensor_pieces(const rt_tensor *tensor) {
  if (api_tensor_count(tensor) == 0) return 0;
  return tensor->slices != NULL ? tensor->shape[0] : 1;
}

char *api_tensor_piece(const rt_tensor *tensor, int64_t piece, size_t *bytes) {
  int64_t element = (int64_t)rt_dtype_size(tensor->dtype), low = 0, high = element;
  for (uint32_t i = tensor->slices != NULL ? 1 : 0; i < tensor->rank; i++) {
    if (tensor->shape[i] <= 1) continue; // the stride is never used
    int64_t reach = (tensor->shape[i] - 1) * tensor->strides[i] * element;
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  *bytes = (size_t)(high - low);
  return (tensor->slices != NULL ? tensor->slices[piece] : tensor->data) + low;
}

// ---- shapes -------------------------------------------------------------------------------------

size_t api_tensor_count(const rt_tensor *tensor) {
  size_t count = 1;
  bool overflow = false;
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 0) return 0;
    overflow |= __builtin_mul_overflow(count, (size_t)tensor->shape[i], &count);
  }
  return overflow ? SIZE_MAX : count;
}

rt_tensor api_tensor_part(const rt_tensor *tensor, uint32_t position, int64_t begin, int64_t size) {
  rt_tensor part = *tensor;
  part.shape[position] = size;
  if (position == 0 && part.slices != NULL)
    part.slices += begin;
  else if (part.data != NULL)
    part.data += begin * part.strides[position] * (int64_t)rt_dtype_size(part.dtype);
  return part;
}

bool api_tensor_layout(const ir_node *node, const int64_t *axis_sizes, int64_t padding,
                       rt_tensor *out, size_t *elements) {
  const ir_type *type = &node->type;
  const ir_axis *order = node->has_layout ? node->layout : type->axes; // outermost first
  *out = (rt_tensor){.dtype = (rt_dtype)type->dtype, .rank = type->rank};
  int64_t extent = 1;
  for (uint32_t i = type->rank; i-- > 0;) {
    int position = ir_type_position(type, order[i]);
    int64_t size = axis_sizes[order[i].index];
    out->shape[position] = size;
    out->strides[position] = extent;
    if (__builtin_mul_overflow(extent, size > 0 ? size : 1, &extent) ||
        __builtin_add_overflow(extent, padding, &extent))
      return false;
  }
  int64_t bytes;
  *elements = (size_t)extent;
  return !__builtin_mul_overflow(extent, (int64_t)rt_dtype_size(out->dtype), &bytes);
}

// ---- DLPack -------------------------------------------------------------------------------------

// DLPack has it since version 1.1; the header Fathom is built with may be older.
enum { FLOAT8_E4M3FN = 10 };

static const struct {
  DLDataType type;
  DLDataType instead; // the codes as numbers, from hosts that lack the type
  const char *name;
} dlpack_dtypes[] = {
    [RT_F32] = {{kDLFloat, 32, 1}, {0}, "kDLFloat with 32 bits"},
    [RT_BF16] = {{kDLBfloat, 16, 1}, {0}, "kDLBfloat with 16 bits"},
    [RT_F16] = {{kDLFloat, 16, 1}, {0}, "kDLFloat with 16 bits"},
    [RT_F8E4M3] = {{FLOAT8_E4M3FN, 8, 1},
                   {kDLUInt, 8, 1},
                   "kDLFloat8_e4m3fn, which is 10, or kDLUInt, with 8 bits"},
};

static bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

DLDataType api_dlpack_dtype(rt_dtype dtype) {
  return dlpack_dtypes[dtype].type;
}

bool api_dlpack_fits(rt_dtype dtype, DLDataType found) {
  return found.lanes == 1 && (same_dtype(found, dlpack_dtypes[dtype].type) ||
                              same_dtype(found, dlpack_dtypes[dtype].instead));
}

const char *api_dlpack_dtype_name(rt_dtype dtype) {
  return dlpack_dtypes[dtype].name;
}

DLTensor api_tensor_dlpack(rt_tensor *tensor) {
  return (DLTensor){
      .data = tensor->data,
      .device = {kDLCPU, 0},
      .ndim = (int)tensor->rank,
      .dtype = api_dlpack_dtype(tensor->dtype),
      .shape = tensor->shape,
      .strides = tensor->strides,
  };
}

// ---- memory -------------------------------------------------------------------------------------

void *api_alloc_aligned(base_arena *arena, size_t bytes) {
  if (bytes > SIZE_MAX - API_ALIGNMENT) bytes = SIZE_MAX - API_ALIGNMENT; // too much either way
  uintptr_t start = (uintptr_t)base_alloc(arena, bytes + API_ALIGNMENT);
  return (void *)((start + API_ALIGNMENT - 1) / API_ALIGNMENT * API_ALIGNMENT);
}

int64_t *api_axis_sizes(base_arena *arena, const ir_graph *graph, int64_t dynamic_size) {
  int64_t *sizes = base_new_array(arena, int64_t, graph->axes.count);
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    int64_t size = graph->axes.data[i].size;
    sizes[i] = size == IR_DYNAMIC ? dynamic_size : size;
  }
  return sizes;
}
