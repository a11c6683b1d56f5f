// places: what lies beside the library, in an installed tree and in a build, which mirrors one.
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"

const char *api_library_folder(base_arena *arena) {
  static const char here; // any address in the library
  Dl_info library;
  if (dladdr(&here, &library) == 0 || library.dli_fname == NULL) return NULL;
  const char *slash = strrchr(library.dli_fname, '/');
  if (slash == NULL) return ".";
  return base_str_format(arena, "%.*s", (int)(slash - library.dli_fname), library.dli_fname).data;
}

const char *api_share_folder(base_arena *arena, const char *name) {
  // Debian's library folder is lib/x86_64-linux-gnu.
  static const char *const ways[] = {"..", "../.."};
  const char *library = api_library_folder(arena);
  for (size_t i = 0; library != NULL && i < sizeof ways / sizeof *ways; i++) {
    const char *folder =
        base_str_format(arena, "%s/%s/share/fathom/%s", library, ways[i], name).data;
    if (access(folder, R_OK | X_OK) == 0) return folder;
  }
  return NULL;
}
