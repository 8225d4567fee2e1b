#include "tools/quantize/mix.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "platform/base/assert.h"

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

// general.file_type, llama.cpp's number for the type of most tensors; and llama.cpp's replacement
// for rows that are not a whole number of blocks, the type itself if it has none.
struct TypeRow {
  TensorType type;
  u32 file_type;
  TensorType shorter;
};

constexpr TypeRow kTypeRows[] = {
    {TensorType::f32, 0, TensorType::f32},        {TensorType::f16, 1, TensorType::f16},
    {TensorType::q4_0, 2, TensorType::q4_0},      {TensorType::q4_1, 3, TensorType::q4_1},
    {TensorType::q8_0, 7, TensorType::q8_0},      {TensorType::q5_0, 8, TensorType::q5_0},
    {TensorType::q5_1, 9, TensorType::q5_1},      {TensorType::q3_k, 11, TensorType::q4_0},
    {TensorType::q4_k, 14, TensorType::q5_0},     {TensorType::q5_k, 16, TensorType::q5_1},
    {TensorType::q6_k, 18, TensorType::q8_0},     {TensorType::q2_k, 10, TensorType::q4_0},
    {TensorType::iq4_nl, 25, TensorType::iq4_nl}, {TensorType::iq4_xs, 30, TensorType::iq4_nl},
    {TensorType::bf16, 32, TensorType::bf16},     {TensorType::mxfp4, 38, TensorType::mxfp4},
};
constexpr u32 kFileTypeQ4KM = 15;

const TypeRow& row_of(TensorType type) {
  const TypeRow* found = std::find_if(std::begin(kTypeRows), std::end(kTypeRows),
                                      [&](const TypeRow& row) { return row.type == type; });
  TARN_ASSERT(found != std::end(kTypeRows));
  return *found;
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

std::string quant_names() {
  std::string names;
  for (const auto& traits : kernels::kTypeTraits) names += std::string(traits.name) + ", ";
  return names + "q4_k_m";
}

std::string replacement_names() {
  std::string names;
  for (const TypeRow& row : kTypeRows) {
    if (row.shorter == row.type) continue;
    if (!names.empty()) names += ", ";
    names += kernels::type_traits(row.shorter).name;
    names += " for ";
    names += kernels::type_traits(row.type).name;
  }
  return names;
}

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
  return quant.mix == Quant::Mix::q4_k_m ? kFileTypeQ4KM : row_of(quant.type).file_type;
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
  const TensorType shorter = row_of(type).shorter;
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
