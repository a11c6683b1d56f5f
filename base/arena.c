// arena: memory that goes all at once, and growing arrays in it.
//
// Objects are cut off the newest block; a full block is followed by one twice as large, so a
// compilation costs a handful of calls to the allocator. Under AddressSanitizer every object is a
// block of its exact size instead, so that an overrun of any one of them is caught.
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define EXACT_BLOCKS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EXACT_BLOCKS 1
#endif
#endif
#ifndef EXACT_BLOCKS
#define EXACT_BLOCKS 0
#endif

enum { FIRST_BLOCK = 4096, LARGEST_STEP = 1 << 20, FIRST_CAPACITY = 8 };

typedef struct base_block {
  struct base_block *next;
  size_t used, capacity; // bytes of data
  max_align_t data[];
} base_block;

typedef struct base_deferred {
  struct base_deferred *next;
  void (*release)(void *object);
  void *object;
} base_deferred;

static void *malloc_allocate(void *user, size_t size) {
  (void)user;
  return malloc(size);
}

static void malloc_release(void *user, void *pointer) {
  (void)user;
  free(pointer);
}

void base_arena_init(base_arena *arena, const base_allocator *allocator) {
  *arena = (base_arena){0};
  if (allocator) arena->allocator = *allocator;
  if (!arena->allocator.allocate) arena->allocator.allocate = malloc_allocate;
  if (!arena->allocator.release) arena->allocator.release = malloc_release;
}

void base_arena_reset(base_arena *arena) {
  while (arena->deferred) {
    base_deferred *deferred = arena->deferred;
    arena->deferred = deferred->next; // first: a release function may defer again
    deferred->release(deferred->object);
  }
  while (arena->blocks) {
    base_block *block = arena->blocks;
    arena->blocks = block->next;
    arena->allocator.release(arena->allocator.user, block);
  }
}

static _Noreturn void out_of_memory(base_arena *arena) {
  if (!arena->escape) abort();
  longjmp(*arena->escape, 1);
}

// Puts a block with room for `size` bytes in front; false when the allocator has none.
static bool add_block(base_arena *arena, size_t size) {
  size_t capacity = size;
  if (!EXACT_BLOCKS) {
    size_t step = arena->blocks ? 2 * arena->blocks->capacity : FIRST_BLOCK;
    if (step > LARGEST_STEP) step = LARGEST_STEP;
    if (capacity < step) capacity = step;
  }
  if (capacity > SIZE_MAX - sizeof(base_block)) return false;
  base_block *block =
      arena->allocator.allocate(arena->allocator.user, sizeof(base_block) + capacity);
  if (!block) return false;
  *block = (base_block){arena->blocks, 0, capacity};
  arena->blocks = block;
  return true;
}

static void *try_alloc(base_arena *arena, size_t size) {
  const size_t mask = _Alignof(max_align_t) - 1;
  base_block *block = arena->blocks;
  size_t start = block ? (block->used + mask) & ~mask : 0;
  if (EXACT_BLOCKS || !block || start > block->capacity || size > block->capacity - start) {
    if (!add_block(arena, size)) return NULL;
    block = arena->blocks;
    start = 0;
  }
  block->used = start + size;
  return memset((char *)block->data + start, 0, size);
}

void *base_alloc(base_arena *arena, size_t size) {
  void *object = try_alloc(arena, size);
  if (!object) out_of_memory(arena);
  return object;
}

void *base_alloc_array(base_arena *arena, size_t count, size_t size) {
  if (size != 0 && count > SIZE_MAX / size) out_of_memory(arena);
  return base_alloc(arena, count * size);
}

void base_defer(base_arena *arena, void (*release)(void *object), void *object) {
  base_deferred *deferred = try_alloc(arena, sizeof *deferred);
  if (!deferred) { // the arena now owns the object, so it must not leak
    release(object);
    out_of_memory(arena);
  }
  *deferred = (base_deferred){arena->deferred, release, object};
  arena->deferred = deferred;
}

static void reset_inner(void *arena) {
  base_arena_reset(arena);
}

base_arena *base_arena_within(base_arena *arena) {
  base_arena *inner = base_new(arena, base_arena);
  inner->allocator = arena->allocator;
  inner->escape = arena->escape;
  base_defer(arena, reset_inner, inner);
  return inner;
}

void *base_grow(base_arena *arena, void *data, uint32_t count, uint32_t *capacity, size_t size) {
  if (count < *capacity) return data;
  if (*capacity > UINT32_MAX / 2) out_of_memory(arena);
  const uint32_t larger = *capacity ? 2 * *capacity : FIRST_CAPACITY;
  void *copy = base_alloc_array(arena, larger, size);
  if (count) memcpy(copy, data, count * size);
  *capacity = larger;
  return copy;
}
