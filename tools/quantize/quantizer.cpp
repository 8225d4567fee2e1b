#include "tools/quantize/quantizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/common/half.h"
#include "tools/quantize/blocks.h"

namespace tarn::tools {
namespace {

using kernels::TensorType;

constexpr u32 kLanes = 8;            // partial sums, so that the compiler can use vectors
constexpr u32 kFitElemsMax = 32;     // elements that share a scale
constexpr f32 kSmallest = 0x1p-40f;  // smaller values become 0: f16 ends at 2^-24

// The ranges that are tried: the values' own, and up to so many fifths of a step more or less. On
// normal rows, with and without outliers, finer or wider steps gain less than 0.2 % of the error.
constexpr f32 kStep = 0.2f;
constexpr i32 kScaleStepsLow = -10, kScaleStepsHigh = 3;
constexpr i32 kMinStepsLow = -7, kMinStepsHigh = 2;

using Values = std::span<const f32>;
using Lanes = std::array<f32, kLanes>;

f32 sum_of(const Lanes& lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
         ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

// Rounds to the nearest integer, |value| < 2^22.
f32 nearest(f32 value) {
  constexpr f32 kTurn = 12582912.0f;  // 1.5 * 2^23: its neighbours are integers
  return (value + kTurn) - kTurn;
}

f32 clamped(f32 value, f32 low, f32 high) {
  value = value < low ? low : value;
  return value > high ? high : value;
}

// The weight of each element's squared error.
using Weights = std::array<f32, kFitElemsMax>;

Weights equal_weights() {
  Weights weights;
  weights.fill(1);
  return weights;
}

// Weights by the values' root mean square and their own magnitude: large values count several
// times.
Weights magnitude_weights(Values values) {
  Lanes squares{};
  for (u64 i = 0; i < values.size(); i += kLanes) {
    for (u32 l = 0; l < kLanes; ++l) squares[l] += values[i + l] * values[i + l];
  }
  const f32 rms = std::sqrt(sum_of(squares) / static_cast<f32>(values.size()));
  if (rms == 0) return equal_weights();
  Weights weights{};
  for (u64 i = 0; i < values.size(); ++i) weights[i] = rms + std::abs(values[i]);
  return weights;
}

// Weighted sums over codes and values that a least-squares fit needs.
struct Moments {
  f32 w = 0, x = 0, q = 0, xq = 0, qq = 0;
};

// Codes are nearest((x - low) * inverse), within code_low .. code_high.
struct Grid {
  f32 low = 0, inverse = 0, code_low = 0, code_high = 0;
};

Moments moments_of(Values values, const Weights& weights, const Grid& grid) {
  Lanes w{}, x{}, q{}, xq{}, qq{};
  for (u64 i = 0; i < values.size(); i += kLanes) {
    for (u32 l = 0; l < kLanes; ++l) {
      const f32 value = values[i + l];
      const f32 code =
          clamped(nearest((value - grid.low) * grid.inverse), grid.code_low, grid.code_high);
      const f32 weight = weights[i + l], weighted_code = weight * code;
      w[l] += weight;
      x[l] += weight * value;
      q[l] += weighted_code;
      xq[l] += weighted_code * value;
      qq[l] += weighted_code * code;
    }
  }
  return {sum_of(w), sum_of(x), sum_of(q), sum_of(xq), sum_of(qq)};
}

// The weighted squared error of value ~ scale * code - minimum with the nearest codes, which it
// keeps.
f32 squared_error(Values values, const Weights& weights, f32 scale, f32 minimum, const Grid& grid,
                  f32* codes) {
  Lanes squares{};
  for (u64 i = 0; i < values.size(); i += kLanes) {
    for (u32 l = 0; l < kLanes; ++l) {
      const f32 value = values[i + l] + minimum;
      const f32 code = clamped(nearest(value * grid.inverse), grid.code_low, grid.code_high);
      const f32 error = value - scale * code;
      codes[i + l] = code;
      squares[l] += weights[i + l] * (error * error);
    }
  }
  return sum_of(squares);
}

f32 inverse_of(f32 scale) { return scale != 0 ? 1 / scale : 0; }

f32 largest_magnitude(Values values) {
  f32 largest = 0;
  for (const f32 value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The scale of codes -n .. n-1, of either sign, with the least squared error; 0 for no values.
f32 best_scale(Values values, f32 n) {
  const f32 largest = largest_magnitude(values);
  if (largest < kSmallest) return 0;
  const Weights weights = equal_weights();
  f32 best_gain = 0, best = 0;
  for (i32 step = kScaleStepsLow; step <= kScaleStepsHigh; ++step) {
    const f32 reach = n + static_cast<f32>(step) * kStep;
    for (const f32 inverse : {reach / largest, -reach / largest}) {
      const Moments m = moments_of(values, weights, {0, inverse, -n, n - 1});
      // With the best scale, xq / qq, the squared error is xx - xq * xq / qq.
      if (m.xq * m.xq > best_gain * m.qq) {
        best_gain = m.xq * m.xq / m.qq;
        best = m.xq / m.qq;
      }
    }
  }
  return best;
}

struct ScaleMin {
  f32 scale = 0, minimum = 0;
};

// value ~ scale * code - minimum, minimum >= 0, for codes 0 .. n with the least weighted squared
// error.
ScaleMin best_scale_min(Values values, const Weights& weights, f32 n) {
  const auto [low_at, high_at] = std::minmax_element(values.begin(), values.end());
  const f32 low = std::min(*low_at, 0.0f), range = *high_at - low;
  if (range < kSmallest) return {0, -low};
  ScaleMin best;
  f64 best_gain = -1;
  for (i32 step = kMinStepsLow; step <= kMinStepsHigh; ++step) {
    const f32 reach = n + static_cast<f32>(step) * kStep;
    const Moments m = moments_of(values, weights, {low, reach / range, 0, n});
    const f64 w{m.w}, x{m.x}, q{m.q}, xq{m.xq}, qq{m.qq};
    const f64 determinant = w * qq - q * q;
    f64 offset = determinant > 0 ? (qq * x - q * xq) / determinant : 0;
    offset = std::min(offset, 0.0);
    const f64 scale = (xq - offset * q) / qq;
    // The squared error is xx less this.
    const f64 gain = 2 * (scale * xq + offset * x) - scale * scale * qq - 2 * scale * offset * q -
                     offset * offset * w;
    if (gain > best_gain) {
      best_gain = gain;
      best = {static_cast<f32>(scale), static_cast<f32>(-offset)};
    }
  }
  return best;
}

// The stored integer nearest to value / unit.
i32 whole(f32 value, f32 unit, f32 low, f32 high) {
  return static_cast<i32>(clamped(nearest(value * inverse_of(unit)), low, high));
}

using Codes = std::array<f32, kFitElemsMax>;

void keep_codes(const Codes& codes, u64 first, u64 n, i32 zero, BlockParts& parts) {
  for (u64 i = 0; i < n; ++i) {
    parts.codes[first + i] = static_cast<u8>(static_cast<i32>(codes[i]) + zero);
  }
}

// q8_0, q4_0 and q5_0.
BlockParts fit_one_scale(TensorType type, Values values) {
  const i32 zero = code_of_zero(type);
  const f32 n = static_cast<f32>(zero);
  const bool wide = type == TensorType::q8_0;
  BlockParts parts;
  const f32 scale = wide ? largest_magnitude(values) / (n - 1) : best_scale(values, n);
  parts.d = kernels::f32_to_f16(scale);
  const f32 d = kernels::f16_to_f32(parts.d);
  Codes codes;
  squared_error(values, equal_weights(), d, 0, {0, inverse_of(d), wide ? 1 - n : -n, n - 1},
                codes.data());
  keep_codes(codes, 0, values.size(), zero, parts);
  return parts;
}

BlockParts fit_q6_k(Values values) {
  constexpr u64 kSubs = 16, kEach = kBlockElemsMax / kSubs;
  constexpr f32 kCodes = 32, kScaleMax = 127, kScaleMin = -128;
  std::array<f32, kSubs> scales{};
  f32 largest = 0;
  for (u64 j = 0; j < kSubs; ++j) {
    scales[j] = best_scale(values.subspan(j * kEach, kEach), kCodes);
    if (std::abs(scales[j]) > std::abs(largest)) largest = scales[j];
  }
  BlockParts parts;
  parts.d = kernels::f32_to_f16(largest / kScaleMin);
  const f32 d = kernels::f16_to_f32(parts.d);
  for (u64 j = 0; j < kSubs; ++j) {
    parts.scales[j] = whole(scales[j], d, kScaleMin, kScaleMax);
    const f32 scale = d * static_cast<f32>(parts.scales[j]);
    Codes codes;
    squared_error(values.subspan(j * kEach, kEach), equal_weights(), scale, 0,
                  {0, inverse_of(scale), -kCodes, kCodes - 1}, codes.data());
    keep_codes(codes, j * kEach, kEach, code_of_zero(TensorType::q6_k), parts);
  }
  return parts;
}

// q4_k and q5_k.
BlockParts fit_k(TensorType type, Values values) {
  constexpr u64 kSubs = 8, kEach = kBlockElemsMax / kSubs;
  constexpr f32 kWholeMax = 63;
  const f32 n = static_cast<f32>(code_max(type));
  std::array<ScaleMin, kSubs> fits;
  std::array<Weights, kSubs> weights{};
  f32 largest_scale = 0, largest_minimum = 0;
  for (u64 j = 0; j < kSubs; ++j) {
    const Values sub = values.subspan(j * kEach, kEach);
    weights[j] = magnitude_weights(sub);
    fits[j] = best_scale_min(sub, weights[j], n);
    largest_scale = std::max(largest_scale, fits[j].scale);
    largest_minimum = std::max(largest_minimum, fits[j].minimum);
  }
  BlockParts parts;
  parts.d = kernels::f32_to_f16(largest_scale / kWholeMax);
  parts.dmin = kernels::f32_to_f16(largest_minimum / kWholeMax);
  const f32 d = kernels::f16_to_f32(parts.d), dmin = kernels::f16_to_f32(parts.dmin);
  for (u64 j = 0; j < kSubs; ++j) {
    const Values sub = values.subspan(j * kEach, kEach);
    const i32 scale_near = whole(fits[j].scale, d, 0, kWholeMax);
    const i32 minimum_near = whole(fits[j].minimum, dmin, 0, kWholeMax);
    f32 least = std::numeric_limits<f32>::infinity();
    for (i32 s = std::max(scale_near - 1, 0); s <= std::min(scale_near + 1, 63); ++s) {
      const f32 scale = d * static_cast<f32>(s);
      for (i32 m = std::max(minimum_near - 1, 0); m <= std::min(minimum_near + 1, 63); ++m) {
        const f32 minimum = dmin * static_cast<f32>(m);
        Codes codes;
        const f32 error = squared_error(sub, weights[j], scale, minimum,
                                        {0, inverse_of(scale), 0, n}, codes.data());
        if (error >= least) continue;
        least = error;
        parts.scales[j] = s;
        parts.minima[j] = m;
        keep_codes(codes, j * kEach, kEach, 0, parts);
      }
    }
  }
  return parts;
}

BlockParts fit(TensorType type, Values values) {
  switch (type) {
    case TensorType::q4_k:
    case TensorType::q5_k:
      return fit_k(type, values);
    case TensorType::q6_k:
      return fit_q6_k(values);
    default:
      return fit_one_scale(type, values);
  }
}

}  // namespace

void quantize_blocks(TensorType type, std::span<const f32> values, std::span<u8> out) {
  const kernels::TypeTraits& traits = kernels::type_traits(type);
  if (traits.block_elems == 1) return put_floats(type, values, out.data());
  for (u64 i = 0; i < values.size() / traits.block_elems; ++i) {
    const Values block = values.subspan(i * traits.block_elems, traits.block_elems);
    put_block(type, fit(type, block), out.data() + i * traits.block_bytes);
  }
}

}  // namespace tarn::tools
