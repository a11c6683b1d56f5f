// Which schedules are worth trying for a kernel.
#include "autotune/space.h"

#include <string.h>

#include "passes/passes.h"

// ---- facts --------------------------------------------------------------------------------------

// What the kernel has that knobs are about.
typedef struct facts {
  int64_t sources, queries; // the longest axis of each
  bool overlapped, paired;
} facts;

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static facts find_facts(const tune_subject *subject, int64_t lanes) {
  facts found = {.sources = 1, .queries = 1};
  base_diag unused;
  base_diag_init(&unused, subject->graph->arena, BASE_STR(""), BASE_STR(""));
  kir_schedule schedule = kir_schedule_default(subject->machine);
  if (subject->machine == KIR_CPU) schedule.lanes = lanes;
  const kir_kernel *kernel = pass_lower(subject->graph, subject->kernel, &schedule, &unused);
  if (!kernel) return found;
  found.overlapped = kernel->overlap >= 0;
  found.paired = kernel->paired;
  for (uint32_t i = 0; i < kernel->sweeps.count; i++) {
    const kir_sweep *sweep = &kernel->sweeps.data[i];
    for (uint32_t j = 0; j < sweep->loop_count; j++) {
      const kir_axis *axis = &kernel->axes[sweep->loops[j].index];
      if (axis->source)
        found.sources = larger(found.sources, axis->size);
      else if (!axis->hidden && !axis->head && !sweep->scalar)
        found.queries = larger(found.queries, axis->size);
    }
  }
  return found;
}

// ---- dimensions ---------------------------------------------------------------------------------

static void add_value(tune_dimension *dimension, int64_t value) {
  uint32_t at = dimension->count;
  while (at > 0 && dimension->values[at - 1] > value)
    at--;
  if ((at > 0 && dimension->values[at - 1] == value) || dimension->count == TUNE_MAX_VALUES) return;
  memmove(&dimension->values[at + 1], &dimension->values[at],
          (dimension->count - at) * sizeof *dimension->values);
  dimension->values[at] = value;
  dimension->count++;
}

// Tiles beyond the axis are the axis.
static void add_tiles(tune_dimension *dimension, int64_t size) {
  const kir_knob *knob = dimension->knob;
  int64_t most = size < knob->high ? size : knob->high;
  for (uint32_t i = 0; i < knob->tried_count; i++)
    add_value(dimension, knob->tried[i] < most ? knob->tried[i] : most);
}

// More rows in a task than a thread's share leave threads without work.
static void add_tasks(tune_dimension *dimension, const tune_subject *subject) {
  int64_t threads = subject->threads > 0 ? subject->threads : 1;
  int64_t share = subject->rows > threads ? (subject->rows + threads - 1) / threads : 1;
  for (uint32_t i = 0; i < dimension->knob->tried_count; i++)
    if (dimension->knob->tried[i] <= share) add_value(dimension, dimension->knob->tried[i]);
  if (dimension->count == 0) add_value(dimension, share);
}

static void add_vectors(tune_dimension *dimension, const tune_subject *subject) {
  add_value(dimension, 0);
  for (uint32_t i = 0; i < dimension->knob->tried_count; i++)
    if (dimension->knob->tried[i] < subject->lanes) add_value(dimension, dimension->knob->tried[i]);
}

static void add_tried(tune_dimension *dimension) {
  for (uint32_t i = 0; i < dimension->knob->tried_count; i++)
    add_value(dimension, dimension->knob->tried[i]);
}

static bool matters(const kir_knob *knob, const facts *found) {
  switch (knob->matters) {
  case KIR_SOURCES:
    return found->sources > 1;
  case KIR_QUERIES:
  case KIR_WITH_QUERIES:
    return found->queries > 1;
  case KIR_OVERLAPPED:
    return found->overlapped;
  case KIR_PAIRED:
    return found->paired;
  default:
    return true;
  }
}

static tune_dimension make_dimension(const tune_subject *subject, const kir_knob *knob,
                                     const facts *found) {
  tune_dimension dimension = {.knob = knob};
  kir_schedule initial = subject->initial;
  if (!matters(knob, found)) {
    add_value(&dimension, *kir_knob_of(&initial, knob));
    return dimension;
  }
  switch (knob->matters) {
  case KIR_SOURCES:
    add_tiles(&dimension, found->sources);
    break;
  case KIR_QUERIES:
    add_tiles(&dimension, found->queries);
    break;
  case KIR_TASKS:
    add_tasks(&dimension, subject);
    return dimension; // the default may be of no use
  case KIR_VECTORS:
    add_vectors(&dimension, subject);
    break;
  default:
    add_tried(&dimension);
  }
  return dimension;
}

// ---- schedules ----------------------------------------------------------------------------------

static uint32_t slot_of(const tune_space *space, const kir_schedule *schedule) {
  base_hash hash = base_hash_bytes(schedule, sizeof *schedule);
  uint64_t bits;
  memcpy(&bits, &hash, sizeof bits);
  uint32_t slot = (uint32_t)(bits % space->table_size);
  while (space->table[slot] &&
         memcmp(&space->schedules[space->table[slot] - 1], schedule, sizeof *schedule) != 0)
    slot = (slot + 1) % space->table_size;
  return slot;
}

// Knobs of which another one decides whether they matter are left at their defaults where they do not.
static void settle(const tune_space *space, const facts *found, kir_schedule *schedule) {
  if (schedule->machine != KIR_CPU) return;
  const facts *own = &found[schedule->lanes];
  if (!own->overlapped) schedule->overlap = space->initial.overlap;
  if (!own->overlapped || !schedule->overlap) schedule->distance = space->initial.distance;
  if (!own->paired) schedule->pair = space->initial.pair;
}

static bool goes_together(const kir_schedule *schedule) {
  base_arena arena;
  base_diag unused;
  base_arena_init(&arena, NULL);
  base_diag_init(&unused, &arena, BASE_STR(""), BASE_STR(""));
  bool good = kir_schedule_check(schedule, &unused);
  base_arena_reset(&arena);
  return good;
}

void tune_space_add(tune_space *space) {
  uint32_t slot = slot_of(space, &space->schedules[space->count]);
  if (!space->table[slot]) space->table[slot] = ++space->count;
}

static void add_schedule(tune_space *space, kir_schedule *schedules, const kir_schedule *schedule) {
  schedules[space->count] = *schedule;
  tune_space_add(space);
}

static double combinations(const tune_space *space) {
  double count = 1;
  for (uint32_t i = 0; i < space->dimension_count; i++)
    count *= space->dimensions[i].count;
  return count;
}

static void enumerate(tune_space *space, const facts *found, kir_schedule *schedules) {
  uint32_t at[TUNE_MAX_KNOBS] = {0};
  add_schedule(space, schedules, &space->initial);
  for (bool more = true; more;) {
    kir_schedule schedule = space->initial;
    for (uint32_t i = 0; i < space->dimension_count; i++)
      *kir_knob_of(&schedule, space->dimensions[i].knob) = space->dimensions[i].values[at[i]];
    settle(space, found, &schedule);
    if (goes_together(&schedule)) add_schedule(space, schedules, &schedule);
    more = false;
    for (uint32_t i = space->dimension_count; i-- > 0 && !more;) {
      more = ++at[i] < space->dimensions[i].count;
      if (!more) at[i] = 0;
    }
  }
}

tune_space *tune_space_create(base_arena *arena, const tune_subject *subject, base_diag *diag) {
  tune_space *space = base_new(arena, tune_space);
  facts found[2];
  for (int64_t lanes = 0; lanes < 2; lanes++)
    found[lanes] = find_facts(subject, lanes);
  facts all = found[0];
  all.overlapped |= found[1].overlapped;
  all.paired |= found[1].paired;
  space->initial = subject->initial;
  space->raw = 1;
  const kir_knob *knob;
  for (uint32_t i = 0; (knob = kir_knob_at(subject->machine, i)) != NULL; i++) {
    tune_dimension dimension = make_dimension(subject, knob, &all);
    space->raw *= knob->tried_count;
    if (dimension.count > 1)
      space->dimensions[space->dimension_count++] = dimension;
    else
      *kir_knob_of(&space->initial, knob) = dimension.values[0];
  }
  double count = combinations(space);
  if (count > TUNE_LARGEST_SPACE) {
    base_error_status(diag, BASE_UNSUPPORTED, (base_loc){0},
                      "kernel %d has %.0f schedules to try, more than the tuner handles (%d)",
                      subject->kernel, count, TUNE_LARGEST_SPACE);
    return NULL;
  }
  space->table_size = 2 * (uint32_t)count + 3;
  space->table = base_new_array(arena, uint32_t, space->table_size);
  kir_schedule *schedules = base_new_array(arena, kir_schedule, (uint32_t)count + 2);
  space->schedules = schedules;
  settle(space, found, &space->initial);
  enumerate(space, found, schedules);
  return space;
}

int64_t tune_space_find(const tune_space *space, const kir_schedule *schedule) {
  return (int64_t)space->table[slot_of(space, schedule)] - 1;
}

static int64_t place_of(const tune_dimension *dimension, int64_t value) {
  for (uint32_t i = 0; i < dimension->count; i++)
    if (dimension->values[i] == value) return i;
  return -1;
}

uint32_t tune_space_neighbours(const tune_space *space, uint32_t schedule, uint32_t room,
                               uint32_t *out) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < space->dimension_count; i++) {
    const tune_dimension *dimension = &space->dimensions[i];
    kir_schedule next = space->schedules[schedule];
    int64_t place = place_of(dimension, *kir_knob_of(&next, dimension->knob));
    for (int64_t to = place - 1; to <= place + 1; to += 2) {
      if (to < 0 || to >= dimension->count || count == room) continue;
      *kir_knob_of(&next, dimension->knob) = dimension->values[to];
      int64_t number = tune_space_find(space, &next);
      if (number >= 0 && number != schedule) out[count++] = (uint32_t)number;
    }
  }
  return count;
}
