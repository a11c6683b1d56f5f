// ---- Fathom prelude: primitives, for the emulator -----------------------------------------------
// The names of prelude_device.cuh on a CPU, so that the same kernels run there: a thread is a
// fiber, and whatever threads do together, or to memory that others see, goes through the emulator,
// which checks it. emulator_abi.h stands above this text. Everything is kept short because it is
// compiled with each kernel.
//
// Primitives take the place of their call as a last argument that nobody passes.

#define FM_EMULATOR 1
#ifdef FM_KEEP
#define FM_DEVICE static inline // for debuggers
#else
#define FM_DEVICE static inline __attribute__((always_inline))
#endif
#define FM_SITE                                                                                    \
  fm_site site = { __builtin_FILE(), __builtin_LINE() }
#define FM_EXPORT extern "C" __attribute__((visibility("default")))

#define __global__ __attribute__((noinline))
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

// How the emulator calls a kernel, and the size of the arguments it must pass.
#define FM_ENTRY(kernel, arguments)                                                                \
  FM_EXPORT void kernel##_entry(const void *p) { kernel(*(const arguments *)p); }                  \
  FM_EXPORT unsigned kernel##_argument_bytes() { return sizeof(arguments); }

struct fm_bf16 {
  unsigned short bits;
};
struct fm_f16 {
  unsigned short bits;
};
struct fm_f8 { // f8e4m3
  unsigned char bits;
};

// The registers of one memory access of 1, 2, 4, 8 or 16 bytes.
template <int BYTES> struct fm_raw {
  unsigned word[BYTES / 4];
};
template <> struct fm_raw<2> {
  unsigned short word[1];
};
template <> struct fm_raw<1> {
  unsigned char word[1];
};

// The emulator, which sets this when it has loaded the kernel.
FM_EXPORT const fm_calls *fm_emulator;
const fm_calls *fm_emulator;

FM_DEVICE const fm_fiber *fm_self() { return fm_emulator->self(); }

// -- threads

FM_DEVICE int fm_thread() { return fm_self()->thread; }
FM_DEVICE long long fm_block() { return fm_self()->block; }
FM_DEVICE long long fm_blocks() { return fm_self()->blocks; }
FM_DEVICE void *fm_shared() { return fm_self()->shared; }

FM_DEVICE void fm_together(fm_warp_operation operation, void *operand, fm_site site) {
  fm_emulator->warp(operation, operand, site);
}
FM_DEVICE void fm_barrier(int id, int threads, FM_SITE) {
  fm_named_barrier barrier = {id, threads};
  fm_together(FM_NAMED_BARRIER, &barrier, site);
}
FM_DEVICE void fm_warp_barrier(FM_SITE) { fm_together(FM_WARP_BARRIER, nullptr, site); }
FM_DEVICE float fm_shuffle_xor(float x, int mask, FM_SITE) {
  fm_exchange exchange = {fm_word_of(x), mask};
  fm_together(FM_SHUFFLE_XOR, &exchange, site);
  return fm_float_of(exchange.value);
}
FM_DEVICE float fm_shuffle(float x, int lane, FM_SITE) {
  fm_exchange exchange = {fm_word_of(x), lane};
  fm_together(FM_SHUFFLE, &exchange, site);
  return fm_float_of(exchange.value);
}
FM_DEVICE bool fm_any(bool x, FM_SITE) {
  fm_exchange exchange = {x, 0};
  fm_together(FM_ANY, &exchange, site);
  return exchange.value != 0;
}
FM_DEVICE unsigned fm_ballot(bool x, FM_SITE) {
  fm_exchange exchange = {x, 0};
  fm_together(FM_BALLOT, &exchange, site);
  return exchange.value;
}

// -- global memory

template <int BYTES> FM_DEVICE fm_raw<BYTES> fm_load_raw(const void *p, FM_SITE) {
  fm_emulator->access(p, BYTES, 0, site);
  fm_raw<BYTES> raw;
  __builtin_memcpy(&raw, p, BYTES);
  return raw;
}
template <int BYTES> FM_DEVICE fm_raw<BYTES> fm_load_raw_cached(const void *p, FM_SITE) {
  return fm_load_raw<BYTES>(p, site);
}
template <int BYTES> FM_DEVICE fm_raw<BYTES> fm_load_raw_coherent(const void *p, FM_SITE) {
  return fm_load_raw<BYTES>(p, site);
}
template <int BYTES> FM_DEVICE void fm_store_raw(void *p, fm_raw<BYTES> raw, FM_SITE) {
  fm_emulator->access(p, BYTES, 1, site);
  __builtin_memcpy(p, &raw, BYTES);
}
template <int BYTES> FM_DEVICE void fm_store_raw_kept(void *p, fm_raw<BYTES> raw, FM_SITE) {
  fm_store_raw(p, raw, site);
}

// -- copies to shared memory, mbarriers

// What prelude_common.cuh says before it reads or writes several values of shared memory.
#define FM_CHECK_ALIGNED(pointer, bytes)                                                           \
  fm_emulator->shared_access(pointer, bytes, {__builtin_FILE(), __builtin_LINE()})

template <int BYTES> FM_DEVICE void fm_copy_async(void *shared, const void *global, FM_SITE) {
  fm_emulator->copy_async(shared, global, BYTES, site);
}
FM_DEVICE void fm_copy_commit() { fm_emulator->copy_commit(); }
template <int N> FM_DEVICE void fm_copy_wait(FM_SITE) {
  fm_emulator->copy_wait(N, site);
}
FM_DEVICE void fm_ring_init(unsigned long long *mbarrier, int arrivals, FM_SITE) {
  fm_emulator->ring_init(mbarrier, arrivals, site);
}
FM_DEVICE void fm_ring_fence() { fm_emulator->ring_fence(); }
FM_DEVICE void fm_ring_expect(unsigned long long *mbarrier, int bytes, FM_SITE) {
  fm_emulator->ring_arrive(mbarrier, bytes, site);
}
FM_DEVICE void fm_ring_arrive(unsigned long long *mbarrier, FM_SITE) {
  fm_emulator->ring_arrive(mbarrier, 0, site);
}
FM_DEVICE void fm_ring_wait(unsigned long long *mbarrier, int parity, FM_SITE) {
  fm_emulator->ring_wait(mbarrier, parity, site);
}
FM_DEVICE void fm_bulk_copy(void *shared, const void *global, int bytes,
                            unsigned long long *mbarrier, FM_SITE) {
  fm_emulator->bulk_copy(shared, global, bytes, mbarrier, site);
}

// -- clusters

FM_DEVICE int fm_cluster_rank() { return fm_self()->cluster_rank; }
FM_DEVICE int fm_cluster_size() { return fm_self()->cluster_size; }
FM_DEVICE void fm_cluster_barrier(FM_SITE) { fm_together(FM_CLUSTER_BARRIER, nullptr, site); }
FM_DEVICE float fm_cluster_load(const float *shared, int rank, FM_SITE) {
  return *(const float *)fm_emulator->cluster_address(shared, rank, site);
}
FM_DEVICE void fm_cluster_store(float *shared, int rank, float x, FM_SITE) {
  *(float *)fm_emulator->cluster_address(shared, rank, site) = x;
}

// -- the grids before and after this one: launches do not overlap here

FM_DEVICE void fm_wait_prior_grid() {}
FM_DEVICE void fm_launch_dependents() {}

// -- tensor cores

FM_DEVICE void fm_mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], FM_SITE) {
  fm_mma registers = {d, a, b};
  fm_together(FM_MMA_BF16, &registers, site);
}
FM_DEVICE void fm_mma_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], FM_SITE) {
  fm_mma registers = {d, a, b};
  fm_together(FM_MMA_F16, &registers, site);
}

// -- arithmetic

FM_DEVICE unsigned fm_bits(float x) { return fm_word_of(x); }
FM_DEVICE float fm_from_bits(unsigned bits) { return fm_float_of(bits); }
FM_DEVICE bool fm_is_nan(float x) { return x != x; }
FM_DEVICE float fm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FM_DEVICE float fm_exp(float x) { return __builtin_expf(x); }
FM_DEVICE float fm_log(float x) { return __builtin_logf(x); }
FM_DEVICE float fm_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
FM_DEVICE float fm_divide(float a, float b) { return a / b; }
// NaN when either is.
FM_DEVICE float fm_max(float a, float b) { return a > b || a != a ? a : b; }
FM_DEVICE float fm_half_to_float(unsigned short bits) { return fm_widen_half(bits); }
FM_DEVICE unsigned short fm_float_to_half(float x) { return fm_narrow_half(x); }
