// Names of records: 128 bits that chain the hash of a group's tokens to the key of the group
// before. So equal prefixes, and nothing else, have equal keys. XXH3-128 with the store's own
// secret (ROBUSTNESS K8): without the secret nobody can make two texts collide. A hit compares the
// token ids all the same.
//
//   root key    of (model, layout, dtype, rope, tenant, numerics_id, prefill policy): its bytes
//               must include everything that makes KV of equal tokens differ
//   chain key   of (key before, token ids); the record of each cache layer has its layer_key()
//   private     of KV that does not depend on its tokens alone: a unique key
//   part        of an owner with several records. They have the second half of their owner's key,
//               so that all of them can be found
//   named       of (tenant, name): the key of a manifest, for any model
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

Key root_key(const Secret& secret, std::span<const std::byte> identity);
Key chain_key(const Secret& secret, const Key& before, std::span<const u32> token_ids);
// The key of one cache layer's group, from the chain over the tokens.
Key layer_key(const Secret& secret, const Key& chain, u32 cache_layer);
// The key of unique words, in place of a chain over tokens.
Key private_key(const Secret& secret, const std::array<u64, 4>& words);
Key part_key(const Secret& secret, const Key& owner, const std::array<u64, 3>& words);
inline bool is_part_of(const Key& key, const Key& owner) { return key.high == owner.high; }
Key named_key(const Secret& secret, const Key& tenant, std::string_view name);

}  // namespace tarn::store
