// The sessions of an engine: the calls on them between two steps, and what a step does to one.
//
//   thread   the engine's; request_cancel(), request_end() and take_event() any
//   memory   the engine's regions, lent from open() to close()
//   errors   a refused call changes nothing. Where KV turns out to be lost the tokens stay, and
//            are computed anew
//   places   feed() and generate() take no KV: a session that has something to do waits for a
//            place, and gets KV with it (places.h)
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "runtime/engine/places.h"
#include "runtime/step/schedule.h"

namespace tarn::engine {

using SessionIdx = u32;
using step::Ready;
using step::RunKind;

inline constexpr u32 kSessionsMax = kv::KvCache::kSessionsMax;

// invalid_request where one is not in the vocabulary.
Result<void> check_ids(const model::ModelSpec& spec, std::span<const u32> ids);

struct SessionArgs {
  // Text of any length; empty: the default one. Sessions of one tenant reuse each other's KV, and
  // nobody else's; names of saved sessions are its own too.
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

// The base of Engine, which steps.
class Sessions : public Places {
 public:
  Result<SessionIdx> create_session(const SessionArgs& args = {});
  void destroy_session(SessionIdx idx);
  Result<void> feed(SessionIdx idx, std::span<const u32> ids, const Parts& parts = {});
  Result<void> generate(SessionIdx idx, const GenerateParams& params);
  Result<void> truncate(SessionIdx idx, u32 n_tokens);
  Result<SessionIdx> fork(SessionIdx idx);

  // Sessions that outlive the engine, under a name, where the configuration keeps them
  // (reuse/archive.h). restore(): a new session; not_found: no session of this name is there.
  Result<void> autosave(SessionIdx idx, std::string_view name);
  Result<void> save(SessionIdx idx, std::string_view name);
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
  // For exports, imports and what is to be erased. The engine does nothing else before they end.
  reuse::Archive& archive() { return archive_; }

  // Any thread. On a CPU what runs now ends in front of the step's next tasks: its end is told at
  // once, its rows of the step count for nothing, and the step stops half way where nobody else's
  // are in it. On a GPU, and where the step begins or ends an index's clustering for the session,
  // it ends with the step. What is fed or begun later is not touched; what a cancelled prefill has
  // not computed is dropped, what was there before it stays.
  void request_cancel(SessionIdx idx) { sessions_[idx].cancel.store(true); }
  // Before a close: there are no checkpoints from now on either. The one on disk is to be restored,
  // not what the cancel leaves.
  void request_end() {
    archive_.stop_checkpoints();
    for (Session& s : sessions_) s.cancel.store(true);
  }
  bool take_event(SessionIdx idx, Event* event, std::span<char> text) {  // the session's reader
    return sessions_[idx].generation.events.pop(event, text);
  }

  const Session& session_state(SessionIdx idx) const { return sessions_[idx]; }
  std::span<const Session> sessions() const { return sessions_; }

 protected:
  // Those that have rows for a step, in order. Each first takes what others have computed of its
  // tokens meanwhile.
  std::span<Ready> ready_sessions();
  bool have_work() const;
  // Appends what was sampled, and tells the reader.
  void accept_token(Session& session, Sampled sampled);
  // Ends what cancelled sessions do; whether there were any. release_slots() comes later.
  bool end_all_cancelled();
  void checkpoint();
  // Carries out a cancel from before, cuts off the KV that exact answers do not keep, and refuses
  // tokens that cannot follow the session's first n_kept_max.
  Result<void> begin_feed(SessionIdx idx, std::span<const u32> ids, u32 n_kept_max);
  // Cuts off the KV that exact answers do not keep.
  Result<void> cut_approximate(Session& session);
  Result<void> check_parts(const Parts& parts) const;
  // Of ids that begin at token `begin` of the session, and follow what it has. As many as there is
  // room for; the rest is computed like other tokens.
  void add_chunks(Session& session, const Parts& parts, std::span<const u32> ids, u32 begin);
  // Feeds what begin_feed() has allowed.
  void append(Session& session, std::span<const u32> ids);

  std::span<Ready> ready_{};  // [sessions_max]

  reuse::BlendTarget blend_target(Session& session);

 private:
  std::optional<u32> n_rows_of(Session& session);
  reuse::SessionView view_of(Session& session) const;
  Result<void> restore_from(Session& session, const reuse::Archive::Found& found);
  bool restore_index(Session& session, const reuse::Manifest& manifest);

  bool has_told_of_bos_ = false;
};

}  // namespace tarn::engine
