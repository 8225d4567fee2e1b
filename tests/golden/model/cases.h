// The models and prompts of the whole-model comparison: each architecture in each tensor type, 20
// seeds, small enough for the f64 reference. Changing anything here means making llama_cpp.txt anew
// (make_golden.py).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/seed.h"
#include "tools/synth/synth.h"

namespace tarn::golden {

inline constexpr u32 kSeeds = 20, kSomeSeeds = 5;
inline constexpr u32 kPositions = 64;
inline constexpr std::string_view kArchs[] = {"llama", "qwen2", "qwen3"};
inline constexpr std::string_view kTypes[] = {"f32",  "f16",  "q8_0",   "q4_0",   "q5_0",
                                              "q4_k", "q5_k", "q6_k",   "q4_1",   "q5_1",
                                              "q2_k", "q3_k", "iq4_nl", "iq4_xs", "mxfp4"};

// Between them: own and tied output, biases, q/k norms, RoPE factors, heads that are wider than the
// model, 1, 2 and 4 query heads to a key head, rows of 172 where the type allows them.
inline synth::SynthShape shape_of(std::string_view arch, std::string_view type) {
  synth::SynthShape shape{.name = "golden", .n_layers = 3, .n_vocab = 1024, .embedding_rms = 0.03f};
  if (arch == "llama") {
    shape.d_ff = type == "f32" || type == "f16" ? 172 : 512;
    shape.rope_base = 500000.0f;
    shape.rope_factors = synth::RopeFactors::llama3;
  } else if (arch == "qwen2") {
    shape.arch = synth::Arch::qwen2;
    shape.n_kv_heads = 1;
    shape.output = synth::Output::tied;
    shape.rms_eps = 1e-6f;
    shape.rope_base = 1e6f;
    shape.vocab = synth::VocabFamily::qwen2;
  } else if (arch == "qwen3") {
    shape.arch = synth::Arch::qwen3;
    shape.head_dim = 128;
    shape.n_kv_heads = 4;
    shape.rms_eps = 1e-6f;
    shape.rope_base = 1e6f;
    shape.vocab = synth::VocabFamily::qwen3;
  } else {
    throw std::invalid_argument("no such architecture");
  }
  return shape;
}

inline void write_model(std::string_view arch, std::string_view type, u64 seed,
                        const std::string& path) {
  synth::synth_write(shape_of(arch, type), *synth::parse_quant(type), seed, path);
}

inline std::vector<u32> prompt_of(std::string_view arch, u64 seed) {
  test::Random random(seed * 3 + arch.size());
  std::vector<u32> ids(kPositions);
  for (u32& id : ids) id = static_cast<u32>(random.below(shape_of(arch, "f32").n_vocab));
  return ids;
}

}  // namespace tarn::golden
