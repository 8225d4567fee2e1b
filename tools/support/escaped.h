// tools/support/escaped.h
//
// A text of somebody else's for a terminal: control characters, and bytes that are no UTF-8, as
// "\x1b", so that it moves no cursor and looks like what it is; a backslash as "\\".
#pragma once

#include <string>
#include <string_view>

namespace tarn::tools {

std::string escaped(std::string_view text);

}  // namespace tarn::tools
