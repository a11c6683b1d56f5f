// Programs in archives: each function describes a struct for both directions, and what has to hold
// of it so that a launcher may rely on it.
#include "runtime/archive.h"

// A number of items of an array that a struct has room for.
static void few(rt_archive *a, uint32_t *count, uint32_t most, const char *fault) {
  rt_archive_below(a, count, most + 1, fault);
}

static void needed_text(rt_archive *a, const char **text) {
  rt_archive_text(a, text);
  rt_archive_require(a, *text != NULL, "a name is missing");
  if (*text == NULL) *text = "";
}

// ---- programs -----------------------------------------------------------------------------------

static void archive_axis(rt_archive *a, rt_axis *axis) {
  needed_text(a, &axis->name);
  rt_archive_i64(a, &axis->size);
  rt_archive_require(a, axis->size >= RT_DYNAMIC, "an axis has a negative size");
}

static void archive_slot(rt_archive *a, const rt_program *program, rt_slot *slot) {
  uint32_t role = slot->role, dtype = slot->dtype;
  needed_text(a, &slot->name);
  rt_archive_below(a, &role, RT_TEMPORARY + 1, "a tensor has an unknown role");
  rt_archive_below(a, &dtype, RT_DTYPE_COUNT, "a tensor has an unknown dtype");
  slot->role = (rt_role)role;
  slot->dtype = (rt_dtype)dtype;
  few(a, &slot->rank, RT_MAX_RANK, "a tensor has too many axes");
  for (uint32_t i = 0; i < slot->rank; i++)
    rt_archive_below(a, &slot->axes[i], program->axis_count, "a tensor has an unknown axis");
}

// Inputs before outputs before temporaries.
static void check_order(rt_archive *a, const rt_program *program) {
  for (uint32_t i = 1; i < program->slot_count; i++)
    rt_archive_require(a, program->slots[i - 1].role <= program->slots[i].role,
                       "tensors are out of order");
}

static bool within(uint32_t first, uint32_t count, uint32_t limit) {
  return first <= limit && count <= limit - first;
}

static void archive_arg(rt_archive *a, const rt_program *program, const rt_kernel *kernel,
                        rt_kernel_arg *arg) {
  uint32_t unit = (uint32_t)(arg->unit_position + 1);
  rt_archive_below(a, &arg->slot, program->slot_count, "a kernel uses an unknown tensor");
  rt_archive_u32(a, &arg->first_pointer);
  rt_archive_u32(a, &arg->pointer_count);
  rt_archive_u32(a, &arg->first_stride);
  rt_archive_u32(a, &unit);
  rt_archive_bool(a, &arg->written);
  if (a->fault != NULL) return;
  const rt_slot *slot = &program->slots[arg->slot];
  arg->unit_position = (int32_t)unit - 1;
  rt_archive_require(a, unit <= slot->rank, "a kernel uses an unknown position of a tensor");
  rt_archive_require(a, within(arg->first_pointer, arg->pointer_count, kernel->pointer_count),
                     "a kernel has too few pointers");
  rt_archive_require(a, within(arg->first_stride, slot->rank, kernel->stride_count),
                     "a kernel has too few strides");
  // A pointer for each index of the first axis, or one.
  rt_archive_require(
      a,
      arg->pointer_count == 1 ||
          (slot->rank > 0 && program->axes[slot->axes[0]].size == (int64_t)arg->pointer_count),
      "a kernel has another number of slices than a tensor");
}

static void archive_kernel(rt_archive *a, const rt_program *program, rt_kernel *kernel) {
  needed_text(a, &kernel->name);
  rt_archive_u32(a, &kernel->pointer_count);
  rt_archive_u32(a, &kernel->stride_count);
  rt_kernel_arg *args = rt_archive_array(a, kernel->args, &kernel->arg_count, sizeof *args);
  kernel->args = args;
  for (uint32_t i = 0; i < kernel->arg_count; i++)
    archive_arg(a, program, kernel, &args[i]);
  few(a, &kernel->row_count, RT_MAX_RANK, "a kernel has too many row axes");
  for (uint32_t i = 0; i < kernel->row_count; i++)
    rt_archive_below(a, &kernel->rows[i], program->axis_count, "a kernel has an unknown row axis");
  rt_archive_i64(a, &kernel->rows_per_task);
  rt_archive_require(a, kernel->rows_per_task >= 1, "a task has no rows");
  rt_archive_size(a, &kernel->shared_bytes);
  rt_archive_size(a, &kernel->scratch_bytes);
}

void rt_archive_program(rt_archive *a, rt_program *program) {
  rt_axis *axes = rt_archive_array(a, program->axes, &program->axis_count, sizeof *axes);
  program->axes = axes;
  for (uint32_t i = 0; i < program->axis_count; i++)
    archive_axis(a, &axes[i]);
  rt_slot *slots = rt_archive_array(a, program->slots, &program->slot_count, sizeof *slots);
  program->slots = slots;
  for (uint32_t i = 0; i < program->slot_count; i++)
    archive_slot(a, program, &slots[i]);
  check_order(a, program);
  rt_kernel *kernels =
      rt_archive_array(a, program->kernels, &program->kernel_count, sizeof *kernels);
  program->kernels = kernels;
  for (uint32_t i = 0; i < program->kernel_count; i++)
    archive_kernel(a, program, &kernels[i]);
}

// ---- code for the host --------------------------------------------------------------------------

void rt_archive_host_image(rt_archive *a, rt_host_image *image, const rt_program *program) {
  rt_archive_bytes(a, &image->code);
  rt_host_entry *entries =
      rt_archive_array(a, image->entries, &image->entry_count, sizeof *entries);
  image->entries = entries;
  for (uint32_t i = 0; i < image->entry_count; i++) {
    rt_archive_u64(a, &entries[i].body);
    rt_archive_u64(a, &entries[i].prepare);
    rt_archive_require(a, entries[i].body < image->code.length, "a kernel begins beyond the code");
    rt_archive_require(a,
                       entries[i].prepare == RT_NO_ENTRY || entries[i].prepare < image->code.length,
                       "a kernel begins beyond the code");
  }
  rt_archive_require(a, image->entry_count == program->kernel_count,
                     "there is not one code for each kernel");
}

// ---- code for a device --------------------------------------------------------------------------

static void archive_source(rt_archive *a, const rt_program *program, const rt_kernel *kernel,
                           rt_source *source) {
  rt_archive_below(a, &source->arg, kernel->arg_count, "a product has an unknown source");
  for (uint32_t i = 0; i < RT_MAX_RANK; i++)
    rt_archive_i64(a, &source->index[i]);
  if (a->fault != NULL) return;
  const rt_slot *slot = &program->slots[kernel->args[source->arg].slot];
  for (uint32_t i = 0; i < RT_MAX_RANK; i++) {
    int64_t size = i < slot->rank ? program->axes[slot->axes[i]].size : 1;
    rt_archive_require(
        a, source->index[i] >= 0 && (size < 0 || source->index[i] < size || source->index[i] == 0),
        "a product's source lies beyond a tensor");
  }
}

static void archive_product(rt_archive *a, const rt_program *program, const rt_kernel *kernel,
                            rt_product *product) {
  uint32_t dtype = product->dtype;
  rt_archive_below(a, &dtype, RT_DTYPE_COUNT, "a product has an unknown dtype");
  product->dtype = (rt_dtype)dtype;
  rt_archive_i64(a, &product->n);
  rt_archive_i64(a, &product->k);
  rt_archive_require(a, product->n >= 0 && product->k >= 0, "a product has a negative size");
  few(a, &product->token_count, RT_MAX_RANK, "a product has too many axes");
  for (uint32_t i = 0; i < product->token_count; i++)
    rt_archive_below(a, &product->tokens[i], program->axis_count, "a product has an unknown axis");
  rt_source *sources =
      rt_archive_array(a, product->sources, &product->source_count, sizeof *sources);
  product->sources = sources;
  for (uint32_t i = 0; i < product->source_count; i++)
    archive_source(a, program, kernel, &sources[i]);
}

static void archive_launch(rt_archive *a, rt_form *form) {
  enum { MOST_THREADS = 1024, MOST_CLUSTER = 16 };
  rt_archive_i64(a, &form->items);
  rt_archive_require(a, form->items >= 0, "a kernel has a negative number of items");
  rt_archive_u32(a, &form->alignment);
  rt_archive_u32(a, &form->vector);
  few(a, &form->threads, MOST_THREADS, "a block has too many threads");
  rt_archive_u32(a, &form->rows_per_block);
  few(a, &form->cluster, MOST_CLUSTER, "a cluster has too many blocks");
  rt_archive_require(a, form->threads > 0 && form->rows_per_block > 0 && form->cluster > 0,
                     "a block has no threads, or no rows");
  rt_archive_bool(a, &form->persistent);
  rt_archive_bool(a, &form->programmatic);
  rt_archive_size(a, &form->shared_bytes);
  rt_archive_size(a, &form->prepared_bytes);
  rt_archive_size(a, &form->block_bytes);
}

static void archive_form(rt_archive *a, const rt_program *program, const rt_kernel *kernel,
                         rt_form *form) {
  uint32_t kind = form->kind;
  rt_archive_below(a, &kind, RT_FORM_MATMUL + 1, "a kernel has code of an unknown kind");
  form->kind = (rt_form_kind)kind;
  needed_text(a, &form->function);
  const char **steps = rt_archive_array(a, form->steps, &form->step_count, sizeof *steps);
  form->steps = steps;
  rt_archive_require(a, form->step_count <= RT_MAX_STEPS, "a kernel has too many steps");
  for (uint32_t i = 0; i < form->step_count; i++)
    needed_text(a, &steps[i]);
  rt_archive_u32(a, &form->row_blocks);
  rt_archive_text(a, &form->prepare);
  rt_archive_u32(a, &form->prepare_blocks);
  archive_launch(a, form);
  if (form->kind != RT_FORM_MATMUL) return;
  rt_product *product =
      a->out != NULL ? (rt_product *)form->product : base_new(a->arena, rt_product);
  archive_product(a, program, kernel, product);
  form->product = product;
}

static void archive_device_kernel(rt_archive *a, const rt_program *program, const rt_kernel *kernel,
                                  rt_device_kernel *device) {
  few(a, &device->form_count, RT_MAX_FORMS, "a kernel has too many forms");
  rt_archive_require(a, device->form_count > 0, "a kernel has no code");
  for (uint32_t i = 0; i < device->form_count; i++) {
    rt_archive_bytes(a, &device->image[i].cubin);
    rt_archive_bytes(a, &device->image[i].ptx);
    archive_form(a, program, kernel, &device->forms[i]);
  }
}

void rt_archive_device_program(rt_archive *a, rt_device_program *device) {
  rt_program *program =
      a->out != NULL ? (rt_program *)device->program : base_new(a->arena, rt_program);
  rt_archive_program(a, program);
  device->program = program;
  uint32_t count = program->kernel_count;
  rt_device_kernel *kernels = rt_archive_array(a, device->kernels, &count, sizeof *kernels);
  device->kernels = kernels;
  rt_archive_require(a, count == program->kernel_count, "there is not one code for each kernel");
  for (uint32_t i = 0; i < count && a->fault == NULL; i++)
    archive_device_kernel(a, program, &program->kernels[i], &kernels[i]);
}
