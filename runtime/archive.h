// archive: values to bytes and back, for bundles (runtime/bundle.h).
//
// One function describes a struct for both directions, so that writer and reader cannot disagree. A
// reader survives any bytes: what is beyond the end, or cannot be, is remembered as a fault, and from
// then on every number is 0 and every text empty. Integers are little-endian.
#ifndef FATHOM_RUNTIME_ARCHIVE_H
#define FATHOM_RUNTIME_ARCHIVE_H

#include "base/base.h"
#include "runtime/device_program.h"
#include "runtime/host_code.h"

typedef struct rt_archive {
  base_text *out;    // written to; NULL: this one reads
  base_arena *arena; // reading: where what is read lives
  base_str in;       // reading
  size_t at;         // reading
  const char *fault; // the first one: "it ends too early"; NULL: none
} rt_archive;

void rt_archive_u32(rt_archive *a, uint32_t *value);
void rt_archive_u64(rt_archive *a, uint64_t *value);
void rt_archive_i64(rt_archive *a, int64_t *value);
void rt_archive_size(rt_archive *a, size_t *value);
void rt_archive_bool(rt_archive *a, bool *value);
void rt_archive_text(rt_archive *a,
                     const char **text); // terminated, without zeros inside; may be NULL
void rt_archive_bytes(rt_archive *a, base_str *bytes);
// The number of items, and room for them when reading. Items are for the caller to archive, each of
// them in at least four bytes.
void *rt_archive_array(rt_archive *a, const void *items, uint32_t *count, size_t size);
// A value that is below a limit, such as an index; 0 after a fault.
void rt_archive_below(rt_archive *a, uint32_t *value, uint32_t limit, const char *fault);
// Notes a fault unless this holds.
void rt_archive_require(rt_archive *a, bool holds, const char *fault);

// A program but for its code; what refers to something is checked to be within it (archive_program.c).
void rt_archive_program(rt_archive *a, rt_program *program);
// Code and entries only: what it is for goes before it.
void rt_archive_host_image(rt_archive *a, rt_host_image *image, const rt_program *program);
// With its program.
void rt_archive_device_program(rt_archive *a, rt_device_program *device);

#endif
