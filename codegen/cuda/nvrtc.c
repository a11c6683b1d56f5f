// nvrtc: finds NVRTC, fills the table of its entry points and asks what it can do.
//
// The library stays open for the life of the process. Nothing may jump away under the lock, so what
// needs memory is done before it is taken.
#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <pthread.h>

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                      "libnvrtc.so", NULL};

static const base_library_spec spec = {
    .name = "NVRTC",
    .variable = "FATHOM_LIBNVRTC",
    .sonames = sonames,
    .places = base_cuda_places,
    .companions = "libnvrtc-builtins.so.*",
    .advice =
        "install NVRTC (of the CUDA toolkit, or: pip install nvidia-cuda-nvrtc), set CUDA_HOME",
};

static const base_entry_point entries[] = {
#define ENTRY(result, name, arguments) {#name, offsetof(cuda_nvrtc_api, name)},
#include "codegen/cuda/nvrtc.def"
#undef ENTRY
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_nvrtc opened; // written once, under the lock
static bool is_open;      // guarded by the lock

static bool ask(void *handle, base_str path, cuda_nvrtc *out, base_arena *arena, base_str *why) {
  int major = 0, minor = 0, count = 0;
  const char *missing =
      base_library_resolve(handle, entries, sizeof entries / sizeof *entries, &out->api);
  if (out->api.nvrtcVersion) out->api.nvrtcVersion(&major, &minor);
  if (missing) {
    dlclose(handle);
    *why = base_str_format(arena,
                           "NVRTC %d.%d has no entry point %s\n"
                           "  hint: Fathom needs NVRTC 11.2 or newer; FATHOM_LIBNVRTC may name it",
                           major, minor, missing);
    return false;
  }
  out->major = (uint32_t)major;
  out->minor = (uint32_t)minor;
  out->path = path.data; // the loader's text, which stays
  if (out->api.nvrtcGetNumSupportedArchs(&count) == 0 && count > 0 &&
      (size_t)count <= sizeof out->archs / sizeof *out->archs &&
      out->api.nvrtcGetSupportedArchs(out->archs) == 0)
    out->arch_count = (uint32_t)count;
  return true;
}

static bool remembered(void) {
  pthread_mutex_lock(&lock);
  const bool result = is_open;
  pthread_mutex_unlock(&lock);
  return result;
}

// Unless another thread was faster.
static void remember(void *handle, const cuda_nvrtc *found) {
  pthread_mutex_lock(&lock);
  const bool first = !is_open;
  if (first) opened = *found;
  is_open = true;
  pthread_mutex_unlock(&lock);
  if (!first) dlclose(handle);
}

const cuda_nvrtc *cuda_nvrtc_open(base_arena *arena, base_str *why) {
  if (remembered()) return &opened;
  void *handle;
  base_str path;
  cuda_nvrtc found = {.major = 0};
  if (!base_library_open(arena, &spec, &handle, &path, why)) return NULL;
  if (!ask(handle, path, &found, arena, why)) return NULL;
  remember(handle, &found);
  return &opened;
}

base_str cuda_nvrtc_archs(base_arena *arena, const cuda_nvrtc *nvrtc) {
  base_text text = {.arena = arena};
  for (uint32_t i = 0; i < nvrtc->arch_count; i++)
    base_text_printf(&text, "%ssm_%d", i ? ", " : "", nvrtc->archs[i]);
  return base_text_str(&text);
}

bool cuda_nvrtc_probe(base_arena *arena, const cuda_nvrtc *nvrtc, base_str *why) {
  const cuda_unit unit = {"probe.cu", BASE_STR("extern \"C\" __global__ void probe() {}\n")};
  const int capability = nvrtc->arch_count ? nvrtc->archs[nvrtc->arch_count - 1] : 90;
  const base_str arch = base_str_format(arena, "sm_%d", capability);
  cuda_binary binary;
  base_diag diag;
  base_diag_init(&diag, arena, BASE_STR(""), BASE_STR(""));
  if (cuda_compile_unit(arena, nvrtc, arch.data, &unit, &binary, &diag)) return true;
  const base_report *report = &diag.reports.data[0];
  *why = report->hint.length ? base_str_format(arena, "%.*s\n  hint: %.*s",
                                               BASE_FMT(report->message), BASE_FMT(report->hint))
                             : report->message;
  return false;
}
