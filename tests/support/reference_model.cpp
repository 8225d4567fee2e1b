#include "tests/support/reference_model.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace tarn::test {
namespace {

// Eight partial sums, so that the compiler may use vectors; f64 leaves the order no say that
// matters. Nearly all of a reference's time is here, so a sanitizer stays out: `times` is what
// checks that both are n long.
__attribute__((no_sanitize("address", "undefined", "thread"))) f64 dot(const f32* weights,
                                                                       const f64* x, u64 n) {
  f64 sums[8] = {};
  u64 i = 0;
  for (; i + 8 <= n; i += 8) {
    for (u64 j = 0; j < 8; ++j) sums[j] += f64{weights[i + j]} * x[i + j];
  }
  f64 sum = 0;
  for (; i < n; ++i) sum += f64{weights[i]} * x[i];
  for (const f64 part : sums) sum += part;
  return sum;
}

void add(std::vector<f64>& target, std::span<const f64> source) {
  for (u64 i = 0; i < target.size(); ++i) target[i] += source[i];
}

}  // namespace

std::vector<f64> ReferenceModel::Matrix::times(std::span<const f64> x) const {
  if (x.size() != k || values.size() != n_rows * k) throw std::length_error("a matrix's shape");
  std::vector<f64> out(n_rows);
  for (u64 row = 0; row < n_rows; ++row) out[row] = dot(values.data() + row * k, x.data(), k);
  return out;
}

ReferenceModel::ReferenceModel(const std::string& path) : file_(path) {
  arch_ = file_.key("general.architecture").text;
  rope_halves_ = arch_ == "qwen2" || arch_ == "qwen3";
  const auto size = [&](const std::string& key, f64 fallback) {
    return static_cast<u64>(file_.number_or(arch_ + "." + key, fallback));
  };
  n_layers_ = size("block_count", 0);
  d_model_ = size("embedding_length", 0);
  n_heads_ = size("attention.head_count", 0);
  n_kv_heads_ = size("attention.head_count_kv", static_cast<f64>(n_heads_));
  head_dim_ = size("attention.key_length", static_cast<f64>(d_model_ / n_heads_));
  n_rot_ = size("rope.dimension_count", static_cast<f64>(head_dim_));
  rms_eps_ = file_.number(arch_ + ".attention.layer_norm_rms_epsilon");

  const f64 base = file_.number_or(arch_ + ".rope.freq_base", 10000.0);
  const std::vector<f32> factors = vector_or_empty("rope_freqs.weight");
  for (u64 i = 0; i < n_rot_ / 2; ++i) {
    const f64 exponent = -2.0 * static_cast<f64>(i) / static_cast<f64>(n_rot_);
    frequencies_.push_back(std::pow(base, exponent) / (factors.empty() ? 1.0 : f64{factors[i]}));
  }
  embedding_ = matrix("token_embd.weight");
  output_ = file_.has_tensor("output.weight") ? matrix("output.weight") : embedding_;
  output_norm_ = vector_or_empty("output_norm.weight");
  n_vocab_ = output_.n_rows;
  for (u32 i = 0; i < n_layers_; ++i) layers_.push_back(layer(i));
}

ReferenceModel::Matrix ReferenceModel::matrix(const std::string& name) const {
  const auto& dims = file_.tensor(name).dims;
  return {.n_rows = dims.at(1), .k = dims.at(0), .values = file_.f32s(name)};
}

std::vector<f32> ReferenceModel::vector_or_empty(const std::string& name) const {
  return file_.has_tensor(name) ? file_.f32s(name) : std::vector<f32>{};
}

ReferenceModel::Layer ReferenceModel::layer(u32 idx) const {
  const std::string prefix = "blk." + std::to_string(idx) + ".";
  const auto vector = [&](const char* name) { return vector_or_empty(prefix + name); };
  const auto weights = [&](const char* name) { return matrix(prefix + name); };
  return {.attn_norm = vector("attn_norm.weight"),
          .ffn_norm = vector("ffn_norm.weight"),
          .q_bias = vector("attn_q.bias"),
          .k_bias = vector("attn_k.bias"),
          .v_bias = vector("attn_v.bias"),
          .q_norm = vector("attn_q_norm.weight"),
          .k_norm = vector("attn_k_norm.weight"),
          .q = weights("attn_q.weight"),
          .k = weights("attn_k.weight"),
          .v = weights("attn_v.weight"),
          .output = weights("attn_output.weight"),
          .gate = weights("ffn_gate.weight"),
          .up = weights("ffn_up.weight"),
          .down = weights("ffn_down.weight")};
}

std::vector<f64> ReferenceModel::rms_norm(std::span<const f64> x,
                                          std::span<const f32> weight) const {
  f64 sum = 0;
  for (const f64 value : x) sum += value * value;
  const f64 scale = 1 / std::sqrt(sum / static_cast<f64>(x.size()) + rms_eps_);
  std::vector<f64> out(x.size());
  for (u64 i = 0; i < x.size(); ++i) out[i] = x[i] * scale * f64{weight[i]};
  return out;
}

void ReferenceModel::rotate(std::span<f64> head, u64 position) const {
  for (u64 i = 0; i < n_rot_ / 2; ++i) {
    const f64 angle = static_cast<f64>(position) * frequencies_[i];
    f64& a = head[rope_halves_ ? i : 2 * i];
    f64& b = head[rope_halves_ ? i + n_rot_ / 2 : 2 * i + 1];
    const f64 turned = a * std::cos(angle) - b * std::sin(angle);
    b = a * std::sin(angle) + b * std::cos(angle);
    a = turned;
  }
}

void ReferenceModel::finish_heads(std::vector<f64>& row, u64 n_heads, const std::vector<f32>& bias,
                                  const std::vector<f32>& norm, u64 position) const {
  for (u64 i = 0; i < bias.size(); ++i) row[i] += f64{bias[i]};
  for (u64 h = 0; h < n_heads; ++h) {
    const std::span head = std::span(row).subspan(h * head_dim_, head_dim_);
    if (!norm.empty()) std::ranges::copy(rms_norm(head, norm), head.begin());
    rotate(head, position);
  }
}

// Attends the last row of `keys`.
std::vector<f64> ReferenceModel::attend(const std::vector<f64>& q, const Rows& keys,
                                        const Rows& values, u32 layer, const Reads& reads) const {
  std::vector<f64> out(n_heads_ * head_dim_);
  const f64 scale = 1 / std::sqrt(static_cast<f64>(head_dim_));
  for (u64 h = 0; h < n_heads_; ++h) {
    const u64 kv_head = h / (n_heads_ / n_kv_heads_), kv_at = kv_head * head_dim_;
    std::vector<u64> slots;
    std::vector<f64> scores;
    for (u64 t = 0; t < keys.size(); ++t) {
      if (reads && !reads({layer, static_cast<u32>(kv_head), keys.size() - 1, t})) continue;
      f64 sum = 0;
      for (u64 d = 0; d < head_dim_; ++d) sum += q[h * head_dim_ + d] * keys[t][kv_at + d];
      slots.push_back(t);
      scores.push_back(sum * scale);
    }
    const f64 peak = *std::ranges::max_element(scores);
    f64 total = 0;
    for (f64& score : scores) total += score = std::exp(score - peak);
    for (u64 i = 0; i < slots.size(); ++i) {
      const f64 weight = scores[i] / total;
      const std::vector<f64>& value = values[slots[i]];
      for (u64 d = 0; d < head_dim_; ++d) out[h * head_dim_ + d] += weight * value[kv_at + d];
    }
  }
  return out;
}

void ReferenceModel::attention_block(u32 layer_idx, Rows& stream, const Pass& pass) const {
  const Layer& layer = layers_[layer_idx];
  Rows keys, values;
  for (u64 t = 0; t < stream.size(); ++t) {
    if (!pass.computes(t)) {
      keys.push_back(pass.placed->keys[layer_idx][t]);
      values.push_back(pass.placed->values[layer_idx][t]);
      continue;
    }
    const u64 position = pass.first_position + t;
    const auto x = rms_norm(stream[t], layer.attn_norm);
    auto q = layer.q.times(x);
    keys.push_back(layer.k.times(x));
    values.push_back(layer.v.times(x));
    finish_heads(q, n_heads_, layer.q_bias, layer.q_norm, position);
    finish_heads(keys.back(), n_kv_heads_, layer.k_bias, layer.k_norm, position);
    for (u64 i = 0; i < layer.v_bias.size(); ++i) values.back()[i] += f64{layer.v_bias[i]};
    add(stream[t], layer.output.times(attend(q, keys, values, layer_idx, pass.reads)));
  }
  if (pass.kept == nullptr) return;
  pass.kept->keys.push_back(std::move(keys));
  pass.kept->values.push_back(std::move(values));
}

void ReferenceModel::ffn_block(const Layer& layer, Rows& stream, const Pass& pass) const {
  for (u64 t = 0; t < stream.size(); ++t) {
    if (!pass.computes(t)) continue;
    const auto x = rms_norm(stream[t], layer.ffn_norm);
    auto hidden = layer.gate.times(x);
    const auto up = layer.up.times(x);
    for (u64 i = 0; i < hidden.size(); ++i) hidden[i] *= up[i] / (1 + std::exp(-hidden[i]));
    add(stream[t], layer.down.times(hidden));
  }
}

ReferenceModel::Rows ReferenceModel::embedded(std::span<const u32> ids) const {
  Rows stream;
  for (const u32 id : ids) {
    const auto row = std::span(embedding_.values).subspan(id * d_model_, d_model_);
    stream.emplace_back(row.begin(), row.end());
  }
  return stream;
}

void ReferenceModel::forward(Rows& stream, const Pass& pass) const {
  for (u32 idx = 0; idx < n_layers_; ++idx) {
    attention_block(idx, stream, pass);
    ffn_block(layers_[idx], stream, pass);
  }
}

std::vector<f64> ReferenceModel::logits(std::span<const u32> ids, u64 first,
                                        const Reads& reads) const {
  Rows stream = embedded(ids);
  forward(stream, {.reads = reads});
  std::vector<f64> out;
  out.reserve((ids.size() - first) * n_vocab_);
  for (u64 t = first; t < ids.size(); ++t) {
    const auto logits = output_.times(rms_norm(stream[t], output_norm_));
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

ReferenceModel::Kv ReferenceModel::kv(std::span<const u32> ids, u64 first_position) const {
  Kv kept;
  Rows stream = embedded(ids);
  forward(stream, {.first_position = first_position, .reads = {}, .kept = &kept});
  return kept;
}

std::vector<f64> ReferenceModel::blended_logits(std::span<const u32> ids, const Kv& placed,
                                                const std::vector<bool>& computed) const {
  Rows stream = embedded(ids);
  forward(stream, {.reads = {}, .placed = &placed, .computed = &computed});
  return output_.times(rms_norm(stream.back(), output_norm_));
}

}  // namespace tarn::test
