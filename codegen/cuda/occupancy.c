// How many blocks a multiprocessor holds at once. Each resource allows some number of blocks; the
// smallest counts. The rules are those of the CUDA C++ Programming Guide ("Compute Capabilities")
// and the occupancy calculator, for sm_75 and newer:
//
//   warps      a block takes whole warps of 32 threads
//   registers  a warp takes 32 times its threads' registers, rounded up to 256; warps are spread
//              over four partitions, each with a quarter of the registers
//   shared     a block takes its bytes, what the system reserves and the rest up to 128
//   barriers   a multiprocessor has so many in hardware (counted from sm_90 on)
#include "codegen/cuda/gpu.h"

enum {
  WARP = 32,
  PARTITIONS = 4,
  REGISTER_UNIT = 256,
  REGISTERS_OF_THREAD = 255,
  SHARED_UNIT = 128,
  CLUSTER_LIMIT = 8 // that every device with clusters runs
};

static uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

static uint32_t at_most(uint64_t blocks) {
  return blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
}

static uint32_t by_registers(const cuda_arch *arch, uint32_t registers, uint32_t warps) {
  if (registers == 0) return UINT32_MAX;
  if (registers > REGISTERS_OF_THREAD) return 0;
  uint64_t of_warp = round_up((uint64_t)registers * WARP, REGISTER_UNIT);
  uint64_t resident = arch->registers / PARTITIONS / of_warp * PARTITIONS;
  return at_most(resident / warps);
}

static uint32_t by_shared(const cuda_arch *arch, size_t bytes) {
  if (bytes > arch->shared_per_block) return 0;
  size_t of_block = round_up(bytes + arch->shared_reserved, SHARED_UNIT);
  return of_block ? at_most(arch->shared_bytes / of_block) : UINT32_MAX;
}

static uint32_t by_barriers(const cuda_arch *arch, uint32_t barriers) {
  if (barriers == 0 || arch->barriers == 0) return UINT32_MAX;
  return arch->barriers / barriers;
}

cuda_occupancy cuda_occupancy_of(const cuda_arch *arch, const cuda_footprint *footprint) {
  uint32_t threads = footprint->threads, warps = (threads + WARP - 1) / WARP;
  bool fits = threads > 0 && threads <= arch->threads_per_block;
  bool clusters = footprint->cluster <= 1 || (arch->cluster && footprint->cluster <= CLUSTER_LIMIT);
  const uint32_t allowed[CUDA_LIMITS] = {
      [CUDA_LIMIT_THREADS] = fits ? arch->threads / WARP / warps : 0,
      [CUDA_LIMIT_BLOCKS] = arch->blocks,
      [CUDA_LIMIT_REGISTERS] = fits ? by_registers(arch, footprint->registers, warps) : 0,
      [CUDA_LIMIT_SHARED] = by_shared(arch, footprint->shared_bytes),
      [CUDA_LIMIT_BARRIERS] = by_barriers(arch, footprint->barriers),
      [CUDA_LIMIT_CLUSTER] = clusters ? UINT32_MAX : 0,
  };
  cuda_limit limit = CUDA_LIMIT_THREADS;
  for (cuda_limit i = limit; i < CUDA_LIMITS; i++)
    if (allowed[i] < allowed[limit]) limit = i;
  cuda_occupancy o = {.blocks = allowed[limit],
                      .warps = allowed[limit] * warps,
                      .warps_limit = arch->threads / WARP,
                      .limit = limit};
  o.share = (double)o.warps / o.warps_limit;
  return o;
}

const char *cuda_limit_name(cuda_limit limit) {
  static const char *const names[CUDA_LIMITS] = {
      [CUDA_LIMIT_THREADS] = "threads",     [CUDA_LIMIT_BLOCKS] = "blocks",
      [CUDA_LIMIT_REGISTERS] = "registers", [CUDA_LIMIT_SHARED] = "shared memory",
      [CUDA_LIMIT_BARRIERS] = "barriers",   [CUDA_LIMIT_CLUSTER] = "cluster size",
  };
  return names[limit];
}
