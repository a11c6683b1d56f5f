// The figures of a machine in a file beside its records: a YAML mapping, written once. What is damaged is
// measured again.
#include "autotune/calibration.h"

#include <math.h>
#include <string.h>

#include "base/yaml.h"

const tune_calibration_part tune_calibration_parts[TUNE_CALIBRATION_PARTS] = {
#define CALIBRATION(name, usual, unit, summary)                                                    \
  {#name, unit, summary, offsetof(tune_calibration, name), usual},
#include "autotune/calibration.def"
#undef CALIBRATION
};

double *tune_calibration_value(tune_calibration *calibration, const tune_calibration_part *part) {
  return (double *)((char *)calibration + part->offset);
}

tune_calibration tune_calibration_usual(void) {
  return (tune_calibration){
#define CALIBRATION(name, usual, unit, summary) .name = (usual),
#include "autotune/calibration.def"
#undef CALIBRATION
  };
}

// ---- the file -----------------------------------------------------------------------------------

static bool read_value(const base_yaml *root, const char *name, double *value, base_diag *diag) {
  const base_yaml *node = base_yaml_find(root, name);
  return node && base_yaml_number(node, value, diag) && *value > 0;
}

bool tune_calibration_read(base_arena *arena, const char *path, tune_calibration *out,
                           bool *contended) {
  base_str text, why;
  base_diag unused;
  base_diag_init(&unused, arena, BASE_STR(""), BASE_STR(""));
  if (base_file_read(arena, path, &text, &why) != BASE_OK) return false;
  const base_yaml *root = base_yaml_read(arena, text, 1, &unused);
  double version = 0;
  tune_calibration read;
  if (!root || !read_value(root, "version", &version, &unused)) return false;
  const base_yaml *busy = base_yaml_find(root, "contended");
  bool good =
      version == TUNE_CALIBRATION_VERSION && busy && base_yaml_bool(busy, contended, &unused);
  for (uint32_t i = 0; i < TUNE_CALIBRATION_PARTS && good; i++) {
    const tune_calibration_part *part = &tune_calibration_parts[i];
    good = read_value(root, part->name, tune_calibration_value(&read, part), &unused);
  }
  if (good) *out = read;
  return good;
}

base_status tune_calibration_write(base_arena *arena, const char *path,
                                   const tune_calibration *calibration, bool contended,
                                   base_str *why) {
  base_text text = {.arena = arena};
  tune_calibration copy = *calibration;
  base_text_printf(&text,
                   "# What Fathom's cost model knows of this machine. Without this file it is "
                   "measured again.\n");
  base_yaml_writer *writer = base_yaml_begin(arena, &text);
  base_yaml_put_mapping(writer, BASE_YAML_BLOCK);
  base_yaml_put_string(writer, "version");
  base_yaml_put_integer(writer, TUNE_CALIBRATION_VERSION);
  base_yaml_put_string(writer, "contended");
  base_yaml_put_bool(writer, contended);
  for (uint32_t i = 0; i < TUNE_CALIBRATION_PARTS; i++) {
    base_yaml_put_string(writer, tune_calibration_parts[i].name);
    base_yaml_put_number(writer, *tune_calibration_value(&copy, &tune_calibration_parts[i]));
  }
  base_yaml_put_end(writer);
  base_yaml_finish(writer, false);
  return base_file_write(arena, path, text.data, text.length, why);
}
