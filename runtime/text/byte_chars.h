// Byte-level BPE stores the bytes of a token as printable characters (Radford et al. 2019, GPT-2):
// the bytes ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF represent themselves, the other 68 are
// U+0100 onwards in order.
#pragma once

#include <array>

#include "platform/base/types.h"

namespace tarn::text {

inline constexpr u32 kByteChars = 256 + 68;  // one past the last character that represents a byte

constexpr bool byte_is_its_char(u32 byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// The character of each byte: a code point below kByteChars.
inline constexpr std::array<u16, 256> kCharOfByte = [] {
  std::array<u16, 256> chars{};
  u32 next = 256;
  for (u32 byte = 0; byte < 256; ++byte) {
    chars[byte] = static_cast<u16>(byte_is_its_char(byte) ? byte : next++);
  }
  return chars;
}();

// The byte of each character; kNoByte for those below U+0100 that represent none.
inline constexpr u16 kNoByte = 0xFFFF;
inline constexpr std::array<u16, kByteChars> kByteOfChar = [] {
  std::array<u16, kByteChars> bytes{};
  for (u16& byte : bytes) byte = kNoByte;
  for (u32 byte = 0; byte < 256; ++byte) bytes[kCharOfByte[byte]] = static_cast<u16>(byte);
  return bytes;
}();

}  // namespace tarn::text
