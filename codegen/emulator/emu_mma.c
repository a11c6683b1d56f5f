// emu_mma: the product of a warp's registers, mma.m16n8k16 (PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type").
//
// With lane = 4 group + member, a lane holds, two neighbouring columns of A (rows of B) to a word:
//
//   a[0] row group,     columns 2 member, + 1       b[0] rows 2 member, + 1,  column group
//   a[1] row group + 8, the same columns            b[1] the same + 8
//   a[2] row group,     columns + 8                 d[0], d[1] row group, columns 2 member, + 1
//   a[3] row group + 8, columns + 8                 d[2], d[3] row group + 8
#include "codegen/emulator/emu.h"

enum { M = 16, N = 8, K = 16 };

static float widen(unsigned word, uint32_t half, bool bf16) {
  const unsigned short bits = (unsigned short)(word >> 16 * half);
  return bf16 ? fm_float_of((unsigned)bits << 16) : fm_widen_half(bits);
}

void emu_mma(const fm_mma *const *lanes, bool bf16) {
  float a[M][K], b[K][N];
  for (uint32_t lane = 0; lane < EMU_WARP; lane++) {
    const uint32_t group = lane / 4, column = lane % 4 * 2;
    for (uint32_t half = 0; half < 2; half++) {
      for (uint32_t i = 0; i < 4; i++)
        a[group + i % 2 * 8][column + i / 2 * 8 + half] = widen(lanes[lane]->a[i], half, bf16);
      for (uint32_t i = 0; i < 2; i++)
        b[column + i * 8 + half][group] = widen(lanes[lane]->b[i], half, bf16);
    }
  }
  for (uint32_t lane = 0; lane < EMU_WARP; lane++) {
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      double sum = lanes[lane]->d[i];
      for (uint32_t k = 0; k < K; k++)
        sum += (double)a[row][k] * (double)b[k][column];
      lanes[lane]->d[i] = (float)sum;
    }
  }
}
