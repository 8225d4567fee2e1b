// Goal    every type rounds weights within the bound that its header derives, whatever they look
//         like, and never makes a value that is not finite.
// Method  normal rows, rows with outliers, rows on one side of zero, constant ones, zeros, single
//         spikes, the largest and the smallest magnitudes; the bound checked group by group. How
//         the error compares with ggml's is tests/golden/quantize.
#include "tools/quantize/quantizer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/half.h"
#include "tests/support/seed.h"
#include "tests/tools/quantize/error_bound.h"
#include "tools/quantize/mix.h"

namespace tarn::tools::quantizer_test {
namespace {

using kernels::TensorType;
using Values = std::vector<f32>;

constexpr u64 kValues = 32 * 256;

struct Kind {
  const char* name;
  f32 (*value)(tarn::test::Random& random, u64 i);
};
const Kind kKinds[] = {
    {"normal", [](tarn::test::Random& random, u64) { return 0.02f * random.normal(); }},
    {"an outlier here and there",
     [](tarn::test::Random& random, u64) {
       return random.normal() * (random.below(64) == 0 ? 0.3f : 0.02f);
     }},
    {"all above zero", [](tarn::test::Random& random, u64) { return random.uniform(1.0f, 2.0f); }},
    {"all below zero",
     [](tarn::test::Random& random, u64) { return random.uniform(-3.0f, -2.9f); }},
    {"constant", [](tarn::test::Random&, u64) { return 0.7f; }},
    {"constant below zero", [](tarn::test::Random&, u64) { return -0.7f; }},
    {"zeros", [](tarn::test::Random&, u64) { return 0.0f; }},
    {"negative zeros", [](tarn::test::Random&, u64) { return -0.0f; }},
    {"one spike in 256", [](tarn::test::Random&, u64 i) { return i % 256 == 77 ? -5.0f : 0.0f; }},
    {"two signs", [](tarn::test::Random&, u64 i) { return i % 2 == 0 ? 1.0f : -1.0f; }},
    {"as large as f16 goes",
     [](tarn::test::Random& random, u64) { return random.uniform(-65504.0f, 65504.0f); }},
    {"groups of very different size",
     [](tarn::test::Random& random, u64 i) {
       return random.normal() * std::ldexp(1.0f, -static_cast<int>(i / 16 % 8));
     }},
};

Values values_of(const Kind& kind, tarn::test::Random& random) {
  Values values(kValues);
  for (u64 i = 0; i < values.size(); ++i) values[i] = kind.value(random, i);
  return values;
}

std::vector<u8> quantized(TensorType type, const Values& values) {
  std::vector<u8> blocks(kernels::row_bytes(type, values.size()));
  quantize_blocks(type, values, blocks);
  return blocks;
}

TEST_CASE("every type keeps its bound on every kind of row") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const Values values = values_of(kind, random);
    for (const auto& traits : kernels::kTypeTraits) {
      CAPTURE(traits.name);
      test::check_error(traits.type, values, quantized(traits.type, values));
    }
  }
}

TEST_CASE("zeros stay zeros, and what is below f16 becomes them") {
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    CAPTURE(traits.name);
    for (const f32 magnitude : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-60f, 0x1p-41f}) {
      CAPTURE(magnitude);
      Values values(kValues, magnitude);
      for (u64 i = 0; i < values.size(); i += 3) values[i] = -magnitude;
      const auto blocks = quantized(traits.type, values);
      kernels::dequantize_row(traits.type, blocks.data(), values.size(), values.data());
      for (const f32 value : values) REQUIRE(value == 0.0f);
    }
  }
}

TEST_CASE("near the end of f16 nothing overflows or grows") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    CAPTURE(traits.name);
    for (i32 exponent = -40; exponent <= -10; ++exponent) {
      CAPTURE(exponent);
      Values values(kValues), back(kValues);
      const f32 largest = std::ldexp(1.0f, exponent);
      for (f32& value : values) value = random.uniform(-largest, largest);
      const auto blocks = quantized(traits.type, values);
      kernels::dequantize_row(traits.type, blocks.data(), back.size(), back.data());
      for (const f32 value : back) REQUIRE(std::abs(value) <= 2 * largest + 0x1p-17f);
    }
  }
}

TEST_CASE("more bits, an offset or levels, less error") {
  constexpr const char* kBetterThan[][2] = {
      {"q3_k", "q2_k"},   {"mxfp4", "q3_k"},  {"q4_0", "mxfp4"}, {"q4_k", "q4_0"}, {"q4_1", "q4_0"},
      {"iq4_nl", "q4_0"}, {"iq4_xs", "q4_0"}, {"q5_0", "q4_k"},  {"q5_1", "q5_0"}, {"q5_k", "q5_0"},
      {"q6_k", "q5_k"},   {"q8_0", "q6_k"},   {"f16", "q8_0"},
  };
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  const Values values = values_of(kKinds[0], random);
  const auto error = [&](const char* name) {
    const TensorType type = parse_quant(name)->type;
    return test::check_error(type, values, quantized(type, values));
  };
  for (const auto& pair : kBetterThan) {
    CAPTURE(pair[0]);
    CAPTURE(pair[1]);
    CHECK(error(pair[0]) < error(pair[1]));
  }
  CHECK(error("f32") == 0);
}

}  // namespace
}  // namespace tarn::tools::quantizer_test
