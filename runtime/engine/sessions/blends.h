// The blends of an engine: prompts with chunks run side by side, each with a blend of its own
// (reuse/blend/blend.h) from the first row in front of its chunks to its last chunk's end.
//
//   memory   lent from init() to close()
//   thread   the engine's
#pragma once

#include <span>

#include "runtime/engine/sessions/session.h"
#include "runtime/reuse/blend/blend.h"

namespace tarn::engine {

class Blends {
 public:
  void init(std::span<reuse::Blend> all) { all_ = all; }
  void close();
  reuse::HostChunks& host_chunks() { return host_chunks_; }
  std::span<reuse::Blend> all() { return all_; }
  std::span<const reuse::Blend> all() const { return all_; }

  static reuse::BlendTarget target_of(Session& session) {
    return {.session = session.idx,
            .sequence = &session.sequence,
            .root = session.client.root,
            .ids = session.tokens.ids.first(session.tokens.n_ids)};
  }
  // Blend::chunk_of(), the same for all of them.
  std::optional<reuse::Chunk> chunk_of(const reuse::ChunkSpan& part, u32 first_id,
                                       u32 n_ids) const {
    return all_[0].chunk_of(part, first_id, n_ids);
  }
  // Session's own; nullptr: it has none.
  reuse::Blend* of(const Session& session) const;
  u32 n_free() const;
  // Returns whether the session's next rows are of its blend.
  bool are_next(const Session& session) const;
  // Returns whether the session needs a blend, has none, and none is free.
  bool lacks(const Session& session) const;
  // Returns false where the session needs a blend, and none is free or the groups that it holds are
  // missing.
  bool begin(const Session& session);
  void forget(const Session& session);
  // Returns what is read from the disk while a step computes; nullptr: nothing.
  const kv::Sequence* read_ahead() const;
  // Frees those whose session does not go on with them.
  void end_unused(std::span<const Session> sessions);

 private:
  std::span<reuse::Blend> all_{};
  reuse::HostChunks host_chunks_{};
};

}  // namespace tarn::engine
