// The verifier, the axis solver, binding, and the structural hash.
//
// What users can write wrong is in tests/ir/invalid: each file says in `// EXPECT:` comments which
// errors it must give, place included, and must give no other. Here is what only C can do wrong,
// and what is right.
#include "ir/ir.h"

#include "support/graph_fixture.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// The graph breaks exactly one rule, and the report says `text`.
static void assert_rejected(ir_graph *graph, ir_stage stage, const char *text) {
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  assert_false(ir_verify(graph, stage, &diag));
  base_str report = base_diag_render(&diag);
  if (diag.error_count != 1 || !strstr(report.data, text))
    fail_msg("expected one error with '%s', found\n%.*s", text, BASE_FMT(report));
}

static int64_t size_of(const ir_graph *graph, const char *name) {
  ir_axis axis;
  assert_true(ir_axis_find(graph, base_str_from(name), &axis));
  return ir_axis_size(graph, axis);
}

// ---- invalid files ------------------------------------------------------------------------------

// Checks one file against its EXPECT lines, each a part of the rendered report; one line an error.
static void check_invalid_file(const char *path, const char *name) {
  base_str text, why;
  if (base_file_read(&arena, path, &text, &why) != BASE_OK)
    fail_msg("%s: %.*s", path, BASE_FMT(why));
  base_diag_init(&diag, &arena, base_str_from(name), text);
  ir_module *module = ir_parse(&arena, text, &diag);
  for (uint32_t i = 0; module && i < module->graphs.count; i++)
    ir_verify(module->graphs.data[i], IR_STAGE_BOUND, &diag);
  base_str report = base_diag_render(&diag);
  const char marker[] = "// EXPECT: ";
  uint32_t expected = 0;
  for (const char *line = text.data; (line = strstr(line, marker)); expected++) {
    line += sizeof marker - 1;
    base_str wanted = base_str_copy(&arena, (base_str){line, strcspn(line, "\n")});
    if (!report.data || !strstr(report.data, wanted.data))
      fail_msg("%s: expected '%s', found\n%.*s", name, wanted.data, BASE_FMT(report));
  }
  if (expected == 0 || expected != diag.error_count)
    fail_msg("%s: expected %u errors, found %u\n%.*s", name, expected, diag.error_count,
             BASE_FMT(report));
}

static void test_invalid_files(void **state) {
  (void)state;
  const char *root = getenv("FATHOM_SOURCE_DIR");
  base_str folder = base_str_format(&arena, "%s/tests/ir/invalid", root ? root : ".");
  DIR *directory = opendir(folder.data);
  if (!directory) fail_msg("%s: set FATHOM_SOURCE_DIR to the source tree", folder.data);
  int files = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    size_t length = strlen(entry->d_name);
    if (length < 4 || strcmp(entry->d_name + length - 4, ".fir") != 0) continue;
    check_invalid_file(base_str_format(&arena, "%s/%s", folder.data, entry->d_name).data,
                       entry->d_name);
    files++;
  }
  closedir(directory);
  assert_true(files > 10);
}

// ---- graphs only the builder can make -----------------------------------------------------------

typedef struct sample { // %z = dot %k, %q over D : f32[T], one result
  ir_graph *graph;
  ir_axis t, d;
  ir_value k, q, z;
} sample;

static sample build_sample(void) {
  sample s = {.graph = ir_graph_create(&arena, BASE_STR("sample"))};
  s.t = ir_build_axis(s.graph, BASE_STR("T"), IR_DYNAMIC);
  s.d = ir_build_axis(s.graph, BASE_STR("D"), 8);
  s.k = ir_build_param(s.graph, BASE_STR("k"),
                       ir_build_type(s.graph, IR_F32, 2, (const char *[]){"T", "D"}));
  s.q = ir_build_param(s.graph, BASE_STR("q"),
                       ir_build_type(s.graph, IR_F32, 1, (const char *[]){"D"}));
  s.z = ir_build_over(s.graph, IR_DOT, 2, (const ir_value[]){s.k, s.q}, s.d, IR_F32);
  s.graph->nodes.data[s.z.index].name = BASE_STR("z");
  ir_build_result(s.graph, s.z);
  return s;
}

static ir_node *node_of(sample *s, ir_value value) {
  return &s->graph->nodes.data[value.index];
}

static void test_built_graph_is_valid(void **state) {
  (void)state;
  sample s = build_sample();
  assert_true(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
}

static void test_broken_form(void **state) {
  (void)state;
  sample s = build_sample();
  node_of(&s, s.z)->operands = (const ir_value[]){s.k, s.z};
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "%z: expected operand 1 to be defined earlier, found value 2");

  s = build_sample();
  node_of(&s, s.z)->operand_count = 1;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%z: expected 2 to 2 operands of dot, found 1");

  s = build_sample();
  node_of(&s, s.z)->over_count = 0;
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "%z: expected 1 to 8 axes after 'over' of dot, found 0");

  s = build_sample();
  node_of(&s, s.z)->to_count = 1;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%z: expected 0 to 0 axes after 'to' of dot, found 1");

  s = build_sample();
  node_of(&s, s.z)->over[0] = (ir_axis){17};
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "%z: expected an axis of the graph in over, found index 17");

  s = build_sample();
  node_of(&s, s.z)->op = IR_OP_COUNT;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%z: expected an op of the op table");

  s = build_sample();
  node_of(&s, s.k)->type.dtype = IR_DTYPE_COUNT;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%k: expected a dtype of the IR");

  s = build_sample();
  node_of(&s, s.k)->type.rank = IR_MAX_RANK + 1;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%k: expected at most 8 axes, found 9");

  s = build_sample();
  node_of(&s, s.z)->has_layout = true;
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "%z: expected a layout only on a parameter, found one on dot");

  s = build_sample();
  node_of(&s, s.k)->has_layout = true;
  node_of(&s, s.k)->layout[0] = node_of(&s, s.k)->layout[1] = s.d;
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "%k: expected each axis once in the layout, found D twice");

  s = build_sample();
  node_of(&s, s.q)->has_layout = true;
  node_of(&s, s.q)->layout[0] = s.t;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%q: expected a layout of the axes D, found T");

  s = build_sample();
  node_of(&s, s.q)->name = BASE_STR("k");
  assert_rejected(s.graph, IR_STAGE_PARSED, "expected one parameter of each name, found two of %k");

  s = build_sample();
  s.graph->param_count = 1;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%q: expected the parameters before all other nodes");
}

static void test_broken_results(void **state) {
  (void)state;
  sample s = build_sample();
  s.graph->results.count = 0;
  assert_rejected(s.graph, IR_STAGE_PARSED, "expected graph @sample to return a value, found none");

  s = build_sample();
  s.graph->results.data[0].index = 9;
  assert_rejected(s.graph, IR_STAGE_PARSED, "expected a defined value to return, found value 9");

  s = build_sample();
  ir_build_result(s.graph, s.z);
  assert_rejected(s.graph, IR_STAGE_PARSED,
                  "expected each value to be returned once, found %z twice");
}

static void test_attributes(void **state) {
  (void)state;
  const double bad[] = {-1e-5, NAN, INFINITY};
  for (int i = 0; i < 3; i++) {
    sample s = build_sample();
    ir_value n = ir_build_over(s.graph, IR_RMS_NORM, 1, &s.k, s.d, IR_F32);
    node_of(&s, n)->eps = bad[i];
    node_of(&s, n)->name = BASE_STR("n");
    assert_rejected(s.graph, IR_STAGE_PARSED, "%n: expected a finite eps >= 0, found");
  }
  sample s = build_sample();
  ir_value c = ir_build_constant(s.graph, 1);
  node_of(&s, c)->value_count = 0;
  assert_rejected(s.graph, IR_STAGE_PARSED, "expected value = NUMBER or a list, found none");

  s = build_sample();
  ir_node call = {.op = IR_CALL, .name = BASE_STR("c"), .kernel = IR_NO_KERNEL};
  ir_build_node(s.graph, &call);
  assert_rejected(s.graph, IR_STAGE_PARSED, "%c: expected the name of a host function");
}

static void test_type_errors_of_built_nodes_name_the_value(void **state) {
  (void)state;
  sample s = build_sample();
  node_of(&s, s.z)->type = node_of(&s, s.k)->type;
  assert_rejected(s.graph, IR_STAGE_PARSED, "%z: expected dot to give axes [T], found f32[T, D]");
}

// ---- stages -------------------------------------------------------------------------------------

static void test_stage_bound(void **state) {
  (void)state;
  sample s = build_sample();
  s.graph->axes.data[s.d.index].size = IR_DYNAMIC;
  assert_true(ir_verify(s.graph, IR_STAGE_PARSED, &diag));
  assert_rejected(s.graph, IR_STAGE_BOUND, "--set D=INT");
  // An axis that no value has needs no size, whether or not a clause names it.
  s = build_sample();
  ir_build_axis(s.graph, BASE_STR("X"), IR_DYNAMIC);
  assert_true(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
  verified("graph @g(%a: f32[T], %b: f32[T]) {\n  %c = concat %a, %b over X to N : f32[N, T]\n"
           "  return %c\n}\n",
           IR_STAGE_BOUND);
}

static void test_stage_primitive(void **state) {
  (void)state;
  sample s = build_sample();
  assert_true(ir_verify(s.graph, IR_STAGE_PRIMITIVE, &diag));
  ir_value a = ir_build_over(s.graph, IR_SOFTMAX, 1, &s.k, s.d, IR_F32);
  node_of(&s, a)->name = BASE_STR("a");
  assert_true(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
  assert_rejected(s.graph, IR_STAGE_PRIMITIVE,
                  "%a: expected no composite op at this stage, found softmax");
}

static void test_stage_fused(void **state) {
  (void)state;
  sample s = build_sample();
  ir_value c = ir_build_constant(s.graph, 2);
  ir_value y = ir_build_binary(s.graph, IR_MUL, s.z, c, IR_F32);
  node_of(&s, y)->name = BASE_STR("y");
  node_of(&s, s.z)->kernel = 0;
  assert_rejected(s.graph, IR_STAGE_FUSED, "%y: expected a kernel >= 0 for mul, found -1");
  node_of(&s, y)->kernel = 1;
  assert_true(ir_verify(s.graph, IR_STAGE_FUSED, &diag));
  node_of(&s, s.z)->kernel = 2;
  assert_rejected(s.graph, IR_STAGE_FUSED,
                  "%y: expected operand %z from kernel 1 or before, found kernel 2");
  node_of(&s, s.z)->kernel = 0;
  node_of(&s, s.q)->kernel = 0;
  assert_rejected(s.graph, IR_STAGE_FUSED, "%q: expected no kernel (-1) for param, found 0");
}

// ---- sizes --------------------------------------------------------------------------------------

static void test_sizes_are_derived(void **state) {
  (void)state;
  // Against the order of the text: Q from the rename, D from the merge, H from the split, B from
  // the concat.
  ir_graph *graph = verified("graph @g(%bank: f32[B, T, D], %p: f32[T, D], %x: f32[R, C=6]) {\n"
                             "  %v = concat %bank, %p, %bank over B to N : f32[N, T, D]\n"
                             "  %h = split_axis %v over D to H, E=4 : f32[N, T, H, E]\n"
                             "  %s = slice %h over N to Q : f32[Q, T, H, E]\n"
                             "  %r = rename %s over Q to W=5 : f32[W, T, H, E]\n"
                             "  %m = merge_axes %x over R, C to D : f32[D]\n"
                             "  %w = slice %v over N to K {start = 2} : f32[K, T, D]\n"
                             "  %l = constant {value = [1, 2, 3, 4, 5, 6, 7]} : f32[N]\n"
                             "  %y = rename %m over D to Z=24 : f32[Z]\n"
                             "  return %r, %w, %l, %y\n}\n",
                             IR_STAGE_BOUND);
  assert_int_equal(size_of(graph, "N"), 7);
  assert_int_equal(size_of(graph, "B"), 3);
  assert_int_equal(size_of(graph, "D"), 24);
  assert_int_equal(size_of(graph, "H"), 6);
  assert_int_equal(size_of(graph, "R"), 4);
  assert_int_equal(size_of(graph, "Q"), 5); // from the rename, not "to the end"
  assert_int_equal(size_of(graph, "K"), 5);
  assert_int_equal(size_of(graph, "T"), IR_DYNAMIC);
}

static void test_slices_reach_to_the_end_in_turn(void **state) {
  (void)state;
  ir_graph *graph = verified("graph @g(%a: f32[N, T]) {\n"
                             "  %b = slice %a over N to M {start = 1} : f32[M, T]\n"
                             "  %c = slice %b over M to K {start = 2} : f32[K, T]\n"
                             "  %d = concat %c, %c over K to J : f32[J, T]\n  return %d\n}\n",
                             IR_STAGE_PARSED);
  assert_int_equal(size_of(graph, "J"), IR_DYNAMIC);
  assert_true(ir_bind_axis(graph, BASE_STR("N"), 9, &diag));
  assert_true(ir_verify(graph, IR_STAGE_BOUND, &diag));
  assert_int_equal(size_of(graph, "K"), 6);
  assert_int_equal(size_of(graph, "J"), 12);
  // What follows from one slice's end comes before the next slice's.
  graph = verified("graph @g(%a: f32[N=9, T]) {\n"
                   "  %b = slice %a over N to M {start = 1} : f32[M, T]\n"
                   "  %c = slice %a over N to W : f32[W, T]\n"
                   "  %d = rename %b over M to W : f32[W, T]\n  return %c, %d\n}\n",
                   IR_STAGE_BOUND);
  assert_int_equal(size_of(graph, "W"), 8);
}

static void test_huge_sizes(void **state) {
  (void)state;
  sample s = build_sample();
  s.graph->axes.data[s.d.index].size = INT64_MAX / 4; // 4 bytes each just fit
  assert_true(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
  s.graph->axes.data[s.d.index].size = INT64_MAX / 4 + 1;
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  assert_false(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
  assert_non_null(strstr(base_diag_render(&diag).data, "%k: expected less than 2^63 bytes"));
  s.graph->axes.data[s.t.index].size = 0; // nothing is no bytes
  base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
  assert_false(ir_verify(s.graph, IR_STAGE_BOUND, &diag));
  assert_int_equal(diag.error_count, 1); // %q alone
  verified("graph @g(%a: f32[A=4611686018427387904, B=4611686018427387905, C=0]) {\n"
           "  return %a\n}\n",
           IR_STAGE_BOUND);
}

static void test_empty_axes(void **state) {
  (void)state;
  verified("graph @g(%a: f32[N=0, T, D=0]) {\n  %s = sum %a over N : f32[T, D]\n"
           "  %n = rms_norm %s over D : f32[T, D]\n  %x = dot %a, %n over D : f32[N, T]\n"
           "  return %x\n}\n",
           IR_STAGE_BOUND);
}

static void test_independent_axes(void **state) {
  (void)state;
  ir_graph *graph = verified("graph @g(%a: f32[A, N=3, T, D=8]) {\n"
                             "  %n = rms_norm %a over D : f32[A, N, T, D]\n"
                             "  %s = slice %n over N to M : f32[A, M, T, D]\n  return %s\n}\n",
                             IR_STAGE_BOUND);
  ir_axis a, t;
  assert_true(ir_axis_find(graph, BASE_STR("A"), &a));
  assert_true(ir_axis_find(graph, BASE_STR("T"), &t));
  assert_true(ir_independent_axes(graph) == (ir_axis_bit(a) | ir_axis_bit(t)));
}

static void test_bind(void **state) {
  (void)state;
  ir_graph *graph = parse_text("graph @g(%a: f32[Tok, D=3]) {\n  return %a\n}\n");
  assert_true(ir_bind_axis(graph, BASE_STR("Tok"), 0, &diag));
  assert_true(ir_bind_axis(graph, BASE_STR("Tok"), 0, &diag)); // the same again
  assert_int_equal(size_of(graph, "Tok"), 0);
  const struct {
    const char *name;
    int64_t size;
    const char *message;
  } wrong[] = {
      {"Tik", 4, "did you mean Tok?"},
      {"Hidden", 4, "its axes are: Tok, D"},
      {"D", 4, "axis D already has size 3, found 4"},
      {"Tok", -1, "expected a size >= 0 for axis Tok, found -1"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    base_diag_init(&diag, &arena, (base_str){0}, (base_str){0});
    assert_false(ir_bind_axis(graph, base_str_from(wrong[i].name), wrong[i].size, &diag));
    assert_non_null(strstr(base_diag_render(&diag).data, wrong[i].message));
  }
}

// ---- hash and equality --------------------------------------------------------------------------

static base_hash hash_of(const char *text) {
  return ir_hash(verified(text, IR_STAGE_PARSED));
}

static const char base_text_graph[] =
    "graph @g(%v: bf16[N=3, T, D=8], %q: f32[D]) {\n"
    "  %k = rms_norm %v over D {eps = 1e-5} : f32[N, T, D]\n"
    "  %z = dot %k, %q over D : f32[N, T]\n  %a = softmax %z over N : f32[N, T]\n"
    "  %h = weighted_sum %a, %v over N : f32[T, D]\n  return %h, %a\n}\n";

static void test_hash_ignores_names_and_dead_nodes(void **state) {
  (void)state;
  base_hash same =
      hash_of("// a comment\ngraph @other(%bank: bf16[Src=3, Tok, C=8], %w: f32[C]) {\n"
              "  %dead = neg %w : f32[C]\n"
              "  %x = rms_norm %bank over C {eps = 1e-5} : f32[Src, Tok, C]\n"
              "  %y = dot %x, %w over C : f32[Src, Tok]\n"
              "  %p = softmax %y over Src : f32[Src, Tok]\n"
              "  %m = weighted_sum %p, %bank over Src : f32[Tok, C]\n"
              "  return %m, %p\n}\n");
  assert_true(base_hash_equal(hash_of(base_text_graph), same));
}

// Each row is a change of one thing in the text above. It changes the hash and equality alike.
static void test_hash_and_equality_see_every_difference(void **state) {
  (void)state;
  static const struct {
    const char *from, *to;
  } changes[] = {
      {"bf16[N=3, T", "f16[N=3, T"},
      {"[N=3,", "[N=4,"},
      {"[N=3, T, D=8]", "[N=3, T=5, D=8]"},
      {"eps = 1e-5", "eps = 1e-6"},
      {"return %h, %a", "return %a, %h"},
      {"return %h, %a", "return %h"},
      {"dot %k, %q", "dot %q, %k"},
      {"f32[N, T]\n  %a", "f32[T, N]\n  %a"},
      {"softmax %z over N", "softmax %z over T"},
      {"over N : f32[T, D]", "over N : bf16[T, D]"},
      {"D=8]", "D=8] layout(T, N, D)"},
      {", %q: f32[D])", ", %q: f32[D], %unused: f32[D])"},
  };
  ir_graph *graph = verified(base_text_graph, IR_STAGE_PARSED);
  base_hash hash = ir_hash(graph);
  assert_true(ir_equal(graph, verified(base_text_graph, IR_STAGE_PARSED)));
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const char *place = strstr(base_text_graph, changes[i].from);
    assert_non_null(place);
    base_str text =
        base_str_format(&arena, "%.*s%s%s", (int)(place - base_text_graph), base_text_graph,
                        changes[i].to, place + strlen(changes[i].from));
    ir_graph *changed = verified(text.data, IR_STAGE_PARSED);
    if (base_hash_equal(hash, ir_hash(changed)) || ir_equal(graph, changed))
      fail_msg("no difference seen between '%s' and '%s'", changes[i].from, changes[i].to);
  }
}

static void test_hash_and_equality_see_constants_slices_calls_and_kernels(void **state) {
  (void)state;
  const char *const variants[] = {
      "  %b = constant {value = [1, 2, 3]} : f32[N]\n  %c = slice %a over N to M=1 {start = 1} : "
      "f32[M, T]\n"
      "  %d = call @f %c, %b : f32[M, T]\n",
      "  %b = constant {value = [1, 2, 4]} : f32[N]\n  %c = slice %a over N to M=1 {start = 1} : "
      "f32[M, T]\n"
      "  %d = call @f %c, %b : f32[M, T]\n",
      "  %b = constant {value = 1} : f32[N]\n  %c = slice %a over N to M=1 {start = 1} : f32[M, "
      "T]\n"
      "  %d = call @f %c, %b : f32[M, T]\n",
      "  %b = constant {value = [1, 2, 3]} : f32[N]\n  %c = slice %a over N to M=1 {start = 2} : "
      "f32[M, T]\n"
      "  %d = call @f %c, %b : f32[M, T]\n",
      "  %b = constant {value = [1, 2, 3]} : f32[N]\n  %c = slice %a over N to M=1 {start = 1} : "
      "f32[M, T]\n"
      "  %d = call @g %c, %b : f32[M, T]\n",
      "  %b = constant {value = [1, 2, 3]} : f32[N]\n  %c = slice %a over N to M=2 {start = 1} : "
      "f32[M, T]\n"
      "  %d = call @f %c, %b : f32[M, T]\n",
  };
  enum { COUNT = sizeof variants / sizeof *variants };
  ir_graph *graphs[COUNT + 1];
  for (int i = 0; i <= COUNT; i++)
    graphs[i] =
        verified(base_str_format(&arena, "graph @g(%%a: f32[N=3, T]) {\n%s  return %%d\n}\n",
                                 variants[i % COUNT])
                     .data,
                 IR_STAGE_PARSED);
  graphs[COUNT]->nodes.data[2].kernel = 0; // as the first, but fused
  for (int i = 0; i <= COUNT; i++)
    for (int j = 0; j < i; j++) {
      assert_false(base_hash_equal(ir_hash(graphs[i]), ir_hash(graphs[j])));
      assert_false(ir_equal(graphs[i], graphs[j]));
    }
}

static void test_equality_sees_names(void **state) {
  (void)state;
  const char *const texts[] = {
      "graph @g(%a: f32[T]) {\n  %b = neg %a : f32[T]\n  return %b\n}\n",
      "graph @h(%a: f32[T]) {\n  %b = neg %a : f32[T]\n  return %b\n}\n",
      "graph @g(%c: f32[T]) {\n  %b = neg %c : f32[T]\n  return %b\n}\n",
      "graph @g(%a: f32[U]) {\n  %b = neg %a : f32[U]\n  return %b\n}\n",
      "graph @g(%a: f32[T]) {\n  %d = neg %a : f32[T]\n  return %d\n}\n",
  };
  ir_graph *first = verified(texts[0], IR_STAGE_PARSED);
  for (int i = 1; i < 5; i++) {
    ir_graph *other = verified(texts[i], IR_STAGE_PARSED);
    assert_false(ir_equal(first, other));
    assert_true(base_hash_equal(ir_hash(first), ir_hash(other)));
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(invalid_files),
      TEST(built_graph_is_valid),
      TEST(broken_form),
      TEST(broken_results),
      TEST(attributes),
      TEST(type_errors_of_built_nodes_name_the_value),
      TEST(stage_bound),
      TEST(stage_primitive),
      TEST(stage_fused),
      TEST(sizes_are_derived),
      TEST(slices_reach_to_the_end_in_turn),
      TEST(huge_sizes),
      TEST(empty_axes),
      TEST(independent_axes),
      TEST(bind),
      TEST(hash_ignores_names_and_dead_nodes),
      TEST(hash_and_equality_see_every_difference),
      TEST(hash_and_equality_see_constants_slices_calls_and_kernels),
      TEST(equality_sees_names),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
