// The searches of quantizer.h: the scale, offset or codes of a few elements that share them, with
// the least squared error.
#pragma once

#include <array>
#include <span>

#include "tools/quantize/blocks.h"

namespace tarn::tools {

inline constexpr u32 kFitElemsMax = 32;     // elements that share a scale, a multiple of 8
inline constexpr f32 kSmallest = 0x1p-40f;  // smaller values become 0: f16 ends at 2^-24

// Four values whose operations are the compiler's vectors, on every machine with the same bits.
using Four = f32 __attribute__((vector_size(16)));
using FourInts = i32 __attribute__((vector_size(16)));

using Values = std::span<const f32>;  // a multiple of 8, at most kFitElemsMax
// The weight of each element's squared error.
using Weights = std::array<f32, kFitElemsMax>;
using Codes = std::array<u8, kFitElemsMax>;

Weights equal_weights();
// Weights by the values' root mean square and their own magnitude: large values count several
// times.
Weights magnitude_weights(Values values);

// Rounds to the nearest integer, |value| < 2^22, within low .. high.
f32 nearest_within(f32 value, f32 low, f32 high);
inline f32 inverse_of(f32 scale) { return scale != 0 ? 1 / scale : 0; }
f32 largest_magnitude(Values values);

// The scale of codes -n .. n-1, of either sign, with the least squared error; 0 for no values.
f32 best_scale(Values values, f32 n);

struct ScaleMin {
  f32 scale = 0, minimum = 0;
};
enum class Minimum : u8 { not_negative, any };
// value ~ scale * code - minimum for codes 0 .. n with the least weighted squared error.
ScaleMin best_scale_min(Values values, const Weights& weights, f32 n, Minimum minimum);

// Codes of value ~ scale * (code - zero) - minimum, the nearest of least - zero .. most - zero.
struct EvenGrid {
  f32 scale = 0, minimum = 0;
  i32 zero = 0, least = 0, most = 0;
};
// Writes the codes and returns the weighted squared error.
f32 take_codes(Values values, const Weights& weights, const EvenGrid& grid, u8* codes);

// A type's levels in ascending order, with the borders between neighbours.
class LevelGrid {
 public:
  explicit LevelGrid(std::span<const i8> levels_by_code);
  // The scale, of either sign, of the levels with the least squared error; 0 for no values.
  f32 best_scale(Values values) const;
  // Writes the codes of the nearest levels times scale and returns the squared error.
  f32 take_codes(Values values, f32 scale, u8* codes) const;

 private:
  Four nearest_levels(Four values) const;

  u32 n_ = 0;
  std::array<f32, 16> levels_{};
  std::array<Four, 16> borders_{}, steps_{};  // from levels_[j] to levels_[j + 1]
  std::array<u8, 16> codes_{};
};

}  // namespace tarn::tools
