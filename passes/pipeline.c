// The pipeline and its manager: the one place that runs, dumps, verifies and times passes.
#include "passes/passes.h"

#include <assert.h>
#include <string.h>

#define PASS(function, ...) ir_graph *function(const ir_graph *graph, base_diag *diag);
#include "passes/passes.def"
#undef PASS

const char pass_cpu_pipeline[] = "canonicalize,factor-norm,online-softmax,canonicalize,fuse";
const char pass_cuda_pipeline[] =
    "canonicalize,factor-norm,online-softmax,canonicalize,defer-normaliser,canonicalize,fuse";

enum {
  NONE = 0,
  CANONICAL = PASS_FACT_CANONICAL,
  PRIMITIVE = PASS_FACT_PRIMITIVE,
  FUSED = PASS_FACT_FUSED,
  NARROW = PASS_FACT_NARROW
};

static const pass_info passes[] = {
#define PASS(function, name, needs, gives, breaks, summary)                                        \
  {name, needs, gives, breaks, function, summary},
#include "passes/passes.def"
#undef PASS
};
enum { PASS_COUNT = sizeof passes / sizeof passes[0] };

static_assert(IR_SET_AXES == 64, "a text below says so");

static const struct {
  uint32_t fact;
  const char *meaning, *remedy;
} fact_texts[] = {
    {PASS_FACT_CANONICAL, "a canonical graph", "run canonicalize before it"},
    {PASS_FACT_PRIMITIVE, "a graph without composite ops",
     "run factor-norm and online-softmax before it"},
    {PASS_FACT_FUSED, "a fused graph", "run fuse before it"},
    {PASS_FACT_NARROW, "a graph of at most 64 axes",
     "that of a whole depth is compiled in pieces: see fathom plan"},
};

const pass_info *pass_at(uint32_t index) {
  return index < PASS_COUNT ? &passes[index] : NULL;
}

const pass_info *pass_find(base_str name) {
  for (uint32_t i = 0; i < PASS_COUNT; i++)
    if (base_str_equal(name, base_str_from(passes[i].name))) return &passes[i];
  return NULL;
}

// Facts that can be read off the graph itself are read, not believed.
static uint32_t observed_facts(const ir_graph *graph) {
  uint32_t facts = PRIMITIVE | FUSED | (graph->axes.count <= IR_SET_AXES ? NARROW : 0u);
  for (uint32_t i = 0; i < graph->nodes.count; i++) {
    const ir_node *node = &graph->nodes.data[i];
    if (ir_op_get(node->op)->facts & IR_FACT_COMPOSITE) facts &= ~(uint32_t)PRIMITIVE;
    if (node->op != IR_PARAM && node->op != IR_CONSTANT && node->kernel == IR_NO_KERNEL)
      facts &= ~(uint32_t)FUSED;
  }
  return facts;
}

static bool check_needs(const pass_info *pass, uint32_t facts, base_diag *diag) {
  uint32_t missing = pass->needs & ~facts;
  for (size_t i = 0; i < sizeof fact_texts / sizeof fact_texts[0]; i++)
    if (missing & fact_texts[i].fact) {
      base_error(diag, (base_loc){0}, "pass '%s' needs %s", pass->name, fact_texts[i].meaning);
      base_hint(diag, "%s", fact_texts[i].remedy);
    }
  return missing == 0;
}

static void unknown_pass(base_str name, base_diag *diag) {
  const char *names[PASS_COUNT];
  base_text list = {.arena = diag->arena};
  for (uint32_t i = 0; i < PASS_COUNT; i++) {
    names[i] = passes[i].name;
    base_text_printf(&list, "%s%s", i ? ", " : "", passes[i].name);
  }
  base_error(diag, (base_loc){0}, "unknown pass '%.*s'", BASE_FMT(name));
  const char *nearest = base_nearest(name, names, PASS_COUNT);
  if (nearest)
    base_hint(diag, "did you mean '%s'?", nearest);
  else
    base_hint(diag, "the passes are %s", list.data);
}

// The graph that went in and the passes from the failing one on: enough to see the failure again.
static void write_reproducer(const ir_graph *graph, const char *rest, const pass_options *options,
                             base_diag *diag) {
  if (!options->reproducer) return;
  base_text text = {.arena = graph->arena};
  base_text_printf(&text, "// Reproduce with: fathom opt --verify-each --passes=%s %s\n", rest,
                   options->reproducer);
  ir_print(graph, &text);
  base_str why;
  if (base_file_write(graph->arena, options->reproducer, text.data, text.length, &why) == BASE_OK)
    base_hint(diag, "the graph before the failing pass is in %s", options->reproducer);
  else
    base_hint(diag, "no reproducer was written: %.*s", BASE_FMT(why));
}

#ifdef NDEBUG
static const bool always_verify = false;
#else
static const bool always_verify = true; // debug builds check every pass
#endif

static ir_graph *run_one(const pass_info *pass, const ir_graph *graph, const char *rest,
                         const pass_options *options, base_diag *diag) {
  double start = base_seconds();
  ir_graph *result = pass->run(graph, diag);
  double elapsed = 1e6 * (base_seconds() - start);
  if (options->time_passes && options->log)
    base_text_printf(options->log, "%-16s %9.1f us\n", pass->name, elapsed);
  if (result && (options->verify_each || always_verify) &&
      !ir_verify(result, IR_STAGE_PARSED, diag)) {
    base_error_status(diag, BASE_INTERNAL, (base_loc){0}, "pass '%s' broke the graph", pass->name);
    result = NULL;
  }
  if (!result) {
    write_reproducer(graph, rest, options, diag);
    return NULL;
  }
  if (options->print_after_all && options->log) {
    base_text_printf(options->log, "// after %s\n", pass->name);
    ir_print(result, options->log);
    base_text_append(options->log, "\n", 1);
  }
  return result;
}

static base_str next_name(const char **cursor) {
  const char *start = *cursor + strspn(*cursor, " ,");
  size_t length = strcspn(start, ",");
  while (length > 0 && start[length - 1] == ' ')
    length--;
  *cursor = start + strcspn(start, ",");
  return (base_str){start, length};
}

ir_graph *pass_run(const ir_graph *graph, const char *pipeline, const pass_options *options,
                   base_diag *diag) {
  ir_graph *current = (ir_graph *)graph;
  const char *cursor = pipeline;
  uint32_t kept = 0;
  for (base_str name; (name = next_name(&cursor)).length > 0;) {
    const pass_info *pass = pass_find(name);
    if (!pass) {
      unknown_pass(name, diag);
      return NULL;
    }
    uint32_t facts = kept | observed_facts(current);
    if (!check_needs(pass, facts, diag)) return NULL;
    current = run_one(pass, current, name.data, options, diag);
    if (!current) return NULL;
    kept = ((kept & ~pass->breaks) | pass->gives) & PASS_FACT_CANONICAL;
  }
  return current;
}
