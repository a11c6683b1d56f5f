// Axes of the plots: from values to places, and the round numbers that are labelled.
#include <math.h>

#include "autotune/report_parts.h"

// ---- ticks --------------------------------------------------------------------------------------

// 1, 2 or 5 times a power of ten, not below `value`.
static double round_up(double value, int *exponent) {
  *exponent = (int)floor(log10(value));
  const double mantissa = value / pow(10, *exponent);
  const double round = mantissa <= 1.0001   ? 1
                       : mantissa <= 2.0001 ? 2
                       : mantissa <= 5.0001 ? 5
                                            : 10;
  if (round == 10) {
    ++*exponent;
    return pow(10, *exponent);
  }
  return round * pow(10, *exponent);
}

static void add_tick(report_axis *axis, double value) {
  const double air = (axis->high - axis->low) * 1e-9;
  if (axis->tick_count < REPORT_MAX_TICKS && value >= axis->low - air && value <= axis->high + air)
    axis->ticks[axis->tick_count++] = value;
}

static void linear_ticks(report_axis *axis) {
  const double size = fabs(axis->to - axis->from);
  const double wanted = size < 120 ? 2 : size < 330 ? 4 : 7; // steps
  int exponent;
  const double step = round_up((axis->high - axis->low) / wanted, &exponent);
  axis->decimals = exponent < 0 ? (uint32_t)-exponent : 0;
  // Multiples of the step rather than sums: 0.30000000000000004 would be no round number.
  for (double i = ceil(axis->low / step - 1e-9); i * step <= axis->high + step * 1e-9; i++) {
    add_tick(axis, i * step);
    if (axis->tick_count == REPORT_MAX_TICKS) return;
  }
}

// 1, 2 and 5 of every decade over a short range, each decade over a longer one, then every second,
// third, ...
static void log_ticks(report_axis *axis) {
  const int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
  const double decades = log10(axis->high / axis->low);
  const double room = fabs(axis->to - axis->from) / 30; // ticks that have it
  if (decades * 3 <= room && decades < 4) {
    for (int decade = first; decade <= last; decade++) {
      add_tick(axis, pow(10, decade));
      add_tick(axis, 2 * pow(10, decade));
      add_tick(axis, 5 * pow(10, decade));
    }
    return;
  }
  const double most = room < 8 ? room : 8;
  const int step = (int)ceil(decades / (most < 1 ? 1 : most));
  for (int decade = first; decade <= last; decade++) {
    if (decade % step == 0) add_tick(axis, pow(10, decade));
  }
}

// ---- axes ---------------------------------------------------------------------------------------

report_axis report_axis_exact(double low, double high, double from, double to, bool log) {
  report_axis axis = {.log = log, .low = low, .high = high, .from = from, .to = to};
  if (log)
    log_ticks(&axis);
  else
    linear_ticks(&axis);
  return axis;
}

report_axis report_axis_of(double low, double high, double from, double to, bool may_log) {
  if (may_log && low > 0 && high / low >= 8) {
    const double air = pow(high / low, 0.05);
    return report_axis_exact(low / air, high * air, from, to, true);
  }
  double air = (high - low) * 0.06;
  if (high - low <= fabs(high) * 1e-6) air = high != 0 ? fabs(high) * 0.05 : 0.5;
  const double bottom = low >= 0 && low - air < 0 ? 0 : low - air;
  return report_axis_exact(bottom, high + air, from, to, false);
}

double report_place(const report_axis *axis, double value) {
  const double low = axis->log ? log10(axis->low) : axis->low;
  const double high = axis->log ? log10(axis->high) : axis->high;
  double share = ((axis->log ? log10(value) : value) - low) / (high - low);
  if (!(share > 0)) share = 0; // of NaN too
  if (share > 1) share = 1;
  return axis->from + share * (axis->to - axis->from);
}

void report_tick(base_text *out, const report_axis *axis, uint32_t index) {
  const double value = axis->ticks[index];
  if (!axis->log && axis->decimals <= 5) {
    report_fixed(out, value, axis->decimals);
    return;
  }
  if (!axis->log) {
    const long long digits = llround(value * pow(10, axis->decimals));
    base_text_printf(out, digits ? "%llde-%u" : "%lld", digits, axis->decimals);
    return;
  }
  // 0.05, 2, 1,000: of a round number no digit behind the first means anything.
  const int exponent = (int)floor(log10(value) + 1e-9);
  if (exponent < -4 || exponent > 5)
    base_text_printf(out, "%de%d", (int)lround(value / pow(10, exponent)), exponent);
  else
    report_fixed(out, value, exponent < 0 ? (uint32_t)-exponent : 0);
}

report_unit report_unit_of(double us) {
  if (us >= 999.5e3) return (report_unit){"s", 1e6};
  if (us >= 9999.5) return (report_unit){"ms", 1e3};
  if (us < 0.9995 && us > 0) return (report_unit){"ns", 1e-3};
  return (report_unit){"us", 1};
}
