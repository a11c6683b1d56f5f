// plan-memory: which buffer of the workspace holds which of the values that runs leave for later ones, from
// when they are written until they are read for the last time.
//
// A linear scan over the runs: a result takes the smallest free buffer that it fits without wasting more
// than half of it, or else the largest one that is smaller, which grows, or a new one. A buffer is free
// from the run after the last one that reads it, since what a run writes may not overlap what it reads.
// Runs beside the host's calls may take until somebody waits for them: all that they touch is kept until
// then.
//
// The check at the end is another program: it simulates the runs.
#include "passes/depth.h"

uint64_t pass_bytes_per_row(const ir_graph *graph, ir_value value) {
  const ir_type *type = &ir_node_of(graph, value)->type;
  uint64_t bytes = ir_dtype_size(type->dtype);
  for (uint32_t i = 0; i < type->rank; i++) {
    const int64_t size = ir_axis_size(graph, type->axes[i]);
    if (size != IR_DYNAMIC) bytes *= (uint64_t)size;
  }
  return bytes;
}

// ---- who reads what -----------------------------------------------------------------------------

static bool is_kept_result(const pass_run *run, uint32_t i) {
  return !run->results[i].to_host;
}

static bool reads(const pass_run *run, uint32_t value) {
  for (uint32_t i = 0; i < run->arg_count; i++)
    for (uint32_t j = 0; j < run->args[i].part_count; j++)
      if (run->args[i].parts[j].value.index == value) return true;
  return false;
}

uint32_t pass_run_waited_for(const pass_outline *outline, uint32_t index) {
  const pass_run *run = &outline->runs.data[index];
  for (uint32_t later = index + 1; later < outline->runs.count; later++)
    for (uint32_t i = 0; i < run->result_count; i++)
      if (is_kept_result(run, i) && reads(&outline->runs.data[later], run->results[i].value.index))
        return later;
  return outline->runs.count;
}

// The last run that the value's memory has to be left alone for.
static uint32_t last_use(const pass_outline *outline, uint32_t value, uint32_t written) {
  uint32_t last = written;
  for (uint32_t i = written; i < outline->runs.count; i++) {
    const pass_run *run = &outline->runs.data[i];
    if (i > written && !reads(run, value)) continue;
    const uint32_t until = run->beside ? pass_run_waited_for(outline, i) : i;
    if (until > last) last = until;
  }
  return last;
}

// ---- planning -----------------------------------------------------------------------------------

typedef struct buffer {
  uint64_t bytes;
  uint32_t free_from; // run
} buffer;

typedef struct planner {
  const pass_outline *outline;
  BASE_VECTOR(buffer) buffers;
} planner;

static uint32_t choose_buffer(const planner *p, uint64_t bytes, uint32_t run) {
  const uint32_t none = p->buffers.count;
  uint32_t best = none, grown = none;
  for (uint32_t i = 0; i < p->buffers.count; i++) {
    const buffer *b = &p->buffers.data[i];
    if (b->free_from > run) continue;
    if (b->bytes < bytes) {
      if (grown == none || b->bytes > p->buffers.data[grown].bytes) grown = i;
    } else if (b->bytes / 2 <= bytes && (best == none || b->bytes < p->buffers.data[best].bytes)) {
      best = i;
    }
  }
  return best != none ? best : grown;
}

static void place(planner *p, uint32_t value, uint32_t run, int32_t *buffer_of) {
  const pass_outline *outline = p->outline;
  const uint64_t bytes = pass_bytes_per_row(outline->graph, (ir_value){value});
  const uint32_t chosen = choose_buffer(p, bytes, run);
  if (chosen == p->buffers.count) base_push(outline->graph->arena, &p->buffers, (buffer){0});
  buffer *b = &p->buffers.data[chosen];
  if (bytes > b->bytes) b->bytes = bytes;
  b->free_from = last_use(outline, value, run) + 1;
  buffer_of[value] = (int32_t)chosen;
}

static bool has_one_dynamic_axis(const ir_graph *graph, const ir_node *node) {
  uint32_t dynamic = 0;
  for (uint32_t i = 0; i < node->type.rank; i++)
    dynamic += ir_axis_size(graph, node->type.axes[i]) == IR_DYNAMIC;
  return dynamic == 1;
}

const pass_memory *pass_plan_memory(const pass_outline *outline, base_diag *diag) {
  base_arena *arena = outline->graph->arena;
  const uint32_t count = outline->graph->nodes.count;
  int32_t *buffer_of = base_new_array(arena, int32_t, count + 1);
  planner p = {.outline = outline};
  for (uint32_t i = 0; i < count; i++)
    buffer_of[i] = -1;
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const pass_run *run = &outline->runs.data[i];
    for (uint32_t j = 0; j < run->result_count; j++) {
      const ir_node *node = ir_node_of(outline->graph, run->results[j].value);
      if (!is_kept_result(run, j)) continue;
      if (!has_one_dynamic_axis(outline->graph, node)) {
        base_error_status(diag, BASE_UNSUPPORTED, node->loc,
                          "%%%.*s is kept between calls: expected exactly one dynamic axis",
                          BASE_FMT(node->name));
        base_hint(diag, "give every axis but the tokens' a size");
        return NULL;
      }
      place(&p, run->results[j].value.index, i, buffer_of);
    }
  }
  pass_memory *memory = base_new(arena, pass_memory);
  uint64_t *bytes = base_new_array(arena, uint64_t, p.buffers.count + 1);
  for (uint32_t i = 0; i < p.buffers.count; i++)
    bytes[i] = p.buffers.data[i].bytes;
  *memory = (pass_memory){p.buffers.count, bytes, buffer_of};
  return pass_check_memory(outline, memory, diag) ? memory : NULL;
}

// ---- checking -----------------------------------------------------------------------------------

enum { NOBODY = -1 };

typedef struct simulation {
  const pass_outline *outline;
  const pass_memory *memory;
  int64_t *holds;       // of each buffer: the value written last
  uint32_t *busy_until; // of each buffer: the run before which nobody may write it
  base_diag *diag;
} simulation;

static base_str name_of(const simulation *s, int64_t value) {
  if (value == NOBODY) return BASE_STR("nothing");
  return base_str_format(s->diag->arena, "%%%.*s",
                         BASE_FMT(s->outline->graph->nodes.data[value].name));
}

static bool complain(const simulation *s, uint32_t run, const char *what, int64_t value,
                     uint32_t buffer) {
  base_error_status(s->diag, BASE_INTERNAL, (base_loc){0},
                    "the memory plan is wrong: run %u %s %.*s in buffer %u, which holds %.*s", run,
                    what, BASE_FMT(name_of(s, value)), buffer,
                    BASE_FMT(name_of(s, s->holds[buffer])));
  base_hint(s->diag, "please report this, with the model");
  return false;
}

static bool simulate_reads(simulation *s, uint32_t index) {
  const pass_run *run = &s->outline->runs.data[index];
  for (uint32_t i = 0; i < run->arg_count; i++)
    for (uint32_t j = 0; j < run->args[i].part_count; j++) {
      const ir_value value = run->args[i].parts[j].value;
      const int32_t buffer = s->memory->buffer_of[value.index];
      if (buffer < 0 || pass_reads_host(s->outline, run, value)) continue;
      if (s->holds[buffer] != value.index)
        return complain(s, index, "reads", value.index, (uint32_t)buffer);
      if (run->beside) s->busy_until[buffer] = pass_run_waited_for(s->outline, index);
    }
  return true;
}

static bool simulate_writes(simulation *s, uint32_t index) {
  const pass_run *run = &s->outline->runs.data[index];
  for (uint32_t i = 0; i < run->result_count; i++) {
    const uint32_t value = run->results[i].value.index;
    const int32_t buffer = s->memory->buffer_of[value];
    if (!is_kept_result(run, i)) continue;
    if (buffer < 0 || (uint32_t)buffer >= s->memory->buffer_count ||
        s->memory->buffer_bytes[buffer] <
            pass_bytes_per_row(s->outline->graph, run->results[i].value))
      return complain(s, index, "has no room to write", value, 0);
    const int64_t before = s->holds[buffer];
    const bool read_here = before != NOBODY && reads(run, (uint32_t)before) &&
                           !pass_reads_host(s->outline, run, (ir_value){(uint32_t)before});
    if (read_here || s->busy_until[buffer] > index)
      return complain(s, index, "writes", value, (uint32_t)buffer);
    s->holds[buffer] = value;
    if (run->beside) s->busy_until[buffer] = pass_run_waited_for(s->outline, index);
  }
  // Two results in one buffer: the first is gone.
  for (uint32_t i = 0; i < run->result_count; i++) {
    const uint32_t value = run->results[i].value.index;
    if (is_kept_result(run, i) && s->holds[s->memory->buffer_of[value]] != value)
      return complain(s, index, "writes", value, (uint32_t)s->memory->buffer_of[value]);
  }
  return true;
}

bool pass_check_memory(const pass_outline *outline, const pass_memory *memory, base_diag *diag) {
  base_arena *arena = diag->arena;
  simulation s = {.outline = outline,
                  .memory = memory,
                  .holds = base_new_array(arena, int64_t, memory->buffer_count + 1),
                  .busy_until = base_new_array(arena, uint32_t, memory->buffer_count + 1),
                  .diag = diag};
  for (uint32_t i = 0; i < memory->buffer_count; i++)
    s.holds[i] = NOBODY;
  for (uint32_t i = 0; i < outline->runs.count; i++)
    if (!simulate_reads(&s, i) || !simulate_writes(&s, i)) return false;
  return true;
}
