// The table of architectures, and how a name finds its row.
#include "codegen/cuda/arch.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB(count) ((size_t)(count) << 10)

static const cuda_arch rows[] = {
#define ARCH(number, suffixes_, generation_, threads_, blocks_, barriers_, shared, of_block)       \
  {.capability = (number),                                                                         \
   .suffixes = (suffixes_),                                                                        \
   .generation = (generation_),                                                                    \
   .threads_per_block = 1024,                                                                      \
   .threads = (threads_),                                                                          \
   .blocks = (blocks_),                                                                            \
   .registers = 65536,                                                                             \
   .barriers = (barriers_),                                                                        \
   .shared_bytes = KIB(shared),                                                                    \
   .shared_per_block = KIB(of_block),                                                              \
   .shared_reserved = KIB((shared) - (of_block))},
#include "codegen/cuda/arch.def"
#undef ARCH
};

enum { ROWS = sizeof rows / sizeof *rows };

// A capability ("90" or "9.0") and what follows it; 0 when there is none.
static uint32_t read_capability(const char *text, const char **rest) {
  uint32_t number = 0;
  for (; isdigit((unsigned char)*text); text++) {
    if (number > 999) return 0;
    number = 10 * number + (uint32_t)(*text - '0');
  }
  if (text[0] == '.' && isdigit((unsigned char)text[1])) {
    number = 10 * number + (uint32_t)(text[1] - '0');
    text += 2;
  }
  *rest = text;
  return number;
}

static void set_features(cuda_arch *arch) {
#define ARCH(...)
#define FEATURE(name, since, text) arch->name = arch->capability >= (since);
#include "codegen/cuda/arch.def"
#undef FEATURE
#undef ARCH
}

bool cuda_arch_find(const char *text, cuda_arch *out) {
  static const char prefix[] = "sm_";
  const char *suffix = "";
  if (strncmp(text, prefix, sizeof prefix - 1) == 0) text += sizeof prefix - 1;
  const uint32_t capability = read_capability(text, &suffix);
  for (size_t i = 0; i < ROWS; i++) {
    if (rows[i].capability != capability || capability == 0) continue;
    if (suffix[0] && (suffix[1] || !strchr(rows[i].suffixes, suffix[0]))) return false;
    *out = rows[i];
    set_features(out);
    snprintf(out->name, sizeof out->name, "sm_%u%.1s", capability, suffix);
    return true;
  }
  return false;
}

base_str cuda_arch_list(base_arena *arena) {
  base_text text = {.arena = arena};
  for (size_t i = 0; i < ROWS; i++) {
    base_text_printf(&text, "%ssm_%u", i ? ", " : "", rows[i].capability);
    for (const char *suffix = rows[i].suffixes; *suffix; suffix++)
      base_text_printf(&text, ", sm_%u%c", rows[i].capability, *suffix);
  }
  return base_text_str(&text);
}
