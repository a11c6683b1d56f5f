// The page about a tuning run: what stands where. Plots, numbers and what is counted are in the
// files beside it, the looks in report.css.
#include "autotune/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/report_parts.h"

extern const char report_css[]; // report.css

enum { BEST_TRIALS = 20, LONGEST_REASON = 300, LONGEST_DIFFERENCE = 240, LONGEST_NAME = 200 };

typedef struct page {
  base_text *out;
  report_limits limits;  // of one plot
  uint32_t most_reasons; // of one outcome
} page;

// A history with what is derived from it.
typedef struct section {
  report_digest digest;
  const tune_history *history;
  uint32_t number;                            // from 1
  double initial_of_ceiling, best_of_ceiling; // 0: unknown
} section;

// ---- small parts --------------------------------------------------------------------------------

static void put_name(base_text *out, const char *name) {
  report_escape_some(out, report_str(name), LONGEST_NAME);
}

static void put_graph(base_text *out, const tune_history *history) {
  if (report_str(history->graph_name).length == 0)
    report_put(out, "kernel without a name");
  else
    put_name(out, history->graph_name);
}

static void put_ratio(base_text *out, double ratio) {
  if (ratio >= 100)
    report_number(out, ratio);
  else
    report_fixed(out, ratio, 2);
}

// A number of the table, or a dash.
static void put_cell(base_text *out, void (*put)(base_text *out, double value), double value) {
  report_put(out, "<td class=\"number\">");
  if (value > 0)
    put(out, value);
  else
    report_put(out, "\xe2\x80\x93");
  report_put(out, "</td>");
}

static void put_percent(base_text *out, double share) {
  report_fixed(out, share * 100, 1);
  report_put(out, " %");
}

static bool is_schedule(const tune_trial *trial, const char *schedule) {
  const base_str mine = report_str(trial->schedule);
  return mine.length > 0 && strcmp(mine.data, report_str(schedule).data) == 0;
}

static double speed_up_of(const report_digest *digest) {
  return digest->best_us > 0 ? digest->initial_us / digest->best_us : 0;
}

// Candidates that were refused or failed.
static uint32_t failures_of(const report_digest *digest) {
  return digest->count - digest->timed - digest->outcomes[TUNE_PREDICTED];
}

static section section_of(base_arena *arena, const tune_history *history, uint32_t number) {
  section part = {.digest = report_digest_of(arena, history), .history = history, .number = number};
  const double initial = report_known(history->initial_of_ceiling);
  const double best = report_known(history->best_of_ceiling);
  part.initial_of_ceiling =
      initial > 0 ? initial : report_of_ceiling(history, part.digest.initial_us);
  part.best_of_ceiling = best > 0 ? best : report_of_ceiling(history, part.digest.best_us);
  return part;
}

// ---- headline -----------------------------------------------------------------------------------

// "812 us, 1.34 times as fast as the default (1,088 us); 0.86 of the ceiling."
static void put_lead(base_text *out, const section *part) {
  const report_digest *digest = &part->digest;
  report_put(out, "<p class=\"lead\">");
  if (digest->best_us == 0) {
    report_put(out, "No schedule was found: no candidate has a time.</p>\n");
    return;
  }
  report_put(out, "<strong>");
  report_time(out, digest->best_us);
  report_put(out, "</strong>");
  if (digest->predicted) report_put(out, " by the cost model; nothing was run");
  const double ratio = speed_up_of(digest);
  if (is_schedule(&part->history->best, part->history->initial.schedule)) {
    report_put(out, "; nothing faster than the default was found");
  } else if (ratio > 0) {
    report_put(out, ", ");
    if (fabs(ratio - 1) >= 0.005) {
      put_ratio(out, ratio);
      report_put(out, " times ");
    }
    report_put(out, "as fast as the default (");
    report_time(out, digest->initial_us);
    report_put(out, ")");
  }
  if (part->best_of_ceiling > 0 && !digest->predicted) {
    report_put(out, "; ");
    report_fixed(out, part->best_of_ceiling, 2);
    report_put(out, " of the ceiling");
  }
  report_put(out, ".</p>\n");
}

static void put_outcomes(base_text *out, const report_digest *digest) {
  report_put(out, "<p>");
  report_count(out, digest->count);
  report_put(out, digest->count == 1 ? " candidate, " : " candidates, ");
  report_count(out, digest->trials);
  report_put(out, digest->trials == 1 ? " trial" : " trials");
  const char *before = ". Of the candidates: ";
  for (uint32_t outcome = 0; outcome < REPORT_OUTCOMES; outcome++) {
    if (digest->outcomes[outcome] == 0) continue;
    report_put(out, before);
    report_count(out, digest->outcomes[outcome]);
    base_text_printf(out, " %s", report_outcome(outcome));
    before = ", ";
  }
  report_put(out, ".</p>\n");
}

static void begin_fact(base_text *out, const char *name) {
  base_text_printf(out, "<div><dt>%s</dt><dd>", name);
}

static void end_fact(base_text *out) {
  report_put(out, "</dd></div>\n");
}

static void put_device(base_text *out, const tune_device *device) {
  put_name(out, report_str(device->name).length ? device->name : device->kind);
  if (device->units > 0) {
    const bool cuda = strcmp(report_str(device->kind).data, "cuda") == 0;
    report_put(out, ", ");
    report_count(out, (uint64_t)device->units);
    report_put(out, cuda ? " multiprocessors" : device->units == 1 ? " core" : " cores");
  }
  if (report_str(device->features).length == 0) return;
  report_put(out, " <span class=\"soft\">(");
  put_name(out, device->features);
  report_put(out, ")</span>");
}

static void put_work_facts(base_text *out, const section *part) {
  const tune_history *history = part->history;
  if (report_str(history->target).length > 0) {
    begin_fact(out, "Target");
    put_name(out, history->target);
    if (history->threads > 0)
      base_text_printf(out, ", %u thread%s", history->threads, history->threads == 1 ? "" : "s");
    end_fact(out);
  }
  if (history->rows > 0) {
    begin_fact(out, "Rows");
    report_count(out, (uint64_t)history->rows);
    end_fact(out);
  }
  const double flops = report_known(history->flops);
  if (history->bytes > 0 || flops > 0) {
    begin_fact(out, "One call");
    if (history->bytes > 0) report_amount(out, (double)history->bytes, "B");
    if (history->bytes > 0 && flops > 0) report_put(out, ", ");
    if (flops > 0) report_amount(out, flops, "flop");
    end_fact(out);
  }
  const double gb_s = report_gb_s(history, part->digest.best_us);
  const double ceiling = report_known(history->ceiling_gb_s);
  if (gb_s > 0 || ceiling > 0) {
    begin_fact(out, "Memory");
    if (gb_s > 0) {
      report_number(out, gb_s);
      report_put(out, " GB/s");
    }
    if (ceiling > 0) {
      report_put(out, gb_s > 0 ? ", ceiling " : "ceiling ");
      report_number(out, ceiling);
      report_put(out, " GB/s");
    }
    end_fact(out);
  }
  if (report_str(history->cache).length > 0) {
    begin_fact(out, "Caches when timed");
    put_name(out, history->cache);
    end_fact(out);
  }
}

static void put_search_facts(base_text *out, const section *part) {
  const tune_history *history = part->history;
  if (history->raw_space > 0 || history->legal_space > 0) {
    begin_fact(out, "Space");
    if (history->raw_space > 0) {
      report_count(out, history->raw_space);
      report_put(out, " combinations");
    }
    if (history->legal_space > 0) {
      if (history->raw_space > 0) report_put(out, ", ");
      report_count(out, history->legal_space);
      report_put(out, " may run");
    }
    end_fact(out);
  }
  begin_fact(out, "Search");
  if (report_str(history->strategy).length > 0) {
    put_name(out, history->strategy);
    report_put(out, ", ");
  }
  base_text_printf(out, "seed %llu", (unsigned long long)history->seed);
  end_fact(out);
  begin_fact(out, "Budget");
  if (report_known(history->budget_seconds) > 0)
    report_duration(out, history->budget_seconds);
  else
    report_put(out, "no limit");
  if (history->count > 0) {
    report_put(out, ", took ");
    report_duration(out, part->digest.seconds[history->count - 1]);
  }
  end_fact(out);
  if (report_str(history->date).length > 0) {
    begin_fact(out, "Date");
    put_name(out, history->date);
    end_fact(out);
  }
}

static void put_headline(base_text *out, const section *part) {
  const tune_history *history = part->history;
  base_text_printf(out, "<h2 id=\"k%u\">", part->number);
  put_graph(out, history);
  if (report_str(history->axes).length > 0) {
    report_put(out, " <small>");
    put_name(out, history->axes);
    report_put(out, "</small>");
  }
  report_put(out, "</h2>\n");
  put_lead(out, part);
  if (history->contended)
    report_put(out, "<p class=\"warn\">Other load was noticed on this machine while it was timed: "
                    "the times may be off.</p>\n");
  put_outcomes(out, &part->digest);
  report_put(out, "<dl class=\"facts\">\n");
  begin_fact(out, "Device");
  put_device(out, &history->device);
  end_fact(out);
  put_work_facts(out, part);
  put_search_facts(out, part);
  report_put(out, "</dl>\n");
}

// ---- figures ------------------------------------------------------------------------------------

static void begin_part(base_text *out, const section *part, const char *id, const char *title) {
  base_text_printf(out, "<h3 id=\"k%u-%s\">%s</h3>\n", part->number, id, title);
}

// Inline copies of the markers, for captions.
static void put_key(base_text *out, bool best) {
  report_put(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"key\" viewBox=\"0 0 16 16\" "
                  "aria-hidden=\"true\">");
  const report_plot plot = {.out = out};
  if (best)
    report_draw_best(&plot, 8, 8);
  else
    report_draw_initial(&plot, 8, 8);
  report_put(out, "</svg>");
}

// Says when dots were left out.
static void put_thinned(base_text *out, report_dots dots) {
  if (dots.drawn == dots.all) return;
  report_put(out, " To keep this page small, ");
  report_count(out, dots.drawn);
  report_put(out, " of ");
  report_count(out, dots.all);
  report_put(out, " dots are drawn; those left out lie beside or on a drawn one.");
}

static void put_history_figure(const page *page, const section *part) {
  base_text *out = page->out;
  begin_part(out, part, "history", "Tuning history");
  report_put(out, "<figure><div class=\"scroll\">");
  const size_t before = out->length;
  const report_dots dots = report_plot_history(out, &part->digest, part->number, page->limits);
  if (out->length == before) {
    report_put(out, "</div><figcaption>Nothing was run.</figcaption></figure>\n");
    return;
  }
  report_put(out, "</div>\n<figcaption>");
  if (dots.all > 0)
    report_put(out,
               "Each dot is one trial; a larger dot was timed longer, so its time is surer. The "
               "line is the best time so far, however short the timing. ");
  if (dots.titled) report_put(out, "The pointer on a dot shows its schedule. ");
  if (failures_of(&part->digest) > 0)
    report_put(out,
               "Ticks at the bottom are trials that failed; those that would lie on each other "
               "are drawn once. ");
  put_thinned(out, dots);
  report_put(out, "</figcaption></figure>\n");
}

static void put_roofline_figure(const page *page, const section *part) {
  base_text *out = page->out;
  begin_part(out, part, "roofline", "Roofline");
  report_put(out, "<div class=\"pair\">\n<figure><div class=\"scroll\">");
  const size_t start = out->length;
  const report_dots dots = report_plot_roofline(out, &part->digest, part->number, page->limits);
  const size_t middle = out->length;
  report_put(out, "</div>\n<figcaption>");
  if (middle > start) {
    report_put(out,
               "A call can be no faster than the roofs, unless it finds its data in a cache. All "
               "candidates do the same work: they share one place on the horizontal axis and are "
               "spread a little sideways. ");
    put_key(out, false);
    report_put(out, " default, ");
    put_key(out, true);
    report_put(out, " best.");
    put_thinned(out, dots);
  } else {
    report_put(
        out, "No roofline: it needs a time, the bytes and flops of a call, and one of the roofs.");
  }
  report_put(out, "</figcaption></figure>\n<figure><div class=\"scroll\">");
  const size_t before = out->length;
  const report_dots stacked = report_plot_shares(out, &part->digest, part->number, page->limits);
  if (out->length > before) {
    report_put(out, "</div>\n<figcaption>How many candidates came how near.");
    if (report_known(part->history->ceiling_gb_s) > 0)
      report_put(out, " The ceiling is a copy of as many bytes, measured beside.");
    put_thinned(out, stacked);
    report_put(out, "</figcaption></figure>\n</div>\n");
  } else {
    report_put(out, "</div></figure>\n</div>\n");
  }
}

// ---- knobs --------------------------------------------------------------------------------------

// Knobs that had one value only, in a line.
static void put_constant_knobs(base_text *out, const report_knobs *knobs) {
  const char *before = "<p>Never varied: ";
  bool any = false;
  for (uint32_t k = 0; k < knobs->count; k++) {
    const report_knob *knob = &knobs->knobs[k];
    if (knob->value_count > 1) continue;
    report_put(out, before);
    report_put(out, "<code>");
    report_escape_some(out, knob->name, LONGEST_NAME);
    if (knob->value_count == 1) {
      report_put(out, "=");
      report_escape_some(out, knob->values[0].value, 40);
    }
    report_put(out, "</code>");
    before = ", ";
    any = true;
  }
  if (any) report_put(out, ".</p>\n");
}

static void put_knob_figure(base_text *out, const section *part, const report_knob *knob,
                            const report_knob_scale *scale, uint32_t number) {
  report_put(out, "<figure>\n<h4><code>");
  report_escape_some(out, knob->name, LONGEST_NAME);
  report_put(out, "</code> <span>effect ");
  put_ratio(out, knob->effect);
  report_put(out, "</span></h4>\n<figcaption>");
  report_escape_some(out, knob->summary, LONGEST_REASON);
  if (knob->value_count > REPORT_MAX_VALUES)
    base_text_printf(out, " (the %d of %u values that were tried most)", (int)REPORT_MAX_VALUES,
                     knob->value_count);
  report_put(out, "</figcaption>\n");
  report_plot_knob(out, &part->digest, knob, scale, part->number, number);
  report_put(out, "</figure>\n");
}

static void put_knobs(base_text *out, const section *part) {
  begin_part(out, part, "knobs", "The knobs that mattered");
  const report_knobs knobs = report_knobs_of(out->arena, &part->digest);
  const report_knob_scale scale = report_knob_scale_of(&knobs);
  if (scale.drawn == 0) {
    report_put(out, "<p>No knob has two values with a time.</p>\n");
    put_constant_knobs(out, &knobs);
    return;
  }
  report_put(out,
             "<p class=\"soft\">Each row is a value of the knob: the dot is the best time of all "
             "candidates with it, the bar ends at their median, the number on the right counts "
             "them. A hollow dot is a single candidate and says little. ");
  put_key(out, false);
  report_put(out, " the default\xe2\x80\x99s value, ");
  put_key(out, true);
  report_put(
      out, " the winner\xe2\x80\x99s. <strong>Effect</strong>: the best time with the worst value, "
           "divided by the best time with the best value; 1 means that the knob does not "
           "matter. Of each candidate the longest timing counts.</p>\n<div class=\"knobs\">\n");
  uint32_t number = 0;
  for (uint32_t k = 0; k < knobs.count && number < scale.drawn; k++) {
    if (knobs.knobs[k].value_count > 1)
      put_knob_figure(out, part, &knobs.knobs[k], &scale, ++number);
  }
  report_put(out, "</div>\n");
  put_constant_knobs(out, &knobs);
}

// ---- the winner beside the default --------------------------------------------------------------

static void put_setting_row(base_text *out, const section *part, base_str name,
                            const base_str *initial, const base_str *best) {
  const bool changed = !initial || !best || !base_str_equal(*initial, *best);
  report_put(out, changed ? "<tr class=\"marked\"><td><code>" : "<tr><td><code>");
  report_escape_some(out, name, LONGEST_NAME);
  report_put(out, "</code></td><td class=\"number\">");
  report_escape_some(out, initial ? *initial : BASE_STR("\xe2\x80\x93"), 40);
  report_put(out, "</td><td class=\"number\">");
  report_escape_some(out, best ? *best : BASE_STR("\xe2\x80\x93"), 40);
  base_text_printf(out, "</td><td class=\"tag\">%s</td><td>", changed ? "changed" : "");
  report_escape_some(out, report_summary_of(part->history, name), LONGEST_REASON);
  report_put(out, "</td></tr>\n");
}

static void put_winner(base_text *out, const section *part) {
  const char *initial = part->history->initial.schedule, *best = part->history->best.schedule;
  begin_part(out, part, "winner", "The best schedule beside the default");
  if (report_str(best).length == 0) {
    report_put(out, "<p>There is no best schedule.</p>\n");
    return;
  }
  report_put(out,
             "<div class=\"scroll\"><table>\n<thead><tr><th>knob</th><th class=\"number\">default"
             "</th><th class=\"number\">best</th><th></th><th>what it does</th></tr></thead>\n"
             "<tbody>\n");
  base_str rest = report_str(initial), other;
  for (report_setting setting; report_next_setting(&rest, &setting);) {
    const bool both = report_setting_of(best, setting.name, &other);
    put_setting_row(out, part, setting.name, &setting.value, both ? &other : NULL);
  }
  rest = report_str(best);
  for (report_setting setting; report_next_setting(&rest, &setting);) {
    if (!report_setting_of(initial, setting.name, &other))
      put_setting_row(out, part, setting.name, NULL, &setting.value);
  }
  report_put(out, "</tbody></table></div>\n<p class=\"soft\">To use it by hand: <code>--schedule ");
  report_escape(out, report_str(best));
  report_put(out, "</code></p>\n");
}

// ---- trials -------------------------------------------------------------------------------------

static void put_trial_row(base_text *out, const section *part, uint32_t rank, bool predictions) {
  const report_candidate *candidate = &part->digest.candidates[rank];
  const tune_trial *trial = &candidate->entry->trial;
  const tune_history *history = part->history;
  const bool best = is_schedule(&history->best, trial->schedule);
  const bool initial = is_schedule(&history->initial, trial->schedule);
  base_text_printf(out, "<tr%s><td class=\"number\">%u</td>", best ? " class=\"marked\"" : "",
                   rank + 1);
  put_cell(out, report_time, candidate->us);
  put_cell(out, put_percent, report_known(trial->spread));
  base_text_printf(out, "<td class=\"number\">%u</td>", trial->level);
  put_cell(out, put_ratio, part->digest.initial_us / candidate->us);
  put_cell(out, put_ratio, report_of_ceiling(history, candidate->us));
  if (predictions) put_cell(out, report_time, report_known(candidate->entry->predicted_us));
  base_text_printf(out, "<td class=\"tag\">%s%s%s</td><td><code>", best ? "best" : "",
                   best && initial ? ", " : "", initial ? "default" : "");
  report_escape_some(out, report_difference(out->arena, history->initial.schedule, trial->schedule),
                     LONGEST_DIFFERENCE);
  report_put(out, "</code></td></tr>\n");
}

static void put_best_trials(base_text *out, const section *part) {
  const report_digest *digest = &part->digest;
  const uint32_t count = digest->timed < BEST_TRIALS ? digest->timed : BEST_TRIALS;
  bool predictions = false;
  for (uint32_t i = 0; i < count; i++)
    predictions |= report_known(digest->candidates[i].entry->predicted_us) > 0;
  base_text_printf(out, "<div class=\"scroll\"><table>\n<caption>The %u fastest of ", count);
  report_count(out, digest->timed);
  report_put(out,
             " timed candidates, each by its longest timing. The spread is the distance of the "
             "quartiles as a share of the median. The winner is chosen by timing the first few "
             "again, so it need not be the first here.</caption>\n<thead><tr>");
  static const char *const columns[] = {"",      "time",          "spread",
                                        "level", "times as fast", "of ceiling"};
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    base_text_printf(out, "<th class=\"number\">%s</th>", columns[i]);
  if (predictions) report_put(out, "<th class=\"number\">predicted</th>");
  report_put(out, "<th></th><th>differs from the default in</th></tr></thead>\n<tbody>\n");
  for (uint32_t i = 0; i < count; i++)
    put_trial_row(out, part, i, predictions);
  report_put(out, "</tbody></table></div>\n");
}

// Failures for the same reason.
typedef struct reason {
  base_str why;
  uint32_t count, order; // candidates; of the first one
  const tune_trial *first;
} reason;

static int by_reason(const void *left, const void *right) {
  const reason *a = left, *b = right;
  const int order = strcmp(a->why.data, b->why.data);
  return order ? order : (a->order > b->order) - (a->order < b->order);
}

static int by_frequency(const void *left, const void *right) {
  const reason *a = left, *b = right;
  if (a->count != b->count) return a->count > b->count ? -1 : 1;
  return (a->order > b->order) - (a->order < b->order);
}

// The reasons of one outcome, the most frequent first.
static uint32_t collect_reasons(base_arena *arena, const report_digest *digest, uint32_t outcome,
                                reason **reasons) {
  reason *all = base_new_array(arena, reason, digest->count);
  uint32_t count = 0, distinct = 0;
  for (uint32_t i = digest->timed; i < digest->count; i++) {
    const tune_trial *trial = &digest->candidates[i].entry->trial;
    if (report_outcome_of(trial) == outcome)
      all[count++] = (reason){report_str(trial->why), 1, digest->candidates[i].order, trial};
  }
  qsort(all, count, sizeof *all, by_reason);
  for (uint32_t i = 0; i < count; i++) {
    if (distinct > 0 && base_str_equal(all[distinct - 1].why, all[i].why))
      all[distinct - 1].count++;
    else
      all[distinct++] = all[i];
  }
  qsort(all, distinct, sizeof *all, by_frequency);
  *reasons = all;
  return distinct;
}

static void put_failures(const page *page, const section *part, uint32_t outcome) {
  base_text *out = page->out;
  const report_digest *digest = &part->digest;
  if (digest->outcomes[outcome] == 0) return;
  reason *reasons;
  const uint32_t count = collect_reasons(out->arena, digest, outcome, &reasons);
  const uint32_t shown = count < page->most_reasons ? count : page->most_reasons;
  base_text_printf(out, "<details%s><summary>", count <= 10 ? " open=\"open\"" : "");
  report_count(out, digest->outcomes[outcome]);
  base_text_printf(
      out,
      " %s</summary>\n<div class=\"scroll\"><table>\n<thead><tr><th class=\"number\">"
      "candidates</th><th>why</th><th>the first one differs from the default in</th></tr>"
      "</thead>\n<tbody>\n",
      report_outcome(outcome));
  for (uint32_t i = 0; i < shown; i++) {
    report_put(out, "<tr><td class=\"number\">");
    report_count(out, reasons[i].count);
    report_put(out, "</td><td>");
    report_escape_some(out, reasons[i].why.length ? reasons[i].why : BASE_STR("no reason given"),
                       LONGEST_REASON);
    report_put(out, "</td><td><code>");
    const char *initial = part->history->initial.schedule;
    report_escape_some(out, report_difference(out->arena, initial, reasons[i].first->schedule),
                       LONGEST_DIFFERENCE);
    report_put(out, "</code></td></tr>\n");
  }
  report_put(out, "</tbody></table></div>\n");
  if (shown < count) {
    report_put(out, "<p class=\"soft\">");
    report_count(out, count - shown);
    report_put(out, " rarer reasons are left out to keep this page small.</p>\n");
  }
  report_put(out, "</details>\n");
}

static void put_trials(const page *page, const section *part) {
  base_text *out = page->out;
  begin_part(out, part, "trials", "Trials");
  if (part->digest.timed > 0)
    put_best_trials(out, part);
  else
    report_put(out, "<p>No candidate was timed.</p>\n");
  for (uint32_t outcome = TUNE_TIMED + 1; outcome < REPORT_OUTCOMES; outcome++) {
    if (outcome != TUNE_PREDICTED) put_failures(page, part, outcome);
  }
}

// ---- all histories ------------------------------------------------------------------------------

static void put_summary_row(base_text *out, const section *part) {
  const tune_history *history = part->history;
  const report_digest *digest = &part->digest;
  base_text_printf(out, "<tr><td><a href=\"#k%u\">", part->number);
  put_graph(out, history);
  report_put(out, "</a></td><td>");
  put_name(out, history->axes);
  report_put(out, "</td><td>");
  put_name(out, history->target);
  report_put(out, "</td><td class=\"number\">");
  report_count(out, history->rows > 0 ? (uint64_t)history->rows : 0);
  report_put(out, "</td>");
  put_cell(out, report_time, digest->initial_us);
  put_cell(out, report_time, digest->best_us);
  put_cell(out, put_ratio, speed_up_of(digest));
  const double share = digest->predicted ? 0 : part->best_of_ceiling;
  put_cell(out, put_ratio, share);
  report_put(out, "<td>");
  if (share > 0) report_plot_meter(out, part->initial_of_ceiling, share);
  report_put(out, "</td><td class=\"number\">");
  report_count(out, digest->count);
  report_put(out, "</td><td class=\"number\">");
  report_count(out, failures_of(digest));
  report_put(out, "</td></tr>\n");
}

// The geometric mean says what a mix of all kernels gains when each takes the same time.
static void put_mean(base_text *out, const section *parts, uint32_t count) {
  double sum = 0;
  uint32_t known = 0;
  for (uint32_t i = 0; i < count; i++) {
    const double ratio = speed_up_of(&parts[i].digest);
    if (!(ratio > 0) || parts[i].digest.predicted) continue;
    sum += log(ratio);
    known++;
  }
  if (known == 0) return;
  report_put(out, "<p>Geometric mean over ");
  report_count(out, known);
  report_put(out, known == 1 ? " search: " : " searches: ");
  put_ratio(out, exp(sum / known));
  report_put(out, " times as fast as the default.</p>\n");
}

static void put_summary(base_text *out, const section *parts, uint32_t count) {
  static const char *const columns[] = {"rows", "default", "best", "times as fast"};
  report_put(out, "<h2 id=\"summary\">Summary</h2>\n<div class=\"scroll\"><table>\n<caption>Of the "
                  "ceiling: ");
  put_key(out, false);
  report_put(out, " the default, ");
  put_key(out, true);
  report_put(out,
             " the best; the upright line is the ceiling.</caption>\n<thead><tr><th>kernel</th>"
             "<th class=\"sizes\">sizes</th><th>target</th>");
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
    base_text_printf(out, "<th class=\"number\">%s</th>", columns[i]);
  report_put(out, "<th colspan=\"2\">of the ceiling</th><th class=\"number\">candidates</th>"
                  "<th class=\"number\">failed</th></tr></thead>\n<tbody>\n");
  for (uint32_t i = 0; i < count; i++)
    put_summary_row(out, &parts[i]);
  report_put(out, "</tbody></table></div>\n");
  put_mean(out, parts, count);
}

static void put_contents(base_text *out, const section *parts, uint32_t count) {
  static const char *const links[][2] = {{"history", "history"},
                                         {"roofline", "roofline"},
                                         {"knobs", "knobs"},
                                         {"winner", "best schedule"},
                                         {"trials", "trials"}};
  report_put(out, "<nav aria-label=\"Contents\"><ul>\n");
  for (uint32_t i = 0; i < count; i++) {
    base_text_printf(out, "<li><a href=\"#k%u\">", parts[i].number);
    put_graph(out, parts[i].history);
    report_put(out, "</a>");
    if (report_str(parts[i].history->axes).length > 0) {
      report_put(out, " ");
      put_name(out, parts[i].history->axes);
    }
    if (parts[i].history->rows > 0) {
      report_put(out, ", ");
      report_count(out, (uint64_t)parts[i].history->rows);
      report_put(out, parts[i].history->rows == 1 ? " row" : " rows");
    }
    report_put(out, " <span>");
    for (size_t link = 0; link < sizeof links / sizeof *links; link++)
      base_text_printf(out, "%s<a href=\"#k%u-%s\">%s</a>", link ? " \xc2\xb7 " : "",
                       parts[i].number, links[link][0], links[link][1]);
    report_put(out, "</span></li>\n");
  }
  report_put(out, "</ul></nav>\n");
}

// ---- the page -----------------------------------------------------------------------------------

static uint32_t share_out(uint32_t total, uint32_t count, uint32_t least, uint32_t most) {
  const uint32_t each = count ? total / count : most;
  return each < least ? least : each > most ? most : each;
}

static void put_head(base_text *out) {
  report_put(out, "<!DOCTYPE html>\n"
                  "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
                  "<meta charset=\"utf-8\"/>\n"
                  // Nothing is fetched and nothing runs, whatever a name may hold.
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "style-src 'unsafe-inline'\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                  "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
                  "<title>Fathom: tuning report</title>\n<style>\n");
  report_put(out, report_css);
  report_put(out, "</style>\n</head>\n<body>\n<h1>Tuning report</h1>\n");
}

void tune_report_page(const tune_history *histories, uint32_t count, base_text *out) {
  const page page = {
      .out = out,
      .limits = {share_out(24000, count, 400, 4000), share_out(4000, count, 100, 600)},
      .most_reasons = share_out(300, count, 10, 100),
  };
  section *parts = base_new_array(out->arena, section, count);
  for (uint32_t i = 0; i < count; i++)
    parts[i] = section_of(out->arena, &histories[i], i + 1);
  put_head(out);
  if (count == 0) report_put(out, "<p>Nothing was tuned.</p>\n");
  if (count > 0) put_contents(out, parts, count);
  if (count > 1) put_summary(out, parts, count);
  for (uint32_t i = 0; i < count; i++) {
    report_put(out, "<section>\n");
    put_headline(out, &parts[i]);
    put_history_figure(&page, &parts[i]);
    put_roofline_figure(&page, &parts[i]);
    put_knobs(out, &parts[i]);
    put_winner(out, &parts[i]);
    put_trials(&page, &parts[i]);
    report_put(out, "</section>\n");
  }
  report_put(out, "</body>\n</html>\n");
}
