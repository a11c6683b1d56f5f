// Which features this processor has, asked of the processor itself: cpuinfo knows fewer of them, and
// takes milliseconds to find out about much else.
#include "runtime/host_code.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };

typedef enum leaf {
#define LEAF(name, leaf, subleaf) name,
#include "runtime/cpu_features.def"
#undef LEAF
  LEAVES
} leaf;

static_assert(LEAVES <= sizeof((rt_cpu){0}.leaves) / sizeof *(rt_cpu){0}.leaves, "too many leaves");

typedef struct feature {
  const char *name;
  leaf leaf; // LEAVES: it is inert
  uint32_t reg, bit, state;
} feature;

static const feature features[] = {
#define LEAF(name, leaf, subleaf)
#define FEATURE(name, leaf, reg, bit, state) {(name), (leaf), (reg), (bit), (state)},
#define INERT(text) {.name = (text), .leaf = LEAVES},
#include "runtime/cpu_features.def"
#undef LEAF
#undef FEATURE
#undef INERT
};

static bool has_bit(const rt_cpu *cpu, leaf leaf, uint32_t reg, uint32_t bit) {
  return (cpu->leaves[leaf][reg] >> bit & 1) != 0;
}

rt_cpu rt_cpu_read(void) {
  enum { OSXSAVE = 27 };
  rt_cpu cpu = {.known = true};
  uint32_t unused;
#define LEAF(name, leaf, subleaf)                                                                  \
  __get_cpuid_count(leaf, subleaf, &cpu.leaves[name][EAX], &cpu.leaves[name][EBX],                 \
                    &cpu.leaves[name][ECX], &cpu.leaves[name][EDX]);
#include "runtime/cpu_features.def"
#undef LEAF
  // What the system saves: register XCR0. 0 where it uses no such instruction.
  if (has_bit(&cpu, LEAF_1, ECX, OSXSAVE))
    __asm__ volatile("xgetbv" : "=a"(cpu.saved_state), "=d"(unused) : "c"(0));
  return cpu;
}

rt_cpu_feature rt_cpu_find(const rt_cpu *cpu, base_str name) {
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    const feature *f = &features[i];
    if (!base_str_equal(name, base_str_from(f->name))) continue;
    if (f->leaf == LEAVES) return RT_CPU_INERT;
    return (cpu->saved_state & f->state) == f->state && has_bit(cpu, f->leaf, f->reg, f->bit)
               ? RT_CPU_PRESENT
               : RT_CPU_ABSENT;
  }
  return RT_CPU_UNKNOWN;
}

#else

rt_cpu rt_cpu_read(void) {
  return (rt_cpu){.known = true};
}

rt_cpu_feature rt_cpu_find(const rt_cpu *cpu, base_str name) {
  (void)cpu;
  (void)name;
  return RT_CPU_UNKNOWN;
}

#endif
