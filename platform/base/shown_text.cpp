#include "platform/base/shown_text.h"

#include <cstring>

namespace tarn {
namespace {

struct Decoded {
  u32 value = 0;
  u32 n_bytes = 0;
};

// For a lead byte of n_bytes: the bits of the value in it, and the least value of that length.
constexpr u32 kLeadBits[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
constexpr u32 kLeast[] = {0, 0, 0x80, 0x800, 0x10000};

Decoded decode(std::string_view text) {
  const u32 lead = static_cast<u8>(text[0]);
  const u32 n_bytes = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (n_bytes == 0 || lead >= 0xF8 || n_bytes > text.size()) return {};
  u32 value = lead & kLeadBits[n_bytes];
  for (u32 i = 1; i < n_bytes; ++i) {
    const u32 byte = static_cast<u8>(text[i]);
    if ((byte & 0xC0) != 0x80) return {};
    value = value << 6 | (byte & 0x3F);
  }
  const bool is_surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kLeast[n_bytes] || value > 0x10FFFF || is_surrogate) return {};
  return {.value = value, .n_bytes = n_bytes};
}

}  // namespace

u32 utf8_bytes(std::string_view text) { return text.empty() ? 0 : decode(text).n_bytes; }

bool is_shown(std::string_view character) {
  const u32 value = decode(character).value;
  const bool is_control = value < 0x20 || (value >= 0x7F && value < 0xA0);
  const bool is_direction = value >= 0x2028 && value <= 0x202E;
  return !is_control && !is_direction && !(value >= 0x2066 && value <= 0x2069);
}

u64 append_shown(char* out, u64 length, u64 out_bytes, std::string_view text) {
  while (!text.empty()) {
    const u32 n_bytes = utf8_bytes(text);
    const std::string_view character = text.substr(0, n_bytes);
    const bool stays = n_bytes > 0 && is_shown(character);
    const u64 n_out = stays ? n_bytes : 1;
    if (length + n_out >= out_bytes) break;
    text.remove_prefix(n_bytes > 0 ? n_bytes : 1);
    if (stays) {
      std::memmove(out + length, character.data(), n_bytes);
    } else {
      out[length] = '?';
    }
    length += n_out;
  }
  out[length] = '\0';
  return length;
}

}  // namespace tarn
