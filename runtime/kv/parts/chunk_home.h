// KV of chunks where it lies: with the host, or in a GPU's memory, which the host does not address.
//
//   errors   the disk's, or device_lost: nothing that the device computed may be believed any more
//   thread   the engine's, between steps; a call returns when it is done
#pragma once

#include <cmath>
#include <span>

#include "platform/base/result.h"
#include "runtime/kv/sequence.h"
#include "runtime/step/rows.h"

namespace tarn::kv {

// V of consecutive slots as another computation has it: rows of the host.
struct ChunkValues {
  u32 cache_layer = 0;
  u32 first_slot = 0;
  step::Rows v{};
};

class ChunkHome {
 public:
  // Slots of a source, and where a session's own begin that get their KV.
  struct Move {
    Sequence* source = nullptr;
    u32 source_slot = 0;
    Sequence* target = nullptr;
    u32 session = 0;
    u32 slot = 0;
    u32 n = 0;
    u32 distance = 0;                // that K is turned by, in positions
    const f32* deviation = nullptr;  // [n]; < 0 or -0: computed over it later in the same step
  };
  virtual Result<void> transplant(const Move& move) = 0;
  // Writes how far V of the source's slots is from `values`, a deviation a slot.
  virtual Result<void> compare(Sequence& source, const ChunkValues& values,
                               std::span<f32> deviation) = 0;

 protected:
  ~ChunkHome() = default;
};

inline f64 squared_distance(const f32* a, const f32* b, u32 n) {
  f64 sum = 0;
  for (u32 i = 0; i < n; ++i) {
    const f64 difference = f64{a[i]} - b[i];
    sum += difference * difference;
  }
  return sum;
}
// Returns a sum of squares as a deviation; one that is no number is larger than all.
inline f32 deviation_of(f64 sum) { return sum >= 0 ? static_cast<f32>(sum) : HUGE_VALF; }

}  // namespace tarn::kv
