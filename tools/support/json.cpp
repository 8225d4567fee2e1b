#include "tools/support/json.h"

#include <algorithm>
#include <cstdio>

#include "platform/base/shown_text.h"
#include "runtime/text/unicode.h"

namespace tarn::tools {

void print_json_text(std::string_view json) {
  while (!json.empty()) {
    const u32 n_bytes = std::max(utf8_bytes(json), u32{1});
    const std::string_view character = json.substr(0, n_bytes);
    json.remove_prefix(n_bytes);
    const bool is_space = character == "\n" || character == "\t" || character == "\r";
    if (is_space || is_shown(character)) {
      std::fwrite(character.data(), 1, character.size(), stdout);
    } else {
      std::printf("\\u%04x", text::decode_lenient(character, 0).value);
    }
  }
}

void print_json(const Json& json) {
  print_json_text(json.str());
  std::fputc('\n', stdout);
}

}  // namespace tarn::tools
