// artefact_cache: compiled code on disk, so that the next process need not compile. Objects of the
// cpu target and cubins follow the same rules:
//
//   - one file a key, DIRECTORY/KIND/KEY.EXTENSION; the key is a digest of everything that decides
//     what the code is, the generator (cg_generator_id) among it;
//   - a file is written under a unique name and renamed, so readers see all of it or nothing;
//   - a file that is damaged in any way counts as absent; code that does not load is compiled again;
//   - failing to write is not an error: the next process compiles again.
#ifndef FATHOM_CODEGEN_ARTEFACT_CACHE_H
#define FATHOM_CODEGEN_ARTEFACT_CACHE_H

#include "base/base.h"

typedef struct cg_cache_entry {
  const char *directory;        // "" or NULL: no cache, nothing is loaded or stored
  const char *kind, *extension; // "objects", "o"
  base_hash key;
} cg_cache_entry;

bool cg_cache_load(base_arena *arena, const cg_cache_entry *entry, base_str *contents);
// Says that the code is missing, where compiling is forbidden (cg_options.expect_cached).
void cg_cache_missing(base_arena *arena, const cg_cache_entry *entry, base_diag *diag);
void cg_cache_store(base_arena *arena, const cg_cache_entry *entry, base_str contents);

// A digest of the sources that decide what code is made, for keys: a cache never serves what
// another version of the generator made.
const char *cg_generator_id(void);

#endif
