// cubin_cache: a compiled unit as one entry of the artefact cache: three lengths, then cubin, PTX
// and log. What its kernels take is read from them again.
#include "codegen/cuda/nvrtc.h"

#include <string.h>

enum { PARTS = 3 };

cg_cache_entry cuda_cache_entry(base_arena *arena, const cuda_nvrtc *nvrtc,
                                const cuda_compile_options *options, const cuda_unit *unit) {
  const base_hash digest = base_hash_bytes(unit->text.data, unit->text.length);
  base_text key = {.arena = arena};
  base_text_printf(&key, "generator %s\nnvrtc %u.%u\narch %s\nname %s\ntext %.*s\n",
                   cg_generator_id(), nvrtc->major, nvrtc->minor, options->arch, unit->name,
                   BASE_FMT(base_hash_hex(arena, digest)));
  for (uint32_t i = 0; i < CUDA_NVRTC_OPTIONS; i++)
    base_text_printf(&key, "option %s\n", cuda_nvrtc_options[i]);
  return (cg_cache_entry){.directory = options->cache_directory,
                          .kind = "cubins",
                          .extension = "bin",
                          .key = base_hash_bytes(key.data, key.length)};
}

bool cuda_cache_load(base_arena *arena, const cg_cache_entry *entry, cuda_binary *out) {
  base_str file, why;
  uint64_t lengths[PARTS];
  *out = (cuda_binary){.from_cache = true};
  base_str *const parts[PARTS] = {&out->cubin, &out->ptx, &out->log};
  if (!cg_cache_load(arena, entry, &file) || file.length < sizeof lengths) return false;
  memcpy(lengths, file.data, sizeof lengths);
  base_str rest = {file.data + sizeof lengths, file.length - sizeof lengths};
  for (uint32_t i = 0; i < PARTS; i++) {
    if (lengths[i] > rest.length) return false;
    const size_t length = (size_t)lengths[i];
    *parts[i] = base_str_copy(arena, (base_str){rest.data, length}); // aligned and terminated
    rest = (base_str){rest.data + length, rest.length - length};
  }
  return rest.length == 0 && cuda_read_resources(arena, out, &why);
}

void cuda_cache_store(base_arena *arena, const cg_cache_entry *entry, const cuda_binary *binary) {
  const base_str parts[PARTS] = {binary->cubin, binary->ptx, binary->log};
  base_text text = {.arena = arena};
  for (uint32_t i = 0; i < PARTS; i++) {
    const uint64_t length = parts[i].length;
    base_text_append(&text, (const char *)&length, sizeof length);
  }
  for (uint32_t i = 0; i < PARTS; i++)
    base_text_append(&text, parts[i].data, parts[i].length);
  cg_cache_store(arena, entry, base_text_str(&text));
}
