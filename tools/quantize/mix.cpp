#include "tools/quantize/mix.h"

#include <charconv>

namespace tarn::tools {
namespace {

using kernels::TensorType;

// N of blk.N.; 0 without one.
u32 layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  u32 layer = 0;
  if (name.starts_with(kPrefix)) {
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), layer);
  }
  return layer;
}

// llama.cpp recognises Llama 2 and 3 70B and Qwen2 72B this way.
bool is_70b(const MixModel& model) {
  return model.n_layers == 80 && model.n_heads != model.n_kv_heads;
}

TensorType type_in_q4_k_m(const MixModel& model, std::string_view name) {
  const bool output = name == "output.weight" || (model.tied_output && name == "token_embd.weight");
  const bool attn_v = name.ends_with(".attn_v.weight"), down = name.ends_with(".ffn_down.weight");
  const bool more_bits = gets_more_bits(layer_of(name), model.n_layers);
  if (output || ((attn_v || down) && more_bits)) return TensorType::q6_k;
  // Eight heads share a value matrix in these models, so more bits for it cost little.
  if (attn_v && is_70b(model)) return TensorType::q5_k;
  return TensorType::q4_k;
}

}  // namespace

std::optional<Quant> parse_quant(std::string_view name) {
  if (name == "q4_k_m") return Quant{TensorType::q4_k, Quant::Mix::q4_k_m};
  for (const auto& traits : kernels::kTypeTraits) {
    if (name == traits.name) return Quant{traits.type, Quant::Mix::none};
  }
  return std::nullopt;
}

std::string_view quant_name(Quant quant) {
  return quant.mix == Quant::Mix::q4_k_m ? "q4_k_m" : kernels::type_traits(quant.type).name;
}

u32 file_type(Quant quant) {
  if (quant.mix == Quant::Mix::q4_k_m) return 15;
  switch (quant.type) {
    case TensorType::f32:
      return 0;
    case TensorType::f16:
      return 1;
    case TensorType::q4_0:
      return 2;
    case TensorType::q8_0:
      return 7;
    case TensorType::q5_0:
      return 8;
    case TensorType::q4_k:
      return 14;
    case TensorType::q5_k:
      return 16;
    case TensorType::q6_k:
      return 18;
    case TensorType::bf16:
      return 32;
  }
  return 0;
}

bool gets_more_bits(u32 layer, u32 n_layers) {
  const u32 eighth = n_layers / 8;
  return layer < eighth || layer >= 7 * n_layers / 8 || (layer - eighth) % 3 == 2;
}

TensorType type_for_rows(TensorType type, u64 row_elems) {
  const auto fits = [&](TensorType t) {
    return row_elems % kernels::type_traits(t).block_elems == 0;
  };
  if (fits(type)) return type;
  const TensorType shorter = type == TensorType::q4_k   ? TensorType::q5_0
                             : type == TensorType::q5_k ? TensorType::q8_0
                             : type == TensorType::q6_k ? TensorType::q8_0
                                                        : type;
  return fits(shorter) ? shorter : TensorType::f16;
}

std::optional<TensorType> wanted_type(Quant quant, const MixModel& model,
                                      std::string_view tensor_name, u32 n_dims) {
  const bool weights = n_dims >= 2 && tensor_name.ends_with("weight") &&
                       tensor_name.find("_norm.weight") == std::string_view::npos;
  if (!weights) return std::nullopt;
  return quant.mix == Quant::Mix::q4_k_m ? type_in_q4_k_m(model, tensor_name) : quant.type;
}

}  // namespace tarn::tools
