// Two stores on simulated disks and a file between them; three small sessions, two of which share
// their beginning.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/copy_bench.h"
#include "tests/support/sim_disk.h"
#include "tests/support/temp_file.h"
#include "tools/support/input.h"

namespace tarn::test {

struct PackWorld {
  explicit PackWorld(u32 n_frames_there = 64, u64 seed = 2)
      : disk_there(seed),
        io_here(disk_here, clock),
        io_there(disk_there, clock),
        here(io_here, clock, "here", 64, 1),
        there(io_there, clock, "there", n_frames_there, 2) {
    here.save({"book", 49});
    here.save({"fork", 45, 0, 33});
    here.save({"list", 17, 300});
  }
  reuse::ExportDone make_pack() {
    constexpr const char* kNames[] = {"book", "fork", "list"};
    const auto done = here.copy().pack({.path = file.path().c_str(), .names = kNames});
    REQUIRE(done.has_value());
    whole = tools::read_file(file.path());
    return *done;
  }

  // Before anything was written.
  void require_refused() {
    const u32 n_records = there.n_records();
    const u64 n_written = there.store().stats().bytes_written;
    const auto done = there.unpack(file.path());
    REQUIRE_FALSE(done.has_value());
    REQUIRE(done.error().status == Status::io_failed);
    REQUIRE(there.n_records() == n_records);
    REQUIRE(there.store().stats().bytes_written == n_written);
  }
  // One byte of the file, there and back.
  void flip(u64 at) {
    CAPTURE(at);
    put_byte(at, static_cast<char>(whole[at] ^ (1 << at % 8)));
    require_refused();
    put_byte(at, whole[at]);
  }
  void flip_each(u64 stride) {
    for (u64 at = 0; at < whole.size(); at += stride) flip(at);
    CHECK(there.holds_nothing());
    CHECK(there.unpack(file.path()).has_value());
  }
  void put_byte(u64 at, char byte) const {
    const int fd = open(file.path().c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(fd >= 0);
    REQUIRE(pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
    close(fd);
  }

  // Writes the pack with another head and table, both with good checksums, but for crc_error.
  template <class Tell>
  void tell(Tell&& change, u32 crc_error = 0) {
    const Crc32c& crc = crc32c_ways()[0];
    std::string bytes = whole;
    reuse::PackHead head;
    std::memcpy(&head, bytes.data(), sizeof head);
    std::vector<reuse::PackEntry> table(head.n_sessions);
    char* const at = bytes.data() + kSectorBytes;
    std::memcpy(table.data(), at, table.size() * sizeof(reuse::PackEntry));
    change(head, table);
    std::memset(at, 0, kSectorBytes);
    std::memcpy(at, table.data(), table.size() * sizeof(reuse::PackEntry));
    head.table_crc = 0;
    for (const auto& entry : table) head.table_crc = reuse::added_crc(crc, head.table_crc, entry);
    head.table_crc += crc_error;
    encode_pack_head(crc, head, std::as_writable_bytes(std::span(bytes)).first(kSectorBytes));
    tools::write_file(file.path(), bytes.data(), bytes.size());
  }

  VirtualClock clock;
  SimDisk disk_here{1}, disk_there;
  SimIo io_here, io_there;
  TempFile file{"docs.pack"};
  CopyBench here, there;
  std::string whole;  // the pack's bytes
};

}  // namespace tarn::test
