// api: libfathom's public face, the only layer that sees all others.
//
// Sections: errors, calls, structs with a size, objects, places, graphs, targets, devices, compiling,
// bundles, running, tensors.
//
// A public call that allocates runs its work through api_call_run: a temporary arena, a diagnostic
// sink and a landing place for out-of-memory, all gone when the call returns. What must live on
// sits in the arena of the object that owns it.
#ifndef FATHOM_API_API_H
#define FATHOM_API_API_H

#include "base/base.h"
#include "codegen/target.h"
#include "fathom.h"
#include "ir/ir.h"
#include "runtime/bundle.h"
#include "runtime/runtime.h"

// ---- errors -------------------------------------------------------------------------------------
// The text is a fixed buffer of the thread, so that reporting out-of-memory needs none.

void api_error_clear(void);
// Replaces the text, in the form of a diagnostic ("error: ..."), and returns `status`.
fathom_status api_fail(fathom_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Appends to the text as it is.
void api_fail_more(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Replaces the text by the rendered reports.
fathom_status api_fail_diag(base_diag *diag);

// Refuses a NULL argument of a public function.
#define API_REQUIRE(pointer)                                                                       \
  do {                                                                                             \
    if ((pointer) == NULL)                                                                         \
      return api_fail(FATHOM_INVALID, "%s: argument '%s' is NULL", __func__, #pointer);            \
  } while (0)

// ---- calls --------------------------------------------------------------------------------------

typedef struct api_call {
  fathom_context *context;
  base_arena arena; // dropped when the call ends
  base_diag diag;   // its errors, when there are any, decide status and text
} api_call;

typedef fathom_status (*api_body)(api_call *call, void *frame);

// Runs body(call, frame). Out of memory anywhere inside gives FATHOM_MEMORY. What the body must
// hand over or clean up when it is cut short goes through *frame.
fathom_status api_call_run(fathom_context *context, api_body body, void *frame);

// ---- structs with a size ------------------------------------------------------------------------

// What sizeof was in the first version of each: the least a caller may say. `last` is the member that
// was the last one then. Members that came later begin behind that size, never in its padding, which
// callers need not have cleared.
#define API_FIRST(type, last)                                                                      \
  api_first_##type = (offsetof(type, last) + sizeof(((type *)NULL)->last) + sizeof(size_t) - 1) /  \
                     sizeof(size_t) * sizeof(size_t)
enum {
  API_FIRST(fathom_context_options, threads),
  API_FIRST(fathom_tensor_info, layout),
  API_FIRST(fathom_optimize_options, reproducer),
  API_FIRST(fathom_compile_options, verify_each),
  API_FIRST(fathom_executable_info, kernel),
  API_FIRST(fathom_executor, parallel_for),
  API_FIRST(fathom_check_options, user),
  API_FIRST(fathom_bench_options, seconds),
  API_FIRST(fathom_bench_result, threads),
  API_FIRST(fathom_tune_progress, waiting),
  API_FIRST(fathom_tune_options, user),
  API_FIRST(fathom_tune_result, resumed),
  API_FIRST(fathom_suite_entry, rows),
  API_FIRST(fathom_model_options, rows),
  API_FIRST(fathom_model_info, compile_us),
  API_FIRST(fathom_site_outputs, scale),
  API_FIRST(fathom_records_options, json),
  API_FIRST(fathom_records_merged, kept),
  API_FIRST(fathom_records_prune_options, dry),
  API_FIRST(fathom_records_validation, problems),
};

// Copies the members the caller knows into *local, whose other members become zero. `given` NULL
// gives all zero.
fathom_status api_struct_in(void *local, size_t local_size, size_t first_size, const void *given,
                            const char *type);
// Copies the members the caller knows from *local to *given; members only the caller knows become
// zero.
fathom_status api_struct_out(void *given, const void *local, size_t local_size, size_t first_size,
                             const char *type);

#define API_STRUCT_IN(local, given, type)                                                          \
  api_struct_in(&(local), sizeof(local), api_first_##type, given, #type)
#define API_STRUCT_OUT(given, local, type)                                                         \
  api_struct_out(given, &(local), sizeof(local), api_first_##type, #type)

// ---- objects ------------------------------------------------------------------------------------
// The first member of an object is the arena it lives in.

// A zeroed object of `size` bytes in a new arena whose escape is the call's.
void *api_object_create(api_call *call, size_t size);
// Detaches the arena from the call, once the object is complete.
void api_object_keep(void *object);
void api_object_destroy(void *object); // NULL is allowed

// A terminated copy in malloc's memory, for fathom_text_destroy.
fathom_status api_text_out(fathom_text *out, base_str text);

struct fathom_context {
  base_arena arena;
  base_allocator allocator;
  const char *cache_directory; // "" when the cache is off
  bool cache_named;            // by the host or $FATHOM_CACHE: then it has to be usable
  uint32_t threads;
  void *lock;    // pthread_mutex_t, guards `pool`, `devices`, `records` and `cpu`
  rt_pool *pool; // made when first asked for
  struct api_device *devices;
  struct api_records *records; // of tuning, when they were first needed (tuned.c)
  rt_cpu cpu;                  // read when it is first needed (bundle.c)
};

void api_records_close(fathom_context *context);

// The context's own pool.
fathom_status api_context_pool(fathom_context *context, rt_executor *out);

// ---- places (places.c) --------------------------------------------------------------------------

// The folder that the library is in, relative to where the process was started if the library was
// found so. NULL: not known.
const char *api_library_folder(base_arena *arena);
// share/fathom/NAME of the tree that the library is in; NULL: there is none that can be read.
const char *api_share_folder(base_arena *arena, const char *name);
// The file that `name` means where a `kind` ("suite", "model") is asked for: one that comes with Fathom, or
// `name` itself when it is a path, with a '/' or .yaml at its end. NULL: see the call's diag.
bool api_ends_in(const char *name, const char *ending);
const char *api_shared_find(api_call *call, const char *kind, const char *name);

// ---- graphs -------------------------------------------------------------------------------------

struct fathom_graph {
  fathom_module *module;
  ir_graph *ir; // every name in it is terminated
};

struct fathom_module {
  base_arena arena;
  fathom_context *context;
  base_str file, source; // for messages
  uint32_t count;
  fathom_graph *graphs;
  const char **names;
};

// A deep copy, in `arena`, that keeps nothing of the original; names are terminated.
ir_graph *api_graph_copy(base_arena *arena, const ir_graph *graph);
// A copy in the call's arena; from here on the call's diagnostics show the graph's source text.
ir_graph *api_graph_open(api_call *call, const fathom_graph *graph);
// A handle of a copy, both in the call's arena: for public calls with a graph that no host parsed.
const fathom_graph *api_graph_handle(api_call *call, const ir_graph *graph);

// ---- targets (target.c) -------------------------------------------------------------------------

typedef enum api_kind { API_CPU, API_INTERP, API_CUDA, API_EMULATOR, API_KINDS } api_kind;

typedef struct api_target {
  const char *name;
  const char *pipeline; // the passes, when it compiles
  bool compiles;        // through passes and codegen, under a schedule
  bool gpu;             // kernels run on an rt_device, for an architecture that the text may name
} api_target;

extern const api_target api_targets[API_KINDS];

// "cuda:sm_90a". The architecture goes to `arch`, "" when the text names none. False: see diag.
enum { API_ARCH_ROOM = 16 };
#define API_DEFAULT_ARCH "sm_90" // where neither text nor device says one
bool api_target_parse(base_diag *diag, const char *text, api_kind *kind, char arch[API_ARCH_ROOM]);

// ---- devices (device.c) -------------------------------------------------------------------------
// A context opens a device when it is first needed and keeps it. Those of executables that still
// exist must not be closed: that is why a context outlives what was made with it.

// What names a device within a context.
typedef struct api_device_key {
  api_kind kind;
  uint32_t ordinal;         // cuda
  char arch[API_ARCH_ROOM]; // cuda-emu: the GPU that it emulates
  bool sanitize;            // cuda-emu
} api_device_key;

// $FATHOM_CUDA_DEVICE, else 0. False: see the call's diag.
bool api_device_ordinal(api_call *call, uint32_t *ordinal);
// NULL: see the call's diag.
rt_device *api_device_open(api_call *call, const api_device_key *key);
void api_devices_close(fathom_context *context);

// "sm_90" of a device.
void api_arch_of(const rt_device_facts *facts, char arch[API_ARCH_ROOM]);

// Memory that kernels of the executable see, for as long as the call lasts, from which `host` memory
// can be copied: `host` itself where they see the host's. NULL: see the call's diag.
void *api_device_mirror(api_call *call, const fathom_executable *executable, void *host,
                        size_t bytes);
// Copies from one to the other, unless they are the same. Waits. False: see the call's diag.
bool api_device_copy(api_call *call, const fathom_executable *executable, void *to,
                     const void *from, size_t bytes);
// The DLPack device of memory that kernels of the executable see.
DLDevice api_device_dlpack(const fathom_executable *executable);
// Is it memory that the host's code can use as it is; is it such of kernels on the GPU `wanted`? (args.c)
bool api_is_host(DLDevice device);
bool api_is_on_device(DLDevice device, DLDevice wanted);

// ---- compiling ----------------------------------------------------------------------------------

// Compile options with every default filled in.
typedef struct api_request {
  api_kind kind;
  bool verify_each, sanitize;
  char arch[API_ARCH_ROOM];     // "" while none is chosen; cg.arch is this
  const rt_device_facts *facts; // of the device that code is made for; NULL: not known, or none
  cg_options cg;
} api_request;

// Is the variable of the environment there, not empty and not 0?
bool api_is_set(const char *variable);
// False: see the call's diag.
bool api_request_read(api_call *call, const fathom_compile_options *given, api_request *out);
// Where the target is for a GPU and names no architecture: that of this machine's GPU, or the default;
// *why is then one line for people. Without a GPU that is no error: nothing is run. False: see the
// call's diag.
bool api_arch_choose(api_call *call, api_request *request, const char **why);
// The graph ready for the target: verified, and but for interp through all passes. NULL: see the
// call's diag.
ir_graph *api_lower(api_call *call, const fathom_graph *graph, const api_request *request);
// The code generator of a target that compiles. NULL: see the call's diag.
const cg_target *api_codegen(api_call *call, api_kind kind);

struct fathom_executable {
  base_arena arena;
  fathom_context *context;
  api_kind kind;
  const char *graph_name;
  const rt_program *program;
  uint32_t bound_count;     // input and output slots
  const char *const *names; // of the slots
  const ir_graph *graph;    // interp: what is evaluated; its axes are the program's
  // What was compiled: where schedules were tuned for several numbers of rows, one for each of them,
  // ascending; neighbours may share theirs. Else one. None for interp.
  uint32_t variant_count;
  struct api_variant *variants;
  cg_artefact *artefact; // of the first variant; NULL for interp
  rt_loaded *loaded;     // the same on a device; NULL for cpu and interp
  const char *arch;      // of a GPU; else ""
  uint32_t ordinal;      // of the device, as DLPack counts
  double compile_us;
};

typedef struct api_variant {
  int64_t rows; // that its schedule was tuned for
  cg_artefact *artefact;
  rt_loaded *loaded; // on a device, else NULL
} api_variant;

// An executable without code yet, in *out at once: whoever asked destroys it when the call fails.
fathom_executable *api_executable_begin(api_call *call, api_kind kind, base_str graph,
                                        fathom_executable **out);
// Once it has its variants.
void api_executable_complete(fathom_executable *executable);

// The code for so many rows: of the variant tuned for the nearest number, by ratio.
const rt_program *api_program_for(const fathom_executable *executable, const int64_t *sizes);
const cg_artefact *api_artefact_for(const fathom_executable *executable, int64_t rows);
rt_loaded *api_loaded_for(const fathom_executable *executable, const int64_t *sizes);

static inline rt_device *api_executable_device(const fathom_executable *executable) {
  return executable->loaded != NULL ? rt_loaded_device(executable->loaded) : NULL;
}

enum { API_USUAL_ROWS = 1024 }; // of dynamic axes, where nobody says how many

// ---- bundles (bundle.c) -------------------------------------------------------------------------

// A graph compiled for one kind of machine, in all its variants. The name tells several graphs of a
// bundle apart.
#define API_SECTION_CODE RT_SECTION('c', 'o', 'd', 'e')

// What fathom_compile makes of the graph for cpu or cuda, but that it is not loaded, and so may be
// for a machine that is not here. Lasts as long as the call. NULL: see the call's diag.
const fathom_executable *api_compile_portable(api_call *call, const fathom_graph *graph,
                                              api_request *request);
// Compile options for one of the targets of a bundle. False: see the call's diag.
bool api_save_request(api_call *call, const fathom_compile_options *options, const char *target,
                      api_request *out);
// Begins a bundle that says what made it.
void api_bundle_begin(base_text *out);
// Adds what api_compile_portable made. False: see the call's diag.
bool api_bundle_add(api_call *call, base_text *out, const char *name,
                    const fathom_executable *portable);
// The code of that name (NULL: of the only graph) that suits this machine best, loaded; for cuda of that
// architecture, "" for any. *out is set at once: whoever asked destroys it when this fails. False: see
// the call's diag.
bool api_bundle_load(api_call *call, const rt_bundle *bundle, const char *name, api_kind kind,
                     const char *arch, fathom_executable **out);

// ---- running ------------------------------------------------------------------------------------

// fathom_run. `traffic` is NULL, or has an entry for each slot of the program (cuda-emu only).
fathom_status api_run(const fathom_executable *executable, const fathom_arg *args,
                      uint32_t arg_count, void *workspace, size_t workspace_bytes,
                      const fathom_executor *executor, rt_traffic *traffic);
// A host's executor, checked: threads for the cpu, a stream for a GPU.
typedef struct api_executor {
  rt_executor host;
  void *stream;
  bool check_pointers;
} api_executor;
fathom_status api_executor_read(fathom_context *context, api_kind kind,
                                const fathom_executor *given, api_executor *out);
// Evaluates an executable of the interp target.
fathom_status api_interpret(api_call *call, const fathom_executable *executable,
                            const rt_tensor *tensors, const int64_t *sizes);
// What runs that are timed on a target find in the caches: as wanted, or the target's default.
fathom_status api_cache_choose(api_kind kind, fathom_cache wanted, fathom_cache *out);
// The alignment that a run asks of the workspace.
size_t api_workspace_alignment(const fathom_executable *executable);

// ---- tensors ------------------------------------------------------------------------------------

// Elements of the tensor; SIZE_MAX when the product overflows.
size_t api_tensor_count(const rt_tensor *tensor);
// Elements in the type's order to and from dense doubles; writing rounds to the dtype.
void api_tensor_read(const rt_tensor *tensor, double *values);
void api_tensor_write(const rt_tensor *tensor, const double *values);
// Writes next(state) to every element, in the type's order.
void api_tensor_fill(const rt_tensor *tensor, double (*next)(void *state), void *state);
// Sets every byte of every element, and none between them.
void api_tensor_clear(const rt_tensor *tensor, int byte);
// The part of the tensor with begin .. begin + size - 1 at that position of its type.
rt_tensor api_tensor_part(const rt_tensor *tensor, uint32_t position, int64_t begin, int64_t size);
// Shape and strides of the value in memory order, `padding` elements between rows and between outer
// axes. *elements: how much memory that spans. False when it overflows.
bool api_tensor_layout(const ir_node *node, const int64_t *axis_sizes, int64_t padding,
                       rt_tensor *out, size_t *elements);
// Copies every element's bits to the same place of another tensor of that dtype and shape.
void api_tensor_copy(const rt_tensor *to, const rt_tensor *from);
// Pieces of memory: one for each slice, or the only one; none when there are no elements.
int64_t api_tensor_pieces(const rt_tensor *tensor);
// Lowest byte of a piece, and how many there are up to its highest. The strides must be known to
// fit, as after rt_bind.
char *api_tensor_piece(const rt_tensor *tensor, int64_t piece, size_t *bytes);
// The same tensor for fathom_run; shape and strides stay the property of `tensor`.
DLTensor api_tensor_dlpack(rt_tensor *tensor);
// The DLPack dtype that stands for a dtype, whether another one does so too, and a name for messages.
DLDataType api_dlpack_dtype(rt_dtype dtype);
bool api_dlpack_fits(rt_dtype dtype, DLDataType found);
const char *api_dlpack_dtype_name(rt_dtype dtype);

// `bytes` of memory aligned for tensors and workspaces.
enum { API_ALIGNMENT = 128 };
void *api_alloc_aligned(base_arena *arena, size_t bytes);
// Sizes of all axes of a graph, with `dynamic_size` for the ones that stay dynamic.
int64_t *api_axis_sizes(base_arena *arena, const ir_graph *graph, int64_t dynamic_size);

#endif
