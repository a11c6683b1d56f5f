// Which features this processor has, asked of the processor itself: cpuinfo knows fewer of them, and
// takes milliseconds to find out about much else.
#include "runtime/host_code.h"

#include <string.h>

#if defined(__x86_64__)

#include <cpuid.h>

enum { EAX, EBX, ECX, EDX, REGISTERS };

typedef struct feature {
  const char *name;
  uint32_t leaf, subleaf, reg, bit, state;
} feature;

// clang-format off
static const feature features[] = {
#define FEATURE(name, leaf, subleaf, reg, bit, state) {(name), (leaf), (subleaf), (reg), (bit), (state)},
#define INERT(text) {.name = (text), .reg = REGISTERS},
#include "runtime/cpu_features.def"
#undef FEATURE
#undef INERT
};
// clang-format on

static bool has_bit(const feature *f) {
  uint32_t regs[REGISTERS];
  return __get_cpuid_count(f->leaf, f->subleaf, &regs[EAX], &regs[EBX], &regs[ECX], &regs[EDX]) &&
         (regs[f->reg] >> f->bit & 1) != 0;
}

// XCR0: what the system saves. 0 where it uses no such instruction.
static uint32_t saved_state(void) {
  static const feature osxsave = {.leaf = 1, .reg = ECX, .bit = 27};
  uint32_t low, high;
  if (!has_bit(&osxsave)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

rt_cpu_feature rt_cpu_feature_find(base_str name) {
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    const feature *f = &features[i];
    if (!base_str_equal(name, base_str_from(f->name))) continue;
    if (f->reg == REGISTERS) return RT_CPU_INERT;
    if (f->state != 0 && (saved_state() & f->state) != f->state) return RT_CPU_ABSENT;
    return has_bit(f) ? RT_CPU_PRESENT : RT_CPU_ABSENT;
  }
  return RT_CPU_UNKNOWN;
}

#else

rt_cpu_feature rt_cpu_feature_find(base_str name) {
  (void)name;
  return RT_CPU_UNKNOWN;
}

#endif
