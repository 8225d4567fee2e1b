// KV of chunks that lies in a GPU's memory, which the host does not address.
//
//   errors   device_lost: nothing that the device computed may be believed any more
//   thread   the engine's, between steps; a call returns when it is done
#pragma once

#include "platform/base/result.h"
#include "runtime/kv/sequence.h"
#include "runtime/step/rows.h"

namespace tarn::kv {

class ChunkDevice {
 public:
  // Slots of a source, and where a session's own begin that get their KV.
  struct Move {
    Sequence* source = nullptr;
    u32 source_slot = 0;
    Sequence* target = nullptr;
    u32 session = 0;
    u32 slot = 0;
    u32 n = 0;
    u32 distance = 0;  // that K is turned by, in positions
  };
  virtual Result<void> transplant(const Move& move) = 0;
  // V of n slots, rows of a step at most, [n, n_kv_heads * head_dim] of the host, until the next
  // call.
  virtual Result<step::Rows> values(Sequence& source, u32 cache_layer, u32 first_slot, u32 n) = 0;

 protected:
  ~ChunkDevice() = default;
};

}  // namespace tarn::kv
