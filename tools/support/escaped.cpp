#include "tools/support/escaped.h"

#include <cstdio>

#include "runtime/text/unicode.h"

namespace tarn::tools {
namespace {

// U+0000 to U+001F, U+007F, and U+0080 to U+009F, which some terminals also interpret.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, text::utf8_bytes_by_lead(text[0]));
    const bool is_whole = text::is_utf8(character);
    const std::string_view next = is_whole ? character : text.substr(0, 1);
    text.remove_prefix(next.size());
    if (next == "\\") {
      out += "\\\\";
    } else if (is_whole && !is_control(next)) {
      out += next;
    } else {
      for (const char c : next) {
        char code[8];
        std::snprintf(code, sizeof code, "\\x%02x", static_cast<unsigned char>(c));
        out += code;
      }
    }
  }
  return out;
}

}  // namespace tarn::tools
