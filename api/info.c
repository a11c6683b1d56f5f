// info: what this build and this machine have, and what is missing: lines of `key: value`.
#include <dlfcn.h>
#include <stdlib.h>

#include "api/api.h"
#include "codegen/cuda/nvrtc.h"
#include "codegen/emulator/emulator.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/driver.h"

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

// ---- what can be missing ------------------------------------------------------------------------

static void report_missing(base_text *text, base_str why) {
  base_text_printf(text, "missing: ");
  append_joined(text, why);
  base_text_printf(text, "\n");
}

static bool describe_cpu(api_call *call, base_text *text) {
  base_str why;
  const cg_target *target = cg_cpu_target(&call->arena, &why);
  if (target == NULL) {
    report_missing(text, why);
    return false;
  }
  Dl_info library;
  if (dladdr((const void *)target, &library) != 0 && library.dli_fname != NULL)
    base_text_printf(text, "libfathom-cpu: %s\n", library.dli_fname);
  target->describe(text);
  return true;
}

static void describe_gpu(api_call *call, uint32_t ordinal, base_text *text) {
  rt_device_facts facts;
  base_diag diag;
  base_diag_init(&diag, &call->arena, BASE_STR(""), BASE_STR(""));
  if (rt_cuda_facts(ordinal, &facts, &diag) != BASE_OK) {
    report_missing(text, base_str_format(&call->arena, "GPU %u does not answer: %.*s", ordinal,
                                         BASE_FMT(base_diag_render(&diag))));
    return;
  }
  base_text_printf(text, "gpu %u: %s, sm_%u%u, %u multiprocessors, %.1f GiB, L2 %zu MiB\n", ordinal,
                   facts.name, facts.major, facts.minor, facts.multiprocessors,
                   (double)facts.memory_bytes * 0x1p-30, facts.level2_bytes >> 20);
}

// Whether there is a GPU to run on.
static bool describe_driver(api_call *call, base_text *text) {
  base_str path, why;
  if (rt_cuda_open(&call->arena, &path, &why) != BASE_OK) {
    report_missing(text, why);
    return false;
  }
  uint32_t version = rt_cuda_version(), count = rt_cuda_count();
  base_text_printf(text, "driver: %.*s, for CUDA %u.%u, GPUs: %u\n", BASE_FMT(path), version / 1000,
                   version % 1000 / 10, count);
  for (uint32_t i = 0; i < count; i++)
    describe_gpu(call, i, text);
  return count > 0;
}

static bool describe_nvrtc(api_call *call, base_text *text) {
  base_str why;
  const cuda_nvrtc *nvrtc = cuda_nvrtc_open(&call->arena, &why);
  if (nvrtc != NULL) cg_cuda_target()->describe(text);
  if (nvrtc != NULL && cuda_nvrtc_probe(&call->arena, nvrtc, &why)) return true;
  report_missing(text, why);
  return false;
}

static void describe_cublaslt(api_call *call, base_text *text) {
  base_str path, why;
  if (rt_cublaslt_open(&call->arena, &path, &why) != BASE_OK) {
    report_missing(text, why);
    return;
  }
  uint32_t version = rt_cublaslt_version();
  base_text_printf(text, "cublaslt: %u.%u.%u, %.*s\n", version / 10000, version / 100 % 100,
                   version % 100, BASE_FMT(path));
}

static bool describe_emulator(api_call *call, base_text *text) {
  base_str path, why;
  if (!emu_compiler(&call->arena, &path, &why)) {
    report_missing(text, why);
    return false;
  }
  base_text_printf(text, "cuda-emu: kernels are compiled by %.*s\n", BASE_FMT(path));
  return true;
}

// ---- all lines ----------------------------------------------------------------------------------

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
  base_text parts = {.arena = &call->arena};
  bool cpu = describe_cpu(call, &parts);
  bool gpu = describe_driver(call, &parts);
  bool nvrtc = describe_nvrtc(call, &parts);
  describe_cublaslt(call, &parts);
  bool emulator = describe_emulator(call, &parts);
  base_text_printf(&text, "version: %s\n", fathom_version());
  base_text_printf(&text, "targets: %sinterp%s%s\n", cpu ? "cpu, " : "",
                   gpu && nvrtc ? ", cuda" : "", emulator ? ", cuda-emu" : "");
  base_text_printf(&text, "emits: graph, kernel, report, %scuda%s\n", cpu ? "llvm, asm, obj, " : "",
                   nvrtc ? ", ptx, cubin" : "");
  base_text_append(&text, parts.data, parts.length);
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
