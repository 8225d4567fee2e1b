// Goal    what fits into memory is never written; of a cycle that does not fit, no more is read
//         than must be, and it is read before attention comes to it; the errors name their remedy.
// Method  one sequence over a store on a simulated disk, decode-like steps over all of its groups
//         with a given time of compute between pin sets; reads, writes and waits are counted.
#include "runtime/kv/mover.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/mover_world.h"
#include "tests/support/kv_invariants.h"

namespace tarn::test::mover_test {
namespace {

TEST_CASE("KV that fits into memory is neither written nor read") {
  MoverWorld world(kLayers * kGroups + 8);
  for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
  for (u32 i = 0; i < 3; ++i) world.attend(1000);
  CHECK(world.mover.stats().bytes_spilled == 0);
  CHECK(world.mover.stats().bytes_loaded == 0);
  CHECK(world.mover.stats().n_waited == 0);
}

TEST_CASE("a cycle that does not fit reads what cannot stay, and little more") {
  for (const u32 n_frames : {32u, 64u, 96u, 120u}) {
    CAPTURE(n_frames);
    MoverWorld world(n_frames);
    for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
    for (u32 i = 0; i < 3; ++i) world.attend(2'000'000);
    const kv::MoverStats before = world.mover.stats();
    constexpr u32 kCycles = 10;
    for (u32 i = 0; i < kCycles; ++i) world.attend(2'000'000);
    const kv::MoverStats& after = world.mover.stats();
    // The landing place (two pin sets) and reads that worked ahead into the next cycle are the
    // rest.
    const u64 n_missing = kLayers * kGroups - n_frames;
    const u64 n_loads = after.n_loads - before.n_loads;
    CHECK(n_loads >= kCycles * n_missing);
    CHECK(n_loads <= kCycles * (n_missing + 16));
    // A pin set of 2 ms hides the reads of the next one.
    CHECK(after.n_waited - before.n_waited <= kCycles * 4);
    CHECK(after.bytes_spilled - before.bytes_spilled == 0);
  }
}

TEST_CASE("what may not be written stays in memory, and the error says what to raise") {
  struct Case {
    store::StoreLimits limits;
    const char* remedy;
  };
  const Case cases[] = {
      {{.write_bytes_per_day = 20 * kRecordBytes}, "store.daily_write_bytes"},
      {{.file_bytes = store::kFramesBegin + 20 * kRecordBytes}, "store.quota_bytes"},
  };
  for (const Case& c : cases) {
    MoverWorld world(48, c.limits);
    Result<void> appended{};
    u32 n = 0;
    for (; n < kGroups && appended; ++n) appended = world.append(4);
    REQUIRE_FALSE(appended.has_value());
    CHECK(n > 48 / kLayers);
    CHECK(std::string(appended.error().hint).find(c.remedy) != std::string::npos);
    world.attend(0);  // what is there is there
    // Once a session ends there is room again.
    world.sequence.clear();
    CHECK(world.append(4).has_value());
  }
}

TEST_CASE("a group whose record gave way before its owner heard of it stays in memory") {
  constexpr u32 kSaved = 6;
  MoverWorld world(64, {.file_bytes = store::kFramesBegin + kSaved * kRecordBytes});
  for (u32 i = 0; i < kGroups / 4; ++i) REQUIRE(world.append(4).has_value());
  const auto save = [&](u32 page) {
    return world.mover.save(world.sequence.group(0, page).idx) == kv::Saved::later;
  };
  for (u32 page = 0; page < kSaved / 2; ++page) REQUIRE(save(page));
  world.publish(kSaved / 2);
  for (u32 page = kSaved / 2; page < kSaved; ++page) {
    const u32 group_idx = world.sequence.group(1, page).idx;
    REQUIRE(world.mover.save(group_idx) == kv::Saved::later);
  }
  const u32 last = world.sequence.group(2, 0).idx;
  REQUIRE(world.mover.save(last) == kv::Saved::later);  // in the place of the first
  REQUIRE(world.bench.store.index().n_evicted() == 1);
  while (!world.mover.idle()) world.mover.pump(1'000'000);
  CHECK(world.mover.stats().n_spill_failures == 1);
  CHECK(world.residency.where(last) == kv::Where::both);
  CHECK(world.residency.stats().n(kv::Where::both) == kSaved);
  check_invariants(world.residency);
}

TEST_CASE("a lost group is an error for its sequence, once it is needed") {
  MoverWorld world(32);
  for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
  world.attend(0);
  world.disk.script.ppm[static_cast<u32>(SimFault::flipped_read)] = 1'000'000;
  const kv::Visit visit{&world.sequence, kGroups};
  world.plan(visit);
  Result<u32> n = 0u;
  for (u32 begin = 0; begin < kGroups && n; begin += n ? *n : 0) {
    n = world.mover.pin(world.sequence, 1, begin, kGroups);
    if (n) world.mover.unpin(world.sequence, 1, begin, begin + *n);
  }
  REQUIRE_FALSE(n.has_value());
  CHECK(n.error().status == Status::io_failed);
  CHECK(std::string(n.error().hint).find("generate again") != std::string::npos);
  world.disk.script.ppm = {};
}

// All places of the store for requests are other people's.
void crowd_out(MoverWorld& world, u64 first_id) {
  for (u64 i = 0;; ++i) {
    const TestRecord record = record_of(first_id + i, {.payload_bytes = 4000, .n_tokens = 4});
    const store::Begun begun = world.bench.begin_put(record, kv::kMovesMax + 2 * i);
    if (begun == store::Begun::busy) break;
    REQUIRE(begun == store::Begun::begun);
  }
  REQUIRE(world.mover.idle());
}

u32 group_on_disk(const MoverWorld& world, u32 cache_layer) {
  for (u32 i = 0; i < kGroups; ++i) {
    const u32 group_idx = world.sequence.group(cache_layer, i).idx;
    if (world.residency.where(group_idx) == kv::Where::disk) return i;
  }
  FAIL("all groups are in memory");
  return 0;
}

TEST_CASE("where others have all of the store's requests, the mover waits for one") {
  for (const u32 ops_max : {1u, 3u}) {
    CAPTURE(ops_max);
    MoverWorld world(32, {.ops_max = ops_max});
    for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
    world.mover.settle();

    const u32 pinned = group_on_disk(world, 1);
    crowd_out(world, 1000);
    const Result<u32> n = world.mover.pin(world.sequence, 1, pinned, pinned + 1);
    REQUIRE(n.has_value());
    world.mover.unpin(world.sequence, 1, pinned, pinned + *n);
    world.mover.settle();

    const u32 gathered = group_on_disk(world, 2);
    crowd_out(world, 2000);
    const std::array<kv::WantedSlot, 1> wanted{{{.slot = gathered * kShape.page_tokens}}};
    const std::array<std::span<const kv::WantedSlot>, 1> of_head{wanted};
    std::vector<u8> slot(2 * kShape.vector_bytes);
    const std::array<u8*, 1> out{slot.data()};
    REQUIRE(world.mover
                .gather({.sequence = &world.sequence,
                         .cache_layer = 2,
                         .offloaded_end = kGroups,
                         .wanted = of_head,
                         .out = out})
                .has_value());
    CHECK(world.mover.stats().n_gather_reads == 1);
    CHECK(world.mover.stats().n_lost == 0);
  }
}

TEST_CASE("where others have all of the store's requests, room is made all the same") {
  constexpr u32 kFrames = 32;
  MoverWorld world(kFrames, {.ops_max = 2});
  // As much as fits before anything must be written.
  while (world.residency.n_free_frames() > 3 * kLayers) REQUIRE(world.append(4).has_value());
  world.mover.settle();
  crowd_out(world, 1000);
  CHECK(world.mover.make_room(kFrames - 4).has_value());
  CHECK(world.mover.stats().n_spills > 0);
}

TEST_CASE("where the store's requests wait for what may never come, a pin ends with an error") {
  MoverWorld world(32, {.ops_max = 1});
  for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
  world.mover.settle();
  REQUIRE(world.bench.put(record_of(1000, {.payload_bytes = 4000, .n_tokens = 4})));
  const auto held = world.bench.store.find(key_of(1000));
  REQUIRE(held.has_value());
  world.bench.store.pin(*held);
  // An erasure waits until no hold of the record is left.
  REQUIRE(world.bench.store.erase(*held, kv::kMovesMax) == store::Begun::begun);
  const u32 group = group_on_disk(world, 1);
  const Result<u32> n = world.mover.pin(world.sequence, 1, group, group + 1);
  REQUIRE_FALSE(n.has_value());
  CHECK(n.error().status == Status::would_block);
  CHECK(std::string(n.error().hint).find("store.requests_max") != std::string::npos);
  world.bench.store.unpin(*held);
  REQUIRE(world.mover.pin(world.sequence, 1, group, group + 1).has_value());
  world.mover.unpin(world.sequence, 1, group, group + 1);
}

}  // namespace
}  // namespace tarn::test::mover_test
