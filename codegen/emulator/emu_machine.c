// emu_machine: the memory that launches run on.
//
// Stacks are one mapping, of which only the pages that are touched cost anything. Each has a guard
// page below it, which makes the distance between stacks an odd number of pages; and their tops are
// not at the same place in a page. So the threads of a block do not compete for a few sets of the
// caches.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codegen/emulator/emu.h"

enum { STACK = 256 << 10, GUARD = 4096, COLOURS = 61, COLOUR_BYTES = 64 };

static size_t round_up(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Of one block, with its red zones.
static size_t shared_room(size_t shared_bytes) {
  return round_up(shared_bytes, 128) + 2 * (size_t)EMU_RED_ZONE;
}

bool emu_machine_fits(const emu_machine *machine, uint32_t blocks, uint32_t threads,
                      size_t shared_bytes) {
  return machine->block_capacity >= blocks && machine->fiber_capacity >= blocks * threads &&
         machine->shared_capacity >= blocks * shared_room(shared_bytes);
}

static bool map_stacks(emu_machine *machine) {
  const size_t stride = STACK + GUARD;
  machine->stacks_bytes = stride * machine->fiber_capacity;
  char *stacks = mmap(NULL, machine->stacks_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) return false;
  machine->stacks = stacks;
  for (uint32_t i = 0; i < machine->fiber_capacity; i++) {
    char *guard = stacks + i * stride;
    if (mprotect(guard, GUARD, PROT_NONE) != 0) return false;
    machine->fibers[i].context.stack = guard + GUARD;
    machine->fibers[i].context.stack_bytes = STACK - i % COLOURS * COLOUR_BYTES;
  }
  return true;
}

emu_machine *emu_machine_create(uint32_t blocks, uint32_t threads, size_t shared_bytes) {
  emu_machine *machine = calloc(1, sizeof *machine);
  if (machine == NULL) return NULL;
  machine->block_capacity = blocks;
  machine->fiber_capacity = blocks * threads;
  machine->shared_capacity = blocks * shared_room(shared_bytes);
  machine->fibers = calloc(machine->fiber_capacity, sizeof *machine->fibers);
  machine->blocks = calloc(blocks, sizeof *machine->blocks);
  for (int i = 0; i < 2; i++)
    machine->ready[i] = calloc(machine->fiber_capacity, sizeof(emu_fiber *));
  machine->shared = aligned_alloc(128, machine->shared_capacity);
  if (machine->fibers && machine->blocks && machine->ready[0] && machine->ready[1] &&
      machine->shared && map_stacks(machine))
    return machine;
  emu_machine_destroy(machine);
  return NULL;
}

void emu_machine_destroy(emu_machine *machine) {
  for (uint32_t i = 0; machine->fibers && i < machine->fiber_capacity; i++)
    free(machine->fibers[i].copies.data);
  for (uint32_t i = 0; machine->blocks && i < machine->block_capacity; i++)
    free(machine->blocks[i].bulk.data);
  if (machine->stacks) munmap(machine->stacks, machine->stacks_bytes);
  free(machine->fibers);
  free(machine->blocks);
  free(machine->ready[0]);
  free(machine->ready[1]);
  free(machine->shared);
  free(machine);
}

void emu_machines_destroy(emu_machine *first) {
  while (first) {
    emu_machine *next = first->next_idle;
    emu_machine_destroy(first);
    first = next;
  }
}

void emu_machine_lay_out(emu_machine *machine) {
  const rt_device_launch *launch = machine->launch;
  const uint32_t blocks = launch->cluster ? launch->cluster : 1;
  for (uint32_t i = 0; i < blocks; i++) {
    emu_block *block = &machine->blocks[i];
    block->machine = machine;
    block->rank = i;
    block->fibers = machine->fibers + (size_t)i * launch->threads;
    block->shared = machine->shared + i * shared_room(launch->shared_bytes) + EMU_RED_ZONE;
  }
}
