// artefact: the life of a cg_artefact, which is the same for all targets.
//
// While it is being made an artefact belongs to the compilation: whatever ends that early, running
// out of memory too, the compilation's arena releases it. Once it is handed over it belongs to who
// asked for it.
#ifndef FATHOM_CODEGEN_ARTEFACT_H
#define FATHOM_CODEGEN_ARTEFACT_H

#include "codegen/target.h"
#include "ir/kernel.h"

typedef struct cg_owned {
  cg_artefact base;
  base_arena arena;             // all that the artefact needs; what is not memory is deferred here
  struct cg_owned **unfinished; // in the compilation's arena
} cg_owned;

// An empty artefact that tells of `first`, the graph's first kernel (NULL: it has none), and of
// where its schedule came from. NULL: out of memory, see diag.
cg_owned *cg_artefact_begin(base_arena *arena, const kir_kernel *first, const char *schedule_source,
                            base_diag *diag);
// Hands it over.
cg_artefact *cg_artefact_finish(cg_owned *owned);

#endif
