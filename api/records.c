// records: what fathom_tune remembers, for people: looking into the files, taking in others, throwing
// away.
#include "api/records.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cuda/driver.h"

// ---- warnings -----------------------------------------------------------------------------------

// What the call's diagnostics hold while there is no error.
static fathom_status warnings_out(api_call *call, fathom_text *warnings) {
  if (warnings == NULL || call->diag.error_count > 0 || call->diag.reports.count == 0)
    return FATHOM_OK;
  return api_text_out(warnings, base_diag_render(&call->diag));
}

// Both texts or none.
static fathom_status texts_out(api_call *call, fathom_text *out, const base_text *text,
                               fathom_text *warnings) {
  fathom_status status = warnings_out(call, warnings);
  if (status == FATHOM_OK) status = api_text_out(out, base_text_str(text));
  if (status != FATHOM_OK) fathom_text_destroy(warnings);
  return status;
}

static fathom_status failed(const api_call *call) {
  return (fathom_status)call->diag.status;
}

// ---- the folder ---------------------------------------------------------------------------------

static bool fail_folder(api_call *call, const char *folder, const char *why) {
  base_error_status(&call->diag, BASE_IO, (base_loc){0},
                    "the folder of tuning records %s cannot be read: %s", folder, why);
  base_hint(&call->diag, "name another cache folder in $FATHOM_CACHE");
  return false;
}

// One that is missing holds no records; one that cannot be read may hold some.
static bool is_readable(api_call *call, const char *folder) {
  struct stat info;
  if (stat(folder, &info) != 0)
    return errno == ENOENT || fail_folder(call, folder, strerror(errno));
  if (!S_ISDIR(info.st_mode)) return fail_folder(call, folder, "it is not a folder");
  return access(folder, R_OK | X_OK) == 0 || fail_folder(call, folder, strerror(errno));
}

// What this call needs to know of this machine. False: see diag.
static bool find_machine(api_call *call, tune_database_options *options, tune_key *own) {
  api_place place;
  if (call->context->cache_directory[0] == 0) {
    base_error(&call->diag, (base_loc){0}, "the cache is off, so no tuning records are kept");
    base_hint(&call->diag, "name a folder in $FATHOM_CACHE, or leave it unset");
    return false;
  }
  if (api_codegen(call, API_CPU) == NULL) return false;
  if (!api_tuned_place_cpu(call, &place)) {
    base_error_status(&call->diag, BASE_UNSUPPORTED, (base_loc){0},
                      "the cpu target does not know this machine, so it has no tuning records");
    return false;
  }
  *options = place.options;
  *own = api_tuned_key(call, NULL, &place, 0);
  return is_readable(call, options->folder);
}

// ---- a set of files -----------------------------------------------------------------------------

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

// Hands on warnings; an error is what is wrong with this file only.
static const char *take_reports(api_call *call, const base_diag *found) {
  const char *problem = "";
  for (uint32_t i = 0; i < found->reports.count; i++) {
    const base_report *report = &found->reports.data[i];
    if (report->severity == BASE_ERROR && problem[0] == 0) problem = report->message.data;
    base_warning(&call->diag, (base_loc){0}, "%.*s", BASE_FMT(report->message));
    if (report->hint.length > 0) base_hint(&call->diag, "%.*s", BASE_FMT(report->hint));
  }
  return problem;
}

// Where a compilation for a file's device would look: that of this machine's CPU, of the GPU at hand, or
// of one that stands for an architecture.
static bool place_of(api_call *call, const tune_device *device, api_place *place) {
  if (strcmp(device->kind, "cuda") != 0) return api_tuned_place_cpu(call, place);
  rt_device_facts facts;
  uint32_t ordinal;
  base_diag unused;
  base_diag_init(&unused, &call->arena, BASE_STR(""), BASE_STR(""));
  api_request request = {.kind = API_CUDA};
  unsigned major = 0, minor = 0;
  if (sscanf(device->features, "%u.%u", &major, &minor) != 2) return false;
  snprintf(request.arch, sizeof request.arch, "sm_%u%u", major % 1000, minor % 10);
  if (api_device_ordinal(call, &ordinal) && rt_cuda_facts(ordinal, &facts, &unused) == BASE_OK &&
      strcmp(facts.name, device->name) == 0)
    request.facts = &facts;
  return api_tuned_place(call, &request, place);
}

static api_record_file make_file(api_call *call, const char *path, const tune_database *database) {
  api_record_file file = {.path = path, .database = database, .problem = ""};
  api_place place;
  if (database == NULL || !place_of(call, tune_database_device(database), &place)) return file;
  file.compiles = true;
  file.own = api_tuned_key(call, NULL, &place, 0);
  file.here = tune_device_equal(tune_database_device(database), &place.options.device);
  const char *own = tune_database_path_of(&call->arena, "", &place.options.device);
  file.found = strcmp(name_of(path), name_of(own)) == 0;
  return file;
}

static api_record_file read_file(api_call *call, const char *path) {
  base_diag found;
  base_diag_init(&found, &call->arena, BASE_STR(""), BASE_STR(""));
  const tune_database *database = tune_database_open_file(&call->arena, path, &found);
  api_record_file file = make_file(call, path, database);
  file.problem = take_reports(call, &found);
  return file;
}

static void read_folder(api_call *call, api_record_set *set, const char *folder, bool shipped) {
  uint32_t count;
  const char *const *paths = tune_database_list(&call->arena, folder, &count);
  api_record_file *files = base_new_array(&call->arena, api_record_file, set->count + count);
  if (set->count > 0) memcpy(files, set->files, set->count * sizeof *files);
  set->files = files;
  for (uint32_t i = 0; i < count; i++) {
    api_record_file file = read_file(call, paths[i]);
    file.shipped = shipped;
    set->files[set->count++] = file;
  }
}

// False: see the call's diag.
static bool read_named(api_call *call, api_record_set *set, const char *path) {
  const tune_database *database = tune_database_open_file(&call->arena, path, &call->diag);
  if (database == NULL) return false;
  set->files = base_new(&call->arena, api_record_file);
  set->files[0] = make_file(call, path, database);
  set->files[0].found = true;
  set->count = 1;
  return true;
}

bool api_records_read(api_call *call, api_record_set *set, const char *file) {
  const char *shipped = api_share_folder(&call->arena, "tuned");
  set->folder = "";
  if (file != NULL) return read_named(call, set, file);
  if (call->context->cache_directory[0] == 0) return true;
  set->folder = base_str_format(&call->arena, "%s/tuned", call->context->cache_directory).data;
  if (!is_readable(call, set->folder)) return false;
  read_folder(call, set, set->folder, false);
  if (shipped != NULL) read_folder(call, set, shipped, true);
  return true;
}

// ---- list and show ------------------------------------------------------------------------------

typedef struct look_frame {
  const fathom_records_options *options;
  bool full;
  fathom_text *out, *warnings;
} look_frame;

// Is there a record of the graph that is asked for? Else says which graphs there are.
static bool has_graph(api_call *call, const api_record_set *set, const char *graph) {
  BASE_VECTOR(const char *) names = {0};
  for (uint32_t f = 0; f < set->count; f++) {
    const tune_database *database = set->files[f].database;
    uint32_t count = database != NULL ? tune_database_count(database) : 0;
    for (uint32_t i = 0; i < count; i++) {
      const tune_record *record = tune_database_at(database, i);
      if (api_record_is_of(record, graph)) return true;
      base_push(&call->arena, &names, record->graph_name);
    }
  }
  base_error(&call->diag, (base_loc){0}, "there is no tuning record of a graph @%s", graph);
  const char *nearest = base_nearest(base_str_from(graph), names.data, names.count);
  if (nearest != NULL) base_hint(&call->diag, "did you mean @%s?", nearest);
  return false;
}

static fathom_status look_body(api_call *call, void *opaque) {
  look_frame *frame = opaque;
  api_record_set set = {0};
  const char *graph = frame->options->graph;
  if (graph != NULL && graph[0] == '@') graph++;
  if (!api_records_read(call, &set, frame->options->file)) return failed(call);
  if (graph != NULL && !has_graph(call, &set, graph)) return failed(call);
  base_text text = {.arena = &call->arena};
  if (frame->options->json != 0)
    api_records_json(&set, graph, frame->full, &text);
  else
    (frame->full ? api_records_show : api_records_list)(&set, graph, &text);
  return texts_out(call, frame->out, &text, frame->warnings);
}

static fathom_status look(fathom_context *context, const fathom_records_options *given, bool full,
                          fathom_text *out, fathom_text *warnings) {
  fathom_records_options options;
  fathom_status status = API_STRUCT_IN(options, given, fathom_records_options);
  if (status != FATHOM_OK) return status;
  look_frame frame = {&options, full, out, warnings};
  return api_call_run(context, look_body, &frame);
}

static void clear_texts(fathom_text *out, fathom_text *warnings) {
  if (out != NULL) *out = (fathom_text){0};
  if (warnings != NULL) *warnings = (fathom_text){0};
}

fathom_status fathom_records_list(fathom_context *context, const fathom_records_options *options,
                                  fathom_text *out, fathom_text *warnings) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(out);
  clear_texts(out, warnings);
  return look(context, options, false, out, warnings);
}

fathom_status fathom_records_show(fathom_context *context, const fathom_records_options *options,
                                  fathom_text *out, fathom_text *warnings) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(out);
  clear_texts(out, warnings);
  return look(context, options, true, out, warnings);
}

// ---- merge --------------------------------------------------------------------------------------

// This machine's own file. NULL: see the call's diag.
static tune_database *open_own(api_call *call, bool read_only, tune_key *own) {
  tune_database_options options;
  if (!find_machine(call, &options, own)) return NULL;
  options.shipped = NULL;
  options.read_only = read_only;
  return tune_database_open(&call->arena, &options, &call->diag);
}

typedef struct merge_frame {
  const char *file;
  fathom_records_merged *merged;
  fathom_text *warnings;
} merge_frame;

static fathom_status merge_body(api_call *call, void *opaque) {
  merge_frame *frame = opaque;
  tune_key own;
  tune_merge_counts counts;
  tune_database *database = open_own(call, false, &own);
  if (database == NULL ||
      tune_database_merge(database, frame->file, &counts, &call->diag) != BASE_OK)
    return failed(call);
  frame->merged->added = counts.added;
  frame->merged->replaced = counts.replaced;
  frame->merged->kept = counts.kept;
  return warnings_out(call, frame->warnings);
}

fathom_status fathom_records_merge(fathom_context *context, const char *file,
                                   fathom_records_merged *merged, fathom_text *warnings) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(file);
  API_REQUIRE(merged);
  clear_texts(NULL, warnings);
  fathom_records_merged counts = {.size = sizeof counts};
  fathom_status status = API_STRUCT_OUT(merged, counts, fathom_records_merged);
  if (status != FATHOM_OK) return status;
  merge_frame frame = {file, &counts, warnings};
  status = api_call_run(context, merge_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(merged, counts, fathom_records_merged) : status;
}

// ---- prune --------------------------------------------------------------------------------------

typedef struct prune_frame {
  const fathom_records_prune_options *options;
  api_call *call;
  tune_key own;
  BASE_VECTOR(api_record_gone) gone;
  uint32_t *pruned;
  fathom_text *out, *warnings;
} prune_frame;

// "2026-11-30", or with "T20:00:00Z".
static bool is_date(const char *text) {
  static const char form[] = "dddd-Md-DdThd:md:mdZ";
  static const char most[] = {['d'] = '9', ['M'] = '1', ['D'] = '3', ['h'] = '2', ['m'] = '5'};
  size_t length = strlen(text);
  if (length != 10 && length != sizeof form - 1) return false;
  for (size_t i = 0; i < length; i++) {
    bool digit = strchr("dMDhm", form[i]) != NULL;
    if (digit ? text[i] < '0' || text[i] > most[(unsigned char)form[i]] : text[i] != form[i])
      return false;
  }
  int month = (text[5] - '0') * 10 + text[6] - '0', day = (text[8] - '0') * 10 + text[9] - '0';
  int hour = length > 10 ? (text[11] - '0') * 10 + text[12] - '0' : 0;
  return month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour <= 23;
}

static void note_gone(void *user, const tune_record *record) {
  prune_frame *frame = user;
  base_arena *arena = &frame->call->arena;
  const char *before = frame->options->before;
  const char *why = frame->options->stale
                        ? api_record_difference(arena, &frame->own, &record->key, false, true)
                        : "";
  if (why[0] == 0) why = base_str_format(arena, "older than %s", before != NULL ? before : "").data;
  base_push(arena, &frame->gone, (api_record_gone){*record, why});
}

static fathom_status prune_body(api_call *call, void *opaque) {
  prune_frame *frame = opaque;
  frame->call = call;
  bool dry = frame->options->dry != 0, stale = frame->options->stale != 0;
  tune_database *database = open_own(call, dry, &frame->own);
  if (database == NULL) return failed(call);
  const tune_key *own = &frame->own;
  tune_prune_rule rule = {.before = frame->options->before};
  if (stale)
    rule = (tune_prune_rule){own->generator, own->compiler, own->driver, own->timing,
                             .before = frame->options->before};
  // Where nothing goes, nothing is written, not even a folder.
  uint32_t pruned = 0;
  if (tune_database_prune(database, &rule, true, &pruned, &call->diag) != BASE_OK)
    return failed(call);
  rule.gone = note_gone;
  rule.user = frame;
  if (pruned > 0 && tune_database_prune(database, &rule, dry, &pruned, &call->diag) != BASE_OK)
    return failed(call);
  base_text text = {.arena = &call->arena};
  api_records_gone(frame->gone.data, frame->gone.count, &text);
  *frame->pruned = pruned;
  return texts_out(call, frame->out, &text, frame->warnings);
}

fathom_status fathom_records_prune(fathom_context *context,
                                   const fathom_records_prune_options *options, uint32_t *pruned,
                                   fathom_text *out, fathom_text *warnings) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(options);
  API_REQUIRE(pruned);
  API_REQUIRE(out);
  *pruned = 0;
  clear_texts(out, warnings);
  fathom_records_prune_options wanted;
  fathom_status status = API_STRUCT_IN(wanted, options, fathom_records_prune_options);
  if (status != FATHOM_OK) return status;
  if (!wanted.stale && wanted.before == NULL)
    return api_fail(FATHOM_INVALID, "nothing is named that is to go: set 'stale' or 'before'");
  if (wanted.before != NULL && !is_date(wanted.before))
    return api_fail(FATHOM_INVALID,
                    "'%s' is no date: expected one such as 2026-11-30 or 2026-11-30T20:00:00Z",
                    wanted.before);
  prune_frame frame = {.options = &wanted, .pruned = pruned, .out = out, .warnings = warnings};
  return api_call_run(context, prune_body, &frame);
}

// ---- export -------------------------------------------------------------------------------------

typedef struct export_frame {
  fathom_text *out, *warnings;
} export_frame;

static fathom_status export_body(api_call *call, void *opaque) {
  export_frame *frame = opaque;
  tune_key own;
  const tune_database *database = open_own(call, true, &own);
  if (database == NULL) return failed(call);
  if (tune_database_count(database) == 0) {
    base_error(&call->diag, (base_loc){0}, "there are no tuning records of this machine in %s",
               tune_database_path(database));
    base_hint(&call->diag, "`fathom tune` makes them");
    return failed(call);
  }
  base_text text = {.arena = &call->arena};
  tune_database_export(database, &text);
  return texts_out(call, frame->out, &text, frame->warnings);
}

fathom_status fathom_records_export(fathom_context *context, fathom_text *out,
                                    fathom_text *warnings) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(out);
  clear_texts(out, warnings);
  export_frame frame = {out, warnings};
  return api_call_run(context, export_body, &frame);
}

// ---- validate -----------------------------------------------------------------------------------

typedef struct validate_frame {
  const char *file;
  fathom_records_validation *result;
  fathom_text *problems;
} validate_frame;

// How many records can be read; what cannot be is known by then.
static uint32_t count_records(api_call *call, const char *path) {
  base_diag known;
  base_diag_init(&known, &call->arena, BASE_STR(""), BASE_STR(""));
  const tune_database *database = tune_database_open_file(&call->arena, path, &known);
  return database != NULL ? tune_database_count(database) : 0;
}

static void validate_file(api_call *call, validate_frame *frame, const char *path,
                          base_text *problems) {
  base_diag found;
  base_diag_init(&found, &call->arena, BASE_STR(""), BASE_STR(""));
  frame->result->files++;
  if (!tune_database_validate(&call->arena, path, &found)) {
    base_str text = base_diag_render(&found);
    base_text_append(problems, text.data, text.length);
    frame->result->problems += found.error_count;
  }
  frame->result->records += count_records(call, path);
}

static bool can_read(api_call *call, const char *path) {
  base_str text, why;
  base_status status = base_file_read(&call->arena, path, &text, &why);
  if (status != BASE_OK)
    base_error_status(&call->diag, status, (base_loc){0}, "%.*s", BASE_FMT(why));
  return status == BASE_OK;
}

static bool validate_folder(api_call *call, validate_frame *frame, base_text *problems) {
  const char *cache = call->context->cache_directory;
  if (cache[0] == 0) {
    base_error(&call->diag, (base_loc){0},
               "the cache is off, so there are no files of tuning records");
    base_hint(&call->diag, "name a file, or a folder in $FATHOM_CACHE");
    return false;
  }
  const char *folder = base_str_format(&call->arena, "%s/tuned", cache).data;
  if (!is_readable(call, folder)) return false;
  uint32_t count;
  const char *const *paths = tune_database_list(&call->arena, folder, &count);
  for (uint32_t i = 0; i < count; i++)
    validate_file(call, frame, paths[i], problems);
  return true;
}

static fathom_status validate_body(api_call *call, void *opaque) {
  validate_frame *frame = opaque;
  base_text problems = {.arena = &call->arena};
  if (frame->file == NULL) {
    if (!validate_folder(call, frame, &problems)) return failed(call);
  } else {
    if (!can_read(call, frame->file)) return failed(call);
    validate_file(call, frame, frame->file, &problems);
  }
  return api_text_out(frame->problems, base_text_str(&problems));
}

fathom_status fathom_records_validate(fathom_context *context, const char *file,
                                      fathom_records_validation *result, fathom_text *problems) {
  api_error_clear();
  API_REQUIRE(context);
  API_REQUIRE(result);
  API_REQUIRE(problems);
  clear_texts(problems, NULL);
  fathom_records_validation counts = {.size = sizeof counts};
  fathom_status status = API_STRUCT_OUT(result, counts, fathom_records_validation);
  if (status != FATHOM_OK) return status;
  validate_frame frame = {file, &counts, problems};
  status = api_call_run(context, validate_body, &frame);
  return status == FATHOM_OK ? API_STRUCT_OUT(result, counts, fathom_records_validation) : status;
}
