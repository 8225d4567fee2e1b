// Goal    a store opens over whatever its file was before, grows and shrinks in place, and refuses
//         limits that cannot be.
// Method  files of the simulated disk, written and spoilt by hand.
#include <doctest/doctest.h>

#include <cstring>

#include "runtime/store/store.h"
#include "tests/runtime/store/store_box.h"

namespace tarn::store::store_file_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Box = test::StoreBox;
using Got = StoreHarness::Got;
using test::box_limits;
using test::kBoxFrameBytes;
using test::SimIo;

TEST_CASE("what the file was before decides nothing: foreign, cut, other sizes, one label, newer") {
  Box box;
  const auto record = record_of(1);
  const auto fresh = [&] {
    box.disk.write_file("store", {});
    auto bench = box.boot(box_limits(8));
    REQUIRE(bench->put(record));
    REQUIRE(bench->flush());
    bench->close();
  };
  fresh();
  StoreLimits other_frames = box_limits(9);
  other_frames.frame_bytes = 2 * kBoxFrameBytes;
  auto bench = box.boot(other_frames);  // cut otherwise: a new store
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->get(record) == Got::absent);
  bench->close();

  fresh();
  const auto image = box.disk.file_bytes("store");
  const Secret secret = [&] {
    auto other = box.boot(box_limits(8), 2);
    const Secret found = other->store.secret();
    other->close();
    return found;
  }();
  for (const u64 label : {0u, 1u}) {  // one label is lost: the other one serves, and mends it
    auto bytes = image;
    bytes[label * kSectorBytes + 100] ^= std::byte{1};
    box.disk.write_file("store", bytes);
    bench = box.boot(box_limits(8), 99);
    CHECK(bench->store.secret() == secret);
    CHECK(bench->get(record) == Got::right);
    bench->close();
    CHECK(box.disk.file_bytes("store") == image);
  }
  auto bytes = image;
  std::fill(bytes.begin(), bytes.begin() + kFramesBegin, std::byte{0});
  box.disk.write_file("store", bytes);
  bench = box.boot(box_limits(8), 99);  // both: a new store with a new secret, and nobody's records
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->store.secret() != secret);
  CHECK(bench->get(record) == Got::absent);
  bench->close();

  box.disk.write_file("store", std::span(image).first(kFramesBegin + 100));  // cut short
  bench = box.boot(box_limits(8));
  CHECK(bench->store.mode() == Mode::on);
  CHECK(bench->get(record) == Got::absent);
  CHECK(bench->put(record));
  bench->close();

  box.disk.write_file("store", std::vector<std::byte>(100'000, std::byte{7}));  // another's file
  bench = box.boot(box_limits(8));
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
  bench = box.boot(box_limits(8));
  CHECK(bench->store.mode() == Mode::off);
  CHECK(bench->store.why().status == Status::unsupported);
  CHECK(box.disk.file_bytes("store") == bytes);  // untouched
  bench->close();
}

TEST_CASE("a file is made longer or shorter in place, and a crash on the way costs no record") {
  Box box;
  auto bench = box.boot(box_limits(8));
  for (u64 id = 1; id <= 8; ++id) REQUIRE(bench->put(record_of(id)));
  REQUIRE(bench->flush());
  bench->close();
  const Secret secret = bench->store.secret();
  // Record 8 came last, round the end of the file into frame 0.
  const auto expect = [&](u32 n_frames, u64 n_kept) {
    CAPTURE(n_frames);
    auto opened = box.boot(box_limits(n_frames), 99);
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
    CHECK(cut->frame_bytes == kBoxFrameBytes);
    CHECK(box.disk.file_bytes("store").size() == kFramesBegin + n_frames * kBoxFrameBytes);
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

TEST_CASE("who keeps what is there gets no file shorter or cut anew, only a longer one") {
  Box box;
  auto bench = box.boot(box_limits(30));
  for (u64 id = 1; id <= 30; ++id) REQUIRE(bench->put(record_of(id)));
  REQUIRE(bench->flush());
  bench->close();
  const auto image = box.disk.file_bytes("store");
  StoreLimits shorter = box_limits(12), longer = box_limits(40), other = box_limits(30);
  other.frame_bytes = 2 * kBoxFrameBytes;
  shorter.keeps = longer.keeps = other.keeps = true;
  for (const StoreLimits& limits : {shorter, other}) {
    bench = box.boot(limits);
    CHECK(bench->store.mode() == Mode::off);
    CHECK(std::string(bench->store.why().hint).find("another layout") != std::string::npos);
    bench->close();
    CHECK(box.disk.file_bytes("store") == image);
  }
  bench = box.boot(longer);
  for (u64 id = 1; id <= 30; ++id) CHECK(bench->get(record_of(id)) == Got::right);
  bench->close();
}

TEST_CASE("a look at a file's cut knows a file that is not there from one that cannot be read") {
  Box box;
  alignas(kSectorBytes) static std::array<std::byte, kFramesBegin> sectors;
  const auto look = [&] {
    SimIo io(box.disk, box.clock);
    return read_cut(io, crc32c_ways()[0], "store", sectors);
  };
  const auto sees_none = [&] {
    const auto cut = look();
    return cut && cut->n_frames == 0 && cut->frame_bytes == 0;
  };
  CHECK(sees_none());
  for (const u64 n_bytes : {0u, 100u, 8191u, 100'000u}) {
    box.disk.write_file("store", std::vector<std::byte>(n_bytes, std::byte{7}));
    CHECK(sees_none());
  }
  box.disk.write_file("store", {});
  box.boot(box_limits(8))->close();
  CHECK(look().value().n_frames == 8);
  for (const u32 n_failing : {1u, 2u}) {  // reads, for the time of this look
    box.disk.script.faults = {
        {.fault = test::SimFault::error, .first_call = box.disk.n_calls(), .n_calls = n_failing}};
    const auto cut = look();
    REQUIRE(cut.has_value() == (n_failing == 1));
    if (cut) CHECK(cut->n_frames == 8);
    if (!cut) CHECK(cut.error().status == Status::io_failed);
  }
}

// The file as it is, with labels that say something else.
void change_labels(Box& box, u64 frame_bytes, u32 n_frames) {
  auto bytes = box.disk.file_bytes("store");
  Label label;
  REQUIRE(parse_label(crc32c_ways()[0], std::span(bytes).first(kSectorBytes), label) ==
          LabelState::good);
  label.frame_bytes = frame_bytes;
  label.n_frames = n_frames;
  for (u64 i = 0; i < kLabels; ++i) {
    encode_label(crc32c_ways()[0], label, std::span(bytes).subspan(i * kSectorBytes, kSectorBytes));
  }
  box.disk.write_file("store", bytes);
}

Cut cut_of(Box& box) {
  alignas(kSectorBytes) static std::array<std::byte, kFramesBegin> sectors;
  SimIo io(box.disk, box.clock);
  return read_cut(io, crc32c_ways()[0], "store", sectors).value();
}

TEST_CASE("a label whose frames no store has is nobody's") {
  for (const u64 frame_bytes :
       {u64{0}, u64{1}, u64{2048}, u64{4095}, kSectorBytes, 2 * kSectorBytes - 1,
        2 * kSectorBytes + 512, kBoxFrameBytes + 2048, ~u64{0}}) {
    CAPTURE(frame_bytes);
    Box box;
    box.boot(box_limits(8))->close();
    change_labels(box, frame_bytes, 8);
    const Cut cut = cut_of(box);
    CHECK(cut.frame_bytes == 0);
    CHECK(cut.n_frames == 0);
    auto bench = box.boot(box_limits(8));
    CHECK(bench->store.mode() == Mode::on);
    bench->close();
    CHECK(cut_of(box).frame_bytes == kBoxFrameBytes);
  }
  Box box;
  box.boot(box_limits(8))->close();
  change_labels(box, 2 * kSectorBytes, 8);
  CHECK(cut_of(box).frame_bytes == 2 * kSectorBytes);
}

TEST_CASE("a label that promises more frames than the file has gets no more than those") {
  for (const u32 n_said : {9u, 1u << 20, 1u << 30, ~u32{0}}) {
    CAPTURE(n_said);
    Box box;
    auto bench = box.boot(box_limits(8));
    for (u64 id = 1; id <= 8; ++id) REQUIRE(bench->put(record_of(id)));
    REQUIRE(bench->flush());
    bench->close();
    change_labels(box, kBoxFrameBytes, n_said);
    REQUIRE(cut_of(box).n_frames == 8);
    StoreLimits limits = box_limits(8);
    limits.keeps = true;
    bench = box.boot(limits);
    REQUIRE(bench->store.mode() == Mode::on);
    for (u64 id = 1; id <= 8; ++id) CHECK(bench->get(record_of(id)) == Got::right);
    bench->close();
    // And says so from now on.
    Label label;
    const auto image = box.disk.file_bytes("store");
    for (u64 i = 0; i < kLabels; ++i) {
      const auto sector = std::span(image).subspan(i * kSectorBytes, kSectorBytes);
      REQUIRE(parse_label(crc32c_ways()[0], sector, label) == LabelState::good);
      CHECK(label.n_frames == 8);
    }
    // Nothing but labels.
    change_labels(box, u64{1} << 63, n_said);
    CHECK(cut_of(box).n_frames == 0);
    change_labels(box, kBoxFrameBytes, n_said);
    const auto labels = box.disk.file_bytes("store");
    box.disk.write_file("store", std::span(labels).first(kFramesBegin));
    CHECK(cut_of(box).n_frames == 0);
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
    StoreLimits limits = box_limits(8);
    change(limits);
    const auto bytes = store_bytes(limits);
    return !bytes && bytes.error().status == Status::invalid_config;
  };
  CHECK_FALSE(refused([](StoreLimits&) {}));
  CHECK(refused([](StoreLimits& l) { l.file_bytes = kFramesBegin + kBoxFrameBytes - 1; }));
  CHECK(refused([](StoreLimits& l) { l.frame_bytes = 4096; }));
  CHECK(refused([](StoreLimits& l) { l.frame_bytes = 10000; }));
  CHECK(refused([](StoreLimits& l) { l.file_bytes = ~u64{0}; }));
  CHECK(refused([](StoreLimits& l) { l.ops_max = 0; }));
  CHECK(refused([](StoreLimits& l) { l.ops_max = kOpsMax + 1; }));
  CHECK(refused([](StoreLimits& l) { l.head_bytes_max = 0; }));
  CHECK(refused([](StoreLimits& l) { l.head_bytes_max = 1 * kMiB; }));
}

}  // namespace
}  // namespace tarn::store::store_file_test
