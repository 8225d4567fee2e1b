// Cuts plain text that is too long to be encoded at once. Merges make only tokens of a vocabulary.
// So nothing joins over a place that no token lies over, whatever the text is elsewhere: both sides
// keep their ids.
//
// Prepared text is what merges see: with U+2581 for spaces (SPM), well-formed (BPE).
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "runtime/text/tables.h"

namespace tarn::text {

// Bounds the time for a hostile vocabulary. A token of 512 bytes needs half of them.
inline constexpr u64 kCutLookupsMax = u64{1} << 18;

// Whether no token lies over `at`: is_token says of a stretch whether it may be one. Takes the
// look-ups from n_left, and says no when there are too few.
template <class IsToken>
bool may_cut(std::string_view text, u64 at, u64 token_bytes_max, const IsToken& is_token,
             u64* n_left) {
  for (u64 before = 1; before <= at && before < token_bytes_max; ++before) {
    const u64 after_max = std::min(token_bytes_max - before, text.size() - at);
    for (u64 after = 1; after <= after_max; ++after) {
      if (*n_left == 0 || is_token(text.substr(at - before, before + after))) return false;
      --*n_left;
    }
  }
  return true;
}

// The bytes of the first piece of a text that does not fit in `prepared`; 0 if it cannot be cut in
// its second half. each_byte(visit) calls visit(byte, begin) for each prepared byte, until visit
// returns false. `begin` is the place of the byte in the text, or kInside where no piece may begin.
inline constexpr u64 kInside = ~u64{0};
template <class EachByte, class IsToken>
u64 first_piece(std::span<char> prepared, u64 token_bytes_max, const EachByte& each_byte,
                const IsToken& is_token) {
  u64 n = 0;
  each_byte([&](char byte, u64) {
    if (n == prepared.size()) return false;
    prepared[n++] = byte;
    return true;
  });
  u64 n_lookups_left = kCutLookupsMax;
  u64 at = 0;
  u64 found = 0;
  each_byte([&](char, u64 begin) {
    if (at + token_bytes_max > n) return false;  // a token may end behind the prepared bytes
    if (at >= n / 2 && begin != kInside &&
        may_cut({prepared.data(), n}, at, token_bytes_max, is_token, &n_lookups_left)) {
      found = begin;
      return false;
    }
    ++at;
    return true;
  });
  return found;
}

}  // namespace tarn::text
