// JSON on standard output.
#include <math.h>

#include "cli.h"

void cli_json_string(const char *text) {
  putchar('"');
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      printf("\\%c", c);
    else if (c < 0x20)
      printf("\\u%04x", c);
    else
      putchar(c);
  }
  putchar('"');
}

void cli_json_text(const char *key, const char *text) {
  printf(", \"%s\": ", key);
  cli_json_string(text);
}

void cli_json_number(const char *key, double number) {
  // JSON has no NaN and no infinity.
  if (isfinite(number))
    printf(", \"%s\": %.6g", key, number);
  else
    printf(", \"%s\": null", key);
}
