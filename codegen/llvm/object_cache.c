// The keys of objects in the artefact cache.
#include "codegen/llvm/cpu.h"

static base_hash key_of(base_arena *arena, const cpu_plan *plan, const cpu_machine *machine) {
  base_text text = {.arena = arena};
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  base_str graph = base_hash_hex(arena, ir_hash(plan->graph));
  base_text_printf(&text,
                   "generator %s\nllvm %u.%u.%u\ntriple %s\ncpu %s\nfeatures %s\ngraph %.*s\n",
                   cg_generator_id(), major, minor, patch, machine->triple, machine->cpu,
                   machine->features, BASE_FMT(graph));
  for (uint32_t i = 0; i < plan->kernel_count; i++) {
    kir_schedule_print(&plan->kernels[i].kernel->schedule, &text);
    base_text_append(&text, "\n", 1);
  }
  return base_hash_bytes(text.data, text.length);
}

cg_cache_entry cpu_cache_entry(base_arena *arena, const char *directory, const cpu_plan *plan,
                               const cpu_machine *machine) {
  return (cg_cache_entry){.directory = directory,
                          .kind = "objects",
                          .extension = "o",
                          .key = key_of(arena, plan, machine)};
}
