// The buffers of one step.
//
//   rows     [rows_max, n] each
//   k_max    the longest row that a product reads: d_model, n_heads * head_dim or d_ff
#pragma once

#include <algorithm>

#include "runtime/arena/carver.h"
#include "runtime/model/model_spec.h"
#include "runtime/step/batch.h"

namespace tarn::exec {

// The memory that the backend computes in.
struct StepMemory {
  u64 d_q = 0;    // n_heads * head_dim
  u64 d_qkv = 0;  // (n_heads + 2 * n_kv_heads) * head_dim
  u64 k_max = 0;  // rounded up to a whole 32

  std::span<f32> x;           // [rows_max, d_model], the residual stream
  std::span<f32> normed;      // [rows_max, d_model]
  std::span<f32> qkv;         // [rows_max, d_qkv]
  std::span<f32> attn_out;    // [rows_max, d_q]
  std::span<f32> gate;        // [rows_max, d_ff]
  std::span<f32> up;          // [rows_max, d_ff]
  std::span<i8> act_q;        // [rows_max, k_max]
  std::span<f32> act_scales;  // [rows_max, k_max / 32]
  std::span<i32> act_sums;    // [rows_max, k_max / 16]

  // `spec` is validated: no product here comes near 2^64.
  static StepMemory carve(Carver& carver, const model::ModelSpec& spec, u32 rows_max) {
    StepMemory memory;
    memory.d_q = u64{spec.n_heads} * spec.head_dim;
    memory.d_qkv = (u64{spec.n_heads} + 2 * u64{spec.n_kv_heads}) * spec.head_dim;
    memory.k_max = align_up(std::max({u64{spec.d_model}, u64{spec.d_ff}, memory.d_q}), 32);
    memory.x = carver.rows<f32>("x", rows_max, spec.d_model);
    memory.normed = carver.rows<f32>("normed", rows_max, spec.d_model);
    memory.qkv = carver.rows<f32>("qkv", rows_max, memory.d_qkv);
    memory.attn_out = carver.rows<f32>("attn_out", rows_max, memory.d_q);
    memory.gate = carver.rows<f32>("gate", rows_max, spec.d_ff);
    memory.up = carver.rows<f32>("up", rows_max, spec.d_ff);
    memory.act_q = carver.rows<i8>("act_q", rows_max, memory.k_max);
    memory.act_scales = carver.rows<f32>("scales", rows_max, memory.k_max / 32);
    memory.act_sums = carver.rows<i32>("sums", rows_max, memory.k_max / 16);
    return memory;
  }
};

// The host's view of its rows.
struct StepRows {
  std::span<u32> tokens;      // [rows_max]
  std::span<u32> positions;   // [rows_max]
  std::span<u32> visible;     // [rows_max]
  std::span<u32> logit_rows;  // [rows_max]
  std::span<step::Run> runs;  // [rows_max]
  std::span<f64> inv_freq;    // [n_rot / 2]

  static StepRows carve(Carver& carver, const model::ModelSpec& spec, u32 rows_max) {
    return {.tokens = carver.rows<u32>("tokens", rows_max, 1),
            .positions = carver.rows<u32>("positions", rows_max, 1),
            .visible = carver.rows<u32>("visible", rows_max, 1),
            .logit_rows = carver.rows<u32>("logit_rows", rows_max, 1),
            .runs = carver.rows<step::Run>("runs", rows_max, 1),
            .inv_freq = carver.take<f64>("inv_freq", spec.n_rot / 2)};
  }
};

// The region of activations on a CPU.
struct CpuStepMemory {
  StepMemory step;
  std::span<f32> rope_cos, rope_sin;  // [rows_max, n_rot / 2]
  StepRows rows;

  static CpuStepMemory carve(Carver& carver, const model::ModelSpec& spec, u32 rows_max) {
    return {.step = StepMemory::carve(carver, spec, rows_max),
            .rope_cos = carver.rows<f32>("cos", rows_max, spec.n_rot / 2),
            .rope_sin = carver.rows<f32>("sin", rows_max, spec.n_rot / 2),
            .rows = StepRows::carve(carver, spec, rows_max)};
  }
};

}  // namespace tarn::exec
