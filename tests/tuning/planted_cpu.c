// A libfathom-cpu that plants faults in some candidates (planted.h) and leaves the others to the real
// one, $FATHOM_TEST_REAL_CPU.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "codegen/target.h"
#include "tuning/planted.h"

static const cg_target *real;

// Of the candidate of each kind that was compiled last; a worker has one at a time.
static struct {
  rt_body body;
  const rt_program *program;
} planted[PLANTED_LAST + 1];

static const rt_kernel_arg *written_arg(const rt_kernel *kernel) {
  for (uint32_t i = 0; i < kernel->arg_count; i++)
    if (kernel->args[i].written) return &kernel->args[i];
  abort();
}

static void wrong(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                  void *shared, void *scratch) {
  planted[PLANTED_WRONG].body(pointers, strides, begin, end, shared, scratch);
  const rt_program *program = planted[PLANTED_WRONG].program;
  const rt_kernel_arg *arg = written_arg(program->kernels);
  const rt_slot *slot = &program->slots[arg->slot];
  int64_t size = program->axes[slot->axes[1]].size;
  for (int64_t row = begin; row < end; row++) {
    float *out = (float *)((char *)pointers[arg->first_pointer] + row * strides[arg->first_stride]);
    for (int64_t d = 0; d < size; d++)
      out[d] *= 1.01f;
  }
}

static void beside(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                   void *shared, void *scratch) {
  planted[PLANTED_BESIDE].body(pointers, strides, begin, end, shared, scratch);
  const rt_kernel_arg *arg = written_arg(planted[PLANTED_BESIDE].program->kernels);
  if (begin == 0) ((float *)pointers[arg->first_pointer])[-1] = 1;
}

static void hang(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                 void *shared, void *scratch) {
  (void)pointers, (void)strides, (void)begin, (void)end, (void)shared, (void)scratch;
  for (;;)
    pause();
}

static void end_it(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                   void *shared, void *scratch) {
  (void)pointers, (void)strides, (void)begin, (void)end, (void)shared, (void)scratch;
  abort();
}

static void eat(void *const *pointers, const int64_t *strides, int64_t begin, int64_t end,
                void *shared, void *scratch) {
  (void)pointers, (void)strides, (void)begin, (void)end, (void)shared, (void)scratch;
  enum { BITE = 64 << 20 };
  for (;;) // straight from the system: a sanitizer's malloc would be slow
    mmap(NULL, BITE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

static const rt_body bodies[PLANTED_LAST + 1] = {
    [PLANTED_WRONG] = wrong,  [PLANTED_BESIDE] = beside, [PLANTED_HANG] = hang,
    [PLANTED_ABORT] = end_it, [PLANTED_EATER] = eat,
};

static cg_artefact *compile(base_arena *arena, const ir_graph *graph, const cg_options *options,
                            base_diag *diag) {
  const char *knob = strstr(options->schedule, "distance=");
  int kind = knob ? atoi(knob + strlen("distance=")) : 0;
  if (kind == PLANTED_SLEEPER) hang(NULL, NULL, 0, 0, NULL, NULL);
  cg_artefact *artefact = real->compile(arena, graph, options, diag);
  if (!artefact || kind < PLANTED_WRONG || kind > PLANTED_LAST) return artefact;
  rt_kernel *kernel = (rt_kernel *)artefact->program->kernels;
  planted[kind].body = kernel->body;
  planted[kind].program = artefact->program;
  kernel->body = bodies[kind];
  return artefact;
}

static bool emit(base_arena *arena, const ir_graph *graph, const cg_options *options,
                 const char *what, base_str *out, base_diag *diag) {
  return real->emit(arena, graph, options, what, out, diag);
}

static void describe(base_text *out) {
  real->describe(out);
}

static bool identify(base_arena *arena, cg_identity *out) {
  return real->identify(arena, out);
}

static const cg_target target = {.name = "cpu",
                                 .abi = CG_ABI,
                                 .compile = compile,
                                 .emit = emit,
                                 .describe = describe,
                                 .identify = identify};

__attribute__((visibility("default"))) const cg_target *fathom_cpu_target(void) {
  void *handle = dlopen(getenv("FATHOM_TEST_REAL_CPU"), RTLD_NOW | RTLD_LOCAL);
  cg_target_entry entry;
  *(void **)&entry = handle ? dlsym(handle, CG_CPU_SYMBOL) : NULL;
  if (!entry) abort();
  real = entry();
  return &target;
}
