// Models as bundles: loaded ones give the same bits; whatever the bytes, no crash, no memory beyond what
// there is, and an error that says what is wrong.
#include <sys/mman.h>

#include "support/host_depth.h"

#include "api/depth.h"
#include "runtime/archive.h"
#include "runtime/bundle.h"
#include "support/memory.h"

#define SECTION_DEPTH RT_SECTION('d', 'e', 'p', 't')

static const char yaml[] = "schema: 1\n"
                           "name: small\n"
                           "hidden: 32\n"
                           "sublayers: 4\n"
                           "blocks: {size: 2}\n"
                           "dtype: f32\n"
                           "addends: [1, 2]\n";
static const char graph_text[] = "graph @scale(%x: f32[T, D=32], %g: f32[D]) {\n"
                                 "  %y = mul %x, %g : f32[T, D]\n"
                                 "  return %y\n"
                                 "}\n";
enum { EXTRAS = FATHOM_OUTPUT_WEIGHTS | FATHOM_OUTPUT_ENTROPY | FATHOM_OUTPUT_MIX, ROWS = 5 };

typedef struct fixture {
  fathom_context *context;
  base_arena arena;
  char path[64]; // of the description
  fathom_text bundle;
  host_model compiled;
  host_tokens tokens;
  host_results expected;
} fixture;

static fathom_status save(fixture *f, const char *target, fathom_text *out) {
  fathom_model_options options = FATHOM_INIT(options);
  options.phases = FATHOM_PHASES_TWO;
  options.outputs = EXTRAS;
  return fathom_model_save(f->context, f->path, &target, 1, &options, out);
}

static void run(const host_model *h, const host_tokens *tokens, host_results *results) {
  fathom_sequence *sequence;
  assert_int_equal(fathom_sequence_create(h->model, &sequence), FATHOM_OK);
  host_run(h, sequence, tokens, HOST_DENSE, NULL, results);
  fathom_sequence_destroy(sequence);
}

static int set_up_group(void **state) {
  fixture *f = calloc(1, sizeof *f);
  *state = f;
  base_arena_init(&f->arena, NULL);
  assert_int_equal(fathom_context_create(NULL, &f->context), FATHOM_OK);
  host_write(yaml, strlen(yaml), ".yaml", f->path, sizeof f->path - 2);
  if (save(f, "cpu", &f->bundle) != FATHOM_OK) fail_msg("%s", fathom_error_text());
  host_open(f->context, yaml, FATHOM_PHASES_TWO, EXTRAS, &f->compiled);
  host_make_tokens(&f->tokens, ROWS, 3);
  run(&f->compiled, &f->tokens, &f->expected);
  return 0;
}

static int tear_down_group(void **state) {
  fixture *f = *state;
  unlink(f->path);
  host_close(&f->compiled);
  fathom_text_destroy(&f->bundle);
  fathom_context_destroy(f->context);
  base_arena_reset(&f->arena);
  free(f);
  return 0;
}

// ---- loading ------------------------------------------------------------------------------------

// As fathom_model_open does, through a file.
static fathom_status open_file(fixture *f, const char *bytes, size_t length,
                               const fathom_model_options *options, fathom_model **out) {
  char path[64];
  host_write(bytes, length, ".fathom", path, sizeof path - 2);
  const fathom_status status = fathom_model_open(f->context, path, options, out);
  unlink(path);
  return status;
}

typedef struct load_frame {
  base_str bytes;
  fathom_model *model;
} load_frame;

static fathom_status load_body(api_call *call, void *opaque) {
  load_frame *frame = opaque;
  fathom_model_options options = FATHOM_INIT(options);
  frame->model = api_object_create(call, sizeof *frame->model);
  frame->model->context = call->context;
  return api_model_load(call, frame->bytes, &options, frame->model) ? FATHOM_OK : FATHOM_INVALID;
}

// The same without a file: for thousands of them.
static fathom_status load(fixture *f, const char *bytes, size_t length, fathom_model **out) {
  char *copy =
      malloc(length + (length == 0)); // of just that size, so that reading beyond it is found
  if (length > 0) memcpy(copy, bytes, length);
  load_frame frame = {.bytes = {copy, length}};
  const fathom_status status = api_call_run(f->context, load_body, &frame);
  if (status == FATHOM_OK)
    api_object_keep(frame.model);
  else
    fathom_model_destroy(frame.model);
  *out = status == FATHOM_OK ? frame.model : NULL;
  free(copy);
  return status;
}

static void gives_the_same_bits(void **state) {
  fixture *f = *state;
  host_model loaded = {0};
  host_results results;
  fathom_model_options options = FATHOM_INIT(options);
  for (uint32_t i = 0; i < 3; i++) {
    if (i == 1) options.outputs = EXTRAS; // as it was made
    if (i == 2) options.target = "cpu";
    if (open_file(f, f->bundle.data, f->bundle.length, &options, &loaded.model) != FATHOM_OK)
      fail_msg("%s", fathom_error_text());
    host_bind(&loaded);
    run(&loaded, &f->tokens, &results);
    host_assert_equal(&results, &f->expected);
    const fathom_model_info *a = &loaded.info, *b = &f->compiled.info;
    assert_string_equal(a->name, "small");
    assert_string_equal(a->target, "cpu");
    assert_true(a->hidden == b->hidden && a->heads == b->heads && a->dtype == b->dtype);
    assert_true(a->sublayers == b->sublayers && a->sites == b->sites && a->outputs == b->outputs);
    assert_true(a->param_count == b->param_count && a->kernel_count == b->kernel_count);
    assert_int_equal(a->run_count, b->run_count);
    for (uint32_t s = 0; s <= a->sites; s++) {
      assert_int_equal(fathom_model_addends(loaded.model, s),
                       fathom_model_addends(f->compiled.model, s));
      assert_int_equal(fathom_model_sources(loaded.model, s),
                       fathom_model_sources(f->compiled.model, s));
    }
    host_close(&loaded);
  }
}

static void saves_the_same_bytes(void **state) {
  fixture *f = *state;
  fathom_text again;
  assert_int_equal(save(f, "cpu", &again), FATHOM_OK);
  assert_int_equal(again.length, f->bundle.length);
  assert_memory_equal(again.data, f->bundle.data, again.length);
  fathom_text_destroy(&again);
}

// ---- wrong uses ---------------------------------------------------------------------------------

static void tells_wrong_uses(void **state) {
  fixture *f = *state;
  static const char *const none[] = {NULL};
  fathom_model *model;
  fathom_executable *executable;
  fathom_text text;
  fathom_model_options options = FATHOM_INIT(options);
  options.phases = FATHOM_PHASES_ONE;
  assert_int_equal(open_file(f, f->bundle.data, f->bundle.length, &options, &model),
                   FATHOM_INVALID);
  host_assert_says("phases and outputs from when it was made");
  options = (fathom_model_options)FATHOM_INIT(options);
  options.outputs = FATHOM_OUTPUT_MIX;
  assert_int_equal(open_file(f, f->bundle.data, f->bundle.length, &options, &model),
                   FATHOM_INVALID);
  host_assert_says("phases and outputs from when it was made");
  options.outputs = 0;
  options.target = "interp";
  assert_int_equal(open_file(f, f->bundle.data, f->bundle.length, &options, &model),
                   FATHOM_UNSUPPORTED);
  host_assert_says("not for interp");
  options.target = "cuda:sm_90a";
  assert_int_not_equal(open_file(f, f->bundle.data, f->bundle.length, &options, &model), FATHOM_OK);
  assert_null(model);
  options.target = "gpu";
  assert_int_equal(open_file(f, f->bundle.data, f->bundle.length, &options, &model),
                   FATHOM_INVALID);
  host_assert_says("unknown target 'gpu'");
  assert_int_equal(
      fathom_executable_load(f->context, f->bundle.data, f->bundle.length, NULL, &executable),
      FATHOM_INVALID);
  host_assert_says("several graphs");
  assert_int_equal(fathom_model_open(f->context, "./nowhere.fathom", NULL, &model), FATHOM_IO);
  host_assert_says("nowhere.fathom");
  assert_int_equal(fathom_model_save(f->context, f->path, none, 0, NULL, &text), FATHOM_INVALID);
  host_assert_says("one target or more");
  assert_int_equal(fathom_model_save(f->context, f->path, none, 1, NULL, &text), FATHOM_INVALID);
  assert_int_not_equal(save(f, "interp", &text), FATHOM_OK);
  assert_int_not_equal(save(f, "cuda:sm_1", &text), FATHOM_OK);
  assert_null(text.data);
}

static void tells_a_graph_from_a_model(void **state) {
  fixture *f = *state;
  static const char *const targets[] = {"cpu"};
  fathom_module *module;
  fathom_graph *graph;
  fathom_text bundle;
  fathom_model *model;
  assert_int_equal(
      fathom_parse(f->context, graph_text, sizeof graph_text - 1, "scale.fir", &module), FATHOM_OK);
  assert_int_equal(fathom_module_graph(module, NULL, &graph), FATHOM_OK);
  assert_int_equal(fathom_executable_save(f->context, graph, targets, 1, NULL, &bundle), FATHOM_OK);
  assert_int_equal(open_file(f, bundle.data, bundle.length, NULL, &model), FATHOM_INVALID);
  host_assert_says("the bundle holds no model");
  fathom_text_destroy(&bundle);
  fathom_module_destroy(module);
  assert_int_equal(open_file(f, yaml, sizeof yaml - 1, NULL, &model), FATHOM_INVALID);
  host_assert_says("no bundle");
}

// ---- memory -------------------------------------------------------------------------------------

static void any_allocation_may_fail(void **state) {
  fixture *f = *state;
  memory m = {.left = -1};
  fathom_context_options options = FATHOM_INIT(options);
  memory_use(&m, &options);
  fixture own = {.arena = f->arena};
  assert_int_equal(fathom_context_create(&options, &own.context), FATHOM_OK);
  const long before = m.held;
  fathom_status status = FATHOM_MEMORY;
  long failures = 0;
  for (long n = 0; status != FATHOM_OK; n++) {
    fathom_model *model;
    m.left = n;
    status = open_file(&own, f->bundle.data, f->bundle.length, NULL, &model);
    if (status != FATHOM_OK) assert_int_equal(status, FATHOM_MEMORY);
    failures += status != FATHOM_OK;
    fathom_model_destroy(model);
    assert_int_equal(m.held, before);
  }
  assert_true(failures > 10);
  m.left = -1;
  fathom_context_destroy(own.context);
  assert_int_equal(m.held, 0);
}

// ---- damage -------------------------------------------------------------------------------------

static void refuses_every_truncation(void **state) {
  fixture *f = *state;
  fathom_model *model;
  for (size_t length = 0; length < f->bundle.length; length++) {
    assert_int_equal(load(f, f->bundle.data, length, &model), FATHOM_INVALID);
    assert_null(model);
  }
  host_assert_says("cut off");
}

static void refuses_every_flipped_bit(void **state) {
  fixture *f = *state;
  fathom_model *model;
  for (size_t i = 0; i < f->bundle.length; i++) {
    const char old = f->bundle.data[i];
    f->bundle.data[i] = (char)(old ^ (1 << i % 8));
    const fathom_status status = load(f, f->bundle.data, f->bundle.length, &model);
    f->bundle.data[i] = old;
    // The version: a newer one is not damage.
    assert_true(status == FATHOM_INVALID || (i / 4 == 2 && status == FATHOM_UNSUPPORTED));
    assert_null(model);
  }
}

// ---- other plans --------------------------------------------------------------------------------

static const rt_section *plan_of(fixture *f, rt_bundle *bundle) {
  base_diag diag;
  base_diag_init(&diag, &f->arena, BASE_STR(""), BASE_STR(""));
  assert_true(
      rt_bundle_open(&f->arena, (base_str){f->bundle.data, f->bundle.length}, bundle, &diag));
  for (uint32_t i = 0; i < bundle->section_count; i++)
    if (bundle->sections[i].kind == SECTION_DEPTH) return &bundle->sections[i];
  fail_msg("the bundle has no plan");
  return NULL;
}

// The bundle with another plan and a sound digest.
static fathom_status load_plan(fixture *f, base_str plan, fathom_model **out) {
  rt_bundle bundle;
  base_text text = {.arena = base_arena_within(&f->arena)};
  const rt_section *own = plan_of(f, &bundle);
  rt_bundle_begin(&text, "a test");
  for (uint32_t i = 1; i < bundle.section_count; i++) {
    const rt_section *section = &bundle.sections[i];
    rt_bundle_add(&text, section->kind, section->name, section == own ? plan : section->contents);
  }
  rt_bundle_end(&text);
  const fathom_status status = load(f, text.data, text.length, out);
  base_arena_reset(text.arena);
  return status;
}

enum { MOST_ELEMENTS = 1 << 16, MOST_WORKSPACE = 1 << 22 };

enum { AREA = MOST_WORKSPACE, PARAMS = 64, GIVEN = PARAMS, OUT = GIVEN + 2, WORKSPACE = OUT + 5 };

// Memory that ends where a page begins that nobody may touch: kernels are not instrumented.
static char *guarded(uint32_t number, size_t bytes) {
  static char *areas[WORKSPACE + 1];
  if (areas[number] == NULL) {
    areas[number] =
        mmap(NULL, AREA + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(areas[number], MAP_FAILED);
    assert_int_equal(mprotect(areas[number] + AREA, 4096, PROT_NONE), 0);
  }
  return areas[number] + AREA - bytes;
}

// A dense tensor. False: it is too large to try.
static bool make_tensor(const api_tensor_type *type, uint32_t number, int64_t *shape,
                        DLTensor *tensor) {
  static const DLDataType dtypes[] = {[RT_F32] = {kDLFloat, 32, 1},
                                      [RT_BF16] = {kDLBfloat, 16, 1},
                                      [RT_F16] = {kDLFloat, 16, 1},
                                      [RT_F8E4M3] = {kDLUInt, 8, 1}};
  int64_t elements = 1;
  for (uint32_t i = 0; i < type->rank; i++) {
    shape[i] = type->sizes[i] == RT_DYNAMIC ? ROWS : type->sizes[i];
    if (shape[i] > MOST_ELEMENTS || (elements *= shape[i]) > MOST_ELEMENTS) return false;
  }
  *tensor = (DLTensor){.data = guarded(number, (size_t)elements * rt_dtype_size(type->dtype)),
                       .device = {kDLCPU, 0},
                       .ndim = (int32_t)type->rank,
                       .dtype = dtypes[type->dtype],
                       .shape = shape};
  return true;
}

static bool bind_all(fathom_model *model) {
  if (model->info.param_count > PARAMS) return false;
  for (uint32_t i = 0; i < model->info.param_count; i++) {
    const api_tensor_type *type = &model->param_types[i + 1];
    int64_t shape[RT_MAX_RANK];
    DLTensor tensor;
    const fathom_arg arg = {.name = type->name, .tensor = &tensor};
    if (!make_tensor(type, i, shape, &tensor) || fathom_model_bind(model, &arg, 1) != FATHOM_OK)
      return false;
  }
  return true;
}

static bool make_step(fathom_model *model, fathom_sequence *sequence, uint32_t step,
                      char *workspace, size_t bytes) {
  const uint32_t count = step == 0 ? 1 : model->addends[step - 1];
  DLTensor tensors[2 + API_OUTPUT_COUNT];
  int64_t shapes[2 + API_OUTPUT_COUNT][RT_MAX_RANK];
  const DLTensor *given[2] = {&tensors[0], &tensors[1]}, *out[API_OUTPUT_COUNT] = {NULL};
  for (uint32_t i = 0; i < count; i++)
    if (!make_tensor(&model->row, GIVEN + i, shapes[i], &tensors[i])) return false;
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++) {
    if (model->outputs[step][i].rank == api_no_output) continue;
    if (!make_tensor(&model->outputs[step][i], OUT + i, shapes[2 + i], &tensors[2 + i]))
      return false;
    out[i] = &tensors[2 + i];
  }
  const fathom_site_outputs outputs = {sizeof outputs, out[0], out[1], out[2], out[3], out[4]};
  fathom_status status;
  if (step == 0)
    status = fathom_sequence_begin(sequence, given[0], &outputs, workspace, bytes, NULL);
  else if (step == model->info.sublayers)
    status = fathom_sequence_end(sequence, given, count, &outputs);
  else
    status = fathom_sequence_site(sequence, step, given, count, &outputs);
  return status == FATHOM_OK;
}

// Runs a model that was loaded from anything, with all memory of just the size that it asks for. True:
// all of its sites.
static bool try_model(fathom_model *model) {
  fathom_sequence *sequence = NULL;
  size_t bytes = 0;
  bool good = bind_all(model) && fathom_sequence_create(model, &sequence) == FATHOM_OK &&
              fathom_sequence_workspace(sequence, ROWS, NULL, &bytes) == FATHOM_OK &&
              bytes <= MOST_WORKSPACE;
  char *workspace = good ? guarded(WORKSPACE, (bytes + 127) / 128 * 128) : NULL;
  for (uint32_t step = 0; step < model->info.sites && good; step++)
    good = make_step(model, sequence, step, workspace, bytes);
  fathom_sequence_destroy(sequence);
  return good;
}

static void put_u32(char *at, uint32_t value) {
  for (uint32_t i = 0; i < 4; i++)
    at[i] = (char)(unsigned char)(value >> 8 * i);
}

// Another plan of the same length, or less: a random place becomes a random byte, a small number, a large
// one, or what is elsewhere.
static void mutate(char *plan, size_t *length, uint64_t *random) {
  const size_t at = base_random(random) % (*length - 8), from = base_random(random) % (*length - 8);
  switch (base_random(random) % 8) {
  case 0:
    plan[at] ^= (char)(1 << base_random(random) % 8);
    return;
  case 1:
    put_u32(plan + at, UINT32_MAX - (uint32_t)(base_random(random) % 3));
    return;
  case 2:
    memmove(plan + at, plan + from, 4);
    return;
  case 3:
    memmove(plan + at, plan + from, 8);
    return;
  case 4: // swaps two
    for (uint32_t i = 0; i < 4; i++) {
      const char byte = plan[at + i];
      plan[at + i] = plan[from + i];
      plan[from + i] = byte;
    }
    return;
  case 5:
    if (base_random(random) % 4 == 0) *length = at + 8;
    return;
  default:
    put_u32(plan + at, (uint32_t)(base_random(random) % 10));
  }
}

static void survives_any_plan(void **state) {
  enum { TRIALS = 6000 };
  fixture *f = *state;
  rt_bundle bundle;
  const rt_section *own = plan_of(f, &bundle);
  uint64_t random = 17;
  uint32_t refused = 0, ran = 0;
  char *plan = malloc(own->contents.length);
  for (int i = 0; i < TRIALS; i++) {
    fathom_model *model;
    size_t length = own->contents.length;
    memcpy(plan, own->contents.data, length);
    for (int j = 0; j < 1 + i % 2; j++)
      mutate(plan, &length, &random);
    if (load_plan(f, (base_str){plan, length}, &model) != FATHOM_OK)
      refused++;
    else
      ran += try_model(model);
    fathom_model_destroy(model);
  }
  free(plan);
  // Names and what is in bounds may be anything.
  assert_true(refused > TRIALS / 4 && ran > TRIALS / 100);
}

// ---- plans that are wrong on purpose ------------------------------------------------------------

// Where things are in the plan's bytes: walks it as it is written.
typedef struct places {
  size_t params, param[64], row_size; // the count; each type; size of the embedding's second axis
  size_t outputs;                     // the first type
  uint32_t param_count, run_count;
  size_t kernel_count, kernel[64], part[256]; // of runs: the kernel's number; parts of buffers
  uint32_t part_count;
  size_t slices; // the number of parts of a slot that has several
} places;

static uint32_t walk_u32(rt_archive *a) {
  uint32_t value = 0;
  rt_archive_u32(a, &value);
  return value;
}

static void walk_bytes(rt_archive *a, size_t count) {
  for (size_t i = 0; i < count; i += 4)
    walk_u32(a);
}

static void walk_type(rt_archive *a) {
  const char *text;
  const uint32_t rank = walk_u32(a);
  if (rank == api_no_output) return;
  rt_archive_text(a, &text);
  walk_u32(a);
  for (uint32_t i = 0; i < rank; i++) {
    rt_archive_text(a, &text);
    walk_bytes(a, 8);
  }
}

static void walk(rt_archive *a, places *p) {
  const char *name;
  rt_archive_text(a, &name);
  walk_bytes(a, 8 + 8 + 4 + 4 + 4);
  for (uint32_t i = 0; i < 2; i++)
    walk_bytes(a, 4UL * walk_u32(a));
  p->params = a->at;
  p->param_count = walk_u32(a);
  for (uint32_t i = 0; i < p->param_count; i++) {
    p->param[i] = a->at;
    walk_type(a);
    if (i == 0) p->row_size = a->at - 8;
  }
  const uint32_t steps = walk_u32(a);
  p->outputs = a->at;
  for (uint32_t i = 0; i < steps * API_OUTPUT_COUNT; i++)
    walk_type(a);
  p->kernel_count = a->at;
  walk_u32(a);
  walk_bytes(a, 8UL * walk_u32(a));
  p->run_count = walk_u32(a);
  for (uint32_t i = 0; i < p->run_count; i++) {
    walk_u32(a);
    p->kernel[i] = a->at;
    walk_bytes(a, 8);
    for (uint32_t slots = walk_u32(a), j = 0; j < slots; j++) {
      walk_u32(a);
      const size_t number = a->at;
      const uint32_t parts = walk_u32(a);
      if (parts > 1) p->slices = number;
      for (uint32_t k = 0; k < parts; k++) {
        if (p->part_count < 256) p->part[p->part_count] = a->at;
        p->part_count += walk_u32(a) == RT_PLACE_BUFFER;
        walk_bytes(a, 4 + 8);
      }
    }
  }
  assert_null(a->fault);
  assert_int_equal(a->at, a->in.length);
}

typedef struct wrong_plan {
  fixture *f;
  places at;
  base_text text; // under construction
  base_str own;
} wrong_plan;

static void begin_plan(fixture *f, wrong_plan *w) {
  rt_bundle bundle;
  *w = (wrong_plan){.f = f, .own = plan_of(f, &bundle)->contents, .text.arena = &f->arena};
  rt_archive a = {.arena = &f->arena, .in = w->own};
  walk(&a, &w->at);
  assert_true(w->at.param_count <= 64 && w->at.run_count <= 64);
}

static void refuse_plan(wrong_plan *w, const char *says) {
  fathom_model *model;
  assert_int_equal(load_plan(w->f, base_text_str(&w->text), &model), FATHOM_INVALID);
  host_assert_says("is not sound");
  host_assert_says(says);
  assert_null(model);
}

static void copy_plan(wrong_plan *w) {
  w->text.length = 0;
  base_text_append(&w->text, w->own.data, w->own.length);
}

static void append_type(base_text *text, uint32_t rank, const char *axes, const int64_t *sizes) {
  rt_archive a = {.out = text};
  const char *name = "query_0";
  uint32_t dtype = RT_F32;
  rt_archive_u32(&a, &rank);
  rt_archive_text(&a, &name);
  rt_archive_u32(&a, &dtype);
  for (uint32_t i = 0; i < rank; i++) {
    const char axis[] = {axes[i], 0}, *axis_name = axis;
    int64_t size = sizes[i];
    rt_archive_text(&a, &axis_name);
    rt_archive_i64(&a, &size);
  }
}

// The plan with another type in place of the one at `from`.
static void exchange_type(wrong_plan *w, size_t from, uint32_t rank, const char *axes,
                          const int64_t *sizes) {
  rt_archive a = {.arena = &w->f->arena, .in = w->own, .at = from};
  walk_type(&a);
  w->text.length = 0;
  base_text_append(&w->text, w->own.data, from);
  append_type(&w->text, rank, axes, sizes);
  base_text_append(&w->text, w->own.data + a.at, w->own.length - a.at);
}

static void refuses_wrong_plans(void **state) {
  fixture *f = *state;
  wrong_plan w;
  begin_plan(f, &w);
  copy_plan(&w);
  fathom_model *model;
  assert_int_equal(load_plan(f, base_text_str(&w.text), &model), FATHOM_OK);
  assert_true(try_model(model));
  fathom_model_destroy(model);
  // A kernel that no run has, where all kernels are there.
  copy_plan(&w);
  const uint32_t kernels = f->compiled.info.kernel_count;
  put_u32(w.text.data + w.at.kernel_count, kernels - 1);
  refuse_plan(&w, "a run has no kernel");
  // A parameter with tokens: a kernel could read beyond what is bound.
  static const int64_t rows[] = {RT_DYNAMIC, HOST_D};
  exchange_type(&w, w.at.param[1], 2, "TD", rows);
  refuse_plan(&w, "a parameter has no size");
  // A parameter that is none.
  copy_plan(&w);
  rt_archive a = {.arena = &f->arena, .in = w.own, .at = w.at.param[1]};
  walk_type(&a);
  w.text.length = w.at.param[1] + 4;
  put_u32(w.text.data + w.at.param[1], api_no_output);
  base_text_append(&w.text, w.own.data + a.at, w.own.length - a.at);
  refuse_plan(&w, "a parameter has no size");
  // A place that is no multiple of an element.
  assert_true(w.at.part_count > 10 && w.at.part_count <= 256);
  for (uint32_t i = 0; i < w.at.part_count; i++) {
    copy_plan(&w);
    put_u32(w.text.data + w.at.part[i] + 8, 2);
    refuse_plan(&w, "not where it could be");
  }
  // A list of slices with one less, or one more, than its kernel takes.
  enum { PART = 16 };
  const char *number = w.own.data + w.at.slices;
  assert_true(w.at.slices > 0);
  for (int more = 0; more < 2; more++) {
    w.text.length = 0;
    base_text_append(&w.text, w.own.data, w.at.slices + 4);
    put_u32(w.text.data + w.at.slices,
            (uint32_t)(unsigned char)number[0] + (more ? 1 : UINT32_MAX));
    if (more) base_text_append(&w.text, number + 4, PART);
    const size_t rest = w.at.slices + 4 + (more ? 0 : PART);
    base_text_append(&w.text, w.own.data + rest, w.own.length - rest);
    refuse_plan(&w, "another number of slices");
  }
  // Something behind the end; nothing at all.
  copy_plan(&w);
  base_text_append(&w.text, "\0\0\0\0", 4);
  refuse_plan(&w, "something follows its end");
  w.text.length = 0;
  refuse_plan(&w, "");
}

// Every run with every kernel; and a plan with one kernel more than runs use.
static void refuses_kernels_without_runs(void **state) {
  fixture *f = *state;
  wrong_plan w;
  begin_plan(f, &w);
  uint32_t tried = 0;
  for (uint32_t i = 0; i < w.at.run_count; i++)
    for (uint32_t kernel = 0; kernel < f->compiled.info.kernel_count; kernel++) {
      fathom_model *model;
      copy_plan(&w);
      put_u32(w.text.data + w.at.kernel[i], kernel);
      if (load_plan(f, base_text_str(&w.text), &model) == FATHOM_OK) tried += try_model(model);
      fathom_model_destroy(model);
    }
  assert_true(tried >= w.at.run_count); // each run with its own
  // A kernel at the end that is another one's code.
  rt_bundle bundle;
  base_text text = {.arena = &f->arena};
  const rt_section *plan = plan_of(f, &bundle);
  copy_plan(&w);
  put_u32(w.text.data + w.at.kernel_count, f->compiled.info.kernel_count + 1);
  rt_bundle_begin(&text, "a test");
  for (uint32_t i = 1; i < bundle.section_count; i++) {
    const rt_section *section = &bundle.sections[i];
    rt_bundle_add(&text, section->kind, section->name,
                  section == plan ? base_text_str(&w.text) : section->contents);
  }
  for (uint32_t i = 1; i < bundle.section_count; i++)
    if (base_str_equal(bundle.sections[i].name, BASE_STR("kernel 0")))
      rt_bundle_add(&text, bundle.sections[i].kind,
                    base_str_format(&f->arena, "kernel %u", f->compiled.info.kernel_count),
                    bundle.sections[i].contents);
  rt_bundle_end(&text);
  fathom_model *model;
  assert_int_equal(load(f, text.data, text.length, &model), FATHOM_INVALID);
  host_assert_says("no run");
}

// Results that no run writes, of more axes than any model has.
static void bounds_the_axes_of_results(void **state) {
  fixture *f = *state;
  static const char *const axes[] = {"abcdefgh", "ijklmnop", "qrstuvwx", "yzABCDEF"};
  static const int64_t sizes[RT_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
  wrong_plan w;
  begin_plan(f, &w);
  // Of site 0: the input stays, the others become something else, the last one first.
  size_t from[API_OUTPUT_COUNT];
  rt_archive a = {.arena = &f->arena, .in = w.own, .at = w.at.outputs};
  for (uint32_t i = 0; i < API_OUTPUT_COUNT; i++) {
    from[i] = a.at;
    walk_type(&a);
  }
  for (uint32_t i = API_OUTPUT_COUNT; i-- > 1;) {
    exchange_type(&w, from[i], RT_MAX_RANK, axes[i - 1], sizes);
    w.own = base_str_copy(&f->arena, base_text_str(&w.text));
  }
  fathom_model *model;
  assert_int_equal(load_plan(f, w.own, &model), FATHOM_INVALID);
  // Only the scale, which no run of this model writes.
  begin_plan(f, &w);
  exchange_type(&w, from[4], RT_MAX_RANK, axes[0], sizes);
  assert_int_equal(load_plan(f, base_text_str(&w.text), &model), FATHOM_OK);
  assert_true(try_model(model));
  fathom_model_destroy(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gives_the_same_bits),
      cmocka_unit_test(saves_the_same_bytes),
      cmocka_unit_test(tells_wrong_uses),
      cmocka_unit_test(tells_a_graph_from_a_model),
      cmocka_unit_test(any_allocation_may_fail),
      cmocka_unit_test(refuses_every_truncation),
      cmocka_unit_test(refuses_every_flipped_bit),
      cmocka_unit_test(refuses_wrong_plans),
      cmocka_unit_test(refuses_kernels_without_runs),
      cmocka_unit_test(bounds_the_axes_of_results),
      cmocka_unit_test(survives_any_plan),
  };
  return cmocka_run_group_tests(tests, set_up_group, tear_down_group);
}
