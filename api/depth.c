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

const api_depth *api_depth_plan(api_call *call, const char *name,
                                const fathom_model_options *options) {
  base_diag *diag = &call->diag;
  api_depth *depth = base_new(&call->arena, api_depth);
  if ((unsigned)options->phases > FATHOM_PHASES_TWO) {
    base_error(diag, nowhere, "unknown phases %d", (int)options->phases);
    base_hint(diag, "give one of FATHOM_PHASES_*");
    return NULL;
  }
  depth->model = api_model_read(call, name);
  if (depth->model == NULL) return NULL;
  ir_graph *graph = model_expand(&call->arena, depth->model, options->outputs, diag);
  if (graph == NULL || !ir_verify(graph, IR_STAGE_BOUND, diag)) return NULL;
  const model_phases phases = phases_of(depth->model, options->phases);
  if (phases != MODEL_PHASES_ONE) {
    graph = pass_two_phase_as(
        graph, phases == MODEL_PHASES_TWO ? PASS_PHASES_ALL : PASS_PHASES_LEAST, diag);
    if (graph == NULL || !ir_verify(graph, IR_STAGE_BOUND, diag)) return NULL;
  }
  depth->graph = graph;
  depth->outline = pass_outline_depth(graph, diag);
  if (depth->outline == NULL) return NULL;
  depth->memory = pass_plan_memory(depth->outline, diag);
  return depth->memory != NULL ? depth : NULL;
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

void api_depth_print(const api_depth *depth, int64_t rows, base_text *out) {
  const pass_outline *outline = depth->outline;
  const double row = row_bytes(depth);
  double total = 0;
  base_text_printf(out, "%5s %-7s %7s %7s %10s  %s\n", "site", "kernel", "reads", "writes", "bytes",
                   "results");
  for (uint32_t i = 0; i < outline->runs.count; i++) {
    const pass_run *run = &outline->runs.data[i];
    const api_moved moved = api_run_moves(depth, i);
    total += (double)(moved.read + moved.written);
    base_text_printf(out, "%4u%s %-7u %7.2f %7.2f %10llu  %.*s\n", run->step,
                     run->beside ? "+" : " ", run->kernel, (double)moved.read / row,
                     (double)moved.written / row, (unsigned long long)(moved.read + moved.written),
                     BASE_FMT(results_text(depth, run, out->arena)));
  }
  base_text_printf(out,
                   "\nreads and writes are for a token, in rows of D = %lld (%.0f bytes); what all "
                   "tokens share is left out\n",
                   (long long)depth->model->hidden, row);
  base_text_printf(out, "+ runs beside the sublayer: nothing waits for it before the next site\n");
  base_text_printf(out, "%u runs of %u kernels\n", outline->runs.count, outline->kernels.count);
  print_published(depth, total / row / depth->model->sublayers, out);
  base_text_printf(out,
                   "workspace %.2f D a token in %u buffers, %llu bytes for %lld tokens, and what "
                   "the largest kernel needs\n",
                   (double)buffer_sum(depth) / row, depth->memory->buffer_count,
                   (unsigned long long)(buffer_sum(depth) * (uint64_t)rows), (long long)rows);
}
