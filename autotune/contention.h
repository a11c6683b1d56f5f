// autotune: was anything else at work on this machine's processors meanwhile? Then times say less.
#ifndef FATHOM_AUTOTUNE_CONTENTION_H
#define FATHOM_AUTOTUNE_CONTENTION_H

#include "base/base.h"

// Processor seconds so far: of the whole machine, and of this process and its ended children.
typedef struct tune_load {
  bool known;
  double machine, own, clock;
} tune_load;

tune_load tune_load_read(void);
// The share of the machine's processors that others used between the two; 0 where it is not known.
double tune_load_of_others(const tune_load *before, const tune_load *after);

#endif
