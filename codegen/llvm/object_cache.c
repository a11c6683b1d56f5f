// The object cache: one file a key, in DIRECTORY/objects. A file is a header with the digest of
// what follows, then the object. It is written under a unique name and renamed, so readers see all
// of it or nothing; whatever is wrong with it, it is treated as absent.
#include <stdio.h>
#include <string.h>

#include "codegen/llvm/cpu.h"
#include "generator_id.h" // made by the build: a digest of the generator's sources

typedef struct cache_header {
  char magic[8];
  base_hash digest; // of the object
  uint64_t length;
} cache_header;

static const char magic[8] = {'F', 'A', 'T', 'H', 'O', 'M', 'O', '1'};

base_hash cpu_cache_key(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine) {
  base_text text = {.arena = arena};
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  base_str graph = base_hash_hex(arena, ir_hash(plan->graph));
  base_text_printf(&text,
                   "generator %s\nllvm %u.%u.%u\ntriple %s\ncpu %s\nfeatures %s\ngraph %.*s\n",
                   CG_GENERATOR_ID, major, minor, patch, machine->triple, machine->cpu,
                   machine->features, BASE_FMT(graph));
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    kir_schedule_print(&plan->kernels[i].kernel->schedule, &text);
    base_text_append(&text, "\n", 1);
  }
  return base_hash_bytes(text.data, text.length);
}

static const char *cache_path(base_arena *arena, const char *directory, base_hash key) {
  return base_str_format(arena, "%s/objects/%.*s.o", directory, BASE_FMT(base_hash_hex(arena, key)))
      .data;
}

bool cpu_cache_load(base_arena *arena, const char *directory, base_hash key, base_str *object) {
  base_str file, why;
  if (base_file_read(arena, cache_path(arena, directory, key), &file, &why) != BASE_OK)
    return false;
  cache_header header;
  if (file.length < sizeof header) return false;
  memcpy(&header, file.data, sizeof header);
  *object = (base_str){file.data + sizeof header, file.length - sizeof header};
  return memcmp(header.magic, magic, sizeof magic) == 0 && header.length == object->length &&
         base_hash_equal(header.digest, base_hash_bytes(object->data, object->length));
}

void cpu_cache_store(base_arena *arena, const char *directory, base_hash key, base_str object) {
  cache_header header = {.digest = base_hash_bytes(object.data, object.length),
                         .length = object.length};
  memcpy(header.magic, magic, sizeof magic);
  base_text text = {.arena = arena};
  base_text_append(&text, (const char *)&header, sizeof header);
  base_text_append(&text, object.data, object.length);
  base_str why;
  const char *folder = base_str_format(arena, "%s/objects", directory).data;
  if (base_directory_create(arena, folder, &why) != BASE_OK) return;
  base_file_write(arena, cache_path(arena, directory, key), text.data, text.length, &why);
}
