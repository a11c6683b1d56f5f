// Bytes as a graph and a schedule: what is well typed must verify, print and parse back, compile
// for this CPU and compute what the reference computes, wherever its tensors lie. Any other outcome
// than that or an explicit FATHOM_UNSUPPORTED is a bug, and is reported with the graph and the
// command line that show it. With FATHOM_FUZZ_TARGET=cuda-emu the same for CUDA text on the emulator.
#include <inttypes.h>
#include <string.h>

#include "fathom.h"
#include "ir/kernel.h"
#include "judge.h"
#include "random_graph.h"
#include "round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct trial {
  base_arena *arena;
  const ir_graph *ir;
  base_str text;
  fathom_context *context;
  fathom_graph *graph;
  fathom_compile_options compile;
  fathom_check_options check;
  uint32_t seen, refused; // results
  bool exact_differs;
} trial;

static void show(const trial *t) {
  bool cpu = t->compile.cpu != NULL;
  fprintf(stderr,
          "%.*s\n// fathom check FILE --target %s --schedule '%s'%s%s --size %lld "
          "--seeds %u --misalign %u%s\n",
          BASE_FMT(t->text), t->compile.target, t->compile.schedule, cpu ? " --mcpu " : "",
          cpu ? t->compile.cpu : "", (long long)t->check.dynamic_size, t->check.seeds,
          t->check.misalign, t->check.strided ? " --strided" : "");
}

static void __attribute__((noreturn)) fail(const trial *t, const char *why) {
  show(t);
  fprintf(stderr, "%s\n", why);
  abort();
}

// ---- options ------------------------------------------------------------------------------------

enum { CPU = 1, CUDA = 2, BOTH = 3 };

static const struct {
  uint32_t machines;
  const char *name;
  int64_t low, high, initial;
} knobs[] = {
#define KNOB(machines, name, low, high, initial, matters, tried, summary)                          \
  {machines, #name, low, high, initial},
#include "ir/schedule.def"
#undef KNOB
};

// The ends of a knob's range, what tests powers of two, and what does not divide. Threads and
// registers of a GPU, which have a range of hundreds, come in warps.
static int64_t pick_knob(random_bytes *bytes, size_t i) {
  static const int64_t inner[] = {1, 2, 3, 4, 5, 7, 8, 16};
  uint32_t choice = random_pick(bytes, 10);
  int64_t unit = knobs[i].machines == CUDA && knobs[i].high >= 200 ? 32 : 1;
  int64_t value = choice == 0   ? knobs[i].low
                  : choice == 1 ? knobs[i].high
                                : unit * inner[choice - 2];
  return value < knobs[i].low || value > knobs[i].high ? knobs[i].initial : value;
}

static bool goes_together(base_arena *arena, const char *text, kir_machine machine) {
  kir_schedule schedule = kir_schedule_default(machine);
  base_diag diag = fuzz_diag(arena, (base_str){0});
  return kir_schedule_parse(text, &schedule, &diag);
}

// Half of the knobs keep their default. So do, for a CPU, all when they do not go together; for a
// GPU, where few do, those that do not go with the ones before.
static const char *pick_schedule(base_arena *arena, random_bytes *bytes, kir_machine machine) {
  const char *text = "";
  for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++) {
    bool has = knobs[i].machines & (machine == KIR_CPU ? CPU : CUDA);
    if (!has || random_pick(bytes, 2) != 1) continue;
    const char *longer = base_str_format(arena, "%s%s%s=%" PRId64, text, *text ? "," : "",
                                         knobs[i].name, pick_knob(bytes, i))
                             .data;
    if (machine == KIR_CPU || goes_together(arena, longer, machine)) text = longer;
  }
  return goes_together(arena, text, machine) ? text : "";
}

static bool is_emulated(void) {
  const char *target = getenv("FATHOM_FUZZ_TARGET");
  return target && strcmp(target, "cuda-emu") == 0;
}

static void pick_target(trial *t, random_bytes *bytes) {
  static const char *const cpus[] = {NULL, NULL, NULL, "x86-64", "x86-64-v2", "x86-64-v3"};
  static const char *const gpus[] = {"cuda-emu",       "cuda-emu",        "cuda-emu",
                                     "cuda-emu:sm_80", "cuda-emu:sm_90a", "cuda-emu:sm_120"};
  t->compile.target = is_emulated() ? gpus[random_pick(bytes, 6)] : "cpu";
  if (!is_emulated()) t->compile.cpu = cpus[random_pick(bytes, 6)];
}

static void pick_options(trial *t, random_bytes *bytes) {
  t->compile = (fathom_compile_options)FATHOM_INIT(t->compile);
  t->compile.schedule = pick_schedule(t->arena, bytes, is_emulated() ? KIR_CUDA : KIR_CPU);
  pick_target(t, bytes);
  t->compile.verify_each = random_pick(bytes, 4) == 1;
  t->check = (fathom_check_options)FATHOM_INIT(t->check);
  t->check.seeds = is_emulated() ? 3 : 1; // other orders of the threads
  t->check.dynamic_size = random_size(bytes);
  t->check.misalign = random_pick(bytes, 2) * random_pick(bytes, 4);
  t->check.strided = (int)random_pick(bytes, 2);
}

// ---- checks -------------------------------------------------------------------------------------

static void note_result(void *user, const fathom_check_result *result) {
  trial *t = user;
  t->seen++;
  if (result->passed) return;
  t->refused++;
  t->exact_differs |= result->bound == 0.0;
}

static void check_values(trial *t) {
  uint32_t failures;
  t->check.report = note_result;
  t->check.user = t;
  fathom_status status = fathom_check(t->context, t->graph, &t->compile, &t->check, &failures);
  if (status == FATHOM_UNSUPPORTED && getenv("FATHOM_FUZZ_SHOW"))
    fprintf(stderr, "%s\n", fathom_error_text());
  if (status == FATHOM_UNSUPPORTED) return;
  if (status != FATHOM_OK) fail(t, fathom_error_text());
  if (t->seen != t->ir->results.count * t->check.seeds || failures != t->refused)
    fail(t, "results are missing");
  if (t->exact_differs) fail(t, "a result that must be exact is not");
  if (failures == 0) return;
  judge_request request = {t->graph, t->ir, &t->compile, &t->check};
  base_str verdict = judge_results(t->arena, t->context, &request);
  if (verdict.length > 0) fail(t, verdict.data);
}

// The texts people ask for must come out whatever the graph.
static void check_texts(const trial *t, random_bytes *bytes) {
  const char *const kinds[] = {"graph", "kernel", is_emulated() ? "cuda" : "report"};
  if (random_pick(bytes, 8) != 1) return;
  fathom_text text;
  fathom_status status =
      fathom_emit(t->context, t->graph, &t->compile, kinds[random_pick(bytes, 3)], &text);
  if (status == FATHOM_OK)
    fathom_text_destroy(&text);
  else if (status != FATHOM_UNSUPPORTED)
    fail(t, fathom_error_text());
}

// A sum over an axis without a size is refused, with a reason.
static void check_refusal(base_arena *arena, ir_graph *graph) {
  if (!random_graph_break(graph)) return;
  base_diag diag = fuzz_diag(arena, fuzz_round_trip(arena, graph));
  FUZZ_REQUIRE(!ir_verify(graph, IR_STAGE_BOUND, &diag), "a sum over a dynamic axis verifies");
  fuzz_render(&diag, true);
}

static void check_graph(trial *t, random_bytes *bytes) {
  fathom_module *module;
  fathom_status status =
      fathom_parse(t->context, t->text.data, t->text.length, "fuzz.fir", &module);
  if (status != FATHOM_OK) fail(t, fathom_error_text());
  t->graph = fathom_module_graph_at(module, 0);
  check_texts(t, bytes);
  check_values(t);
  fathom_module_destroy(module);
}

// One for all inputs: a context is made once in a process, too.
static fathom_context *shared_context(void) {
  static fathom_context *context;
  fathom_context_options options = FATHOM_INIT(options);
  options.cache_directory = "";
  options.threads = 1;
  if (!context && fathom_context_create(&options, &context) != FATHOM_OK) abort();
  return context;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  base_arena arena;
  base_arena_init(&arena, NULL);
  random_bytes bytes = {data, size, 0};
  trial t = {.arena = &arena, .context = shared_context()};
  pick_options(&t, &bytes);
  ir_graph *graph = random_graph_make(&arena, &bytes);
  fuzz_round_trip(&arena, graph); // sizes that follow from others are not written here
  base_diag diag = fuzz_diag(&arena, (base_str){0});
  bool good = ir_verify(graph, IR_STAGE_BOUND, &diag);
  t.ir = graph;
  t.text = fuzz_round_trip(&arena, graph);
  if (!good) fail(&t, base_diag_render(&diag).data);
  if (getenv("FATHOM_FUZZ_SHOW")) show(&t); // what a crash in generated code does not tell
  check_graph(&t, &bytes);
  check_refusal(&arena, graph);
  base_arena_reset(&arena);
  return 0;
}
