#include "tools/support/json.h"

#include <cstdio>

namespace tarn::tools {

void print_json(const Json& json) {
  std::fwrite(json.str().data(), 1, json.str().size(), stdout);
  std::fputc('\n', stdout);
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto at = [&](size_t idx) { return static_cast<u8>(text[idx]); };
    const u8 first = at(i);
    const size_t n = first < 0x80   ? 1
                     : first < 0xC2 ? 0
                     : first < 0xE0 ? 2
                     : first < 0xF0 ? 3
                     : first < 0xF5 ? 4
                                    : 0;
    if (n == 0 || text.size() - i < n) return false;
    u32 code = n == 1 ? first : first & (0x7Fu >> n);
    for (size_t j = 1; j < n; ++j) {
      if ((at(i + j) & 0xC0) != 0x80) return false;
      code = (code << 6) | (at(i + j) & 0x3Fu);
    }
    const u32 least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < least[n] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return false;
    i += n;
  }
  return true;
}

}  // namespace tarn::tools
