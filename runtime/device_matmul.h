// runtime, internal: the matrix products of a form of kind RT_FORM_MATMUL.
//
// What a product looks like depends on sizes and strides, not on addresses. Those of a launch are
// made when its workspace is asked for, and kept, so that the launch itself only looks them up.
#ifndef FATHOM_RUNTIME_DEVICE_MATMUL_H
#define FATHOM_RUNTIME_DEVICE_MATMUL_H

#include "runtime/device_program.h"
#include "runtime/plan.h"

typedef struct rt_products rt_products; // the products of a form made so far; thread safe

// UNSUPPORTED: the device has no library for them.
base_status rt_products_create(rt_device *device, const rt_product *product, rt_products **out,
                               base_diag *diag);
void rt_products_destroy(rt_products *products); // NULL is allowed

// Can the library take rows with these strides?
bool rt_products_fit(rt_products *products, const rt_bound *bound, const rt_kernel *kernel);
// Bytes of P, padded to the alignment of workspaces.
size_t rt_products_bytes(rt_products *products, const rt_bound *bound);
// Makes what is not there yet; *bytes: workspace of the library.
base_status rt_products_plan(rt_products *products, const rt_bound *bound, const rt_kernel *kernel,
                             size_t *bytes, base_diag *diag);
// Enqueues all products: B at `prepared`, then P at `result`, the library's workspace behind it.
// `traffic`, one entry a slot, may be NULL.
base_status rt_products_run(rt_products *products, const rt_bound *bound, const rt_kernel *kernel,
                            const char *prepared, char *result, void *stream, rt_traffic *traffic,
                            base_diag *diag);

#endif
