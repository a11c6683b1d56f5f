// emu_launch: from a launch to threads, and back to a status.
//
// What a GPU would refuse is refused first, with the limit's name. Then the blocks run, a cluster
// at a time, in an order that the seed decides.
#include <stdlib.h>
#include <string.h>

#include "codegen/emulator/emu.h"

// Of a kernel's parameters, since compute capability 7.0.
enum { MOST_PARAMETER_BYTES = 32764 };

// ---- refusing -----------------------------------------------------------------------------------

static void __attribute__((format(printf, 3, 4))) refuse(const rt_function *function,
                                                         base_diag *diag, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const base_str reason = base_str_vformat(diag->arena, format, arguments);
  va_end(arguments);
  base_error_status(diag, BASE_INVALID, (base_loc){0}, "cannot launch kernel '%s': %.*s",
                    function->name, BASE_FMT(reason));
}

static bool grid_fits(const rt_device_facts *facts, const rt_device_launch *l, base_diag *diag) {
  const uint32_t cluster = l->cluster ? l->cluster : 1;
  if (l->blocks < 0 || l->blocks > INT32_MAX)
    refuse(l->function, diag, "%lld blocks, expected 0 to 2147483647", (long long)l->blocks);
  else if (l->threads == 0 || l->threads % EMU_WARP != 0)
    refuse(l->function, diag, "%u threads a block, expected a multiple of 32, and not 0",
           l->threads);
  else if (cluster > EMU_CLUSTER_MOST)
    refuse(l->function, diag, "clusters of %u blocks, but 8 is the portable limit", cluster);
  else if (cluster > 1 && facts->major != 0 && facts->major < 9)
    refuse(l->function, diag, "clusters need sm_90; the emulated GPU is sm_%u%u", facts->major,
           facts->minor);
  else if (l->blocks % cluster != 0)
    refuse(l->function, diag, "%lld blocks are no multiple of the cluster's %u",
           (long long)l->blocks, cluster);
  else
    return true;
  return false;
}

static bool block_fits(const rt_device_facts *facts, const rt_device_launch *l, base_diag *diag) {
  const uint32_t threads = facts->threads_per_block && facts->threads_per_block < EMU_THREADS_MOST
                               ? facts->threads_per_block
                               : EMU_THREADS_MOST;
  const rt_function *function = l->function;
  if (l->threads > threads)
    refuse(function, diag, "%u threads a block, but the limit is %u", l->threads, threads);
  else if (facts->shared_per_block && l->shared_bytes > facts->shared_per_block)
    refuse(function, diag, "%zu bytes of shared memory a block, but the limit is %zu",
           l->shared_bytes, facts->shared_per_block);
  else if (l->parameter_bytes > MOST_PARAMETER_BYTES)
    refuse(function, diag, "%zu bytes of parameters, but the limit is %d", l->parameter_bytes,
           MOST_PARAMETER_BYTES);
  else if (l->parameter_bytes != function->argument_bytes)
    refuse(function, diag, "%zu bytes of parameters, but its struct of parameters has %u",
           l->parameter_bytes, function->argument_bytes);
  else
    return true;
  return false;
}

// ---- machines -----------------------------------------------------------------------------------

static emu_machine *take_all_idle(emu_device *device) {
  pthread_mutex_lock(&device->lock);
  emu_machine *idle = device->idle;
  device->idle = NULL;
  pthread_mutex_unlock(&device->lock);
  return idle;
}

// Each stack is two mappings, of which a process has so many (65530 by Linux's default): a few large
// machines that wait for launches of their size leave none for another.
static emu_machine *create(emu_device *device, uint32_t blocks, const rt_device_launch *l) {
  emu_machine *machine = emu_machine_create(blocks, l->threads, l->shared_bytes);
  if (machine) return machine;
  emu_machine *idle = take_all_idle(device);
  if (idle == NULL) return NULL;
  emu_machines_destroy(idle);
  return emu_machine_create(blocks, l->threads, l->shared_bytes);
}

static emu_machine *take(emu_device *device, uint32_t blocks, const rt_device_launch *l) {
  pthread_mutex_lock(&device->lock);
  emu_machine **link = &device->idle, *machine;
  while ((machine = *link) && !emu_machine_fits(machine, blocks, l->threads, l->shared_bytes))
    link = &machine->next_idle;
  if (machine) *link = machine->next_idle;
  pthread_mutex_unlock(&device->lock);
  return machine ? machine : create(device, blocks, l);
}

// Keeps the machine for the next launch, and lets a smaller one go when there are enough.
static void give_back(emu_device *device, emu_machine *machine) {
  enum { MOST_IDLE = 4 };
  pthread_mutex_lock(&device->lock);
  machine->next_idle = device->idle;
  device->idle = machine;
  emu_machine **smallest = &device->idle;
  int count = 0;
  for (emu_machine **link = &device->idle; *link; link = &(*link)->next_idle, count++)
    if ((*link)->fiber_capacity < (*smallest)->fiber_capacity) smallest = link;
  emu_machine *surplus = NULL;
  if (count > MOST_IDLE) {
    surplus = *smallest;
    *smallest = surplus->next_idle;
  }
  pthread_mutex_unlock(&device->lock);
  if (surplus) emu_machine_destroy(surplus);
}

// ---- counting -----------------------------------------------------------------------------------

static void free_maps(emu_machine *machine) {
  const uint32_t spans = machine->launch->span_count;
  for (uint32_t i = 0; machine->maps && i < spans; i++) {
    free(machine->maps[i].read);
    free(machine->maps[i].written);
  }
  free(machine->maps);
  free(machine->broadcasts);
  free(machine->traffic);
  machine->maps = NULL;
  machine->broadcasts = NULL;
  machine->traffic = NULL;
}

static bool make_maps(emu_machine *machine, uint32_t blocks) {
  const rt_device_launch *l = machine->launch;
  if (l->traffic == NULL || l->spans == NULL || l->span_count == 0) return true;
  machine->maps = calloc(l->span_count, sizeof *machine->maps);
  machine->traffic = calloc(l->span_count, sizeof *machine->traffic);
  machine->broadcasts =
      calloc((size_t)blocks * (l->threads / EMU_WARP) * EMU_BROADCASTS, sizeof(emu_broadcast));
  if (!machine->maps || !machine->traffic || !machine->broadcasts) return false;
  for (uint32_t i = 0; i < l->span_count; i++) {
    const size_t bytes = l->spans[i].bytes / 8 + 4; // a span may begin and end within 16 bytes
    machine->maps[i].read = calloc(bytes, 1);
    machine->maps[i].written = l->spans[i].written ? calloc(bytes, 1) : NULL;
    if (!machine->maps[i].read || (l->spans[i].written && !machine->maps[i].written)) return false;
  }
  return true;
}

static void add_traffic(const emu_machine *machine) {
  const rt_device_launch *l = machine->launch;
  for (uint32_t i = 0; machine->traffic && i < l->span_count; i++) {
    const rt_traffic *counted = &machine->traffic[i];
    l->traffic[i].read += counted->read;
    l->traffic[i].written += counted->written;
    l->traffic[i].read_once += counted->read_once;
    l->traffic[i].written_once += counted->written_once;
  }
}

// ---- running ------------------------------------------------------------------------------------

static int64_t common_divisor(int64_t a, int64_t b) {
  return b == 0 ? a : common_divisor(b, a % b);
}

// Every cluster once, in the order first, first + step, first + 2 step, ... modulo their number,
// with which `step` has no divisor in common.
static void run_grid(emu_machine *machine, uint32_t cluster) {
  const int64_t clusters = machine->launch->blocks / cluster;
  int64_t at = emu_random(machine, (uint32_t)clusters);
  int64_t step = 1 + emu_random(machine, (uint32_t)clusters);
  while (common_divisor(step, clusters) != 1)
    step++;
  for (int64_t i = 0; i < clusters && !machine->faulty; i++) {
    for (uint32_t rank = 0; rank < cluster; rank++)
      machine->blocks[rank].index = at * cluster + rank;
    emu_run_cluster(machine);
    at = (at + step) % clusters;
  }
}

// What kind of run a seed gives: three neighbouring seeds have all biases, and twelve all lengths
// of turns with each.
static void shake(emu_machine *machine, uint64_t seed) {
  // splitmix64, so that seeds 1, 2, 3 begin far from one another.
  uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  machine->random = (x ^ x >> 31) | 1;
  static const uint32_t patience[] = {4, 32, 256, 1 << 20};
  machine->bias = (emu_bias)(seed % EMU_BIASES);
  machine->patience = patience[seed / EMU_BIASES % (sizeof patience / sizeof *patience)];
}

static void set_up(emu_machine *machine, const emu_device *device, const rt_device_launch *l) {
  machine->device = device;
  machine->launch = l;
  machine->host = (emu_context){0};
  machine->faulty = false;
  machine->fault[0] = 0;
  machine->hint = NULL;
  machine->maps = NULL;
  machine->traffic = NULL;
  machine->broadcasts = NULL;
  machine->broadcast_clock = 0;
  shake(machine, atomic_load(&device->seed));
  emu_machine_lay_out(machine);
}

// The fault's text, as it was when the machine was given back.
typedef struct emu_outcome {
  bool faulty;
  char text[EMU_MESSAGE];
  const char *hint;
} emu_outcome;

static base_status run(emu_device *device, const rt_device_launch *l, emu_outcome *outcome) {
  const uint32_t cluster = l->cluster ? l->cluster : 1;
  emu_machine *machine = take(device, cluster, l);
  if (machine == NULL) return BASE_MEMORY;
  set_up(machine, device, l);
  const bool ready = make_maps(machine, cluster);
  if (ready) run_grid(machine, cluster);
  outcome->faulty = machine->faulty;
  if (machine->faulty) {
    memcpy(outcome->text, machine->fault, sizeof outcome->text);
    outcome->hint = machine->hint;
  } else if (ready) {
    add_traffic(machine);
  }
  free_maps(machine);
  give_back(device, machine);
  return ready ? BASE_OK : BASE_MEMORY;
}

base_status emu_launch(rt_device *device, void *stream, const rt_device_launch *launch,
                       base_diag *diag) {
  (void)stream; // all launches are complete when they return, so they are in order
  if (!grid_fits(&device->facts, launch, diag) || !block_fits(&device->facts, launch, diag))
    return BASE_INVALID;
  if (launch->blocks == 0) return BASE_OK;
  emu_outcome outcome;
  if (run((emu_device *)device, launch, &outcome) != BASE_OK) {
    base_error_status(diag, BASE_MEMORY, (base_loc){0},
                      "cannot launch kernel '%s': out of memory for its threads",
                      launch->function->name);
    return BASE_MEMORY;
  }
  if (!outcome.faulty) return BASE_OK;
  emu_place_resolve(launch->function->code, outcome.text, sizeof outcome.text);
  base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "%s", outcome.text);
  if (outcome.hint) base_hint(diag, "%s", outcome.hint);
  return BASE_INTERNAL;
}
