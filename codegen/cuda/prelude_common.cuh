// ---- Fathom prelude: what is built from the primitives -----------------------------------------
// The same text on a GPU and in the emulator. All loops have constant bounds and are unrolled, so
// that arrays live in registers.

// Ahead of an access of several values of shared memory; the emulator checks it.
#ifndef FM_CHECK_ALIGNED
#define FM_CHECK_ALIGNED(pointer, bytes)
#endif

template <class A, class B> constexpr bool fm_same = false;
template <class A> constexpr bool fm_same<A, A> = true;

// `bytes` bytes further on.
template <class T> FM_DEVICE T *fm_at(T *p, long long bytes) { return (T *)((char *)p + bytes); }

// -- elements: f32 in registers, T in memory

FM_DEVICE float fm_widen(float x) { return x; }
FM_DEVICE float fm_widen(fm_bf16 x) { return fm_from_bits((unsigned)x.bits << 16); }
FM_DEVICE float fm_widen(fm_f16 x) { return fm_half_to_float(x.bits); }

// f8e4m3: a sign, four bits of exponent (bias 7), three of fraction; no infinities, and NaN is the code
// with all bits set. Below 2^-6 its last place is 2^-9, which is that of an f32 from 2^14 up.
#ifndef FM_CONVERTS_F8
FM_DEVICE float fm_f8_to_float(unsigned char code) {
  unsigned magnitude = code & 0x7f;
  float small = fm_from_bits(magnitude | 0x46800000) - 16384.0f;
  unsigned bits = magnitude < 8      ? fm_bits(small)
                  : magnitude < 0x7f ? (magnitude << 20) + (120u << 23)
                                     : 0x7fc00000u;
  return fm_from_bits(bits | (code & 0x80u) << 24);
}
// What is larger than 448 becomes 448, infinity too.
FM_DEVICE unsigned char fm_float_to_f8(float x) {
  unsigned bits = fm_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
  unsigned clamped = magnitude < 0x43e00000 ? magnitude : 0x43e00000;
  unsigned small = fm_bits(fm_from_bits(clamped) + 16384.0f) - 0x46800000;
  unsigned normal = (clamped + 0x7ffff + (clamped >> 20 & 1) - (120u << 23)) >> 20;
  unsigned code = magnitude > 0x7f800000 ? 0x7f : magnitude < 0x3c800000 ? small : normal;
  return (unsigned char)(sign | code);
}
FM_DEVICE unsigned fm_narrow_f8_pair(float low, float high) {
  return fm_float_to_f8(low) | (unsigned)fm_float_to_f8(high) << 8;
}
FM_DEVICE void fm_widen_f8_pair(float &low, float &high, unsigned pair) {
  low = fm_f8_to_float((unsigned char)pair);
  high = fm_f8_to_float((unsigned char)(pair >> 8));
}
#endif
FM_DEVICE float fm_widen(fm_f8 x) { return fm_f8_to_float(x.bits); }

#ifndef FM_NARROWS_BF16
FM_DEVICE unsigned short fm_float_to_bf16(float x) {
  unsigned bits = fm_bits(x);
  unsigned rounded = bits + 0x7fff + (bits >> 16 & 1); // a carry goes to the exponent, up to inf
  unsigned quiet = bits | 0x400000;
  return (unsigned short)((fm_is_nan(x) ? quiet : rounded) >> 16);
}
#endif

// The nearest T, of two the even one. NaN stays a quiet NaN.
template <class T> FM_DEVICE T fm_narrow(float x) {
  if constexpr (fm_same<T, float>)
    return x;
  else if constexpr (fm_same<T, fm_f16>)
    return T{fm_float_to_half(x)};
  else if constexpr (fm_same<T, fm_f8>)
    return T{fm_float_to_f8(x)};
  else
    return T{fm_float_to_bf16(x)};
}

template <class T> FM_DEVICE float fm_round(float x) { return fm_widen(fm_narrow<T>(x)); }

// Two narrow values as one word, the first in the low half.
#ifndef FM_NARROWS_PAIRS
template <class T> FM_DEVICE unsigned fm_narrow_pair(float low, float high, T) {
  return fm_narrow<T>(low).bits | (unsigned)fm_narrow<T>(high).bits << 16;
}
#endif

// V values <-> the registers of one access.
template <class T, int V> FM_DEVICE void fm_unpack(float (&x)[V], fm_raw<V * sizeof(T)> raw) {
#ifdef FM_WIDENS_EIGHT
  constexpr bool EIGHT = fm_same<T, fm_bf16> && V == 8;
  if constexpr (EIGHT) fm_widen_eight(x, raw);
#else
  constexpr bool EIGHT = false;
#endif
#pragma unroll
  for (int i = 0; i < V && !EIGHT; i++) {
    if constexpr (sizeof(T) == 4) {
      x[i] = fm_from_bits(raw.word[i]);
    } else if constexpr (sizeof(T) == 1 && V == 1) {
      x[i] = fm_widen(T{raw.word[0]});
    } else if constexpr (sizeof(T) == 1) {
      if (i % 2 == 0) fm_widen_f8_pair(x[i], x[i + 1], raw.word[i / 4] >> i % 4 * 8 & 0xffff);
    } else {
      x[i] = fm_widen(T{(unsigned short)(raw.word[i / 2] >> i % 2 * 16)});
    }
  }
}

// The same for registers that have been unpacked before.
template <class T, int V>
FM_DEVICE void fm_unpack_again(float (&x)[V], fm_raw<V * sizeof(T)> raw) {
#ifdef FM_WIDENS_EIGHT
  if constexpr (fm_same<T, fm_bf16> && V == 8)
    fm_widen_eight_again(x, raw);
  else
#endif
    fm_unpack<T>(x, raw);
}

template <class T, int V> FM_DEVICE fm_raw<V * sizeof(T)> fm_pack(const float (&x)[V]) {
  fm_raw<V * sizeof(T)> raw;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < V; i++) raw.word[i] = fm_bits(x[i]);
  } else if constexpr (V == 1) {
    raw.word[0] = fm_narrow<T>(x[0]).bits;
  } else if constexpr (sizeof(T) == 1) {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      unsigned word = fm_narrow_f8_pair(x[i], x[i + 1]);
      if constexpr (V >= 4) word |= fm_narrow_f8_pair(x[i + 2], x[i + 3]) << 16;
      raw.word[i / 4] = word;
    }
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 2) raw.word[i / 2] = fm_narrow_pair(x[i], x[i + 1], T{});
  }
  return raw;
}

// One element of global memory.
template <class T> FM_DEVICE float fm_load(const T *p) {
  float x[1];
  fm_unpack<T>(x, fm_load_raw_cached<sizeof(T)>(p));
  return x[0];
}
template <class T> FM_DEVICE float fm_load_coherent(const T *p) {
  float x[1];
  fm_unpack<T>(x, fm_load_raw_coherent<sizeof(T)>(p));
  return x[0];
}
template <class T> FM_DEVICE void fm_store(T *p, float x) {
  float all[1] = {x};
  fm_store_raw(p, fm_pack<T>(all));
}
template <class T> FM_DEVICE void fm_store_kept(T *p, float x) {
  float all[1] = {x};
  fm_store_raw_kept(p, fm_pack<T>(all));
}

// V (1, 2, 4, 8) values of shared memory, in accesses of up to 16 bytes.
template <int V> struct alignas(4 * V) fm_vector {
  float element[V];
};
template <int V> FM_DEVICE void fm_shared_load(float (&x)[V], const float *shared) {
  constexpr int STEP = V < 4 ? V : 4;
#pragma unroll
  for (int i = 0; i < V; i += STEP) {
    FM_CHECK_ALIGNED(shared + i, 4 * STEP);
    fm_vector<STEP> v = *(const fm_vector<STEP> *)(shared + i);
#pragma unroll
    for (int j = 0; j < STEP; j++) x[i + j] = v.element[j];
  }
}
template <int V> FM_DEVICE void fm_shared_store(float *shared, const float (&x)[V]) {
  constexpr int STEP = V < 4 ? V : 4;
#pragma unroll
  for (int i = 0; i < V; i += STEP) {
    FM_CHECK_ALIGNED(shared + i, 4 * STEP);
    fm_vector<STEP> v;
#pragma unroll
    for (int j = 0; j < STEP; j++) v.element[j] = x[i + j];
    *(fm_vector<STEP> *)(shared + i) = v;
  }
}

FM_DEVICE float fm_sigmoid(float x) { return fm_divide(1.0f, 1.0f + fm_exp(-x)); }

// -- reductions
// A team is WARPS neighbouring warps, the first at a multiple of WARPS. All its threads call these
// together, each with K values. The order of additions is fixed by K and WARPS alone, and all threads
// get the same bits.

struct fm_op_sum {};
struct fm_op_max {};
FM_DEVICE float fm_join(fm_op_sum, float a, float b) { return a + b; }
FM_DEVICE float fm_join(fm_op_max, float a, float b) { return fm_max(a, b); }
FM_DEVICE float fm_neutral(fm_op_sum) { return 0; }
FM_DEVICE float fm_neutral(fm_op_max) { return fm_from_bits(0xff800000); }

// Totals over a warp of x[0 .. LEFT - 1], LEFT <= 32: lane i leaves with the total of value i
// modulo P, P the power of two from LEFT up. A step pairs neighbouring values; even lanes keep the
// first and send the second, odd lanes the reverse, so half as many are left:
//
//   lane 0:  a0 b0         a0 + a1          lanes 0, 2:  a0 + a1 + a2 + a3
//   lane 1:  a1 b1   ->    b0 + b1    ->    lanes 1, 3:  b0 + b1 + b2 + b3
//
// All in all 31 shuffles for 32 values, 12 for 9, 5 for 1. A value without a neighbour pairs with
// itself; lanes of values that do not exist leave with something without meaning.
template <class OP, int LEFT, int STEP = 1, int K> FM_DEVICE float fm_warp_fold(float (&x)[K]) {
  if constexpr (STEP == 32) {
    return x[0];
  } else {
    bool odd = fm_thread() & STEP;
    if constexpr (LEFT == 1) {
      x[0] = fm_join(OP(), x[0], fm_shuffle_xor(x[0], STEP));
    } else {
#pragma unroll
      for (int i = 0; i < (LEFT + 1) / 2; i++) {
        float first = x[2 * i], second = x[2 * i + 1 < LEFT ? 2 * i + 1 : 2 * i];
        x[i] = fm_join(OP(), odd ? second : first, fm_shuffle_xor(odd ? first : second, STEP));
      }
    }
    return fm_warp_fold<OP, (LEFT + 1) / 2, 2 * STEP>(x);
  }
}

constexpr FM_DEVICE int fm_power_of_two_from(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// K totals spread over the lanes of a warp, in groups of up to 32: lane i holds value i of each
// group, and so do the lanes at a multiple of PERIOD from it. Groups are of equal size; those beyond
// K repeat the last value.
template <int K> struct fm_totals {
  enum {
    GROUPS = (K + 31) / 32,
    SIZE = (K + GROUPS - 1) / GROUPS,
    PERIOD = fm_power_of_two_from(SIZE),
    COPIES = 32 / PERIOD
  };
  float total[GROUPS];

  // Whether this lane is the first that holds a value of its own, and which value it holds.
  FM_DEVICE bool owns(int group) {
    int lane = fm_thread() % 32;
    return lane < SIZE && group * SIZE + lane < K;
  }
  FM_DEVICE int index(int group) {
    int lane = fm_thread() % PERIOD, i = group * SIZE + (lane < SIZE ? lane : 0);
    return i < K ? i : K - 1;
  }

  // Which of the `count` values from `first` on this lane owns; -1: none.
  FM_DEVICE int number(int group, int first, int count) {
    int i = group * SIZE + fm_thread() % 32 - first;
    return owns(group) && i >= 0 && i < count ? i : -1;
  }
};

// Total i, for all lanes.
template <int K> FM_DEVICE float fm_total(const fm_totals<K> &t, int i) {
  return K == 1 ? t.total[0] : fm_shuffle(t.total[i / t.SIZE], i % t.SIZE);
}

template <class OP, int K> FM_DEVICE fm_totals<K> fm_warp_totals(const float (&x)[K]) {
  using totals = fm_totals<K>;
  totals t;
#pragma unroll
  for (int g = 0; g < totals::GROUPS; g++) {
    float group[totals::SIZE];
#pragma unroll
    for (int i = 0; i < totals::SIZE; i++) {
      int from = g * totals::SIZE + i;
      group[i] = x[from < K ? from : K - 1];
    }
    t.total[g] = fm_warp_fold<OP, totals::SIZE>(group);
  }
  return t;
}

// From the totals of this warp to those of its team. Lanes that hold the same value share the warps'
// totals of it out among themselves. `exchange` may be written again after the team's next barrier.
template <class OP, int WARPS, int K>
FM_DEVICE void fm_team_join(fm_totals<K> &t, float *exchange, int barrier) {
  if constexpr (WARPS > 1) {
    constexpr int COPIES = fm_totals<K>::COPIES;
    int warp = fm_thread() / 32 % WARPS, copy = fm_thread() % 32 / t.PERIOD;
#pragma unroll
    for (int g = 0; g < t.GROUPS; g++)
      if (t.owns(g)) exchange[warp * K + t.index(g)] = t.total[g];
    fm_barrier(barrier, 32 * WARPS);
#pragma unroll
    for (int g = 0; g < t.GROUPS; g++) {
      const float *partial = exchange + copy * K + t.index(g);
      t.total[g] = copy < WARPS ? partial[0] : fm_neutral(OP());
#pragma unroll
      for (int w = COPIES; w < WARPS; w += COPIES)
        if (w + copy < WARPS) t.total[g] = fm_join(OP(), t.total[g], partial[w * K]);
#pragma unroll
      for (int step = t.PERIOD; step < 32; step *= 2)
        t.total[g] = fm_join(OP(), t.total[g], fm_shuffle_xor(t.total[g], step));
    }
  }
}

// Totals of K values over a team, spread over the lanes of each of its warps; of maxima NaN wins.
// `exchange` is K * WARPS floats of shared memory (unused by a single warp), free again after the
// team's next barrier; `barrier` is a named barrier of the team.
template <class OP, int WARPS, int K>
FM_DEVICE fm_totals<K> fm_team_totals(const float (&x)[K], float *exchange, int barrier) {
  fm_totals<K> t = fm_warp_totals<OP>(x);
  fm_team_join<OP, WARPS>(t, exchange, barrier);
  return t;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The same over the teams of all BLOCKS blocks of a cluster, one team a block, in the order of their
// ranks. `exchange` is K * WARPS + K floats, at the same place in each block; the last K are each
// block's totals. Every thread of every block meets the cluster barrier before those are read;
// all are free again after the next one.
template <class OP, int WARPS, int BLOCKS, int K>
FM_DEVICE fm_totals<K> fm_cluster_totals(const float (&x)[K], float *exchange, int barrier) {
  float *partials = exchange + K * WARPS;
  fm_totals<K> t = fm_warp_totals<OP>(x);
  fm_team_join<OP, WARPS>(t, exchange, barrier);
#pragma unroll
  for (int g = 0; g < t.GROUPS; g++)
    if (fm_thread() / 32 % WARPS == 0 && t.owns(g)) partials[t.index(g)] = t.total[g];
  fm_cluster_barrier();
#pragma unroll
  for (int g = 0; g < t.GROUPS; g++) {
    const float *partial = partials + t.index(g);
    t.total[g] = fm_cluster_load(partial, 0);
#pragma unroll
    for (int rank = 1; rank < BLOCKS; rank++)
      t.total[g] = fm_join(OP(), t.total[g], fm_cluster_load(partial, rank));
  }
  return t;
}
#endif
