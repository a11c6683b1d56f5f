// Strategies: what to try next.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/search.h"

// ---- exhaustive ---------------------------------------------------------------------------------
// Every schedule, in order. The fastest of so many are so in part by luck: the best ones are timed
// once more, longer.

enum { EXHAUSTIVE_LEVEL = 2, AGAIN = 16, AGAIN_LEVEL = 4 };

typedef struct exhaustive_state {
  uint32_t next, again, best[AGAIN], best_count;
} exhaustive_state;

static uint32_t exhaustive_ask(void *opaque, tune_search *search, tune_request *requests,
                               uint32_t room) {
  exhaustive_state *state = opaque;
  uint32_t count = 0;
  for (; state->next < search->space->count && count < room; state->next++) {
    if (tune_search_knows(search, state->next, EXHAUSTIVE_LEVEL)) continue;
    requests[count++] = (tune_request){state->next, EXHAUSTIVE_LEVEL};
  }
  if (count > 0) return count;
  if (state->best_count == 0)
    state->best_count = tune_search_fastest(search, EXHAUSTIVE_LEVEL, AGAIN, state->best);
  for (; state->again < state->best_count && count < room; state->again++)
    if (!tune_search_knows(search, state->best[state->again], AGAIN_LEVEL))
      requests[count++] = (tune_request){state->best[state->again], AGAIN_LEVEL};
  return count;
}

// ---- random -------------------------------------------------------------------------------------
// Schedules in a random order, each once.

typedef struct listed_state {
  uint32_t *order, next;
} listed_state;

static uint32_t ask_listed(listed_state *state, tune_search *search, tune_request *requests,
                           uint32_t room) {
  uint32_t count = 0;
  while (count < room && state->next < search->space->count) {
    uint32_t schedule = state->order[state->next++];
    if (!tune_search_knows(search, schedule, EXHAUSTIVE_LEVEL))
      requests[count++] = (tune_request){schedule, EXHAUSTIVE_LEVEL};
  }
  return count;
}

static void shuffle(tune_search *search, uint32_t *order, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    order[i] = i;
  for (uint32_t i = count; i > 1; i--) {
    uint32_t j = tune_search_random(search, i), other = order[j];
    order[j] = order[i - 1];
    order[i - 1] = other;
  }
}

static uint32_t random_ask(void *opaque, tune_search *search, tune_request *requests,
                           uint32_t room) {
  listed_state *state = opaque;
  if (!state->order) {
    state->order = base_new_array(search->arena, uint32_t, search->space->count);
    shuffle(search, state->order, search->space->count);
  }
  return ask_listed(state, search, requests, room);
}

// ---- ranked -------------------------------------------------------------------------------------
// Schedules in the order of the cost model, fastest first.

typedef struct predicted {
  double cost;
  uint32_t schedule;
} predicted;

static int by_cost(const void *a, const void *b) {
  const predicted *x = a, *y = b;
  if (x->cost != y->cost) return x->cost < y->cost ? -1 : 1;
  return x->schedule < y->schedule ? -1 : x->schedule > y->schedule;
}

// Numbers of all schedules; without predictions as they are.
static uint32_t *ranked_order(tune_search *search) {
  uint32_t count = search->space->count;
  predicted *order = base_new_array(search->arena, predicted, count);
  uint32_t *numbers = base_new_array(search->arena, uint32_t, count);
  for (uint32_t i = 0; i < count; i++)
    order[i] = (predicted){search->options->predicted ? search->options->predicted[i] : 0, i};
  qsort(order, count, sizeof *order, by_cost);
  for (uint32_t i = 0; i < count; i++)
    numbers[i] = order[i].schedule;
  return numbers;
}

static uint32_t ranked_ask(void *opaque, tune_search *search, tune_request *requests,
                           uint32_t room) {
  listed_state *state = opaque;
  if (!state->order) state->order = ranked_order(search);
  return ask_listed(state, search, requests, room);
}

// ---- halving ------------------------------------------------------------------------------------
// Successive halving (Jamieson and Talwalkar 2016): many schedules timed shortly, the better part of
// them longer, and so on. Then steps from the best ones to their neighbours, as long as that helps.
//
// With predictions half of the first ones are those predicted fastest, the rest is random: a model
// that is wrong must not hide anything.

enum {
  POPULATION = 192, // at the start; fewer in a small space
  SHARE = 8,        // of the space, at most one in so many
  LEAST = 24,
  KEPT = 3, // one in so many goes on
  FINAL = 6,
  LEADERS = 5, // whose neighbours are tried
  WALKS = 8,
};

typedef enum halving_phase { BEGIN, NARROW, WALK, DONE } halving_phase;

typedef struct halving_state {
  halving_phase phase;
  uint32_t level, walks;
  uint32_t *queue, count, next; // schedules to be asked for at `level`
  double best;                  // before the last walk
} halving_state;

static bool is_queued(const halving_state *state, uint32_t schedule) {
  for (uint32_t i = 0; i < state->count; i++)
    if (state->queue[i] == schedule) return true;
  return false;
}

static void enqueue(halving_state *state, uint32_t schedule) {
  if (!is_queued(state, schedule)) state->queue[state->count++] = schedule;
}

static void enqueue_predicted(halving_state *state, tune_search *search, uint32_t until) {
  const uint32_t *order = ranked_order(search);
  for (uint32_t i = 0; i < search->space->count && state->count < until; i++)
    enqueue(state, order[i]);
}

static void begin_halving(halving_state *state, tune_search *search) {
  uint32_t all = search->space->count, wanted = all / SHARE;
  if (wanted > POPULATION) wanted = POPULATION;
  if (wanted < LEAST) wanted = all < LEAST ? all : LEAST;
  state->queue = base_new_array(search->arena, uint32_t, all);
  enqueue(state, 0); // the default
  for (uint32_t i = 0; i < search->options->seed_count; i++) {
    int64_t seed = tune_space_find(search->space, &search->options->seeds[i]);
    if (seed >= 0) enqueue(state, (uint32_t)seed);
  }
  if (search->options->predicted) enqueue_predicted(state, search, wanted / 2);
  uint32_t *order = base_new_array(search->arena, uint32_t, all);
  shuffle(search, order, all);
  for (uint32_t i = 0; i < all && state->count < wanted; i++)
    enqueue(state, order[i]);
}

static double best_seconds(const tune_search *search, uint32_t level) {
  uint32_t best;
  return tune_search_fastest(search, level, 1, &best) ? search->findings[best].seconds : INFINITY;
}

// Refills the queue from what is known now.
static void advance(halving_state *state, tune_search *search) {
  uint32_t *out = state->queue;
  state->next = 0;
  if (state->phase == BEGIN) {
    state->phase = NARROW;
    begin_halving(state, search);
    return;
  }
  if (state->phase == NARROW && state->count > FINAL) {
    uint32_t kept = (state->count + KEPT - 1) / KEPT;
    state->count = tune_search_fastest(search, state->level, kept > FINAL ? kept : FINAL, out);
    state->level++;
    return;
  }
  uint32_t leaders[LEADERS];
  uint32_t found = tune_search_fastest(search, state->level, LEADERS, leaders);
  double best = best_seconds(search, state->level);
  bool helps = state->phase == NARROW || best < 0.995 * state->best;
  state->count = 0;
  if (!helps || state->walks++ == WALKS) {
    state->phase = DONE;
    return;
  }
  state->phase = WALK;
  state->best = best;
  for (uint32_t i = 0; i < found; i++) {
    uint32_t near[2 * TUNE_MAX_KNOBS];
    uint32_t count = tune_space_neighbours(search->space, leaders[i], 2 * TUNE_MAX_KNOBS, near);
    for (uint32_t j = 0; j < count; j++)
      if (search->times[near[j]][state->level] <= 0) enqueue(state, near[j]);
  }
}

static uint32_t halving_ask(void *opaque, tune_search *search, tune_request *requests,
                            uint32_t room) {
  halving_state *state = opaque;
  uint32_t count = 0;
  while (count == 0 && state->phase != DONE) {
    while (state->next < state->count && count < room) {
      uint32_t schedule = state->queue[state->next++];
      if (!tune_search_knows(search, schedule, state->level))
        requests[count++] = (tune_request){schedule, state->level};
    }
    if (count == 0) advance(state, search);
  }
  return count;
}

// ---- the table ----------------------------------------------------------------------------------

static const tune_strategy strategies[] = {
    {"halving", "many shortly, the best ones longer, then their neighbours", sizeof(halving_state),
     false, halving_ask},
    {"ranked", "as the cost model ranks them", sizeof(listed_state), true, ranked_ask},
    {"random", "in a random order", sizeof(listed_state), true, random_ask},
    {"exhaustive", "all, for comparison", sizeof(exhaustive_state), true, exhaustive_ask},
};

const tune_strategy *tune_strategy_at(uint32_t index) {
  return index < sizeof strategies / sizeof *strategies ? &strategies[index] : NULL;
}

const tune_strategy *tune_strategy_find(base_str name) {
  for (uint32_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
    if (base_str_equal(name, base_str_from(strategies[i].name))) return &strategies[i];
  return NULL;
}
