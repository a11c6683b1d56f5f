// device_run: a bound run on a device. Used by run.c.
#ifndef FATHOM_API_DEVICE_RUN_H
#define FATHOM_API_DEVICE_RUN_H

#include "api/args.h"

typedef struct api_device_run {
  void *stream;
  bool check_pointers;
  void *workspace; // not looked at when tensors are staged
  size_t workspace_bytes;
  rt_traffic *traffic; // NULL, or one for each slot
} api_device_run;

// Whether the tensors lie in host memory that the device's kernels do not see, so that a run has to
// copy them there and back.
bool api_device_stages(const fathom_executable *executable, const api_args *args);
fathom_status api_device_execute(api_call *call, const fathom_executable *executable,
                                 const api_args *args, const api_device_run *run);

#endif
