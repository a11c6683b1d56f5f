// text: kernel IR to CUDA C++ that people read. Internal to the cuda targets.
//
// The printer keeps a stack of open *scopes*: the kernel, the loop over rows, the loops of a sweep.
// A value is asked for at a point (an index expression for each axis), and its code goes into the
// outermost scope in which all it depends on is known, so nothing is computed twice and loops hold
// only what changes in them. A scope is printed when it closes: first its lines, then one loop
// over the elements of a vector, then what needs that loop's results.
#ifndef FATHOM_CODEGEN_CUDA_TEXT_H
#define FATHOM_CODEGEN_CUDA_TEXT_H

#include "ir/kernel.h"

// ---- points and terms ---------------------------------------------------------------------------

typedef struct text_index {
  const char *text;   // C expression; NULL: not set
  int64_t low, high;  // low <= index < high is known
  uint32_t scope;     // number of the innermost scope it needs
  const char *offset; // of a tile's axis: the number in the tile; else NULL
} text_index;

typedef struct text_point {
  text_index index[IR_SET_AXES]; // of a lane axis that of the access's first element
  uint64_t lanes;                // axes along which the elements of the access lie
  uint64_t composed; // axes whose index was put together from their factors, which are set too
  ir_axis lane;      // of the sweep; with `turn` says which registers hold the thread's elements
  const char *turn;  // NULL: not in a sweep over lanes
  uint32_t turn_scope;
} text_point;

// A value in the text. A vector is an array of f32, one for each element of an access, or inside
// the element loop of the innermost scope a name of its own.
typedef struct text_term {
  const char *text; // C expression for one element
  bool vector;
  bool local; // only inside the element loop
  uint32_t scope;
} text_term;

typedef struct text_memo {
  ir_value value;
  uint64_t lanes;
  const char *index[IR_MAX_RANK];
  text_term term;
} text_memo;

typedef struct text_scope {
  const char *head;        // printed before its brace
  const char *variable;    // an axis' index; NULL: none
  const char *declaration; // of the variable, printed first if anything reads it
  const char *tail;        // printed after its closing brace; NULL: nothing
  base_text lines, elements, after;
  uint32_t indent;
  BASE_VECTOR(text_memo) memo;
} text_scope;

// ---- the printer --------------------------------------------------------------------------------

typedef struct text_printer {
  base_arena *arena;
  const kir_kernel *kernel;
  const ir_graph *graph;
  kir_phase phase;
  uint32_t sweep;                   // its number
  uint32_t vector;                  // elements of an access in the current sweep
  BASE_VECTOR(text_scope *) scopes; // outermost first
  bool suspended;        // inner scopes are open and set aside: code goes to an outer one meanwhile
  uint32_t row_scope;    // where values of the row that need no other index go: see in_tile
  uint32_t offset_scope; // where offsets of the row go
  text_point rows;       // the row axes
  // In a chain: the sources base .. base + count - 1 are worked on, and values of the row go into
  // the tile's scope, because what runs is not the same before and after it.
  bool in_tile;
  text_index base;
  int64_t count;
  BASE_VECTOR(const char *) names;
  BASE_VECTOR(const char *) indices;       // names of loop indices, which other loops may take too
  const char **value_names, **place_names; // of each node, when it has one
  const char **arg_names;                  // of each argument,
  const char **row_names, **held_names;    // what the row adds to its address, its registers
  uint32_t *unpacked;                      // of each node: 1 + the first sweep that unpacks it
  const char **stride_names;               // of each position of each argument (kir_first_stride)
  const char **size_names, **index_names;  // of row axes
  const char **factor_names, **before_names; // of each running maximum of a chain
  BASE_VECTOR(int32_t) row_offsets; // arguments whose row offset has a name in the row scope
  bool launch;                      // prints the launch that prepares
  uint32_t split;                   // blocks that share a row in this function
  int32_t shared_out; // of the launch that prepares: the axis whose indices blocks share; -1: none
  // Of a stepped kernel: a sweep that sums over the lanes ends a launch with its sums in memory, and
  // the next launch begins by joining them.
  enum text_half { TEXT_WHOLE, TEXT_SUMS, TEXT_JOIN } half;
  uint32_t
      rounded_by_store; // 1 + the value that nothing reads before a store has rounded it; 0: none
  // The two areas for sums across warps take turns. From which one the row's first sums went, the
  // last ones, and whether the team has met since; -1: there were none.
  int first_exchange, last_exchange;
  bool met_since;
  const char *local, *array; // the name in the element loop that was last put in an array, and it
} text_printer;

// ---- scopes (text_scope.c) ----------------------------------------------------------------------

// A name for C++ made from `wanted`, not used before in this file.
const char *text_name(text_printer *p, base_str wanted);
// A name for a kernel of a graph of that name: one that C++ and CUDA have not taken.
const char *text_function_name(base_arena *arena, base_str wanted);
const char *text_format(text_printer *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// base + bytes, or the base alone for 0.
const char *text_offset(text_printer *p, const char *base, size_t bytes);
void text_line(text_printer *p, uint32_t scope, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void text_element(text_printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_after(text_printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t text_top(const text_printer *p); // number of the innermost open scope
// Opens a scope inside the innermost one; `head` is printed before its brace (empty: a bare block).
void text_open(text_printer *p, const char *head);
void text_close(text_printer *p);
void text_close_all(text_printer *p, uint32_t count); // the innermost `count`
const char *text_unroll(text_printer *p, bool whole); // goes before a loop's head
// A name for the index of a row axis, the same in all functions.
const char *text_row_name(text_printer *p, ir_axis axis);
// A name for the index of an axis in the innermost scope, and its declaration.
const char *text_axis_name(text_printer *p, ir_axis axis);
void text_declare(text_printer *p, const char *declaration);
// The element loop so far ends here; what follows begins another one.
void text_end_elements(text_printer *p);
// A scope with a loop over an index from `low` up to but without `high`; unrolled whole, or left to
// the compiler. A single index needs no loop: *opened says how many scopes were opened.
text_index text_loop(text_printer *p, ir_axis axis, int64_t low, int64_t high, int64_t step,
                     bool unroll, uint32_t *opened);
void text_blank(text_printer *p); // an empty line in the innermost scope
// A loop over the indices that fall to this thread's lane of the group that works out scalars.
text_index text_dealt(text_printer *p, ir_axis axis, int64_t low, int64_t high, uint32_t *opened);
void text_comment(text_printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- values (text_value.c) ----------------------------------------------------------------------

text_term text_value(text_printer *p, ir_value value, const text_point *point);
// By its definition even where the value has a place: for the sweep that fills it.
text_term text_definition(text_printer *p, ir_value value, const text_point *point);
// Adds to the accumulator (an lvalue for one element, the same for all when the sum is over the
// lanes) the operands of reduction `value` at the point, over the axes it reduces that the point
// does not set. `each`: for every element of the access, even if they are all the same.
void text_reduce(text_printer *p, ir_value value, const text_point *point, const char *accumulator,
                 bool each);
// Does computing the value in place read a concat? Then loops are cut where its operands meet.
bool text_meets_concat(const text_printer *p, ir_value value);
const char *text_neutral(ir_op op);
const char *text_finish(text_printer *p, ir_value value, const char *total);
void text_set_axis(text_printer *p, text_point *point, ir_axis axis, text_index index, bool lane);
void text_compose(text_printer *p, text_point *point);
void text_remember(text_printer *p, ir_value value, const text_point *point, text_term term);
// a + b of two indices; numbers are added up.
const char *text_sum(text_printer *p, const char *a, const char *b);

// ---- arithmetic (text_math.c) -------------------------------------------------------------------

bool text_has(ir_op op); // false for a map op without code here
const char *text_map(text_printer *p, ir_op op, const char *a, const char *b);
const char *text_round(text_printer *p, ir_dtype dtype, const char *value);
const char *text_type(ir_dtype dtype); // of an element in memory
const char *text_float(text_printer *p, double value);

// ---- memory (text_memory.c) ---------------------------------------------------------------------

void text_name_memory(text_printer *p); // names of arguments and places; once a kernel
void text_print_arguments(text_printer *p, base_text *out); // the struct
// Is a row that waits in registers indexed by this axis? Then loops over it must be unrolled.
bool text_indexes_registers(const text_printer *p, ir_axis axis);
// Is anything kept in registers from sweep to sweep? Its turn is an index too.
bool text_keeps_registers(const text_printer *p);
void text_declare_places(text_printer *p);        // pointers into shared memory and the workspace
void text_declare_row_registers(text_printer *p); // at the start of a row
// Copies the staged rows of the row that p->rows says to `stage`.
void text_copy_sources(text_printer *p);
int32_t text_last_of_stage(const text_printer *p);
// Reads the rows that wait in registers: those of the tile, or those that belong to none.
void text_hold_sources(text_printer *p);
void text_begin_chain(text_printer *p); // what runs from tile to tile, before the first one
// Of a running maximum: the factor for what was summed before, as a term.
text_term text_load_factor(text_printer *p, const kir_running *running, const text_point *point);
// The factor, and what the next one is relative to, from what the exponentials subtract now.
void text_update_running(text_printer *p, const kir_running *running, const text_point *point,
                         const char *now);
text_term text_load_argument(text_printer *p, ir_value value, const text_point *point);
text_term text_load_place(text_printer *p, ir_value value, const text_point *point);
void text_store_place(text_printer *p, ir_value value, const text_point *point, text_term term);
// Is it a scalar that every thread works out and keeps?
bool text_in_every_thread(const text_printer *p, ir_value value);
// Do all stores of the value round it to its type?
bool text_store_rounds(const text_printer *p, ir_value value);
void text_store_argument(text_printer *p, ir_value value, const text_point *point, text_term term);

// ---- sweeps (text_sweep.c) ----------------------------------------------------------------------

void text_sweep(text_printer *p, const kir_sweep *sweep);
// A sweep without lanes (text_scalars.c).
void text_scalars(text_printer *p, const kir_sweep *sweep);
// Does a stepped kernel's launch end in this sweep?
bool text_ends_launch(const text_printer *p, const kir_sweep *sweep);
// Opens a loop over `count` indices from `base` on, which becomes the index itself where the base is
// known; sets the point's axis.
uint32_t text_open_tile(text_printer *p, ir_axis axis, text_index base, int64_t count,
                        text_point *point);
// Is this the axis whose sources come tile by tile?
bool text_is_tiled(const text_printer *p, ir_axis axis);
// Opens the loop of the team's turns over a lane axis and sets the point to the thread's elements;
// returns how many scopes that took.
uint32_t text_open_lanes(text_printer *p, ir_axis lane, bool single, text_point *point);

// ---- kernels (text_kernel.c) --------------------------------------------------------------------

// The functions of a kernel: its body under the name `name` and, where a launch prepares for it,
// that under `name`_prepare; the struct of its arguments first.
void text_kernel(base_arena *arena, const kir_kernel *kernel, const char *name, base_text *out);
// The axis whose indices the blocks of the launch that prepares share; -1: one block does it all.
int32_t text_prepare_axis(const kir_kernel *kernel);
// Launches that a stepped kernel takes after the first, named `name`_step2 and so on.
uint32_t text_step_count(const kir_kernel *kernel);
// Bytes of dynamic shared memory of a block.
size_t text_shared_bytes(const kir_kernel *kernel);
uint32_t text_group(const text_printer *p); // threads that work out scalars together
const char *text_barrier(text_printer *p);  // number of the team's barrier
void text_team_barrier(text_printer *p);

#endif
