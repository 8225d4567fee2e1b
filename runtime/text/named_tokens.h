// Tokens that are known by their text, because files do not mark them. Some end a generation, some
// are control tokens whatever the file says, some are shown although they look like control. The
// facts come from llama.cpp (the copy in llama-cpp-python 0.3.36), whose ids and ends we must
// match. Where its choice among several names depends on a hash map's order, ours follows the
// table.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::text {

// The roles of special tokens, whose ids come from a key of the file or are found by text.
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
  Role role = Role::none;  // takes this role if no key and no earlier name did
  bool ends = false;       // ends a generation, and is a control token
  bool shown = false;      // becomes user-defined
};
std::span<const NamedToken> named_tokens();

}  // namespace tarn::text
