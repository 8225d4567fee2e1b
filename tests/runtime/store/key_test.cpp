// Goal    keys are functions of the secret and of everything that is put into them, and stay what
//         they are from build to build and machine to machine.
// Method  fixed keys; every input changed alone; a chain is its parts in their order.
#include "runtime/store/key.h"

#include <doctest/doctest.h>

#include <set>
#include <utility>
#include <vector>

namespace tarn::store::key_test {
namespace {

Secret secret_of(u8 first) {
  std::array<u8, 32> entropy{};
  for (u32 i = 0; i < 32; ++i) entropy[i] = static_cast<u8>(first + i);
  return make_secret(entropy);
}

TEST_CASE("keys are what they were") {
  const Secret secret = secret_of(1);
  const std::byte identity[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  const u32 tokens[] = {1, 2, 3, 70000};
  const Key root = root_key(secret, identity);
  const Key chain = chain_key(secret, root, tokens);
  const Key layer = layer_key(secret, chain, 3);
  CHECK(root.low == 0x8C143C7BF080DE20u);
  CHECK(chain.high == 0xD4D50A45AAC4041Fu);
  CHECK(layer.low == 0x215AC207B40C2A72u);
}

TEST_CASE("each input counts, and so do their borders") {
  std::set<std::pair<u64, u64>> seen;
  u64 n = 0;
  const auto note = [&](const Key& key) {
    seen.insert({key.low, key.high});
    ++n;
  };
  for (const u8 first : {u8{1}, u8{2}}) {
    const Secret secret = secret_of(first);
    for (const u64 length : {0u, 1u, 2u, 300u}) {
      for (const u8 value : {u8{0}, u8{1}}) {
        if (length == 0 && value == 1) continue;
        const std::vector<std::byte> identity(length, static_cast<std::byte>(value));
        note(root_key(secret, identity));
      }
    }
    const Key one = root_key(secret, {}), two{one.low, one.high + 1};
    const std::vector<u32> tokens(600, 5);
    for (const Key& before : {one, two}) {
      for (const u64 length : {0u, 1u, 64u, 65u, 599u}) {
        note(chain_key(secret, before, std::span(tokens).first(length)));
      }
      note(layer_key(secret, before, 0));
      note(layer_key(secret, before, 1));
    }
    const u32 ab[] = {7, 8}, ba[] = {8, 7};
    note(chain_key(secret, one, ab));
    note(chain_key(secret, one, ba));
    note(chain_key(secret, chain_key(secret, one, std::span(ab).first(1)), std::span(ab).last(1)));
  }
  CHECK(seen.size() == n);
}

TEST_CASE("parts are known by their owner, and are not each other") {
  const Secret secret = secret_of(1);
  const Key one = private_key(secret, {1, 2, 3, 4}), other = private_key(secret, {1, 2, 3, 5});
  std::set<u64> seen;
  u64 n = 0;
  for (const Key& owner : {one, other}) {
    for (u64 i = 0; i < 27; ++i) {
      const Key part = part_key(secret, owner, {i % 3, i / 3 % 3, i / 9});
      CHECK(is_part_of(part, owner));
      CHECK_FALSE(is_part_of(part, owner == one ? other : one));
      CHECK(part.low != part_key(secret_of(2), owner, {i % 3, i / 3 % 3, i / 9}).low);
      seen.insert(part.low);
      ++n;
    }
  }
  CHECK(seen.size() == n);
}

}  // namespace
}  // namespace tarn::store::key_test
