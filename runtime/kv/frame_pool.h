// The frames of memory that groups pass through: as many as the budget has room for, each of one
// group's size, in one region that begins at a multiple of 4 KiB.
//
//   states     free; in use; lent: its group is gone, and the disk still reads or writes it
//   thread     the engine's
//   when full  take() asserts: the mover makes room first
//
// Invariant: n_free + n_lent + frames in use = size.
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn::kv {

class FramePool {
 public:
  static u64 bookkeeping_bytes(u32 n_frames);
  // Borrows both.
  void init(u64 frame_bytes, u32 n_frames, std::span<std::byte> region,
            std::span<std::byte> bookkeeping);

  u32 take();
  void put(u32 frame);
  void lend() { ++n_lent_; }  // a frame in use becomes the disk's
  void put_lent(u32 frame);
  std::span<std::byte> bytes(u32 frame) const {
    return region_.subspan(frame * frame_bytes_, frame_bytes_);
  }

  u32 size() const { return static_cast<u32>(next_free_.size()); }
  u32 n_free() const { return n_free_; }
  u32 n_lent() const { return n_lent_; }

 private:
  static constexpr u32 kNone = ~u32{0};

  u64 frame_bytes_ = 0;
  std::span<std::byte> region_{};
  std::span<u32> next_free_{};  // [size], singly linked
  u32 free_head_ = kNone;
  u32 n_free_ = 0, n_lent_ = 0;
};

}  // namespace tarn::kv
