// Goal    what goes into the store comes out, the same bytes, now and after a restart, on every
//         backend; limits, budgets, pins, replacement and erasure do what store.h says.
// Method  small stores on io_uring, on the threads and on the simulated disk, one after another;
//         records whose bytes follow from a number (tests/support/store_harness.h). Faults are in
//         tests/sim; reads of parts and the file's size in the files beside this one.
#include "runtime/store/store.h"

#include <doctest/doctest.h>

#include "tests/runtime/store/store_box.h"
#include "tests/support/seed.h"

namespace tarn::store::store_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Box = test::StoreBox;
using Got = StoreHarness::Got;
using test::box_limits;
using test::kBoxFrameBytes;
using test::TestRecord;

// The clock of a backend's world: real ones wait in real time.
template <class Body>
void on_each_world(const char* name, Body&& body) {
  for (const auto& world : test::io_worlds_here(name)) {
    CAPTURE(world->name());
    SystemClock system_clock;
    VirtualClock virtual_clock;
    Clock& clock = world->name() == "simulated" ? static_cast<Clock&>(virtual_clock) : system_clock;
    body(*world, clock);
  }
}

TEST_CASE("records come back, at once and after a restart, on every backend") {
  on_each_world("store_round_trip", [](test::IoWorld& world, Clock& clock) {
    std::vector<TestRecord> records;
    u64 id = 1;
    for (const Kind kind : {Kind::group, Kind::extent, Kind::manifest, Kind::codebook}) {
      for (const u64 n_bytes :
           {u64{0}, u64{1}, kSectorBytes, 3 * kSectorBytes, 5 * kBoxFrameBytes + 5}) {
        for (const u32 n_tokens : {0u, 64u, 1500u}) {
          records.push_back(
              record_of(id++, {.payload_bytes = n_bytes, .n_tokens = n_tokens, .kind = kind}));
        }
      }
    }
    for (u32 boot = 0; boot < 3; ++boot) {
      const auto io = world.make({});
      StoreHarness bench(*io, clock, world.path(), box_limits(200));
      REQUIRE(bench.open() == Mode::on);
      CHECK(bench.store.index().n_records() == (boot == 0 ? 0 : records.size()));
      for (const TestRecord& record : records) {
        CAPTURE(record.payload_bytes);
        CAPTURE(record.token_ids.size());
        if (boot == 0) CHECK(bench.get(record) == Got::absent);
        if (boot == 0) REQUIRE(bench.put(record));
        CHECK(bench.get(record) == Got::right);
        CHECK_FALSE(bench.put(record));  // known
        const auto found = bench.store.find(record.key);
        REQUIRE(found.has_value());
        CHECK(bench.store.index().entry(*found).kind == record.kind);
      }
      bench.check();
      REQUIRE(bench.flush());
      bench.close();
    }
  });
}

TEST_CASE("many at once end each with one event, and no more begin than agreed") {
  on_each_world("store_many", [](test::IoWorld& world, Clock& clock) {
    const auto io = world.make({.in_flight_max = 4});
    StoreHarness bench(*io, clock, world.path(), box_limits(64));
    REQUIRE(bench.open() == Mode::on);
    u64 n_begun = 0, n_busy = 0, n_ok = 0;
    std::vector<u32> seen(200);
    while (n_ok < seen.size()) {
      while (n_begun < seen.size()) {
        const Begun begun = bench.begin_put(record_of(n_begun + 1), n_begun);
        n_busy += begun == Begun::busy;
        if (begun != Begun::begun) break;
        ++n_begun;
      }
      bench.poll(1'000'000'000);
      for (const Event& event : bench.events) {
        CHECK(event.op == Op::put);
        REQUIRE(event.outcome == Outcome::ok);
        CHECK_FALSE(event.lent);
        ++seen[event.tag];
        ++n_ok;
      }
      bench.events.clear();
      bench.check();
    }
    CHECK(n_busy > 0);
    CHECK(std::all_of(seen.begin(), seen.end(), [](u32 n) { return n == 1; }));
    // 64 frames: the 64 youngest are left. One sync served several.
    u64 n_right = 0;
    for (u64 i = 0; i < seen.size(); ++i) n_right += bench.get(record_of(i + 1)) == Got::right;
    CHECK(n_right == 64);
    CHECK(bench.store.index().n_evicted() == 200 - 64);
    CHECK(bench.store.stats().n_syncs < 150);
    bench.close();
  });
}

TEST_CASE("the least recently used gives way, and what is held stays") {
  Box box;
  auto bench = box.boot(box_limits(8));
  for (u64 id = 1; id <= 8; ++id) REQUIRE(bench->put(record_of(id)));
  CHECK(bench->get(record_of(1)) == Got::right);  // used now
  const RecordRef second = *bench->store.find(test::key_of(2));
  bench->store.pin(second);
  REQUIRE(bench->put(record_of(9)));  // 3 goes
  CHECK(bench->store.find(test::key_of(1)).has_value());
  CHECK(bench->store.find(test::key_of(2)).has_value());
  CHECK_FALSE(bench->store.find(test::key_of(3)).has_value());
  bench->store.pin(second);
  bench->store.unpin(second);
  for (u64 id = 10; id < 30; ++id) REQUIRE(bench->put(record_of(id)));
  CHECK(bench->get(record_of(2)) == Got::right);
  bench->store.unpin(second);
  for (u64 id = 30; id < 40; ++id) REQUIRE(bench->put(record_of(id)));
  CHECK_FALSE(bench->store.find(test::key_of(2)).has_value());
  for (u64 id = 32; id < 40; ++id) bench->store.pin(*bench->store.find(test::key_of(id)));
  CHECK(bench->begin_put(record_of(50), 1) == Begun::no_room);
  bench->store.unpin(*bench->store.find(test::key_of(35)));
  CHECK(bench->put(record_of(50)));
  CHECK(bench->begin_put(record_of(51, {.payload_bytes = 3 * kBoxFrameBytes}), 1) ==
        Begun::no_room);
  CHECK(bench->begin_put(record_of(51, {.payload_bytes = 30 * kBoxFrameBytes}), 1) ==
        Begun::no_room);
  bench->check();
  bench->close();
}

// They are copies: what they were copied from lies in groups.
TEST_CASE("extents give way before all else, the least recently used first") {
  for (const u32 n_frames : {1u, 2u}) {
    CAPTURE(n_frames);
    Box box;
    auto bench = box.boot(box_limits(12));
    u64 n_groups = 7;
    const u64 extent_bytes = n_frames == 1 ? 6000 : kBoxFrameBytes + 100;
    const auto extent = [&](u64 id) {
      return record_of(id, {.payload_bytes = extent_bytes, .kind = Kind::extent});
    };
    const auto is_there = [&](u64 id) { return bench->store.find(test::key_of(id)).has_value(); };
    for (u64 id = 1; id <= 7; ++id) REQUIRE(bench->put(record_of(id)));
    for (u64 id = 11; id < 11 + 5 / n_frames; ++id) REQUIRE(bench->put(extent(id)));
    while (bench->store.index().n_free() > 0) REQUIRE(bench->put(record_of(++n_groups)));
    CHECK(bench->get(extent(11)) == Got::right);  // used now
    REQUIRE(bench->put(record_of(++n_groups)));
    CHECK_FALSE(is_there(12));
    CHECK(is_there(11));
    REQUIRE(bench->put(extent(21)));  // takes frames of its kind, and of no group
    for (u64 id = 1; id <= n_groups; ++id) CHECK(is_there(id));
    REQUIRE(bench->flush());
    bench->close();
    bench = box.boot(box_limits(12));
    const auto is_extent = [&](u64 id) { return id == 21 || (id > 10 && id < 16); };
    for (u64 id = 31, n = 0; n < 12 - n_groups; ++id, ++n) {
      CAPTURE(id);
      REQUIRE(bench->put(record_of(id)));
      for (u64 group = 1; group <= n_groups; ++group) CHECK(is_there(group));
    }
    for (u64 id = 1; id <= 21; ++id) CHECK_FALSE((is_extent(id) && is_there(id)));
    bench->check();
    REQUIRE(bench->put(record_of(50)));  // in place of a group: no extent is left
    CHECK(bench->store.index().n_records() == 12);
    bench->close();
  }
}

TEST_CASE("a manifest takes its frames from extents at the end of the file") {
  for (const u64 n_frames : {1u, 2u, 3u}) {
    Box box;
    auto bench = box.boot(box_limits(12));
    for (u64 id = 1; id <= 12; ++id) REQUIRE(bench->put(record_of(id, {.kind = Kind::extent})));
    CHECK(bench->store.index().n_free() == 0);
    const auto manifest = record_of(
        20, {.payload_bytes = n_frames * kBoxFrameBytes - kSectorBytes, .kind = Kind::manifest});
    REQUIRE(bench->put(manifest));
    CHECK(bench->store.find(manifest.key)->frame_idx == 12 - n_frames);
    bench->check();
    bench->close();
  }
}

TEST_CASE("a record of many frames takes them from smaller ones, and gives them back") {
  Box box;
  auto bench = box.boot(box_limits(20));
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u64 id = 1; id < 300; ++id) {
    const u64 n_bytes = random.below(4) == 0 ? random.below(6 * kBoxFrameBytes) : 6000;
    REQUIRE(bench->put(record_of(id, {.payload_bytes = n_bytes})));
    CHECK(bench->get(record_of(id, {.payload_bytes = n_bytes})) == Got::right);
    bench->check();
    if (id % 50 == 0) {
      REQUIRE(bench->flush());
      const u32 n_records = bench->store.index().n_records();
      bench->close();
      bench = box.boot(box_limits(20));
      // What was evicted and not yet written over is found again; never less than what was there.
      CHECK(bench->store.index().n_records() >= n_records);
      bench->check();
      CHECK(bench->get(record_of(id, {.payload_bytes = n_bytes})) == Got::right);
    }
  }
  bench->close();
}

TEST_CASE("a buffer that is wanted back early comes before the sync, and one sync serves many") {
  struct Case {
    const char* name;
    u64 sync_bytes, sync_wait_ns;
    u64 n_syncs_min, n_syncs_max;  // of 32 puts, 16 operations at a time
  };
  constexpr u64 kLongNs = 1'000'000'000;
  const Case cases[] = {
      {"by number: half of the operations wait", kGiB, kLongNs, 2, 8},
      {"by bytes: two records are enough", 2 * 6000, kLongNs, 8, 20},
      {"by time: the first of them has waited", kGiB, 1, 8, 32},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 4);
    StoreLimits limits = box_limits(64);
    limits.ops_max = 16;
    limits.sync_bytes = c.sync_bytes;
    limits.sync_wait_ns = c.sync_wait_ns;
    StoreHarness bench(io, clock, "store", limits);
    REQUIRE(bench.open() == Mode::on);
    const u64 n_before = disk.n_syncs();
    u64 n_begun = 0, n_ended = 0, n_early_max = 0;
    while (n_ended < 32) {
      while (n_begun < 32 &&
             bench.begin_put(record_of(n_begun + 1), 2 * n_begun + 1) == Begun::begun) {
        ++n_begun;
      }
      bench.poll(1'000'000'000);
      for (const Event& event : bench.events) CHECK(event.outcome == Outcome::ok);
      n_ended += bench.events.size();
      bench.events.clear();
      n_early_max =
          std::max(n_early_max, bench.n_written_early - std::min(n_ended, bench.n_written_early));
    }
    const u64 n_syncs = disk.n_syncs() - n_before;
    CHECK(n_syncs >= c.n_syncs_min);
    CHECK(n_syncs <= c.n_syncs_max);
    CHECK(bench.n_written_early == 32);
    CHECK(n_early_max >= 2);
    // The owner wrote to each buffer as soon as he had it.
    for (u64 id = 1; id <= 32; ++id) CHECK(bench.get(record_of(id)) == Got::right);
    bench.check();
    bench.close();
  }
}

// Somebody who writes to a buffer that the store still has.
class MeddlingIo final : public IoBackend {
 public:
  explicit MeddlingIo(IoBackend& inner) : inner_(inner) {}
  std::byte* victim = nullptr;

  const char* name() const override { return inner_.name(); }
  u32 in_flight_max() const override { return inner_.in_flight_max(); }
  Result<IoFile> open(const IoOpenArgs& args) override { return inner_.open(args); }
  bool is_direct(IoFile file) const override { return inner_.is_direct(file); }
  Result<u64> size_bytes(IoFile file) override { return inner_.size_bytes(file); }
  Result<void> allocate(IoFile file, u64 bytes) override { return inner_.allocate(file, bytes); }
  void close(IoFile file) override { inner_.close(file); }
  bool register_buffers(std::span<const std::span<std::byte>> buffers) override {
    return inner_.register_buffers(buffers);
  }
  bool submit(const IoRequest& request) override {
    if (request.op == IoOp::write && request.buffer.size() > kSectorBytes) {
      victim = request.buffer.data();
    }
    return inner_.submit(request);
  }
  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override {
    const u32 n = inner_.reap(completions, n_min, timeout_ns);
    if (n > 0 && victim != nullptr) *victim ^= std::byte{1};
    return n;
  }

 private:
  IoBackend& inner_;
};

TEST_CASE("a payload that somebody wrote to while the store had it is not published") {
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 4);
  MeddlingIo meddling(io);
  StoreHarness bench(meddling, clock, "store", box_limits(8));
  REQUIRE(bench.open() == Mode::on);
  for (const u64 tag : {u64{1}, u64{2}}) {
    meddling.victim = nullptr;
    REQUIRE(bench.begin_put(record_of(tag), tag) == Begun::begun);
    CHECK(bench.wait_for(tag).outcome == Outcome::corrupt);
    CHECK_FALSE(bench.store.find(test::key_of(tag)).has_value());
  }
  CHECK(bench.n_written_early == 0);
  CHECK(bench.store.mode() == Mode::on);
  bench.check();
  bench.close();
}

TEST_CASE("tokens are compared at a hit, and a collision does no harm") {
  Box box;
  auto bench = box.boot(box_limits(8));
  const auto record = record_of(1);
  REQUIRE(bench->put(record));
  for (u64 i = 0; i < record.token_ids.size(); ++i) {
    TestRecord other = record;
    other.token_ids[i] ^= 1;
    CHECK(bench->get(other) == Got::absent);
    CHECK(bench->last.outcome == Outcome::other_tokens);
  }
  TestRecord longer = record;
  longer.token_ids.push_back(1);
  CHECK(bench->get(longer) == Got::absent);
  CHECK(bench->get(record) == Got::right);
  bench->close();
}

TEST_CASE("a manifest is replaced, and the old one never comes back") {
  Box box;
  auto bench = box.boot(box_limits(8));
  const auto version = [](u64 n) {
    return record_of(1, {.payload_bytes = 2000, .kind = Kind::manifest, .version = n});
  };
  for (u64 n = 1; n <= 5; ++n) {
    REQUIRE(bench->put(version(n), PutArgs::If::replace));
    CHECK(bench->get(version(n)) == Got::right);
    CHECK(bench->store.index().n_records() == 1);
    CHECK(bench->store.index().n_free() == 7);
  }
  CHECK(bench->store.stats().n_erased == 4);
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(box_limits(8));
  CHECK(bench->store.index().n_records() == 1);
  CHECK(bench->get(version(5)) == Got::right);
  // While somebody reads the old one, it stays for him.
  const RecordRef old = *bench->store.find(test::key_of(1));
  bench->store.pin(old);
  REQUIRE(bench->begin_put(version(6), 1, PutArgs::If::replace) == Begun::begun);
  for (u32 i = 0; i < 100; ++i) bench->poll(1'000'000);
  CHECK(bench->events.empty());  // the replacement ends when the old one is gone
  CHECK(bench->get(version(6)) == Got::right);
  bench->store.unpin(old);
  CHECK(bench->wait_for(1).outcome == Outcome::ok);
  // Erased for good.
  REQUIRE(bench->store.erase(*bench->store.find(test::key_of(1)), 2) == Begun::begun);
  CHECK_FALSE(bench->store.find(test::key_of(1)).has_value());
  CHECK(bench->wait_for(2).outcome == Outcome::ok);
  CHECK(bench->store.erase(old, 2) == Begun::gone);
  CHECK(bench->store.index().n_free() == 8);
  bench->check();
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(box_limits(8));
  CHECK(bench->store.index().n_records() == 0);
  bench->close();
}

TEST_CASE("records of several frames leave sessions alone while anything else can go") {
  Box box;
  constexpr u64 kGroups = 17, kSessions = 3, kFirstExtent = 200, kExtents = 40;
  auto bench = box.boot(box_limits(kGroups + kSessions));
  const auto extent = [](u64 id) {
    return record_of(id, {.payload_bytes = kBoxFrameBytes + 100, .kind = Kind::extent});
  };
  for (u64 id = 1; id <= kGroups; ++id) REQUIRE(bench->put(record_of(id)));
  for (u64 id = 101; id < 101 + kSessions; ++id) {
    REQUIRE(bench->put(record_of(id, {.payload_bytes = 2000, .kind = Kind::manifest})));
  }
  CHECK(bench->store.index().n_free() == 0);
  for (u64 id = kFirstExtent; id < kFirstExtent + kExtents; ++id) {
    REQUIRE(bench->put(extent(id)));
    bench->check();
  }
  CHECK(bench->store.index().n_manifests_evicted() == 0);
  for (u64 id = 101; id < 101 + kSessions; ++id) {
    CHECK(bench->store.find(test::key_of(id)).has_value());
  }
  // Of all the rest, nothing may go.
  std::vector<RecordRef> held;
  for (u64 id = 1; id < kFirstExtent + kExtents; ++id) {
    const auto found = bench->store.find(test::key_of(id));
    if (!found || (id > 100 && id < kFirstExtent)) continue;
    bench->store.pin(*found);
    held.push_back(*found);
  }
  REQUIRE(bench->put(extent(kFirstExtent + kExtents)));
  CHECK(bench->store.index().n_manifests_evicted() > 0);
  for (const RecordRef ref : held) bench->store.unpin(ref);
  bench->close();
}

TEST_CASE("a manifest finds its frames in a row, however often it was replaced between groups") {
  Box box;
  constexpr u64 kIds = 122;
  constexpr u32 kFrames = 240;
  auto bench = box.boot(box_limits(kFrames));
  const auto put_manifest = [&](u64 n_frames) {  // as long as the session has become
    const auto manifest = record_of(
        1, {.payload_bytes = n_frames * kBoxFrameBytes - kSectorBytes, .kind = Kind::manifest});
    REQUIRE(bench->put(manifest, PutArgs::If::replace));
  };
  for (u64 id = 2; id < kIds; ++id) {  // 120 that are held, and two manifests at a time
    CAPTURE(id);
    REQUIRE(bench->put(record_of(id)));
    bench->store.pin(*bench->store.find(record_of(id).key));
    put_manifest(1 + id / 8);
    if (id == 30) {  // after a restart, too
      for (u64 held = 2; held <= id; ++held) {
        bench->store.unpin(*bench->store.find(record_of(held).key));
      }
      bench->close();
      bench = box.boot(box_limits(kFrames));
      for (u64 held = 2; held <= id; ++held) {
        bench->store.pin(*bench->store.find(record_of(held).key));
      }
    }
  }
  for (u64 id = 2; id < kIds; ++id) {
    bench->store.unpin(*bench->store.find(record_of(id).key));
  }
  CHECK(bench->store.index().n_evicted() == 0);
  bench->close();
}

}  // namespace
}  // namespace tarn::store::store_test
