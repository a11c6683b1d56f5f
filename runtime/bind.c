// Binding: do these tensors fit this program? Everything a launch relies on is checked here, once,
// so that the launch itself has nothing to refuse. All faults are reported, not the first; memory
// is looked at only when shapes are right.
#include "runtime/plan.h"

static const struct {
  const char *name;
  size_t size;
} dtypes[] = {[RT_F32] = {"f32", 4},
              [RT_BF16] = {"bf16", 2},
              [RT_F16] = {"f16", 2},
              [RT_F8E4M3] = {"f8e4m3", 1}};

size_t rt_dtype_size(rt_dtype dtype) {
  return dtypes[dtype].size;
}

typedef struct binding {
  const rt_program *program;
  const rt_tensor *tensors;
  int64_t *sizes;
  base_diag *diag;
} binding;

static const base_loc nowhere;

static const char *axis_name(const binding *b, const rt_slot *slot, int position) {
  return b->program->axes[slot->axes[position]].name;
}

// ---- dtype, rank, sizes -------------------------------------------------------------------------

// The slot that gave a dynamic axis its size: the first one that has it.
static const char *first_with(const rt_program *program, uint32_t axis) {
  for (const rt_slot *slot = program->slots;; slot++) {
    for (uint32_t i = 0; i < slot->rank; i++) {
      if (slot->axes[i] == axis) return slot->name;
    }
  }
}

static void check_axis(binding *b, const rt_slot *slot, uint32_t index, int64_t size) {
  const rt_axis *axis = &b->program->axes[index];
  if (size < 0) {
    base_error(b->diag, nowhere, "%%%s: axis %s has the negative size %lld", slot->name, axis->name,
               (long long)size);
  } else if (b->sizes[index] == RT_DYNAMIC) {
    b->sizes[index] = size;
  } else if (b->sizes[index] == size) {
    return;
  } else if (axis->size == RT_DYNAMIC) {
    base_error(b->diag, nowhere, "%%%s: axis %s has size %lld, but %%%s says %lld", slot->name,
               axis->name, (long long)size, first_with(b->program, index),
               (long long)b->sizes[index]);
  } else {
    base_error(b->diag, nowhere, "%%%s: axis %s has size %lld, the graph says %lld", slot->name,
               axis->name, (long long)size, (long long)axis->size);
  }
}

static void check_shape(binding *b, uint32_t index) {
  const rt_slot *slot = &b->program->slots[index];
  const rt_tensor *tensor = &b->tensors[index];
  if (tensor->dtype != slot->dtype) {
    base_error(b->diag, nowhere, "%%%s: dtype %s, the graph says %s", slot->name,
               dtypes[tensor->dtype].name, dtypes[slot->dtype].name);
  }
  if (tensor->rank != slot->rank) {
    base_error(b->diag, nowhere, "%%%s: %u axes, the graph says %u", slot->name, tensor->rank,
               slot->rank);
    return;
  }
  if (tensor->slices && slot->rank == 0) {
    base_error(b->diag, nowhere, "%%%s: a list of slices, but the graph gives it no axes",
               slot->name);
    return;
  }
  for (uint32_t i = 0; i < slot->rank; i++) {
    check_axis(b, slot, slot->axes[i], tensor->shape[i]);
  }
}

// ---- memory -------------------------------------------------------------------------------------

static bool is_empty(const rt_tensor *tensor) {
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] == 0) return true;
  }
  return false;
}

// How many separate pieces of memory a tensor has.
static int64_t piece_count(const rt_tensor *tensor) {
  if (is_empty(tensor)) return 0;
  return tensor->slices ? tensor->shape[0] : 1;
}

// Where a tensor's piece begins.
static char *piece_data(const rt_tensor *tensor, int64_t piece) {
  return tensor->slices ? tensor->slices[piece] : tensor->data;
}

// False: the strides do not even fit in bytes.
static bool region_of(const rt_tensor *tensor, int64_t piece, rt_region *region) {
  uint32_t skipped = tensor->slices ? 1 : 0;
  bool overflow = false;
  *region = (rt_region){.base = (intptr_t)piece_data(tensor, piece),
                        .element = (int64_t)rt_dtype_size(tensor->dtype),
                        .rank = tensor->rank - skipped};
  for (uint32_t i = 0; i < region->rank; i++) {
    region->size[i] = tensor->shape[i + skipped];
    if (region->size[i] <= 1) continue; // the stride is never used
    overflow |=
        __builtin_mul_overflow(tensor->strides[i + skipped], region->element, &region->stride[i]);
  }
  return !overflow;
}

static void check_piece(binding *b, const rt_slot *slot, const rt_tensor *tensor, int64_t piece) {
  rt_region region;
  int64_t low, high;
  if (!piece_data(tensor, piece)) {
    if (tensor->slices) {
      base_error(b->diag, nowhere, "%%%s: slice %lld has no memory (a null pointer)", slot->name,
                 (long long)piece);
    } else {
      base_error(b->diag, nowhere, "%%%s: no memory (a null pointer)", slot->name);
    }
    return;
  }
  if (!region_of(tensor, piece, &region) || !rt_region_extent(&region, &low, &high)) {
    base_error(b->diag, nowhere, "%%%s: its sizes and strides reach beyond 63-bit byte offsets",
               slot->name);
    return;
  }
  if (region.base % region.element != 0) {
    base_error(b->diag, nowhere, "%%%s: its address is not a multiple of its %lld-byte element",
               slot->name, (long long)region.element);
  }
  int position = slot->role == RT_OUTPUT ? rt_region_self_overlap(&region) : -1;
  if (position >= 0) {
    position += tensor->slices ? 1 : 0;
    base_error(
        b->diag, nowhere,
        "%%%s: an output's elements must not share memory, but the stride %lld of axis %s makes "
        "them overlap",
        slot->name, (long long)tensor->strides[position], axis_name(b, slot, position));
  }
}

static void check_memory(binding *b, uint32_t index) {
  const rt_tensor *tensor = &b->tensors[index];
  for (int64_t piece = 0; piece < piece_count(tensor); piece++) {
    check_piece(b, &b->program->slots[index], tensor, piece);
  }
}

// ---- overlap ------------------------------------------------------------------------------------

// One report at most for a pair of tensors (`first` may be `second`: slices of one output).
static void check_pair(binding *b, uint32_t first, uint32_t second) {
  const rt_tensor *x = &b->tensors[first], *y = &b->tensors[second];
  for (int64_t i = 0; i < piece_count(x); i++) {
    rt_region a, c;
    region_of(x, i, &a);
    for (int64_t j = first == second ? i + 1 : 0; j < piece_count(y); j++) {
      region_of(y, j, &c);
      if (!rt_regions_touch(&a, &c)) continue;
      if (first == second) {
        base_error(b->diag, nowhere, "%%%s: its slices %lld and %lld overlap in memory",
                   b->program->slots[first].name, (long long)i, (long long)j);
      } else {
        base_error(b->diag, nowhere, "%%%s and %%%s overlap in memory, and %%%s is written",
                   b->program->slots[first].name, b->program->slots[second].name,
                   b->program->slots[second].name);
      }
      base_hint(b->diag, "give the output memory of its own");
      return;
    }
  }
}

static void check_overlaps(binding *b, uint32_t tensor_count) {
  for (uint32_t second = 0; second < tensor_count; second++) {
    if (b->program->slots[second].role != RT_OUTPUT) continue;
    for (uint32_t first = 0; first <= second; first++) {
      check_pair(b, first, second);
    }
  }
}

// ---- everything ---------------------------------------------------------------------------------

base_status rt_bind(const rt_program *program, const rt_tensor *tensors, int64_t *sizes,
                    base_diag *diag) {
  binding b = {.program = program, .tensors = tensors, .sizes = sizes, .diag = diag};
  uint32_t before = diag->error_count, tensor_count = 0;
  for (uint32_t i = 0; i < program->axis_count; i++) {
    sizes[i] = program->axes[i].size;
  }
  while (tensor_count < program->slot_count && program->slots[tensor_count].role != RT_TEMPORARY) {
    check_shape(&b, tensor_count++);
  }
  if (diag->error_count != before) return BASE_INVALID;
  for (uint32_t i = 0; i < program->axis_count; i++) {
    if (sizes[i] != RT_DYNAMIC) continue;
    base_error(diag, nowhere, "axis %s: no parameter or result has it, so its size is unknown",
               program->axes[i].name);
    base_hint(diag, "bind it before compiling");
  }
  for (uint32_t i = 0; i < tensor_count; i++) {
    check_memory(&b, i);
  }
  if (diag->error_count == before) check_overlaps(&b, tensor_count);
  return diag->error_count == before ? BASE_OK : BASE_INVALID;
}
