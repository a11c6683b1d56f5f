// CUDA text and the lowering behind it, as data: teams, accesses, where rows wait, which sources come
// tile by tile, stages, refusals; and what the text of any kernel must and must not contain. What
// kernels compute is tested with the emulator, variant by variant, in tests/matrix.
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/text.h"
#include "passes/passes.h"

#include "support/graph_fixture.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

// ---- graphs -------------------------------------------------------------------------------------

// A site of nine sources, %s standing for the type of its rows.
static const char site[] = "graph @site(%%bank: %s[B=8, T, D], %%p: %s[T, D], %%w: f32[D]) {"
                           "  %%v = concat %%bank, %%p over B to N : %s[N, T, D]"
                           "  %%k = rms_norm %%v over D : f32[N, T, D]"
                           "  %%z = dot %%k, %%w over D : f32[N, T]"
                           "  %%a = softmax %%z over N : f32[N, T]"
                           "  %%h = weighted_sum %%a, %%v over N : %s[T, D]"
                           "  return %%h }";

static void bind(ir_graph *graph, const char *axis_name, int64_t size) {
  ir_axis axis;
  base_str name = base_str_from(axis_name);
  if (ir_axis_find(graph, name, &axis) && ir_axis_size(graph, axis) == IR_DYNAMIC)
    assert_clean(ir_bind_axis(graph, name, size, &diag));
}

// Without the pass of that name; NULL: with all.
static const ir_graph *fused(ir_graph *graph, const char *without) {
  char pipeline[256];
  snprintf(pipeline, sizeof pipeline, "%s", pass_cuda_pipeline);
  if (without) {
    char *at = strstr(pipeline, without);
    assert_non_null(at);
    memmove(at, at + strlen(without) + 1, strlen(at + strlen(without)));
  }
  assert_clean(ir_verify(graph, IR_STAGE_BOUND, &diag));
  const ir_graph *result = pass_run(graph, pipeline, &(pass_options){.verify_each = true}, &diag);
  assert_clean(result != NULL);
  return result;
}

static const ir_graph *site_of(const char *dtype, int64_t d) {
  ir_graph *graph = parse_text(base_str_format(&arena, site, dtype, dtype, dtype, dtype).data);
  bind(graph, "D", d);
  return fused(graph, NULL);
}

static const kir_kernel *lowered(const ir_graph *graph, const char *schedule_text) {
  kir_schedule schedule = kir_schedule_default(KIR_CUDA);
  assert_clean(kir_schedule_parse(schedule_text, &schedule, &diag));
  const kir_kernel *kernel = pass_lower(graph, 0, &schedule, &diag);
  assert_clean(kernel != NULL);
  return kernel;
}

static const cuda_plan *planned(const ir_graph *graph, const char *schedule) {
  const cg_options options = {.arch = "sm_90a", .schedule = schedule};
  const cuda_plan *plan = cuda_plan_create(&arena, graph, &options, &diag);
  assert_clean(plan != NULL);
  return plan;
}

static const kir_arg *argument(const kir_kernel *kernel, const char *name) {
  for (uint32_t i = 0; i < kernel->args.count; i++) {
    const kir_arg *arg = &kernel->args.data[i];
    if (base_str_equal(ir_node_of(kernel->graph, arg->value)->name, base_str_from(name)))
      return arg;
  }
  fail_msg("no argument %%%s", name);
  return NULL;
}

// ---- teams --------------------------------------------------------------------------------------

typedef struct team_case {
  const char *dtype;
  int64_t d;
  const char *schedule;
  uint32_t vector, threads;
  int64_t turns;
} team_case;

static const team_case team_cases[] = {
    {"bf16", 896, "", 8, 128, 1},
    {"bf16", 960, "", 8, 128, 1},
    {"bf16", 1168, "", 8, 160, 1},
    {"bf16", 2304, "", 8, 288, 1},
    {"bf16", 7168, "", 8, 448, 2},
    {"bf16", 8192, "", 8, 512, 2},
    {"f16", 2304, "", 8, 288, 1},
    {"f32", 896, "", 4, 224, 1},
    {"f32", 7168, "", 4, 448, 4},
    {"f32", 32, "", 4, 32, 1},
    // What an access does not divide: narrower ones, down to single elements.
    {"bf16", 7186, "", 2, 416, 9},
    {"f32", 7186, "", 2, 416, 9},
    {"bf16", 1260, "", 4, 320, 1},
    {"bf16", 123, "", 1, 128, 1},
    {"f32", 123, "", 1, 128, 1},
    {"bf16", 1, "", 1, 32, 1},
    // The knobs.
    {"bf16", 7168, "access=8", 4, 448, 4},
    {"bf16", 7168, "access=2", 1, 512, 14},
    {"f32", 7168, "access=2", 1, 512, 14},
    {"bf16", 7168, "team=224", 8, 224, 4},
    {"bf16", 7168, "team=96", 8, 96, 10},
    {"bf16", 7168, "teams=2", 8, 448, 2},
    {"bf16", 7168, "teams=4", 8, 224, 4},
    {"bf16", 896, "teams=32", 8, 32, 4},
    {"bf16", 7168, "split=2", 8, 448, 1},
    {"bf16", 7168, "split=7", 8, 128, 1},
    {"bf16", 7168, "split=4,cluster=0", 8, 224, 1},
};

// Whole warps, as many threads as leave the fewest idle, never a power of two for its own sake.
static void test_teams(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(team_cases); i++) {
    const team_case *c = &team_cases[i];
    const kir_kernel *kernel = lowered(site_of(c->dtype, c->d), c->schedule);
    const kir_team *team = &kernel->team;
    const kir_sweep *sweep = &kernel->sweeps.data[0];
    int64_t turns =
        kir_turns(kernel, sweep->loops[sweep->lane], team->threads * team->split, sweep->single);
    if (team->vector != c->vector || team->threads != c->threads || turns != c->turns)
      fail_msg("%s %lld %s: %lld turns of %u threads, %u elements each", c->dtype, (long long)c->d,
               c->schedule, (long long)turns, team->threads, team->vector);
    assert_int_equal(team->threads % 32, 0);
    assert_true((int64_t)team->threads * team->split * team->vector * turns >= c->d);
  }
}

// The launcher's view: what an access needs, and a second form that needs nothing.
static void test_forms(void **state) {
  (void)state;
  const struct {
    const char *dtype, *schedule;
    int64_t d;
    uint32_t forms, alignment, vector;
  } cases[] = {{"bf16", "", 7168, 2, 16, 8},         {"f32", "", 7168, 2, 16, 4},
               {"bf16", "access=8", 7168, 2, 16, 4}, {"bf16", "", 7186, 2, 16, 2},
               {"bf16", "load=2", 896, 2, 16, 0},    {"bf16", "", 123, 1, 0, 1},
               {"bf16", "access=2", 7168, 1, 0, 1}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    const cuda_plan *plan = planned(site_of(cases[i].dtype, cases[i].d), cases[i].schedule);
    const cuda_kernel *kernel = &plan->kernels[0];
    assert_int_equal(kernel->form_count, cases[i].forms);
    const rt_form first = cuda_form_create(&arena, kernel, 0);
    const rt_form last = cuda_form_create(&arena, kernel, kernel->form_count - 1);
    assert_int_equal(first.alignment, cases[i].alignment);
    assert_int_equal(first.vector, cases[i].vector);
    assert_int_equal(last.alignment, 0);
    assert_string_equal(first.function, "site");
    assert_string_equal(last.function, cases[i].forms > 1 ? "site_any" : "site");
    assert_int_equal(first.threads, kernel->forms[0]->team.threads);
    assert_int_equal(first.shared_bytes, text_shared_bytes(kernel->forms[0]));
  }
}

// ---- where rows wait ----------------------------------------------------------------------------

// All nine rows in registers, packed, read once.
static void test_residency(void **state) {
  (void)state;
  const struct {
    const char *schedule;
    kir_residency residency;
    bool staged, chain;
    double reads;
  } cases[] = {{"", KIR_REGISTERS, false, false, 1},
               {"residency=0,online=0", KIR_MEMORY, false, false, 2},
               {"load=1", KIR_REGISTERS, true, false, 1},
               {"load=1,residency=2", KIR_TEAM, true, false, 1},
               {"load=2,residency=2", KIR_TEAM, true, false, 1},
               {"working=100", KIR_REGISTERS, false, true, 1},
               {"working=100,online=0", KIR_MEMORY, false, false, 2},
               {"access=2", KIR_MEMORY, false, false, 2},
               {"split=4,cluster=0", KIR_MEMORY, false, false, 2},
               {"split=4", KIR_REGISTERS, false, false, 1}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    char schedule[96];
    snprintf(schedule, sizeof schedule, "source_tile=16%s%s", *cases[i].schedule ? "," : "",
             cases[i].schedule);
    const kir_kernel *kernel = lowered(site_of("bf16", 7168), schedule);
    const kir_arg *bank = argument(kernel, "bank");
    if (bank->residency != cases[i].residency || bank->staged != cases[i].staged ||
        kernel->chain.used != cases[i].chain || bank->reads != cases[i].reads)
      fail_msg("%s: residency %d, staged %d, chain %d, %g reads", schedule, bank->residency,
               bank->staged, kernel->chain.used, bank->reads);
  }
}

static const struct {
  const char *name, *sizes;
  bool before, after; // without and with the pass defer-normaliser
} onlines[] = {
    {"site", "B=69", false, true},
    {"batch", "N=70", false, true},
    {"two_sites", "N=70", false, true},
    {"layout_block_major", "B=69", false, true},
    {"layout_token_major", "B=69", false, true},
    {"layout_hidden_outer", "B=69", false, true},
    {"query_per_token", "N=70", false, true},
    {"norm_none", "N=70", false, true},
    {"norm_gain", "N=70", false, true},
    {"norm_query_key", "N=70", false, true},
    {"norm_query_key_learned", "N=70", false, true},
    {"gate_token", "N=70", false, true},
    {"gate_channel", "N=70", false, true},
    {"gate_dot", "B=69", false, true},
    {"bias_recency_param", "N=70", false, true},
    {"null_zeros", "B=69", false, true},
    {"null_learned", "B=69", false, true},
    {"scale_root", "N=70", false, true},
    {"delta_form", "N=70", false, true},
    {"rounded_mix", "N=70", false, true},
    {"phase1", "N=70 S=3", false, true},
    {"phase1_gains", "N=70 S=3", false, true},
    {"phase1_prefix", "B=69 S=3", false, true},
    {"phase1_sigmoid", "N=70 S=3", true, true}, // nothing to divide by
    // The weights are results, so the sum must be known before them.
    {"norm_plain", "N=70", false, false},
    {"bias_token", "N=70", false, false},
    {"phase1_stats", "N=70 S=3", false, false},
    {"weights_sigmoid", "N=70", false, false},
    {"low_rank_key", "N=70", false, false},
    // Logits of each head, and a mix of all that comes as parts of rows.
    {"heads", "N=70 H=4", false, false},
    {"heads_shared_norm", "N=70 H=4", false, false},
    {"phase1_heads", "N=70 S=3 H=4", false, false},
    // Read once as they are.
    {"weights_uniform", "N=70", false, false},
    {"weights_static_param", "N=70", false, false},
    {"weights_token", "N=70", false, false},
};

static const ir_graph *variant(const char *name, const char *sizes, const char *without) {
  base_str path = base_str_format(&arena, "%s/tests/variants/%s.fir", getenv("FATHOM_SOURCE_DIR"),
                                  name),
           text, why;
  if (base_file_read(&arena, path.data, &text, &why)) fail_msg("%.*s", BASE_FMT(why));
  ir_graph *graph = parse_text(base_str_copy(&arena, text).data);
  for (char *copy = (char *)base_str_format(&arena, "%s D=1024", sizes).data, // or as they say
           *word = strtok(copy, " ");
       word; word = strtok(NULL, " ")) {
    *strchr(word, '=') = '\0';
    bind(graph, word, atoll(word + strlen(word) + 1));
  }
  return fused(graph, without);
}

// Seventy sources fit nowhere: they come tile by tile where the structure allows that.
static void test_online(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(onlines); i++)
    for (int after = 0; after < 2; after++) {
      const ir_graph *graph =
          variant(onlines[i].name, onlines[i].sizes, after ? NULL : "defer-normaliser");
      const kir_kernel *kernel = lowered(graph, "source_tile=16");
      if (kernel->chain.used != (after ? onlines[i].after : onlines[i].before))
        fail_msg("%s %s defer-normaliser: %s", onlines[i].name, after ? "with" : "without",
                 kernel->chain.used ? "tile by tile" : "not tile by tile");
      if (!kernel->chain.used) continue;
      assert_true(kernel->chain.tile > 1 && kernel->chain.tile <= 16);
      for (uint32_t j = 0; j < kernel->args.count; j++)
        if (kernel->args.data[j].tiled) assert_true(kernel->args.data[j].reads == 1);
    }
}

// What follows from all sources and goes back to each of them needs a second reading.
static void test_not_online(void **state) {
  (void)state;
  static const char *const bodies[] = {
      // the mix scores the sources again
      "%a = softmax %z over N : f32[N, T]  %h = weighted_sum %a, %v over N : f32[T, D]"
      "%b = dot %v, %h over D : f32[N, T]  %y = weighted_sum %b, %v over N : f32[T, D]",
      "%a = softmax %z over N : f32[N, T]  %h = weighted_sum %a, %v over N : f32[T, D]"
      "%y = dot %v, %h over D : f32[N, T]",
      // the weights are squared, so they are not proportional to exp(-maximum)
      "%a = softmax %z over N : f32[N, T]  %b = mul %a, %a : f32[N, T]"
      "%y = weighted_sum %b, %v over N : f32[T, D]",
      // what is subtracted can be -inf as long as no source counts
      "%m = reduce_max %z over N : f32[T]  %d = sub %z, %m : f32[N, T]  %a = exp %d : f32[N, T]"
      "%y = weighted_sum %a, %v over N : f32[T, D]",
      // the weights are rounded, after they were divided
      "%a = softmax %z over N : bf16[N, T]  %y = weighted_sum %a, %v over N : f32[T, D]",
  };
  for (size_t i = 0; i < COUNT(bodies); i++) {
    base_str text = base_str_format(&arena,
                                    "graph @g(%%v: bf16[N=70, T, D=1024], %%q: f32[D]) {"
                                    "%%z = dot %%v, %%q over D : f32[N, T] %s return %%y }",
                                    bodies[i]);
    const kir_kernel *kernel = lowered(fused(parse_text(text.data), NULL), "source_tile=16");
    if (kernel->chain.used) fail_msg("tile by tile: %s", bodies[i]);
    assert_true(argument(kernel, "v")->reads > 1);
  }
}

// ---- stages -------------------------------------------------------------------------------------

static void test_stages(void **state) {
  (void)state;
  const size_t row = 896 * 2; // of each of nine sources, a multiple of 128 bytes
  for (int load = 0; load <= 2; load++)
    for (int stages = 1; stages <= 4; stages++)
      for (int teams = 1; teams <= 2; teams++) {
        char schedule[96];
        snprintf(schedule, sizeof schedule, "source_tile=16,load=%d,stages=%d,teams=%d", load,
                 stages, teams);
        const kir_kernel *kernel = lowered(site_of("bf16", 896), schedule);
        const kir_team *team = &kernel->team;
        // A team's turn may be longer than the row; bulk copies are counted by a barrier each.
        size_t turn = (size_t)team->threads * team->vector * 2, all = 9 * turn;
        assert_true(turn >= row);
        assert_int_equal(team->stage_bytes, load ? all : 0);
        size_t scalars =
            (team->scalar_bytes * (team->warp_scalars ? team->threads / 32 : 1) * (size_t)teams +
             127) /
            128 * 128;
        size_t ring = load == 2 ? 128 : 0, staged = load ? all * (size_t)stages + ring : 0;
        assert_int_equal(text_shared_bytes(kernel),
                         scalars +
                             (2 * team->exchange_bytes + team->row_bytes + staged) * (size_t)teams);
      }
}

// ---- refusals -----------------------------------------------------------------------------------

static void test_refusals(void **state) {
  (void)state;
  const struct {
    const char *arch, *schedule, *said;
  } cases[] = {
      {"sm_90a", "split=2,teams=2", "several teams"},
      {"sm_90a", "split=9", "a cluster has at most 8 blocks"},
      {"sm_90a", "split=2,load=2", "a bulk copy brings a whole row"},
      {"sm_80", "split=2", "sm_80 cannot do split with cluster=1"},
      {"sm_80", "load=2", "sm_80 cannot do load=2"},
      {"sm_75", "load=1", "sm_75 cannot do load=1"},
      {"sm_90a", "load=1,stages=8", "bytes of shared memory for a block"},
      {"sm_90a", "residency=2,load=0", "residency=2 needs rows that come to shared memory"},
      {"sm_90a", "team=48", "team is a multiple of 32"},
      {"sm_90a", "team=512,teams=4", "team times teams at most 1024"},
      {"sm_90a", "access=12", "access is 2, 4, 8 or 16 bytes"},
      {"sm_10", "", "unknown GPU architecture 'sm_10'"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    const ir_graph *graph = site_of("bf16", 7168);
    const cg_options options = {.arch = cases[i].arch, .schedule = cases[i].schedule};
    base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
    if (cuda_plan_create(&arena, graph, &options, &diag))
      fail_msg("%s on %s was accepted", cases[i].schedule, cases[i].arch);
    const char *report = base_diag_render(&diag).data;
    if (!strstr(report, cases[i].said)) fail_msg("expected '%s' in\n%s", cases[i].said, report);
  }
  const cg_options stepped = {.arch = "sm_80", .schedule = "split=16,cluster=0"};
  assert_clean(cuda_plan_create(&arena, site_of("bf16", 7168), &stepped, &diag) != NULL);
}

// A block of sm_75 has less shared memory than lowering counts on: there a row value goes to the
// workspace.
static void test_smallest_blocks(void **state) {
  (void)state;
  static const struct {
    const char *name, *sizes, *schedule;
  } cases[] = {
      {"rounded_mix", "N=9 D=8192", ""},
      {"separate_params", "D=16384", ""},
      {"rounded_mix", "N=9 D=4999", "teams=3,team=32"},
  };
  static const char *const archs[] = {"sm_75", "sm_86", "sm_90a"};
  for (size_t i = 0; i < COUNT(cases) * COUNT(archs); i++) {
    const cg_options options = {.arch = archs[i % COUNT(archs)],
                                .schedule = cases[i / COUNT(archs)].schedule};
    const ir_graph *graph =
        variant(cases[i / COUNT(archs)].name, cases[i / COUNT(archs)].sizes, NULL);
    assert_clean(cuda_plan_create(&arena, graph, &options, &diag) != NULL);
  }
}

// A row value that is read at other elements than it was made at has no owner among blocks.
static void test_split_of_moved_rows(void **state) {
  (void)state;
  ir_graph *graph = parse_text("graph @moved(%x: f32[T, D=1024], %g: f32[D]) {"
                               "  %a = sigmoid %x                      : f32[T, D]"
                               "  %s = dot %a, %g over D               : f32[T]"
                               "  %b = slice %a over D to E {start = 8} : f32[T, E=512]"
                               "  %y = mul %b, %s                      : f32[T, E]"
                               "  %z = mul %a, %s                      : f32[T, D]"
                               "  return %y, %z }");
  const ir_graph *ready = fused(graph, NULL);
  assert_true(lowered(ready, "")->team.row_bytes > 0); // through shared memory in one block
  kir_schedule schedule = kir_schedule_default(KIR_CUDA);
  schedule.split = 2;
  assert_null(pass_lower(ready, 0, &schedule, &diag));
  assert_non_null(strstr(base_diag_render(&diag).data,
                         "kernel @moved reads %a at other elements than it was computed at"));
}

// ---- the text -----------------------------------------------------------------------------------

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

// The next identifier or number from *at on; false at the end. Comments are skipped.
static bool next_token(const char **at, base_str *token) {
  const char *c = *at;
  for (; *c; c++) {
    if (c[0] == '/' && c[1] == '/')
      while (c[1] && c[1] != '\n')
        c++;
    else if (is_word(*c) || *c == '#')
      break;
  }
  if (!*c) return false;
  bool number = isdigit((unsigned char)*c), hexadecimal = number && c[1] == 'x';
  token->data = c++;
  for (; is_word(*c) || (number && *c == '.') ||
         (number && !hexadecimal && strchr("+-", *c) && *c && strchr("eE", c[-1]));)
    c++;
  token->length = (size_t)(c - token->data);
  *at = c;
  return true;
}

static const char *const banned[] = {"double",     "asm",       "__asm__",
                                     "#include",   "#define",   "__syncthreads",
                                     "__shared__", "threadIdx", "blockIdx"};

static void check_text(const char *name, const char *text) {
  int depth = 0;
  base_str token;
  for (const char *c = text; *c; c++)
    depth += (*c == '{') - (*c == '}');
  if (strstr(text, "(null)")) fail_msg("%s: something has no name in\n%s", name, text);
  if (depth) fail_msg("%s: braces do not match in\n%s", name, text);
  for (const char *at = text; next_token(&at, &token);) {
    for (size_t i = 0; i < COUNT(banned); i++)
      if (base_str_equal(token, base_str_from(banned[i])))
        fail_msg("%s: '%s' in\n%s", name, banned[i], text);
    bool decimal = isdigit((unsigned char)token.data[0]) &&
                   (token.length < 2 || token.data[1] != 'x') &&
                   (memchr(token.data, '.', token.length) || memchr(token.data, 'e', token.length));
    if (decimal && token.data[token.length - 1] != 'f')
      fail_msg("%s: %.*s is f64 in\n%s", name, BASE_FMT(token), text);
  }
}

// The kernel part of each form: what stands behind the preludes.
static void check_plan(const char *name, const cuda_plan *plan) {
  for (uint32_t i = 0; i < plan->kernel_count; i++)
    for (uint32_t j = 0; j < plan->kernels[i].form_count; j++) {
      base_str text = cuda_form_text(&arena, plan, i, j, false);
      const char *kernel = strstr(text.data, "// ---- kernel @");
      assert_non_null(kernel);
      check_text(name, kernel);
      const char *function = plan->kernels[i].names[j];
      base_str entry = base_str_format(&arena, "FM_ENTRY(%s, ", function);
      assert_non_null(strstr(kernel, entry.data));
    }
}

static void test_text(void **state) {
  (void)state;
  static const char *const schedules[] = {"",
                                          "source_tile=16,load=0,residency=1,working=100",
                                          "load=0,residency=0,persistent=0,teams=2",
                                          "load=0,split=2",
                                          "load=1,residency=2,source_tile=1,query_tile=1",
                                          "logits=0,programmatic=0"};
  uint32_t refused = 0;
  for (size_t i = 0; i < COUNT(onlines); i++)
    for (size_t j = 0; j < COUNT(schedules); j++) {
      char sizes[64]; // fewer sources, so that all strategies fit: N=7, not 70
      snprintf(sizes, sizeof sizes, "%s", onlines[i].sizes);
      strchr(sizes, '=')[2] = ' ';
      const ir_graph *graph = variant(onlines[i].name, sizes, NULL);
      const cg_options options = {.arch = "sm_90a", .schedule = schedules[j]};
      const cuda_plan *plan = cuda_plan_create(&arena, graph, &options, &diag);
      if (!plan && diag.status != BASE_UNSUPPORTED) assert_clean(false);
      if (plan) check_plan(onlines[i].name, plan);
      refused += !plan;
    }
  assert_in_range(refused, 1, 4); // heads over split rows
}

// The constants of a graph are f32 in the text, whatever they look like.
static void test_constants(void **state) {
  (void)state;
  ir_graph *graph = parse_text(
      "graph @constants(%x: f32[T, D=4]) {"
      "  %a = constant {value = [1, -0, 1e30, -2.5]} : f32[D]"
      "  %b = constant {value = [inf, -inf, nan, 16777217]} : f32[D]"
      "  %c = constant {value = 1e-40} : f32[]"
      "  %0 = mul %x, %a : f32[T, D]  %1 = add %0, %b : f32[T, D]  %y = max %1, %c : f32[T, D]"
      "  return %y }");
  const cuda_plan *plan = planned(fused(graph, NULL), "");
  base_str text = cuda_form_text(&arena, plan, 0, 0, false);
  const char *kernel = strstr(text.data, "// ---- kernel @");
  check_text("constants", kernel);
  static const char *const parts[] = {"{1.0f, (-0.0f), 1.00000002e+30f, (-2.5f)}",
                                      "{fm_from_bits(0x7f800000), fm_from_bits(0xff800000),",
                                      "fm_from_bits(0x7fc00000),", "16777216.0f}",
                                      "9.9999461e-41f"};
  for (size_t i = 0; i < COUNT(parts); i++)
    if (!strstr(kernel, parts[i])) fail_msg("expected '%s' in\n%s", parts[i], kernel);
}

static void test_whole_file(void **state) {
  (void)state;
  const cuda_plan *plan = planned(site_of("bf16", 7168), "");
  base_str file = cuda_file_text(&arena, plan);
  const char *end = strstr(file.data, "// ---- end of the device prelude");
  assert_non_null(end);
  assert_null(strstr(file.data, "#include"));
  assert_null(strstr(file.data, "double"));
  assert_null(strstr(end, "asm")); // PTX is in the device prelude, nowhere else
  assert_non_null(strstr(end, "extern \"C\" __global__ void __launch_bounds__(896, 1)\nsite("));
  assert_non_null(strstr(end, "\nsite_any("));
  assert_null(strstr(strstr(end, "\nsite_any("), "<16>")); // one element at a time
}

// ---- names --------------------------------------------------------------------------------------

static void test_function_names(void **state) {
  (void)state;
  static const char *const names[][2] = {
      {"k3_site", "k3_site"}, {"main", "main_kernel"}, {"0.x", "v0_x"},
      {"__x", "v_x"},         {"a.b", "a_b"},          {"float", "float_kernel"},
      {"exp", "exp_kernel"},  {"expf", "expf_kernel"}, {"expo", "expo"},
      {"fm_exp", "vfm_exp"},  {"FM_EXP", "vFM_EXP"},   {"_", "v_"},
      {"row", "row_kernel"},  {"dim3", "dim3_kernel"},
  };
  for (size_t i = 0; i < COUNT(names); i++)
    assert_string_equal(text_function_name(&arena, base_str_from(names[i][0])), names[i][1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_teams),          TEST(test_forms),           TEST(test_residency),
      TEST(test_online),         TEST(test_not_online),      TEST(test_stages),
      TEST(test_refusals),       TEST(test_smallest_blocks), TEST(test_split_of_moved_rows),
      TEST(test_text),           TEST(test_constants),       TEST(test_whole_file),
      TEST(test_function_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
