// Any bytes as a file of graphs: the parser, the verifier and the renderer of their reports must
// cope, and whatever parses must print as text that parses back to the same graph, before and after
// the verifier has solved its sizes. The same bytes are then read as a schedule.
#include <string.h>

#include "ir/kernel.h"
#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST_SCHEDULE = 200 };

static void check_text(base_arena *arena, base_str text) {
  base_diag diag = fuzz_diag(arena, text);
  ir_module *module = ir_parse(arena, text, &diag);
  fuzz_render(&diag, !module);
  for (uint32_t i = 0; module && i < module->graphs.count; i++) {
    ir_graph *graph = module->graphs.data[i];
    fuzz_round_trip(arena, graph);
    base_diag verified = fuzz_diag(arena, text);
    bool good = ir_verify(graph, IR_STAGE_PARSED, &verified);
    fuzz_render(&verified, !good);
    if (!good) continue;
    fuzz_round_trip(arena, graph);
    base_diag bound = fuzz_diag(arena, text);
    good = ir_verify(graph, IR_STAGE_BOUND, &bound);
    fuzz_render(&bound, !good);
  }
}

// What is accepted prints as a schedule that says the same.
static void check_schedule(base_arena *arena, base_str bytes, kir_machine machine) {
  if (bytes.length > LONGEST_SCHEDULE) bytes.length = LONGEST_SCHEDULE;
  base_str text = base_str_copy(arena, bytes);
  base_diag diag = fuzz_diag(arena, text);
  kir_schedule schedule = kir_schedule_default(machine), again = schedule;
  fuzz_render(&diag, !kir_schedule_parse(text.data, &schedule, &diag));
  base_text printed = {.arena = arena};
  kir_schedule_print(&schedule, &printed);
  FUZZ_REQUIRE(kir_schedule_parse(printed.data, &again, &diag), "schedule %s does not parse",
               printed.data);
  FUZZ_REQUIRE(memcmp(&schedule, &again, sizeof again) == 0, "schedule %s parses to another",
               printed.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  base_str text = {(const char *)data, size};
  check_text(&arena, text);
  check_schedule(&arena, text, KIR_CPU);
  check_schedule(&arena, text, KIR_CUDA);
  base_arena_reset(&arena);
  return 0;
}
