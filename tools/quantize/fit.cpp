#include "tools/quantize/fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tarn::tools {
namespace {

// Loops walk eight values at a time in two halves, each with four partial sums.
constexpr u32 kHalves = 2, kLanes = 4;

// The ranges that are tried: the values' own, and up to so many fifths of a step more or less. On
// normal rows, with and without outliers, finer or wider steps gain less than 0.2 % of the error.
constexpr f32 kStep = 0.2f;
constexpr i32 kScaleStepsLow = -10, kScaleStepsHigh = 3;
constexpr i32 kMinStepsLow = -7, kMinStepsHigh = 2;
// The same for uneven levels: what the largest magnitude becomes, as a share of the largest level.
constexpr f32 kShareLow = 0.66f, kShareStep = 0.06f;
constexpr u32 kShares = 8;

using Lanes = std::array<Four, kHalves>;

Four all(f32 value) { return Four{value, value, value, value}; }

Four load(const f32* from) {
  Four out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

f32 sum_of(const Lanes& lanes) {
  const Four a = lanes[0], b = lanes[1];
  return ((a[0] + a[1]) + (a[2] + a[3])) + ((b[0] + b[1]) + (b[2] + b[3]));
}

// Calls `each(at, half)` for every four of `n` values.
template <class Each>
void for_each_four(u64 n, const Each& each) {
  for (u64 at = 0; at < n; at += kHalves * kLanes) {
    each(at, 0);
    each(at + kLanes, 1);
  }
}

// Rounds f32 or Four to the nearest integers, |value| < 2^22.
template <class Value>
Value nearest(Value value) {
  constexpr f32 kTurn = 12582912.0f;  // 1.5 * 2^23: its neighbours are integers
  return (value + kTurn) - kTurn;
}

template <class Value>
Value clamped(Value value, Value low, Value high) {
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

Four codes_of(Four values, const Grid& grid) {
  return clamped(nearest((values - grid.low) * grid.inverse), all(grid.code_low),
                 all(grid.code_high));
}

Moments moments_of(Values values, const Weights& weights, const Grid& grid) {
  Lanes w{}, x{}, q{}, xq{}, qq{};
  for_each_four(values.size(), [&](u64 at, u32 half) {
    const Four value = load(&values[at]), weight = load(&weights[at]);
    const Four code = codes_of(value, grid), weighted_code = weight * code;
    w[half] += weight;
    x[half] += weight * value;
    q[half] += weighted_code;
    xq[half] += weighted_code * value;
    qq[half] += weighted_code * code;
  });
  return {sum_of(w), sum_of(x), sum_of(q), sum_of(xq), sum_of(qq)};
}

// The scale of codes with the least squared error so far, where gain is what the fit takes off it.
struct ScaleFit {
  f32 gain = 0, scale = 0;
};

// Tries the codes that `codes(four values)` returns.
template <class CodesOfFour>
void try_codes(Values values, const CodesOfFour& codes, ScaleFit& best) {
  Lanes products{}, squares{};
  for_each_four(values.size(), [&](u64 at, u32 half) {
    const Four value = load(&values[at]), code = codes(value);
    products[half] += code * value;
    squares[half] += code * code;
  });
  const f32 xq = sum_of(products), qq = sum_of(squares);
  // With the best scale, xq / qq, the squared error is xx - xq * xq / qq.
  if (xq * xq > best.gain * qq) best = {.gain = xq * xq / qq, .scale = xq / qq};
}

}  // namespace

Weights equal_weights() {
  Weights weights;
  weights.fill(1);
  return weights;
}

Weights magnitude_weights(Values values) {
  Lanes squares{};
  for_each_four(values.size(), [&](u64 at, u32 half) {
    const Four value = load(&values[at]);
    squares[half] += value * value;
  });
  const f32 rms = std::sqrt(sum_of(squares) / static_cast<f32>(values.size()));
  if (rms == 0) return equal_weights();
  Weights weights{};
  for (u64 i = 0; i < values.size(); ++i) weights[i] = rms + std::abs(values[i]);
  return weights;
}

f32 nearest_within(f32 value, f32 low, f32 high) { return clamped(nearest(value), low, high); }

f32 largest_magnitude(Values values) {
  Lanes largest{};
  for_each_four(values.size(), [&](u64 at, u32 half) {
    const Four value = load(&values[at]), magnitude = value < Four{} ? -value : value;
    largest[half] = magnitude > largest[half] ? magnitude : largest[half];
  });
  f32 most = 0;
  for (u32 l = 0; l < kLanes; ++l) most = std::max({most, largest[0][l], largest[1][l]});
  return most;
}

f32 best_scale(Values values, f32 n) {
  const f32 largest = largest_magnitude(values);
  if (largest < kSmallest) return 0;
  ScaleFit best;
  for (i32 step = kScaleStepsLow; step <= kScaleStepsHigh; ++step) {
    const f32 reach = n + static_cast<f32>(step) * kStep;
    for (const f32 inverse : {reach / largest, -reach / largest}) {
      const Grid grid{0, inverse, -n, n - 1};
      const auto codes = [&](Four four) { return codes_of(four, grid); };
      try_codes(values, codes, best);
    }
  }
  return best.scale;
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
  const Grid codes_grid{0, inverse_of(grid.scale), static_cast<f32>(grid.least - grid.zero),
                        static_cast<f32>(grid.most - grid.zero)};
  const Four minimum = all(grid.minimum), scale = all(grid.scale);
  std::array<f32, kFitElemsMax> near{};
  Lanes squares{};
  for_each_four(values.size(), [&](u64 at, u32 half) {
    const Four value = load(&values[at]) + minimum, code = codes_of(value, codes_grid);
    const Four error = value - scale * code;
    std::memcpy(&near[at], &code, sizeof code);
    squares[half] += load(&weights[at]) * (error * error);
  });
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
  for (u32 j = 0; j + 1 < n_; ++j) {
    borders_[j] = all((levels_[j] + levels_[j + 1]) / 2);
    steps_[j] = all(levels_[j + 1] - levels_[j]);
  }
}

Four LevelGrid::nearest_levels(Four values) const {
  Four levels = all(levels_[0]);
  for (u32 j = 0; j + 1 < n_; ++j) levels += values > borders_[j] ? steps_[j] : Four{};
  return levels;
}

f32 LevelGrid::best_scale(Values values) const {
  const f32 largest = largest_magnitude(values);
  if (largest < kSmallest) return 0;
  const f32 end = std::max(-levels_[0], levels_[n_ - 1]);
  ScaleFit best;
  for (u32 step = 0; step < 2 * kShares; ++step) {
    const u32 share_idx = step / 2;
    const f32 share = kShareLow + static_cast<f32>(share_idx) * kShareStep;
    const f32 inverse = (step % 2 == 0 ? share : -share) * end / largest;
    const auto codes = [&](Four four) { return nearest_levels(four * inverse); };
    try_codes(values, codes, best);
  }
  return best.scale;
}

f32 LevelGrid::take_codes(Values values, f32 scale, u8* codes) const {
  const f32 inverse = inverse_of(scale);
  f32 sum = 0;
  for (u64 i = 0; i < values.size(); i += kLanes) {
    const Four wanted = load(&values[i]) * inverse;
    FourInts at{};
    for (u32 j = 0; j + 1 < n_; ++j) at -= wanted > borders_[j];  // true is -1
    for (u32 l = 0; l < kLanes; ++l) {
      const auto level = static_cast<u32>(at[l]);
      const f32 error = values[i + l] - scale * levels_[level];
      codes[i + l] = codes_[level];
      sum += error * error;
    }
  }
  return sum;
}

}  // namespace tarn::tools
