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

// Takes the next character, or one byte where there is none.
struct Next {
  std::string_view bytes;
  bool is_whole = false, is_shown = false;
};
Next take_next(std::string_view& text) {
  const std::string_view character = text.substr(0, text::utf8_bytes_by_lead(text[0]));
  const bool is_whole = text::is_utf8(character);
  const std::string_view bytes = is_whole ? character : text.substr(0, 1);
  text.remove_prefix(bytes.size());
  return {bytes, is_whole, is_whole && !is_control(bytes)};
}

// "\x1b"
struct Code {
  explicit Code(char c) {
    std::snprintf(text, sizeof text, "\\x%02x", static_cast<unsigned char>(c));
  }
  char text[8];
};

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Next next = take_next(text);
    if (next.bytes == "\\") {
      out += "\\\\";
    } else if (next.is_shown) {
      out += next.bytes;
    } else {
      for (const char c : next.bytes) out += Code(c).text;
    }
  }
  return out;
}

void print_escaped(std::string_view text, std::FILE* out) {
  while (!text.empty()) {
    const Next next = take_next(text);
    if (next.is_shown || next.bytes == "\n" || next.bytes == "\t") {
      std::fwrite(next.bytes.data(), 1, next.bytes.size(), out);
    } else {
      for (const char c : next.bytes) std::fputs(Code(c).text, out);
    }
  }
}

std::string as_utf8(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Next next = take_next(bytes);
    out += next.is_whole ? next.bytes : "\xef\xbf\xbd";
  }
  return out;
}

}  // namespace tarn::tools
