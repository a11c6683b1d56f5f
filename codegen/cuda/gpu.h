// gpu: estimates about kernels on NVIDIA GPUs, made without one: how many blocks fit on a
// multiprocessor, and the shortest time the hardware's peaks allow. For reports and for ranking
// schedules; docs/roofline.md has the formulas. Base only.
//
// Sections: known GPUs, occupancy, roofline.
#ifndef FATHOM_CODEGEN_CUDA_GPU_H
#define FATHOM_CODEGEN_CUDA_GPU_H

#include "base/base.h"
#include "codegen/cuda/arch.h"

// ---- known GPUs (gpus.c, gpus.def) --------------------------------------------------------------

typedef struct cuda_gpu {
  const char *name;         // "H200"
  const char *arch;         // "sm_90"
  uint32_t multiprocessors; // SMs
  double boost_mhz;         // the highest clock
  double memory_gb_s;       // DRAM, 1e9 bytes a second
  double level2_mb;         // 2^20 bytes
  double fp32_tflops;       // an FMA counts two
  double bf16_tflops;       // tensor cores: dense, f32 sums
} cuda_gpu;

// By name ("H200"), by what the driver calls the device ("NVIDIA H200"), or by architecture
// ("sm_90", "sm_90a": the GPU that stands for it). Upper and lower case are the same. NULL: not in
// the table.
const cuda_gpu *cuda_gpu_find(const char *name);
// What the driver calls it: "NVIDIA H200". `gpu` is of the table.
const char *cuda_gpu_device_name(base_arena *arena, const cuda_gpu *gpu);
// The names of all, in the table's order, for messages; their number is the result.
size_t cuda_gpu_names(const char *const **names);

// ---- occupancy (occupancy.c) --------------------------------------------------------------------

// What a block of a compiled kernel takes.
typedef struct cuda_footprint {
  uint32_t threads;    // of a block
  uint32_t registers;  // of a thread
  uint32_t barriers;   // named barriers in use, with barrier 0; 0: not known
  uint32_t cluster;    // blocks of a cluster; 0 and 1: none
  size_t shared_bytes; // static and dynamic
} cuda_footprint;

typedef enum cuda_limit {
  CUDA_LIMIT_THREADS,
  CUDA_LIMIT_BLOCKS,
  CUDA_LIMIT_REGISTERS,
  CUDA_LIMIT_SHARED,
  CUDA_LIMIT_BARRIERS,
  CUDA_LIMIT_CLUSTER,
  CUDA_LIMITS
} cuda_limit;

const char *cuda_limit_name(cuda_limit limit); // "threads", "blocks", "registers", ...

typedef struct cuda_occupancy {
  uint32_t blocks;      // that one multiprocessor holds at once; 0: such a block cannot run
  uint32_t warps;       // the same in warps
  uint32_t warps_limit; // the most a multiprocessor holds
  double share;         // warps / warps_limit
  cuda_limit limit;     // what ends it first; where several do, the first of the list above
} cuda_occupancy;

cuda_occupancy cuda_occupancy_of(const cuda_arch *arch, const cuda_footprint *footprint);

// ---- roofline (roofline.c) ----------------------------------------------------------------------

// What one launch does.
typedef struct cuda_work {
  int64_t rows;
  // For each row:
  double dram_bytes;   // distinct bytes, read and written
  double l2_bytes;     // bytes read again, from L2
  double flops;        // f32, an FMA counts two
  double tensor_flops; // of tensor cores
  double barriers;     // block-wide waits, one after the other
  // For the launch:
  double once_bytes;       // parameters and the like, from DRAM
  int64_t blocks;          // of the grid
  uint32_t blocks_per_row; // that share a row (split-D over a cluster); 0 and 1: none do
  uint32_t rows_at_once;   // rows whose loads one block has in flight together; 0 is 1
} cuda_work;

typedef enum cuda_bound {
  CUDA_BOUND_DRAM,    // every distinct byte over the memory's bandwidth
  CUDA_BOUND_L2,      // every byte over the ports from L2 to the multiprocessors in use
  CUDA_BOUND_FP32,    // f32 arithmetic of the multiprocessors in use
  CUDA_BOUND_TENSOR,  // their tensor cores
  CUDA_BOUND_LATENCY, // rounds of rows, each with one trip to memory and its barriers
  CUDA_BOUNDS
} cuda_bound;

const char *cuda_bound_name(cuda_bound bound); // "memory", "L2", "FP32", "tensor cores", "latency"

typedef struct cuda_roofline {
  double microseconds[CUDA_BOUNDS];
  cuda_bound binding;  // the largest
  double floor;        // its microseconds
  double memory_share; // the memory's bound / floor: the largest share of its bandwidth to hope for
} cuda_roofline;

// `blocks_per_multiprocessor` as cuda_occupancy says, at least 1. No rows take no time.
cuda_roofline cuda_roofline_of(const cuda_gpu *gpu, uint32_t blocks_per_multiprocessor,
                               const cuda_work *work);

#endif
