// runtime/store/key.h
//
// Names of records: 128 bits that chain the hash of a group's tokens to the key of the group before
// it, so that equal prefixes have equal keys and nothing else has. XXH3-128 with a secret of the
// store's own (ROBUSTNESS K8): who does not know the secret cannot make two texts collide, and a
// hit compares the token ids all the same.
//
//   root key    of (model, layout, dtype, rope, tenant, numerics_id, prefill policy): whatever
//               makes KV of equal tokens differ belongs into its bytes
//   chain key   of (key before, token ids); the record of each cache layer under layer_key()
//   private    of KV that does not follow from its tokens alone: nobody else has its key
//   part        of what somebody owns that has several records. They have the second half of their
//               owner's key, so that all of them can be found that ever were
//   named       of (tenant, name): where a manifest lies, whatever model it is of
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

inline constexpr u64 kSecretBytes = 192;  // XXH3's own length; 136 is its least
using Secret = std::array<u8, kSecretBytes>;

// 192 well mixed bytes from 32 random ones.
Secret make_secret(std::span<const u8, 32> entropy);

Key root_key(const Secret& secret, std::span<const std::byte> identity);
Key chain_key(const Secret& secret, const Key& before, std::span<const u32> token_ids);
// The key of one cache layer's group, from the chain over the tokens.
Key layer_key(const Secret& secret, const Key& chain, u32 cache_layer);
// Of words that nobody else has, in place of a chain over tokens.
Key private_key(const Secret& secret, const std::array<u64, 4>& words);
Key part_key(const Secret& secret, const Key& owner, const std::array<u64, 3>& words);
inline bool is_part_of(const Key& key, const Key& owner) { return key.high == owner.high; }
Key named_key(const Secret& secret, const Key& tenant, std::string_view name);

}  // namespace tarn::store
