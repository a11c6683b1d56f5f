// The peer that phase 1 is measured against: see phase1_loop.c.
#ifndef FATHOM_BENCH_PHASE1_LOOP_H
#define FATHOM_BENCH_PHASE1_LOOP_H

#include <stddef.h>

// bank [N][T][D], query [S][D], gain [D] -> out [S][T][D], lse [S][T]; tokens begin .. end-1.
typedef struct phase1_problem {
  size_t N, T, D, S;
  const float *bank, *query, *gain;
  float *out, *lse;
} phase1_problem;

void phase1_loop(const phase1_problem *problem, size_t begin, size_t end);

#endif
