// Goal    on a real ext4 that is full, read-only, or fails every call, the store is off or goes on
//         reading, and says what helps; when the disk is well again, so is the store.
// Method  a small file system in a file, mounted here (skipped where that is not allowed), full,
//         mounted read-only, and shut down under an open store as a dying disk would; each errno
//         once more by the simulated disk, which can give those that no mount here can (quotas).
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/skip.h"
#include "tests/support/store_harness.h"
#include "tests/support/temp_file.h"

namespace tarn::store::store_disk_native_test {
namespace {

using test::record_of;
using test::StoreHarness;
using Got = StoreHarness::Got;

constexpr u64 kFrameBytes = 16 * kKiB;

constexpr u64 kFreeBytesMax = 64 * kKiB;  // that an empty file and its folder may take

StoreLimits limits_of(u32 n_frames) {
  return {.file_bytes = kFramesBegin + n_frames * kFrameBytes,
          .frame_bytes = kFrameBytes,
          .ops_max = 8,
          .lock_wait_ns = 10'000'000};
}

bool says(const Store& store, const char* part) {
  return std::string(store.why().hint).find(part) != std::string::npos;
}

// 16 MiB of ext4 in a file.
class SmallDisk {
 public:
  SmallDisk() : image_("small_disk"), folder_(image_.path() + "_mounted") {
    const std::string make = "truncate -s 16M '" + image_.path() + "' && mkfs.ext4 -q -F '" +
                             image_.path() + "' 2>/dev/null";
    if (std::system(make.c_str()) != 0) return;
    std::filesystem::create_directory(folder_);
    is_mounted_ = mount_as("loop");
  }
  ~SmallDisk() {
    if (is_mounted_) unmount();
    std::error_code ignored;
    std::filesystem::remove(folder_, ignored);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool is_mounted() const { return is_mounted_; }
  std::string path() const { return folder_ + "/store"; }
  void remount(const char* how) {
    unmount();
    REQUIRE(mount_as(how));
    is_mounted_ = true;
  }
  u64 free_bytes() const { return std::filesystem::space(folder_).free; }
  // From now on every call of the file system ends with EIO, as when its disk is gone.
  bool shut_down() const {
    const int fd = ::open(folder_.c_str(), O_RDONLY);
    u32 without_flushing = 2;
    const unsigned long kShutDown = _IOR('X', 125, u32);
    const bool done = fd >= 0 && ioctl(fd, kShutDown, &without_flushing) == 0;
    if (fd >= 0) ::close(fd);
    return done;
  }

 private:
  bool mount_as(const char* how) {
    const std::string command =
        "mount -o " + std::string(how) + " '" + image_.path() + "' '" + folder_ + "' 2>/dev/null";
    return std::system(command.c_str()) == 0;
  }
  void unmount() {
    REQUIRE(std::system(("umount '" + folder_ + "'").c_str()) == 0);
    is_mounted_ = false;
  }

  test::TempFile image_;
  std::string folder_;
  bool is_mounted_ = false;
};

TEST_CASE("a full disk, a read-only one, and one that fails while the store is open") {
  if (geteuid() != 0) TARN_SKIP("only root may mount");
  for (const IoKind kind : test::io_kinds_here()) {
    SmallDisk disk;
    if (!disk.is_mounted()) TARN_SKIP("mkfs.ext4 or loop mounts are missing here");
    const std::string path = disk.path();
    SystemClock clock;
    {
      test::OwnedIo io({.kind = kind});
      const u64 free_bytes = disk.free_bytes();
      StoreHarness full(*io, clock, path.c_str(), limits_of(4096));  // 64 MiB
      CHECK(full.open() == Mode::off);
      CHECK(full.store.why().figures[0].value == ENOSPC);
      CHECK(says(full.store, "no room on the disk"));
      full.close();
      CHECK(std::filesystem::file_size(path) == 0);
      CHECK(disk.free_bytes() + kFreeBytesMax >= free_bytes);
      StoreHarness bench(*io, clock, path.c_str(), limits_of(64));
      REQUIRE(bench.open() == Mode::on);
      REQUIRE(bench.put(record_of(1)));
      REQUIRE(bench.flush());
      bench.close();
    }
    disk.remount("loop,ro");
    {
      test::OwnedIo io({.kind = kind});
      StoreHarness bench(*io, clock, path.c_str(), limits_of(64));
      CHECK(bench.open() == Mode::off);
      CHECK(bench.store.why().figures[0].value == EROFS);
      CHECK(says(bench.store, "read-only"));
      bench.close();
    }
    disk.remount("loop");
    {
      test::OwnedIo io({.kind = kind});
      StoreHarness bench(*io, clock, path.c_str(), limits_of(64));
      REQUIRE(bench.open() == Mode::on);
      CHECK(bench.get(record_of(1)) == Got::right);
      if (!disk.shut_down()) TARN_SKIP("this kernel cannot shut a file system down");
      for (u64 id = 2; id < 6; ++id) CHECK_FALSE(bench.put(record_of(id)));
      CHECK(bench.store.mode() != Mode::on);
      CHECK(says(bench.store, "store.path"));
      CHECK(bench.get(record_of(1)) != Got::wrong);
      CHECK(bench.begin_put(record_of(9), 1) == Begun::not_now);
      bench.close();
    }
    disk.remount("loop");
    {
      test::OwnedIo io({.kind = kind});
      StoreHarness bench(*io, clock, path.c_str(), limits_of(64));
      REQUIRE(bench.open() == Mode::on);
      CHECK(bench.get(record_of(1)) == Got::right);
      CHECK(bench.put(record_of(2)));
      bench.check();
      bench.close();
    }
  }
}

TEST_CASE("what the disk answers to a write decides what the store advises") {
  struct Case {
    int error;
    const char* part;
  };
  const Case cases[] = {{ENOSPC, "the disk is full"},
                        {EDQUOT, "disk quota"},
                        {EROFS, "read-only"},
                        {EIO, "check the disk (dmesg)"}};
  for (const Case& c : cases) {
    CAPTURE(c.error);
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 4);
    StoreHarness bench(io, clock, "store", limits_of(64));
    REQUIRE(bench.open() == Mode::on);
    REQUIRE(bench.put(record_of(1)));
    disk.script.faults = {{.fault = test::SimFault::error,
                           .first_call = disk.n_calls(),
                           .n_calls = ~u64{0},
                           .error = c.error}};
    CHECK_FALSE(bench.put(record_of(2)));
    CHECK_FALSE(bench.put(record_of(3)));
    CHECK(bench.store.mode() == Mode::read_only);
    CHECK(says(bench.store, c.part));
    CHECK(bench.store.why().figures[0].value == static_cast<u64>(c.error));
    disk.script.faults.clear();
    CHECK(bench.get(record_of(1)) == Got::right);  // what is there can be had
    CHECK(bench.begin_put(record_of(4), 1) == Begun::not_now);
    bench.close();
    CHECK(bench.open() == Mode::on);
    CHECK(bench.put(record_of(4)));
    bench.close();
  }
}

}  // namespace
}  // namespace tarn::store::store_disk_native_test
