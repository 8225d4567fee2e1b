// Makes untrusted text safe for a terminal: control characters, and bytes that are not UTF-8,
// become "\x1b", a backslash becomes "\\".
#pragma once

#include <string>
#include <string_view>

namespace tarn::tools {

std::string escaped(std::string_view text);

}  // namespace tarn::tools
