// Checks a configuration text before toml++ reads it (toml_reader.cpp, and tarnd's part).
#pragma once

#include <span>
#include <string_view>

#include "platform/base/result.h"

namespace tarn {

// Copies the text into `out`, which has room for it, with '?' for every character beyond ASCII and
// without a byte order mark. Only comments may have such characters, and toml++ 3.3 reaches an
// unreachable branch on some ("\xef\xbb\xb7"). Each becomes one, so columns stay.
//   invalid_config  with the line: a zero byte, a letter beyond ASCII in a string, or a key with
//                   more dots than any known key
Result<std::string_view> checked_toml(std::string_view text, std::span<char> out);

}  // namespace tarn
