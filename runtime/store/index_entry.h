// The index's entry of one frame of the store's file, and the life of a record.
//
//   entry   a record's first frame has its life, its other frames have `part`
//   life    free -> writing (until its head is on the disk) -> published (found) -> retired (no
//           longer found, until no hold is left and its head is erased) -> free. A record that
//           cannot be written goes from writing to free
#pragma once

#include <span>

#include "platform/base/types.h"
#include "runtime/store/record.h"

namespace tarn::store {

inline constexpr u32 kNoFrame = ~u32{0};

// Names a record without pointing at it; a generation older than its frame's is stale.
struct RecordRef {
  u32 frame_idx = kNoFrame;
  u64 generation = 0;
  friend bool operator==(const RecordRef&, const RecordRef&) = default;
};

enum class Life : u8 {
  free,
  writing,
  published,
  retired,
  part,  // of the record before it
  seen,  // by the scan, not yet compared with its neighbours
};

struct IndexEntry {
  Key key{};
  u64 generation = 0;
  u64 payload_bytes = 0;
  u32 next = kNoFrame;     // in the chain of its bucket
  u32 older = kNoFrame;    // in the order of use; for a part: the record's first frame
  u32 younger = kNoFrame;  // likewise; for a part: kNoFrame
  u32 n_frames = 0;
  u32 n_tokens = 0;
  u32 holds = 0;
  Kind kind = Kind::group;
  Life life = Life::free;

  // Whether its frames may be freed once its head is erased.
  bool is_completed() const { return life == Life::retired && holds == 0; }
};
static_assert(sizeof(IndexEntry) == 64);

// The first frame of this frame's record; for a free frame, the frame itself.
inline u32 first_frame_of(std::span<const IndexEntry> entries, u32 frame_idx) {
  const IndexEntry& entry = entries[frame_idx];
  return entry.life == Life::part ? entry.older : frame_idx;
}

}  // namespace tarn::store
