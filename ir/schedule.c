// Schedules as text: key=value,... driven by schedule.def.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ir/kernel.h"

enum { CPU = 1u << KIR_CPU, CUDA = 1u << KIR_CUDA, BOTH = CPU | CUDA };

typedef struct entry {
  uint32_t machines;
  kir_knob knob;
} entry;

#define TRIED(...)                                                                                 \
  (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

static const entry knobs[] = {
#define KNOB(machines, name, low, high, initial, matters, tried, summary)                          \
  {machines,                                                                                       \
   {#name, low, high, initial, KIR_##matters, tried, offsetof(kir_schedule, name), summary}},
#include "ir/schedule.def"
#undef KNOB
};
enum { KNOB_COUNT = sizeof knobs / sizeof knobs[0] };

int64_t *kir_knob_of(kir_schedule *schedule, const kir_knob *knob) {
  return (int64_t *)((char *)schedule + knob->offset);
}

static int64_t *knob_of(kir_schedule *schedule, size_t i) {
  return kir_knob_of(schedule, &knobs[i].knob);
}

const kir_knob *kir_knob_at(kir_machine machine, uint32_t index) {
  for (size_t i = 0; i < KNOB_COUNT; i++)
    if ((knobs[i].machines >> machine & 1) && index-- == 0) return &knobs[i].knob;
  return NULL;
}

static bool turns(const kir_schedule *schedule, size_t i) {
  return knobs[i].machines >> schedule->machine & 1;
}

kir_schedule kir_schedule_default(kir_machine machine) {
  kir_schedule schedule;
  memset(&schedule, 0, sizeof schedule);
  schedule.machine = machine;
  for (size_t i = 0; i < KNOB_COUNT; i++)
    *knob_of(&schedule, i) = knobs[i].knob.initial;
  return schedule;
}

static const char *const machine_names[] = {[KIR_CPU] = "cpu", [KIR_CUDA] = "cuda"};

static size_t find_knob(const kir_schedule *schedule, base_str name) {
  for (size_t i = 0; i < KNOB_COUNT; i++)
    if (turns(schedule, i) && base_str_equal(name, base_str_from(knobs[i].knob.name))) return i;
  return KNOB_COUNT;
}

static void unknown_knob(const kir_schedule *schedule, base_str name, base_diag *diag) {
  const char *names[KNOB_COUNT];
  base_text list = {.arena = diag->arena};
  size_t count = 0;
  for (size_t i = 0; i < KNOB_COUNT; i++) {
    if (!turns(schedule, i)) continue;
    names[count++] = knobs[i].knob.name;
    base_text_printf(&list, "%s%s", count > 1 ? ", " : "", knobs[i].knob.name);
  }
  base_error(diag, (base_loc){0}, "unknown schedule knob '%.*s' for %s", BASE_FMT(name),
             machine_names[schedule->machine]);
  const char *nearest = base_nearest(name, names, count);
  if (nearest)
    base_hint(diag, "did you mean '%s'?", nearest);
  else
    base_hint(diag, "the knobs are %s", list.data);
}

static bool parse_one(base_str item, bool *given, kir_schedule *schedule, base_diag *diag) {
  const char *equals = memchr(item.data, '=', item.length);
  if (!equals) {
    base_error(diag, (base_loc){0}, "schedule item '%.*s' is not key=value", BASE_FMT(item));
    base_hint(diag, "write for example source_tile=4,query_tile=8");
    return false;
  }
  base_str name = {item.data, (size_t)(equals - item.data)};
  size_t i = find_knob(schedule, name);
  if (i == KNOB_COUNT) {
    unknown_knob(schedule, name, diag);
    return false;
  }
  base_str number =
      base_str_copy(diag->arena, (base_str){equals + 1, item.length - name.length - 1});
  bool digits = number.length > 0 && strspn(number.data, "0123456789") == number.length;
  errno = 0;
  long long value = digits ? strtoll(number.data, NULL, 10) : -1;
  if (errno || value < knobs[i].knob.low || value > knobs[i].knob.high) {
    base_error(diag, (base_loc){0}, "schedule knob %s cannot be '%s'", knobs[i].knob.name,
               number.data);
    base_hint(diag, "%s is an integer from %lld to %lld: %s", knobs[i].knob.name,
              (long long)knobs[i].knob.low, (long long)knobs[i].knob.high, knobs[i].knob.summary);
    return false;
  }
  if (given[i]) {
    base_error(diag, (base_loc){0}, "schedule knob %s is given twice", knobs[i].knob.name);
    base_hint(diag, "keep one of the two");
    return false;
  }
  given[i] = true;
  *knob_of(schedule, i) = value;
  return true;
}

static bool is_power_of_two(int64_t value) {
  return (value & (value - 1)) == 0;
}

bool kir_schedule_check(const kir_schedule *schedule, base_diag *diag) {
  uint32_t errors = diag->error_count;
  if (!is_power_of_two(schedule->vector)) {
    base_error(diag, (base_loc){0}, "schedule knob vector cannot be %lld",
               (long long)schedule->vector);
    base_hint(diag, "vector is a power of two, or 0 for what the CPU has");
  }
  if (schedule->machine == KIR_CUDA && !is_power_of_two(schedule->access)) {
    base_error(diag, (base_loc){0}, "schedule knob access cannot be %lld",
               (long long)schedule->access);
    base_hint(diag, "access is 2, 4, 8 or 16 bytes");
  }
  if (schedule->team % 32 != 0 || schedule->team * schedule->teams > 1024) {
    base_error(diag, (base_loc){0}, "a block cannot have %lld teams of %lld threads",
               (long long)schedule->teams, (long long)schedule->team);
    base_hint(diag, "team is a multiple of 32, or 0 for a choice from the row's length, and team "
                    "times teams at most 1024");
  }
  if (schedule->residency == 2 && schedule->load == 0) {
    base_error(diag, (base_loc){0}, "residency=2 needs rows that come to shared memory");
    base_hint(diag, "add load=1 (asynchronous copies) or load=2 (bulk copies)");
  }
  return diag->error_count == errors;
}

bool kir_schedule_parse(const char *text, kir_schedule *schedule, base_diag *diag) {
  kir_schedule parsed = *schedule;
  bool given[KNOB_COUNT] = {false}, ok = true, more = *text != '\0';
  while (more) {
    size_t length = strcspn(text, ",");
    ok &= parse_one((base_str){text, length}, given, &parsed, diag);
    more = text[length] == ',';
    text += length + more;
  }
  ok = ok && kir_schedule_check(&parsed, diag);
  if (ok) *schedule = parsed;
  return ok;
}

void kir_schedule_print(const kir_schedule *schedule, base_text *out) {
  const char *comma = "";
  for (size_t i = 0; i < KNOB_COUNT; i++) {
    if (!turns(schedule, i)) continue;
    base_text_printf(out, "%s%s=%lld", comma, knobs[i].knob.name,
                     (long long)*knob_of((kir_schedule *)schedule, i));
    comma = ",";
  }
}

const char *kir_schedule_text(base_arena *arena, const kir_schedule *schedule) {
  base_text text = {.arena = arena};
  kir_schedule_print(schedule, &text);
  return text.data;
}

void kir_schedule_describe(base_text *out) {
  for (kir_machine machine = 0; machine < KIR_MACHINE_COUNT; machine++) {
    base_text_printf(out, "%s%s:\n", machine ? "\n" : "", machine_names[machine]);
    for (size_t i = 0; i < KNOB_COUNT; i++)
      if (knobs[i].machines >> machine & 1)
        base_text_printf(out, "  %-12s %lld..%lld (default %lld)  %s\n", knobs[i].knob.name,
                         (long long)knobs[i].knob.low, (long long)knobs[i].knob.high,
                         (long long)knobs[i].knob.initial, knobs[i].knob.summary);
  }
}
