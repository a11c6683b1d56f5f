// What `--emit report` prints: one block a kernel, figures counted from the kernel IR and read off
// the assembly.
#include <string.h>

#include "codegen/llvm/cpu.h"

// Lines between a function's label and its end marker.
static base_str function_text(base_arena *arena, base_str assembly, const char *name) {
  base_str label = base_str_format(arena, "\n%s:", name);
  const char *start = memmem(assembly.data, assembly.length, label.data, label.length);
  if (!start) return (base_str){"", 0};
  size_t rest = assembly.length - (size_t)(start - assembly.data);
  const char *end = memmem(start, rest, ".Lfunc_end", 10);
  return (base_str){start, end ? (size_t)(end - start) : rest};
}

static uint32_t count_text(base_str text, const char *part) {
  uint32_t count = 0;
  size_t length = strlen(part);
  const char *end = text.data + text.length;
  for (const char *at = text.data; (at = memmem(at, (size_t)(end - at), part, length));
       at += length)
    count++;
  return count;
}

static uint32_t vector_registers(base_arena *arena, base_str text) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < 32; i++) {
    bool found = false;
    for (const char *kind = "xyz"; *kind; kind++)
      found |= count_text(text, base_str_format(arena, "%%%cmm%u,", *kind, i).data) ||
               count_text(text, base_str_format(arena, "%%%cmm%u\n", *kind, i).data);
    used += found;
  }
  return used;
}

static bool streams(const kir_kernel *kernel) {
  bool any = false;
  for (uint32_t i = 0; i < kernel->args.count; i++)
    any |= kernel->args.data[i].written && !kernel->args.data[i].temporary;
  return any && kernel->schedule.stream;
}

static void report_kernel(base_arena *arena, const cpu_kernel *cpu, const cpu_machine *machine,
                          base_str assembly, base_text *out) {
  const kir_kernel *kernel = cpu->kernel;
  kir_cost cost = kir_cost_per_row(kernel);
  base_str text = function_text(arena, assembly, cpu->body);
  const char *unit = kernel->row_count ? "token" : "call";
  double bytes = cost.bytes_read + cost.bytes_written;
  base_text_printf(out, "kernel: %.*s\n", BASE_FMT(kernel->name));
  base_text_printf(out, "  schedule: ");
  kir_schedule_print(&kernel->schedule, out);
  base_text_printf(out, "\n  in effect:%s%s%s\n", kernel->overlap >= 0 ? " overlap" : "",
                   kernel->paired ? " pair" : "", streams(kernel) ? " stream" : "");
  base_text_printf(out, "  fused ops: %u\n  rows:", kir_fused_ops(kernel));
  for (uint32_t i = 0; i < kernel->row_count; i++)
    base_text_printf(out, " %.*s", BASE_FMT(kernel->graph->axes.data[kernel->rows[i].index].name));
  base_text_printf(out, "%s\n", kernel->row_count ? " (a token is one index of them)" : " none");
  base_text_printf(out, "  bytes per %s: %.0f (%.0f read, %.0f written)\n", unit, bytes,
                   cost.bytes_read, cost.bytes_written);
  base_text_printf(out, "  flops per %s: %.0f (%.2f per byte)\n", unit, cost.flops,
                   bytes > 0 ? cost.flops / bytes : 0);
  base_text_printf(out, "  shared memory: %zu bytes, scratch: %zu bytes a thread\n",
                   kernel->shared_bytes, kernel->scratch_bytes);
  if (machine->x86)
    base_text_printf(out, "  registers: %u vector, spills: %u\n", vector_registers(arena, text),
                     count_text(text, "Spill"));
  else
    base_text_printf(out, "  registers: not counted for this CPU, spills: %u\n",
                     count_text(text, "Spill"));
  base_text_printf(out, "  occupancy: one row at a time on each thread\n");
}

base_str cpu_report(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine,
                    base_str assembly) {
  base_text out = {.arena = arena};
  base_text_printf(&out, "graph: %.*s\ntarget: cpu (%s, %u f32 lanes)\nkernels: %u\n",
                   BASE_FMT(plan->graph->name), machine->cpu, machine->width, plan->kernel_count);
  uint32_t temporaries = 0;
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].kernel->args.count; j++)
      temporaries += plan->kernels[i].kernel->args.data[j].temporary &&
                     plan->kernels[i].kernel->args.data[j].written;
  base_text_printf(&out, "temporaries in memory: %u\nschedule source: %s\n", temporaries,
                   plan->schedule_source);
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    report_kernel(arena, &plan->kernels[i], machine, assembly, &out);
  return base_text_str(&out);
}
