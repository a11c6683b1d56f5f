// emu_warp: what the 32 lanes of a warp do together, and what warps do together.
//
// Lanes that come to a warp operation wait until the last one is there; it does the work for all of
// them. All must have come to the same operation at the same place in the text: on a GPU anything
// else is undefined. bar.sync and the cluster barrier count whole warps, so they are warp
// operations too, after which the warp as such waits.
#include <string.h>

#include "codegen/emulator/emu.h"

static const char *const names[FM_WARP_OPERATIONS] = {
    [FM_NAMED_BARRIER] = "fm_barrier",
    [FM_CLUSTER_BARRIER] = "fm_cluster_barrier",
    [FM_WARP_BARRIER] = "fm_warp_barrier",
    [FM_SHUFFLE] = "fm_shuffle",
    [FM_SHUFFLE_XOR] = "fm_shuffle_xor",
    [FM_BALLOT] = "fm_ballot",
    [FM_ANY] = "fm_any",
    [FM_MMA_BF16] = "fm_mma_bf16",
    [FM_MMA_F16] = "fm_mma_f16",
};

const char *emu_operation_name(fm_warp_operation operation) {
  return names[operation];
}

static uint32_t warp_of(const emu_fiber *self) {
  return (uint32_t)self->view.thread / EMU_WARP;
}
static uint32_t lane_of(const emu_fiber *self) {
  return (uint32_t)self->view.thread % EMU_WARP;
}

static void release_warp(emu_fiber *lanes) {
  for (uint32_t i = 0; i < EMU_WARP; i++)
    emu_make_ready(&lanes[i]);
}

// ---- values between lanes -----------------------------------------------------------------------

static void shuffle(emu_fiber *self, emu_fiber *lanes) {
  unsigned values[EMU_WARP];
  for (uint32_t i = 0; i < EMU_WARP; i++)
    values[i] = ((const fm_exchange *)lanes[i].operand)->value;
  for (uint32_t i = 0; i < EMU_WARP; i++) {
    fm_exchange *exchange = lanes[i].operand;
    if (exchange->lane < 0 || exchange->lane >= EMU_WARP)
      emu_fault(&lanes[i], self->site, "names lane %d, but a warp has lanes 0 to 31",
                exchange->lane);
    const uint32_t from = (uint32_t)exchange->lane;
    exchange->value = values[self->operation == FM_SHUFFLE ? from : i ^ from];
  }
}

static void ballot(emu_fiber *lanes) {
  unsigned all = 0;
  for (uint32_t i = 0; i < EMU_WARP; i++)
    all |= ((const fm_exchange *)lanes[i].operand)->value << i;
  for (uint32_t i = 0; i < EMU_WARP; i++)
    ((fm_exchange *)lanes[i].operand)->value = all;
}

static void multiply(emu_fiber *lanes, bool bf16) {
  const fm_mma *registers[EMU_WARP];
  for (uint32_t i = 0; i < EMU_WARP; i++)
    registers[i] = lanes[i].operand;
  emu_mma(registers, bf16);
}

// ---- barriers -----------------------------------------------------------------------------------

static void check_barrier(emu_fiber *self, emu_fiber *lanes, const fm_named_barrier *operand) {
  const uint32_t threads = self->block->machine->launch->threads;
  if (operand->id < 0 || operand->id >= EMU_BARRIERS)
    emu_fault(self, self->site, "names barrier %d, but a block has barriers 0 to 15", operand->id);
  if (operand->threads <= 0 || operand->threads % EMU_WARP != 0)
    emu_fault(self, self->site,
              "waits at barrier %d for %d threads: it must be a multiple of 32, and not 0",
              operand->id, operand->threads);
  if ((uint32_t)operand->threads > threads)
    emu_fault(self, self->site, "waits at barrier %d for %d threads, but its block has %u",
              operand->id, operand->threads, threads);
  for (uint32_t i = 0; i < EMU_WARP; i++) {
    const fm_named_barrier *other = lanes[i].operand;
    if (other->id != operand->id || other->threads != operand->threads)
      emu_fault(
          self, self->site,
          "waits at barrier %d for %d threads, but thread %d of its warp at barrier %d for %d",
          operand->id, operand->threads, lanes[i].view.thread, other->id, other->threads);
  }
}

// The warp of `self` has come to a named barrier.
static void meet(emu_fiber *self, emu_fiber *lanes) {
  const fm_named_barrier *operand = self->operand;
  check_barrier(self, lanes, operand);
  emu_block *block = self->block;
  emu_barrier *barrier = &block->barriers[operand->id];
  const uint32_t expected = (uint32_t)operand->threads;
  if (barrier->arrived == 0) *barrier = (emu_barrier){.threads = expected, .site = self->site};
  if (barrier->threads != expected)
    emu_fault(self, self->site,
              "waits at barrier %d for %u threads, but threads that came first wait for %u since "
              "line %d",
              operand->id, expected, barrier->threads, barrier->site.line);
  barrier->arrived += EMU_WARP;
  barrier->warps |= 1u << warp_of(self);
  for (uint32_t i = 0; i < EMU_WARP; i++) {
    lanes[i].state = EMU_AT_BARRIER;
    lanes[i].detail = (uint32_t)operand->id;
  }
  if (barrier->arrived < expected) return;
  emu_shared_end(self, self->site);
  for (uint32_t warp = 0; warp < EMU_WARPS_MOST; warp++)
    if (barrier->warps >> warp & 1) release_warp(&block->fibers[warp * EMU_WARP]);
  *barrier = (emu_barrier){0};
}

// Threads that have returned count as arrived.
void emu_cluster_check(emu_machine *machine) {
  if (machine->cluster_arrived == 0 || machine->cluster_arrived < machine->alive) return;
  machine->cluster_arrived = 0;
  const uint32_t threads = machine->launch->threads * (uint32_t)machine->fibers->view.cluster_size;
  for (uint32_t i = 0; i < threads; i++)
    if (machine->fibers[i].state == EMU_AT_CLUSTER) emu_make_ready(&machine->fibers[i]);
}

static void meet_cluster(emu_fiber *self, emu_fiber *lanes) {
  for (uint32_t i = 0; i < EMU_WARP; i++)
    lanes[i].state = EMU_AT_CLUSTER;
  self->block->machine->cluster_arrived += EMU_WARP;
  emu_cluster_check(self->block->machine);
}

// ---- arriving and leaving -----------------------------------------------------------------------

// All lanes are here.
static void act(emu_fiber *self, emu_fiber *lanes) {
  switch (self->operation) {
  case FM_NAMED_BARRIER:
    meet(self, lanes);
    return;
  case FM_CLUSTER_BARRIER:
    meet_cluster(self, lanes);
    return;
  case FM_SHUFFLE:
  case FM_SHUFFLE_XOR:
    shuffle(self, lanes);
    break;
  case FM_BALLOT:
  case FM_ANY:
    ballot(lanes);
    break;
  case FM_MMA_BF16:
  case FM_MMA_F16:
    multiply(lanes, self->operation == FM_MMA_BF16);
    break;
  case FM_WARP_BARRIER:
  case FM_WARP_OPERATIONS:
    break;
  }
  release_warp(lanes);
}

static bool same_call(const emu_fiber *a, const emu_fiber *b) {
  return a->operation == b->operation && a->site.line == b->site.line &&
         (a->site.file == b->site.file || strcmp(a->site.file, b->site.file) == 0);
}

void emu_warp_call(fm_warp_operation operation, void *operand, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  emu_warp *warp = &self->block->warps[warp_of(self)];
  emu_fiber *lanes = self - lane_of(self);
  self->operation = operation;
  self->operand = operand;
  self->site = site;
  self->state = EMU_AT_WARP;
  if (warp->exited) emu_divergence(self);
  if (warp->arrived && !same_call(self, &lanes[__builtin_ctz(warp->arrived)])) emu_divergence(self);
  warp->arrived |= 1u << lane_of(self);
  if (warp->arrived == UINT32_MAX) {
    warp->arrived = 0;
    act(self, lanes);
  }
  emu_wait(self);
}

void emu_warp_exit(emu_fiber *self) {
  emu_warp *warp = &self->block->warps[warp_of(self)];
  warp->exited |= 1u << lane_of(self);
  if (warp->arrived) emu_divergence(self);
}
