// A hash of a model's tensors: a sum over tiles and vectors, each with its place in the file. So it
// does not depend on the pieces and the order of the reads. Not cryptographic. Any thread may add.
#pragma once

#include <array>
#include <atomic>

#include "platform/base/random_at.h"
#include "platform/cpu/crc32c.h"

namespace tarn::model {

class ContentHash {
 public:
  using Share = std::array<u64, 2>;

  explicit ContentHash(const Crc32c* with) : with_(with) {}  // nullptr: off, the hash is zero
  bool is_wanted() const { return with_ != nullptr; }

  // The share of one tile's rows, or of a vector.
  Share share_of(u64 file_offset, const std::byte* bytes, u64 n_bytes) const {
    if (with_ == nullptr) return {};
    const u64 crc = with_->bytes(bytes, n_bytes);
    const u64 share = mix64(crc + (file_offset << 32)) ^ mix64(file_offset + kGoldenGamma);
    return {share, mix64(share + n_bytes)};
  }
  void add(const Share& share) {
    for (u64 i = 0; i < share.size(); ++i) sum_[i].fetch_add(share[i], std::memory_order_relaxed);
  }
  Share value() const { return {sum_[0].load(), sum_[1].load()}; }

 private:
  const Crc32c* with_;
  std::array<std::atomic<u64>, 2> sum_{};
};

}  // namespace tarn::model
