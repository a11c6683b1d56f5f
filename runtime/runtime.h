// runtime: tensors, programs and their launch. Needs no compiler; base only.
//
// Sections: programs, tensors, binding, executors, launching.
//
// A program is what a compiled graph looks like to the launcher: axes, slots (parameters, results
// and the temporaries between kernels) and kernels with machine code. codegen makes it; the
// launcher binds tensors to slots, cuts the rows into tasks and calls the code. Results never
// depend on how tasks meet threads: what a row gives depends on that row alone, wherever tasks
// begin and end.
#ifndef FATHOM_RUNTIME_H
#define FATHOM_RUNTIME_H

#include "base/base.h"

// ---- programs -----------------------------------------------------------------------------------

enum { RT_MAX_RANK = 8, RT_DYNAMIC = -1, RT_ALIGNMENT = 64 };

typedef enum rt_dtype {
  RT_F32,
  RT_BF16,
  RT_F16,
  RT_F8E4M3,
  RT_DTYPE_COUNT
} rt_dtype; // same order as ir_dtype
size_t rt_dtype_size(rt_dtype dtype);

typedef struct rt_axis {
  const char *name;
  int64_t size; // RT_DYNAMIC: read from the tensors at each launch
} rt_axis;

typedef enum rt_role { RT_INPUT, RT_OUTPUT, RT_TEMPORARY } rt_role;

typedef struct rt_slot {
  const char *name;
  rt_role role;
  rt_dtype dtype;
  uint32_t rank;
  uint32_t axes[RT_MAX_RANK]; // indices into rt_program.axes, in the type's order
} rt_slot;

// How a kernel sees one slot.
//
// Generated code finds memory through two flat arrays. An argument with pointer_count > 1 has one
// pointer for each index of its first axis (so a bank may be one tensor or a list of slices); else
// it has one pointer and every axis has a stride. Strides are in bytes, one for each position of
// the slot's type; the first one of a sliced argument says nothing, and those of outer row axes
// only tell alignment.
typedef struct rt_kernel_arg {
  uint32_t slot;
  uint32_t first_pointer, pointer_count; // into `pointers`
  uint32_t first_stride;                 // into `strides`
  int32_t unit_position; // this position must have stride 1 (element); -1: none needs to
  bool written;
} rt_kernel_arg;

// Computes rows begin .. end-1 of the innermost row axis. `shared` was filled by `prepare` of the
// same kernel and is read only; `scratch` is private to the call. Both are 64-byte aligned.
typedef void (*rt_body)(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                        void *shared, void *scratch);
// Computes what no row changes (say gain * query), once for a launch, before any body.
typedef void (*rt_prepare)(void *const *pointers, const int64_t *strides, void *shared,
                           void *scratch);

typedef struct rt_kernel {
  const char *name;
  rt_body body;
  rt_prepare prepare; // NULL when there is nothing to prepare
  uint32_t arg_count;
  const rt_kernel_arg *args;
  uint32_t pointer_count, stride_count; // lengths of the two arrays
  uint32_t row_count;                   // 0: the body is called once with rows 0 .. 1
  uint32_t rows[RT_MAX_RANK]; // row axes, outermost first; the body loops over the last one
  int64_t rows_per_task;      // of the innermost row axis; at least 1
  size_t shared_bytes, scratch_bytes;
} rt_kernel;

typedef struct rt_program {
  uint32_t axis_count, slot_count, kernel_count;
  const rt_axis *axes;
  const rt_slot
      *slots; // inputs in the graph's order, then outputs in return order, then temporaries
  const rt_kernel *kernels;
} rt_program;

// ---- tensors ------------------------------------------------------------------------------------

// Host memory as a slot sees it. Strides in elements. `slices` replaces `data` for a list of
// slices: one base address for each index of the first axis, whose stride is then not used.
typedef struct rt_tensor {
  rt_dtype dtype;
  uint32_t rank;
  char *data;
  char *const *slices;
  int64_t shape[RT_MAX_RANK], strides[RT_MAX_RANK];
} rt_tensor;

// ---- binding ------------------------------------------------------------------------------------

// `tensors` has one entry for each input and output slot, in slot order. Checks dtype, rank and
// sizes, finds the dynamic axes (into `sizes`, one entry an axis) and refuses tensors whose memory
// overlaps when one of them is an output, outputs whose elements overlap themselves (stride 0),
// null pointers, addresses that are no multiple of the element, and byte offsets beyond 63 bits.
// Messages name the slot and the axis.
base_status rt_bind(const rt_program *program, const rt_tensor *tensors, int64_t *sizes,
                    base_diag *diag);

// ---- executors ----------------------------------------------------------------------------------

typedef struct rt_executor {
  void *user;
  uint32_t concurrency;
  void (*parallel_for)(void *user, size_t count, void (*work)(void *argument, size_t index),
                       void *argument);
} rt_executor;

typedef struct rt_pool rt_pool; // pthreadpool behind an rt_executor
// `threads` 0: one for each core this process may use (its affinity mask and cgroup quota, not the
// machine's count).
base_status rt_pool_create(uint32_t threads, rt_pool **out);
void rt_pool_destroy(rt_pool *pool);
// Threads that a pool made with this number has; makes none.
uint32_t rt_pool_threads(uint32_t threads);
// Several host threads may launch on it at once (they take turns); a task of the pool must not.
rt_executor rt_pool_executor(rt_pool *pool);

// The processor's name and caches as cpuinfo tells them; zeros and "" where it does not know. Sizes
// in bytes.
typedef struct rt_processor {
  char name[64];
  uint32_t cores;
  size_t level1_data, level2, level3; // that one core uses
  // All caches of all cores together, from level 2 on: data that was used longer ago than that many
  // other bytes is in none of them. Where cpuinfo does not know, what the system says.
  size_t caches;
} rt_processor;
rt_processor rt_processor_read(void);

// ---- launching ----------------------------------------------------------------------------------

// Workspace for bound tensors: temporaries, shared areas, one scratch for each concurrent worker,
// and the room to pack tensors whose unit_position has another stride (they are copied tile by
// tile, both ways). BASE_INVALID when it overflows.
base_status rt_workspace_size(const rt_program *program, const rt_tensor *tensors,
                              const int64_t *sizes, uint32_t concurrency, size_t *bytes,
                              base_diag *diag);
// Runs all kernels. Allocates nothing. Rows are independent: nothing reads or writes a row outside
// its task.
void rt_launch(const rt_program *program, const rt_tensor *tensors, const int64_t *sizes,
               const rt_executor *executor, void *workspace);

#endif
