// emu_fault: what went wrong, in words, and the way out.
//
// Messages are put together on the stack of the thread that fails, in the machine's buffer: no
// arena, because nothing may jump off a fiber. Then the host goes on, and the fibers' stacks are
// dropped as they are.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codegen/emulator/emu.h"

// Of threads in a report: kinds, and of each kind neighbours.
enum { GROUPS_MOST = 8, RANGES_MOST = 8 };

static void __attribute__((format(printf, 2, 0))) vsay(emu_machine *machine, const char *format,
                                                       va_list arguments) {
  const size_t length = strlen(machine->fault);
  vsnprintf(machine->fault + length, sizeof machine->fault - length, format, arguments);
}

static void __attribute__((format(printf, 2, 3))) say(emu_machine *machine, const char *format,
                                                      ...) {
  va_list arguments;
  va_start(arguments, format);
  vsay(machine, format, arguments);
  va_end(arguments);
}

static void say_site(const emu_fiber *fiber, fm_site site) {
  emu_machine *machine = fiber->block->machine;
  char place[EMU_PATH + 64];
  if (site.line == 0) return;
  emu_place_print(place, sizeof place, machine->launch->function->code, site, fiber->caller);
  say(machine, " (%s)", place);
}

// The place where a debugger can stop to look at the thread that failed.
noreturn void emu_stop(emu_fiber *self) __attribute__((noinline));
noreturn void emu_stop(emu_fiber *self) {
  emu_machine *machine = self->block->machine;
  machine->faulty = true;
  emu_context_switch(&self->context, &machine->host, true);
  __builtin_unreachable();
}

static void __attribute__((format(printf, 3, 0))) accuse(emu_fiber *self, fm_site site,
                                                         const char *format, va_list arguments) {
  emu_machine *machine = self->block->machine;
  say(machine, "kernel '%s': thread %d of block %lld ", machine->launch->function->name,
      self->view.thread, self->view.block);
  vsay(machine, format, arguments);
  say_site(self, site);
}

noreturn void emu_fault(emu_fiber *self, fm_site site, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  accuse(self, site, format, arguments);
  va_end(arguments);
  emu_stop(self);
}

noreturn void emu_fault_hint(emu_fiber *self, fm_site site, const char *hint, const char *format,
                             ...) {
  va_list arguments;
  va_start(arguments, format);
  accuse(self, site, format, arguments);
  va_end(arguments);
  self->block->machine->hint = hint;
  emu_stop(self);
}

// ---- many threads -------------------------------------------------------------------------------

// Of a warp operation the line is enough: compilers make copies of a call.
static bool alike(const emu_fiber *a, const emu_fiber *b) {
  if (a->state != b->state) return false;
  if (a->state == EMU_DONE || a->state == EMU_READY) return true;
  if (a->site.line != b->site.line) return false;
  if (a->state == EMU_AT_WARP) return a->operation == b->operation;
  return a->detail == b->detail && a->caller == b->caller;
}

static void say_ring(emu_machine *machine, const emu_block *block, const emu_ring *ring) {
  say(machine, "the mbarrier at byte %zu of shared memory, whose phase %u ",
      (size_t)((const char *)ring->word - block->shared), ring->phase);
  if (ring->missing)
    say(machine, "lacks %u of %u arrivals", ring->missing, ring->arrivals);
  else
    say(machine, "has %llu of %llu expected bytes", (unsigned long long)ring->on_way,
        (unsigned long long)ring->expected_bytes);
}

// "threads 0..31, 40, 42..43 "; all that are like the one at `first`, of `count` from there on.
static bool say_alike(emu_machine *machine, const emu_fiber *first, uint32_t count) {
  uint32_t total = 0, ranges = 0;
  for (uint32_t i = 0; i < count; i++)
    total += alike(first, &first[i]);
  say(machine, total > 1 ? "threads " : "thread ");
  for (uint32_t begin = 0, end; begin < count; begin = end) {
    for (end = begin; end < count && alike(first, &first[end]);)
      end++;
    if (end == begin) {
      end++;
      continue;
    }
    if (ranges++ == RANGES_MOST) {
      say(machine, " and others");
      break;
    }
    say(machine, "%s%d", ranges > 1 ? ", " : "", first[begin].view.thread);
    if (end - begin > 1) say(machine, "..%d", first[end - 1].view.thread);
  }
  say(machine, " ");
  return total > 1;
}

// What the one at `first`, and those like it, do.
static void say_group(emu_machine *machine, const emu_fiber *first, uint32_t count) {
  const bool many = say_alike(machine, first, count);
  const char *wait = many ? "wait" : "waits";
  switch (first->state) {
  case EMU_READY:
    say(machine, "%s not come yet", many ? "have" : "has");
    return;
  case EMU_DONE:
    say(machine, "%s returned", many ? "have" : "has");
    return;
  case EMU_AT_WARP:
    say(machine, "%s at %s", wait, emu_operation_name(first->operation));
    break;
  case EMU_AT_BARRIER:
    say(machine, "%s at barrier %u", wait, first->detail);
    break;
  case EMU_AT_CLUSTER:
    say(machine, "%s at the cluster barrier", wait);
    break;
  case EMU_AT_RING:
    say(machine, "%s for ", wait);
    say_ring(machine, first->block, &first->block->rings[first->detail]);
    break;
  }
  say_site(first, first->site);
}

static bool is_like_one_before(const emu_fiber *fibers, uint32_t i) {
  for (uint32_t k = 0; k < i; k++)
    if (alike(&fibers[k], &fibers[i])) return true;
  return false;
}

static void say_threads(emu_machine *machine, const emu_fiber *fibers, uint32_t count) {
  uint32_t groups = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (is_like_one_before(fibers, i)) continue;
    if (groups++ == GROUPS_MOST) {
      say(machine, "; and others");
      return;
    }
    if (groups > 1) say(machine, "; ");
    say_group(machine, &fibers[i], count - i);
  }
}

noreturn void emu_deadlock(emu_fiber *self) {
  emu_machine *machine = self->block->machine;
  const uint32_t threads = machine->launch->threads;
  say(machine, "kernel '%s': deadlock: ", machine->launch->function->name);
  for (int rank = 0; rank < self->view.cluster_size; rank++) {
    const emu_block *block = &machine->blocks[rank];
    say(machine, "%sin block %lld ", rank ? "; " : "", (long long)block->index);
    say_threads(machine, block->fibers, threads);
  }
  emu_stop(self);
}

noreturn void emu_divergence(emu_fiber *self) {
  emu_machine *machine = self->block->machine;
  const uint32_t warp = (uint32_t)self->view.thread / EMU_WARP;
  say(machine, "kernel '%s': warp divergence: in warp %u of block %lld ",
      machine->launch->function->name, warp, self->view.block);
  say_threads(machine, self->block->fibers + (size_t)warp * EMU_WARP, EMU_WARP);
  machine->hint = "all 32 lanes of a warp must come to the same call; a warp that has returned in "
                  "part cannot";
  emu_stop(self);
}
