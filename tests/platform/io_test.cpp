// Goal    what the two real backends share, or do with a real system: the transfer's arithmetic,
//         which files they open, limits of the process; where the ring is refused the threads take
//         over and say why.
// Method  the arithmetic from a table of answers that no test can make a kernel give; children that
//         forbid themselves io_uring. The contract of all backends: io_contract_test.cpp.
#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>

#include "platform/io/io_transfer.h"
#include "tests/support/folders.h"
#include "tests/support/forked.h"
#include "tests/support/io_worlds.h"
#include "tests/support/memory_io.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

namespace tarn::io_test {
namespace {

constexpr u64 kForever = ~u64{0};

void write_file(const char* path, std::span<const std::byte> bytes) {
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(fd);
}

std::string kind_name(IoKind kind) { return kind == IoKind::uring ? "io_uring" : "threads"; }

TEST_CASE("a transfer goes on, tries again or ends as its answers say") {
  constexpr i64 kNone = -100000;
  constexpr u64 kS = kSectorBytes;
  struct Case {
    std::string name;
    IoOp op;
    bool direct;
    u64 bytes;
    std::vector<i64> answers;
    i64 want;  // kNone: still going on after all answers
    u64 want_offset_moved;
  };
  const Case cases[] = {
      {"all at once", IoOp::read, false, 100, {100}, 100, 100},
      {"in two parts", IoOp::read, false, 100, {40, 60}, 100, 100},
      {"a short read is not yet the end", IoOp::read, false, 100, {40}, kNone, 40},
      {"the end of the file", IoOp::read, false, 100, {40, 0}, 40, 40},
      {"nothing there", IoOp::read, false, 100, {0}, 0, 0},
      {"direct: whole sectors go on", IoOp::read, true, 3 * kS, {kS}, kNone, kS},
      {"direct: a cut sector is the end", IoOp::read, true, 3 * kS, {kS + 7}, kS + 7, kS + 7},
      {"an error", IoOp::read, false, 100, {-EIO}, -EIO, 0},
      {"an error after a part", IoOp::read, false, 100, {40, -EIO}, -EIO, 40},
      {"busy, then well", IoOp::read, false, 100, {-EAGAIN, -EINTR, 100}, 100, 100},
      {"more than was asked", IoOp::read, false, 100, {101}, -EIO, 0},
      {"write in parts", IoOp::write, false, 100, {1, 99}, 100, 100},
      {"write: the disk takes nothing", IoOp::write, false, 100, {50, 0}, -EIO, 50},
      {"write: full", IoOp::write, false, 100, {50, -ENOSPC}, -ENOSPC, 50},
      {"direct write cut inside a sector", IoOp::write, true, 2 * kS, {100}, -EIO, 100},
      {"sync", IoOp::sync_data, false, 0, {0}, 0, 0},
      {"sync again", IoOp::sync_data, false, 0, {-EINTR, 0}, 0, 0},
      {"sync failed", IoOp::sync_data, false, 0, {-EIO}, -EIO, 0},
  };
  test::SectorBuffer buffer(4 * kS);
  for (const Case& c : cases) {
    CAPTURE(c.name);
    IoTransfer transfer{
        .request = {.op = c.op, .offset = 8 * kS, .buffer = buffer.span().first(c.bytes)},
        .fd = 3,
        .direct = c.direct};
    CHECK_FALSE(transfer.without_a_call().has_value());
    std::optional<i64> result;
    for (const i64 answer : c.answers) {
      REQUIRE_FALSE(result.has_value());
      result = transfer.take(answer);
    }
    CHECK(result.value_or(kNone) == c.want);
    CHECK(transfer.next_offset() == 8 * kS + c.want_offset_moved);
  }
}

TEST_CASE("trying again is bounded, and progress starts the count anew") {
  test::SectorBuffer buffer(100);
  for (const i64 busy : {-EAGAIN, -EINTR}) {
    IoTransfer transfer{.request = {.op = IoOp::read, .buffer = buffer.span()}};
    for (u32 round = 0; round < 2; ++round) {
      for (u32 i = 0; i < IoTransfer::kRetriesMax; ++i) REQUIRE_FALSE(transfer.take(busy));
      if (round == 0) REQUIRE_FALSE(transfer.take(1));
    }
    CHECK(transfer.take(busy) == busy);
  }
}

TEST_CASE("a call is cut at the largest size the kernel takes") {
  std::byte first{};
  const u64 bytes = 5 * kGiB;  // never touched: only counted
  IoTransfer transfer{.request = {.op = IoOp::read, .buffer = {&first, bytes}}};
  u64 left = bytes;
  while (left > 0) {
    REQUIRE(transfer.next_bytes() == std::min(left, IoTransfer::kCallBytesMax));
    left -= transfer.next_bytes();
    const auto result = transfer.take(static_cast<i64>(transfer.next_bytes()));
    REQUIRE(result.has_value() == (left == 0));
  }
  CHECK(transfer.next_offset() == bytes);
}

TEST_CASE("a file that cannot be opened says why, and only files are opened") {
  const test::ScratchFile file("io_test_open");
  const test::ScratchFile fifo("io_test_fifo");
  REQUIRE(mkfifo(fifo.path(), 0600) == 0);
  struct Case {
    std::string name;
    IoOpenArgs args;
    u64 want_errno;
  };
  const Case cases[] = {
      {"missing", {.path = file.path()}, ENOENT},
      {"empty path", {.path = ""}, ENOENT},
      {"a folder", {.path = test::build_folder().c_str()}, EISDIR},
      {"a folder to write", {.path = test::build_folder().c_str(), .write = true}, EISDIR},
      {"a pipe nobody writes to", {.path = fifo.path()}, ENODEV},
      {"a device", {.path = "/dev/null"}, ENODEV},
      {"below a file", {.path = "/proc/self/status/x"}, ENOTDIR},
  };
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(kind_name(kind));
    test::OwnedIo io({.kind = kind});
    REQUIRE(io);
    for (const Case& c : cases) {
      for (const bool direct : {false, true}) {
        CAPTURE(c.name);
        IoOpenArgs args = c.args;
        args.direct = direct;
        const auto opened = io->open(args);
        REQUIRE_FALSE(opened.has_value());
        CHECK(opened.error().status == Status::io_failed);
        CHECK(opened.error().figures[0].value == c.want_errno);
      }
    }
    // A file system that refuses O_DIRECT: read through the page cache.
    const auto proc = io->open({.path = "/proc/self/status", .direct = true});
    REQUIRE(proc.has_value());
    CHECK_FALSE(io->is_direct(*proc));
    test::SectorBuffer memory(16);
    CHECK(test::run_one(*io, {.op = IoOp::read, .file = *proc, .buffer = memory.span()}) == 16);
    CHECK(std::memcmp(memory.span().data(), "Name:", 5) == 0);
    io->close(*proc);
    // The table is bounded and its places are used again.
    write_file(file.path(), std::vector<std::byte>(100));
    std::vector<IoFile> files;
    for (u32 i = 0; i < kIoFilesMax; ++i) {
      const auto opened = io->open({.path = file.path()});
      REQUIRE(opened.has_value());
      files.push_back(*opened);
    }
    CHECK_FALSE(io->open({.path = file.path()}).has_value());
    io->close(files[17]);
    const auto again = io->open({.path = file.path(), .direct = false});
    REQUIRE(again.has_value());
    CHECK(again->index == files[17].index);
    CHECK(test::run_one(*io, {.op = IoOp::read, .file = *again, .buffer = memory.span()}) == 16);
    unlink(file.path());
  }
}

TEST_CASE("a file-size limit is an error of the write, and no signal ends the process") {
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(kind_name(kind));
    const int outcome = test::in_child([kind] {
      signal(SIGXFSZ, SIG_IGN);  // the ring writes on the caller's own thread
      const rlimit limit = {kSectorBytes, kSectorBytes};
      const test::ScratchFile file("io_test_limit");
      test::OwnedIo io({.kind = kind});
      if (!io) return 1;
      const auto opened = io->open({.path = file.path(), .write = true, .create = true});
      if (!opened) return 2;
      setrlimit(RLIMIT_FSIZE, &limit);
      test::SectorBuffer memory(kSectorBytes);
      IoCompletion completion{};
      const IoRequest beyond{
          .op = IoOp::write, .file = *opened, .offset = kSectorBytes, .buffer = memory.span()};
      if (!io->submit(beyond) || io->reap({&completion, 1}, 1, kForever) != 1) return 3;
      return completion.result == -EFBIG ? 0 : 4;
    });
    CHECK(outcome == 0);
  }
}

TEST_CASE("where the ring is refused the threads serve and say why") {
  struct Case {
    std::string name;
    long number;
    int error;
  };
  const Case cases[] = {
      {"no such call", SYS_io_uring_setup, ENOSYS},
      {"forbidden", SYS_io_uring_setup, EPERM},
      {"set up, and then refused", SYS_io_uring_enter, EPERM},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const int outcome = test::in_child([&c] {
      if (!test::deny_syscall(static_cast<int>(c.number), c.error)) return 77;
      const test::OwnedIo ring({.kind = IoKind::uring});
      if (ring || std::strlen(ring.error().hint) < 10) return 1;
      test::OwnedIo io({.kind = IoKind::automatic});
      if (!io || std::strcmp(io->name(), "threads") != 0 || io.why_not() == nullptr) return 2;
      test::SectorBuffer memory(16);
      const auto proc = io->open({.path = "/proc/self/status"});
      return proc && io_read_exact(*io, *proc, 0, memory.span()) ? 0 : 3;
    });
    if (outcome == 77) TARN_SKIP("system calls cannot be filtered here");
    CHECK(outcome == 0);
  }
}

TEST_CASE("the kind that was asked for is the one that runs") {
  test::OwnedIo threads({.kind = IoKind::threads});
  REQUIRE(threads);
  CHECK(std::string(threads->name()) == "threads");
  CHECK(threads.why_not() == nullptr);
  test::OwnedIo ring({.kind = IoKind::uring});
  test::OwnedIo automatic({});
  REQUIRE(automatic);
  CHECK(std::string(automatic->name()) == (ring ? "io_uring" : "threads"));
  CHECK((automatic.why_not() == nullptr) == static_cast<bool>(ring));
  for (const IoConfig& config :
       {IoConfig{.in_flight_max = 0}, IoConfig{.in_flight_max = kIoInFlightMax + 1},
        IoConfig{.n_threads = 0}, IoConfig{.n_threads = kIoThreadsMax + 1}}) {
    const test::OwnedIo refused(config);
    CHECK_FALSE(refused);
    CHECK(refused.error().status == Status::invalid_config);
  }
  if (!ring) TARN_SKIP(ring.error().hint);
}

TEST_CASE("io_read_exact is exact whatever the order, and the first failure ends it") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const auto truth = test::random_bytes(random, 5 * kMiB + 100);
  test::SectorBuffer memory(5 * kMiB + kSectorBytes);
  for (const u64 order_seed : {0u, 1u, 2u, 3u}) {
    for (const u32 in_flight : {1u, 3u, 32u}) {
      CAPTURE(order_seed);
      CAPTURE(in_flight);
      test::MemoryIo io;
      io.script.order_seed = order_seed;
      io.script.in_flight_max = in_flight;
      const IoFile file = io.add(truth);
      const auto whole = memory.span().first(5 * kMiB);
      std::fill(whole.begin(), whole.end(), std::byte{0});
      CHECK(io_read_exact(io, file, 0, whole).has_value());
      CHECK(std::equal(whole.begin(), whole.end(), truth.begin()));
      CHECK(io_read_exact(io, file, kSectorBytes, memory.span().first(0)).has_value());
      const auto beyond = io_read_exact(io, file, 0, memory.span());
      REQUIRE_FALSE(beyond.has_value());
      CHECK(beyond.error().figures[0].value == truth.size());
      if (order_seed == 0) {  // two pieces are missing: the first is the one to tell
        test::MemoryIo cut;
        cut.script = io.script;
        const auto short_file = std::span(truth).first(3 * kMiB + kMiB / 2);
        const auto missing = io_read_exact(cut, cut.add(short_file), 0, whole);
        REQUIRE_FALSE(missing.has_value());
        CHECK(missing.error().figures[0].value == short_file.size());
      }
      for (u64 failing = 0; failing < 5; ++failing) {
        test::MemoryIo bad;
        bad.script = io.script;
        bad.script.fail_at_read = failing;
        const auto failed = io_read_exact(bad, bad.add(truth), 0, whole);
        REQUIRE_FALSE(failed.has_value());
        CHECK(failed.error().figures[0].value == EIO);
        IoCompletion left{};
        CHECK(bad.reap({&left, 1}, 1, 0) == 0);  // nothing stays behind
      }
    }
  }
}

}  // namespace
}  // namespace tarn::io_test
