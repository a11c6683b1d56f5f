// The table of known GPUs, and how a name finds its row.
#include <string.h>
#include <strings.h>

#include "codegen/cuda/gpu.h"

enum {
  GPUS = 0
#define GPU(...) +1
#include "codegen/cuda/gpus.def"
#undef GPU
};

static const cuda_gpu gpus[GPUS] = {
#define GPU(name, device, ...) {name, __VA_ARGS__},
#include "codegen/cuda/gpus.def"
#undef GPU
};

static const char *const names[GPUS] = {
#define GPU(name, ...) name,
#include "codegen/cuda/gpus.def"
#undef GPU
};

static const char *const devices[GPUS] = {
#define GPU(name, device, ...) device,
#include "codegen/cuda/gpus.def"
#undef GPU
};

static const char vendor[] = "NVIDIA ";

// Is `word` one of the parts of `list` between its |?
static bool is_listed(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *part = list; part; part = strchr(part, '|')) {
    if (*part == '|') part++;
    if (strncasecmp(part, word, length) == 0 && (part[length] == 0 || part[length] == '|'))
      return true;
  }
  return false;
}

// "sm_90a" and "sm_100f" mean the same silicon as "sm_90" and "sm_100".
static bool is_arch(const char *arch, const char *word) {
  size_t length = strlen(arch);
  if (strncasecmp(arch, word, length) != 0) return false;
  const char *rest = word + length;
  return *rest == 0 || ((*rest == 'a' || *rest == 'f') && rest[1] == 0);
}

const cuda_gpu *cuda_gpu_find(const char *name) {
  if (strncasecmp(name, vendor, sizeof vendor - 1) == 0) name += sizeof vendor - 1;
  if (*name == 0) return NULL;
  for (size_t i = 0; i < GPUS; i++)
    if (strcasecmp(names[i], name) == 0 || is_listed(devices[i], name)) return &gpus[i];
  for (size_t i = 0; i < GPUS; i++)
    if (is_arch(gpus[i].arch, name)) return &gpus[i];
  return NULL;
}

const char *cuda_gpu_device_name(base_arena *arena, const cuda_gpu *gpu) {
  const char *device = devices[gpu - gpus];
  return base_str_format(arena, "%s%.*s", vendor, (int)strcspn(device, "|"), device).data;
}

size_t cuda_gpu_names(const char *const **out) {
  *out = names;
  return GPUS;
}
