// The mark that `tarn verify --record` writes: of a model, and of all settings that decide what it
// loses, as text. Settings of another mark are not verified.
#pragma once

#include <array>

namespace tarn {

using VerifyMark = std::array<char, 40>;

}  // namespace tarn
