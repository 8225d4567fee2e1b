// runtime/text/named_tokens.h
//
// Tokens that custom knows by their text, because files do not mark them: which end a generation,
// which are control tokens whatever the file says, which are shown though they look like control.
// Facts of llama.cpp (the copy in llama-cpp-python 0.3.36), as its ids and ends are the
// measure; where its choice among several names depends on a hash map's order, ours is the table's.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::text {

// Places for special ids: from a key of the file, or found by text.
enum class Role : u8 {
  none,
  bos,
  eos,
  unknown,
  eot,
  eom,
  fim_prefix,
  fim_suffix,
  fim_middle,
  fim_pad,
  fim_repo,
  fim_separator,
  count,
};
inline constexpr u64 kRoles = static_cast<u64>(Role::count);

struct RoleKey {
  const char* key;
  Role role;
};
std::span<const RoleKey> role_keys();

struct NamedToken {
  std::string_view text;
  Role role = Role::none;  // fills this place if no key did and no earlier name
  bool ends = false;       // and is a control token
  bool shown = false;      // becomes user-defined
};
std::span<const NamedToken> named_tokens();

}  // namespace tarn::text
