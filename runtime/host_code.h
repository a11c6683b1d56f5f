// host_code: machine code for this kind of processor as bytes, that whoever made it need not be there
// to load. Base only.
//
// The code lies anywhere: it reaches its constants relative to itself and calls nothing. So loading
// is a copy. It is written and executed at different times only: pages are never both.
//
// Sections: images, features of processors, checking and loading.
#ifndef FATHOM_RUNTIME_HOST_CODE_H
#define FATHOM_RUNTIME_HOST_CODE_H

#include "base/base.h"
#include "runtime/runtime.h"

// ---- images -------------------------------------------------------------------------------------

#define RT_NO_ENTRY UINT64_MAX

// Of a kernel, as offsets into the code. `prepare` may be RT_NO_ENTRY.
typedef struct rt_host_entry {
  uint64_t body, prepare;
} rt_host_entry;

typedef struct rt_host_image {
  const char *abi;      // RT_HOST_ABI of the processors that it is for
  const char *cpu;      // that it was made for, by LLVM's name
  const char *features; // that it may use, by LLVM's names: "avx,avx2,fma"
  base_str code;
  uint32_t entry_count;
  const rt_host_entry *entries; // one for each kernel of the program
} rt_host_image;

// Instructions and calling convention of code for this process; "" where images cannot be loaded.
#if defined(__x86_64__) && defined(__linux__)
#define RT_HOST_ABI "x86_64-sysv"
#else
#define RT_HOST_ABI ""
#endif

// ---- features of processors (cpu_features.c) ----------------------------------------------------

// What a processor and its system say of themselves: registers of the cpuid instruction.
typedef struct rt_cpu {
  bool known; // not zeroed
  uint32_t leaves[8][4];
  uint32_t saved_state;
} rt_cpu;

// Takes a tenth of a millisecond in a virtual machine, where each question goes to its host.
rt_cpu rt_cpu_read(void);

typedef enum rt_cpu_feature {
  RT_CPU_UNKNOWN, // not in cpu_features.def
  RT_CPU_INERT,   // every processor of this kind has it, or compilers use it only when told to
  RT_CPU_ABSENT,
  RT_CPU_PRESENT,
} rt_cpu_feature;

// By LLVM's name of it.
rt_cpu_feature rt_cpu_find(const rt_cpu *cpu, base_str name);

// ---- checking and loading -----------------------------------------------------------------------

// Can this processor, and this system, run it? If not, UNSUPPORTED names what is missing.
base_status rt_host_check(const rt_host_image *image, const rt_cpu *cpu, base_diag *diag);

typedef struct rt_host_code {
  void *address;
  size_t bytes;
} rt_host_code;

// Copies checked code to memory of its own and fills in the code of each kernel.
base_status rt_host_code_map(const rt_host_image *image, rt_kernel *kernels, rt_host_code *out,
                             base_diag *diag);
void rt_host_code_unmap(rt_host_code *code); // zeroed: does nothing

#endif
