// error: the thread's error text. A fixed buffer, because the text of an out-of-memory must not
// allocate; a text that does not fit ends in a line that says so.
#include <stdio.h>
#include <string.h>

#include "api/api.h"

enum { TEXT_CAPACITY = 16384 };

static _Thread_local char error_text[TEXT_CAPACITY];
static _Thread_local size_t error_length;

static const char cut_mark[] = "\n... (more follows: mend these first)\n";

// Ends a full buffer at its last whole line.
static void cut(void) {
  size_t end = TEXT_CAPACITY - sizeof cut_mark;
  size_t line = end;
  while (line > 0 && error_text[line] != '\n')
    line--;
  if (line == 0) line = end;
  memcpy(error_text + line, cut_mark, sizeof cut_mark);
  error_length = TEXT_CAPACITY - 1; // nothing more is appended
}

static void append(const char *format, va_list arguments) {
  size_t room = TEXT_CAPACITY - error_length;
  if (room <= 1) return;
  int length = vsnprintf(error_text + error_length, room, format, arguments);
  if (length < 0) return;
  if ((size_t)length >= room) {
    cut();
  } else {
    error_length += (size_t)length;
  }
}

void api_error_clear(void) {
  error_length = 0;
  error_text[0] = 0;
}

void api_fail_more(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  append(format, arguments);
  va_end(arguments);
}

fathom_status api_fail(fathom_status status, const char *format, ...) {
  va_list arguments;
  api_error_clear();
  api_fail_more("error: ");
  va_start(arguments, format);
  append(format, arguments);
  va_end(arguments);
  return status;
}

fathom_status api_fail_diag(base_diag *diag) {
  base_str text = base_diag_render(diag);
  while (text.length > 0 && text.data[text.length - 1] == '\n')
    text.length--;
  api_error_clear();
  api_fail_more("%.*s", BASE_FMT(text));
  return (fathom_status)diag->status;
}

const char *fathom_error_text(void) {
  return error_text;
}

const char *fathom_status_name(fathom_status status) {
  switch (status) {
#define STATUS(name, value, text)                                                                  \
  case FATHOM_##name:                                                                              \
    return "FATHOM_" #name;
#include "base/status.def"
#undef STATUS
  }
  return "unknown status";
}
