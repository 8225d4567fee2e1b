// Makes untrusted text safe for a terminal: control characters, and bytes that are not UTF-8,
// become "\x1b", a backslash becomes "\\".
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tarn::tools {

std::string escaped(std::string_view text);
// Prints text of several lines: like escaped(), but line breaks, tabs and backslashes stay. Whole
// characters alone. Allocates nothing.
void print_escaped(std::string_view text, std::FILE* out);

}  // namespace tarn::tools
