// Inputs that llama.cpp and we quantise: models whose matrices try every rule of its mix, and
// rows whose rounding errors are compared. Changing anything here means making types.txt and
// rmse.txt anew (make_golden.py).
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tools/synth/random_blocks.h"
#include "tools/synth/synth.h"

namespace tarn::golden {

struct MixCase {
  const char* name;
  synth::SynthShape shape;
};

inline synth::SynthShape mix_shape(u32 n_layers) {
  synth::SynthShape shape{.name = "mix", .n_layers = n_layers, .d_ff = 256, .n_vocab = 1024};
  shape.head_dim = 64;
  shape.n_heads = 4;
  shape.n_kv_heads = 2;
  return shape;
}

inline std::vector<MixCase> mix_cases() {
  std::vector<MixCase> cases = {{"1-layer", mix_shape(1)},   {"2-layers", mix_shape(2)},
                                {"7-layers", mix_shape(7)},  {"8-layers", mix_shape(8)},
                                {"9-layers", mix_shape(9)},  {"28-layers", mix_shape(28)},
                                {"80-layers", mix_shape(80)}};
  synth::SynthShape shape = mix_shape(80);
  shape.n_kv_heads = shape.n_heads;  // 65B, not 70B
  cases.push_back({"80-layers-mha", shape});
  shape = mix_shape(8);
  shape.output = synth::Output::tied;
  cases.push_back({"tied", shape});
  shape.arch = synth::Arch::qwen2;
  cases.push_back({"qwen2-tied", shape});
  shape.arch = synth::Arch::qwen3;
  shape.output = synth::Output::own;
  cases.push_back({"qwen3", shape});
  shape = mix_shape(4);
  shape.d_ff = 640;  // ffn_down's rows: a multiple of 32, not of 256
  cases.push_back({"ffn-640", shape});
  shape.d_ff = 172;  // of neither
  cases.push_back({"ffn-172", shape});
  shape = mix_shape(4);
  shape.d_model = 320;  // every row but attn_output's and ffn_down's
  cases.push_back({"model-320", shape});
  shape.output = synth::Output::tied;
  cases.push_back({"model-320-tied", shape});
  return cases;
}

// The types of llama-quantize that we have too; all but the mix are asked for with --pure.
inline constexpr std::string_view kQuants[] = {"q4_k_m", "q8_0",   "q4_0",   "q4_1", "q5_0",
                                               "q5_1",   "q2_k",   "q3_k",   "q4_k", "q5_k",
                                               "q6_k",   "iq4_nl", "iq4_xs", "mxfp4"};

inline void write_mix_case(std::string_view name, const std::string& path) {
  for (const MixCase& c : mix_cases()) {
    if (c.name == name) {
      synth::synth_write(c.shape, *synth::parse_quant("f16"), 1, path);
      return;
    }
  }
  throw std::invalid_argument("no such case");
}

inline constexpr u64 kRowElems = 1024, kRows = 512;
inline constexpr std::string_view kRowKinds[] = {"normal", "heavy-tails", "outliers", "shifted"};

// [kRows, kRowElems], of root mean square about 0.02.
inline std::vector<f32> rows_of(std::string_view kind) {
  synth::FastRandom random(7, 0, 0);
  const std::span<const f32> normal = synth::normal_table();
  std::vector<f32> rows(kRows * kRowElems);
  for (f32& value : rows) {
    const u64 bits = random.next();
    const f32 first = normal[bits & 4095], second = normal[bits >> 12 & 4095];
    value = 0.02f * first;
    if (kind == "heavy-tails") value *= second;  // a product of two has an excess kurtosis of 6
    if (kind == "outliers" && (bits >> 24) % 64 == 0) value *= 8;
    if (kind == "shifted") value += 0.014f;
  }
  return rows;
}

}  // namespace tarn::golden
