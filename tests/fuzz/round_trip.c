// parse(print(g)) = g, and reports that say something (see round_trip.h).
#include "round_trip.h"

base_diag fuzz_diag(base_arena *arena, base_str source) {
  base_diag diag;
  base_diag_init(&diag, arena, BASE_STR("fuzz.fir"), source);
  return diag;
}

base_str fuzz_render(base_diag *diag, bool failed) {
  base_str text = base_diag_render(diag);
  FUZZ_REQUIRE(failed == (diag->error_count > 0), "a failure and no error, or the reverse:\n%.*s",
               BASE_FMT(text));
  FUZZ_REQUIRE(!failed || text.length > 0, "an error without a text");
  return text;
}

base_str fuzz_round_trip(base_arena *arena, const ir_graph *graph) {
  base_text printed = {.arena = arena}, again = {.arena = arena};
  ir_print(graph, &printed);
  base_str text = base_text_str(&printed);
  base_diag diag = fuzz_diag(arena, text);
  ir_module *module = ir_parse(arena, text, &diag);
  FUZZ_REQUIRE(module && module->graphs.count == 1, "%.*s\ndoes not parse:\n%.*s", BASE_FMT(text),
               BASE_FMT(base_diag_render(&diag)));
  const ir_graph *parsed = module->graphs.data[0];
  ir_print(parsed, &again);
  FUZZ_REQUIRE(ir_equal(graph, parsed), "%.*s\nparses to another graph:\n%.*s", BASE_FMT(text),
               BASE_FMT(base_text_str(&again)));
  FUZZ_REQUIRE(base_str_equal(text, base_text_str(&again)), "%.*s\nprints differently again:\n%.*s",
               BASE_FMT(text), BASE_FMT(base_text_str(&again)));
  FUZZ_REQUIRE(base_hash_equal(ir_hash(graph), ir_hash(parsed)), "%.*s\nhashes differently again",
               BASE_FMT(text));
  return text;
}
