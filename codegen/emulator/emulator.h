// emulator: a device (runtime/device.h) that runs generated CUDA text on the CPU and checks it. Its
// target is "cuda-emu".
//
// The text is compiled by the host's C++ compiler against prelude_emulator.hpp, which has the
// primitives of prelude_device.cuh a second time, and opened with dlopen. A launch runs the blocks
// (or clusters) one after the other in an order that the seed decides, each thread a fiber on a
// stack of its own, all on the host thread that launches. Whenever threads meet, and now and then
// when they access memory, another thread of the block goes on: which one the seed decides. The
// same seed gives the same run.
//
// What is not allowed on a GPU ends the launch with a message that names threads and lines: see
// docs/debugging-cuda.md for the list. Streams are ignored; a launch has ended when it returns.
// Unlike a GPU's, its launch allocates.
#ifndef FATHOM_CODEGEN_EMULATOR_H
#define FATHOM_CODEGEN_EMULATOR_H

#include "runtime/device.h"

typedef struct emu_options {
  uint64_t seed; // 0: $FATHOM_EMU_SEED, else 1
  // Compile kernels with AddressSanitizer. The process must have its runtime loaded: be built with
  // it, or be started with libasan in LD_PRELOAD. What it finds it reports itself, and the process
  // ends.
  bool sanitize;
  // Without optimisation, for gdb; text and object stay on disk. Also when $FATHOM_EMU_KEEP, the
  // folder to use, is set; else it is a new one in $TMPDIR or /tmp.
  bool keep;
  const char *compiler;        // NULL: $FATHOM_CXX, else the first there is of a short list
  const char *cache_directory; // of compiled kernels; NULL or "": none
  rt_device_facts facts;       // of the emulated GPU; 0 in a limit: no limit
} emu_options;

// UNSUPPORTED when there is no compiler, or no AddressSanitizer where it is asked for. All code
// must be unloaded before the device is destroyed.
base_status emu_device_create(const emu_options *options, rt_device **out, base_diag *diag);
// The C++ compiler that a device would use, for people to know. False: *why says what is missing.
bool emu_compiler(base_arena *arena, base_str *path, base_str *why);
// For launches that begin later.
void emu_device_set_seed(rt_device *device, uint64_t seed);
// Where text and objects are kept; NULL when they are not.
const char *emu_device_kept(const rt_device *device);

#endif
