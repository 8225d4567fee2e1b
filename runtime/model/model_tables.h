// The tables that describe_model() works through: hyper-parameters with their ranges, keys that
// must be neutral, tensors with their shapes, and the walk over the tensors. Private to
// runtime/model; the tests read the ranges.
//
// Keys are written without the architecture's prefix ("llama.block_count" is "block_count").
#pragma once

#include <iterator>

#include "runtime/config/fixed_text.h"
#include "runtime/model/model_spec.h"

namespace tarn::model::tables {

inline constexpr u64 kKeyTextBytesMax = 256;  // architecture, kind, scaling type
// A name of a key or a tensor. The longest text is a type's name and a tensor's in an error.
using Name = FixedText<128>;

inline constexpr const char* kArchs[] = {"llama", "qwen2", "qwen3"};  // by Arch

enum class Need : u8 { unknown, optional, required };

// Integers. The maxima are a few times those of the largest dense models. They keep every product
// of two below 2^40 and one tile of 16 f32 rows within the loader's staging.
enum class IntegerId : u8 {
  block_count,
  context_length,
  embedding_length,
  feed_forward_length,
  head_count,
  head_count_kv,
  key_length,
  value_length,
  rope_dimensions,
  vocab_size,
  count,
};
struct IntegerRow {
  IntegerId id;
  const char* suffix;
  u32 min;
  u32 max;
  bool may_be_array;  // one value for each layer; accepted if all are equal
};
inline constexpr u64 kRowElementsMax = 262144;  // of d_ff and of n_heads * head_dim
inline constexpr IntegerRow kIntegers[] = {
    {IntegerId::block_count, "block_count", 1, kLayersMax, false},
    {IntegerId::context_length, "context_length", 1, 1u << 24, false},
    {IntegerId::embedding_length, "embedding_length", 8, 65536, false},
    {IntegerId::feed_forward_length, "feed_forward_length", 1, kRowElementsMax, true},
    {IntegerId::head_count, "attention.head_count", 1, 1024, true},
    {IntegerId::head_count_kv, "attention.head_count_kv", 1, 1024, true},
    {IntegerId::key_length, "attention.key_length", 8, 256, false},
    {IntegerId::value_length, "attention.value_length", 8, 256, false},
    {IntegerId::rope_dimensions, "rope.dimension_count", 2, 256, false},
    {IntegerId::vocab_size, "vocab_size", 1, GgufLimits::kArrayElementsMax, false},
};
static_assert(std::size(kIntegers) == static_cast<u64>(IntegerId::count));

// Floating-point numbers. A value equal to the fallback is always accepted.
enum class RealId : u8 { rms_epsilon, rope_base, rope_factor, rope_factor_old, count };
struct RealRow {
  RealId id;
  const char* suffix;
  f64 min;
  f64 max;
  Need need;
  f64 fallback;
};
inline constexpr RealRow kReals[] = {
    // Below 1e-12 the norm of a row of zeros is not a number.
    {RealId::rms_epsilon, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, Need::required, 1e-5},
    {RealId::rope_base, "rope.freq_base", 1.0, 1e12, Need::optional, 10000.0},
    // 0: no scaling
    {RealId::rope_factor, "rope.scaling.factor", 1e-3, 1e6, Need::optional, 0.0},
    {RealId::rope_factor_old, "rope.scale_linear", 1e-3, 1e6, Need::optional, 0.0},
};
static_assert(std::size(kReals) == static_cast<u64>(RealId::count));

// Keys of other models that change the mathematics. Only a neutral value is accepted.
// attention.sliding_window is not among them: files of Mistral 7B v0.1 have it, llama.cpp ignores
// it for these architectures, and up to the window the result is the same.
struct NeutralRow {
  const char* suffix;
  f64 neutral;
  f64 neutral_too;
  const char* hint;
};
inline constexpr const char* kMoeHint = "a mixture of experts is not supported; use a dense model";
inline constexpr const char* kScalesHint =
    "a model with scales or soft caps of its own is not supported";
inline constexpr const char* kAttentionHint = "this kind of attention is not supported";
inline constexpr const char* kRopeHint = "this kind of RoPE is not supported";
inline constexpr NeutralRow kNeutral[] = {
    {"expert_count", 0, 0, kMoeHint},
    {"expert_used_count", 0, 0, kMoeHint},
    {"attention.causal", 1, 1, "an embedding model without causal attention is not supported"},
    {"attention.sliding_window_pattern", 0, 0, kAttentionHint},
    {"attention.shared_kv_layers", 0, 0, kAttentionHint},
    {"attention.q_lora_rank", 0, 0, kAttentionHint},
    {"attention.kv_lora_rank", 0, 0, kAttentionHint},
    {"attention.max_alibi_bias", 0, 0, kAttentionHint},
    {"attention.clamp_kqv", 0, 0, kScalesHint},
    {"attention.scale", 0, 0, kScalesHint},
    {"attention.output_scale", 0, 1, kScalesHint},
    {"attention.value_scale", 0, 1, kScalesHint},
    {"attention.temperature_scale", 0, 0, kScalesHint},
    {"attn_logit_softcapping", 0, 0, kScalesHint},
    {"final_logit_softcapping", 0, 0, kScalesHint},
    {"logit_scale", 0, 1, kScalesHint},
    {"residual_scale", 0, 1, kScalesHint},
    {"embedding_scale", 0, 1, kScalesHint},
    {"rope.scaling.attn_factor", 1, 1, kRopeHint},
    {"rope.scaling.alpha", 0, 0, kRopeHint},
    {"rope.scaling.yarn_ext_factor", 0, 0, kRopeHint},
    {"rope.dimension_sections", 0, 0, kRopeHint},
    {"use_parallel_residual", 0, 0, "parallel residuals are not supported"},
    {"nextn_predict_layers", 0, 0, "layers that predict further tokens are not supported"},
};

// Tensors by their names in llama.cpp, and each architecture's need of them.
enum class Dim : u8 { one, d_model, d_ff, d_q, d_kv, head_dim, n_vocab, half_rot };
struct Needs {
  Need of[3];  // by Arch: llama, qwen2, qwen3
};
struct TensorRow {
  u8 idx;            // of LayerTensor or ModelTensor
  const char* name;  // a layer's: the part after "blk.N."
  Dim n_rows;        // one: a vector
  Dim k;
  Needs needs;
};
inline constexpr Needs kAlways{{Need::required, Need::required, Need::required}};
inline constexpr Needs kMaybe{{Need::optional, Need::optional, Need::optional}};
inline constexpr Needs kBias{{Need::optional, Need::required, Need::optional}};
inline constexpr Needs kQwen3Only{{Need::unknown, Need::unknown, Need::required}};
template <class Id>
constexpr TensorRow tensor_row(Id id, const char* name, Dim n_rows, Dim k, Needs needs) {
  return {static_cast<u8>(id), name, n_rows, k, needs};
}
using M = ModelTensor;
using L = LayerTensor;
inline constexpr TensorRow kModelTensors[] = {
    tensor_row(M::token_embd, "token_embd.weight", Dim::n_vocab, Dim::d_model, kAlways),
    tensor_row(M::output_norm, "output_norm.weight", Dim::one, Dim::d_model, kAlways),
    tensor_row(M::output, "output.weight", Dim::n_vocab, Dim::d_model, kMaybe),
    tensor_row(M::rope_freqs, "rope_freqs.weight", Dim::one, Dim::half_rot, kMaybe),
};
inline constexpr TensorRow kLayerTensors[] = {
    tensor_row(L::attn_norm, "attn_norm.weight", Dim::one, Dim::d_model, kAlways),
    tensor_row(L::attn_q, "attn_q.weight", Dim::d_q, Dim::d_model, kAlways),
    tensor_row(L::attn_k, "attn_k.weight", Dim::d_kv, Dim::d_model, kAlways),
    tensor_row(L::attn_v, "attn_v.weight", Dim::d_kv, Dim::d_model, kAlways),
    tensor_row(L::attn_output, "attn_output.weight", Dim::d_model, Dim::d_q, kAlways),
    tensor_row(L::attn_q_bias, "attn_q.bias", Dim::one, Dim::d_q, kBias),
    tensor_row(L::attn_k_bias, "attn_k.bias", Dim::one, Dim::d_kv, kBias),
    tensor_row(L::attn_v_bias, "attn_v.bias", Dim::one, Dim::d_kv, kBias),
    tensor_row(L::attn_q_norm, "attn_q_norm.weight", Dim::one, Dim::head_dim, kQwen3Only),
    tensor_row(L::attn_k_norm, "attn_k_norm.weight", Dim::one, Dim::head_dim, kQwen3Only),
    tensor_row(L::ffn_norm, "ffn_norm.weight", Dim::one, Dim::d_model, kAlways),
    tensor_row(L::ffn_gate, "ffn_gate.weight", Dim::d_ff, Dim::d_model, kAlways),
    tensor_row(L::ffn_up, "ffn_up.weight", Dim::d_ff, Dim::d_model, kAlways),
    tensor_row(L::ffn_down, "ffn_down.weight", Dim::d_model, Dim::d_ff, kAlways),
};
static_assert(std::size(kModelTensors) == static_cast<u64>(ModelTensor::count));
static_assert(std::size(kLayerTensors) == static_cast<u64>(LayerTensor::count));

// The hints for a tensor that no row names, by a part of its name.
struct UnknownRow {
  const char* piece;
  const char* hint;
};
inline constexpr UnknownRow kUnknown[] = {
    {"attn_qkv",
     "a fused Q, K and V tensor is not supported; convert the model with separate ones"},
    {"_exps", kMoeHint},
    {"ffn_gate_inp", kMoeHint},
    {"rope_factors", "LongRoPE factors are not supported"},
    {"attn_output.bias", "a bias of the attention's output is not supported"},
    {"ffn_", "a bias or a norm in the feed-forward part is not supported"},
    {"_norm", "a norm that this architecture does not have is not supported"},
};

inline constexpr char kTooSmall[] =
    "the memory for the model's description is too small; lend it kModelMemoryBytesMax";

// Calls visit(row, layer or kNoLayer, tensor) for every row of the tables, a layer after the other;
// the tensor may be absent.
inline constexpr u32 kNoLayer = ~u32{0};
template <class Tensors, class Visit>
void each_tensor(Tensors& tensors, Visit&& visit) {
  for (const TensorRow& row : kModelTensors) visit(row, kNoLayer, tensors.model[row.idx]);
  const u32 n_layers = static_cast<u32>(tensors.layers.size() / std::size(kLayerTensors));
  for (u32 layer = 0; layer < n_layers; ++layer) {
    for (const TensorRow& row : kLayerTensors) {
      visit(row, layer, tensors.layers[layer * std::size(kLayerTensors) + row.idx]);
    }
  }
}

}  // namespace tarn::model::tables

namespace tarn::model {

// Refuses each type that has no kernels, once.
Result<void> check_types(const GgufFile& file, Refusals& refusals);

// Fills out.tensors with every tensor of a known name, and refuses each of an unknown name.
// out.spec needs its architecture and n_layers.
Result<void> find_tensors(const GgufFile& file, Bump& memory, Refusals& refusals,
                          ModelDescription& out);

// A part of a split model lacks the tensors of the other files.
enum class FileIs : u8 { whole, part };

// Checks shapes and types against out.spec, counts the tensors' elements and bytes, and records the
// optional tensors. A dimension of 0 in out.spec was refused, and is compared with nothing. Call it
// after find_tensors().
Result<void> check_tensors(FileIs file_is, Refusals& refusals, ModelDescription& out);

}  // namespace tarn::model
