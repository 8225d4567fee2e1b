// The load controller's decisions about sessions: whether KV on the disk is read or computed anew,
// and how much of chunks is computed anew.
//
//   thread   the engine's
#pragma once

#include "runtime/control/controller.h"
#include "runtime/engine/sessions/session_kv.h"

namespace tarn::engine {

class LoadControl {
 public:
  LoadControl(const Opened& opened, SessionKv& kv) : o_(opened), kv_(kv) {}
  LoadControl(const LoadControl&) = delete;
  LoadControl& operator=(const LoadControl&) = delete;

  control::Controller& controller() { return controller_; }
  // Decides whether the session's KV on the disk is read. Once for what was fed, however often it
  // waits.
  void decide_loading(Session& session);
  // Decides how much of chunks is computed anew: parts of ids that begin at the session's token
  // `begin`.
  void decide_share(Session& session, std::span<const reuse::ChunkSpan> chunks,
                    std::span<const u32> ids, u32 begin);

 private:
  void probe_disk(Session& session, u32 n_ids);

  const Opened& o_;
  SessionKv& kv_;
  control::Controller controller_{};
};

}  // namespace tarn::engine
