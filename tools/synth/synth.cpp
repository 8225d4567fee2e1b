#include "tools/synth/synth.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <stdexcept>
#include <vector>

#include "tools/support/gguf_write.h"
#include "tools/synth/random_blocks.h"
#include "tools/synth/recall.h"

namespace tarn::synth {
namespace {

using kernels::TensorType;
using tools::GgufSlab;
using tools::GgufWriter;

constexpr f64 kNormJitter = 0.1;     // of norm weights around 1
constexpr f64 kBiasRms = 0.3;        // of q, k, v biases
constexpr f64 kScoreGain = 1.2;      // of q and k each: attention scores spread by its square
constexpr f64 kSiluGateRms = 0.596;  // of silu(g) * u for standard normal g, u

const SynthShape kShapes[] = {
    {.name = "llama-2-7b",
     .arch = Arch::llama,
     .n_layers = 32,
     .d_model = 4096,
     .d_ff = 11008,
     .n_heads = 32,
     .n_kv_heads = 32,
     .head_dim = 128,
     .vocab = VocabFamily::spm,
     .n_vocab = 32000,
     .n_ctx = 4096,
     .rms_eps = 1e-5f,
     .rope_base = 1e4f},
    {.name = "llama-3.1-8b",
     .arch = Arch::llama,
     .n_layers = 32,
     .d_model = 4096,
     .d_ff = 14336,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .vocab = VocabFamily::llama_bpe,
     .n_vocab = 128256,
     .n_ctx = 131072,
     .rms_eps = 1e-5f,
     .rope_base = 5e5f,
     .rope_factors = RopeFactors::llama3},
    {.name = "mistral-7b",
     .arch = Arch::llama,
     .n_layers = 32,
     .d_model = 4096,
     .d_ff = 14336,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .vocab = VocabFamily::spm,
     .n_vocab = 32000,
     .n_ctx = 32768,
     .rms_eps = 1e-5f,
     .rope_base = 1e6f},
    {.name = "qwen2.5-7b",
     .arch = Arch::qwen2,
     .n_layers = 28,
     .d_model = 3584,
     .d_ff = 18944,
     .n_heads = 28,
     .n_kv_heads = 4,
     .head_dim = 128,
     .vocab = VocabFamily::qwen2,
     .n_vocab = 152064,
     .n_ctx = 32768,
     .rms_eps = 1e-6f,
     .rope_base = 1e6f},
    {.name = "qwen3-8b",
     .arch = Arch::qwen3,
     .n_layers = 36,
     .d_model = 4096,
     .d_ff = 12288,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .vocab = VocabFamily::qwen3,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .rms_eps = 1e-6f,
     .rope_base = 1e6f},
    {.name = "tiny-llama",
     .arch = Arch::llama,
     .n_layers = 2,
     .d_model = 256,
     .d_ff = 768,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 64,
     .vocab = VocabFamily::spm,
     .n_vocab = 32000,
     .n_ctx = 4096,
     .rms_eps = 1e-5f,
     .rope_base = 1e4f,
     .embedding_rms = 0.03f},
    {.name = "tiny-qwen2",
     .arch = Arch::qwen2,
     .n_layers = 3,
     .d_model = 256,
     .d_ff = 512,
     .n_heads = 4,
     .n_kv_heads = 1,
     .head_dim = 64,
     .vocab = VocabFamily::qwen2,
     .n_vocab = 151936,
     .n_ctx = 32768,
     .rms_eps = 1e-6f,
     .rope_base = 1e6f,
     .output = Output::tied},
    {.name = "tiny-qwen3",
     .arch = Arch::qwen3,
     .n_layers = 2,
     .d_model = 256,
     .d_ff = 512,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 128,
     .vocab = VocabFamily::qwen3,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .rms_eps = 1e-6f,
     .rope_base = 1e6f,
     .output = Output::tied},
};

// The recipe of a tensor's values.
struct Recipe {
  enum class Kind : u8 { weights, norm, signed_norm, bias, given } kind = Kind::weights;
  f64 rms = 0;                // weights, bias
  f64 mean = 1;               // norm
  std::vector<f32> values{};  // given
};

const char* arch_key(Arch arch) {
  switch (arch) {
    case Arch::qwen2:
      return "qwen2";
    case Arch::qwen3:
      return "qwen3";
    default:
      return "llama";
  }
}

void set_hyper_parameters(GgufWriter& writer, const SynthShape& shape, SynthQuant quant, u64 seed) {
  const std::string arch = arch_key(shape.arch);
  writer.set_string("general.architecture", arch);
  writer.set_string("general.type", "model");
  writer.set_string("general.name", shape.name + " synthetic, seed " + std::to_string(seed));
  writer.set_u32("general.file_type", tools::file_type(quant));
  writer.set_u32("general.quantization_version", 2);
  writer.set_u32(arch + ".block_count", shape.n_layers);
  writer.set_u32(arch + ".context_length", shape.n_ctx);
  writer.set_u32(arch + ".embedding_length", shape.d_model);
  writer.set_u32(arch + ".feed_forward_length", shape.d_ff);
  writer.set_u32(arch + ".attention.head_count", shape.n_heads);
  writer.set_u32(arch + ".attention.head_count_kv", shape.n_kv_heads);
  writer.set_f32(arch + ".attention.layer_norm_rms_epsilon", shape.rms_eps);
  writer.set_f32(arch + ".rope.freq_base", shape.rope_base);
  if (shape.arch == Arch::llama) {
    writer.set_u32(arch + ".rope.dimension_count", shape.head_dim);
    writer.set_u32(arch + ".vocab_size", shape.n_vocab);
  }
  if (shape.arch == Arch::qwen3 || shape.head_dim * shape.n_heads != shape.d_model) {
    writer.set_u32(arch + ".attention.key_length", shape.head_dim);
    writer.set_u32(arch + ".attention.value_length", shape.head_dim);
  }
}

// Llama 3.1's factors of the pairs' frequencies: long waves are slowed eightfold, short ones stay,
// between them a linear blend (Meta's published rope scaling: factor 8, low 1, high 4, context
// 8192).
std::vector<f32> llama3_rope_factors(const SynthShape& shape) {
  constexpr f64 kFactor = 8, kLow = 1, kHigh = 4, kContext = 8192;
  std::vector<f32> factors;
  for (u32 i = 0; i < shape.head_dim / 2; ++i) {
    const f64 frequency = std::pow(shape.rope_base, -2.0 * i / shape.head_dim);
    const f64 wave = 2 * std::numbers::pi / frequency;
    f64 factor = 1;
    if (wave > kContext / kLow) {
      factor = kFactor;
    } else if (wave > kContext / kHigh) {
      const f64 blend = (kContext / wave - kLow) / (kHigh - kLow);
      factor = 1 / ((1 - blend) / kFactor + blend);
    }
    factors.push_back(static_cast<f32>(factor));
  }
  return factors;
}

// Declares a model's tensors in a writer, with the recipe of each.
class ModelTensors {
 public:
  ModelTensors(const SynthShape& shape, SynthQuant quant) : shape_(shape), quant_(quant) {}

  std::vector<Recipe> declare(GgufWriter& writer) {
    const bool tied = shape_.output == Output::tied;
    const f64 output_rms = std::sqrt(std::log(shape_.n_vocab) / shape_.d_model / norm_square());
    embedding_rms_ = tied ? output_rms : shape_.embedding_rms;
    if (shape_.rope_factors == RopeFactors::llama3) {
      add(writer, "rope_freqs.weight", TensorType::f32, {shape_.head_dim / 2},
          {.kind = Recipe::Kind::given, .values = llama3_rope_factors(shape_)});
    }
    add(writer, "token_embd.weight", matrix_type(tied), {shape_.d_model, shape_.n_vocab},
        {.rms = embedding_rms_});
    for (u32 layer = 0; layer < shape_.n_layers; ++layer) add_layer(writer, layer);
    const auto kind = tied ? Recipe::Kind::signed_norm : Recipe::Kind::norm;
    add(writer, "output_norm.weight", TensorType::f32, {shape_.d_model}, {.kind = kind});
    if (!tied) {
      add(writer, "output.weight", matrix_type(true), {shape_.d_model, shape_.n_vocab},
          {.rms = output_rms});
    }
    return std::move(recipes_);
  }

 private:
  static f64 norm_square() { return 1 + kNormJitter * kNormJitter; }

  TensorType matrix_type(bool more_bits) const {
    const bool mixed = quant_.mix == SynthQuant::Mix::q4_k_m;
    return mixed && more_bits ? TensorType::q6_k : quant_.type;
  }

  void add(GgufWriter& writer, std::string name, TensorType type, std::vector<u64> dims,
           Recipe recipe) {
    writer.add_tensor(std::move(name), type, std::move(dims));
    recipes_.push_back(std::move(recipe));
  }

  void add_layer(GgufWriter& writer, u32 layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const u64 d = shape_.d_model;
    const u64 d_q = u64{shape_.n_heads} * shape_.head_dim;
    const u64 d_kv = u64{shape_.n_kv_heads} * shape_.head_dim;
    const bool more_bits = tools::gets_more_bits(layer, shape_.n_layers);
    const auto vector = [&](const char* name, u64 n, Recipe recipe) {
      add(writer, prefix + name, TensorType::f32, {n}, std::move(recipe));
    };
    // `gain` is the output's rms for an input's rms of 1.
    const auto matrix = [&](const char* name, u64 k, u64 n_rows, TensorType type, f64 gain) {
      add(writer, prefix + name, type, {k, n_rows}, {.rms = gain / std::sqrt(k)});
    };
    const Recipe norm{.kind = Recipe::Kind::norm};
    const Recipe bias{.kind = Recipe::Kind::bias, .rms = kBiasRms};
    const f64 branch_rms = embedding_rms_ / std::sqrt(2.0 * shape_.n_layers);

    vector("attn_norm.weight", d, norm);
    matrix("attn_q.weight", d, d_q, quant_.type, kScoreGain);
    matrix("attn_k.weight", d, d_kv, quant_.type, kScoreGain);
    matrix("attn_v.weight", d, d_kv, matrix_type(more_bits), 1);
    if (shape_.arch == Arch::qwen2) {
      vector("attn_q.bias", d_q, bias);
      vector("attn_k.bias", d_kv, bias);
      vector("attn_v.bias", d_kv, bias);
    }
    if (shape_.arch == Arch::qwen3) {
      const Recipe qk_norm{.kind = Recipe::Kind::norm, .mean = kScoreGain};
      vector("attn_q_norm.weight", shape_.head_dim, qk_norm);
      vector("attn_k_norm.weight", shape_.head_dim, qk_norm);
    }
    // Attention averages values, so its output has a smaller rms.
    matrix("attn_output.weight", d_q, d, quant_.type, 2 * branch_rms);
    vector("ffn_norm.weight", d, norm);
    matrix("ffn_gate.weight", d, shape_.d_ff, quant_.type, 1);
    matrix("ffn_up.weight", d, shape_.d_ff, quant_.type, 1);
    matrix("ffn_down.weight", shape_.d_ff, d, matrix_type(more_bits), branch_rms / kSiluGateRms);
  }

  const SynthShape& shape_;
  SynthQuant quant_;
  f64 embedding_rms_ = 1;
  std::vector<Recipe> recipes_;
};

void fill_slab(const Recipe& recipe, TensorType type, u64 seed, const GgufSlab& slab) {
  FastRandom random(seed, slab.tensor_idx, slab.slab_idx);
  if (recipe.kind == Recipe::Kind::weights || recipe.kind == Recipe::Kind::bias) {
    return random_blocks(type, static_cast<f32>(recipe.rms), random, slab.out);
  }
  std::vector<f32> values(slab.n_elements);
  for (u64 i = 0; i < values.size(); ++i) {
    if (recipe.kind == Recipe::Kind::given) {
      values[i] = recipe.values[slab.first_element + i];
      continue;
    }
    const u64 bits = random.next();
    const f64 value = recipe.mean * (1 + kNormJitter * f64{normal_table()[bits & 4095]});
    const bool negative = recipe.kind == Recipe::Kind::signed_norm && (bits >> 63) != 0;
    values[i] = static_cast<f32>(negative ? -value : value);
  }
  std::memcpy(slab.out.data(), values.data(), slab.out.size());
}

void check_shape(const SynthShape& shape) {
  if (shape.n_layers == 0 || shape.n_kv_heads == 0 || shape.n_heads % shape.n_kv_heads != 0 ||
      shape.head_dim % 2 != 0) {
    throw std::invalid_argument("impossible shape: layers, heads or head_dim");
  }
}

}  // namespace

std::string_view arch_names() {
  return "llama-2-7b, llama-3.1-8b, mistral-7b, qwen2.5-7b, qwen3-8b, tiny-llama, tiny-qwen2, "
         "tiny-qwen3, recall";
}

std::optional<SynthShape> find_shape(std::string_view arch) {
  for (const SynthShape& shape : kShapes) {
    if (shape.name == arch) return shape;
  }
  return std::nullopt;
}

SynthReport synth_write(const SynthShape& shape, SynthQuant quant, u64 seed,
                        const std::string& path, u32 n_threads,
                        const std::function<void(u64, u64)>& progress) {
  check_shape(shape);
  GgufWriter writer;
  set_hyper_parameters(writer, shape, quant, seed);
  set_vocabulary(writer, make_vocabulary(shape.vocab, shape.n_vocab));
  if (!shape.chat_template.empty()) {
    writer.set_string("tokenizer.chat_template", shape.chat_template);
  }
  const auto recipes = ModelTensors(shape, quant).declare(writer);
  const auto fill = [&](const GgufSlab& slab) {
    fill_slab(recipes[slab.tensor_idx], writer.tensors()[slab.tensor_idx].type, seed, slab);
  };
  const f64 ln_vocab = std::log(shape.n_vocab);
  return {.file_bytes = writer.write(path, n_threads, fill, progress),
          .entropy_nats = ln_vocab / 2,
          .ln_vocab = ln_vocab};
}

SynthReport synth_write(const SynthOptions& options) {
  const bool recall = options.arch == "recall";
  const bool tiny = options.arch.starts_with("tiny-");
  const std::string name = !options.quant.empty() ? options.quant
                           : recall               ? "f16"
                           : tiny                 ? "q8_0"
                                                  : "q4_k_m";
  const auto quant = parse_quant(name);
  if (!quant) {
    throw std::invalid_argument("unknown --quant " + name + "; one of " + tools::quant_names());
  }
  if (recall) {
    if (options.layers != 0) throw std::invalid_argument("the recall model has two layers, always");
    return recall_write(*quant, options.path);
  }
  auto shape = find_shape(options.arch);
  if (!shape) {
    throw std::invalid_argument("unknown --arch " + options.arch + "; one of " +
                                std::string(arch_names()));
  }
  if (options.layers != 0) shape->n_layers = options.layers;
  return synth_write(*shape, *quant, options.seed, options.path, options.n_threads,
                     options.progress);
}

}  // namespace tarn::synth
