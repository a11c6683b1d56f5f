// ir: the graph IR. SSA over tensors with named axes (grammar: docs/ir.md).
//
// Sections: types, ops, graphs, building, axes, text, verifier, hash, interpreter.
//
// A graph is plain data in an arena: an array of nodes in topological order, where a value *is* the
// index of the node that defines it. Passes never edit a graph in place; they build a new one in
// the same arena.
#ifndef FATHOM_IR_H
#define FATHOM_IR_H

#include "base/base.h"

// ---- types --------------------------------------------------------------------------------------

enum {
  IR_MAX_RANK = 8,
  IR_MAX_OPERANDS = 1024,
  IR_MAX_AXES = 512, // of a graph: that of a whole depth has one for each number of sources
  IR_SET_AXES = 64,  // of a graph that becomes kernels: there sets of axes are 64-bit masks
};

typedef enum ir_dtype { IR_F32, IR_BF16, IR_F16, IR_F8E4M3, IR_DTYPE_COUNT } ir_dtype;

const char *ir_dtype_name(ir_dtype dtype);
size_t ir_dtype_size(ir_dtype dtype); // bytes
// `x` rounded to nearest even in the dtype; f32 keeps the f64 value (the interpreter's arithmetic
// is f64). f8e4m3 has no infinities: what is larger than 448, infinities too, becomes 448.
double ir_dtype_round(ir_dtype dtype, double x);

typedef struct ir_axis {
  uint32_t index; // into ir_graph.axes
} ir_axis;

typedef struct ir_value {
  uint32_t index; // into ir_graph.nodes
} ir_value;

typedef struct ir_type {
  ir_dtype dtype;
  uint32_t rank;
  ir_axis axes[IR_MAX_RANK]; // outermost first as written; identity of an axis is its index
} ir_type;

bool ir_type_has(const ir_type *type, ir_axis axis);
int ir_type_position(const ir_type *type, ir_axis axis); // -1 when absent
// Axis sets of graphs with at most IR_SET_AXES axes are 64-bit masks; an axis past that is in none.
uint64_t ir_axis_bit(ir_axis axis);
uint64_t ir_axes_set(uint32_t count, const ir_axis *axes);
uint64_t ir_type_axes(const ir_type *type); // the set of a type's axes

// ---- ops ----------------------------------------------------------------------------------------

typedef enum ir_op {
#define OP(NAME, ...) IR_##NAME,
#include "ir/ops.def"
#undef OP
  IR_OP_COUNT
} ir_op;

// How the result's axes follow from the operands'. "Union" is by axis name; order is free
// everywhere.
typedef enum ir_shape {
  IR_SHAPE_GIVEN,  // as declared
  IR_SHAPE_MAP,    // union of the operands' axes
  IR_SHAPE_NORM,   // as MAP; operand 0 carries `over`
  IR_SHAPE_SAME,   // operand 0's axes; it carries `over`
  IR_SHAPE_REDUCE, // union of the operands' axes without `over`; every operand carries `over`
  IR_SHAPE_CONCAT, // union, with `over` replaced by `to`
  IR_SHAPE_SLICE,  // `over` replaced by `to`, at most as long
  IR_SHAPE_SPLIT,  // `over` replaced by the axes of `to`
  IR_SHAPE_MERGE,  // the axes of `over` replaced by `to`
  IR_SHAPE_RENAME, // `over` replaced by `to`, of the same size
} ir_shape;

enum {                // attributes, in braces after the operands
  IR_ATTR_EPS = 1,    // eps = NUMBER >= 0; default 1e-5
  IR_ATTR_VALUE = 2,  // value = NUMBER or [NUMBER, ...]; needed
  IR_ATTR_START = 4,  // start = INT >= 0; default 0
  IR_ATTR_CALLEE = 8, // the @name after `call`; needed
};
#define IR_DEFAULT_EPS 1e-5

enum {                     // facts
  IR_FACT_COMMUTATIVE = 1, // operands may swap
  IR_FACT_COMPOSITE = 2,   // passes expand it into simpler ops before a kernel is made
  IR_FACT_SUM = 4,         // linear reduction: the sum over `over` of the product of its operands
  IR_FACT_VIEW = 8,        // computes nothing, only maps indices
  IR_FACT_OPAQUE = 16,     // never joins a kernel
};

typedef struct ir_op_info {
  const char *keyword;
  uint32_t min_operands, max_operands;
  ir_shape shape;
  uint32_t max_over, max_to; // 0: the clause is not allowed
  uint32_t attributes, facts;
  const char *summary;
} ir_op_info;

const ir_op_info *ir_op_get(ir_op op);
// True and *op set when the keyword names an op.
bool ir_op_find(base_str keyword, ir_op *op);
// The value of a SHAPE MAP op; `b` is ignored by unary ones.
double ir_op_evaluate(ir_op op, double a, double b);

// ---- graphs -------------------------------------------------------------------------------------

enum { IR_DYNAMIC = -1, IR_NO_KERNEL = -1 };

typedef struct ir_axis_info {
  base_str name;
  int64_t size; // IR_DYNAMIC until known
  base_loc loc; // where the size was written, else the first mention
} ir_axis_info;

typedef struct ir_node {
  ir_op op;
  ir_type type;
  uint32_t operand_count;
  const ir_value *operands;
  uint32_t over_count, to_count;
  ir_axis over[IR_MAX_RANK], to[IR_MAX_RANK];
  double eps;
  int64_t start;
  uint32_t value_count; // constant: 1, or the size of its only axis
  const double *values;
  base_str callee;
  int32_t
      kernel; // the kernel this node was fused into (attribute kernel = K); IR_NO_KERNEL before that
  // Parameters only: memory order of the axes, outermost first (layout(...)); the type's order when
  // not given.
  bool has_layout;
  ir_axis layout[IR_MAX_RANK];
  base_str name;                // without %
  base_loc loc;                 // the op keyword (parameters: the name)
  const base_loc *operand_locs; // one for each operand, or NULL for built nodes
  base_loc type_loc;
} ir_node;

typedef struct ir_graph {
  base_arena *arena;
  base_str name; // without @
  BASE_VECTOR(ir_axis_info) axes;
  BASE_VECTOR(ir_node) nodes; // parameters first
  uint32_t param_count;
  BASE_VECTOR(ir_value) results;
  base_loc loc, return_loc;
  const base_loc *result_locs; // one for each result, or NULL
} ir_graph;

typedef struct ir_module {
  BASE_VECTOR(ir_graph *) graphs;
} ir_module;

const ir_node *ir_node_of(const ir_graph *graph, ir_value value);
bool ir_is_result(const ir_graph *graph, ir_value value); // is it returned?
bool ir_param_find(const ir_graph *graph, base_str name, ir_value *value);
bool ir_axis_find(const ir_graph *graph, base_str name, ir_axis *axis);
int64_t ir_axis_size(const ir_graph *graph, ir_axis axis);
// Has any value the axis? A concat of single slices, say, names one that none of them has.
bool ir_axis_is_used(const ir_graph *graph, ir_axis axis);
// The share (0 .. 1) of a value's elements that some node reads: 1, or less when all its users are
// slices along one axis. Axis sizes must be known.
double ir_share_read(const ir_graph *graph, ir_value value);

// ---- building -----------------------------------------------------------------------------------
// The C way to make a graph. Building checks nothing but its own bounds: ir_verify does.

ir_graph *ir_graph_create(base_arena *arena, base_str name);
// The axis of that name, made when new; `size` IR_DYNAMIC leaves a known size alone.
ir_axis ir_build_axis(ir_graph *graph, base_str name, int64_t size);
// A type from axis names: ir_build_type(graph, IR_F32, 2, (const char *[]){"T", "D"}).
ir_type ir_build_type(ir_graph *graph, ir_dtype dtype, uint32_t rank, const char *const *axes);
ir_value ir_build_param(ir_graph *graph, base_str name, ir_type type); // before any other node
// Appends a copy of `node` (operands copied; an empty or taken name gets a fresh one).
ir_value ir_build_node(ir_graph *graph, const ir_node *node);
ir_value ir_build_constant(ir_graph *graph, double value); // f32, no axes
ir_value ir_build_unary(ir_graph *graph, ir_op op, ir_value a, ir_dtype dtype);
// Map or reduction with the result axes its shape rule gives, in the operands' order.
ir_value ir_build_binary(ir_graph *graph, ir_op op, ir_value a, ir_value b, ir_dtype dtype);
ir_value ir_build_over(ir_graph *graph, ir_op op, uint32_t operand_count, const ir_value *operands,
                       ir_axis over, ir_dtype dtype);
void ir_build_result(ir_graph *graph, ir_value value);
// A graph with the same name, axes (same indices) and no nodes: where a pass starts.
ir_graph *ir_graph_derive(const ir_graph *graph);

// ---- axes ---------------------------------------------------------------------------------------

// Fixes an axis (--set NAME=SIZE). An unknown name or a second, different size is an error.
bool ir_bind_axis(ir_graph *graph, base_str name, int64_t size, base_diag *diag);
// Derives sizes that follow from others (concat, slice, split, merge, rename) until nothing
// changes; contradictions are errors at the op. Sizes whose products overflow int64 are errors too.
bool ir_solve_axes(ir_graph *graph, base_diag *diag);
// The axes every op treats as independent rows: no op names them in `over` or `to`.
uint64_t ir_independent_axes(const ir_graph *graph);

// ---- text ---------------------------------------------------------------------------------------

// Parses a file of graphs. Goes on after an error, so that one run reports all; NULL when there was
// one. Syntax, names and clauses are checked here, and when that finds errors also the types of what
// is sound; call ir_verify next.
ir_module *ir_parse(base_arena *arena, base_str text, base_diag *diag);
// The graph as text that parses back to the same graph.
void ir_print(const ir_graph *graph, base_text *out);
void ir_print_type(const ir_graph *graph, const ir_type *type, base_text *out);
void ir_print_node(const ir_graph *graph, ir_value value,
                   base_text *out); // one statement, no newline

// ---- verifier -----------------------------------------------------------------------------------

typedef enum ir_stage {
  IR_STAGE_PARSED,    // well typed; axes may be unbound
  IR_STAGE_BOUND,     // and only independent axes are dynamic
  IR_STAGE_PRIMITIVE, // and no composite op is left
  IR_STAGE_FUSED,     // and every computing node has a kernel
} ir_stage;

// Solves the axes, then checks the graph; every broken rule is reported with its place. True when
// clean.
bool ir_verify(ir_graph *graph, ir_stage stage, base_diag *diag);
// The same for a graph some of whose nodes and results are missing, because their text is wrong:
// checks the nodes that are there, types included.
bool ir_verify_part(ir_graph *graph, base_diag *diag);

// ---- hash ---------------------------------------------------------------------------------------

// Structural: equal for graphs that differ only in value and axis names, comments and dead nodes.
base_hash ir_hash(const ir_graph *graph);
// True when both have the same nodes, names included, in the same order (parse(print(g)) = g).
bool ir_equal(const ir_graph *a, const ir_graph *b);

// ---- interpreter --------------------------------------------------------------------------------

// The reference: every op evaluated by its definition in f64, rounded where the result's type is
// not f32. `sizes` has one entry for each axis of the graph, all known. `inputs` has one dense
// array for each parameter in its type's axis order; `outputs` one for each result, to be filled.
// Parameters must already hold values of their dtype. `largest_logit`, when not NULL, gets the
// largest finite |z| that entered a softmax, logsumexp, sigmoid or exp (at least 0): the error
// bounds of docs/ir.md scale with it. A `call` op is BASE_UNSUPPORTED.
base_status ir_interpret(const ir_graph *graph, const int64_t *sizes, const double *const *inputs,
                         double *const *outputs, double *largest_logit, base_diag *diag);

#endif
