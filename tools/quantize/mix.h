// Chooses the type of each tensor of a quantised model.
//
//   a type    for every matrix
//   q4_k_m    llama.cpp's mix Q4_K_M: q6_k for the output matrix (the embedding, where the output
//             is tied to it) and for attn_v and ffn_down of about half of the layers, else q4_k
//
// Vectors, norms and everything else that is not a weight matrix stay as they are. A matrix with
// rows that are not a whole number of the type's blocks gets llama.cpp's replacement, and f16 if
// the rows are not a multiple of 32 either.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

struct Quant {
  kernels::TensorType type = kernels::TensorType::q4_k;
  enum class Mix : u8 { none, q4_k_m } mix = Mix::none;
};

// "f32, f16, ..., q4_k_m": what parse_quant() knows, for messages.
std::string quant_names();
// "q4_0 for q2_k, ...": the types' replacements, for messages.
std::string replacement_names();
std::optional<Quant> parse_quant(std::string_view name);
std::string_view quant_name(Quant quant);
// general.file_type: llama.cpp's number for the type of most tensors.
u32 file_type(Quant quant);
// Whether a layer's attn_v and ffn_down get more bits in q4_k_m, as in llama.cpp.
bool gets_more_bits(u32 layer, u32 n_layers);

// The model's facts that the choice depends on.
struct MixModel {
  u32 n_layers = 0;
  u32 n_heads = 0;
  u32 n_kv_heads = 0;
  bool tied_output = false;
};

// The type for a tensor, before type_for_rows(); empty if the tensor stays as it is.
std::optional<kernels::TensorType> wanted_type(Quant quant, const MixModel& model,
                                               std::string_view tensor_name, u32 n_dims);
// Returns the type, or its replacement for rows of this length.
kernels::TensorType type_for_rows(kernels::TensorType type, u64 row_elems);

}  // namespace tarn::tools
