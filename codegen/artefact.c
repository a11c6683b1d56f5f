// The life of an artefact (see artefact.h).
#include "codegen/artefact.h"

#include <stdlib.h>

static void release(cg_artefact *base) {
  cg_owned *owned = base->owner;
  base_arena_reset(&owned->arena);
  free(owned);
}

static void release_unfinished(void *object) {
  cg_owned **unfinished = object;
  if (*unfinished) release(&(*unfinished)->base);
}

cg_owned *cg_artefact_begin(base_arena *arena, const kir_kernel *first, const char *schedule_source,
                            base_diag *diag) {
  cg_owned **unfinished = base_new(arena, cg_owned *);
  base_defer(arena, release_unfinished, unfinished);
  cg_owned *owned = calloc(1, sizeof *owned);
  if (!owned) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0}, "out of memory");
    return NULL;
  }
  owned->base = (cg_artefact){.release = release, .owner = owned, .schedule = ""};
  base_arena_init(&owned->arena, &arena->allocator);
  owned->arena.escape = arena->escape;
  owned->unfinished = unfinished;
  *unfinished = owned;
  base_text schedule = {.arena = &owned->arena};
  if (first) kir_schedule_print(&first->schedule, &schedule);
  if (schedule.data) owned->base.schedule = schedule.data;
  owned->base.schedule_source = schedule_source;
  return owned;
}

cg_artefact *cg_artefact_finish(cg_owned *owned) {
  owned->arena.escape = NULL;
  *owned->unfinished = NULL;
  owned->unfinished = NULL; // the compilation's arena goes, the artefact stays
  return &owned->base;
}
