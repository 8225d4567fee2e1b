// Goal    io_uring, the thread pool and the simulated disk keep one contract: every request ends
//         exactly once, with the right bytes or the right error, and never more are in flight than
//         agreed.
// Method  the same cases on every backend, the real ones over a file on a real disk; random pieces
//         from a printed seed.
#include <doctest/doctest.h>
#include <errno.h>

#include <algorithm>
#include <map>

#include "tests/support/io_worlds.h"
#include "tests/support/seed.h"
#include "tests/support/skip.h"

namespace tarn::io_contract_test {
namespace {

using test::random_bytes;
using test::run_one;
using test::SectorBuffer;

constexpr u64 kForever = ~u64{0};

TEST_CASE("random reads bring the right bytes on every backend") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const auto truth = random_bytes(random, 300 * kSectorBytes + 137);  // ends inside a sector
  for (const auto& world : test::io_worlds_here("io_contract")) {
    world->write_file(truth);
    for (const bool direct : {false, true}) {
      for (const bool registered : {false, true}) {
        CAPTURE(world->name());
        CAPTURE(direct);
        CAPTURE(registered);
        constexpr u32 kInFlight = 7;
        constexpr u64 kPieceMax = 16 * kSectorBytes;
        const auto io = world->make({.in_flight_max = kInFlight});
        const auto opened = io->open({.path = world->path(), .direct = direct});
        REQUIRE(opened.has_value());
        CHECK(io->size_bytes(*opened).value() == truth.size());

        const u64 grain = io->is_direct(*opened) ? kSectorBytes : 1;
        SectorBuffer memory(kInFlight * kPieceMax);
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
  for (const auto& world : test::io_worlds_here("io_contract")) {
    for (const bool direct : {false, true}) {
      CAPTURE(world->name());
      CAPTURE(direct);
      if (direct) world->truncate_file(0);
      const auto truth = random_bytes(random, 8 * kSectorBytes);
      SectorBuffer memory(truth.size());
      std::copy(truth.begin(), truth.end(), memory.span().begin());
      {
        const auto io = world->make({});
        const auto opened =
            io->open({.path = world->path(), .write = true, .create = true, .direct = direct});
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
      for (const auto& io : world->make_each()) {
        const auto opened = io->open({.path = world->path(), .direct = direct});
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
  for (const auto& world : test::io_worlds_here("io_contract_registered")) {
    world->write_file(truth);
    CAPTURE(world->name());
    const auto io = world->make({});
    const auto opened = io->open({.path = world->path()});
    REQUIRE(opened.has_value());
    SectorBuffer memory(6 * kSectorBytes);
    // Sectors 1 and 3 are registered, then only 4; reads may lie in one, in none, or across a
    // border.
    const std::span<std::byte> first[] = {memory.span().subspan(1 * kSectorBytes, kSectorBytes),
                                          memory.span().subspan(3 * kSectorBytes, kSectorBytes)};
    const std::span<std::byte> second[] = {memory.span().subspan(4 * kSectorBytes, kSectorBytes)};
    for (const std::span<const std::span<std::byte>> registered :
         {std::span<const std::span<std::byte>>(first),
          std::span<const std::span<std::byte>>(second), std::span<const std::span<std::byte>>()}) {
      const bool taken = io->register_buffers(registered);
      CHECK(taken == (world->registers_buffers() && !registered.empty()));
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
  for (const auto& world : test::io_worlds_here("io_contract_bound")) {
    world->write_file(std::vector<std::byte>(16 * kSectorBytes));
    for (const u32 bound : {1u, 2u, 5u, kIoInFlightMax}) {
      CAPTURE(world->name());
      CAPTURE(bound);
      const auto io = world->make({.in_flight_max = bound});
      CHECK(io->in_flight_max() == bound);
      const auto opened = io->open({.path = world->path()});
      REQUIRE(opened.has_value());
      SectorBuffer memory(bound * kSectorBytes);
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
  for (const auto& world : test::io_worlds_here("io_contract_look")) {
    world->write_file(std::vector<std::byte>(kSectorBytes));
    CAPTURE(world->name());
    const auto io = world->make({});
    const auto opened = io->open({.path = world->path()});
    REQUIRE(opened.has_value());
    SectorBuffer memory(kSectorBytes);
    REQUIRE(io->submit({.op = IoOp::read, .file = *opened, .buffer = memory.span(), .tag = 5}));
    IoCompletion one{};
    u64 n_looks = 0;
    while (io->reap({&one, 1}, 1, n_looks % 2 == 0 ? 0 : 100'000) == 0) ++n_looks;
    CHECK(one.tag == 5);
    CHECK(one.result == kSectorBytes);
  }
}

TEST_CASE("errors come back as they are, and the backend goes on") {
  for (const auto& world : test::io_worlds_here("io_contract")) {
    CAPTURE(world->name());
    world->write_file(std::vector<std::byte>(2 * kSectorBytes + 10));
    const auto io = world->make({});
    const auto direct = io->open({.path = world->path(), .direct = true});
    const auto buffered = io->open({.path = world->path(), .direct = false});
    REQUIRE(direct.has_value());
    REQUIRE(buffered.has_value());
    if (!io->is_direct(*direct)) TARN_SKIP("the build folder's file system has no direct I/O");
    CHECK_FALSE(io->is_direct(*buffered));
    SectorBuffer memory(4 * kSectorBytes);
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
    world->truncate_file(kSectorBytes);
    CHECK(io->size_bytes(*direct).value() == kSectorBytes);
    CHECK(run_one(*io, {.op = IoOp::read, .file = *direct, .buffer = all}) == kSectorBytes);
    const auto exact = io_read_exact(*io, *direct, 0, all);
    REQUIRE_FALSE(exact.has_value());
    CHECK(exact.error().status == Status::io_failed);
    CHECK(exact.error().figures[0].value == kSectorBytes);
  }
}

TEST_CASE("a file is given its length and keeps what was in it") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const auto truth = random_bytes(random, 4 * kSectorBytes);
  for (const auto& world : test::io_worlds_here("io_contract_allocate")) {
    CAPTURE(world->name());
    world->write_file(truth);
    const auto io = world->make({});
    const auto opened = io->open({.path = world->path(), .write = true});
    REQUIRE(opened.has_value());
    SectorBuffer memory(6 * kSectorBytes);
    for (const u64 n_sectors : {6u, 6u, 2u, 5u, 0u, 1u}) {  // cut to 2: the rest is gone for good
      CAPTURE(n_sectors);
      REQUIRE(io->allocate(*opened, n_sectors * kSectorBytes).has_value());
      CHECK(io->size_bytes(*opened).value() == n_sectors * kSectorBytes);
      const auto whole = memory.span().first(n_sectors * kSectorBytes);
      REQUIRE(io_read_exact(*io, *opened, 0, whole).has_value());
      const u64 n_kept = n_sectors == 6 ? 4 : n_sectors == 1 ? 0 : std::min<u64>(n_sectors, 2);
      for (u64 i = 0; i < whole.size(); ++i) {
        const std::byte want = i < n_kept * kSectorBytes ? truth[i] : std::byte{0};
        if (whole[i] != want) FAIL("byte ", i);
      }
    }
    const auto too_long = io->allocate(*opened, ~u64{0});
    REQUIRE_FALSE(too_long.has_value());
    CHECK(too_long.error().status == Status::io_failed);
    const auto read_only = io->open({.path = world->path()});
    REQUIRE(read_only.has_value());
    CHECK_FALSE(io->allocate(*read_only, kSectorBytes).has_value());
  }
}

TEST_CASE("who has a file for himself keeps others out, and lets it go in the end") {
  for (const auto& world : test::io_worlds_here("io_contract_exclusive")) {
    CAPTURE(world->name());
    world->write_file(std::vector<std::byte>(kSectorBytes));
    const IoOpenArgs mine{.path = world->path(), .write = true, .exclusive = true};
    const auto other = world->make({});
    const auto refused = [&] {
      const auto opened = other->open(mine);
      return !opened && opened.error().figures[0].value == EWOULDBLOCK;
    };
    {
      const auto io = world->make({});
      const auto opened = io->open(mine);
      REQUIRE(opened.has_value());
      CHECK(refused());
      CHECK_FALSE(io->open(mine).has_value());  // nor twice by ourselves
      io->close(*opened);
      const auto again = other->open(mine);
      REQUIRE(again.has_value());
      other->close(*again);
      REQUIRE(io->open(mine).has_value());
      CHECK(refused());
    }  // gone with its backend
    CHECK_FALSE(refused());
  }
}

}  // namespace
}  // namespace tarn::io_contract_test
