// Kernels that use every name of the preludes, for tests of what they become. Not meant to compute
// anything of use, but each result depends on all that is called. Put behind the preludes.
#define SMOKE_SINCE(arch) (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= (arch))

struct smoke_args {
  const fm_bf16 *bank[8];
  const fm_f16 *half;
  const float *gain;
  fm_bf16 *y;
  float *out;
  char *workspace;
  long long T;
};

// The K3 site as one read: 8 rows of a bank and one more in registers, D = 7168 over 224 threads.
extern "C" __global__ void __launch_bounds__(224, 1)
    smoke_site(const __grid_constant__ smoke_args a) {
  float *shared = (float *)fm_shared(), *gain = shared + 1024;
  int column = fm_thread() * 8;
  for (long long t = fm_block(); t < a.T; t += fm_blocks()) {
    float sums[18] = {}, last[4][8];
#pragma unroll
    for (int step = 0; step < 4; step++) {
      long long at = (t * 7168 + step * 1792 + column) * 2;
      fm_raw<16> rows[9];
#pragma unroll
      for (int n = 0; n < 8; n++) rows[n] = fm_load_raw<16>(fm_at(a.bank[n], at));
      rows[8] = fm_load_raw_cached<16>(fm_at(a.half, at));
      float g[8], x[8];
      fm_shared_load<8>(g, gain + step * 1792 + column);
#pragma unroll
      for (int n = 0; n < 9; n++) {
        if (n < 8)
          fm_unpack<fm_bf16>(x, rows[n]);
        else
          fm_unpack<fm_f16>(x, rows[n]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          sums[n] = fm_fma(x[i], x[i], sums[n]);
          sums[9 + n] = fm_fma(x[i], g[i], sums[9 + n]);
          last[step][i] = x[i];
        }
      }
    }
    fm_totals<18> totals = fm_team_totals<fm_op_sum, 7>(sums, shared, 1);
#pragma unroll
    for (int i = 0; i < 18; i++) sums[i] = fm_total(totals, i);
    fm_barrier(1, 224);
    float largest[1] = {sums[9]};
    largest[0] = fm_total(fm_team_totals<fm_op_max, 7>(largest, shared, 1), 0);
    fm_barrier(1, 224);
    float scale = fm_rsqrt(sums[0]) + fm_exp(sums[10] - largest[0]) + fm_log(sums[1]) +
                  fm_sigmoid(sums[11]);
#pragma unroll
    for (int step = 0; step < 4; step++) {
#pragma unroll
      for (int i = 0; i < 8; i++) last[step][i] *= scale;
      long long at = (t * 7168 + step * 1792 + column) * 2;
      fm_store_raw(fm_at(a.y, at), fm_pack<fm_bf16>(last[step]));
    }
  }
}
FM_ENTRY(smoke_site, smoke_args)

// Accesses of all widths, conversions, votes.
extern "C" __global__ void __launch_bounds__(64, 1)
    smoke_memory(const __grid_constant__ smoke_args a) {
  float *shared = (float *)fm_shared();
  int t = fm_thread();
  fm_wait_prior_grid();
  float x1[1], x2[2], x4[4], x8[8];
  fm_unpack<fm_bf16>(x1, fm_load_raw<2>(a.bank[0] + t));
  fm_unpack<fm_bf16>(x2, fm_load_raw_cached<4>(a.bank[1] + 2 * t));
  fm_unpack<fm_f16>(x4, fm_load_raw_coherent<8>(a.half + 4 * t));
  fm_shared_store(shared + t, x1);
  fm_shared_store(shared + 64 + 2 * t, x2);
  fm_shared_store(shared + 256 + 4 * t, x4);
  fm_barrier(3, 64);
  fm_shared_load(x8, shared + 8 * (t / 2));
  fm_shared_load(x4, shared + 4 * (t ^ 3));
  fm_shared_load(x2, shared + 2 * (t ^ 7));
  fm_shared_load(x1, shared + (t ^ 1));
  fm_warp_barrier();
  x1[0] += fm_load(a.gain + t) + fm_load_coherent(a.gain + 64 + t) + fm_load(a.half + t);
  x1[0] += fm_round<fm_bf16>(x1[0]) + fm_round<fm_f16>(x1[0]) + fm_round<float>(x1[0]);
  x1[0] += fm_shuffle(x1[0], 3) + fm_shuffle_xor(x1[0], 5) + fm_max(x2[0], x2[1]);
  if (fm_any(x1[0] > 3) || fm_ballot(fm_is_nan(x2[0])) == 77) x1[0] += 1;
  fm_store_raw(a.out + 4 * t, fm_pack<float>(x4));
  fm_store_raw(a.out + 256 + 2 * t, fm_pack<float>(x2));
  fm_store(a.out + 384 + t, x1[0]);
  fm_store(a.y + t, x8[2]);
  fm_store_raw_kept(a.workspace + 16 * t, fm_pack<fm_f16>(x8));
  fm_store_kept((float *)a.workspace + 256 + t, x8[0]);
  fm_launch_dependents();
}
FM_ENTRY(smoke_memory, smoke_args)

// Value k of thread t is bank[0][64 k + t]; out[64 k + t] becomes the sum over all threads, and
// out[64 (K + k) + t] the maximum.
template <int K, int WARPS>
FM_DEVICE float *smoke_reduce_one(const smoke_args &a, float *out, float *exchange) {
  float sum[K], most[K];
#pragma unroll
  for (int k = 0; k < K; k++) sum[k] = most[k] = fm_load(a.bank[0] + 64 * k + fm_thread());
  int barrier = 1 + fm_thread() / (32 * WARPS);
  fm_totals<K> sums = fm_team_totals<fm_op_sum, WARPS>(sum, exchange, barrier);
  fm_barrier(barrier, 32 * WARPS);
  fm_totals<K> largest = fm_team_totals<fm_op_max, WARPS>(most, exchange, barrier);
  fm_barrier(0, 64);
#pragma unroll
  for (int k = 0; k < K; k++) {
    fm_store(out + 64 * k + fm_thread(), fm_total(sums, k));
    fm_store(out + 64 * (K + k) + fm_thread(), fm_total(largest, k));
  }
  return out + 128 * K;
}
// Teams of one warp and of two.
extern "C" __global__ void __launch_bounds__(64, 1)
    smoke_reduce(const __grid_constant__ smoke_args a) {
  float *exchange = (float *)fm_shared(), *out = a.out;
  out = smoke_reduce_one<1, 1>(a, out, exchange);
  out = smoke_reduce_one<1, 2>(a, out, exchange);
  out = smoke_reduce_one<2, 2>(a, out, exchange);
  out = smoke_reduce_one<3, 1>(a, out, exchange);
  out = smoke_reduce_one<9, 2>(a, out, exchange);
  out = smoke_reduce_one<18, 1>(a, out, exchange);
  out = smoke_reduce_one<32, 2>(a, out, exchange);
  out = smoke_reduce_one<33, 2>(a, out, exchange);
}
FM_ENTRY(smoke_reduce, smoke_args)

#if SMOKE_SINCE(800)
extern "C" __global__ void __launch_bounds__(64, 1)
    smoke_tensor(const __grid_constant__ smoke_args a) {
  float *shared = (float *)fm_shared();
  int t = fm_thread();
  fm_copy_async<16>(shared + 4 * t, a.gain + 4 * t);
  fm_copy_commit();
  fm_copy_async<8>(shared + 256 + 2 * t, a.gain + 256 + 2 * t);
  fm_copy_async<4>(shared + 384 + t, a.gain + 384 + t);
  fm_copy_commit();
  fm_copy_wait<1>();
  unsigned left[4], right[2] = {fm_bits(fm_from_bits(0x3f803f80)), 0x40004000};
#pragma unroll
  for (int i = 0; i < 4; i++) left[i] = fm_bits(shared[4 * t + i]);
  fm_copy_wait<0>();
  fm_barrier(0, 64);
  float d[4] = {shared[256 + t], shared[384 + t], 0, 0};
  fm_mma_bf16(d, left, right);
  fm_mma_f16(d, left, right);
  fm_store_raw(a.out + 4 * t, fm_pack<float>(d));
}
FM_ENTRY(smoke_tensor, smoke_args)
#endif

#if SMOKE_SINCE(900)
// A cluster of two blocks of 64 threads: a ring of one stage, and sums over both blocks.
extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(64, 1)
    smoke_cluster(const __grid_constant__ smoke_args a) {
  unsigned long long *ring = (unsigned long long *)fm_shared();
  float *shared = (float *)fm_shared() + 64, *exchange = shared + 1024;
  int t = fm_thread();
  if (t == 0) {
    fm_ring_init(ring, 1);
    fm_ring_init(ring + 1, 64);
    fm_ring_fence();
  }
  fm_barrier(0, 64);
  if (t == 0) {
    fm_ring_expect(ring, 4096);
    fm_bulk_copy(shared, a.gain + 1024 * fm_cluster_rank(), 4096, ring);
  }
  fm_ring_wait(ring, 0);
  float sum[9], most[3];
#pragma unroll
  for (int k = 0; k < 9; k++) sum[k] = shared[64 * k + t];
#pragma unroll
  for (int k = 0; k < 3; k++) most[k] = shared[64 * k + t];
  fm_ring_arrive(ring + 1);
  fm_ring_wait(ring + 1, 0);
  fm_totals<9> sums = fm_cluster_totals<fm_op_sum, 2, 2>(sum, exchange, 1);
  fm_cluster_barrier();
  fm_totals<3> largest = fm_cluster_totals<fm_op_max, 2, 2>(most, exchange, 1);
  fm_cluster_store(shared + t, fm_cluster_rank() ^ 1, fm_total(sums, 8) + fm_total(largest, 2));
  fm_cluster_barrier();
  float *out = a.out + 1024 * fm_block();
#pragma unroll
  for (int k = 0; k < 9; k++) fm_store(out + 64 * k + t, fm_total(sums, k));
#pragma unroll
  for (int k = 0; k < 3; k++) fm_store(out + 64 * (9 + k) + t, fm_total(largest, k));
  fm_store(out + 768 + t, shared[t] + fm_cluster_load(shared + t, 0) * fm_cluster_size());
  fm_cluster_barrier(); // before the other block's shared memory goes
}
FM_ENTRY(smoke_cluster, smoke_args)
#endif
