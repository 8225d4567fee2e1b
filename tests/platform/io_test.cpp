// Goal    io_uring and the thread pool keep one contract: every request ends exactly once, with the
//         right bytes or the right error, and never more are in flight than agreed; where the ring
//         is refused the threads take over and say why.
// Method  the same cases on every backend over a file on a real disk; random pieces from a printed
//         seed; children that forbid themselves io_uring; the transfer's arithmetic from a table of
//         answers that no test can make a kernel give.
#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "platform/io/io_transfer.h"
#include "tests/support/forked.h"
#include "tests/support/io_backends.h"
#include "tests/support/memory_io.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

namespace tarn {
namespace {

constexpr u64 kForever = ~u64{0};

// Bytes at an address that direct I/O accepts.
class Buffer {
 public:
  explicit Buffer(u64 bytes)
      : memory_(bytes + kSectorBytes),
        data_(reinterpret_cast<std::byte*>(
            (reinterpret_cast<std::uintptr_t>(memory_.data()) + kSectorBytes - 1) &
            ~std::uintptr_t{kSectorBytes - 1})),
        bytes_(bytes) {}
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::vector<std::byte> memory_;
  std::byte* data_;
  u64 bytes_;
};

std::vector<std::byte> random_bytes(test::Random& random, u64 n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

void write_file(const char* path, std::span<const std::byte> bytes) {
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(fd);
}

i64 run_one(IoBackend& io, const IoRequest& request) {
  REQUIRE(io.submit(request));
  IoCompletion completion{};
  REQUIRE(io.reap({&completion, 1}, 1, kForever) == 1);
  CHECK(completion.tag == request.tag);
  return completion.result;
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
  Buffer buffer(4 * kS);
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
  Buffer buffer(100);
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

TEST_CASE("random reads bring the right bytes on every backend") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const auto truth = random_bytes(random, 300 * kSectorBytes + 137);  // ends inside a sector
  const test::ScratchFile file("io_test");
  write_file(file.path(), truth);
  for (const IoKind kind : test::io_kinds_here()) {
    for (const bool direct : {false, true}) {
      for (const bool registered : {false, true}) {
        CAPTURE(kind_name(kind));
        CAPTURE(direct);
        CAPTURE(registered);
        constexpr u32 kInFlight = 7;
        constexpr u64 kPieceMax = 16 * kSectorBytes;
        test::OwnedIo io({.kind = kind, .in_flight_max = kInFlight});
        REQUIRE(io);
        const auto opened = io->open({.path = file.path(), .direct = direct});
        REQUIRE(opened.has_value());
        CHECK(io->size_bytes(*opened).value() == truth.size());

        const u64 grain = io->is_direct(*opened) ? kSectorBytes : 1;
        Buffer memory(kInFlight * kPieceMax);
        const auto whole = memory.span();
        if (registered && !io->register_buffers({&whole, 1})) continue;
        struct Asked {
          u64 offset;
          std::span<std::byte> buffer;
        };
        std::map<u64, Asked> in_flight;  // by tag
        std::vector<u64> free_pieces = {0, 1, 2, 3, 4, 5, 6};
        u64 n_asked = 0;
        while (n_asked < 400 || !in_flight.empty()) {
          while (n_asked < 400 && !free_pieces.empty()) {
            const u64 piece = free_pieces.back();
            const u64 bytes = std::max<u64>(1, random.below(kPieceMax / grain)) * grain;
            const u64 offset = random.below(truth.size() / grain + 1) * grain;
            const Asked asked{offset, whole.subspan(piece * kPieceMax, bytes)};
            std::fill(asked.buffer.begin(), asked.buffer.end(), std::byte{0xEE});
            const u64 tag = n_asked++ * 16 + piece;
            REQUIRE(io->submit({.op = IoOp::read,
                                .file = *opened,
                                .offset = offset,
                                .buffer = asked.buffer,
                                .tag = tag}));
            in_flight[tag] = asked;
            free_pieces.pop_back();
          }
          IoCompletion completions[4];
          const u32 n = io->reap(completions, 1, kForever);
          REQUIRE(n >= 1);
          for (u32 i = 0; i < n; ++i) {
            const auto found = in_flight.find(completions[i].tag);
            REQUIRE(found != in_flight.end());  // once, and one that was asked
            const Asked& asked = found->second;
            const u64 there = truth.size() - std::min<u64>(truth.size(), asked.offset);
            const u64 want_bytes = std::min<u64>(asked.buffer.size(), there);
            REQUIRE(completions[i].result == static_cast<i64>(want_bytes));
            REQUIRE(std::equal(
                asked.buffer.begin(), asked.buffer.begin() + static_cast<i64>(want_bytes),
                truth.begin() + static_cast<i64>(std::min<u64>(truth.size(), asked.offset))));
            free_pieces.push_back(completions[i].tag % 16);
            in_flight.erase(found);
          }
        }
        io->close(*opened);
      }
    }
  }
}

TEST_CASE("what was written and synced is there, also in a new backend of the other kind") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const IoKind kind : test::io_kinds_here()) {
    for (const bool direct : {false, true}) {
      CAPTURE(kind_name(kind));
      CAPTURE(direct);
      const test::ScratchFile file("io_test_write");
      const auto truth = random_bytes(random, 8 * kSectorBytes);
      Buffer memory(truth.size());
      std::copy(truth.begin(), truth.end(), memory.span().begin());
      {
        test::OwnedIo io({.kind = kind});
        REQUIRE(io);
        const auto opened =
            io->open({.path = file.path(), .write = true, .create = true, .direct = direct});
        REQUIRE(opened.has_value());
        for (u64 i = 8; i-- > 0;) {  // backwards: the file grows by a hole first
          CHECK(run_one(*io, {.op = IoOp::write,
                              .file = *opened,
                              .offset = i * kSectorBytes,
                              .buffer = memory.span().subspan(i * kSectorBytes, kSectorBytes),
                              .tag = i}) == kSectorBytes);
        }
        CHECK(run_one(*io, {.op = IoOp::sync_data, .file = *opened, .tag = 99}) == 0);
      }  // destroyed with the file still open
      for (const IoKind other : test::io_kinds_here()) {
        test::OwnedIo io({.kind = other});
        REQUIRE(io);
        const auto opened = io->open({.path = file.path(), .direct = direct});
        REQUIRE(opened.has_value());
        std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
        CHECK(io_read_exact(*io, *opened, 0, memory.span()).has_value());
        CHECK(std::equal(truth.begin(), truth.end(), memory.span().begin()));
      }
    }
  }
}

TEST_CASE("registered memory is found, and memory beside it is served as well") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const auto truth = random_bytes(random, 16 * kSectorBytes);
  const test::ScratchFile file("io_test_registered");
  write_file(file.path(), truth);
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(kind_name(kind));
    test::OwnedIo io({.kind = kind});
    REQUIRE(io);
    const auto opened = io->open({.path = file.path()});
    REQUIRE(opened.has_value());
    Buffer memory(6 * kSectorBytes);
    // Sectors 1 and 3 are registered, then only 4; reads may lie in one, in none, or across a
    // border.
    const std::span<std::byte> first[] = {memory.span().subspan(1 * kSectorBytes, kSectorBytes),
                                          memory.span().subspan(3 * kSectorBytes, kSectorBytes)};
    const std::span<std::byte> second[] = {memory.span().subspan(4 * kSectorBytes, kSectorBytes)};
    for (const std::span<const std::span<std::byte>> registered :
         {std::span<const std::span<std::byte>>(first),
          std::span<const std::span<std::byte>>(second), std::span<const std::span<std::byte>>()}) {
      const bool taken = io->register_buffers(registered);
      if (kind == IoKind::threads || registered.empty()) CHECK_FALSE(taken);
      for (u64 sector = 0; sector < 6; ++sector) {
        for (u64 n_sectors = 1; sector + n_sectors <= 6; ++n_sectors) {
          CAPTURE(sector);
          CAPTURE(n_sectors);
          const auto piece = memory.span().subspan(sector * kSectorBytes, n_sectors * kSectorBytes);
          std::fill(piece.begin(), piece.end(), std::byte{0xEE});
          const u64 offset = (sector + n_sectors) * kSectorBytes;
          REQUIRE(run_one(*io,
                          {.op = IoOp::read, .file = *opened, .offset = offset, .buffer = piece}) ==
                  static_cast<i64>(piece.size()));
          REQUIRE(std::equal(piece.begin(), piece.end(),
                             truth.begin() + static_cast<std::ptrdiff_t>(offset)));
        }
      }
    }
  }
}

TEST_CASE("no more is in flight than agreed, and what is not reaped counts") {
  const test::ScratchFile file("io_test_bound");
  write_file(file.path(), std::vector<std::byte>(16 * kSectorBytes));
  for (const IoKind kind : test::io_kinds_here()) {
    for (const u32 bound : {1u, 2u, 5u, kIoInFlightMax}) {
      CAPTURE(kind_name(kind));
      CAPTURE(bound);
      test::OwnedIo io({.kind = kind, .in_flight_max = bound});
      REQUIRE(io);
      CHECK(io->in_flight_max() == bound);
      const auto opened = io->open({.path = file.path()});
      REQUIRE(opened.has_value());
      Buffer memory(bound * kSectorBytes);
      const auto ask = [&](u64 tag) {
        return io->submit(
            {.op = IoOp::read,
             .file = *opened,
             .offset = tag % 16 * kSectorBytes,
             .buffer = memory.span().subspan(tag % bound * kSectorBytes, kSectorBytes),
             .tag = tag});
      };
      for (u64 tag = 0; tag < bound; ++tag) REQUIRE(ask(tag));
      CHECK_FALSE(ask(bound));
      IoCompletion one{};
      REQUIRE(io->reap({&one, 1}, 1, kForever) == 1);
      CHECK(ask(one.tag));  // exactly one place is free again
      CHECK_FALSE(ask(one.tag));
      std::vector<IoCompletion> rest(bound + 1);
      CHECK(io->reap(rest, bound + 1, kForever) == bound);  // asked for more than there is
      CHECK(io->reap(rest, 1, kForever) == 0);              // nothing in flight: no waiting
    }
  }
}

TEST_CASE("looking does not wait, and a timeout ends the waiting") {
  const test::ScratchFile file("io_test_look");
  write_file(file.path(), std::vector<std::byte>(kSectorBytes));
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(kind_name(kind));
    test::OwnedIo io({.kind = kind});
    REQUIRE(io);
    const auto opened = io->open({.path = file.path()});
    REQUIRE(opened.has_value());
    Buffer memory(kSectorBytes);
    REQUIRE(io->submit({.op = IoOp::read, .file = *opened, .buffer = memory.span(), .tag = 5}));
    IoCompletion one{};
    u64 n_looks = 0;
    while (io->reap({&one, 1}, 1, n_looks % 2 == 0 ? 0 : 100'000) == 0) ++n_looks;
    CHECK(one.tag == 5);
    CHECK(one.result == kSectorBytes);
  }
}

TEST_CASE("errors come back as they are, and the backend goes on") {
  const test::ScratchFile file("io_test_errors");
  for (const IoKind kind : test::io_kinds_here()) {
    CAPTURE(kind_name(kind));
    write_file(file.path(), std::vector<std::byte>(2 * kSectorBytes + 10));
    test::OwnedIo io({.kind = kind});
    REQUIRE(io);
    const auto direct = io->open({.path = file.path(), .direct = true});
    const auto buffered = io->open({.path = file.path(), .direct = false});
    REQUIRE(direct.has_value());
    REQUIRE(buffered.has_value());
    if (!io->is_direct(*direct)) TARN_SKIP("the build folder's file system has no direct I/O");
    CHECK_FALSE(io->is_direct(*buffered));
    Buffer memory(4 * kSectorBytes);
    const auto all = memory.span();
    struct Case {
      std::string name;
      IoRequest request;
      i64 want;
    };
    const Case cases[] = {
        {"offset off the sector", {IoOp::read, *direct, 512, all}, -EINVAL},
        {"length off the sector", {IoOp::read, *direct, 0, all.first(100)}, -EINVAL},
        {"memory off the sector", {IoOp::read, *direct, 0, all.subspan(512, 4096)}, -EINVAL},
        {"an offset that wraps", {IoOp::read, *buffered, ~u64{0}, all}, -EINVAL},
        {"a negative offset", {IoOp::read, *buffered, u64{1} << 63, all}, -EINVAL},
        {"a length that wraps", {IoOp::read, *buffered, (~u64{0} >> 1) - 5, all}, -EINVAL},
        {"a file that was opened to read", {IoOp::write, *buffered, 0, all}, -EBADF},
        {"direct past the end", {IoOp::read, *direct, 1 << 20, all}, 0},
        {"direct over the end", {IoOp::read, *direct, 4096, all}, 4106},
        {"buffered over the end", {IoOp::read, *buffered, 8200, all}, 2},
        {"unaligned is well when buffered", {IoOp::read, *buffered, 3, all.subspan(5, 7)}, 7},
        {"nothing", {IoOp::read, *buffered, 5, {}}, 0},
        {"nothing, direct", {IoOp::read, *direct, 4096, all.first(0)}, 0},
    };
    u64 tag = 1000;
    for (const Case& c : cases) {
      CAPTURE(c.name);
      IoRequest request = c.request;
      request.tag = tag++;
      CHECK(run_one(*io, request) == c.want);
    }
    // A file that shrinks after it was opened: shorter now, and an error for who needs it whole.
    REQUIRE(truncate(file.path(), kSectorBytes) == 0);
    CHECK(io->size_bytes(*direct).value() == kSectorBytes);
    CHECK(run_one(*io, {.op = IoOp::read, .file = *direct, .buffer = all}) == kSectorBytes);
    const auto exact = io_read_exact(*io, *direct, 0, all);
    REQUIRE_FALSE(exact.has_value());
    CHECK(exact.error().status == Status::io_failed);
    CHECK(exact.error().figures[0].value == kSectorBytes);
  }
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
      {"a folder", {.path = TARN_BINARY_DIR}, EISDIR},
      {"a folder to write", {.path = TARN_BINARY_DIR, .write = true}, EISDIR},
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
    Buffer memory(16);
    CHECK(run_one(*io, {.op = IoOp::read, .file = *proc, .buffer = memory.span()}) == 16);
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
    CHECK(run_one(*io, {.op = IoOp::read, .file = *again, .buffer = memory.span()}) == 16);
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
      Buffer memory(kSectorBytes);
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
      Buffer memory(16);
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
  const auto truth = random_bytes(random, 5 * kMiB + 100);
  Buffer memory(5 * kMiB + kSectorBytes);
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
}  // namespace tarn
