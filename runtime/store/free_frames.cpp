#include "runtime/store/free_frames.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::store {

u64 FreeFrames::bytes(u32 n_frames) { return ceil_div(n_frames, 64) * sizeof(u64); }

void FreeFrames::init(u32 n_frames, Bump& memory) {
  const auto bits = memory.alloc<u64>(ceil_div(n_frames, 64));
  TARN_ASSERT(n_frames > 0 && bits);
  bits_ = *bits;
  std::fill(bits_.begin(), bits_.end(), u64{0});
  n_frames_ = n_frames;
  n_free_ = 0;
  set_free(0, n_frames);
}

void FreeFrames::set_free(u32 first, u32 n) {
  for (u32 i = first; i < first + n; ++i) {
    TARN_ASSERT(!is_free(i));
    bits_[i / 64] |= u64{1} << (i % 64);
  }
  n_free_ += n;
}

void FreeFrames::set_used(u32 first, u32 n) {
  for (u32 i = first; i < first + n; ++i) {
    TARN_ASSERT(is_free(i));
    bits_[i / 64] &= ~(u64{1} << (i % 64));
  }
  n_free_ -= n;
}

// Words without a free frame are skipped as a whole.
std::optional<u32> FreeFrames::first_run(u32 n, u32 begin) const {
  if (n_free_ < n) return std::nullopt;
  for (const u32 start : {begin, u32{0}}) {
    u32 length = 0;
    for (u32 i = start; i < n_frames_; ++i) {
      if (i % 64 == 0 && bits_[i / 64] == 0) {
        length = 0;
        i += 63;
        continue;
      }
      length = is_free(i) ? length + 1 : 0;
      if (length == n) return i + 1 - n;
    }
  }
  return std::nullopt;
}

std::optional<u32> FreeFrames::last_run(u32 n) const {
  u32 length = 0;
  for (u32 i = n_frames_; n_free_ >= n && i-- > 0;) {
    length = is_free(i) ? length + 1 : 0;
    if (length == n) return i;
  }
  return std::nullopt;
}

}  // namespace tarn::store
