// Plans: how the rows of a kernel are cut into tasks, how it sees its arguments, and where
// everything lies in the workspace. Nothing is allocated and nothing is kept: the size query makes
// the same plan as the launch.
#include "runtime/plan.h"

#include <stdlib.h>

// ---- slots --------------------------------------------------------------------------------------

static size_t align_up(size_t bytes, bool *overflow) {
  size_t padded;
  *overflow |= __builtin_add_overflow(bytes, RT_ALIGNMENT - 1, &padded);
  return padded & ~(size_t)(RT_ALIGNMENT - 1);
}

// Takes `bytes` at the end of an area; returns their offset.
static size_t reserve(size_t *end, size_t bytes, bool *overflow) {
  size_t offset = *end;
  *overflow |= __builtin_add_overflow(offset, align_up(bytes, overflow), end);
  return offset;
}

static size_t bytes_times(size_t bytes, int64_t count, bool *overflow) {
  size_t product;
  *overflow |= __builtin_mul_overflow(bytes, count, &product);
  return product;
}

static size_t temporary_bytes(const rt_bound *bound, const rt_slot *slot, bool *overflow) {
  size_t bytes = rt_dtype_size(slot->dtype);
  for (uint32_t i = 0; i < slot->rank; i++) {
    bytes = bytes_times(bytes, bound->sizes[slot->axes[i]], overflow);
  }
  return bytes;
}

// Where the temporary slot `index` lies; with index = slot_count, where all of them end.
static size_t temporary_offset(const rt_bound *bound, uint32_t index, bool *overflow) {
  size_t end = 0;
  for (uint32_t i = 0; i < index; i++) {
    const rt_slot *slot = &bound->program->slots[i];
    if (slot->role == RT_TEMPORARY) reserve(&end, temporary_bytes(bound, slot, overflow), overflow);
  }
  return end;
}

bool rt_plan_temporaries(const rt_bound *bound, size_t *bytes) {
  bool overflow = false;
  *bytes = temporary_offset(bound, bound->program->slot_count, &overflow);
  return !overflow;
}

rt_tensor rt_plan_tensor(const rt_bound *bound, uint32_t index) {
  const rt_slot *slot = &bound->program->slots[index];
  if (slot->role != RT_TEMPORARY) return bound->tensors[index];
  bool overflow = false; // known not to: rt_plan_temporaries ran before
  rt_tensor tensor = {.dtype = slot->dtype, .rank = slot->rank};
  if (bound->workspace) tensor.data = bound->workspace + temporary_offset(bound, index, &overflow);
  int64_t stride = 1;
  for (uint32_t i = slot->rank; i-- > 0;) {
    tensor.shape[i] = bound->sizes[slot->axes[i]];
    tensor.strides[i] = stride;
    stride *= tensor.shape[i];
  }
  return tensor;
}

// ---- rows ---------------------------------------------------------------------------------------

static int position_of(const rt_slot *slot, uint32_t axis) {
  for (uint32_t i = 0; i < slot->rank; i++) {
    if (slot->axes[i] == axis) return (int)i;
  }
  return -1;
}

// Bytes between neighbours along `axis`; 0 when the slot does not have it or it has one element.
static int64_t axis_stride(const rt_slot *slot, const rt_tensor *tensor, uint32_t axis) {
  int position = position_of(slot, axis);
  if (position < 0 || tensor->shape[position] <= 1) return 0;
  if (tensor->slices && position == 0) return 0;
  return tensor->strides[position] * (int64_t)rt_dtype_size(tensor->dtype);
}

// Bytes between neighbouring rows when the row axes from `first` on are one axis.
static int64_t row_stride(const rt_bound *bound, const rt_kernel *kernel, const rt_slot *slot,
                          const rt_tensor *tensor, uint32_t first) {
  for (uint32_t k = kernel->row_count; k-- > first;) {
    if (bound->sizes[kernel->rows[k]] > 1) return axis_stride(slot, tensor, kernel->rows[k]);
  }
  return 0;
}

// Can row axis `outer` be one axis with those behind it, which have `inner` rows together, in this
// argument?
static bool rows_join_in(const rt_bound *bound, const rt_kernel *kernel, const rt_kernel_arg *arg,
                         uint32_t outer, int64_t inner) {
  const rt_slot *slot = &bound->program->slots[arg->slot];
  rt_tensor tensor = rt_plan_tensor(bound, arg->slot);
  uint32_t innermost = kernel->rows[kernel->row_count - 1];
  int outer_position = position_of(slot, kernel->rows[outer]);
  int row_position = position_of(slot, innermost);
  if (tensor.slices && (outer_position == 0 || row_position == 0)) return false;
  int64_t stride = axis_stride(slot, &tensor, kernel->rows[outer]);
  if (row_position < 0) return stride == 0; // the code does not step through this argument
  int64_t needed;
  if (inner == 1) return true;
  if (__builtin_mul_overflow(row_stride(bound, kernel, slot, &tensor, outer + 1), inner, &needed)) {
    return false;
  }
  return stride == needed;
}

static bool rows_join(const rt_bound *bound, const rt_kernel *kernel, uint32_t outer,
                      int64_t inner) {
  if (bound->sizes[kernel->rows[outer]] == 1) return true;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    if (!rows_join_in(bound, kernel, &kernel->args[i], outer, inner)) return false;
  }
  return true;
}

// As many rows as the kernel wants, but no fewer tasks than workers when there are rows enough.
static int64_t rows_of_task(const rt_kernel *kernel, int64_t rows, int64_t outer,
                            uint32_t workers) {
  int64_t wanted = kernel->rows_per_task < 1 ? 1 : kernel->rows_per_task;
  int64_t parts = outer < (int64_t)workers ? ((int64_t)workers - 1) / outer + 1 : 1;
  int64_t share = (rows - 1) / parts + 1;
  return wanted < share ? wanted : share;
}

static rt_rows plan_rows(const rt_bound *bound, const rt_kernel *kernel, uint32_t workers,
                         bool *overflow) {
  rt_rows rows = {.outer_count = kernel->row_count, .inner = 1};
  bool empty = false;
  for (uint32_t k = 0; k < kernel->row_count; k++) {
    empty |= bound->sizes[kernel->rows[k]] == 0;
  }
  if (empty) return rows;
  if (kernel->row_count > 0) rows.inner = bound->sizes[kernel->rows[--rows.outer_count]];
  while (rows.outer_count > 0 && rows_join(bound, kernel, rows.outer_count - 1, rows.inner)) {
    int64_t size = bound->sizes[kernel->rows[--rows.outer_count]];
    *overflow |= __builtin_mul_overflow(rows.inner, size, &rows.inner);
  }
  if (*overflow) return (rt_rows){.inner = 1};
  int64_t outer = 1;
  for (uint32_t k = 0; k < rows.outer_count; k++) {
    rows.outer_size[k] = bound->sizes[kernel->rows[k]];
    *overflow |= __builtin_mul_overflow(outer, rows.outer_size[k], &outer);
  }
  if (*overflow) return (rt_rows){.inner = 1};
  rows.per_task = rows_of_task(kernel, rows.inner, outer, workers);
  rows.tasks_per_outer = (rows.inner - 1) / rows.per_task + 1;
  *overflow |= __builtin_mul_overflow(rows.tasks_per_outer, outer, &rows.tasks);
  return rows;
}

// ---- views --------------------------------------------------------------------------------------

// Does the code step through position `i` at all, in this task or the next?
static bool is_stepped(const rt_view *view, int i, const rt_rows *rows) {
  return (i == view->row_position ? rows->inner : view->size[i]) > 1;
}

// A list of slices that the code does not expect as one, nor the launcher can walk.
static bool slices_need_tile(const rt_view *view, const rt_rows *rows) {
  return view->slices && view->arg->pointer_count <= 1 && view->slice_outer < 0 &&
         is_stepped(view, 0, rows);
}

static bool unit_needs_tile(const rt_view *view, const rt_rows *rows) {
  int unit = view->arg->unit_position;
  if (unit < 0 || (unit == 0 && view->arg->pointer_count > 1)) return false;
  return is_stepped(view, unit, rows) && view->stride[unit] != (int64_t)view->element;
}

// Strides of a dense tile in the type's order with the unit axis innermost; returns its bytes.
static size_t plan_tile(rt_view *view, bool *overflow) {
  int unit = view->arg->unit_position;
  size_t bytes = view->element;
  if (unit >= 0) {
    view->tile_stride[unit] = (int64_t)bytes;
    bytes = bytes_times(bytes, view->size[unit], overflow);
  }
  for (int i = (int)view->rank; i-- > 0;) {
    if (i == unit) continue;
    view->tile_stride[i] = (int64_t)bytes;
    bytes = bytes_times(bytes, view->size[i], overflow);
  }
  return bytes;
}

static rt_view plan_view(const rt_bound *bound, const rt_kernel *kernel, const rt_kernel_arg *arg,
                         const rt_rows *rows) {
  const rt_slot *slot = &bound->program->slots[arg->slot];
  rt_tensor tensor = rt_plan_tensor(bound, arg->slot);
  rt_view view = {.arg = arg,
                  .data = tensor.data,
                  .slices = tensor.slices,
                  .element = rt_dtype_size(tensor.dtype),
                  .rank = slot->rank,
                  .row_position = -1,
                  .slice_outer = -1};
  for (uint32_t i = 0; i < slot->rank; i++) {
    view.size[i] = bound->sizes[slot->axes[i]];
    view.stride[i] = axis_stride(slot, &tensor, slot->axes[i]);
  }
  bool has_rows = false;
  for (uint32_t k = 0; k < kernel->row_count; k++) {
    int position = position_of(slot, kernel->rows[k]);
    if (k < rows->outer_count) view.outer_stride[k] = axis_stride(slot, &tensor, kernel->rows[k]);
    if (position < 0) continue;
    has_rows = true;
    view.size[position] = 1;
    if (position == 0 && tensor.slices && k < rows->outer_count) view.slice_outer = (int)k;
    if (k + 1 < kernel->row_count) continue;
    view.row_position = position;
    view.size[position] = rows->per_task;
    view.stride[position] = row_stride(bound, kernel, slot, &tensor, rows->outer_count);
  }
  view.packed = slices_need_tile(&view, rows) || unit_needs_tile(&view, rows);
  view.per_launch = view.packed && !has_rows && !arg->written;
  return view;
}

// ---- areas --------------------------------------------------------------------------------------

bool rt_plan_kernel(const rt_bound *bound, const rt_kernel *kernel, uint32_t concurrency,
                    size_t start, rt_plan *plan) {
  bool overflow = false;
  *plan = (rt_plan){.views = start, .end = start};
  plan->workers = concurrency < 1 ? 1 : concurrency;
  plan->rows = plan_rows(bound, kernel, plan->workers, &overflow);
  if (plan->rows.tasks == 0) return !overflow;
  if (plan->workers > plan->rows.tasks) plan->workers = (uint32_t)plan->rows.tasks;

  size_t shared_tiles = 0, tiles = 0, worker = 0;
  size_t views_bytes = bytes_times(sizeof(rt_view), kernel->arg_count, &overflow);
  reserve(&plan->end, views_bytes, &overflow);
  rt_view *views = bound->workspace ? (rt_view *)(bound->workspace + start) : NULL;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    rt_view view = plan_view(bound, kernel, &kernel->args[i], &plan->rows);
    if (view.packed) {
      size_t bytes = plan_tile(&view, &overflow);
      view.tile = reserve(view.per_launch ? &shared_tiles : &tiles, bytes, &overflow);
    }
    if (views) views[i] = view;
  }
  plan->strides = reserve(&plan->end, kernel->stride_count * sizeof(int64_t), &overflow);
  plan->shared_tiles = reserve(&plan->end, shared_tiles, &overflow);
  plan->shared = reserve(&plan->end, kernel->shared_bytes, &overflow);
  reserve(&worker, kernel->pointer_count * sizeof(void *), &overflow);
  plan->scratch = reserve(&worker, kernel->scratch_bytes, &overflow);
  plan->tiles = reserve(&worker, tiles, &overflow);
  plan->worker_bytes = worker;
  size_t workers_bytes = bytes_times(worker, plan->workers, &overflow);
  plan->first_worker = reserve(&plan->end, workers_bytes, &overflow);
  return !overflow;
}

base_status rt_workspace_size(const rt_program *program, const rt_tensor *tensors,
                              const int64_t *sizes, uint32_t concurrency, size_t *bytes,
                              base_diag *diag) {
  rt_bound bound = {.program = program, .tensors = tensors, .sizes = sizes};
  size_t start;
  bool fits = rt_plan_temporaries(&bound, &start);
  *bytes = start;
  for (uint32_t i = 0; fits && i < program->kernel_count; i++) {
    rt_plan plan;
    fits = rt_plan_kernel(&bound, &program->kernels[i], concurrency, start, &plan);
    if (plan.end > *bytes) *bytes = plan.end;
  }
  // Offsets are added to pointers as signed numbers.
  if (fits && *bytes <= PTRDIFF_MAX) return BASE_OK;
  base_error(diag, (base_loc){0}, "the workspace for these sizes does not fit in 63 bits");
  base_hint(diag, "run fewer rows at a time");
  *bytes = 0;
  return BASE_INVALID;
}
