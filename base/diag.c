// diag: collected reports and how people see them.
//
// The excerpt under a message must be safe for a terminal and keep its caret in place whatever the
// source holds: each byte is drawn as a cell of known width (a tab as one space, a control or
// invalid byte as \xNN, a UTF-8 sequence as itself), and a long line is cut around the caret.
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

// Of a long line so many bytes are shown: ahead of the caret, and in all.
enum { BEFORE_CARET = 70, LINE_WIDTH = 110 };

void base_diag_init(base_diag *diag, base_arena *arena, base_str file, base_str source) {
  *diag = (base_diag){.arena = arena, .file = file, .source = source, .status = BASE_OK};
}

static void report_error(base_diag *diag, base_status status, base_loc loc, const char *format,
                         va_list arguments) {
  const base_str message = base_str_vformat(diag->arena, format, arguments);
  base_push(diag->arena, &diag->reports,
            (base_report){.severity = BASE_ERROR, .loc = loc, .message = message});
  diag->error_count++;
  if (diag->status == BASE_OK) diag->status = status;
}

void base_error(base_diag *diag, base_loc loc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_error(diag, BASE_INVALID, loc, format, arguments);
  va_end(arguments);
}

void base_error_status(base_diag *diag, base_status status, base_loc loc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report_error(diag, status, loc, format, arguments);
  va_end(arguments);
}

void base_warning(base_diag *diag, base_loc loc, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const base_str message = base_str_vformat(diag->arena, format, arguments);
  va_end(arguments);
  base_push(diag->arena, &diag->reports,
            (base_report){.severity = BASE_WARNING, .loc = loc, .message = message});
}

void base_hint(base_diag *diag, const char *format, ...) {
  if (diag->reports.count == 0) return;
  va_list arguments;
  va_start(arguments, format);
  diag->reports.data[diag->reports.count - 1].hint =
      base_str_vformat(diag->arena, format, arguments);
  va_end(arguments);
}

// ---- rendering ----------------------------------------------------------------------------------

// By place; reports without one come last, equal places keep the order of reporting.
static int compare_places(const void *left, const void *right) {
  const base_report *a = *(const base_report *const *)left;
  const base_report *b = *(const base_report *const *)right;
  const uint32_t line_a = a->loc.line - 1, line_b = b->loc.line - 1; // "no place" wraps to the end
  if (line_a != line_b) return line_a < line_b ? -1 : 1;
  if (a->loc.column != b->loc.column) return a->loc.column < b->loc.column ? -1 : 1;
  return a < b ? -1 : a > b;
}

// Bytes of the printable UTF-8 sequence at the start of `text`; 0 when there is none.
static size_t utf8_length(base_str text) {
  const unsigned char *bytes = (const unsigned char *)text.data;
  if (bytes[0] < 0x80) return bytes[0] >= 0x20 && bytes[0] != 0x7f;
  const size_t length = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
  if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || length > text.length) return 0;
  for (size_t i = 1; i < length; i++)
    if ((bytes[i] & 0xc0) != 0x80) return 0;
  if (bytes[0] == 0xc2 && bytes[1] < 0xa0) return 0; // control characters of Latin-1
  return length;
}

// Draws the first cell of `text`: its columns in *width, the bytes it took as the result.
static size_t draw_cell(base_text *out, base_str text, uint32_t *width) {
  const size_t length = utf8_length(text);
  *width = 1;
  if (length) {
    base_text_append(out, text.data, length);
    return length;
  }
  if (text.data[0] == '\t') {
    base_text_append(out, " ", 1);
  } else {
    base_text_printf(out, "\\x%02x", (unsigned char)text.data[0]);
    *width = 4;
  }
  return 1;
}

static void repeat(base_text *out, char c, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    base_text_append(out, &c, 1);
}

// The bytes [first, last) of a line that are shown for a report at byte `caret`.
static void choose_window(base_str line, size_t caret, size_t *first, size_t *last) {
  *first = line.length > LINE_WIDTH && caret > BEFORE_CARET ? caret - BEFORE_CARET : 0;
  *last = line.length - *first > LINE_WIDTH ? *first + LINE_WIDTH : line.length;
  // Do not cut a UTF-8 sequence in two.
  while (*first > 0 && ((unsigned char)line.data[*first] & 0xc0) == 0x80)
    --*first;
  while (*last < line.length && ((unsigned char)line.data[*last] & 0xc0) == 0x80)
    ++*last;
}

static void render_excerpt(base_text *out, base_str line, base_loc loc) {
  const size_t caret = loc.column > line.length ? line.length : loc.column - 1;
  const size_t end = loc.length > line.length - caret ? line.length : caret + loc.length;
  size_t first, last;
  choose_window(line, caret, &first, &last);

  const int gutter = (int)base_str_format(out->arena, "%3u", loc.line).length;
  base_text_printf(out, "%*u | %s", gutter, loc.line, first > 0 ? "..." : "");
  uint32_t indent = first > 0 ? 3 : 0, marked = 0, width;
  for (size_t at = first; at < last;) {
    const base_str rest = {line.data + at, last - at};
    const size_t taken = draw_cell(out, rest, &width);
    if (at + taken <= caret)
      indent += width;
    else if (at < end)
      marked += width;
    at += taken;
  }
  base_text_printf(out, "%s\n%*s | ", last < line.length ? "..." : "", gutter, "");
  repeat(out, ' ', indent);
  base_text_append(out, "^", 1);
  if (marked > 1) repeat(out, '~', marked - 1);
  base_text_append(out, "\n", 1);
}

// A reader of lines: sorted reports need one walk over the source.
typedef struct line_reader {
  base_str rest; // what follows `line`
  uint32_t number;
  base_str line;
} line_reader;

static bool read_line(line_reader *reader, uint32_t number) {
  while (reader->number < number) {
    if (reader->rest.length == 0) return false;
    const char *newline = memchr(reader->rest.data, '\n', reader->rest.length);
    const size_t length = newline ? (size_t)(newline - reader->rest.data) : reader->rest.length;
    reader->line = (base_str){reader->rest.data, length};
    reader->rest.data += length + (newline ? 1 : 0);
    reader->rest.length -= length + (newline ? 1 : 0);
    reader->number++;
  }
  if (reader->line.length && reader->line.data[reader->line.length - 1] == '\r')
    reader->line.length--;
  return true;
}

// Of a message only its own line breaks get through: what it quotes may hold anything.
static void append_message(base_text *out, base_str message) {
  uint32_t width;
  for (size_t at = 0; at < message.length;) {
    const base_str rest = {message.data + at, message.length - at};
    const bool ends_line = rest.data[0] == '\n';
    if (ends_line) base_text_append(out, "\n", 1);
    at += ends_line ? 1 : draw_cell(out, rest, &width);
  }
}

static void render_report(base_diag *diag, const base_report *report, line_reader *reader,
                          base_text *out) {
  const base_loc loc = report->loc;
  if (diag->file.length) base_text_printf(out, "%.*s:", BASE_FMT(diag->file));
  if (loc.line) base_text_printf(out, "%u:%u:", loc.line, loc.column);
  base_text_printf(out, "%s%s: ", diag->file.length || loc.line ? " " : "",
                   report->severity == BASE_ERROR ? "error" : "warning");
  append_message(out, report->message);
  base_text_append(out, "\n", 1);
  if (loc.line && loc.column && read_line(reader, loc.line)) render_excerpt(out, reader->line, loc);
  if (report->hint.length) {
    base_text_append(out, "  hint: ", 8);
    append_message(out, report->hint);
    base_text_append(out, "\n", 1);
  }
}

base_str base_diag_render(base_diag *diag) {
  const uint32_t count = diag->reports.count;
  const base_report **sorted = base_new_array(diag->arena, const base_report *, count);
  for (uint32_t i = 0; i < count; i++)
    sorted[i] = &diag->reports.data[i];
  if (count) qsort(sorted, count, sizeof *sorted, compare_places);

  base_text out = {.arena = diag->arena};
  line_reader reader = {.rest = diag->source};
  for (uint32_t i = 0; i < count; i++)
    render_report(diag, sorted[i], &reader, &out);
  return base_text_str(&out);
}
