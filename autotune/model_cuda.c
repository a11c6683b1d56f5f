// The cost model of a GPU: the roofline's bounds (docs/roofline.md), and what keeps a launch from
// reaching them: too few bytes under way, spilled registers.
#include <math.h>

#include "autotune/model.h"
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/text.h"
#include "passes/passes.h"

// Round figures: what a trip to DRAM takes, and the share of the published bandwidth that a plain copy
// gets.
static const double trip_us = 0.7, copy_share = 0.92;

// Bytes that one block has under way. Copies ahead are so many stages of rows; loads are what a thread
// has registers for: the rows that wait in them, or a tile of sources.
static double bytes_under_way(const kir_kernel *kernel) {
  const kir_team *team = &kernel->team;
  double threads = (double)team->threads * team->count;
  double ahead = kernel->schedule.load > 0
                     ? (double)(kernel->schedule.stages * (int64_t)team->stage_bytes) * team->count
                     : 0;
  double tile = (double)(kernel->schedule.source_tile * kernel->schedule.access);
  double most = (double)kernel->schedule.working * 2; // half of them, of 4 bytes
  double loads = threads * fmax(fmin(tile, most), team->held * 4.0);
  return fmax(ahead, loads);
}

// The bounds' norm: near the largest, and above it where others come close.
static double join(const double *microseconds) {
  double sum = 0;
  for (cuda_bound i = 0; i < CUDA_BOUNDS; i++)
    sum += pow(microseconds[i], 4);
  return sqrt(sqrt(sum));
}

static double seconds_of(const kir_kernel *kernel, const tune_subject *subject,
                         const cuda_footprint *footprint, double spilled) {
  cuda_occupancy occupancy = cuda_occupancy_of(subject->arch, footprint);
  if (occupancy.blocks == 0) return INFINITY;
  const cuda_gpu *gpu = subject->gpu;
  cuda_work work = cuda_work_of(kernel, subject->rows, gpu, occupancy.blocks);
  // Each thread spills so many bytes for a row.
  work.l2_bytes += spilled * kernel->team.threads * kernel->team.split;
  cuda_roofline roofline = cuda_roofline_of(gpu, occupancy.blocks, &work);
  double blocks = fmin(occupancy.blocks, ceil((double)work.blocks / gpu->multiprocessors));
  double wanted = trip_us * gpu->memory_gb_s * 1e3 / gpu->multiprocessors; // bytes of each SM
  double share = fmin(blocks * bytes_under_way(kernel) / wanted, 1) * copy_share;
  roofline.microseconds[CUDA_BOUND_DRAM] /= share;
  return join(roofline.microseconds) * 1e-6;
}

static cuda_plan *plan_of(base_arena *arena, const tune_subject *subject, const ir_graph *graph,
                          const kir_schedule *schedule, base_diag *diag) {
  cg_options options = {.arch = subject->arch->name,
                        .schedule = kir_schedule_text(arena, schedule)};
  return cuda_plan_create(arena, graph, &options, diag);
}

// By what the schedule counts on: its own registers and those that rows wait in. The model knows nothing
// of logits by tensor cores: the clock has to say whether they are worth it.
static double predict(base_arena *arena, const tune_subject *subject,
                      const kir_schedule *schedule) {
  ir_graph graph = *subject->graph; // lowering takes its memory from the graph's arena
  graph.arena = arena;
  base_diag unused;
  base_diag_init(&unused, arena, BASE_STR(""), BASE_STR(""));
  const cuda_plan *plan = plan_of(arena, subject, &graph, schedule, &unused);
  if (!plan || (schedule->logits && !subject->timed)) return INFINITY;
  kir_schedule alike = *schedule;
  alike.logits = 0;
  if (schedule->logits) return predict(arena, subject, &alike);
  const kir_kernel *kernel = plan->kernels[0].forms[0];
  rt_form form = cuda_form_create(arena, &plan->kernels[0], 0);
  cuda_kernel_resources guess = {
      .registers = (uint32_t)fmin((double)schedule->working + kernel->team.held, 255)};
  cuda_footprint footprint = cuda_footprint_of(&form, &guess);
  return seconds_of(kernel, subject, &footprint, 0);
}

void tune_predict_cuda(base_arena *arena, const tune_subject *subject, const tune_space *space,
                       double *seconds) {
  base_arena *scratch = base_arena_within(arena);
  for (uint32_t i = 0; i < space->count; i++) {
    seconds[i] = predict(scratch, subject, &space->schedules[i]);
    base_arena_reset(scratch);
  }
}

double tune_predict_compiled(base_arena *arena, const tune_subject *subject,
                             const kir_schedule *schedule, const char *cache_directory,
                             base_diag *diag) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(arena, &why);
  if (!nvrtc) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0}, "%.*s", BASE_FMT(why));
    return -1;
  }
  const cuda_plan *plan = plan_of(arena, subject, subject->graph, schedule, diag);
  if (!plan) return -1;
  const cuda_kernel *kernel = &plan->kernels[0];
  cuda_unit unit = {base_str_format(arena, "%s.cu", kernel->names[0]).data,
                    cuda_form_text(arena, plan, 0, 0, true)};
  cuda_compile_options compile = {.arch = plan->arch.name, .cache_directory = cache_directory};
  cuda_binary binary;
  if (!cuda_compile(arena, nvrtc, &compile, &unit, 1, &binary, diag)) return -1;
  const cuda_kernel_resources *resources = cuda_find_resources(&binary, kernel->names[0]);
  if (!resources) {
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "the binary has no kernel %s",
                      kernel->names[0]);
    return -1;
  }
  rt_form form = cuda_form_create(arena, kernel, 0);
  cuda_footprint footprint = cuda_footprint_of(&form, resources);
  double spilled = (double)resources->spill_store_bytes + resources->spill_load_bytes;
  double seconds = seconds_of(kernel->forms[0], subject, &footprint, spilled);
  if (isfinite(seconds)) return seconds;
  base_error_status(
      diag, BASE_UNSUPPORTED, (base_loc){0},
      "no multiprocessor holds a block of it: %u threads of %u registers, %zu bytes of "
      "shared memory",
      footprint.threads, footprint.registers, footprint.shared_bytes);
  return -1;
}
