// What cmocka tests of graphs and passes share: an arena and a diagnostic sink, fresh for each
// test, and graphs from text. Include it instead of cmocka.h.
#ifndef FATHOM_TESTS_GRAPH_FIXTURE_H
#define FATHOM_TESTS_GRAPH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/ir.h"

static base_arena arena;
static base_diag diag;

static inline int set_up(void **state) {
  (void)state;
  base_arena_init(&arena, NULL);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  return 0;
}

static inline int tear_down(void **state) {
  (void)state;
  base_arena_reset(&arena);
  return 0;
}

// Fails the test with everything that was reported.
static inline void assert_clean(bool ok) {
  if (!ok) fail_msg("%.*s", BASE_FMT(base_diag_render(&diag)));
}

static inline ir_graph *parse_text(const char *text) {
  base_diag_init(&diag, &arena, BASE_STR("test.fir"), base_str_from(text));
  ir_module *module = ir_parse(&arena, base_str_from(text), &diag);
  assert_clean(module != NULL);
  return module->graphs.data[0];
}

static inline ir_graph *verified(const char *text, ir_stage stage) {
  ir_graph *graph = parse_text(text);
  assert_clean(ir_verify(graph, stage, &diag));
  return graph;
}

#endif
