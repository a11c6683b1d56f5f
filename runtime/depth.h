// runtime: the plan of a network's whole depth as the launcher sees it. Runs of kernels between the host's
// sublayers, and where their tensors are: in the host's memory for one step, in a parameter, or in a buffer
// of the workspace. Plain data; needs no compiler.
//
// Sections: plans, memory, tensors.
#ifndef FATHOM_RUNTIME_DEPTH_H
#define FATHOM_RUNTIME_DEPTH_H

#include "runtime/runtime.h"

// ---- plans --------------------------------------------------------------------------------------

typedef enum rt_place_kind {
  RT_PLACE_PARAM,  // number of a parameter of the network
  RT_PLACE_BUFFER, // of the workspace
  RT_PLACE_INPUT,  // of the step: the embedding, or what the sublayer before it gave
  RT_PLACE_OUTPUT, // of the step: what the host is given
} rt_place_kind;

typedef struct rt_depth_part {
  rt_place_kind kind;
  uint32_t number;
  // Of a buffer: which index of the value's outermost axis; the value begins this many bytes, times the
  // rows, into the buffer.
  uint64_t offset;
} rt_depth_part;

// The tensor of one slot of a kernel's program.
typedef struct rt_depth_slot {
  bool sliced; // a part for each index of the first axis; else one
  uint32_t part_count;
  const rt_depth_part *parts;
} rt_depth_slot;

typedef struct rt_depth_run {
  uint32_t step, kernel, slot_count;
  bool beside;                // the host's calls may run meanwhile
  const rt_depth_slot *slots; // of the kernel's program: inputs, then outputs
} rt_depth_run;

typedef struct rt_depth {
  uint32_t buffer_count, run_count, step_count, kernel_count;
  const uint64_t *buffer_bytes; // for each row
  const rt_depth_run *runs;     // of all steps, in order
  const uint32_t *first_run;    // of each step; one more for the end
} rt_depth;

// ---- memory -------------------------------------------------------------------------------------

enum { RT_DEPTH_ALIGNMENT = 128 };

// Where each buffer begins in the workspace for so many rows (NULL: not asked), and bytes of all of them.
// False: they overflow.
bool rt_depth_layout(const rt_depth *depth, int64_t rows, size_t *offsets, size_t *bytes);

// ---- tensors ------------------------------------------------------------------------------------

// What the parts of a step are.
typedef struct rt_depth_memory {
  const rt_tensor *params;           // of the network
  const rt_tensor *inputs, *outputs; // of the step
  char *workspace;
  const size_t *offsets; // of the buffers
  int64_t rows;
} rt_depth_memory;

// The tensors of a run, one for each slot of the program. `slices` has room for the parts of all sliced
// slots. Lists at even distances become one tensor.
void rt_depth_tensors(const rt_depth_run *run, const rt_program *program,
                      const rt_depth_memory *memory, rt_tensor *tensors, char **slices);

#endif
