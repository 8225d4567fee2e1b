#include "tools/synth/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/common/half.h"
#include "tools/quantize/blocks.h"

namespace tarn::synth {
namespace {

using kernels::TensorType;
using tools::BlockParts;

f32 largest_magnitude(std::span<const f32> values) {
  f32 largest = 0;
  for (const f32 value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// A scale with seven significant bits, so that f16 also holds its multiples by 7 and 15: then an
// offset, or minima, cancel the middle code exactly.
f32 short_scale(f32 scale) {
  const u32 bits = std::bit_cast<u32>(scale);
  return std::bit_cast<f32>((bits + 0x10000u) & 0xFFFE0000u);
}

i32 nearest(f32 value, f32 scale, i32 magnitude_max) {
  if (scale == 0) return 0;
  return std::clamp(static_cast<i32>(std::lround(value / scale)), -magnitude_max, magnitude_max);
}

// Codes are symmetric around the middle one. With minima or an offset, these make it zero: the
// minimum equals the scale, and dmin is d times the middle code.
BlockParts exact_parts(const tools::BlockForm& form, std::span<const f32> values) {
  const bool from_zero = form.has_minima() || form.has_offset();
  const i32 middle = from_zero ? form.code_most / 2 : form.code_of_zero;
  const i32 code_reach = from_zero ? middle : form.code_most - middle;
  const u64 n_each = values.size() / form.n_subs;

  BlockParts parts;
  const f32 unit =
      short_scale(largest_magnitude(values) / static_cast<f32>(code_reach * form.scales.most));
  parts.d = kernels::f32_to_f16(unit);
  parts.dmin = kernels::f32_to_f16(unit * static_cast<f32>(form.has_offset() ? -middle : middle));
  for (u64 j = 0; j < form.n_subs; ++j) {
    const auto sub = values.subspan(j * n_each, n_each);
    const f32 wanted = largest_magnitude(sub) / static_cast<f32>(code_reach);
    parts.scales[j] = form.n_subs == 1 ? 1 : nearest(wanted, unit, form.scales.most);
    parts.minima[j] = form.has_minima() ? parts.scales[j] : form.minima.least;
    const f32 scale = unit * static_cast<f32>(parts.scales[j]);
    for (u64 i = 0; i < n_each; ++i) {
      parts.codes[j * n_each + i] = static_cast<u8>(nearest(sub[i], scale, code_reach) + middle);
    }
  }
  return parts;
}

}  // namespace

std::vector<u8> quantize(TensorType type, std::span<const f32> values) {
  const auto& traits = kernels::type_traits(type);
  const u64 n_blocks = values.size() / traits.block_elems;
  std::vector<u8> out(n_blocks * traits.block_bytes);
  if (traits.block_elems == 1) {
    tools::put_floats(type, values, out.data());
    return out;
  }
  const tools::BlockForm& form = tools::block_form(type);
  if (!form.levels.empty()) {
    throw std::invalid_argument(
        std::string("the recall model needs even codes around zero, which ") + traits.name +
        " does not have; choose another type");
  }
  for (u64 i = 0; i < n_blocks; ++i) {
    const auto block_values = values.subspan(i * traits.block_elems, traits.block_elems);
    put_block(type, exact_parts(form, block_values), out.data() + i * traits.block_bytes);
  }
  return out;
}

}  // namespace tarn::synth
