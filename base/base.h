// base: what every layer stands on. Knows no compiler.
//
// Sections: status, arena, vectors, strings, diagnostics, hash, clock, files, shared libraries.
//
// Memory. Everything a compilation owns lives in one arena. An allocation that fails does not
// return: it longjmps to the arena's `escape`, which the outermost caller (an API entry point) has
// set with BASE_TRY. Anything that is not plain memory (a file, an LLVM module) is handed to the
// arena with base_defer and is released when the arena goes. So code in between has no
// out-of-memory branches and leaks nothing. An arena belongs to one thread at a time.
#ifndef FATHOM_BASE_H
#define FATHOM_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- status -------------------------------------------------------------------------------------

typedef enum base_status {
#define STATUS(name, value, text) BASE_##name = (value),
#include "base/status.def"
#undef STATUS
} base_status;

const char *base_status_text(base_status status);

// ---- arena --------------------------------------------------------------------------------------

// Where an arena's blocks come from. `allocate` returns NULL on failure; NULL members mean malloc
// and free.
typedef struct base_allocator {
  void *user;
  void *(*allocate)(void *user, size_t size);
  void (*release)(void *user, void *pointer);
} base_allocator;

typedef struct base_arena {
  base_allocator allocator;
  struct base_block *blocks;      // newest first
  struct base_deferred *deferred; // newest first
  jmp_buf *escape;                // where a failed allocation goes; NULL aborts (an internal bug)
} base_arena;

// An arena that owns nothing yet. `allocator` may be NULL.
void base_arena_init(base_arena *arena, const base_allocator *allocator);
// Runs the deferred calls, newest first, then frees every block. The arena can be used again.
void base_arena_reset(base_arena *arena);
// An arena for what is needed for a while: from the same allocator, with the same escape, and reset
// with `arena` at the latest.
base_arena *base_arena_within(base_arena *arena);

// `size` zeroed bytes aligned for any object. Never NULL.
void *base_alloc(base_arena *arena, size_t size);
// Calls release(object) when the arena is reset.
void base_defer(base_arena *arena, void (*release)(void *object), void *object);

#define base_new(arena, type) ((type *)base_alloc((arena), sizeof(type)))
#define base_new_array(arena, type, count)                                                         \
  ((type *)base_alloc_array((arena), (count), sizeof(type)))
void *base_alloc_array(base_arena *arena, size_t count,
                       size_t size); // escapes when the product overflows

// Use as: jmp_buf escape; if (BASE_TRY(arena, escape)) { ... } else { ... out of memory ... }.
// The previous escape must be restored by the caller (arena->escape = saved) when calls nest.
#define BASE_TRY(arena, buffer) ((arena)->escape = &(buffer), setjmp(buffer) == 0)

// ---- vectors ------------------------------------------------------------------------------------

// A growing array in an arena: BASE_VECTOR(int) v = {0}; base_push(arena, &v, 7); v.data[0],
// v.count. Old storage stays in the arena until it is reset, so pointers into a vector never dangle
// before that.
#define BASE_VECTOR(type)                                                                          \
  struct {                                                                                         \
    type *data;                                                                                    \
    uint32_t count, capacity;                                                                      \
  }
#define base_push(arena, vector, ...)                                                              \
  ((vector)->data = base_grow((arena), (vector)->data, (vector)->count, &(vector)->capacity,       \
                              sizeof *(vector)->data),                                             \
   (vector)->data[(vector)->count++] = (__VA_ARGS__))
// `data` itself while count < capacity, else a copy with twice the room.
void *base_grow(base_arena *arena, void *data, uint32_t count, uint32_t *capacity, size_t size);

// ---- strings ------------------------------------------------------------------------------------

// A view of bytes, not terminated, not owned.
typedef struct base_str {
  const char *data;
  size_t length;
} base_str;

#define BASE_STR(literal) ((base_str){(literal), sizeof(literal) - 1})
#define BASE_FMT(str) (int)(str).length, (str).data // for "%.*s"

base_str base_str_from(const char *terminated);
bool base_str_equal(base_str a, base_str b);
base_str base_str_copy(base_arena *arena, base_str text); // terminated copy
base_str base_str_format(base_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
base_str base_str_vformat(base_arena *arena, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0), nonnull(2)));

// Text under construction in an arena; `data` is terminated after each call (NULL while empty).
typedef struct base_text {
  base_arena *arena;
  char *data;
  size_t length, capacity;
} base_text;

void base_text_append(base_text *text, const char *data, size_t length);
void base_text_printf(base_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3), nonnull(2)));
base_str base_text_str(const base_text *text);

// The name in `names` closest to `word` (at most two edits away), for "did you mean"; NULL when
// none is.
const char *base_nearest(base_str word, const char *const *names, size_t count);

// ---- diagnostics --------------------------------------------------------------------------------

// A place in a source text. Lines and columns count from 1; line 0 is "no place".
typedef struct base_loc {
  uint32_t line, column, length;
} base_loc;

typedef enum base_severity { BASE_ERROR, BASE_WARNING } base_severity;

typedef struct base_report {
  base_severity severity;
  base_loc loc;
  base_str message; // one sentence, lower case, no full stop: what was expected, what was found
  base_str hint;    // what to do; may be empty
} base_report;

// Collects the reports of one source. Holds no global state and prints nothing.
typedef struct base_diag {
  base_arena *arena;
  base_str file;   // shown before line:column; may be empty
  base_str source; // for the line and the caret; may be empty
  BASE_VECTOR(base_report) reports;
  uint32_t error_count;
  base_status status; // of the first error; BASE_OK while there is none
} base_diag;

void base_diag_init(base_diag *diag, base_arena *arena, base_str file, base_str source);
// Adds an error of status BASE_INVALID. The hint goes to the newest report.
void base_error(base_diag *diag, base_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void base_error_status(base_diag *diag, base_status status, base_loc loc, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void base_warning(base_diag *diag, base_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void base_hint(base_diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));
// All reports as people read them, sorted by place:
//   file.fir:3:14: error: expected ...
//     3 |   %k = rms_norm %v over D
//       |                 ^~
//     hint: ...
base_str base_diag_render(base_diag *diag);

// ---- hash ---------------------------------------------------------------------------------------

typedef struct base_hash {
  uint64_t low, high;
} base_hash;

base_hash base_hash_bytes(const void *data, size_t length); // XXH3, 128 bits
base_hash base_hash_combine(base_hash a, base_hash b);
bool base_hash_equal(base_hash a, base_hash b);
base_str base_hash_hex(base_arena *arena, base_hash hash); // 32 lower-case digits

// The next number of a splitmix64 generator (Steele, Lea and Flood 2014); any state is a good start.
uint64_t base_random(uint64_t *state);

// ---- clock --------------------------------------------------------------------------------------

double base_seconds(void); // on a clock that only goes forward

// ---- files --------------------------------------------------------------------------------------

// Reads a whole regular file. On failure BASE_IO and *why says which call failed and why.
base_status base_file_read(base_arena *arena, const char *path, base_str *contents, base_str *why);
// Reads from its start until `end` knows how many bytes are wanted; it is asked with more and more of
// the text, and says 0 while it does not know. Where it never does, the whole file.
base_status base_file_read_until(base_arena *arena, const char *path, size_t (*end)(base_str text),
                                 base_str *contents, base_str *why);
// Writes a unique temporary beside `path`, flushes it and renames it over `path`: readers see the
// old file or the new one, never a part. On failure nothing is left behind.
base_status base_file_write(base_arena *arena, const char *path, const void *data, size_t length,
                            base_str *why);
// Creates a directory and its parents (mode 0700 for those it makes); an existing one is success.
base_status base_directory_create(base_arena *arena, const char *path, base_str *why);

// A lock between all who name the same file: processes, and threads of one process. The kernel gives
// it up when its holder dies, however it dies. A child made by fork shares it until the child calls
// exec or ends, or the parent releases it.
typedef struct base_lock {
  const char *path;
  int fd;
  long process; // that took it
  bool busy;    // it was not taken because others kept it
} base_lock;

// Waits for at most `seconds` (0 tries once), asking again after 1 ms at first and 32 ms at last. The
// file is created when it is missing (its folder is not), and says meanwhile who holds it, and for
// what: `purpose`, "tuning @site". On failure BASE_IO and *why, which names the holder when others
// kept it for so long.
base_status base_lock_take(base_arena *arena, const char *path, const char *purpose, double seconds,
                           base_lock *lock, base_str *why);
// Removes the file. Does nothing to a lock that is zeroed or was released; in a child of the process
// that took it, closes the child's copy only.
void base_lock_release(base_lock *lock);

// ---- shared libraries ---------------------------------------------------------------------------

// A library that is opened at run time, so that Fathom loads, and says what is missing, without it.
typedef struct base_library_spec {
  const char *name;     // for messages: "NVRTC"
  const char *variable; // of the environment; when it is set, it names the file and no other is
                        // tried
  const char *const *sonames; // best first; NULL ends the list
  // Where to look, in this order; NULL ends the list. "" is the system's own search, anything else
  // a folder: a pattern of glob(3), which may begin with a variable ("$CUDA_HOME/lib64"). Of a
  // variable that lists folders (PATH) each is tried.
  const char *const *places;
  // Files beside it, a pattern, that it opens by name alone and so might not find: opened first.
  // NULL for none.
  const char *companions;
  const char *advice; // what to install
} base_library_spec;

// Places of the libraries of CUDA's toolkit: its folders, the system, Python environments.
extern const char *const base_cuda_places[];

// Opens the file that the variable names, else a copy that is already in the process, else the
// first in the places. Closed with dlclose. *found: its path, valid while it is open. On failure
// *why lists what was tried, a line each, and what to do.
bool base_library_open(base_arena *arena, const base_library_spec *spec, void **handle,
                       base_str *found, base_str *why);

typedef struct base_entry_point {
  const char *symbol;
  size_t offset; // of the function pointer in the table
} base_entry_point;

// Fills a struct of function pointers. The first symbol that the library lacks, or NULL.
const char *base_library_resolve(void *handle, const base_entry_point *entries, size_t count,
                                 void *table);

#endif
