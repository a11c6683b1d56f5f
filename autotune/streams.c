// Stream loops in the vector widths a CPU may have. The compiler's flags do not matter: each width
// is compiled for itself and picked at run time.
#include "autotune/streams.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STREAM_AHEAD = 2048 }; // bytes a prefetch runs ahead in its stream

#define VECTOR_BYTES 16
#define WIDTH(name) name##_128
#define TARGET
#if defined(__x86_64__)
#define STORE_PAST_CACHE(p, v) _mm_stream_si128((__m128i *)(p), (__m128i)(v))
#else
#define STORE_PAST_CACHE(p, v) (*(p) = (v))
#endif
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#include "autotune/stream_loops.h"

#if defined(__x86_64__)
#define VECTOR_BYTES 32
#define WIDTH(name) name##_256
#define TARGET __attribute__((target("avx2,fma")))
#define STORE_PAST_CACHE(p, v) _mm256_stream_si256((__m256i *)(p), (__m256i)(v))
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#include "autotune/stream_loops.h"

#define VECTOR_BYTES 64
#define WIDTH(name) name##_512
#define TARGET __attribute__((target("avx512f")))
#define STORE_PAST_CACHE(p, v) _mm512_stream_si512((__m512i *)(p), (__m512i)(v))
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#include "autotune/stream_loops.h"

static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f");
}
#endif

static bool always(void) {
  return true;
}

static const stream_width widths[] = {
#if defined(__x86_64__)
    {"sse2", true, always, run_128, compute_128},
    {"avx2", true, has_avx2, run_256, compute_256},
    {"avx512", true, has_avx512, run_512, compute_512},
#else
    {"plain", false, always, run_128, compute_128},
#endif
};

const stream_width *stream_width_at(uint32_t index) {
  return index < sizeof widths / sizeof *widths ? &widths[index] : NULL;
}
