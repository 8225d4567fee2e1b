// Bytes that may not be UTF-8, for JSON.
#pragma once

#include <string>
#include <string_view>

namespace tarn::daemon {

bool is_utf8(std::string_view bytes);
// With U+FFFD for each byte that begins no character.
std::string as_utf8(std::string_view bytes);

}  // namespace tarn::daemon
