// The sessions of an engine, and the calls on them between two steps.
//
//   thread   the engine's; request_cancel(), request_end() and take_event() any
//   memory   the engine's regions, lent from open() to close()
//   errors   a refused call changes nothing. Where KV turns out to be lost the tokens stay, and
//            are computed anew
//   run      feed() and generate() take no KV: a session that has something to do asks for a run
//            slot, and gets KV with it, in a step (admission.h)
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "runtime/chat/conversation.h"
#include "runtime/engine/sessions/admission.h"

namespace tarn::engine {

using SessionIdx = u32;

inline constexpr u32 kSessionsMax = kv::KvCache::kSessionsMax;

// invalid_request where one is not in the vocabulary.
Result<void> check_ids(const model::ModelSpec& spec, std::span<const u32> ids);

struct SessionArgs {
  // Text of any length; empty: the default one. Sessions of one tenant reuse each other's KV, and
  // no other KV; names of saved sessions are its own too.
  std::string_view tenant{};
  step::Priority priority = step::Priority::interactive;
};

// Parts of ids that are chunks, in order: their KV is placed from where they were computed alone,
// and this share of their tokens is computed anew (reuse/blend/blend.h). kAuto: what the
// controller says.
struct Parts {
  static constexpr f32 kAuto = -1;
  std::span<const reuse::ChunkSpan> chunks{};
  f32 recompute = 1;
};

class SessionPool {
 public:
  SessionPool(const Opened& opened, SessionKv& kv, LoadControl& loads, Admission& admission)
      : o_(opened), kv_(kv), loads_(loads), admission_(admission) {}
  SessionPool(const SessionPool&) = delete;
  SessionPool& operator=(const SessionPool&) = delete;

  Result<SessionIdx> create(const SessionArgs& args = {});
  void destroy(SessionIdx idx);
  Result<void> feed(SessionIdx idx, std::span<const u32> ids, const Parts& parts = {});
  // Makes these the session's tokens: keeps the longest common prefix, drops the rest, feeds what
  // is new. Reused KV is counted from here on. If the disk fails, the prefix may be all that stays.
  // Chunks among the parts are those that are new as a whole.
  Result<void> feed_chat(SessionIdx idx, const chat::Conversation& conversation,
                         const Parts& parts = {});
  Result<void> generate(SessionIdx idx, const GenerateParams& params);
  Result<void> truncate(SessionIdx idx, u32 n_tokens);
  Result<SessionIdx> fork(SessionIdx idx);

  // Sessions that outlive the engine, under a name, where the configuration keeps them
  // (reuse/archive.h). restore(): a new session; not_found: no session of this name is there.
  Result<void> autosave(SessionIdx idx, std::string_view name);
  Result<void> save(SessionIdx idx, std::string_view name);
  // Saves the session that has waited longest for its checkpoint, if one is due.
  void checkpoint();
  struct Restored {
    SessionIdx idx = 0;
    u32 n_tokens = 0;
    u32 n_computed = 0;       // of them, whose KV is there
    u32 turn_begin = 0;       // where its last input begins
    bool is_cut_off = false;  // saved in the middle, or before anybody asked for an answer
    u64 n_drawn = 0;          // then: tokens of that generation
    u64 took_ns = 0;
  };
  Result<Restored> restore(std::string_view name, const SessionArgs& args = {});

  // Cancels what runs now, from any thread. On a CPU it ends in front of the step's next tasks: its
  // end is told at once, its rows of the step count for nothing, and the step stops half way where
  // no other session's are in it. On a GPU, and where the step begins or ends an index's clustering
  // for the session, it ends with the step. What is fed or begun later is not touched; what a
  // cancelled prefill has not computed is dropped, what was there before it stays.
  void request_cancel(SessionIdx idx) { o_.sessions[idx].cancel.store(true); }
  // Before a close: there are no checkpoints from now on either. The one on disk is to be restored,
  // not what the cancel leaves.
  void request_end() {
    kv_.archive().stop_checkpoints();
    for (Session& s : o_.sessions) s.cancel.store(true);
  }
  bool take_event(SessionIdx idx, Event* event, std::span<char> text) {  // the session's reader
    return o_.sessions[idx].generation.events.pop(event, text);
  }

  const Session& state(SessionIdx idx) const { return o_.sessions[idx]; }
  std::span<const Session> all() const { return o_.sessions; }

 private:
  u32 tenant_idx_of(const Session& session) const;
  // Carries out a cancel from before, cuts off the KV that exact answers do not keep, and refuses
  // tokens that cannot follow the session's first n_kept_max.
  Result<void> begin_feed(Session& session, std::span<const u32> ids, u32 n_kept_max);
  Result<void> check_parts(const Parts& parts) const;
  // Adds the chunks of ids that begin at token `begin` of the session, and follow what it has. As
  // many as there is room for; the rest is computed like other tokens.
  void add_chunks(Session& session, const Parts& parts, std::span<const u32> ids, u32 begin);
  // Feeds what begin_feed() has allowed.
  void append(Session& session, std::span<const u32> ids);
  reuse::SessionView view_of(Session& session) const;
  Result<void> restore_from(Session& session, const reuse::Archive::Found& found);
  bool restore_index(Session& session, const reuse::Manifest& manifest);

  const Opened& o_;
  SessionKv& kv_;
  LoadControl& loads_;
  Admission& admission_;
  bool has_told_of_bos_ = false;
};

}  // namespace tarn::engine
