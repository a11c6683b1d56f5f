// emu: the insides of the emulator. A *machine* is what one launch runs on: fibers with their
// stacks, the blocks of one cluster and their shared memory. A device keeps idle machines for the
// next launch. Everything a machine holds is touched by one host thread at a time, so nothing is
// locked while a kernel runs.
//
// Sections: stacks and switches, threads, blocks, machines, scheduling, faults, devices.
#ifndef FATHOM_CODEGEN_EMULATOR_EMU_H
#define FATHOM_CODEGEN_EMULATOR_EMU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdnoreturn.h>

#include "codegen/emulator/emulator.h"
#include "codegen/emulator/emulator_abi.h"

enum {
  EMU_WARP = 32,
  EMU_THREADS_MOST = 1024, // of a block, on every architecture
  EMU_WARPS_MOST = EMU_THREADS_MOST / EMU_WARP,
  EMU_CLUSTER_MOST = 8,
  EMU_BARRIERS = 16,
  EMU_RINGS_MOST = 64,
  EMU_RED_ZONE = 256, // bytes before and behind shared memory
  EMU_BROADCASTS = 1024,
  EMU_WAYS = 4,
  EMU_MESSAGE = 4096,
  EMU_PATH = 4096,
};

// ---- stacks and switches (emu_context.c) --------------------------------------------------------

#if defined __x86_64__ && !defined EMU_UCONTEXT
typedef void *emu_saved; // the stack pointer; the registers are on the stack
#else
#include <ucontext.h>
typedef ucontext_t emu_saved;
#endif

typedef struct emu_context {
  emu_saved saved;
  void *stack; // lowest byte, and size: what AddressSanitizer wants to know
  size_t stack_bytes;
  void *fake_stack; // AddressSanitizer's
} emu_context;

// Whether AddressSanitizer's runtime is in the process, and must be told of every switch.
bool emu_address_sanitizer(void);

// `entry(argument)` will run on the stack of `context`, at the first switch to it. It never
// returns.
void emu_context_make(emu_context *context, void (*entry)(void *argument), void *argument);
// Goes on in `to`; returns when something switches back. `last`: nothing will.
void emu_context_switch(emu_context *from, emu_context *to, bool last);
// What a fiber calls first. `host` learns its stack when it is the one that switched.
void emu_context_begin(emu_context *host);
// Forgets what AddressSanitizer knows of frames on the stack: they were dropped.
void emu_context_drop(emu_context *context);

// ---- threads ------------------------------------------------------------------------------------

typedef enum emu_state {
  EMU_READY,
  EMU_AT_WARP,    // has come to a warp operation, for which lanes of its warp are missing
  EMU_AT_BARRIER, // its warp has come to a named barrier
  EMU_AT_CLUSTER,
  EMU_AT_RING, // waits for a phase of an mbarrier
  EMU_DONE,
} emu_state;

// A copy under way.
typedef struct emu_copy {
  void *to;
  const void *from;
  uint32_t bytes;
  uint32_t tag; // cp.async: number of its group. Bulk: index of its mbarrier
} emu_copy;

// Copies in the order of issue. `data` is malloc'ed and kept for later launches.
typedef struct emu_copies {
  emu_copy *data;
  uint32_t first, end, capacity;
} emu_copies;

typedef struct emu_fiber {
  fm_fiber view; // what generated code sees
  emu_context context;
  struct emu_block *block;
  emu_state state;
  const void *caller;          // where in the kernel its last call of the emulator returns to
  fm_warp_operation operation; // the last one it came to, with its place and operand
  fm_site site;
  void *operand;
  uint32_t detail;        // barrier, or mbarrier, it waits at
  uint32_t patience;      // accesses until another thread gets a turn
  bool slow;              // others go first, mostly
  uint32_t groups;        // of cp.async that it has committed
  emu_copies copies;      // cp.async
  struct emu_fiber *next; // waiting at the same mbarrier
} emu_fiber;

// ---- blocks -------------------------------------------------------------------------------------

typedef struct emu_warp {
  uint32_t arrived, exited; // lanes, as bits
} emu_warp;

typedef struct emu_barrier {
  uint32_t warps;            // that wait, as bits
  uint32_t threads, arrived; // expected, as the first warp said, and come
  fm_site site;              // of the first warp
} emu_barrier;

// An mbarrier. The word in shared memory holds its index; the state is here.
typedef struct emu_ring {
  unsigned long long *word;
  uint32_t arrivals, missing;      // of a phase
  uint32_t phase;                  // that runs; its parity is what waiters name
  uint64_t expected_bytes, on_way; // in this phase: announced, and of copies that were issued
  bool fenced;
  emu_fiber *waiters;
} emu_ring;

typedef struct emu_block {
  struct emu_machine *machine;
  int64_t index;
  uint32_t rank;
  emu_fiber *fibers;
  uint32_t alive;
  char *shared;
  emu_warp warps[EMU_WARPS_MOST];
  emu_barrier barriers[EMU_BARRIERS];
  emu_ring rings[EMU_RINGS_MOST];
  uint32_t ring_count;
  emu_copies bulk;
} emu_block;

// ---- machines (emu_machine.c, emu_launch.c) -----------------------------------------------------

// Who is slow, in one run, for a while.
typedef enum emu_bias {
  EMU_EVEN,       // nobody: all progress alike
  EMU_SLOW_WARPS, // some warps, or blocks, of each cluster
  EMU_SLOW_LANES, // some lanes of all warps
  EMU_BIASES
} emu_bias;

// Distinct bytes of one span, a bit for each.
typedef struct emu_map {
  uint8_t *read, *written;
} emu_map;

// Lanes of one warp that read the same address at the same place do so in one access: how often
// each lane, and the warp, have. Kept for the latest such reads of each warp.
typedef struct emu_broadcast {
  uint64_t address, key; // key: place, bytes and block
  uint32_t lanes, used;  // lanes that read, as bits; when this was last used
  uint32_t seen, lane_seen[EMU_WARP];
} emu_broadcast;

typedef struct emu_machine {
  // Kept between launches.
  struct emu_machine *next_idle;
  emu_fiber *fibers;
  emu_block *blocks;
  emu_fiber **ready[2]; // threads that can go on: others, slow ones
  uint32_t fiber_capacity, block_capacity;
  char *stacks;
  size_t stacks_bytes;
  char *shared;
  size_t shared_capacity;
  // Of the launch that runs.
  const struct emu_device *device;
  const rt_device_launch *launch;
  emu_context host;
  uint32_t ready_count[2], alive, cluster_arrived;
  uint64_t random;
  uint32_t patience; // mean of a fiber's
  emu_bias bias;
  uint64_t salt;       // says which ones
  uint32_t draws_left; // until others are slow
  emu_map *maps;       // one for each span; NULL: nothing is counted
  rt_traffic *traffic;
  emu_broadcast *broadcasts; // EMU_BROADCASTS for each warp, in sets of EMU_WAYS
  uint32_t broadcast_clock;
  bool faulty;
  char fault[EMU_MESSAGE];
  const char *hint;
} emu_machine;

// A machine with room for that; NULL: out of memory.
emu_machine *emu_machine_create(uint32_t blocks, uint32_t threads, size_t shared_bytes);
bool emu_machine_fits(const emu_machine *machine, uint32_t blocks, uint32_t threads,
                      size_t shared_bytes);
void emu_machine_destroy(emu_machine *machine);
void emu_machines_destroy(emu_machine *first); // it and those that follow by next_idle; NULL: none
// Gives each block of the launch its fibers and its shared memory.
void emu_machine_lay_out(emu_machine *machine);

base_status emu_launch(rt_device *device, void *stream, const rt_device_launch *launch,
                       base_diag *diag);

extern const fm_calls emu_calls;

// ---- scheduling (emu_schedule.c) ----------------------------------------------------------------

uint32_t emu_random(emu_machine *machine, uint32_t limit); // below `limit`
// Returns when the thread that runs, which has said in its state what it waits for, is ready and is
// drawn.
void emu_wait(emu_fiber *self);
// Another thread, or this one, goes on.
void emu_yield(emu_fiber *self);
void emu_make_ready(emu_fiber *fiber);
// Sets up all threads of the machine's blocks and runs them to their end, or to a fault.
void emu_run_cluster(emu_machine *machine);

// The thread that runs on this thread of the host.
extern _Thread_local emu_fiber *emu_running;

// For calls from a kernel; `caller` is __builtin_return_address(0).
static inline emu_fiber *emu_enter(const void *caller) {
  emu_running->caller = caller;
  return emu_running;
}

// ---- what primitives do (emu_warp.c, emu_memory.c, emu_copy.c, emu_ring.c) ----------------------

const fm_fiber *emu_self(void);
void emu_warp_call(fm_warp_operation operation, void *operand, fm_site site);
const char *emu_operation_name(fm_warp_operation operation);
// The block is left by `self`: lanes that wait for it never go on, a cluster barrier may.
void emu_warp_exit(emu_fiber *self);
void emu_cluster_check(emu_machine *machine);
// The sums of mma.m16n8k16 of one warp; `lanes` are the registers of its 32 lanes.
void emu_mma(const fm_mma *const *lanes, bool bf16);

void emu_access(const void *at, int bytes, int written, fm_site site);
void emu_shared_access(const void *at, int bytes, fm_site site);
void *emu_cluster_address(const void *shared, int rank, fm_site site);
// A fault unless this access to global memory is allowed; counts it.
void emu_check_access(emu_fiber *self, const void *at, uint32_t bytes, bool written, fm_site site);
// The same for any alignment, and without a turn for others.
void emu_check_global(emu_fiber *self, const void *at, uint32_t bytes, bool written, fm_site site);
// The offset of `at` in the block's shared memory; a fault when it is not in it, or not aligned.
size_t emu_shared_offset(emu_fiber *self, const void *at, uint32_t bytes, uint32_t alignment,
                         fm_site site);
void emu_poison(void *memory, size_t bytes);
void emu_shared_begin(emu_block *block);
// A fault when something was written beside shared memory.
void emu_shared_end(emu_fiber *self, fm_site site);

void emu_copy_async(void *to, const void *from, int bytes, fm_site site);
void emu_copy_commit(void);
void emu_copy_wait(int groups, fm_site site);
void emu_copy_exit(emu_fiber *self); // a fault when copies are under way
void emu_copies_push(emu_fiber *self, emu_copies *copies, emu_copy copy, fm_site site);

void emu_ring_init(unsigned long long *word, int arrivals, fm_site site);
void emu_ring_fence(void);
void emu_ring_arrive(unsigned long long *word, int bytes, fm_site site);
void emu_ring_wait(unsigned long long *word, int parity, fm_site site);
void emu_bulk_copy(void *to, const void *from, int bytes, unsigned long long *word, fm_site site);
void emu_ring_exit(emu_fiber *self); // of the block's last thread

// ---- faults (emu_fault.c) -----------------------------------------------------------------------

// Ends the launch. The message becomes "kernel 'k': thread 5 of block 3 MESSAGE (line 57)".
noreturn void emu_fault(emu_fiber *self, fm_site site, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same with what to do.
noreturn void emu_fault_hint(emu_fiber *self, fm_site site, const char *hint, const char *format,
                             ...) __attribute__((format(printf, 4, 5)));
// All threads wait.
noreturn void emu_deadlock(emu_fiber *self);
// Lanes of the warp of `self` came to different operations, or some have returned.
noreturn void emu_divergence(emu_fiber *self);

// ---- devices (emu_device.c, emu_compile.c) ------------------------------------------------------

typedef struct emu_device {
  rt_device base;
  atomic_uint_fast64_t seed;
  bool sanitize, keep;
  char *compiler;        // path
  char *cache_directory; // NULL: none
  char *kept;            // folder; NULL: none
  pthread_mutex_t lock;  // of the list
  emu_machine *idle;
} emu_device;

struct rt_function {
  struct rt_function *next;
  rt_code *code;
  void (*entry)(const void *arguments);
  uint32_t argument_bytes;
  char name[]; // terminated
};

struct rt_code {
  char *object; // the bytes of the shared object
  size_t object_bytes;
  void *handle;         // of dlopen
  char *text;           // terminated copy
  char *text_name;      // what fm_site.file says in the kernel's own text
  pthread_mutex_t lock; // of the list
  rt_function *functions;
};

// What failed, as plain memory: what must be undone is undone before the caller's diag, whose
// arena may jump away, hears of it.
typedef struct emu_reason {
  base_status status;
  char text[EMU_MESSAGE];
  const char *hint; // NULL: none
} emu_reason;

// The path of the compiler to use, malloc'ed; NULL: see `reason`.
char *emu_find_compiler(const char *wanted, emu_reason *reason);
// Fills `code` but for its lock and functions.
bool emu_compile(const emu_device *device, base_str text, rt_code *code, emu_reason *reason);

// ---- matrix products (emu_matmul.c) -------------------------------------------------------------
// The rows of the device table.

base_status emu_matmul_create(rt_device *device, const rt_matmul_shape *shape,
                              size_t workspace_limit, rt_matmul **out, base_diag *diag);
size_t emu_matmul_workspace(const rt_matmul *matmul);
base_status emu_matmul_run(rt_device *device, const rt_matmul *matmul, const void *a, const void *b,
                           float *d, void *workspace, void *stream, base_diag *diag);
void emu_matmul_destroy(rt_device *device, rt_matmul *matmul);

// ---- other programs (emu_process.c, emu_place.c) ------------------------------------------------

// The file that the shell would run for `name`, malloc'ed; NULL: none.
char *emu_find_program(const char *name);
// Runs it to its end. True when it succeeded; `output`: the beginning of what it printed, or why it
// could not be started.
bool emu_run_program(base_arena *arena, const char *const *arguments, char *output,
                     size_t capacity);

// A new folder with names for two files; goes with the arena.
typedef struct emu_scratch {
  char folder[EMU_PATH], source[EMU_PATH + 16], object[EMU_PATH + 16];
} emu_scratch;

bool emu_scratch_create(base_arena *arena, emu_scratch **out, emu_reason *reason);

// For a message: a place in the text, and where `caller` returns to. Marks that nobody should see.
void emu_place_print(char *text, size_t room, const rt_code *code, fm_site site,
                     const void *caller);
// Takes the marks out of a message. A place becomes "line 412, in fm_load at line 57: const float
// x = ...", or less where less is known.
void emu_place_resolve(const rt_code *code, char *text, size_t room);

#endif
