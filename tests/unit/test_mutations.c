// Seeded faults: generated text is broken in one place at a time, and within ten seeds the emulator
// must report a fault, or results that differ from those of the text as it was. So what it does not
// report is not there: a barrier that a kernel lacks, a wait, a check, an index that is off by one.
//
// Rows of the table quote generated text and prelude. When those change, the row that no longer
// matches fails and says so. FATHOM_TEST_SHOW=1 shows how each fault is reported.
#include "api/api.h"
#include "codegen/cuda/cuda.h"
#include "codegen/emulator/emulator.h"
#include "passes/passes.h"

#include "support/graph_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
  SEEDS = 10,
  ROWS = 8, // for three blocks, which so have two or three each
};

static rt_device *device;

// ---- programs -----------------------------------------------------------------------------------

// A graph, lowered under a schedule.
typedef struct subject {
  const char *variant; // of tests/variants
  const char *sizes, *schedule;
} subject;

static const subject site = {"site", "D=960 B=3 N=4", "residency=1,load=0"};
static const subject tiles = {"site", "D=960 B=7 N=8",
                              "residency=1,load=0,team=64,working=200,source_tile=2"};
static const subject staged = {"site", "D=960 B=3 N=4", "residency=2,load=1,stages=2"};
static const subject bulk = {"site", "D=960 B=3 N=4", "residency=2,load=2,stages=2"};
static const subject bulk_mix = {"norm_gain", "D=960 N=4", "residency=2,load=2,stages=2"};
static const subject cluster = {"site", "D=960 B=3 N=4", "residency=1,load=0,split=2"};
static const subject stepped = {"site", "D=960 B=3 N=4", "residency=1,load=0,split=2,cluster=0"};
static const subject teams = {"site", "D=960 B=3 N=4", "residency=1,load=0,team=64,teams=2"};
static const subject logits = {"phase1", "D=960 N=4 S=6", "logits=1"};

typedef struct program {
  const ir_graph *graph;
  cg_artefact *artefact;
  int64_t *sizes;
  uint32_t count; // parameters, then results
  rt_tensor *tensors;
  size_t *bytes;   // of each tensor's memory
  char **expected; // of each result: those bytes as they should be
  void *workspace;
} program;

static ir_graph *read_variant(const subject *s) {
  const char *folder = getenv("FATHOM_SOURCE_DIR");
  base_str text, why;
  base_str path =
      base_str_format(&arena, "%s/tests/variants/%s.fir", folder ? folder : ".", s->variant);
  if (base_file_read(&arena, path.data, &text, &why)) fail_msg("%.*s", BASE_FMT(why));
  ir_graph *graph = parse_text(base_str_copy(&arena, text).data);
  for (char *copy = (char *)base_str_format(&arena, "%s", s->sizes).data, *word = strtok(copy, " ");
       word; word = strtok(NULL, " ")) {
    char *equals = strchr(word, '=');
    base_str axis = {word, (size_t)(equals - word)};
    assert_clean(ir_bind_axis(graph, axis, atoll(equals + 1), &diag));
  }
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  return graph;
}

static double next_input(void *state) { // -1 .. 1
  uint64_t *x = state;
  *x ^= *x << 13;
  *x ^= *x >> 7;
  *x ^= *x << 17;
  return (double)(int32_t)(*x >> 32) * 0x1p-31;
}

static void place_tensors(program *p) {
  uint64_t state = UINT64_C(0x2545f4914f6cdd1d);
  p->sizes = api_axis_sizes(&arena, p->graph, ROWS);
  p->count = p->graph->param_count + p->graph->results.count;
  p->tensors = base_new_array(&arena, rt_tensor, p->count);
  p->bytes = base_new_array(&arena, size_t, p->count);
  p->expected = base_new_array(&arena, char *, p->count);
  for (uint32_t i = 0; i < p->count; i++) {
    ir_value value = i < p->graph->param_count ? (ir_value){i}
                                               : p->graph->results.data[i - p->graph->param_count];
    rt_tensor *tensor = &p->tensors[i];
    size_t elements;
    assert_true(api_tensor_layout(ir_node_of(p->graph, value), p->sizes, 0, tensor, &elements));
    p->bytes[i] = elements * rt_dtype_size(tensor->dtype);
    tensor->data = api_alloc_aligned(&arena, p->bytes[i]);
    if (i < p->graph->param_count) api_tensor_fill(tensor, next_input, &state);
  }
}

static program make_program(const subject *s) {
  program p = {.graph = read_variant(s)};
  ir_graph *fused = pass_run(p.graph, pass_cuda_pipeline, &(pass_options){0}, &diag);
  assert_clean(fused && ir_verify(fused, IR_STAGE_FUSED, &diag));
  cg_options options = {
      .arch = "sm_90", .emulate = true, .schedule = s->schedule, .cache_directory = ""};
  p.artefact = cg_cuda_target()->compile(&arena, fused, &options, &diag);
  assert_clean(p.artefact != NULL);
  place_tensors(&p);
  return p;
}

// ---- runs ---------------------------------------------------------------------------------------

static base_status launch(program *p, const rt_loaded *loaded, uint32_t seed) {
  int64_t *sizes = base_new_array(&arena, int64_t, p->artefact->program->axis_count);
  size_t bytes;
  for (uint32_t i = p->graph->param_count; i < p->count; i++)
    memset(p->tensors[i].data, 0xff, p->bytes[i]); // what nobody writes is NaN
  assert_clean(rt_bind(p->artefact->program, p->tensors, sizes, &diag) == BASE_OK);
  assert_clean(rt_device_workspace(loaded, p->tensors, sizes, &bytes, &diag) == BASE_OK);
  if (!p->workspace) p->workspace = api_alloc_aligned(&arena, bytes);
  memset(p->workspace, 0xff, bytes);
  emu_device_set_seed(device, seed);
  return rt_device_run(loaded, p->tensors, sizes, NULL, p->workspace, NULL, &diag);
}

static bool as_expected(const program *p) {
  for (uint32_t i = p->graph->param_count; i < p->count; i++)
    if (memcmp(p->tensors[i].data, p->expected[i], p->bytes[i]) != 0) return false;
  return true;
}

// What is wrong with this code under the seeds; NULL: nothing. Additions have a fixed order, so
// right results are right to the bit.
static const char *find_fault(program *p, const rt_loaded *loaded) {
  for (uint32_t seed = 0; seed < SEEDS; seed++) {
    if (launch(p, loaded, seed) != BASE_OK)
      return base_str_format(&arena, "seed %u: %.*s", seed, BASE_FMT(base_diag_render(&diag))).data;
    if (!as_expected(p)) return base_str_format(&arena, "seed %u: other results", seed).data;
  }
  return NULL;
}

static void compare_with_reference(program *p) {
  double **values = base_new_array(&arena, double *, p->count);
  for (uint32_t i = 0; i < p->count; i++) {
    values[i] = base_new_array(&arena, double, api_tensor_count(&p->tensors[i]));
    if (i < p->graph->param_count) api_tensor_read(&p->tensors[i], values[i]);
  }
  assert_clean(ir_interpret(p->graph, p->sizes, (const double *const *)values,
                            values + p->graph->param_count, NULL, &diag) == BASE_OK);
  for (uint32_t i = p->graph->param_count; i < p->count; i++) {
    size_t count = api_tensor_count(&p->tensors[i]);
    double *found = base_new_array(&arena, double, count), difference = 0, norm = 0;
    api_tensor_read(&p->tensors[i], found);
    for (size_t j = 0; j < count; j++) {
      difference += (found[j] - values[i][j]) * (found[j] - values[i][j]);
      norm += values[i][j] * values[i][j];
    }
    assert_true(difference <= 4e-3 * 4e-3 * norm);
  }
}

// The text as it is: right, and right to the same bits under every seed.
static void run_whole(program *p) {
  rt_loaded *loaded;
  assert_clean(rt_device_load(device, p->artefact->device, &loaded, &diag) == BASE_OK);
  assert_clean(launch(p, loaded, 0) == BASE_OK);
  compare_with_reference(p);
  for (uint32_t i = p->graph->param_count; i < p->count; i++) {
    p->expected[i] = base_alloc(&arena, p->bytes[i]);
    memcpy(p->expected[i], p->tensors[i].data, p->bytes[i]);
  }
  const char *fault = find_fault(p, loaded);
  rt_device_unload(loaded);
  if (fault) fail_msg("the text as it is: %s", fault);
}

// ---- mutations ----------------------------------------------------------------------------------

typedef struct mutation {
  const subject *subject;
  const char *what;
  const char *before, *after; // a piece of the text, and what takes its place wherever it stands
} mutation;

static const mutation mutations[] = {
    // barriers
    {&site, "no barrier before the warps' sums are read",
     "    fm_barrier(barrier, 32 * WARPS);\n#pragma", "#pragma"},
    {&site, "all sums through one area", ", exchange + 32,", ", exchange,"},
    {&site, "a barrier for one warp", "    fm_barrier(barrier, 32 * WARPS);\n#pragma",
     "    fm_barrier(barrier, 32);\n#pragma"},
    {&site, "no warp barrier after the logits", "z_kept[n] = z;\n    }\n    fm_warp_barrier();\n",
     "z_kept[n] = z;\n    }\n"},
    {&teams, "two teams at one barrier", ", team);", ", 0);"},
    {&tiles, "no barrier before the exponentials of a tile are read",
     "[(n + lane)] = v25_36;\n      }\n      fm_warp_barrier();\n",
     "[(n + lane)] = v25_36;\n      }\n"},
    {&cluster, "no cluster barrier before the blocks' sums are read",
     "  fm_cluster_barrier();\n#pragma unroll\n  for (int g = 0; g < t.GROUPS; g++) {\n    const",
     "#pragma unroll\n  for (int g = 0; g < t.GROUPS; g++) {\n    const"},
    {&cluster, "all blocks' sums through one area", ", exchange + 32,", ", exchange,"},
    {&cluster, "no cluster barrier at the end", "  fm_cluster_barrier();\n}\nFM_ENTRY",
     "}\nFM_ENTRY"},
    // shuffles
    {&site, "a wrong mask", "fm_shuffle_xor(x[0], STEP)", "fm_shuffle_xor(x[0], STEP % 16 + 1)"},
    {&site, "a mask of 32", "fm_shuffle_xor(x[0], STEP)", "fm_shuffle_xor(x[0], 2 * STEP)"},
    {&site, "sums of the wrong half", "odd ? first : second, STEP", "odd ? second : first, STEP"},
    {&site, "a shuffle that a lane leaves out", "#pragma unroll\n      for (int step = t.PERIOD",
     "if (fm_thread() % 32 != 7)\n      for (int step = t.PERIOD"},
    {&site, "lanes that add up the same warps", "exchange + copy * K", "exchange + copy / 2 * K"},
    {&site, "a warp too many", "= copy < WARPS", "= copy <= WARPS"},
    {&site, "the wrong lanes' sums", "step = t.PERIOD", "step = 2 * t.PERIOD"},
    // indices and boundaries
    {&site, "a load one element on", "prefix_row + d * 2", "prefix_row + d * 2 + 2"},
    {&site, "a load one row on", "row * a.delta_T", "(row + 1) * a.delta_T"},
    {&site, "a source too few", "b < 3", "b < 2"},
    {&site, "a sum at the wrong place", "v16_kept[i] = ", "v16_kept[i + 1] = "},
    {&site, "a store one access on", "y_row + d * 2", "y_row + d * 2 + 16"},
    {&site, "a row too many", "row < rows", "row <= rows"},
    {&site, "no check of the row's end", "if (d < 960)", ""},
    {&tiles, "a tile too many", "n < 6", "n < 7"},
    {&tiles, "what was summed before is not scaled", "* v18_kept_factor[0]", ""},
    {&stepped, "sums of other blocks", "partials - fm_block() % 2", "partials + fm_block() % 2"},
    {&stepped, "the sums of one block of two", "fm_op_sum, 2>", "fm_op_sum, 1>"},
    // asynchronous copies
    {&staged, "no wait for copies", "    fm_copy_wait<1>();\n", ""},
    {&staged, "a wait that lets one group more be late", "fm_copy_wait<1>", "fm_copy_wait<2>"},
    {&staged, "a wait in the last row only", "    fm_copy_wait<1>();\n",
     "    if (row + step >= rows) fm_copy_wait<0>();\n"},
    {&staged, "no commit", "    fm_copy_commit();\n", ""},
    {&staged, "a copy one access on", "bank_row + d * 2", "bank_row + d * 2 + 16"},
    {&staged, "a stage too few", "i < 2; i++) copy_row", "i < 1; i++) copy_row"},
    {&staged, "the other stage", "slot * 10240;\n    fm_copy_wait",
     "(slot ^ 1) * 10240;\n    fm_copy_wait"},
    {&bulk, "no wait for the ring", "    fm_ring_wait(ring + slot, round & 1);\n", ""},
    {&bulk, "the other parity", "round & 1", "~round & 1"},
    {&bulk, "fewer bytes expected than come", "fm_ring_expect(full, ",
     "fm_ring_expect(full, -16 + "},
    {&bulk, "more bytes expected than come", "fm_ring_expect(full, ", "fm_ring_expect(full, 16 + "},
    {&bulk, "no fence", "    fm_ring_fence();\n", ""},
    {&bulk, "one arrival of two", "fm_ring_init(ring + i, 1)", "fm_ring_init(ring + i, 2)"},
    {&bulk, "a stage too few", "i < 2; i++) copy_row", "i < 1; i++) copy_row"},
    {&bulk_mix, "a stage that is copied to while others read it",
     "    fm_barrier(0, 128);\n    copy_row(row", "    copy_row(row"},
    {&logits, "no wait for copies", "      fm_copy_wait<STAGES - 2>();\n", ""},
    {&logits, "a wait that lets one step more be late", "fm_copy_wait<STAGES - 2>",
     "fm_copy_wait<STAGES - 1>"},
    {&logits, "no barrier between steps", "      fm_barrier(0, THREADS); // this", "      // this"},
};

// Empty when the text has no such piece.
static base_str replace(base_str text, const mutation *m) {
  base_text out = {.arena = &arena};
  const char *at = text.data, *end = text.data + text.length;
  size_t length = strlen(m->before);
  for (const char *next; (next = memmem(at, (size_t)(end - at), m->before, length));
       at = next + length)
    base_text_printf(&out, "%.*s%s", (int)(next - at), at, m->after);
  if (at == text.data) return (base_str){0};
  base_text_append(&out, at, (size_t)(end - at));
  return base_text_str(&out);
}

// Only the form for wide accesses, mutated.
static rt_device_program mutate(const program *p, const mutation *m) {
  uint32_t count = p->artefact->program->kernel_count;
  rt_device_kernel *kernels = base_new_array(&arena, rt_device_kernel, count);
  bool done = false;
  for (uint32_t i = 0; i < count; i++) {
    kernels[i] = p->artefact->device->kernels[i];
    kernels[i].form_count = 1;
    base_str text = replace(kernels[i].image[0].text, m);
    if (text.length) kernels[i].image[0].text = text;
    done |= text.length > 0;
  }
  if (!done)
    fail_msg("%s, schedule '%s': the text no longer has\n%s\n"
             "Change this row of the table to what has taken its place.",
             m->what, m->subject->schedule, m->before);
  return (rt_device_program){p->artefact->program, kernels};
}

static bool is_noticed(program *p, const mutation *m) {
  rt_device_program mutated = mutate(p, m);
  rt_loaded *loaded;
  assert_clean(rt_device_load(device, &mutated, &loaded, &diag) == BASE_OK);
  const char *fault = find_fault(p, loaded);
  rt_device_unload(loaded);
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  if (getenv("FATHOM_TEST_SHOW")) print_message("%s: %s\n", m->what, fault);
  return fault != NULL;
}

static void test_mutations(void **state) {
  (void)state;
  program p = {0};
  uint32_t missed = 0;
  for (size_t i = 0; i < COUNT(mutations); i++) {
    const mutation *m = &mutations[i];
    if (i == 0 || m->subject != m[-1].subject) {
      if (p.artefact) p.artefact->release(p.artefact);
      p = make_program(m->subject);
      run_whole(&p);
    }
    if (is_noticed(&p, m)) continue;
    print_error("%s, schedule '%s': not noticed\n", m->what, m->subject->schedule);
    missed++;
  }
  p.artefact->release(p.artefact);
  assert_int_equal(missed, 0);
}

// ---- the device ---------------------------------------------------------------------------------

static int open_device(void **state) {
  (void)state;
  base_diag unused;
  base_arena_init(&arena, NULL);
  base_diag_init(&unused, &arena, (base_str){0}, (base_str){0});
  emu_options options = {
      .facts = {.major = 9, .multiprocessors = 3, .blocks_per_multiprocessor = 1}};
  return emu_device_create(&options, &device, &unused) == BASE_OK ? 0 : -1;
}

static int close_device(void **state) {
  (void)state;
  device->ops->destroy(device);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_mutations, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, open_device, close_device);
}
