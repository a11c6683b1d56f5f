// codegen: targets. A target is capability data and a const table of functions; it refuses
// explicitly, with the reason, before anything is compiled.
//
// Sections: options, artefacts, the target table, loading the cpu target.
#ifndef FATHOM_CODEGEN_TARGET_H
#define FATHOM_CODEGEN_TARGET_H

#include "base/base.h"
#include "ir/ir.h"
#include "runtime/device_program.h"
#include "runtime/host_code.h"
#include "runtime/runtime.h"

typedef struct cg_options {
  const char *cpu;             // "host" or an LLVM CPU name
  const char *arch;            // "sm_90a"; the cuda target only
  bool emulate;                // cuda: text for the emulator, which needs no NVRTC
  const char *schedule;        // key=value,...; "" for the default
  const char *schedule_source; // where that comes from: NULL means "given"
  const char *cache_directory; // "" for none
  bool expect_cached;          // code that is not in the cache is an error
  bool portable; // for a bundle: code for the host is made, not loaded, and may be another CPU's
} cg_options;

// What decides how fast a target's code is, besides the code: the machine it is for, and who compiles.
typedef struct cg_identity {
  const char *machine;  // of the cpu target: LLVM's name, lanes and a digest of all features
  const char *compiler; // "LLVM 19.1.7", "NVRTC 13.0"
  uint32_t lanes;       // of the cpu target: f32 lanes of the vectors that it uses by itself
} cg_identity;

// A compiled graph. Lives in its own memory; `release` frees it (and unloads the code).
typedef struct cg_artefact {
  const rt_program *program;
  const rt_device_program *device; // cuda: what rt_device_load takes; NULL for the cpu
  const rt_host_image *host;   // cpu, where cg_options.portable was set: then `program` has no code
  const char *schedule;        // complete, of the first kernel
  const char *schedule_source; // "default", "given" or "tuned"
  bool from_cache;
  void (*release)(struct cg_artefact *artefact);
  void *owner;
} cg_artefact;

typedef struct cg_target {
  const char *name;
  uint32_t abi; // CG_ABI: a target in another shared object must agree
  // A fused graph (IR_STAGE_FUSED) to a program. Temporary memory comes from `arena`. Errors go to
  // `diag`, whose status says of which kind.
  cg_artefact *(*compile)(base_arena *arena, const ir_graph *graph, const cg_options *options,
                          base_diag *diag);
  // What was made, as text or bytes: "kernel" and "report", and of the cpu "llvm", "asm" and "obj",
  // of cuda "cuda", "ptx" and "cubin". "schedules" is for programs: a line for each kernel, its name
  // and its complete schedule. False: see `diag`.
  bool (*emit)(base_arena *arena, const ir_graph *graph, const cg_options *options,
               const char *what, base_str *out, base_diag *diag);
  // Lines of `key: value` about this target (library version, CPU, features).
  void (*describe)(base_text *out);
  // Strings in `arena`; false where the target cannot compile here.
  bool (*identify)(base_arena *arena, cg_identity *out);
} cg_target;

enum { CG_ABI = 4 };

// The cuda target, and that of the emulator: both make CUDA text.
const cg_target *cg_cuda_target(void);

// The cpu target, from libfathom-cpu (opened at the first call, which is thread safe). NULL: *why
// says what is missing and what to install.
const cg_target *cg_cpu_target(base_arena *arena, base_str *why);
// The one symbol libfathom-cpu exports.
#define CG_CPU_SYMBOL "fathom_cpu_target"
typedef const cg_target *(*cg_target_entry)(void);

#endif
