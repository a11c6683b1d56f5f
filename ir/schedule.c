// Schedules as text: key=value,... driven by schedule.def.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ir/kernel.h"

static const struct {
  const char *name;
  int64_t low, high, initial;
  size_t offset;
  const char *summary;
} knobs[] = {
#define KNOB(name, low, high, initial, summary)                                                    \
  {#name, low, high, initial, offsetof(kir_schedule, name), summary},
#include "ir/schedule.def"
#undef KNOB
};
enum { KNOB_COUNT = sizeof knobs / sizeof knobs[0] };

static int64_t *knob_of(kir_schedule *schedule, size_t i) {
  return (int64_t *)((char *)schedule + knobs[i].offset);
}

kir_schedule kir_schedule_default(void) {
  kir_schedule schedule;
  for (size_t i = 0; i < KNOB_COUNT; i++)
    *knob_of(&schedule, i) = knobs[i].initial;
  return schedule;
}

static size_t find_knob(base_str name) {
  for (size_t i = 0; i < KNOB_COUNT; i++)
    if (base_str_equal(name, base_str_from(knobs[i].name))) return i;
  return KNOB_COUNT;
}

static void unknown_knob(base_str name, base_diag *diag) {
  const char *names[KNOB_COUNT];
  base_text list = {.arena = diag->arena};
  for (size_t i = 0; i < KNOB_COUNT; i++) {
    names[i] = knobs[i].name;
    base_text_printf(&list, "%s%s", i ? ", " : "", knobs[i].name);
  }
  base_error(diag, (base_loc){0}, "unknown schedule knob '%.*s'", BASE_FMT(name));
  const char *nearest = base_nearest(name, names, KNOB_COUNT);
  if (nearest)
    base_hint(diag, "did you mean '%s'?", nearest);
  else
    base_hint(diag, "the knobs are %s", list.data);
}

static bool parse_one(base_str item, bool *given, kir_schedule *schedule, base_diag *diag) {
  const char *equals = memchr(item.data, '=', item.length);
  if (!equals) {
    base_error(diag, (base_loc){0}, "schedule item '%.*s' is not key=value", BASE_FMT(item));
    base_hint(diag, "write for example unroll=4,prefetch=1");
    return false;
  }
  base_str name = {item.data, (size_t)(equals - item.data)};
  size_t i = find_knob(name);
  if (i == KNOB_COUNT) {
    unknown_knob(name, diag);
    return false;
  }
  base_str number =
      base_str_copy(diag->arena, (base_str){equals + 1, item.length - name.length - 1});
  bool digits = number.length > 0 && strspn(number.data, "0123456789") == number.length;
  errno = 0;
  long long value = digits ? strtoll(number.data, NULL, 10) : -1;
  if (errno || value < knobs[i].low || value > knobs[i].high) {
    base_error(diag, (base_loc){0}, "schedule knob %s cannot be '%s'", knobs[i].name, number.data);
    base_hint(diag, "%s is an integer from %lld to %lld: %s", knobs[i].name,
              (long long)knobs[i].low, (long long)knobs[i].high, knobs[i].summary);
    return false;
  }
  if (given[i]) {
    base_error(diag, (base_loc){0}, "schedule knob %s is given twice", knobs[i].name);
    base_hint(diag, "keep one of the two");
    return false;
  }
  given[i] = true;
  *knob_of(schedule, i) = value;
  return true;
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
  if (ok && (parsed.vector & (parsed.vector - 1))) {
    base_error(diag, (base_loc){0}, "schedule knob vector cannot be %lld",
               (long long)parsed.vector);
    base_hint(diag, "vector is a power of two, or 0 for what the CPU has");
    ok = false;
  }
  if (ok) *schedule = parsed;
  return ok;
}

void kir_schedule_print(const kir_schedule *schedule, base_text *out) {
  for (size_t i = 0; i < KNOB_COUNT; i++)
    base_text_printf(out, "%s%s=%lld", i ? "," : "", knobs[i].name,
                     (long long)*knob_of((kir_schedule *)schedule, i));
}

void kir_schedule_describe(base_text *out) {
  for (size_t i = 0; i < KNOB_COUNT; i++)
    base_text_printf(out, "%-12s %lld..%lld (default %lld)  %s\n", knobs[i].name,
                     (long long)knobs[i].low, (long long)knobs[i].high, (long long)knobs[i].initial,
                     knobs[i].summary);
}
