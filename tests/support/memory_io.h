// An IoBackend over bytes in memory. Like direct I/O it needs offset, length and buffer in
// multiples of the sector, so that alignment bugs show without a disk. It completes requests in any
// order, and fails, shortens or changes a file at a chosen read.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "platform/io/io_backend.h"
#include "tests/support/seed.h"

namespace tarn::test {

class MemoryIo final : public IoBackend {
 public:
  // Adds a file; its bytes are borrowed for the backend's lifetime.
  IoFile add(std::span<const std::byte> bytes, std::string name = {});

  struct Script {
    u64 fail_at_read = ~u64{0};    // from this read on (counted from 0)
    u64 n_failed_reads = 1;        // so many end with -EIO
    u64 shrink_at_read = ~u64{0};  // before this read the file is cut to shrink_to_bytes
    u64 shrink_to_bytes = 0;
    u64 order_seed = 0;  // not 0: completions come in a random order
    u32 in_flight_max = 8;
    bool direct = true;
  };
  Script script{};

  u64 n_reads() const { return n_reads_; }
  u64 bytes_read() const { return bytes_read_; }
  u32 in_flight_high_water() const { return in_flight_high_water_; }

  const char* name() const override { return "memory"; }
  u32 in_flight_max() const override { return script.in_flight_max; }
  Result<IoFile> open(const IoOpenArgs& args) override;
  bool is_direct(IoFile) const override { return script.direct; }
  Result<u64> size_bytes(IoFile file) override;
  Result<void> allocate(IoFile, u64) override {
    return fail({.status = Status::unsupported, .hint = "files in memory are lent, not made"});
  }
  void close(IoFile) override {}
  bool register_buffers(std::span<const std::span<std::byte>>) override { return false; }
  bool submit(const IoRequest& request) override;
  u32 reap(std::span<IoCompletion> completions, u32 n_min, u64 timeout_ns) override;

 private:
  i64 perform(const IoRequest& request);

  std::vector<std::span<const std::byte>> files_;
  std::map<std::string, i32> names_;
  std::deque<IoRequest> queue_;
  Random order_{1};
  u64 n_reads_ = 0;
  u64 bytes_read_ = 0;
  u32 in_flight_high_water_ = 0;
};

}  // namespace tarn::test
