// library: finds and opens shared libraries that may or may not be there.
//
// Memory is asked for only while nothing is open, so a failed allocation, which does not return,
// leaks no library. What was tried is collected as text on the way, since nobody can guess it
// afterwards.
#include "base/base.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PYTHON_PACKAGES "lib/python3*/site-packages/nvidia/*/lib"

const char *const base_cuda_places[] = {
    "$CUDA_HOME/lib64",
    "$CUDA_PATH/lib64",
    "/usr/local/cuda/lib64",
    "", // the system
    "$VIRTUAL_ENV/" PYTHON_PACKAGES,
    "$CONDA_PREFIX/lib",
    "$CONDA_PREFIX/" PYTHON_PACKAGES,
    "$PATH/../" PYTHON_PACKAGES, // of the Python that would be started
    "$HOME/.local/" PYTHON_PACKAGES,
    NULL,
};

typedef struct search {
  base_arena *arena;
  const base_library_spec *spec;
  base_text tried; // "\n    place: what came of it" for each
} search;

// ---- patterns -----------------------------------------------------------------------------------

static void release_glob(void *object) {
  globfree(object);
}

// The paths that match, in order. They live as long as the arena.
static glob_t *match(search *s, const char *pattern) {
  glob_t *paths = base_new(s->arena, glob_t);
  base_defer(s->arena, release_glob, paths);
  if (glob(pattern, 0, NULL, paths) != 0) paths->gl_pathc = 0;
  return paths;
}

// ---- one file, one folder -----------------------------------------------------------------------

static void open_companions(search *s, const char *path) {
  const char *slash = strrchr(path, '/');
  if (s->spec->companions == NULL || slash == NULL) return;
  const base_str pattern =
      base_str_format(s->arena, "%.*s/%s", (int)(slash - path), path, s->spec->companions);
  const glob_t *paths = match(s, pattern.data);
  for (size_t i = 0; i < paths->gl_pathc; i++)
    dlopen(paths->gl_pathv[i], RTLD_NOW | RTLD_LOCAL); // kept: the library will ask for it
}

static void *open_file(search *s, const char *path) {
  open_companions(s, path);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) base_text_printf(&s->tried, "\n    %s", dlerror());
  return handle;
}

static void *open_in_folder(search *s, const char *folder) {
  for (const char *const *soname = s->spec->sonames; *soname; soname++) {
    const char *path = base_str_format(s->arena, "%s/%s", folder, *soname).data;
    void *handle = access(path, F_OK) == 0 ? open_file(s, path) : NULL;
    if (handle) return handle;
  }
  return NULL;
}

// ---- places -------------------------------------------------------------------------------------

static void *open_from_system(search *s) {
  for (const char *const *soname = s->spec->sonames; *soname; soname++) {
    void *handle = dlopen(*soname, RTLD_NOW | RTLD_LOCAL);
    if (handle) return handle;
    // A message about another file: this one is there, but what it needs is not.
    const char *error = dlerror();
    if (strncmp(error, *soname, strlen(*soname)) != 0)
      base_text_printf(&s->tried, "\n    %s: %s", *soname, error);
  }
  base_text_printf(&s->tried, "\n    the system's libraries: not among them");
  return NULL;
}

static void *open_in_pattern(search *s, const char *pattern) {
  const glob_t *folders = match(s, pattern);
  for (size_t i = 0; i < folders->gl_pathc; i++) {
    void *handle = open_in_folder(s, folders->gl_pathv[i]);
    if (handle) return handle;
  }
  return NULL;
}

// "$NAME/rest": in the rest of each folder that the variable lists.
static void *open_in_variable(search *s, const char *place) {
  const size_t name_length = strcspn(place + 1, "/");
  const char *rest = place + 1 + name_length;
  const char *name = base_str_format(s->arena, "%.*s", (int)name_length, place + 1).data;
  const char *value = getenv(name);
  if (value == NULL || value[0] == 0) {
    base_text_printf(&s->tried, "\n    %s: %s is not set", place, name);
    return NULL;
  }
  for (const char *folder = value;; folder++) {
    const size_t length = strcspn(folder, ":");
    void *handle = NULL;
    if (length)
      handle =
          open_in_pattern(s, base_str_format(s->arena, "%.*s%s", (int)length, folder, rest).data);
    if (handle) return handle;
    folder += length;
    if (*folder == 0) break;
  }
  base_text_printf(&s->tried, "\n    %s: not there", place);
  return NULL;
}

static void *open_in_place(search *s, const char *place) {
  if (place[0] == 0) return open_from_system(s);
  if (place[0] == '$') return open_in_variable(s, place);
  void *handle = open_in_pattern(s, place);
  if (handle == NULL) base_text_printf(&s->tried, "\n    %s: not there", place);
  return handle;
}

static void *open_anywhere(search *s) {
  for (const char *const *soname = s->spec->sonames; *soname; soname++) {
    void *handle = dlopen(*soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle) return handle;
  }
  for (const char *const *place = s->spec->places; *place; place++) {
    void *handle = open_in_place(s, *place);
    if (handle) return handle;
  }
  return NULL;
}

// ---- interface ----------------------------------------------------------------------------------

static base_str explain(const search *s, const char *given) {
  const base_library_spec *spec = s->spec;
  if (given)
    return base_str_format(s->arena,
                           "%s could not be opened, where $%s says it is:%.*s\n"
                           "  hint: correct %s, or unset it to look everywhere",
                           spec->name, spec->variable, BASE_FMT(base_text_str(&s->tried)),
                           spec->variable);
  base_text names = {.arena = s->arena};
  for (const char *const *soname = spec->sonames; *soname; soname++)
    base_text_printf(&names, "%s%s", names.length ? ", " : "", *soname);
  return base_str_format(s->arena,
                         "%s is not to be found (%.*s):%.*s\n"
                         "  hint: %s, or let %s name the file",
                         spec->name, BASE_FMT(base_text_str(&names)),
                         BASE_FMT(base_text_str(&s->tried)), spec->advice, spec->variable);
}

bool base_library_open(base_arena *arena, const base_library_spec *spec, void **handle,
                       base_str *found, base_str *why) {
  search s = {.arena = arena, .spec = spec, .tried = {.arena = arena}};
  const char *given = getenv(spec->variable);
  if (given && given[0] == 0) given = NULL;
  *handle = given ? open_file(&s, given) : open_anywhere(&s);
  if (*handle == NULL) {
    *why = explain(&s, given);
    return false;
  }
  struct link_map *map = NULL;
  *found = BASE_STR("");
  if (dlinfo(*handle, RTLD_DI_LINKMAP, &map) == 0) *found = base_str_from(map->l_name);
  return true;
}

const char *base_library_resolve(void *handle, const base_entry_point *entries, size_t count,
                                 void *table) {
  for (size_t i = 0; i < count; i++) {
    void *address = dlsym(handle, entries[i].symbol);
    if (address == NULL) return entries[i].symbol;
    memcpy((char *)table + entries[i].offset, &address, sizeof address);
  }
  return NULL;
}
