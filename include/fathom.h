// Fathom: fused kernels for attention over depth.
//
// The whole public interface. Life of a kernel:
//
//   fathom_context *ctx;      fathom_context_create(NULL, &ctx);
//   fathom_module *module;    fathom_parse(ctx, text, length, "site.fir", &module);
//   fathom_graph *graph;      fathom_module_graph(module, NULL, &graph); // the file's only graph
//   fathom_graph_bind(graph, "D", 7168);
//   fathom_executable *exe;   fathom_compile(ctx, graph, NULL, &exe);    // for this CPU
//   fathom_workspace_size(exe, args, count, &bytes);
//   fathom_run(exe, args, count, workspace, bytes, NULL);
//
// Rules that hold throughout
// - Every fallible call returns a fathom_status; fathom_error_text() then says what went wrong, on
//   the same thread, until the next call. The library never prints, never exits, never changes
//   signal handlers.
// - Objects are freed by their own destroy function; NULL is allowed there. A module owns its
//   graphs; a context must outlive what was made with it: devices are opened when a compilation
//   first needs them and closed with the context.
// - Threads: a context may be used from any number of threads at once, and so may an executable (it
//   is immutable). A module and its graphs belong to one thread at a time.
// - Structs start with `size`, set to sizeof by the caller (FATHOM_INIT does), so that later
//   versions can add members: members a caller's header does not know are taken as zero.
// - Strings returned are terminated, owned by the object they came from.
// - Offsets are 64-bit everywhere; sizes are in elements unless a name says bytes.
#ifndef FATHOM_H
#define FATHOM_H

#include <stddef.h>
#include <stdint.h>

#include <dlpack/dlpack.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FATHOM_VERSION_MAJOR 0
#define FATHOM_VERSION_MINOR 1
#define FATHOM_VERSION_PATCH 0

#if defined(__GNUC__)
#define FATHOM_API __attribute__((visibility("default")))
#else
#define FATHOM_API
#endif

// A zeroed struct with its size set: fathom_compile_options options = FATHOM_INIT(options);
#define FATHOM_INIT(object) {.size = sizeof(object)}

// ---- status -------------------------------------------------------------------------------------

typedef enum fathom_status {
  FATHOM_OK = 0,
  FATHOM_INVALID = 1,     // the input is wrong; the text says where and what to do
  FATHOM_UNSUPPORTED = 2, // right input, but this build, target or machine cannot do it
  FATHOM_IO = 3,          // a file could not be read or written
  FATHOM_MEMORY = 4,      // out of memory; nothing was changed
  FATHOM_INTERNAL = 5     // a bug in Fathom: please report the text
} fathom_status;

FATHOM_API const char *fathom_status_name(fathom_status status);
// What the last failing call on this thread said; may span several lines. Empty after success.
FATHOM_API const char *fathom_error_text(void);
FATHOM_API const char *fathom_version(void); // "0.1.0"

// ---- context ------------------------------------------------------------------------------------

typedef struct fathom_context fathom_context;

typedef struct fathom_context_options {
  size_t size;
  // Compilation memory comes from here; NULL members mean malloc and free. Called from several
  // threads.
  void *allocator_user;
  void *(*allocate)(void *user, size_t bytes);
  void (*release)(void *user, void *pointer);
  // Folder of the object cache. NULL: $FATHOM_CACHE, else $XDG_CACHE_HOME/fathom, else
  // ~/.cache/fathom. "" turns the cache off. A folder named here or by $FATHOM_CACHE must be
  // readable, or creatable: else compiling fails with FATHOM_IO. What lies in it may be damaged:
  // then it is compiled again.
  const char *cache_directory;
  // Threads of the library's own pool; 0: one for each core this process may use.
  uint32_t threads;
} fathom_context_options;

FATHOM_API fathom_status fathom_context_create(const fathom_context_options *options,
                                               fathom_context **out);
FATHOM_API void fathom_context_destroy(fathom_context *context);

// ---- graphs -------------------------------------------------------------------------------------

typedef struct fathom_module fathom_module;
typedef struct fathom_graph fathom_graph;

typedef enum fathom_dtype {
  FATHOM_F32 = 0,
  FATHOM_BF16 = 1,
  FATHOM_F16 = 2,
  FATHOM_F8E4M3 = 3, // OCP FP8 E4M3: no infinities, at most 448 (float8_e4m3fn)
} fathom_dtype;

enum { FATHOM_MAX_RANK = 8, FATHOM_DYNAMIC = -1 };

// A parameter or a result. Result names are the names of the returned values.
typedef struct fathom_tensor_info {
  size_t size;
  const char *name; // without %
  fathom_dtype dtype;
  uint32_t rank;
  const char *axes[FATHOM_MAX_RANK];
  int64_t sizes[FATHOM_MAX_RANK];   // FATHOM_DYNAMIC where unbound
  uint32_t layout[FATHOM_MAX_RANK]; // memory order, outermost first, as positions in `axes`
} fathom_tensor_info;

// `length` bytes of IR text (docs/ir.md); `file` is used in messages only and may be NULL. All
// errors of the text are reported in one go, each with line, column and caret.
FATHOM_API fathom_status fathom_parse(fathom_context *context, const char *text, size_t length,
                                      const char *file, fathom_module **out);
FATHOM_API void fathom_module_destroy(fathom_module *module);
FATHOM_API uint32_t fathom_module_count(const fathom_module *module);
// The graph of that name (without @); NULL when the module holds exactly one.
FATHOM_API fathom_status fathom_module_graph(fathom_module *module, const char *name,
                                             fathom_graph **out);
FATHOM_API fathom_graph *fathom_module_graph_at(fathom_module *module,
                                                uint32_t index); // NULL past the end

FATHOM_API const char *fathom_graph_name(const fathom_graph *graph);
// Binds a symbolic axis to a size >= 0. Compiled executables are not affected.
FATHOM_API fathom_status fathom_graph_bind(fathom_graph *graph, const char *axis, int64_t size);
FATHOM_API uint32_t fathom_graph_param_count(const fathom_graph *graph);
FATHOM_API uint32_t fathom_graph_result_count(const fathom_graph *graph);
// FATHOM_INVALID past the end. `info->size` must be set.
FATHOM_API fathom_status fathom_graph_param(const fathom_graph *graph, uint32_t index,
                                            fathom_tensor_info *info);
FATHOM_API fathom_status fathom_graph_result(const fathom_graph *graph, uint32_t index,
                                             fathom_tensor_info *info);

// ---- passes -------------------------------------------------------------------------------------

// Text that a call hands to its caller; free with fathom_text_destroy. `data` is also 0-terminated.
typedef struct fathom_text {
  char *data;
  size_t length;
} fathom_text;

FATHOM_API void fathom_text_destroy(fathom_text *text);

typedef struct fathom_optimize_options {
  size_t size;
  const char *passes;  // comma-separated names; NULL: the target's pipeline; "" only verifies
  int print_after_all; // the graph after each pass, in `log`
  int verify_each; // verify after each pass, and write a reproducer when a pass breaks the graph
  int time_passes; // microseconds for each pass, in `log`
  const char *reproducer; // where that goes; NULL: fathom-repro.fir
  const char
      *target; // whose pipeline NULL `passes` means, as in fathom_compile_options; interp's is
               // empty
} fathom_optimize_options;

// Runs graph passes and returns the new graph as text. `log` may be NULL.
FATHOM_API fathom_status fathom_optimize(fathom_context *context, const fathom_graph *graph,
                                         const fathom_optimize_options *options, fathom_text *out,
                                         fathom_text *log);
// One line a pass: name, needs, gives, what it does.
FATHOM_API fathom_status fathom_pass_list(fathom_text *out);

// ---- compiling ----------------------------------------------------------------------------------

typedef struct fathom_executable fathom_executable;

typedef struct fathom_compile_options {
  size_t size;
  // "cpu" (default); "interp", the reference; "cuda", an NVIDIA GPU; "cuda-emu", the text for such a
  // GPU compiled for the CPU and checked as it runs. The last two take an architecture,
  // "cuda:sm_90a". Without one, cuda means that of this machine's GPU, or sm_90 where there is none
  // and text or code is only emitted; cuda-emu means sm_90.
  const char *target;
  const char
      *cpu; // -mcpu name, for the cpu target; NULL or "host": this machine. Any CPU's code can
            // be emitted; only that of CPUs with no features that this machine lacks can be run.
  const char *schedule; // key=value,... over the default (docs/schedule.md); NULL: the default
  int verify_each;
  int reserved; // not read: the first version had padding here
  int sanitize; // cuda-emu: kernels with AddressSanitizer, whose runtime the process must have
} fathom_compile_options;

FATHOM_API fathom_status fathom_compile(fathom_context *context, const fathom_graph *graph,
                                        const fathom_compile_options *options,
                                        fathom_executable **out);
FATHOM_API void fathom_executable_destroy(fathom_executable *executable);

// The knobs of a schedule, one line each: name, range, default, what it does.
FATHOM_API fathom_status fathom_schedule_list(fathom_text *out);

// What was made. `what`: graph (after the passes), kernel, report; of the cpu target also llvm, asm
// and obj; of cuda also cuda (the text, which needs neither NVRTC nor driver), ptx and cubin.
FATHOM_API fathom_status fathom_emit(fathom_context *context, const fathom_graph *graph,
                                     const fathom_compile_options *options, const char *what,
                                     fathom_text *out);

typedef struct fathom_executable_info {
  size_t size;
  const char *graph;
  const char *target;
  const char *schedule;        // of the first kernel, complete: parses back to the same schedule
  const char *schedule_source; // "default", "given", "tuned" or, for a GPU, "model"
  uint32_t kernel_count;
  int from_cache;     // the object came from the cache
  double compile_us;  // wall time of fathom_compile
  const char *kernel; // name of the first kernel; "" for interp
  const char *arch;   // of the GPU it was compiled for: "sm_90a"; "" for cpu and interp
  const char *device; // that it runs on, by the driver's name for it; "" for cpu and interp
} fathom_executable_info;

FATHOM_API fathom_status fathom_executable_get_info(const fathom_executable *executable,
                                                    fathom_executable_info *info);

// How the schedule of one kernel is chosen. Strings are valid during the callback.
typedef struct fathom_choice {
  size_t size;
  const char *graph;    // without @
  const char *kernel;   // "" for interp, which has none
  const char *target;   // with the architecture of a GPU: "cuda:sm_90a"
  const char *axes;     // those with a size: "B=8 D=7168 N=9"
  int64_t rows;         // of the runs that this is for; 0: of any number
  const char *schedule; // complete
  // "given"; "tuned", for as many rows; "nearest", for another number of them; "model", ranked for a GPU by
  // the cost model; "default".
  const char *source;
  int64_t tuned_rows; // that it was tuned for; 0: it was not
  // Records of tuning for this graph that are not taken, and why, with "; " between them: "rows 64,
  // warm caches, of 2026-11-30: compiler 'LLVM 18' (here 'LLVM 19')". "" where there are none.
  const char *refused;
} fathom_choice;

typedef void fathom_explain_report(void *user, const fathom_choice *choice);

// Says for each kernel how fathom_compile with these options would choose its schedule now, for runs of
// so many rows (the sizes of the dynamic axes, multiplied). With 0 for any number: then there are
// several reports of a kernel when it was tuned for several numbers of rows. Reads all files of records;
// needs no GPU.
FATHOM_API fathom_status fathom_explain(fathom_context *context, const fathom_graph *graph,
                                        const fathom_compile_options *options, int64_t rows,
                                        fathom_explain_report *report, void *user);

// Parameters and results of what was compiled, in the graph's order. Their layout is the order of
// the type's axes, which compiled code does not depend on. FATHOM_INVALID past the end.
FATHOM_API uint32_t fathom_executable_param_count(const fathom_executable *executable);
FATHOM_API uint32_t fathom_executable_result_count(const fathom_executable *executable);
FATHOM_API fathom_status fathom_executable_param(const fathom_executable *executable,
                                                 uint32_t index, fathom_tensor_info *info);
FATHOM_API fathom_status fathom_executable_result(const fathom_executable *executable,
                                                  uint32_t index, fathom_tensor_info *info);

// ---- compiled ahead -----------------------------------------------------------------------------

// Compiles the graph for each of `count` targets, "cpu" or "cuda:sm_90a", under all schedules that
// are known for it, and writes the code to one piece of bytes, a bundle (docs/bundles.md). Nothing
// is loaded: neither a GPU nor the CPU that `options->cpu` names need be there. `options` may be
// NULL; its target is not read, and what other targets have no use for is for those that do.
FATHOM_API fathom_status fathom_executable_save(fathom_context *context, const fathom_graph *graph,
                                                const char *const *targets, uint32_t count,
                                                const fathom_compile_options *options,
                                                fathom_text *out);

// What fathom_compile would give, from a bundle, with neither LLVM nor NVRTC: the code for `target`
// (NULL: "cpu") that suits this machine best; FATHOM_UNSUPPORTED tells what there is when none does.
// A bundle that is damaged anywhere is FATHOM_INVALID. It holds machine code: load only what you
// would run as a program. The bytes are not needed afterwards.
FATHOM_API fathom_status fathom_executable_load(fathom_context *context, const void *bytes,
                                                size_t length, const char *target,
                                                fathom_executable **out);

// ---- running ------------------------------------------------------------------------------------

// A tensor bound to a parameter or a result by name. Axis order is the type's, whatever the layout;
// strides (in elements, NULL for dense) may be any, negative and, for inputs, zero too. dtype must
// be the type's (bf16: kDLBfloat, 16 bits; f8e4m3: DLPack 1.1's kDLFloat8_e4m3fn, which is 10, or
// kDLUInt for the codes, with 8 bits). A bank held as separate slices: `tensor` NULL and
// `slices` has one tensor, without the first axis of the type, for each index of it.
//
// Memory is the host's for the cpu, interp and cuda-emu targets. For cuda it is the executable's
// device's (kDLCUDA with its number, or kDLCUDAManaged). When *all* tensors are in host memory they
// are copied to the device and back, which allocates and waits: for tools and tests, not for
// serving.
typedef struct fathom_arg {
  const char *name; // without %
  const DLTensor *tensor;
  const DLTensor *const *slices;
  uint32_t slice_count;
} fathom_arg;

// The exchange struct of DLPack 1.0, for hosts whose header has it while Fathom was built with an
// older one.
typedef struct fathom_dlpack_versioned {
  struct {
    uint32_t major, minor;
  } version;
  void *manager_ctx;
  void (*deleter)(struct fathom_dlpack_versioned *self);
  uint64_t flags; // bit 0: read only
  DLTensor dl_tensor;
} fathom_dlpack_versioned;

// The tensor inside a versioned capsule, which stays the owner. A major version other than 1 is
// FATHOM_UNSUPPORTED; a read-only tensor with `for_writing` is FATHOM_INVALID.
FATHOM_API fathom_status fathom_from_dlpack_versioned(const fathom_dlpack_versioned *managed,
                                                      int for_writing, const DLTensor **out);

// What a run runs on. The cpu target: `parallel_for` runs `count` independent calls of
// work(argument, index), index 0 .. count-1, on up to `concurrency` threads, and returns when all
// are done. The cuda target looks at `stream` and `check_pointers` only, and may have the rest zero.
typedef struct fathom_executor {
  size_t size;
  void *user;
  uint32_t concurrency; // how many calls can run at once, at least 1
  void (*parallel_for)(void *user, size_t count, void (*work)(void *argument, size_t index),
                       void *argument);
  void *stream;       // CUstream, which is also cudaStream_t; NULL: the default stream
  int check_pointers; // refuse addresses that the device cannot reach instead of letting a kernel
                      // fail; costs some microseconds. For finding mistakes
} fathom_executor;

// Bytes of workspace fathom_run needs for these tensors (shapes and strides are read, data is not)
// and this executor; NULL: the library's pool, or the default stream. 0 is possible, and is the
// answer for host tensors on the cuda target.
FATHOM_API fathom_status fathom_workspace_size(const fathom_executable *executable,
                                               const fathom_arg *args, uint32_t arg_count,
                                               const fathom_executor *executor, size_t *bytes);

// Binds every parameter and every result exactly once and runs. The caller owns all memory; the
// call allocates nothing on the cpu target, and is re-entrant as long as each call has its own
// outputs and workspace. An output may not overlap an input or another output. Results do not depend
// on the number of threads. A dynamic axis of size 0 succeeds and writes nothing.
//
// The workspace is 64-byte aligned, for cuda and cuda-emu 128-byte; for cuda it is memory of the
// device. A run on cuda launches on the executor's stream and returns without waiting; it allocates
// no memory of the device, and of the host only to bind more than 64 tensors or 256 slices, so it
// may be captured in a graph.
FATHOM_API fathom_status fathom_run(const fathom_executable *executable, const fathom_arg *args,
                                    uint32_t arg_count, void *workspace, size_t workspace_bytes,
                                    const fathom_executor *executor);

// ---- checking and measuring ---------------------------------------------------------------------

// How one result compares with the reference interpreter: error = ||out - ref|| / ||ref||, over all
// elements that are finite in both; elements that are not must be equal in kind, else error is
// infinite.
typedef struct fathom_check_result {
  size_t size;
  const char *name; // of the result; valid during the callback
  uint32_t seed;
  double error, bound; // bound: docs/ir.md, "Numerics"
  int passed;
} fathom_check_result;

// Bytes that one argument's memory was seen to move: cuda-emu counts each access of each thread.
typedef struct fathom_traffic {
  size_t size;
  const char *name;                         // without %; valid during the callback
  uint64_t read, written;                   // all
  uint64_t read_distinct, written_distinct; // bytes moved at least once
  uint64_t read_minimum, written_minimum;   // that must move: each input once, each output once
} fathom_traffic;

typedef struct fathom_check_options {
  size_t size;
  uint32_t seeds;       // random input sets; 0 means 3
  int64_t dynamic_size; // size of unbound row axes; 0 means 67
  int empty;            // unbound row axes have size 0 instead: nothing may be written
  uint32_t misalign;    // place every tensor this many elements past a 64-byte boundary
  int strided;          // rows and outer axes get padding between them
  void (*report)(void *user, const fathom_check_result *result); // may be NULL
  void *user;
  // cuda-emu: called for each argument, and each temporary between kernels, of the first seed's run.
  void (*traffic)(void *user, const fathom_traffic *traffic); // may be NULL
} fathom_check_options;

// Compiles the graph for the target, runs it on random inputs and compares every result with the
// interpreter. FATHOM_OK with *failures == 0 when all are within bounds. Red zones around outputs
// are checked too.
//
// On cuda-emu each seed is also that of the order in which threads run, unless $FATHOM_EMU_SEED says
// another one; checks at the same time in one context share that order. What the emulator finds
// wrong with a kernel ends the check with FATHOM_INTERNAL and the finding as text.
FATHOM_API fathom_status fathom_check(fathom_context *context, const fathom_graph *graph,
                                      const fathom_compile_options *compile,
                                      const fathom_check_options *options, uint32_t *failures);

// What a run finds in the caches: what is left of the runs before it (a site whose bank was just
// written), or nothing of its own (a layer's sources, after a whole layer).
typedef enum fathom_cache {
  FATHOM_CACHE_DEFAULT = 0, // cold on cuda, warm on the others
  FATHOM_CACHE_WARM = 1,    // the same memory in every run
  // Other memory in every run, until it is twice what the caches hold: the level 2 cache on cuda, all
  // caches of all cores on the others, as the system says or $FATHOM_CPU_CACHE_MB.
  FATHOM_CACHE_COLD = 2,
} fathom_cache;

typedef struct fathom_bench_options {
  size_t size;
  int64_t dynamic_size; // size of unbound row axes; 0 means 1024
  double seconds;       // about how long to measure; 0 means 2
  fathom_cache cache;
} fathom_bench_options;

typedef struct fathom_bench_result {
  size_t size;
  double median_us, minimum_us; // of one fathom_run, on the context's pool or the device
  double spread;                // (third quartile - first quartile) / median
  uint64_t bytes;               // that must move: every input read once, every output written once
  double gb_s;                  // bytes / median
  double ceiling_gb_s;    // the best copy-like stream with the same read and write mix, same run
  double of_ceiling;      // gb_s / ceiling_gb_s
  uint32_t runs, threads; // runs: samples, whose median is taken
  // On cuda a sample is so many launches, one behind the other, between two of the device's events;
  // 0 on the others, where the host's clock is read around each sample.
  uint32_t batch;
  fathom_cache cache; // warm or cold
  double launch_us;   // cuda: what a fathom_run takes the calling thread, at best
  // Of the code that ran: an executable may hold several, tuned for different numbers of rows. As in
  // fathom_executable_info; owned by the executable.
  const char *schedule, *schedule_source;
  uint32_t sets; // of all tensors, that runs go round; 1 where caches are warm
} fathom_bench_result;

// Measures an executable beside the machine's ceiling, interleaved in one run. `graph` is the one
// it was compiled from. On cuda times are the device's own, without the host's share of a launch,
// and the ceiling is a copy from device to device of as many bytes; `threads` is 0. Cold caches on
// the host take memory, for the tensors and for the ceiling's streams: FATHOM_UNSUPPORTED where it
// would be more than 2 GiB for the tensors. An executable for cuda-emu is refused: the emulator's times say
// nothing.
FATHOM_API fathom_status fathom_bench(fathom_context *context, const fathom_graph *graph,
                                      const fathom_executable *executable,
                                      const fathom_bench_options *options,
                                      fathom_bench_result *result);

// ---- tuning -------------------------------------------------------------------------------------

// What is tried next, as it goes. Strings are valid during the callback.
typedef struct fathom_tune_progress {
  size_t size;
  uint32_t tried, failed, planned; // schedules; planned: as far as is known
  double elapsed, budget;          // seconds; budget 0: none
  double default_us, best_us;      // 0: not known yet
  const char *best;                // schedule; "" while there is none
  const char *last;                // schedule tried last
  const char *outcome; // of that: timed, refused, wrong, crashed, timeout, memory or predicted
  const char *why;     // of a failure, one line
  int confirming;      // the finalists are timed side by side
  int waiting;         // for another tuner of this device, which is named in `why`
  double of_ceiling;   // share of the machine's ceiling that the best one reaches; 0: not known yet
  int warning;         // nothing will be remembered, because of `why`; the search goes on
} fathom_tune_progress;

typedef struct fathom_tune_options {
  size_t size;
  int64_t dynamic_size; // size of unbound row axes; 0 means 1024
  double seconds;       // budget; 0 means 60
  uint32_t trials;      // budget of measurements; 0: none
  uint64_t seed;        // the same seed tries the same schedules, given the same times
  const char *strategy; // "halving" (NULL), "ranked" (NULL when offline), "random" or "exhaustive"
  fathom_cache cache;   // what timed runs find there; the record says which
  int resume;           // go on with a search of the same graph, rows and seed that was interrupted
  int dry;              // remember nothing
  const char *report;   // a folder for the page about the search, tuning.html; NULL: none
  // The program that candidates run in; NULL: fathom beside the library, in ../bin or its own folder.
  const char *worker;
  double trial_seconds; // how long one candidate may take; 0 means 20
  uint64_t memory_mb;   // that a worker may hold; 0 means 8192
  void (*progress)(void *user, const fathom_tune_progress *progress); // may be NULL
  int (*stop)(
      void *user); // asked between measurements: nonzero ends with the best so far; may be NULL
  void *user;
  // For a GPU that is not here (target cuda:ARCH): the cost model ranks the schedules, the compiler
  // says what registers the best ones take, the emulator checks the finalists. Nothing is timed.
  int offline;
  // Where an earlier search for the very same rows and caches has ended, what it found is the result and
  // nothing is measured. (Of warm and cold ones compilations take the newer.)
  int keep;
} fathom_tune_options;

enum { FATHOM_SCHEDULE_ROOM = 512 };

typedef struct fathom_tune_result {
  size_t size;
  char schedule[FATHOM_SCHEDULE_ROOM];         // the best
  char default_schedule[FATHOM_SCHEDULE_ROOM]; // beside which it was timed
  double median_us, default_us;                // of one run each, in turns in one process
  double spread;
  double tie_band;      // share within which times count as equal: then the simpler schedule wins
  double of_ceiling;    // of the best; 0: not measured
  double raw_schedules; // all combinations of the values in the table of knobs
  uint32_t schedules;   // those that make different code for this kernel
  uint32_t measurements, failures;
  const char
      *end;       // what ended the search: done, seconds, trials or stopped; or known, with `keep`:
                  // there was none; a constant
  double seconds; // that it took
  int stored;     // from now on compiling for this machine takes the schedule
  int contended;  // other load was noticed meanwhile: times may be off
  uint32_t resumed; // measurements of the interrupted search that were taken over
  // How alike the cost model and the clock order the schedules that were timed: Spearman's rank
  // correlation, at best 1. 0: nothing was timed.
  double model_rank;
  const char
      *source; // of the schedule: search; records, the user's own, or shipped ones; a constant
  fathom_cache cache; // warm or cold
  double gb_s;        // of the best, where of_ceiling was measured
} fathom_tune_result;

// Searches for the fastest schedule of a graph that fuses to one kernel, on the machine at hand. Each
// candidate is compiled, checked against the reference and timed in a worker process: one that crashes,
// hangs, eats memory or gives wrong results costs only itself. For the cpu target, for cuda on the GPU at
// hand, and with `offline` for a GPU that is not here (docs/cost-model.md).
//
// What is found is kept in a file of the cache folder, tuned/DEVICE.yaml, and taken by every compilation
// without a schedule of its own for the same graph and machine, from this version of Fathom and of LLVM or
// NVRTC. Where that file cannot be written the search goes on, says so (`warning`), and remembers nothing.
// One tuner times at once on a device; others wait. FATHOM_UNSUPPORTED also when the GPU is gone in the
// middle: then what was measured is in the journal, for `resume`.
FATHOM_API fathom_status fathom_tune(fathom_context *context, const fathom_graph *graph,
                                     const fathom_compile_options *compile,
                                     const fathom_tune_options *options,
                                     fathom_tune_result *result);

// The other end: what the program `worker` does with its standard input (0) and output (1), when it is
// started with the argument tune-worker. Returns when the input ends.
FATHOM_API fathom_status fathom_tune_worker(int in, int out);

// ---- suites -------------------------------------------------------------------------------------

// The kernels of a model that are tuned in one go: a YAML file (docs/tuning.md, "Suites"). To tune one,
// call fathom_tune for each entry's graph and each of its rows, as dynamic_size; with `keep` and
// `resume` it can be interrupted and started again.
typedef struct fathom_suite fathom_suite;

// Valid as long as the suite.
typedef struct fathom_suite_entry {
  size_t size;
  const char *name;    // no two entries have the same: letters, digits, '_', '.' and '-'
  fathom_graph *graph; // the suite's own; its axes are bound
  const char *axes;    // their sizes, and dtypes that were exchanged: "B=8 D=7168, bf16 as f16"
  uint32_t row_count;  // at least 1
  const int64_t *rows;
} fathom_suite_entry;

// `suite`: the name of one that comes with Fathom, or a path, which has a '/' or ends in .yaml. All errors
// of the text are reported in one go, each with line, column and caret. Whether the graphs can be tuned
// is not looked at. Entries belong to one thread at a time.
FATHOM_API fathom_status fathom_suite_open(fathom_context *context, const char *suite,
                                           fathom_suite **out);
FATHOM_API void fathom_suite_destroy(fathom_suite *suite);
FATHOM_API uint32_t fathom_suite_count(const fathom_suite *suite);
// FATHOM_INVALID past the end. `entry->size` must be set.
FATHOM_API fathom_status fathom_suite_get(const fathom_suite *suite, uint32_t index,
                                          fathom_suite_entry *entry);

// ---- models -------------------------------------------------------------------------------------
// A network with attention over depth: a mix site before each sublayer and one at its end, described
// in YAML (docs/models.md). Where a `model` is asked for, it is the name of one that comes with Fathom
// ("kimi-k3"), or a path, which has a '/' or ends in .yaml.

// How the sites of a block are computed: each on its own, or all queries against the finished blocks at
// once and a merge at each site.
typedef enum fathom_phases {
  FATHOM_PHASES_DESCRIBED = 0, // as the description says
  FATHOM_PHASES_AUTO = 1, // for each block what takes less time, as measured or by the cost model
  FATHOM_PHASES_ONE = 2,
  FATHOM_PHASES_TWO = 3, // wherever sites share finished blocks
} fathom_phases;

// Results of each site besides the next sublayer's input.
enum {
  FATHOM_OUTPUT_WEIGHTS = 1, // of its sources, oldest first: f32[N, T], with heads f32[N, T, H]
  FATHOM_OUTPUT_ENTROPY = 2, // -sum a log a of these weights: f32[T], or [T, H]
  FATHOM_OUTPUT_MIX = 4,     // before the output norm: [T, D] of the model's dtype
  // The next sublayer's input itself is f8e4m3, with a scale for each token: of the input as rounded to the
  // model's dtype, max(largest |x|, 1e-10) / 448. The network's output stays as it is.
  FATHOM_OUTPUT_FP8 = 8,
};

typedef struct fathom_model_options {
  size_t size;
  const char *target, *cpu; // as in fathom_compile_options
  fathom_phases phases;
  uint32_t outputs; // FATHOM_OUTPUT_*, together
  int64_t rows;     // tokens that FATHOM_PHASES_AUTO decides for; 0: 1024
} fathom_model_options;

// The graph of the whole depth as text: a statement `%f_3 = call @sublayer_3 %x_3` for each sublayer. All
// errors of the description are reported in one go, each with line, column and caret. Of the options
// only `outputs` is looked at.
FATHOM_API fathom_status fathom_model_expand(fathom_context *context, const char *model,
                                             const fathom_model_options *options, fathom_text *out);

// What runs when, as a table: for each site its kernel, the rows that it moves for a token, how long it takes
// for options->rows tokens, and what it leaves for later; totals beside published ones; the workspace.
// Compiles nothing.
FATHOM_API fathom_status fathom_model_plan(fathom_context *context, const char *model,
                                           const fathom_model_options *options, fathom_text *out);

// A compiled model: its kernels, the plan, and the parameters once they are bound. Shared by any number of
// sequences and threads.
typedef struct fathom_model fathom_model;

// Plans and compiles; code comes from the cache where it is there. Each kernel takes the schedules that it
// was tuned to (fathom_tune knows nothing of models: a kernel is a graph like any other). A `model` that
// ends in .fathom is a bundle (fathom_model_save): it is loaded, with neither LLVM nor NVRTC, for
// options->target, and FATHOM_UNSUPPORTED where it has nothing that this machine runs.
FATHOM_API fathom_status fathom_model_open(fathom_context *context, const char *model,
                                           const fathom_model_options *options, fathom_model **out);
FATHOM_API void fathom_model_destroy(fathom_model *model);

// A bundle: plan and kernels, in all their variants for numbers of rows, for the targets "cpu" (of
// options->cpu) and "cuda:ARCH", of which none has to be here. options->target is not looked at.
FATHOM_API fathom_status fathom_model_save(fathom_context *context, const char *model,
                                           const char *const *targets, uint32_t count,
                                           const fathom_model_options *options, fathom_text *out);

typedef struct fathom_model_info {
  size_t size;
  const char *name, *target, *arch; // arch: of a GPU; else ""
  int64_t hidden, heads;
  uint32_t sublayers, sites; // sites: one more
  fathom_dtype dtype;        // of the embedding, what sublayers take and give
  uint32_t outputs;          // FATHOM_OUTPUT_*, together
  uint32_t param_count, kernel_count, run_count;
  double compile_us;
} fathom_model_info;

FATHOM_API fathom_status fathom_model_get_info(const fathom_model *model, fathom_model_info *out);
// How many tensors a sublayer gives, whose sum is its output: 1 or 2; 0 past the last one.
FATHOM_API uint32_t fathom_model_addends(const fathom_model *model, uint32_t sublayer);
// Sources of a site: the first axis of its weights. 0 past the last one.
FATHOM_API uint32_t fathom_model_sources(const fathom_model *model, uint32_t site);
// FATHOM_INVALID past the end.
FATHOM_API fathom_status fathom_model_param(const fathom_model *model, uint32_t index,
                                            fathom_tensor_info *info);

// Binds parameters, of the device that the model runs on: one by name ("query_12"), or those of all sites
// ("query": a first axis more, or a slice for each site). They are dense, stay the host's, and are
// read by every site, so that their values may be changed between sequences. Binding one again replaces
// it. FATHOM_INVALID while a sequence is under way; nothing is bound then.
FATHOM_API fathom_status fathom_model_bind(fathom_model *model, const fathom_arg *args,
                                           uint32_t arg_count);

// Compiles a model and runs it on random parameters, and random tensors for what sublayers give, beside the
// reference in one phase; compares every result of every site. Of `check` are looked at seeds (0: 1),
// dynamic_size (0: 5), empty, report and user, and traffic: cuda-emu tells for each run ("site 12", "site 12
// beside") what moved of tensors with tokens, and as the minimum what was planned. Bounds are those of docs/ir.md.
FATHOM_API fathom_status fathom_model_check(fathom_context *context, const char *model,
                                            const fathom_model_options *options,
                                            const fathom_check_options *check, uint32_t *failures);

// ---- sequences ----------------------------------------------------------------------------------
// Tokens on their way through the depth of a model. Each T tokens (a prompt, a chunk of one, or one token of
// each sequence that is decoded) take a begin, a site for each sublayer but the last one, and an end:
//
//   fathom_sequence_begin(sequence, &embedding, &first, workspace, bytes, NULL);  // first.input = x_0
//   for (uint32_t i = 1; i < sublayers; i++) {
//     ... f = sublayer i - 1 of x ...
//     fathom_sequence_site(sequence, i, &f, 1, &next);                            // next.input = x_i
//   }
//   ... f = the last sublayer of x ...
//   fathom_sequence_end(sequence, &f, 1, &last);                                  // the network's output
//
// Tokens never meet, so chunks of any size give the same bits as one. On a GPU all calls launch on the
// executor's stream and wait for nothing. What a call reads and writes is the host's again when it
// returns (on a GPU, when its launches are done). A sequence belongs to one thread at a time, its calls
// allocate nothing but what reporting an error takes, and T may change with every begin.
typedef struct fathom_sequence fathom_sequence;

FATHOM_API fathom_status fathom_sequence_create(fathom_model *model, fathom_sequence **out);
FATHOM_API void fathom_sequence_destroy(fathom_sequence *sequence);

// Bytes of workspace for so many tokens. It is the caller's from begin to end, 128-byte aligned, memory of the
// device that the model runs on.
FATHOM_API fathom_status fathom_sequence_workspace(const fathom_sequence *sequence, int64_t rows,
                                                   const fathom_executor *executor, size_t *bytes);

// Where the results of a site go; those that the model has must be there, others be NULL. Tensors have the
// type's axes in its order, any strides but 1 along D.
typedef struct fathom_site_outputs {
  size_t size;
  const DLTensor *input;   // of the next sublayer, or the network's output: [T, D]
  const DLTensor *weights; // FATHOM_OUTPUT_WEIGHTS
  const DLTensor *entropy; // FATHOM_OUTPUT_ENTROPY
  const DLTensor *mix;     // FATHOM_OUTPUT_MIX
  const DLTensor *scale;   // FATHOM_OUTPUT_FP8: f32[T]; not of the last site
} fathom_site_outputs;

// The embedding is [T, D]. All parameters have to be bound. The executor is copied; NULL: the library's
// pool, or the default stream. FATHOM_INVALID, here and below, leaves the sequence as it was.
FATHOM_API fathom_status fathom_sequence_begin(fathom_sequence *sequence, const DLTensor *embedding,
                                               const fathom_site_outputs *outputs, void *workspace,
                                               size_t workspace_bytes,
                                               const fathom_executor *executor);
// Site `site`, 1 and up, in order: takes what sublayer site - 1 gave, as many tensors as
// fathom_model_addends says.
FATHOM_API fathom_status fathom_sequence_site(fathom_sequence *sequence, uint32_t site,
                                              const DLTensor *const *addends, uint32_t addend_count,
                                              const fathom_site_outputs *outputs);
// The last site, after all others. Then the sequence can begin again.
FATHOM_API fathom_status fathom_sequence_end(fathom_sequence *sequence,
                                             const DLTensor *const *addends, uint32_t addend_count,
                                             const fathom_site_outputs *outputs);
// Gives up tokens that are under way, so that others can begin.
FATHOM_API fathom_status fathom_sequence_reset(fathom_sequence *sequence);

// ---- records of tuning --------------------------------------------------------------------------

// What fathom_tune remembers (docs/tuning-cache.md): files in the folder `tuned` of the cache folder,
// one for each device, and such files that come with Fathom. The calls below see all of the folder;
// what they change is this machine's own file, whole or not at all. `warnings`, which may be NULL,
// gets what was left out because it could not be read: lines that begin with "warning: ".

typedef struct fathom_records_options {
  size_t size;
  const char *file; // look into this file only; NULL: all those of the folder, and the shipped ones
  const char *graph; // records of this graph only, with or without @; NULL: of all
  int json;          // one JSON object on a line
} fathom_records_options;

// The files, and a line for each record: what it is about, the best time, the speed-up over the
// default schedule, the share of the ceiling, and whether compilations by this build on this machine
// take it. No records are no error; a graph that is named and has none is FATHOM_INVALID.
FATHOM_API fathom_status fathom_records_list(fathom_context *context,
                                             const fathom_records_options *options,
                                             fathom_text *out, fathom_text *warnings);
// The same with all that is known of each record, but for the single trials.
FATHOM_API fathom_status fathom_records_show(fathom_context *context,
                                             const fathom_records_options *options,
                                             fathom_text *out, fathom_text *warnings);

typedef struct fathom_records_merged {
  size_t size;
  uint32_t added, replaced; // replaced: by a newer record of the same thing
  uint32_t kept;            // own records that were newer, or as new
} fathom_records_merged;

// Takes in the records of another file about this device. Of two of the same thing the newer one
// stays, with the trials of both.
FATHOM_API fathom_status fathom_records_merge(fathom_context *context, const char *file,
                                              fathom_records_merged *merged, fathom_text *warnings);

// What is to go: records for which one of these holds. At least one has to be given.
typedef struct fathom_records_prune_options {
  size_t size;
  int stale; // made by another generator, compiler, driver or way of timing than this build's
  const char
      *before; // older than this: "2026-11-30", or "2026-11-30T20:00:00Z" (UTC); NULL: any age
  int dry;     // only say what would go
} fathom_records_prune_options;

// Removes records of this machine's file. `out`: a line for each, and why; empty when none goes.
FATHOM_API fathom_status fathom_records_prune(fathom_context *context,
                                              const fathom_records_prune_options *options,
                                              uint32_t *pruned, fathom_text *out,
                                              fathom_text *warnings);

// This machine's records as the text of a file, to share it; FATHOM_INVALID when there are none.
FATHOM_API fathom_status fathom_records_export(fathom_context *context, fathom_text *out,
                                               fathom_text *warnings);

typedef struct fathom_records_validation {
  size_t size;
  uint32_t files, records, problems; // records: that can be read
} fathom_records_validation;

// Looks for everything in a file of records that would be left out; NULL: in all files of the folder.
// `problems` gets each with file, line, column and caret. FATHOM_OK also when there are some:
// *result counts them.
FATHOM_API fathom_status fathom_records_validate(fathom_context *context, const char *file,
                                                 fathom_records_validation *result,
                                                 fathom_text *problems);

// Version, targets, the CPU and GPUs, libraries found and missing, the cache folder: lines of
// `key: value`.
FATHOM_API fathom_status fathom_info(fathom_context *context, fathom_text *out);

#ifdef __cplusplus
}
#endif

#endif
