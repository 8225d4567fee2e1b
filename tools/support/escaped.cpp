#include "tools/support/escaped.h"

#include <cstdio>

#include "platform/base/shown_text.h"

namespace tarn::tools {
namespace {

// Takes the next character, or one byte where there is none.
struct Next {
  std::string_view bytes;
  bool is_whole = false, is_shown = false;
};
Next take_next(std::string_view& text) {
  const u32 n_bytes = utf8_bytes(text);
  const bool is_whole = n_bytes > 0;
  const std::string_view bytes = text.substr(0, is_whole ? n_bytes : 1);
  text.remove_prefix(bytes.size());
  return {bytes, is_whole, is_whole && is_shown(bytes)};
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
