// Text as Python sees it: code points. The bytes are valid UTF-8.
#pragma once

#include <cstring>
#include <string_view>

#include "runtime/text/python_chars.h"
#include "runtime/text/unicode.h"

namespace tarn::chat {

using text::is_python_space;

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_alpha(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

constexpr bool is_continuation(char byte) { return (static_cast<u8>(byte) & 0xC0) == 0x80; }

// The code point that begins at `at`.
inline text::CodePoint code_point(std::string_view text, u64 at) {
  return text::decode_lenient(text, at);
}

// Where the code point before `end` begins. end > 0.
inline u64 code_point_before(std::string_view text, u64 end) {
  do --end;
  while (end > 0 && is_continuation(text[end]));
  return end;
}

// How many code points there are.
inline u64 count_code_points(std::string_view text) {
  u64 n = 0;
  for (const char byte : text) n += is_continuation(byte) ? u64{0} : u64{1};
  return n;
}

// As text.find(what, from), in linear time whatever the texts: memmem is Crochemore and Perrin's
// two-way search in glibc and musl.
inline u64 find_text(std::string_view text, std::string_view what, u64 from = 0) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<u64>(static_cast<const char*>(found) - text.data());
}

// The first byte after the spaces from `at` on.
inline u64 skip_spaces(std::string_view text, u64 at) {
  while (at < text.size()) {
    const text::CodePoint c = code_point(text, at);
    if (!is_python_space(c.value)) break;
    at += c.n_bytes;
  }
  return at;
}

// `text` without the spaces at its end.
inline std::string_view without_spaces_behind(std::string_view text) {
  while (!text.empty()) {
    const u64 at = code_point_before(text, text.size());
    if (!is_python_space(code_point(text, at).value)) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace tarn::chat
