// The values that archives are made of (see archive.h).
#include "runtime/archive.h"

#include <string.h>

enum { LEAST_ITEM = 4 }; // bytes of an array's item

static const uint32_t no_text = UINT32_MAX; // the length of a NULL text

void rt_archive_require(rt_archive *a, bool holds, const char *fault) {
  if (!holds && a->fault == NULL) a->fault = fault;
}

// `count` bytes of what is read; NULL: there are not as many.
static const char *take(rt_archive *a, size_t count) {
  rt_archive_require(a, count <= a->in.length - a->at, "it ends too early");
  if (a->fault != NULL) return NULL;
  const char *bytes = a->in.data + a->at;
  a->at += count;
  return bytes;
}

static uint64_t number(rt_archive *a, uint64_t value, uint32_t width) {
  unsigned char bytes[sizeof value];
  if (a->out != NULL) {
    for (uint32_t i = 0; i < width; i++)
      bytes[i] = (unsigned char)(value >> 8 * i);
    base_text_append(a->out, (const char *)bytes, width);
    return value;
  }
  const char *found = take(a, width);
  if (found == NULL) return 0;
  memcpy(bytes, found, width);
  value = 0;
  for (uint32_t i = 0; i < width; i++)
    value |= (uint64_t)bytes[i] << 8 * i;
  return value;
}

void rt_archive_u32(rt_archive *a, uint32_t *value) {
  *value = (uint32_t)number(a, *value, sizeof *value);
}

void rt_archive_u64(rt_archive *a, uint64_t *value) {
  *value = number(a, *value, sizeof *value);
}

void rt_archive_i64(rt_archive *a, int64_t *value) {
  *value = (int64_t)number(a, (uint64_t)*value, sizeof *value);
}

void rt_archive_size(rt_archive *a, size_t *value) {
  uint64_t wide = number(a, *value, sizeof wide);
  rt_archive_require(a, wide <= SIZE_MAX, "a size does not fit");
  *value = a->fault == NULL ? (size_t)wide : 0;
}

void rt_archive_bool(rt_archive *a, bool *value) {
  uint32_t wide = (uint32_t)number(a, *value, sizeof wide);
  rt_archive_require(a, wide <= 1, "a flag is neither 0 nor 1");
  *value = wide == 1;
}

void rt_archive_bytes(rt_archive *a, base_str *bytes) {
  rt_archive_size(a, &bytes->length);
  if (a->out != NULL) {
    base_text_append(a->out, bytes->data, bytes->length);
    return;
  }
  const char *found = take(a, bytes->length);
  *bytes = found != NULL ? base_str_copy(a->arena, (base_str){found, bytes->length}) : BASE_STR("");
}

void rt_archive_text(rt_archive *a, const char **text) {
  if (a->out != NULL) {
    uint32_t length = *text != NULL ? (uint32_t)strlen(*text) : no_text;
    rt_archive_u32(a, &length);
    if (*text != NULL) base_text_append(a->out, *text, length);
    return;
  }
  uint32_t length = 0;
  rt_archive_u32(a, &length);
  *text = NULL;
  if (length == no_text) return;
  const char *found = take(a, length);
  if (found != NULL)
    rt_archive_require(a, memchr(found, 0, length) == NULL, "a name has a zero inside");
  *text = a->fault == NULL ? base_str_copy(a->arena, (base_str){found, length}).data : "";
}

void *rt_archive_array(rt_archive *a, const void *items, uint32_t *count, size_t size) {
  rt_archive_u32(a, count);
  if (a->out != NULL) return (void *)items;
  rt_archive_require(a, *count <= (a->in.length - a->at) / LEAST_ITEM, "it ends too early");
  if (a->fault != NULL) *count = 0;
  return base_alloc_array(a->arena, (size_t)*count + 1, size);
}

void rt_archive_below(rt_archive *a, uint32_t *value, uint32_t limit, const char *fault) {
  rt_archive_u32(a, value);
  rt_archive_require(a, *value < limit, fault);
  if (a->fault != NULL || *value >= limit) *value = 0;
}
