// driver_launch: one kernel onto a stream.
//
// On the path that serving takes and that streams capture: no memory, no waiting, no call that a
// capture forbids. What the driver would refuse with a number is refused before, in words.
#include "runtime/cuda/driver_api.h"

#include <limits.h>
#include <stdio.h>

enum {
  MOST_CLUSTER = 8,   // that every device with clusters runs
  CLUSTERS_SINCE = 9, // compute capability; so does programmatic launch
};

static base_status check_cluster(const rt_device *device, const rt_device_launch *launch,
                                 base_diag *diag) {
  const rt_device_facts *facts = &device->facts;
  const char *name = launch->function->name;
  const base_loc nowhere = {0};
  if (launch->cluster <= 1) return BASE_OK;
  if (facts->major < CLUSTERS_SINCE) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere,
                      "kernel '%s' needs clusters of blocks, which %s (sm_%u%u) does not have",
                      name, facts->name, facts->major, facts->minor);
    base_hint(diag, "choose a schedule without clusters");
    return BASE_UNSUPPORTED;
  }
  if (rt_cuda.cuLaunchKernelEx == NULL) {
    base_error_status(diag, BASE_UNSUPPORTED, nowhere,
                      "kernel '%s' needs clusters of blocks, which this driver cannot launch",
                      name);
    base_hint(diag,
              "update the driver to CUDA 11.8 or newer, or choose a schedule without clusters");
    return BASE_UNSUPPORTED;
  }
  if (launch->cluster <= MOST_CLUSTER && launch->blocks % launch->cluster == 0) return BASE_OK;
  base_error(diag, nowhere, "kernel '%s' cannot run %lld blocks in clusters of %u", name,
             (long long)launch->blocks, launch->cluster);
  base_hint(diag, "a cluster has at most %d blocks, and clusters divide the grid", MOST_CLUSTER);
  return BASE_INVALID;
}

static base_status check(const rt_device *device, const rt_device_launch *launch, base_diag *diag) {
  const rt_function *function = launch->function;
  const char *name = function->name;
  const base_loc nowhere = {0};
  if (launch->blocks < 0 || launch->blocks > INT_MAX) {
    base_error(diag, nowhere, "kernel '%s' would run %lld blocks, a grid has at most %d", name,
               (long long)launch->blocks, INT_MAX);
    base_hint(diag, "launch fewer tokens at once, or choose a schedule with a persistent grid");
    return BASE_INVALID;
  }
  if (launch->threads == 0 || launch->threads > function->threads) {
    base_error(diag, nowhere, "kernel '%s' runs with 1 to %u threads a block, not %u", name,
               function->threads, launch->threads);
    base_hint(diag, "launch it with the threads it was compiled for");
    return BASE_INVALID;
  }
  if (launch->shared_bytes > function->shared_bytes) {
    base_error(diag, nowhere,
               "kernel '%s' was prepared for %zu bytes of shared memory a block, not %zu", name,
               function->shared_bytes, launch->shared_bytes);
    base_hint(diag, "find it with the most that it is launched with; %s has %zu",
              device->facts.name, device->facts.shared_per_block);
    return BASE_INVALID;
  }
  if (function->parameter_bytes && launch->parameter_bytes != function->parameter_bytes) {
    base_error(diag, nowhere, "kernel '%s' takes %zu bytes of parameters, not %zu", name,
               function->parameter_bytes, launch->parameter_bytes);
    base_hint(diag, "the code and its caller are of different versions: compile again");
    return BASE_INVALID;
  }
  return check_cluster(device, launch, diag);
}

// The attributes a launch has; how many.
static unsigned attributes(const rt_device *device, const rt_device_launch *launch,
                           CUlaunchAttribute *out) {
  unsigned count = 0;
  if (launch->cluster > 1) {
    CUlaunchAttribute *cluster = &out[count++];
    *cluster = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    cluster->value.clusterDim.x = launch->cluster;
    cluster->value.clusterDim.y = cluster->value.clusterDim.z = 1;
  }
  // Only a permission: where it means nothing, the launch is as good without.
  if (launch->programmatic && device->facts.major >= CLUSTERS_SINCE && rt_cuda.cuLaunchKernelEx) {
    CUlaunchAttribute *early = &out[count++];
    *early = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
    early->value.programmaticStreamSerializationAllowed = 1;
  }
  return count;
}

base_status rt_cuda_launch(rt_device *device, void *stream, const rt_device_launch *launch,
                           base_diag *diag) {
  const base_status status = check(device, launch, diag);
  if (status != BASE_OK || launch->blocks == 0) return status;

  CUlaunchAttribute list[2];
  const unsigned count = attributes(device, launch, list);
  CUfunction handle = launch->function->handle;
  void *parameters[] = {(void *)launch->parameters}; // the driver only reads
  const CUlaunchConfig config = {.gridDimX = (unsigned)launch->blocks,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = launch->threads,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .sharedMemBytes = (unsigned)launch->shared_bytes,
                                 .hStream = stream,
                                 .attrs = list,
                                 .numAttrs = count};
  rt_cuda_failure failure = {0};
  rt_cuda_scope scope;
  if (rt_cuda_enter((rt_cuda_device *)device, &scope, &failure)) {
    if (count)
      (void)RT_CUDA(&failure, cuLaunchKernelEx, &config, handle, parameters, NULL);
    else
      (void)RT_CUDA(&failure, cuLaunchKernel, handle, config.gridDimX, 1, 1, launch->threads, 1, 1,
                    config.sharedMemBytes, stream, parameters, NULL);
    rt_cuda_leave(&scope);
  }
  if (failure.result == CUDA_SUCCESS) return BASE_OK;
  char detail[256];
  snprintf(detail, sizeof detail, "; the kernel is '%s'", launch->function->name);
  return rt_cuda_report(diag, &failure, detail);
}
