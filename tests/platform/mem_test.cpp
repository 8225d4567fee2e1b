// Goal    a reservation is zeroed, aligned, writable and given back whole; every refusal is an
// error
//         with a remedy and leaves nothing behind; the free-memory figure obeys every limit there
//         is.
// Method  sizes around the 4 KiB and 2 MiB borders; children that lower their own limits; made-up
//         /proc and /sys trees of other machines.
#include <doctest/doctest.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "platform/base/system_text.h"
#include "platform/mem/available.h"
#include "platform/mem/reserve.h"
#include "tests/support/failing_reserve.h"
#include "tests/support/forked.h"
#include "tests/support/skip.h"

namespace tarn::mem_test {
namespace {

bool mapped(const std::byte* address) {
  unsigned char resident = 0;
  return mincore(const_cast<std::byte*>(address), 1, &resident) == 0;
}

TEST_CASE("a reservation is zeroed, aligned, writable and given back whole") {
  struct Case {
    u64 bytes, want_bytes, alignment;
  };
  constexpr Case kCases[] = {
      {1, 4096, 4096},
      {4096, 4096, 4096},
      {4097, 8192, 4096},
      {2 * kMiB - 4096, 2 * kMiB - 4096, 4096},
      {2 * kMiB, 2 * kMiB, 2 * kMiB},
      {3 * kMiB + 1, 3 * kMiB + 4096, 2 * kMiB},
      {300 * kMiB, 300 * kMiB, 2 * kMiB},  // more than one slice of touching
  };
  SystemReserve reserve;
  for (const Case& c : kCases) {
    for (const bool touch : {true, false}) {
      CAPTURE(c.bytes);
      CAPTURE(touch);
      const auto got = reserve.reserve({.name = "test", .bytes = c.bytes, .touch = touch});
      REQUIRE(got.has_value());
      const auto bytes = got->bytes;
      CHECK(bytes.size() == c.want_bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % c.alignment == 0);
      CHECK_FALSE(got->locked);
      for (u64 i = 0; i < bytes.size(); i += 4096) REQUIRE(bytes[i] == std::byte{0});
      CHECK(bytes.back() == std::byte{0});
      bytes.front() = bytes.back() = std::byte{1};
      const std::byte* last = bytes.data() + bytes.size() - 4096;
      CHECK(mapped(bytes.data()));
      CHECK(mapped(last));
      reserve.release(bytes);
      CHECK_FALSE(mapped(bytes.data()));
      CHECK_FALSE(mapped(last));
    }
  }
}

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE

// qemu-user calls every hint a success, even this one, which is wrong on any kernel.
bool madvise_reaches_kernel() { return madvise(nullptr, 4096, kPopulateWrite) != 0; }

// The flags that the kernel shows for the mapping at `address`.
std::string vm_flags(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  const u64 at = reinterpret_cast<std::uintptr_t>(address);
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) is_here = at >= begin && at < end;
    if (is_here && line.starts_with("VmFlags:")) return line + " ";
  }
  return "";
}

TEST_CASE("what a GPU's driver pins goes to no child process, and has no huge pages") {
  if (!madvise_reaches_kernel()) TARN_SKIP("madvise is not passed on here");
  SystemReserve reserve;
  for (const bool for_device : {true, false}) {
    CAPTURE(for_device);
    const auto got = reserve.reserve({.name = "test", .bytes = 4 * kMiB, .for_device = for_device});
    REQUIRE(got.has_value());
    for (const std::byte* at : {&got->bytes.front(), &got->bytes.back()}) {
      const std::string flags = vm_flags(at);
      if (flags.empty()) TARN_SKIP("the kernel shows no flags of mappings");
      CAPTURE(flags);
      CHECK((flags.find(" dc ") != std::string::npos) == for_device);
      if (for_device) CHECK(flags.find(" hg ") == std::string::npos);
    }
    reserve.release(got->bytes);
  }
}

u64 resident_pages(std::span<std::byte> bytes) {
  std::vector<unsigned char> resident(bytes.size() / 4096);
  if (mincore(bytes.data(), bytes.size(), resident.data()) != 0) return 0;
  return static_cast<u64>(std::count_if(resident.begin(), resident.end(),
                                        [](unsigned char page) { return (page & 1) != 0; }));
}

// Tells what a touched and an untouched reservation hold, as a code: 0 is right.
int touch_outcome() {
  SystemReserve reserve;
  for (const bool touch : {true, false}) {
    const auto got = reserve.reserve({.name = "test", .bytes = 8 * kMiB, .touch = touch});
    if (!got) return 1;
    if (resident_pages(got->bytes) != (touch ? got->bytes.size() / 4096 : 0)) return 2;
    reserve.release(got->bytes);
  }
  return 0;
}

TEST_CASE("touched means resident, and untouched means not") {
  if (!madvise_reaches_kernel()) TARN_SKIP("madvise is not passed on here");
  CHECK(touch_outcome() == 0);
}

TEST_CASE("a kernel that cannot populate gets its pages written one by one") {
  const int outcome = test::in_child([] {
    if (!test::deny_syscall(SYS_madvise, EINVAL, &kPopulateWrite)) return 77;
    if (madvise(nullptr, 4096, kPopulateWrite) == 0 || errno != EINVAL) return 76;
    return touch_outcome();
  });
  if (outcome == 77) TARN_SKIP("system calls cannot be filtered here");
  CHECK(outcome == 0);
}

TEST_CASE("a refusal names the remedy and leaves nothing mapped") {
  SystemReserve reserve;
  for (const u64 bytes : {~u64{0}, u64{1} << 62}) {
    const auto got = reserve.reserve({.name = "too large", .bytes = bytes});
    REQUIRE_FALSE(got.has_value());
    CHECK(got.error().status == Status::over_budget);
    CHECK(std::string(got.error().detail.c_str()) == "too large");
    CHECK(std::string(got.error().hint).find("lower") != std::string::npos);
  }
  // More than there is, yet mappable: found out before the OOM killer is.
  const u64 beyond = memory_available_bytes() + 8 * kGiB;
  const auto got = reserve.reserve({.name = "weights", .bytes = beyond});
  REQUIRE_FALSE(got.has_value());
  CHECK(got.error().status == Status::over_budget);
}

void limit(int resource, u64 bytes) {
  const rlimit both = {bytes, bytes};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

TEST_CASE("RLIMIT_AS bounds what is available, and a reservation within it works") {
  const int outcome = test::in_child([] {
    SystemText statm;  // what is mapped so far: terabytes under a sanitizer
    if (!statm.read("", "/proc/self/statm")) return 4;
    const u64 bound_bytes = *statm.number() * 4096 + 512 * kMiB;
    limit(RLIMIT_AS, bound_bytes);
    rlimit now{};
    getrlimit(RLIMIT_AS, &now);
    if (now.rlim_cur != bound_bytes) return 77;  // qemu-user only pretends
    const u64 available = memory_available_bytes();
    if (available == 0 || available > 512 * kMiB) return 1;
    SystemReserve reserve;
    if (reserve.reserve({.name = "test", .bytes = 600 * kMiB})) return 2;
    const auto got = reserve.reserve({.name = "test", .bytes = available - 16 * kMiB});
    return got ? 0 : 3;
  });
  if (outcome == 77) TARN_SKIP("RLIMIT_AS cannot be set here");
  CHECK(outcome == 0);
}

TEST_CASE("locking obeys its mode where RLIMIT_MEMLOCK is too low") {
  const int outcome = test::in_child([] {
    limit(RLIMIT_MEMLOCK, 1 * kMiB);
    if (getuid() == 0 && setuid(65534) != 0) return 77;  // root may lock what it likes
    SystemReserve reserve;
    const auto off = reserve.reserve({.name = "test", .bytes = 4 * kMiB});
    if (!off || off->locked) return 1;
    const auto attempt =
        reserve.reserve({.name = "test", .bytes = 4 * kMiB, .lock = LockMode::attempt});
    if (!attempt || attempt->locked) return 2;
    const auto require =
        reserve.reserve({.name = "test", .bytes = 4 * kMiB, .lock = LockMode::require});
    if (require) return 3;
    const Error& error = require.error();
    if (std::strstr(error.hint, "RLIMIT_MEMLOCK") == nullptr) return 4;
    if (error.figures[1].value != 1 * kMiB) return 5;
    const auto small =
        reserve.reserve({.name = "test", .bytes = 64 * kKiB, .lock = LockMode::require});
    return small && small->locked ? 0 : 6;
  });
  if (outcome == 77) TARN_SKIP("cannot give up the right to lock");
  CHECK(outcome == 0);
}

TEST_CASE("FailingReserve fails the n-th call, once or from then on") {
  using Mode = test::FailingReserve::Mode;
  for (const Mode mode : {Mode::once, Mode::from_then_on}) {
    test::FailingReserve reserve(1, mode);
    const auto first = reserve.reserve({.name = "a", .bytes = 1});
    CHECK(first.has_value());
    CHECK_FALSE(reserve.reserve({.name = "b", .bytes = 1}).has_value());
    const auto third = reserve.reserve({.name = "c", .bytes = 1});
    CHECK(third.has_value() == (mode == Mode::once));
    CHECK(reserve.n_held() == (mode == Mode::once ? 2 : 1));
    reserve.release(first->bytes);
    if (third) reserve.release(third->bytes);
    CHECK(reserve.n_held() == 0);
    CHECK(reserve.held_bytes() == 0);
  }
}

struct FakeFile {
  const char* path;
  const char* text;
};
struct FakeMachine {
  std::string name;
  std::vector<FakeFile> files;
  u64 want_bytes;
};

const FakeFile kMeminfo = {"proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n"};

TEST_CASE("the free-memory figure obeys every limit of the machine") {
  const FakeMachine machines[] = {
      {"no cgroup at all", {kMeminfo}, 8000 * kKiB},
      {"v2 without a limit",
       {kMeminfo,
        {"proc/self/cgroup", "0::/a/b\n"},
        {"sys/fs/cgroup/a/b/memory.max", "max\n"},
        {"sys/fs/cgroup/a/b/memory.current", "4096\n"}},
       8000 * kKiB},
      {"v2: limit minus usage",
       {kMeminfo,
        {"proc/self/cgroup", "0::/a/b\n"},
        {"sys/fs/cgroup/a/b/memory.max", "1000000\n"},
        {"sys/fs/cgroup/a/b/memory.current", "400000\n"}},
       600000},
      {"v2: the page cache can be taken back",
       {kMeminfo,
        {"proc/self/cgroup", "0::/a/b\n"},
        {"sys/fs/cgroup/a/b/memory.max", "1000000\n"},
        {"sys/fs/cgroup/a/b/memory.current", "400000\n"},
        {"sys/fs/cgroup/a/b/memory.stat",
         "anon 5\nfile 9\ninactive_file 100000\nactive_file 50000\n"}},
       750000},
      {"v2: the parent is tighter",
       {kMeminfo,
        {"proc/self/cgroup", "0::/a/b\n"},
        {"sys/fs/cgroup/a/memory.max", "500000\n"},
        {"sys/fs/cgroup/a/memory.current", "450000\n"},
        {"sys/fs/cgroup/a/b/memory.max", "1000000\n"},
        {"sys/fs/cgroup/a/b/memory.current", "400000\n"}},
       50000},
      {"v2: more used than allowed",
       {kMeminfo,
        {"proc/self/cgroup", "0::/\n"},
        {"sys/fs/cgroup/memory.max", "1000\n"},
        {"sys/fs/cgroup/memory.current", "2000\n"}},
       0},
      {"v1, in a container whose path lies outside",
       {kMeminfo,
        {"proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/1234\n0::/\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000\n"},
        {"sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"},
        {"sys/fs/cgroup/memory/memory.stat",
         "inactive_file 1\ntotal_inactive_file 20000\ntotal_active_file 300\n"}},
       2020300},
      {"v1 without a limit",
       {kMeminfo,
        {"proc/self/cgroup", "4:memory:/\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
        {"sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n"}},
       8000 * kKiB},
      {"files that make no sense",
       {kMeminfo,
        {"proc/self/cgroup", "rubbish\n:\n::\n0::/a\n"},
        {"sys/fs/cgroup/a/memory.max", "99999999999999999999999\n"},
        {"sys/fs/cgroup/a/memory.current", "-3\n"}},
       8000 * kKiB},
  };
  namespace fs = std::filesystem;
  for (const FakeMachine& machine : machines) {
    CAPTURE(machine.name);
    const fs::path root = fs::temp_directory_path() / ("tarn_mem_test." + std::to_string(getpid()));
    fs::remove_all(root);
    for (const FakeFile& file : machine.files) {
      fs::create_directories((root / file.path).parent_path());
      std::ofstream(root / file.path) << file.text;
    }
    CHECK(pages_available_under(root.c_str()) == machine.want_bytes);
    fs::remove_all(root);
  }
  CHECK(memory_available_bytes() > 0);
  CHECK(pages_available_under("/no/such/root") > 0);  // sysinfo answers
}

}  // namespace
}  // namespace tarn::mem_test
