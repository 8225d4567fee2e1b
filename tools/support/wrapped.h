// tools/support/wrapped.h
//
// Text in lines of so many columns, as --help prints it. ASCII: a byte is a column.
#pragma once

#include <string>
#include <string_view>

namespace tarn::tools {

// Broken between words, and behind a comma where a word is longer than a line: no line is longer
// than `width` unless one of those pieces is. A line that fits stays as it is. The first line
// begins in `column`, the others are indented to `indent`.
struct WrapHow {
  size_t column = 0, indent = 0, width = 80;
};
std::string wrapped(std::string_view line, const WrapHow& how);
// Every line of a text, indented as it is.
std::string wrapped_lines(std::string_view text, size_t width);
// A name and what is said about it, which begins in column `kHelpColumn`; with a line break.
inline constexpr size_t kHelpColumn = 30;
std::string wrapped_entry(std::string_view name, std::string_view about, size_t width);

}  // namespace tarn::tools
