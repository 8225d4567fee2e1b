// The one type for sizes that come from a file or a caller: products of such sizes can overflow. An
// operation that would wrap makes the value invalid, and an invalid value stays invalid. So a
// formula is written plainly and checked once, at its end.
#pragma once

#include <optional>

#include "platform/base/types.h"

namespace tarn {

class Checked {
 public:
  constexpr Checked(u64 value) : value_(value) {}  // NOLINT: implicit by intent
  constexpr bool valid() const { return valid_; }
  constexpr std::optional<u64> get() const {
    return valid_ ? std::optional<u64>(value_) : std::nullopt;
  }
  // The value if it is valid and at most `limit`.
  constexpr std::optional<u64> at_most(u64 limit) const {
    return valid_ && value_ <= limit ? std::optional<u64>(value_) : std::nullopt;
  }

  friend constexpr Checked operator+(Checked a, Checked b) {
    u64 out = 0;
    const bool wrapped = __builtin_add_overflow(a.value_, b.value_, &out);
    return Checked(out, a.valid_ && b.valid_ && !wrapped);
  }
  friend constexpr Checked operator-(Checked a, Checked b) {
    u64 out = 0;
    const bool wrapped = __builtin_sub_overflow(a.value_, b.value_, &out);
    return Checked(out, a.valid_ && b.valid_ && !wrapped);
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    u64 out = 0;
    const bool wrapped = __builtin_mul_overflow(a.value_, b.value_, &out);
    return Checked(out, a.valid_ && b.valid_ && !wrapped);
  }
  // Division by zero and a remainder are both invalid: block counts must come out even.
  constexpr Checked divided_exactly(u64 divisor) const {
    if (divisor == 0 || value_ % divisor != 0) return Checked(0, false);
    return Checked(value_ / divisor, valid_);
  }
  // `alignment` must be a power of two; anything else is invalid.
  constexpr Checked aligned_up(u64 alignment) const {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) return Checked(0, false);
    const Checked sum = *this + Checked(alignment - 1);
    return Checked(sum.value_ & ~(alignment - 1), sum.valid_);
  }

 private:
  constexpr Checked(u64 value, bool valid) : value_(value), valid_(valid) {}
  u64 value_;
  bool valid_ = true;
};

// Rounds up sizes of our own, where a wrap would be our bug.
constexpr u64 align_up(u64 value, u64 alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}
constexpr u64 ceil_div(u64 value, u64 divisor) { return (value + divisor - 1) / divisor; }

}  // namespace tarn
