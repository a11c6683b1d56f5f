// model: descriptions of networks with attention over depth, and their graphs.
//
// A description says in a few lines of YAML how all mix sites of a network mix (docs/models.md, whose
// pseudocode this follows); expanding it gives the graph of the whole depth, with a `call` for each
// sublayer. Everything after that works on the graph alone: variants are graphs, not flags.
#ifndef FATHOM_MODEL_H
#define FATHOM_MODEL_H

#include "ir/ir.h"

// ---- descriptions -------------------------------------------------------------------------------

enum {
  MODEL_SCHEMA = 1,           // of the files; another number is refused
  MODEL_MAX_SUBLAYERS = 4096, // the graph has some ten statements for each
  MODEL_MAX_ADDENDS = 2,      // tensors whose sum is a sublayer's output
};

typedef enum model_key_norm { MODEL_KEY_RMS, MODEL_KEY_NONE, MODEL_KEY_AND_QUERY } model_key_norm;
typedef enum model_normaliser {
  MODEL_SOFTMAX,
  MODEL_SIGMOID,
  MODEL_UNIFORM,
  MODEL_STATIC
} model_normaliser;
typedef enum model_bias { MODEL_BIAS_NONE, MODEL_BIAS_RECENCY, MODEL_BIAS_COUNT } model_bias;
typedef enum model_null { MODEL_NULL_NONE, MODEL_NULL_ZERO, MODEL_NULL_LEARNED } model_null;
typedef enum model_gate { MODEL_GATE_NONE, MODEL_GATE_NEWEST, MODEL_GATE_CHANNEL } model_gate;
typedef enum model_phases { MODEL_PHASES_AUTO, MODEL_PHASES_ONE, MODEL_PHASES_TWO } model_phases;

// A norm's gain: none, or of a dtype.
typedef struct model_gain {
  bool used;
  ir_dtype dtype;
} model_gain;

// Sites are numbered 0 .. sublayers: site s makes the input of sublayer s, the last one the output of
// the network. Strings and arrays live in the reader's arena.
typedef struct model_description {
  base_str name; // terminated: letters, digits, '_', '.' and '-'
  int64_t hidden, heads;
  uint32_t sublayers;
  uint32_t block_count;
  const uint32_t *starts; // of blocks: sublayers, ascending, the first 0
  ir_dtype dtype, query_dtype, mix_dtype;
  model_gain key_gain, output_gain;
  double eps, scale;
  model_key_norm key_norm;
  model_normaliser normaliser;
  model_bias bias;
  double recency; // of bias MODEL_BIAS_RECENCY
  model_null null_source;
  model_gate gate;
  model_phases phases;
  bool delta_form, output_norm;
  uint32_t window; // sources; 0: all
  uint32_t addend_count;
  const uint32_t *addends; // of sublayers 0, 1, ...; gone round
} model_description;

// Reads the text of a description, which is diag's source. `name`: of a model that has none. NULL: all
// that is wrong is in diag, with its place; BASE_UNSUPPORTED for another schema.
const model_description *model_read(base_arena *arena, base_str text, base_str name,
                                    base_diag *diag);

uint32_t model_sites(const model_description *model);
// Sources of a site: the finished blocks and the running sum, or the window's.
uint32_t model_sources(const model_description *model, uint32_t site);
// Tensors that a sublayer gives.
uint32_t model_addends(const model_description *model, uint32_t sublayer);

// ---- graphs -------------------------------------------------------------------------------------

// Results of each site besides the sublayer's input; site s has them as weights_s, and so on.
enum {
  MODEL_WEIGHTS = 1, // f32[N, T], with heads f32[N, T, H]: of its sources, oldest first
  MODEL_ENTROPY = 2, // f32[T] or f32[T, H]: -sum a log a of the weights. Softmax only
  MODEL_MIX = 4,     // the model's dtype, [T, D]: before the output norm
  // What sublayers take is f8e4m3[T, D], with a scale for each token, scale_s of f32[T]: of the input as
  // rounded to the model's dtype, max(largest |x|, 1e-10) / 448. The last site's is as it was.
  MODEL_FP8 = 8,
};

// The whole depth: parameters embedding and those of each site by name (query_3), for each sublayer
// `f_3 = call @sublayer_3 %x_3` (a second addend is g_3, of @sublayer_3.b), and the network's output as
// the first result. Fit for IR_STAGE_PARSED, T is dynamic. NULL: what `outputs` asks for the model does
// not have, see diag.
ir_graph *model_expand(base_arena *arena, const model_description *model, uint32_t outputs,
                       base_diag *diag);

#endif
