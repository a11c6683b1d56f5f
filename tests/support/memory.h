// Memory that runs out when a test says so, and counts what is held: an allocator for a context.
#ifndef FATHOM_TESTS_MEMORY_H
#define FATHOM_TESTS_MEMORY_H

#include <stdlib.h>

#include "fathom.h"

typedef struct memory {
  long left; // allocations until one fails; below 0: none does
  long held; // blocks
} memory;

static inline void *memory_take(void *user, size_t bytes) {
  memory *m = user;
  if (m->left == 0) return NULL;
  m->left--;
  m->held++;
  return malloc(bytes);
}

static inline void memory_give(void *user, void *pointer) {
  memory *m = user;
  if (pointer) m->held--;
  free(pointer);
}

// The context's memory is `m` (NULL: the usual one).
static inline void memory_use(memory *m, fathom_context_options *options) {
  options->allocate = m ? memory_take : NULL;
  options->release = m ? memory_give : NULL;
  options->allocator_user = m;
}

#endif
