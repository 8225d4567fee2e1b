#include "tests/support/memory_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tarn::test {

IoFile MemoryIo::add(std::span<const std::byte> bytes, std::string name) {
  const i32 index = static_cast<i32>(files_.size());
  files_.push_back(bytes);
  if (!name.empty()) names_[std::move(name)] = index;
  return IoFile{index};
}

Result<IoFile> MemoryIo::open(const IoOpenArgs& args) {
  const auto found = names_.find(args.path);
  if (found == names_.end()) {
    return fail({.status = Status::io_failed,
                 .hint = "no such file in memory",
                 .detail = Detail(args.path),
                 .figures = {{{"errno", ENOENT}}}});
  }
  return IoFile{found->second};
}

Result<u64> MemoryIo::size_bytes(IoFile file) {
  return u64{files_[static_cast<u64>(file.index)].size()};
}

bool MemoryIo::submit(const IoRequest& request) {
  if (queue_.size() >= script.in_flight_max) return false;
  queue_.push_back(request);
  // The buffer is the backend's from now on.
  if (request.op == IoOp::read && !request.buffer.empty()) request.buffer.front() ^= std::byte{255};
  in_flight_high_water_ = std::max(in_flight_high_water_, static_cast<u32>(queue_.size()));
  return true;
}

i64 MemoryIo::perform(const IoRequest& request) {
  if (request.op != IoOp::read) return -EROFS;
  const u64 read_idx = n_reads_++;
  auto& bytes = files_[static_cast<u64>(request.file.index)];
  if (read_idx == script.shrink_at_read) {
    bytes = bytes.first(std::min<u64>(bytes.size(), script.shrink_to_bytes));
  }
  if (read_idx >= script.fail_at_read && read_idx - script.fail_at_read < script.n_failed_reads) {
    return -EIO;
  }
  const u64 address = reinterpret_cast<std::uintptr_t>(request.buffer.data());
  const u64 misaligned = (address | request.offset | request.buffer.size()) % kSectorBytes;
  if (script.direct && misaligned != 0) return -EINVAL;
  if (request.offset >= bytes.size()) return 0;
  const u64 n = std::min<u64>(request.buffer.size(), bytes.size() - request.offset);
  std::memcpy(request.buffer.data(), bytes.data() + request.offset, n);
  bytes_read_ += n;
  return static_cast<i64>(n);
}

u32 MemoryIo::reap(std::span<IoCompletion> completions, u32 n_min, u64) {
  if (script.order_seed != 0 && order_.seed() != script.order_seed) {
    order_ = Random(script.order_seed);
  }
  u32 n = 0;
  while (!queue_.empty() && n < completions.size() && n < std::max(n_min, u32{1})) {
    const u64 pick = script.order_seed != 0 ? order_.below(queue_.size()) : 0;
    const IoRequest request = queue_[pick];
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(pick));
    completions[n++] = {.tag = request.tag, .result = perform(request)};
  }
  return n;
}

}  // namespace tarn::test
