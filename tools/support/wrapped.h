// Wraps text to a number of columns, for --help. ASCII: a byte is a column.
#pragma once

#include <string>
#include <string_view>

namespace tarn::tools {

// Breaks between words, and after a comma in a word longer than a line, so only a longer piece
// exceeds `width`. A line that fits stays as it is. The first line begins in `column`, the others
// are indented to `indent`.
struct WrapHow {
  size_t column = 0, indent = 0, width = 80;
};
std::string wrapped(std::string_view line, const WrapHow& how);
// Wraps every line of a text, keeping its indentation.
std::string wrapped_lines(std::string_view text, size_t width);
// A name and its description, which begins in column `kHelpColumn`; with a line break.
inline constexpr size_t kHelpColumn = 30;
std::string wrapped_entry(std::string_view name, std::string_view about, size_t width);

}  // namespace tarn::tools
