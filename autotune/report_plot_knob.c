// The plots of knobs: a row for each value, from the best time with it to the median; and the meter
// of the summary.
#include <stdlib.h>

#include "autotune/report_parts.h"

// ---- the scale ----------------------------------------------------------------------------------

enum { LEFT = 104, RIGHT = 304, WIDTH = 360, ROW = 19, TOP = 4 };

report_knob_scale report_knob_scale_of(const report_knobs *knobs) {
  report_knob_scale scale = {.unit = {"us", 1}};
  double low = 0, high = 0;
  for (uint32_t k = 0; k < knobs->count && k < REPORT_MAX_KNOBS; k++) {
    const report_knob *knob = &knobs->knobs[k];
    if (knob->value_count < 2) continue;
    scale.drawn++;
    for (uint32_t i = 0; i < knob->value_count; i++) {
      if (low == 0 || knob->values[i].best_us < low) low = knob->values[i].best_us;
      if (knob->values[i].median_us > high) high = knob->values[i].median_us;
    }
  }
  if (scale.drawn == 0) return scale;
  scale.unit = report_unit_of(high);
  scale.axis = report_axis_of(low / scale.unit.us, high / scale.unit.us, LEFT, RIGHT, true);
  return scale;
}

// ---- rows ---------------------------------------------------------------------------------------

static base_str short_text(base_arena *arena, base_str text, size_t most) {
  if (text.length <= most) return text;
  size_t length = most - 2;
  while (length > 0 && ((unsigned char)text.data[length] & 0xc0) == 0x80)
    length--; // not within a character
  return base_str_format(arena, "%.*s...", (int)length, text.data);
}

static void draw_value(const report_plot *plot, const report_value *value,
                       const report_knob_scale *scale, double y) {
  const double best = report_place(&scale->axis, value->best_us / scale->unit.us);
  const double median = report_place(&scale->axis, value->median_us / scale->unit.us);
  report_draw_line(plot, "range", best, y, median, y);
  report_draw_line(plot, "median", median, y - 5, median, y + 5);
  report_draw_circle(plot, value->count > 1 ? "swatch" : "single", best, y, 3.8);
  base_text label = {.arena = plot->out->arena};
  report_count(&label, value->count);
  report_draw_text(plot, "tick", "end", WIDTH - 6, y + 4, base_text_str(&label));
}

static int by_count_down(const void *left, const void *right) {
  const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
  return a > b ? -1 : a < b;
}

// How often a value must have been tried to be shown.
static uint32_t least_count(base_arena *arena, const report_knob *knob) {
  if (knob->value_count <= REPORT_MAX_VALUES) return 0;
  uint32_t *counts = base_new_array(arena, uint32_t, knob->value_count);
  for (uint32_t i = 0; i < knob->value_count; i++)
    counts[i] = knob->values[i].count;
  qsort(counts, knob->value_count, sizeof *counts, by_count_down);
  return counts[REPORT_MAX_VALUES - 1];
}

// The values to show, in order: those tried most, of equals the first ones.
static uint32_t choose_values(base_arena *arena, const report_knob *knob,
                              const report_value **shown) {
  const uint32_t least = least_count(arena, knob);
  uint32_t more = 0, count = 0;
  for (uint32_t i = 0; i < knob->value_count; i++)
    more += knob->values[i].count > least;
  uint32_t equal = REPORT_MAX_VALUES - (more < REPORT_MAX_VALUES ? more : REPORT_MAX_VALUES);
  for (uint32_t i = 0; i < knob->value_count && count < REPORT_MAX_VALUES; i++) {
    const bool above = knob->values[i].count > least;
    if (!above && equal == 0) continue;
    equal -= !above;
    shown[count++] = &knob->values[i];
  }
  return count;
}

void report_plot_knob(base_text *out, const report_digest *digest, const report_knob *knob,
                      const report_knob_scale *scale, uint32_t section, uint32_t number) {
  const report_value *shown[REPORT_MAX_VALUES];
  const uint32_t count = choose_values(out->arena, knob, shown);
  const double bottom = TOP + ROW * count + 2;
  const report_plot plot = {out, WIDTH, bottom + 42, LEFT, RIGHT, TOP, bottom};
  const char *kind = base_str_format(out->arena, "knob%u", number).data;
  base_text about = {.arena = out->arena};
  for (uint32_t i = 0; i < count; i++) {
    base_text_printf(&about, "%s%.*s: best ", i ? "; " : "", BASE_FMT(shown[i]->value));
    report_time(&about, shown[i]->best_us);
    report_put(&about, ", median ");
    report_time(&about, shown[i]->median_us);
  }
  report_plot_open(&plot, kind, section, "Best and median time for each value",
                   base_text_str(&about));
  const char *what = base_str_format(out->arena, "time of one call in %s", scale->unit.name).data;
  report_draw_x(&plot, &scale->axis, what);
  base_str initial = {0}, best = {0};
  const bool has_initial =
      report_setting_of(digest->history->initial.schedule, knob->name, &initial);
  const bool has_best = report_setting_of(digest->history->best.schedule, knob->name, &best);
  for (uint32_t i = 0; i < count; i++) {
    const double y = TOP + ROW * (i + 0.5) + 1;
    report_draw_text(&plot, "value", "end", 62, y + 4, short_text(out->arena, shown[i]->value, 8));
    if (has_initial && base_str_equal(initial, shown[i]->value)) report_draw_initial(&plot, 74, y);
    if (has_best && base_str_equal(best, shown[i]->value)) report_draw_best(&plot, 90, y);
    draw_value(&plot, shown[i], scale, y);
  }
  report_plot_close(&plot);
}

// ---- the meter ----------------------------------------------------------------------------------

void report_plot_meter(base_text *out, double initial, double best) {
  const report_plot plot = {out, 150, 18, 8, 142, 3, 15};
  const report_axis axis = report_axis_exact(0, 1.05, plot.left, plot.right, false);
  const double ceiling = report_place(&axis, 1);
  report_put(out,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"meter\" viewBox=\"0 0 150 18\" "
             "aria-hidden=\"true\">\n");
  report_draw_line(&plot, "axis", plot.left, 9, ceiling, 9);
  report_draw_line(&plot, "roof", ceiling, 2, ceiling, 16);
  if (initial > 0) report_draw_initial(&plot, report_place(&axis, initial), 9);
  if (best > 0) report_draw_best(&plot, report_place(&axis, best), 9);
  report_plot_close(&plot);
}
