// ---- Fathom prelude: parts of rows ---------------------------------------------------------------
// V neighbouring elements of a row, f32 in registers and T in memory, in accesses of up to 16 bytes.

template <class T, int V> struct fm_row_access {
  enum { STEP = V * sizeof(T) > 16 ? 16 / sizeof(T) : V, BYTES = STEP * sizeof(T) };
};

// Which way a load goes: rows that nobody reads again, rows that others read too, and memory that
// this kernel or the one before it wrote.
struct fm_once {
  template <int BYTES> FM_DEVICE fm_raw<BYTES> load(const void *p) { return fm_load_raw<BYTES>(p); }
};
struct fm_cached {
  template <int BYTES> FM_DEVICE fm_raw<BYTES> load(const void *p) {
    return fm_load_raw_cached<BYTES>(p);
  }
};
struct fm_coherent {
  template <int BYTES> FM_DEVICE fm_raw<BYTES> load(const void *p) {
    return fm_load_raw_coherent<BYTES>(p);
  }
};

template <class WAY, class T, int V> FM_DEVICE void fm_load_row(float (&x)[V], const T *p) {
  using access = fm_row_access<T, V>;
#pragma unroll
  for (int i = 0; i < V; i += access::STEP) {
    float part[access::STEP];
    fm_unpack<T>(part, WAY().template load<access::BYTES>(p + i));
#pragma unroll
    for (int j = 0; j < access::STEP; j++) x[i + j] = part[j];
  }
}

// KEPT: somebody reads it soon, so it should stay in the cache.
template <bool KEPT, class T, int V> FM_DEVICE void fm_store_row(T *p, const float (&x)[V]) {
  using access = fm_row_access<T, V>;
#pragma unroll
  for (int i = 0; i < V; i += access::STEP) {
    float part[access::STEP];
#pragma unroll
    for (int j = 0; j < access::STEP; j++) part[j] = x[i + j];
    if constexpr (KEPT)
      fm_store_raw_kept(p + i, fm_pack<T>(part));
    else
      fm_store_raw(p + i, fm_pack<T>(part));
  }
}

// One access of a row that was copied to shared memory.
template <int BYTES> struct alignas(BYTES) fm_staged {
  fm_raw<BYTES> raw;
};
template <int BYTES> FM_DEVICE fm_raw<BYTES> fm_shared_raw(const char *shared) {
  FM_CHECK_ALIGNED(shared, BYTES);
  return ((const fm_staged<BYTES> *)shared)->raw;
}

// An index moved to the nearest one from low to high.
FM_DEVICE int fm_clamp(int index, int low, int high) {
  return index < low ? low : index > high ? high : index;
}

// Several arrays as one: array by array, the first at AT.
template <int AT, int ALL> FM_DEVICE void fm_gather(float (&)[ALL]) {}
template <int AT, int ALL, int K, int... MORE>
FM_DEVICE void fm_gather(float (&all)[ALL], const float (&x)[K], const float (&...more)[MORE]) {
#pragma unroll
  for (int i = 0; i < K; i++) all[AT + i] = x[i];
  fm_gather<AT + K>(all, more...);
}

// Totals of several arrays over a team of WARPS warps, spread over the lanes of each: all go through
// one exchange together, and the arrays' values follow each other.
template <class OP, int WARPS, int... K>
FM_DEVICE fm_totals<(K + ...)> fm_team_totals(float *exchange, int barrier, const float (&...x)[K]) {
  float all[(K + ...)];
  fm_gather<0>(all, x...);
  return fm_team_spread<OP, WARPS>(all, exchange, barrier);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The same over the BLOCKS blocks of a cluster, one team each.
template <class OP, int WARPS, int BLOCKS, int... K>
FM_DEVICE fm_totals<(K + ...)> fm_cluster_totals(float *exchange, int barrier,
                                                 const float (&...x)[K]) {
  constexpr int ALL = (K + ...);
  float all[ALL];
  fm_gather<0>(all, x...);
  return fm_cluster_spread<OP, WARPS, BLOCKS>(all, exchange, exchange + ALL * WARPS, barrier);
}
#endif

// Totals of K values over BLOCKS blocks that left theirs in memory, `stride` bytes from one to the
// next, in the order of the blocks; every warp gets them all.
template <class OP, int BLOCKS, int K>
FM_DEVICE fm_totals<K> fm_join_partials(const float *partials, long long stride) {
  fm_totals<K> t;
#pragma unroll
  for (int g = 0; g < t.GROUPS; g++) {
    const float *partial = partials + t.index(g);
    t.total[g] = fm_load_coherent(partial);
#pragma unroll
    for (int block = 1; block < BLOCKS; block++)
      t.total[g] =
          fm_join(OP(), t.total[g], fm_load_coherent(fm_at(partial, block * stride)));
  }
  return t;
}
