// Goal    killed with -9 at any moment while it packs or unpacks, the store is clean at the next
//         start and has whole sessions only; a file under the pack's name is whole; a repeat ends
//         the work.
// Method  children over real files, one after the other on the same folder, killed after a random
//         time; they unpack, delete and pack for ever. A slice of 16 kills; TARN_PACK_KILLS asks
//         for more.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "tests/support/copy_bench.h"
#include "tests/support/folders.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

namespace tarn::reuse::pack_crash_native_test {
namespace {

using test::CopyBench;

constexpr u32 kFrames = 512;
constexpr const char* kNames[] = {"book", "fork", "list"};

// What a child is at.
enum class At : u8 { elsewhere, unpacking, packing, n };

struct Files {
  explicit Files(const test::TempDir& dir)
      : store(dir.path() + "/store"),
        other(dir.path() + "/other"),
        pack(dir.path() + "/docs.pack"),
        made(dir.path() + "/made.pack") {
    std::filesystem::create_directory(dir.path());
  }
  std::string store, other;
  std::string pack;  // to be unpacked
  std::string made;  // by the child
};

struct Opened {
  explicit Opened(const std::string& path, u64 entropy = 1)
      : io({.kind = test::io_kinds_here().front()}),
        bench(*io, clock, path.c_str(), kFrames, entropy) {}
  test::OwnedIo io;
  SystemClock clock;
  CopyBench bench;
};

void work_until_killed(const Files& files, std::atomic<At>& at) {
  auto* opened = new Opened(files.store);
  for (;;) {
    at = At::unpacking;
    if (!opened->bench.unpack(files.pack)) _exit(3);
    at = At::packing;
    if (!opened->bench.copy().pack({.path = files.made.c_str(), .names = kNames})) _exit(4);
    at = At::elsewhere;
    for (const char* name : kNames) {
      if (!opened->bench.copy().erase(name)) _exit(5);
    }
  }
}

TEST_CASE("killed with -9 at any moment of packing or unpacking, all that is there is whole") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_PACK_KILLS");
  const u64 n_kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 16;
  const test::TempDir dir("pack_crash");
  const Files files(dir);
  std::map<std::string, CopyBench::Session> want;
  {
    Opened maker(files.other, 7);
    maker.bench.save({"book", 1500});
    maker.bench.save({"fork", 1200, 0, 800});
    maker.bench.save({"list", 200, 5000});
    REQUIRE(maker.bench.copy().pack({.path = files.pack.c_str(), .names = kNames}).has_value());
    want = maker.bench.sessions();
  }
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& at = *new (shared) std::atomic<At>{};
  std::array<u64, static_cast<u64>(At::n)> n_at{};
  u64 n_partial = 0, n_made = 0;
  for (u64 kill_idx = 0; kill_idx < n_kills; ++kill_idx) {
    CAPTURE(kill_idx);
    at = At::elsewhere;
    const pid_t child = fork();
    if (child == 0) work_until_killed(files, at);
    for (u32 i = 0; at == At::elsewhere && i < 20'000; ++i) usleep(500);  // until it has opened it
    usleep(static_cast<useconds_t>(random.below(60'000)));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    ++n_at[static_cast<u64>(at.load())];

    Opened again(files.store);
    for (const auto& [name, session] : again.bench.sessions()) {
      CHECK(session.tokens == want.at(name).tokens);
      // Deletion erases the KV first. Here it is ended, so that the next child begins anew.
      if (at == At::elsewhere) CHECK(again.bench.copy().erase(name).has_value());
      if (at != At::elsewhere) CHECK(session == want.at(name));
    }
    n_partial += again.bench.sessions().size() % 3 != 0;
    const auto checked = again.bench.copy().check({});
    REQUIRE(checked.has_value());
    CHECK(checked->n_damaged == 0);
    CHECK(again.bench.store().stats().n_damaged_at_start == 0);
    if (std::filesystem::exists(files.made)) {
      ++n_made;
      std::filesystem::remove(files.other);
      Opened other(files.other, 9);
      CHECK(other.bench.unpack(files.made).has_value());
      CHECK(other.bench.sessions() == want);
    }
    if (kill_idx % 4 == 3) {  // a repeat ends what was cut off
      CHECK(again.bench.unpack(files.pack).has_value());
      CHECK(again.bench.sessions() == want);
    }
  }
  munmap(shared, 4096);
  CHECK(n_made > 0);
  CHECK(n_at[static_cast<u64>(At::unpacking)] > 0);
  if (n_kills >= 100) CHECK(n_at[static_cast<u64>(At::packing)] > n_kills / 50);
  if (n_kills >= 100) CHECK(n_partial > 0);
  MESSAGE(n_at[1], " killed while unpacking, ", n_at[2], " while packing, ", n_at[0],
          " elsewhere; ", n_partial, " left some of the sessions");
}

}  // namespace
}  // namespace tarn::reuse::pack_crash_native_test
