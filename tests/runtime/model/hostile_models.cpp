// Files that are valid GGUF and no model that can be computed with: the description refuses them.
#include <limits>

#include "runtime/model/model_tables.h"
#include "tests/runtime/model/hostile_corpus.h"
#include "tests/support/tiny_model.h"

namespace tarn::test {
namespace {

constexpr Status kInvalid = Status::invalid_model;
constexpr Status kUnsupported = Status::unsupported;
constexpr const char* kRange = "the key's value is out of range";
constexpr const char* kNotInteger = "it must be an integer";

void add_kinds(CorpusBuilder& corpus) {
  corpus.add("G8", "no architecture", kInvalid, "the key is missing: general.architecture",
             [](GgufImage& i) { i.erase_key("general.architecture"); });
  corpus.add("G8", "an architecture that is a number", kInvalid,
             "must be a text: general.architecture",
             [](GgufImage& i) { i.set_u32("general.architecture", 1); });
  corpus.add("G8", "an architecture that is an array of texts", kInvalid,
             "must be a text: general.architecture",
             [](GgufImage& i) { i.set_strings("general.architecture", {"llama"}); });
  corpus.add("G7", "an architecture of a megabyte", kInvalid,
             "text is too long: general.architecture",
             [](GgufImage& i) { i.set_string("general.architecture", std::string(1 << 20, 'a')); });
  corpus.add(
      "G8", "an architecture with a zero byte", kInvalid, "contains a zero byte",
      [](GgufImage& i) { i.set_string("general.architecture", std::string_view("llama\0x", 7)); });
  for (const char* arch : {"", "Llama", "llama2", "gemma3", "qwen2moe", "mamba", "\x1b[31m"}) {
    corpus.add("S", std::string("the architecture ") + arch, kUnsupported,
               "this architecture is not known here",
               [arch](GgufImage& i) { i.set_string("general.architecture", arch); });
  }
  for (const char* arch : {"qwen2", "qwen3"}) {
    corpus.add("G8", std::string("keys of llama under ") + arch, kInvalid,
               std::string("missing: ") + arch + ".block_count",
               [arch](GgufImage& i) { i.set_string("general.architecture", arch); });
  }
  for (const char* type : {"adapter", "mmproj", "imatrix"}) {
    corpus.add("S", std::string("a file of the kind ") + type, kUnsupported, "a part of a model",
               [type](GgufImage& i) { i.set_string("general.type", type); });
  }
  corpus.add("S", "one file of several", kUnsupported, "split over several files",
             [](GgufImage& i) { i.set_u16("split.count", 3); });
  corpus.add("S", "a vocabulary without weights", kUnsupported, "a vocabulary but no weights",
             [](GgufImage& i) { i.tensors.clear(); });
}

void add_hyper_parameters(CorpusBuilder& corpus) {
  for (const auto& row : model::tables::kIntegers) {
    const std::string name = std::string("llama.") + row.suffix;
    corpus.add("G2", name + " is zero", kInvalid, kRange,
               [name](GgufImage& i) { i.set_u32(name, 0); });
    corpus.add("G1", name + " beyond its maximum", kInvalid, kRange,
               [name, max = row.max](GgufImage& i) { i.set_u64(name, max + 1); });
    // GHSA-7rxv-5jhh-j6xx: a count that a cast to 32 bits makes harmless.
    corpus.add("T4", name + " is 2^32 and more", kInvalid, kRange,
               [name, min = row.min](GgufImage& i) { i.set_u64(name, (u64{1} << 32) + min); });
    corpus.add("T4", name + " is negative", kInvalid, "value is negative",
               [name](GgufImage& i) { i.set_i32(name, -2); });
    corpus.add("G5", name + " is a float", kInvalid, kNotInteger,
               [name](GgufImage& i) { i.set_f32(name, 2.0f); });
    corpus.add("G5", name + " is an array of floats", kInvalid,
               row.may_be_array ? "must be an array of integers" : kNotInteger,
               [name](GgufImage& i) {
                 i.set_f32s(name, {2.0f, 2.0f});
               });
    if (!row.may_be_array) continue;
    corpus.add("G5", "PR 26690: " + name + " is an array of texts", kInvalid,
               "must be an array of integers", [name](GgufImage& i) {
                 i.set_strings(name, {"2", "2"});
               });
    corpus.add("G5", name + " has a value too few", kInvalid, "not have one value for each layer",
               [name](GgufImage& i) { i.set_u32s(name, {4}); });
    corpus.add("G5", name + " has a million values", kInvalid, "not have one value for each layer",
               [name](GgufImage& i) { i.set_u32s(name, std::vector<u32>(1'000'000, 4)); });
    corpus.add("G2", name + " is zero in every layer", kInvalid, kRange, [name](GgufImage& i) {
      i.set_u32s(name, {0, 0});
    });
    corpus.add("S", name + " differs between the layers", kUnsupported,
               "layers of this model differ", [name](GgufImage& i) {
                 i.set_u32s(name, {4, 2});
               });
    corpus.add("T4", name + " has negative values", kInvalid, "value is negative",
               [name](GgufImage& i) {
                 i.set_i32s(name, {-4, -4});
               });
    corpus.add("T4", name + " has values of 2^32 and more", kInvalid, "does not fit i32",
               [name](GgufImage& i) {
                 Bytes elements;
                 put_u64(elements, (u64{1} << 32) + 4);
                 put_u64(elements, (u64{1} << 32) + 4);
                 i.set_array(name, GgufId::kU64, 2, elements);
               });
  }
  for (const char* suffix :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    const std::string name = std::string("llama.") + suffix;
    corpus.add("G8", name + " is missing", kInvalid, "the key is missing: " + name,
               [name](GgufImage& i) { i.erase_key(name); });
  }
  constexpr f32 kInf = std::numeric_limits<f32>::infinity();
  constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
  for (const auto& row : model::tables::kReals) {
    const std::string name = std::string("llama.") + row.suffix;
    for (const f32 value : {-1.0f, 1e-30f, 1e30f}) {
      corpus.add("G2", name + " is " + std::to_string(value), kInvalid, kRange,
                 [name, value](GgufImage& i) { i.set_f32(name, value); });
    }
    for (const f32 value : {kInf, -kInf, kNan}) {
      corpus.add("G2", name + " is " + std::to_string(value), kInvalid, "not a finite number",
                 [name, value](GgufImage& i) { i.set_f32(name, value); });
    }
    corpus.add("G5", name + " is an integer", kInvalid, "must be a floating-point number",
               [name](GgufImage& i) { i.set_u32(name, 1); });
    corpus.add("G5", name + " is a text", kInvalid, "must be a floating-point number",
               [name](GgufImage& i) { i.set_string(name, "1"); });
  }
  for (const auto& row : model::tables::kNeutral) {
    const std::string name = std::string("llama.") + row.suffix;
    corpus.add("S", name + " is not neutral", kUnsupported, row.hint,
               [name](GgufImage& i) { i.set_u32(name, 5); });
  }
  for (const char* type : {"yarn", "longrope", "su", "llama3", ""}) {
    corpus.add("S", std::string("RoPE scaling ") + type, kUnsupported,
               std::string(type) == "yarn" ? "YaRN" : "this kind of RoPE scaling",
               [type](GgufImage& i) { i.set_string("llama.rope.scaling.type", type); });
  }
}

void add_relations(CorpusBuilder& corpus) {
  const auto set = [](std::string name, u32 value) {
    return [name = "llama." + std::move(name), value](GgufImage& i) { i.set_u32(name, value); };
  };
  // GHSA-3p75-pq92-q28f and PR 24263: ratios that come out as zero or uneven.
  corpus.add("G2", "GHSA-3p75-pq92-q28f: more KV heads than heads", kInvalid,
             "not a multiple of the number of KV", set("attention.head_count_kv", 8));
  corpus.add("G2", "heads that KV heads do not divide", kInvalid,
             "not a multiple of the number of KV", set("attention.head_count_kv", 3));
  corpus.add("G2", "PR 24263: more heads than dimensions", kInvalid,
             "not a multiple of the number of heads", [](GgufImage& i) {
               i.erase_key("llama.attention.key_length");
               i.set_u32("llama.attention.head_count", 1024);
             });
  corpus.add("G2", "dimensions that heads do not divide", kInvalid,
             "not a multiple of the number of heads", [](GgufImage& i) {
               i.erase_key("llama.attention.key_length");
               i.set_u32("llama.attention.head_count", 6);
             });
  corpus.add("S", "an odd head", kUnsupported, "heads of this length",
             set("attention.key_length", 9));
  corpus.add("S", "heads of 512 by division", kUnsupported, "heads of this length",
             [](GgufImage& i) {
               i.erase_key("llama.attention.key_length");
               i.set_u32("llama.embedding_length", 2048);
             });
  corpus.add("S", "values longer than keys", kUnsupported, "different lengths",
             set("attention.value_length", 16));
  corpus.add("G1", "more rotated dimensions than a head has", kInvalid, "rotated part of a head",
             set("rope.dimension_count", 10));
  corpus.add("G1", "an odd number of rotated dimensions", kInvalid, "rotated part of a head",
             set("rope.dimension_count", 7));
  for (const char* suffix : {"embedding_length", "feed_forward_length", "attention.head_count"}) {
    corpus.add("G1", std::string("weights that do not fit ") + suffix, kInvalid,
               "shape does not agree", set(suffix, 128));
  }
  corpus.add("G1", "more layers than tensors", kInvalid, "missing: blk.2.attn_norm.weight",
             set("block_count", 3));
  corpus.add("S", "fewer layers than tensors", kUnsupported,
             "a norm that this architecture does not have", set("block_count", 1));
}

void add_vocabulary(CorpusBuilder& corpus) {
  // CVE-2025-49847: a vocabulary that is larger than the tables made for it.
  for (const u32 n : {1u, 39u, 41u, 4000u}) {
    corpus.add("G6", "CVE-2025-49847: " + std::to_string(n) + " tokens for 40 rows", kInvalid,
               "token list is not as long as", [n](GgufImage& i) {
                 i.set_strings("tokenizer.ggml.tokens", std::vector<std::string>(n, "t"));
               });
  }
  corpus.add("G6", "tokens that are numbers", kInvalid, "must be an array of texts",
             [](GgufImage& i) { i.set_u32s("tokenizer.ggml.tokens", std::vector<u32>(40)); });
  corpus.add("G6", "tokens that are one text", kInvalid, "must be an array of texts",
             [](GgufImage& i) { i.set_string("tokenizer.ggml.tokens", "t"); });
  corpus.add("G6", "no tokens and another vocabulary size", kInvalid,
             "vocabulary is not as large as", [](GgufImage& i) {
               i.erase_key("tokenizer.ggml.tokens");
               i.set_u32("llama.vocab_size", 32000);
             });
  corpus.add("G6", "an output for another vocabulary", kInvalid, "shape does not agree",
             [](GgufImage& i) {
               auto& output = i.tensor("output.weight");
               output.dims[1] = 39;
               output.data.resize(39 * 32 * 4);
             });
}

void add_model_tensors(CorpusBuilder& corpus) {
  const GgufImage whole = tiny_model({.n_layers = 1, .rope_factors = true});
  for (const auto& tensor : whole.tensors) {
    const std::string name = tensor.name;
    if (name != "output.weight" && name != "rope_freqs.weight") {
      corpus.add_bytes("G8", name + " is missing", kInvalid, "missing: " + name, [whole, name] {
        GgufImage image = whole;
        image.erase_tensor(name);
        return image.bytes();
      });
    }
    corpus.add_bytes(
        "G1", name + " in another shape", kInvalid, "shape does not agree", [whole, name] {
          GgufImage image = whole;
          image.erase_key(
              "tokenizer.ggml.tokens");  // which would disagree with the embedding first
          image.tensor(name).dims = {1};
          image.tensor(name).data.resize(4);
          return image.bytes();
        });
  }
  struct Extra {
    const char* name;
    const char* error;
  };
  for (const Extra extra :
       {Extra{"blk.0.attn_qkv.weight", "a fused Q, K and V"},
        Extra{"blk.0.ffn_gate_exps.weight", model::tables::kMoeHint},
        Extra{"blk.0.ffn_gate_inp.weight", model::tables::kMoeHint},
        Extra{"blk.0.attn_output.bias", "a bias of the attention's output"},
        Extra{"blk.0.ffn_up.bias", "a bias or a norm in the feed-forward"},
        Extra{"blk.0.attn_q_norm.weight", "a norm that this architecture"},
        Extra{"rope_factors_long.weight", "LongRoPE"},
        Extra{"output.bias", "a tensor that this architecture does not have"},
        Extra{"v.patch_embd.weight", "a tensor that this architecture does not have"}}) {
    corpus.add("S", std::string("a tensor ") + extra.name, kUnsupported, extra.error,
               [name = extra.name](GgufImage& i) { i.add_f32(name, {1}, {1.0f}); });
  }
  for (const u32 type : {9u, 15u, 16u, 21u, 22u, 27u, 29u, 34u, 4u, 999u, 0xFFFFFFFFu}) {
    corpus.add_bytes("S", "weights of type " + std::to_string(type), kUnsupported,
                     "a type that this build does not compute with", [type] {
                       GgufImage image = tiny_model({.d_model = 256, .d_ff = 256, .head_dim = 64});
                       auto& tensor = image.tensor("blk.1.ffn_down.weight");
                       tensor.type = type;
                       // Enough for any of them; what is too much lies between two tensors.
                       tensor.data.resize(256 * 256 * 8);
                       return image.bytes();
                     });
  }
  corpus.add("S", "a quantized norm", kUnsupported, "a quantized norm, bias or factor",
             [](GgufImage& i) {
               i.tensor("output_norm.weight").type = 8;
               i.tensor("output_norm.weight").data.resize(34);
             });
  corpus.add("G8", "a matrix where a vector should be", kInvalid, "shape does not agree",
             [](GgufImage& i) {
               i.tensor("output_norm.weight").dims = {8, 4};
             });
  corpus.add("G8", "a tensor of three dimensions", kInvalid, "more dimensions than a matrix",
             [](GgufImage& i) {
               i.tensor("output_norm.weight").dims = {4, 4, 2};
             });
}

}  // namespace

void add_model_cases(CorpusBuilder& corpus) {
  add_kinds(corpus);
  add_hyper_parameters(corpus);
  add_relations(corpus);
  add_vocabulary(corpus);
  add_model_tensors(corpus);
}

}  // namespace tarn::test
