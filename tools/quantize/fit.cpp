#include "tools/quantize/fit.h"

#include <algorithm>
#include <cmath>

namespace tarn::tools {
namespace {

constexpr u32 kLanes = 8;  // partial sums, so that the compiler can use vectors

// The ranges that are tried: the values' own, and up to so many fifths of a step more or less. On
// normal rows, with and without outliers, finer or wider steps gain less than 0.2 % of the error.
constexpr f32 kStep = 0.2f;
constexpr i32 kScaleStepsLow = -10, kScaleStepsHigh = 3;
constexpr i32 kMinStepsLow = -7, kMinStepsHigh = 2;
// The same for uneven levels: what the largest magnitude becomes, as a share of the largest level.
constexpr f32 kShareLow = 0.66f, kShareStep = 0.06f;
constexpr u32 kShares = 8;

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

}  // namespace

Weights equal_weights() {
  Weights weights;
  weights.fill(1);
  return weights;
}

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

f32 nearest_within(f32 value, f32 low, f32 high) { return clamped(nearest(value), low, high); }

f32 largest_magnitude(Values values) {
  f32 largest = 0;
  for (const f32 value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

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

ScaleMin best_scale_min(Values values, const Weights& weights, f32 n, Minimum minimum) {
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
    if (minimum == Minimum::not_negative) offset = std::min(offset, 0.0);
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

f32 take_codes(Values values, const Weights& weights, const EvenGrid& grid, u8* codes) {
  const f32 inverse = inverse_of(grid.scale);
  const f32 low = static_cast<f32>(grid.least - grid.zero);
  const f32 high = static_cast<f32>(grid.most - grid.zero);
  std::array<f32, kFitElemsMax> near{};
  Lanes squares{};
  for (u64 i = 0; i < values.size(); i += kLanes) {
    for (u32 l = 0; l < kLanes; ++l) {
      const f32 value = values[i + l] + grid.minimum;
      const f32 code = clamped(nearest(value * inverse), low, high);
      const f32 error = value - grid.scale * code;
      near[i + l] = code;
      squares[l] += weights[i + l] * (error * error);
    }
  }
  for (u64 i = 0; i < values.size(); ++i) {
    codes[i] = static_cast<u8>(static_cast<i32>(near[i]) + grid.zero);
  }
  return sum_of(squares);
}

LevelGrid::LevelGrid(std::span<const i8> levels_by_code) {
  for (u32 code = 0; code < levels_by_code.size(); ++code) {
    const f32 level = levels_by_code[code];
    u32 at = 0;
    while (at < n_ && levels_[at] < level) ++at;
    if (at < n_ && levels_[at] == level) continue;  // a second zero
    for (u32 j = n_; j > at; --j) {
      levels_[j] = levels_[j - 1];
      codes_[j] = codes_[j - 1];
    }
    levels_[at] = level;
    codes_[at] = static_cast<u8>(code);
    ++n_;
  }
  for (u32 j = 0; j + 1 < n_; ++j) borders_[j] = (levels_[j] + levels_[j + 1]) / 2;
}

// The levels nearest to `values`, level by level, so that the compiler can use vectors.
LevelGrid::Eight LevelGrid::nearest_levels(const Eight& values) const {
  Eight levels;
  levels.fill(levels_[0]);
  for (u32 j = 0; j + 1 < n_; ++j) {
    const f32 border = borders_[j], step = levels_[j + 1] - levels_[j];
    for (u32 l = 0; l < kLanes; ++l) levels[l] += values[l] > border ? step : 0.0f;
  }
  return levels;
}

f32 LevelGrid::best_scale(Values values) const {
  const f32 largest = largest_magnitude(values);
  if (largest < kSmallest) return 0;
  const f32 end = std::max(-levels_[0], levels_[n_ - 1]);
  f32 best_gain = 0, best = 0;
  for (u32 step = 0; step < 2 * kShares; ++step) {
    const u32 share_idx = step / 2;
    const f32 share = kShareLow + static_cast<f32>(share_idx) * kShareStep;
    const f32 inverse = (step % 2 == 0 ? share : -share) * end / largest;
    Lanes products{}, squares{};
    for (u64 i = 0; i < values.size(); i += kLanes) {
      Eight wanted;
      for (u32 l = 0; l < kLanes; ++l) wanted[l] = values[i + l] * inverse;
      const Eight levels = nearest_levels(wanted);
      for (u32 l = 0; l < kLanes; ++l) {
        products[l] += levels[l] * values[i + l];
        squares[l] += levels[l] * levels[l];
      }
    }
    const f32 xq = sum_of(products), qq = sum_of(squares);
    if (xq * xq > best_gain * qq) {  // as in best_scale() of even codes
      best_gain = xq * xq / qq;
      best = xq / qq;
    }
  }
  return best;
}

f32 LevelGrid::take_codes(Values values, f32 scale, u8* codes) const {
  const f32 inverse = inverse_of(scale);
  f32 sum = 0;
  for (u64 i = 0; i < values.size(); ++i) {
    const f32 wanted = values[i] * inverse;
    u32 at = 0;
    for (u32 j = 0; j + 1 < n_; ++j) at += wanted > borders_[j] ? 1u : 0u;
    const f32 error = values[i] - scale * levels_[at];
    codes[i] = codes_[at];
    sum += error * error;
  }
  return sum;
}

}  // namespace tarn::tools
