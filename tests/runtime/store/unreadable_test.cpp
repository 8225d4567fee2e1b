// Goal    sectors that the disk has lost cost what lay in them and no more: a label is written
//         again from the other one, a record whose head is lost is absent and its frames are used
//         again, and the store comes up. A disk that gives nothing turns it off.
// Method  the simulated disk with sectors that end every read with EIO until they are written.
#include <doctest/doctest.h>

#include "runtime/store/store.h"
#include "runtime/store/store_scan.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::store::unreadable_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Got = StoreHarness::Got;

constexpr u32 kFrames = 220;

struct Box : test::StoreBox {
  std::unique_ptr<StoreHarness> boot() { return StoreBox::boot(test::box_limits(kFrames)); }
  void fill(u64 n_records) {
    auto bench = boot();
    for (u64 id = 1; id <= n_records; ++id) {
      REQUIRE(bench->put(record_of(id)));
    }
    REQUIRE(bench->flush());
    frames.clear();
    for (u64 id = 1; id <= n_records; ++id) {
      frames.push_back(bench->store.find(test::key_of(id))->frame_idx);
    }
    bench->close();
  }
  void spoil_frame(u64 frame) {
    disk.spoil_sector("store", kFramesBegin + frame * test::kBoxFrameBytes);
  }

  std::vector<u64> frames;  // of the records from 1 on
};

TEST_CASE("a label that cannot be read is written again from the other one") {
  for (const u64 lost : {0u, 1u}) {
    CAPTURE(lost);
    Box box;
    box.fill(20);
    const auto image = box.disk.file_bytes("store");
    box.disk.spoil_sector("store", lost * kSectorBytes);
    {
      alignas(kSectorBytes) static std::array<std::byte, kFramesBegin> sectors;
      test::SimIo io(box.disk, box.clock);
      const auto cut = read_cut(io, crc32c_ways()[0], "store", sectors);
      REQUIRE(cut.has_value());
      CHECK(cut->n_frames == kFrames);
    }
    for (const u32 boot : {0u, 1u}) {
      CAPTURE(boot);
      auto bench = box.boot();
      REQUIRE(bench->store.mode() == Mode::on);
      for (u64 id = 1; id <= 20; ++id) CHECK(bench->get(record_of(id)) == Got::right);
      bench->close();
      CHECK(box.disk.file_bytes("store") == image);
    }
  }
}

TEST_CASE("without a label that is good the file is left alone where one cannot be read") {
  for (const bool both : {false, true}) {
    CAPTURE(both);
    Box box;
    box.fill(2);
    if (!both) box.disk.flip_bit("store", 8 * 100);
    if (both) box.disk.spoil_sector("store", 0);
    box.disk.spoil_sector("store", kSectorBytes);
    const auto image = box.disk.file_bytes("store");
    auto bench = box.boot();
    CHECK(bench->store.mode() == Mode::off);
    CHECK(bench->store.why().status == Status::io_failed);
    CHECK(bench->store.why().figures[0].value == 5);  // EIO
    CHECK(box.disk.file_bytes("store") == image);
    bench->close();
  }
}

TEST_CASE("heads that cannot be read cost their own records alone, at every start") {
  Box box;
  constexpr u64 kRecords = 100;
  box.fill(kRecords);
  const auto is_lost = [](u64 id) { return id % 7 == 3; };
  u32 n_lost = 0;
  for (u64 id = 1; id <= kRecords; ++id) {
    if (!is_lost(id)) continue;
    box.spoil_frame(box.frames[id - 1]);
    ++n_lost;
  }
  REQUIRE(n_lost > 10);
  for (const u32 boot : {0u, 1u}) {
    CAPTURE(boot);
    auto bench = box.boot();
    REQUIRE(bench->store.mode() == Mode::on);
    CHECK(bench->store.stats().n_unread_at_start == n_lost);
    CHECK(bench->store.index().n_records() == kRecords - n_lost);
    for (u64 id = 1; id <= kRecords; ++id) {
      const auto record = record_of(id);
      CHECK(bench->get(record) == (is_lost(id) ? Got::absent : Got::right));
    }
    bench->check();
    bench->close();
  }
  auto bench = box.boot();  // what is written over them can be read
  for (u64 id = 1; id <= kRecords; ++id) {
    const auto record = record_of(id);
    CHECK(bench->put(record) == is_lost(id));
  }
  REQUIRE(bench->flush());
  bench->close();
  bench = box.boot();
  for (u64 id = 1; id <= kRecords; ++id) {
    CHECK(bench->get(record_of(id)) == Got::right);
  }
  bench->close();
}

TEST_CASE("damaged heads are counted, and nothing else is taken for one") {
  Box box;
  constexpr u64 kRecords = 60;
  box.fill(kRecords);
  {
    auto bench = box.boot();  // records that were replaced, erased and written over
    for (u64 id = 1; id <= kRecords; id += 3) {
      REQUIRE(bench->put(record_of(id), PutArgs::If::replace));
    }
    for (u64 id = 2; id <= kRecords; id += 3) {
      REQUIRE(bench->store.erase(*bench->store.find(test::key_of(id)), id) == Begun::begun);
      REQUIRE(bench->flush());
    }
    REQUIRE(bench->flush());
    bench->close();
  }
  auto bench = box.boot();
  CHECK(bench->store.stats().n_damaged_at_start == 0);
  CHECK_FALSE(bench->store.stats().labels_lost);
  std::vector<u64> frames;
  for (u64 id = 1; id <= kRecords; id += 3) {
    frames.push_back(bench->store.find(test::key_of(id))->frame_idx);
  }
  bench->close();
  for (u32 i = 0; i < frames.size(); ++i) {  // any bit of a head, of its magic, too
    const u64 byte = kFramesBegin + frames[i] * test::kBoxFrameBytes;
    box.disk.flip_bit("store", 8 * byte + (i % 2 == 0 ? i : 37 + 997 * i));
  }
  bench = box.boot();
  CHECK(bench->store.stats().n_damaged_at_start == frames.size());
  bench->close();
}

TEST_CASE("a file that has lost its labels begins anew, and says that it was no new one") {
  struct Case {
    const char* name;
    bool is_lost;
    void (*change)(test::SimDisk&);
  };
  const Case cases[] = {
      {"a file that is new", false, [](test::SimDisk&) {}},
      {"a file of zeros, as a crash leaves it", false,
       [](test::SimDisk& disk) { disk.write_file("store", std::vector<std::byte>(65536)); }},
      {"both labels damaged", true,
       [](test::SimDisk& disk) {
         std::vector<std::byte> bytes(65536, std::byte{7});
         disk.write_file("store", bytes);
       }},
      {"a file that was cut off within its labels", true,
       [](test::SimDisk& disk) { disk.write_file("store", std::vector<std::byte>(100)); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Box box;
    c.change(box.disk);
    auto bench = box.boot();
    CHECK(bench->store.mode() == Mode::on);
    CHECK(bench->store.stats().labels_lost == c.is_lost);
    bench->close();
  }
}

TEST_CASE("a disk that gives no head turns the store off, with its errno") {
  Box box;
  box.fill(100);
  for (u64 frame = 50; frame < 50 + kUnreadInARowMax + 20; ++frame) box.spoil_frame(frame);
  auto bench = box.boot();
  CHECK(bench->store.mode() == Mode::off);
  CHECK(bench->store.why().figures[0].value == 5);
  bench->close();
}

}  // namespace
}  // namespace tarn::store::unreadable_test
