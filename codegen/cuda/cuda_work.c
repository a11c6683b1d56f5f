// What a launch of a kernel does and takes, counted from the kernel IR: for the report and for the
// tuner's ranking (docs/roofline.md).
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/text.h"

// Waits of the whole team, one after the other, in a row: for rows that were copied ahead, where sums
// cross the team, and where a row value is read by other threads than wrote it.
static double barriers_per_row(const kir_kernel *kernel) {
  double waits = kernel->schedule.load > 0 && kernel->team.stage_bytes > 0;
  if (kernel->team.threads <= 32) return waits;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase != KIR_BODY || sweep->scalar) continue;
    bool waited = false;
    for (uint32_t j = 0; j < sweep->roots.count; j++) {
      const kir_root *root = &sweep->roots.data[j];
      if (sweep->lane >= 0)
        waited |= (root->accumulates & ir_axis_bit(sweep->loops[sweep->lane])) != 0;
      waited |= kernel->values[root->value.index].read_across;
    }
    waits += waited;
  }
  return waits;
}

// ---- bytes --------------------------------------------------------------------------------------

static double bytes_of(const kir_kernel *kernel, const ir_type *type, size_t element) {
  return kir_elements_per_row(kernel, type) * (double)element;
}

// The blocks of a launch that prepares share an axis, index by index.
static double reads_before(const kir_kernel *kernel, const kir_arg *arg, const ir_type *type) {
  int32_t shared = kernel->team.prepared_by_launch ? text_prepare_axis(kernel) : -1;
  if (shared < 0 || ir_type_has(type, (ir_axis){(uint32_t)shared})) return arg->prepare_reads;
  return arg->prepare_reads > 0 ? (double)kernel->axes[shared].size : 0;
}

double cuda_bytes_used(const kir_kernel *kernel, const kir_arg *arg, cuda_use use) {
  const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
  bool own = kir_has_row(kernel, type);
  double times[CUDA_USES] = {[CUDA_USE_AGAIN] = own ? arg->reads - 1 : 0,
                             [CUDA_USE_SHARED] = own ? 0 : arg->reads,
                             [CUDA_USE_BEFORE] = reads_before(kernel, arg, type)};
  if (arg->written || times[use] <= 0) return 0;
  return times[use] * bytes_of(kernel, type, ir_dtype_size(type->dtype));
}

double cuda_workspace_bytes(const kir_kernel *kernel, bool read) {
  double bytes = 0;
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++) {
    const kir_value *value = &kernel->values[i];
    bool kept = value->place == KIR_SHARED || value->place == KIR_SCRATCH;
    if (!kept || value->residency != KIR_MEMORY) continue;
    double times = read ? value->reads : value->place == KIR_SCRATCH;
    bytes += times * bytes_of(kernel, &kernel->graph->nodes.data[i].type, sizeof(float));
  }
  return bytes;
}

// What all rows share, of the arguments.
static double once_bytes(const kir_kernel *kernel) {
  double bytes = 0;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    const ir_type *type = &ir_node_of(kernel->graph, arg->value)->type;
    if (!kir_has_row(kernel, type)) bytes += bytes_of(kernel, type, ir_dtype_size(type->dtype));
  }
  return bytes;
}

static double bytes_again(const kir_kernel *kernel) {
  double bytes = cuda_workspace_bytes(kernel, false) + cuda_workspace_bytes(kernel, true);
  for (uint32_t i = 0; i < kernel->args.count; i++)
    bytes += cuda_bytes_used(kernel, &kernel->args.data[i], CUDA_USE_AGAIN) +
             cuda_bytes_used(kernel, &kernel->args.data[i], CUDA_USE_SHARED);
  return bytes;
}

// ---- a launch -----------------------------------------------------------------------------------

cuda_work cuda_work_of(const kir_kernel *kernel, int64_t rows, const cuda_gpu *gpu,
                       uint32_t blocks_per_multiprocessor) {
  const kir_team *team = &kernel->team;
  kir_cost cost = kir_cost_per_row(kernel);
  int64_t teams = (rows + team->count - 1) / team->count;
  int64_t at_once = (int64_t)gpu->multiprocessors * blocks_per_multiprocessor / team->split;
  if (kernel->schedule.persistent && teams > at_once) teams = at_once > 1 ? at_once : 1;
  return (cuda_work){.rows = rows,
                     .dram_bytes = cost.bytes_read + cost.bytes_written,
                     .l2_bytes = bytes_again(kernel),
                     .flops = cost.flops,
                     .barriers = barriers_per_row(kernel),
                     .once_bytes = once_bytes(kernel),
                     .blocks = teams * team->split,
                     .blocks_per_row = team->split,
                     .rows_at_once = team->count};
}

// ---- what a block takes -------------------------------------------------------------------------

const cuda_kernel_resources *cuda_find_resources(const cuda_binary *binary, const char *name) {
  for (uint32_t i = 0; i < binary->kernel_count; i++)
    if (base_str_equal(binary->kernels[i].name, base_str_from(name))) return &binary->kernels[i];
  return NULL;
}

cuda_footprint cuda_footprint_of(const rt_form *form, const cuda_kernel_resources *resources) {
  return (cuda_footprint){.threads = form->threads,
                          .registers = resources->registers,
                          .barriers = resources->barriers,
                          .cluster = form->cluster,
                          .shared_bytes = resources->static_shared_bytes + form->shared_bytes};
}
