// The hyper-parameters of a model, validated against the table in model_tables.h before any
// arithmetic, and the place of each tensor in the file. The plan and the forward pass know nothing
// else about a model.
#pragma once

#include <array>
#include <span>

#include "kernels/quant/tensor_type.h"
#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/model/gguf.h"
#include "runtime/model/refusals.h"

namespace tarn::model {

enum class Arch : u8 { llama, qwen2, qwen3 };
const char* arch_name(Arch arch);

inline constexpr u32 kLayersMax = 512;

struct ModelSpec {
  Arch arch = Arch::llama;
  u32 n_layers = 0;
  u32 d_model = 0;
  u32 d_ff = 0;
  u32 n_heads = 0;
  u32 n_kv_heads = 0;
  u32 head_dim = 0;  // even, 8..256
  u32 n_rot = 0;     // rotated dims, even, <= head_dim
  u32 n_vocab = 0;
  u64 n_ctx_train = 0;
  f32 rms_eps = 1e-5f;
  f64 rope_base = 10000.0;
  f64 rope_scale = 1.0;      // 1 / linear scaling factor
  bool rope_halves = false;  // pairs (i, i + n_rot/2) instead of (2i, 2i+1)
  bool qkv_bias = false;     // some biases exist; each tensor tells whether it does
  bool qk_norm = false;
  bool tied_output = false;
  bool embedding_on_disk = false;           // set by the reader, if the output is not tied
  u32 n_cache_layers = 0;                   // distinct values of kv_source
  std::array<u16, kLayersMax> kv_source{};  // model layer -> cache layer
  u64 n_params = 0;                         // elements of all tensors
  u64 weights_file_bytes = 0;               // of all tensors used

  // The number of first dims of a head that form adjacent rotary pairs.
  u32 adjacent_dims() const { return rope_halves ? 0 : n_rot; }
};

// A tensor in the file and its shape in memory, n_rows * k elements.
struct TensorRef {
  kernels::TensorType type = kernels::TensorType::f32;
  u64 n_rows = 0;  // 0: absent
  u64 k = 0;
  u64 file_offset = 0;
  u64 file_bytes = 0;
  const char* name = "";  // in the directory's memory
  bool present() const { return n_rows != 0; }
};

enum class LayerTensor : u8 {
  attn_norm,
  attn_q,
  attn_k,
  attn_v,
  attn_output,
  attn_q_bias,
  attn_k_bias,
  attn_v_bias,
  attn_q_norm,
  attn_k_norm,
  ffn_norm,
  ffn_gate,
  ffn_up,
  ffn_down,
  count,
};
enum class ModelTensor : u8 { token_embd, output_norm, output, rope_freqs, count };

struct ModelTensors {
  std::array<TensorRef, static_cast<u64>(ModelTensor::count)> model{};
  // [n_layers][LayerTensor::count]
  std::span<TensorRef> layers{};
  const TensorRef& of(ModelTensor t) const { return model[static_cast<u64>(t)]; }
  const TensorRef& of(u32 layer, LayerTensor t) const {
    return layers[layer * static_cast<u64>(LayerTensor::count) + static_cast<u64>(t)];
  }
};

struct ModelDescription {
  ModelSpec spec{};
  ModelTensors tensors{};
};

// The most memory that a caller lends for a file's directory and its description together.
inline constexpr u64 kModelMemoryBytesMax =
    kGgufMemoryBytesMax + kLayersMax * static_cast<u64>(LayerTensor::count) * sizeof(TensorRef) +
    64 * kKiB;
static_assert(kModelMemoryBytesMax <= 16 * kMiB);

// Checks every hyper-parameter, then every tensor that the architecture needs: its presence, its
// shape, and a type with kernels. A key or a tensor that would change the mathematics in an
// unsupported way is `unsupported`, and so is any tensor that the architecture does not have.
// Biases, norms and rope_freqs must be f32 (f16 and bf16 are accepted and widened at load). A
// failure leaves `memory` as it was.
//
// `refusals` with a visitor gets every reason, and the result is the first of them. Without a known
// architecture only ranges of keys, neutral keys and tensor types are checked.
Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory, Refusals& refusals);
Result<ModelDescription> describe_model(const GgufFile& file, Bump& memory);

}  // namespace tarn::model
