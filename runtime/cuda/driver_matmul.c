// The device table's matrix products, by cuBLASLt. The library is opened at the first product: most
// programs have none.
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/driver_api.h"

// The device's handle, made by whoever comes first.
static base_status open_library(rt_cuda_device *device, base_diag *diag) {
  pthread_mutex_lock(&device->lock);
  rt_cublaslt *known = device->cublaslt;
  pthread_mutex_unlock(&device->lock);
  if (known) return BASE_OK;
  rt_cublaslt *made;
  base_status status = rt_cublaslt_create(&device->base, &made, diag);
  if (status != BASE_OK) return status;
  pthread_mutex_lock(&device->lock);
  rt_cublaslt *spare = device->cublaslt ? made : NULL;
  if (!spare) device->cublaslt = made;
  pthread_mutex_unlock(&device->lock);
  rt_cublaslt_destroy(spare);
  return BASE_OK;
}

base_status rt_cuda_matmul_create(rt_device *device, const rt_matmul_shape *shape,
                                  size_t workspace_limit, rt_matmul **out, base_diag *diag) {
  rt_cuda_device *self = (rt_cuda_device *)device;
  *out = NULL;
  base_status status = open_library(self, diag);
  if (status != BASE_OK) return status;
  return rt_matmul_create(self->cublaslt, shape, workspace_limit, out, diag);
}

size_t rt_cuda_matmul_workspace(const rt_matmul *matmul) {
  return rt_matmul_workspace_bytes(matmul);
}

base_status rt_cuda_matmul_run(rt_device *device, const rt_matmul *matmul, const void *a,
                               const void *b, float *d, void *workspace, void *stream,
                               base_diag *diag) {
  (void)device;
  return rt_matmul_run(matmul, a, b, d, workspace, stream, diag);
}

void rt_cuda_matmul_destroy(rt_device *device, rt_matmul *matmul) {
  (void)device;
  rt_matmul_destroy(matmul);
}
