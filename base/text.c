// text: views of bytes, text under construction, and the nearest of several names.
#include "base/base.h"

#include <stdio.h>
#include <string.h>

base_str base_str_from(const char *terminated) {
  return (base_str){terminated, strlen(terminated)};
}

bool base_str_equal(base_str a, base_str b) {
  return a.length == b.length && (a.length == 0 || memcmp(a.data, b.data, a.length) == 0);
}

base_str base_str_copy(base_arena *arena, base_str text) {
  if (text.length == SIZE_MAX) base_alloc_array(arena, SIZE_MAX, 2); // escapes
  char *copy = base_alloc(arena, text.length + 1);
  if (text.length) memcpy(copy, text.data, text.length);
  return (base_str){copy, text.length};
}

base_str base_str_format(base_arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  base_str text = base_str_vformat(arena, format, arguments);
  va_end(arguments);
  return text;
}

base_str base_str_vformat(base_arena *arena, const char *format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  int length = vsnprintf(NULL, 0, format, arguments);
  if (length < 0) length = 0; // an encoding error or more than INT_MAX bytes: nothing to show
  char *data = base_alloc(arena, (size_t)length + 1);
  if (length > 0) vsnprintf(data, (size_t)length + 1, format, again);
  va_end(again);
  return (base_str){data, (size_t)length};
}

void base_text_append(base_text *text, const char *data, size_t length) {
  if (text->capacity - text->length <= length) { // one byte more than the text: the terminator
    size_t capacity = text->capacity ? text->capacity : 64;
    while (capacity - text->length <= length) {
      if (capacity > SIZE_MAX / 2) base_alloc_array(text->arena, SIZE_MAX, 2); // escapes
      capacity *= 2;
    }
    char *larger = base_alloc(text->arena, capacity);
    if (text->length) memcpy(larger, text->data, text->length);
    text->data = larger;
    text->capacity = capacity;
  }
  if (length) memcpy(text->data + text->length, data, length);
  text->length += length;
  text->data[text->length] = '\0';
}

void base_text_printf(base_text *text, const char *format, ...) {
  char buffer[128]; // nearly every piece fits, and then the arena gets no second copy of it
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  const int length = vsnprintf(buffer, sizeof buffer, format, arguments);
  if (length >= 0 && (size_t)length < sizeof buffer) {
    base_text_append(text, buffer, (size_t)length);
  } else {
    const base_str piece = base_str_vformat(text->arena, format, again);
    base_text_append(text, piece.data, piece.length);
  }
  va_end(again);
  va_end(arguments);
}

base_str base_text_str(const base_text *text) {
  return (base_str){text->data ? text->data : "", text->length};
}

// ---- nearest name -------------------------------------------------------------------------------

enum { LONGEST_WORD = 40, MOST_EDITS = 2 };

static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// Optimal string alignment distance: insertions, deletions, replacements and swaps of neighbours.
// Both lengths are at most LONGEST_WORD. `row[i % 3]` holds the distances of a's first i letters.
static uint32_t edit_distance(base_str a, base_str b) {
  uint32_t row[3][LONGEST_WORD + 1];
  for (uint32_t j = 0; j <= b.length; j++)
    row[0][j] = j;
  for (uint32_t i = 1; i <= a.length; i++) {
    uint32_t *now = row[i % 3], *before = row[(i + 2) % 3], *two_before = row[(i + 1) % 3];
    now[0] = i;
    for (uint32_t j = 1; j <= b.length; j++) {
      const bool same = a.data[i - 1] == b.data[j - 1];
      now[j] = least(before[j - 1] + !same, least(before[j], now[j - 1]) + 1);
      if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
        now[j] = least(now[j], two_before[j - 2] + 1);
    }
  }
  return row[a.length % 3][b.length];
}

const char *base_nearest(base_str word, const char *const *names, size_t count) {
  const char *nearest = NULL;
  uint32_t fewest = MOST_EDITS + 1;
  for (size_t i = 0; i < count && word.length <= LONGEST_WORD; i++) {
    const base_str name = base_str_from(names[i]);
    const size_t shorter = name.length < word.length ? name.length : word.length;
    const size_t longer = name.length + word.length - shorter;
    if (longer > LONGEST_WORD || longer - shorter >= fewest) continue;
    const uint32_t edits = edit_distance(word, name);
    // When more than half of the letters differ, the two have nothing to do with each other.
    if (edits >= fewest || 2 * edits > longer) continue;
    fewest = edits;
    nearest = names[i];
  }
  return nearest;
}
