// One forward pass over the rows of a step, written once over a Backend:
//
//   embed -> { norm -> q,k,v -> (qk norm) -> rope -> append KV -> attend -> output -> add
//              norm -> gate,up -> swiglu -> down -> add } x layers -> norm -> logits
//
// In the last layer only logit rows go on after the attention; K and V of all rows are in place by
// then. A prefill slice pays for one row from there on. A check run, of which there is one at most,
// ends in front of its layer's attention: its V is left.
//
// Source  Touvron et al. 2023 (arXiv:2302.13971), section 2.2; QK norm as in Qwen3; QKV bias as in
//         Qwen2.
#pragma once

#include "runtime/exec/backend.h"
#include "runtime/model/model_spec.h"
#include "runtime/model/weights.h"

namespace tarn::exec {

// Activations of one step, in the backend's space.
struct StepBuffers {
  Rows x;         // [rows_max, d_model] the residual stream
  Rows normed;    // [rows_max, d_model] also the result of the output and down products
  Rows qkv;       // [rows_max, (n_heads + 2 n_kv_heads) head_dim]
  Rows attn_out;  // [rows_max, n_heads head_dim]
  Rows gate;      // [rows_max, d_ff]
  Rows up;        // [rows_max, d_ff]
};

struct ForwardArgs {
  Backend* backend = nullptr;
  const model::ModelSpec* spec = nullptr;
  const model::Weights* weights = nullptr;
  StepBuffers buffers{};
  const step::Batch* batch = nullptr;
  Rows host_values{};  // where V of a check run is fetched to; none: it lies with the host
};

// A step as it is captured: `logit_rows` are rows_max row numbers.
struct StepCapture {
  const ForwardArgs& forward;
  std::span<const u32> logit_rows;
  Rows logits;
};

// V of the check run that begins at this row, [n_rows, n_kv_heads head_dim] of the backend.
Rows check_values(const ForwardArgs& args, u32 row_begin);

// Runs all layers, then gathers and normalises the logit rows. On return row i of buffers.normed is
// the normed hidden state of row batch.logit_rows[i], and K and V of all rows are in their slots.
// Returns early, with neither, where the backend has abandoned the step.
void forward_layers(const ForwardArgs& step);

// Logits of rows [begin, begin + n) of what forward_layers left: out [n, n_vocab].
void forward_logits(const ForwardArgs& args, u32 begin, u32 n, Rows out);

}  // namespace tarn::exec
