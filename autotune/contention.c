// Processor time as Linux tells it.
#include "autotune/contention.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "autotune/contest.h"

static double seconds_of(struct timeval time) {
  return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static double used_by(int who) {
  struct rusage usage;
  if (getrusage(who, &usage) != 0) return 0;
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

tune_load tune_load_read(void) {
  tune_load load = {.clock = base_seconds(),
                    .own = used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN)};
  FILE *file = fopen("/proc/stat", "re");
  if (!file) return load;
  unsigned long long user, nice, system, idle, wait, irq, soft, steal;
  load.known = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system,
                      &idle, &wait, &irq, &soft, &steal) == 8;
  fclose(file);
  if (load.known)
    load.machine =
        (double)(user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
  return load;
}

double tune_load_of_others(const tune_load *before, const tune_load *after) {
  double time = (after->clock - before->clock) * (double)sysconf(_SC_NPROCESSORS_ONLN);
  double others = (after->machine - before->machine) - (after->own - before->own);
  if (!before->known || !after->known || time <= 0 || others < 0) return 0;
  return others < time ? others / time : 1;
}
