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
enum class Domain : u32 {
  root = 1,
  chain = 2,
  layer = 3,
  name = 4,
  private_page = 5,
  part = 6,
  tenant = 7
};

template <class... Words>
Key hash_words(const Secret& secret, Domain domain, Words... words) {
  const u64 all[] = {static_cast<u64>(domain), words...};
  return hash(secret, all, sizeof all);
}

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
  const Key bytes = hash(secret, identity.data(), identity.size());
  return hash_words(secret, Domain::root, identity.size(), bytes.low, bytes.high);
}

Key chain_key(const Secret& secret, const Key& before, std::span<const u32> token_ids) {
  const Key tokens = hash(secret, token_ids.data(), token_ids.size_bytes());
  return hash_words(secret, Domain::chain, before.low, before.high, token_ids.size(), tokens.low,
                    tokens.high);
}

Key layer_key(const Secret& secret, const Key& chain, u32 cache_layer) {
  return hash_words(secret, Domain::layer, chain.low, chain.high, u64{cache_layer});
}

Key private_key(const Secret& secret, const std::array<u64, 4>& words) {
  return hash_words(secret, Domain::private_page, words[0], words[1], words[2], words[3]);
}

Key part_key(const Secret& secret, const Key& owner, const std::array<u64, 3>& words) {
  const Key all =
      hash_words(secret, Domain::part, owner.low, owner.high, words[0], words[1], words[2]);
  return {.low = all.low, .high = owner.high};
}

Key tenant_key(const Secret& secret, std::string_view tenant) {
  if (tenant.empty()) return {};
  const Key text = hash(secret, tenant.data(), tenant.size());
  return hash_words(secret, Domain::tenant, tenant.size(), text.low, text.high);
}

Key named_key(const Secret& secret, const Key& tenant, std::string_view name) {
  const Key text = hash(secret, name.data(), name.size());
  return hash_words(secret, Domain::name, tenant.low, tenant.high, name.size(), text.low,
                    text.high);
}

}  // namespace tarn::store
