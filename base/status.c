// status: the words for each outcome, from the one table.
#include "base/base.h"

const char *base_status_text(base_status status) {
  switch (status) {
#define STATUS(name, value, text)                                                                  \
  case BASE_##name:                                                                                \
    return (text);
#include "base/status.def"
#undef STATUS
  }
  return "unknown status";
}
