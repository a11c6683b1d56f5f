// The shortest time that the peaks of a GPU allow for a launch. docs/roofline.md explains each term.
#include <math.h>

#include "codegen/cuda/gpu.h"

// A port from L2 to a multiprocessor brings this many bytes a cycle, sm_80 to sm_120.
static const double port_bytes = 64;
// Round figures for the latency term, in microseconds: what is between the start and the end of a
// kernel that does nothing, one trip to DRAM and back, one wait of a block.
static const double launch_us = 2, trip_us = 0.6, barrier_us = 0.02;

// How often each of the teams of blocks that run at once takes up new rows.
static double rounds_of(double resident, const cuda_work *work) {
  double teams = resident / (work->blocks_per_row > 1 ? work->blocks_per_row : 1);
  double at_once = floor(fmax(teams, 1)) * (work->rows_at_once > 1 ? work->rows_at_once : 1);
  return ceil((double)work->rows / at_once);
}

cuda_roofline cuda_roofline_of(const cuda_gpu *gpu, uint32_t blocks_per_multiprocessor,
                               const cuda_work *work) {
  cuda_roofline r = {.binding = CUDA_BOUND_DRAM};
  if (work->rows <= 0 || work->blocks <= 0) return r;
  double rows = (double)work->rows, blocks = (double)work->blocks;
  double sms = gpu->multiprocessors;
  double room = sms * (blocks_per_multiprocessor > 1 ? blocks_per_multiprocessor : 1);
  double in_use = fmin(blocks, sms), resident = fmin(blocks, room);

  double dram = rows * work->dram_bytes + work->once_bytes;
  double ports = in_use * port_bytes * gpu->boost_mhz; // bytes in a microsecond
  r.microseconds[CUDA_BOUND_DRAM] = dram / (gpu->memory_gb_s * 1e3);
  r.microseconds[CUDA_BOUND_L2] = (dram + rows * work->l2_bytes) / ports;
  r.microseconds[CUDA_BOUND_FP32] = rows * work->flops / (gpu->fp32_tflops * 1e6 * in_use / sms);
  r.microseconds[CUDA_BOUND_TENSOR] =
      rows * work->tensor_flops / (gpu->bf16_tflops * 1e6 * in_use / sms);
  r.microseconds[CUDA_BOUND_LATENCY] =
      launch_us + rounds_of(resident, work) * (trip_us + work->barriers * barrier_us);

  for (cuda_bound i = 0; i < CUDA_BOUNDS; i++)
    if (r.microseconds[i] > r.microseconds[r.binding]) r.binding = i;
  r.floor = r.microseconds[r.binding];
  r.memory_share = r.microseconds[CUDA_BOUND_DRAM] / r.floor;
  return r;
}

const char *cuda_bound_name(cuda_bound bound) {
  static const char *const names[CUDA_BOUNDS] = {
      [CUDA_BOUND_DRAM] = "memory",     [CUDA_BOUND_L2] = "L2",
      [CUDA_BOUND_FP32] = "FP32",       [CUDA_BOUND_TENSOR] = "tensor cores",
      [CUDA_BOUND_LATENCY] = "latency",
  };
  return names[bound];
}
