// emu_ring: mbarriers and the bulk copies that report to them.
//
// A phase of an mbarrier ends when its arrivals and the bytes that they announced have come. Bulk
// copies are done as late as that allows: not before a thread waits for the phase and only the
// bytes are missing. Until then their destination holds poison.
//
// On a GPU the state is in the 64-bit word in shared memory. Here it is in a table, and the word
// names the entry, so that a word that was overwritten or never initialised is told from a good
// one.
#include <string.h>

#include "codegen/emulator/emu.h"

static const unsigned long long word_mark = 0x7fff6d6261720000; // "mbar", and NaN for who reads it

static emu_ring *find(emu_fiber *self, unsigned long long *word, fm_site site) {
  const size_t offset = emu_shared_offset(self, word, 8, 8, site);
  emu_block *block = self->block;
  const unsigned long long index = *word - word_mark;
  if (index >= block->ring_count || block->rings[index].word != word)
    emu_fault_hint(
        self, site, "call fm_ring_init() first, and meet at a barrier before other threads use it",
        "uses an mbarrier at byte %zu of shared memory, which is not initialised, or was "
        "overwritten",
        offset);
  return &block->rings[index];
}

static uint32_t index_of(const emu_block *block, const emu_ring *ring) {
  return (uint32_t)(ring - block->rings);
}

static size_t byte_of(const emu_block *block, const emu_ring *ring) {
  return (size_t)((const char *)ring->word - block->shared);
}

static void need_fence(emu_fiber *self, const emu_ring *ring, fm_site site) {
  if (ring->fenced) return;
  emu_fault_hint(self, site, "call fm_ring_fence() after fm_ring_init(), then meet at a barrier",
                 "uses the mbarrier at byte %zu of shared memory before the fence",
                 byte_of(self->block, ring));
}

// ---- phases -------------------------------------------------------------------------------------

// All copies of the phase that runs.
static void land(emu_block *block, const emu_ring *ring) {
  emu_copies *copies = &block->bulk;
  uint32_t kept = copies->first;
  for (uint32_t i = copies->first; i < copies->end; i++) {
    const emu_copy *copy = &copies->data[i];
    if (copy->tag == index_of(block, ring))
      memcpy(copy->to, copy->from, copy->bytes);
    else
      copies->data[kept++] = *copy;
  }
  copies->end = kept;
}

// Ends the phase if it can end and either somebody waits for that or there is nothing to delay.
static void advance(emu_fiber *self, emu_ring *ring, bool waited_for, fm_site site) {
  emu_block *block = self->block;
  if (ring->missing > 0) return;
  if (ring->on_way > ring->expected_bytes)
    emu_fault(self, site,
              "ends a phase of the mbarrier at byte %zu of shared memory that expects %llu bytes, "
              "but copies bring %llu",
              byte_of(block, ring), (unsigned long long)ring->expected_bytes,
              (unsigned long long)ring->on_way);
  if (ring->on_way < ring->expected_bytes) return; // more copies will come, or a deadlock
  if (ring->on_way > 0 && !waited_for && ring->waiters == NULL) return;
  land(block, ring);
  ring->missing = ring->arrivals;
  ring->expected_bytes = ring->on_way = 0;
  ring->phase++;
  emu_fiber *waiter = ring->waiters;
  ring->waiters = NULL;
  while (waiter) {
    emu_fiber *next = waiter->next;
    emu_make_ready(waiter);
    waiter = next;
  }
}

void emu_ring_init(unsigned long long *word, int arrivals, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  emu_block *block = self->block;
  const size_t offset = emu_shared_offset(self, word, 8, 8, site);
  if (arrivals <= 0 || arrivals >= 1 << 20)
    emu_fault(self, site, "initialises an mbarrier for %d arrivals, expected 1 to 1048575",
              arrivals);
  uint32_t i = 0;
  while (i < block->ring_count && block->rings[i].word != word)
    i++;
  if (i == EMU_RINGS_MOST)
    emu_fault(self, site, "initialises an mbarrier beside %d others; the emulator has no more",
              EMU_RINGS_MOST);
  if (i == block->ring_count) {
    block->ring_count++;
  } else if (block->rings[i].waiters || block->rings[i].on_way) {
    emu_fault(self, site,
              "initialises the mbarrier at byte %zu of shared memory again while it is in use",
              offset);
  }
  block->rings[i] =
      (emu_ring){.word = word, .arrivals = (uint32_t)arrivals, .missing = (uint32_t)arrivals};
  *word = word_mark + i;
}

void emu_ring_fence(void) {
  emu_block *block = emu_enter(__builtin_return_address(0))->block;
  for (uint32_t i = 0; i < block->ring_count; i++)
    block->rings[i].fenced = true;
}

void emu_ring_arrive(unsigned long long *word, int bytes, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  emu_ring *ring = find(self, word, site);
  need_fence(self, ring, site);
  if (ring->missing == 0)
    emu_fault_hint(self, site, "wait for the phase before the first arrival at the next one",
                   "arrives at the mbarrier at byte %zu of shared memory, whose phase has all of "
                   "its %u arrivals but not yet all bytes",
                   byte_of(self->block, ring), ring->arrivals);
  if (bytes < 0) emu_fault(self, site, "expects %d bytes at an mbarrier", bytes);
  ring->missing--;
  ring->expected_bytes += (uint32_t)bytes;
  advance(self, ring, false, site);
  self->site = site;
  emu_yield(self);
}

void emu_ring_wait(unsigned long long *word, int parity, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  emu_ring *ring = find(self, word, site);
  need_fence(self, ring, site);
  if (parity != 0 && parity != 1)
    emu_fault(self, site, "waits for parity %d of an mbarrier, expected 0 or 1", parity);
  self->site = site;
  if (ring->phase % 2 == (uint32_t)parity) advance(self, ring, true, site);
  if (ring->phase % 2 != (uint32_t)parity) {
    emu_yield(self);
    return;
  }
  self->detail = index_of(self->block, ring);
  self->next = ring->waiters;
  ring->waiters = self;
  self->state = EMU_AT_RING;
  emu_wait(self);
}

// ---- bulk copies --------------------------------------------------------------------------------

void emu_bulk_copy(void *to, const void *from, int bytes, unsigned long long *word, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  const rt_device_facts *facts = &self->block->machine->device->base.facts;
  if (facts->major != 0 && facts->major < 9)
    emu_fault(self, site, "uses fm_bulk_copy, which needs sm_90; the emulated GPU is sm_%u%u",
              facts->major, facts->minor);
  emu_ring *ring = find(self, word, site);
  need_fence(self, ring, site);
  if (bytes <= 0 || bytes % 16 != 0 || (uintptr_t)from % 16 != 0)
    emu_fault(self, site,
              "copies %d bytes from %p: a bulk copy needs a multiple of 16, and not 0, from a "
              "multiple of 16",
              bytes, (void *)(uintptr_t)from);
  emu_check_global(self, from, (uint32_t)bytes, false, site);
  emu_shared_offset(self, to, (uint32_t)bytes, 16, site);
  emu_poison(to, (size_t)bytes);
  emu_copies_push(
      self, &self->block->bulk,
      (emu_copy){
          .to = to, .from = from, .bytes = (uint32_t)bytes, .tag = index_of(self->block, ring)},
      site);
  ring->on_way += (uint32_t)bytes;
  advance(self, ring, false, site);
  self->site = site;
  emu_yield(self);
}

void emu_ring_exit(emu_fiber *self) {
  const emu_block *block = self->block;
  if (block->bulk.first == block->bulk.end) return;
  const emu_ring *ring = &block->rings[block->bulk.data[block->bulk.first].tag];
  emu_fault_hint(self, self->site, "wait for the phase before the block returns",
                 "returns as the last of its block, but nobody waited for %llu bytes on their way "
                 "to the mbarrier at byte %zu of shared memory",
                 (unsigned long long)ring->on_way, byte_of(block, ring));
}
