// args: the tensors of one run, bound by name to the slots of an executable. Used by run.c.
#ifndef FATHOM_API_ARGS_H
#define FATHOM_API_ARGS_H

#include "api/api.h"

// Small calls bind on the stack, larger ones at the start of the workspace, so that running never
// allocates.
enum { API_STACK_SLOTS = 64, API_STACK_SLICES = 256 };

// Whose memory the tensors are. Those of one run are all of one kind.
typedef enum api_memory { API_MEMORY_UNKNOWN, API_MEMORY_HOST, API_MEMORY_DEVICE } api_memory;

typedef struct api_args {
  rt_tensor *tensors; // one for each input and output slot
  api_memory memory;
  const char *first; // the argument that said so, without %
  int64_t sizes[IR_MAX_AXES];
  char **slices; // base addresses of all sliced arguments; the next free one while binding
  rt_tensor stack_tensors[API_STACK_SLOTS];
  char *stack_slices[API_STACK_SLICES];
} api_args;

// Bytes the binding takes beyond its own struct, a multiple of RT_ALIGNMENT; SIZE_MAX when that
// overflows.
size_t api_args_bytes(const fathom_executable *executable, const fathom_arg *given, uint32_t count);
// Binds and checks everything. `room` has api_args_bytes bytes. False: see the call's diag.
bool api_args_bind(api_call *call, const fathom_executable *executable, const fathom_arg *given,
                   uint32_t count, void *room, api_args *args);

#endif
