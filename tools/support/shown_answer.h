// Text that a model or a file wrote, on standard output: in a pipe byte for byte, on a terminal by
// print_escaped(), because that would obey escape sequences, and with an end of its last line.
#pragma once

#include <string_view>

namespace tarn::tools {

// Whole characters alone; flushes. Throws Failure where it cannot be written.
void print_answer(std::string_view piece);
// Ends the line behind pieces of `text`, unless it is empty or ends one. `everywhere`: in a pipe,
// too.
void end_line(std::string_view text, bool everywhere = false);
// Returns what separates a line on standard error from an answer: "\n" where that may lack one.
const char* behind_answer();

}  // namespace tarn::tools
