// The oracle of the forward pass: llama, qwen2 and qwen3 in f64 on a file's dequantised weights. It
// follows the papers' formulas plainly, with all positions at once and no cache. It shares only
// kernels::dequantize_row with the code under test, which has its own golden blocks.
//
//   cost    n_weights * positions multiplications, one thread: for tiny models
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/gguf_reader.h"

namespace tarn::test {

class ReferenceModel {
 public:
  explicit ReferenceModel(const std::string& path);

  u32 n_vocab() const { return static_cast<u32>(n_vocab_); }
  bool begins_with_bos() const { return arch_ == "llama"; }  // by the file's tokenizer's default
  // Whether a KV head of a layer reads slot `slot` (<= position) for the row at `position`.
  struct Read {
    u32 layer, kv_head;
    u64 position, slot;
  };
  using Reads = std::function<bool(const Read&)>;

  // Row-major [ids.size() - first, n_vocab]: row i is the prediction after ids 0..first + i. Every
  // row reads all slots before it, or those that `reads` allows.
  std::vector<f64> logits(std::span<const u32> ids, u64 first = 0, const Reads& reads = {}) const;

  // K and V of every layer and token; K after RoPE, the first token at this position.
  using Rows = std::vector<std::vector<f64>>;  // one per position
  struct Kv {
    std::vector<Rows> keys, values;  // by layer
  };
  Kv kv(std::span<const u32> ids, u64 first_position = 0) const;
  // The logits behind the last token, where K and V of the tokens that are not `computed` are those
  // of `placed` in every layer.
  std::vector<f64> blended_logits(std::span<const u32> ids, const Kv& placed,
                                  const std::vector<bool>& computed) const;

 private:
  struct Matrix {
    u64 n_rows = 0;
    u64 k = 0;
    std::vector<f32> values;
    bool present() const { return n_rows != 0; }
    std::vector<f64> times(std::span<const f64> x) const;
  };
  struct Layer {
    std::vector<f32> attn_norm, ffn_norm, q_bias, k_bias, v_bias, q_norm, k_norm;
    Matrix q, k, v, output, gate, up, down;
  };
  // The options of a pass: the position of its first row, K and V that it takes in place of its
  // own, and where it leaves those that it has.
  struct Pass {
    u64 first_position = 0;
    const Reads& reads;
    const Kv* placed = nullptr;
    const std::vector<bool>* computed = nullptr;
    Kv* kept = nullptr;
    bool computes(u64 t) const { return computed == nullptr || (*computed)[t]; }
  };

  Rows embedded(std::span<const u32> ids) const;
  void forward(Rows& stream, const Pass& pass) const;
  Matrix matrix(const std::string& name) const;
  std::vector<f32> vector_or_empty(const std::string& name) const;
  Layer layer(u32 idx) const;
  void rotate(std::span<f64> head, u64 position) const;
  // Adds the bias, norms and rotates each head of a projection.
  void finish_heads(std::vector<f64>& row, u64 n_heads, const std::vector<f32>& bias,
                    const std::vector<f32>& norm, u64 position) const;
  std::vector<f64> attend(const std::vector<f64>& q, const Rows& keys, const Rows& values,
                          u32 layer, const Reads& reads) const;
  void attention_block(u32 layer_idx, Rows& stream, const Pass& pass) const;
  void ffn_block(const Layer& layer, Rows& stream, const Pass& pass) const;
  std::vector<f64> rms_norm(std::span<const f64> x, std::span<const f32> weight) const;

  GgufReader file_;
  std::string arch_;
  bool rope_halves_ = false;
  u64 n_layers_ = 0, d_model_ = 0, n_heads_ = 0, n_kv_heads_ = 0, head_dim_ = 0, n_rot_ = 0;
  u64 n_vocab_ = 0;
  f64 rms_eps_ = 0;
  std::vector<f64> frequencies_;  // [n_rot/2], radians per position
  Matrix embedding_, output_;
  std::vector<f32> output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace tarn::test
