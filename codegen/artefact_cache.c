// The artefact cache. A file is a header with the digest of what follows, then the contents.
#include "codegen/artefact_cache.h"

#include <string.h>

#include "generator_id.h" // made by the build, see cmake/GeneratorId.cmake

typedef struct cache_header {
  char magic[8];
  base_hash digest; // of the contents
  uint64_t length;
} cache_header;

static const char magic[8] = {'F', 'A', 'T', 'H', 'O', 'M', 'A', '1'};

const char *cg_generator_id(void) {
  return CG_GENERATOR_ID;
}

static bool is_used(const cg_cache_entry *entry) {
  return entry->directory && entry->directory[0];
}

static const char *file_of(base_arena *arena, const cg_cache_entry *entry) {
  const base_str key = base_hash_hex(arena, entry->key);
  return base_str_format(arena, "%s/%s/%.*s.%s", entry->directory, entry->kind, BASE_FMT(key),
                         entry->extension)
      .data;
}

bool cg_cache_load(base_arena *arena, const cg_cache_entry *entry, base_str *contents) {
  base_str file, why;
  if (!is_used(entry) || base_file_read(arena, file_of(arena, entry), &file, &why) != BASE_OK)
    return false;
  cache_header header;
  if (file.length < sizeof header) return false;
  memcpy(&header, file.data, sizeof header);
  *contents = (base_str){file.data + sizeof header, file.length - sizeof header};
  return memcmp(header.magic, magic, sizeof magic) == 0 && header.length == contents->length &&
         base_hash_equal(header.digest, base_hash_bytes(contents->data, contents->length));
}

void cg_cache_missing(base_arena *arena, const cg_cache_entry *entry, base_diag *diag) {
  base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                    "FATHOM_EXPECT_CACHED is set, and there is no usable code in the cache: %s",
                    is_used(entry) ? file_of(arena, entry) : "it is off");
  base_hint(diag, "run once without it, with the same FATHOM_CACHE, on the same machine");
}

void cg_cache_store(base_arena *arena, const cg_cache_entry *entry, base_str contents) {
  if (!is_used(entry)) return;
  cache_header header = {.digest = base_hash_bytes(contents.data, contents.length),
                         .length = contents.length};
  memcpy(header.magic, magic, sizeof magic);
  base_text text = {.arena = arena};
  base_text_append(&text, (const char *)&header, sizeof header);
  base_text_append(&text, contents.data, contents.length);
  base_str why;
  const char *folder = base_str_format(arena, "%s/%s", entry->directory, entry->kind).data;
  if (base_directory_create(arena, folder, &why) != BASE_OK) return;
  base_file_write(arena, file_of(arena, entry), text.data, text.length, &why);
}
