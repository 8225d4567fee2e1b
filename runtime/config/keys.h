// Shared by the validator and the TOML reader: the errors about keys and the list of sections. The
// reader appends line and column to the figures that are set here (at most two).
#pragma once

#include "runtime/config/config.h"
#include "runtime/config/fixed_text.h"

namespace tarn {

Error range_error(const char* key, u64 min, u64 max);
Error choice_error(const char* key, ChoiceNames names);
// Whether a text has the same bytes in TOML, on every file system and in every log. The question
// mark is excluded: the reader replaces characters beyond ASCII by it.
bool is_plain_text(std::span<const char> text);
Error text_error(const char* key, u64 bytes_max);
Error unknown_key_error(std::string_view name);
// Whether any key begins with "section.".
bool is_section(std::string_view section);

using DetailText = FixedText<sizeof(Detail)>;

}  // namespace tarn
