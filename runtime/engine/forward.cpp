#include "runtime/engine/forward.h"

#include "platform/base/assert.h"

namespace tarn::engine {
namespace {

Rows from_row(Rows rows, u32 row) { return {rows.data + row * rows.stride, rows.stride}; }
Rows from_column(Rows rows, u64 column) { return {rows.data + column, rows.stride}; }

// norm -> q,k,v -> (qk norm) -> rope -> append KV -> attend. Leaves the heads' outputs in attn_out.
void attention(const ForwardArgs& args, u32 layer_idx) {
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const model::LayerWeights& layer = args.weights->layers[layer_idx];
  const StepBuffers& b = *args.buffers;
  const StepState& step = *args.step;
  const u32 n = step.n_rows;
  const u64 d_q = u64{spec.n_heads} * spec.head_dim;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  const Rows q = b.qkv;
  const Rows k = from_column(b.qkv, d_q);
  const Rows v = from_column(b.qkv, d_q + d_kv);

  backend.rms_norm(b.x, layer.attn_norm, spec.rms_eps, spec.d_model, n, b.normed);
  const Projection qkv[] = {{&layer.attn_q, layer.attn_q_bias, q},
                            {&layer.attn_k, layer.attn_k_bias, k},
                            {&layer.attn_v, layer.attn_v_bias, v}};
  backend.project(b.normed, n, qkv);
  if (spec.qk_norm) {
    backend.rms_norm_heads(q, layer.attn_q_norm, spec.rms_eps, spec.n_heads, n);
    backend.rms_norm_heads(k, layer.attn_k_norm, spec.rms_eps, spec.n_kv_heads, n);
  }
  backend.rope(q, n, spec.n_heads);
  const u32 cache_layer = spec.kv_source[layer_idx];
  backend.rope(k, n, spec.n_kv_heads);
  backend.kv_append(step, cache_layer, k, v);
  backend.attend(step, cache_layer, q, b.attn_out);
}

// output -> add -> norm -> gate,up -> swiglu -> down -> add, for the first n rows.
void output_and_ffn(const ForwardArgs& args, u32 layer_idx, u32 n) {
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const model::LayerWeights& layer = args.weights->layers[layer_idx];
  const StepBuffers& b = *args.buffers;

  const Projection output[] = {{&layer.attn_output, nullptr, b.normed}};
  backend.project(b.attn_out, n, output);
  backend.add(b.x, b.normed, spec.d_model, n);

  backend.rms_norm(b.x, layer.ffn_norm, spec.rms_eps, spec.d_model, n, b.normed);
  const Projection gate_up[] = {{&layer.ffn_gate, nullptr, b.gate}, {&layer.ffn_up, nullptr, b.up}};
  backend.project(b.normed, n, gate_up);
  backend.swiglu(b.gate, b.up, spec.d_ff, n, b.gate);
  const Projection down[] = {{&layer.ffn_down, nullptr, b.normed}};
  backend.project(b.gate, n, down);
  backend.add(b.x, b.normed, spec.d_model, n);
}

}  // namespace

void forward_layers(const ForwardArgs& args) {
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const StepBuffers& b = *args.buffers;
  const StepState& step = *args.step;
  TARN_ASSERT(step.n_rows > 0);

  backend.embed(args.weights->token_embd, step.tokens, step.n_rows, b.x);
  backend.rope_prepare(step);
  for (u32 layer_idx = 0; layer_idx < spec.n_layers; ++layer_idx) {
    attention(args, layer_idx);
    u32 n = step.n_rows;
    if (layer_idx + 1 == spec.n_layers) {
      n = static_cast<u32>(args.wanted.size());
      if (n == 0) return;
      backend.gather(b.x, args.wanted, spec.d_model, b.x);
      backend.gather(b.attn_out, args.wanted, spec.n_heads * spec.head_dim, b.attn_out);
    }
    output_and_ffn(args, layer_idx, n);
  }
  const u32 n = static_cast<u32>(args.wanted.size());
  backend.rms_norm(b.x, args.weights->output_norm, spec.rms_eps, spec.d_model, n, b.normed);
}

void forward_logits(const ForwardArgs& args, u32 begin, u32 n, Rows out) {
  const Projection logits[] = {{&args.weights->output, nullptr, out}};
  args.backend->project(from_row(args.buffers->normed, begin), n, logits);
}

}  // namespace tarn::engine
