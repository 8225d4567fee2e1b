// Goal    a block put together from codes, scales and minima holds exactly those.
// Method  random parts over their whole ranges, put over random bytes, taken apart again with
//         kernels/quant/strip.h, which has golden blocks of its own.
#include "tools/quantize/blocks.h"

#include <doctest/doctest.h>

#include <vector>

#include "kernels/common/half.h"
#include "kernels/quant/strip.h"
#include "tests/support/seed.h"

namespace tarn::tools::blocks_test {
namespace {

using kernels::TensorType;

constexpr u32 kBlocks = 200;

BlockParts random_parts(test::Random& random, TensorType type) {
  BlockParts parts;
  const u64 n_codes = static_cast<u64>(code_max(type)) + 1;
  for (u8& code : parts.codes) code = static_cast<u8>(random.below(n_codes));
  for (i32& scale : parts.scales) {
    const bool is_signed = type == TensorType::q6_k;
    scale =
        is_signed ? static_cast<i32>(random.below(256)) - 128 : static_cast<i32>(random.below(64));
  }
  for (i32& minimum : parts.minima) minimum = static_cast<i32>(random.below(64));
  parts.d = kernels::f32_to_f16(random.uniform(-1.0f, 1.0f));
  parts.dmin = kernels::f32_to_f16(random.uniform(-1.0f, 1.0f));
  return parts;
}

TEST_CASE("a block holds the parts that were put into it, and nothing of what lay there") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    CAPTURE(traits.name);
    const bool has_minima = traits.type == TensorType::q4_k || traits.type == TensorType::q5_k;
    for (u32 b = 0; b < kBlocks; ++b) {
      const BlockParts parts = random_parts(random, traits.type);
      std::vector<u8> block(traits.block_bytes);
      for (u8& byte : block) byte = static_cast<u8>(random.next());
      put_block(traits.type, parts, block.data());
      for (u32 s = 0; s < traits.block_elems / kernels::kStripElems; ++s) {
        CAPTURE(s);
        const kernels::Strip strip = kernels::strip_from_file(traits.type, block.data(), s);
        for (u32 e = 0; e < kernels::kStripElems; ++e) {
          REQUIRE(strip.codes[e] == parts.codes[s * kernels::kStripElems + e]);
        }
        REQUIRE(strip.zero == code_of_zero(traits.type));
        REQUIRE(strip.d == kernels::f16_to_f32(parts.d));
        if (has_minima) {
          REQUIRE(strip.dmin == kernels::f16_to_f32(parts.dmin));
          REQUIRE(strip.scale[0] == parts.scales[s]);
          REQUIRE(strip.min == parts.minima[s]);
        }
        if (traits.type == TensorType::q6_k) {
          REQUIRE(strip.scale[0] == parts.scales[2 * s]);
          REQUIRE(strip.scale[1] == parts.scales[2 * s + 1]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::tools::blocks_test
