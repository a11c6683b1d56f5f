// Launching: kernels one after the other, the rows of each cut into tasks, tasks taken from a
// counter by as many workers as the executor runs at once. A worker owns its scratch, tiles and
// pointers, so that which worker gets which task changes nothing but the time.
#include "runtime/plan.h"

#include <stdatomic.h>

// One kernel on its way.
typedef struct launch {
  const rt_kernel *kernel;
  const rt_plan *plan;
  const rt_view *views;
  int64_t *strides;
  char *shared, *shared_tiles, *workers;
  atomic_llong next_task;
} launch;

// The rows of one task.
typedef struct task {
  int64_t outer[RT_MAX_RANK]; // index along each outer row axis
  int64_t begin, end;
} task;

static task task_at(const rt_rows *rows, int64_t index) {
  task task = {.begin = index % rows->tasks_per_outer * rows->per_task};
  int64_t outer = index / rows->tasks_per_outer, left = rows->inner - task.begin;
  task.end = task.begin + (left < rows->per_task ? left : rows->per_task);
  for (uint32_t k = rows->outer_count; k-- > 0;) {
    task.outer[k] = outer % rows->outer_size[k];
    outer /= rows->outer_size[k];
  }
  return task;
}

// Bytes from an argument's data to its part of the task's outer rows.
static int64_t outer_offset(const rt_view *view, const rt_rows *rows, const task *task) {
  int64_t offset = 0;
  for (uint32_t k = 0; k < rows->outer_count; k++) {
    offset += task->outer[k] * view->outer_stride[k];
  }
  return offset;
}

static int64_t outer_slice(const rt_view *view, const task *task) {
  return view->slice_outer < 0 ? 0 : task->outer[view->slice_outer];
}

static char *tile_of(const launch *launch, const rt_view *view, char *worker) {
  return (view->per_launch ? launch->shared_tiles : worker + launch->plan->tiles) + view->tile;
}

// ---- what the code gets -------------------------------------------------------------------------

// Rows are absolute to the code, so a tile's pointers lie `begin` rows before it.
static void point_at_tile(const rt_view *view, const task *task, char *tile, void **pointers) {
  int row = view->row_position;
  char *base = row < 0 ? tile : rt_shift(tile, -task->begin * view->tile_stride[row]);
  pointers[0] = base;
  for (uint32_t i = 1; i < view->arg->pointer_count; i++) {
    pointers[i] = rt_shift(base, i * view->tile_stride[0]);
  }
}

static void point_at_host(const rt_view *view, const rt_rows *rows, const task *task,
                          void **pointers) {
  int64_t offset = outer_offset(view, rows, task), first = outer_slice(view, task);
  pointers[0] = rt_shift(view->slices ? view->slices[first] : view->data, offset);
  for (uint32_t i = 1; i < view->arg->pointer_count; i++) {
    char *data = view->slices ? view->slices[i] : rt_shift(view->data, i * view->stride[0]);
    pointers[i] = rt_shift(data, offset);
  }
}

static void point(const launch *launch, const task *task, char *worker) {
  void **pointers = (void **)worker;
  for (uint32_t i = 0; i < launch->kernel->arg_count; i++) {
    const rt_view *view = &launch->views[i];
    void **own = pointers + view->arg->first_pointer;
    if (view->packed) {
      point_at_tile(view, task, tile_of(launch, view, worker), own);
    } else {
      point_at_host(view, &launch->plan->rows, task, own);
    }
  }
}

static void fill_strides(const launch *launch) {
  for (uint32_t i = 0; i < launch->kernel->arg_count; i++) {
    const rt_view *view = &launch->views[i];
    const int64_t *strides = view->packed ? view->tile_stride : view->stride;
    for (uint32_t k = 0; k < view->rank; k++) {
      launch->strides[view->arg->first_stride + k] = strides[k];
    }
  }
}

// ---- running ------------------------------------------------------------------------------------

static rt_part part_of(const rt_view *view, const rt_rows *rows, const task *task) {
  return (rt_part){.offset = outer_offset(view, rows, task),
                   .slice = outer_slice(view, task),
                   .first = task->begin,
                   .rows = task->end - task->begin};
}

// Inputs to their tiles before the body, results from theirs after it.
static void copy_tiles(const launch *launch, const task *task, char *worker, bool results) {
  for (uint32_t i = 0; i < launch->kernel->arg_count; i++) {
    const rt_view *view = &launch->views[i];
    if (!view->packed || view->per_launch || view->arg->written != results) continue;
    rt_part part = part_of(view, &launch->plan->rows, task);
    char *tile = tile_of(launch, view, worker);
    if (results) {
      rt_unpack(view, &part, tile);
    } else {
      rt_pack(view, &part, tile);
    }
  }
}

static void run_worker(void *argument, size_t index) {
  launch *launch = argument;
  char *worker = launch->workers + index * launch->plan->worker_bytes;
  for (;;) {
    int64_t next = atomic_fetch_add_explicit(&launch->next_task, 1, memory_order_relaxed);
    if (next >= launch->plan->rows.tasks) return;
    task task = task_at(&launch->plan->rows, next);
    point(launch, &task, worker);
    copy_tiles(launch, &task, worker, false);
    launch->kernel->body((void *const *)worker, launch->strides, task.begin, task.end,
                         launch->shared, worker + launch->plan->scratch);
    copy_tiles(launch, &task, worker, true);
  }
}

static void prepare(const launch *launch) {
  task first = task_at(&launch->plan->rows, 0);
  for (uint32_t i = 0; i < launch->kernel->arg_count; i++) {
    const rt_view *view = &launch->views[i];
    rt_part whole = {0};
    if (view->per_launch) rt_pack(view, &whole, tile_of(launch, view, launch->workers));
  }
  if (!launch->kernel->prepare) return;
  point(launch, &first, launch->workers);
  launch->kernel->prepare((void *const *)launch->workers, launch->strides, launch->shared,
                          launch->workers + launch->plan->scratch);
}

static void launch_kernel(const rt_bound *bound, const rt_kernel *kernel, size_t start,
                          const rt_executor *executor) {
  rt_plan plan;
  rt_plan_kernel(bound, kernel, executor->concurrency, start, &plan);
  if (plan.rows.tasks == 0) return;
  char *workspace = bound->workspace;
  launch launch = {.kernel = kernel,
                   .plan = &plan,
                   .views = (const rt_view *)(workspace + plan.views),
                   .strides = (int64_t *)(workspace + plan.strides),
                   .shared = workspace + plan.shared,
                   .shared_tiles = workspace + plan.shared_tiles,
                   .workers = workspace + plan.first_worker};
  fill_strides(&launch);
  prepare(&launch);
  if (plan.workers == 1) {
    run_worker(&launch, 0);
  } else {
    executor->parallel_for(executor->user, plan.workers, run_worker, &launch);
  }
}

void rt_launch(const rt_program *program, const rt_tensor *tensors, const int64_t *sizes,
               const rt_executor *executor, void *workspace) {
  rt_bound bound = {program, tensors, sizes, workspace};
  size_t start;
  rt_plan_temporaries(&bound, &start);
  for (uint32_t i = 0; i < program->kernel_count; i++) {
    launch_kernel(&bound, &program->kernels[i], start, executor);
  }
}
