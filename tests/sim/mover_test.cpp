// Goal    what fits into memory is never written; of a cycle that does not fit, no more is read
//         than must be, and it is read before attention comes to it; the errors name their remedy.
// Method  one sequence over a store on a simulated disk, decode-like steps over all of its groups
//         with a given time of compute between windows; reads, writes and waits are counted.
#include "runtime/kv/mover.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/support/store_harness.h"

namespace tarn::test {
namespace {

constexpr u32 kLayers = 4;
constexpr u32 kGroups = 32;  // a layer
constexpr kv::GroupShape kShape{.n_kv_heads = 1, .page_tokens = 4, .vector_bytes = 512};
constexpr u64 kRecordBytes = 2 * kSectorBytes;

struct World {
  explicit World(u32 n_frames, store::StoreLimits limits = {})
      : region(n_frames * kShape.group_bytes()),
        disk(1),
        io(disk, clock, 32),
        bench(io, clock, "store", with_sizes(limits)) {
    bench.open();
    constexpr u32 kGroupsMax = kLayers * (kGroups + 1);
    frame_tables.resize(kv::Residency::bookkeeping_bytes(kGroupsMax, n_frames) / 8 + 1);
    pool_tables.resize(kv::GroupPool::bookkeeping_bytes(kGroupsMax) / 8 + 1);
    mover_tables.resize(kv::Mover::bookkeeping_bytes(kShape, 1, kLayers) / 8 + 1);
    sequence_tables.resize(
        kv::Sequence::bookkeeping_bytes(kLayers, (kGroups + 1) * 4, kShape.page_tokens) / 8 + 1);
    residency.init(kShape, kGroupsMax, n_frames, region.span(),
                   std::as_writable_bytes(std::span(frame_tables)), &bench.store);
    pool.init(kShape, kGroupsMax, &residency, std::as_writable_bytes(std::span(pool_tables)));
    mover.init({.residency = &residency,
                .store = &bench.store,
                .clock = &clock,
                .n_cache_layers = kLayers,
                .window_groups = 4,
                .loads_max = 8,
                .spills_max = 8,
                .nonce = 1},
               1, std::as_writable_bytes(std::span(mover_tables)));
    sequence.init(&pool, kLayers, (kGroups + 1) * 4,
                  std::as_writable_bytes(std::span(sequence_tables)));
  }
  ~World() {
    sequence.clear();
    mover.stop();
    while (!mover.idle() || !bench.store.idle()) mover.pump(1'000'000'000);
    bench.close();
  }
  static store::StoreLimits with_sizes(store::StoreLimits limits) {
    if (limits.file_bytes == 0) limits.file_bytes = store::kFramesBegin + 256 * kRecordBytes;
    limits.frame_bytes = kRecordBytes;
    limits.ops_max = 32;
    return limits;
  }

  Result<void> append(u32 n) {
    REQUIRE(sequence.reserve(n));
    const Result<void> writable = mover.make_writable(sequence, n);
    if (writable) {
      sequence.commit(n);
    } else {
      sequence.abandon();
    }
    return writable;
  }
  void plan(const kv::Visit& visit) {
    mover.begin_plan();
    mover.add_visit(visit);
    mover.end_plan();
  }
  // Attention of one step, `compute_ns` a window.
  void attend(u64 compute_ns) {
    const kv::Visit visit{&sequence, sequence.n_groups()};
    plan(visit);
    for (u32 layer = 0; layer < kLayers; ++layer) {
      for (u32 begin = 0; begin < visit.n_groups;) {
        const Result<u32> n = mover.pin(sequence, layer, begin, visit.n_groups);
        REQUIRE(n.has_value());
        clock.advance_ns(compute_ns);
        mover.unpin(sequence, layer, begin, begin + *n);
        begin += *n;
      }
    }
    residency.check_invariants();
  }

  SectorBuffer region;
  SimDisk disk;
  VirtualClock clock;
  SimIo io;
  StoreHarness bench;
  std::vector<u64> frame_tables, pool_tables, mover_tables, sequence_tables;
  kv::Residency residency;
  kv::GroupPool pool;
  kv::Mover mover;
  kv::Sequence sequence;
};

TEST_CASE("KV that fits into memory is neither written nor read") {
  World world(kLayers * kGroups + 8);
  for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
  for (u32 i = 0; i < 3; ++i) world.attend(1000);
  CHECK(world.mover.stats().bytes_spilled == 0);
  CHECK(world.mover.stats().bytes_loaded == 0);
  CHECK(world.mover.stats().n_waited == 0);
}

TEST_CASE("a cycle that does not fit reads what cannot stay, and little more") {
  for (const u32 n_frames : {32u, 64u, 96u, 120u}) {
    CAPTURE(n_frames);
    World world(n_frames);
    for (u32 i = 0; i < kGroups; ++i) REQUIRE(world.append(4).has_value());
    for (u32 i = 0; i < 3; ++i) world.attend(2'000'000);
    const kv::MoverStats before = world.mover.stats();
    constexpr u32 kCycles = 10;
    for (u32 i = 0; i < kCycles; ++i) world.attend(2'000'000);
    const kv::MoverStats& after = world.mover.stats();
    // The landing place (two windows) and reads that worked ahead into the next cycle are the rest.
    const u64 n_missing = kLayers * kGroups - n_frames;
    const u64 n_loads = after.n_loads - before.n_loads;
    CHECK(n_loads >= kCycles * n_missing);
    CHECK(n_loads <= kCycles * (n_missing + 16));
    // A window of 2 ms hides the reads of the next one.
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
    World world(48, c.limits);
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

TEST_CASE("a lost group is an error for its sequence, once it is needed") {
  World world(32);
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

}  // namespace
}  // namespace tarn::test
