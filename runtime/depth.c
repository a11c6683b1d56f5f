// The memory and the tensors of a depth's runs (see depth.h).
#include "runtime/depth.h"

bool rt_depth_layout(const rt_depth *depth, int64_t rows, size_t *offsets, size_t *bytes) {
  size_t end = 0;
  bool overflow = rows < 0;
  for (uint32_t i = 0; i < depth->buffer_count; i++) {
    size_t size;
    if (offsets != NULL) offsets[i] = end;
    overflow |= __builtin_mul_overflow(depth->buffer_bytes[i], rows, &size);
    overflow |= __builtin_add_overflow(end, size, &end);
    overflow |= __builtin_add_overflow(end, RT_DEPTH_ALIGNMENT - 1, &end);
    end -= end % RT_DEPTH_ALIGNMENT;
  }
  *bytes = end;
  return !overflow && end <= PTRDIFF_MAX;
}

// A dense tensor of the slot from axis `from` on.
static rt_tensor dense_tensor(const rt_program *program, const rt_slot *slot, uint32_t from,
                              int64_t rows) {
  rt_tensor tensor = {.dtype = slot->dtype, .rank = slot->rank};
  int64_t stride = 1;
  for (uint32_t i = slot->rank; i-- > from;) {
    const int64_t size = program->axes[slot->axes[i]].size;
    tensor.shape[i] = size == RT_DYNAMIC ? rows : size;
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

// The part's own tensor; `from`: the axes of the slot before are not the part's.
static rt_tensor part_tensor(const rt_depth_part *part, const rt_program *program,
                             const rt_slot *slot, uint32_t from, const rt_depth_memory *memory) {
  rt_tensor tensor = dense_tensor(program, slot, from, memory->rows);
  const rt_tensor *whole = NULL;
  switch (part->kind) {
  case RT_PLACE_BUFFER:
    if (memory->workspace != NULL)
      tensor.data =
          memory->workspace + memory->offsets[part->number] + part->offset * (uint64_t)memory->rows;
    return tensor;
  case RT_PLACE_PARAM:
    whole = &memory->params[part->number];
    break;
  case RT_PLACE_INPUT:
    whole = &memory->inputs[part->number];
    break;
  case RT_PLACE_OUTPUT:
    whole = &memory->outputs[part->number];
    break;
  }
  tensor.data = whole->data;
  for (uint32_t i = from; i < slot->rank; i++)
    tensor.strides[i] = whole->strides[i - from];
  return tensor;
}

// Are they at even distances, in elements? Then they are one tensor.
static bool unite(char *const *slices, uint32_t count, rt_tensor *tensor) {
  const intptr_t size = (intptr_t)rt_dtype_size(tensor->dtype);
  const intptr_t step = count > 1 ? (intptr_t)slices[1] - (intptr_t)slices[0] : 0;
  if (step % size != 0) return false;
  for (uint32_t i = 2; i < count; i++)
    if ((intptr_t)slices[i] - (intptr_t)slices[i - 1] != step) return false;
  tensor->data = slices[0];
  tensor->strides[0] = step / size;
  return true;
}

void rt_depth_tensors(const rt_depth_run *run, const rt_program *program,
                      const rt_depth_memory *memory, rt_tensor *tensors, char **slices) {
  for (uint32_t i = 0; i < program->slot_count; i++) {
    const rt_slot *slot = &program->slots[i];
    const rt_depth_slot *where = &run->slots[i];
    if (slot->role == RT_TEMPORARY) return;
    tensors[i] = part_tensor(&where->parts[0], program, slot, where->sliced, memory);
    if (!where->sliced) continue;
    tensors[i].shape[0] = where->part_count;
    for (uint32_t j = 0; j < where->part_count; j++)
      slices[j] = part_tensor(&where->parts[j], program, slot, 1, memory).data;
    if (unite(slices, where->part_count, &tensors[i])) continue;
    tensors[i].slices = slices;
    slices += where->part_count;
  }
}
