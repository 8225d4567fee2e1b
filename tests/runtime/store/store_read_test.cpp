// Goal    a read brings the sectors that are wanted, verified against the record's head, with the
//         requests that store.h promises; and a reader may verify them himself.
// Method  one record of 60 sectors on the simulated disk; requests and bytes are counted.
#include <doctest/doctest.h>

#include <cstring>

#include "runtime/store/store.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::store::store_read_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Box = test::StoreBox;
using Got = StoreHarness::Got;
using test::box_limits;

struct OneRecord {
  Box box;
  std::unique_ptr<StoreHarness> bench = box.boot(box_limits(40));
  test::TestRecord record = record_of(1, {.payload_bytes = 60 * kSectorBytes});
  RecordRef ref = put(record);
  std::span<std::byte> head = bench->buffer(bench->store.head_bytes(ref));
  std::span<std::byte> part = bench->buffer(3 * kSectorBytes);

  RecordRef put(const test::TestRecord& one) const {
    REQUIRE(bench->put(one));
    return *bench->store.find(one.key);
  }
  Outcome read(const ReadArgs& args) const {
    if (bench->store.read(args) != Begun::begun) return Outcome::io_failed;
    return bench->wait_for(args.tag).outcome;
  }
  void flip_reads() {
    box.disk.script.ppm[static_cast<u32>(test::SimFault::flipped_read)] = 1'000'000;
  }
};

TEST_CASE(
    "of a record some sectors can be had, neighbours in one request, with a head that is lent") {
  OneRecord one;
  auto& [box, bench, record, ref, head, part] = one;
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
  StoreLimits no_gaps = box_limits(40);
  no_gaps.gap_sectors_max = 0;
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot(no_gaps);
  const auto payload = bench->buffer(record.payload.size());
  const RecordRef again = *bench->store.find(record.key);
  REQUIRE(bench->store.read({.ref = again, .payload = payload, .sectors = too_many, .tag = 4}) ==
          Begun::begun);
  CHECK(bench->wait_for(4).outcome == Outcome::ok);
  CHECK(bench->store.stats().n_requests == kRunsMax + 1);
  CHECK(std::memcmp(payload.data() + 58 * kSectorBytes, record.payload.data() + 58 * kSectorBytes,
                    kSectorBytes) == 0);
  bench->close();
}

TEST_CASE("a part of a record lands at the begin of its buffer, verified") {
  OneRecord one;
  auto& [box, bench, record, ref, head, part] = one;
  const auto read_from = [&](u32 first_sector) {
    return one.read(
        {.ref = one.ref, .payload = one.part, .first_sector = first_sector, .head = one.head});
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
  one.flip_reads();
  CHECK(read_from(7) == Outcome::corrupt);
  bench->close();
}

TEST_CASE("a head that is known is believed, and no byte of the payload is") {
  OneRecord one;
  auto& [box, bench, record, ref, head, part] = one;
  const RecordRef other = one.put(record_of(2, {.payload_bytes = 60 * kSectorBytes}));
  const auto read = [&](RecordRef of, bool is_known) {
    return one.read({.ref = of,
                     .payload = one.part,
                     .first_sector = 7,
                     .head = one.head,
                     .head_is_known = is_known});
  };
  CHECK(read(ref, false) == Outcome::ok);
  std::memset(part.data(), 0, part.size());
  const u64 n_requests = bench->store.stats().n_requests;
  CHECK(read(ref, true) == Outcome::ok);
  CHECK(bench->store.stats().n_requests == n_requests + 1);
  CHECK(std::memcmp(part.data(), record.payload.data() + 7 * kSectorBytes, part.size()) == 0);
  CHECK(read(other, true) == Outcome::corrupt);  // not its head
  one.flip_reads();
  CHECK(read(ref, true) == Outcome::corrupt);
  bench->close();
}

TEST_CASE("a reader who verifies a payload himself is told by holds(), and rejects the record") {
  OneRecord one;
  auto& [box, bench, record, ref, head, part] = one;
  const auto read = [&](u32 first_sector) {
    return one.read({.ref = one.ref,
                     .payload = one.part,
                     .first_sector = first_sector,
                     .head = one.head,
                     .is_checked_later = true});
  };
  CHECK(read(57) == Outcome::ok);
  CHECK(bench->store.holds(head, 57, part));
  CHECK(bench->store.holds(head, 58, part.subspan(kSectorBytes)));
  CHECK_FALSE(bench->store.holds(head, 56, part));
  CHECK_FALSE(bench->store.holds(head, 58, part));  // beyond the record's end
  one.flip_reads();
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

}  // namespace
}  // namespace tarn::store::store_read_test
