#include "tools/quantize/quantizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/common/half.h"
#include "tools/quantize/blocks.h"
#include "tools/quantize/fit.h"

namespace tarn::tools {
namespace {

using kernels::TensorType;

constexpr u32 kSubsMax = 16;
constexpr i32 kByteMost = 255;  // codes of whole bytes are fine enough without a search

// The stored integer nearest to value / unit.
i32 whole(f32 value, f32 unit, BlockForm::Range range) {
  return static_cast<i32>(nearest_within(value * inverse_of(unit), static_cast<f32>(range.least),
                                         static_cast<f32>(range.most)));
}

// The stored integers next to value / unit.
BlockForm::Range around(f32 value, f32 unit, BlockForm::Range range) {
  const i32 near = whole(value, unit, range);
  return {std::max(near - 1, range.least), std::min(near + 1, range.most)};
}

EvenGrid grid_of(const BlockForm& form, f32 scale, f32 minimum) {
  return {scale, minimum, form.code_of_zero, 0, form.code_most};
}

BlockParts fit_nearest(const BlockForm& form, Values values) {
  BlockParts parts;
  const f32 most = static_cast<f32>(form.code_of_zero - 1);
  parts.d = kernels::f32_to_f16(largest_magnitude(values) / most);
  EvenGrid grid = grid_of(form, kernels::f16_to_f32(parts.d), 0);
  grid.least = 1;  // codes as far below zero as above
  take_codes(values, equal_weights(), grid, parts.codes.data());
  return parts;
}

BlockParts fit_scale(const BlockForm& form, Values values) {
  BlockParts parts;
  parts.d = kernels::f32_to_f16(best_scale(values, static_cast<f32>(form.code_of_zero)));
  take_codes(values, equal_weights(), grid_of(form, kernels::f16_to_f32(parts.d), 0),
             parts.codes.data());
  return parts;
}

// The search sees distances from the least value, which an offset far from them does not make
// inexact.
BlockParts fit_scale_offset(const BlockForm& form, Values values) {
  const f32 low = *std::min_element(values.begin(), values.end());
  std::array<f32, kFitElemsMax> above{};
  for (u64 i = 0; i < values.size(); ++i) above[i] = values[i] - low;
  const ScaleMin fit = best_scale_min({above.data(), values.size()}, equal_weights(),
                                      static_cast<f32>(form.code_most), Minimum::any);
  BlockParts parts;
  parts.minima[0] = -1;
  parts.d = kernels::f32_to_f16(fit.scale);
  parts.dmin = kernels::f32_to_f16(std::clamp(low - fit.minimum, -kF16Max, kF16Max));
  const f32 offset = kernels::f16_to_f32(parts.dmin);
  take_codes(values, equal_weights(), grid_of(form, kernels::f16_to_f32(parts.d), -offset),
             parts.codes.data());
  return parts;
}

using SubScales = std::array<f32, kSubsMax>;

// d makes the largest scale the least stored integer, which is further from 0 than the largest.
u16 d_of_scales(const BlockForm& form, const SubScales& scales) {
  f32 largest = 0;
  for (const f32 scale : scales) {
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  }
  return kernels::f32_to_f16(largest / static_cast<f32>(form.scales.least));
}

// Chooses each sub-block's stored scale among those next to the wanted one.
// `take(sub, scale, codes)` writes the codes and returns the squared error.
template <class Take>
void choose_scales(const BlockForm& form, Values values, const SubScales& wanted, const Take& take,
                   BlockParts& parts) {
  const u64 n_each = values.size() / form.n_subs;
  const f32 d = kernels::f16_to_f32(parts.d);
  for (u64 j = 0; j < form.n_subs; ++j) {
    const BlockForm::Range near = around(wanted[j], d, form.scales);
    f32 least = std::numeric_limits<f32>::infinity();
    for (i32 s = near.least; s <= near.most; ++s) {
      Codes codes{};
      const f32 error =
          take(values.subspan(j * n_each, n_each), d * static_cast<f32>(s), codes.data());
      if (error >= least) continue;
      least = error;
      parts.scales[j] = s;
      std::copy_n(codes.begin(), n_each, parts.codes.begin() + static_cast<i64>(j * n_each));
    }
  }
}

BlockParts fit_scales(const BlockForm& form, Values values) {
  const u64 n_each = values.size() / form.n_subs;
  SubScales scales{};
  for (u64 j = 0; j < form.n_subs; ++j) {
    scales[j] = best_scale(values.subspan(j * n_each, n_each), static_cast<f32>(form.code_of_zero));
  }
  BlockParts parts;
  parts.d = d_of_scales(form, scales);
  const auto take = [&](Values sub, f32 scale, u8* codes) {
    return take_codes(sub, equal_weights(), grid_of(form, scale, 0), codes);
  };
  choose_scales(form, values, scales, take, parts);
  return parts;
}

BlockParts fit_scales_minima(const BlockForm& form, Values values) {
  const u64 n_each = values.size() / form.n_subs;
  const f32 n = static_cast<f32>(form.code_most);
  std::array<ScaleMin, kSubsMax> fits;
  std::array<Weights, kSubsMax> weights{};
  f32 largest_scale = 0, largest_minimum = 0;
  for (u64 j = 0; j < form.n_subs; ++j) {
    const Values sub = values.subspan(j * n_each, n_each);
    weights[j] = magnitude_weights(sub);
    fits[j] = best_scale_min(sub, weights[j], n, Minimum::not_negative);
    largest_scale = std::max(largest_scale, fits[j].scale);
    largest_minimum = std::max(largest_minimum, fits[j].minimum);
  }
  BlockParts parts;
  parts.d = kernels::f32_to_f16(largest_scale / static_cast<f32>(form.scales.most));
  parts.dmin = kernels::f32_to_f16(largest_minimum / static_cast<f32>(form.minima.most));
  const f32 d = kernels::f16_to_f32(parts.d), dmin = kernels::f16_to_f32(parts.dmin);
  for (u64 j = 0; j < form.n_subs; ++j) {
    const BlockForm::Range scale = around(fits[j].scale, d, form.scales);
    const BlockForm::Range minimum = around(fits[j].minimum, dmin, form.minima);
    f32 least = std::numeric_limits<f32>::infinity();
    for (i32 s = scale.least; s <= scale.most; ++s) {
      for (i32 m = minimum.least; m <= minimum.most; ++m) {
        Codes codes{};
        const EvenGrid grid = grid_of(form, d * static_cast<f32>(s), dmin * static_cast<f32>(m));
        const f32 error =
            take_codes(values.subspan(j * n_each, n_each), weights[j], grid, codes.data());
        if (error >= least) continue;
        least = error;
        parts.scales[j] = s;
        parts.minima[j] = m;
        std::copy_n(codes.begin(), n_each, parts.codes.begin() + static_cast<i64>(j * n_each));
      }
    }
  }
  return parts;
}

BlockParts fit_level_scale(const BlockForm& form, Values values) {
  const LevelGrid grid(form.levels);
  BlockParts parts;
  parts.d = kernels::f32_to_f16(grid.best_scale(values));
  grid.take_codes(values, kernels::f16_to_f32(parts.d), parts.codes.data());
  return parts;
}

BlockParts fit_level_scales(const BlockForm& form, Values values) {
  const LevelGrid grid(form.levels);
  const u64 n_each = values.size() / form.n_subs;
  SubScales scales{};
  for (u64 j = 0; j < form.n_subs; ++j) {
    scales[j] = grid.best_scale(values.subspan(j * n_each, n_each));
  }
  BlockParts parts;
  parts.d = d_of_scales(form, scales);
  const auto take = [&](Values sub, f32 scale, u8* codes) {
    return grid.take_codes(sub, scale, codes);
  };
  choose_scales(form, values, scales, take, parts);
  return parts;
}

// The scale is a power of two: the one that makes the largest level, 6, the power of two next to
// the largest magnitude, or one of its neighbours. Levels are doubled, so that d is half of it.
BlockParts fit_level_exponent(const BlockForm& form, Values values) {
  BlockParts parts;
  const f32 largest = largest_magnitude(values);
  if (largest < kSmallest) return parts;
  const LevelGrid grid(form.levels);
  const i32 near = static_cast<i32>(std::bit_cast<u32>(largest) >> 23) - 2;
  f32 least = std::numeric_limits<f32>::infinity();
  for (i32 exponent = near - 1; exponent <= std::min(near + 1, 254); ++exponent) {
    const f32 d = std::bit_cast<f32>(static_cast<u32>(exponent - 1) << 23);
    Codes codes{};
    const f32 error = grid.take_codes(values, d, codes.data());
    if (error >= least) continue;
    least = error;
    parts.d = static_cast<u16>(exponent);
    std::copy_n(codes.begin(), values.size(), parts.codes.begin());
  }
  return parts;
}

using Fit = BlockParts (*)(const BlockForm& form, Values values);

Fit fit_of(const BlockForm& form) {
  const bool has_subs = form.n_subs > 1;
  if (form.has_exponent) return fit_level_exponent;
  if (!form.levels.empty()) return has_subs ? fit_level_scales : fit_level_scale;
  if (form.has_minima()) return fit_scales_minima;
  if (form.has_offset()) return fit_scale_offset;
  if (has_subs) return fit_scales;
  return form.code_most == kByteMost ? fit_nearest : fit_scale;
}

}  // namespace

void quantize_blocks(TensorType type, std::span<const f32> values, std::span<u8> out) {
  const kernels::TypeTraits& traits = kernels::type_traits(type);
  if (traits.block_elems == 1) return put_floats(type, values, out.data());
  const BlockForm& form = block_form(type);
  const Fit fit = fit_of(form);
  for (u64 i = 0; i < values.size() / traits.block_elems; ++i) {
    const Values block = values.subspan(i * traits.block_elems, traits.block_elems);
    put_block(type, fit(form, block), out.data() + i * traits.block_bytes);
  }
}

}  // namespace tarn::tools
