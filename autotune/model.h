// autotune: the cost model. Says how long a schedule will take without compiling it: what a row moves
// and computes is counted from the lowered kernel, and the machine's figures turn counts into seconds.
// Good for ranking schedules, not for telling times (docs/cost-model.md).
//
// Sections: the CPU's counts, times.
#ifndef FATHOM_AUTOTUNE_MODEL_H
#define FATHOM_AUTOTUNE_MODEL_H

#include "autotune/calibration.h"
#include "autotune/space.h"

// ---- the CPU's counts ---------------------------------------------------------------------------

// What one sweep does for one row, in operations on vectors. Numbers of a scalar section are of
// scalars, which cost as much.
typedef struct tune_sweep_counts {
  double arithmetic;    // multiply-adds and what costs as much
  double loads, stores; // of vectors; a value that is spread over the lanes is a load as well
  double prefetches;
  double spills;       // loads and stores of accumulators that have no register
  double chain;        // operations of the longest sequence in which each waits for the one before
  double steps;        // of its loops
  double level2_bytes; // read from the second level cache
} tune_sweep_counts;

// `lanes`: f32 lanes of the vectors that the CPU uses by itself.
tune_sweep_counts tune_count_sweep(base_arena *arena, const kir_kernel *kernel,
                                   const kir_sweep *sweep, uint32_t lanes);

// ---- times --------------------------------------------------------------------------------------

// Seconds of one call of each schedule of the space, into seconds[space->count]; infinite where the
// kernel cannot have the schedule.
void tune_predict_cpu(base_arena *arena, const tune_subject *subject, const tune_space *space,
                      const tune_calibration *calibration, double *seconds);
// The same on a GPU, by the registers that the schedules count on.
void tune_predict_cuda(base_arena *arena, const tune_subject *subject, const tune_space *space,
                       double *seconds);
// One schedule after compiling it, by the compiler's account of registers and spills. Negative: see
// diag, which also says when a block fits no multiprocessor.
double tune_predict_compiled(base_arena *arena, const tune_subject *subject,
                             const kir_schedule *schedule, const char *cache_directory,
                             base_diag *diag);

// Spearman's rank correlation of two lists: 1 when they order alike, 0 when one says nothing about the
// other. Equal numbers share their ranks. 0 for fewer than two.
double tune_rank_correlation(base_arena *arena, const double *a, const double *b, uint32_t count);

#endif
