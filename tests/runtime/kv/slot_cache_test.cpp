// Goal    a cache of slots hands out the bytes that were put in, and no others, through any steps
//         and cuts; keeps what is wanted often, and what was wanted last; holds its capacity.
// Method  random steps against a map of every slot's bytes; steps with a planted core that repeats,
//         against hit rates from first principles.
#include "runtime/kv/slot_cache.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "tests/support/carved.h"
#include "tests/support/seed.h"

namespace tarn::kv::slot_cache_test {
namespace {

constexpr u32 kSlotBytes = 48;

struct World {
  explicit World(u32 capacity)
      : memory(test::carved([&](Carver& c) { cache.init(c, capacity, kSlotBytes); })) {}
  // Counts as a step.
  bool has(u32 slot) {
    WantedSlot wanted{slot, 0};
    SlotCache::Found found;
    return cache.take({&wanted, 1}, {&found, 1}) == 0;
  }
  static u8 byte_of(u64 world, u32 slot, u32 i) {
    return static_cast<u8>(slot * 31 + slot / 256 + i + world * 17);
  }
  // One step: all the bytes are right; returns how many slots were here.
  u32 step(const std::set<u32>& slots, u64 world = 0) {
    std::vector<WantedSlot> wanted;
    for (const u32 slot : slots) wanted.push_back({slot, static_cast<u32>(wanted.size())});
    std::vector<u8> out(slots.size() * kSlotBytes + 1);
    std::vector<SlotCache::Found> found(slots.size());
    const u32 n_missing = cache.take(wanted, found);
    cache.copy(std::span(found).subspan(n_missing), out.data());
    const auto missing = std::span(wanted).first(n_missing);
    for (const WantedSlot& w : missing) {
      for (u32 i = 0; i < kSlotBytes; ++i) {
        out[w.rank * kSlotBytes + i] = byte_of(world, w.slot, i);
      }
    }
    u32 rank = 0;
    bool same = true;
    for (const u32 slot : slots) {
      for (u32 i = 0; i < kSlotBytes; ++i) {
        same = same && out[rank * kSlotBytes + i] == byte_of(world, slot, i);
      }
      ++rank;
    }
    CHECK(same);
    cache.put(missing, out.data());
    return static_cast<u32>(slots.size()) - n_missing;
  }

  SlotCache cache;
  std::vector<std::byte> memory;
};

std::set<u32> some(test::Random& random, u32 n, u32 below) {
  std::set<u32> slots;
  while (slots.size() < n) slots.insert(static_cast<u32>(random.below(below)));
  return slots;
}

TEST_CASE("any steps and cuts, and every byte is the slot's") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u32 capacity : {0u, 1u, 7u, 60u, 300u}) {
    CAPTURE(capacity);
    World world(capacity);
    u64 content = 0;  // what slots behind a cut become
    for (u32 i = 0; i < 60; ++i) {
      if (random.below(10) == 0) {
        world.cache.truncate(0);
        ++content;
      }
      world.step(some(random, static_cast<u32>(random.below(120)), 400), content);
    }
    world.cache.truncate(200);
    for (u32 slot = 200; slot < 400; ++slot) CHECK_FALSE(world.has(slot));
    world.step(some(random, 100, 400), content);
  }
}

TEST_CASE("what fits is here from the second step on") {
  World world(100);
  test::Random random(1);
  const std::set<u32> slots = some(random, 100, 10'000);
  CHECK(world.step(slots) == 0);
  for (u32 i = 0; i < 5; ++i) CHECK(world.step(slots) == 100);
}

TEST_CASE("a core that repeats stays, though each step wants more than there is room for") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  World world(130);
  const std::set<u32> core = some(random, 100, 1'000'000);
  u32 n_hits = 0;
  constexpr u32 kSteps = 40;
  for (u32 i = 0; i < kSteps; ++i) {
    std::set<u32> slots = some(random, 100, 1'000'000);
    slots.insert(core.begin(), core.end());
    const u32 n = world.step(slots);
    if (i >= kSteps / 2) n_hits += n;
  }
  CHECK(n_hits >= kSteps / 2 * 98);
}

TEST_CASE("of two cores the later one takes the cells of the one before") {
  test::Random random(1);
  World world(100);
  const std::set<u32> first = some(random, 100, 1000);
  std::set<u32> second;
  for (const u32 slot : some(random, 100, 1000)) second.insert(slot + 1000);
  for (u32 i = 0; i < 20; ++i) world.step(first);
  u32 n_steps = 0;
  while (world.step(second) < 100) ++n_steps;
  CHECK(n_steps <= 3);  // nearly LRU
}

TEST_CASE("of A, A, B, C with room for two, the latest stay") {
  World world(2);
  for (const u32 slot : {10u, 10u, 20u, 30u}) world.step({slot});
  CHECK(world.has(30));
  CHECK(world.has(20));
}

TEST_CASE("of two wanted slots the one that is here is a hit, and the other one is missing") {
  World world(128);
  std::set<u32> block;
  for (u32 slot = 0; slot < 128; ++slot) block.insert(slot);
  CHECK(world.step(block) == 0);
  CHECK(world.step({5, 130}) == 1);
}

TEST_CASE("a region holds as many as it says") {
  for (const u64 bytes : {u64{0}, u64{100}, u64{4096}, u64{100'000}, u64{3'000'000}}) {
    const u32 n = SlotCache::capacity_of(bytes, kSlotBytes);
    CHECK((n == 0 || SlotCache::region_bytes(n, kSlotBytes) <= bytes));
    CHECK(SlotCache::region_bytes(n + 8, kSlotBytes) > bytes);
  }
}

}  // namespace
}  // namespace tarn::kv::slot_cache_test
