// Faults that a test plants in candidates: schedules with these values of the knob `distance` are
// compiled as always by planted_cpu.c, but their code does something else besides.
#ifndef FATHOM_TESTS_TUNING_PLANTED_H
#define FATHOM_TESTS_TUNING_PLANTED_H

enum {
  PLANTED_WRONG = 101, // results off by 1 %
  PLANTED_BESIDE,      // right results, and a write in front of the first
  PLANTED_HANG,        // never returns
  PLANTED_ABORT,
  PLANTED_EATER,   // takes memory without end
  PLANTED_SLEEPER, // hangs while it is compiled
  PLANTED_LAST = PLANTED_SLEEPER,
  PLANTED_RACE = 101 // by planted_cuda.c, for this value of `working`
};

#endif
