// bundle: compiled graphs to bytes, and from there to executables, on a machine that may have neither
// LLVM nor NVRTC (docs/bundles.md).
#include <pthread.h>
#include <string.h>

#include "api/api.h"
#include "codegen/artefact.h"
#include "codegen/artefact_cache.h"
#include "codegen/cuda/arch.h"
#include "runtime/archive.h"

static const base_loc nowhere;

// What a section begins with: all that choosing among several needs.
typedef struct head {
  const char *target;   // "cpu", "cuda"
  const char *machine;  // LLVM's name of a CPU; "sm_90a"
  const char *abi;      // cpu, else ""
  const char *features; // cpu, else ""
  const char *graph;
} head;

static void archive_head(rt_archive *a, head *h) {
  const char **texts[] = {&h->target, &h->machine, &h->abi, &h->features, &h->graph};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    rt_archive_text(a, texts[i]);
    rt_archive_require(a, *texts[i] != NULL, "a name is missing");
    if (*texts[i] == NULL) *texts[i] = "";
  }
}

// What a section holds of an artefact besides its programs.
static void archive_choice(rt_archive *a, cg_artefact *artefact) {
  const char **texts[] = {&artefact->schedule, &artefact->schedule_source};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    rt_archive_text(a, texts[i]);
    rt_archive_require(a, *texts[i] != NULL, "a schedule is missing");
  }
}

// ---- writing ------------------------------------------------------------------------------------

void api_bundle_begin(base_text *out) {
  base_str maker =
      base_str_format(out->arena, "Fathom %s, generator %s", fathom_version(), cg_generator_id());
  rt_bundle_begin(out, maker.data);
}

static void write_code(rt_archive *a, const cg_artefact *given) {
  cg_artefact artefact = *given;
  archive_choice(a, &artefact);
  if (artefact.device != NULL) {
    rt_device_program device = *artefact.device;
    rt_archive_device_program(a, &device);
    return;
  }
  rt_program program = *artefact.program;
  rt_host_image image = *artefact.host;
  rt_archive_program(a, &program);
  rt_archive_host_image(a, &image, &program);
}

// Neighbours may share code: each variant says its number of rows and which code is its own.
static void write_variants(rt_archive *a, const fathom_executable *executable) {
  const api_variant *variants = executable->variants;
  uint32_t count = executable->variant_count;
  rt_archive_array(a, variants, &count, sizeof *variants);
  for (uint32_t i = 0; i < count; i++) {
    bool shared = i > 0 && variants[i].artefact == variants[i - 1].artefact;
    int64_t rows = variants[i].rows;
    rt_archive_i64(a, &rows);
    rt_archive_bool(a, &shared);
    if (!shared) write_code(a, variants[i].artefact);
  }
}

bool api_bundle_add(api_call *call, base_text *out, const char *name,
                    const fathom_executable *portable) {
  base_text text = {.arena = &call->arena};
  rt_archive a = {.out = &text};
  const rt_host_image *host = portable->artefact->host;
  head h = {
      .target = api_targets[portable->kind].name,
      .machine = host != NULL ? host->cpu : portable->arch,
      .abi = host != NULL ? host->abi : "",
      .features = host != NULL ? host->features : "",
      .graph = portable->graph_name,
  };
  archive_head(&a, &h);
  write_variants(&a, portable);
  if (a.fault != NULL) {
    base_error_status(&call->diag, BASE_INTERNAL, nowhere,
                      "graph @%s cannot be put into a bundle: %s", portable->graph_name, a.fault);
    base_hint(&call->diag, "please report this, with the file");
    return false;
  }
  rt_bundle_add(out, API_SECTION_CODE, base_str_from(name), base_text_str(&text));
  return true;
}

// ---- choosing -----------------------------------------------------------------------------------

// A section of the right name and target.
typedef struct candidate {
  rt_archive archive; // behind the head
  head head;
} candidate;

typedef struct search {
  api_call *call;
  const rt_bundle *bundle;
  const char *wanted; // the caller's name, or NULL
  base_str name;
  const char *arch;
  api_kind kind;
  BASE_VECTOR(candidate) found;
} search;

// Without a name, that of the only graph.
static bool choose_name(search *s) {
  for (uint32_t i = 0; i < s->bundle->section_count && s->wanted == NULL; i++) {
    const rt_section *section = &s->bundle->sections[i];
    if (section->kind != API_SECTION_CODE) continue;
    if (s->name.data == NULL) s->name = section->name;
    if (base_str_equal(s->name, section->name)) continue;
    base_error(&s->call->diag, nowhere,
               "the bundle holds several graphs, '%.*s' and '%.*s' among them", BASE_FMT(s->name),
               BASE_FMT(section->name));
    base_hint(&s->call->diag, "name one of them");
    return false;
  }
  return true;
}

static bool read_candidates(search *s) {
  for (uint32_t i = 0; i < s->bundle->section_count; i++) {
    const rt_section *section = &s->bundle->sections[i];
    if (section->kind != API_SECTION_CODE) continue;
    if (!base_str_equal(section->name, s->name)) continue;
    candidate c = {.archive = {.arena = &s->call->arena, .in = section->contents}};
    archive_head(&c.archive, &c.head);
    if (c.archive.fault != NULL) {
      rt_bundle_refuse(s->bundle, c.archive.fault, &s->call->diag);
      return false;
    }
    base_push(&s->call->arena, &s->found, c);
  }
  return true;
}

static bool is_for(const search *s, const candidate *c) {
  return strcmp(c->head.target, api_targets[s->kind].name) == 0 &&
         (s->arch[0] == 0 || strcmp(c->head.machine, s->arch) == 0);
}

static bool refuse(search *s, const char *found) {
  base_text list = {.arena = &s->call->arena};
  for (uint32_t i = 0; i < s->found.count; i++) {
    const head *h = &s->found.data[i].head;
    base_text_printf(&list, "%s%s:%s", i > 0 ? ", " : "", h->target, h->machine);
  }
  base_error_status(&s->call->diag, BASE_UNSUPPORTED, nowhere,
                    "the bundle has no code of '%.*s' for %s: it has %s", BASE_FMT(s->name), found,
                    list.length > 0 ? list.data : "none");
  base_hint(&s->call->diag, "compile it again with --target for this machine, too");
  return false;
}

static uint32_t count_features(const char *features) {
  uint32_t count = features[0] != 0;
  for (; *features; features++)
    count += *features == ',';
  return count;
}

static rt_cpu host_cpu(fathom_context *context) {
  pthread_mutex_lock(context->lock);
  if (!context->cpu.known) context->cpu = rt_cpu_read();
  rt_cpu cpu = context->cpu;
  pthread_mutex_unlock(context->lock);
  return cpu;
}

// Of those that this processor runs the one that uses most of it; none: *why says what the last one
// lacks.
static candidate *choose_host(search *s, base_diag *why) {
  const rt_cpu cpu = host_cpu(s->call->context);
  candidate *best = NULL;
  for (uint32_t i = 0; i < s->found.count; i++) {
    candidate *c = &s->found.data[i];
    rt_host_image image = {
        .abi = c->head.abi, .cpu = c->head.machine, .features = c->head.features};
    if (!is_for(s, c) || rt_host_check(&image, &cpu, why) != BASE_OK) continue;
    if (best == NULL || count_features(c->head.features) > count_features(best->head.features))
      best = c;
  }
  return best;
}

typedef enum fit { NO_FIT, AS_PTX, AS_CODE } fit;

// "a" names code for one capability alone, "f" for its family: those of one major number.
static fit fit_of(const char *machine, const rt_device_facts *facts, uint32_t *rank) {
  cuda_arch arch;
  if (!cuda_arch_find(machine, &arch)) return NO_FIT;
  char suffix = machine[strlen(machine) - 1];
  uint32_t device = 10 * facts->major + facts->minor;
  *rank = 4 * arch.capability + (suffix == 'a' ? 2 : suffix == 'f');
  if (arch.capability > device || (suffix == 'a' && arch.capability != device)) return NO_FIT;
  if (arch.capability / 10 == facts->major) return AS_CODE;
  return suffix == 'f' ? NO_FIT : AS_PTX;
}

// Machine code before PTX, then the newest architecture.
static candidate *choose_device(search *s, const rt_device_facts *facts, fit *how) {
  candidate *best = NULL;
  uint32_t best_rank = 0, rank = 0;
  *how = NO_FIT;
  for (uint32_t i = 0; i < s->found.count; i++) {
    candidate *c = &s->found.data[i];
    fit own = is_for(s, c) ? fit_of(c->head.machine, facts, &rank) : NO_FIT;
    if (own == NO_FIT || own < *how || (own == *how && rank <= best_rank)) continue;
    best = c;
    best_rank = rank;
    *how = own;
  }
  return best;
}

// ---- loading ------------------------------------------------------------------------------------

typedef struct loader {
  api_call *call;
  const rt_bundle *bundle;
  rt_archive archive;
  const head *head;
  rt_device *device; // NULL for the cpu
  bool drop_cubins;  // the device takes the PTX only
  fathom_executable *executable;
} loader;

static void release_code(void *code) {
  rt_host_code_unmap(code);
}

static bool is_sound(loader *l) {
  if (l->archive.fault == NULL) return true;
  rt_bundle_refuse(l->bundle, l->archive.fault, &l->call->diag);
  return false;
}

static bool read_host(loader *l, cg_owned *owned) {
  base_arena *arena = &owned->arena;
  rt_program *program = base_new(arena, rt_program);
  rt_host_image *image = base_new(arena, rt_host_image);
  rt_host_code *code = base_new(arena, rt_host_code);
  rt_archive_program(&l->archive, program);
  rt_archive_host_image(&l->archive, image, program);
  if (!is_sound(l)) return false;
  image->abi = base_str_copy(arena, base_str_from(l->head->abi)).data;
  image->cpu = base_str_copy(arena, base_str_from(l->head->machine)).data;
  image->features = base_str_copy(arena, base_str_from(l->head->features)).data;
  base_defer(arena, release_code, code);
  owned->base.program = program;
  owned->base.host = image;
  return rt_host_code_map(image, (rt_kernel *)program->kernels, code, &l->call->diag) == BASE_OK;
}

static bool read_device(loader *l, cg_owned *owned) {
  rt_device_program *device = base_new(&owned->arena, rt_device_program);
  rt_archive_device_program(&l->archive, device);
  if (!is_sound(l)) return false;
  owned->base.device = device;
  owned->base.program = device->program;
  rt_device_kernel *kernels = (rt_device_kernel *)device->kernels;
  for (uint32_t i = 0; i < device->program->kernel_count && l->drop_cubins; i++)
    for (uint32_t j = 0; j < kernels[i].form_count; j++)
      kernels[i].image[j].cubin = BASE_STR("");
  return true;
}

static bool read_code(loader *l, api_variant *variant) {
  cg_owned *owned = cg_artefact_begin(&l->call->arena, NULL, "", &l->call->diag);
  if (owned == NULL) return false;
  l->archive.arena = &owned->arena;
  archive_choice(&l->archive, &owned->base);
  owned->base.from_cache = true; // nothing is compiled
  if (!(l->device != NULL ? read_device : read_host)(l, owned)) return false;
  variant->artefact = cg_artefact_finish(owned);
  return l->device == NULL || rt_device_load(l->device, variant->artefact->device, &variant->loaded,
                                             &l->call->diag) == BASE_OK;
}

// Do two programs take the same tensors? Those of an executable have to.
static bool same_tensors(const rt_program *a, const rt_program *b) {
  if (a->axis_count != b->axis_count) return false;
  for (uint32_t i = 0; i < a->axis_count; i++)
    if (a->axes[i].size != b->axes[i].size) return false;
  for (uint32_t i = 0;; i++) {
    bool ends = i == a->slot_count || a->slots[i].role == RT_TEMPORARY;
    if (ends != (i == b->slot_count || b->slots[i].role == RT_TEMPORARY)) return false;
    if (ends) return true;
    const rt_slot *x = &a->slots[i], *y = &b->slots[i];
    if (x->role != y->role || x->dtype != y->dtype || x->rank != y->rank ||
        memcmp(x->axes, y->axes, x->rank * sizeof *x->axes) != 0)
      return false;
  }
}

static bool read_variants(loader *l) {
  fathom_executable *executable = l->executable;
  rt_archive *a = &l->archive;
  uint32_t count = 0;
  a->arena = &executable->arena;
  executable->variants = rt_archive_array(a, NULL, &count, sizeof *executable->variants);
  rt_archive_require(a, count > 0, "it has no code");
  for (uint32_t i = 0; i < count && a->fault == NULL; i++) {
    api_variant *variant = &executable->variants[i];
    int64_t rows = 0;
    bool shared = false;
    rt_archive_i64(a, &rows);
    rt_archive_bool(a, &shared);
    rt_archive_require(a, !shared || i > 0, "the first code is another one's");
    rt_archive_require(a, rows >= 1 && (i == 0 || rows > variant[-1].rows),
                       "numbers of rows do not ascend");
    if (!is_sound(l)) return false;
    if (shared) *variant = variant[-1];
    variant->rows = rows;
    executable->variant_count++;
    if (!shared && !read_code(l, variant)) return false;
    rt_archive_require(
        a, same_tensors(executable->variants[0].artefact->program, variant->artefact->program),
        "its codes take different tensors");
  }
  rt_archive_require(a, a->at == a->in.length, "something follows its end");
  if (!is_sound(l)) return false;
  api_executable_complete(executable);
  return true;
}

static bool load_candidate(search *s, candidate *c, rt_device *device, uint32_t ordinal,
                           bool drop_cubins, fathom_executable **out) {
  fathom_executable *executable =
      api_executable_begin(s->call, s->kind, base_str_from(c->head.graph), out);
  executable->ordinal = ordinal;
  if (device != NULL)
    executable->arch = base_str_copy(&executable->arena, base_str_from(c->head.machine)).data;
  loader l = {.call = s->call,
              .bundle = s->bundle,
              .archive = c->archive,
              .head = &c->head,
              .device = device,
              .drop_cubins = drop_cubins,
              .executable = executable};
  return read_variants(&l);
}

static bool load_host(search *s, fathom_executable **out) {
  base_diag why;
  base_diag_init(&why, &s->call->arena, BASE_STR(""), BASE_STR(""));
  candidate *c = choose_host(s, &why);
  if (c != NULL) return load_candidate(s, c, NULL, 0, false, out);
  if (why.error_count == 0) return refuse(s, "the cpu");
  const base_report *last = &why.reports.data[why.reports.count - 1];
  base_error_status(&s->call->diag, BASE_UNSUPPORTED, nowhere, "%.*s", BASE_FMT(last->message));
  base_hint(&s->call->diag, "%.*s", BASE_FMT(last->hint));
  return false;
}

static bool load_device(search *s, fathom_executable **out) {
  api_device_key key = {.kind = API_CUDA};
  fit how;
  if (!api_device_ordinal(s->call, &key.ordinal)) return false;
  rt_device *device = api_device_open(s->call, &key);
  if (device == NULL) return false;
  candidate *c = choose_device(s, &device->facts, &how);
  if (c != NULL) return load_candidate(s, c, device, key.ordinal, how == AS_PTX, out);
  const rt_device_facts *facts = &device->facts;
  return refuse(s, base_str_format(&s->call->arena, "%s (sm_%u%u)%s%s", facts->name, facts->major,
                                   facts->minor, s->arch[0] ? " as " : "", s->arch)
                       .data);
}

bool api_bundle_load(api_call *call, const rt_bundle *bundle, const char *name, api_kind kind,
                     const char *arch, fathom_executable **out) {
  search s = {.call = call, .bundle = bundle, .wanted = name, .arch = arch, .kind = kind};
  if (name != NULL) s.name = base_str_from(name);
  if (!choose_name(&s) || !read_candidates(&s)) return false;
  if (kind == API_CPU) return load_host(&s, out);
  if (kind == API_CUDA) return load_device(&s, out);
  base_error_status(&call->diag, BASE_UNSUPPORTED, nowhere,
                    "bundles hold code for cpu and cuda, not for %s", api_targets[kind].name);
  base_hint(&call->diag, "compile the graph itself for it");
  return false;
}
