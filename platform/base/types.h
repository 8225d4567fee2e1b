// Short names for the fixed-width types, and the byte units. Nothing else: this header enters the
// ISA files, which may hold no inline code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f32 = float;
using f64 = double;

inline constexpr u64 kKiB = 1024;
inline constexpr u64 kMiB = 1024 * kKiB;
inline constexpr u64 kGiB = 1024 * kMiB;

}  // namespace tarn
