// Goal    the store survives power loss at any moment, any failing call, any flipped bit and any
//         damaged sector, and serves right bytes or none.
// Method  one scenario, its faults in turn (store_faults.h); a slice of what the slow test runs.
#include <doctest/doctest.h>

#include "tests/sim/store_faults.h"
#include "tests/sim/store_world.h"

namespace tarn::test::store_faults_test {
namespace {

TEST_CASE("power lost at every moment: a slice") { CHECK(try_power_losses(37) > 100); }
TEST_CASE("no head before its payload: a slice") { CHECK(try_publication_order(37) > 200); }
TEST_CASE("power lost in a replacement, then deleted") { CHECK(try_replacements() > 100); }
TEST_CASE("every call failed in turn: a slice") { CHECK(try_failing_calls(5, 1) > 200); }
TEST_CASE("every bit flipped: a slice") { CHECK(try_flipped_bits(2003) > 2'000); }
TEST_CASE("every bit of the labels: a slice") { CHECK(try_flipped_label_bits(509) > 100); }
TEST_CASE("every sector zeroed, stale, another one, or gone") { CHECK(try_damaged_blocks() > 500); }

// As a write leaves it there that was acknowledged and lost, or a backup that is put back.
TEST_CASE("the head of a longer record, in its own place, under an open store") {
  SimBox before(1, 14), box(1, 14);
  REQUIRE(before.boot() == store::Mode::on);
  REQUIRE(box.boot() == store::Mode::on);
  const auto frame_of = [](SimBox& of, u64 id) {
    REQUIRE(of.bench->put(world_record(id)));
    return of.bench->store.find(key_of(id))->frame_idx;
  };
  const u32 frame = frame_of(before, 4);
  u64 id = 8;  // of one sector before its payload
  while (frame_of(box, id) != frame && id < 36) id += 7;
  REQUIRE(id < 36);
  const std::vector<std::byte> old_bytes = before.disk.file_bytes("store");
  std::vector<std::byte> bytes = box.disk.file_bytes("store");
  const auto at = static_cast<std::ptrdiff_t>(store::kFramesBegin + frame * kSimFrameBytes);
  std::copy_n(old_bytes.begin() + at, kSectorBytes, bytes.begin() + at);
  box.disk.write_file("store", bytes);
  CHECK(box.get(id) == StoreHarness::Got::absent);
  CHECK(box.bench->put(world_record(2)));
  CHECK(box.get(2) == StoreHarness::Got::right);
  before.shut_down();
  box.shut_down();
}

}  // namespace
}  // namespace tarn::test::store_faults_test
