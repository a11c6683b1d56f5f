// autotune, internal: the stream loops, and one of arithmetic, for one vector width. streams.c includes this once for each
// width, with
//   VECTOR_BYTES             the width; a line of 256 bytes is a multiple of it
//   WIDTH(name)              `name` with the width's suffix
//   TARGET                   attributes that let the compiler use it
//   STORE_PAST_CACHE(p, v)   a non-temporal store
//   MULTIPLY_ADD(a, b, c)    a * b + c of vectors of floats
// No include guard: that is the point.

typedef uint64_t WIDTH(vector) __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef float WIDTH(floats) __attribute__((vector_size(VECTOR_BYTES)));
enum { WIDTH(per_line) = STREAM_LINE / VECTOR_BYTES };

typedef struct WIDTH(line) {
  WIDTH(vector) v[WIDTH(per_line)];
} WIDTH(line);

#define INLINE static inline __attribute__((always_inline)) TARGET

INLINE void WIDTH(add)(WIDTH(line) * sum, const char *from, bool prefetch) {
  for (int i = 0; prefetch && i < STREAM_LINE; i += 64) {
    __builtin_prefetch(from + i + STREAM_AHEAD);
  }
  for (int i = 0; i < WIDTH(per_line); i++) {
    sum->v[i] ^= ((const WIDTH(vector) *)from)[i];
  }
}

INLINE void WIDTH(put)(char *to, const WIDTH(line) * line, bool past_cache) {
  for (int i = 0; i < WIDTH(per_line); i++) {
    if (past_cache) {
      STORE_PAST_CACHE((WIDTH(vector) *)to + i, line->v[i]);
    } else {
      ((WIDTH(vector) *)to)[i] = line->v[i];
    }
  }
}

// All streams side by side: a line of every read, then that line of every write.
INLINE uint64_t WIDTH(by_line)(const stream_rows *rows, bool past_cache, bool prefetch) {
  WIDTH(line) sum = {0};
  for (size_t row = 0; row < rows->count; row++) {
    for (size_t i = 0; i < rows->row_bytes; i += STREAM_LINE) {
      for (uint32_t r = 0; r < rows->reads; r++) {
        WIDTH(add)(&sum, rows->read[r] + row * rows->read_step + i, prefetch);
      }
      for (uint32_t w = 0; w < rows->writes; w++) {
        WIDTH(put)(rows->write[w] + row * rows->write_step + i, &sum, past_cache);
      }
    }
  }
  return sum.v[0][0];
}

// A whole row of every read, one after the other, then a row of every write: the order of a loop
// over tokens.
INLINE uint64_t WIDTH(by_row)(const stream_rows *rows, bool past_cache, bool prefetch) {
  WIDTH(line) sum = {0};
  for (size_t row = 0; row < rows->count; row++) {
    for (uint32_t r = 0; r < rows->reads; r++) {
      for (size_t i = 0; i < rows->row_bytes; i += STREAM_LINE) {
        WIDTH(add)(&sum, rows->read[r] + row * rows->read_step + i, prefetch);
      }
    }
    for (uint32_t w = 0; w < rows->writes; w++) {
      for (size_t i = 0; i < rows->row_bytes; i += STREAM_LINE) {
        WIDTH(put)(rows->write[w] + row * rows->write_step + i, &sum, past_cache);
      }
    }
  }
  return sum.v[0][0];
}

// One copy of the loops for each kind, so that no choice is left inside them.
TARGET static uint64_t WIDTH(run)(const stream_rows *rows, stream_kind kind) {
  bool prefetch = kind.prefetch;
  if (kind.by_row && kind.past_cache) {
    return prefetch ? WIDTH(by_row)(rows, true, true) : WIDTH(by_row)(rows, true, false);
  }
  if (kind.by_row) {
    return prefetch ? WIDTH(by_row)(rows, false, true) : WIDTH(by_row)(rows, false, false);
  }
  if (kind.past_cache) {
    return prefetch ? WIDTH(by_line)(rows, true, true) : WIDTH(by_line)(rows, true, false);
  }
  return prefetch ? WIDTH(by_line)(rows, false, true) : WIDTH(by_line)(rows, false, false);
}

// In chains enough that no multiply-add has to wait for the one before, each in a register of its own.
TARGET static uint64_t WIDTH(compute)(uint64_t count) {
  enum { CHAINS = 12 };
  const WIDTH(floats) factor = (WIDTH(floats)){0} + 0.5f, term = (WIDTH(floats)){0} + 1.0f;
  // Each begins with another number, or the compiler would see that they are all the same.
  WIDTH(floats)
  a = term, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7, i = a + 8,
  j = a + 9, k = a + 10, l = a + 11;
  for (uint64_t done = 0; done < count; done += CHAINS) {
    a = MULTIPLY_ADD(a, factor, term);
    b = MULTIPLY_ADD(b, factor, term);
    c = MULTIPLY_ADD(c, factor, term);
    d = MULTIPLY_ADD(d, factor, term);
    e = MULTIPLY_ADD(e, factor, term);
    f = MULTIPLY_ADD(f, factor, term);
    g = MULTIPLY_ADD(g, factor, term);
    h = MULTIPLY_ADD(h, factor, term);
    i = MULTIPLY_ADD(i, factor, term);
    j = MULTIPLY_ADD(j, factor, term);
    k = MULTIPLY_ADD(k, factor, term);
    l = MULTIPLY_ADD(l, factor, term);
  }
  a += b + c + d + e + f + g + h + i + j + k + l;
  return (uint64_t)a[0];
}

#undef INLINE
#undef VECTOR_BYTES
#undef WIDTH
#undef TARGET
#undef STORE_PAST_CACHE
#undef MULTIPLY_ADD
