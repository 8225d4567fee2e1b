#include "runtime/kv/frame_pool.h"

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {

u64 FramePool::bookkeeping_bytes(u32 n_frames) {
  return align_up(u64{n_frames} * sizeof(u32), sizeof(u64));
}

void FramePool::init(u64 frame_bytes, u32 n_frames, std::span<std::byte> region,
                     std::span<std::byte> bookkeeping) {
  TARN_ASSERT(n_frames < kNone && region.size() >= n_frames * frame_bytes);
  TARN_ASSERT(reinterpret_cast<std::uintptr_t>(region.data()) % 4096 == 0);
  *this = FramePool();
  frame_bytes_ = frame_bytes;
  region_ = region;
  Bump bump(bookkeeping);
  const auto next_free = bump.alloc<u32>(n_frames);
  TARN_ASSERT(next_free.has_value());
  next_free_ = *next_free;
  for (u32 frame = n_frames; frame-- > 0;) put(frame);
}

u32 FramePool::take() {
  TARN_ASSERT(free_head_ != kNone);
  const u32 frame = free_head_;
  free_head_ = next_free_[frame];
  --n_free_;
  return frame;
}

void FramePool::put(u32 frame) {
  next_free_[frame] = free_head_;
  free_head_ = frame;
  ++n_free_;
}

void FramePool::put_lent(u32 frame) {
  TARN_ASSERT(n_lent_ > 0);
  --n_lent_;
  put(frame);
}

}  // namespace tarn::kv
