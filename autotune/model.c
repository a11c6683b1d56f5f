// How well a model ranks.
#include "autotune/model.h"

#include <math.h>
#include <stdlib.h>

typedef struct ranked {
  double value;
  uint32_t index;
} ranked;

static int by_value(const void *a, const void *b) {
  double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
  return (x > y) - (x < y);
}

static double *ranks_of(base_arena *arena, const double *values, uint32_t count) {
  ranked *order = base_new_array(arena, ranked, count);
  double *ranks = base_new_array(arena, double, count);
  for (uint32_t i = 0; i < count; i++)
    order[i] = (ranked){values[i], i};
  qsort(order, count, sizeof *order, by_value);
  for (uint32_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && order[end].value <= order[i].value; end++) {
    }
    for (uint32_t j = i; j < end; j++)
      ranks[order[j].index] = (i + end - 1) / 2.0;
  }
  return ranks;
}

double tune_rank_correlation(base_arena *arena, const double *a, const double *b, uint32_t count) {
  if (count < 2) return 0;
  const double *x = ranks_of(arena, a, count), *y = ranks_of(arena, b, count);
  double middle = (count - 1) / 2.0, together = 0, of_x = 0, of_y = 0;
  for (uint32_t i = 0; i < count; i++) {
    together += (x[i] - middle) * (y[i] - middle);
    of_x += (x[i] - middle) * (x[i] - middle);
    of_y += (y[i] - middle) * (y[i] - middle);
  }
  return of_x > 0 && of_y > 0 ? together / sqrt(of_x * of_y) : 0;
}
