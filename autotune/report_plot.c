// The plots of a search: times as they came, the roofline, shares of the ceiling.
#include <math.h>
#include <string.h>

#include "autotune/report_parts.h"

// ---- parts of several plots ---------------------------------------------------------------------

static base_str labelled_time(base_arena *arena, const char *name, double us) {
  base_text label = {.arena = arena};
  base_text_printf(&label, "%s ", name);
  report_time(&label, us);
  return base_text_str(&label);
}

static base_str labelled_number(base_arena *arena, const char *name, double number,
                                const char *unit) {
  base_text label = {.arena = arena};
  base_text_printf(&label, "%s ", name);
  report_number(&label, number);
  base_text_printf(&label, " %s", unit);
  return base_text_str(&label);
}

// Where a label of a marker at x goes, away from the nearer edge.
static const char *anchor_of(const report_plot *plot, double x) {
  return x > plot->left + (plot->right - plot->left) * 0.6 ? "end" : "start";
}

// A dot that says, under the pointer, what it stands for.
static void draw_titled(const report_plot *plot, const report_digest *digest,
                        const report_dot *dot) {
  const tune_history *history = digest->history;
  const tune_trial *trial = &history->entries[dot->entry].trial;
  base_text *out = plot->out;
  report_put(out, "<circle cx=\"");
  report_put_place(out, dot->x);
  report_put(out, "\" cy=\"");
  report_put_place(out, dot->y);
  report_put(out, "\" r=\"");
  report_put_place(out, dot->radius);
  report_put(out, "\"><title>");
  report_time(out, report_us_of(trial));
  report_put(out, ": ");
  const char *initial = history->initial.schedule;
  report_escape_some(out, report_difference(out->arena, initial, trial->schedule), 120);
  report_put(out, "</title></circle>\n");
}

// Of many dots, smaller ones: a path for each radius.
static void draw_untitled(const report_plot *plot, const report_dot *dots, uint32_t count) {
  report_dot *same = base_new_array(plot->out->arena, report_dot, count);
  double before = 0;
  while (true) {
    double radius = 0;
    for (uint32_t i = 0; i < count; i++) {
      if (dots[i].radius > before && (radius == 0 || dots[i].radius < radius))
        radius = dots[i].radius;
    }
    if (radius == 0) return;
    uint32_t number = 0;
    for (uint32_t i = 0; i < count; i++) {
      if (dots[i].radius == radius) same[number++] = dots[i];
    }
    report_draw_points(plot, same, number, radius * 0.6);
    before = radius;
  }
}

static bool draw_dots(const report_plot *plot, const report_digest *digest, const report_dot *dots,
                      uint32_t count, report_limits limits) {
  if (count > limits.titles) {
    draw_untitled(plot, dots, count);
    return false;
  }
  report_put(plot->out, "<g class=\"dots\">\n");
  for (uint32_t i = 0; i < count; i++)
    draw_titled(plot, digest, &dots[i]);
  report_put(plot->out, "</g>\n");
  return true;
}

static void widen(double *low, double *high, double value) {
  if (!(value > 0)) return;
  if (*low == 0 || value < *low) *low = value;
  if (value > *high) *high = value;
}

// ---- the search over time -----------------------------------------------------------------------

enum { LANE = 17 };

typedef struct history_plot {
  report_plot plot;
  const report_digest *digest;
  double low_us, high_us;      // 0: there is no time
  uint32_t timed, failed;      // entries
  bool lanes[REPORT_OUTCOMES]; // outcomes that occur
  double lane_bottom;          // of all lanes
  report_unit unit;
  report_axis seconds, times;
} history_plot;

static bool is_failure(uint32_t outcome) {
  return !tune_outcome_has_time(outcome);
}

static double entry_us(const tune_history_entry *entry) {
  return entry->trial.outcome == TUNE_TIMED ? report_us_of(&entry->trial) : 0;
}

static void survey_entries(history_plot *view) {
  const tune_history *history = view->digest->history;
  for (uint32_t i = 0; i < history->count; i++) {
    const double us = entry_us(&history->entries[i]);
    const uint32_t outcome = report_outcome_of(&history->entries[i].trial);
    widen(&view->low_us, &view->high_us, us);
    view->timed += us > 0;
    if (!is_failure(outcome)) continue;
    view->failed++;
    view->lanes[outcome] = true;
  }
  if (view->timed == 0) return;
  widen(&view->low_us, &view->high_us, view->digest->initial_us);
  widen(&view->low_us, &view->high_us, view->digest->best_us);
}

static void lay_out_history(history_plot *view) {
  report_plot *plot = &view->plot;
  plot->width = 720;
  plot->left = 100;
  plot->right = 704;
  plot->top = 32;
  plot->bottom = view->timed ? 270 : plot->top;
  view->lane_bottom = plot->bottom + (view->failed && view->timed ? 8 : 0);
  for (uint32_t outcome = 0; outcome < REPORT_OUTCOMES; outcome++)
    view->lane_bottom += view->lanes[outcome] ? LANE : 0;
  plot->height = view->lane_bottom + 44;
  const uint32_t count = view->digest->history->count;
  const double last = view->digest->seconds[count - 1];
  view->seconds = report_axis_exact(0, last > 0 ? last * 1.02 : 1, plot->left, plot->right, false);
  if (view->timed == 0) return;
  view->unit = report_unit_of(view->high_us);
  // Air below the winner, for its label.
  const double ratio = view->high_us / view->low_us;
  const double low = ratio >= 8 ? view->low_us * pow(ratio, -0.12)
                                : view->low_us - (view->high_us - view->low_us) * 0.12;
  view->times = report_axis_of(low / view->unit.us, view->high_us / view->unit.us, plot->bottom - 4,
                               plot->top, true);
}

static double place_us(const history_plot *view, double us) {
  return report_place(&view->times, us / view->unit.us);
}

static double place_entry(const history_plot *view, uint32_t entry) {
  return report_place(&view->seconds, view->digest->seconds[entry]);
}

static report_dots draw_trials(const history_plot *view, report_limits limits) {
  const tune_history *history = view->digest->history;
  base_arena *arena = view->plot.out->arena;
  report_dot *dots = base_new_array(arena, report_dot, view->timed);
  report_dots count = {0};
  for (uint32_t i = 0; i < history->count; i++) {
    const double us = entry_us(&history->entries[i]);
    if (us == 0) continue;
    const uint32_t level = history->entries[i].trial.level;
    const double radius = 2.2 + 0.6 * (level < 4 ? level : 4);
    dots[count.all++] = (report_dot){place_entry(view, i), place_us(view, us), radius, i};
  }
  count.drawn = report_thin(arena, &view->plot, dots, count.all, limits.dots);
  count.titled = draw_dots(&view->plot, view->digest, dots, count.drawn, limits);
  return count;
}

// The best time so far, as a line of steps.
static void draw_running_best(const history_plot *view) {
  const tune_history *history = view->digest->history;
  base_text *out = view->plot.out;
  double best = 0;
  report_put(out, "<path class=\"sofar\" d=\"");
  for (uint32_t i = 0; i < history->count; i++) {
    const double us = entry_us(&history->entries[i]);
    if (us == 0 || (best > 0 && us >= best)) continue;
    report_put(out, best > 0 ? " H" : "M");
    report_put_place(out, place_entry(view, i));
    report_put(out, best > 0 ? " V" : " ");
    report_put_place(out, place_us(view, us));
    best = us;
  }
  report_put(out, " H");
  report_put_place(out, place_entry(view, history->count - 1));
  report_put(out, "\"/>\n");
}

static void draw_default_line(const history_plot *view) {
  const report_plot *plot = &view->plot;
  const double us = view->digest->initial_us;
  if (us == 0) return;
  const double y = place_us(view, us);
  report_draw_line(plot, "default", plot->left, y, plot->right, y);
  report_draw_text(plot, "label", "end", plot->right, y - 6 < plot->top + 8 ? y + 15 : y - 6,
                   labelled_time(plot->out->arena, "default", us));
}

// The winner, at the last time that its schedule was timed.
static void draw_winner(const history_plot *view) {
  const report_plot *plot = &view->plot;
  const tune_history *history = view->digest->history;
  const double us = view->digest->best_us;
  if (us == 0 || view->digest->predicted) return;
  uint32_t last = history->count - 1;
  for (uint32_t i = 0; i < history->count; i++) {
    const tune_history_entry *entry = &history->entries[i];
    if (entry_us(entry) > 0 &&
        strcmp(report_str(entry->trial.schedule).data, history->best.schedule) == 0)
      last = i;
  }
  const double x = place_entry(view, last), y = place_us(view, us);
  report_draw_best(plot, x, y);
  const double below = y + 20 < plot->bottom + 4 ? y + 20 : y - 11;
  report_draw_text(plot, "label", anchor_of(plot, x), x, below,
                   labelled_time(plot->out->arena, "best", us));
}

// Failures as ticks, a lane for each outcome. A tick that would lie on another one is left out.
static void draw_lanes(const history_plot *view) {
  const report_plot *plot = &view->plot;
  const tune_history *history = view->digest->history;
  double y = plot->bottom + (view->timed ? 8 : 0);
  for (uint32_t outcome = 0; outcome < REPORT_OUTCOMES; outcome++) {
    if (!view->lanes[outcome]) continue;
    report_draw_text(plot, "tick", "end", plot->left - 7, y + LANE - 5,
                     report_str(outcome == REPORT_NO_TIME ? "no time" : report_outcome(outcome)));
    report_draw_line(plot, "grid", plot->left, y + LANE - 9, plot->right, y + LANE - 9);
    report_put(plot->out, "<path class=\"fail\" d=\"");
    double before = -1;
    for (uint32_t i = 0; i < history->count; i++) {
      const double x = round(place_entry(view, i));
      if (report_outcome_of(&history->entries[i].trial) != outcome || x == before) continue;
      report_put(plot->out, before < 0 ? "M" : " M");
      report_put_place(plot->out, x);
      report_put(plot->out, " ");
      report_put_place(plot->out, y + 2);
      report_put(plot->out, " V");
      report_put_place(plot->out, y + LANE - 3);
      before = x;
    }
    report_put(plot->out, "\"/>\n");
    y += LANE;
  }
}

static void draw_history_axes(const history_plot *view) {
  if (view->timed) {
    base_text what = {.arena = view->plot.out->arena};
    base_text_printf(&what, "time of one call in %s: lower is better", view->unit.name);
    report_draw_y(&view->plot, &view->times, what.data);
    report_draw_circle(&view->plot, "swatch", 470, 11, 3);
    report_draw_text(&view->plot, "name", "start", 479, 15, BASE_STR("a trial"));
    report_draw_line(&view->plot, "sofar", 540, 11, 562, 11);
    report_draw_text(&view->plot, "name", "start", 569, 15, BASE_STR("the best so far"));
  } else {
    report_draw_text(&view->plot, "name", "start", 4, 15, BASE_STR("nothing was timed"));
  }
  report_plot below = view->plot; // the time axis is under the lanes
  below.bottom = view->lane_bottom;
  report_draw_x(&below, &view->seconds, "seconds since the search began");
}

report_dots report_plot_history(base_text *out, const report_digest *digest, uint32_t section,
                                report_limits limits) {
  history_plot view = {.plot = {.out = out}, .digest = digest};
  survey_entries(&view);
  if (view.timed + view.failed == 0) return (report_dots){0};
  lay_out_history(&view);
  base_text about = {.arena = out->arena};
  report_count(&about, view.timed);
  report_put(&about, " timed trials");
  if (view.timed) {
    report_put(&about, " between ");
    report_time(&about, view.low_us);
    report_put(&about, " and ");
    report_time(&about, view.high_us);
  }
  report_put(&about, ", ");
  report_count(&about, view.failed);
  report_put(&about, " failures, in ");
  report_duration(&about, digest->seconds[digest->history->count - 1]);
  report_put(&about, ".");
  report_plot_open(&view.plot, "history", section, "Tuning history", base_text_str(&about));
  draw_history_axes(&view);
  report_dots dots = {0};
  if (view.timed) {
    dots = draw_trials(&view, limits);
    draw_running_best(&view);
    draw_default_line(&view);
    draw_winner(&view);
  }
  draw_lanes(&view);
  report_plot_close(&view.plot);
  return dots;
}

// ---- roofline -----------------------------------------------------------------------------------

typedef struct roofline_plot {
  report_plot plot;
  const report_digest *digest;
  double intensity; // flops a byte
  double memory;    // GB/s; 0: unknown
  double peak;      // GFLOP/s; 0: unknown
  double low, high; // GFLOP/s of the candidates
  report_axis x, y;
} roofline_plot;

// Room around the candidates, so that the slope of the memory roof and its end are seen.
static void lay_out_roofline(roofline_plot *view) {
  report_plot *plot = &view->plot;
  plot->width = 440;
  plot->height = 340;
  plot->left = 68;
  plot->right = 416;
  plot->top = 32;
  plot->bottom = 292;
  const double ridge = view->peak > 0 && view->memory > 0 ? view->peak / view->memory : 0;
  double low = view->intensity, high = view->intensity, top = view->high, bottom = view->low;
  widen(&low, &high, ridge);
  view->x = report_axis_exact(low / 16, high * 16, plot->left, plot->right, true);
  widen(&bottom, &top, view->peak);
  widen(&bottom, &top, view->memory * view->intensity);
  view->y = report_axis_exact(bottom / 6, top * 6, plot->bottom, plot->top, true);
}

static void draw_memory_roof(const roofline_plot *view) {
  if (view->memory == 0) return;
  const report_plot *plot = &view->plot;
  double from = view->x.low, to = view->x.high;
  if (from * view->memory < view->y.low) from = view->y.low / view->memory;
  if (to * view->memory > view->y.high) to = view->y.high / view->memory;
  if (view->peak > 0 && to * view->memory > view->peak) to = view->peak / view->memory;
  if (from >= to) return;
  const double x1 = report_place(&view->x, from), x2 = report_place(&view->x, to);
  const double y1 = report_place(&view->y, from * view->memory);
  const double y2 = report_place(&view->y, to * view->memory);
  report_draw_line(plot, "roof", x1, y1, x2, y2);
  // Along the line, between its lower end and the candidates.
  double end = report_place(&view->x, view->intensity);
  if (end > x2) end = x2;
  const double x = (x1 + end) / 2, y = y1 + (y2 - y1) * (x - x1) / (x2 - x1);
  report_draw_turned(plot, x, y, atan2(y2 - y1, x2 - x1) * 57.29577951308232,
                     labelled_number(plot->out->arena, "memory", view->memory, "GB/s"));
}

static void draw_peak(const roofline_plot *view) {
  if (view->peak == 0) return;
  const report_plot *plot = &view->plot;
  const double ridge = view->memory > 0 ? view->peak / view->memory : view->x.low;
  const double y = report_place(&view->y, view->peak);
  report_draw_line(plot, "roof", report_place(&view->x, ridge), y, plot->right, y);
  report_draw_text(plot, "label", "end", plot->right, y - 7,
                   labelled_number(plot->out->arena, "arithmetic", view->peak, "GFLOP/s"));
}

// All have the same intensity: they are spread sideways, by the golden ratio, so that neighbours in
// time are apart.
static report_dots draw_performances(const roofline_plot *view, report_limits limits) {
  const report_digest *digest = view->digest;
  const report_plot *plot = &view->plot;
  const double middle = report_place(&view->x, view->intensity);
  report_dot *dots = base_new_array(plot->out->arena, report_dot, digest->timed);
  for (uint32_t i = 0; i < digest->timed; i++) {
    const double performance = report_gflop_s(digest->history, digest->candidates[i].us);
    const double spread = fmod(i * 0.6180339887498949, 1) - 0.5;
    dots[i] = (report_dot){middle + 36 * spread, report_place(&view->y, performance), 2, 0};
  }
  const uint32_t drawn = report_thin(plot->out->arena, plot, dots, digest->timed, limits.dots);
  report_draw_points(plot, dots, drawn, drawn > limits.titles ? 1.2 : 2.2);
  return (report_dots){drawn, digest->timed, false};
}

static void draw_both(const roofline_plot *view) {
  const report_plot *plot = &view->plot;
  const tune_history *history = view->digest->history;
  const double initial = report_gflop_s(history, view->digest->initial_us);
  const double best = view->digest->predicted ? 0 : report_gflop_s(history, view->digest->best_us);
  const double middle = report_place(&view->x, view->intensity);
  const bool right = middle + 150 < plot->right;
  const double x = right ? middle + 26 : middle - 26;
  const char *anchor = right ? "start" : "end";
  double initial_y = report_place(&view->y, initial), best_y = report_place(&view->y, best);
  if (initial > 0) report_draw_initial(plot, middle, initial_y);
  if (best > 0) report_draw_best(plot, middle, best_y);
  const double gap = 15 - fabs(initial_y - best_y); // labels keep apart
  if (initial > 0 && best > 0 && gap > 0) {
    const double up = initial <= best ? 1 : -1;
    best_y -= up * gap / 2;
    initial_y += up * gap / 2;
  }
  base_arena *arena = plot->out->arena;
  if (initial > 0)
    report_draw_text(plot, "label", anchor, x, initial_y + 4,
                     labelled_number(arena, "default", initial, "GFLOP/s"));
  if (best > 0)
    report_draw_text(plot, "label", anchor, x, best_y + 4,
                     labelled_number(arena, "best", best, "GFLOP/s"));
}

report_dots report_plot_roofline(base_text *out, const report_digest *digest, uint32_t section,
                                 report_limits limits) {
  const tune_history *history = digest->history;
  const double flops = report_known(history->flops);
  roofline_plot view = {.plot = {.out = out},
                        .digest = digest,
                        .memory = report_known(history->ceiling_gb_s),
                        .peak = report_known(history->peak_gflop_s)};
  if (history->bytes == 0 || flops == 0 || digest->timed == 0) return (report_dots){0};
  if (view.memory == 0 && view.peak == 0) return (report_dots){0};
  view.intensity = flops / (double)history->bytes;
  for (uint32_t i = 0; i < digest->timed; i++)
    widen(&view.low, &view.high, report_gflop_s(history, digest->candidates[i].us));
  widen(&view.low, &view.high, report_gflop_s(history, digest->initial_us));
  widen(&view.low, &view.high, report_gflop_s(history, digest->best_us));
  if (view.low == 0) return (report_dots){0};
  lay_out_roofline(&view);
  base_text about = {.arena = out->arena};
  report_put(&about, "All candidates do ");
  report_number(&about, view.intensity);
  report_put(&about, " flops a byte and reach ");
  report_number(&about, view.low);
  report_put(&about, " to ");
  report_number(&about, view.high);
  report_put(&about, " GFLOP/s.");
  report_plot_open(&view.plot, "roofline", section, "Roofline", base_text_str(&about));
  report_draw_x(&view.plot, &view.x, "arithmetic intensity in flops a byte");
  report_draw_y(&view.plot, &view.y, "GFLOP/s: higher is better");
  draw_memory_roof(&view);
  draw_peak(&view);
  const report_dots dots = draw_performances(&view, limits);
  draw_both(&view);
  report_plot_close(&view.plot);
  return dots;
}

// ---- shares of the ceiling ----------------------------------------------------------------------

enum { COLUMN = 5 }; // width of a stack of dots

typedef struct shares_plot {
  report_plot plot;
  const report_digest *digest;
  bool of_ceiling; // else GB/s
  double initial, best, high;
  report_axis x;
} shares_plot;

static double share_at(const shares_plot *view, double us) {
  const tune_history *history = view->digest->history;
  return view->of_ceiling ? report_of_ceiling(history, us) : report_gb_s(history, us);
}

// What was measured in turns with the ceiling is better than what follows from two times.
static void measure_both(shares_plot *view) {
  const tune_history *history = view->digest->history;
  const double initial = report_known(history->initial_of_ceiling);
  const double best = report_known(history->best_of_ceiling);
  view->initial = share_at(view, view->digest->initial_us);
  view->best = view->digest->predicted ? 0 : share_at(view, view->digest->best_us);
  if (view->of_ceiling && view->initial > 0 && initial > 0) view->initial = initial;
  if (view->of_ceiling && view->best > 0 && best > 0) view->best = best;
}

// False: there is no share.
static bool lay_out_shares(shares_plot *view) {
  report_plot *plot = &view->plot;
  plot->width = 440;
  plot->height = 340;
  plot->left = 16;
  plot->right = 404;
  plot->top = 84;
  plot->bottom = 292;
  double low = 0, high = view->of_ceiling ? 1 : 0;
  widen(&low, &high, view->initial);
  widen(&low, &high, view->best);
  for (uint32_t i = 0; i < view->digest->timed; i++)
    widen(&low, &high, share_at(view, view->digest->candidates[i].us));
  if (high > 0) view->x = report_axis_exact(0, high * 1.03, plot->left, plot->right, false);
  return high > 0;
}

// Stacks the dots of each column, closer together where the tallest would not fit. Of too many dots
// each second, third, ... of a stack is drawn.
static report_dots draw_stacks(const shares_plot *view, report_limits limits) {
  const report_plot *plot = &view->plot;
  const report_digest *digest = view->digest;
  uint32_t stacks[128] = {0}, tallest = 1, drawn = 0;
  const uint32_t each = 1 + (digest->timed - 1) / limits.dots;
  report_dot *dots = base_new_array(plot->out->arena, report_dot, digest->timed);
  for (uint32_t i = 0; i < digest->timed; i++) {
    const report_candidate *candidate = &digest->candidates[i];
    const double x = report_place(&view->x, share_at(view, candidate->us));
    const uint32_t column = (uint32_t)((x - plot->left) / COLUMN), level = stacks[column]++;
    if (stacks[column] > tallest) tallest = stacks[column];
    if (level % each == 0)
      dots[drawn++] =
          (report_dot){plot->left + (column + 0.5) * COLUMN, level, 2.4, candidate->order};
  }
  const double room = plot->bottom - plot->top - 12;
  const double step = tallest * COLUMN > room ? room / tallest : COLUMN;
  for (uint32_t i = 0; i < drawn; i++)
    dots[i].y = plot->bottom - 4 - step * dots[i].y;
  const bool titled = draw_dots(plot, digest, dots, drawn, limits);
  return (report_dots){drawn, digest->timed, titled};
}

static void draw_share(const shares_plot *view, const char *name, double share, double y) {
  const report_plot *plot = &view->plot;
  const double x = report_place(&view->x, share);
  base_text label = {.arena = plot->out->arena};
  base_text_printf(&label, "%s ", name);
  if (view->of_ceiling) {
    report_fixed(&label, share, 2);
  } else {
    report_number(&label, share);
    report_put(&label, " GB/s");
  }
  const char *anchor = anchor_of(plot, x);
  report_draw_text(plot, "label", anchor, anchor[0] == 'e' ? x - 10 : x + 10, y + 4,
                   base_text_str(&label));
}

static void draw_shares(const shares_plot *view) {
  const report_plot *plot = &view->plot;
  if (view->of_ceiling) {
    const double x = report_place(&view->x, 1);
    report_draw_line(plot, "roof", x, plot->top - 6, x, plot->bottom);
    report_draw_turned(plot, x, plot->top + 34, 90, BASE_STR("the ceiling"));
  }
  if (view->initial > 0) {
    const double x = report_place(&view->x, view->initial);
    report_draw_line(plot, "default", x, 58, x, plot->bottom);
    report_draw_initial(plot, x, 58);
    draw_share(view, "default", view->initial, 58);
  }
  if (view->best > 0) {
    const double x = report_place(&view->x, view->best);
    report_draw_line(plot, "winner", x, 38, x, plot->bottom);
    report_draw_best(plot, x, 38);
    draw_share(view, "best", view->best, 38);
  }
}

report_dots report_plot_shares(base_text *out, const report_digest *digest, uint32_t section,
                               report_limits limits) {
  const tune_history *history = digest->history;
  shares_plot view = {.plot = {.out = out},
                      .digest = digest,
                      .of_ceiling = report_known(history->ceiling_gb_s) > 0};
  if (history->bytes == 0 || digest->timed == 0) return (report_dots){0};
  measure_both(&view);
  if (!lay_out_shares(&view)) return (report_dots){0};
  const char *what =
      view.of_ceiling ? "share of the memory ceiling" : "GB/s: bytes of a call by its time";
  base_text about = {.arena = out->arena};
  report_put(&about, "From ");
  report_number(&about, share_at(&view, digest->candidates[digest->timed - 1].us));
  report_put(&about, " to ");
  report_number(&about, share_at(&view, digest->candidates[0].us));
  report_put(&about, view.of_ceiling ? " of the ceiling." : " GB/s.");
  report_plot_open(&view.plot, "shares", section, "How near candidates came to the ceiling",
                   base_text_str(&about));
  report_draw_x(&view.plot, &view.x, what);
  report_draw_text(&view.plot, "name", "start", 4, 15,
                   BASE_STR("candidates, stacked: further right is better"));
  const report_dots dots = draw_stacks(&view, limits);
  draw_shares(&view);
  report_plot_close(&view.plot);
  return dots;
}
