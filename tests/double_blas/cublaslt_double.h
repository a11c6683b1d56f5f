// What tests ask of the test double of cuBLASLt, by dlsym.
#ifndef FATHOM_TESTS_CUBLASLT_DOUBLE_H
#define FATHOM_TESTS_CUBLASLT_DOUBLE_H

#include <stddef.h>

typedef struct cublaslt_double {
  // Set by the test. Calls are counted from 0, over all functions; call `fail_at` returns
  // `fail_with` and does nothing, but that destroying still destroys. -1: none fails.
  long calls, fail_at;
  int fail_with;
  const char *failed; // the function that did
  int no_algorithm;   // the heuristics find none
  // Objects that were created and not destroyed.
  long handles, products, layouts, preferences;
  // Of the last product that was run.
  size_t workspace_bytes;
  void *stream;
} cublaslt_double;

// `extern cublaslt_double cublaslt_double_state`
#define CUBLASLT_DOUBLE_SYMBOL "cublaslt_double_state"

// The workspace that its fastest algorithm wants; it also wants 16-byte aligned matrices.
enum { CUBLASLT_DOUBLE_WORKSPACE = 4096 };

#endif
