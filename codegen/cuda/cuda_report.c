// What `--emit report` prints for a GPU: one block a kernel. Bytes and flops are counted from the
// kernel IR, registers and spills are the compiler's, occupancy and the roofline follow from both
// (docs/roofline.md).
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/gpu.h"
#include "codegen/cuda/text.h"

enum { REPORT_ROWS = 8192 };

static uint32_t fused_ops(const kir_kernel *kernel) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < kernel->graph->nodes.count; i++)
    count += kernel->graph->nodes.data[i].kernel == kernel->index;
  return count;
}

// Waits of the whole team, one after the other, in a row.
static double barriers_per_row(const kir_kernel *kernel) {
  double waits = 1;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    if (sweep->phase == KIR_BODY && !sweep->scalar && kernel->team.threads > 32) waits += 2;
  }
  return waits;
}

// What tensor cores do is no FP32 work: of that the report says only how it fits a multiprocessor.
static void report_roofline(base_text *out, const kir_kernel *kernel, const kir_cost *cost,
                            bool tensor_cores, const cuda_arch *arch,
                            const cuda_footprint *footprint) {
  cuda_occupancy occupancy = cuda_occupancy_of(arch, footprint);
  base_text_printf(out, "  occupancy: %u blocks, %u of %u warps, limited by %s\n", occupancy.blocks,
                   occupancy.warps, occupancy.warps_limit, cuda_limit_name(occupancy.limit));
  const cuda_gpu *gpu = cuda_gpu_find(arch->name);
  if (tensor_cores || !gpu || !occupancy.blocks || !kernel->row_count) return;
  double again = kir_reread_per_row(kernel);
  cuda_work work = {.rows = REPORT_ROWS,
                    .dram_bytes = cost->bytes_read + cost->bytes_written,
                    .l2_bytes = again,
                    .flops = cost->flops,
                    .barriers = barriers_per_row(kernel),
                    .blocks = (int64_t)gpu->multiprocessors * occupancy.blocks,
                    .rows_at_once = kernel->team.count};
  cuda_roofline roofline = cuda_roofline_of(gpu, occupancy.blocks, &work);
  base_text_printf(out,
                   "  roofline: %s (%u SMs, %.0f GB/s), %d rows: at least %.1f us, bound by %s",
                   gpu->name, gpu->multiprocessors, gpu->memory_gb_s, REPORT_ROWS, roofline.floor,
                   cuda_bound_name(roofline.binding));
  base_text_printf(out, "; memory %.1f us, L2 %.1f us, FP32 %.1f us, latency %.1f us\n",
                   roofline.microseconds[CUDA_BOUND_DRAM], roofline.microseconds[CUDA_BOUND_L2],
                   roofline.microseconds[CUDA_BOUND_FP32],
                   roofline.microseconds[CUDA_BOUND_LATENCY]);
}

static const cuda_kernel_resources *find_resources(const cuda_binary *binary, const char *name) {
  for (uint32_t i = 0; i < binary->kernel_count; i++)
    if (base_str_equal(binary->kernels[i].name, base_str_from(name))) return &binary->kernels[i];
  return NULL;
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
  double again = logits ? cuda_logits_reread_per_row(logits) : kir_reread_per_row(kernel);
  base_text_printf(out, "kernel: %.*s, function %s\n  schedule: ", BASE_FMT(kernel->name), name);
  kir_schedule_print(&kernel->schedule, out);
  if (logits)
    cuda_logits_describe(logits, out);
  else
    base_text_printf(out, "\n  team: %u threads, %u elements an access, %u teams a block\n",
                     team->threads, team->vector, team->count);
  base_text_printf(out, "  fused ops: %u\n", fused_ops(kernel));
  base_text_printf(out, "  bytes per token: %.0f (%.0f read, %.0f written), read again: %.0f\n",
                   bytes, cost.bytes_read, cost.bytes_written, again);
  base_text_printf(out, "  flops per token: %.0f (%.2f per byte)\n", cost.flops,
                   bytes > 0 ? cost.flops / bytes : 0);
  base_text_printf(out, "  shared memory: %zu bytes a block, workspace: %zu bytes a block\n",
                   form.shared_bytes, form.block_bytes);
  const cuda_kernel_resources *resources = binary ? find_resources(binary, name) : NULL;
  if (!resources) {
    base_text_printf(out, "  registers: not known without NVRTC\n");
    return;
  }
  base_text_printf(out, "  registers: %u, spills: %u bytes stored, %u loaded, stack: %u bytes\n",
                   resources->registers, resources->spill_store_bytes, resources->spill_load_bytes,
                   resources->stack_bytes);
  cuda_footprint footprint = {.threads = form.threads,
                              .registers = resources->registers,
                              .barriers = resources->barriers,
                              .shared_bytes = resources->static_shared_bytes + form.shared_bytes};
  report_roofline(out, kernel, &cost, logits != NULL, &plan->arch, &footprint);
}

base_str cuda_report(base_arena *arena, const cuda_plan *plan, const cuda_binary *binaries) {
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
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    if (plan->kernels[i].logits)
      base_text_printf(&out, "logits: by kernel %.*s, so sources are read twice, by it and after\n",
                       BASE_FMT(plan->kernels[i].forms[0]->name));
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count; j++, next++)
      report_form(&out, plan, &plan->kernels[i], j, binaries ? &binaries[next] : NULL);
  return base_text_str(&out);
}
