// Goal    one reservation for all regions, cut without overlap; a failed start leaves nothing
// behind;
//         nothing is handed out twice or after sealing.
// Method  a Reserve of the test's own that counts, remembers its arguments and can fail; regions of
//         odd sizes are filled and compared; misuse runs in a child process.
#include "runtime/arena/arena.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/support/asserts.h"

namespace tarn::arena_test {
namespace {

class TestReserve final : public Reserve {
 public:
  Result<ReserveOutcome> reserve(const ReserveArgs& args) override {
    ++n_calls;
    last = args;
    if (fails) {
      return fail({.status = Status::over_budget,
                   .hint = "scripted failure",
                   .figures = {{{"bytes", args.bytes}}}});
    }
    const u64 bytes = (args.bytes + 4095) / 4096 * 4096;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    std::memset(memory, 0, bytes);
    held = {memory, bytes};
    return ReserveOutcome{.bytes = held, .locked = args.lock != LockMode::off};
  }
  void release(std::span<std::byte> bytes) override {
    CHECK(bytes.data() == held.data());
    CHECK(bytes.size() == held.size());
    ++n_released;
    std::free(bytes.data());
    held = {};
  }
  bool fails = false;
  u32 n_calls = 0, n_released = 0;
  ReserveArgs last{};
  std::span<std::byte> held{};
};

Region host_region(const char* name, u64 bytes) {
  return {.name = name, .space = RegionSpace::host, .kind = RegionKind::other, .bytes = bytes};
}

const Region kRegions[] = {
    host_region("odd", 5000),
    host_region("empty", 0),
    {.name = "on disk", .space = RegionSpace::disk, .kind = RegionKind::kv, .bytes = 1 << 30},
    host_region("one byte", 1),
    host_region("whole sectors", 8192),
    host_region("last", 4097),
};

TEST_CASE("the regions are cut from one reservation, aligned and apart") {
  CHECK(RegionArena::total_bytes(kRegions) == 8192 + 4096 + 8192 + 8192);
  TestReserve reserve;
  RegionArena arena;
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve, .lock = LockMode::attempt}));
  CHECK(reserve.n_calls == 1);
  CHECK(reserve.last.bytes == RegionArena::total_bytes(kRegions));
  CHECK(reserve.last.touch);
  CHECK(reserve.last.lock == LockMode::attempt);
  CHECK(arena.locked());

  constexpr u64 kWantBytes[] = {5000, 0, 0, 1, 8192, 4097};
  std::span<std::byte> regions[6];
  for (u32 i = 0; i < 6; ++i) {
    regions[i] = arena.region(i);
    CHECK(regions[i].size() == kWantBytes[i]);
    CHECK(reinterpret_cast<std::uintptr_t>(regions[i].data()) % 4096 == 0);
    std::ranges::fill(regions[i], std::byte(i + 1));
  }
  for (u32 i = 0; i < 6; ++i) {
    CHECK(std::ranges::all_of(regions[i], [&](std::byte b) { return b == std::byte(i + 1); }));
  }
  CHECK(regions[5].data() + regions[5].size() <= reserve.held.data() + reserve.held.size());

  arena.seal();
  arena.tear_down();
  CHECK(reserve.n_released == 1);
  CHECK_FALSE(arena.locked());
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));  // the next attempt works
  CHECK(arena.region(0).size() == 5000);
  CHECK_FALSE(arena.locked());
}

TEST_CASE("the destructor gives back what was reserved") {
  TestReserve reserve;
  {
    RegionArena arena;
    REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));
    arena.seal();
  }
  CHECK(reserve.n_released == 1);
  { RegionArena never_built; }
  CHECK(reserve.n_released == 1);
}

TEST_CASE("an arena that is left gives nothing back, and may be built again") {
  TestReserve reserve;
  RegionArena arena;
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));
  arena.seal();
  arena.leave();
  CHECK(reserve.n_released == 0);
  reserve.release(reserve.held);  // whoever has it may keep it; here nobody has
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));
  arena.tear_down();
  CHECK(reserve.n_released == 2);
}

TEST_CASE("a refused reservation is an error that leaves nothing behind") {
  TestReserve reserve;
  reserve.fails = true;
  RegionArena arena;
  const Result<void> result = arena.build({.regions = kRegions, .reserve = &reserve});
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().status == Status::over_budget);
  CHECK(result.error().figures[0].value == RegionArena::total_bytes(kRegions));
  CHECK(reserve.n_released == 0);
  reserve.fails = false;
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));
  arena.tear_down();
  CHECK(reserve.n_released == 1);
}

TEST_CASE("no region at all reserves nothing") {
  TestReserve reserve;
  RegionArena arena;
  REQUIRE(arena.build({.regions = {}, .reserve = &reserve}));
  arena.seal();
  arena.tear_down();
  CHECK(reserve.n_calls == 0);
  CHECK(reserve.n_released == 0);
}

TEST_CASE("misuse asserts") {
  TestReserve reserve;
  RegionArena arena;
  CHECK(test::asserts([&] { static_cast<void>(arena.region(0)); }));  // nothing is built
  REQUIRE(arena.build({.regions = kRegions, .reserve = &reserve}));
  CHECK_FALSE(test::asserts([&] { static_cast<void>(arena.region(0)); }));
  CHECK(test::asserts([&] { static_cast<void>(arena.region(6)); }));
  CHECK(test::asserts([&] {
    static_cast<void>(arena.region(3));
    static_cast<void>(arena.region(3));
  }));
  CHECK(test::asserts(
      [&] { static_cast<void>(arena.build({.regions = kRegions, .reserve = &reserve})); }));
  arena.seal();
  CHECK(test::asserts([&] { static_cast<void>(arena.region(0)); }));
  CHECK(test::asserts([&] { arena.seal(); }));
  CHECK(test::asserts(
      [&] { static_cast<void>(arena.build({.regions = kRegions, .reserve = &reserve})); }));
  const Region too_large[] = {host_region("a", ~u64{0} - 4096), host_region("b", 4096)};
  CHECK(test::asserts([&] { static_cast<void>(RegionArena::total_bytes(too_large)); }));
}

TEST_CASE("names of spaces and kinds are those that JSON carries") {
  CHECK(std::string_view(region_space_name(RegionSpace::host)) == "host");
  CHECK(std::string_view(region_space_name(RegionSpace::device)) == "device");
  CHECK(std::string_view(region_space_name(RegionSpace::disk)) == "disk");
  constexpr const char* kKinds[] = {"weights", "kv", "codes",  "scratch",
                                    "heap",    "io", "driver", "other"};
  for (u8 i = 0; i < 8; ++i) {
    CHECK(std::string_view(region_kind_name(static_cast<RegionKind>(i))) == kKinds[i]);
  }
}

}  // namespace
}  // namespace tarn::arena_test
