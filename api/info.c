// info: what this build and this machine have, and what is missing: lines of `key: value`.
#include <dlfcn.h>

#include "api/api.h"

// A reason that spans lines becomes one value: its lines joined.
static void append_joined(base_text *text, base_str value) {
  for (size_t i = 0; i < value.length; i++) {
    if (value.data[i] != '\n') {
      base_text_append(text, &value.data[i], 1);
      continue;
    }
    if (text->data[text->length - 1] != ':') base_text_append(text, ";", 1);
    while (i + 1 < value.length && value.data[i + 1] == ' ' && value.data[i + 2] == ' ')
      i++;
  }
}

static void describe_cpu(api_call *call, base_text *text) {
  base_str why;
  const cg_target *target = cg_cpu_target(&call->arena, &why);
  base_text_printf(text, "targets: %s\n", target != NULL ? "cpu, interp" : "interp");
  if (target == NULL) {
    base_text_printf(text, "missing: ");
    append_joined(text, why);
    base_text_printf(text, "\n");
    return;
  }
  Dl_info library;
  if (dladdr((const void *)target, &library) != 0 && library.dli_fname != NULL)
    base_text_printf(text, "libfathom-cpu: %s\n", library.dli_fname);
  target->describe(text);
}

static void describe_processor(base_text *text) {
  rt_processor processor = rt_processor_read();
  if (processor.cores == 0) {
    base_text_printf(text, "processor: unknown to cpuinfo\n");
    return;
  }
  base_text_printf(text, "processor: %s, %u cores, caches %zu KiB, %zu KiB, %zu MiB\n",
                   processor.name, processor.cores, processor.level1_data >> 10,
                   processor.level2 >> 10, processor.level3 >> 20);
}

static fathom_status info_body(api_call *call, void *opaque) {
  base_text text = {.arena = &call->arena};
  const char *cache = call->context->cache_directory;
  rt_executor pool;
  fathom_status status = api_context_pool(call->context, &pool);
  if (status != FATHOM_OK) return status;
  base_text_printf(&text, "version: %s\n", fathom_version());
  describe_cpu(call, &text);
  base_text_printf(&text, "dlpack: versions 1.x taken, built with version %d\n", DLPACK_VERSION);
  describe_processor(&text);
  base_text_printf(&text, "threads: %u\n", pool.concurrency);
  base_text_printf(&text, "cache: %s\n", cache[0] != 0 ? cache : "off");
  return api_text_out(opaque, base_text_str(&text));
}

fathom_status fathom_info(fathom_context *context, fathom_text *out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(out);
  *out = (fathom_text){0};
  return api_call_run(context, info_body, out);
}
