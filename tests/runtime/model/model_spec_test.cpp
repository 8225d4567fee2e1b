// Goal    a model of each architecture is described as it is, and everything that would make it
// compute
//         something else than its author meant is refused by name.
// Method  tiny models in memory; one table of bent files with what is expected of each; every limit
// of
//         the hyper-parameter table at its ends.
#include "runtime/model/model_spec.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/model/model_tables.h"
#include "tests/support/memory_io.h"
#include "tests/support/tiny_model.h"

namespace tarn::model::model_spec_test {
namespace {

using test::GgufImage;
using test::TinyModelArgs;

struct Described {
  test::Bytes bytes;
  test::MemoryIo io;
  std::vector<std::byte> memory = std::vector<std::byte>(kModelMemoryBytesMax);
  Bump bump{memory};
  Result<ModelDescription> model = fail({});

  explicit Described(const GgufImage& image) : bytes(image.bytes()) {
    auto file = GgufFile::read(io, io.add(bytes), bump);
    REQUIRE_MESSAGE(file.has_value(), file.error().hint);
    model = describe_model(*file, bump);
  }
  std::string error() const {
    if (model) return "no error";
    char line[512];
    format_error(model.error(), line, sizeof line);
    return line;
  }
};

TEST_CASE("each architecture is described with its shape, biases, norms and RoPE") {
  struct Case {
    const char* arch;
    Arch want;
    bool halves, bias, qk_norm;
  };
  for (const Case& c : {Case{"llama", Arch::llama, false, false, false},
                        Case{"qwen2", Arch::qwen2, true, true, false},
                        Case{"qwen3", Arch::qwen3, true, false, true}}) {
    CAPTURE(c.arch);
    for (const bool tied : {false, true}) {
      TinyModelArgs args{.arch = c.arch, .head_dim = 10, .tied = tied, .rope_factors = true};
      const GgufImage image = test::tiny_model(args);
      Described described(image);
      REQUIRE_MESSAGE(described.model.has_value(), described.error());
      const ModelSpec& spec = described.model->spec;
      CHECK(spec.arch == c.want);
      CHECK(std::string(arch_name(spec.arch)) == c.arch);
      CHECK(spec.n_layers == 2);
      CHECK(spec.d_model == 32);
      CHECK(spec.d_ff == 64);
      CHECK(spec.n_heads == 4);
      CHECK(spec.n_kv_heads == 2);
      CHECK(spec.head_dim == 10);
      CHECK(spec.n_rot == 10);
      CHECK(spec.n_vocab == 40);
      CHECK(spec.n_ctx_train == 128);
      CHECK(spec.rms_eps == 1e-5f);
      CHECK(spec.rope_base == 10000.0);
      CHECK(spec.rope_scale == 1.0);
      CHECK(spec.rope_halves == c.halves);
      CHECK(spec.qkv_bias == c.bias);
      CHECK(spec.qk_norm == c.qk_norm);
      CHECK(spec.tied_output == tied);
      CHECK(spec.n_cache_layers == 2);
      CHECK(spec.kv_source[1] == 1);
      u64 n_params = 0;
      u64 n_bytes = 0;
      for (const auto& tensor : image.tensors) {
        n_params += tensor.data.size() / 4;
        n_bytes += tensor.data.size();
      }
      CHECK(spec.n_params == n_params);
      CHECK(spec.weights_file_bytes == n_bytes);

      const ModelTensors& tensors = described.model->tensors;
      const TensorRef& down = tensors.of(1, LayerTensor::ffn_down);
      CHECK(std::string(down.name) == "blk.1.ffn_down.weight");
      CHECK(down.k == 64);
      CHECK(down.n_rows == 32);
      CHECK(down.file_bytes == 64 * 32 * 4);
      CHECK(std::memcmp(described.bytes.data() + down.file_offset,
                        GgufImage(image).tensor(down.name).data.data(), down.file_bytes) == 0);
      CHECK(tensors.of(0, LayerTensor::attn_k_bias).present() == c.bias);
      CHECK(tensors.of(ModelTensor::rope_freqs).k == 5);
      CHECK(tensors.of(ModelTensor::output).present() != tied);
    }
  }
}

TEST_CASE("what the file leaves out has llama.cpp's defaults") {
  GgufImage image = test::tiny_model({.n_kv_heads = 4});
  image.erase_key("llama.attention.head_count_kv");
  image.erase_key("llama.attention.key_length");
  image.erase_key("llama.attention.value_length");
  image.erase_key("llama.rope.dimension_count");
  image.erase_key("llama.rope.freq_base");
  image.erase_key("tokenizer.ggml.tokens");
  Described described(image);
  REQUIRE_MESSAGE(described.model.has_value(), described.error());
  CHECK(described.model->spec.n_kv_heads == 4);
  CHECK(described.model->spec.head_dim == 8);
  CHECK(described.model->spec.n_rot == 8);
  CHECK(described.model->spec.rope_base == 10000.0);
  CHECK(described.model->spec.n_vocab == 40);
}

TEST_CASE("RoPE scaling: none and linear, under both names of the factor") {
  struct Case {
    const char* type;
    const char* key;
    f32 factor;
    f64 want;
  };
  for (const Case& c : {Case{nullptr, "llama.rope.scaling.factor", 4.0f, 0.25},
                        Case{"linear", "llama.rope.scaling.factor", 4.0f, 0.25},
                        Case{"none", "llama.rope.scaling.factor", 4.0f, 1.0},
                        Case{nullptr, "llama.rope.scale_linear", 2.0f, 0.5},
                        Case{"linear", "llama.rope.scaling.factor", 0.0f, 1.0}}) {
    GgufImage image = test::tiny_model({});
    if (c.type != nullptr) image.set_string("llama.rope.scaling.type", c.type);
    image.set_f32(c.key, c.factor);
    Described described(image);
    REQUIRE_MESSAGE(described.model.has_value(), described.error());
    CHECK(described.model->spec.rope_scale == c.want);
  }
}

TEST_CASE("what is neutral or known to be ignored is taken") {
  const std::function<void(GgufImage&)> kBends[] = {
      [](GgufImage& i) { i.set_u32("llama.expert_count", 0); },
      [](GgufImage& i) { i.set_bool("llama.attention.causal", true); },
      [](GgufImage& i) { i.set_f32("llama.logit_scale", 1.0f); },
      [](GgufImage& i) { i.set_u32("llama.attention.sliding_window", 4096); },
      [](GgufImage& i) {
        i.set_u32s("llama.attention.head_count_kv", {2, 2});
      },
      [](GgufImage& i) {
        i.set_i32s("llama.feed_forward_length", {64, 64});
      },
      [](GgufImage& i) { i.set_u64("llama.block_count", 2); },
      [](GgufImage& i) { i.set_u32("llama.vocab_size", 41); },  // the token list decides
      [](GgufImage& i) { i.set_u16("split.count", 1); },
      [](GgufImage& i) { i.set_string("general.type", "model"); },
      [](GgufImage& i) { i.set_f64("llama.rope.freq_base", 500000.0); },
      [](GgufImage& i) {
        i.set_u32("llama.vocab_size", 40);
        i.erase_key("tokenizer.ggml.tokens");
      },
      [](GgufImage& i) {
        i.add_f32("blk.1.attn_k.bias", {16}, std::vector<f32>(16, 0.5f));  // each bias for itself
      },
  };
  for (u64 i = 0; i < std::size(kBends); ++i) {
    CAPTURE(i);
    GgufImage image = test::tiny_model({});
    kBends[i](image);
    Described described(image);
    CHECK_MESSAGE(described.model.has_value(), described.error());
  }
}

TEST_CASE("every hyper-parameter is held to its range") {
  for (const tables::IntegerRow& row : tables::kIntegers) {
    const std::string name = std::string("llama.") + row.suffix;
    for (const u64 value :
         {u64{0}, u64{row.min} - 1, u64{row.max} + 1, (u64{1} << 32) + row.min, ~u64{0}}) {
      CAPTURE(name);
      CAPTURE(value);
      GgufImage image = test::tiny_model({});
      image.set_u64(name, value);
      Described described(image);
      REQUIRE_FALSE(described.model.has_value());
      CHECK(described.model.error().status == Status::invalid_model);
      CHECK(described.error().find(row.suffix) != std::string::npos);
      CHECK(described.error().find("out of range") != std::string::npos);
    }
    GgufImage image = test::tiny_model({});
    image.set_f32(name, 2.0f);
    CHECK(Described(image).error().find("must be an integer") != std::string::npos);
  }
  for (const tables::RealRow& row : tables::kReals) {
    const std::string name = std::string("llama.") + row.suffix;
    for (const f64 value : {-1.0, row.min * 0.5, row.max * 2.0, 1e300}) {
      CAPTURE(name);
      CAPTURE(value);
      GgufImage image = test::tiny_model({});
      image.set_f64(name, value);
      CHECK(Described(image).error().find("out of range") != std::string::npos);
    }
    GgufImage image = test::tiny_model({});
    image.set_u32(name, 2);
    CHECK(Described(image).error().find("floating-point") != std::string::npos);
  }
}

TEST_CASE("a key that would change the mathematics is refused unless it is neutral") {
  for (const tables::NeutralRow& row : tables::kNeutral) {
    const std::string name = std::string("llama.") + row.suffix;
    CAPTURE(name);
    GgufImage image = test::tiny_model({});
    image.set_f32(name, 7.0f);
    Described described(image);
    REQUIRE_FALSE(described.model.has_value());
    CHECK(described.model.error().status == Status::unsupported);
    CHECK(described.error().find(row.hint) != std::string::npos);
    image.set_u32s(name, {0, 0});
    CHECK(Described(image).error().find(row.hint) != std::string::npos);
    image.set_f64(name, row.neutral);
    CHECK(Described(image).model.has_value());
  }
}

TEST_CASE(
    "every tensor of the model is needed, in its shape and in a type that can be computed with") {
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    const GgufImage whole = test::tiny_model({.arch = arch, .rope_factors = true});
    for (const auto& tensor : whole.tensors) {
      CAPTURE(tensor.name);
      const bool is_optional = tensor.name == "output.weight" || tensor.name == "rope_freqs.weight";
      GgufImage image = whole;
      image.erase_tensor(tensor.name);
      Described described(image);
      CHECK(described.model.has_value() == is_optional);
      if (!is_optional)
        CHECK(described.error().find("missing: " + tensor.name) != std::string::npos);

      image = whole;
      auto& bent = image.tensor(tensor.name);
      bent.data.resize(bent.data.size() / bent.dims[0] * (bent.dims[0] - 1));
      bent.dims[0] -= 1;
      CHECK(Described(image).error().find("shape does not agree") != std::string::npos);

      image = whole;
      image.tensor(tensor.name).dims.push_back(1);
      CHECK(Described(image).model.has_value());
      image.tensor(tensor.name).dims.resize(4, 1);
      image.tensor(tensor.name).dims[3] = 2;
      image.tensor(tensor.name).data.resize(2 * image.tensor(tensor.name).data.size());
      CHECK(Described(image).error().find("more dimensions") != std::string::npos);

      image = whole;
      image.tensor(tensor.name).type = 27;  // i64
      image.tensor(tensor.name).data.resize(2 * image.tensor(tensor.name).data.size());
      const std::string error = Described(image).error();
      CHECK(error.find("i64 of " + tensor.name) != std::string::npos);
    }
  }
}

TEST_CASE("too little memory for the description is an error of its own") {
  const auto bytes = test::tiny_model({}).bytes();
  std::vector<std::byte> memory(kModelMemoryBytesMax);
  test::MemoryIo io;
  Bump directory{memory};
  const auto file = GgufFile::read(io, io.add(bytes), directory);
  REQUIRE(file.has_value());
  std::vector<std::byte> more(4096);
  Bump whole{more};
  REQUIRE(describe_model(*file, whole).has_value());
  for (u64 n_bytes = 0; n_bytes < whole.used_bytes(); n_bytes += 5) {
    CAPTURE(n_bytes);
    Bump bump{std::span(more).first(n_bytes)};
    const auto model = describe_model(*file, bump);
    REQUIRE_FALSE(model.has_value());
    CHECK(model.error().status == Status::over_budget);
    CHECK(bump.used_bytes() == 0);
  }
}

}  // namespace
}  // namespace tarn::model::model_spec_test
