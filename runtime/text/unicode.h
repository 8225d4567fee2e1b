// Code points for the tokenizers: their class, and UTF-8 decoding as in the vocabularies' own
// tools. Decoding is lenient on purpose, because ids of ill-formed text must equal llama.cpp's. It
// accepts overlong forms and surrogates, and reads every other stray byte as U+FFFD. (Beyond
// U+10FFFF, where llama.cpp throws, each byte is U+FFFD here.) Text that is shown passes the strict
// Utf8Stream in detokenizer.cpp instead, and is_utf8 is strict.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::text {

enum class CharClass : u8 {
  other = 0,
  letter = 1,
  number = 2,
  space = 3,
  punctuation = 4,
  symbol = 5,
  mark = 6,
  none = 7  // of no character
};

// Some classes; none is in no set.
using ClassSet = u8;
constexpr ClassSet set_of(CharClass kind) {
  return static_cast<ClassSet>(1u << static_cast<u32>(kind));
}
constexpr bool has(ClassSet set, CharClass kind) { return (set & set_of(kind)) != 0; }
inline constexpr ClassSet kAllClasses = 0x7F;

inline constexpr u32 kReplacement = 0xFFFD;
inline constexpr u32 kSpaceMarkPoint = 0x2581;  // stands for a space where SentencePiece trained

// The class of a code point below U+110000.
CharClass class_of(u32 code_point);

struct CodePoint {
  u32 value = 0;
  u32 n_bytes = 0;  // of the text; 1 for a byte that decodes to nothing
};

// The code point that starts at `at`, which is inside `text`.
CodePoint decode_lenient(std::string_view text, u64 at);

// Whether `text` is valid UTF-8 (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

// Writes UTF-8 of a code point below U+110000 into at most 4 bytes; returns their number.
u32 encode_utf8(u32 code_point, char* out);

// The bytes of a UTF-8 character, from its first byte alone; 1 for a byte that cannot start one.
constexpr u32 utf8_bytes_by_lead(char lead) {
  const u32 high = static_cast<u8>(lead) >> 4;
  return high < 12 ? 1 : high < 14 ? 2 : high == 14 ? 3 : 4;
}

// Byte-level BPE stores the bytes of a token as printable characters (Radford et al. 2019, GPT-2):
// the bytes ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF represent themselves, the other 68 are
// U+0100 onwards in order.
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
