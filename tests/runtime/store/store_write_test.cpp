// Goal    the write budget counts all that is written, fills by the clock and outlives restarts; of
//         a write that failed nothing is found later.
// Method  small stores on a simulated disk in virtual time, closed and opened again.
#include <doctest/doctest.h>

#include "runtime/store/store.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::store::store_write_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Box = test::StoreBox;
using Got = StoreHarness::Got;
using test::box_limits;

TEST_CASE("the write budget fills by the clock and outlives a restart") {
  Box box;
  constexpr u64 kRecordBytes = 3 * kSectorBytes;  // of 6,000 bytes
  constexpr u64 kDayNs = u64{86400} * 1'000'000'000;
  StoreLimits limits = box_limits(100);
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
  bench = box.boot(box_limits(100));
  for (u32 i = 0; i < 12; ++i) REQUIRE(bench->put(record_of(id++)));
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(limits);
  for (u32 i = 0; i < 10; ++i) REQUIRE(bench->put(record_of(id++)));
  CHECK(bench->begin_put(record_of(id), 1) == Begun::over_budget);
  bench->close();
}

TEST_CASE("erasing the youngest records gives nothing of the write budget back") {
  Box box;
  constexpr u64 kRecordBytes = 3 * kSectorBytes, kRecords = 20;  // of 6,000 bytes each
  StoreLimits limits = box_limits(100);
  limits.write_bytes_per_day = kRecords * kRecordBytes;
  const auto erase_from = [](StoreHarness& bench, u64 first) {
    for (u64 id = first; id <= kRecords / 2; ++id) {
      REQUIRE(bench.store.erase(*bench.store.find(test::key_of(id)), 7) == Begun::begun);
      CHECK(bench.wait_for(7).outcome == Outcome::ok);
    }
  };
  for (const u64 first : {u64{2}, u64{1}}) {  // one is left, or none
    CAPTURE(first);
    box.disk.write_file("store", {});
    auto bench = box.boot(limits);
    for (u64 id = 1; id <= kRecords / 2; ++id) REQUIRE(bench->put(record_of(id)));
    erase_from(*bench, first);
    const u64 written_bytes = bench->store.stats().bytes_written_ever;
    REQUIRE(bench->flush());
    for (u32 boot = 0; boot < 2; ++boot) {
      bench->close();
      bench = box.boot(limits);
      CHECK(bench->store.index().n_records() == first - 1);
      CHECK(bench->store.stats().budget_left_bytes <= limits.write_bytes_per_day / 2 + 100);
      CHECK(bench->store.stats().bytes_written_ever + kSectorBytes >= written_bytes);
      bench->check();
    }
    for (u64 id = 1; id < first; ++id) CHECK(bench->get(record_of(id)) == Got::right);
    const u64 n_graves = kRecords / 2 + 1 - first;  // they count
    const u64 n_left = (kRecords / 2 * kRecordBytes - n_graves * kSectorBytes) / kRecordBytes;
    for (u64 id = 50; id < 50 + n_left; ++id) REQUIRE(bench->put(record_of(id)));  // over graves
    CHECK(bench->begin_put(record_of(60), 2) == Begun::over_budget);
    bench->close();
  }
}

TEST_CASE("what an erasure writes is the write budget's, which never refuses it") {
  Box box;
  constexpr u64 kRecordBytes = 3 * kSectorBytes;  // of 6,000 bytes
  constexpr u64 kDayNs = u64{86400} * 1'000'000'000;
  StoreLimits limits = box_limits(100);
  limits.write_bytes_per_day = 4 * kRecordBytes;
  auto bench = box.boot(limits);
  const auto left_bytes = [&] { return bench->store.stats().budget_left_bytes; };
  const auto erase = [&](u64 id) {
    REQUIRE(bench->store.erase(*bench->store.find(test::key_of(id)), 7) == Begun::begun);
    CHECK(bench->wait_for(7).outcome == Outcome::ok);
  };
  for (const u64 id : {u64{1}, u64{2}}) REQUIRE(bench->put(record_of(id)));
  erase(1);
  CHECK(left_bytes() / kSectorBytes == 5);
  REQUIRE(bench->put(record_of(2, {.version = 1}), PutArgs::If::replace));  // its old one goes
  CHECK(left_bytes() / kSectorBytes == 1);
  CHECK(bench->store.stats().bytes_written == 11 * kSectorBytes);
  bench->close();
  bench = box.boot(limits);
  CHECK(left_bytes() / kSectorBytes == 1);
  erase(2);
  CHECK(left_bytes() < kSectorBytes);
  box.clock.advance_ns(10 * kDayNs);
  CHECK(left_bytes() == limits.write_bytes_per_day);
  REQUIRE(bench->put(record_of(3)));
  box.clock.advance_ns(kDayNs / 2);  // more than what is missing
  CHECK(left_bytes() == limits.write_bytes_per_day);
  for (u64 id = 4; id <= 7; ++id) REQUIRE(bench->put(record_of(id)));
  for (u64 id = 3; id <= 5; ++id) erase(id);  // though nothing is left
  CHECK(left_bytes() < kSectorBytes);
  bench->close();
}

TEST_CASE("a session whose write failed at its head is not found later, though it landed") {
  u32 n_failed = 0;
  for (u64 seed = 1; seed <= 64; ++seed) {  // of a write that fails, the disk may have done all
    CAPTURE(seed);
    Box box(seed);
    auto bench = box.boot(box_limits(8));
    const auto session = [](u64 version) {
      return record_of(1, {.n_tokens = 0, .kind = Kind::manifest, .version = version});
    };
    REQUIRE(bench->put(session(1)));
    REQUIRE(bench->begin_put(session(2), 2, PutArgs::If::replace) == Begun::begun);
    const u64 n_syncs = bench->store.stats().n_syncs;
    while (bench->store.stats().n_syncs == n_syncs) bench->poll(1000);
    box.disk.script.faults = {{.first_call = box.disk.n_calls()}};  // the head's write is next
    n_failed += bench->wait_for(2).outcome == Outcome::io_failed;
    REQUIRE(bench->store.mode() == Mode::on);
    CHECK(bench->get(session(1)) == Got::right);  // the one before is there as it was
    REQUIRE(bench->store.erase(*bench->store.find(test::key_of(1)), 4) == Begun::begun);
    CHECK(bench->wait_for(4).outcome == Outcome::ok);
    REQUIRE(bench->flush());
    bench->close();
    bench = box.boot(box_limits(8));
    CHECK(bench->store.index().n_records() == 0);
    bench->check();
    bench->close();
  }
  CHECK(n_failed == 64);
}

}  // namespace
}  // namespace tarn::store::store_write_test
