// Descriptions of models made by hand, as describe_model() would give them for real files.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/model/model_spec.h"

namespace tarn::test {

struct ShapeArgs {
  u32 n_layers = 2, d_model = 256, d_ff = 512, n_heads = 4, n_kv_heads = 2, head_dim = 64;
  u32 n_vocab = 1000;
  u64 n_ctx_train = 4096;
  kernels::TensorType type = kernels::TensorType::q4_k;
  bool mix_q6_k = false;  // Q4_K_M: output, and attn_v and ffn_down of half of the layers, in Q6_K
  bool tied_output = false;
  bool rope_freqs = false;
};

// Owns what the description's spans point into; not copied, so that they stay valid.
class ShapedModel {
 public:
  explicit ShapedModel(const ShapeArgs& args) {
    model::ModelSpec& spec = description.spec;
    spec.n_layers = spec.n_cache_layers = args.n_layers;
    spec.d_model = args.d_model;
    spec.d_ff = args.d_ff;
    spec.n_heads = args.n_heads;
    spec.n_kv_heads = args.n_kv_heads;
    spec.head_dim = spec.n_rot = args.head_dim;
    spec.n_vocab = args.n_vocab;
    spec.n_ctx_train = args.n_ctx_train;
    spec.tied_output = args.tied_output;
    for (u32 i = 0; i < args.n_layers; ++i) spec.kv_source[i] = static_cast<u16>(i);

    using enum model::LayerTensor;
    using model::ModelTensor;
    const u64 d = args.d_model, d_q = u64{args.n_heads} * args.head_dim;
    const u64 d_kv = u64{args.n_kv_heads} * args.head_dim;
    const auto q6_k = kernels::TensorType::q6_k;
    put(of(ModelTensor::token_embd), args.type, args.n_vocab, d);
    put(of(ModelTensor::output_norm), kernels::TensorType::f32, 1, d);
    if (!args.tied_output)
      put(of(ModelTensor::output), args.mix_q6_k ? q6_k : args.type, args.n_vocab, d);
    if (args.rope_freqs)
      put(of(ModelTensor::rope_freqs), kernels::TensorType::f32, 1, args.head_dim / 2);
    layers_.resize(args.n_layers * static_cast<u64>(model::LayerTensor::count));
    description.tensors.layers = layers_;
    for (u32 layer = 0; layer < args.n_layers; ++layer) {
      const u32 eighth = args.n_layers / 8;
      const bool more_bits =
          layer < eighth || layer >= 7 * args.n_layers / 8 || (layer - eighth) % 3 == 2;
      const auto mixed = args.mix_q6_k && more_bits ? q6_k : args.type;
      put(of(layer, attn_norm), kernels::TensorType::f32, 1, d);
      put(of(layer, ffn_norm), kernels::TensorType::f32, 1, d);
      put(of(layer, attn_q), args.type, d_q, d);
      put(of(layer, attn_k), args.type, d_kv, d);
      put(of(layer, attn_v), mixed, d_kv, d);
      put(of(layer, attn_output), args.type, d, d_q);
      put(of(layer, ffn_gate), args.type, args.d_ff, d);
      put(of(layer, ffn_up), args.type, args.d_ff, d);
      put(of(layer, ffn_down), mixed, d, args.d_ff);
    }
  }
  ShapedModel(const ShapedModel&) = delete;
  ShapedModel& operator=(const ShapedModel&) = delete;

  model::ModelDescription description;

 private:
  model::TensorRef& of(model::ModelTensor tensor) {
    return description.tensors.model[static_cast<u64>(tensor)];
  }
  model::TensorRef& of(u32 layer, model::LayerTensor tensor) {
    return layers_[layer * static_cast<u64>(model::LayerTensor::count) + static_cast<u64>(tensor)];
  }
  void put(model::TensorRef& tensor, kernels::TensorType type, u64 n_rows, u64 k) {
    tensor = {.type = type, .n_rows = n_rows, .k = k};
    tensor.file_bytes = n_rows * kernels::row_bytes(type, k);
    description.spec.n_params += n_rows * k;
    description.spec.weights_file_bytes += tensor.file_bytes;
  }

  std::vector<model::TensorRef> layers_;
};

inline constexpr ShapeArgs kLlama31Of8B{.n_layers = 32,
                                        .d_model = 4096,
                                        .d_ff = 14336,
                                        .n_heads = 32,
                                        .n_kv_heads = 8,
                                        .head_dim = 128,
                                        .n_vocab = 128256,
                                        .n_ctx_train = 131072,
                                        .type = kernels::TensorType::q4_k,
                                        .mix_q6_k = true,
                                        .rope_freqs = true};

}  // namespace tarn::test
