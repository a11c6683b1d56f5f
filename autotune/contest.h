// autotune, internal: samples of one piece of work, and the contest of stream kernels for the
// ceiling.
#ifndef FATHOM_AUTOTUNE_CONTEST_H
#define FATHOM_AUTOTUNE_CONTEST_H

#include "autotune/streams.h"

// ---- samples ------------------------------------------------------------------------------------

enum { TUNE_MAX_SAMPLES = 4096 };

typedef struct tune_samples {
  tune_work work;
  uint32_t batch; // calls in a sample, so that the clock's own cost does not count
  uint32_t count;
  double *seconds; // of one call
} tune_samples;

// Runs `work` until its time no longer falls; `seconds` is how long it will be sampled for.
base_status tune_samples_open(tune_samples *samples, tune_work work, double seconds);
void tune_samples_close(tune_samples *samples);
void tune_samples_take(tune_samples *samples); // does nothing when full
// Sorts the samples.
tune_timing tune_samples_timing(tune_samples *samples);

// ---- the contest --------------------------------------------------------------------------------

struct tune_contest;

typedef struct tune_candidate {
  const stream_width *width;
  stream_kind kind;
  bool interleaved; // all streams' row 0, then their row 1, ...; else each stream is one piece
  double best;      // seconds, the fastest call so far
  struct tune_contest *contest;
} tune_candidate;

enum { TUNE_MAX_CANDIDATES = 32 }; // two widths, four choices of two

typedef struct tune_contest {
  const rt_executor *executor;
  tune_mix mix;
  size_t row_bytes, rows, rows_per_task; // of a stream
  uint64_t bytes;                        // that one call moves
  char *memory;                          // as allocated
  char *first;                           // aligned: all reads, then all writes, then the next set
  size_t read_room, write_room;          // bytes there, of a set
  uint32_t sets, step, set;              // set: of the next call, whichever candidate's it is
  uint32_t count;
  tune_candidate candidates[TUNE_MAX_CANDIDATES]; // fastest first once narrowed
} tune_contest;

// The stream kernels that compete for the mix, and memory for them: one set of it, or with
// `cold_bytes` as many as caches of so many bytes take.
base_status tune_contest_open(tune_contest *contest, const rt_executor *executor, tune_mix mix,
                              uint64_t cold_bytes);
void tune_contest_close(tune_contest *contest);
// Drops the slower half until `keep` are left, in about `seconds` (each candidate runs at least
// twice).
void tune_contest_narrow(tune_contest *contest, uint32_t keep, double seconds);
// `count` rows of every stream from row `row` on, in the candidate's layout, of the next call's set.
stream_rows tune_candidate_rows(const tune_candidate *candidate, size_t row, size_t count);
// A candidate's whole traffic, once.
tune_work tune_candidate_work(tune_candidate *candidate);
tune_ceiling tune_candidate_ceiling(const tune_candidate *candidate, tune_timing timing);

#endif
