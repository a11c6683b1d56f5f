// emu_schedule: whose turn it is.
//
// Threads that can go on are in unordered lists; whenever one stops, any of them is drawn. A fair
// draw keeps all threads close together, which hides mistakes that need one far ahead of another,
// so in two of three runs some threads are slow: as long as others can go on, they are seldom
// drawn. Which ones changes now and then. (The idea is that of priorities with a few random changes:
// Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs", 2010.)
//
// A thread that stops switches straight to the next one; the host's stack is needed only at the
// beginning and at the end of a cluster.
#include <string.h>

#include "codegen/emulator/emu.h"

_Thread_local emu_fiber *emu_running;

// xorshift64*, of S. Vigna, "An experimental exploration of Marsaglia's xorshift generators".
uint32_t emu_random(emu_machine *machine, uint32_t limit) {
  uint64_t x = machine->random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  machine->random = x;
  const uint32_t high = (uint32_t)(x * UINT64_C(0x2545f4914f6cdd1d) >> 32);
  return (uint32_t)((uint64_t)high * limit >> 32);
}

const fm_fiber *emu_self(void) {
  return &emu_running->view;
}

void emu_make_ready(emu_fiber *fiber) {
  emu_machine *machine = fiber->block->machine;
  fiber->state = EMU_READY;
  machine->ready[fiber->slow][machine->ready_count[fiber->slow]++] = fiber;
}

// ---- who is slow --------------------------------------------------------------------------------

static bool is_slow(const emu_fiber *fiber) {
  const emu_machine *machine = fiber->block->machine;
  const uint64_t salt = machine->salt;
  const uint32_t thread = (uint32_t)fiber->view.thread, lane = thread % EMU_WARP;
  const uint32_t warp = fiber->block->rank * EMU_WARPS_MOST + thread / EMU_WARP;
  switch (machine->bias) {
  case EMU_SLOW_WARPS: // of a cluster all warps of some blocks, every other time
    if (machine->launch->cluster > 1 && salt >> 32 & 1) return (salt ^ fiber->block->rank) & 1;
    return (salt ^ warp) * UINT64_C(0x9e3779b97f4a7c15) >> 63;
  case EMU_SLOW_LANES:
    return salt >> lane & 1;
  default:
    return false;
  }
}

// For about as long as all threads together need for a row.
static void choose_slow_ones(emu_machine *machine) {
  enum { DRAWS = 64 }; // of each thread, on average
  machine->salt = (uint64_t)emu_random(machine, UINT32_MAX) << 32 | emu_random(machine, UINT32_MAX);
  machine->draws_left = 1 + emu_random(machine, 2 * DRAWS * machine->alive);
}

static void choose_others(emu_machine *machine) {
  const rt_device_launch *launch = machine->launch;
  const uint32_t fibers = launch->threads * (launch->cluster ? launch->cluster : 1);
  uint32_t *count = machine->ready_count;
  choose_slow_ones(machine);
  for (uint32_t i = 0; i < fibers; i++)
    machine->fibers[i].slow = is_slow(&machine->fibers[i]);
  // The lists have room for all: those of the second go behind those of the first, and are dealt
  // again from its beginning.
  memcpy(machine->ready[0] + count[0], machine->ready[1], count[1] * sizeof(emu_fiber *));
  const uint32_t ready = count[0] + count[1];
  count[0] = count[1] = 0;
  for (uint32_t i = 0; i < ready; i++)
    emu_make_ready(machine->ready[0][i]);
}

// ---- turns --------------------------------------------------------------------------------------

static emu_fiber *draw(emu_machine *machine) {
  enum { SELDOM = 512 }; // one draw in so many goes to slow ones
  if (machine->bias != EMU_EVEN && --machine->draws_left == 0) choose_others(machine);
  uint32_t *count = machine->ready_count;
  const bool slow = count[0] == 0 || (count[1] > 0 && emu_random(machine, SELDOM) == 0);
  const uint32_t i = emu_random(machine, count[slow]);
  emu_fiber *fiber = machine->ready[slow][i];
  machine->ready[slow][i] = machine->ready[slow][--count[slow]];
  return fiber;
}

static void go_on_with_another(emu_fiber *self) {
  emu_machine *machine = self->block->machine;
  if (machine->ready_count[0] + machine->ready_count[1] == 0) emu_deadlock(self);
  emu_fiber *next = draw(machine);
  if (next == self) return;
  emu_running = next;
  emu_context_switch(&self->context, &next->context, self->state == EMU_DONE);
}

void emu_wait(emu_fiber *self) {
  go_on_with_another(self);
}

void emu_yield(emu_fiber *self) {
  emu_make_ready(self);
  go_on_with_another(self);
}

// ---- the life of a thread -----------------------------------------------------------------------

static noreturn void leave(emu_fiber *self) {
  emu_machine *machine = self->block->machine;
  emu_copy_exit(self);
  self->state = EMU_DONE;
  emu_warp_exit(self);
  machine->alive--;
  if (--self->block->alive == 0) {
    emu_ring_exit(self);
    emu_shared_end(self, (fm_site){0});
  }
  emu_cluster_check(machine);
  if (machine->alive == 0) emu_context_switch(&self->context, &machine->host, true);
  go_on_with_another(self);
  __builtin_unreachable();
}

static void live(void *argument) {
  emu_fiber *self = argument;
  emu_machine *machine = self->block->machine;
  emu_context_begin(&machine->host);
  machine->launch->function->entry(machine->launch->parameters);
  leave(self);
}

static void begin_block(emu_machine *machine, emu_block *block) {
  const rt_device_launch *launch = machine->launch;
  emu_shared_begin(block);
  block->alive = launch->threads;
  block->ring_count = 0;
  block->bulk.first = block->bulk.end = 0;
  for (uint32_t i = 0; i < EMU_WARPS_MOST; i++)
    block->warps[i] = (emu_warp){0};
  for (uint32_t i = 0; i < EMU_BARRIERS; i++)
    block->barriers[i] = (emu_barrier){0};
  for (uint32_t t = 0; t < launch->threads; t++) {
    emu_fiber *fiber = &block->fibers[t];
    fiber->view = (fm_fiber){.shared = block->shared,
                             .block = block->index,
                             .blocks = launch->blocks,
                             .thread = (int)t,
                             .cluster_rank = (int)block->rank,
                             .cluster_size = (int)(launch->cluster ? launch->cluster : 1)};
    fiber->block = block;
    fiber->site = (fm_site){0};
    fiber->caller = NULL;
    fiber->groups = 0;
    fiber->copies.first = fiber->copies.end = 0;
    fiber->slow = is_slow(fiber);
    fiber->patience = 1 + emu_random(machine, 2 * machine->patience);
    emu_context_make(&fiber->context, live, fiber);
    emu_make_ready(fiber);
  }
}

void emu_run_cluster(emu_machine *machine) {
  const uint32_t blocks = machine->launch->cluster ? machine->launch->cluster : 1;
  machine->ready_count[0] = machine->ready_count[1] = 0;
  machine->cluster_arrived = 0;
  machine->alive = blocks * machine->launch->threads;
  choose_slow_ones(machine);
  for (uint32_t i = 0; i < blocks; i++)
    begin_block(machine, &machine->blocks[i]);
  emu_fiber *first = draw(machine);
  emu_running = first;
  emu_context_switch(&machine->host, &first->context, false);
  emu_running = NULL;
  if (!machine->faulty) return;
  for (uint32_t i = 0; i < blocks * machine->launch->threads; i++)
    emu_context_drop(&machine->fibers[i].context);
}
