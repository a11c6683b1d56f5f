// Packing: strided memory to a dense tile and back.
//
// Generated code steps through one axis of an argument in vectors, so that axis must be contiguous.
// Where the host's tensor is not (a transposed view, every second channel), the rows of a task are
// copied to a tile in the worker's workspace; results are copied back. Bytes move, nothing is
// computed, so a packed run gives the same bits as one that needed no packing.
#include "runtime/plan.h"

#include <stdlib.h>
#include <string.h>

typedef struct copy_loop {
  int64_t count, to, from; // strides in bytes
} copy_loop;

typedef struct copy_nest {
  size_t element;
  uint32_t depth;
  copy_loop loops[RT_MAX_RANK]; // outermost first
} copy_nest;

// Copies of a size that is known to the compiler take no call.
static inline void copy_elements(const copy_loop *line, size_t element, char *to,
                                 const char *from) {
  for (int64_t i = 0; i < line->count; i++) {
    memcpy(rt_shift(to, i * line->to), rt_shift(from, i * line->from), element);
  }
}

static void copy_line(const copy_loop *line, size_t element, char *to, const char *from) {
  if (line->to == (int64_t)element && line->from == (int64_t)element) {
    memcpy(to, from, (size_t)line->count * element);
  } else if (element == 4) {
    copy_elements(line, 4, to, from);
  } else if (element == 2) {
    copy_elements(line, 2, to, from);
  } else {
    copy_elements(line, 1, to, from);
  }
}

static void copy_all(const copy_nest *nest, uint32_t level, char *to, const char *from) {
  if (level == nest->depth) {
    memcpy(to, from, nest->element);
    return;
  }
  const copy_loop *loop = &nest->loops[level];
  if (level + 1 == nest->depth) {
    copy_line(loop, nest->element, to, from);
    return;
  }
  for (int64_t i = 0; i < loop->count; i++) {
    copy_all(nest, level + 1, rt_shift(to, i * loop->to), rt_shift(from, i * loop->from));
  }
}

// Keeps the loops sorted so that the innermost one steps least through the host's memory: a cache
// line of it is used up before the next is fetched.
static void add_loop(copy_nest *nest, copy_loop loop, int64_t host_stride, int64_t *host_strides) {
  if (loop.count == 1) return;
  uint32_t at = nest->depth++;
  for (; at > 0 && llabs(host_strides[at - 1]) < llabs(host_stride); at--) {
    nest->loops[at] = nest->loops[at - 1];
    host_strides[at] = host_strides[at - 1];
  }
  nest->loops[at] = loop;
  host_strides[at] = host_stride;
}

static int64_t count_at(const rt_view *view, uint32_t position, const rt_part *part) {
  return (int)position == view->row_position ? part->rows : view->size[position];
}

static bool is_empty(const rt_view *view, const rt_part *part) {
  for (uint32_t i = 0; i < view->rank; i++) {
    if (count_at(view, i, part) == 0) return true;
  }
  return false;
}

static copy_nest nest_of(const rt_view *view, const rt_part *part, bool to_tile, uint32_t first) {
  copy_nest nest = {.element = view->element};
  int64_t host_strides[RT_MAX_RANK];
  for (uint32_t i = first; i < view->rank; i++) {
    int64_t host = view->stride[i], tile = view->tile_stride[i];
    copy_loop loop = {count_at(view, i, part), to_tile ? tile : host, to_tile ? host : tile};
    add_loop(&nest, loop, host, host_strides);
  }
  return nest;
}

// The elements of a list of slices have no common stride along position 0: one copy for each slice.
static void copy_tile(const rt_view *view, const rt_part *part, char *tile, bool to_tile) {
  if (is_empty(view, part)) return;
  bool by_slice = view->slices && view->slice_outer < 0;
  bool rows_are_slices = by_slice && view->row_position == 0;
  copy_nest nest = nest_of(view, part, to_tile, by_slice ? 1 : 0);
  int64_t offset = part->offset, slice = rows_are_slices ? part->first : part->slice;
  if (view->row_position >= 0 && !rows_are_slices) {
    offset += part->first * view->stride[view->row_position];
  }
  int64_t copies = by_slice ? count_at(view, 0, part) : 1;
  for (int64_t i = 0; i < copies; i++) {
    char *host = rt_shift(view->slices ? view->slices[slice + i] : view->data, offset);
    char *dense = by_slice ? rt_shift(tile, i * view->tile_stride[0]) : tile;
    copy_all(&nest, 0, to_tile ? dense : host, to_tile ? host : dense);
  }
}

void rt_pack(const rt_view *view, const rt_part *part, char *tile) {
  copy_tile(view, part, tile, true);
}

void rt_unpack(const rt_view *view, const rt_part *part, const char *tile) {
  copy_tile(view, part, (char *)tile, false);
}
