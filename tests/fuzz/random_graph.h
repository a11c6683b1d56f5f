// random_graph: well-typed, well-conditioned graphs from bytes.
//
// Every decision takes a byte, so that a fuzzer that changes one byte changes one decision; when
// the bytes are used up all decisions are 0, which ends the graph. A graph covers every op but
// `call`, on small awkward sizes. The range of each value is tracked, and what would be
// ill-conditioned in f32 (exp of something large, a divisor near 0, log of a negative) is not
// built: then a wrong number is a wrong kernel.
#ifndef FATHOM_TESTS_RANDOM_GRAPH_H
#define FATHOM_TESTS_RANDOM_GRAPH_H

#include "ir/ir.h"

typedef struct random_bytes {
  const uint8_t *data;
  size_t size, at;
} random_bytes;

// One of 0 .. count-1.
uint32_t random_pick(random_bytes *bytes, uint32_t count);
// True once in `odds` times, never when the bytes are used up.
bool random_rarely(random_bytes *bytes, uint32_t odds);

// The sizes axes have; dynamic axes should get one of them too.
int64_t random_size(random_bytes *bytes);

// A graph that ir_verify accepts at IR_STAGE_BOUND.
ir_graph *random_graph_make(base_arena *arena, random_bytes *bytes);
// Adds a result that sums over a dynamic axis, which makes the axis dependent; false when there is
// none.
bool random_graph_break(ir_graph *graph);

#endif
