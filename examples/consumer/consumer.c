// A host program in its smallest form: parse, compile for this CPU, run, look at the result. One
// source gets weight 1, so the mix of a one-source site is that source.
#include <fathom.h>
#include <stdio.h>
#include <string.h>

static const char text[] = "graph @site(%v: f32[N=1, T, D=4], %q: f32[D]) {\n"
                           "  %z = dot %v, %q over D : f32[N, T]\n"
                           "  %a = softmax %z over N : f32[N, T]\n"
                           "  %h = weighted_sum %a, %v over N : f32[T, D]\n"
                           "  return %h\n"
                           "}\n";

static DLTensor tensor(float *data, int rank, int64_t *shape) {
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = rank,
                    .dtype = {kDLFloat, 32, 1},
                    .shape = shape};
}

static int fail(void) {
  fprintf(stderr, "%s\n", fathom_error_text());
  return 1;
}

int main(void) {
  float source[8] = {1, 2, 3, 4, 5, 6, 7, 8}, query[4] = {1, 0, 0, 0}, mix[8];
  DLTensor v = tensor(source, 3, (int64_t[]){1, 2, 4}), q = tensor(query, 1, (int64_t[]){4}),
           h = tensor(mix, 2, (int64_t[]){2, 4});
  fathom_arg args[] = {
      {.name = "v", .tensor = &v}, {.name = "q", .tensor = &q}, {.name = "h", .tensor = &h}};
  static _Alignas(64) char workspace[1 << 20];
  size_t bytes;
  fathom_context *context;
  fathom_module *module;
  fathom_graph *graph;
  fathom_executable *executable;

  if (fathom_context_create(NULL, &context) ||
      fathom_parse(context, text, strlen(text), NULL, &module) ||
      fathom_module_graph(module, NULL, &graph) ||
      fathom_compile(context, graph, NULL, &executable) ||
      fathom_workspace_size(executable, args, 3, NULL, &bytes) ||
      fathom_run(executable, args, 3, workspace, sizeof workspace, NULL))
    return fail();
  printf("fathom %s: %g %g %g %g (workspace: %zu bytes)\n", fathom_version(), mix[4], mix[5],
         mix[6], mix[7], bytes);
  int wrong = memcmp(mix, source, sizeof mix);
  fathom_executable_destroy(executable);
  fathom_module_destroy(module);
  fathom_context_destroy(context);
  return wrong != 0;
}
