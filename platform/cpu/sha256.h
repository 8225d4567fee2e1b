// SHA-256 (FIPS 180-4) of bytes that come in parts. libmd computes it; only sha256.cpp knows libmd.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn {

class Sha256 {
 public:
  // 64 lower-case hexadecimal digits and a terminator.
  using Text = std::array<char, 65>;

  Sha256();
  void add(std::span<const std::byte> bytes);
  // Ends the object's use.
  Text finish();

 private:
  alignas(u64) std::array<std::byte, 208> state_;
};

// `digits` may have letters of either case.
bool is_same_sha256(std::string_view digits, const Sha256::Text& text);

}  // namespace tarn
