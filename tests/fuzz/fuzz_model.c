// Any bytes as a model's description: what is wrong is told, and what is right becomes a graph that every
// pass takes, down to a memory plan that passes its check.
#include "model/model.h"
#include "passes/depth.h"
#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What is longer takes long, and finds no more.
enum { MOST_SUBLAYERS = 20 };

static void check_plan(ir_graph *graph, base_diag *diag) {
  const pass_outline *outline = pass_outline_depth(graph, diag);
  FUZZ_REQUIRE(outline != NULL, "no outline: %.*s", BASE_FMT(base_diag_render(diag)));
  const pass_memory *memory = pass_plan_memory(outline, diag);
  FUZZ_REQUIRE(memory != NULL, "no plan: %.*s", BASE_FMT(base_diag_render(diag)));
}

static void check_graph(base_arena *arena, const model_description *model, uint32_t outputs) {
  base_diag diag = fuzz_diag(arena, BASE_STR(""));
  ir_graph *graph = model_expand(arena, model, outputs, &diag);
  fuzz_render(&diag, graph == NULL);
  if (graph == NULL) return;
  FUZZ_REQUIRE(ir_verify(graph, IR_STAGE_BOUND, &diag), "expanded: %.*s",
               BASE_FMT(base_diag_render(&diag)));
  fuzz_round_trip(arena, graph);
  check_plan(graph, &diag);
  for (int choice = PASS_PHASES_LEAST; choice <= PASS_PHASES_ALL; choice++) {
    ir_graph *phased = pass_two_phase_as(graph, (pass_phase_choice)choice, NULL, NULL, &diag);
    FUZZ_REQUIRE(phased != NULL && ir_verify(phased, IR_STAGE_BOUND, &diag), "two phases: %.*s",
                 BASE_FMT(base_diag_render(&diag)));
    check_plan(phased, &diag);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  const base_str text = {(const char *)data, size};
  base_diag diag = fuzz_diag(&arena, text);
  const model_description *model = model_read(&arena, text, BASE_STR("model"), &diag);
  fuzz_render(&diag, model == NULL);
  if (model != NULL && model->sublayers <= MOST_SUBLAYERS) {
    check_graph(&arena, model, 0);
    check_graph(&arena, model, (uint32_t)(base_hash_bytes(data, size).low % 16));
  }
  base_arena_reset(&arena);
  return 0;
}
