// The chunks among a call's ids, by the ids' notes (chat/conversation.h).
#pragma once

#include <array>

#include "runtime/engine/engine.h"
#include "runtime/service/id_ring.h"

namespace tarn::service {

struct ChunkList {
  f32 recompute = 1;
  u32 n = 0;
  std::array<reuse::ChunkSpan, reuse::Chunks::kMax> spans{};
  engine::Parts parts() const {
    return {.chunks = std::span(spans).first(n), .recompute = recompute};
  }
};
// A share below 0 is for the engine to decide.
Result<ChunkList> chunks_of(const engine::Engine& engine, const Ids& ids, f32 recompute);

}  // namespace tarn::service
