// runtime/config/keys.h
//
// What the validator and the TOML reader share: the errors about keys, worded once, and which
// sections there are. The reader adds line and column behind the figures that are set here (at most
// two).
#pragma once

#include "runtime/config/config.h"

namespace tarn {

Error range_error(const char* key, u64 min, u64 max);
Error choice_error(const char* key, ChoiceNames names);
Error unknown_key_error(std::string_view name);
// Whether any key begins with "section.".
bool is_section(std::string_view section);

// Joins texts into one that a Detail takes, cut at its end.
class DetailText {
 public:
  DetailText& append(std::string_view text);
  std::string_view view() const { return {text_.data(), n_}; }

 private:
  std::array<char, sizeof(Detail)> text_{};
  u64 n_ = 0;
};

}  // namespace tarn
