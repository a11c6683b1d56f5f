// run: see run.h. The emulator's device is made for the first code and goes with the last.
#include "double/run.h"

#include "codegen/emulator/emu.h"

#include <stdio.h>
#include <stdlib.h>

struct run_code {
  rt_code *code;
};

static rt_device *device; // under the double's lock
static uint32_t users;

static void explain(base_diag *diag, FILE *stream, char *log, size_t room) {
  const base_str text = base_diag_render(diag);
  if (stream) fprintf(stream, "%.*s\n", BASE_FMT(text));
  if (log && room) snprintf(log, room, "%.*s", BASE_FMT(text));
}

static void leave(void) {
  if (--users > 0) return;
  device->ops->destroy(device);
  device = NULL;
}

static bool enter(int arch, base_diag *diag) {
  const emu_options options = {
      .cache_directory = getenv("FATHOM_CACHE"),
      .facts = {.major = (uint32_t)arch / 10, .minor = (uint32_t)arch % 10}};
  if (users == 0 && emu_device_create(&options, &device, diag) != BASE_OK) return false;
  users++;
  return true;
}

run_code *run_load(const char *text, int arch, char *log, size_t room) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  const rt_image image = {.text = base_str_from(text)};
  run_code *out = NULL;
  rt_code *code = NULL;
  if (enter(arch, &diag)) {
    if (device->ops->load(device, &image, &code, &diag) == BASE_OK) {
      out = malloc(sizeof *out);
      out->code = code;
    } else {
      leave();
    }
  }
  if (out == NULL) explain(&diag, NULL, log, room);
  base_arena_reset(&arena);
  return out;
}

void run_unload(run_code *code) {
  if (code == NULL) return;
  device->ops->unload(device, code->code);
  free(code);
  leave();
}

static rt_function *find(run_code *code, const char *name, uint32_t threads, size_t shared_bytes,
                         base_diag *diag) {
  rt_function *function = NULL;
  device->ops->find(device, code->code, name, threads, shared_bytes, &function, NULL, diag);
  return function;
}

bool run_has_kernel(run_code *code, const char *name, size_t *parameter_bytes) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  const rt_function *function = find(code, name, EMU_WARP, 0, &diag);
  if (function) *parameter_bytes = function->argument_bytes;
  base_arena_reset(&arena);
  return function != NULL;
}

bool run_launch(run_code *code, const run_shape *shape, const void *parameters) {
  base_arena arena;
  base_diag diag;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, BASE_STR(""), BASE_STR(""));
  rt_function *function = find(code, shape->kernel, shape->threads, shape->shared_bytes, &diag);
  bool done = false;
  if (function) {
    const rt_device_launch launch = {.function = function,
                                     .blocks = shape->blocks,
                                     .threads = shape->threads,
                                     .cluster = shape->cluster,
                                     .shared_bytes = shape->shared_bytes,
                                     .spans = shape->spans,
                                     .span_count = shape->span_count,
                                     .parameters = parameters,
                                     .parameter_bytes = function->argument_bytes};
    done = device->ops->launch(device, NULL, &launch, &diag) == BASE_OK;
  }
  if (!done) explain(&diag, stderr, NULL, 0);
  base_arena_reset(&arena);
  return done;
}
