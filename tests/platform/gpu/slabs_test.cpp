// Goal    pieces lie one behind the other, none across the end of a slab, and the cut says to the
//         byte what will be reserved.
// Method  a table of piece lists with the slabs that they must give; random lists against the
//         invariants; a device that has no room for the last slab.
#include "platform/gpu/slabs.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/fake_device.h"

namespace tarn::slabs_test {
namespace {

using test::FakeDevice;
using test::kOrinFacts;

constexpr DeviceFacts kFacts = {.slab_bytes_max = 4096, .slab_alignment_bytes = 1024};

TEST_CASE("slabs end where the next piece would pass their limit") {
  struct Case {
    const char* name;
    std::vector<u64> pieces;
    std::vector<u64> slabs;
  };
  const Case cases[] = {
      {"none", {}, {}},
      {"one byte takes a whole alignment of the driver", {1}, {1024}},
      {"pieces are aligned to 256", {1, 256, 257}, {1024}},
      {"exactly full", {4096}, {4096}},
      {"one more byte", {4096, 1}, {4096, 1024}},
      {"a long piece stands alone", {100, 10000, 100}, {1024, 10240, 1024}},
      {"nothing is put back into an earlier slab", {3000, 2000, 200}, {3072, 3072}},
      {"what is empty takes nothing", {0, 0, 256}, {1024}}};
  for (const Case& c : cases) {
    CAPTURE(c.name);
    SlabCutter cut(kFacts);
    for (const u64 bytes : c.pieces) cut.add(bytes);
    REQUIRE(cut.valid());
    std::vector<u64> slabs;
    u64 total = 0;
    for (u32 i = 0; i < cut.n_slabs(); ++i) {
      slabs.push_back(cut.slab_bytes(i));
      total += slabs.back();
    }
    CHECK(slabs == c.slabs);
    CHECK(cut.total_bytes().get() == total);
  }
}

TEST_CASE("random pieces: no two overlap, none leaves its slab") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < 50; ++round) {
    SlabCutter cut(kFacts);
    SlabOffset last{};
    u64 last_end = 0;
    for (u32 i = 0; i < 200; ++i) {
      const u64 bytes = random.below(i % 17 == 0 ? 9000 : 1500);
      const SlabOffset place = cut.add(bytes);
      REQUIRE(cut.valid());
      CHECK(place.offset_bytes % kDevicePieceAlignment == 0);
      CHECK(place.offset_bytes + bytes <= cut.slab_bytes(place.slab_idx));
      const bool follows = i == 0 || place.slab_idx == last.slab_idx + 1
                               ? place.offset_bytes == 0
                               : place.slab_idx == last.slab_idx && place.offset_bytes >= last_end;
      CHECK(follows);
      last = place;
      last_end = place.offset_bytes + bytes;
    }
  }
}

TEST_CASE("many pieces of one size lie as they do one by one, and each is found again") {
  for (const u64 bytes : {0u, 1u, 256u, 1000u, 4096u, 5000u}) {
    for (const u64 n : {0u, 1u, 2u, 7u, 100u}) {
      CAPTURE(bytes);
      CAPTURE(n);
      SlabCutter at_once(kFacts), singly(kFacts);
      at_once.add(300);
      singly.add(300);
      const SlabOffset first = at_once.add(bytes, n);
      for (u64 i = 0; i < n; ++i) {
        const SlabOffset place = singly.add(bytes);
        if (bytes == 0) continue;  // nothing to be found
        const SlabOffset found = at_once.of_run(first, bytes, i);
        CHECK(found.slab_idx == place.slab_idx);
        CHECK(found.offset_bytes == place.offset_bytes);
      }
      REQUIRE(at_once.n_slabs() == singly.n_slabs());
      for (u32 i = 0; i < singly.n_slabs(); ++i) {
        CHECK(at_once.slab_bytes(i) == singly.slab_bytes(i));
      }
    }
  }
}

TEST_CASE("sizes that no machine has make the cut invalid, and it stays so") {
  SlabCutter wrapped(kFacts);
  wrapped.add(Checked(~u64{0}) + 1);
  CHECK_FALSE(wrapped.valid());
  wrapped.add(1);
  CHECK_FALSE(wrapped.valid());
  CHECK_FALSE(wrapped.total_bytes().valid());
  SlabCutter sum(kFacts);
  for (u32 i = 0; i < 3; ++i) sum.add(u64{1} << 63);
  CHECK(sum.valid());
  CHECK_FALSE(sum.total_bytes().valid());
  SlabCutter many(kFacts);
  many.add(4096, kDeviceSlabsMax);
  CHECK(many.valid());
  many.add(4096);
  CHECK_FALSE(many.valid());
}

TEST_CASE("all slabs are reserved or none, and an address is where the cut said") {
  FakeDevice device(kOrinFacts);
  SlabCutter cut(device.facts());
  cut.add(3 * kMiB, 4);
  const SlabOffset place = cut.add(kMiB);
  REQUIRE(cut.n_slabs() == 2);
  {
    DeviceSlabs slabs;
    REQUIRE(slabs.reserve(device, cut).has_value());
    CHECK(slabs.total_bytes() == cut.total_bytes().get());
    CHECK(device.leaks() == "2 slabs");
    CHECK(slabs.at(place) == slabs.at({place.slab_idx, 0}) + place.offset_bytes);
  }
  CHECK(device.leaks().empty());

  device.driver_takes_bytes = device.facts().memory_free_bytes - 9 * kMiB;  // room for one slab
  DeviceSlabs slabs;
  const auto short_of = slabs.reserve(device, cut);
  REQUIRE_FALSE(short_of.has_value());
  CHECK(short_of.error().status == Status::over_budget);
  CHECK(device.leaks().empty());
  device.driver_takes_bytes = 0;
  CHECK(slabs.reserve(device, cut).has_value());
  slabs.release();
}

TEST_CASE("the system's memory keeps its headroom, to the byte") {
  DeviceFacts facts = test::kOrinFacts;
  facts.headroom_bytes = kGiB;
  CHECK(check_headroom(facts, "a slab", 3 * kGiB, 4 * kGiB).has_value());
  const Result<void> refused = check_headroom(facts, "a slab", 3 * kGiB + 1, 4 * kGiB);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().status == Status::over_budget);
  CHECK(std::string(refused.error().detail.c_str()) == "a slab");
  CHECK(refused.error().figures[2].value == kGiB);
  CHECK_FALSE(check_headroom(facts, "a slab", 0, kGiB - 1).has_value());
  CHECK_FALSE(check_headroom(facts, "a slab", ~u64{0}, 4 * kGiB).has_value());
  facts.headroom_bytes = 0;
  CHECK(check_headroom(facts, "a slab", 4 * kGiB, 4 * kGiB).has_value());
}

}  // namespace
}  // namespace tarn::slabs_test
