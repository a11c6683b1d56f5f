// ---- Fathom prelude: primitives ----------------------------------------------------------------
// What a kernel asks of the machine, for an NVIDIA GPU: every line of PTX stands in this part. The
// emulator has a second implementation of the same names, so the kernels below, unchanged, also run
// on a CPU. No header is needed: NVRTC takes the file as it is, and so does nvcc.
//
// What an architecture lacks is not declared for it, so only code that uses it fails to compile.
// nvcc parses kernels for the host as well; there __CUDA_ARCH__ is undefined and all is declared.

#ifdef __CUDA_ARCH__
#define FM_ARCH __CUDA_ARCH__
#else
#define FM_ARCH 10000
#endif

#define FM_DEVICE __device__ __forceinline__
#define FM_ENTRY(kernel, arguments) // the emulator's way in; a device needs none

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

// -- threads

FM_DEVICE int fm_thread() { return threadIdx.x; }
FM_DEVICE long long fm_block() { return blockIdx.x; }
FM_DEVICE long long fm_blocks() { return gridDim.x; }

// The block's dynamic shared memory.
FM_DEVICE void *fm_shared() {
  extern __shared__ __align__(128) unsigned char fm_dynamic_shared[];
  return fm_dynamic_shared;
}

// Named barrier `id` (0..15) of `threads` threads, a multiple of 32.
FM_DEVICE void fm_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
FM_DEVICE void fm_warp_barrier() { __syncwarp(); }

// All 32 lanes of a warp call these together.
FM_DEVICE float fm_shuffle_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
FM_DEVICE float fm_shuffle(float x, int lane) { return __shfl_sync(~0u, x, lane); }
FM_DEVICE bool fm_any(bool x) { return __any_sync(~0u, x); }
FM_DEVICE unsigned fm_ballot(bool x) { return __ballot_sync(~0u, x); }

// -- addresses of PTX's state spaces

FM_DEVICE unsigned long long fm_global_address(const void *p) {
  return __cvta_generic_to_global(p);
}
FM_DEVICE unsigned fm_shared_address(const void *p) { return __cvta_generic_to_shared(p); }

// -- global memory
// Every access is one instruction: of 16 bytes when BYTES is 16. Volatile keeps them in the order
// in which they are written, as rows in flight need it, and below a wait for the grid before.

#define FM_DEFINE_LOAD(NAME, LD)                                                                   \
  template <int BYTES> FM_DEVICE fm_raw<BYTES> NAME(const void *p) {                               \
    fm_raw<BYTES> r;                                                                               \
    unsigned long long from = fm_global_address(p);                                                \
    if constexpr (BYTES == 1) {                                                                    \
      unsigned short byte;                                                                         \
      asm volatile(LD ".u8 %0, [%1];" : "=h"(byte) : "l"(from));                                   \
      r.word[0] = (unsigned char)byte;                                                             \
    } else if constexpr (BYTES == 2) {                                                             \
      asm volatile(LD ".u16 %0, [%1];" : "=h"(r.word[0]) : "l"(from));                             \
    } else if constexpr (BYTES == 4) {                                                             \
      asm volatile(LD ".u32 %0, [%1];" : "=r"(r.word[0]) : "l"(from));                             \
    } else if constexpr (BYTES == 8) {                                                             \
      asm volatile(LD ".v2.u32 {%0, %1}, [%2];"                                                    \
                   : "=r"(r.word[0]), "=r"(r.word[1])                                              \
                   : "l"(from));                                                                   \
    } else {                                                                                       \
      asm volatile(LD ".v4.u32 {%0, %1, %2, %3}, [%4];"                                            \
                   : "=r"(r.word[0]), "=r"(r.word[1]), "=r"(r.word[2]), "=r"(r.word[3])            \
                   : "l"(from));                                                                   \
    }                                                                                              \
    return r;                                                                                      \
  }

#define FM_DEFINE_STORE(NAME, ST)                                                                  \
  template <int BYTES> FM_DEVICE void NAME(void *p, fm_raw<BYTES> v) {                             \
    unsigned long long to = fm_global_address(p);                                                  \
    if constexpr (BYTES == 1) {                                                                    \
      asm volatile(ST ".u8 [%0], %1;" ::"l"(to), "h"((unsigned short)v.word[0]));                  \
    } else if constexpr (BYTES == 2) {                                                             \
      asm volatile(ST ".u16 [%0], %1;" ::"l"(to), "h"(v.word[0]));                                 \
    } else if constexpr (BYTES == 4) {                                                             \
      asm volatile(ST ".u32 [%0], %1;" ::"l"(to), "r"(v.word[0]));                                 \
    } else if constexpr (BYTES == 8) {                                                             \
      asm volatile(ST ".v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(v.word[0]), "r"(v.word[1]));        \
    } else {                                                                                       \
      asm volatile(ST ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.word[0]),                 \
                   "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]));                                \
    }                                                                                              \
  }

FM_DEFINE_LOAD(fm_load_raw, "ld.global.nc.L1::no_allocate.L2::128B") // read once
FM_DEFINE_LOAD(fm_load_raw_cached, "ld.global.nc")                   // read again by other threads
FM_DEFINE_LOAD(fm_load_raw_coherent, "ld.global") // written by this grid or the one before it
FM_DEFINE_STORE(fm_store_raw, "st.global.cs")     // not read again soon
FM_DEFINE_STORE(fm_store_raw_kept, "st.global")   // read again by this grid or the next

#undef FM_DEFINE_LOAD
#undef FM_DEFINE_STORE

// -- copies from global to shared memory that the threads do not wait for

#if FM_ARCH >= 800
// Copies 4, 8 or 16 bytes; both sides aligned to that.
template <int BYTES> FM_DEVICE void fm_copy_async(void *shared, const void *global) {
  unsigned to = fm_shared_address(shared);
  unsigned long long from = fm_global_address(global);
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                 : "memory");
  }
}
// Ends a group of this thread's copies.
FM_DEVICE void fm_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N groups of this thread are under way.
template <int N> FM_DEVICE void fm_copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif

#if FM_ARCH >= 900
// An mbarrier: a phase ends when `arrivals` arrivals and all the bytes they expect have come.
FM_DEVICE void fm_ring_init(unsigned long long *mbarrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(fm_shared_address(mbarrier)),
               "r"(arrivals)
               : "memory");
}
// After fm_ring_init, before a barrier: the copy engine shall see what was initialised.
FM_DEVICE void fm_ring_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n\t"
               "fence.proxy.async.shared::cta;" ::
                   : "memory");
}
// One arrival that expects `bytes` bytes.
FM_DEVICE void fm_ring_expect(unsigned long long *mbarrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   fm_shared_address(mbarrier)),
               "r"(bytes)
               : "memory");
}
FM_DEVICE void fm_ring_arrive(unsigned long long *mbarrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(fm_shared_address(mbarrier))
               : "memory");
}
// Waits for the end of the phase of that parity: 0 for the first, then 1, 0, ...
FM_DEVICE void fm_ring_wait(unsigned long long *mbarrier, int parity) {
  unsigned done;
  do {
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t"
                 "}"
                 : "=r"(done)
                 : "r"(fm_shared_address(mbarrier)), "r"(parity)
                 : "memory");
  } while (done == 0);
}
// One thread copies `bytes` bytes; addresses and size are multiples of 16.
FM_DEVICE void fm_bulk_copy(void *shared, const void *global, int bytes,
                            unsigned long long *mbarrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1], %2, [%3];" ::"r"(fm_shared_address(shared)),
               "l"(fm_global_address(global)), "r"(bytes), "r"(fm_shared_address(mbarrier))
               : "memory");
}

// -- clusters

FM_DEVICE int fm_cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
FM_DEVICE int fm_cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
// All threads of all blocks of the cluster. What they wrote before is seen after.
FM_DEVICE void fm_cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
               "barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
// The place that `shared` has in block `rank` of the cluster.
FM_DEVICE unsigned fm_cluster_address(const void *shared, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(fm_shared_address(shared)), "r"(rank));
  return there;
}
FM_DEVICE float fm_cluster_load(const float *shared, int rank) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];"
               : "=f"(x)
               : "r"(fm_cluster_address(shared, rank))
               : "memory");
  return x;
}
FM_DEVICE void fm_cluster_store(float *shared, int rank, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(fm_cluster_address(shared, rank)), "f"(x)
               : "memory");
}
#endif

// -- the grids before and after this one on the stream

// Until the grid before has ended and what it wrote is seen.
FM_DEVICE void fm_wait_prior_grid() {
#if FM_ARCH >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next grid begin what does not depend on this one.
FM_DEVICE void fm_launch_dependents() {
#if FM_ARCH >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// -- tensor cores: d[16 x 8] += a[16 x 16] b[16 x 8], sums in f32

#if FM_ARCH >= 800
#define FM_DEFINE_MMA(NAME, TYPE)                                                                  \
  FM_DEVICE void NAME(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32"                     \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));              \
  }
FM_DEFINE_MMA(fm_mma_bf16, "bf16")
FM_DEFINE_MMA(fm_mma_f16, "f16")
#undef FM_DEFINE_MMA
#endif

// -- arithmetic

FM_DEVICE unsigned fm_bits(float x) { return __float_as_uint(x); }
FM_DEVICE float fm_from_bits(unsigned bits) { return __uint_as_float(bits); }
FM_DEVICE bool fm_is_nan(float x) { return x != x; }
FM_DEVICE float fm_fma(float a, float b, float c) { return fmaf(a, b, c); }
FM_DEVICE float fm_exp(float x) { return expf(x); }
FM_DEVICE float fm_log(float x) { return logf(x); }
FM_DEVICE float fm_rsqrt(float x) { return rsqrtf(x); }
// Within two units in the last place, over the full range, and without the slow path of a / b.
FM_DEVICE float fm_divide(float a, float b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
// NaN when either is.
FM_DEVICE float fm_max(float a, float b) {
#if FM_ARCH >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a > b || a != a ? a : b;
#endif
}

FM_DEVICE float fm_half_to_float(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
FM_DEVICE unsigned short fm_float_to_half(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

// What follows is also in the common part, with integers, for where there is no instruction. Few
// statements matter as much as few instructions: a kernel widens hundreds of values, and NVRTC's
// time goes by what it has to optimise.

// The eight values of an access of 16 bytes.
#define FM_WIDENS_EIGHT 1
FM_DEVICE void fm_widen_eight(float (&x)[8], fm_raw<16> raw) {
  asm("shl.b32 %0, %8, 16;\n\t"
      "and.b32 %1, %8, 0xffff0000;\n\t"
      "shl.b32 %2, %9, 16;\n\t"
      "and.b32 %3, %9, 0xffff0000;\n\t"
      "shl.b32 %4, %10, 16;\n\t"
      "and.b32 %5, %10, 0xffff0000;\n\t"
      "shl.b32 %6, %11, 16;\n\t"
      "and.b32 %7, %11, 0xffff0000;"
      : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]), "=f"(x[4]), "=f"(x[5]), "=f"(x[6]),
        "=f"(x[7])
      : "r"(raw.word[0]), "r"(raw.word[1]), "r"(raw.word[2]), "r"(raw.word[3]));
}
// The same by another instruction. Rows that wait in registers to be widened again must not be kept
// wide meanwhile, which takes twice the registers: so the assembler must not see that both are the
// same.
FM_DEVICE void fm_widen_eight_again(float (&x)[8], fm_raw<16> raw) {
  asm("prmt.b32 %0, %8, 0, 0x1044;\n\t"
      "prmt.b32 %1, %8, 0, 0x3244;\n\t"
      "prmt.b32 %2, %9, 0, 0x1044;\n\t"
      "prmt.b32 %3, %9, 0, 0x3244;\n\t"
      "prmt.b32 %4, %10, 0, 0x1044;\n\t"
      "prmt.b32 %5, %10, 0, 0x3244;\n\t"
      "prmt.b32 %6, %11, 0, 0x1044;\n\t"
      "prmt.b32 %7, %11, 0, 0x3244;"
      : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]), "=f"(x[4]), "=f"(x[5]), "=f"(x[6]),
        "=f"(x[7])
      : "r"(raw.word[0]), "r"(raw.word[1]), "r"(raw.word[2]), "r"(raw.word[3]));
}
#if FM_ARCH >= 800
#define FM_NARROWS_BF16 1
FM_DEVICE unsigned short fm_float_to_bf16(float x) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
// Two values as one word, the first in the low half.
#define FM_NARROWS_PAIRS 1
FM_DEVICE unsigned fm_narrow_pair(float low, float high, fm_bf16) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
FM_DEVICE unsigned fm_narrow_pair(float low, float high, fm_f16) {
  unsigned word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
#endif
#if FM_ARCH >= 890
// f8e4m3 goes in pairs, the first in the low byte; its way to f32 is by f16, which holds all of it.
#define FM_CONVERTS_F8 1
FM_DEVICE unsigned fm_narrow_f8_pair(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
FM_DEVICE void fm_widen_f8_pair(float &low, float &high, unsigned pair) {
  asm("{\n\t"
      ".reg .b32 halves;\n\t"
      ".reg .b16 low, high;\n\t"
      "cvt.rn.f16x2.e4m3x2 halves, %2;\n\t"
      "mov.b32 {low, high}, halves;\n\t"
      "cvt.f32.f16 %0, low;\n\t"
      "cvt.f32.f16 %1, high;\n\t"
      "}"
      : "=f"(low), "=f"(high)
      : "h"((unsigned short)pair));
}
FM_DEVICE unsigned char fm_float_to_f8(float x) { return (unsigned char)fm_narrow_f8_pair(x, 0); }
FM_DEVICE float fm_f8_to_float(unsigned char code) {
  float x, none;
  fm_widen_f8_pair(x, none, code);
  return x;
}
#endif
