// Goal    synthetic models are what their headers say: shapes and types as llama.cpp lays them out,
//         weights of the promised spread, the same bytes for the same seed.
// Method  files written with one to three threads compared byte by byte; read back with the tests'
//         own reader; the spread measured on dequantised blocks.
#include "tools/synth/synth.h"

#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "kernels/quant/dequant.h"
#include "tests/support/forked.h"
#include "tests/support/gguf_reader.h"
#include "tests/support/temp_file.h"
#include "tools/support/gguf_write.h"
#include "tools/support/input.h"
#include "tools/synth/random_blocks.h"

namespace tarn::synth::synth_test {
namespace {

using kernels::TensorType;
using tools::bf16_bits;
using tools::f16_bits;

SynthShape small_shape(Arch arch) {
  return {.arch = arch, .n_layers = 8, .d_model = 256, .d_ff = 256, .n_vocab = 1024};
}

std::string written(const SynthShape& shape, const char* quant, u64 seed, u32 n_threads) {
  const test::TempFile file("synth.gguf");
  const auto report = synth_write(shape, *parse_quant(quant), seed, file.path(), n_threads);
  auto bytes = tools::read_file(file.path());
  CHECK(bytes.size() == report.file_bytes);
  return bytes;
}

TEST_CASE("f16 bits: every half survives, and ties go to even") {
  for (u32 bits = 0; bits < 0x10000; ++bits) {
    const u32 exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) continue;
    const f64 magnitude = exponent == 0
                              ? std::ldexp(fraction, -24)
                              : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
    const auto value = static_cast<f32>((bits & 0x8000) != 0 ? -magnitude : magnitude);
    REQUIRE(f16_bits(value) == bits);
  }
  CHECK(f16_bits(1.0f + 0x1p-11f) == 0x3C00);
  CHECK(f16_bits(1.0f + 0x3p-11f) == 0x3C02);
  CHECK(f16_bits(65519.0f) == 0x7BFF);
  CHECK(f16_bits(65520.0f) == 0x7C00);
  CHECK(f16_bits(0x1p-25f) == 0x0000);
  CHECK(bf16_bits(1.0f + 0x1p-8f) == 0x3F80);
  CHECK(bf16_bits(1.0f + 0x3p-8f) == 0x3F82);
}

TEST_CASE("random blocks have the asked rms and the mean 0, in every type") {
  for (const auto& traits : kernels::kTypeTraits) {
    CAPTURE(traits.name);
    const u64 n = 256 * 1024;
    std::vector<u8> blocks(n / traits.block_elems * traits.block_bytes);
    FastRandom random(7, 0, 0);
    random_blocks(traits.type, 0.02f, random, blocks);
    std::vector<f32> values(n);
    kernels::dequantize_row(traits.type, blocks.data(), n, values.data());
    f64 sum = 0, sum_squares = 0;
    for (const f32 value : values) {
      REQUIRE(std::isfinite(value));
      sum += f64{value};
      sum_squares += f64{value} * f64{value};
    }
    const auto count = static_cast<f64>(n);
    CHECK(std::abs(std::sqrt(sum_squares / count) / 0.02 - 1) < 0.01);
    CHECK(std::abs(sum / count) < 0.01 * 0.02);
  }
}

TEST_CASE("the file depends on the seed, not on the number of threads") {
  // Large enough for several slabs a tensor.
  SynthShape shape = small_shape(Arch::qwen2);
  shape.n_layers = 2;
  shape.n_vocab = 20000;
  shape.vocab = VocabFamily::qwen2;
  for (const char* quant : {"f32", "q4_k"}) {
    CAPTURE(quant);
    const auto one = written(shape, quant, 5, 1);
    CHECK(one == written(shape, quant, 5, 2));
    CHECK(one == written(shape, quant, 5, 3));
    CHECK(one != written(shape, quant, 6, 1));
  }
}

TEST_CASE("q4_k_m gives the output, and v and down of some layers, more bits") {
  const test::TempFile file("mix.gguf");
  synth_write(small_shape(Arch::llama), *parse_quant("q4_k_m"), 1, file.path());
  const test::GgufReader reader(file.path());
  const auto type_of = [&](const std::string& name) {
    return static_cast<TensorType>(reader.tensor(name).type);
  };
  CHECK(type_of("output.weight") == TensorType::q6_k);
  CHECK(type_of("token_embd.weight") == TensorType::q4_k);
  CHECK(type_of("output_norm.weight") == TensorType::f32);
  // Of 8 layers: the first eighth, the last, and every third from the fourth on.
  for (u32 layer = 0; layer < 8; ++layer) {
    CAPTURE(layer);
    const bool more = layer == 0 || layer == 3 || layer == 6 || layer == 7;
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    CHECK((type_of(prefix + "attn_v.weight") == TensorType::q6_k) == more);
    CHECK((type_of(prefix + "ffn_down.weight") == TensorType::q6_k) == more);
    CHECK(type_of(prefix + "attn_q.weight") == TensorType::q4_k);
  }
}

TEST_CASE("each architecture has its own keys and tensors") {
  const test::TempFile file("arch.gguf");
  SUBCASE("llama") {
    SynthShape shape = small_shape(Arch::llama);
    shape.rope_factors = RopeFactors::llama3;
    shape.head_dim = 128;
    shape.rope_base = 5e5f;
    synth_write(shape, *parse_quant("f16"), 1, file.path());
    const test::GgufReader reader(file.path());
    CHECK(reader.key("general.architecture").text == "llama");
    CHECK(reader.number("llama.rope.dimension_count") == 128);
    CHECK(reader.number("llama.attention.key_length") == 128);  // 4 heads of 128 over 256
    REQUIRE(reader.has_tensor("rope_freqs.weight"));
    CHECK(reader.tensor("rope_freqs.weight").dims == std::vector<u64>{64});
    const auto factors = reader.f32s("rope_freqs.weight");
    CHECK(factors[0] == 1.0f);
    CHECK(factors[63] == 8.0f);
    CHECK_FALSE(reader.has_tensor("blk.0.attn_q.bias"));
  }
  SUBCASE("qwen2") {
    SynthShape shape = small_shape(Arch::qwen2);
    shape.output = Output::tied;
    synth_write(shape, *parse_quant("q8_0"), 1, file.path());
    const test::GgufReader reader(file.path());
    CHECK(reader.tensor("blk.7.attn_k.bias").dims == std::vector<u64>{128});
    CHECK_FALSE(reader.has_tensor("output.weight"));
    CHECK_FALSE(reader.has_tensor("rope_freqs.weight"));
  }
  SUBCASE("qwen3") {
    synth_write(small_shape(Arch::qwen3), *parse_quant("q6_k"), 1, file.path());
    const test::GgufReader reader(file.path());
    CHECK(reader.tensor("blk.7.attn_q_norm.weight").dims == std::vector<u64>{64});
    CHECK(reader.number("qwen3.attention.key_length") == 64);
    CHECK(reader.has_tensor("output.weight"));
  }
}

TEST_CASE("odd rows are served by the float types and refused by the block types") {
  SynthShape shape = small_shape(Arch::llama);
  shape.n_layers = 1;
  shape.d_ff = 172;
  const test::TempFile file("odd.gguf");
  synth_write(shape, *parse_quant("bf16"), 1, file.path());
  CHECK(test::GgufReader(file.path()).tensor("blk.0.ffn_down.weight").dims[0] == 172);
  CHECK_THROWS_AS(synth_write(shape, *parse_quant("q8_0"), 1, file.path()), std::invalid_argument);
}

TEST_CASE("every architecture by name has a shape, and unknown names are refused") {
  for (const char* name : {"llama-2-7b", "llama-3.1-8b", "mistral-7b", "qwen2.5-7b", "qwen3-8b",
                           "tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    CAPTURE(name);
    CHECK(find_shape(name).has_value());
  }
  CHECK_FALSE(find_shape("llama").has_value());
  SynthOptions options;
  options.arch = "llama";
  CHECK_THROWS_AS(synth_write(options), std::invalid_argument);
  options = {};
  options.quant = "iq3_s";
  CHECK_THROWS_AS(synth_write(options), std::invalid_argument);
}

TEST_CASE("a file is written whole where the system gives no more threads") {
  const test::TempFile file("synth_alone.gguf");
  const SynthShape shape{.n_layers = 1, .n_vocab = 32000};  // three chunks of work
  const int answer = test::in_child([&] {
    for (const int number : {SYS_clone, SYS_clone3}) {
      if (!test::deny_syscall(number, EAGAIN)) return 77;
    }
    synth_write(shape, *parse_quant("f16"), 1, file.path(), 3);
    return 0;
  });
  if (answer == 77) return;
  REQUIRE(answer == 0);
  CHECK(tools::read_file(file.path()) == written(shape, "f16", 1, 3));
}

}  // namespace
}  // namespace tarn::synth::synth_test
