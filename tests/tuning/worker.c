// A tuning worker that a test starts instead of the fathom program: it sees the static layers, so
// $FATHOM_LIBRARY_DIR decides which libfathom-cpu it compiles with.
#include "fathom.h"

int main(void) {
  return fathom_tune_worker(0, 1) == FATHOM_OK ? 0 : 1;
}
