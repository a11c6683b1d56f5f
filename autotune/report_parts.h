// autotune, internal: what the page about a tuning run is put together from.
//
// Sections: text, numbers, axes, what a history says, knobs, drawing, plots.
#ifndef FATHOM_AUTOTUNE_REPORT_PARTS_H
#define FATHOM_AUTOTUNE_REPORT_PARTS_H

#include "autotune/report.h"

// ---- text ---------------------------------------------------------------------------------------

// Fixed markup.
void report_put(base_text *out, const char *markup);
// Text of others, escaped for elements and attributes. Bytes that are no UTF-8, and characters that
// XML does not allow, become U+FFFD; spaces of all kinds become a space.
void report_escape(base_text *out, base_str text);
// The same, of at most `most` characters; "..." stands for the rest.
void report_escape_some(base_text *out, base_str text, uint32_t most);
base_str report_str(const char *terminated); // NULL is ""

// ---- numbers ------------------------------------------------------------------------------------

// All print a dash for what is not finite, and a dot whatever the locale.
void report_fixed(base_text *out, double value, uint32_t decimals); // at most 6 decimals
// Three digits or more, as many as there are before the point: 0.812, 81.2, 8,120.
void report_number(base_text *out, double value);
void report_count(base_text *out, uint64_t value);                  // 57,344
void report_time(base_text *out, double us);                        // 812 us
void report_duration(base_text *out, double seconds);               // 3 min 20 s
void report_amount(base_text *out, double value, const char *unit); // 135 MB, by powers of 1000

// The time of a trial that was timed or predicted, if it is a time; else 0.
double report_us_of(const tune_trial *trial);
// `value` if it is finite and above 0 and no nonsense; else 0.
double report_known(double value);

// ---- axes ---------------------------------------------------------------------------------------

enum { REPORT_MAX_TICKS = 16 };

// Maps values from `low` to `high` to places from `from` to `to`.
typedef struct report_axis {
  bool log;
  double low, high, from, to;
  uint32_t tick_count;
  double ticks[REPORT_MAX_TICKS]; // 1, 2 or 5 times a power of ten; those of a log axis may skip
  uint32_t decimals;              // that linear ticks need
} report_axis;

// An axis for values from `low` to `high` (finite; above 0 for a log axis), with some air: a log one
// when they differ by a factor of 8 or more and `may_log`.
report_axis report_axis_of(double low, double high, double from, double to, bool may_log);
// Exactly from `low` to `high`.
report_axis report_axis_exact(double low, double high, double from, double to, bool log);
double report_place(const report_axis *axis, double value); // values outside go to the nearer end
void report_tick(base_text *out, const report_axis *axis, uint32_t index);

// The unit for times up to `us`: its name, and how many microseconds it is.
typedef struct report_unit {
  const char *name;
  double us;
} report_unit;

report_unit report_unit_of(double us);

// ---- what a history says ------------------------------------------------------------------------

// A schedule with the trial that counts: that of the highest level, of several the last. What was
// only predicted counts where nothing was run.
typedef struct report_candidate {
  const tune_history_entry *entry;
  uint32_t order; // of its entry
  double us;      // 0: not timed
} report_candidate;

enum { REPORT_NO_TIME = TUNE_PREDICTED + 1, REPORT_OUTCOMES }; // timed, but with no usable time

typedef struct report_digest {
  const tune_history *history;
  uint32_t count;
  report_candidate *candidates;       // timed ones first, the fastest first; then by order
  uint32_t timed;                     // how many of them are timed
  uint32_t outcomes[REPORT_OUTCOMES]; // candidates by outcome
  uint32_t trials;                    // entries that were run: all but the predicted ones
  double *seconds;                    // of each entry, never falling and never nonsense
  double initial_us, best_us;         // 0: unknown
  bool predicted;                     // the winner was never run
} report_digest;

report_digest report_digest_of(base_arena *arena, const tune_history *history);
// How an outcome is called, after a number: "timed out".
const char *report_outcome(uint32_t outcome);
uint32_t report_outcome_of(const tune_trial *trial);
// GB/s and GFLOP/s at a time; 0: unknown. The share of the ceiling likewise.
double report_gb_s(const tune_history *history, double us);
double report_gflop_s(const tune_history *history, double us);
double report_of_ceiling(const tune_history *history, double us);

// ---- knobs --------------------------------------------------------------------------------------

typedef struct report_setting {
  base_str name, value;
} report_setting;

// Takes the next `name=value` off a schedule; false at its end.
bool report_next_setting(base_str *schedule, report_setting *setting);
// The value that a schedule gives a knob; false: it has no such knob.
bool report_setting_of(const char *schedule, base_str name, base_str *value);
// What differs from the default, as plain text: "unroll=8, rows=64"; "as the default" for nothing.
base_str report_difference(base_arena *arena, const char *initial, const char *schedule);

// One value of a knob among the timed candidates.
typedef struct report_value {
  base_str value;
  uint32_t count; // candidates
  double best_us, median_us;
} report_value;

typedef struct report_knob {
  base_str name, summary;
  uint32_t value_count;
  report_value *values; // numbers by size, then other text
  // The worst of its values' best times over the best of them: 1 or more.
  double effect;
} report_knob;

// All knobs of the default, the winner and the timed candidates: by effect, then by name.
typedef struct report_knobs {
  uint32_t count;
  report_knob *knobs;
} report_knobs;

report_knobs report_knobs_of(base_arena *arena, const report_digest *digest);
base_str report_summary_of(const tune_history *history, base_str knob);

// ---- drawing ------------------------------------------------------------------------------------

// A plot under construction: one <svg> of `width` by `height` units; the data goes to `left` ..
// `right` and `top` .. `bottom`. Classes are in report.css.
typedef struct report_plot {
  base_text *out;
  double width, height, left, right, top, bottom;
} report_plot;

typedef struct report_dot {
  double x, y, radius;
  uint32_t entry; // of the history, that it stands for
} report_dot;

// How much a plot may draw.
typedef struct report_limits {
  uint32_t dots;   // at most
  uint32_t titles; // most dots that say under the pointer what they stand for; with more, none does
} report_limits;

// How many dots a plot drew, of how many that there were.
typedef struct report_dots {
  uint32_t drawn, all;
  bool titled;
} report_dots;

// `kind` and `section` make ids; title and description are for those who do not see the plot.
void report_plot_open(const report_plot *plot, const char *kind, uint32_t section,
                      const char *title, base_str description);
void report_plot_close(const report_plot *plot);
// Grid lines and labels of the ticks, and what is measured.
void report_draw_x(const report_plot *plot, const report_axis *axis, const char *what);
void report_draw_y(const report_plot *plot, const report_axis *axis, const char *what);
void report_draw_line(const report_plot *plot, const char *class, double x1, double y1, double x2,
                      double y2);
// `anchor`: "start", "middle" or "end" of the text is at x.
void report_draw_text(const report_plot *plot, const char *class, const char *anchor, double x,
                      double y, base_str text);
// A label along a line through x, y that is turned clockwise.
void report_draw_turned(const report_plot *plot, double x, double y, double degrees, base_str text);
void report_draw_circle(const report_plot *plot, const char *class, double x, double y,
                        double radius);
void report_draw_best(const report_plot *plot, double x, double y);    // a diamond
void report_draw_initial(const report_plot *plot, double x, double y); // a square, hollow
void report_put_place(base_text *out, double place);                   // a coordinate, to a tenth
// Dots as one path, which takes a tenth of the room that circles take.
void report_draw_points(const report_plot *plot, const report_dot *dots, uint32_t count,
                        double radius);
// Of dots that would hide each other leaves the first, so that at most `most` are left; keeps their
// order. Returns how many are left.
uint32_t report_thin(base_arena *arena, const report_plot *plot, report_dot *dots, uint32_t count,
                     uint32_t most);

// ---- plots --------------------------------------------------------------------------------------

// Each is one <svg>, or nothing when there is nothing to draw. `section` counts the histories of
// the page.
report_dots report_plot_history(base_text *out, const report_digest *digest, uint32_t section,
                                report_limits limits);
report_dots report_plot_roofline(base_text *out, const report_digest *digest, uint32_t section,
                                 report_limits limits);
// Shares of the ceiling; without a ceiling GB/s.
report_dots report_plot_shares(base_text *out, const report_digest *digest, uint32_t section,
                               report_limits limits);

// The scale that all knobs of a history share, and those that are drawn: the first `drawn`.
typedef struct report_knob_scale {
  uint32_t drawn;
  report_unit unit;
  report_axis axis;
} report_knob_scale;

enum { REPORT_MAX_KNOBS = 24, REPORT_MAX_VALUES = 16 };

report_knob_scale report_knob_scale_of(const report_knobs *knobs);
// The values of one knob, those that were tried most when there are more than REPORT_MAX_VALUES.
void report_plot_knob(base_text *out, const report_digest *digest, const report_knob *knob,
                      const report_knob_scale *scale, uint32_t section, uint32_t number);
// A line with the places of the default and of the winner between 0 and the ceiling.
void report_plot_meter(base_text *out, double initial, double best);

#endif
