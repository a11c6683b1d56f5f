// What the emulator and the kernels it compiles agree on: the state that a thread of a kernel sees
// of itself, and the functions behind the primitives of prelude_emulator.hpp. C and C++, and no
// headers: this text stands at the top of every kernel that is compiled, where each millisecond
// counts. Kernels and emulator are always of the same build, so nothing here needs a version.
#ifndef FATHOM_EMULATOR_ABI_H
#define FATHOM_EMULATOR_ABI_H

// A place in a kernel's text, for messages and to tell whether lanes of a warp are at the same
// call.
typedef struct fm_site {
  const char *file;
  int line;
} fm_site;

// What a thread of a kernel knows of itself.
typedef struct fm_fiber {
  void *shared; // the dynamic shared memory of its block
  long long block, blocks;
  int thread, cluster_rank, cluster_size;
} fm_fiber;

// What all lanes of a warp do together. The operand of each lane, and what it holds afterwards:
typedef enum fm_warp_operation {
  FM_NAMED_BARRIER, // fm_named_barrier
  FM_CLUSTER_BARRIER,
  FM_WARP_BARRIER,
  FM_SHUFFLE,     // fm_exchange: value of this lane -> value of lane `lane`
  FM_SHUFFLE_XOR, // fm_exchange: the same of lane (this ^ `lane`)
  FM_BALLOT,      // fm_exchange: 0 or 1 -> the lanes with 1, as bits
  FM_ANY,         // fm_exchange: the same, to be compared with 0
  FM_MMA_BF16,    // fm_mma
  FM_MMA_F16,     // fm_mma
  FM_WARP_OPERATIONS
} fm_warp_operation;

typedef struct fm_named_barrier {
  int id, threads;
} fm_named_barrier;

typedef struct fm_exchange {
  unsigned value;
  int lane;
} fm_exchange;

// One lane's registers of mma.m16n8k16, as the PTX ISA lays them out.
typedef struct fm_mma {
  float *d;
  const unsigned *a, *b;
} fm_mma;

// What the thread that runs asks of the emulator. All but the first may hand over to other threads
// before they return; none returns after a fault.
typedef struct fm_calls {
  const fm_fiber *(*self)(void);
  void (*warp)(fm_warp_operation operation, void *operand, fm_site site);
  // Before an access to global memory.
  void (*access)(const void *at, int bytes, int written, fm_site site);
  // Before an access to shared memory through a helper.
  void (*shared_access)(const void *at, int bytes, fm_site site);
  void (*copy_async)(void *to, const void *from, int bytes, fm_site site);
  void (*copy_commit)(void);
  void (*copy_wait)(int groups, fm_site site);
  void (*ring_init)(unsigned long long *word, int arrivals, fm_site site);
  void (*ring_fence)(void);
  void (*ring_arrive)(unsigned long long *word, int bytes, fm_site site);
  void (*ring_wait)(unsigned long long *word, int parity, fm_site site);
  void (*bulk_copy)(void *to, const void *from, int bytes, unsigned long long *word, fm_site site);
  // The place that `shared` has in the block of that rank.
  void *(*cluster_address)(const void *shared, int rank, fm_site site);
} fm_calls;

// ---- f16 through integers -----------------------------------------------------------------------

static inline unsigned fm_word_of(float x) {
  unsigned word;
  __builtin_memcpy(&word, &x, sizeof word);
  return word;
}

static inline float fm_float_of(unsigned word) {
  float x;
  __builtin_memcpy(&x, &word, sizeof x);
  return x;
}

static inline float fm_widen_half(unsigned short half) {
  unsigned sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0) { // zero or subnormal: a multiple of 2^-24
    return fm_float_of(sign | fm_word_of((float)mantissa * 0x1p-24f));
  }
  if (exponent == 31) {
    return fm_float_of(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0));
  }
  return fm_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

// To the nearest, of two to the even one. All NaN become the one that the hardware makes.
static inline unsigned short fm_narrow_half(float x) {
  unsigned word = fm_word_of(x), sign = word >> 16 & 0x8000u, size = word & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7fff;
  if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u); // 65520 and more round to inf
  if (size < 0x38800000u) {
    // Below 2^-14. Beside 0.5 a float has steps of 2^-24, the smallest f16.
    return (unsigned short)(sign | (fm_word_of(fm_float_of(size) + 0.5f) - 0x3f000000u));
  }
  unsigned rounded = size + 0xfffu + (size >> 13 & 1u);
  return (unsigned short)(sign | (rounded - (112u << 23)) >> 13);
}

#endif
