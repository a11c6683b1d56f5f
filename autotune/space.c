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
static int64_t cut_tile(const kir_knob *knob, int64_t tile, int64_t size) {
  int64_t most = size < knob->high ? size : knob->high;
  return tile < most ? tile : most;
}

static void add_tiles(tune_dimension *dimension, int64_t size) {
  const kir_knob *knob = dimension->knob;
  for (uint32_t i = 0; i < knob->tried_count; i++)
    add_value(dimension, cut_tile(knob, knob->tried[i], size));
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

// The default with no tile beyond its axis: the same code.
static kir_schedule cut_tiles(kir_schedule schedule, const facts *found) {
  const kir_knob *knob;
  for (uint32_t i = 0; (knob = kir_knob_at(schedule.machine, i)) != NULL; i++) {
    int64_t *value = kir_knob_of(&schedule, knob);
    if (knob->matters == KIR_SOURCES && found->sources > 1)
      *value = cut_tile(knob, *value, found->sources);
    if (knob->matters == KIR_QUERIES && found->queries > 1)
      *value = cut_tile(knob, *value, found->queries);
  }
  return schedule;
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
  if (schedule->machine == KIR_CUDA) {
    if (schedule->load == 0) schedule->stages = space->initial.stages;
    if (schedule->split == 1) schedule->cluster = space->initial.cluster;
    return;
  }
  const facts *own = &found[schedule->lanes];
  if (!own->overlapped) schedule->overlap = space->initial.overlap;
  if (!own->overlapped || !schedule->overlap) schedule->distance = space->initial.distance;
  if (!own->paired) schedule->pair = space->initial.pair;
}

static bool goes_together(base_arena *scratch, const kir_schedule *schedule) {
  base_diag unused;
  base_diag_init(&unused, scratch, BASE_STR(""), BASE_STR(""));
  bool good = kir_schedule_check(schedule, &unused);
  base_arena_reset(scratch);
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

// In how many schedules at most `radius` knobs differ from the default: coefficients of the product of
// 1 + (values - 1) x.
static double combinations(const tune_space *space, uint32_t radius) {
  double counts[TUNE_MAX_KNOBS + 1] = {1}, all = 0;
  for (uint32_t i = 0; i < space->dimension_count; i++)
    for (uint32_t j = i + 1; j > 0; j--)
      counts[j] += counts[j - 1] * (space->dimensions[i].count - 1);
  for (uint32_t i = 0; i <= radius && i <= space->dimension_count; i++)
    all += counts[i];
  return all;
}

static uint32_t choose_radius(const tune_space *space) {
  uint32_t radius = space->dimension_count;
  if (combinations(space, radius) <= TUNE_LARGEST_SPACE) return radius;
  while (radius > 1 && combinations(space, radius) > TUNE_LARGEST_PART)
    radius--;
  return radius;
}

typedef struct listing {
  tune_space *space;
  const facts *found;
  kir_schedule *schedules;
  base_arena *scratch;
} listing;

// All values of the dimensions from `first` on, of which at most `changes` may differ from the default.
static void enumerate(const listing *l, uint32_t first, uint32_t changes, kir_schedule schedule) {
  tune_space *space = l->space;
  if (first == space->dimension_count) {
    settle(space, l->found, &schedule);
    if (goes_together(l->scratch, &schedule)) add_schedule(space, l->schedules, &schedule);
    return;
  }
  const tune_dimension *dimension = &space->dimensions[first];
  int64_t usual = *kir_knob_of(&schedule, dimension->knob);
  for (uint32_t i = 0; i < dimension->count; i++) {
    uint32_t changed = dimension->values[i] != usual;
    if (changed > changes) continue;
    *kir_knob_of(&schedule, dimension->knob) = dimension->values[i];
    enumerate(l, first + 1, changes - changed, schedule);
  }
}

tune_space *tune_space_create(base_arena *arena, const tune_subject *subject) {
  tune_space *space = base_new(arena, tune_space);
  facts found[2];
  for (int64_t lanes = 0; lanes < 2; lanes++)
    found[lanes] = find_facts(subject, lanes);
  facts all = found[0];
  all.overlapped |= found[1].overlapped;
  all.paired |= found[1].paired;
  space->initial = cut_tiles(subject->initial, &all);
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
  space->radius = choose_radius(space);
  uint32_t most = (uint32_t)combinations(space, space->radius) + 2;
  space->table_size = 2 * most + 3;
  space->table = base_new_array(arena, uint32_t, space->table_size);
  kir_schedule *schedules = base_new_array(arena, kir_schedule, most);
  space->schedules = schedules;
  settle(space, found, &space->initial);
  add_schedule(space, schedules, &space->initial);
  listing l = {space, found, schedules, base_arena_within(arena)};
  enumerate(&l, 0, space->radius, space->initial);
  return space;
}

void tune_space_keep(tune_space *space, const bool *kept) {
  kir_schedule *schedules = (kir_schedule *)space->schedules;
  uint32_t count = space->count;
  memset(space->table, 0, space->table_size * sizeof *space->table);
  space->count = 0;
  for (uint32_t i = 0; i < count; i++)
    if (i == 0 || kept[i]) add_schedule(space, schedules, &schedules[i]);
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
