// cpu_loader: opens libfathom-cpu, the shared object with LLVM in it, when the cpu target is first
// asked for. A host that never compiles for the cpu never loads LLVM, and one that carries its own
// does not meet ours: the object is opened with local symbols. It is never closed again, because
// LLVM does not survive that.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/target.h"

enum { PATH_CAPACITY = 4096, REASON_CAPACITY = 16384 };

static const char file_name[] = "libfathom-cpu.so";

static const char advice[] =
#ifdef FATHOM_WITHOUT_LLVM
    "this Fathom was built without it (FATHOM_LLVM=OFF): build it where LLVM 19 is";
#else
    "install LLVM 19 (Debian: libllvm19)";
#endif

// Plain memory, because the lock is held while it is written: nothing in here may jump away.
typedef struct attempt {
  char reason[REASON_CAPACITY];
  size_t length;
} attempt;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const cg_target
    *loaded; // guarded by `lock`; only success is remembered, so that a repair helps

static void __attribute__((format(printf, 2, 3))) explain(attempt *a, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof a->reason - a->length;
  int length = vsnprintf(a->reason + a->length, room, format, arguments);
  va_end(arguments);
  if (length > 0) a->length += (size_t)length < room ? (size_t)length : room - 1;
}

static const cg_target *open_at(const char *path, attempt *a) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    explain(a, "\n    %s", dlerror());
    return NULL;
  }
  cg_target_entry entry;
  *(void **)&entry = dlsym(handle, CG_CPU_SYMBOL); // POSIX's way to get a function from dlsym
  if (entry == NULL) {
    explain(a, "\n    %s: has no symbol %s", path, CG_CPU_SYMBOL);
    dlclose(handle);
    return NULL;
  }
  const cg_target *target = entry();
  if (target->abi != CG_ABI) {
    explain(a, "\n    %s: is of another version of Fathom (abi %u, expected %u)", path, target->abi,
            CG_ABI);
    return NULL;
  }
  return target;
}

// The folder of the shared object (or program) that holds this function; false when it is not
// known.
static bool own_folder(char *folder) {
  Dl_info info;
  if (dladdr((void *)&lock, &info) == 0 || info.dli_fname == NULL) return false;
  const char *slash = strrchr(info.dli_fname, '/');
  if (slash == NULL || slash - info.dli_fname >= PATH_CAPACITY) return false;
  snprintf(folder, PATH_CAPACITY, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
  return true;
}

static const cg_target *open_in(const char *folder, attempt *a) {
  char path[PATH_CAPACITY + sizeof file_name + 1];
  int length = snprintf(path, sizeof path, "%s/%s", folder, file_name);
  if (length < 0 || (size_t)length >= sizeof path) return NULL;
  return open_at(path, a);
}

// Beside libfathom, then where the environment says, then where the system looks.
static const cg_target *search(attempt *a) {
  char folder[PATH_CAPACITY];
  const cg_target *target = NULL;
  if (own_folder(folder)) target = open_in(folder, a);
  const char *given = getenv("FATHOM_LIBRARY_DIR");
  if (target == NULL && given != NULL && given[0] != 0) target = open_in(given, a);
  if (target == NULL) target = open_at(file_name, a);
  return target;
}

const cg_target *cg_cpu_target(base_arena *arena, base_str *why) {
  attempt a = {.length = 0};
  pthread_mutex_lock(&lock);
  if (loaded == NULL) loaded = search(&a);
  const cg_target *target = loaded;
  pthread_mutex_unlock(&lock);
  if (target == NULL)
    *why = base_str_format(arena,
                           "the cpu target needs %s, which could not be opened:%s\n"
                           "  hint: %s and put %s beside libfathom.so, or in the folder "
                           "$FATHOM_LIBRARY_DIR names",
                           file_name, a.reason, advice, file_name);
  return target;
}
