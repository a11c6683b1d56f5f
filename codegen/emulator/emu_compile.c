// emu_compile: from text to a shared object in the process.
//
// The host's C++ compiler does it. Objects are cached by everything they depend on: preludes, text,
// compiler and flags.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/artefact_cache.h"
#include "codegen/emulator/emu.h"

// Made by the build from the files of these names.
extern const char emu_abi_text[], emu_prelude_text[];

enum { MOST_ARGUMENTS = 40, OUTPUT_BYTES = 2048 };

// ---- the compiler -------------------------------------------------------------------------------

// AddressSanitizer's runtime is the compiler's: both must be GCC's or both Clang's.
static bool sanitizer_is_gcc(void) {
  Dl_info info;
  void *init = dlsym(RTLD_DEFAULT, "__asan_init");
  return init && dladdr(init, &info) && info.dli_fname && strstr(info.dli_fname, "libasan.so");
}

char *emu_find_compiler(const char *wanted, emu_reason *reason) {
  static const char *const gcc[] = {"g++", "c++", NULL};
  static const char *const clang[] = {"clang++-19", "clang++", NULL};
  static const char *const any[] = {"c++", "g++", "clang++-19", "clang++", NULL};
  reason->status = BASE_UNSUPPORTED;
  if (wanted == NULL) wanted = getenv("FATHOM_CXX");
  if (wanted && wanted[0]) {
    snprintf(reason->text, sizeof reason->text,
             "the emulator cannot run the C++ compiler '%.1000s': no such program", wanted);
    reason->hint = "name one that understands C++17, without options, in FATHOM_CXX";
    return emu_find_program(wanted);
  }
  snprintf(reason->text, sizeof reason->text,
           "the emulator needs a C++ compiler, and found none of c++, g++, clang++");
  reason->hint = "install one (Debian: g++), or name it in FATHOM_CXX";
  const char *const *names = !emu_address_sanitizer() ? any : sanitizer_is_gcc() ? gcc : clang;
  for (; *names; names++) {
    char *path = emu_find_program(*names);
    if (path) return path;
  }
  return NULL;
}

typedef struct command {
  const char *arguments[MOST_ARGUMENTS];
  uint32_t count;
} command;

static void add(command *c, const char *argument) {
  c->arguments[c->count++] = argument;
}

// Without -nostdlib the compiler would link, and dlopen load, the C++ library.
static command compiler_command(const emu_device *device) {
  static const char *const always[] = {
      "-x",
      "c++",
      "-std=c++17",
      "-shared",
      "-fPIC",
      "-w",
      "-pipe",
      "-fno-exceptions",
      "-fno-rtti",
      "-fno-math-errno",
      "-fno-strict-aliasing", // shared memory holds what was last written there
      "-ffp-contract=off",
      "-fvisibility=hidden",
  };
  command c = {.count = 0};
  add(&c, device->compiler);
  for (size_t i = 0; i < sizeof always / sizeof *always; i++)
    add(&c, always[i]);
#ifdef __x86_64__
  if (__builtin_cpu_supports("fma")) add(&c, "-mfma");
#endif
  add(&c, device->keep ? "-O0" : "-O1");
  add(&c, device->keep ? "-g" : "-g1");
  if (device->keep) add(&c, "-DFM_KEEP");
  if (device->sanitize) {
    add(&c, "-fsanitize=address");
    add(&c, "-fno-omit-frame-pointer");
  } else {
    add(&c, "-nostdlib");
  }
  return c;
}

// ---- the cache ----------------------------------------------------------------------------------

static base_hash cache_key(base_arena *arena, const command *c, base_str text) {
  base_text inputs = {.arena = arena};
  for (uint32_t i = 0; i < c->count; i++)
    base_text_printf(&inputs, "%s\n", c->arguments[i]);
  struct stat info;
  if (stat(c->arguments[0], &info) == 0)
    base_text_printf(&inputs, "compiler %lld bytes of %lld.%09ld\n", (long long)info.st_size,
                     (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  base_hash key = base_hash_bytes(inputs.data, inputs.length);
  key = base_hash_combine(key, base_hash_bytes(emu_abi_text, strlen(emu_abi_text)));
  key = base_hash_combine(key, base_hash_bytes(emu_prelude_text, strlen(emu_prelude_text)));
  return base_hash_combine(key, base_hash_bytes(text.data, text.length));
}

// ---- files --------------------------------------------------------------------------------------

static bool write_file(base_arena *arena, const char *path, const void *data, size_t length,
                       emu_reason *reason) {
  base_str why;
  if (base_file_write(arena, path, data, length, &why) == BASE_OK) return true;
  reason->status = BASE_IO;
  snprintf(reason->text, sizeof reason->text, "%.*s", BASE_FMT(why));
  return false;
}

// Preludes and text; lines of the text are counted from its own beginning, under `text_name`.
static base_str whole_text(base_arena *arena, base_str text, const char *text_name) {
  base_text whole = {.arena = arena};
  base_text_printf(&whole, "#line 1 \"emulator_abi.h\"\n");
  base_text_append(&whole, emu_abi_text, strlen(emu_abi_text));
  base_text_printf(&whole, "\n#line 1 \"prelude_emulator.hpp\"\n");
  base_text_append(&whole, emu_prelude_text, strlen(emu_prelude_text));
  base_text_printf(&whole, "\n#line 1 \"%s\"\n", text_name);
  base_text_append(&whole, text.data, text.length);
  base_text_append(&whole, "\n", 1);
  return base_text_str(&whole);
}

// ---- from text to an object ---------------------------------------------------------------------

typedef struct job {
  const emu_device *device;
  base_arena *arena;
  base_str text;
  rt_code *code;
  emu_reason *reason;
} job;

static bool compile_file(const job *j, command *c, const char *source, const char *object) {
  char output[OUTPUT_BYTES];
  add(c, "-o");
  add(c, object);
  add(c, source);
  add(c, "-lm");
  add(c, NULL);
  if (emu_run_program(j->arena, c->arguments, output, sizeof output) && access(object, R_OK) == 0)
    return true;
  j->reason->status = BASE_INTERNAL;
  snprintf(j->reason->text, sizeof j->reason->text,
           "the C++ compiler refuses the kernel's text:\n%s", output);
  return false;
}

// Of the kernel's names none may meet another kernel's. The object's bytes are kept for
// emu_place_resolve: the file may be gone by then.
static bool open_object(const job *j, const char *path, base_str bytes) {
  rt_code *code = j->code;
  code->object = malloc(bytes.length);
  if (code->object == NULL) return false;
  memcpy(code->object, bytes.data, bytes.length);
  code->object_bytes = bytes.length;
  code->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const fm_calls **emulator = code->handle ? dlsym(code->handle, "fm_emulator") : NULL;
  if (emulator) {
    *emulator = &emu_calls;
    return true;
  }
  const char *error = dlerror();
  j->reason->status = BASE_INTERNAL;
  snprintf(j->reason->text, sizeof j->reason->text, "cannot open the compiled kernel: %s",
           error ? error : "dlopen does not say why");
  if (code->handle) dlclose(code->handle);
  free(code->object);
  code->handle = code->object = NULL;
  return false;
}

static bool read_object(const job *j, const char *path, base_str *bytes) {
  base_str why;
  if (base_file_read(j->arena, path, bytes, &why) == BASE_OK) return true;
  j->reason->status = BASE_IO;
  snprintf(j->reason->text, sizeof j->reason->text, "%.*s", BASE_FMT(why));
  return false;
}

// The text under a name of its own in the folder of the device, where a debugger finds it.
static bool compile_kept(const job *j) {
  base_arena *arena = j->arena;
  const base_str digest = base_hash_hex(arena, base_hash_bytes(j->text.data, j->text.length));
  const char *stem = base_str_format(arena, "%s/%.12s", j->device->kept, digest.data).data;
  const char *text_path = base_str_format(arena, "%s.cu", stem).data;
  const char *source = base_str_format(arena, "%s.cpp", stem).data;
  const char *object = base_str_format(arena, "%s.so", stem).data;
  emu_scratch *s;
  if (!emu_scratch_create(arena, &s, j->reason)) return false;
  j->code->text_name = strdup(text_path);
  if (j->code->text_name == NULL) return false;
  const base_str whole = whole_text(arena, j->text, text_path);
  command c = compiler_command(j->device);
  base_str bytes;
  return write_file(arena, text_path, j->text.data, j->text.length, j->reason) &&
         write_file(arena, source, whole.data, whole.length, j->reason) &&
         compile_file(j, &c, source, s->object) && read_object(j, s->object, &bytes) &&
         write_file(arena, object, bytes.data, bytes.length, j->reason) &&
         open_object(j, object, bytes);
}

static bool open_cached(const job *j, const cg_cache_entry *entry, const char *path) {
  emu_reason ignored; // whatever is wrong with it, it is compiled again
  const job attempt = {j->device, j->arena, j->text, j->code, &ignored};
  base_str bytes;
  return cg_cache_load(j->arena, entry, &bytes) &&
         write_file(j->arena, path, bytes.data, bytes.length, &ignored) &&
         open_object(&attempt, path, bytes);
}

static bool compile_scratch(const job *j) {
  base_arena *arena = j->arena;
  command c = compiler_command(j->device);
  emu_scratch *s;
  if (!emu_scratch_create(arena, &s, j->reason)) return false;
  j->code->text_name = strdup("kernel.cu");
  if (j->code->text_name == NULL) return false;
  const cg_cache_entry entry = {.directory = j->device->cache_directory,
                                .kind = "emulated",
                                .extension = "so",
                                .key = cache_key(arena, &c, j->text)};
  if (open_cached(j, &entry, s->object)) return true;
  const base_str whole = whole_text(arena, j->text, j->code->text_name);
  base_str bytes;
  if (!write_file(arena, s->source, whole.data, whole.length, j->reason) ||
      !compile_file(j, &c, s->source, s->object) || !read_object(j, s->object, &bytes))
    return false;
  cg_cache_store(arena, &entry, bytes);
  return open_object(j, s->object, bytes);
}

bool emu_compile(const emu_device *device, base_str text, rt_code *code, emu_reason *reason) {
  base_arena arena;
  jmp_buf escape;
  base_arena_init(&arena, NULL);
  *reason = (emu_reason){.status = BASE_MEMORY, .text = "out of memory for the kernel's text"};
  const job j = {device, &arena, text, code, reason};
  bool done = false;
  code->text = strndup(text.data, text.length);
  if (code->text == NULL) return false;
  if (BASE_TRY(&arena, escape)) done = device->kept ? compile_kept(&j) : compile_scratch(&j);
  base_arena_reset(&arena);
  return done;
}

bool emu_compiler(base_arena *arena, base_str *path, base_str *why) {
  emu_reason reason;
  char *found = emu_find_compiler(NULL, &reason);
  if (found)
    *path = base_str_copy(arena, base_str_from(found));
  else
    *why = base_str_format(arena, "%s; %s", reason.text, reason.hint);
  free(found);
  return found != NULL;
}
