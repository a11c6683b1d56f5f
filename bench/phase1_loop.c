// A straightforward fused loop for phase 1, as one would write it in C: for each token the norms,
// the logits of all queries, a softmax over the sources, and the mixes; every array is walked along
// D. Built with -O3 -march=native -ffast-math, so the compiler vectorises the inner loops.
#include "phase1_loop.h"

#include <float.h>
#include <math.h>

enum { MAX_SOURCES = 64 };

static void mix_token(const phase1_problem *p, size_t t, size_t s, const float *inverse_rms) {
  float z[MAX_SOURCES], largest = -FLT_MAX, sum = 0;
  const float *query = p->query + s * p->D;
  for (size_t n = 0; n < p->N; n++) {
    const float *row = p->bank + (n * p->T + t) * p->D;
    float dot = 0;
    for (size_t d = 0; d < p->D; d++)
      dot += row[d] * p->gain[d] * query[d];
    z[n] = dot * inverse_rms[n];
    largest = z[n] > largest ? z[n] : largest;
  }
  for (size_t n = 0; n < p->N; n++)
    sum += z[n] = expf(z[n] - largest);
  float *out = p->out + (s * p->T + t) * p->D;
  for (size_t d = 0; d < p->D; d++) {
    float mix = 0;
    for (size_t n = 0; n < p->N; n++)
      mix += z[n] * p->bank[(n * p->T + t) * p->D + d];
    out[d] = mix / sum;
  }
  p->lse[s * p->T + t] = largest + logf(sum);
}

void phase1_loop(const phase1_problem *p, size_t begin, size_t end) {
  float inverse_rms[MAX_SOURCES];
  for (size_t t = begin; t < end; t++) {
    for (size_t n = 0; n < p->N; n++) {
      const float *row = p->bank + (n * p->T + t) * p->D;
      float squares = 0;
      for (size_t d = 0; d < p->D; d++)
        squares += row[d] * row[d];
      inverse_rms[n] = 1.0f / sqrtf(squares / (float)p->D + 1e-5f);
    }
    for (size_t s = 0; s < p->S; s++)
      mix_token(p, t, s, inverse_rms);
  }
}
