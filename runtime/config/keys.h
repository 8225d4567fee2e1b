// runtime/config/keys.h
//
// What the validator and the TOML reader share: the errors about keys, worded once, and which
// sections there are. The reader adds line and column behind the figures that are set here (at most
// two).
#pragma once

#include "runtime/config/config.h"
#include "runtime/config/fixed_text.h"

namespace tarn {

Error range_error(const char* key, u64 min, u64 max);
Error choice_error(const char* key, ChoiceNames names);
// Texts must come out of a TOML text as they went in, on every file system and in every log. The
// question mark is what the reader makes of characters beyond ASCII.
bool is_plain_text(std::span<const char> text);
Error text_error(const char* key, u64 bytes_max);
Error unknown_key_error(std::string_view name);
// Whether any key begins with "section.".
bool is_section(std::string_view section);

using DetailText = FixedText<sizeof(Detail)>;

}  // namespace tarn
