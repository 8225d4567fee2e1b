#include "tests/support/tiny_model.h"

#include <bit>

#include "runtime/model/gguf.h"
#include "tests/support/seed.h"

namespace tarn::test {
namespace {

constexpr u32 kF32 = 0;
constexpr u32 kF16 = 1;
constexpr u32 kBf16 = 30;

// Truncated; `value` must be a normal number of the f16 range, as the ones below are.
u16 f16_bits(f32 value) {
  const u32 bits = std::bit_cast<u32>(value);
  const u32 exponent = ((bits >> 23) & 0xFF) - 127 + 15;
  return static_cast<u16>(((bits >> 16) & 0x8000) | (exponent << 10) | ((bits >> 13) & 0x3FF));
}

class Builder {
 public:
  explicit Builder(const TinyModelArgs& args) : args_(args), random_(args.seed) {}

  GgufImage build() {
    keys();
    matrix("token_embd.weight", args_.d_model, args_.n_vocab);
    if (args_.rope_factors) vector("rope_freqs.weight", args_.head_dim / 2);
    for (u32 layer = 0; layer < args_.n_layers; ++layer) add_layer(layer);
    vector("output_norm.weight", args_.d_model);
    if (!args_.tied) matrix("output.weight", args_.d_model, args_.n_vocab);
    return std::move(image_);
  }

 private:
  void keys() {
    const std::string arch = args_.arch;
    image_.set_string("general.architecture", arch);
    image_.set_u32(arch + ".block_count", args_.n_layers);
    image_.set_u32(arch + ".context_length", args_.n_ctx_train);
    image_.set_u32(arch + ".embedding_length", args_.d_model);
    image_.set_u32(arch + ".feed_forward_length", args_.d_ff);
    image_.set_u32(arch + ".attention.head_count", args_.n_heads);
    image_.set_u32(arch + ".attention.head_count_kv", args_.n_kv_heads);
    image_.set_u32(arch + ".attention.key_length", args_.head_dim);
    image_.set_u32(arch + ".attention.value_length", args_.head_dim);
    image_.set_f32(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    image_.set_f32(arch + ".rope.freq_base", 10000.0f);
    image_.set_u32(arch + ".rope.dimension_count", args_.head_dim);
    std::vector<std::string> tokens;
    for (u32 i = 0; i < args_.n_vocab; ++i) tokens.push_back("t" + std::to_string(i));
    image_.set_strings("tokenizer.ggml.tokens", tokens);
  }

  void add_layer(u32 layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const std::string arch = args_.arch;
    const u64 d_q = u64{args_.n_heads} * args_.head_dim;
    const u64 d_kv = u64{args_.n_kv_heads} * args_.head_dim;
    vector(prefix + "attn_norm.weight", args_.d_model);
    matrix(prefix + "attn_q.weight", args_.d_model, d_q);
    matrix(prefix + "attn_k.weight", args_.d_model, d_kv);
    matrix(prefix + "attn_v.weight", args_.d_model, d_kv);
    if (arch == "qwen2") {
      vector(prefix + "attn_q.bias", d_q);
      vector(prefix + "attn_k.bias", d_kv);
      vector(prefix + "attn_v.bias", d_kv);
    }
    if (arch == "qwen3") {
      vector(prefix + "attn_q_norm.weight", args_.head_dim);
      vector(prefix + "attn_k_norm.weight", args_.head_dim);
    }
    matrix(prefix + "attn_output.weight", d_q, args_.d_model);
    vector(prefix + "ffn_norm.weight", args_.d_model);
    matrix(prefix + "ffn_gate.weight", args_.d_model, args_.d_ff);
    matrix(prefix + "ffn_up.weight", args_.d_model, args_.d_ff);
    matrix(prefix + "ffn_down.weight", args_.d_ff, args_.d_model);
  }

  void matrix(const std::string& name, u64 k, u64 n_rows) {
    image_.add_tensor(name, args_.type, {k, n_rows}, values(args_.type, k * n_rows));
  }
  void vector(const std::string& name, u64 k) {
    image_.add_tensor(name, args_.vector_type, {k}, values(args_.vector_type, k));
  }

  Bytes values(u32 type, u64 n_elements) {
    Bytes out;
    if (type != kF32 && type != kF16 && type != kBf16) {
      const model::GgufTensorTypeInfo* info = model::gguf_tensor_type(type);
      out.resize(n_elements / info->block_elems * info->block_bytes);
      for (std::byte& byte : out) byte = static_cast<std::byte>(random_.next());
      return out;
    }
    for (u64 i = 0; i < n_elements; ++i) {
      const f32 value = random_.uniform(0.25f, 1.75f);
      const u16 half =
          type == kF16 ? f16_bits(value) : static_cast<u16>(std::bit_cast<u32>(value) >> 16);
      if (type == kF32) put_bytes(out, &value, sizeof value);
      if (type != kF32) put_bytes(out, &half, sizeof half);
    }
    return out;
  }

  TinyModelArgs args_;
  Random random_;
  GgufImage image_;
};

}  // namespace

TinyModelArgs tiny_shape_of(u32 type) {
  TinyModelArgs args{.type = type};
  if (model::gguf_tensor_type(type)->block_elems > args.d_model) {
    args.d_model = args.d_ff = 256;
    args.head_dim = 64;
  }
  return args;
}

GgufImage tiny_model(const TinyModelArgs& args) { return Builder(args).build(); }

}  // namespace tarn::test
