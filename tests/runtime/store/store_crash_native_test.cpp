// Goal    on a real file system: killed with -9 at any moment the next start is clean and serves
//         right bytes only, flushed records are there; two processes never share a store; a disk
//         without room or a folder that goes away turn the store off or leave it working.
// Method  children that write and are killed after a random time, on each real backend; what they
//         flushed stands in shared memory. A slice of 30 kills; TARN_STORE_KILLS asks for more.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tests/support/seed.h"
#include "tests/support/store_harness.h"
#include "tests/support/temp_dir.h"

namespace tarn::store {
namespace {

using test::record_of;
using test::StoreHarness;
using Got = StoreHarness::Got;

constexpr u64 kFrameBytes = 16 * kKiB;
constexpr StoreLimits kLimits{.file_bytes = kFramesBegin + 64 * kFrameBytes,
                              .frame_bytes = kFrameBytes,
                              .ops_max = 8,
                              .lock_wait_ns = 5'000'000'000};

// Puts records for ever, eight at a time, and notes which one was flushed last.
void write_until_killed(IoKind kind, const char* path, volatile u64* flushed, u64 first_id) {
  test::OwnedIo io({.kind = kind});
  SystemClock clock;
  auto* bench = new StoreHarness(*io, clock, path, kLimits);
  if (bench->open() != Mode::on) _exit(3);
  for (u64 id = first_id;; id += 8) {
    for (u64 i = 0; i < 8; ++i) bench->begin_put(record_of(id + i), id + i);
    for (u64 i = 0; i < 8; ++i) bench->wait_for(id + i);
    if (id % 3 == 0 && bench->flush()) *flushed = id + 7;
  }
}

TEST_CASE("killed with -9 at any moment, the next start serves right bytes and what was flushed") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const char* asked = std::getenv("TARN_STORE_KILLS");
  const u64 n_kills = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 30;
  void* shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto* flushed = static_cast<volatile u64*>(shared);
  for (const IoKind kind : test::io_kinds_here()) {
    const test::ScratchFile file(kind == IoKind::uring ? "store_kill_uring" : "store_kill_threads");
    u64 first_id = 1, n_right = 0, n_promised = 0;
    for (u64 kill_idx = 0; kill_idx < n_kills / 2; ++kill_idx) {
      CAPTURE(kill_idx);
      *flushed = 0;
      const pid_t child = fork();
      if (child == 0) write_until_killed(kind, file.path(), flushed, first_id);
      // Now and then after something was flushed, however slow the machine.
      for (u64 i = 0; kill_idx % 5 == 4 && *flushed == 0 && i < 20'000; ++i) usleep(1000);
      usleep(static_cast<useconds_t>(random.below(60'000)));
      kill(child, SIGKILL);
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFSIGNALED(status));
      test::OwnedIo io({.kind = kind});
      SystemClock clock;
      StoreHarness bench(*io, clock, file.path(), kLimits);
      REQUIRE(bench.open() == Mode::on);
      for (u64 id = 1; id < first_id + 3000; ++id) {
        if (!bench.store.find(test::key_of(id))) {
          // The last 64 records are in the file; of those, the flushed ones must be.
          const bool promised =
              *flushed >= first_id && id <= *flushed && id + 40 > *flushed && id >= first_id;
          if (promised) FAIL_CHECK("lost record ", id, " of ", u64{*flushed});
          continue;
        }
        const Got got = bench.get(record_of(id));
        CHECK(got != Got::wrong);
        n_right += got == Got::right;
      }
      n_promised += *flushed >= first_id;
      bench.check();
      bench.close();
      first_id = std::max(first_id, u64{*flushed}) + 100;
    }
    CHECK(n_right > 0);
    CHECK(n_promised > 0);
  }
  munmap(shared, 4096);
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
    StoreHarness nowhere(*io, clock, TARN_BINARY_DIR "/no/such/folder/store", kLimits);
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
}  // namespace tarn::store
