// emu_memory: which memory a kernel may touch, and how much of it it does.
//
// Global memory is the spans of the launch. An access is aligned to its size and lies in one span,
// which is a written one for stores. Bytes are counted as one warp moves them: lanes that read the
// same address at the same place do so once, however the emulator orders them. Shared memory is
// plain memory; it is poisoned before a block starts, and has red zones.
#include <string.h>

#include "codegen/emulator/emu.h"

// As a word, as two bf16 or f16 and as four f8e4m3: NaN, which survives arithmetic and shows in results.
static const uint32_t poison = 0x7fff7fff;
static const unsigned char red = 0xc5;

extern void __asan_poison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));

// ---- counting -----------------------------------------------------------------------------------

// The entry for this read in a set, or the one to give up for it: the oldest of those that only one
// lane has used, since most reads of rows stay such.
static emu_broadcast *choose(emu_broadcast *set, uint64_t address, uint64_t key) {
  emu_broadcast *victim = NULL;
  bool victim_shared = true;
  for (int i = 0; i < EMU_WAYS; i++) {
    emu_broadcast *entry = &set[i];
    if (entry->address == address && entry->key == key) return entry;
    const bool shared = (entry->lanes & (entry->lanes - 1)) != 0;
    if (victim == NULL || shared < victim_shared ||
        (shared == victim_shared && entry->used < victim->used)) {
      victim = entry;
      victim_shared = shared;
    }
  }
  *victim = (emu_broadcast){.address = address, .key = key};
  return victim;
}

// Whether a lane of this warp has already paid for this read: the n-th read of a lane is part of
// the warp's n-th.
static bool shared_by_lanes(emu_fiber *self, uintptr_t address, uint32_t bytes, fm_site site) {
  enum { SETS = EMU_BROADCASTS / EMU_WAYS };
  emu_machine *machine = self->block->machine;
  const uint32_t lane = (uint32_t)self->view.thread % EMU_WARP;
  const uint32_t warp = self->block->rank * (machine->launch->threads / EMU_WARP) +
                        (uint32_t)self->view.thread / EMU_WARP;
  const uint64_t key =
      (uint64_t)self->block->index << 32 ^ (uint64_t)(uint32_t)site.line << 5 ^ bytes;
  const uint64_t set = (address ^ key) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
  emu_broadcast *entry =
      choose(&machine->broadcasts[(warp * SETS + set % SETS) * EMU_WAYS], address, key);
  entry->used = ++machine->broadcast_clock;
  entry->lanes |= 1u << lane;
  if (++entry->lane_seen[lane] <= entry->seen) return true;
  entry->seen = entry->lane_seen[lane];
  return false;
}

// How many of these bytes are marked for the first time.
static uint64_t mark(uint8_t *map, const char *data, uintptr_t address, uint32_t bytes) {
  const uintptr_t first = address - ((uintptr_t)data & ~(uintptr_t)15);
  uint64_t fresh = 0;
  for (uintptr_t i = first; i < first + bytes;) {
    // Up to eight bits of one byte of the map at once.
    const uint32_t shift = i % 8;
    const uintptr_t left = first + bytes - i, count = left < 8 - shift ? left : 8 - shift;
    const uint8_t bits = (uint8_t)(((1u << count) - 1) << shift);
    fresh += (unsigned)__builtin_popcount(bits & ~map[i / 8]);
    map[i / 8] |= bits;
    i += count;
  }
  return fresh;
}

static void count(emu_fiber *self, uint32_t span, uintptr_t address, uint32_t bytes, bool written,
                  fm_site site) {
  emu_machine *machine = self->block->machine;
  rt_traffic *traffic = &machine->traffic[span];
  const char *data = machine->launch->spans[span].data;
  if (written) {
    traffic->written += bytes;
    traffic->written_once += mark(machine->maps[span].written, data, address, bytes);
  } else if (!shared_by_lanes(self, address, bytes, site)) {
    traffic->read += bytes;
    traffic->read_once += mark(machine->maps[span].read, data, address, bytes);
  }
}

// ---- spans --------------------------------------------------------------------------------------

// Explains an access that lies in no span: by the span it begins in, else by the one that ends
// closest before it, else by the one that begins closest behind.
static noreturn void outside(emu_fiber *self, uintptr_t address, uint32_t bytes, bool written,
                             fm_site site) {
  const rt_device_launch *launch = self->block->machine->launch;
  const char *verb = written ? "writes" : "reads";
  const rt_span *before = NULL, *behind = NULL;
  for (uint32_t i = 0; i < launch->span_count; i++) {
    const rt_span *span = &launch->spans[i];
    const uintptr_t begin = (uintptr_t)span->data;
    if (begin > address && (behind == NULL || begin < (uintptr_t)behind->data)) behind = span;
    if (begin > address) continue;
    if (address - begin + bytes <= span->bytes)
      emu_fault(self, site, "writes %u bytes at offset %zu of %%%s, which is only read", bytes,
                (size_t)(address - begin), span->name);
    if (before == NULL ||
        (uintptr_t)before->data + before->bytes < (uintptr_t)span->data + span->bytes)
      before = span;
  }
  const emu_block *block = self->block;
  const uintptr_t shared = (uintptr_t)block->shared;
  if (address - shared < launch->shared_bytes)
    emu_fault(self, site, "%s byte %zu of shared memory through a helper for global memory", verb,
              (size_t)(address - shared));
  if (before)
    emu_fault(self, site, "%s %u bytes at offset %zu of %%%s, which ends at %zu", verb, bytes,
              (size_t)(address - (uintptr_t)before->data), before->name, before->bytes);
  if (behind)
    emu_fault(self, site, "%s %u bytes at offset -%zu of %%%s", verb, bytes,
              (size_t)((uintptr_t)behind->data - address), behind->name);
  emu_fault(self, site, "%s %u bytes at %p, but the launch names no memory", verb, bytes,
            (void *)address);
}

void emu_check_global(emu_fiber *self, const void *at, uint32_t bytes, bool written, fm_site site) {
  emu_machine *machine = self->block->machine;
  const rt_device_launch *launch = machine->launch;
  if (launch->spans == NULL) return;
  const uintptr_t address = (uintptr_t)at;
  for (uint32_t i = 0; i < launch->span_count; i++) {
    const rt_span *span = &launch->spans[i];
    const uintptr_t offset = address - (uintptr_t)span->data;
    if (offset >= span->bytes || bytes > span->bytes - offset) continue;
    if (written && !span->written) continue;
    if (machine->maps) count(self, i, address, bytes, written, site);
    return;
  }
  outside(self, address, bytes, written, site);
}

static void check_alignment(emu_fiber *self, const void *at, uint32_t bytes, uint32_t alignment,
                            const char *verb, fm_site site) {
  if ((uintptr_t)at & (alignment - 1))
    emu_fault_hint(self, site,
                   "an access must be aligned to its size: check strides, and the first address of "
                   "the tensor",
                   "%s %u bytes at address %p, which is not a multiple of %u", verb, bytes,
                   (void *)(uintptr_t)at, alignment);
}

// Another thread gets a turn in the midst of things, in some runs often, in others seldom.
static void lose_patience(emu_fiber *self) {
  if (--self->patience > 0) return;
  emu_machine *machine = self->block->machine;
  self->patience = 1 + emu_random(machine, 2 * machine->patience);
  emu_yield(self);
}

void emu_check_access(emu_fiber *self, const void *at, uint32_t bytes, bool written, fm_site site) {
  lose_patience(self);
  check_alignment(self, at, bytes, bytes, written ? "writes" : "reads", site);
  emu_check_global(self, at, bytes, written, site);
}

void emu_access(const void *at, int bytes, int written, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  emu_check_access(self, at, (uint32_t)bytes, written, site);
}

// ---- shared memory ------------------------------------------------------------------------------

size_t emu_shared_offset(emu_fiber *self, const void *at, uint32_t bytes, uint32_t alignment,
                         fm_site site) {
  const size_t size = self->block->machine->launch->shared_bytes;
  const uintptr_t offset = (uintptr_t)at - (uintptr_t)self->block->shared;
  if (offset >= size || bytes > size - offset)
    emu_fault(self, site,
              "accesses %u bytes at byte %lld of its block's %zu bytes of shared memory", bytes,
              (long long)offset, size);
  check_alignment(self, at, bytes, alignment, "accesses", site);
  return offset;
}

void emu_shared_access(const void *at, int bytes, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  lose_patience(self);
  emu_shared_offset(self, at, (uint32_t)bytes, (uint32_t)bytes, site);
}

void *emu_cluster_address(const void *shared, int rank, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  lose_patience(self);
  const size_t offset = emu_shared_offset(self, shared, 4, 4, site);
  if (rank < 0 || rank >= self->view.cluster_size)
    emu_fault(self, site, "names block %d of its cluster, which has %d", rank,
              self->view.cluster_size);
  const emu_block *block = &self->block->machine->blocks[rank];
  if (block->alive == 0)
    emu_fault_hint(self, site,
                   "a block's shared memory is gone when it returns: meet at fm_cluster_barrier() "
                   "after the last access",
                   "accesses shared memory of block %d of its cluster, which has returned", rank);
  return block->shared + offset;
}

void emu_poison(void *memory, size_t bytes) {
  unsigned char *to = memory;
  while (bytes > 0) {
    const size_t step = bytes < sizeof poison ? bytes : sizeof poison;
    memcpy(to, &poison, step);
    to += step;
    bytes -= step;
  }
}

// The red zone behind begins at the first byte that does not belong to the block.
static void zones(const emu_block *block, char *zone[2]) {
  zone[0] = block->shared - EMU_RED_ZONE;
  zone[1] = block->shared + block->machine->launch->shared_bytes;
}

static bool sanitized(const emu_block *block) {
  return block->machine->device->sanitize && __asan_poison_memory_region;
}

void emu_shared_begin(emu_block *block) {
  char *zone[2];
  zones(block, zone);
  const bool sanitize = sanitized(block);
  if (sanitize)
    __asan_unpoison_memory_region(zone[0], block->machine->launch->shared_bytes + 2 * EMU_RED_ZONE);
  emu_poison(block->shared, block->machine->launch->shared_bytes);
  for (int i = 0; i < 2; i++) {
    memset(zone[i], red, EMU_RED_ZONE);
    if (sanitize) __asan_poison_memory_region(zone[i], EMU_RED_ZONE);
  }
}

void emu_shared_end(emu_fiber *self, fm_site site) {
  if (sanitized(self->block)) return; // it watches every access
  const size_t size = self->block->machine->launch->shared_bytes;
  char *zone[2];
  zones(self->block, zone);
  for (int i = 0; i < 2; i++) {
    for (int k = 0; k < EMU_RED_ZONE; k++) {
      if ((unsigned char)zone[i][k] == red) continue;
      const long long offset = (long long)(zone[i] + k - self->block->shared);
      emu_fault_hint(self, site, "compile with AddressSanitizer (--sanitize) to see where",
                     "finds that some thread of its block wrote to byte %lld of its %zu bytes of "
                     "shared memory, after the last barrier",
                     offset, size);
    }
  }
}
