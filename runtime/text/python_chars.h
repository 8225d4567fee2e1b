// The facts that Python's str methods know of a code point: repr, strip, upper and lower. Templates
// are written for Python, so its answers count: Python 3.11's, Unicode 14.0.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::text {

bool is_python_printable(u32 code_point);  // str.isprintable: repr shows it as it is
bool is_python_space(u32 code_point);      // str.isspace: White_Space, and U+001C to U+001F

// Whether the U+03A3 at `at` becomes a final sigma: str.lower, by Unicode's Final_Sigma.
bool is_final_sigma(std::string_view text, u64 at);

// The code points that a code point becomes. n = 0: it depends on its neighbours (a final sigma),
// or nothing is known of it.
struct Cased {
  u32 n = 0;
  std::array<u32, 3> code_points{};
};
Cased python_upper(u32 code_point);
Cased python_lower(u32 code_point);
// The first letter of str.capitalize: known where it is the upper case.
Cased python_title(u32 code_point);

}  // namespace tarn::text
