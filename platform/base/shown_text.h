// Which characters of a text from outside a terminal may get as they are: those of UTF-8 that
// neither control it (U+0000 to U+001F, U+007F to U+009F), nor break a line, nor change the
// direction of what stands behind them (U+2028 to U+202E, U+2066 to U+2069).
#pragma once

#include <string_view>

#include "platform/base/types.h"

namespace tarn {

// Returns the bytes of the character that `text` begins with; 0 if it begins with none (RFC 3629:
// no overlong form, no surrogate, nothing above U+10FFFF).
u32 utf8_bytes(std::string_view text);
// Whether a terminal may get this character, which utf8_bytes() measured.
bool is_shown(std::string_view character);

// Appends the whole characters of `text` that fit into out[out_bytes] behind `length`, and a
// terminator; '?' for one that is not shown, and for a byte that begins none. Returns the new
// length. `text` may lie in `out`, at or behind `length`.
u64 append_shown(char* out, u64 length, u64 out_bytes, std::string_view text);

}  // namespace tarn
