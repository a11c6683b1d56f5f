// runtime, internal: what one launch needs to know about a kernel, and where it all lies in the
// workspace.
//
// The size query and the launch must agree to the byte, so both walk the same code: rt_plan_kernel
// lays out one kernel's area and, when there is memory behind it, fills in the views.
//
//   workspace = temporaries | area of the running kernel (the largest one's size)
//   area      = views | strides | shared tiles | shared of prepare | worker 0 | worker 1 | ...
//   worker    = pointers | scratch | tiles
//
// Sections: memory regions, views, plans, packing.
#ifndef FATHOM_RUNTIME_PLAN_H
#define FATHOM_RUNTIME_PLAN_H

#include "runtime/runtime.h"

// ---- memory regions -----------------------------------------------------------------------------

// The elements of a tensor, or of one slice, relative to `base`. `stride` is in bytes.
typedef struct rt_region {
  intptr_t base;
  int64_t element; // bytes
  uint32_t rank;
  int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK];
} rt_region;

// Lowest byte and one past the highest, from `base`. False: beyond 63 bits, as an offset or as an
// address.
bool rt_region_extent(const rt_region *region, int64_t *low, int64_t *high);
// False only when no byte belongs to both. Extents must be known to fit.
bool rt_regions_touch(const rt_region *a, const rt_region *b);
// The position whose stride may lead back into elements already counted; -1 when all are distinct.
int rt_region_self_overlap(const rt_region *region);

// ---- views --------------------------------------------------------------------------------------

// One argument of a kernel in one launch. Outer row axes have size 1 here (the launcher adds their
// offset); the row position covers the rows of a task.
typedef struct rt_view {
  const rt_kernel_arg *arg;
  char *data;
  char *const *slices; // as in rt_tensor
  size_t element;      // bytes
  uint32_t rank;
  int row_position; // of the innermost row axis; -1: the argument does not have it
  int slice_outer;  // the outer row axis that counts the slices; -1: none does
  int64_t size[RT_MAX_RANK], stride[RT_MAX_RANK]; // strides in bytes
  int64_t outer_stride[RT_MAX_RANK];              // one for each outer row axis, in bytes
  bool packed;                                    // the code gets a copy, a tile
  bool per_launch; // that is made once, before prepare; else for each task
  int64_t tile_stride[RT_MAX_RANK];
  size_t tile; // offset into the shared or the worker's tiles
} rt_view;

// ---- plans --------------------------------------------------------------------------------------

typedef struct rt_bound {
  const rt_program *program;
  const rt_tensor *tensors;
  const int64_t *sizes;
  char *workspace; // NULL: only sizes are wanted
} rt_bound;

// How the rows of a kernel are cut. Row axes that lie behind each other in memory in every argument
// are one axis to the body, so that many short batches still make full tasks.
typedef struct rt_rows {
  uint32_t outer_count; // row axes the launcher walks
  int64_t outer_size[RT_MAX_RANK];
  int64_t inner; // rows the body's loop covers
  int64_t per_task;
  int64_t tasks_per_outer, tasks;
} rt_rows;

typedef struct rt_plan {
  rt_rows rows;
  uint32_t workers;
  size_t views, strides, shared_tiles, shared, first_worker, end; // offsets from the workspace
  size_t scratch, tiles, worker_bytes;                            // offsets inside a worker
} rt_plan;

// Bytes of all temporaries. False when they overflow.
bool rt_plan_temporaries(const rt_bound *bound, size_t *bytes);
// The memory of a slot: the caller's, or the workspace, dense in the type's order.
rt_tensor rt_plan_tensor(const rt_bound *bound, uint32_t slot);
// Lays out the area of one kernel from offset `start` on. False when it overflows.
bool rt_plan_kernel(const rt_bound *bound, const rt_kernel *kernel, uint32_t concurrency,
                    size_t start, rt_plan *plan);

// ---- packing ------------------------------------------------------------------------------------

// What of a view a task covers.
typedef struct rt_part {
  int64_t offset; // of the outer row axes, in bytes
  int64_t slice;  // the one the outer row axes choose; 0 when they do not
  int64_t first, rows;
} rt_part;

// Copies a part of the host's memory to a tile; a view without the row axis is copied whole.
void rt_pack(const rt_view *view, const rt_part *part, char *tile);
// And back.
void rt_unpack(const rt_view *view, const rt_part *part, const char *tile);

// `pointer + bytes`, which may pass through addresses outside the object on the way to one inside.
static inline char *rt_shift(const void *pointer, int64_t bytes) {
  return (char *)((uintptr_t)pointer + (uintptr_t)bytes);
}

#endif
