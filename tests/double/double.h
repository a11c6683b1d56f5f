// Test doubles of NVIDIA's libraries: shared objects that are opened instead of them.
//
//   libcuda-double.so   the driver, over memory of the host. Keeps the rules of the real one (what
//                       must come before what, what a capture forbids), counts all that is not
//                       given back, fails where a test asks it to, runs kernels in the emulator
//   libnvrtc-double.so  a compiler whose machine code has the text in it, for the driver's double
//
// The program finds them as it would find the real ones: FATHOM_LIBCUDA, FATHOM_LIBNVRTC. A test
// steers the driver's double through the table that it exports under DOUBLE_CUDA_SYMBOL.
//
// Environment, read by cuInit: DOUBLE_ARCH (90) the compute capability, DOUBLE_VERSION (13000) the
// driver's version, DOUBLE_DEVICES (1). While the file that DOUBLE_GONE names exists there is no device;
// launch number DOUBLE_LOSE_AFTER makes that file.
#ifndef FATHOM_TESTS_DOUBLE_H
#define FATHOM_TESTS_DOUBLE_H

#include "runtime/cuda/driver_api.h"

#define DOUBLE_CUDA_SYMBOL "double_cuda"

// What an image begins with that is kernels as text for the emulator; a cubin may have such text as
// well (cubin_writer.h).
#define DOUBLE_TEXT_MAGIC "FATHOMTEXT\n"
// Where the prelude for devices ends in the text that NVRTC gets.
#define DOUBLE_PRELUDE_END "// ---- end of the device prelude"

typedef struct double_counts {
  int contexts; // primary ones, as often as they are retained
  int modules, memories, events;
  int depth; // of this thread's stack of contexts
  int launches;
  int violations; // rules of the driver that were broken
} double_counts;

typedef struct double_launch {
  char kernel[128];
  unsigned grid, block, shared_bytes, cluster; // cluster: 0 without the attribute
  bool extended, programmatic;                 // cuLaunchKernelEx; with permission to start early
  CUstream stream;
  CUcontext context;
  unsigned char parameters[64]; // their start
} double_launch;

typedef struct double_control {
  double_counts (*counts)(void);
  const char *(*violation)(void); // the first rule that was broken; "" for none
  int (*calls)(const char *entry);
  double_launch (*last_launch)(void);
  // The `nth` call from now (1: the next) of `entry`, named as in driver.def, returns `result`
  // instead of doing its work. `late`: after doing it, as the driver does where it reports what an
  // earlier launch did wrong. NULL: nothing fails.
  void (*inject)(const char *entry, int nth, CUresult result, bool late);
  bool (*has_failed)(void); // since inject() was called
  // From now on every call that needs a context gives `result`, though it still releases; 0 ends
  // that.
  void (*lose)(CUresult result);
  // `stream` is being captured in the strictest mode; NULL ends it.
  void (*capture)(CUstream stream);
  bool (*capture_is_broken)(void);
  CUcontext (*foreign_context)(void); // one that is nobody's primary
  void (*set_arch)(int arch);         // 80: sm_80
  void (*set_version)(int version);
  // A host pointer that the driver knows; any place within the host's memory.
  CUdeviceptr (*managed)(void);
} double_control;

#endif
