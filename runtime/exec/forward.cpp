#include "runtime/exec/forward.h"

#include "platform/base/assert.h"

namespace tarn::exec {
namespace {

Rows from_column(Rows rows, u64 column) { return {rows.data + column, rows.stride}; }

Rows q_rows(const StepBuffers& b) { return b.qkv; }

void show_kv(const step::Batch& batch, u32 cache_layer, Rows q, Rows k, Rows v) {
  for (const step::Run& run : batch.runs) {
    batch.kv_watch.rows(batch.kv_watch.context, {.session = run.session,
                                                 .cache_layer = cache_layer,
                                                 .first_slot = batch.slots[run.row_begin],
                                                 .n = run.n_rows,
                                                 .k = from_row(k, run.row_begin),
                                                 .v = from_row(v, run.row_begin),
                                                 .q = from_row(q, run.row_begin)});
  }
}

// norm -> q,k,v -> (qk norm) -> rope -> append KV -> attend. Leaves the heads' outputs in attn_out.
void attention(const ForwardArgs& args, u32 layer_idx) {
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const model::LayerWeights& layer = args.weights->layers[layer_idx];
  const StepBuffers& b = args.buffers;
  const step::Batch& batch = *args.batch;
  const u32 n = batch.n_rows;
  const u64 d_q = u64{spec.n_heads} * spec.head_dim;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  const Rows q = q_rows(b);
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
  const u32 cache_layer = spec.kv_source[layer_idx];
  if (batch.kv_watch.rows != nullptr) show_kv(batch, cache_layer, q, k, v);
  backend.rope(q, k, n);
  backend.kv_append(batch, cache_layer, k, v);
  backend.attend(batch, cache_layer, q, b.attn_out);
}

// norm -> v for the run that ends at the check layer, which stays where attention would leave its
// rows. From here on the batch has the others alone.
void end_check_runs(const ForwardArgs& args, u32 layer_idx, step::Batch& batch) {
  u64 n_kept = batch.runs.size();
  while (n_kept > 0 && batch.runs[n_kept - 1].part == step::RunPart::check) --n_kept;
  if (n_kept == batch.runs.size()) return;
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const model::LayerWeights& layer = args.weights->layers[layer_idx];
  const StepBuffers& b = args.buffers;
  const u32 begin = batch.runs[n_kept].row_begin, n = batch.n_rows - begin;
  const Rows normed = from_row(b.normed, begin);
  const Rows v = check_values(args, begin);
  backend.rms_norm(from_row(b.x, begin), layer.attn_norm, spec.rms_eps, spec.d_model, n, normed);
  const Projection values[] = {{&layer.attn_v, layer.attn_v_bias, v}};
  backend.project(normed, n, values);
  backend.fetch(v, n, v.stride, args.host_values.data != nullptr ? args.host_values : v);
  batch.runs = batch.runs.first(n_kept);
  batch.n_rows = begin;
}

// output -> add -> norm -> gate,up -> swiglu -> down -> add, for the first n rows.
void output_and_ffn(const ForwardArgs& args, const StepBuffers& b, u32 layer_idx, u32 n) {
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  const model::LayerWeights& layer = args.weights->layers[layer_idx];

  backend.project_add({&layer.attn_output, b.attn_out, b.normed, b.x}, n);

  backend.rms_norm(b.x, layer.ffn_norm, spec.rms_eps, spec.d_model, n, b.normed);
  const Projection gate_up[] = {{&layer.ffn_gate, nullptr, b.gate}, {&layer.ffn_up, nullptr, b.up}};
  backend.project(b.normed, n, gate_up);
  backend.swiglu(b.gate, b.up, spec.d_ff, n, b.gate);
  backend.project_add({&layer.ffn_down, b.gate, b.normed, b.x}, n);
}

// Keeps the logit rows of the residual stream and of the heads' outputs, in other buffers: queries
// and the normed rows are of no use any more. From here on these are the step's.
StepBuffers keep_logit_rows(const ForwardArgs& args) {
  const model::ModelSpec& spec = *args.spec;
  const StepBuffers& b = args.buffers;
  args.backend->gather(*args.batch, b.x, spec.d_model, b.normed);
  args.backend->gather(*args.batch, b.attn_out, spec.n_heads * spec.head_dim, q_rows(b));
  StepBuffers kept = b;
  kept.x = b.normed;
  kept.normed = b.x;
  kept.attn_out = q_rows(b);
  return kept;
}

}  // namespace

Rows check_values(const ForwardArgs& args, u32 row_begin) {
  const u64 d_kv = u64{args.spec->n_kv_heads} * args.spec->head_dim;
  return {from_row(args.buffers.attn_out, row_begin).data, d_kv};
}

void forward_layers(const ForwardArgs& step) {
  step::Batch batch = *step.batch;
  ForwardArgs args = step;
  args.batch = &batch;
  Backend& backend = *args.backend;
  const model::ModelSpec& spec = *args.spec;
  StepBuffers b = args.buffers;
  const u32 n_logit_rows = static_cast<u32>(batch.logit_rows.size());
  TARN_ASSERT(batch.n_rows > 0);

  backend.begin_step(batch);
  // Rows of a table on disk were read before the step.
  if (!args.weights->embedding_on_disk()) backend.embed(args.weights->token_embd, batch, b.x);
  for (u32 layer_idx = 0; layer_idx < spec.n_layers; ++layer_idx) {
    if (layer_idx == batch.check_layer) end_check_runs(args, layer_idx, batch);
    if (backend.is_abandoned() || batch.n_rows == 0) return;
    attention(args, layer_idx);
    const bool is_last = layer_idx + 1 == spec.n_layers;
    if (is_last && n_logit_rows == 0) return;
    if (is_last && n_logit_rows < batch.n_rows) b = keep_logit_rows(args);
    output_and_ffn(args, b, layer_idx, is_last ? n_logit_rows : batch.n_rows);
  }
  const Rows normed = args.buffers.normed;
  backend.rms_norm(b.x, args.weights->output_norm, spec.rms_eps, spec.d_model, n_logit_rows,
                   normed);
}

void forward_logits(const ForwardArgs& args, u32 begin, u32 n, Rows out) {
  const Projection logits[] = {{&args.weights->output, nullptr, out}};
  args.backend->project(from_row(args.buffers.normed, begin), n, logits);
}

}  // namespace tarn::exec
