// The only file that includes xxHash; its code is inlined here, so the library has no symbol of it.
#include "runtime/store/key.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "platform/base/assert.h"

namespace tarn::store {
namespace {

Key hash(const Secret& secret, const void* bytes, u64 n_bytes) {
  const XXH128_hash_t value = XXH3_128bits_withSecret(bytes, n_bytes, secret.data(), secret.size());
  return {.low = value.low64, .high = value.high64};
}

// The domain is the first word, so keys of different kinds hash different words.
enum class Domain : u32 { root = 1, chain = 2, layer = 3, name = 4, private_page = 5, part = 6 };

}  // namespace

Secret make_secret(std::span<const u8, 32> entropy) {
  Secret secret{};
  u8 seeded[40];
  std::memcpy(seeded, entropy.data(), entropy.size());
  for (u64 i = 0; i < kSecretBytes / 16; ++i) {
    std::memcpy(seeded + 32, &i, sizeof i);
    const XXH128_hash_t part = XXH3_128bits(seeded, sizeof seeded);
    std::memcpy(secret.data() + i * 16, &part.low64, 8);
    std::memcpy(secret.data() + i * 16 + 8, &part.high64, 8);
  }
  return secret;
}

Key root_key(const Secret& secret, std::span<const std::byte> identity) {
  const Key of_bytes = hash(secret, identity.data(), identity.size());
  const u64 words[4] = {static_cast<u64>(Domain::root), identity.size(), of_bytes.low,
                        of_bytes.high};
  return hash(secret, words, sizeof words);
}

Key chain_key(const Secret& secret, const Key& before, std::span<const u32> token_ids) {
  const Key of_tokens = hash(secret, token_ids.data(), token_ids.size_bytes());
  const u64 words[6] = {static_cast<u64>(Domain::chain),
                        before.low,
                        before.high,
                        token_ids.size(),
                        of_tokens.low,
                        of_tokens.high};
  return hash(secret, words, sizeof words);
}

Key layer_key(const Secret& secret, const Key& chain, u32 cache_layer) {
  const u64 words[4] = {static_cast<u64>(Domain::layer), chain.low, chain.high, cache_layer};
  return hash(secret, words, sizeof words);
}

Key private_key(const Secret& secret, const std::array<u64, 4>& words) {
  const u64 all[5] = {static_cast<u64>(Domain::private_page), words[0], words[1], words[2],
                      words[3]};
  return hash(secret, all, sizeof all);
}

Key part_key(const Secret& secret, const Key& owner, const std::array<u64, 3>& words) {
  const u64 all[6] = {
      static_cast<u64>(Domain::part), owner.low, owner.high, words[0], words[1], words[2]};
  return {.low = hash(secret, all, sizeof all).low, .high = owner.high};
}

Key named_key(const Secret& secret, const Key& tenant, std::string_view name) {
  const Key of_name = hash(secret, name.data(), name.size());
  const u64 words[6] = {static_cast<u64>(Domain::name),
                        tenant.low,
                        tenant.high,
                        name.size(),
                        of_name.low,
                        of_name.high};
  return hash(secret, words, sizeof words);
}

}  // namespace tarn::store
