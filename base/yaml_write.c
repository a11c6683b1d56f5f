// YAML: writing. libyaml's emitter decides about layout and escapes, this file about quotes.
#include "base/yaml.h"

#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

struct base_yaml_writer {
  yaml_emitter_t emitter;
  base_arena *arena;
  base_text *out;
  uint32_t depth;
  bool is_list[BASE_YAML_DEPTH]; // what is open
};

static void close_writer(void *object) {
  yaml_emitter_delete(&((base_yaml_writer *)object)->emitter); // leaves it zeroed
}

static _Noreturn void out_of_memory(base_arena *arena) {
  base_alloc_array(arena, SIZE_MAX, 2);
  abort(); // not reached: the line above escapes
}

static int append(void *writer, unsigned char *data, size_t length) {
  base_text_append(((base_yaml_writer *)writer)->out, (const char *)data, length);
  return 1;
}

// `made`: the event's initialisation succeeded. What can fail is memory, or a caller that opens and
// closes in a wrong order, which is a bug here.
static void emit(base_yaml_writer *w, yaml_event_t *event, int made) {
  if (!made) out_of_memory(w->arena);
  if (yaml_emitter_emit(&w->emitter, event)) return;
  if (w->emitter.error == YAML_MEMORY_ERROR) out_of_memory(w->arena);
  abort();
}

// ---- documents and containers -------------------------------------------------------------------

base_yaml_writer *base_yaml_begin(base_arena *arena, base_text *out) {
  base_yaml_writer *w = base_new(arena, base_yaml_writer);
  w->arena = arena;
  w->out = out;
  if (!yaml_emitter_initialize(&w->emitter)) out_of_memory(arena);
  base_defer(arena, close_writer, w);
  yaml_emitter_set_output(&w->emitter, append, w);
  yaml_emitter_set_unicode(&w->emitter, 1);
  yaml_emitter_set_width(&w->emitter, -1);
  yaml_event_t event;
  emit(w, &event, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING));
  emit(w, &event, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1));
  return w;
}

static void open_container(base_yaml_writer *w, bool is_list) {
  if (w->depth == BASE_YAML_DEPTH) abort(); // could not be read again
  w->is_list[w->depth++] = is_list;
}

void base_yaml_put_mapping(base_yaml_writer *w, base_yaml_style style) {
  yaml_event_t event;
  open_container(w, false);
  emit(w, &event,
       yaml_mapping_start_event_initialize(&event, NULL, NULL, 1,
                                           style == BASE_YAML_FLOW ? YAML_FLOW_MAPPING_STYLE
                                                                   : YAML_BLOCK_MAPPING_STYLE));
}

void base_yaml_put_list(base_yaml_writer *w, base_yaml_style style) {
  yaml_event_t event;
  open_container(w, true);
  emit(w, &event,
       yaml_sequence_start_event_initialize(&event, NULL, NULL, 1,
                                            style == BASE_YAML_FLOW ? YAML_FLOW_SEQUENCE_STYLE
                                                                    : YAML_BLOCK_SEQUENCE_STYLE));
}

void base_yaml_put_end(base_yaml_writer *w) {
  yaml_event_t event;
  if (w->depth == 0) abort();
  if (w->is_list[--w->depth])
    emit(w, &event, yaml_sequence_end_event_initialize(&event));
  else
    emit(w, &event, yaml_mapping_end_event_initialize(&event));
}

void base_yaml_finish(base_yaml_writer *w, bool marked) {
  yaml_event_t event;
  emit(w, &event, yaml_document_end_event_initialize(&event, !marked));
  emit(w, &event, yaml_stream_end_event_initialize(&event));
  close_writer(w);
}

// ---- scalars ------------------------------------------------------------------------------------

static void put_scalar(base_yaml_writer *w, base_str text, yaml_scalar_style_t style) {
  yaml_event_t event;
  if (text.length > INT32_MAX) out_of_memory(w->arena);
  emit(w, &event,
       yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text.data,
                                    (int)text.length, 1, 1, style));
}

// Bytes of the UTF-8 sequence at the start of `text`; 0 when there is none.
static size_t utf8_length(base_str text) {
  const unsigned char *bytes = (const unsigned char *)text.data;
  if (bytes[0] < 0x80) return 1;
  const size_t length = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
  if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || length > text.length) return 0;
  for (size_t i = 1; i < length; i++)
    if ((bytes[i] & 0xc0) != 0x80) return 0;
  const bool too_long =
      (bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xf0 && bytes[1] < 0x90);
  const bool surrogate = bytes[0] == 0xed && bytes[1] >= 0xa0;
  const bool too_large = bytes[0] == 0xf4 && bytes[1] >= 0x90;
  return too_long || surrogate || too_large ? 0 : length;
}

base_str base_yaml_mend(base_arena *arena, base_str text) {
  base_text mended = {.arena = arena};
  size_t length, whole = 0;
  while (whole < text.length) {
    length = utf8_length((base_str){text.data + whole, text.length - whole});
    if (!length) break;
    whole += length;
  }
  if (whole == text.length) return text;
  for (size_t at = 0; at < text.length; at += length ? length : 1) {
    length = utf8_length((base_str){text.data + at, text.length - at});
    if (length)
      base_text_append(&mended, text.data + at, length);
    else
      base_text_append(&mended, "\xef\xbf\xbd", 3);
  }
  return base_text_str(&mended);
}

// Words that YAML 1.1 takes for a switch, for nothing or for a number.
static bool is_special_word(base_str text) {
  static const char *const words[] = {"y",  "n",   "yes",  "no",  "true",     "false",
                                      "on", "off", "null", "inf", "infinity", "nan"};
  for (size_t i = 0; text.length <= strlen("infinity") && i < sizeof words / sizeof *words; i++)
    if (strcasecmp(text.data, words[i]) == 0) return true;
  return false;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Begins with a letter and holds nothing that means something in YAML: no reader mistakes it.
static bool is_plain(base_str text) {
  static const char harmless[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "0123456789 _./+=@()-";
  return text.length > 0 && is_letter(text.data[0]) && text.data[text.length - 1] != ' ' &&
         strspn(text.data, harmless) == text.length && !is_special_word(text);
}

static yaml_scalar_style_t style_of(base_str text) {
  if (is_plain(text)) return YAML_PLAIN_SCALAR_STYLE;
  for (size_t i = 0; i < text.length; i++) {
    const unsigned char c = (unsigned char)text.data[i];
    if (c < ' ' || c >= 0x7f || c == '\'') return YAML_DOUBLE_QUOTED_SCALAR_STYLE;
  }
  return YAML_SINGLE_QUOTED_SCALAR_STYLE;
}

void base_yaml_put_string(base_yaml_writer *w, const char *text) {
  const base_str mended = base_yaml_mend(w->arena, base_str_from(text));
  put_scalar(w, mended, style_of(mended));
}

static void put_plain(base_yaml_writer *w, const char *text) {
  put_scalar(w, base_str_from(text), YAML_PLAIN_SCALAR_STYLE);
}

void base_yaml_put_integer(base_yaml_writer *w, int64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%" PRId64, value);
  put_plain(w, digits);
}

void base_yaml_put_natural(base_yaml_writer *w, uint64_t value) {
  char digits[24];
  snprintf(digits, sizeof digits, "%" PRIu64, value);
  put_plain(w, digits);
}

void base_yaml_put_number(base_yaml_writer *w, double value) {
  char digits[40];
  // The host's locale may write 0,5; a file means the same everywhere.
  const locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  const locale_t saved = uselocale(c_locale);
  for (int precision = 15; precision <= 17; precision++) { // digits until it comes back
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    if (strtod(digits, NULL) == value) break;
  }
  uselocale(saved);
  freelocale(c_locale);
  put_plain(w, digits);
}

void base_yaml_put_bool(base_yaml_writer *w, bool value) {
  put_plain(w, value ? "true" : "false");
}
