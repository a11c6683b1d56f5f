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
  if constexpr (access::STEP == V) {
    fm_unpack<T>(x, WAY().template load<access::BYTES>(p));
  } else {
#pragma unroll
    for (int i = 0; i < V; i += access::STEP) {
      float part[access::STEP];
      fm_unpack<T>(part, WAY().template load<access::BYTES>(p + i));
#pragma unroll
      for (int j = 0; j < access::STEP; j++) x[i + j] = part[j];
    }
  }
}

// KEPT: somebody reads it soon, so it should stay in the cache.
template <bool KEPT, int BYTES> FM_DEVICE void fm_store_access(void *p, fm_raw<BYTES> raw) {
  if constexpr (KEPT)
    fm_store_raw_kept(p, raw);
  else
    fm_store_raw(p, raw);
}
template <bool KEPT, class T, int V> FM_DEVICE void fm_store_row(T *p, const float (&x)[V]) {
  using access = fm_row_access<T, V>;
  if constexpr (access::STEP == V) {
    fm_store_access<KEPT>(p, fm_pack<T>(x));
  } else {
#pragma unroll
    for (int i = 0; i < V; i += access::STEP) {
      float part[access::STEP];
#pragma unroll
      for (int j = 0; j < access::STEP; j++) part[j] = x[i + j];
      fm_store_access<KEPT>(p + i, fm_pack<T>(part));
    }
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
