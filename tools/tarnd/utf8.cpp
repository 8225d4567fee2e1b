#include "tools/tarnd/utf8.h"

#include "platform/base/types.h"

namespace tarn::daemon {
namespace {

// The length of the character that `bytes` begin with; 0: there is none (Unicode 15, table 3-7).
size_t character_bytes(std::string_view bytes) {
  const auto at = [&](size_t i) { return i < bytes.size() ? static_cast<u8>(bytes[i]) : u8{0}; };
  const auto follows = [&](size_t i) { return (at(i) & 0xc0) == 0x80; };
  const u8 first = at(0), second = at(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if ((first & 0xf0) == 0xe0) {
    const bool is_long = first == 0xe0 && second < 0xa0, is_half = first == 0xed && second > 0x9f;
    return follows(1) && follows(2) && !is_long && !is_half ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool is_long = first == 0xf0 && second < 0x90, is_far = first == 0xf4 && second > 0x8f;
    return follows(1) && follows(2) && follows(3) && !is_long && !is_far ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t n = character_bytes(bytes);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

std::string as_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t n = character_bytes(bytes);
    out += n == 0 ? std::string_view("\xef\xbf\xbd") : bytes.substr(0, n);
    bytes.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

}  // namespace tarn::daemon
