// runtime/cuda: the device table (runtime/device.h) over NVIDIA's driver, libcuda.
//
// Sections: the driver, its devices, memory of the caller.
//
// The driver is opened at run time, so Fathom loads, and says what is missing, where there is none.
// Kernels run in a device's primary context, the one that frameworks use. Each call makes it
// current and gives the caller's context back as it was, so any thread may call, also one that
// never had a context. A call that does not launch tells the driver that it may run while another
// stream is being captured; what cannot be captured on its own stream is refused before the driver
// would invalidate the capture.
#ifndef FATHOM_RUNTIME_CUDA_DRIVER_H
#define FATHOM_RUNTIME_CUDA_DRIVER_H

#include "base/base.h"
#include "runtime/device.h"

// ---- the driver ---------------------------------------------------------------------------------

// Opens and starts the driver; later calls are cheap. Thread safe. Only success is remembered, so
// that a repair helps. *path: the file it came from. On failure *why says what was looked for, what
// went wrong and what to do. $FATHOM_LIBCUDA names another file.
base_status rt_cuda_open(base_arena *arena, base_str *path, base_str *why);
// What the driver supports, as 1000 * major + 10 * minor: 12040 is CUDA 12.4. 0 when not open.
uint32_t rt_cuda_version(void);

// ---- its devices --------------------------------------------------------------------------------

// GPUs the driver shows to this process (CUDA_VISIBLE_DEVICES); 0 when not open.
uint32_t rt_cuda_count(void);
base_status rt_cuda_facts(uint32_t ordinal, rt_device_facts *out, base_diag *diag);
// A new object for the device; opens the driver when that has not been done. All objects of one
// device share its primary context, which lives until the last one and the last other user is gone.
// Code, functions, memory and timers must be released before the object.
//
// load() tries the machine code, then the PTX. BASE_UNSUPPORTED: neither suits this device and
// driver, or both are damaged; compile again.
base_status rt_cuda_device_create(uint32_t ordinal, rt_device **out, base_diag *diag);
// The form that was loaded: "cubin" or "ptx".
const char *rt_cuda_code_form(const rt_code *code);

// ---- memory of the caller -----------------------------------------------------------------------

// Whether kernels of `device` may touch `bytes` bytes from `pointer`: memory of this device, or
// managed, and no end before that. `name` is for the message. NULL is fine when bytes is 0.
base_status rt_cuda_check_pointer(rt_device *device, const char *name, const void *pointer,
                                  size_t bytes, base_diag *diag);

#endif
