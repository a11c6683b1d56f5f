// tune_subject: what is tuned.
#include "api/tune_subject.h"

#include "api/tuned.h"
#include "codegen/cuda/cuda.h"
#include "passes/passes.h"

static const base_loc nowhere;

static bool fuses_to_one(api_call *call, const ir_graph *fused) {
  uint32_t count = pass_kernel_count(fused);
  if (count == 1) return true;
  base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere,
                    "graph @%.*s fuses to %u kernels, and only graphs of one kernel can be tuned",
                    BASE_FMT(fused->name), count);
  return false;
}

static bool take_cpu(api_call *call, const api_request *request, tune_subject *out) {
  const cg_target *target = api_codegen(call, request->kind);
  cg_identity identity;
  if (!target) return false;
  if (!target->identify(&call->arena, &identity)) {
    base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere,
                      "the %s target cannot compile on this machine", target->name);
    return false;
  }
  out->lanes = identity.lanes;
  out->initial = pass_default_schedule(out->graph, out->kernel);
  return true;
}

static bool take_gpu(api_call *call, const api_request *request, tune_subject *out) {
  cuda_arch *arch = base_new(&call->arena, cuda_arch);
  const char *name = request->arch[0] ? request->arch : API_DEFAULT_ARCH;
  if (request->facts) out->gpu = cuda_gpu_find(request->facts->name);
  if (cuda_arch_find(name, arch) && !out->gpu) out->gpu = cuda_gpu_find(arch->name);
  if (!out->gpu) {
    base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere,
                      "no GPU of architecture %s is in the table of known ones", name);
    base_hint(&call->diag, "its figures are needed to rank schedules (codegen/cuda/gpus.def)");
    return false;
  }
  out->arch = arch;
  out->initial = cuda_default_schedule(out->graph, out->kernel, arch);
  return true;
}

bool api_tune_subject(api_call *call, const fathom_graph *graph, const api_request *request,
                      int64_t dynamic_size, uint32_t threads, tune_subject *out) {
  bool gpu = api_targets[request->kind].gpu;
  const ir_graph *fused = api_lower(call, graph, request);
  if (!fused || !fuses_to_one(call, fused)) return false;
  *out = (tune_subject){.graph = fused,
                        .machine = gpu ? KIR_CUDA : KIR_CPU,
                        .rows = api_rows_of(fused, dynamic_size),
                        .threads = threads};
  return gpu ? take_gpu(call, request, out) : take_cpu(call, request, out);
}
