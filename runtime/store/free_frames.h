// The free frames of the store's file as a bitmap, and the search for consecutive ones.
#pragma once

#include <optional>
#include <span>

#include "platform/base/bump.h"

namespace tarn::store {

class FreeFrames {
 public:
  static u64 bytes(u32 n_frames);
  void init(u32 n_frames, Bump& memory);  // all are free

  void set_free(u32 first, u32 n);
  void set_used(u32 first, u32 n);
  bool is_free(u32 frame_idx) const { return (bits_[frame_idx / 64] >> (frame_idx % 64) & 1) != 0; }
  u32 n_free() const { return n_free_; }

  // The first n consecutive free frames, from `begin` to the file's end, then from its begin.
  std::optional<u32> first_run(u32 n, u32 begin) const;
  // The last n consecutive free frames of the file.
  std::optional<u32> last_run(u32 n) const;

 private:
  u32 n_frames_ = 0, n_free_ = 0;
  std::span<u64> bits_{};
};

}  // namespace tarn::store
