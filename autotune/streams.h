// autotune, internal: loops that read and write streams, or multiply and add, as fast as they can,
// and compute nothing of use.
#ifndef FATHOM_AUTOTUNE_STREAMS_H
#define FATHOM_AUTOTUNE_STREAMS_H

#include "autotune/measure.h"

enum { STREAM_LINE = 256 }; // bytes; every row is a multiple, every address is aligned to 64

// `count` rows of every stream. A stream's next row is a step away.
typedef struct stream_rows {
  uint32_t reads, writes;
  const char *read[TUNE_MAX_STREAMS];
  char *write[TUNE_MAX_STREAMS];
  size_t read_step, write_step, row_bytes, count;
} stream_rows;

typedef struct stream_kind {
  bool past_cache; // non-temporal stores
  bool by_row;     // row by row instead of line by line
  bool prefetch;   // by software
} stream_kind;

typedef struct stream_width {
  const char *name;
  bool stores_past_cache;  // knows non-temporal stores
  bool (*available)(void); // on this CPU
  // Returns something that depends on every read.
  uint64_t (*run)(const stream_rows *rows, stream_kind kind);
  // At least `count` multiply-adds of vectors of 32-bit floats; returns something that depends on all.
  uint64_t (*compute)(uint64_t count);
} stream_width;

// Narrowest first; NULL past the end.
const stream_width *stream_width_at(uint32_t index);

#endif
