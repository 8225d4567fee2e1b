// Goal    on a real file system: killed with -9 at any moment the next start is clean and serves
//         right bytes only, flushed records are there; two processes never share a store; a disk
//         without room or a folder that goes away turn the store off or leave it working.
// Method  children that write and are killed, on each real backend, half of them after a random
//         time and half where they are at a marked point, which they say in shared memory as they
//         say what they flushed. A slice of 30 kills; TARN_STORE_KILLS asks for more.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>
#include <string>

#include "tests/support/folders.h"
#include "tests/support/seed.h"
#include "tests/support/store_harness.h"
#include "tests/support/temp_dir.h"

namespace tarn::store::store_crash_native_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Got = StoreHarness::Got;

constexpr u64 kFrameBytes = 16 * kKiB;
constexpr StoreLimits kLimits{.file_bytes = kFramesBegin + 64 * kFrameBytes,
                              .frame_bytes = kFrameBytes,
                              .ops_max = 8,
                              .lock_wait_ns = 5'000'000'000};

// Where a child is.
enum class At : u8 { elsewhere, opening, putting, waiting, flushing, n };
constexpr const char* kAtNames[] = {"elsewhere", "opening", "putting", "waiting", "flushing"};

// What a child says of itself, in memory that it shares with its parent.
struct Said {
  std::atomic<u64> flushed;  // the last record that was
  std::atomic<At> at;
};

// Puts records for ever, eight at a time, and notes which one was flushed last.
void write_until_killed(IoKind kind, const char* path, Said& said, u64 first_id) {
  test::OwnedIo io({.kind = kind});
  SystemClock clock;
  auto* bench = new StoreHarness(*io, clock, path, kLimits);
  said.at = At::opening;
  if (bench->open() != Mode::on) _exit(3);
  for (u64 id = first_id;; id += 8) {
    said.at = At::putting;
    for (u64 i = 0; i < 8; ++i) bench->begin_put(record_of(id + i), id + i);
    said.at = At::waiting;
    for (u64 i = 0; i < 8; ++i) bench->wait_for(id + i);
    said.at = At::elsewhere;
    if (id % 3 != 0) continue;
    said.at = At::flushing;
    if (bench->flush()) said.flushed = id + 7;
  }
}

// Kills it after a random time, now and then after something was flushed, however slow the machine;
// or as soon as it is at `wanted`, within the time that such a point takes. Returns where it was.
At kill_at(pid_t child, const Said& said, std::optional<At> wanted, bool after_flush,
           test::Random& random) {
  if (wanted != At::opening) {
    for (u64 i = 0; after_flush && said.flushed == 0 && i < 20'000; ++i) usleep(1000);
  }
  if (wanted) {
    SystemClock clock;
    // A store is opened once, and that may go by unseen.
    const auto passed = [&] { return *wanted == At::opening && said.at > At::opening; };
    const u64 end_ns = clock.now_ns() + 20'000'000'000;  // of a child that has ended
    while (said.at != *wanted && !passed() && clock.now_ns() < end_ns) sched_yield();
    const u64 later_ns = clock.now_ns() + random.below(200'000);
    while (clock.now_ns() < later_ns && said.at == *wanted) sched_yield();
  } else {
    usleep(static_cast<useconds_t>(random.below(60'000)));
  }
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  return said.at;
}

TEST_CASE("killed with -9 at any moment, the next start serves right bytes and what was flushed") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_STORE_KILLS");
  const u64 n_kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 30;
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& said = *new (shared) Said{};
  std::array<u64, static_cast<u64>(At::n)> n_at{};
  u64 n_synced = 0;
  for (const IoKind kind : test::io_kinds_here()) {
    const test::ScratchFile file(kind == IoKind::uring ? "store_kill_uring" : "store_kill_threads");
    u64 first_id = 1, n_right = 0, n_promised = 0;
    for (u64 kill_idx = 0; kill_idx < n_kills / 2; ++kill_idx) {
      CAPTURE(kill_idx);
      said.flushed = 0;
      said.at = At::elsewhere;
      const pid_t child = fork();
      if (child == 0) write_until_killed(kind, file.path(), said, first_id);
      std::optional<At> wanted;
      if (kill_idx % 2 == 1) wanted = static_cast<At>(1 + kill_idx / 2 % (n_at.size() - 1));
      const At at = kill_at(child, said, wanted, kill_idx % 5 == 4, random);
      ++n_at[static_cast<u64>(at)];
      const u64 flushed = said.flushed;
      test::OwnedIo io({.kind = kind});
      SystemClock clock;
      StoreHarness bench(*io, clock, file.path(), kLimits);
      REQUIRE(bench.open() == Mode::on);
      for (u64 id = 1; id < std::max(first_id + 3000, flushed + 1); ++id) {
        if (!bench.store.find(test::key_of(id))) {
          // The last 64 records are in the file; of those, the flushed ones must be.
          const bool promised =
              flushed >= first_id && id <= flushed && id + 40 > flushed && id >= first_id;
          if (promised) FAIL_CHECK("lost record ", id, " of ", flushed);
          continue;
        }
        const Got got = bench.get(record_of(id));
        CHECK(got != Got::wrong);
        n_right += got == Got::right;
      }
      n_promised += flushed >= first_id;
      bench.check();
      bench.close();
      first_id = std::max(first_id, flushed) + 100;
    }
    CHECK(n_right > 0);
    CHECK(n_promised > 0);
    n_synced += n_promised;
  }
  munmap(shared, 4096);
  for (u64 i = 0; i < n_at.size(); ++i) {
    MESSAGE(n_at[i] << " killed while " << std::string(kAtNames[i]));
    if (i > 0 && n_kills >= 1000) CHECK(n_at[i] > n_kills / 50);
  }
  MESSAGE(n_synced << " kills behind a flush");
}

TEST_CASE("a store that another process has is refused, and to be had when that one is dead") {
  for (const IoKind kind : test::io_kinds_here()) {
    const test::ScratchFile file("store_lock");
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
      test::OwnedIo io({.kind = kind});
      SystemClock clock;
      StoreHarness bench(*io, clock, file.path(), kLimits);
      const char byte = bench.open() == Mode::on ? 'y' : 'n';
      if (write(ready[1], &byte, 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    CHECK(byte == 'y');
    test::OwnedIo io({.kind = kind});
    SystemClock clock;
    StoreLimits limits = kLimits;
    limits.lock_wait_ns = 10'000'000;
    StoreHarness bench(*io, clock, file.path(), limits);
    CHECK(bench.open() == Mode::off);
    CHECK(bench.store.why().figures[0].value == EWOULDBLOCK);
    CHECK(bench.store.put({}) == Begun::not_now);
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    StoreHarness heir(*io, clock, file.path(), kLimits);  // waits for the dead one's lock
    CHECK(heir.open() == Mode::on);
    CHECK(heir.put(record_of(1)));
    heir.close();
    close(ready[0]);
    close(ready[1]);
  }
}

TEST_CASE("no room, no folder, no right to write: the store says so, and what is open goes on") {
  namespace fs = std::filesystem;
  for (const IoKind kind : test::io_kinds_here()) {
    const test::ScratchFile file("store_room");
    test::OwnedIo io({.kind = kind});
    SystemClock clock;
    StoreLimits huge = kLimits;
    huge.file_bytes = u64{1} << 50;  // a pebibyte
    huge.frame_bytes = u64{1} << 32;
    StoreHarness full(*io, clock, file.path(), huge);
    CHECK(full.open() == Mode::off);
    CHECK(full.store.why().figures[0].value != 0);
    full.close();
    const std::string no_folder = test::build_folder() + "/no/such/folder/store";
    StoreHarness nowhere(*io, clock, no_folder.c_str(), kLimits);
    CHECK(nowhere.open() == Mode::off);
    CHECK(nowhere.store.why().figures[0].value == ENOENT);

    const test::TempDir folder("store_gone");
    fs::create_directory(folder.path());
    const std::string path = folder.path() + "/store";
    StoreHarness bench(*io, clock, path.c_str(), kLimits);
    REQUIRE(bench.open() == Mode::on);
    REQUIRE(bench.put(record_of(1)));
    folder.remove();  // the file lives on without a name
    CHECK(bench.put(record_of(2)));
    CHECK(bench.get(record_of(1)) == Got::right);
    CHECK(bench.flush());
    bench.close();
  }
}

}  // namespace
}  // namespace tarn::store::store_crash_native_test
