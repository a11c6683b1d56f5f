// compile: from a graph to an executable, through passes and codegen and, for a GPU, onto a device;
// for interp by keeping a verified copy of the graph.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "api/tuned.h"
#include "codegen/cuda/arch.h"
#include "passes/passes.h"

static const base_loc nowhere;

// ---- options ------------------------------------------------------------------------------------

// What the options name, and the target has no use for.
static bool check_options(api_call *call, const api_request *request,
                          const fathom_compile_options *options) {
  const api_target *target = &api_targets[request->kind];
  base_diag *diag = &call->diag;
  const uint32_t before = diag->error_count; // of a session's earlier requests
  if (!target->compiles && request->cg.schedule[0] != 0)
    base_error(diag, nowhere, "the %s target takes no schedule, found '%s'", target->name,
               request->cg.schedule);
  if (target->gpu && options->cpu != NULL) {
    base_error(diag, nowhere, "the %s target compiles for no CPU, found '%s'", target->name,
               options->cpu);
    base_hint(diag, "name the GPU's architecture in the target, as in %s:sm_90", target->name);
  }
  if (request->kind != API_EMULATOR && options->sanitize != 0) {
    base_error(diag, nowhere, "kernels of the %s target cannot be sanitized", target->name);
    base_hint(diag, "use the target cuda-emu");
  }
  return diag->error_count == before;
}

bool api_is_set(const char *variable) {
  const char *value = getenv(variable);
  return value != NULL && value[0] != 0 && strcmp(value, "0") != 0;
}

bool api_request_read(api_call *call, const fathom_compile_options *given, api_request *out) {
  fathom_compile_options options;
  *out = (api_request){.verify_each = false};
  if (API_STRUCT_IN(options, given, fathom_compile_options) != FATHOM_OK) return false;
  if (!api_target_parse(&call->diag, options.target != NULL ? options.target : "cpu", &out->kind,
                        out->arch))
    return false;
  out->verify_each = options.verify_each != 0;
  out->sanitize = options.sanitize != 0;
  out->cg = (cg_options){
      .cpu = options.cpu != NULL ? options.cpu : "host",
      .arch = out->arch,
      .emulate = out->kind == API_EMULATOR,
      .schedule = options.schedule != NULL ? options.schedule : "",
      .cache_directory = call->context->cache_directory,
      .expect_cached = api_is_set("FATHOM_EXPECT_CACHED"),
  };
  return check_options(call, out, &options);
}

// ---- lowering -----------------------------------------------------------------------------------

ir_graph *api_lower(api_call *call, const fathom_graph *graph, const api_request *request) {
  base_diag *diag = &call->diag;
  ir_graph *copy = api_graph_open(call, graph);
  if (!ir_verify(copy, IR_STAGE_BOUND, diag)) return NULL;
  if (!api_targets[request->kind].compiles) return copy;
  pass_options options = {
      .verify_each = request->verify_each,
      .reproducer = request->verify_each ? "fathom-repro.fir" : NULL,
  };
  ir_graph *fused = pass_run(copy, api_targets[request->kind].pipeline, &options, diag);
  if (fused == NULL) return NULL;
  if (!ir_verify(fused, IR_STAGE_FUSED, diag)) {
    diag->status = BASE_INTERNAL; // the user's graph was good before the passes
    base_error_status(diag, BASE_INTERNAL, nowhere,
                      "the passes left graph @%.*s unfit for compiling", BASE_FMT(graph->ir->name));
    base_hint(diag, "please report this, with the file");
    return NULL;
  }
  return fused;
}

// ---- executables --------------------------------------------------------------------------------

static rt_slot slot_of(const ir_graph *graph, ir_value value, rt_role role) {
  const ir_node *node = ir_node_of(graph, value);
  rt_slot slot = {
      .name = node->name.data,
      .role = role,
      .dtype = (rt_dtype)node->type.dtype,
      .rank = node->type.rank,
  };
  for (uint32_t i = 0; i < slot.rank; i++)
    slot.axes[i] = node->type.axes[i].index;
  return slot;
}

// A program without kernels: what binding needs to know about an interpreted graph.
static const rt_program *describe_graph(base_arena *arena, const ir_graph *graph) {
  uint32_t slot_count = graph->param_count + graph->results.count;
  rt_program *program = base_new(arena, rt_program);
  rt_axis *axes = base_new_array(arena, rt_axis, graph->axes.count);
  rt_slot *slots = base_new_array(arena, rt_slot, slot_count);
  for (uint32_t i = 0; i < graph->axes.count; i++) {
    const int64_t size = ir_axis_is_used(graph, (ir_axis){i}) ? graph->axes.data[i].size : 0;
    axes[i] = (rt_axis){graph->axes.data[i].name.data, size};
  }
  for (uint32_t i = 0; i < graph->param_count; i++)
    slots[i] = slot_of(graph, (ir_value){i}, RT_INPUT);
  for (uint32_t i = 0; i < graph->results.count; i++)
    slots[graph->param_count + i] = slot_of(graph, graph->results.data[i], RT_OUTPUT);
  *program = (rt_program){
      .axis_count = graph->axes.count,
      .slot_count = slot_count,
      .axes = axes,
      .slots = slots,
  };
  return program;
}

static void release_variant(api_variant *variant) {
  rt_device_unload(variant->loaded);
  if (variant->artefact != NULL) variant->artefact->release(variant->artefact);
  *variant = (api_variant){0};
}

static void release_code(void *opaque) {
  fathom_executable *executable = opaque;
  // Neighbours may share theirs.
  for (uint32_t i = executable->variant_count; i-- > 0;)
    if (i == 0 || executable->variants[i].artefact != executable->variants[i - 1].artefact)
      release_variant(&executable->variants[i]);
}

// What binding by name looks through: inputs, then outputs.
static void collect_names(fathom_executable *executable) {
  const rt_program *program = executable->program;
  uint32_t count = 0;
  while (count < program->slot_count && program->slots[count].role != RT_TEMPORARY)
    count++;
  const char **names = base_new_array(&executable->arena, const char *, count);
  for (uint32_t i = 0; i < count; i++)
    names[i] = program->slots[i].name;
  executable->names = names;
  executable->bound_count = count;
}

fathom_executable *api_executable_begin(api_call *call, api_kind kind, base_str graph,
                                        fathom_executable **out) {
  fathom_executable *executable = *out = api_object_create(call, sizeof *executable);
  executable->context = call->context;
  executable->kind = kind;
  executable->arch = "";
  base_defer(&executable->arena, release_code, executable); // before there is anything to leak
  executable->graph_name = base_str_copy(&executable->arena, graph).data;
  return executable;
}

void api_executable_complete(fathom_executable *executable) {
  executable->artefact = executable->variants[0].artefact;
  executable->loaded = executable->variants[0].loaded;
  executable->program = executable->artefact->program;
  collect_names(executable);
}

// A cache folder that somebody named must be one that can be read, or made: falling back in silence
// would hide a slip of the pen until the first slow start. The default one may be missing or
// closed; what lies in either may be damaged.
static bool check_cache(api_call *call) {
  const fathom_context *context = call->context;
  base_str why = BASE_STR("it cannot be read");
  if (!context->cache_named || access(context->cache_directory, R_OK | X_OK) == 0) {
    struct stat found;
    if (!context->cache_named ||
        (stat(context->cache_directory, &found) == 0 && S_ISDIR(found.st_mode)))
      return true;
    why = BASE_STR("it is not a folder");
  } else if (errno == ENOENT || errno == ENOTDIR) {
    if (base_directory_create(&call->arena, context->cache_directory, &why) == BASE_OK) return true;
  }
  base_error_status(&call->diag, BASE_IO, nowhere, "the cache folder %s cannot be used: %.*s",
                    context->cache_directory, BASE_FMT(why));
  base_hint(&call->diag, "name a folder you can write in, or an empty name to go without a cache "
                         "($FATHOM_CACHE, or cache_directory of the context)");
  return false;
}

const cg_target *api_codegen(api_call *call, api_kind kind) {
  base_str why;
  if (api_targets[kind].gpu) return cg_cuda_target();
  const cg_target *target = cg_cpu_target(&call->arena, &why);
  if (target == NULL)
    base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere, "%.*s", BASE_FMT(why));
  return target;
}

// The device that the executable will run on; its architecture is the request's unless that names
// one. NULL: see the call's diag.
static rt_device *open_device(api_call *call, api_request *request, fathom_executable *executable) {
  api_device_key key = {.kind = request->kind, .sanitize = request->sanitize};
  if (request->kind == API_CUDA && !api_device_ordinal(call, &key.ordinal)) return NULL;
  if (request->kind == API_EMULATOR) {
    if (request->arch[0] == 0) memcpy(request->arch, API_DEFAULT_ARCH, sizeof API_DEFAULT_ARCH);
    memcpy(key.arch, request->arch, sizeof key.arch);
  }
  rt_device *device = api_device_open(call, &key);
  if (device == NULL) return NULL;
  if (request->arch[0] == 0) api_arch_of(&device->facts, request->arch);
  request->facts = &device->facts;
  executable->ordinal = key.ordinal;
  executable->arch = base_str_copy(&executable->arena, base_str_from(request->arch)).data;
  return device;
}

static bool compile_and_load(api_call *call, const cg_target *target, const ir_graph *fused,
                             const cg_options *options, rt_device *device, api_variant *variant) {
  variant->artefact = target->compile(&call->arena, fused, options, &call->diag);
  return variant->artefact != NULL &&
         (device == NULL || rt_device_load(device, variant->artefact->device, &variant->loaded,
                                           &call->diag) == BASE_OK);
}

// Code from the cache that the device does not take, neither as machine code nor as PTX, is made
// again: it may be damaged in a way its digest does not show, or be meant for another driver.
static bool make_variant(api_call *call, const cg_target *target, const ir_graph *fused,
                         const cg_options *options, rt_device *device, api_variant *variant) {
  const base_diag before = call->diag;
  if (compile_and_load(call, target, fused, options, device, variant)) return true;
  bool cached = variant->artefact != NULL && options->cache_directory[0] != 0;
  if (!cached || device == NULL || call->diag.status != BASE_UNSUPPORTED) return false;
  cg_options fresh = *options;
  fresh.cache_directory = "";
  call->diag = before;
  release_variant(variant);
  return compile_and_load(call, target, fused, &fresh, device, variant);
}

// ---- variants -----------------------------------------------------------------------------------

static const api_variant *variant_for(const fathom_executable *executable, int64_t rows) {
  const api_variant *best = &executable->variants[0];
  for (uint32_t i = 1; i < executable->variant_count; i++)
    if (api_second_is_nearer(best->rows, executable->variants[i].rows, rows))
      best = &executable->variants[i];
  return best;
}

const cg_artefact *api_artefact_for(const fathom_executable *executable, int64_t rows) {
  return executable->variant_count > 0 ? variant_for(executable, rows)->artefact : NULL;
}

static const api_variant *variant_of_sizes(const fathom_executable *executable,
                                           const int64_t *sizes) {
  const rt_program *program = executable->program;
  int64_t rows = 1;
  for (uint32_t i = 0; i < program->axis_count; i++)
    if (program->axes[i].size == RT_DYNAMIC && __builtin_mul_overflow(rows, sizes[i], &rows))
      rows = INT64_MAX;
  return variant_for(executable, rows);
}

const rt_program *api_program_for(const fathom_executable *executable, const int64_t *sizes) {
  if (executable->variant_count < 2) return executable->program;
  return variant_of_sizes(executable, sizes)->artefact->program;
}

rt_loaded *api_loaded_for(const fathom_executable *executable, const int64_t *sizes) {
  if (executable->variant_count < 2) return executable->loaded;
  return variant_of_sizes(executable, sizes)->loaded;
}

static bool add_variant(api_call *call, const cg_target *target, const ir_graph *fused,
                        const cg_options *options, rt_device *device, int64_t rows,
                        fathom_executable *executable) {
  api_variant *variant = &executable->variants[executable->variant_count++];
  variant->rows = rows;
  return make_variant(call, target, fused, options, device, variant);
}

// A record may hold a schedule that this target refuses: then it is as if there were none. (What was
// to be in the cache and is not is another matter.)
static bool may_go_without(const api_call *call, const cg_options *options) {
  return call->diag.status == BASE_UNSUPPORTED && !options->expect_cached;
}

// Code for each tuned schedule that differs from the one for fewer rows, or else for all rows.
static bool make_variants(api_call *call, const cg_target *target, const ir_graph *fused,
                          const cg_options *options, rt_device *device, uint32_t count,
                          const api_tuned *tuned, fathom_executable *executable) {
  executable->variants = base_new_array(&executable->arena, api_variant, count + 1);
  const api_tuned *last = NULL; // that there is code for
  for (uint32_t i = 0; i < count; i++) {
    cg_options own = *options;
    const base_diag before = call->diag;
    own.schedule = tuned[i].schedule;
    own.schedule_source = tuned[i].by_model ? "model" : "tuned";
    // Each number of rows is kept, also where the code is the same: it says what is nearest.
    if (last && strcmp(tuned[i].schedule, last->schedule) == 0) {
      api_variant same = executable->variants[executable->variant_count - 1];
      same.rows = tuned[i].rows;
      executable->variants[executable->variant_count++] = same;
      continue;
    }
    if (add_variant(call, target, fused, &own, device, tuned[i].rows, executable)) {
      last = &tuned[i];
      continue;
    }
    if (!may_go_without(call, options)) return false;
    release_variant(&executable->variants[--executable->variant_count]);
    call->diag = before;
  }
  if (executable->variant_count == 0 &&
      !add_variant(call, target, fused, options, device, 1, executable))
    return false;
  api_executable_complete(executable);
  return true;
}

// ---- compiling ----------------------------------------------------------------------------------

// For a bundle: no device is needed. Tuned schedules are those of this machine's GPU only where the
// code is for its like.
static bool choose_arch(api_call *call, api_request *request, fathom_executable *executable) {
  const char *unused;
  cuda_arch arch;
  if (!api_arch_choose(call, request, &unused)) return false;
  const rt_device_facts *facts = request->facts;
  if (facts != NULL && (!cuda_arch_find(request->arch, &arch) ||
                        arch.capability != 10 * facts->major + facts->minor))
    request->facts = NULL;
  executable->arch = base_str_copy(&executable->arena, base_str_from(request->arch)).data;
  return true;
}

// False: see the call's diag.
static bool compile_kernels(api_call *call, const ir_graph *bound, const ir_graph *fused,
                            api_request *request, fathom_executable *executable) {
  const cg_target *target = api_codegen(call, request->kind);
  if (target == NULL || !check_cache(call)) return false;
  rt_device *device = NULL;
  if (request->cg.portable) {
    if (!choose_arch(call, request, executable)) return false;
  } else if (api_targets[request->kind].gpu) {
    device = open_device(call, request, executable);
    if (device == NULL) return false;
  }
  const api_tuned *tuned = NULL;
  uint32_t count = api_tuned_find(call, bound, request, &tuned);
  return make_variants(call, target, fused, &request->cg, device, count, tuned, executable);
}

static bool make_executable(api_call *call, const fathom_graph *graph, api_request *request,
                            fathom_executable **out) {
  const double start = base_seconds();
  ir_graph *lowered = api_lower(call, graph, request);
  if (lowered == NULL) return false;
  fathom_executable *executable = api_executable_begin(call, request->kind, lowered->name, out);
  if (!api_targets[request->kind].compiles) {
    executable->graph = api_graph_copy(&executable->arena, lowered);
    executable->program = describe_graph(&executable->arena, executable->graph);
    collect_names(executable);
  } else if (!compile_kernels(call, graph->ir, lowered, request, executable)) {
    return false;
  }
  executable->compile_us = 1e6 * (base_seconds() - start);
  return true;
}

static void destroy_portable(void *opaque) {
  fathom_executable_destroy(*(fathom_executable **)opaque);
}

const fathom_executable *api_compile_portable(api_call *call, const fathom_graph *graph,
                                              api_request *request) {
  fathom_executable **made = base_new(&call->arena, fathom_executable *);
  base_defer(&call->arena, destroy_portable, made);
  request->cg.portable = true;
  return make_executable(call, graph, request, made) ? *made : NULL;
}

typedef struct compile_frame {
  const fathom_graph *graph;
  const fathom_compile_options *options;
  fathom_executable *executable;
} compile_frame;

static fathom_status compile_body(api_call *call, void *opaque) {
  compile_frame *frame = opaque;
  api_request request;
  return api_request_read(call, frame->options, &request) &&
                 make_executable(call, frame->graph, &request, &frame->executable)
             ? FATHOM_OK
             : FATHOM_INVALID;
}

fathom_status fathom_compile(fathom_context *context, const fathom_graph *graph,
                             const fathom_compile_options *options, fathom_executable **out) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(graph);
  API_REQUIRE(out);
  *out = NULL;
  compile_frame frame = {.graph = graph, .options = options};
  fathom_status status = api_call_run(context, compile_body, &frame);
  if (status != FATHOM_OK) {
    fathom_executable_destroy(frame.executable);
    return status;
  }
  api_object_keep(frame.executable);
  *out = frame.executable;
  return FATHOM_OK;
}

void fathom_executable_destroy(fathom_executable *executable) {
  api_object_destroy(executable);
}

// ---- what was compiled --------------------------------------------------------------------------

static uint32_t count_role(const fathom_executable *executable, rt_role role) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < executable->bound_count; i++)
    count += executable->program->slots[i].role == role;
  return count;
}

uint32_t fathom_executable_param_count(const fathom_executable *executable) {
  return executable != NULL ? count_role(executable, RT_INPUT) : 0;
}

uint32_t fathom_executable_result_count(const fathom_executable *executable) {
  return executable != NULL ? count_role(executable, RT_OUTPUT) : 0;
}

static fathom_status describe_slot(const fathom_executable *executable, rt_role role,
                                   uint32_t index, fathom_tensor_info *out) {
  const uint32_t count = count_role(executable, role);
  const rt_program *program = executable->program;
  if (index >= count)
    return api_fail(FATHOM_INVALID, "no %s %u: graph @%s has %u",
                    role == RT_INPUT ? "parameter" : "result", index, executable->graph_name,
                    count);
  const rt_slot *slot =
      &program->slots[role == RT_INPUT ? index : executable->bound_count - count + index];
  fathom_tensor_info info = {
      .name = slot->name, .dtype = (fathom_dtype)slot->dtype, .rank = slot->rank};
  for (uint32_t i = 0; i < slot->rank; i++) {
    info.axes[i] = program->axes[slot->axes[i]].name;
    info.sizes[i] = program->axes[slot->axes[i]].size;
    info.layout[i] = i;
  }
  return API_STRUCT_OUT(out, info, fathom_tensor_info);
}

fathom_status fathom_executable_param(const fathom_executable *executable, uint32_t index,
                                      fathom_tensor_info *info) {
  api_error_clear();
  API_REQUIRE(executable);
  API_REQUIRE(info);
  return describe_slot(executable, RT_INPUT, index, info);
}

fathom_status fathom_executable_result(const fathom_executable *executable, uint32_t index,
                                       fathom_tensor_info *info) {
  api_error_clear();
  API_REQUIRE(executable);
  API_REQUIRE(info);
  return describe_slot(executable, RT_OUTPUT, index, info);
}

fathom_status fathom_executable_get_info(const fathom_executable *executable,
                                         fathom_executable_info *out) {
  api_error_clear();
  API_REQUIRE(executable);
  API_REQUIRE(out);
  const cg_artefact *artefact = executable->artefact;
  const rt_device *device = api_executable_device(executable);
  fathom_executable_info info = {
      .graph = executable->graph_name,
      .kernel = executable->program->kernel_count > 0 ? executable->program->kernels[0].name : "",
      .target = api_targets[executable->kind].name,
      .schedule = artefact != NULL ? artefact->schedule : "",
      .schedule_source = artefact != NULL ? artefact->schedule_source : "default",
      .kernel_count = executable->program->kernel_count,
      .from_cache = artefact != NULL && artefact->from_cache,
      .compile_us = executable->compile_us,
      .arch = executable->arch,
      .device = device != NULL ? device->facts.name : "",
  };
  return API_STRUCT_OUT(out, info, fathom_executable_info);
}
