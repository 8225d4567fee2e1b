// The index's entry of one frame of the store's file, and the life of a record.
//
//   entry   a record's first frame has its life, its other frames have `part`
//   life    free -> reserved -> writing -> verified -> published -> retired -> completed -> free. A
//           record that fails goes to completed from any step.
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
  reserved,
  writing,
  verified,
  published,
  retired,
  completed,
  part,  // of the record before it
  seen,  // by the scan, not yet compared with its neighbours
};
inline constexpr u32 kLives = 9;
const char* life_name(Life life);

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
};
static_assert(sizeof(IndexEntry) == 64);

// The first frame of this frame's record; for a free frame, the frame itself.
inline u32 first_frame_of(std::span<const IndexEntry> entries, u32 frame_idx) {
  const IndexEntry& entry = entries[frame_idx];
  return entry.life == Life::part ? entry.older : frame_idx;
}

// Makes and counts every step of every life.
class LifeSteps {
 public:
  void step(IndexEntry& entry, Life to) {
    ++counts_[at(entry.life, to)];
    entry.life = to;
  }
  u64 count(Life from, Life to) const { return counts_[at(from, to)]; }

 private:
  static u32 at(Life from, Life to) {
    return static_cast<u32>(from) * kLives + static_cast<u32>(to);
  }
  std::array<u64, u64{kLives} * kLives> counts_{};
};

}  // namespace tarn::store
