// What `--emit report` prints for a GPU: one block a kernel. Bytes and flops are counted from the
// kernel IR, registers and spills are the compiler's, occupancy and the roofline follow from both
// (docs/roofline.md).
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/gpu.h"
#include "codegen/cuda/text.h"

enum { REPORT_ROWS = 8192 }; // where the graph does not say

// ---- bytes --------------------------------------------------------------------------------------

static double report_use(base_text *out, const kir_kernel *kernel, cuda_use use) {
  static const char *const what[CUDA_USES] = {
      [CUDA_USE_AGAIN] = "again for another use, for want of room to keep it",
      [CUDA_USE_SHARED] = "by every token, since all share it",
      [CUDA_USE_BEFORE] = "before the tokens",
  };
  double all = 0;
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    double bytes = cuda_bytes_used(kernel, arg, use);
    if (bytes == 0) continue;
    base_text_printf(out, "%s%%%.*s %.0f", all > 0 ? ", " : "    ",
                     BASE_FMT(ir_node_of(kernel->graph, arg->value)->name), bytes);
    all += bytes;
  }
  if (all > 0) base_text_printf(out, ": %s", what[use]);
  if (all > 0 && use == CUDA_USE_BEFORE)
    base_text_printf(out, ", %s",
                     kernel->team.prepared_by_launch ? "by a launch of its own" : "by each block");
  if (all > 0) base_text_printf(out, "\n");
  return all;
}

// All of it comes from a cache when the cache is large enough.
static void report_reads(base_text *out, const kir_kernel *kernel) {
  base_text list = {.arena = out->arena};
  double again =
      report_use(&list, kernel, CUDA_USE_AGAIN) + report_use(&list, kernel, CUDA_USE_SHARED);
  base_text_printf(out, "  read again per token: %.0f bytes\n", again);
  report_use(&list, kernel, CUDA_USE_BEFORE);
  if (list.length) base_text_append(out, list.data, list.length);
  double written = cuda_workspace_bytes(kernel, false), read = cuda_workspace_bytes(kernel, true);
  if (written + read > 0)
    base_text_printf(out, "  workspace per token: %.0f bytes read, %.0f written\n", read, written);
}

// ---- occupancy and roofline ---------------------------------------------------------------------

static int64_t report_rows(const kir_kernel *kernel) {
  int64_t rows = 1;
  bool open = false;
  for (uint32_t i = 0; i < kernel->row_count; i++) {
    int64_t size = ir_axis_size(kernel->graph, kernel->rows[i]);
    open |= size == IR_DYNAMIC;
    rows *= size == IR_DYNAMIC ? 1 : size;
  }
  return open && rows < REPORT_ROWS ? REPORT_ROWS : rows;
}

static void report_roofline(base_text *out, const kir_kernel *kernel, const cuda_gpu *gpu,
                            const cuda_occupancy *occupancy) {
  cuda_work work = cuda_work_of(kernel, report_rows(kernel), gpu, occupancy->blocks);
  cuda_roofline roofline = cuda_roofline_of(gpu, occupancy->blocks, &work);
  base_text_printf(
      out,
      "  roofline: %s (%u SMs, %.0f GB/s), %lld rows by %lld blocks: at least %.1f us, "
      "bound by %s\n    ",
      gpu->name, gpu->multiprocessors, gpu->memory_gb_s, (long long)work.rows,
      (long long)work.blocks, roofline.floor, cuda_bound_name(roofline.binding));
  for (cuda_bound i = 0; i < CUDA_BOUNDS; i++)
    if (i != CUDA_BOUND_TENSOR)
      base_text_printf(out, "%s %.1f us, ", cuda_bound_name(i), roofline.microseconds[i]);
  base_text_printf(out, "at most %.2f of the memory's bandwidth\n", roofline.memory_share);
}

static void report_occupancy(base_text *out, const cuda_occupancy *occupancy, const cuda_gpu *gpu) {
  base_text_printf(out, "  occupancy: %u block%s a multiprocessor, %u of %u warps, limited by %s",
                   occupancy->blocks, occupancy->blocks == 1 ? "" : "s", occupancy->warps,
                   occupancy->warps_limit, cuda_limit_name(occupancy->limit));
  if (gpu)
    base_text_printf(out, "; %s holds %u blocks", gpu->name,
                     gpu->multiprocessors * occupancy->blocks);
  base_text_printf(out, "\n");
}

// ---- kernels ------------------------------------------------------------------------------------

static void report_resources(base_text *out, const char *name,
                             const cuda_kernel_resources *resources) {
  base_text_printf(
      out, "  registers%s%s: %u, spills: %u bytes stored, %u loaded, stack: %u bytes\n",
      name ? " of " : "", name ? name : "", resources->registers, resources->spill_store_bytes,
      resources->spill_load_bytes, resources->stack_bytes);
}

// The functions beside the form's own: what prepares, and later steps.
static void report_others(base_text *out, const cuda_binary *binary, const char *name) {
  for (uint32_t i = 0; i < binary->kernel_count; i++)
    if (!base_str_equal(binary->kernels[i].name, base_str_from(name)))
      report_resources(out, base_str_copy(out->arena, binary->kernels[i].name).data,
                       &binary->kernels[i]);
}

static void report_form(base_text *out, const cuda_plan *plan, const cuda_kernel *info,
                        uint32_t number, const cuda_binary *binary) {
  const kir_kernel *kernel = info->forms[number];
  const char *name = info->names[number];
  const cuda_logits *logits = cuda_form_logits(info, number);
  rt_form form = cuda_form_create(out->arena, info, number);
  const kir_team *team = &kernel->team;
  kir_cost cost = kir_cost_per_row(kernel);
  double bytes = cost.bytes_read + cost.bytes_written;
  base_text_printf(out, "kernel: %.*s, function %s\n  schedule: ", BASE_FMT(kernel->name), name);
  kir_schedule_print(&kernel->schedule, out);
  if (logits)
    cuda_logits_describe(logits, out);
  else
    base_text_printf(out, "\n  team: %u threads, %u elements an access, %u teams a block\n",
                     team->threads, team->vector, team->count);
  base_text_printf(out, "  fused ops: %u\n", kir_fused_ops(kernel));
  base_text_printf(out, "  bytes per token: %.0f (%.0f read, %.0f written)\n", bytes,
                   cost.bytes_read, cost.bytes_written);
  if (logits)
    base_text_printf(out, "  read again per token: %.0f bytes\n",
                     cuda_logits_reread_per_row(logits));
  else
    report_reads(out, kernel);
  base_text_printf(out, "  flops per token: %.0f (%.2f per byte)\n", cost.flops,
                   bytes > 0 ? cost.flops / bytes : 0);
  base_text_printf(out, "  shared memory: %zu bytes a block, workspace: %zu bytes a block\n",
                   form.shared_bytes, form.block_bytes);
  const cuda_kernel_resources *resources = binary ? cuda_find_resources(binary, name) : NULL;
  if (!resources) {
    base_text_printf(out, "  registers: not known\n");
    return;
  }
  report_resources(out, NULL, resources);
  report_others(out, binary, name);
  cuda_footprint footprint = cuda_footprint_of(&form, resources);
  cuda_occupancy occupancy = cuda_occupancy_of(&plan->arch, &footprint);
  const cuda_gpu *gpu = cuda_gpu_find(plan->arch.name);
  report_occupancy(out, &occupancy, gpu);
  // What tensor cores do is no FP32 work: of that the report says only how it fits.
  if (!logits && gpu && occupancy.blocks && kernel->row_count)
    report_roofline(out, kernel, gpu, &occupancy);
}

base_str cuda_report(base_arena *arena, const cuda_plan *plan, const cuda_binary *binaries,
                     const char *why) {
  base_text out = {.arena = arena};
  base_text_printf(&out, "graph: %.*s\ntarget: cuda (%s, %s)\nkernels: %u\n",
                   BASE_FMT(plan->graph->name), plan->arch.name, plan->arch.generation,
                   plan->kernel_count);
  uint32_t temporaries = 0, next = 0;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].forms[0]->args.count; j++) {
      const kir_arg *arg = &plan->kernels[i].forms[0]->args.data[j];
      temporaries += arg->temporary && arg->written;
    }
  base_text_printf(&out, "temporaries in memory: %u\nschedule source: %s\n", temporaries,
                   plan->schedule_source);
  if (why) base_text_printf(&out, "not compiled: %s\n", why);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    if (plan->kernels[i].logits)
      base_text_printf(&out, "logits: by kernel %.*s, so sources are read twice, by it and after\n",
                       BASE_FMT(plan->kernels[i].forms[0]->name));
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count; j++, next++)
      report_form(&out, plan, &plan->kernels[i], j, binaries ? &binaries[next] : NULL);
  return base_text_str(&out);
}
