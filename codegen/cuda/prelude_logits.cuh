// ---- Fathom prelude: logits of many queries ------------------------------------------------------
// z[m, s] = sum over k of v[m, k] w[s, k]: rows v, one for each pair of a source and a token, in T,
// which is bf16 or f16; queries w in f32.
//
// A query is split in parts of type T whose sum it is: three of bf16, two of f16, which leave out
// 2^-22 of it at most. Products with v are then exact, and summed in f32. f16 has not the exponents
// for that, so there queries are scaled by a power of two first, which the sums are freed of in the
// end. Queries that are in T already are one part.

#define FM_METHOD __device__ __forceinline__ // a function in a struct; the emulator has the words too

// -- splitting

FM_DEVICE bool fm_is_finite(float x) { return x - x == 0; }

// The power of two that brings `largest` to 2^13 up to 2^14; 1 for 0, infinity and NaN.
FM_DEVICE float fm_half_scale(float largest) {
  int exponent = fm_bits(largest) >> 23;
  if (exponent == 0 || exponent == 255) return 1;
  return fm_from_bits((unsigned)fm_clamp(127 + 13 - (exponent - 127), 1, 253) << 23);
}
// Its reciprocal: for powers of two the exponents add up to 254.
FM_DEVICE float fm_unscale(float scale) { return fm_from_bits((254u << 23) - fm_bits(scale)); }

// The largest |x| of a row of `depth` elements, a multiple of 8. All threads of the block call it.
template <int THREADS, class W> FM_DEVICE float fm_largest(const W *row, int depth) {
  float largest[1] = {0};
  for (int k = 8 * fm_thread(); k < depth; k += 8 * THREADS) {
    float x[8];
    fm_load_row<fm_coherent>(x, row + k);
#pragma unroll
    for (int i = 0; i < 8; i++)
      largest[0] = fm_max(largest[0], fm_from_bits(fm_bits(x[i]) & 0x7fffffff));
  }
  auto total = fm_team_totals<fm_op_max, THREADS / 32>(largest, (float *)fm_shared(), 0);
  fm_barrier(0, THREADS); // the next row's goes through the same memory
  return fm_total(total, 0);
}

// A block splits one query (nullptr: zeros) of `depth` elements, and pads it with zeros to `padded`;
// both are multiples of 8. `to` says where 8 elements of a part go, `unscale` what sums must be
// multiplied with (nullptr: nothing is scaled).
template <class T, int PARTS, int THREADS, class W, class TO>
FM_DEVICE void fm_split_query(const W *from, int depth, int padded, TO to, float *unscale) {
  float scale = 1;
  if (unscale) {
    if (from) scale = fm_half_scale(fm_largest<THREADS>(from, depth));
    if (fm_thread() == 0) fm_store_kept(unscale, fm_unscale(scale));
  }
  for (int k = 8 * fm_thread(); k < padded; k += 8 * THREADS) {
    float rest[8] = {};
    if (from && k < depth) fm_load_row<fm_coherent>(rest, from + k);
#pragma unroll
    for (int i = 0; i < 8; i++) rest[i] *= scale;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
      float part[8];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        part[i] = fm_round<T>(rest[i]);
        rest[i] = fm_is_finite(part[i]) ? rest[i] - part[i] : 0; // what is not is in the first
      }
      fm_store_row<true>(to.at(p, k), part);
    }
  }
}

// Query `query` of QUERIES as a library takes them: rows, all the first parts, then the second.
template <class T, int QUERIES> struct fm_query_rows {
  T *rows;
  int query, depth;
  FM_METHOD T *at(int part, int k) {
    return rows + ((long long)part * QUERIES + query) * depth + k;
  }
};

// And as fm_logit_tile takes them: 32 elements of each part of 8 N queries after the other, thread
// by thread.
template <class T, int N, int PARTS> struct fm_query_fragments {
  T *fragments;
  int query, padded;
  FM_METHOD T *at(int part, int k) {
    int group = query / (8 * N), n = query / 8 % N, column = query % 8, piece = k / 8;
    long long fragment = (((long long)group * (padded / 32) + piece / 4) * N + n) * PARTS + part;
    return fragments + fragment * 256 + (column * 4 + piece % 4) * 8;
  }
};

// -- products

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
// 16 bytes of shared memory as registers for tensor cores.
struct alignas(16) fm_piece {
  unsigned word[4];
};
FM_DEVICE fm_piece fm_load_piece(const char *shared) {
  FM_CHECK_ALIGNED(shared, 16);
  return *(const fm_piece *)shared;
}

template <class T>
FM_DEVICE void fm_multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (fm_same<T, fm_bf16>)
    fm_mma_bf16(d, a, b);
  else
    fm_mma_f16(d, a, b);
}

// A block's work: WARPS warps, each with 16 M rows and 8 N queries, K elements deep.
//
// The order of k in a sum is free as long as both factors have the same. So the thread with lane
// 4 g + q takes piece q (16 bytes, 8 elements) of 32 elements, of rows g and g + 8 and of query g:
// one load of 16 bytes for each brings what two steps of mma.m16n8k16 want in its registers.
//
// Rows and queries come to shared memory in stages of 64 elements, STAGES - 1 of them on their way
// while one is used. Where pieces of odd rows are, the two halves of a row are swapped: then the
// eight threads that are served together read all 32 banks.
template <class T, int K, int WARPS, int M, int N, int PARTS, int STAGES> struct fm_logit_tile {
  enum {
    THREADS = 32 * WARPS,
    ROWS = 16 * M * WARPS,
    COPIED = 4 * M, // rows that a thread copies pieces of
    OWNED = 2 * M,  // rows, and queries below, that a thread has sums of
    OWNED_QUERIES = 2 * N,
    SUMS = PARTS > 1 ? 2 : 1, // of products with first parts, and with the others
    STEPS = (K + 63) / 64,
    ROW_BYTES = 128,
    ROWS_BYTES = ROWS * ROW_BYTES,
    QUERIES_BYTES = 2 * N * PARTS * 512,
    STAGE_BYTES = ROWS_BYTES + QUERIES_BYTES
  };
  const T *row[COPIED]; // where they begin; nullptr: there is none
  float total[SUMS][M][N][4];

  FM_METHOD static int copied_row(int i) { return fm_thread() / 8 + i * (THREADS / 8); }
  FM_METHOD static int first_row() { return fm_thread() / 32 * 16 * M; }
  FM_METHOD static int owned_row(int i) { return first_row() + 8 * i + fm_thread() % 32 / 4; }
  FM_METHOD static int owned_query(int i) { return i / 2 * 8 + fm_thread() % 4 * 2 + i % 2; }
  FM_METHOD static char *place(char *stage, int row, int piece) {
    return stage + row * ROW_BYTES + (piece ^ (row & 1) * 4) * 16;
  }

  // The sum of an owned row and query.
  FM_METHOD float sum(int i, int j) {
    float first = total[0][i / 2][j / 2][i % 2 * 2 + j % 2];
    float others = total[SUMS - 1][i / 2][j / 2][i % 2 * 2 + j % 2];
    // An infinite row times the other parts is anything.
    return PARTS > 1 && fm_is_finite(first) ? first + others : first;
  }

  // Begins to copy elements 64 step up to 64 step + 63; nothing behind the last step.
  FM_METHOD void copy(char *shared, const char *queries, int step) {
    char *stage = shared + step % STAGES * STAGE_BYTES;
    int piece = fm_thread() % 8, k = 64 * step + 8 * piece;
    if (step < STEPS) {
#pragma unroll
      for (int i = 0; i < COPIED; i++) {
        char *to = place(stage, copied_row(i), piece);
        if (row[i] && (K % 64 == 0 || k < K))
          fm_copy_async<16>(to, row[i] + k);
        else
          fm_shared_store<4>((float *)to, {0, 0, 0, 0});
      }
#pragma unroll
      for (int i = 0; i < QUERIES_BYTES; i += 16 * THREADS) {
        int at = i + 16 * fm_thread();
        if (QUERIES_BYTES % (16 * THREADS) == 0 || at < QUERIES_BYTES)
          fm_copy_async<16>(stage + ROWS_BYTES + at, queries + (long long)step * QUERIES_BYTES + at);
      }
    }
    fm_copy_commit();
  }

  // Tensor cores cut sums off instead of rounding them, so few go to one sum, and those are added up
  // outside.
  FM_METHOD void multiply(char *stage) {
    float some[SUMS][M][N][4] = {};
    int lane = fm_thread() % 32, piece = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      fm_piece v[OWNED];
#pragma unroll
      for (int i = 0; i < OWNED; i++)
        v[i] = fm_load_piece(place(stage, owned_row(i), 4 * half + piece));
#pragma unroll
      for (int n = 0; n < N * PARTS; n++) {
        fm_piece w = fm_load_piece(stage + ROWS_BYTES + (half * N * PARTS + n) * 512 + lane * 16);
#pragma unroll
        for (int i = 0; i < 2 * M; i++) { // one step of all rows, then the other: sums wait less
          int m = i % M, word = i / M * 2;
          const fm_piece &upper = v[2 * m], &lower = v[2 * m + 1];
          unsigned a[4] = {upper.word[word], lower.word[word], upper.word[word + 1],
                           lower.word[word + 1]};
          unsigned b[2] = {w.word[word], w.word[word + 1]};
          fm_multiply<T>(some[n % PARTS > 0][m][n / PARTS], a, b);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < SUMS * M * N * 4; i++) {
      int s = i / (M * N * 4), m = i / (N * 4) % M, n = i / 4 % N;
      total[s][m][n][i % 4] += some[s][m][n][i % 4];
    }
  }

  // All sums of the rows set in `row`. A warp that has none of them only copies.
  FM_METHOD void run(char *shared, const char *queries, bool has_rows) {
#pragma unroll
    for (int i = 0; i < SUMS * M * N * 4; i++)
      total[i / (M * N * 4)][i / (N * 4) % M][i / 4 % N][i % 4] = 0;
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) copy(shared, queries, step);
    for (int step = 0; step < STEPS; step++) {
      fm_copy_wait<STAGES - 2>();
      fm_barrier(0, THREADS); // this step is there for all, and the one before is used up
      copy(shared, queries, step + STAGES - 1);
      if (has_rows) multiply(shared + step % STAGES * STAGE_BYTES);
    }
    fm_barrier(0, THREADS); // the next rows go where these are
  }
};
#endif
