// emu_copy: cp.async. A copy is done as late as the waits allow: when the thread that issued it
// waits for its group. Until then its destination holds poison, so a missing wait shows, and so
// does a copy into memory that others still read.
#include <stdlib.h>
#include <string.h>

#include "codegen/emulator/emu.h"

void emu_copies_push(emu_fiber *self, emu_copies *copies, emu_copy copy, fm_site site) {
  if (copies->first == copies->end) copies->first = copies->end = 0;
  if (copies->end == copies->capacity) {
    const uint32_t capacity = copies->capacity ? 2 * copies->capacity : 16;
    emu_copy *data = realloc(copies->data, capacity * sizeof *data);
    if (data == NULL) emu_fault(self, site, "cannot go on: the emulator is out of memory");
    copies->data = data;
    copies->capacity = capacity;
  }
  copies->data[copies->end++] = copy;
}

static void need(emu_fiber *self, uint32_t major, const char *what, fm_site site) {
  const rt_device_facts *facts = &self->block->machine->device->base.facts;
  if (facts->major != 0 && facts->major < major)
    emu_fault(self, site, "uses %s, which needs sm_%u0; the emulated GPU is sm_%u%u", what, major,
              facts->major, facts->minor);
}

void emu_copy_async(void *to, const void *from, int bytes, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  need(self, 8, "fm_copy_async", site);
  emu_check_access(self, from, (uint32_t)bytes, false, site);
  emu_shared_offset(self, to, (uint32_t)bytes, (uint32_t)bytes, site);
  emu_poison(to, (size_t)bytes);
  emu_copies_push(self, &self->copies,
                  (emu_copy){.to = to, .from = from, .bytes = (uint32_t)bytes, .tag = self->groups},
                  site);
}

void emu_copy_commit(void) {
  emu_enter(__builtin_return_address(0))->groups++;
}

void emu_copy_wait(int groups, fm_site site) {
  emu_fiber *self = emu_enter(__builtin_return_address(0));
  self->site = site;
  emu_copies *copies = &self->copies;
  while (copies->first < copies->end) {
    const emu_copy *copy = &copies->data[copies->first];
    if (copy->tag + (uint32_t)groups >= self->groups) break;
    memcpy(copy->to, copy->from, copy->bytes);
    copies->first++;
  }
  emu_yield(self);
}

void emu_copy_exit(emu_fiber *self) {
  const emu_copies *copies = &self->copies;
  if (copies->first == copies->end) return;
  emu_fault_hint(self, self->site, "call fm_copy_commit() and fm_copy_wait<0>() before the end",
                 "returns while %u of its fm_copy_async are under way",
                 copies->end - copies->first);
}
