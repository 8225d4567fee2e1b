#include "tools/support/disk_speed.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "platform/base/checked.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {
namespace {

constexpr u32 kUnderWay = 32;
constexpr u64 kBlockMax = 4 * kMiB;

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<std::byte, Freed>;

AlignedBytes aligned_bytes(u64 n) {
  AlignedBytes memory(static_cast<std::byte*>(std::aligned_alloc(kSectorBytes, n)));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A file that is there as long as this object.
class ScratchFile {
 public:
  ScratchFile(const std::string& folder, IoKind kind) : path_(folder + "/" + kScratchName) {
    const u64 n_bytes = align_up(io_backend_bytes(), kSectorBytes);
    io_memory_ = aligned_bytes(n_bytes);
    io_ = value_of(io_backend_create({.kind = kind, .in_flight_max = kUnderWay},
                                     {io_memory_.get(), n_bytes}))
              .backend;
    const Result<IoFile> opened = io_->open({.path = path_.c_str(), .write = true, .create = true});
    if (!opened) {
      io_backend_destroy(io_);
      (void)value_of(opened);
    }
    file_ = *opened;
    (void)unlink(path_.c_str());  // it goes with its last user, however that ends
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    io_->close(file_);
    io_backend_destroy(io_);
  }
  IoBackend& io() { return *io_; }
  IoFile file() const { return file_; }

 private:
  std::string path_;
  AlignedBytes io_memory_;
  IoBackend* io_ = nullptr;
  IoFile file_{};
};

// Requests of one kind until enough, kUnderWay of them at a time; returns how many. Throws when
// none is under way any more.
template <class Next>
u64 keep_busy(IoBackend& io, Next&& next) {
  u64 n_done = 0;
  u32 n_under_way = 0;
  bool has_failed = false;
  for (;;) {
    while (n_under_way < kUnderWay && !has_failed) {
      const std::optional<IoRequest> request = next(n_under_way, n_done);
      if (!request || !io.submit(*request)) break;
      ++n_under_way;
    }
    if (n_under_way == 0) break;
    std::array<IoCompletion, kUnderWay> done;
    const u32 n = io.reap(done, 1, ~u64{0});
    for (const IoCompletion& each : std::span(done).first(n))
      has_failed = has_failed || each.result < 0;
    n_under_way -= n;
    n_done += n;
  }
  if (has_failed) throw Failure{kExitIo, "the disk failed a request of the measurement"};
  return n_done;
}

}  // namespace

std::vector<DiskReads> measure_disk(const std::string& folder, IoKind kind, u64 file_bytes,
                                    f64 seconds_each) {
  using Clock = std::chrono::steady_clock;
  file_bytes = std::max(file_bytes / kBlockMax, u64{1}) * kBlockMax;
  const u64 n_bytes = kUnderWay * kBlockMax;
  const AlignedBytes memory = aligned_bytes(n_bytes);
  ScratchFile scratch(folder, kind);
  IoBackend& io = scratch.io();
  if (!io.is_direct(scratch.file())) {
    throw Failure{kExitRefused, folder +
                                    " has no direct I/O (a folder in memory?): name a folder "
                                    "on the disk that the store is to lie on"};
  }
  value_of(io.allocate(scratch.file(), file_bytes));
  std::mt19937_64 random(1);
  for (u64 at = 0; at < n_bytes; at += sizeof(u64)) {  // what a disk does not compress
    const u64 word = random();
    std::copy_n(reinterpret_cast<const std::byte*>(&word), sizeof word, memory.get() + at);
  }
  const std::span<std::byte> buffer(memory.get(), n_bytes);
  u64 written = 0;
  keep_busy(io, [&](u32, u64) -> std::optional<IoRequest> {
    if (written == file_bytes) return std::nullopt;
    const u64 offset = std::exchange(written, written + kBlockMax);
    return IoRequest{.op = IoOp::write,
                     .file = scratch.file(),
                     .offset = offset,
                     .buffer = buffer.subspan(offset % n_bytes, kBlockMax)};
  });
  keep_busy(io, [&, asked = false](u32, u64) mutable -> std::optional<IoRequest> {
    if (std::exchange(asked, true)) return std::nullopt;
    return IoRequest{.op = IoOp::sync_data, .file = scratch.file()};
  });
  std::vector<DiskReads> out;
  for (u64 block = kSectorBytes; block <= kBlockMax; block *= 4) {
    const auto begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<f64>(Clock::now() - begin).count(); };
    u64 place = 0;
    const u64 n_done = keep_busy(io, [&](u32, u64) -> std::optional<IoRequest> {
      if (elapsed() >= seconds_each) return std::nullopt;
      const u64 at = random() % (file_bytes / block) * block;
      const u64 into = place++ % kUnderWay * kBlockMax;
      return IoRequest{.file = scratch.file(), .offset = at, .buffer = buffer.subspan(into, block)};
    });
    out.push_back({.bytes = block, .seconds = elapsed() / static_cast<f64>(n_done)});
  }
  return out;
}

}  // namespace tarn::tools
