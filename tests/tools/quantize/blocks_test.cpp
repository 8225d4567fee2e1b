// Goal    a block put together from codes, scales and minima has exactly their values.
// Method  random parts over their whole ranges, put over random bytes, and the block dequantised by
//         kernels/quant, which has golden blocks of its own.
#include "tools/quantize/blocks.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "kernels/common/half.h"
#include "kernels/quant/dequant.h"
#include "tests/support/seed.h"

namespace tarn::tools::blocks_test {
namespace {

constexpr u32 kBlocks = 200;

i32 drawn(test::Random& random, BlockForm::Range range) {
  return range.least +
         static_cast<i32>(random.below(static_cast<u64>(range.most - range.least + 1)));
}

BlockParts random_parts(test::Random& random, const BlockForm& form) {
  BlockParts parts;
  for (u8& code : parts.codes) code = static_cast<u8>(drawn(random, {0, form.code_most}));
  for (i32& scale : parts.scales) scale = drawn(random, form.scales);
  for (i32& minimum : parts.minima) minimum = drawn(random, form.minima);
  parts.d = form.has_exponent ? static_cast<u16>(random.below(256))
                              : kernels::f32_to_f16(random.uniform(-1.0f, 1.0f));
  parts.dmin = kernels::f32_to_f16(random.uniform(-1.0f, 1.0f));
  return parts;
}

f32 value_of(const BlockForm& form, const BlockParts& parts, u32 e, u32 n_elems) {
  const u32 sub = e / (n_elems / form.n_subs);
  const i32 level = form.levels.empty() ? i32{parts.codes[e]} - form.code_of_zero
                                        : i32{form.levels[parts.codes[e]]};
  const f32 d =
      form.has_exponent ? std::ldexp(1.0f, i32{parts.d} - 128) : kernels::f16_to_f32(parts.d);
  const f32 scaled = static_cast<f32>(level) * (d * static_cast<f32>(parts.scales[sub]));
  return scaled - kernels::f16_to_f32(parts.dmin) * static_cast<f32>(parts.minima[sub]);
}

TEST_CASE(
    "a block has the values of the parts that were put into it, and nothing of what lay there") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const auto& traits : kernels::kTypeTraits) {
    if (traits.block_elems == 1) continue;
    CAPTURE(traits.name);
    const BlockForm& form = block_form(traits.type);
    for (u32 b = 0; b < kBlocks; ++b) {
      const BlockParts parts = random_parts(random, form);
      std::vector<u8> block(traits.block_bytes);
      for (u8& byte : block) byte = static_cast<u8>(random.next());
      put_block(traits.type, parts, block.data());
      std::vector<f32> values(traits.block_elems);
      kernels::dequantize_row(traits.type, block.data(), values.size(), values.data());
      for (u32 e = 0; e < traits.block_elems; ++e) {
        CAPTURE(e);
        REQUIRE(values[e] == value_of(form, parts, e, traits.block_elems));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::tools::blocks_test
