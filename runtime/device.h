// runtime: devices. What a GPU behind a driver, and the emulator that stands in for one, offer to
// the launcher: memory, code, launches and time. Base only; no compiler.
//
// Sections: facts, images, launches, the device table.
//
// Nothing here is specific to a vendor's driver: runtime/cuda implements the table over libcuda,
// codegen/emulator over fibers on the host. All functions may be called from any thread. They
// return a status and report what failed, with the driver's name and text of the error and what to
// do, in `diag`.
#ifndef FATHOM_RUNTIME_DEVICE_H
#define FATHOM_RUNTIME_DEVICE_H

#include "base/base.h"
#include "runtime/matmul.h"

// ---- facts --------------------------------------------------------------------------------------

typedef struct rt_device_facts {
  char name[96];
  uint32_t major, minor; // compute capability: 9, 0 for sm_90
  uint32_t multiprocessors;
  uint32_t threads_per_block, threads_per_multiprocessor, blocks_per_multiprocessor;
  uint32_t registers_per_multiprocessor; // 32-bit
  size_t shared_per_block;               // bytes a block may opt in to
  size_t shared_per_multiprocessor;      // bytes
  size_t shared_reserved;                // bytes the system takes of each block's share
  size_t level2_bytes, memory_bytes;
} rt_device_facts;

// ---- images -------------------------------------------------------------------------------------

// One translation unit in the forms there are, best first; absent ones are empty. A device loads
// the first it can: machine code, else the virtual assembly, which the driver compiles. The
// emulator takes the text.
typedef struct rt_image {
  base_str cubin, ptx, text;
} rt_image;

typedef struct rt_code rt_code;         // a loaded image
typedef struct rt_function rt_function; // a kernel in it

// ---- launches -----------------------------------------------------------------------------------

// Memory a kernel may touch, for devices that check (`checks_memory`): the extent of one argument.
typedef struct rt_span {
  const char *name; // of the slot, without %
  char *data;
  size_t bytes;
  bool written;
} rt_span;

// Bytes that one launch moved through one span: as counted for each access of each thread, and as
// distinct bytes. In the order of the launch's spans.
typedef struct rt_traffic {
  uint64_t read, written, read_once, written_once;
} rt_traffic;

typedef struct rt_device_launch {
  rt_function *function;
  int64_t blocks;         // at most 2^31 - 1 along the only grid axis
  uint32_t threads;       // of a block
  uint32_t cluster;       // blocks of a cluster; 1: none. Divides `blocks`
  size_t shared_bytes;    // dynamic
  bool programmatic;      // may start before the launch before it on the stream has ended (PDL)
  const void *parameters; // the kernel's only parameter, a struct by value
  size_t parameter_bytes;
  // For devices that check; else not looked at.
  uint32_t span_count;
  const rt_span *spans;
  rt_traffic *traffic; // NULL, or one for each span, added to
} rt_device_launch;

// ---- the device table ---------------------------------------------------------------------------

typedef struct rt_device rt_device;
typedef struct rt_timer rt_timer; // a pair of events

typedef struct rt_device_ops {
  const char *target; // "cuda", "cuda-emu"
  bool host_memory;   // kernels see the host's addresses: nothing is copied
  bool checks_memory; // wants spans
  void (*destroy)(rt_device *device);
  base_status (*load)(rt_device *device, const rt_image *image, rt_code **out, base_diag *diag);
  void (*unload)(rt_device *device, rt_code *code);
  // The kernel of that name, ready for launches with up to `shared_bytes` of dynamic shared memory.
  // Lives as long as its code. `blocks_per_multiprocessor` (may be NULL): how many blocks of
  // `threads` threads fit at once.
  base_status (*find)(rt_device *device, rt_code *code, const char *name, uint32_t threads,
                      size_t shared_bytes, rt_function **out, uint32_t *blocks_per_multiprocessor,
                      base_diag *diag);
  // Allocates nothing and waits for nothing. `stream` is the driver's handle; NULL is the default.
  base_status (*launch)(rt_device *device, void *stream, const rt_device_launch *launch,
                        base_diag *diag);
  base_status (*allocate)(rt_device *device, size_t bytes, void **out, base_diag *diag);
  void (*release)(rt_device *device, void *memory);
  // Between host and device, or within either, told by the addresses. Ordered on the stream. Waits
  // where an end is the host's, whose memory is free again when the call returns; else does not.
  base_status (*copy)(rt_device *device, void *stream, void *to, const void *from, size_t bytes,
                      base_diag *diag);
  base_status (*fill)(rt_device *device, void *stream, void *to, int byte, size_t bytes,
                      base_diag *diag);
  base_status (*synchronize)(rt_device *device, void *stream, base_diag *diag);
  base_status (*timer_create)(rt_device *device, rt_timer **out, base_diag *diag);
  base_status (*timer_start)(rt_device *device, rt_timer *timer, void *stream, base_diag *diag);
  // Waits for what was launched in between.
  base_status (*timer_stop)(rt_device *device, rt_timer *timer, void *stream, double *microseconds,
                            base_diag *diag);
  void (*timer_destroy)(rt_device *device, rt_timer *timer);
  // Optional, all of them or none: matrix products. Making one may allocate and wait; running it
  // does neither. UNSUPPORTED when the library is missing.
  base_status (*matmul_create)(rt_device *device, const rt_matmul_shape *shape,
                               size_t workspace_limit, rt_matmul **out, base_diag *diag);
  size_t (*matmul_workspace)(const rt_matmul *matmul); // bytes, 16-byte aligned
  base_status (*matmul_run)(rt_device *device, const rt_matmul *matmul, const void *a,
                            const void *b, float *d, void *workspace, void *stream,
                            base_diag *diag);
  void (*matmul_destroy)(rt_device *device, rt_matmul *matmul);
} rt_device_ops;

// Implementations begin with this struct.
struct rt_device {
  const rt_device_ops *ops;
  rt_device_facts facts;
};

#endif
