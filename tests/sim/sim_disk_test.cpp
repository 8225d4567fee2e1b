// Goal    the simulated disk does what its script says and nothing else: each fault of the model
//         takes hold, is counted, and repeats from its seed; power loss takes back what was not
//         synced, in any subset, torn at 512 bytes, and never what was.
// Method  small scripts with a known outcome; sets of outcomes over many seeds; the contract that
//         it shares with the real backends is tests/platform/io_contract_test.cpp.
#include "tests/support/sim_disk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "tests/support/asserts.h"
#include "tests/support/io_worlds.h"

namespace tarn::test::sim_disk_test {
namespace {

constexpr u64 kFileSectors = 8;

// A disk with one file of a known byte per sector, and a process that has it open.
struct Bench {
  explicit Bench(u64 seed = 1) : disk(seed), memory(kFileSectors * kSectorBytes) {
    disk.write_file("f", contents(1));
    boot();
  }
  static std::vector<std::byte> contents(u8 base) {
    std::vector<std::byte> bytes(kFileSectors * kSectorBytes);
    for (u64 i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(base + i / kSectorBytes);
    return bytes;
  }
  void boot() {
    io.reset();
    io = std::make_unique<SimIo>(disk, clock);
    file = io->open({.path = "f", .write = true}).value();
  }
  std::span<std::byte> sectors(u64 first, u64 n) {
    return memory.span().subspan(first * kSectorBytes, n * kSectorBytes);
  }
  i64 write(u64 first, u64 n, u8 value) {
    std::fill(sectors(first, n).begin(), sectors(first, n).end(), static_cast<std::byte>(value));
    return run_one(*io, {.op = IoOp::write,
                         .file = file,
                         .offset = first * kSectorBytes,
                         .buffer = sectors(first, n)});
  }
  i64 read(u64 first, u64 n) {
    return run_one(*io, {.op = IoOp::read,
                         .file = file,
                         .offset = first * kSectorBytes,
                         .buffer = sectors(first, n)});
  }
  i64 sync() { return run_one(*io, {.op = IoOp::sync_data, .file = file}); }
  u8 at(u64 byte_idx) const { return static_cast<u8>(disk.file_bytes("f")[byte_idx]); }
  void script(SimFault fault, u64 n_calls = 1, int error = EIO) {
    disk.script.faults = {
        {.fault = fault, .first_call = disk.n_calls(), .n_calls = n_calls, .error = error}};
  }

  SimDisk disk;
  VirtualClock clock;
  SectorBuffer memory;
  std::unique_ptr<SimIo> io;
  IoFile file{};
};

TEST_CASE("power loss keeps what was synced and any subset of the rest") {
  std::set<u64> outcomes;
  for (u64 seed = 0; seed < 200; ++seed) {
    Bench bench;
    REQUIRE(bench.write(0, 1, 100) == kSectorBytes);
    REQUIRE(bench.sync() == 0);
    for (u64 i = 0; i < 3; ++i) REQUIRE(bench.write(i, 1, static_cast<u8>(101 + i)) > 0);
    CHECK(bench.disk.unsynced_writes() == 3);
    SimDisk none = bench.disk, all = bench.disk, some = bench.disk, second = bench.disk;
    none.power_loss({.kept = SimKept::none});
    all.power_loss({.kept = SimKept::all});
    second.power_loss({.kept = SimKept::by_mask, .mask = 2});
    some.power_loss({.kept = SimKept::some, .seed = seed});
    CHECK(none.file_bytes("f")[0] == std::byte{100});
    CHECK(none.file_bytes("f")[kSectorBytes] == std::byte{2});
    CHECK(all.file_bytes("f")[0] == std::byte{101});
    CHECK(all.file_bytes("f")[2 * kSectorBytes] == std::byte{103});
    CHECK(second.file_bytes("f")[0] == std::byte{100});
    CHECK(second.file_bytes("f")[kSectorBytes] == std::byte{102});
    u64 kept = 0;
    for (u64 i = 0; i < 3; ++i) {
      const std::byte byte = some.file_bytes("f")[i * kSectorBytes];
      if (byte == static_cast<std::byte>(101 + i)) kept |= 1u << i;
    }
    outcomes.insert(kept);
  }
  CHECK(outcomes.size() == 8);
}

TEST_CASE("a torn write keeps some of its pieces of 512 bytes, whole") {
  std::set<u64> outcomes;
  for (u64 seed = 0; seed < 50; ++seed) {
    Bench bench;
    REQUIRE(bench.write(3, 1, 200) == kSectorBytes);
    bench.disk.power_loss({.kept = SimKept::all, .torn = true, .seed = seed});
    u64 kept = 0;
    for (u64 piece = 0; piece < 8; ++piece) {
      const u64 begin = 3 * kSectorBytes + piece * kTornBytes;
      const u8 first = bench.at(begin);
      REQUIRE((first == 200 || first == 4));
      for (u64 i = 0; i < kTornBytes; ++i) REQUIRE(bench.at(begin + i) == first);
      if (first == 200) kept |= 1u << piece;
    }
    outcomes.insert(kept);
  }
  CHECK(outcomes.size() > 30);
}

TEST_CASE("a write on its way may be on the medium or not, and a sync does not wait for it") {
  bool seen[2] = {};
  for (u64 seed = 0; seed < 40; ++seed) {
    Bench bench(seed);
    std::fill(bench.sectors(0, 1).begin(), bench.sectors(0, 1).end(), std::byte{77});
    REQUIRE(
        bench.io->submit({.op = IoOp::write, .file = bench.file, .buffer = bench.sectors(0, 1)}));
    CHECK(bench.disk.unsynced_writes() == 1);
    SimDisk copy = bench.disk;
    copy.power_loss({.kept = SimKept::some, .seed = seed});
    seen[copy.file_bytes("f")[0] == std::byte{77}] = true;
    bench.io.reset();  // the death of the process alone
    CHECK((bench.at(0) == 77 || bench.at(0) == 1));
  }
  CHECK(seen[0]);
  CHECK(seen[1]);

  // Both completions wait; the sync was asked before the write was done, so it owes it nothing.
  bool lost = false, kept = false;
  for (u64 seed = 0; seed < 200; ++seed) {
    Bench bench(seed);
    REQUIRE(
        bench.io->submit({.op = IoOp::write, .file = bench.file, .buffer = bench.sectors(0, 1)}));
    REQUIRE(bench.io->submit({.op = IoOp::sync_data, .file = bench.file}));
    IoCompletion completions[2];
    u32 n = 0;
    while (n < 2) n += bench.io->reap(std::span(completions).subspan(n), 1, ~u64{0});
    (bench.disk.unsynced_writes() == 1 ? lost : kept) = true;
  }
  CHECK(lost);
  CHECK(kept);
}

TEST_CASE("each fault of a call does what its name says, is counted, and ends with its script") {
  Bench bench;
  const auto hits = [&](SimFault fault) { return bench.disk.hits(fault); };
  for (const int error : {EIO, ENOSPC, EDQUOT, ENOMEM, EROFS, EBADF, ECANCELED}) {
    bench.script(SimFault::error, 2, error);
    CHECK(bench.read(0, 1) == -error);
    CHECK(bench.sync() == -error);
    CHECK(bench.read(0, 1) == kSectorBytes);
  }
  for (const int error : {EINTR, EAGAIN}) {  // tried again, as real backends do
    bench.script(SimFault::error, 3, error);
    CHECK(bench.read(0, 1) == kSectorBytes);
    bench.script(SimFault::error, ~u64{0}, error);
    CHECK(bench.read(0, 1) == -error);
  }
  CHECK(hits(SimFault::error) == 7 * 2 + 2 * (3 + IoTransfer::kRetriesMax + 1));

  bench.script(SimFault::short_call, 2);
  CHECK(bench.read(0, 8) == 8 * kSectorBytes);  // goes on where it stopped
  CHECK(hits(SimFault::short_call) == 2);
  bench.script(SimFault::no_progress);
  CHECK(bench.read(0, 1) == 0);
  bench.script(SimFault::no_progress);
  CHECK(bench.write(0, 1, 9) == -EIO);
  CHECK(bench.at(0) == 1);

  bench.script(SimFault::slow);
  const u64 before_ns = bench.clock.now_ns();
  CHECK(bench.read(0, 1) == kSectorBytes);
  CHECK(bench.clock.now_ns() - before_ns > 10'000'000'000);

  bench.script(SimFault::lost_write);
  CHECK(bench.write(0, 1, 9) == kSectorBytes);
  CHECK(bench.at(0) == 1);
  bench.script(SimFault::misdirected_write);
  CHECK(bench.write(7, 1, 9) == kSectorBytes);
  CHECK(bench.at(7 * kSectorBytes) == 8);
  const auto after = bench.disk.file_bytes("f");
  CHECK(std::count(after.begin(), after.end(), std::byte{9}) == static_cast<i64>(kSectorBytes));
  bench.disk.write_file("f", Bench::contents(1));
  bench.script(SimFault::zeroed_write);
  CHECK(bench.write(1, 2, 9) == 2 * kSectorBytes);
  CHECK((bench.at(kSectorBytes) == 0) != (bench.at(2 * kSectorBytes) == 0));

  const auto wrong_bits = [](std::span<const std::byte> bytes, u8 want) {
    int n = 0;
    for (const std::byte byte : bytes) n += __builtin_popcount(static_cast<u8>(byte) ^ want);
    return n;
  };
  bench.script(SimFault::flipped_write);
  CHECK(bench.write(4, 1, 9) == kSectorBytes);
  const auto flipped = bench.disk.file_bytes("f");
  CHECK(wrong_bits(std::span(flipped).subspan(4 * kSectorBytes, kSectorBytes), 9) == 1);
  bench.script(SimFault::flipped_read);
  CHECK(bench.read(5, 1) == kSectorBytes);
  CHECK(wrong_bits(bench.sectors(5, 1), 6) == 1);
  CHECK(bench.read(5, 1) == kSectorBytes);
  CHECK(wrong_bits(bench.sectors(5, 1), 6) == 0);
  for (u32 i = 0; i < kSimFaults; ++i) {
    const auto fault = static_cast<SimFault>(i);
    CAPTURE(sim_fault_name(fault));
    CHECK((fault == SimFault::never || hits(fault) > 0));
  }
}

TEST_CASE(
    "what never ends holds its buffer until it is let go, and waiting for it for ever asserts") {
  Bench bench;
  bench.script(SimFault::never);
  REQUIRE(bench.io->submit(
      {.op = IoOp::read, .file = bench.file, .buffer = bench.sectors(0, 1), .tag = 5}));
  IoCompletion one{};
  const u64 before_ns = bench.clock.now_ns();
  CHECK(bench.io->reap({&one, 1}, 1, 1'000'000'000) == 0);
  CHECK(bench.clock.now_ns() - before_ns == 1'000'000'000);
  CHECK(bench.io->n_in_flight() == 1);
  CHECK(asserts([&] { bench.io->reap({&one, 1}, 1, ~u64{0}); }));
  bench.io->let_stuck_go();
  CHECK(bench.io->reap({&one, 1}, 1, ~u64{0}) == 1);
  CHECK(one.tag == 5);
  CHECK(one.result == kSectorBytes);
}

TEST_CASE("a buffer that is written to while it is the backend's is found out") {
  Bench bench;
  REQUIRE(bench.io->submit({.op = IoOp::write, .file = bench.file, .buffer = bench.sectors(0, 1)}));
  CHECK(asserts([&] {
    bench.sectors(0, 1)[100] ^= std::byte{1};
    IoCompletion one{};
    bench.io->reap({&one, 1}, 1, ~u64{0});
  }));
  REQUIRE(bench.io->submit({.op = IoOp::read, .file = bench.file, .buffer = bench.sectors(1, 1)}));
  CHECK(bench.sectors(1, 1)[0] == std::byte{0xA5});  // nothing to be read yet
}

TEST_CASE("after a failed sync a write may be lost for good, and no later sync brings it back") {
  bool lost = false, kept = false;
  for (u64 seed = 0; seed < 40; ++seed) {
    Bench bench(seed);
    REQUIRE(bench.write(0, 1, 50) > 0);
    bench.script(SimFault::error);
    CHECK(bench.sync() == -EIO);
    CHECK(bench.at(0) == 50);  // it can still be read
    CHECK(bench.sync() == 0);
    bench.disk.power_loss({.kept = SimKept::all});
    (bench.at(0) == 50 ? kept : lost) = true;
  }
  CHECK(lost);
  CHECK(kept);
}

TEST_CASE("an error of a write leaves a part of it, in whole pieces of 512 bytes") {
  bool none = false, part = false;
  for (u64 seed = 0; seed < 60; ++seed) {
    Bench bench(seed);
    bench.script(SimFault::error);
    CHECK(bench.write(0, 2, 60) == -EIO);
    const auto bytes = bench.disk.file_bytes("f");
    const auto n = std::count(bytes.begin(), bytes.end(), std::byte{60});
    CHECK(n % static_cast<i64>(kTornBytes) == 0);
    (n == 0 ? none : part) = true;
  }
  CHECK(none);
  CHECK(part);
}

TEST_CASE("a full, read-only, cut or replaced file is met by the next call") {
  Bench bench;
  bench.disk.script.capacity_bytes = 10 * kSectorBytes;
  CHECK_FALSE(bench.io->allocate(bench.file, 11 * kSectorBytes).has_value());
  CHECK(bench.io->allocate(bench.file, 9 * kSectorBytes).has_value());
  const auto other = bench.io->open({.path = "g", .write = true, .create = true}).value();
  CHECK(run_one(*bench.io, {.op = IoOp::write, .file = other, .buffer = bench.sectors(0, 2)}) ==
        -ENOSPC);
  CHECK(run_one(*bench.io, {.op = IoOp::write, .file = other, .buffer = bench.sectors(0, 1)}) ==
        kSectorBytes);
  bench.disk.script.read_only = true;
  CHECK(bench.write(0, 1, 1) == -EROFS);
  CHECK_FALSE(bench.io->open({.path = "f", .write = true}).has_value());
  CHECK(bench.io->open({.path = "f"}).has_value());
  bench.disk.truncate_file("f", kSectorBytes + 100);
  CHECK(bench.read(0, 2) == kSectorBytes + 100);
  bench.disk.write_file("f", Bench::contents(70));
  CHECK(bench.read(0, 1) == kSectorBytes);
  CHECK(bench.sectors(0, 1)[0] == std::byte{70});
}

TEST_CASE("faults by chance come at their rate, in any order, and repeat from the seed") {
  struct Outcome {
    std::vector<i64> results;
    std::vector<u64> tags;
    u64 end_ns;
  };
  std::array<u64, kSimFaults> hits{};
  const auto run = [&](u64 seed) {
    Bench bench(seed);
    bench.disk.script.ppm.fill(20'000);
    bench.disk.script.ppm[static_cast<u32>(SimFault::never)] = 0;
    Outcome outcome{};
    for (u64 round = 0; round < 100; ++round) {
      for (u64 i = 0; i < kFileSectors; ++i) {
        REQUIRE(bench.io->submit({.op = round % 2 == 0 ? IoOp::write : IoOp::read,
                                  .file = bench.file,
                                  .offset = i * kSectorBytes,
                                  .buffer = bench.sectors(i, 1),
                                  .tag = i}));
      }
      IoCompletion completions[kFileSectors];
      REQUIRE(bench.io->reap(completions, kFileSectors, ~u64{0}) == kFileSectors);
      for (const IoCompletion& completion : completions) {
        outcome.results.push_back(completion.result);
        outcome.tags.push_back(completion.tag);
      }
    }
    for (u32 i = 0; i < kSimFaults; ++i) hits[i] += bench.disk.hits(static_cast<SimFault>(i));
    outcome.end_ns = bench.clock.now_ns();
    return outcome;
  };
  const Outcome one = run(7), again = run(7), other = run(8);
  CHECK(one.results == again.results);
  CHECK(one.tags == again.tags);
  CHECK(one.end_ns == again.end_ns);
  CHECK(one.tags != other.tags);
  CHECK_FALSE(std::is_sorted(one.tags.begin(), one.tags.begin() + kFileSectors));
  for (u32 i = 0; i < kSimFaults; ++i) {
    CAPTURE(sim_fault_name(static_cast<SimFault>(i)));
    const bool possible = i != static_cast<u32>(SimFault::never) &&
                          i != static_cast<u32>(SimFault::short_call);  // single sectors
    CHECK((hits[i] > 5) == possible);
    CHECK(hits[i] < 120);
  }
}

}  // namespace
}  // namespace tarn::test::sim_disk_test
