// Makes untrusted text safe for a terminal: characters that are not shown (shown_text.h), and bytes
// that are not UTF-8, become "\x1b", a backslash becomes "\\". And for JSON, by as_utf8().
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace tarn::tools {

std::string escaped(std::string_view text);
// Prints text of several lines: like escaped(), but line breaks, tabs and backslashes stay. Whole
// characters alone. Allocates nothing.
void print_escaped(std::string_view text, std::FILE* out);

// With U+FFFD for each byte that begins no character.
std::string as_utf8(std::string_view bytes);

}  // namespace tarn::tools
