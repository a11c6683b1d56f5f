// What all plots are drawn with: the <svg> around them, axes, lines, labels, markers, dots.
#include <math.h>
#include <string.h>

#include "autotune/report_parts.h"

// ---- elements -----------------------------------------------------------------------------------

void report_put_place(base_text *out, double place) {
  const double tenths = isfinite(place) ? round(place * 10) : 0;
  report_fixed(out, tenths / 10, fmod(tenths, 10) != 0);
}

static void put_attribute(base_text *out, const char *name, double place) {
  base_text_printf(out, " %s=\"", name);
  report_put_place(out, place);
  report_put(out, "\"");
}

void report_plot_open(const report_plot *plot, const char *kind, uint32_t section,
                      const char *title, base_str description) {
  base_text *out = plot->out;
  base_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"%s\" viewBox=\"0 0 %d %d\" "
                   "role=\"img\" aria-labelledby=\"k%u-%s-t k%u-%s-d\">\n"
                   "<title id=\"k%u-%s-t\">%s</title>\n<desc id=\"k%u-%s-d\">",
                   kind, (int)plot->width, (int)plot->height, section, kind, section, kind, section,
                   kind, title, section, kind);
  report_escape(out, description);
  report_put(out, "</desc>\n");
}

void report_plot_close(const report_plot *plot) {
  report_put(plot->out, "</svg>\n");
}

void report_draw_line(const report_plot *plot, const char *class, double x1, double y1, double x2,
                      double y2) {
  base_text_printf(plot->out, "<line class=\"%s\"", class);
  put_attribute(plot->out, "x1", x1);
  put_attribute(plot->out, "y1", y1);
  put_attribute(plot->out, "x2", x2);
  put_attribute(plot->out, "y2", y2);
  report_put(plot->out, "/>\n");
}

void report_draw_text(const report_plot *plot, const char *class, const char *anchor, double x,
                      double y, base_str text) {
  base_text_printf(plot->out, "<text class=\"%s\" text-anchor=\"%s\"", class, anchor);
  put_attribute(plot->out, "x", x);
  put_attribute(plot->out, "y", y);
  report_put(plot->out, ">");
  report_escape_some(plot->out, text, 48);
  report_put(plot->out, "</text>\n");
}

void report_draw_turned(const report_plot *plot, double x, double y, double degrees,
                        base_str text) {
  report_put(plot->out, "<g transform=\"translate(");
  report_put_place(plot->out, x);
  report_put(plot->out, " ");
  report_put_place(plot->out, y);
  report_put(plot->out, ") rotate(");
  report_put_place(plot->out, degrees);
  report_put(plot->out, ")\">");
  report_draw_text(plot, "label", "middle", 0, -7, text);
  report_put(plot->out, "</g>\n");
}

void report_draw_circle(const report_plot *plot, const char *class, double x, double y,
                        double radius) {
  base_text_printf(plot->out, "<circle class=\"%s\"", class);
  put_attribute(plot->out, "cx", x);
  put_attribute(plot->out, "cy", y);
  put_attribute(plot->out, "r", radius);
  report_put(plot->out, "/>\n");
}

// A closed path through four points around x, y: how far from there each is.
static void draw_four(const report_plot *plot, const char *class, double x, double y,
                      const double offsets[8]) {
  base_text_printf(plot->out, "<path class=\"%s\" d=\"", class);
  for (int i = 0; i < 4; i++) {
    report_put(plot->out, i ? " L" : "M");
    report_put_place(plot->out, x + offsets[2 * i]);
    report_put(plot->out, " ");
    report_put_place(plot->out, y + offsets[2 * i + 1]);
  }
  report_put(plot->out, " Z\"/>\n");
}

void report_draw_best(const report_plot *plot, double x, double y) {
  static const double diamond[] = {0, -6.5, 6.5, 0, 0, 6.5, -6.5, 0};
  draw_four(plot, "best", x, y, diamond);
}

void report_draw_initial(const report_plot *plot, double x, double y) {
  static const double square[] = {-4.5, -4.5, 4.5, -4.5, 4.5, 4.5, -4.5, 4.5};
  draw_four(plot, "initial", x, y, square);
}

// ---- axes ---------------------------------------------------------------------------------------

static base_str tick_label(base_arena *arena, const report_axis *axis, uint32_t index) {
  base_text label = {.arena = arena};
  report_tick(&label, axis, index);
  return base_text_str(&label);
}

void report_draw_x(const report_plot *plot, const report_axis *axis, const char *what) {
  for (uint32_t i = 0; i < axis->tick_count; i++) {
    const double x = report_place(axis, axis->ticks[i]);
    report_draw_line(plot, "grid", x, plot->top, x, plot->bottom + 4);
    report_draw_text(plot, "tick", "middle", x, plot->bottom + 17,
                     tick_label(plot->out->arena, axis, i));
  }
  report_draw_line(plot, "axis", plot->left, plot->bottom, plot->right, plot->bottom);
  report_draw_text(plot, "name", "middle", (plot->left + plot->right) / 2, plot->bottom + 35,
                   report_str(what));
}

void report_draw_y(const report_plot *plot, const report_axis *axis, const char *what) {
  for (uint32_t i = 0; i < axis->tick_count; i++) {
    const double y = report_place(axis, axis->ticks[i]);
    report_draw_line(plot, "grid", plot->left, y, plot->right, y);
    report_draw_text(plot, "tick", "end", plot->left - 7, y + 4,
                     tick_label(plot->out->arena, axis, i));
  }
  report_draw_text(plot, "name", "start", 4, 15, report_str(what));
}

// ---- dots ---------------------------------------------------------------------------------------

void report_draw_points(const report_plot *plot, const report_dot *dots, uint32_t count,
                        double radius) {
  report_put(plot->out, "<path class=\"points\" stroke-width=\"");
  report_put_place(plot->out, 2 * radius);
  report_put(plot->out, "\" d=\"");
  for (uint32_t i = 0; i < count; i++) { // round ends make a dot of a line without length
    report_put(plot->out, "M");
    report_put_place(plot->out, dots[i].x);
    report_put(plot->out, " ");
    report_put_place(plot->out, dots[i].y);
    report_put(plot->out, "h0");
  }
  report_put(plot->out, "\"/>\n");
}

// Marks the cells of a grid of `size` units that dots lie in; counts the cells, and keeps the first
// dot of each when `keep`.
static uint32_t fill_cells(const report_plot *plot, bool *cells, double size, report_dot *dots,
                           uint32_t count, bool keep) {
  const size_t columns = (size_t)(plot->width / size) + 1;
  memset(cells, 0, columns * ((size_t)(plot->height / size) + 1));
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    bool *cell = &cells[(size_t)(dots[i].y / size) * columns + (size_t)(dots[i].x / size)];
    if (*cell) continue;
    *cell = true;
    if (keep) dots[kept] = dots[i];
    kept++;
  }
  return kept;
}

uint32_t report_thin(base_arena *arena, const report_plot *plot, report_dot *dots, uint32_t count,
                     uint32_t most) {
  if (count <= most) return count;
  bool *cells = base_new_array(arena, bool, ((size_t)plot->width + 1) * ((size_t)plot->height + 1));
  double size = 1;
  while (fill_cells(plot, cells, size, dots, count, false) > most)
    size *= 1.2;
  return fill_cells(plot, cells, size, dots, count, true);
}
