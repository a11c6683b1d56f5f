// api, internal: the records of tuning, as compiling and tuning see them.
#ifndef FATHOM_API_TUNED_H
#define FATHOM_API_TUNED_H

#include "api/api.h"
#include "autotune/database.h"

// Raised when times are taken in another way, so that they cannot be compared with earlier ones.
enum { API_TIMING_VERSION = 2 };

// Where the records are that a request for a compilation looks into, and what all their keys have in
// common.
typedef struct api_place {
  tune_database_options options;
  const char *target, *compiler, *driver; // parts of keys
} api_place;

// Of this machine's CPU, of the GPU at hand, or of the one that stands for the architecture. False:
// there are none to be had (the cache is off, no compiler, a GPU that nobody knows).
bool api_tuned_place(api_call *call, const api_request *request, api_place *out);
// The same for the CPU.
bool api_tuned_place_cpu(api_call *call, api_place *out);
// The key of a graph whose axes are bound, but for its rows and the state of the caches. Without a graph (NULL) what is the same in
// the keys of all. `threads` of a CPU.
tune_key api_tuned_key(api_call *call, const ir_graph *graph, const api_place *place,
                       uint32_t threads);

// A schedule that was found best for so many rows.
typedef struct api_tuned {
  int64_t rows;
  bool by_model;  // predicted, not measured
  double seconds; // of that many rows
  bool shipped;   // with Fathom
  char date[24];  // of the record
  char schedule[FATHOM_SCHEDULE_ROOM];
} api_tuned;

// Of two ascending numbers of rows, is the second the nearer one, by ratio?
bool api_second_is_nearer(int64_t first, int64_t second, int64_t rows);
// Rows that a run has when every dynamic axis is `size` long.
int64_t api_rows_of(const ir_graph *graph, int64_t size);
// "B=8 D=7168", of the axes with a size, in the arena.
const char *api_axes_text(base_arena *arena, const ir_graph *graph);
// Where the request has no schedule of its own: the one that was tuned for about as many rows, if any.
void api_tuned_apply(api_call *call, const ir_graph *graph, int64_t rows, api_request *request);
// All that are known for the graph, ascending by rows, in the call's arena, measured ones before those
// of the model; none for a request with a schedule of its own, or for another CPU than this machine's. What is wrong with the records is no reason to fail: then
// there are none.
uint32_t api_tuned_find(api_call *call, const ir_graph *graph, const api_request *request,
                        const api_tuned **out);
// Of one or more.
const api_tuned *api_tuned_nearest(const api_tuned *tuned, uint32_t count, int64_t rows);

#endif
