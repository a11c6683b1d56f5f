// Names of outcomes.
#include "autotune/record.h"

static const char *const names[] = {
    [TUNE_TIMED] = "timed",         [TUNE_REFUSED] = "refused", [TUNE_WRONG] = "wrong",
    [TUNE_CRASHED] = "crashed",     [TUNE_TIMEOUT] = "timeout", [TUNE_MEMORY] = "memory",
    [TUNE_PREDICTED] = "predicted",
};

const char *tune_outcome_name(tune_outcome outcome) {
  return names[outcome];
}

bool tune_outcome_parse(base_str name, tune_outcome *outcome) {
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    *outcome = (tune_outcome)i;
    if (base_str_equal(name, base_str_from(names[i]))) return true;
  }
  return false;
}
