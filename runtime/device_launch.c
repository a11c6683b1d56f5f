// Launching on a device: which form of each kernel fits these tensors, its parameters, its grid.
#include "runtime/device_program.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/device_matmul.h"

static const base_loc nowhere;

enum {
  WORKSPACE_ALIGNMENT = 128,
  MAX_PARAMETERS = 32764, // bytes, since CUDA 12.1
  MAX_GRID = INT32_MAX,
};

// ---- loading ------------------------------------------------------------------------------------

typedef struct loaded_form {
  rt_code *code;
  rt_function *function, *prepare, *steps[RT_MAX_STEPS];
  rt_products *products; // kind RT_FORM_MATMUL
  uint32_t blocks;       // that a multiprocessor holds at once
} loaded_form;

typedef struct loaded_kernel {
  loaded_form forms[RT_MAX_FORMS];
} loaded_kernel;

struct rt_loaded {
  rt_device *device;
  const rt_device_program *program;
  loaded_kernel kernels[];
};

rt_device *rt_loaded_device(const rt_loaded *loaded) {
  return loaded->device;
}

static base_status load_form(rt_device *device, const rt_image *image, const rt_form *form,
                             loaded_form *out, base_diag *diag) {
  base_status status = device->ops->load(device, image, &out->code, diag);
  if (status == BASE_OK)
    status = device->ops->find(device, out->code, form->function, form->threads, form->shared_bytes,
                               &out->function, &out->blocks, diag);
  if (status == BASE_OK && form->prepare)
    status = device->ops->find(device, out->code, form->prepare, form->threads, form->shared_bytes,
                               &out->prepare, NULL, diag);
  for (uint32_t i = 0; i < form->step_count && status == BASE_OK; i++)
    status = device->ops->find(device, out->code, form->steps[i], form->threads, form->shared_bytes,
                               &out->steps[i], NULL, diag);
  if (status == BASE_OK && form->kind == RT_FORM_MATMUL)
    status = rt_products_create(device, form->product, &out->products, diag);
  return status;
}

// Pointers, strides, sizes and the workspace.
static size_t field_count(const rt_kernel *kernel) {
  return (size_t)kernel->pointer_count + kernel->stride_count + kernel->row_count + 1;
}

static bool fits_parameters(const rt_kernel *kernel, base_diag *diag) {
  if (field_count(kernel) <= MAX_PARAMETERS / sizeof(int64_t)) return true;
  base_error_status(
      diag, BASE_UNSUPPORTED, nowhere,
      "kernel @%s takes %zu pointers, strides and sizes, but a launch has room for %zu",
      kernel->name, field_count(kernel), MAX_PARAMETERS / sizeof(int64_t));
  base_hint(diag, "put parameters together in one, with an axis that counts them");
  return false;
}

base_status rt_device_load(rt_device *device, const rt_device_program *program, rt_loaded **out,
                           base_diag *diag) {
  uint32_t count = program->program->kernel_count;
  *out = NULL;
  for (uint32_t i = 0; i < count; i++)
    if (!fits_parameters(&program->program->kernels[i], diag)) return BASE_UNSUPPORTED;
  rt_loaded *loaded = calloc(1, sizeof *loaded + count * sizeof(loaded_kernel));
  if (!loaded) {
    base_error_status(diag, BASE_MEMORY, nowhere, "out of memory");
    return BASE_MEMORY;
  }
  loaded->device = device;
  loaded->program = program;
  base_status status = BASE_OK;
  for (uint32_t i = 0; i < count && status == BASE_OK; i++)
    for (uint32_t j = 0; j < program->kernels[i].form_count && status == BASE_OK; j++)
      status = load_form(device, &program->kernels[i].image[j], &program->kernels[i].forms[j],
                         &loaded->kernels[i].forms[j], diag);
  if (status != BASE_OK) {
    rt_device_unload(loaded);
    return status;
  }
  *out = loaded;
  return BASE_OK;
}

void rt_device_unload(rt_loaded *loaded) {
  if (!loaded) return;
  for (uint32_t i = 0; i < loaded->program->program->kernel_count; i++)
    for (uint32_t j = 0; j < RT_MAX_FORMS; j++) {
      rt_products_destroy(loaded->kernels[i].forms[j].products);
      if (loaded->kernels[i].forms[j].code)
        loaded->device->ops->unload(loaded->device, loaded->kernels[i].forms[j].code);
    }
  free(loaded);
}

// ---- what a kernel sees -------------------------------------------------------------------------

typedef struct launcher {
  const rt_loaded *loaded;
  rt_bound bound;
  void *stream;
  rt_traffic *traffic;
  base_diag *diag;
} launcher;

static bool is_multiple(const void *address, uint32_t alignment) {
  return (uintptr_t)address % alignment == 0;
}

// Can this tensor be read and written with wide accesses, wherever it begins?
static bool strides_fit(const rt_kernel_arg *arg, const rt_tensor *tensor, uint32_t alignment) {
  int64_t element = (int64_t)rt_dtype_size(tensor->dtype);
  int unit = arg->unit_position;
  if (tensor->slices && unit == 0) return false;
  if (tensor->shape[unit] > 1 && tensor->strides[unit] != 1) return false;
  for (int i = tensor->slices ? 1 : 0; i < (int)tensor->rank; i++)
    if (i != unit && tensor->shape[i] > 1 && tensor->strides[i] * element % alignment) return false;
  return true;
}

static bool addresses_fit(const rt_tensor *tensor, uint32_t alignment) {
  for (int64_t i = 0; tensor->slices && i < tensor->shape[0]; i++)
    if (!is_multiple(tensor->slices[i], alignment)) return false;
  return tensor->slices || is_multiple(tensor->data, alignment);
}

// Does form `number` of a kernel fit its arguments, by their strides alone or by both?
static bool form_fits(const launcher *l, uint32_t index, uint32_t number, bool addresses) {
  const rt_kernel *kernel = &l->bound.program->kernels[index];
  const rt_form *form = &l->loaded->program->kernels[index].forms[number];
  for (uint32_t i = 0; i < kernel->arg_count && form->alignment; i++) {
    rt_tensor tensor = rt_plan_tensor(&l->bound, kernel->args[i].slot);
    if (kernel->args[i].unit_position < 0) continue;
    uint32_t access = form->vector * (uint32_t)rt_dtype_size(tensor.dtype);
    uint32_t alignment = access && access < form->alignment ? access : form->alignment;
    if (!strides_fit(&kernel->args[i], &tensor, alignment)) return false;
    if (addresses && !addresses_fit(&tensor, alignment)) return false;
  }
  rt_products *products = l->loaded->kernels[index].forms[number].products;
  return !products || rt_products_fit(products, &l->bound, kernel);
}

static uint32_t choose_form(const launcher *l, uint32_t index) {
  uint32_t last = l->loaded->program->kernels[index].form_count - 1;
  for (uint32_t i = 0; i < last; i++)
    if (form_fits(l, index, i, true)) return i;
  return last;
}

static void fill_argument(const rt_kernel_arg *arg, const rt_tensor *tensor, void **pointers,
                          int64_t *strides) {
  int64_t element = (int64_t)rt_dtype_size(tensor->dtype);
  // The pointers of a list say where each index of the first axis is; a stride would say it twice.
  for (uint32_t i = 0; i < tensor->rank; i++) {
    bool steps = tensor->shape[i] > 1 && (i > 0 || arg->pointer_count == 1);
    strides[arg->first_stride + i] = steps ? tensor->strides[i] * element : 0;
  }
  for (uint32_t i = 0; i < arg->pointer_count; i++) {
    char *data = tensor->data;
    if (tensor->slices)
      data = tensor->shape[0] > 0 ? tensor->slices[i] : NULL;
    else if (arg->pointer_count > 1)
      data = rt_shift(data, (int64_t)i * tensor->strides[0] * element);
    pointers[arg->first_pointer + i] = data;
  }
}

// Returns the bytes filled in.
static size_t fill_parameters(const launcher *l, const rt_kernel *kernel, void *workspace,
                              int64_t *fields) {
  void **pointers = (void **)fields;
  int64_t *strides = fields + kernel->pointer_count;
  int64_t *sizes = strides + kernel->stride_count;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    rt_tensor tensor = rt_plan_tensor(&l->bound, kernel->args[i].slot);
    fill_argument(&kernel->args[i], &tensor, pointers, strides);
  }
  for (uint32_t i = 0; i < kernel->row_count; i++)
    sizes[i] = l->bound.sizes[kernel->rows[i]];
  memcpy(&sizes[kernel->row_count], &workspace, sizeof workspace);
  return (size_t)((char *)(sizes + kernel->row_count + 1) - (char *)fields);
}

// A list of slices that the code does not take as one: it knows strides only.
static bool slices_fit(const launcher *l, const rt_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    const rt_slot *slot = &l->bound.program->slots[kernel->args[i].slot];
    rt_tensor tensor = rt_plan_tensor(&l->bound, kernel->args[i].slot);
    if (!tensor.slices || tensor.shape[0] <= 1 || kernel->args[i].pointer_count > 1) continue;
    base_error(l->diag, nowhere, "%%%s: kernels on a device take it as one tensor, not as a list",
               slot->name);
    base_hint(l->diag, "copy its %lld slices together", (long long)tensor.shape[0]);
    return false;
  }
  return true;
}

// ---- grids --------------------------------------------------------------------------------------

static int64_t count_rows(const launcher *l, const rt_kernel *kernel) {
  int64_t rows = 1;
  for (uint32_t i = 0; i < kernel->row_count; i++)
    if (__builtin_mul_overflow(rows, l->bound.sizes[kernel->rows[i]], &rows)) return INT64_MAX;
  return rows;
}

// What the blocks share.
static int64_t count_items(const launcher *l, const rt_kernel *kernel, const rt_form *form) {
  int64_t items = form->items;
  if (!items) return count_rows(l, kernel);
  for (uint32_t i = 0; i < kernel->row_count; i++)
    if (l->bound.program->axes[kernel->rows[i]].size == RT_DYNAMIC &&
        __builtin_mul_overflow(items, l->bound.sizes[kernel->rows[i]], &items))
      return INT64_MAX;
  return items;
}

// With a workspace for each block their number must not grow with the items.
static int64_t count_blocks(const rt_loaded *loaded, const rt_form *form, uint32_t per_processor,
                            int64_t items) {
  int64_t blocks = items / form->rows_per_block + (items % form->rows_per_block != 0);
  int64_t at_once = (int64_t)loaded->device->facts.multiprocessors * per_processor / form->cluster;
  if (at_once < 1) at_once = 1;
  // Each row of a kernel in steps keeps a workspace of its own from one launch to the next.
  if (form->row_blocks)
    return items > INT64_MAX / form->row_blocks ? INT64_MAX : items * form->row_blocks;
  bool bounded = form->persistent || form->block_bytes || blocks > MAX_GRID / form->cluster;
  if (bounded && blocks > at_once) blocks = at_once;
  return blocks;
}

// ---- memory that a launch may touch -------------------------------------------------------------

static rt_span span_of(const rt_slot *slot, const rt_tensor *tensor, char *data, uint32_t skipped,
                       bool written) {
  rt_region region = {
      .base = 0, .element = (int64_t)rt_dtype_size(tensor->dtype), .rank = tensor->rank - skipped};
  for (uint32_t i = 0; i < region.rank; i++) {
    region.size[i] = tensor->shape[i + skipped];
    region.stride[i] = region.size[i] > 1 ? tensor->strides[i + skipped] * region.element : 0;
  }
  int64_t low = 0, high = 0;
  bool empty = false;
  for (uint32_t i = 0; i < tensor->rank; i++)
    empty |= tensor->shape[i] == 0;
  if (!empty) rt_region_extent(&region, &low, &high);
  return (rt_span){slot->name, data + low, (size_t)(high - low), written};
}

static uint32_t add_spans(const launcher *l, const rt_kernel_arg *arg, rt_span *spans,
                          uint32_t *slots) {
  const rt_slot *slot = &l->bound.program->slots[arg->slot];
  rt_tensor tensor = rt_plan_tensor(&l->bound, arg->slot);
  uint32_t count = tensor.slices ? (uint32_t)tensor.shape[0] : 1;
  for (uint32_t i = 0; i < count; i++) {
    spans[i] = span_of(slot, &tensor, tensor.slices ? tensor.slices[i] : tensor.data,
                       tensor.slices != NULL, arg->written);
    slots[i] = arg->slot;
  }
  return count;
}

static base_status launch_checked(const launcher *l, const rt_kernel *kernel,
                                  rt_device_launch *launch, char *workspace, size_t bytes) {
  const rt_device_ops *ops = l->loaded->device->ops;
  uint32_t most = kernel->pointer_count + kernel->arg_count + 1, count = 0;
  for (uint32_t i = 0; i < kernel->arg_count; i++) {
    rt_tensor tensor = rt_plan_tensor(&l->bound, kernel->args[i].slot);
    if (tensor.slices) most += (uint32_t)tensor.shape[0];
  }
  rt_span *spans = calloc(most, sizeof *spans);
  rt_traffic *traffic = calloc(most, sizeof *traffic);
  uint32_t *slots = calloc(most, sizeof *slots);
  base_status status = BASE_MEMORY;
  if (spans && traffic && slots) {
    for (uint32_t i = 0; i < kernel->arg_count; i++)
      count += add_spans(l, &kernel->args[i], spans + count, slots + count);
    uint32_t arguments = count;
    if (bytes) spans[count++] = (rt_span){"the workspace", workspace, bytes, true};
    launch->spans = spans;
    launch->span_count = count;
    launch->traffic = l->traffic ? traffic : NULL;
    status = ops->launch(l->loaded->device, l->stream, launch, l->diag);
    for (uint32_t i = 0; l->traffic && i < arguments; i++) {
      rt_traffic *sum = &l->traffic[slots[i]];
      sum->read += traffic[i].read;
      sum->written += traffic[i].written;
      sum->read_once += traffic[i].read_once;
      sum->written_once += traffic[i].written_once;
    }
  } else {
    base_error_status(l->diag, BASE_MEMORY, nowhere, "out of memory");
  }
  free(spans);
  free(traffic);
  free(slots);
  return status;
}

// ---- running ------------------------------------------------------------------------------------

static size_t align_up(size_t bytes) {
  return (bytes + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

// `blocks` are clusters where there are such. More than any workspace has where it would overflow.
static size_t kernel_bytes(const rt_form *form, int64_t blocks) {
  size_t bytes;
  if (__builtin_mul_overflow(align_up(form->block_bytes) * form->cluster, (size_t)blocks, &bytes) ||
      __builtin_add_overflow(bytes, align_up(form->prepared_bytes), &bytes) || bytes > PTRDIFF_MAX)
    return (size_t)PTRDIFF_MAX + 1;
  return bytes;
}

// One launch, with the checks that the device wants.
static base_status launch_one(const launcher *l, const rt_kernel *kernel, rt_device_launch *launch,
                              char *workspace, size_t bytes) {
  const rt_device_ops *ops = l->loaded->device->ops;
  if (ops->checks_memory) return launch_checked(l, kernel, launch, workspace, bytes);
  return ops->launch(l->loaded->device, l->stream, launch, l->diag);
}

static base_status run_kernel(const launcher *l, uint32_t index, char *workspace) {
  const rt_kernel *kernel = &l->bound.program->kernels[index];
  if (count_rows(l, kernel) == 0) return BASE_OK;
  if (!slices_fit(l, kernel)) return BASE_INVALID;
  uint32_t chosen = choose_form(l, index);
  const rt_form *form = &l->loaded->program->kernels[index].forms[chosen];
  const loaded_form *code = &l->loaded->kernels[index].forms[chosen];
  int64_t fields[MAX_PARAMETERS / sizeof(int64_t)];
  int64_t blocks = count_blocks(l->loaded, form, code->blocks, count_items(l, kernel, form));
  rt_device_launch launch = {.function = code->function,
                             .blocks = blocks * form->cluster,
                             .threads = form->threads,
                             .cluster = form->cluster,
                             .shared_bytes = form->shared_bytes,
                             .programmatic = form->programmatic,
                             .parameters = fields,
                             .parameter_bytes = fill_parameters(l, kernel, workspace, fields)};
  size_t bytes = kernel_bytes(form, blocks);
  if (code->products) bytes += rt_products_bytes(code->products, &l->bound);
  base_status status = BASE_OK;
  if (code->prepare) {
    rt_device_launch prepare = launch;
    prepare.function = code->prepare;
    prepare.blocks = form->prepare_blocks ? form->prepare_blocks : 1;
    prepare.cluster = 1;
    status = launch_one(l, kernel, &prepare, workspace, bytes);
  }
  if (status == BASE_OK && code->products)
    status =
        rt_products_run(code->products, &l->bound, kernel, workspace,
                        workspace + align_up(form->prepared_bytes), l->stream, l->traffic, l->diag);
  if (status == BASE_OK) status = launch_one(l, kernel, &launch, workspace, bytes);
  for (uint32_t i = 0; i < form->step_count && status == BASE_OK; i++) {
    launch.function = code->steps[i];
    status = launch_one(l, kernel, &launch, workspace, bytes);
  }
  return status;
}

// Bytes that a form needs; none when these tensors cannot have it.
static base_status form_bytes(const launcher *l, uint32_t index, uint32_t number, size_t *bytes) {
  const rt_kernel *kernel = &l->bound.program->kernels[index];
  const rt_form *form = &l->loaded->program->kernels[index].forms[number];
  const loaded_form *code = &l->loaded->kernels[index].forms[number];
  int64_t blocks = count_blocks(l->loaded, form, code->blocks, count_items(l, kernel, form));
  *bytes = kernel_bytes(form, blocks);
  if (!code->products) return BASE_OK;
  // Tensors at other addresses may come to the launch, but none with other strides.
  if (!form_fits(l, index, number, false)) {
    *bytes = 0;
    return BASE_OK;
  }
  size_t library;
  base_status status = rt_products_plan(code->products, &l->bound, kernel, &library, l->diag);
  *bytes += rt_products_bytes(code->products, &l->bound) + library;
  return status;
}

base_status rt_device_workspace(const rt_loaded *loaded, const rt_tensor *tensors,
                                const int64_t *sizes, size_t *bytes, base_diag *diag) {
  launcher l = {
      .loaded = loaded, .bound = {loaded->program->program, tensors, sizes, NULL}, .diag = diag};
  size_t start, most = 0;
  bool fits = rt_plan_temporaries(&l.bound, &start);
  *bytes = 0;
  for (uint32_t i = 0; i < l.bound.program->kernel_count; i++) {
    if (count_rows(&l, &l.bound.program->kernels[i]) == 0) continue;
    for (uint32_t j = 0; j < loaded->program->kernels[i].form_count; j++) {
      size_t needed;
      base_status status = form_bytes(&l, i, j, &needed);
      if (status != BASE_OK) return status;
      if (needed > most) most = needed;
    }
  }
  fits = fits && !__builtin_add_overflow(align_up(start), most, bytes);
  if (fits && *bytes <= PTRDIFF_MAX) return BASE_OK;
  base_error(diag, nowhere, "the workspace for these sizes does not fit in 63 bits");
  base_hint(diag, "run fewer rows at a time");
  *bytes = 0;
  return BASE_INVALID;
}

base_status rt_device_run(const rt_loaded *loaded, const rt_tensor *tensors, const int64_t *sizes,
                          void *stream, void *workspace, rt_traffic *traffic, base_diag *diag) {
  launcher l = {.loaded = loaded,
                .bound = {loaded->program->program, tensors, sizes, workspace},
                .stream = stream,
                .traffic = traffic,
                .diag = diag};
  size_t start;
  base_status status = BASE_OK;
  rt_plan_temporaries(&l.bound, &start);
  for (uint32_t i = 0; i < l.bound.program->kernel_count && status == BASE_OK; i++)
    status = run_kernel(&l, i, workspace ? (char *)workspace + align_up(start) : NULL);
  return status;
}
