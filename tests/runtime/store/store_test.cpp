// Goal    what goes into the store comes out, the same bytes, now and after a restart, on every
//         backend; limits, budgets, pins, replacement and erasure do what store.h says.
// Method  small stores on io_uring, on the threads and on the simulated disk, one after another;
//         records whose bytes follow from a number (tests/support/store_harness.h). Faults are in
//         tests/sim.
#include "runtime/store/store.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>

#include "tests/support/seed.h"
#include "tests/support/store_harness.h"

namespace tarn::store {
namespace {

using test::record_of;
using test::SimIo;
using test::StoreHarness;
using test::TestRecord;
using Got = StoreHarness::Got;

constexpr u64 kFrameBytes = 16 * kKiB;

StoreLimits limits_of(u32 n_frames) {
  return {.file_bytes = kFramesBegin + n_frames * kFrameBytes,
          .frame_bytes = kFrameBytes,
          .head_bytes_max = 4 * kSectorBytes,
          .ops_max = 8};
}

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
           {u64{0}, u64{1}, kSectorBytes, 3 * kSectorBytes, 5 * kFrameBytes + 5}) {
        for (const u32 n_tokens : {0u, 64u, 1500u}) {
          records.push_back(
              record_of(id++, {.payload_bytes = n_bytes, .n_tokens = n_tokens, .kind = kind}));
        }
      }
    }
    for (u32 boot = 0; boot < 3; ++boot) {
      const auto io = world.make({});
      StoreHarness bench(*io, clock, world.path(), limits_of(200));
      REQUIRE(bench.open() == Mode::on);
      CHECK(bench.store.stats().n_found_at_start == (boot == 0 ? 0 : records.size()));
      for (const TestRecord& record : records) {
        CAPTURE(record.payload_bytes);
        CAPTURE(record.token_ids.size());
        if (boot == 0) CHECK(bench.get(record) == Got::absent);
        if (boot == 0) REQUIRE(bench.put(record));
        CHECK(bench.get(record) == Got::right);
        CHECK_FALSE(bench.put(record));  // known
        const auto found = bench.store.find(record.key);
        REQUIRE(found.has_value());
        CHECK(bench.store.index().entry(found->ref).kind == record.kind);
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
    StoreHarness bench(*io, clock, world.path(), limits_of(64));
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

// One simulated disk that outlives its stores.
struct Box {
  explicit Box(u64 seed = 1) : disk(seed) {}
  std::unique_ptr<StoreHarness> boot(const StoreLimits& limits, u64 entropy = 1) {
    io.reset();
    io = std::make_unique<test::SimIo>(disk, clock);
    auto bench = std::make_unique<StoreHarness>(*io, clock, "store", limits, entropy);
    bench->open();
    return bench;
  }
  test::SimDisk disk;
  VirtualClock clock;
  std::unique_ptr<test::SimIo> io;
};

TEST_CASE("the least recently used gives way, and what is held stays") {
  Box box;
  auto bench = box.boot(limits_of(8));
  for (u64 id = 1; id <= 8; ++id) REQUIRE(bench->put(record_of(id)));
  CHECK(bench->get(record_of(1)) == Got::right);  // used now
  const RecordRef second = bench->store.find(test::key_of(2))->ref;
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
  for (u64 id = 32; id < 40; ++id) bench->store.pin(bench->store.find(test::key_of(id))->ref);
  CHECK(bench->begin_put(record_of(50), 1) == Begun::no_room);
  bench->store.unpin(bench->store.find(test::key_of(35))->ref);
  CHECK(bench->put(record_of(50)));
  CHECK(bench->begin_put(record_of(51, {.payload_bytes = 3 * kFrameBytes}), 1) == Begun::no_room);
  CHECK(bench->begin_put(record_of(51, {.payload_bytes = 30 * kFrameBytes}), 1) == Begun::no_room);
  bench->check();
  bench->close();
}

TEST_CASE("a record of many frames takes them from smaller ones, and gives them back") {
  Box box;
  auto bench = box.boot(limits_of(20));
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u64 id = 1; id < 300; ++id) {
    const u64 n_bytes = random.below(4) == 0 ? random.below(6 * kFrameBytes) : 6000;
    REQUIRE(bench->put(record_of(id, {.payload_bytes = n_bytes})));
    CHECK(bench->get(record_of(id, {.payload_bytes = n_bytes})) == Got::right);
    bench->check();
    if (id % 50 == 0) {
      REQUIRE(bench->flush());
      const u32 n_records = bench->store.index().n_records();
      bench->close();
      bench = box.boot(limits_of(20));
      // What was evicted and not yet written over is found again; never less than what was there.
      CHECK(bench->store.stats().n_found_at_start >= n_records);
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
    StoreLimits limits = limits_of(64);
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
  StoreHarness bench(meddling, clock, "store", limits_of(8));
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

TEST_CASE("an extent is found by any of its groups' keys, and by its own") {
  Box box;
  const auto extent = record_of(
      7,
      {.payload_bytes = 9 * kFrameBytes, .n_tokens = 640, .n_aliases = 10, .kind = Kind::extent});
  const auto group = record_of(7 * 1000 + 1 + 3);  // as its alias 3
  auto bench = box.boot(limits_of(40));
  REQUIRE(bench->put(extent));
  for (u32 boot = 0; boot < 2; ++boot) {
    CHECK(bench->get(extent) == Got::right);
    for (u32 i = 0; i < 10; ++i) {
      const auto found = bench->store.find(extent.aliases[i]);
      REQUIRE(found.has_value());
      CHECK(found->alias_idx == i);
      const auto payload = bench->buffer(extent.payload.size());
      REQUIRE(bench->store.read({.ref = found->ref,
                                 .token_ids = std::span(extent.token_ids).subspan(i * 64, 64),
                                 .first_token = i * 64,
                                 .payload = payload,
                                 .tag = i}) == Begun::begun);
      CHECK(bench->wait_for(i).outcome == Outcome::ok);
      REQUIRE(bench->store.read({.ref = found->ref,
                                 .token_ids = std::span(extent.token_ids).subspan(i * 64, 64),
                                 .first_token = (i + 1) * 64,
                                 .payload = payload,
                                 .tag = i}) == Begun::begun);
      CHECK(bench->wait_for(i).outcome == Outcome::other_tokens);
    }
    if (boot == 0) {
      REQUIRE(bench->flush());
      bench->close();
      bench = box.boot(limits_of(40));
    }
  }
  CHECK(extent.aliases[3] == group.key);
  REQUIRE(bench->put(group));  // an alias does not stand in its way
  CHECK(bench->store.find(group.key)->alias_idx == kNoFrame);
  CHECK(bench->get(group) == Got::right);
  bench->close();
}

TEST_CASE("tokens are compared at a hit, and a collision does no harm") {
  Box box;
  auto bench = box.boot(limits_of(8));
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

TEST_CASE(
    "of a record some sectors can be had, neighbours in one request, with a head that is lent") {
  Box box;
  auto bench = box.boot(limits_of(40));
  const auto record = record_of(1, {.payload_bytes = 60 * kSectorBytes});
  REQUIRE(bench->put(record));
  const RecordRef ref = bench->store.find(record.key)->ref;
  const auto head = bench->buffer(bench->store.head_bytes(ref));
  struct Case {
    std::string name;
    std::vector<u32> sectors;
    u64 n_requests;
    u64 n_sectors;
  };
  std::vector<u32> every_sixth;
  for (u32 i = 0; i < 60; i += 6) every_sixth.push_back(i);
  std::vector<u32> too_many;
  for (u32 i = 0; i < 60; i += 2) too_many.push_back(i);
  const Case cases[] = {
      {"one, and the head for the first time", {5}, 2, 1},
      {"one", {59}, 1, 1},
      {"two neighbours", {5, 6}, 1, 2},
      {"near: what lies between comes along", {5, 10}, 1, 6},
      {"far", {5, 11}, 2, 2},
      {"all apart", every_sixth, 10, 10},
      {"near each other from end to end", too_many, 1, 59},
      {"everything", {}, 1, 60},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const auto payload = bench->buffer(record.payload.size());
    const StoreStats before = bench->store.stats();
    REQUIRE(bench->store.read({.ref = ref,
                               .token_ids = record.token_ids,
                               .payload = payload,
                               .sectors = c.sectors,
                               .head = head,
                               .tag = 3}) == Begun::begun);
    CHECK(bench->wait_for(3).outcome == Outcome::ok);
    const StoreStats after = bench->store.stats();
    CHECK(after.n_requests - before.n_requests == c.n_requests);
    const u64 n_heads = c.name == cases[0].name ? 1 : 0;
    CHECK(after.bytes_read - before.bytes_read == (c.n_sectors + n_heads) * kSectorBytes);
    for (u64 i = 0; i < 60; ++i) {
      const bool wanted =
          c.sectors.empty() || std::find(c.sectors.begin(), c.sectors.end(), i) != c.sectors.end();
      if (!wanted) continue;
      CHECK(std::memcmp(payload.data() + i * kSectorBytes, record.payload.data() + i * kSectorBytes,
                        kSectorBytes) == 0);
    }
  }
  // Further apart than gaps go, and more than requests there are: the last one takes the rest.
  StoreLimits no_gaps = limits_of(40);
  no_gaps.gap_sectors_max = 0;
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(no_gaps);
  const auto payload = bench->buffer(record.payload.size());
  const RecordRef again = bench->store.find(record.key)->ref;
  REQUIRE(bench->store.read({.ref = again, .payload = payload, .sectors = too_many, .tag = 4}) ==
          Begun::begun);
  CHECK(bench->wait_for(4).outcome == Outcome::ok);
  CHECK(bench->store.stats().n_requests == kRunsMax + 1);
  CHECK(std::memcmp(payload.data() + 58 * kSectorBytes, record.payload.data() + 58 * kSectorBytes,
                    kSectorBytes) == 0);
  bench->close();
}

TEST_CASE("a part of a record lands at the begin of its buffer, verified") {
  Box box;
  auto bench = box.boot(limits_of(40));
  const auto record = record_of(1, {.payload_bytes = 60 * kSectorBytes});
  REQUIRE(bench->put(record));
  const RecordRef ref = bench->store.find(record.key)->ref;
  const auto head = bench->buffer(bench->store.head_bytes(ref));
  const auto part = bench->buffer(3 * kSectorBytes);
  const auto read_from = [&](u32 first_sector) {
    const Begun begun = bench->store.read(
        {.ref = ref, .payload = part, .first_sector = first_sector, .head = head, .tag = 3});
    REQUIRE(begun == Begun::begun);
    return bench->wait_for(3).outcome;
  };
  for (const u32 first_sector : {0u, 7u, 57u}) {
    CAPTURE(first_sector);
    const StoreStats before = bench->store.stats();
    CHECK(read_from(first_sector) == Outcome::ok);
    const u64 n_heads = first_sector == 0 ? 1 : 0;  // it stays
    CHECK(bench->store.stats().n_requests - before.n_requests == 1 + n_heads);
    CHECK(std::memcmp(part.data(), record.payload.data() + first_sector * kSectorBytes,
                      part.size()) == 0);
  }
  box.disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  CHECK(read_from(7) == Outcome::corrupt);
  bench->close();
}

TEST_CASE("a head that is known is believed, and no byte of the payload is") {
  Box box;
  auto bench = box.boot(limits_of(40));
  const auto record = record_of(1, {.payload_bytes = 60 * kSectorBytes});
  const auto other = record_of(2, {.payload_bytes = 60 * kSectorBytes});
  REQUIRE(bench->put(record));
  REQUIRE(bench->put(other));
  const RecordRef ref = bench->store.find(record.key)->ref;
  const auto head = bench->buffer(bench->store.head_bytes(ref));
  const auto part = bench->buffer(3 * kSectorBytes);
  const auto read = [&](RecordRef of, bool is_known) {
    REQUIRE(bench->store.read({.ref = of,
                               .payload = part,
                               .first_sector = 7,
                               .head = head,
                               .head_is_known = is_known,
                               .tag = 3}) == Begun::begun);
    return bench->wait_for(3).outcome;
  };
  CHECK(read(ref, false) == Outcome::ok);
  std::memset(part.data(), 0, part.size());
  const u64 n_requests = bench->store.stats().n_requests;
  CHECK(read(ref, true) == Outcome::ok);
  CHECK(bench->store.stats().n_requests == n_requests + 1);
  CHECK(std::memcmp(part.data(), record.payload.data() + 7 * kSectorBytes, part.size()) == 0);
  CHECK(read(bench->store.find(other.key)->ref, true) == Outcome::corrupt);  // not its head
  box.disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  CHECK(read(ref, true) == Outcome::corrupt);
  bench->close();
}

TEST_CASE("a reader who verifies a payload himself is told by holds(), and rejects the record") {
  Box box;
  auto bench = box.boot(limits_of(40));
  const auto record = record_of(1, {.payload_bytes = 60 * kSectorBytes});
  REQUIRE(bench->put(record));
  const RecordRef ref = bench->store.find(record.key)->ref;
  const auto head = bench->buffer(bench->store.head_bytes(ref));
  const auto part = bench->buffer(3 * kSectorBytes);
  const auto read = [&](std::optional<u32> first_sector) {
    const Begun begun = bench->store.read({.ref = ref,
                                           .payload = part,
                                           .first_sector = first_sector,
                                           .head = head,
                                           .is_checked_later = true,
                                           .tag = 3});
    return begun == Begun::begun ? bench->wait_for(3).outcome : Outcome::io_failed;
  };
  CHECK(read(57) == Outcome::ok);
  CHECK(bench->store.holds(head, 57, part));
  CHECK(bench->store.holds(head, 58, part.subspan(kSectorBytes)));
  CHECK_FALSE(bench->store.holds(head, 56, part));
  CHECK_FALSE(bench->store.holds(head, 58, part));  // beyond the record's end
  box.disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  CHECK(read(7) == Outcome::ok);  // its head was there, and nobody has looked at the rest
  CHECK_FALSE(bench->store.holds(head, 7, part));
  bench->store.pin(ref);
  bench->store.reject(ref);
  CHECK_FALSE(bench->store.find(record.key).has_value());
  CHECK(read(7) == Outcome::io_failed);
  CHECK(bench->store.stats().n_dropped == 1);
  bench->store.reject(ref);  // for its next part
  CHECK(bench->store.stats().n_dropped == 1);
  bench->store.unpin(ref);
  bench->close();
}

TEST_CASE("a manifest is replaced, and the old one never comes back") {
  Box box;
  auto bench = box.boot(limits_of(8));
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
  bench = box.boot(limits_of(8));
  CHECK(bench->store.stats().n_found_at_start == 1);
  CHECK(bench->get(version(5)) == Got::right);
  // While somebody reads the old one, it stays for him.
  const RecordRef old = bench->store.find(test::key_of(1))->ref;
  bench->store.pin(old);
  REQUIRE(bench->begin_put(version(6), 1, PutArgs::If::replace) == Begun::begun);
  for (u32 i = 0; i < 100; ++i) bench->poll(1'000'000);
  CHECK(bench->events.empty());  // the replacement ends when the old one is gone
  CHECK(bench->get(version(6)) == Got::right);
  bench->store.unpin(old);
  CHECK(bench->wait_for(1).outcome == Outcome::ok);
  // Erased for good.
  REQUIRE(bench->store.erase(bench->store.find(test::key_of(1))->ref, 2) == Begun::begun);
  CHECK_FALSE(bench->store.find(test::key_of(1)).has_value());
  CHECK(bench->wait_for(2).outcome == Outcome::ok);
  CHECK(bench->store.erase(old, 2) == Begun::gone);
  CHECK(bench->store.index().n_free() == 8);
  bench->check();
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(limits_of(8));
  CHECK(bench->store.stats().n_found_at_start == 0);
  bench->close();
}

TEST_CASE("the write budget fills by the clock and outlives a restart") {
  Box box;
  constexpr u64 kRecordBytes = 3 * kSectorBytes;  // of 6,000 bytes
  constexpr u64 kDayNs = u64{86400} * 1'000'000'000;
  StoreLimits limits = limits_of(100);
  limits.write_bytes_per_day = 10 * kRecordBytes;
  auto bench = box.boot(limits);
  u64 id = 1;
  for (u32 i = 0; i < 10; ++i) REQUIRE(bench->put(record_of(id++)));
  CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
  REQUIRE(bench->flush());
  for (u32 boot = 0; boot < 5; ++boot) {
    bench->close();
    bench = box.boot(limits);
    CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
    CHECK(bench->store.stats().bytes_written_ever >= 9 * kRecordBytes);
  }
  box.clock.advance_ns(kDayNs / 10);
  REQUIRE(bench->put(record_of(id++)));
  CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
  box.clock.advance_ns(10 * kDayNs);  // a day's worth is all that it saves up
  for (u32 i = 0; i < 10; ++i) REQUIRE(bench->put(record_of(id++)));
  CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
  bench->close();
  // A limit that is set later begins with a day's worth.
  bench = box.boot(limits_of(100));
  for (u32 i = 0; i < 12; ++i) REQUIRE(bench->put(record_of(id++)));
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(limits);
  for (u32 i = 0; i < 10; ++i) REQUIRE(bench->put(record_of(id++)));
  CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
  bench->close();
}

TEST_CASE("a manifest finds its frames in a row, however often it was replaced between groups") {
  Box box;
  constexpr u64 kIds = 122;
  constexpr u32 kFrames = 240;
  auto bench = box.boot(limits_of(kFrames));
  const auto put_manifest = [&](u64 n_frames) {  // as long as the session has become
    const auto manifest = record_of(
        1, {.payload_bytes = n_frames * kFrameBytes - kSectorBytes, .kind = Kind::manifest});
    REQUIRE(bench->put(manifest, PutArgs::If::replace));
  };
  for (u64 id = 2; id < kIds; ++id) {  // 120 that are held, and two manifests at a time
    CAPTURE(id);
    REQUIRE(bench->put(record_of(id)));
    bench->store.pin(bench->store.find(record_of(id).key)->ref);
    put_manifest(1 + id / 8);
    if (id == 30) {  // after a restart, too
      for (u64 held = 2; held <= id; ++held) {
        bench->store.unpin(bench->store.find(record_of(held).key)->ref);
      }
      bench->close();
      bench = box.boot(limits_of(kFrames));
      for (u64 held = 2; held <= id; ++held) {
        bench->store.pin(bench->store.find(record_of(held).key)->ref);
      }
    }
  }
  for (u64 id = 2; id < kIds; ++id) {
    bench->store.unpin(bench->store.find(record_of(id).key)->ref);
  }
  CHECK(bench->store.index().n_evicted() == 0);
  bench->close();
}

TEST_CASE("what the file was before decides nothing: foreign, cut, other sizes, one label, newer") {
  Box box;
  const auto record = record_of(1);
  const auto fresh = [&] {
    box.disk.write_file("store", {});
    auto bench = box.boot(limits_of(8));
    REQUIRE(bench->put(record));
    REQUIRE(bench->flush());
    bench->close();
  };
  fresh();
  StoreLimits other_frames = limits_of(9);
  other_frames.frame_bytes = 2 * kFrameBytes;
  auto bench = box.boot(other_frames);  // cut otherwise: a new store
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->get(record) == Got::absent);
  bench->close();

  fresh();
  const auto image = box.disk.file_bytes("store");
  const Secret secret = [&] {
    auto other = box.boot(limits_of(8), 2);
    const Secret found = other->store.secret();
    other->close();
    return found;
  }();
  for (const u64 label : {0u, 1u}) {  // one label is lost: the other one serves, and mends it
    auto bytes = image;
    bytes[label * kSectorBytes + 100] ^= std::byte{1};
    box.disk.write_file("store", bytes);
    bench = box.boot(limits_of(8), 99);
    CHECK(bench->store.secret() == secret);
    CHECK(bench->get(record) == Got::right);
    bench->close();
    CHECK(box.disk.file_bytes("store") == image);
  }
  auto bytes = image;
  std::fill(bytes.begin(), bytes.begin() + kFramesBegin, std::byte{0});
  box.disk.write_file("store", bytes);
  bench = box.boot(limits_of(8), 99);  // both: a new store with a new secret, and nobody's records
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->store.secret() != secret);
  CHECK(bench->get(record) == Got::absent);
  bench->close();

  box.disk.write_file("store", std::span(image).first(kFramesBegin + 100));  // cut short
  bench = box.boot(limits_of(8));
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->get(record) == Got::absent);
  CHECK(bench->put(record));
  bench->close();

  box.disk.write_file("store", std::vector<std::byte>(100'000, std::byte{7}));  // another's file
  bench = box.boot(limits_of(8));
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->put(record));
  bench->close();

  bytes = image;
  const Crc32c& crc = crc32c_ways()[0];
  Label label{};
  REQUIRE(parse_label(crc, std::span(image).first(kSectorBytes), label) == LabelState::good);
  encode_label(crc, label, std::span(bytes).first(kSectorBytes));
  bytes[8] = std::byte{2};  // version
  std::memset(bytes.data() + kSectorBytes - 4, 0, 4);
  const u32 value = crc.bytes(bytes.data(), kSectorBytes);
  std::memcpy(bytes.data() + kSectorBytes - 4, &value, 4);
  box.disk.write_file("store", bytes);
  bench = box.boot(limits_of(8));
  CHECK(bench->store.mode() == Mode::off);
  CHECK(bench->store.why().status == Status::unsupported);
  CHECK(box.disk.file_bytes("store") == bytes);  // untouched
  bench->close();
}

TEST_CASE("a file is made longer or shorter in place, and a crash on the way costs no record") {
  Box box;
  auto bench = box.boot(limits_of(8));
  for (u64 id = 1; id <= 8; ++id) REQUIRE(bench->put(record_of(id)));
  REQUIRE(bench->flush());
  bench->close();
  const Secret secret = bench->store.secret();
  // Record 8 came last, round the end of the file into frame 0.
  const auto expect = [&](u32 n_frames, u64 n_kept) {
    CAPTURE(n_frames);
    auto opened = box.boot(limits_of(n_frames), 99);
    CHECK(opened->store.mode() == Mode::on);
    CHECK(opened->store.secret() == secret);
    for (u64 id = 1; id <= 8; ++id) {
      CHECK(opened->get(record_of(id)) == (id % 8 < n_kept ? Got::right : Got::absent));
    }
    opened->check();
    opened->close();
    alignas(kSectorBytes) static std::array<std::byte, kFramesBegin> sectors;
    SimIo io(box.disk, box.clock);
    const auto cut = read_cut(io, crc32c_ways()[0], "store", sectors);
    REQUIRE(cut.has_value());
    CHECK(cut->n_frames == n_frames);
    CHECK(cut->frame_bytes == kFrameBytes);
    CHECK(box.disk.file_bytes("store").size() == kFramesBegin + n_frames * kFrameBytes);
  };
  expect(20, 8);
  expect(5, 5);
  expect(30, 5);
  // Every power loss between the two labels leaves one of them.
  const auto image = box.disk.file_bytes("store");
  for (const u64 spoilt : {0u, 1u}) {
    auto bytes = image;
    std::memset(bytes.data() + spoilt * kSectorBytes + 512, 1, 512);
    box.disk.write_file("store", bytes);
    expect(30, 5);
    bytes = image;
    Label label;
    const auto sector = std::span(bytes).subspan(spoilt * kSectorBytes, kSectorBytes);
    REQUIRE(parse_label(crc32c_ways()[0], sector, label) == LabelState::good);
    label.n_frames = 12;
    encode_label(crc32c_ways()[0], label, sector);
    box.disk.write_file("store", bytes);
    expect(30, 5);
  }
}

TEST_CASE("without a path there is no store, and limits that cannot be are refused") {
  Store store;
  REQUIRE(store.open({}).has_value());
  CHECK(store.mode() == Mode::off);
  CHECK_FALSE(store.find({}).has_value());
  CHECK(store.put({}) == Begun::not_now);
  CHECK(store.read({}) == Begun::not_now);
  CHECK(store.erase({}, 0) == Begun::not_now);
  CHECK(store.flush(0) == Begun::not_now);
  CHECK(store.poll({}, 0) == 0);
  CHECK(store.idle());
  CHECK(store_bytes({}).value() == 0);
  const auto refused = [](auto change) {
    StoreLimits limits = limits_of(8);
    change(limits);
    const auto bytes = store_bytes(limits);
    return !bytes && bytes.error().status == Status::invalid_config;
  };
  CHECK_FALSE(refused([](StoreLimits&) {}));
  CHECK(refused([](StoreLimits& l) { l.file_bytes = kFramesBegin + kFrameBytes - 1; }));
  CHECK(refused([](StoreLimits& l) { l.frame_bytes = 4096; }));
  CHECK(refused([](StoreLimits& l) { l.frame_bytes = 10000; }));
  CHECK(refused([](StoreLimits& l) { l.file_bytes = ~u64{0}; }));
  CHECK(refused([](StoreLimits& l) { l.ops_max = 0; }));
  CHECK(refused([](StoreLimits& l) { l.ops_max = kOpsMax + 1; }));
  CHECK(refused([](StoreLimits& l) { l.head_bytes_max = 0; }));
  CHECK(refused([](StoreLimits& l) { l.head_bytes_max = 1 * kMiB; }));
}

}  // namespace
}  // namespace tarn::store
