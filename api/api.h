// api: libfathom's public face, the only layer that sees all others.
//
// Sections: errors, calls, structs with a size, objects, graphs, compiling, tensors.
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

// Copies the members the caller knows into *local, whose other members become zero. `given` NULL
// gives all zero.
fathom_status api_struct_in(void *local, size_t local_size, const void *given, const char *type);
// Copies the members the caller knows from *local to *given; members only the caller knows become
// zero.
fathom_status api_struct_out(void *given, const void *local, size_t local_size, const char *type);

#define API_STRUCT_IN(local, given, type) api_struct_in(&(local), sizeof(local), given, #type)
#define API_STRUCT_OUT(given, local, type) api_struct_out(given, &(local), sizeof(local), #type)

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
  bool cache_named;            // by the host or $FATHOM_CACHE_DIR: then it has to be usable
  uint32_t threads;
  void *lock;    // pthread_mutex_t, guards `pool`
  rt_pool *pool; // made when first asked for
};

// The context's own pool.
fathom_status api_context_pool(fathom_context *context, rt_executor *out);

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

// ---- compiling ----------------------------------------------------------------------------------

// Compile options with every default filled in.
typedef struct api_request {
  bool interp, verify_each;
  cg_options cg;
} api_request;

fathom_status api_request_read(const fathom_context *context, const fathom_compile_options *given,
                               api_request *out);
// The graph ready for the target: verified, and for the cpu through all passes. NULL: see the
// call's diag.
ir_graph *api_lower(api_call *call, const fathom_graph *graph, const api_request *request);

struct fathom_executable {
  base_arena arena;
  fathom_context *context;
  const char *graph_name;
  const rt_program *program;
  uint32_t bound_count;     // input and output slots
  const char *const *names; // of the slots
  const ir_graph *graph;    // interp: what is evaluated; its axes are the program's
  cg_artefact *artefact;    // cpu
  double compile_us;
};

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
// The same tensor for fathom_run; shape and strides stay the property of `tensor`.
DLTensor api_tensor_dlpack(rt_tensor *tensor);
// The DLPack dtype that stands for a dtype, and its name for messages.
DLDataType api_dlpack_dtype(rt_dtype dtype);
const char *api_dlpack_dtype_name(rt_dtype dtype);

// `bytes` of memory aligned for tensors.
void *api_alloc_aligned(base_arena *arena, size_t bytes);
// Sizes of all axes of a graph, with `dynamic_size` for the ones that stay dynamic.
int64_t *api_axis_sizes(base_arena *arena, const ir_graph *graph, int64_t dynamic_size);

#endif
