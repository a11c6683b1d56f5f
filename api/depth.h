// depth: models. The plan of a model's whole depth, from its description on: what the public calls of model.c print
// and run, and a compiled model.
#ifndef FATHOM_API_DEPTH_H
#define FATHOM_API_DEPTH_H

#include "api/api.h"
#include "model/model.h"
#include "passes/depth.h"
#include "runtime/depth.h"

typedef struct api_depth {
  const model_description *model;
  const ir_graph *graph; // of the whole depth, in the phases that were chosen
  const pass_outline *outline;
  const pass_memory *memory;
  const double *seconds; // of each kernel, for `rows` tokens; NULL: not known, or not asked for
  int64_t rows;
  api_request request;
} api_depth;

// Reads the description that `name` means; from here on the call's diagnostics show its text. NULL: see
// the call's diag.
const model_description *api_model_read(api_call *call, const char *name);
// Everything lives in the call's arena. NULL: see the call's diag.
api_depth *api_depth_plan(api_call *call, const char *name, const fathom_model_options *options);
// Fills in `seconds`: what a model that is only run does not need.
void api_depth_time(api_call *call, api_depth *depth);

// Seconds of each kernel of the plan for so many rows. NULL: nobody knows, as for interp.
const double *api_depth_times(api_call *call, const api_request *request, int64_t rows,
                              const pass_outline *outline);

// What a run moves for each token, in bytes: parameters, which all tokens share, left out.
typedef struct api_moved {
  uint64_t read, written;
} api_moved;
api_moved api_run_moves(const api_depth *depth, uint32_t run);

// The plan as a table.
void api_depth_print(const api_depth *depth, base_text *out);

// ---- compiled models (model.c) ------------------------------------------------------------------

// Results of a site, by their places in fathom_site_outputs.
typedef enum api_output {
  API_OUTPUT_INPUT,
  API_OUTPUT_WEIGHTS,
  API_OUTPUT_ENTROPY,
  API_OUTPUT_MIX,
  API_OUTPUT_SCALE,
  API_OUTPUT_COUNT
} api_output;
extern const char *const api_output_names[API_OUTPUT_COUNT]; // for messages: "outputs.input"

// A parameter, or what a step is given or gives: without the sizes of dynamic axes.
typedef struct api_tensor_type {
  const char *name;
  rt_dtype dtype;
  uint32_t rank;
  const char *axes[RT_MAX_RANK];
  int64_t sizes[RT_MAX_RANK];
} api_tensor_type;

struct fathom_model {
  base_arena arena;
  fathom_context *context;
  rt_depth depth;
  fathom_executable **kernels;
  fathom_model_info info;
  const uint32_t *addends, *sources; // of sublayers, of sites
  uint32_t param_count;
  const api_tensor_type *param_types;
  rt_tensor *params; // rank PARAM_UNBOUND: not bound
  const api_tensor_type (
      *outputs)[API_OUTPUT_COUNT]; // of each step; rank api_no_output: it has none
  api_tensor_type row;             // [T, D]: the embedding, addends
  // What binding needs to know of the tensors of each step: inputs, those outputs that there are, and the
  // workspace (of bytes, as f32), which may overlap none of them.
  const rt_program *host_programs;
  uint32_t max_slots, max_slices; // of one run
  _Atomic uint32_t under_way;     // sequences between begin and end
};

// Fills in all but the kernels and what api_model_complete does. The arena's escape must be set.
void api_model_describe(const api_depth *depth, const fathom_model_options *options,
                        fathom_model *model);
// Room for the kernels; those that there are then go with the model.
void api_model_hold_kernels(fathom_model *model);
// Once the kernels are there: the rest, and whether plan and kernels agree. NULL, or what does not.
const char *api_model_complete(fathom_model *model);
// A model from a bundle's bytes, complete. False: see the call's diag.
bool api_model_load(api_call *call, base_str bytes, const fathom_model_options *options,
                    fathom_model *model);

static const uint32_t api_unbound = UINT32_MAX, api_no_output = UINT32_MAX;
// Axes of what a step is given and gives, at most: T, D, N, H and the workspace's are.
enum { API_HOST_AXES = 16 };

// What a run was seen to move, an entry for each slot of its program.
typedef void (*api_traffic_report)(void *user, uint32_t run, const rt_program *program,
                                   const rt_traffic *traffic);
// From now on tells of every run of the sequence (cuda-emu only).
void api_sequence_count(fathom_sequence *sequence, api_traffic_report report, void *user);

// What DLPack says of a tensor that has to be of that type, with `rows` for its dynamic axes (negative: any,
// which is then found), in memory that kernels of the model see. False: see the call's diag.
bool api_tensor_take(api_call *call, const fathom_model *model, const char *what,
                     const api_tensor_type *type, const DLTensor *given, int64_t *rows,
                     rt_tensor *out);

#endif
