// places: what lies beside the library, in an installed tree and in a build, which mirrors one.
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "autotune/database.h"

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

// ---- by name ------------------------------------------------------------------------------------

static const char extension[] = ".yaml";

bool api_ends_in(const char *name, const char *ending) {
  const size_t length = strlen(name), tail = strlen(ending);
  return length > tail && strcmp(name + length - tail, ending) == 0;
}

// The names of those in the folder, "none" where there is none.
static const char *list_names(base_arena *arena, const char *folder) {
  uint32_t count;
  base_text list = {.arena = arena};
  const char *const *paths = tune_database_list(arena, folder, &count);
  for (uint32_t i = 0; i < count; i++) {
    const char *name = strrchr(paths[i], '/') + 1;
    base_text_printf(&list, "%s%.*s", i ? ", " : "", (int)(strlen(name) - (sizeof extension - 1)),
                     name);
  }
  return count ? list.data : "none";
}

const char *api_shared_find(api_call *call, const char *kind, const char *name) {
  base_arena *arena = &call->arena;
  if (strchr(name, '/') != NULL || api_ends_in(name, extension)) return name;
  const char *folder = api_share_folder(arena, base_str_format(arena, "%ss", kind).data);
  if (folder == NULL) folder = "";
  const char *path = base_str_format(arena, "%s/%s%s", folder, name, extension).data;
  if (name[0] != 0 && folder[0] != 0 && access(path, F_OK) == 0) return path;
  base_error(&call->diag, (base_loc){0}, "there is no %s '%s'", kind, name);
  base_hint(&call->diag, "the %ss are %s; the path of another one has a '/' or ends in %s", kind,
            list_names(arena, folder), extension);
  return NULL;
}
