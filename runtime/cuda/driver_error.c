// driver_error: what the driver's errors mean, in a sentence, and what to do about them.
#include "runtime/cuda/driver_api.h"

#include <stdio.h>

static const struct entry {
  const char *name, *purpose;
} entries[] = {
#define DRIVER(need, name, symbol, purpose, arguments) {#name, purpose},
#include "runtime/cuda/driver.def"
#undef DRIVER
};

typedef enum fate { KEPT, LOST } fate;

typedef struct advice {
  CUresult number;
  const char *name;
  base_status status;
  fate fate; // of the context
  const char *advice;
} advice;

static const advice table[] = {
#define DRIVER_ERROR(number, name, status, fate, advice)                                           \
  {number, "CUDA_ERROR_" #name, BASE_##status, fate, advice},
#include "runtime/cuda/driver_error.def"
#undef DRIVER_ERROR
};

static const advice *find_advice(CUresult number) {
  static const advice unlisted = {
      .name = "an error", .status = BASE_INTERNAL, .advice = "look it up in CUDA's driver API"};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (table[i].number == number) return &table[i];
  return &unlisted;
}

bool rt_cuda_noted(rt_cuda_failure *failure, rt_cuda_entry entry, CUresult result) {
  if (result != CUDA_SUCCESS && failure->result == CUDA_SUCCESS)
    *failure = (rt_cuda_failure){result, entry};
  return result == CUDA_SUCCESS;
}

base_str rt_cuda_failure_text(base_arena *arena, const rt_cuda_failure *failure) {
  const char *name = NULL, *text = NULL;
  // Both fail for numbers that are newer than the driver.
  if (rt_cuda.cuGetErrorName(failure->result, &name) != CUDA_SUCCESS || name == NULL)
    name = find_advice(failure->result)->name;
  if (rt_cuda.cuGetErrorString(failure->result, &text) != CUDA_SUCCESS || text == NULL)
    text = "which the driver does not describe";
  return base_str_format(arena, "%s could not %s: %s (%d), %s", entries[failure->entry].name,
                         entries[failure->entry].purpose, name, failure->result, text);
}

base_status rt_cuda_failure_status(const rt_cuda_failure *failure) {
  return find_advice(failure->result)->status;
}

bool rt_cuda_context_lost(const rt_cuda_failure *failure) {
  return find_advice(failure->result)->fate == LOST;
}

base_str rt_cuda_failure_hint(base_arena *arena, const rt_cuda_failure *failure) {
  const char *lost = "; this process can use the device no more: restart it";
  return base_str_format(arena, "%s%s", find_advice(failure->result)->advice,
                         rt_cuda_context_lost(failure) ? lost : "");
}

base_status rt_cuda_report(base_diag *diag, const rt_cuda_failure *failure, const char *detail) {
  const base_str text = rt_cuda_failure_text(diag->arena, failure);
  const base_str hint = rt_cuda_failure_hint(diag->arena, failure);
  const base_status status = rt_cuda_failure_status(failure);
  base_error_status(diag, status, (base_loc){0}, "%.*s%s", BASE_FMT(text), detail ? detail : "");
  base_hint(diag, "%.*s", BASE_FMT(hint));
  return status;
}
