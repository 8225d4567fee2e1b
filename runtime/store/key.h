// Keys of records: 128 bits, XXH3 with the store's own secret. A chain key has the hash of a
// group's tokens and of the key before it, so equal prefixes, and nothing else, have equal keys.
// Without the secret no text can be made to collide with another. A hit compares the token ids all
// the same. FORMAT.md has the words of each key.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::store {

struct Key {
  u64 low = 0, high = 0;
  friend bool operator==(const Key&, const Key&) = default;
};

inline constexpr u64 kSecretBytes = 192;  // XXH3's own length; 136 is its minimum
using Secret = std::array<u8, kSecretBytes>;

// Makes 192 well mixed bytes from 32 random ones.
Secret make_secret(std::span<const u8, 32> entropy);

// Returns the root key of bytes that include everything that makes KV of equal tokens differ.
Key root_key(const Secret& secret, std::span<const std::byte> identity);
Key chain_key(const Secret& secret, const Key& before, std::span<const u32> token_ids);
// The key of one cache layer's group, from the chain over the tokens.
Key layer_key(const Secret& secret, const Key& chain, u32 cache_layer);
// Returns a key of unique words, in place of a chain over tokens: of KV that does not depend on its
// tokens alone.
Key private_key(const Secret& secret, const std::array<u64, 4>& words);
// Returns the key of one of an owner's records, which all have the second half of its key and so
// can be found.
Key part_key(const Secret& secret, const Key& owner, const std::array<u64, 3>& words);
inline bool is_part_of(const Key& key, const Key& owner) { return key.high == owner.high; }
// Who may share records. Zeros: of the empty name.
Key tenant_key(const Secret& secret, std::string_view tenant);
// Returns the key of a manifest, for any model.
Key named_key(const Secret& secret, const Key& tenant, std::string_view name);

}  // namespace tarn::store
