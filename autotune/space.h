// autotune: the space of schedules that are tried for a kernel. The knobs, and which values are worth
// trying, are in ir/schedule.def; what the kernel, the sizes and the machine make of no use is left
// out, so that no two schedules of a space make the same code.
#ifndef FATHOM_AUTOTUNE_SPACE_H
#define FATHOM_AUTOTUNE_SPACE_H

#include "codegen/cuda/gpu.h"
#include "ir/kernel.h"

// What is tuned.
typedef struct tune_subject {
  const ir_graph *graph; // fused, all axes but rows bound
  int32_t kernel;        // its number in the graph
  kir_machine machine;
  int64_t rows;          // of the innermost row axis, at the time to be tuned for
  uint32_t threads;      // of a CPU
  uint32_t lanes;        // of a CPU: f32 lanes of its vectors
  const cuda_arch *arch; // of a GPU
  const cuda_gpu *gpu;   // its figures, for the cost model
  bool timed; // schedules can be timed: what the model knows nothing of stays in the space
  kir_schedule initial; // the default schedule
} tune_subject;

enum { TUNE_MAX_KNOBS = 32, TUNE_MAX_VALUES = 12 };

// One knob that makes a difference, and what is tried for it, ascending.
typedef struct tune_dimension {
  const kir_knob *knob;
  uint32_t count;
  int64_t values[TUNE_MAX_VALUES];
} tune_dimension;

typedef struct tune_space {
  kir_schedule initial; // the default, which is the first schedule
  uint32_t dimension_count;
  tune_dimension dimensions[TUNE_MAX_KNOBS];
  double raw;      // combinations of all values in schedule.def
  uint32_t radius; // knobs in which a schedule of the space may differ from the default
  uint32_t count;  // of distinct schedules worth trying
  const kir_schedule *schedules;
  uint32_t *table; // of hashes: 1 + the schedule's number
  uint32_t table_size;
} tune_space;

// A space with more combinations than TUNE_LARGEST_SPACE is not listed whole, but only the schedules
// that differ from the default in a few knobs: as many knobs as leave at most TUNE_LARGEST_PART of them.
enum { TUNE_LARGEST_SPACE = 200000, TUNE_LARGEST_PART = 20000 };

// Lives in `arena`.
tune_space *tune_space_create(base_arena *arena, const tune_subject *subject);
// Leaves only the schedules for which kept[number] holds, and the default, in the same order.
void tune_space_keep(tune_space *space, const bool *kept);
// Adds schedules[count], unless it is there already: for spaces made by hand.
void tune_space_add(tune_space *space);
// The number of a schedule in the space; -1: it is not in it.
int64_t tune_space_find(const tune_space *space, const kir_schedule *schedule);
// The schedules one step away along one dimension: up to `room` numbers; returns how many.
uint32_t tune_space_neighbours(const tune_space *space, uint32_t schedule, uint32_t room,
                               uint32_t *out);

#endif
