// runtime/plan/step_shape.h
//
// Where the buffers of one step lie in the region `activations`, and how large they are: the
// planner reserves total_bytes, the engine cuts the region at the same offsets.
//
//   rows     [rows_max, d] f32 each, 64-byte aligned
//   k_max    the longest row that a product reads: d_model, n_heads * head_dim or d_ff
#pragma once

#include "platform/base/types.h"
#include "runtime/model/model_spec.h"

namespace tarn::plan {

struct Piece {
  u64 offset_bytes = 0;
  u64 bytes = 0;
};

struct StepShape {
  u32 rows_max = 0;
  u64 d_q = 0;    // n_heads * head_dim
  u64 d_qkv = 0;  // (n_heads + 2 * n_kv_heads) * head_dim
  u64 k_max = 0;  // rounded up to a whole 32

  Piece x;           // [rows_max, d_model] f32, the residual stream
  Piece normed;      // [rows_max, d_model] f32
  Piece qkv;         // [rows_max, d_qkv] f32
  Piece attn_out;    // [rows_max, d_q] f32
  Piece gate;        // [rows_max, d_ff] f32
  Piece up;          // [rows_max, d_ff] f32
  Piece act_q;       // [rows_max, k_max] i8
  Piece act_scales;  // [rows_max, k_max / 32] f32
  Piece act_sums;    // [rows_max, k_max / 16] i32
  Piece rope_cos;    // [rows_max, n_rot / 2] f32
  Piece rope_sin;    // [rows_max, n_rot / 2] f32
  Piece tokens;      // [rows_max] u32
  Piece positions;   // [rows_max] u32
  Piece visible;     // [rows_max] u32
  Piece logit_rows;  // [rows_max] u32
  Piece runs;        // [rows_max] of kStepRunBytes
  Piece inv_freq;    // [n_rot / 2] f64

  u64 row_bytes = 0;    // of all pieces that grow with rows_max, a row
  u64 total_bytes = 0;  // with the alignment between the pieces
};

inline constexpr u64 kStepRunBytes = 32;  // what the engine keeps of a run of rows, at most

// `spec` is validated: no product here comes near 2^64.
StepShape step_shape(const model::ModelSpec& spec, u32 rows_max);

}  // namespace tarn::plan
