// emu_place: the lines of a kernel that called the helpers that a fault happened in.
//
// Primitives know their call's place, but the call often stands in a helper of the prelude, which
// says little. Helpers are compiled inline, so the address in the kernel to which a primitive
// returns tells the whole chain of calls. Faults hold such addresses; only when a message is to be
// shown does addr2line turn them into lines, with the line tables of the object.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/emulator/emu.h"

enum { MOST_MARKS = 32, OUTPUT_BYTES = 32 << 10 };

// In a message: BEGIN, the address in hexadecimal digits, a space, "line 57", END.
enum { BEGIN = '\1', END = '\2' };

void emu_place_print(char *text, size_t room, const rt_code *code, fm_site site,
                     const void *caller) {
  const bool own = strcmp(site.file, code->text_name) == 0;
  snprintf(text, room, "%c%jx line %d%s%s%c", BEGIN, (uintmax_t)(uintptr_t)caller, site.line,
           own ? "" : " of ", own ? "" : site.file, END);
}

// ---- addr2line ----------------------------------------------------------------------------------

// Addresses in the object of the calls, which stand before the ones they return to.
static uint32_t collect(const rt_code *code, const char *text, uintmax_t *addresses) {
  Dl_info info;
  void *inside;
  memcpy(&inside, &code->functions->entry, sizeof inside);
  if (dladdr(inside, &info) == 0) return 0;
  uint32_t count = 0;
  for (const char *at = text; (at = strchr(at, BEGIN)) && count < MOST_MARKS; at++)
    addresses[count++] = strtoumax(at + 1, NULL, 16) - (uintptr_t)info.dli_fbase - 1;
  return count;
}

// What addr2line prints: for each address itself, then for each call that was inlined there, the
// innermost first, a line with the function's name and one with FILE:LINE. NULL: it cannot.
static const char *ask(base_arena *arena, const rt_code *code, const uintmax_t *addresses,
                       uint32_t count) {
  // GNU's, at version 2.40, misses some scopes.
  static const char *const programs[] = {"llvm-addr2line-19", "llvm-addr2line", "addr2line"};
  const char *arguments[MOST_MARKS + 8];
  uint32_t used = 0;
  char *program = NULL;
  for (size_t i = 0; program == NULL && i < sizeof programs / sizeof *programs; i++)
    program = emu_find_program(programs[i]);
  if (program == NULL) return NULL;
  base_defer(arena, free, program);
  emu_scratch *scratch;
  emu_reason *ignored = base_new(arena, emu_reason);
  base_str why;
  if (!emu_scratch_create(arena, &scratch, ignored) ||
      base_file_write(arena, scratch->object, code->object, code->object_bytes, &why) != BASE_OK)
    return NULL;
  arguments[used++] = program;
  arguments[used++] = "-aifCe";
  arguments[used++] = scratch->object;
  for (uint32_t i = 0; i < count; i++)
    arguments[used++] = base_str_format(arena, "0x%jx", addresses[i]).data;
  arguments[used] = NULL;
  char *output = base_alloc(arena, OUTPUT_BYTES);
  return emu_run_program(arena, arguments, output, OUTPUT_BYTES) ? output : NULL;
}

// ---- messages -----------------------------------------------------------------------------------

// A message that is being written out.
typedef struct writer {
  base_text out;
  const rt_code *code;
  const char *answer; // what addr2line says from the next address on; NULL: nothing
  int line;           // of the kernel's text, at the place that is being written; 0: not known
} writer;

static base_str take_line(const char **at) {
  const base_str line = {*at, strcspn(*at, "\n")};
  *at += line.length + (line.data[line.length] == '\n');
  return line;
}

// "void fm_load<float>(float const*)" -> "fm_load"
static base_str short_name(base_str name) {
  size_t length = 0;
  while (length < name.length && name.data[length] != '<' && name.data[length] != '(')
    length++;
  size_t first = length;
  while (first > 0 && name.data[first - 1] != ' ')
    first--;
  return (base_str){name.data + first, length - first};
}

static bool is_of(base_str place, const char *file) {
  const size_t length = strlen(file);
  const char *colon = memchr(place.data, ':', place.length);
  return colon && (size_t)(colon - place.data) >= length &&
         memcmp(colon - length, file, length) == 0;
}

// Reads the chain of one address and writes "line 412, in fm_load at " unless the call stands in
// the kernel itself, on the line that the message gives next.
static void write_caller(writer *w) {
  base_str name = {0}, callee = {0}, place = {0}, before = {0};
  take_line(&w->answer); // the address
  while (*w->answer && strncmp(w->answer, "0x", 2) != 0) {
    callee = name;
    before = place;
    name = take_line(&w->answer);
    place = take_line(&w->answer);
  }
  if (callee.length == 0 || is_of(before, "prelude_emulator.hpp")) return;
  const char *colon = memchr(place.data, ':', place.length);
  const int line = colon ? atoi(colon + 1) : 0;
  if (line <= 0 || line == w->line) return;
  w->line = line;
  // Where GNU's addr2line misses a scope, it repeats the outer function's name.
  const bool known = !base_str_equal(callee, name);
  base_text_printf(&w->out, "line %d, in %.*s at ", line,
                   BASE_FMT(known ? short_name(callee) : BASE_STR("a helper")));
}

// ": " and what stands on that line, without its indentation.
static void write_quote(writer *w) {
  enum { LONGEST = 72 };
  const char *at = w->code->text;
  if (w->line <= 0 || strncmp(at, "#line", 5) == 0 || strstr(at, "\n#line")) return;
  for (int line = 1; line < w->line && *at; line++)
    take_line(&at);
  base_str text = take_line(&at);
  for (; text.length && *text.data == ' '; text.length--)
    text.data++;
  const bool cut = text.length > LONGEST;
  if (cut) text.length = LONGEST;
  if (text.length) base_text_printf(&w->out, ": %.*s%s", BASE_FMT(text), cut ? "..." : "");
}

static base_str resolve(base_arena *arena, const rt_code *code, const char *text) {
  uintmax_t addresses[MOST_MARKS];
  const uint32_t count = collect(code, text, addresses);
  writer w = {.out = {.arena = arena}, .code = code};
  if (count) w.answer = ask(arena, code, addresses, count);
  static const char marks[] = {BEGIN, END, 0};
  for (uint32_t places = 0; *text;) {
    const size_t plain = strcspn(text, marks);
    base_text_append(&w.out, text, plain);
    text += plain;
    if (*text == 0) break;
    if (*text++ == END) {
      write_quote(&w);
      continue;
    }
    text += strcspn(text, " ");
    text += *text == ' ';
    if (sscanf(text, "line %d", &w.line) != 1) w.line = 0;
    if (w.answer && places++ < count) write_caller(&w);
  }
  return base_text_str(&w.out);
}

void emu_place_resolve(const rt_code *code, char *text, size_t room) {
  base_arena arena;
  jmp_buf escape;
  base_arena_init(&arena, NULL);
  if (BASE_TRY(&arena, escape)) {
    const base_str resolved = resolve(&arena, code, text);
    snprintf(text, room, "%.*s", BASE_FMT(resolved));
  }
  base_arena_reset(&arena);
}
