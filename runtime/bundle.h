// bundle: the container of what was compiled, one file (docs/bundles.md). Base only.
//
//   8 bytes  magic        it is a bundle
//   u32      version      of the format; a newer one is refused
//   u32      0
//   u64      length       of all of it
//   2 x u64  digest       XXH3-128 of all that follows
//   sections              each u32 kind, u32 length of its name, u64 length of its contents, the two,
//                         and zeros up to a multiple of 8. The first one says what made the bundle
//
// The digest tells damage, not malice: a bundle holds machine code, so load those only that you would
// run as a program. Still, reading survives any bytes.
//
// The version covers everything inside: raise it whenever the layout of a section changes
// (runtime/archive_program.c), or what code expects of its launcher (rt_body, and the parameters of
// runtime/device_program.h).
#ifndef FATHOM_RUNTIME_BUNDLE_H
#define FATHOM_RUNTIME_BUNDLE_H

#include "base/base.h"

enum { RT_BUNDLE_VERSION = 1 };

// Four letters, as they lie in the file.
#define RT_SECTION(a, b, c, d)                                                                     \
  ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define RT_SECTION_MADE RT_SECTION('m', 'a', 'd', 'e') // the name says by what

typedef struct rt_section {
  uint32_t kind;
  base_str name, contents;
} rt_section;

typedef struct rt_bundle {
  uint32_t section_count;
  const rt_section *sections; // views of the bundle's bytes
} rt_bundle;

// Writing: begin, add sections, end, all to the same text. `made_by`: "Fathom 0.1.0 (generator ...)".
void rt_bundle_begin(base_text *out, const char *made_by);
void rt_bundle_add(base_text *out, uint32_t kind, base_str name, base_str contents);
void rt_bundle_end(base_text *out);

// Do the bytes begin like a bundle?
bool rt_bundle_is(base_str bytes);
// Checks all but the contents of sections. `bytes` must outlive what is read from it. False: see diag.
bool rt_bundle_open(base_arena *arena, base_str bytes, rt_bundle *out, base_diag *diag);
// Who made it.
base_str rt_bundle_maker(const rt_bundle *bundle);
// Says that a section is not what it should be, where its bytes are as they were written.
void rt_bundle_refuse(const rt_bundle *bundle, const char *fault, base_diag *diag);

#endif
