// nvrtc: from CUDA text to machine code, by NVIDIA's run-time compiler. It is opened when it is
// first asked for; Fathom is neither built nor linked with it.
//
// Sections: the compiler, compiling, the cache's part, internals of this folder.
#ifndef FATHOM_CODEGEN_CUDA_NVRTC_H
#define FATHOM_CODEGEN_CUDA_NVRTC_H

#include "base/base.h"
#include "codegen/artefact_cache.h"
#include "codegen/cuda/cubin.h"

// ---- the compiler (nvrtc.c) ---------------------------------------------------------------------

typedef struct cuda_nvrtc_api {
#define ENTRY(result, name, arguments) result(*name) arguments;
#include "codegen/cuda/nvrtc.def"
#undef ENTRY
} cuda_nvrtc_api;

typedef struct cuda_nvrtc {
  cuda_nvrtc_api api;
  uint32_t major, minor; // 13, 0
  uint32_t arch_count;
  int archs[64]; // capabilities it compiles for: 75, 80, ...
  const char *path;
} cuda_nvrtc;

// Thread safe; only success is remembered, so that a repair helps. NULL: *why says what was tried
// and what to do. FATHOM_LIBNVRTC names another file.
const cuda_nvrtc *cuda_nvrtc_open(base_arena *arena, base_str *why);
// "sm_75, sm_80, ..."
base_str cuda_nvrtc_archs(base_arena *arena, const cuda_nvrtc *nvrtc);
// Compiles an empty kernel: NVRTC may be there without the file of built-in functions that it opens
// when it first compiles.
bool cuda_nvrtc_probe(base_arena *arena, const cuda_nvrtc *nvrtc, base_str *why);

// ---- compiling (nvrtc_compile.c, nvrtc_workers.c) -----------------------------------------------

typedef struct cuda_unit {
  const char *name; // in messages: "k3_site.cu"
  base_str text;    // all of it, terminated
} cuda_unit;

typedef struct cuda_binary {
  base_str cubin;
  base_str ptx; // for the same architecture; NVRTC makes it on the way
  base_str log; // warnings, and the assembler's account of registers and spills
  uint32_t kernel_count;
  cuda_kernel_resources *kernels;
  bool from_cache;
} cuda_binary;

typedef struct cuda_compile_options {
  const char *arch;            // "sm_90a", as cuda_arch.name
  const char *cache_directory; // "" or NULL for none
  uint32_t workers;            // threads at most; 0: as many as the machine has processors, up to 8
  bool expect_cached;          // what is not in the cache is an error
} cuda_compile_options;

// Compiles `count` units on several threads; out[i] is that of units[i], whichever thread made it.
// False when any fails: errors of all units are in `diag`, in the order of the units, with the
// lines of generated text that they are about.
bool cuda_compile(base_arena *arena, const cuda_nvrtc *nvrtc, const cuda_compile_options *options,
                  const cuda_unit *units, uint32_t count, cuda_binary *out, base_diag *diag);

// ---- the cache's part (cubin_cache.c) -----------------------------------------------------------

// Where the artefact cache keeps a binary. Everything it depends on goes into the key.
cg_cache_entry cuda_cache_entry(base_arena *arena, const cuda_nvrtc *nvrtc,
                                const cuda_compile_options *options, const cuda_unit *unit);
// False when there is none, or none that is sound.
bool cuda_cache_load(base_arena *arena, const cg_cache_entry *entry, cuda_binary *out);
void cuda_cache_store(base_arena *arena, const cg_cache_entry *entry, const cuda_binary *binary);

// ---- internals of this folder -------------------------------------------------------------------

// What NVRTC is told besides the architecture.
extern const char *const cuda_nvrtc_options[];
enum { CUDA_NVRTC_OPTIONS = 2 };

bool cuda_check_arch(const cuda_nvrtc *nvrtc, const char *arch, base_diag *diag);
// One unit, on the calling thread, past the cache.
bool cuda_compile_unit(base_arena *arena, const cuda_nvrtc *nvrtc, const char *arch,
                       const cuda_unit *unit, cuda_binary *out, base_diag *diag);
// Reads binary->kernels from its cubin and, for spills and barriers, its log.
bool cuda_read_resources(base_arena *arena, cuda_binary *binary, base_str *why);

#endif
