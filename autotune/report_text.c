// Text and numbers of the page about a tuning run. printf's %f and friends are not used: their
// point is the locale's.
#include <math.h>
#include <string.h>

#include "autotune/report_parts.h"

// ---- text ---------------------------------------------------------------------------------------

void report_put(base_text *out, const char *markup) {
  base_text_append(out, markup, strlen(markup));
}

base_str report_str(const char *terminated) {
  return base_str_from(terminated ? terminated : "");
}

// How many bytes the first character has; 0: they are no UTF-8 (cut off, overlong, a surrogate).
static size_t character_length(const unsigned char *bytes, size_t left) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char first = bytes[0];
  const size_t length = first < 0x80           ? 1
                        : (first >> 5) == 0x6  ? 2
                        : (first >> 4) == 0xe  ? 3
                        : (first >> 3) == 0x1e ? 4
                                               : 0;
  if (length < 2) return length;
  if (length > left) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (bytes[i] >> 6 != 2) return 0;
    code = code << 6 | (bytes[i] & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000, beyond = code > 0x10ffff;
  const bool noncharacter = code == 0xfffe || code == 0xffff; // XML has neither
  return code < least[length] || surrogate || beyond || noncharacter ? 0 : length;
}

static const char *replacement_of(unsigned char byte) {
  switch (byte) {
  case '<':
    return "&lt;";
  case '>':
    return "&gt;";
  case '&':
    return "&amp;";
  case '"':
    return "&quot;";
  case '\'':
    return "&#39;";
  case '\t':
  case '\n':
  case '\r':
    return " ";
  default:
    return byte < 0x20 || byte == 0x7f ? "\xef\xbf\xbd" : NULL;
  }
}

void report_escape_some(base_text *out, base_str text, uint32_t most) {
  const unsigned char *bytes = (const unsigned char *)text.data;
  uint32_t written = 0;
  for (size_t i = 0; i < text.length; written++) {
    if (written == most) {
      report_put(out, "...");
      return;
    }
    const size_t length = character_length(bytes + i, text.length - i);
    const char *replacement = length == 0   ? "\xef\xbf\xbd"
                              : length == 1 ? replacement_of(bytes[i])
                                            : NULL;
    if (replacement)
      report_put(out, replacement);
    else
      base_text_append(out, text.data + i, length);
    i += length ? length : 1;
  }
}

void report_escape(base_text *out, base_str text) {
  report_escape_some(out, text, UINT32_MAX);
}

// ---- numbers ------------------------------------------------------------------------------------

#define DASH "\xe2\x80\x93"

enum { MOST_DECIMALS = 8 };

static const double powers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8};

void report_count(base_text *out, uint64_t value) {
  if (value >= 1000) {
    report_count(out, value / 1000);
    base_text_printf(out, ",%03u", (unsigned)(value % 1000));
  } else {
    base_text_printf(out, "%u", (unsigned)value);
  }
}

// `scaled` / 10^decimals.
static void put_scaled(base_text *out, uint64_t scaled, uint32_t decimals) {
  const uint64_t power = (uint64_t)powers[decimals];
  report_count(out, scaled / power);
  if (decimals) {
    base_text_printf(out, ".%0*llu", (int)decimals, (unsigned long long)(scaled % power));
  }
}

// A number that has too many zeros to write them: 1.23e20.
static void put_exponent(base_text *out, double value) {
  int exponent = (int)floor(log10(value));
  uint64_t scaled = (uint64_t)llround(value / pow(10, exponent) * 100);
  if (scaled >= 1000) {
    scaled /= 10;
    exponent++;
  }
  put_scaled(out, scaled, 2);
  base_text_printf(out, "e%d", exponent);
}

void report_fixed(base_text *out, double value, uint32_t decimals) {
  if (!isfinite(value)) {
    report_put(out, DASH);
    return;
  }
  const double size = fabs(value);
  if (size >= 1e12) {
    if (value < 0) report_put(out, "-");
    put_exponent(out, size);
    return;
  }
  if (decimals > 6) decimals = 6;
  const uint64_t scaled = (uint64_t)llround(size * powers[decimals]);
  if (value < 0 && scaled > 0) report_put(out, "-");
  put_scaled(out, scaled, decimals);
}

void report_number(base_text *out, double value) {
  if (!isfinite(value) || value == 0) {
    report_put(out, value == 0 ? "0" : DASH);
    return;
  }
  const double size = fabs(value);
  if (value < 0) report_put(out, "-");
  if (size >= 1e12 || size < 1e-5) {
    put_exponent(out, size);
    return;
  }
  const int exponent = (int)floor(log10(size));
  uint32_t decimals = exponent >= 2                  ? 0
                      : 2 - exponent > MOST_DECIMALS ? MOST_DECIMALS
                                                     : (uint32_t)(2 - exponent);
  uint64_t scaled = (uint64_t)llround(size * powers[decimals]);
  if (scaled >= 1000 && decimals > 0) { // 9.999 is 10.0, not 10.00
    scaled = (scaled + 5) / 10;
    decimals--;
  }
  put_scaled(out, scaled, decimals);
}

void report_time(base_text *out, double us) {
  const report_unit unit = report_unit_of(us);
  report_number(out, us / unit.us);
  if (isfinite(us)) base_text_printf(out, " %s", unit.name);
}

void report_duration(base_text *out, double seconds) {
  if (!isfinite(seconds) || seconds < 0 || seconds >= 1e9) {
    report_put(out, DASH);
    return;
  }
  const unsigned whole = (unsigned)llround(seconds);
  if (seconds < 9.995) {
    report_number(out, seconds);
    report_put(out, " s");
  } else if (whole < 120) {
    base_text_printf(out, "%u s", whole);
  } else if (whole < 7200) {
    base_text_printf(out, "%u min", whole / 60);
    if (whole % 60) base_text_printf(out, " %u s", whole % 60);
  } else {
    const unsigned minutes = (whole + 30) / 60;
    base_text_printf(out, "%u h", minutes / 60);
    if (minutes % 60) base_text_printf(out, " %u min", minutes % 60);
  }
}

void report_amount(base_text *out, double value, const char *unit) {
  static const char *const prefixes[] = {"", "K", "M", "G", "T", "P"};
  uint32_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < sizeof prefixes / sizeof *prefixes) {
    value /= 1000;
    prefix++;
  }
  report_number(out, value);
  base_text_printf(out, " %s%s", prefixes[prefix], unit);
}

double report_known(double value) {
  return isfinite(value) && value > 1e-12 && value < 1e24 ? value : 0;
}

double report_us_of(const tune_trial *trial) {
  const double us = trial->median_us;
  const bool timed = tune_outcome_has_time(trial->outcome);
  return timed && us >= 1e-6 && us < 8.64e12 ? us : 0; // a picosecond to a hundred days
}
