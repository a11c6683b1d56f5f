// kernel IR: one kernel as a program for one row (one token), alternating sweeps and scalar
// sections.
//
// Sections: schedules, values, sweeps, kernels.
//
// A kernel does not copy the graph it was made from: it says, for each node fused into it, *where*
// the value lives (place) and *when* it is computed (level, sweep). Whatever is not given a place
// is computed where it is used. Terms:
//   row axis     independent iterations: the launcher cuts them into tasks (tokens, batch)
//   hidden axis  the long axis rows are made of (D), and what slices or splits make of it
//   row value    has a hidden axis; a sweep runs over it. Other values are scalars (per token,
//                source, query).
//   lane axis    the axis a sweep spreads over SIMD lanes; its other axes are loops
//   level        row values and scalars of level k need the results of reductions of sweeps below
//                k only
//   team         on a GPU: the threads that work on one row. Its lanes are threads, each of which
//                takes `vector` neighbouring elements at a time (a chunk of the row a turn)
// Nodes with no row axis are computed once for a launch (phase prepare), the others for each row
// (phase body).
#ifndef FATHOM_IR_KERNEL_H
#define FATHOM_IR_KERNEL_H

#include "ir/ir.h"

// ---- schedules ----------------------------------------------------------------------------------

typedef enum kir_machine { KIR_CPU, KIR_CUDA, KIR_MACHINE_COUNT } kir_machine;

// Plain data; knobs, ranges and defaults are in schedule.def. Printed and parsed as key=value,...
// Knobs that the machine has not are not looked at.
typedef struct kir_schedule {
  kir_machine machine;
  uint32_t zero; // in place of padding: schedules are compared and hashed as bytes
#define KNOB(machines, name, low, high, initial, matters, tried, summary) int64_t name;
#include "ir/schedule.def"
#undef KNOB
  // No knob: the most bytes of a GPU's shared memory for the row values of a block's teams, where a
  // block has less than lowering counts on; 0: as lowering has it.
  int64_t row_limit;
} kir_schedule;

enum { KIR_LANES_HIDDEN = 0, KIR_LANES_QUERY = 1, KIR_MAX_LOOPS = 2 * IR_MAX_RANK };

kir_schedule kir_schedule_default(kir_machine machine);
// Overrides the knobs named in `text`; unknown knobs, bad numbers and values out of range are
// errors that list what is allowed.
bool kir_schedule_parse(const char *text, kir_schedule *schedule, base_diag *diag);
void kir_schedule_print(const kir_schedule *schedule, base_text *out);
const char *kir_schedule_text(base_arena *arena, const kir_schedule *schedule); // the same
// Do its knobs go together? What no range can say; false: see diag.
bool kir_schedule_check(const kir_schedule *schedule, base_diag *diag);
// One line a knob: name, range, default, summary.
void kir_schedule_describe(base_text *out);

// For which kernels a knob makes a difference. Tiles matter up to the size of the axis they cut.
typedef enum kir_matters {
  KIR_ALWAYS,
  KIR_SOURCES,      // a tile of sources
  KIR_QUERIES,      // a tile of queries or other outer indices
  KIR_WITH_QUERIES, // a sum over the hidden axis for each of several queries
  KIR_OVERLAPPED,   // a sweep of the next row that can share this row's loop
  KIR_PAIRED,       // bf16 rows that can be read as pairs
  KIR_TASKS,        // a tile of rows: more than one task for each thread
  KIR_VECTORS,      // up to the CPU's own vectors
} kir_matters;

typedef struct kir_knob {
  const char *name;
  int64_t low, high, initial;
  kir_matters matters;
  const int64_t *tried; // by the tuner, ascending
  uint32_t tried_count;
  size_t offset; // in kir_schedule
  const char *summary;
} kir_knob;

// The knobs of a machine, in the order of schedule.def; NULL past the end.
const kir_knob *kir_knob_at(kir_machine machine, uint32_t index);
int64_t *kir_knob_of(kir_schedule *schedule, const kir_knob *knob); // its value

// ---- values -------------------------------------------------------------------------------------

typedef enum kir_phase { KIR_PREPARE, KIR_BODY, KIR_PHASE_COUNT } kir_phase;

typedef enum kir_place {
  KIR_NOWHERE,  // not part of this kernel
  KIR_INLINE,   // computed wherever it is used
  KIR_ARGUMENT, // memory of the caller
  KIR_SHARED,   // f32 array filled by prepare, read by all workers
  KIR_SCRATCH,  // f32 array of one worker, filled for each row
} kir_place;

// On a GPU a place can be in several kinds of memory, and source rows can wait in one between two
// uses.
typedef enum kir_residency {
  KIR_MEMORY,    // arguments: read where they are, again at each use. Places: the workspace
  KIR_REGISTERS, // each thread keeps the elements that it handles in every sweep
  KIR_TEAM,      // shared memory
} kir_residency;

typedef struct kir_value {
  kir_place place;
  kir_residency residency;
  int32_t running; // in a chain, of a sum relative to a maximum: its index in maxima; else -1
  kir_phase phase;
  bool row;
  uint32_t level;
  int32_t load_arg;  // place ARGUMENT: where it is read
  int32_t store_arg; // a result or a temporary: where it is written; else -1
  double reads;      // on a GPU, of a place in the workspace: as kir_arg.reads
  bool read_across;  // on a GPU, of a row value with a place: threads read what others wrote
  // SHARED and SCRATCH: dense f32, axes outermost first (refined, see kir_axis), `offset` in bytes.
  size_t offset;
  uint32_t rank;
  ir_axis order[KIR_MAX_LOOPS];
} kir_value;

typedef struct kir_axis {
  int64_t size;
  bool row, hidden, source; // source: mixed over, or put together by concat
  bool head; // a factor of a hidden axis that is not hidden itself: each index has rows of its own
  // split_axis and merge_axes are index arithmetic: an axis that is split somewhere in the kernel
  // is iterated through its factors (outermost first) everywhere.
  uint32_t factor_count;
  ir_axis factors[IR_MAX_RANK];
  // Where the operands of a concat meet: loops over the axis are cut there, so that within a piece
  // every concat is one of its operands. Ascending, 0 and size not included.
  BASE_VECTOR(int64_t) breaks;
} kir_axis;

// ---- sweeps -------------------------------------------------------------------------------------

// A value the sweep computes for good. A reduction accumulates over some of the sweep's loops,
// which are then the innermost ones; a value that accumulates over none is stored at every point.
typedef struct kir_root {
  ir_value value;
  uint64_t accumulates; // set of loop axes
  uint32_t depth;       // how many leading loops are its own: accumulators live inside those
} kir_root;

// One loop nest over refined axes. Loops are tiled and tiles unrolled (see the schedule); the lane
// loop, if there is one, goes over vectors.
typedef struct kir_sweep {
  kir_phase phase;
  bool scalar; // part of a scalar section
  uint32_t level;
  uint32_t loop_count;
  ir_axis loops[KIR_MAX_LOOPS]; // outermost first
  int32_t lane;                 // index into loops; -1: no vectors
  bool single; // on a GPU: one element a thread and turn, because the lane axis is cut or not dense
  bool ahead;  // overlapped: runs for the next row (see kir_kernel.overlap)
  bool together;   // shares its lane loop with others: its other loops are unrolled whole
  bool chained;    // runs for one tile of sources at a time (see kir_chain)
  size_t partials; // of a stepped kernel: where its sums are, from the partials
  BASE_VECTOR(kir_root) roots;
} kir_sweep;

// ---- kernels ------------------------------------------------------------------------------------

typedef struct kir_arg {
  ir_value value;
  bool written;
  int32_t unit_position;   // position in the type that must have stride 1; -1: none
  bool sliced;             // one pointer for each index of the first axis
  bool temporary;          // neither parameter nor result: lives between kernels
  kir_residency residency; // on a GPU, of rows that are read
  double reads;            // on a GPU: how often a row reads each element that it needs
  double prepare_reads;    // and the part before the rows, of each block or of the launch before
  // On a GPU: copied to shared memory while earlier rows are worked on; where, in bytes.
  bool staged;
  size_t stage_offset, stage_row;
  int32_t last_sweep; // that reads it; -1: none does
  // In a chain, of an argument that waits in registers: the axis that counts its sources and where
  // they begin on the chain's axis.
  bool tiled;
  ir_axis source;
  int64_t source_start;
} kir_arg;

// Running softmax: neighbouring sweeps of the body that run together for one tile of sources after
// the other, so that each source is read once however many there are. What they sum over the
// sources goes on from tile to tile. A sum of exponentials relative to a running maximum is
// multiplied by exp(old - new) when that grows ("Online normalizer calculation for softmax",
// Milakov and Gimelshein 2018).
typedef struct kir_running {
  ir_value maximum;    // reduce_max over the sources
  ir_value base;       // what the exponentials subtract: the maximum, clamped
  size_t factor, last; // offsets, beside the scalars, of exp(old - new) and of the base so far
} kir_running;

typedef struct kir_chain {
  bool used;
  ir_axis axis;
  int64_t tile;
  BASE_VECTOR(kir_running) maxima;
} kir_chain;

// How a GPU's threads share the work. Sizes in bytes, of one team each.
typedef struct kir_team {
  uint32_t threads; // of one block that work on a row, a multiple of 32
  uint32_t split;   // blocks that share a row: they form one team
  // Without clusters those blocks meet only where a launch ends: after each sweep that sums over the
  // lanes the kernel goes on in another launch, and keeps what it needs there in the workspace.
  bool stepped;
  size_t partial_bytes; // of the workspace: each block's sums
  uint32_t vector;      // elements of one access; 1: any strides will do
  uint32_t count;       // teams of a block
  uint32_t held;        // registers of a thread in which rows wait
  bool warp_scalars; // each warp computes all scalars for itself: then only sums wait for the team
  size_t scalar_bytes;     // of a team, or of a warp
  size_t row_bytes;        // row values in shared memory
  size_t exchange_bytes;   // for sums across warps, one of two areas that take turns
  size_t stage_bytes;      // one stage of all rows that are copied ahead
  bool prepared_by_launch; // what no row changes is computed by a launch before, not by each team
  size_t prepared_bytes, memory_bytes; // workspace: of the launch, and of one team
} kir_team;

typedef struct kir_kernel {
  const ir_graph *graph;
  int32_t index; // of the kernel in the graph
  base_str name;
  kir_schedule schedule;
  uint32_t row_count;
  ir_axis rows[IR_MAX_RANK]; // outermost first; the body loops over the last one
  kir_axis axes[IR_SET_AXES];
  kir_value *values; // one for each node of the graph
  BASE_VECTOR(kir_arg) args;
  BASE_VECTOR(kir_sweep) sweeps; // prepare first, then body, in order
  // The body sweep that the sweeps marked `ahead` share one loop with, while it works on row t and
  // they on row t + 1: reading the next row from memory hides behind the arithmetic of this one.
  // -1: none.
  int32_t overlap;
  // Two neighbouring vectors of the hidden axis hold the even and the odd elements of their
  // stretch, in every sweep and every place: a 32-bit load brings two bf16 and one operation widens
  // each.
  bool paired;
  size_t shared_bytes, scratch_bytes;
  kir_team team; // machine CUDA only, as is
  kir_chain chain;
} kir_kernel;

void kir_print(const kir_kernel *kernel, base_text *out);
// A line: the kernel's name and its schedule.
void kir_print_choice(const kir_kernel *kernel, base_text *out);
// The graph without the numbers of kernels, for listings of one kernel.
const ir_graph *kir_plain_graph(const ir_graph *graph, base_arena *arena);

// Appends the axes of a type as sweeps walk them (factors in place of split axes, no row axes) that
// are not in the list yet; returns the new count. A list holds at most KIR_MAX_LOOPS.
uint32_t kir_refine(const kir_kernel *kernel, const ir_type *type, ir_axis *axes, uint32_t count);
// How many indices of loop `i` of a sweep are handled by one step (vectors for the lane loop).
int64_t kir_tile(const kir_kernel *kernel, const kir_sweep *sweep, uint32_t i);

// On a GPU: how often so many threads take a turn over a lane axis, at least once; `single` as in
// kir_sweep.
int64_t kir_turns(const kir_kernel *kernel, ir_axis lane, uint32_t threads, bool single);

// Of a type: does each row have its own, and how many elements of it one row has.
bool kir_has_row(const kir_kernel *kernel, const ir_type *type);
double kir_elements_per_row(const kir_kernel *kernel, const ir_type *type);

// Where an argument's pointers and strides are in the two flat arrays a kernel is called with
// (rt_kernel_arg).
uint32_t kir_first_pointer(const kir_kernel *kernel, uint32_t arg);
uint32_t kir_pointer_count(const kir_kernel *kernel, uint32_t arg);
uint32_t kir_first_stride(const kir_kernel *kernel, uint32_t arg);

// What must move and be computed for one row, for the report: every input element that is needed
// read once, every result written once; a multiply-add counts two.
typedef struct kir_cost {
  double bytes_read, bytes_written, flops;
} kir_cost;
kir_cost kir_cost_per_row(const kir_kernel *kernel);
// On a GPU: does a row read any of its own sources more than once?
bool kir_reads_rows_again(const kir_kernel *kernel);
// The sweep that computes a value for good; NULL: none does.
const kir_sweep *kir_sweep_of(const kir_kernel *kernel, uint32_t value);
// What is laid out for a GPU, in shared memory and in the workspace, begins at multiples of 128 bytes.
size_t kir_align(size_t bytes);
// How many nodes of the graph the kernel computes.
uint32_t kir_fused_ops(const kir_kernel *kernel);

#endif
