// depth: planning a model, and the plan as people read it.
#include "api/depth.h"

#include <string.h>

static const base_loc nowhere;

// ---- descriptions -------------------------------------------------------------------------------

// The name of a file without folder and ending.
static base_str stem_of(base_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
  const char *dot = strrchr(name, '.');
  return base_str_copy(arena, (base_str){name, dot != NULL ? (size_t)(dot - name) : strlen(name)});
}

const model_description *api_model_read(api_call *call, const char *name) {
  base_str text, why;
  const char *path = api_shared_find(call, "model", name);
  if (path == NULL) return NULL;
  const base_status status = base_file_read(&call->arena, path, &text, &why);
  if (status != BASE_OK) {
    base_error_status(&call->diag, status, nowhere, "%.*s", BASE_FMT(why));
    return NULL;
  }
  base_diag_init(&call->diag, &call->arena, base_str_from(path), text);
  return model_read(&call->arena, text, stem_of(&call->arena, path), &call->diag);
}

// ---- planning -----------------------------------------------------------------------------------

static model_phases phases_of(const model_description *model, fathom_phases wanted) {
  switch (wanted) {
  case FATHOM_PHASES_AUTO:
    return MODEL_PHASES_AUTO;
  case FATHOM_PHASES_ONE:
    return MODEL_PHASES_ONE;
  case FATHOM_PHASES_TWO:
    return MODEL_PHASES_TWO;
  default:
    return model->phases;
  }
}

// ---- one phase or two ---------------------------------------------------------------------------

// A group of sites that can be computed in two phases, and what either way takes.
typedef struct group_times {
  pass_phase_group group;
  double one, two;
} group_times;

typedef struct chooser {
  base_arena *arena;
  BASE_VECTOR(group_times) groups;
} chooser;

static bool note_group(void *user, pass_phase_group group) {
  chooser *c = user;
  base_push(c->arena, &c->groups, (group_times){.group = group});
  return true;
}

// The cost model tells no smaller differences (docs/models.md).
static const double sure = 0.9;

static bool is_faster(void *user, pass_phase_group group) {
  const chooser *c = user;
  for (uint32_t i = 0; i < c->groups.count; i++)
    if (c->groups.data[i].group.first == group.first)
      return c->groups.data[i].two < sure * c->groups.data[i].one;
  return true;
}

// The runs of a group's steps that are not beside, and what of the others is waited for there.
static double time_of(const pass_outline *outline, const double *seconds, pass_phase_group group) {
  double sum = 0;
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const pass_run *run = &outline->runs.data[i];
    uint32_t step = run->step;
    if (run->beside) {
      const uint32_t waits = pass_run_waited_for(outline, i);
      step = waits < outline->runs.count ? outline->runs.data[waits].step : UINT32_MAX;
    }
    if (step >= group.first && step <= group.last) sum += seconds[run->kernel];
  }
  return sum;
}

// The graph in two phases wherever that takes less time, as far as that is known; else wherever it moves
// less. NULL: see the call's diag.
static ir_graph *choose_phases(api_call *call, const ir_graph *graph, const api_request *request,
                               int64_t rows) {
  chooser c = {.arena = &call->arena};
  ir_graph *two = pass_two_phase_as(graph, PASS_PHASES_LEAST, note_group, &c, &call->diag);
  if (two == NULL || c.groups.count == 0) return two;
  const pass_outline *one_outline = pass_outline_depth(graph, &call->diag);
  const pass_outline *two_outline = pass_outline_depth(two, &call->diag);
  if (one_outline == NULL || two_outline == NULL) return NULL;
  const double *one_seconds = api_depth_times(call, request, rows, one_outline);
  const double *two_seconds = api_depth_times(call, request, rows, two_outline);
  if (one_seconds == NULL || two_seconds == NULL) return two;
  for (uint32_t i = 0; i < c.groups.count; i++) {
    group_times *g = &c.groups.data[i];
    g->one = time_of(one_outline, one_seconds, g->group);
    g->two = time_of(two_outline, two_seconds, g->group);
  }
  return pass_two_phase_as(graph, PASS_PHASES_LEAST, is_faster, &c, &call->diag);
}

static bool read_request(api_call *call, const fathom_model_options *options, api_request *out) {
  fathom_compile_options compile = FATHOM_INIT(compile);
  compile.target = options->target;
  compile.cpu = options->cpu;
  return api_request_read(call, &compile, out);
}

api_depth *api_depth_plan(api_call *call, const char *name, const fathom_model_options *options) {
  base_diag *diag = &call->diag;
  api_depth *depth = base_new(&call->arena, api_depth);
  if ((unsigned)options->phases > FATHOM_PHASES_TWO) {
    base_error(diag, nowhere, "unknown phases %d", (int)options->phases);
    base_hint(diag, "give one of FATHOM_PHASES_*");
    return NULL;
  }
  if (!read_request(call, options, &depth->request)) return NULL;
  depth->model = api_model_read(call, name);
  if (depth->model == NULL) return NULL;
  depth->rows = options->rows > 0 ? options->rows : API_USUAL_ROWS;
  ir_graph *graph = model_expand(&call->arena, depth->model, options->outputs, diag);
  if (graph == NULL || !ir_verify(graph, IR_STAGE_BOUND, diag)) return NULL;
  const model_phases phases = phases_of(depth->model, options->phases);
  if (phases == MODEL_PHASES_TWO)
    graph = pass_two_phase_as(graph, PASS_PHASES_ALL, NULL, NULL, diag);
  else if (phases == MODEL_PHASES_AUTO)
    graph = choose_phases(call, graph, &depth->request, depth->rows);
  if (graph == NULL || !ir_verify(graph, IR_STAGE_BOUND, diag)) return NULL;
  depth->graph = graph;
  depth->outline = pass_outline_depth(graph, diag);
  if (depth->outline == NULL) return NULL;
  depth->memory = pass_plan_memory(depth->outline, diag);
  return depth->memory != NULL ? depth : NULL;
}

void api_depth_time(api_call *call, api_depth *depth) {
  depth->seconds = api_depth_times(call, &depth->request, depth->rows, depth->outline);
}

// ---- traffic ------------------------------------------------------------------------------------

static bool has_tokens(const ir_graph *graph, ir_value value) {
  const ir_type *type = &ir_node_of(graph, value)->type;
  for (uint32_t i = 0; i < type->rank; i++)
    if (ir_axis_size(graph, type->axes[i]) == IR_DYNAMIC) return true;
  return false;
}

api_moved api_run_moves(const api_depth *depth, uint32_t index) {
  const pass_run *run = &depth->outline->runs.data[index];
  const ir_graph *kernel = depth->outline->kernels.data[run->kernel];
  api_moved moved = {0};
  for (uint32_t i = 0; i < kernel->param_count; i++)
    if (has_tokens(kernel, (ir_value){i})) moved.read += pass_bytes_per_row(kernel, (ir_value){i});
  for (uint32_t i = 0; i < kernel->results.count; i++)
    if (has_tokens(kernel, kernel->results.data[i]))
      moved.written += pass_bytes_per_row(kernel, kernel->results.data[i]);
  return moved;
}

// ---- the table ----------------------------------------------------------------------------------

static double row_bytes(const api_depth *depth) {
  return (double)depth->model->hidden * (double)ir_dtype_size(depth->model->dtype);
}

// "%h_9.bank, %a_9.lse", shortened.
static base_str results_text(const api_depth *depth, const pass_run *run, base_arena *arena) {
  base_text text = {.arena = arena};
  for (uint32_t i = 0; i < run->result_count; i++)
    base_text_printf(&text, "%s%%%.*s", i ? ", " : "",
                     BASE_FMT(ir_node_of(depth->graph, run->results[i].value)->name));
  return base_text_str(&text);
}

static uint64_t buffer_sum(const api_depth *depth) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < depth->memory->buffer_count; i++)
    bytes += depth->memory->buffer_bytes[i];
  return bytes;
}

// Sites whose mix of finished blocks is computed beside others, for the published counts.
static void print_published(const api_depth *depth, double moved, base_text *out) {
  const model_description *model = depth->model;
  const double blocks = model->block_count, size = model->sublayers / blocks;
  base_text_printf(out, "a sublayer and token moves %.2f D\n", moved);
  base_text_printf(out,
                   "published, for blocks of %.3g sublayers: plain residual 3, mHC 34, full "
                   "two-phase S + N = %.4g, block two-phase N / S + 5 = %.3g\n",
                   size, size + blocks, blocks / size + 5);
}

// The last run of a row of the table: sites in succession that run the same kernel share one.
static uint32_t last_alike(const pass_outline *outline, uint32_t first) {
  const pass_run *runs = outline->runs.data;
  uint32_t last = first;
  while (!runs[first].beside && last + 1 < outline->runs.count && !runs[last + 1].beside &&
         runs[last + 1].kernel == runs[first].kernel)
    last++;
  return last;
}

static void print_runs(const api_depth *depth, uint32_t first, uint32_t last, base_text *out) {
  const pass_run *run = &depth->outline->runs.data[first];
  const api_moved moved = api_run_moves(depth, first);
  const double row = row_bytes(depth);
  base_arena *arena = out->arena;
  base_str sites = base_str_format(arena, "%u%s", run->step, run->beside ? "+" : "");
  if (last > first)
    sites = base_str_format(arena, "%u-%u", run->step, depth->outline->runs.data[last].step);
  base_text_printf(out, "%9.*s %6u %7.2f %7.2f %9llu", BASE_FMT(sites), run->kernel,
                   (double)moved.read / row, (double)moved.written / row,
                   (unsigned long long)moved.read + moved.written);
  if (depth->seconds != NULL) base_text_printf(out, " %11.2f", 1e6 * depth->seconds[run->kernel]);
  base_text_printf(out, "  %.*s%s\n", BASE_FMT(results_text(depth, run, arena)),
                   last > first ? ", ..." : "");
}

static double seconds_of(const api_depth *depth) {
  double seconds = 0;
  for (uint32_t i = 0; i < depth->outline->runs.count; i++)
    seconds += depth->seconds[depth->outline->runs.data[i].kernel];
  return seconds;
}

void api_depth_print(const api_depth *depth, base_text *out) {
  const pass_outline *outline = depth->outline;
  const double row = row_bytes(depth);
  double total = 0;
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const api_moved moved = api_run_moves(depth, i);
    total += (double)(moved.read + moved.written);
  }
  base_text_printf(out, "%9s %6s %7s %7s %9s", "sites", "kernel", "reads", "writes", "bytes");
  if (depth->seconds != NULL)
    base_text_printf(out, " %11s",
                     base_str_format(out->arena, "us, T=%lld", (long long)depth->rows).data);
  base_text_printf(out, "  results\n");
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const uint32_t last = last_alike(outline, i);
    print_runs(depth, i, last, out);
    i = last;
  }
  base_text_printf(out,
                   "\nreads and writes are for a token, in rows of D = %lld (%.0f bytes); what all "
                   "tokens share is left out\n",
                   (long long)depth->model->hidden, row);
  base_text_printf(out, "+ runs beside the sublayer: nothing waits for it before the next site\n");
  if (depth->seconds != NULL)
    base_text_printf(out,
                     "times are those of tuning records, else of the cost model: %.2f ms in all\n",
                     1e3 * seconds_of(depth));
  base_text_printf(out, "%u runs of %u kernels\n", outline->runs.count, outline->kernels.count);
  print_published(depth, total / row / depth->model->sublayers, out);
  base_text_printf(out,
                   "workspace %.2f D a token in %u buffers, %llu bytes for %lld tokens, and what "
                   "the largest kernel needs\n",
                   (double)buffer_sum(depth) / row, depth->memory->buffer_count,
                   (unsigned long long)buffer_sum(depth) * (uint64_t)depth->rows,
                   (long long)depth->rows);
}
