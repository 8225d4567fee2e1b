// Random models of real shapes, for tests and benchmarks without a download: GGUF files that any
// engine loads, with a made-up vocabulary (vocab.h) and weights scaled by calculation:
//
//   projections   unit variance behind the norm, so queries, keys, gates have a spread of about 1
//   residual      each of the 2 n_layers branches adds 1/(2 n_layers) of the embedding's variance,
//   so
//                 the stream's rms grows by sqrt(2) over any depth
//   output        logits are normal with variance ln V, so the mean entropy of the softmax is
//                 ln V - variance/2 = ln V / 2 (the random energy model above its freezing point:
//                 Derrida 1981, Phys. Rev. B 24, 2613)
//
// A tied output would make every token predict itself. So there the final norm's weights have
// random signs, which changes the embedding's directions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tools/quantize/mix.h"
#include "tools/synth/vocab.h"

namespace tarn::synth {

enum class Arch : u8 { llama, qwen2, qwen3 };
enum class Output : u8 { own, tied };
enum class RopeFactors : u8 { none, llama3 };  // llama3: rope_freqs.weight as in Llama 3.1

// Everything that determines a model's tensors. Tests build unusual shapes by hand.
struct SynthShape {
  std::string name = "synthetic";
  Arch arch = Arch::llama;
  u32 n_layers = 2;
  u32 d_model = 256;
  u32 d_ff = 512;
  u32 n_heads = 4;
  u32 n_kv_heads = 2;
  u32 head_dim = 64;
  VocabFamily vocab = VocabFamily::spm;
  u32 n_vocab = 32000;
  u32 n_ctx = 4096;
  f32 rms_eps = 1e-5f;
  f32 rope_base = 10000.0f;
  RopeFactors rope_factors = RopeFactors::none;
  Output output = Output::own;
  std::string chat_template{};  // empty: none
  f32 embedding_rms = 1.0f;  // a tied output sets it; small values make rms_eps matter
};

// One tensor type for all matrices, or llama.cpp's mix. Vectors are f32 in either case.
using SynthQuant = tools::Quant;
using tools::parse_quant;

struct SynthOptions {
  std::string arch = "tiny-llama";  // a name of arch_names()
  std::string quant;                // empty: q8_0 for the tiny ones, f16 for recall, else q4_k_m
  u32 layers = 0;                   // 0: the architecture's own
  u64 seed = 1;
  std::string path;
  u32 n_threads = 2;
  std::function<void(u64 done_bytes, u64 total_bytes)> progress;  // may be empty
};

struct SynthReport {
  u64 file_bytes = 0;
  f64 entropy_nats = 0;  // expected mean entropy of the output distribution; 0: not calculated
  f64 ln_vocab = 0;
};

std::string_view arch_names();  // "llama-2-7b, ...", for messages
std::optional<SynthShape> find_shape(std::string_view arch);

// Both throw std::invalid_argument, or std::runtime_error if the file cannot be written, with a
// sentence for the user.
SynthReport synth_write(const SynthShape& shape, SynthQuant quant, u64 seed,
                        const std::string& path, u32 n_threads = 2,
                        const std::function<void(u64, u64)>& progress = {});
SynthReport synth_write(const SynthOptions& options);

// `tarn synth`: argv[0] is "synth". Prints what was written; returns the exit code (DESIGN.md 13).
int synth_main(int argc, char** argv);

}  // namespace tarn::synth
